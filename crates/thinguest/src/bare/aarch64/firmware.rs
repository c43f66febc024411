//! What the device tree says: the command line, memory, vCPUs, the interrupt controller,
//! the serial port, and how the machine is called.

use super::interrupts::{Controller, set_controller};
use super::{serial, tree};
use crate::found::{CMDLINE_BYTES, Found};
use crate::metal::instruction::set_call_by_smc;
use crate::metal::memory::Pool;
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
struct Memory {
    numa_node: u32,
    begin: u64,
    end: u64,
}

/// All that is known when the guest begins, with the command line in `buffer`.
pub(crate) fn find(tree: u64, buffer: &mut [u8; CMDLINE_BYTES]) -> Found<'_, Devices> {
    let mut length = 0;
    let mut ids = [0; MAX_VCPUS];
    let mut vcpus = 0;
    let mut memory: [Option<Memory>; 8] = [None; 8];
    let mut pieces = 0;
    let mut controller = None;
    let mut port = None;
    // What is broken from some place on was right before it.
    let _ = tree::each(tree, &mut |node| {
        if node.is_named("chosen") {
            for byte in node.bootargs.bytes() {
                if let Some(slot) = buffer.get_mut(length) {
                    *slot = byte;
                }
                length += 1;
            }
        } else if node.device_type.has("cpu") {
            if let Some(id) = node.reg(0).map(|(id, _)| id) {
                if let Some(slot) = ids.get_mut(vcpus) {
                    *slot = id;
                }
                vcpus += 1;
            }
        } else if node.device_type.has("memory") {
            if let (Some((begin, bytes)), Some(slot)) = (node.reg(0), memory.get_mut(pieces)) {
                let numa_node = node.numa_node.cell(0).unwrap_or(0);
                *slot = Some(Memory { numa_node, begin, end: begin.saturating_add(bytes) });
                pieces += 1;
            }
        } else if node.compatible.has("arm,gic-v3") {
            controller = Controller::v3(node.reg(0), [node.reg(1), node.reg(2)]);
        } else if ["arm,cortex-a15-gic", "arm,gic-400"].iter().any(|name| node.compatible.has(name))
        {
            controller = Controller::v2(node.reg(0), node.reg(1));
        } else if node.compatible.has("arm,pl011") {
            port = port.or(node.reg(0).map(|(at, _)| at));
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
            set_call_by_smc(true);
        }
    });
    if let Some(at) = port {
        serial::set(at);
    }
    if let Some(controller) = controller {
        set_controller(controller);
    }
    let (mut pool, far) = pools(&memory, tree::place(tree));
    let far = far.and_then(|(begin, end)| pool.as_mut()?.split(begin, end));
    let cmdline = buffer.get(..length).unwrap_or_default();
    Found {
        cmdline: core::str::from_utf8(cmdline).unwrap_or_default(),
        pool,
        far,
        ids,
        vcpus: vcpus.max(1),
        devices: Devices { distributor: controller.map(Controller::distributor) },
    }
}

/// The largest piece of memory without the tree, and the part of it that is the last
/// node's, if there are several.
fn pools(
    memory: &[Option<Memory>],
    tree: Option<(u64, u64)>,
) -> (Option<Pool>, Option<(u64, u64)>) {
    let all = || memory.iter().flatten();
    let (Some(begin), Some(end)) =
        (all().map(|piece| piece.begin).min(), all().map(|piece| piece.end).max())
    else {
        return (None, None);
    };
    let (first, last) = (all().next(), all().last());
    let far = last.filter(|last| first.is_some_and(|first| first.numa_node != last.numa_node));
    // Nodes lie one behind the other.
    let (below, above) = match tree {
        Some((tree, tree_end)) if begin < tree && tree_end < end => {
            ((begin, tree), (tree_end, end))
        }
        _ => ((begin, begin), (begin, end)),
    };
    let usable = |(begin, end)| {
        let (begin, end) = Pool::usable(begin, end);
        end.saturating_sub(begin)
    };
    let (begin, end) = if usable(below) > usable(above) { below } else { above };
    let far = far.map(|far| (far.begin.max(begin), far.end));
    (Pool::take(begin, end), far)
}
