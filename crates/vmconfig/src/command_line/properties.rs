//! The value of an option: `key=value,...` or JSON, each value with its place.
//!
//! Source: QEMU `util/keyval.c` and `util/qemu-option.c`.

use serde_json::Value;
use topology::bytes;

use super::shell::ShellWord;
use crate::source::{LocatedValue, Span};

/// One `key=value`.
#[derive(Debug, Clone)]
struct Property {
    key: String,
    value: LocatedValue<String>,
    understood: bool,
}

/// The properties of one option, in order; a key may stand several times, and
/// then the last one holds.
#[derive(Debug, Clone, Default)]
pub struct Properties {
    items: Vec<Property>,
    span: Span,
}

impl Properties {
    /// Reads an option's value. A first part without `=` is the value of
    /// `implied`, a later one is a switch that is on; a comma in a value is said
    /// twice. JSON is flattened: `{"a": {"b": [1]}}` is `a.b.0=1`.
    #[must_use]
    pub fn read(word: &ShellWord, implied: &str) -> Self {
        let mut properties = Self { items: Vec::new(), span: word.span() };
        if word.text.trim_start().starts_with('{')
            && let Ok(object @ Value::Object(_)) = serde_json::from_str(&word.text)
        {
            properties.flatten("", &object, word);
            return properties;
        }
        let text = &word.text;
        let mut from = 0;
        for (number, to) in part_ends(text).enumerate() {
            let part = &text[from..to];
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => {
                    (key, LocatedValue::new(unescape(value), word.part(to - value.len(), to)))
                }
                None if number == 0 => {
                    (implied, LocatedValue::new(unescape(part), word.part(from, to)))
                }
                None => (part, LocatedValue::new("on".to_owned(), word.part(from, to))),
            };
            if !part.is_empty() {
                let key = unescape(key);
                properties.items.push(Property { key, value, understood: false });
            }
            from = to + 1;
        }
        properties
    }

    fn flatten(&mut self, path: &str, value: &Value, word: &ShellWord) {
        let below = |name: &str| {
            if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
        };
        let text = match value {
            Value::Object(members) => {
                for (name, member) in members {
                    self.flatten(&below(name), member, word);
                }
                return;
            }
            Value::Array(values) => {
                for (number, value) in values.iter().enumerate() {
                    self.flatten(&below(&number.to_string()), value, word);
                }
                return;
            }
            Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null => return,
        };
        let span = located(path, value, word).unwrap_or(self.span);
        let value = LocatedValue::new(text, span);
        self.items.push(Property { key: path.to_owned(), value, understood: false });
    }

    /// These with `later` ones behind them, which hold where both say something.
    #[must_use]
    pub(super) fn overlaid(mut self, later: Self) -> Self {
        self.items.extend(later.items);
        Self { span: later.span, ..self }
    }

    /// Those of the object `name`, under their names there: `cpus` of `smp.cpus`.
    #[must_use]
    pub(super) fn below(&self, name: &str) -> Self {
        let inner = |item: &Property| {
            let key = item.key.strip_prefix(name)?.strip_prefix('.')?.to_owned();
            Some(Property { key, value: item.value.clone(), understood: false })
        };
        Self { items: self.items.iter().filter_map(inner).collect(), span: self.span }
    }

    /// All of the object `name`, which are then understood.
    pub(crate) fn take_object(&mut self, name: &str) -> Self {
        let taken = self.below(name);
        let is_inner = |key: &str| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        for item in self.items.iter_mut().filter(|item| is_inner(&item.key)) {
            item.understood = true;
        }
        taken
    }

    /// Whether there are none.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Where all of them stand.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Keys and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &LocatedValue<String>)> {
        self.items.iter().map(|item| (item.key.as_str(), &item.value))
    }

    /// The value of a key, with its place.
    #[must_use]
    pub fn at(&self, key: &str) -> Option<&LocatedValue<String>> {
        self.items.iter().rev().find(|item| item.key == key).map(|item| &item.value)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.at(key).map(|at| at.value.as_str())
    }

    /// All values of a key that may be given several times, or as a list.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a LocatedValue<String>> {
        self.items.iter().filter(move |item| of_list(&item.key) == key).map(|item| &item.value)
    }

    /// A number, if the value is one.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<LocatedValue<u32>> {
        let at = self.at(key)?;
        Some(LocatedValue::new(at.value.parse().ok()?, at.span))
    }

    /// A size in bytes, if the value is one; a number without a unit counts
    /// `plain` bytes.
    #[must_use]
    pub fn bytes(&self, key: &str, plain: u64) -> Option<LocatedValue<u64>> {
        let at = self.at(key)?;
        Some(LocatedValue::new(bytes::parse(&at.value, plain)?, at.span))
    }

    /// A switch, if the value is one.
    #[must_use]
    pub fn is_on(&self, key: &str) -> Option<LocatedValue<bool>> {
        let at = self.at(key)?;
        Some(LocatedValue::new(switch(&at.value)?, at.span))
    }

    /// The value of a key, which is then understood.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        self.take_if(key, |text| Some(text.to_owned()))
    }

    /// The value of a key if it means something.
    pub(crate) fn take_if<T>(
        &mut self,
        key: &str,
        mut read: impl FnMut(&str) -> Option<T>,
    ) -> Option<T> {
        let mut found = None;
        for item in self.items.iter_mut().filter(|item| item.key == key && !item.understood) {
            if let Some(value) = read(&item.value.value) {
                item.understood = true;
                found = Some(value);
            }
        }
        found
    }

    /// All values of a key that may be given several times, or as a list.
    pub(crate) fn take_all<T>(&mut self, key: &str, read: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let mut all = Vec::new();
        for item in self.items.iter_mut().filter(|item| of_list(&item.key) == key) {
            if !item.understood
                && let Some(value) = read(&item.value.value)
            {
                item.understood = true;
                all.push(value);
            }
        }
        all
    }

    /// A switch.
    pub(crate) fn switch(&mut self, key: &str) -> Option<bool> {
        self.take_if(key, switch)
    }

    /// What was not understood, as it could be written.
    pub(crate) fn rest(&self) -> Option<String> {
        let rest: Vec<String> = self
            .items
            .iter()
            .filter(|item| !item.understood)
            .map(|item| format!("{}={}", item.key, item.value.value.replace(',', ",,")))
            .collect();
        (!rest.is_empty()).then(|| rest.join(","))
    }
}

