//! A VM whose guest is the thin one: it is given a plan, and answers with records.
//!
//! What comes over the serial line was written by a guest: a line that is cut, a
//! checksum that is wrong, a number that was left out and a line without end are
//! failures, each with its name, and nothing is waited for without a limit.

mod esp;

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use thinguest::{
    BadPlan, BadRecord, Fault, Hello, Item, Measurement, Operation, Record, Skip, read_record,
};
use vmconfig::Arch;
use vmconfig::qemu::SerialChannels;

use super::channel::{AgentLine, Channel, ChannelBudget};
use super::evidence::places;
use super::process::QemuProcess;
use super::protocol::{self, QmpMessage, QmpRefusal};
use super::{QMP_BUDGET, QMP_LIMIT, QUIT_LIMIT, accept_all, listen, silent_monitor};
use crate::cancel::CANCEL_CHECK;
use crate::{Cancel, Cancellation, GuestFailure};

/// Names a file that is booted instead of the thin guest that vmlab carries.
pub const FILE_VARIABLE: &str = "VMLAB_THINGUEST";

/// The programs, as `scripts/build-thinguest` made them before vmlab was built; empty
/// if it had not.
static FOR_X86_64: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/x86_64-vmlab-thin"));
static FOR_AARCH64: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aarch64-vmlab-thin"));
/// What brings them up on UEFI firmware.
static LOADER_X86_64: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/x86_64-vmlab-thin.efi"));
static LOADER_AARCH64: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aarch64-vmlab-thin.efi"));

/// Their functions, in the form of `/proc/kallsyms`.
static SYMBOLS_X86_64: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/x86_64-vmlab-thin.symbols"));
static SYMBOLS_AARCH64: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/aarch64-vmlab-thin.symbols"));

/// All that a guest may say: some thousand records.
const SERIAL_BUDGET: ChannelBudget =
    ChannelBudget { line_bytes: thinguest::LINE_BYTES, total_bytes: 1 << 20 };

/// What the guest sends between its samples and their record.
const END_MARK: &str = "!";

/// How long QEMU's reason is waited for, and how often it is looked for.
const REASON_LIMIT: Duration = Duration::from_secs(1);
const REASON_CHECK: Duration = Duration::from_millis(10);

/// How much of a line that is no record is shown.
const SHOWN_CHARS: usize = 120;

/// The thin guest's program.
///
/// # Errors
/// If vmlab was built without it, or the file that [`FILE_VARIABLE`] names can't be
/// read or is nothing that QEMU boots on this architecture.
pub fn program(arch: Arch) -> Result<Vec<u8>, NoProgram> {
    if let Some(path) = std::env::var_os(FILE_VARIABLE).map(PathBuf::from) {
        return match std::fs::read(&path) {
            Err(source) => Err(NoProgram::Unreadable { path, source }),
            Ok(program) if !is_kernel(arch, &program) => Err(NoProgram::NoKernel { path, arch }),
            Ok(program) => Ok(program),
        };
    }
    let carried = match arch {
        Arch::X86_64 => FOR_X86_64,
        Arch::Aarch64 => FOR_AARCH64,
    };
    if carried.is_empty() { Err(NoProgram::NotCarried) } else { Ok(carried.to_vec()) }
}

/// True if the file begins as one that QEMU boots by `-kernel`: an ELF program on x86-64
/// (PVH), an `Image` on arm64 (Documentation/arch/arm64/booting.rst).
fn is_kernel(arch: Arch, program: &[u8]) -> bool {
    match arch {
        Arch::X86_64 => program.starts_with(b"\x7fELF"),
        Arch::Aarch64 => program.get(56..60) == Some(b"ARM\x64"),
    }
}

