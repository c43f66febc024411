//! The differences taken apart by what events cost on the host.

use record::journal::{RunResult, TrialResult};
use record::{CounterSet, MetricKind};
use report::{
    AccountPart, Accounting, CountScope, PricedEvent, ReasonSource, UnpricedEvents, VariantAccount,
};
use stats::{EstimatedAmount, PricedEvents};
use topology::Host;

use super::{span, why};
use crate::calibration::Calibration;
use crate::plan::StudyPlan;
use crate::results::{self, ALPHA, JournalTrial, MetricGroup};
use crate::study::RunsOn;
use crate::thin;

/// A metric is the time of a run if its samples are this part of it, or more.
const LEAST_OF_RUN: f64 = 0.5;
/// They may be so much more, as the run's time is taken from outside.
const MOST_OF_RUN: f64 = 1.05;

/// Fewer events of an operation than this are none.
const DUST: f64 = 1e-9;

/// The accounts of a study; none where nothing is compared that has a time.
pub(super) fn accounting(
    plan: &StudyPlan,
    host: &Host,
    prices: Option<&Calibration>,
    groups: &[MetricGroup<'_>],
    trials: &[JournalTrial<'_>],
) -> Option<Accounting> {
    if let Some(prices) = prices {
        let why = prices.unfit_for(plan, host);
        if !why.is_empty() {
            return Some(Accounting::Unfit { why });
        }
    }
    let mut accounts = Vec::new();
    let mut payable = false;
    // VMs that are measured together do their work side by side: what all of them were
    // charged is nobody's time.
    let of_one_vm =
        |group: &&MetricGroup<'_>| group.is_primary() && group.workload.of_several_vms.is_empty();
    for primary in groups.iter().filter(of_one_vm) {
        // Where it is neither a run's time nor a rate, as a thin guest's operation's, the
        // first of the workload's metrics that is.
        let beside = groups.iter().filter(|group| {
            !group.is_primary()
                && group.load.name == primary.load.name
                && group.workload.label == primary.workload.label
        });
        let found = std::iter::once(primary)
            .chain(beside)
            .map(|group| (group, differences(plan, group, trials)))
            .find(|(_, differences)| !differences.is_empty());
        let Some((group, all)) = found else { continue };
        for differences in &all {
            payable |= differences.has_exits();
            accounts.extend(prices.and_then(|prices| account(prices, group, differences)));
        }
    }
    match prices {
        Some(prices) => {
            let other_settings = prices.other_settings(plan, host);
            Some(Accounting::Used { accounts, other_settings })
        }
        // Where time is emulated a price list would not help.
        None => (payable && !plan.environment().is_emulated_time()).then_some(Accounting::Missing),
    }
}

/// What a variant's boots have more than the baseline's, block by block.
struct Differences<'a> {
    variant: &'a str,
    of: CountScope,
    /// Time and counters of a run or an operation: baseline's, variant's.
    pairs: Vec<[(f64, CounterSet); 2]>,
}

impl Differences<'_> {
    fn has_exits(&self) -> bool {
        self.pairs.iter().flatten().any(|(_, counters)| counters.get("kvm.exits").is_some())
    }

    /// Whether exits were counted by reason in all boots.
    fn has_reasons(&self) -> bool {
        let all = self.pairs.iter().flatten();
        all.map(|(_, counters)| counters).all(|one| one.counted("kvm.exits.hlt").is_some())
    }
}

fn differences<'a>(
    plan: &'a StudyPlan,
    group: &MetricGroup<'_>,
    trials: &[JournalTrial<'_>],
) -> Vec<Differences<'a>> {
    let Some(baseline) = results::baseline_index(plan) else { return Vec::new() };
    let baseline = &plan.variants[baseline];
    let compared = plan.variants.iter().filter(|variant| {
        variant.name != baseline.name
            && variant.aa_of.is_none()
            && [variant.on, baseline.on] == [RunsOn::Vm; 2]
    });
    compared
        .filter_map(|variant| {
            let pairs = why::counted_pairs(group, trials, &baseline.name, &variant.name);
            let is_thin = [baseline, variant].iter().all(|one| thin::is_thin(&one.spec));
            let of = |of: CountScope| -> Option<Vec<_>> {
                let each = |(a, b): &(&TrialResult, &TrialResult)| {
                    Some([of_boot(group, a, of, is_thin)?, of_boot(group, b, of, is_thin)?])
                };
                pairs.iter().map(each).collect()
            };
            let of_run = || Some((CountScope::Run, of(CountScope::Run)?));
            let (of, pairs) = of(CountScope::Operation)
                .map(|pairs| (CountScope::Operation, pairs))
                .or_else(of_run)?;
            (!pairs.is_empty()).then_some(Differences { variant: &variant.name, of, pairs })
        })
        .collect()
}

