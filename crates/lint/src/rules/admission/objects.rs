//! Objects that are no VM: instance types, migration policies and migrations, clones,
//! snapshots, restores and exports.

use topology::MacAddress;

use super::labels::items;
use super::{REFUSED, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::object::KubeObject;
use crate::read::yaml::{Node, QuantityValue as _};
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::{ANY, KUBEVIRT_1_8};
use placement::predict::KubevirtVersion;

pub(crate) const OVERCOMMIT: Rule = Rule {
    id: "kubevirt-overcommit-percent",
    severity: Severity::Error,
    summary: "an instance type that overcommits memory by no percentage, or in huge pages",
    why: "overcommitPercent is what the pod asks for less than the guest gets, 0 to 100. Huge pages \
          are there from the start, so that the admission webhook refuses both together.",
    mend: "Write 0 to 100, and none beside hugepages",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/instancetype/webhooks/admitter.go",
        "https://kubevirt.io/user-guide/user_workloads/instancetypes/",
    ],
    affected: &[AffectedVersions::kubevirt(Some("1.0.0"), None)],
    check: Check::Object(overcommit),
    fires: &[
        yaml(
            ANY,
            "\
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterInstancetype
metadata:
  name: dense
spec:
  cpu:
    guest: 4
  memory:
    guest: 8Gi
    overcommitPercent: 150
",
        )
        .mended(&[
            ("VirtualMachineClusterInstancetype", "VirtualMachineInstancetype"),
            ("overcommitPercent: 150", "overcommitPercent: 15"),
        ]),
        yaml(
            ANY,
            "\
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineInstancetype
metadata:
  name: dense
spec:
  cpu:
    guest: 4
  memory:
    guest: 8Gi
    overcommitPercent: 15
    hugepages:
      pageSize: 2Mi
",
        ),
    ],
    quiet: &[],
};

fn overcommit(object: &KubeObject, _: &Context, out: &mut Drafts) {
    if !object.is_instancetype() {
        return;
    }
    let (node, span) = object.given("spec.memory.overcommitPercent");
    let Some(percent) = node.and_then(Node::integer) else { return };
    if !(0..=100).contains(&percent) {
        out.at(span, format!("overcommitPercent {percent} is not between 0 and 100"));
    }
    if percent != 0 && object.given("spec.memory.hugepages").0.is_some() {
        out.at(span, "Memory in huge pages can't be overcommitted");
    }
}

pub(crate) const POLICY: Rule = Rule {
    id: "kubevirt-migration-policy",
    severity: Severity::Error,
    summary: "a migration policy with a bandwidth, time or factor that can't be",
    why: REFUSED,
    mend: "Write no values below 0, and factors in their ranges",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/\
         validating-webhook/admitters/migrationpolicy-admitter.go",
        "https://kubevirt.io/user-guide/cluster_admin/migration_policies/",
    ],
    affected: &[],
    check: Check::Object(policy),
    fires: &[
        yaml(
            ANY,
            "\
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata:
  name: calm
spec:
  completionTimeoutPerGiB: -1
  selectors:
    virtualMachineInstanceSelector:
      calm: 'true'
",
        )
        .mended(&[(
            "  completionTimeoutPerGiB: -1\n",
            "  allowAutoConverge: true
  bandwidthPerMigration: 64Mi
  completionTimeoutPerGiB: 120
",
        )]),
        yaml(
            ANY,
            "\
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata:
  name: calm
spec:
  bandwidthPerMigration: -64Mi
  selectors:
    virtualMachineInstanceSelector:
      calm: 'true'
",
        ),
    ],
    quiet: &[],
};

/// Factors of 1.9's stall detector, with their least and most; of the first the least is
/// too little.
const FACTORS: [(&str, f64, f64); 4] = [
    ("ewmaAlpha", 0.0, 1.0),
    ("precopyPossibleFactor", 1.0, f64::MAX),
    ("patienceWindowDecayFactor", 0.0, 1.0),
    ("completionTimeoutFactor", 1.0, f64::MAX),
];

