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
    /// A class of [`PALETTE`](crate::PALETTE).
    pub class: &'static str,
}

/// In which terms a metric's values differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terms {
    /// As time and work by time do: faster, slower.
    Speed,
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
            _ => "barely higher",
        }
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
