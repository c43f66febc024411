//! From a study and a machine to a frozen plan, or to everything that stands
//! in the way.

mod disk;
mod kubevirt;
mod measured;
mod on_host;
mod others;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use guest::libvirt::LibvirtFacts;
use host::dpdk;
use host::load::StressLoad;
use record::Environment;
use topology::bounded::LineProblem;
use topology::{Host, PcpuSet};
use vmconfig::{
    Accel, Arch, BootSource, BuiltinKernel, ImagePatch, PatchContext, SpecFinding, SpecSeverity,
    VmPatch, VmSpec, builtin, qemu,
};
use workload::{CatalogueEntry, FULL_IMAGE, GuestFacts};

use crate::host_settings::{self, HostSettings};
use crate::kubevirt_facts::KubevirtFacts;
use crate::plan::{
    ImageFacts, MEASUREMENT_VERSION, PLAN_FORMAT_VERSION, PlanPeer, PlanVariant, PlanWorkload,
    QemuFacts, StudyPlan,
};
use crate::shown;
use crate::study::{
    HostLoad, LONGEST_LIMIT_S, LoadPlacement, MeasuredPlacement, NetworkKind, NetworkPatch, RunsOn,
    Stress, Study, StudyNetwork, StudyVariant, StudyWorkload, SwitchProgram,
};
use crate::thin::{self, ThinCommand};

use self::others::{OtherVmSpecs, memory_problem};

/// An invocation may take this many times its rough duration ...
const LIMIT_FACTOR: f64 = 10.0;
/// ... and never less than this, s.
const LIMIT_MIN_S: f64 = 60.0;
/// ... or than this where time is emulated: there rough durations are rougher still.
const LIMIT_MIN_EMULATED_S: f64 = 300.0;

/// A benchmark that is over sooner is cheap to repeat, s.
const SHORT_S: f64 = 5.0;

/// Invocations in the first boots of a workload whose study names no number:
/// with four a warm-up shows, with two at least the noise inside a boot.
fn pilot_invocations(typical_s: f64) -> u32 {
    if typical_s <= SHORT_S { 4 } else { 2 }
}

/// The first QEMU with `-netdev stream`.
const STREAM_SINCE: (u32, u32) = (7, 2);

/// Host load ends by itself after this time, should everything else fail.
const LOAD_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// Where a VM with this accelerator is, on `host`.
#[must_use]
pub fn environment_of_vm(accel: Accel, host: &Host) -> Environment {
    on_host::environment(RunsOn::Vm, accel, host)
}

/// What a plan needs to know of the machine.
#[derive(Debug, Clone)]
pub struct MachineFacts {
    /// The host.
    pub host: Host,
    /// The architecture of its guests.
    pub arch: Arch,
    /// The QEMU to use.
    pub qemu: QemuFacts,
    /// What it can do.
    pub capabilities: qemu::Capabilities,
    /// The libvirt that is to start it.
    pub libvirt: Option<LibvirtFacts>,
    /// The cluster whose KubeVirt is to run it.
    pub kubevirt: Option<KubevirtFacts>,
    /// KVM where a guest was seen to boot under it, else TCG.
    pub auto_accel: Accel,
    /// Why not KVM, one line.
    pub environment_why: Option<String>,
    /// The images that the study names.
    pub images: BTreeMap<ImagePatch, MachineImage>,
    /// True if it is only described, and trials are simulated.
    pub is_simulated: bool,
}

impl MachineFacts {
    /// Where the trials of a variant are.
    fn environment(&self, on: RunsOn, accel: Accel) -> Environment {
        if self.is_simulated {
            Environment::Simulated
        } else {
            on_host::environment(on, accel, &self.host)
        }
    }
}

/// An image that is there.
#[derive(Debug, Clone)]
pub struct MachineImage {
    /// What QEMU boots.
    pub boot: BootSource,
    /// What the plan says of it.
    pub facts: ImageFacts,
}

/// A plan, with what its reader should know before it runs.
#[derive(Debug, Clone)]
pub struct FrozenPlan {
    /// The plan.
    pub plan: StudyPlan,
    /// Things that work, but hardly as meant: by line of the study file.
    pub warnings: Vec<LineProblem>,
}

/// All images that a study boots.
#[must_use]
pub fn images(study: &Study) -> Vec<ImagePatch> {
    let variants = study.variants.iter().map(|variant| variant.vm.image());
    let others = study.loads.iter().filter_map(|load| load.vms.as_ref()).flat_map(others::images);
    let peer = has_peer(study).then(|| study.peer.image());
    let mut images: Vec<_> = variants.chain(others).chain(peer).collect();
    images.sort();
    images.dedup();
    images
}

