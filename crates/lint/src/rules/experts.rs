//! What starts and works, and what somebody who knows KVM asks about at once.

use std::collections::BTreeMap;

use topology::bytes::rounded as size;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, ConfigFormat, Rule, qemu, xml};
use crate::rules::worlds::ANY;
use crate::{Span, vm::Vm};

const BALLOON: &str = "https://libvirt.org/formatdomain.html#memory-balloon-device";
const BACKING: &str = "https://libvirt.org/formatdomain.html#memory-backing";
const MEMORY: &str = "https://libvirt.org/formatdomain.html#memory-allocation";
const FEATURES: &str = "https://libvirt.org/formatdomain.html#hypervisor-features";
const HYPERV: &str = "https://www.qemu.org/docs/master/system/i386/hyperv.html";
const MODELS: &str = "https://www.qemu.org/docs/master/system/qemu-cpu-models.html";

pub(crate) const BALLOON_USELESS: Rule = Rule {
    id: "balloon-useless",
    severity: Severity::Hint,
    summary: "a memory balloon in a VM whose memory can't be given back",
    why: "The balloon gives back pages of 4 KiB: of huge pages the host gets nothing, and for a VM \
          with a device of the host QEMU ignores it, since the device may write anywhere. What is \
          left is a guest that lacks memory which nobody else has.",
    mend: "Use <memballoon model='none'/>, or leave virtio-balloon out",
    sources: &[
        BALLOON,
        "https://gitlab.com/qemu-project/qemu/-/blob/master/docs/devel/migration/vfio.rst",
    ],
    affected: &[],
    check: Check::Vm(balloon_useless),
    fires: &[
        xml(
            ANY,
            "\
<memoryBacking><hugepages/></memoryBacking>
<devices><memballoon model='virtio'/></devices>
",
        )
        .mended(&[("model='virtio'", "model='none'")]),
        qemu(ANY, "kvm -cpu host -m 4G -device vfio-pci,host=3b:00.0 -device virtio-balloon-pci"),
    ],
    quiet: &[qemu(ANY, "kvm -cpu host -m 4G -device virtio-balloon-pci")],
};

fn balloon_useless(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(balloon) = vm.balloon else { return };
    if vm.huge_pages.is_some() {
        out.at(balloon, "A balloon gives nothing back of huge pages");
    } else if vm.passthrough.is_some() {
        out.at(balloon, "With a device of the host QEMU ignores the balloon");
    }
}

pub(crate) const CURRENT_MEMORY_LOW: Rule = Rule {
    id: "current-memory-low",
    severity: Severity::Hint,
    summary: "the guest starts with less than half of its memory",
    why: "currentMemory is what the balloon leaves to the guest. The guest's kernel sizes its tables \
          for all of the memory, and lives in the rest until somebody deflates the balloon; without \
          a balloon driver it gets all, whatever is written.",
    mend: "Make currentMemory equal to memory; for growth use memory modules (virtio-mem)",
    sources: &[MEMORY, BALLOON],
    affected: &[],
    check: Check::Vm(current_memory_low),
    fires: &[xml(
        ANY,
        "<memory unit='GiB'>16</memory>\n<currentMemory unit='GiB'>2</currentMemory>\n",
    )],
    quiet: &[xml(
        ANY,
        "<memory unit='GiB'>16</memory>\n<currentMemory unit='GiB'>16</currentMemory>\n",
    )],
};

fn current_memory_low(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain().filter(|_| vm.module_bytes == 0) else { return };
    let current = domain.first("currentMemory");
    if let (Some(element), Some(memory)) = (current, &vm.memory_bytes)
        && let Some(bytes) = element.bytes()
        && bytes.value < memory.value / 2
    {
        let text = format!("{} of {} at start", size(bytes.value), size(memory.value));
        out.at(bytes.span, text);
    }
}

pub(crate) const LOCKED_WITHOUT_LIMIT: Rule = Rule {
    id: "locked-without-limit",
    severity: Severity::Hint,
    summary: "memory is locked without a limit to what may be",
    why: "A VM whose memory is locked may lock as much as it likes unless hard_limit says how much: \
          a leak in QEMU then takes memory that the host can't get back.",
    mend: "Add <memtune><hard_limit>: the VM's memory, and what QEMU needs beside it",
    sources: &[BACKING, "https://libvirt.org/formatdomain.html#memory-tuning"],
    affected: &[],
    check: Check::Vm(locked_without_limit),
    fires: &[xml(ANY, "<memory unit='GiB'>4</memory>\n<memoryBacking><locked/></memoryBacking>\n")],
    quiet: &[xml(
        ANY,
        "\
<memory unit='GiB'>4</memory>
<memtune><hard_limit unit='GiB'>5</hard_limit></memtune>
<memoryBacking><locked/></memoryBacking>
",
    )],
};

