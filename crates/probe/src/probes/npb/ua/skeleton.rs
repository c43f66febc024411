//! The mortar points of a mesh: the corners of all elements, and the points
//! within all edges and faces that no smaller element splits, each numbered once.
//!
//! An edge's points follow one another, as do a face's. Numbers ascend with the
//! first element that has them, so that elements near each other read places
//! near each other; but each element has its points at many places.

use std::collections::HashMap;
use std::ops::Range;

use super::mesh::{Mesh, NeighbourKind, SpectralElement};
use super::mortar::{ElementShape, INNER, SPLIT_INNER};
use super::topology::{CORNERS, EDGES, FACES, NEIGHBOURS};
use crate::team::Team;

/// Which mortar points each element has, and which elements each point has.
pub(super) struct Skeleton {
    /// Of each element.
    pub(super) shapes: Vec<ElementShape>,
    /// Where the points of each element begin in `points`, and the end of the
    /// last.
    begins: Vec<usize>,
    /// The numbers of the points of each element.
    points: Vec<u32>,
    /// If a point lies on the surface of the unit cube.
    pub(super) outside: Vec<bool>,
    /// Where the places of each point begin in `places`, and the end of the last.
    place_begins: Vec<u32>,
    /// Where in `points` each point stands.
    places: Vec<u32>,
}

impl Skeleton {
    pub(super) fn new(mesh: &Mesh, team: &Team) -> Self {
        let elements = &mesh.elements;
        let shapes = team
            .all(|thread| {
                let part = &elements[team.range(elements.len(), thread)];
                part.iter().map(|element| shape(mesh, element)).collect::<Vec<_>>()
            })
            .concat();
        let mut begins = Vec::with_capacity(shapes.len() + 1);
        begins.push(0);
        begins.extend(shapes.iter().scan(0, |end, shape| {
            *end += shape.points();
            Some(*end)
        }));
        let mut numbering = MortarNumbering::new(mesh, begins[shapes.len()]);
        for (element, shape) in elements.iter().zip(&shapes) {
            numbering.element(element, shape);
        }
        let MortarNumbering { points, outside, .. } = numbering;

        let mut place_begins = vec![0; outside.len() + 1];
        for point in &points {
            place_begins[*point as usize + 1] += 1;
        }
        for i in 1..place_begins.len() {
            place_begins[i] += place_begins[i - 1];
        }
        let (mut next, mut places) = (place_begins.clone(), vec![0; points.len()]);
        for (place, point) in points.iter().enumerate() {
            let next = &mut next[*point as usize];
            places[*next as usize] = place as u32;
            *next += 1;
        }
        Self { shapes, begins, points, outside, place_begins, places }
    }

    /// How many mortar points there are.
    pub(super) fn count(&self) -> usize {
        self.outside.len()
    }

    /// How many there are where each element has its own.
    pub(super) fn places(&self) -> usize {
        self.points.len()
    }

    /// The numbers of the points of an element.
    #[inline]
    pub(super) fn numbers(&self, element: usize) -> &[u32] {
        &self.points[self.begins[element]..self.begins[element + 1]]
    }

    /// The sum of what all elements give to a point.
    #[inline]
    pub(super) fn sum(&self, point: usize, given: &[f64]) -> f64 {
        let range = self.place_begins[point] as usize..self.place_begins[point + 1] as usize;
        self.places[range].iter().map(|place| given[*place as usize]).sum()
    }

    /// Cuts what elements give into one part a thread, those of its elements.
    pub(super) fn cut<'a>(&self, team: &Team, mut given: &'a mut [f64]) -> Vec<&'a mut [f64]> {
        let mut parts = Vec::with_capacity(team.threads());
        for thread in 0..team.threads() {
            let Range { start, end } = team.range(self.shapes.len(), thread);
            let (part, rest) = given.split_at_mut(self.begins[end] - self.begins[start]);
            parts.push(part);
            given = rest;
        }
        parts
    }

    /// Cuts the part of some elements into one of each.
    pub(super) fn each<'a>(
        &self,
        elements: Range<usize>,
        mut given: &'a mut [f64],
    ) -> impl Iterator<Item = &'a mut [f64]> {
        elements.map(move |element| {
            let length = self.begins[element + 1] - self.begins[element];
            given.split_off_mut(..length).expect("as many as its elements have")
        })
    }
}

