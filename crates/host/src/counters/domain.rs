//! What libvirt counts of a domain.
//!
//! Source: `virsh(1)`, `domstats`.

use std::collections::BTreeMap;

use record::CounterSet;

/// Our names of libvirt's: the name, the group whose numbered members are added up,
/// what is counted of it, and how many of its units are one of ours.
const ROWS: &[(&str, &str, &str, f64)] = &[
    ("libvirt.cpu_s", "cpu", "time", 1e9),
    ("libvirt.vcpu_s", "vcpu", "time", 1e9),
    ("libvirt.vcpu_delay_s", "vcpu", "delay", 1e9),
    ("libvirt.disk_reads", "block", "rd.reqs", 1.0),
    ("libvirt.disk_writes", "block", "wr.reqs", 1.0),
];

/// The counters in what `virsh domstats --raw` says of one domain, by its names.
#[must_use]
pub fn domain_counters(stats: &BTreeMap<String, f64>) -> CounterSet {
    let mut counters = CounterSet::default();
    for (found, value) in stats {
        let Some((group, rest)) = found.split_once('.') else { continue };
        let what = match rest.split_once('.') {
            Some((number, what)) if number.parse::<u32>().is_ok() => what,
            _ => rest,
        };
        let row = ROWS.iter().find(|row| (row.1, row.2) == (group, what));
        if let Some((name, _, _, per_unit)) = row {
            counters.add(*name, value / per_unit);
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_added_up_and_levels_are_no_counters() {
        // libvirt 9.0, two vCPUs and one disk, shortened.
        let stats = [
            ("state.state", 1.0),
            ("cpu.time", 2.5e9),
            ("cpu.user", 1e9),
            ("vcpu.current", 2.0),
            ("vcpu.0.time", 1e9),
            ("vcpu.1.time", 0.5e9),
            ("vcpu.1.delay", 2e9),
            ("block.count", 1.0),
            ("block.0.rd.reqs", 42.0),
            ("block.0.rd.bytes", 4096.0),
        ];
        let found = domain_counters(&stats.map(|(name, value)| (name.to_owned(), value)).into());
        let expected = [
            ("libvirt.cpu_s", 2.5),
            ("libvirt.disk_reads", 42.0),
            ("libvirt.vcpu_delay_s", 2.0),
            ("libvirt.vcpu_s", 1.5),
        ];
        assert_eq!(found.0, expected.map(|(name, value)| (name.to_owned(), value)).into());
        assert!(ROWS.iter().all(|row| record::counter(row.0).is_some()));
    }
}