/// The time and the counters of a run of a boot, or of an operation in it; none
/// where the metric is neither.
fn of_boot(
    group: &MetricGroup<'_>,
    boot: &TrialResult,
    of: CountScope,
    is_thin: bool,
) -> Option<(f64, CounterSet)> {
    let metric = group.metric;
    let (seconds, share) = match of {
        CountScope::Operation => {
            let is_rate = metric.kind == MetricKind::Rate && metric.unit.0 == "1/s";
            let operations = why::operations_of(group, boot).filter(|_| is_rate)?;
            let wall_s: f64 = boot.runs.iter().map(|run| run.wall_s).sum();
            (wall_s / operations, operations)
        }
        CountScope::Run | CountScope::End => {
            let is_time = metric.kind == MetricKind::Time && metric.unit.0 == "s";
            let times: Option<Vec<f64>> =
                boot.runs.iter().map(|run| time_of_run(&metric.name, run, is_thin)).collect();
            let times = times.filter(|times| is_time && !times.is_empty())?;
            (times.iter().sum::<f64>() / times.len() as f64, times.len() as f64)
        }
    };
    let mut counters = CounterSet::default();
    for name in why::counter_names(boot) {
        if let Some(total) = why::total(boot, name) {
            counters.set(name, total / share);
        }
    }
    Some((seconds, counters))
}

/// The time that a run says it took, if that is what its samples are.
fn time_of_run(metric: &str, run: &RunResult, is_thin: bool) -> Option<f64> {
    let samples = run.samples.iter().filter(|sample| sample.metric == metric);
    let seconds: f64 = samples.map(|sample| sample.value).sum();
    if is_thin {
        // Its counters are those of its samples, whatever the talk around them takes.
        return (metric == thin::ELAPSED && seconds > 0.0).then_some(seconds);
    }
    (LEAST_OF_RUN..=MOST_OF_RUN).contains(&(seconds / run.wall_s)).then_some(seconds)
}

fn account(
    prices: &Calibration,
    group: &MetricGroup<'_>,
    differences: &Differences<'_>,
) -> Option<VariantAccount> {
    let Differences { variant, of, pairs } = differences;
    let seconds: Vec<f64> = pairs.iter().map(|[a, b]| b.0 - a.0).collect();
    let events: Vec<_> = pairs
        .iter()
        .map(|pair| pair.each_ref().map(|(_, counters)| prices.events(counters)))
        .collect();
    let kinds = events.first()?[0].keys().copied();
    // What one of the boots did not count is no kind.
    let more = |kind: PricedEvent| -> Option<Vec<f64>> {
        events.iter().map(|[a, b]| Some(b.get(&kind)? - a.get(&kind)?)).collect()
    };
    let (mut priced, mut unpriced) = (Vec::new(), Vec::new());
    for event in kinds {
        let Some(counts) = more(event).filter(|counts| moved(counts)) else { continue };
        let count = counts.iter().sum::<f64>() / counts.len() as f64;
        match prices.price_of(event) {
            Ok(price) => priced.push((event, price, counts, count)),
            Err(why) => {
                let operation = prices.operation_of(event).to_owned();
                unpriced.push(UnpricedEvents { event, count, operation, why });
            }
        }
    }
    let kinds: Vec<PricedEvents<'_>> =
        priced.iter().map(|(_, price, counts, _)| PricedEvents { price: *price, counts }).collect();
    let found = stats::account(&seconds, &kinds, 1.0 - ALPHA)?;
    let mut parts: Vec<AccountPart> = priced
        .iter()
        .zip(found.parts)
        .map(|((event, price, _, count), amount)| AccountPart {
            event: *event,
            count: *count,
            price: report::ShownEstimate {
                centre: price.centre,
                interval: price.interval.map(span),
            },
            amount: estimate(amount),
        })
        .collect();
    parts.sort_by(|a, b| b.amount.centre.abs().total_cmp(&a.amount.centre.abs()));
    Some(VariantAccount {
        load: group.load.name.clone(),
        workload: group.workload.label.clone(),
        metric: group.metric.name.clone(),
        variant: (*variant).to_owned(),
        of: *of,
        blocks: u32::try_from(pairs.len()).unwrap_or(u32::MAX),
        difference: estimate(found.difference),
        parts,
        unexplained: estimate(found.unexplained),
        unpriced,
        exits_by_reason_only: match (prices.exits_by_reason, differences.has_reasons()) {
            (true, false) => Some(ReasonSource::Prices),
            (false, true) => Some(ReasonSource::Trials),
            (true, true) | (false, false) => None,
        },
    })
}

/// Whether there is more than what sums of floats leave.
fn moved(counts: &[f64]) -> bool {
    counts.iter().any(|count| count.abs() > DUST)
}

