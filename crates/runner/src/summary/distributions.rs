//! Distributions of latency over all boots, with bands that know boots.

use report::{Curve, Quantile, ShownEstimate, ShownInterval, TABLE_SHARES, WorkloadLatencies};
use stats::NoQuantile;

use crate::pilot;
use crate::plan::{PlanVariant, StudyPlan};
use crate::results::{self, JournalTrial, NS_PER_S};

/// Seed of the bands: the same results give the same report.
const SEED: u64 = 1;

/// Points of a curve from one power of ten of the tail to the next.
const STEPS: u32 = 8;

/// The furthest power: 1 of 10^6 samples lies beyond.
const POWERS: u32 = 6;

/// What every workload counted under every load level, by histogram, from the
/// boots that count.
pub(super) fn distributions(
    plan: &StudyPlan,
    trials: &[JournalTrial<'_>],
) -> Vec<WorkloadLatencies> {
    let mut found = Vec::new();
    for load in &plan.loads {
        for workload in &plan.workloads {
            let here: Vec<&JournalTrial<'_>> = trials
                .iter()
                .filter(|trial| trial.counted && trial.result.outcome.is_completed())
                .filter(|trial| {
                    let key = &trial.result.trial;
                    key.load == load.name && key.workload == workload.label
                })
                .collect();
            let discarded = pilot::repeats(plan, trials, workload).discarded;
            for name in names(&here) {
                let curve = |variant: &PlanVariant| curve(variant, &here, name, discarded);
                found.push(WorkloadLatencies {
                    load: load.name.clone(),
                    workload: workload.label.clone(),
                    name: name.to_owned(),
                    unit: "s".into(),
                    curves: plan.variants.iter().filter_map(curve).collect(),
                });
            }
        }
    }
    found
}

/// The histograms' names, in the order in which they were first printed.
fn names<'t>(trials: &[&JournalTrial<'t>]) -> Vec<&'t str> {
    let mut names = Vec::new();
    for run in trials.iter().flat_map(|trial| &trial.result.runs) {
        for histogram in &run.histograms {
            if !names.contains(&histogram.name.as_str()) {
                names.push(histogram.name.as_str());
            }
        }
    }
    names
}

fn curve(
    variant: &PlanVariant,
    trials: &[&JournalTrial<'_>],
    name: &str,
    discarded: u32,
) -> Option<Curve> {
    let boots: Vec<stats::LatencyDistribution> = trials
        .iter()
        .filter(|trial| trial.result.trial.variant == variant.name)
        .filter_map(|trial| results::distribution(trial.result, name, discarded))
        .collect();
    let pooled = stats::LatencyDistribution::merged(&boots);
    if pooled.count() == 0 {
        return None;
    }
    let why_not = |share: f64| pooled.quantile(share).err().as_ref().map(NoQuantile::to_string);
    let quantiles = stats::bands(&boots, &shares(), SEED);
    Some(Curve {
        variant: variant.name.clone(),
        boots: u32::try_from(boots.len()).unwrap_or(u32::MAX),
        samples: pooled.count(),
        overflows: pooled.overflows(),
        quantiles: quantiles.iter().map(show).collect(),
        missing: TABLE_SHARES.into_iter().filter_map(why_not).collect(),
    })
}

/// Those of the tables, and between and beyond them what makes a line.
fn shares() -> Vec<f64> {
    let between =
        (1..=STEPS * POWERS).map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(STEPS)));
    let is_new = |share: &f64| TABLE_SHARES.iter().all(|known| (known - share).abs() > 1e-9);
    TABLE_SHARES.into_iter().chain(between.filter(is_new)).collect()
}

fn show(band: &stats::Band) -> Quantile {
    let interval = band.interval;
    let span =
        interval.map(|span| ShownInterval { lo: span.lo / NS_PER_S, hi: span.hi / NS_PER_S });
    Quantile {
        share: band.share,
        estimate: ShownEstimate { centre: band.centre / NS_PER_S, interval: span },
    }
}

#[cfg(test)]
mod tests {
    use guest::Cancel;
    use record::journal::JournalEvent;
    use record::{Histogram, Sample};

    use crate::execute::execute;
    use crate::results;
    use crate::state::JournalState;
    use crate::store::{self, Contents, Store};
    use crate::summary::report;
    use crate::testing::{FakeLab, host, plan_of};

    const STUDY: &str = r#"
        vmlab = 1
        title = "A made-up study"
        budget = { blocks = 4, until = "budget" }
        [[variant]]
        name = "a"
        [[variant]]
        name = "b"
        vm.vcpus = 2
        [[load]]
        name = "idle"
        [[workload]]
        run = "cyclictest"
        invocations = 2
    "#;

