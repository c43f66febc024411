//! Frames: the Virtio header, addresses, tags, as far as a switch looks at them.
//!
//! What is judged is a copy of the first bytes, made once; the same copy is what
//! the receiver gets.
//!
//! Source: VIRTIO 1.2, 5.1.6; IEEE 802.3, 802.1Q.

use crate::counters::DropReason;
use crate::device::{LONG_HEADER, VhostDevice};
use crate::memory::{ByteRange, GuestBuffer};
use crate::message::features;

/// Bytes of two addresses and a type.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of a VLAN tag.
pub(crate) const TAG: usize = 4;
const TAG_TYPE: [u8; 2] = [0x81, 0x00];

/// A header that asks for nothing, of a frame in one buffer.
pub(crate) const PLAIN_HEADER: [u8; LONG_HEADER] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Flags of the header.
const NEEDS_CSUM: u8 = 1;
/// Kinds of segmentation.
pub(crate) const GSO_TCP4: u8 = 1;
pub(crate) const GSO_TCP6: u8 = 4;
pub(crate) const GSO_UDP: u8 = 5;
pub(crate) const GSO_ECN: u8 = 0x80;

/// The least bytes of a TCP segment that a driver may ask for: what Linux sends at least
/// (`TCP_MIN_SND_MSS`). With less, a single frame would be tens of thousands of them.
const MIN_TCP_SEGMENT: u16 = 48;
/// Datagrams that a driver may have made of one: as many as Linux has (`UDP_MAX_SEGMENTS`).
const MAX_UDP_SEGMENTS: usize = 128;
/// Bytes of UDP's header.
const UDP_HEADER: usize = 8;

/// True if segments of `size` bytes may be made of a frame of `length` bytes whose transport
/// header begins at `start`.
fn is_sound(kind: u8, size: u16, length: usize, start: usize) -> bool {
    if kind & !GSO_ECN == GSO_UDP {
        let payload = length.saturating_sub(start + UDP_HEADER);
        return size > 0 && payload.div_ceil(usize::from(size)) <= MAX_UDP_SEGMENTS;
    }
    size >= MIN_TCP_SEGMENT
}

/// Bytes that are copied and looked at: a header and 20 bytes of the frame.
pub(crate) const HEAD: usize = 32;
/// Bytes of a frame that is short, with its header.
pub(crate) const SHORT: usize = 128;

/// Bytes of a frame that are looked at: what follows the header in [`HEAD`] bytes.
pub(crate) const BEGINNING: usize = HEAD - LONG_HEADER;

/// Short frames of a burst that ask for nothing, whole: by the chain's number. All of
/// them are read before any is written anywhere: a read that had to wait for writes to
/// memory which another core has would make a frame cost a transfer between cores, not a
/// part of one.
#[derive(Debug)]
pub(crate) struct ShortFrames(Vec<[u8; SHORT]>);

impl ShortFrames {
    pub(crate) fn new(burst: usize) -> Self {
        Self(vec![[0; SHORT]; burst])
    }

    /// The frame of `length` bytes behind a header that asks for nothing, and the bytes
    /// of both.
    #[inline]
    pub(crate) fn get(&self, chain: u8, length: u32) -> (&[u8; SHORT], usize) {
        (&self.0[usize::from(chain)], (LONG_HEADER + length as usize).min(SHORT))
    }