/// True if a workload has two roles and a VM for each.
fn has_peer(study: &Study) -> bool {
    study.workloads.iter().any(|workload| workload.under_test.other().is_some())
}

/// Freezes `study` on `machine`; `seed` orders the trials, `now_unix_s` is when.
///
/// # Errors
/// Every problem, by line of the study file.
pub fn freeze(
    study: &Study,
    machine: &MachineFacts,
    seed: u64,
    now_unix_s: f64,
) -> Result<FrozenPlan, Vec<LineProblem>> {
    let mut freezer = Freezer { study, machine, problems: Vec::new(), warnings: Vec::new() };
    let variants: Vec<_> =
        study.variants.iter().filter_map(|variant| freezer.variant(variant)).collect();
    let other_vms = freezer.other_vms();
    let peer = freezer.peer();
    freezer.loads(&variants, &other_vms);
    let Freezer { mut problems, mut warnings, .. } = freezer;
    for list in [&mut problems, &mut warnings] {
        list.sort_by(|a, b| (a.line, &a.message).cmp(&(b.line, &b.message)));
        list.dedup();
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let emulated = variants.iter().any(|variant| variant.environment.is_emulated_time());
    let vcpus = variants.iter().map(|variant| variant.spec.vcpus()).min().unwrap_or(1);
    let facts = GuestFacts::alone(vcpus, emulated);
    let plan = StudyPlan {
        version: PLAN_FORMAT_VERSION,
        vmlab_version: env!("CARGO_PKG_VERSION").to_owned(),
        measurement_version: MEASUREMENT_VERSION,
        study: study.name.clone(),
        study_file: study.file.clone(),
        title: study.title.clone(),
        question: study.question.clone(),
        study_text: study.text.clone(),
        seed,
        created_unix_s: now_unix_s,
        environment_why: if emulated { machine.environment_why.clone() } else { None },
        qemu: machine.qemu.clone(),
        libvirt: machine.libvirt.clone(),
        kubevirt: machine.kubevirt.clone(),
        images: machine
            .images
            .iter()
            .map(|(image, found)| (image.to_string(), found.facts.clone()))
            .collect(),
        baseline: study.baseline.clone(),
        budget: study.budget,
        stability: study.stability,
        ground: study.ground,
        host_settings: study.host_settings.clone(),
        reload: study.reload,
        variants,
        loads: study.loads.clone(),
        other_vms: other_vms.all,
        single_other_vms: other_vms.each,
        peer,
        workloads: study.workloads.iter().map(|workload| plan_workload(workload, &facts)).collect(),
        later: study.later.clone(),
        variants_left_out: Vec::new(),
        scale: study.scale.clone(),
        published: study.published.clone(),
        published_claims: study.published_claims.clone(),
        frozen: None,
    };
    Ok(FrozenPlan { plan: plan.freeze(), warnings })
}

/// Rough duration of one invocation in such a guest, s.
fn typical_s(workload: &StudyWorkload, facts: &GuestFacts) -> f64 {
    let params = workload.entry.resolve(&workload.params);
    params.map_or(1.0, |params| workload.entry.duration_s(&params, facts))
}

/// How long one invocation may take in such a guest, s: what the study says, else by its rough
/// duration.
#[must_use]
pub fn limit_s(workload: &StudyWorkload, facts: &GuestFacts) -> f64 {
    let limit_min_s = if facts.emulated { LIMIT_MIN_EMULATED_S } else { LIMIT_MIN_S };
    let by_duration =
        || (typical_s(workload, facts) * LIMIT_FACTOR).clamp(limit_min_s, LONGEST_LIMIT_S);
    workload.limit_s.unwrap_or_else(by_duration)
}

fn plan_workload(workload: &StudyWorkload, facts: &GuestFacts) -> PlanWorkload {
    let typical_s = typical_s(workload, facts);
    PlanWorkload {
        label: workload.label.clone(),
        workload: workload.entry.name.to_owned(),
        params: workload.params.clone(),
        invocations: workload.invocations.unwrap_or(pilot_invocations(typical_s)),
        adapt: workload.invocations.is_none(),
        limit_s: limit_s(workload, facts),
        metrics: workload.metrics(),
        of_several_vms: if workload.several_vms {
            workload.metrics_of_one_vm()
        } else {
            Vec::new()
        },
        margin_percent: workload.margins(),
        typical_s,
        under_test: workload.under_test,
        background: workload.background.clone(),
        profile: workload.profile,
    }
}

struct Freezer<'a> {
    study: &'a Study,
    machine: &'a MachineFacts,
    problems: Vec<LineProblem>,
    warnings: Vec<LineProblem>,
}

