//! Forwarding: bursts of frames from one ring to others.
//!
//! One pass looks at every ring that this thread serves and takes at most a burst
//! from each, so no guest gets more than its turn. Frames are copied once, from
//! the sender's memory to the receiver's. In a burst, those to one port are
//! delivered together, and the receiver is told once.
//!
//! A receiving ring belongs to one thread. Frames for another thread's ring are
//! copied into a parcel and sent to that thread.

mod crossing;
mod reach;
mod rewrite;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use crossing::{Parcel, ThreadLink};
use reach::{flood_work, from_tagged, may_pass, reached_by_all};
use rewrite::{flatten, link_header, retag};
use rustix::time::{ClockId, clock_gettime};
use smallvec::SmallVec;

use crate::burst::{
    ALL, BURST, Burst, EarlyChains, FloodRange, FrameParts, first_bits, pieces, queue_of, watch,
};
use crate::counters::DropReason;
use crate::delivery::{Delivery, tell};
use crate::device::{ActiveRing, LONG_HEADER, VhostDevice};
use crate::frame::{
    BEGINNING, BurstFrame, ETHERNET, EthernetFrame, Offload, ShortFrames, TAG, destination, source,
    tag, takes,
};
use crate::memory::AioContext;
use crate::mirror::Heading;
use crate::offload::for_each_taken;
use crate::port::{MAX_PORTS, PortTable, PortView, ServedQueues, Vlan};
use crate::rate::Allowance;
use crate::ring::{Chains, Direction};
use crate::table::{LearnOutcome, MacTable, Station};
use crate::tap::Tap;
use crate::work::{FrameWork, TURN_WORK};

/// Bytes after which a burst ends: large segments count as what they are.
const BURST_BYTES: u64 = 256 * 1024;
/// Bytes of the largest frame, about.
const LARGEST: u64 = 64 * 1024;
/// Of as many passes with work, and of as many parcels, one is timed: to ask for the time at
/// each burst would cost more than a hundredth of it. A prime, so that it falls into no rhythm
/// of the ports.
const TIMED_PASSES: u32 = 61;

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForwardTarget {
    Port(u16),
    Flood,
    Nowhere,
}

/// What a burst may be.
#[derive(Debug, Clone, Copy)]
struct BurstLimit {
    /// Of chains, with the one that ends it.
    bytes: u64,
    /// In bytes copied, with the copy that ends it.
    work: u64,
    /// The first frame was brought to the ports before this one already, of those to which a
    /// frame to all goes.
    begun: u16,
}

/// What was taken from a port.
#[derive(Debug, Clone, Copy, Default)]
struct TakenFrames {
    /// Those that make no sense among them.
    chains: usize,
    frames: u64,
    /// Without headers.
    bytes: u64,
    /// What it made this thread do, in bytes copied.
    work: u64,
    /// Of the frame behind these, which goes to all: the first port that is still to get it.
    /// 0 if it is not begun.
    begun: u16,
}

/// Time of a pCPU that the calling thread has had.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // It counts from 0, and no further back.
    Duration::try_from(time).unwrap_or_default()
}

/// What one polling thread forwards with.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) thread: usize,
    pub(crate) table: Arc<MacTable>,
    /// By thread; the own one is none.
    pub(crate) crossings: Vec<Option<ThreadLink>>,
    /// A whole frame that has to be changed.
    whole: Vec<u8>,
    /// One segment of it.
    segment: Vec<u8>,
    /// Parcels that are being packed: one a thread at most.
    packing: Vec<Option<Parcel>>,
    pub(crate) caller: AioContext,
    short: ShortFrames,
    /// By port: where its last burst went, whose buffers are asked for early.
    guesses: Vec<Option<u16>>,
    /// By port: which of its queues comes first.
    turns: Vec<u16>,
    /// Passes that found work, and parcels from other threads.
    busy_passes: u32,
    parcels: u32,
}

