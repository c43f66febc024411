//! Verdicts in short: their words, their signs and the classes of their colours, for
//! every page and table.

use record::{BetterDirection, MetricKind};

use crate::ShownVerdict;

/// How a verdict is shown in short: a word, a sign that does not need a colour,
/// and the style-sheet class of the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// `faster`, `no difference`.
    pub word: &'static str,
    /// One character.
    pub sign: &'static str,
    /// A class of the style sheet (`html/style.css`).
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
    Size(BetterDirection),
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
    pub fn of(kind: MetricKind, better: BetterDirection) -> Self {
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
            (Self::Size(better), _) if is_better == (better == BetterDirection::Lower) => "lower",
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
pub fn steadiness(verdict: ShownVerdict) -> String {
    match verdict {
        ShownVerdict::Better | ShownVerdict::SlightlyBetter => {
            format!("it is {}", Terms::Spread.comparative(true))
        }
        ShownVerdict::Worse | ShownVerdict::SlightlyWorse => {
            format!("it is {}", Terms::Spread.comparative(false))
        }
        ShownVerdict::Equivalent => "it is as steady".to_owned(),
        ShownVerdict::NotDecided | ShownVerdict::Invalid => "nothing can be told".to_owned(),
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

/// The label of a verdict, in `terms`; `is_aa` of one about a variant against itself.
#[must_use]
pub fn label(verdict: ShownVerdict, is_aa: bool, terms: Terms) -> Label {
    let is_undirected = matches!(terms, Terms::Undirected { .. });
    let (word, sign, class) = match (verdict, is_aa) {
        (ShownVerdict::Invalid, _) => ("not valid", "!", "invalid"),
        (ShownVerdict::NotDecided | ShownVerdict::Equivalent, true) => {
            ("A/A passed", "=", "undecided")
        }
        (_, true) => ("A/A failed", "!", "invalid"),
        (ShownVerdict::NotDecided, _) => ("not decided", "?", "undecided"),
        (ShownVerdict::Equivalent, _) => ("no difference", "≈", "equal"),
        (ShownVerdict::SlightlyBetter | ShownVerdict::SlightlyWorse, _) if is_undirected => {
            (terms.barely(true), "◇", "equal")
        }
        (ShownVerdict::Better | ShownVerdict::Worse, _) if is_undirected => {
            (terms.comparative(true), "◆", "undecided")
        }
        (ShownVerdict::SlightlyBetter, _) => (terms.barely(true), "△", "equal"),
        (ShownVerdict::SlightlyWorse, _) => (terms.barely(false), "▽", "equal"),
        (ShownVerdict::Better, _) => (terms.comparative(true), "▲", "better"),
        (ShownVerdict::Worse, _) => (terms.comparative(false), "▼", "worse"),
    };
    Label { word, sign, class }
}

impl From<&stats::SpreadVerdict> for ShownVerdict {
    /// Better is steadier.
    fn from(verdict: &stats::SpreadVerdict) -> Self {
        match verdict {
            stats::SpreadVerdict::BSteadier { .. } => Self::Better,
            stats::SpreadVerdict::BLessSteady { .. } => Self::Worse,
            stats::SpreadVerdict::CannotTell { .. } => Self::NotDecided,
        }
    }
}

impl From<&stats::Verdict> for ShownVerdict {
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
