//! What KubeVirt's API refuses. The CRD's schema knows none of this: only the
//! admission webhook does, when the object is created.
//!
//! Source: kubevirt/kubevirt,
//! `pkg/virt-api/webhooks/validating-webhook/admitters/vmi-create-admitter.go`.

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::{Node, QuantityValue as _};
use crate::rule::{Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;

const ADMITTER: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/\
                        validating-webhook/admitters/vmi-create-admitter.go";
const DEDICATED: &str = "https://kubevirt.io/user-guide/compute/dedicated_cpu_resources/";
const NUMA: &str = "https://kubevirt.io/user-guide/compute/numa/";

const GOOD: &str = "\
domain:
  cpu:
    sockets: 1
    cores: 2
    threads: 2
    dedicatedCpuPlacement: true
    isolateEmulatorThread: true
    numa:
      guestMappingPassthrough: {}
    realtime: {}
  ioThreadsPolicy: auto
  memory:
    guest: 4Gi
    hugepages:
      pageSize: 2Mi
  devices: {}
";

const REFUSED: &str = "The admission webhook refuses the object. The schema lets it pass, so a dry \
                       run against the CRD alone does not tell.";

pub(crate) const ISOLATE_NEEDS_DEDICATED: Rule = Rule {
    id: "kubevirt-isolate-needs-dedicated",
    severity: Severity::Error,
    summary: "isolateEmulatorThread without dedicatedCpuPlacement",
    why: REFUSED,
    mend: "Set dedicatedCpuPlacement: true, or take isolateEmulatorThread out",
    sources: &[ADMITTER, DEDICATED],
    affected: &[],
    check: Check::Vm(isolate_needs_dedicated),
    fires: &[yaml(
        ANY,
        "domain:\n  cpu:\n    cores: 2\n    isolateEmulatorThread: true\n  devices: {}\n",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn isolate_needs_dedicated(vm: &Vm, _: &Context, out: &mut Drafts) {
    let isolate = vm.kube("domain.cpu.isolateEmulatorThread").filter(|node| node.is_true());
    if let Some(isolate) = isolate.filter(|_| !vm.is_dedicated()) {
        out.at(isolate.span, "There are no dedicated pCPUs to isolate the emulator thread from");
    }
}

pub(crate) const NUMA_NEEDS: Rule = Rule {
    id: "kubevirt-numa-needs",
    severity: Severity::Error,
    summary: "guestMappingPassthrough without dedicated pCPUs or without huge pages",
    why: REFUSED,
    mend: "Set dedicatedCpuPlacement: true and memory.hugepages",
    sources: &[ADMITTER, NUMA],
    affected: &[],
    check: Check::Vm(numa_needs),
    fires: &[yaml(
        ANY,
        "\
domain:
  cpu:
    cores: 2
    dedicatedCpuPlacement: true
    numa:
      guestMappingPassthrough: {}
  memory:
    guest: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn numa_needs(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some((key, _)) = vm
        .kubevirt
        .as_ref()
        .and_then(|kubevirt| kubevirt.spec.entry("domain.cpu.numa.guestMappingPassthrough"))
    else {
        return;
    };
    if !vm.is_dedicated() {
        out.at(key.span, "guestMappingPassthrough needs dedicatedCpuPlacement: true");
    }
    if vm.kube("domain.memory.hugepages").is_none() {
        out.at(key.span, "guestMappingPassthrough needs memory.hugepages");
    }
}

pub(crate) const REALTIME_NEEDS: Rule = Rule {
    id: "kubevirt-realtime-needs",
    severity: Severity::Error,
    summary: "realtime without dedicated pCPUs or without guestMappingPassthrough",
    why: REFUSED,
    mend: "Set dedicatedCpuPlacement: true and numa.guestMappingPassthrough: {} (with huge pages)",
    sources: &[ADMITTER, "https://kubevirt.io/user-guide/compute/numa/"],
    affected: &[],
    check: Check::Vm(realtime_needs),
    fires: &[yaml(ANY, "domain:\n  cpu:\n    cores: 2\n    realtime: {}\n  devices: {}\n")],
    quiet: &[yaml(ANY, GOOD)],
};

fn realtime_needs(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some((key, _)) =
        vm.kubevirt.as_ref().and_then(|kubevirt| kubevirt.spec.entry("domain.cpu.realtime"))
    else {
        return;
    };
    let missing: Vec<&str> = [
        (!vm.is_dedicated(), "dedicatedCpuPlacement: true"),
        (vm.kube("domain.cpu.numa").is_none(), "numa.guestMappingPassthrough"),
    ]
    .into_iter()
    .filter_map(|(missing, name)| missing.then_some(name))
    .collect();
    if !missing.is_empty() {
        out.at(key.span, format!("realtime needs {}", missing.join(" and ")));
    }
}

pub(crate) const THREADS: Rule = Rule {
    id: "kubevirt-threads",
    severity: Severity::Error,
    summary: "more threads a core than KubeVirt places",
    why: "With dedicated pCPUs the admission webhook refuses more than two threads a core, and on \
          arm64 more than one.",
    mend: "Use threads: 2 (arm64: 1) and more cores",
    sources: &[ADMITTER],
    affected: &[],
    check: Check::Vm(threads),
    fires: &[yaml(
        ANY,
        "domain:\n  cpu:\n    cores: 2\n    threads: 4\n    dedicatedCpuPlacement: true\n  memory:\n    guest: 1Gi\n  devices: {}\n",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn threads(vm: &Vm, _: &Context, out: &mut Drafts) {
    let most = if vm.is_arm() { 1 } else { 2 };
    if let Some(node) = vm.kube("domain.cpu.threads").filter(|_| vm.is_dedicated())
        && node.number().is_some_and(|threads| threads > most)
    {
        let threads = node.text().unwrap_or_default();
        out.at(node.span, format!("{threads} threads; with dedicated pCPUs at most {most}"));
    }
}

pub(crate) const IOTHREADS_POLICY: Rule = Rule {
    id: "kubevirt-iothreads-policy",
    severity: Severity::Error,
    summary: "an ioThreadsPolicy that does not exist or has no threads",
    why: "The admission webhook takes shared, auto and supplementalPool, and the last only with a \
          positive ioThreads.supplementalPoolThreadCount; the schema takes any text.",
    mend: "Write shared, auto, or supplementalPool with its count",
    sources: &[ADMITTER, "https://kubevirt.io/user-guide/storage/disks_and_volumes/"],
    affected: &[],
    check: Check::Vm(iothreads_policy),
    fires: &[yaml(ANY, "domain:\n  ioThreadsPolicy: turbo\n  devices: {}\n")],
    quiet: &[yaml(ANY, GOOD)],
};

fn iothreads_policy(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(node) = vm.kube("domain.ioThreadsPolicy") else { return };
    let policy = node.text().unwrap_or_default();
    let known = ["shared", "auto", "supplementalPool"];
    if !known.contains(&policy) {
        let draft = out.at(node.span, format!("There is no ioThreadsPolicy {policy:?}"));
        if let Some(near) = known.iter().find(|name| name.eq_ignore_ascii_case(policy)) {
            draft.fix(node.span, *near);
        }
    }
    let count = vm.kube("domain.ioThreads.supplementalPoolThreadCount").and_then(Node::number);
    if policy == "supplementalPool" && count.unwrap_or(0) == 0 {
        out.at(node.span, "supplementalPool needs ioThreads.supplementalPoolThreadCount");
    }
}

pub(crate) const DEDICATED_RESOURCES: Rule = Rule {
    id: "kubevirt-dedicated-resources",
    severity: Severity::Error,
    summary: "requests and limits that dedicated pCPUs can't have",
    why: "Dedicated pCPUs need a pod of the Guaranteed class: whole CPUs, limits equal to requests, \
          and the same number as the topology has. The admission webhook refuses anything else.",
    mend: "Leave requests and limits out, and say topology and memory.guest",
    sources: &[ADMITTER, DEDICATED],
    affected: &[],
    check: Check::Vm(dedicated_resources),
    fires: &[yaml(
        ANY,
        "\
domain:
  cpu:
    dedicatedCpuPlacement: true
  resources:
    requests:
      cpu: 2500m
      memory: 1Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn dedicated_resources(vm: &Vm, _: &Context, out: &mut Drafts) {
    if !vm.is_dedicated() {
        return;
    }
    let amount = |side: &str, what: &str| {
        let node = vm.kube(&format!("domain.resources.{side}.{what}"))?;
        Some((node, node.quantity()?)).filter(|(_, amount)| *amount > 0.0)
    };
    let (requests, limits) = (amount("requests", "cpu"), amount("limits", "cpu"));
    for (node, pcpus) in [requests, limits].into_iter().flatten() {
        if pcpus.fract() != 0.0 {
            let text = node.text().unwrap_or_default();
            out.at(node.span, format!("{text} is not a whole number of CPUs"));
        }
    }
    if let (Some((node, requested)), Some((_, limit))) = (requests, limits)
        && requested != limit
    {
        out.at(node.span, format!("{requested} CPUs requested and {limit} as limit must be equal"));
    }
    if let Some(topology) = &vm.topology {
        let vcpus = f64::from(topology.value.vcpus());
        let given = [requests, limits].into_iter().flatten();
        // One of both equal to the topology is enough for the webhook.
        let wrong: Vec<_> = given.collect();
        if let Some((node, pcpus)) = wrong.first()
            && wrong.iter().all(|(_, pcpus)| *pcpus != vcpus)
        {
            out.at(node.span, format!("{pcpus} CPUs, and the topology has {vcpus} vCPUs"));
        }
    }
    let (requests, limits) = (amount("requests", "memory"), amount("limits", "memory"));
    match (requests, limits) {
        (Some((node, requested)), Some((_, limit))) if requested != limit => {
            out.at(node.span, "Memory's request and limit must be equal with dedicated pCPUs");
        }
        // KubeVirt computes the request from what the guest gets.
        (None, None)
            if vm.kube("domain.memory.hugepages").is_none()
                && vm.memory_bytes.as_ref().is_none_or(|memory| memory.value == 0) =>
        {
            out.at(vm.head, "Dedicated pCPUs without memory: say memory.guest");
        }
        _ => {}
    }
}

pub(crate) const MEMORY_LIMIT_LOW: Rule = Rule {
    id: "kubevirt-memory-limit",
    severity: Severity::Error,
    summary: "the guest's memory is more than the memory limit",
    why: "The pod would be killed when the guest touches its memory; the admission webhook refuses \
          it unless the cluster's rollout strategy is LiveUpdate.",
    mend: "Leave limits.memory out: KubeVirt adds what QEMU itself needs",
    sources: &[ADMITTER],
    affected: &[],
    check: Check::Vm(memory_limit),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 8Gi
  resources:
    limits:
      memory: 4Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn memory_limit(vm: &Vm, _: &Context, out: &mut Drafts) {
    let bytes = |path: &str| vm.kube(path).and_then(Node::bytes);
    let (guest, limit) = (bytes("domain.memory.guest"), bytes("domain.resources.limits.memory"));
    if let (Some(guest), Some(limit), Some(node)) =
        (guest, limit, vm.kube("domain.resources.limits.memory"))
        && limit < guest
        && limit > 0
    {
        out.at(node.span, "Less than memory.guest");
    }
}

pub(crate) const MAX_SOCKETS: Rule = Rule {
    id: "kubevirt-max-sockets",
    severity: Severity::Error,
    summary: "maxSockets is less than sockets",
    why: REFUSED,
    mend: "maxSockets is what hot-plug may reach: at least sockets",
    sources: &[ADMITTER, "https://kubevirt.io/user-guide/compute/cpu_hotplug/"],
    affected: &[],
    check: Check::Vm(max_sockets),
    fires: &[yaml(ANY, "domain:\n  cpu:\n    sockets: 4\n    maxSockets: 2\n  devices: {}\n")],
    quiet: &[yaml(ANY, GOOD)],
};

fn max_sockets(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(node) = vm.kube("domain.cpu.maxSockets") else { return };
    let sockets = vm.topology.as_ref().map_or(1, |topology| topology.value.sockets);
    if node.number().is_some_and(|most| most > 0 && most < sockets) {
        out.at(node.span, format!("{sockets} sockets are more than maxSockets"));
    }
}

pub(crate) const PAGE_SIZE: Rule = Rule {
    id: "kubevirt-page-size",
    severity: Severity::Error,
    summary: "a huge page size that is no size, or that the memory request is not made of",
    why: "The admission webhook holds the memory request against the page size, before what the \
          guest is given; the schema takes any text.",
    mend: "Write pageSize 2Mi or 1Gi, and leave requests.memory out",
    sources: &[ADMITTER, "https://kubevirt.io/user-guide/compute/hugepages/"],
    affected: &[],
    check: Check::Vm(page_size),
    fires: &[
        yaml(
            ANY,
            "domain:\n  memory:\n    guest: 1Gi\n    hugepages:\n      pageSize: 2MB\n  devices: {}\n",
        ),
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
    hugepages:
      pageSize: 1Gi
  resources:
    requests:
      memory: 512Mi
  devices: {}
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn page_size(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(size) = vm.kube("domain.memory.hugepages.pageSize") else { return };
    let Some(page) = size.bytes().filter(|page| *page > 0) else {
        out.at(size.span, format!("{:?} is no size", size.text().unwrap_or_default()));
        return;
    };
    if let Some(node) = vm.kube("domain.resources.requests.memory")
        && node.bytes().is_some_and(|bytes| bytes % page != 0)
    {
        let (asked, size) = (node.text().unwrap_or_default(), size.text().unwrap_or_default());
        out.at(node.span, format!("{asked} is not made of pages of {size}"));
    }
}

pub(crate) const FEATURE_POLICY: Rule = Rule {
    id: "kubevirt-feature-policy",
    severity: Severity::Error,
    summary: "a policy for a CPU feature that does not exist",
    why: REFUSED,
    mend: "Write force, require, optional, disable or forbid",
    sources: &[ADMITTER, "https://kubevirt.io/user-guide/compute/virtual_hardware/"],
    affected: &[],
    check: Check::Vm(feature_policy),
    fires: &[yaml(
        ANY,
        "domain:\n  cpu:\n    features:\n    - name: x2apic\n      policy: on\n  devices: {}\n",
    )],
    quiet: &[yaml(
        ANY,
        "domain:\n  cpu:\n    features:\n    - name: x2apic\n      policy: require\n  memory:\n    guest: 1Gi\n  devices: {}\n",
    )],
};

fn feature_policy(vm: &Vm, _: &Context, out: &mut Drafts) {
    let features = vm.kube("domain.cpu.features").map(Node::items).unwrap_or_default();
    for policy in features.iter().filter_map(|feature| feature.get("policy")) {
        let known = ["force", "require", "optional", "disable", "forbid", ""];
        let text = policy.text().unwrap_or_default();
        if !known.contains(&text) {
            out.at(policy.span, format!("There is no policy {text:?}"));
        }
    }
}
