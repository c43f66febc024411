//! One thread of a QEMU: what it is for, and where the kernel lets it run.
//!
//! Names: QEMU calls threads `CPU 0/KVM`, `IO <id>`, `worker`... only with
//! `-name ...,debug-threads=on` (libvirt always says so); the kernel keeps 15
//! bytes of a name.
//!
//! Source: `proc_pid_stat(5)`, `proc_pid_status(5)`, `sched(7)`; QEMU
//! `accel/kvm/kvm-accel-ops.c`, `accel/tcg/tcg-accel-ops-{mttcg,rr}.c`,
//! `iothread.c`; Linux `drivers/vhost/vhost.c`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::PcpuSet;

use super::cgroup::Limits;

/// Bytes of a thread's name that the kernel keeps.
const NAME_BYTES: usize = 15;

/// What a thread of QEMU does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThreadRole {
    /// Runs a vCPU.
    Vcpu {
        /// Its number; `None` where the thread ran guest code but nothing
        /// tells which vCPU's.
        vcpu: Option<u32>,
    },
    /// Runs all vCPUs in turn (TCG without multi-threading).
    AllVcpus,
    /// Event loop for disks and such.
    Iothread {
        /// Its id, cut to 12 bytes where two share them.
        id: String,
    },
    /// The main loop.
    MainLoop,
    /// A helper that comes and goes: disk requests without an iothread of
    /// their own kind, io_uring, VNC.
    Worker,
    /// Moves a NIC's or disk's data inside the kernel (`vhost-<pid>`).
    Vhost,
    /// Another thread of QEMU: RCU, monitor, migration...
    Other,
    /// The name tells nothing: names were not asked for.
    Unknown,
}

impl ThreadRole {
    /// Whether it runs guest code.
    #[must_use]
    pub fn is_vcpu(&self) -> bool {
        matches!(self, Self::Vcpu { .. } | Self::AllVcpus)
    }

    /// Whether it belongs to what libvirt calls the emulator: neither vCPU nor
    /// iothread, nor of unknown purpose.
    #[must_use]
    pub fn is_emulator(&self) -> bool {
        matches!(self, Self::MainLoop | Self::Worker | Self::Vhost | Self::Other)
    }
}

impl fmt::Display for ThreadRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vcpu { vcpu: Some(vcpu) } => write!(f, "vCPU {vcpu}"),
            Self::Vcpu { vcpu: None } => f.write_str("vCPU ?"),
            Self::AllVcpus => f.write_str("all vCPUs"),
            Self::Iothread { id } => write!(f, "iothread {id}"),
            Self::MainLoop => f.write_str("emulator"),
            Self::Worker => f.write_str("worker"),
            Self::Vhost => f.write_str("vhost"),
            Self::Other => f.write_str("other"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// How the kernel chooses when a thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchedulingPolicy {
    /// The usual, fair one.
    Other,
    /// Real time, runs until it blocks.
    Fifo,
    /// Real time, in turns.
    RoundRobin,
    /// Fair, for what never waits for anybody.
    Batch,
    /// Only when nothing else wants to run.
    Idle,
    /// Real time by deadline.
    Deadline,
    /// By a BPF program (`SCHED_EXT`).
    Ext,
    /// A number that this version does not know.
    Unknown(u32),
}

impl SchedulingPolicy {
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Other,
            1 => Self::Fifo,
            2 => Self::RoundRobin,
            3 => Self::Batch,
            5 => Self::Idle,
            6 => Self::Deadline,
            7 => Self::Ext,
            other => Self::Unknown(other),
        }
    }

    /// Whether threads of the usual policy wait for it.
    #[must_use]
    pub fn is_realtime(self) -> bool {
        matches!(self, Self::Fifo | Self::RoundRobin | Self::Deadline)
    }
}

/// A thread of a running VM. What can't be read is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningThread {
    /// Thread id as this machine's `/proc` has it.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: ThreadRole,
    /// The pCPUs on which the kernel lets it run: its own affinity within its
    /// cpuset.
    pub affinity: Option<PcpuSet>,
    /// Scheduling policy.
    pub policy: Option<SchedulingPolicy>,
    /// 1 to 99 for real-time policies, else 0.
    pub realtime_priority: Option<u32>,
    /// -20 (greedy) to 19 (modest).
    pub nice: Option<i32>,
    /// Where it ran last.
    pub last_pcpu: Option<u32>,
    /// What its cgroups allow.
    pub limits: Limits,
}

/// What the scheduler's fields of `/proc/<pid>/task/<tid>/stat` tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatScheduling {
    pub(crate) policy: SchedulingPolicy,
    pub(crate) realtime_priority: u32,
    pub(crate) nice: i32,
    pub(crate) last_pcpu: u32,
    /// Time in guest code, in clock ticks.
    pub(crate) guest_ticks: u64,
}

/// Parses one line of `/proc/<pid>/task/<tid>/stat`.
pub(crate) fn parse_scheduling(text: &str) -> Option<StatScheduling> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // fields[0] is field 3 of the manual page.
    let field = |manual: usize| fields.get(manual - 3).copied();
    Some(StatScheduling {
        nice: field(19)?.parse().ok()?,
        last_pcpu: field(39)?.parse().ok()?,
        realtime_priority: field(40)?.parse().ok()?,
        policy: SchedulingPolicy::from_number(field(41)?.parse().ok()?),
        guest_ticks: field(43)?.parse().ok()?,
    })
}