fn policy(object: &KubeObject, context: &Context, out: &mut Drafts) {
    if object.kind.value != "MigrationPolicy" {
        return;
    }
    for path in ["spec.completionTimeoutPerGiB", "spec.bandwidthPerMigration"] {
        let (node, span) = object.given(path);
        if node.and_then(Node::quantity).is_some_and(|value| value < 0.0) {
            let key = path.trim_start_matches("spec.");
            out.at(span, format!("{key} {} is below 0", node.and_then(Node::text).unwrap_or("")));
        }
    }
    if context.kubevirt < KubevirtVersion::new(1, 9, 0) {
        return;
    }
    for (name, least, most) in FACTORS {
        let path = format!("spec.experimental.stallDetector.{name}");
        let (Some(node), span) = object.given(&path) else { continue };
        let text = node.text().unwrap_or_default();
        match text.parse::<f64>().ok().filter(|factor| factor.is_finite()) {
            None => out.at(span, format!("{name} {text:?} is no number")),
            Some(factor) if name == "ewmaAlpha" && factor <= 0.0 => {
                out.at(span, format!("{name} {text} is not greater than 0"))
            }
            Some(factor) if factor < least => {
                out.at(span, format!("{name} {text} is less than {least}"))
            }
            Some(factor) if factor > most => {
                out.at(span, format!("{name} {text} is more than {most}"))
            }
            Some(_) => continue,
        };
    }
}

pub(crate) const MIGRATION: Rule = Rule {
    id: "kubevirt-migration",
    severity: Severity::Error,
    summary: "a migration of no VM, or one between clusters whose two ends do not meet",
    why: REFUSED,
    mend: "Name the VMI in vmiName, and give sendTo and receive the same migrationID",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/\
         validating-webhook/admitters/migration-create-admitter.go",
        "https://kubevirt.io/user-guide/compute/live_migration/",
    ],
    affected: &[],
    check: Check::Object(migration),
    fires: &[yaml(
        ANY,
        "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata:
  name: away
spec: {}
",
    )
    .mended(&[("spec: {}\n", "spec:\n  vmiName: web\n")])],
    quiet: &[],
};

fn migration(object: &KubeObject, _: &Context, out: &mut Drafts) {
    if object.kind.value != "VirtualMachineInstanceMigration" {
        return;
    }
    let (name, span) = object.text("spec.vmiName");
    if name.is_empty() {
        out.at(span, "vmiName is missing: which VM is to migrate");
    }
    let end = |name: &str| object.given(&format!("spec.{name}.migrationID"));
    if let ((Some(sent), _), (Some(received), span)) = (end("sendTo"), end("receive"))
        && sent.text() != received.text()
    {
        let id = |node: &Node| node.text().unwrap_or_default().to_owned();
        out.at(span, format!("{} is sent to, and {} received", id(sent), id(received)));
    }
}

pub(crate) const CLONE: Rule = Rule {
    id: "kubevirt-clone",
    severity: Severity::Error,
    summary: "a clone of something that can't be cloned, to where it can't be, or by a bad filter",
    why: REFUSED,
    mend: "Clone a VirtualMachine or a VirtualMachineSnapshot to another VirtualMachine; a filter \
           has ! at its beginning and * at its end only",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/\
         validating-webhook/admitters/vmclone-admitter.go",
        "https://kubevirt.io/user-guide/storage/clone_api/",
    ],
    affected: &[],
    check: Check::Object(clone),
    fires: &[
        yaml(
            ANY,
            "\
apiVersion: clone.kubevirt.io/v1beta1
kind: VirtualMachineClone
metadata:
  name: copy
spec:
  source:
    apiGroup: kubevirt.io
    kind: VirtualMachine
    name: web
  target:
    apiGroup: kubevirt.io
    kind: VirtualMachine
    name: web
",
        ),
        yaml(
            ANY,
            "\
apiVersion: clone.kubevirt.io/v1beta1
kind: VirtualMachineClone
metadata:
  name: copy
spec:
  source:
    apiGroup: kubevirt.io
    kind: VirtualMachineInstance
    name: web
",
        ),
        yaml(
            ANY,
            "\
apiVersion: clone.kubevirt.io/v1beta1
kind: VirtualMachineClone
metadata:
  name: copy
spec:
  source:
    apiGroup: kubevirt.io
    kind: VirtualMachine
    name: web
  labelFilters:
  - '*'
  - some*key
  newMacAddresses:
    default: 02:00:00:00:01
",
        ),
    ],
    quiet: &[yaml(
        ANY,
        "\
apiVersion: clone.kubevirt.io/v1beta1
kind: VirtualMachineClone
metadata:
  name: copy
spec:
  source:
    apiGroup: kubevirt.io
    kind: VirtualMachine
    name: web
  target:
    apiGroup: kubevirt.io
    kind: VirtualMachine
    name: web-2
  labelFilters:
  - '*'
  - '!some/key*'
  newMacAddresses:
    default: 02:00:00:00:00:01
  patches:
  - '{\"op\": \"replace\", \"path\": \"/spec/runStrategy\", \"value\": \"Halted\"}'
",
    )],
};

