//! One row after another: boots, estimates, verdicts.

use std::collections::BTreeMap;

use record::{BetterDirection, MetricKind};
use statrs::distribution::{ContinuousCDF, StudentsT};
use stats::{
    BootStatistic, Engine, FixedBlocks, Interval, Invalidity, Judgement, LEAST_BOOTS, LogRatio,
    PairedBlocks, SpreadVerdict, Verdict,
};

use super::group::{Member, RowGroups};
use super::roles::{ABSENT, Roles};
use super::{
    CompareOptions, ComparedCell, ComparedRow, DataWarning, MetricInfo, SuiteSummary,
    VariantComparison,
};
use crate::data::Dataset;
use crate::memo::Memo;

/// A difference of logarithms nearer to 0 than this is rounding.
const ROUNDING: f64 = 1e-12;
/// With fewer boots a side an interval leans on the normal distribution.
const FEW_BOOTS: usize = 5;
/// Reasons that are told apart in a warning.
const REASONS_KEPT: usize = 5;

/// What is known of the mean of some logarithms.
#[derive(Debug, Clone, Copy)]
struct Moments {
    n: usize,
    mean: f64,
    /// n - 1 in the denominator; 0 for a single value.
    variance: f64,
}

impl Moments {
    /// Of values that are sorted, so that their order can't change a bit.
    fn of(sorted: &[f64]) -> Option<Self> {
        let n = sorted.len();
        if n == 0 {
            return None;
        }
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let variance = if n > 1 { squares / (n - 1) as f64 } else { 0.0 };
        Some(Self { n, mean, variance })
    }

    fn share(&self) -> f64 {
        self.variance / self.n as f64
    }
}

/// A difference of logarithms with its standard error.
#[derive(Debug, Clone, Copy)]
struct Difference {
    mean: f64,
    error: f64,
    freedom: f64,
}

impl Difference {
    /// p of "the difference is not above `limit`".
    fn p_above(&self, limit: f64) -> f64 {
        let distance = self.mean - limit;
        if self.error <= 0.0 || !self.freedom.is_finite() {
            return if distance > 0.0 { 0.0 } else { 1.0 };
        }
        let student = StudentsT::new(0.0, 1.0, self.freedom);
        student.map_or(1.0, |student| student.cdf(-distance / self.error))
    }
}

/// The boots of one variant in one row.
#[derive(Debug, Default)]
struct Boots {
    /// Logarithms of the boots' numbers, sorted.
    logs: Vec<f64>,
    /// Number of values behind them.
    values: usize,
    /// Logarithms by block, where blocks are known.
    by_block: BTreeMap<(u32, u32), Vec<f64>>,
    /// The values themselves, sorted, for exact metrics and rank tests.
    raw: Vec<f64>,
    /// Why there is no number.
    unusable: Option<String>,
}

impl Boots {
    fn clear(&mut self) {
        self.logs.clear();
        self.raw.clear();
        self.by_block.clear();
        self.values = 0;
        self.unusable = None;
    }
}

/// A test of whether the boots of a variant differ as much as the baseline's.
pub(super) struct SpreadTest {
    /// Place in the rows.
    pub(super) row: u32,
    /// Place in the variants.
    pub(super) variant: u32,
    pub(super) p: f64,
    pub(super) spread: SpreadVerdict,
}

/// One number of each side for every block in which both were measured.
fn in_blocks(base: &Boots, boots: &Boots) -> impl Iterator<Item = (BootStatistic, BootStatistic)> {
    let one = |logs: &[f64]| {
        let mut logs = logs.to_vec();
        logs.sort_unstable_by(f64::total_cmp);
        let log = logs.iter().sum::<f64>() / logs.len() as f64;
        BootStatistic { value: log.exp(), log }
    };
    let both = base.by_block.iter().map(|(block, a)| (a, boots.by_block.get(block)));
    both.filter_map(move |(a, b)| b.map(|b| (one(a), one(b))))
}

