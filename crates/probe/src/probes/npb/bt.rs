//! BT: a flow whose factors are block tridiagonal, with blocks of 5 x 5: much
//! computing on values that lie close together.

use super::flow::{self, DAMPING, FlowField, FlowProblem, FlowView, GridLine, PointValues};
use super::jacobian::{self, Matrix5x5, take};
use super::{NpbClass, NpbResult};
use crate::team::Team;

fn problem(class: NpbClass) -> FlowProblem {
    let (n, steps, dt, residual, error) = match class {
        NpbClass::S => (
            12,
            60,
            0.01,
            [
                1.703_428_370_954e-1,
                1.297_525_207_003e-2,
                3.252_792_698_949e-2,
                2.643_642_127_517e-2,
                1.921_178_413_174e-1,
            ],
            [
                4.997_691_334_581e-4,
                4.519_566_678_296e-5,
                7.397_376_517_292e-5,
                7.382_123_863_244e-5,
                8.926_963_098_749e-4,
            ],
        ),
        NpbClass::W => (
            24,
            200,
            0.0008,
            [
                1.125_590_409_344e2,
                1.180_007_595_731e1,
                2.710_329_767_846e1,
                2.469_174_937_669e1,
                2.638_427_874_317e2,
            ],
            [
                4.419_655_736_008,
                4.638_531_260_002e-1,
                1.011_551_749_967,
                9.235_878_729_944e-1,
                1.018_045_837_718e1,
            ],
        ),
        NpbClass::A => (
            64,
            200,
            0.0008,
            [
                1.080_634_671_464e2,
                1.131_973_090_122e1,
                2.597_435_451_158e1,
                2.366_562_254_468e1,
                2.527_896_321_175e2,
            ],
            [
                4.234_841_604_053,
                4.439_028_249_7e-1,
                9.669_248_013_635e-1,
                8.830_206_303_977e-1,
                9.737_990_177_083,
            ],
        ),
        NpbClass::B => (
            102,
            200,
            0.0003,
            [
                1.423_359_722_929e3,
                9.933_052_259_015e1,
                3.564_602_564_454e2,
                3.248_544_795_908e2,
                3.270_754_125_466e3,
            ],
            [
                5.296_984_714_094e1,
                4.463_289_611_567,
                1.312_257_334_221e1,
                1.200_692_532_356e1,
                1.245_957_615_104e2,
            ],
        ),
    };
    FlowProblem { n, steps, dt, gain: 1.0, residual, error }
}

/// Bytes that a class needs.
pub(super) fn bytes(class: NpbClass) -> u64 {
    flow::bytes(problem(class).n)
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let problem = problem(class);
    let n = problem.n as f64;
    let operations = 3478.8 * n.powi(3) - 17_655.7 * n.powi(2) + 28_023.7 * n;
    FlowField::new(&problem, team).run(&problem, operations * problem.steps as f64, |flow| {
        for axis in 0..3 {
            let blocks = |n| vec![[[0.0; 5]; 5]; n];
            flow.lines(axis, blocks, |factors, view, line, change| {
                solve(factors, view, line, change)
            });
        }
    })
}

/// Solves A x(i-1) + B x(i) + C x(i+1) = change(i) along a line, from its
/// second to its last point but one: on the faces nothing changes.
fn solve(
    factors: &mut [Matrix5x5],
    view: &FlowView<'_>,
    line: GridLine,
    change: &mut [PointValues],
) {
    let n = view.n;
    let axis = line.axis;
    let steps = (n - 1) as f64;
    let (first, second) = (view.dt * 0.5 * steps, view.dt * steps * steps);
    let damping = second * DAMPING[axis];

    let jacobians = |i: usize| Jacobians::at(view, line, i);
    let (mut before, mut here) = (jacobians(0), jacobians(1));
    // Nothing changes at the first point, so nothing follows from it.
    factors[0] = [[0.0; 5]; 5];
    for i in 1..n - 1 {
        let after = jacobians(i + 1);
        let mut a = [[0.0; 5]; 5];
        let mut b = [[0.0; 5]; 5];
        let mut c = [[0.0; 5]; 5];
        for row in 0..5 {
            for column in 0..5 {
                a[row][column] =
                    -first * before.flux[row][column] - second * before.viscous[row][column];
                b[row][column] = 2.0 * second * here.viscous[row][column];
                c[row][column] =
                    first * after.flux[row][column] - second * after.viscous[row][column];
            }
            a[row][row] -= damping;
            b[row][row] += 1.0 + 2.0 * damping;
            c[row][row] -= damping;
        }
        let (done, rest) = change.split_at_mut(i);
        take_product(&mut b, &a, &factors[i - 1]);
        take(&mut rest[0], &a, &done[i - 1]);
        eliminate(b, &mut c, &mut rest[0]);
        factors[i] = c;
        (before, here) = (here, after);
    }
    for i in (1..n - 1).rev() {
        let (rest, done) = change.split_at_mut(i + 1);
        take(&mut rest[i], &factors[i], &done[0]);
    }
}

/// Of a point of a line.
struct Jacobians {
    flux: Matrix5x5,
    viscous: Matrix5x5,
}

impl Jacobians {
    #[inline]
    fn at(view: &FlowView<'_>, line: GridLine, i: usize) -> Self {
        let at = line.at(i);
        let (u, state) = (&view.u[at], &view.states[at]);
        Self {
            flux: jacobian::flux(u, state, line.axis),
            viscous: jacobian::viscous(u, state, line.axis),
        }
    }
}

/// b = b - a c.
#[inline]
fn take_product(b: &mut Matrix5x5, a: &Matrix5x5, c: &Matrix5x5) {
    for (b, a) in b.iter_mut().zip(a) {
        for (factor, c) in a.iter().zip(c) {
            for (b, c) in b.iter_mut().zip(c) {
                *b -= factor * c;
            }
        }
    }
}

/// c = c / b and r = r / b, by elimination without exchange of rows: the blocks'
/// diagonals prevail.
#[inline]
fn eliminate(mut b: Matrix5x5, c: &mut Matrix5x5, r: &mut PointValues) {
    for pivot in 0..5 {
        let scale = 1.0 / b[pivot][pivot];
        b[pivot].iter_mut().for_each(|value| *value *= scale);
        c[pivot].iter_mut().for_each(|value| *value *= scale);
        r[pivot] *= scale;
        let (pivot_b, pivot_c, pivot_r) = (b[pivot], c[pivot], r[pivot]);
        for row in (0..5).filter(|row| *row != pivot) {
            let factor = b[row][pivot];
            for column in pivot + 1..5 {
                b[row][column] -= factor * pivot_b[column];
            }
            for (value, pivot) in c[row].iter_mut().zip(pivot_c) {
                *value -= factor * pivot;
            }
            r[row] -= factor * pivot_r;
        }
    }
}