/// The program's functions in the form of Linux's `/proc/kallsyms`, which the program itself
/// does not hold; of the file that [`FILE_VARIABLE`] names what lies beside it, with
/// `.symbols` behind its name. Empty if nothing does.
///
/// # Errors
/// If what lies beside it can't be read.
pub fn symbols(arch: Arch) -> Result<Vec<u8>, NoProgram> {
    if let Some(mut path) = std::env::var_os(FILE_VARIABLE) {
        path.push(".symbols");
        let path = PathBuf::from(path);
        return match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(|source| NoProgram::Unreadable { path, source }),
        };
    }
    let carried = match arch {
        Arch::X86_64 => SYMBOLS_X86_64,
        Arch::Aarch64 => SYMBOLS_AARCH64,
    };
    Ok(carried.to_vec())
}

/// A disk from which UEFI firmware boots the thin guest with this plan: 4 MiB.
///
/// # Errors
/// If vmlab was built without it, or the plan is longer than the guest takes.
pub fn uefi_disk(arch: Arch, plan: &str) -> Result<Vec<u8>, NoProgram> {
    /// The guest's buffer, less the end of the text.
    const PLAN_BYTES: usize = 4095;
    if plan.len() > PLAN_BYTES {
        return Err(NoProgram::LongPlan { bytes: plan.len() });
    }
    let loader = match arch {
        Arch::X86_64 => LOADER_X86_64,
        Arch::Aarch64 => LOADER_AARCH64,
    };
    if loader.is_empty() { Err(NoProgram::NotCarried) } else { Ok(esp::disk(arch, loader, plan)) }
}

/// True if the file is such a disk, of this or another plan.
///
/// # Errors
/// If it can't be read.
pub fn is_uefi_disk(path: &std::path::Path) -> std::io::Result<bool> {
    use std::io::Read as _;
    let mut begin = Vec::new();
    std::fs::File::open(path)?.take(64).read_to_end(&mut begin)?;
    Ok(esp::begins(&begin))
}

/// Error type for [`program`].
#[derive(Debug, thiserror::Error)]
pub enum NoProgram {
    /// It was not there when vmlab was built.
    #[error(
        "This vmlab was built without the thin guest: `make build` builds both, or name its file in {FILE_VARIABLE}"
    )]
    NotCarried,
    /// A plan that the guest has no room for.
    #[error("The plan has {bytes} bytes: the thin guest takes 4095")]
    LongPlan {
        /// Its length.
        bytes: usize,
    },
    /// The file that was named.
    #[error("Cannot read {path:?}, which {FILE_VARIABLE} names")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file that was named is another thing, or empty.
    #[error("{path:?}, which {FILE_VARIABLE} names, is no thin guest of {arch}")]
    NoKernel {
        /// The file.
        path: PathBuf,
        /// What it should be for.
        arch: Arch,
    },
    /// The cache takes no file.
    #[error("Cannot write {path:?}")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The thin guest as a file in vmlab's cache, named by what it holds: what a plan can
/// boot again.
///
/// # Errors
/// [`NoProgram`].
pub fn file(arch: Arch) -> Result<PathBuf, NoProgram> {
    let program = program(arch)?;
    let folder = crate::image::cache_dir().join("thin");
    let name = format!("vmlab-thin-{}", &blake3::hash(&program).to_hex()[..12]);
    let path = folder.join(&name);
    if path.exists() {
        return Ok(path);
    }
    let unwritable = |source| NoProgram::Unwritable { path: path.clone(), source };
    std::fs::create_dir_all(&folder).map_err(unwritable)?;
    let part = folder.join(format!(".{name}-{}", std::process::id()));
    std::fs::write(&part, program).map_err(unwritable)?;
    std::fs::rename(&part, &path).map_err(unwritable)?;
    Ok(path)
}

/// What is needed to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinLaunch {
    /// QEMU's program.
    pub qemu: PathBuf,
    /// Its arguments, as `vmconfig::qemu::emit_serial` makes them for `channels`.
    pub args: Vec<String>,
    /// Where vmlab and QEMU meet; paths are shorter than 108 bytes.
    pub channels: SerialChannels,
    /// Environment beside vmlab's own: the owner's mark.
    pub env: Vec<(String, String)>,
    /// What the plan on its command line asks for.
    pub items: Vec<Item>,
    /// As [`crate::Launch::start_limit`].
    pub start_limit: Duration,
}

