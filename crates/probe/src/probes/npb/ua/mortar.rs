//! An element's surface as its mortar points have it, where a smaller neighbour
//! splits an edge or a face and where none does.
//!
//! The temperature of a surface is that of the smallest elements that meet there:
//! the mortar points are theirs. A larger element's edge has the points of both
//! halves, its face those of the four quarters, and its own values are their
//! projection.
//!
//! Source: NAS-04-006, section 3; Y. Maday, C. Mavriplis, A. Patera,
//! "Nonconforming Mortar Element Methods", 1989.

use super::spectral::{Basis, ElementBlock, N, POINTS, Projection, SPLIT, sum_along};
use super::topology::{CORNERS, EDGES, FACES};

/// Points between the ends of an edge: of a whole one, of a split one.
pub(super) const INNER: usize = N - 2;
pub(super) const SPLIT_INNER: usize = SPLIT - 2;

/// Most mortar points that an element has.
const MOST: usize = 8 + 12 * SPLIT_INNER + 6 * SPLIT_INNER * SPLIT_INNER;

/// Which edges and faces of an element are split. Its mortar points lie in the
/// order of its corners, the inner points of its edges, and those of its faces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ElementShape {
    faces: u8,
    edges: u16,
    face_begins: [u16; 6],
    edge_begins: [u16; 12],
    /// How many mortar points there are.
    points: u16,
}

impl ElementShape {
    /// From a bit for each split face and for each edge that is split; those of
    /// split faces are.
    pub(super) fn new(faces: u8, mut edges: u16) -> Self {
        for (_, face) in FACES.iter().enumerate().filter(|(i, _)| faces >> i & 1 == 1) {
            edges |= face.edges.iter().map(|edge| 1 << edge).sum::<u16>();
        }
        let mut points = CORNERS.len() as u16;
        let mut begin = |count: usize| {
            points += count as u16;
            points - count as u16
        };
        let edge_begins =
            std::array::from_fn(|i| begin(if edges >> i & 1 == 1 { SPLIT_INNER } else { INNER }));
        let face_begins = std::array::from_fn(|i| {
            let along = if faces >> i & 1 == 1 { SPLIT_INNER } else { INNER };
            begin(along * along)
        });
        Self { faces, edges, face_begins, edge_begins, points }
    }

    pub(super) fn points(&self) -> usize {
        self.points.into()
    }

    pub(super) fn face_split(&self, face: usize) -> bool {
        self.faces >> face & 1 == 1
    }

    pub(super) fn edge_split(&self, edge: usize) -> bool {
        self.edges >> edge & 1 == 1
    }

    /// How many of the three faces that meet in `corner` are split.
    fn split_faces_at(&self, corner: usize) -> usize {
        (0..3).filter(|axis| self.face_split(2 * axis + (corner >> axis & 1))).count()
    }

    /// The mortar points of an edge with a split, both ends included.
    fn edge_line(&self, edge: usize) -> [usize; SPLIT] {
        let begin = usize::from(self.edge_begins[edge]);
        std::array::from_fn(|i| match i {
            0 => EDGES[edge].ends[0],
            _ if i == SPLIT - 1 => EDGES[edge].ends[1],
            _ => begin + i - 1,
        })
    }

    /// The mortar points of row `row` of a split face, from edge to edge.
    fn face_line(&self, face: usize, row: usize) -> [usize; SPLIT] {
        let [first, last, left, right] = FACES[face].edges;
        match row {
            0 => return self.edge_line(first),
            _ if row == SPLIT - 1 => return self.edge_line(last),
            _ => {}
        }
        let ends = [left, right].map(|edge| usize::from(self.edge_begins[edge]) + row - 1);
        let begin = usize::from(self.face_begins[face]) + (row - 1) * SPLIT_INNER;
        std::array::from_fn(|i| match i {
            0 => ends[0],
            _ if i == SPLIT - 1 => ends[1],
            _ => begin + i - 1,
        })
    }

