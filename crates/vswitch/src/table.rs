//! The MAC table: behind which port a station is, in which VLAN.
//!
//! All polling threads read and write it at once, without locks: an entry is two
//! words, a key and a value. A key is set once, in an empty entry, before its
//! value; to take an entry away, the value goes before the key. So whoever reads
//! key, value and key again, and finds the same key, has that key's value.
//!
//! A guest that makes up stations fills its own share and no one else's: the
//! entries of a port are counted, and so are the ways of a set.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A station: VLAN in the upper 16 bits, address in the lower 48.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Station(u64);

impl Station {
    /// The station of this address in `vlan`.
    #[inline]
    #[must_use]
    pub(crate) fn new(vlan: u16, mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        Self(u64::from(vlan) << 48 | mac)
    }

    /// The VLAN; 0 without one.
    #[must_use]
    pub(crate) fn vlan(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The address.
    #[must_use]
    pub(crate) fn mac(self) -> [u8; 6] {
        let [_, _, mac @ ..] = self.0.to_be_bytes();
        mac
    }

    /// True if frames to it go to many.
    #[inline]
    #[must_use]
    pub(crate) fn is_group(self) -> bool {
        self.0 >> 40 & 1 != 0
    }
}

/// A station's entry: the port that it is behind, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FdbEntry {
    /// Who.
    pub(crate) station: Station,
    /// Behind which port.
    pub(crate) port: u16,
    /// Seconds since it was heard; none for one that was set by hand.
    pub(crate) age_s: Option<u32>,
    /// The port that it moves to and fro with.
    pub(crate) rival: Option<u16>,
}

pub(crate) const WAYS: usize = 16;
/// Entries of all ports.
pub(crate) const CAPACITY: usize = 65536;
/// Stations that one port may have: a bridge in a guest has some, an attacker all.
pub(crate) const PORT_CAPACITY: u32 = 4096;
/// Ways of a set that one port may have.
const PORT_WAYS: usize = 8;

/// In a value: present. In a key it marks the group bit's place as taken.
const PRESENT: u64 = 1 << 63;
const STATIC: u64 = 1 << 62;
const PORT_SHIFT: u32 = 32;
/// Ports that it can tell apart.
pub(crate) const TABLE_PORTS: usize = 0x7e;
/// In a value: the port that it was behind before, plus one.
const BEFORE_SHIFT: u32 = 48;
const BEFORE: u64 = 0x7f << BEFORE_SHIFT;
/// In a value: how often it came back to the port before that, no more than counts here.
const RETURNS_SHIFT: u32 = 55;
const RETURNS: u64 = 7 << RETURNS_SHIFT;
/// A VM that moves is at its new port once, or twice if it moves back. One that came back
/// this often is two VMs.
const TO_AND_FRO: u64 = 4;
/// In a key: taken. VLANs have 12 bits.
const TAKEN: u64 = 1 << 63;

#[derive(Debug, Default)]
struct FdbSlot {
    key: AtomicU64,
    /// Present, static, returns, port before, port, second at which it was heard.
    value: AtomicU64,
}

/// The table.
#[derive(Debug)]
pub(crate) struct MacTable {
    ways: Vec<FdbSlot>,
    hasher: u64,
    /// Entries of each port.
    pub(crate) held: Vec<AtomicU32>,
    /// Seconds since the switch began.
    now_s: AtomicU32,
    /// How often a station was seen to move to and fro.
    rivalries: AtomicU32,
}

/// The result of learning a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LearnOutcome {
    /// It was known there.
    Known,
    /// It is new, or has moved.
    New,
    /// It belongs to another port by hand.
    Refused,
    /// There is no room for it.
    Full,
}

/// The result of setting a station by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StaticOutcome {
    /// It was so before.
    Known,
    /// It is now.
    New,
    /// There is no room for it.
    Full,
}

impl MacTable {
    /// An empty one for `ports` ports.
    #[must_use]
    pub(crate) fn new(ports: usize) -> Self {
        Self::with_capacity(ports, CAPACITY)
    }

    /// One with this many entries, a multiple of [`WAYS`].
    #[must_use]
    pub(crate) fn with_capacity(ports: usize, capacity: usize) -> Self {
        Self {
            ways: (0..capacity).map(|_| FdbSlot::default()).collect(),
            // A secret of this process: nobody outside can choose stations of one set.
            hasher: RandomState::new().hash_one(0_u8) | 1,
            held: (0..ports).map(|_| AtomicU32::new(0)).collect(),
            now_s: AtomicU32::new(0),
            rivalries: AtomicU32::new(0),
        }
    }

