//! Tables as firmware writes them, and as it should not.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::physical::TestMemory;

const BASE: u64 = 0x4000_0000;
/// Where each table lies in the test's memory.
const STRIDE: usize = 1024;
const CPUS: u64 = 4;

/// Memory with a pointer at its begin, and behind it the root and its tables.
#[derive(Clone)]
struct Firmware {
    bytes: Vec<u8>,
    places: BTreeMap<[u8; 4], usize>,
}

fn place(index: usize) -> u64 {
    BASE + (index * STRIDE) as u64
}

fn set_sum(bytes: &mut [u8], at: usize) {
    bytes[at] = 0;
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[at] = sum.wrapping_neg();
}

fn table(name: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    bytes[..4].copy_from_slice(&name);
    bytes[4..8].copy_from_slice(&(HEADER_BYTES as u32 + body.len() as u32).to_le_bytes());
    bytes.extend(body);
    set_sum(&mut bytes, 9);
    bytes
}

impl Firmware {
    /// The pointer's version decides which root there is.
    fn new(revision: u8, tables: &[Vec<u8>]) -> Self {
        let mut bytes = vec![0; (tables.len() + 2) * STRIDE];
        let mut places = BTreeMap::new();
        let mut root = Vec::new();
        for (index, table) in (2..).zip(tables) {
            let at = index * STRIDE;
            bytes[at..at + table.len()].copy_from_slice(table);
            let name: [u8; 4] = table[..4].try_into().unwrap();
            places.insert(name, at);
            // The fixed description names it.
            if name != *b"DSDT" {
                let width = if revision >= 2 { 8 } else { 4 };
                root.extend(&place(index).to_le_bytes()[..width]);
            }
        }
        let root = table(if revision >= 2 { *b"XSDT" } else { *b"RSDT" }, &root);
        places.insert(root[..4].try_into().unwrap(), STRIDE);
        bytes[STRIDE..STRIDE + root.len()].copy_from_slice(&root);
        bytes[..8].copy_from_slice(b"RSD PTR ");
        bytes[15] = revision;
        if revision >= 2 {
            bytes[20..24].copy_from_slice(&36_u32.to_le_bytes());
            bytes[24..32].copy_from_slice(&place(1).to_le_bytes());
        } else {
            bytes[16..20].copy_from_slice(&(place(1) as u32).to_le_bytes());
        }
        set_sum(&mut bytes[..20], 8);
        set_sum(&mut bytes[..36], 32);
        Self { bytes, places }
    }

