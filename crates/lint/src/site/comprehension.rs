//! The macros of CEL, as they were expanded.

use cel::IdedExpr;
use cel::common::ast::{ComprehensionExpr, Expr, LiteralValue, operators};

/// What a macro of CEL became when it was expanded.
pub(crate) enum Loop<'a> {
    /// `exists`: a predicate.
    Exists(&'a IdedExpr),
    /// `all`.
    All(&'a IdedExpr),
    /// `exists_one`.
    One(&'a IdedExpr),
    /// `map` and `filter`: a predicate if there is one, and the element.
    List(Option<&'a IdedExpr>, &'a IdedExpr),
}

impl<'a> Loop<'a> {
    /// `None`: no macro of the standard makes this.
    pub(crate) fn of(one: &'a ComprehensionExpr) -> Option<Self> {
        let Expr::Call(step) = &one.loop_step.expr else { return None };
        let element = |expr: &'a IdedExpr| {
            let Expr::Call(add) = &expr.expr else { return None };
            match &add.args.get(1)?.expr {
                Expr::List(list) if add.func_name == operators::ADD => list.elements.first(),
                _ => None,
            }
        };
        Some(match (&one.accu_init.expr, step.func_name.as_str()) {
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR) => {
                Self::Exists(step.args.get(1)?)
            }
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND) => {
                Self::All(step.args.get(1)?)
            }
            (Expr::Literal(LiteralValue::Int(_)), operators::CONDITIONAL) => {
                Self::One(step.args.first()?)
            }
            (Expr::List(_), operators::CONDITIONAL) => {
                Self::List(step.args.first(), element(step.args.get(1)?)?)
            }
            (Expr::List(_), operators::ADD) => Self::List(None, element(&one.loop_step)?),
            _ => return None,
        })
    }
}
