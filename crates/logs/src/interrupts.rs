//! `/proc/interrupts`, any number of snapshots.
//!
//! Source: Linux `kernel/irq/proc.c`, `arch/x86/kernel/irq.c`.

use super::sign::opens;
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "interrupts",
    about: "/proc/interrupts, any number of snapshots",
    signs: &[opens("CPU0 ").when(is_heading), opens("CPU0").when(is_heading)],
    failures: &[],
    read,
};

fn is_heading(line: &str) -> bool {
    let mut words = line.ascii_words();
    words.next() == Some("CPU0")
        && words.all(|word| word.strip_prefix("CPU").is_some_and(|id| id.parse::<u32>().is_ok()))
}

/// Reads any number of snapshots.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut cpus: ShortList<&str> = ShortList::new();
    for line in text.lines() {
        if is_heading(line.text) {
            cpus = line.words().map(|word| word.trim_start_matches("CPU")).collect();
        } else if !cpus.is_empty() {
            row(&cpus, line, log);
        }
    }
}

/// `LOC:    4846119    5291267   Local timer interrupts`; `ERR` and `MIS` have one
/// number for all.
fn row(cpus: &[&str], line: TextLine<'_>, log: &mut Log) {
    let Some((name, rest)) = line.text.split_once(':').map(|(name, rest)| (name, line.part(rest)))
    else {
        return;
    };
    let named = !name.is_empty()
        && name.len() <= 8
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !named {
        return;
    }
    let digits = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let counts: ShortList<&str> = rest.words().take(cpus.len()).take_while(digits).collect();
    let whole: Option<ShortList<f64>> = counts.iter().map(|count| rest.number(count)).collect();
    let Some(values) = whole.filter(|_| !line.is_open()) else {
        return log.unread(line, "the line ends early");
    };
    if values.len() != cpus.len() {
        // ERR, MIS.
        if let [count] = values[..]
            && rest.words().count() == 1
        {
            log.count("interrupts", count, line).label("irq", name).label("cpu", "all");
        } else if !values.is_empty() {
            log.unread(line, "not a number a CPU");
        }
        return;
    }
    let about = slug(&rest.words().skip(cpus.len()).collect::<Vec<_>>().join(" "));
    log.label("irq", name);
    log.label("about", about);
    for (cpu, value) in cpus.iter().zip(values) {
        log.count("interrupts", value, line).label("cpu", *cpu);
    }
    log.clear_labels();
}