    /// Says what time it is.
    pub(crate) fn set_now(&self, now_s: u32) {
        self.now_s.store(now_s, Ordering::Relaxed);
    }

    #[inline]
    fn set(&self, station: Station) -> &[FdbSlot] {
        let mixed = (station.0 ^ self.hasher.rotate_left(32)).wrapping_mul(self.hasher);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (mixed >> 40) as usize % (self.ways.len() / WAYS);
        &self.ways[set * WAYS..][..WAYS]
    }

    /// The entry of `station` and its value.
    #[inline]
    fn find(&self, station: Station) -> Option<(&FdbSlot, u64)> {
        let key = station.0 | TAKEN;
        self.set(station).iter().find_map(|way| {
            if way.key.load(Ordering::Acquire) != key {
                return None;
            }
            let value = way.value.load(Ordering::Acquire);
            let still = way.key.load(Ordering::Relaxed) == key;
            (still && value & PRESENT != 0).then_some((way, value))
        })
    }

    /// The port behind which `station` is.
    #[inline]
    #[must_use]
    pub(crate) fn port(&self, station: Station) -> Option<u16> {
        self.find(station).map(|(_, value)| (value >> PORT_SHIFT) as u16)
    }

    /// `station` was heard behind `port`.
    pub(crate) fn learn(&self, station: Station, port: u16) -> LearnOutcome {
        let now_s = self.now_s.load(Ordering::Relaxed);
        let heard = PRESENT | u64::from(port) << PORT_SHIFT | u64::from(now_s);
        if let Some((way, value)) = self.find(station) {
            let before = (value >> PORT_SHIFT) as u16;
            if value & STATIC != 0 {
                return if before == port { LearnOutcome::Known } else { LearnOutcome::Refused };
            }
            if value & !(BEFORE | RETURNS) == heard {
                return LearnOutcome::Known;
            }
            if before != port && !self.take_share(port) {
                return LearnOutcome::Full;
            }
            let history =
                if before == port { value & (BEFORE | RETURNS) } else { moved(value, port) };
            let heard = heard | history;
            // Whoever else moves it at the same time is as right as we are.
            let swapped =
                way.value.compare_exchange(value, heard, Ordering::AcqRel, Ordering::Relaxed);
            if before != port {
                if swapped.is_ok() && history & RETURNS == TO_AND_FRO << RETURNS_SHIFT {
                    self.rivalries.fetch_add(1, Ordering::Relaxed);
                }
                self.give_share(if swapped.is_ok() { before } else { port });
                return LearnOutcome::New;
            }
            return LearnOutcome::Known;
        }
        self.insert(station, port, heard)
    }

