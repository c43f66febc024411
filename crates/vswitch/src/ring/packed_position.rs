//! Places in a packed ring.

use super::flags;

/// The wrap counter in a position, and in `GET_VRING_BASE`'s halves.
pub(super) const WRAP: u32 = 1 << 15;

/// Flags that say whose turn a descriptor is.
pub(super) const TURN: u16 = flags::AVAIL | flags::USED;

/// A place in the ring, and the counter of rounds there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedPosition {
    pub(super) index: u16,
    pub(super) wrap: bool,
}

impl PackedPosition {
    #[inline]
    pub(super) fn of(position: u32) -> Self {
        Self { index: (position & (WRAP - 1)) as u16, wrap: position & WRAP != 0 }
    }

    #[inline]
    pub(super) fn position(self) -> u32 {
        u32::from(self.index) | if self.wrap { WRAP } else { 0 }
    }

    /// Goes on by descriptors of a ring of `size`, at most that many.
    #[inline]
    pub(super) fn advance(self, slots: u16, size: u16) -> Self {
        let next = u32::from(self.index) + u32::from(slots);
        match next.checked_sub(u32::from(size)) {
            Some(next) => Self { index: next as u16, wrap: !self.wrap },
            None => Self { index: next as u16, wrap: self.wrap },
        }
    }

    /// The flags of a descriptor here that the driver has made available.
    #[inline]
    pub(super) fn available(self) -> u16 {
        if self.wrap { flags::AVAIL } else { flags::USED }
    }

    /// The flags of one here that the device has used.
    #[inline]
    pub(super) fn used(self) -> u16 {
        if self.wrap { TURN } else { 0 }
    }
}
