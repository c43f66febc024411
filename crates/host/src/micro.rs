//! What handing over, waking and switching cost on this machine: measured between
//! pinned threads in a second or two, without a VM. And locks and barriers between
//! such threads, to hold the simulator to.
//!
//! Nothing here needs rights. A busy machine is measured as busy as it is: each
//! number comes with the spread of its repetitions.

use std::hint::{black_box, spin_loop};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use topology::PcpuSet;

use crate::affinity::{SetAffinityError, set_thread_affinity};

/// Repetitions of each measurement ...
const REPEATS: usize = 15;
/// ... and the time after which none is begun: on a busy machine each takes long.
const MOST: Duration = Duration::from_millis(500);

/// Error type for measurements.
#[derive(Debug, thiserror::Error)]
pub enum MicroError {
    /// A thread can't be pinned.
    #[error(transparent)]
    Affinity(#[from] SetAffinityError),
    /// Two threads can't talk.
    #[error("Cannot connect two threads")]
    Pipe(#[from] io::Error),
    /// Fewer than two pCPUs.
    #[error("Needs two pCPUs to run on, there is {0}")]
    Pcpus(usize),
}

/// A measured time, ns: one repetition in ten was below `low`, half below `median`, one
/// in ten above `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredTime {
    /// One repetition in ten was below.
    pub low: f64,
    /// Half were.
    pub median: f64,
    /// One in ten was above.
    pub high: f64,
}

impl MeasuredTime {
    /// Of some repetitions.
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = values.len().saturating_sub(1);
            values.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
        };
        Self { low: at(0.1), median: at(0.5), high: at(0.9) }
    }

    /// Each of it through `map`.
    #[must_use]
    pub fn map(self, map: impl Fn(f64) -> f64) -> Self {
        Self { low: map(self.low), median: map(self.median), high: map(self.high) }
    }
}

/// What things cost here, ns; and how pCPUs slow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MicroBenchmarks {
    /// From one thread's writing a word to another's seeing it, on another pCPU.
    pub handoff: MeasuredTime,
    /// Waking a thread and switching to it on the same pCPU.
    pub wake_and_switch: MeasuredTime,
    /// The same on another pCPU, which idles.
    pub wake_idle: MeasuredTime,
    /// How long one of two busy threads runs before the other has its turn.
    pub turn: MeasuredTime,
    /// Speed of computing while the other pCPU computes, of that alone: below 1 where
    /// the two are threads of one core, whether the machine says so or not.
    pub beside_work: MeasuredTime,
    /// The same while the other pCPU spins.
    pub beside_spin: MeasuredTime,
}

fn pin(pcpu: u32) -> Result<(), SetAffinityError> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    set_thread_affinity(tid, &[pcpu].into_iter().collect::<PcpuSet>())
}

/// Measures between two of `pcpus`.
///
/// # Errors
/// Fewer than two pCPUs; threads that can't be pinned.
pub fn measure(pcpus: &PcpuSet) -> Result<MicroBenchmarks, MicroError> {
    // A thread of its own, as it is pinned here and there.
    let measuring = || measure_pinned(pcpus);
    thread::scope(|scope| scope.spawn(measuring).join().expect("it does not panic"))
}

fn measure_pinned(pcpus: &PcpuSet) -> Result<MicroBenchmarks, MicroError> {
    let mut all = pcpus.iter();
    let (Some(one), Some(other)) = (all.next(), all.next()) else {
        return Err(MicroError::Pcpus(pcpus.len()));
    };
    Ok(MicroBenchmarks {
        handoff: handoff(one, other)?,
        wake_and_switch: messages(one, one)?,
        wake_idle: messages(one, other)?,
        turn: turn(one)?,
        beside_work: beside(one, other, || work(1_000))?,
        beside_spin: beside(one, other, || (0..1_000).for_each(|_| spin_loop()))?,
    })
}

/// How fast `one` computes while `other` does something, of its speed alone.
fn beside(one: u32, other: u32, does: impl Fn() + Sync) -> Result<MeasuredTime, MicroError> {
    /// Some tenths of a millisecond.
    const STEPS: u64 = 300_000;
    pin(one)?;
    let once = || {
        let started = Instant::now();
        work(STEPS);
        Ok(started.elapsed().as_secs_f64())
    };
    let alone = repeated(once)?;
    let end = AtomicBool::new(false);
    let together = thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let pinned = pin(other);
            while !end.load(Ordering::Relaxed) {
                does();
            }
            pinned
        });
        let together = repeated(once);
        end.store(true, Ordering::Release);
        busy.join().expect("it does not panic")?;
        together
    })?;
    // What took longest was slowest; faster than alone is noise.
    let speed = |seconds: f64| (alone.median / seconds).clamp(0.01, 1.0);
    Ok(MeasuredTime {
        low: speed(together.high),
        median: speed(together.median),
        high: speed(together.low),
    })
}

