//! Streams put together by hand, real ones, and what is done with both.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A stream as QEMU 7.2 writes one, put together by hand: memory in three rounds, a NIC,
/// an interrupt controller with an array and a subsection, and what is not described.
fn stream() -> Vec<u8> {
    let mut bytes = b"QEVM\0\0\0\x03".to_vec();
    bytes.extend(b"\x07\0\0\0\x0apc-q35-7.2");
    bytes.extend(b"\x05\x1aconfiguration/capabilities\0\0\0\x01\0\0\0\x01\x0cauto-test-on");
    // Memory begins: two blocks.
    bytes.extend(section(0x01, 2, "ram", 4));
    bytes.extend((0x5000u64 | 4).to_be_bytes());
    for (name, length) in [("pc.ram", 0x4000u64), ("pc.bios", 0x1000)] {
        bytes.push(u8::try_from(name.len()).unwrap());
        bytes.extend(name.as_bytes());
        bytes.extend(length.to_be_bytes());
    }
    bytes.extend(0x10u64.to_be_bytes());
    bytes.extend(footer(2));
    // A round: a page with data, which holds what looks like anything, and an empty one.
    bytes.extend(b"\x02\0\0\0\x02");
    bytes.extend((0x1000u64 | 8).to_be_bytes());
    bytes.extend(b"\x06pc.ram");
    bytes.extend([0x7e, 0, 0, 0].repeat(1024));
    bytes.extend((0x2000u64 | 2 | 0x20).to_be_bytes());
    bytes.push(0);
    bytes.extend(0x10u64.to_be_bytes());
    bytes.extend(footer(2));
    // The last one.
    bytes.extend(b"\x03\0\0\0\x02");
    bytes.extend((0x3000u64 | 0x40).to_be_bytes());
    bytes.extend(b"\x06pc.ram\x01\x00\x03abc");
    bytes.extend(0x10u64.to_be_bytes());
    bytes.extend(footer(2));
    // Devices.
    bytes.extend(section(0x04, 3, "apic", 3));
    bytes.extend(0xfee0_0900u32.to_be_bytes());
    bytes.extend([0, 1, 0, 2, 0xff, 0xff]);
    bytes.push(1);
    bytes.extend(b"\x05\x09apic/mode\0\0\0\x01");
    bytes.extend((-5i64).to_be_bytes());
    bytes.extend(footer(3));
    bytes.extend(section(0x04, 4, "0000:00:02.0/e1000e", 1));
    bytes.extend([0x52, 0x54, 0, 0x11, 0x22, 0x33]);
    for (first, second) in [(1u16, 2u16), (3, 4)] {
        bytes.extend(first.to_be_bytes());
        bytes.extend(second.to_be_bytes());
    }
    bytes.extend(footer(4));
    bytes.extend(section(0x04, 5, "odd", 1));
    bytes.extend(b"anything");
    bytes.extend(footer(5));
    bytes.push(0);
    let description = json!({
        "page_size": 4096,
        "devices": [
            { "name": "apic", "instance_id": 0, "vmsd_name": "apic", "version": 3, "fields": [
                { "name": "apicbase", "type": "uint32", "size": 4 },
                { "name": "lvt", "array_len": 3, "type": "uint16", "size": 2 },
                { "name": "none", "type": "buffer", "size": 0 },
                { "name": "on", "type": "bool", "size": 1 },
            ], "subsections": [
                { "vmsd_name": "apic/mode", "version": 1, "fields": [
                    { "name": "expiry", "type": "timer", "size": 8 },
                ] },
            ] },
            { "name": "0000:00:02.0/e1000e", "instance_id": 0, "vmsd_name": "e1000e",
              "version": 1, "fields": [
                { "name": "core.permanent_mac", "array_len": 6, "type": "uint8", "size": 1 },
                { "name": "ring", "array_len": 2, "type": "struct", "size": 4, "struct": {
                    "vmsd_name": "ring", "version": 1, "fields": [
                        { "name": "head", "type": "uint16", "size": 2 },
                        { "name": "head", "type": "uint16", "size": 2 },
                    ] } },
            ] },
        ],
    })
    .to_string();
    bytes.push(6);
    bytes.extend(u32::try_from(description.len()).unwrap().to_be_bytes());
    bytes.extend(description.as_bytes());
    bytes
}

