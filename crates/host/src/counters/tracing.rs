//! Why vCPUs leave their guest, counted by the kernel: histogram triggers on
//! KVM's tracepoints, in a tracing instance of vmlab's own.
//!
//! Nothing is recorded and nothing is copied: the kernel adds one to a number
//! at each event of the trial's vCPU threads. The instance shares nothing with
//! what others trace. Its name carries its owner, `vmlab.<pid>.<start>`, so that
//! what a dead vmlab left is found without a register; no instance outlives a
//! boot.
//!
//! Source: Linux `Documentation/trace/histogram.rst`, `Documentation/trace/
//! ftrace.rst` (instances), `arch/x86/kvm/trace.h`, `arch/arm64/kvm/trace_arm.h`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use record::{ARM64_IRQ, CounterSet, ExitCodes};

use crate::owner::Owner;
use crate::proc;

/// Where tracefs is mounted, by preference.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Inode of the first PID namespace (Linux `PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

const PREFIX: &str = "vmlab.";

/// `isa` of KVM's tracepoints on x86.
const ISA_VMX: u64 = 1;

/// An event that is counted, and by which of its fields: the first row whose
/// fields this kernel's event has.
struct TraceEvent {
    name: &'static str,
    keys: &'static [&'static [&'static str]],
}

const EXIT: &str = "kvm_exit";

const EVENTS: &[TraceEvent] = &[
    TraceEvent { name: EXIT, keys: &[&["exit_reason", "isa"], &["ret", "esr_ec"]] },
    TraceEvent { name: "kvm_inj_virq", keys: &[&["vector"], &["irq"]] },
    TraceEvent { name: "kvm_apic_ipi", keys: &[&["icr_low"]] },
    TraceEvent { name: "kvm_msr", keys: &[&["ecx", "write"]] },
    TraceEvent { name: "kvm_hypercall", keys: &[&["nr"]] },
];

/// Error type for [`Tracing::new`] and [`Tracing::count`].
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    /// No tracefs.
    #[error("tracefs is not mounted: mount -t tracefs tracefs {}", ROOTS[0])]
    NotMounted,
    /// Thread ids mean something else to the kernel's tracing.
    #[error("vmlab runs in a PID namespace of its own, in which thread ids differ: run it outside")]
    PidNamespace,
    /// KVM has no tracepoints here.
    #[error("The kernel has no tracepoints of KVM: is the module kvm loaded?")]
    NoEvents,
    /// The kernel can't count by keys.
    #[error("The kernel has no histogram triggers: it needs CONFIG_HIST_TRIGGERS")]
    NoHistograms,
    /// The kernel or the rights of this user refuse.
    #[error("Cannot use {}: be root", .path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl TracingError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// A tracing instance of vmlab's own; removed on drop.
#[derive(Debug)]
pub struct Tracing {
    folder: PathBuf,
}

impl Tracing {
    /// Makes an instance that carries `owner`'s mark.
    ///
    /// # Errors
    /// [`TracingError`] says what is missing.
    pub fn new(owner: &Owner) -> Result<Self, TracingError> {
        if owner.pid_namespace.is_some_and(|found| found != FIRST_PID_NAMESPACE) {
            return Err(TracingError::PidNamespace);
        }
        let mut denied = None;
        for root in ROOTS {
            match fs::metadata(Path::new(root).join("instances")) {
                Ok(_) => return Self::new_in(Path::new(root), owner),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    denied = Some(TracingError::io(Path::new(root))(error));
                }
                Err(_) => {}
            }
        }
        Err(denied.unwrap_or(TracingError::NotMounted))
    }

    fn new_in(root: &Path, owner: &Owner) -> Result<Self, TracingError> {
        let exit = root.join("events/kvm").join(EXIT);
        if !exit.exists() {
            return Err(TracingError::NoEvents);
        }
        if !exit.join("hist").exists() {
            return Err(TracingError::NoHistograms);
        }
        let name = format!("{PREFIX}{}.{}", owner.pid, owner.starttime_ticks);
        let folder = root.join("instances").join(name);
        fs::create_dir(&folder).map_err(TracingError::io(&folder))?;
        let instance = Self { folder };
        // Nothing is recorded: the smallest buffer will do.
        drop(write(&instance.folder.join("buffer_size_kb"), "4"));
        Ok(instance)
    }

