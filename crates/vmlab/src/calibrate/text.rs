//! Price lists for people.

use std::fmt::Write as _;

use runner::calibration::{Agreement, Calibration, CalibrationRequest, Count, Price};
use stats::Interval;
use thinguest::Operation;
use vmconfig::Arch;

use super::SHORT;
use super::change::Change;

/// The operations, those of the short list marked.
pub(super) fn operations() -> String {
    let mut text = String::new();
    for operation in Operation::all() {
        let short = if SHORT.contains(&operation) { "*" } else { " " };
        let of: Vec<&str> =
            ["x86_64", "aarch64"].into_iter().filter(|arch| operation.is_of(arch)).collect();
        let only = if let [arch] = of[..] { format!(" ({arch})") } else { String::new() };
        let _ = writeln!(text, "{short} {:14} {}{only}", operation.name(), operation.summary());
    }
    text + "\n* the short list, without --all\n"
}

/// What would be run.
pub(super) fn dry_run(ask: &CalibrationRequest, arch: Arch, lines: &[String]) -> String {
    let boots = if ask.boots == 1 { "boot" } else { "boots" };
    let names: Vec<&str> = ask.items.iter().map(|item| item.operation.name()).collect();
    let command = lines.join(" \\\n  ");
    format!("{} {boots} of {}\n\nqemu-system-{arch} \\\n  {command}\n", ask.boots, names.join(", "))
}

/// Three significant digits, and whole from 100 on; what is whole has no digits more.
fn number(value: f64) -> String {
    // Means go through logarithms.
    let value = (value * 1e6).round() / 1e6;
    match value {
        _ if value.fract() == 0.0 => format!("{value}"),
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn with_interval(centre: f64, interval: Option<Interval>) -> String {
    match interval {
        Some(Interval { lo, hi, .. }) => {
            format!("{} [{}, {}]", number(centre), number(lo), number(hi))
        }
        None => number(centre),
    }
}

/// What KVM says, in a word or two.
fn kvm(list: &Calibration, price: &Price) -> String {
    match list.agreement(price) {
        Agreement::Agrees { counter } => {
            let counts = price.boots.iter().filter_map(|boot| boot.kvm.get(counter));
            let (lo, hi) = counts.fold((f64::MAX, 0.0_f64), |(lo, hi), &n| (lo.min(n), hi.max(n)));
            let name = counter.trim_start_matches("kvm.");
            if lo == hi { format!("{lo} {name}") } else { format!("{lo}-{hi} {name}") }
        }
        Agreement::Differs(differs) => {
            let name = differs.counter.trim_start_matches("kvm.");
            format!("{} {name}, NOT the guest's {}", differs.found, differs.guest)
        }
        Agreement::NotCounted => String::new(),
    }
}

/// Rows below their headings, columns but the first and the last to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let wide = width(column).unwrap_or(0);
            let _ = if column == 0 || column + 1 == columns {
                write!(line, "{cell:wide$}  ")
            } else {
                write!(line, "{cell:>wide$}  ")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The price list.
pub(super) fn prices(list: &Calibration) -> String {
    let counted = list.count == Count::Instructions;
    let mut text = String::new();
    let place = [list.cpu_model.as_deref(), list.kernel.as_deref()];
    let place: Vec<&str> = place.into_iter().flatten().collect();
    if !place.is_empty() {
        let _ = writeln!(text, "{}", place.join(", Linux "));
    }
    let Calibration { qemu, machine, vcpu_model, vcpus, apic, .. } = list;
    let _ = writeln!(text, "{qemu}: {machine}, {vcpu_model}, {vcpus} vCPUs, {apic}");
    let _ = writeln!(text, "{}", list.environment_sentence());
    if counted {
        text += "Prices are instructions, the same in every run; none is a time.\n";
    }
    list.notes.iter().for_each(|note| {
        let _ = writeln!(text, "Note: {note}.");
    });
    text.push('\n');
    let mut rows: Vec<Vec<String>> = Vec::new();
    let heads: &[&str] = if counted {
        &["operation", "n", "instructions", "min", "p99", "KVM counted"]
    } else {
        &["operation", "n", "ns", "cycles", "min", "p99", "KVM counted"]
    };
    rows.push(heads.iter().map(|head| (*head).to_owned()).collect());
    for price in list.prices.iter().filter(|price| !price.boots.is_empty()) {
        let Some(estimate) = list.estimate(price) else { continue };
        let n = (price.n * price.batch).to_string();
        let (least, tail) = (number(list.net_min(price)), number(list.net_p99(price)));
        let mut row = vec![price.operation.clone(), n];
        if !counted {
            let ns =
                list.estimate_ns(price).map(|(centre, interval)| with_interval(centre, interval));
            row.push(ns.unwrap_or_else(|| "?".to_owned()));
        }
        row.push(with_interval(estimate.centre, estimate.interval.filter(|_| !counted)));
        row.extend([least, tail, kvm(list, price)]);
        rows.push(row);
    }
    text += &table(&rows);
    let missing: Vec<&Price> = list.prices.iter().filter(|price| price.missing.is_some()).collect();
    if !missing.is_empty() {
        text += "\nNot measured, or not in every boot:\n";
        for price in missing {
            let why = price.missing.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  {:14} {why}", price.operation);
        }
    }
    let silent = list.prices.iter().all(|price| price.boots.iter().all(|boot| boot.kvm.is_empty()));
    if silent && !counted {
        text += "\nKVM's own counts could not be read: neither QEMU's query-stats nor debugfs has them.\n";
    }
    text
}

/// What changed from the counts of `a` to another list's.
pub(super) fn changes(a: &Calibration, changes: &[Change]) -> String {
    let mut text = format!("{}, {}\n", a.environment.sentence(), a.qemu);
    let (facts, counts): (Vec<&Change>, Vec<&Change>) =
        changes.iter().partition(|change| change.is_of_what_was_compared());
    if !facts.is_empty() {
        text += "\nThe lists are not of the same:\n";
        let words = |text: &Option<String>| text.clone().unwrap_or_default();
        let row = |one: &&Change| vec![one.of.clone(), words(&one.old_text), words(&one.new_text)];
        let heads = ["what", "old", "new"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> = [heads].into_iter().chain(facts.iter().map(row)).collect();
        text += &table(&rows);
    }
    if counts.is_empty() {
        return text + "\nEvery count is the same.\n";
    }
    text.push('\n');
    let heads = ["operation", "count", "old", "new", "difference"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let shown =
        |count: Option<f64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    for change in counts {
        let percent = match (change.old, change.new) {
            (Some(old), Some(new)) if old > 0.0 => format!("{:+.2} %", (new / old - 1.0) * 100.0),
            _ => String::new(),
        };
        let worse = if change.is_worse { " worse" } else { "" };
        let Change { operation, of, old, new, .. } = change;
        let difference = format!("{percent}{worse}");
        rows.push(vec![operation.clone(), of.clone(), shown(*old), shown(*new), difference]);
    }
    text + &table(&rows)
}
