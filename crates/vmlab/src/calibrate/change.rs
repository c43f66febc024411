//! Two price lists that are counts of instructions: what changed, exactly.

use record::Better;
use runner::calibration::Calibration;
use schemars::JsonSchema;
use serde::Serialize;
use stats::{LogRatio, Verdict};

/// An operation whose count is another one, or that only one list has.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Change {
    pub(super) operation: String,
    /// Of what: instructions, or a counter of KVM's, an operation.
    pub(super) of: String,
    pub(super) old: Option<f64>,
    pub(super) new: Option<f64>,
    /// By more than the margin.
    pub(super) is_worse: bool,
}

/// Everything that is not the same in `b` as in `a`.
pub(super) fn changes(a: &Calibration, b: &Calibration, margin: f64) -> Vec<Change> {
    let mut names: Vec<&str> = a.prices.iter().map(|price| price.operation.as_str()).collect();
    names.extend(b.prices.iter().map(|price| price.operation.as_str()));
    let mut seen = Vec::new();
    names.retain(|name| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    let mut found = Vec::new();
    for name in names {
        let (old, new) = (counts(a, name), counts(b, name));
        let mut kinds: Vec<&String> = old.iter().chain(&new).map(|(kind, _)| kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let of = |all: &[(String, f64)]| all.iter().find(|row| row.0 == *kind).map(|row| row.1);
            let (old, new) = (of(&old), of(&new));
            if old != new {
                let is_worse = match (old, new) {
                    (Some(old), Some(new)) => {
                        let known = LogRatio::exact(old, new);
                        known.verdict(Better::Lower, margin, |_| 0) == Verdict::BWorse
                    }
                    // What can't be done any more is worse; what is new is not.
                    (old, _) => old.is_some() && kind == INSTRUCTIONS,
                };
                let (operation, of) = (name.to_owned(), kind.clone());
                found.push(Change { operation, of, old, new, is_worse });
            }
        }
    }
    found
}

const INSTRUCTIONS: &str = "instructions";

/// The counts of an operation's first boot: all boots have the same.
fn counts(list: &Calibration, name: &str) -> Vec<(String, f64)> {
    let Some(boot) = list.price(name).and_then(|price| price.boots.first()) else {
        return Vec::new();
    };
    let own = [(INSTRUCTIONS.to_owned(), boot.median)];
    own.into_iter().chain(boot.kvm.iter().map(|(name, count)| (name.clone(), *count))).collect()
}

/// The changes as JSON.
pub(super) fn json(changes: &[Change]) -> String {
    serde_json::to_string_pretty(changes).expect("names and numbers have a text") + "\n"
}
