//! Where a packed ring stands, by its descriptors alone.
//!
//! A backend that ends says where it has come to (`GET_VRING_BASE`). Of one that was killed a
//! frontend knows where it began: QEMU reads the place from a split ring, whose used index is
//! in the guest's memory, and "for packed ring, we don't have a reference like used index"
//! (`virtio_queue_packed_restore_last_avail_idx`, `hw/virtio/virtio.c`). It is there all the
//! same: each round writes each descriptor's flag of availability once, so that the driver is
//! where that flag changes, and all is used in order, so that the device is behind the last
//! chain that is marked as used. Of a used chain only the first descriptor is marked; that it
//! had more is kept in its NEXT flag, which is reserved in used descriptors and ignored by
//! drivers (VIRTIO 1.2, 2.8.6).

use super::flags;
use super::packed_position::{PackedPosition, TURN};

/// The flags of all descriptors of a ring, at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingFlags<'f> {
    flags: &'f [u16],
    /// Where the driver makes the next descriptor available. Counted from it, the oldest
    /// descriptor is the first and the newest the last.
    driver: PackedPosition,
}

/// What there is to do about a ring that begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResumeState {
    /// What comes next.
    pub(super) position: PackedPosition,
    /// The first chain of a burst that was being given back: those behind it are marked as
    /// used, and it is not, so that its driver would wait for it for ever. It lies there and
    /// has so many descriptors.
    pub(super) unmarked: Option<(PackedPosition, u16)>,
}

impl<'f> RingFlags<'f> {
    /// None if no driver that goes round in order leaves a ring like that: it is writing at
    /// this moment, or hostile.
    pub(super) fn new(flags: &'f [u16]) -> Option<Self> {
        let is_set = |flags: &u16| flags & flags::AVAIL != 0;
        let first = is_set(flags.first()?);
        let mut changes =
            (1..flags.len()).filter(|&at| is_set(&flags[at]) != is_set(&flags[at - 1]));
        let driver = match changes.next() {
            Some(index) => PackedPosition { index: index as u16, wrap: first },
            None => PackedPosition { index: 0, wrap: !first },
        };
        changes.next().is_none().then_some(Self { flags, driver })
    }

    /// Where the ring goes on. `told` is where the frontend says, which holds if the ring may
    /// be like that.
    pub(super) fn standing(&self, told: PackedPosition) -> ResumeState {
        let newest = (0..self.flags.len()).rev().find(|&age| self.is_used(age));
        let next = newest.map_or(0, |newest| self.end(newest));
        // Another backend does not keep that a chain had more descriptors: its word is needed.
        // That of a frontend whose backend was killed is where the ring began.
        let began = told == PackedPosition { index: 0, wrap: true };
        let behind = newest.map_or(0, |newest| newest + 1);
        let may_be = |age: usize| age == next || !began && self.is_rest(behind..age);
        if self.ages(told).into_iter().flatten().any(may_be) {
            return ResumeState { position: told, unmarked: None };
        }
        let unmarked = newest.and_then(|newest| self.unmarked(newest));
        let unmarked = unmarked.map(|(age, slots)| (self.position(age), slots as u16));
        ResumeState { position: self.position(next), unmarked }
    }

    fn get(&self, age: usize) -> u16 {
        self.flags[(usize::from(self.driver.index) + age) % self.flags.len()]
    }

    /// The position of the descriptor that is `age`th, or would be behind the newest.
    fn position(&self, age: usize) -> PackedPosition {
        let oldest = PackedPosition { wrap: !self.driver.wrap, ..self.driver };
        oldest.advance(age as u16, self.flags.len() as u16)
    }

    /// Which descriptor lies there, if the rounds allow it: none is older than a round.
    fn ages(&self, at: PackedPosition) -> [Option<usize>; 2] {
        let size = self.flags.len();
        let age = (usize::from(at.index) + size - usize::from(self.driver.index)) % size;
        // Behind the newest comes where the oldest lies.
        let behind = if age == 0 { size } else { age };
        [age, behind].map(|age| (self.position(age) == at).then_some(age))
    }

