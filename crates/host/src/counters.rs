//! Counters of a VM's threads, of the host and of the guest, read before and
//! after a run. Their names, units and meanings stand in [`record::COUNTERS`].
//!
//! What can't be read is absent. A total over vCPUs is absent as soon as one
//! vCPU's share of it can't be read: a part would look like the whole.
//!
//! Source: Linux `Documentation/scheduler/sched-stats.rst`,
//! `Documentation/accounting/psi.rst`, `Documentation/filesystems/proc.rst`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use record::CounterSet;

use crate::proc;

mod domain;
mod guest;
mod interrupts;
pub mod kvm;
mod locks;
mod memory;
pub mod tracing;

pub use domain::domain_counters;
pub use guest::parse_guest;
pub use locks::{LOCKS_MOST_BYTES, READ_LOCKS, keep_longest_waits, parse_locks};
pub use memory::read_memory;

mod seat;
pub use seat::read_seat;

/// The threads of a running VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmThreads {
    /// QEMU's process id.
    pub pid: u32,
    /// Thread ids of the vCPUs, as QMP `query-cpus-fast` names them. One
    /// thread may run several vCPUs (TCG without multi-threading).
    pub vcpu_tids: Vec<u32>,
    /// Thread ids of the vhost threads that work for it.
    pub vhost_tids: Vec<u32>,
}

impl VmThreads {
    /// The threads of QEMU's process `pid`, whose vCPUs are known. Looks at the
    /// name of every process, for vhost threads before Linux 6.4 are the
    /// kernel's own; since then they are QEMU's.
    #[must_use]
    pub fn find(pid: u32, vcpu_tids: &[u32]) -> Self {
        let name = format!("vhost-{pid}");
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let tasks = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_vhost = |tid: &u32| {
            let found = fs::read_to_string(format!("/proc/{tid}/comm"));
            found.is_ok_and(|found| found.trim_end() == name)
        };
        let vhost_tids = tasks.chain(proc::pids()).filter(is_vhost).collect();
        Self { pid, vcpu_tids: vcpu_tids.to_vec(), vhost_tids }
    }
}

/// Reads `vcpu.*`, `qemu.*` and `vhost.*` of a running VM.
///
/// Costs three file reads a vCPU (four on kernels without
/// `CONFIG_SCHED_DEBUG`), one a vhost thread and one for the process.
#[must_use]
pub fn read_vm(vm: &VmThreads) -> CounterSet {
    read_vm_in(Path::new("/proc"), vm)
}

/// Reads `host.*`: eight small files.
#[must_use]
pub fn read_host() -> CounterSet {
    let mut counters = read_host_in(Path::new("/proc"));
    let merged = fs::read_to_string("/sys/kernel/mm/ksm/pages_sharing").unwrap_or_default();
    if let Ok(pages) = merged.trim().parse::<u64>() {
        let bytes = pages.saturating_mul(rustix::param::page_size() as u64);
        counters.set("host.ksm_shared_bytes", bytes as f64);
    }
    counters
}

/// Clock ticks per second in `/proc`.
/// pCPU time that a process and the children that it has waited for have used, s; absent
/// where there is no such process.
#[must_use]
pub fn process_run_s(pid: u32) -> Option<f64> {
    let stat = crate::proc::stat(pid)?;
    Some((stat.used_ticks + stat.children_ticks) as f64 / ticks_per_second())
}

pub(crate) fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

fn read_vm_in(proc_root: &Path, vm: &VmThreads) -> CounterSet {
    let process = proc_root.join(vm.pid.to_string());
    let tids: BTreeSet<u32> = vm.vcpu_tids.iter().copied().collect();
    let read = |tid: u32, file: &str| {
        fs::read_to_string(process.join("task").join(tid.to_string()).join(file)).ok()
    };
    // Sums over the vCPUs; None once a vCPU lacks it.
    let mut schedstat = Some([0.0; 3]);
    let mut migrations = Some(0.0);
    let mut switches = Some([0.0; 2]);
    let mut guest_ticks = Some([0.0]);
    for &tid in &tids {
        let one = read(tid, "schedstat").and_then(|text| parse_schedstat(&text));
        schedstat = sum(schedstat, one);
        let sched = read(tid, "sched").map(|text| parse_sched(&text)).unwrap_or_default();
        migrations = sum(migrations.map(|m| [m]), sched.migrations.map(|m| [m])).map(|[m]| m);
        let one = sched
            .switches
            .or_else(|| read(tid, "status").and_then(|text| switches_in_status(&text)));
        switches = sum(switches, one);
        let one = read(tid, "stat").and_then(|text| proc::parse_stat(&text));
        guest_ticks = sum(guest_ticks, one.map(|stat| [stat.guest_ticks as f64]));
    }
    let mut counters = CounterSet::default();
    if tids.is_empty() {
        return counters;
    }
    if let Some([run_ns, wait_ns, timeslices]) = schedstat {
        counters.set("vcpu.run_s", run_ns / 1e9);
        counters.set("vcpu.wait_s", wait_ns / 1e9);
        counters.set("vcpu.timeslices", timeslices);
    }
    if let Some(migrations) = migrations {
        counters.set("vcpu.migrations", migrations);
    }
    if let Some([voluntary, involuntary]) = switches {
        counters.set("vcpu.switches_voluntary", voluntary);
        counters.set("vcpu.switches_involuntary", involuntary);
    }
    if let Some([ticks]) = guest_ticks {
        counters.set("vcpu.guest_s", ticks / ticks_per_second());
    }
    let vhost = vm.vhost_tids.iter().try_fold([0.0; 3], |total, tid| {
        let text = fs::read_to_string(proc_root.join(tid.to_string()).join("schedstat")).ok()?;
        sum(Some(total), parse_schedstat(&text))
    });
    if let Some([run_ns, wait_ns, _]) = vhost.filter(|_| !vm.vhost_tids.is_empty()) {
        counters.set("vhost.run_s", run_ns / 1e9);
        counters.set("vhost.wait_s", wait_ns / 1e9);
    }
    let stat = fs::read_to_string(process.join("stat")).ok();
    if let Some(stat) = stat.and_then(|text| proc::parse_stat(&text)) {
        counters.set("qemu.minor_faults", stat.minor_faults as f64);
        counters.set("qemu.major_faults", stat.major_faults as f64);
        // The process's total also holds the time of threads that have ended,
        // which a sum over its present threads would lose.
        let total = stat.used_ticks as f64 / ticks_per_second();
        let own_vhost =
            vm.vhost_tids.iter().any(|tid| process.join("task").join(tid.to_string()).exists());
        let vhost_ns = vhost.filter(|_| own_vhost).map_or(0.0, |[run_ns, ..]| run_ns);
        if let Some([run_ns, ..]) = schedstat {
            counters.set("qemu.other_run_s", (total - (run_ns + vhost_ns) / 1e9).max(0.0));
        }
    }
    counters
}