/// What is split of an element.
fn shape(mesh: &Mesh, element: &SpectralElement) -> ElementShape {
    let finer = NEIGHBOURS.map(|step| mesh.beside(element, step) == NeighbourKind::Finer);
    let (across_faces, across_edges) = finer.split_at(FACES.len());
    let faces = across_faces.iter().enumerate().map(|(i, finer)| u8::from(*finer) << i).sum();
    // An edge is split by what is finer across it, or across one of its faces.
    let edges = EDGES.iter().enumerate().map(|(i, edge)| {
        let split = across_edges[i] || edge.faces.iter().any(|face| across_faces[*face]);
        u16::from(split) << i
    });
    ElementShape::new(faces, edges.sum())
}

/// The points that have a number.
struct MortarNumbering<'a> {
    mesh: &'a Mesh,
    /// The first number of what has its centre at a place.
    numbers: HashMap<u64, u32>,
    points: Vec<u32>,
    outside: Vec<bool>,
}

impl<'a> MortarNumbering<'a> {
    fn new(mesh: &'a Mesh, places: usize) -> Self {
        Self {
            mesh,
            numbers: HashMap::with_capacity(places / 2),
            points: Vec::with_capacity(places),
            outside: Vec::with_capacity(places),
        }
    }

    /// Numbers the points of an element, in the order that its shape has them.
    fn element(&mut self, element: &SpectralElement, shape: &ElementShape) {
        for corner in 0..CORNERS.len() {
            let first = self.first(element, [0, 1, 2].map(|axis| 4 * (corner >> axis & 1)), 1);
            self.points.push(first);
        }
        for (i, edge) in EDGES.iter().enumerate() {
            let mut first = |quarters: usize, count: usize| {
                let mut place = edge.sides.map(|side| 4 * side);
                place[edge.axis] = quarters;
                self.first(element, place, count)
            };
            if shape.edge_split(i) {
                let firsts = [first(1, INNER), first(2, 1), first(3, INNER)];
                self.points.extend(split_line().map(|(part, at)| firsts[part] + at));
            } else {
                let first = first(2, INNER);
                self.points.extend(first..first + INNER as u32);
            }
        }
        for (i, face) in FACES.iter().enumerate() {
            let mut first = |along: usize, up: usize, count: usize| {
                let mut place = [4 * face.side; 3];
                (place[face.along[0]], place[face.along[1]]) = (along, up);
                self.first(element, place, count)
            };
            if !shape.face_split(i) {
                let first = first(2, 2, INNER * INNER);
                self.points.extend(first..first + (INNER * INNER) as u32);
                continue;
            }
            // Quarters, and the lines and the point between them.
            let width = |part: usize| if part == 1 { 1 } else { INNER };
            let firsts: [[u32; 3]; 3] = std::array::from_fn(|up| {
                std::array::from_fn(|along| first(along + 1, up + 1, width(along) * width(up)))
            });
            for (up, row) in split_line() {
                for (along, at) in split_line() {
                    self.points.push(firsts[up][along] + row * width(along) as u32 + at);
                }
            }
        }
    }

    /// The first number of what has its centre so many quarters of the element's
    /// edge from its first corner, and `count` points.
    fn first(&mut self, element: &SpectralElement, quarters: [usize; 3], count: usize) -> u32 {
        let (size, end) = (self.mesh.size(element.level), 2_u32 << self.mesh.depth);
        // In halves of the smallest edge.
        let centre: [u32; 3] =
            std::array::from_fn(|axis| 2 * element.place[axis] + quarters[axis] as u32 * size / 2);
        let key = centre.iter().fold(0, |key, at| key << 21 | u64::from(*at));
        let next = self.outside.len();
        let first = *self.numbers.entry(key).or_insert(next as u32);
        if first as usize == next {
            // What has its centre on the surface lies in it.
            let outside = centre.iter().any(|at| *at == 0 || *at == end);
            self.outside.resize(next + count, outside);
        }
        first
    }
}

/// Of each point within a split line: the lower half, the middle or the upper
/// half, and which point of that.
fn split_line() -> impl Iterator<Item = (usize, u32)> {
    (0..SPLIT_INNER).map(|i| match i {
        _ if i < INNER => (0, i as u32),
        INNER => (1, 0),
        _ => (2, (i - INNER - 1) as u32),
    })
}
