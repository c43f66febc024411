//! Numbers as people read them: values with their unit, ratios, intervals.

use std::fmt;

use record::{MetricKind, Unit};
use stats::SampleKind;

use crate::{PublishedValue, ResultGroup, ShownEstimate, ShownInterval};

/// How the samples of a metric become one number of a boot: counts in the unit
/// `ratio`, parts of a whole and events by what was done, are compared in hundredths.
#[must_use]
pub fn sample_kind(kind: MetricKind, unit: &str) -> SampleKind {
    match kind {
        MetricKind::Time => SampleKind::Time,
        MetricKind::Rate => SampleKind::Rate,
        MetricKind::Quantile => SampleKind::Quantile,
        MetricKind::Count if unit == "ratio" => SampleKind::Part,
        MetricKind::Count => SampleKind::Count,
    }
}

/// One divisor and one unit name for all values of a group, so that they can
/// be compared by eye.
pub(crate) struct UnitScale {
    /// Absent where the values differ so much that each needs its own prefix.
    common: Option<(f64, String)>,
    unit: Unit,
}

/// Beyond this factor between the smallest and the largest value each value
/// gets a prefix of its own.
const COMMON_PREFIX_MAX_FACTOR: f64 = 1000.0;

impl UnitScale {
    pub(crate) fn of(group: &ResultGroup) -> Self {
        let measured = group.cells.iter().flat_map(|cell| &cell.boots).map(|boot| boot.value);
        Self::for_values(
            &group.metric.unit,
            measured.chain(group.published.iter().filter_map(PublishedValue::centre)),
        )
    }

    pub(crate) fn for_values(unit: &Unit, values: impl Iterator<Item = f64>) -> Self {
        let sizes = values.filter(|value| value.is_finite() && *value != 0.0).map(f64::abs);
        let (smallest, largest) =
            sizes.fold((f64::MAX, 0.0), |(lo, hi): (f64, f64), size| (lo.min(size), hi.max(size)));
        let common = (largest == 0.0 || largest / smallest <= COMMON_PREFIX_MAX_FACTOR)
            .then(|| unit.scale(largest));
        Self { common, unit: unit.clone() }
    }

    /// The number without its unit, if all values share one.
    pub(crate) fn number(&self, value: f64) -> String {
        match &self.common {
            Some((divisor, _)) => significant(value / divisor),
            None => self.unit.show(value),
        }
    }

    /// The number with its unit.
    pub(crate) fn show(&self, value: f64) -> String {
        match &self.common {
            Some((_, name)) if !name.is_empty() => format!("{} {name}", self.number(value)),
            _ => self.number(value),
        }
    }

    /// `57.8 s [55.1, 60.2]`, or the number alone where there is no interval.
    pub(crate) fn show_estimate(&self, estimate: &ShownEstimate) -> String {
        match self.span(estimate) {
            Some(span) => format!("{} {span}", self.show(estimate.centre)),
            None => self.show(estimate.centre),
        }
    }

    /// `[55.1, 60.2]`, if there is an interval.
    pub(crate) fn span(&self, estimate: &ShownEstimate) -> Option<String> {
        estimate
            .shown_interval(|span| format!("[{}, {}]", self.number(span.lo), self.number(span.hi)))
    }

    /// The unit's name for an axis or a table's head: `ms`, `k/s`, `count`.
    pub(crate) fn unit_name(&self) -> String {
        match &self.common {
            Some((_, name)) if !name.is_empty() && self.unit.0 == "count" => {
                format!("count, {name}")
            }
            Some((_, name)) if !name.is_empty() => name.clone(),
            _ if self.unit.0 == "1" => "ratio".to_owned(),
            _ => self.unit.0.clone(),
        }
    }

    /// What linear axes divide by.
    pub(crate) fn divisor(&self) -> f64 {
        self.common.as_ref().map_or(1.0, |(divisor, _)| *divisor)
    }
}

/// Four significant digits (three below 1), no exponent for what benchmarks
/// print.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if !(-6.0..9.0).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let count = if magnitude < 0.0 { 2.0 } else { 3.0 };
    let digits = (count - magnitude).clamp(0.0, 9.0) as usize;
    format!("{value:.digits$}")
}

/// A count or a time with its own prefix; whole numbers stay whole.
pub(crate) fn own_prefix(unit: &Unit, value: f64) -> String {
    unit.show(value)
}

/// `×0.53`.
pub(crate) fn ratio(value: f64) -> String {
    format!("×{}", ratio_number(value, ratio_digits(value, None)))
}

/// `×0.30 to ×0.50`.
pub(crate) fn ratio_range(range: ShownInterval) -> String {
    format!("{} to {}", ratio(range.lo), ratio(range.hi))
}

/// `×0.53 [0.49, 0.58]`, or `×0.53` alone.
pub(crate) fn ratio_estimate(estimate: &ShownEstimate) -> String {
    match ratio_span(estimate) {
        Some(span) => format!("{} {span}", ratio_centre(estimate)),
        None => ratio_centre(estimate),
    }
}

/// `[0.49, 0.58]` with the digits that its estimate is shown with.
pub(crate) fn ratio_span(estimate: &ShownEstimate) -> Option<String> {
    let digits = ratio_digits(estimate.centre, estimate.bound());
    let number = |value| ratio_number(value, digits);
    estimate.shown_interval(|span| format!("[{}, {}]", number(span.lo), number(span.hi)))
}

/// The ratio alone, with the digits that its interval needs.
pub(crate) fn ratio_centre(estimate: &ShownEstimate) -> String {
    format!("×{}", ratio_number(estimate.centre, ratio_digits(estimate.centre, estimate.bound())))
}

