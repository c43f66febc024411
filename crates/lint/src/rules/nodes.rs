//! What the nodes of a cluster have for this VM.

use placement::predict::kubevirt::Vmi;
use placement::predict::node::{PodDemand, short_nodes};

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, yaml};
use crate::rules::samples::TUNED;
use crate::rules::worlds::{ANY, CLUSTER, ISOLATED_NODE};
use crate::vm::Vm;

/// Reasons that are listed; the rest is counted.
const SHOWN: usize = 4;

pub(crate) const NO_NODE: Rule = Rule {
    id: "kubevirt-no-node",
    severity: Severity::Error,
    summary: "no node of the cluster can take the VM's pod",
    why: "The scheduler looks at labels, taints and amounts. A VM that asks for more than any node \
          has, or for a label that none has, or that does not tolerate the taints of those that \
          do, stays in the phase Scheduling for ever, without an error of its \
          own: only the pod's events say why.",
    mend: "Ask for what a node has, or give a node what the VM asks for (a label, huge pages, the \
           static CPU manager policy); a tainted node wants a toleration in spec.tolerations",
    sources: &[
        "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/",
        "https://kubevirt.io/user-guide/compute/dedicated_cpu_resources/",
    ],
    affected: &[],
    check: Check::Vm(no_node),
    fires: &[yaml(
        CLUSTER,
        "\
domain:
  cpu:
    cores: 16
    maxSockets: 1
    dedicatedCpuPlacement: true
  memory:
    guest: 4Gi
  devices: {}
",
    )
    .mended(&[("    cores: 16\n", "    cores: 2\n    threads: 2\n")])],
    quiet: &[yaml(ANY, TUNED)],
};

fn no_node(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(kubevirt) = vm.kubevirt.as_ref().filter(|kubevirt| !kubevirt.open) else { return };
    if context.nodes.is_empty() {
        return;
    }
    // Values that other rules complain of.
    let Ok(vmi) = Vmi::from_value(&kubevirt.instance(&vm.name)) else { return };
    let demand = PodDemand::of(&vmi, context.kubevirt);
    if context.nodes.iter().any(|node| node.fits(&demand)) {
        return;
    }
    let message = match &context.nodes[..] {
        [node] => format!("The only node, {}, can't take this VM", node.name),
        nodes => format!("None of {} nodes can take this VM", nodes.len()),
    };
    let draft = out.at(vm.vcpus.span, message);
    let reasons = short_nodes(context.nodes.iter(), &demand);
    for reason in reasons.iter().take(SHOWN) {
        draft.note(reason.to_string());
    }
    if reasons.len() > SHOWN {
        let rest: usize = reasons[SHOWN..].iter().map(|reason| reason.nodes.len()).sum();
        draft.note(format!("and {rest} nodes more, for other reasons"));
    }
}

pub(crate) const SHARED_ISOLATED: Rule = Rule {
    id: "kubevirt-shared-isolated",
    severity: Severity::Warning,
    summary: "a VM without pCPUs of its own is on a node whose kernel isolates those that it shares",
    why: "isolcpus= takes pCPUs out of the scheduler's load balancing, and the kubelet does not \
          know: pods without pCPUs of their own may run there, but a thread stays where it woke, \
          beside whatever is there already, while other pCPUs are idle.",
    mend: "Give the VM pCPUs of its own (dedicatedCpuPlacement), keep it from such nodes by a label \
           or taint, or leave the isolation to the kubelet's static policy",
    sources: &["https://docs.kernel.org/admin-guide/kernel-parameters.html"],
    affected: &[],
    check: Check::Vm(shared_isolated),
    fires: &[yaml(
        ISOLATED_NODE,
        "\
domain:
  cpu:
    cores: 2
  memory:
    guest: 4Gi
  devices: {}
",
    )
    .mended(&[(
        "    cores: 2\n",
        "    cores: 2\n    maxSockets: 1\n    dedicatedCpuPlacement: true\n",
    )])],
    quiet: &[yaml(ISOLATED_NODE, TUNED)],
};

fn shared_isolated(vm: &Vm, context: &Context, out: &mut Drafts) {
    if context.isolated.is_empty() || vm.kubevirt.is_none() || vm.is_dedicated() {
        return;
    }
    let message = "The VM shares pCPUs among which nothing balances";
    out.at(vm.vcpus.span, message).note(format!("isolated are {}", context.isolated));
}
