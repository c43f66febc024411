//! What the loader and the firmware left in memory: the command line, memory, vCPUs, the
//! interrupt controller, the serial port, and how the machine is called. Where the guest
//! is booted as Linux is, the device tree says all of it; behind UEFI the loader tells the
//! first two, and where the tree or ACPI's tables are, which say the rest.

use thinguest::acpi::{Gic, PRIVATE_INTERRUPTS, Tables};
use thinguest::{NodeMap, NodePieces, StartInfo};

use super::interrupts::{set_controller, set_timer_interrupt};
use super::{serial, tree};
use crate::found::{CMDLINE_BYTES, MachineParts};
use crate::metal::instruction::set_call_by_smc;
use crate::metal::memory::{Memory, POOL_END, Pool};
use crate::metal::vcpu::MAX_VCPUS;
use crate::metal::virtio_mmio::remember;

/// Devices that are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Devices {
    /// The interrupt controller's distributor.
    pub(crate) distributor: Option<u64>,
}

/// Memory of one node of the machine.
#[derive(Debug, Clone, Copy)]
struct Node {
    numa_node: u32,
    begin: u64,
    end: u64,
}

/// What the tree or the tables say.
#[derive(Debug, Default)]
struct Machine {
    ids: Vcpus,
    gic: Option<Gic>,
    /// The virtual timer's interrupt.
    timer: Option<u32>,
    /// The serial port.
    port: Option<u64>,
    by_smc: bool,
    /// The tree's.
    memory: [Option<Node>; 8],
    /// The nodes' memory, if there are several.
    nodes: Option<NodePieces>,
}

/// The affinities of vCPUs, and how many there are.
#[derive(Debug)]
struct Vcpus([u64; MAX_VCPUS], usize);

impl Default for Vcpus {
    fn default() -> Self {
        Self([0; MAX_VCPUS], 0)
    }
}

impl Vcpus {
    fn add(&mut self, id: u64) {
        if let Some(slot) = self.0.get_mut(self.1) {
            *slot = id;
        }
        self.1 += 1;
    }
}

/// All that is known when the guest begins, with the command line in `buffer`; `handed` is
/// the address of the device tree, or of what the loader for UEFI tells.
pub(crate) fn find(handed: u64, buffer: &mut [u8; CMDLINE_BYTES]) -> MachineParts<'_, Devices> {
    let start = StartInfo::at(Memory, handed);
    let tree = start.map_or(Some(handed), |start| start.module());
    let mut length = 0;
    let mut machine = Machine::default();
    if let Some(tree) = tree {
        machine.ask_tree(tree, &mut |byte| {
            if let Some(slot) = buffer.get_mut(length) {
                *slot = byte;
            }
            length += 1;
        });
    }
    // Firmware that describes the machine by ACPI gives no tree, or one without the machine.
    if machine.ids.1 == 0
        && let Some(root) = start.and_then(|start| start.acpi_root())
        && let Some(tables) = Tables::at(Memory, root)
    {
        machine.ask_tables(&tables);
    }
    if let Some(at) = machine.port {
        serial::set(at);
    }
    if let Some(gic) = &machine.gic {
        set_controller(gic);
    }
    if let Some(number) = machine.timer {
        set_timer_interrupt(number);
    }
    set_call_by_smc(machine.by_smc);
    let tree = tree.and_then(tree::place);
    let largest = |begin, end| match start {
        Some(start) => start.largest_memory(begin, end),
        None => machine.largest_memory(tree, begin, end),
    };
    let (pool, far) = Pool::take(largest, machine.nodes);
    let cmdline = match start {
        Some(start) => start.cmdline(buffer),
        None => core::str::from_utf8(buffer.get(..length).unwrap_or_default()).unwrap_or_default(),
    };
    let Vcpus(ids, vcpus) = machine.ids;
    let devices = Devices { distributor: machine.gic.as_ref().map(Gic::distributor) };
    MachineParts { cmdline, pool, far, ids, vcpus: vcpus.max(1), devices }
}

