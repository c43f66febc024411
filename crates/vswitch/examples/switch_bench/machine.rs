//! What the machine is like while a trial runs: how far its two pCPUs are from each
//! other, whether somebody else was there.

use std::fs;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where source and sink run, and where the switch does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pcpus {
    pub(crate) generator: usize,
    pub(crate) switch: usize,
    /// Where a second polling thread does, if there is a third.
    pub(crate) second: Option<usize>,
}

impl Pcpus {
    /// The first two or three on which this process may run.
    pub(crate) fn find() -> Result<Self, String> {
        let allowed = sched_getaffinity(None).map_err(|error| error.to_string())?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&pcpu| allowed.is_set(pcpu));
        match (usable.next(), usable.next()) {
            (Some(generator), Some(switch)) => {
                Ok(Self { generator, switch, second: usable.next() })
            }
            _ => Err("two pCPUs are needed: one to send and receive, one to switch".to_owned()),
        }
    }
}

/// Pins the calling thread.
pub(crate) fn pin(pcpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(pcpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// How long a word takes from one pCPU to the other and back. On virtual machines it
/// changes as the host moves their vCPUs, and results with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    Near,
    Far,
}

impl Distance {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// Below this the two share a cache (182 to 286 cycles were seen, and 1100 to 1250).
const NEAR: Duration = Duration::from_nanos(200);
const ROUND_TRIPS: u32 = 2000;

/// The median of some round trips' time, in ns.
pub(crate) fn round_trip_ns(pcpus: Pcpus) -> f64 {
    let word = AtomicU32::new(0);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Unpinned, the distance would be another one: it is told by its length.
            let _ = pin(pcpus.switch);
            for turn in 0..5 * ROUND_TRIPS {
                while word.load(Ordering::Acquire) != 2 * turn + 1 {
                    std::hint::spin_loop();
                }
                word.store(2 * turn + 2, Ordering::Release);
            }
        });
        for chunk in 0..5 {
            let began = Instant::now();
            for turn in chunk * ROUND_TRIPS..(chunk + 1) * ROUND_TRIPS {
                word.store(2 * turn + 1, Ordering::Release);
                while word.load(Ordering::Acquire) != 2 * turn + 2 {
                    std::hint::spin_loop();
                }
            }
            times.push(began.elapsed().as_nanos() as f64 / f64::from(ROUND_TRIPS));
        }
    });
    times.sort_by(f64::total_cmp);
    times[2]
}

/// How long the other pCPU's thread, which sleeps, needs to be woken by an event and to say
/// so, in ns: this often, with so much time between two. No switch that sleeps is faster.
/// With it the share of that time that one of both threads waited for its pCPU.
pub(crate) fn wakes_ns(pcpus: Pcpus, count: u32, apart: Duration) -> io::Result<(Vec<u32>, f64)> {
    let event = eventfd(0, EventfdFlags::empty())?;
    let word = AtomicU32::new(0);
    let mut times = Vec::new();
    let (all, before) = (Instant::now(), own_wait_ns());
    let waited = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| -> io::Result<u64> {
            pin(pcpus.switch)?;
            for turn in 1..=count {
                rustix::io::read(&event, &mut [0_u8; 8])?;
                word.store(turn, Ordering::Release);
            }
            Ok(own_wait_ns())
        });
        for turn in 1..=count {
            let due = Instant::now() + apart;
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            let began = Instant::now();
            rustix::io::write(&event, &1_u64.to_ne_bytes())?;
            while word.load(Ordering::Acquire) != turn && !sleeper.is_finished() {
                std::hint::spin_loop();
            }
            times.push(began.elapsed().as_nanos() as u32);
        }
        sleeper.join().expect("it does not panic")
    })?;
    let waited = waited.max(own_wait_ns() - before);
    Ok((times, waited as f64 / all.elapsed().as_nanos() as f64))
}

pub(crate) fn distance(pcpus: Pcpus) -> Distance {
    let near = round_trip_ns(pcpus) < NEAR.as_nanos() as f64;
    if near { Distance::Near } else { Distance::Far }
}

/// The time of a copy in the nearest cache, in ns: longer than its best, the pCPU was
/// shared or slower.
///
/// Both halves lie in one piece from the beginning of a page: where the heap would put them
/// differs with what was done before, and how fast a copy is differs with how far the two
/// are apart modulo 4 KiB.
pub(crate) fn hot_copy_ns() -> f64 {
    const BYTES: usize = 8 << 10;
    const PAGE: usize = 4 << 10;
    let mut area = vec![1_u8; PAGE + 2 * BYTES + PAGE / 2];
    let begin = area.as_ptr().align_offset(PAGE);
    let (from, to) = area[begin..].split_at_mut(BYTES);
    let to = &mut to[PAGE / 2..][..BYTES];
    let mut one = || {
        let began = Instant::now();
        for _ in 0..400 {
            to.copy_from_slice(black_box(from));
            black_box(&to);
        }
        began.elapsed().as_nanos() as f64 / 400.0
    };
    (0..5).map(|_| one()).fold(f64::INFINITY, f64::min)
}

/// How long a thread has waited for its pCPU while others had it, in ns.
fn waited_ns(schedstat: &str) -> u64 {
    let field = schedstat.split_whitespace().nth(1);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// How long all threads of a process have run, in ns.
pub(crate) fn ran_ns(pid: u32) -> u64 {
    stats(pid).map(|stat| ran_of(&stat)).sum()
}

fn ran_of(schedstat: &str) -> u64 {
    schedstat.split_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// What the scheduler says of each thread of a process.
fn stats(pid: u32) -> impl Iterator<Item = String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
}

/// Of the calling thread.
pub(crate) fn own_wait_ns() -> u64 {
    waited_ns(&fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default())
}

/// How long the polling threads of a process have waited, in ns, all together.
pub(crate) fn waits_ns(pid: u32) -> u64 {
    // They have run far longer than all others.
    let all: Vec<String> = stats(pid).collect();
    let longest_ns = all.iter().map(|stat| ran_of(stat)).max().unwrap_or(0);
    let polling = all.iter().filter(|stat| ran_of(stat) >= longest_ns / 2);
    polling.map(|stat| waited_ns(stat)).sum()
}

/// Has the scheduler prefer this process, and what it starts from now on, to others.
/// Where sessions are scheduled as groups, niceness counts inside of them alone.
pub(crate) fn prefer() {
    // Without the right to, trials during which others ran are dropped all the same.
    let _ = rustix::process::setpriority_process(None, -20);
    let _ = fs::write("/proc/self/autogroup", "-20");
}
