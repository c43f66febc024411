//! The device tree, as it lies in memory: nodes in order, each with the properties that
//! are asked for.
//!
//! Source: Devicetree Specification 0.4, chapter 5.

use crate::metal::memory::read;

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOTHING: u32 = 4;
/// Deeper trees are none.
const MAX_DEPTH: usize = 16;
/// Longest tree, bytes.
const MAX_BYTES: u32 = 2 << 20;

fn word(address: u64) -> Option<u32> {
    read(address).map(u32::from_be_bytes)
}

/// A property's value: where it lies, and its length.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Value {
    at: u64,
    bytes: u64,
}

impl Value {
    /// The word of 32 bits number `index`.
    pub(super) fn cell(self, index: u64) -> Option<u32> {
        (index * 4 + 4 <= self.bytes).then(|| word(self.at + index * 4))?
    }

    /// `cells` words from number `first` on, the first the highest.
    fn number(self, first: u64, cells: u32) -> Option<u64> {
        (0..u64::from(cells))
            .try_fold(0, |high, at| Some(high << 32 | u64::from(self.cell(first + at)?)))
    }

    /// Its bytes, up to the first that is 0.
    pub(super) fn bytes(self) -> impl Iterator<Item = u8> {
        let all = (self.at..self.at + self.bytes).map_while(read::<1>);
        all.map(|[byte]| byte).take_while(|byte| *byte != 0)
    }

    /// Words of 32 bits that it has.
    pub(super) fn cells(self) -> u64 {
        self.bytes / 4
    }

    /// True if `text` is one of its strings.
    pub(super) fn has(self, text: &str) -> bool {
        self.position(text).is_some()
    }

    /// Which of its strings `text` is, from 0.
    pub(super) fn position(self, text: &str) -> Option<u64> {
        let mut rest = self;
        let mut index = 0;
        while rest.bytes > 0 {
            if rest.bytes().eq(text.bytes()) {
                return Some(index);
            }
            index += 1;
            let gone = rest.bytes().count() as u64 + 1;
            rest = Self { at: rest.at + gone, bytes: rest.bytes.saturating_sub(gone) };
        }
        None
    }
}

/// A node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node {
    name: Value,
    pub(super) compatible: Value,
    pub(super) device_type: Value,
    pub(super) method: Value,
    pub(super) bootargs: Value,
    pub(super) numa_node: Value,
    pub(super) interrupts: Value,
    pub(super) interrupt_names: Value,
    /// Of a controller: the cells of each interrupt.
    pub(super) interrupt_cells: Value,
    reg: Value,
    /// Cells of its children's addresses and sizes.
    cells: (u32, u32),
    /// Those of its own.
    own_cells: (u32, u32),
}

impl Node {
    /// True if its name, without the address, is this.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name.bytes().take_while(|byte| *byte != b'@').eq(name.bytes())
    }

    /// Address and size number `index` of its `reg`.
    pub(super) fn reg(&self, index: u64) -> Option<(u64, u64)> {
        let (address, size) = self.own_cells;
        let at = index * u64::from(address + size);
        Some((self.reg.number(at, address)?, self.reg.number(at + u64::from(address), size)?))
    }
}

/// Where the tree lies, if one does: to its end.
pub(super) fn place(tree: u64) -> Option<(u64, u64)> {
    let bytes = (word(tree)? == MAGIC).then(|| word(tree + 4))??;
    (bytes <= MAX_BYTES).then(|| (tree, tree + u64::from(bytes)))
}

/// Calls `seen` with each node of the tree, parents first.
pub(super) fn each(tree: u64, seen: &mut dyn FnMut(&Node)) -> Option<()> {
    let (begin, end) = place(tree)?;
    let mut at = begin + u64::from(word(begin + 8)?);
    let names = begin + u64::from(word(begin + 12)?);
    let mut open = [Node::default(); MAX_DEPTH];
    let mut depth = 0;
    // The innermost node's properties come before its children.
    let mut fresh = false;
    while at < end {
        let token = word(at)?;
        at += 4;
        if fresh && (token == BEGIN_NODE || token == END_NODE) {
            seen(&open[depth - 1]);
            fresh = false;
        }
        match token {
            BEGIN_NODE => {
                let name = Value { at, bytes: end - at };
                at = (at + name.bytes().count() as u64 + 1).next_multiple_of(4);
                let own_cells = if depth == 0 { (2, 1) } else { open[depth - 1].cells };
                *open.get_mut(depth)? = Node { name, own_cells, cells: (2, 1), ..Node::default() };
                depth += 1;
                fresh = true;
            }
            END_NODE => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(());
                }
            }
            PROPERTY => {
                let value = Value { at: at + 8, bytes: u64::from(word(at)?) };
                let name = names + u64::from(word(at + 4)?);
                at = (at + 8 + value.bytes).next_multiple_of(4);
                let name = Value { at: name, bytes: 32 };
                let node = open.get_mut(depth.checked_sub(1)?)?;
                let is = |text: &str| name.bytes().eq(text.bytes());
                let slot = match () {
                    () if is("compatible") => &mut node.compatible,
                    () if is("device_type") => &mut node.device_type,
                    () if is("method") => &mut node.method,
                    () if is("bootargs") => &mut node.bootargs,
                    () if is("numa-node-id") => &mut node.numa_node,
                    () if is("interrupts") => &mut node.interrupts,
                    () if is("interrupt-names") => &mut node.interrupt_names,
                    () if is("#interrupt-cells") => &mut node.interrupt_cells,
                    () if is("reg") => &mut node.reg,
                    () if is("#address-cells") => {
                        node.cells.0 = value.cell(0)?.min(2);
                        continue;
                    }
                    () if is("#size-cells") => {
                        node.cells.1 = value.cell(0)?.min(2);
                        continue;
                    }
                    () => continue,
                };
                *slot = value;
            }
            NOTHING => {}
            _ => return None,
        }
    }
    None
}
