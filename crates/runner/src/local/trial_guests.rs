//! The guests of a trial: the VM under test and, for benchmarks with two
//! roles, the other VM; started, connected and prepared.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use guest::{Cancel, Launch, OwnedVm};
use host::counters::tracing::{Tracing, TracingError};
use host::sandbox::{Sandbox, SandboxRequest};
use record::{CounterSet, Failure, FailureKind, PEER};
use topology::PcpuSet;
use vmconfig::{CacheMode, VmSpec, qemu};
use workload::{CatalogueEntry, GuestFacts, Params, UnderTest};

use super::between::{ADDRESSES, GuestLink, MACS, OTHER, Plug, UNDER_TEST};
use super::exec_target::ExecTarget;
use super::failure::failure;
use super::role_guest::{GuestName, RoleGuest, named};
use super::scratch_disks::ScratchDisks;
use super::thin::ThinPlace;
use super::{LocalLab, domain, load_failure, placement};
use crate::plan::{PlanVariant, PlanWorkload};
use crate::probe;
use crate::study::{DiskWish, RunsOn, StudyDisk, StudyNetwork};
use crate::thin::is_thin;

/// What the VM under test and the one with the other role are called in files.
pub(super) const UNDER_TEST_VM: &str = "trial";
pub(super) const PEER_VM: &str = "peer";

/// What VM `number` of those that are measured together is called in files.
pub(super) fn further_name(number: u32) -> String {
    format!("vm{number}")
}

/// The guests of one trial, from first to last, or the host in the place of
/// the one under test. QEMUs end before the network.
#[derive(Debug)]
pub(super) struct TrialGuests {
    /// The VM under test, or the host.
    pub(super) under_test: RoleGuest,
    /// The VM that plays the other role.
    pub(super) other: Option<RoleGuest>,
    /// The VMs that are measured together with the one under test.
    pub(super) further: Vec<FurtherGuest>,
    /// Arguments of the QEMUs beside that of the VM under test, one a line, by the
    /// names of their VMs.
    pub(super) other_args: BTreeMap<String, String>,
    roles: UnderTest,
    /// The empty disks of the guest that keeps data.
    scratch: Option<ScratchDisks>,
    between: GuestLink,
}

/// A VM that is measured together with the one under test.
#[derive(Debug)]
pub(super) struct FurtherGuest {
    pub(super) guest: RoleGuest,
    /// Its empty disks, gone after the VM.
    scratch: Option<ScratchDisks>,
    /// Whether what it does and says is left out of what is measured.
    pub(super) left_out: bool,
}

/// What a trial is made of.
pub(super) struct TrialParts<'a> {
    pub(super) variant: &'a PlanVariant,
    pub(super) workload: &'a PlanWorkload,
    pub(super) entry: &'static CatalogueEntry,
    pub(super) params: Params,
    /// What is repeated beside each invocation.
    pub(super) background: Option<(&'static CatalogueEntry, Params)>,
}

impl<'a> TrialParts<'a> {
    /// Looks up what the plan names.
    pub(super) fn new(
        variant: &'a PlanVariant,
        workload: &'a PlanWorkload,
    ) -> Result<Self, Failure> {
        let missing = |detail: String| Failure::new(FailureKind::WorkloadMissing, detail);
        let (entry, params) =
            workload.resolve_in(variant).map_err(|error| missing(error.to_string()))?;
        let background = match &workload.background {
            None => None,
            Some(background) => {
                let entry = workload::find(&background.workload);
                let entry = entry.map_err(|error| missing(error.to_string()))?;
                let params = entry.resolve(&background.params);
                Some((entry, params.map_err(|error| missing(error.to_string()))?))
            }
        };
        Ok(Self { variant, workload, entry, params, background })
    }

    /// Time limit of an invocation, and of each step before it.
    pub(super) fn step_limit(&self) -> Duration {
        Duration::from_secs_f64(self.workload.limit_s)
    }
}

