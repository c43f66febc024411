//! Asking conditions of VMs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::objects::{Key, Map};
use cel::{Env, ExecutionError, IdedExpr};
use regex_lite::Regex;
use serde_json::{Value, json};
use topology::PcpuSet;
use vmconfig::Parsed;
use vmconfig::source::{Place, Source};

use super::file::{Rules, SiteRule};
use super::place::{Names, value_at};
use super::view;
use crate::context::Context;
use crate::finding::{Finding, Severity};
use crate::rule::Format;
use crate::vm::Vm;

/// Steps that one condition may take on one VM.
const MAX_STEPS: u64 = 1_000_000;
/// Values that are told of one finding.
const MAX_NOTES: usize = 4;
/// Bytes of a value or a reason that are told.
const MAX_SHOWN: usize = 200;

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// One VM, ready to be asked.
struct Asked<'a> {
    context: cel::Context<'static, 'static>,
    variables: Value,
    names: Names<'a>,
    has_object: bool,
    has_host: bool,
    /// Elements of the longest list, or 16 bytes of the longest text.
    longest: u64,
}

/// Applies the rules of some files to one VM.
pub(crate) fn check(
    sets: &[&Rules],
    file: &str,
    vm: &Vm,
    parsed: &Parsed,
    source: &Source<'_>,
    context: &Context,
) -> Vec<Finding> {
    let asked = Asked::new(sets, file, vm, parsed, source, context);
    let mut findings = Vec::new();
    for rule in sets.iter().flat_map(|set| &set.rules) {
        let condition = &rule.condition;
        if condition.names_object && !asked.has_object || condition.names_host && !asked.has_host {
            continue;
        }
        let found = asked.ask(rule);
        findings.extend(found.into_iter().map(|told| Finding {
            rule: Cow::Owned(rule.id.clone()),
            severity: told.severity,
            file: file.to_owned(),
            vm: vm.name.clone(),
            place: told.place,
            message: told.message,
            notes: told.notes,
            help: rule.help.clone(),
            live: None,
            fix: None,
        }));
    }
    findings
}

/// What one rule says of one VM.
struct Told {
    severity: Severity,
    place: Place,
    message: String,
    notes: Vec<String>,
}

impl<'a> Asked<'a> {
    fn new(
        sets: &[&Rules],
        file: &str,
        vm: &'a Vm,
        parsed: &'a Parsed,
        source: &'a Source<'a>,
        context: &Context,
    ) -> Self {
        let format = match vm.format {
            Format::Libvirt => "libvirt",
            Format::Qemu => "qemu",
            Format::Kubevirt => "kubevirt",
            Format::Running => "running",
        };
        let wants =
            |named: fn(&SiteRule) -> bool| sets.iter().any(|set| set.rules.iter().any(named));
        let object = vm.kubevirt.as_ref().map(|kubevirt| &kubevirt.object);
        let object_json = object.filter(|_| wants(|rule| rule.condition.names_object));
        let machine = context.machine.as_ref();
        let host = machine.filter(|_| wants(|rule| rule.condition.names_host));
        let host = host.and_then(|machine| serde_json::to_value(&machine.host).ok());
        let variables = json!({
            "vm": view::of(&parsed.settings),
            "vcpus": parsed.settings.vcpus(),
            "name": vm.name,
            "file": file,
            "format": format,
            "kept": parsed.kept,
            "object": object_json.map(|object| object.json()),
            "host": host,
        });
        let patterns = sets.iter().map(|set| Arc::clone(&set.patterns)).collect();
        let mut asked = functions(patterns);
        for (name, value) in variables.as_object().into_iter().flatten() {
            asked.add_variable_from_value(name.clone(), value_of(value));
        }
        let longest = longest(&variables);
        let names = Names { vm, parsed, source, object };
        Self {
            context: asked,
            names,
            has_object: object.is_some(),
            has_host: machine.is_some(),
            variables,
            longest,
        }
    }

    fn ask(&self, rule: &SiteRule) -> Vec<Told> {
        let Some(each) = &rule.each else {
            return self.ask_one(rule, &self.context, None).into_iter().collect();
        };
        let items: Vec<(String, Value)> = match value_at(&self.variables, each) {
            Some(Value::Array(items)) => {
                let numbered = items.iter().enumerate();
                numbered.map(|(number, item)| (number.to_string(), item.clone())).collect()
            }
            Some(Value::Object(members)) => {
                members.keys().map(|key| (key.clone(), json!(key))).collect()
            }
            // A list of the object that this VM hasn't.
            _ => return Vec::new(),
        };
        if let Some(told) = self.too_long(rule, items.len()) {
            return vec![told];
        }
        let mut all = Vec::new();
        for (place, item) in items {
            let mut context = self.context.new_inner_scope();
            context.add_variable_from_value("item", value_of(&item));
            let path = format!("{each}.{place}");
            all.extend(self.ask_one(rule, &context, Some(&path)));
        }
        all
    }

    /// That a rule may take too many steps, if it may.
    fn too_long(&self, rule: &SiteRule, times: usize) -> Option<Told> {
        if !rule.condition.loops && times <= 1 {
            return None;
        }
        let length = |path: &str| match value_at(&self.variables, path)? {
            Value::Array(items) => Some(items.len() as u64),
            Value::Object(members) => Some(members.len() as u64),
            _ => None,
        };
        let steps = rule.condition.cost(&length, self.longest).saturating_mul(times as u64);
        (steps > MAX_STEPS).then(|| {
            let reason = format!("it may take {steps} steps here, more than {MAX_STEPS}");
            self.undecided(rule, &reason)
        })
    }

