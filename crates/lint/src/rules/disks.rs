//! Disks and who serves them.

use crate::Span;
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, ConfigFormat, Rule, conf, qemu, xml, yaml};
use crate::rules::worlds::ANY;
use crate::vm::{DiskView, Vm};

const DISKS: &str = "https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms";
const INVOCATION: &str = "https://www.qemu.org/docs/master/system/invocation.html";
const IOTHREADS: &str = "https://libvirt.org/formatdomain.html#iothreads-allocation";

fn is(disk: &DiskView, bus: &[&str]) -> bool {
    disk.bus.as_ref().is_some_and(|found| bus.contains(&found.value.as_str()))
}

/// Served by QEMU in a way that an iothread can take over.
fn is_virtio(disk: &DiskView) -> bool {
    // KubeVirt's default bus is the machine's, and that is virtio in its templates.
    is(disk, &["virtio", "virtio-scsi", "scsi"])
}

pub(crate) const IO_NATIVE_CACHED: Rule = Rule {
    id: "io-native-cached",
    severity: Severity::Error,
    summary: "io=native with a cache mode that goes through the host's page cache",
    why: "Linux's native asynchronous I/O is only asynchronous with O_DIRECT. QEMU and libvirt \
          refuse io=native with cache=writeback (which is the default), writethrough and unsafe.",
    mend: "Use cache=none (or directsync) with io=native; or io=threads with a cache",
    sources: &[DISKS, INVOCATION],
    affected: &[],
    check: Check::Vm(io_native_cached),
    fires: &[
        xml(
            ANY,
            "\
<devices><disk type='block' device='disk'>
  <driver name='qemu' type='raw' cache='writeback' io='native'/>
  <target dev='vda' bus='virtio'/>
</disk></devices>
",
        ).mended(&[("type='block'", "type='file'"), ("cache='writeback'", "cache='none'")]),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -drive file=disk.raw,format=raw,if=virtio,aio=native",
        ).mended(&[("aio=native", "aio=native,cache=none")]),
        yaml(
            ANY,
            "\
domain:
  devices:
    disks:
    - name: data
      cache: writeback
      io: native
      disk:
        bus: virtio
",
        ).mended(&[("cache: writeback", "cache: none")]),
    ],
    quiet: &[],
};

fn io_native_cached(vm: &Vm, _: &Context, out: &mut Drafts) {
    for disk in &vm.disks {
        let Some(io) = disk.io.as_ref().filter(|io| io.value == "native") else { continue };
        match &disk.cache {
            Some(cache) if matches!(cache.value.as_str(), "none" | "directsync") => {}
            Some(cache) => {
                let draft = out.at(
                    cache.span,
                    format!("Disk {}: io=native can't go with cache={}", disk.name, cache.value),
                );
                // A switch of -blockdev has another value.
                if cache.value != "writeback" || vm.format != ConfigFormat::Qemu {
                    draft.fix(cache.span, "none");
                }
            }
            // KubeVirt chooses none where the storage takes it.
            None if vm.kubevirt.is_some() => {}
            None => {
                let draft = out.at(
                    io.span,
                    format!("Disk {}: io=native, and cache is the default, writeback", disk.name),
                );
                match vm.format {
                    // Behind the attribute's closing quote.
                    ConfigFormat::Libvirt => {
                        let behind = io.span.end + 1;
                        draft.fix(Span { start: behind, end: behind }, " cache='none'");
                    }
                    ConfigFormat::Qemu | ConfigFormat::Proxmox | ConfigFormat::Running => {
                        let text = if disk.node { ",cache.direct=on" } else { ",cache=none" };
                        draft.fix(Span { start: io.span.end, end: io.span.end }, text);
                    }
                    ConfigFormat::Kubevirt => {}
                }
            }
        }
    }
}