    fn insert(&self, station: Station, port: u16, value: u64) -> LearnOutcome {
        let set = self.set(station);
        let of_port = |way: &&FdbSlot| {
            let value = way.value.load(Ordering::Relaxed);
            value & PRESENT != 0 && (value >> PORT_SHIFT) as u16 == port
        };
        let by_hand = value & STATIC != 0;
        if !by_hand && set.iter().filter(of_port).count() >= PORT_WAYS || !self.take_share(port) {
            return LearnOutcome::Full;
        }
        for way in set {
            let key = station.0 | TAKEN;
            if way.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                way.value.store(value, Ordering::Release);
                return LearnOutcome::New;
            }
        }
        self.give_share(port);
        LearnOutcome::Full
    }

    fn take_share(&self, port: u16) -> bool {
        let held = &self.held[usize::from(port)];
        let taken = held.fetch_add(1, Ordering::Relaxed) < PORT_CAPACITY;
        if !taken {
            held.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    fn give_share(&self, port: u16) {
        self.held[usize::from(port)].fetch_sub(1, Ordering::Relaxed);
    }

    /// The port behind which `station` was set by hand.
    pub(crate) fn set_by_hand(&self, station: Station) -> Option<u16> {
        let (_, value) = self.find(station).filter(|(_, value)| value & STATIC != 0)?;
        Some((value >> PORT_SHIFT) as u16)
    }

    /// Sets `station` behind `port` by hand: it neither ages nor moves. What was learned of
    /// it is forgotten; whether another port has it by hand, the caller has asked.
    ///
    /// Only the control thread adds by hand and takes away.
    pub(crate) fn set_static(&self, station: Station, port: u16) -> StaticOutcome {
        if self.set_by_hand(station) == Some(port) {
            return StaticOutcome::Known;
        }
        self.forget_station(station);
        let value = PRESENT | STATIC | u64::from(port) << PORT_SHIFT;
        match self.insert(station, port, value) {
            LearnOutcome::New => StaticOutcome::New,
            _ => StaticOutcome::Full,
        }
    }

    /// Takes away one station, however it is known.
    pub(crate) fn forget_station(&self, station: Station) {
        self.forget_in(self.set(station), |known, _, _| known == station);
    }

    /// Takes away what was not heard for `limit_s` seconds.
    pub(crate) fn age(&self, limit_s: u32) {
        self.forget(|_, _, age_s| age_s.is_some_and(|age_s| age_s >= limit_s));
    }

    /// Takes away all that is behind `port`.
    pub(crate) fn forget_port(&self, port: u16) {
        self.forget(|_, known, _| known == port);
        self.forget_moves(port);
    }

    /// Takes away what was learned behind `port`, and keeps what was set by hand.
    pub(crate) fn forget_learned(&self, port: u16) {
        self.forget(|_, known, age_s| known == port && age_s.is_some());
        self.forget_moves(port);
    }

    /// No station comes from `port` any more.
    fn forget_moves(&self, port: u16) {
        for way in &self.ways {
            let before = (way.value.load(Ordering::Relaxed) & BEFORE) >> BEFORE_SHIFT;
            if before == u64::from(port) + 1 {
                // Of whichever station is there by now: it has to come back again.
                way.value.fetch_and(!(BEFORE | RETURNS), Ordering::AcqRel);
            }
        }
    }

    /// Takes one return from each station's, so that only those count which follow soon.
    pub(crate) fn calm(&self) {
        for way in &self.ways {
            let value = way.value.load(Ordering::Relaxed);
            if value & RETURNS != 0 {
                let calmer = value - (1 << RETURNS_SHIFT);
                // One that is heard at this moment keeps what it has.
                let _ =
                    way.value.compare_exchange(value, calmer, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    fn forget(&self, unwanted: impl Fn(Station, u16, Option<u32>) -> bool) {
        self.forget_in(&self.ways, unwanted);
    }

    fn forget_in(&self, ways: &[FdbSlot], unwanted: impl Fn(Station, u16, Option<u32>) -> bool) {
        for way in ways {
            let Some(entry) = self.read(way) else { continue };
            if !unwanted(entry.station, entry.port, entry.age_s) {
                continue;
            }
            let value = way.value.swap(0, Ordering::AcqRel);
            if value & PRESENT != 0 {
                self.give_share((value >> PORT_SHIFT) as u16);
            }
            way.key.store(0, Ordering::Release);
        }
    }

    fn read(&self, way: &FdbSlot) -> Option<FdbEntry> {
        let key = way.key.load(Ordering::Acquire);
        let value = way.value.load(Ordering::Acquire);
        if key & TAKEN == 0 || value & PRESENT == 0 {
            return None;
        }
        let age_s = self.now_s.load(Ordering::Relaxed).saturating_sub(value as u32);
        Some(FdbEntry {
            station: Station(key & !TAKEN),
            port: (value >> PORT_SHIFT) as u16,
            age_s: (value & STATIC == 0).then_some(age_s),
            rival: rival(value),
        })
    }

    /// Changes when one more station was seen to move to and fro.
    #[must_use]
    pub(crate) fn rivalries(&self) -> u32 {
        self.rivalries.load(Ordering::Relaxed)
    }

    /// All that it knows, in order of stations.
    #[must_use]
    pub(crate) fn entries(&self) -> Vec<FdbEntry> {
        let mut entries: Vec<FdbEntry> =
            self.ways.iter().filter_map(|way| self.read(way)).collect();
        entries.sort_by_key(|entry| entry.station);
        entries
    }
}

/// What is known of a station's moves once it moves from where `value` says to `port`.
#[cold]
fn moved(value: u64, port: u16) -> u64 {
    let from = value >> PORT_SHIFT & 0xffff;
    let came_back = (value & BEFORE) >> BEFORE_SHIFT == u64::from(port) + 1;
    let returns = (value & RETURNS) >> RETURNS_SHIFT;
    let returns = if came_back { (returns + 1).min(RETURNS >> RETURNS_SHIFT) } else { 0 };
    (from + 1) << BEFORE_SHIFT | returns << RETURNS_SHIFT
}

/// The port that a station of this value moves to and fro with.
fn rival(value: u64) -> Option<u16> {
    let before = (value & BEFORE) >> BEFORE_SHIFT;
    let returns = (value & RETURNS) >> RETURNS_SHIFT;
    (returns >= TO_AND_FRO).then(|| before.checked_sub(1)).flatten().map(|port| port as u16)
}
