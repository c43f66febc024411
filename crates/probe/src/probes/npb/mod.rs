//! npb: nine of the NAS Parallel Benchmarks, from their specification.
//!
//! Source: D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, for UA
//! NAS-04-006, and the verification values and operation counts of NPB 3's
//! reports. vmlab's own implementation.

mod bt;
mod cg;
mod ep;
mod flow;
mod ft;
mod is;
mod jacobian;
mod lu;
mod mg;
mod random;
mod sp;
mod ua;

use crate::args::Args;
use crate::document::ProbeResult;
use crate::spec::{CPUS, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, THREADS};
use crate::team::Team;
use crate::{machine, vcpus};

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "npb",
    summary: "NAS Parallel Benchmarks EP, CG, MG, FT, IS, BT, SP, LU, UA (vmlab's own implementation)",
    about: "Kernels of numerical programs, in the published classes S, W, A and B: `ep` computes \
            and shares nothing; `cg` reads memory at random places and synchronises often; `mg` \
            walks through grids with long strides; `ft` moves all memory through all threads; \
            `is` counts whole numbers at random places; `bt` and `sp` follow a flow through a \
            cube, along its lines in all three directions, `bt` with much computing for each \
            value that it reads, `sp` with little; `lu` follows the flow from corner to corner, \
            where each point waits for its neighbours; `ua` follows a ball of heat with a mesh \
            that is refined where the ball comes and coarsened behind it, and reads and writes \
            at places that change with the mesh. Together they show what placement, nodes, huge \
            pages and stolen time cost parallel programs. Threads get equal parts, wait \
            for each other after each step, those of `lu` for the one before them after each \
            plane of the cube too, and sleep while they wait. Operations are counted by the \
            formulas of the published reports: of `ua` they are collocation points that are \
            advanced, some dozens of floating point operations each.",
    verifies: "results agree with the published verification values of the class, to the published \
               precision.",
    options: &[
        Opt::choice(
            "benchmark",
            &["all", "ep", "cg", "mg", "ft", "is", "bt", "sp", "lu", "ua"],
            "all",
            "Which benchmark",
        ),
        Opt::choice(
            "class",
            &["S", "W", "A", "B"],
            "W",
            "Size of the problem: S is a sample, W a workstation's, A and B are larger",
        ),
        THREADS,
        CPUS,
        Opt { default: OptionDefault::Int(1), ..REPEAT },
    ],
    metrics: &[
        ProbeMetric::rate("ep", "1/s", "Operations a second of EP"),
        ProbeMetric::rate("cg", "1/s", "Operations a second of CG"),
        ProbeMetric::rate("mg", "1/s", "Operations a second of MG"),
        ProbeMetric::rate("ft", "1/s", "Operations a second of FT"),
        ProbeMetric::rate("is", "1/s", "Operations a second of IS"),
        ProbeMetric::rate("bt", "1/s", "Operations a second of BT"),
        ProbeMetric::rate("sp", "1/s", "Operations a second of SP"),
        ProbeMetric::rate("lu", "1/s", "Operations a second of LU"),
        ProbeMetric::rate("ua", "1/s", "Collocation points that UA advances a second"),
        ProbeMetric::time("ep-time", "Time of EP"),
        ProbeMetric::time("cg-time", "Time of CG"),
        ProbeMetric::time("mg-time", "Time of MG"),
        ProbeMetric::time("ft-time", "Time of FT"),
        ProbeMetric::time("is-time", "Time of IS"),
        ProbeMetric::time("bt-time", "Time of BT"),
        ProbeMetric::time("sp-time", "Time of SP"),
        ProbeMetric::time("lu-time", "Time of LU"),
        ProbeMetric::time("ua-time", "Time of UA"),
    ],
    histograms: &[],
    example: "--benchmark cg --class A --threads 4",
    run,
};

/// Size of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NpbClass {
    S,
    W,
    A,
    B,
}

/// The result of one benchmark.
struct NpbResult {
    seconds: f64,
    operations: f64,
    verified: bool,
    detail: String,
}

/// A benchmark: its name, how it runs, and the memory that it needs.
type Benchmark = (&'static str, fn(NpbClass, &Team) -> NpbResult, fn(NpbClass) -> u64);

const BENCHMARKS: [Benchmark; 9] = [
    ("ep", ep::run, |_| 1 << 20),
    ("cg", cg::run, cg::bytes),
    ("mg", mg::run, mg::bytes),
    ("ft", ft::run, ft::bytes),
    ("is", is::run, is::bytes),
    ("bt", bt::run, bt::bytes),
    ("sp", sp::run, sp::bytes),
    ("lu", lu::run, lu::bytes),
    ("ua", ua::run, ua::bytes),
];

/// True if `value` is within `by` of `published`, relatively.
fn near(value: f64, published: f64, by: f64) -> bool {
    ((value - published) / published).abs() <= by
}

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let class = match args.text("class") {
        "S" => NpbClass::S,
        "W" => NpbClass::W,
        "A" => NpbClass::A,
        _ => NpbClass::B,
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