impl Forwarder {
    pub(crate) fn new(
        thread: usize,
        table: Arc<MacTable>,
        crossings: Vec<Option<ThreadLink>>,
        caller: AioContext,
    ) -> Self {
        let packing = crossings.iter().map(|_| None).collect();
        Self {
            thread,
            table,
            crossings,
            whole: Vec::new(),
            segment: Vec::new(),
            packing,
            caller,
            short: ShortFrames::new(BURST),
            guesses: vec![None; MAX_PORTS],
            turns: vec![0; MAX_PORTS],
            busy_passes: 0,
            parcels: 0,
        }
    }

    /// Looks once at each port that this thread serves. Returns bursts and frames.
    pub(crate) fn pass(&mut self, snapshot: &PortTable) -> (u64, u64) {
        let (mut bursts, mut frames) = (0, 0);
        let is_timed = self.busy_passes.is_multiple_of(TIMED_PASSES);
        for served in snapshot.served_by(self.thread) {
            let began = is_timed.then(thread_time);
            let taken = self.serve_port(snapshot, served);
            bursts += u64::from(taken.is_some());
            frames += taken.unwrap_or(0);
            if let Some(began) = began.filter(|_| taken.is_some()) {
                served.port.counters.count_busy(thread_time().saturating_sub(began) * TIMED_PASSES);
            }
        }
        self.busy_passes = self.busy_passes.wrapping_add(u32::from(bursts > 0));
        (bursts, frames)
    }