    /// Sets the surface of a block from the values of the mortar points.
    pub(super) fn expand(&self, projection: &Projection, points: &[f64], block: &mut ElementBlock) {
        for (place, point) in CORNERS.into_iter().zip(points) {
            block[place] = *point;
        }
        for (i, edge) in EDGES.iter().enumerate() {
            let values = if self.edge_split(i) {
                project(projection, &self.edge_line(i).map(|at| points[at]))
            } else {
                std::array::from_fn(|at| points[usize::from(self.edge_begins[i]) + at])
            };
            for (at, value) in edge.inner.into_iter().zip(values) {
                block[at] = value;
            }
        }
        for (i, face) in FACES.iter().enumerate() {
            let values: [[f64; INNER]; INNER] = if self.face_split(i) {
                let rows: [[f64; INNER]; SPLIT] = std::array::from_fn(|row| {
                    project(projection, &self.face_line(i, row).map(|at| points[at]))
                });
                std::array::from_fn(|row| {
                    let weights = &projection[row];
                    std::array::from_fn(|at| {
                        weights.iter().zip(&rows).map(|(w, r)| w * r[at]).sum()
                    })
                })
            } else {
                let begin = usize::from(self.face_begins[i]);
                std::array::from_fn(|row| {
                    std::array::from_fn(|at| points[begin + row * INNER + at])
                })
            };
            for (at, value) in face.inner.into_iter().zip(values.into_iter().flatten()) {
                block[at] = value;
            }
        }
    }

    /// The transpose of [`ElementShape::expand`]: what a block's surface gives to each
    /// mortar point.
    pub(super) fn reduce(&self, projection: &Projection, block: &ElementBlock, points: &mut [f64]) {
        for (place, point) in CORNERS.into_iter().zip(points.iter_mut()) {
            *point = block[place];
        }
        for (i, edge) in EDGES.iter().enumerate() {
            let values = edge.inner.map(|at| block[at]);
            let begin = usize::from(self.edge_begins[i]);
            if !self.edge_split(i) {
                points[begin..][..INNER].copy_from_slice(&values);
                continue;
            }
            points[begin..][..SPLIT_INNER].fill(0.0);
            let line = unproject(projection, &values);
            for (at, value) in self.edge_line(i).into_iter().zip(line) {
                points[at] += value;
            }
        }
        for (i, face) in FACES.iter().enumerate() {
            let values = face.inner.map(|at| block[at]);
            let begin = usize::from(self.face_begins[i]);
            if !self.face_split(i) {
                points[begin..][..INNER * INNER].copy_from_slice(&values);
                continue;
            }
            points[begin..][..SPLIT_INNER * SPLIT_INNER].fill(0.0);
            let rows = values.as_chunks::<INNER>().0.iter().map(|row| unproject(projection, row));
            for (row, weights) in rows.zip(projection) {
                for (up, weight) in weights.iter().enumerate() {
                    for (at, value) in self.face_line(i, up).into_iter().zip(row) {
                        points[at] += weight * value;
                    }
                }
            }
        }
    }

    /// What a block's surface gives to the mean at each mortar point that is its
    /// own: nothing where it is split, and of a corner as many thirds as faces
    /// meet there that are not.
    pub(super) fn share(&self, block: &ElementBlock, points: &mut [f64]) {
        points.fill(0.0);
        for (corner, place) in CORNERS.into_iter().enumerate() {
            points[corner] = (3 - self.split_faces_at(corner)) as f64 / 3.0 * block[place];
        }
        for (i, edge) in EDGES.iter().enumerate().filter(|(i, _)| !self.edge_split(*i)) {
            let points = &mut points[usize::from(self.edge_begins[i])..];
            points.iter_mut().zip(edge.inner).for_each(|(point, at)| *point = block[at]);
        }
        for (i, face) in FACES.iter().enumerate().filter(|(i, _)| !self.face_split(*i)) {
            let points = &mut points[usize::from(self.face_begins[i])..];
            points.iter_mut().zip(face.inner).for_each(|(point, at)| *point = block[at]);
        }
    }
}

/// An edge's inner points from those of its halves.
#[inline]
fn project(projection: &Projection, line: &[f64; SPLIT]) -> [f64; INNER] {
    std::array::from_fn(|i| projection[i].iter().zip(line).map(|(w, value)| w * value).sum())
}

/// The transpose of [`project`].
#[inline]
fn unproject(projection: &Projection, values: &[f64; INNER]) -> [f64; SPLIT] {
    std::array::from_fn(|i| projection.iter().zip(values).map(|(row, value)| row[i] * value).sum())
}

/// A mortar point's values gathered for one element.
pub(super) struct MortarValues([f64; MOST]);

impl MortarValues {
    pub(super) fn new() -> Self {
        Self([0.0; MOST])
    }

