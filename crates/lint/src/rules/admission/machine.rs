//! What a VirtualMachine says beside its template.

use std::collections::HashSet;

use super::{ADMITTERS, volumes, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{Check, Rule, yaml};
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

/// The VirtualMachine's own spec.
fn own(vm: &Vm) -> Option<(&Node, &Node)> {
    let kubevirt = vm.kubevirt.as_ref()?;
    let spec = kubevirt.object.get("spec")?;
    (kubevirt.kind.value == "VirtualMachine").then_some((spec, &kubevirt.object))
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
    let named: HashSet<&str> = volumes(vm)
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

const INSTANCETYPES: &str = "https://kubevirt.io/user-guide/user_workloads/instancetypes/";

pub(crate) const CONFLICT: Rule = Rule {
    id: "kubevirt-instancetype-conflict",
    severity: Severity::Error,
    summary: "a VirtualMachine that sets what its instance type sets",
    why: "An instance type can't be overwritten: KubeVirt refuses the VirtualMachine. Each type has \
          vCPUs and memory; of the rest only what the given type says is a conflict.",
    mend: "Take the field out of the VM, or use another instance type",
    sources: &[
        "https://github.com/kubevirt/kubevirt/tree/main/pkg/instancetype/apply",
        INSTANCETYPES,
    ],
    affected: &[],
    check: Check::Vm(conflict),
    fires: &[yaml(
        ANY,
        "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: example
spec:
  runStrategy: Always
  instancetype:
    name: u1.small
  template:
    spec:
      domain:
        cpu:
          cores: 4
        devices: {}
",
    )],
    quiet: &[yaml(ANY, TYPED)],
};

fn conflict(vm: &Vm, _: &Context, out: &mut Drafts) {
    for field in vm.kubevirt.iter().flat_map(|kubevirt| &kubevirt.conflicts) {
        out.at(field.span, format!("The VM sets {}, which its instance type sets", field.value));
    }
}

const TYPED: &str = "\
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterInstancetype
metadata:
  name: u1.small
spec:
  cpu:
    guest: 1
  memory:
    guest: 2Gi
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: example
spec:
  runStrategy: Always
  instancetype:
    name: u1.small
  template:
    spec:
      domain:
        devices: {}
";

pub(crate) const UNKNOWN: Rule = Rule {
    id: "kubevirt-instancetype-unknown",
    severity: Severity::Hint,
    summary: "an instance type or a preference that was not given",
    why: "What it says of vCPUs, memory and devices is not known here, so that rules about them can \
          say nothing.",
    mend: "Give its file beside, or put it into the same file: vmlab lint vm.yaml types.yaml",
    sources: &[INSTANCETYPES],
    affected: &[],
    check: Check::Vm(unknown),
    fires: &[yaml(
        ANY,
        "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: example
spec:
  runStrategy: Always
  instancetype:
    name: u1.small
  template:
    spec:
      domain:
        devices: {}
",
    )],
    quiet: &[yaml(ANY, TYPED)],
};

fn unknown(vm: &Vm, _: &Context, out: &mut Drafts) {
    for name in vm.kubevirt.iter().flat_map(|kubevirt| &kubevirt.missing) {
        out.at(name.span, format!("{} is not known here", name.value));
    }
}
