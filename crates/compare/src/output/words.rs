//! Verdicts and numbers in words.

use record::{BetterDirection, Unit};
use report::{Label, NO_BOUND_YET, Terms, is_bound, percent};
use stats::{Interval, Verdict};

use crate::analyse::{
    ComparedCell, ComparedData, ComparedRow, Design, MetricInfo, SpreadFinding, Steadiness,
    SuiteSummary, VariantComparison,
};
use crate::decimal::{push_fixed, push_signed};

/// A verdict in short: a sign that needs no colour, a word, the rest, and the
/// style-sheet class of its colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerdictWords {
    pub(super) sign: &'static str,
    pub(super) word: &'static str,
    pub(super) detail: String,
    pub(super) class: &'static str,
}

impl VerdictWords {
    /// Word and detail.
    pub(super) fn sentence(&self) -> String {
        [self.word, &self.detail].concat()
    }
}

pub(super) fn words(judged: &VariantComparison, metric: &MetricInfo) -> VerdictWords {
    let judgement = &judged.judgement;
    let margin = judgement.margin;
    let Label { word, sign, class } = match metric.exact && !judgement.verdict.is_difference() {
        true => report::EQUAL,
        false => report::label((&judgement.verdict).into(), judgement.aa, terms(judged, metric)),
    };
    let mut words = VerdictWords { sign, word, detail: String::new(), class };
    let is_difference = judgement.verdict.is_difference();
    match &judgement.verdict {
        Verdict::Invalid { why } => words.detail = format!(": {why}"),
        _ if judgement.aa && is_difference => words.detail = ": it differs from itself".to_owned(),
        _ if judgement.aa => {}
        Verdict::BelowMargin { .. } => {
            words.detail = [", below ", &percent(margin), " %"].concat();
        }
        Verdict::Equivalent if !metric.exact => {
            words.detail = [" larger than ", &percent(margin), " %"].concat();
        }
        Verdict::NotDecided { at_most, more_blocks, .. } => {
            // So wide an interval excludes nothing that is worth naming.
            if *at_most <= 10.0 {
                words.detail = [": at most ", &percent(*at_most), " %"].concat();
            }
            if (1..10_000).contains(more_blocks) {
                let noun = if judgement.blocks_used > 0 { "block" } else { "boot" };
                let s = if *more_blocks == 1 { "" } else { "s" };
                words.detail.push_str(&format!(", about {more_blocks} more {noun}{s} needed"));
            }
        }
        Verdict::BBetter | Verdict::BWorse | Verdict::Equivalent => {}
    }
    if judgement.aa {
        return words;
    }
    if judgement.verdict.is_difference() && !judged.finding {
        words.detail.push_str(", not among the findings");
    }
    if judged.gated {
        words.detail.push_str(&format!(", worse by more than {} %", percent(margin)));
    }
    words
}

/// In which terms a row differs. What anybody calls a time or a rate may be of bytes:
/// their unit says whether faster is a word for it.
fn terms(judged: &VariantComparison, metric: &MetricInfo) -> Terms {
    let is_higher = judged.judgement.ratio.is_some_and(|ratio| ratio > 1.0);
    match metric.better {
        None => Terms::Undirected { is_higher },
        Some(better) if is_speed(metric) => Terms::of(metric.kind, better),
        Some(better) => Terms::Size(better),
    }
}

fn is_speed(metric: &MetricInfo) -> bool {
    matches!(metric.unit.as_str(), "s" | "1/s" | "B/s" | "bit/s")
}

/// `lower is better`.
pub(super) fn direction(metric: &MetricInfo) -> &'static str {
    match metric.better {
        Some(BetterDirection::Lower) => "lower is better",
        Some(BetterDirection::Higher) => "higher is better",
        None => "better direction unknown",
    }
}

/// `-17.2 % [-18.0, -16.4]`: what the variant is more or less by.
pub(super) fn change(judged: &VariantComparison) -> String {
    let Some(ratio) = judged.judgement.ratio else { return String::new() };
    let interval = judged.judgement.interval;
    let tells = |span: &Interval| is_bound(ratio, span.lo, span.hi);
    let width = interval.filter(tells).map_or(0.1, |interval| interval.hi - interval.lo);
    let digits = if width < 0.01 || (ratio - 1.0).abs() < 0.01 { 2 } else { 1 };
    let mut text = String::with_capacity(32);
    let part = |text: &mut String, ratio: f64| {
        let change = (ratio - 1.0) * 100.0;
        if change.abs() >= 10_000.0 {
            return text.push_str(&format!("{change:+.1e}"));
        }
        let start = text.len();
        push_signed(text, change, digits);
        // No minus zero.
        if !text[start..].contains(|c| matches!(c, '1'..='9')) && !change.is_nan() {
            text.remove(start);
        }
    };
    part(&mut text, ratio);
    text.push_str(" %");
    match interval {
        Some(span) if tells(&span) => {
            text.push_str(" [");
            part(&mut text, span.lo);
            text.push_str(", ");
            part(&mut text, span.hi);
            text.push(']');
        }
        Some(_) => {
            text.push(' ');
            text.push_str(NO_BOUND_YET);
        }
        None => {}
    }
    text
}

/// One prefix for all values of a row.
pub(super) struct PrefixScale {
    unit: Unit,
    common: Option<(f64, String)>,
}

impl PrefixScale {
    pub(super) fn of(row: &ComparedRow, metric: &MetricInfo) -> Self {
        let unit = Unit(metric.unit.clone());
        let sizes = row.cells.iter().flatten().map(|cell| cell.centre.abs());
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for size in sizes.filter(|size| *size > 0.0 && size.is_finite()) {
            (least, most) = (least.min(size), most.max(size));
        }
        let common = (most > 0.0 && most / least < 1000.0).then(|| unit.scale(most));
        Self { unit, common }
    }

