//! The thin guest, boot after boot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use guest::qemu::Qemu;
use guest::thin::{self, NoProgram, ThinFailure, ThinLaunch, ThinMessage, ThinVm};
use guest::{Cancel, Cancellation, GuestFailure};
use host::counters::tracing::{Tracing, TracingError};
use host::counters::{VmThreads, read_vm};
use host::owner::{self, Owner, OwnerError, RuntimeDirError};
use record::Environment;
use thinguest::{Apic, Hello, Item, Measurement, Operation, Skip, TimerIrq, VirtioDevice};
use vmconfig::qemu::{SerialChannels, emit_serial};
use vmconfig::{Arch, BootSource, InvalidVm, VmSettings, VmSpec};

use super::{BootPrice, Calibration, Count, FORMAT, FORMAT_VERSION, Price};

/// The operation that is none.
pub(super) const EMPTY: &str = "nothing";

/// How long the guest may take to begin: a KVM in software on a busy host takes 15 s.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);
/// How long an operation may take.
const OPERATION_LIMIT: Duration = Duration::from_secs(30);
/// How long nothing is heard before it is looked whether the guest gets anywhere, and then
/// again; and how much of that its vCPUs have run if they are stuck, s.
const LOOK: Duration = Duration::from_millis(500);
const STUCK_RUN_S: f64 = 0.25;
/// The firmware of microvm, which boots a PVH kernel on q35 and pc, too, and looks for
/// nothing else. Source: qboot's README.
const QBOOT: &str = "qboot.rom";
/// All takes so much longer where processors are emulated.
const EMULATED: u32 = 20;

/// What to measure, and where.
#[derive(Debug, Clone)]
pub struct CalibrationRequest {
    /// The VM; what it boots is the thin guest, whatever stands here.
    pub vm: VmSettings,
    /// The operations, the empty one first.
    pub items: Vec<Item>,
    /// The local APIC's mode; the best that there is if nobody says.
    pub apic: Option<Apic>,
    /// Fresh boots.
    pub boots: u32,
    /// In what environment the VM is.
    pub environment: Environment,
    /// Have exits counted by reason meanwhile, as in a study's trials.
    pub as_in_trials: bool,
    /// The host's kernel and processor.
    pub kernel: Option<String>,
    /// See [`Self::kernel`].
    pub cpu_model: Option<String>,
    /// The host's name.
    pub hostname: Option<String>,
    /// Its settings that prices depend on, as [`super::settings_of`] has them.
    pub host_settings: BTreeMap<String, String>,
}

impl CalibrationRequest {
    /// In what is counted there.
    #[must_use]
    pub fn count(&self) -> Count {
        match self.environment {
            Environment::Tcg | Environment::InstructionCounted => Count::Instructions,
            _ => Count::Cycles,
        }
    }

    /// The VM that boots `kernel` with a plan for `items`, by qboot if that is `quick`.
    fn spec(&self, kernel: PathBuf, items: &[Item], quick: bool) -> Result<VmSpec, InvalidVm> {
        let run: Vec<String> = items.iter().map(Item::to_string).collect();
        let mut words = vec!["vmlab-thin=1".to_owned()];
        words.extend(self.apic.map(|apic| format!("apic={}", apic.name())));
        words.extend(self.shakes_hands().then(|| "shake=on".to_owned()));
        words.push(format!("run={}", run.join(",")));
        let mut vm = self.vm.clone();
        vm.boot = BootSource::Kernel { kernel, initrd: None };
        vm.kernel_cmdline = words;
        vm.extra_args.extend(self.devices(items));
        if quick {
            vm.extra_args.extend(["-bios", QBOOT].map(str::to_owned));
        }
        if self.environment == Environment::Tcg {
            vm.extra_args.extend(["-icount".to_owned(), "shift=0,sleep=off".to_owned()]);
            if vm.arch == Arch::Aarch64 {
                // The guest's clock ticks with each instruction, not with 16 of them.
                vm.cpu_model.push_str(",cntfrq=1000000000");
            }
        }
        VmSpec::new(vm)
    }