fn clone(object: &KubeObject, _: &Context, out: &mut Drafts) {
    if object.kind.value != "VirtualMachineClone" {
        return;
    }
    for path in
        ["annotationFilters", "labelFilters", "template.annotationFilters", "template.labelFilters"]
    {
        for filter in items(&object.node, &format!("spec.{path}")) {
            filter_is_bad(filter, out);
        }
    }
    let (kind, span) = object.text("spec.source.kind");
    if !matches!(kind, "VirtualMachine" | "VirtualMachineSnapshot") {
        out.at(span, format!("The source's kind {kind:?} can't be cloned"));
    }
    for key in ["apiGroup", "name"] {
        let (text, span) = object.text(&format!("spec.source.{key}"));
        if text.is_empty() {
            out.at(span, format!("The source's {key} is missing"));
        }
    }
    if object.given("spec.target").0.is_some() {
        let (target, span) = object.text("spec.target.kind");
        if target != "VirtualMachine" {
            out.at(span, format!("The target's kind {target:?} is not VirtualMachine"));
        }
        let (name, span) = object.text("spec.target.name");
        if target == kind && kind == "VirtualMachine" && object.text("spec.source.name").0 == name {
            out.at(span, format!("{name:?} would be cloned to itself"));
        }
    }
    let macs = object.given("spec.newMacAddresses").0.map(Node::entries).unwrap_or_default();
    for (interface, mac) in macs {
        let text = mac.text().unwrap_or_default();
        if !text.is_empty() && text.parse::<MacAddress>().is_err() {
            out.at(
                mac.span,
                format!("{}: {text:?} is no MAC address of six bytes", interface.text),
            );
        }
    }
    for patch in items(&object.node, "spec.patches") {
        let text = patch.text().unwrap_or_default();
        if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
            out.at(patch.span, "The patch is no JSON");
        }
    }
}

fn filter_is_bad(filter: &Node, out: &mut Drafts) {
    let text = filter.text().unwrap_or_default();
    let inner = |skip: usize| text.char_indices().skip(skip).map(|(_, letter)| letter);
    let length = text.chars().count();
    if text == "!" {
        out.at(filter.span, "A filter of ! alone");
    } else if length > 1 && inner(1).any(|letter| letter == '!') {
        out.at(filter.span, format!("{text:?}: ! can stand at the beginning only"));
    } else if length > 1 && inner(0).take(length - 1).any(|letter| letter == '*') {
        out.at(filter.span, format!("{text:?}: * can stand at the end only"));
    }
}

pub(crate) const SNAPSHOT: Rule = Rule {
    id: "kubevirt-snapshot-source",
    severity: Severity::Error,
    summary: "a snapshot, a restore or an export of something that has none",
    why: REFUSED,
    mend: "Name apiGroup, kind and name as the API has them: kubevirt.io, VirtualMachine",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/storage/admitters/vmsnapshot.go",
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/storage/admitters/vmrestore.go",
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/storage/admitters/vmexport.go",
        "https://kubevirt.io/user-guide/storage/snapshot_restore_api/",
    ],
    affected: &[],
    check: Check::Object(snapshot),
    fires: &[
        yaml(
            ANY,
            "\
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineSnapshot
metadata:
  name: before
spec:
  source:
    kind: VirtualMachine
    name: web
",
        )
        .mended(&[("source:", "source:\n    apiGroup: kubevirt.io")]),
        yaml(
            ANY,
            "\
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineRestore
metadata:
  name: back
spec:
  target:
    apiGroup: kubevirt.io
    kind: VirtualMachineInstance
    name: web
  virtualMachineSnapshotName: before
",
        ),
        yaml(
            ANY,
            "\
apiVersion: export.kubevirt.io/v1beta1
kind: VirtualMachineExport
metadata:
  name: out
spec:
  source:
    apiGroup: kubevirt.io
    kind: PersistentVolumeClaim
    name: root
",
        ),
    ],
    quiet: &[yaml(
        KUBEVIRT_1_8,
        "\
apiVersion: export.kubevirt.io/v1beta1
kind: VirtualMachineExport
metadata:
  name: out
spec:
  source:
    apiGroup: ''
    kind: PersistentVolumeClaim
    name: root
",
    )],
};

/// Kinds that can be exported, with their groups. A template's is reported by
/// [`KubeObject::kind`]'s cluster alone.
const EXPORTED: [(&str, &str); 5] = [
    ("PersistentVolumeClaim", ""),
    ("VirtualMachineSnapshot", "snapshot.kubevirt.io"),
    ("VirtualMachine", "kubevirt.io"),
    ("VirtualMachineBackup", "backup.kubevirt.io"),
    ("VirtualMachineTemplate", "template.kubevirt.io"),
];

