//! LU: a flow whose equations are not taken apart by direction: successive
//! over-relaxation sweeps through the whole cube, from its first corner to its
//! last and back. Each point waits for its three neighbours that come before it.
//!
//! Each thread has some rows of every plane, and sends the last of them to the
//! next thread as soon as it is through with a plane: a pipeline of threads, each
//! a plane behind the one before it. What a point becomes depends on its
//! neighbours alone, so it is the same, to the bit, for any number of threads.
//!
//! Source: RNR-94-007, section 3.3.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::flow::{self, C2, DAMPING, FlowField, FlowProblem, FlowView, PointValues};
use super::jacobian::{self, Matrix5x5};
use super::{NpbClass, NpbResult, near};
use crate::team::Team;

/// The factor of over-relaxation, omega in the reports: how far a sweep goes
/// beyond what would solve a point's own equations.
const OVER: f64 = 1.2;

/// Published, by class: what LU is and brings, and the surface integral.
fn problem(class: NpbClass) -> (FlowProblem, f64) {
    let (n, steps, dt, residual, error, integral) = match class {
        NpbClass::S => (
            12,
            50,
            0.5,
            [
                1.619_634_321_097_67e-2,
                2.197_674_516_482_132e-3,
                1.517_992_765_339_918e-3,
                1.502_958_443_599_432e-3,
                3.426_407_315_589_646e-2,
            ],
            [
                6.422_331_995_796_092e-4,
                8.414_434_204_734_793e-5,
                5.858_826_961_648_519e-5,
                5.847_422_259_515_735e-5,
                1.310_334_791_411_129e-3,
            ],
            7.841_892_886_593_708,
        ),
        NpbClass::W => (
            33,
            300,
            0.0015,
            [
                1.236_511_638_192e1,
                1.317_228_477_799,
                2.550_120_713_095,
                2.326_187_750_252,
                2.826_799_444_189e1,
            ],
            [
                4.867_877_144_216e-1,
                5.064_652_880_982e-2,
                9.281_818_101_96e-2,
                8.570_126_542_733e-2,
                1.084_277_417_792,
            ],
            1.161_399_311_023e1,
        ),
        NpbClass::A => (
            64,
            250,
            2.0,
            [
                7.790_210_760_668_937e2,
                6.340_276_525_969_287e1,
                1.949_924_972_729_248e2,
                1.784_530_116_041_854e2,
                1.838_476_034_946_425e3,
            ],
            [
                2.996_408_568_547_194e1,
                2.819_457_636_500_335,
                7.347_341_269_877_474,
                6.713_922_568_777_705,
                7.071_531_568_839_258e1,
            ],
            2.603_092_560_488_628e1,
        ),
        NpbClass::B => (
            102,
            250,
            2.0,
            [
                3.553_267_296_998_274e3,
                2.621_475_079_531_069e2,
                8.833_372_185_095_219e2,
                7.781_277_473_942_526e2,
                7.308_796_959_254_531e3,
            ],
            [
                1.140_117_638_021_271e2,
                8.109_896_365_542_157,
                2.848_059_731_769_831e1,
                2.590_539_456_783_294e1,
                2.605_490_750_485_741e2,
            ],
            4.788_716_270_330_823e1,
        ),
    };
    let gain = 1.0 / (OVER * (2.0 - OVER));
    (FlowProblem { n, steps, dt, gain, residual, error }, integral)
}

/// Bytes that a class needs.
pub(super) fn bytes(class: NpbClass) -> u64 {
    flow::bytes(problem(class).0.n)
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let (problem, published) = problem(class);
    let n = problem.n as f64;
    let operations = 1984.77 * n.powi(3) - 10_923.3 * n.powi(2) + 27_770.9 * n - 144_010.0;
    let mut flow = FlowField::new(&problem, team);
    let mut done = flow.run(&problem, operations * problem.steps as f64, relax);
    let integral = integral(&flow);
    done.verified &= near(integral, published, 1e-8);
    done.detail += &format!("; surface integral {integral}, published {published}");
    done
}

/// Makes the right side the change of a step, but for the gain.
fn relax(flow: &mut FlowField<'_>) {
    sweep(flow, false);
    sweep(flow, true);
}

