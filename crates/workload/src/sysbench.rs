//! sysbench's tests beside `cpu`: memory, threads, mutex, fileio.
//!
//! Source: sysbench 1.0 `src/tests/*/sb_*.c`.

use record::{BetterDirection, MetricKind};

use crate::entry::{
    CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, bytes, quantile, rate, time,
};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, one_log, pick, take};
use crate::roles::{GuestStep, RoleCommands, SCRATCH};
use logs::Log;

const THREADS: Param = Param::per_vcpu("threads", 4096, "Threads that work");
const TIME: Param = Param::int("time_s", (1, 86_400), 10, "How long").unit("s");

const LATENCY_AVG: MetricDef = time("latency-avg", "Mean time of one event");
const LATENCY_P95: MetricDef =
    quantile("latency-p95", "Time within which 95 % of the events ended");
const LATENCY_MAX: MetricDef = quantile("latency-max", "Time of the longest event");

const REPEATS: &str = "One run prints one set of values over all its threads, which are the \
                       samples.";

pub(crate) static MEMORY: CatalogueEntry = CatalogueEntry {
    name: "sysbench-memory",
    summary: "Memory bandwidth of plain loops, block by block (sysbench memory)",
    about: "Every event reads or writes one block. Small blocks stay in the caches and show the \
            cost of the loop; blocks beyond the last cache show memory. All threads share one \
            block unless `scope` says otherwise.",
    measures: "Bandwidth that the vCPUs get from caches and memory: huge pages, node placement.",
    needs: &["sysbench"],
    beside: RoleCommands::NOTHING,
    params: &[
        THREADS,
        TIME,
        Param::int("block_kib", (1, 1 << 20), 1024, "Size of a block").unit("KiB"),
        Param::choice("operation", &["read", "write"], "write", "What an event does"),
        Param::choice("access", &["seq", "rnd"], "seq", "In order, or at random places"),
        Param::choice(
            "scope",
            &["global", "local"],
            "global",
            "One block for all, or one a thread",
        ),
    ],
    metrics: &[
        bytes("throughput", "Bytes a second of all threads together").primary(),
        rate("events-per-s", "Blocks a second of all threads together"),
    ],
    repeats: REPEATS,
    example: &[("block_kib", DefaultValue::Int(16_384)), ("operation", DefaultValue::Text("read"))],
    command: |params, facts| {
        argv(
            "memory",
            params,
            facts,
            &[
                format!("--memory-block-size={}K", params.int("block_kib")),
                // More than any time limit allows.
                "--memory-total-size=1000000G".to_owned(),
                format!("--memory-oper={}", params.text("operation")),
                format!("--memory-access-mode={}", params.text("access")),
                format!("--memory-scope={}", params.text("scope")),
            ],
        )
    },
    parse: |output, params, facts| {
        const PICKS: &[Pick] =
            &[pick("throughput", "transfer-rate"), pick("events-per-s", "operations-per-s")];
        checked(output, params, facts, PICKS)
    },
    duration_s,
};

pub(crate) static THREADS_ENTRY: CatalogueEntry = CatalogueEntry {
    name: "sysbench-threads",
    summary: "Threads that yield while they hold locks in turn (sysbench threads)",
    about: "Every event takes, yields and releases a mutex so many times. With more threads than \
            locks they queue up, and the scheduler is what is measured.",
    measures: "Scheduling and futex wake-ups between vCPUs; lock-holder preemption.",
    needs: &["sysbench"],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::int("threads", (1, 4096), 64, "Threads that work"),
        TIME,
        Param::int("yields", (1, 1_000_000), 100, "Turns in one event"),
        Param::int("locks", (1, 1_000_000), 4, "Locks that the threads share"),
    ],
    metrics: &[
        MetricDef::new(
            "events",
            "count",
            BetterDirection::Higher,
            MetricKind::Count,
            "Events of all threads together in `time_s`",
        )
        .primary(),
        LATENCY_AVG,
        LATENCY_P95,
        LATENCY_MAX,
    ],
    repeats: REPEATS,
    example: &[("threads", DefaultValue::Int(16)), ("time_s", DefaultValue::Int(5))],
    command: |params, facts| {
        argv(
            "threads",
            params,
            facts,
            &[
                format!("--thread-yields={}", params.int("yields")),
                format!("--thread-locks={}", params.int("locks")),
            ],
        )
    },
    parse: |output, params, facts| {
        const PICKS: &[Pick] = &[
            pick("events", "events"),
            pick("latency-avg", "latency-avg"),
            pick("latency-p95", "latency").with("percentile", "95"),
            pick("latency-max", "latency-max"),
        ];
        checked(output, params, facts, PICKS)
    },
    duration_s,
};

