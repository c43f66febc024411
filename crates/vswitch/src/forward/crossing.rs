//! Frames between polling threads: a ring belongs to one of them, and the others send it
//! theirs in parcels.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::{Forwarder, TIMED_PASSES, thread_time};
use crate::counters::DropReason;
use crate::delivery::Delivery;
use crate::frame::Offload;
use crate::port::PortTable;
use crate::ring::Chains;
use crate::work::work_of;

/// Frames on their way to a ring that another thread serves.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) port: u16,
    pub(crate) queue: u16,
    /// Header and frame, one after the other.
    bytes: Vec<u8>,
    frames: Vec<(Offload, u32)>,
}

/// The channel to another polling thread, and the bell that wakes it.
#[derive(Debug, Clone)]
pub(crate) struct ThreadLink {
    pub(crate) parcels: SyncSender<Parcel>,
    pub(crate) bell: Arc<crate::bell::Bell>,
}

impl Forwarder {
    /// Packs a frame for a ring of another thread; the parcel goes once it is another ring's
    /// turn, or the burst is over.
    pub(super) fn pack(
        &mut self,
        snapshot: &PortTable,
        thread: usize,
        (port, queue): (u16, u16),
        offload: Offload,
    ) {
        let parcel = match self.packing[thread].take() {
            Some(parcel) if (parcel.port, parcel.queue) != (port, queue) => {
                self.send_parcel(snapshot, thread, parcel);
                None
            }
            other => other,
        };
        let mut parcel =
            parcel.unwrap_or_else(|| Parcel { port, queue, bytes: Vec::new(), frames: Vec::new() });
        parcel.bytes.extend_from_slice(&self.whole);
        parcel.frames.push((offload, self.whole.len() as u32));
        self.packing[thread] = Some(parcel);
    }

    /// Sends what is packed.
    pub(super) fn send_parcels(&mut self, snapshot: &PortTable) {
        for thread in 0..self.packing.len() {
            if let Some(parcel) = self.packing[thread].take() {
                self.send_parcel(snapshot, thread, parcel);
            }
        }
    }

    /// What the other thread has no room for is a drop of the receiver's.
    fn send_parcel(&self, snapshot: &PortTable, thread: usize, parcel: Parcel) {
        let (port, frames) = (usize::from(parcel.port), parcel.frames.len() as u64);
        if !self.cross(thread, parcel)
            && let Some(Some(to)) = snapshot.ports.get(port)
        {
            to.counters.count_drop(DropReason::Crossing, frames);
        }
    }

    fn cross(&self, thread: usize, parcel: Parcel) -> bool {
        let Some(crossing) = &self.crossings[thread] else { return false };
        let sent = crossing.parcels.try_send(parcel).is_ok();
        crossing.bell.ring();
        sent
    }

    /// Delivers what another thread packed. Returns the work that it was.
    pub(crate) fn unpack(&mut self, snapshot: &PortTable, parcel: &Parcel) -> u64 {
        let to = snapshot.ports.get(usize::from(parcel.port)).and_then(Option::as_ref);
        let Some(to) = to else { return 0 };
        let (port, queue) = (usize::from(parcel.port), usize::from(parcel.queue));
        if snapshot.thread_of(port, queue) != Some(self.thread) {
            // The ring went to another thread meanwhile.
            let count = parcel.frames.len() as u64;
            to.counters.count_drop(DropReason::Crossing, count);
            return 0;
        }
        let queue = to.device.as_ref().and_then(|device| {
            Some((device, device.pairs.get(usize::from(parcel.queue))?.receive.as_ref()?))
        });
        let Some((device, receive)) = queue else {
            let count = parcel.frames.len() as u64;
            to.counters.count_drop(DropReason::NotConnected, count);
            return 0;
        };
        self.parcels = self.parcels.wrapping_add(1);
        let began = self.parcels.is_multiple_of(TIMED_PASSES).then(thread_time);
        let mut work = 0;
        let mut chains = Chains::new();
        let mut delivery = Delivery::new(to, device, receive, parcel.frames.len(), &mut chains);
        let mut rest = parcel.bytes.as_slice();
        for &(offload, length) in &parcel.frames {
            let (frame, after) = rest.split_at(length as usize);
            rest = after;
            work += work_of(offload, length, device.features);
            self.whole.clear();
            self.whole.extend_from_slice(frame);
            delivery.place_own(&mut self.whole, &mut self.segment, offload);
        }
        delivery.finish(&mut self.caller);
        if let Some(began) = began {
            to.counters.count_busy(thread_time().saturating_sub(began) * TIMED_PASSES);
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::bell::Bell;
    use crate::counters::PortCounters;
    use crate::memory::AioContext;
    use crate::port::{Policy, PortView};
    use crate::table::MacTable;

    #[test]
    #[cfg_attr(miri, ignore = "it calls the kernel")]
    fn frames_that_another_thread_has_no_room_for_are_counted_one_by_one() {
        let mut snapshot = PortTable::new(2);
        let ports: Vec<Arc<PortView>> = (0..2)
            .map(|number| {
                Arc::new(PortView {
                    number,
                    policy: Policy::default(),
                    device: None,
                    counters: Arc::new(PortCounters::default()),
                    limiter: None,
                    watches: Vec::new(),
                })
            })
            .collect();
        for port in &ports {
            snapshot.ports[usize::from(port.number)] = Some(Arc::clone(port));
        }
        // Room for one parcel.
        let (parcels, received) = mpsc::sync_channel(1);
        let link = ThreadLink { parcels, bell: Arc::new(Bell::new().unwrap()) };
        let table = Arc::new(MacTable::with_capacity(2, 64));
        let caller = AioContext::new().unwrap();
        let mut forwarder = Forwarder::new(0, table, vec![None, Some(link)], caller);
        forwarder.whole = vec![0; 60];
        // The first parcel goes, those after it do not: of a burst's end, and of a ring whose
        // turn is over.
        for (port, frames) in [(1, 2), (1, 5), (0, 3), (1, 4)] {
            for _ in 0..frames {
                forwarder.pack(&snapshot, 1, (port, 0), Offload::default());
            }
            if frames != 3 {
                forwarder.send_parcels(&snapshot);
            }
        }
        let dropped = |port: usize| ports[port].counters.read().drops.get("crossing").copied();
        assert_eq!((dropped(0), dropped(1)), (Some(3), Some(5 + 4)));
        assert_eq!(received.try_iter().map(|parcel| parcel.frames.len()).collect::<Vec<_>>(), [2]);
    }
}