impl TrialGuests {
    /// Starts the VMs; the guests begin to boot. `started` is told QEMU's
    /// arguments of the VM under test.
    pub(super) fn start(
        lab: &LocalLab<'_>,
        trial: &TrialParts<'_>,
        qemu_args: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let roles = trial.workload.under_test;
        let (scratch, mine_spec, other_spec) = scratch(lab, trial)?;
        let emulated = trial.variant.environment.is_emulated_time();
        let Some(other_role) = roles.other() else {
            let is_alone = trial.variant.further.is_empty();
            let name = (!is_alone).then_some(GuestName::Number(0));
            let fail = |failure| named(name, failure);
            let (place, args) = match trial.variant.on {
                RunsOn::Vm => in_vm(lab, &mine_spec, &trial.variant.image, UNDER_TEST_VM, None)
                    .map_err(fail)?,
                RunsOn::Host => (on_host(lab, trial.variant, None, scratch.as_ref())?, Vec::new()),
            };
            *qemu_args = args;
            let facts = GuestFacts::alone(mine_spec.vcpus(), emulated);
            let under_test = RoleGuest::new(place, facts, name);
            let (mut further, mut other_args) = (Vec::new(), BTreeMap::new());
            for (number, spec) in (1..).zip(&trial.variant.further) {
                let (vm, args) = FurtherGuest::start(lab, trial, spec, number)?;
                further.push(vm);
                other_args.insert(further_name(number), lines_of(&args));
            }
            return Ok(Self {
                under_test,
                other: None,
                further,
                other_args,
                roles,
                scratch,
                between: GuestLink::default(),
            });
        };
        let missing = |what: &str| {
            Failure::new(
                FailureKind::VmRefused,
                format!("The plan has no {what} for a workload with two roles"),
            )
        };
        let peer = lab.plan.peer.as_ref().ok_or_else(|| missing("other VM"))?;
        let mine = trial.variant.network.clone().ok_or_else(|| missing("network"))?;
        let theirs = StudyNetwork { kind: mine.kind, ..peer.network.clone() };
        let specs = [&mine_spec, other_spec.as_ref().unwrap_or(&peer.spec)];
        let (between, plugs) =
            GuestLink::new(lab, [(mine, specs[UNDER_TEST]), (theirs, specs[OTHER])])?;
        let mut guests = Vec::new();
        let mut all_args = Vec::new();
        let places = [
            (roles, specs[UNDER_TEST], UNDER_TEST_VM, ADDRESSES[OTHER]),
            (other_role, specs[OTHER], PEER_VM, ADDRESSES[UNDER_TEST]),
        ];
        for (number, (role, spec, name, address)) in places.into_iter().enumerate() {
            let called = Some(GuestName::Role(role));
            let fail = |failure| named(called, failure);
            let (place, args) = match trial.variant.on {
                RunsOn::Host if number == UNDER_TEST => {
                    // A server keeps the data; the other VM has it else.
                    let mine = scratch.as_ref().filter(|_| roles.serves());
                    let place = on_host(lab, trial.variant, between.of_kernel.as_ref(), mine);
                    (place.map_err(fail)?, Vec::new())
                }
                _ => in_vm(lab, spec, &trial.variant.image, name, Some(&plugs[number]))
                    .map_err(fail)?,
            };
            all_args.push(args);
            let facts = GuestFacts { vcpus: spec.vcpus(), emulated, peer: address };
            guests.push(RoleGuest::new(place, facts, called));
        }
        let (Some(other), Some(under_test)) = (guests.pop(), guests.pop()) else {
            return Err(missing("second guest"));
        };
        *qemu_args = all_args.swap_remove(UNDER_TEST);
        Ok(Self {
            under_test,
            other: Some(other),
            further: Vec::new(),
            other_args: BTreeMap::from([(PEER_VM.to_owned(), lines_of(&all_args.concat()))]),
            roles,
            scratch,
            between,
        })
    }

