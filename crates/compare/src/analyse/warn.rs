//! What a reader of the numbers should know before reading them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use record::Environment;

use super::group::{Member, RowGroups};
use super::roles::Roles;
use super::{CompareOptions, ComparedRow, DataWarning, Design, MetricInfo};
use crate::data::{Data, Dataset, NAME};

/// Values that a cell needs before a trend in it means something.
const LEAST_FOR_DRIFT: usize = 8;
/// Drift is claimed for a cell beyond this normal quantile (two-sided 1 %); with
/// thousands of cells some are beyond by chance, so a share of cells must be.
const DRIFT_Z: f64 = 2.575_829;
const DRIFT_SHARE: f64 = 0.05;
/// Equal sequences shorter than this happen.
const LEAST_FOR_DUPLICATE: usize = 4;
/// Labels that say what machine it was.
const MACHINE_LABELS: [&str; 14] = [
    "environment",
    "host",
    "hostname",
    "machine",
    "cpu",
    "goos",
    "goarch",
    "arch",
    "os",
    "kernel",
    "kernel_version",
    "qemu",
    "accel",
    "toolchain",
];
/// Names that a warning lists.
const LISTED: usize = 4;

/// Warnings about the data.
pub(super) fn before(set: &Dataset, roles: &Roles, grouped: &RowGroups) -> Vec<DataWarning> {
    let data = set.data();
    let mut warnings = Vec::new();
    problems(data, &mut warnings);
    environments(data, grouped, &mut warnings);
    for (label, values) in &grouped.of_variant {
        if MACHINE_LABELS.contains(&label.as_str()) {
            let list: Vec<_> = roles
                .variants
                .iter()
                .zip(values)
                .map(|(variant, value)| format!("{variant} {value}"))
                .collect();
            warnings.push(DataWarning {
                code: "mixed-environments",
                text: format!(
                    "The variants were measured in different environments: {label} is {}. The difference may be the machine's.",
                    list.join(", ")
                ),
            });
        } else {
            warnings.push(DataWarning {
                code: "confounded",
                text: format!(
                    "{label} differs between the variants and never inside one ({}): it is taken as a part of the variant.",
                    values.join(", ")
                ),
            });
        }
    }
    for (metric, units) in &grouped.mixed_units {
        warnings.push(DataWarning {
            code: "mixed-units",
            text: format!("{metric} is written in several units ({}); those that are known were converted, others make rows of their own.", units.join(", ")),
        });
    }
    if roles.design() != Design::Paired {
        drift(set, grouped, &mut warnings);
    }
    duplicates(set, roles, grouped, &mut warnings);
    hidden(set, roles, grouped, &mut warnings);
    warnings
}

/// Warnings about the result.
pub(super) fn after(
    metrics: &[MetricInfo],
    rows: &[ComparedRow],
    ask: &CompareOptions,
) -> Vec<DataWarning> {
    let used: BTreeSet<u32> = rows.iter().map(|row| row.metric).collect();
    let unknown: Vec<&str> = used
        .iter()
        .map(|metric| &metrics[*metric as usize])
        .filter(|metric| metric.better.is_none())
        .map(|metric| metric.name.as_str())
        .collect();
    let mut warnings = Vec::new();
    if !unknown.is_empty() {
        warnings.push(DataWarning {
            code: "unknown-direction",
            text: format!(
                "Nobody said whether more or less of it is better: {}. Say it: --better {}=lower.",
                listed(&unknown),
                unknown[0]
            ),
        });
    }
    let cells = || rows.iter().flat_map(|row| row.cells.iter().flatten());
    let single = cells().filter(|cell| cell.values == 1).count();
    if rows.len() > 1 && !metrics.iter().any(|metric| metric.exact) && 2 * single > cells().count()
    {
        let advice = if ask.advise_options {
            " If a label numbers repetitions, say what it is: --block or --boot LABEL; or name the labels that make rows with --by."
        } else {
            ""
        };
        let text = format!("Most rows have one value a variant.{advice}");
        warnings.push(DataWarning { code: "single-values", text });
    }
    let alone = rows.iter().filter(|row| row.cells.iter().flatten().count() < 2).count();
    if alone > 0 {
        warnings.push(DataWarning {
            code: "not-in-both",
            text: format!(
                "{alone} of {} rows have values of one variant only and are not compared.",
                rows.len()
            ),
        });
    }
    warnings
}

fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(LISTED).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(LISTED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn problems(data: &Data, warnings: &mut Vec<DataWarning>) {
    let problems = data.problems();
    if let Some(first) = problems.first() {
        warnings.push(DataWarning {
            code: "unread",
            text: format!(
                "{} line{} could not be read, the first: {}:{}: {}.",
                problems.len(),
                if problems.len() == 1 { "" } else { "s" },
                first.input,
                first.line,
                first.text
            ),
        });
    }
    for (why, count) in data.left_out() {
        warnings.push(DataWarning {
            code: "left-out",
            text: format!("{count} values take no part: {why}."),
        });
    }
}

/// A word about emulated time, wherever a label says so.
fn environments(data: &Data, grouped: &RowGroups, warnings: &mut Vec<DataWarning>) {
    let Some(key) = data.keys.find(b"environment") else { return };
    let used: BTreeSet<u32> = grouped
        .members
        .iter()
        .map(|member| data.settings[data.series[member.series as usize].setting as usize].context)
        .collect();
    let mut found: BTreeSet<Environment> = BTreeSet::new();
    for context in used {
        let labels = data.context_labels(context);
        let word = labels.iter().find(|(known, _)| *known == key).map(|pair| pair.1);
        let value = word.map(|word| serde_json::Value::String(data.words.text(word).into_owned()));
        found.extend(value.and_then(|value| serde_json::from_value::<Environment>(value).ok()));
    }
    for environment in found.into_iter().filter(|environment| environment.is_emulated_time()) {
        let text = environment.sentence().to_owned();
        warnings.push(DataWarning { code: "emulated-time", text });
    }
}

/// Cells whose values rise or fall with their order.
fn drift(set: &Dataset, grouped: &RowGroups, warnings: &mut Vec<DataWarning>) {
    let (mut looked_at, mut drifting) = (0_usize, 0_usize);
    let mut values: Vec<f64> = Vec::new();
    for members in grouped.members.chunk_by(|a, b| (a.row, a.variant) == (b.row, b.variant)) {
        values.clear();
        for member in members {
            values.extend_from_slice(set.values(member.series as usize));
        }
        if values.len() < LEAST_FOR_DRIFT || values.iter().any(|value| !value.is_finite()) {
            continue;
        }
        looked_at += 1;
        drifting += usize::from(drifts(&values));
    }
    if looked_at > 0 && drifting > 0 && drifting as f64 > DRIFT_SHARE * looked_at as f64 {
        warnings.push(DataWarning {
            code: "drift",
            text: format!(
                "Drift: in {drifting} of {looked_at} cells values rise or fall with the order in which they stand. What was measured later is then not comparable with what was measured before; measure the variants in turns, and name the blocks."
            ),
        });
    }
}

/// Kendall's test of a trend, by the normal approximation with its correction
/// for continuity; equal values count for neither side. Long cells are thinned
/// to what is enough to see a trend.
fn drifts(values: &[f64]) -> bool {
    const MOST: usize = 64;
    let step = values.len().div_ceil(MOST);
    let thinned: Vec<f64> = values.iter().step_by(step).copied().collect();
    let mut score = 0_i64;
    for (index, late) in thinned.iter().enumerate() {
        for early in &thinned[..index] {
            score += i64::from(late > early) - i64::from(late < early);
        }
    }
    let n = thinned.len() as f64;
    let sd = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let z = (score.abs() - 1) as f64 / sd;
    z > DRIFT_Z
}

/// The same values in the same order under two variants.
fn duplicates(set: &Dataset, roles: &Roles, grouped: &RowGroups, warnings: &mut Vec<DataWarning>) {
    let mut rows = 0_usize;
    let mut pairs: BTreeSet<(u32, u32)> = BTreeSet::new();
    for members in grouped.members.chunk_by(|a, b| a.row == b.row) {
        let mut found = false;
        for (index, a) in members.iter().enumerate() {
            let values = set.values(a.series as usize);
            if values.len() < LEAST_FOR_DUPLICATE || values.iter().all(|value| *value == values[0])
            {
                continue;
            }
            let same =
                |b: &&Member| b.variant != a.variant && set.values(b.series as usize) == values;
            if let Some(b) = members[index + 1..].iter().take(LISTED * 4).find(same) {
                pairs.insert((a.variant, b.variant));
                found = true;
            }
        }
        rows += usize::from(found);
    }
    for (a, b) in pairs {
        warnings.push(DataWarning {
            code: "duplicated",
            text: format!(
                "{} and {} hold the very same values in the same order in {rows} row(s): was one file copied?",
                roles.variants[a as usize], roles.variants[b as usize]
            ),
        });
    }
}

/// Labels that vary among the values of one cell.
fn hidden(set: &Dataset, roles: &Roles, grouped: &RowGroups, warnings: &mut Vec<DataWarning>) {
    let data = set.data();
    let mut varying: BTreeMap<String, usize> = BTreeMap::new();
    for members in grouped.members.chunk_by(|a, b| (a.row, a.variant) == (b.row, b.variant)) {
        if members.len() < 2 {
            continue;
        }
        let settings = members.iter().map(|member| data.series[member.series as usize].setting);
        let mut values: HashMap<u32, Option<u32>> = HashMap::new();
        let (mut names, mut first) = (BTreeSet::new(), true);
        let mut found: BTreeSet<String> = BTreeSet::new();
        for setting in settings {
            let setting = data.settings[setting as usize];
            names.insert(setting.name);
            let labels = data.context_labels(setting.context);
            for key in 0..data.keys.len() as u32 {
                let value = labels.iter().find(|(known, _)| *known == key).map(|pair| pair.1);
                if first {
                    values.insert(key, value);
                } else if values[&key] != value {
                    found.insert(data.keys.text(key).into_owned());
                }
            }
            first = false;
        }
        if names.len() > 1 {
            found.extend(varying_parts(data, &names));
        }
        found.retain(|label| !roles.not_in_rows.contains(label));
        for label in found {
            *varying.entry(label).or_default() += 1;
        }
    }
    for (label, cells) in varying {
        warnings.push(DataWarning {
            code: "hidden",
            text: format!(
                "Grouping hides a varying setting: {label} varies inside {cells} cell(s). Its differences count as noise; add it to --by, or pick one value with --filter."
            ),
        });
    }
}

/// The parts in which benchmark names differ.
fn varying_parts(data: &Data, names: &BTreeSet<u32>) -> BTreeSet<String> {
    let labels = |name: u32| -> BTreeMap<String, String> {
        let (base, parts) = Data::name_parts(data.words.bytes(name));
        let mut labels =
            BTreeMap::from([(NAME.to_owned(), String::from_utf8_lossy(base).into_owned())]);
        for part in parts {
            let part = String::from_utf8_lossy(part);
            match part.strip_prefix('/').map(|rest| rest.split_once('=').unwrap_or((NAME, rest))) {
                Some((key, value)) => {
                    let known = labels.entry(key.to_owned()).or_default();
                    known.push('/');
                    known.push_str(value);
                }
                None => {
                    drop(labels.insert(crate::data::GOMAXPROCS.to_owned(), part[1..].to_owned()))
                }
            }
        }
        labels
    };
    let mut names = names.iter().map(|name| labels(*name));
    let first = names.next().unwrap_or_default();
    let mut varying = BTreeSet::new();
    for other in names {
        let keys = first.keys().chain(other.keys());
        varying.extend(keys.filter(|key| first.get(*key) != other.get(*key)).cloned());
    }
    varying
}
