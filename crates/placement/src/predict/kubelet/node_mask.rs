//! Sets of memory nodes.

use std::collections::BTreeSet;

/// Nodes by number, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeMask(u64);

impl NodeMask {
    pub(super) fn of(nodes: impl IntoIterator<Item = u32>) -> Self {
        Self(nodes.into_iter().fold(0, |mask, node| mask | 1u64.checked_shl(node).unwrap_or(0)))
    }

    /// Every set of these nodes but the empty one: small ones first, of one size in
    /// lexicographic order.
    pub(super) fn subsets(nodes: &BTreeSet<u32>) -> Vec<Self> {
        let nodes: Vec<u32> = nodes.iter().copied().collect();
        let mut places: Vec<u64> = (1..1u64 << nodes.len()).collect();
        places.sort_by_key(|mask| (mask.count_ones(), std::cmp::Reverse(mask.reverse_bits())));
        let set = |mask: u64| Self::of(Self(mask).nodes().map(|place| nodes[place as usize]));
        places.into_iter().map(set).collect()
    }

    pub(super) fn contains(self, node: u32) -> bool {
        Self::of([node]).0 & self.0 != 0
    }

    pub(super) fn contains_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    pub(super) fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Ascending.
    pub(super) fn nodes(self) -> impl Iterator<Item = u32> + Clone {
        let rest = |mask: &u64| Some(mask & (mask - 1)).filter(|mask| *mask != 0);
        let masks = std::iter::successors(Some(self.0).filter(|mask| *mask != 0), rest);
        masks.map(u64::trailing_zeros)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether it has fewer nodes, or as many with lower numbers.
    pub(super) fn is_narrower_than(self, other: Self) -> bool {
        (self.count(), self) < (other.count(), other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_come_by_size_and_then_by_their_nodes() {
        let nodes: BTreeSet<u32> = [0, 2, 3].into();
        let listed = |mask: NodeMask| mask.nodes().collect::<Vec<_>>();
        let all: Vec<Vec<u32>> = NodeMask::subsets(&nodes).into_iter().map(listed).collect();
        let by_hand: [&[u32]; 7] = [&[0], &[2], &[3], &[0, 2], &[0, 3], &[2, 3], &[0, 2, 3]];
        assert_eq!(all, by_hand);
        assert_eq!(NodeMask::of([63]).nodes().collect::<Vec<_>>(), [63]);
        assert_eq!(NodeMask::of([]).nodes().count(), 0);
    }
}
