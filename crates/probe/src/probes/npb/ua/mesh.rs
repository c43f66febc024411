//! The mesh: the unit cube, cut into cubes that are halved in all three
//! directions again and again where the ball of heat is.
//!
//! Elements that meet at a face or at an edge differ by one halving at most.
//! They lie in the order of Morton's curve, which comes to all parts of an
//! element before it leaves it.
//!
//! Source: NAS-04-006, section 2.

use super::spectral::{Basis, ElementBlock};
use super::topology::NEIGHBOURS;
use crate::team::Team;

/// A cube of the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpectralElement {
    /// Its first corner, in edges of the smallest elements.
    pub(super) place: [u32; 3],
    /// How often the unit cube was halved for it.
    pub(super) level: u32,
}

/// What lies where an element of the same size would be a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeighbourKind {
    /// Nothing: the cube ends.
    Outside,
    /// An element of this level, its own or a lower one.
    Element(u32),
    /// Smaller elements.
    Finer,
}

/// Where heat comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeatBall {
    pub(super) centre: [f64; 3],
    pub(super) radius: f64,
}

/// The elements, in Morton's order.
pub(super) struct Mesh {
    /// The highest level.
    pub(super) depth: u32,
    pub(super) elements: Vec<SpectralElement>,
    /// Of the elements' first corners, ascending.
    codes: Vec<u64>,
}

impl Mesh {
    /// The unit cube.
    pub(super) fn new(depth: u32) -> Self {
        Self::of(depth, vec![SpectralElement { place: [0; 3], level: 0 }])
    }

    fn of(depth: u32, elements: Vec<SpectralElement>) -> Self {
        let codes = elements.iter().map(|element| morton(element.place)).collect();
        Self { depth, elements, codes }
    }

    /// The edge of an element of `level`, in those of the smallest.
    pub(super) fn size(&self, level: u32) -> u32 {
        1 << (self.depth - level)
    }

    /// First corner and edge in the unit cube.
    pub(super) fn extent(&self, element: &SpectralElement) -> ([f64; 3], f64) {
        let unit = 1.0 / f64::from(1_u32 << self.depth);
        let size = f64::from(self.size(element.level)) * unit;
        (element.place.map(|at| f64::from(at) * unit), size)
    }

    /// The first corner of the place that is a whole `step` away, if it is in
    /// the cube.
    fn stepped(&self, element: &SpectralElement, step: [i32; 3]) -> Option<[u32; 3]> {
        let (size, end) = (self.size(element.level), 1 << self.depth);
        let mut place = element.place;
        for (at, step) in place.iter_mut().zip(step) {
            *at = match step {
                0 => *at,
                1 => Some(*at + size).filter(|at| *at < end)?,
                _ => at.checked_sub(size)?,
            };
        }
        Some(place)
    }

    /// The number of the element that has the smallest place `place`.
    fn at(&self, place: [u32; 3]) -> usize {
        let code = morton(place);
        self.codes.partition_point(|first| *first <= code) - 1
    }

    /// What is a `step` away from an element.
    pub(super) fn beside(&self, element: &SpectralElement, step: [i32; 3]) -> NeighbourKind {
        let Some(place) = self.stepped(element, step) else { return NeighbourKind::Outside };
        let level = self.elements[self.at(place)].level;
        if level > element.level { NeighbourKind::Finer } else { NeighbourKind::Element(level) }
    }

    /// Makes the mesh fine where the ball is and coarse elsewhere, and moves
    /// `values` over; true if anything changed.
    pub(super) fn adapt(
        &mut self,
        ball: &HeatBall,
        basis: &Basis,
        values: &mut Vec<ElementBlock>,
        team: &Team,
    ) -> bool {
        let mut changed = false;
        while self.refine(ball, basis, values) {
            changed = true;
        }
        while self.coarsen(ball, basis, values, team) {
            changed = true;
        }
        changed
    }

