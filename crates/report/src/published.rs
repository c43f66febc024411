//! What others published, beside what was measured.

use record::Environment;
use stats::{Interval, PublishedAgreement, Relation, Verdict, ratio_agreement};

use crate::quantity::{UnitScale, ratio, ratio_estimate, ratio_range};
use crate::{
    CellResults, CountScope, PublishedClaim, PublishedKind, PublishedValue, Report, ResultGroup,
    ShownEstimate, ShownInterval, VariantJudgement,
};

/// Heads of the table of claims: of orders and ratios, and of shares of one variant.
pub(crate) fn claim_heads(report: &Report) -> [&'static str; 3] {
    ["published", report.environment.participle(), "judged"]
}

/// The margin of a group that names none: no difference matters.
const NO_MARGIN: f64 = 0.0;

/// The published and the measured figures of one variant.
pub(crate) struct PublishedRow<'a> {
    pub(crate) published: &'a PublishedValue,
    pub(crate) measured: Option<ShownEstimate>,
    pub(crate) is_baseline: bool,
    pub(crate) published_ratio: Option<ShownInterval>,
    pub(crate) measured_ratio: Option<ShownEstimate>,
    /// Standard deviation between boots, in the metric's base unit.
    pub(crate) measured_sd: Option<f64>,
}

/// All rows of `group`.
pub(crate) fn rows<'a>(report: &Report, group: &'a ResultGroup) -> Vec<PublishedRow<'a>> {
    let Some(baseline) = report.baseline() else { return Vec::new() };
    let row = |published: &'a PublishedValue| {
        let cell = group.cell(&published.variant);
        PublishedRow {
            published,
            measured: cell.and_then(|cell| cell.estimate),
            is_baseline: published.variant == baseline.name,
            published_ratio: published_ratio(group, &baseline.name, &published.variant),
            measured_ratio: cell
                .and_then(|cell| cell.judgement.as_ref())
                .and_then(|judgement| judgement.ratio),
            measured_sd: cell.and_then(sd_of_boots),
        }
    };
    group.published.iter().map(row).collect()
}

/// Whether anything is told of standard deviations.
pub(crate) fn tells_sd(group: &ResultGroup) -> bool {
    group.published.iter().any(|published| published.sd().is_some())
}

/// Whether any row of `group` is judged.
pub(crate) fn tells_agreement(group: &ResultGroup) -> bool {
    group.published.iter().any(|published| published.agreement.is_some())
}

/// The published ratio of `variant` to the baseline, or that of the values: a
/// range where either is one.
pub(crate) fn published_ratio(
    group: &ResultGroup,
    baseline: &str,
    variant: &str,
) -> Option<ShownInterval> {
    let published = group.published(variant)?;
    let one = |value: f64| ShownInterval { lo: value, hi: value };
    let of_values = || {
        let (a, b) = (group.published(baseline)?.extent()?, published.extent()?);
        Some(ShownInterval { lo: b.lo / a.hi, hi: b.hi / a.lo })
    };
    let ratio = published.ratio_range.or(published.ratio.map(one)).or_else(of_values)?;
    let is_ratio = |value: f64| value.is_finite() && value > 0.0;
    (is_ratio(ratio.lo) && is_ratio(ratio.hi)).then_some(ratio)
}

/// The same with what the single runs of both leave open, at `level`.
fn published_interval(
    group: &ResultGroup,
    baseline: &str,
    variant: &str,
    level: f64,
) -> Option<ShownInterval> {
    let runs = |name: &str| Some(logs(&group.published(name)?.runs)).filter(|logs| logs.len() > 1);
    let of_runs = || {
        let welch = stats::welch(&runs(baseline)?, &runs(variant)?, level).ok()?;
        Some(ShownInterval { lo: welch.interval.lo.exp(), hi: welch.interval.hi.exp() })
    };
    of_runs().or_else(|| published_ratio(group, baseline, variant))
}

fn logs(runs: &[f64]) -> Vec<f64> {
    runs.iter().map(|value| value.ln()).filter(|log| log.is_finite()).collect()
}

/// Sample standard deviation of the boots that count.
fn sd_of_boots(cell: &CellResults) -> Option<f64> {
    let counted = cell.boots.iter().filter(|boot| boot.counted);
    sd(&counted.map(|boot| boot.value).collect::<Vec<f64>>())
}

/// Sample standard deviation; none of fewer than two values.
fn sd(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt())
}

impl PublishedValue {
    /// The value, or the mean of the runs that were told instead.
    #[must_use]
    pub fn centre(&self) -> Option<f64> {
        let mean = || self.runs.iter().sum::<f64>() / self.runs.len() as f64;
        self.value.or_else(|| (!self.runs.is_empty()).then(mean))
    }

