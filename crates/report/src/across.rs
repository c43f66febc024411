//! A study on many nodes: what each says, and what all of them say together.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use record::{Environment, Metric};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::{AcrossHosts, ClassConsistency, ClassResult, Interval};

use crate::quantity::{counted, percent, ratio_estimate, ratio_span};
use crate::sentence::{VariantClaim, as_sentence, label, load_heading};
use crate::terminal::{Align, Paint, Printer, TextTable};
use crate::{ShownEstimate, ShownInterval, ShownVerdict, TerminalStyle, VariantRole};

/// Version of [`AcrossReport`] as JSON.
pub const ACROSS_VERSION: u32 = 1;

/// Nodes that are listed by name before the rest is only counted.
const SHOWN_NODES: usize = 12;

/// What a study on many nodes says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcrossReport {
    /// [`ACROSS_VERSION`] of the writer.
    pub version: u32,
    /// The study's name.
    pub study: String,
    /// Heading for people.
    pub title: String,
    /// The question that the study asks.
    pub question: Option<String>,
    /// The cluster's API server.
    pub server: String,
    /// The node label whose values are the classes of hardware.
    pub class_label: Option<String>,
    /// Confidence level of the intervals, 0 to 1; those of classes hold all at once.
    pub level: f64,
    /// Where trials ran, each once.
    pub environments: Vec<Environment>,
    /// That of the nodes that are reported together; absent without a node.
    pub environment: Option<Environment>,
    /// The nodes that were asked for.
    pub nodes: Vec<NodeRow>,
    /// One for each load x workload x metric.
    pub groups: Vec<AcrossGroup>,
    /// Things that a reader of the numbers should know.
    pub warnings: Vec<String>,
}

/// A node, and whether it finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRow {
    /// Its name.
    pub node: String,
    /// Its class of hardware.
    pub class: Option<String>,
    /// Its results folder, from that of the set.
    pub folder: String,
    /// How far it is: `complete`, `failed`, `interrupted`, `running`, `waiting`.
    pub state: String,
    /// Whether the study came to its end there.
    pub is_complete: bool,
    /// Why it did not.
    pub reason: Option<String>,
    /// Where its trials ran; none without results.
    pub environment: Option<Environment>,
    /// Blocks that are complete there, over all load levels.
    pub blocks: u32,
    /// Trials that failed there.
    pub failed_trials: u32,
}

/// One metric of one workload under one host load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcrossGroup {
    /// The host-load level's name.
    pub load: String,
    /// The workload's name.
    pub workload: String,
    /// The metric.
    pub metric: Metric,
    /// True for the metric that the headline is about.
    pub primary: bool,
    /// Relative difference below which nobody cares.
    pub margin: f64,
    /// The variant that the others are compared with.
    pub baseline: String,
    /// The others.
    pub variants: Vec<AcrossVariant>,
}

/// A variant against the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcrossVariant {
    /// Its name.
    pub variant: String,
    /// What it is compared as.
    pub role: VariantRole,
    /// What all nodes say.
    pub verdict: ShownVerdict,
    /// The numbers behind it.
    pub across: AcrossHosts,
    /// What each node says.
    pub nodes: Vec<NodeRatio>,
}

/// A variant against the baseline on one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRatio {
    /// The node.
    pub node: String,
    /// Its class.
    pub class: Option<String>,
    /// Variant by baseline; the interval is that of the node's own study.
    pub ratio: Option<ShownEstimate>,
    /// Blocks that it rests on.
    pub blocks: u32,
    /// The verdict of the node's own study.
    pub verdict: ShownVerdict,
    /// Logarithms of the ratio, a block each.
    pub log_ratios: Vec<f64>,
}

impl AcrossReport {
    /// The text of the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("all keys of a report are strings")
    }

    /// Nodes that did not come to their end, or trials that failed.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.nodes.iter().any(|node| !node.is_complete || node.failed_trials > 0)
    }
}

/// The report as text of at most `width` columns.
#[must_use]
pub fn across_text(report: &AcrossReport, width: usize, style: TerminalStyle) -> String {
    let mut out = Printer::new(width, style);
    heading(report, &mut out);
    out.blank();
    let primary = report.groups.iter().filter(|group| group.primary);
    let mut all: Vec<(&AcrossGroup, &AcrossVariant)> =
        primary.flat_map(|group| group.variants.iter().map(move |one| (group, one))).collect();
    // Nobody asked about the A/A arm.
    all.sort_by_key(|(_, variant)| variant.role == VariantRole::AaArm);
    for (group, variant) in &all {
        verdict(report, group, variant, &mut out);
    }
    if all.is_empty() {
        out.paragraph("", "No node has brought a value yet: there is nothing to show.", None);
    }
    for group in &report.groups {
        for variant in &group.variants {
            numbers(report, group, variant, &mut out);
        }
    }
    without_results(report, &mut out);
    out.text
}

