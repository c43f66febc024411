//! What a guest's own `/proc` says. The texts are fetched by others.

use record::CounterSet;

use super::parse_times;

/// Clock ticks per second in a guest's `/proc`: 100 on every architecture
/// that KVM runs on (Linux `include/asm-generic/param.h`).
const GUEST_TICKS_PER_SECOND: f64 = 100.0;

/// Reads `guest.*` from the texts of a guest's `/proc/stat` and
/// `/proc/interrupts`, totals over its vCPUs.
///
/// Lines are found by their descriptions, which are the same on x86 and
/// arm64 and stable between kernels, unlike arm64's IPI numbers. `vcpus` is
/// the number of columns when the table's head is missing; otherwise the head
/// counts, as offline vCPUs have no column.
#[must_use]
pub fn parse_guest(stat: &str, interrupts: &str, vcpus: u32) -> CounterSet {
    let mut counters = CounterSet::default();
    if let Some(times) = parse_times(stat, "cpu") {
        counters.set("guest.steal_s", times.steal_ticks / GUEST_TICKS_PER_SECOND);
        counters.set("guest.idle_s", times.idle_ticks / GUEST_TICKS_PER_SECOND);
    }
    for (name, prefix) in [("guest.context_switches", "ctxt "), ("guest.interrupts", "intr ")] {
        let first = |line: &str| line.split_ascii_whitespace().next()?.parse::<f64>().ok();
        let line = stat.lines().find_map(|line| line.strip_prefix(prefix));
        if let Some(value) = line.and_then(first) {
            counters.set(name, value);
        }
    }
    let mut columns = vcpus as usize;
    for line in interrupts.lines() {
        match line.split_once(':') {
            // The head: CPU0 CPU1 ...
            None if line.trim_start().starts_with("CPU") => {
                columns = line.split_ascii_whitespace().count();
            }
            None => {}
            Some((_, rest)) => {
                if let Some((name, total)) = parse_row(rest, columns) {
                    // Several lines may be timers.
                    counters.add(name, total);
                }
            }
        }
    }
    counters
}

/// The counter that a row of `/proc/interrupts` belongs to, and its total.
fn parse_row(row: &str, columns: usize) -> Option<(&'static str, f64)> {
    let mut words = row.split_ascii_whitespace();
    let mut total = 0.0;
    for _ in 0..columns {
        total += words.next()?.parse::<u64>().ok()? as f64;
    }
    let description: Vec<&str> = words.collect();
    let name = match description.as_slice() {
        ["Rescheduling", "interrupts"] => "guest.ipi_reschedule",
        ["Function", "call", "interrupts"] => "guest.ipi_call_function",
        ["TLB", "shootdowns"] => "guest.tlb_shootdowns",
        ["Local", "timer", "interrupts"] | [.., "arch_timer"] => "guest.timer_interrupts",
        _ => return None,
    };
    Some((name, total))
}
