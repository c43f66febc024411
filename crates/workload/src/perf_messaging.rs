//! perf-messaging: hackbench as `perf bench` carries it.
//!
//! Source: Linux `tools/perf/bench/sched-messaging.c`.

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, Param, time};
use crate::hackbench::{messaging_s, parse_messaging};
use crate::params::Params;
use crate::roles::RoleCommands;

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "perf-messaging",
    summary: "Scheduler stress: groups of tasks that pass messages (perf bench sched messaging)",
    about: "hackbench as it ships with the kernel's perf: 20 senders and 20 receivers a group, \
            messages of 100 bytes. Its numbers are not comparable with those of rt-tests' \
            hackbench, whose start and end are timed differently. Its clock has steps of 1 ms: a \
            run that ends in less than that is refused.",
    measures: "Time to pass all messages: scheduling, wake-ups and IPIs between vCPUs.",
    needs: &["perf"],
    beside: RoleCommands::NOTHING,
    params: PARAMS,
    metrics: &[time("time", "Time from the start signal until the last task has ended").primary()],
    repeats: "One run prints one time, which is the sample; repeat it by the study's number of \
              runs.",
    example: &[("groups", DefaultValue::Int(4)), ("loops", DefaultValue::Int(1000))],
    command,
    parse: |output, _, _| parse_messaging(output, "perf-bench"),
    duration_s: |params, facts| {
        let groups = params.int("groups") as f64;
        messaging_s(groups * 20.0, groups * 400.0 * params.int("loops") as f64, facts)
    },
};

const PARAMS: &[Param] = &[
    Param::int("groups", (1, 1000), 10, "Groups of 20 senders and 20 receivers"),
    Param::int(
        "loops",
        (1, 100_000_000),
        100,
        "Messages from every sender to every receiver of its group",
    ),
    Param::choice(
        "transport",
        &["socket", "pipe"],
        "socket",
        "What carries the messages: Unix socket pairs or pipes",
    ),
    Param::choice("tasks", &["process", "thread"], "process", "What a sender or a receiver is"),
];

fn command(params: &Params, _: &GuestFacts) -> Vec<String> {
    let mut argv: Vec<String> = ["perf", "bench", "sched", "messaging"].map(String::from).into();
    for (option, name) in [("-g", "groups"), ("-l", "loops")] {
        argv.extend([option.to_owned(), params.int(name).to_string()]);
    }
    if params.text("transport") == "pipe" {
        argv.push("-p".to_owned());
    }
    if params.text("tasks") == "thread" {
        argv.push("-t".to_owned());
    }
    argv
}
