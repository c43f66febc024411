//! What a unit's name says: how to reach base units, which direction is
//! better, what sort of quantity it is.

use record::{BetterDirection, MetricKind};

/// A token of a unit: `ns` in `ns/op`, and whether it stands below the line.
struct UnitToken<'a> {
    text: &'a str,
    start: usize,
    below: bool,
}

/// Splits as Go's benchunit does: at `*`, `/`, `-` and spaces; what follows a
/// `/` is below the line up to the next `*`.
fn tokens(unit: &str) -> Vec<UnitToken<'_>> {
    let mut found = Vec::new();
    let mut below = false;
    let mut start = 0;
    let ends = unit.char_indices().chain([(unit.len(), '*')]);
    for (at, character) in ends {
        if !matches!(character, '*' | '/' | '-') && !character.is_whitespace() {
            continue;
        }
        if at > start {
            found.push(UnitToken { text: &unit[start..at], start, below });
        }
        match character {
            '*' => below = false,
            '/' => below = true,
            _ => {}
        }
        start = at + character.len_utf8();
    }
    found
}

/// Benchfmt's own normalisation: `ns` becomes `sec`, `MB` becomes `B`, and the
/// factor that values are to be multiplied by.
pub(crate) fn tidy(unit: &str) -> (String, f64) {
    let mut tidied = unit.to_owned();
    let mut factor = 1.0;
    for token in tokens(unit).iter().rev().filter(|token| !token.below) {
        let (name, times) = match token.text {
            "ns" => ("sec", 1e-9),
            "MB" => ("B", 1e6),
            _ => continue,
        };
        tidied.replace_range(token.start..token.start + token.text.len(), name);
        factor *= times;
    }
    (tidied, factor)
}

/// True for units of bytes, which Go's tables scale by 1024.
pub(crate) fn is_binary(unit: &str) -> bool {
    let bytes = |token: &UnitToken<'_>| !token.below && matches!(token.text, "B" | "MB" | "bytes");
    tokens(unit).iter().any(bytes)
}

/// What the name of a tidied benchfmt unit implies: base unit, direction (of
/// the units that Go's tools know), kind.
pub(crate) fn of_benchfmt(unit: &str) -> (String, Option<BetterDirection>, MetricKind) {
    let better = match unit {
        "sec/op" | "B/op" | "allocs/op" => Some(BetterDirection::Lower),
        "B/s" => Some(BetterDirection::Higher),
        _ => None,
    };
    let tokens = tokens(unit);
    let known = |text: &&str| matches!(*text, "B" | "bytes" | "sec" | "s" | "allocs");
    let above = tokens.iter().filter(|token| !token.below).map(|token| token.text).find(known);
    let per_second = tokens.iter().any(|token| token.below && matches!(token.text, "s" | "sec"));
    let (base, kind) = match (above, per_second) {
        (Some("B" | "bytes"), true) => ("B/s", MetricKind::Rate),
        (_, true) => ("1/s", MetricKind::Rate),
        (Some("sec" | "s"), false) => ("s", guess_kind("s", unit)),
        (Some("B" | "bytes"), false) => ("B", MetricKind::Count),
        (Some(_), false) => ("count", MetricKind::Count),
        (None, false) => (unit, MetricKind::Time),
    };
    (base.to_owned(), better.or_else(|| guess_better(base, kind, unit)), kind)
}

/// A written unit of other formats as base unit and factor: `ms` is a
/// thousandth of `s`. Unknown units stay as they are.
pub(crate) fn to_base(unit: &str) -> (String, f64) {
    let (base, factor) = match unit.trim() {
        "ns" | "nanoseconds" => ("s", 1e-9),
        "us" | "µs" | "μs" | "usec" | "microseconds" => ("s", 1e-6),
        "ms" | "msec" | "milliseconds" => ("s", 1e-3),
        "s" | "sec" | "secs" | "second" | "seconds" => ("s", 1.0),
        "min" | "minutes" => ("s", 60.0),
        "B" | "byte" | "bytes" => ("B", 1.0),
        "kB" | "KB" => ("B", 1e3),
        "MB" => ("B", 1e6),
        "GB" => ("B", 1e9),
        "KiB" => ("B", 1024.0),
        "MiB" => ("B", 1024.0 * 1024.0),
        "GiB" => ("B", 1024.0 * 1024.0 * 1024.0),
        "B/s" | "bytes/s" | "bytes/sec" => ("B/s", 1.0),
        "kB/s" | "KB/s" => ("B/s", 1e3),
        "MB/s" => ("B/s", 1e6),
        "GB/s" => ("B/s", 1e9),
        "KiB/s" => ("B/s", 1024.0),
        "MiB/s" => ("B/s", 1024.0 * 1024.0),
        "GiB/s" => ("B/s", 1024.0 * 1024.0 * 1024.0),
        "1/s" | "/s" | "ops/s" | "op/s" | "ops/sec" | "req/s" | "requests/s" | "requests/sec"
        | "events/s" | "tps" | "iops" | "IOPS" | "Hz" => ("1/s", 1.0),
        "" | "count" => ("count", 1.0),
        other => (other, 1.0),
    };
    (base.to_owned(), factor)
}

