//! What the kubelet and KubeVirt will do with this VM on this host.

use placement::predict::{FindingKind, findings};

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::forecast::{HostForecast, PinnedVm};
use crate::rule::{Check, Rule, yaml};
use crate::rules::samples::{POLICIES, TUNED};
use crate::rules::worlds::{FULL_PCPUS_HERE, KUBEVIRT_0_44_HERE, TWO_SOCKETS};
use crate::vm::Vm;

const PINNING: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-launcher/virtwrap/\
                       converter/vcpu/vcpu.go";

/// More vCPUs than this are no table for a message.
const SHOWN_VCPUS: usize = 8;

pub(crate) const REJECTED: Rule = Rule {
    id: "kubelet-rejects",
    severity: Severity::Error,
    summary: "the kubelet will reject the VM's pod on this host",
    why: "The static CPU manager policy and the topology manager decide when the pod is already on \
          its node: the pod fails there and the VM does not start, though the scheduler saw room.",
    mend: "Ask for a number of pCPUs that the kubelet's options and the host allow",
    sources: &[POLICIES, "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/"],
    affected: &[],
    check: Check::Vm(rejected),
    fires: &[yaml(
        FULL_PCPUS_HERE,
        "\
domain:
  cpu:
    cores: 3
    maxSockets: 1
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(FULL_PCPUS_HERE, TUNED)],
};

fn rejected(vm: &Vm, context: &Context, out: &mut Drafts) {
    if let Some(HostForecast::Refused(why)) = vm.forecast(context) {
        out.at(vm.vcpus.span, format!("On this host the VM does not start: {why}"));
    }
}

pub(crate) const SIBLINGS: Rule = Rule {
    id: "kubevirt-will-split-siblings",
    severity: Severity::Warning,
    summary: "KubeVirt will pin threads of one guest core to different host cores on this host",
    why: "Predicted from the kubelet's choice of pCPUs and this KubeVirt's algorithm, on an otherwise \
          empty host. The guest's scheduler then takes for one core what is two.",
    mend: "Update KubeVirt, or choose threads so that whole host cores are used",
    sources: &[PINNING, "https://github.com/kubevirt/kubevirt/issues/4687"],
    affected: &[],
    check: Check::Vm(siblings),
    fires: &[yaml(KUBEVIRT_0_44_HERE, TUNED)],
    quiet: &[yaml(TWO_SOCKETS, TUNED)],
};

fn siblings(vm: &Vm, context: &Context, out: &mut Drafts) {
    predicted(vm, context, &[FindingKind::GuestCoreSplit], out);
}

pub(crate) const NODES_HIDDEN: Rule = Rule {
    id: "kubevirt-will-hide-nodes",
    severity: Severity::Warning,
    summary: "KubeVirt will spread the VM over nodes that the guest does not see, on this host",
    why: "Predicted: the kubelet takes pCPUs of several nodes, and without guestMappingPassthrough the \
          guest has one node. It can't keep memory near the vCPU that uses it.",
    mend: "Add cpu.numa.guestMappingPassthrough with huge pages, or fit the VM into one node",
    sources: &[PINNING, "https://kubevirt.io/user-guide/compute/numa/"],
    affected: &[],
    check: Check::Vm(nodes_hidden),
    fires: &[yaml(
        TWO_SOCKETS,
        "\
domain:
  cpu:
    maxSockets: 1
    cores: 12
    threads: 2
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(TWO_SOCKETS, TUNED)],
};

fn nodes_hidden(vm: &Vm, context: &Context, out: &mut Drafts) {
    predicted(vm, context, &[FindingKind::NodesHidden], out);
}

pub(crate) const MEMORY_UNEVEN: Rule = Rule {
    id: "kubevirt-memory-uneven",
    severity: Severity::Warning,
    summary: "KubeVirt will split the memory evenly over unevenly filled nodes on this host",
    why: "guestMappingPassthrough gives each guest node the same memory, however many vCPUs it has, \
          and asks each host node for as many huge pages: the vCPUs of the fuller node run out of \
          near memory first, and a node with fewer huge pages keeps the VM from starting.",
    mend: "Choose vCPUs so that every node gets as many (distribute-cpus-across-numa), or fit the VM \
           into one node",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/6981",
        "https://github.com/kubevirt/kubevirt/issues/14854",
    ],
    affected: &[],
    check: Check::Vm(memory_uneven),
    fires: &[yaml(
        TWO_SOCKETS,
        "\
domain:
  cpu:
    sockets: 2
    maxSockets: 2
    cores: 5
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
    )],
    quiet: &[yaml(TWO_SOCKETS, TUNED)],
};

fn memory_uneven(vm: &Vm, context: &Context, out: &mut Drafts) {
    predicted(vm, context, &[FindingKind::MemoryUneven], out);
}

pub(crate) const IOTHREADS: Rule = Rule {
    id: "kubevirt-iothread-on-vcpu",
    severity: Severity::Hint,
    summary: "KubeVirt will run iothreads on the vCPUs' pCPUs on this host",
    why: "Predicted: with the policies shared and auto the iothreads are dealt over the pod's own \
          pCPUs, where the vCPUs are pinned. Under disk load they take turns.",
    mend: "Use ioThreadsPolicy: supplementalPool, which asks for pCPUs of its own (from KubeVirt 1.9)",
    sources: &[
        "https://kubevirt.io/user-guide/storage/disks_and_volumes/",
        "https://github.com/kubevirt/kubevirt/issues/4182",
    ],
    affected: &[],
    check: Check::Vm(iothreads),
    fires: &[yaml(
        TWO_SOCKETS,
        "\
domain:
  cpu:
    maxSockets: 1
    cores: 2
    threads: 2
    dedicatedCpuPlacement: true
  ioThreadsPolicy: auto
  memory:
    guest: 4Gi
  devices:
    disks:
    - name: data
      dedicatedIOThread: true
      disk:
        bus: virtio
",
    )],
    quiet: &[yaml(TWO_SOCKETS, TUNED)],
};

fn iothreads(vm: &Vm, context: &Context, out: &mut Drafts) {
    predicted(vm, context, &[FindingKind::IothreadOnVcpu, FindingKind::IothreadOutside], out);
}

/// Each vCPU with its pCPU and where that is; of big VMs the first ones.
fn table(pinned: &PinnedVm, context: &Context) -> String {
    let place = |pcpu: u32| {
        let found = context.machine.as_ref().and_then(|machine| machine.host.pcpu(pcpu));
        let of = |what: &str, number: Option<u32>| {
            number.map(|number| format!("{what} {number}")).into_iter()
        };
        found.map_or_else(String::new, |seat| {
            let parts = of("core", seat.core).chain(of("socket", seat.socket));
            parts.chain(of("node", seat.node)).collect::<Vec<_>>().join(", ")
        })
    };
    let vcpus = &pinned.pins.vcpus;
    let mut rows: Vec<String> = vcpus
        .iter()
        .enumerate()
        .take(SHOWN_VCPUS)
        .map(|(vcpu, pcpu)| format!("vCPU {vcpu} to pCPU {pcpu} ({})", place(*pcpu)))
        .collect();
    if vcpus.len() > SHOWN_VCPUS {
        rows.push(format!("and {} more (`vmlab predict` shows them)", vcpus.len() - SHOWN_VCPUS));
    }
    rows.join("; ")
}

/// What the predicted pins mean for the guest, as far as it is one of these.
fn predicted(vm: &Vm, context: &Context, kinds: &[FindingKind], out: &mut Drafts) {
    let Some(HostForecast::Pinned(pinned)) = vm.forecast(context) else { return };
    let found = findings(&pinned.machine, &pinned.vmi, &pinned.cpuset, &pinned.pins);
    let mut found = found.iter().filter(|finding| kinds.contains(&finding.kind));
    if let Some(first) = found.next() {
        let draft = out.at(vm.vcpus.span, format!("On this host: {}", first.text));
        for other in found {
            draft.note(other.text.clone());
        }
        draft.note(format!("KubeVirt {} will pin {}", context.kubevirt, table(pinned, context)));
    }
}
