//! CG: the smallest eigenvalue of a sparse matrix by conjugate gradients;
//! memory is read at random places.

use std::time::Instant;

use super::random::NpbRandom;
use super::{NpbClass, NpbResult, near};
use crate::team::Team;

struct CgProblem {
    rows: usize,
    /// Entries of each vector whose outer product makes the matrix.
    nonzeros: usize,
    iterations: usize,
    shift: f64,
    /// Published result.
    zeta: f64,
}

fn problem(class: NpbClass) -> CgProblem {
    let (rows, nonzeros, iterations, shift, zeta) = match class {
        NpbClass::S => (1_400, 7, 15, 10.0, 8.597_177_507_864_8),
        NpbClass::W => (7_000, 8, 15, 12.0, 10.362_595_087_124),
        NpbClass::A => (14_000, 11, 15, 20.0, 17.130_235_054_029),
        NpbClass::B => (75_000, 13, 75, 60.0, 22.712_745_482_631),
    };
    CgProblem { rows, nonzeros, iterations, shift, zeta }
}

/// Ratio of the least eigenvalue to the greatest.
const CONDITION: f64 = 0.1;

/// Steps of the conjugate gradients an iteration.
const STEPS: usize = 25;

/// Rows of a sparse matrix, one after the other.
struct Matrix {
    /// Where each row begins in the other two, and the end of the last.
    begins: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// Bytes that a class needs, the lists that the matrix is made from included.
pub(super) fn bytes(class: NpbClass) -> u64 {
    let problem = problem(class);
    let entries = problem.rows * (problem.nonzeros + 1) * (problem.nonzeros + 1);
    (entries * (16 * 2 + 12) + problem.rows * 100) as u64
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let problem = problem(class);
    let matrix = matrix(&problem);
    let n = problem.rows;
    let mut solver = CgSolver {
        team,
        matrix: &matrix,
        x: vec![1.0; n],
        z: vec![0.0; n],
        r: vec![0.0; n],
        p: vec![0.0; n],
        q: vec![0.0; n],
    };
    // One iteration touches everything, and is not timed.
    solver.iterate(problem.shift);
    solver.x.fill(1.0);
    let (begin, mut zeta, mut residual) = (Instant::now(), 0.0, 0.0);
    for _ in 0..problem.iterations {
        (zeta, residual) = solver.iterate(problem.shift);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let entries = (problem.nonzeros * (problem.nonzeros + 1)) as f64;
    let operations = 2.0
        * (problem.iterations * n) as f64
        * (3.0 + entries + STEPS as f64 * (5.0 + entries) + 3.0);
    NpbResult {
        seconds,
        operations,
        verified: near(zeta, problem.zeta, 1e-10),
        detail: format!("zeta {zeta:.13}, published {}, residual {residual:.3e}", problem.zeta),
    }
}

struct CgSolver<'a> {
    team: &'a Team,
    matrix: &'a Matrix,
    x: Vec<f64>,
    z: Vec<f64>,
    r: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
}

impl CgSolver<'_> {
    /// One step of the inverse power method; the estimate and the residual.
    fn iterate(&mut self, shift: f64) -> (f64, f64) {
        let residual = self.solve();
        let team = self.team;
        let parts = team.all(|thread| {
            let range = team.range(self.x.len(), thread);
            let (x, z) = (&self.x[range.clone()], &self.z[range]);
            (dot(x, z), dot(z, z))
        });
        let (xz, zz) =
            parts.into_iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let factor = 1.0 / zz.sqrt();
        let parts = team.cut(&mut self.x, 1).into_iter().zip(team.cut(&mut self.z, 1));
        team.each(parts, |_, (x, z)| {
            x.iter_mut().zip(z).for_each(|(x, z)| *x = factor * *z);
        });
        (shift + 1.0 / xz, residual)
    }