    /// Begins to count what the threads `vcpu_tids` do, which are all vCPUs of
    /// one VM.
    ///
    /// # Errors
    /// [`TracingError::Io`] where the kernel can't count exits.
    pub fn count(&self, vcpu_tids: &[u32]) -> Result<ExitCounter, TracingError> {
        let mut counter = ExitCounter { filter: filter(vcpu_tids), counted: Vec::new() };
        for event in EVENTS {
            let folder = self.folder.join("events/kvm").join(event.name);
            let Ok(format) = fs::read_to_string(folder.join("format")) else { continue };
            let has = |field: &&str| format.contains(&format!(" {field};"));
            let Some(keys) = event.keys.iter().find(|keys| keys.iter().all(has)) else { continue };
            let trigger = format!("hist:keys={} if {}", keys.join(","), counter.filter);
            let file = folder.join("trigger");
            match write(&file, &trigger) {
                Ok(()) => {
                    counter.counted.push(EventHistogram { event: event.name, folder, trigger });
                }
                // Without exits the others are not worth their price.
                Err(error) if event.name == EXIT => return Err(TracingError::io(&file)(error)),
                Err(_) => {}
            }
        }
        Ok(counter)
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // What stays behind is found as stale later.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Counts what the vCPUs of one VM do, until it is dropped.
#[derive(Debug)]
pub struct ExitCounter {
    filter: String,
    counted: Vec<EventHistogram>,
}

#[derive(Debug)]
struct EventHistogram {
    event: &'static str,
    folder: PathBuf,
    trigger: String,
}

impl ExitCounter {
    /// What was counted since the beginning: `kvm.exits.<reason>` and the other
    /// families. An event whose numbers are not whole is absent.
    #[must_use]
    pub fn read(&self) -> CounterSet {
        let mut all = CounterSet::default();
        for EventHistogram { event, folder, .. } in &self.counted {
            let text = fs::read_to_string(folder.join("hist")).unwrap_or_default();
            if let Some(rows) = parse_histogram(&text, &self.filter) {
                name_rows(event, &rows, &mut all);
            }
        }
        all
    }
}

impl Drop for ExitCounter {
    fn drop(&mut self) {
        for EventHistogram { folder, trigger, .. } in &self.counted {
            // Gone with its instance, if that is gone.
            let _ = write(&folder.join("trigger"), &format!("!{trigger}"));
        }
    }
}

/// A tracing instance whose owner is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleInstance {
    /// Its folder.
    pub path: PathBuf,
}

impl StaleInstance {
    /// Removes the instance and all that it counts.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir(&self.path)
    }
}

/// The instances that dead vmlabs left.
#[must_use]
pub fn stale_instances() -> Vec<StaleInstance> {
    let root = ROOTS.iter().find(|root| Path::new(root).join("instances").is_dir());
    root.map_or_else(Vec::new, |root| stale_in(Path::new(root)))
}

fn stale_in(root: &Path) -> Vec<StaleInstance> {
    let is_dead = |name: &str| {
        let (pid, start) = name.strip_prefix(PREFIX)?.split_once('.')?;
        let (pid, start): (u32, u64) = (pid.parse().ok()?, start.parse().ok()?);
        let lives = proc::stat(pid).is_some_and(|s| s.starttime_ticks == start && !s.is_dead());
        Some(!lives)
    };
    let entries = fs::read_dir(root.join("instances")).into_iter().flatten().flatten();
    let stale = entries.filter(|entry| entry.file_name().to_str().and_then(is_dead) == Some(true));
    let mut stale: Vec<_> = stale.map(|entry| StaleInstance { path: entry.path() }).collect();
    stale.sort_by(|a, b| a.path.cmp(&b.path));
    stale
}

/// One write, as the kernel wants a command; the file must be there.
fn write(file: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

/// The condition that an event is of one of the threads. Threads that were
/// started in a row, as vCPUs mostly are, cost one comparison together.
fn filter(tids: &[u32]) -> String {
    let mut tids = tids.to_vec();
    tids.sort_unstable();
    tids.dedup();
    let rows = tids.chunk_by(|a, b| a + 1 == *b);
    let rows = rows.filter_map(|row| Some((row.first()?, row.last()?))).map(|(first, last)| {
        match first == last {
            true => format!("(common_pid == {first})"),
            false => format!("(common_pid >= {first} && common_pid <= {last})"),
        }
    });
    rows.collect::<Vec<_>>().join(" || ")
}

/// A row of a histogram: its keys by field, and how often.
type HistogramRow = (BTreeMap<String, u64>, u64);

/// The histogram of the trigger with `filter` in the text of a file `hist`,
/// which has one for each trigger; `None` where it is missing or not whole.
fn parse_histogram(text: &str, filter: &str) -> Option<Vec<HistogramRow>> {
    let ours = format!(" if {filter} [");
    let sections = text.split("# event histogram");
    let section = sections.into_iter().find(|section| section.contains(&ours))?;
    let mut rows = Vec::new();
    for line in section.lines() {
        let line = line.trim();
        if let Some(dropped) = line.strip_prefix("Dropped:") {
            return (dropped.trim() == "0").then_some(rows);
        }
        let Some((keys, hits)) = line.strip_prefix('{').and_then(|line| line.split_once('}'))
        else {
            continue;
        };
        let key = |field: &str| {
            let (name, value) = field.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().parse().ok()?))
        };
        let keys = keys.split(',').map(key).collect::<Option<_>>()?;
        rows.push((keys, hits.trim().strip_prefix("hitcount:")?.trim().parse().ok()?));
    }
    None
}