/// What the guest says next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinMessage {
    /// It is there.
    Hello(Hello),
    /// The operation is warm; the samples begin with [`ThinVm::go`].
    Ready(Operation),
    /// The samples are taken; the record follows [`ThinVm::go`].
    Taken,
    /// The record.
    Done(Measurement),
    /// The operation was not measured.
    Skipped(Operation, Skip),
    /// All was done.
    Bye,
}

/// Why there is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThinFailure {
    /// QEMU, or the VM as a whole.
    #[error(transparent)]
    Vm(GuestFailure),
    /// Nothing came in time.
    #[error(
        "The thin guest said nothing for {} s{}{}",
        limit.as_secs(),
        during(*operation),
        at(registers)
    )]
    Silent {
        /// What it was at, if it had begun.
        operation: Option<Operation>,
        /// How long it was waited for.
        limit: Duration,
        /// The vCPUs' registers then, as QEMU's monitor prints them; empty if it
        /// does not answer.
        registers: String,
    },
    /// Its vCPUs run, and none gets anywhere.
    #[error("The thin guest does not get past an instruction{}{}", during(*operation), at(registers))]
    Stuck {
        /// See [`Self::Silent`].
        operation: Option<Operation>,
        /// See [`Self::Silent`].
        registers: String,
    },
    /// A line that is no record, or not the next one.
    #[error("The serial line can't be believed: {why}: {line:?}")]
    Lie {
        /// The line, cut.
        line: String,
        /// What is wrong with it.
        why: Lie,
    },
    /// More than any guest has to say.
    #[error("The thin guest wrote more than {limit_bytes} bytes to its serial line")]
    Flooded {
        /// The budget.
        limit_bytes: u64,
    },
    /// An exception in the guest.
    #[error("The thin guest ended with {}{}", fault_text(fault), during(*operation))]
    Fault {
        /// What it was at.
        operation: Option<Operation>,
        /// The exception.
        fault: Fault,
    },
    /// The guest's own program failed.
    #[error("The thin guest's own program failed{}", during(*operation))]
    Panicked {
        /// What it was at.
        operation: Option<Operation>,
    },
    /// The guest did not take its plan.
    #[error("The thin guest refused its plan: {}", why.name())]
    Refused {
        /// Why.
        why: BadPlan,
    },
}

impl ThinFailure {
    /// The registers of all vCPUs of a guest that hangs, as QEMU's monitor prints them; none
    /// if it did not answer, and of other failures.
    #[must_use]
    pub fn registers(&self) -> Option<&str> {
        match self {
            Self::Silent { registers, .. } | Self::Stuck { registers, .. } => {
                Some(registers.trim_end()).filter(|text| !text.is_empty())
            }
            _ => None,
        }
    }
}

impl From<GuestFailure> for ThinFailure {
    fn from(failure: GuestFailure) -> Self {
        Self::Vm(failure)
    }
}

impl From<Cancellation> for ThinFailure {
    fn from(cancelled: Cancellation) -> Self {
        Self::Vm(cancelled.into())
    }
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// It can't be read.
    Bad(BadRecord),
    /// A record of another number was due.
    OutOfOrder {
        /// The one that was.
        due: u32,
    },
    /// It is about something that was not asked for, or not yet.
    NotAsked,
    /// It is longer than any record.
    TooLong,
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(bad) => bad.fmt(f),
            Self::OutOfOrder { due } => write!(f, "record {due} was due"),
            Self::NotAsked => f.write_str("it answers what was not asked"),
            Self::TooLong => f.write_str("it is longer than any record"),
        }
    }
}

fn during(operation: Option<Operation>) -> String {
    operation.map(|operation| format!(" in {}", operation.name())).unwrap_or_default()
}

