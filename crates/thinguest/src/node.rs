//! Memory by guest node, as firmware tells it.

/// Guest nodes that are told apart; memory of others is left out.
pub const MAX_NODES: usize = 8;
/// Those but the nearest one.
pub const MAX_FAR_NODES: usize = MAX_NODES - 1;

/// A piece of physical memory: where it begins and ends, bytes.
pub type PhysicalRange = (u64, u64);

/// What is known of the nodes' memory. Firmware may name it in any order, in several pieces a
/// node.
#[derive(Debug, Clone, Copy)]
pub struct NodeMap {
    /// What lies above is of no use.
    limit: u64,
    /// Where the lowest piece begins, and the node that has it.
    lowest: Option<(u64, u32)>,
    /// The largest piece of each node.
    largest: [Option<(u32, PhysicalRange)>; MAX_NODES],
}

/// The nodes' largest pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePieces {
    /// Of the node with the lowest memory, where the guest begins.
    pub near: PhysicalRange,
    /// Of the others, the lowest first.
    pub far: [Option<PhysicalRange>; MAX_FAR_NODES],
}

impl NodeMap {
    /// Nothing yet; memory above `limit` is going to be left out.
    #[must_use]
    pub const fn below(limit: u64) -> Self {
        Self { limit, lowest: None, largest: [None; MAX_NODES] }
    }

    /// Notes `bytes` from `begin` on, of this node.
    pub fn add(&mut self, node: u32, begin: u64, bytes: u64) {
        let piece = (begin, begin.saturating_add(bytes).min(self.limit));
        if piece.0 >= piece.1 {
            return;
        }
        if self.lowest.is_none_or(|(lowest, _)| begin < lowest) {
            self.lowest = Some((begin, node));
        }
        let is_its = |slot: &&mut Option<(u32, _)>| slot.is_none_or(|(known, _)| known == node);
        if let Some(slot) = self.largest.iter_mut().find(is_its)
            && slot.is_none_or(|(_, (known, end))| end - known < piece.1 - begin)
        {
            *slot = Some((node, piece));
        }
    }

    /// The pieces, if several nodes have memory.
    #[must_use]
    pub fn pieces(&self) -> Option<NodePieces> {
        let (_, nearest) = self.lowest?;
        let known = || self.largest.iter().flatten();
        let (_, near) = known().find(|(node, _)| *node == nearest)?;
        let mut far = [None; MAX_FAR_NODES];
        let others = known().filter(|(node, _)| *node != nearest);
        far.iter_mut().zip(others).for_each(|(slot, (_, piece))| *slot = Some(*piece));
        // None comes last.
        far.sort_unstable_by_key(|piece| piece.map_or(u64::MAX, |(begin, _)| begin));
        far[0].map(|_| NodePieces { near: *near, far })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn pieces_are_found_in_any_order() {
        let told = [(2, 5 * GIB, GIB), (0, 0, 640 << 10), (1, 2 * GIB, GIB), (0, 1 << 20, GIB)];
        for turned in 0..told.len() {
            let mut memory = NodeMap::below(u64::MAX);
            for at in 0..told.len() {
                let (node, begin, bytes) = told[(turned + at) % told.len()];
                memory.add(node, begin, bytes);
            }
            let pieces = memory.pieces().unwrap();
            assert_eq!(pieces.near, (1 << 20, (1 << 20) + GIB));
            assert_eq!(pieces.far[..2], [Some((2 * GIB, 3 * GIB)), Some((5 * GIB, 6 * GIB))]);
            assert_eq!(pieces.far[2..], [None; MAX_FAR_NODES - 2]);
        }
    }

    #[test]
    fn one_node_has_no_pieces_and_too_many_are_left_out() {
        let mut memory = NodeMap::below(u64::MAX);
        assert_eq!(memory.pieces(), None);
        memory.add(3, GIB, GIB);
        memory.add(3, 4 * GIB, GIB);
        memory.add(4, 0, 0);
        assert_eq!(memory.pieces(), None);
        for node in 0..64_u32 {
            memory.add(10 + node, u64::from(node) * GIB + 8 * GIB, GIB);
        }
        let pieces = memory.pieces().unwrap();
        assert_eq!((pieces.near, pieces.far[6]), ((GIB, 2 * GIB), Some((14 * GIB, 15 * GIB))));
        // The lowest memory is of a node for which there was no room.
        memory.add(99, 0, GIB);
        assert_eq!(memory.pieces(), None);
    }

    #[test]
    fn memory_above_the_limit_is_left_out() {
        let mut memory = NodeMap::below(3 * GIB);
        memory.add(0, 0, 2 * GIB);
        memory.add(1, 3 * GIB, GIB);
        assert_eq!(memory.pieces(), None);
        memory.add(2, 2 * GIB, 2 * GIB);
        assert_eq!(memory.pieces().unwrap().far[0], Some((2 * GIB, 3 * GIB)));
    }

    #[test]
    fn numbers_that_cannot_be_are_no_panic() {
        let mut memory = NodeMap::below(u64::MAX);
        memory.add(0, 0, u64::MAX);
        memory.add(1, u64::MAX - 1, u64::MAX);
        assert_eq!(memory.pieces().unwrap().far[0], Some((u64::MAX - 1, u64::MAX)));
    }
}
