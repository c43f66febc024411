//! What a value measures: its name, unit and better direction.

use std::fmt::{self, Write as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which direction of a metric is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BetterDirection {
    /// Less is better: times, latencies.
    Lower,
    /// More is better: rates.
    Higher,
}

impl fmt::Display for BetterDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lower => "lower is better",
            Self::Higher => "higher is better",
        })
    }
}

/// What sort of quantity a metric is, which decides how the samples of one
/// boot become one number: times by their median, rates as total work by total
/// time, quantiles as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    /// A duration or a mean latency.
    Time,
    /// Work by time.
    Rate,
    /// A quantile (or an extreme) of a latency distribution.
    Quantile,
    /// A number of events or of bytes.
    Count,
}

/// A base unit, as records hold it: `s`, `B`, `1/s`, `B/s`, `count`, ...
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Unit(pub String);

impl Unit {
    /// Formats `value` with an SI prefix that leaves one to three digits
    /// before the point, e.g. `1.234 ms`, `56.7 k/s`, `1.20 GB/s`.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        let mut text = String::new();
        show_value(&self.0, value, &mut text);
        text
    }

    /// What to divide values near `value` by, and the name of the unit then:
    /// `(1e-3, "ms")`, `(1e3, "k/s")`; the name of a count is its prefix alone.
    #[must_use]
    pub fn scale(&self, value: f64) -> (f64, String) {
        let (divisor, prefix) = prefix(&self.0, value);
        (divisor, [prefix, behind_prefix(&self.0)].concat())
    }
}

/// Appends to `text` what [`Unit::show`] says of a value in the base unit
/// `unit`, with no memory of its own: logs have millions of values.
pub fn show_value(unit: &str, value: f64, text: &mut String) {
    // Writing to a String does not fail.
    if !value.is_finite() {
        let _ = write!(text, "{value} {unit}");
        return;
    }
    let (divisor, prefix) = prefix(unit, value);
    if unit == "count" && value.fract() == 0.0 && value.abs() < 1000.0 {
        fixed(value, 0, text);
    } else {
        let scaled = value / divisor;
        let digits = match scaled.abs() {
            v if v >= 100.0 => 1,
            v if v >= 10.0 => 2,
            _ => 3,
        };
        fixed(scaled, digits, text);
    }
    let behind = behind_prefix(unit);
    if !prefix.is_empty() || !behind.is_empty() {
        text.extend([" ", prefix, behind]);
    }
}

