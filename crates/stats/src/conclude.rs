//! From the log ratios of a comparison to its judgement, whatever rule says
//! how large |t| must be.

use crate::anytime::e_value;
use crate::comparison::ROUNDING;
use crate::disturbance::{ClaimKind, HostVerdict, differences, fatal};
use crate::judgement::{GREATEST_LOG, ratio_of};
use crate::signed_rank::hodges_lehmann;
use crate::student::{moments, student_p};
use crate::{
    Comparison, DisturbanceWeight, HodgesLehmann, HostDifference, Interval, Invalidity, Judgement,
    LogRatio, Verdict, Warning,
};

/// Fewer blocks lean on the normal distribution.
const FEW_BLOCKS: usize = 5;
/// No estimate of the blocks that are needed looks further.
const FURTHEST_BLOCK: u32 = 100_000;

/// How large |t| must be.
pub(crate) trait CriticalValue {
    /// The rate of false claims.
    fn alpha(&self) -> f64;

    /// The critical value of |t| after `n` blocks, two-sided at `alpha`;
    /// infinite where nothing may be claimed.
    fn critical(&self, n: u32, alpha: f64) -> f64;

    /// The smallest rate of false claims at which `t` after `n` blocks is a
    /// claim.
    fn p(&self, t: f64, n: u32) -> f64;

    /// The last block that the rule allows for.
    fn last(&self) -> Option<u32> {
        None
    }
}

/// What the log ratios come to, or why they say nothing.
fn evidence(comparison: &Comparison) -> Result<TStatistic, Invalidity> {
    let Comparison { blocks, margin, .. } = comparison;
    if !(*margin > 0.0 && margin.is_finite()) {
        return Err(Invalidity::Margin { margin: *margin });
    }
    let log_ratios = &blocks.log_ratios;
    let usable = |ratio: &f64| ratio.abs() <= GREATEST_LOG;
    if let Some(block) = log_ratios.iter().position(|ratio| !usable(ratio)) {
        return Err(Invalidity::NoRatio { block: block as u32 });
    }
    match log_ratios.len() {
        few @ (0 | 1) => Err(Invalidity::TooFewBlocks { blocks: few as u32 }),
        n => {
            let (mean, sd) = moments(log_ratios);
            Ok(TStatistic { mean, sd, n: n as u32 })
        }
    }
}

/// The verdict alone: what [`conclude`] says, without the second opinions.
pub(crate) fn verdict_of(rule: &impl CriticalValue, comparison: &Comparison) -> Verdict {
    match evidence(comparison) {
        Ok(evidence) => verdict(rule, &evidence, comparison).0,
        Err(why) => Verdict::Invalid { why },
    }
}

/// What may be said about `comparison` by `rule`.
pub(crate) fn conclude(rule: &impl CriticalValue, comparison: &Comparison) -> Judgement {
    let Comparison { blocks, better, margin, aa, .. } = comparison;
    let log_ratios = &blocks.log_ratios;
    let evidence = match evidence(comparison) {
        Ok(evidence) => evidence,
        Err(why) => {
            let only = log_ratios.first().filter(|log| log_ratios.len() == 1 && log.is_finite());
            return Judgement {
                ratio: only.map(|log| ratio_of(*log)),
                blocks_used: log_ratios.len() as u32,
                ..Judgement::invalid(why, *better, *margin, *aa)
            };
        }
    };
    let TStatistic { mean, sd, n } = evidence;
    let critical = rule.critical(n, rule.alpha());
    let interval = evidence.interval(critical, 1.0 - rule.alpha());
    let decided = !interval.contains(0.0);
    // Ranks that are as strict as t is here, or there is nothing to compare.
    let robust = hodges_lehmann(log_ratios, 1.0 - student_p(critical, n));
    let mut warnings = Vec::new();
    if let Some((_, Some(ranks))) = robust
        && ranks.contains(0.0) == decided
    {
        warnings.push(Warning::OutlierDriven);
    }
    if sd < ROUNDING {
        warnings.push(Warning::NoVariance);
    }
    if log_ratios.len() < FEW_BLOCKS {
        warnings.push(Warning::FewBlocks);
    }
    if *aa && decided {
        warnings.push(Warning::AaAlarm);
    }
    if rule.last().is_some_and(|last| n > last) {
        warnings.push(Warning::BeyondPlan);
    }
    let (verdict, host) = verdict(rule, &evidence, comparison);
    if host.iter().any(|found| found.weight >= DisturbanceWeight::Unclear) {
        warnings.push(Warning::HostDiffered);
    }
    Judgement {
        verdict,
        ratio: Some(ratio_of(mean)),
        interval: Some(interval.map(ratio_of)),
        p: Some(evidence.p(rule)),
        e_value: Some(e_value(evidence.t(), n)),
        blocks_used: n,
        better: *better,
        margin: *margin,
        hodges_lehmann: robust.map(|(centre, interval)| HodgesLehmann {
            ratio: ratio_of(centre),
            interval: interval.map(|interval| interval.map(ratio_of)),
        }),
        aa: *aa,
        warnings,
        host,
    }
}

