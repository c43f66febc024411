//! A value from a log that vmlab did not make.
//!
//! Logs hold millions of values with few names, so values share those: a
//! [`Name`] and [`Labels`] are counted references, and a copy costs no memory.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{BetterDirection, MetricKind};

/// One value of a tool's log, with what the log says about it.
///
/// A log knows nothing of studies, so what tells its values apart are labels:
/// those that the tool prints (`op=write`, `threads=4`) and those that whoever
/// imports it adds (`variant=pinned`, `boot=3`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImportedValue {
    /// The metric's name inside its tool.
    pub metric: Name,
    /// The value, in base units.
    pub value: f64,
    /// The base unit: `s`, `B`, `1/s`, `B/s`, `count`, ...
    pub unit: Name,
    /// Which direction is better, where the log's format decides that.
    pub better: Option<BetterDirection>,
    /// What sort of quantity it is.
    pub kind: MetricKind,
    /// What tells it from other values of the same metric.
    pub labels: Labels,
    /// The line that it stands in, from 1.
    pub line: usize,
}

/// An [`ImportedValue`] as it is kept where there may be millions: what it has in common
/// with those of its column, and with those of its row, it shares with them.
#[derive(Debug, Clone, PartialEq)]
pub struct LogValue {
    /// What is measured; its fields are the value's own.
    pub measured: Arc<LogMetric>,
    /// What tells it from other values of the same metric.
    pub labels: Labels,
    /// The value, in base units.
    pub value: f64,
    /// The line that it stands in, from 1.
    pub line: usize,
}

/// What all values of one metric have in common, whatever their labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMetric {
    /// The metric's name inside its tool.
    pub metric: Name,
    /// The base unit: `s`, `B`, `1/s`, `B/s`, `count`, ...
    pub unit: Name,
    /// Which direction is better, where the log's format decides that.
    pub better: Option<BetterDirection>,
    /// What sort of quantity it is.
    pub kind: MetricKind,
}

impl Deref for LogValue {
    type Target = LogMetric;

    #[inline]
    fn deref(&self) -> &LogMetric {
        &self.measured
    }
}

impl LogValue {
    /// Gives each of `values` the labels that `with` makes of its own. Values
    /// that share labels share some afterwards.
    pub fn relabel(values: &mut [Self], with: impl Fn(&Labels) -> Labels) {
        // Those that are kept here lie where no others can.
        let mut known: HashMap<usize, (Labels, Labels)> = HashMap::new();
        let mut last: Option<(Labels, Labels)> = None;
        for value in values {
            let (_, to) = match last.take() {
                Some(same) if same.0.address() == value.labels.address() => last.insert(same),
                _ => {
                    let labels = known
                        .entry(value.labels.address())
                        .or_insert_with(|| (value.labels.clone(), with(&value.labels)));
                    last.insert(labels.clone())
                }
            };
            value.labels = to.clone();
        }
    }
}

impl From<ImportedValue> for LogValue {
    fn from(row: ImportedValue) -> Self {
        let ImportedValue { metric, value, unit, better, kind, labels, line } = row;
        Self { measured: Arc::new(LogMetric { metric, unit, better, kind }), labels, value, line }
    }
}

/// The row of an [`ImportedValue`].
impl Serialize for LogValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Imported", 7)?;
        row.serialize_field("metric", &self.metric)?;
        row.serialize_field("value", &self.value)?;
        row.serialize_field("unit", &self.unit)?;
        row.serialize_field("better", &self.better)?;
        row.serialize_field("kind", &self.kind)?;
        row.serialize_field("labels", &self.labels)?;
        row.serialize_field("line", &self.line)?;
        row.end()
    }
}

/// A short text that many values share.
#[derive(Clone)]
pub struct Name(NameStorage);