pub(super) struct Judge<'a> {
    set: &'a Dataset,
    ask: &'a CompareOptions,
    roles: &'a Roles,
    grouped: &'a RowGroups,
    memo: Memo,
    spreads: Vec<SpreadTest>,
    few_boots: usize,
    outlier_driven: usize,
    unusable: BTreeMap<String, usize>,
    inexact: usize,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        set: &'a Dataset,
        ask: &'a CompareOptions,
        roles: &'a Roles,
        grouped: &'a RowGroups,
    ) -> Self {
        Self {
            set,
            ask,
            roles,
            grouped,
            memo: Memo::default(),
            spreads: Vec::new(),
            few_boots: 0,
            outlier_driven: 0,
            unusable: BTreeMap::new(),
            inexact: 0,
        }
    }

    pub(super) fn rows(&mut self) -> (Vec<ComparedRow>, Vec<SuiteSummary>) {
        let count = self.roles.variants.len();
        let mut boots: Vec<Boots> = (0..count).map(|_| Boots::default()).collect();
        let mut rows = Vec::with_capacity(self.grouped.rows.len());
        let mut suites = Suites::default();
        let grouped = self.grouped;
        for members in grouped.members.chunk_by(|a, b| a.row == b.row) {
            let number = members[0].row;
            let metric = grouped.rows[number as usize].metric;
            let info = &grouped.metrics[metric as usize];
            boots.iter_mut().for_each(Boots::clear);
            for members in members.chunk_by(|a, b| a.variant == b.variant) {
                self.fill(&mut boots[members[0].variant as usize], info, members);
            }
            let cells = boots.iter().map(|boots| self.cell(boots, info)).collect();
            let judged = (1..count).map(|variant| {
                let (base, boots) = (&boots[0], &boots[variant]);
                if base.values == 0 || boots.values == 0 {
                    return None;
                }
                let (judged, difference) = self.judge(base, boots, info);
                if difference.is_some() && !boots.logs.is_empty() {
                    self.test_spread(base, boots, (rows.len() as u32, variant as u32));
                }
                if let Some(difference) = difference {
                    suites.add(metric, variant as u32, difference, base, boots);
                }
                Some(judged)
            });
            let judged = judged.collect();
            rows.push(ComparedRow { name: grouped.name(number), metric, cells, judged });
        }
        let suites = suites.finish(&mut self.memo, 1.0 - self.ask.alpha);
        (rows, suites)
    }

    /// Reads the values of one variant in one row.
    fn fill(&mut self, boots: &mut Boots, info: &MetricInfo, members: &[Member]) {
        let kind = report::sample_kind(info.kind, &info.unit);
        let (roles, data) = (self.roles, self.set.data());
        if roles.block.is_none() && roles.boot.is_none() {
            for member in members {
                boots.raw.extend_from_slice(self.set.values(member.series as usize));
            }
            boots.values = boots.raw.len();
            boots.raw.sort_unstable_by(f64::total_cmp);
            let (first, last) = (boots.raw[0], boots.raw[boots.raw.len() - 1]);
            if first >= kind.least() && last.is_finite() {
                boots.logs.extend(boots.raw.iter().map(|value| kind.log(*value)));
            } else {
                boots.unusable = stats::boot_statistic(kind, &boots.raw).err().map(reason);
            }
            return;
        }
        // (input, block), boot: values.
        let mut found: BTreeMap<((u32, u32), u32), Vec<f64>> = BTreeMap::new();
        for member in members {
            let setting = data.series[member.series as usize].setting;
            let id = |column: &Option<super::roles::LabelColumn>| {
                column.as_ref().map_or(ABSENT, |column| column.id(data, setting))
            };
            // A block of one input has nothing to do with that of another,
            // unless the inputs are what is compared.
            let input = match roles.variant_label == crate::data::FILE {
                true => 0,
                false => data.settings[setting as usize].input,
            };
            let place = ((input, id(&roles.block)), id(&roles.boot));
            let values = self.set.values(member.series as usize);
            found.entry(place).or_default().extend_from_slice(values);
        }
        for ((block, _), samples) in found {
            boots.values += samples.len();
            match stats::boot_statistic(kind, &samples) {
                Ok(BootStatistic { log, .. }) => {
                    boots.logs.push(log);
                    boots.by_block.entry(block).or_default().push(log);
                }
                Err(error) => boots.unusable = Some(reason(error)),
            }
            boots.raw.extend(samples);
        }
        boots.raw.sort_unstable_by(f64::total_cmp);
        boots.logs.sort_unstable_by(f64::total_cmp);
    }

    fn cell(&mut self, boots: &Boots, info: &MetricInfo) -> Option<ComparedCell> {
        if boots.values == 0 {
            return None;
        }
        let kind = report::sample_kind(info.kind, &info.unit);
        let back = |log: f64| kind.value(log);
        let (centre, interval) = match Moments::of(&boots.logs) {
            Some(moments) => {
                let interval = (moments.n > 1).then(|| {
                    let level = 1.0 - self.ask.alpha;
                    let critical = self.memo.critical((moments.n - 1) as f64, level);
                    let half = critical * moments.share().sqrt();
                    let interval =
                        Interval { lo: moments.mean - half, hi: moments.mean + half, level };
                    let mut interval = interval.map(back);
                    if info.kind == MetricKind::Count {
                        interval.lo = interval.lo.max(0.0);
                    }
                    interval
                });
                (back(moments.mean), interval)
            }
            // Values without a logarithm still have a middle.
            None => (boots.raw[boots.raw.len() / 2], None),
        };
        Some(ComparedCell {
            boots: boots.logs.len() as u32,
            values: boots.values as u32,
            centre,
            interval,
        })
    }

    fn judge(
        &mut self,
        base: &Boots,
        boots: &Boots,
        info: &MetricInfo,
    ) -> (VariantComparison, Option<Difference>) {
        // Where nobody knows the direction, words of direction are not used.
        let better = info.better.unwrap_or(BetterDirection::Lower);
        let margin = self.ask.margin;
        let sides = (base.logs.len() as u32, boots.logs.len() as u32);
        let mut judged = VariantComparison {
            judgement: Judgement::invalid(
                Invalidity::TooFewBlocks { blocks: 0 },
                better,
                margin,
                false,
            ),
            boots: sides,
            rank_p: None,
            q: None,
            finding: false,
            worse_p: None,
            gated: false,
        };
        if let Some(reason) = base.unusable.as_ref().or(boots.unusable.as_ref()) {
            if self.unusable.len() < REASONS_KEPT || self.unusable.contains_key(reason) {
                *self.unusable.entry(reason.clone()).or_default() += 1;
            }
            let why = Invalidity::Unusable { reason: reason.clone() };
            judged.judgement.verdict = Verdict::Invalid { why };
            return (judged, None);
        }
        if info.exact {
            self.exact(&mut judged, base, boots);
            return (judged, None);
        }
        let difference = match self.roles.block {
            Some(_) => self.paired(&mut judged, base, boots),
            None => self.unblocked(&mut judged, base, boots),
        };
        if let (Some(difference), Some(better)) = (difference, info.better) {
            let worse = match better {
                BetterDirection::Lower => difference,
                BetterDirection::Higher => Difference { mean: -difference.mean, ..difference },
            };
            judged.worse_p = Some(worse.p_above(margin.ln_1p()));
        }
        (judged, difference)
    }

    /// Compares how much boots differ, where there are enough.
    fn test_spread(&mut self, base: &Boots, boots: &Boots, (row, variant): (u32, u32)) {
        if base.logs.len().min(boots.logs.len()) < LEAST_BOOTS {
            return;
        }
        let alpha = self.ask.alpha;
        let (p, spread) = if self.roles.block.is_some() {
            let pairs: Vec<(f64, f64)> =
                in_blocks(base, boots).map(|(a, b)| (a.log, b.log)).collect();
            if pairs.len() < LEAST_BOOTS {
                return;
            }
            (stats::pitman_morgan(&pairs), stats::compare_spread_in_blocks(&pairs, alpha))
        } else {
            let (a, b) = (&base.logs, &boots.logs);
            (stats::brown_forsythe(a, b), stats::compare_spread(a, b, alpha))
        };
        self.spreads.extend(p.map(|p| SpreadTest { row, variant, p, spread }));
    }

    /// The tests of spread, by row.
    pub(super) fn spreads(&self) -> &[SpreadTest] {
        &self.spreads
    }

    /// Values that have no noise: equal or not.
    fn exact(&mut self, judged: &mut VariantComparison, base: &Boots, boots: &Boots) {
        let same = |boots: &Boots| boots.raw[0] == boots.raw[boots.raw.len() - 1];
        if !same(base) || !same(boots) {
            self.inexact += 1;
        }
        let (a, b) = (base.raw[base.raw.len() / 2], boots.raw[boots.raw.len() / 2]);
        let judgement = &mut judged.judgement;
        judgement.ratio = (a > 0.0).then(|| b / a);
        let known = LogRatio::exact(a, b);
        judgement.verdict = known.verdict(judgement.better, judgement.margin, |_| 0);
        let worse = matches!(judgement.verdict, Verdict::BWorse);
        judged.worse_p = Some(if worse { 0.0 } else { 1.0 });
    }

    /// The paired analysis: one number a variant and block.
    fn paired(
        &mut self,
        judged: &mut VariantComparison,
        base: &Boots,
        boots: &Boots,
    ) -> Option<Difference> {
        let blocks = PairedBlocks::from_boots(in_blocks(base, boots));
        let mut sorted = blocks.log_ratios.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let comparison = stats::Comparison {
            blocks,
            better: judged.judgement.better,
            margin: self.ask.margin,
            aa: false,
            host: Vec::new(),
        };
        let planned = sorted.len().max(1) as u32;
        let engine = FixedBlocks::new(planned, self.ask.alpha).expect("alpha was checked");
        judged.judgement = engine.judge(&comparison);
        if sorted.len() < FEW_BOOTS {
            self.few_boots += 1;
        }
        if judged.judgement.warnings.contains(&stats::Warning::OutlierDriven) {
            self.outlier_driven += 1;
        }
        let moments = Moments::of(&sorted).filter(|moments| moments.n > 1)?;
        Some(Difference {
            mean: moments.mean,
            error: moments.share().sqrt(),
            freedom: (moments.n - 1) as f64,
        })
    }

    /// Without blocks: Welch's t on the logarithms; ranks beside it.
    fn unblocked(
        &mut self,
        judged: &mut VariantComparison,
        base: &Boots,
        boots: &Boots,
    ) -> Option<Difference> {
        let (alpha, margin) = (self.ask.alpha, self.ask.margin);
        let (a, b) = (Moments::of(&base.logs)?, Moments::of(&boots.logs)?);
        if a.n.min(b.n) < FEW_BOOTS {
            self.few_boots += 1;
        }
        let judgement = &mut judged.judgement;
        let rounded = |mean: f64| if mean.abs() < ROUNDING { 0.0 } else { mean };
        let mean = rounded(b.mean - a.mean);
        judgement.ratio = Some(mean.exp());
        if a.n < 2 || b.n < 2 {
            let reason = "A side has a single boot, an interval needs 2".to_owned();
            let why = Invalidity::Unusable { reason };
            judgement.verdict = Verdict::Invalid { why };
            return None;
        }
        judged.rank_p = self.memo.mann_whitney(&base.logs, &boots.logs).ok();
        let (share_a, share_b) = (a.share(), b.share());
        let variance = share_a + share_b;
        if variance.sqrt() < ROUNDING {
            // No noise to judge by: equal, or not.
            judgement.warnings.push(stats::Warning::NoVariance);
        }
        let freedom = variance * variance
            / (share_a.powi(2) / (a.n - 1) as f64 + share_b.powi(2) / (b.n - 1) as f64);
        let freedom = if freedom.is_finite() { freedom } else { (a.n + b.n - 2) as f64 };
        let difference = Difference { mean, error: variance.sqrt(), freedom };
        let half = self.memo.critical(freedom, 1.0 - alpha) * difference.error;
        let narrower = self.memo.critical(freedom, 1.0 - 2.0 * alpha) * difference.error;
        let interval = Interval { lo: mean - half, hi: mean + half, level: 1.0 - alpha };
        judgement.interval = Some(interval.map(f64::exp));
        // Of the two sides the smaller one, whichever it is.
        let away = Difference { mean: mean.abs(), ..difference };
        judgement.p = Some(if mean == 0.0 { 1.0 } else { 2.0 * away.p_above(0.0) });
        let known = LogRatio { mean, half_width: half, half_width_of_equivalence: narrower };
        judgement.verdict = known.verdict(judgement.better, margin, |band| {
            let needed = (half / (band - mean.abs()).max(mean.abs())).powi(2);
            let more = a.n.max(b.n) as f64 * (needed - 1.0);
            // The cast saturates, which is what a hopeless case needs.
            more.ceil().max(1.0) as u32
        });
        let decided = judgement.verdict.is_difference();
        if judged.rank_p.is_some_and(|p| (p <= alpha) != decided) && a.n.min(b.n) >= FEW_BOOTS {
            judgement.warnings.push(stats::Warning::OutlierDriven);
            self.outlier_driven += 1;
        }
        Some(difference)
    }

    pub(super) fn warnings(&self) -> Vec<DataWarning> {
        let mut warnings = Vec::new();
        let mut warn = |code, count: usize, text: &dyn Fn(&str) -> String| {
            if count > 0 {
                let these = format!("{count} comparison{}", if count == 1 { "" } else { "s" });
                warnings.push(DataWarning { code, text: text(&these) });
            }
        };
        warn("few-boots", self.few_boots, &|these| {
            format!(
                "Few boots: {these} rest{} on fewer than {FEW_BOOTS} a side; such intervals lean on the normal distribution and are wide.",
                if these.ends_with('s') { "" } else { "s" }
            )
        });
        warn("outlier-driven", self.outlier_driven, &|these| {
            format!(
                "In {these} the ranks disagree with the t interval about whether there is a difference: single values carry the verdict."
            )
        });
        warn("inexact", self.inexact, &|these| {
            format!(
                "In {these} a metric that is declared exact varies; the middle value is compared."
            )
        });
        for (reason, count) in &self.unusable {
            warn("unusable", *count, &|these| format!("{these}: {reason}."));
        }
        warnings
    }
}