/// What `/proc/<pid>/status` tells of a process or thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProcStatus {
    pub(crate) affinity: Option<PcpuSet>,
    /// Nodes from which memory may come.
    pub(crate) nodes: Option<PcpuSet>,
    /// Id in the innermost PID namespace, which is what QEMU knows.
    pub(crate) inner_id: Option<u32>,
    pub(crate) locked_bytes: Option<u64>,
    pub(crate) swapped_bytes: Option<u64>,
    pub(crate) hugetlb_bytes: Option<u64>,
}

pub(crate) fn parse_status(text: &str) -> ProcStatus {
    let mut status = ProcStatus::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name {
            "Cpus_allowed_list" => status.affinity = value.parse().ok(),
            "Mems_allowed_list" => status.nodes = value.parse().ok(),
            "NSpid" => {
                status.inner_id =
                    value.split_ascii_whitespace().last().and_then(|id| id.parse().ok());
            }
            "VmLck" => status.locked_bytes = kib(value),
            "VmSwap" => status.swapped_bytes = kib(value),
            "HugetlbPages" => status.hugetlb_bytes = kib(value),
            _ => {}
        }
    }
    status
}

/// Bytes of `12 kB`.
pub(crate) fn kib(value: &str) -> Option<u64> {
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What a thread's name tells; `main` is true for the process's first thread.
pub(crate) fn role_of(
    name: &str,
    main: bool,
    thread_names: bool,
    iothreads: &[String],
) -> ThreadRole {
    if main {
        return ThreadRole::MainLoop;
    }
    if let Some(rest) = name.strip_prefix("CPU ")
        && let Some((number, _accel)) = rest.split_once('/')
        && let Ok(vcpu) = number.parse()
    {
        return ThreadRole::Vcpu { vcpu: Some(vcpu) };
    }
    if name.starts_with("ALL CPUs/") {
        return ThreadRole::AllVcpus;
    }
    if let Some(id) = name.strip_prefix("IO ") {
        return iothread(name, id, iothreads);
    }
    if name.starts_with("vhost-") {
        return ThreadRole::Vhost;
    }
    // io_uring's are named by the kernel.
    if name.starts_with("iou-wrk-") || name.starts_with("iou-sqp-") {
        return ThreadRole::Worker;
    }
    // Named by the kernel too: KVM's and libraries' own.
    if name.starts_with("kvm-") {
        return ThreadRole::Other;
    }
    if !thread_names {
        return ThreadRole::Unknown;
    }
    match name {
        "worker" | "vnc_worker" | "touch_pages" => ThreadRole::Worker,
        _ => ThreadRole::Other,
    }
}

fn iothread(name: &str, id: &str, iothreads: &[String]) -> ThreadRole {
    let cut = name.len() >= NAME_BYTES;
    let of_that_name: Vec<&String> =
        iothreads.iter().filter(|full| *full == id || cut && full.starts_with(id)).collect();
    match of_that_name[..] {
        [full] => ThreadRole::Iothread { id: full.clone() },
        // QEMU's own, which serves the monitors.
        [] if id.starts_with("mon_iothread") => ThreadRole::Other,
        _ => ThreadRole::Iothread { id: id.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_roles() {
        let iothreads =
            ["io1", "iothread-database", "disk-queue-0", "disk-queue-01"].map(str::to_owned);
        let check = |name: &str, expected: &str| {
            assert_eq!(role_of(name, false, true, &iothreads).to_string(), expected, "{name}");
        };
        check("CPU 0/KVM", "vCPU 0");
        check("CPU 127/TCG", "vCPU 127");
        check("ALL CPUs/TCG", "all vCPUs");
        check("IO io1", "iothread io1");
        check("IO iothread-dat", "iothread iothread-database");
        check("IO disk-queue-0", "iothread disk-queue-0");
        check("IO mon_iothread", "other");
        check("vhost-4711", "vhost");
        check("worker", "worker");
        check("iou-wrk-4711", "worker");
        check("call_rcu", "other");
        check("kvm-nx-lpage-re", "other");
        check("CPU x/KVM", "other");
        assert_eq!(role_of("qemu-system-x86", true, false, &[]), ThreadRole::MainLoop);
        assert_eq!(role_of("qemu-system-x86", false, false, &[]), ThreadRole::Unknown);
        assert_eq!(role_of("vhost-1", false, false, &[]), ThreadRole::Vhost);
    }

    #[test]
    fn scheduling_of_a_real_thread() {
        // A vCPU thread under `chrt -f 5`, Linux 6.18.
        let text = include_str!("../../testdata/linux-6.18-x86_64/qemu/vcpu-fifo.stat");
        let found = parse_scheduling(text).expect("a stat line");
        assert_eq!((found.policy, found.realtime_priority), (SchedulingPolicy::Fifo, 5));
        assert!(found.last_pcpu < 2 && found.policy.is_realtime());
        for broken in ["", "1", "1 (x) S 1 1", "1 (x"] {
            assert_eq!(parse_scheduling(broken), None);
        }
    }

    #[test]
    fn status_of_a_real_qemu() {
        let text = include_str!("../../testdata/linux-6.18-x86_64/qemu/status");
        let status = parse_status(text);
        assert_eq!(status.affinity.expect("affinity").to_string(), "0-1");
        assert_eq!(status.nodes.expect("nodes").to_string(), "0");
        assert!(status.inner_id.is_some());
        assert_eq!((status.locked_bytes, status.swapped_bytes), (Some(0), Some(0)));
        // Hand-made in the kernel's format: a thread in a container.
        let text = "NSpid:\t4711\t52\t7\nCpus_allowed_list:\t2-3,18-19\nVmLck:\t    2048 kB\n";
        let status = parse_status(text);
        assert_eq!((status.inner_id, status.locked_bytes), (Some(7), Some(2 << 20)));
        assert_eq!(parse_status("x"), ProcStatus::default());
    }
}
