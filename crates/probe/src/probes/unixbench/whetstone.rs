//! Whetstone: the instruction mix of numerical programs of 1970, in double
//! precision.
//!
//! Source: H. J. Curnow and B. A. Wichmann, "A Synthetic Benchmark", Computer
//! Journal 19 (1), 1976: the modules with their weights; modules 1, 5 and 10
//! weigh nothing.

use std::hint::black_box;

const T: f64 = 0.499975;
const T1: f64 = 0.50025;
const T2: f64 = 2.0;

/// Whetstone instructions of one [`unit`].
pub(super) const INSTRUCTIONS: f64 = 100_000.0;

/// What the modules of one unit leave behind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UnitResults {
    elements: [f64; 4],
    passed: [f64; 4],
    jump: i32,
    integers: [f64; 2],
    angles: [f64; 2],
    called: f64,
    rotated: [f64; 3],
    function: f64,
}

/// Runs every module once, with the weights for a tenth of a million
/// instructions.
pub(super) fn unit() -> UnitResults {
    UnitResults {
        elements: elements(),
        passed: passed(),
        jump: jumps(),
        integers: integers(),
        angles: angles(),
        called: calls(),
        rotated: references(),
        function: functions(),
    }
}

impl UnitResults {
    /// True if the values are those that the formulas of the modules yield.
    pub(super) fn is_right(&self) -> bool {
        let near = |value: f64, expected: f64, by: f64| (value - expected).abs() <= by;
        // Module 7 doubles an angle and halves it, but for the factor 2 T.
        let shrunk = 0.5 * (2.0 * T).powi(ANGLES as i32);
        // Module 11 takes the 2 T1-th root.
        let root = (0.75_f64.ln() / (2.0 * T1).powi(FUNCTIONS as i32)).exp();
        let first = T * 2.0;
        self.jump == 0
            && self.integers == [6.0, 6.0]
            && self.rotated == [3.0, 2.0, 3.0]
            && self.angles.iter().all(|angle| near(*angle, shrunk, 1e-3))
            && near(self.called, (first + T * (first + 1.0)) / T2, 1e-15)
            && near(self.function, root, 1e-12)
            && self.elements.iter().chain(&self.passed).all(|value| value.is_finite())
    }
}

const START: [f64; 4] = [1.0, -1.0, -1.0, -1.0];
const ANGLES: usize = 32;
const FUNCTIONS: usize = 93;

/// Module 2: array elements.
#[inline(never)]
fn elements() -> [f64; 4] {
    let mut e = black_box(START);
    for _ in 0..12 {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * T;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * T;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * T;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) * T;
    }
    e
}

/// Module 3: an array as parameter.
#[inline(never)]
fn passed() -> [f64; 4] {
    let mut e = black_box(START);
    for _ in 0..14 {
        pass(&mut e);
    }
    e
}

#[inline(never)]
fn pass(e: &mut [f64; 4]) {
    for _ in 0..6 {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * T;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * T;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * T;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) / T2;
    }
}

/// Module 4: conditional jumps.
#[inline(never)]
fn jumps() -> i32 {
    let mut j = 1;
    for _ in 0..345 {
        j = if black_box(j) == 1 { 2 } else { 3 };
        j = if black_box(j) > 2 { 0 } else { 1 };
        j = if black_box(j) < 1 { 1 } else { 0 };
    }
    j
}

/// Module 6: integer arithmetic.
#[inline(never)]
fn integers() -> [f64; 2] {
    let (mut j, mut k, mut l, mut e) = (1_i32, 2_i32, 3_i32, [0.0; 4]);
    for _ in 0..210 {
        (j, k, l) = black_box((j, k, l));
        j = j * (k - j) * (l - k);
        k = l * k - (l - j) * k;
        l = (l - k) * (k + j);
        e[(l - 2) as usize] = f64::from(j + k + l);
        e[(k - 2) as usize] = f64::from(j * k * l);
    }
    [e[0], e[1]]
}

/// Module 7: trigonometric functions.
#[inline(never)]
fn angles() -> [f64; 2] {
    let (mut x, mut y) = (0.5_f64, 0.5_f64);
    for _ in 0..ANGLES {
        x = T * (T2 * x.sin() * x.cos() / ((x + y).cos() + (x - y).cos() - 1.0)).atan();
        y = T * (T2 * y.sin() * y.cos() / ((x + y).cos() + (x - y).cos() - 1.0)).atan();
    }
    [x, y]
}

/// Module 8: procedure calls.
#[inline(never)]
fn calls() -> f64 {
    let (x, y, mut z) = (1.0, 1.0, 1.0);
    for _ in 0..899 {
        call(x, y, &mut z);
    }
    z
}

#[inline(never)]
fn call(x: f64, y: f64, z: &mut f64) {
    let x = T * (black_box(x) + black_box(y));
    let y = T * (x + y);
    *z = (x + y) / T2;
}

/// Module 9: array references.
#[inline(never)]
fn references() -> [f64; 3] {
    let (j, k, l) = black_box((0_usize, 1_usize, 2_usize));
    let mut e = [1.0, 2.0, 3.0];
    for _ in 0..616 {
        refer(&mut e, j, k, l);
    }
    e
}

#[inline(never)]
fn refer(e: &mut [f64; 3], j: usize, k: usize, l: usize) {
    e[j] = e[k];
    e[k] = e[l];
    e[l] = e[j];
}

/// Module 11: standard functions.
#[inline(never)]
fn functions() -> f64 {
    let mut x = 0.75_f64;
    for _ in 0..FUNCTIONS {
        x = (x.ln() / T1).exp().sqrt();
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_what_the_formulas_yield() {
        let left = unit();
        assert!(left.is_right(), "{left:?}");
        assert_eq!(left, unit(), "and always the same");
        assert!(!UnitResults { function: left.function + 1e-9, ..left }.is_right());
        assert!(!UnitResults { jump: 1, ..left }.is_right());
    }
}
