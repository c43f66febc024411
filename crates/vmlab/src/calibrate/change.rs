//! Two price lists that are counts of instructions: what changed, exactly.

use std::collections::{BTreeMap, BTreeSet};

use record::BetterDirection;
use runner::calibration::Calibration;
use schemars::JsonSchema;
use serde::Serialize;
use stats::{LogRatio, Verdict};

/// An operation whose count is another one, or that only one list has; or a fact of what was
/// compared, in which the lists differ.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Change {
    /// The operation; empty where the change is of what was compared.
    pub(super) operation: String,
    /// Of what: instructions (the median of the samples), their min, p99 and mean, the
    /// guest's IPIs and HLTs, or a counter of KVM's; of what was compared a fact by its name.
    pub(super) of: String,
    pub(super) old: Option<f64>,
    pub(super) new: Option<f64>,
    /// By more than the margin.
    pub(super) is_worse: bool,
    /// What the first list says of a fact; absent where counts differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old_text: Option<String>,
    /// What the other list says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new_text: Option<String>,
}

impl Change {
    /// True if it is no count, but something that the lists are of.
    pub(super) fn is_of_what_was_compared(&self) -> bool {
        self.old_text.is_some()
    }
}

/// Everything that is not the same in `b` as in `a`.
pub(super) fn changes(a: &Calibration, b: &Calibration, margin: f64) -> Vec<Change> {
    let facts = a.differences(b).into_iter().map(|fact| Change {
        operation: String::new(),
        of: fact.what,
        old: None,
        new: None,
        is_worse: false,
        old_text: Some(fact.old),
        new_text: Some(fact.new),
    });
    let mut found: Vec<Change> = facts.collect();
    let mut seen = BTreeSet::new();
    let names = a.prices.iter().chain(&b.prices).map(|price| price.operation.as_str());
    for name in names.filter(|name| seen.insert(*name)) {
        let (old, new) = (counts(a, name), counts(b, name));
        let kinds: BTreeSet<&str> = old.keys().chain(new.keys()).map(String::as_str).collect();
        for kind in kinds {
            let all = [&old, &new].map(|counts| counts.get(kind).map_or(&[][..], Vec::as_slice));
            if all[0] == all[1] {
                continue;
            }
            let (old, new) = first_apart(all);
            let is_worse = match (old, new) {
                // How much was done is no cost.
                _ if [SAMPLES, BATCH].contains(&kind) => false,
                (Some(old), Some(new)) => {
                    let known = LogRatio::exact(old, new);
                    known.verdict(BetterDirection::Lower, margin, |_| 0) == Verdict::BWorse
                }
                // What can't be done any more is worse; what is new is not.
                (old, _) => old.is_some() && kind == INSTRUCTIONS,
            };
            let (operation, of) = (name.to_owned(), kind.to_owned());
            let (old_text, new_text) = (None, None);
            found.push(Change { operation, of, old, new, is_worse, old_text, new_text });
        }
    }
    found
}

/// The median of an operation's samples.
const INSTRUCTIONS: &str = "instructions";
/// How much was done.
const SAMPLES: &str = "samples";
const BATCH: &str = "operations a sample";

/// All that is counted of an operation: the different counts of its boots, ascending.
fn counts(list: &Calibration, name: &str) -> BTreeMap<String, Vec<f64>> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let Some(price) = list.price(name) else { return all };
    let mut add = |kind: &str, count: f64| all.entry(kind.to_owned()).or_default().push(count);
    for boot in &price.boots {
        add(SAMPLES, f64::from(price.n));
        add(BATCH, f64::from(price.batch));
        add(INSTRUCTIONS, boot.median);
        add("min", boot.min);
        add("p99", boot.p99);
        boot.mean.into_iter().for_each(|mean| add("mean", mean));
        add("IPIs", boot.ipis as f64);
        add("HLTs", boot.hlts as f64);
        boot.kvm.iter().for_each(|(name, count)| add(name, *count));
    }
    for counts in all.values_mut() {
        counts.sort_unstable_by(f64::total_cmp);
        counts.dedup();
    }
    all
}

