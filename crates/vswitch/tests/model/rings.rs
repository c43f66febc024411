//! The switch's rings beside a driver, in every order in which their accesses can meet:
//! what is in buffers and entries is seen whole and in order, and neither waits for a kick or
//! a call that never comes (the model checker finds threads that all wait).
//!
//! The device's side is `src/ring`, the switch's own. The driver is written here after the
//! specification, and as demanding as it allows: it asks for calls only when it has
//! nothing left to do, and waits for the one.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::check;
use crate::memory::{Area, BUFFER, BUFFERS, DESCRIPTORS, DEVICE, DRIVER, Entries, GuestMemory};
use crate::ring::{Chains, Direction, Ring, Setup, flags};
use crate::sync::{Ordering, fence};

/// Entries of each ring.
const SIZE: u16 = 2;
/// Chains that are made available: more than the ring holds.
const CHAINS: u32 = 3;
/// Of a split ring: all indices, so that they wrap on the way.
const FIRST: u16 = u16::MAX;
/// Offsets in a split ring's areas.
const INDEX: usize = 2;
const ENTRIES: usize = 4;
/// Of a packed ring's event areas: flags, and their values.
const EVENT_FLAGS: usize = 2;
const ON: u16 = 0;
const OFF: u16 = 1;
const AT: u16 = 2;

/// An eventfd.
#[derive(Default)]
struct Event {
    count: Mutex<u64>,
    rung: Condvar,
}

impl Event {
    fn ring(&self) {
        *self.count.lock().unwrap() += 1;
        self.rung.notify_one();
    }

    fn wait(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.rung.wait(count).unwrap();
        }
        *count = 0;
    }
}

#[derive(Debug, Clone, Copy)]
struct Kind {
    packed: bool,
    event_index: bool,
    direction: Direction,
}

/// What one chain carries: its number, from 1 on.
fn content(chain: u32) -> u32 {
    chain + 1
}

/// A driver: chain n is in slot and buffer n modulo the ring's size.
struct Driver {
    kind: Kind,
    memory: Arc<GuestMemory>,
    descriptors: Entries<16>,
    driver: Area,
    device: Area,
    heads: Entries<2>,
    used: Entries<8>,
    posted: u32,
    taken: u32,
}

impl Driver {
    fn new(kind: Kind, memory: Arc<GuestMemory>) -> Self {
        let area = |address| Area::new(&memory, address, 0, 1).unwrap();
        let (descriptors, driver, device) = (area(DESCRIPTORS), area(DRIVER), area(DEVICE));
        if !kind.packed {
            driver.store_u16(INDEX, FIRST, Ordering::Relaxed);
            device.store_u16(INDEX, FIRST, Ordering::Relaxed);
        }
        Self {
            kind,
            descriptors: Entries::descriptors(descriptors, SIZE.into()),
            heads: Entries::heads(driver.clone(), ENTRIES, SIZE.into()),
            used: Entries::used(device.clone(), ENTRIES, SIZE.into()),
            driver,
            device,
            memory,
            posted: 0,
            taken: 0,
        }
    }

    /// The index in a split ring that goes with so many chains.
    fn index(count: u32) -> u16 {
        FIRST.wrapping_add(count as u16)
    }

    /// The place in a packed ring that goes with so many chains, and the round there.
    fn place(count: u32) -> (usize, bool) {
        let size = u32::from(SIZE);
        ((count % size) as usize, (count / size).is_multiple_of(2))
    }

