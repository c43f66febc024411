//! Probes that are collections: the UnixBench index, the NAS benchmarks.

use std::collections::BTreeMap;

use record::{BetterDirection, MetricKind, Sample};

use super::{PROGRAM, REPEATS, TIME, argv, document, read, take, timed_s};
use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, bytes, rate, time};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::roles::{RoleCommands, SCRATCH};

const fn index(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "ratio", BetterDirection::Higher, MetricKind::Count, help)
}

pub(crate) static UNIXBENCH: CatalogueEntry = CatalogueEntry {
    name: "probe-unixbench",
    summary: "The twelve tests of the UnixBench index, vmlab's own implementation (vmlab-probe)",
    about: "Dhrystone, Whetstone, execl, three file copies, pipe, context switching, process \
            creation, two shell scripts and system calls, each against its published baseline. \
            It does what the original does, but is not the original: compare its numbers with its \
            own only.",
    measures: "A bit of everything: computing, system calls, processes, pipes.",
    needs: &[PROGRAM],
    beside: RoleCommands {
        // Each copy of the largest file test has two files of 31 MiB.
        scratch_mib: |params, facts| {
            let copies = match params.int("copies") as u64 {
                0 => facts.vcpus.into(),
                copies => copies,
            };
            128 + 64 * copies
        },
        ..RoleCommands::NOTHING
    },
    params: &[
        TIME,
        REPEATS,
        Param::choice(
            "test",
            &[
                "all",
                "dhrystone",
                "whetstone",
                "execl",
                "copy-1024",
                "copy-256",
                "copy-4096",
                "pipe",
                "context",
                "spawn",
                "shell-1",
                "shell-8",
                "syscall",
            ],
            "all",
            "All of them, or one",
        ),
        Param::int("copies", (0, 1024), 1, "Copies at once; 0 for one a vCPU"),
    ],
    metrics: &[
        index(
            "index",
            "Geometric mean of the twelve tests' results by their baselines, times ten; absent where one has none",
        )
        .primary()
        // It is computed from the others.
        .optional()
        .only_with("test", &["all"]),
        rate("dhrystone", "Dhrystone loops a second")
            .primary()
            .only_with("test", &["all", "dhrystone"]),
        rate("whetstone", "Whetstone instructions a second")
            .primary()
            .only_with("test", &["all", "whetstone"]),
        rate("execl", "execl calls a second").primary().only_with("test", &["all", "execl"]),
        bytes("copy-1024", "File copy with blocks of 1024 bytes")
            .primary()
            .only_with("test", &["all", "copy-1024"]),
        bytes("copy-256", "File copy with blocks of 256 bytes")
            .primary()
            .only_with("test", &["all", "copy-256"]),
        bytes("copy-4096", "File copy with blocks of 4096 bytes")
            .primary()
            .only_with("test", &["all", "copy-4096"]),
        rate("pipe", "Words through a pipe of one process a second")
            .primary()
            .only_with("test", &["all", "pipe"]),
        rate("context", "Turns of two processes over pipes a second")
            .primary()
            .only_with("test", &["all", "context"]),
        rate("spawn", "Processes made and awaited a second")
            .primary()
            .only_with("test", &["all", "spawn"]),
        rate("shell-1", "Shell scripts a second, one at a time")
            .primary()
            .only_with("test", &["all", "shell-1"]),
        rate("shell-8", "Turns of eight shell scripts at a time a second")
            .primary()
            .only_with("test", &["all", "shell-8"]),
        rate("syscall", "System calls a second").primary().only_with("test", &["all", "syscall"]),
    ],
    repeats: "One run measures each test `repeats` times; each brings one sample of its metric.",
    example: &[("test", DefaultValue::Text("context")), ("repeats", DefaultValue::Int(1))],
    command: |params, _| {
        argv(
            "unixbench",
            params,
            &[
                ("test", params.text("test").to_owned()),
                ("copies", params.int("copies").to_string()),
                ("dir", SCRATCH.to_owned()),
            ],
        )
    },
    parse: with_index,
    duration_s: |params, facts| {
        timed_s(params, facts, if params.text("test") == "all" { 13.0 } else { 1.0 })
    },
};

/// The published index: the geometric mean of what each test reached against
/// its baseline, times ten. Given where all twelve were run.
fn with_index(
    output: CommandOutput<'_>,
    params: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let document = document(output)?;
    let mut logarithms: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for value in document.metrics.iter().filter(|value| value.name.ends_with("-index")) {
        logarithms.entry(value.repeat).or_default().push(value.value.ln());
    }
    let mut parsed = take(output, document, params, &UNIXBENCH)?;
    for values in logarithms.values().filter(|values| values.len() == 12).rev() {
        let index = (values.iter().sum::<f64>() / 12.0).exp();
        parsed.samples.insert(0, Sample { metric: "index".to_owned(), value: index });
    }
    Ok(parsed)
}

