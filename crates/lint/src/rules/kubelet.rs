//! What the kubelet does to a pod with pCPUs of its own.

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::{Node, QuantityValue as _};
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::samples::{POLICIES, TUNED};
use crate::rules::worlds::{
    ANY, EIGHT_NODES, FULL_PCPUS, KUBERNETES_1_32, KUBERNETES_1_32_NO_QUOTA, TWO_SOCKETS,
};
use crate::vm::Vm;

const EVEN_PARITY: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";

pub(crate) const ODD_PCPUS: Rule = Rule {
    id: "kubevirt-odd-pcpus",
    severity: Severity::Warning,
    summary: "the pod asks for an odd number of dedicated pCPUs",
    why: "An isolated emulator thread adds one. With the kubelet's full-pcpus-only the pod is \
          rejected (SMTAlignmentError); without, the last core is shared with another pod, whose \
          load slows that thread at any time.",
    mend: "Let KubeVirt round up: feature gate AlignCPUs and the annotation \
           alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity on the KubeVirt object; or give an \
           even total",
    sources: &[
        "https://github.com/kubevirt/kubevirt/pull/10872",
        "https://github.com/kubevirt/community/pull/247",
        POLICIES,
    ],
    affected: &[],
    check: Check::Vm(odd_pcpus),
    fires: &[yaml(
        FULL_PCPUS,
        "\
domain:
  cpu:
    cores: 2
    threads: 2
    maxSockets: 1
    dedicatedCpuPlacement: true
    isolateEmulatorThread: true
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(FULL_PCPUS, TUNED)],
};

fn odd_pcpus(vm: &Vm, context: &Context, out: &mut Drafts) {
    if !vm.is_dedicated() {
        return;
    }
    let isolate = vm.kube("domain.cpu.isolateEmulatorThread").filter(|node| node.is_true());
    let pool = vm.kube("domain.ioThreads.supplementalPoolThreadCount").and_then(Node::number);
    let base = vm.vcpus.value.saturating_add(pool.unwrap_or(0));
    let annotated = vm
        .kubevirt
        .as_ref()
        .is_some_and(|kubevirt| kubevirt.annotations.iter().any(|name| name == EVEN_PARITY));
    let emulator = match (isolate.is_some(), annotated && base.is_multiple_of(2)) {
        (true, true) => 2,
        (true, false) => 1,
        (false, _) => 0,
    };
    let total = base.saturating_add(emulator);
    // On a host without SMT, or one that nobody spoke of, odd is as good.
    let smt = context.machine.as_ref().is_some_and(|machine| machine.threads_per_core > 1);
    let full = context.kubelet.options.full_pcpus_only;
    if total % 2 == 1 && (smt || full) && (total > 1 || full) {
        let span = isolate.map_or(vm.vcpus.span, |node| node.span);
        let message = if full {
            format!("{total} pCPUs: the kubelet rejects the pod with full-pcpus-only")
        } else {
            format!("{total} pCPUs: one core is shared with another pod")
        };
        out.at(span, message);
    }
}

pub(crate) const DEDICATED_THROTTLED: Rule = Rule {
    id: "kubevirt-dedicated-throttled",
    severity: Severity::Warning,
    summary: "this kubelet throttles pods that have pCPUs of their own",
    why: "Dedicated pCPUs imply a CPU limit, and the kubelet turns it into a CFS quota although the \
          pCPUs are exclusive: the smallest overrun of the accounting stops all vCPUs for the rest \
          of a period. Kubernetes 1.33 leaves the quota out.",
    mend: "Update Kubernetes, or start the kubelet with --cpu-cfs-quota=false on such nodes",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/12970",
        "https://github.com/k0sproject/k0s/issues/4954",
    ],
    affected: &[AffectedVersions::kubernetes(Some("1.33.0"))],
    check: Check::Vm(dedicated_throttled),
    fires: &[yaml(KUBERNETES_1_32, TUNED)],
    quiet: &[yaml(ANY, TUNED), yaml(KUBERNETES_1_32_NO_QUOTA, TUNED)],
};

fn dedicated_throttled(vm: &Vm, context: &Context, out: &mut Drafts) {
    if !context.kubelet.cfs_quota {
        return;
    }
    if let Some(node) = vm.kube("domain.cpu.dedicatedCpuPlacement").filter(|node| node.is_true()) {
        out.at(node.span, format!("Kubernetes {} sets a quota on the pod", context.kubernetes));
    }
}

