//! FT: a partial differential equation solved by three-dimensional fast
//! Fourier transforms; all memory goes through all threads.

use std::f64::consts::PI;
use std::ops::{Add, Mul, Sub};
use std::time::Instant;

use super::random::NpbRandom;
use super::{NpbClass, NpbResult};
use crate::team::Team;

/// A complex number.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Complex {
    re: f64,
    im: f64,
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

/// Points along each edge, and the published checksums of each iteration.
fn problem(class: NpbClass) -> ([usize; 3], &'static [[f64; 2]]) {
    match class {
        NpbClass::S => ([64, 64, 64], &CHECKSUMS_S),
        NpbClass::W => ([128, 128, 32], &CHECKSUMS_W),
        NpbClass::A => ([256, 256, 128], &CHECKSUMS_A),
        NpbClass::B => ([512, 256, 256], &CHECKSUMS_B),
    }
}

const CHECKSUMS_S: [[f64; 2]; 6] = [
    [5.546_087_004_964e2, 4.845_363_331_978e2],
    [5.546_385_409_189e2, 4.865_304_269_511e2],
    [5.546_148_406_171e2, 4.883_910_722_336e2],
    [5.545_423_607_415e2, 4.901_273_169_046e2],
    [5.544_255_039_624e2, 4.917_475_857_993e2],
    [5.542_683_411_902e2, 4.932_597_244_941e2],
];

const CHECKSUMS_W: [[f64; 2]; 6] = [
    [5.673_612_178_944e2, 5.293_246_849_175e2],
    [5.631_436_885_271e2, 5.282_149_986_629e2],
    [5.594_024_089_970e2, 5.270_996_558_037e2],
    [5.560_698_047_020e2, 5.260_027_904_925e2],
    [5.530_898_991_250e2, 5.249_400_845_633e2],
    [5.504_159_734_538e2, 5.239_212_247_086e2],
];

const CHECKSUMS_A: [[f64; 2]; 6] = [
    [5.046_735_008_193e2, 5.114_047_905_510e2],
    [5.059_412_319_734e2, 5.098_809_666_433e2],
    [5.069_376_896_287e2, 5.098_144_042_213e2],
    [5.077_892_868_474e2, 5.101_336_130_759e2],
    [5.085_233_095_391e2, 5.104_914_655_194e2],
    [5.091_487_099_959e2, 5.107_917_842_803e2],
];

const CHECKSUMS_B: [[f64; 2]; 20] = [
    [5.177_643_571_579e2, 5.077_803_458_597e2],
    [5.154_521_291_263e2, 5.088_249_431_599e2],
    [5.146_409_228_649e2, 5.096_208_912_659e2],
    [5.142_378_756_213e2, 5.101_023_387_619e2],
    [5.139_626_667_737e2, 5.103_976_610_617e2],
    [5.137_423_460_082e2, 5.105_948_019_802e2],
    [5.135_547_056_878e2, 5.107_404_165_783e2],
    [5.133_910_925_466e2, 5.108_576_573_661e2],
    [5.132_470_705_390e2, 5.109_577_278_523e2],
    [5.131_197_729_984e2, 5.110_460_304_483e2],
    [5.130_070_319_283e2, 5.111_252_433_800e2],
    [5.129_070_537_032e2, 5.111_968_077_718e2],
    [5.128_182_883_502e2, 5.112_616_233_064e2],
    [5.127_393_733_383e2, 5.113_203_605_551e2],
    [5.126_691_062_020e2, 5.113_735_928_093e2],
    [5.126_064_276_004e2, 5.114_218_460_548e2],
    [5.125_504_076_570e2, 5.114_656_139_760e2],
    [5.125_002_331_720e2, 5.115_053_595_966e2],
    [5.124_551_951_846e2, 5.115_415_130_407e2],
    [5.124_146_770_029e2, 5.115_744_692_211e2],
];