/// Of one benchmark of the collection.
const fn operations(name: &'static str, help: &'static str) -> MetricDef {
    rate(name, help)
}

const fn elapsed(name: &'static str, help: &'static str) -> MetricDef {
    time(name, help).primary()
}

pub(crate) static NPB: CatalogueEntry = CatalogueEntry {
    name: "probe-npb",
    summary: "NAS Parallel Benchmarks EP, CG, MG, FT, IS, BT, SP, LU, UA, vmlab's own (vmlab-probe)",
    about: "From the published specification, with its verification values: a wrong result is \
            refused. Class S is tiny, W takes seconds, A and B more memory and time, BT, SP \
            and LU most. Threads meet at barriers, and those of LU at each plane of a cube, so one \
            vCPU that does not run stops all. UA's mesh changes as it goes, and its memory is read \
            at places that nothing foretells.",
    measures: "Parallel computing: pins, siblings, memory, barriers between vCPUs.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::int("repeats", (1, 100_000), 1, "Samples of a run"),
        Param::choice(
            "benchmark",
            &["all", "ep", "cg", "mg", "ft", "is", "bt", "sp", "lu", "ua"],
            "all",
            "All of them, or one",
        ),
        Param::choice("class", &["S", "W", "A", "B"], "W", "Size of the problem"),
        Param::per_vcpu("threads", 1024, "Threads"),
    ],
    metrics: &[
        elapsed("cg-time", "Time of CG: conjugate gradient, irregular memory")
            .only_with("benchmark", &["all", "cg"]),
        elapsed("ep-time", "Time of EP: pairs of random numbers, no memory")
            .only_with("benchmark", &["all", "ep"]),
        elapsed("mg-time", "Time of MG: multigrid, long and short distances")
            .only_with("benchmark", &["all", "mg"]),
        elapsed("ft-time", "Time of FT: Fourier transform, all to all")
            .only_with("benchmark", &["all", "ft"]),
        elapsed("is-time", "Time of IS: sorting integers").only_with("benchmark", &["all", "is"]),
        elapsed("bt-time", "Time of BT: a flow, block tridiagonal equations")
            .only_with("benchmark", &["all", "bt"]),
        elapsed("sp-time", "Time of SP: a flow, pentadiagonal equations")
            .only_with("benchmark", &["all", "sp"]),
        elapsed("lu-time", "Time of LU: a flow, sweeps from corner to corner")
            .only_with("benchmark", &["all", "lu"]),
        elapsed("ua-time", "Time of UA: a ball of heat, a mesh that follows it")
            .only_with("benchmark", &["all", "ua"]),
        operations("cg", "Operations of CG a second").only_with("benchmark", &["all", "cg"]),
        operations("ep", "Operations of EP a second").only_with("benchmark", &["all", "ep"]),
        operations("mg", "Operations of MG a second").only_with("benchmark", &["all", "mg"]),
        operations("ft", "Operations of FT a second").only_with("benchmark", &["all", "ft"]),
        operations("is", "Operations of IS a second").only_with("benchmark", &["all", "is"]),
        operations("bt", "Operations of BT a second").only_with("benchmark", &["all", "bt"]),
        operations("sp", "Operations of SP a second").only_with("benchmark", &["all", "sp"]),
        operations("lu", "Operations of LU a second").only_with("benchmark", &["all", "lu"]),
        operations("ua", "Collocation points that UA advances a second")
            .only_with("benchmark", &["all", "ua"]),
    ],
    repeats: "One run does each benchmark `repeats` times; each brings one sample of its metrics.",
    example: &[("benchmark", DefaultValue::Text("cg")), ("class", DefaultValue::Text("S"))],
    command: |params, facts| {
        argv(
            "npb",
            params,
            &[
                ("benchmark", params.text("benchmark").to_owned()),
                ("class", params.text("class").to_owned()),
                ("threads", params.int_or_vcpus("threads", facts).to_string()),
            ],
        )
    },
    parse: |output, params, _| read(output, params, &NPB),
    duration_s: |params, facts| {
        // Of one of the five kernels, of one of the three flows, and of UA.
        let (kernel_s, flow_s, ua_s) = match params.text("class") {
            "S" => (0.6, 0.2, 0.4),
            "W" => (2.0, 8.0, 2.5),
            "A" => (12.0, 50.0, 20.0),
            _ => (80.0, 260.0, 80.0),
        };
        let one_s = match params.text("benchmark") {
            "all" => 2.5 * kernel_s + 3.0 * flow_s + ua_s,
            "bt" | "sp" | "lu" => flow_s,
            "ua" => ua_s,
            _ => kernel_s,
        };
        facts.computing_s(one_s * params.int("repeats") as f64)
    },
};
