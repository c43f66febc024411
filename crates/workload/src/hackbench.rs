//! hackbench: groups of senders and receivers that pass small messages.
//!
//! Source: rt-tests `src/hackbench/hackbench.c` and its manual page.

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, Param, time};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{line_of, one_log, pick, take};
use crate::roles::RoleCommands;

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "hackbench",
    summary: "Scheduler stress: groups of tasks that pass messages (rt-tests)",
    about: "Every group has as many senders as receivers, and every sender sends its messages to \
            every receiver of its group. Nearly all the time goes into waking, switching and \
            moving tasks, so it shows what IPIs, halt exits and lock-holder preemption cost. Its \
            clock has steps of 1 ms: a run that ends in less than that is refused.",
    measures: "Time to pass all messages: scheduling, wake-ups and IPIs between vCPUs.",
    needs: &["hackbench"],
    beside: RoleCommands::NOTHING,
    params: PARAMS,
    metrics: &[time("time", "Time from the start signal until the last task has ended").primary()],
    repeats: "One run prints one time, which is the sample; repeat it by the study's `invocations`.",
    example: &[("groups", DefaultValue::Int(4)), ("loops", DefaultValue::Int(1000))],
    command,
    parse,
    duration_s,
};

const PARAMS: &[Param] = &[
    Param::int("groups", (1, 1000), 10, "Groups of senders and receivers"),
    Param::int(
        "fds",
        (1, 500),
        20,
        "Senders in a group, and receivers: a group has twice as many tasks",
    ),
    Param::int(
        "loops",
        (1, 100_000_000),
        100,
        "Messages from every sender to every receiver of its group",
    ),
    Param::int("datasize", (1, 1 << 20), 100, "Size of a message").unit("B"),
    Param::choice(
        "transport",
        &["socket", "pipe"],
        "socket",
        "What carries the messages: Unix stream sockets or pipes",
    ),
    Param::choice("tasks", &["process", "thread"], "process", "What a sender or a receiver is"),
];

fn command(params: &Params, _: &GuestFacts) -> Vec<String> {
    let mut argv = vec!["hackbench".to_owned()];
    for (option, name) in [("-g", "groups"), ("-f", "fds"), ("-l", "loops"), ("-s", "datasize")] {
        argv.extend([option.to_owned(), params.int(name).to_string()]);
    }
    if params.text("transport") == "pipe" {
        argv.push("-p".to_owned());
    }
    argv.push(if params.text("tasks") == "thread" { "-T" } else { "-P" }.to_owned());
    argv
}

fn duration_s(params: &Params, facts: &GuestFacts) -> f64 {
    let tasks = params.int("groups") as f64 * params.int("fds") as f64;
    messaging_s(tasks, tasks * params.int("fds") as f64 * params.int("loops") as f64, facts)
}

/// Rough time of `messages` between tasks in pairs, without a model of the
/// guest's kernel: about 3 us of one vCPU a message, 100 us a task.
pub(crate) fn messaging_s(pairs: f64, messages: f64, facts: &GuestFacts) -> f64 {
    facts.computing_s(0.01 + (messages * 3e-6 + pairs * 2e-4) / f64::from(facts.vcpus.max(1)))
}

fn parse(
    output: CommandOutput<'_>,
    _: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    parse_messaging(output, "hackbench")
}

/// Takes the time out of a log of `tool`, hackbench or `perf bench`, whose benchmark of
/// messages is the same.
pub(crate) fn parse_messaging(
    output: CommandOutput<'_>,
    tool: &str,
) -> Result<ParsedOutput, ParseError> {
    let log = one_log(output, tool)?;
    if let Some(value) = log.values.iter().find(|value| value.value <= 0.0) {
        let wanted = "a time above 0 (too short to be measured: more loops)";
        return Err(line_of(output, value).expected(wanted));
    }
    take(output, &log, &[pick("time", "time")])
}
