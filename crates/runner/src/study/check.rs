//! From the file's shape to a sound study: every check that needs no machine.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use topology::PcpuSet;
use topology::bounded::{self, FileProblems, LineProblem};
use vmconfig::builtin::VARIANTS;
use vmconfig::{
    Accel, Arch, BootSource, BuiltinKernel, DiskFormat, ImagePatch, PatchContext, ResolveError,
    VcpuPins, VmPatch,
};
use workload::ParamValue;

use crate::limits::StabilityLimits;

use super::file::{self, StudyFile};
use super::lines::{PathStep, TomlLines};
use super::names::PublishableNames;
use super::{
    AA_SUFFIX, Background, DEFAULT_BLOCKS, DEFAULT_BOOT_LIMIT_S, DEFAULT_MARGIN_PERCENT,
    EndCondition, HostLoad, LONGEST_LIMIT_S, MeasuredVms, OtherVms, Stress, Study, StudyBudget,
    StudyLines, StudyVariant, StudyWorkload, VariantParams, params_in,
};

pub(super) fn parse(file: &str, text: &str, scale: Option<&str>) -> Result<Study, FileProblems> {
    let error = |problems| FileProblems { file: file.to_owned(), problems };
    let mut parsed: StudyFile = bounded::toml(file, text)?;
    if let Some(scale) = scale {
        let line = TomlLines::new(text).of(&[PathStep::Key("scale"), PathStep::Key(scale)]);
        super::scale::apply(&mut parsed, scale)
            .map_err(|message| error(vec![LineProblem { line, message }]))?;
    }
    let mut checker = StudyChecker { lines: TomlLines::new(text), problems: Vec::new() };
    let mut study = checker.study(file, text, parsed);
    study.scale = scale.map(str::to_owned);
    if checker.problems.is_empty() {
        Ok(study)
    } else {
        checker.problems.sort_by_key(|problem| problem.line);
        Err(error(checker.problems))
    }
}

pub(super) struct StudyChecker {
    lines: TomlLines,
    problems: Vec<LineProblem>,
}

