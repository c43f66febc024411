//! What others published, put beside what the blocks say of it.

use std::path::Path;

use record::journal::TrialResult;
use record::{BetterDirection, Metric, MetricKind, ProfileSide, Unit};
use report::{PublishedClaim, PublishedKind, ShownInterval};
use stats::{Comparison, Engine, PairedBlocks};

use super::counts::{counted_of, of_trial};
use super::profile::{FunctionShare, function_share};
use super::why::{counted_pairs, operations_of};
use crate::plan::{PlanVariant, StudyPlan};
use crate::results::{JournalTrial, MetricGroup};
use crate::study::{
    DEFAULT_MARGIN_PERCENT, ProfiledFunction, PublishedFigure, RunsOn, StudyClaim, StudyClaimKind,
};

/// The values that were published of a group.
pub(super) fn values(
    plan: &StudyPlan,
    load: &str,
    workload: &str,
    metric: &str,
) -> Vec<report::PublishedValue> {
    plan.published
        .iter()
        .filter(|row| row.load == load && row.workload == workload && row.metric == metric)
        .map(value)
        .collect()
}

fn value(row: &PublishedFigure) -> report::PublishedValue {
    report::PublishedValue {
        variant: row.variant.clone(),
        value: row.value,
        range: row.range.map(span),
        runs: row.runs.clone(),
        ratio: row.ratio,
        ratio_range: row.ratio_range.map(span),
        sd: row.sd,
        source: row.source.clone(),
        agreement: None,
    }
}

fn span([lo, hi]: [f64; 2]) -> ShownInterval {
    ShownInterval { lo, hi }
}

/// What was published of two variants in a group, judged by its blocks; ratios
/// of counters and shares of functions, whose profiles lie in `dir`, stand at the workload's
/// primary metric. Nothing is judged of a workload that is not `steady`.
pub(super) fn claims(
    dir: &Path,
    plan: &StudyPlan,
    engine: &dyn Engine,
    group: &MetricGroup<'_>,
    trials: &[JournalTrial<'_>],
    steady: bool,
) -> Vec<PublishedClaim> {
    let (load, workload) = (&group.load.name, &group.workload.label);
    let place = |name: &str| plan.variants.iter().position(|variant| variant.name == name);
    let here =
        plan.published_claims.iter().filter(|row| (&row.load, &row.workload) == (load, workload));
    let mut claims = Vec::new();
    for row in here {
        let (mut measured_shares_percent, mut missing) = (None, None);
        let (says, comparison) = match &row.claimed {
            StudyClaimKind::Order { metric, relation, .. } if *metric == group.metric.name => {
                let than = row.than.as_deref().and_then(place);
                let (Some(variant), Some(than)) = (place(&row.variant), than) else { continue };
                let says = PublishedKind::Order { relation: *relation };
                (says, Some(group.comparison(plan, than, variant)))
            }
            StudyClaimKind::CounterRatio { counter, ratio } if group.is_primary() => {
                let of = counted_of(counter, counts_operations(group, trials));
                let comparison = counted(group, trials, row, counter, of);
                let published = span(*ratio);
                (
                    PublishedKind::CounterRatio { counter: counter.clone(), of, published },
                    comparison,
                )
            }
            StudyClaimKind::FunctionShare { of, ratio, shares_percent } if group.is_primary() => {
                let comparison = match shares(dir, plan, group, trials, row, of) {
                    Ok((comparison, percent)) => {
                        measured_shares_percent = percent;
                        Some(comparison)
                    }
                    Err(why) => {
                        missing = Some(why);
                        None
                    }
                };
                let says = PublishedKind::FunctionShare {
                    function: of.function.clone(),
                    within: of.within.clone(),
                    side: of.side,
                    published: span(*ratio),
                    shares_percent: *shares_percent,
                };
                (says, comparison)
            }
            StudyClaimKind::Order { .. }
            | StudyClaimKind::CounterRatio { .. }
            | StudyClaimKind::FunctionShare { .. } => continue,
        };
        let claim = PublishedClaim {
            measured_shares_percent,
            missing,
            ..PublishedClaim::unmeasured(says, &row.variant, row.than.as_deref(), &row.source)
        };
        claims.push(match comparison.filter(|_| steady) {
            Some(comparison) => {
                let judged = engine.judge(&comparison);
                claim.judged(&comparison, &judged)
            }
            None => claim,
        });
    }
    claims
}

/// Whether all trials of a group that count tell their operations.
fn counts_operations(group: &MetricGroup<'_>, trials: &[JournalTrial<'_>]) -> bool {
    let mut here = trials.iter().filter(|trial| {
        let key = &trial.result.trial;
        trial.counted
            && trial.result.outcome.is_completed()
            && (&key.load, &key.workload) == (&group.load.name, &group.workload.label)
    });
    here.all(|trial| operations_of(group, trial.result).is_some())
}

