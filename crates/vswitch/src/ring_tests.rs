//! Rings over memory with any content: what is fetched lies in it, and what is given
//! back was fetched. The fuzz target's question, small enough for Miri. In a file of its
//! own, as `ring` is also built with the atomics of a model checker (`tests/model`).

use crate::memory::{GuestMemory, Region};
use crate::ring::*;

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
        let (address, length) = if flags & flags::INDIRECT != 0 && chance >> 40 & 3 != 0 {
            // The ring's own descriptors are a table, too.
            (BASE + chance % entries * 16, 16 * (1 + (chance >> 32) as u32 % 3))
        } else {
            (address, length)
        };
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

/// A guest's memory at one time, and what of it a ring's chains are by the letter of the
/// specification: read slowly, one descriptor after the other.
struct Reference {
    bytes: Vec<u8>,
    setup: Setup,
    direction: Direction,
}

impl Reference {
    fn of(memory: &GuestMemory, setup: Setup, direction: Direction) -> Self {
        let mut bytes = vec![0; BYTES as usize];
        memory.at(BASE, bytes.len()).unwrap().bytes().copy_out(&mut bytes);
        Self { bytes, setup, direction }
    }

    fn number(&self, address: u64, bytes: usize) -> u64 {
        let at = (address - BASE) as usize;
        self.bytes[at..at + bytes].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))
    }

    /// Address, length, flags, and the next one's index or the buffer's id.
    fn descriptor(&self, at: u64) -> (u64, u64, u16, u16) {
        let [third, fourth] = [12, 14].map(|offset| self.number(at + offset, 2) as u16);
        let (flags, link) = if self.setup.packed { (fourth, third) } else { (third, fourth) };
        (self.number(at, 8), self.number(at + 8, 4), flags, link)
    }

    fn is_inside(address: u64, length: u64) -> bool {
        (BASE..=BASE + BYTES).contains(&address) && length <= BASE + BYTES - address
    }

    /// Takes a descriptor in that is no table; false if it makes no sense.
    fn take(&self, segments: &mut Vec<(u64, u64)>, descriptor: (u64, u64, u16, u16)) -> bool {
        let (address, length, flags, _) = descriptor;
        segments.push((address, length));
        let writes = self.direction == Direction::Receive;
        let all: u64 = segments.iter().map(|segment| segment.1).sum();
        length > 0
            && (flags & flags::WRITE != 0) == writes
            && Self::is_inside(address, length)
            && (writes || all <= MAX_CHAIN_BYTES)
    }

    /// Takes the descriptors of a table in, of which `most` may be used.
    fn take_table(&self, segments: &mut Vec<(u64, u64)>, table: (u64, u64), most: u16) -> bool {
        let (address, length) = table;
        if length == 0 || length % 16 != 0 || !Self::is_inside(address, length) {
            return false;
        }
        let mut index = 0;
        for _ in 0..most {
            let descriptor = self.descriptor(address + index * 16);
            if descriptor.2 & flags::INDIRECT != 0 || !self.take(segments, descriptor) {
                return false;
            }
            let (last, next) = if self.setup.packed {
                (index + 1 == length / 16, index + 1)
            } else {
                (descriptor.2 & flags::NEXT == 0, descriptor.3.into())
            };
            if last {
                return true;
            }
            if next >= length / 16 {
                return false;
            }
            index = next;
        }
        false
    }

    /// The segments of the chain that begins at a descriptor's index, if it makes sense.
    fn chain(&self, head: u16) -> Option<Vec<(u64, u64)>> {
        let (size, packed) = (self.setup.size, self.setup.packed);
        let (mut segments, mut index) = (Vec::new(), head);
        for used in 0..size {
            let descriptor = self.descriptor(BASE + u64::from(index) * 16);
            let (address, length, flags, link) = descriptor;
            if flags & flags::INDIRECT != 0 {
                // In a packed ring, a table is the whole chain.
                let alone = flags & flags::NEXT == 0 && !(packed && used > 0);
                let sound = self.setup.indirect
                    && alone
                    && self.take_table(&mut segments, (address, length), size - used);
                return sound.then_some(segments);
            }
            if !self.take(&mut segments, descriptor) {
                return None;
            }
            if flags & flags::NEXT == 0 {
                return Some(segments);
            }
            index = if packed { (index + 1) % size } else { link };
            if index >= size {
                return None;
            }
        }
        None
    }
}

#[test]
fn what_is_fetched_from_any_ring_lies_in_its_memory() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut chains_seen, mut malformed, mut several, mut tables) = (0, 0, 0, 0);
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
            let reference = Reference::of(&memory, setup, direction);
            let mut place = ring.base() as u16;
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
                let head = if packed {
                    place & 0x7fff
                } else {
                    let entry = u64::from(place & (setup.size - 1));
                    reference.number(BASE + 4100 + entry * 2, 2) as u16
                };
                place = if packed {
                    (place & 0x7fff).wrapping_add(chain.slots) % setup.size
                } else {
                    place.wrapping_add(1)
                };
                let segments = chains
                    .segments(number)
                    .iter()
                    .map(|segment| (memory.guest_address(*segment).unwrap(), segment.len() as u64));
                let segments: Vec<_> = segments.collect();
                several += usize::from(segments.len() > 1);
                let (_, _, flags, _) = reference.descriptor(BASE + u64::from(head) * 16);
                tables += usize::from(flags & flags::INDIRECT != 0 && segments.len() == 2);
                assert_eq!(segments, reference.chain(head).unwrap_or_default());
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
    // Tables that make sense are rarer than Miri has rounds.
    let all = several > tables && tables > 0;
    assert!(all || cfg!(miri), "{several} of several segments, {tables} of tables");
}