    /// Solves A z = x; how far A z is from x.
    fn solve(&mut self) -> f64 {
        let team = self.team;
        let parts = team
            .cut(&mut self.z, 1)
            .into_iter()
            .zip(team.cut(&mut self.r, 1))
            .zip(team.cut(&mut self.p, 1));
        let x = &self.x;
        let mut rho: f64 = team
            .each(parts, |thread, ((z, r), p)| {
                let x = &x[team.range(x.len(), thread)];
                z.fill(0.0);
                r.copy_from_slice(x);
                p.copy_from_slice(x);
                dot(x, x)
            })
            .iter()
            .sum();
        for _ in 0..STEPS {
            let pq = multiply(team, self.matrix, &self.p, &mut self.q);
            let alpha = rho / pq;
            let parts = team.cut(&mut self.z, 1).into_iter().zip(team.cut(&mut self.r, 1));
            let (p, q) = (&self.p, &self.q);
            let next: f64 = team
                .each(parts, |thread, (z, r)| {
                    let range = team.range(p.len(), thread);
                    let (p, q) = (&p[range.clone()], &q[range]);
                    z.iter_mut().zip(p).for_each(|(z, p)| *z += alpha * p);
                    r.iter_mut().zip(q).for_each(|(r, q)| *r -= alpha * q);
                    dot(r, r)
                })
                .iter()
                .sum();
            let beta = next / rho;
            rho = next;
            let r = &self.r;
            team.each(team.cut(&mut self.p, 1), |thread, p| {
                let r = &r[team.range(r.len(), thread)];
                p.iter_mut().zip(r).for_each(|(p, r)| *p = r + beta * *p);
            });
        }
        multiply(team, self.matrix, &self.z, &mut self.q);
        let (x, q) = (&self.x, &self.q);
        let square: f64 = team
            .all(|thread| {
                let range = team.range(x.len(), thread);
                let pairs = x[range.clone()].iter().zip(&q[range]);
                pairs.map(|(x, q)| (x - q) * (x - q)).sum::<f64>()
            })
            .iter()
            .sum();
        square.sqrt()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// q = A p; the dot product of p and q.
fn multiply(team: &Team, matrix: &Matrix, p: &[f64], q: &mut [f64]) -> f64 {
    let parts = team.each(team.cut(q, 1), |thread, q| {
        let rows = team.range(p.len(), thread);
        let mut pq = 0.0;
        for (row, q) in rows.zip(q) {
            let entries = matrix.begins[row]..matrix.begins[row + 1];
            let columns = &matrix.columns[entries.clone()];
            let sum: f64 =
                columns.iter().zip(&matrix.values[entries]).map(|(c, v)| v * p[*c as usize]).sum();
            *q = sum;
            pq += p[row] * sum;
        }
        pq
    });
    parts.iter().sum()
}

/// The sum of the weighted outer products of sparse random vectors, with the
/// condition number and the shift on its diagonal.
fn matrix(problem: &CgProblem) -> Matrix {
    let n = problem.rows;
    let mut random = NpbRandom::new(314_159_265);
    // The first number is drawn and not used.
    random.next();
    let vectors: Vec<Vec<(u32, f64)>> =
        (0..n).map(|row| vector(&mut random, n, problem.nonzeros, row)).collect();

    let mut rows: Vec<Vec<(u32, f64)>> = vec![Vec::new(); n];
    let ratio = CONDITION.powf(1.0 / n as f64);
    let mut size = 1.0;
    for (number, vector) in vectors.iter().enumerate() {
        for (row, value) in vector {
            let scale = size * value;
            for (column, other) in vector {
                let mut entry = other * scale;
                if column == row && *row as usize == number {
                    entry += CONDITION - problem.shift;
                }
                rows[*row as usize].push((*column, entry));
            }
        }
        size *= ratio;
    }
    let mut matrix = Matrix { begins: vec![0], columns: Vec::new(), values: Vec::new() };
    for mut row in rows {
        row.sort_by_key(|(column, _)| *column);
        for (column, value) in row {
            let begin = matrix.begins[matrix.begins.len() - 1];
            if matrix.columns.len() > begin && matrix.columns.last() == Some(&column) {
                *matrix.values.last_mut().expect("as many as columns") += value;
            } else {
                matrix.columns.push(column);
                matrix.values.push(value);
            }
        }
        matrix.begins.push(matrix.columns.len());
    }
    matrix
}

/// A vector with random entries at random places, and one half at its own.
fn vector(random: &mut NpbRandom, n: usize, nonzeros: usize, own: usize) -> Vec<(u32, f64)> {
    let places = n.next_power_of_two() as f64;
    let mut vector: Vec<(u32, f64)> = Vec::with_capacity(nonzeros + 1);
    while vector.len() < nonzeros {
        let value = random.next();
        let place = (places * random.next()) as u32;
        if (place as usize) < n && vector.iter().all(|(taken, _)| *taken != place) {
            vector.push((place, value));
        }
    }
    match vector.iter_mut().find(|(place, _)| *place as usize == own) {
        Some(entry) => entry.1 = 0.5,
        None => vector.push((own as u32, 0.5)),
    }
    vector
}
