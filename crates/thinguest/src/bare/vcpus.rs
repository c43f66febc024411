//! The other vCPUs: how they are started, get their jobs and wait for each other.

use core::sync::atomic::{AtomicU32, Ordering};

use thinguest::Wait;

use crate::machine::interrupts;
use crate::metal::instruction::{
    clock_unordered, halt, interrupts_off, interrupts_on, relax, ticks, wait_for_write,
};
use crate::metal::start::prepare_start;
use crate::metal::vcpu::VCPUS;

/// What is given up after: far more than any host takes to schedule a vCPU.
const PATIENCE_CYCLES: u64 = 1 << 34;
/// Looks between two readings of the clock.
const LOOKS: u32 = 1 << 10;
/// How long a vCPU of a lazy semaphore spins before it halts.
const LAZY_SPIN_CYCLES: u64 = 1 << 20;

/// What another vCPU does; 0 is one that was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Job {
    /// It sleeps until it gets another job.
    None = 1,
    /// It spins, with interrupts on.
    Spin = 2,
    /// It halts, again and again.
    Halt = 3,
    /// It answers on the semaphore.
    Answer = 4,
    /// It takes items: `items::consume`.
    Consume = 5,
    /// It sends a cache line back.
    Return = 6,
}

/// How a vCPU waits for the semaphore, and tells the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Style {
    /// Spins; tells nobody.
    Spin = 0,
    /// Spins; sends an IPI all the same.
    SpinAndIpi = 1,
    /// Halts at once; sends an IPI.
    Halt = 2,
    /// Spins a while, then halts; sends an IPI to a halted one only.
    Lazy = 3,
    /// Waits by MWAIT; tells nobody.
    Mwait = 4,
    /// Halts at once; sends an IPI to a halted one only.
    Idle = 5,
}

impl From<Wait> for Style {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Ipi => Self::SpinAndIpi,
            Wait::Halt => Self::Idle,
            Wait::Lazy => Self::Lazy,
            Wait::Mwait => Self::Mwait,
        }
    }
}

impl Style {
    /// The one that was given.
    pub(crate) fn now() -> Self {
        let all = [Self::Spin, Self::SpinAndIpi, Self::Halt, Self::Lazy, Self::Mwait, Self::Idle];
        let now = STYLE.0.load(Ordering::SeqCst);
        all.into_iter().find(|style| *style as u32 == now).unwrap_or(Self::Spin)
    }
}

/// A word with a cache line (and its neighbour) of its own.
#[repr(align(128))]
pub(crate) struct Line(pub(crate) AtomicU32);

/// Odd: the second vCPU's turn.
static TURN: Line = Line(AtomicU32::new(0));
/// Where the line is: with the vCPU of this number.
static SENT: Line = Line(AtomicU32::new(0));
static STYLE: Line = Line(AtomicU32::new(0));

/// Waits until `condition` holds; false if it doesn't for a long time.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let begin = clock_unordered();
    loop {
        for _ in 0..LOOKS {
            if condition() {
                return true;
            }
            relax();
        }
        if clock_unordered().wrapping_sub(begin) > ticks(PATIENCE_CYCLES) {
            return false;
        }
    }
}

/// What the vCPU is to do.
pub(crate) fn job(index: usize) -> u32 {
    VCPUS[index].job.load(Ordering::SeqCst)
}

/// Starts the vCPU `index`, which interrupts reach by `id`.
pub(crate) fn start(index: usize, id: u64) -> bool {
    VCPUS[index].job.store(Job::None as u32, Ordering::SeqCst);
    prepare_start(index);
    interrupts::start(id);
    wait_until(|| VCPUS[index].doing.load(Ordering::SeqCst) == Job::None as u32)
}

/// Sends the line back whenever it comes, as long as `job_then` is its job.
pub(crate) fn return_line(index: usize, job_then: u32) {
    interrupts_on();
    while job(index) == job_then {
        // What the first vCPU waits for is 0.
        if SENT.0.load(Ordering::SeqCst) == index as u32 {
            SENT.0.store(0, Ordering::SeqCst);
        }
        relax();
    }
}

