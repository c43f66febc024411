//! What a VirtualMachine says beside its template.

use std::collections::HashSet;

use super::{ADMITTERS, volumes_of, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::{Node, QuantityValue as _};
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;

const VMS: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/\
                   validating-webhook/admitters/vms-admitter.go";
const TEMPLATES: &str =
    "https://github.com/kubevirt/kubevirt/blob/main/pkg/storage/admitters/data-volume-template.go";

const GOOD: &str = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: example
spec:
  runStrategy: Always
  dataVolumeTemplates:
  - metadata:
      name: root
    spec:
      storage:
        resources:
          requests:
            storage: 10Gi
      source:
        registry:
          url: docker://quay.io/containerdisks/fedora:latest
  template:
    spec:
      domain:
        memory:
          guest: 1Gi
        devices:
          disks:
          - name: root
            disk:
              bus: virtio
      volumes:
      - name: root
        dataVolume:
          name: root
";

macro_rules! hotplug {
    ($domain:literal) => {
        concat!(
            "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  name: example\nspec:\n  \
             runStrategy: Always\n  template:\n    spec:\n      domain:\n",
            $domain,
            "        devices: {}\n",
        )
    };
}

/// The spec of the VirtualMachine around a VMI, and what has that and its metadata.
pub(super) fn own(vm: &Vm) -> Option<(&Node, &Node)> {
    let machine = vm.kubevirt.as_ref()?.machine()?;
    Some((machine.get("spec")?, machine))
}

pub(crate) const RUN_STRATEGY: Rule = Rule {
    id: "kubevirt-run-strategy",
    severity: Severity::Error,
    summary: "a VirtualMachine without a run strategy, with two, or with one that does not exist",
    why: "The admission webhook refuses the VirtualMachine.",
    mend: "Write runStrategy: Always, RerunOnFailure, Manual, Once or Halted, and take running out",
    sources: &[VMS, "https://kubevirt.io/user-guide/compute/run_strategies/"],
    affected: &[],
    check: Check::Vm(run_strategy),
    fires: &[yaml(
        ANY,
        "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: example
spec:
  running: true
  runStrategy: Always
  template:
    spec:
      domain:
        memory:
          guest: 1Gi
        devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn run_strategy(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some((spec, _)) = own(vm) else { return };
    let kind = vm.kubevirt.as_ref().map_or(vm.head, |kubevirt| kubevirt.kind.span);
    match (spec.given("running"), spec.given("runStrategy")) {
        (Some(running), Some(_)) => {
            out.at(running.span, "running beside runStrategy: one of both is taken");
        }
        (None, None) => {
            out.at(kind, "The VirtualMachine has no runStrategy");
        }
        _ => {}
    }
    let known: Vec<&str> = [
        ("Always", KubevirtVersion::new(0, 0, 0)),
        ("RerunOnFailure", KubevirtVersion::new(0, 0, 0)),
        ("Manual", KubevirtVersion::new(0, 0, 0)),
        ("Halted", KubevirtVersion::new(0, 0, 0)),
        ("Once", KubevirtVersion::new(0, 58, 0)),
        // With a feature gate, which is not known here.
        ("WaitAsReceiver", KubevirtVersion::new(1, 6, 0)),
    ]
    .into_iter()
    .filter(|(_, since)| context.kubevirt >= *since)
    .map(|(name, _)| name)
    .collect();
    super::one_of(spec, "runStrategy", &known, out);
}

pub(crate) const DATA_VOLUME: Rule = Rule {
    id: "kubevirt-data-volume-template",
    severity: Severity::Error,
    summary: "a dataVolumeTemplate that no volume names, or that is not whole",
    why: "The admission webhook refuses the VirtualMachine: a template needs a name, a pvc or \
          storage, just one source, and a volume of the VM that it is for.",
    mend: "Name it in the template's volumes (dataVolume.name), and give it storage and one source",
    sources: &[TEMPLATES, ADMITTERS],
    affected: &[],
    check: Check::Vm(data_volume),
    fires: &[yaml(
        ANY,
        "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: example
spec:
  runStrategy: Always
  dataVolumeTemplates:
  - metadata:
      name: rootdisk
    spec:
      storage: {}
      source:
        blank: {}
  template:
    spec:
      domain:
        memory:
          guest: 1Gi
        devices:
          disks:
          - name: root
            disk:
              bus: virtio
      volumes:
      - name: root
        dataVolume:
          name: root
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn data_volume(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some((spec, object)) = own(vm) else { return };
    let named: HashSet<&str> = volumes_of(vm)
        .iter()
        .flat_map(|volume| {
            ["persistentVolumeClaim.claimName", "dataVolume.name"]
                .map(|path| word(volume, path).map(|(name, _)| name))
        })
        .flatten()
        .collect();
    let namespace = object.get("metadata").and_then(|node| word(node, "namespace"));
    for template in spec.get("dataVolumeTemplates").map(Node::items).unwrap_or_default() {
        let metadata = template.given("metadata");
        let Some((own, at)) = metadata.and_then(|node| word(node, "name")) else {
            out.at(template.span, "A dataVolumeTemplate needs metadata.name");
            continue;
        };
        if !named.contains(own) {
            out.at(at, format!("No volume of the VM is the DataVolume {own}"));
        }
        if let (Some((here, _)), Some((there, span))) =
            (namespace, metadata.and_then(|node| word(node, "namespace")))
            && here != there
        {
            out.at(span, format!("The DataVolume is in {there}, the VM in {here}"));
        }
        let Some(spec) =
            template.given("spec").filter(|_| context.kubevirt >= KubevirtVersion::new(1, 4, 0))
        else {
            continue;
        };
        let targets = ["pvc", "storage"].map(|target| spec.given(target));
        match targets {
            [None, None] => {
                out.at(at, format!("DataVolume {own} has neither storage nor pvc"));
            }
            [Some(_), Some(_)] => {
                out.at(at, format!("DataVolume {own} has storage and pvc: one of both is taken"));
            }
            _ => {}
        }
        let Some(target) = targets.into_iter().flatten().next() else { continue };
        let outside = ["dataSourceRef", "dataSource"].iter().any(|key| target.given(key).is_some());
        let source = spec.given("source");
        let inside = source.is_some() || spec.given("sourceRef").is_some();
        if outside && inside {
            out.at(at, format!("DataVolume {own} is filled by a data source and by a source"));
        } else if !outside && !inside {
            out.at(at, format!("DataVolume {own} has no source"));
        } else if let Some(source) = source {
            let count = source.entries().iter().filter(|(_, node)| !node.is_null()).count();
            if count != 1 {
                out.at(at, format!("DataVolume {own} has {count} sources, not one"));
            }
        }
    }
}

pub(crate) const MEMORY_HOTPLUG: Rule = Rule {
    id: "kubevirt-memory-hotplug",
    severity: Severity::Error,
    summary: "memory.maxGuest of a VirtualMachine whose memory can't be hot-plugged",
    why: "The admission webhook refuses maxGuest below guest or not of whole blocks (2Mi, with huge \
          pages of 1Gi 1Gi), with less than 1Gi of memory, real-time, NUMA passthrough or encrypted \
          memory, and since 1.7 on anything but amd64. Without maxGuest it quietly leaves hot-plug \
          out.",
    mend: "Take maxGuest out, or write whole blocks of memory, maxGuest at least guest",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/liveupdate/memory/memory.go",
        "https://kubevirt.io/user-guide/compute/memory_hotplug/",
    ],
    // Before, only where the cluster rolls changes out live.
    affected: &[AffectedVersions::kubevirt(Some("1.6.0"), None)],
    check: Check::Vm(memory_hotplug),
    fires: &[
        yaml(ANY, hotplug!("        memory:\n          guest: 4Gi\n          maxGuest: 2Gi\n")),
        yaml(ANY, hotplug!("        memory:\n          guest: 512Mi\n          maxGuest: 2Gi\n")),
        yaml(ANY, hotplug!("        memory:\n          guest: 2049Mi\n          maxGuest: 4Gi\n")),
        yaml(
            ANY,
            hotplug!(
                "        memory:\n          guest: 4Gi\n          maxGuest: 8Gi\n          hugepages:\n            \
                 pageSize: 1Gi\n        cpu:\n          cores: 2\n          dedicatedCpuPlacement: \
                 true\n          numa:\n            guestMappingPassthrough: {}\n"
            ),
        ),
    ],
    quiet: &[yaml(
        ANY,
        hotplug!("        memory:\n          guest: 2Gi\n          maxGuest: 8Gi\n"),
    )],
};

fn memory_hotplug(vm: &Vm, context: &Context, out: &mut Drafts) {
    const MIB: u64 = 1 << 20;
    let Some((key, most)) = own(vm)
        .and_then(|_| vm.kubevirt.as_ref()?.spec.entry("domain.memory.maxGuest"))
        .filter(|(_, node)| !node.is_null())
    else {
        return;
    };
    let against = [
        ("domain.cpu.realtime", "real-time vCPUs"),
        ("domain.cpu.numa.guestMappingPassthrough", "guestMappingPassthrough"),
        ("domain.launchSecurity", "encrypted memory"),
    ];
    for (path, what) in against {
        if vm.kube(path).is_some_and(|node| !node.is_null()) {
            out.at(key.span, format!("maxGuest does not go with {what}"));
        }
    }
    let block_bytes = match vm.kube("domain.memory.hugepages.pageSize").and_then(Node::text) {
        Some("1Gi") => 1024 * MIB,
        _ => 2 * MIB,
    };
    let arch = vm.kube_architecture();
    let old_arm = arch == "arm64" && context.kubevirt < KubevirtVersion::new(1, 7, 0);
    if !matches!(arch, "" | "amd64") && !old_arm {
        out.at(key.span, format!("Memory can't be hot-plugged on {arch}"));
    }
    // That of an instance type or of the request, too.
    let (Some(guest), Some(most_bytes)) = (&vm.memory_bytes, most.bytes()) else { return };
    if guest.value > most_bytes {
        out.at(most.span, "maxGuest is less than the guest's memory");
    }
    if guest.value < 1024 * MIB {
        out.at(guest.span, "Less than 1Gi of memory, with which none can be hot-plugged");
    }
    for (bytes, span, what) in
        [(guest.value, guest.span, "The guest's memory"), (most_bytes, most.span, "maxGuest")]
    {
        if bytes % block_bytes != 0 {
            let mib = block_bytes / MIB;
            out.at(span, format!("{what} is not made of blocks of {mib} MiB"));
        }
    }
}