/// The terms of a t statistic.
#[derive(Clone, Copy)]
struct TStatistic {
    mean: f64,
    sd: f64,
    n: u32,
}

impl TStatistic {
    fn standard_error(&self) -> f64 {
        self.sd / f64::from(self.n).sqrt()
    }

    /// Infinite where equal differences leave no noise to judge by.
    fn t(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.mean / self.standard_error() }
    }

    fn p(&self, rule: &impl CriticalValue) -> f64 {
        let t = self.t();
        if t.is_finite() {
            rule.p(t, self.n)
        } else if rule.critical(self.n, rule.alpha()).is_finite() {
            0.0
        } else {
            1.0
        }
    }

    fn half_width(&self, critical: f64) -> f64 {
        if critical.is_finite() { critical * self.standard_error() } else { GREATEST_LOG }
    }

    fn interval(&self, critical: f64, level: f64) -> Interval {
        let half_width = self.half_width(critical);
        Interval { lo: self.mean - half_width, hi: self.mean + half_width, level }
    }

    /// Blocks at which mean and deviation as they are now would decide.
    fn blocks_needed(&self, rule: &impl CriticalValue, band: f64) -> u32 {
        let decides = |n: u32| {
            let then = Self { n, ..*self };
            let alpha = rule.alpha();
            let (apart, inside) = (self.mean.abs(), band - self.mean.abs());
            then.half_width(rule.critical(n, alpha)) < apart
                || then.half_width(rule.critical(n, 2.0 * alpha)) < inside
        };
        let last = rule.last().filter(|last| *last > self.n).unwrap_or(FURTHEST_BLOCK);
        let mut n = self.n + 1;
        while n < last && !decides(n) {
            n += 1 + n / 32;
        }
        if n < last || decides(last) {
            return n.min(last);
        }
        // Not within the plan: widths fall with the root of the blocks.
        let half_width = Self { n: last, ..*self }.half_width(rule.critical(last, rule.alpha()));
        let target = self.mean.abs().max(band - self.mean.abs());
        // The cast saturates, which is what a hopeless comparison needs.
        (f64::from(last) * (half_width / target).powi(2)).ceil() as u32
    }
}

/// The verdict, and how the host differed.
fn verdict(
    rule: &impl CriticalValue,
    evidence: &TStatistic,
    comparison: &Comparison,
) -> (Verdict, Vec<HostDifference>) {
    let verdict = verdict_on_an_even_host(rule, evidence, comparison);
    let claimed = HostVerdict {
        mean: evidence.mean,
        half_width: evidence.half_width(rule.critical(evidence.n, rule.alpha())),
        better: comparison.better,
        claim: match verdict {
            Verdict::NotDecided { .. } | Verdict::Invalid { .. } => ClaimKind::None,
            Verdict::Equivalent => ClaimKind::NoDifference,
            _ => ClaimKind::Difference,
        },
    };
    let host = differences(&comparison.host, claimed);
    match fatal(&host, claimed) {
        Some(host_differed) => {
            let why = Invalidity::HostDiffered { host: host_differed };
            (Verdict::Invalid { why }, host)
        }
        None => (verdict, host),
    }
}

fn verdict_on_an_even_host(
    rule: &impl CriticalValue,
    evidence: &TStatistic,
    comparison: &Comparison,
) -> Verdict {
    let alpha = rule.alpha();
    let half_width = |alpha: f64| evidence.half_width(rule.critical(evidence.n, alpha));
    let known = LogRatio {
        mean: evidence.mean,
        half_width: half_width(alpha),
        half_width_of_equivalence: half_width(2.0 * alpha),
    };
    known.verdict(comparison.better, comparison.margin, |band| {
        evidence.blocks_needed(rule, band).saturating_sub(evidence.n)
    })
}
