//! What a condition sees, and what it says of that.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cel::IdedExpr;
use cel::common::types::CelBool;
use serde_json::Value;

/// What conditions see of one VM, by the names of variables.
pub(super) struct Variables<'v>(pub(super) BTreeMap<&'static str, Cow<'v, Value>>);

impl Variables<'_> {
    /// The value at a path: `vm.disks.0.cache`.
    pub(super) fn at(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('.');
        let variable: &Value = self.0.get(parts.next()?)?;
        parts.try_fold(variable, |at, part| match at {
            Value::Object(members) => members.get(part),
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

/// What a condition says, or why it says nothing.
pub(super) fn decide(expr: &IdedExpr, context: &cel::Context<'_, '_>) -> Result<bool, String> {
    let value = cel::Value::resolve_val(expr, context).map_err(|error| error.to_string())?;
    match value.downcast_ref::<CelBool>() {
        Some(decided) => Ok(*decided.inner()),
        None => Err(format!("it is {}, not bool", value.get_type().name())),
    }
}