/// Two digits behind the point, more where the interval is narrow or where
/// rounding would put one of its ends on 1, which it does not touch.
fn ratio_digits(centre: f64, interval: Option<ShownInterval>) -> usize {
    let ends = interval.map_or([centre, centre], |span| [span.lo, span.hi]);
    let width = if interval.is_some() { ends[1] - ends[0] } else { 1.0 };
    let by_width = if width >= 0.02 { 2 } else { 3 };
    let smallest = ends[0].abs().min(centre.abs());
    let by_size = if smallest > 0.0 && smallest < 0.1 { 3 } else { 2 };
    let touches_one = |digits: usize| {
        let step = 10f64.powi(-(digits as i32));
        ends.iter().any(|end| *end != 1.0 && (end - 1.0).abs() < step / 2.0)
    };
    (by_width.max(by_size)..4).find(|digits| !touches_one(*digits)).unwrap_or(4)
}

fn ratio_number(value: f64, digits: usize) -> String {
    match value.abs() {
        v if v >= 10_000.0 => format!("{value:.1e}"),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v > 0.0 && v < 0.000_1 => format!("{value:.0e}"),
        v if v > 0.0 && v < 0.01 => format!("{value:.4}"),
        _ => format!("{value:.digits$}"),
    }
}

/// Events, to as many digits as tell something: `1235`, `12.3`, `2`, `0.0002`.
pub(crate) fn event_count(value: f64) -> String {
    let text = match value {
        v if v >= 100.0 => return format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 0.01 || v <= 0.0 => format!("{v:.2}"),
        v => {
            return format!("{v:.0e}")
                .parse()
                .map_or_else(|_| v.to_string(), |v: f64| v.to_string());
        }
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// How a counter went from `from` to `to`.
pub(crate) fn change(from: f64, to: f64) -> String {
    if from == to {
        "same".to_owned()
    } else if from == 0.0 || !(to / from).is_finite() {
        "from 0".to_owned()
    } else {
        ratio(to / from)
    }
}

/// `95 %`, `99.5 %`.
pub(crate) fn percent(fraction: f64) -> String {
    crate::verdict::percent(fraction) + " %"
}

/// `p99.9`.
pub(crate) fn percentile(share: f64) -> String {
    format!("p{}", (share * 1e8).round() / 1e6)
}

/// `47 s`, `12 min`, `1 h 05 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// `1 block`, `4 blocks`: the one place that makes plurals.
#[must_use]
pub fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_the_digits_that_their_interval_needs() {
        let check = |centre, interval: Option<(f64, f64)>, expected: &str| {
            let interval = interval.map(|(lo, hi)| ShownInterval { lo, hi });
            assert_eq!(ratio_estimate(&ShownEstimate { centre, interval }), expected);
        };
        check(0.5313, Some((0.4899, 0.5801)), "×0.53 [0.49, 0.58]");
        check(0.97, None, "×0.97");
        check(0.9911, Some((0.9855, 0.9972)), "×0.991 [0.986, 0.997]");
        check(0.9, Some((0.81, 0.9992)), "×0.900 [0.810, 0.999]");
        check(375.2, Some((300.0, 420.0)), "×375 [300, 420]");
        check(0.004, Some((0.001, 0.012)), "×0.0040 [0.0010, 0.012]");
        check(1.0, Some((1.0, 1.0)), "×1.000 [1.000, 1.000]");
        check(5000.0, Some((4000.0, 6000.0)), "×5000 [4000, 6000]");
    }

    /// Of two blocks an interval at a high level has ends that nobody can read.
    #[test]
    fn what_bounds_nothing_is_not_printed_as_numbers() {
        let estimate =
            |lo, hi| ShownEstimate { centre: 1.587, interval: Some(ShownInterval { lo, hi }) };
        let wide = estimate(2e-304, 1e304);
        assert_eq!(ratio_estimate(&wide), "×1.59 [not known yet]");
        assert_eq!(ratio_span(&wide).as_deref(), Some("[not known yet]"));
        let scale = UnitScale::for_values(&Unit::from("s"), [1.587].into_iter());
        assert_eq!(scale.show_estimate(&wide), "1.587 s [not known yet]");
        // One end is enough.
        assert_eq!(scale.show_estimate(&estimate(0.0, 2.0)), "1.587 s [0, 2.000]");
        assert_eq!(ratio_estimate(&estimate(1.0, f64::INFINITY)), "×1.59 [1.00, inf]");
    }

    #[test]
    fn one_group_has_one_prefix_unless_its_values_are_worlds_apart() {
        let check = |values: &[f64], value: f64, expected: &str| {
            let scale = UnitScale::for_values(&Unit::from("s"), values.iter().copied());
            assert_eq!(scale.show(value), expected);
        };
        check(&[0.9, 0.1], 0.1, "100.0 ms");
        check(&[120.0, 0.9], 0.9, "0.900 s");
        check(&[120.0, 1e-6], 1e-6, "1.000 µs");
        check(&[], 2.0, "2.000 s");
        check(&[0.0], 0.0, "0 s");
    }

    #[test]
    fn a_counter_from_zero_has_no_ratio() {
        assert_eq!(change(0.0, 5.0), "from 0");
        assert_eq!(change(0.0, 0.0), "same");
        assert_eq!(change(2.0, 5.0), "×2.50");
        assert_eq!(change(5.0, 0.0), "×0.00");
    }

    #[test]
    fn times_are_shown_in_two_steps() {
        let check = |seconds, expected: &str| assert_eq!(duration(seconds), expected);
        check(47.2, "47 s");
        check(754.0, "12 min 34 s");
        check(3900.0, "1 h 05 min");
    }
}
