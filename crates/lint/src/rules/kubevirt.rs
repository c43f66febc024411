//! What KubeVirt does to a VM that asks for pCPUs of its own.

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::forecast::HostForecast;
use crate::read::yaml::Node;
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::samples::{POLICIES, TUNED};
use crate::rules::worlds::{
    ANY, KUBEVIRT_0_44, KUBEVIRT_1_7, KUBEVIRT_1_8, NEIGHBOURS, TWO_CACHES, TWO_SOCKETS,
};
use crate::vm::Vm;
use placement::predict::{Ability, KubevirtVersion};
use vmconfig::kubevirt::defaults;

/// Multiqueue costs so many queues a device from here on.
const MANY_QUEUES: u32 = 16;

const NUMA: &str = "\
domain:
  cpu:
    sockets: 1
    maxSockets: 1
    cores: 8
    dedicatedCpuPlacement: true
    numa:
      guestMappingPassthrough: {}
  memory:
    guest: 4Gi
    hugepages:
      pageSize: 2Mi
  devices: {}
";

fn max_sockets(vm: &Vm) -> Option<u32> {
    vm.kube("domain.cpu.maxSockets").and_then(Node::number).filter(|sockets| *sockets > 0)
}

fn sockets(vm: &Vm) -> u32 {
    vm.topology.as_ref().map_or(1, |topology| topology.value.sockets)
}

/// Something of the VMI that asks for iothreads.
fn asks_for_iothreads(vm: &Vm) -> Option<&Node> {
    vm.kube("domain.ioThreadsPolicy").or_else(|| {
        let disks = vm.kube("domain.devices.disks").map(Node::items).unwrap_or_default();
        disks.iter().find_map(|disk| disk.get("dedicatedIOThread").filter(|node| node.is_true()))
    })
}

fn numa_passthrough(vm: &Vm) -> Option<&Node> {
    vm.kube("domain.cpu.numa.guestMappingPassthrough")
}

pub(crate) const OLD_PINNING: Rule = Rule {
    id: "kubevirt-siblings-split",
    severity: Severity::Warning,
    summary: "this KubeVirt pins guest siblings without looking at the host's",
    why: "vCPU i simply gets the i-th pCPU of the pod. Where siblings are numbered i and i+n, every \
          guest with two threads a core has each core's threads on two host cores: the \
          configuration that should be the fastest was measured the slowest.",
    mend: "Update to KubeVirt 0.44.2, 0.45.1 or 0.46.0; until then use threads: 1 or no dedicated \
           pCPUs",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/4687",
        "https://github.com/kubevirt/kubevirt/pull/6251",
    ],
    affected: &[
        AffectedVersions::before(Ability::PlacesByCore),
        AffectedVersions::without_again(Ability::PlacesByCore),
    ],
    check: Check::Vm(old_pinning),
    fires: &[yaml(KUBEVIRT_0_44, TUNED)],
    quiet: &[yaml(ANY, TUNED)],
};

fn old_pinning(vm: &Vm, context: &Context, out: &mut Drafts) {
    // On a known host the pins themselves are predicted.
    if vm.is_dedicated() && vm.threads() > 1 && context.machine.is_none() {
        let topology = vm.topology.as_ref().and_then(|topology| topology.value.threads_at);
        out.at(
            topology.unwrap_or(vm.head),
            format!("KubeVirt {} does not keep the threads of a core together", context.kubevirt),
        );
    }
}

pub(crate) const CORES_ARE_THREADS: Rule = Rule {
    id: "kubevirt-cores-are-threads",
    severity: Severity::Warning,
    summary: "dedicated cores of one thread on a host with SMT are really threads",
    why: "The kubelet hands out whole cores, and KubeVirt fills both threads of one before the next: \
          vCPU 0 and 1 are one host core, while the guest takes them for two. Its scheduler then \
          puts two busy tasks on one core beside an idle one. True in every version.",
    mend: "Say threads: 2 and half as many cores",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-launcher/virtwrap/converter/vcpu/vcpu.go",
        "D. Faggioli et al., \"The cost of containerizing VMs\", KVM Forum 2021",
    ],
    affected: &[],
    check: Check::Vm(cores_are_threads),
    fires: &[yaml(
        TWO_SOCKETS,
        "\
domain:
  cpu:
    maxSockets: 1
    cores: 4
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(TWO_SOCKETS, TUNED)],
};