    /// Two runs a boot, each of which counted 1500 wake-ups: of the first 3 %
    /// are late, of the second none. `b` is twice as fast.
    fn contents(dir: &std::path::Path) -> Contents {
        let plan = plan_of(STUDY);
        let mut store = Store::create(dir, &plan, &host()).unwrap();
        let (mut lab, cancel) = (FakeLab::new(), Cancel::new());
        execute(&plan, &[], &mut store, &mut lab, &cancel, &mut |_| {}).unwrap();
        drop(store);
        let mut contents = store::read(dir).unwrap();
        for event in &mut contents.events {
            let JournalEvent::TrialEnded(result) = event else { continue };
            let us = if result.trial.variant == "a" { 2000 } else { 1000 };
            let ns = us * (100 + u64::from(result.trial.block));
            for run in &mut result.runs {
                let late = if run.run == 0 { 45 } else { 0 };
                let buckets = [(ns, 1500 - late), (10 * ns, late)];
                run.histograms = vec![Histogram::new("latency", buckets, 0)];
                run.samples = vec![
                    Sample { metric: "latency-p50".into(), value: 1.0 },
                    Sample { metric: "latency-max".into(), value: 2.0 },
                ];
            }
        }
        contents
    }

    #[test]
    fn a_boots_quantile_is_that_of_all_its_runs() {
        let dir = tempfile::tempdir().unwrap();
        let contents = contents(dir.path());
        let shown = report(dir.path(), &contents);
        let group =
            |metric: &str| shown.groups.iter().find(|group| group.metric.name == metric).unwrap();
        // One run alone can't bear it, and printed none.
        let cell = group("latency-p99").cell("a").unwrap();
        assert_eq!(cell.boots.len(), 4);
        for boot in &cell.boots {
            let expected = 2e-3 * f64::from(100 + boot.block) / 100.0;
            assert!((boot.value / expected - 1.0).abs() < 1e-9, "{boot:?}");
            assert!(boot.samples.is_empty());
        }
        let judged = group("latency-p99").cell("b").unwrap().judgement.as_ref().unwrap();
        assert!((judged.ratio.unwrap().centre - 0.5).abs() < 1e-9, "{judged:?}");
        // What was printed gives way to what was counted.
        assert!(group("latency-p50").cell("a").unwrap().boots[0].value < 3e-4);
        // A maximum is none of the histogram's business.
        assert!((group("latency-max").cell("a").unwrap().boots[0].value - 2.0).abs() < 1e-9);
        // Too few are too few for all boots alike, said once.
        assert!(group("latency-p99.9").cells.iter().all(|cell| cell.boots.is_empty()));
        let said: Vec<_> =
            shown.warnings.iter().filter(|warning| warning.contains("too few samples")).collect();
        let [said] = said[..] else { panic!("{said:?}") };
        assert!(said.contains(
            "latency-p99.9 of cyclictest (idle): too few samples for p99.9: 3000 of 20000"
        ));
        assert!(said.ends_with("8 boot(s) in all have no value."), "{said}");
    }

    #[test]
    fn all_boots_together_are_a_distribution_with_a_band() {
        let dir = tempfile::tempdir().unwrap();
        let contents = contents(dir.path());
        let shown = report(dir.path(), &contents);
        let [found] = &shown.distributions[..] else { panic!("{:?}", shown.distributions) };
        assert_eq!(
            (&*found.load, &*found.workload, &*found.name),
            ("idle", "cyclictest", "latency")
        );
        let [a, b] = &found.curves[..] else { panic!("{found:?}") };
        assert_eq!((a.boots, a.samples, &*b.variant), (4, 12_000, "b"));
        let quantile = a.quantile(0.9).unwrap().estimate;
        let span = quantile.interval.unwrap();
        assert!(span.lo < span.hi && (span.lo..=span.hi).contains(&quantile.centre));
        assert_eq!(
            a.missing,
            [
                "too few samples for p99.9: 12000 of 20000",
                "too few samples for p99.99: 12000 of 200000"
            ]
        );
        assert!(a.quantiles.windows(2).all(|pair| pair[0].share < pair[1].share));
        assert_eq!(report(dir.path(), &contents).distributions, shown.distributions);
    }

    #[test]
    fn runs_that_warm_up_are_left_out_and_old_journals_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut contents = contents(dir.path());
        let state = JournalState::from_events(&contents.events);
        let trials = results::trials(&contents.events, &state);
        let count = |discarded| {
            results::distribution(trials[0].result, "latency", discarded).map(|all| all.count())
        };
        assert_eq!([count(0), count(1), count(2)], [Some(3000), Some(1500), None]);
        assert!(results::distribution(trials[0].result, "read-latency", 0).is_none());

        for event in &mut contents.events {
            if let JournalEvent::TrialEnded(result) = event {
                result.runs.iter_mut().for_each(|run| run.histograms.clear());
            }
        }
        let shown = report(dir.path(), &contents);
        assert!(shown.distributions.is_empty());
        let printed = shown.groups.iter().find(|group| group.metric.name == "latency-p50").unwrap();
        assert!((printed.cell("a").unwrap().boots[0].value - 1.0).abs() < 1e-9);
    }
}