impl StudyChecker {
    pub(super) fn problem(&mut self, path: &[PathStep<'_>], message: impl Into<String>) {
        let line = self.lines.of(path);
        self.problems.push(LineProblem { line, message: message.into() });
    }

    fn study(&mut self, file: &str, text: &str, parsed: StudyFile) -> Study {
        use PathStep::Key;
        if parsed.vmlab != file::STUDY_FORMAT_VERSION {
            self.problem(
                &[Key("vmlab")],
                format!(
                    "Study format {} is not known: this vmlab reads version {}: use a newer \
                     vmlab",
                    parsed.vmlab,
                    file::STUDY_FORMAT_VERSION
                ),
            );
        }
        let budget = self.budget(&parsed.budget);
        self.stability(&parsed.stability);
        let mut variants = self.variants(&parsed);
        if budget.blocks.is_none() && budget.minutes.is_none() && variants.len() < 2 {
            self.problem(
                &[Key("budget"), Key("until")],
                "until = \"decided\" needs something to decide: name a second [[variant]], or blocks or minutes",
            );
        }
        let baseline = self.baseline(&parsed, &variants);
        let several_vms = variants.iter().any(|variant| variant.measured.count() > 1);
        let (workloads, later) = self.workloads(&parsed, several_vms);
        self.variant_params(&parsed, &workloads, &later, &mut variants);
        if budget.aa_arm
            && let Some(original) = variants.iter().find(|variant| variant.name == baseline)
        {
            let mut copy = original.clone();
            copy.aa_of = Some(copy.name.clone());
            copy.name.push_str(AA_SUFFIX);
            copy.about = format!("the baseline {baseline} once more: any difference is noise");
            variants.push(copy);
        }
        let loads = self.loads(&parsed);
        let (host_settings, reload) = self.study_settings(&parsed.host);
        self.no_wishes(&[Key("peer"), Key("host")], &parsed.peer);
        let named = PublishableNames {
            variants: &variants,
            loads: &loads,
            workloads: &workloads,
            later: &later,
            published_of: parsed.workload.iter().map(|table| table.published_of()).collect(),
        };
        let (published, published_claims) = self.published(&parsed, &baseline, &named);
        self.network(&parsed);
        let by_name = variants.iter().enumerate().map(|(at, variant)| (variant.name.clone(), at));
        // Of two with one name the first counts, as it did when it was refused.
        let variants_at = by_name.rev().collect();
        Study {
            file: file.to_owned(),
            places: StudyLines { lines: std::mem::take(&mut self.lines), variants: variants_at },
            name: Path::new(file)
                .file_stem()
                .map_or_else(|| "study".to_owned(), |stem| stem.to_string_lossy().into_owned()),
            text: text.to_owned(),
            scale: None,
            title: parsed.title,
            question: parsed.question,
            seed: parsed.seed,
            baseline,
            budget,
            stability: parsed.stability,
            ground: parsed.ground,
            host_settings,
            reload,
            peer: unpinned(&parsed.vm).overlay(&parsed.peer),
            network: parsed.network,
            disk: parsed.disk,
            arch: parsed.arch,
            base: parsed.vm,
            variants,
            loads,
            workloads,
            later,
            published,
            published_claims,
        }
    }

    fn budget(&mut self, table: &file::BudgetTable) -> StudyBudget {
        use PathStep::Key;
        if table.blocks.is_some_and(|blocks| blocks == 0 || blocks > 10_000) {
            let blocks = table.blocks.unwrap_or_default();
            self.problem(
                &[Key("budget"), Key("blocks")],
                format!("blocks = {blocks}: must be between 1 and 10000"),
            );
        }
        let longest_minutes = LONGEST_LIMIT_S / 60.0;
        for (key, value, longest) in [
            ("minutes", table.minutes, longest_minutes),
            ("boot_limit_s", table.boot_limit_s, LONGEST_LIMIT_S),
        ] {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= longest)) {
                self.problem(
                    &[Key("budget"), Key(key)],
                    format!("{key} = {value}: must be more than 0 and at most {longest} (a year)"),
                );
            }
        }
        let blocks = match (table.blocks, table.minutes, table.until) {
            (None, None, None | Some(EndCondition::Budget)) => Some(DEFAULT_BLOCKS),
            (blocks, _, _) => blocks,
        };
        StudyBudget {
            blocks,
            minutes: table.minutes,
            until: table.until.unwrap_or_default(),
            race: table.race.unwrap_or_default(),
            aa_arm: table.aa_arm.unwrap_or_default(),
            boot_limit_s: table.boot_limit_s.unwrap_or(DEFAULT_BOOT_LIMIT_S),
            keep_state: table.keep_state.unwrap_or(true),
        }
    }

    fn stability(&mut self, rules: &StabilityLimits) {
        for (key, percent) in rules.limits() {
            if !(percent.is_finite() && percent >= 0.0) {
                let message = format!("{key} = {percent}: must be a number of at least 0");
                self.problem(&[PathStep::Key("stability"), PathStep::Key(key)], message);
            }
        }
    }

    fn variants(&mut self, parsed: &StudyFile) -> Vec<StudyVariant> {
        use PathStep::{Index, Key};
        if parsed.variant.is_empty() {
            self.problem(
                &[],
                "No [[variant]]: name at least one configuration of the VM to measure",
            );
        }
        let (mut variants, mut names): (Vec<StudyVariant>, HashSet<String>) = Default::default();
        for (index, table) in parsed.variant.iter().enumerate() {
            let at = |key| [Key("variant"), Index(index), Key(key)];
            let name = match (&table.name, &table.builtin) {
                (Some(name), _) | (None, Some(name)) => name.clone(),
                (None, None) => {
                    self.problem(&at("name")[..2], "A variant needs a name, or use = \"...\"");
                    continue;
                }
            };
            let key = if table.name.is_some() { "name" } else { "use" };
            let taken = !names.insert(name.clone());
            self.name(&at(key), "variant", &name, taken);
            if let Some(builtin) = &table.builtin
                && VARIANTS.iter().all(|known| known.name != builtin)
            {
                let names = VARIANTS.iter().map(|known| known.name);
                let message = unknown("use", "built-in variant", builtin, names);
                self.problem(&at("use"), message);
            }
            let vm = parsed.vm.overlay(&table.vm);
            if let Err(error) = check_vm(&name, &vm) {
                // The wrong value stands in the variant or in the base VM.
                let field = Key(error.field());
                if check_vm("base", &parsed.vm).is_ok() {
                    let path = [Key("variant"), Index(index), Key("vm"), field];
                    self.problem(&path, format!("Variant {name:?}: {error}"));
                } else if index == 0 {
                    self.problem(&[Key("vm"), field], error.to_string());
                }
            }
            let measured = parsed.measured.overlay(&table.measured);
            self.check_runs_on(index, table, &measured);
            self.measured_vms(index, &measured);
            variants.push(StudyVariant {
                name,
                about: table.about.clone(),
                on: table.on,
                builtin: table.builtin.clone(),
                vm,
                changes: table.vm.clone(),
                measured,
                network: table.network.clone(),
                disk: table.disk.clone(),
                host: self.host_settings(&at("host"), &table.host),
                params: VariantParams::new(),
                aa_of: None,
            });
        }
        variants
    }

    /// What the variants change of the workloads' parameters. It may not change which
    /// metrics there are: what is compared is one thing.
    fn variant_params(
        &mut self,
        parsed: &StudyFile,
        workloads: &[StudyWorkload],
        later: &[(String, String)],
        variants: &mut [StudyVariant],
    ) {
        use PathStep::{Index, Key};
        for (index, table) in parsed.variant.iter().enumerate() {
            let name = table.name.as_ref().or(table.builtin.as_ref());
            for (label, params) in &table.params {
                let at = [Key("variant"), Index(index), Key("params"), Key(label)];
                if later.iter().any(|(name, _)| name == label) {
                    continue;
                }
                let Some(workload) = workloads.iter().find(|workload| workload.label == *label)
                else {
                    let labels = workloads.iter().map(|workload| workload.label.as_str());
                    self.problem(&at, unknown("params", "workload", label, labels));
                    continue;
                };
                let Some(changes) = self.params(&at, workload.entry, params) else { continue };
                let changes = VariantParams::from([(label.clone(), changes)]);
                let all = params_in(label, &workload.params, &changes);
                match workload.entry.resolve(&all) {
                    Err(error) => self.problem(&at, error.to_string()),
                    Ok(all) => {
                        let own = workload.entry.metrics(&all).map(|metric| metric.name);
                        let base = workload.entry.resolve(&workload.params);
                        let base = base.iter().flat_map(|base| workload.entry.metrics(base));
                        if !own.eq(base.map(|metric| metric.name)) {
                            let message = format!(
                                "params.{label}: these change which metrics {} has, and then nothing can be compared: make a [[workload]] of its own",
                                workload.entry.name
                            );
                            self.problem(&at, message);
                        }
                    }
                }
                for variant in variants.iter_mut().filter(|variant| Some(&variant.name) == name) {
                    variant.params.extend(changes.clone());
                }
            }
        }
    }

    fn baseline(&mut self, parsed: &StudyFile, variants: &[StudyVariant]) -> String {
        let first = variants.first().map(|variant| variant.name.clone()).unwrap_or_default();
        let Some(named) = &parsed.baseline else { return first };
        if variants.iter().any(|variant| variant.name == *named) {
            return named.clone();
        }
        let names = variants.iter().map(|variant| variant.name.as_str());
        let message = unknown("baseline", "variant", named, names);
        self.problem(&[PathStep::Key("baseline")], message);
        first
    }

    fn loads(&mut self, parsed: &StudyFile) -> Vec<HostLoad> {
        use PathStep::{Index, Key};
        if parsed.load.is_empty() {
            return vec![HostLoad::idle()];
        }
        let mut loads: Vec<HostLoad> = Vec::new();
        for (index, table) in parsed.load.iter().enumerate() {
            let at = [Key("load"), Index(index)];
            let taken = loads.iter().any(|load| load.name == table.name);
            self.name(&[at[0], at[1], Key("name")], "load", &table.name, taken);
            if let Some(stress) = &table.stress
                && !(stress.percent > 0.0 && stress.percent <= 100.0)
            {
                self.problem(
                    &[at[0], at[1], Key("stress"), Key("percent")],
                    format!(
                        "percent = {}: must be above 0 and at most 100 (percent of the host's pCPUs; leave `stress` out for an idle host)",
                        stress.percent
                    ),
                );
            }
            let vms = table.vms.as_ref().and_then(|vms| self.other_vms(index, vms, parsed));
            loads.push(HostLoad {
                name: table.name.clone(),
                stress: table
                    .stress
                    .as_ref()
                    .map(|stress| Stress { percent: stress.percent, placement: stress.placement }),
                vms,
                host: self.host_settings(&[at[0], at[1], Key("host")], &table.host),
            });
        }
        loads
    }

    fn other_vms(
        &mut self,
        index: usize,
        table: &file::VmsTable,
        parsed: &StudyFile,
    ) -> Option<OtherVms> {
        use PathStep::{Index, Key};
        let at = |key| [Key("load"), Index(index), Key("vms"), Key(key)];
        if table.count == 0 || table.count > 1000 {
            self.problem(&at("count"), format!("count = {}: must be 1 to 1000", table.count));
        }
        self.no_wishes(&[&at("vm")[..], &[Key("host")]].concat(), &table.vm);
        let vm = unpinned(&parsed.vm).overlay(&table.vm);
        if let Err(error) = check_vm("other", &vm) {
            let path = [Key("load"), Index(index), Key("vms"), Key("vm"), Key(error.field())];
            self.problem(&path, error.to_string());
        }
        for (number, own) in &table.each {
            let written = number.to_string();
            let at_own = [&at("each")[..], &[Key(&written)]].concat();
            self.no_wishes(&[&at_own[..], &[Key("host")]].concat(), own);
            if *number >= table.count {
                let message = format!(
                    "each.{number}: there is no VM {number} among {}, counted from 0",
                    table.count
                );
                self.problem(&at_own, message);
            } else if let Err(error) = check_vm("other", &vm.overlay(own)) {
                self.problem(&at_own, format!("VM {number}: {error}"));
            }
        }
        let entry = match workload::find(&table.workload) {
            Ok(entry) => entry,
            Err(error) => {
                self.problem(&at("workload"), error.to_string());
                return None;
            }
        };
        let params = self.params(&at("params"), entry, &table.params)?;
        let (workload, each) = (table.workload.clone(), table.each.clone());
        let follows = table.follow_variant.then(|| table.vm.clone());
        Some(OtherVms { count: table.count, workload, params, vm, each, follows })
    }

    /// The network of each variant, and the VM at its other end.
    fn network(&mut self, parsed: &StudyFile) {
        use PathStep::{Index, Key};
        if let Err((key, message)) = parsed.network.resolve() {
            self.problem(&[Key("network"), Key(key)], message);
            return;
        }
        for (index, table) in parsed.variant.iter().enumerate() {
            if let Err((key, message)) = parsed.network.overlay(&table.network).resolve() {
                let at = [Key("variant"), Index(index), Key("network"), Key(key)];
                self.problem(&at, message);
            }
        }
        if let Err(error) = check_vm("peer", &unpinned(&parsed.vm).overlay(&parsed.peer))
            && check_vm("base", &parsed.vm).is_ok()
        {
            self.problem(&[Key("peer"), Key(error.field())], error.to_string());
        }
    }

    /// The VMs that a variant measures together: its own key is wrong, or the study's.
    fn measured_vms(&mut self, index: usize, measured: &MeasuredVms) {
        use PathStep::{Index, Key};
        let Err((key, message)) = measured.check() else { return };
        let own = [Key("variant"), Index(index), Key("measured"), Key(key)];
        let line = self.lines.exactly(&own);
        let line = line.unwrap_or_else(|| self.lines.of(&[Key("measured"), Key(key)]));
        let problem = LineProblem { line, message: format!("measured.{message}") };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn workloads(
        &mut self,
        parsed: &StudyFile,
        several_vms: bool,
    ) -> (Vec<StudyWorkload>, Vec<(String, String)>) {
        use PathStep::{Index, Key};
        let mut workloads: Vec<StudyWorkload> = Vec::new();
        let mut later: Vec<(String, String)> = Vec::new();
        for (index, table) in parsed.workload.iter().enumerate() {
            let at = |key| [Key("workload"), Index(index), Key(key)];
            let label = table.label.clone().unwrap_or_else(|| table.run.clone());
            let taken = workloads.iter().any(|workload| workload.label == label)
                || later.iter().any(|(name, _)| *name == label);
            let key = if table.label.is_some() { "label" } else { "run" };
            self.name(&at(key), "workload", &label, taken);
            if let Some(reason) = &table.later {
                // Another suite's name is meant, or a part of one's; a mistyped one is not.
                let known = workload::CATALOGUE.iter().map(|entry| entry.name);
                let near = workload::near(&table.run, known.clone());
                if near.is_some_and(|near| !table.run.starts_with(&near)) {
                    self.problem(&at("run"), unknown("run", "workload", &table.run, known));
                }
                later.push((label, reason.clone()));
                continue;
            }
            if !table.published_of.is_empty() {
                let message = "published_of: only a workload with `later` has it; what is run is published of variants";
                self.problem(&at("published_of"), message);
            }
            let entry = match workload::find(&table.run) {
                Ok(entry) => entry,
                Err(error) => {
                    self.problem(&at("run"), error.to_string());
                    continue;
                }
            };
            let invocations = table.invocations;
            if let Some(invocations) = invocations.filter(|n| *n == 0 || *n > 10_000) {
                self.problem(
                    &at("invocations"),
                    format!("invocations = {invocations}: must be 1 to 10000"),
                );
            }
            let possible = |limit: &f64| *limit > 0.0 && *limit <= LONGEST_LIMIT_S;
            if let Some(limit) = table.limit_s.filter(|limit| !possible(limit)) {
                self.problem(
                    &at("limit_s"),
                    format!(
                        "limit_s = {limit}: must be more than 0 and at most {LONGEST_LIMIT_S} (a year)"
                    ),
                );
            }
            let margin_percent = self.margins(index, table, entry);
            if table.under_test.is_some() && entry.beside.server.is_none() {
                self.problem(
                    &at("under_test"),
                    format!("under_test: {} has only one role; leave it out", entry.name),
                );
            }
            let under_test = table.under_test.unwrap_or(entry.under_test());
            if several_vms && under_test.other().is_some() {
                self.problem(
                    &at("run"),
                    format!(
                        "{} has two roles, and measured.vms is for workloads of one: write under_test = \"both\" to have both in each VM",
                        entry.name
                    ),
                );
            }
            let background = self.background(index, table.background.as_ref());
            if let Some(params) = self.params(&at("params"), entry, &table.params) {
                workloads.push(StudyWorkload {
                    label,
                    entry,
                    params,
                    invocations,
                    margin_percent,
                    limit_s: table.limit_s,
                    under_test,
                    background,
                    profile: table.profile,
                    several_vms,
                });
            }
        }
        if parsed.workload.iter().all(|table| table.later.is_some()) {
            self.problem(
                &[Key("workload")],
                "No [[workload]] to run: name one, e.g. run = \"hackbench\" (`vmlab workloads` lists them)",
            );
        }
        (workloads, later)
    }

    fn background(
        &mut self,
        index: usize,
        table: Option<&file::BackgroundTable>,
    ) -> Option<Background> {
        use PathStep::{Index, Key};
        let table = table?;
        let at = |key| [Key("workload"), Index(index), Key("background"), Key(key)];
        let entry = match workload::find(&table.run) {
            Ok(entry) => entry,
            Err(error) => {
                self.problem(&at("run"), error.to_string());
                return None;
            }
        };
        if entry.beside.server.is_some() {
            let message = format!("{} has two roles and can't be a background", entry.name);
            self.problem(&at("run"), message);
        }
        let params = self.params(&at("params"), entry, &table.params)?;
        let resolved = entry.resolve(&params);
        let facts = workload::GuestFacts::alone(1, false);
        if resolved.is_ok_and(|params| entry.scratch_mib(&params, &facts) > 0) {
            let message = format!("{} wants a disk and can't be a background", entry.name);
            self.problem(&at("run"), message);
        }
        Some(Background { workload: table.run.clone(), params })
    }

    fn margins(
        &mut self,
        index: usize,
        table: &file::WorkloadTable,
        entry: &workload::CatalogueEntry,
    ) -> BTreeMap<String, f64> {
        use PathStep::{Index, Key};
        let at = |key| [Key("workload"), Index(index), Key(key)];
        let sane = |margin: f64| margin > 0.0 && margin < 100.0;
        let common = table.margin_percent.unwrap_or(DEFAULT_MARGIN_PERCENT);
        if !sane(common) {
            self.problem(
                &at("margin_percent"),
                format!("margin_percent = {common}: must be between 0 and 100"),
            );
        }
        let mut margins: BTreeMap<_, _> =
            entry.metrics.iter().map(|metric| (metric.name.to_owned(), common)).collect();
        for (name, margin) in &table.margins_percent {
            let path = [at("margins_percent").as_slice(), &[Key(name)]].concat();
            if !margins.contains_key(name) {
                let names = entry.metrics.iter().map(|metric| metric.name);
                self.problem(&path, unknown("margins_percent", "metric", name, names));
            } else if !sane(*margin) {
                self.problem(&path, format!("{name} = {margin}: must be between 0 and 100"));
            }
            margins.insert(name.clone(), *margin);
        }
        margins
    }

    fn params(
        &mut self,
        at: &[PathStep<'_>],
        entry: &workload::CatalogueEntry,
        table: &BTreeMap<String, toml::Value>,
    ) -> Option<BTreeMap<String, ParamValue>> {
        let mut given = BTreeMap::new();
        for (key, value) in table {
            match param_value(value) {
                Some(value) => {
                    given.insert(key.clone(), value);
                }
                None => {
                    let path = [at, &[PathStep::Key(key)]].concat();
                    let kind = value.type_str();
                    self.problem(
                        &path,
                        format!("{key}: a {kind} can't be a parameter; give a number, text or true/false"),
                    );
                    return None;
                }
            }
        }
        match entry.resolve(&given) {
            Ok(_) => Some(given),
            Err(error) => {
                let path = [at, &[PathStep::Key(error.key())]].concat();
                self.problem(&path, error.to_string());
                None
            }
        }
    }

    /// Names become file names, labels and benchmark names: a small charset.
    fn name(&mut self, path: &[PathStep<'_>], what: &str, name: &str, taken: bool) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 40 || !name.chars().all(allowed) {
            self.problem(
                path,
                format!(
                    "{what} name {name:?}: use 1 to 40 letters, digits, '.', '_' or '-' without spaces"
                ),
            );
        } else if taken {
            self.problem(path, format!("{what} name {name:?} is used twice: give each its own"));
        }
    }
}

/// A VM beside the one under test, whose pins are not its own.
pub(crate) fn unpinned(vm: &VmPatch) -> VmPatch {
    vm.overlay(&VmPatch {
        pins: Some(VcpuPins::default()),
        emulator_pin: Some(PcpuSet::new()),
        ..VmPatch::default()
    })
}

/// Whether `vm` can be, whatever the machine: with any image, and with KVM if
/// it leaves that open.
fn check_vm(name: &str, vm: &VmPatch) -> Result<(), ResolveError> {
    let boot = match vm.image() {
        image if BuiltinKernel::is_thin(&image) => {
            BootSource::Kernel { kernel: PathBuf::new(), initrd: None }
        }
        ImagePatch::Builtin(_) => BootSource::Direct {
            kernel: PathBuf::new(),
            initrd: PathBuf::new(),
            root_image: PathBuf::new(),
            cmdline: Vec::new(),
        },
        ImagePatch::File(image) => BootSource::Disk { image, format: DiskFormat::Raw },
    };
    let name = if name.is_empty() { "unnamed" } else { name };
    let with = PatchContext { name, arch: Arch::X86_64, auto_accel: Accel::Kvm, boot };
    vm.resolve(&with).map(drop)
}

fn param_value(value: &toml::Value) -> Option<ParamValue> {
    Some(match value {
        toml::Value::Integer(value) => ParamValue::Int(*value),
        toml::Value::Float(value) => ParamValue::Float(*value),
        toml::Value::Boolean(value) => ParamValue::Bool(*value),
        toml::Value::String(value) => ParamValue::Text(value.clone()),
        _ => return None,
    })
}

pub(super) fn unknown<'a>(
    key: &str,
    what: &str,
    given: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    match workload::near(given, known.clone()) {
        Some(near) => format!("{key} = {given:?}: no such {what}; did you mean {near:?}?"),
        None => {
            let list: Vec<_> = known.collect();
            format!("{key} = {given:?}: no such {what}; there are {}", list.join(", "))
        }
    }
}