fn cores_are_threads(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let alone = vm.vcpus.value < 2 || !machine.fits(vm.vcpus.value);
    if !vm.is_dedicated() || vm.threads() > 1 || alone || machine.threads_per_core < 2 {
        return;
    }
    let draft = out.at(
        vm.vcpus.span,
        format!("{} vCPUs look like cores and will be threads of shared cores", vm.vcpus.value),
    );
    if let Some(HostForecast::Pinned(pinned)) = vm.forecast(context) {
        draft.note(format!("KubeVirt {} pins them to {pinned}", context.kubevirt));
    }
}

pub(crate) const IOTHREADS_CRASH: Rule = Rule {
    id: "kubevirt-iothreads-crash",
    severity: Severity::Error,
    summary: "iothreads together with dedicated pCPUs crash virt-launcher",
    why: "The pins of iothreads are computed before the iothreads are: a nil pointer. The VM never \
          starts.",
    mend: "Update to KubeVirt 1.7.5 or 1.8.0, or take ioThreadsPolicy and dedicatedIOThread out",
    sources: &["https://github.com/kubevirt/kubevirt/issues/16271"],
    affected: &[AffectedVersions::with(Ability::IothreadsCrash)],
    check: Check::Vm(iothreads_crash),
    fires: &[yaml(
        KUBEVIRT_1_7,
        "\
domain:
  cpu:
    cores: 4
    dedicatedCpuPlacement: true
  ioThreadsPolicy: auto
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(KUBEVIRT_1_7, TUNED)],
};

fn iothreads_crash(vm: &Vm, context: &Context, out: &mut Drafts) {
    if let Some(asks) = asks_for_iothreads(vm).filter(|_| vm.is_dedicated()) {
        out.at(
            asks.span,
            format!("virt-launcher of KubeVirt {} crashes on this", context.kubevirt),
        );
    }
}

pub(crate) const IOTHREADS_HEADROOM: Rule = Rule {
    id: "kubevirt-iothreads-headroom",
    severity: Severity::Error,
    summary: "iothreads with room for CPU hot-plug crash virt-launcher",
    why: "The pod's pCPUs are divided over all vCPUs that hot-plug could add (four times the sockets \
          unless maxSockets says otherwise), which is more than there are: slice out of range.",
    mend: "Set maxSockets equal to sockets",
    sources: &["https://github.com/kubevirt/kubevirt/issues/17247"],
    affected: &[AffectedVersions::kubevirt(Some("1.8.0"), Some("1.9.0"))],
    check: Check::Vm(iothreads_headroom),
    fires: &[yaml(
        KUBEVIRT_1_8,
        "\
domain:
  cpu:
    sockets: 1
    cores: 4
    dedicatedCpuPlacement: true
  ioThreadsPolicy: auto
  memory:
    guest: 4Gi
  devices: {}
",
    )
    .mended(&[("sockets: 1", "sockets: 1\n    maxSockets: 1")])],
    quiet: &[],
};

fn iothreads_headroom(vm: &Vm, _: &Context, out: &mut Drafts) {
    let room = max_sockets(vm).is_none_or(|most| most > sockets(vm));
    if let Some(asks) = asks_for_iothreads(vm).filter(|_| vm.is_dedicated() && room) {
        out.at(asks.span, format!("iothreads, and maxSockets is not {}", sockets(vm)));
    }
}

pub(crate) const POOL_OUTSIDE_POD: Rule = Rule {
    id: "kubevirt-pool-outside-pod",
    severity: Severity::Error,
    summary: "the supplemental pool is pinned to pCPUs that are not the pod's",
    why: "Its threads are pinned to the pCPU numbers after the vCPU count, whatever pCPUs the pod \
          got: libvirt fails to set the affinity, or the threads run on others' pCPUs.",
    mend: "Update to KubeVirt 1.8.5 or 1.9.0, or use the policy auto",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/16992",
        "https://github.com/kubevirt/kubevirt/pull/16996",
    ],
    affected: &[AffectedVersions::between(Ability::SupplementalPool, Ability::PoolInsidePod)],
    check: Check::Vm(pool_outside_pod),
    fires: &[yaml(
        KUBEVIRT_1_8,
        "\
domain:
  cpu:
    cores: 4
    maxSockets: 1
    dedicatedCpuPlacement: true
  ioThreadsPolicy: supplementalPool
  ioThreads:
    supplementalPoolThreadCount: 2
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(KUBEVIRT_1_8, TUNED)],
};

fn pool_outside_pod(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(policy) = vm.kube("domain.ioThreadsPolicy")
        && policy.text() == Some("supplementalPool")
        && vm.is_dedicated()
    {
        let vcpus = vm.vcpus.value;
        out.at(policy.span, format!("The pool will be pinned to pCPU {vcpus} and those behind it"));
    }
}

pub(crate) const SIBLING_RANGES: Rule = Rule {
    id: "kubevirt-sibling-ranges",
    severity: Severity::Warning,
    summary: "KubeVirt takes this host for one without SMT",
    why: "libvirt writes neighbouring siblings as a range, 0-1, and virt-handler drops what is not a \
          list: every pCPU looks like a core of its own, and guest cores are put together from \
          threads as they come.",
    mend: "Check the pins of the running VM; ask for an even number of pCPUs in all pods, so that \
           cores stay whole",
    sources: &["https://github.com/kubevirt/kubevirt/pull/12652"],
    affected: &[AffectedVersions::with(Ability::LosesSiblingRanges)],
    check: Check::Vm(sibling_ranges),
    fires: &[yaml(NEIGHBOURS, TUNED)],
    quiet: &[yaml(TWO_SOCKETS, TUNED)],
};

fn sibling_ranges(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let ranged = machine.cores.iter().find(|core| core.to_string().contains('-'));
    if let Some(core) = ranged.filter(|_| vm.is_dedicated() && vm.threads() > 1) {
        let at = vm.topology.as_ref().and_then(|topology| topology.value.threads_at);
        out.at(
            at.unwrap_or(vm.head),
            format!("The host's siblings are neighbours ({core}), which KubeVirt does not read"),
        );
    }
}

pub(crate) const ARM_MAX_SOCKETS: Rule = Rule {
    id: "kubevirt-arm-max-sockets",
    severity: Severity::Error,
    summary: "maxSockets with dedicated pCPUs on arm64 crashes virt-launcher",
    why: "Hot-pluggable vCPUs have no pin, and the code for arm64 reads it: a nil pointer.",
    mend: "Set maxSockets equal to sockets, or update to KubeVirt 1.9.0",
    sources: &["https://github.com/kubevirt/kubevirt/issues/16395"],
    affected: &[AffectedVersions::before(Ability::HotplugOnArm)],
    check: Check::Vm(arm_max_sockets),
    fires: &[yaml(
        KUBEVIRT_1_8,
        "\
architecture: arm64
domain:
  cpu:
    sockets: 1
    maxSockets: 4
    cores: 4
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )
    .mended(&[("maxSockets: 4", "maxSockets: 1")])],
    quiet: &[],
};

fn arm_max_sockets(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(node) = vm.kube("domain.cpu.maxSockets")
        && vm.is_arm()
        && vm.is_dedicated()
        && max_sockets(vm).is_some_and(|most| most > sockets(vm))
    {
        out.at(node.span, "Hot-plug room on arm64 with dedicated pCPUs")
            .fix(node.span, sockets(vm).to_string());
    }
}

pub(crate) const NUMA_HOTPLUG: Rule = Rule {
    id: "kubevirt-numa-hotplug",
    severity: Severity::Warning,
    summary: "NUMA passthrough with room for CPU hot-plug",
    why: "Since 1.6 KubeVirt defines four times the sockets for hot-plug unless maxSockets says otherwise; the \
          guest nodes hold only those that are enabled. Domains of more vCPUs than KVM recommends \
          on the host, and failing starts, were the result.",
    mend: "Set maxSockets equal to sockets",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/17248",
        "https://github.com/kubevirt/common-instancetypes/issues/436",
    ],
    affected: &[],
    check: Check::Vm(numa_hotplug),
    fires: &[yaml(
        ANY,
        "\
domain:
  cpu:
    sockets: 2
    cores: 26
    dedicatedCpuPlacement: true
    numa:
      guestMappingPassthrough: {}
  memory:
    guest: 4Gi
    hugepages:
      pageSize: 2Mi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, NUMA)],
};

