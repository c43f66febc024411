//! Group-sequential boundaries for Student's t, exact for normal log ratios.
//!
//! How large must |t| be after `n` blocks, if one looks after every block from
//! the first look to the last and wants to claim a difference that is not
//! there in at most `alpha` of all studies? The error is spent as
//! `alpha (n / last)^exponent` (Lan and DeMets): after the last block all of it
//! is gone.
//!
//! No table and no simulation: with `S` the sum and `Q` the sum of squares of
//! the log ratios so far, `U = S / sqrt(Q)` is a Markov chain if there is no
//! difference. The next value by `sqrt(Q)` is Student's t with `n` degrees of
//! freedom over `sqrt(n)`, independent of all earlier `U`, since direction and
//! length of a normal vector are independent. Written as `tan(phi)`, it turns
//! `U` into `U cos(phi) + sin(phi)`, and `phi` has a density proportional to
//! `cos(phi)^(n - 1)`. The distribution of |U| over the paths that have not
//! crossed is carried from look to look in bins. |t| and |U| say the same:
//! `t = U sqrt(n - 1) / sqrt(n - U^2)`.
//!
//! Sources: K. K. G. Lan, D. L. DeMets, "Discrete sequential boundaries for
//! clinical trials", Biometrika 70 (1983); C. Jennison, B. W. Turnbull, "Group
//! Sequential Methods" (2000), chapter 19 (recursive integration).

use std::collections::HashMap;
use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::student::student_p;

/// Bins of |U|. Twice as many change no critical value by more than 0.1 %.
const BINS: usize = 128;
/// Points of the tables of the angle's distribution.
const ANGLES: usize = 1024;
/// Most blocks for which boundaries are computed; the effort grows linearly.
pub const MOST_LOOKS: u32 = 1000;

/// When one looks, and how the error is spent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LookSchedule {
    /// Blocks at the first look, at least 2.
    pub first: u32,
    /// Blocks at the last look, from `first` to [`MOST_LOOKS`].
    pub last: u32,
    /// The error that may be spent: the rate of false claims.
    pub alpha: f64,
    /// How the error is spent, `alpha (n / last)^exponent`: 1 evenly, 3 late.
    pub exponent: f64,
    /// Looks before this block claim only what is obvious, and spend next to nothing:
    /// a twentieth of the error, all of them together. [`LookSchedule::first`] or less for none.
    pub ordinary_from: u32,
}

/// The share of the error that early looks may spend, all of them together.
const EARLY_SHARE: f64 = 0.05;

impl LookSchedule {
    /// Error spent after `n` blocks.
    fn spent(&self, n: u32) -> f64 {
        let share = (f64::from(n) / f64::from(self.last)).powf(self.exponent);
        let looks = f64::from(n + 1 - self.first);
        let early = f64::from(self.ordinary_from.saturating_sub(self.first));
        if looks <= early {
            self.alpha * share.min(EARLY_SHARE * looks / early)
        } else {
            self.alpha * share
        }
    }
}

/// Critical values of |t|, one for each look.
#[derive(Debug, Clone, PartialEq)]
pub struct Boundary {
    looks: LookSchedule,
    critical: Vec<f64>,
}

impl Boundary {
    /// Computes the boundary, or takes it from those computed before. None if
    /// the looks are not as [`LookSchedule`] wants them.
    ///
    /// Takes about 1 ms a look.
    #[must_use]
    pub fn of(looks: LookSchedule) -> Option<Arc<Self>> {
        type BoundaryCache = Mutex<HashMap<([u32; 3], [u64; 2]), Arc<Boundary>>>;
        static KNOWN: OnceLock<BoundaryCache> = OnceLock::new();
        let LookSchedule { first, last, alpha, exponent, ordinary_from } = looks;
        let sound = first >= 2 && first <= last && last <= MOST_LOOKS;
        if !(sound && alpha > 0.0 && alpha < 1.0 && exponent > 0.0 && exponent.is_finite()) {
            return None;
        }
        let key = ([first, last, ordinary_from], [alpha.to_bits(), exponent.to_bits()]);
        let known = KNOWN.get_or_init(Mutex::default);
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(boundary) = lock().get(&key) {
            return Some(Arc::clone(boundary));
        }
        let boundary = Arc::new(Self { looks, critical: critical_values(looks)? });
        lock().insert(key, Arc::clone(&boundary));
        Some(boundary)
    }

    /// The critical value of |t| after `n` blocks; None where no look is.
    #[must_use]
    pub fn critical(&self, n: u32) -> Option<f64> {
        let look = n.checked_sub(self.looks.first)?;
        self.critical.get(look as usize).copied()
    }

