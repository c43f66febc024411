//! What the kernel counts on some of the host's pCPUs, for a workload that runs
//! there as in a guest with as many vCPUs.

use std::fmt::Write as _;
use std::fs;

use record::CounterSet;
use topology::PcpuSet;

use super::parse_guest;

/// Reads those of `guest.*` that have the same meaning for pCPUs of the host:
/// idle and stolen time, IPIs, timer interrupts. They count whatever runs on
/// these pCPUs. Context switches and interrupts as a whole are absent: the
/// kernel counts them for all pCPUs together.
#[must_use]
pub fn read_seat(pcpus: &PcpuSet) -> CounterSet {
    let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
    of_seat(&text("/proc/stat"), &text("/proc/interrupts"), pcpus)
}

fn of_seat(stat: &str, interrupts: &str, pcpus: &PcpuSet) -> CounterSet {
    let vcpus = u32::try_from(pcpus.len()).unwrap_or(u32::MAX);
    // A pCPU that is missing would leave a part that looks like the whole.
    let stat = stat_of(stat, pcpus).unwrap_or_default();
    let interrupts = interrupts_of(interrupts, pcpus).unwrap_or_default();
    parse_guest(&stat, &interrupts, vcpus)
}

/// `/proc/stat` as a machine with these pCPUs alone would have it, without what
/// is counted for all.
fn stat_of(stat: &str, pcpus: &PcpuSet) -> Option<String> {
    let mut total: Vec<u64> = Vec::new();
    for pcpu in pcpus.iter() {
        let name = format!("cpu{pcpu} ");
        let row = stat.lines().find_map(|line| line.strip_prefix(&name))?;
        for (column, word) in row.split_ascii_whitespace().enumerate() {
            let ticks: u64 = word.parse().ok()?;
            match total.get_mut(column) {
                Some(sum) => *sum += ticks,
                None => total.push(ticks),
            }
        }
    }
    let words: Vec<String> = total.iter().map(u64::to_string).collect();
    Some(format!("cpu {}\n", words.join(" ")))
}

/// `/proc/interrupts` with the columns of these pCPUs alone, in one order.
fn interrupts_of(interrupts: &str, pcpus: &PcpuSet) -> Option<String> {
    let mut lines = interrupts.lines();
    let head: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    let column = |pcpu: u32| head.iter().position(|name| *name == format!("CPU{pcpu}"));
    let columns: Vec<usize> = pcpus.iter().map(column).collect::<Option<_>>()?;
    let names: Vec<&str> = columns.iter().map(|column| head[*column]).collect();
    let mut text = format!("  {}\n", names.join(" "));
    for line in lines {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Rows that are not counted for each pCPU are shorter.
        if words.len() < head.len() {
            continue;
        }
        let (counts, description) = words.split_at(head.len());
        let counts: Vec<&str> = columns.iter().map(|column| counts[*column]).collect();
        let _ = writeln!(text, "{name}: {} {}", counts.join(" "), description.join(" "));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 0 50 1000 0 0 0 9 0 0\n\
        cpu0 40 0 20 300 0 0 0 2 0 0\ncpu2 25 0 10 350 0 0 0 3 0 0\ncpu3 35 0 20 350 0 0 0 4 0 0\n\
        intr 12345 1 2\nctxt 777\n";

    const INTERRUPTS: &str = "            CPU0       CPU2       CPU3       \n\
        \x20  1:          9          8          7   IO-APIC   1-edge      i8042\n\
        \x20LOC:         10         20         30   Local timer interrupts\n\
        \x20RES:          1          2          3   Rescheduling interrupts\n\
        \x20ERR:          5\n";

    #[test]
    fn only_the_seats_pcpus_count() {
        let check = |pcpus: &str, expected: &[(&str, f64)]| {
            let pcpus: PcpuSet = pcpus.parse().expect("a set");
            let found = of_seat(STAT, INTERRUPTS, &pcpus);
            let found: Vec<_> =
                found.0.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            assert_eq!(found, expected, "{pcpus}");
        };
        check(
            "2-3",
            &[
                ("guest.idle_s", 7.0),
                ("guest.ipi_reschedule", 5.0),
                ("guest.steal_s", 0.07),
                ("guest.timer_interrupts", 50.0),
            ],
        );
        check(
            "0",
            &[
                ("guest.idle_s", 3.0),
                ("guest.ipi_reschedule", 1.0),
                ("guest.steal_s", 0.02),
                ("guest.timer_interrupts", 10.0),
            ],
        );
        // pCPU 1 is offline.
        check("0-1", &[]);
    }

    #[test]
    fn this_machine_counts() {
        let pcpus = PcpuSet::from_iter([0]);
        let found = read_seat(&pcpus);
        assert!(found.get("guest.idle_s").is_some_and(|idle| idle > 0.0), "{found:?}");
        assert_eq!(found.get("guest.context_switches"), None);
    }
}
