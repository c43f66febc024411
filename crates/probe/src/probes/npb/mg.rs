//! MG: V-cycles of a multigrid solver for a Poisson equation on a periodic
//! cube; long and short strides through memory.

use std::time::Instant;

use super::random::NpbRandom;
use super::{NpbClass, NpbResult, near};
use crate::team::Team;

/// Points along an edge, cycles, and the published norm of the residual.
fn problem(class: NpbClass) -> (usize, usize, f64) {
    match class {
        NpbClass::S => (32, 4, 0.530_770_700_573_4e-4),
        NpbClass::W => (128, 4, 0.646_732_937_533_9e-5),
        NpbClass::A => (256, 4, 0.243_336_530_906_9e-5),
        NpbClass::B => (256, 20, 0.180_056_440_135_5e-5),
    }
}

/// Weights of a point's neighbours by how many of their coordinates differ:
/// those of the operator ...
const OPERATOR: [f64; 4] = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];

/// ... of the smoother, by class; the fourth is 0 ...
fn smoother(class: NpbClass) -> [f64; 3] {
    match class {
        NpbClass::B => [-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0],
        _ => [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0],
    }
}

/// ... and of the restriction to the next coarser grid.
const RESTRICTION: [f64; 4] = [0.5, 0.25, 0.125, 0.0625];

/// A cube of points, `n` along each edge; the first coordinate varies fastest.
struct CubeGrid {
    n: usize,
    points: Vec<f64>,
}

impl CubeGrid {
    fn new(n: usize) -> Self {
        Self { n, points: vec![0.0; n * n * n] }
    }

    /// A row, with coordinates that may lie one outside.
    fn row(&self, plane: usize, row: usize) -> &[f64] {
        let begin = (plane % self.n * self.n + row % self.n) * self.n;
        &self.points[begin..begin + self.n]
    }
}

/// Bytes that a class needs: three grids, a seventh more for the coarser ones,
/// and the numbers that the right side is made from.
pub(super) fn bytes(class: NpbClass) -> u64 {
    let (n, ..) = problem(class);
    (n * n * n * (3 * 8 * 8 / 7 + 16)) as u64
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let (n, cycles, published) = problem(class);
    let mut solver = MgSolver::new(class, team, n);
    // One cycle touches everything, and is not timed.
    solver.residual_of_top();
    solver.cycle();
    solver.start();

    let begin = Instant::now();
    solver.residual_of_top();
    for _ in 0..cycles {
        solver.cycle();
        solver.residual_of_top();
    }
    let norm = solver.norm();
    let seconds = begin.elapsed().as_secs_f64();
    NpbResult {
        seconds,
        operations: 58.0 * (cycles * n * n * n) as f64,
        verified: near(norm, published, 1e-8),
        detail: format!("norm {norm:.13e}, published {published:e}"),
    }
}

struct MgSolver<'a> {
    team: &'a Team,
    smoother: [f64; 3],
    /// Right side of the equation.
    v: CubeGrid,
    /// Solutions and residuals by level; the coarsest has two points an edge.
    u: Vec<CubeGrid>,
    r: Vec<CubeGrid>,
}

impl<'a> MgSolver<'a> {
    fn new(class: NpbClass, team: &'a Team, n: usize) -> Self {
        let edges = (1..=n.ilog2()).map(|level| 1 << level);
        let (u, r) = edges.map(|n| (CubeGrid::new(n), CubeGrid::new(n))).unzip();
        let mut solver = Self { team, smoother: smoother(class), v: right_side(n), u, r };
        solver.start();
        solver
    }

    fn start(&mut self) {
        self.u.iter_mut().for_each(|grid| grid.points.fill(0.0));
    }

    fn residual_of_top(&mut self) {
        let top = self.u.len() - 1;
        residual(self.team, &self.u[top], Some(&self.v), &mut self.r[top]);
    }

