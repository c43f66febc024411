//! What the guest boots with, and what it is told of its hypervisor.

use super::{ADMITTERS, REFUSED, is_clean_path, is_on, volumes_of, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;

const GOOD: &str = "\
domain:
  features:
    smm: {}
    hyperv:
      vpindex: {}
      synic: {}
      synictimer: {}
  firmware:
    bootloader:
      efi:
        secureBoot: true
  memory:
    guest: 1Gi
  devices: {}
";

pub(crate) const FIRMWARE: Rule = Rule {
    id: "kubevirt-firmware",
    severity: Severity::Error,
    summary: "firmware that is two at once, or that lacks what it needs",
    why: "The admission webhook refuses EFI and BIOS at once, secure boot without SMM (secure boot \
          is on where efi does not say), kernel arguments without a kernel, and ACPI tables of no \
          secret.",
    mend: "Say efi or bios, and features.smm: {} or secureBoot: false with efi",
    sources: &[ADMITTERS, "https://kubevirt.io/user-guide/compute/virtual_hardware/#biosuefi"],
    affected: &[],
    check: Check::Vm(firmware),
    fires: &[yaml(
        ANY,
        "\
domain:
  firmware:
    bootloader:
      efi: {}
  memory:
    guest: 1Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn firmware(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(firmware) = vm.kube("domain.firmware") else { return };
    let given = |path: &str| firmware.entry(path).filter(|(_, node)| !node.is_null());
    let efi = given("bootloader.efi");
    if let (Some(_), Some((bios, _))) = (efi, given("bootloader.bios")) {
        out.at(bios.span, "efi and bios at once");
    }
    if let Some((key, efi)) = efi {
        let switch = efi.given("secureBoot");
        // On arm64 it is off where nobody says, and what the cluster runs on is
        // not known.
        let secure = match switch {
            Some(node) => node.is_true(),
            None => !vm.is_arm(),
        };
        let tdx = vm.kube("domain.launchSecurity.tdx").is_some_and(|node| !node.is_null())
            && context.kubevirt >= KubevirtVersion::new(1, 8, 0);
        if secure && !is_on(vm.kube("domain.features.smm")) && !tdx {
            let span = switch.map_or(key.span, |node| node.span);
            let draft = out.at(span, "Secure boot needs features.smm");
            if switch.is_none() {
                draft.note("secureBoot is true where efi does not say");
            }
        }
    }
    if context.kubevirt >= KubevirtVersion::new(0, 53, 0) {
        kernel_boot(firmware, out);
    }
    if let Some((key, acpi)) =
        given("acpi").filter(|_| context.kubevirt >= KubevirtVersion::new(1, 6, 0))
    {
        let tables: Vec<_> =
            ["slicNameRef", "msdmNameRef"].iter().filter_map(|name| word(acpi, name)).collect();
        if tables.is_empty() {
            out.at(key.span, "acpi names no volume: slicNameRef or msdmNameRef");
        }
        for (volume, span) in tables {
            match volumes_of(vm).iter().find(|node| super::name(node) == volume) {
                None => {
                    out.at(span, format!("No volume has the name {volume:?}"));
                }
                Some(node) if node.given("secret").is_none() => {
                    out.at(span, format!("The table's volume {volume} is no secret"));
                }
                Some(_) => {}
            }
        }
    }
}

fn kernel_boot(firmware: &Node, out: &mut Drafts) {
    let Some(boot) = firmware.given("kernelBoot") else { return };
    let Some((key, container)) = boot.entry("container").filter(|(_, node)| !node.is_null()) else {
        if let Some((_, span)) = word(boot, "kernelArgs") {
            out.at(span, "Kernel arguments without a kernel: container is missing");
        }
        return;
    };
    if word(container, "image").is_none() {
        out.at(key.span, "container needs an image");
    }
    let paths = ["kernelPath", "initrdPath"].map(|name| word(container, name));
    if paths.iter().all(Option::is_none) {
        out.at(key.span, "container needs kernelPath or initrdPath");
    }
    for (path, span) in paths.into_iter().flatten() {
        if !is_clean_path(path) {
            out.at(span, format!("{path:?} is no absolute path of a file"));
        }
    }
}

/// Enlightenments and those that they need; what is needed is switched on, unless it
/// is switched off.
const NEEDS: [(&str, &str); 5] = [
    ("evmcs", "vapic"),
    ("ipi", "vpindex"),
    ("tlbflush", "vpindex"),
    ("synic", "vpindex"),
    ("synictimer", "synic"),
];

pub(crate) const HYPERV: Rule = Rule {
    id: "kubevirt-hyperv",
    severity: Severity::Error,
    summary: "Hyper-V's enlightenments without those that they need, or beside hypervPassthrough",
    why: "KubeVirt switches on what an enlightenment needs, unless it is switched off: then the \
          admission webhook refuses the VMI.",
    mend: "Switch on what is needed, or take the enlightenment out",
    sources: &["https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/hyperv.go"],
    affected: &[],
    check: Check::Vm(hyperv),
    fires: &[yaml(
        ANY,
        "\
domain:
  features:
    hyperv:
      vpindex:
        enabled: false
      synic: {}
  memory:
    guest: 1Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn hyperv(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some((key, hyperv)) = vm
        .kube("domain.features")
        .and_then(|node| node.entry("hyperv"))
        .filter(|(_, node)| !node.is_null())
    else {
        return;
    };
    for (name, needed) in NEEDS {
        let off = hyperv.given(needed).and_then(|node| node.given("enabled"));
        // What another one needs is on too.
        let implied =
            name == "synic" && hyperv.get("synic").is_none() && is_on(hyperv.get("synictimer"));
        if (is_on(hyperv.get(name)) || implied)
            && let Some(off) = off.filter(|node| !node.is_true())
        {
            out.at(off.span, format!("{name} needs {needed}, which is switched off"));
        }
    }
    let passthrough = vm.kube("domain.features.hypervPassthrough").filter(|node| !node.is_null());
    if passthrough.is_some() && context.kubevirt >= KubevirtVersion::new(1, 3, 0) {
        out.at(key.span, "hyperv can't go with hypervPassthrough");
    }
}

pub(crate) const LAUNCH_SECURITY: Rule = Rule {
    id: "kubevirt-launch-security",
    severity: Severity::Error,
    summary: "launchSecurity of two kinds, or with what does not go with it",
    why: REFUSED,
    mend: "Say one of sev, snp and tdx, with efi: {secureBoot: false} for AMD's, and no boot order \
           for interfaces",
    sources: &["https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/amd64.go"],
    affected: &[AffectedVersions::kubevirt(Some("1.7.0"), None)],
    check: Check::Vm(launch_security),
    fires: &[yaml(
        ANY,
        "\
domain:
  launchSecurity:
    sev: {}
  memory:
    guest: 1Gi
  devices: {}
",
    )],
    quiet: &[yaml(
        ANY,
        "\
domain:
  launchSecurity:
    sev: {}
  firmware:
    bootloader:
      efi:
        secureBoot: false
  memory:
    guest: 1Gi
  devices: {}
",
    )],
};

fn launch_security(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some((key, security)) = vm
        .kubevirt
        .as_ref()
        .and_then(|kubevirt| kubevirt.spec.entry("domain.launchSecurity"))
        .filter(|(_, node)| !node.is_null())
    else {
        return;
    };
    match vm.kube_architecture() {
        "" | "amd64" => {}
        // IBM's Secure Execution has nothing to say here.
        "s390x" => return,
        other => {
            out.at(key.span, format!("{other} has no launchSecurity"));
            return;
        }
    }
    let kinds: Vec<&str> =
        ["sev", "snp", "tdx"].into_iter().filter(|kind| security.given(kind).is_some()).collect();
    let [kind] = kinds.as_slice() else {
        // An empty one may mean another architecture's.
        if !kinds.is_empty() || vm.kube("architecture").is_some() {
            out.at(key.span, "Say just one of sev, snp and tdx");
        }
        return;
    };
    if *kind == "tdx" && is_on(vm.kube("domain.features.smm")) {
        out.at(key.span, "tdx can't go with SMM");
    }
    match vm.kube("domain.firmware.bootloader.efi").filter(|node| !node.is_null()) {
        None => {
            out.at(key.span, format!("{kind} needs firmware.bootloader.efi"));
        }
        Some(efi) => {
            if *kind != "tdx" && efi.given("secureBoot").is_none_or(Node::is_true) {
                out.at(key.span, format!("{kind} can't go with secure boot: secureBoot: false"));
            }
            if *kind != "sev" && efi.get("persistent").is_some_and(Node::is_true) {
                out.at(key.span, format!("{kind} can't go with persistent EFI variables"));
            }
        }
    }
    if security.given("sev.attestation").is_some()
        && vm.kube("startStrategy").and_then(Node::text) != Some("Paused")
    {
        out.at(key.span, "sev.attestation needs startStrategy: Paused");
    }
    for interface in super::interfaces_of(vm) {
        if let Some(order) = interface.given("bootOrder") {
            out.at(order.span, format!("{kind} can't boot from an interface"));
        }
    }
}
