//! `[host]`: the machine, its scheduler, KVM, costs and what else runs there.

use topology::PcpuSet;

use super::node::TableReader;
use super::{LoadHost, priors};
use crate::costs::Prior;
use crate::machine::{PcpuNumbering, SimMachine, UniformMachine};
use crate::model::{
    CfsBandwidth, DirectedYieldRule, HostTask, Mechanisms, SimGroup, SimKvm, Throttle,
};
use crate::random::Duration;
use crate::sched::{KernelRelease, SchedKernel, SchedPolicy};

/// More pCPUs than any machine that runs VMs has.
const MOST_PCPUS: u64 = 1_024;
/// Threads of all loads: more would not end in minutes.
const MOST_LOADS: usize = 20_000;
/// How often the kernel has something of its own to do on a pCPU beside the tick, ns:
/// `vmstat_update()` every second (`vm.stat_interval`), `cache_reap()` every two, the watchdog
/// every four.
const HOUSEKEEPING_NS: u64 = 500_000_000;
/// How long that takes, ns.
const HOUSEKEEPING_RUN_NS: u64 = 20_000;

pub(super) struct HostPart {
    pub(super) machine: SimMachine,
    /// `machine` is what the scenario means. Else that is told, and what refers to its
    /// pCPUs and nodes can't be judged.
    pub(super) known: bool,
    pub(super) policy: SchedPolicy,
    pub(super) gang_ns: Option<u64>,
    pub(super) kvm: SimKvm,
    pub(super) mechanisms: Mechanisms,
    pub(super) priors: Vec<Prior>,
    pub(super) tasks: Vec<HostTask>,
    /// Control groups of the host, so far those of its tasks.
    pub(super) groups: Vec<SimGroup>,
}

pub(super) fn read(top: &TableReader<'_>, load_host: &LoadHost<'_>) -> HostPart {
    let problems_before = top.problems().borrow().len();
    if top.get("host").is_none() {
        top.problem(1, "No [host]: say sockets, cores, threads and kernel, or file");
    }
    let table = top.table("host");
    let described = table.text("file").and_then(|(file, line)| match load_host(file) {
        Ok(host) => Some(host),
        Err(message) => {
            table.problem(line, format!("file = {file:?}: {message}"));
            None
        }
    });
    let machine = match &described {
        Some(host) => {
            for key in ["sockets", "dies", "cores", "threads", "numbering"] {
                if let Some(node) = table.get(key) {
                    table.wrong(key, node, "the host's file already says this");
                }
            }
            SimMachine::of_host(host)
        }
        None => shape(&table),
    };
    if machine.is_empty() {
        table.problem(table.line, "The host has no pCPU that is online");
    }
    let known = top.problems().borrow().len() == problems_before;
    let release = described.as_ref().and_then(|host| host.kernel.clone());
    let kernel = kernel(&table, release.as_deref().unwrap_or("6.12"));
    let tunables = table.table("scheduler");
    let (policy, gang_ns) = scheduler(&tunables, kernel, machine.len(), true);
    tunables.finish();
    let kvm = kvm(table.table("kvm"), kernel, policy.tick_ns);
    let switches = table.table("mechanisms");
    let mechanisms = Mechanisms {
        queue_locks: switches.flag("queue_locks", true),
        smt: switches.flag("smt", true),
        remote_memory: switches.flag("remote_memory", true),
        balance: switches.flag("balance", true),
        idle_entry: switches.flag("idle_entry", true),
        remote_lines: switches.flag("remote_lines", true),
        queued_wakeups: switches.flag("queued_wakeups", true),
    };
    switches.finish();
    let costs = table.table("costs");
    let priors = priors(&costs);
    costs.finish();
    let mut groups = Vec::new();
    let mut tasks = loads(&table, known.then_some(&machine), &mut groups);
    let every_ns = table.time("housekeeping_ms", HOUSEKEEPING_NS, 1e6);
    tasks.extend(housekeeping(every_ns, &machine));
    table.finish();
    HostPart { machine, known, policy, gang_ns, kvm, mechanisms, priors, tasks, groups }
}

