//! What the host is known to do where vCPUs are pinned, and where its devices
//! are.

use std::collections::BTreeMap;

use topology::{CoreKind, PcpuSet};

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, running, xml};
use crate::rules::memory::vcpu_nodes;
use crate::rules::words::pcpus;
use crate::rules::worlds::{BUSY, DEVICES, HYBRID, NOHZ};
use crate::vm::Vm;

const NO_HZ: &str = "https://docs.kernel.org/timers/no_hz.html";

pub(crate) const PINS_MIX_KINDS: Rule = Rule {
    id: "pins-mix-kinds",
    severity: Severity::Warning,
    summary: "the vCPUs are pinned to cores of different kinds, which the guest takes for alike",
    why: "A performance core does up to twice the work of an efficiency core. The guest's scheduler \
          is told of equal vCPUs: what waits for all its threads waits for those on the slow ones, \
          and a vCPU's speed depends on its number.",
    mend: "Pin all vCPUs to cores of one kind; the emulator thread and iothreads may take the others",
    sources: &[
        "https://docs.kernel.org/scheduler/sched-capacity.html",
        "https://docs.kernel.org/arch/x86/topology.html",
    ],
    affected: &[],
    check: Check::Vm(pins_mix_kinds),
    fires: &[xml(
        HYBRID,
        "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='6'/></cputune>
",
    )],
    quiet: &[xml(
        HYBRID,
        "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='3'/>
  <emulatorpin cpuset='6'/></cputune>
",
    )],
};

fn pins_mix_kinds(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let mut of_kind: BTreeMap<CoreKind, PcpuSet> = BTreeMap::new();
    for pin in vm.live_pins() {
        // What may run on both is moved to where it is fast.
        let kinds: Vec<CoreKind> = machine
            .host
            .pcpus
            .iter()
            .filter(|pcpu| pin.pcpus.value.contains(pcpu.id))
            .filter_map(|pcpu| pcpu.kind)
            .collect();
        if let Some(first) = kinds.first().filter(|first| kinds.iter().all(|kind| kind == *first)) {
            of_kind.entry(*first).or_default().insert(pin.id.value);
        }
    }
    if of_kind.len() < 2 {
        return;
    }
    let said: Vec<String> = of_kind
        .iter()
        .map(|(kind, vcpus)| {
            let name = match kind {
                CoreKind::Performance => "performance",
                CoreKind::Efficiency => "efficiency",
                CoreKind::LowPower => "low-power",
            };
            let vcpu = if vcpus.len() == 1 { "vCPU" } else { "vCPUs" };
            format!("{vcpu} {vcpus} on {name} cores")
        })
        .collect();
    out.at(vm.pins_span(), format!("The pins mix kinds of cores: {}", said.join(", ")));
}