/// Where the first vCPUs are, of what QEMU's monitor printed.
fn at(registers: &str) -> String {
    const TOLD_VCPUS: usize = 4;
    let mut vcpus = places(registers);
    let others = vcpus.len().saturating_sub(TOLD_VCPUS);
    vcpus.truncate(TOLD_VCPUS);
    let more = if others > 0 { format!(" and {others} more") } else { String::new() };
    if vcpus.is_empty() { String::new() } else { format!(": {}{more}", vcpus.join(", ")) }
}

/// The exception in the words of the processors' manuals.
fn fault_text(fault: &Fault) -> String {
    let name = match fault.vector {
        0 => "a divide error (#DE)",
        1 => "a debug exception (#DB)",
        2 => "an NMI",
        3 => "a breakpoint (#BP)",
        6 => "an invalid opcode (#UD)",
        8 => "a double fault (#DF)",
        12 => "a stack fault (#SS)",
        13 => "a general protection fault (#GP)",
        14 => "a page fault (#PF)",
        Fault::SERROR => "an SError",
        // Arm DDI 0487, ESR_EL1.EC.
        64 => "an unknown instruction",
        78 => "an illegal execution state",
        96 | 97 => "an instruction abort",
        98 => "a misaligned PC",
        100 | 101 => "a data abort",
        102 => "a misaligned SP",
        124 => "a breakpoint",
        _ => "an exception",
    };
    let Fault { vector, code, rip, rsp, cr2, vcpu } = fault;
    let is_page = [14, 96, 97, 100, 101].contains(vector);
    let address = if is_page { format!(", address {cr2:#x}") } else { String::new() };
    if *vector >= Fault::SYNCHRONOUS {
        return format!("{name} on vCPU {vcpu} (ESR {code:#x}, PC {rip:#x}, SP {rsp:#x}{address})");
    }
    format!(
        "{name} on vCPU {vcpu} (vector {vector}, code {code}, rip {rip:#x}, rsp {rsp:#x}{address})"
    )
}

/// Why KVM gave a guest up, among all that QEMU printed: warnings and registers too.
///
/// Source: QEMU `accel/kvm/kvm-all.c` (`kvm_cpu_exec`, `kvm_handle_internal_error`),
/// `target/i386/kvm/kvm.c` (`kvm_arch_handle_exit`), `target/arm/kvm.c`.
fn why_kvm_gave_up(printed: &str) -> Option<String> {
    const REASONS: [&str; 6] = [
        "KVM internal error",
        "emulation failure",
        "KVM: entry failed",
        "KVM: unknown exit",
        "kvm run failed",
        "Failed to inject",
    ];
    let is_reason = |line: &&str| REASONS.iter().any(|reason| line.contains(reason));
    let found: Vec<&str> = printed.lines().map(str::trim).filter(is_reason).take(2).collect();
    (!found.is_empty()).then(|| found.join("; "))
}

/// A running thin guest. QEMU is killed when it is dropped.
#[derive(Debug)]
pub struct ThinVm {
    process: QemuProcess,
    started: Instant,
    vcpu_tids: Vec<u32>,
    qmp: Channel,
    serial: Channel,
    qmp_answer: Option<(u64, Result<Value, QmpRefusal>)>,
    qmp_id: u64,
    /// The number of the next record.
    due: u32,
    /// What is asked for, and how many of those were answered.
    items: Vec<Item>,
    answered: usize,
    /// QEMU is gone; what it had sent is still read.
    ended: bool,
    /// QEMU says that the vCPUs can't go on.
    internal_error: bool,
}