    /// The standard deviation, or that of the runs that were told instead.
    #[must_use]
    pub fn sd(&self) -> Option<f64> {
        self.sd.or_else(|| sd(&self.runs))
    }

    /// From where to where the value lies.
    fn extent(&self) -> Option<ShownInterval> {
        self.range.or_else(|| self.centre().map(|value| ShownInterval { lo: value, hi: value }))
    }
}

impl ResultGroup {
    /// Whether anything was published of it.
    pub(crate) fn tells_published(&self) -> bool {
        !self.published.is_empty() || !self.claims.is_empty()
    }

    /// Judges what was published of each variant by what was measured of it;
    /// `level` is that of the intervals.
    pub fn judge_published(&mut self, baseline: &str, level: f64) {
        let judged: Vec<Option<PublishedAgreement>> = self
            .published
            .iter()
            .map(|published| {
                let name = &published.variant;
                let judgement = self.cell(name)?.judgement.as_ref()?;
                let published = published_interval(self, baseline, name, level)?;
                let margin = self.margin.unwrap_or(NO_MARGIN);
                let measured = interval_of(judgement, level);
                Some(ratio_agreement((published.lo, published.hi), measured, margin))
            })
            .collect();
        for (published, agreement) in self.published.iter_mut().zip(judged) {
            published.agreement = agreement;
        }
    }
}

/// The interval, where anything may be said.
fn interval_of(judgement: &VariantJudgement, level: f64) -> Option<Interval> {
    let span = judgement.ratio?.interval?;
    (judgement.why.is_none()).then_some(Interval { lo: span.lo, hi: span.hi, level })
}

impl PublishedClaim {
    /// The claim `says` of `variant` and `than`, whose workload was not run.
    #[must_use]
    pub fn unmeasured(
        says: PublishedKind,
        variant: &str,
        than: Option<&str>,
        source: &str,
    ) -> Self {
        Self {
            says,
            variant: variant.to_owned(),
            than: than.map(str::to_owned),
            source: source.to_owned(),
            measured: None,
            measured_shares_percent: None,
            missing: None,
            blocks: 0,
            agreement: None,
        }
    }

    /// The claim, judged by the comparison of `variant` with `than`.
    #[must_use]
    pub fn judged(self, comparison: &stats::Comparison, judged: &stats::Judgement) -> Self {
        let is_valid = !matches!(judged.verdict, Verdict::Invalid { .. });
        // No part is more than the whole.
        let most = if self.than.is_none() { 1.0 } else { f64::INFINITY };
        let interval = judged.interval.filter(|_| is_valid);
        let interval = interval.map(|interval| Interval { hi: interval.hi.min(most), ..interval });
        let margin = comparison.margin;
        let agreement = match &self.says {
            PublishedKind::Order { relation } => {
                relation.agreement(interval, comparison.better, margin)
            }
            PublishedKind::CounterRatio { published, .. }
            | PublishedKind::FunctionShare { published, .. } => {
                ratio_agreement((published.lo, published.hi), interval, margin)
            }
        };
        let span = interval.map(|interval| ShownInterval { lo: interval.lo, hi: interval.hi });
        Self {
            measured: judged.ratio.map(|centre| ShownEstimate { centre, interval: span }),
            blocks: judged.blocks_used,
            agreement: Some(agreement),
            ..self
        }
    }

    /// What was published, in words.
    pub(crate) fn sentence(&self) -> String {
        let variant = &self.variant;
        let than = self.than.as_deref().unwrap_or_default();
        match &self.says {
            PublishedKind::Order { relation } => {
                let relation = match relation {
                    Relation::Better => "better than",
                    Relation::AtLeastAsGood => "at least as good as",
                    Relation::Equal => "no different from",
                };
                format!("{variant} {relation} {than}")
            }
            PublishedKind::CounterRatio { counter, of, published } => {
                let of = match of {
                    CountScope::Operation => "an operation",
                    CountScope::Run => "a run",
                    CountScope::End => "at a run's end",
                };
                let ratio = shown_ratio(*published);
                format!("{counter} {of}: {variant} by {than} {ratio}")
            }
            PublishedKind::FunctionShare { function, within, side, published, shares_percent } => {
                let within = within.as_ref().map(|of| format!(" of that in {of}"));
                let side = side.map(|side| format!(", by the {}'s perf", side.name()));
                let time = [Some(format!("time in {function}")), within, side];
                let time: String = time.into_iter().flatten().collect();
                match &self.than {
                    Some(than) => {
                        let (ratio, shares) = (shown_ratio(*published), shares(*shares_percent));
                        format!("{time}: {variant} by {than} {ratio}{shares}")
                    }
                    None => format!("{time}: {variant} {}", shown_share(*published)),
                }
            }
        }
    }

