//! Times the planner on a fleet: 10 000 VMs of mixed sizes onto 1 000 hosts of
//! 128 pCPUs, against first fit in the same run.
//!
//! Prints time, peak memory, hosts used and how broken up the free cores are.
//! Sizes and hosts are drawn with a fixed seed, so that runs can be compared.

use std::time::{Duration, Instant};

use placement::plan::{FleetPlan, NamedHost, Packing, PlanRules, Size, VmWish, plan_fleet};
use topology::{Cache, CacheKind, Host, Node, Pcpu, PcpuSet};

const HOSTS: usize = 1000;
const VMS: usize = 10_000;

/// 2 sockets of 32 cores of 2 threads, 8 cores around a last-level cache.
const SOCKETS: u32 = 2;
const CORES: u32 = 64;
const CORES_IN_CACHE: u32 = 8;

fn host(name: &str, node_gib: u64) -> Host {
    let mut host =
        Host { arch: Some("x86_64".into()), hostname: Some(name.to_owned()), ..Host::default() };
    let in_socket = CORES / SOCKETS;
    host.pcpus = (0..CORES * 2)
        .map(|id| {
            let core = id % CORES;
            Pcpu {
                id,
                online: true,
                socket: Some(core / in_socket),
                die: Some(0),
                core: Some(core),
                thread: Some(id / CORES),
                node: Some(core / in_socket),
                ..Pcpu::default()
            }
        })
        .collect();
    let around = |first: u32, count: u32| -> PcpuSet {
        (0..2).flat_map(|thread| (0..count).map(move |at| thread * CORES + first + at)).collect()
    };
    let cache = |level, pcpus| Cache { level, kind: CacheKind::Unified, size_bytes: None, pcpus };
    host.caches = (0..CORES)
        .map(|core| cache(2, around(core, 1)))
        .chain(
            (0..CORES / CORES_IN_CACHE)
                .map(|at| cache(3, around(at * CORES_IN_CACHE, CORES_IN_CACHE))),
        )
        .collect();
    host.nodes = (0..SOCKETS)
        .map(|id| Node {
            id,
            pcpus: around(id * in_socket, in_socket),
            memory_bytes: Some(node_gib << 30),
            distances: (0..SOCKETS).map(|to| (to, if to == id { 10 } else { 32 })).collect(),
            ..Node::default()
        })
        .collect();
    host
}

/// A small generator of its own: the same numbers for ever.
///
/// Source: Marsaglia, "Xorshift RNGs" (2003).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// vCPUs and how many of a hundred VMs have them: many small, a few that fill
/// a host.
const SIZES: [(u32, u64); 7] = [(2, 34), (4, 26), (8, 18), (16, 12), (32, 7), (64, 2), (96, 1)];
/// GiB for each vCPU: for computing, for all, for databases.
const GIB_PER_VCPU: [u64; 3] = [2, 4, 8];

fn wishes() -> Vec<VmWish> {
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let mut wishes = Vec::with_capacity(VMS);
    for vm in 0..VMS {
        let mut at = draw.below(100);
        let (vcpus, _) = SIZES
            .into_iter()
            .find(|(_, share)| {
                let found = at < *share;
                at = at.saturating_sub(*share);
                found
            })
            .expect("the shares make a hundred");
        let gib = GIB_PER_VCPU[draw.below(3) as usize] * u64::from(vcpus);
        // More than a host has is nobody's test.
        wishes.push(VmWish::new(&format!("vm-{vm}"), vcpus, Size::gib(gib.min(400))));
    }
    wishes
}

/// Peak memory of this process so far.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

fn timed(hosts: &[NamedHost], wishes: &[VmWish], packing: Packing) -> (FleetPlan, Duration) {
    let start = Instant::now();
    let plan = plan_fleet(hosts, wishes, &PlanRules::default(), packing);
    (plan, start.elapsed())
}

fn main() {
    let made: Vec<Host> = (0..HOSTS)
        .map(|at| host(&format!("host-{at}"), if at % 4 == 0 { 512 } else { 256 }))
        .collect();
    let hosts: Vec<NamedHost> = made
        .iter()
        .map(|host| NamedHost { name: host.hostname.as_deref().unwrap_or_default(), host })
        .collect();
    let wishes = wishes();
    let vcpus: u32 = wishes.iter().map(|wish| wish.vcpus).sum();
    let before = peak_mib();
    println!("{VMS} VMs with {vcpus} vCPUs onto {HOSTS} hosts of {} pCPUs", CORES * 2);
    let (best, best_time) = timed(&hosts, &wishes, Packing::BestFit);
    let best_peak = peak_mib();
    let (first, first_time) = timed(&hosts, &wishes, Packing::FirstFit);
    println!("{:<28}{:>12}{:>12}{:>9}", "", "plan", "first fit", "ratio");
    let row = |what: &str, plan: f64, first: f64, digits: usize| {
        println!("{what:<28}{plan:>12.digits$}{first:>12.digits$}{:>9.2}", plan / first);
    };
    row("time (s)", best_time.as_secs_f64(), first_time.as_secs_f64(), 2);
    row("VMs placed", best.vms.len() as f64, first.vms.len() as f64, 0);
    let (a, b) = (best.totals, first.totals);
    row("hosts used", a.hosts_used as f64, b.hosts_used as f64, 0);
    row("VMs over several nodes", a.over_nodes as f64, b.over_nodes as f64, 0);
    row("VMs over several caches", a.over_caches as f64, b.over_caches as f64, 0);
    row("free cores on used hosts", f64::from(a.free_cores), f64::from(b.free_cores), 0);
    row("fragmentation", a.fragmentation, b.fragmentation, 4);
    println!(
        "peak memory (MiB)           {best_peak:>12.0}  of it {before:.0} for the hosts' descriptions"
    );
}
