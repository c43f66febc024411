//! Options as they were given, held to a probe's table.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::option::{Opt, OptionDefault, OptionType};
use crate::vcpus;

/// An option's value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word, a text, or a list of vCPUs in the kernel's format.
    Text(String),
}

/// Every option of a probe with its value, given or default.
#[derive(Debug, Clone, PartialEq)]
pub struct Args(BTreeMap<&'static str, OptionValue>);

/// Error type for [`Args::parse`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// There is no such option.
    #[error("Unknown option --{name}{}", hint(near))]
    Unknown {
        /// As it was given.
        name: String,
        /// The nearest option.
        near: Option<&'static str>,
    },
    /// A word that is neither an option nor its value.
    #[error("Expected --option, not {0:?}")]
    NotAnOption(String),
    /// An option without its value.
    #[error("Option --{0} needs a value")]
    NoValue(&'static str),
    /// A value that the option does not allow.
    #[error("--{name} {value}: expected {expected}")]
    Value {
        /// The option.
        name: &'static str,
        /// As it was given.
        value: String,
        /// What is allowed.
        expected: String,
    },
}

fn hint(near: &Option<&'static str>) -> String {
    near.map_or(String::new(), |near| format!(" (did you mean --{near}?)"))
}

impl Args {
    /// Reads `--name value` and `--name=value`; `_` in a name is read as `-`.
    ///
    /// # Errors
    /// [`ArgsError`] names the option and what it allows.
    pub fn parse(options: &'static [Opt], words: &[String]) -> Result<Self, ArgsError> {
        let mut values: BTreeMap<&'static str, OptionValue> =
            options.iter().map(|opt| (opt.name, opt.default_value())).collect();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let given =
                word.strip_prefix("--").ok_or_else(|| ArgsError::NotAnOption(word.clone()))?;
            let (name, inline) = match given.split_once('=') {
                Some((name, value)) => (name.replace('_', "-"), Some(value.to_owned())),
                None => (given.replace('_', "-"), None),
            };
            let opt = options.iter().find(|opt| opt.name == name).ok_or_else(|| {
                let names = options.iter().map(|opt| opt.name);
                ArgsError::Unknown { near: nearest(&name, names), name: name.clone() }
            })?;
            let value = match inline {
                Some(value) => value,
                None => words.next().ok_or(ArgsError::NoValue(opt.name))?.clone(),
            };
            values.insert(opt.name, opt.read(&value)?);
        }
        Ok(Self(values))
    }

    /// The values by name, for the document.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, OptionValue> {
        self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn value(&self, name: &str) -> &OptionValue {
        self.0.get(name).expect("a probe asks for the options of its own table")
    }

    pub(crate) fn int(&self, name: &str) -> i64 {
        match self.value(name) {
            OptionValue::Int(number) => *number,
            other => unreachable!("--{name} is a whole number, not {other:?}"),
        }
    }

    /// An option that its table allows from 0 up.
    pub(crate) fn count(&self, name: &str) -> u64 {
        u64::try_from(self.int(name)).expect("the table allows no negative number")
    }

    /// As [`Args::count`], for sizes in memory.
    pub(crate) fn size(&self, name: &str) -> usize {
        usize::try_from(self.int(name)).expect("the table allows no negative number")
    }

    pub(crate) fn float(&self, name: &str) -> f64 {
        match self.value(name) {
            OptionValue::Float(number) => *number,
            other => unreachable!("--{name} is a number, not {other:?}"),
        }
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        match self.value(name) {
            OptionValue::Text(text) => text,
            other => unreachable!("--{name} is a text, not {other:?}"),
        }
    }

    /// The vCPUs to pin to; empty for threads that are free.
    pub(crate) fn vcpus(&self, name: &str) -> Vec<usize> {
        vcpus::parse_list(self.text(name)).expect("lists were read when they were given")
    }
}

/// The name most like `given`, if one is.
pub(crate) fn nearest(
    given: &str,
    names: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    names
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .filter(|(distance, name)| *distance <= name.len() / 3 + 1)
        .min()
        .map(|(_, name)| name)
}

impl Opt {
    fn default_value(&self) -> OptionValue {
        match self.default {
            OptionDefault::Int(number) => OptionValue::Int(number),
            OptionDefault::Float(number) => OptionValue::Float(number),
            OptionDefault::Text(text) => OptionValue::Text(text.to_owned()),
            OptionDefault::PerVcpu => OptionValue::Int(vcpus::allowed().len().max(1) as i64),
        }
    }

    /// Reads a value of this option.
    ///
    /// # Errors
    /// [`ArgsError::Value`] says what is allowed.
    pub(crate) fn read(&self, text: &str) -> Result<OptionValue, ArgsError> {
        let refused = || ArgsError::Value {
            name: self.name,
            value: text.to_owned(),
            expected: self.kind.to_string(),
        };
        match self.kind {
            OptionType::Int(low, high) => {
                let number = text.parse().map_err(|_| refused())?;
                if (low..=high).contains(&number) {
                    Ok(OptionValue::Int(number))
                } else {
                    Err(refused())
                }
            }
            OptionType::Float(low, high) => {
                let number: f64 = text.parse().map_err(|_| refused())?;
                if (low..=high).contains(&number) {
                    Ok(OptionValue::Float(number))
                } else {
                    Err(refused())
                }
            }
            OptionType::Choice(words) if words.contains(&text) => {
                Ok(OptionValue::Text(text.to_owned()))
            }
            OptionType::Vcpus if vcpus::parse_list(text).is_some() => {
                Ok(OptionValue::Text(text.to_owned()))
            }
            OptionType::Text => Ok(OptionValue::Text(text.to_owned())),
            OptionType::Choice(_) | OptionType::Vcpus => Err(refused()),
        }
    }
}