/// From the first corner, (D + OVER L) x = r; or, `back` from the last one,
/// (1 + OVER U / D) x = r: L and U are what a point gets from the neighbours
/// that come before it on the way there and back, D is its own.
fn sweep(flow: &mut FlowField<'_>, back: bool) {
    let team = flow.team;
    let (view, parts) = flow.rows();
    let mut links: Vec<Links> = parts.iter().map(|_| Links::default()).collect();
    for thread in 1..links.len() {
        let (sender, receiver) = channel();
        let (from, to) = if back { (thread, thread - 1) } else { (thread - 1, thread) };
        links[from].after = Some(sender);
        links[to].before = Some(receiver);
    }
    team.each(parts.into_iter().zip(links), |thread, (mut planes, links)| {
        let rows = team.range(view.n, thread);
        for i in 1..view.n - 1 {
            let row_before = links.receive(view.n);
            let last = sweep_plane(&view, &mut planes, &rows, &row_before, i, back);
            links.send(last.map_or(row_before, <[PointValues]>::to_vec));
        }
    });
}

/// A thread's ends towards those whose rows come before and after its own.
#[derive(Default)]
struct Links {
    before: Option<Receiver<Vec<PointValues>>>,
    after: Option<Sender<Vec<PointValues>>>,
}

impl Links {
    /// Waits for the row of `n` points before one's own; there is none before
    /// the first thread's, which begins with a face.
    fn receive(&self, n: usize) -> Vec<PointValues> {
        match &self.before {
            Some(before) => before.recv().expect("the thread before sends a row a plane"),
            None => vec![[0.0; 5]; n],
        }
    }

    fn send(&self, row: Vec<PointValues>) {
        if let Some(after) = &self.after {
            after.send(row).expect("the thread after takes a row a plane");
        }
    }
}

/// Does the thread's `rows` of the plane that is `i`th on the way; they follow
/// `row_before`. Returns the last of them, if there is any.
fn sweep_plane<'a>(
    view: &FlowView<'_>,
    planes: &'a mut [&mut [PointValues]],
    rows: &Range<usize>,
    row_before: &[PointValues],
    i: usize,
    back: bool,
) -> Option<&'a [PointValues]> {
    if rows.is_empty() {
        return None;
    }
    let n = view.n;
    // From a place on the way to one in the cube, and the other way round.
    let turn = |i: usize| if back { n - 1 - i } else { i };
    let on_way = if back { n - rows.end..n - rows.start } else { rows.clone() };
    let (plane, plane_before) = (turn(i), turn(i - 1));
    for j in on_way.start.max(1)..on_way.end.min(n - 1) {
        let row = turn(j);
        let start = (row - rows.start) * n;
        let mut column_before = [0.0; 5];
        for k in 1..n - 1 {
            let column = turn(k);
            let known = [
                column_before,
                if j == on_way.start {
                    row_before[column]
                } else {
                    planes[plane][(turn(j - 1) - rows.start) * n + column]
                },
                planes[plane_before][start + column],
            ];
            let at = (plane * n + row) * n + column;
            let mut sum = [0.0; 5];
            for (axis, known) in known.iter().enumerate() {
                let stride = [1, n, n * n][axis];
                let before = if back { at + stride } else { at - stride };
                jacobian::take(&mut sum, &neighbour(view, before, axis, back), known);
            }
            let change = &mut planes[plane][start + column];
            let own = own(view, at);
            *change = if back {
                let part = solve(own, sum.map(|value| OVER * value));
                std::array::from_fn(|m| change[m] + part[m])
            } else {
                solve(own, std::array::from_fn(|m| change[m] + OVER * sum[m]))
            };
            column_before = *change;
        }
    }
    let last = turn(on_way.end - 1) - rows.start;
    Some(&planes[plane][last * n..][..n])
}

/// What a point gets from its neighbour `at` along `axis`, which is before it,
/// or after it on the way back.
#[inline]
fn neighbour(view: &FlowView<'_>, at: usize, axis: usize, back: bool) -> Matrix5x5 {
    let steps = (view.n - 1) as f64;
    let first = if back { 0.5 } else { -0.5 } * view.dt * steps;
    let second = view.dt * steps * steps;
    let (u, state) = (&view.u[at], &view.states[at]);
    let (mut block, viscous) = (jacobian::flux(u, state, axis), jacobian::viscous(u, state, axis));
    for (row, viscous) in block.iter_mut().zip(viscous) {
        for (value, viscous) in row.iter_mut().zip(viscous) {
            *value = first * *value - second * viscous;
        }
    }
    for (m, row) in block.iter_mut().enumerate() {
        row[m] -= second * DAMPING[axis];
    }
    block
}