/// What `once` takes, again and again, ns.
fn repeated(mut once: impl FnMut() -> Result<f64, MicroError>) -> Result<MeasuredTime, MicroError> {
    let began = Instant::now();
    let mut repeats = Vec::with_capacity(REPEATS);
    while repeats.is_empty() || (repeats.len() < REPEATS && began.elapsed() < MOST) {
        repeats.push(once()?);
    }
    Ok(MeasuredTime::of(repeats))
}

/// Two threads that hand one word to and fro.
fn handoff(one: u32, other: u32) -> Result<MeasuredTime, MicroError> {
    const ROUNDS: u32 = 2_000;
    /// Nobody answers any more.
    const END: u32 = u32::MAX;
    // An odd number asks, the next even one answers.
    let word = AtomicU32::new(0);
    thread::scope(|scope| {
        let answers = scope.spawn(|| {
            let pinned = pin(other);
            loop {
                match word.load(Ordering::Acquire) {
                    END => return pinned,
                    asked if asked % 2 == 1 => word.store(asked + 1, Ordering::Release),
                    _ => spin_loop(),
                }
            }
        });
        let pinned = pin(one);
        let mut asked = 1;
        let measured = repeated(|| {
            let started = Instant::now();
            for _ in 0..ROUNDS {
                word.store(asked, Ordering::Release);
                while word.load(Ordering::Acquire) == asked {
                    spin_loop();
                }
                asked += 2;
            }
            Ok(started.elapsed().as_secs_f64() * 1e9 / f64::from(2 * ROUNDS))
        });
        word.store(END, Ordering::Release);
        answers.join().expect("it does not panic")?;
        pinned?;
        measured
    })
}

/// Two threads that send a byte to and fro, each sleeping until it comes.
fn messages(one: u32, other: u32) -> Result<MeasuredTime, MicroError> {
    const ROUNDS: u32 = 100;
    let (mut near, mut far) = UnixStream::pair()?;
    thread::scope(|scope| {
        let answers = scope.spawn(move || -> Result<(), MicroError> {
            pin(other)?;
            let mut byte = [0];
            while far.read(&mut byte)? > 0 {
                far.write_all(&byte)?;
            }
            Ok(())
        });
        let mut byte = [1];
        let measured = pin(one).map_err(MicroError::from).and_then(|()| {
            repeated(|| {
                let started = Instant::now();
                for _ in 0..ROUNDS {
                    near.write_all(&byte)?;
                    near.read_exact(&mut byte)?;
                }
                Ok(started.elapsed().as_secs_f64() * 1e9 / f64::from(2 * ROUNDS))
            })
        });
        drop(near);
        answers.join().expect("it does not panic")?;
        measured
    })
}

/// Two threads that never sleep, on one pCPU: how long one runs before it notices that
/// it did not.
fn turn(pcpu: u32) -> Result<MeasuredTime, MicroError> {
    /// What is shorter was an interrupt.
    const GAP: Duration = Duration::from_micros(300);
    const LENGTH: Duration = Duration::from_millis(400);
    let end = Instant::now() + LENGTH;
    let busy = || -> Result<Vec<f64>, MicroError> {
        pin(pcpu)?;
        let (mut turns, mut last) = (Vec::new(), Instant::now());
        let mut begun = None;
        loop {
            let now = Instant::now();
            if now.duration_since(last) > GAP {
                // Who lost its pCPU at once had no turn.
                if let Some(begun) = begun.filter(|begun| last > *begun) {
                    turns.push(last.duration_since(begun).as_secs_f64() * 1e9);
                }
                begun = Some(now);
            }
            last = now;
            if now > end {
                return Ok(turns);
            }
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(busy);
        let mut turns = busy()?;
        turns.extend(other.join().expect("it does not panic")?);
        if turns.is_empty() {
            turns.push(LENGTH.as_secs_f64() * 1e9);
        }
        Ok(MeasuredTime::of(turns))
    })
}

/// Steps of work that take 1 us alone.
fn steps_a_us() -> f64 {
    const STEPS: u64 = 200_000;
    let best = (0..REPEATS)
        .map(|_| {
            let started = Instant::now();
            work(STEPS);
            started.elapsed().as_secs_f64()
        })
        .fold(f64::MAX, f64::min);
    STEPS as f64 / (best * 1e6)
}

