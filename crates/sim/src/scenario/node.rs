//! A TOML text as a tree whose every part knows its line, and typed reading of
//! it that collects what is wrong.
use topology::bounded::{LineProblem, near};

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// At most this many elements of a list or a table are shown in a message.
const MOST_SHOWN: usize = 4;

/// One value and the line that it stands on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScenarioNode {
    pub(crate) line: usize,
    pub(crate) value: ScenarioValue,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScenarioValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<ScenarioNode>),
    Table(BTreeMap<String, ScenarioNode>),
    /// A date, or a number beyond 64 bits.
    Other(String),
}

impl ScenarioNode {
    /// The tree of `text`.
    pub(crate) fn parse(text: &str) -> Result<Self, LineProblem> {
        let starts: Vec<usize> = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1))
            .collect();
        let line_at = |offset: usize| starts.partition_point(|start| *start <= offset).max(1);
        let table = DeTable::parse(text).map_err(|error| LineProblem {
            line: line_at(error.span().map_or(0, |span| span.start)),
            message: error.message().trim_end().to_owned(),
        })?;
        Ok(Self { line: 1, value: ScenarioValue::Table(table_of(table.get_ref(), &line_at)) })
    }

    /// It in words of TOML, for messages.
    pub(crate) fn shown(&self) -> String {
        match &self.value {
            ScenarioValue::Bool(value) => value.to_string(),
            ScenarioValue::Integer(value) => value.to_string(),
            ScenarioValue::Float(value) => value.to_string(),
            ScenarioValue::Text(value) => format!("{value:?}"),
            ScenarioValue::List(items) => {
                let items: Vec<String> = items.iter().take(MOST_SHOWN).map(Self::shown).collect();
                format!("[{}]", items.join(", "))
            }
            ScenarioValue::Table(keys) => {
                let shown = |(key, value): (&String, &Self)| format!("{key} = {}", value.shown());
                let keys: Vec<String> = keys.iter().take(MOST_SHOWN).map(shown).collect();
                format!("{{ {} }}", keys.join(", "))
            }
            ScenarioValue::Other(text) => text.clone(),
        }
    }
}

fn table_of(
    table: &DeTable<'_>,
    line_at: &impl Fn(usize) -> usize,
) -> BTreeMap<String, ScenarioNode> {
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key: &Spanned<std::borrow::Cow<'_, str>> = key;
        // A table made by dotted keys or a header has its key's place.
        let node = node_of(value.get_ref(), key.span().start, line_at);
        (key.get_ref().to_string(), node)
    };
    table.iter().map(entry).collect()
}

fn node_of(value: &DeValue<'_>, start: usize, line_at: &impl Fn(usize) -> usize) -> ScenarioNode {
    let value = match value {
        DeValue::Boolean(value) => ScenarioValue::Bool(*value),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            let parsed = i64::from_str_radix(&digits, number.radix());
            parsed.map_or(ScenarioValue::Other(digits), ScenarioValue::Integer)
        }
        DeValue::Float(number) => {
            let digits = number.as_str().replace('_', "");
            digits.parse().map_or(ScenarioValue::Other(digits), ScenarioValue::Float)
        }
        DeValue::String(text) => ScenarioValue::Text(text.to_string()),
        DeValue::Array(list) => ScenarioValue::List(
            list.iter().map(|item| node_of(item.get_ref(), item.span().start, line_at)).collect(),
        ),
        DeValue::Table(table) => ScenarioValue::Table(table_of(table, line_at)),
        DeValue::Datetime(date) => ScenarioValue::Other(date.to_string()),
    };
    ScenarioNode { line: line_at(start), value }
}

/// What is wrong so far.
pub(crate) type Problems = RefCell<Vec<LineProblem>>;

/// A table being read. Keys that nobody asked for are unknown.
pub(crate) struct TableReader<'a> {
    pub(crate) line: usize,
    name: String,
    keys: Option<&'a BTreeMap<String, ScenarioNode>>,
    asked: RefCell<BTreeSet<&'static str>>,
    /// What its other keys mean depends on one that is wrong.
    excused: Cell<bool>,
    problems: &'a Problems,
}

impl<'a> TableReader<'a> {
    pub(crate) fn new(node: &'a ScenarioNode, name: &str, problems: &'a Problems) -> Self {
        let keys = match &node.value {
            ScenarioValue::Table(keys) => Some(keys),
            _ => {
                let message = format!("{name} = {}: must be a table", node.shown());
                problems.borrow_mut().push(LineProblem { line: node.line, message });
                None
            }
        };
        Self { keys, ..Self::absent(node.line, name, problems) }
    }

    /// A table that is not there: everything in it has its default.
    pub(crate) fn absent(line: usize, name: &str, problems: &'a Problems) -> Self {
        let (asked, excused) = (RefCell::default(), Cell::new(false));
        Self { line, name: name.to_owned(), keys: None, asked, excused, problems }
    }