    fn is_used(&self, age: usize) -> bool {
        [0, TURN].contains(&(self.get(age) & TURN))
    }

    fn goes_on(&self, age: usize) -> bool {
        self.get(age) & flags::NEXT != 0
    }

    /// Behind the chain that begins there.
    fn end(&self, first: usize) -> usize {
        let size = self.flags.len();
        (first..size).find(|&age| !self.goes_on(age)).map_or(size, |last| last + 1)
    }

    /// True of the descriptors of one used chain without its first, whoever marked it.
    fn is_rest(&self, ages: std::ops::Range<usize>) -> bool {
        !ages.is_empty() && self.end(ages.start) == ages.end
    }

    /// Of chains that are older than the newest used one, the one that is not marked, and how
    /// many descriptors it has.
    fn unmarked(&self, newest: usize) -> Option<(usize, usize)> {
        let oldest = (0..newest).find(|&age| self.is_used(age)).unwrap_or(newest);
        // What is older than all that are used may be the rest of a used chain, of which the
        // first descriptor was written over; where all chains are of one, it is none.
        let alone = (0..self.flags.len()).all(|age| !self.goes_on(age));
        if oldest == 1 && alone {
            return Some((0, 1));
        }
        let mut age = oldest;
        while age < newest {
            let end = self.end(age);
            if !self.is_used(age) {
                return (end <= newest && self.is_used(end)).then_some((age, end - age));
            }
            age = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A ring as driver and device write it, by the letter of the specification.
    struct PlayedRing {
        flags: Vec<u16>,
        driver: PackedPosition,
        device: PackedPosition,
        /// Of the chains that are out, how many descriptors each has.
        out: std::collections::VecDeque<u16>,
        free: u16,
    }

    impl PlayedRing {
        fn new(size: u16) -> Self {
            let begin = PackedPosition { index: 0, wrap: true };
            let out = std::collections::VecDeque::new();
            Self { flags: vec![0; size.into()], driver: begin, device: begin, out, free: size }
        }

        fn size(&self) -> u16 {
            self.flags.len() as u16
        }

        /// Makes a chain available, if there is room for it.
        fn add(&mut self, slots: u16) {
            if slots > self.free {
                return;
            }
            for slot in 0..slots {
                let next = if slot + 1 < slots { flags::NEXT } else { 0 };
                let turn = self.driver.available();
                self.flags[usize::from(self.driver.index)] = turn | next;
                self.driver = self.driver.advance(1, self.size());
            }
            self.free -= slots;
            self.out.push_back(slots);
        }

        /// Gives so many chains back, but for the mark of the first if the device is killed
        /// before it. Returns where that is.
        fn give_back(&mut self, count: usize, is_killed: bool) -> Option<PackedPosition> {
            let mut first = None;
            for number in 0..count {
                let Some(slots) = self.out.pop_front() else { break };
                let more = if slots > 1 { flags::NEXT } else { 0 };
                if number == 0 && is_killed {
                    first = Some(self.device);
                } else {
                    self.flags[usize::from(self.device.index)] = self.device.used() | more;
                }
                self.device = self.device.advance(slots, self.size());
                self.free += slots;
            }
            first
        }

        fn standing(&self, told: PackedPosition) -> ResumeState {
            RingFlags::new(&self.flags).expect("in order").standing(told)
        }
    }

    #[test]
    fn a_new_ring_begins_at_its_beginning() {
        for size in [1, 2, 3, 256] {
            let ring = PlayedRing::new(size);
            let begin = PackedPosition { index: 0, wrap: true };
            assert_eq!(ring.standing(begin), ResumeState { position: begin, unmarked: None });
        }
    }

    #[test]
    fn a_full_ring_of_buffers_goes_on_where_it_was() {
        let begin = PackedPosition { index: 0, wrap: true };
        for used in 0..40_u16 {
            let mut ring = PlayedRing::new(8);
            (0..8).for_each(|_| ring.add(1));
            for _ in 0..used {
                ring.give_back(1, false);
                ring.add(1);
            }
            assert_eq!(ring.standing(begin).position, ring.device, "{used}");
        }
    }

    #[test]
    fn the_first_of_a_burst_is_found_where_the_device_was_killed_before_its_mark() {
        let begin = PackedPosition { index: 0, wrap: true };
        for before in 0..20 {
            let mut ring = PlayedRing::new(8);
            (0..8).for_each(|_| ring.add(1));
            for _ in 0..before {
                ring.give_back(1, false);
                ring.add(1);
            }
            let first = ring.give_back(3, true).unwrap();
            let standing = ring.standing(begin);
            assert_eq!(standing.position, ring.device, "{before}");
            // Of a frontend that is right by chance, after two rounds, nothing is to be mended.
            let unmarked = (ring.device != begin).then_some((first, 1));
            assert_eq!(standing.unmarked, unmarked, "{before}");
        }
    }

    #[test]
    fn the_place_behind_another_backend_s_chain_is_believed() {
        let mut ring = PlayedRing::new(8);
        ring.add(3);
        ring.add(1);
        ring.give_back(1, false);
        // It did not keep that there were more.
        ring.flags[0] &= !flags::NEXT;
        assert_eq!(ring.standing(ring.device).position, ring.device);
    }

    #[test]
    fn what_no_driver_leaves_is_none() {
        assert!(RingFlags::new(&[]).is_none());
        assert!(RingFlags::new(&[flags::AVAIL, 0, flags::AVAIL]).is_none());
    }

    proptest! {
        /// Whatever was done before: the device is found, and a frontend that is right is
        /// believed.
        #[test]
        fn the_device_is_found(
            size in 24_u16..200,
            steps in proptest::collection::vec((any::<bool>(), 1_u16..4, 1_usize..9), 1..400),
        ) {
            let mut ring = PlayedRing::new(size);
            for (adds, slots, count) in steps {
                if adds {
                    ring.add(slots);
                } else {
                    ring.give_back(count, false);
                }
                // Where nearly all is out, the first descriptor of the last used chain, which
                // has the mark, may be written over.
                let begin = PackedPosition { index: 0, wrap: true };
                for told in [begin, ring.device] {
                    if ring.free >= 4 || told != begin {
                        prop_assert_eq!(ring.standing(told).position, ring.device);
                    }
                }
            }
        }

        /// The same where the device was killed within a burst, of chains of any length.
        #[test]
        fn the_first_of_a_burst_is_found(
            size in 24_u16..200,
            steps in proptest::collection::vec((any::<bool>(), 1_u16..4, 1_usize..9), 1..400),
            burst in proptest::collection::vec(1_u16..4, 2..6),
        ) {
            let begin = PackedPosition { index: 0, wrap: true };
            let mut ring = PlayedRing::new(size);
            for (adds, slots, count) in steps {
                if adds {
                    ring.add(slots);
                } else {
                    ring.give_back(count, false);
                }
            }
            ring.give_back(usize::from(size), false);
            burst.iter().for_each(|&slots| ring.add(slots));
            let length = ring.out[0];
            let first = ring.give_back(burst.len(), true).unwrap();
            prop_assume!(ring.device != begin);
            let unmarked = Some((first, length));
            prop_assert_eq!(ring.standing(begin), ResumeState { position: ring.device, unmarked });
        }

        #[test]
        fn any_flags_are_read_to_an_end(
            flags in proptest::collection::vec(any::<u16>(), 1..64),
            index in any::<u16>(),
            wrap in any::<bool>(),
        ) {
            let size = flags.len() as u16;
            let told = PackedPosition { index: index % size, wrap };
            if let Some(ring) = RingFlags::new(&flags) {
                let ResumeState { position, unmarked } = ring.standing(told);
                prop_assert!(position.index < size);
                prop_assert!(unmarked.is_none_or(|(at, slots)| at.index < size && slots <= size));
            }
        }
    }
}