pub(crate) const IOTHREAD_MISSING: Rule = Rule {
    id: "iothread-missing",
    severity: Severity::Warning,
    summary: "a fast disk is served by QEMU's main loop",
    why: "Without an iothread all disks of a VM share one thread and QEMU's big lock with the \
          monitor, timers and slow devices; that thread is the limit long before the disk is.",
    mend: "Give the disk an iothread (<iothreads>, driver iothread='1'; -object iothread; \
           dedicatedIOThread: true), pinned beside the vCPUs",
    sources: &[
        "https://github.com/kubevirt/kubevirt/issues/4182",
        IOTHREADS,
        "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012",
    ],
    affected: &[],
    check: Check::Vm(iothread_missing),
    fires: &[
        xml(
            ANY,
            "\
<devices><disk type='block' device='disk'>
  <driver name='qemu' type='raw' cache='none' io='native'/>
  <target dev='vda' bus='virtio'/>
</disk></devices>
",
        ),
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host \\
  -drive file=/dev/nvme0n1,format=raw,if=none,id=d,aio=io_uring,cache=none -device virtio-blk-pci,drive=d",
        ),
        yaml(
            ANY,
            "\
domain:
  cpu:
    cores: 4
    dedicatedCpuPlacement: true
  devices:
    disks:
    - name: data
      io: native
      disk:
        bus: virtio
volumes:
- name: data
  persistentVolumeClaim:
    claimName: fast
",
        )
        .mended(&[(
            "dedicatedCpuPlacement: true",
            "dedicatedCpuPlacement: true\n  ioThreadsPolicy: auto",
        )]),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<iothreads>1</iothreads>
<devices><disk type='block' device='disk'>
  <driver name='qemu' type='raw' cache='none' io='native' iothread='1'/>
  <target dev='vda' bus='virtio'/>
</disk></devices>
",
        ),
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -object iothread,id=t \\
  -drive file=/dev/nvme0n1,format=raw,if=none,id=d,aio=io_uring,cache=none \\
  -device virtio-blk-pci,drive=d,iothread=t",
        ),
    ],
};

/// Disks that an iothread would speed up.
fn slow_disks(vm: &Vm) -> Vec<&DiskView> {
    let policy = vm.kube("domain.ioThreadsPolicy").is_some();
    // A SCSI controller's iothread serves its disks.
    let controller = vm.disks.iter().any(|disk| !disk.hard && !disk.iothreads.is_empty());
    let fast = |disk: &&DiskView| {
        let direct =
            disk.io.as_ref().is_some_and(|io| matches!(io.value.as_str(), "native" | "io_uring"));
        disk.hard && disk.block && is_virtio(disk) && direct
    };
    let unserved = |disk: &&DiskView| {
        disk.iothreads.is_empty() && !(controller && is(disk, &["scsi"])) && !policy
    };
    vm.disks.iter().filter(fast).filter(unserved).collect()
}

fn iothread_missing(vm: &Vm, _: &Context, out: &mut Drafts) {
    for disk in slow_disks(vm) {
        let draft = out.at(
            disk.span,
            format!(
                "Disk {} is a block device with io={} and has no iothread",
                disk.name,
                disk.io.as_ref().map_or("native", |io| io.value.as_str())
            ),
        );
        if let Some(free) = vm.iothreads.first().filter(|_| vm.kubevirt.is_none()) {
            draft.help(format!("Name iothread {free} at the disk's driver (iothread='{free}')"));
        }
    }
}

pub(crate) const IOTHREAD_UNKNOWN: Rule = Rule {
    id: "iothread-unknown",
    severity: Severity::Error,
    summary: "a disk names an iothread that the VM does not have",
    why: "The VM is refused: there is no thread to serve the disk.",
    mend: "Define the iothread; libvirt's count from 1",
    sources: &[IOTHREADS, INVOCATION],
    affected: &[],
    check: Check::Vm(iothread_unknown),
    fires: &[
        xml(
            ANY,
            "\
<iothreads>1</iothreads>
<devices><disk type='file' device='disk'>
  <driver name='qemu' type='raw' iothread='2'/>
  <target dev='vda' bus='virtio'/>
</disk></devices>
",
        )
        .mended(&[("<iothreads>1</iothreads>", "<iothreads>2</iothreads>")]),
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -object iothread,id=t0 \\
  -drive file=d.raw,format=raw,if=none,id=d -device virtio-blk-pci,drive=d,iothread=t1",
        )
        .mended(&[("id=t0", "id=t1")]),
    ],
    quiet: &[],
};