fn shape(table: &TableReader<'_>) -> SimMachine {
    let part = |key| table.whole(key, 1, 1, MOST_PCPUS);
    let [sockets, dies, cores, threads] = ["sockets", "dies", "cores", "threads"].map(part);
    let numbering = [
        ("thread-by-thread", PcpuNumbering::ThreadByThread),
        ("core-by-core", PcpuNumbering::CoreByCore),
    ];
    let numbering = table.choice("numbering", &numbering, PcpuNumbering::ThreadByThread);
    let pcpus = sockets.saturating_mul(dies).saturating_mul(cores).saturating_mul(threads);
    if pcpus > MOST_PCPUS {
        table.problem(
            table.line,
            format!("The host has {pcpus} pCPUs: at most {MOST_PCPUS} can be simulated"),
        );
        return SimMachine::flat(1);
    }
    let [sockets, dies, cores, threads] = [sockets, dies, cores, threads].map(|n| n as u32);
    SimMachine::of_shape(UniformMachine { sockets, dies, cores, threads, numbering })
}

/// The rules that `kernel` names.
pub(super) fn kernel(table: &TableReader<'_>, default: &str) -> KernelRelease {
    let newest = || KernelRelease::from(SchedKernel::V6_12);
    let Some((release, line)) = table.text("kernel") else {
        return KernelRelease::parse(default).unwrap_or_else(newest);
    };
    KernelRelease::parse(release).unwrap_or_else(|| {
        table.problem(
            line,
            format!("kernel = {release:?}: must be a version, as \"3.6\", \"5.15\" or \"6.12\""),
        );
        newest()
    })
}

/// A scheduler's tunables; a guest has no gangs.
pub(super) fn scheduler(
    table: &TableReader<'_>,
    release: KernelRelease,
    cpus: usize,
    is_host: bool,
) -> (SchedPolicy, Option<u64>) {
    let defaults = SchedPolicy::defaults(release, cpus);
    let time = |key, default| table.time(key, default, 1e6);
    let policy = SchedPolicy {
        kernel: defaults.kernel,
        latency_ns: time("latency_ms", defaults.latency_ns),
        min_granularity_ns: time("min_granularity_ms", defaults.min_granularity_ns),
        wakeup_granularity_ns: time("wakeup_granularity_ms", defaults.wakeup_granularity_ns),
        base_slice_ns: time("base_slice_ms", defaults.base_slice_ns),
        bandwidth_slice_ns: time("bandwidth_slice_ms", defaults.bandwidth_slice_ns),
        bandwidth_expires: table.flag("bandwidth_expires", defaults.bandwidth_expires),
        tick_ns: time("tick_ms", defaults.tick_ns),
        ticks_aligned: table.flag("ticks_aligned", defaults.ticks_aligned),
        eevdf_next_buddy: table.flag("next_buddy", defaults.eevdf_next_buddy),
        buddies: table.flag("buddies", defaults.buddies),
        wakeup_preemption: table.flag("wakeup_preemption", defaults.wakeup_preemption),
    };
    for (key, value) in [
        ("tick_ms", policy.tick_ns),
        ("latency_ms", policy.latency_ns),
        ("min_granularity_ms", policy.min_granularity_ns),
        ("base_slice_ms", policy.base_slice_ns),
        ("bandwidth_slice_ms", policy.bandwidth_slice_ns),
    ] {
        if let Some(node) = table.get(key)
            && !(10_000..=1_000_000_000).contains(&value)
        {
            table.wrong(key, node, "must be from 0.01 to 1000");
        }
    }
    let gang = table.number("gang_ms", 0.0, 1_000.0).filter(|gang| *gang > 0.0);
    if let (false, Some(node)) = (is_host, table.get("gang_ms")) {
        table.wrong("gang_ms", node, "only a host schedules gangs");
    }
    let gang_ns = gang.map(|gang| ((gang * 1e6) as u64).max(10_000));
    (policy, gang_ns)
}