fn sum<const N: usize>(total: Option<[f64; N]>, one: Option<[f64; N]>) -> Option<[f64; N]> {
    let (total, one) = (total?, one?);
    Some(std::array::from_fn(|i| total[i] + one[i]))
}

/// Run time (ns), wait time (ns) and timeslices of a thread.
fn parse_schedstat(text: &str) -> Option<[f64; 3]> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
    let [run, wait, slices] = [fields.next()??, fields.next()??, fields.next()??];
    // A kernel that does not count says zero everywhere; a vCPU thread has
    // run at least once.
    (slices != 0 || run != 0).then_some([run as f64, wait as f64, slices as f64])
}

#[derive(Debug, Default, PartialEq)]
struct SchedCounters {
    migrations: Option<f64>,
    /// Voluntary and involuntary.
    switches: Option<[f64; 2]>,
}

/// What `/proc/<pid>/task/<tid>/sched` tells, `name : value` a line.
fn parse_sched(text: &str) -> SchedCounters {
    let (mut migrations, mut voluntary, mut involuntary) = (None, None, None);
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let place = match name.trim_end() {
            "se.nr_migrations" => &mut migrations,
            "nr_voluntary_switches" => &mut voluntary,
            "nr_involuntary_switches" => &mut involuntary,
            _ => continue,
        };
        *place = value.trim().parse().ok();
    }
    SchedCounters { migrations, switches: voluntary.zip(involuntary).map(|(v, i)| [v, i]) }
}

fn switches_in_status(text: &str) -> Option<[f64; 2]> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    };
    Some([value("voluntary_ctxt_switches")?, value("nonvoluntary_ctxt_switches")?])
}

pub(crate) fn read_host_in(proc_root: &Path) -> CounterSet {
    let mut counters = CounterSet::default();
    let text = |file: &str| fs::read_to_string(proc_root.join(file)).unwrap_or_default();
    let stat = text("stat");
    if let Some(times) = parse_times(&stat, "cpu") {
        counters.set("host.steal_s", times.steal_ticks / ticks_per_second());
        counters.set("host.busy_s", times.busy_ticks / ticks_per_second());
    }
    interrupts::totals(&stat, "host", &mut counters);
    for what in ["cpu", "memory", "io"] {
        if let Some(us) = pressure_us(&text(&format!("pressure/{what}"))) {
            counters.set(format!("host.pressure_{what}_s"), us / 1e6);
        }
    }
    interrupts::rows(&text("interrupts"), None, "host", &mut counters);
    let vmstat = text("vmstat");
    for (field, name) in VMSTAT {
        let line = vmstat.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' '));
        if let Some(value) = line.and_then(|value| value.trim().parse::<u64>().ok()) {
            counters.set(*name, value as f64);
        }
    }
    counters
}

/// What memory management did, by its names in `/proc/vmstat`.
const VMSTAT: &[(&str, &str)] = &[
    ("thp_fault_alloc", "host.thp_faults"),
    ("thp_fault_fallback", "host.thp_fallbacks"),
    ("thp_collapse_alloc", "host.thp_collapses"),
    ("thp_split_pmd", "host.thp_splits"),
    ("numa_hint_faults", "host.numa_hint_faults"),
    ("numa_pages_migrated", "host.numa_pages_migrated"),
    ("cow_ksm", "host.ksm_copies"),
];

/// A line of `/proc/stat`, in clock ticks.
pub(crate) struct Times {
    pub(crate) busy_ticks: f64,
    idle_ticks: f64,
    pub(crate) steal_ticks: f64,
}

/// The line called `name`: `cpu` is all pCPUs together, `cpu0` the first.
pub(crate) fn parse_times(stat: &str, name: &str) -> Option<Times> {
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let mut fields = line.split_ascii_whitespace().map_while(|field| field.parse::<f64>().ok());
    let mut next = || fields.next();
    // user and nice already hold the time of guests.
    let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
    let (_iowait, irq, softirq, steal) = (next()?, next()?, next()?, next()?);
    Some(Times {
        busy_ticks: user + nice + system + irq + softirq,
        idle_ticks: idle,
        steal_ticks: steal,
    })
}

/// `total` of the `some` line, microseconds.
fn pressure_us(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests;
