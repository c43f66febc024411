//! npb: five of the NAS Parallel Benchmarks, from their specification.
//!
//! Source: D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, and the
//! verification values and operation counts of NPB 3's reports. vmlab's own
//! implementation.

mod cg;
mod ep;
mod ft;
mod is;
mod mg;
mod random;

use crate::args::Args;
use crate::document::Outcome;
use crate::spec::{CPUS, Default, Kind, MetricDef, Opt, Probe, ProbeError, REPEAT, THREADS};
use crate::team::Team;
use crate::{machine, vcpus};

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "npb",
    summary: "NAS Parallel Benchmarks EP, CG, MG, FT, IS (vmlab's own implementation)",
    about: "Kernels of numerical programs, in the published classes S, W, A and B: `ep` computes \
            and shares nothing; `cg` reads memory at random places and synchronises often; `mg` \
            walks through grids with long strides; `ft` moves all memory through all threads; \
            `is` counts whole numbers at random places. Together they show what placement, \
            nodes, huge pages and stolen time cost parallel programs. Threads get equal parts, \
            wait for each other after each step, and sleep while they wait. Operations are \
            counted by the formulas of the published reports. BT, SP, LU and UA are not part \
            of it.",
    verifies: "results agree with the published verification values of the class, to the published \
               precision.",
    options: &[
        Opt {
            name: "benchmark",
            kind: Kind::Choice(&["all", "ep", "cg", "mg", "ft", "is"]),
            default: Default::Text("all"),
            unit: "",
            help: "Which benchmark",
        },
        Opt {
            name: "class",
            kind: Kind::Choice(&["S", "W", "A", "B"]),
            default: Default::Text("W"),
            unit: "",
            help: "Size of the problem: S is a sample, W a workstation's, A and B are larger",
        },
        THREADS,
        CPUS,
        Opt { default: Default::Int(1), ..REPEAT },
    ],
    metrics: &[
        MetricDef::rate("ep", "1/s", "Operations a second of EP"),
        MetricDef::rate("cg", "1/s", "Operations a second of CG"),
        MetricDef::rate("mg", "1/s", "Operations a second of MG"),
        MetricDef::rate("ft", "1/s", "Operations a second of FT"),
        MetricDef::rate("is", "1/s", "Operations a second of IS"),
        MetricDef::time("ep-time", "Time of EP"),
        MetricDef::time("cg-time", "Time of CG"),
        MetricDef::time("mg-time", "Time of MG"),
        MetricDef::time("ft-time", "Time of FT"),
        MetricDef::time("is-time", "Time of IS"),
    ],
    histograms: &[],
    example: "--benchmark cg --class A --threads 4",
    run,
};

/// Size of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    S,
    W,
    A,
    B,
}

/// What a benchmark did.
struct Done {
    seconds: f64,
    operations: f64,
    verified: bool,
    detail: String,
}

/// A benchmark: its name, how it runs, and the memory that it needs.
type Benchmark = (&'static str, fn(Class, &Team) -> Done, fn(Class) -> u64);

const BENCHMARKS: [Benchmark; 5] = [
    ("ep", ep::run, |_| 1 << 20),
    ("cg", cg::run, cg::bytes),
    ("mg", mg::run, mg::bytes),
    ("ft", ft::run, ft::bytes),
    ("is", is::run, is::bytes),
];

/// True if `value` is within `by` of `published`, relatively.
fn near(value: f64, published: f64, by: f64) -> bool {
    ((value - published) / published).abs() <= by
}

fn run(args: &Args, outcome: &mut Outcome) -> Result<(), ProbeError> {
    let class = match args.text("class") {
        "S" => Class::S,
        "W" => Class::W,
        "A" => Class::A,
        _ => Class::B,
    };
    outcome.fact("implementation", "vmlab's own, from the specification");
    let team = Team::new(args.size("threads"), &args.vcpus("cpus"))?;
    if team.threads() > vcpus::allowed().len() {
        outcome.warn("More threads than vCPUs");
    }
    let free = machine::meminfo("MemAvailable").unwrap_or(u64::MAX);
    for (name, benchmark, bytes) in BENCHMARKS {
        if args.text("benchmark") != "all" && args.text("benchmark") != name {
            continue;
        }
        let needed = bytes(class);
        if needed > free {
            let text = format!("{name} of class {class:?} needs {needed} bytes, {free} are free");
            return Err(ProbeError::Refused(text));
        }
        for repeat in 0..args.size("repeat") {
            let done = benchmark(class, &team);
            outcome.push(name, done.operations / done.seconds).repeat(repeat);
            outcome.push(&format!("{name}-time"), done.seconds).repeat(repeat);
            outcome.check(format!("{name} {class:?} {repeat}"), done.verified, done.detail);
        }
    }
    Ok(())
}