fn kvm(table: TableReader<'_>, kernel: KernelRelease, tick_ns: u64) -> SimKvm {
    let defaults = SimKvm::defaults(kernel);
    let on_spin = defaults.on_spin;
    let whole_vm = [("vcpu", false), ("vm", true)];
    let limit = table.choice("yield_limit", &whole_vm, true);
    let throttle = if table.flag("throttled_yield", false) {
        let period_ns = table.time("yield_every_us", tick_ns, 1e3);
        Some(Throttle { period_ns, whole_vm: limit })
    } else {
        table.get("yield_every_us");
        None
    };
    let kvm = SimKvm {
        ple: table.flag("ple", defaults.ple),
        ple_window_ns: table.time("ple_window_ns", defaults.ple_window_ns, 1.0).max(100),
        ple_window_grow: table.whole("ple_window_grow", defaults.ple_window_grow.into(), 0, 1_000)
            as u32,
        ple_window_shrink: table.whole(
            "ple_window_shrink",
            defaults.ple_window_shrink.into(),
            0,
            1_000,
        ) as u32,
        ple_window_max_ns: table.time("ple_window_max_ns", defaults.ple_window_max_ns, 1.0),
        on_spin: DirectedYieldRule {
            skip_in_guest: table.flag("skip_in_guest", on_spin.skip_in_guest),
            skip_not_ready: table.flag("skip_not_ready", on_spin.skip_not_ready),
            skip_woken: table.flag("skip_woken", on_spin.skip_woken),
            skip_spinning: table.flag("skip_spinning", on_spin.skip_spinning),
            skip_user_mode: table.flag("skip_user_mode", on_spin.skip_user_mode),
            undercommit_check: table.flag("undercommit_check", on_spin.undercommit_check),
        },
        throttle,
        halt_poll_ns: table.time("halt_poll_us", defaults.halt_poll_ns, 1e3),
        halt_poll_adapts: table.flag("halt_poll_adapts", defaults.halt_poll_adapts),
        posted_interrupts: table.flag("posted_interrupts", defaults.posted_interrupts),
        ipi_exits: table.flag("ipi_exits", defaults.ipi_exits),
        ipi_cluster: table.whole("ipi_cluster", defaults.ipi_cluster.into(), 1, 16) as u32,
        pv_ipi: table.flag("pv_ipi", defaults.pv_ipi),
        pv_tlb_flush: table.flag("pv_tlb_flush", defaults.pv_tlb_flush),
        pv_sched_yield: table.flag("pv_sched_yield", defaults.pv_sched_yield),
        hlt_exits: table.flag("hlt_exits", defaults.hlt_exits),
        kick_yields: table.flag("kick_yields", defaults.kick_yields),
    };
    table.finish();
    kvm
}

/// A set of pCPUs by Linux's numbers, as places in the machine; of one that is not known
/// only whether it is a set.
pub(super) fn pcpus(
    table: &TableReader<'_>,
    key: &str,
    text: &str,
    line: usize,
    machine: Option<&SimMachine>,
) -> Vec<u32> {
    let set: PcpuSet = match text.parse() {
        Ok(set) => set,
        Err(error) => {
            table.problem(line, format!("{key} = {text:?}: {error}"));
            return Vec::new();
        }
    };
    if set.is_empty() {
        table.problem(line, format!("{key} = {text:?}: names no pCPU"));
    }
    let mut found = Vec::new();
    let Some(machine) = machine else { return found };
    for number in set.iter() {
        match machine.numbered(number) {
            Some(place) => found.push(place),
            None => {
                table.problem(
                    line,
                    format!("{key} = {text:?}: the host has no pCPU {number} that is online"),
                );
                break;
            }
        }
    }
    found
}

/// Puts a group behind the others: its number. Each has a thread, so that the limits on
/// threads leave numbers for all.
pub(super) fn add_group(groups: &mut Vec<SimGroup>, group: SimGroup) -> u16 {
    let number = u16::try_from(groups.len()).unwrap_or(u16::MAX);
    groups.push(group);
    number
}

