//! Delivery: frames into the buffers of one receiving ring, of which the driver is told
//! once.

use std::os::fd::AsFd;

use smallvec::SmallVec;

use crate::counters::{DropReason, PortCounters};
use crate::device::{ActiveRing, LONG_HEADER, VhostDevice};
use crate::frame::{HEAD, Offload, SHORT, exceeds};
use crate::memory::{AioContext, ByteRange};
use crate::mirror::Heading;
use crate::offload::for_each_taken;
use crate::port::PortView;
use crate::ring::{Chains, Direction, Ring};

/// Tells a driver that entries were used.
pub(crate) fn tell(caller: &mut AioContext, queue: &ActiveRing, counters: &PortCounters) {
    if let Some(call) = &queue.call {
        counters.count_signal(caller.call(call.as_fd()));
    }
}

/// Frames that are being given to one ring.
pub(crate) struct Delivery<'d, 'c> {
    to: &'d PortView,
    device: &'d VhostDevice,
    queue: &'d ActiveRing,
    /// Not its own: it is too large to be moved for each burst.
    chains: &'c mut Chains<'d>,
    /// Short frames may go right into its buffers: nobody watches, and no log is kept.
    is_plain: bool,
    /// Bytes written to each chain that was used.
    written: SmallVec<[u32; 64]>,
    frames: u64,
    bytes: u64,
    drops: SmallVec<[(DropReason, u64); 2]>,
}

impl<'d, 'c> Delivery<'d, 'c> {
    /// To the ring of `queue`, of which `chains` may have been fetched already; `expected`
    /// frames are to come.
    #[inline(always)]
    pub(crate) fn new(
        to: &'d PortView,
        device: &'d VhostDevice,
        queue: &'d ActiveRing,
        expected: usize,
        chains: &'c mut Chains<'d>,
    ) -> Self {
        if chains.len() < expected {
            let missing = expected - chains.len();
            queue.ring.fetch(&device.memory, Direction::Receive, missing, chains);
        }
        Self {
            to,
            device,
            queue,
            chains,
            is_plain: device.header() == LONG_HEADER
                && device.log.is_none()
                && to.watches.is_empty(),
            written: SmallVec::new(),
            frames: 0,
            bytes: 0,
            drops: SmallVec::new(),
        }
    }

    fn ring(&self) -> &Ring {
        &self.queue.ring
    }

