//! The hosts and versions that examples are for.

use topology::{
    Cache, CacheKind, CoreKind, Host, HugePagePool, KernelModule, KernelSettings, Node, Pcpu,
    PcpuSet,
};

use crate::cluster::Cluster;
use crate::context::{Context, ExampleHost};
use crate::rules::offered_texts::{CAPABILITIES, DOMCAPABILITIES, QMP};
use crate::version::ReleaseVersion;
use placement::predict::KubevirtVersion;
use placement::predict::node::NodeOffer;
use vmconfig::PciAddress;
use vmconfig::offers::{self, Offers};

const GIB: u64 = 1 << 30;

/// `nodes` sockets, each a node, with `cores` cores of `threads` threads under
/// one cache. Siblings are far apart (`i` and `i + cores`) or neighbours.
fn host(sockets: u32, cores: u32, threads: u32, neighbours: bool) -> Host {
    let all = sockets * cores;
    let mut pcpus: Vec<Pcpu> = (0..all * threads)
        .map(|id| {
            let (core, thread) =
                if neighbours { (id / threads, id % threads) } else { (id % all, id / all) };
            let socket = core / cores;
            Pcpu {
                id,
                online: true,
                socket: Some(socket),
                die: Some(0),
                core: Some(core % cores),
                thread: Some(thread),
                node: Some(socket),
                ..Pcpu::default()
            }
        })
        .collect();
    pcpus.sort_by_key(|pcpu| pcpu.id);
    let of = |socket: u32| -> PcpuSet {
        pcpus.iter().filter(|pcpu| pcpu.socket == Some(socket)).map(|pcpu| pcpu.id).collect()
    };
    let caches = (0..sockets).map(|socket| cache(of(socket))).collect();
    let nodes = (0..sockets)
        .map(|id| Node {
            id,
            pcpus: of(id),
            memory_bytes: Some(16 * GIB),
            free_bytes: Some(15 * GIB),
            ..Node::default()
        })
        .collect();
    Host {
        arch: Some("x86_64".to_owned()),
        kernel: Some("6.1.0".to_owned()),
        cpu_model: Some("Intel(R) Xeon(R) Silver 4208 CPU @ 2.10GHz".to_owned()),
        memory_bytes: Some(u64::from(sockets) * 16 * GIB),
        pcpus,
        caches,
        nodes,
        vhost: vec![KernelModule { name: "vhost_net".to_owned(), ..KernelModule::default() }],
        settings: KernelSettings {
            thp_enabled: Some("madvise".to_owned()),
            ksm_run: Some(0),
            numa_balancing: Some(0),
            clock_source: Some("tsc".to_owned()),
            ..KernelSettings::default()
        },
        ..Host::default()
    }
}

fn cache(pcpus: PcpuSet) -> Cache {
    Cache { level: 3, kind: CacheKind::Unified, size_bytes: Some(11 << 20), pcpus }
}

fn on(host: Host) -> Context {
    Context::default().on(host)
}

fn source_host() -> Host {
    host(2, 8, 2, false)
}

macro_rules! worlds {
    ($($name:ident = $said:literal, $build:expr;)*) => {
        $(pub(crate) const $name: ExampleHost = ExampleHost { said: $said, build: || $build };)*
    };
}

/// A host that says this of its QEMU and libvirt.
fn offering(texts: &[&str]) -> Context {
    let mut offers = Offers::default();
    for text in texts {
        offers.add(offers::read("example", text).expect("the examples are right"));
    }
    Context { offers: Some(offers), ..Context::default() }
}

