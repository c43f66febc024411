//! `perf bench` beside messaging: pipe, syscall, futex, mem, numa.
//!
//! Source: Linux `tools/perf/bench` and perf-bench's manual page.

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, bytes, rate, time};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, pick, read};
use crate::roles::RoleCommands;

const REPEATS: &str = "One run prints one set of values, which are the samples; repeat it by the \
                       study's `invocations`.";

const OPS: MetricDef = rate("ops-per-s", "Operations a second");

const OP_TIME: MetricDef = time("time-per-op", "Time of one operation");

fn argv(words: &[&str]) -> Vec<String> {
    ["perf", "bench"].iter().chain(words).map(|word| (*word).to_owned()).collect()
}

pub(crate) static PIPE: CatalogueEntry = CatalogueEntry {
    name: "perf-pipe",
    summary: "Ping-pong of two tasks over pipes (perf bench sched pipe)",
    about: "Two tasks send one word to and fro. Where they run on two vCPUs, each turn halts one \
            of them and wakes the other.",
    measures: "The price of a wake-up: IPIs, halt exits, halt polling.",
    needs: &["perf"],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::int("loops", (1, 1_000_000_000), 100_000, "Turns"),
        Param::choice("tasks", &["process", "thread"], "process", "What the two tasks are"),
    ],
    metrics: &[OPS.primary(), OP_TIME],
    repeats: REPEATS,
    example: &[("loops", DefaultValue::Int(20_000))],
    command: |params, _| {
        let mut argv = argv(&["sched", "pipe", "-l", &params.int("loops").to_string()]);
        argv.extend((params.text("tasks") == "thread").then(|| "-T".to_owned()));
        argv
    },
    parse: |output, _, _| rates(output),
    duration_s: |params, facts| facts.computing_s(0.1 + params.int("loops") as f64 * 1e-5),
};

pub(crate) static SYSCALL: CatalogueEntry = CatalogueEntry {
    name: "perf-syscall",
    summary: "The cheapest system call in a loop (perf bench syscall basic)",
    about: "getppid does nothing but enter the kernel and return.",
    measures: "Entering the guest's kernel: mitigations, not the hypervisor.",
    needs: &["perf"],
    beside: RoleCommands::NOTHING,
    params: &[Param::int("loops", (1, 10_000_000_000), 10_000_000, "Calls")],
    metrics: &[OPS.primary(), OP_TIME],
    repeats: REPEATS,
    example: &[("loops", DefaultValue::Int(1_000_000))],
    command: |params, _| argv(&["syscall", "basic", "--loop", &params.int("loops").to_string()]),
    parse: |output, _, _| rates(output),
    duration_s: |params, facts| facts.computing_s(0.1 + params.int("loops") as f64 * 3e-7),
};

/// Operations a second, of a run that prints its time too.
fn rates(output: CommandOutput<'_>) -> Result<ParsedOutput, ParseError> {
    const PICKS: &[Pick] = &[pick("ops-per-s", "ops-per-s"), pick("time-per-op", "time-per-op")];
    whole(output)?;
    read(output, "perf-bench", PICKS)
}

/// Refuses an output whose last line was cut off.
fn whole(output: CommandOutput<'_>) -> Result<(), ParseError> {
    match output.stdout_lines().filter(|line| !line.text.trim().is_empty()).last() {
        Some(line) => line.whole(),
        None => Err(output.ended("a result of perf bench")),
    }
}

pub(crate) static FUTEX: CatalogueEntry = CatalogueEntry {
    name: "perf-futex",
    summary: "Futex calls: hash, wake, requeue, lock-pi (perf bench futex)",
    about: "`hash` waits on futexes whose value has changed, so nobody sleeps. The others put \
            threads to sleep and wake them, and measure how long waking all of them takes; \
            `lock-pi` fights for locks with priority inheritance.",
    measures: "Kernel locks and wake-ups between vCPUs.",
    needs: &["perf"],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::choice(
            "test",
            &["hash", "wake", "wake-parallel", "requeue", "lock-pi"],
            "hash",
            "Which calls",
        ),
        Param::per_vcpu("threads", 4096, "Threads"),
        Param::int("time_s", (1, 86_400), 10, "How long `hash` and `lock-pi` run").unit("s"),
    ],
    metrics: &[
        rate("ops-per-s", "Operations a second of one thread, mean")
            .primary()
            .only_with("test", TIMED),
        time("latency", "Time until all threads are woken, mean of ten")
            .primary()
            .only_with("test", &["wake", "wake-parallel", "requeue"]),
    ],
    repeats: REPEATS,
    example: &[("test", DefaultValue::Text("wake")), ("threads", DefaultValue::Int(8))],
    command: |params, facts| {
        let test = params.text("test");
        let mut argv = argv(&["futex", test]);
        argv.push(format!("--threads={}", params.int_or_vcpus("threads", facts)));
        if timed(params) {
            argv.push(format!("--runtime={}", params.int("time_s")));
        }
        argv
    },
    parse: |output, params, _| {
        whole(output)?;
        if timed(params) {
            return read(output, "perf-bench", &[pick("ops-per-s", "ops-per-s-mean")]);
        }
        read(output, "perf-bench", &[pick("latency", "latency-mean")])
    },
    duration_s: |params, facts| {
        let time_s = if timed(params) { params.int("time_s") as f64 } else { 0.1 };
        time_s + facts.computing_s(0.2)
    },
};