    /// One V-cycle: residuals go down to the coarsest grid, corrections up.
    fn cycle(&mut self) {
        let (team, top) = (self.team, self.u.len() - 1);
        for level in (1..=top).rev() {
            let (coarse, fine) = self.r.split_at_mut(level);
            restrict(team, &fine[0], &mut coarse[level - 1]);
        }
        self.u[0].points.fill(0.0);
        smooth(team, self.smoother, &self.r[0], &mut self.u[0]);
        for level in 1..=top {
            let (coarse, fine) = self.u.split_at_mut(level);
            if level < top {
                fine[0].points.fill(0.0);
            }
            prolong(team, &coarse[level - 1], &mut fine[0]);
            let right = (level == top).then_some(&self.v);
            residual(team, &self.u[level], right, &mut self.r[level]);
            smooth(team, self.smoother, &self.r[level], &mut self.u[level]);
        }
    }

    /// Root of the mean square of the finest residual.
    fn norm(&self) -> f64 {
        let points = &self.r[self.r.len() - 1].points;
        let sums = self.team.all(|thread| {
            let range = self.team.range(points.len(), thread);
            points[range].iter().map(|value| value * value).sum::<f64>()
        });
        (sums.iter().sum::<f64>() / points.len() as f64).sqrt()
    }
}

/// +1 at the ten points with the greatest of the random numbers, -1 at the ten
/// with the least, 0 elsewhere.
fn right_side(n: usize) -> CubeGrid {
    let mut random = NpbRandom::new(314_159_265);
    let mut numbers: Vec<(f64, usize)> = (0..n * n * n).map(|at| (random.next(), at)).collect();
    let mut grid = CubeGrid::new(n);
    let order = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0);
    numbers.select_nth_unstable_by(9, order);
    for (_, at) in &numbers[..10] {
        grid.points[*at] = -1.0;
    }
    let last = numbers.len() - 10;
    numbers.select_nth_unstable_by(last, order);
    for (_, at) in &numbers[last..] {
        grid.points[*at] = 1.0;
    }
    grid
}

/// Calls `work(plane, row, points of the row)` for each row of the grid.
fn rows(
    team: &Team,
    grid: &mut CubeGrid,
    work: impl Fn(usize, usize, &mut [f64], &mut RowSums) + Sync,
) {
    let n = grid.n;
    team.each(team.cut(&mut grid.points, n * n), |thread, part| {
        let mut sums = RowSums::new(2 * n);
        for (plane, points) in team.range(n, thread).zip(part.chunks_exact_mut(n * n)) {
            for (row, points) in points.chunks_exact_mut(n).enumerate() {
                work(plane, row, points, &mut sums);
            }
        }
    });
}

/// Sums over the rows around a row, each with one point more at both ends: of
/// the row itself, of those beside it in two directions, and of those across.
struct RowSums {
    own: Vec<f64>,
    beside: Vec<f64>,
    across: Vec<f64>,
}

impl RowSums {
    fn new(n: usize) -> Self {
        let [own, beside, across] = [(); 3].map(|()| vec![0.0; n + 2]);
        Self { own, beside, across }
    }

    /// Of the rows around one of `grid`; at how many points they are.
    fn around(&mut self, grid: &CubeGrid, plane: usize, row: usize) -> usize {
        let n = grid.n;
        let (below, above) = (plane + n - 1, plane + 1);
        let (before, after) = (row + n - 1, row + 1);
        self.own[1..=n].copy_from_slice(grid.row(plane, row));
        for (sum, rows) in [
            (&mut self.beside, [(plane, before), (plane, after), (below, row), (above, row)]),
            (&mut self.across, [(below, before), (below, after), (above, before), (above, after)]),
        ] {
            let [a, b, c, d] = rows.map(|(plane, row)| grid.row(plane, row));
            let others = a.iter().zip(b).zip(c.iter().zip(d));
            for (sum, ((a, b), (c, d))) in sum[1..=n].iter_mut().zip(others) {
                *sum = a + b + c + d;
            }
        }
        for sum in [&mut self.own, &mut self.beside, &mut self.across] {
            sum[0] = sum[n];
            sum[n + 1] = sum[1];
        }
        n
    }
}