fn heading(report: &AcrossReport, out: &mut Printer) {
    out.paragraph("", &report.title, Some(Paint::Bold));
    if let Some(question) = &report.question {
        out.paragraph("", question, None);
    }
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &report.nodes {
        *states.entry(&node.state).or_default() += 1;
    }
    let states: Vec<String> =
        states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let nodes = counted(report.nodes.len(), "node");
    let line = format!("Study {} on {nodes}: {}.", report.study, states.join(", "));
    out.paragraph("", &line, Some(Paint::Quiet));
    for environment in &report.environments {
        let paint = environment.is_emulated_time().then_some(Paint::Worse);
        let place = format!("nodes of {}", report.server);
        out.paragraph("", &environment.sentence_on(Some(&place)), paint);
    }
    for warning in &report.warnings {
        out.paragraph("", &format!("Warning: {warning}"), Some(Paint::Worse));
    }
}

fn shown(ratio: Option<f64>, interval: Option<Interval>) -> String {
    let interval = interval.map(|interval| ShownInterval { lo: interval.lo, hi: interval.hi });
    let estimate = ratio.map(|centre| ShownEstimate { centre, interval });
    estimate.as_ref().map(ratio_estimate).unwrap_or_default()
}

/// The verdict, what it rests on, and where it does not hold.
fn verdict(report: &AcrossReport, group: &AcrossGroup, variant: &AcrossVariant, out: &mut Printer) {
    let AcrossVariant { across, role, .. } = variant;
    let claim = VariantClaim {
        workload: &group.workload,
        load: &group.load,
        metric: &group.metric,
        margin: Some(group.margin),
        baseline: &group.baseline,
        variant: &variant.variant,
        role: *role,
        verdict: variant.verdict,
    };
    let nodes = counted(across.hosts as usize, "node");
    let blocks = counted(across.blocks as usize, "block");
    let level = percent(report.level);
    let environment = report.environment.map_or(String::new(), |one| format!(", {one}"));
    let mut text = match across.interval {
        Some(_) => format!(
            "{}: {} {} ({level}, {nodes}, {blocks}){environment}.",
            claim.text(),
            group.metric.name,
            shown(across.ratio, across.interval)
        ),
        None => format!("{} ({nodes}, {blocks}).", claim.text()),
    };
    for sentence in sentences(report, variant) {
        text.push(' ');
        text.push_str(&sentence);
    }
    out.verdict(label(variant.verdict, *role, &group.metric), &text);
}

/// What else the nodes say together.
fn sentences(report: &AcrossReport, variant: &AcrossVariant) -> Vec<String> {
    let across = &variant.across;
    let mut said = Vec::new();
    if let stats::Verdict::Invalid { why } = &across.verdict {
        said.push(as_sentence(&why.to_string()));
    }
    if let stats::Verdict::NotDecided { at_most, more_blocks, .. } = across.verdict {
        if at_most <= 10.0 {
            said.push(format!("They differ by at most {}.", percent(at_most)));
        }
        said.push(format!(
            "About {} would decide it, if all goes on as it was.",
            counted(more_blocks as usize, "more node")
        ));
    }
    if let (Some(centre), Some(Interval { lo, hi, .. })) = (across.ratio, across.prediction) {
        let estimate = ShownEstimate { centre, interval: Some(ShownInterval { lo, hi }) };
        let span = ratio_span(&estimate).unwrap_or_default();
        said.push(format!("Another such node is to show {span}."));
    }
    if let (Some(sd), Some(p)) = (across.between_sd, across.same_p) {
        said.push(match p < 1.0 - report.level {
            true => format!("Nodes differ from each other by {} (SD).", percent(sd.exp_m1())),
            false => "Nodes do not differ by more than their blocks do.".to_owned(),
        });
    }
    said.extend(holds(report, across));
    said
}

