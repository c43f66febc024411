//! Trends of made-up results.

use record::{MetricKind, Unit};

use super::*;
use crate::{CellResults, Method, REPORT_VERSION, ReportVariant, ResultGroup, ShownInterval};

/// A result of day `day` whose variant takes `seconds` under `kernel`.
fn result(day: u32, seconds: f64, kernel: &str) -> (String, Report) {
    let fact = |name: &str, value: String| ReportFact { name: name.to_owned(), value };
    let variant = |name: &str, role| ReportVariant {
        name: name.to_owned(),
        summary: String::new(),
        role,
        on_host: false,
        qemu_lines: Vec::new(),
        losses: Vec::new(),
        found: Vec::new(),
        further: Vec::new(),
    };
    let interval = Some(ShownInterval { lo: seconds * 0.99, hi: seconds * 1.01 });
    let cell = |variant: &str, centre: f64| CellResults {
        variant: variant.to_owned(),
        boots: Vec::new(),
        estimate: Some(ShownEstimate { centre, interval }),
        judgement: None,
    };
    let report = Report {
        version: REPORT_VERSION,
        study: "nightly".to_owned(),
        title: String::new(),
        question: None,
        scale: None,
        environment: Environment::Kvm,
        place: None,
        environment_why: None,
        about: vec![
            fact("host kernel", kernel.to_owned()),
            fact("started", format!("2026-03-{day:02}T03:00:00Z")),
        ],
        host: None,
        method: Method {
            seed: 1,
            blocks_planned: None,
            blocks_done: 5,
            test: String::new(),
            level: 0.95,
            ended: None,
            wall_s: None,
        },
        variants: vec![variant("a", VariantRole::Baseline), variant("a+aa", VariantRole::AaArm)],
        loads: Vec::new(),
        workloads: Vec::new(),
        suites: Vec::new(),
        groups: vec![ResultGroup {
            load: "idle".to_owned(),
            workload: "hackbench".to_owned(),
            metric: Metric {
                name: "time".to_owned(),
                unit: Unit::from("s"),
                better: record::BetterDirection::Lower,
                kind: MetricKind::Time,
            },
            primary: true,
            margin: None,
            cells: vec![cell("a", seconds), cell("a+aa", seconds)],
            movers: Vec::new(),
            counts: Vec::new(),
            steadiness: Vec::new(),
            published: Vec::new(),
            claims: Vec::new(),
        }],
        distributions: Vec::new(),
        host_beside: Vec::new(),
        accounting: None,
        profiles: Vec::new(),
        profile_overheads: Vec::new(),
        failures: Vec::new(),
        damage: Vec::new(),
        warnings: Vec::new(),
        reproduce: Vec::new(),
        files: Vec::new(),
    };
    (format!("results/{day:02}"), report)
}

/// Two weeks; from the ninth day on with another kernel and a tenth slower.
fn fortnight() -> Vec<(String, Report)> {
    let day = |day: u32| {
        let noise = 1.0 + 0.002 * f64::from(day % 3);
        if day < 9 { result(day, noise, "6.1.1") } else { result(day, 1.1 * noise, "6.1.2") }
    };
    (1..=14).map(day).collect()
}

fn trend(results: Vec<(String, Report)>) -> Trend {
    Trend::new(results, TrendSubject::Value, &ChangeRule::default())
}

#[test]
fn a_change_is_dated_and_told_with_what_else_changed() {
    let found = trend(fortnight());
    assert_eq!(found.series.len(), 1, "the A/A arm has no series");
    let [change] = found.series[0].changes.as_slice() else {
        panic!("{:?}", found.series[0].changes);
    };
    assert_eq!(change.point, 8);
    assert!((change.ratio - 1.1).abs() < 0.01, "{change:?}");
    assert_eq!(change.with, ["host kernel: 6.1.1 -> 6.1.2"]);
    assert!(found.is_worse_now());
    let text = terminal(&found, 80, crate::TerminalStyle { colour: false });
    assert!(text.contains("▼ since 2026-03-09T03:00:00Z: ×1.10, slower"), "{text}");
    assert!(text.contains("host kernel: 6.1.1 -> 6.1.2"), "{text}");
    let page = html(&found);
    roxmltree::Document::parse_with_options(
        &page,
        roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() },
    )
    .unwrap();
}

#[test]
fn the_order_in_which_results_are_named_does_not_matter() {
    let mut backwards = fortnight();
    backwards.reverse();
    assert_eq!(trend(backwards), trend(fortnight()));
}

#[test]
fn results_of_two_studies_or_environments_are_warned_about() {
    let mut mixed = fortnight();
    mixed[3].1.environment = Environment::Tcg;
    mixed[4].1.study = "other".to_owned();
    let warnings = trend(mixed).warnings.join("\n");
    assert!(warnings.contains("different studies: nightly, other"), "{warnings}");
    assert!(warnings.contains("environments are mixed"), "{warnings}");
    assert!(warnings.contains("Emulated"), "{warnings}");
    assert_eq!(trend(Vec::new()).series, []);
}
