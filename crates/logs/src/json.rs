//! JSON with the line of every value, also of a document that was cut off.
//!
//! A reader of logs needs the line that a value stands in, takes what is whole
//! of a document without an end, and must forgive what tools print: `nan` for
//! a number, a comma too many. Source: RFC 8259.

use std::borrow::Cow;

use super::text::LogText;
use super::{near, number};

/// Deeper documents are none of a tool that we read.
const MAX_DEPTH: usize = 64;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct JsonNode<'a> {
    /// The line it begins in.
    pub(crate) line: usize,
    /// What it is.
    pub(crate) value: JsonValue<'a>,
    /// False if the document ends inside it.
    pub(crate) whole: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum JsonValue<'a> {
    /// `null`, and what stands for no number: `nan`, `-nan`, `inf`.
    Null,
    Bool,
    /// The number's text, and the number.
    Number(&'a str, f64),
    /// Between the quotes, escapes as they are.
    Text(&'a str),
    Array(Vec<JsonNode<'a>>),
    Object(Vec<(&'a str, JsonNode<'a>)>),
}

impl<'a> JsonNode<'a> {
    /// The member called `key`, the first of them.
    pub(crate) fn get(&self, key: &str) -> Option<&JsonNode<'a>> {
        self.members().iter().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    /// The members of an object; none of anything else.
    pub(crate) fn members(&self) -> &[(&'a str, JsonNode<'a>)] {
        if let JsonValue::Object(members) = &self.value { members } else { &[] }
    }

    /// The items of an array; none of anything else.
    pub(crate) fn items(&self) -> &[JsonNode<'a>] {
        if let JsonValue::Array(items) = &self.value { items } else { &[] }
    }

    /// A finite number.
    pub(crate) fn number(&self) -> Option<f64> {
        if let JsonValue::Number(_, value) = self.value { Some(value) } else { None }
    }

    /// A text, or the text of a number.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match self.value {
            JsonValue::Text(text) | JsonValue::Number(text, _) => Some(text),
            _ => None,
        }
    }
}

/// The first document of `text`, which begins at a bracket; and what stands
/// behind it. Keys for which `skip` is true are left out, with all below them.
pub(crate) fn parse<'a>(
    text: LogText<'a>,
    skip: fn(&str) -> bool,
) -> Option<(JsonNode<'a>, LogText<'a>)> {
    let raw = text.raw();
    let start = memchr::memchr2(b'{', b'[', raw.as_bytes())?;
    let mut parser = JsonParser {
        text: raw,
        at: start,
        line: text.first_line() + memchr::memchr_iter(b'\n', &raw.as_bytes()[..start]).count(),
        skip,
    };
    let node = parser.value(0)?;
    Some((node, LogText::at(&raw[parser.at..], parser.line)))
}

/// `text` without the marks of quoting and stamps of time before its lines,
/// which would stand inside a document.
pub(crate) fn unquoted<'a>(text: LogText<'a>) -> Cow<'a, str> {
    let raw = text.raw();
    let first = raw.lines().next().unwrap_or_default();
    if super::prefix::without_prefix(first).len() == first.len() {
        return Cow::Borrowed(raw);
    }
    let mut clean = String::with_capacity(raw.len());
    for line in raw.split_inclusive('\n') {
        clean.push_str(super::prefix::without_prefix(line));
        if line.ends_with('\n') && !clean.ends_with('\n') {
            clean.push('\n');
        }
    }
    Cow::Owned(clean)
}

/// Whether a byte is a part of a bare word.
const IN_WORD: [bool; 256] = {
    let mut all = [false; 256];
    let mut byte = 0;
    while byte < all.len() {
        let char = byte as u8;
        all[byte] = char.is_ascii_alphanumeric() || matches!(char, b'+' | b'-' | b'.');
        byte += 1;
    }
    all
};

struct JsonParser<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    skip: fn(&str) -> bool,
}