fn iothread_unknown(vm: &Vm, _: &Context, out: &mut Drafts) {
    if vm.kubevirt.is_some() {
        return;
    }
    for disk in &vm.disks {
        for iothread in disk.iothreads.iter().filter(|one| !vm.iothreads.contains(&one.value)) {
            let known = if vm.iothreads.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", vm.iothreads.join(", "))
            };
            out.at(iothread.span, format!("The VM has no iothread {}", iothread.value)).note(known);
        }
    }
}

pub(crate) const IOTHREADS_UNUSED: Rule = Rule {
    id: "iothreads-unused",
    severity: Severity::Warning,
    summary: "iothreads are defined and no disk uses one",
    why: "An iothread serves only the disks that name it; all of them are still served by the main \
          loop.",
    mend: "Name the iothread at the disk's driver (or at the SCSI controller's)",
    sources: &[IOTHREADS, INVOCATION],
    affected: &[],
    check: Check::Vm(iothreads_unused),
    fires: &[
        xml(
            ANY,
            "\
<iothreads>1</iothreads>
<devices><disk type='file' device='disk'>
  <driver name='qemu' type='raw'/>
  <target dev='vda' bus='virtio'/>
</disk></devices>
",
        )
        .mended(&[("type='raw'", "type='raw' iothread='1'")]),
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -object iothread,id=t \\
  -drive file=d.raw,format=raw,if=none,id=d -device virtio-blk-pci,drive=d",
        )
        .mended(&[("drive=d", "drive=d,iothread=t")]),
    ],
    quiet: &[qemu(
        ANY,
        "\
qemu-system-x86_64 -accel kvm -cpu host -object iothread,id=t0 -object iothread,id=t1 \\
  -drive file=/dev/vg/d,format=raw,if=none,id=d,cache=none,aio=native \\
  -device '{\"driver\":\"virtio-blk-pci\",\"drive\":\"d\",\"iothread-vq-mapping\":[{\"iothread\":\"t0\"},{\"iothread\":\"t1\"}]}'",
    )],
};

fn iothreads_unused(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(span) = vm.iothreads_at
        && vm.kubevirt.is_none()
        && vm.disks.iter().any(|disk| disk.hard)
        && vm.disks.iter().all(|disk| disk.iothreads.is_empty())
        // Then iothread-missing tells where they belong.
        && slow_disks(vm).is_empty()
    {
        out.at(span, format!("{} defined, none used", vm.iothreads.len()));
    }
}

pub(crate) const IOTHREAD_BUS: Rule = Rule {
    id: "iothread-bus",
    severity: Severity::Error,
    summary: "an iothread for a disk whose bus can't have one",
    why: "Only virtio-blk and virtio-scsi run in iothreads; libvirt refuses the domain with any \
          other bus.",
    mend: "Put the disk on the virtio bus",
    sources: &[IOTHREADS],
    affected: &[],
    check: Check::Vm(iothread_bus),
    fires: &[xml(
        ANY,
        "\
<iothreads>1</iothreads>
<devices><disk type='file' device='disk'>
  <driver name='qemu' type='raw' iothread='1'/>
  <target dev='sda' bus='sata'/>
</disk></devices>
",
    )
    .mended(&[("dev='sda' bus='sata'", "dev='vda' bus='virtio'")])],
    quiet: &[],
};

