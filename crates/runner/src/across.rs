//! Fills the report of a study on many nodes: each node's own verdicts, and what all of
//! them say together, with the node as a factor.

use std::path::Path;

use record::journal::Event;
use record::{Environment, Outcome};
use report::{
    ACROSS_VERSION, AcrossGroup, AcrossReport, AcrossVariant, NodeRatio, NodeRow, Role,
    ShownEstimate, Span, Verdict,
};
use stats::{AcrossQuestion, HostRatios, across_hosts};

use crate::node_set::{NodeSet, NodeSetError, NodeState};
use crate::plan::{Plan, PlanVariant};
use crate::results::{self, ALPHA, MetricGroup};
use crate::state::JournalState;
use crate::store::{self, Contents};
use crate::study::DEFAULT_MARGIN_PERCENT;
use crate::trials;

/// What the nodes of the set in `dir` say.
///
/// # Errors
/// [`NodeSetError`]: the list names folders elsewhere. A node whose results can't be read is
/// told, and left out.
pub fn across(dir: &Path, set: &NodeSet) -> Result<AcrossReport, NodeSetError> {
    let mut report = AcrossReport {
        version: ACROSS_VERSION,
        study: set.study.clone(),
        title: set.study.clone(),
        question: None,
        server: set.server.clone(),
        class_label: set.class_label.clone(),
        level: 1.0 - ALPHA,
        environments: Vec::new(),
        nodes: Vec::new(),
        groups: Vec::new(),
        warnings: Vec::new(),
    };
    let mut first: Option<Plan> = None;
    for entry in &set.nodes {
        let folder = NodeSet::folder(dir, entry)?;
        let mut row = NodeRow {
            node: entry.name.clone(),
            class: entry.class.clone(),
            folder: entry.folder.clone(),
            state: entry.state.word().to_owned(),
            is_complete: entry.state == NodeState::Complete,
            reason: entry.reason.clone(),
            environment: None,
            blocks: 0,
            failed_trials: 0,
        };
        if store::is_results(&folder) {
            match store::read(&folder) {
                Ok(contents) => {
                    let same = first.as_ref().is_none_or(|first| is_same(first, &contents.plan));
                    if same {
                        add(&mut report, &mut row, &folder, &contents);
                        first.get_or_insert(contents.plan);
                    } else {
                        let why = "its plan is another study's: left out".to_owned();
                        report.warnings.push(format!("{}: {why}.", row.node));
                        row.reason.get_or_insert(why);
                    }
                }
                Err(error) => {
                    report.warnings.push(format!("{}: left out: {error}.", row.node));
                    row.reason.get_or_insert(error.to_string());
                }
            }
        }
        report.nodes.push(row);
    }
    judge(&mut report);
    warn(&mut report);
    Ok(report)
}

/// Whether two plans ask the same, of whatever machine.
fn is_same(one: &Plan, other: &Plan) -> bool {
    let variants = |plan: &Plan| -> Vec<(String, bool)> {
        let of = |variant: &PlanVariant| (variant.name.clone(), variant.aa_of.is_some());
        plan.variants.iter().map(of).collect()
    };
    let workloads = |plan: &Plan| -> Vec<(String, Vec<String>)> {
        let of = |workload: &crate::plan::PlanWorkload| {
            let metrics = workload.metrics.iter().map(|metric| metric.name.clone());
            (workload.label.clone(), metrics.collect())
        };
        plan.workloads.iter().map(of).collect()
    };
    let loads =
        |plan: &Plan| -> Vec<String> { plan.loads.iter().map(|load| load.name.clone()).collect() };
    (&one.study, &one.baseline, variants(one), workloads(one), loads(one))
        == (&other.study, &other.baseline, variants(other), workloads(other), loads(other))
}

