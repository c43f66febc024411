//! Frames that don't go as they came: taken into memory of our own, with or without a tag.

use super::reach::from_tagged;
use crate::frame::{ETHERNET, Offload, TAG, tag_bytes};
use crate::memory::ByteRange;
use crate::port::{PortView, Vlan};

/// Bytes of the link's header of frames that a port may send.
pub(super) fn link_header(from: &PortView) -> usize {
    if from_tagged(from) { ETHERNET + TAG } else { ETHERNET }
}

/// The whole frame in memory of our own, and its offload, sound still.
pub(super) fn flatten(
    head: &[u8],
    pieces: &[ByteRange<'_>],
    offload: Offload,
    whole: &mut Vec<u8>,
) -> Offload {
    whole.clear();
    whole.extend_from_slice(head);
    for piece in pieces {
        let before = whole.len();
        whole.resize(before + piece.len(), 0);
        piece.copy_out(&mut whole[before..]);
    }
    offload
}

/// Takes the tag off, or puts one on.
pub(super) fn retag(
    from: &PortView,
    to: &PortView,
    whole: &mut Vec<u8>,
    offload: Offload,
) -> Offload {
    const AT: usize = ETHERNET - 2;
    match &from.policy.vlan {
        Vlan::Trunk(_) if whole.len() >= ETHERNET + TAG => {
            whole.drain(AT..AT + TAG);
            offload.moved(-(TAG as i16))
        }
        Vlan::Access(vlan) if from_tagged(to) => {
            whole.splice(AT..AT, tag_bytes(*vlan));
            offload.moved(TAG as i16)
        }
        _ => offload,
    }
}