impl Freezer<'_> {
    fn variant(&mut self, variant: &StudyVariant) -> Option<PlanVariant> {
        // The A/A arm stands in the file under the name of its original.
        let written = variant.aa_of.as_ref().unwrap_or(&variant.name);
        let mut changes = self.changes(written, variant)?;
        if variant.on == RunsOn::Host {
            if !self.machine.is_simulated {
                self.host_seat(written, variant);
            }
            changes = self.on_pcpus(written, changes)?;
        }
        let (mut spec, further) = self.measured(written, variant, &changes)?;
        if variant.on == RunsOn::Vm {
            let workloads = self.study.workloads.iter();
            let backgrounds = workloads.clone().filter_map(|workload| workload.background.as_ref());
            let backgrounds = backgrounds.filter_map(|it| workload::find(&it.workload).ok());
            let entries = workloads.map(|workload| workload.entry).chain(backgrounds);
            self.programs(written, &variant.vm.image(), entries);
            self.thin(written, variant, &spec);
        }
        let disk = self.disk(written, variant, &spec);
        let passed = disk.as_ref().map(|disk| self.passed(written, variant, disk, &spec));
        let mut passed_disks = Vec::new();
        if let Some((with_disks, serials)) = passed.flatten() {
            (spec, passed_disks) = (with_disks, serials);
        }
        self.own_devices(written, &spec, &further);
        let mut host_settings = host_settings::wishes_of(&spec);
        host_settings.extend(variant.host.clone());
        let summary = match variant.on {
            RunsOn::Vm => summary(&changes, variant),
            RunsOn::Host => on_host::summary(&spec, &host_settings),
        };
        let network = self.network(written, &variant.network, &spec, &host_settings);
        let other_vms = self.following_vms(written, variant, &changes);
        Some(PlanVariant {
            name: variant.name.clone(),
            about: variant.about.clone(),
            summary: match &variant.builtin {
                Some(name) => format!("{name}: {summary}"),
                None => summary,
            },
            host_settings,
            params: variant.params.clone(),
            aa_of: variant.aa_of.clone(),
            on: variant.on,
            environment: self.machine.environment(variant.on, spec.accel),
            image: variant.vm.image().to_string(),
            network,
            disk,
            passed_disks,
            spec,
            further,
            left_out: variant.measured.left_out.clone().unwrap_or_default(),
            follows_memory: variant.measured.placement == Some(MeasuredPlacement::Memory),
            other_vms,
        })
    }

    /// What the variant changes of the base VM, on this host.
    fn changes(&mut self, written: &str, variant: &StudyVariant) -> Option<VmPatch> {
        let Some(name) = &variant.builtin else { return Some(variant.changes.clone()) };
        let built = match variant.vm.topology() {
            Ok(topology) => builtin::variant(name, &self.machine.host, topology.vcpus())
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match built {
            Ok(built) => Some(built.overlay(&variant.changes)),
            Err(error) => {
                let line = self.study.line_of_variant(written);
                let message = format!("{written}: use = {name:?}: {error}");
                self.problems.push(LineProblem { line, message });
                None
            }
        }
    }

    /// The VM, checked against QEMU and the host. `written` is the variant that it
    /// stands under in the file, if any, and `whose` says whose it is.
    fn spec(&mut self, name: &str, written: &str, whose: &str, vm: &VmPatch) -> Option<VmSpec> {
        let line = |field: &str| self.study.line_of(written, field);
        let Some(image) = self.machine.images.get(&vm.image()) else {
            let message = format!("{whose}: image {} is not there", vm.image());
            self.problems.push(LineProblem { line: line("image"), message });
            return None;
        };
        let resolve = PatchContext {
            name,
            arch: self.machine.arch,
            auto_accel: self.machine.auto_accel,
            boot: image.boot.clone(),
        };
        let with_threads = |spec| Ok(vmconfig::with_shown_threads(spec, &self.machine.host)?);
        let spec = match vm.resolve(&resolve).and_then(with_threads) {
            Ok(spec) => spec,
            Err(error) => {
                let message = format!("{whose}: {error}");
                self.problems.push(LineProblem { line: line(error.field()), message });
                return None;
            }
        };
        if spec.accel == Accel::Kvm && self.machine.auto_accel != Accel::Kvm {
            let why = self.machine.environment_why.as_deref().unwrap_or("KVM is not usable");
            let message = format!("{whose}: accel \"kvm\" can't be had here: {why}");
            self.problems.push(LineProblem { line: line("accel"), message });
        }
        let mut findings = vmconfig::check_against(&spec, &self.machine.host);
        // Nor does KubeVirt's QEMU take this command line.
        if self.machine.kubevirt.is_none() {
            findings.extend(qemu::check(&spec, &self.machine.capabilities));
            findings.extend(not_in_a_run(&spec, &self.machine.capabilities));
        }
        for SpecFinding { severity, field, message } in findings {
            let problem =
                LineProblem { line: line(&field), message: format!("{whose}: {message}") };
            match severity {
                SpecSeverity::Error => self.problems.push(problem),
                SpecSeverity::Warning => self.warnings.push(problem),
            }
        }
        Some(spec)
    }

    /// What a builtin image lacks is known before anything boots.
    fn programs<'e>(
        &mut self,
        written: &str,
        image: &ImagePatch,
        entries: impl Iterator<Item = &'e CatalogueEntry>,
    ) {
        let ImagePatch::Builtin(name) = image else { return };
        if name.starts_with(FULL_IMAGE) {
            return;
        }
        for entry in entries.filter(|entry| entry.beside.full_image) {
            let who = if written.is_empty() { String::new() } else { format!("{written}: ") };
            let message = format!(
                "{who}{image} lacks the programs of {}: write image = \"builtin:{FULL_IMAGE}\"",
                entry.name
            );
            self.problems.push(LineProblem { line: self.study.line_of(written, "image"), message });
        }
    }

    /// What the thin guest can't do, and what only it can, is known before anything
    /// boots.
    fn thin(&mut self, written: &str, variant: &StudyVariant, spec: &VmSpec) {
        let image = &variant.vm.image();
        let line = self.study.line_of(written, "kernel");
        let is_thin = BuiltinKernel::is_thin(image);
        let facts = GuestFacts::alone(spec.vcpus(), spec.accel == Accel::Tcg);
        let mut messages = Vec::new();
        if is_thin && self.machine.libvirt.is_some() {
            messages.push("kernel \"builtin:thin\" can't be had through libvirt".to_owned());
        }
        if is_thin && spec.vcpus() as usize > thinguest::MAX_VCPUS {
            let (most, vcpus) = (thinguest::MAX_VCPUS, spec.vcpus());
            messages.push(format!("the thin guest starts {most} vCPUs at the most, not {vcpus}"));
        }
        for workload in &self.study.workloads {
            let Ok(params) = workload.resolve_with(&variant.params) else { continue };
            let label = &workload.label;
            let task = ThinCommand::of(&workload.entry.command(&params, &facts));
            let why = match task {
                Ok(task) if is_thin && task.vcpus() > spec.vcpus() => {
                    Some(format!("it needs {} vCPUs", task.vcpus()))
                }
                Err(why) if is_thin => Some(why),
                Ok(_) if is_thin && workload.background.is_some() => {
                    Some("it does nothing in the background".to_owned())
                }
                _ if !is_thin && workload.entry.needs.contains(&thin::PROGRAM) => {
                    let message = format!(
                        "workload {label:?} is the thin guest's: write vm.kernel = \"builtin:thin\""
                    );
                    messages.push(message);
                    None
                }
                _ => None,
            };
            messages.extend(
                why.map(|why| format!("workload {label:?} can't be run in the thin guest: {why}")),
            );
        }
        for message in messages {
            let message = format!("{written}: {message}");
            self.problems.push(LineProblem { line, message });
        }
    }

    /// A VM beside the one under test runs Linux.
    fn linux(&mut self, whose: &str, image: &ImagePatch) {
        if BuiltinKernel::is_thin(image) {
            let message = format!("{whose}: the thin guest is only for the VM under test");
            self.problems.push(LineProblem { line: self.study.line_of("", "kernel"), message });
        }
    }

    /// The VM that plays the other role, if a workload has one.
    fn peer(&mut self) -> Option<PlanPeer> {
        if !has_peer(self.study) {
            return None;
        }
        let network = self.study.network.resolve().ok()?;
        self.linux("the peer", &self.study.peer.image());
        let spec = self.spec("peer", "", "the peer", &self.study.peer)?;
        let played = self.study.workloads.iter().filter(|it| it.under_test.other().is_some());
        self.programs("", &self.study.peer.image(), played.map(|workload| workload.entry));
        let disk = self.study.disk.clone();
        self.no_devices("the peer", &spec, &disk);
        Some(PlanPeer { image: self.study.peer.image().to_string(), spec, network, disk })
    }

    /// How a variant is connected with the other VM, if this host can do that.
    fn network(
        &mut self,
        written: &str,
        changes: &NetworkPatch,
        spec: &VmSpec,
        settings: &HostSettings,
    ) -> Option<StudyNetwork> {
        if !has_peer(self.study) {
            return None;
        }
        let network = self.study.network.overlay(changes).resolve().ok()?;
        // How many there will be is for the setting to say.
        let reserves = [settings, &self.study.host_settings]
            .iter()
            .any(|settings| settings.contains_key("hugepages_2m"));
        let version = self.machine.capabilities.version;
        let obstacle = match network.kind {
            NetworkKind::User if (version.major, version.minor) < STREAM_SINCE => {
                Some(format!("network.kind = \"user\" needs QEMU 7.2 or newer, this is {version}"))
            }
            NetworkKind::User => None,
            NetworkKind::Bridge | NetworkKind::Macvtap => {
                host::network::check(network.vhost).err().map(|error| error.to_string())
            }
            NetworkKind::VhostUser => self
                .not_for_a_switch(&network, spec)
                .or_else(|| no_switch(network.switch, reserves)),
        };
        if let Some(obstacle) = obstacle {
            let line = self.study.line_of_variant(written);
            self.problems.push(LineProblem { line, message: format!("{written}: {obstacle}") });
        }
        Some(network)
    }

    /// What stands in the way of a vhost-user switch between `spec` and the other VM.
    fn not_for_a_switch(&self, network: &StudyNetwork, spec: &VmSpec) -> Option<String> {
        let peer = self.study.peer.memory.shared == Some(true);
        let offline = network.switch_pcpus.difference(&self.machine.host.online());
        if spec.memory.shared != Some(true) || !peer {
            let whose = if peer { "VM under test's" } else { "other VM's" };
            Some(format!(
                "network.kind = \"vhost-user\": the switch must map the {whose} memory: write \
                 memory = {{ shared = true, source = \"memfd\" }} in [vm]"
            ))
        } else if !offline.is_empty() {
            Some(format!("network.switch_pcpus: pCPU(s) {offline} are not online here"))
        } else {
            let gone = |socket: &&PathBuf| !socket.exists();
            let missing = network.sockets.iter().flatten().find(gone)?;
            let path = missing.display();
            Some(format!("network.sockets: {path} is not there: start the switch first"))
        }
    }

    /// Whether the host has room for the loads.
    fn loads(&mut self, variants: &[PlanVariant], other_vms: &OtherVmSpecs) {
        let host = &self.machine.host;
        if self.study.loads.iter().all(|load| load.vms.is_none()) {
            self.room(variants);
        }
        for load in &self.study.loads {
            let stress =
                load.stress.and_then(|stress| stress_problem(host, load, stress, variants));
            let memory = memory_problem(host, load, other_vms, variants);
            for message in stress.into_iter().chain(memory) {
                self.problems
                    .push(LineProblem { line: self.study.line_of_load(&load.name), message });
            }
        }
    }
}

