//! What differs, by how much, how sure is that: the analysis that fits what is
//! known of the numbers.
//!
//! Where blocks are known, variants are compared inside them. Where they are
//! not, Welch's test on the logarithms of one number a boot is what is left,
//! with Mann and Whitney's as a second opinion; the result says what that
//! costs, and never pairs what nobody measured beside each other.

mod group;
mod judge;
mod roles;
mod several;
mod study;
mod warn;

use std::collections::BTreeMap;

use record::{BetterDirection, MetricKind};
use schemars::JsonSchema;
use serde::Serialize;
use stats::{Interval, Judgement};

pub use study::{GroupedData, StudyComparison, StudyRow, judge_study};

use crate::data::Dataset;
use crate::filter::Filter;

/// Version of [`ComparedData`] as JSON.
pub const COMPARISON_VERSION: u32 = 1;

/// What is asked of the data.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// The label whose values are compared.
    pub variant: Option<String>,
    /// The label that says what was measured beside each other.
    pub block: Option<String>,
    /// The label that says which values come from one boot.
    pub boot: Option<String>,
    /// Labels that make the rows; none of them: all that are left.
    pub by: Vec<String>,
    /// The variant that the others are compared with.
    pub baseline: Option<String>,
    /// Metrics that are compared; none: all.
    pub metrics: Vec<String>,
    /// Which measurements take part.
    pub filter: Option<Filter>,
    /// Directions that the data do not say.
    pub better: BTreeMap<String, BetterDirection>,
    /// The smallest relative difference that matters.
    pub margin: f64,
    /// The rate of false claims.
    pub alpha: f64,
    /// Whether words may advise options of `vmlab compare`: who asks through another
    /// command has none of them.
    pub advise_options: bool,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            variant: None,
            block: None,
            boot: None,
            by: Vec::new(),
            baseline: None,
            metrics: Vec::new(),
            filter: None,
            better: BTreeMap::new(),
            margin: 0.03,
            alpha: 0.05,
            advise_options: true,
        }
    }
}

/// Why data can't be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnalyseError {
    /// No value at all.
    #[error("There is no value to compare{0}")]
    Nothing(String),
    /// A label that nothing bears.
    #[error("No value bears the label {label:?}; there are: {known}")]
    NoLabel {
        /// The label.
        label: String,
        /// Those that there are.
        known: String,
    },
    /// Nothing tells variants apart.
    #[error(
        "One input and nothing that tells variants apart: name a second input, or the label with --variant (there are: {0})"
    )]
    OneVariant(String),
    /// A label with a single value can't be compared.
    #[error("All values have {label} = {value}: there is nothing to compare it with")]
    SingleValue {
        /// The label.
        label: String,
        /// Its value.
        value: String,
    },
    /// A baseline that no variant is called.
    #[error("No variant is called {baseline:?}; there are: {known}")]
    NoBaseline {
        /// The name.
        baseline: String,
        /// Those that there are.
        known: String,
    },
    /// No such metric.
    #[error("There is no metric {metric:?}; there are: {known}")]
    NoMetric {
        /// The name.
        metric: String,
        /// Those that there are.
        known: String,
    },
    /// A margin that is none.
    #[error("Margin {0} is not a positive number: 0.03 stands for 3 %")]
    Margin(f64),
    /// A rate of false claims that is none.
    #[error("Rate of false claims {0} is not between 0 and 0.5; 0.05 is usual")]
    Alpha(f64),
}

/// How variants were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// Inside blocks, by the paired analysis.
    Paired,
    /// Without blocks; which values come from one boot is known.
    UnblockedBoots,
    /// Without blocks, and each value counts as a boot.
    UnblockedValues,
}

/// Something that whoever reads the numbers should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DataWarning {
    /// A word that stays the same: `few-boots`, `duplicated`.
    pub code: &'static str,
    /// A sentence or two.
    pub text: String,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ComparedData {
    /// `vmlab-comparison`.
    pub format: &'static str,
    /// [`COMPARISON_VERSION`].
    pub version: u32,
    /// How variants were compared.
    pub design: Design,
    /// The same in words, with what it costs.
    pub method: Vec<String>,
    /// The label that holds the variants.
    pub variant_label: String,
    /// The variants; the first is the baseline.
    pub variants: Vec<String>,
    /// Labels that have one value everywhere.
    pub common: Vec<(String, String)>,
    /// Rate of false claims of each verdict.
    pub alpha: f64,
    /// The smallest relative difference that matters.
    pub margin: f64,
    /// What is compared.
    pub metrics: Vec<MetricInfo>,
    /// One for each metric and combination of labels.
    pub rows: Vec<ComparedRow>,
    /// Geometric means over rows.
    pub suites: Vec<SuiteSummary>,
    /// Whether variants are steadier than the baseline, from boot to boot.
    pub steadiness: Steadiness,
    /// Verdicts that are findings, and comparisons that were made.
    pub findings: usize,
    /// Comparisons that were made.
    pub comparisons: usize,
    /// The gate's answer.
    pub gate: GateResult,
    /// What the reader should know.
    pub warnings: Vec<DataWarning>,
}

