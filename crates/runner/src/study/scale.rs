//! The sizes of a study: written in full, with smaller ones beside it.

use super::file::{StudyFile, VariantTable};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Makes `study` that of the size `name`; a message if there is none, or if it
/// names something that is not there.
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
    let mut named = scale.params.keys().chain(scale.background.keys());
    if let Some(unknown) = named.find(|name| !labels.contains(name)) {
        return Err(format!("[scale.{name}] names {unknown:?}, which is no workload's label"));
    }
    let variant = |table: &VariantTable| table.name.clone().or_else(|| table.builtin.clone());
    let variants = study.variant.iter().filter_map(variant);
    let loads = study.load.iter().map(|load| load.name.clone());
    let parts: Vec<String> = labels.into_iter().chain(loads).chain(variants).collect();
    if let Some(unknown) = scale.without.iter().find(|name| !parts.contains(name)) {
        return Err(format!(
            "[scale.{name}] leaves out {unknown:?}, which is no workload, load or variant"
        ));
    }
    for (named, patch) in scale.variants {
        let mut tables = study.variant.iter_mut();
        let Some(table) = tables.find(|table| variant(table).as_ref() == Some(&named)) else {
            return Err(format!("[scale.{name}] names {named:?}, which is no variant"));
        };
        table.vm = table.vm.overlay(&patch);
    }
    for (load, patch) in scale.vms {
        let tables = study.load.iter_mut().filter(|table| table.name == load);
        let Some(vms) = tables.filter_map(|table| table.vms.as_mut()).next() else {
            return Err(format!("[scale.{name}] names {load:?}, which is no load with other VMs"));
        };
        vms.count = patch.count.unwrap_or(vms.count);
        vms.params.extend(patch.params);
        vms.vm = vms.vm.overlay(&patch.vm);
        vms.each = patch.each.unwrap_or_else(|| std::mem::take(&mut vms.each));
    }
    study.title = format!("{} ({name} size)", study.title);
    study.budget = study.budget.overlay(scale.budget);
    let wrong =
        |key: &str, error: &toml::de::Error| format!("[scale.{name}] {key}: {}", error.message());
    study.stability =
        overlay(study.stability, scale.stability).map_err(|error| wrong("stability", &error))?;
    study.ground = overlay(study.ground, scale.ground).map_err(|error| wrong("ground", &error))?;
    study.host.extend(scale.host);
    study.vm = study.vm.overlay(&scale.vm);
    study.measured = study.measured.overlay(&scale.measured);
    study.network = study.network.overlay(&scale.network);
    let stays = |name: &String| !scale.without.contains(name);
    study.workload.retain(|table| stays(&label(table)));
    study.load.retain(|table| stays(&table.name));
    for table in &mut study.variant {
        table.params.retain(|label, _| stays(label));
    }
    study.variant.retain(|table| variant(table).is_none_or(|name| stays(&name)));
    study.published.retain(|table| {
        let variants = table.variant.iter().chain(&table.than);
        let mut ordered = table.order.iter().flat_map(|order| order.split_whitespace());
        stays(&table.workload)
            && variants.chain(&table.load).all(stays)
            && ordered.all(|name| !scale.without.iter().any(|without| without == name))
    });
    for table in &mut study.workload {
        if let Some(params) = scale.params.get(&label(table)) {
            table.params.extend(params.clone());
            // What was meant for the full size.
            table.limit_s = None;
        }
        if let Some(params) = scale.background.get(&label(table)) {
            let Some(background) = &mut table.background else {
                return Err(format!(
                    "[scale.{name}] names the background of {:?}, which has none",
                    label(table)
                ));
            };
            background.params.extend(params.clone());
        }
        table.invocations = scale.invocations.or(table.invocations);
    }
    Ok(())
}

fn overlay<T: Serialize + DeserializeOwned>(
    rules: T,
    over: toml::Table,
) -> Result<T, toml::de::Error> {
    let mut table = toml::Table::try_from(rules).expect("limits are a table");
    table.extend(over);
    table.try_into()
}