    /// Places a frame: `head` begins with the long header.
    #[inline]
    pub(crate) fn place(&mut self, head: &[u8], pieces: &[ByteRange<'_>], length: usize) {
        if self.to.policy.mtu.is_some_and(|mtu| exceeds(head, length, mtu)) {
            return self.drops.push((DropReason::Mtu, 1));
        }
        match self.try_place(head, pieces, length) {
            Ok(()) => {
                self.frames += 1;
                self.bytes += length as u64;
                for watch in &self.to.watches {
                    watch.copy(Heading::Out, &head[LONG_HEADER..], pieces, length);
                }
            }
            Err(reason) => self.drops.push((reason, 1)),
        }
    }

    /// Places a short frame with its header, the first `bytes` of `whole`.
    #[inline]
    pub(crate) fn place_short(&mut self, whole: &[u8; SHORT], bytes: usize) {
        if self.is_plain
            && let Some(chain) = self.chains.chains.get(self.written.len())
            && let Some(buffer) = chain.only()
            && buffer.write_short(whole, bytes)
        {
            self.written.push(bytes as u32);
            self.frames += 1;
            self.bytes += (bytes - LONG_HEADER) as u64;
            return;
        }
        self.place_short_slowly(whole, bytes);
    }

    #[cold]
    fn place_short_slowly(&mut self, whole: &[u8; SHORT], bytes: usize) {
        let length = bytes - LONG_HEADER;
        if self.device.header() == LONG_HEADER
            && let Ok(chain) = self.next_chain()
            && let [buffer] = self.chains.segments(chain)
            && buffer.write_short(whole, bytes)
        {
            self.use_chains(self.written.len(), chain, 1, bytes);
            self.frames += 1;
            self.bytes += length as u64;
            for watch in &self.to.watches {
                watch.copy(Heading::Out, &whole[LONG_HEADER..bytes], &[], length);
            }
            return;
        }
        let (head, rest) = whole[..bytes].split_at(HEAD);
        self.place(head, &[ByteRange::from(rest)], length);
    }

    /// Places a frame that is in our own memory, after doing what the receiver does not.
    pub(crate) fn place_own(&mut self, whole: &mut [u8], segment: &mut Vec<u8>, offload: Offload) {
        let agreed = self.device.features;
        let made = for_each_taken(whole, offload, agreed, segment, |frame, offload| {
            self.place_plain(frame, offload);
        });
        match made {
            Some(work) => self.to.counters.count_work(work),
            None => self.drops.push((DropReason::BadOffload, 1)),
        }
    }

    fn place_plain(&mut self, frame: &[u8], offload: Offload) {
        let mut head = [0; HEAD];
        let own = frame.len().min(HEAD - LONG_HEADER);
        head[..LONG_HEADER].copy_from_slice(&offload.write());
        head[LONG_HEADER..LONG_HEADER + own].copy_from_slice(&frame[..own]);
        let rest = ByteRange::from(&frame[own..]);
        self.place(&head[..LONG_HEADER + own], &[rest], frame.len());
    }

    #[inline]
    fn try_place(
        &mut self,
        head: &[u8],
        pieces: &[ByteRange<'_>],
        length: usize,
    ) -> Result<(), DropReason> {
        let header = self.device.header();
        let needed = header + length;
        let chain = self.next_chain()?;
        let number = self.written.len();
        let room = self.chains.chains[chain].bytes as usize;
        if room >= needed {
            if let ([buffer], [piece], Some(whole), true) = (
                self.chains.segments(chain),
                pieces,
                head.first_chunk::<HEAD>().filter(|_| head.len() == HEAD),
                header == LONG_HEADER,
            ) {
                buffer.write_head(whole);
                piece.copy_to(buffer.after(HEAD));
            } else {
                self.scatter(chain, 1, header, head, pieces);
            }
            self.use_chains(number, chain, 1, needed);
            return Ok(());
        }
        if !self.device.merges() {
            return Err(DropReason::TooLong);
        }
        // More buffers, until the frame fits.
        let (mut room, mut count) = (room, 1);
        while room < needed {
            let next = self.chain_at(chain + count)?;
            // A chain that makes no sense in between ends the attempt; it is given
            // back with the next frame.
            room += next;
            count += 1;
        }
        self.scatter(chain, count, header, head, pieces);
        self.use_chains(number, chain, count, needed);
        Ok(())
    }

    /// The number of the next chain that makes sense; those before are given back.
    #[inline]
    fn next_chain(&mut self) -> Result<usize, DropReason> {
        loop {
            let number = self.written.len();
            self.fetch_up_to(number)?;
            if !self.chains.chains[number].is_malformed() {
                return Ok(number);
            }
            self.written.push(0);
            self.drops.push((DropReason::Malformed, 1));
        }
    }

    /// Bytes of the chain of this number.
    fn chain_at(&mut self, number: usize) -> Result<usize, DropReason> {
        self.fetch_up_to(number)?;
        let chain = self.chains.chains[number];
        if chain.is_malformed() { Err(DropReason::NoBuffer) } else { Ok(chain.bytes as usize) }
    }

    #[inline]
    fn fetch_up_to(&mut self, number: usize) -> Result<(), DropReason> {
        if number >= self.chains.len() {
            let memory = &self.device.memory;
            self.queue.ring.fetch(memory, Direction::Receive, 1, self.chains);
        }
        if number < self.chains.len() { Ok(()) } else { Err(DropReason::NoBuffer) }
    }

    /// Copies a frame into `count` chains from `first` on.
    fn scatter(
        &self,
        first: usize,
        count: usize,
        header: usize,
        head: &[u8],
        pieces: &[ByteRange<'_>],
    ) {
        let mut long = [0; LONG_HEADER];
        long.copy_from_slice(&head[..LONG_HEADER]);
        long[10..12].copy_from_slice(&(count as u16).to_le_bytes());
        let parts = [ByteRange::from(&long[..header]), ByteRange::from(&head[LONG_HEADER..])];
        let mut sources = parts.into_iter().chain(pieces.iter().copied());
        let mut source = sources.next();
        let chains = first..first + count;
        for &segment in chains.flat_map(|chain| self.chains.segments(chain)) {
            let mut target = segment;
            while let Some(piece) = source {
                let copied = piece.copy_to(target);
                target = target.after(copied);
                let rest = piece.after(copied);
                source = if rest.is_empty() { sources.next() } else { Some(rest) };
                if target.is_empty() {
                    break;
                }
            }
        }
    }

    /// Notes that a frame of `needed` bytes with its header took chains.
    #[inline]
    fn use_chains(&mut self, number: usize, chain: usize, count: usize, needed: usize) {
        debug_assert_eq!(number, chain, "chains are used in order");
        let mut left = needed;
        for chain in chain..chain + count {
            let here = left.min(self.chains.chains[chain].bytes as usize);
            left -= here;
            self.written.push(here as u32);
            if let Some(log) = &self.device.log {
                let mut unmarked = here;
                for &segment in self.chains.segments(chain) {
                    let part = unmarked.min(segment.len());
                    log.mark_buffer(&self.device.memory, segment, part);
                    unmarked -= part;
                }
            }
        }
    }

    /// Gives the ring what was used, and tells the driver.
    #[inline]
    pub(crate) fn finish(&mut self, caller: &mut AioContext) {
        let ring = self.ring();
        let wanted = ring.complete(&self.chains.chains, &self.written);
        if let Some(log) = &self.device.log {
            let (address, length) = ring.written_part();
            log.mark(address, length);
        }
        if wanted {
            tell(caller, self.queue, &self.to.counters);
        }
        if let Some(fault) = self.chains.fault
            && self.written.len() == self.chains.len()
        {
            ring.stop(fault);
        }
        if self.frames > 0 {
            self.to.counters.count_out(self.frames, self.bytes);
        }
        for &(reason, count) in &self.drops {
            self.to.counters.count_drop(reason, count);
        }
    }
}