/// A metric.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MetricInfo {
    /// Its name.
    pub name: String,
    /// Its base unit.
    pub unit: String,
    /// The better direction; none where nobody said.
    pub better: Option<BetterDirection>,
    /// What sort of quantity it is.
    pub kind: MetricKind,
    /// True where repeated measurement adds nothing.
    pub exact: bool,
}

/// One line of the result.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ComparedRow {
    /// The labels that tell it from other rows, as text.
    pub name: String,
    /// Place in [`ComparedData::metrics`].
    pub metric: u32,
    /// One for each variant.
    pub cells: Vec<Option<ComparedCell>>,
    /// One for each variant but the baseline.
    pub judged: Vec<Option<VariantComparison>>,
}

/// One variant's values in a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ComparedCell {
    /// Boots (or values, where boots are unknown).
    pub boots: u32,
    /// Values.
    pub values: u32,
    /// Geometric mean over boots.
    pub centre: f64,
    /// Its interval; none with a single boot.
    pub interval: Option<Interval>,
}

/// A variant against the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct VariantComparison {
    /// What may be said; ratios are variant by baseline.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Boots of baseline and variant.
    pub boots: (u32, u32),
    /// Mann and Whitney's p, without blocks.
    pub rank_p: Option<f64>,
    /// The rate of false findings at which this one is listed (Benjamini and
    /// Hochberg over all comparisons).
    pub q: Option<f64>,
    /// True if it is a finding at the asked rate.
    pub finding: bool,
    /// p of "it is not worse by more than the margin"; none where the better
    /// direction is unknown.
    pub worse_p: Option<f64>,
    /// True if the gate (Holm) holds that it is worse by more than the margin.
    pub gated: bool,
}

/// All rows of a metric together.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SuiteSummary {
    /// Place in [`ComparedData::metrics`].
    pub metric: u32,
    /// Place in [`ComparedData::variants`].
    pub variant: u32,
    /// Rows that it rests on.
    pub rows: u32,
    /// Geometric mean of the rows' ratios.
    pub ratio: f64,
    /// Its interval.
    pub interval: Option<Interval>,
}

/// How much boots differ, where there are enough of them to tell
/// ([`stats::LEAST_BOOTS`]).
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Steadiness {
    /// Comparisons with enough boots.
    pub comparisons: usize,
    /// Those that differ, as a list of findings (Benjamini and Hochberg).
    pub findings: Vec<SpreadFinding>,
}

/// A variant whose boots differ more or less than the baseline's.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SpreadFinding {
    /// Place in [`ComparedData::rows`].
    pub row: u32,
    /// Place in [`ComparedData::variants`].
    pub variant: u32,
    /// True if its boots differ less.
    pub steadier: bool,
    /// Spread of the variant by that of the baseline.
    pub ratio: Interval,
    /// The rate of false findings at which it is listed.
    pub q: f64,
}

/// Whether something got worse.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GateResult {
    /// False if something got worse by more than the margin.
    pub passed: bool,
    /// What did, in words.
    pub failures: Vec<String>,
    /// Comparisons that nothing can be said about.
    pub undecidable: usize,
}

impl ComparedData {
    /// The metric of a row.
    #[must_use]
    pub fn metric(&self, row: &ComparedRow) -> &MetricInfo {
        &self.metrics[row.metric as usize]
    }
}

/// Compares.
///
/// # Errors
/// [`AnalyseError`] says what is missing and what there is.
pub fn analyse(set: &Dataset, ask: &CompareOptions) -> Result<ComparedData, AnalyseError> {
    if !(ask.margin > 0.0 && ask.margin.is_finite()) {
        return Err(AnalyseError::Margin(ask.margin));
    }
    if !(ask.alpha > 0.0 && ask.alpha < 0.5) {
        return Err(AnalyseError::Alpha(ask.alpha));
    }
    let roles = roles::Roles::of(set, ask)?;
    let grouped = group::group(set, ask, &roles)?;
    let mut warnings = warn::before(set, &roles, &grouped);
    let mut judge = judge::Judge::new(set, ask, &roles, &grouped);
    let (mut rows, suites) = judge.rows();
    let (findings, comparisons) = several::findings(&mut rows, ask.alpha);
    let gate = several::gate(&mut rows, &grouped.metrics, &roles.variants, ask.alpha);
    let steadiness = several::steadiness(judge.spreads(), ask.alpha);
    warnings.extend(judge.warnings());
    let metrics = grouped.metrics;
    warnings.extend(warn::after(&metrics, &rows, ask));
    Ok(ComparedData {
        format: "vmlab-comparison",
        version: COMPARISON_VERSION,
        design: roles.design(),
        method: roles.method(ask),
        variant_label: roles.variant_label.clone(),
        variants: roles.variants.clone(),
        common: grouped.common,
        alpha: ask.alpha,
        margin: ask.margin,
        metrics,
        rows,
        suites,
        steadiness,
        findings,
        comparisons,
        gate,
        warnings,
    })
}

#[cfg(test)]
mod tests;