impl<'a> JsonParser<'a> {
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'\n' => self.line += 1,
                // Documents are indented: most spaces stand in long rows.
                b' ' => {
                    self.at += near::indent(&bytes[self.at..]);
                    continue;
                }
                b'\t' | b'\r' => {}
                byte => return Some(*byte),
            }
            self.at += 1;
        }
        None
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// None where nothing whole stands.
    fn value(&mut self, depth: usize) -> Option<JsonNode<'a>> {
        let (byte, line) = (self.peek()?, self.line);
        let node = |value, whole| Some(JsonNode { line, value, whole });
        match byte {
            b'{' | b'[' if depth >= MAX_DEPTH => None,
            b'{' => {
                self.at += 1;
                let (members, whole) = self.members(depth);
                node(JsonValue::Object(members), whole)
            }
            b'[' => {
                self.at += 1;
                let (items, whole) = self.items(depth);
                node(JsonValue::Array(items), whole)
            }
            b'"' => {
                let text = self.string()?;
                node(JsonValue::Text(text), true)
            }
            _ => {
                let word = self.word()?;
                let value = match number::parse(word) {
                    Some(value) => JsonValue::Number(word, value),
                    None => match word {
                        "true" | "false" => JsonValue::Bool,
                        "null" => JsonValue::Null,
                        word if is_no_number(word) => JsonValue::Null,
                        _ => return None,
                    },
                };
                node(value, true)
            }
        }
    }

    fn members(&mut self, depth: usize) -> (Vec<(&'a str, JsonNode<'a>)>, bool) {
        let mut members = Vec::new();
        loop {
            if self.take(b'}') {
                return (members, true);
            }
            if self.peek() != Some(b'"') {
                return (members, false);
            }
            let Some(key) = self.string() else { return (members, false) };
            if !self.take(b':') {
                return (members, false);
            }
            let Some(node) = self.value(depth + 1) else { return (members, false) };
            let whole = node.whole;
            if !(self.skip)(key) {
                members.push((key, node));
            }
            if !whole || !(self.take(b',') || self.peek() == Some(b'}')) {
                return (members, false);
            }
        }
    }

    fn items(&mut self, depth: usize) -> (Vec<JsonNode<'a>>, bool) {
        let mut items = Vec::new();
        loop {
            if self.take(b']') {
                return (items, true);
            }
            let Some(node) = self.value(depth + 1) else { return (items, false) };
            let whole = node.whole;
            items.push(node);
            if !whole || !(self.take(b',') || self.peek() == Some(b']')) {
                return (items, false);
            }
        }
    }

    /// The string that begins here.
    fn string(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        loop {
            at += near::find_any([b'"', b'\\', b'\n'], bytes.get(at..)?)?;
            match bytes[at] {
                b'"' => break,
                b'\\' => at += 2,
                // No string goes over lines: a quote is missing.
                _ => return None,
            }
        }
        self.at = at + 1;
        Some(&self.text[start..at])
    }

    /// The bare word that begins here; none if the text may be cut inside it.
    fn word(&mut self) -> Option<&'a str> {
        let rest = self.text.get(self.at..)?;
        let end = rest.as_bytes().iter().position(|byte| !IN_WORD[usize::from(*byte)])?;
        self.at += end;
        Some(&rest[..end])
    }
}

fn is_no_number(word: &str) -> bool {
    let word = word.trim_start_matches(['-', '+']);
    ["nan", "inf", "infinity"].iter().any(|name| word.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep_all(_: &str) -> bool {
        false
    }

    #[test]
    fn values_know_their_lines() {
        let text = "noise\n{\n \"a\": 1,\n \"b\": [true, null, -nan,\n 2.5e3],\n \"c\": {\"d\": \"e\\\"f\"},\n}\nrest";
        let (node, rest) = parse(LogText::new(text), keep_all).unwrap();
        assert!(node.whole);
        assert_eq!(node.line, 2);
        assert_eq!(node.get("a").unwrap().line, 3);
        assert_eq!(node.get("a").unwrap().number(), Some(1.0));
        let items = node.get("b").unwrap().items();
        assert_eq!((items.len(), items[3].line, items[3].number()), (4, 5, Some(2500.0)));
        assert!(items[2].number().is_none());
        assert_eq!(node.get("c").unwrap().get("d").unwrap().text(), Some("e\\\"f"));
        assert_eq!(rest.lines().nth(1).map(|line| (line.text, line.number)), Some(("rest", 8)));
    }

    #[test]
    fn a_document_that_is_cut_off_keeps_its_whole_members() {
        let text = "{\"a\": 12, \"b\": {\"c\": 3, \"d\": 45";
        let (node, _) = parse(LogText::new(text), keep_all).unwrap();
        assert!(!node.whole && !node.get("b").unwrap().whole);
        assert_eq!(node.get("b").unwrap().get("c").unwrap().number(), Some(3.0));
        assert!(node.get("b").unwrap().get("d").is_none());
        assert!(parse(LogText::new("no document"), keep_all).is_none());
        let deep = "[".repeat(10_000);
        assert!(!parse(LogText::new(&deep), keep_all).unwrap().0.whole);
    }

    #[test]
    fn members_that_nobody_wants_are_left_out() {
        let (node, _) =
            parse(LogText::new("{\"bins\": {\"1\": 2}, \"a\": 1}"), |key| key == "bins").unwrap();
        assert_eq!(node.members().len(), 1);
    }
}
