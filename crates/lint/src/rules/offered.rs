//! Machine types, devices, firmware and the like against what the host's QEMU and
//! libvirt can do.

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, ConfigFormat, Rule, qemu, xml, yaml};
use crate::rules::offered_cpu::{CpuOffer, here};
use crate::rules::worlds::{ANY, OFFERS, OFFERS_OF_QEMU};
use crate::vm::Vm;
use topology::bounded::by_likeness;
use vmconfig::offers::DomainKind;

const CAPABILITIES: &str = "https://libvirt.org/formatcaps.html";
const DOMAIN_CAPABILITIES: &str = "https://libvirt.org/formatdomaincaps.html";
const QMP: &str = "https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html";

/// The machine type that is meant where none is named.
fn machine(vm: &Vm) -> &str {
    vm.asks.machine.as_ref().map_or_else(
        || match vm.format {
            _ if vm.is_arm() => "virt",
            ConfigFormat::Kubevirt => "q35",
            _ => "pc",
        },
        |machine| machine.value.as_str(),
    )
}

/// What libvirt tells of domains like this one; only to those that libvirt starts.
fn kind<'a>(vm: &Vm, here: CpuOffer<'a>) -> Option<&'a DomainKind> {
    if vm.is_command() {
        return None;
    }
    here.offers.domain(here.arch, here.accel, machine(vm))
}

pub(crate) const ACCELERATOR_NOT_OFFERED: Rule = Rule {
    id: "accelerator-not-offered",
    severity: Severity::Error,
    summary: "the host has no KVM for a guest of this architecture",
    why: "libvirt lists kvm among an architecture's domains where it found /dev/kvm and a QEMU that \
          can use it: elsewhere such a domain is refused, and QEMU ends at -accel kvm.",
    mend: "Load kvm_intel or kvm_amd, switch virtualization on in the firmware, or give the user \
           access to /dev/kvm; type='qemu' emulates",
    sources: &[CAPABILITIES, QMP],
    affected: &[],
    check: Check::Vm(accelerator_not_offered),
    fires: &[xml(
        OFFERS,
        "<vcpu>1</vcpu>\n<os><type arch='aarch64' machine='virt'>hvm</type></os>\n",
    )],
    quiet: &[xml(
        OFFERS,
        "<vcpu>1</vcpu>\n<os><type arch='x86_64' machine='q35'>hvm</type></os>\n",
    )],
};

fn accelerator_not_offered(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(here) = here(vm, context) else { return };
    // QEMU takes a list, of which another may be there.
    if vm.is_command() {
        return;
    }
    let there = here.offers.accels.get(here.arch);
    if there.is_some_and(|there| !there.contains(&here.accel)) {
        let name = here.accel.name();
        out.at(vm.accel.span, format!("The host offers no {name} for guests of {}", here.arch));
    }
}

pub(crate) const MACHINE_NOT_OFFERED: Rule = Rule {
    id: "machine-not-offered",
    severity: Severity::Error,
    summary: "the host's QEMU does not have the machine type",
    why: "QEMU drops machine types some six years after they came, distributions have names of \
          their own (pc-q35-rhel9.2.0), and a domain from a newer host names what an older QEMU \
          never had: it does not start.",
    mend: "Name a machine type of virsh capabilities; q35 or pc is the newest. The guest may see \
           other devices then: Windows may want to be activated again",
    sources: &[CAPABILITIES, "https://www.qemu.org/docs/master/about/deprecated.html", QMP],
    affected: &[],
    check: Check::Vm(machine_not_offered),
    fires: &[
        xml(OFFERS, "<vcpu>1</vcpu>\n<os><type machine='pc-q35-10.0'>hvm</type></os>\n"),
        qemu(OFFERS_OF_QEMU, "kvm -machine pc-q35-2.3 -m 1G -cpu host"),
        yaml(OFFERS, "domain:\n  machine:\n    type: pc-q35-rhel9.2.0\n  devices: {}\n"),
    ],
    quiet: &[
        xml(OFFERS, "<vcpu>1</vcpu>\n<os><type machine='pc-q35-7.2'>hvm</type></os>\n"),
        xml(OFFERS, "<vcpu>1</vcpu>\n<os><type arch='s390x' machine='s390'>hvm</type></os>\n"),
        qemu(OFFERS_OF_QEMU, "kvm -machine q35 -m 1G -cpu host"),
        yaml(OFFERS, "domain:\n  machine:\n    type: q35\n  devices: {}\n"),
    ],
};

