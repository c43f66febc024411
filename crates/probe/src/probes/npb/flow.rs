//! What BT, SP and LU share: a flow through a unit cube, its equations in
//! differences, and the solution that they are to find.
//!
//! Five values a point (density, three momenta, energy) follow the compressible
//! Navier-Stokes equations with a source that makes a given polynomial their
//! steady state. A step solves (I - dt L) du = dt r. BT and SP take L apart into
//! one factor a direction, and differ in the form of these factors; LU takes it
//! apart into what comes before a point and what comes after it.
//!
//! Source: RNR-94-007, chapter 3.

use std::ops::Range;
use std::time::Instant;

use super::{NpbResult, near};
use crate::team::Team;

/// The values of a point: density, momenta, energy.
pub(super) type PointValues = [f64; 5];

/// The gas: ratio of heat capacities, that less 1, viscosity, Prandtl number.
pub(super) const C1: f64 = 1.4;
pub(super) const C2: f64 = 0.4;
pub(super) const C3C4: f64 = 0.1;
pub(super) const C1C5: f64 = 1.96;

/// Second-order damping of each direction, and fourth-order damping of all.
pub(super) const DAMPING: [f64; 3] = [0.75, 0.75, 1.0];
pub(super) const FOURTH: f64 = 0.25;

/// Viscosity of a momentum along its own direction, against the others.
pub(super) const ALONG: f64 = 4.0 / 3.0;

/// Coefficients of the solution, by value: the constant, then those of x, y, z,
/// of their squares, cubes and fourth powers.
const SOLUTION: [[f64; 13]; 5] = [
    [2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3],
    [1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3],
    [5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2],
];

/// The solution at a place of the unit cube.
fn solution(place: [f64; 3]) -> PointValues {
    SOLUTION.map(|row| {
        let along = |axis: usize| {
            let x = place[axis];
            x * (row[1 + axis] + x * (row[4 + axis] + x * (row[7 + axis] + x * row[10 + axis])))
        };
        row[0] + along(0) + along(1) + along(2)
    })
}

/// A size of the problem, with its published results.
pub(super) struct FlowProblem {
    /// Points along an edge.
    pub(super) n: usize,
    pub(super) steps: usize,
    pub(super) dt: f64,
    /// By how much a step's change is multiplied before it is added.
    pub(super) gain: f64,
    /// Root mean squares, by value: of the residual and of the error.
    pub(super) residual: PointValues,
    pub(super) error: PointValues,
}

/// What follows from a point's values.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PointState {
    /// 1 / density.
    pub(super) inverse: f64,
    pub(super) velocity: [f64; 3],
    /// Kinetic energy, of the volume and of the mass.
    pub(super) kinetic: f64,
    pub(super) specific: f64,
    /// Speed of sound.
    pub(super) sound: f64,
}

impl PointState {
    fn of(u: &PointValues) -> Self {
        let inverse = 1.0 / u[0];
        let kinetic = 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) * inverse;
        Self {
            inverse,
            velocity: [u[1] * inverse, u[2] * inverse, u[3] * inverse],
            kinetic,
            specific: kinetic * inverse,
            sound: (C1 * C2 * inverse * (u[4] - kinetic)).sqrt(),
        }
    }
}

/// A row of points through the cube.
#[derive(Debug, Clone, Copy)]
pub(super) struct GridLine {
    /// Its direction: 0, 1 or 2.
    pub(super) axis: usize,
    first: usize,
    stride: usize,
}

impl GridLine {
    /// The index of its point `i`.
    #[inline]
    pub(super) fn at(&self, i: usize) -> usize {
        self.first + i * self.stride
    }
}

/// The flow at one time, on a grid of n points along each edge; x varies
/// fastest. Values on the faces are the solution's and stay.
pub(super) struct FlowField<'a> {
    pub(super) team: &'a Team,
    pub(super) n: usize,
    dt: f64,
    gain: f64,
    pub(super) u: Vec<PointValues>,
    states: Vec<PointState>,
    /// The right side, then what solving makes of it: the change of a step.
    change: Vec<PointValues>,
    source: Vec<PointValues>,
}