pub(crate) const MEMORY_LIMIT_TIGHT: Rule = Rule {
    id: "kubevirt-memory-tight",
    severity: Severity::Warning,
    summary: "a memory limit that leaves nothing for QEMU",
    why: "Dedicated pCPUs make the memory limit equal to the request, so the pod is killed when QEMU, \
          libvirt and virt-launcher together need more than KubeVirt's estimate on top of the guest. \
          A limit written by hand at the guest's size leaves the least room.",
    mend: "Leave limits.memory out; raise additionalGuestMemoryOverheadRatio on the KubeVirt object",
    sources: &["https://github.com/kubevirt/kubevirt/issues/10959"],
    affected: &[],
    check: Check::Vm(memory_limit_tight),
    fires: &[yaml(
        ANY,
        "\
domain:
  cpu:
    cores: 4
    maxSockets: 1
    dedicatedCpuPlacement: true
  memory:
    guest: 8Gi
  resources:
    limits:
      memory: 8Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, TUNED)],
};

fn memory_limit_tight(vm: &Vm, _: &Context, out: &mut Drafts) {
    let guest = vm.kube("domain.memory.guest").and_then(Node::bytes);
    if let (Some(limit), Some(guest)) = (vm.kube("domain.resources.limits.memory"), guest)
        && vm.is_dedicated()
        && limit.bytes() == Some(guest)
    {
        out.at(limit.span, "The limit is the guest's memory, and it is a hard one");
    }
}

pub(crate) const DEVICE_NODE: Rule = Rule {
    id: "kubevirt-device-node",
    severity: Severity::Hint,
    summary: "nothing keeps a passed-through device on the node of the vCPUs",
    why: "The device plugin and the CPU manager choose apart; a device in another NUMA node is reached \
          over the interconnect, and the guest is not told where it is.",
    mend: "Start the kubelet with topology-manager-policy=single-numa-node (or restricted); KubeVirt's \
           gate PCINUMAAwareTopology shows the guest where the device is",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/13926",
        "https://github.com/kubevirt/kubevirt/pull/16632",
        "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/",
    ],
    affected: &[],
    check: Check::Vm(device_node),
    fires: &[yaml(
        TWO_SOCKETS,
        "\
domain:
  cpu:
    maxSockets: 1
    cores: 2
    threads: 2
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices:
    gpus:
    - name: gpu1
      deviceName: vendor.example/gpu
",
    )],
    quiet: &[yaml(TWO_SOCKETS, TUNED)],
};

fn device_node(vm: &Vm, context: &Context, out: &mut Drafts) {
    use placement::predict::kubelet::TopologyPolicy;
    let nodes = context.machine.as_ref().map_or(0, |machine| machine.nodes().len());
    let strict = matches!(
        context.kubelet.topology,
        TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode
    );
    if let Some(device) = vm.passthrough.filter(|_| vm.is_dedicated() && nodes > 1 && !strict) {
        out.at(device, format!("The device may be on any of {nodes} nodes"));
    }
}

pub(crate) const DISTRIBUTE_WRONG: Rule = Rule {
    id: "kubelet-distributes-wrong",
    severity: Severity::Warning,
    summary: "this kubelet distributes pCPUs over the wrong nodes",
    why: "With distribute-cpus-across-numa and four nodes or more to use, the best combination is \
          overwritten while later ones are tried: asked for 16 pCPUs on 8 nodes of 4, it gives 0-11 \
          and 28-31 instead of 0-15.",
    mend: "Leave distribute-cpus-across-numa off on such hosts until it is mended",
    sources: &["https://github.com/kubernetes/kubernetes/issues/141237"],
    affected: &[AffectedVersions::kubernetes(None)],
    check: Check::Vm(distribute_wrong),
    fires: &[yaml(
        EIGHT_NODES,
        "\
domain:
  cpu:
    maxSockets: 1
    cores: 16
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(EIGHT_NODES, TUNED)],
};

fn distribute_wrong(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = context.machine.as_ref().filter(|_| vm.is_dedicated()) else { return };
    let needed = (vm.vcpus.value as usize).div_ceil(machine.widest_node().max(1));
    if context.kubelet.options.distribute_across_numa
        && needed >= 4
        && machine.nodes().len() > needed
    {
        out.at(
            vm.vcpus.span,
            format!("{} vCPUs need {needed} of {} nodes", vm.vcpus.value, machine.nodes().len()),
        );
    }
}
