//! Work: what a frame makes the thread do that forwards it. A port's turn is measured by
//! it, not by what it sent: a large segment that is to be cut, and a frame that goes to all
//! ports, are many times what came in.

use crate::device::{LONG_HEADER, VhostDevice};
use crate::frame::{ETHERNET, EthernetFrame, Offload};

/// Work after which a port's turn is over, in bytes copied.
pub(crate) const TURN_WORK: u64 = 256 * 1024;
/// Bytes that could be copied in the time of what else there is to do for a frame that is
/// given to a receiver, or a segment.
const FRAME_WORK: u64 = 256;

/// The work of giving a frame of `length` bytes to a driver that agreed on `agreed`: one
/// that does not take segments gets each with headers of its own.
pub(crate) fn work_of(offload: Offload, length: u32, agreed: u64) -> u64 {
    let count = match offload.segments {
        Some((_, size)) if !offload.is_taken_by(agreed) => length.div_ceil(u32::from(size).max(1)),
        _ => 1,
    };
    u64::from(length) + u64::from(count) * FRAME_WORK
}

/// A frame whose receivers are known one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameWork {
    offload: Offload,
    length: u32,
}

impl FrameWork {
    /// Of a frame that asks for nothing.
    pub(crate) fn plain(length: u32) -> Self {
        Self { offload: Offload::default(), length }
    }

    /// Of a frame whose sender agreed on `agreed`. One whose header lies is dropped by all.
    pub(crate) fn new(long: Option<&EthernetFrame>, length: u32, agreed: u64) -> Self {
        let offload = long.filter(|long| long.has_offload).and_then(|long| {
            Offload::read(&long.head[..LONG_HEADER], length as usize, ETHERNET, agreed).ok()
        });
        Self { offload: offload.unwrap_or_default(), length }
    }

    /// What it is for one receiver.
    pub(crate) fn to(self, device: &VhostDevice) -> u64 {
        work_of(self.offload, self.length, device.features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::GSO_TCP4;
    use crate::message::features;

    #[test]
    fn what_is_to_be_cut_is_more_work_than_what_passes() {
        let length = 64_054;
        let cut = |size| Offload {
            checksum: Some((34, 16)),
            segments: Some((GSO_TCP4, size)),
            headers: 54,
        };
        let takes = features::GUEST_CSUM | features::GUEST_TSO4;
        assert_eq!(work_of(Offload::default(), 60, 0), 60 + FRAME_WORK);
        assert_eq!(work_of(cut(1400), length, takes), 64_054 + FRAME_WORK);
        assert_eq!(work_of(cut(1400), length, features::GUEST_CSUM), 64_054 + 46 * FRAME_WORK);
        // The smallest segments are more than a turn.
        assert!(work_of(cut(48), length, 0) > TURN_WORK);
    }
}
