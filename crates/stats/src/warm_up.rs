//! When is a benchmark warm? The first iterations of an invocation are often
//! slower, and one configuration may need longer than the other: kept, that
//! looks like a difference.
//!
//! Only the shape of each run is looked at, its level taken out, so that what
//! is discarded can't depend on the comparison.
//!
//! Sources: A. Georges, D. Buytaert, L. Eeckhout, "Statistically Rigorous Java
//! Performance Evaluation", OOPSLA 2007; E. Barrett and others, "Virtual
//! Machine Warmup Blows Hot and Cold", OOPSLA 2017 (some never become steady).

use crate::boot::median;

/// Shortest run that can show a warm-up.
const LEAST: usize = 4;
/// A departure beyond so many standard errors is none of chance.
const ERRORS: f64 = 4.5;
/// With this many runs their own spread gives the standard error of their mean.
const SEVERAL: usize = 4;
/// Iterations in which a departure falls to its e-th part, as they are tried.
const LENGTHS: [f64; 11] = [0.7, 1.0, 1.5, 2.2, 3.3, 5.0, 7.5, 11.0, 17.0, 25.0, 40.0];
/// Length of a short warm-up, iterations.
const SHORT: f64 = 1.0;
/// Residuals beyond so many standard deviations count less (Huber).
const FAR: f64 = 2.5;

/// A departure of the first iterations that decays exponentially, on the log
/// scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmUp {
    /// Departure of the very first iteration; negative for values that rise.
    pub height: f64,
    /// Iterations in which it falls to its e-th part.
    pub length: f64,
}

impl WarmUp {
    /// The departure of an iteration, from 0.
    #[must_use]
    pub fn at(&self, iteration: f64) -> f64 {
        self.height * (-iteration / self.length).exp()
    }
}

/// Looks for a warm-up in `runs` of one configuration: lists of logarithms in
/// the order in which they were measured, of whatever lengths. None if there is
/// none beyond chance; runs shorter than four iterations say nothing.
///
/// The fit extrapolates: a warm-up that is longer than the runs is seen too,
/// with a length that is roughly right.
#[must_use]
pub fn warm_up(runs: &[&[f64]]) -> Option<WarmUp> {
    let runs: Vec<&[f64]> = runs.iter().filter(|run| run.len() >= LEAST).copied().collect();
    let noise = iteration_noise(&runs);
    if runs.is_empty() {
        return None;
    }
    let fits = LENGTHS.map(|length| WarmUpFit::of(&runs, length, noise));
    let lowest = (0..fits.len()).min_by(|a, b| fits[*a].loss.total_cmp(&fits[*b].loss))?;
    let best = WarmUpFit::of(&runs, between(&fits, lowest), noise);
    (best.height.abs() > ERRORS * best.error)
        .then_some(WarmUp { height: best.height, length: best.length })
}

/// The most by which a first iteration may depart (two standard errors) if its
/// warm-up is short; infinite where no run is long enough to tell.
pub(crate) fn most_departure(runs: &[&[f64]]) -> f64 {
    let runs: Vec<&[f64]> = runs.iter().filter(|run| run.len() >= LEAST).copied().collect();
    if runs.is_empty() {
        return f64::INFINITY;
    }
    let noise = iteration_noise(&runs);
    let fit = WarmUpFit::of(&runs, SHORT, noise);
    fit.height.abs() + 2.0 * fit.error
}

/// The length at the bottom of the parabola through the lowest fit and its
/// neighbours, on the logarithm of the lengths.
fn between(fits: &[WarmUpFit], lowest: usize) -> f64 {
    let (Some(left), Some(right)) = (lowest.checked_sub(1), fits.get(lowest + 1)) else {
        return fits[lowest].length;
    };
    let point = |fit: &WarmUpFit| (fit.length.ln(), fit.loss);
    let [(x0, y0), (x1, y1), (x2, y2)] = [&fits[left], &fits[lowest], right].map(point);
    let (rise, fall) = ((y2 - y1) / (x2 - x1), (y1 - y0) / (x1 - x0));
    let curve = (rise - fall) / (x2 - x0);
    if curve <= 0.0 {
        return fits[lowest].length;
    }
    (f64::midpoint(x0, x1) - fall / (2.0 * curve)).clamp(x0, x2).exp()
}

struct WarmUpFit {
    length: f64,
    height: f64,
    /// Standard error of the height.
    error: f64,
    loss: f64,
}

impl WarmUpFit {
    fn of(runs: &[&[f64]], length: f64, noise: f64) -> Self {
        let longest = runs.iter().map(|run| run.len()).max().unwrap_or(0);
        let shape: Vec<f64> = (0..longest).map(|place| (-(place as f64) / length).exp()).collect();
        let far = FAR * noise.max(f64::MIN_POSITIVE);
        let mut weights: Vec<Vec<f64>> = runs.iter().map(|run| vec![1.0; run.len()]).collect();
        let (mut height, mut spread, mut loss, mut likeness) = (0.0, 0.0, 0.0, 0.0);
        let mut heights = Vec::new();
        for _ in 0..4 {
            let mut product = 0.0;
            spread = 0.0;
            heights.clear();
            let mut levels = Vec::new();
            for (run, weights) in runs.iter().zip(&weights) {
                let points = || run.iter().zip(weights).zip(&shape);
                let total: f64 = weights.iter().sum();
                let level = points().map(|((y, w), _)| w * y).sum::<f64>() / total;
                let centre = points().map(|((_, w), x)| w * x).sum::<f64>() / total;
                let by_shape: f64 =
                    points().map(|((y, w), x)| w * (y - level) * (x - centre)).sum();
                let squares: f64 = points().map(|((_, w), x)| w * (x - centre).powi(2)).sum();
                heights.push(by_shape / squares.max(f64::MIN_POSITIVE));
                levels.push((level, centre));
                product += by_shape;
                spread += squares;
            }
            height = product / spread.max(f64::MIN_POSITIVE);
            loss = 0.0;
            let (mut neighbours, mut squares) = (0.0, 0.0);
            for ((run, weights), (level, centre)) in runs.iter().zip(&mut weights).zip(levels) {
                let mut before = None;
                for (k, weight) in weights.iter_mut().enumerate() {
                    let residual = run[k] - level - height * (shape[k] - centre);
                    let size = residual.abs();
                    *weight = if size > far { far / size } else { 1.0 };
                    loss += if size > far { far * (2.0 * size - far) } else { size * size };
                    let clipped = residual.clamp(-far, far);
                    squares += clipped * clipped;
                    neighbours += before.map_or(0.0, |before: f64| before * clipped);
                    before = Some(clipped);
                }
            }
            likeness = if squares > 0.0 { (neighbours / squares).clamp(0.0, 0.9) } else { 0.0 };
        }
        let points: usize = runs.iter().map(|run| run.len() - 1).sum();
        let noise = noise.max((loss / (points as f64 - 2.0).max(1.0)).sqrt());
        // Where iterations resemble their neighbours there are fewer of them.
        let by_noise =
            noise * ((1.0 + likeness) / (1.0 - likeness) / spread.max(f64::MIN_POSITIVE)).sqrt();
        let error = if heights.len() < SEVERAL {
            by_noise
        } else {
            let middle = median(&heights);
            let distances: Vec<f64> =
                heights.iter().map(|height| (height - middle).abs()).collect();
            let by_runs = 1.4826 * median(&distances) * 1.2533 / (heights.len() as f64).sqrt();
            // One wild run does not make a warm-up.
            height = if middle.abs() < height.abs() { middle } else { height };
            by_noise.max(by_runs)
        };
        Self { length, height, error, loss }
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