/// Bytes that a grid of `n` points along an edge needs.
pub(super) fn bytes(n: usize) -> u64 {
    (n.pow(3) * (3 * size_of::<PointValues>() + size_of::<PointState>())) as u64
}

impl<'a> FlowField<'a> {
    pub(super) fn new(problem: &FlowProblem, team: &'a Team) -> Self {
        let n = problem.n;
        let points = n.pow(3);
        let mut flow = Self {
            team,
            n,
            dt: problem.dt,
            gain: problem.gain,
            u: vec![[0.0; 5]; points],
            states: vec![PointState::default(); points],
            change: vec![[0.0; 5]; points],
            source: vec![[0.0; 5]; points],
        };
        // The source that keeps the solution where it is: less all that the
        // equations do to it.
        flow.fill(solution);
        flow.right_side();
        flow.source.clone_from(&flow.change);
        for value in flow.source.as_flattened_mut() {
            *value = -*value / flow.dt;
        }
        flow.start();
        flow
    }

    /// Runs a benchmark: `solve` makes the right side of a flow its change.
    /// Operations are those of the reports, for the whole run.
    pub(super) fn run(
        &mut self,
        problem: &FlowProblem,
        operations: f64,
        solve: fn(&mut Self),
    ) -> NpbResult {
        // One step touches everything, and is not timed.
        self.step(solve);
        self.start();

        let begin = Instant::now();
        for _ in 0..problem.steps {
            self.step(solve);
        }
        let seconds = begin.elapsed().as_secs_f64();

        let error = self.error();
        self.right_side();
        let residual = self.residual();
        let agree = |found: PointValues, published: PointValues| {
            found.iter().zip(published).all(|(found, published)| near(*found, published, 1e-8))
        };
        NpbResult {
            seconds,
            operations,
            verified: agree(residual, problem.residual) && agree(error, problem.error),
            detail: format!(
                "residuals {residual:?}, published {:?}; errors {error:?}, published {:?}",
                problem.residual, problem.error
            ),
        }
    }

    /// Sets every point by its place.
    fn fill(&mut self, values: impl Fn([f64; 3]) -> PointValues + Sync) {
        let (n, team) = (self.n, self.team);
        team.each(team.cut(&mut self.u, n * n), |thread, part| {
            for (plane, points) in team.range(n, thread).zip(part.chunks_exact_mut(n * n)) {
                for (at, u) in points.iter_mut().enumerate() {
                    *u = values([at % n, at / n, plane].map(|i| i as f64 / (n - 1) as f64));
                }
            }
        });
    }

    /// The values of the beginning: blended, at each point, of the solution at
    /// the six places of the faces that lie straight across from it. On a face
    /// that is the solution.
    fn start(&mut self) {
        self.fill(|place| {
            let between = [0, 1, 2].map(|axis| {
                let end = |to: f64| {
                    let mut place = place;
                    place[axis] = to;
                    solution(place)
                };
                let (near, far, at) = (end(0.0), end(1.0), place[axis]);
                std::array::from_fn::<f64, 5, _>(|m| at * far[m] + (1.0 - at) * near[m])
            });
            if let Some(axis) = place.iter().position(|at| *at == 0.0 || *at == 1.0) {
                return between[axis];
            }
            let [x, y, z] = between;
            std::array::from_fn(|m| {
                x[m] + y[m] + z[m] - x[m] * y[m] - x[m] * z[m] - y[m] * z[m] + x[m] * y[m] * z[m]
            })
        });
    }

    fn step(&mut self, solve: fn(&mut Self)) {
        self.right_side();
        solve(self);
        let (n, team, gain) = (self.n, self.team, self.gain);
        let change = &self.change;
        team.each(team.cut(&mut self.u, n * n), |thread, part| {
            let range = team.range(n, thread);
            let change = &change[range.start * n * n..range.end * n * n];
            for (u, change) in part.as_flattened_mut().iter_mut().zip(change.as_flattened()) {
                *u += gain * change;
            }
        });
    }

