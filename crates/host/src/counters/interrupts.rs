//! `/proc/interrupts` and the totals in `/proc/stat`, of a host or a guest.
//!
//! Lines are found by their descriptions, which are the same on x86 and arm64
//! and stable between kernels, unlike arm64's IPI numbers.

use record::CounterSet;

/// Sets context switches and interrupts of `whose` (`host`, `guest`) from the
/// text of `/proc/stat`.
pub(super) fn totals(stat: &str, whose: &str, counters: &mut CounterSet) {
    for (name, prefix) in [("context_switches", "ctxt "), ("interrupts", "intr ")] {
        let first = |line: &str| line.split_ascii_whitespace().next()?.parse::<f64>().ok();
        let line = stat.lines().find_map(|line| line.strip_prefix(prefix));
        if let Some(value) = line.and_then(first) {
            counters.set(format!("{whose}.{name}"), value);
        }
    }
}

/// Adds up the rows of `/proc/interrupts` that have a counter of `whose`, over
/// all columns. `columns` is their number when the table's head is missing;
/// otherwise the head counts, as offline pCPUs have no column.
pub(super) fn rows(
    interrupts: &str,
    mut columns: Option<usize>,
    whose: &str,
    counters: &mut CounterSet,
) {
    for line in interrupts.lines() {
        match (line.split_once(':'), columns) {
            // The head: CPU0 CPU1 ...
            (None, _) if line.trim_start().starts_with("CPU") => {
                columns = Some(line.split_ascii_whitespace().count());
            }
            (Some((_, rest)), Some(columns)) => {
                if let Some((name, total)) = row(rest, columns) {
                    // Several lines may be timers.
                    counters.add(format!("{whose}.{name}"), total);
                }
            }
            _ => {}
        }
    }
}

/// The counter that a row belongs to, and its total.
fn row(row: &str, columns: usize) -> Option<(&'static str, f64)> {
    let mut words = row.split_ascii_whitespace();
    let mut total = 0.0;
    for _ in 0..columns {
        total += words.next()?.parse::<u64>().ok()? as f64;
    }
    let description: Vec<&str> = words.collect();
    let name = match description.as_slice() {
        ["Rescheduling", "interrupts"] => "ipi_reschedule",
        ["Function", "call", "interrupts"] => "ipi_call_function",
        ["TLB", "shootdowns"] => "tlb_shootdowns",
        ["Local", "timer", "interrupts"] | [.., "arch_timer"] => "timer_interrupts",
        ["Posted-interrupt", "notification", "event"] => "posted_interrupts",
        ["Posted-interrupt", "wakeup", "event"] => "posted_wakeups",
        _ => return None,
    };
    Some((name, total))
}