/// Adds what one node's folder holds.
fn add(report: &mut AcrossReport, row: &mut NodeRow, folder: &Path, contents: &Contents) {
    let Contents { plan, events, damage, .. } = contents;
    let state = JournalState::from_events(events);
    let trials = trials::trials(events, &state);
    let groups = results::groups(plan, &trials);
    if report.groups.is_empty() {
        plan.title.clone_into(&mut report.title);
        plan.study.clone_into(&mut report.study);
        report.question = (!plan.question.is_empty()).then(|| plan.question.clone());
        report.groups = groups.iter().map(|group| empty(plan, group)).collect();
    }
    let environment = plan.environment();
    row.environment = Some(environment);
    row.blocks = u32::try_from(state.complete.len()).unwrap_or(u32::MAX);
    let failed = |event: &&Event| match event {
        Event::TrialEnded(result) => matches!(result.outcome, Outcome::Failed(_)),
        _ => false,
    };
    row.failed_trials = u32::try_from(events.iter().filter(failed).count()).unwrap_or(u32::MAX);
    if !report.environments.contains(&environment) {
        report.environments.push(environment);
    }
    let damage = store::damage_lines(folder, damage);
    report.warnings.extend(damage.map(|line| format!("{}: {line}.", row.node)));
    let engine = results::engine(plan, &state);
    let Some(baseline) = results::baseline_index(plan) else { return };
    for (group, shown) in groups.iter().zip(&mut report.groups) {
        for variant in &mut shown.variants {
            let place = plan.variants.iter().position(|one| one.name == variant.variant);
            let Some(place) = place else { continue };
            let comparison = group.comparison(plan, baseline, place);
            let judged = engine.judge(&comparison);
            let interval = judged.interval.map(|span| Span { lo: span.lo, hi: span.hi });
            variant.nodes.push(NodeRatio {
                node: row.node.clone(),
                class: row.class.clone(),
                ratio: judged.ratio.map(|centre| ShownEstimate { centre, interval }),
                blocks: judged.blocks_used,
                verdict: Verdict::from(&judged.verdict),
                log_ratios: comparison.blocks.log_ratios,
            });
        }
    }
}

/// A group without a node.
fn empty(plan: &Plan, group: &MetricGroup<'_>) -> AcrossGroup {
    let margin = group.workload.margin_percent.get(&group.metric.name);
    let baseline = results::baseline_index(plan);
    let candidates = plan.variants.iter().enumerate().filter(|(place, _)| Some(*place) != baseline);
    let variants = candidates.map(|(_, variant)| AcrossVariant {
        variant: variant.name.clone(),
        role: if variant.aa_of.is_some() { Role::AaArm } else { Role::Candidate },
        verdict: Verdict::Invalid,
        across: across_hosts(&[], &question(group, margin)),
        nodes: Vec::new(),
    });
    AcrossGroup {
        load: group.load.name.clone(),
        workload: group.workload.label.clone(),
        metric: group.metric.clone(),
        primary: group.is_primary(),
        margin: margin.copied().unwrap_or(DEFAULT_MARGIN_PERCENT) / 100.0,
        baseline: plan.baseline.clone(),
        variants: variants.collect(),
    }
}

fn question(group: &MetricGroup<'_>, margin: Option<&f64>) -> AcrossQuestion {
    AcrossQuestion {
        alpha: ALPHA,
        margin: margin.copied().unwrap_or(DEFAULT_MARGIN_PERCENT) / 100.0,
        better: report::direction(group.metric.better),
    }
}

/// What all nodes say together.
fn judge(report: &mut AcrossReport) {
    for group in &mut report.groups {
        let (margin, better) = (group.margin, report::direction(group.metric.better));
        for variant in &mut group.variants {
            // A node whose own values say nothing says nothing of others.
            let hosts: Vec<HostRatios> = variant
                .nodes
                .iter()
                .map(|node| HostRatios {
                    host: node.node.clone(),
                    class: node.class.clone(),
                    log_ratios: match node.verdict {
                        Verdict::Invalid if node.blocks != 1 => Vec::new(),
                        _ => node.log_ratios.clone(),
                    },
                })
                .collect();
            variant.across = across_hosts(&hosts, &AcrossQuestion { alpha: ALPHA, margin, better });
            variant.verdict = Verdict::from(&variant.across.verdict);
        }
    }
}

/// What is to be known before the numbers are read.
fn warn(report: &mut AcrossReport) {
    let emulated = report.environments.iter().filter(|one| one.is_emulated_time()).count();
    if emulated > 0 && emulated < report.environments.len() {
        let kinds: Vec<String> = report.environments.iter().map(Environment::to_string).collect();
        report.warnings.insert(
            0,
            format!(
                "Nodes ran in different environments ({}): emulated times are no speed, and \
                 all nodes together say nothing of it.",
                kinds.join(", ")
            ),
        );
    }
}
