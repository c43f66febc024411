//! Objects against KubeVirt's CRDs, as strictly as the API server can be asked
//! to be.

use topology::bounded::near;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::object::KubeObject;
use crate::rule::{Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::schema::{self, SchemaFault, SchemaViolation};
use crate::vm::Vm;

const API: &str = "https://kubevirt.io/api-reference/";
const VALIDATION: &str = "https://kubernetes.io/docs/reference/using-api/api-concepts/";

const GOOD: &str = "\
domain:
  cpu:
    cores: 2
    dedicatedCpuPlacement: true
  devices: {}
";

pub(crate) const UNKNOWN_FIELD: Rule = Rule {
    id: "kubevirt-unknown-field",
    severity: Severity::Error,
    summary: "a field that the object does not have",
    why: "With strict validation the API server refuses it; without, it drops the field with a \
          warning at most, and the VM runs without what was asked for. `dedicatedCPUPlacement` is \
          the usual one. The fields are those of KubeVirt 1.9.0.",
    mend: "Write the field as the API has it",
    sources: &[API, VALIDATION],
    affected: &[],
    check: Check::VmOrObject(unknown_field, unknown_field_of_object),
    fires: &[
        yaml(
            ANY,
            "domain:\n  cpu:\n    cores: 2\n    dedicatedCPUPlacement: true\n  devices: {}\n",
        ),
        yaml(
            ANY,
            "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: example
spec:
  runStrategie: Always
  template:
    spec:
      domain:
        devices:
          disks:
          - name: root
            disk:
              bus: virtio
              ioThread: 1
",
        ),
        yaml(
            ANY,
            "\
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineInstancetype
metadata:
  name: fast
spec:
  cpu:
    guest: 4
    dedicatedCpuPlacement: true
  memory:
    guest: 8Gi
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn problems(vm: &Vm) -> Vec<SchemaViolation> {
    vm.kubevirt.as_ref().map_or_else(Vec::new, |kubevirt| {
        let kind = &kubevirt.kind;
        schema::problems(&kind.value, &kubevirt.object, kind.span)
    })
}

fn problems_of(object: &KubeObject) -> Vec<SchemaViolation> {
    schema::problems(&object.kind.value, &object.node, object.kind.span)
}

fn unknown_field(vm: &Vm, _: &Context, out: &mut Drafts) {
    tell_unknown(problems(vm), out);
}

fn unknown_field_of_object(object: &KubeObject, _: &Context, out: &mut Drafts) {
    tell_unknown(problems_of(object), out);
}

fn tell_unknown(problems: Vec<SchemaViolation>, out: &mut Drafts) {
    for problem in problems {
        let SchemaFault::Unknown { path, name, known } = problem.what else { continue };
        let draft = out.at(problem.span, format!("Unknown field {path:?}"));
        if let Some(same) = known.iter().find(|known| known.eq_ignore_ascii_case(&name)) {
            draft.fix(problem.span, *same).help(format!("The field is called {same}"));
        } else if let Some(near) = near(&name, known.iter().copied()) {
            draft.help(format!("Did you mean {near}?"));
        } else if known.is_empty() {
            draft.help("It has no fields: take this one out");
        } else {
            draft.help(format!("Fields are {}", known.join(", ")));
        }
    }
}

pub(crate) const SCHEMA: Rule = Rule {
    id: "kubevirt-schema",
    severity: Severity::Error,
    summary: "a value that the API server refuses by its schema",
    why: "The object is not created: a value is of another type than the CRD says, is none of those \
          that it lists, or is missing. The usual one is a number in quotes.",
    mend: "Write the value as the API has it",
    sources: &[API, VALIDATION],
    affected: &[],
    check: Check::VmOrObject(schema_refuses, schema_refuses_object),
    fires: &[
        yaml(ANY, "domain:\n  cpu:\n    cores: '2'\n  devices: {}\n"),
        yaml(ANY, "domain:\n  cpu:\n    cores: 2\n"),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn schema_refuses(vm: &Vm, _: &Context, out: &mut Drafts) {
    tell_refused(problems(vm), out);
}

fn schema_refuses_object(object: &KubeObject, _: &Context, out: &mut Drafts) {
    tell_refused(problems_of(object), out);
}

fn tell_refused(problems: Vec<SchemaViolation>, out: &mut Drafts) {
    for problem in problems {
        if let SchemaFault::Refused(message) = problem.what {
            out.at(problem.span, message);
        }
    }
}