/// What this host lacks for a switch; `reserves` says that the study makes huge pages.
fn no_switch(program: SwitchProgram, reserves: bool) -> Option<String> {
    let (word, checked) = match program {
        SwitchProgram::Vmlab => return None,
        SwitchProgram::Testpmd => ("testpmd", dpdk::check_testpmd()),
        SwitchProgram::OvsDpdk => ("ovs-dpdk", dpdk::check_open_vswitch(reserves)),
    };
    checked.err().map(|error| format!("network.switch = \"{word}\" {error}"))
}

/// "Off the VM" needs pins to stay off, and pCPUs that are left; any load needs
/// pCPUs that can do as much.
fn stress_problem(
    host: &Host,
    load: &HostLoad,
    stress: Stress,
    variants: &[PlanVariant],
) -> Option<String> {
    let HostLoad { name, .. } = load;
    let unpinned = |variant: &&PlanVariant| {
        variant
            .specs()
            .any(|spec| (0..spec.vcpus()).any(|vcpu| !spec.pins.vcpus.contains_key(&vcpu)))
    };
    if stress.placement == LoadPlacement::OffVm {
        if let Some(variant) = variants.iter().find(unpinned) {
            return Some(format!(
                "Load {name:?} stays off the VM's pCPUs, but variant {:?} has unpinned vCPUs that may run anywhere: pin them (vm.pins)",
                variant.name
            ));
        }
        if stress_load(host, stress, variants).pcpus.is_empty() {
            return Some(format!(
                "Load {name:?} stays off the VM's pCPUs, but the variants' pins leave none of the host's ({}) free",
                host.online()
            ));
        }
    }
    // A host that does not tell its pCPUs is not complained about.
    if host.online().is_empty() {
        return None;
    }
    let error = stress_load(host, stress, variants).plan().err()?;
    Some(format!("Load {name:?}: {error}"))
}

