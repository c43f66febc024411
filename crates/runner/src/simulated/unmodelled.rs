//! What a study changes and the model lacks: where a variant's scenario is the baseline's,
//! the simulator would say "no difference" of what it has never played.

use serde_json::Value;
use topology::Host;

use super::scenario;
use crate::plan::{PlanVariant, PlanWorkload, StudyPlan};
use crate::study::HostLoad;

/// Names and words for people, and what follows from the rest.
const NO_SETTINGS: [&str; 5] = ["name", "about", "summary", "aa_of", "environment"];

/// Names that a reason lists, of however many.
const SHOWN_KEYS: usize = 6;

/// The variants that are the baseline in every cell, each with the reason for leaving it
/// out. An A/A arm is what it is meant to be.
pub(super) fn variants(plan: &StudyPlan, host: &Host) -> Vec<(String, String)> {
    let candidates = plan.variants.iter().filter(|variant| variant.aa_of.is_none());
    candidates
        .filter(|variant| {
            let cells = plan
                .workloads
                .iter()
                .flat_map(|workload| plan.loads.iter().map(move |load| (workload, load)));
            let mut reasons =
                cells.map(|(workload, load)| cell(plan, host, load, variant, workload));
            variant.name != plan.baseline && reasons.all(|reason| reason.is_some())
        })
        .filter_map(|variant| {
            let baseline = baseline(plan)?;
            Some((variant.name.clone(), reason(plan, &changed(baseline, variant))))
        })
        .collect()
}

/// Why a cell says nothing: it differs from the baseline's, in nothing that the model has.
pub(super) fn cell(
    plan: &StudyPlan,
    host: &Host,
    load: &HostLoad,
    variant: &PlanVariant,
    workload: &PlanWorkload,
) -> Option<String> {
    let baseline = baseline(plan)?;
    if variant.name == baseline.name || variant.aa_of.is_some() {
        return None;
    }
    let other = format!("params.{}.", workload.label);
    let mut keys = changed(baseline, variant);
    keys.retain(|key| !key.starts_with("params.") || key.starts_with(&other));
    let played = |variant| scenario::played(plan, host, load, variant, workload).ok();
    let is_same = variant.left_out == baseline.left_out && played(variant)? == played(baseline)?;
    // What is the same in the study too may be the same here.
    (is_same && !keys.is_empty()).then(|| reason(plan, &keys))
}

fn baseline(plan: &StudyPlan) -> Option<&PlanVariant> {
    plan.variants.iter().find(|variant| variant.name == plan.baseline)
}

fn reason(plan: &StudyPlan, keys: &[String]) -> String {
    let (shown, rest) = keys.split_at(keys.len().min(SHOWN_KEYS));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    format!(
        "not in the model: what makes it differ from {:?} is {}{more}, of which the simulator has nothing",
        plan.baseline,
        shown.join(", ")
    )
}

/// The settings in which two variants differ, as a study names them.
fn changed(one: &PlanVariant, other: &PlanVariant) -> Vec<String> {
    let json = |variant: &PlanVariant| serde_json::to_value(variant).unwrap_or_default();
    let mut keys = Vec::new();
    differences("", &json(one), &json(other), &mut keys);
    keys
}

fn differences(path: &str, one: &Value, other: &Value, keys: &mut Vec<String>) {
    if one == other {
        return;
    }
    // What one of the two does not have is an empty table beside the other's.
    let empty = serde_json::Map::new();
    let table = |value: &Value, beside: &Value| match value {
        Value::Object(table) => Some(table.clone()),
        Value::Null if beside.is_object() => Some(empty.clone()),
        _ => None,
    };
    let (Some(left), Some(right)) = (table(one, other), table(other, one)) else {
        return keys.push(path.to_owned());
    };
    let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let below = match (path, name.as_str()) {
            ("", key) if NO_SETTINGS.contains(&key) => continue,
            ("vm", "name") => continue,
            ("", "spec") => "vm".to_owned(),
            ("", "host_settings") => "host".to_owned(),
            ("", key) => key.to_owned(),
            (path, key) => format!("{path}.{key}"),
        };
        let value = |table: &serde_json::Map<String, Value>| {
            table.get(name).cloned().unwrap_or(Value::Null)
        };
        differences(&below, &value(&left), &value(&right), keys);
    }
}
