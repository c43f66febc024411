//! Types of expressions, as far as they are known before any VM is.
//!
//! What is refused here can't be meant: a field that no VM has, a number compared with
//! a text, a word that the field never holds, a field that may be absent and is not
//! asked for with `has()`.

use std::collections::{BTreeSet, HashMap};

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr, operators};
use regex_lite::Regex;
use topology::PcpuSet;
use topology::bounded::near;

use super::bounds::{MAX_DEPTH, MAX_PATTERN};
use super::comprehension::Loop;
use super::view::{self, FIELDS, FieldType, VARIABLES, ViewField};

/// Comprehensions inside each other.
const MAX_LOOPS: u32 = 3;

/// What an expression is known to be.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    Any,
    Null,
    Bool,
    Int,
    Double,
    Text,
    Set,
    Words(&'static [&'static str]),
    /// One text that is written out.
    Literal(String),
    /// One of several that are.
    Literals(Vec<String>),
    List(Box<Type>),
    Map(Box<Type>),
    /// A table of the view: the fields that it is of, and where it stands in them.
    Table(&'static [ViewField], String),
}

impl Type {
    fn name(&self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text | Self::Set | Self::Words(_) | Self::Literal(_) | Self::Literals(_) => {
                "string"
            }
            Self::List(_) => "list",
            Self::Map(_) | Self::Table(..) => "map",
        }
    }

    fn is_text(&self) -> bool {
        self.name() == "string"
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Double)
    }

    fn is_any(&self) -> bool {
        *self == Self::Any
    }

    fn fits(&self, other: &Self) -> bool {
        self.is_any()
            || other.is_any()
            || self.name() == other.name()
            || self.is_number() && other.is_number()
    }

    fn of(fields: &'static [ViewField], field: &ViewField) -> Self {
        fn plain(kind: FieldType) -> Type {
            match kind {
                FieldType::Bool => Type::Bool,
                FieldType::Int => Type::Int,
                FieldType::Text => Type::Text,
                FieldType::Set => Type::Set,
                FieldType::Words(words) => Type::Words(words),
                FieldType::Texts => Type::List(Box::new(Type::Text)),
                FieldType::ByNumber(kind) => Type::Map(Box::new(plain(*kind))),
                FieldType::Any | FieldType::Table | FieldType::Tables | FieldType::Choice => {
                    Type::Any
                }
            }
        }
        match field.kind {
            FieldType::Table | FieldType::Choice => Self::Table(fields, field.path.to_owned()),
            FieldType::Tables => {
                Self::List(Box::new(Self::Table(fields, format!("{}[]", field.path))))
            }
            kind => plain(kind),
        }
    }
}

/// A fault, at a node of the expression.
#[derive(Debug)]
pub(super) struct ExpressionFault {
    pub(super) id: u64,
    pub(super) what: String,
}

type TypeResult = Result<Type, ExpressionFault>;

fn fault<T>(expr: &IdedExpr, what: impl Into<String>) -> Result<T, ExpressionFault> {
    Err(ExpressionFault { id: expr.id, what: what.into() })
}

/// Checks the types of one expression.
pub(super) struct TypeChecker {
    pub(super) patterns: HashMap<String, Regex>,
    pub(super) loops: bool,
    item: Option<Type>,
    scopes: Vec<(String, Type)>,
    depth: u32,
    nested: u32,
    in_map: bool,
    /// Fields that `has()` is asked of.
    asked: BTreeSet<String>,
}

impl TypeChecker {
    pub(super) fn new(each: Option<&str>) -> Self {
        let item = each.map(|path| match of_path(path) {
            Some(Type::List(element)) => *element,
            Some(Type::Map(_)) => Type::Text,
            _ => Type::Any,
        });
        Self {
            patterns: HashMap::new(),
            loops: false,
            item,
            scopes: Vec::new(),
            depth: 0,
            nested: 0,
            in_map: false,
            asked: BTreeSet::new(),
        }
    }

    pub(super) fn condition(&mut self, expr: &IdedExpr) -> Result<(), ExpressionFault> {
        // Which fields are asked for must be known before they are judged, and asking
        // may stand behind: `!(...) || !has(...)`.
        let mut first = TypeChecker { item: self.item.clone(), ..TypeChecker::new(None) };
        first.asked.insert("*".to_owned());
        first.check(expr)?;
        self.asked = first.asked;
        self.asked.remove("*");
        match self.check(expr)? {
            Type::Bool | Type::Any => Ok(()),
            other => fault(expr, format!("is {}, not bool: nothing to decide", other.name())),
        }
    }

