//! Which pCPUs the host itself is busy on, from the kernel's counters.
//!
//! Source: `proc_interrupts(5)`, `proc_stat(5)`.

use std::collections::BTreeMap;

/// Ticks of `/proc/stat` in a second (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;
/// Device interrupts a second from which on a pCPU is busy with them: as many
/// as the scheduler's tick at its fastest.
const MANY_INTERRUPTS_PER_S: f64 = 1000.0;
/// Part of its time that a busy pCPU works for the host.
const MUCH_WORK: f64 = 0.25;

/// The pCPUs on which the host has much to do, since it was booted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BusyPcpus {
    /// Interrupts of devices a second.
    pub interrupts_per_s: BTreeMap<u32, f64>,
    /// Part of the time in processes other than guests, in the kernel and in
    /// interrupts.
    pub work: BTreeMap<u32, f64>,
}

impl BusyPcpus {
    /// Reads `/proc/interrupts` and `/proc/stat`; what they don't tell is taken
    /// for idle.
    #[must_use]
    pub fn read(interrupts: &str, stat: &str) -> Self {
        let times = times(stat);
        let mut busy = Self::default();
        for (pcpu, count) in device_interrupts(interrupts) {
            let Some(time) = times.get(&pcpu).filter(|time| time.all > 0.0) else { continue };
            let per_s = count as f64 / (time.all / TICKS_PER_S);
            if per_s >= MANY_INTERRUPTS_PER_S {
                busy.interrupts_per_s.insert(pcpu, per_s);
            }
        }
        for (pcpu, time) in times {
            let part = time.work / time.all.max(1.0);
            if part >= MUCH_WORK {
                busy.work.insert(pcpu, part);
            }
        }
        busy
    }
}

/// Interrupts of devices by pCPU. Lines with a name instead of a number are the
/// processors' own; so are their timers.
fn device_interrupts(text: &str) -> BTreeMap<u32, u64> {
    let mut lines = text.lines();
    let pcpus: Vec<u32> = lines
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut sums = BTreeMap::new();
    for line in lines {
        let Some((label, rest)) = line.split_once(':') else { continue };
        let is_timer = rest.contains("timer");
        if label.trim().parse::<u32>().is_err() || is_timer {
            continue;
        }
        for (pcpu, count) in pcpus.iter().zip(rest.split_ascii_whitespace()) {
            let Ok(count) = count.parse::<u64>() else { break };
            let sum: &mut u64 = sums.entry(*pcpu).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    sums
}

/// Ticks of a pCPU.
struct Time {
    all: f64,
    work: f64,
}

fn times(text: &str) -> BTreeMap<u32, Time> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let pcpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
            let ticks: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
            let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0);
            // user, nice, system, idle, iowait, irq, softirq, steal, and guest
            // and guest_nice, which the first two hold as well.
            let guests = at(8) + at(9);
            let work = (at(0) + at(1) + at(2) + at(5) + at(6) - guests).max(0.0);
            let all: f64 = ticks.iter().take(8).sum();
            Some((pcpu, Time { all, work }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &str = "\
           CPU0       CPU1       CPU3
  0:    9000000          0          0   IO-APIC   2-edge      timer
 24:         10    5000000          0   PCI-MSI 512000-edge      nvme0q1
 25:          0    3000000         12   PCI-MSI 524288-edge      eth0-TxRx-0
LOC:   90000000   90000000   90000000   Local timer interrupts
ERR:          0
";

    #[test]
    fn interrupts_and_work_by_pcpu() {
        // Half an hour each: pCPU 0 works for the host, pCPU 1 runs a guest.
        let stat = "\
cpu  1 2 3
cpu0 60000 0 20000 100000 0 0 0 0 0 0
cpu1 170000 0 5000 5000 0 0 0 0 170000 0
cpu3 0 0 100 179900 0 0 0 0 0 0
intr 1 2 3
";
        let busy = BusyPcpus::read(INTERRUPTS, stat);
        let rounded = |map: &BTreeMap<u32, f64>| -> Vec<(u32, i64)> {
            map.iter().map(|(pcpu, value)| (*pcpu, (value * 100.0).round() as i64)).collect()
        };
        assert_eq!(rounded(&busy.interrupts_per_s), [(1, 444_444)]);
        assert_eq!(rounded(&busy.work), [(0, 44)]);
        assert_eq!(BusyPcpus::read("", ""), BusyPcpus::default());
        assert_eq!(BusyPcpus::read("CPU0\n1: x\n2:", "cpu0\ncpux 1\n"), BusyPcpus::default());
    }
}