fn numa_hotplug(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(numa) = numa_passthrough(vm).filter(|_| vm.topology.is_some()) else { return };
    let all = domain_vcpus(vm, context);
    if all > vm.vcpus.value {
        let draft = out.at(
            vm.kube("domain.cpu.maxSockets").map_or(numa.span, |node| node.span),
            format!("The domain will have {all} vCPUs, {} of them enabled", vm.vcpus.value),
        );
        let pcpus = context.machine.as_ref().map_or(0, |machine| machine.online.len());
        if pcpus > 0 && all as usize > pcpus {
            draft.note(format!("KVM recommends {pcpus} at most on this host, and QEMU warns"));
        }
    }
}

pub(crate) const HEADROOM_EXCEEDS_HOST: Rule = Rule {
    id: "kubevirt-headroom-exceeds-host",
    severity: Severity::Warning,
    summary: "the vCPUs that could be plugged in are more than the host has pCPUs",
    why: "Since 1.6 KubeVirt defines four times the sockets unless maxSockets says otherwise. QEMU sets up \
          every one of them (memory, APIC ids, queues of multiqueue devices) and warns that they \
          exceed what KVM recommends, which is the host's number of pCPUs; a VM with pCPUs of its \
          own can never have them.",
    mend: "Set maxSockets to what may really be plugged in, for dedicated VMs to sockets",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/17248",
        "https://docs.kernel.org/virt/kvm/api.html",
    ],
    affected: &[AffectedVersions::with(Ability::SocketHotplug)],
    check: Check::Vm(headroom_exceeds_host),
    fires: &[yaml(
        TWO_SOCKETS,
        "\
domain:
  cpu:
    sockets: 2
    cores: 6
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(TWO_SOCKETS, TUNED)],
};

