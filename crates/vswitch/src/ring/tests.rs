//! Rings over memory with any content: what is fetched lies in it, and what is given
//! back was fetched. The fuzz target's question, small enough for Miri.

use super::*;
use crate::memory::Region;

/// Where memory begins, in guest and user addresses.
const BASE: u64 = 1 << 32;
const BYTES: u64 = 16 << 10;

/// Numbers that look like chance.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Descriptors of which many make sense, then anything.
fn fill(memory: &GuestMemory, numbers: &mut Numbers, entries: u64, packed: bool) {
    let put = |address: u64, bytes: &[u8]| {
        memory.at(address, bytes.len()).unwrap().write(bytes);
    };
    // Behind its tables, memory of a guest is mostly zeros.
    for number in 0..entries {
        let chance = numbers.next();
        let address = match chance % 8 {
            0 => chance,
            1 => BASE + BYTES - 8,
            2 => BASE,
            _ => BASE + 12 * 1024 + chance % 2048,
        };
        let length = if chance >> 8 & 7 == 0 { chance as u32 } else { (chance >> 16) as u32 % 512 };
        let flags = (numbers.next() % 8) as u16;
        let (third, fourth) = if packed {
            (number as u16, flags | flags::AVAIL)
        } else {
            (flags, (numbers.next() % (entries + 1)) as u16)
        };
        let mut descriptor = [0; DESCRIPTOR];
        descriptor[..8].copy_from_slice(&address.to_le_bytes());
        descriptor[8..12].copy_from_slice(&length.to_le_bytes());
        descriptor[12..14].copy_from_slice(&third.to_le_bytes());
        descriptor[14..].copy_from_slice(&fourth.to_le_bytes());
        put(BASE + number * 16, &descriptor);
    }
    if !packed {
        put(BASE + 4096, &[0, 0, entries as u8, 0]);
        for number in 0..entries {
            let head = (numbers.next() % (entries + u64::from(number == 7))) as u16;
            put(BASE + 4100 + number * 2, &head.to_le_bytes());
        }
    }
}

#[test]
fn what_is_fetched_from_any_ring_lies_in_its_memory() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut chains_seen, mut malformed) = (0, 0);
    for round in 0..if cfg!(miri) { 32 } else { 4096 } {
        let mut memory = GuestMemory::new();
        memory.add(Region::anonymous(BYTES, BASE)).unwrap();
        let entries = 1 << (round / 8 % 5);
        let packed = round % 2 == 1;
        fill(&memory, &mut numbers, entries, packed);
        let setup = Setup {
            size: entries as u16,
            packed,
            event_index: round & 2 != 0,
            indirect: round & 4 != 0,
            descriptors: BASE,
            driver: BASE + 4096,
            device: BASE + 8192,
            base: if packed { 0x8000_8000 } else { 0 },
        };
        let ring = Ring::new(&memory, &setup).unwrap();
        let direction = if round % 3 == 0 { Direction::Receive } else { Direction::Transmit };
        for _ in 0..3 {
            let mut chains = Chains::new();
            ring.fetch(&memory, direction, 32, &mut chains);
            for number in 0..chains.len() {
                let chain = chains.chains[number];
                chains_seen += 1;
                malformed += usize::from(chain.is_malformed());
                let mut bytes = 0;
                for segment in chains.segments(number) {
                    let address = memory.guest_address(*segment).unwrap();
                    assert!(address >= BASE && address + segment.len() as u64 <= BASE + BYTES);
                    bytes += segment.len();
                    if direction == Direction::Receive {
                        segment.write(&[0x5a; 64]);
                    } else {
                        segment.bytes().copy_out(&mut [0; 64]);
                    }
                }
                assert_eq!(bytes, chain.bytes as usize);
            }
            let written: Vec<u32> = chains.chains.iter().map(|chain| chain.bytes).collect();
            ring.complete(&chains.chains, &written);
            ring.ask_for_kicks(round & 16 != 0);
            let _ = ring.has_work();
            if let Some(fault) = chains.fault {
                ring.stop(fault);
            }
        }
    }
    // It was no walk through empty rings.
    assert!(chains_seen > malformed && malformed > 0, "{chains_seen} chains, {malformed} bad");
}
