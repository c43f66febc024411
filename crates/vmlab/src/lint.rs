//! `vmlab lint`: what is wrong with configurations of VMs.

#[cfg(feature = "kubernetes")]
mod cluster;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use host::audit::AuditScope;
use lint::output::LintNotes;
use lint::site::{self, SuppressedFinding, Suppressor};
use lint::{
    CheckedText, Cluster, Context, Finding, KubevirtVersion, ReleaseVersion, Severity, output,
};
use runner::machine;
use topology::PcpuSet;
use vmconfig::kubevirt::Catalogue;
use vmconfig::source::JoinedText;

use crate::audit::{self, AuditedVms};
use crate::exit::{ERROR, FINDINGS};
#[cfg(feature = "kubernetes")]
use crate::kubernetes::{ClusterView, KubernetesArgs};
use crate::lint_rules::OwnRules;
use crate::offers::{self, OffersArgs};
use crate::{host_file, input, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab lint vm.xml                          a libvirt domain
  vmlab lint --host / vms/                   a folder, for VMs on this machine
  virsh dumpxml web | vmlab lint -           standard input
  vmlab lint --libvirt qemu:///system        all domains there
  vmlab lint --libvirt qemu:///system vm.xml for what libvirt and QEMU can do here
  vmlab lint --capabilities dom.xml vm.xml   the same from virsh domcapabilities >dom.xml
  vmlab lint --kubevirt 1.7.0 vmi.yaml       for a version of KubeVirt
  vmlab lint vm.yaml instancetypes.yaml      a VM with the instance type it names
  vmlab lint vm.yaml kubevirt.yaml           for a cluster's version and feature gates
  vmlab lint --cluster                       every VM of kubectl's cluster, for its node
  vmlab lint --cluster=prod -n shop vm.yaml  a file, for what that cluster is and has
  vmlab lint --fix --dry-run vm.xml          what --fix would write
  vmlab lint --running                       the VMs that run on this machine
  vmlab lint --sarif vms/ > lint.sarif       for code scanning
  vmlab lint --format github vms/            annotations of a pull request
  vmlab lint --explain siblings-split        all about one rule
  vmlab lint --rules site.toml vms/          rules of a site's own, too
  vmlab lint --check-rules site.toml         do they do what their examples say?

A comment `vmlab: allow ID` silences a rule on its line and the next one,
`vmlab: allow-file ID` in the whole file. A .vmlab-lint.toml in the folder of a file,
or the next above it in the same repository, holds rules and levels like those of
--rules (docs/site-rules.md).";

/// Names of files that a folder is searched for.
const EXTENSIONS: [&str; 8] = ["xml", "yaml", "yml", "json", "sh", "args", "cmd", "conf"];

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LintArgs {
    /// Domain XML, KubeVirt YAML, QEMU command lines, Proxmox's .conf; folders; `-` for
    /// standard input.
    #[arg(value_name = "FILE", required_unless_present_any = ["explain", "list", "markdown", "running", "check_rules", "libvirt"])]
    #[cfg_attr(feature = "kubernetes", arg(required_unless_present = "cluster"))]
    files: Vec<PathBuf>,
    /// The VMs that run on this machine instead of files: what is, against what
    /// was asked for (`vmlab audit` shows all that is known of them).
    #[arg(long, conflicts_with_all = ["files", "fix"])]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    running: bool,
    /// With --running: draw the host's pCPUs with the threads that may run on
    /// them.
    #[arg(long, requires = "running", conflicts_with_all = ["format", "json", "sarif"])]
    map: bool,
    /// The host that the VMs run on: a saved host file, or a folder with sys and
    /// proc (`/`: here), which also tells of interrupts, load and devices.
    #[arg(long, value_name = "FILE")]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    host: Option<PathBuf>,
    #[command(flatten)]
    offers: OffersArgs,
    #[cfg(feature = "kubernetes")]
    #[command(flatten)]
    cluster: KubernetesArgs,
    /// Version of KubeVirt, all three numbers: 1.7.5 has what 1.7.0 has not. Without it
    /// that of a KubeVirt object among the files, else the newest that is known.
    #[arg(long, value_name = "VERSION")]
    kubevirt: Option<KubevirtVersion>,
    /// Feature gates that the cluster's KubeVirt has on (`--feature-gates ''`: none).
    /// Without it those of a KubeVirt object among the files, else none is known.
    #[arg(long, value_name = "GATE", value_delimiter = ',', num_args = 0..=1)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    feature_gates: Option<Vec<String>>,
    /// Version of Kubernetes.
    #[arg(long, value_name = "VERSION", default_value_t = lint::DEFAULT_KUBERNETES)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    kubernetes: ReleaseVersion,
    /// The kubelet's cpuManagerPolicyOptions by name (full-pcpus-only), and
    /// topology-manager-policy=POLICY.
    #[arg(long, value_name = "OPTION", value_delimiter = ',')]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    kubelet: Vec<String>,
    /// pCPUs that are kept for the host.
    #[arg(long, value_name = "PCPUS", default_value = "")]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    reserved: PcpuSet,
    /// Show findings of at least this severity.
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = SeverityArg::Hint)]
    level: SeverityArg,
    /// Severity from which on the exit code is 1.
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = SeverityArg::Warning)]
    fail_on: SeverityArg,
    /// Rules of a site's own and other levels for those that there are, in TOML; may be
    /// given again.
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Hold the rules of a file to their own examples.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "running", "rules"])]
    check_rules: Vec<PathBuf>,
    /// Look for no .vmlab-lint.toml.
    #[arg(long)]
    no_config: bool,
    /// Say which rules files hold for which files.
    #[arg(long, short)]
    verbose: bool,
    /// Write the fixes that need no judgement into the files.
    #[arg(long)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    fix: bool,
    /// With --fix: show the changes and write nothing.
    #[arg(long, requires = "fix")]
    dry_run: bool,
    /// How to print what is found.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = FindingsFormat::Text)]
    format: FindingsFormat,
    /// The same as --format json.
    #[arg(long, conflicts_with_all = ["format", "sarif"])]
    json: bool,
    /// The same as --format sarif.
    #[arg(long, conflicts_with = "format")]
    sarif: bool,
    /// Explain a rule.
    #[arg(long, value_name = "ID", conflicts_with = "files")]
    explain: Option<String>,
    /// List the rules.
    #[arg(long, conflicts_with = "files")]
    list: bool,
    /// Print all rules as Markdown.
    #[arg(long, conflicts_with = "files", hide = true)]
    markdown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FindingsFormat {
    /// For people, with the lines.
    Text,
    /// One object with counts and findings.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// GitHub's workflow commands: annotations of a pull request.
    Github,
}

