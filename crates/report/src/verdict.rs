//! Verdicts in short: their words, their signs and the classes of their colours, for
//! every page and table.

use record::{Better, MetricKind};

use crate::Verdict;

/// How a verdict is shown in short: a word, a sign that does not need a colour,
/// and the style-sheet class of the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// `faster`, `no difference`.
    pub word: &'static str,
    /// One character.
    pub sign: &'static str,
    /// A class of the palette (`html/palette.css`).
    pub class: &'static str,
}

/// In which terms a metric's values differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terms {
    /// As time and work by time do: faster, slower.
    Speed,
    /// As the spread of values does: steadier, less steady.
    Spread,
    /// As sizes do, of which one direction is the better: lower, higher.
    Size(Better),
    /// As sizes do, and nobody knows which direction is the better; whether the
    /// variant's is the larger.
    Undirected {
        /// The variant's value is the larger one.
        is_higher: bool,
    },
}

impl Terms {
    /// Those of a metric whose better direction is known.
    #[must_use]
    pub fn of(kind: MetricKind, better: Better) -> Self {
        match kind {
            MetricKind::Time | MetricKind::Rate => Self::Speed,
            MetricKind::Quantile | MetricKind::Count => Self::Size(better),
        }
    }

    /// The word for better, or for worse.
    #[must_use]
    pub fn comparative(self, is_better: bool) -> &'static str {
        match (self, is_better) {
            (Self::Speed, true) => "faster",
            (Self::Speed, false) => "slower",
            (Self::Spread, true) => "steadier",
            (Self::Spread, false) => "less steady",
            (Self::Size(better), _) if is_better == (better == Better::Lower) => "lower",
            (Self::Undirected { is_higher: false }, _) => "lower",
            (Self::Size(_) | Self::Undirected { .. }, _) => "higher",
        }
    }

    /// The same for a difference that is smaller than the margin.
    fn barely(self, is_better: bool) -> &'static str {
        match self.comparative(is_better) {
            "faster" => "barely faster",
            "slower" => "barely slower",
            "lower" => "barely lower",
            "higher" => "barely higher",
            "steadier" => "barely steadier",
            _ => "barely less steady",
        }
    }
}

/// The colour of a verdict's class on a terminal, as parameters of an escape sequence
/// (ECMA-48, SGR); none for a class without a colour of its own.
#[must_use]
pub fn class_sgr(class: &str) -> Option<&'static str> {
    match class {
        "better" => Some("1;36"),
        "worse" => Some("1;33"),
        "invalid" => Some("1;35"),
        _ => None,
    }
}

/// The label of values without noise that are equal.
pub const EQUAL: Label = Label { word: "equal", sign: "=", class: "undecided" };

/// Whether a variant is steadier than the baseline: `it is less steady`.
#[must_use]
pub fn steadiness(verdict: Verdict) -> String {
    match verdict {
        Verdict::Better | Verdict::SlightlyBetter => {
            format!("it is {}", Terms::Spread.comparative(true))
        }
        Verdict::Worse | Verdict::SlightlyWorse => {
            format!("it is {}", Terms::Spread.comparative(false))
        }
        Verdict::Equivalent => "it is as steady".to_owned(),
        Verdict::NotDecided | Verdict::Invalid => "nothing can be told".to_owned(),
    }
}

/// A part of something in percent, to as many digits as tell something: `3`, `2.5`.
#[must_use]
pub fn percent(fraction: f64) -> String {
    let size = (fraction * 100.0).abs();
    let digits = match size {
        s if s >= 100.0 => 0,
        s if s >= 1.0 => 1,
        _ => 2,
    };
    let mut text = format!("{:.digits$}", fraction * 100.0);
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text
}

/// The better direction of a metric as the statistics know it.
#[must_use]
pub fn direction(better: Better) -> stats::Better {
    match better {
        Better::Lower => stats::Better::Lower,
        Better::Higher => stats::Better::Higher,
    }
}

/// The label of a verdict, in `terms`; `is_aa` of one about a variant against itself.
#[must_use]
pub fn label(verdict: Verdict, is_aa: bool, terms: Terms) -> Label {
    let is_undirected = matches!(terms, Terms::Undirected { .. });
    let (word, sign, class) = match (verdict, is_aa) {
        (Verdict::Invalid, _) => ("not valid", "!", "invalid"),
        (Verdict::NotDecided | Verdict::Equivalent, true) => ("A/A passed", "=", "undecided"),
        (_, true) => ("A/A failed", "!", "invalid"),
        (Verdict::NotDecided, _) => ("not decided", "?", "undecided"),
        (Verdict::Equivalent, _) => ("no difference", "≈", "equal"),
        (Verdict::SlightlyBetter | Verdict::SlightlyWorse, _) if is_undirected => {
            (terms.barely(true), "◇", "equal")
        }
        (Verdict::Better | Verdict::Worse, _) if is_undirected => {
            (terms.comparative(true), "◆", "undecided")
        }
        (Verdict::SlightlyBetter, _) => (terms.barely(true), "△", "equal"),
        (Verdict::SlightlyWorse, _) => (terms.barely(false), "▽", "equal"),
        (Verdict::Better, _) => (terms.comparative(true), "▲", "better"),
        (Verdict::Worse, _) => (terms.comparative(false), "▼", "worse"),
    };
    Label { word, sign, class }
}

impl From<&stats::SpreadVerdict> for Verdict {
    /// Better is steadier.
    fn from(verdict: &stats::SpreadVerdict) -> Self {
        match verdict {
            stats::SpreadVerdict::BSteadier { .. } => Self::Better,
            stats::SpreadVerdict::BLessSteady { .. } => Self::Worse,
            stats::SpreadVerdict::CannotTell { .. } => Self::NotDecided,
        }
    }
}

impl From<&stats::Verdict> for Verdict {
    fn from(verdict: &stats::Verdict) -> Self {
        match verdict {
            stats::Verdict::BBetter => Self::Better,
            stats::Verdict::BWorse => Self::Worse,
            stats::Verdict::BelowMargin { b_better: true } => Self::SlightlyBetter,
            stats::Verdict::BelowMargin { b_better: false } => Self::SlightlyWorse,
            stats::Verdict::Equivalent => Self::Equivalent,
            stats::Verdict::NotDecided { .. } => Self::NotDecided,
            stats::Verdict::Invalid { .. } => Self::Invalid,
        }
    }
}
