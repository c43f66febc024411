//! One study: the verdicts of its own engine, computed anew.

use std::path::{Path, PathBuf};

use compare::analyse::{
    ComparedCell, ComparedData, DataWarning, GroupedData, MetricInfo, StudyComparison, StudyRow,
    judge_study,
};
use runner::state::JournalState;
use runner::study::DEFAULT_MARGIN_PERCENT;
use runner::{results, store, summary};
use stats::Interval;

use super::{CompareArgs, DAMAGED};
use crate::results_folder;

/// The folder, if the arguments are that of one study and ask for nothing else.
pub(super) fn folder(args: &CompareArgs) -> Option<PathBuf> {
    only(args).filter(|folder| runner::store::is_results(folder))
}

/// The same of a study on many nodes.
pub(super) fn node_set(args: &CompareArgs) -> Option<PathBuf> {
    only(args).filter(|folder| runner::node_set::is_node_set(folder))
}

/// The only input, if nothing else is asked for.
fn only(args: &CompareArgs) -> Option<PathBuf> {
    let [input] = args.inputs.as_slice() else { return None };
    let labels = [&args.variant, &args.block, &args.boot, &args.baseline];
    let plain = labels.iter().all(|label| label.is_none())
        && args.by.is_empty()
        && args.metric.is_empty()
        && args.filter.is_none();
    plain.then(|| input.into())
}

/// What its report says too, bit for bit.
pub(super) fn comparison(folder: &Path) -> anyhow::Result<ComparedData> {
    let contents = results_folder::read(folder)?;
    let report = summary::report(folder, &contents);
    let plan = &contents.plan;
    let state = JournalState::from_events(&contents.events);
    let trials = results::trials(&contents.events, &state);
    let groups = results::groups(plan, &trials);
    let baseline = results::baseline_index(plan).unwrap_or(0);
    // The baseline stands first.
    let mut order: Vec<usize> = (0..plan.variants.len()).collect();
    order.retain(|variant| *variant != baseline);
    order.insert(0, baseline);
    let rows = groups.iter().zip(&report.groups).map(|(group, shown)| StudyRow {
        name: format!("{}, {}", group.workload.label, group.load.name),
        metric: MetricInfo {
            name: group.metric.name.clone(),
            unit: group.metric.unit.0.clone(),
            better: Some(group.metric.better),
            kind: group.metric.kind,
            exact: false,
        },
        cells: order
            .iter()
            .map(|variant| {
                let cell = &shown.cells[*variant];
                let counted = cell.boots.iter().filter(|boot| boot.counted);
                let (boots, values) = counted
                    .fold((0, 0), |(boots, values), boot| (boots + 1, values + boot.samples.len()));
                let estimate = cell.estimate?;
                let interval = estimate.interval.map(|span| Interval {
                    lo: span.lo,
                    hi: span.hi,
                    level: report.method.level,
                });
                Some(ComparedCell {
                    boots,
                    values: values as u32,
                    centre: estimate.centre,
                    interval,
                })
            })
            .collect(),
        comparisons: order[1..]
            .iter()
            .map(|variant| {
                let judged = shown.cells[*variant].judgement.as_ref();
                let invalid =
                    judged.filter(|judged| judged.verdict == report::ShownVerdict::Invalid);
                StudyComparison {
                    comparison: group.comparison(plan, baseline, *variant),
                    invalid: invalid.and_then(|judged| judged.why.clone()),
                }
            })
            .collect(),
    });
    let rows = rows.collect();
    let damage: Vec<String> = store::damage_lines(folder, &contents.damage).collect();
    let warning = |text: &String| {
        let code = if damage.contains(text) { DAMAGED } else { "study" };
        DataWarning { code, text: text.clone() }
    };
    let mut warnings: Vec<DataWarning> = report.warnings.iter().map(warning).collect();
    if report.environment.is_emulated_time() {
        let text = report.environment.sentence().to_owned();
        warnings.insert(0, DataWarning { code: "emulated-time", text });
    }
    if !report.failures.is_empty() {
        let failed = report::counted(report.failures.len(), "trial");
        let text = format!("{failed} failed: see vmlab report.");
        warnings.push(DataWarning { code: "failed-trials", text });
    }
    Ok(judge_study(GroupedData {
        engine: results::engine(plan, &state).as_ref(),
        alpha: results::ALPHA,
        margin: DEFAULT_MARGIN_PERCENT / 100.0,
        variants: order.iter().map(|variant| plan.variants[*variant].name.clone()).collect(),
        common: vec![("study".to_owned(), plan.study.clone())],
        method: vec![report.method.test.clone()],
        warnings,
        rows,
    }))
}
