//! What a sender left to its network card and a receiver does not do: checksums
//! and segments, computed here. Pure: from bytes to bytes.
//!
//! Source: RFC 1071 (the sum), RFC 9293 and RFC 8200 (the headers); Linux
//! `Documentation/networking/segmentation-offloads.rst`.

use crate::counters::OffloadWork;
use crate::frame::{GSO_ECN, GSO_TCP4, GSO_UDP, Offload};

/// The sum of `bytes` as 16-bit words, not folded.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2);
    words.map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0))).sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Computes the checksum that starts at `start` and puts it `offset` bytes behind
/// there, where the sum of the pseudo header stands. Both were checked to lie in
/// the frame.
pub(crate) fn complete_checksum(frame: &mut [u8], start: u16, offset: u16) {
    let start = usize::from(start);
    let at = start + usize::from(offset);
    let Some(covered) = frame.get(start..) else { return };
    let value = match fold(sum(covered)) {
        // Over UDP, none means that there is no checksum; both are the same number.
        0 => 0xffff,
        value => value,
    };
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Does what a receiver that agreed on `agreed` does not, and gives it what there is to
/// give then: the frame with its offload, or its segments. Says what there was to do; None
/// if the frame is not what its header says. `space` is used again from one to the next.
pub(crate) fn for_each_taken(
    frame: &mut [u8],
    offload: Offload,
    agreed: u64,
    space: &mut Vec<u8>,
    mut take: impl FnMut(&[u8], Offload),
) -> Option<OffloadWork> {
    let none = Offload::default();
    if offload.is_taken_by(agreed) {
        take(frame, offload);
        return Some(OffloadWork::None);
    }
    if offload.segments.is_some() {
        for_each_segment(frame, offload, space, |part| take(part, none))?;
        return Some(OffloadWork::Segments);
    }
    let Some((start, offset)) = offload.checksum else {
        take(frame, none);
        return Some(OffloadWork::None);
    };
    complete_checksum(frame, start, offset);
    take(frame, none);
    Some(OffloadWork::Checksum)
}

/// The segments of a large TCP or UDP frame, each with its checksums; none if the frame
/// is not what its header says. `space` is used again from one to the next.
pub(crate) fn for_each_segment(
    frame: &[u8],
    offload: Offload,
    space: &mut Vec<u8>,
    mut take: impl FnMut(&[u8]),
) -> Option<()> {
    let (kind, size) = offload.segments?;
    let (transport, _) = offload.checksum?;
    let (transport, size) = (usize::from(transport), usize::from(size));
    let udp = kind & !GSO_ECN == GSO_UDP;
    // The network header lies between the link's and the transport's.
    let (network, four) = network_header(frame)?;
    let told = udp || four == (kind & !GSO_ECN == GSO_TCP4);
    if !told || transport < network + if four { 20 } else { 40 } {
        return None;
    }
    let words = if udp { 2 } else { frame.get(transport + 12)? >> 4 };
    let headers = transport + usize::from(words) * 4;
    let fits = headers - network + size <= usize::from(u16::MAX);
    let payload = frame.get(headers..).filter(|_| (udp || words >= 5) && fits)?;
    let sequence = frame.get(transport + 4..)?.first_chunk().copied().map(u32::from_be_bytes)?;
    let identification = u16::from_be_bytes([frame[network + 4], frame[network + 5]]);
    let count = payload.len().div_ceil(size).max(1);
    for index in 0..count {
        let from = index * size;
        let part = &payload[from..payload.len().min(from + size)];
        space.clear();
        space.extend_from_slice(&frame[..headers]);
        space.extend_from_slice(part);
        let segment = space.as_mut_slice();
        let put = |segment: &mut [u8], at: usize, bytes: &[u8]| {
            segment[at..at + bytes.len()].copy_from_slice(bytes);
        };
        let behind_network = (headers - network + part.len()) as u16;
        if four {
            put(segment, network + 2, &behind_network.to_be_bytes());
            let id = identification.wrapping_add(index as u16);
            put(segment, network + 4, &id.to_be_bytes());
            put(segment, network + 10, &[0, 0]);
            let header = network + usize::from(segment[network] & 15) * 4;
            let header = header.clamp(network + 20, transport);
            let checksum = fold(sum(&segment[network..header]));
            put(segment, network + 10, &checksum.to_be_bytes());
        } else {
            put(segment, network + 4, &(behind_network - 40).to_be_bytes());
        }
        let length = (segment.len() - transport) as u64;
        let (protocol, at) = if udp { (17, 6) } else { (6, 16) };
        if udp {
            put(segment, transport + 4, &(length as u16).to_be_bytes());
        } else {
            let from = u32::try_from(from).expect("frames are short");
            put(segment, transport + 4, &sequence.wrapping_add(from).to_be_bytes());
            // Of the flags, FIN and PSH belong to the last, CWR to the first.
            if index + 1 < count {
                segment[transport + 13] &= !0x09;
            }
            if index > 0 {
                segment[transport + 13] &= !0x80;
            }
        }
        // The sum of the pseudo header is made anew: the length is another.
        let addresses = if four { network + 12..network + 20 } else { network + 8..network + 40 };
        let pseudo = sum(&segment[addresses]) + protocol + length;
        put(segment, transport + at, &(!fold(pseudo)).to_be_bytes());
        complete_checksum(segment, transport as u16, at as u16);
        take(segment);
    }
    Some(())
}

/// Where the network header begins, behind up to two tags, and whether it is IPv4's.
fn network_header(frame: &[u8]) -> Option<(usize, bool)> {
    let mut at = 12;
    for _ in 0..3 {
        match frame.get(at..at + 2)? {
            [0x81, 0x00] | [0x88, 0xa8] => at += 4,
            [0x08, 0x00] => return Some((at + 2, true)),
            [0x86, 0xdd] => return Some((at + 2, false)),
            _ => return None,
        }
    }
    None
}
