//! `--on WHERE`: the same study on another machine, its results here.
//!
//! The static vmlab goes over once and runs there as [`crate::far_side`]. What it
//! measures comes back as it is measured: a text, then the line of the journal
//! that names it, and the next trial begins there when the line is on disk here.
//! So the folder here is an ordinary one at any moment, whatever happens there.

mod binary;
pub(crate) mod files;
pub(crate) mod messages;
pub(crate) mod node_args;
mod place;
mod repeatable;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use guest::libvirt::Uri;
use host::owner::{self, Owner, RuntimeDir};
use record::journal::{self, JournalEvent, JournalTail};
use remote::{
    Decoder, EMULATED_SILENCE_LIMIT, Patience, RemoteProcess, RunError, SILENCE_LIMIT, SshOptions,
    SshSession, WaitFailure,
};
use runner::execute::{ExecutionEnd, ExecutionEvent};
use runner::follow::Follower;
use runner::plan::StudyPlan;
use runner::simulated;
use runner::store::{Contents, Store, TrialSink};
use topology::Host;
use vmconfig::Arch;

use crate::exit::FINDINGS;
use crate::interrupt::Interrupts;
use crate::progress::Spinner;
use crate::study_file::{BudgetArgs, StudyText};
use crate::terminal;
use crate::watcher::{WatchOptions, Watcher};
use messages::{FarReply, FarRequest, GREETING, PROTOCOL, of_frame, to_frame};
use place::{OnTarget, ReachedMachine};

/// How long a connection may take where nobody has to type anything.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// How long where somebody may have to type a password.
const TYPE_LIMIT: Duration = Duration::from_secs(600);

/// How often the far side's warnings and our interrupts are looked for.
const TURN: Duration = Duration::from_millis(100);

/// A cluster whose KubeVirt runs a study's VMs, as it was named.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "kubernetes"), expect(dead_code, reason = "nothing reaches a cluster"))]
pub(crate) struct KubevirtPlace {
    /// `CONTEXT` or `CONTEXT/NAMESPACE`.
    pub(crate) cluster: Option<String>,
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Container images: `REF` or `NAME=REF`.
    pub(crate) images: Vec<String>,
}

/// Where a study runs.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OnArgs {
    /// Run on another machine, with the results here: ssh://USER@HOST, or an
    /// emulated host: replica, replica:NAME, replica:xeon-4208; or as domains of a
    /// libvirt: libvirt:qemu:///system, libvirt:qemu+ssh://USER@HOST/system; or in a
    /// cluster with KubeVirt: kubevirt, kubevirt:CONTEXT, kubevirt:CONTEXT/NAMESPACE; or
    /// on the nodes of a cluster, each for itself: k8s, k8s:CONTEXT, k8s:CONTEXT/NAMESPACE; or
    /// simulate it, on this machine or a described one: sim, sim:HOST.json.
    #[arg(long, value_name = "WHERE")]
    on: Option<OnTarget>,
    /// The private key to offer there, instead of ssh's own choice.
    #[arg(long, value_name = "FILE", requires = "on")]
    identity: Option<PathBuf>,
    /// The file that holds that machine's key, instead of ssh's own.
    #[arg(long, value_name = "FILE", requires = "on")]
    known_hosts: Option<PathBuf>,
    /// The static vmlab for that machine, if it is not found by itself.
    #[arg(long, value_name = "FILE", requires = "on")]
    remote_binary: Option<PathBuf>,
    /// The kubeconfig of the cluster, where kubectl would take another one.
    #[arg(long, value_name = "FILE", requires = "on")]
    kubeconfig: Option<PathBuf>,
    /// The container image from which guests boot in the cluster, as `vmlab image export
    /// --to containerdisk` makes it and you pushed it; NAME=REF for each of several.
    #[arg(long, value_name = "REF", requires = "on")]
    kubevirt_image: Vec<String>,
    /// In an emulated host with one pCPU whose clock is its count of instructions:
    /// the same study, seed and images give the same counts on any machine.
    #[arg(long, requires = "on", conflicts_with_all = ["identity", "known_hosts"])]
    deterministic: bool,
}