/// The host load that `stress` asks for.
pub(crate) fn stress_load(host: &Host, stress: Stress, variants: &[PlanVariant]) -> StressLoad {
    let online = host.online();
    let usable = host.allowed.as_ref().map_or(online.clone(), |all| online.intersection(all));
    let pcpus = match stress.placement {
        LoadPlacement::Anywhere => usable,
        LoadPlacement::OffVm => {
            let off = off_vm_pcpus(host, variants.iter().flat_map(PlanVariant::specs));
            usable.intersection(&off)
        }
    };
    StressLoad {
        percent_of_host: stress.percent,
        host_pcpus: u32::try_from(online.len()).unwrap_or(u32::MAX),
        pcpus,
        time_limit: LOAD_LIMIT,
    }
}

/// What the VM asks for beside its command line that a run does not see to:
/// better refused than silently left out. A run pins and schedules threads and
/// makes host settings.
fn not_in_a_run(spec: &VmSpec, capabilities: &qemu::Capabilities) -> Vec<SpecFinding> {
    let channels = shown::placeholder_channels();
    let losses = qemu::emit(spec, &channels, capabilities).losses;
    let seen_to = |field: &String| {
        field.starts_with("pins.") || field.starts_with("host.") || field == "scheduler"
    };
    losses
        .into_iter()
        .filter(|loss| !loss.fields.iter().all(seen_to))
        .map(|loss| {
            let field = loss.fields.first().and_then(|f| f.split('.').next()).unwrap_or_default();
            // QEMU gets the nearest model that it knows: worth a word, no more.
            let severity =
                if field == "cpu_model" { SpecSeverity::Warning } else { SpecSeverity::Error };
            SpecFinding {
                severity,
                field: field.to_owned(),
                message: format!("a run can't have {}: {}", loss.what, loss.why),
            }
        })
        .collect()
}