impl LintArgs {
    fn format(&self) -> FindingsFormat {
        match (self.json, self.sarif) {
            (true, _) => FindingsFormat::Json,
            (_, true) => FindingsFormat::Sarif,
            _ => self.format,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SeverityArg {
    Error,
    Warning,
    Hint,
}

impl From<SeverityArg> for Severity {
    fn from(level: SeverityArg) -> Self {
        match level {
            SeverityArg::Error => Self::Error,
            SeverityArg::Warning => Self::Warning,
            SeverityArg::Hint => Self::Hint,
        }
    }
}

/// Where a text to check is.
enum Source {
    File(PathBuf),
    Stdin,
    /// It came with its name.
    Text(String),
}

/// A text to check.
struct Input {
    name: String,
    source: Source,
    /// Named on the command line, so that it must hold VMs.
    named: bool,
}

impl Input {
    /// The file, if it is one.
    fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path) => Some(path),
            Source::Stdin | Source::Text(_) => None,
        }
    }
}

/// The result of checking one text.
enum TextOutcome {
    Checked(CheckedText),
    Skipped,
    Failed(String),
    /// What bears on it may stand in any of the other texts.
    Waits(String),
}

/// # Errors
/// A host, a rule or an option that does not exist; findings are no error.
pub(crate) fn run(args: &LintArgs) -> anyhow::Result<ExitCode> {
    if !args.check_rules.is_empty() {
        let own = OwnRules::load(&args.check_rules, false, iter::empty())?;
        let (said, well) = own.check(&context(args)?);
        terminal::print(&said)?;
        return Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) });
    }
    if args.explain.is_some() || args.list || args.markdown {
        terminal::print(&told(args)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.running {
        return running(args);
    }
    #[cfg(feature = "kubernetes")]
    if args.cluster.is_given() {
        anyhow::ensure!(
            !args.offers.is_given(),
            "--capabilities, --libvirt and --qemu tell of one host, --cluster of many: give one \
             of them"
        );
    }
    #[cfg(feature = "kubernetes")]
    if let Some(view) = ClusterView::read(&args.cluster, args.kubevirt)? {
        return in_cluster(args, &view);
    }
    let mut context = context(args)?;
    let mut inputs = Vec::new();
    for path in &args.files {
        collect(path, true, &mut inputs)?;
    }
    if let Some(uri) = args.offers.libvirt.as_ref().filter(|_| args.files.is_empty()) {
        for (name, text) in offers::domains(uri)? {
            let (name, source) = (format!("{uri}/{name}"), Source::Text(text));
            inputs.push(Input { name, source, named: true });
        }
    }
    let named = inputs.iter().map(|input| (input.name.as_str(), input.path()));
    let own = OwnRules::load(&args.rules, !args.no_config, named)?;
    if args.verbose {
        for input in &inputs {
            let files: Vec<&str> =
                own.of(&input.name).iter().map(|set| set.file.as_str()).collect();
            let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
            terminal::note(&format!("{}: rules files: {files}", input.name));
        }
    }
    let found = check_all(&inputs, &mut context, &own, args.kubevirt.is_some());
    let failed = found.failed;
    let shown = of_level(args, found.findings);
    let left = if args.fix { mend(args, &inputs, shown, &context, &own)? } else { shown };
    if !args.dry_run {
        let beside =
            LintNotes { suppressed: &found.suppressed, rules: &own.used(), failed: &failed };
        say(args, &left, &beside, found.files, "file")?;
    }
    for message in &failed {
        terminal::note(&format!("vmlab: {message}"));
    }
    Ok(if failed.is_empty() { verdict(args, &left) } else { ExitCode::from(ERROR) })
}

/// The VMs that run here.
fn running(args: &LintArgs) -> anyhow::Result<ExitCode> {
    let here = machine::this_host();
    let mut context = context(args)?;
    if args.host.is_none() {
        look_around(Path::new("/"), &mut context);
        context = context.on(here.clone());
    }
    let look = AuditScope { qmp: true, ..AuditScope::default() };
    // Where nothing is a file, what lies here holds.
    let own = OwnRules::load(&args.rules, !args.no_config, iter::once(("-", None)))?;
    let rules = own.of("-");
    let AuditedVms { vms, findings, problems, .. } = audit::look(&look, &here, &context, &rules);
    let (findings, suppressed) = own.settle(findings);
    let shown = of_level(args, findings);
    if args.map {
        terminal::print(&audit::map::draw(&vms, &here, terminal::width()))?;
    }
    let beside = LintNotes { suppressed: &suppressed, rules: &own.used(), failed: &problems };
    say(args, &shown, &beside, vms.len(), "running VM")?;
    for problem in &problems {
        terminal::note(&format!("vmlab: {problem}"));
    }
    Ok(verdict(args, &shown))
}

/// The VMs of a cluster, each for the node that it runs on, or files for the cluster.
#[cfg(feature = "kubernetes")]
fn in_cluster(args: &LintArgs, view: &ClusterView) -> anyhow::Result<ExitCode> {
    let mut files = Vec::new();
    for path in &args.files {
        collect(path, true, &mut files)?;
    }
    let own = OwnRules::load(
        &args.rules,
        !args.no_config,
        files.iter().map(|input| (input.name.as_str(), input.path())).chain([("-", None)]),
    )?;
    let mut all =
        LintFindings { findings: Vec::new(), suppressed: Vec::new(), files: 0, failed: Vec::new() };
    let mut add = |found: LintFindings| {
        all.findings.extend(found.findings);
        all.suppressed.extend(found.suppressed);
        all.files += found.files;
        all.failed.extend(found.failed);
    };
    let is_files = !files.is_empty();
    if is_files {
        add(check_all(&files, &mut view.context(None), &own, true));
    } else {
        for group in cluster::groups(view) {
            let inputs: Vec<Input> = group
                .objects
                .iter()
                .map(|object| Input {
                    name: cluster::name(object),
                    source: Source::Text(object.text.clone()),
                    named: true,
                })
                .collect();
            add(check_all(&inputs, &mut view.context(group.node), &own, true));
        }
    }
    let shown = of_level(args, all.findings);
    let failed: Vec<String> = all
        .failed
        .iter()
        .cloned()
        .chain(view.facts.unread.iter().map(ToString::to_string))
        .collect();
    let beside = LintNotes { suppressed: &all.suppressed, rules: &own.used(), failed: &failed };
    say(args, &shown, &beside, all.files, if is_files { "file" } else { "VM" })?;
    for message in &failed {
        terminal::note(&format!("vmlab: {message}"));
    }
    Ok(if all.failed.is_empty() { verdict(args, &shown) } else { ExitCode::from(ERROR) })
}

fn of_level(args: &LintArgs, findings: Vec<Finding>) -> Vec<Finding> {
    let wanted = Severity::from(args.level);
    findings.into_iter().filter(|finding| finding.severity >= wanted).collect()
}

/// Prints the findings in the form that was asked for; they were looked for in so many
/// of these.
fn say(
    args: &LintArgs,
    findings: &[Finding],
    beside: &LintNotes<'_>,
    number: usize,
    what: &str,
) -> anyhow::Result<()> {
    terminal::print(&match args.format() {
        FindingsFormat::Json => output::json(findings, number, beside),
        FindingsFormat::Sarif => output::sarif(findings, env!("CARGO_PKG_VERSION"), beside),
        FindingsFormat::Github => output::github(findings, beside),
        FindingsFormat::Text => {
            terminal::print_all(output::texts(findings, terminal::width(), true))?;
            let mut text = output::summary(findings, number, what);
            let allowed =
                beside.suppressed.iter().filter(|one| one.by == Suppressor::Level).count();
            if allowed > 0 {
                text +=
                    &format!("{allowed} more allowed by rules files: --json shows them and why\n");
            }
            text
        }
    })
}

fn verdict(args: &LintArgs, findings: &[Finding]) -> ExitCode {
    let bad = findings.iter().any(|finding| finding.severity >= Severity::from(args.fail_on));
    if bad { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS }
}

fn context(args: &LintArgs) -> anyhow::Result<Context> {
    let mut context = Context::default();
    if let Some(version) = args.kubevirt {
        context.kubevirt = version;
    }
    if let Some(gates) = &args.feature_gates {
        let gates = gates.iter().filter(|gate| !gate.is_empty()).cloned().collect();
        context.cluster = Some(Cluster { gates, ..Cluster::default() });
    }
    context.kubernetes = args.kubernetes;
    context.reserved = args.reserved.clone();
    for option in &args.kubelet {
        match option.split_once('=').unwrap_or((option, "true")) {
            ("topology-manager-policy", policy) => context.kubelet.topology = policy.parse()?,
            (name, value) => context.kubelet.options.set(name, value)?,
        }
    }
    let (offers, described) = args.offers.load()?;
    context.offers = offers;
    let Some(path) = &args.host else {
        return Ok(match described {
            Some(host) => context.on(host),
            None => context,
        });
    };
    // Only a whole tree tells what the host does and where its devices are.
    if path.is_dir() {
        look_around(path, &mut context);
    }
    Ok(context.on(host_file::load_host(path)?))
}

/// What a machine's files tell beside its topology; `root` holds its `sys` and
/// `proc`. What can't be read is not known.
fn look_around(root: &Path, context: &mut Context) {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    context.busy = lint::BusyPcpus::read(&text("proc/interrupts"), &text("proc/stat"));
    let devices = fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    for device in devices {
        let node = fs::read_to_string(device.path().join("numa_node")).unwrap_or_default();
        // -1: of no node.
        let address = device.file_name().to_str().and_then(|name| name.parse().ok());
        if let (Ok(node), Some(address)) = (node.trim().parse(), address) {
            context.device_nodes.insert(address, node);
        }
    }
}

/// The files below a path, by name.
fn collect(path: &Path, named: bool, inputs: &mut Vec<Input>) -> anyhow::Result<()> {
    if path == Path::new("-") {
        if io::stdin().is_terminal() {
            terminal::note("vmlab: reading a configuration from standard input");
        }
        inputs.push(Input { name: "-".to_owned(), source: Source::Stdin, named });
        return Ok(());
    }
    let name = path.display();
    let metadata = if named { fs::metadata(path) } else { fs::symlink_metadata(path) };
    let metadata = metadata.with_context(|| format!("Cannot read {name}"))?;
    if !metadata.is_dir() {
        inputs.push(Input { name: name.to_string(), source: Source::File(path.to_owned()), named });
        return Ok(());
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut paths: Vec<PathBuf> = entries
        .with_context(|| format!("Cannot read {name}"))?
        .iter()
        .map(fs::DirEntry::path)
        .collect();
    paths.sort();
    for path in paths {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let extension = path.extension().and_then(|extension| extension.to_str());
        let fits = extension.is_some_and(|extension| EXTENSIONS.contains(&extension));
        if !hidden && (fits || path.is_dir() && !path.is_symlink()) {
            collect(&path, false, inputs)?;
        }
    }
    Ok(())
}

/// What some work makes of each thing, in their order; all pCPUs share it.
fn of_each<I: Sync, T: Send>(things: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(things.len()));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(things.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((index, thing)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    things.get(index).map(|thing| (index, thing))
                } {
                    let made = work(thing);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, made));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, made)| made).collect()
}