/// Sums over the rows of a metric, by variant.
#[derive(Default)]
struct Suites {
    sums: BTreeMap<(u32, u32), SuiteSum>,
}

#[derive(Default)]
struct SuiteSum {
    rows: u32,
    mean: f64,
    variance: f64,
    /// Sum of variance^2 / freedom, for Welch and Satterthwaite's formula.
    spread: f64,
    /// Within-block differences summed over rows, and how many rows have them.
    blocks: BTreeMap<(u32, u32), (f64, u32)>,
}

impl Suites {
    fn add(&mut self, metric: u32, variant: u32, row: Difference, base: &Boots, boots: &Boots) {
        let sum = self.sums.entry((metric, variant)).or_default();
        sum.rows += 1;
        sum.mean += row.mean;
        sum.variance += row.error.powi(2);
        if row.freedom > 0.0 {
            sum.spread += row.error.powi(4) / row.freedom;
        }
        let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
        for (block, a) in &base.by_block {
            if let Some(b) = boots.by_block.get(block) {
                let place = sum.blocks.entry(*block).or_default();
                place.0 += mean(b) - mean(a);
                place.1 += 1;
            }
        }
    }

    fn finish(self, memo: &mut Memo, level: f64) -> Vec<SuiteSummary> {
        let suite = |((metric, variant), sum): ((u32, u32), SuiteSum)| {
            let rows = f64::from(sum.rows);
            let mean = sum.mean / rows;
            // Rows of one block share its luck, so blocks are what is counted.
            let whole: Vec<f64> = sum
                .blocks
                .values()
                .filter(|(_, count)| *count == sum.rows)
                .map(|(total, _)| total / rows)
                .collect();
            let (centre, error, freedom) = match Moments::of(&whole) {
                Some(blocks) if blocks.n > 1 => {
                    (blocks.mean, blocks.share().sqrt(), (blocks.n - 1) as f64)
                }
                _ if sum.blocks.is_empty() => {
                    let freedom = sum.variance.powi(2) / sum.spread;
                    (mean, sum.variance.sqrt() / rows, freedom)
                }
                _ => (mean, f64::NAN, f64::NAN),
            };
            let interval = (error.is_finite() && freedom.is_finite()).then(|| {
                let half = memo.critical(freedom, level) * error;
                Interval { lo: centre - half, hi: centre + half, level }.map(f64::exp)
            });
            SuiteSummary { metric, variant, rows: sum.rows, ratio: centre.exp(), interval }
        };
        self.sums.into_iter().filter(|(_, sum)| sum.rows > 1).map(suite).collect()
    }
}

/// A reason without the place of the value, which differs from cell to cell.
fn reason(error: stats::UnusableSamples) -> String {
    match error {
        stats::UnusableSamples::Empty => "No samples".to_owned(),
        stats::UnusableSamples::NotFinite { value, .. } => {
            format!("A value is {value}: not a finite number")
        }
        stats::UnusableSamples::NotPositive { value: 0.0, .. } => {
            "A value is 0: it has no ratio".to_owned()
        }
        stats::UnusableSamples::NotPositive { .. } => {
            "A value is negative or next to nothing: it has no ratio".to_owned()
        }
    }
}
