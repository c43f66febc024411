//! Counters tied to a run: what the hypervisor, the host and the guest did
//! between its start and its end.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod exits;
mod families;
mod table;

pub use exits::{ARM64_IRQ, ExitCodes};
use families::{FAMILIES, LINUX_GUESTS};
pub use table::COUNTERS;

/// Counters of the other VM of a trial begin with this.
pub const PEER: &str = "peer.";

/// Counters of exits by reason begin with this.
pub const EXITS: &str = "kvm.exits.";

/// How often the locks of a guest's kernel were waited for; those of a class have its name
/// behind a dot.
pub const LOCK_WAITS: &str = "guest.lock_waits";

/// How long, s.
pub const LOCK_WAIT: &str = "guest.lock_wait_s";

/// A counter that vmlab knows: its name, unit and meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Name, `<where>.<what>[-unit]`.
    pub name: &'static str,
    /// Base unit of the difference.
    pub unit: &'static str,
    /// What it counts, one sentence.
    pub meaning: &'static str,
    /// Where it is read.
    pub source: &'static str,
}

/// What is known about the counter `name`, which may be another VM's
/// (`peer.kvm.exits`).
#[must_use]
pub fn counter(name: &str) -> Option<Counter> {
    let name = name.strip_prefix(PEER).unwrap_or(name);
    if let Some(counter) = COUNTERS.iter().find(|counter| counter.name == name) {
        return Some(*counter);
    }
    let of_family = |family: &&Counter| name.starts_with(family.name);
    let family = *FAMILIES.iter().find(of_family)?;
    let reason = name.strip_prefix(EXITS).and_then(exits::meaning);
    let of_linux = || LINUX_GUESTS.iter().find(|row| row.0 == name).map(|row| row.1);
    Some(Counter { meaning: reason.or_else(of_linux).unwrap_or(family.meaning), ..family })
}

/// Whether a counter tells how much there is at one moment, not how often something
/// happened.
#[must_use]
pub fn is_level(name: &str) -> bool {
    ["_bytes", "_vcpus"].iter().any(|suffix| name.ends_with(suffix)) && !is_of_lock(name)
}

/// Whether a counter is of a class of locks, whose name may be any.
fn is_of_lock(name: &str) -> bool {
    let name = name.strip_prefix(PEER).unwrap_or(name);
    let class = |family: &str| name.strip_prefix(family).is_some_and(|it| it.starts_with('.'));
    class(LOCK_WAITS) || class(LOCK_WAIT)
}

/// Values of counters at one moment, or their differences over a run.
///
/// A counter that could not be read is absent; it is never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CounterSet(pub BTreeMap<String, f64>);

impl CounterSet {
    /// Sets `name` to `value`.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// Adds `value` to `name`, which starts at zero.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        *self.0.entry(name.into()).or_insert(0.0) += value;
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// The value of `name`; zero for what is counted by reason, has its row
    /// from its first event on, and had none.
    #[must_use]
    pub fn counted(&self, name: &str) -> Option<f64> {
        let none_came = || {
            let prefix = if name.starts_with(PEER) { PEER } else { "" };
            let by_reason = name.strip_prefix(prefix).is_some_and(|name| name.starts_with("kvm."))
                && counter(name).is_some_and(|one| one.name.ends_with('.'));
            let exits = format!("{prefix}{EXITS}");
            // No VM runs without exits: if they were counted, there are some.
            let first = self.0.range(exits.clone()..).next();
            by_reason && first.is_some_and(|(name, _)| name.starts_with(&exits))
        };
        self.get(name).or_else(|| none_came().then_some(0.0))
    }

    /// Takes over all values of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds all values of `other` to those of the same names.
    pub fn add_all(&mut self, other: Self) {
        for (name, value) in other.0 {
            self.add(name, value);
        }
    }

