//! Polynomials of degree 4 in each direction on a cube from -1 to 1, by their
//! values at the Gauss-Lobatto-Legendre points: derivatives, integrals, and how
//! values move between elements of two sizes.
//!
//! All matrices follow from the points; none is a table.
//!
//! Source: NAS-04-006, section 3; C. Canuto et al., "Spectral Methods in Fluid
//! Dynamics", 1988, section 2.3.

/// Collocation points along an edge.
pub(super) const N: usize = 5;

/// Collocation points of an element.
pub(super) const POINTS: usize = N * N * N;

/// The values of an element; x varies fastest.
pub(super) type ElementBlock = [f64; POINTS];

/// How far apart in a block neighbours along each axis are.
pub(super) const STRIDES: [usize; 3] = [1, N, N * N];

/// Points along an edge that two smaller elements halve: four more than theirs,
/// as they share the one in the middle.
pub(super) const SPLIT: usize = 2 * N - 1;

pub(super) type NodeMatrix = [[f64; N]; N];

/// What an edge's inner points become from the points of its halves.
pub(super) type Projection = [[f64; SPLIT]; N - 2];

/// Weights of the Gauss-Lobatto-Legendre quadrature.
const WEIGHTS: [f64; N] = [0.1, 49.0 / 90.0, 32.0 / 45.0, 49.0 / 90.0, 0.1];

/// The matrices.
pub(super) struct Basis {
    /// Places of the points.
    pub(super) nodes: [f64; N],
    /// Quadrature weights of a block.
    pub(super) weights: ElementBlock,
    pub(super) derivative: NodeMatrix,
    /// The weak second derivative, less its own point's weight.
    pub(super) stiffness: NodeMatrix,
    /// Values at the points of the lower and the upper half.
    halves: [NodeMatrix; 2],
    /// Values at the points of a whole: the first three from the lower half's
    /// polynomial, the others from the upper one's.
    whole: NodeMatrix,
    pub(super) projection: Projection,
}

impl Basis {
    pub(super) fn new() -> Self {
        let outer = (3.0_f64 / 7.0).sqrt();
        let nodes = [-1.0, -outer, 0.0, outer, 1.0];
        let derivative = derivative(&nodes);
        let stiffness = std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                let sum: f64 =
                    (0..N).map(|q| WEIGHTS[q] * derivative[q][i] * derivative[q][j]).sum();
                sum / WEIGHTS[i]
            })
        });
        let at = |place: [f64; N]| place.map(|x| lagrange(&nodes, x));
        Self {
            nodes,
            weights: std::array::from_fn(|i| {
                WEIGHTS[i % N] * WEIGHTS[i / N % N] * WEIGHTS[i / N / N]
            }),
            derivative,
            stiffness,
            halves: [-1.0, 1.0].map(|side| at(nodes.map(|x| 0.5 * (x + side)))),
            whole: at(std::array::from_fn(|i| {
                2.0 * nodes[i] + if from_upper(i) { -1.0 } else { 1.0 }
            })),
            projection: projection(&nodes),
        }
    }

    /// The values that a parent's polynomial has in its child `child`, whose
    /// bits tell in which half it lies along x, y and z.
    pub(super) fn part(&self, parent: &ElementBlock, child: usize) -> ElementBlock {
        let mut block = *parent;
        for (axis, stride) in STRIDES.into_iter().enumerate() {
            let matrix = &self.halves[child >> axis & 1];
            let before = block;
            for first in lines(axis) {
                for (i, row) in matrix.iter().enumerate() {
                    block[first + i * stride] =
                        row.iter().enumerate().map(|(j, a)| a * before[first + j * stride]).sum();
                }
            }
        }
        block
    }

    /// The values of a parent, from those of its eight children.
    pub(super) fn join(&self, children: &[ElementBlock; 8]) -> ElementBlock {
        let along = |axis: usize, lower: &ElementBlock, upper: &ElementBlock| {
            let stride = STRIDES[axis];
            let mut block = [0.0; POINTS];
            for first in lines(axis) {
                for (i, row) in self.whole.iter().enumerate() {
                    let from = if from_upper(i) { upper } else { lower };
                    block[first + i * stride] =
                        row.iter().enumerate().map(|(j, a)| a * from[first + j * stride]).sum();
                }
            }
            block
        };
        let x: [ElementBlock; 4] =
            std::array::from_fn(|i| along(0, &children[2 * i], &children[2 * i + 1]));
        let y: [ElementBlock; 2] = std::array::from_fn(|i| along(1, &x[2 * i], &x[2 * i + 1]));
        along(2, &y[0], &y[1])
    }
}