/// Of the ascending counts of two lists the greatest that are not the same; where one has no
/// more, its least. None of a list that has none.
fn first_apart([old, new]: [&[f64]; 2]) -> (Option<f64>, Option<f64>) {
    let from_above = |all: &[f64], place: usize| {
        let at = all.len().saturating_sub(place + 1);
        all.get(at).copied()
    };
    let both = |place| (from_above(old, place), from_above(new, place));
    let apart = (0..old.len().max(new.len())).map(both).find(|(old, new)| old != new);
    apart.unwrap_or_else(|| both(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Calibration {
        let boots = text.split(' ').map(|median| {
            let median: f64 = median.parse().unwrap();
            serde_json::json!({
                "min": 5.0, "median": median, "p99": 20.0, "ipis": 1, "hlts": 2,
                "kvm": { "kvm.exits": 7.0 },
            })
        });
        let text = serde_json::json!({
            "format": "vmlab-calibration", "version": 1, "environment": "instruction-counted",
            "count": "instructions", "kernel": null, "cpu_model": null, "qemu": "QEMU 9",
            "machine": "q35", "cpu": "host", "vcpus": 1, "apic": "x2apic", "tsc_khz": 0,
            "notes": [],
            "prices": [{
                "operation": "cpuid", "summary": "", "n": 10, "batch": 1,
                "boots": boots.collect::<Vec<_>>(),
            }],
        });
        Calibration::from_json(&text.to_string()).unwrap()
    }

    #[test]
    fn each_count_and_each_fact_is_compared() {
        let a = list("10 10");
        // A boot more says nothing new.
        assert_eq!(changes(&a, &list("10"), 0.0), []);
        let check = |expected: &[(&str, bool)], change: &dyn Fn(&mut Calibration)| {
            let mut b = a.clone();
            change(&mut b);
            let found = changes(&a, &b, 0.0);
            let found: Vec<_> = found.iter().map(|one| (one.of.as_str(), one.is_worse)).collect();
            assert_eq!(found, expected);
        };
        check(&[("p99", true)], &|b| b.prices[0].boots[0].p99 = 200.0);
        check(&[("min", true)], &|b| b.prices[0].boots[1].min = 50.0);
        check(&[("IPIs", true)], &|b| b.prices[0].boots[0].ipis = 10);
        check(&[("HLTs", false)], &|b| b.prices[0].boots.iter_mut().for_each(|one| one.hlts = 0));
        check(&[("instructions", true)], &|b| b.prices[0].boots[1].median = 11.0);
        check(&[("kvm.exits", true)], &|b| {
            b.prices[0].boots[1].kvm.insert("kvm.exits".to_owned(), 8.0);
        });
        check(&[("samples", false)], &|b| b.prices[0].n = 11);
        check(&[("machine", false)], &|b| b.machine = "pc".to_owned());
        check(&[("vCPUs", false), ("host kernel", false)], &|b| {
            b.vcpus = 2;
            b.kernel = Some("6.1".to_owned());
        });
        // An operation that nobody can measure any more.
        let lost = changes(&a, &Calibration { prices: Vec::new(), ..a.clone() }, 0.0);
        assert!(lost.iter().any(|one| one.of == INSTRUCTIONS && one.is_worse), "{lost:?}");
    }

    #[test]
    fn boots_that_differ_are_told_by_the_greatest_that_is_not_the_same() {
        assert_eq!(first_apart([&[10.0], &[10.0, 12.0]]), (Some(10.0), Some(12.0)));
        assert_eq!(first_apart([&[10.0, 12.0], &[12.0]]), (Some(10.0), Some(12.0)));
        assert_eq!(first_apart([&[1.0, 2.0, 3.0], &[1.0, 3.0]]), (Some(2.0), Some(1.0)));
        assert_eq!(first_apart([&[], &[3.0]]), (None, Some(3.0)));
    }
}