/// Adds the rows of `event` under their counters' names.
fn name_rows(event: &str, rows: &[HistogramRow], all: &mut CounterSet) {
    for (family, names) in ALWAYS.iter().filter(|row| row.0 == event).map(|row| (row.1, row.2)) {
        names.iter().for_each(|name| all.add(format!("kvm.{family}.{name}"), 0.0));
    }
    if event == EXIT
        && let Some((keys, _)) = rows.first()
    {
        codes(keys).common().for_each(|name| all.add(format!("kvm.exits.{name}"), 0.0));
    }
    for (keys, hits) in rows {
        let key = |name: &str| keys.get(name).copied().unwrap_or(0);
        let name = match event {
            EXIT => format!("exits.{}", exit_name(keys)),
            "kvm_inj_virq" => {
                let vector = keys.values().next().copied().unwrap_or(0);
                format!("irqs.{vector:#04x}")
            }
            "kvm_apic_ipi" => format!("ipis.{}", ipi_name(key("icr_low"))),
            "kvm_msr" => {
                let how = if key("write") == 0 { "reads" } else { "writes" };
                format!("msr_{how}.{}", of_table(MSRS, key("ecx")))
            }
            _ => format!("hypercalls.{}", of_table(HYPERCALLS, key("nr"))),
        };
        all.add(format!("kvm.{name}"), *hits as f64);
    }
}

/// What is told even if there was none: event, family, names.
const ALWAYS: &[(&str, &str, &[&str])] = &[
    ("kvm_inj_virq", "irqs", &["0xec", "0xfb", "0xfc", "0xfd"]),
    ("kvm_apic_ipi", "ipis", &["0xfb", "0xfc", "0xfd"]),
    ("kvm_msr", "msr_writes", &["tsc_deadline", "x2apic_icr", "x2apic_eoi"]),
    ("kvm_hypercall", "hypercalls", &["send_ipi", "kick_cpu", "sched_yield"]),
];

fn codes(keys: &BTreeMap<String, u64>) -> ExitCodes {
    match keys.get("isa") {
        None => ExitCodes::Arm64,
        Some(&ISA_VMX) => ExitCodes::Vmx,
        Some(_) => ExitCodes::Svm,
    }
}

fn exit_name(keys: &BTreeMap<String, u64>) -> String {
    let codes = codes(keys);
    if codes != ExitCodes::Arm64 {
        return codes.name(keys.get("exit_reason").copied().unwrap_or(0));
    }
    // `ret`: only a trap has an exception class (ARM_EXCEPTION_*).
    match keys.get("ret") {
        Some(0) => ARM64_IRQ.to_owned(),
        Some(1) => "el1_serror".to_owned(),
        Some(2) => codes.name(keys.get("esr_ec").copied().unwrap_or(0)),
        Some(3) => "illegal".to_owned(),
        other => format!("ret_{}", other.copied().unwrap_or(0)),
    }
}

/// By its delivery mode, or its vector where it has one.
fn ipi_name(icr_low: u64) -> String {
    match icr_low >> 8 & 7 {
        0 | 1 => format!("{:#04x}", icr_low & 0xff),
        2 => "smi".to_owned(),
        4 => "nmi".to_owned(),
        5 => "init".to_owned(),
        6 => "startup".to_owned(),
        mode => format!("mode_{mode}"),
    }
}

fn of_table(table: &[(u64, &str)], number: u64) -> String {
    let known = table.iter().find(|row| row.0 == number);
    known.map_or_else(|| format!("{number:#x}"), |row| row.1.to_owned())
}

/// MSRs that guests use at run time (Linux `arch/x86/include/asm/msr-index.h`,
/// `arch/x86/include/uapi/asm/kvm_para.h`).
const MSRS: &[(u64, &str)] = &[
    (0x10, "tsc"),
    (0x48, "spec_ctrl"),
    (0x49, "pred_cmd"),
    (0x6e0, "tsc_deadline"),
    (0x808, "x2apic_tpr"),
    (0x80b, "x2apic_eoi"),
    (0x830, "x2apic_icr"),
    (0x838, "x2apic_timer"),
    (0x83f, "x2apic_self_ipi"),
    (0x4b56_4d00, "kvm_wall_clock"),
    (0x4b56_4d01, "kvm_system_time"),
    (0x4b56_4d02, "kvm_async_pf"),
    (0x4b56_4d03, "kvm_steal_time"),
    (0x4b56_4d04, "kvm_pv_eoi"),
    (0x4b56_4d05, "kvm_poll_control"),
    (0x4b56_4d07, "kvm_async_pf_ack"),
    (0xc000_0080, "efer"),
    (0xc000_0100, "fs_base"),
    (0xc000_0101, "gs_base"),
    (0xc000_0102, "kernel_gs_base"),
];

/// Linux `include/uapi/linux/kvm_para.h`.
const HYPERCALLS: &[(u64, &str)] = &[
    (1, "vapic_poll_irq"),
    (5, "kick_cpu"),
    (9, "clock_pairing"),
    (10, "send_ipi"),
    (11, "sched_yield"),
    (12, "map_gpa_range"),
];

#[cfg(test)]
mod tests;
