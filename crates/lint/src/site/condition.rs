//! A condition: an expression of CEL over the view, held to it before it is asked.
//!
//! CEL itself ends, but not soon: comprehensions inside each other multiply, and texts
//! can be doubled. So an expression's size and depth have bounds, lists grow by
//! `map` alone and not inside it, and what its loops may cost on one VM is reckoned
//! before they run ([`Condition::cost`]).
//!
//! Source: the language definition of CEL, <https://github.com/google/cel-spec>.

use std::collections::HashMap;
use std::thread;

use cel::IdedExpr;
use cel::Program;
use cel::common::ast::{Expr, LiteralValue, operators};
use regex_lite::Regex;

use super::bounds::MAX_DEPTH;
use super::types::TypeChecker;

/// Bytes of an expression.
pub(crate) const MAX_BYTES: usize = 4096;
/// Bytes of the stack on which expressions are parsed: 16 KiB for each byte of one.
const PARSER_STACK: usize = MAX_BYTES << 14;

/// What is wrong with an expression, and where in it: line and column, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpressionError {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) what: String,
}

/// A condition that may be asked.
#[derive(Debug)]
pub(crate) struct Condition {
    program: Program,
    /// Its regular expressions, by their texts.
    pub(crate) patterns: HashMap<String, Regex>,
    pub(crate) loops: bool,
    pub(crate) names_host: bool,
    pub(crate) names_object: bool,
    pub(crate) names_kept: bool,
    /// Elements of the longest list that is written out, or 16 bytes of a text.
    literal: u64,
}

impl Condition {
    /// Reads and checks it. `each` is the list whose elements are `item`.
    pub(crate) fn read(text: &str, each: Option<&str>) -> Result<Self, ExpressionError> {
        if text.len() > MAX_BYTES {
            return Err(ExpressionError {
                line: 1,
                column: 1,
                what: format!("longer than {MAX_BYTES} bytes"),
            });
        }
        if let Some(offset) = too_deep(text) {
            let (line, column) = place(text, offset);
            return Err(ExpressionError {
                line,
                column,
                what: format!("nested deeper than {MAX_DEPTH}"),
            });
        }
        // The parser goes as deep as the text is long; what is too deep for others is
        // refused by the checker, and gone when this thread ends.
        let reader = thread::Builder::new().stack_size(PARSER_STACK);
        thread::scope(|scope| {
            let read = reader.spawn_scoped(scope, || Self::parse(text, each));
            let broken = |what: &str| ExpressionError { line: 1, column: 1, what: what.to_owned() };
            match read.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(condition)) => condition,
                Ok(Err(_)) => Err(broken("the parser of CEL gave up on it")),
                Err(error) => Err(broken(&format!("no thread to read it: {error}"))),
            }
        })
    }

    fn parse(text: &str, each: Option<&str>) -> Result<Self, ExpressionError> {
        let program = Program::compile(text).map_err(|errors| {
            let Some(first) = errors.errors.first() else {
                return ExpressionError { line: 1, column: 1, what: "no expression".to_owned() };
            };
            let at = |number: isize| usize::try_from(number).unwrap_or(1).max(1);
            let what = first.msg.lines().next().unwrap_or_default().to_owned();
            ExpressionError { line: at(first.pos.0), column: at(first.pos.1), what }
        })?;
        let mut checker = TypeChecker::new(each);
        if let Err(wrong) = checker.condition(program.expression()) {
            let offset = program.source_info().offset_for(wrong.id).map_or(0, |range| range.0);
            let (line, column) = place(text, offset as usize);
            return Err(ExpressionError { line, column, what: wrong.what });
        }
        let over = each.and_then(|path| path.split('.').next());
        let names = |name: &str| program.references().has_variable(name) || over == Some(name);
        let (names_host, names_object, names_kept) =
            (names("host"), names("object"), names("kept"));
        Ok(Self {
            patterns: checker.patterns,
            loops: checker.loops,
            names_host,
            names_object,
            names_kept,
            literal: literal(program.expression()),
            program,
        })
    }

    pub(crate) fn expression(&self) -> &IdedExpr {
        self.program.expression()
    }

    /// An upper bound of the steps that it takes. `length` says how long the list at a
    /// path is, if it is known; `longest` is longer than any.
    pub(crate) fn cost(&self, length: &dyn Fn(&str) -> Option<u64>, longest: u64) -> u64 {
        cost(self.expression(), length, longest.max(self.literal))
    }
}

/// Where brackets are nested too deeply, before anybody recurses into them.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    for (offset, letter) in text.chars().enumerate() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(offset);
        }
    }
    None
}

/// Line and column of a character, both from 1.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.chars().take(offset);
    before.fold((1, 1), |(line, column), letter| match letter {
        '\n' => (line + 1, 1),
        _ => (line, column + 1),
    })
}

/// The longest list or text that stands in an expression, a text by 16 bytes.
fn literal(expr: &IdedExpr) -> u64 {
    let longest = |all: &[IdedExpr]| all.iter().map(literal).max().unwrap_or(0);
    match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().len() as u64 / 16,
        Expr::List(list) => longest(&list.elements).max(list.elements.len() as u64),
        Expr::Call(call) => call.target.as_deref().map_or(0, literal).max(longest(&call.args)),
        Expr::Select(select) => literal(&select.operand),
        Expr::Comprehension(one) => literal(&one.iter_range).max(literal(&one.loop_step)),
        _ => 0,
    }
}

fn cost(expr: &IdedExpr, length: &dyn Fn(&str) -> Option<u64>, longest: u64) -> u64 {
    let of = |expr: &IdedExpr| cost(expr, length, longest);
    let sum = |all: &[IdedExpr]| all.iter().fold(1, |sum: u64, one| sum.saturating_add(of(one)));
    match &expr.expr {
        Expr::Call(call) => {
            let target = call.target.as_deref().map_or(0, of);
            // It goes through a list or a text.
            let goes = match call.func_name.as_str() {
                operators::IN | operators::EQUALS | operators::NOT_EQUALS | operators::ADD => true,
                name => !name.contains('_') && call.target.is_some(),
            };
            let through = if goes { longest / 16 } else { 0 };
            sum(&call.args).saturating_add(target).saturating_add(through)
        }
        Expr::Select(select) => 1 + of(&select.operand),
        Expr::List(list) => sum(&list.elements),
        Expr::Comprehension(one) => {
            let range = path(&one.iter_range).and_then(|path| length(&path)).unwrap_or(longest);
            // `@result + [x]` goes through what there is.
            let copy = if matches!(one.accu_init.expr, Expr::List(_)) { range } else { 0 };
            let step = of(&one.loop_step).saturating_add(copy).saturating_add(3);
            of(&one.iter_range).saturating_add(range.saturating_mul(step))
        }
        _ => 1,
    }
}

/// The path that an expression spells: `vm.disks`, `vm.pins.vcpus`. Indices that are
/// written out are part of it: `vm.disks.0`.
pub(crate) fn path(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) => Some(format!("{}.{}", path(&select.operand)?, select.field)),
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let [list, index] = call.args.as_slice() else { return None };
            let key = match &index.expr {
                Expr::Literal(LiteralValue::String(text)) => text.inner().to_owned(),
                Expr::Literal(LiteralValue::Int(number)) => number.inner().to_string(),
                _ => return None,
            };
            Some(format!("{}.{key}", path(list)?))
        }
        _ => None,
    }
}
