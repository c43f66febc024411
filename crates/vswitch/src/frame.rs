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
const PLAIN_HEADER: [u8; LONG_HEADER] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Flags of the header.
const NEEDS_CSUM: u8 = 1;
/// Kinds of segmentation.
pub(crate) const GSO_TCP4: u8 = 1;
pub(crate) const GSO_TCP6: u8 = 4;
pub(crate) const GSO_UDP: u8 = 5;
pub(crate) const GSO_ECN: u8 = 0x80;

/// Bytes that are copied and looked at: a header and 20 bytes of the frame.
pub(crate) const HEAD: usize = 32;
/// Bytes of a frame that is short, with its header.
pub(crate) const SHORT: usize = 128;

/// Short frames of a burst, whole: by the chain's number. All of them are read before
/// any is written anywhere: a read that had to wait for writes to memory which another
/// core has would make a frame cost a transfer between cores, not a part of one.
#[derive(Debug)]
pub(crate) struct ShortFrames(Vec<[u8; SHORT]>);

impl ShortFrames {
    pub(crate) fn new(burst: usize) -> Self {
        Self(vec![[0; SHORT]; burst])
    }

    /// The frame behind a header that asks for nothing, `bytes` in all.
    #[inline]
    pub(crate) fn get(&self, chain: u8, bytes: usize) -> (&[u8; SHORT], usize) {
        (&self.0[usize::from(chain)], bytes.min(SHORT))
    }
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
    /// From a header that came with a frame of `length` bytes, from a driver that
    /// agreed on `agreed`. Each part is checked against the frame.
    pub(crate) fn read(header: &[u8], length: usize, agreed: u64) -> Result<Self, DropReason> {
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (flags, kind) = (header[0], header[1]);
        let bad = Err(DropReason::BadOffload);
        let mut offload = Self::default();
        if flags & NEEDS_CSUM != 0 {
            let (start, offset) = (word(6), word(8));
            let end = usize::from(start) + usize::from(offset) + 2;
            if agreed & features::CSUM == 0 || end > length || usize::from(start) < ETHERNET {
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
            if agreed & needed != needed || size == 0 || offload.checksum.is_none() {
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

/// A frame that a driver sent, as far as it is read.
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
    /// The chain, by its number in the burst.
    pub(crate) chain: u8,
    /// The whole of it is among the short ones.
    pub(crate) is_short: bool,
    /// Bytes of the frame.
    pub(crate) length: u32,
}

impl EthernetFrame {
    /// Reads the beginning of a chain's frame.
    #[inline]
    pub(crate) fn read(
        chain: u8,
        segments: &[GuestBuffer<'_>],
        bytes: u32,
        device_header: usize,
        short: &mut ShortFrames,
    ) -> Result<Self, DropReason> {
        let bytes = bytes as usize;
        if segments.is_empty() {
            return Err(DropReason::Malformed);
        }
        if bytes < device_header + ETHERNET {
            return Err(DropReason::Runt);
        }
        if let ([only], true) = (segments, device_header == LONG_HEADER)
            && (HEAD..=SHORT).contains(&bytes)
        {
            let own = &mut short.0[usize::from(chain)];
            only.bytes().copy_out_short(own);
            let head = *own.first_chunk().expect("it is longer");
            own[..LONG_HEADER].copy_from_slice(&PLAIN_HEADER);
            return Ok(Self {
                head,
                plain: [0; HEAD],
                head_length: HEAD as u8,
                has_offload: head[0] & NEEDS_CSUM != 0 || head[1] != 0,
                taken: HEAD as u8,
                chain,
                is_short: true,
                length: (bytes - device_header) as u32,
            });
        }
        if let ([first, rest], true) = (segments, device_header == LONG_HEADER)
            && first.len() == LONG_HEADER
            && (HEAD..=SHORT).contains(&bytes)
        {
            // Many drivers give the header a descriptor of its own.
            let own = &mut short.0[usize::from(chain)];
            rest.bytes().copy_out_short(&mut own[LONG_HEADER..]);
            let mut head = [0; HEAD];
            head[LONG_HEADER..].copy_from_slice(&own[LONG_HEADER..HEAD]);
            own[..LONG_HEADER].copy_from_slice(&PLAIN_HEADER);
            // Flags, kind, lengths; then where the checksum goes, and a number that only
            // receivers look at.
            let [word] = first.bytes().words().expect("it is longer");
            head[..8].copy_from_slice(&word.to_le_bytes());
            first.bytes().after(8).read(&mut head[8..LONG_HEADER]);
            return Ok(Self {
                head,
                plain: [0; HEAD],
                head_length: HEAD as u8,
                has_offload: word as u8 & NEEDS_CSUM != 0 || word >> 8 & 0xff != 0,
                taken: HEAD as u8,
                chain,
                is_short: true,
                length: (bytes - device_header) as u32,
            });
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
        Ok(Self {
            head,
            plain,
            head_length: head_length as u8,
            has_offload,
            taken: taken as u8,
            chain,
            is_short: false,
            length: (bytes - device_header) as u32,
        })
    }

    #[inline]
    pub(crate) fn destination(&self) -> [u8; 6] {
        *self.head[LONG_HEADER..].first_chunk().expect("the head holds it")
    }

    #[inline]
    pub(crate) fn source(&self) -> [u8; 6] {
        *self.head[LONG_HEADER + 6..].first_chunk().expect("the head holds it")
    }

    /// True if it is longer than a port with this MTU carries. Segments that are still to
    /// be made count one by one.
    #[inline]
    pub(crate) fn exceeds(&self, mtu: u16) -> bool {
        exceeds(&self.head, self.length as usize, mtu)
    }

    /// The VLAN of its tag, if it has one.
    #[inline]
    pub(crate) fn tag(&self) -> Option<u16> {
        let at = LONG_HEADER + 12;
        let tagged = self.length as usize >= ETHERNET + TAG && self.head[at..at + 2] == TAG_TYPE;
        tagged.then(|| u16::from_be_bytes([self.head[at + 2], self.head[at + 3]]) & 0xfff)
    }
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
/// same way. Looks at addresses and, over IP, ports.
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
            [(at + 14, 12), (0, 0)]
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
    (hash >> 32) as usize % queues
}

/// True if what `device` agreed on lets it receive the frame without a change.
pub(crate) fn takes(device: &VhostDevice, offload: Offload) -> bool {
    offload.is_taken_by(device.features)
}