/// If a whole's point lies in its upper half.
fn from_upper(i: usize) -> bool {
    i > N / 2
}

/// Where each line of a block along `axis` begins.
fn lines(axis: usize) -> impl Iterator<Item = usize> {
    let [across, up] = others(axis).map(|other| STRIDES[other]);
    (0..N * N).map(move |i| i % N * across + i / N * up)
}

/// The two axes that `axis` is not.
pub(super) const fn others(axis: usize) -> [usize; 2] {
    match axis {
        0 => [1, 2],
        1 => [0, 2],
        _ => [0, 1],
    }
}

/// Sets `sum` to the sum, over the three directions, of `matrix` times the values
/// along each.
#[inline]
pub(super) fn sum_along(matrix: &NodeMatrix, u: &ElementBlock, sum: &mut ElementBlock) {
    for (sum, u) in sum.as_chunks_mut::<N>().0.iter_mut().zip(u.as_chunks::<N>().0) {
        for (sum, row) in sum.iter_mut().zip(matrix) {
            *sum = row.iter().zip(u).map(|(a, u)| a * u).sum();
        }
    }
    let (planes, of) = (sum.as_chunks_mut::<{ N * N }>().0, u.as_chunks::<{ N * N }>().0);
    for (sum, u) in planes.iter_mut().zip(of) {
        for (sum, row) in sum.as_chunks_mut::<N>().0.iter_mut().zip(matrix) {
            for (a, u) in row.iter().zip(u.as_chunks::<N>().0) {
                for (sum, u) in sum.iter_mut().zip(u) {
                    *sum += a * u;
                }
            }
        }
    }
    for (sum, row) in planes.iter_mut().zip(matrix) {
        for (a, u) in row.iter().zip(of) {
            for (sum, u) in sum.iter_mut().zip(u) {
                *sum += a * u;
            }
        }
    }
}

/// The values at `x` of the polynomials that are 1 at one point and 0 at the
/// others.
fn lagrange(nodes: &[f64; N], x: f64) -> [f64; N] {
    std::array::from_fn(|j| {
        let others = (0..N).filter(|k| *k != j);
        others.map(|k| (x - nodes[k]) / (nodes[j] - nodes[k])).product()
    })
}

/// Their derivatives at each point.
fn derivative(nodes: &[f64; N]) -> NodeMatrix {
    // What the others' distances multiply to, at each point.
    let scale = nodes.map(|x| -> f64 {
        nodes.iter().filter(|other| **other != x).map(|other| x - other).product()
    });
    let mut matrix = [[0.0; N]; N];
    for i in 0..N {
        for j in (0..N).filter(|j| *j != i) {
            matrix[i][j] = scale[i] / (scale[j] * (nodes[i] - nodes[j]));
        }
        // A constant's derivative is 0.
        matrix[i][i] = -matrix[i].iter().sum::<f64>();
    }
    matrix
}

