//! The machine: its architecture, numbers, resources and small devices.

use vmconfig::kubevirt::defaults;

use super::{ADMITTERS, REFUSED, list, one_of, place, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::{Node, QuantityValue as _};
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;

const ARM64: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/arm64.go";
const AMD64: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/amd64.go";

const GOOD: &str = "\
architecture: amd64
evictionStrategy: LiveMigrateIfPossible
domain:
  cpu:
    sockets: 1
    cores: 2
    threads: 1
  machine:
    type: q35
  memory:
    guest: 1Gi
  resources:
    requests:
      cpu: 500m
      memory: 1Gi
    limits:
      cpu: '2'
      memory: 2Gi
  devices:
    inputs:
    - name: tablet
      type: tablet
      bus: usb
    sound:
      name: sound
      model: ich9
    watchdog:
      name: watchdog
      i6300esb:
        action: poweroff
";

pub(crate) const MACHINE: Rule = Rule {
    id: "kubevirt-machine-type",
    severity: Severity::Error,
    summary: "a machine type that KubeVirt does not take",
    why: "Unless the cluster's configuration lists others (emulatedMachines), the admission webhook \
          takes q35 and pc-q35 on amd64, virt on arm64, s390-ccw-virtio on s390x, and their \
          versions.",
    mend: "Write machine.type: q35, or leave it out",
    sources: &[ADMITTERS, "https://kubevirt.io/user-guide/compute/virtual_hardware/#machine-type"],
    affected: &[],
    check: Check::Vm(machine),
    fires: &[yaml(
        ANY,
        "domain:\n  machine:\n    type: pc-i440fx-7.2\n  memory:\n    guest: 1Gi\n  devices: {}\n",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn machine(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some((text, span)) = vm.kube("domain.machine").and_then(|node| word(node, "type")) else {
        return;
    };
    // The cluster's own architecture is not known.
    let arch = vm.kube("architecture").and_then(Node::text).filter(|arch| !arch.is_empty());
    let known: Vec<&str> = defaults::ARCHITECTURES
        .iter()
        .filter(|known| arch.is_none_or(|arch| arch == **known))
        .flat_map(|arch| defaults::machines(arch))
        .copied()
        .collect();
    if !known.is_empty() && !known.iter().any(|known| text.starts_with(known)) {
        out.at(
            span,
            format!("KubeVirt takes {} and versions of it, not {text:?}", known.join(", ")),
        );
    }
}

pub(crate) const ARCHITECTURE: Rule = Rule {
    id: "kubevirt-architecture",
    severity: Severity::Error,
    summary: "an architecture that KubeVirt does not have, or what it does not have there",
    why: "The admission webhook takes amd64, arm64 and s390x. arm64 boots by UEFI only, with the \
          host's own CPU model, and has no watchdog and no sound.",
    mend: "Leave out what this architecture does not have",
    sources: &[ARM64, AMD64],
    affected: &[],
    check: Check::Vm(architecture),
    fires: &[yaml(
        ANY,
        "\
architecture: arm64
domain:
  cpu:
    cores: 2
    model: host-model
  memory:
    guest: 1Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn architecture(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(arch) = vm.kube("architecture") else { return };
    let text = arch.text().unwrap_or_default();
    let known = defaults::ARCHITECTURES;
    let since = |minor: u32| context.kubevirt >= KubevirtVersion::new(1, minor, 0);
    if !text.is_empty() && !known.contains(&text) && since(6) {
        out.at(arch.span, format!("KubeVirt has no architecture {text:?}: {}", known.join(", ")));
    }
    let given = |path: &str| vm.kube(path).filter(|node| !node.is_null());
    match text {
        "arm64" => {
            if let Some(bios) = given("domain.firmware.bootloader.bios") {
                out.at(bios.span, "arm64 boots by UEFI only: efi: {}");
            }
            if let Some((model, span)) = vm.kube("domain.cpu").and_then(|cpu| word(cpu, "model"))
                && model != "host-passthrough"
                && since(6)
            {
                out.at(span, format!("arm64 has the model host-passthrough only, not {model}"));
            }
            for device in ["watchdog", "sound"] {
                if let Some(node) = given(&format!("domain.devices.{device}"))
                    && since(0)
                {
                    out.at(node.span, format!("arm64 has no {device}"));
                }
            }
        }
        "amd64" | "" => {
            if let Some(node) = given("domain.devices.watchdog.diag288").filter(|_| since(6)) {
                out.at(node.span, "diag288 is a watchdog of s390x; amd64 has i6300esb");
            }
        }
        "s390x" => {
            if let Some(node) = given("domain.devices.watchdog.i6300esb").filter(|_| since(6)) {
                out.at(node.span, "i6300esb is a watchdog of amd64; s390x has diag288");
            }
            if let Some(node) = given("domain.devices.panicDevices").filter(|_| since(6))
                && !node.items().is_empty()
            {
                out.at(node.span, "s390x has no panic devices to choose");
            }
        }
        _ => {}
    }
}

/// Fields of KubeVirt's API that are unsigned and of 32 bits.
const UNSIGNED: [&str; 6] = [
    "domain.cpu.sockets",
    "domain.cpu.cores",
    "domain.cpu.threads",
    "domain.cpu.maxSockets",
    "domain.ioThreads.supplementalPoolThreadCount",
    "domain.features.hyperv.spinlocks.spinlocks",
];

pub(crate) const NUMBER: Rule = Rule {
    id: "kubevirt-number",
    severity: Severity::Error,
    summary: "a number below 0 where KubeVirt counts",
    why: "The schema takes any integer; the admission webhook can't read the object.",
    mend: "Write a number from 1",
    sources: &["https://kubevirt.io/api-reference/main/definitions.html#_v1_cpu"],
    affected: &[],
    check: Check::Vm(number),
    fires: &[yaml(
        ANY,
        "domain:\n  cpu:\n    cores: -1\n  memory:\n    guest: 1Gi\n  devices: {}\n",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn number(vm: &Vm, _: &Context, out: &mut Drafts) {
    let fixed = UNSIGNED.iter().filter_map(|path| vm.kube(path));
    let devices = super::disks_of(vm).iter().chain(super::interfaces_of(vm));
    let orders = devices.filter_map(|device| device.get("bootOrder"));
    let sizes = super::disks_of(vm).iter().flat_map(|disk| {
        ["logical", "physical", "discardGranularity"]
            .into_iter()
            .filter_map(|size| disk.get("blockSize.custom")?.get(size))
    });
    for node in fixed.chain(orders).chain(sizes) {
        if let Some(number) = node.integer()
            && !(0..=i64::from(u32::MAX)).contains(&number)
        {
            out.at(node.span, format!("{number} is below 0 or too large"));
        }
    }
}

pub(crate) const ZERO: Rule = Rule {
    id: "kubevirt-zero",
    severity: Severity::Hint,
    summary: "a level of the topology that is 0",
    why: "KubeVirt takes 0 for a level that was not said, which means 1.",
    mend: "Write the number that is meant, or leave it out",
    sources: &["https://github.com/kubevirt/kubevirt/blob/main/pkg/util/hardware/hw_utils.go"],
    affected: &[],
    check: Check::Vm(zero),
    fires: &[yaml(
        ANY,
        "domain:\n  cpu:\n    sockets: 2\n    cores: 0\n  memory:\n    guest: 1Gi\n  devices: {}\n",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn zero(vm: &Vm, _: &Context, out: &mut Drafts) {
    for level in ["sockets", "cores", "threads"] {
        if let Some(node) = vm.kube(&format!("domain.cpu.{level}"))
            && node.integer() == Some(0)
        {
            out.at(node.span, format!("{level}: 0 is the same as no {level}: it means 1"));
        }
    }
}

pub(crate) const RESOURCES: Rule = Rule {
    id: "kubevirt-resources",
    severity: Severity::Error,
    summary: "a request below 0, above its limit, or of less than 1 MB of memory",
    why: REFUSED,
    mend: "Ask for no more than the limit, or leave requests and limits out",
    sources: &[ADMITTERS],
    affected: &[],
    check: Check::Vm(resources),
    fires: &[yaml(
        ANY,
        "\
domain:
  resources:
    requests:
      memory: 4Gi
    limits:
      memory: 2Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn resources(vm: &Vm, _: &Context, out: &mut Drafts) {
    for what in ["cpu", "memory"] {
        let amount = |side: &str| {
            let node = vm.kube(&format!("domain.resources.{side}.{what}"))?;
            Some((node, node.quantity()?))
        };
        let (request, limit) = (amount("requests"), amount("limits"));
        for (node, amount) in [request, limit].into_iter().flatten() {
            if amount < 0.0 {
                out.at(node.span, format!("{} is below 0", node.text().unwrap_or_default()));
            }
        }
        if let (Some((node, request)), Some((top, limit))) = (request, limit)
            && limit > 0.0
            && request > limit
        {
            let (request, limit) =
                (node.text().unwrap_or_default(), top.text().unwrap_or_default());
            out.at(
                node.span,
                format!("{what}: the request {request} is more than the limit {limit}"),
            );
        }
        if let Some((node, bytes)) = request.filter(|_| what == "memory")
            && bytes > 0.0
            && bytes < 1e6
        {
            let draft = out.at(node.span, "Less than 1 MB of memory");
            if node.text().is_some_and(|text| text.ends_with('m')) {
                draft.help("`m` means a thousandth: megabytes are M, mebibytes Mi");
            }
        }
    }
}

pub(crate) const MEMORY: Rule = Rule {
    id: "kubevirt-no-memory",
    severity: Severity::Error,
    summary: "nothing says how much memory the VM has",
    why: "The admission webhook refuses the VMI: it needs memory.guest, huge pages, or a request or \
          limit of memory.",
    mend: "Say memory.guest",
    sources: &[ADMITTERS],
    affected: &[],
    check: Check::Vm(memory),
    fires: &[yaml(ANY, "domain:\n  cpu:\n    cores: 2\n  devices: {}\n")],
    quiet: &[yaml(ANY, GOOD)],
};

fn memory(vm: &Vm, _: &Context, out: &mut Drafts) {
    let said = [
        "domain.memory.guest",
        "domain.memory.hugepages",
        "domain.resources.requests.memory",
        "domain.resources.limits.memory",
    ];
    // Dedicated pCPUs without memory are another rule's.
    let Some(kubevirt) = vm.kubevirt.as_ref().filter(|_| !vm.is_dedicated()) else { return };
    if !kubevirt.open && said.iter().all(|path| kubevirt.spec.given(path).is_none()) {
        out.at(vm.head, "The VM has no memory");
    }
}

pub(crate) const DEVICES: Rule = Rule {
    id: "kubevirt-device",
    severity: Severity::Error,
    summary: "an input, sound, video or panic device that KubeVirt does not have",
    why: REFUSED,
    mend: "Write type: tablet on usb or virtio, model: ich9 or ac97, a video type of the \
           architecture",
    sources: &[ADMITTERS, AMD64, ARM64],
    affected: &[],
    check: Check::Vm(devices),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    inputs:
    - name: mouse
      type: mouse
      bus: ps2
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn devices(vm: &Vm, context: &Context, out: &mut Drafts) {
    let since = |minor: u32| context.kubevirt >= KubevirtVersion::new(1, minor, 0);
    for input in list(vm, "domain.devices.inputs") {
        one_of(input, "bus", &["usb", "virtio"], out);
        one_of(input, "type", &["tablet"], out);
    }
    if let Some(sound) = vm.kube("domain.devices.sound").filter(|node| !node.is_null()) {
        one_of(sound, "model", &["ich9", "ac97"], out);
        if word(sound, "name").is_none() {
            out.at(sound.span, "sound needs a name");
        }
    }
    if since(6) {
        for device in list(vm, "domain.devices.panicDevices") {
            one_of(device, "model", &["hyperv", "isa", "pvpanic"], out);
        }
        if let Some(video) = vm.kube("domain.devices.video").filter(|node| !node.is_null()) {
            let arch = vm.kube_architecture();
            let known: &[&str] = match arch {
                "arm64" => &["virtio", "ramfb"],
                "s390x" => &["virtio"],
                _ => &["vga", "cirrus", "virtio", "ramfb", "bochs"],
            };
            one_of(video, "type", known, out);
            let graphics = vm.kube("domain.devices.autoattachGraphicsDevice");
            if graphics.is_some_and(|node| node.text() == Some("false")) {
                out.at(video.span, "video can't go with autoattachGraphicsDevice: false");
            }
        }
    }
    // One display of a mediated device can be what firmware draws on.
    let is_ramfb = |gpu: &&Node| {
        gpu.given("virtualGPUOptions.display").is_some_and(|display| {
            display.given("enabled").is_none_or(Node::is_true)
                && display
                    .given("ramFB")
                    .is_none_or(|ramfb| ramfb.given("enabled").is_none_or(Node::is_true))
        })
    };
    if since(3)
        && let Some(second) = list(vm, "domain.devices.gpus").iter().filter(is_ramfb).nth(1)
    {
        out.at(place(second), "Only one GPU's display can have ramFB");
    }
}

pub(crate) const EVICTION: Rule = Rule {
    id: "kubevirt-strategy",
    severity: Severity::Error,
    summary: "an evictionStrategy or startStrategy that does not exist",
    why: REFUSED,
    mend: "Write evictionStrategy: None, LiveMigrate, LiveMigrateIfPossible or External; \
           startStrategy: Paused",
    sources: &[ADMITTERS, "https://kubevirt.io/user-guide/compute/node_assignment/"],
    affected: &[],
    check: Check::Vm(strategy),
    fires: &[yaml(
        ANY,
        "evictionStrategy: Migrate\ndomain:\n  memory:\n    guest: 1Gi\n  devices: {}\n",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn strategy(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(kubevirt) = &vm.kubevirt else { return };
    let known: Vec<&str> = [
        ("None", KubevirtVersion::new(0, 44, 0)),
        ("LiveMigrate", KubevirtVersion::new(0, 44, 0)),
        ("LiveMigrateIfPossible", KubevirtVersion::new(1, 0, 0)),
        ("External", KubevirtVersion::new(0, 53, 0)),
    ]
    .into_iter()
    .filter(|(_, since)| context.kubevirt >= *since)
    .map(|(name, _)| name)
    .collect();
    one_of(&kubevirt.spec, "evictionStrategy", &known, out);
    one_of(&kubevirt.spec, "startStrategy", &["Paused"], out);
    for key in ["evictionStrategy", "startStrategy"] {
        // Here an empty text is one that was said.
        if let Some(node) = kubevirt.spec.given(key).filter(|node| node.text() == Some("")) {
            out.at(node.span, format!("{key} has no value: take it out"));
        }
    }
    if let Some((_, span)) = word(&kubevirt.spec, "startStrategy")
        && kubevirt.spec.given("livenessProbe").is_some()
    {
        out.at(span, "A VM that starts paused can't have a livenessProbe");
    }
}

pub(crate) const UTILITY: Rule = Rule {
    id: "kubevirt-utility-volume",
    severity: Severity::Error,
    summary: "utilityVolumes in an object that is to be created",
    why: "They are plugged into a running VM only; the admission webhook refuses an object that has \
          them from the start.",
    mend: "Take utilityVolumes out",
    sources: &[
        "https://github.com/kubevirt/kubevirt/blob/main/pkg/storage/admitters/storagehotplug.go",
    ],
    affected: &[AffectedVersions::kubevirt(Some("1.8.0"), None)],
    check: Check::Vm(utility),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices: {}
utilityVolumes:
- name: dump
  claimName: dump
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn utility(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(kubevirt) = vm.kubevirt.as_ref().filter(|kubevirt| !kubevirt.lives()) else { return };
    if let Some((key, _)) =
        kubevirt.spec.entry("utilityVolumes").filter(|(_, node)| !node.is_null())
    {
        out.at(key.span, "utilityVolumes can only be plugged in later");
    }
}