impl OnArgs {
    /// True if another machine is named.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match &self.on {
            Some(OnTarget::Libvirt(uri)) => uri.ssh().is_some(),
            Some(OnTarget::Simulator(_) | OnTarget::Kubevirt(_) | OnTarget::Nodes(_)) => false,
            on => on.is_some(),
        }
    }

    /// The libvirt that runs the VMs, as it is called on its own machine.
    pub(crate) fn libvirt(&self) -> Option<Uri> {
        match &self.on {
            Some(OnTarget::Libvirt(uri)) => Some(uri.there()),
            _ => None,
        }
    }

    /// The cluster that runs the VMs.
    ///
    /// # Errors
    /// Options of one where none is named; a vmlab without Kubernetes.
    pub(crate) fn kubevirt(&self) -> anyhow::Result<Option<KubevirtPlace>> {
        if let Some(OnTarget::Nodes(_)) = self.on {
            bail!("--on k8s is for `vmlab run` with a study");
        }
        let Some(OnTarget::Kubevirt(cluster)) = &self.on else {
            if self.kubeconfig.is_some() || !self.kubevirt_image.is_empty() {
                bail!(
                    "--kubeconfig is for --on kubevirt and --on k8s, --kubevirt-image for --on kubevirt"
                );
            }
            return Ok(None);
        };
        if cfg!(not(feature = "kubernetes")) {
            bail!("This vmlab was built without Kubernetes (feature \"kubernetes\")");
        }
        if self.deterministic || self.identity.is_some() || self.known_hosts.is_some() {
            bail!("--deterministic, --identity and --known-hosts are not for --on kubevirt");
        }
        Ok(Some(KubevirtPlace {
            cluster: cluster.clone(),
            kubeconfig: self.kubeconfig.clone(),
            images: self.kubevirt_image.clone(),
        }))
    }

    /// The cluster on whose nodes the study is to run: `CONTEXT` or `CONTEXT/NAMESPACE`,
    /// and its kubeconfig.
    ///
    /// # Errors
    /// Options of other places; a vmlab without Kubernetes.
    pub(crate) fn nodes(&self) -> anyhow::Result<Option<(Option<&str>, Option<&Path>)>> {
        let Some(OnTarget::Nodes(cluster)) = &self.on else { return Ok(None) };
        if cfg!(not(feature = "kubernetes")) {
            bail!("This vmlab was built without Kubernetes (feature \"kubernetes\")");
        }
        if self.deterministic
            || self.identity.is_some()
            || self.known_hosts.is_some()
            || !self.kubevirt_image.is_empty()
        {
            bail!(
                "--deterministic, --identity, --known-hosts and --kubevirt-image are not for --on k8s"
            );
        }
        Ok(Some((cluster.as_deref(), self.kubeconfig.as_deref())))
    }

    /// Whether the study is to be simulated, and the file that describes the host
    /// then; without one it is this machine.
    pub(crate) fn simulator(&self) -> Option<Option<&Path>> {
        match &self.on {
            Some(OnTarget::Simulator(file)) => Some(file.as_deref()),
            _ => None,
        }
    }

    /// Refuses to go on with a plan elsewhere than where it was begun.
    pub(crate) fn check_same(&self, plan: &StudyPlan) -> anyhow::Result<()> {
        if self.on.is_some() && self.simulator().is_some() != simulated::is_simulated(plan) {
            bail!(
                "The study was begun {}: simulated and measured blocks would not compare; leave --on out, or start anew",
                if simulated::is_simulated(plan) { "in the simulator" } else { "on a machine" }
            );
        }
        let is_in_cluster = matches!(self.on, Some(OnTarget::Kubevirt(_)));
        if plan.kubevirt.is_some() && !is_in_cluster {
            bail!(
                "The study was begun in a cluster: go on with --on kubevirt, and with the --kubeconfig that it was begun with"
            );
        }
        let begun = plan.libvirt.as_ref().map(|libvirt| &libvirt.uri);
        match (begun, self.libvirt()) {
            (Some(begun), Some(here)) if *begun != here => bail!(
                "The study was begun at {begun}, this is {here}: the blocks would not compare; start anew"
            ),
            (None, Some(here)) => bail!(
                "The study was begun without libvirt, and {here} would start its VMs otherwise: the blocks would not compare; leave --on out, or start anew"
            ),
            _ => Ok(()),
        }
    }

    /// How it was said, to be said again.
    pub(crate) fn words(&self) -> String {
        let mut words = self.on.as_ref().map(|on| format!(" --on {on}")).unwrap_or_default();
        if let Some(kubeconfig) = &self.kubeconfig {
            words += &format!(" --kubeconfig {}", kubeconfig.display());
        }
        words
    }
}