    /// Waits until all guests are up; the boot of the VM under test, s. The
    /// host boots none.
    pub(super) fn wait_ready(
        &mut self,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<Option<f64>, Failure> {
        self.wait_for_each(limit, cancel).map_err(|failure| self.between.explain(failure))
    }

    fn wait_for_each(&mut self, limit: Duration, cancel: &Cancel) -> Result<Option<f64>, Failure> {
        let boot = self.under_test.wait_ready(limit, cancel)?;
        if let Some(other) = &mut self.other {
            other.wait_ready(limit, cancel)?;
        }
        for vm in &mut self.further {
            vm.guest.wait_ready(limit, cancel)?;
        }
        Ok(boot.map(|boot| boot.as_secs_f64()))
    }

    /// Connects the guests and does what is to be done before the benchmark.
    pub(super) fn prepare(
        &mut self,
        trial: &TrialParts<'_>,
        cancel: &Cancel,
    ) -> Result<(), Failure> {
        if matches!(self.under_test.place, ExecTarget::Thin(_)) {
            // It brings all that it does.
            return Ok(());
        }
        let limit = trial.step_limit();
        let TrialParts { entry, params, .. } = trial;
        let arch = trial.variant.spec.arch;
        if self.other.is_none() {
            let disks = self.scratch.as_ref().map(ScratchDisks::seen);
            let prepared = self.in_each(|guest| {
                guest.prepare_alone((entry, params), arch, disks.as_ref(), limit, cancel)
            });
            return prepared.map(drop);
        }
        if let Some(other) = &mut self.other {
            let (mine, theirs) = (ADDRESSES[UNDER_TEST].to_string(), ADDRESSES[OTHER].to_string());
            // The host has its address already; guests wait for each other.
            let wait_for = self.under_test.place.vm().is_none().then_some(mine.as_str());
            other.connect(MACS[OTHER], &theirs, wait_for, limit, cancel)?;
            let wait_for = Some(theirs.as_str());
            self.under_test.connect(MACS[UNDER_TEST], &mine, wait_for, limit, cancel)?;
        }
        if let Some(disks) = self.scratch.as_ref().map(ScratchDisks::seen) {
            let owner = if entry.beside.server.is_some() { self.server() } else { self.client() };
            owner.find_disks(&disks, cancel)?;
        }
        if let Some(server) = &entry.beside.server {
            let guest = self.server();
            if server.needs.contains(&probe::PROGRAM) {
                guest.install_probe(arch, cancel)?;
            }
            guest.require(server.needs, cancel)?;
            let steps = entry.server_setup(params, &guest.facts);
            guest.prepare(&steps, limit, cancel)?;
        }
        let client = self.client();
        if entry.needs.contains(&probe::PROGRAM) {
            client.install_probe(arch, cancel)?;
        }
        let steps = entry.setup(params, &client.facts);
        client.prepare(&steps, limit, cancel)
    }

    /// All VMs that are measured, or the host.
    pub(super) fn measured(&mut self) -> impl Iterator<Item = &mut RoleGuest> {
        std::iter::once(&mut self.under_test).chain(self.further.iter_mut().map(|vm| &mut vm.guest))
    }

    /// Does `what` in all guests that are measured, at once; the first failure by
    /// number, when all have come to an end.
    pub(super) fn in_each<T: Send>(
        &mut self,
        what: impl Fn(&mut RoleGuest) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        if self.further.is_empty() {
            return what(&mut self.under_test).map(|one| vec![one]);
        }
        let what = &what;
        thread::scope(|scope| {
            let begun: Vec<_> =
                self.measured().map(|guest| scope.spawn(move || what(guest))).collect();
            let ended: Vec<_> = begun
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect();
            ended.into_iter().collect()
        })
    }

    /// [`Self::in_each`], or in the guest that runs the command where there are two
    /// roles.
    pub(super) fn in_each_client<T: Send>(
        &mut self,
        what: impl Fn(&mut RoleGuest) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        if self.other.is_some() {
            return what(self.client()).map(|one| vec![one]);
        }
        self.in_each(what)
    }

    /// The guest that is spoken to.
    fn server(&mut self) -> &mut RoleGuest {
        match &mut self.other {
            Some(other) if !self.roles.serves() => other,
            _ => &mut self.under_test,
        }
    }

    /// The guest that runs the benchmark's command.
    pub(super) fn client(&mut self) -> &mut RoleGuest {
        match &mut self.other {
            Some(other) if !self.roles.measures() => other,
            _ => &mut self.under_test,
        }
    }

    /// Begins to count what all VMs do.
    ///
    /// # Errors
    /// Why exits are not counted by reason; the rest is counted.
    pub(super) fn begin_counting(&mut self, tracing: Option<&Tracing>) -> Result<(), TracingError> {
        let begun = self.under_test.begin_counting(tracing);
        let further = self.further.iter_mut().map(|vm| &mut vm.guest);
        let others = self.other.iter_mut().chain(further);
        others.fold(begun, |begun, other| {
            let other = other.begin_counting(tracing);
            begun.and(other)
        })
    }

    /// The counters of all guests: those that are measured together are added up, the
    /// other VM's begin with `peer.`.
    pub(super) fn counters(&mut self, cancel: &Cancel) -> Result<CounterSet, Failure> {
        let mut all = self.under_test.counters(cancel)?;
        for vm in self.further.iter_mut().filter(|vm| !vm.left_out) {
            all.add_all(vm.guest.counters(cancel)?);
        }
        if let Some(other) = &mut self.other {
            all.merge(of_peer(other.counters(cancel)?));
        }
        all.merge(self.between.counters()?);
        let measured = self.further.iter().filter(|vm| !vm.left_out).map(|vm| &vm.scratch);
        for disks in measured.chain([&self.scratch]).flatten() {
            all.add_all(disks.counters());
        }
        Ok(all)
    }

    /// Where the memory of all guests lies now.
    pub(super) fn memory(&self) -> CounterSet {
        let mut all = self.under_test.memory();
        for vm in self.further.iter().filter(|vm| !vm.left_out) {
            all.add_all(vm.guest.memory());
        }
        if let Some(other) = &self.other {
            all.merge(of_peer(other.memory()));
        }
        all
    }

    /// True if any VM takes part.
    pub(super) fn has_vm(&self) -> bool {
        self.other.is_some() || self.under_test.place.threads().is_some()
    }

    /// Whether the VM that does not run the command still answers, the switch, and who
    /// serves the disks: a
    /// benchmark that fails is often but the other side's end.
    pub(super) fn check_other(&mut self, cancel: &Cancel) -> Result<(), Failure> {
        self.between.check_alive()?;
        let further = self.further.iter_mut().map(|vm| &mut vm.scratch);
        for disks in further.chain([&mut self.scratch]).flatten() {
            disks.check_alive()?;
        }
        let measures = self.roles.measures();
        let Some(other) = &mut self.other else { return Ok(()) };
        let silent = if measures { other } else { &mut self.under_test };
        silent.place.check_alive(cancel).map_err(|failure| silent.named(failure))
    }

    /// `failure`, with what the switch between the VMs says of it.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        self.between.explain(failure)
    }