/// All about one rule, or of all a little.
fn told(args: &LintArgs) -> anyhow::Result<String> {
    let here = iter::once(("-", None));
    let own = OwnRules::load(&args.rules, !args.no_config, here)?;
    Ok(match &args.explain {
        Some(id) => match own.find(id) {
            Some(rule) => site::explain(rule),
            None => output::explain(lint::find(id)?),
        },
        None if args.list => output::list() + &site::list(&own.all()),
        None => output::markdown(),
    })
}

/// The findings in all files.
struct LintFindings {
    findings: Vec<Finding>,
    suppressed: Vec<SuppressedFinding>,
    /// Files that hold VMs.
    files: usize,
    failed: Vec<String>,
}

/// Checks every text, and reads each once: KubeVirt's objects wait until all texts are
/// seen. What those hold for others is in the context then; a version that was `given`
/// stays, as do feature gates.
fn check_all(inputs: &[Input], context: &mut Context, own: &OwnRules, given: bool) -> LintFindings {
    let (mut findings, mut files, mut failed, mut vms) = (Vec::new(), 0, Vec::new(), Vec::new());
    let mut silenced = Vec::new();
    let alone = inputs.len() == 1;
    let mut first = Vec::with_capacity(inputs.len());
    let mut cluster: Option<Cluster> = None;
    for (held, outcome) in of_each(inputs, |input| first_look(input, alone, context, own)) {
        if let Some(types) = held.types {
            context.instancetypes.extend(&types);
        }
        if let Some(other) = held.cluster {
            cluster.get_or_insert_default().extend(other);
        }
        first.push(outcome);
    }
    if let Some(cluster) = cluster {
        if let Some(version) = cluster.version.filter(|_| !given) {
            context.kubevirt = version;
        }
        context.cluster.get_or_insert(cluster);
    }
    let waiting: Vec<(&Input, &str)> = inputs
        .iter()
        .zip(&first)
        .filter_map(|(input, outcome)| match outcome {
            TextOutcome::Waits(text) => Some((input, text.as_str())),
            _ => None,
        })
        .collect();
    let context = &*context;
    let mut second =
        of_each(&waiting, |(input, text)| check(input, text, context, own)).into_iter();
    for outcome in first {
        let outcome = match outcome {
            TextOutcome::Waits(_) => second.next().unwrap_or(TextOutcome::Skipped),
            done => done,
        };
        match outcome {
            TextOutcome::Checked(checked) => {
                files += 1;
                findings.extend(checked.findings);
                silenced.extend(checked.suppressed);
                vms.extend(checked.vms);
            }
            TextOutcome::Skipped | TextOutcome::Waits(_) => {}
            TextOutcome::Failed(message) => failed.push(message),
        }
    }
    findings.extend(lint::check_fleet(&vms, context));
    let (findings, mut suppressed) = own.settle(findings);
    suppressed.extend(silenced);
    LintFindings { findings, suppressed, files, failed }
}

