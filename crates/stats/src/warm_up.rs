//! When is a benchmark warm? The first iterations of an invocation are often
//! slower, and one configuration may need longer than the other: kept, that
//! looks like a difference.
//!
//! Only the shape of each run is looked at, its level taken out, so that what
//! is discarded can't depend on the comparison. Departures that decay and such that
//! end at once are tried, and whatever fits best is taken; runs may differ in how much
//! they depart.
//!
//! Sources: A. Georges, D. Buytaert, L. Eeckhout, "Statistically Rigorous Java
//! Performance Evaluation", OOPSLA 2007; E. Barrett and others, "Virtual
//! Machine Warmup Blows Hot and Cold", OOPSLA 2017 (some never become steady).

use crate::boot::median;

/// Shortest run that can show a warm-up.
const LEAST: usize = 4;
/// A departure beyond so many standard errors is none of chance.
const ERRORS: f64 = 4.5;
/// A run's own departure beyond so many standard errors is none of chance if three runs in four
/// have it.
const ALONE: f64 = 3.0;
/// A shape whose sum of squares is not above this is the same all through a run.
const FLAT: f64 = 1e-9;
/// With this many runs their own spread gives the standard error of their mean.
const SEVERAL: usize = 4;
/// Iterations in which a departure falls to its e-th part, as they are tried.
const LENGTHS: [f64; 11] = [0.7, 1.0, 1.5, 2.2, 3.3, 5.0, 7.5, 11.0, 17.0, 25.0, 40.0];
/// Steps are tried up to this length, iterations.
const LONGEST_STEP: u32 = 60;
/// Length of a short warm-up, iterations.
const SHORT: f64 = 1.0;
/// Residuals beyond so many standard deviations count less (Huber).
const FAR: f64 = 2.5;

/// How a departure of the first iterations ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WarmUpShape {
    /// It falls to its e-th part in so many iterations.
    Decay(f64),
    /// It is over after so many iterations.
    Step(u32),
}

impl WarmUpShape {
    /// What is left of a departure of 1 at an iteration, from 0.
    fn at(self, iteration: f64) -> f64 {
        match self {
            Self::Decay(length) => (-iteration / length).exp(),
            Self::Step(iterations) => f64::from(u8::from(iteration < f64::from(iterations))),
        }
    }

    /// Iterations that a warm-up takes, for a decay to its e-th part.
    fn length(self) -> f64 {
        match self {
            Self::Decay(length) => length,
            Self::Step(iterations) => f64::from(iterations),
        }
    }
}

/// A departure of the first iterations, on the log scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmUp {
    /// Departure of the very first iteration; negative for values that rise.
    pub height: f64,
    /// How it ends.
    pub shape: WarmUpShape,
}

impl WarmUp {
    /// The departure of an iteration, from 0.
    #[must_use]
    pub fn at(&self, iteration: f64) -> f64 {
        self.height * self.shape.at(iteration)
    }

    /// The departure of the median of `kept` iterations after `discard` others.
    pub(crate) fn left(&self, discard: usize, kept: u32) -> f64 {
        let first = discard as f64;
        match self.shape {
            WarmUpShape::Decay(_) => self.at(first + (f64::from(kept) - 1.0) / 2.0),
            WarmUpShape::Step(_) => self.at(first),
        }
    }
}

