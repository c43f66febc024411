//! The sizes of a study: written in full, with smaller ones beside it.

use std::collections::BTreeMap;

use serde::Deserialize;
use vmconfig::VmPatch;

use super::NetworkPatch;
use super::file::{BudgetTable, StudyFile};

/// What a size changes of the study in full.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScaleTable {
    #[serde(default)]
    pub(super) budget: BudgetTable,
    #[serde(default)]
    pub(super) vm: VmPatch,
    #[serde(default)]
    pub(super) network: NetworkPatch,
    /// Parameters by workload label, laid over the study's.
    #[serde(default)]
    pub(super) params: BTreeMap<String, BTreeMap<String, toml::Value>>,
    /// Labels of workloads that it leaves out.
    #[serde(default)]
    pub(super) without: Vec<String>,
    pub(super) invocations: Option<u32>,
}

/// Makes `study` that of the size `name`; a message if there is none, or if it
/// names a workload that is not there.
pub(super) fn apply(study: &mut StudyFile, name: &str) -> Result<(), String> {
    let Some(scale) = study.scale.remove(name) else {
        let known: Vec<&str> = study.scale.keys().map(String::as_str).collect();
        return Err(match known.as_slice() {
            [] => format!("No [scale.{name}]: this study has one size only"),
            known => format!("No [scale.{name}]: there is {}", known.join(", ")),
        });
    };
    let label = |table: &super::file::WorkloadTable| {
        table.label.clone().unwrap_or_else(|| table.run.clone())
    };
    let labels: Vec<String> = study.workload.iter().map(label).collect();
    let mut named = scale.params.keys().chain(&scale.without);
    if let Some(unknown) = named.find(|name| !labels.contains(name)) {
        return Err(format!("[scale.{name}] names {unknown:?}, which is no workload's label"));
    }
    study.title = format!("{} ({name} size)", study.title);
    study.budget = study.budget.overlay(scale.budget);
    study.vm = study.vm.overlay(&scale.vm);
    study.network = study.network.overlay(&scale.network);
    study.workload.retain(|table| !scale.without.contains(&label(table)));
    study.published.retain(|table| !scale.without.contains(&table.workload));
    for table in &mut study.workload {
        if let Some(params) = scale.params.get(&label(table)) {
            table.params.extend(params.clone());
            // What was meant for the full size.
            table.limit_s = None;
        }
        table.invocations = scale.invocations.or(table.invocations);
    }
    Ok(())
}
