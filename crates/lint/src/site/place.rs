//! Which values a condition names, and where they stand.

use cel::IdedExpr;
use cel::common::ast::{Expr, LiteralValue, operators};
use cel::common::types::{CelNull, CelString, Kind as CelKind};
use cel::common::value::Val;
use serde_json::Value;
use vmconfig::ParsedVm;
use vmconfig::source::{LineColumn, SourceText, Span};

use super::comprehension::Loop;
use super::variables::{Variables, decide};
use crate::read::yaml::{Kind, Node};
use crate::vm::Vm;

/// Lines below the beginning of an element that are looked through for a value.
const MAX_LINES: u32 = 12;

/// Where the values of one VM stand.
pub(super) struct ValueSpans<'a> {
    pub(super) vm: &'a Vm,
    pub(super) parsed: &'a ParsedVm,
    pub(super) source: &'a SourceText<'a>,
    pub(super) object: Option<&'a Node>,
}

/// What a variable stands for.
#[derive(Clone)]
enum VariableBinding {
    /// An element at a path: the value of a list, the key of a map.
    Element {
        path: String,
        key: String,
    },
    Unknown,
}

impl VariableBinding {
    fn element(range: &str, key: &str) -> Self {
        Self::Element { path: format!("{range}.{key}"), key: key.to_owned() }
    }
}

type Scope = Vec<(String, VariableBinding)>;

impl ValueSpans<'_> {
    /// The paths that a condition names, in its order. Of a list that it goes through,
    /// the element that decided.
    pub(super) fn named(
        &self,
        expr: &IdedExpr,
        context: &cel::Context<'_, '_>,
        item: Option<&str>,
    ) -> Vec<String> {
        let mut scope = Scope::new();
        if let Some(item) = item {
            let (range, key) = item.rsplit_once('.').unwrap_or((item, ""));
            scope.push(("item".to_owned(), VariableBinding::element(range, key)));
        }
        let mut paths = Vec::new();
        self.walk(expr, context, &mut scope, &mut paths);
        let mut seen = std::collections::BTreeSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
    }

    fn walk(
        &self,
        expr: &IdedExpr,
        context: &cel::Context<'_, '_>,
        scope: &mut Scope,
        paths: &mut Vec<String>,
    ) {
        if let Some(path) = spelled(expr, scope) {
            paths.push(path);
            return;
        }
        match &expr.expr {
            Expr::Select(select) => self.walk(&select.operand, context, scope, paths),
            Expr::Call(call) => {
                for one in call.target.as_deref().into_iter().chain(&call.args) {
                    self.walk(one, context, scope, paths);
                }
            }
            Expr::List(list) => {
                for one in &list.elements {
                    self.walk(one, context, scope, paths);
                }
            }
            Expr::Comprehension(one) => {
                let Some(body) = Loop::of(one) else { return };
                let (predicate, wanted) = match body {
                    Loop::Exists(predicate) | Loop::One(predicate) => (predicate, true),
                    Loop::All(predicate) => (predicate, false),
                    Loop::List(Some(predicate), _) => (predicate, true),
                    Loop::List(None, element) => (element, true),
                };
                let range = spelled(&one.iter_range, scope);
                if range.is_none() {
                    self.walk(&one.iter_range, context, scope, paths);
                }
                let culprit = range.as_deref().and_then(|range| {
                    culprit(&one.iter_range, &one.iter_var, predicate, wanted, range, context)
                });
                let (bound, value) = match culprit {
                    Some(found) => found,
                    None => {
                        paths.extend(range);
                        (VariableBinding::Unknown, Box::new(CelNull) as Box<dyn Val + '_>)
                    }
                };
                let mut inner = context.new_inner_scope();
                inner.add_variable_as_val(one.iter_var.clone(), value);
                if let VariableBinding::Element { path, .. } = &bound {
                    paths.push(path.clone());
                }
                scope.push((one.iter_var.clone(), bound));
                self.walk(predicate, &inner, scope, paths);
                scope.pop();
            }
            _ => {}
        }
    }

    /// Where to point: the first value that is known by a line of its own, else the
    /// first that something around it is, else the VM.
    pub(super) fn place(&self, paths: &[String], variables: &Variables<'_>) -> LineColumn {
        let found: Vec<(bool, Span)> =
            paths.iter().filter_map(|path| self.find(path, variables)).collect();
        let best = found.iter().find(|(exact, _)| *exact).or_else(|| found.first());
        self.source.place(best.map_or(self.vm.head, |(_, span)| *span))
    }

    /// Where the value at a path stands, and whether it is just that value.
    fn find(&self, path: &str, variables: &Variables<'_>) -> Option<(bool, Span)> {
        let value = variables.at(path);
        let (root, rest) = path.split_once('.').unwrap_or((path, ""));
        match root {
            "object" => self.in_object(rest),
            "name" => match self.parsed.lines.get("name") {
                Some(line) => Some((true, self.on_lines(*line, *line, "name", value))),
                None => self.in_object("metadata.name"),
            },
            "kept" => {
                let number: usize = rest.split('.').next()?.parse().ok()?;
                let kept = self.parsed.kept.get(number)?;
                let line = self.source.line_through(kept.file.as_deref(), kept.line);
                Some((true, self.on_lines(line, line, "", value)))
            }
            "vcpus" => {
                let line = self.parsed.line("vcpus").or_else(|| self.parsed.line("topology"))?;
                Some((true, self.on_lines(line, line, "vcpu", value)))
            }
            "vm" => {
                let mut known = rest;
                let line = loop {
                    if let Some(line) = self.parsed.lines.get(known) {
                        break *line;
                    }
                    known = known.rsplit_once('.')?.0;
                };
                let last = rest.rsplit('.').next().unwrap_or(rest);
                let next = self.parsed.lines.values().filter(|other| **other > line).min();
                let end =
                    next.map_or(u32::MAX, |next| next - 1).min(line.saturating_add(MAX_LINES));
                let end = if known == rest { line } else { end };
                let span = self.on_lines(line, end, last, value);
                // An element is no better than a value in it.
                let plain = value.is_some_and(|value| !value.is_object() && !value.is_array());
                Some((plain, span))
            }
            _ => None,
        }
    }

    fn in_object(&self, path: &str) -> Option<(bool, Span)> {
        let mut node = self.object?;
        let mut key = None;
        for (number, part) in path.split('.').filter(|part| !part.is_empty()).enumerate() {
            let below = match &node.kind {
                Kind::Map(entries) => entries
                    .iter()
                    .rfind(|(name, _)| name.text == part)
                    .map(|(name, value)| (Some(name.span), value)),
                Kind::List(items) => part
                    .parse::<usize>()
                    .ok()
                    .and_then(|number| items.get(number))
                    .map(|value| (None, value)),
                Kind::Scalar(_) => None,
            };
            match below {
                Some((name, value)) => (key, node) = (name, value),
                // Of what is not there, what it would stand in.
                None if number > 0 => return Some((false, key.unwrap_or(node.span))),
                None => return None,
            }
        }
        Some((true, if node.text().is_some() { node.span } else { key.unwrap_or(node.span) }))
    }

    /// The value on some lines, best beside its name; else the first line.
    fn on_lines(&self, first: u32, last: u32, name: &str, value: Option<&Value>) -> Span {
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let mut found = None;
        for line in first..=last {
            let span = self.source.line_span(line as usize);
            if line > first && span.is_empty() {
                break;
            }
            let said = self.source.at(span);
            let Some(at) = word(said, &text) else { continue };
            let here = Span { start: span.start + at, end: span.start + at + text.len() };
            if said.contains(name) {
                return here;
            }
            found = found.or(Some(here));
        }
        found.unwrap_or_else(|| {
            let span = self.source.line_span(first as usize);
            let said = self.source.at(span);
            let lead = said.len() - said.trim_start().len();
            Span { start: span.start + lead, end: span.start + said.trim_end().len().max(lead) }
        })
    }
}