fn locked_without_limit(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    if let Some(locked) = domain.first("memoryBacking/locked")
        && domain.first("memtune/hard_limit").is_none()
    {
        out.at(locked.tag, "Locked memory without a hard_limit");
    }
}

/// Where a feature of the processor is taken away.
fn taken_away(vm: &Vm, name: &str) -> Option<Span> {
    let cpu = vm.cpu.as_ref()?;
    if vm.live.is_some() || !cpu.value.features.iter().any(|(one, on)| one == name && !on) {
        return None;
    }
    let features = vm.domain.as_ref().map(|domain| domain.all("cpu/feature")).unwrap_or_default();
    let written = features.iter().find(|feature| feature.get("name") == Some(name));
    Some(written.map_or(cpu.span, |feature| feature.tag))
}

pub(crate) const PMU_OFF: Rule = Rule {
    id: "pmu-off",
    severity: Severity::Hint,
    summary: "the guest has no counters of the processor",
    why: "Without a virtual PMU perf in the guest counts no cycles and no cache misses, its NMI \
          watchdog does not work, and nobody can see in there why something is slow. Real-time \
          guides take it away on purpose: it costs a little at each switch.",
    mend: "Leave <pmu state='off'/> (pmu=off) out, unless latency was measured with it",
    sources: &[FEATURES, MODELS],
    affected: &[],
    check: Check::Vm(pmu_off),
    fires: &[
        xml(ANY, "<features><pmu state='off'/></features>\n"),
        qemu(ANY, "kvm -cpu host,pmu=off -m 4G"),
    ],
    quiet: &[
        xml(ANY, "<features><pmu state='on'/></features>\n"),
        qemu(ANY, "kvm -cpu host,pmu=on -m 4G"),
    ],
};

fn pmu_off(vm: &Vm, _: &Context, out: &mut Drafts) {
    let pmu = vm.qemu_domain().and_then(|domain| domain.first("features/pmu"));
    let written = pmu.filter(|pmu| pmu.get("state") == Some("off")).map(|pmu| pmu.tag);
    if let Some(span) = written.or_else(|| taken_away(vm, "pmu")) {
        out.at(span, "The guest can't count cycles");
    }
}

pub(crate) const X2APIC_OFF: Rule = Rule {
    id: "x2apic-off",
    severity: Severity::Warning,
    summary: "x2APIC is taken away, or the local APIC itself",
    why: "A guest with x2APIC sends interrupts between vCPUs by one MSR write; with the old interface \
          it takes two accesses to memory that KVM emulates, and 255 vCPUs are the end. Without \
          a local APIC there is one vCPU and the timer is the PIT.",
    mend: "Leave the feature on; KVM has x2APIC on every host",
    sources: &[MODELS, "https://docs.kernel.org/virt/kvm/api.html"],
    affected: &[],
    check: Check::Vm(x2apic_off),
    fires: &[
        xml(ANY, "<cpu mode='host-passthrough'><feature policy='disable' name='x2apic'/></cpu>\n"),
        qemu(ANY, "kvm -cpu host,-x2apic -m 4G"),
        qemu(ANY, "kvm -cpu host,apic=off -m 4G"),
    ],
    quiet: &[
        xml(ANY, "<cpu mode='host-passthrough'><feature policy='require' name='x2apic'/></cpu>\n"),
        qemu(ANY, "kvm -cpu host,+x2apic -m 4G"),
    ],
};

fn x2apic_off(vm: &Vm, _: &Context, out: &mut Drafts) {
    for name in ["apic", "x2apic"] {
        if let Some(span) = taken_away(vm, name) {
            out.at(span, format!("The guest has no {name}"));
        }
    }
}

pub(crate) const CELLS_WITHOUT_ACPI: Rule = Rule {
    id: "cells-without-acpi",
    severity: Severity::Warning,
    summary: "guest nodes in a guest without ACPI, which can't see them",
    why: "Nodes, their distances and their memory are told by ACPI's tables (SRAT, SLIT). libvirt \
          turns ACPI off on x86 where <features> does not name it.",
    mend: "Add <features><acpi/><apic/></features>",
    sources: &[FEATURES],
    affected: &[],
    check: Check::Vm(cells_without_acpi),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>2</vcpu>
<os><type arch='x86_64'>hvm</type></os>
<cpu><numa>
  <cell id='0' cpus='0' memory='1' unit='GiB'/>
  <cell id='1' cpus='1' memory='1' unit='GiB'/>
</numa></cpu>
<devices/>
",
        )
        .mended(&[(
            "<os><type arch='x86_64'>hvm</type></os>",
            "<os><type arch='x86_64'>hvm</type></os>\n<features><acpi/></features>",
        )]),
        qemu(
            ANY,
            "kvm -cpu host -no-acpi -smp 2 -m 2G -numa node,cpus=0,mem=1G -numa node,cpus=1,mem=1G",
        ),
    ],
    quiet: &[qemu(
        ANY,
        "kvm -cpu host -smp 2 -m 2G -numa node,cpus=0,mem=1G -numa node,cpus=1,mem=1G",
    )],
};