/// What a text holds for others.
#[derive(Default)]
struct HeldObjects {
    types: Option<Catalogue>,
    cluster: Option<Cluster>,
}

/// Reads a text, and checks it if nothing that bears on it can stand in another one; with
/// what it holds for others.
fn first_look(
    input: &Input,
    alone: bool,
    context: &Context,
    own: &OwnRules,
) -> (HeldObjects, TextOutcome) {
    let text = match read(input) {
        Ok(text) => text,
        Err(error) => {
            return (
                HeldObjects::default(),
                TextOutcome::Failed(format!("Cannot read {}: {error}", input.name)),
            );
        }
    };
    let cluster = Cluster::read(&text);
    let types = if alone { None } else { lint::instancetypes(&text) };
    let waits = cluster.is_some() || !alone && lint::needs_others(&text);
    let held = HeldObjects { types, cluster };
    let outcome = if waits { TextOutcome::Waits(text) } else { check(input, &text, context, own) };
    (held, outcome)
}

fn check(input: &Input, text: &str, context: &Context, own: &OwnRules) -> TextOutcome {
    if !input.named && !lint::holds_vms(text) {
        return TextOutcome::Skipped;
    }
    let text = joined(input, text.to_owned());
    match lint::check_joined(&input.name, &text, context, &own.of(&input.name)) {
        Ok(checked) => TextOutcome::Checked(checked),
        Err(error) => TextOutcome::Failed(error.to_string()),
    }
}