/// The plan that the other machine makes of a study.
pub(crate) fn plan(on: &OnArgs, study: &Path, budget: &BudgetArgs) -> anyhow::Result<StudyPlan> {
    let interrupts = Interrupts::listen("closing the connection ...", "ending at once")?;
    let written = StudyText::read(study)?;
    if on.deterministic {
        let (plan, _) = repeatable::talk(on, &written, budget, false, &interrupts)?.plan()?;
        return Ok(plan);
    }
    let there = OtherMachine::connect(on, &interrupts)?;
    let mut talk = there.ask_for_plan(&written, budget, false)?;
    let (plan, _) = talk.plan()?;
    talk.end()?;
    there.warn(&plan);
    Ok(plan)
}

/// Runs a study on the other machine; `make` makes the folder of results.
pub(crate) fn start(
    on: &OnArgs,
    study: &Path,
    budget: &BudgetArgs,
    watch: &WatchOptions,
    make: impl FnOnce(&StudyPlan, &Host) -> anyhow::Result<Store>,
) -> anyhow::Result<(ExecutionEnd, PathBuf)> {
    let interrupts = listen()?;
    let written = StudyText::read(study)?;
    if on.deterministic {
        let mut talk = repeatable::talk(on, &written, budget, true, &interrupts)?;
        let (plan, host) = talk.plan()?;
        let store = make(&plan, &host)?;
        let dir = store.dir().to_owned();
        let again = || format!("What was measured until then is in {}", dir.display());
        let ended = talk.keep(&plan, &[], store, watch, again)?;
        return Ok((ended, dir));
    }
    let there = OtherMachine::connect(on, &interrupts)?;
    let mut talk = there.ask_for_plan(&written, budget, true)?;
    let (plan, host) = talk.plan()?;
    there.warn(&plan);
    let store = make(&plan, &host)?;
    let dir = store.dir().to_owned();
    talk.ask(&FarRequest::Go, b"");
    let ended = talk.keep(&plan, &[], store, watch, || go_on(&dir, on))?;
    Ok((ended, dir))
}

/// What vmlab says on the other machine to `words`: its standard output. Its warnings
/// are passed on.
pub(crate) fn output(on: &OnArgs, words: &[String]) -> anyhow::Result<Vec<u8>> {
    if on.deterministic {
        bail!("--deterministic is for studies");
    }
    let interrupts = listen()?;
    let there = OtherMachine::connect(on, &interrupts)?;
    let cancelled = || interrupts.end.is_cancelled();
    let patience = Patience::unlimited(&cancelled);
    let program = binary::bring(&there.session, there.program.as_deref(), None, patience)?;
    let command = std::iter::once(program).chain(words.iter().cloned());
    let output = there.session.command(command).on_stderr(terminal::note).output(patience)?;
    // What it found is in what it said.
    if ![0, i32::from(FINDINGS)].contains(&output.code) {
        bail!("vmlab there ended with code {}", output.code);
    }
    Ok(output.stdout)
}

/// The price list of an emulated host whose only clock is its count of instructions.
pub(crate) fn exact(on: &OnArgs, words: Vec<String>) -> anyhow::Result<Vec<u8>> {
    repeatable::calibration(on, words, &listen()?)
}

/// Goes on with a study on the other machine.
pub(crate) fn resume(
    on: &OnArgs,
    store: Store,
    contents: &Contents,
    watch: &WatchOptions,
) -> anyhow::Result<ExecutionEnd> {
    if on.deterministic {
        bail!(
            "A deterministic study can't go on: its counts are those of a host that began with it. Run it again from its beginning"
        );
    }
    let interrupts = listen()?;
    let dir = store.dir().to_owned();
    let there = OtherMachine::connect(on, &interrupts)?;
    let Contents { plan, host, events, .. } = contents;
    there.warn(plan);
    let needs_probe = runner::probe::is_needed_by(plan);
    let mut talk = there.talk(needs_probe.then(|| arch_of(plan)).flatten())?;
    talk.ask(&FarRequest::Resume, plan.to_json().as_bytes());
    talk.ask(&FarRequest::Host, host.to_json().as_bytes());
    let mut told = JournalTail::default();
    for event in events {
        let (line, end) = told.line(event)?;
        talk.ask(&FarRequest::Line, line.as_bytes());
        told = end;
    }
    talk.ask(&FarRequest::Go, b"");
    talk.keep(plan, events, store, watch, || go_on(&dir, on))
}