/// Bytes that a class needs: three arrays of complex numbers and the factors.
pub(super) fn bytes(class: NpbClass) -> u64 {
    let ([nx, ny, nz], _) = problem(class);
    (nx * ny * nz * (3 * 16 + 8)) as u64
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let (edges, published) = problem(class);
    let total = edges.iter().product::<usize>();
    let mut solver = FtSolver::new(team, edges);
    // The first transform touches everything, and is not timed.
    solver.begin();
    solver.transform();

    let begin = Instant::now();
    solver.begin();
    solver.factors();
    solver.transform();
    let sums: Vec<Complex> = published.iter().map(|_| solver.iterate()).collect();
    let seconds = begin.elapsed().as_secs_f64();

    let wrong = sums.iter().zip(published).position(|(sum, [re, im])| {
        let [off_re, off_im] = [(sum.re - re) / re, (sum.im - im) / im];
        // NaN is wrong as well.
        !(off_re.abs() <= 1e-12 && off_im.abs() <= 1e-12)
    });
    let last = sums[sums.len() - 1];
    let log = (total as f64).ln();
    let operations = total as f64
        * (14.8157 + 7.19641 * log + (5.23518 + 7.21113 * log) * published.len() as f64);
    NpbResult {
        seconds,
        operations,
        verified: wrong.is_none(),
        detail: format!(
            "last checksum {:.12e} {:.12e}, first wrong iteration: {}",
            last.re,
            last.im,
            wrong.map_or_else(|| "none".to_owned(), |at| (at + 1).to_string())
        ),
    }
}

struct FtSolver<'a> {
    team: &'a Team,
    edges: [usize; 3],
    /// Plane by plane, the first coordinate fastest.
    planes: Vec<Complex>,
    /// The transform, the third coordinate fastest.
    lines: Vec<Complex>,
    scratch: Vec<Complex>,
    factors: Vec<f64>,
    roots: [Vec<Complex>; 3],
}

impl<'a> FtSolver<'a> {
    fn new(team: &'a Team, edges: [usize; 3]) -> Self {
        let total = edges.iter().product();
        let zeros = || vec![Complex::default(); total];
        Self {
            team,
            edges,
            planes: zeros(),
            lines: zeros(),
            scratch: zeros(),
            factors: vec![0.0; total],
            roots: edges.map(roots),
        }
    }

    /// Random numbers everywhere.
    fn begin(&mut self) {
        let team = self.team;
        let plane = self.edges[0] * self.edges[1];
        team.each(team.cut(&mut self.planes, plane), |thread, part| {
            let first = team.range(self.edges[2], thread).start * plane;
            let mut random = NpbRandom::new(314_159_265).skip(2 * first as u64);
            for point in part {
                *point = Complex { re: random.next(), im: random.next() };
            }
        });
    }

    /// What one step of time does to each frequency.
    fn factors(&mut self) {
        let (team, [nx, ny, nz]) = (self.team, self.edges);
        let square = |at: usize, n: usize| {
            let frequency = if at >= n / 2 { at as f64 - n as f64 } else { at as f64 };
            frequency * frequency
        };
        team.each(team.cut(&mut self.factors, nz), |thread, part| {
            for (line, part) in team.range(nx * ny, thread).zip(part.chunks_exact_mut(nz)) {
                let flat = square(line % nx, nx) + square(line / nx, ny);
                for (z, factor) in part.iter_mut().enumerate() {
                    *factor = (-4.0 * 1e-6 * PI * PI * (flat + square(z, nz))).exp();
                }
            }
        });
    }

    /// From `planes` to `lines`.
    fn transform(&mut self) {
        let (team, [_, _, nz]) = (self.team, self.edges);
        self.transform_planes(false);
        transpose(team, &self.planes, nz, &mut self.lines);
        let roots = &self.roots[2];
        team.each(team.cut(&mut self.lines, nz), |_, part| {
            let mut scratch = vec![Complex::default(); nz];
            part.chunks_exact_mut(nz).for_each(|line| fft(line, &mut scratch, 1, roots, false));
        });
    }

    /// One step of time, back to `planes`; the checksum.
    fn iterate(&mut self) -> Complex {
        let (team, [nx, ny, nz]) = (self.team, self.edges);
        let (factors, roots) = (&self.factors, &self.roots[2]);
        let parts = team.cut(&mut self.lines, nz).into_iter().zip(team.cut(&mut self.scratch, nz));
        team.each(parts, |thread, (lines, back)| {
            let range = team.range(nx * ny, thread);
            let factors = &factors[range.start * nz..range.end * nz];
            let mut scratch = vec![Complex::default(); nz];
            for ((line, back), factors) in lines
                .chunks_exact_mut(nz)
                .zip(back.chunks_exact_mut(nz))
                .zip(factors.chunks_exact(nz))
            {
                for ((point, back), factor) in line.iter_mut().zip(&mut *back).zip(factors) {
                    *point = Complex { re: point.re * factor, im: point.im * factor };
                    *back = *point;
                }
                fft(back, &mut scratch, 1, roots, true);
            }
        });
        transpose(team, &self.scratch, nx * ny, &mut self.planes);
        self.transform_planes(true);
        let mut sum = Complex::default();
        for j in 1..=1024 {
            let (x, y, z) = (j % nx, 3 * j % ny, 5 * j % nz);
            sum = sum + self.planes[(z * ny + y) * nx + x];
        }
        let total = (nx * ny * nz) as f64;
        Complex { re: sum.re / total, im: sum.im / total }
    }