/// What a point gets from itself.
#[inline]
fn own(view: &FlowView<'_>, at: usize) -> Matrix5x5 {
    let steps = (view.n - 1) as f64;
    let twice = 2.0 * view.dt * steps * steps;
    let mut block = [[0.0; 5]; 5];
    for axis in 0..3 {
        let viscous = jacobian::viscous(&view.u[at], &view.states[at], axis);
        for (row, viscous) in block.iter_mut().zip(viscous) {
            for (value, viscous) in row.iter_mut().zip(viscous) {
                *value += twice * viscous;
            }
        }
    }
    for (m, row) in block.iter_mut().enumerate() {
        row[m] += 1.0 + twice * DAMPING.iter().sum::<f64>();
    }
    block
}

/// r / b, by elimination without exchange of rows: the blocks' diagonals
/// prevail.
#[inline]
fn solve(mut b: Matrix5x5, mut r: PointValues) -> PointValues {
    let mut scales = [0.0; 5];
    for pivot in 0..5 {
        scales[pivot] = 1.0 / b[pivot][pivot];
        let (row, value) = (b[pivot], r[pivot]);
        for below in pivot + 1..5 {
            let factor = scales[pivot] * b[below][pivot];
            for column in pivot + 1..5 {
                b[below][column] -= factor * row[column];
            }
            r[below] -= factor * value;
        }
    }
    for row in (0..5).rev() {
        let known: f64 = (row + 1..5).map(|column| b[row][column] * r[column]).sum();
        r[row] = scales[row] * (r[row] - known);
    }
    r
}

/// The pressure's integral over the surface of a box within the cube, by the
/// trapezoidal rule.
fn integral(flow: &FlowField<'_>) -> f64 {
    let n = flow.n;
    let inside = [1..=n - 2, 1..=n - 3, 2..=n - 2];
    let pressure = |place: [usize; 3]| {
        let [density, x, y, z, energy] = flow.u[(place[2] * n + place[1]) * n + place[0]];
        C2 * (energy - 0.5 * (x * x + y * y + z * z) / density)
    };
    let mut sum = 0.0;
    for axis in 0..3 {
        let (across, up) = ((axis + 1) % 3, (axis + 2) % 3);
        for end in [*inside[axis].start(), *inside[axis].end()] {
            let at = |i: usize, j: usize| {
                let mut place = [end; 3];
                (place[across], place[up]) = (i, j);
                pressure(place)
            };
            for i in *inside[across].start()..*inside[across].end() {
                for j in *inside[up].start()..*inside[up].end() {
                    sum += at(i, j) + at(i + 1, j) + at(i, j + 1) + at(i + 1, j + 1);
                }
            }
        }
    }
    let steps = (n - 1) as f64;
    0.25 * sum / (steps * steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_change_no_bit() {
        let after = |threads: usize| {
            let (problem, _) = problem(NpbClass::S);
            let team = Team::new(threads, &[]).unwrap();
            let mut flow = FlowField::new(&problem, &team);
            flow.run(&FlowProblem { steps: 3, ..problem }, 1.0, relax);
            let bits: Vec<u64> =
                flow.u.as_flattened().iter().map(|value| value.to_bits()).collect();
            bits
        };
        let alone = after(1);
        // With 12 rows, some of 16 threads have none, or but a face.
        for threads in [2, 3, 11, 16] {
            assert!(after(threads) == alone, "{threads} threads");
        }
    }

    #[test]
    fn solving_undoes_multiplying() {
        let block: Matrix5x5 = std::array::from_fn(|row| {
            std::array::from_fn(|column| {
                if row == column { 9.0 } else { (row * 5 + column) as f64 / 10.0 - 1.0 }
            })
        });
        let x = [1.0, -2.0, 3.0, 0.5, 4.0];
        let product = block.map(|row| row.iter().zip(x).map(|(a, x)| a * x).sum::<f64>());
        for (found, x) in solve(block, product).iter().zip(x) {
            assert!((found - x).abs() < 1e-12, "{found} for {x}");
        }
    }
}