fn snapshot(object: &KubeObject, context: &Context, out: &mut Drafts) {
    match object.kind.value.as_str() {
        "VirtualMachineSnapshot" => is_machine(object, "spec.source", out),
        "VirtualMachineRestore" => is_machine(object, "spec.target", out),
        "VirtualMachineExport" => {
            let newest = context.kubevirt >= KubevirtVersion::new(1, 9, 0);
            let known = &EXPORTED[..if newest { 5 } else { 3 }];
            let (kind, span) = object.text("spec.source.kind");
            let Some((_, group)) = known.iter().find(|(known, _)| *known == kind) else {
                let names: Vec<&str> = known.iter().map(|(kind, _)| *kind).collect();
                out.at(span, format!("The kind {kind:?} is none of {}", names.join(", ")));
                return;
            };
            let (own, span) = object.text("spec.source.apiGroup");
            if own != *group {
                out.at(span, format!("The apiGroup of a {kind} is {group:?}, not {own:?}"));
            }
            let (name, span) = object.text("spec.source.name");
            if name.is_empty() {
                out.at(span, "The source's name is missing");
            }
        }
        _ => {}
    }
}

fn is_machine(object: &KubeObject, path: &str, out: &mut Drafts) {
    let (group, at_group) = object.text(&format!("{path}.apiGroup"));
    let (kind, at_kind) = object.text(&format!("{path}.kind"));
    if group != "kubevirt.io" {
        out.at(at_group, format!("The apiGroup is \"kubevirt.io\", not {group:?}"));
    } else if kind != "VirtualMachine" {
        out.at(at_kind, format!("The kind is VirtualMachine, not {kind:?}"));
    }
}

pub(crate) const RESTORE: Rule = Rule {
    id: "kubevirt-restore",
    severity: Severity::Error,
    summary: "a restore whose patches, volumes or policies are none",
    why: REFUSED,
    mend: "Patch labels, annotations and what is below /spec/ only; name each volume and what is \
           other of it",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/storage/admitters/vmrestore.go",
        "https://kubevirt.io/user-guide/storage/snapshot_restore_api/",
    ],
    affected: &[],
    check: Check::Object(restore),
    fires: &[
        yaml(
            ANY,
            "\
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineRestore
metadata:
  name: back
spec:
  target:
    apiGroup: kubevirt.io
    kind: VirtualMachine
    name: web
  virtualMachineSnapshotName: before
  patches:
  - '{\"op\": \"replace\", \"path\": \"/metadata/name\", \"value\": \"web-2\"}'
",
        )
        .mended(&[(
            "  - '{\"op\": \"replace\", \"path\": \"/metadata/name\", \"value\": \"web-2\"}'\n",
            "  - '{\"op\": \"replace\", \"path\": \"/spec/runStrategy\", \"value\": \"Halted\"}'
  volumeRestorePolicy: InPlace
",
        )]),
        yaml(
            ANY,
            "\
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineRestore
metadata:
  name: back
spec:
  target:
    apiGroup: kubevirt.io
    kind: VirtualMachine
    name: web
  virtualMachineSnapshotName: before
  volumeRestoreOverrides:
  - volumeName: root
",
        ),
    ],
    quiet: &[],
};

fn restore(object: &KubeObject, _: &Context, out: &mut Drafts) {
    // Of what is no restore of a VM the rest is not looked at.
    if object.kind.value != "VirtualMachineRestore"
        || object.text("spec.target.kind").0 != "VirtualMachine"
    {
        return;
    }
    for patch in items(&object.node, "spec.patches") {
        let text = patch.text().unwrap_or_default();
        // By commas and colons, as KubeVirt splits it.
        for pair in text.trim_matches(['{', '}']).split(',') {
            let parts: Vec<&str> = pair.split(':').map(str::trim).collect();
            match parts.as_slice() {
                ["\"path\"", path] => {
                    let known = ["\"/metadata/labels/", "\"/metadata/annotations/", "\"/spec/"];
                    if !known.iter().any(|start| path.starts_with(start)) {
                        out.at(patch.span, format!("{path} is not below /spec/"));
                    }
                }
                [_, _] => {}
                _ => {
                    out.at(patch.span, format!("One colon is taken, and not {:?}", pair.trim()));
                }
            }
        }
    }
    for volume in items(&object.node, "spec.volumeRestoreOverrides") {
        if word(volume, "volumeName").is_none() {
            out.at(volume.span, "An override names no volume");
        }
        let other = ["annotations", "labels"].iter().any(|key| volume.given(key).is_some());
        if word(volume, "restoreName").is_none() && !other {
            out.at(volume.span, "An override says nothing of its volume");
        }
    }
    for (key, known) in [
        ("volumeRestorePolicy", &["InPlace", "RandomizeNames", "PrefixTargetName"][..]),
        ("volumeOwnershipPolicy", &["Vm", "None"]),
    ] {
        super::one_of(&object.node, &format!("spec.{key}"), known, out);
    }
}