fn estimate(amount: EstimatedAmount) -> report::ShownEstimate {
    report::ShownEstimate { centre: amount.centre, interval: amount.interval.map(span) }
}

#[cfg(test)]
mod tests {
    use report::PricedEvent::{self, *};
    use report::{HostFact, NoPrice, UnfitPrices};

    use super::*;
    use crate::calibration::tests::{counted, priced_events};
    use crate::testing::{STUDY, host, plan_of};
    use record::journal::TrialKey;
    use record::{Environment, Outcome, Sample};

    const BLOCKS: u32 = 5;

    fn trial(variant: &str, block: u32, samples: &[f64], counters: CounterSet) -> TrialResult {
        let key = TrialKey {
            id: String::new(),
            block,
            attempt: 0,
            load: "idle".to_owned(),
            workload: "hackbench".to_owned(),
            variant: variant.to_owned(),
            order: 0,
        };
        let mut trial = TrialResult::new(key, Outcome::Completed, 0.0);
        trial.runs = vec![RunResult {
            run: 0,
            outcome: Outcome::Completed,
            command: Vec::new(),
            wall_s: samples.iter().sum(),
            started_unix_s: 0.0,
            tool_version: None,
            samples: samples
                .iter()
                .map(|value| Sample { metric: "time".to_owned(), value: *value })
                .collect(),
            histograms: Vec::new(),
            counters,
            blobs: Default::default(),
        }];
        trial
    }

    /// The account of a study in which `a` has the events of `a`, `b` those of `b`,
    /// give or take a little in each block, and takes `besides` longer for something
    /// that nobody counts.
    fn account_of(
        a: &[(PricedEvent, f64)],
        b: &[(PricedEvent, f64)],
        besides: f64,
        change: impl Fn(&mut StudyPlan, &mut Host, &mut Calibration),
    ) -> Option<Accounting> {
        let mut plan = plan_of(&STUDY.replace("blocks = 3", "blocks = 5"));
        plan.variants.iter_mut().for_each(|variant| variant.environment = Environment::Kvm);
        let mut host = Host {
            kernel: Some("6.1.0".to_owned()),
            cpu_model: Some("A processor".to_owned()),
            ..host()
        };
        let mut prices = priced_events();
        change(&mut plan, &mut host, &mut prices);
        let mut trials = Vec::new();
        for block in 0..BLOCKS {
            for (name, events, besides) in [("a", a, 0.0), ("b", b, besides)] {
                let wobble = 1.0 + 0.01 * f64::from(block * 7 % 5) - 0.02;
                let events: Vec<_> =
                    events.iter().map(|(event, count)| (*event, count * wobble)).collect();
                let (counters, seconds) = counted(&events);
                let chance = f64::from((block * 31 + name.len() as u32) * 7919 % 101) * 1e-5;
                trials.push(trial(name, block, &[1.0 + seconds + besides + chance], counters));
            }
        }
        let trials: Vec<JournalTrial<'_>> =
            trials.iter().map(|result| JournalTrial { result, counted: true }).collect();
        let groups = results::groups(&plan, &trials);
        accounting(&plan, &host, Some(&prices), &groups, &trials)
    }

    fn is_same(_: &mut StudyPlan, _: &mut Host, _: &mut Calibration) {}

    #[track_caller]
    fn used(found: Option<Accounting>) -> VariantAccount {
        match found {
            Some(Accounting::Used { accounts, .. }) => accounts.into_iter().next().unwrap(),
            other => panic!("no account: {other:?}"),
        }
    }

    /// Eleven cases: the account sums to the difference within its interval.
    #[test]
    fn the_parts_sum_to_the_difference() {
        let cases: [&[(PricedEvent, f64)]; 11] = [
            &[(IpiToHalted, 30_000.0)],
            &[(IpiToRunning, 40_000.0)],
            &[(Wakeup, 20_000.0)],
            &[(Wakeup, 20_000.0), (Sleep, 15_000.0)],
            &[(DeviceMemory, 9_000.0)],
            &[(Port, 15_000.0)],
            &[(Hypercall, 90_000.0)],
            &[(PageFault, 65_536.0)],
            &[(OtherExit, 100_000.0)],
            &[(IpiToHalted, 10_000.0), (Wakeup, 5_000.0), (PageFault, 20_000.0)],
            &[(IpiToHalted, 8_000.0), (IpiToRunning, 9_000.0), (OtherExit, 20_000.0)],
        ];
        let few: Vec<_> = [(OtherExit, 500.0), (Port, 40.0)].into();
        for case in cases {
            let more: Vec<_> = few.iter().chain(case).copied().collect();
            let account = used(account_of(&few, &more, 0.0, is_same));
            let left = account.unexplained.interval.unwrap();
            assert!(left.lo <= 0.0 && 0.0 <= left.hi, "{case:?}: {account:?}");
            assert!((left.hi - left.lo) / 2.0 < 0.1 * account.difference.centre, "{account:?}");
            let sum: f64 = account.parts.iter().map(|part| part.amount.centre).sum();
            let total = sum + account.unexplained.centre;
            assert!((total - account.difference.centre).abs() < 1e-12, "{account:?}");
            for (event, count) in case {
                let part = account.parts.iter().find(|part| part.event == *event).unwrap();
                assert!((part.count / count - 1.0).abs() < 0.05, "{case:?}: {part:?}");
            }
        }
    }

