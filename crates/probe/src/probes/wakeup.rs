//! wakeup: how long a sleeping thread on another vCPU takes to run.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::thread::futex;

use crate::args::{Args, OptionValue};
use crate::document::{ProbeResult, nanoseconds};
use crate::semaphore::Semaphore;
use crate::spec::{CPUS, Opt, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS, WARMUP};
use crate::vcpus;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "wakeup",
    summary: "Latency of waking a thread on another vCPU, and the rate of a ping-pong",
    about: "One thread sleeps on a futex, another, on another vCPU, lets `pause-us` pass and \
            wakes it: the latency is from before the waker's system call until the sleeper reads \
            the clock. It holds the interrupt to an idle vCPU, which in a VM is an exit of the \
            waker and a start of the sleeper's vCPU by the host; a longer pause lets both go to \
            deeper sleep. Then both threads wake each other as fast as they can. By default the \
            first two vCPUs are taken; name the same vCPU twice to see a wake-up without \
            interrupts.",
    verifies: "every wake-up is received once, and none before it was sent.",
    options: &[
        Opt { help: "vCPUs of the waker and of the sleeper; empty for the first two", ..CPUS },
        Opt::int("pause-us", (0, 10_000_000), 50, "How long the sleeper sleeps before it is woken")
            .unit("us"),
        SECONDS,
        REPEAT,
        WARMUP,
    ],
    metrics: &[
        ProbeMetric::quantile("wakeup-p50", "Median latency of a repeat"),
        ProbeMetric::quantile("wakeup-p99", "Latency that 99 % of the wake-ups stayed below"),
        ProbeMetric::quantile("wakeup-max", "Longest latency of a repeat"),
        ProbeMetric::time("wakeup-mean", "Mean latency of a repeat"),
        ProbeMetric::rate("round-trips-per-s", "1/s", "Ping-pongs a second, each of two wake-ups"),
    ],
    histograms: &[("wakeup", "latency of every wake-up of all repeats")],
    example: "--cpus 0,1 --pause-us 100",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let mut pins = args.vcpus("cpus");
    if pins.is_empty() {
        pins = vcpus::allowed().into_iter().take(2).collect();
        let list: Vec<String> = pins.iter().map(usize::to_string).collect();
        outcome.param("cpus", OptionValue::Text(list.join(",")));
    }
    if pins.len() < 2 || pins[0] == pins[1] {
        outcome.warn("Both threads share one vCPU: no interrupt is measured");
    }
    let (seconds, pause) = (args.float("seconds"), Duration::from_micros(args.count("pause-us")));
    let mut all = nanoseconds();
    let (mut sent, mut backwards) = (0, 0);
    once(args.float("warmup"), pause, &pins)?;
    for repeat in 0..args.size("repeat") {
        let once = once(seconds, pause, &pins)?;
        sent += once.sent;
        backwards += once.backwards;
        let hdr = &once.latencies;
        let s = |ns: u64| ns as f64 / 1e9;
        outcome.push("wakeup-p50", s(hdr.value_at_quantile(0.5))).repeat(repeat);
        outcome.push("wakeup-p99", s(hdr.value_at_quantile(0.99))).repeat(repeat);
        outcome.push("wakeup-max", s(hdr.max())).repeat(repeat);
        outcome.push("wakeup-mean", hdr.mean() / 1e9).repeat(repeat);
        outcome.push("round-trips-per-s", ping_pong(seconds, &pins)?).repeat(repeat);
        all += hdr;
    }
    outcome.histogram("wakeup", &all);
    let received = all.len() + backwards;
    outcome.check("received", sent == received, format!("{received} of {sent} were received"));
    outcome.check("order", backwards == 0, format!("{backwards} came before they were sent"));
    Ok(())
}

struct WakeupRepeat {
    sent: u64,
    backwards: u64,
    latencies: Histogram<u64>,
}

fn once(seconds: f64, pause: Duration, pins: &[usize]) -> Result<WakeupRepeat, ProbeError> {
    // The number of the wake-up that was sent, and of the one that is waited for.
    let (sent, awaited) = (AtomicU32::new(0), AtomicU32::new(0));
    let (sent_at_ns, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let (begin, start) = (Instant::now(), Barrier::new(2));
    let now_ns = || begin.elapsed().as_nanos() as u64;
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let pinned = vcpus::pin(pins, 1);
            start.wait();
            let (mut latencies, mut backwards, mut number) = (nanoseconds(), 0, 0);
            while !ended.load(Ordering::Acquire) {
                awaited.store(number + 1, Ordering::Release);
                while sent.load(Ordering::Acquire) == number {
                    // Both errors mean to look again: the word changed, or a signal came.
                    let _ = futex::wait(&sent, futex::Flags::PRIVATE, number, None);
                }
                let now = now_ns();
                number += 1;
                match now.checked_sub(sent_at_ns.load(Ordering::Acquire)) {
                    Some(latency) => latencies.saturating_record(latency.max(1)),
                    None => backwards += 1,
                }
            }
            pinned.map(|()| (latencies, backwards))
        });
        let pinned = vcpus::pin_scoped(pins, 0);
        start.wait();
        let begin = Instant::now();
        let mut number = 0;
        loop {
            while awaited.load(Ordering::Acquire) == number {
                std::thread::yield_now();
            }
            let announced = Instant::now();
            while announced.elapsed() < pause {
                std::hint::spin_loop();
            }
            number += 1;
            let last = begin.elapsed().as_secs_f64() >= seconds;
            ended.store(last, Ordering::Release);
            sent_at_ns.store(now_ns(), Ordering::Release);
            sent.store(number, Ordering::Release);
            // One sleeper at most: who is awake sees the number.
            let _ = futex::wake(&sent, futex::Flags::PRIVATE, 1);
            if last {
                break;
            }
        }
        let (latencies, backwards) = sleeper.join().expect("the sleeper does not panic")?;
        pinned?;
        Ok(WakeupRepeat { sent: u64::from(number), backwards, latencies })
    })
}

/// Round trips a second of two threads that only wake each other.
fn ping_pong(seconds: f64, pins: &[usize]) -> Result<f64, ProbeError> {
    let (ping, pong, ended) = (Semaphore::new(0), Semaphore::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let pinned = vcpus::pin(pins, 1);
            loop {
                ping.wait();
                let last = ended.load(Ordering::Relaxed);
                pong.post();
                if last {
                    return pinned;
                }
            }
        });
        let pinned = vcpus::pin_scoped(pins, 0);
        let done = crate::pace::for_seconds(seconds, |n| {
            for _ in 0..n {
                ping.post();
                pong.wait();
            }
        });
        ended.store(true, Ordering::Relaxed);
        ping.post();
        pong.wait();
        other.join().expect("the other thread does not panic")?;
        pinned?;
        Ok(done.rate())
    })
}
