//! clock: what reading the time costs, by clock source.
//!
//! Source: Linux `Documentation/timers/timekeeping.rst`, `vdso(7)`.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};

use crate::args::Args;
use crate::document::ProbeResult;
use crate::machine::read_trimmed;
use crate::pace;
use crate::spec::{
    ErrorContext as _, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS, WARMUP,
};

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "clock",
    summary: "Cost of reading the clock, by clock source, and whether it enters the kernel",
    about: "Calls clock_gettime in a loop. With a source that the guest may read itself (tsc, \
            kvm-clock, arch_sys_counter) the call stays in user space (vDSO); with others (hpet, \
            acpi_pm) each enters the kernel and, in a VM, mostly the host as well. `source` all \
            switches through every source that the guest offers, which needs root, and sets back \
            the first; values carry the label `source`. The path is judged by cost: at least \
            half of that of a clock which always enters the kernel means a system call.",
    verifies: "no clock ever went backwards, and the clock source is at the end what it was.",
    options: &[
        Opt::text("source", "current", "current, all, or the name of a clock source"),
        Opt {
            default: OptionDefault::Float(0.1),
            help: "How long one clock is read a repeat",
            ..SECONDS
        },
        REPEAT,
        WARMUP,
    ],
    metrics: &[
        ProbeMetric::time("monotonic", "Mean time of clock_gettime(CLOCK_MONOTONIC)"),
        ProbeMetric::time("realtime", "Mean time of clock_gettime(CLOCK_REALTIME)"),
        ProbeMetric::time("gettimeofday", "Mean time of the C library's time of day"),
        ProbeMetric::time("coarse", "Mean time of clock_gettime(CLOCK_MONOTONIC_COARSE)"),
        ProbeMetric::time("kernel", "Mean time of a clock that always enters the kernel"),
        ProbeMetric::time("step", "Least difference above 0 between two readings"),
    ],
    histograms: &[],
    example: "--source all",
    run,
};

const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let read = |name: &str| read_trimmed(&Path::new(FOLDER).join(name));
    let current = read("current_clocksource").unwrap_or_else(|| String::from("unknown"));
    let available = read("available_clocksource").unwrap_or_default();
    outcome.fact("current", &*current);
    outcome.fact("available", &*available);
    let wanted = args.text("source");
    let sources: Vec<String> = match wanted {
        "current" => vec![current.clone()],
        "all" => available.split_whitespace().map(str::to_owned).collect(),
        name if available.split_whitespace().any(|one| one == name) => vec![name.to_owned()],
        name => {
            let text = format!("There is no clock source {name}; the guest offers: {available}");
            return Err(ProbeError::Refused(text));
        }
    };
    let mut paths = Vec::new();
    for source in &sources {
        let switched = ClocksourceGuard::to(source, &current);
        if let Err(error) = &switched {
            if wanted != "all" {
                switched?;
            } else {
                outcome.warn(format!("{source} was left out: {error}"));
            }
            continue;
        }
        paths.push(format!("{source}={}", measure(args, source, outcome)));
    }
    outcome.fact("paths", paths.join(" "));
    let now = read("current_clocksource").unwrap_or_else(|| String::from("unknown"));
    outcome.check("restored", now == current, format!("it is {now}, and was {current}"));
    Ok(())
}

/// Measures the source in use; how the clock is read.
fn measure(args: &Args, source: &str, outcome: &mut ProbeResult) -> &'static str {
    let (mut backwards, mut by_kernel) = (0, false);
    each_s(args.float("warmup"), ClockId::Monotonic, &mut backwards);
    for repeat in 0..args.size("repeat") {
        let seconds = args.float("seconds");
        let mut push = |name: &str, value: f64| {
            outcome.push(name, value).repeat(repeat).label("source", source);
            value
        };
        let monotonic = push("monotonic", each_s(seconds, ClockId::Monotonic, &mut backwards));
        push("realtime", each_s(seconds, ClockId::Realtime, &mut 0));
        push("gettimeofday", time_of_day_s(seconds));
        push("coarse", each_s(seconds, ClockId::MonotonicCoarse, &mut backwards));
        let kernel = push("kernel", each_s(seconds, ClockId::ProcessCPUTime, &mut backwards));
        push("step", step_s());
        by_kernel = monotonic > kernel / 2.0;
    }
    let detail = format!("{backwards} readings were below the one before");
    outcome.check(format!("forwards {source}"), backwards == 0, detail);
    if by_kernel { "system call" } else { "vdso" }
}

/// Mean seconds of one reading; counts readings below the one before.
fn each_s(seconds: f64, clock: ClockId, backwards: &mut u64) -> f64 {
    let mut last = clock_gettime(clock);
    pace::for_seconds(seconds, |n| {
        for _ in 0..n {
            let now = clock_gettime(clock);
            *backwards += u64::from((now.tv_sec, now.tv_nsec) < (last.tv_sec, last.tv_nsec));
            last = now;
        }
    })
    .each_s()
}

fn time_of_day_s(seconds: f64) -> f64 {
    pace::for_seconds(seconds, |n| {
        for _ in 0..n {
            black_box(SystemTime::now());
        }
    })
    .each_s()
}

/// The least difference above 0 between two readings, of ten thousand.
fn step_s() -> f64 {
    let ns = || {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    };
    let (mut last, mut least) = (ns(), i64::MAX);
    for _ in 0..10_000 {
        let now = ns();
        if now > last {
            least = least.min(now - last);
        }
        last = now;
    }
    least as f64 / 1e9
}

/// A clock source that is in use until this is dropped.
struct ClocksourceGuard<'a> {
    back: Option<&'a str>,
}

impl<'a> ClocksourceGuard<'a> {
    fn to(source: &str, current: &'a str) -> Result<Self, ProbeError> {
        if source == current {
            return Ok(Self { back: None });
        }
        set(source)?;
        let switched = Self { back: Some(current) };
        let now = read_trimmed(&Path::new(FOLDER).join("current_clocksource"));
        if now.as_deref() == Some(source) {
            Ok(switched)
        } else {
            Err(ProbeError::Refused(format!("The guest did not switch to {source}")))
        }
    }
}

impl Drop for ClocksourceGuard<'_> {
    fn drop(&mut self) {
        if let Some(source) = self.back {
            // The check at the end says whether it worked.
            let _ = set(source);
        }
    }
}

fn set(source: &str) -> Result<(), ProbeError> {
    fs::write(Path::new(FOLDER).join("current_clocksource"), source)
        .tried(format!("switch the clock source to {source}"))
}