fn machine_not_offered(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(here), Some(asked)) = (here(vm, context), &vm.asks.machine) else { return };
    if here.offers.machine(here.arch, &asked.value).is_some_and(|found| found.is_empty()) {
        let machines = here.offers.machines.iter().filter(|machine| machine.arch == here.arch);
        let mut near = by_likeness(&asked.value, machines.map(|machine| machine.name.as_str()));
        near.dedup();
        near.truncate(3);
        let draft = out.at(asked.span, format!("There is no machine type {}", asked.value));
        draft.note(format!("most like it: {}", near.join(", ")));
    }
}

pub(crate) const MACHINE_DEPRECATED: Rule = Rule {
    id: "machine-deprecated",
    severity: Severity::Warning,
    summary: "the machine type will be gone in a coming QEMU",
    why: "It still starts here. After the upgrade that drops it the VM does not, and can be migrated \
          to no upgraded host.",
    mend: "Move to a newer machine type while the guest can be shut down and looked after",
    sources: &[CAPABILITIES, "https://www.qemu.org/docs/master/about/deprecated.html", QMP],
    affected: &[],
    check: Check::Vm(machine_deprecated),
    fires: &[
        xml(OFFERS, "<vcpu>1</vcpu>\n<os><type machine='pc-i440fx-1.7'>hvm</type></os>\n"),
        qemu(OFFERS_OF_QEMU, "kvm -M pc-i440fx-1.7 -m 1G -cpu host"),
    ],
    quiet: &[
        xml(OFFERS, "<vcpu>1</vcpu>\n<os><type machine='pc-i440fx-7.2'>hvm</type></os>\n"),
        qemu(OFFERS_OF_QEMU, "kvm -M q35 -m 1G -cpu host"),
    ],
};

fn machine_deprecated(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(here), Some(asked)) = (here(vm, context), &vm.asks.machine) else { return };
    let found = here.offers.machine(here.arch, &asked.value).unwrap_or_default();
    if found.iter().any(|machine| machine.deprecated) {
        out.at(asked.span, format!("The machine type {} is deprecated here", asked.value));
    }
}

pub(crate) const VCPUS_BEYOND_MACHINE: Rule = Rule {
    id: "vcpus-beyond-machine",
    severity: Severity::Error,
    summary: "more vCPUs than the machine type takes here",
    why: "The most that a machine type takes differs by its version and by QEMU's build: q35 takes \
          288 up to QEMU 8.0, i440fx 255. libvirt and QEMU refuse what is more.",
    mend: "Take a newer machine type, q35 instead of pc, or fewer vCPUs",
    sources: &[DOMAIN_CAPABILITIES, CAPABILITIES, QMP],
    affected: &[],
    check: Check::Vm(vcpus_beyond_machine),
    fires: &[
        xml(
            OFFERS,
            "<vcpu current='2'>300</vcpu>\n<os><type machine='pc-q35-7.2'>hvm</type></os>\n",
        ),
        qemu(OFFERS_OF_QEMU, "kvm -machine q35 -m 1G -cpu host -smp 2,maxcpus=300"),
    ],
    quiet: &[
        xml(OFFERS, "<vcpu>288</vcpu>\n<os><type machine='pc-q35-7.2'>hvm</type></os>\n"),
        qemu(OFFERS_OF_QEMU, "kvm -machine q35 -m 1G -cpu host -smp 288"),
    ],
};

