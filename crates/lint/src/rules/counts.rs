//! How many pins, pCPUs and vCPUs there are, against each other.

use std::collections::HashMap;

use topology::PcpuSet;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, ConfigFormat, Rule, qemu, running, xml, yaml};
use crate::rules::samples::VTUNE;
use crate::rules::words::{numbers, pcpus};
use crate::rules::worlds::{ANY, FOUR_CORES};
use crate::vm::{Pin, Vm};

const CPUTUNE: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";

pub(crate) const VCPUS_SHARE_PCPU: Rule = Rule {
    id: "vcpus-share-pcpu",
    severity: Severity::Warning,
    summary: "vCPUs of one VM are pinned to fewer pCPUs than they are",
    why: "They take turns: when one holds a lock and the other spins for it, neither gets on until \
          the scheduler's slice ends.",
    mend: "Give each vCPU its own pCPU, or don't pin",
    sources: &[CPUTUNE, "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012"],
    affected: &[],
    check: Check::Vm(vcpus_share_pcpu),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='1'/></cputune>
",
        ),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 1
",
        )
        .mended(&[("# is: vCPU 1: pCPU 1", "# is: vCPU 1: pCPU 2")]),
    ],
    quiet: &[xml(
        ANY,
        "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='2'/></cputune>
",
    )],
};

fn vcpus_share_pcpu(vm: &Vm, _: &Context, out: &mut Drafts) {
    let mut by_set: Vec<(&PcpuSet, Vec<&Pin>)> = Vec::new();
    let mut places: HashMap<&PcpuSet, usize> = HashMap::new();
    for pin in vm.live_pins() {
        let place = *places.entry(&pin.pcpus.value).or_insert_with(|| {
            by_set.push((&pin.pcpus.value, Vec::new()));
            by_set.len() - 1
        });
        let pins = &mut by_set[place].1;
        // A vCPU may be named twice; they come by number.
        if pins.last().is_none_or(|last| last.id.value != pin.id.value) {
            pins.push(pin);
        }
    }
    for (set, pins) in by_set.into_iter().filter(|(set, pins)| pins.len() > set.len().max(1)) {
        let vcpus: Vec<u32> = pins.iter().map(|pin| pin.id.value).collect();
        let last = pins[pins.len() - 1];
        out.at(last.pcpus.span, format!("vCPUs {} share {}", numbers(vcpus), pcpus(set)));
    }
}

/// The most vCPUs of a VM that any kernel can be built for.
const MOST_VCPUS: u32 = 4096;

