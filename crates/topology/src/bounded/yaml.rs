//! YAML as Kubernetes reads it: a tree in which every key and value knows its place.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::Value;

use super::{MAX_DEPTH, MAX_VALUES, MalformedText, check_size, too_deep};

/// Bytes `start..end` of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One behind the last byte.
    pub end: usize,
}

impl Span {
    /// Whether it holds no byte: what was not written stands nowhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }
}

impl From<std::ops::Range<usize>> for Span {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// A value of a YAML text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlValue {
    /// Where it stands.
    pub span: Span,
    /// The line where it begins, from 1.
    pub line: usize,
    /// Written without quotes, so that it need not be a text.
    pub plain: bool,
    /// What it is.
    pub kind: YamlKind,
}

/// What a [`YamlValue`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum YamlKind {
    /// A text, a number, a switch or nothing: numbers and switches as JSON writes them.
    Scalar(String),
    /// A list.
    List(Vec<YamlValue>),
    /// Keys with their values, as they are written.
    Map(Vec<(YamlKey, YamlValue)>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlKey {
    /// Its text; empty for a key that is none.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

impl YamlValue {
    /// The value below these keys, `domain.cpu.cores`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&YamlValue> {
        self.entry(path).map(|(_, value)| value)
    }

    /// The same, if it is not null, which is the same as none.
    #[must_use]
    pub fn given(&self, path: &str) -> Option<&YamlValue> {
        self.get(path).filter(|value| !value.is_null())
    }

    /// The last key of a path and its value; of several alike the last, as for
    /// Kubernetes.
    #[must_use]
    pub fn entry(&self, path: &str) -> Option<(&YamlKey, &YamlValue)> {
        let (key, rest) = match path.split_once('.') {
            Some((key, rest)) => (key, Some(rest)),
            None => (path, None),
        };
        let found = self.entries().iter().rfind(|(name, _)| name.text == key)?;
        match rest {
            Some(rest) => found.1.entry(rest),
            None => Some((&found.0, &found.1)),
        }
    }

    /// Keys and values of a map; nothing of anything else.
    #[must_use]
    pub fn entries(&self) -> &[(YamlKey, YamlValue)] {
        match &self.kind {
            YamlKind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Values of a list; nothing of anything else.
    #[must_use]
    pub fn items(&self) -> &[YamlValue] {
        match &self.kind {
            YamlKind::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a scalar, whatever it means.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            YamlKind::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is no value at all.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.type_name() == "null"
    }

    /// Its type by JSON's name.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        let text = match &self.kind {
            YamlKind::List(_) => return "array",
            YamlKind::Map(_) => return "object",
            YamlKind::Scalar(_) if !self.plain => return "string",
            YamlKind::Scalar(text) => text.as_str(),
        };
        match text {
            "" | "~" | "null" | "Null" | "NULL" => "null",
            "true" | "false" => "boolean",
            _ if text.parse::<i64>().is_ok() => "integer",
            _ if text.parse::<f64>().is_ok_and(f64::is_finite) => "number",
            _ => "string",
        }
    }

    /// The tree without its places.
    #[must_use]
    pub fn json(&self) -> Value {
        match &self.kind {
            YamlKind::List(items) => items.iter().map(YamlValue::json).collect(),
            YamlKind::Map(entries) => {
                entries.iter().map(|(key, entry)| (key.text.clone(), entry.json())).collect()
            }
            YamlKind::Scalar(text) => match self.type_name() {
                "null" => Value::Null,
                "boolean" => Value::Bool(text == "true"),
                "integer" => text.parse::<i64>().map_or(Value::Null, Value::from),
                "number" => text.parse::<f64>().map_or(Value::Null, Value::from),
                _ => Value::String(text.clone()),
            },
        }
    }

    /// A whole number that is not below 0.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.text()?.parse().ok()
    }

    /// A whole number, which may be below 0.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        self.text()?.parse().ok()
    }

    /// Whether it is a switch that is on.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.text() == Some("true")
    }
}

