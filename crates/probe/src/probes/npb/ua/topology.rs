//! Corners, edges and faces of an element: how they are numbered and where they
//! lie in its block.
//!
//! A corner's number has a bit an axis; an edge's is four times its axis plus a
//! bit for each of the other two; a face's twice its axis plus a bit.

use super::spectral::{N, STRIDES, others};

/// An edge of an element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) axis: usize,
    /// On which side of each axis it lies; 0 along its own.
    pub(super) sides: [usize; 3],
    /// The corners at its ends.
    pub(super) ends: [usize; 2],
    /// The two faces that meet in it.
    pub(super) faces: [usize; 2],
    /// Its points in a block, less both ends.
    pub(super) inner: [usize; N - 2],
}

/// A face of an element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Face {
    pub(super) axis: usize,
    pub(super) side: usize,
    /// The axes that it extends along: the first varies faster.
    pub(super) along: [usize; 2],
    /// Its edges along the first axis, then those along the second.
    pub(super) edges: [usize; 4],
    /// Its points in a block, row by row.
    pub(super) points: [usize; N * N],
    /// Those that are on none of its edges.
    pub(super) inner: [usize; (N - 2) * (N - 2)],
}

pub(super) const CORNERS: [usize; 8] = {
    let mut corners = [0; 8];
    let mut i = 0;
    while i < 8 {
        corners[i] =
            (N - 1) * ((i & 1) * STRIDES[0] + (i >> 1 & 1) * STRIDES[1] + (i >> 2) * STRIDES[2]);
        i += 1;
    }
    corners
};

pub(super) const EDGES: [Edge; 12] = {
    let mut edges = [edge(0, [0; 3]); 12];
    let mut i = 0;
    while i < 12 {
        let axis = i / 4;
        let [low, high] = others(axis);
        let mut sides = [0; 3];
        sides[low] = i & 1;
        sides[high] = i >> 1 & 1;
        edges[i] = edge(axis, sides);
        i += 1;
    }
    edges
};

pub(super) const FACES: [Face; 6] = {
    let mut faces = [face(0, 0); 6];
    let mut i = 0;
    while i < 6 {
        faces[i] = face(i / 2, i % 2);
        i += 1;
    }
    faces
};

/// Steps to the neighbours across faces, in their order, then across edges.
pub(super) const NEIGHBOURS: [[i32; 3]; 18] = {
    let mut steps = [[0; 3]; 18];
    let mut i = 0;
    while i < 18 {
        if i < 6 {
            steps[i][FACES[i].axis] = 2 * FACES[i].side as i32 - 1;
        } else {
            let edge = EDGES[i - 6];
            let [low, high] = others(edge.axis);
            steps[i][low] = 2 * edge.sides[low] as i32 - 1;
            steps[i][high] = 2 * edge.sides[high] as i32 - 1;
        }
        i += 1;
    }
    steps
};

const fn corner(sides: [usize; 3]) -> usize {
    sides[0] + 2 * sides[1] + 4 * sides[2]
}

const fn edge_number(axis: usize, sides: [usize; 3]) -> usize {
    let [low, high] = others(axis);
    4 * axis + sides[low] + 2 * sides[high]
}

const fn edge(axis: usize, sides: [usize; 3]) -> Edge {
    let [low, high] = others(axis);
    let first = corner(sides);
    let begin = (N - 1) * (sides[low] * STRIDES[low] + sides[high] * STRIDES[high]);
    let mut inner = [0; N - 2];
    let mut i = 0;
    while i < inner.len() {
        inner[i] = begin + (i + 1) * STRIDES[axis];
        i += 1;
    }
    Edge {
        axis,
        sides,
        ends: [first, first + (1 << axis)],
        faces: [2 * low + sides[low], 2 * high + sides[high]],
        inner,
    }
}

const fn face(axis: usize, side: usize) -> Face {
    let along = others(axis);
    let mut edges = [0; 4];
    let mut i = 0;
    while i < 4 {
        let mut sides = [0; 3];
        sides[axis] = side;
        // The edge along one axis lies on a side of the other.
        sides[along[1 - i / 2]] = i % 2;
        edges[i] = edge_number(along[i / 2], sides);
        i += 1;
    }
    let (mut points, mut inner) = ([0; N * N], [0; (N - 2) * (N - 2)]);
    let mut i = 0;
    while i < points.len() {
        let (at, row) = (i % N, i / N);
        points[i] =
            (N - 1) * side * STRIDES[axis] + at * STRIDES[along[0]] + row * STRIDES[along[1]];
        if at > 0 && at < N - 1 && row > 0 && row < N - 1 {
            inner[(row - 1) * (N - 2) + at - 1] = points[i];
        }
        i += 1;
    }
    Face { axis, side, along, edges, points, inner }
}