    #[test]
    fn what_nobody_counts_is_unexplained() {
        let account = used(account_of(&[], &[(Port, 10_000.0)], 0.4, is_same));
        let left = account.unexplained.interval.unwrap();
        assert!(left.lo <= 0.4 && 0.4 <= left.hi && left.lo > 0.3, "{account:?}");
        // The faster variant's parts are less than nothing.
        let account = used(account_of(&[(Port, 10_000.0)], &[(Port, 10.0)], 0.0, is_same));
        assert!(account.parts[0].amount.centre < -0.05, "{account:?}");
        let without = |_: &mut StudyPlan, _: &mut Host, prices: &mut Calibration| {
            prices.prices.retain(|price| price.operation != "pio-qemu");
        };
        let account = used(account_of(&[], &[(Port, 10_000.0)], 0.0, without));
        assert_eq!(account.unpriced[0].event, Port);
        assert_eq!(account.unpriced[0].why, NoPrice::NotMeasured);
        assert!(account.unexplained.centre > 0.05, "{account:?}");
    }

    #[test]
    fn what_was_counted_otherwise_is_told() {
        let found = |in_prices: bool| {
            let change = |_: &mut StudyPlan, _: &mut Host, prices: &mut Calibration| {
                prices.exits_by_reason = in_prices;
            };
            used(account_of(&[], &[(Port, 10_000.0)], 0.0, change)).exits_by_reason_only
        };
        // The trials made up here have no reasons.
        assert_eq!(found(true), Some(ReasonSource::Prices));
        assert_eq!(found(false), None);
    }

    #[test]
    fn a_thin_guest_s_time_is_that_of_its_samples() {
        let mut run = trial("a", 0, &[2.0], CounterSet::default()).runs.remove(0);
        run.samples.push(Sample { metric: thin::ELAPSED.to_owned(), value: 0.25 });
        assert_eq!(time_of_run(thin::ELAPSED, &run, true), Some(0.25));
        assert_eq!(time_of_run("time", &run, true), None);
        // Another guest's events are those of the whole run.
        assert_eq!(time_of_run(thin::ELAPSED, &run, false), None);
        assert_eq!(time_of_run("time", &run, false), Some(2.0));
    }

    #[test]
    fn another_s_prices_and_emulated_time_are_refused() {
        let why = |change: &dyn Fn(&mut StudyPlan, &mut Host, &mut Calibration)| {
            let found = account_of(&[], &[(Port, 10_000.0)], 0.0, change);
            let Some(Accounting::Unfit { why }) = found else { panic!("taken: {found:?}") };
            why
        };
        let of_host = |what: HostFact, why: &[UnfitPrices]| matches!(why, [UnfitPrices::Other { what: found, .. }] if *found == what);
        let found = why(&|_, host, _| host.kernel = Some("6.6.0".to_owned()));
        assert!(of_host(HostFact::Kernel, &found), "{found:?}");
        let found = why(&|_, _, prices| prices.cpu_model = None);
        assert!(of_host(HostFact::Processor, &found), "{found:?}");
        let found = why(&|_, _, prices| prices.qemu = "QEMU emulator version 9.0.0".to_owned());
        assert!(of_host(HostFact::Qemu, &found), "{found:?}");
        for environment in [Environment::Tcg, Environment::NestedKvm] {
            let emulated = vec![UnfitPrices::EmulatedTime { environment }];
            assert_eq!(why(&|_, _, prices| prices.environment = environment), emulated);
            let study = |plan: &mut StudyPlan, _: &mut Host, _: &mut Calibration| {
                plan.variants.iter_mut().for_each(|variant| variant.environment = environment);
            };
            assert_eq!(why(&study), emulated);
        }
        assert_eq!(why(&|_, _, prices| prices.tsc_khz = 0), [UnfitPrices::NoClock]);
        let silent = |_: &mut StudyPlan, _: &mut Host, prices: &mut Calibration| {
            let boots = prices.prices.iter_mut().flat_map(|price| &mut price.boots);
            boots.for_each(|boot| boot.kvm.clear());
        };
        assert_eq!(why(&silent), [UnfitPrices::NotCounted]);
    }
}
