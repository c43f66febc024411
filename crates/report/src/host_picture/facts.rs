//! What a host is beside its shape, as short named lines.

use std::collections::BTreeMap;

use topology::{
    CacheKind, FrequencyPolicy, Host, HugePagePool, IdleState, KernelModule, Node, PcpuSet,
};

use super::words::{bytes, counted};

/// Module parameters that decide a VM's speed; all others are in the JSON.
const PARAMETERS: &[&str] = &[
    "avic",
    "dirty_log_manual_protect",
    "eager_page_split",
    "enable_apicv",
    "enable_ipiv",
    "enable_pmu",
    "ept",
    "experimental_zcopytx",
    "halt_poll_ns",
    "lapic_timer_advance",
    "lapic_timer_advance_ns",
    "max_mem_regions",
    "nested",
    "npt",
    "nx_huge_pages",
    "pause_filter_count",
    "ple_gap",
    "ple_window",
    "pml",
    "tdp_mmu",
    "unrestricted_guest",
    "vnmi",
    "vpid",
];

/// A name and what is to be said about it, one entry a line.
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) lines: Vec<String>,
}

/// Everything worth a line, in reading order; what is unknown has none.
pub(super) fn facts(host: &Host) -> Vec<Fact> {
    let facts = [
        ("Memory", memory(host)),
        ("Caches", vec![caches(host)]),
        ("KVM", kvm(host)),
        ("QEMU", qemu(host)),
        ("vhost", host.vhost.iter().map(module).collect()),
        ("Policies", vec![policies(host)]),
        ("Frequency", host.frequency.iter().map(frequency).collect()),
        ("Idle", vec![idle(host)]),
        ("Isolation", vec![isolation(host)]),
        ("Kernel", vec![host.cmdline.join(" ")]),
        ("Virtual", virtualised(host)),
    ];
    facts
        .into_iter()
        .map(|(name, mut lines)| {
            lines.retain(|line| !line.is_empty());
            Fact { name, lines }
        })
        .filter(|fact| !fact.lines.is_empty())
        .collect()
}

fn memory(host: &Host) -> Vec<String> {
    let mut lines = Vec::new();
    let total = host.memory_bytes.map(bytes);
    let available = host.available_bytes.map(|size| format!("{} available", bytes(size)));
    lines.push([total, available].into_iter().flatten().collect::<Vec<_>>().join(", "));
    for node in &host.nodes {
        let mut parts = Vec::new();
        parts.push(match node.memory_bytes {
            Some(0) => "no memory".to_owned(),
            Some(size) => bytes(size),
            None => "memory unknown".to_owned(),
        });
        if let Some(size) = node.free_bytes.filter(|_| node.memory_bytes != Some(0)) {
            parts.push(format!("{} free", bytes(size)));
        }
        parts.extend(distances(node));
        parts.extend(pools(&node.huge_pages));
        lines.push(format!("node {}: {}", node.id, parts.join(", ")));
    }
    if host.nodes.is_empty() || pools(&host.huge_pages).is_empty() {
        let pools = pools(&host.huge_pages);
        lines.push(match pools.as_slice() {
            [] if host.huge_pages.is_empty() => String::new(),
            [] => "no huge pages reserved".to_owned(),
            pools => pools.join(", "),
        });
    }
    lines
}

/// `distance 12 to node 1, 32 to nodes 2-3`; nothing on a host of one node.
fn distances(node: &Node) -> Option<String> {
    let mut by_distance: BTreeMap<u32, PcpuSet> = BTreeMap::new();
    for (to, distance) in &node.distances {
        if *to != node.id {
            by_distance.entry(*distance).or_default().insert(*to);
        }
    }
    let shown: Vec<String> = by_distance
        .iter()
        .map(|(distance, nodes)| {
            let plural = if nodes.len() == 1 { "" } else { "s" };
            format!("{distance} to node{plural} {nodes}")
        })
        .collect();
    (!shown.is_empty()).then(|| format!("distance {}", shown.join(", ")))
}

/// Pools that hold pages.
fn pools(pools: &[HugePagePool]) -> Vec<String> {
    pools
        .iter()
        .filter(|pool| pool.total > 0)
        .map(|pool| {
            let pages = if pool.total == 1 { "page" } else { "pages" };
            format!("{} {pages} of {} ({} free)", pool.total, bytes(pool.page_bytes), pool.free)
        })
        .collect()
}

/// `L1d 32 KiB × 16, L3 22 MiB × 2`.
fn caches(host: &Host) -> String {
    let mut alike: BTreeMap<_, usize> = BTreeMap::new();
    for cache in &host.caches {
        *alike.entry((cache.level, cache.kind, cache.size_bytes)).or_default() += 1;
    }
    let shown: Vec<String> = alike
        .into_iter()
        .map(|((level, kind, size), count)| {
            let kind = match kind {
                CacheKind::Data => "d",
                CacheKind::Instruction => "i",
                CacheKind::Unified => "",
            };
            let size = size.map_or("size unknown".to_owned(), bytes);
            let times = if count == 1 { String::new() } else { format!(" × {count}") };
            format!("L{level}{kind} {size}{times}")
        })
        .collect();
    shown.join(", ")
}

