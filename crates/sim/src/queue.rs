//! The event queue: what happens next, always in the same order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::select_unpredictable;

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// What [`EventQueue::pop`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DueEvent<E> {
    /// The deadline of this slot; it is unset by that.
    Slot(u32),
    /// An event that was put in with [`EventQueue::push`].
    Event(E),
}

/// Bits of a key that tell the slot; the sequence has the 44 others of its half, which
/// last for weeks of running.
const SLOT_BITS: u32 = 20;

/// How many slots a queue can have.
pub(crate) const MOST_SLOTS: usize = 1 << SLOT_BITS;

/// Deadlines of a fixed number of slots, one each, and any number of one-shot
/// events. Ordered by time, then by the order in which they were set: no hash,
/// no address and no clock decides.
///
/// A slot's deadline is moved or unset in O(log slots) without leaving anything
/// behind, which is what a pCPU whose running phase is cut short needs; a heap
/// would fill with what was cancelled.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    /// A tournament: node 1 is the root, the second half are the slots, and each
    /// node has the least key below it. A key is time, then sequence, then the slot,
    /// which decides nothing as no two have the same sequence.
    keys: Vec<u128>,
    events: BinaryHeap<Reverse<(u64, u64, E)>>,
    sequence: u64,
    /// The slot that was set last, or that [`EventQueue::pop`] gave since.
    open: u32,
    /// Its key, which the tournament does not have yet: who handles a slot sets it,
    /// often more than once, before anyone asks what is next.
    open_key: u128,
}

fn key(time: u64, sequence: u64, slot: u32) -> u128 {
    u128::from(time) << 64 | u128::from(sequence << SLOT_BITS | u64::from(slot))
}

/// The smaller one. Which it is can't be foreseen: a branch would be guessed wrong
/// half of the time, and this is most of what an event costs. A function of its own:
/// where it is a part of a loop, compilers make a branch of the choice whatever they
/// are told.
#[inline(never)]
fn least(a: u128, b: u128) -> u128 {
    let smaller = b < a;
    let half = |a: u64, b: u64| u128::from(select_unpredictable(smaller, b, a));
    half((a >> 64) as u64, (b >> 64) as u64) << 64 | half(a as u64, b as u64)
}

impl<E: Copy + Ord> EventQueue<E> {
    /// # Panics
    /// Above [`MOST_SLOTS`].
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots <= MOST_SLOTS, "{slots} slots");
        let leaves = slots.next_power_of_two().max(2);
        Self {
            keys: vec![u128::MAX; 2 * leaves],
            events: BinaryHeap::new(),
            sequence: 0,
            open: 0,
            open_key: u128::MAX,
        }
    }

    /// Sets or moves the deadline of `slot`; [`NEVER`] unsets it.
    pub(crate) fn set(&mut self, slot: u32, time: u64) {
        self.sequence += 1;
        if self.open != slot {
            self.close();
            self.open = slot;
        }
        self.open_key = key(time, self.sequence, slot);
    }

    /// Plays the open slot's matches.
    fn close(&mut self) {
        let mut key = self.open_key;
        let mut node = self.open as usize + self.keys.len() / 2;
        while node > 1 {
            self.keys[node] = key;
            key = least(key, self.keys[node ^ 1]);
            node /= 2;
        }
        self.keys[1] = key;
    }

    /// Adds an event at `time`.
    pub(crate) fn push(&mut self, time: u64, event: E) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Takes what is due next, if that is not after `end`.
    pub(crate) fn pop(&mut self, end: u64) -> Option<(u64, DueEvent<E>)> {
        self.close();
        let first = self.keys[1];
        let time = (first >> 64) as u64;
        if let Some(Reverse((other, sequence, event))) = self.events.peek().copied()
            && key(other, sequence, 0) < first
        {
            if other > end {
                return None;
            }
            self.events.pop();
            return Some((other, DueEvent::Event(event)));
        }
        if time == NEVER || time > end {
            return None;
        }
        let slot = first as u32 & (MOST_SLOTS as u32 - 1);
        self.open = slot;
        self.open_key = u128::MAX;
        Some((time, DueEvent::Slot(slot)))
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
            let mut queue: EventQueue<u64> = EventQueue::new(13);
            let mut expected: Vec<(u64, u64, DueEvent<u64>)> = Vec::new();
            let mut sequence = 0;
            for (what, slot, time) in steps {
                sequence += 1;
                match what {
                    0 | 1 => {
                        queue.set(slot, time);
                        expected.retain(|(.., due)| *due != DueEvent::Slot(slot));
                        expected.push((time, sequence, DueEvent::Slot(slot)));
                    }
                    2 => {
                        queue.set(slot, NEVER);
                        expected.retain(|(.., due)| *due != DueEvent::Slot(slot));
                    }
                    _ => {
                        queue.push(time, sequence);
                        expected.push((time, sequence, DueEvent::Event(sequence)));
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
