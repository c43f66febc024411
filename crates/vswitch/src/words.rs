//! Words for what a switch shows.

use crate::message::features;

/// The features of Virtio that matter here, as the specification calls them, short.
const FEATURES: &[(u64, &str)] = &[
    (features::RING_PACKED, "packed"),
    (features::MRG_RXBUF, "mergeable"),
    (features::INDIRECT, "indirect"),
    (features::EVENT_IDX, "event-idx"),
    (features::IN_ORDER, "in-order"),
    (features::CSUM, "csum"),
    (features::GUEST_CSUM, "guest-csum"),
    (features::HOST_TSO4, "host-tso4"),
    (features::HOST_TSO6, "host-tso6"),
    (features::GUEST_TSO4, "guest-tso4"),
    (features::GUEST_TSO6, "guest-tso6"),
    (features::LOG_ALL, "log"),
];

/// The names of the bits in `agreed` that are known.
pub(crate) fn feature_words(agreed: u64) -> Vec<String> {
    let known = FEATURES.iter().filter(|(bit, _)| agreed & bit != 0);
    known.map(|(_, word)| (*word).to_owned()).collect()
}
