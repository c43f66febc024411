//! ipi: what an interprocessor interrupt that is waited for costs.
//!
//! Source: `membarrier(2)`, `MEMBARRIER_CMD_PRIVATE_EXPEDITED`: the kernel
//! interrupts every vCPU that runs a thread of the process, and waits.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::args::{Args, OptionValue};
use crate::costs::CounterSnapshot;
use crate::document::{ProbeResult, nanoseconds};
use crate::spec::{
    CPUS, ErrorContext as _, Opt, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS, WARMUP,
};
use crate::vcpus;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "ipi",
    summary: "Cost of interprocessor interrupts to running vCPUs (membarrier)",
    about: "`targets` threads spin, each on a vCPU of its own; another calls membarrier, for which \
            the kernel interrupts all those vCPUs and waits until each has answered. In a VM \
            the interrupt is an exit unless the host's interrupt controller is virtualised \
            (APICv, AVIC, GICv4.1), and a vCPU that has been preempted by the host answers only \
            when it runs again: the long tail is steal. The cost without targets is that of the \
            system call alone.",
    verifies: "no call fails, and each spinning thread goes on.",
    options: &[
        Opt { help: "vCPUs of the caller and of the targets; empty for the first ones", ..CPUS },
        Opt::int("targets", (0, 1023), 0, "vCPUs that are interrupted; 0 for all but the caller's"),
        SECONDS,
        REPEAT,
        WARMUP,
    ],
    metrics: &[
        ProbeMetric::time("ipi-mean", "Mean time of a call that interrupts all targets"),
        ProbeMetric::quantile("ipi-p50", "Median time of such a call"),
        ProbeMetric::quantile("ipi-p99", "Time that 99 % of such calls stayed below"),
        ProbeMetric::quantile("ipi-max", "Longest such call"),
        ProbeMetric::time("syscall-mean", "Mean time of a call without targets"),
        ProbeMetric::per("ipis-per-call", "Function call interrupts of the guest, by call"),
    ],
    histograms: &[("ipi", "time of every call of all repeats")],
    example: "--targets 1",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let mut pins = args.vcpus("cpus");
    if pins.is_empty() {
        pins = vcpus::allowed();
    }
    let targets = match args.size("targets") {
        0 => pins.len().saturating_sub(1),
        targets => targets,
    };
    outcome.param("targets", OptionValue::Int(targets as i64));
    if targets + 1 > pins.len() {
        let vcpus = pins.len();
        let text = format!("{targets} targets and the caller do not fit on {vcpus} vCPUs");
        return Err(ProbeError::Refused(text));
    }
    if targets == 0 {
        outcome.warn("One vCPU: no interrupt is measured");
    }
    membarrier(MembarrierCommand::RegisterPrivateExpedited).tried("register for membarrier")?;
    let seconds = args.float("seconds");
    let _pinned = vcpus::pin_scoped(&pins, 0)?;
    let mut all = nanoseconds();
    call(args.float("warmup"), |_| {})?;
    for repeat in 0..args.size("repeat") {
        let alone = call(seconds / 4.0, |_| {})?;
        outcome.push("syscall-mean", alone.1 / alone.0 as f64).repeat(repeat);
        let mut hdr = nanoseconds();
        let before = CounterSnapshot::now();
        let (calls, took_s, spun) =
            with_spinners(targets, &pins, || call(seconds, |ns| hdr.saturating_record(ns.max(1))))?;
        let costs = before.costs();
        outcome.push("ipi-mean", took_s / calls as f64).repeat(repeat);
        for (name, q) in [("ipi-p50", 0.5), ("ipi-p99", 0.99), ("ipi-max", 1.0)] {
            outcome.push(name, hdr.value_at_quantile(q) as f64 / 1e9).repeat(repeat);
        }
        if costs.ipis.contains_key("call") {
            let ipis = costs.ipi("call") as f64 / calls as f64;
            outcome.push("ipis-per-call", ipis).repeat(repeat);
            if ipis < 0.9 * targets as f64 {
                outcome.warn("Not every call interrupted every target: some were preempted");
            }
        }
        outcome.check(
            format!("spinning {repeat}"),
            spun.iter().all(|count| *count > 0) && spun.len() == targets,
            format!("{spun:?} loops during {calls} calls"),
        );
        all += hdr;
    }
    outcome.histogram("ipi", &all);
    outcome.check("calls", !all.is_empty(), format!("{} calls were answered", all.len()));
    Ok(())
}

/// Calls membarrier for `seconds`; how often, and how long all calls took.
fn call(seconds: f64, mut record: impl FnMut(u64)) -> Result<(u64, f64), ProbeError> {
    let (begin, mut calls, mut took_s) = (Instant::now(), 0, 0.0);
    let mut last = begin;
    while last.duration_since(begin).as_secs_f64() < seconds || calls == 0 {
        let before = Instant::now();
        membarrier(MembarrierCommand::PrivateExpedited).tried("call membarrier")?;
        last = Instant::now();
        let took = last - before;
        record(took.as_nanos() as u64);
        took_s += took.as_secs_f64();
        calls += 1;
    }
    Ok((calls, took_s))
}

/// Runs `work` while `targets` threads spin; how often each did.
fn with_spinners(
    targets: usize,
    pins: &[usize],
    work: impl FnOnce() -> Result<(u64, f64), ProbeError>,
) -> Result<(u64, f64, Vec<u64>), ProbeError> {
    let (ended, ready) = (AtomicBool::new(false), Barrier::new(targets + 1));
    let counts: Vec<AtomicU64> = (0..targets).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let spinners: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(target, count)| {
                let (ended, ready) = (&ended, &ready);
                scope.spawn(move || {
                    let pinned = vcpus::pin(pins, target + 1);
                    ready.wait();
                    while !ended.load(Ordering::Relaxed) {
                        count.fetch_add(1, Ordering::Relaxed);
                        spin_loop();
                    }
                    pinned
                })
            })
            .collect();
        ready.wait();
        let done = work();
        let spun = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        ended.store(true, Ordering::Relaxed);
        for spinner in spinners {
            spinner.join().expect("a spinner does not panic")?;
        }
        done.map(|(calls, took_s)| (calls, took_s, spun))
    })
}