/// `on`, `off` and the words that QEMU takes for them.
#[must_use]
pub fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "yes" | "true" | "y" => Some(true),
        "off" | "no" | "false" | "n" => Some(false),
        _ => None,
    }
}

/// The key of a list's member: `cpus` of `cpus.3`.
fn of_list(key: &str) -> &str {
    match key.rsplit_once('.') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => key,
    }
}

/// The ends of the parts between single commas.
fn part_ends(text: &str) -> impl Iterator<Item = usize> {
    let mut from = 0;
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut commas = 0;
        for (at, byte) in text.bytes().enumerate().skip(from) {
            if byte == b',' {
                commas += 1;
                continue;
            }
            if commas % 2 == 1 {
                from = at;
                return Some(at - 1);
            }
            commas = 0;
        }
        ended = true;
        Some(text.len() - commas % 2)
    })
}

fn unescape(text: &str) -> String {
    text.replace(",,", ",")
}

/// Where a value stands in a JSON word, if its key is there once.
fn located(path: &str, value: &Value, word: &ShellWord) -> Option<Span> {
    let name = of_list(path);
    let key = format!("\"{}\"", name.rsplit('.').next()?);
    let mut found = word.text.match_indices(&key);
    let (at, _) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let behind = at + key.len();
    let rest = word.text[behind..].trim_start().strip_prefix(':')?.trim_start();
    let (rest, text) = match value {
        Value::String(text) => (rest.strip_prefix('"')?, text.clone()),
        other => (rest, other.to_string()),
    };
    let from = word.text.len() - rest.len();
    rest.starts_with(&text).then(|| word.part(from, from + text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let properties = Properties::read(&ShellWord::of_argument(text), "head");
        let found: Vec<(&str, &str)> =
            properties.iter().map(|(key, at)| (key, at.value.as_str())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn keys_values_and_commas() {
        check("q35,accel=kvm", &[("head", "q35"), ("accel", "kvm")]);
        check("a=b,,c,d", &[("a", "b,c"), ("d", "on")]);
        check("x,,y,,", &[("head", "x,y,")]);
        check("a=1,,,b=2", &[("a", "1,"), ("b", "2")]);
        check("a=1,", &[("a", "1")]);
        check("", &[]);
        check(",", &[]);
        check("k=a=b", &[("k", "a=b")]);
    }

    #[test]
    fn json_is_flattened() {
        check(
            r#"{"qom-type":"x","n":[0,2],"c":{"direct":true}}"#,
            &[("c.direct", "on"), ("n.0", "0"), ("n.1", "2"), ("qom-type", "x")],
        );
        let properties = Properties::read(&ShellWord::of_argument(r#"{"n":[0,2],"n2":1}"#), "");
        assert_eq!(properties.all("n").map(|at| at.value.as_str()).collect::<Vec<_>>(), ["0", "2"]);
        check("{no json", &[("head", "{no json")]);
    }

    #[test]
    fn what_is_not_understood_is_left() {
        let mut properties = Properties::read(&ShellWord::of_argument("a,b=1,,2,c=x"), "head");
        assert_eq!(properties.take("head").as_deref(), Some("a"));
        assert_eq!(properties.take_if("c", |text| text.parse::<u32>().ok()), None);
        assert_eq!(properties.rest().as_deref(), Some("b=1,,2,c=x"));
    }
}
