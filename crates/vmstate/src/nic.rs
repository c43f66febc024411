//! Where a NIC's state has its address: in more than one place, which must agree.
//!
//! Source: QEMU `hw/net/e1000.c`, `hw/net/e1000e_core.c`, `hw/net/e1000x_common.c`,
//! `hw/net/virtio-net.c`; Intel 8254x manual, 5.6.1 (EEPROM) and 13.5.2 (receive address).

use topology::MacAddress;

use crate::cursor::number;
use crate::field::{Field, FieldKind};
use crate::patch::Patch;
use crate::state::{DeviceState, MachineState};

/// The register of the first receive address, as an index of four bytes.
const RECEIVE_ADDRESS: usize = 0x5400 / 4;

/// The bit of its upper half that makes it count.
const ADDRESS_VALID: u64 = 1 << 31;

/// Words of the EEPROM: their sum is known, the last one makes it so.
const EEPROM_WORDS: usize = 64;
const EEPROM_SUM: u16 = 0xbaba;

/// Where a NIC's state holds its MAC address.
#[derive(Debug)]
enum MacLocation<'a> {
    /// Six bytes.
    Plain(&'a Field),
    /// Two registers from this index on.
    Registers(&'a Field, usize),
    /// Three words of an EEPROM, and its checksum.
    Eeprom(&'a Field),
}

fn field<'a>(device: &'a DeviceState, path: &str, size: usize, least: usize) -> Option<&'a Field> {
    let is_it = |field: &&Field| field.path == path && field.size == size && field.count >= least;
    device.fields.iter().find(is_it)
}

/// All places of a NIC's address; none for what is no NIC that is known.
fn places(device: &DeviceState) -> Vec<MacLocation<'_>> {
    let registers =
        |path, at| field(device, path, 4, at + 2).map(|f| MacLocation::Registers(f, at));
    let eeprom = |path| field(device, path, 2, EEPROM_WORDS).map(MacLocation::Eeprom);
    match device.form.as_deref() {
        // That which a driver reads, before, is a copy of what the device has, and empty
        // until a driver has read it.
        Some("virtio-net") => device
            .fields
            .iter()
            .rev()
            .filter(|field| field.kind == FieldKind::Mac)
            .map(MacLocation::Plain)
            .collect(),
        // What is there in full is loaded last.
        Some("e1000") => [
            registers("e1000/full_mac_state.mac_reg", RECEIVE_ADDRESS),
            registers("mac_reg[0]", 0),
            eeprom("eeprom_data"),
        ]
        .into_iter()
        .flatten()
        .collect(),
        Some("e1000e") => [
            registers("core.mac", RECEIVE_ADDRESS),
            eeprom("core.eeprom"),
            field(device, "core.permanent_mac", 1, 6).map(MacLocation::Plain),
        ]
        .into_iter()
        .flatten()
        .collect(),
        _ => Vec::new(),
    }
}

/// The address that a NIC has.
pub(crate) fn mac(state: &MachineState, device: &DeviceState) -> Option<MacAddress> {
    match places(device).into_iter().next()? {
        MacLocation::Plain(field) => state.bytes_of(field).try_into().ok().map(MacAddress::new),
        MacLocation::Registers(field, at) => {
            let register = |index: usize| {
                let bytes = state.bytes_of(field).get(4 * index..4 * index + 4)?;
                Some(number(bytes).to_le_bytes())
            };
            let (low, high) = (register(at)?, register(at + 1)?);
            Some(MacAddress::new([low[0], low[1], low[2], low[3], high[0], high[1]]))
        }
        MacLocation::Eeprom(_) => None,
    }
}

/// What gives a NIC the address `mac`; `None` for what is no NIC that is known.
pub(crate) fn set_mac(
    state: &MachineState,
    device: &DeviceState,
    mac: MacAddress,
) -> Option<Vec<Patch>> {
    let mac = mac.bytes();
    let mut patches = Vec::new();
    for place in places(device) {
        match place {
            MacLocation::Plain(field) => patches.push(Patch::of(state, field, 0, mac.to_vec())),
            MacLocation::Registers(field, at) => {
                let word = |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes));
                let low = word([mac[0], mac[1], mac[2], mac[3]]);
                let high = word([mac[4], mac[5], 0, 0]) | ADDRESS_VALID;
                for (index, value) in [(at, low), (at + 1, high)] {
                    let bytes = value.to_be_bytes()[4..].to_vec();
                    patches.push(Patch::of(state, field, index, bytes));
                }
            }
            MacLocation::Eeprom(field) => {
                let mut words: Vec<u16> = state
                    .bytes_of(field)
                    .chunks_exact(2)
                    .map(|two| u16::from_be_bytes([two[0], two[1]]))
                    .collect();
                for (word, two) in words.iter_mut().zip(mac.chunks_exact(2)) {
                    *word = u16::from_le_bytes([two[0], two[1]]);
                }
                let others = words.iter().take(EEPROM_WORDS - 1);
                let sum = others.fold(0, |sum: u16, word| sum.wrapping_add(*word));
                words[EEPROM_WORDS - 1] = EEPROM_SUM.wrapping_sub(sum);
                for index in [0, 1, 2, EEPROM_WORDS - 1] {
                    let bytes = words[index].to_be_bytes().to_vec();
                    patches.push(Patch::of(state, field, index, bytes));
                }
            }
        }
    }
    (!patches.is_empty()).then_some(patches)
}
