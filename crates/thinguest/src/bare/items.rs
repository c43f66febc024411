//! A producer, the first vCPU, and a consumer, the second, hand over one item at a time
//! on two semaphores. The producer has twice the work, so the consumer waits at every
//! item: for a moment, by vmlab's own `vmlab-probe sem`.

use core::hint::black_box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::metal::vcpu::VCPUS;
use crate::vcpus::{self, Job, Line, Style};

/// Items that are there, and room for more.
static FULL: Line = Line(AtomicU32::new(0));
static EMPTY: Line = Line(AtomicU32::new(0));
/// Two items can be under way: each lies in the slot of its parity.
static SLOTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Items made; those taken in order.
static MADE: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Steps of work for an item.
static WORK: AtomicU32 = AtomicU32::new(0);

/// Computes for a time that grows with `steps` alone.
#[inline(never)]
fn work(steps: u32) {
    let mut value = black_box(1_u64);
    for _ in 0..steps {
        value = (value ^ (value >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    black_box(value);
}

fn post(semaphore: &AtomicU32, to: usize, style: Style) {
    semaphore.fetch_add(1, Ordering::SeqCst);
    vcpus::tell(to, style);
}

/// Takes one from `semaphore` once there is one; false if `given_up` says so first, or
/// nobody posts for a long time.
fn wait(
    semaphore: &AtomicU32,
    index: usize,
    style: Style,
    given_up: impl Fn() -> bool + Copy,
) -> bool {
    loop {
        let there = semaphore.load(Ordering::SeqCst);
        let less = there.wrapping_sub(1);
        let order = Ordering::SeqCst;
        if there > 0 && semaphore.compare_exchange(there, less, order, order).is_ok() {
            return true;
        }
        if given_up() {
            return false;
        }
        let comes = || semaphore.load(Ordering::SeqCst) > 0 || given_up();
        if there == 0 && !vcpus::wait(index, semaphore, comes, style) {
            return false;
        }
    }
}

/// Gives the second vCPU the consumer's job.
pub(crate) fn begin(style: Style, steps: u32) -> bool {
    FULL.0.store(0, Ordering::SeqCst);
    EMPTY.0.store(1, Ordering::SeqCst);
    MADE.store(0, Ordering::SeqCst);
    TAKEN.store(0, Ordering::SeqCst);
    WORK.store(steps, Ordering::SeqCst);
    vcpus::give_style(style);
    vcpus::give(2, Job::Consume)
}

/// Makes `count` items; false if the consumer does not take them.
pub(crate) fn produce(count: u32, style: Style) -> bool {
    let steps = WORK.load(Ordering::Relaxed);
    for _ in 0..count {
        let item = MADE.load(Ordering::Relaxed) + 1;
        MADE.store(item, Ordering::Relaxed);
        SLOTS[(item % 2) as usize].store(item, Ordering::SeqCst);
        post(&FULL.0, 1, style);
        work(steps);
        if !wait(&EMPTY.0, 0, style, || false) {
            return false;
        }
        work(steps);
    }
    true
}

/// True if every item was taken once and in order; the last may be under way.
pub(crate) fn all_in_order() -> bool {
    let (made, taken) = (MADE.load(Ordering::SeqCst), TAKEN.load(Ordering::SeqCst));
    taken == made || taken + 1 == made
}

/// The second vCPU takes items as long as `job` is its job.
pub(crate) fn consume(index: usize, job: u32) {
    let style = Style::now();
    let steps = WORK.load(Ordering::Relaxed);
    let given_up = || VCPUS[index].job.load(Ordering::SeqCst) != job;
    while !given_up() {
        if !wait(&FULL.0, index, style, given_up) {
            continue;
        }
        let due = TAKEN.load(Ordering::Relaxed) + 1;
        if SLOTS[(due % 2) as usize].load(Ordering::SeqCst) == due {
            TAKEN.store(due, Ordering::SeqCst);
        }
        work(steps);
        post(&EMPTY.0, 0, style);
    }
}