impl Machine {
    /// Reads the device tree, and gives the bytes of the command line away.
    fn ask_tree(&mut self, tree: u64, bootargs: &mut dyn FnMut(u8)) {
        let mut pieces = 0;
        let (mut timer, mut interrupt_cells) = (tree::Node::default(), None);
        // What is broken from some place on was right before it.
        let _ = tree::each(tree, &mut |node| {
            if node.is_named("chosen") {
                node.bootargs.bytes().for_each(&mut *bootargs);
            } else if node.device_type.has("cpu") {
                if let Some((id, _)) = node.reg(0) {
                    self.ids.add(id);
                }
            } else if node.device_type.has("memory") {
                if let (Some((begin, bytes)), Some(slot)) =
                    (node.reg(0), self.memory.get_mut(pieces))
                {
                    let numa_node = node.numa_node.cell(0).unwrap_or(0);
                    *slot = Some(Node { numa_node, begin, end: begin.saturating_add(bytes) });
                    pieces += 1;
                }
            } else if ["arm,armv8-timer", "arm,armv7-timer"]
                .iter()
                .any(|name| node.compatible.has(name))
            {
                timer = *node;
            } else if node.compatible.has("arm,gic-v3") {
                interrupt_cells = node.interrupt_cells.cell(0);
                // Redistributors lie in one or two regions.
                let regions = [node.reg(1), node.reg(2)].into_iter().flatten();
                self.gic = node.reg(0).map(|(at, _)| Gic::v3(at, regions));
            } else if ["arm,cortex-a15-gic", "arm,gic-400"]
                .iter()
                .any(|name| node.compatible.has(name))
            {
                if let (Some((distributor, _)), Some((interface, _))) = (node.reg(0), node.reg(1)) {
                    self.gic = Some(Gic::V2 { distributor, interface });
                }
            } else if node.compatible.has("arm,pl011") {
                self.port = self.port.or(node.reg(0).map(|(at, _)| at));
            } else if node.compatible.has("virtio,mmio") {
                // Of the interrupts that vCPUs share, which begin at 32.
                const SHARED: u32 = 0;
                let interrupt = node.interrupts.cell(1).filter(|number| *number < 1 << 10);
                if let (Some((at, _)), Some(SHARED), Some(number)) =
                    (node.reg(0), node.interrupts.cell(0), interrupt)
                {
                    remember(at, number + 32);
                }
            } else if node.method.has("smc") {
                self.by_smc = true;
            }
        });
        self.timer = virtual_timer(&timer, interrupt_cells);
        let mut nodes = NodeMap::below(POOL_END);
        for Node { numa_node, begin, end } in self.memory.iter().flatten() {
            nodes.add(*numa_node, *begin, end.saturating_sub(*begin));
        }
        self.nodes = nodes.pieces();
    }

    /// Reads ACPI's tables.
    fn ask_tables(&mut self, tables: &Tables<Memory>) {
        tables.gic_cpus().for_each(|id| self.ids.add(id));
        self.gic = tables.gic();
        self.timer = tables.virtual_timer();
        self.port = tables.pl011();
        self.by_smc = tables.psci_by_smc().unwrap_or(false);
        self.nodes = tables.node_memory(POOL_END);
        tables.virtio_devices().for_each(|(at, interrupt)| remember(at, interrupt));
    }

    /// The largest piece of the tree's memory within `begin..end`, without the tree, which
    /// lies at `tree`.
    fn largest_memory(&self, tree: Option<(u64, u64)>, begin: u64, end: u64) -> Option<(u64, u64)> {
        let (gap, behind) = tree.unwrap_or((end, end));
        let nodes = self.memory.iter().flatten();
        // What lies on either side of the tree.
        let parts = nodes
            .flat_map(|node| [(node.begin, node.end.min(gap)), (node.begin.max(behind), node.end)]);
        let within = parts.map(|part| (part.0.max(begin), part.1.min(end)));
        within.filter(|part| part.0 < part.1).max_by_key(|part| part.1 - part.0)
    }
}

/// The virtual timer's interrupt, of the timer's node; each has so many cells.
///
/// Source: Linux `Documentation/devicetree/bindings/timer/arm,arch_timer.yaml` and
/// `interrupt-controller/arm,gic.yaml`.
fn virtual_timer(timer: &tree::Node, cells: Option<u32>) -> Option<u32> {
    /// The kind of a vCPU's own interrupts, which are counted from the first of them.
    const PRIVATE: u32 = 1;
    /// Behind the secure and the physical timer's, where they have no names.
    const USUAL_PLACE: u64 = 2;
    let place = match timer.interrupt_names.cells() {
        0 => USUAL_PLACE,
        _ => timer.interrupt_names.position("virt")?,
    };
    let first = place * u64::from(cells.unwrap_or(3));
    let (kind, number) = (timer.interrupts.cell(first)?, timer.interrupts.cell(first + 1)?);
    let number = number.checked_add(PRIVATE_INTERRUPTS.start)?;
    (kind == PRIVATE && PRIVATE_INTERRUPTS.contains(&number)).then_some(number)
}
