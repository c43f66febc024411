//! Laws of the table, and every probe run for real in a tiny size.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::spec::Kind;
use crate::{PROBES, args::Args, cli};

/// Runs a probe that must end well; its document.
pub(crate) fn run(line: &str) -> Value {
    let ended = cli::run(line.split_whitespace().map(str::to_owned).collect());
    assert_eq!(ended.code, 0, "{line}: {}{}", ended.stderr, ended.stdout);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["verified"], true, "{line}");
    document
}

/// The values of a metric in the order of the document.
pub(crate) fn values(document: &Value, name: &str) -> Vec<f64> {
    let rows = document["metrics"].as_array().unwrap();
    rows.iter()
        .filter(|row| row["name"] == name)
        .map(|row| row["value"].as_f64().unwrap())
        .collect()
}

#[test]
fn the_table_keeps_its_rules() {
    let mut names = BTreeSet::new();
    for probe in PROBES {
        assert!(names.insert(probe.name), "{} twice", probe.name);
        let mut options = BTreeSet::new();
        for opt in probe.options {
            assert!(options.insert(opt.name), "{}: --{} twice", probe.name, opt.name);
            assert!(!opt.help.ends_with('.'), "{}: --{}", probe.name, opt.name);
            // The default is one of the allowed values.
            let default = opt.default.to_string();
            if opt.default != crate::spec::Default::PerVcpu {
                opt.read(&default).unwrap();
            }
            if let Kind::Choice(words) = opt.kind {
                assert!(words.contains(&&*default), "{}: --{}", probe.name, opt.name);
            }
        }
        let mut metrics = BTreeSet::new();
        for metric in probe.metrics {
            assert!(metrics.insert(metric.name), "{}: {} twice", probe.name, metric.name);
            assert!(["s", "B", "1/s", "B/s", "count"].contains(&metric.unit));
            assert!(["lower", "higher"].contains(&metric.better));
            assert!(["time", "rate", "quantile", "count"].contains(&metric.kind));
            assert!(["total", "thread"].contains(&metric.per));
        }
        let example: Vec<String> = probe.example.split_whitespace().map(str::to_owned).collect();
        Args::parse(probe, &example).unwrap_or_else(|error| panic!("{}: {error}", probe.name));
        assert!(probe.about.ends_with('.') && !probe.summary.ends_with('.'), "{}", probe.name);
    }
}

#[test]
fn the_documentation_is_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/probe.md");
    expect_test::expect_file![path].assert_eq(&crate::markdown());
}

#[test]
fn wrong_calls_say_what_is_right() {
    for (line, says) in [
        ("sim", "did you mean sem?"),
        ("nonsense-of-sorts", "`vmlab-probe list` names all"),
        ("sem --itens 3", "did you mean --items?"),
        ("sem --items", "--items needs a value"),
        ("sem --items -3", "expected a whole number from 0"),
        ("sem --hog big", "expected one of none, idle, nice"),
        ("sem --cpus 1-0", "a list of vCPUs"),
        ("sem --seconds NaN", "expected a number from"),
        ("sem 5", "Expected --option"),
    ] {
        let ended = cli::run(line.split_whitespace().map(str::to_owned).collect());
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{line}");
        assert!(ended.stderr.contains(says), "{line}: {}", ended.stderr);
    }
    for line in ["--help", "list", "list --json", "sem --help", "help sem", "--version"] {
        let ended = cli::run(line.split_whitespace().map(str::to_owned).collect());
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{line}");
    }
}

#[test]
fn syscalls_counts_every_call() {
    for line in [
        "syscalls --loops 500 --repeat 2 --warmup 0",
        "syscalls --call getppid --seconds 0.01 --repeat 2 --warmup 0 --threads 2",
    ] {
        let document = run(line);
        assert_eq!(values(&document, "calls-per-s").len(), 2, "{line}");
        assert!(values(&document, "calls-per-s").iter().all(|rate| *rate > 1000.0), "{line}");
    }
    let fixed = run("syscalls --loops 500 --repeat 1 --warmup 0");
    let (elapsed, rate) = (values(&fixed, "elapsed")[0], values(&fixed, "calls-per-s")[0]);
    assert!((elapsed * rate - 1000.0).abs() < 1e-6, "500 writes and 500 reads");
}

#[test]
fn sem_hands_over_every_item() {
    for hog in ["none", "idle", "nice"] {
        let line = format!("sem --items 200 --loops 10 --repeat 2 --warmup 0 --hog {hog}");
        let document = run(&line);
        for (elapsed, rate) in
            values(&document, "elapsed").into_iter().zip(values(&document, "items-per-s"))
        {
            assert!((elapsed * rate - 200.0).abs() < 1e-6, "{line}");
        }
        for (slept, woken) in values(&document, "sleeps-per-item")
            .into_iter()
            .zip(values(&document, "wakes-per-item"))
        {
            // Each wake ends a sleep; a waiter can also find the item before it sleeps.
            assert!(woken <= slept + 1e-9 && slept <= 2.0 + 1e-9, "{line}: {slept} {woken}");
        }
    }
}