    /// The texts under [`claim_heads`].
    pub(crate) fn cells(&self) -> [String; 3] {
        let measured = match (&self.measured, &self.missing) {
            (Some(estimate), _) if self.than.is_none() => share_estimate(estimate),
            (Some(estimate), _) => ratio_estimate(estimate) + &shares(self.measured_shares_percent),
            (None, Some(why)) => format!("none: {why}"),
            (None, None) => "none".to_owned(),
        };
        [self.sentence(), measured, agreement_word(self.agreement).to_owned()]
    }
}

/// The shares behind a ratio, where they are known.
fn shares(percent: Option<[f64; 2]>) -> String {
    let share = |percent: f64| crate::quantity::percent(percent / 100.0);
    percent.map_or_else(String::new, |[a, b]| format!(" ({}, {})", share(a), share(b)))
}

/// A published share: one number or a range.
fn shown_share(ShownInterval { lo, hi }: ShownInterval) -> String {
    let [least, most] = [lo, hi].map(crate::quantity::percent);
    if lo == hi { most } else { format!("{least} to {most}") }
}

/// A measured share with its interval.
fn share_estimate(estimate: &ShownEstimate) -> String {
    let percent = crate::quantity::percent;
    let ends = |span: ShownInterval| format!(" [{}, {}]", percent(span.lo), percent(span.hi));
    percent(estimate.centre) + &estimate.shown_interval(ends).unwrap_or_default()
}

/// A published value: one number, a range, or the mean of runs.
pub(crate) fn published_value(published: &PublishedValue, scale: &UnitScale) -> String {
    match (published.range, published.centre()) {
        (Some(range), _) => format!("{} to {}", scale.number(range.lo), scale.show(range.hi)),
        (None, Some(value)) => scale.show(value),
        (None, None) => "not told".to_owned(),
    }
}

/// A published ratio: one number or a range.
pub(crate) fn shown_ratio(published: ShownInterval) -> String {
    if published.lo == published.hi { ratio(published.lo) } else { ratio_range(published) }
}

/// An agreement in a word.
pub(crate) fn agreement_word(agreement: Option<PublishedAgreement>) -> &'static str {
    match agreement {
        Some(PublishedAgreement::Agrees) => "agrees",
        Some(PublishedAgreement::Contradicts) => "contradicts",
        Some(PublishedAgreement::CannotTell) => "can't tell",
        None => "",
    }
}

/// What a table of agreements says of where they come from: what was published
/// is of a real machine and of the study in full.
pub(crate) fn circumstances(report: &Report) -> String {
    let emulated = match report.environment {
        Environment::Simulated => Some("simulated time".to_owned()),
        other => other.is_emulated_time().then(|| "emulated time".to_owned()),
    };
    let scale = report.scale.as_ref().map(|scale| format!("the {scale} size alone"));
    let all: Vec<String> = emulated.into_iter().chain(scale).collect();
    if all.is_empty() { String::new() } else { format!(", in {}", all.join(" and ")) }
}

/// The sources of what was published in `group`, each once.
pub(crate) fn sources(group: &ResultGroup) -> Vec<&str> {
    let rows = group.published.iter().map(|published| &published.source);
    let mut sources: Vec<&str> = Vec::new();
    for source in rows.chain(group.claims.iter().map(|claim| &claim.source)) {
        if !sources.contains(&source.as_str()) {
            sources.push(source);
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use stats::{Comparison, Engine as _, PairedBlocks, SequentialTest};

    use super::*;

    #[test]
    fn no_share_is_more_than_the_whole() {
        let shares: [f64; 3] = [0.6, 0.9, 0.7];
        let log_ratios = shares.iter().map(|share| share.ln()).collect();
        let comparison = Comparison {
            blocks: PairedBlocks { log_ratios },
            better: record::BetterDirection::Lower,
            margin: 0.03,
            aa: false,
            host: Vec::new(),
        };
        let judged = SequentialTest::within(3, 0.05).unwrap().judge(&comparison);
        let published = ShownInterval { lo: 0.05, hi: 1.0 };
        let says = PublishedKind::FunctionShare {
            function: "yield_to".to_owned(),
            within: None,
            side: None,
            published,
            shares_percent: None,
        };
        let claim = |than| {
            let claim = PublishedClaim::unmeasured(says.clone(), "a", than, "a talk");
            let claim = claim.judged(&comparison, &judged);
            (claim.measured.unwrap().interval.unwrap().hi, claim.agreement)
        };
        let (hi, agreement) = claim(None);
        assert_eq!((hi, agreement), (1.0, Some(PublishedAgreement::Agrees)));
        let (hi, agreement) = claim(Some("b"));
        assert!(hi > 1.0 && agreement == Some(PublishedAgreement::CannotTell), "{hi}");
    }
}