/// Looks for a warm-up in `runs` of one configuration: lists of logarithms in
/// the order in which they were measured, of whatever lengths. None if there is
/// none beyond chance; runs shorter than four iterations say nothing.
///
/// The fit extrapolates: a warm-up that decays is seen too where it is longer than
/// the runs, with a length that is roughly right.
#[must_use]
pub fn warm_up(runs: &[&[f64]]) -> Option<WarmUp> {
    let runs: Vec<&[f64]> = runs.iter().filter(|run| run.len() >= LEAST).copied().collect();
    let longest = runs.iter().map(|run| run.len()).max()?;
    let noise = iteration_noise(&runs);
    let by_loss = |a: &WarmUpFit, b: &WarmUpFit| a.loss.total_cmp(&b.loss);
    let decays = LENGTHS.map(|length| WarmUpFit::of(&runs, WarmUpShape::Decay(length), noise));
    let lowest = (0..decays.len()).min_by(|a, b| by_loss(&decays[*a], &decays[*b]))?;
    let decay = WarmUpFit::of(&runs, WarmUpShape::Decay(between(&decays, lowest)), noise);
    let steps = (1..(longest as u32 - 1).min(LONGEST_STEP))
        .map(|iterations| WarmUpFit::of(&runs, WarmUpShape::Step(iterations), noise));
    let WarmUpFit { shape, height, error, .. } =
        std::iter::once(decay).chain(steps).min_by(by_loss)?;
    if height.abs() > ERRORS * error {
        return Some(WarmUp { height, shape });
    }
    if runs.len() == 1 {
        return None;
    }
    // Runs that warm up differently have no shape in common: the longest that half of the long ones
    // show is discarded, lest runs be so short that they end within it.
    let long = runs.iter().filter(|run| 4 * run.len() >= 3 * longest);
    let alone: Vec<Option<WarmUp>> = long.map(|run| warm_up(&[run])).collect();
    let falls = |falls: bool| {
        let seen = alone.iter().flatten().filter(move |found| (found.height > 0.0) == falls);
        seen.copied().collect::<Vec<WarmUp>>()
    };
    let (falls, rises) = (falls(true), falls(false));
    let seen = if falls.len() >= rises.len() { falls } else { rises };
    if 2 * seen.len() < alone.len() {
        return None;
    }
    let size = |found: &WarmUp| found.height.abs() * found.shape.length();
    seen.into_iter().max_by(|a, b| size(a).total_cmp(&size(b)))
}

/// The most by which a first iteration may depart (two standard errors) if its
/// warm-up is short; infinite where no run is long enough to tell.
pub(crate) fn most_departure(runs: &[&[f64]]) -> f64 {
    let runs: Vec<&[f64]> = runs.iter().filter(|run| run.len() >= LEAST).copied().collect();
    if runs.is_empty() {
        return f64::INFINITY;
    }
    let noise = iteration_noise(&runs);
    let fit = WarmUpFit::of(&runs, WarmUpShape::Decay(SHORT), noise);
    fit.height.abs() + 2.0 * fit.error
}

/// The length at the bottom of the parabola through the lowest fit of a decay and its
/// neighbours, on the logarithm of the lengths.
fn between(fits: &[WarmUpFit], lowest: usize) -> f64 {
    if lowest == 0 || lowest + 1 == fits.len() {
        return LENGTHS[lowest];
    }
    let point = |place: usize| (LENGTHS[place].ln(), fits[place].loss);
    let [(x0, y0), (x1, y1), (x2, y2)] = [lowest - 1, lowest, lowest + 1].map(point);
    let (rise, fall) = ((y2 - y1) / (x2 - x1), (y1 - y0) / (x1 - x0));
    let curve = (rise - fall) / (x2 - x0);
    if curve <= 0.0 {
        return LENGTHS[lowest];
    }
    (f64::midpoint(x0, x1) - fall / (2.0 * curve)).clamp(x0, x2).exp()
}

struct WarmUpFit {
    shape: WarmUpShape,
    height: f64,
    /// Standard error of the height.
    error: f64,
    loss: f64,
}

/// One run's part in a fit.
struct RunFit {
    level: f64,
    /// Mean of the shape.
    centre: f64,
    /// The shape's sum of squares around its mean: 0 for a run within a step.
    squares: f64,
    /// The height by this run alone.
    height: f64,
}

impl RunFit {
    fn of(run: &[f64], weights: &[f64], shape: &[f64]) -> Self {
        let points = || run.iter().zip(weights).zip(shape);
        let total: f64 = weights.iter().sum();
        let level = points().map(|((y, w), _)| w * y).sum::<f64>() / total;
        let centre = points().map(|((_, w), x)| w * x).sum::<f64>() / total;
        let by_shape: f64 = points().map(|((y, w), x)| w * (y - level) * (x - centre)).sum();
        let squares: f64 = points().map(|((_, w), x)| w * (x - centre).powi(2)).sum();
        let height = if squares > FLAT { by_shape / squares } else { 0.0 };
        Self { level, centre, squares, height }
    }