    /// Takes a burst at most from one port, however many queues it has: so it gets no
    /// more than its turn. The queue that comes first is another one each time. Returns the
    /// frames that were taken, none if there was nothing to do.
    #[inline]
    fn serve_port<'s>(&mut self, snapshot: &'s PortTable, served: &'s ServedQueues) -> Option<u64> {
        let (port, queues) = (&*served.port, served.queues.as_slice());
        let device = port.device.as_ref()?;
        let most = Allowance { frames: BURST as u64, bytes: BURST_BYTES };
        let mut left = match &port.limiter {
            None => most,
            Some(limiter) => match limiter.allowed() {
                Ok(allowed) => most.min(allowed),
                Err(_) => {
                    if has_work(device, queues) {
                        limiter.count_wait();
                    }
                    return None;
                }
            },
        };
        let (mut frames, mut work) = (0, 0);
        let first = match queues {
            [_] => 0,
            several => {
                let turn = &mut self.turns[usize::from(port.number)];
                *turn = turn.wrapping_add(1);
                usize::from(*turn) % several.len()
            }
        };
        for &queue in queues[first..].iter().chain(&queues[..first]) {
            let taken = match (&device.tap, &device.pairs[usize::from(queue)].transmit) {
                (Some(tap), _) => self.serve_tap(snapshot, port, device, tap, left),
                (None, Some(transmit)) => {
                    self.serve(snapshot, port, device, transmit, left, TURN_WORK - work)
                }
                (None, None) => continue,
            };
            if let Some(limiter) = port.limiter.as_ref().filter(|_| taken.chains > 0) {
                limiter.take(taken.chains as u64, taken.bytes);
            }
            frames += taken.chains as u64;
            left.frames = left.frames.saturating_sub(taken.chains as u64);
            left.bytes = left.bytes.saturating_sub(taken.bytes);
            work += taken.work;
            if left.frames == 0 || left.bytes == 0 || work >= TURN_WORK {
                break;
            }
        }
        (frames > 0 || work > 0).then_some(frames)
    }

    /// Takes a burst from one ring and forwards it.
    #[inline]
    fn serve<'s>(
        &mut self,
        snapshot: &'s PortTable,
        from: &PortView,
        device: &'s VhostDevice,
        queue: &ActiveRing,
        most: Allowance,
        most_work: u64,
    ) -> TakenFrames {
        let mut chains = Chains::new();
        let mut taken = TakenFrames::default();
        queue.ring.fetch(&device.memory, Direction::Transmit, most.frames as usize, &mut chains);
        if !chains.is_empty() {
            let begun = queue.ring.progress();
            let limit = BurstLimit { bytes: most.bytes, work: most_work, begun: begun as u16 };
            taken = self.forward(snapshot, from, device, &mut chains, limit);
            if begun != u32::from(taken.begun) {
                queue.ring.keep_progress(taken.begun.into());
            }
            let written = [0; BURST];
            let written = &written[..chains.len()];
            let wanted = queue.ring.complete(&chains.chains, written);
            if let Some(log) = &device.log {
                let (address, length) = queue.ring.written_part();
                log.mark(address, length);
            }
            if wanted {
                tell(&mut self.caller, queue, &from.counters);
            }
        }
        if let Some(fault) = chains.fault {
            queue.ring.stop(fault);
        }
        taken
    }

    /// The same from the host's network.
    fn serve_tap<'s>(
        &mut self,
        snapshot: &'s PortTable,
        from: &PortView,
        device: &'s VhostDevice,
        tap: &Tap,
        most: Allowance,
    ) -> TakenFrames {
        let mut chains = Chains::new();
        let mut taken = TakenFrames::default();
        // What was read can't be left for the next time: large frames are few.
        let likely = (most.bytes / LARGEST).clamp(1, most.frames.max(1));
        tap.fetch(&device.memory, likely as usize, &mut chains);
        if !chains.is_empty() {
            let limit = BurstLimit { bytes: u64::MAX, work: u64::MAX, begun: 0 };
            taken = self.forward(snapshot, from, device, &mut chains, limit);
        }
        taken
    }

    /// Forwards a burst, up to the frame with which it has as many bytes, or to the copy with
    /// which it has been as much work: the rest of the chains is taken away.
    fn forward<'s>(
        &mut self,
        snapshot: &'s PortTable,
        from: &PortView,
        device: &VhostDevice,
        chains: &mut Chains<'s>,
        limit: BurstLimit,
    ) -> TakenFrames {
        // Large frames end the burst early: the rest is fetched again next time.
        let mut bytes: u64 = chains.chains.iter().map(|chain| u64::from(chain.bytes)).sum();
        while let Some(last) = chains.chains.last()
            && bytes - u64::from(last.bytes) > limit.bytes
        {
            bytes -= u64::from(last.bytes);
            chains.chains.pop();
            chains.fault = None;
        }

        let mut early = EarlyChains { port: None, chains: Chains::new() };
        self.fetch_early(snapshot, from, chains.len(), &mut early);
        let header = device.header();
        let mut shorts = 0_u32;
        if header == LONG_HEADER {
            for (number, chain) in chains.chains.iter().enumerate() {
                let segments = chains.segments_of(chain);
                let taken = self.short.take(number, segments, chain.bytes as usize);
                shorts |= u32::from(taken) << number;
            }
        }
        let taken = if limit.begun == 0
            && shorts == first_bits(chains.len())
            && !from_tagged(from)
            && from.watches.is_empty()
            && self.short.go_the_same_way(chains.len())
        {
            self.forward_alike(snapshot, from, device, chains, limit.work, &mut early)
        } else {
            self.forward_apart(snapshot, from, device, chains, (shorts, limit), &mut early)
        };
        from.counters.count_in(taken.frames, taken.bytes);
        self.send_parcels(snapshot);
        if taken.chains < chains.len() {
            // The rest is fetched again next time.
            chains.chains.truncate(taken.chains);
            chains.fault = None;
        }
        taken
    }

    /// Forwards a burst of short frames, all with the same addresses and type: what holds
    /// for one holds for all.
    fn forward_alike<'s>(
        &mut self,
        snapshot: &'s PortTable,
        from: &PortView,
        device: &VhostDevice,
        chains: &Chains<'s>,
        most_work: u64,
        early: &mut EarlyChains<'s>,
    ) -> TakenFrames {
        let mut frames = [BurstFrame { chain: 0, long: None, length: 0 }; BURST];
        for ((number, chain), frame) in chains.chains.iter().enumerate().zip(&mut frames) {
            let length = chain.bytes - LONG_HEADER as u32;
            *frame = BurstFrame { chain: number as u8, long: None, length };
        }
        let frames = &frames[..chains.len()];
        let beginning = self.short.beginning(0);
        let target = self.judge(snapshot, from, beginning, frames[0].length);
        // To one port, short frames are never as much work as a turn may be. To all, one of
        // them is a small part of it, so that the last one is brought to all of them.
        let mut work = 0;
        let mut count = frames.len();
        if target == ForwardTarget::Flood {
            let of = |frame: &BurstFrame| {
                let reached = reached_by_all(snapshot, from, beginning, frame.length, 0);
                flood_work(reached, FrameWork::plain(frame.length), u64::MAX).0
            };
            count = 0;
            while count < frames.len() && work < most_work {
                work += of(&frames[count]);
                count += 1;
            }
        }
        let frames = &frames[..count];
        let agreed = device.features;
        let flood = FloodRange::default();
        let burst = Burst { snapshot, from, agreed, chains, frames, longs: &[], flood };
        match target {
            ForwardTarget::Port(port) => {
                self.guesses[usize::from(from.number)] = Some(port);
                self.deliver(&burst, port, &ALL[..frames.len()], early);
            }
            ForwardTarget::Flood => ALL[..frames.len()].iter().for_each(|&frame| {
                self.flood(&burst, frame, early);
            }),
            // The first was counted as it was judged.
            ForwardTarget::Nowhere => {
                for frame in &frames[1..] {
                    let beginning = self.short.beginning(frame.chain.into());
                    self.judge(snapshot, from, beginning, frame.length);
                }
            }
        }
        let bytes = frames.iter().map(|frame| u64::from(frame.length)).sum();
        TakenFrames { chains: count, frames: count as u64, bytes, work, begun: 0 }
    }

    /// Forwards a burst frame by frame. `shorts` has a bit for each that is among the
    /// short ones.
    fn forward_apart<'s>(
        &mut self,
        snapshot: &'s PortTable,
        from: &PortView,
        device: &VhostDevice,
        chains: &Chains<'s>,
        (shorts, limit): (u32, BurstLimit),
        early: &mut EarlyChains<'s>,
    ) -> TakenFrames {
        let mut frames: SmallVec<[BurstFrame; BURST]> = SmallVec::new();
        let mut longs: SmallVec<[EthernetFrame; BURST]> = SmallVec::new();
        let mut targets: SmallVec<[ForwardTarget; BURST]> = SmallVec::new();
        let tags = from_tagged(from);
        let mut taken = TakenFrames::default();
        // Frames of one burst often go the same way: what was found for two addresses
        // and a type holds for the next.
        let mut last: Option<([u8; ETHERNET], ForwardTarget)> = None;
        let mut flood = FloodRange { begun: limit.begun, ..FloodRange::default() };
        for (number, chain) in chains.chains.iter().enumerate() {
            if taken.work >= limit.work {
                break;
            }
            let begun = if number == 0 { limit.begun } else { 0 };
            taken.chains += 1;
            let segments = chains.segments_of(chain);
            let (long, length) = if shorts & 1 << number != 0 {
                (None, chain.bytes - LONG_HEADER as u32)
            } else {
                match EthernetFrame::read(segments, chain.bytes, device.header()) {
                    Ok((frame, length)) => {
                        longs.push(frame);
                        (Some(longs.len() as u8 - 1), length)
                    }
                    Err(reason) => {
                        from.counters.count_drop(reason, 1);
                        continue;
                    }
                }
            };
            let frame = BurstFrame { chain: number as u8, long, length };
            taken.frames += 1;
            taken.bytes += u64::from(length);
            if !from.watches.is_empty() && begun == 0 {
                watch(from, frame, &longs, segments, &self.short);
            }
            let long = long.map(|long| &longs[usize::from(long)]);
            if let (Some(long), Some(mtu)) = (long, from.policy.mtu)
                && long.exceeds(length, mtu)
            {
                from.counters.count_drop(DropReason::Mtu, 1);
                continue;
            }
            let beginning = match long {
                Some(long) => long.beginning(),
                None => self.short.beginning(number),
            };
            let way: [u8; ETHERNET] = *beginning.first_chunk().expect("it holds it");
            let target = match last {
                Some((known, target)) if known == way && !tags => target,
                _ => self.judge(snapshot, from, beginning, length),
            };
            // Of a frame that ends in its tag, nothing follows for one with all of it.
            let tells = target != ForwardTarget::Nowhere && length as usize >= ETHERNET + TAG;
            last = tells.then_some((way, target));
            let work = FrameWork::new(long, length, device.features);
            taken.work += match target {
                ForwardTarget::Nowhere => 0,
                ForwardTarget::Flood => {
                    let reached = reached_by_all(snapshot, from, beginning, length, begun);
                    let (work, next) = flood_work(reached, work, limit.work - taken.work);
                    if let Some(next) = next {
                        // It is taken with the turn in which the last port gets it.
                        (flood.end, taken.begun) = (next, next);
                        taken.chains -= 1;
                        taken.frames -= 1;
                        taken.bytes -= u64::from(length);
                    }
                    work
                }
                ForwardTarget::Port(port) => {
                    let to = snapshot.ports.get(usize::from(port)).and_then(Option::as_ref);
                    to.and_then(|to| to.device.as_ref()).map_or(0, |device| work.to(device))
                }
            };
            frames.push(frame);
            targets.push(target);
        }
        let agreed = device.features;
        let (frames, longs) = (&frames, &longs);
        let burst = Burst { snapshot, from, agreed, chains, frames, longs, flood };
        self.deliver_apart(&burst, &targets, early);
        taken
    }

    /// Delivers frames that go to different ports.
    fn deliver_apart<'s>(
        &mut self,
        burst: &Burst<'_, 's>,
        targets: &[ForwardTarget],
        early: &mut EarlyChains<'s>,
    ) {
        let mut left = first_bits(targets.len());
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let target = targets[first];
            if target == ForwardTarget::Flood {
                left &= !(1 << first);
                self.flood(burst, first as u8, early);
                continue;
            }
            // All that go the same way, up to the next that goes to all: that keeps
            // the order of each sender and receiver.
            let mut group: SmallVec<[u8; BURST]> = SmallVec::new();
            for (index, &other) in targets.iter().enumerate().skip(first) {
                if other == ForwardTarget::Flood {
                    break;
                }
                if left & 1 << index != 0 && other == target {
                    left &= !(1 << index);
                    group.push(index as u8);
                }
            }
            if let ForwardTarget::Port(port) = target {
                self.guesses[usize::from(burst.from.number)] = Some(port);
                self.deliver(burst, port, &group, early);
            }
        }
    }

    /// Fetches what the port to which the last burst went gives to receive `count` frames
    /// in: that comes nearer while this burst's own frames still do. Nothing is taken by
    /// it.
    #[inline]
    fn fetch_early<'s>(
        &self,
        snapshot: &'s PortTable,
        from: &PortView,
        count: usize,
        early: &mut EarlyChains<'s>,
    ) {
        let guess = self.guesses[usize::from(from.number)];
        let to = guess.and_then(|port| snapshot.ports.get(usize::from(port))?.as_deref());
        let Some((to, device)) = to.and_then(|to| Some((to, to.device.as_deref()?))) else {
            return;
        };
        if device.receivers() == 1
            && snapshot.thread_of(usize::from(to.number), 0) == Some(self.thread)
            && let Some(receive) = &device.pairs[0].receive
        {
            early.port = guess;
            let chains = &mut early.chains;
            receive.ring.fetch(&device.memory, Direction::Receive, count, chains);
        }
    }

    /// Where a frame of `length` bytes goes, and learns where it comes from.
    fn judge(
        &self,
        snapshot: &PortTable,
        from: &PortView,
        beginning: &[u8; BEGINNING],
        length: u32,
    ) -> ForwardTarget {
        let dropped = |reason| {
            from.counters.count_drop(reason, 1);
            ForwardTarget::Nowhere
        };
        let vlan = match (&from.policy.vlan, tag(beginning, length)) {
            (Vlan::Unaware, _) => 0,
            (Vlan::Access(vlan), None) => *vlan,
            (Vlan::Trunk(carried), Some(vlan)) if carried.contains(&vlan) => vlan,
            _ => return dropped(DropReason::Vlan),
        };
        let source = source(beginning);
        if from.policy.mac.is_some_and(|mac| mac.bytes() != source) {
            return dropped(DropReason::Spoofed);
        }
        let station = Station::new(vlan, source);
        if !station.is_group() && self.table.learn(station, from.number) == LearnOutcome::Refused {
            return dropped(DropReason::Spoofed);
        }
        let station = Station::new(vlan, destination(beginning));
        if station.is_group() {
            return ForwardTarget::Flood;
        }
        match self.table.port(station) {
            None => ForwardTarget::Flood,
            Some(port) if port == from.number => dropped(DropReason::SamePort),
            Some(port) => match snapshot.ports.get(usize::from(port)) {
                Some(Some(to)) if may_pass(snapshot, from, to) => ForwardTarget::Port(port),
                Some(Some(_)) => dropped(DropReason::Isolated),
                _ => ForwardTarget::Flood,
            },
        }
    }

    fn flood<'s>(&mut self, burst: &Burst<'_, 's>, index: u8, early: &mut EarlyChains<'s>) {
        let from = burst.from;
        let frame = burst.frames[usize::from(index)];
        // Of the first frame of a burst, and of the last, a part may be another turn's.
        let begun = if frame.chain == 0 { burst.flood.begun } else { 0 };
        let is_last = usize::from(index) + 1 == burst.frames.len();
        let end = if is_last { burst.flood.end } else { u16::MAX };
        let parts = burst.parts(frame, &self.short);
        // One frame is one drop, however many would have got it.
        let length = frame.length as usize;
        if let Err(reason) = Offload::read(parts.header, length, link_header(from), burst.agreed) {
            return from.counters.count_drop(reason, u64::from(begun == 0));
        }
        from.counters.count_flooded(u64::from(begun == 0));
        let mut beginning = [0; BEGINNING];
        let there = parts.own.len().min(BEGINNING);
        beginning[..there].copy_from_slice(&parts.own[..there]);
        let reached = reached_by_all(burst.snapshot, from, &beginning, frame.length, begun);
        for (to, _) in reached.take_while(|(to, _)| to.number < end) {
            self.deliver(burst, to.number, &[index], early);
        }
    }

    /// Brings frames of a burst to a port.
    fn deliver<'s>(
        &mut self,
        burst: &Burst<'_, 's>,
        port: u16,
        group: &[u8],
        early: &mut EarlyChains<'s>,
    ) {
        let Some(to) = burst.snapshot.ports.get(usize::from(port)).and_then(Option::as_ref) else {
            return;
        };
        let count = group.len() as u64;
        let Some(device) = &to.device else {
            return to.counters.count_drop(DropReason::NotConnected, count);
        };
        if let Some(tap) = &device.tap {
            return self.deliver_to_tap(burst, to, tap, group);
        }
        match device.receivers() {
            0 => to.counters.count_drop(DropReason::NotConnected, count),
            1 => self.deliver_to_queue(burst, to, device, 0, group, early),
            queues => {
                // Frames of one connection stay in order: they have one queue.
                let chosen: SmallVec<[u8; BURST]> = group
                    .iter()
                    .map(|&index| queue_of(burst, index, &self.short, queues) as u8)
                    .collect();
                for queue in 0..queues {
                    let part: SmallVec<[u8; BURST]> = group
                        .iter()
                        .zip(&chosen)
                        .filter(|&(_, &chosen)| usize::from(chosen) == queue)
                        .map(|(&index, _)| index)
                        .collect();
                    if !part.is_empty() {
                        self.deliver_to_queue(burst, to, device, queue, &part, early);
                    }
                }
            }
        }
    }

    fn deliver_to_queue<'s>(
        &mut self,
        burst: &Burst<'_, 's>,
        to: &'s PortView,
        device: &'s VhostDevice,
        queue: usize,
        group: &[u8],
        early: &mut EarlyChains<'s>,
    ) {
        let Some(receive) = &device.pairs[queue].receive else { return };
        let Some(thread) = burst.snapshot.thread_of(usize::from(to.number), queue) else {
            // It is between two threads for the time of a pass.
            return to.counters.count_drop(DropReason::Crossing, group.len() as u64);
        };
        let crosses = thread != self.thread;
        let tags = from_tagged(burst.from) != from_tagged(to);
        let link = link_header(burst.from);
        let as_it_is = !crosses && !tags;
        let mut late = Chains::new();
        let is_early = early.port == Some(to.number) && queue == 0;
        let chains = if is_early { &mut early.chains } else { &mut late };
        early.port = early.port.filter(|_| !is_early);
        let mut delivery = Delivery::new(to, device, receive, group.len(), chains);
        for &index in group {
            let frame = burst.frames[usize::from(index)];
            let long = frame.long.map(|long| &burst.longs[usize::from(long)]);
            match long {
                None if as_it_is => {
                    let (whole, bytes) = self.short.get(frame.chain, frame.length);
                    delivery.place_short(whole, bytes);
                    continue;
                }
                Some(long) if as_it_is && !long.has_offload => {
                    let segments = burst.chains.segments(usize::from(frame.chain));
                    let (length, taken) = (frame.length as usize, usize::from(long.taken));
                    let head = &long.plain[..usize::from(long.head_length)];
                    if let [only] = segments {
                        delivery.place(head, &[only.bytes().after(taken)], length);
                    } else {
                        delivery.place(head, &pieces(segments, taken), length);
                    }
                    continue;
                }
                _ => {}
            }
            let FrameParts { header, own, pieces } = burst.parts(frame, &self.short);
            let length = frame.length as usize;
            let offload = match Offload::read(header, length, link, burst.agreed) {
                Ok(offload) => offload,
                Err(reason) => {
                    burst.from.counters.count_drop(reason, 1);
                    continue;
                }
            };
            if let Some(long) = long.filter(|_| as_it_is && takes(device, offload)) {
                let mut head = long.head;
                head[..LONG_HEADER].copy_from_slice(&offload.write());
                let head = &head[..usize::from(long.head_length)];
                delivery.place(head, &pieces, frame.length as usize);
                continue;
            }
            let offload = flatten(own, &pieces, offload, &mut self.whole);
            let offload =
                if tags { retag(burst.from, to, &mut self.whole, offload) } else { offload };
            if crosses {
                let ring = (to.number, queue as u16);
                self.pack(burst.snapshot, thread, ring, offload);
            } else {
                delivery.place_own(&mut self.whole, &mut self.segment, offload);
            }
        }
        delivery.finish(&mut self.caller);
    }

    /// Gives frames to the host's network, whichever thread this is: the kernel takes them
    /// from several.
    fn deliver_to_tap(&mut self, burst: &Burst<'_, '_>, to: &PortView, tap: &Tap, group: &[u8]) {
        let (mut frames, mut bytes) = (0, 0);
        let link = link_header(burst.from);
        for &index in group {
            let frame = burst.frames[usize::from(index)];
            let FrameParts { header, own, pieces } = burst.parts(frame, &self.short);
            let length = frame.length as usize;
            let offload = match Offload::read(header, length, link, burst.agreed) {
                Ok(offload) => offload,
                Err(reason) => {
                    burst.from.counters.count_drop(reason, 1);
                    continue;
                }
            };
            let long = frame.long.map(|long| &burst.longs[usize::from(long)]);
            if let (Some(long), Some(mtu)) = (long, to.policy.mtu)
                && long.exceeds(frame.length, mtu)
            {
                to.counters.count_drop(DropReason::Mtu, 1);
                continue;
            }
            let offload = flatten(own, &pieces, offload, &mut self.whole);
            let offload = if from_tagged(burst.from) == from_tagged(to) {
                offload
            } else {
                retag(burst.from, to, &mut self.whole, offload)
            };
            let give = |frame: &[u8], offload: Offload| match tap.send(&offload.write(), frame) {
                Ok(()) => {
                    frames += 1;
                    bytes += frame.len() as u64;
                    for watch in &to.watches {
                        watch.copy(Heading::Out, frame, &[], frame.len());
                    }
                }
                Err(reason) => to.counters.count_drop(reason, 1),
            };
            let made =
                for_each_taken(&mut self.whole, offload, tap.features(), &mut self.segment, give);
            match made {
                Some(work) => to.counters.count_work(work),
                None => to.counters.count_drop(DropReason::BadOffload, 1),
            }
        }
        if frames > 0 {
            to.counters.count_out(frames, bytes);
        }
    }
}

/// True if a queue has frames that were not taken.
fn has_work(device: &VhostDevice, queues: &[u16]) -> bool {
    let transmit =
        queues.iter().filter_map(|&queue| device.pairs[usize::from(queue)].transmit.as_ref());
    transmit.into_iter().any(|queue| queue.ring.has_work())
}