    /// The differences from `before` to `self`, for the counters that both
    /// have. Levels are kept as they are now. What is counted by reason, or of a lock,
    /// begins to exist with its first event.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let difference = |(name, now): (&String, &f64)| {
            if is_level(name) {
                return Some((name.clone(), *now));
            }
            let counted = || {
                let prefix = if name.starts_with(PEER) { PEER } else { "" };
                let all = before.get(&format!("{prefix}{LOCK_WAITS}"));
                all.filter(|_| is_of_lock(name)).map(|_| 0.0)
            };
            let then = before.counted(name).or_else(counted)?;
            Some((name.clone(), now - then))
        };
        Self(self.0.iter().filter_map(difference).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_need_both_ends_and_levels_stay() {
        let mut before = CounterSet::default();
        before.set("vcpu.run_s", 1.0);
        let mut after = CounterSet::default();
        after.set("vcpu.run_s", 3.5);
        after.set("kvm.exits", 7.0);
        after.set("memory.thp_bytes", 4096.0);
        let moved = after.since(&before);
        assert_eq!(moved.get("vcpu.run_s"), Some(2.5));
        assert_eq!(moved.get("kvm.exits"), None);
        assert_eq!(moved.get("memory.thp_bytes"), Some(4096.0));
    }

    #[test]
    fn what_is_counted_by_reason_begins_with_its_first_event() {
        let set = |rows: &[(&str, f64)]| {
            CounterSet(rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
        };
        let after = set(&[
            ("kvm.exits.hlt", 9.0),
            ("kvm.exits.npf", 2.0),
            ("kvm.irqs.0x22", 3.0),
            ("kvm.exits", 11.0),
            ("peer.kvm.exits.npf", 5.0),
        ]);
        let moved = after.since(&set(&[("kvm.exits.hlt", 4.0), ("kvm.a", 1.0)]));
        let expected = [("kvm.exits.hlt", 5.0), ("kvm.exits.npf", 2.0), ("kvm.irqs.0x22", 3.0)];
        assert_eq!(moved, set(&expected));
        // Not counted then: nobody knows what came since.
        assert_eq!(after.since(&set(&[("kvm.zzz", 1.0)])), CounterSet::default());
        let moved = after.since(&set(&[("peer.kvm.exits.hlt", 1.0)]));
        assert_eq!(moved, set(&[("peer.kvm.exits.npf", 5.0)]));
    }

    #[test]
    fn a_lock_is_counted_from_its_first_wait_whatever_its_name() {
        let set = |rows: &[(&str, f64)]| {
            CounterSet(rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
        };
        let after = set(&[
            ("guest.lock_waits", 9.0),
            ("guest.lock_waits.&s->dirty_bytes", 5.0),
            ("guest.lock_wait_s.&s->dirty_bytes", 2.5),
            ("guest.lock_wait_s.old", 3.0),
            ("peer.guest.lock_waits.x", 4.0),
        ]);
        let before = set(&[("guest.lock_waits", 2.0), ("guest.lock_wait_s.old", 1.0)]);
        let moved = set(&[
            ("guest.lock_waits", 7.0),
            ("guest.lock_waits.&s->dirty_bytes", 5.0),
            ("guest.lock_wait_s.&s->dirty_bytes", 2.5),
            ("guest.lock_wait_s.old", 2.0),
        ]);
        assert_eq!(after.since(&before), moved, "the peer's were not counted then");
        assert_eq!(after.since(&CounterSet::default()), CounterSet::default());
        // A record tells of some classes alone: what it leaves out is not zero.
        assert_eq!(moved.counted("guest.lock_wait_s.other"), None);
    }

    #[test]
    fn families_and_other_vms_counters_are_known() {
        let check = |name: &str, unit: &str, meaning: &str| {
            let counter = counter(name).expect(name);
            assert_eq!(counter.unit, unit, "{name}");
            assert!(counter.meaning.contains(meaning), "{name}: {}", counter.meaning);
        };
        check("kvm.exits.hlt", "count", "halted");
        check("kvm.exits.ept_violation", "count", "Nested page faults");
        check("kvm.exits.0x77", "count", "that reason");
        check("kvm.irqs.0xec", "count", "timer");
        check("kvm.irqs.0x22", "count", "that vector");
        check("peer.vcpu.run_s", "s", "vCPU threads ran");
        check("memory.node1_bytes", "B", "node of the host");
        assert_eq!(counter("kvm.new_in_some_kernel"), None);
    }

    #[test]
    fn all_of_them_are_documented() {
        let rows = COUNTERS.iter().chain(FAMILIES).map(|counter| {
            let Counter { name, unit, meaning, source } = counter;
            let rest = match (name.ends_with('.'), name.ends_with("node")) {
                (true, _) => "<...>",
                (_, true) => "<N>_bytes",
                _ => "",
            };
            format!("| `{name}{rest}` | {unit} | {meaning} | {source} |\n")
        });
        let head = "| counter | unit | what it counts | where it is read |\n|---|---|---|---|\n";
        let table = head.to_owned() + &rows.collect::<String>();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/counters.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (before, rest) = page.split_once("<!-- counters: begin -->\n").expect("the begin");
        let (found, after) = rest.split_once("<!-- counters: end -->").expect("the end");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let page =
                format!("{before}<!-- counters: begin -->\n{table}<!-- counters: end -->{after}");
            std::fs::write(path, page).expect("written");
            return;
        }
        assert!(found == table, "docs/counters.md is not up to date: run with UPDATE_EXPECT=1");
    }

    #[test]
    fn names_are_unique_and_say_their_unit() {
        for (i, a) in COUNTERS.iter().enumerate() {
            assert!(COUNTERS[i + 1..].iter().all(|b| b.name != a.name), "{} twice", a.name);
            assert_eq!(a.unit == "s", a.name.ends_with("_s"), "{}: unit and name disagree", a.name);
            assert_eq!(a.unit == "B", a.name.ends_with("_bytes"), "{}: unit and name", a.name);
            assert_eq!(a.unit == "vCPU", a.name.ends_with("_vcpus"), "{}: unit and name", a.name);
        }
    }
}
