//! Parameters: what a study gives, checked against the catalogue's table.

use crate::guest_facts::GuestFacts;
use crate::param::{Param, ParamKind, ParamValue};
use std::collections::BTreeMap;

/// A benchmark's parameters, complete and checked; made by
/// [`CatalogueEntry::resolve`](crate::CatalogueEntry::resolve).
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    values: BTreeMap<&'static str, Option<ParamValue>>,
}

/// Error type for [`CatalogueEntry::resolve`](crate::CatalogueEntry::resolve).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParamError {
    /// The benchmark has no such parameter.
    #[error("{workload} has no parameter {key:?}{}", did_you_mean(near.as_deref(), known))]
    Unknown {
        /// The benchmark.
        workload: &'static str,
        /// The key that was given.
        key: String,
        /// The most similar parameter, if one is similar.
        near: Option<String>,
        /// All parameters.
        known: Vec<&'static str>,
    },
    /// The value has the wrong type or lies outside what is allowed.
    #[error("{workload}: {key} = {value} is not {allowed}{}", did_you_mean(near.as_deref(), &[]))]
    Value {
        /// The benchmark.
        workload: &'static str,
        /// The parameter.
        key: &'static str,
        /// The value that was given.
        value: ParamValue,
        /// What is allowed, to read after "is not".
        allowed: String,
        /// The most similar choice, if one is similar.
        near: Option<String>,
    },
}

impl ParamError {
    /// The parameter that is wrong, as the study writes it.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Unknown { key, .. } => key,
            Self::Value { key, .. } => key,
        }
    }
}

impl Params {
    /// What a study gives for the parameters of a benchmark, checked, with the
    /// defaults of the others.
    pub(crate) fn resolve(
        workload: &'static str,
        params: &'static [Param],
        given: &BTreeMap<String, ParamValue>,
    ) -> Result<Self, ParamError> {
        for key in given.keys() {
            if params.iter().all(|param| param.name != key) {
                return Err(ParamError::Unknown {
                    workload,
                    key: key.clone(),
                    near: near(key, params.iter().map(|param| param.name)),
                    known: params.iter().map(|param| param.name).collect(),
                });
            }
        }
        let mut values = BTreeMap::new();
        for param in params {
            let value = match given.get(param.name) {
                Some(value) => Some(check(workload, param, value)?),
                None => param.default.value(),
            };
            values.insert(param.name, value);
        }
        Ok(Self { values })
    }
}

fn check(
    workload: &'static str,
    param: &Param,
    value: &ParamValue,
) -> Result<ParamValue, ParamError> {
    let right = match (&param.kind, value) {
        (ParamKind::Int(min, max), ParamValue::Int(number)) => (min..=max).contains(&number),
        (ParamKind::Bool, ParamValue::Bool(_)) => true,
        (ParamKind::Choice(words), ParamValue::Text(word)) => words.contains(&word.as_str()),
        (ParamKind::Name, ParamValue::Text(name)) => is_name(name),
        _ => false,
    };
    if right {
        return Ok(value.clone());
    }
    let near = match (&param.kind, value) {
        (ParamKind::Choice(words), ParamValue::Text(word)) => near(word, words.iter().copied()),
        _ => None,
    };
    Err(ParamError::Value {
        workload,
        key: param.name,
        value: value.clone(),
        allowed: param.kind.to_string(),
        near,
    })
}

/// Names are handed to a tool as an option, so nothing but this may be in them.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

impl Params {
    /// Name and value of every parameter, in the order of the names; `None`
    /// where the guest or the tool decides.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Option<&ParamValue>)> {
        self.values.iter().map(|(name, value)| (*name, value.as_ref()))
    }

    /// True if the benchmark has such a parameter.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    fn get(&self, name: &str) -> Option<&ParamValue> {
        self.values.get(name).and_then(Option::as_ref)
    }

    // A row of the table asks only for its own parameters, by their own type;
    // the table's tests build every row's command, so a slip shows there.

    pub(crate) fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(ParamValue::Int(value)) => *value,
            other => unreachable!("{name} is declared as a number, found {other:?}"),
        }
    }

    /// A number, or the guest's vCPUs where the study names none.
    pub(crate) fn int_or_vcpus(&self, name: &str, facts: &GuestFacts) -> i64 {
        if self.get(name).is_none() { i64::from(facts.vcpus) } else { self.int(name) }
    }

    pub(crate) fn bool(&self, name: &str) -> bool {
        match self.get(name) {
            Some(ParamValue::Bool(value)) => *value,
            other => unreachable!("{name} is declared as true or false, found {other:?}"),
        }
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(ParamValue::Text(value)) => value,
            other => unreachable!("{name} is declared as a word, found {other:?}"),
        }
    }

    /// A word, or nothing where the study leaves it to the tool.
    pub(crate) fn text_if_given(&self, name: &str) -> Option<&str> {
        self.get(name).map(|_| self.text(name))
    }
}

pub use topology::bounded::near;

/// The end of an error message: the near match, or all that is known.
pub(crate) fn did_you_mean(near: Option<&str>, known: &[&str]) -> String {
    match near {
        Some(near) => format!("; did you mean {near:?}?"),
        None if known.is_empty() => String::new(),
        None => format!("; known are {}", known.join(", ")),
    }
}
