//! Tags that are put on and taken off, with what is still to be computed behind them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::counters::PortCounters;
use crate::frame::GSO_TCP4;
use crate::offload::complete_checksum;
use crate::port::Policy;

fn port(vlan: Vlan) -> PortView {
    PortView {
        number: 0,
        policy: Policy { vlan, ..Policy::default() },
        device: None,
        counters: Arc::new(PortCounters::default()),
        limiter: None,
        watches: Vec::new(),
    }
}

fn trunk() -> PortView {
    port(Vlan::Trunk(BTreeSet::from([10, 20])))
}

proptest! {
    /// What an access port's guest sent comes to another as it was, over any trunk; a tag
    /// moves all offsets by as many bytes as the frame gets longer, so that a checksum which
    /// is computed behind it is the one that would have been computed before.
    #[test]
    fn a_tag_that_is_put_on_and_taken_off_leaves_the_frame_as_it_was(
        plain in prop::collection::vec(any::<u8>(), ETHERNET..200),
        vlan in 1..=4094_u16,
        priority in any::<u8>(),
        start in 14..200_u16,
        offset in 0..40_u16,
        headers in 0..200_u16,
        size in 1..1500_u16,
    ) {
        let fits = usize::from(start + offset) + 2 <= plain.len();
        let offload = Offload {
            checksum: fits.then_some((start, offset)),
            segments: fits.then_some((GSO_TCP4, size)),
            headers: if fits { headers } else { 0 },
        };
        let access = port(Vlan::Access(vlan));
        let mut whole = plain.clone();
        let moved = retag(&access, &trunk(), &mut whole, offload);
        let mut expected = plain.clone();
        let tag = [0x81, 0x00, (vlan >> 8) as u8, vlan as u8];
        expected.splice(12..12, tag);
        prop_assert_eq!(&whole, &expected);
        prop_assert_eq!(moved.checksum, offload.checksum.map(|(at, offset)| (at + 4, offset)));
        prop_assert_eq!(moved.segments, offload.segments);
        prop_assert_eq!(moved.headers, if fits { headers + 4 } else { 0 });

        let mut summed = whole.clone();
        // Whatever else stands beside the VLAN.
        whole[14] |= priority & 0xf0;
        let back = retag(&trunk(), &access, &mut whole, moved);
        prop_assert_eq!(&whole, &plain);
        prop_assert_eq!(back, offload);

        if let (Some((start, offset)), Some((moved, _))) = (offload.checksum, moved.checksum) {
            complete_checksum(&mut summed, moved, offset);
            complete_checksum(&mut whole, start, offset);
            summed.drain(12..16);
            prop_assert_eq!(summed, whole);
        }
    }

    /// Between ports of one kind nothing is changed, and what is too short for a tag has none.
    #[test]
    fn what_needs_no_other_tag_is_left_alone(
        plain in prop::collection::vec(any::<u8>(), ETHERNET..100),
        vlan in 1..=4094_u16,
    ) {
        let access = port(Vlan::Access(vlan));
        for (from, to, most) in [
            (port(Vlan::Unaware), port(Vlan::Unaware), usize::MAX),
            (access.clone(), access.clone(), usize::MAX),
            (trunk(), access, ETHERNET + TAG - 1),
        ] {
            let mut whole = plain.clone();
            whole.truncate(most);
            let before = whole.clone();
            let offload = retag(&from, &to, &mut whole, Offload::default());
            prop_assert_eq!(&whole, &before);
            prop_assert_eq!(offload, Offload::default());
        }
    }
}