/// A text with the files that it names.
fn joined(input: &Input, text: String) -> JoinedText {
    input::with_config_files(input.path().unwrap_or(Path::new("-")), text)
}

fn read(from: &Input) -> io::Result<String> {
    match &from.source {
        Source::File(path) => input::text(path),
        Source::Text(text) => Ok(text.clone()),
        Source::Stdin => input::text(Path::new("-")),
    }
}

/// Writes or shows the certain fixes; what is left to find afterwards.
fn mend(
    args: &LintArgs,
    inputs: &[Input],
    findings: Vec<Finding>,
    context: &Context,
    own: &OwnRules,
) -> anyhow::Result<Vec<Finding>> {
    let mut changes = String::new();
    let mut left = Vec::new();
    let mut by_file: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        by_file.entry(finding.file.clone()).or_default().push(finding);
    }
    for input in inputs {
        let Some(of_file) = by_file.remove(&input.name) else { continue };
        let Some(path) = input.path() else {
            let what = if input.name == "-" { "Standard input" } else { &input.name };
            anyhow::bail!("{what} can't be mended; name a file");
        };
        if !of_file.iter().any(|finding| finding.fix.as_ref().is_some_and(|fix| fix.certain)) {
            left.extend(of_file);
            continue;
        }
        let before = read(input).with_context(|| format!("Cannot read {}", input.name))?;
        let (after, mended) = lint::apply(&before, &of_file);
        if args.dry_run {
            changes.push_str(&lint::difference(&input.name, &before, &after));
            left.extend(of_file);
            continue;
        }
        fs::write(path, &after).with_context(|| format!("Cannot write {}", input.name))?;
        terminal::note(&format!("{}: mended {mended}", input.name));
        // Lines have moved, so the rest is found anew.
        let after = joined(input, after);
        let again = lint::check_joined(&input.name, &after, context, &own.of(&input.name))?;
        left.extend(of_level(args, own.settle(again.findings).0));
        left.extend(of_file.into_iter().filter(|finding| lint::is_about_fleets(&finding.rule)));
    }
    terminal::print(&changes)?;
    Ok(left)
}