impl ThinVm {
    /// Starts QEMU, waits for its monitor and learns which threads the vCPUs are; then
    /// the guest begins.
    ///
    /// It is held until then (`-S`): where a guest ends while its monitor is asked, QEMU
    /// 7.2 sleeps in `monitor_cleanup()` for good, as what takes the request was woken in
    /// a place that this function looks at no more. A thin guest may end in its first
    /// milliseconds.
    ///
    /// # Errors
    /// [`GuestFailure::Refused`] with what QEMU printed, or
    /// [`GuestFailure::Cancelled`].
    pub fn start(launch: &ThinLaunch, cancel: &Cancel) -> Result<Self, GuestFailure> {
        let refused = |detail: String| GuestFailure::Refused { detail };
        let paths = [&launch.channels.qmp_socket, &launch.channels.serial_socket];
        let [qmp, serial] = paths.map(|path| listen(path).map_err(refused));
        let listeners = [qmp?, serial?];
        let started = Instant::now();
        let args = [launch.args.as_slice(), &["-S".to_owned()]].concat();
        let mut process = QemuProcess::spawn(&launch.qemu, &args, &launch.env)
            .map_err(|error| refused(format!("cannot run {:?}: {error}", launch.qemu)))?;
        let sockets = accept_all(&listeners, &mut process, launch.start_limit, cancel);
        for path in paths {
            // They are connected or of no more use.
            let _ = std::fs::remove_file(path);
        }
        let [qmp, serial] = sockets?;
        let channel = |socket, budget| {
            Channel::new(socket, budget).map_err(|error| refused(format!("a socket: {error}")))
        };
        let mut vm = Self {
            process,
            started,
            vcpu_tids: Vec::new(),
            qmp: channel(qmp, QMP_BUDGET)?,
            serial: channel(serial, SERIAL_BUDGET)?,
            qmp_answer: None,
            qmp_id: 0,
            due: 0,
            items: launch.items.clone(),
            answered: 0,
            ended: false,
            internal_error: false,
        };
        let until = started + launch.start_limit;
        for command in ["qmp_capabilities", "query-cpus-fast", "cont"] {
            let said = match vm.ask(command, None, until, cancel)? {
                Some(Ok(said)) => said,
                Some(Err(refusal)) => return Err(refused(refusal.desc)),
                None if vm.ended => return Err(vm.how_it_ended()),
                None => return Err(silent_monitor(launch.start_limit)),
            };
            if command == "query-cpus-fast" {
                vm.vcpu_tids = protocol::vcpu_threads(said).ok_or_else(|| {
                    refused("its monitor does not tell the vCPUs' threads".to_owned())
                })?;
            }
        }
        Ok(vm)
    }

    /// The vCPUs' threads, by vCPU index.
    #[must_use]
    pub fn vcpu_tids(&self) -> &[u32] {
        &self.vcpu_tids
    }

    /// When QEMU was started.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The last of what QEMU itself printed.
    #[must_use]
    pub fn printed(&mut self) -> String {
        self.process.printed()
    }

    /// Asks for more, of a guest whose plan says `orders=on` and that has answered all
    /// before.
    pub fn order(&mut self, items: &[Item]) {
        let list: Vec<String> = items.iter().map(Item::to_string).collect();
        self.serial.send(format!("{}\n", list.join(",")).as_bytes());
        self.items.extend(items);
    }

    /// QEMU's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Lets the guest go on.
    pub fn go(&mut self) {
        self.serial.send(b"g");
    }

    /// What the guest says next, at most `limit` from now.
    ///
    /// # Errors
    /// [`ThinFailure`]. All are final.
    pub fn next(&mut self, limit: Duration, cancel: &Cancel) -> Result<ThinMessage, ThinFailure> {
        match self.next_within(limit, cancel)? {
            Some(told) => Ok(told),
            None => Err(self.silent(limit, cancel)),
        }
    }

    /// That nothing came within `limit`, with what can be told about it.
    pub fn silent(&mut self, limit: Duration, cancel: &Cancel) -> ThinFailure {
        let (operation, registers) = (self.operation(), self.registers(cancel));
        ThinFailure::Silent { operation, limit, registers }
    }