/// What stands for a count of nothing, which has no logarithm: half an event a run.
const HALF_AN_EVENT: f64 = 0.5;

/// The comparison of a counter of two variants; none where it was not counted,
/// or the one compared with had nothing to count in a block.
fn counted(
    group: &MetricGroup<'_>,
    trials: &[JournalTrial<'_>],
    row: &StudyClaim,
    counter: &str,
    of: report::CountScope,
) -> Option<Comparison> {
    let pairs = counted_pairs(group, trials, row.than.as_deref()?, &row.variant);
    let value = |result, of| of_trial(group, result, counter, of);
    let log_ratio = |(than, variant): &(_, _)| {
        let than_value = value(*than, of).filter(|value| *value > 0.0)?;
        let ratio = match value(*variant, of)? {
            found if found > 0.0 => found / than_value,
            _ => HALF_AN_EVENT / value(*than, report::CountScope::Run)?,
        };
        Some(ratio.ln())
    };
    let log_ratios: Vec<f64> = pairs.iter().map(log_ratio).collect::<Option<_>>()?;
    Some(comparison(group, log_ratios))
}

/// The comparison of what is no metric, by the primary metric's margin.
fn comparison(group: &MetricGroup<'_>, log_ratios: Vec<f64>) -> Comparison {
    let margin = group.workload.margin_percent.get(&group.metric.name);
    Comparison {
        blocks: PairedBlocks { log_ratios },
        better: BetterDirection::Lower,
        margin: margin.copied().unwrap_or(DEFAULT_MARGIN_PERCENT) / 100.0,
        aa: false,
        host: Vec::new(),
    }
}

/// The comparison of a function's shares of two variants, and the mean shares in percent, the
/// row's variant first. Of one variant alone the share is compared with the whole.
///
/// # Errors
/// Why there is none: a block has not both, or no sample of it met the function.
fn shares(
    dir: &Path,
    plan: &StudyPlan,
    group: &MetricGroup<'_>,
    trials: &[JournalTrial<'_>],
    row: &StudyClaim,
    of: &ProfiledFunction,
) -> Result<(Comparison, Option<[f64; 2]>), String> {
    let side = |name: &str| {
        let on_host = |variant: &PlanVariant| variant.name == *name && variant.on == RunsOn::Host;
        of.side.unwrap_or(match plan.variants.iter().any(on_host) {
            true => ProfileSide::Host,
            false => ProfileSide::Guest,
        })
    };
    let share = |trial: &TrialResult| function_share(dir, trial, side(&trial.trial.variant), of);
    let mut found = Vec::new();
    for (than, variant) in
        counted_pairs(group, trials, row.than.as_deref().unwrap_or(&row.variant), &row.variant)
    {
        let (share_here, event) = share(variant)?;
        let mut block = vec![share_here];
        if row.than.is_some() {
            let (share_there, other) = share(than)?;
            if event != other {
                return Err(format!("the profiles are of {event} and {other}"));
            }
            block.push(share_there);
        }
        if block.iter().all(|of| of.found == 0.0) {
            return Err(format!("no sample of a block met {}", of.function));
        }
        found.push(block);
    }
    if found.is_empty() {
        return Err(match row.than {
            Some(_) => "no block has both".to_owned(),
            None => format!("no trial of {} counts", row.variant),
        });
    }
    let log_ratio = |block: &Vec<FunctionShare>| {
        let whole = block.get(1).map_or(1.0, |than| than.at_least);
        (block[0].at_least / whole).ln()
    };
    let mean = |at: usize| found.iter().map(|block| block[at].found).sum::<f64>();
    let percent = |at| 100.0 * mean(at) / found.len() as f64;
    let both = row.than.as_ref().map(|_| [0, 1].map(percent));
    Ok((comparison(group, found.iter().map(log_ratio).collect()), both))
}

/// Groups that hold nothing but what others published: workloads that the
/// study names and does not run.
pub(super) fn later_groups(plan: &StudyPlan) -> Vec<report::ResultGroup> {
    let mut groups: Vec<report::ResultGroup> = Vec::new();
    for row in &plan.published {
        let Some(better) = row.better else { continue };
        let unit = Unit(row.unit.clone());
        let metric = Metric { name: row.metric.clone(), unit, better, kind: MetricKind::Time };
        let group = later_group(&mut groups, &row.load, &row.workload, metric);
        group.published.push(value(row));
    }
    for row in &plan.published_claims {
        let StudyClaimKind::Order { metric, relation, unmeasured: Some((unit, better)) } =
            &row.claimed
        else {
            continue;
        };
        let metric = Metric {
            name: metric.clone(),
            unit: Unit(unit.clone()),
            better: *better,
            kind: MetricKind::Time,
        };
        let says = PublishedKind::Order { relation: *relation };
        let than = row.than.as_deref();
        let claim = PublishedClaim::unmeasured(says, &row.variant, than, &row.source);
        later_group(&mut groups, &row.load, &row.workload, metric).claims.push(claim);
    }
    groups
}

/// The group of `metric`, made if there is none yet.
fn later_group<'a>(
    groups: &'a mut Vec<report::ResultGroup>,
    load: &str,
    workload: &str,
    metric: Metric,
) -> &'a mut report::ResultGroup {
    let known = groups.iter().position(|group| {
        group.load == load && group.workload == workload && group.metric.name == metric.name
    });
    let place = known.unwrap_or_else(|| {
        groups.push(report::ResultGroup {
            load: load.to_owned(),
            workload: workload.to_owned(),
            metric,
            primary: false,
            margin: None,
            cells: Vec::new(),
            movers: Vec::new(),
            counts: Vec::new(),
            steadiness: Vec::new(),
            published: Vec::new(),
            claims: Vec::new(),
        });
        groups.len() - 1
    });
    &mut groups[place]
}