    /// A rule that can't be decided is never silent.
    fn undecided(&self, rule: &SiteRule, reason: &str) -> Told {
        Told {
            severity: rule.severity.max(Severity::Warning),
            place: self.names.source.place(self.names.vm.head),
            message: format!("The rule could not be decided: {}", shown(reason)),
            notes: vec![format!("{}:{}: {}", rule.file, rule.line, rule.text)],
        }
    }

    fn ask_one(
        &self,
        rule: &SiteRule,
        context: &cel::Context<'_, '_>,
        item: Option<&str>,
    ) -> Option<Told> {
        if item.is_none()
            && let Some(told) = self.too_long(rule, 1)
        {
            return Some(told);
        }
        match decide(rule.condition.expression(), context) {
            Ok(false) => None,
            Ok(true) => {
                let paths = self.names.named(rule.condition.expression(), context, item);
                let mut notes = Vec::new();
                for path in &paths {
                    let value = value_at(&self.variables, path);
                    let plain = value.filter(|value| !value.is_object() && !value.is_array());
                    if let Some(value) = plain.filter(|_| notes.len() < MAX_NOTES) {
                        notes.push(format!("{path} is {}", shown(&value.to_string())));
                    }
                }
                if !rule.why.is_empty() {
                    notes.push(rule.why.clone());
                }
                let place = self.names.place(&paths, &self.variables);
                let message = rule.text.clone();
                Some(Told { severity: rule.severity, place, message, notes })
            }
            Err(reason) => Some(self.undecided(rule, &reason)),
        }
    }
}

/// What a condition says, or why it says nothing.
pub(super) fn decide(expr: &IdedExpr, context: &cel::Context<'_, '_>) -> Result<bool, String> {
    match cel::Value::resolve(expr, context) {
        Ok(cel::Value::Bool(decided)) => Ok(decided),
        Ok(other) => Err(format!("it is {}, not bool", other.type_of())),
        Err(error) => Err(error.to_string()),
    }
}

/// A text, cut where it gets long.
fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A value of JSON as CEL has it.
pub(super) fn value_of(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(on) => cel::Value::Bool(*on),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => cel::Value::Int(number),
            (_, Some(number), _) => cel::Value::UInt(number),
            (.., number) => cel::Value::Float(number.unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(value_of).collect())),
        Value::Object(members) => {
            let entry = |(key, value): (&String, &Value)| {
                (Key::String(Arc::new(key.clone())), value_of(value))
            };
            let map: HashMap<Key, cel::Value> = members.iter().map(entry).collect();
            cel::Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// The longest list of a value; 16 bytes of a text are as one element.
fn longest(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64 / 16,
        Value::Array(items) => items.iter().map(longest).max().unwrap_or(0).max(items.len() as u64),
        Value::Object(members) => {
            members.values().map(longest).max().unwrap_or(0).max(members.len() as u64)
        }
        _ => 0,
    }
}

/// The functions beside those of CEL's standard.
fn functions(patterns: Vec<Arc<HashMap<String, Regex>>>) -> cel::Context<'static, 'static> {
    type Text = Arc<String>;
    fn set(text: &str) -> Result<PcpuSet, ExecutionError> {
        text.parse().map_err(|error| ExecutionError::function_error("numbers", error))
    }
    let mut context = cel::Context::with_env(Arc::clone(&ENVIRONMENT));
    let added = [
        context.add_function("matches", move |text: This<Text>, pattern: Text| {
            let known = patterns.iter().find_map(|set| set.get(pattern.as_str()));
            known.map(|regex| regex.is_match(&text.0)).ok_or_else(|| {
                ExecutionError::function_error("matches", "the pattern is not written out")
            })
        }),
        context.add_function("within", |one: This<Text>, other: Text| {
            Ok::<bool, ExecutionError>(set(&one.0)?.is_subset(&set(&other)?))
        }),
        context.add_function("overlaps", |one: This<Text>, other: Text| {
            Ok::<bool, ExecutionError>(!set(&one.0)?.is_disjoint(&set(&other)?))
        }),
        context.add_function("count", |one: This<Text>| {
            let count = set(&one.0)?.len();
            Ok::<i64, ExecutionError>(i64::try_from(count).unwrap_or(i64::MAX))
        }),
    ];
    debug_assert!(added.iter().all(Result::is_ok), "none of them is in the standard");
    context
}

/// That no rule of a site's own was applied to a VM, told in the name of the first.
pub(crate) fn unread(sets: &[&Rules], file: &str, vm: &Vm, source: &Source<'_>) -> Option<Finding> {
    let rule = sets.iter().find_map(|set| set.rules.first())?;
    let number: usize = sets.iter().map(|set| set.rules.len()).sum();
    Some(Finding {
        rule: Cow::Owned(rule.id.clone()),
        severity: Severity::Warning,
        file: file.to_owned(),
        vm: vm.name.clone(),
        place: source.place(vm.head),
        message: format!(
            "Neither this nor another of the site's {number} rules was applied: what stands here \
             is not read as a whole VM"
        ),
        notes: Vec::new(),
        help: "Give lint the VM itself".to_owned(),
        live: None,
        fix: None,
    })
}