#[derive(Clone)]
enum NameStorage {
    /// Part of the program: nothing to count.
    Static(&'static str),
    Shared(Arc<str>),
}

impl Name {
    /// A name that the program knows.
    #[must_use]
    #[inline]
    pub const fn known(text: &'static str) -> Self {
        Self(NameStorage::Static(text))
    }
}

impl Deref for Name {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        match &self.0 {
            NameStorage::Static(text) => text,
            NameStorage::Shared(text) => text,
        }
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(NameStorage::Shared(text.into()))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(NameStorage::Shared(text.into()))
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // Most that are equal are one.
        std::ptr::eq(&**self, &**other) || **self == **other
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl PartialEq<str> for Name {
    #[inline]
    fn eq(&self, text: &str) -> bool {
        **self == *text
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        **self == **text
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl JsonSchema for Name {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<String>()
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Keys with a value each, in the order of the keys. A copy shares them, and is one word.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<LabelPairs>>);

/// In the order of the keys.
type LabelPairs = Box<[(Name, Name)]>;

impl Labels {
    /// The value of `key`.
    #[must_use]
    #[inline]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Keys and values, in the order of the keys.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Where they lie, which labels that share them have in common.
    #[must_use]
    #[inline]
    pub fn address(&self) -> usize {
        self.0.as_ref().map_or(0, |pairs| Arc::as_ptr(pairs).addr())
    }

    /// These, with `key` set to `value`.
    #[must_use]
    pub fn with(&self, key: impl Into<Name>, value: impl Into<Name>) -> Self {
        let (key, value) = (key.into(), value.into());
        let pairs = self.pairs();
        let at = pairs.partition_point(|(found, _)| *found < key);
        let behind = at + usize::from(pairs.get(at).is_some_and(|(found, _)| *found == key));
        let (before, behind) = (pairs[..at].iter().cloned(), pairs[behind..].iter().cloned());
        Self(Some(Arc::new(before.chain([(key, value)]).chain(behind).collect())))
    }

    /// These, without `key`.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        self.pairs().iter().filter(|(found, _)| *found != key).cloned().collect()
    }

    #[inline]
    fn pairs(&self) -> &[(Name, Name)] {
        self.0.as_ref().map_or(&[], |pairs| pairs)
    }
}

impl<K: Into<Name>, V: Into<Name>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let sorted: BTreeMap<Name, Name> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self((!sorted.is_empty()).then(|| Arc::new(sorted.into_iter().collect())))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl JsonSchema for Labels {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<BTreeMap<String, String>>()
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(BTreeMap::<String, String>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(labels: &Labels, value: f64) -> LogValue {
        let measured = LogMetric {
            metric: "lat".into(),
            unit: "s".into(),
            better: None,
            kind: MetricKind::Quantile,
        };
        LogValue { measured: Arc::new(measured), labels: labels.clone(), value, line: 7 }
    }

    #[test]
    fn a_value_is_four_words_and_one_row() {
        assert_eq!(size_of::<LogValue>(), 32);
        let value = value(&Labels::from_iter([("op", "read")]), 2.0);
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(
            json,
            r#"{"metric":"lat","value":2.0,"unit":"s","better":null,"kind":"quantile","labels":{"op":"read"},"line":7}"#
        );
        assert_eq!(LogValue::from(serde_json::from_str::<ImportedValue>(&json).unwrap()), value);
    }

    #[test]
    fn values_that_share_labels_share_some_when_they_are_labelled() {
        let read = value(&Labels::from_iter([("op", "read")]), 1.0);
        let mut values = vec![read.clone(), value(&Labels::default(), 2.0), read];
        LogValue::relabel(&mut values, |labels| labels.with("boot", "1"));
        assert_eq!(values[0].labels.address(), values[2].labels.address());
        assert_eq!(values[0].labels, Labels::from_iter([("boot", "1"), ("op", "read")]));
        assert_eq!(values[1].labels, Labels::from_iter([("boot", "1")]));
    }

    #[test]
    fn labels_are_a_sorted_map() {
        let labels = Labels::default().with("op", "read").with("cpu", "1").with("op", "write");
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("cpu", "1"), ("op", "write")]);
        assert_eq!((labels.get("op"), labels.get("size")), (Some("write"), None));
        assert_eq!(labels.without("cpu"), Labels::from_iter([("op", "write")]));
        assert!(labels.without("cpu").without("op").is_empty());
        assert_eq!(Name::known("cpu"), Name::from("cpu"));
        assert_eq!(labels.address(), labels.clone().address());
        assert_ne!(labels.address(), Labels::default().address());
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, r#"{"cpu":"1","op":"write"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
    }
}
