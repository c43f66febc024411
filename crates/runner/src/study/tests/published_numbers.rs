//! What the documents behind the studies publish, and that the studies hold it.

use std::collections::HashMap;
use std::path::Path;

use crate::study::{Study, StudyClaimKind};

/// The numbers as they are printed there, and where they should be.
const PUBLISHED: &str = include_str!("../../../testdata/published.txt");

fn study(name: &str) -> Study {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let file = folder.join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    Study::parse(&file.to_string_lossy(), &text).unwrap()
}

/// A printed number in the study's base unit, or as the study's ratio.
fn converted(printed: f64, how: &str) -> f64 {
    match how {
        "ms" => printed / 1e3,
        "M" => printed * 1e6,
        "KiB" => printed * 1024.0,
        "Mbit/s" => printed * 1e6 / 8.0,
        "min" => printed / 60.0,
        "%" => printed / 100.0,
        "less %" => 1.0 - printed / 100.0,
        "more %" => 1.0 + printed / 100.0,
        // What is less by so much with a thing is so many times as much without it.
        "without, less %" => 1.0 / (1.0 - printed / 100.0),
        _ => {
            assert_eq!(how, "1", "no such conversion");
            printed
        }
    }
}

/// All numbers that `study` holds of a variant in a metric or a counter; those of one
/// run where its number is given, counted from 1.
fn held(study: &Study, workload: &str, variant: &str, run: Option<usize>, name: &str) -> Vec<f64> {
    let values = study.published.iter().filter(|row| {
        (row.workload.as_str(), row.variant.as_str(), row.metric.as_str())
            == (workload, variant, name)
    });
    let mut numbers = Vec::new();
    for row in values {
        if let Some(run) = run {
            numbers.extend(row.runs.get(run - 1));
            continue;
        }
        numbers.extend(row.value.into_iter().chain(row.ratio).chain(row.sd));
        numbers.extend(row.range.into_iter().chain(row.ratio_range).flatten());
    }
    for row in &study.published_claims {
        if let StudyClaimKind::CounterRatio { counter, ratio } = &row.claimed
            && (row.workload.as_str(), row.variant.as_str(), counter.as_str())
                == (workload, variant, name)
        {
            numbers.extend(ratio);
        }
    }
    numbers
}

#[test]
fn every_published_number_is_in_a_study() {
    let mut studies: HashMap<&str, Study> = HashMap::new();
    let mut found = 0;
    for line in PUBLISHED.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(" | ").collect();
        let [document, place, file, workload, variant, metrics, how, printed] = fields[..] else {
            panic!("eight fields, not {}: {line}", fields.len());
        };
        let study = studies.entry(file).or_insert_with(|| study(file));
        let (variant, run) = match variant.split_once('#') {
            Some((variant, run)) => (variant, Some(run.parse().unwrap())),
            None => (variant, None),
        };
        let (metrics, printed): (Vec<_>, Vec<_>) =
            (metrics.split(' ').collect(), printed.split(' ').collect());
        assert_eq!(metrics.len(), printed.len(), "{line}");
        for (metric, printed) in metrics.into_iter().zip(printed) {
            let number = converted(printed.parse().unwrap(), how);
            let held = held(study, workload, variant, run, metric);
            assert!(
                held.iter().any(|held| (held - number).abs() <= 1e-7 * number.abs()),
                "{document}, {place}: {printed} ({number}) is not what studies/{file}.toml holds of \
                 {workload}, {variant}, {metric}: {held:?}"
            );
            found += 1;
        }
    }
    assert!(found > 400, "{found} numbers");
}
