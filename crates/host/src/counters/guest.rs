//! What a guest's own `/proc` says. The texts are fetched by others.

use record::CounterSet;

use super::{interrupts, parse_times};

/// Clock ticks per second in a guest's `/proc`: 100 on every architecture
/// that KVM runs on (Linux `include/asm-generic/param.h`).
const GUEST_TICKS_PER_SECOND: f64 = 100.0;

/// Reads `guest.*` from the texts of a guest's `/proc/stat` and
/// `/proc/interrupts`, totals over its vCPUs.
///
/// `vcpus` is the number of the table's columns when its head is missing.
#[must_use]
pub fn parse_guest(stat: &str, interrupts_text: &str, vcpus: u32) -> CounterSet {
    let mut counters = CounterSet::default();
    if let Some(times) = parse_times(stat, "cpu") {
        counters.set("guest.steal_s", times.steal_ticks / GUEST_TICKS_PER_SECOND);
        counters.set("guest.idle_s", times.idle_ticks / GUEST_TICKS_PER_SECOND);
    }
    interrupts::totals(stat, "guest", &mut counters);
    interrupts::rows(interrupts_text, Some(vcpus as usize), "guest", &mut counters);
    // A guest has posted interrupts for guests of its own.
    counters.0.retain(|name, _| record::counter(name).is_some());
    counters
}