    /// Takes the frame of a chain in, if it is short, has a long header which asks for
    /// nothing, and lies in one buffer or behind a header in one of its own, as many drivers
    /// give it. False if it is not taken.
    #[inline]
    pub(crate) fn take(
        &mut self,
        number: usize,
        segments: &[GuestBuffer<'_>],
        bytes: usize,
    ) -> bool {
        if !(HEAD..=SHORT).contains(&bytes) {
            return false;
        }
        let own = &mut self.0[number];
        match segments {
            [only] => {
                only.bytes().copy_out_short(own);
                if own[0] & NEEDS_CSUM != 0 || own[1] != 0 {
                    return false;
                }
            }
            [first, rest] if first.len() == LONG_HEADER => {
                rest.bytes().copy_out_short(&mut own[LONG_HEADER..]);
                let [word] = first.bytes().words().expect("it is longer");
                if word as u8 & NEEDS_CSUM != 0 || word >> 8 & 0xff != 0 {
                    return false;
                }
            }
            _ => return false,
        }
        own[..LONG_HEADER].copy_from_slice(&PLAIN_HEADER);
        true
    }

    /// True if the frames of the first `count` chains, all of them taken, have the same
    /// addresses and type.
    pub(crate) fn go_the_same_way(&self, count: usize) -> bool {
        let way = |frame: &[u8; SHORT]| {
            let way = &frame[LONG_HEADER..LONG_HEADER + ETHERNET];
            let word = |part: &[u8]| u64::from_ne_bytes(*part.first_chunk().expect("8 bytes"));
            [word(way), word(&way[ETHERNET - 8..])]
        };
        let [first, second] = way(&self.0[0]);
        let differences = self.0[..count].iter().map(way);
        differences.fold(0, |all, [one, two]| all | (one ^ first) | (two ^ second)) == 0
    }

    /// The beginning of a chain's frame that was taken.
    #[inline]
    pub(crate) fn beginning(&self, number: usize) -> &[u8; BEGINNING] {
        self.0[number][LONG_HEADER..].first_chunk().expect("it is longer")
    }
}

/// A frame of a burst.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BurstFrame {
    /// The chain, by its number in the burst.
    pub(crate) chain: u8,
    /// Its number among the burst's [`EthernetFrame`]s; none if it is among the short ones.
    pub(crate) long: Option<u8>,
    /// Bytes, without the header.
    pub(crate) length: u32,
}

/// The Virtio header without `num_buffers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Offload {
    /// The checksum is still to be computed: where it begins, and where in there
    /// it goes.
    pub(crate) checksum: Option<(u16, u16)>,
    /// Segments are still to be made: their kind with the ECN bit, and size.
    pub(crate) segments: Option<(u8, u16)>,
    /// Bytes of all headers, with `segments`.
    pub(crate) headers: u16,
}

impl Offload {
    /// From a header that came with a frame of `length` bytes, the first `link` of which are
    /// the link's header, from a driver that agreed on `agreed`. Each part is checked against
    /// the frame; nothing of the link's header may be a checksum's place, as frames were
    /// judged by it.
    pub(crate) fn read(
        header: &[u8],
        length: usize,
        link: usize,
        agreed: u64,
    ) -> Result<Self, DropReason> {
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (flags, kind) = (header[0], header[1]);
        let bad = Err(DropReason::BadOffload);
        let mut offload = Self::default();
        if flags & NEEDS_CSUM != 0 {
            let (start, offset) = (word(6), word(8));
            let end = usize::from(start) + usize::from(offset) + 2;
            if agreed & features::CSUM == 0 || end > length || usize::from(start) < link {
                return bad;
            }
            offload.checksum = Some((start, offset));
        }
        if kind != 0 {
            let needed = match kind & !GSO_ECN {
                GSO_TCP4 => features::HOST_TSO4,
                GSO_TCP6 => features::HOST_TSO6,
                GSO_UDP => features::HOST_USO,
                _ => return bad,
            };
            let needed = needed | if kind & GSO_ECN != 0 { features::HOST_ECN } else { 0 };
            let size = word(4);
            // Segments need checksums of their own.
            let Some((start, _)) = offload.checksum else { return bad };
            if agreed & needed != needed || !is_sound(kind, size, length, usize::from(start)) {
                return bad;
            }
            offload.segments = Some((kind, size));
            offload.headers = word(2).min(u16::try_from(length).unwrap_or(u16::MAX));
        }
        Ok(offload)
    }

