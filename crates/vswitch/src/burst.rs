//! A burst: frames that were taken from one ring at once, and what is kept of them while
//! they are on their way.

use smallvec::SmallVec;

use crate::device::LONG_HEADER;
use crate::frame::{BurstFrame, EthernetFrame, PLAIN_HEADER, ShortFrames, spread};
use crate::memory::{ByteRange, GuestBuffer};
use crate::mirror::Heading;
use crate::port::{PortTable, PortView};
use crate::ring::Chains;

/// Frames that are taken from a ring at once.
pub(crate) const BURST: usize = 32;
/// The numbers of a burst's frames.
pub(crate) const ALL: [u8; BURST] = {
    let mut all = [0; BURST];
    let mut number = 0;
    while number < BURST {
        all[number] = number as u8;
        number += 1;
    }
    all
};

/// A bit for each of the first `count` frames of a burst.
pub(crate) fn first_bits(count: usize) -> u32 {
    if count == 0 { 0 } else { u32::MAX >> (BURST - count) }
}

/// The part of the ports to which a burst's frames to all are brought in one turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodRange {
    /// Those before this one have the first frame already.
    pub(crate) begun: u16,
    /// From this one on, they get the last frame in another turn.
    pub(crate) end: u16,
}

impl Default for FloodRange {
    fn default() -> Self {
        Self { begun: 0, end: u16::MAX }
    }
}

/// A sender's burst.
pub(crate) struct Burst<'b, 's> {
    pub(crate) snapshot: &'s PortTable,
    pub(crate) from: &'b PortView,
    pub(crate) agreed: u64,
    pub(crate) chains: &'b Chains<'s>,
    pub(crate) frames: &'b [BurstFrame],
    /// Those that are not short.
    pub(crate) longs: &'b [EthernetFrame],
    pub(crate) flood: FloodRange,
}

/// Chains that were fetched to receive in before it was known whether they are needed: of
/// a port's only queue.
pub(crate) struct EarlyChains<'m> {
    /// Whose; nobody's once they were used.
    pub(crate) port: Option<u16>,
    pub(crate) chains: Chains<'m>,
}

/// A frame's parts: its header, what of it is ours, and what is still the sender's.
pub(crate) struct FrameParts<'b, 'm> {
    pub(crate) header: &'b [u8],
    pub(crate) own: &'b [u8],
    pub(crate) pieces: SmallVec<[ByteRange<'m>; 20]>,
}

impl<'m> Burst<'_, 'm> {
    pub(crate) fn parts<'b>(
        &'b self,
        frame: BurstFrame,
        short: &'b ShortFrames,
    ) -> FrameParts<'b, 'm> {
        match frame.long {
            None => {
                let (whole, bytes) = short.get(frame.chain, frame.length);
                let own = &whole[LONG_HEADER..bytes];
                FrameParts { header: &PLAIN_HEADER, own, pieces: SmallVec::new() }
            }
            Some(long) => {
                let long = &self.longs[usize::from(long)];
                let (header, rest) = long.head.split_at(LONG_HEADER);
                let segments = self.chains.segments(usize::from(frame.chain));
                FrameParts {
                    header,
                    own: &rest[..usize::from(long.head_length) - LONG_HEADER],
                    pieces: pieces(segments, usize::from(long.taken)),
                }
            }
        }
    }
}

pub(crate) fn queue_of(
    burst: &Burst<'_, '_>,
    index: u8,
    short: &ShortFrames,
    queues: usize,
) -> usize {
    let parts = burst.parts(burst.frames[usize::from(index)], short);
    spread(parts.own, &parts.pieces, queues)
}

/// What follows the first `taken` bytes of a chain.
pub(crate) fn pieces<'m>(
    segments: &[GuestBuffer<'m>],
    mut taken: usize,
) -> SmallVec<[ByteRange<'m>; 20]> {
    let mut pieces = SmallVec::new();
    for segment in segments {
        let skipped = taken.min(segment.len());
        taken -= skipped;
        if skipped < segment.len() {
            pieces.push(segment.bytes().after(skipped));
        }
    }
    pieces
}

/// Writes a sender's frame down.
pub(crate) fn watch(
    from: &PortView,
    frame: BurstFrame,
    longs: &[EthernetFrame],
    segments: &[GuestBuffer<'_>],
    short: &ShortFrames,
) {
    let length = frame.length as usize;
    for watch in &from.watches {
        if let Some(long) = frame.long {
            let long = &longs[usize::from(long)];
            let head = &long.head[LONG_HEADER..usize::from(long.head_length)];
            watch.copy(Heading::In, head, &pieces(segments, usize::from(long.taken)), length);
        } else {
            let (whole, bytes) = short.get(frame.chain, frame.length);
            watch.copy(Heading::In, &whole[LONG_HEADER..bytes], &[], length);
        }
    }
}