    /// dt times what the equations and the source do at each inner point.
    fn right_side(&mut self) {
        let (n, team, dt) = (self.n, self.team, self.dt);
        let u = &self.u;
        team.each(team.cut(&mut self.states, n * n), |thread, part| {
            let first = team.range(n, thread).start * n * n;
            for (state, u) in part.iter_mut().zip(&u[first..]) {
                *state = PointState::of(u);
            }
        });
        let (states, source) = (&self.states, &self.source);
        team.each(team.cut(&mut self.change, n * n), |thread, part| {
            for (plane, points) in inner(&team.range(n, thread), n, part) {
                for row in 1..n - 1 {
                    for column in 1..n - 1 {
                        let at = (plane * n + row) * n + column;
                        let mut sum = source[at];
                        for (axis, i) in [column, row, plane].into_iter().enumerate() {
                            along(&mut sum, u, states, n, at, axis, i);
                        }
                        points[row * n + column] = sum.map(|value| value * dt);
                    }
                }
            }
        });
    }

    /// Root mean square, by value, of `of(point)`, over as many points as lie
    /// inside.
    fn mean(&self, of: impl Fn(usize) -> PointValues + Sync) -> PointValues {
        let points = self.u.len();
        let sums = self.team.all(|thread| {
            let mut sum = [0.0; 5];
            for at in self.team.range(points, thread) {
                for (sum, value) in sum.iter_mut().zip(of(at)) {
                    *sum += value * value;
                }
            }
            sum
        });
        let inside = (self.n - 2).pow(3) as f64;
        std::array::from_fn(|m| (sums.iter().map(|sum| sum[m]).sum::<f64>() / inside).sqrt())
    }

    fn residual(&self) -> PointValues {
        self.mean(|at| self.change[at].map(|value| value / self.dt))
    }

    fn error(&self) -> PointValues {
        let n = self.n;
        self.mean(|at| {
            let place = [at % n, at / n % n, at / n / n].map(|i| i as f64 / (n - 1) as f64);
            let exact = solution(place);
            std::array::from_fn(|m| self.u[at][m] - exact[m])
        })
    }

    /// What solving reads, and some rows of every plane of the change for each
    /// thread: those of [`Team::range`].
    pub(super) fn rows(&mut self) -> (FlowView<'_>, Vec<Vec<&mut [PointValues]>>) {
        let (n, team) = (self.n, self.team);
        let mut parts: Vec<Vec<_>> = (0..team.threads()).map(|_| Vec::with_capacity(n)).collect();
        for plane in self.change.chunks_exact_mut(n * n) {
            for (parts, part) in parts.iter_mut().zip(team.cut(plane, n)) {
                parts.push(part);
            }
        }
        (FlowView { n, dt: self.dt, u: &self.u, states: &self.states }, parts)
    }

    /// Calls `work(scratch, line, changes)` for each line along `axis` that has
    /// inner points; each thread has a scratch of its own.
    pub(super) fn lines<S>(
        &mut self,
        axis: usize,
        scratch: impl Fn(usize) -> S + Sync,
        work: impl Fn(&mut S, &FlowView<'_>, GridLine, &mut [PointValues]) + Sync,
    ) {
        let (n, team) = (self.n, self.team);
        let stride = n.pow(axis as u32);
        if axis < 2 {
            let view = FlowView { n, dt: self.dt, u: &self.u, states: &self.states };
            team.each(team.cut(&mut self.change, n * n), |thread, part| {
                let (mut scratch, mut gathered) = (scratch(n), vec![[0.0; 5]; n]);
                for (plane, points) in inner(&team.range(n, thread), n, part) {
                    for other in 1..n - 1 {
                        // Of the plane's rows, or of its columns.
                        let first = if axis == 0 { other * n } else { other };
                        let line = GridLine { axis, first: plane * n * n + first, stride };
                        for (i, values) in gathered.iter_mut().enumerate() {
                            *values = points[first + i * stride];
                        }
                        work(&mut scratch, &view, line, &mut gathered);
                        for (i, values) in gathered.iter().enumerate() {
                            points[first + i * stride] = *values;
                        }
                    }
                }
            });
            return;
        }
        let (view, parts) = self.rows();
        team.each(parts, |thread, mut planes| {
            let (mut scratch, mut gathered) = (scratch(n), vec![[0.0; 5]; n]);
            let rows = team.range(n, thread);
            for row in rows.start.max(1)..rows.end.min(n - 1) {
                for column in 1..n - 1 {
                    let at = (row - rows.start) * n + column;
                    let line = GridLine { axis, first: row * n + column, stride };
                    for (values, plane) in gathered.iter_mut().zip(&planes) {
                        *values = plane[at];
                    }
                    work(&mut scratch, &view, line, &mut gathered);
                    for (values, plane) in gathered.iter().zip(&mut planes) {
                        plane[at] = *values;
                    }
                }
            }
        });
    }
}

/// What solving reads of a flow.
pub(super) struct FlowView<'a> {
    pub(super) n: usize,
    pub(super) dt: f64,
    pub(super) u: &'a [PointValues],
    pub(super) states: &'a [PointState],
}

