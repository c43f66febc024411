//! Variants and sweeps: the same scenario with other values at some keys.

use std::collections::BTreeSet;

use super::node::{ScenarioNode, ScenarioValue, TableReader};

/// A named set of changes.
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) changes: Vec<(String, ScenarioNode)>,
}

/// A point of the sweep.
pub(super) struct SweepPoint {
    pub(super) label: String,
    pub(super) changes: Vec<(String, ScenarioNode)>,
}

fn changes(table: &TableReader<'_>, key: &'static str) -> Vec<(String, ScenarioNode)> {
    let set = table.table(key);
    set.entries().map(|(key, node)| (key.to_owned(), node.clone())).collect()
}

pub(super) fn variants(top: &TableReader<'_>) -> Vec<Variant> {
    let mut names = BTreeSet::new();
    let mut variants = Vec::new();
    for table in top.tables("variant") {
        let name = table.text("name").map(|(name, _)| name.to_owned());
        let changes = changes(&table, "set");
        match name {
            None => table.problem(table.line, "A [[variant]] needs a name"),
            Some(name) => {
                if !names.insert(name.clone()) {
                    table.problem(table.line, format!("name = {name:?}: two variants have it"));
                }
                variants.push(Variant { name, changes });
            }
        }
        table.finish();
    }
    if variants.is_empty() {
        variants.push(Variant { name: "default".to_owned(), changes: Vec::new() });
    }
    variants
}

/// The points of `[sweep]`: every combination of its keys' values.
pub(super) fn points(top: &TableReader<'_>) -> Vec<SweepPoint> {
    let mut points = vec![SweepPoint { label: String::new(), changes: Vec::new() }];
    let table = top.table("sweep");
    for (key, node) in table.entries() {
        let ScenarioValue::List(values) = &node.value else {
            table.wrong(key, node, "must be a list of values");
            continue;
        };
        if values.is_empty() || values.len() > 100 {
            table.wrong(key, node, "must have from 1 to 100 values");
            continue;
        }
        if points.len() * values.len() > 1_000 {
            table.wrong(key, node, "the sweep has more than 1000 points");
            return points;
        }
        let with = |point: &SweepPoint| {
            let (label, changes) = (point.label.clone(), point.changes.clone());
            values
                .iter()
                .map(|value| {
                    let separator = if label.is_empty() { "" } else { ", " };
                    let mut changes = changes.clone();
                    changes.push((key.to_owned(), value.clone()));
                    SweepPoint {
                        label: format!("{label}{separator}{key} = {}", value.shown()),
                        changes,
                    }
                })
                .collect::<Vec<_>>()
        };
        points = points.iter().flat_map(with).collect();
    }
    points
}

/// Puts `value` at the dotted `key`. In a list of tables a number chooses one
/// (`vm.0.vcpus`); without it all are changed. Tables that are not there are made.
pub(super) fn set(tree: &mut ScenarioNode, key: &str, value: &ScenarioNode) -> Result<(), String> {
    let steps: Vec<&str> = key.split('.').collect();
    if steps.iter().any(|step| step.is_empty()) || steps.len() > 8 {
        return Err(format!("{key:?} is no key: write it as \"host.kvm.ple\""));
    }
    let top = steps[0];
    if !["host", "vm", "workload", "duration_ms", "warmup_ms", "start"].contains(&top) {
        return Err(format!(
            "{key:?} can't be varied: host, vm, workload, duration_ms, warmup_ms and start can"
        ));
    }
    walk(tree, &steps, key, value)
}

fn walk(
    node: &mut ScenarioNode,
    steps: &[&str],
    key: &str,
    value: &ScenarioNode,
) -> Result<(), String> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value.clone();
        return Ok(());
    };
    match &mut node.value {
        ScenarioValue::Table(keys) => {
            let empty = || ScenarioNode {
                line: value.line,
                value: ScenarioValue::Table(Default::default()),
            };
            walk(keys.entry((*step).to_owned()).or_insert_with(empty), rest, key, value)
        }
        ScenarioValue::List(items) => match step.parse::<usize>() {
            Ok(index) => match items.get_mut(index) {
                Some(item) => walk(item, rest, key, value),
                None => Err(format!("{key:?}: there is no number {index}, counted from 0")),
            },
            Err(_) => items.iter_mut().try_for_each(|item| walk(item, steps, key, value)),
        },
        _ => Err(format!("{key:?}: there is nothing below {:?}", node.shown())),
    }
}
