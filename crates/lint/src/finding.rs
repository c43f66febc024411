//! What a rule says about a configuration.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use vmconfig::source::{LineColumn, SourceText, Span};

/// How bad a finding is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Could be better; depends on what the VM is for.
    Hint,
    /// Works, and costs performance or does not do what was meant.
    Warning,
    /// Refused or broken at start, or at the first migration.
    Error,
}

impl Severity {
    /// Its name: `error`, `warning`, `hint`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Replacement of some bytes of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Edit {
    /// First byte that goes.
    pub start: usize,
    /// One behind the last byte that goes.
    pub end: usize,
    /// What comes instead.
    pub text: String,
}

/// How a finding is mended in the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fix {
    /// Whether no judgement is needed: such fixes are written by `--fix`.
    pub certain: bool,
    /// The changes, by position.
    pub edits: Vec<Edit>,
    /// The changed lines as they will read, with their numbers.
    pub lines: Vec<(usize, String)>,
}

/// One thing that is wrong at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Id of the rule.
    pub rule: Cow<'static, str>,
    /// How bad.
    pub severity: Severity,
    /// Name of the file, `-` for standard input.
    pub file: String,
    /// Name of the VM.
    pub vm: String,
    /// Where.
    pub place: LineColumn,
    /// What is wrong, with the values.
    pub message: String,
    /// Facts that explain it, one each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What to do.
    pub help: Cow<'static, str>,
    /// Of a VM that runs: what was asked for and what is.
    #[serde(flatten)]
    pub live: Option<LiveDifference>,
    /// The change that does it, where it can be computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

/// What a VM that runs was asked to be, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LiveDifference {
    /// What was asked for.
    pub asked: String,
    /// What is.
    pub is: String,
}

/// A finding before its place is looked up.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) notes: Vec<String>,
    pub(crate) help: Option<String>,
    edits: Vec<Edit>,
    certain: bool,
}

impl Draft {
    pub(crate) fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.notes.push(note.into());
        self
    }

    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// An edit that is right whatever the VM is for.
    pub(crate) fn fix(&mut self, span: Span, text: impl Into<String>) -> &mut Self {
        self.certain = self.edits.is_empty() || self.certain;
        self.edits.push(Edit { start: span.start, end: span.end, text: text.into() });
        self
    }

    /// An edit that somebody should think about first.
    pub(crate) fn suggest(&mut self, span: Span, text: impl Into<String>) -> &mut Self {
        self.fix(span, text);
        self.certain = false;
        self
    }

    pub(crate) fn fix_in(&self, source: &SourceText<'_>) -> Option<Fix> {
        if self.edits.is_empty() {
            return None;
        }
        // A file that the text names is another's.
        if self.edits.iter().any(|edit| edit.end > source.text.len()) {
            return None;
        }
        let mut edits: Vec<Edit> =
            self.edits.iter().map(|edit| with_its_line(source.text, edit.clone())).collect();
        // An option in JSON is not mended as if it were written with commas.
        let json = |edit: &Edit| {
            source.text[edit.start..edit.end].starts_with('{')
                || edit.start == edit.end && source.text[..edit.start].ends_with('}')
        };
        if edits.iter().any(json) {
            return None;
        }
        edits.sort_by_key(|edit| edit.start);
        // Two values in one place: no edit of both is right.
        if edits.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return None;
        }
        let lines = changed_lines(source, &edits);
        Some(Fix { certain: self.certain, edits, lines })
    }
}

/// What is taken out alone on its line goes with the line.
fn with_its_line(text: &str, mut edit: Edit) -> Edit {
    let begin = text[..edit.start].rfind('\n').map_or(0, |found| found + 1);
    let end = text[edit.end..].find('\n').map(|found| edit.end + found + 1);
    if let Some(end) = end.filter(|_| edit.text.is_empty())
        && text[begin..edit.start].trim().is_empty()
        && text[edit.end..end].trim().is_empty()
    {
        edit.start = begin;
        edit.end = end;
    }
    edit
}

/// Collects what one rule finds in one VM.
#[derive(Debug, Default)]
pub(crate) struct Drafts(pub(crate) Vec<Draft>);

impl Drafts {
    pub(crate) fn at(&mut self, span: Span, message: impl Into<String>) -> &mut Draft {
        self.0.push(Draft {
            span,
            message: message.into(),
            notes: Vec::new(),
            help: None,
            edits: Vec::new(),
            certain: false,
        });
        self.0.last_mut().expect("one was pushed")
    }
}

/// The lines that the edits touch, as they read afterwards.
fn changed_lines(source: &SourceText<'_>, edits: &[Edit]) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    while at < edits.len() {
        let first = source.place(Span { start: edits[at].start, end: edits[at].end }).line;
        let mut group = vec![&edits[at]];
        at += 1;
        while at < edits.len()
            && source.place(Span { start: edits[at].start, end: edits[at].end }).line == first
        {
            group.push(&edits[at]);
            at += 1;
        }
        let begin = source.text[..group[0].start].rfind('\n').map_or(0, |found| found + 1);
        let last = group[group.len() - 1].end;
        if source.text[..last].ends_with('\n') && group.iter().all(|edit| edit.text.is_empty()) {
            continue;
        }
        let end = source.text[last..].find('\n').map_or(source.text.len(), |found| last + found);
        let mut text = String::new();
        // Of a very long line, what is near is enough.
        let begin = source.shown_from(begin, group[0].start);
        let end = source.shown_to(last, end);
        let mut from = begin;
        for edit in group {
            text.push_str(&source.text[from..edit.start]);
            text.push_str(&edit.text);
            from = edit.end;
        }
        text.push_str(&source.text[from..end.max(from)]);
        for (offset, line) in text.lines().enumerate() {
            lines.push((first + offset, line.to_owned()));
        }
    }
    lines
}
