//! A judgement in plain words.

use crate::{Better, Interval, Judgement, Kind, Verdict};

/// Says a judgement in one sentence, without the final stop.
///
/// `a` is the baseline's name, `b` that of the variant. Differences up to a
/// factor of 2 are said in percent of A's value, greater ones as a factor; both
/// with the interval in brackets.
#[must_use]
pub fn sentence(judgement: &Judgement, kind: Kind, a: &str, b: &str) -> String {
    let numbers = match (judgement.ratio, judgement.interval) {
        (Some(ratio), Some(interval)) => difference(kind, ratio, &interval),
        _ => String::new(),
    };
    match &judgement.verdict {
        Verdict::BBetter | Verdict::BWorse => {
            let word = comparative(kind, judgement);
            let doubt = if judgement.aa { ", though they are the same (A/A alarm)" } else { "" };
            format!("{b} is {word} than {a}: {numbers}{doubt}")
        }
        Verdict::NotDecided { .. } if judgement.aa => {
            format!("{b} does not differ from {a}, as it should be: {numbers}")
        }
        Verdict::NotDecided { at_most, more_blocks, .. } => {
            let at_most = percent(*at_most);
            let more = match more_blocks {
                0 => String::new(),
                1 => "; about 1 more block needed".to_owned(),
                more => format!("; about {more} more blocks needed"),
            };
            format!(
                "{b} against {a} is not decided: they differ by at most {at_most} \
                 ({numbers}){more}"
            )
        }
        Verdict::Invalid { reason } => format!("{b} against {a} is invalid: {reason}"),
    }
}

/// `faster`, `slower`, `lower`, ...
fn comparative(kind: Kind, judgement: &Judgement) -> &'static str {
    let b_better = judgement.verdict == Verdict::BBetter;
    match (kind, b_better) {
        (Kind::Time | Kind::Rate, true) => "faster",
        (Kind::Time | Kind::Rate, false) => "slower",
        (Kind::Quantile | Kind::Count, _) => {
            let lower = b_better == (judgement.better == Better::Lower);
            match (lower, b_better) {
                (true, true) => "better (lower)",
                (true, false) => "worse (lower)",
                (false, true) => "better (higher)",
                (false, false) => "worse (higher)",
            }
        }
    }
}

/// `time -20.0 % [-24.5 %, -15.2 %]` or `time x 3.20 [3.05, 3.36]`.
fn difference(kind: Kind, ratio: f64, interval: &Interval) -> String {
    let noun = match kind {
        Kind::Time => "time",
        Kind::Rate => "rate",
        Kind::Quantile => "value",
        Kind::Count => "count",
    };
    let show = if (0.5..=2.0).contains(&ratio) { percent_change } else { factor };
    let times = if (0.5..=2.0).contains(&ratio) { "" } else { "x " };
    format!("{noun} {times}{} [{}, {}]", show(ratio), show(interval.lo), show(interval.hi))
}

/// A ratio as a change: `-20.0 %`, `+0.42 %`.
fn percent_change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    format!("{percent:+.*} %", digits(percent))
}

/// A ratio as a factor, three digits: `3.20`, `0.0123`.
fn factor(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => format!("{r:.0}"),
        r if r >= 10.0 => format!("{r:.1}"),
        r if r >= 0.1 => format!("{r:.2}"),
        r => format!("{r:.2e}"),
    }
}

/// A relative difference without its sign: `8.0 %`.
fn percent(difference: f64) -> String {
    let percent = difference * 100.0;
    format!("{percent:.*} %", digits(percent))
}

/// Digits after the point that leave two that count.
fn digits(percent: f64) -> usize {
    match percent.abs() {
        p if p >= 100.0 => 0,
        p if p >= 1.0 => 1,
        _ => 2,
    }
}
