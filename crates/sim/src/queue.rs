//! The event queue: what happens next, always in the same order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::select_unpredictable;

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// What [`Queue::pop`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due<E> {
    /// The deadline of this slot; it is unset by that.
    Slot(u32),
    /// An event that was put in with [`Queue::push`].
    Event(E),
}

/// Deadlines of a fixed number of slots, one each, and any number of one-shot
/// events. Ordered by time, then by the order in which they were set: no hash,
/// no address and no clock decides.
///
/// A slot's deadline is moved or unset in O(log slots) without leaving anything
/// behind, which is what a pCPU whose running phase is cut short needs; a heap
/// would fill with what was cancelled.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    /// Time, then sequence, of each slot; padded to a power of two.
    keys: Vec<u128>,
    /// The slot that wins below each node; node 1 is the root, the leaves are the
    /// slots.
    winners: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, u64, E)>>,
    sequence: u64,
    /// The slot that [`Queue::pop`] gave last and that nobody has set since.
    taken: Option<u32>,
}

impl<E: Copy + Ord> Queue<E> {
    pub(crate) fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two().max(2);
        let mut queue = Self {
            keys: vec![u128::MAX; leaves],
            winners: (0..2 * leaves).map(|node| (node % leaves) as u32).collect(),
            events: BinaryHeap::new(),
            sequence: 0,
            taken: None,
        };
        for slot in 0..leaves as u32 {
            queue.set(slot, NEVER);
        }
        queue
    }

    /// Sets or moves the deadline of `slot`; [`NEVER`] unsets it.
    pub(crate) fn set(&mut self, slot: u32, time: u64) {
        if self.taken == Some(slot) {
            self.taken = None;
        }
        self.sequence += 1;
        let mut key = u128::from(time) << 64 | u128::from(self.sequence);
        self.keys[slot as usize] = key;
        let (mut winner, mut node) = (slot, slot as usize + self.keys.len());
        // Which of two is earlier can't be foreseen: a branch would be guessed
        // wrong half of the time, and this is most of what an event costs.
        while node > 1 {
            let other = self.winners[node ^ 1];
            let other_key = self.keys[other as usize];
            let beaten = other_key < key;
            winner = select_unpredictable(beaten, other, winner);
            key = select_unpredictable(beaten, other_key, key);
            node /= 2;
            self.winners[node] = winner;
        }
    }

    /// Adds an event at `time`.
    pub(crate) fn push(&mut self, time: u64, event: E) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Takes what is due next, if that is not after `end`.
    pub(crate) fn pop(&mut self, end: u64) -> Option<(u64, Due<E>)> {
        if let Some(slot) = self.taken {
            self.set(slot, NEVER);
        }
        let slot = self.winners[1];
        let key = self.keys[slot as usize];
        let time = (key >> 64) as u64;
        if let Some(Reverse((other, sequence, event))) = self.events.peek().copied()
            && (u128::from(other) << 64 | u128::from(sequence)) < key
        {
            if other > end {
                return None;
            }
            self.events.pop();
            return Some((other, Due::Event(event)));
        }
        if time == NEVER || time > end {
            return None;
        }
        // Whoever handles it almost always sets it anew.
        self.taken = Some(slot);
        Some((time, Due::Slot(slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The queue gives what a sorted list gives, whatever is set, moved,
        /// unset and pushed in between.
        #[test]
        fn order_is_time_then_sequence(steps in prop::collection::vec((0u32..4, 0u32..13, 0u64..50), 1..200)) {
            let mut queue: Queue<u64> = Queue::new(13);
            let mut expected: Vec<(u64, u64, Due<u64>)> = Vec::new();
            let mut sequence = 0;
            for (what, slot, time) in steps {
                sequence += 1;
                match what {
                    0 | 1 => {
                        queue.set(slot, time);
                        expected.retain(|(.., due)| *due != Due::Slot(slot));
                        expected.push((time, sequence, Due::Slot(slot)));
                    }
                    2 => {
                        queue.set(slot, NEVER);
                        expected.retain(|(.., due)| *due != Due::Slot(slot));
                    }
                    _ => {
                        queue.push(time, sequence);
                        expected.push((time, sequence, Due::Event(sequence)));
                    }
                }
            }
            expected.sort_by_key(|(time, sequence, _)| (*time, *sequence));
            for (time, _, due) in expected {
                prop_assert_eq!(queue.pop(1_000), Some((time, due)));
            }
            prop_assert_eq!(queue.pop(1_000), None);
        }
    }
}