fn cells_without_acpi(vm: &Vm, _: &Context, out: &mut Drafts) {
    if vm.cells.len() < 2 || vm.arch.as_ref().is_some_and(|arch| arch.value != "x86_64") {
        return;
    }
    let at = match vm.qemu_domain() {
        Some(domain) => {
            let is_whole =
                ["name", "os/type", "devices"].iter().all(|at| domain.first(at).is_some());
            let off = is_whole && domain.first("features/acpi").is_none();
            off.then(|| domain.first("features").map_or(domain.tag, |features| features.tag))
        }
        None => vm.acpi_off,
    };
    if let Some(span) = at {
        out.at(span, format!("ACPI is off: the guest sees none of its {} nodes", vm.cells.len()));
    }
}

pub(crate) const WINDOWS_WITHOUT_HYPERV: Rule = Rule {
    id: "windows-without-hyperv",
    severity: Severity::Warning,
    summary: "a Windows guest without Hyper-V's enlightenments",
    why: "Windows knows Hyper-V's interface, not KVM's. Without it it reads time from an emulated \
          timer, spins on locks of vCPUs that do not run, and takes an exit for each interrupt's end: \
          an idle guest costs several percent of a pCPU.",
    mend: "Add <features><hyperv mode='passthrough'/>, or relaxed, vapic, spinlocks, vpindex, synic, \
           stimer and the timer hypervclock",
    sources: &[HYPERV, FEATURES],
    affected: &[],
    check: Check::Vm(windows_without_hyperv),
    fires: &[xml(
        ANY,
        "\
<metadata><libosinfo:libosinfo xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'>
  <libosinfo:os id='http://microsoft.com/win/11'/>
</libosinfo:libosinfo></metadata>
<features><acpi/></features>
",
    )
    .mended(&[("id='http://microsoft.com/win/11'", "id='http://debian.org/debian/12'")])],
    quiet: &[xml(
        ANY,
        "\
<metadata><libosinfo:libosinfo xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'>
  <libosinfo:os id='http://microsoft.com/win/11'/>
</libosinfo:libosinfo></metadata>
<features><acpi/><hyperv mode='passthrough'/></features>
",
    )],
};

fn windows_without_hyperv(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain().filter(|_| vm.accel.value == "kvm") else { return };
    let Some(os) = domain.first("metadata/libosinfo/os") else { return };
    let is_windows = os.get("id").is_some_and(|id| id.contains("microsoft.com/win"));
    if is_windows && domain.first("features/hyperv").is_none() {
        out.at(os.place("id"), "The guest is Windows, and nothing of Hyper-V is there for it");
    }
}

pub(crate) const HYPERV_WITHOUT_CLOCK: Rule = Rule {
    id: "hyperv-without-clock",
    severity: Severity::Warning,
    summary: "Hyper-V's enlightenments without its clock",
    why: "Windows then takes time from the emulated HPET or ACPI timer: each look at the clock is an \
          exit to QEMU, of tens of microseconds. The reference page costs none.",
    mend: "Add <timer name='hypervclock' present='yes'/>, or hv-time to -cpu",
    sources: &[HYPERV, "https://libvirt.org/formatdomain.html#time-keeping"],
    affected: &[],
    check: Check::Vm(hyperv_without_clock),
    fires: &[
        xml(
            ANY,
            "<features><hyperv><relaxed state='on'/><vapic state='on'/></hyperv></features>\n",
        ),
        qemu(ANY, "kvm -cpu host,hv-relaxed=on,hv-vapic=on -m 4G"),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<features><hyperv><relaxed state='on'/></hyperv></features>
<clock offset='localtime'><timer name='hypervclock' present='yes'/></clock>
",
        ),
        qemu(ANY, "kvm -cpu host,hv_relaxed,hv_time -m 4G"),
        qemu(ANY, "kvm -cpu host,hv-passthrough=on -m 4G"),
    ],
};