    /// What is known of the switch between the VMs, if there is one.
    pub(super) fn switch_facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        self.between.facts()
    }

    /// Ends all VMs, and what runs on the host.
    pub(super) fn shutdown(self) {
        self.under_test.place.shutdown();
        for vm in self.further {
            vm.guest.place.shutdown();
            drop(vm.scratch);
        }
        if let Some(other) = self.other {
            other.place.shutdown();
        }
    }
}

impl FurtherGuest {
    /// VM `number` of those that are measured together, with its empty disk, if the
    /// workload wants one, and QEMU's arguments.
    fn start(
        lab: &LocalLab<'_>,
        trial: &TrialParts<'_>,
        spec: &VmSpec,
        number: u32,
    ) -> Result<(Self, Vec<String>), Failure> {
        let name = Some(GuestName::Number(number));
        let emulated = trial.variant.environment.is_emulated_time();
        let facts = GuestFacts::alone(spec.vcpus(), emulated);
        let files = further_name(number);
        let disk = trial.variant.disk.as_ref();
        let scratch = scratch_of(lab, trial, disk, &facts, (&files, spec));
        let scratch = scratch.map_err(|failure| named(name, failure))?;
        let with_disk = scratch.as_ref().map(|disks| disks.attach(spec)).transpose()?;
        let spec = with_disk.as_ref().unwrap_or(spec);
        let (place, args) = in_vm(lab, spec, &trial.variant.image, &files, None)
            .map_err(|failure| named(name, failure))?;
        let left_out = trial.variant.left_out.contains(&number);
        Ok((Self { guest: RoleGuest::new(place, facts, name), scratch, left_out }, args))
    }
}