fn vcpus_beyond_machine(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(here) = here(vm, context) else { return };
    let name = machine(vm);
    let of_machine = here.offers.machine(here.arch, name).unwrap_or_default();
    let of_machine = of_machine.iter().filter_map(|machine| machine.max_vcpus).max();
    // Of the same family, but maybe another version.
    let of_kind = kind(vm, here).filter(|kind| kind.machine == name);
    let most = of_machine.or(of_kind.and_then(|kind| kind.max_vcpus));
    if let Some(most) = most.filter(|most| vm.max_vcpus.value > *most) {
        let message = format!("{} vCPUs; {name} takes {most} here", vm.max_vcpus.value);
        out.at(vm.max_vcpus.span, message);
    }
}

pub(crate) const DEVICE_NOT_OFFERED: Rule = Rule {
    id: "device-not-offered",
    severity: Severity::Error,
    summary: "the host's QEMU does not have a device, a bus or a backend",
    why: "Builds of QEMU differ: RHEL's has few network and sound cards, a video \
          model or a TPM backend may be in a package that is not installed, and q35 has no IDE. \
          libvirt or QEMU refuse to start the VM.",
    mend: "Take a device that virsh domcapabilities lists, or install the package that has it",
    sources: &[DOMAIN_CAPABILITIES, QMP],
    affected: &[],
    check: Check::Vm(device_not_offered),
    fires: &[
        xml(
            OFFERS,
            "\
<vcpu>1</vcpu>
<os><type machine='q35'>hvm</type></os>
<devices><disk type='file'><target dev='hda' bus='ide'/></disk></devices>
",
        )
        .mended(&[("machine='q35'", "machine='pc'")]),
        xml(
            OFFERS,
            "\
<vcpu>1</vcpu>
<memoryBacking><source type='memfd'/></memoryBacking>
<os><type machine='q35'>hvm</type></os>
",
        ),
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu host -nic none -device vmxnet3"),
    ],
    quiet: &[
        xml(
            OFFERS,
            "\
<vcpu>1</vcpu>
<os><type machine='q35'>hvm</type></os>
<devices><disk type='file'><target dev='sda' bus='sata'/></disk>
  <video><model type='virtio'/></video></devices>
",
        ),
        // Of this machine type nobody has told.
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu host -nic none -device virtio-net"),
    ],
};

fn device_not_offered(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(here) = here(vm, context) else { return };
    if let Some(kind) = kind(vm, here) {
        for value in &vm.asks.values {
            let Some(there) = kind.values.get(value.list) else { continue };
            if !there.contains(&value.at.value) {
                let message = format!("There is no {} {} here", value.what, value.at.value);
                let draft = out.at(value.at.span, message);
                let there: Vec<&str> = there.iter().map(String::as_str).collect();
                if !there.is_empty() {
                    draft.note(format!("there are {}", there.join(", ")));
                }
            }
        }
        if let Some(span) = vm.iothreads_at.filter(|_| !vm.iothreads.is_empty())
            && kind.supported.get("iothreads") == Some(&false)
        {
            out.at(span, "This QEMU has no iothreads");
        }
    }
    let Some(types) = here.offers.types.get(here.arch) else { return };
    for asked in &vm.asks.types {
        // A device on PCI, s390's channels or a bus of the machine may be named
        // without it.
        let with_bus = |bus: &str| types.contains(&format!("{}{bus}", asked.value));
        let is_there = types.contains(&asked.value)
            || ["-pci", "-ccw", "-device"].into_iter().any(with_bus)
            || ALIASES.iter().any(|(alias, name)| *alias == asked.value && types.contains(*name));
        if !is_there {
            out.at(asked.span, format!("This QEMU has no {}", asked.value));
        }
    }
}

/// Other names of devices, which QEMU does not list.
///
/// Source: QEMU `system/qdev-monitor.c`.
const ALIASES: &[(&str, &str)] = &[
    ("ac97", "AC97"),
    ("ahci", "ich9-ahci"),
    ("e1000", "e1000-82540em"),
    ("e1000-82540em", "e1000"),
    ("es1370", "ES1370"),
    ("lsi", "lsi53c895a"),
];