    /// The values of the points of `numbers`, in their order.
    #[inline]
    pub(super) fn of(&mut self, values: &[f64], numbers: &[u32]) -> &[f64] {
        let gathered = &mut self.0[..numbers.len()];
        for (to, number) in gathered.iter_mut().zip(numbers) {
            *to = values[*number as usize];
        }
        gathered
    }
}

/// The parts of an operator's diagonal that come from second derivatives and
/// from the values themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Diagonal {
    pub(super) stiffness: f64,
    pub(super) mass: f64,
}

/// The diagonal of the operator as mortar points see it: what each gets from an
/// element, through all values of the element that follow it.
///
/// It depends on little: for a corner, on how many of its three faces are split,
/// and how many of its edges that lie on none of these; for a point of an edge,
/// on how many of its two faces.
pub(super) struct Diagonals {
    pub(super) whole: [Diagonal; POINTS],
    corners: [[Diagonal; 4]; 4],
    edges: [[Diagonal; SPLIT_INNER]; 3],
    face: [Diagonal; SPLIT_INNER * SPLIT_INNER],
}

impl Diagonals {
    pub(super) fn new(basis: &Basis) -> Self {
        let of = |shape: &ElementShape, point: usize| through(basis, shape, point);
        // Those of the first corner: faces 0, 2 and 4, edges 0, 4 and 8.
        let mut corners = [[Diagonal::default(); 4]; 4];
        for (faces, row) in corners.iter_mut().enumerate() {
            let split = (0..faces).map(|axis| 1 << (2 * axis)).sum();
            let bare = ElementShape::new(split, 0);
            for (edges, diagonal) in row.iter_mut().enumerate() {
                let free = [0, 4, 8].into_iter().filter(|edge| !bare.edge_split(*edge));
                let shape = ElementShape::new(split, free.take(edges).map(|edge| 1 << edge).sum());
                *diagonal = of(&shape, 0);
            }
        }
        // Those of edge 0: faces 2 and 4.
        let edges = std::array::from_fn(|faces| {
            let shape = ElementShape::new([0, 1 << 2, 1 << 2 | 1 << 4][faces], 1);
            std::array::from_fn(|at| of(&shape, usize::from(shape.edge_begins[0]) + at))
        });
        let shape = ElementShape::new(1, 0);
        let face = std::array::from_fn(|at| of(&shape, usize::from(shape.face_begins[0]) + at));
        let whole = std::array::from_fn(|at| {
            let mut block = [0.0; POINTS];
            block[at] = 1.0;
            energy(basis, &block)
        });
        Self { whole, corners, edges, face }
    }

    /// Sets what each mortar point gets from an element whose second derivatives
    /// and values have these weights.
    pub(super) fn reduce(&self, shape: &ElementShape, weights: Diagonal, points: &mut [f64]) {
        let value = |diagonal: &Diagonal| {
            weights.stiffness * diagonal.stiffness + weights.mass * diagonal.mass
        };
        for (corner, point) in points[..CORNERS.len()].iter_mut().enumerate() {
            let own = EDGES.iter().enumerate().filter(|(_, edge)| edge.ends.contains(&corner));
            let free = own.filter(|(i, edge)| {
                shape.edge_split(*i) && edge.faces.iter().all(|face| !shape.face_split(*face))
            });
            *point = value(&self.corners[shape.split_faces_at(corner)][free.count()]);
        }
        for (i, edge) in EDGES.iter().enumerate() {
            let points = points[usize::from(shape.edge_begins[i])..].iter_mut();
            if shape.edge_split(i) {
                let faces = edge.faces.iter().filter(|face| shape.face_split(**face)).count();
                points.zip(&self.edges[faces]).for_each(|(point, of)| *point = value(of));
            } else {
                points.zip(edge.inner).for_each(|(point, at)| *point = value(&self.whole[at]));
            }
        }
        for (i, face) in FACES.iter().enumerate() {
            let points = points[usize::from(shape.face_begins[i])..].iter_mut();
            if shape.face_split(i) {
                points.zip(&self.face).for_each(|(point, of)| *point = value(of));
            } else {
                points.zip(face.inner).for_each(|(point, at)| *point = value(&self.whole[at]));
            }
        }
    }
}

/// The diagonal at mortar point `point` of an element.
fn through(basis: &Basis, shape: &ElementShape, point: usize) -> Diagonal {
    let (mut points, mut block) = ([0.0; MOST], [0.0; POINTS]);
    points[point] = 1.0;
    shape.expand(&basis.projection, &points, &mut block);
    energy(basis, &block)
}