pub(crate) const PIN_BUSY: Rule = Rule {
    id: "pin-host-busy",
    severity: Severity::Warning,
    summary: "a vCPU is pinned to a pCPU on which the host has much to do",
    why: "Each interrupt of a device takes the pCPU from the guest, with an exit and colder caches \
          behind it; processes of the host take turns with the vCPU. Neither can be seen from \
          inside, except as time that was stolen.",
    mend: "Pin elsewhere, or move the interrupts (/proc/irq/N/smp_affinity_list, irqbalance's \
           --banirq and IRQBALANCE_BANNED_CPULIST) and the processes (a cpuset, CPUAffinity=)",
    sources: &[
        "https://docs.kernel.org/core-api/irq/irq-affinity.html",
        "https://man7.org/linux/man-pages/man5/proc_interrupts.5.html",
    ],
    affected: &[],
    check: Check::Vm(pin_busy),
    fires: &[
        xml(BUSY, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='3'/></cputune>\n"),
        running(BUSY, "qemu-system-x86_64 -accel kvm -cpu host\n# is: vCPU 0: pCPU 3\n"),
    ],
    quiet: &[
        xml(BUSY, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='4'/></cputune>\n"),
        running(BUSY, "qemu-system-x86_64 -accel kvm -cpu host\n# is: vCPU 0: pCPU 5\n"),
    ],
};

fn pin_busy(vm: &Vm, context: &Context, out: &mut Drafts) {
    let busy = &context.busy;
    for pin in vm.live_pins().into_iter().filter(|pin| pin.pcpus.value.len() == 1) {
        let Some(pcpu) = pin.pcpus.value.first() else { continue };
        let vcpu = pin.id.value;
        if let Some(rate) = busy.interrupts_per_s.get(&pcpu) {
            out.at(
                pin.pcpus.span,
                format!(
                    "vCPU {vcpu} is on pCPU {pcpu}, which has served {rate:.0} interrupts of \
                     devices a second"
                ),
            );
        // A VM that runs is part of that work itself.
        } else if let Some(part) = busy.work.get(&pcpu).filter(|_| vm.live.is_none()) {
            out.at(
                pin.pcpus.span,
                format!(
                    "vCPU {vcpu} is on pCPU {pcpu}, which has worked for the host {:.0} % of its \
                     time",
                    part * 100.0
                ),
            );
        }
    }
}

pub(crate) const PIN_NOT_NOHZ: Rule = Rule {
    id: "pin-not-nohz",
    severity: Severity::Hint,
    summary: "the host keeps the tick off some pCPUs, but a vCPU is pinned outside of them",
    why: "nohz_full= stops the scheduler's tick where one task runs alone, and moves timers and RCU \
          work away. On the other pCPUs the vCPU is interrupted 100 to 1000 times a second.",
    mend: "Pin the vCPUs to the pCPUs of nohz_full=",
    sources: &[NO_HZ],
    affected: &[],
    check: Check::Vm(pin_not_nohz),
    fires: &[xml(NOHZ, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='8'/></cputune>\n")],
    quiet: &[xml(NOHZ, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n")],
};

fn pin_not_nohz(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let Some(quiet) = machine.host.nohz_full.as_ref().filter(|set| !set.is_empty()) else { return };
    let outside: PcpuSet = vm.pinned().difference(quiet);
    if !outside.is_empty() {
        out.at(vm.pins_span(), format!("vCPUs are on {}, which keep the tick", pcpus(&outside)))
            .note(format!("without the tick are {quiet}"));
    }
}

pub(crate) const DEVICE_ELSEWHERE: Rule = Rule {
    id: "device-elsewhere",
    severity: Severity::Warning,
    summary: "a passed-through device is on another node than the vCPUs",
    why: "Each DMA into the guest's memory, each doorbell and each interrupt crosses between the \
          nodes: latency up by half or more, and throughput limited by the link that all share.",
    mend: "Pin the vCPUs and bind the memory to the device's node, or pass a device of the vCPUs' \
           node",
    sources: &[
        "https://docs.kernel.org/admin-guide/mm/numaperf.html",
        "https://libvirt.org/formatdomain.html#host-device-assignment",
    ],
    affected: &[],
    check: Check::Vm(device_elsewhere),
    fires: &[
        xml(
            DEVICES,
            "\
<vcpu>1</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
<devices>
  <hostdev mode='subsystem' type='pci' managed='yes'>
    <source><address domain='0x0000' bus='0xaf' slot='0x00' function='0x0'/></source>
  </hostdev>
</devices>
",
        )
        .mended(&[("cpuset='1'", "cpuset='9'")]),
        qemu(
            DEVICES,
            "taskset -c 1-4 qemu-system-x86_64 -accel kvm -cpu host -device vfio-pci,host=af:00.0",
        )
        .mended(&[("-c 1-4", "-c 8-11")]),
    ],
    quiet: &[],
};

fn device_elsewhere(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let nodes = vcpu_nodes(vm, machine);
    for device in &vm.host_devices {
        if let Some(node) = context.device_nodes.get(&device.value)
            && !nodes.is_empty()
            && !nodes.contains(*node)
        {
            out.at(
                device.span,
                format!("{} is on node {node}, the vCPUs are on node {nodes}", device.value),
            );
        }
    }
}

pub(crate) const DEVICE_HIDDEN: Rule = Rule {
    id: "device-node-hidden",
    severity: Severity::Hint,
    summary: "the guest has nodes and is not told on which a passed-through device is",
    why: "On the root bus a device belongs to no guest node: the guest's driver spreads its queues \
          and buffers over all of them, and half of the traffic crosses the host's nodes.",
    mend: "Put the device behind an expander bus of the guest node that lies on the device's node \
           (<controller type='pci' model='pcie-expander-bus'> with <target><node>, \
           -device pxb-pcie,numa_node=N)",
    sources: &[
        "https://libvirt.org/formatdomain.html#controllers",
        "https://github.com/qemu/qemu/blob/master/docs/pci_expander_bridge.txt",
    ],
    affected: &[],
    check: Check::Vm(device_hidden),
    fires: &[
        xml(DEVICES, DEVICE_ON_ROOT),
        qemu(
            DEVICES,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2 -m 2G \\
  -object memory-backend-ram,id=m0,size=1G,host-nodes=0,policy=bind \\
  -object memory-backend-ram,id=m1,size=1G,host-nodes=1,policy=bind \\
  -numa node,cpus=0,memdev=m0 -numa node,cpus=1,memdev=m1 \\
  -device vfio-pci,host=0000:af:00.0",
        )
        .mended(&[(
            "vfio-pci,host=0000:af:00.0",
            "pxb-pcie,id=near1,numa_node=1,bus_nr=128 -device vfio-pci,host=0000:af:00.0,bus=near1",
        )]),
    ],
    quiet: &[xml(DEVICES, DEVICE_ON_EXPANDER)],
};

const DEVICE_ON_ROOT: &str = "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='9'/></cputune>
<numatune><memnode cellid='1' mode='strict' nodeset='1'/></numatune>
<cpu mode='host-passthrough'>
  <topology sockets='2' cores='1' threads='1'/>
  <numa><cell id='0' cpus='0' memory='1' unit='GiB'/><cell id='1' cpus='1' memory='1' unit='GiB'/></numa>
</cpu>
<devices>
  <hostdev mode='subsystem' type='pci' managed='yes'>
    <source><address domain='0x0000' bus='0xaf' slot='0x00' function='0x0'/></source>
  </hostdev>
</devices>
";

const DEVICE_ON_EXPANDER: &str = "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='9'/></cputune>
<numatune><memnode cellid='1' mode='strict' nodeset='1'/></numatune>
<cpu mode='host-passthrough'>
  <topology sockets='2' cores='1' threads='1'/>
  <numa><cell id='0' cpus='0' memory='1' unit='GiB'/><cell id='1' cpus='1' memory='1' unit='GiB'/></numa>
</cpu>
<devices>
  <controller type='pci' index='1' model='pcie-expander-bus'><target busNr='128'><node>1</node></target></controller>
  <hostdev mode='subsystem' type='pci' managed='yes'>
    <source><address domain='0x0000' bus='0xaf' slot='0x00' function='0x0'/></source>
  </hostdev>
</devices>
";

fn device_hidden(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = context.machine.as_ref().filter(|_| vm.cells.len() > 1) else { return };
    for device in &vm.host_devices {
        let Some(node) = context.device_nodes.get(&device.value) else { continue };
        let lies_there = |cell: &&crate::vm::GuestNodeView| {
            let bound = vm.cell_nodes.iter().find(|(id, _)| id.value == cell.id);
            let bound = bound.map(|(_, nodes)| &nodes.value);
            match bound.or(cell.nodes.as_ref().map(|nodes| &nodes.value)) {
                Some(nodes) => nodes.contains(*node),
                None => {
                    let pins = vm.live_pins().into_iter();
                    let its = pins.filter(|pin| cell.vcpus.contains(pin.id.value));
                    its.flat_map(|pin| {
                        machine.nodes_of(&pin.pcpus.value).iter().collect::<Vec<_>>()
                    })
                    .any(|on| on == *node)
                }
            }
        };
        if let Some(cell) = vm.cells.iter().find(lies_there)
            && !vm.expander_nodes.contains(cell.id)
        {
            out.at(
                device.span,
                format!(
                    "{} is on node {node}, where guest node {} lies, and no expander bus is there",
                    device.value, cell.id
                ),
            );
        }
    }
}