fn headroom_exceeds_host(vm: &Vm, context: &Context, out: &mut Drafts) {
    let of_kubevirt = vm.kubevirt.is_some() && vm.topology.is_some();
    let Some(machine) = context.machine.as_ref().filter(|_| of_kubevirt) else { return };
    let most = domain_vcpus(vm, context);
    let pcpus = machine.online.len();
    // kubevirt-numa-hotplug tells of it where it does more harm.
    let told = numa_passthrough(vm).is_some();
    if !told && most > vm.vcpus.value && most as usize > pcpus && pcpus > 0 {
        let at = vm.kube("domain.cpu.maxSockets").map_or(vm.vcpus.span, |node| node.span);
        out.at(
            at,
            format!("The domain will have {most} vCPUs, KVM recommends {pcpus} at most here"),
        );
    }
}

/// vCPUs with those that can be plugged in.
fn domain_vcpus(vm: &Vm, context: &Context) -> u32 {
    let each = vm.vcpus.value / sockets(vm).max(1);
    let default = || {
        let KubevirtVersion { major, minor, .. } = context.kubevirt;
        let [cores, threads] =
            vm.topology.as_ref().map_or([1, 1], |one| [one.value.cores, one.value.threads]);
        let levels = [sockets(vm), cores, threads];
        defaults::max_sockets((major, minor), vm.kube_architecture(), levels)
    };
    each.saturating_mul(max_sockets(vm).unwrap_or_else(default))
}