    /// Recurses no deeper than the evaluation may.
    fn check(&mut self, expr: &IdedExpr) -> TypeResult {
        self.nested += 1;
        if self.nested > MAX_DEPTH {
            return fault(expr, format!("nested deeper than {MAX_DEPTH}"));
        }
        let found = self.check_one(expr);
        self.nested -= 1;
        found
    }

    fn check_one(&mut self, expr: &IdedExpr) -> TypeResult {
        match &expr.expr {
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) | LiteralValue::UInt(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(text) => Type::Literal(text.inner().to_owned()),
                LiteralValue::Bytes(_) => return fault(expr, "there are no bytes in a VM"),
            }),
            Expr::Ident(name) => self.variable(expr, name),
            Expr::Select(select) => self.select(expr, select),
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => {
                if self.in_map {
                    return fault(expr, "no lists are made inside map()");
                }
                let mut element: Option<Type> = None;
                for one in &list.elements {
                    let found = match self.check(one)? {
                        Type::Literal(text) => Type::Literals(vec![text]),
                        other => other,
                    };
                    element = Some(match (element, found) {
                        (None, found) => found,
                        (Some(Type::Literals(mut all)), Type::Literals(more)) => {
                            all.extend(more);
                            Type::Literals(all)
                        }
                        (Some(before), found) if before == found => found,
                        (Some(before), found) if before.is_text() && found.is_text() => Type::Text,
                        (Some(_), _) => Type::Any,
                    });
                }
                Ok(Type::List(Box::new(element.unwrap_or(Type::Any))))
            }
            Expr::Comprehension(one) => self.comprehension(expr, one),
            Expr::Map(_) | Expr::Struct(_) => fault(expr, "no maps are made in a condition"),
            Expr::Unspecified => fault(expr, "no expression"),
        }
    }

    fn variable(&self, expr: &IdedExpr, name: &str) -> TypeResult {
        if let Some((_, found)) = self.scopes.iter().rev().find(|(known, _)| known == name) {
            return Ok(found.clone());
        }
        match (name, &self.item) {
            ("vm", _) => Ok(Type::Table(FIELDS, String::new())),
            ("item", Some(item)) => Ok(item.clone()),
            ("item", None) => fault(expr, "there is no item: the rule has no `each`"),
            _ => match view::field(VARIABLES, "", name) {
                Some(field) => Ok(Type::of(VARIABLES, field)),
                None => {
                    let mut known = vec!["vm"];
                    known.extend(view::names(VARIABLES, ""));
                    fault(expr, format!("there is no {name:?}: {}", nearest(name, &known)))
                }
            },
        }
    }

    fn select(&mut self, expr: &IdedExpr, select: &SelectExpr) -> TypeResult {
        let table = self.check(&select.operand)?;
        let found = self.field(expr, &table, &select.field, select.test)?;
        Ok(if select.test { Type::Bool } else { found })
    }

    /// A field of a table; `asks` if it is only asked for.
    fn field(&mut self, expr: &IdedExpr, table: &Type, name: &str, asks: bool) -> TypeResult {
        match table {
            Type::Any => Ok(Type::Any),
            Type::Map(value) => Ok((**value).clone()),
            Type::Table(fields, prefix) => {
                let Some(field) = view::field(fields, prefix, name) else {
                    let known = view::names(fields, prefix);
                    if prefix.is_empty() && view::names(VARIABLES, "").contains(&name) {
                        return fault(expr, format!("{name} is a variable of its own, not of vm"));
                    }
                    let of = if prefix.is_empty() { "vm" } else { prefix };
                    let what = format!("{of} has no field {name:?}: {}", nearest(name, &known));
                    return fault(expr, what);
                };
                if asks {
                    self.asked.insert(field.path.to_owned());
                } else if !field.always && !self.asked.contains(field.path) && !self.asks_all() {
                    return fault(
                        expr,
                        format!("not every VM has {}: ask `has()` of it, too", field.path),
                    );
                }
                Ok(Type::of(fields, field))
            }
            other => fault(expr, format!("{name:?} is asked of a {}", other.name())),
        }
    }

    fn asks_all(&self) -> bool {
        self.asked.contains("*")
    }

    fn call(&mut self, expr: &IdedExpr, call: &CallExpr) -> TypeResult {
        let mut types = Vec::new();
        for argument in call.target.as_deref().into_iter().chain(&call.args) {
            types.push(self.check(argument)?);
        }
        let name = call.func_name.as_str();
        let wrong = |what: String| fault(expr, what);
        match (name, types.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, all) => {
                match all.iter().find(|one| !one.fits(&Type::Bool)) {
                    Some(other) => wrong(format!("`&&` and `||` take bool, not {}", other.name())),
                    None => Ok(Type::Bool),
                }
            }
            (operators::LOGICAL_NOT, [one]) if one.fits(&Type::Bool) => Ok(Type::Bool),
            (operators::LOGICAL_NOT, [one]) => wrong(format!("`!` takes bool, not {}", one.name())),
            (operators::NEGATE, [one]) if one.is_any() || one.is_number() => Ok(one.clone()),
            (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
                self.comparable(expr, left, right)
            }
            (
                operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                [left, right],
            ) => {
                let ordered = |one: &Type| one.is_any() || one.is_number() || one.is_text();
                match left.fits(right) && ordered(left) && ordered(right) {
                    true => Ok(Type::Bool),
                    false => wrong(format!("{} and {} have no order", left.name(), right.name())),
                }
            }
            (operators::ADD, [left, right]) => self.sum(expr, left, right),
            (
                operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
                [left, right],
            ) => {
                let number = |one: &Type| one.is_any() || one.is_number();
                match number(left) && number(right) {
                    true => Ok(if left.is_any() { right.clone() } else { left.clone() }),
                    false => {
                        wrong(format!("no arithmetic with {} and {}", left.name(), right.name()))
                    }
                }
            }
            (operators::CONDITIONAL, [condition, yes, no]) => match condition.fits(&Type::Bool) {
                true if yes == no => Ok(yes.clone()),
                true if yes.is_text() && no.is_text() => Ok(Type::Text),
                true => Ok(Type::Any),
                false => wrong(format!("`?` takes bool, not {}", condition.name())),
            },
            (operators::IN, [one, all]) => self.is_in(expr, one, all),
            (operators::INDEX, [list, index]) => self.index(expr, list, index),
            ("size", [one]) => match one {
                Type::Bool | Type::Int | Type::Double | Type::Null => {
                    wrong(format!("size() of a {}", one.name()))
                }
                _ => Ok(Type::Int),
            },
            ("contains" | "startsWith" | "endsWith", [text, part]) if call.target.is_some() => {
                self.texts(expr, name, text, part)
            }
            ("matches", [text, pattern]) if call.target.is_some() => {
                self.pattern(expr, pattern)?;
                self.texts(expr, name, text, pattern)
            }
            ("within" | "overlaps", [set, other]) if call.target.is_some() => {
                self.is_set(expr, set)?;
                self.is_set(expr, other)?;
                Ok(Type::Bool)
            }
            ("count", [set]) if call.target.is_some() => {
                self.is_set(expr, set)?;
                Ok(Type::Int)
            }
            ("int" | "uint", [_]) => Ok(Type::Int),
            ("double", [_]) => Ok(Type::Double),
            ("string", [_]) => Ok(Type::Text),
            ("@not_strictly_false", [_]) => Ok(Type::Bool),
            (name, all) => {
                let types: Vec<&str> = all.iter().map(Type::name).collect();
                wrong(format!("no function {name}({})", types.join(", ")))
            }
        }
    }

    fn texts(&self, expr: &IdedExpr, name: &str, text: &Type, part: &Type) -> TypeResult {
        match text.fits(&Type::Text) && part.fits(&Type::Text) {
            true => Ok(Type::Bool),
            false => fault(
                expr,
                format!("{name}() takes strings, not {} and {}", text.name(), part.name()),
            ),
        }
    }

    fn pattern(&mut self, expr: &IdedExpr, pattern: &Type) -> Result<(), ExpressionFault> {
        let Type::Literal(text) = pattern else {
            return fault(expr, "matches() takes a pattern that is written out");
        };
        if text.len() > MAX_PATTERN {
            return fault(expr, format!("a pattern longer than {MAX_PATTERN} bytes"));
        }
        match Regex::new(text) {
            Ok(regex) => {
                self.patterns.insert(text.clone(), regex);
                Ok(())
            }
            Err(error) => fault(expr, format!("{text:?}: {error}")),
        }
    }

    fn is_set(&self, expr: &IdedExpr, set: &Type) -> Result<(), ExpressionFault> {
        match set {
            Type::Any | Type::Set | Type::Text => Ok(()),
            Type::Literal(text) => match text.parse::<PcpuSet>() {
                Ok(_) => Ok(()),
                Err(error) => fault(expr, error.to_string()),
            },
            other => fault(expr, format!("no numbers in a {}", other.name())),
        }
    }

    fn comparable(&self, expr: &IdedExpr, left: &Type, right: &Type) -> TypeResult {
        if !left.fits(right) && *left != Type::Null && *right != Type::Null {
            let (left, right) = (left.name(), right.name());
            return fault(expr, format!("{left} is never equal to {right}"));
        }
        never(expr, left, right)?;
        never(expr, right, left)?;
        Ok(Type::Bool)
    }

    fn is_in(&mut self, expr: &IdedExpr, one: &Type, all: &Type) -> TypeResult {
        match all {
            Type::Any => Ok(Type::Bool),
            Type::List(element) => self.comparable(expr, one, element),
            Type::Map(_) if one.fits(&Type::Text) => Ok(Type::Bool),
            Type::Table(..) => match one {
                Type::Literal(name) => {
                    self.field(expr, all, name, true)?;
                    Ok(Type::Bool)
                }
                _ => Ok(Type::Bool),
            },
            other => fault(expr, format!("{} is never in a {}", one.name(), other.name())),
        }
    }

    fn index(&mut self, expr: &IdedExpr, list: &Type, index: &Type) -> TypeResult {
        match (list, index) {
            (Type::Any, _) => Ok(Type::Any),
            (Type::List(element), Type::Int | Type::Any) => Ok((**element).clone()),
            (Type::Map(value), one) if one.fits(&Type::Text) => Ok((**value).clone()),
            (Type::Table(..), Type::Literal(name)) => self.field(expr, list, name, false),
            (list, index) => fault(expr, format!("{}[{}]", list.name(), index.name())),
        }
    }

    fn sum(&self, expr: &IdedExpr, left: &Type, right: &Type) -> TypeResult {
        if left.is_number() && right.is_number() {
            return Ok(left.clone());
        }
        if self.in_map {
            return fault(expr, "only numbers are added inside map()");
        }
        match (left, right) {
            (Type::Any, other) | (other, Type::Any) => Ok(other.clone()),
            (Type::List(_), Type::List(_)) => Ok(left.clone()),
            (left, right) if left.is_text() && right.is_text() => Ok(Type::Text),
            _ => fault(expr, format!("{} and {} can't be added", left.name(), right.name())),
        }
    }

    fn comprehension(&mut self, expr: &IdedExpr, one: &ComprehensionExpr) -> TypeResult {
        let range = self.check(&one.iter_range)?;
        let element = match range {
            Type::Any => Type::Any,
            Type::List(element) => *element,
            Type::Map(_) | Type::Table(..) => Type::Text,
            other => return fault(expr, format!("a {} has no elements", other.name())),
        };
        let Some(body) = Loop::of(one) else { return fault(expr, "no macro of CEL") };
        self.loops = true;
        self.depth += 1;
        if self.depth > MAX_LOOPS {
            return fault(expr, format!("more than {MAX_LOOPS} loops inside each other"));
        }
        self.scopes.push((one.iter_var.clone(), element));
        let found = match body {
            Loop::Exists(predicate) | Loop::All(predicate) | Loop::One(predicate) => {
                self.predicate(predicate)?;
                Type::Bool
            }
            Loop::List(predicate, element) => {
                if let Some(predicate) = predicate {
                    self.predicate(predicate)?;
                }
                let around = std::mem::replace(&mut self.in_map, true);
                let element = self.check(element)?;
                self.in_map = around;
                Type::List(Box::new(element))
            }
        };
        self.scopes.pop();
        self.depth -= 1;
        Ok(found)
    }

    fn predicate(&mut self, expr: &IdedExpr) -> Result<(), ExpressionFault> {
        match self.check(expr)? {
            Type::Bool | Type::Any => Ok(()),
            other => fault(expr, format!("is {}, not bool: nothing to decide", other.name())),
        }
    }
}