worlds! {
    ANY = "", Context::default();
    TWO_SOCKETS = "on 2 sockets of 8 cores of 2 threads, siblings i and i+16, a node each",
        on(source_host());
    NEIGHBOURS = "on 8 cores of 2 threads, siblings 2i and 2i+1", on(host(1, 8, 2, true));
    NO_SMT = "on 8 cores of 1 thread", on(host(1, 8, 1, true));
    FOUR_CORES = "on 4 cores of 1 thread", on(host(1, 4, 1, true));
    TWO_CACHES = "on one node of 8 cores of 2 threads, a last-level cache for each 4 cores", {
        let mut host = host(1, 8, 2, false);
        host.caches = vec![cache([0, 1, 2, 3, 8, 9, 10, 11].into_iter().collect()),
            cache([4, 5, 6, 7, 12, 13, 14, 15].into_iter().collect())];
        on(host)
    };
    AMD = "on an AMD host", {
        let mut host = source_host();
        host.cpu_model = Some("AMD EPYC 7302 16-Core Processor".to_owned());
        on(host)
    };
    ISOLATED = "on 2 sockets of 8 cores of 2 threads, isolcpus=1-7,17-23", {
        let mut host = source_host();
        host.isolated = "1-7,17-23".parse().ok();
        on(host)
    };
    OFFLINE = "on 2 sockets of 8 cores of 2 threads, pCPUs 16-31 offline", {
        let mut host = source_host();
        for pcpu in &mut host.pcpus {
            pcpu.online = pcpu.id < 16;
        }
        on(host)
    };
    RESERVED = "with --reserved 0-1", Context {
        reserved: [0, 1].into_iter().collect(),
        ..Context::default()
    };
    BUSY = "on a host whose pCPU 3 serves 2400 interrupts of devices a second", {
        let mut context = on(source_host());
        context.busy.interrupts_per_s.insert(3, 2400.0);
        context
    };
    NOHZ = "on 2 sockets of 8 cores of 2 threads, nohz_full=1-7,17-23", {
        let mut host = source_host();
        host.nohz_full = "1-7,17-23".parse().ok();
        on(host)
    };
    DEVICES = "on 2 sockets of 8 cores of 2 threads, a node each, 0000:af:00.0 on node 1", {
        let mut context = on(source_host());
        let device = PciAddress { domain: 0, bus: 0xaf, slot: 0, function: 0 };
        context.device_nodes.insert(device, 1);
        context
    };
    HUGE_ON_NODE_1 = "on 2 nodes, 4096 free huge pages of 2 MiB on node 1", {
        let mut host = source_host();
        let pool = |pages| HugePagePool { page_bytes: 2 << 20, total: pages, free: pages };
        host.nodes[0].huge_pages = vec![pool(0)];
        host.nodes[1].huge_pages = vec![pool(4096)];
        host.huge_pages = vec![pool(4096)];
        on(host)
    };
    THP_NEVER = "on a host with transparent huge pages set to never", {
        let mut host = source_host();
        host.settings.thp_enabled = Some("never".to_owned());
        on(host)
    };
    KSM = "on a host where KSM runs", {
        let mut host = source_host();
        host.settings.ksm_run = Some(1);
        on(host)
    };
    BALANCING = "on a host with automatic NUMA balancing", {
        let mut host = source_host();
        host.settings.numa_balancing = Some(1);
        on(host)
    };
    NO_VHOST = "on a host without the module vhost_net", {
        let mut host = source_host();
        host.vhost.clear();
        host.kvm.device = Some(true);
        on(host)
    };
    HPET_HOST = "on a host whose clock source is hpet", {
        let mut host = source_host();
        host.settings.clock_source = Some("hpet".to_owned());
        on(host)
    };
    OLD_KERNEL = "on a host with Linux 3.10", {
        let mut host = source_host();
        host.kernel = Some("3.10.0-327.el7.x86_64".to_owned());
        on(host)
    };
    ONLY_PAUSE = "on a host whose KVM can leave out exits by PAUSE alone", {
        let mut host = source_host();
        host.kvm.disable_exits = Some(1 << 2);
        on(host)
    };
    PLE = "on a host with pause-loop exiting", {
        let mut host = host(2, 16, 1, false);
        host.kvm.modules = vec![KernelModule {
            name: "kvm_intel".to_owned(),
            parameters: [("ple_gap".to_owned(), "128".to_owned())].into(),
        }];
        on(host)
    };
    PLE_OFF = "on a host with pause-loop exiting switched off", {
        let mut host = host(2, 16, 1, false);
        host.kvm.modules = vec![KernelModule {
            name: "kvm_intel".to_owned(),
            parameters: [("ple_gap".to_owned(), "0".to_owned())].into(),
        }];
        on(host)
    };
    FAR_NODES = "on 4 nodes that are not equally far from each other", {
        let mut host = host(4, 4, 1, false);
        for at in 0..4_u32 {
            let far = |to: u32| if at == to { 10 } else if at / 2 == to / 2 { 12 } else { 32 };
            host.nodes[at as usize].distances = (0..4).map(|to| (to, far(to))).collect();
        }
        on(host)
    };
    EIGHT_NODES = "on 8 nodes of 4 pCPUs, Kubernetes 1.36.3, distribute-cpus-across-numa", {
        let mut context = on(host(8, 4, 1, true));
        context.kubelet.options.distribute_across_numa = true;
        context
    };
    FULL_PCPUS = "with --kubelet full-pcpus-only", {
        let mut context = Context::default();
        context.kubelet.options.full_pcpus_only = true;
        context
    };
    FULL_PCPUS_HERE = "on 2 sockets of 8 cores of 2 threads, with --kubelet full-pcpus-only", {
        let mut context = on(source_host());
        context.kubelet.options.full_pcpus_only = true;
        context
    };
    OFFERS = "on a host with QEMU 7.2, without hle and rtm, UEFI and SEV (virsh capabilities and \
              domcapabilities)",
        offering(&[CAPABILITIES, DOMCAPABILITIES]);
    OFFERS_OF_QEMU = "on a host with QEMU 7.2, without hle and rtm (QMP)", offering(&[QMP]);
    HYBRID = "on 8 cores of 1 thread, 0-3 performance cores and 4-7 efficiency cores", {
        let mut host = host(1, 8, 1, true);
        for pcpu in &mut host.pcpus {
            pcpu.kind =
                Some(if pcpu.id < 4 { CoreKind::Performance } else { CoreKind::Efficiency });
        }
        on(host)
    };
    NODES_NEARLY_FULL = "on 2 nodes of 16 GiB, of which 6 GiB are free", {
        let mut host = source_host();
        for node in &mut host.nodes {
            node.free_bytes = Some(6 * GIB);
        }
        on(host)
    };
    KUBEVIRT_0_44_HERE = "on 2 sockets of 8 cores of 2 threads, for KubeVirt 0.44.0", {
        let mut context = on(source_host());
        context.kubevirt = KubevirtVersion::new(0, 44, 0);
        context
    };
    KUBEVIRT_0_44 = "for KubeVirt 0.44.0", kubevirt(KubevirtVersion::new(0, 44, 0));
    KUBEVIRT_1_0 = "for KubeVirt 1.0.0", kubevirt(KubevirtVersion::new(1, 0, 0));
    KUBEVIRT_1_7 = "for KubeVirt 1.7.0", kubevirt(KubevirtVersion::new(1, 7, 0));
    KUBEVIRT_1_8 = "for KubeVirt 1.8.0", kubevirt(KubevirtVersion::new(1, 8, 0));
    NO_GATES = "for a cluster without feature gates, RebootPolicy disabled", Context {
        cluster: Some(Cluster {
            disabled_gates: ["RebootPolicy".to_owned()].into(),
            ..Cluster::default()
        }),
        ..Context::default()
    };
    CLUSTER = "for a cluster of 2 nodes of 8 CPUs, one of them with static CPU management", Context {
        nodes: [node("one", "true"), node("two", "false")].into(),
        ..Context::default()
    };
    ISOLATED_NODE = "on a node with isolcpus=2-7 in its MachineConfig", Context {
        isolated: (2..8).collect(),
        ..Context::default()
    };
    HOST_DEVICES = "for a cluster with the feature gate HostDevices", Context {
        cluster: Some(Cluster { gates: ["HostDevices".to_owned()].into(), ..Cluster::default() }),
        ..Context::default()
    };
    KUBERNETES_1_32 = "for Kubernetes 1.32", Context {
        kubernetes: ReleaseVersion(1, 32, 0),
        ..Context::default()
    };
    KUBERNETES_1_32_NO_QUOTA = "for Kubernetes 1.32 with cpuCFSQuota: false", {
        let mut context = Context { kubernetes: ReleaseVersion(1, 32, 0), ..Context::default() };
        context.kubelet.cfs_quota = false;
        context
    };
}

/// A node of 8 CPUs and 16 GiB.
fn node(name: &str, cpu_manager: &str) -> NodeOffer {
    let labels = [
        ("kubernetes.io/arch", "amd64"),
        ("kubevirt.io/schedulable", "true"),
        ("kubevirt.io/cpumanager", cpu_manager),
    ];
    NodeOffer {
        name: name.to_owned(),
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        takes_pods: true,
        cpu_milli: 8000,
        memory_bytes: 16 * GIB,
        ..NodeOffer::default()
    }
}

fn kubevirt(version: KubevirtVersion) -> Context {
    Context { kubevirt: version, ..Context::default() }
}