pub(crate) const NUMA_MBIND: Rule = Rule {
    id: "kubevirt-numa-mbind",
    severity: Severity::Hint,
    summary: "NUMA passthrough needs a virt-launcher that may bind memory",
    why: "QEMU binds each guest node's memory with mbind(2). Where the container's seccomp profile \
          lets only CAP_SYS_NICE do that and the pod runs without it, QEMU ends with \"cannot bind \
          memory to host NUMA nodes: Operation not permitted\". Reported for 1.8.0-rc.0, with no word \
          yet of what mends it.",
    mend: "Start one such VM on the cluster before relying on it; if it fails so, allow mbind in the \
           nodes' seccomp profile",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/17248",
        "https://man7.org/linux/man-pages/man2/mbind.2.html",
    ],
    affected: &[AffectedVersions::kubevirt(Some("1.8.0"), Some("1.9.0"))],
    check: Check::Vm(numa_mbind),
    fires: &[yaml(KUBEVIRT_1_8, NUMA)],
    quiet: &[yaml(KUBEVIRT_1_8, TUNED)],
};

fn numa_mbind(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(numa) = numa_passthrough(vm) {
        out.at(numa.span, "The pod must be allowed to bind memory to nodes");
    }
}

pub(crate) const SOCKETS_VS_NODES: Rule = Rule {
    id: "kubevirt-sockets-vs-nodes",
    severity: Severity::Warning,
    summary: "the guest's sockets will not follow its nodes",
    why: "guestMappingPassthrough makes a guest node for each host node that the pins touch, and \
          leaves the sockets as they are written: a socket then spans nodes, or a node sockets, and \
          the guest's scheduler builds domains that exist nowhere.",
    mend: "Give the VM as many sockets as host nodes that it will span (one if it fits into one)",
    sources: &["https://github.com/kubevirt/kubevirt/issues/17198"],
    affected: &[],
    check: Check::Vm(sockets_vs_nodes),
    fires: &[yaml(
        TWO_SOCKETS,
        "\
domain:
  cpu:
    sockets: 1
    maxSockets: 1
    cores: 12
    threads: 2
    dedicatedCpuPlacement: true
    numa:
      guestMappingPassthrough: {}
  memory:
    guest: 4Gi
    hugepages:
      pageSize: 2Mi
  devices: {}
",
    )
    .mended(&[
        ("sockets: 1", "sockets: 2"),
        ("maxSockets: 1", "maxSockets: 2"),
        ("cores: 12", "cores: 6"),
    ])],
    quiet: &[],
};

fn sockets_vs_nodes(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(_), Some(topology)) =
        (&context.machine, numa_passthrough(vm), &vm.topology)
    else {
        return;
    };
    let nodes = (vm.vcpus.value as usize).div_ceil(machine.widest_node().max(1));
    let several = machine.nodes().len() > 1 && nodes > 1 && machine.fits(vm.vcpus.value);
    if several && topology.value.sockets as usize != nodes {
        out.at(
            topology.span,
            format!("{} socket(s), and the vCPUs need {nodes} host nodes", topology.value.sockets),
        );
    }
}

