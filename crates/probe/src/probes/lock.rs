//! lock: threads that contend for one lock, and a vCPU that is taken away
//! while its thread holds it.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::args::Args;
use crate::document::{ProbeResult, nanoseconds};
use crate::pace::work;
use crate::spec::{CPUS, Opt, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS, THREADS, WARMUP};
use crate::vcpus;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "lock",
    summary: "A contended lock: throughput, waits, and holders that were preempted",
    about: "Threads take one lock, compute `hold` steps, release it, and compute `outside` steps. \
            `spin` tests and sets a word, `ticket` serves in order, `mutex` sleeps when it has \
            to. If the host takes a vCPU away whose thread holds the lock, all others spin for \
            nothing until it runs again; with tickets it is as bad if the vCPU next in line is \
            the one that is gone. Such holds are seen as long ones. The clock is read three \
            times an acquisition, twice while the lock is held.",
    verifies: "a counter that the lock alone protects ends at the number of acquisitions.",
    options: &[
        THREADS,
        CPUS,
        Opt::choice("kind", &["spin", "ticket", "mutex"], "ticket", "Which lock"),
        Opt::int("hold", (0, 1 << 40), 100, "Steps of work with the lock held"),
        Opt::int("outside", (0, 1 << 40), 100, "Steps of work without it"),
        Opt::int("long-us", (1, 1_000_000_000), 200, "From how long on a hold counts as preempted")
            .unit("us"),
        SECONDS,
        REPEAT,
        WARMUP,
    ],
    metrics: &[
        ProbeMetric::rate("acquisitions-per-s", "1/s", "Acquisitions a second of all threads"),
        ProbeMetric::rate(
            "thread-acquisitions-per-s",
            "1/s",
            "Acquisitions a second of one thread",
        )
        .per_thread(),
        ProbeMetric::quantile("wait-p50", "Median wait for the lock"),
        ProbeMetric::quantile("wait-p99", "Wait that 99 % of the acquisitions stayed below"),
        ProbeMetric::quantile("wait-max", "Longest wait for the lock"),
        ProbeMetric::quantile("hold-max", "Longest time that the lock was held"),
        ProbeMetric::count("long-holds", "Holds of `long-us` or more: the holder was preempted"),
    ],
    histograms: &[
        ("wait", "waits for the lock, of all repeats"),
        ("hold", "times that the lock was held, of all repeats"),
    ],
    example: "--kind ticket --threads 4",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let long_ns = args.count("long-us") * 1000;
    if args.size("threads") > vcpus::allowed().len() {
        outcome.warn("More threads than vCPUs: the guest itself preempts holders");
    }
    let (mut waits, mut holds) = (nanoseconds(), nanoseconds());
    let (mut acquisitions, mut counted) = (0, 0);
    once(args, args.float("warmup"))?;
    for repeat in 0..args.size("repeat") {
        let once = once(args, args.float("seconds"))?;
        let total: u64 = once.threads.iter().map(|thread| thread.holds.len()).sum();
        let (mut wait, mut hold) = (nanoseconds(), nanoseconds());
        for (number, thread) in once.threads.iter().enumerate() {
            let rate = thread.holds.len() as f64 / once.elapsed_s;
            outcome.push("thread-acquisitions-per-s", rate).repeat(repeat).thread(number);
            wait += &thread.waits;
            hold += &thread.holds;
        }
        let s = |ns: u64| ns as f64 / 1e9;
        outcome.push("acquisitions-per-s", total as f64 / once.elapsed_s).repeat(repeat);
        outcome.push("wait-p50", s(wait.value_at_quantile(0.5))).repeat(repeat);
        outcome.push("wait-p99", s(wait.value_at_quantile(0.99))).repeat(repeat);
        outcome.push("wait-max", s(wait.max())).repeat(repeat);
        outcome.push("hold-max", s(hold.max())).repeat(repeat);
        let long = hold.count_between(long_ns, hold.high());
        outcome.push("long-holds", long as f64).repeat(repeat);
        waits += wait;
        holds += hold;
        acquisitions += total;
        counted += once.counted;
    }
    outcome.histogram("wait", &waits);
    outcome.histogram("hold", &holds);
    let detail = format!("the counter says {counted} after {acquisitions} acquisitions");
    outcome.check("exclusion", counted == acquisitions, detail);
    Ok(())
}

/// The locks; each protects a counter that is no atomic addition.
struct CountedLock<'a> {
    kind: &'a str,
    next: AtomicU32,
    serving: AtomicU32,
    held: AtomicBool,
    mutex: Mutex<()>,
    counter: AtomicU64,
}

impl CountedLock<'_> {
    /// Takes the lock, calls `work` and releases the lock.
    fn with(&self, work: impl FnOnce()) {
        match self.kind {
            "ticket" => {
                let ticket = self.next.fetch_add(1, Ordering::Relaxed);
                while self.serving.load(Ordering::Acquire) != ticket {
                    spin_loop();
                }
                work();
                self.serving.store(ticket.wrapping_add(1), Ordering::Release);
            }
            "spin" => {
                while self.held.swap(true, Ordering::Acquire) {
                    while self.held.load(Ordering::Relaxed) {
                        spin_loop();
                    }
                }
                work();
                self.held.store(false, Ordering::Release);
            }
            _ => {
                let _guard = self.mutex.lock().expect("no holder panics");
                work();
            }
        }
    }
}

struct LockThread {
    waits: Histogram<u64>,
    holds: Histogram<u64>,
}

struct LockRepeat {
    threads: Vec<LockThread>,
    elapsed_s: f64,
    counted: u64,
}

fn once(args: &Args, seconds: f64) -> Result<LockRepeat, ProbeError> {
    let (threads, pins) = (args.size("threads"), args.vcpus("cpus"));
    let (hold, outside) = (args.count("hold"), args.count("outside"));
    let lock = CountedLock {
        kind: args.text("kind"),
        next: AtomicU32::new(0),
        serving: AtomicU32::new(0),
        held: AtomicBool::new(false),
        mutex: Mutex::new(()),
        counter: AtomicU64::new(0),
    };
    let start = Barrier::new(threads + 1);
    let thread = |number: usize| {
        let pinned = vcpus::pin(&pins, number);
        let mut own = LockThread { waits: nanoseconds(), holds: nanoseconds() };
        start.wait();
        let begin = Instant::now();
        loop {
            let asked = Instant::now();
            let (mut taken, mut released) = (asked, asked);
            lock.with(|| {
                taken = Instant::now();
                lock.counter.store(lock.counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                work(hold);
                released = Instant::now();
            });
            own.waits.saturating_record(((taken - asked).as_nanos() as u64).max(1));
            own.holds.saturating_record(((released - taken).as_nanos() as u64).max(1));
            if (released - begin).as_secs_f64() >= seconds {
                return pinned.map(|()| own);
            }
            work(outside);
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let thread = &thread;
                scope.spawn(move || thread(number))
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        let done: Result<Vec<LockThread>, ProbeError> =
            running.into_iter().map(|one| one.join().expect("no thread panics")).collect();
        let elapsed_s = begin.elapsed().as_secs_f64();
        Ok(LockRepeat { threads: done?, elapsed_s, counted: lock.counter.load(Ordering::Relaxed) })
    })
}