    /// Halves once what the ball touches and is not of the smallest, and what
    /// would become too large a neighbour; false if there is nothing to do.
    fn refine(&mut self, ball: &HeatBall, basis: &Basis, values: &mut Vec<ElementBlock>) -> bool {
        let touched = |(_, element): &(usize, &SpectralElement)| {
            element.level < self.depth && ball.touches(self.extent(element))
        };
        let mut pending: Vec<usize> =
            self.elements.iter().enumerate().filter(touched).map(|(i, _)| i).collect();
        let mut split = vec![false; self.elements.len()];
        while let Some(i) = pending.pop() {
            if std::mem::replace(&mut split[i], true) {
                continue;
            }
            let element = &self.elements[i];
            let places = NEIGHBOURS.iter().filter_map(|step| self.stepped(element, *step));
            let others = places.map(|place| self.at(place));
            pending.extend(others.filter(|other| self.elements[*other].level < element.level));
        }
        if !split.contains(&true) {
            return false;
        }

        let mut elements = Vec::with_capacity(self.elements.len() * 2);
        let mut moved = Vec::with_capacity(elements.capacity());
        for ((element, block), split) in self.elements.iter().zip(values.iter()).zip(split) {
            if !split {
                elements.push(*element);
                moved.push(*block);
                continue;
            }
            let (level, half) = (element.level + 1, self.size(element.level) / 2);
            for child in 0..8 {
                let place =
                    std::array::from_fn(|axis| element.place[axis] + half * (child >> axis & 1));
                elements.push(SpectralElement { place, level });
                moved.push(basis.part(block, child as usize));
            }
        }
        *values = moved;
        *self = Self::of(self.depth, elements);
        true
    }

    /// Merges once what may be merged: eight elements of one parent that the
    /// ball does not touch, with no smaller neighbours; false if there are none.
    fn coarsen(
        &mut self,
        ball: &HeatBall,
        basis: &Basis,
        values: &mut Vec<ElementBlock>,
        team: &Team,
    ) -> bool {
        let count = self.elements.len();
        let firsts: Vec<usize> = team
            .all(|thread| {
                let range = team.range(count, thread);
                range.filter(|first| self.mergeable(*first, ball)).collect::<Vec<_>>()
            })
            .concat();
        if firsts.is_empty() {
            return false;
        }
        let mut elements = Vec::with_capacity(count);
        let mut moved = Vec::with_capacity(count);
        let mut next = firsts.into_iter().peekable();
        let mut i = 0;
        while i < count {
            let element = self.elements[i];
            if next.next_if_eq(&i).is_some() {
                let children = values[i..].first_chunk().expect("eight of one parent");
                elements.push(SpectralElement { level: element.level - 1, ..element });
                moved.push(basis.join(children));
                i += 8;
            } else {
                elements.push(element);
                moved.push(values[i]);
                i += 1;
            }
        }
        *values = moved;
        *self = Self::of(self.depth, elements);
        true
    }

    /// If the element `first` is the first one of eight that may be merged.
    fn mergeable(&self, first: usize, ball: &HeatBall) -> bool {
        let SpectralElement { place, level } = self.elements[first];
        let parent_size = 2 * self.size(level);
        let Some(children) = self.elements[first..].first_chunk::<8>() else { return false };
        // In Morton's order as many of the same level, where a parent begins,
        // are its children.
        level > 0
            && place.iter().all(|at| at.is_multiple_of(parent_size))
            && children.iter().all(|child| child.level == level)
            && children.iter().all(|child| !ball.touches(self.extent(child)))
            && children.iter().all(|child| {
                NEIGHBOURS.iter().all(|step| self.beside(child, *step) != NeighbourKind::Finer)
            })
    }
}

impl HeatBall {
    /// If the ball reaches into the cube at `place`.
    pub(super) fn touches(&self, (place, size): ([f64; 3], f64)) -> bool {
        let squares = self.centre.iter().zip(place).map(|(centre, first)| {
            let distance = (first - centre).max(centre - (first + size)).max(0.0);
            distance * distance
        });
        squares.sum::<f64>() < self.radius * self.radius
    }
}

/// The bits of the three coordinates in turn, x's lowest.
fn morton(place: [u32; 3]) -> u64 {
    place.iter().rev().fold(0, |code, at| code << 1 | spread(*at))
}

/// Two zeros between any two of the lower 21 bits.
fn spread(value: u32) -> u64 {
    let steps = [
        (32, 0x001f_0000_0000_ffff),
        (16, 0x001f_0000_ff00_00ff),
        (8, 0x100f_00f0_0f00_f00f),
        (4, 0x10c3_0c30_c30c_30c3),
        (2, 0x1249_2492_4924_9249),
    ];
    steps.into_iter().fold(u64::from(value), |bits, (shift, mask)| (bits | bits << shift) & mask)
}