pub(crate) const NO_CACHE_INFO: Rule = Rule {
    id: "kubevirt-no-cache-info",
    severity: Severity::Hint,
    summary: "the guest will not see which vCPUs share a last-level cache",
    why: "KubeVirt has no switch for the domain's cache mode: the guest sees one emulated cache a \
          socket, where this host has several a node. Its scheduler wakes tasks across caches.",
    mend: "Keep such VMs within one cache: kubelet's prefer-align-cpus-by-uncorecache",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/10578",
        "https://github.com/kubevirt/kubevirt/issues/1327",
        POLICIES,
    ],
    affected: &[],
    check: Check::Vm(no_cache_info),
    fires: &[yaml(
        TWO_CACHES,
        "\
domain:
  cpu:
    maxSockets: 1
    cores: 6
    threads: 2
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(TWO_CACHES, TUNED)],
};

fn no_cache_info(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = context.machine.as_ref().filter(|_| vm.is_dedicated()) else { return };
    let fits_one_node = vm.vcpus.value as usize <= machine.widest_node();
    if let Some(cache) = machine.widest_cache()
        && cache < machine.widest_node()
        && vm.vcpus.value as usize > cache
        && fits_one_node
    {
        out.at(
            vm.vcpus.span,
            format!("{} vCPUs, and {cache} pCPUs share a cache on this host", vm.vcpus.value),
        );
    }
}

pub(crate) const MULTIQUEUE_MEMORY: Rule = Rule {
    id: "kubevirt-multiqueue-memory",
    severity: Severity::Hint,
    summary: "multiqueue gives every device a queue for each vCPU",
    why: "There is no way to ask for fewer. Each queue costs memory in QEMU and the host's kernel, \
          an interrupt in the guest and, for NICs, a vhost thread that runs on the VM's pCPUs.",
    mend: "Switch it on only for VMs whose network or disks need it",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/18012",
        "https://github.com/kubevirt/kubevirt/pull/6376",
    ],
    affected: &[],
    check: Check::Vm(multiqueue_memory),
    fires: &[yaml(
        ANY,
        "\
domain:
  cpu:
    cores: 32
  devices:
    blockMultiQueue: true
    disks:
    - name: a
      disk:
        bus: virtio
    - name: b
      disk:
        bus: virtio
",
    )
    .mended(&[
        ("cores: 32", "cores: 4"),
        ("    - name: b\n      disk:\n        bus: virtio\n", ""),
    ])],
    quiet: &[],
};

fn multiqueue_memory(vm: &Vm, _: &Context, out: &mut Drafts) {
    for (path, devices) in [
        ("domain.devices.blockMultiQueue", vm.disks.iter().filter(|disk| disk.hard).count()),
        ("domain.devices.networkInterfaceMultiqueue", vm.nics.len()),
    ] {
        if let Some(node) = vm.kube(path).filter(|node| node.is_true())
            && vm.vcpus.value >= MANY_QUEUES
            && devices > 0
        {
            out.at(node.span, format!("{devices} device(s) with {} queues each", vm.vcpus.value));
        }
    }
}

pub(crate) const MULTIFD: Rule = Rule {
    id: "kubevirt-multifd",
    severity: Severity::Warning,
    summary: "this KubeVirt migrates dedicated VMs over several streams",
    why: "Migration by multifd takes CPU time that a VM with dedicated pCPUs does not have to spare; \
          KubeVirt switches it off for such VMs, but not in this version when their number comes \
          from the topology. Migration is slow.",
    mend: "Update KubeVirt, or say the CPUs by resources.limits.cpu",
    sources: &["https://github.com/kubevirt/kubevirt/issues/17879"],
    affected: &[AffectedVersions::kubevirt(Some("1.8.0"), Some("1.8.1"))],
    check: Check::Vm(multifd),
    fires: &[yaml(
        KUBEVIRT_1_8,
        "\
evictionStrategy: LiveMigrate
domain:
  cpu:
    cores: 4
    maxSockets: 1
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(KUBEVIRT_1_8, TUNED)],
};

fn multifd(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let (Some(span), Some(_)) = (vm.migrates, &vm.topology)
        && vm.is_dedicated()
        && vm.kube("domain.resources.limits.cpu").is_none()
    {
        out.at(span, "The VM is to migrate, and its migration will use multifd");
    }
}