    /// The two-sided p value that the critical value is worth to a test that
    /// looks once: for t statistics with other degrees of freedom.
    #[must_use]
    pub fn nominal(&self, n: u32) -> Option<f64> {
        self.critical(n).map(|critical| student_p(critical, n))
    }

    /// When one looks.
    #[must_use]
    pub fn looks(&self) -> LookSchedule {
        self.looks
    }
}

/// `t` of `u` after `n` blocks.
fn t_of(u: f64, n: f64) -> f64 {
    u * ((n - 1.0) / (n - u * u)).sqrt()
}

/// `U` of `t` after `n` blocks.
fn u_of(t: f64, n: f64) -> f64 {
    t * (n / (n - 1.0 + t * t)).sqrt()
}

fn critical_values(looks: LookSchedule) -> Option<Vec<f64>> {
    let first = f64::from(looks.first);
    let student = StudentsT::new(0.0, 1.0, first - 1.0).ok()?;
    let t = student.inverse_cdf(1.0 - looks.spent(looks.first) / 2.0);
    let mut critical = vec![t];
    let within = |u: f64| 2.0 * student.cdf(t_of(u, first)) - 1.0;
    let mut paths = Paths::new(u_of(t, first), within);
    for n in looks.first..looks.last {
        let angle = Angle::new(n);
        let greatest = f64::from(n + 1).sqrt();
        let to_spend = looks.spent(n + 1) - looks.spent(n);
        let (mut low, mut high) = (0.0, greatest);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if paths.beyond(middle, &angle) > to_spend {
                low = middle;
            } else {
                high = middle;
            }
        }
        // The upper end keeps the promise to the last bit.
        critical.push(t_of(high.min(greatest * (1.0 - 1e-12)), f64::from(n + 1)));
        paths = paths.step(high, &angle);
    }
    Some(critical)
}

/// The distribution of |U| over the paths that have not crossed.
struct Paths {
    /// Middle and mass of each bin.
    bins: Vec<(f64, f64)>,
    mass: f64,
}

impl Paths {
    /// From `P(|U| <= u)`, up to `bound`.
    fn new(bound: f64, within: impl Fn(f64) -> f64) -> Self {
        let edge = |bin: usize| bound * bin as f64 / BINS as f64;
        let cumulated: Vec<f64> = (0..=BINS).map(|bin| within(edge(bin))).collect();
        let bin = |bin: usize| {
            (f64::midpoint(edge(bin), edge(bin + 1)), cumulated[bin + 1] - cumulated[bin])
        };
        Self { bins: (0..BINS).map(bin).collect(), mass: cumulated[BINS] - cumulated[0] }
    }

    /// Mass whose next |U| is greater than `bound`.
    fn beyond(&self, bound: f64, angle: &Angle) -> f64 {
        self.bins.iter().map(|&(u, mass)| mass * angle.beyond(u, bound)).sum()
    }

    /// One block further, without the paths that end beyond `bound`.
    fn step(&self, bound: f64, angle: &Angle) -> Self {
        Self::new(bound, |u| self.mass - self.beyond(u, angle))
    }
}

/// The distribution of the angle by which block `n + 1` turns `U`.
struct Angle {
    /// `P(phi <= -pi/2 + i pi / ANGLES)`.
    cumulated: Vec<f64>,
}

impl Angle {
    fn new(n: u32) -> Self {
        let width = PI / ANGLES as f64;
        let power = f64::from(n) - 1.0;
        let density = |point: f64| (point * width).sin().powf(power);
        let mut sum = 0.0;
        let mut cumulated = vec![0.0];
        for point in 0..ANGLES {
            // Simpson's rule.
            let point = point as f64;
            sum += density(point) + 4.0 * density(point + 0.5) + density(point + 1.0);
            cumulated.push(sum);
        }
        cumulated.iter_mut().for_each(|value| *value /= sum);
        Self { cumulated }
    }

    /// `P(phi <= angle)`.
    fn below(&self, angle: f64) -> f64 {
        let place = ((angle + FRAC_PI_2) / PI).clamp(0.0, 1.0) * ANGLES as f64;
        let left = (place as usize).min(ANGLES - 1);
        let (low, high) = (self.cumulated[left], self.cumulated[left + 1]);
        low + (high - low) * (place - left as f64)
    }

