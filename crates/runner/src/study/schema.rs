//! What editors are told of a study beyond the types of its tables: names of workloads
//! with their parameters, built-in variants, host settings.

use std::borrow::Cow;

use host::settings::SETTINGS;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use vmconfig::builtin::VARIANTS;
use workload::{CATALOGUE, Param, ParamKind, ParamValue};

/// Stands for the name of a workload of the catalogue.
pub(super) struct WorkloadName;

impl JsonSchema for WorkloadName {
    fn schema_name() -> Cow<'static, str> {
        "WorkloadName".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        for entry in CATALOGUE {
            let params: Map<String, Value> =
                entry.params.iter().map(|param| (param.name.to_owned(), describe(param))).collect();
            let params = json!({ "properties": params, "additionalProperties": false });
            generator.definitions_mut().insert(params_name(entry.name), params);
        }
        one_of(CATALOGUE.iter().map(|entry| (entry.name, entry.summary)))
    }
}

/// Stands for the name of a built-in variant.
pub(super) struct BuiltinVariant;

impl JsonSchema for BuiltinVariant {
    fn schema_name() -> Cow<'static, str> {
        "BuiltinVariant".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        one_of(VARIANTS.iter().map(|variant| (variant.name, variant.help)))
    }
}

/// Stands for settings of the host by id, and whether modules may be loaded again for
/// them.
pub(super) struct KnownHostSettings;

impl JsonSchema for KnownHostSettings {
    fn schema_name() -> Cow<'static, str> {
        "HostSettings".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<ParamValue>();
        let mut known: Map<String, Value> = SETTINGS
            .iter()
            .map(|setting| {
                let unit = match setting.unit {
                    "" => String::new(),
                    unit => format!(", {unit}"),
                };
                let about = format!("{} ({}{unit})", setting.what, setting.values);
                // Draft 7 looks at nothing beside a `$ref`.
                (setting.id.to_owned(), json!({ "description": about, "allOf": [value] }))
            })
            .collect();
        let reload = "Whether modules may be loaded again where a setting needs it.";
        known.insert("reload".to_owned(), json!({ "description": reload, "type": "boolean" }));
        json_schema!({ "type": "object", "properties": known, "additionalProperties": false })
    }
}

/// One of these, each with what it is.
fn one_of<'a>(choices: impl Iterator<Item = (&'a str, &'a str)>) -> Schema {
    let choices: Vec<Value> =
        choices.map(|(name, about)| json!({ "const": name, "description": about })).collect();
    json_schema!({ "type": "string", "oneOf": choices })
}

/// The definition of a workload's parameters.
fn params_name(workload: &str) -> String {
    format!("params-of-{workload}")
}

/// Lets `params` be those of the workload that `run` names.
pub(super) fn params_of_run(schema: &mut Schema) {
    params_of("run", schema);
}

/// Lets `params` be those of the workload that `workload` names.
pub(super) fn params_of_workload(schema: &mut Schema) {
    params_of("workload", schema);
}

fn params_of(key: &str, schema: &mut Schema) {
    let rule = |name: &str| {
        let params = format!("#/definitions/{}", params_name(name));
        json!({
            "if": { "properties": { key: { "const": name } }, "required": [key] },
            "then": { "properties": { "params": { "$ref": params } } },
        })
    };
    let rules: Vec<Value> = CATALOGUE.iter().map(|entry| rule(entry.name)).collect();
    schema.insert("allOf".to_owned(), rules.into());
}

/// Lets `run` be any name where the workload is not run.
pub(super) fn any_run_if_later(schema: &mut Schema) {
    let run = schema.pointer_mut("/properties/run").expect("it has a run");
    let known = std::mem::replace(run, json!({ "type": "string" }));
    let rule = json!({
        "if": { "not": { "required": ["later"] } },
        "then": { "properties": { "run": known } },
    });
    let rules = schema.pointer_mut("/allOf").and_then(Value::as_array_mut);
    rules.expect("parameters have rules").push(rule);
}

fn describe(param: &Param) -> Value {
    let unit = param.unit.map(|unit| format!(", {unit}")).unwrap_or_default();
    let about = format!("{} (default: {}{unit})", param.help, param.default);
    let mut schema = match param.kind {
        ParamKind::Int(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        ParamKind::Bool => json!({ "type": "boolean" }),
        ParamKind::Choice(words) => json!({ "enum": words }),
        ParamKind::Name => json!({ "type": "string", "pattern": "^[a-z0-9-]+$" }),
    };
    schema["description"] = about.into();
    schema
}