pub(crate) static MUTEX: CatalogueEntry = CatalogueEntry {
    name: "sysbench-mutex",
    summary: "Threads that fight for mutexes: time until all are through (sysbench mutex)",
    about: "Every thread takes one of `mutexes` at random `locks` times, and loops a little \
            before each. Nothing ends it but its work.",
    measures: "Contended locks: futex wake-ups, and holders that lose their pCPU.",
    needs: &["sysbench"],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::int("threads", (1, 4096), 16, "Threads that work"),
        Param::int("mutexes", (1, 1_000_000), 64, "Mutexes that they share"),
        Param::int("locks", (1, 100_000_000), 100_000, "Mutexes that a thread takes, one by one"),
        Param::int("loops", (1, 100_000_000), 1000, "Empty loops before each"),
    ],
    metrics: &[
        time("time", "Time until the last thread is through").primary(),
        LATENCY_AVG,
        LATENCY_P95,
        LATENCY_MAX,
    ],
    repeats: "One run prints one time, which is the sample.",
    example: &[("threads", DefaultValue::Int(8)), ("locks", DefaultValue::Int(50_000))],
    command: |params, facts| {
        argv(
            "mutex",
            params,
            facts,
            &[
                format!("--mutex-num={}", params.int("mutexes")),
                format!("--mutex-locks={}", params.int("locks")),
                format!("--mutex-loops={}", params.int("loops")),
            ],
        )
    },
    parse: |output, params, facts| {
        const PICKS: &[Pick] = &[
            pick("time", "total-time"),
            pick("latency-avg", "latency-avg"),
            pick("latency-p95", "latency").with("percentile", "95"),
            pick("latency-max", "latency-max"),
        ];
        checked(output, params, facts, PICKS)
    },
    duration_s: |params, facts| {
        let turns = params.int("threads") as f64 * params.int("locks") as f64;
        let loops_s = params.int("loops") as f64 * 4e-10;
        facts.computing_s(0.1 + turns * (loops_s + 1e-7) / f64::from(facts.vcpus.max(1)))
    },
};