fn section(part: u8, number: u32, name: &str, version: u32) -> Vec<u8> {
    let mut bytes = vec![part];
    bytes.extend(number.to_be_bytes());
    bytes.push(u8::try_from(name.len()).unwrap());
    bytes.extend(name.as_bytes());
    bytes.extend(0u32.to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes
}

fn footer(number: u32) -> Vec<u8> {
    [&[0x7e][..], &number.to_be_bytes()].concat()
}

/// Reads `bytes`, which come in pieces of this length.
fn read_in(bytes: &[u8], piece: usize) -> Result<MachineState, StreamError> {
    let mut skim = Skim::new();
    for piece in bytes.chunks(piece) {
        skim.push(piece)?;
    }
    MachineState::read(skim.finish()?)
}

fn read(bytes: &[u8]) -> Result<MachineState, StreamError> {
    read_in(bytes, usize::MAX)
}

/// `bytes` with the first `from` replaced.
fn with(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).expect("it is there");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

fn values(state: &MachineState) -> Vec<(String, String)> {
    let fields = state.devices.iter().flat_map(|device| {
        device.fields.iter().map(move |field| {
            let value = serde_json::to_string(&state.value_of(field)).unwrap();
            (format!("{}.{}", device.label(), field.path), value)
        })
    });
    fields.collect()
}

#[test]
fn every_field_is_read() {
    let bytes = stream();
    for piece in [1, 7, 4096, usize::MAX] {
        let state = read_in(&bytes, piece).unwrap();
        assert_eq!(state.machine(), Some("pc-q35-7.2"));
        let memory = state.memory().unwrap();
        assert_eq!(memory.blocks, [("pc.ram".to_owned(), 0x4000), ("pc.bios".to_owned(), 0x1000)]);
        assert_eq!((memory.data_pages, memory.uniform_pages), (2, 1));
        let found = values(&state);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(
            found,
            [
                ("apic#0.apicbase", "4276095232"),
                ("apic#0.lvt", "[1,2,65535]"),
                ("apic#0.on", "true"),
                ("apic#0.apic/mode.expiry", "-5"),
                ("0000:00:02.0/e1000e#0.core.permanent_mac", "[82,84,0,17,34,51]"),
                ("0000:00:02.0/e1000e#0.ring[0].head", "1"),
                ("0000:00:02.0/e1000e#0.ring[0].head~2", "2"),
                ("0000:00:02.0/e1000e#0.ring[1].head", "3"),
                ("0000:00:02.0/e1000e#0.ring[1].head~2", "4"),
                ("odd#0.not described", "\"616e797468696e67\""),
            ]
        );
        // Places are those of the whole file.
        let field = &state.devices[1].fields[0];
        let at = usize::try_from(state.offset_of(field)).unwrap();
        assert_eq!(bytes[at..at + 6], [0x52, 0x54, 0, 0x11, 0x22, 0x33]);
    }
}

#[test]
fn what_is_kept_of_a_stream_is_one() {
    let bytes = stream();
    let mut skim = Skim::new();
    skim.push(&bytes).unwrap();
    let whole = skim.finish().unwrap();
    assert!(whole.bytes().len() + 4096 < bytes.len());
    let again = read(whole.bytes()).unwrap();
    assert_eq!(values(&again), values(&read(&bytes).unwrap()));
    let memory = again.memory().unwrap();
    assert_eq!((memory.blocks.len(), memory.data_pages, memory.uniform_pages), (2, 0, 0));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let bytes = stream();
    let check = |bytes: &[u8], parts: &[&str]| {
        let error = read(bytes).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}: {parts:?}");
    };
    check(b"", &["byte 0", "no migration stream"]);
    check(b"\x7fELF\x02\x01\x01\0\0\0\0", &["byte 0", "no migration stream"]);
    check(b"QEVM\0\0\0\x02", &["byte 4", "version 2"]);
    check(&bytes[..7], &["byte 7", "it was cut"]);
    check(&bytes[..200], &["byte 200", "section \"ram\"", "it was cut"]);
    let without = &bytes[..bytes.len() - 10];
    check(without, &["does not describe its devices", "suppress-vmdesc=off"]);
    check(&with(&bytes, b"\x01\0\0\0\x02\x03ram", b"\x01\0\0\0\x02\x04vfio"), &["\"vfio\""]);
    check(&with(&bytes, b"auto-test-on", b"mapped-ram\0\0"), &["no text"]);
    check(&with(&bytes, b"\x0cauto-test-on", b"\x0amapped-ram"), &["mapped-ram", "off"]);
    check(&with(&bytes, b"on/capabilities", b"on/capabilitie5"), &["capabilitie5", "newer"]);
    let page = [&[0u8, 0, 0, 0, 0, 0, 0x10, 8][..], b"\x06pc.ram"].concat();
    let odd = [&[0u8, 0, 0, 0, 0, 0, 0x18, 8][..], b"\x06pc.ram"].concat();
    check(&with(&bytes, &page, &odd), &["section \"ram\"", "flags 0x808"]);
    check(&with(&bytes, &footer(2), &footer(9)), &["section \"ram\"", "9 ends where section 2"]);
    check(&with(&bytes, &footer(3), &footer(9)), &["section \"apic\"", "9 ends where section 3"]);
    check(&with(&bytes, b"\x05\x09apic/mode", b"\x05\x09apic/made"), &["apic/mode", "not there"]);
    let size = |from: &str, to: &str| with(&bytes, from.as_bytes(), to.as_bytes());
    check(&size("\"size\":4,\"struct\"", "\"size\":5,\"struct\""), &["ring", "5", "4 bytes"]);
    check(&size("\"page_size\":4096", "\"page_size\":8192"), &["page", "8192"]);
    check(&size("\"devices\":[", "\"devices\":{"), &["description", "can't be read"]);
}