    /// Makes the next chain available. Returns whether to kick.
    fn post(&mut self) -> bool {
        let slot = self.posted % u32::from(SIZE);
        let address = BUFFERS + u64::from(slot * BUFFER);
        let buffer = self.memory.at(address, BUFFER as usize).unwrap();
        let (sent, write) = match self.kind.direction {
            Direction::Transmit => (content(self.posted), 0),
            Direction::Receive => (0, flags::WRITE),
        };
        buffer.write(sent);
        let before = self.posted;
        self.posted += 1;
        if self.kind.packed {
            let (place, round) = Self::place(before);
            self.descriptors.store_first(place, address);
            let turn = if round { flags::AVAIL } else { flags::USED };
            let word = u64::from(BUFFER) | u64::from(slot) << 32 | u64::from(turn | write) << 48;
            self.descriptors.store_second(place, word, Ordering::Release);
            fence(Ordering::SeqCst);
            return self.device.load_u16(EVENT_FLAGS, Ordering::Relaxed) != OFF;
        }
        let word = u64::from(BUFFER) | u64::from(write) << 32;
        self.descriptors.store_first(slot as usize, address);
        self.descriptors.store_second(slot as usize, word, Ordering::Relaxed);
        let (old, new) = (Self::index(before), Self::index(self.posted));
        self.heads.store(usize::from(old % SIZE), slot as u16);
        self.driver.store_u16(INDEX, new, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.kind.event_index {
            let event = self.device.load_u16(ENTRIES + usize::from(SIZE) * 8, Ordering::Relaxed);
            event == old
        } else {
            self.device.load_u16(0, Ordering::Relaxed) & 1 == 0
        }
    }

    /// Takes the next chain that the device is done with, if there is one.
    fn take(&mut self) -> bool {
        let slot = self.taken % u32::from(SIZE);
        let written = match self.kind.direction {
            Direction::Transmit => 0,
            Direction::Receive => BUFFER,
        };
        let entry = if self.kind.packed {
            let (place, round) = Self::place(self.taken);
            let word = self.descriptors.second_word(place, Ordering::Acquire);
            let turn = (word >> 48) as u16 & (flags::AVAIL | flags::USED);
            if turn != if round { flags::AVAIL | flags::USED } else { 0 } {
                return false;
            }
            [(word >> 32) as u16 as u32, word as u32]
        } else {
            let index = Self::index(self.taken);
            if self.device.load_u16(INDEX, Ordering::Acquire) == index {
                return false;
            }
            self.used.load(usize::from(index % SIZE))
        };
        assert_eq!(entry, [slot, written], "{:?}: chain {}", self.kind, self.taken);
        if self.kind.direction == Direction::Receive {
            let address = BUFFERS + u64::from(slot * BUFFER);
            let buffer = self.memory.at(address, BUFFER as usize).unwrap();
            assert_eq!(buffer.read(), content(self.taken), "{:?}", self.kind);
        }
        self.taken += 1;
        true
    }

    /// Asks for a call by the next chain that the device is done with, or for none.
    fn ask_for_calls(&self, wanted: bool) {
        match (self.kind.packed, self.kind.event_index) {
            (true, true) if wanted => {
                let (place, round) = Self::place(self.taken);
                let event = place as u16 | u16::from(round) << 15;
                self.driver.store_u16(0, event, Ordering::Relaxed);
                fence(Ordering::Release);
                self.driver.store_u16(EVENT_FLAGS, AT, Ordering::Relaxed);
            }
            (true, _) => {
                let flags = if wanted { ON } else { OFF };
                self.driver.store_u16(EVENT_FLAGS, flags, Ordering::Relaxed);
            }
            (false, true) => {
                // An old position is as good as a refusal.
                if wanted {
                    let event = Self::index(self.taken);
                    let offset = ENTRIES + usize::from(SIZE) * 2;
                    self.driver.store_u16(offset, event, Ordering::Relaxed);
                }
            }
            (false, false) => self.driver.store_u16(0, u16::from(!wanted), Ordering::Relaxed),
        }
        fence(Ordering::SeqCst);
    }

    /// Makes all chains available, and takes them back.
    fn run(mut self, kick: &Event, call: &Event) {
        self.ask_for_calls(false);
        while self.taken < CHAINS {
            if self.posted < CHAINS && self.posted - self.taken < u32::from(SIZE) {
                if self.post() {
                    kick.ring();
                }
            } else if !self.take() {
                self.ask_for_calls(true);
                if !self.take() {
                    call.wait();
                }
                self.ask_for_calls(false);
            }
        }
    }
}

/// The device, as a polling thread goes about one ring (`worker.rs`).
fn serve(ring: &Ring, kind: Kind, memory: &GuestMemory, kick: &Event, call: &Event) {
    ring.ask_for_kicks(false);
    let mut done = 0;
    while done < CHAINS {
        let mut chains = Chains::new();
        ring.fetch(memory, kind.direction, usize::from(SIZE), &mut chains);
        assert_eq!(chains.fault, None, "{kind:?}");
        if chains.is_empty() {
            ring.ask_for_kicks(true);
            if !ring.has_work() {
                kick.wait();
            }
            ring.ask_for_kicks(false);
            continue;
        }
        let mut written = Vec::new();
        for chain in &chains.chains {
            let buffer = chain.only().expect("a sound chain of one buffer");
            match kind.direction {
                Direction::Transmit => assert_eq!(buffer.read(), content(done), "{kind:?}"),
                Direction::Receive => buffer.write(content(done)),
            }
            written.push(if kind.direction == Direction::Receive { BUFFER } else { 0 });
            done += 1;
        }
        if ring.complete(&chains.chains, &written) {
            call.ring();
        }
    }
}

fn rings(packed: bool, event_index: bool, direction: Direction) {
    let kind = Kind { packed, event_index, direction };
    check(2, move || {
        let memory = Arc::new(GuestMemory::with_buffers(SIZE.into()));
        let driver = Driver::new(kind, Arc::clone(&memory));
        let setup = Setup {
            size: SIZE,
            packed,
            event_index,
            indirect: false,
            descriptors: DESCRIPTORS,
            driver: DRIVER,
            device: DEVICE,
            // A packed ring's first round has the counter 1.
            base: 1 << 15,
        };
        let ring = Ring::new(&memory, &setup).unwrap();
        let (kick, call) = (Arc::new(Event::default()), Arc::new(Event::default()));
        let drives = {
            let (kick, call) = (Arc::clone(&kick), Arc::clone(&call));
            thread::spawn(move || driver.run(&kick, &call))
        };
        serve(&ring, kind, &memory, &kick, &call);
        drives.join().unwrap();
    });
}

#[test]
fn split_rings_that_send_lose_no_kick_and_no_call() {
    rings(false, false, Direction::Transmit);
    rings(false, true, Direction::Transmit);
}

#[test]
fn split_rings_that_receive_lose_no_kick_and_no_call() {
    rings(false, false, Direction::Receive);
    rings(false, true, Direction::Receive);
}

#[test]
fn packed_rings_that_send_lose_no_kick_and_no_call() {
    rings(true, false, Direction::Transmit);
    rings(true, true, Direction::Transmit);
}

#[test]
fn packed_rings_that_receive_lose_no_kick_and_no_call() {
    rings(true, false, Direction::Receive);
    rings(true, true, Direction::Receive);
}
