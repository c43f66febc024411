//! What the documents behind the studies publish, and that the studies hold it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use stats::Relation;

use crate::study::{Study, StudyClaim, StudyClaimKind};

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
    for row in study.published_claims.iter().filter(|row| row.workload == workload) {
        match &row.claimed {
            StudyClaimKind::CounterRatio { counter, ratio } => {
                if (row.variant.as_str(), counter.as_str()) == (variant, name) {
                    numbers.extend(ratio);
                }
            }
            StudyClaimKind::FunctionShare { of, ratio, shares_percent } => {
                let here = |whose: &str| (whose, of.function.as_str()) == (variant, name);
                if here(&row.variant) {
                    match (&row.than, shares_percent) {
                        (None, _) => numbers.extend(ratio.map(|share| share * 100.0)),
                        (Some(_), Some([first, _])) => numbers.push(*first),
                        (Some(_), None) => numbers.push(ratio[0]),
                    }
                } else if row.than.as_deref().is_some_and(here) {
                    numbers.extend(shares_percent.map(|[_, second]| second));
                }
            }
            StudyClaimKind::Order { .. } => {}
        }
    }
    numbers
}

/// What stands in place of a conversion where an order of variants was told.
const ORDER: &str = "order";

/// The lines by their fields.
fn rows() -> impl Iterator<Item = [&'static str; 8]> {
    PUBLISHED.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&str> = line.split(" | ").collect();
        let count = fields.len();
        fields.try_into().unwrap_or_else(|_| panic!("eight fields, not {count}: {line}"))
    })
}

/// How two variants stand to each other somewhere: workload, load, metric, the first, the
/// sign, the second.
type ToldComparison = [String; 6];

/// The pairs of neighbours of an order under each of `study`'s loads, or under one.
fn told(
    study: &Study,
    [_, _, _, workload, load, metric, _, order]: [&str; 8],
) -> Vec<ToldComparison> {
    let words: Vec<&str> = order.split(' ').collect();
    assert!(words.len() % 2 == 1 && words.len() > 1, "{order}");
    let named = |one: &&crate::study::HostLoad| load == "every load" || load == one.name;
    let loads: Vec<_> = study.loads.iter().filter(named).collect();
    assert!(!loads.is_empty(), "{}: no load {load}", study.name);
    let pairs = |load: &str| -> Vec<ToldComparison> {
        let of = |at: usize| [workload, load, metric, words[at], words[at + 1], words[at + 2]];
        (0..words.len() - 2).step_by(2).map(|at| of(at).map(str::to_owned)).collect()
    };
    loads.into_iter().flat_map(|one| pairs(&one.name)).collect()
}

/// The same, as a study holds it.
fn orders_held(study: &Study) -> Vec<ToldComparison> {
    let held = study.published_claims.iter().filter_map(|claim| {
        let StudyClaimKind::Order { metric, relation, .. } = &claim.claimed else { return None };
        let sign = match relation {
            Relation::Better => ">",
            Relation::AtLeastAsGood => ">=",
            Relation::Equal => "=",
        };
        let StudyClaim { workload, load, variant, than, .. } = claim;
        let words: [&str; 6] = [workload, load, metric, variant, sign, than.as_ref()?];
        Some(words.map(str::to_owned))
    });
    held.collect()
}

#[test]
fn every_published_order_is_in_a_study_and_no_other() {
    let mut by_study: BTreeMap<&str, Vec<[&str; 8]>> = BTreeMap::new();
    for row in rows().filter(|row| row[6] == ORDER) {
        by_study.entry(row[2]).or_default().push(row);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let mut found = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let study = study(name);
        let rows = by_study.remove(name).unwrap_or_default();
        let mut told: Vec<ToldComparison> =
            rows.into_iter().flat_map(|row| told(&study, row)).collect();
        let mut held = orders_held(&study);
        told.sort();
        held.sort();
        assert_eq!(held, told, "what studies/{name}.toml holds, and what was published");
        found += told.len();
    }
    assert!(by_study.is_empty(), "no such study: {by_study:?}");
    assert!(found > 60, "{found} pairs");
}

#[test]
fn every_published_number_is_in_a_study() {
    let mut studies: HashMap<&str, Study> = HashMap::new();
    let mut found = 0;
    for row @ [document, place, file, workload, variant, metrics, how, printed] in rows() {
        if how == ORDER {
            continue;
        }
        let line = row.join(" | ");
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
