//! Disks: their names, volumes, targets, buses and values.

use std::collections::HashMap;

use vmconfig::kubevirt::defaults;
use vmconfig::source::Span;

use super::{
    ADMITTERS, REFUSED, STORAGE, by_name, disks_of, interfaces_of, is_label, is_pci_address, name,
    one_of, place, repeated, volumes_of, word,
};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::{ANY, KUBEVIRT_0_44, KUBEVIRT_1_0};
use crate::vm::Vm;
use placement::predict::KubevirtVersion;

const GOOD: &str = "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      bootOrder: 1
      cache: none
      io: native
      dedicatedIOThread: true
      serial: root-0
      disk:
        bus: virtio
    - name: media
      bootOrder: 2
      cdrom:
        bus: sata
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
- name: media
  persistentVolumeClaim:
    claimName: media
";

pub(crate) const VOLUME: Rule = Rule {
    id: "kubevirt-disk-volume",
    severity: Severity::Error,
    summary: "a disk without a volume of its name",
    why: "A disk is fed by the volume of the same name, and the admission webhook refuses one that \
          has none. Since KubeVirt 1.6 a CD-ROM may be empty.",
    mend: "Add a volume of this name, or correct the name",
    sources: &[ADMITTERS],
    affected: &[],
    check: Check::Vm(volume),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: rootdisk
      disk:
        bus: virtio
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn volume(vm: &Vm, context: &Context, out: &mut Drafts) {
    let known = by_name(volumes_of(vm));
    for disk in disks_of(vm).iter().filter(|disk| !known.contains_key(name(disk))) {
        if disk.given("cdrom").is_some() && context.kubevirt >= KubevirtVersion::new(1, 6, 0) {
            continue;
        }
        out.at(place(disk), format!("No volume has the name {:?}", name(disk)));
    }
}

pub(crate) const NO_DISK: Rule = Rule {
    id: "kubevirt-volume-disk",
    severity: Severity::Error,
    summary: "a volume that no disk has the name of",
    why: "The admission webhook refuses it. Since KubeVirt 0.55 a disk is added for it, on the \
          default bus (SATA on amd64).",
    mend: "Add a disk of this name, with bus: virtio",
    sources: &[ADMITTERS],
    affected: &[AffectedVersions::kubevirt(None, Some("0.55.0"))],
    check: Check::Vm(no_disk),
    fires: &[yaml(
        KUBEVIRT_0_44,
        "\
domain:
  devices: {}
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
",
    )],
    quiet: &[yaml(KUBEVIRT_0_44, GOOD)],
};

fn no_disk(vm: &Vm, _: &Context, out: &mut Drafts) {
    for volume in super::volumes_without_device(vm) {
        out.at(place(volume), format!("No disk has the name {:?}", name(volume)));
    }
}

pub(crate) const NAMES: Rule = Rule {
    id: "kubevirt-disk-name",
    severity: Severity::Error,
    summary: "a disk's name that is there twice, or that can't be a container's name",
    why: REFUSED,
    mend: "Give each disk a name of its own: small letters, digits and dashes, at most 63",
    sources: &[STORAGE],
    affected: &[],
    check: Check::Vm(names),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: data
      disk:
        bus: virtio
    - name: data
      disk:
        bus: virtio
volumes:
- name: data
  persistentVolumeClaim:
    claimName: data
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn names(vm: &Vm, _: &Context, out: &mut Drafts) {
    repeated(disks_of(vm), "disk", out);
    for disk in disks_of(vm).iter().filter(|disk| !is_label(name(disk))) {
        let message = format!(
            "{:?} is no name of a disk: small letters, digits and dashes, at most 63",
            name(disk)
        );
        out.at(place(disk), message);
    }
}

const TARGETS: [&str; 3] = ["disk", "lun", "cdrom"];

pub(crate) const TARGET: Rule = Rule {
    id: "kubevirt-disk-target",
    severity: Severity::Error,
    summary: "a disk that is several things at once, or a LUN of what is no block device",
    why: "The admission webhook takes one of disk, lun and cdrom, and a lun only of a claim or a \
          DataVolume.",
    mend: "Say one of disk, lun and cdrom",
    sources: &[STORAGE, ADMITTERS],
    affected: &[],
    check: Check::Vm(target),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      disk:
        bus: virtio
      cdrom:
        bus: sata
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn target(vm: &Vm, context: &Context, out: &mut Drafts) {
    let feeding = by_name(volumes_of(vm));
    for disk in disks_of(vm) {
        let given: Vec<&str> =
            TARGETS.into_iter().filter(|target| disk.given(target).is_some()).collect();
        if given.len() > 1 {
            out.at(place(disk), format!("{:?} is {} at once", name(disk), given.join(" and ")));
        }
        if let (Some((key, _)), Some(volume)) =
            (disk.entry("lun").filter(|(_, lun)| !lun.is_null()), feeding.get(name(disk)))
            && volume.given("persistentVolumeClaim").is_none()
            && (volume.given("dataVolume").is_none()
                || context.kubevirt < KubevirtVersion::new(1, 1, 0))
        {
            out.at(key.span, "A lun needs a volume that is a claim or a DataVolume");
        }
    }
}

/// The bus that a disk has when all defaults are filled in, what it is the bus of
/// (`disk`, `lun`, `cdrom`), and where that stands.
pub(super) fn bus<'a>(vm: &'a Vm, disk: &'a Node) -> (&'a str, &'static str, Span) {
    let target = TARGETS.into_iter().find(|target| disk.given(target).is_some());
    let arch = vm.kube_architecture();
    let written = target.and_then(|target| word(disk.get(target)?, "bus"));
    // A preference that is not known may say another; virtio is the one that all is
    // well with.
    let open = vm.kubevirt.as_ref().is_some_and(|kubevirt| kubevirt.open);
    let default = if open && target != Some("cdrom") { "virtio" } else { defaults::disk_bus(arch) };
    let (bus, span) = written.unwrap_or((default, place(disk)));
    (bus, target.unwrap_or("disk"), span)
}

pub(crate) const BUS: Rule = Rule {
    id: "kubevirt-disk-bus",
    severity: Severity::Error,
    summary: "a bus that KubeVirt does not have, or not for this disk",
    why: "The admission webhook takes virtio, scsi, sata and usb; no virtio for a CD-ROM, no \
          read-only disk on sata, and on arm64 virtio and scsi only.",
    mend: "Write bus: virtio for disks, sata or scsi for CD-ROMs",
    sources: &[STORAGE, "https://kubevirt.io/user-guide/storage/disks_and_volumes/"],
    affected: &[],
    check: Check::Vm(bad_bus),
    fires: &[
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      disk:
        bus: ide
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
",
        ),
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: media
      cdrom:
        bus: virtio
volumes:
- name: media
  persistentVolumeClaim:
    claimName: media
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn bad_bus(vm: &Vm, context: &Context, out: &mut Drafts) {
    for disk in disks_of(vm) {
        let (bus, target, span) = bus(vm, disk);
        let known = ["virtio", "scsi", "sata", "usb"];
        let name = name(disk);
        if !known.contains(&bus) {
            let draft =
                out.at(span, format!("There is no bus {bus:?} for disks: {}", known.join(", ")));
            if let Some(near) = known.iter().find(|known| known.eq_ignore_ascii_case(bus)) {
                draft.fix(span, *near);
            }
        } else if target == "cdrom" && bus == "virtio" && !vm.is_arm() {
            out.at(span, format!("CD-ROM {name} can't be on virtio")).suggest(span, "sata");
        } else if target == "disk"
            && bus == "sata"
            && disk.get("disk.readonly").is_some_and(Node::is_true)
            && context.kubevirt >= KubevirtVersion::new(0, 59, 0)
        {
            out.at(span, format!("Disk {name} is on sata, where no disk can be read-only"));
        } else if vm.is_arm()
            && matches!(bus, "sata" | "usb")
            && context.kubevirt >= KubevirtVersion::new(0, 57, 0)
        {
            out.at(span, format!("arm64 has no bus {bus} for disks: virtio, scsi"));
        }
    }
}

pub(crate) const IOTHREAD: Rule = Rule {
    id: "kubevirt-disk-iothread",
    severity: Severity::Error,
    summary: "dedicatedIOThread on a disk that is not on virtio",
    why: "libvirt has no iothreads for other buses, and the admission webhook refuses the VMI. The \
          default bus is sata on amd64. Before KubeVirt 1.3 only sata was refused.",
    mend: "Write bus: virtio, or take dedicatedIOThread out",
    sources: &[STORAGE, "https://kubevirt.io/user-guide/storage/disks_and_volumes/"],
    affected: &[],
    check: Check::Vm(iothread),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      dedicatedIOThread: true
      disk:
        bus: sata
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
",
    )],
    quiet: &[
        yaml(ANY, GOOD),
        yaml(
            KUBEVIRT_1_0,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      dedicatedIOThread: true
      disk:
        bus: scsi
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
",
        ),
    ],
};

fn iothread(vm: &Vm, context: &Context, out: &mut Drafts) {
    for disk in disks_of(vm) {
        let Some(own) = disk.get("dedicatedIOThread").filter(|node| node.is_true()) else {
            continue;
        };
        let (bus, target, _) = bus(vm, disk);
        let refused = match context.kubevirt {
            version if version >= KubevirtVersion::new(1, 3, 0) => bus != "virtio",
            _ => bus == "sata" && target == "disk",
        };
        if refused {
            let message =
                format!("Disk {} is on the bus {bus}, which has no iothreads", name(disk));
            out.at(own.span, message);
        }
    }
}

pub(crate) const VALUES: Rule = Rule {
    id: "kubevirt-disk-value",
    severity: Severity::Error,
    summary: "a cache, io, errorPolicy, serial, PCI address or block size that KubeVirt refuses",
    why: REFUSED,
    mend: "Write cache: none, writethrough or writeback; io: native or threads; a block size that \
           is a power of 2 from 512 to 2 MiB",
    sources: &[STORAGE],
    affected: &[],
    check: Check::Vm(values),
    fires: &[
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      cache: unsafe
      io: io_uring
      disk:
        bus: virtio
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
",
        ),
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      blockSize:
        custom:
          logical: 4096
          physical: 512
      disk:
        bus: virtio
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn values(vm: &Vm, context: &Context, out: &mut Drafts) {
    for disk in disks_of(vm) {
        one_of(disk, "cache", &["none", "writethrough", "writeback"], out);
        one_of(disk, "io", &["native", "threads"], out);
        if context.kubevirt >= KubevirtVersion::new(1, 1, 0) {
            one_of(disk, "errorPolicy", &["stop", "ignore", "report", "enospace"], out);
        }
        if let Some((serial, span)) = word(disk, "serial") {
            let right = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
            if !serial.chars().all(right) {
                out.at(span, "A serial has letters, digits and _ . + - only");
            }
            if serial.chars().count() > 256 {
                out.at(span, "A serial has at most 256 characters");
            }
        }
        let (bus, ..) = bus(vm, disk);
        if let Some((address, span)) = word(disk, "disk.pciAddress") {
            if bus != "virtio" {
                out.at(span, format!("A PCI address needs the bus virtio; this disk is on {bus}"));
            }
            if !is_pci_address(address) {
                out.at(span, format!("{address:?} is no PCI address: 0000:3b:00.0"));
            }
        }
        if let Some(size) = disk.given("blockSize") {
            block_size(size, bus, context, out);
        }
    }
}

fn block_size(size: &Node, bus: &str, context: &Context, out: &mut Drafts) {
    let Some((key, custom)) = size.entry("custom").filter(|(_, custom)| !custom.is_null()) else {
        return;
    };
    if super::is_on(size.get("matchVolume")) {
        out.at(key.span, "custom can't go with matchVolume");
        return;
    }
    let number = |name: &str| match custom.given(name) {
        Some(node) => node.integer().map(|number| (number, node.span)),
        None => Some((0, key.span)),
    };
    let (Some((logical, at)), Some((physical, physical_at))) =
        (number("logical"), number("physical"))
    else {
        return;
    };
    if logical > physical {
        out.at(at, format!("The logical size {logical} is more than the physical {physical}"));
        return;
    }
    if context.kubevirt >= KubevirtVersion::new(1, 7, 0) {
        if bus == "sata" && logical != 512 {
            out.at(at, format!("On sata the logical size is 512, not {logical}"));
            return;
        }
        if let Some(node) = custom.given("discardGranularity")
            && let Some(discard) = node.integer()
            && logical > 0
            && discard % logical != 0
        {
            out.at(node.span, format!("{discard} is not made of blocks of {logical}"));
            return;
        }
    }
    for (bytes, at, name) in [(logical, at, "logical"), (physical, physical_at, "physical")] {
        if !(512..=2_097_152).contains(&bytes) || bytes & (bytes - 1) != 0 {
            let message = format!("{name} size {bytes} is no power of 2 from 512 to 2097152");
            out.at(at, message);
        }
    }
}

pub(crate) const BOOT_ORDER: Rule = Rule {
    id: "kubevirt-boot-order",
    severity: Severity::Error,
    summary: "a boot order of 0, or one that two devices have",
    why: REFUSED,
    mend: "Number the devices that are booted from 1, each with a number of its own",
    sources: &[ADMITTERS],
    affected: &[],
    check: Check::Vm(boot_order),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      bootOrder: 1
      disk:
        bus: virtio
    interfaces:
    - name: default
      bootOrder: 1
      masquerade: {}
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
networks:
- name: default
  pod: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn boot_order(vm: &Vm, _: &Context, out: &mut Drafts) {
    let mut taken: HashMap<i64, &str> = HashMap::new();
    for device in disks_of(vm).iter().chain(interfaces_of(vm)) {
        let Some(node) = device.given("bootOrder") else { continue };
        let Some(order) = node.integer().filter(|order| *order >= 0) else { continue };
        if order == 0 {
            out.at(node.span, "Boot orders count from 1");
        } else if let Some(other) = taken.insert(order, name(device)) {
            out.at(node.span, format!("{other} has the boot order {order} already"));
        }
    }
}