fn arch_of(plan: &StudyPlan) -> Option<Arch> {
    plan.variants.first().map(|variant| variant.spec.arch)
}

fn listen() -> io::Result<Interrupts> {
    Interrupts::listen(
        "ending what runs there ... (again: at once)",
        "closing the connection; what runs there ends by itself",
    )
}

fn go_on(dir: &Path, on: &OnArgs) -> String {
    format!(
        "The study stopped; what was measured is safe, `vmlab run --resume {}{}` goes on",
        dir.display(),
        on.words()
    )
}

/// The other machine.
struct OtherMachine {
    session: SshSession,
    /// The vmlab that was named for it.
    program: Option<PathBuf>,
    /// The libvirt there that is to run the VMs.
    libvirt: Option<Uri>,
    interrupts: Interrupts,
    /// Holds the connection's socket.
    _runtime: RuntimeDir,
    /// Ends a replica that was brought up for this, behind its connection.
    reached: ReachedMachine,
}

impl OtherMachine {
    fn connect(on: &OnArgs, interrupts: &Interrupts) -> anyhow::Result<Self> {
        let place = on.on.as_ref().context("Name a machine with --on")?;
        let reached = place.reach(&interrupts.end)?;
        let mut destination = reached.destination.clone();
        let mut silence_limit = EMULATED_SILENCE_LIMIT;
        // A replica has its own.
        if let OnTarget::Ssh(_) | OnTarget::Libvirt(_) = place {
            destination.identity.clone_from(&on.identity);
            destination.known_hosts.clone_from(&on.known_hosts);
            silence_limit = SILENCE_LIMIT;
        }
        let owner = Owner::current("on")?;
        let runtime = owner::runtime_dir(&owner)?;
        let interactive = io::stdin().is_terminal();
        let env = owner.env();
        let options = SshOptions { folder: runtime.path(), env: &env, interactive, silence_limit };
        let cancelled = || interrupts.end.is_cancelled();
        let limit = if interactive { TYPE_LIMIT } else { CONNECT_LIMIT };
        let session = SshSession::open(&destination, &options, Patience::new(limit, &cancelled))?;
        let interrupts = interrupts.clone();
        let (program, libvirt) = (on.remote_binary.clone(), on.libvirt());
        Ok(Self { session, program, libvirt, interrupts, _runtime: runtime, reached })
    }

    /// Says what to know of the machine before the plan is executed there.
    fn warn(&self, plan: &StudyPlan) {
        if let Some(warning) = self.reached.warning(plan) {
            terminal::note(&format!("vmlab: {warning}"));
        }
    }

    fn ask_for_plan(
        &self,
        written: &StudyText,
        budget: &BudgetArgs,
        run: bool,
    ) -> anyhow::Result<FarSide<'_>> {
        // Mistakes in it are known before anything goes over.
        let study = written.parse(budget)?;
        let beside = files::StudyImages::of(written, &study)?;
        let arch = study.arch.or_else(|| Arch::from_name(self.session.machine()));
        let talk = self.talk(arch.filter(|_| runner::probe::is_needed(&study)))?;
        let cancelled = || self.interrupts.end.is_cancelled();
        let patience = Patience::unlimited(&cancelled);
        let folder = beside.bring(&self.session, patience)?;
        if let Some(arch) = arch.filter(|_| run) {
            files::bring_images(&self.session, &study, &written.folder, arch, patience)?;
        }
        let asked = FarRequest::Plan {
            file: written.file.clone(),
            folder: folder.into(),
            budget: budget.clone(),
            libvirt: self.libvirt.clone(),
            run,
        };
        talk.ask(&asked, written.text.as_bytes());
        Ok(talk)
    }

    /// Starts the far side, with the guests' program of `probe`.
    fn talk(&self, probe: Option<Arch>) -> anyhow::Result<FarSide<'_>> {
        let cancelled = || self.interrupts.end.is_cancelled();
        let patience = Patience::unlimited(&cancelled);
        let program = binary::bring(&self.session, self.program.as_deref(), probe, patience)?;
        let (tell, warnings) = channel();
        let command = self.session.command([program.as_str(), "far-side"]).on_stderr(move |line| {
            // Whoever does not listen any more has ended.
            drop(tell.send(line.to_owned()));
        });
        let mut running = command.spawn()?;
        let stdin = running.stdin().context("The far side has no standard input")?;
        let talk = FarSide {
            far: Box::new(SshSide { running: Some(running) }),
            asked: write_all(stdin),
            warnings,
            decoder: Decoder::behind(GREETING),
            interrupts: &self.interrupts,
            is_told_to_end: false,
        };
        Ok(talk)
    }
}