    /// Both coordinates of each plane.
    fn transform_planes(&mut self, back: bool) {
        let (team, [nx, ny, _], [roots_x, roots_y, _]) = (self.team, self.edges, &self.roots);
        team.each(team.cut(&mut self.planes, nx * ny), |_, part| {
            let mut scratch = vec![Complex::default(); nx * ny];
            for plane in part.chunks_exact_mut(nx * ny) {
                plane
                    .chunks_exact_mut(nx)
                    .for_each(|line| fft(line, &mut scratch[..nx], 1, roots_x, back));
                fft(plane, &mut scratch, nx, roots_y, back);
            }
        });
    }
}

/// The first half of the `n`-th roots of one.
fn roots(n: usize) -> Vec<Complex> {
    let angle = |at: usize| 2.0 * PI * at as f64 / n as f64;
    (0..n / 2).map(|at| Complex { re: angle(at).cos(), im: angle(at).sin() }).collect()
}

/// Transforms `many` interleaved sequences at once, by Stockham's method: each
/// pass goes from one array to the other, in order. The length is a power of two.
fn fft(
    points: &mut [Complex],
    scratch: &mut [Complex],
    many: usize,
    roots: &[Complex],
    back: bool,
) {
    let n = points.len() / many;
    let (mut from, mut to) = (&mut *points, &mut *scratch);
    // Before a pass there are `done` sequences of `n / done` points each.
    let mut done = 1;
    while done < n {
        let half = n / 2 / done;
        let width = done * many;
        let (first, second) = from.split_at(n / 2 * many);
        for at in 0..half {
            let root = roots[at * done];
            let root = if back { Complex { im: -root.im, ..root } } else { root };
            let range = at * width..(at + 1) * width;
            let (sums, differences) = to[2 * range.start..2 * range.end].split_at_mut(width);
            for (((a, b), sum), difference) in
                first[range.clone()].iter().zip(&second[range]).zip(sums).zip(differences)
            {
                *sum = *a + *b;
                *difference = (*a - *b) * root;
            }
        }
        std::mem::swap(&mut from, &mut to);
        done *= 2;
    }
    if n.ilog2() % 2 == 1 {
        // The result is in the scratch array.
        to.copy_from_slice(from);
    }
}

/// Columns of `from`, whose columns are `rows` long, become rows of `to`.
fn transpose(team: &Team, from: &[Complex], rows: usize, to: &mut [Complex]) {
    /// Points of a square that fits into the first cache.
    const TILE: usize = 16;
    let columns = from.len() / rows;
    team.each(team.cut(to, rows), |thread, part| {
        let own = team.range(columns, thread);
        for row in (0..rows).step_by(TILE) {
            for column in own.clone().step_by(TILE) {
                for column in column..(column + TILE).min(own.end) {
                    let line = &mut part[(column - own.start) * rows..][..rows];
                    for row in row..(row + TILE).min(rows) {
                        line[row] = from[row * columns + column];
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_is_the_sum_that_defines_it() {
        for (n, many) in [(2, 1), (8, 3), (16, 1), (32, 2)] {
            let mut random = NpbRandom::new(7);
            let begin: Vec<Complex> =
                (0..n * many).map(|_| Complex { re: random.next(), im: random.next() }).collect();
            let (mut points, mut scratch) = (begin.clone(), begin.clone());
            fft(&mut points, &mut scratch, many, &roots(n), false);
            for k in 0..n {
                for which in 0..many {
                    let mut sum = Complex::default();
                    for j in 0..n {
                        let angle = 2.0 * PI * (j * k % n) as f64 / n as f64;
                        let root = Complex { re: angle.cos(), im: angle.sin() };
                        sum = sum + begin[j * many + which] * root;
                    }
                    let off = sum - points[k * many + which];
                    assert!(off.re.abs() + off.im.abs() < 1e-12, "{n} {many} {k}");
                }
            }
            fft(&mut points, &mut scratch, many, &roots(n), true);
            for (there, back) in begin.iter().zip(&points) {
                assert!((back.re / n as f64 - there.re).abs() < 1e-14);
            }
        }
    }
}