    /// The header's bytes, for a frame in one buffer.
    pub(crate) fn write(self) -> [u8; LONG_HEADER] {
        let mut header = [0; LONG_HEADER];
        if let Some((start, offset)) = self.checksum {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&start.to_le_bytes());
            header[8..10].copy_from_slice(&offset.to_le_bytes());
        }
        if let Some((kind, size)) = self.segments {
            header[1] = kind;
            header[2..4].copy_from_slice(&self.headers.to_le_bytes());
            header[4..6].copy_from_slice(&size.to_le_bytes());
        }
        header[10] = 1;
        header
    }

    /// True if a driver that agreed on `agreed` takes the frame as it is.
    pub(crate) fn is_taken_by(self, agreed: u64) -> bool {
        let mut needed = if self.checksum.is_some() { features::GUEST_CSUM } else { 0 };
        if let Some((kind, _)) = self.segments {
            needed |= if kind & GSO_ECN != 0 { features::GUEST_ECN } else { 0 };
            needed |= match kind & !GSO_ECN {
                GSO_TCP4 => features::GUEST_TSO4,
                GSO_TCP6 => features::GUEST_TSO6,
                // The header does not say which of both networks it is: Linux drivers
                // agree on both or none.
                _ => features::GUEST_USO4 | features::GUEST_USO6,
            };
        }
        agreed & needed == needed
    }

    /// The same after `bytes` were put into (or taken out of) the link's header.
    pub(crate) fn moved(self, bytes: i16) -> Self {
        let by = |value: u16| value.saturating_add_signed(bytes);
        Self {
            checksum: self.checksum.map(|(start, offset)| (by(start), offset)),
            headers: if self.segments.is_some() { by(self.headers) } else { 0 },
            ..self
        }
    }
}

/// The beginning of a frame that is not among the short ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EthernetFrame {
    /// The long header, then the frame's first bytes.
    pub(crate) head: [u8; HEAD],
    /// The same with a header that asks for nothing. It is made here, long before it is
    /// copied: a read behind a write of another width waits until that write is done, and
    /// all writes to other cores' memory before it.
    pub(crate) plain: [u8; HEAD],
    /// Bytes of `head` that there are.
    pub(crate) head_length: u8,
    /// True if the header asks for anything.
    pub(crate) has_offload: bool,
    /// Bytes of the chain that `head` has taken.
    pub(crate) taken: u8,
}