#[test]
fn what_costs_without_end_is_refused() {
    let bytes = stream();
    let fix = |mut bytes: Vec<u8>| {
        // The length before the description.
        let at = bytes.windows(6).rposition(|window| window[0] == 6 && window[5] == b'{').unwrap();
        let length = u32::try_from(bytes.len() - at - 5).unwrap();
        bytes[at + 1..at + 5].copy_from_slice(&length.to_be_bytes());
        bytes
    };
    let ring = br#""array_len":2,"name":"ring","size":4,"struct":"#;
    let check = |array_len: u64, name: &str, size: u64, part: &str| {
        let described = format!(
            "\"array_len\":{array_len},\"name\":\"{name}\",\"size\":{size},\"struct\":\
             {{\"fields\":[]}},\"_\":"
        );
        let error = read(&fix(with(&bytes, ring, described.as_bytes()))).unwrap_err();
        assert_eq!(error.section.as_deref(), Some("0000:00:02.0/e1000e"));
        assert!(error.to_string().contains(part), "{error}");
    };
    check(4_000_000_000_000, "ring", 0, "more than 4194304 fields");
    check(4_000_000_000_000, &"long".repeat(1 << 20), 0, "bytes of fields' names");
    check(4_000_000_000_000, "ring", 4, "takes 0 bytes, but is described with 4");
    let long = with(&bytes, b"\"array_len\":3,", b"\"array_len\":4000000000000000000,");
    assert_eq!(read(&fix(long)).unwrap_err().problem, Problem::Cut);
    let deep = format!("{{\"devices\":[{}", "{\"struct\":".repeat(100_000));
    let at = bytes.windows(6).rposition(|window| window[0] == 6 && window[5] == b'{').unwrap();
    let deep = [&bytes[..at + 5], deep.as_bytes()].concat();
    let error = read(&fix(deep)).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
    // Memory that never ends: entries that fit the form, over and over.
    let start = bytes.windows(3).position(|window| window == b"ram").unwrap() + 3 + 8;
    let mut skim = Skim::new();
    skim.push(&bytes[..start]).unwrap();
    let entry = [(0x2000u64 | 2 | 0x20).to_be_bytes().as_slice(), &[0]].concat().repeat(4096);
    let error = std::iter::repeat(()).find_map(|()| skim.push(&entry).err()).unwrap();
    assert!(error.to_string().contains("pages of memory"), "{error}");
    // Devices that never end.
    let mut skim = Skim::new();
    skim.push(b"QEVM\0\0\0\x03\x04").unwrap();
    let piece = vec![4; 1 << 20];
    let error = std::iter::repeat(()).find_map(|()| skim.push(&piece).err()).unwrap();
    assert!(error.to_string().contains("268435456 bytes beside memory"), "{error}");
}