    /// Whether all boots begin by qboot, as SeaBIOS takes 4 s a boot under a KVM in
    /// software. Where instructions are counted the firmware stays the machine's own; so
    /// where the VM has options of its own, and where an operation needs a virtio device,
    /// as qboot gives none its place.
    fn is_quick(&self, qemu: &Qemu) -> bool {
        let has_bios = self.vm.arch == Arch::X86_64 && !self.vm.machine.starts_with("microvm");
        self.count() == Count::Cycles
            && has_bios
            && self.vm.extra_args.is_empty()
            && self.devices(&self.items).is_empty()
            && qemu.finds(QBOOT)
    }

    /// QEMU's options for the virtio devices that `items` need.
    fn devices(&self, items: &[Item]) -> Vec<String> {
        let is_needed = |device| items.iter().any(|item| item.operation.device() == Some(device));
        let bus = match self.vm.arch {
            Arch::X86_64 if !self.vm.machine.starts_with("microvm") => "pci",
            Arch::X86_64 | Arch::Aarch64 => "device",
        };
        // An emulated VM's own clock tells when, or nobody but its vCPU does anything:
        // no thread of QEMU's comes earlier or later from run to run.
        let emulated = self.environment == Environment::Tcg;
        let pci = match (bus, emulated) {
            ("pci", true) => ",disable-legacy=on,ioeventfd=off",
            ("pci", false) => ",disable-legacy=on",
            _ => "",
        };
        let mut args = Vec::new();
        let mut say = |option: &str, value: String| args.extend([option.to_owned(), value]);
        if is_needed(VirtioDevice::Block) {
            say("-blockdev", "null-co,node-name=thin,size=1048576,read-zeroes=on".to_owned());
            say("-device", format!("virtio-blk-{bus},drive=thin{pci}"));
        }
        if is_needed(VirtioDevice::Net) {
            let send = if emulated { ",tx=timer,x-txtimer=1000" } else { "" };
            let rom = if bus == "pci" { ",romfile=" } else { "" };
            say("-netdev", "user,id=thin,restrict=on,ipv6=off".to_owned());
            say("-device", format!("virtio-net-{bus},netdev=thin{pci}{rom}{send}"));
        }
        if bus == "device" && !args.is_empty() {
            args.extend(["-global".to_owned(), "virtio-mmio.force-legacy=false".to_owned()]);
            if emulated {
                args.extend(["-global".to_owned(), "virtio-mmio.ioeventfd=off".to_owned()]);
            }
        }
        args
    }

    /// Where the VM's clock is its count of instructions, an answer from outside
    /// would change the count; and an emulator has no counters.
    fn shakes_hands(&self) -> bool {
        self.environment != Environment::Tcg
    }

    /// Whether prices have a mean, which accounts are paid by. An emulator's have none: about
    /// one of 100000 halts ends some instructions late there. QEMU's main loop takes a vCPU
    /// for idle as soon as it is marked as halted, before what it executed since its clock
    /// was read last is accounted, and moves the clock on by so much too far
    /// (`icount_start_warp_timer`). A median does not see that.
    fn has_mean(&self) -> bool {
        self.environment != Environment::Tcg
    }

    /// Whether exits are counted by reason meanwhile; an emulator has none.
    fn counts_reasons(&self) -> bool {
        self.as_in_trials && self.environment != Environment::Tcg
    }

    /// QEMU's command line of the first boot, one option a line.
    ///
    /// # Errors
    /// [`InvalidVm`].
    pub fn command(&self, qemu: &Qemu) -> Result<Vec<String>, InvalidVm> {
        let channels = SerialChannels { qmp_socket: "qmp".into(), serial_socket: "serial".into() };
        let quick = self.is_quick(qemu);
        let spec = self.spec("vmlab-thin".into(), &self.items, quick)?;
        Ok(emit_serial(&spec, &channels, &qemu.capabilities).option_lines())
    }

