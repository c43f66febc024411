//! Asking conditions of VMs.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use cel::common::types::CelString;
use cel::common::value::Val;
use cel::extractors::This;
use cel::{Env, ExecutionError};
use regex_lite::Regex;
use serde_json::{Value, json};
use topology::PcpuSet;
use vmconfig::ParsedVm;
use vmconfig::source::{LineColumn, SourceText};

use super::file::{SiteRule, SiteRules};
use super::place::ValueSpans;
use super::variables::{Variables, decide};
use super::{value, view};
use crate::context::{Context, HostLookup};
use crate::finding::{Finding, Severity};
use crate::rule::ConfigFormat;
use crate::vm::Vm;

/// Steps that one condition may take on one VM.
const MAX_STEPS: u64 = 1_000_000;
/// Values that are told of one finding.
const MAX_NOTES: usize = 4;
/// Bytes of a value or a reason that are told.
const MAX_SHOWN: usize = 200;

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// The rules of some files, ready to be asked of the VMs of one text.
pub(crate) struct PreparedRules<'a> {
    /// At least one.
    rules: Vec<&'a SiteRule>,
    /// All that is the same for each VM: the functions.
    functions: cel::Context<'static, 'static>,
    host: Option<&'a Value>,
    names_object: bool,
    names_kept: bool,
}

impl<'a> PreparedRules<'a> {
    /// `None` where the files hold no rules.
    pub(crate) fn new(sets: &[&'a SiteRules], context: &'a Context) -> Option<Self> {
        let rules: Vec<&SiteRule> = sets.iter().flat_map(|set| &set.rules).collect();
        let names = |named: fn(&SiteRule) -> bool| rules.iter().copied().any(named);
        let (names_object, names_kept) =
            (names(|rule| rule.condition.names_object), names(|rule| rule.condition.names_kept));
        let machine = context.machine.as_ref().filter(|_| names(|rule| rule.condition.names_host));
        let host = machine.map(HostLookup::json);
        (!rules.is_empty()).then(|| {
            let patterns = sets.iter().map(|set| Arc::clone(&set.patterns)).collect();
            Self { rules, functions: functions(patterns), host, names_object, names_kept }
        })
    }

    /// Applies the rules to one VM.
    pub(crate) fn check(&self, file: &str, vm: &Vm, source: &SourceText<'_>) -> Vec<Finding> {
        let Some(parsed) = &vm.parsed else { return vec![self.unread(file, vm, source)] };
        let variables = self.variables(file, vm, parsed);
        // Of the functions' own lifetime nothing is asked.
        let functions: &cel::Context<'_, '_> = &self.functions;
        let mut context = functions.new_inner_scope();
        for (name, value) in &variables.0 {
            context.add_variable_as_val(*name, value::of(value));
        }
        let object = vm.kubevirt.as_ref().map(|kubevirt| &kubevirt.object);
        let longest = variables.0.values().map(|value| longest(value)).max().unwrap_or(0);
        let names = ValueSpans { vm, parsed, source, object };
        let asked = RuleInput { context, variables: &variables, names, longest };
        let mut findings = Vec::new();
        for rule in &self.rules {
            let condition = &rule.condition;
            if condition.names_object && object.is_none()
                || condition.names_host && self.host.is_none()
            {
                continue;
            }
            let found = asked.ask(rule);
            findings.extend(found.into_iter().map(|told| Finding {
                rule: Cow::Owned(rule.id.clone()),
                severity: told.severity,
                file: told.place.file_or(file),
                vm: vm.name.clone(),
                place: told.place,
                message: told.message,
                notes: told.notes,
                help: rule.help.clone().into(),
                live: None,
                fix: None,
            }));
        }
        findings
    }

    fn variables<'v>(&'v self, file: &str, vm: &Vm, parsed: &ParsedVm) -> Variables<'v> {
        let format = match vm.format {
            ConfigFormat::Libvirt => "libvirt",
            ConfigFormat::Qemu => "qemu",
            ConfigFormat::Kubevirt => "kubevirt",
            ConfigFormat::Proxmox => "proxmox",
            ConfigFormat::Running => "running",
        };
        let object = vm.kubevirt.as_ref().filter(|_| self.names_object);
        let kept = if self.names_kept { json!(parsed.kept) } else { json!([]) };
        Variables(BTreeMap::from([
            ("vm", Cow::Owned(view::of(&parsed.settings))),
            ("vcpus", Cow::Owned(json!(parsed.settings.vcpus()))),
            ("name", Cow::Owned(json!(vm.name))),
            ("file", Cow::Owned(json!(file))),
            ("format", Cow::Owned(json!(format))),
            ("kept", Cow::Owned(kept)),
            ("object", Cow::Owned(object.map_or(Value::Null, |one| one.object.json()))),
            ("host", self.host.map_or(Cow::Owned(Value::Null), Cow::Borrowed)),
        ]))
    }

    /// That no rule was applied to a VM, told in the name of the first.
    fn unread(&self, file: &str, vm: &Vm, source: &SourceText<'_>) -> Finding {
        let number = self.rules.len();
        Finding {
            rule: Cow::Owned(self.rules[0].id.clone()),
            severity: Severity::Warning,
            file: file.to_owned(),
            vm: vm.name.clone(),
            place: source.place(vm.head),
            message: format!(
                "Neither this nor another of the site's {number} rules was applied: what stands \
                 here is not read as a whole VM"
            ),
            notes: Vec::new(),
            help: "Give lint the VM itself".into(),
            live: None,
            fix: None,
        }
    }
}