/// The planes of a thread's part that are no faces, with their numbers.
fn inner<'a>(
    range: &Range<usize>,
    n: usize,
    part: &'a mut [PointValues],
) -> impl Iterator<Item = (usize, &'a mut [PointValues])> {
    let planes = range.clone().zip(part.chunks_exact_mut(n * n));
    planes.filter(move |(plane, _)| (1..n - 1).contains(plane))
}

/// Adds to `sum` what flows along `axis` at a point, its `i`th there: the
/// differences of its neighbours' fluxes, viscosity, heat, and damping.
fn along(
    sum: &mut PointValues,
    u: &[PointValues],
    states: &[PointState],
    n: usize,
    at: usize,
    axis: usize,
    i: usize,
) {
    let stride = n.pow(axis as u32);
    let steps = (n - 1) as f64;
    let (before, after) = (at - stride, at + stride);
    let [ua, ub, uc] = [u[before], u[at], u[after]];
    let [a, b, c] = [states[before], states[at], states[after]];
    let second = |a: f64, b: f64, c: f64| a - 2.0 * b + c;

    let flux = |u: &PointValues, state: &PointState| {
        let speed = state.velocity[axis];
        let pressure = C2 * (u[4] - state.kinetic);
        let mut flux = u.map(|value| value * speed);
        flux[0] = u[1 + axis];
        flux[1 + axis] += pressure;
        flux[4] += pressure * speed;
        flux
    };
    let (left, right) = (flux(&ua, &a), flux(&uc, &c));
    let damping = DAMPING[axis] * steps * steps;
    for m in 0..5 {
        sum[m] += damping * second(ua[m], ub[m], uc[m]) - 0.5 * steps * (right[m] - left[m]);
    }

    let viscosity = C3C4 * steps * steps;
    for m in 0..3 {
        let factor = if m == axis { ALONG } else { 1.0 };
        sum[1 + m] += viscosity * factor * second(a.velocity[m], b.velocity[m], c.velocity[m]);
    }
    let square = |state: &PointState| state.velocity[axis] * state.velocity[axis];
    sum[4] += viscosity
        * ((1.0 - C1C5) * second(a.specific, b.specific, c.specific)
            + second(square(&a), square(&b), square(&c)) / 6.0
            + C1C5 * second(ua[4] * a.inverse, ub[4] * b.inverse, uc[4] * c.inverse));

    // Weights of the points two before to two after; beyond a face is nothing.
    let [w2, w1, w0, v1, v2] = fourth(i, n);
    let far_before = u[if i == 1 { at } else { before - stride }];
    let far_after = u[if i == n - 2 { at } else { after + stride }];
    for m in 0..5 {
        sum[m] -= FOURTH
            * (w2 * far_before[m] + w1 * ua[m] + w0 * ub[m] + v1 * uc[m] + v2 * far_after[m]);
    }
}

/// Weights of a fourth difference at the `i`th of `n` points, which near a face
/// leaves out what lies on or beyond it.
#[inline]
pub(super) fn fourth(i: usize, n: usize) -> [f64; 5] {
    match i {
        1 => [0.0, 0.0, 5.0, -4.0, 1.0],
        2 => [0.0, -4.0, 6.0, -4.0, 1.0],
        _ if i == n - 3 => [1.0, -4.0, 6.0, -4.0, 0.0],
        _ if i == n - 2 => [1.0, -4.0, 5.0, 0.0, 0.0],
        _ => [1.0, -4.0, 6.0, -4.0, 1.0],
    }
}
