//! Price lists compared with the first: counts exactly, times by the verdict engine.

use anyhow::bail;
use compare::Data;
use compare::analyse::{self, ComparedData, DataWarning, analyse};
use record::LogValue;
use runner::calibration::{Calibration, Count, ListDifference};

use super::change::{self, Change};
use super::text;
use crate::compare::CompareFormat;
use crate::terminal;

/// The smallest difference between times that matters, per cent.
const MARGIN_OF_TIMES: f64 = 3.0;

/// What differs.
pub(super) enum ListComparison {
    /// Of each list but the first the changes, and the same in words.
    Counts(Vec<(Vec<Change>, String)>),
    /// What the engine says.
    Times(Box<ComparedData>),
}

/// Compares `lists`, two at the least, with the first; `margin` is in per cent.
///
/// # Errors
/// If they can't be compared.
pub(super) fn of(
    lists: &[(String, Calibration)],
    margin: Option<f64>,
) -> anyhow::Result<ListComparison> {
    let Some(((old, a), others)) = lists.split_first() else { bail!("There is no list") };
    let is_empty = |list: &Calibration| list.prices.iter().all(|price| price.boots.is_empty());
    if let Some((name, _)) = lists.iter().find(|(_, list)| is_empty(list)) {
        bail!("{name} has no price: nothing can be compared with it");
    }
    for (new, b) in others {
        let refused = |one: &str, other: &str| -> anyhow::Result<()> {
            bail!("{old} has {one}, and {new} {other}: they can't be compared");
        };
        if a.arch != b.arch {
            // Operations of one name are others there.
            refused(&format!("prices of {} guests", a.arch), &format!("of {} guests", b.arch))?;
        }
        if a.count != b.count {
            refused(a.count.name(), b.count.name())?;
        }
        if a.count == Count::Instructions && a.environment != b.environment {
            // Those of the guest alone, or those of its host's kernel and QEMU as well.
            let [one, other] = [a, b].map(|list| format!("instructions of {}", list.environment));
            refused(&one, &other)?;
        }
    }
    if a.count == Count::Instructions {
        let of_one = |(_, b): &(String, Calibration)| {
            let changes = change::changes(a, b, margin.unwrap_or(0.0) / 100.0);
            let words = text::changes(a, &changes);
            (changes, words)
        };
        return Ok(ListComparison::Counts(others.iter().map(of_one).collect()));
    }
    of_times(lists, margin.unwrap_or(MARGIN_OF_TIMES)).map(Box::new).map(ListComparison::Times)
}

fn of_times(lists: &[(String, Calibration)], margin: f64) -> anyhow::Result<ComparedData> {
    let mut data = Data::default();
    let mut names: Vec<String> = Vec::new();
    for (name, list) in lists {
        // One file twice is two lists all the same.
        let again = if names.contains(name) { " (again)" } else { "" };
        let name = format!("{name}{again}");
        let values: Vec<LogValue> = list.values().into_iter().map(LogValue::from).collect();
        data.add_imported(&name, &values);
        names.push(name);
    }
    let asked = analyse::CompareOptions {
        boot: Some("boot".to_owned()),
        by: vec!["operation".to_owned()],
        margin: margin / 100.0,
        advise_options: false,
        ..analyse::CompareOptions::default()
    };
    let mut comparison = analyse(&data.finish(), &asked)?;
    for ((_, list), name) in lists.iter().zip(&names) {
        if list.environment.is_emulated_time() || list.is_software_kvm() {
            let text = format!("{name}: {}", list.environment_sentence());
            comparison.warnings.push(DataWarning { code: "emulated", text });
        }
    }
    let Some(((_, a), others)) = lists.split_first() else { return Ok(comparison) };
    for ((_, b), name) in others.iter().zip(&names[1..]) {
        let facts = a.differences(b);
        if !facts.is_empty() {
            let fact =
                |fact: &ListDifference| format!("{} {}, not {}", fact.what, fact.new, fact.old);
            let facts: Vec<String> = facts.iter().map(fact).collect();
            let text = format!("{name} is of another host or VM: {}.", facts.join("; "));
            comparison.warnings.push(DataWarning { code: "other-host", text });
        }
        for (operation, why) in lost(a, b) {
            comparison.gate.passed = false;
            comparison.gate.failures.push(format!("{name}: no price of {operation} any more{why}"));
        }
    }
    Ok(comparison)
}

/// Operations that only `a` has a price of, and why `b` has none as far as it says.
fn lost<'a>(a: &'a Calibration, b: &Calibration) -> Vec<(&'a str, String)> {
    let of = |price: &'a runner::calibration::Price| {
        let name = price.operation.as_str();
        let there = b.price(name);
        let is_lost = !price.boots.is_empty() && there.is_none_or(|there| there.boots.is_empty());
        let why = there.and_then(|there| there.missing.as_ref());
        is_lost.then(|| (name, why.map(|why| format!(": {why}")).unwrap_or_default()))
    };
    a.prices.iter().filter_map(of).collect()
}

impl ListComparison {
    /// Refuses what counts can't be printed as.
    ///
    /// # Errors
    /// See there.
    pub(super) fn check_format(&self, format: CompareFormat) -> anyhow::Result<()> {
        let is_known = [CompareFormat::Text, CompareFormat::Json].contains(&format);
        if matches!(self, Self::Counts(_)) && !is_known {
            bail!("Counts of instructions have --format text and json");
        }
        Ok(())
    }

    /// Prints it.
    ///
    /// # Errors
    /// If counts can't be printed as `format`, or nothing can be printed.
    pub(super) fn print(&self, format: CompareFormat) -> anyhow::Result<()> {
        self.check_format(format)?;
        match self {
            Self::Times(found) => crate::compare::print(found, format),
            Self::Counts(all) if format == CompareFormat::Text => {
                all.iter().try_for_each(|(_, words)| terminal::print(words))
            }
            Self::Counts(all) => {
                let changes: Vec<&Change> = all.iter().flat_map(|(changes, _)| changes).collect();
                terminal::print(&(serde_json::to_string_pretty(&changes)? + "\n"))
            }
        }
    }

    /// The same for a place in another JSON.
    ///
    /// # Errors
    /// None that can happen: names and numbers have a text.
    pub(super) fn json(&self) -> anyhow::Result<serde_json::Value> {
        Ok(match self {
            Self::Times(found) => serde_json::to_value(found)?,
            Self::Counts(all) => {
                let changes: Vec<&Vec<Change>> = all.iter().map(|(changes, _)| changes).collect();
                serde_json::to_value(changes)?
            }
        })
    }

    /// True if nothing got worse; what did is noted, where no table tells it.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Times(found) => {
                found.gate.failures.iter().for_each(|failure| terminal::note(failure));
                found.gate.passed
            }
            Self::Counts(all) => {
                all.iter().flat_map(|(changes, _)| changes).all(|change| !change.is_worse)
            }
        }
    }
}