    pub(crate) fn problems(&self) -> &'a Problems {
        self.problems
    }

    pub(crate) fn problem(&self, line: usize, message: impl Into<String>) {
        self.problems.borrow_mut().push(LineProblem { line, message: message.into() });
    }

    pub(crate) fn get(&self, key: &'static str) -> Option<&'a ScenarioNode> {
        self.asked.borrow_mut().insert(key);
        self.keys.and_then(|keys| keys.get(key))
    }

    /// All keys, for tables whose keys are names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a ScenarioNode)> {
        self.keys.into_iter().flatten().map(|(key, node)| (key.as_str(), node))
    }

    pub(crate) fn wrong(&self, key: &str, node: &ScenarioNode, must: &str) {
        self.problem(node.line, format!("{key} = {}: {must}", node.shown()));
    }

    /// Keys that nobody asks for are not unknown: what they mean depends on one that is
    /// wrong.
    pub(crate) fn excuse(&self) {
        self.excused.set(true);
    }

    /// Reports keys that nobody asked for, with the nearest known one.
    pub(crate) fn finish(self) {
        if self.excused.get() {
            return;
        }
        let asked = self.asked.borrow();
        for (key, node) in self.keys.into_iter().flatten() {
            if asked.contains(key.as_str()) {
                continue;
            }
            let hint = near(key, asked.iter().copied()).map_or_else(
                || format!("known are {}", asked.iter().copied().collect::<Vec<_>>().join(", ")),
                |known| format!("did you mean {known:?}?"),
            );
            let name = &self.name;
            self.problem(node.line, format!("Unknown key {key:?} in {name}: {hint}"));
        }
    }

    pub(crate) fn table(&self, key: &'static str) -> TableReader<'a> {
        match self.get(key) {
            Some(node) => TableReader::new(node, key, self.problems),
            None => TableReader::absent(self.line, key, self.problems),
        }
    }

    /// A list of tables; none if it is absent.
    pub(crate) fn tables(&self, key: &'static str) -> Vec<TableReader<'a>> {
        match self.get(key) {
            None => Vec::new(),
            Some(ScenarioNode { value: ScenarioValue::List(items), .. }) => {
                items.iter().map(|item| TableReader::new(item, key, self.problems)).collect()
            }
            Some(node) => {
                self.wrong(key, node, &format!("must be a list of tables, [[{key}]]"));
                Vec::new()
            }
        }
    }

    pub(crate) fn flag(&self, key: &'static str, default: bool) -> bool {
        match self.get(key) {
            None => default,
            Some(ScenarioNode { value: ScenarioValue::Bool(value), .. }) => *value,
            Some(node) => {
                self.wrong(key, node, "must be true or false");
                default
            }
        }
    }

    pub(crate) fn text(&self, key: &'static str) -> Option<(&'a str, usize)> {
        match self.get(key)? {
            ScenarioNode { value: ScenarioValue::Text(text), line } => Some((text, *line)),
            node => {
                self.wrong(key, node, "must be a text in quotes");
                None
            }
        }
    }

    pub(crate) fn whole(&self, key: &'static str, default: u64, from: u64, to: u64) -> u64 {
        match self.get(key) {
            None => default,
            Some(ScenarioNode { value: ScenarioValue::Integer(value), .. })
                if u64::try_from(*value).is_ok_and(|value| (from..=to).contains(&value)) =>
            {
                *value as u64
            }
            Some(node) => {
                self.wrong(key, node, &format!("must be a whole number from {from} to {to}"));
                default.clamp(from, to)
            }
        }
    }

    /// A number from `from` to `to`.
    pub(crate) fn number(&self, key: &'static str, from: f64, to: f64) -> Option<f64> {
        let node = self.get(key)?;
        let value = number_of(node).filter(|value| (from..=to).contains(value));
        if value.is_none() {
            self.wrong(key, node, &format!("must be a number from {from} to {to}"));
        }
        value
    }

    /// A time in units of `unit_ns`, as ns.
    pub(crate) fn time(&self, key: &'static str, default_ns: u64, unit_ns: f64) -> u64 {
        /// An hour: nothing that is simulated lasts longer.
        const LONGEST_NS: f64 = 3.6e12;
        let value = self.number(key, 0.0, LONGEST_NS / unit_ns);
        value.map_or(default_ns, |value| (value * unit_ns).round() as u64)
    }

    /// One of several words.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &'static str,
        choices: &[(&str, T)],
        default: T,
    ) -> T {
        let Some((text, line)) = self.text(key) else { return default };
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map_or_else(
            || {
                let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
                let words = words.join(", ");
                self.problem(line, format!("{key} = {text:?}: must be one of {words}"));
                default
            },
            |(_, value)| *value,
        )
    }
}

/// A number, whole or not; not NaN and not infinite.
pub(crate) fn number_of(node: &ScenarioNode) -> Option<f64> {
    match node.value {
        ScenarioValue::Integer(value) => Some(value as f64),
        ScenarioValue::Float(value) if value.is_finite() => Some(value),
        _ => None,
    }
}