/// Appends what `{value:.digits$}` says, of at most three digits.
fn fixed(value: f64, digits: usize, text: &mut String) {
    const TENS: [f64; 4] = [1.0, 10.0, 100.0, 1000.0];
    let shifted = value * TENS[digits];
    let below = shifted.floor();
    let part = shifted - below;
    // So near to the middle of two, only all of its digits say which is nearer.
    if !(0.0..1e9).contains(&shifted) || value.is_sign_negative() || (part - 0.5).abs() < 1e-6 {
        let _ = write!(text, "{value:.digits$}");
        return;
    }
    let mut rest = below as u64 + u64::from(part > 0.5);
    let mut bytes = [b'0'; 16];
    let mut at = bytes.len();
    let mut written = 0;
    // One digit at least stands before the point.
    while rest > 0 || written <= digits {
        if digits > 0 && written == digits {
            at -= 1;
            bytes[at] = b'.';
        }
        at -= 1;
        bytes[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        written += 1;
    }
    text.extend(bytes[at..].iter().map(|byte| char::from(*byte)));
}

fn behind_prefix(unit: &str) -> &str {
    match unit {
        "count" | "1" => "",
        "1/s" => "/s",
        unit => unit,
    }
}

/// Ratios and percentages take no prefix, seconds none above one (nobody
/// reads kiloseconds), counts and bytes none below one.
fn prefix(unit: &str, value: f64) -> (f64, &'static str) {
    let (largest, smallest) = match unit {
        "1" | "ratio" | "%" => (1.0, 1.0),
        "s" => (1.0, 1e-9),
        "count" | "B" => (1e12, 1.0),
        _ => (1e12, 1e-9),
    };
    if value == 0.0 || !value.is_finite() {
        return (1.0, "");
    }
    SI_PREFIXES
        .into_iter()
        .filter(|(scale, _)| (smallest..=largest).contains(scale))
        .find(|(scale, _)| value.abs() >= *scale)
        .unwrap_or(if smallest < 1.0 { (1e-9, "n") } else { (1.0, "") })
}

/// From the largest to the smallest.
const SI_PREFIXES: [(f64, &str); 8] = [
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
];

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Unit {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// A metric: what one number of a benchmark measures.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Name, unique inside a workload: `time`, `latency-max`, `events-per-s`.
    pub name: String,
    /// Base unit of every sample.
    pub unit: Unit,
    /// Which direction is better.
    pub better: BetterDirection,
    /// What sort of quantity it is.
    pub kind: MetricKind,
}

impl Metric {
    /// What the metric is a quantile of, and which, if its name says so:
    /// `latency-p99` is (`latency`, 0.99), `latency-p99.9` and `latency-p999`
    /// are (`latency`, 0.999), `latency-max` is (`latency`, 1).
    #[must_use]
    pub fn quantile(&self) -> Option<(&str, f64)> {
        let (family, last) = self.name.rsplit_once('-')?;
        if last == "max" {
            return Some((family, 1.0));
        }
        let digits = last.strip_prefix('p')?;
        let share = match digits.split_once('.') {
            Some((whole, part)) => format!("{whole}{part}"),
            None => digits.to_owned(),
        };
        if share.len() < 2 || !share.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let share = format!("0.{share}").parse().ok()?;
        (share > 0.0).then_some((family, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_known_by_their_names() {
        let check = |name: &str, expected: Option<(&str, f64)>| {
            let (unit, better) = (Unit::from("s"), BetterDirection::Lower);
            let metric = Metric { name: name.into(), unit, better, kind: MetricKind::Quantile };
            assert_eq!(metric.quantile(), expected);
        };
        check("latency-p50", Some(("latency", 0.5)));
        check("latency-p99", Some(("latency", 0.99)));
        check("latency-p999", Some(("latency", 0.999)));
        check("read-latency-p99.9", Some(("read-latency", 0.999)));
        check("request-max", Some(("request", 1.0)));
        check("time", None);
        check("iops-p", None);
        check("latency-p00", None);
        check("latency-pinned", None);
    }

    #[test]
    fn values_are_shown_with_a_prefix_and_three_digits() {
        let check = |unit: &str, value: f64, expected: &str| {
            assert_eq!(Unit::from(unit).show(value), expected);
        };
        check("s", 0.001_234, "1.234 ms");
        check("s", 57.819, "57.82 s");
        check("1/s", 56_700.0, "56.70 k/s");
        check("B/s", 1.2e9, "1.200 GB/s");
        check("count", 12.0, "12");
        check("count", 1_234_567.0, "1.235 M");
        check("s", 2.5e-9, "2.500 ns");
        check("s", 0.0, "0.000 s");
        check("1", 0.25, "0.250");
        check("s", 5410.88, "5410.9 s");
        check("count", 0.5, "0.500");
    }

    #[test]
    fn few_digits_are_those_of_all() {
        let mut state = 1_u64;
        let halves = (0..4000_u32).map(|half| f64::from(half) * 0.0625);
        let random = std::iter::repeat_with(|| {
            // Knuth's generator: the same numbers everywhere.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / 2_f64.powi(53) * 10_f64.powi((state % 11) as i32 - 3)
        });
        for value in halves.chain(random.take(20_000)).flat_map(|value| [value, -value]) {
            for digits in 0..4 {
                let mut text = String::new();
                fixed(value, digits, &mut text);
                assert_eq!(text, format!("{value:.digits$}"));
            }
        }
    }

    #[test]
    fn an_axis_gets_one_divisor_and_one_name() {
        let check = |unit: &str, value: f64, divisor: f64, name: &str| {
            assert_eq!(Unit::from(unit).scale(value), (divisor, name.to_owned()));
        };
        check("s", 0.2, 1e-3, "ms");
        check("s", 5410.0, 1.0, "s");
        check("1/s", 2e5, 1e3, "k/s");
        check("count", 3.0, 1.0, "");
        check("count", 3e6, 1e6, "M");
        check("%", 250.0, 1.0, "%");
        check("s", 0.0, 1.0, "s");
    }
}