/// A block's product with what the operator makes of it.
fn energy(basis: &Basis, block: &ElementBlock) -> Diagonal {
    let mut second = [0.0; POINTS];
    sum_along(&basis.stiffness, block, &mut second);
    let mut diagonal = Diagonal::default();
    for ((value, second), weight) in block.iter().zip(second).zip(basis.weights) {
        diagonal.stiffness += weight * value * second;
        diagonal.mass += weight * value * value;
    }
    diagonal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::npb::random::NpbRandom;

    /// Shapes of all sorts, splits at random.
    fn shapes(random: &mut NpbRandom) -> Vec<ElementShape> {
        let mut bits = |count: usize, share: f64| {
            (0..count).map(|i| u16::from(random.next() < share) << i).sum::<u16>()
        };
        (0..60)
            .map(|i| {
                let share = f64::from(i) / 60.0;
                ElementShape::new(bits(6, share) as u8, bits(12, share))
            })
            .collect()
    }

    #[test]
    fn a_split_surface_keeps_a_smooth_temperature() {
        let basis = Basis::new();
        let smooth = |place: [f64; 3]| {
            let [x, y, z] = place;
            x.powi(4) - 3.0 * x * y * y + y.powi(3) * z - z.powi(4) + 2.0
        };
        let all = ElementShape::new(0x3f, 0);
        // The places of all points: of both halves of each line.
        let line: [f64; SPLIT] = std::array::from_fn(|i| {
            if i < N { 0.5 * (basis.nodes[i] - 1.0) } else { 0.5 * (basis.nodes[i + 1 - N] + 1.0) }
        });
        let mut points = [f64::NAN; MOST];
        for (i, face) in FACES.iter().enumerate() {
            for (row, up) in line.into_iter().enumerate() {
                for (at, along) in all.face_line(i, row).into_iter().zip(line) {
                    let mut place = [2.0 * face.side as f64 - 1.0; 3];
                    (place[face.along[0]], place[face.along[1]]) = (along, up);
                    let value = smooth(place);
                    // Where faces and edges meet, all of them name one point.
                    assert!(points[at].is_nan() || points[at] == value);
                    points[at] = value;
                }
            }
        }
        let mut block = [0.0; POINTS];
        all.expand(&basis.projection, &points, &mut block);
        for (i, found) in block.iter().enumerate() {
            let at = [i % N, i / N % N, i / N / N];
            if at.iter().any(|at| [0, N - 1].contains(at)) {
                let expected = smooth(at.map(|i| basis.nodes[i]));
                assert!((found - expected).abs() < 1e-13, "{found} for {expected} at {at:?}");
            }
        }
    }

    #[test]
    fn reducing_is_the_transpose_of_expanding() {
        let (basis, mut random) = (Basis::new(), NpbRandom::new(314_159_265));
        for shape in shapes(&mut random) {
            let given: Vec<f64> = (0..shape.points()).map(|_| random.next()).collect();
            let (mut expanded, mut block) = ([0.0; POINTS], [0.0; POINTS]);
            shape.expand(&basis.projection, &given, &mut expanded);
            // Only of the surface; inside, nothing is set.
            block.iter_mut().for_each(|value| *value = random.next());
            let mut reduced = vec![f64::NAN; shape.points()];
            shape.reduce(&basis.projection, &block, &mut reduced);
            let one: f64 = expanded.iter().zip(block).map(|(a, b)| a * b).sum();
            let other: f64 = given.iter().zip(reduced).map(|(a, b)| a * b).sum();
            assert!((one - other).abs() < 1e-11, "{one} is not {other}: {shape:?}");
        }
    }

    #[test]
    fn the_diagonal_is_what_the_operator_makes_of_each_point() {
        let (basis, mut random) = (Basis::new(), NpbRandom::new(271_828_183));
        let diagonals = Diagonals::new(&basis);
        let weights = Diagonal { stiffness: 0.7, mass: 31.0 };
        for shape in shapes(&mut random) {
            let mut found = vec![f64::NAN; shape.points()];
            diagonals.reduce(&shape, weights, &mut found);
            for (point, found) in found.into_iter().enumerate() {
                let Diagonal { stiffness, mass } = through(&basis, &shape, point);
                let expected = weights.stiffness * stiffness + weights.mass * mass;
                assert!(((found - expected) / expected).abs() < 1e-12, "{point} of {shape:?}");
            }
        }
    }
}