/// The control group that a table names, if it names one.
pub(super) fn cgroup(table: &TableReader<'_>) -> Option<SimGroup> {
    table.get("cgroup")?;
    let cgroup = table.table("cgroup");
    let weight = cgroup.get("weight").map(|_| cgroup.whole("weight", 100, 1, 10_000));
    let shares = cgroup.get("shares").map(|_| cgroup.whole("shares", 1024, 2, 262_144));
    if weight.is_some() && shares.is_some() {
        let message = "A cgroup has weight (of version 2) or shares (of version 1), not both";
        cgroup.problem(cgroup.line, message);
    }
    // sched_weight_from_cgroup: 100 is 1024.
    let of_weight = weight.map(|weight| (weight * 1024 + 50) / 100);
    let shares = shares.or(of_weight).unwrap_or(1024) as u32;
    // tg_set_cfs_bandwidth: no less than a millisecond, no period above a second.
    let period_us = cgroup.whole("period_us", 100_000, 1_000, 1_000_000);
    let quota = cgroup.get("quota_us").map(|_| CfsBandwidth {
        quota_ns: cgroup.whole("quota_us", 100_000, 1_000, 10_000_000_000) * 1_000,
        period_ns: period_us * 1_000,
    });
    if let (None, Some(node)) = (quota, cgroup.get("period_us")) {
        cgroup.wrong("period_us", node, "without quota_us there is no limit");
    }
    cgroup.finish();
    Some(SimGroup { shares, quota })
}

fn loads(
    host: &TableReader<'_>,
    machine: Option<&SimMachine>,
    groups: &mut Vec<SimGroup>,
) -> Vec<HostTask> {
    let mut tasks = Vec::new();
    for table in host.tables("load") {
        let name = table.text("name").map_or("load", |(name, _)| name).to_owned();
        let weight = table.whole("weight", 1024, 2, 100_000) as u32;
        let pins = table
            .text("pins")
            .map(|(text, line)| pcpus(&table, "pins", text, line, machine))
            .unwrap_or_default();
        let per_pcpu = table.flag("per_pcpu", false);
        let threads = if per_pcpu {
            if let Some(node) = table.get("threads") {
                table.wrong("threads", node, "per_pcpu = true already says how many");
            }
            0
        } else {
            table.whole("threads", 1, 0, 10_000) as u32
        };
        let run = super::workload::duration(&table, "run");
        let sleep = super::workload::duration(&table, "sleep");
        // All of its threads are in one.
        let group = cgroup(&table).map(|group| add_group(groups, group));
        let table_line = table.line;
        let burst = match (run, sleep) {
            (Some(run), Some(sleep)) => Some((at_least_a_us(run), at_least_a_us(sleep))),
            (None, None) => None,
            _ => {
                table.problem(table.line, "A load that pauses needs both run and sleep");
                None
            }
        };
        table.finish();
        if tasks.len() + threads as usize > MOST_LOADS {
            let message = format!("The host's loads have more than {MOST_LOADS} threads");
            host.problem(table_line, message);
            break;
        }
        let each: Vec<Vec<u32>> = if per_pcpu {
            let all = || (0..machine.map_or(0, SimMachine::len) as u32).collect();
            let on: Vec<u32> = if pins.is_empty() { all() } else { pins };
            on.into_iter().map(|pcpu| vec![pcpu]).collect()
        } else {
            vec![pins; threads as usize]
        };
        tasks.extend(each.into_iter().enumerate().map(|(index, pins)| HostTask {
            name: format!("{name} {index}"),
            pins,
            weight,
            group,
            burst,
        }));
    }
    tasks
}

/// What the kernel itself has to do on each pCPU, every so often; nothing if that is 0.
fn housekeeping(every_ns: u64, machine: &SimMachine) -> impl Iterator<Item = HostTask> {
    let pcpus = if every_ns == 0 { 0 } else { machine.len() as u32 };
    let burst =
        (Duration::Constant(HOUSEKEEPING_RUN_NS), at_least_a_us(Duration::Exponential(every_ns)));
    (0..pcpus).map(move |pcpu| HostTask {
        name: format!("housekeeping {pcpu}"),
        pins: vec![pcpu],
        weight: 1024,
        group: None,
        burst: Some(burst),
    })
}

/// Bursts of nothing would never end.
fn at_least_a_us(duration: Duration) -> Duration {
    match duration {
        long if long.mean_ns() >= 1_000.0 => long,
        _ => Duration::Constant(1_000),
    }
}