impl EthernetFrame {
    /// Reads the beginning of a chain's frame; with it the frame's bytes.
    pub(crate) fn read(
        segments: &[GuestBuffer<'_>],
        bytes: u32,
        device_header: usize,
    ) -> Result<(Self, u32), DropReason> {
        let bytes = bytes as usize;
        if segments.is_empty() {
            return Err(DropReason::Malformed);
        }
        if bytes < device_header + ETHERNET {
            return Err(DropReason::Runt);
        }
        let whole = bytes.min(HEAD);
        let (head, head_length, taken) = match segments[0].bytes().head() {
            Some(head) if device_header == LONG_HEADER => (head, HEAD, HEAD),
            _ => {
                let mut raw = [0; HEAD];
                gather(segments, &mut raw[..whole]);
                if device_header == LONG_HEADER {
                    (raw, whole, whole)
                } else {
                    // The long header has two bytes more.
                    let taken = whole.min(HEAD - 2);
                    let mut head = [0; HEAD];
                    head[..device_header].copy_from_slice(&raw[..device_header]);
                    head[LONG_HEADER..taken + 2].copy_from_slice(&raw[device_header..taken]);
                    (head, taken + 2, taken)
                }
            }
        };
        let has_offload = head[0] & NEEDS_CSUM != 0 || head[1] != 0;
        let mut plain = head;
        plain[..LONG_HEADER].copy_from_slice(&PLAIN_HEADER);
        let frame =
            Self { head, plain, head_length: head_length as u8, has_offload, taken: taken as u8 };
        Ok((frame, (bytes - device_header) as u32))
    }

    /// True if the frame of `length` bytes is longer than a port with this MTU carries.
    /// Segments that are still to be made count one by one.
    pub(crate) fn exceeds(&self, length: u32, mtu: u16) -> bool {
        exceeds(&self.head, length as usize, mtu)
    }

    /// The frame's beginning; zeros behind its end.
    #[inline]
    pub(crate) fn beginning(&self) -> &[u8; BEGINNING] {
        self.head.last_chunk().expect("the head holds it")
    }
}

/// Address of whom a frame is for.
#[inline]
pub(crate) fn destination(beginning: &[u8; BEGINNING]) -> [u8; 6] {
    *beginning.first_chunk().expect("it holds it")
}

/// Address of who sent a frame.
#[inline]
pub(crate) fn source(beginning: &[u8; BEGINNING]) -> [u8; 6] {
    *beginning[6..].first_chunk().expect("it holds it")
}

/// The VLAN of the tag of a frame of `length` bytes, if it has one.
#[inline]
pub(crate) fn tag(beginning: &[u8; BEGINNING], length: u32) -> Option<u16> {
    let tagged = length as usize >= ETHERNET + TAG && beginning[12..14] == TAG_TYPE;
    tagged.then(|| u16::from_be_bytes([beginning[14], beginning[15]]) & 0xfff)
}

/// True if a frame of `length` bytes, or a segment of it, is longer than `mtu` allows;
/// `head` begins with the long header, which may ask for segments.
#[inline]
pub(crate) fn exceeds(head: &[u8], length: usize, mtu: u16) -> bool {
    let at = LONG_HEADER + 12;
    let tagged = head.get(at..at + 2) == Some(&TAG_TYPE);
    let most = ETHERNET + usize::from(mtu) + if tagged { TAG } else { 0 };
    if length <= most {
        return false;
    }
    let word = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
    head[1] == 0 || word(2).max(ETHERNET) + word(4) > most
}

/// Copies the beginning of `segments` to `own`, each byte read once.
fn gather(segments: &[GuestBuffer<'_>], own: &mut [u8]) {
    let mut done = 0;
    for segment in segments {
        if done == own.len() {
            return;
        }
        done += segment.bytes().read(&mut own[done..]);
    }
}

/// A tag's four bytes.
pub(crate) fn tag_bytes(vlan: u16) -> [u8; TAG] {
    let [high, low] = vlan.to_be_bytes();
    [TAG_TYPE[0], TAG_TYPE[1], high, low]
}

/// What spreads frames over a receiver's queues: frames of one connection go the
/// same way. Looks at IP's addresses and the ports of TCP and UDP; of fragments at the
/// addresses alone, of all else at Ethernet's.
pub(crate) fn spread(head: &[u8], pieces: &[ByteRange<'_>], queues: usize) -> usize {
    let mut bytes = [0_u8; 64];
    let mut length = head.len().min(bytes.len());
    bytes[..length].copy_from_slice(&head[..length]);
    for piece in pieces {
        length += piece.read(&mut bytes[length..]);
    }
    let mut at = 12;
    if bytes[12..14] == TAG_TYPE {
        at += TAG;
    }
    // Addresses and ports lie in one range each for TCP and UDP without options.
    let parts: [(usize, usize); 2] = match [bytes[at], bytes[at + 1]] {
        [0x08, 0x00] if bytes[at + 2] == 0x45 && matches!(bytes[at + 11], 6 | 17) => {
            // A datagram's first fragment alone has the ports.
            let fragment = u16::from_be_bytes([bytes[at + 8], bytes[at + 9]]) & 0x3fff;
            [(at + 14, if fragment == 0 { 12 } else { 8 }), (0, 0)]
        }
        [0x86, 0xdd] if matches!(bytes[at + 8], 6 | 17) => [(at + 10, 32), (at + 42, 4)],
        _ => [(0, 12), (0, 0)],
    };
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for (from, count) in parts {
        for &byte in bytes.iter().skip(from).take(count) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    // The last bytes have not reached the upper half yet: without this, flows that differ in
    // the port that they go to would all have the same of two or four queues.
    hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 32) as usize % queues
}

/// True if what `device` agreed on lets it receive the frame without a change.
pub(crate) fn takes(device: &VhostDevice, offload: Offload) -> bool {
    offload.is_taken_by(device.features)
}
