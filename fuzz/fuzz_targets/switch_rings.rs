//! Any bytes as the rings and descriptors of a guest, while the guest goes on to change
//! them: what is fetched lies in its memory, and what is given back was fetched.

#![no_main]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use vswitch::memory::{GuestMemory, Region};
use vswitch::ring::{Chains, Direction, Ring, Setup};

/// Where memory begins, in guest and user addresses.
const BASE: u64 = 1 << 32;
/// Bytes of memory: the rings' parts and what descriptors may point to.
const BYTES: u64 = 16 << 10;

/// What the other thread writes, and where: it never stops.
static CHANGE: AtomicU64 = AtomicU64::new(0);

fn memory() -> &'static GuestMemory {
    static MEMORY: OnceLock<GuestMemory> = OnceLock::new();
    MEMORY.get_or_init(|| {
        let (region, _file) = Region::create(BYTES, BASE).expect("memory");
        let mut memory = GuestMemory::new();
        memory.add(region).expect("the first one");
        let other = memory.clone();
        std::thread::spawn(move || {
            let mut round = 0_u64;
            loop {
                let change = CHANGE.load(Ordering::Relaxed);
                round = round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(change | 1);
                let place = BASE + (round >> 40) % BYTES;
                other.at(place, 1).expect("inside").write(&[(round >> 32) as u8]);
                // One input has some thousand changes, and the other thread its turn.
                if round & 0xff == 0 {
                    std::thread::yield_now();
                }
            }
        });
        memory
    })
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, size, base_low, base_high, content @ ..] = bytes else { return };
    let memory = memory();
    let whole = memory.at(BASE, BYTES as usize).expect("all of it");
    whole.write(&[0; BYTES as usize]);
    whole.write(content);
    CHANGE.store(u64::from(*size) << 8 | u64::from(*kind), Ordering::Relaxed);
    let setup = Setup {
        size: if kind & 1 == 0 { 1 << (size % 8) } else { u16::from(*size).max(1) },
        packed: kind & 1 != 0,
        event_index: kind & 2 != 0,
        indirect: kind & 4 != 0,
        descriptors: BASE,
        driver: BASE + 4096,
        device: BASE + 8192,
        base: u32::from(u16::from_le_bytes([*base_low, *base_high])),
    };
    let Ok(ring) = Ring::new(memory, &setup) else { return };
    let direction = if kind & 8 == 0 { Direction::Transmit } else { Direction::Receive };
    for _ in 0..4 {
        let mut chains = Chains::new();
        ring.fetch(memory, direction, 32, &mut chains);
        assert!(chains.len() <= 32);
        for number in 0..chains.len() {
            let segments = chains.segments(number);
            let total: u64 = segments.iter().map(|segment| segment.len() as u64).sum();
            assert_eq!(total, u64::from(chains.chains[number].bytes));
            for segment in segments {
                let address = memory.guest_address(*segment).expect("of this memory");
                assert!(address + segment.len() as u64 <= BASE + BYTES);
                if direction == Direction::Receive {
                    segment.write(&[0x5a; 64]);
                } else {
                    segment.bytes().copy_out(&mut [0; 64]);
                }
            }
        }
        let written: Vec<u32> = chains.chains.iter().map(|chain| chain.bytes).collect();
        ring.complete(&chains.chains, &written);
        ring.ask_for_kicks(kind & 16 != 0);
        let _ = ring.has_work();
        if let Some(fault) = chains.fault {
            ring.stop(fault);
        }
    }
});
