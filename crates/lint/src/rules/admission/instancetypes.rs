//! Instance types and preferences that a VirtualMachine names.

use super::machine::own;
use super::one_of;
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;
use vmconfig::kubevirt::Shortfall;

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

pub(crate) const NEEDS: Rule = Rule {
    id: "kubevirt-preference-needs",
    severity: Severity::Error,
    summary: "a VirtualMachine with less than its preference asks for at least",
    why: "The admission webhook holds a preference's requirements against the instance type, or \
          without one against the levels of the topology that the preference fills: a level that \
          is not said beside others counts as 0.",
    mend: "Take a larger instance type, or give the VM what the preference asks for",
    sources: &[
        "https://github.com/kubevirt/kubevirt/tree/main/pkg/instancetype/preference/requirements",
        INSTANCETYPES,
    ],
    affected: &[AffectedVersions::kubevirt(Some("1.0.0"), None)],
    check: Check::Vm(needs),
    fires: &[yaml(ANY, SHORT_OF_VCPUS), yaml(ANY, SHORT_OF_MEMORY), yaml(ANY, UNEVEN)],
    quiet: &[yaml(ANY, ENOUGH)],
};

macro_rules! with_preference {
    ($kind:literal, $preference:literal, $own:literal, $domain:literal) => {
        concat!(
            "apiVersion: instancetype.kubevirt.io/v1beta1\n\
             kind: VirtualMachineClusterPreference\n\
             metadata:\n  name: server\nspec:\n",
            $preference,
            $kind,
            "---\napiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  name: example\n\
             spec:\n  runStrategy: Always\n  preference:\n    name: server\n",
            $own,
            "  template:\n    spec:\n      domain:\n",
            $domain,
            "        devices: {}\n",
        )
    };
}

const SHORT_OF_VCPUS: &str = with_preference!(
    "",
    "  requirements:\n    cpu:\n      guest: 2\n",
    "",
    "        cpu:\n          cores: 2\n        memory:\n          guest: 4Gi\n"
);
const SHORT_OF_MEMORY: &str = with_preference!(
    "",
    "  requirements:\n    memory:\n      guest: 4Gi\n",
    "",
    "        cpu:\n          sockets: 2\n        memory:\n          guest: 2Gi\n"
);
const UNEVEN: &str = with_preference!(
    "---\napiVersion: instancetype.kubevirt.io/v1beta1\nkind: VirtualMachineClusterInstancetype\n\
     metadata:\n  name: odd\nspec:\n  cpu:\n    guest: 3\n  memory:\n    guest: 2Gi\n",
    "  cpu:\n    preferredCPUTopology: spread\n",
    "  instancetype:\n    name: odd\n",
    ""
);
const ENOUGH: &str = with_preference!(
    "",
    "  requirements:\n    cpu:\n      guest: 2\n    memory:\n      guest: 4Gi\n",
    "",
    "        cpu:\n          sockets: 2\n        memory:\n          guest: 4Gi\n"
);

fn needs(vm: &Vm, context: &Context, out: &mut Drafts) {
    for shortfall in vm.kubevirt.iter().flat_map(|kubevirt| &kubevirt.shortfalls) {
        let message = match &shortfall.value {
            Shortfall::Vcpus { has, needs, levels: [] } => {
                format!("The instance type has {has} vCPUs, the preference asks for {needs}")
            }
            Shortfall::Vcpus { has, needs, levels } => {
                let levels = levels.join(" x ");
                format!("{levels} of the VM is {has} vCPUs, the preference asks for {needs}")
            }
            Shortfall::Memory { has_bytes, needs_bytes } => {
                let mib = |bytes: &u64| bytes.div_ceil(1 << 20);
                let (has, needs) = (mib(has_bytes), mib(needs_bytes));
                format!("{has} MiB of memory, the preference asks for {needs} MiB")
            }
            Shortfall::Architecture { has, needs } => {
                format!("The VM is for {has}, the preference for {needs}")
            }
            Shortfall::Spread { vcpus, multiple }
                if context.kubevirt >= KubevirtVersion::new(1, 3, 0) =>
            {
                format!(
                    "{vcpus} vCPUs of the instance type can't be spread by {multiple}, as the \
                     preference has it"
                )
            }
            Shortfall::Spread { .. } => continue,
        };
        out.at(shortfall.span, message);
    }
}

pub(crate) const REFERENCE: Rule = Rule {
    id: "kubevirt-instancetype-reference",
    severity: Severity::Error,
    summary: "an instance type or a preference that is named in no way, or in two",
    why: "KubeVirt finds it by its name and kind, or infers it from a volume, and refuses a \
          VirtualMachine that says neither or both.",
    mend: "Say name, or inferFromVolume without name and kind",
    sources: &[
        "https://github.com/kubevirt/kubevirt/tree/main/pkg/instancetype/webhooks/vm",
        INSTANCETYPES,
    ],
    affected: &[AffectedVersions::kubevirt(Some("0.59.0"), None)],
    check: Check::Vm(reference),
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
    inferFromVolume: root
  template:
    spec:
      domain:
        devices: {}
",
    )],
    quiet: &[yaml(ANY, TYPED)],
};

fn reference(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some((spec, _)) = own(vm) else { return };
    for what in ["instancetype", "preference"] {
        let Some((key, matcher)) = spec.entry(what).filter(|(_, node)| !node.is_null()) else {
            continue;
        };
        let named = |name: &str| super::word(matcher, name);
        match (named("name"), named("inferFromVolume")) {
            (None, None) => {
                out.at(key.span, format!("{what} needs a name, or inferFromVolume"));
            }
            (_, Some(_)) => {
                for (name, (_, span)) in
                    ["name", "kind"].into_iter().filter_map(|name| Some((name, named(name)?)))
                {
                    out.at(span, format!("{name} beside inferFromVolume"));
                }
            }
            (Some(_), None) => {}
        }
        if context.kubevirt >= KubevirtVersion::new(1, 1, 0) {
            one_of(matcher, "inferFromVolumeFailurePolicy", &["Reject", "Ignore"], out);
        }
    }
}
