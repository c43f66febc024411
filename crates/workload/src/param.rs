//! A parameter of a benchmark: its type, its values, its default.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value as a study file gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ParamValue {
    /// `true`, `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Float(f64),
    /// A string.
    Text(String),
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "{value:?}"),
        }
    }
}

/// A parameter that a study can set.
#[derive(Debug)]
pub struct Param {
    /// Its key in the study file: lower case, digits, `_`.
    pub name: &'static str,
    /// Its type and the values that are allowed.
    pub kind: ParamKind,
    /// Its value when the study doesn't name it.
    pub default: DefaultValue,
    /// Unit of the value, if it has one: `B`, `s`, `us`.
    pub unit: Option<&'static str>,
    /// What it does, one sentence without a full stop.
    pub help: &'static str,
}

/// Type and allowed values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamKind {
    /// A whole number from the first to the second, both included.
    Int(i64, i64),
    /// True or false.
    Bool,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A name that the tool itself knows: lower case, digits, `-`.
    Name,
}

/// A parameter's default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DefaultValue {
    /// This number.
    Int(i64),
    /// This truth value.
    Bool(bool),
    /// This word.
    Text(&'static str),
    /// As many as the guest has vCPUs.
    PerVcpu,
    /// Not said, so the tool decides.
    Tool,
}

/// A parameter of an example: its name and its value in TOML.
pub type ExampleParam = (&'static str, DefaultValue);

impl Param {
    /// A whole number from `min` to `max`.
    pub(crate) const fn int(
        name: &'static str,
        (min, max): (i64, i64),
        default: i64,
        help: &'static str,
    ) -> Self {
        let default = DefaultValue::Int(default);
        Self { name, kind: ParamKind::Int(min, max), default, unit: None, help }
    }

    /// As many as the guest has vCPUs, unless a study says how many.
    pub(crate) const fn per_vcpu(name: &'static str, max: i64, help: &'static str) -> Self {
        let default = DefaultValue::PerVcpu;
        Self { name, kind: ParamKind::Int(1, max), default, unit: None, help }
    }

    /// True or false.
    pub(crate) const fn bool(name: &'static str, default: bool, help: &'static str) -> Self {
        let default = DefaultValue::Bool(default);
        Self { name, kind: ParamKind::Bool, default, unit: None, help }
    }

    /// One of `words`.
    pub(crate) const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
        help: &'static str,
    ) -> Self {
        let default = DefaultValue::Text(default);
        Self { name, kind: ParamKind::Choice(words), default, unit: None, help }
    }

    /// Its value has this unit.
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }
}

impl fmt::Display for ParamKind {
    /// Says what is allowed, to read after "is" and "is not".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(min, max) => write!(f, "a whole number from {min} to {max}"),
            Self::Bool => f.write_str("true or false"),
            Self::Choice(words) => {
                f.write_str("one of ")?;
                for (index, word) in words.iter().enumerate() {
                    write!(f, "{}{word:?}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Name => f.write_str("a name (lower case letters, digits, -)"),
        }
    }
}

impl DefaultValue {
    /// The value, or nothing where the guest or the tool decides.
    pub(crate) fn value(self) -> Option<ParamValue> {
        match self {
            Self::Int(value) => Some(ParamValue::Int(value)),
            Self::Bool(value) => Some(ParamValue::Bool(value)),
            Self::Text(value) => Some(ParamValue::Text(value.to_owned())),
            Self::PerVcpu | Self::Tool => None,
        }
    }
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::PerVcpu => f.write_str("one per vCPU"),
            Self::Tool => f.write_str("the tool's own"),
        }
    }
}