/// Writes what comes through the channel, so that nobody waits for a machine that
/// does not read.
fn write_all(mut stdin: impl Write + Send + 'static) -> Sender<Vec<u8>> {
    let (ask, asked) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for bytes in asked {
            // That nobody reads is found out where nobody answers.
            if stdin.write_all(&bytes).and_then(|()| stdin.flush()).is_err() {
                return;
            }
        }
    });
    ask
}

/// Where the far side's words come from.
trait FarOutput {
    /// Reads some of them, 0 at their end, none if there were none for a while; not
    /// for longer than until `quit`.
    fn read(
        &mut self,
        buffer: &mut [u8],
        quit: &(dyn Fn() -> bool + Sync),
    ) -> anyhow::Result<Option<usize>>;

    /// Why they ended without a last one.
    fn ended_early(&mut self, quit: &(dyn Fn() -> bool + Sync)) -> anyhow::Error;
}

/// A far side over ssh.
struct SshSide<'s> {
    running: Option<RemoteProcess<'s>>,
}

impl FarOutput for SshSide<'_> {
    fn read(
        &mut self,
        buffer: &mut [u8],
        quit: &(dyn Fn() -> bool + Sync),
    ) -> anyhow::Result<Option<usize>> {
        let Some(running) = &mut self.running else { bail!("The far side has ended") };
        match running.read(buffer, Patience::new(TURN, quit)) {
            Ok(length) => Ok(Some(length)),
            Err(RunError::GaveUp { source: WaitFailure::TimedOut(_), .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn ended_early(&mut self, quit: &(dyn Fn() -> bool + Sync)) -> anyhow::Error {
        let Some(running) = self.running.take() else { return anyhow!("The far side has ended") };
        match running.finish(Patience::unlimited(quit)) {
            Ok(output) => {
                anyhow!("vmlab there ended with code {} and without a last word", output.code)
            }
            Err(error) => error.into(),
        }
    }
}

/// The far side at work.
struct FarSide<'s> {
    far: Box<dyn FarOutput + 's>,
    asked: Sender<Vec<u8>>,
    warnings: Receiver<String>,
    decoder: Decoder,
    interrupts: &'s Interrupts,
    is_told_to_end: bool,
}

impl FarSide<'_> {
    fn ask(&self, asked: &FarRequest, body: &[u8]) {
        // A writer that ended is found out where nobody answers.
        drop(self.asked.send(to_frame(asked, body).encode()));
    }

    /// What the far side says next; its warnings go to `warn`.
    fn next(&mut self, warn: &mut dyn FnMut(&str)) -> anyhow::Result<(FarReply, Vec<u8>)> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(greeting) = self.decoder.greeting()? {
                let own = format!("{PROTOCOL} {}", env!("CARGO_PKG_VERSION"));
                if greeting != own {
                    bail!("The vmlab there is another version ({greeting}, this is {own})");
                }
            }
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok((of_frame(&frame.head)?, frame.body));
            }
            for line in self.warnings.try_iter() {
                warn(&line);
            }
            if self.interrupts.end.is_cancelled() && !self.is_told_to_end {
                self.is_told_to_end = true;
                self.ask(&FarRequest::Cancel, b"");
            }
            let quit = || self.interrupts.quit.is_cancelled();
            match self.far.read(&mut buffer, &quit)? {
                Some(0) => {
                    let why = self.far.ended_early(&quit);
                    for line in self.warnings.try_iter() {
                        warn(&line);
                    }
                    return Err(why);
                }
                Some(length) => self.decoder.push(&buffer[..length]),
                None => {}
            }
        }
    }

    /// The plan that was asked for, and the machine.
    fn plan(&mut self) -> anyhow::Result<(StudyPlan, Host)> {
        let spinner = Spinner::start();
        let mut host = None;
        loop {
            let mut warn = |line: &str| spinner.note(line);
            match self.next(&mut warn)? {
                (FarReply::Step { text }, _) => spinner.say(&text),
                (FarReply::Host, body) => host = Some(serde_json::from_slice(&body)?),
                (FarReply::Plan { hash }, body) => {
                    let plan = StudyPlan::from_json(&body).context("The plan can't be read")?;
                    if plan.hash() != hash {
                        bail!("The vmlab there makes other plans: is --remote-binary an old one?");
                    }
                    return Ok((plan, host.context("No description of the machine came")?));
                }
                (told, _) => last_word(told)?,
            }
        }
    }

    /// The price list that was asked for.
    fn calibration(&mut self) -> anyhow::Result<Vec<u8>> {
        let spinner = Spinner::start();
        spinner.say("waiting for the price list of the deterministic host");
        loop {
            let mut warn = |line: &str| spinner.note(line);
            match self.next(&mut warn)? {
                (FarReply::Step { text }, _) => spinner.say(&text),
                (FarReply::Calibration, body) => return Ok(body),
                (told, _) => last_word(told)?,
            }
        }
    }

    /// Waits for the last word.
    fn end(&mut self) -> anyhow::Result<ExecutionEnd> {
        loop {
            match self.next(&mut terminal::note)?.0 {
                FarReply::Ended { cancelled: true } => return Ok(ExecutionEnd::Cancelled),
                FarReply::Ended { cancelled: false } => return Ok(ExecutionEnd::Complete),
                told => last_word(told)?,
            }
        }
    }

    /// Keeps what comes until the last word; once something has come, an error
    /// says how to `go_on`.
    fn keep(
        &mut self,
        plan: &StudyPlan,
        events: &[JournalEvent],
        mut store: Store,
        watch: &WatchOptions,
        go_on: impl FnOnce() -> String,
    ) -> anyhow::Result<ExecutionEnd> {
        let mut watcher = Watcher::start(watch, plan, events)?;
        let mut follower = Follower::new(plan, events);
        let ended = self.keep_all(&mut store, &mut watcher, &mut follower);
        if follower.has_begun() { ended.with_context(go_on) } else { ended }
    }

    fn keep_all(
        &mut self,
        store: &mut Store,
        watcher: &mut Watcher,
        follower: &mut Follower<'_>,
    ) -> anyhow::Result<ExecutionEnd> {
        loop {
            let told = self.next(&mut |line| watcher.note(line))?;
            match told {
                (FarReply::Blob { name }, body) => {
                    if store.keep(&body)? != name {
                        bail!("A text did not arrive whole ({name})");
                    }
                }
                (FarReply::Line, body) => {
                    let line = body.strip_suffix(b"\n").unwrap_or(&body);
                    let line = journal::decode(line).context("A line did not arrive whole")?;
                    let event = line.event;
                    store.append(&event)?;
                    self.ask(&FarRequest::Kept, b"");
                    follower.follow(&event, &mut |progress| watcher.observe(&progress));
                }
                (FarReply::Booted { seconds }, _) => {
                    watcher.observe(&ExecutionEvent::Booted(seconds))
                }
                (FarReply::RunStarted { run, of }, _) => {
                    watcher.observe(&ExecutionEvent::RunStarted(run, of));
                }
                (FarReply::Step { text }, _) => watcher.note(&format!("vmlab: {text}")),
                (FarReply::Ended { cancelled: true }, _) => return Ok(ExecutionEnd::Cancelled),
                (FarReply::Ended { cancelled: false }, _) => return Ok(ExecutionEnd::Complete),
                (told, _) => last_word(told)?,
            }
        }
    }
}

/// An error of the far side is ours.
fn last_word(told: FarReply) -> anyhow::Result<()> {
    match told {
        FarReply::Failed { text } => bail!(text),
        other => bail!("The far side says {other:?} where that means nothing"),
    }
}
