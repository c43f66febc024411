//! boot: how long a guest takes from its kernel's start to its agent.
//!
//! Source: Linux `init/main.c` (`Run … as init process`), `kernel/smp.c`
//! (`Bringing up secondary CPUs`, `Brought up`); proc(5), `/proc/PID/stat`,
//! field 22.

use crate::entry::{CatalogueEntry, GuestFacts, MetricDef, time};
use crate::params::Params;
use crate::parse::{CommandOutput, OutputLine, ParseError, ParsedOutput};
use crate::roles::RoleCommands;

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "boot",
    summary: "The guest's own boot: its kernel, its vCPUs, its userspace up to the agent",
    about: "Runs nothing: it reads when the guest agent was started, and from the kernel's log when \
            all vCPUs ran and when the first process was started. Many vCPUs that wait for one \
            another while a kernel boots show what pause loop exits and directed yields cost. All \
            times are of the guest's own clock, which starts with its kernel: what firmware and \
            loading take is not in them, but in the trial's `boot_s`.",
    measures: "Time from the kernel's start until the guest agent is started.",
    needs: &["sh", "cut", "dmesg"],
    beside: RoleCommands::NOTHING,
    params: &[],
    metrics: METRICS,
    repeats: "One boot has one value of each metric, however often it is read: a study needs no more \
              than `invocations = 1`.",
    example: &[],
    command,
    parse,
    duration_s,
};

/// Parts of a second in `/proc/PID/stat`: USER_HZ, 100 on x86 and arm64.
const TICKS_PER_S: f64 = 100.0;

const fn seconds(name: &'static str, help: &'static str) -> MetricDef {
    time(name, help).optional()
}

const METRICS: &[MetricDef] = &[
    time("boot", "Kernel's start until the guest agent is started, to 10 ms").primary(),
    seconds(
        "kernel",
        "Kernel's start until it starts the first process; absent if its log lacks that",
    ),
    seconds(
        "vcpus",
        "Time to start all vCPUs but the first; absent with one vCPU, or if the log lacks that",
    ),
    seconds(
        "userspace",
        "First process until the guest agent is started; absent if the log lacks the first",
    ),
];

/// Prints the kernel's log, then when the agent was started, in ticks.
const SCRIPT: &str = "dmesg\n\
    for comm in /proc/[0-9]*/comm; do\n\
    read -r name <\"$comm\" || continue\n\
    [ \"$name\" = qemu-ga ] || continue\n\
    echo \"agent $(cut -d ' ' -f 22 \"${comm%comm}stat\")\"\n\
    break\n\
    done 2>/dev/null";

fn command(_: &Params, _: &GuestFacts) -> Vec<String> {
    ["sh", "-c", SCRIPT].map(str::to_owned).into()
}

fn duration_s(_: &Params, facts: &GuestFacts) -> f64 {
    facts.computing_s(0.05)
}

fn parse(
    output: CommandOutput<'_>,
    _: &Params,
    facts: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let mut agent_s = None;
    let (mut starting_s, mut started_s, mut init_s) = (None, None, None);
    for line in output.stdout_lines() {
        if let Some(ticks) = line.text.strip_prefix("agent ") {
            agent_s = Some(line.number(ticks, "the guest agent's start")? / TICKS_PER_S);
        }
        let Some((seconds, text)) = stamped(&line) else { continue };
        if text.starts_with("smp: Bringing up secondary CPUs") {
            starting_s.get_or_insert(seconds);
        } else if text.starts_with("smp: Brought up ") {
            started_s.get_or_insert(seconds);
        } else if text.starts_with("Run ") && text.ends_with(" as init process") {
            init_s.get_or_insert(seconds);
        }
    }
    let missing = "the guest agent's start: no process is called qemu-ga";
    let agent_s = agent_s.ok_or_else(|| output.ended(missing))?;
    let mut parsed = ParsedOutput::default();
    parsed.push("boot", agent_s);
    if let Some(init_s) = init_s {
        parsed.push("kernel", init_s);
    }
    if let (Some(starting_s), Some(started_s)) = (starting_s, started_s)
        && facts.vcpus > 1
        && started_s >= starting_s
    {
        parsed.push("vcpus", started_s - starting_s);
    }
    // The agent's start has steps of 10 ms.
    if let Some(init_s) = init_s {
        parsed.push("userspace", (agent_s - init_s).max(0.0));
    }
    Ok(parsed)
}

/// The time and the text of a line of the kernel's log, `[    1.234567] text`,
/// where a level before it and the caller behind it do not matter.
fn stamped<'a>(line: &OutputLine<'a>) -> Option<(f64, &'a str)> {
    let (_, rest) = line.text.split_once('[')?;
    let (time, mut text) = rest.split_once(']')?;
    let time = time.trim();
    if !time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let seconds: f64 = time.parse().ok()?;
    text = text.trim_start();
    if let Some(caller) = text.strip_prefix('[') {
        text = caller.split_once(']')?.1.trim_start();
    }
    Some((seconds, text.trim_end()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(stdout: &str, vcpus: u32) -> Result<Vec<(String, f64)>, String> {
        let params = ENTRY.resolve(&BTreeMap::new()).unwrap();
        let facts = GuestFacts::alone(vcpus, false);
        let parsed = parse(CommandOutput { stdout, stderr: "" }, &params, &facts);
        let parsed = parsed.map_err(|error| error.to_string())?;
        Ok(parsed.samples.into_iter().map(|sample| (sample.metric, sample.value)).collect())
    }

    /// Levels as raw logs have them, callers as CONFIG_PRINTK_CALLER adds them.
    const LOG: &str = "<5>[    0.000000][    T0] Linux version 6.12\n\
        [    0.250000] smp: Bringing up secondary CPUs ...\n\
        [    0.750000][    T1] smp: Brought up 1 node, 4 CPUs\n\
        [    1.500000] Run /init as init process\n\
        [    1.600000]   with arguments: [quiet]\n\
        [    2.500000] Run /sbin/init as init process\n";

    #[test]
    fn phases_are_those_that_the_kernel_tells() {
        let check = |vcpus: u32, log: &str, expected: &[(&str, f64)]| {
            let found = read(&format!("{log}agent 300\n"), vcpus).unwrap();
            let expected: Vec<_> =
                expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            assert_eq!(found, expected);
        };
        check(4, LOG, &[("boot", 3.0), ("kernel", 1.5), ("vcpus", 0.5), ("userspace", 1.5)]);
        check(1, LOG, &[("boot", 3.0), ("kernel", 1.5), ("userspace", 1.5)]);
        check(4, "", &[("boot", 3.0)]);
    }

    #[test]
    fn a_guest_without_an_agent_is_refused() {
        let error = read(LOG, 4).unwrap_err();
        assert!(error.contains("no process is called qemu-ga"), "{error}");
        let error = read("agent \n", 4).unwrap_err();
        assert!(error.contains("the guest agent's start, a number"), "{error}");
    }
}
