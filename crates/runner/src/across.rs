//! Fills the report of a study on many nodes: each node's own verdicts, and what all of
//! them say together, with the node as a factor.

use std::collections::BTreeSet;
use std::path::Path;

use record::journal::JournalEvent;
use record::{Environment, Outcome};
use report::{
    ACROSS_VERSION, AcrossGroup, AcrossReport, AcrossVariant, NodeRatio, NodeRow, ShownEstimate,
    ShownInterval, ShownVerdict, VariantRole,
};
use stats::{AcrossQuestion, HostRatios, across_hosts};

use crate::node_set::{NodeSet, NodeSetError, NodeState};
use crate::plan::{PlanVariant, StudyPlan};
use crate::results::{self, ALPHA, MetricGroup};
use crate::state::JournalState;
use crate::store::{self, Contents};
use crate::study::DEFAULT_MARGIN_PERCENT;
use crate::trials;

/// Nodes that a warning names, of however many.
const SHOWN_NODES: usize = 8;

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
        environment: None,
        nodes: Vec::new(),
        groups: Vec::new(),
        warnings: Vec::new(),
    };
    let mut first: Option<StudyPlan> = None;
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
    let leading = leading(&report.nodes);
    report.environment = leading;
    judge(&mut report, leading);
    warn(&mut report, leading);
    Ok(report)
}

/// Whether two plans ask the same, of whatever machine.
fn is_same(one: &StudyPlan, other: &StudyPlan) -> bool {
    let variants = |plan: &StudyPlan| -> Vec<(String, bool)> {
        let of = |variant: &PlanVariant| (variant.name.clone(), variant.aa_of.is_some());
        plan.variants.iter().map(of).collect()
    };
    let workloads = |plan: &StudyPlan| -> Vec<(String, Vec<String>)> {
        let of = |workload: &crate::plan::PlanWorkload| {
            let metrics = workload.metrics.iter().map(|metric| metric.name.clone());
            (workload.label.clone(), metrics.collect())
        };
        plan.workloads.iter().map(of).collect()
    };
    let loads = |plan: &StudyPlan| -> Vec<String> {
        plan.loads.iter().map(|load| load.name.clone()).collect()
    };
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
    let failed = |event: &&JournalEvent| match event {
        JournalEvent::TrialEnded(result) => matches!(result.outcome, Outcome::Failed(_)),
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
            let interval = judged.interval.map(|span| ShownInterval { lo: span.lo, hi: span.hi });
            variant.nodes.push(NodeRatio {
                node: row.node.clone(),
                class: row.class.clone(),
                ratio: judged.ratio.map(|centre| ShownEstimate { centre, interval }),
                blocks: judged.blocks_used,
                verdict: ShownVerdict::from(&judged.verdict),
                log_ratios: comparison.blocks.log_ratios,
            });
        }
    }
}

/// A group without a node.
fn empty(plan: &StudyPlan, group: &MetricGroup<'_>) -> AcrossGroup {
    let margin = group.workload.margin_percent.get(&group.metric.name);
    let baseline = results::baseline_index(plan);
    let candidates = plan.variants.iter().enumerate().filter(|(place, _)| Some(*place) != baseline);
    let variants = candidates.map(|(_, variant)| AcrossVariant {
        variant: variant.name.clone(),
        role: if variant.aa_of.is_some() { VariantRole::AaArm } else { VariantRole::Candidate },
        verdict: ShownVerdict::Invalid,
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
        better: group.metric.better,
    }
}

/// The environment of which all nodes together tell: one in which time is real before any
/// in which it is not, then that of most nodes. Times of two are no times of one thing.
fn leading(nodes: &[NodeRow]) -> Option<Environment> {
    let environments = || nodes.iter().filter_map(|node| node.environment);
    let count = |one: Environment| environments().filter(|other| *other == one).count();
    // Of equally many the first.
    let rank = |one: &Environment| (one.is_emulated_time(), std::cmp::Reverse(count(*one)));
    environments().min_by_key(rank)
}

/// Whether a node ran in another environment than the one of which all together tell.
fn is_elsewhere(node: &NodeRow, leading: Option<Environment>) -> bool {
    node.environment.is_some() && node.environment != leading
}

/// What all nodes of one environment say together.
fn judge(report: &mut AcrossReport, leading: Option<Environment>) {
    let elsewhere = report.nodes.iter().filter(|node| is_elsewhere(node, leading));
    let elsewhere: BTreeSet<&str> = elsewhere.map(|node| node.node.as_str()).collect();
    for group in &mut report.groups {
        let (margin, better) = (group.margin, group.metric.better);
        for variant in &mut group.variants {
            // A node whose own values say nothing says nothing of others.
            let hosts: Vec<HostRatios> = variant
                .nodes
                .iter()
                .map(|node| HostRatios {
                    host: node.node.clone(),
                    class: node.class.clone(),
                    log_ratios: match node.verdict {
                        _ if elsewhere.contains(node.node.as_str()) => Vec::new(),
                        ShownVerdict::Invalid if node.blocks != 1 => Vec::new(),
                        _ => node.log_ratios.clone(),
                    },
                })
                .collect();
            variant.across = across_hosts(&hosts, &AcrossQuestion { alpha: ALPHA, margin, better });
            variant.verdict = ShownVerdict::from(&variant.across.verdict);
        }
    }
}

/// What is to be known before the numbers are read.
fn warn(report: &mut AcrossReport, leading: Option<Environment>) {
    let elsewhere = report.nodes.iter().filter(|node| is_elsewhere(node, leading));
    let names: Vec<&str> = elsewhere.map(|node| node.node.as_str()).collect();
    if let (Some(leading), false) = (leading, names.is_empty()) {
        let kinds: Vec<String> = report.environments.iter().map(Environment::to_string).collect();
        let others = names.len();
        let shown = names.iter().take(SHOWN_NODES).copied().collect::<Vec<_>>().join(", ");
        let more = others.saturating_sub(SHOWN_NODES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        report.warnings.insert(
            0,
            format!(
                "Nodes ran in different environments ({}): what all say together is of those \
                 in one ({leading}), without {shown}{more}.",
                kinds.join("; ")
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, environment: Option<Environment>) -> NodeRow {
        NodeRow {
            node: name.to_owned(),
            class: None,
            folder: format!("nodes/{name}"),
            state: "complete".to_owned(),
            is_complete: true,
            reason: None,
            environment,
            blocks: 3,
            failed_trials: 0,
        }
    }

    #[test]
    fn emulated_nodes_say_nothing_of_measured_ones() {
        let check = |nodes: &[Option<Environment>], expected: Option<Environment>| {
            let nodes: Vec<NodeRow> = nodes.iter().map(|one| node("n", *one)).collect();
            assert_eq!(leading(&nodes), expected);
        };
        let (kvm, tcg, sim) = (Environment::Kvm, Environment::Tcg, Environment::Simulated);
        check(&[], None);
        check(&[None], None);
        check(&[Some(tcg), Some(tcg), Some(kvm)], Some(kvm));
        check(&[Some(tcg), Some(sim), Some(sim)], Some(sim));
        assert!(is_elsewhere(&node("a", Some(tcg)), Some(kvm)));
        assert!(!is_elsewhere(&node("a", None), Some(kvm)));
    }
}