fn hyperv_without_clock(vm: &Vm, _: &Context, out: &mut Drafts) {
    if vm.accel.value != "kvm" || vm.live.is_some() {
        return;
    }
    match vm.format {
        ConfigFormat::Libvirt => {
            let Some(domain) = vm.qemu_domain() else { return };
            let Some(hyperv) = domain.first("features/hyperv") else { return };
            let used = hyperv.children.iter().any(|one| {
                one.get("state") == Some("on") && matches!(one.name.as_str(), "relaxed" | "vapic")
            });
            let clock = vm.timers.iter().any(|timer| timer.value.name == "hypervclock");
            if used && !clock && hyperv.get("mode") != Some("passthrough") && !vm.name.is_empty() {
                out.at(hyperv.tag, "No timer hypervclock");
            }
        }
        ConfigFormat::Qemu | ConfigFormat::Proxmox => {
            let Some(cpu) = &vm.cpu else { return };
            let on = |name: &str| {
                let mut features = cpu.value.features.iter();
                features.any(|(one, on)| *on && one.replace('_', "-") == name)
            };
            let used = on("hv-relaxed") || on("hv-vapic");
            if used && !on("hv-time") && !on("hv-passthrough") && vm.unread.is_empty() {
                out.at(cpu.span, "hv-time is not there");
            }
        }
        _ => {}
    }
}

pub(crate) const IOTHREAD_CROWDED: Rule = Rule {
    id: "iothread-crowded",
    severity: Severity::Hint,
    summary: "many disks share one iothread",
    why: "An iothread is one thread on one pCPU: what fast disks could do at once waits there in one \
          queue. Some disks on one are fine as long as it is not always busy.",
    mend: "Spread the disks over as many iothreads as pCPUs can be spared",
    sources: &[
        "https://libvirt.org/formatdomain.html#iothreads-allocation",
        "https://developers.redhat.com/articles/2024/09/05/scaling-virtio-blk-disk-io-iothread-virtqueue-mapping",
    ],
    affected: &[],
    check: Check::Vm(iothread_crowded),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>4</vcpu>
<iothreads>1</iothreads>
<devices>
  <disk type='block'><driver name='qemu' iothread='1'/><target dev='vda' bus='virtio'/></disk>
  <disk type='block'><driver name='qemu' iothread='1'/><target dev='vdb' bus='virtio'/></disk>
  <disk type='block'><driver name='qemu' iothread='1'/><target dev='vdc' bus='virtio'/></disk>
  <disk type='block'><driver name='qemu' iothread='1'/><target dev='vdd' bus='virtio'/></disk>
</devices>
",
        ),
        qemu(
            ANY,
            "\
kvm -cpu host -m 4G -smp 4 -object iothread,id=t \\
  -drive if=none,id=a,file=/dev/a -device virtio-blk-pci,drive=a,iothread=t \\
  -drive if=none,id=b,file=/dev/b -device virtio-blk-pci,drive=b,iothread=t \\
  -drive if=none,id=c,file=/dev/c -device virtio-blk-pci,drive=c,iothread=t \\
  -drive if=none,id=d,file=/dev/d -device virtio-blk-pci,drive=d,iothread=t",
        ),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<vcpu>4</vcpu>
<iothreads>2</iothreads>
<devices>
  <disk type='block'><driver name='qemu' iothread='1'/><target dev='vda' bus='virtio'/></disk>
  <disk type='block'><driver name='qemu' iothread='1'/><target dev='vdb' bus='virtio'/></disk>
  <disk type='block'><driver name='qemu' iothread='2'/><target dev='vdc' bus='virtio'/></disk>
  <disk type='block'><driver name='qemu' iothread='2'/><target dev='vdd' bus='virtio'/></disk>
</devices>
",
        ),
        qemu(
            ANY,
            "\
kvm -cpu host -m 4G -smp 4 -object iothread,id=t \\
  -drive if=none,id=a,file=/dev/a -device virtio-blk-pci,drive=a,iothread=t \\
  -drive if=none,id=b,file=/dev/b -device virtio-blk-pci,drive=b,iothread=t",
        ),
    ],
};

/// Disks on one iothread from which on somebody should think about it.
const CROWD: usize = 4;

fn iothread_crowded(vm: &Vm, _: &Context, out: &mut Drafts) {
    let mut by_thread: BTreeMap<&str, (usize, Span)> = BTreeMap::new();
    for disk in vm.disks.iter().filter(|disk| disk.hard) {
        // Where queues are shared out, no thread has a disk alone.
        if let [iothread] = disk.iothreads.as_slice() {
            let entry = by_thread.entry(iothread.value.as_str()).or_insert((0, iothread.span));
            entry.0 += 1;
        }
    }
    for (name, (number, span)) in by_thread.into_iter().filter(|(_, (number, _))| *number >= CROWD)
    {
        out.at(span, format!("{number} disks are served by the iothread {name}"));
    }
}