pub(crate) static FILEIO: CatalogueEntry = CatalogueEntry {
    name: "sysbench-fileio",
    summary: "Reads and writes in files on a scratch disk (sysbench fileio)",
    about: "The files are made before the first run. Every 100 requests are followed by an fsync, \
            as sysbench has it.",
    measures: "The virtual disk: bus, cache mode, queues, iothreads.",
    needs: &["sysbench"],
    beside: RoleCommands {
        setup: |params, _| {
            let mut argv = files(params);
            argv.push("prepare".to_owned());
            vec![GuestStep::shell(&format!(
                "cd {SCRATCH} && {} >/dev/null && sync",
                argv.join(" ")
            ))]
        },
        scratch_mib: |params, _| params.int("total_mib") as u64 * 5 / 4 + 64,
        ..RoleCommands::NOTHING
    },
    params: &[
        THREADS,
        TIME,
        Param::int("total_mib", (1, 1 << 20), 1024, "Size of all files together").unit("MiB"),
        Param::int("files", (1, 10_000), 16, "Number of files"),
        Param::int("block_kib", (1, 1 << 16), 16, "Size of one request").unit("KiB"),
        Param::choice(
            "mode",
            &["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"],
            "rndrw",
            "Sequential or random; read, write, rewrite, or both",
        ),
        Param::bool("direct", true, "Past the guest's page cache (O_DIRECT)"),
    ],
    metrics: &[
        MetricDef::new(
            "requests",
            "count",
            BetterDirection::Higher,
            MetricKind::Count,
            "Reads, writes and fsyncs in `time_s`",
        )
        .primary(),
        rate("reads-per-s", "Reads a second"),
        rate("writes-per-s", "Writes a second"),
        bytes("read-rate", "Bytes read a second"),
        bytes("write-rate", "Bytes written a second"),
        LATENCY_AVG,
        LATENCY_P95,
        LATENCY_MAX,
    ],
    repeats: REPEATS,
    example: &[("total_mib", DefaultValue::Int(256)), ("mode", DefaultValue::Text("rndrd"))],
    command: |params, facts| {
        let mut argv = files(params);
        argv.extend([
            format!("--threads={}", params.int_or_vcpus("threads", facts)),
            format!("--time={}", params.int("time_s")),
            format!("--file-block-size={}K", params.int("block_kib")),
            format!("--file-test-mode={}", params.text("mode")),
        ]);
        if params.bool("direct") {
            argv.push("--file-extra-flags=direct".to_owned());
        }
        argv.push("run".to_owned());
        // sysbench looks for its files where it stands.
        let script = format!("cd {SCRATCH} && exec \"$@\"");
        ["sh", "-c", &script, "sh"].map(str::to_owned).into_iter().chain(argv).collect()
    },
    parse: |output, params, facts| {
        const PICKS: &[Pick] = &[
            pick("requests", "events"),
            pick("reads-per-s", "reads-per-s"),
            pick("writes-per-s", "writes-per-s"),
            pick("read-rate", "read-rate"),
            pick("write-rate", "write-rate"),
            pick("latency-avg", "latency-avg"),
            pick("latency-p95", "latency").with("percentile", "95"),
            pick("latency-max", "latency-max"),
        ];
        checked(output, params, facts, PICKS)
    },
    duration_s,
};

fn files(params: &Params) -> Vec<String> {
    vec![
        "sysbench".to_owned(),
        "fileio".to_owned(),
        format!("--file-total-size={}M", params.int("total_mib")),
        format!("--file-num={}", params.int("files")),
    ]
}

fn argv(test: &str, params: &Params, facts: &GuestFacts, options: &[String]) -> Vec<String> {
    let time_s = if test == "mutex" { 0 } else { params.int("time_s") };
    let mut argv = vec![
        "sysbench".to_owned(),
        test.to_owned(),
        format!("--threads={}", params.int_or_vcpus("threads", facts)),
        format!("--time={time_s}"),
    ];
    argv.extend(options.iter().cloned());
    argv.push("run".to_owned());
    argv
}

fn duration_s(params: &Params, facts: &GuestFacts) -> f64 {
    params.int("time_s") as f64 + facts.computing_s(0.1)
}

/// Takes `picks`, of a run with the threads that were asked for.
fn checked(
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
    picks: &[Pick],
) -> Result<ParsedOutput, ParseError> {
    take(output, &whole_log(output, params, facts)?, picks)
}

/// The log of a run that came to its end with the threads that were asked for.
pub(crate) fn whole_log(
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
) -> Result<Log, ParseError> {
    if let Some(line) = output.stdout_lines().find(|line| line.text.starts_with("FATAL")) {
        return Err(line.expected("no fatal error"));
    }
    // The last lines: without them something was cut off.
    if !output.stdout.trim_end().contains("execution time (avg/stddev):") {
        return Err(output.ended("sysbench's last line"));
    }
    let wanted = format!("Number of threads: {}", params.int_or_vcpus("threads", facts));
    if !output.stdout_lines().any(|line| line.text.trim() == wanted) {
        return Err(output.ended(format!("{wanted:?}")));
    }
    one_log(output, "sysbench")
}