/// The empty disks that the workload wants, if it does, as `disk` says, of a VM by its
/// name in files.
fn scratch_of(
    lab: &LocalLab<'_>,
    trial: &TrialParts<'_>,
    disk: Option<&StudyDisk>,
    facts: &GuestFacts,
    vm: (&str, &VmSpec),
) -> Result<Option<ScratchDisks>, Failure> {
    let wish = DiskWish::of(trial.entry, &trial.params, facts);
    let disk = disk.cloned().unwrap_or_default();
    wish.map(|wish| ScratchDisks::new(lab, &disk, wish, &trial.variant.passed_disks, vm))
        .transpose()
}

/// Arguments, one a line.
fn lines_of(args: &[String]) -> String {
    args.join("\n") + "\n"
}

/// Counters of the other VM.
fn of_peer(counters: CounterSet) -> CounterSet {
    let named = counters.0.into_iter().map(|(name, value)| (format!("{PEER}{name}"), value));
    CounterSet(named.collect())
}

/// The empty disks that the workload wants, if it does; the VM under test, and the
/// other one if it is that which gets them.
fn scratch(
    lab: &LocalLab<'_>,
    trial: &TrialParts<'_>,
) -> Result<(Option<ScratchDisks>, VmSpec, Option<VmSpec>), Failure> {
    let TrialParts { variant, workload, .. } = trial;
    let facts = GuestFacts::alone(variant.spec.vcpus(), variant.environment.is_emulated_time());
    // A server keeps the data; without one there is but one guest.
    let peer = lab.plan.peer.as_ref().filter(|_| !workload.under_test.serves());
    let (disk, vm) = match peer {
        Some(peer) => (Some(&peer.disk), (PEER_VM, &peer.spec)),
        None => (variant.disk.as_ref(), (UNDER_TEST_VM, &variant.spec)),
    };
    let Some(scratch) = scratch_of(lab, trial, disk, &facts, vm)? else {
        return Ok((None, variant.spec.clone(), None));
    };
    let (mine, other) = match peer {
        Some(peer) => (variant.spec.clone(), Some(scratch.attach(&peer.spec)?)),
        // It mounts the file itself.
        None if variant.on == RunsOn::Host => (variant.spec.clone(), None),
        None => (scratch.attach(&variant.spec)?, None),
    };
    Ok((Some(scratch), mine, other))
}

