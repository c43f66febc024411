//! What the loader and the firmware left in memory: PVH's start_info, ACPI's tables.

use thinguest::StartInfo;
use thinguest::acpi::Tables;

use super::exit::set_power_off;
use super::io_apic;
use crate::found::{CMDLINE_BYTES, MachineParts};
use crate::metal::memory::{Memory, POOL_END, Pool, take_page_0_away};
use crate::metal::vcpu::MAX_VCPUS;
use crate::metal::virtio_mmio;

/// Devices that are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Devices {
    pub(crate) hpet: Option<u64>,
    pub(crate) io_apic: Option<u64>,
}

/// All that is known when the guest begins, with the command line in `buffer`.
pub(crate) fn find(start_info: u64, buffer: &mut [u8; CMDLINE_BYTES]) -> MachineParts<'_, Devices> {
    let start = StartInfo::at(Memory, start_info);
    let cmdline = start.map_or("", |start| start.cmdline(buffer));
    let tables = start.and_then(tables);
    if let Some(how) = tables.and_then(|tables| tables.power_off()) {
        set_power_off(how);
    }
    if let Some(tables) = tables {
        tables.io_apics().for_each(|(page, first)| io_apic::remember(page, first));
        tables.virtio_devices().for_each(|(at, interrupt)| virtio_mmio::remember(at, interrupt));
    }
    let nodes = tables.and_then(|tables| tables.node_memory(POOL_END));
    let largest = |begin, end| start?.largest_memory(begin, end);
    let (pool, far) = Pool::take(largest, nodes);
    let mut ids = [0; MAX_VCPUS];
    let mut vcpus = 0;
    for id in tables.iter().flat_map(Tables::local_apics) {
        if let Some(slot) = ids.get_mut(vcpus) {
            *slot = u64::from(id);
        }
        vcpus += 1;
    }
    let devices = Devices {
        hpet: tables.and_then(|tables| tables.hpet()),
        io_apic: tables.and_then(|tables| tables.io_apics().next()).map(|(page, _)| page),
    };
    take_page_0_away();
    MachineParts { cmdline, pool, far, ids, vcpus: vcpus.max(1), devices }
}

/// ACPI's root, where the loader says, else where old firmware puts it.
fn tables(start: StartInfo<Memory>) -> Option<Tables<Memory>> {
    let mut searched = (0xe0000..0x10_0000).step_by(16);
    match start.acpi_root() {
        Some(root) => Tables::at(Memory, root),
        None => searched.find_map(|at| Tables::at(Memory, at)),
    }
}