/// Halts as long as `condition` holds, which whoever changes it follows with an IPI.
pub(crate) fn halt_while(index: usize, condition: impl Fn() -> bool) {
    let halted = &VCPUS[index].halted;
    loop {
        interrupts_off();
        halted.store(1, Ordering::SeqCst);
        if !condition() {
            halted.store(0, Ordering::SeqCst);
            interrupts_on();
            return;
        }
        halt();
        halted.store(0, Ordering::SeqCst);
    }
}

/// Gives the vCPUs `1..count` a job; false if one doesn't take it.
pub(crate) fn give(count: usize, what: Job) -> bool {
    (1..count).all(|index| {
        VCPUS[index].job.store(what as u32, Ordering::SeqCst);
        // What sleeps hears of it by an interrupt, what spins needs none.
        interrupts::send(index);
        wait_until(|| VCPUS[index].doing.load(Ordering::SeqCst) == what as u32)
    })
}

/// Takes the job of all others away; false if one doesn't let go of it.
pub(crate) fn give_up(count: usize) -> bool {
    give(count, Job::None)
}

/// Waits until `ours` holds, which follows a write to `word`; false if it doesn't for a
/// long time.
pub(crate) fn wait(index: usize, word: &AtomicU32, ours: impl Fn() -> bool, style: Style) -> bool {
    match style {
        Style::Spin | Style::SpinAndIpi => {
            interrupts_on();
            wait_until(ours)
        }
        Style::Halt | Style::Idle => {
            halt_while(index, || !ours());
            true
        }
        Style::Lazy => {
            interrupts_on();
            let begin = clock_unordered();
            while clock_unordered().wrapping_sub(begin) < ticks(LAZY_SPIN_CYCLES) {
                if ours() {
                    return true;
                }
                relax();
            }
            halt_while(index, || !ours());
            true
        }
        Style::Mwait => {
            interrupts_on();
            wait_until(|| {
                let value = word.load(Ordering::SeqCst);
                if !ours() {
                    wait_for_write(word, value);
                }
                ours()
            })
        }
    }
}

fn hand_over(to: usize, turn: u32, style: Style) {
    TURN.0.store(turn, Ordering::SeqCst);
    tell(to, style);
}

/// Wakes the vCPU `to`, which may wait for what was just written.
pub(crate) fn tell(to: usize, style: Style) {
    let wake = match style {
        Style::Spin | Style::Mwait => false,
        Style::SpinAndIpi | Style::Halt => true,
        Style::Lazy | Style::Idle => VCPUS[to].halted.load(Ordering::SeqCst) == 1,
    };
    if wake {
        interrupts::send(to);
    }
}

/// Sends the line to the vCPU `to`, and waits until it is back.
pub(crate) fn send_line(to: usize) -> bool {
    SENT.0.store(to as u32, Ordering::SeqCst);
    wait_until(|| SENT.0.load(Ordering::SeqCst) == 0)
}

/// Answers on the semaphore as long as `job_then` is its job.
pub(crate) fn answer(index: usize, job_then: u32) {
    let style = Style::now();
    loop {
        let ours = || TURN.0.load(Ordering::SeqCst) % 2 == 1 || job(index) != job_then;
        wait(index, &TURN.0, ours, style);
        if job(index) != job_then {
            return;
        }
        let turn = TURN.0.load(Ordering::SeqCst);
        if turn % 2 == 1 {
            hand_over(0, turn.wrapping_add(1), style);
        }
    }
}

/// Gives the second vCPU the job to answer in `style`.
pub(crate) fn begin_semaphore(style: Style) -> bool {
    TURN.0.store(0, Ordering::SeqCst);
    give_style(style);
    give(2, Job::Answer)
}

/// Says how vCPUs wait for each other from now on.
pub(crate) fn give_style(style: Style) {
    STYLE.0.store(style as u32, Ordering::SeqCst);
}

/// One round trip on the semaphore.
pub(crate) fn round_trip(style: Style) -> bool {
    let turn = TURN.0.load(Ordering::SeqCst).wrapping_add(1);
    hand_over(1, turn, style);
    let ours = || TURN.0.load(Ordering::SeqCst) == turn.wrapping_add(1);
    let answered = wait(0, &TURN.0, ours, style);
    interrupts_off();
    answered
}