fn work(steps: u64) {
    let mut value = 1u64;
    for _ in 0..steps {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// What threads that share pCPUs do again and again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SharingTask {
    /// Work, then take a ticket lock and hold it, us each.
    TicketLock {
        /// Without the lock.
        work_us: f64,
        /// With it.
        hold_us: f64,
    },
    /// Work, then spin until all others have, us.
    Barrier {
        /// Work of a step.
        work_us: f64,
    },
}

/// How often a second threads pinned to `pcpus`, `each` to every one, do it: locks
/// taken, or steps of all together. One number for each repetition.
///
/// # Errors
/// Threads that can't be pinned.
pub fn rates(
    shared: SharingTask,
    pcpus: &[u32],
    each: u32,
    length: Duration,
    repeats: u32,
) -> Result<Vec<f64>, MicroError> {
    let scale = steps_a_us();
    let steps = |us: f64| (us * scale) as u64;
    (0..repeats)
        .map(|_| match shared {
            SharingTask::TicketLock { work_us, hold_us } => {
                ticket_lock(pcpus, each, steps(work_us), steps(hold_us), length)
            }
            SharingTask::Barrier { work_us } => barrier(pcpus, each, steps(work_us), length),
        })
        .collect()
}

/// Time that is not counted.
const WARMUP: Duration = Duration::from_millis(150);

fn wait(length: Duration) {
    let started = Instant::now();
    while let Some(left) = length.checked_sub(started.elapsed()) {
        thread::park_timeout(left);
    }
}

/// Runs `each` threads on every pCPU until the time is over; the sum of what they did.
fn together(
    pcpus: &[u32],
    each: u32,
    length: Duration,
    done: &AtomicU64,
    turn: impl Fn(&AtomicBool) -> bool + Sync,
) -> Result<f64, MicroError> {
    let (begin, end) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let threads: Vec<_> = pcpus
            .iter()
            .flat_map(|pcpu| (0..each).map(move |_| *pcpu))
            .map(|pcpu| {
                let (begin, end, turn) = (&begin, &end, &turn);
                scope.spawn(move || -> Result<(), SetAffinityError> {
                    let pinned = pin(pcpu);
                    while !begin.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    while turn(end) {}
                    pinned
                })
            })
            .collect();
        begin.store(true, Ordering::Release);
        // How it goes on is asked, not how it begins: a fair lock lets pass many before
        // a waiter first loses its pCPU.
        wait(WARMUP);
        let started = Instant::now();
        let before = done.load(Ordering::Relaxed);
        wait(length);
        let count = done.load(Ordering::Relaxed) - before;
        let took = started.elapsed().as_secs_f64();
        end.store(true, Ordering::Release);
        for thread in threads {
            thread.join().expect("it does not panic")?;
        }
        Ok(count as f64 / took)
    })
}

fn ticket_lock(
    pcpus: &[u32],
    each: u32,
    outside: u64,
    inside: u64,
    length: Duration,
) -> Result<f64, MicroError> {
    let (next, serving, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0));
    together(pcpus, each, length, &done, |end| {
        work(outside);
        let ticket = next.fetch_add(1, Ordering::Relaxed);
        while serving.load(Ordering::Acquire) != ticket {
            spin_loop();
        }
        work(inside);
        done.fetch_add(1, Ordering::Relaxed);
        serving.store(ticket.wrapping_add(1), Ordering::Release);
        !end.load(Ordering::Relaxed)
    })
}

fn barrier(pcpus: &[u32], each: u32, steps: u64, length: Duration) -> Result<f64, MicroError> {
    let parties = pcpus.len() as u32 * each;
    let (there, step, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0));
    together(pcpus, each, length, &done, |end| {
        work(steps);
        let now = step.load(Ordering::Acquire);
        if there.fetch_add(1, Ordering::AcqRel) + 1 == parties {
            there.store(0, Ordering::Release);
            done.fetch_add(1, Ordering::Relaxed);
            step.store(now.wrapping_add(1), Ordering::Release);
        } else {
            // At the end nobody comes any more.
            while step.load(Ordering::Acquire) == now && !end.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        !end.load(Ordering::Relaxed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Option<[u32; 2]> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let allowed = crate::affinity::thread_affinity(tid).ok()?;
        let mut all = allowed.iter();
        Some([all.next()?, all.next()?])
    }

    #[test]
    fn what_is_measured_is_time() {
        let Some(pcpus) = two() else { return };
        let found = measure(&pcpus.into_iter().collect()).unwrap();
        let times = [found.handoff, found.wake_and_switch, found.wake_idle, found.turn];
        let speeds = [found.beside_work, found.beside_spin];
        assert!(speeds.iter().all(|speed| speed.high <= 1.0), "{found:?}");
        for spread in times.into_iter().chain(speeds) {
            assert!(spread.low > 0.0 && spread.low <= spread.median, "{found:?}");
            assert!(spread.median <= spread.high && spread.high.is_finite(), "{found:?}");
        }
    }

    #[test]
    fn threads_that_share_pcpus_get_on() {
        let Some(pcpus) = two() else { return };
        let length = Duration::from_millis(60);
        for each in [1, 2] {
            for shared in [
                SharingTask::TicketLock { work_us: 5.0, hold_us: 1.0 },
                SharingTask::Barrier { work_us: 5.0 },
            ] {
                let rates = rates(shared, &pcpus, each, length, 2).unwrap();
                assert!(rates.iter().all(|rate| rate.is_finite()), "{shared:?}: {rates:?}");
                assert_eq!(rates.len(), 2);
            }
        }
    }

    #[test]
    fn one_pcpu_is_too_few() {
        let one = measure(&[0].into_iter().collect());
        assert!(matches!(one, Err(MicroError::Pcpus(1))), "{one:?}");
    }
}
