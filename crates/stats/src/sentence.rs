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
    // Adding 0 turns the -0 of a rounded tiny number into 0.
    let rounded = (percent * 100.0).round() / 100.0 + 0.0;
    format!("{rounded:+.*} %", digits(rounded))
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

#[cfg(test)]
mod tests {
    use crate::{Comparison, Engine, FixedBlocks, PairedBlocks};

    use super::*;

    #[test]
    fn words_depend_on_kind_and_direction() {
        let check = |kind, better, aa, ratios: &[f64], expected: &str| {
            let log_ratios = ratios.iter().map(|ratio| ratio.ln()).collect();
            let blocks = PairedBlocks { log_ratios };
            let engine = FixedBlocks::new(5, 0.05).unwrap();
            let judgement = engine.judge(&Comparison { blocks, better, margin: 0.03, aa });
            assert_eq!(sentence(&judgement, kind, "one", "two"), expected);
        };
        let less = [0.79, 0.80, 0.81, 0.80, 0.80];
        let (lower, higher) = (Better::Lower, Better::Higher);
        check(
            Kind::Time,
            lower,
            false,
            &less,
            "two is faster than one: time -20.0 % [-20.9 %, -19.1 %]",
        );
        check(
            Kind::Rate,
            higher,
            false,
            &less,
            "two is slower than one: rate -20.0 % [-20.9 %, -19.1 %]",
        );
        check(
            Kind::Quantile,
            lower,
            false,
            &less,
            "two is better (lower) than one: value -20.0 % [-20.9 %, -19.1 %]",
        );
        check(
            Kind::Count,
            higher,
            false,
            &less,
            "two is worse (lower) than one: count -20.0 % [-20.9 %, -19.1 %]",
        );
        check(
            Kind::Time,
            lower,
            false,
            &[3.0, 3.1, 3.2, 3.3, 3.2],
            "two is slower than one: time x 3.16 [3.02, 3.30]",
        );
        check(
            Kind::Time,
            lower,
            false,
            &[0.98, 1.05, 1.10, 0.94, 1.0],
            "two against one is not decided: they differ by at most 9.2 % \
             (time +1.2 % [-6.2 %, +9.2 %]); about 28 more blocks needed",
        );
        check(
            Kind::Time,
            lower,
            true,
            &[1.001, 1.0, 0.999, 1.0, 1.0],
            "two does not differ from one, as it should be: time +0.00 % [-0.09 %, +0.09 %]",
        );
        check(
            Kind::Time,
            lower,
            true,
            &less,
            "two is faster than one: time -20.0 % [-20.9 %, -19.1 %], though they are the same \
             (A/A alarm)",
        );
        check(
            Kind::Time,
            lower,
            false,
            &[0.5],
            "two against one is invalid: Only 1 block in which both were measured, an interval \
             needs 2",
        );
    }
}