/// Where a text stands on a line as a word of its own, if it does once.
fn word(line: &str, text: &str) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    let part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric());
    let mut whole = line.match_indices(text).map(|(at, _)| at).filter(|at| {
        !part(line[..*at].chars().next_back()) && !part(line[at + text.len()..].chars().next())
    });
    let first = whole.next()?;
    whole.next().is_none().then_some(first)
}

/// The path that an expression names, with what its variables stand for.
fn spelled(expr: &IdedExpr, scope: &Scope) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => match scope.iter().rev().find(|(known, _)| known == name) {
            Some((_, VariableBinding::Element { path, .. })) => Some(path.clone()),
            Some((_, VariableBinding::Unknown)) => None,
            None => (!name.starts_with('@')).then(|| name.clone()),
        },
        Expr::Select(select) => {
            Some(format!("{}.{}", spelled(&select.operand, scope)?, select.field))
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let [list, index] = call.args.as_slice() else { return None };
            let key = match &index.expr {
                Expr::Literal(LiteralValue::String(text)) => text.inner().to_owned(),
                Expr::Literal(LiteralValue::Int(number)) => number.inner().to_string(),
                Expr::Ident(name) => match scope.iter().rev().find(|(known, _)| known == name)? {
                    (_, VariableBinding::Element { key, .. }) => key.clone(),
                    (_, VariableBinding::Unknown) => return None,
                },
                _ => return None,
            };
            Some(format!("{}.{key}", spelled(list, scope)?))
        }
        _ => None,
    }
}

/// The first element for which a predicate is what decides.
fn culprit<'v>(
    range: &IdedExpr,
    variable: &str,
    predicate: &IdedExpr,
    wanted: bool,
    path: &str,
    context: &cel::Context<'_, 'v>,
) -> Option<(VariableBinding, Box<dyn Val + 'v>)> {
    let range = cel::Value::resolve_val(range, context).ok()?;
    let is_map = range.get_type().kind() == CelKind::Map;
    let mut values = range.as_iterable()?.iter();
    let mut elements: Vec<(String, Box<dyn Val + 'v>)> = Vec::new();
    while let Some(value) = values.next() {
        let key = match is_map {
            true => value.downcast_ref::<CelString<'_>>()?.inner().to_owned(),
            false => elements.len().to_string(),
        };
        elements.push((key, value.clone_as_boxed()));
    }
    if is_map {
        // Numbers by their size.
        elements.sort_by_cached_key(|(key, _)| (key.len(), key.clone()));
    }
    elements.into_iter().find_map(|(key, value)| {
        let mut inner = context.new_inner_scope();
        inner.add_variable_as_val(variable, value.clone_as_boxed());
        (decide(predicate, &inner) == Ok(wanted))
            .then(|| (VariableBinding::element(path, &key), value))
    })
}