    /// Probability that |U| is greater than `bound` if it was `u` before:
    /// `U cos(phi) + sin(phi)` is a cosine of height `sqrt(1 + u^2)`.
    fn beyond(&self, u: f64, bound: f64) -> f64 {
        let top = (1.0 / u).atan();
        let reach = (bound / (1.0 + u * u).sqrt()).min(1.0).acos();
        self.below(top + reach) - self.below(top - reach) + self.below(top + reach - PI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn boundary(first: u32, last: u32, alpha: f64, exponent: f64) -> Arc<Boundary> {
        Boundary::of(LookSchedule { first, last, alpha, exponent, ordinary_from: first }).unwrap()
    }

    /// Critical values that others found by simulation, good to about 2 % at
    /// the first looks and 1 % later.
    #[test]
    fn critical_values_agree_with_simulated_ones() {
        let check = |last, alpha, exponent, expected: &[(u32, f64)]| {
            let boundary = boundary(5, last, alpha, exponent);
            for &(n, expected) in expected {
                let found = boundary.critical(n).unwrap();
                let error = (found / expected - 1.0).abs();
                let tolerance = if n <= 10 { 0.03 } else { 0.015 };
                assert!(
                    error < tolerance,
                    "last {last}, alpha {alpha}, n {n}: {found}, {expected}"
                );
            }
        };
        check(20, 0.05, 1.0, &[(5, 4.363), (6, 4.345), (10, 3.466), (15, 2.971), (20, 2.701)]);
        check(40, 0.05, 1.0, &[(5, 5.319), (6, 5.299), (10, 3.965), (20, 3.102), (40, 2.602)]);
        check(40, 0.05, 3.0, &[(8, 7.041), (10, 5.544), (20, 3.409), (30, 2.701), (40, 2.270)]);
        check(30, 0.10, 1.0, &[(5, 3.981), (6, 4.028), (10, 3.244), (20, 2.529), (30, 2.255)]);
        check(20, 0.10, 2.0, &[(5, 5.319), (8, 3.686), (12, 2.811), (20, 2.059)]);
    }

    /// The rate at which paths cross, by an independent simulation.
    #[test]
    fn paths_without_a_difference_cross_as_often_as_promised() {
        let mut random = Pcg64::seed_from_u64(11);
        for (first, last, alpha, exponent) in [(4, 40, 0.05, 1.0), (2, 12, 0.1, 2.0)] {
            let boundary = boundary(first, last, alpha, exponent);
            let studies = 20_000;
            let crossed = (0..studies).filter(|_| {
                let (mut sum, mut squares) = (0.0, 0.0);
                (1..=last).any(|n| {
                    let value = crate::tests::normal(&mut random);
                    (sum, squares) = (sum + value, squares + value * value);
                    let count = f64::from(n);
                    let t = t_of((sum * sum / squares).sqrt(), count);
                    boundary.critical(n).is_some_and(|critical| t > critical)
                })
            });
            let rate = crossed.count() as f64 / f64::from(studies);
            let three_errors = 3.0 * (alpha * (1.0 - alpha) / f64::from(studies)).sqrt();
            assert!((rate - alpha).abs() < three_errors, "{first} to {last}: {rate}");
        }
    }

    /// What early looks don't spend is left to the later ones.
    #[test]
    fn early_looks_spend_next_to_nothing() {
        let schedule =
            LookSchedule { first: 3, last: 12, alpha: 0.05, exponent: 0.8, ordinary_from: 5 };
        let [even, kept] = [3, 5]
            .map(|ordinary_from| Boundary::of(LookSchedule { ordinary_from, ..schedule }).unwrap());
        let level = |boundary: &Boundary, n| boundary.nominal(n).unwrap();
        for n in [3, 4] {
            assert!(level(&kept, n) <= 0.05 * EARLY_SHARE, "{n}: {}", level(&kept, n));
            assert!(level(&kept, n) < level(&even, n));
        }
        assert!(level(&kept, 5) > 1.5 * level(&even, 5));
        assert!((level(&kept, 12) / level(&even, 12) - 1.0).abs() < 0.1);
    }

    #[test]
    fn one_look_is_student_s_t() {
        let only = boundary(10, 10, 0.05, 1.0);
        assert!((only.critical(10).unwrap() - 2.262).abs() < 1e-3);
        assert_eq!((only.critical(9), only.critical(11)), (None, None));
    }

    #[test]
    fn looks_that_make_no_sense_have_no_boundary() {
        let of = |first, last, alpha, exponent| {
            Boundary::of(LookSchedule { first, last, alpha, exponent, ordinary_from: first })
        };
        assert_eq!(of(1, 5, 0.05, 1.0), None);
        assert_eq!(of(5, 4, 0.05, 1.0), None);
        assert_eq!(of(5, MOST_LOOKS + 1, 0.05, 1.0), None);
        assert_eq!(of(5, 9, 0.0, 1.0), None);
        assert_eq!(of(5, 9, f64::NAN, 1.0), None);
        assert_eq!(of(5, 9, 0.05, 0.0), None);
    }
}