/// The kind that a base unit and a metric's name imply.
pub(crate) fn guess_kind(base: &str, name: &str) -> MetricKind {
    match base {
        "s" if is_quantile(name) => MetricKind::Quantile,
        "1/s" | "B/s" | "bit/s" => MetricKind::Rate,
        "count" | "B" => MetricKind::Count,
        _ => MetricKind::Time,
    }
}

/// Times, bytes, and what is called a latency are better when they are less,
/// rates when they are more; of anything else nothing is known.
pub(crate) fn guess_better(base: &str, kind: MetricKind, name: &str) -> Option<BetterDirection> {
    let name = name.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match (base, kind) {
        (_, MetricKind::Rate) => Some(BetterDirection::Higher),
        ("s" | "B", _) => Some(BetterDirection::Lower),
        _ if says(&["throughput", "bandwidth", "iops", "per_s", "per-s", "score"]) => {
            Some(BetterDirection::Higher)
        }
        _ if says(&["latency", "time", "duration", "elapsed", "misses", "faults", "errors"]) => {
            Some(BetterDirection::Lower)
        }
        _ => None,
    }
}

/// `p99`, `latency_p99.9`, `max`, `95th`: a place of a distribution.
fn is_quantile(name: &str) -> bool {
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.any(|word| {
        let word = word.to_ascii_lowercase();
        let digits = word.strip_prefix('p').or_else(|| word.strip_suffix("th")).unwrap_or("");
        matches!(word.as_str(), "max" | "min" | "median" | "maximum" | "minimum")
            || digits.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_tidied_above_the_line_only() {
        let check = |unit: &str, expected: &str, factor: f64| {
            assert_eq!(tidy(unit), (expected.to_owned(), factor), "{unit}");
        };
        check("ns/op", "sec/op", 1e-9);
        check("MB/s", "B/s", 1e6);
        check("B/op", "B/op", 1.0);
        check("p99-ns", "p99-sec", 1e-9);
        check("x/ns", "x/ns", 1.0);
        check("x/ns*MB", "x/ns*B", 1e6);
        check("ns-MB", "sec-B", 1e-9 * 1e6);
        check("µs/op", "µs/op", 1.0);
        check("", "", 1.0);
        assert!(is_binary("B/op") && is_binary("MB/s") && is_binary("peak-bytes"));
        assert!(!is_binary("sec/B") && !is_binary("sec/op"));
    }

    #[test]
    fn names_say_what_they_are() {
        let check = |unit: &str, base: &str, better, kind| {
            assert_eq!(of_benchfmt(unit), (base.to_owned(), better, kind), "{unit}");
        };
        check("sec/op", "s", Some(BetterDirection::Lower), MetricKind::Time);
        check("B/s", "B/s", Some(BetterDirection::Higher), MetricKind::Rate);
        check("allocs/op", "count", Some(BetterDirection::Lower), MetricKind::Count);
        check("req/sec", "1/s", Some(BetterDirection::Higher), MetricKind::Rate);
        check("frobs", "frobs", None, MetricKind::Time);
        check("p99-sec", "s", Some(BetterDirection::Lower), MetricKind::Quantile);
        check("binary-bytes", "B", Some(BetterDirection::Lower), MetricKind::Count);
        assert_eq!(to_base("ms"), ("s".to_owned(), 1e-3));
        assert_eq!(guess_kind("s", "latency_p99.9"), MetricKind::Quantile);
        assert_eq!(guess_kind("s", "time"), MetricKind::Time);
    }
}