pub(crate) const VCPUS_BEYOND_KVM: Rule = Rule {
    id: "vcpus-beyond-kvm",
    severity: Severity::Error,
    summary: "a VM has more vCPUs than KVM can have",
    why: "KVM refuses to make a vCPU whose number is beyond what the kernel was built for, 4096 at \
          most, so the VM does not start. Such a number is a slip.",
    mend: "Give the VM the vCPUs that it needs",
    sources: &["Linux arch/x86/kvm/Kconfig, KVM_MAX_NR_VCPUS"],
    affected: &[],
    check: Check::Vm(vcpus_beyond_kvm),
    fires: &[
        xml(ANY, "<vcpu>2000000000</vcpu>\n"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -smp 5000\n"),
    ],
    quiet: &[
        xml(ANY, "<vcpu>4096</vcpu>\n"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -smp 4096\n"),
    ],
};

fn vcpus_beyond_kvm(vm: &Vm, _: &Context, out: &mut Drafts) {
    let most = if vm.max_vcpus.value >= vm.vcpus.value { &vm.max_vcpus } else { &vm.vcpus };
    if most.value > MOST_VCPUS {
        out.at(most.span, format!("{} vCPUs; KVM has {MOST_VCPUS} at most", most.value));
    }
}

pub(crate) const PINS_PARTIAL: Rule = Rule {
    id: "pins-partial",
    severity: Severity::Warning,
    summary: "some vCPUs are pinned and others are not",
    why: "The guest treats all vCPUs alike; the ones that float land on the pCPUs of the pinned \
          ones, and the slowest of them decides how fast parallel work gets on.",
    mend: "Pin every vCPU, or none",
    sources: &[CPUTUNE],
    affected: &[],
    check: Check::Vm(pins_partial),
    fires: &[
        xml(ANY, "<vcpu>2</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n"),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2
# is: vCPU 0: pCPU 1
# is: vCPU 1: any pCPU (0-31)
",
        )
        .mended(&[("any pCPU (0-31)", "pCPU 2")]),
    ],
    quiet: &[xml(ANY, VTUNE)],
};

fn pins_partial(vm: &Vm, _: &Context, out: &mut Drafts) {
    let pinned: PcpuSet = vm.live_pins().iter().map(|pin| pin.id.value).collect();
    // A common set holds for the vCPUs without a pin of their own.
    let unknown = vm.vcpus_unknown || vm.vcpus.value > MOST_VCPUS;
    if pinned.is_empty() || vm.affinity.is_some() || unknown {
        return;
    }
    let floating: PcpuSet = (0..vm.vcpus.value).filter(|vcpu| !pinned.contains(*vcpu)).collect();
    if !floating.is_empty() {
        out.at(
            vm.pins_span(),
            format!("Of {} vCPUs only {pinned} are pinned; {floating} float", vm.vcpus.value),
        );
    }
}

pub(crate) const VCPUPIN_WITHOUT_VCPU: Rule = Rule {
    id: "vcpupin-without-vcpu",
    severity: Severity::Warning,
    summary: "a vcpupin names a vCPU that the domain does not have",
    why: "libvirt drops such a pin without a word; what was meant is usually a vCPU with another \
          number, since they count from 0.",
    mend: "Take the element out, or raise the number of vCPUs",
    sources: &[CPUTUNE],
    affected: &[],
    check: Check::Vm(vcpupin_without_vcpu),
    fires: &[xml(
        ANY,
        "\
<vcpu>2</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='2'/>
  <vcpupin vcpu='2' cpuset='3'/>
</cputune>
",
    )],
    quiet: &[xml(ANY, VTUNE)],
};

fn vcpupin_without_vcpu(vm: &Vm, _: &Context, out: &mut Drafts) {
    if vm.vcpus_unknown {
        return;
    }
    let all_exist_from_0 = vm.live_pins().len() == vm.vcpus.value as usize;
    for pin in vm.pins.iter().filter(|pin| pin.id.value >= vm.max_vcpus.value) {
        let draft = out.at(
            pin.span,
            format!("vCPU {} does not exist: the domain has {}", pin.id.value, vm.max_vcpus.value),
        );
        // With a vCPU left unpinned the number may be a slip.
        if all_exist_from_0 {
            draft.fix(pin.span, "");
        }
    }
}

pub(crate) const MORE_VCPUS_THAN_PCPUS: Rule = Rule {
    id: "more-vcpus-than-pcpus",
    severity: Severity::Warning,
    summary: "the VM has more vCPUs than the host has pCPUs",
    why: "Two of its vCPUs then always share a pCPU, and a guest that waits for a lock whose holder \
          is not running wastes the whole slice. KVM warns above the recommended number, which is \
          the number of pCPUs.",
    mend: "Give it at most as many vCPUs as the host has pCPUs",
    sources: &["https://docs.kernel.org/virt/kvm/api.html"],
    affected: &[],
    check: Check::Vm(more_vcpus_than_pcpus),
    fires: &[
        xml(FOUR_CORES, "<vcpu>8</vcpu>\n"),
        qemu(FOUR_CORES, "qemu-system-x86_64 -accel kvm -cpu host -smp 8"),
        yaml(FOUR_CORES, "domain:\n  cpu:\n    cores: 8\n  devices: {}\n"),
    ],
    quiet: &[
        xml(FOUR_CORES, "<vcpu>4</vcpu>\n"),
        qemu(FOUR_CORES, "qemu-system-x86_64 -accel kvm -cpu host -smp 4"),
        yaml(FOUR_CORES, "domain:\n  cpu:\n    cores: 4\n  devices: {}\n"),
    ],
};

fn more_vcpus_than_pcpus(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let online = machine.online.len();
    if online > 0 && vm.vcpus.value as usize > online {
        out.at(
            vm.vcpus.span,
            format!("{} vCPUs on a host with {online} online pCPUs", vm.vcpus.value),
        );
    }
}

pub(crate) const MORE_VCPUS_THAN_SET: Rule = Rule {
    id: "more-vcpus-than-set",
    severity: Severity::Warning,
    summary: "the VM has more vCPUs than the pCPUs that it may run on",
    why: "Its vCPUs always wait for each other, on a host that may be idle otherwise.",
    mend: "Widen the set, or take vCPUs away",
    sources: &["https://libvirt.org/formatdomain.html#cpu-allocation"],
    affected: &[],
    check: Check::Vm(more_vcpus_than_set),
    fires: &[
        xml(ANY, "<vcpu cpuset='0-3'>8</vcpu>\n"),
        qemu(ANY, "taskset -c 0-3 qemu-system-x86_64 -accel kvm -cpu host -smp 8"),
    ],
    quiet: &[
        xml(ANY, "<vcpu cpuset='0-7'>8</vcpu>\n"),
        qemu(ANY, "taskset -c 0-7 qemu-system-x86_64 -accel kvm -cpu host -smp 8"),
    ],
};

fn more_vcpus_than_set(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(set) = &vm.affinity else { return };
    if vm.pins.is_empty() && vm.vcpus.value as usize > set.value.len() {
        out.at(
            set.span,
            format!("{} vCPUs share the {} pCPUs {}", vm.vcpus.value, set.value.len(), set.value),
        );
    }
}

/// APIC ids of 8 bits number so many vCPUs.
const MOST_WITHOUT_EIM: u32 = 255;

pub(crate) const VCPUS_WITHOUT_EIM: Rule = Rule {
    id: "vcpus-without-eim",
    severity: Severity::Error,
    summary: "more than 255 vCPUs without an IOMMU in extended interrupt mode",
    why: "An interrupt's message names its target with 8 bits; only interrupt remapping in \
          extended mode, or KVM with its interrupt controller split, reaches vCPUs beyond. libvirt \
          refuses a domain on x86 without an IOMMU; QEMU starts, and the guest's kernel leaves \
          the vCPUs beyond off.",
    mend: "Add <iommu model='intel'><driver intremap='on' eim='on'/></iommu> and \
           <ioapic driver='qemu'/> to a q35 machine; -machine q35,kernel-irqchip=split and -device \
           intel-iommu,intremap=on,eim=on",
    sources: &["https://libvirt.org/formatdomain.html#iommu-devices", CPUTUNE],
    affected: &[],
    check: Check::Vm(vcpus_without_eim),
    fires: &[
        xml(ANY, "<vcpu>288</vcpu>\n<os><type arch='x86_64' machine='q35'>hvm</type></os>\n"),
        xml(ANY, "<vcpu>288</vcpu>\n<os><type machine='pc-q35-9.2'>hvm</type></os>\n"),
        qemu(ANY, "kvm -machine q35 -cpu host -smp 288 -m 64G"),
        qemu(ANY, "kvm -machine q35 -cpu host -smp 288 -m 64G -device intel-iommu,eim=off"),
    ],
    quiet: &[
        qemu(
            ANY,
            "kvm -machine q35,kernel-irqchip=split -cpu host -smp 288 -m 64G -device \
             intel-iommu,intremap=on,eim=on",
        ),
        qemu(ANY, "qemu-system-x86_64 -machine q35 -accel kvm,kernel-irqchip=split -smp 288"),
        qemu(ANY, "qemu-system-aarch64 -machine virt -cpu max -smp 288 -m 64G"),
        xml(ANY, "<vcpu>255</vcpu>\n<os><type arch='x86_64' machine='q35'>hvm</type></os>\n"),
        xml(ANY, "<vcpu>288</vcpu>\n<os><type arch='aarch64' machine='virt'>hvm</type></os>\n"),
        xml(
            ANY,
            "\
<vcpu>288</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<features><ioapic driver='qemu'/></features>
<devices><iommu model='intel'><driver intremap='on' eim='on'/></iommu></devices>
",
        ),
    ],
};

fn vcpus_without_eim(vm: &Vm, _: &Context, out: &mut Drafts) {
    let most = &vm.max_vcpus;
    let x86 = vm.says_x86();
    let many = most.value > MOST_WITHOUT_EIM;
    if !x86 || !many || vm.extended_interrupts || vm.live.is_some() {
        return;
    }
    let message = match vm.format {
        ConfigFormat::Libvirt => {
            format!("libvirt refuses {} vCPUs without an IOMMU that has eim='on'", most.value)
        }
        _ if vm.is_command() && vm.accel.value == "kvm" => {
            format!("Of {} vCPUs no interrupt reaches those beyond 255", most.value)
        }
        _ => return,
    };
    out.at(most.span, message);
}