#[test]
fn files_of_libvirt_are_read() {
    let check = |magic: &[u8], numbers: [u32; 4], part: Option<&str>| {
        let xml = b"<domain/>\0";
        let mut bytes = magic.to_vec();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend([0; 60]);
        bytes.extend(xml);
        let begin = bytes.len();
        bytes.extend(stream());
        match (read_in(&bytes, 5), part) {
            (Ok(state), None) => {
                let field = &state.devices[0].fields[0];
                let at = usize::try_from(state.offset_of(field)).unwrap();
                assert!(at > begin && bytes[at..at + 4] == 0xfee0_0900u32.to_be_bytes());
            }
            (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
            (other, _) => panic!("{other:?}"),
        }
    };
    check(b"LibvirtQemudSave", [2, 10, 1, 0], None);
    check(b"LibvirtQemudSave", [2, 10, 1, 2].map(u32::swap_bytes), Some("compressed"));
    check(b"LibvirtQemudPart", [2, 10, 1, 0], Some("did not finish"));
    check(b"LibvirtQemudSick", [2, 10, 1, 0], Some("no migration stream"));
}

fn edited(bytes: &[u8], set: &[&str]) -> Result<Vec<u8>, EditError> {
    let state = read(bytes).unwrap();
    let set: Vec<String> = set.iter().map(|one| (*one).to_owned()).collect();
    let mut bytes = bytes.to_vec();
    for patch in patches(&state, &set)? {
        let at = usize::try_from(patch.at).unwrap();
        assert_eq!(bytes[at..at + patch.before.len()], patch.before);
        bytes[at..at + patch.bytes.len()].copy_from_slice(&patch.bytes);
    }
    Ok(bytes)
}

#[test]
fn fields_get_other_values() {
    let bytes = stream();
    let set = [
        "apic.apicbase=0xfee00800",
        "apic#0.lvt[2]=7",
        "apic.on=false",
        "apic.apic/mode.expiry=-1",
        "0000:00:02.0/e1000e.mac=52-54-00-12-34-56",
        "e1000e.ring[1].head~2=9",
        "odd.not described=6e6f7468696e6721",
    ];
    let new = edited(&bytes, &set).unwrap();
    let (old, new) = (read(&bytes).unwrap(), read(&new).unwrap());
    let diff = compare(&old, &new, |_| true);
    let lines: Vec<String> = diff
        .changes
        .iter()
        .map(|change| {
            let told = |value: &Option<StateValue>| serde_json::to_string(value).unwrap();
            let (old, new) = (told(&change.old), told(&change.new));
            format!("{} {} {old} {new}", change.device, change.field)
        })
        .collect();
    assert_eq!(
        lines,
        [
            "apic#0 apicbase 4276095232 4276094976",
            "apic#0 lvt[2] 65535 7",
            "apic#0 on true false",
            "apic#0 apic/mode.expiry -5 -1",
            "0000:00:02.0/e1000e#0 core.permanent_mac[3] 17 18",
            "0000:00:02.0/e1000e#0 core.permanent_mac[4] 34 52",
            "0000:00:02.0/e1000e#0 core.permanent_mac[5] 51 86",
            "0000:00:02.0/e1000e#0 ring[1].head~2 4 9",
            "odd#0 not described \"616e797468696e67\" \"6e6f7468696e6721\"",
        ]
    );
    assert!(compare(&old, &old, |_| true).is_empty());
}

#[test]
fn what_can_not_be_set_is_said() {
    let bytes = stream();
    for (set, part) in [
        (&["apic"][..], "is not DEVICE.FIELD=VALUE"),
        (&["apic=1"], "is not DEVICE.FIELD=VALUE"),
        (&["hpet.x=1"], "There is no device hpet; there are 0000:00:02.0/e1000e, apic, odd"),
        (&["apic.lvtt=1"], "no field \"lvtt\""),
        (&["apic.apic=1"], "(it has apicbase, apic/mode.expiry)"),
        (&["apic.lvt=1"], "3 values: say which, as lvt[0]=1"),
        (&["apic.lvt[3]=1"], "no field \"lvt[3]\""),
        (&["apic.lvt[0]=65536"], "0 to 65535 (0xffff)"),
        (&["apic.lvt[0]=-1"], "0 to 65535"),
        (&["apic.lvt[0]=0x+1"], "0 to 65535"),
        (&["apic.on=yes"], "true or false"),
        (&["e1000e.mac=52:54:00:12:34"], "as 52:54:00:12:34:56"),
        (&["e1000e.mac=53:54:00:12:34:56"], "as 52:54:00:12:34:56"),
        (&["apic.mac=52:54:00:12:34:56"], "no field \"mac\""),
        (&["odd.not described=00"], "8 bytes in hexadecimal"),
        (&["apic.on=1", "apic#0.on=0"], "on is set twice"),
    ] {
        let error = edited(&bytes, set).unwrap_err().to_string();
        assert!(error.contains(part), "{set:?}: {error}");
    }
}

/// The checksum that a driver of an e1000 looks for.
#[test]
fn an_eeprom_keeps_its_sum() {
    let mut bytes = b"QEVM\0\0\0\x03".to_vec();
    bytes.extend(section(0x04, 1, "e1000", 2));
    bytes.extend((0..64u16).flat_map(u16::to_be_bytes));
    bytes.extend([0; 8]);
    bytes.extend(footer(1));
    bytes.push(0);
    let text = json!({ "devices": [{ "name": "e1000", "instance_id": 0, "vmsd_name": "e1000",
        "version": 2, "fields": [
            { "name": "eeprom_data", "array_len": 64, "type": "uint16", "size": 2 },
            { "name": "mac_reg[0]", "array_len": 2, "type": "uint32", "size": 4 },
        ] }] })
    .to_string();
    bytes.push(6);
    bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    bytes.extend(text.as_bytes());
    let state = read(&edited(&bytes, &["e1000.mac=02:00:5e:10:20:30"]).unwrap()).unwrap();
    let device = &state.devices[0];
    assert_eq!(state.mac_of(device).as_deref(), Some("02:00:5e:10:20:30"));
    let StateValue::Array(words) = state.value_of(&device.fields[0]) else { panic!() };
    let sum = words.iter().fold(0, |sum, word| match word {
        StateValue::Unsigned(word) => (sum + word) & 0xffff,
        _ => panic!("{word:?}"),
    });
    assert_eq!(sum, 0xbaba);
    assert_eq!(words[0], StateValue::Unsigned(0x0002));
    let StateValue::Array(registers) = state.value_of(&device.fields[1]) else { panic!() };
    assert_eq!(registers[1], StateValue::Unsigned(0x8000_3020));
}

/// Streams that real QEMUs wrote: testdata/make.sh says how.
#[test]
fn streams_of_real_qemus_are_read() {
    let check = |name: &str, machine: &str, controller: &str| {
        let path = format!("{}/testdata/{name}.vmstate", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let state = read(&bytes).unwrap();
        assert_eq!(state.machine(), Some(machine));
        assert!(state.devices.iter().all(|device| device.form.is_some()), "{name}");
        assert!(state.devices.iter().any(|device| device.name == controller), "{name}");
        let macs: Vec<String> =
            state.devices.iter().filter_map(|device| state.mac_of(device)).collect();
        assert_eq!(macs, ["52:54:00:11:22:33", "52:54:00:11:22:44"], "{name}");
        // Every byte between the head of a section and its end is of a field.
        for device in &state.devices {
            let described: usize = device.fields.iter().map(Field::len).sum();
            assert!(described > 0 && described as u64 <= device.bytes, "{}", device.label());
        }
        // What else is of virtio: the NIC on PCI, and the one behind a port of its own.
        let nics = state.devices.iter().filter(|device| device.name.ends_with("/virtio-net"));
        let configs: Vec<usize> = nics
            .filter_map(|nic| nic.fields.iter().find(|field| field.path == "virtio.pci.config"))
            .map(|field| field.size)
            .collect();
        assert_eq!(configs, [256, 4096], "{name}");
        let new = edited(&bytes, &["0000:00:01.0/virtio-net.mac=52:54:00:12:34:56"]).unwrap();
        let new = read(&new).unwrap();
        let changed: Vec<String> =
            compare(&state, &new, |_| true).changes.into_iter().map(|one| one.field).collect();
        assert_eq!(changed, ["virtio.config.mac", "virtio.net.mac"], "{name}");
    };
    check("qemu-7.2.22/x86-64", "pc-q35-7.2", "apic");
    check("qemu-7.2.22/arm64", "virt-7.2", "arm_gic");
    check("qemu-10.0.13/x86-64", "pc-q35-10.0", "apic");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Cut or changed anywhere, a stream is read or refused with a place inside it.
    #[test]
    fn damage_is_an_error_with_a_place(
        cut in 0usize..10_000,
        changes in prop::collection::vec((0usize..10_000, any::<u8>()), 0..4),
        piece in 1usize..5000,
    ) {
        let mut bytes = stream();
        let length = bytes.len();
        for (at, byte) in changes {
            bytes[at % length] = byte;
        }
        bytes.truncate(if cut < length { cut } else { length });
        match read_in(&bytes, piece) {
            Ok(state) => {
                let facts = state.facts(|_| true);
                prop_assert!(facts.file_bytes == bytes.len() as u64);
                let ends = facts.devices.iter().flat_map(|device| {
                    device.fields.iter().map(|field| field.at + field.size as u64)
                });
                prop_assert!(ends.into_iter().all(|end| end <= facts.file_bytes));
            }
            Err(error) => prop_assert!(error.at <= bytes.len() as u64, "{}", error),
        }
    }

    /// Whatever the pieces, the state is the same.
    #[test]
    fn pieces_do_not_matter(piece in 1usize..6000) {
        let bytes = stream();
        let (one, other) = (read(&bytes).unwrap(), read_in(&bytes, piece).unwrap());
        prop_assert_eq!(one.facts(|_| true), other.facts(|_| true));
    }

    /// A value that was set is the value that is read.
    #[test]
    fn what_was_set_is_read(base: u32, element in 0usize..3, word: u16, expiry: i64) {
        let bytes = stream();
        let set = [
            format!("apic.apicbase={base:#x}"),
            format!("apic.lvt[{element}]={word}"),
            format!("apic.apic/mode.expiry={expiry}"),
        ];
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let state = read(&edited(&bytes, &set).unwrap()).unwrap();
        let apic = &state.devices[0];
        let value = |index: usize| state.value_of(&apic.fields[index]);
        prop_assert_eq!(value(0), StateValue::Unsigned(base.into()));
        prop_assert_eq!(value(3), StateValue::Signed(expiry));
        let StateValue::Array(words) = value(1) else { panic!() };
        prop_assert_eq!(&words[element], &StateValue::Unsigned(word.into()));
    }
}
