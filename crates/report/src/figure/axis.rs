//! Axes with nice ticks, linear or logarithmic.

use record::Unit;

/// Values that differ by more than this factor are drawn on a log axis.
const LOG_ABOVE_FACTOR: f64 = 20.0;

/// From values to positions between 0 and 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    lo: f64,
    hi: f64,
    pub(crate) log: bool,
    pub(crate) ticks: Vec<f64>,
}

impl Axis {
    /// An axis for values that bars may be drawn for: linear from zero, or
    /// logarithmic (without bars) where the values differ more than 20 times.
    pub(crate) fn for_bars(values: impl Iterator<Item = f64>) -> Self {
        let (lo, hi) = range(values);
        if lo > 0.0 && hi / lo > LOG_ABOVE_FACTOR {
            return Self::logarithmic(lo, hi);
        }
        Self::linear(lo.min(0.0), hi.max(0.0), 5)
    }

    /// An axis for points: only the range that the values take.
    pub(crate) fn for_points(values: impl Iterator<Item = f64>) -> Self {
        let (lo, hi) = range(values);
        if lo > 0.0 && hi / lo > LOG_ABOVE_FACTOR {
            return Self::logarithmic(lo, hi);
        }
        Self::linear(lo, hi, 5)
    }

    /// A logarithmic axis for positive values.
    pub(crate) fn log_for(values: impl Iterator<Item = f64>) -> Self {
        let (lo, hi) = range(values.filter(|value| *value > 0.0));
        if lo > 0.0 && hi > lo { Self::logarithmic(lo, hi) } else { Self::logarithmic(0.5, 2.0) }
    }

    /// A linear axis for the range that the values take.
    pub(crate) fn linear_for(values: impl Iterator<Item = f64>) -> Self {
        let (lo, hi) = range(values);
        Self::linear(lo, hi, 5)
    }

    /// A logarithmic axis for ratios, which always shows 1.
    pub(crate) fn for_ratios(values: impl Iterator<Item = f64>) -> Self {
        let (lo, hi) = range(values.filter(|value| *value > 0.0).chain([1.0]));
        // Room on both sides of 1, so that the line never lies on the border.
        let (lo, hi) = (lo.min(1.0 / 1.02), hi.max(1.02));
        if hi / lo > 3.0 {
            return Self::logarithmic(lo, hi);
        }
        let linear = Self::linear(lo, hi, 6);
        if linear.lo <= 0.0 {
            return Self::logarithmic(lo, hi);
        }
        Self { log: true, ..linear }
    }

    /// Linear, from the tick at or below `lo` to the tick at or above `hi`.
    pub(crate) fn linear(lo: f64, hi: f64, wanted: u32) -> Self {
        let (lo, hi) = if hi > lo { (lo, hi) } else { widen(lo) };
        let step = nice_step((hi - lo) / f64::from(wanted));
        let (first, last) = ((lo / step).floor(), (hi / step).ceil());
        let count = (last - first).clamp(1.0, 50.0) as u32;
        let ticks: Vec<f64> =
            (0..=count).map(|i| (first + f64::from(i)) * step).map(|t| t + 0.0).collect();
        Self { lo: ticks[0], hi: ticks[ticks.len() - 1].max(hi), log: false, ticks }
    }

    /// Logarithmic, with ticks at 1, 2 and 5 or at whole decades.
    fn logarithmic(lo: f64, hi: f64) -> Self {
        let decades = (hi / lo).log10();
        let mantissas: &[f64] = match decades {
            d if d <= 1.6 => &[1.0, 2.0, 5.0],
            d if d <= 3.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let every = ((decades / 5.0).floor() as i32).max(1);
        let (first, last) = (lo.log10().floor() as i32, hi.log10().ceil() as i32);
        let candidates: Vec<f64> = (first..=last)
            .filter(|exponent| mantissas.len() > 1 || (exponent - first) % every == 0)
            .flat_map(|exponent| mantissas.iter().map(move |m| m * 10f64.powi(exponent)))
            .collect();
        // The nearest tick outside on either side bounds the axis.
        let below = candidates.iter().copied().filter(|t| *t <= lo).fold(None, |_, t| Some(t));
        let above = candidates.iter().copied().find(|t| *t >= hi);
        let (lo, hi) = (below.unwrap_or(lo), above.unwrap_or(hi));
        let ticks = candidates.into_iter().filter(|t| (lo..=hi).contains(t)).collect();
        Self { lo, hi, log: true, ticks }
    }

    /// Where `value` lies, 0 to 1; what lies outside is put on the border.
    pub(crate) fn position(&self, value: f64) -> f64 {
        let place = if self.log {
            if value <= 0.0 {
                return 0.0;
            }
            (value / self.lo).ln() / (self.hi / self.lo).ln()
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    pub(crate) fn covers(&self, value: f64) -> bool {
        // A tick's own rounding is not outside.
        let slack = 1e-9 * (self.hi - self.lo);
        (self.lo - slack..=self.hi + slack).contains(&value)
    }

    /// Ticks as numbers in units of `divisor`, all with the same digits.
    pub(crate) fn labels(&self, divisor: f64) -> Vec<String> {
        let step = self.ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MAX, f64::min);
        let step = step / divisor;
        let digits = if step > 0.0 && step < 1.0 { decimals(step) } else { 0 };
        self.ticks.iter().map(|tick| format!("{:.digits$}", tick / divisor)).collect()
    }

    /// Ticks with a prefix each, for log axes that span many prefixes.
    pub(crate) fn labels_with_unit(&self, unit: &Unit) -> Vec<String> {
        let label = |tick: &f64| {
            let (divisor, name) = unit.scale(*tick * 1.000_001);
            let number = short_number(tick / divisor);
            if name.is_empty() { number } else { format!("{number} {name}") }
        };
        self.ticks.iter().map(label).collect()
    }

    /// Ticks of a ratio's axis: `0.5`, `1`, `2`.
    pub(crate) fn ratio_labels(&self) -> Vec<String> {
        self.ticks.iter().map(|tick| short_number(*tick)).collect()
    }
}

/// Beyond this no measured value lies, and differences would overflow.
const LARGEST: f64 = 1e150;

/// The smallest and largest finite value; 0 to 1 where there is none.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (lo, hi) = values
        .filter(|value| value.is_finite())
        .map(|value| value.clamp(-LARGEST, LARGEST))
        .fold((f64::MAX, f64::MIN), |(lo, hi), value| (lo.min(value), hi.max(value)));
    if lo > hi { (0.0, 1.0) } else { (lo, hi) }
}

/// A range around a single value.
fn widen(value: f64) -> (f64, f64) {
    if value == 0.0 {
        return (0.0, 1.0);
    }
    (value - value.abs() * 0.05, value + value.abs() * 0.05)
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `raw`.
fn nice_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= raw * 0.999_999);
    step.unwrap_or(10.0) * power
}