    fn tables(&self) -> Option<Tables<TestMemory<'_>>> {
        Tables::at(TestMemory { begin: BASE, bytes: &self.bytes }, BASE)
    }

    /// Changes a table's byte, and its sum if that is to be right.
    fn with(mut self, name: [u8; 4], offset: usize, value: u8, is_right: bool) -> Self {
        let at = self.places[&name];
        let bytes = u32::from_le_bytes(self.bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        self.bytes[at + offset] = value;
        if is_right {
            set_sum(&mut self.bytes[at..at + bytes], 9);
        }
        self
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn entry(kind: u8, bytes: usize, values: &[(usize, u64, usize)]) -> Vec<u8> {
    let mut entry = vec![0; bytes];
    entry[0] = kind;
    entry[1] = bytes as u8;
    for (at, value, width) in values {
        put(&mut entry, *at, &value.to_le_bytes()[..*width]);
    }
    entry
}

fn cpu(index: u64, enabled: bool, interface: u64, redistributor: u64) -> Vec<u8> {
    let flags = u64::from(enabled);
    let values = [(12, flags, 4), (32, interface, 8), (60, redistributor, 8), (68, index, 8)];
    entry(0xb, 80, &values)
}

fn distributor(version: u64) -> Vec<u8> {
    entry(0xc, 24, &[(8, 0x800_0000, 8), (20, version, 1)])
}

fn region(begin: u64, bytes: u64) -> Vec<u8> {
    entry(0xe, 16, &[(4, begin, 8), (12, bytes, 4)])
}

fn madt(entries: &[Vec<u8>]) -> Vec<u8> {
    table(*b"APIC", &[vec![0; 8], entries.concat()].concat())
}

/// Such as QEMU's virt has.
fn arm(version: u64, more: &[Vec<u8>]) -> Firmware {
    let is_v3 = version == 3;
    let mut entries = vec![distributor(version)];
    entries.extend((0..CPUS).map(|index| cpu(index, true, if is_v3 { 0 } else { 0x801_0000 }, 0)));
    entries.push(cpu(9, false, 0, 0));
    if is_v3 {
        entries.push(region(0x80a_0000, 0xf6_0000));
    }
    let mut fixed = vec![0; 276 - 36];
    put(&mut fixed, 129 - 36, &3_u16.to_le_bytes());
    put(&mut fixed, 140 - 36, &place(4).to_le_bytes());
    let mut port = vec![0; 80 - 36];
    port[0] = 3;
    put(&mut port, 44 - 36, &0x900_0000_u64.to_le_bytes());
    let mut timers = vec![0; 104 - 36];
    for (at, number) in [(48, 29_u32), (56, 30), (64, 27), (72, 26), (96, 28)] {
        put(&mut timers, at - 36, &number.to_le_bytes());
    }
    let mut code = vec![0x10; 20];
    code.extend(b"LNRO0005\0_UID\0");
    code.extend([0x86, 9, 0, 1, 0, 0, 0, 0x0a, 0, 2, 0, 0]);
    code.extend([0x89, 6, 0, 1, 1, 48, 0, 0, 0]);
    let fixed = table(*b"FACP", &fixed);
    let (code, port, timers) =
        (table(*b"DSDT", &code), table(*b"SPCR", &port), table(*b"GTDT", &timers));
    let mut all = vec![madt(&entries), fixed, code, port, timers];
    all.extend_from_slice(more);
    Firmware::new(2, &all)
}

fn srat(parts: &[(u32, u64, u64)]) -> Vec<u8> {
    let parts = parts.iter().map(|(node, begin, bytes)| {
        entry(1, 40, &[(2, u64::from(*node), 4), (8, *begin, 8), (16, *bytes, 8), (28, 1, 4)])
    });
    table(*b"SRAT", &[vec![0; 12], parts.collect::<Vec<_>>().concat()].concat())
}

#[test]
fn an_arm64_machine_is_read() {
    let far = (2 << 30, 3 << 30);
    let nodes = [(0, 1 << 30, 1 << 30), (1, far.0, 1 << 30)];
    let firmware = arm(3, &[srat(&nodes)]);
    let tables = firmware.tables().unwrap();
    assert!(tables.gic_cpus().eq(0..CPUS));
    let Some(Gic::V3 { distributor, redistributors }) = tables.gic() else { panic!() };
    assert_eq!((distributor, redistributors[0]), (0x800_0000, (0x80a_0000, 0xf6_0000)));
    assert_eq!(redistributors[1], (0, 0));
    assert_eq!((tables.psci_by_smc(), tables.pl011()), (Some(false), Some(0x900_0000)));
    assert_eq!(tables.virtual_timer(), Some(VIRTUAL_TIMER));
    assert!(tables.virtio_devices().eq([(0x0a00_0000, 48)]));
    let pieces = tables.node_memory(u64::MAX).unwrap();
    assert_eq!((pieces.near, pieces.far[0]), ((1 << 30, 2 << 30), Some(far)));
    assert_eq!(tables.node_memory(far.0), None);

    let firmware = arm(2, &[]);
    let gic = firmware.tables().unwrap().gic();
    assert_eq!(gic, Some(Gic::V2 { distributor: 0x800_0000, interface: 0x801_0000 }));
}

#[test]
fn redistributors_that_lie_apart_are_their_cpus() {
    for version in [0, 3, 4] {
        let entries = [
            distributor(version),
            cpu(0, true, 0, 0x10_0000),
            cpu(1, false, 0, 0x20_0000),
            cpu(2, true, 0, 0x30_0000),
        ];
        let firmware = Firmware::new(2, &[madt(&entries)]);
        let Some(Gic::V3 { redistributors, .. }) = firmware.tables().unwrap().gic() else {
            panic!("{version}")
        };
        assert_eq!(redistributors[..2], [(0x10_0000, 0x2_0000), (0x30_0000, 0x2_0000)]);
        assert_eq!(redistributors[2], (0, 0), "{version}");
    }
    // More than there is room for.
    let entries: Vec<_> = (0..100).map(|n| region(n << 20, 1 << 17)).collect();
    let entries = [vec![distributor(3)], entries].concat();
    let mut firmware = Firmware::new(2, &[table(*b"none", &[]), table(*b"none", &[])]);
    let long = madt(&entries);
    let at = firmware.bytes.len();
    firmware.bytes.extend(&long);
    let root = table(*b"XSDT", &(BASE + at as u64).to_le_bytes());
    put(&mut firmware.bytes, STRIDE, &root);
    let Some(Gic::V3 { redistributors, .. }) = firmware.tables().unwrap().gic() else { panic!() };
    assert_eq!(redistributors[MAX_REDISTRIBUTORS - 1].0, 64 << 20);
}

#[test]
fn an_x86_machine_is_read_by_either_root() {
    let entries = [
        entry(0, 8, &[(3, 0, 1), (4, 1, 4)]),
        entry(0, 8, &[(3, 1, 1), (4, 0, 4)]),
        entry(9, 16, &[(4, 300, 4), (8, 1, 4)]),
        entry(1, 12, &[(4, 0xfec0_0000, 4), (8, 24, 4)]),
    ];
    let mut fixed = vec![0; 116 - 36];
    put(&mut fixed, 40 - 36, &(place(4) as u32).to_le_bytes());
    put(&mut fixed, 64 - 36, &0x604_u16.to_le_bytes());
    let code = b"\x08_S5_\x12\x06\x04\x0a\x05\x00\x00\x00";
    let mut hpet = vec![0; 20];
    put(&mut hpet, 8, &0xfed0_0000_u64.to_le_bytes());
    let tables =
        [madt(&entries), table(*b"FACP", &fixed), table(*b"DSDT", code), table(*b"HPET", &hpet)];
    for revision in [0, 2] {
        let firmware = Firmware::new(revision, &tables);
        let tables = firmware.tables().unwrap();
        assert!(tables.local_apics().eq([0, 300]), "{revision}");
        assert!(tables.io_apics().eq([(0xfec0_0000, 24)]), "{revision}");
        assert_eq!(tables.hpet(), Some(0xfed0_0000), "{revision}");
        let value = 1 << 13 | 5 << 10;
        assert_eq!(tables.power_off(), Some(PowerOff::Control { port: 0x604, value }));
        assert_eq!((tables.psci_by_smc(), tables.pl011()), (None, None));
    }
}

#[test]
fn a_pointer_that_is_wrong_leads_nowhere() {
    for at in [0, 8, 15, 20, 24, 35] {
        let mut firmware = arm(3, &[]);
        firmware.bytes[at] ^= 0x40;
        assert!(firmware.tables().is_none(), "{at}");
    }
    let firmware = arm(3, &[]);
    let memory = TestMemory { begin: BASE, bytes: &firmware.bytes };
    for at in [0, BASE + 1, u64::MAX, BASE + firmware.bytes.len() as u64 - 4] {
        assert!(Tables::at(memory, at).is_none(), "{at}");
    }
    // A length that reaches beyond all memory.
    let mut firmware = arm(3, &[]);
    put(&mut firmware.bytes, 20, &u32::MAX.to_le_bytes());
    set_sum(&mut firmware.bytes[..36], 32);
    assert!(firmware.tables().is_none());
}

#[test]
fn a_table_that_is_broken_is_none() {
    let names = [*b"APIC", *b"FACP", *b"SPCR", *b"GTDT", *b"XSDT"];
    for (index, name) in names.into_iter().enumerate() {
        // Another byte, but the same sum: a length below the header's, or beyond the memory.
        for (offset, value, is_right) in [(8, 0x77, false), (4, 35, false), (7, 0xff, false)] {
            let firmware = arm(3, &[]).with(name, offset, value, is_right);
            let Some(tables) = firmware.tables() else {
                assert_eq!(name, *b"XSDT");
                continue;
            };
            let there = [
                tables.gic().is_some(),
                tables.psci_by_smc().is_some(),
                tables.pl011().is_some(),
                tables.virtual_timer().is_some(),
            ];
            let expected: Vec<bool> = (0..4).map(|other| other != index).collect();
            assert_eq!(there[..], expected, "{name:?} {offset}");
        }
    }
    // Without its code no device is found, and all else is.
    let firmware = arm(3, &[]).with(*b"DSDT", 40, 1, false);
    let tables = firmware.tables().unwrap();
    assert_eq!((tables.virtio_devices().count(), tables.psci_by_smc()), (0, Some(false)));
}

#[test]
fn a_walk_ends_at_an_entry_that_is_not_whole() {
    // The second vCPU's length: none, only itself, and beyond the table.
    let second = 44 + 24 + 80 + 1;
    for (length, vcpus) in [(0, 1), (1, 1), (255, 4), (80, 4)] {
        let firmware = arm(3, &[]).with(*b"APIC", second, length, true);
        let tables = firmware.tables().unwrap();
        let found = tables.gic_cpus().count();
        assert!(found == vcpus || length == 255 && found < 4, "{length}: {found}");
        assert!(tables.gic_cpus().next() == Some(0), "{length}");
    }
    // An entry too short for what is asked of it.
    let short = entry(0xb, 40, &[(12, 1, 4), (32, 0x801_0000, 8)]);
    let firmware = Firmware::new(2, &[madt(&[distributor(2), short])]);
    let tables = firmware.tables().unwrap();
    assert_eq!(tables.gic_cpus().count(), 0);
    assert!(matches!(tables.gic(), Some(Gic::V2 { interface: 0x801_0000, .. })));
}

#[test]
fn the_virtual_timer_s_interrupt_is_one_of_a_vcpu_s_own() {
    for (number, expected) in [(16, Some(16)), (31, Some(31)), (0, None), (15, None), (32, None)] {
        let firmware = arm(3, &[]).with(*b"GTDT", 64, number, true);
        assert_eq!(firmware.tables().unwrap().virtual_timer(), expected, "{number}");
    }
    // Its upper bytes count, and a table that ends before it has none.
    let firmware = arm(3, &[]).with(*b"GTDT", 67, 1, true);
    assert_eq!(firmware.tables().unwrap().virtual_timer(), None);
    for (bytes, expected) in [(67, None), (68, Some(VIRTUAL_TIMER))] {
        let mut firmware = arm(3, &[]).with(*b"GTDT", 4, bytes, true);
        let at = firmware.places[b"GTDT"];
        set_sum(&mut firmware.bytes[at..at + usize::from(bytes)], 9);
        assert_eq!(firmware.tables().unwrap().virtual_timer(), expected, "{bytes}");
    }
    let firmware = Firmware::new(2, &[madt(&[distributor(3)])]);
    assert_eq!(firmware.tables().unwrap().virtual_timer(), None);
}

#[test]
fn what_is_no_pl011_and_no_psci_is_neither() {
    let firmware = arm(3, &[]).with(*b"SPCR", 36, 0x12, true);
    assert_eq!(firmware.tables().unwrap().pl011(), None);
    let firmware = arm(3, &[]).with(*b"SPCR", 40, 1, true);
    assert_eq!(firmware.tables().unwrap().pl011(), None);
    let firmware = arm(3, &[]).with(*b"FACP", 129, 1, true);
    assert_eq!(firmware.tables().unwrap().psci_by_smc(), Some(true));
    let firmware = arm(3, &[]).with(*b"FACP", 129, 2, true);
    assert_eq!(firmware.tables().unwrap().psci_by_smc(), None);
}

proptest! {
    /// Whatever stands there, with sums that are right: it ends, and nothing is read beyond.
    #[test]
    fn changed_tables_are_read_to_an_end(
        changes in proptest::collection::vec((0_usize..5, 36_usize..300, any::<u8>()), 0..40),
        length in proptest::option::of((0_usize..5, 0_u32..2048)),
    ) {
        let names = [*b"APIC", *b"FACP", *b"SPCR", *b"DSDT", *b"GTDT"];
        let mut firmware = arm(3, &[srat(&[(0, 1 << 30, 1 << 30)])]);
        for (name, offset, value) in changes {
            let at = firmware.places[&names[name]];
            firmware.bytes[at + offset] = value;
        }
        if let Some((name, length)) = length {
            let at = firmware.places[&names[name]];
            put(&mut firmware.bytes, at + 4, &length.to_le_bytes());
        }
        for name in names {
            let at = firmware.places[&name];
            let bytes = u32::from_le_bytes(firmware.bytes[at + 4..at + 8].try_into().unwrap());
            let end = (at + bytes as usize).min(firmware.bytes.len());
            if end > at + 9 {
                set_sum(&mut firmware.bytes[at..end], 9);
            }
        }
        let tables = firmware.tables().unwrap();
        let most = STRIDE * 8;
        prop_assert!(tables.gic_cpus().count() <= most && tables.virtio_devices().count() <= most);
        prop_assert!(tables.local_apics().count() <= most && tables.io_apics().count() <= most);
        let _ = (tables.gic(), tables.pl011(), tables.psci_by_smc(), tables.power_off());
        prop_assert!(tables.virtual_timer().is_none_or(|at| PRIVATE_INTERRUPTS.contains(&at)));
        let _ = (tables.node_memory(u64::MAX), tables.hpet());
    }
}