/// What a scalar without quotes means where JSON writes it otherwise: `yes`, `off`, `010`,
/// `0x1f`, `1_000`.
///
/// Source: YAML 1.1, "bool" and "int" of its language-independent types, as go-yaml 2
/// and with it Kubernetes has them.
fn meaning(text: &str) -> Option<String> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Some("true".to_owned());
        }
        "n" | "N" | "no" | "No" | "NO" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Some("false".to_owned());
        }
        _ => {}
    }
    let digits = text.trim_start_matches(['+', '-']);
    let other =
        digits.starts_with('0') && digits.len() > 1 || text.contains('_') || text.starts_with('+');
    if !other || digits.len() + 1 < text.len() || !digits.starts_with(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    let digits = digits.replace('_', "");
    // The second character may be of any script.
    let (digits, radix) = match digits.split_at_checked(2) {
        Some(("0x" | "0X", rest)) => (rest, 16),
        Some(("0b" | "0B", rest)) => (rest, 2),
        Some(("0o" | "0O", rest)) => (rest, 8),
        _ if digits.starts_with('0') && digits.len() > 1 => (&digits[1..], 8),
        _ => (digits.as_str(), 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    Some(if text.starts_with('-') { -number } else { number }.to_string())
}

/// Puts what `<<` names in front of a map's own keys, which go before it.
///
/// Source: YAML 1.1, "merge" of its language-independent types.
fn merge(entries: &mut Vec<(YamlKey, YamlValue)>) {
    if !entries
        .iter()
        .any(|(key, value)| key.text == "<<" && !matches!(value.kind, YamlKind::Scalar(_)))
    {
        return;
    }
    let mut own = Vec::new();
    let mut merged: Vec<(YamlKey, YamlValue)> = Vec::new();
    for (key, value) in entries.drain(..) {
        let maps = match value.kind {
            YamlKind::Map(_) if key.text == "<<" => vec![value],
            YamlKind::List(items) if key.text == "<<" => items,
            _ => {
                own.push((key, value));
                continue;
            }
        };
        // Of several maps the first one goes before the others.
        for map in maps.into_iter().rev() {
            if let YamlKind::Map(inner) = map.kind {
                merged.extend(inner);
            }
        }
    }
    let known: HashSet<&str> = own.iter().map(|(key, _)| key.text.as_str()).collect();
    let mut seen = HashSet::new();
    let mut kept: Vec<(YamlKey, YamlValue)> = Vec::new();
    for (key, value) in merged.into_iter().rev() {
        if !known.contains(key.text.as_str()) && seen.insert(key.text.clone()) {
            kept.push((key, value));
        }
    }
    kept.reverse();
    kept.append(&mut own);
    *entries = kept;
}

/// A container that has not ended.
struct OpenContainer {
    value: YamlValue,
    anchor: usize,
    key: Option<YamlKey>,
    /// Values in it, itself included, and how deep they go.
    size: usize,
    height: usize,
}

struct YamlAnchor {
    value: YamlValue,
    size: usize,
    height: usize,
}

/// The documents of a YAML text.
///
/// # Errors
/// [`MalformedText`]: it is no YAML, or over the budget.
pub fn yaml(text: &str) -> Result<Vec<YamlValue>, MalformedText> {
    check_size(text)?;
    let offsets = Offsets::new(text);
    let mut documents = Vec::new();
    let mut anchors: HashMap<usize, YamlAnchor> = HashMap::new();
    let mut stack: Vec<OpenContainer> = Vec::new();
    let mut left = MAX_VALUES;
    for event in Parser::new_from_str(text) {
        let (event, at) = event.map_err(|error| {
            let at = offsets.byte(error.marker().index());
            MalformedText::new(at, format!("Not YAML: {}", error.info()))
        })?;
        let span =
            Span { start: offsets.byte(at.start.index()), end: offsets.byte(at.end.index()) };
        let (start, line) = (span.start, at.start.line());
        let broken = |what: String| MalformedText::new(start, what);
        let mut spend = |values: usize| {
            left = left
                .checked_sub(values)
                .ok_or_else(|| broken(format!("More than {MAX_VALUES} values, aliases counted")))?;
            Ok(())
        };
        let (value, anchor, size, height) = match event {
            Event::Scalar(words, style, anchor, _) => {
                spend(1)?;
                let plain = style == ScalarStyle::Plain;
                let end = match plain {
                    true => start + text[span.start..span.end].trim_end().len(),
                    false => span.end,
                };
                let meant = if plain { meaning(&words) } else { None };
                let kind = YamlKind::Scalar(meant.unwrap_or_else(|| words.into_owned()));
                (YamlValue { span: Span { start, end }, line, plain, kind }, anchor, 1, 1)
            }
            Event::Alias(anchor) => {
                let known = anchors
                    .get(&anchor)
                    .ok_or_else(|| broken("An alias of something that contains it".to_owned()))?;
                spend(known.size)?;
                (known.value.clone(), 0, known.size, known.height)
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                spend(1)?;
                let kind = match event {
                    Event::SequenceStart(..) => YamlKind::List(Vec::new()),
                    _ => YamlKind::Map(Vec::new()),
                };
                let value = YamlValue { span, line, plain: false, kind };
                stack.push(OpenContainer { value, anchor, key: None, size: 1, height: 1 });
                if stack.len() > MAX_DEPTH {
                    return Err(broken(too_deep()));
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(OpenContainer { mut value, anchor, size, height, .. }) = stack.pop()
                else {
                    continue;
                };
                value.span.end = start.max(value.span.start);
                if let YamlKind::Map(entries) = &mut value.kind {
                    merge(entries);
                }
                (value, anchor, size, height)
            }
            _ => continue,
        };
        if stack.len() + height > MAX_DEPTH {
            return Err(broken(too_deep()));
        }
        if anchor > 0 {
            spend(size)?;
            anchors.insert(anchor, YamlAnchor { value: value.clone(), size, height });
        }
        let Some(open) = stack.last_mut() else {
            documents.push(value);
            continue;
        };
        open.size += size;
        open.height = open.height.max(height + 1);
        match &mut open.value.kind {
            YamlKind::List(items) => items.push(value),
            YamlKind::Map(entries) => match open.key.take() {
                Some(key) => entries.push((key, value)),
                None => {
                    let span = value.span;
                    let text = match value.kind {
                        YamlKind::Scalar(text) => text,
                        _ => String::new(),
                    };
                    open.key = Some(YamlKey { text, span });
                }
            },
            YamlKind::Scalar(_) => {}
        }
    }
    Ok(documents)
}

/// The parser counts characters.
struct Offsets {
    /// Byte of each character; `None` where they are the same.
    bytes: Option<Vec<usize>>,
    len: usize,
}

impl Offsets {
    fn new(text: &str) -> Self {
        let bytes = (!text.is_ascii()).then(|| text.char_indices().map(|(byte, _)| byte).collect());
        Self { bytes, len: text.len() }
    }

    fn byte(&self, index: usize) -> usize {
        match &self.bytes {
            None => index.min(self.len),
            Some(bytes) => bytes.get(index).copied().unwrap_or(self.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        yaml(text).map_or_else(|broken| broken.what, |all| all[0].json().to_string())
    }

    /// Held against sigs.k8s.io/yaml 1.6.
    #[test]
    fn scalars_mean_what_they_do_to_kubernetes() {
        for (text, expected) in [
            ("yes", "true"),
            ("Off", "false"),
            ("y", "true"),
            ("'yes'", "\"yes\""),
            ("yEs", "\"yEs\""),
            ("010", "8"),
            ("-010", "-8"),
            ("0x1F", "31"),
            ("0b101", "5"),
            ("1_000", "1000"),
            ("+5", "5"),
            ("08", "8"),
            ("0", "0"),
            ("00:11", "\"00:11\""),
            ("_1", "\"_1\""),
            ("0\u{41b}i", "\"0\u{41b}i\""),
            ("1_000Mi", "\"1_000Mi\""),
            ("", "null"),
        ] {
            assert_eq!(json(&format!("a: {text}\n")), format!("{{\"a\":{expected}}}"), "{text}");
        }
    }

    #[test]
    fn merged_maps_give_way_to_own_keys() {
        let text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {<<: [*x, *y], c: 3, d: 3}\n";
        let value = &yaml(text).unwrap_or_default()[0];
        let z = value.get("z").unwrap_or(value);
        assert_eq!(z.json().to_string(), r#"{"a":1,"b":1,"c":3,"d":3}"#);
        assert_eq!(json("z: {a: 1, <<: {a: 2, b: 2}}"), r#"{"z":{"a":1,"b":2}}"#);
        assert_eq!(json("a: {<<: 1}"), r#"{"a":{"<<":1}}"#);
    }
}
