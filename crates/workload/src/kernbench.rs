//! kernbench: building Linux.
//!
//! Source: Linux `Documentation/kbuild/kbuild.rst`; GNU time's manual page. The
//! six values are those of Con Kolivas' kernbench, which asks GNU time for them.

use record::{BetterDirection, MetricKind};

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, count, time};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::roles::{GuestStep, RoleCommands, SCRATCH};

macro_rules! source {
    () => {
        "/usr/src/linux-source-6.1"
    };
}

/// Debian's source of Linux, unpacked: in builtin:debian-12-full it is.
pub const KERNEL_SOURCE: &str = source!();

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "kernbench",
    summary: "Building Linux from its source, with so many jobs (make)",
    about: "Debian's source of Linux 6.1 is configured and prepared once a boot; every run builds \
            `target` anew, with all objects on a scratch disk. `defconfig` and `vmlinux` is what \
            comparisons publish; for emulated guests, or a quick look, take `tinyconfig` and one \
            folder such as `init`. For a list of jobs, list the workload once for each, with a \
            label. Needs 2 GiB of guest memory and with `defconfig` some minutes of eight vCPUs. \
            Emulated, even the preparation takes minutes: give it `limit_s = 3000`.",
    measures: "Many short processes, page faults and computing: the classic of mixed loads.",
    // The last is a program of the source's, which must be unpacked.
    needs: &["make", "gcc", "sh", "time", concat!(source!(), "/scripts/config")],
    beside: RoleCommands {
        setup,
        scratch_mib: |params, _| if params.text("config") == "tinyconfig" { 1024 } else { 8192 },
        full_image: true,
        ..RoleCommands::NOTHING
    },
    params: &[
        Param::choice(
            "config",
            &["defconfig", "tinyconfig", "allnoconfig"],
            "defconfig",
            "How the kernel is configured",
        ),
        Param::choice(
            "target",
            &["vmlinux", "init", "lib", "mm", "kernel", "fs"],
            "vmlinux",
            "What is built: the kernel, or one folder of it",
        ),
        Param::per_vcpu("jobs", 4096, "Compilers at a time (`make -j`)"),
    ],
    metrics: &[
        time("elapsed", "Time of the build").primary(),
        time("user-time", "vCPU time of all processes outside the guest's kernel"),
        time("system-time", "vCPU time of all processes inside the guest's kernel"),
        MetricDef::new(
            "percent-cpu",
            "%",
            BetterDirection::Higher,
            MetricKind::Count,
            "vCPU time over time: 100 for each vCPU that was kept busy",
        ),
        count("context-switches", "How often a process had to leave its vCPU"),
        count("sleeps", "How often a process waited, for a file or for another process"),
    ],
    repeats: "One run is one build from clean, and brings one sample of every metric. The first \
              one reads the source from the disk: give the study `invocations = 2` or more.",
    example: &[
        ("config", DefaultValue::Text("tinyconfig")),
        ("target", DefaultValue::Text("init")),
        ("jobs", DefaultValue::Int(2)),
    ],
    command,
    parse,
    duration_s,
};

fn make(words: &str) -> String {
    format!("make -s -C {KERNEL_SOURCE} O={SCRATCH}/build {words}")
}

fn setup(params: &Params, facts: &GuestFacts) -> Vec<GuestStep> {
    let jobs = facts.vcpus;
    // make ends with a line for each of its folders; what went wrong stands
    // before them.
    let log = "/tmp/vmlab-make.log";
    let explained = |words: &str| {
        let make = make(words);
        format!("{make} >{log} 2>&1 || {{ grep -v '^make' {log} | tail -n 5 >&2; exit 1; }}")
    };
    vec![
        GuestStep::run(["mkdir", "-p", &format!("{SCRATCH}/build")]),
        GuestStep::shell(&explained(&format!("-j{jobs} {}", params.text("config")))),
        GuestStep::shell(&explained(&format!("-j{jobs} prepare"))),
    ]
}

/// What `make` is told to build.
fn target(params: &Params) -> String {
    match params.text("target") {
        "vmlinux" => "vmlinux".to_owned(),
        folder => format!("{folder}/"),
    }
}

fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let target = target(params);
    // What the preparation built stays: only what the target makes is removed.
    let clean = format!(
        "find {SCRATCH}/build -name '*.o' ! -path '*/scripts/*' ! -path '*/tools/*' \
         ! -path '*/vdso*' -delete; rm -f {SCRATCH}/build/vmlinux"
    );
    let jobs = params.int_or_vcpus("jobs", facts);
    let make = make(&format!("-j{jobs} {target}"));
    let script = format!("{clean}; sync; time -f '{REPORT}' {make}");
    ["sh", "-c", &script].map(str::to_owned).into()
}

fn duration_s(params: &Params, facts: &GuestFacts) -> f64 {
    let native_s = match (params.text("config"), params.text("target")) {
        ("defconfig", "vmlinux") => 1200.0,
        (_, "vmlinux") => 120.0,
        ("defconfig", _) => 60.0,
        _ => 10.0,
    };
    // Emulated vCPUs may have one processor for all of them, and the configuration that
    // comes before has as long and uses one.
    let jobs = match facts.emulated {
        true => 1,
        false => params.int_or_vcpus("jobs", facts).min(i64::from(facts.vcpus)).max(1),
    };
    facts.computing_s(native_s / jobs as f64)
}

/// The metrics in the order of [`REPORT`].
const VALUES: [&str; 6] =
    ["elapsed", "user-time", "system-time", "percent-cpu", "context-switches", "sleeps"];

/// What GNU time is to print.
const REPORT: &str = "kernbench: %e %U %S %P %c %w";

fn parse(
    output: CommandOutput<'_>,
    _: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    // So GNU time says that make failed.
    if let Some(line) = output.stderr_lines().find(|line| line.text.starts_with("Command ")) {
        return Err(line.expected("a build that succeeds"));
    }
    let mut lines = output.stderr_lines().filter_map(|line| {
        let values = line.text.strip_prefix("kernbench: ")?;
        Some((line, values.split(' ').collect::<Vec<_>>()))
    });
    let (line, values) = lines.next().ok_or_else(|| output.ended("time's report"))?;
    if values.len() != VALUES.len() {
        return Err(line.expected(format!("{} values", VALUES.len())));
    }
    let mut parsed = ParsedOutput::default();
    for (metric, value) in VALUES.into_iter().zip(values) {
        parsed.push(metric, line.number(value.trim_end_matches('%'), metric)?);
    }
    if parsed.samples[0].value == 0.0 {
        return Err(output.ended("a build that took any time (is everything built already?)"));
    }
    Ok(parsed)
}