/// A word that a field never holds.
fn never(expr: &IdedExpr, field: &Type, word: &Type) -> Result<(), ExpressionFault> {
    let Type::Words(words) = field else { return Ok(()) };
    let said = match word {
        Type::Literal(word) => std::slice::from_ref(word),
        Type::Literals(all) => all,
        _ => return Ok(()),
    };
    match said.iter().find(|word| !words.contains(&word.as_str())) {
        Some(word) => fault(expr, format!("it is never {word:?}: {}", nearest(word, words))),
        None => Ok(()),
    }
}

/// "did you mean X?" or all that there is.
fn nearest(name: &str, known: &[&str]) -> String {
    match near(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("there is {}", known.join(", ")),
    }
}

/// The type of what a path names: `vm.disks`.
pub(super) fn of_path(path: &str) -> Option<Type> {
    let mut parts = path.split('.');
    let root = parts.next()?;
    let mut found = match root {
        "vm" => Type::Table(FIELDS, String::new()),
        "item" => return None,
        name => Type::of(VARIABLES, view::field(VARIABLES, "", name)?),
    };
    for name in parts {
        found = match found {
            Type::Any => Type::Any,
            Type::Table(fields, prefix) => Type::of(fields, view::field(fields, &prefix, name)?),
            _ => return None,
        };
    }
    Some(found)
}