pub(crate) const FIRMWARE_NOT_OFFERED: Rule = Rule {
    id: "firmware-not-offered",
    severity: Severity::Error,
    summary: "libvirt finds no firmware of the kind that the domain asks for",
    why: "With firmware='efi' libvirt looks for a description of a UEFI image in \
          /usr/share/qemu/firmware and /etc/qemu/firmware that fits the machine type, and for \
          secure boot one with that feature. Without one the domain does not start.",
    mend: "Install it: ovmf on Debian and Ubuntu, edk2-ovmf on Fedora and RHEL, qemu-ovmf-x86_64 on \
           SUSE",
    sources: &[
        "https://libvirt.org/formatdomain.html#bios-bootloader",
        "https://libvirt.org/formatdomaincaps.html#bios-bootloader",
    ],
    affected: &[],
    check: Check::Vm(firmware_not_offered),
    fires: &[xml(
        OFFERS,
        "<vcpu>1</vcpu>\n<os firmware='efi'><type machine='q35'>hvm</type></os>\n",
    )],
    quiet: &[xml(
        OFFERS,
        "\
<vcpu>1</vcpu>
<os><type machine='q35'>hvm</type>
  <loader readonly='yes' type='pflash'>/srv/OVMF_CODE.fd</loader></os>
",
    )],
};

fn firmware_not_offered(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(kind) = here(vm, context).and_then(|here| kind(vm, here)) else { return };
    let lacks = |list: &str, value: &str| {
        kind.values.get(list).is_some_and(|values| !values.contains(value))
    };
    if let Some(span) = vm.asks.efi.filter(|_| lacks("os.firmware", "efi")) {
        out.at(span, "No UEFI firmware is installed here that fits this machine type");
    } else if let Some(span) = vm.asks.secure_boot.filter(|_| lacks("loader.secure", "yes")) {
        out.at(span, "No UEFI firmware with secure boot is installed here");
    }
}

pub(crate) const LAUNCH_SECURITY_NOT_OFFERED: Rule = Rule {
    id: "launch-security-not-offered",
    severity: Severity::Error,
    summary: "the host can't run confidential guests of this kind",
    why: "SEV and TDX need a processor that has them, firmware that switches them on, and the \
          parameter of kvm_amd or kvm_intel (sev=1, tdx=1). libvirt refuses such a domain \
          elsewhere.",
    mend: "Switch it on in the firmware and in KVM's module, or run the VM on another host",
    sources: &[
        "https://libvirt.org/formatdomain.html#launch-security",
        "https://libvirt.org/formatdomaincaps.html",
    ],
    affected: &[],
    check: Check::Vm(launch_security_not_offered),
    fires: &[xml(
        OFFERS,
        "\
<vcpu>1</vcpu>
<os><type machine='q35'>hvm</type></os>
<launchSecurity type='sev'><policy>0x3</policy></launchSecurity>
",
    )],
    quiet: &[xml(OFFERS, "<vcpu>1</vcpu>\n<os><type machine='q35'>hvm</type></os>\n")],
};

fn launch_security_not_offered(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(asked) = &vm.asks.launch_security else { return };
    let Some(kind) = here(vm, context).and_then(|here| kind(vm, here)) else { return };
    // New libvirts list the kinds, old ones know SEV alone.
    let listed = kind.values.get("launchSecurity.sectype");
    let lacks = match listed {
        Some(kinds) => !kinds.contains(&asked.value),
        None => asked.value == "sev" && kind.supported.get("sev") == Some(&false),
    };
    if lacks {
        out.at(asked.span, format!("This host has no {}", asked.value.to_uppercase()));
    }
}