    /// What a fit with so much of the shape leaves of a value.
    fn residual(&self, value: f64, shape: f64, height: f64) -> f64 {
        value - self.level - height * (shape - self.centre)
    }
}

impl WarmUpFit {
    fn of(runs: &[&[f64]], shape: WarmUpShape, noise: f64) -> Self {
        let longest = runs.iter().map(|run| run.len()).max().unwrap_or(0);
        let departures: Vec<f64> = (0..longest).map(|place| shape.at(place as f64)).collect();
        let far = FAR * noise.max(f64::MIN_POSITIVE);
        let loss_of = |size: f64| if size > far { far * (2.0 * size - far) } else { size * size };
        let mut weights: Vec<Vec<f64>> = runs.iter().map(|run| vec![1.0; run.len()]).collect();
        let (mut height, mut spread, mut loss, mut own_loss) = (0.0, 0.0, 0.0, 0.0);
        let mut likeness = 0.0;
        let mut fits = Vec::new();
        for _ in 0..4 {
            let parts = runs.iter().zip(&weights);
            fits = parts.map(|(run, weights)| RunFit::of(run, weights, &departures)).collect();
            spread = fits.iter().map(|fit| fit.squares).sum();
            let product: f64 = fits.iter().map(|fit| fit.squares * fit.height).sum();
            height = product / f64::max(spread, f64::MIN_POSITIVE);
            (loss, own_loss) = (0.0, 0.0);
            let (mut neighbours, mut squares) = (0.0, 0.0);
            for ((run, weights), fit) in runs.iter().zip(&mut weights).zip(&fits) {
                let mut before = None;
                for (k, weight) in weights.iter_mut().enumerate() {
                    let residual = fit.residual(run[k], departures[k], height);
                    let size = residual.abs();
                    *weight = if size > far { far / size } else { 1.0 };
                    loss += loss_of(size);
                    own_loss += loss_of(fit.residual(run[k], departures[k], fit.height).abs());
                    let clipped = residual.clamp(-far, far);
                    squares += clipped * clipped;
                    neighbours += before.map_or(0.0, |before: f64| before * clipped);
                    before = Some(clipped);
                }
            }
            likeness = if squares > 0.0 { (neighbours / squares).clamp(0.0, 0.9) } else { 0.0 };
        }
        fits.retain(|fit| fit.squares > FLAT);
        let points: usize = runs.iter().map(|run| run.len() - 1).sum();
        let spread = spread.max(f64::MIN_POSITIVE);
        let heights: Vec<f64> = fits.iter().map(|fit| fit.height).collect();
        if heights.len() > 1 {
            let middle = median(&heights);
            // One wild run does not make a warm-up.
            let is_several = heights.len() >= SEVERAL;
            // Runs that warm up by more or less all do.
            let own_noise = (own_loss / (points - runs.len()) as f64).sqrt();
            let is_warm = |fit: &&RunFit| {
                fit.height.signum() == height.signum()
                    && fit.height.abs() > ALONE * own_noise / fit.squares.sqrt()
            };
            let all = 4 * fits.iter().filter(is_warm).count() >= 3 * fits.len();
            if (is_several || all) && middle.abs() < height.abs() {
                height = middle;
            }
            if all {
                return Self { shape, height, error: own_noise / spread.sqrt(), loss };
            }
        }
        let noise = noise.max((loss / (points as f64 - 2.0).max(1.0)).sqrt());
        // Where iterations resemble their neighbours there are fewer of them.
        let by_noise = noise * ((1.0 + likeness) / (1.0 - likeness) / spread).sqrt();
        let error = if heights.len() < SEVERAL {
            by_noise
        } else {
            let middle = median(&heights);
            let distances: Vec<f64> =
                heights.iter().map(|height| (height - middle).abs()).collect();
            let by_runs = 1.4826 * median(&distances) * 1.2533 / (heights.len() as f64).sqrt();
            by_noise.max(by_runs)
        };
        Self { shape, height, error, loss }
    }
}