/// The polynomial that has the halves' value at both ends, and differs from
/// them by nothing that any polynomial of degree 2 would notice.
fn projection(nodes: &[f64; N]) -> Projection {
    // Integrals against the powers 0 to 2, of the whole's and the halves' points.
    let powers = |x: f64, weight: f64| [weight, weight * x, weight * x * x];
    let whole: [[f64; 3]; N] = std::array::from_fn(|i| powers(nodes[i], WEIGHTS[i]));
    let mut halves = [[0.0; 3]; SPLIT];
    for (half, side) in [-1.0, 1.0].into_iter().enumerate() {
        for i in 0..N {
            let integrals = powers(0.5 * (nodes[i] + side), 0.5 * WEIGHTS[i]);
            for (sum, integral) in halves[half * (N - 1) + i].iter_mut().zip(integrals) {
                *sum += integral;
            }
        }
    }
    // The ends are the same on both sides.
    for (half, whole) in [(0, 0), (SPLIT - 1, N - 1)].map(|(half, i)| (half, whole[i])) {
        for (sum, integral) in halves[half].iter_mut().zip(whole) {
            *sum -= integral;
        }
    }
    let mut projection = [[0.0; SPLIT]; N - 2];
    for (column, right) in halves.into_iter().enumerate() {
        let values = solve([whole[1], whole[2], whole[3]], right);
        for (row, value) in projection.iter_mut().zip(values) {
            row[column] = value;
        }
    }
    projection
}

/// The x of which `columns` x = `right`, by Cramer's rule.
fn solve(columns: [[f64; 3]; 3], right: [f64; 3]) -> [f64; 3] {
    let volume = |[a, b, c]: [[f64; 3]; 3]| {
        a[0] * (b[1] * c[2] - b[2] * c[1])
            + a[1] * (b[2] * c[0] - b[0] * c[2])
            + a[2] * (b[0] * c[1] - b[1] * c[0])
    };
    std::array::from_fn(|i| {
        let mut replaced = columns;
        replaced[i] = right;
        volume(replaced) / volume(columns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A polynomial that a block holds without loss, at a place of [-1, 1]^3.
    fn polynomial([x, y, z]: [f64; 3]) -> f64 {
        x.powi(4) * y - 2.0 * y.powi(3) * z.powi(4) + x * y * z + 0.5
    }

    fn block(of: impl Fn([f64; 3]) -> f64) -> ElementBlock {
        let nodes = Basis::new().nodes;
        std::array::from_fn(|i| of([i % N, i / N % N, i / N / N].map(|i| nodes[i])))
    }

    fn near(found: &ElementBlock, expected: &ElementBlock) {
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() < 1e-13, "{found} for {expected} at {i}");
        }
    }

    #[test]
    fn derivatives_are_exact() {
        let mut found = [0.0; POINTS];
        sum_along(&Basis::new().derivative, &block(polynomial), &mut found);
        let expected = block(|[x, y, z]| {
            let along_x = 4.0 * x.powi(3) * y + y * z;
            let along_y = x.powi(4) - 6.0 * y.powi(2) * z.powi(4) + x * z;
            let along_z = -8.0 * y.powi(3) * z.powi(3) + x * y;
            along_x + along_y + along_z
        });
        near(&found, &expected);
    }

    #[test]
    fn children_have_their_parents_polynomial_and_give_it_back() {
        let basis = Basis::new();
        let parent = block(polynomial);
        let children: [ElementBlock; 8] = std::array::from_fn(|child| basis.part(&parent, child));
        for (child, found) in children.iter().enumerate() {
            let expected = block(|place| {
                let half = |axis: usize| (child >> axis & 1) as f64 - 0.5;
                polynomial(std::array::from_fn(|axis| 0.5 * place[axis] + half(axis)))
            });
            near(found, &expected);
        }
        near(&basis.join(&children), &parent);
    }

    /// Some of the values that NPB 3 has as a table.
    #[test]
    fn the_projection_is_the_published_one() {
        let basis = Basis::new();
        for (row, column, published) in [
            (0, 0, -0.177_284_321_861_569),
            (1, 0, 9.375e-2),
            (2, 0, -3.700_139_242_414_53e-2),
            (0, 1, 0.715_214_641_246_319_7),
            (1, 3, 0.356_179_959_704_213_7),
            (2, 3, -4.854_797_457_965_334e-2),
            (0, 4, 0.0),
            // Twice, as both halves have the point in the middle.
            (1, 4, 2.0 * 7.031_25e-2),
            (2, 8, -0.177_284_321_861_569),
        ] {
            let found = basis.projection[row][column];
            assert!((found - published).abs() < 1e-14, "{found} for {published}");
        }
    }
}