/// The pCPUs that no vCPU of any of `specs` is pinned to.
fn off_vm_pcpus<'a>(host: &Host, specs: impl Iterator<Item = &'a VmSpec>) -> PcpuSet {
    specs
        .flat_map(|spec| spec.pins.vcpus.values())
        .fold(host.online(), |left, taken| left.difference(taken))
}

/// What the patches say, as `key = value` pairs on one line.
fn summary(changes: &VmPatch, variant: &StudyVariant) -> String {
    // TOML has no numbers as keys, which the pins of vCPUs are, and no null.
    let pairs = |prefix: &str, table: serde_json::Result<serde_json::Value>| {
        let table = without_nulls(table.expect("keys are words or numbers"));
        let table = toml::Table::try_from(table).expect("a patch is a table");
        let pair = |(key, value)| format!("{prefix}{key} = {value}");
        table.iter().map(pair).collect::<Vec<_>>()
    };
    let all = [
        pairs("measured.", serde_json::to_value(&variant.measured)),
        pairs("", serde_json::to_value(changes)),
        pairs("network.", serde_json::to_value(&variant.network)),
        pairs("disk.", serde_json::to_value(&variant.disk)),
        pairs("host.", serde_json::to_value(&variant.host)),
        pairs("params.", serde_json::to_value(&variant.params)),
    ]
    .concat();
    if all.is_empty() { "as the base VM".to_owned() } else { all.join(", ") }
}

/// `value` without what is null in it.
fn without_nulls(value: serde_json::Value) -> Option<serde_json::Value> {
    use serde_json::Value;
    match value {
        Value::Null => None,
        Value::Object(table) => {
            let kept =
                table.into_iter().filter_map(|(key, value)| Some((key, without_nulls(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(values) => Some(values.into_iter().filter_map(without_nulls).collect()),
        value => Some(value),
    }
}

#[cfg(test)]
mod tests;