/// A place on the host itself, with what a VM would find.
fn on_host(
    lab: &LocalLab<'_>,
    variant: &PlanVariant,
    network: Option<&host::network::LabNetwork>,
    scratch: Option<&ScratchDisks>,
) -> Result<ExecTarget, Failure> {
    let pins = &variant.spec.pins.vcpus;
    let pcpus = pins.values().fold(PcpuSet::default(), |all, pcpus| all.union(pcpus));
    let cache = variant.disk.as_ref().and_then(|disk| disk.cache);
    let past_cache = matches!(cache, Some(CacheMode::None | CacheMode::Directsync));
    let wanted = SandboxRequest {
        pcpus: &pcpus,
        network: network.map(|network| (network, ADDRESSES[UNDER_TEST])),
        scratch: scratch.and_then(ScratchDisks::file).map(|file| (file, past_cache)),
    };
    let made = Sandbox::new(&wanted, lab.runtime.path(), &lab.owner);
    made.map(ExecTarget::Host)
        .map_err(|error| Failure::new(FailureKind::WorkloadFailed, load_failure(&error).detail))
}

/// The VM of `spec`, which boots `image`, pinned, and QEMU's arguments.
pub(super) fn in_vm(
    lab: &LocalLab<'_>,
    spec: &VmSpec,
    image: &str,
    name: &str,
    plug: Option<&Plug>,
) -> Result<(ExecTarget, Vec<String>), Failure> {
    if let Some(hosting) = lab.hosting {
        let ordered = spec.with_ordered_rings();
        let spec = ordered.as_ref().unwrap_or(spec);
        let vm = hosting.start(spec, image, name, &lab.cancel).map_err(failure)?;
        // What its QEMU is told is seen when it runs.
        return Ok((ExecTarget::Hosted(vm), Vec::new()));
    }
    let (place, args) = if is_thin(spec) {
        let (thin, args) = ThinPlace::start(lab, spec, name)?;
        (ExecTarget::Thin(Box::new(thin)), args)
    } else {
        let (vm, args) = start(lab, spec, name, &console_file(lab, name), plug)?;
        (ExecTarget::Vm(Box::new(vm)), args)
    };
    if let Some(threads) = place.threads() {
        placement::pin(threads, spec)?;
    }
    Ok((place, args))
}

/// The file of a VM's console.
pub(super) fn console_file(lab: &LocalLab<'_>, name: &str) -> PathBuf {
    lab.runtime.path().join(format!("{name}.console"))
}

/// Where a VM's devices are written down, should its guest hang or panic.
pub(super) fn state_file(lab: &LocalLab<'_>, name: &str) -> PathBuf {
    lab.runtime.path().join(format!("{name}.vmstate"))
}

/// Starts the VM of `spec`; `name` tells its sockets apart.
fn start(
    lab: &LocalLab<'_>,
    spec: &VmSpec,
    name: &str,
    console_log: &Path,
    plug: Option<&Plug>,
) -> Result<(OwnedVm, Vec<String>), Failure> {
    let folder = lab.runtime.path();
    let channels = qemu::Channels {
        qmp_socket: folder.join(format!("{name}.qmp")),
        agent_socket: folder.join(format!("{name}.agent")),
        done_socket: folder.join(format!("{name}.done")),
        console_socket: folder.join(format!("{name}.serial")),
        console_log: console_log.to_owned(),
    };
    let ordered = spec.with_ordered_rings();
    let spec = ordered.as_ref().unwrap_or(spec);
    if let Some(libvirt) = &lab.plan.libvirt {
        return domain::start(lab, libvirt, spec, name, channels);
    }
    let mut args = qemu::emit(spec, &channels, &lab.capabilities).args;
    args.extend(plug.into_iter().flat_map(|plug| plug.args.clone()));
    let mut words: Vec<String> = plug.map_or_else(Vec::new, |plug| plug.enter.clone());
    words.push(lab.qemu().display().to_string());
    words.extend(args.iter().cloned());
    let launch = Launch {
        qemu: PathBuf::from(words.remove(0)),
        args: words,
        channels,
        env: lab.owner.env().to_vec(),
        start_limit: lab.boot_limit(),
    };
    let mut vm = OwnedVm::start(&launch, &lab.cancel).map_err(failure)?;
    if lab.plan.budget.keep_state {
        vm.keep_last_state(state_file(lab, name), &lab.cancel).map_err(failure)?;
    }
    Ok((vm, args))
}