fn iothread_bus(vm: &Vm, _: &Context, out: &mut Drafts) {
    for disk in vm.disks.iter().filter(|_| vm.format == ConfigFormat::Libvirt) {
        if let (Some(iothread), Some(bus)) = (disk.iothreads.first(), &disk.bus)
            && !matches!(bus.value.as_str(), "virtio" | "virtio-scsi")
        {
            out.at(iothread.span, format!("Disk {} is on the bus {}", disk.name, bus.value));
        }
    }
}

pub(crate) const DISK_EMULATED: Rule = Rule {
    id: "disk-emulated",
    severity: Severity::Warning,
    summary: "a disk on an emulated bus",
    why: "Each request to an emulated IDE, SATA or USB controller takes several exits, and requests \
          hardly overlap. virtio takes one exit for many requests.",
    mend: "Put the disk on virtio (or scsi with a virtio-scsi controller); the guest needs the driver",
    sources: &[DISKS, INVOCATION],
    affected: &[],
    check: Check::Vm(disk_emulated),
    fires: &[
        xml(
            ANY,
            "<devices><disk type='file' device='disk'><target dev='sda' bus='sata'/></disk></devices>\n",
        ).mended(&[("device='disk'", "device='cdrom'")]),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -hda disk.qcow2"),
        conf(ANY, "scsi0: local-lvm:vm-100-disk-0,size=32G\n"),
        yaml(
            ANY,
            "domain:\n  devices:\n    disks:\n    - name: root\n      disk:\n        bus: sata\n",
        ).mended(&[("bus: sata", "bus: virtio")]),
    ],
    quiet: &[
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -drive file=disk.qcow2,if=virtio"),
        conf(ANY, "scsihw: virtio-scsi-single\nscsi0: local-lvm:vm-100-disk-0,iothread=1\n"),
    ],
};

/// Buses of old machines, and controllers on which SCSI is as slow.
fn is_emulated(bus: &str) -> bool {
    let controllers = ["lsi", "am53c974", "dc390", "mptsas", "megasas"];
    matches!(bus, "ide" | "sata" | "usb" | "fdc")
        || controllers.iter().any(|name| bus.starts_with(name))
}

fn disk_emulated(vm: &Vm, _: &Context, out: &mut Drafts) {
    for disk in vm.disks.iter().filter(|disk| disk.hard) {
        if let Some(bus) = &disk.bus
            && is_emulated(&bus.value)
        {
            let draft = out
                .at(bus.span, format!("Disk {} is on the emulated bus {}", disk.name, bus.value));
            if vm.kubevirt.is_some() && bus.span == disk.span {
                draft.note(format!("{} is what KubeVirt takes where no bus is said", bus.value));
            }
        }
    }
}

pub(crate) const CACHE_UNSAFE: Rule = Rule {
    id: "cache-unsafe",
    severity: Severity::Warning,
    summary: "cache=unsafe ignores what the guest asks to be on disk",
    why: "Flushes are dropped: after a crash of the host the file system or database in the guest is \
          broken, and any benchmark of it measures the host's memory.",
    mend: "Use cache=none, or writeback where the host's page cache is wanted",
    sources: &[DISKS, INVOCATION],
    affected: &[],
    check: Check::Vm(cache_unsafe),
    fires: &[
        xml(
            ANY,
            "\
<devices><disk type='file' device='disk'>
  <driver name='qemu' type='qcow2' cache='unsafe'/>
  <target dev='vda' bus='virtio'/>
</disk></devices>
",
        )
        .mended(&[("cache='unsafe'", "cache='none'")]),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -drive file=d.qcow2,if=virtio,cache=unsafe",
        )
        .mended(&[("cache=unsafe", "cache=none")]),
    ],
    quiet: &[],
};

fn cache_unsafe(vm: &Vm, _: &Context, out: &mut Drafts) {
    for disk in &vm.disks {
        if let Some(cache) = disk.cache.as_ref().filter(|cache| cache.value == "unsafe") {
            out.at(cache.span, format!("Disk {} drops the guest's flushes", disk.name));
        }
    }
}