/// The tests that run for a time; the others end by themselves.
const TIMED: &[&str] = &["hash", "lock-pi"];

fn timed(params: &Params) -> bool {
    TIMED.contains(&params.text("test"))
}

pub(crate) static MEM: CatalogueEntry = CatalogueEntry {
    name: "perf-mem",
    summary: "memcpy and memset of the C library (perf bench mem)",
    about: "One thread copies or fills a buffer again and again. A buffer beyond the last cache \
            shows memory, a small one the caches.",
    measures: "Bandwidth of one vCPU: huge pages, node placement.",
    needs: &["perf"],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::choice("function", &["memcpy", "memset"], "memcpy", "What is done"),
        Param::int("size_mib", (1, 1 << 16), 64, "Size of the buffer").unit("MiB"),
        Param::int("loops", (1, 1_000_000), 20, "How often"),
    ],
    metrics: &[bytes("throughput", "Bytes copied or filled a second").primary()],
    repeats: REPEATS,
    example: &[("size_mib", DefaultValue::Int(16))],
    command: |params, _| {
        let mut argv = argv(&["mem", params.text("function"), "--function=default"]);
        argv.push(format!("--size={}MB", params.int("size_mib")));
        argv.push(format!("--nr_loops={}", params.int("loops")));
        argv
    },
    parse: |output, _, _| {
        whole(output)?;
        read(output, "perf-bench", &[pick("throughput", "rate")])
    },
    duration_s: |params, facts| {
        let bytes = (params.int("size_mib") << 20) as f64 * (params.int("loops") + 1) as f64;
        facts.computing_s(0.1 + bytes / 4e9)
    },
};

pub(crate) static NUMA: CatalogueEntry = CatalogueEntry {
    name: "perf-numa",
    summary: "Threads that walk through memory of the guest's nodes (perf bench numa mem)",
    about: "Every process has threads that read and write its memory; where the guest has nodes, \
            its kernel moves tasks and pages towards each other.",
    measures: "Memory bandwidth of all vCPUs, and what guest nodes are good for.",
    needs: &["perf"],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::int("processes", (1, 256), 1, "Processes"),
        Param::per_vcpu("threads", 1024, "Threads of each process"),
        Param::int("memory_mib", (1, 1 << 20), 128, "Memory of each process").unit("MiB"),
        Param::int("time_s", (1, 86_400), 10, "How long").unit("s"),
    ],
    metrics: &[
        bytes("throughput", "Bytes that all threads walked through a second").primary(),
        bytes("thread-throughput", "The same of one thread, mean"),
    ],
    repeats: REPEATS,
    example: &[("time_s", DefaultValue::Int(5))],
    command: |params, facts| {
        let mut argv = argv(&["numa", "mem"]);
        for (option, value) in [
            ("--nr_proc", params.int("processes")),
            ("--nr_threads", params.int_or_vcpus("threads", facts)),
            ("--mb_proc", params.int("memory_mib")),
            ("--nr_secs", params.int("time_s")),
        ] {
            argv.push(format!("{option}={value}"));
        }
        argv
    },
    parse: |output, _, _| {
        const PICKS: &[Pick] =
            &[pick("throughput", "total-rate"), pick("thread-throughput", "thread-rate")];
        whole(output)?;
        read(output, "perf-bench", PICKS)
    },
    duration_s: |params: &Params, facts: &GuestFacts| {
        params.int("time_s") as f64 * 1.5 + facts.computing_s(0.5)
    },
};