    /// What the guest says next, if it does within `limit` from now.
    ///
    /// # Errors
    /// [`ThinFailure`]. All are final.
    pub fn next_within(
        &mut self,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<Option<ThinMessage>, ThinFailure> {
        let until = Instant::now() + limit;
        loop {
            while let Some(line) = self.serial.next_line() {
                if let Some(told) = self.understand(&line)? {
                    return Ok(Some(told));
                }
            }
            if let Some(budget) = self.serial.overrun() {
                return Err(ThinFailure::Flooded { limit_bytes: budget.total_bytes });
            }
            if self.ended || self.internal_error {
                return Err(self.how_it_ended().into());
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            self.pump(until, cancel)?;
        }
    }

    /// The accelerator's counters, as [`super::OwnedVm::query_stats`] has them.
    ///
    /// # Errors
    /// Only the failures of the VM itself.
    pub fn query_stats(&mut self, cancel: &Cancel) -> Result<BTreeMap<String, f64>, GuestFailure> {
        let mut sums = BTreeMap::new();
        for target in ["vm", "vcpu"] {
            let until = Instant::now() + QMP_LIMIT;
            let arguments = json!({ "target": target });
            let Some(Ok(answer)) = self.ask("query-stats", Some(arguments), until, cancel)? else {
                return Ok(BTreeMap::new());
            };
            protocol::add_stats(answer, &mut sums);
        }
        Ok(sums)
    }

    /// Ends QEMU: asked to quit, killed if it does not within 2 s.
    pub fn shutdown(mut self) {
        self.qmp.send(&protocol::request("quit", None, None));
        let until = Instant::now() + QUIT_LIMIT;
        if !matches!(self.process.wait_until(until), Ok(Some(_))) {
            self.process.kill();
        }
    }

    /// What a line means; none if it is firmware's, before the guest began.
    fn understand(&mut self, line: &AgentLine) -> Result<Option<ThinMessage>, ThinFailure> {
        let AgentLine::Text(bytes) = line else {
            return Err(ThinFailure::Lie { line: String::new(), why: Lie::TooLong });
        };
        let text = String::from_utf8_lossy(bytes);
        if text.trim_end() == END_MARK && self.operation().is_some() {
            return Ok(Some(ThinMessage::Taken));
        }
        let lie = |why| {
            let line = text.chars().take(SHOWN_CHARS).collect();
            ThinFailure::Lie { line, why }
        };
        let (seq, record) = match read_record(&text) {
            Ok(read) => read,
            Err(BadRecord::NoRecord) if self.due == 0 => return Ok(None),
            Err(bad) => return Err(lie(Lie::Bad(bad))),
        };
        let first = matches!(
            record,
            Record::Hello(_) | Record::Refused(_) | Record::Fault(_) | Record::Panic
        );
        if seq != self.due || (seq == 0) && !first {
            return Err(lie(Lie::OutOfOrder { due: self.due }));
        }
        self.due += 1;
        let operation = self.operation();
        let due = self.items.get(self.answered).copied();
        let is_due = match record {
            Record::Done(done) => due.is_some_and(|item| {
                let Item { operation, n, warmup, batch, .. } = item;
                (operation, n, warmup, batch) == (done.operation, done.n, done.warmup, done.batch)
            }),
            Record::Ready(named) | Record::Skipped(named, _) => {
                due.is_some_and(|item| item.operation == named)
            }
            Record::Bye => due.is_none(),
            _ => true,
        };
        if !is_due {
            return Err(lie(Lie::NotAsked));
        }
        Ok(Some(match record {
            Record::Hello(hello) => ThinMessage::Hello(hello),
            Record::Ready(operation) => ThinMessage::Ready(operation),
            Record::Done(done) => {
                self.answered += 1;
                ThinMessage::Done(done)
            }
            Record::Skipped(operation, why) => {
                self.answered += 1;
                ThinMessage::Skipped(operation, why)
            }
            Record::Bye => ThinMessage::Bye,
            Record::Refused(why) => return Err(ThinFailure::Refused { why }),
            Record::Fault(fault) => return Err(ThinFailure::Fault { operation, fault }),
            Record::Panic => return Err(ThinFailure::Panicked { operation }),
        }))
    }

    /// What the guest is at: the first that it was asked for and has not answered.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        let begun = self.due > 0;
        self.items.get(self.answered).filter(|_| begun).map(|item| item.operation)
    }

    /// The vCPUs' registers, as QEMU's monitor prints them; empty if it does not answer.
    pub fn registers(&mut self, cancel: &Cancel) -> String {
        let until = Instant::now() + QMP_LIMIT;
        let arguments = json!({ "command-line": "info registers -a" });
        let answer = self.ask("human-monitor-command", Some(arguments), until, cancel);
        let text = answer.ok().flatten().and_then(Result::ok);
        text.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// One request to the monitor; `None` if there is no answer by `until` or QEMU
    /// is gone.
    fn ask(
        &mut self,
        command: &str,
        arguments: Option<Value>,
        until: Instant,
        cancel: &Cancel,
    ) -> Result<Option<Result<Value, QmpRefusal>>, GuestFailure> {
        self.qmp_id += 1;
        let id = self.qmp_id;
        self.qmp.send(&protocol::request(command, arguments, Some(id)));
        loop {
            if let Some((answered, result)) = self.qmp_answer.take()
                && answered == id
            {
                return Ok(Some(result));
            }
            if self.ended || Instant::now() >= until {
                return Ok(None);
            }
            self.pump(until, cancel)?;
        }
    }

    /// Waits until something happens, at most until `until` or the next look at
    /// `cancel`, and takes it in.
    fn pump(&mut self, until: Instant, cancel: &Cancel) -> Result<(), GuestFailure> {
        cancel.check()?;
        let wait = until.saturating_duration_since(Instant::now()).min(CANCEL_CHECK);
        {
            let mut polled = vec![PollFd::from_borrowed_fd(self.process.fd(), PollFlags::IN)];
            polled.extend([&self.qmp, &self.serial].into_iter().filter_map(|channel| {
                let mut wanted = PollFlags::empty();
                wanted.set(PollFlags::IN, channel.wants_to_read());
                wanted.set(PollFlags::OUT, channel.wants_to_send());
                (!wanted.is_empty()).then(|| PollFd::from_borrowed_fd(channel.fd(), wanted))
            }));
            let timeout = Timespec::try_from(wait).expect("a short time fits");
            // Whatever ended the wait, everything is looked at.
            let _ = rustix::event::poll(&mut polled, Some(&timeout));
        }
        // Before its sockets are read: what it sent last is then there.
        self.ended = matches!(self.process.wait_until(Instant::now()), Ok(Some(_)));
        for channel in [&mut self.qmp, &mut self.serial] {
            channel.flush();
            channel.fill();
        }
        while let Some(line) = self.qmp.next_line() {
            let AgentLine::Text(line) = line else { continue };
            match protocol::parse_qmp(&line) {
                Some(QmpMessage::Answer { id, result }) => self.qmp_answer = Some((id, result)),
                // KVM gave a vCPU up (KVM_EXIT_INTERNAL_ERROR and its like).
                Some(QmpMessage::Event { name, .. }) if name == "STOP" => {
                    self.internal_error = true;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn how_it_ended(&mut self) -> GuestFailure {
        if self.internal_error {
            // QEMU prints it before it says that the VM stopped, but on another line.
            let until = Instant::now() + REASON_LIMIT;
            let why = loop {
                match why_kvm_gave_up(&self.process.printed()) {
                    None if Instant::now() < until => {
                        let soon = Instant::now() + REASON_CHECK;
                        if matches!(self.process.wait_until(soon), Ok(Some(_))) {
                            break why_kvm_gave_up(&self.process.printed());
                        }
                    }
                    why => break why,
                }
            };
            let why = why.unwrap_or_else(|| "QEMU stopped the VM and said no reason".to_owned());
            return GuestFailure::Died { detail: format!("{why} (KVM gave the guest up)") };
        }
        let status = self.process.wait_until(Instant::now() + QUIT_LIMIT);
        self.process.failure(status.ok().flatten(), "its monitor did not answer")
    }
}

#[cfg(test)]
mod tests;