pub(crate) const ENLIGHTENMENT_NOT_OFFERED: Rule = Rule {
    id: "enlightenment-not-offered",
    severity: Severity::Warning,
    summary: "the host's KVM does not have a Hyper-V enlightenment that is switched on",
    why: "An older kernel, or another processor (evmcs is Intel's alone), lacks some: libvirt refuses \
          the domain or leaves the enlightenment out, by its kind and version.",
    mend: "Switch on those that virsh domcapabilities lists under <hyperv>",
    sources: &[
        "https://libvirt.org/formatdomaincaps.html#hyper-v-enlightenments",
        "https://www.qemu.org/docs/master/system/i386/hyperv.html",
    ],
    affected: &[],
    check: Check::Vm(enlightenment_not_offered),
    fires: &[xml(
        OFFERS,
        "\
<vcpu>1</vcpu>
<os><type machine='q35'>hvm</type></os>
<features><hyperv><relaxed state='on'/><evmcs state='on'/></hyperv></features>
",
    )],
    quiet: &[xml(
        OFFERS,
        "\
<vcpu>1</vcpu>
<os><type machine='q35'>hvm</type></os>
<features><hyperv><relaxed state='on'/><evmcs state='off'/></hyperv></features>
",
    )],
};

fn enlightenment_not_offered(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(kind) = here(vm, context).and_then(|here| kind(vm, here)) else { return };
    let Some(there) = kind.values.get("hyperv.features") else { return };
    for asked in &vm.asks.enlightenments {
        if !there.contains(&asked.value) {
            out.at(asked.span, format!("The enlightenment {} is not there", asked.value));
        }
    }
}

pub(crate) const NO_FREE_PORT: Rule = Rule {
    id: "no-free-port",
    severity: Severity::Hint,
    summary: "no PCI Express port is free: no disk or network card can be plugged in later",
    why: "q35's own bus takes no device while the guest runs, and each pcie-root-port takes one. \
          Ports can't be added either: when the first hot-plug fails it takes a restart.",
    mend: "Define the domain with some more <controller type='pci' model='pcie-root-port'/>; \
           virt-manager makes 14",
    sources: &[
        "https://libvirt.org/pci-hotplug.html",
        "https://github.com/qemu/qemu/blob/master/docs/pcie.txt",
    ],
    affected: &[],
    check: Check::Vm(no_free_port),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>1</vcpu>
<os><type machine='pc-q35-7.2'>hvm</type></os>
<devices>
  <controller type='pci' index='0' model='pcie-root'/>
  <controller type='pci' index='1' model='pcie-root-port'>
    <address type='pci' bus='0x00' slot='0x02' function='0x0'/>
  </controller>
  <memballoon model='virtio'><address type='pci' bus='0x01' slot='0x00'/></memballoon>
</devices>
",
        )
        .mended(&[("bus='0x01' slot='0x00'", "bus='0x00' slot='0x03'")]),
        qemu(
            ANY,
            "kvm -machine q35 -m 1G -cpu host -qmp unix:/run/vm.sock,server=on \
             -device pcie-root-port,id=p1 -nic none -device virtio-rng-pci,bus=p1",
        )
        .mended(&[("virtio-rng-pci,bus=p1", "virtio-rng-pci")]),
    ],
    quiet: &[
        // libvirt has not given out addresses yet, and will leave a port free.
        xml(
            ANY,
            "\
<vcpu>1</vcpu>
<os><type machine='q35'>hvm</type></os>
<devices><memballoon model='virtio'/></devices>
",
        ),
    ],
};

fn no_free_port(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(ports) = vm.asks.ports else { return };
    let is_q35 = vm.asks.machine.as_ref().is_some_and(|machine| machine.value.contains("q35"));
    if !is_q35 || ports.free > 0 || vm.live.is_some() {
        return;
    }
    let message = match ports.all {
        0 => "There is no PCI Express port for hot-plug".to_owned(),
        1 => "The only PCI Express port is taken".to_owned(),
        all => format!("All {all} PCI Express ports are taken"),
    };
    let span = ports.span.or(vm.asks.machine.as_ref().map(|at| at.span));
    out.at(span.unwrap_or(vm.head), message);
}