    /// `1.718 µs ±1.2 %`.
    pub(super) fn show(&self, cell: &ComparedCell) -> String {
        let mut text = match &self.common {
            Some((divisor, unit)) => {
                let value = cell.centre / divisor;
                let digits = match value.abs() {
                    v if v >= 1000.0 => 0,
                    v if v >= 100.0 => 1,
                    v if v >= 10.0 => 2,
                    _ => 3,
                };
                let mut text = String::with_capacity(24);
                push_fixed(&mut text, value, digits);
                if !unit.is_empty() {
                    text.push(' ');
                    text.push_str(unit);
                }
                text
            }
            None => self.unit.show(cell.centre),
        };
        if let Some(interval) = cell.interval
            && cell.centre != 0.0
        {
            let half = (interval.hi / cell.centre - 1.0).max(1.0 - interval.lo / cell.centre);
            if half < 10.0 {
                text.push_str(" ±");
                text.push_str(&percent(half));
                text.push_str(" %");
            }
        }
        text
    }
}

/// The head of a table: `sec/op, lower is better`.
pub(super) fn title(metric: &MetricInfo) -> String {
    format!("{}, {}", metric.name, direction(metric))
}

/// What the whole comes to, in one or two sentences.
pub(super) fn headline(comparison: &ComparedData) -> String {
    let ComparedData { findings, comparisons, .. } = comparison;
    let mut text = match (comparisons, findings) {
        (0, _) => "Nothing could be compared: no row has values of both.".to_owned(),
        (1, 0) => "One comparison, no finding.".to_owned(),
        (1, _) => "One comparison, one finding.".to_owned(),
        (n, 0) => format!("{n} comparisons, no finding."),
        (n, f) => format!(
            "{n} comparisons, {f} finding{} (Benjamini-Hochberg: at most {} % of such a list are false).",
            if *f == 1 { "" } else { "s" },
            percent(comparison.alpha)
        ),
    };
    let total = |wanted: fn(&Verdict) -> bool| {
        let judged = comparison.rows.iter().flat_map(|row| row.judged.iter().flatten());
        judged.filter(|judged| wanted(&judged.judgement.verdict)).count()
    };
    let same = total(|verdict| *verdict == Verdict::Equivalent);
    let open = total(|verdict| matches!(verdict, Verdict::NotDecided { .. }));
    if *comparisons > 1 && same + open > 0 {
        text.push_str(&format!(
            " {same} differ by no more than {} %, {open} are not decided.",
            percent(comparison.margin)
        ));
    }
    text
}

/// How steady the variants are from boot to boot, in sentences; empty where
/// nobody has boots enough to tell.
pub(super) fn steadiness(comparison: &ComparedData) -> Vec<String> {
    let Steadiness { comparisons, findings } = &comparison.steadiness;
    if *comparisons == 0 {
        return Vec::new();
    }
    let unit = match comparison.design {
        Design::UnblockedValues => "value to value",
        Design::Paired | Design::UnblockedBoots => "boot to boot",
    };
    let s = if *comparisons == 1 { "" } else { "s" };
    let base = &comparison.variants[0];
    let known = match findings.len() {
        0 => "none is shown to be steadier or less steady".to_owned(),
        n => format!("{n} differ{} in spread", if n == 1 { "s" } else { "" }),
    };
    let mut lines = vec![format!("From {unit}, {comparisons} comparison{s} with {base}: {known}.")];
    let named = findings.iter().take(SPREADS_NAMED).map(|finding| {
        let SpreadFinding { row, variant, steadier, ratio, .. } = finding;
        let row = &comparison.rows[*row as usize];
        let bounds = match (ratio.lo > 0.0, ratio.hi.is_finite()) {
            (true, true) => format!("spread ×{:.2} to ×{:.2}", ratio.lo, ratio.hi),
            (true, false) => format!("spread at least ×{:.2}", ratio.lo),
            (false, _) => format!("spread at most ×{:.2}", ratio.hi),
        };
        format!(
            "{} of {}: {} is {} ({bounds})",
            comparison.metric(row).name,
            row.name,
            comparison.variants[*variant as usize],
            Terms::Spread.comparative(*steadier),
        )
    });
    lines.extend(named);
    match findings.len().saturating_sub(SPREADS_NAMED) {
        0 => {}
        more => lines.push(format!("and {more} more")),
    }
    lines
}

/// All rows of a metric together; `variant` is the name as the format writes it.
pub(super) fn overall(suite: &SuiteSummary, variant: &str) -> String {
    let change = |ratio: f64| format!("{:+.2} %", (ratio - 1.0) * 100.0);
    let text = format!("Geometric mean of {} rows, {variant}: {}", suite.rows, change(suite.ratio));
    text + &suite_interval(suite, change)
}

/// ` [+1.2 %, +3.4 %]` of all rows of a metric together, each end made by `change`; empty
/// if there is none.
pub(super) fn suite_interval(suite: &SuiteSummary, change: impl Fn(f64) -> String) -> String {
    match suite.interval {
        Some(span) if is_bound(suite.ratio, span.lo, span.hi) => {
            format!(" [{}, {}]", change(span.lo), change(span.hi))
        }
        Some(_) => format!(" {NO_BOUND_YET}"),
        None => String::new(),
    }
}

/// Findings of spread that are named; the rest is counted.
const SPREADS_NAMED: usize = 20;

/// `B against A`, or `B, C and D against A`.
pub(super) fn against(comparison: &ComparedData) -> String {
    let (base, others) = comparison.variants.split_first().expect("there are two variants");
    let others = match others {
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    };
    format!("{others} against {base}")
}