fn kvm(host: &Host) -> Vec<String> {
    let device = match host.kvm.device {
        Some(true) => "/dev/kvm is offered (only a guest that boots proves it usable)",
        Some(false) => "not offered by the kernel",
        None if host.kvm.modules.is_empty() => "unknown",
        None => "",
    };
    let usable = host.qemu.as_ref().and_then(|qemu| {
        let verdict = match qemu.kvm_usable? {
            true => "a guest boots under it",
            false => "not usable",
        };
        let why = qemu.kvm_why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        Some(format!("{verdict}{why}"))
    });
    let mut lines = vec![usable.unwrap_or_else(|| device.to_owned())];
    lines.extend(host.kvm.exits_to_disable().map(|exits| match &exits[..] {
        [] => "says that it can leave out no exit".to_owned(),
        exits => format!("says that it can leave out exits by {}", exits.join(", ")),
    }));
    lines.extend(host.kvm.modules.iter().map(module));
    lines
}

fn module(module: &KernelModule) -> String {
    let parameters: Vec<String> = module
        .parameters
        .iter()
        .filter(|(name, _)| PARAMETERS.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if parameters.is_empty() {
        module.name.clone()
    } else {
        format!("{}: {}", module.name, parameters.join(" "))
    }
}

fn qemu(host: &Host) -> Vec<String> {
    let Some(qemu) = &host.qemu else {
        return Vec::new();
    };
    let mut lines = vec![format!("{} ({})", qemu.version, qemu.path)];
    if !qemu.accelerators.is_empty() {
        lines.push(format!("accelerators {}", qemu.accelerators.join(", ")));
    }
    if !qemu.machines.is_empty() {
        lines.push(counted(qemu.machines.len(), "machine type"));
    }
    lines
}

fn policies(host: &Host) -> String {
    let settings = &host.settings;
    let mut parts = Vec::new();
    if let Some(enabled) = &settings.thp_enabled {
        let defrag = settings.thp_defrag.as_ref();
        let defrag = defrag.map_or(String::new(), |defrag| format!(" (defrag {defrag})"));
        parts.push(format!("transparent huge pages {enabled}{defrag}"));
    }
    if let Some(run) = settings.ksm_run {
        parts.push(match run {
            0 => "KSM off".to_owned(),
            1 if settings.ksm_merge_across_nodes == Some(false) => {
                "KSM on (inside nodes)".to_owned()
            }
            1 => "KSM on".to_owned(),
            _ => "KSM off, merged pages split".to_owned(),
        });
    }
    if let Some(balancing) = settings.numa_balancing {
        parts.push(match balancing {
            0 => "NUMA balancing off".to_owned(),
            1 => "NUMA balancing on".to_owned(),
            mode => format!("NUMA balancing mode {mode}"),
        });
    }
    if let Some(smt) = &settings.smt {
        parts.push(format!("SMT {smt}"));
    }
    if let Some(source) = &settings.clock_source {
        parts.push(format!("clock {source}"));
    }
    parts.join(", ")
}

fn frequency(policy: &FrequencyPolicy) -> String {
    let ghz = |khz: u64| format!("{:.2}", khz as f64 / 1e6);
    let range = match (policy.min_khz, policy.max_khz) {
        (Some(min), Some(max)) => Some(format!("{} to {} GHz", ghz(min), ghz(max))),
        (None, Some(max)) => Some(format!("up to {} GHz", ghz(max))),
        _ => None,
    };
    let governor = policy.governor.as_ref().map(|governor| format!("governor {governor}"));
    let parts: Vec<String> =
        [policy.driver.clone(), governor, range].into_iter().flatten().collect();
    format!("pCPUs {}: {}", policy.pcpus, parts.join(", "))
}

fn idle(host: &Host) -> String {
    let idle = &host.cpuidle;
    let mut parts: Vec<String> = idle.driver.iter().map(|name| format!("driver {name}")).collect();
    parts.extend(idle.governor.iter().map(|name| format!("governor {name}")));
    if !idle.states.is_empty() {
        let states: Vec<String> = idle.states.iter().map(state).collect();
        parts.push(format!("states {}", states.join(", ")));
    }
    // The poll time matters only where that governor rules.
    if idle.governor.as_deref() == Some("haltpoll")
        && let Some(poll_ns) = idle.haltpoll.get("guest_halt_poll_ns")
    {
        parts.push(format!("guest_halt_poll_ns={poll_ns}"));
    }
    parts.join("; ")
}

fn state(state: &IdleState) -> String {
    let latency = state.latency_us.map_or(String::new(), |us| format!(" {us} µs"));
    let off = if state.disabled { " (off)" } else { "" };
    format!("{}{latency}{off}", state.name)
}

fn isolation(host: &Host) -> String {
    let mut parts = Vec::new();
    for (name, pcpus) in [("isolated", &host.isolated), ("nohz_full", &host.nohz_full)] {
        if let Some(pcpus) = pcpus.as_ref().filter(|pcpus| !pcpus.is_empty()) {
            parts.push(format!("{name} {pcpus}"));
        }
    }
    parts.join(", ")
}

fn virtualised(host: &Host) -> Vec<String> {
    if host.virtualised.is_vm != Some(true) {
        return Vec::new();
    }
    let signs = match host.virtualised.signs.join("; ") {
        none if none.is_empty() => none,
        signs => format!(" ({signs})"),
    };
    match &host.virtualised.emulator {
        Some(emulator) => {
            vec![format!("this host is emulated by {emulator}: its time is emulated time{signs}")]
        }
        None => vec![format!("this machine is itself a VM{signs}")],
    }
}