/// Digits behind the point that a step below 1 needs.
fn decimals(step: f64) -> usize {
    (-(step * 1.000_001).log10().floor()).clamp(0.0, 9.0) as usize
}

/// A tick's number without needless zeros.
fn short_number(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e6).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_numbers() {
        let check = |lo: f64, hi: f64, expected: &[&str]| {
            assert_eq!(Axis::linear(lo, hi, 5).labels(1.0), expected);
        };
        check(0.0, 57.8, &["0", "20", "40", "60"]);
        check(0.0, 1.0, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        check(0.981, 1.013, &["0.98", "0.99", "1.00", "1.01", "1.02"]);
        check(3.0, 3.0, &["2.8", "2.9", "3.0", "3.1", "3.2"]);
        check(0.0, 0.0, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn ratios_show_one_and_what_lies_on_both_sides() {
        let check = |values: &[f64], expected: &[&str]| {
            assert_eq!(Axis::for_ratios(values.iter().copied()).ratio_labels(), expected);
        };
        check(&[0.49, 0.58], &["0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1", "1.1"]);
        check(&[0.2, 1.1], &["0.2", "0.5", "1", "2"]);
        check(&[0.01, 40.0], &["0.01", "0.1", "1", "10", "100"]);
        check(&[], &["0.98", "0.99", "1", "1.01", "1.02"]);
    }

    #[test]
    fn far_apart_values_get_a_log_axis_and_near_ones_start_at_zero() {
        assert!(Axis::for_bars([1e-6, 1.0].into_iter()).log);
        let near = Axis::for_bars([5.0, 6.0].into_iter());
        assert!(!near.log && near.ticks[0] == 0.0);
        assert!(!Axis::for_bars([0.0, 1e9].into_iter()).log, "zero has no logarithm");
    }

    #[test]
    fn a_wide_log_axis_names_its_prefixes() {
        let axis = Axis::for_bars([2e-6, 3.0].into_iter());
        assert_eq!(
            axis.labels_with_unit(&Unit::from("s")),
            ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]
        );
    }

    proptest! {
        #[test]
        fn ticks_cover_the_values_in_rising_order(
            values in prop::collection::vec(prop_oneof![-1e9f64..1e9, 1e-9f64..1.0], 1..20)
        ) {
            for axis in [
                Axis::for_bars(values.iter().copied()),
                Axis::for_points(values.iter().copied()),
            ] {
                for value in &values {
                    prop_assert!(axis.covers(*value), "{value} is outside of {axis:?}");
                    prop_assert!((0.0..=1.0).contains(&axis.position(*value)));
                }
                prop_assert!(axis.ticks.windows(2).all(|pair| pair[0] < pair[1]), "{axis:?}");
                prop_assert!((2..=51).contains(&axis.ticks.len()), "{axis:?}");
            }
        }

        #[test]
        fn a_ratio_axis_covers_its_values_and_one(
            values in prop::collection::vec((-9f64..9.0).prop_map(f64::exp), 0..20)
        ) {
            let axis = Axis::for_ratios(values.iter().copied());
            for value in values.iter().chain(&[1.0]) {
                prop_assert!(axis.covers(*value), "{value} is outside of {axis:?}");
            }
            prop_assert!(axis.position(1.0) > 0.0 && axis.position(1.0) < 1.0);
        }
    }
}