/// Standard deviation of single iterations, by the differences of neighbours,
/// which a slow trend hardly moves; the median of them, which outliers don't.
pub(crate) fn iteration_noise(runs: &[&[f64]]) -> f64 {
    let steps: Vec<f64> =
        runs.iter().flat_map(|run| run.windows(2).map(|pair| (pair[1] - pair[0]).abs())).collect();
    // For normal noise the median of |x - y| is 0.954 standard deviations.
    if steps.is_empty() { 0.0 } else { median(&steps) / 0.9539 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::normal;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn found(
        random: &mut Pcg64,
        runs: usize,
        iterations: usize,
        shape: impl Fn(f64) -> f64,
    ) -> Option<WarmUp> {
        let run = |random: &mut Pcg64| -> Vec<f64> {
            let level = normal(random);
            (0..iterations).map(|i| level + shape(i as f64) + 0.01 * normal(random)).collect()
        };
        let runs: Vec<Vec<f64>> = (0..runs).map(|_| run(random)).collect();
        warm_up(&runs.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn a_warm_up_is_measured_though_runs_are_shorter() {
        let mut random = Pcg64::seed_from_u64(71);
        for (height, length) in [(0.3, 2.0), (-0.5, 6.0), (0.2, 0.8)] {
            let shape = |i: f64| height * (-i / length).exp();
            let found = found(&mut random, 4, 12, shape).unwrap();
            let at = |i: f64| (found.at(i) - shape(i)).abs();
            assert!(at(0.0) < 0.1 && at(10.0) < 0.03, "{found:?}");
        }
    }

    /// All runs end their first `height` after so many iterations.
    #[test]
    fn a_step_is_measured() {
        let mut random = Pcg64::seed_from_u64(73);
        for (height, iterations) in [(0.15, 4.0), (-0.08, 2.0), (0.3, 1.0)] {
            let shape = |i: f64| if i < iterations { height } else { 0.0 };
            let found = found(&mut random, 3, 8, shape).unwrap();
            assert_eq!(found.shape, WarmUpShape::Step(iterations as u32), "{found:?}");
            assert!((found.height - height).abs() < 0.02, "{found:?}");
            assert_eq!(found.left(iterations as usize, 3), 0.0);
        }
    }

    #[test]
    fn runs_that_warm_up_differently_all_do() {
        let mut random = Pcg64::seed_from_u64(74);
        let mut run = |shape: &dyn Fn(f64) -> f64, length: usize| -> Vec<f64> {
            (0..length).map(|i| shape(i as f64) + 0.01 * normal(&mut random)).collect()
        };
        let decays: Vec<Vec<f64>> = [0.1, 0.5, 0.2, 0.4, 0.15]
            .map(|height| run(&|i| height * f64::exp(-i / 4.0), 12))
            .into();
        let found = warm_up(&decays.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        assert!(found.height > 0.1 && (2.0..8.0).contains(&found.shape.length()), "{found:?}");
        // The second run ends within its step, as runs do that are planned by the first.
        let steps = [(3.0, 8), (7.0, 7), (6.0, 4)];
        let steps = steps.map(|(end, length)| run(&|i| if i < end { 0.15 } else { 0.0 }, length));
        let found = warm_up(&steps.each_ref().map(Vec::as_slice)).unwrap();
        assert_eq!(found.shape, WarmUpShape::Step(3));
    }

    #[test]
    fn noise_is_no_warm_up() {
        let mut random = Pcg64::seed_from_u64(72);
        let mut count =
            |runs| (0..300).filter(|_| found(&mut random, runs, 10, |_| 0.0).is_some()).count();
        assert!(count(1) <= 6 && count(5) <= 6);
        assert_eq!(warm_up(&[]), None);
        assert_eq!(warm_up(&[&[1.0, 1.0, 1.0, 1.0]]), None);
        assert_eq!(warm_up(&[&[5.0, 1.0]]), None);
    }
}