    fn limit(&self, item: Option<&Item>) -> Duration {
        let limit = match item {
            None => BEGIN_LIMIT,
            Some(_) => OPERATION_LIMIT,
        };
        // Each sample may be seconds late there.
        if self.environment.is_emulated_time() { limit * EMULATED } else { limit }
    }
}

/// What happens, for whoever watches.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// A boot begins: its number from 1, and of how many.
    Boot(u32, u32),
    /// An operation is due.
    Operation(&'a str),
}

/// Error type for [`calibrate`].
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// There is no thin guest.
    #[error(transparent)]
    Program(#[from] NoProgram),
    /// The VM can't be.
    #[error(transparent)]
    Vm(#[from] InvalidVm),
    /// The guest did not begin.
    #[error(transparent)]
    Guest(ThinFailure),
    /// This process can't mark what it starts.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// No folder for sockets.
    #[error(transparent)]
    Runtime(#[from] RuntimeDirError),
    /// The guest's file can't be written.
    #[error("Cannot write {path:?}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Exits can't be counted by reason.
    #[error("Cannot count exits as a study's trials do")]
    Tracing(#[from] TracingError),
    /// Ctrl-C.
    #[error(transparent)]
    Cancelled(#[from] Cancellation),
}

/// The price list of `ask`. An operation that ends its guest is not measured, and
/// the others are all the same: the VM is started again without it.
///
/// # Errors
/// [`CalibrateError`], if no guest begins at all.
pub fn calibrate(
    ask: &CalibrationRequest,
    qemu: &Qemu,
    cancel: &Cancel,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<Calibration, CalibrateError> {
    let owner = Owner::current("calibrate")?;
    let folder = owner::runtime_dir(&owner)?;
    let kernel = folder.path().join("vmlab-thin");
    std::fs::write(&kernel, thin::program(ask.vm.arch)?)
        .map_err(|source| CalibrateError::Write { path: kernel.clone(), source })?;
    let quick = ask.is_quick(qemu);
    let tracing = ask.counts_reasons().then(|| Tracing::new(&owner)).transpose()?;
    let mut list = List::new(&ask.items);
    for boot in 1..=ask.boots {
        observe(Progress::Boot(boot, ask.boots));
        let mut left: Vec<Item> = list.possible();
        while !left.is_empty() {
            let launch = launch(ask, qemu, &owner, folder.path(), &kernel, (&left, quick))?;
            let failure = match ThinVm::start(&launch, cancel) {
                Ok(mut vm) => {
                    let count = |tracing: &Tracing| tracing.count(vm.vcpu_tids());
                    let _counted = tracing.as_ref().map(count).transpose()?;
                    let ended = one_vm(ask, &mut vm, &mut left, &mut list, cancel, observe);
                    if ended.is_ok() {
                        vm.shutdown();
                    }
                    ended.err()
                }
                Err(failure) => Some(failure.into()),
            };
            match failure {
                None => break,
                Some(ThinFailure::Vm(GuestFailure::Cancelled(cancelled))) => {
                    return Err(cancelled.into());
                }
                // Without a beginning nothing else would begin either.
                Some(failure) if list.hello.is_none() => {
                    return Err(CalibrateError::Guest(failure));
                }
                // All is measured; how the guest went is no price.
                Some(failure) if left.is_empty() => {
                    list.end = Some(failure.to_string());
                    break;
                }
                Some(failure) => {
                    // What was due is what ended it.
                    let ended = left.remove(0);
                    list.fail(ended.operation, failure.to_string());
                    list.hung(ended.operation, &failure);
                }
            }
        }
    }
    Ok(list.calibration(ask, qemu))
}

fn launch(
    ask: &CalibrationRequest,
    qemu: &Qemu,
    owner: &Owner,
    folder: &std::path::Path,
    kernel: &std::path::Path,
    (items, quick): (&[Item], bool),
) -> Result<ThinLaunch, CalibrateError> {
    let channels =
        SerialChannels { qmp_socket: folder.join("qmp"), serial_socket: folder.join("serial") };
    let spec = ask.spec(kernel.to_owned(), items, quick)?;
    Ok(ThinLaunch {
        qemu: qemu.path.clone(),
        args: emit_serial(&spec, &channels, &qemu.capabilities).args,
        channels,
        env: owner.env().to_vec(),
        items: items.to_vec(),
        start_limit: guest::START_LIMIT,
    })
}

/// One VM to its end; what it measured is taken from `left`.
fn one_vm(
    ask: &CalibrationRequest,
    vm: &mut ThinVm,
    left: &mut Vec<Item>,
    list: &mut List,
    cancel: &Cancel,
    observe: &mut dyn FnMut(Progress<'_>),
) -> Result<(), ThinFailure> {
    let mut begun = false;
    let mut before = BTreeMap::new();
    let mut counted = BTreeMap::new();
    loop {
        let due = left.first().filter(|_| begun);
        if let Some(item) = due {
            observe(Progress::Operation(item.operation.name()));
        }
        match next(ask, vm, due, cancel)? {
            ThinMessage::Hello(hello) => {
                begun = true;
                list.hello.get_or_insert(hello);
            }
            ThinMessage::Ready(_) => {
                before = kvm_stats(vm, cancel)?;
                vm.go();
            }
            ThinMessage::Taken => {
                let after = kvm_stats(vm, cancel)?;
                counted = difference(&before, &after);
                vm.go();
            }
            ThinMessage::Done(done) => {
                left.remove(0);
                list.add(&done, ask.has_mean(), std::mem::take(&mut counted));
            }
            ThinMessage::Skipped(operation, why) => {
                left.remove(0);
                list.fail(operation, skipped(why).to_owned());
            }
            ThinMessage::Bye => return Ok(()),
        }
    }
}

/// What the guest says next. One that is stuck is not waited for: some KVMs execute an
/// instruction for ever. Its vCPUs run then, and no register changes, while of an operation
/// that is slow some counter always does.
fn next(
    ask: &CalibrationRequest,
    vm: &mut ThinVm,
    due: Option<&Item>,
    cancel: &Cancel,
) -> Result<ThinMessage, ThinFailure> {
    let limit = ask.limit(due);
    // Firmware is not looked at; who looks at an emulated vCPU whose instructions are
    // counted would hold it up.
    if due.is_none() || ask.environment == Environment::Tcg {
        return vm.next(limit, cancel);
    }
    let threads =
        VmThreads { pid: vm.pid(), vcpu_tids: vm.vcpu_tids().to_vec(), ..VmThreads::default() };
    let run_s = || read_vm(&threads).get("vcpu.run_s").unwrap_or_default();
    let until = Instant::now() + limit;
    let mut before: Option<(String, f64)> = None;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if let Some(told) = vm.next_within(left.min(LOOK), cancel)? {
            return Ok(told);
        }
        if left.is_zero() {
            return Err(vm.silent(limit, cancel));
        }
        let (registers, run_s) = (vm.registers(cancel), run_s());
        match &before {
            Some((same, since)) if *same == registers => {
                if !registers.is_empty() && run_s - since >= STUCK_RUN_S {
                    return Err(ThinFailure::Stuck { operation: vm.operation(), registers });
                }
            }
            _ => before = Some((registers, run_s)),
        }
    }
}

fn kvm_stats(vm: &mut ThinVm, cancel: &Cancel) -> Result<BTreeMap<String, f64>, GuestFailure> {
    let stats = vm.query_stats(cancel)?;
    // QEMU before 7.1 has none.
    Ok(if stats.is_empty() { host::counters::kvm::read_debugfs(vm.pid()) } else { stats })
}

fn difference(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> BTreeMap<String, f64> {
    let gone = |(name, after): (&String, &f64)| {
        let count = after - before.get(name).copied().unwrap_or(0.0);
        (count > 0.0).then(|| (name.clone(), count))
    };
    after.iter().filter_map(gone).collect()
}

/// Why an operation was not measured, in words.
pub(crate) fn skipped(why: Skip) -> &'static str {
    match why {
        Skip::TooFewVcpus => "the VM has too few vCPUs",
        Skip::NotExposed => "the guest is not offered it",
        Skip::Faulted => "the instruction raised an exception",
        Skip::NoDevice => "the machine has no such device",
        Skip::NoMemory => "the VM has too little memory",
        Skip::NoAnswer => "it did not come to an end",
        Skip::Wrong => "it did not do what it should",
        Skip::OtherArch => "this architecture has no such thing",
    }
}

/// The prices under way.
struct List {
    prices: Vec<(Operation, Price)>,
    items: Vec<Item>,
    hello: Option<Hello>,
    /// How the guest failed behind its last price.
    end: Option<String>,
}

impl List {
    fn new(items: &[Item]) -> Self {
        let price = |item: &Item| {
            let Item { operation, n, batch, .. } = *item;
            let (name, summary) = (operation.name().to_owned(), operation.summary().to_owned());
            (
                operation,
                Price {
                    operation: name,
                    summary,
                    n,
                    batch,
                    boots: Vec::new(),
                    missing: None,
                    registers: None,
                    found: None,
                },
            )
        };
        Self {
            prices: items.iter().map(price).collect(),
            items: items.to_vec(),
            hello: None,
            end: None,
        }
    }

    /// What did not fail in an earlier boot.
    fn possible(&self) -> Vec<Item> {
        let all = self.items.iter().zip(&self.prices);
        all.filter(|(_, (_, price))| price.missing.is_none()).map(|(item, _)| *item).collect()
    }

    fn of(&mut self, operation: Operation) -> Option<&mut Price> {
        self.prices.iter_mut().find(|(known, _)| *known == operation).map(|(_, price)| price)
    }

    fn fail(&mut self, operation: Operation, why: String) {
        if let Some(price) = self.of(operation) {
            price.missing = Some(why);
        }
    }

    /// Keeps where the vCPUs were, if the guest hung.
    fn hung(&mut self, operation: Operation, failure: &ThinFailure) {
        if let (Some(price), Some(registers)) = (self.of(operation), failure.registers()) {
            price.registers = Some(registers.to_owned());
        }
    }

    fn add(&mut self, done: &Measurement, has_mean: bool, kvm: BTreeMap<String, f64>) {
        let each = |cycles: u64| cycles as f64 / f64::from(done.batch);
        let boot = BootPrice {
            min: each(done.min),
            median: each(done.median),
            p99: each(done.p99),
            mean: has_mean
                .then(|| done.sum as f64 / f64::from(done.n.max(1)) / f64::from(done.batch)),
            ipis: done.ipis,
            hlts: done.hlts,
            kvm,
        };
        if let Some(price) = self.of(done.operation) {
            price.boots.push(boot);
        }
    }

    fn calibration(self, ask: &CalibrationRequest, qemu: &Qemu) -> Calibration {
        let count = ask.count();
        // Neither the host's kernel nor its processor executes an emulated VM.
        let here = ask.environment != Environment::Tcg;
        let missing = self.hello.filter(|hello| hello.started < hello.vcpus);
        let notes = missing.map(|Hello { started, vcpus, .. }| {
            format!("only {started} of {vcpus} vCPUs were started; the guest knows no more")
        });
        let timer = self.hello.and_then(|hello| hello.timer_irq).filter(|timer| !timer.is_told);
        let timer = timer.map(|TimerIrq { number, .. }| {
            format!(
                "neither a device tree nor ACPI's GTDT names the virtual timer's interrupt: \
                 the guest took {number}, the architecture's"
            )
        });
        let no_reasons = (ask.as_in_trials && !ask.counts_reasons())
            .then(|| "exits were not counted by reason, as an emulator has none".to_owned());
        let ended = self.end.map(|why| format!("behind its last price the guest failed: {why}"));
        let (apic, tsc_khz) =
            self.hello.map_or((Apic::Xapic, 0), |hello| (hello.apic, hello.tsc_khz));
        Calibration {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            environment: ask.environment,
            count,
            kernel: ask.kernel.clone().filter(|_| here),
            cpu_model: ask.cpu_model.clone().filter(|_| here),
            // An emulated host's is the replica's, whoever starts it.
            hostname: ask.hostname.clone().filter(|_| ask.environment == Environment::Kvm),
            host_settings: if here { ask.host_settings.clone() } else { BTreeMap::new() },
            qemu: qemu.version_text.clone(),
            arch: ask.vm.arch.name().to_owned(),
            machine: ask.vm.machine.clone(),
            vcpu_model: ask.vm.cpu_model.clone(),
            vcpus: ask.vm.vcpus(),
            apic: apic.name().to_owned(),
            tsc_khz: if count == Count::Cycles { tsc_khz } else { 0 },
            exits_by_reason: ask.counts_reasons(),
            notes: [notes, timer, no_reasons, ended].into_iter().flatten().collect(),
            prices: self.prices.into_iter().map(|(_, price)| price).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use suite::{Tier, needs, skip};
    use vmconfig::Accel;

    use super::*;

    /// As some KVMs execute a hypercall; here the guest itself executes one jump for ever.
    #[test]
    fn a_guest_that_is_stuck_is_told_from_a_slow_one() {
        let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
        let (Ok(qemu), Ok(_)) =
            (guest::qemu::find_emulator(Arch::X86_64), thin::program(Arch::X86_64))
        else {
            skip("there is no QEMU for x86-64, or no thin guest");
            return;
        };
        let boot = BootSource::Kernel { kernel: "vmlab-thin".into(), initrd: None };
        let ask = CalibrationRequest {
            vm: VmSettings::new("thin", Arch::X86_64, Accel::Tcg, boot),
            items: vec![Item::new(Operation::Cpuid, 10, 1)],
            apic: None,
            boots: 1,
            // QEMU's emulation, looked at as KVM is.
            environment: Environment::Kvm,
            as_in_trials: false,
            kernel: None,
            cpu_model: None,
            hostname: None,
            host_settings: BTreeMap::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("vmlab-thin");
        std::fs::write(&kernel, thin::program(Arch::X86_64).unwrap()).unwrap();
        let owner = Owner::current("test").unwrap();
        let mut launch =
            launch(&ask, &qemu, &owner, folder.path(), &kernel, (&ask.items, false)).unwrap();
        let plan = launch.args.iter_mut().find(|arg| arg.starts_with("vmlab-thin=1")).unwrap();
        plan.push_str(" provoke=spin");
        let cancel = Cancel::new();
        let mut vm = ThinVm::start(&launch, &cancel).unwrap();
        let (mut left, mut list) = (ask.items.clone(), List::new(&ask.items));
        let failure =
            one_vm(&ask, &mut vm, &mut left, &mut list, &cancel, &mut |_| {}).unwrap_err();
        assert!(
            failure.to_string().starts_with(
                "The thin guest does not get past an instruction in cpuid: CPU#0 RIP="
            ),
            "{failure}"
        );
        // In the list lie the registers of each vCPU.
        list.hung(Operation::Cpuid, &failure);
        let registers = list.prices[0].1.registers.as_deref().unwrap_or_default();
        assert!(registers.contains("RSP=") && registers.contains("CPU#0"), "{registers}");
        vm.shutdown();
    }
}
