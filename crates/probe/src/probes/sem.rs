//! sem: a producer and a consumer that wait for each other at every item.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread::Scope;
use std::time::Instant;

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use crate::args::Args;
use crate::costs::{CounterSnapshot, GuestCosts, own_switches};
use crate::document::ProbeResult;
use crate::pace::work;
use crate::semaphore::Semaphore;
use crate::spec::{
    CPUS, ErrorContext as _, Opt, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS, WARMUP,
};
use crate::vcpus;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "sem",
    summary: "Producer and consumer on two semaphores: the cost of sleeping between items",
    about: "Two threads hand over one item at a time. The producer posts an item, computes \
            `loops` steps, waits until the consumer took the item before, and computes `loops` \
            steps more; the consumer waits for an item, computes `loops` steps and answers. The \
            producer has twice the work, so the consumer sleeps at every item, its vCPU goes \
            idle (HLT or WFI leaves the guest), and the next post wakes it by a rescheduling \
            interrupt: two of the dearest things a VM does. Where the guest polls before it \
            halts (cpuidle-haltpoll, `idle=poll`) or the hog keeps the vCPUs awake, both \
            vanish. Newer kernels wake a thread on a vCPU that shares no cache by a function \
            call interrupt instead, so look at both kinds. `loops` 2000 is a few microseconds. Items, sleeps and wake-ups are counted \
            by the semaphores themselves, interrupts and context switches come from /proc and \
            cover the whole guest.",
    verifies: "the consumer receives every item once and in order, and both semaphores end as \
               they began.",
    options: &[
        Opt::int("items", (0, 1 << 40), 0, "Items a repeat; 0 to run for --seconds"),
        Opt::int(
            "loops",
            (0, 1 << 40),
            2000,
            "Steps of work: the consumer's for an item, and half of the producer's",
        ),
        Opt::choice(
            "hog",
            &["none", "idle", "nice"],
            "none",
            "A thread a vCPU that computes all the time at low priority: none, of the class \
                   SCHED_IDLE, or of nice 19",
        ),
        Opt {
            help: "vCPUs of producer and consumer, in this order; empty leaves them free",
            ..CPUS
        },
        SECONDS,
        REPEAT,
        WARMUP,
    ],
    metrics: &[
        ProbeMetric::rate("items-per-s", "1/s", "Items a second"),
        ProbeMetric::time("elapsed", "How long the items of a repeat took"),
        ProbeMetric::per("sleeps-per-item", "Times that a thread slept, by item"),
        ProbeMetric::per("wakes-per-item", "Posts that woke a thread, by item"),
        ProbeMetric::per(
            "ipis-per-item",
            "Rescheduling and function call interrupts of the guest, by item: which of the two \
             wakes an idle vCPU is the kernel's choice",
        ),
        ProbeMetric::per("resched-ipis-per-item", "Rescheduling interrupts of the guest, by item"),
        ProbeMetric::per("call-ipis-per-item", "Function call interrupts of the guest, by item"),
        ProbeMetric::per("switches-per-item", "Context switches of the guest, by item"),
        ProbeMetric::per(
            "own-switches-per-item",
            "Context switches, voluntary or not, of the two threads, by item",
        ),
    ],
    histograms: &[],
    example: "--items 800000 --loops 2000 --hog idle",
    run,
};

/// What one repeat did.
struct SemRepeat {
    items: u64,
    elapsed_s: f64,
    sleeps: u64,
    wakes: u64,
    own_switches: Option<u64>,
    in_order: bool,
    costs: GuestCosts,
}

/// What the two threads share. Two items can be under way, since `empty` begins
/// at one, so each has the slot of its parity. A slot holds twice the item's
/// number, and one more for the last item.
struct SemBuffer {
    full: Semaphore,
    empty: Semaphore,
    slots: [AtomicU64; 2],
}

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hogs = start_hogs(scope, args.text("hog"), &stop);
        let result = hogs.and_then(|()| measure(args, outcome));
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn measure(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let vcpus = vcpus::allowed().len();
    if vcpus < 2 {
        outcome.warn("One vCPU: producer and consumer take turns on it and send no interrupts");
    }
    let (pins, loops) = (args.vcpus("cpus"), args.count("loops"));
    if args.float("warmup") > 0.0 {
        once(0, args.float("warmup"), loops, &pins)?;
    }
    let (mut items, mut in_order) = (0, true);
    for repeat in 0..args.size("repeat") {
        let once = once(args.count("items"), args.float("seconds"), loops, &pins)?;
        items += once.items;
        in_order &= once.in_order;
        let by_item = |count: u64| count as f64 / once.items as f64;
        let mut push = |name: &str, value: f64| {
            outcome.push(name, value).repeat(repeat);
        };
        push("items-per-s", once.items as f64 / once.elapsed_s);
        push("elapsed", once.elapsed_s);
        push("sleeps-per-item", by_item(once.sleeps));
        push("wakes-per-item", by_item(once.wakes));
        let ipis = |kind: &str| once.costs.ipis.get(kind).map(|ipis| ipis.total);
        let (reschedule, call) = (ipis("reschedule"), ipis("call"));
        // TLB shootdowns are calls, which Linux counts in both rows since 4.8.
        let wakes = [reschedule, call].into_iter().flatten().reduce(|one, other| one + other);
        for (name, count) in [
            ("ipis-per-item", wakes),
            ("resched-ipis-per-item", reschedule),
            ("call-ipis-per-item", call),
        ] {
            if let Some(count) = count {
                push(name, by_item(count));
            }
        }
        if let Some(switches) = once.costs.context_switches {
            push("switches-per-item", by_item(switches));
        }
        if let Some(switches) = once.own_switches {
            push("own-switches-per-item", by_item(switches));
        }
    }
    outcome.check("items", in_order, format!("{items} items were received once and in order"));
    Ok(())
}