/// On which classes of hardware it holds.
fn holds(report: &AcrossReport, across: &AcrossHosts) -> Vec<String> {
    let of = report.class_label.as_deref().unwrap_or("hardware");
    let classes = format!("{} classes", across.classes.len());
    let named = |wanted: &dyn Fn(&&ClassResult) -> bool| {
        let names = across.classes.iter().filter(wanted).map(|class| class.class.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let differs = named(&|class| class.stand == stats::ClassStand::Differs);
    let open = named(&|class| class.stand == stats::ClassStand::Open);
    let mut said = Vec::new();
    match across.holds {
        ClassConsistency::NoClasses => return said,
        ClassConsistency::Everywhere => said.push(format!("It holds in all {classes} of {of}.")),
        ClassConsistency::NotEverywhere if differs.is_empty() => {
            said.push(format!("Classes of {of} contradict each other: see the table."));
        }
        ClassConsistency::NotEverywhere => {
            said.push(format!("It does not hold in {of} {differs}."))
        }
        ClassConsistency::NotShownEverywhere => {
            said.push(format!("Of the {classes} of {of}, it is not shown in {open}."));
        }
        ClassConsistency::Undecided => {}
    }
    if across.classes.iter().any(|class| class.of_one_host) {
        said.push("Each class is one node: nothing is known of others of its class.".to_owned());
    }
    said
}

fn numbers(report: &AcrossReport, group: &AcrossGroup, variant: &AcrossVariant, out: &mut Printer) {
    let across = &variant.across;
    out.blank();
    let title = format!(
        "{}, {}: {} of {} by {} ({})",
        group.workload,
        load_heading(&group.load),
        group.metric.name,
        variant.variant,
        group.baseline,
        group.metric.better
    );
    out.paragraph("", &title, Some(Paint::Bold));
    let chip = |verdict: ShownVerdict| {
        let label = label(verdict, variant.role, &group.metric);
        format!("{} {}", label.sign, label.word)
    };
    let head = report.class_label.as_deref().unwrap_or("class");
    let mut table = TextTable::new(&[
        (head, Align::Left),
        ("nodes", Align::Right),
        ("blocks", Align::Right),
        ("ratio", Align::Left),
        ("verdict", Align::Left),
    ]);
    for class in &across.classes {
        table.row(vec![
            class.class.clone(),
            class.hosts.to_string(),
            class.blocks.to_string(),
            shown(Some(class.ratio), class.interval),
            chip(ShownVerdict::from(&class.verdict)),
        ]);
    }
    table.row(vec![
        "all nodes".to_owned(),
        across.hosts.to_string(),
        across.blocks.to_string(),
        shown(across.ratio, across.interval),
        chip(variant.verdict),
    ]);
    out.table(&table);
    let mut own: BTreeMap<String, usize> = BTreeMap::new();
    for node in &variant.nodes {
        *own.entry(chip(node.verdict)).or_default() += 1;
    }
    let own: Vec<String> = own.iter().map(|(chip, count)| format!("{count} {chip}")).collect();
    if !own.is_empty() {
        out.paragraph("", &format!("By themselves: {}.", own.join(", ")), None);
    }
    odd_nodes(variant, &chip, out);
}

/// Nodes whose own verdict points the other way than that of all.
fn odd_nodes(variant: &AcrossVariant, chip: &dyn Fn(ShownVerdict) -> String, out: &mut Printer) {
    let side = |verdict: ShownVerdict| match verdict {
        ShownVerdict::Better | ShownVerdict::SlightlyBetter => 1,
        ShownVerdict::Worse | ShownVerdict::SlightlyWorse => -1,
        _ => 0,
    };
    let all = side(variant.verdict);
    let is_odd = |node: &&NodeRatio| all * side(node.verdict) < 0;
    let odd: Vec<&NodeRatio> = variant.nodes.iter().filter(is_odd).collect();
    for node in odd.iter().take(SHOWN_NODES) {
        let mut line = format!("{}: {}", node.node, chip(node.verdict));
        if let Some(ratio) = &node.ratio {
            // Writing to a String can't fail.
            let _ = write!(line, " {}", ratio_estimate(ratio));
        }
        if let Some(class) = &node.class {
            let _ = write!(line, ", {class}");
        }
        out.paragraph("  ", &line, None);
    }
    if odd.len() > SHOWN_NODES {
        let more = counted(odd.len() - SHOWN_NODES, "more node");
        out.paragraph("  ", &format!("{more} point the other way, too."), None);
    }
}

/// Nodes that brought nothing or not all, and why.
fn without_results(report: &AcrossReport, out: &mut Printer) {
    let mut why: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in report.nodes.iter().filter(|node| !node.is_complete) {
        let reason = node.reason.as_deref().unwrap_or(&node.state);
        why.entry(reason.to_owned()).or_default().push(&node.node);
    }
    if !why.is_empty() {
        out.blank();
    }
    for (reason, nodes) in &why {
        let mut names = nodes[..nodes.len().min(SHOWN_NODES)].join(", ");
        if nodes.len() > SHOWN_NODES {
            let _ = write!(names, " and {}", counted(nodes.len() - SHOWN_NODES, "more node"));
        }
        out.paragraph("", &format!("{names}: {reason}"), Some(Paint::Worse));
    }
    let failed: u32 = report.nodes.iter().map(|node| node.failed_trials).sum();
    if failed > 0 {
        let trials = counted(failed as usize, "trial");
        out.blank();
        let line = format!("{trials} failed: `vmlab report` of a node's own folder says why.");
        out.paragraph("", &line, Some(Paint::Worse));
    }
}

#[cfg(test)]
mod tests {
    use record::{BetterDirection, MetricKind, Unit};
    use stats::{AcrossQuestion, HostRatios, across_hosts};

    use super::*;

    /// Twelve nodes of two classes, on the second of which it is the other way round, and
    /// one that did not come to its end.
    fn report() -> AcrossReport {
        let class = |number: usize| if number < 9 { "big" } else { "small" };
        let hosts: Vec<HostRatios> = (0..12)
            .map(|number| {
                let effect = if number < 9 { -0.3 } else { 0.2 };
                let block = |block: usize| effect + 0.01 * ((number * 7 + block * 3) % 5) as f64;
                HostRatios {
                    host: format!("node-{number}"),
                    class: Some(class(number).to_owned()),
                    log_ratios: (0..3).map(block).collect(),
                }
            })
            .collect();
        let question =
            AcrossQuestion { alpha: 0.05, margin: 0.03, better: record::BetterDirection::Lower };
        let across = across_hosts(&hosts, &question);
        let row = |number: usize| NodeRow {
            node: format!("node-{number}"),
            class: Some(class(number).to_owned()),
            folder: format!("nodes/node-{number}"),
            state: if number < 12 { "complete" } else { "failed" }.to_owned(),
            is_complete: number < 12,
            reason: (number == 12).then(|| "The pod was put off its node: Evicted".to_owned()),
            environment: (number < 12).then_some(Environment::Kvm),
            blocks: 3,
            failed_trials: 0,
        };
        let nodes = hosts.iter().map(|host| NodeRatio {
            node: host.host.clone(),
            class: host.class.clone(),
            ratio: None,
            blocks: 3,
            verdict: match host.log_ratios[0] < 0.0 {
                true => ShownVerdict::Better,
                false => ShownVerdict::Worse,
            },
            log_ratios: host.log_ratios.clone(),
        });
        let variant = AcrossVariant {
            variant: "two".to_owned(),
            role: VariantRole::Candidate,
            verdict: ShownVerdict::from(&across.verdict),
            nodes: nodes.collect(),
            across,
        };
        AcrossReport {
            version: ACROSS_VERSION,
            study: "s".to_owned(),
            title: "One or two?".to_owned(),
            question: None,
            server: "https://cluster".to_owned(),
            class_label: Some("machine".to_owned()),
            level: 0.95,
            environments: vec![Environment::Kvm],
            environment: Some(Environment::Kvm),
            nodes: (0..13).map(row).collect(),
            groups: vec![AcrossGroup {
                load: "idle".to_owned(),
                workload: "hackbench".to_owned(),
                metric: Metric {
                    name: "time".to_owned(),
                    unit: Unit::from("s"),
                    better: BetterDirection::Lower,
                    kind: MetricKind::Time,
                },
                primary: true,
                margin: 0.03,
                baseline: "one".to_owned(),
                variants: vec![variant],
            }],
            warnings: Vec::new(),
        }
    }

    #[test]
    fn where_it_does_not_hold_is_said() {
        let text = across_text(&report(), 100, TerminalStyle::default());
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "Study s on 13 nodes: 12 complete, 1 failed.",
            "Measured under KVM on nodes of https://cluster.",
            "It does not hold in machine small.",
            "Nodes differ from each other by",
            "machine nodes blocks ratio verdict",
            "▲ faster",
            "▼ slower",
            "By themselves: 9 ▲ faster, 3 ▼ slower.",
            "node-12: The pod was put off its node: Evicted",
        ] {
            assert!(words.contains(part), "{part:?} is not said:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(report().has_failures());
    }

    #[test]
    fn emulated_time_stands_beside_the_numbers() {
        let emulated = AcrossReport { environment: Some(Environment::Tcg), ..report() };
        let text = across_text(&emulated, 300, TerminalStyle::default());
        assert!(text.contains("blocks), emulated (TCG)."), "{text}");
        let measured = across_text(&report(), 300, TerminalStyle::default());
        assert!(measured.contains("blocks), KVM.") && !measured.contains("emulated"), "{measured}");
    }

    #[test]
    fn nothing_yet_is_said() {
        let none = AcrossReport { groups: Vec::new(), ..report() };
        let text = across_text(&none, 80, TerminalStyle::default());
        assert!(text.contains("there is nothing to show"), "{text}");
    }

    #[test]
    fn json_is_read_again() {
        let report = report();
        let again: AcrossReport = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(again, report);
    }
}