/// One VM, ready to be asked.
struct RuleInput<'v> {
    context: cel::Context<'v, 'v>,
    variables: &'v Variables<'v>,
    names: ValueSpans<'v>,
    /// Elements of the longest list, or 16 bytes of the longest text.
    longest: u64,
}

/// What one rule says of one VM.
struct RuleAnswer {
    severity: Severity,
    place: LineColumn,
    message: String,
    notes: Vec<String>,
}

impl<'v> RuleInput<'v> {
    fn ask(&self, rule: &SiteRule) -> Vec<RuleAnswer> {
        let Some(each) = &rule.each else {
            return self.ask_one(rule, &self.context, None).into_iter().collect();
        };
        let items: Vec<(String, Box<dyn Val + 'v>)> = match self.variables.at(each) {
            Some(Value::Array(items)) => {
                let numbered = items.iter().enumerate();
                numbered.map(|(number, item)| (number.to_string(), value::of(item))).collect()
            }
            Some(Value::Object(members)) => {
                let item = |key: &'v String| -> (String, Box<dyn Val + 'v>) {
                    (key.clone(), Box::new(CelString::from(key.as_str())))
                };
                members.keys().map(item).collect()
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
            context.add_variable_as_val("item", item);
            let path = format!("{each}.{place}");
            all.extend(self.ask_one(rule, &context, Some(&path)));
        }
        all
    }

    /// That a rule may take too many steps, if it may.
    fn too_long(&self, rule: &SiteRule, times: usize) -> Option<RuleAnswer> {
        if !rule.condition.loops && times <= 1 {
            return None;
        }
        let length = |path: &str| match self.variables.at(path)? {
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
    fn undecided(&self, rule: &SiteRule, reason: &str) -> RuleAnswer {
        RuleAnswer {
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
    ) -> Option<RuleAnswer> {
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
                    let value = self.variables.at(path);
                    let plain = value.filter(|value| !value.is_object() && !value.is_array());
                    if let Some(value) = plain.filter(|_| notes.len() < MAX_NOTES) {
                        notes.push(format!("{path} is {}", shown(&value.to_string())));
                    }
                }
                if !rule.why.is_empty() {
                    notes.push(rule.why.clone());
                }
                let place = self.names.place(&paths, self.variables);
                let message = rule.text.clone();
                Some(RuleAnswer { severity: rule.severity, place, message, notes })
            }
            Err(reason) => Some(self.undecided(rule, &reason)),
        }
    }
}

/// A text, cut where it gets long.
fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
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