/// Hands over `items` items, or as many as fit into `seconds` if it is 0.
fn once(items: u64, seconds: f64, loops: u64, pins: &[usize]) -> Result<SemRepeat, ProbeError> {
    let shared = SemBuffer {
        full: Semaphore::new(0),
        empty: Semaphore::new(1),
        slots: [AtomicU64::new(0), AtomicU64::new(0)],
    };
    let start = Barrier::new(3);
    let goes_on = |done: u64, begin: Instant| {
        // Reading the clock is cheap beside two hand-overs, but not beside none.
        if items > 0 {
            done < items
        } else {
            !done.is_multiple_of(16) || begin.elapsed().as_secs_f64() < seconds
        }
    };
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let pinned = vcpus::pin(pins, 0);
            start.wait();
            let before = own_switches();
            let begin = Instant::now();
            let (mut sleeps, mut wakes, mut done) = (0, 0, 0_u64);
            loop {
                done += 1;
                let last = !goes_on(done, begin);
                let slot = &shared.slots[(done % 2) as usize];
                slot.store(2 * done + u64::from(last), Ordering::Relaxed);
                wakes += u64::from(shared.full.post());
                work(loops);
                sleeps += u64::from(shared.empty.wait());
                work(loops);
                if last {
                    break;
                }
            }
            pinned.map(|()| (done, sleeps, wakes, begin.elapsed().as_secs_f64(), since(before)))
        });
        let consumer = scope.spawn(|| {
            let pinned = vcpus::pin(pins, 1);
            start.wait();
            let before = own_switches();
            let (mut sleeps, mut wakes, mut taken, mut in_order) = (0, 0, 0_u64, true);
            loop {
                sleeps += u64::from(shared.full.wait());
                taken += 1;
                let item = shared.slots[(taken % 2) as usize].load(Ordering::Relaxed);
                in_order &= item / 2 == taken;
                let last = item % 2 == 1;
                work(loops);
                wakes += u64::from(shared.empty.post());
                if last {
                    break;
                }
            }
            pinned.map(|()| (taken, sleeps, wakes, in_order, since(before)))
        });
        let before = CounterSnapshot::now();
        start.wait();
        let produced = producer.join().expect("the producer does not panic")?;
        let consumed = consumer.join().expect("the consumer does not panic")?;
        let costs = before.costs();
        Ok(SemRepeat {
            items: produced.0,
            elapsed_s: produced.3,
            sleeps: produced.1 + consumed.1,
            wakes: produced.2 + consumed.2,
            own_switches: produced.4.zip(consumed.4).map(|(one, other)| one + other),
            in_order: consumed.3
                && produced.0 == consumed.0
                && (shared.full.value(), shared.empty.value()) == (0, 1),
            costs,
        })
    })
}

/// Starts the low-priority threads, one pinned to each vCPU; they end with `stop`.
fn start_hogs<'scope>(
    scope: &'scope Scope<'scope, '_>,
    kind: &'scope str,
    stop: &'scope AtomicBool,
) -> Result<(), ProbeError> {
    if kind == "none" {
        return Ok(());
    }
    let vcpus = vcpus::allowed();
    let (ready, started) = mpsc::channel();
    for thread in 0..vcpus.len() {
        let (vcpus, ready) = (vcpus.clone(), ready.clone());
        scope.spawn(move || {
            let lowered = vcpus::pin(&vcpus, thread).and_then(|()| lower_priority(kind));
            // The receiver waits for every hog, so it is there.
            let _ = ready.send(lowered);
            drop(ready);
            while !stop.load(Ordering::Relaxed) {
                work(10_000);
            }
        });
    }
    drop(ready);
    started.into_iter().collect()
}

/// Gives the calling thread the lowest priority of a kind.
fn lower_priority(kind: &str) -> Result<(), ProbeError> {
    if kind == "nice" {
        let thread = rustix::thread::gettid();
        return rustix::process::setpriority_process(Some(thread), 19).tried("set nice 19");
    }
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle)
        .map_err(|error| ProbeError::Refused(format!("Cannot set SCHED_IDLE: {error:?}")))
}

/// Context switches of the calling thread since it had `before`.
fn since(before: Option<(u64, u64)>) -> Option<u64> {
    let ((voluntary, forced), now) = (before?, own_switches()?);
    Some(now.0 - voluntary + now.1 - forced)
}