#[cfg(test)]
mod tests {
    use guest::Cancel;
    use stats::PublishedAgreement;

    use crate::execute::execute;
    use crate::store::{self, Store};
    use crate::testing::{FakeLab, STUDY, host, plan_of};

    #[test]
    fn what_was_published_is_judged_by_the_blocks() {
        let published = |rest: &str| {
            format!("[[published]]\nworkload = 'hackbench'\nsource = 'a talk'\n{rest}\n")
        };
        let of_time = |rest: &str| published(&format!("metric = 'time'\n{rest}"));
        let share = |rest: &str| published(&format!("function = 'ipi'\n{rest}"));
        let exits = |ratio: f64| {
            published(&format!("counter = 'kvm.exits'\nvariant = 'c'\nratio = {ratio}"))
        };
        let all = [
            STUDY
                .replace("blocks = 3", "blocks = 6\nuntil = 'budget'")
                .replace("invocations = 2", "invocations = 2\nprofile = true"),
            of_time("load = 'busy'\norder = 'b > a'"),
            of_time("load = 'busy'\norder = 'a >= c'"),
            exits(0.8),
            exits(1.25),
            published("counter = 'kvm.halt_exits'\nvariant = 'b'\nratio = 2"),
            share("variant = 'b'\nshares_percent = [1.78, 7.13]"),
            share("variant = 'a'\nthan = 'c'\nratio = 2"),
            share("variant = 'b'\nthan = 'a'\nload = 'busy'\nratio_range = [2, 3]"),
            published("function = 'ip'\nvariant = 'b'\nratio = 2"),
            share("variant = 'a'\nshare_percent = 20"),
            share("variant = 'a'\nshare_percent_range = [50, 100]"),
            published("function = 'wake'\nwithin = 'ipi'\nvariant = 'b'\nshare_percent = 82"),
            share("within = 'wake'\nvariant = 'b'\nshare_percent = 1"),
            share("within = 'nobody'\nvariant = 'b'\nshare_percent = 1"),
            share("side = 'host'\nvariant = 'b'\nshare_percent = 1"),
            of_time("unit = 's'\nvariant = 'a'\nruns = [99, 100, 101]"),
            of_time("unit = 's'\nvariant = 'b'\nruns = [49, 50, 51]"),
            of_time("unit = 's'\nvariant = 'c'\nratio_range = [0.1, 0.3]"),
        ];
        let plan = plan_of(&all.concat());
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(dir.path(), &plan, &host()).unwrap();
        let mut lab = FakeLab::new();
        (lab.exits, lab.profiles) = (true, true);
        execute(&plan, &[], &mut store, &mut lab, &Cancel::new(), &mut |_| {}).unwrap();
        drop(store);
        let mut report = crate::summary::report(dir.path(), &store::read(dir.path()).unwrap());
        report.scale = Some("small".to_owned());
        let group = |load: &str| report.groups.iter().find(|group| group.load == load).unwrap();
        let (idle, busy) = (group("idle"), group("busy"));

        let judged = |group: &report::ResultGroup| -> Vec<(String, Option<PublishedAgreement>)> {
            let claims = group.claims.iter();
            claims.map(|claim| (claim.variant.clone(), claim.agreement)).collect()
        };
        let (agrees, contradicts) =
            (Some(PublishedAgreement::Agrees), Some(PublishedAgreement::Contradicts));
        let named = |all: &[(&str, Option<PublishedAgreement>)]| -> Vec<_> {
            all.iter().map(|(variant, judged)| ((*variant).to_owned(), *judged)).collect()
        };
        let expected = named(&[("b", agrees), ("a", contradicts), ("b", contradicts)]);
        assert_eq!(judged(busy), expected);
        let counters = [("c", agrees), ("c", contradicts), ("b", None)];
        let ratios = [("b", agrees), ("a", contradicts), ("b", None)];
        let shares = [("a", agrees), ("a", contradicts), ("b", contradicts)];
        let missing = [("b", None); 3];
        let expected = named(&[&counters[..], &ratios, &shares, &missing].concat());
        assert_eq!(judged(idle), expected, "halts were not counted");
        let shares: Vec<_> = idle.claims.iter().map(|it| it.measured_shares_percent).collect();
        assert_eq!(shares[2..6], [None, Some([5.0, 20.0]), Some([20.0, 0.0]), None]);
        let of_nothing = idle.claims[4].measured.unwrap().centre;
        assert!((of_nothing - 40.0).abs() < 1e-6, "half a sample: {of_nothing}");
        let ratio = idle.claims[0].measured.unwrap();
        assert!((ratio.centre - 0.8).abs() < 0.01 && ratio.interval.is_some(), "{ratio:?}");

        let values: Vec<_> = idle.published.iter().map(|row| row.agreement).collect();
        assert_eq!(values, [None, agrees, contradicts]);
        assert_eq!(idle.published[1].centre(), Some(50.0));
        assert_eq!(idle.published[1].sd(), Some(1.0));

        let text = report::terminal(&report, 140, report::TerminalStyle { colour: false });
        for said in [
            "in emulated time and the small size alone",
            "×0.10 to ×0.30",
            "b better than a",
            "kvm.exits a run: c by a ×0.80",
            "time in ipi: b by a ×0.25 (1.8 %, 7.1 %)",
            "(5 %, 20 %)",
            "none: no sample of a block met ip",
            "time in ipi: a 20 %",
            "20 % [20 %, 20 %]",
            "time in ipi: a 50 % to 100 %",
            "time in wake of that in ipi: b 82 %",
            "100 % [100 %, 100 %]",
            "time in ipi of that in wake: b 1 %",
            "none: no sample of a block met ipi",
            "none: no sample of b met nobody",
            "time in ipi, by the host's perf: b 1 %",
            "none: no profile of b: the trial has no profile",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