/// r = v - A u, or r = r - A u without a right side.
fn residual(team: &Team, u: &CubeGrid, v: Option<&CubeGrid>, r: &mut CubeGrid) {
    let [own, _, two, three] = OPERATOR;
    rows(team, r, |plane, row, r, sums| {
        let n = sums.around(u, plane, row);
        if let Some(v) = v {
            r.copy_from_slice(v.row(plane, row));
        }
        let centres = &sums.own[1..=n];
        for (((r, centre), beside), across) in
            r.iter_mut().zip(centres).zip(sums.beside.windows(3)).zip(sums.across.windows(3))
        {
            *r = *r
                - own * centre
                - two * (across[1] + beside[0] + beside[2])
                - three * (across[0] + across[2]);
        }
    });
}

/// u = u + S r.
fn smooth(team: &Team, [own, one, two]: [f64; 3], r: &CubeGrid, u: &mut CubeGrid) {
    rows(team, u, |plane, row, u, sums| {
        sums.around(r, plane, row);
        for (((u, centre), beside), across) in u
            .iter_mut()
            .zip(sums.own.windows(3))
            .zip(sums.beside.windows(3))
            .zip(sums.across.windows(3))
        {
            *u += own * centre[1]
                + one * (centre[0] + centre[2] + beside[1])
                + two * (across[1] + beside[0] + beside[2]);
        }
    });
}

/// Each coarse point becomes the weighted mean of the 27 fine points around.
///
/// Points are counted from one, as the report does: the coarse point j is the
/// fine point 2 j.
fn restrict(team: &Team, fine: &CubeGrid, coarse: &mut CubeGrid) {
    let [own, one, two, three] = RESTRICTION;
    rows(team, coarse, |plane, row, coarse, sums| {
        sums.around(fine, 2 * plane + 1, 2 * row + 1);
        for (j, coarse) in coarse.iter_mut().enumerate() {
            // The sums have one point more in front.
            let at = 2 * j + 2;
            *coarse = own * sums.own[at]
                + one * (sums.own[at - 1] + sums.own[at + 1] + sums.beside[at])
                + two * (sums.beside[at - 1] + sums.beside[at + 1] + sums.across[at])
                + three * (sums.across[at - 1] + sums.across[at + 1]);
        }
    });
}

/// Adds to each fine point the mean of the coarse points around it.
fn prolong(team: &Team, coarse: &CubeGrid, fine: &mut CubeGrid) {
    let n = coarse.n;
    // Counted from one, the fine point 2 j is the coarse point j, and 2 j + 1
    // lies between j and the next; counted from zero, 2 j + 1 is j, and 2 j
    // lies between the one before and j.
    let around = |at: usize| {
        let after = at / 2;
        if at % 2 == 1 { (after, after) } else { ((after + n - 1) % n, after) }
    };
    rows(team, fine, |plane, row, fine, sums| {
        let ((below, above), (before, after)) = (around(plane), around(row));
        let [a, b, c, d] = [(below, before), (below, after), (above, before), (above, after)]
            .map(|(plane, row)| coarse.row(plane, row));
        for (sum, ((a, b), (c, d))) in
            sums.own[1..=n].iter_mut().zip(a.iter().zip(b).zip(c.iter().zip(d)))
        {
            *sum = 0.25 * (a + b + c + d);
        }
        sums.own[0] = sums.own[n];
        for (pair, means) in fine.chunks_exact_mut(2).zip(sums.own.windows(2)) {
            pair[0] += 0.5 * (means[0] + means[1]);
            pair[1] += means[1];
        }
    });
}
