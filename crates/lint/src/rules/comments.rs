//! Comments that speak to vmlab.

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

fn nothing(_: &Vm, _: &Context, _: &mut Drafts) {}
