//! Comments that speak to vmlab, and texts that are not yet what they will be.

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, xml, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;

pub(crate) const UNKNOWN_ALLOW: Rule = Rule {
    id: "unknown-allow",
    severity: Severity::Warning,
    summary: "a comment silences a rule that does not exist",
    why: "The finding that it was written against is either still shown or has another name now.",
    mend: "Write the id of a rule: `vmlab lint --list` shows them",
    sources: &["`vmlab lint --help`"],
    affected: &[],
    // The comments belong to the text, so whoever reads it checks them.
    check: Check::Vm(nothing),
    fires: &[
        xml(ANY, "<!-- vmlab: allow(siblings-splitt) -->\n<vcpu>1</vcpu>\n"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host  # vmlab: allow(cpu-pn)"),
        yaml(ANY, "domain:\n  devices: {}  # vmlab: allow(numa)\n"),
    ],
    quiet: &[
        xml(ANY, "<!-- vmlab: allow(siblings-split) -->\n<vcpu>1</vcpu>\n"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host  # vmlab: allow(cpu-pm-unpinned)"),
        yaml(ANY, "domain:\n  devices: {}  # vmlab: allow(siblings-split)\n"),
    ],
};

pub(crate) const TEMPLATE: Rule = Rule {
    id: "template-not-read",
    severity: Severity::Warning,
    summary: "the file is a template, and what comes of it was not looked at",
    why: "What stands in double braces is filled in by Helm, Ansible or another engine. Nothing was \
          read of this file, and no other rule was asked.",
    mend: "Render it first: `helm template CHART | vmlab lint -`",
    sources: &["https://helm.sh/docs/chart_template_guide/"],
    affected: &[],
    // It belongs to the text, so whoever reads it checks it.
    check: Check::Vm(nothing),
    fires: &[
        yaml(ANY, "domain:\n  cpu:\n    cores: {{ .Values.cores }}\n  devices: {}\n"),
        yaml(ANY, "domain:\n  memory:\n    guest: \"{{ .Values.memory }}\"\n  devices: {}\n"),
        yaml(ANY, "{{- if .Values.large }}\ndomain:\n  devices: {}\n{{- end }}\n"),
    ],
    quiet: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: seed
      disk:
        bus: virtio
volumes:
- name: seed
  cloudInitNoCloud:
    userData: |
      ## template: jinja
      #cloud-config
      hostname: {{ v1.local_hostname }}
",
    )],
};

fn nothing(_: &Vm, _: &Context, _: &mut Drafts) {}
