//! The operations: those that every architecture has.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use thinguest::{
    Calls, InjectedFault, Item, MAX_FAR_NODES, MAX_IO_BYTES, MAX_N, Measurement, Operation, Skip,
    Wait,
};

use crate::machine::clock::{start_steal_time, steal_ns};
use crate::machine::interrupts;
use crate::machine::operations::Machine;
use crate::metal::PAGE_BYTES;
use crate::metal::instruction::{self, clock, has_mwait, ticks};
use crate::metal::memory::Pool;
use crate::metal::vcpu::{MAX_VCPUS, VCPUS, Vcpu};
use crate::sampler::Sampler;
use crate::vcpus::{self, Job, Style, wait_until};
use crate::virtio::{self, Ending};
use crate::{files, items};

/// From setting the timer to its end.
const TIMER_CYCLES: u64 = 200_000;
/// The same where KVM shall not poll until then: it does for 200 us by default, on arm64
/// for 500 (`KVM_HALT_POLL_NS_DEFAULT`). Where the clock's rate is not known it is taken
/// for 3 GHz.
const SLEEP_US: u64 = 600;
const UNKNOWN_KHZ: u64 = 3_000_000;
/// What a vCPU that is about to halt may take until it does: an exit or two of the
/// slowest host.
const SETTLE_CYCLES: u64 = 200_000;
const LARGE_PAGE_BYTES: u64 = 2 << 20;
const HUGE_PAGE_BYTES: u64 = 1 << 30;
/// How long it is looked what the host takes: it tells at each entry of the guest.
const STEAL_CYCLES: u64 = 1 << 22;
/// The memory of [`Operation::Memory`], and a cache line of it, in words.
const CHASE_WORDS: u64 = 8 << 17;
const LINE_WORDS: usize = 8;

/// What the operations need.
#[derive(Debug)]
pub(crate) struct Bench {
    /// Those that started.
    pub(crate) vcpus: usize,
    /// Wait for a byte before each operation and after it.
    pub(crate) handshake: bool,
    /// What goes wrong in the first operation.
    pub(crate) provoked: Option<InjectedFault>,
    pub(crate) machine: Machine,
    pub(crate) pool: Option<Pool>,
    /// That of the other nodes, if there are several.
    pub(crate) far: [Option<Pool>; MAX_FAR_NODES],
    /// The clock's rate.
    pub(crate) khz: u64,
    pub(crate) samples: Option<&'static mut [u64; MAX_N as usize]>,
    /// What is written to the null device and read from it.
    pub(crate) io: Option<&'static mut [u8; MAX_IO_BYTES as usize]>,
    pub(crate) calls: Calls,
    pub(crate) wait: Wait,
}

fn counted(of: &AtomicU64) -> u64 {
    of.load(Ordering::SeqCst)
}

fn settle() {
    let begin = clock();
    while clock() - begin < ticks(SETTLE_CYCLES) {}
}

impl Bench {
    /// Measures one operation.
    pub(crate) fn measure(&mut self, item: Item) -> Result<Measurement, Skip> {
        if self.vcpus < item.operation.vcpus() as usize {
            return Err(Skip::TooFewVcpus);
        }
        let samples = self.samples.as_deref_mut().ok_or(Skip::NoMemory)?;
        let provoked = self.provoked.take();
        let sampler = Sampler { item, handshake: self.handshake, provoked, samples };
        let done = match item.operation {
            Operation::Nothing => sampler.timed(nothing),
            Operation::Call => sampler.timed(instruction::empty_call),
            Operation::Syscall => syscall(sampler),
            Operation::SelfIpi => self_ipi(sampler),
            Operation::IrqWindow if !cfg!(target_arch = "x86_64") => Err(Skip::OtherArch),
            Operation::IrqWindow => irq_window(sampler),
            Operation::TlbFlush => sampler.timed(instruction::flush_tlb),
            Operation::PageFill4k => fill(sampler, self.pool.as_mut(), PAGE_BYTES),
            Operation::PageFill2m => fill(sampler, self.pool.as_mut(), LARGE_PAGE_BYTES),
            Operation::PageFill1g => fill(sampler, self.pool.as_mut(), HUGE_PAGE_BYTES),
            Operation::Memory => {
                let words = chase(self.pool.as_mut()).ok_or(Skip::NoMemory)?;
                let mut line = 0;
                sampler.timed(|| line = follow(words, line))
            }
            Operation::MemoryFar => chase_far(sampler, &mut self.far),
            Operation::Steal if !start_steal_time() => Err(Skip::NotExposed),
            Operation::Steal => steal(sampler, self.khz),
            Operation::TimerSpin => {
                instruction::interrupts_on();
                timer(sampler, ticks(TIMER_CYCLES), spin_until)
            }
            Operation::TimerHalt => timer(sampler, ticks(TIMER_CYCLES), halt_until),
            Operation::TimerSleep => {
                let khz = if self.khz == 0 { UNKNOWN_KHZ } else { self.khz };
                timer(sampler, khz * SLEEP_US / 1000, halt_until)
            }
            Operation::IpiSpin => interrupt(sampler, 2, Job::Spin, || interrupts::send(1)),
            Operation::IpiHalt => interrupt(sampler, 2, Job::Halt, || interrupts::send(1)),
            Operation::IpiBroadcast => {
                let others = self.vcpus - 1;
                let send = || interrupts::send_to_others(others);
                interrupt(sampler, self.vcpus, Job::Halt, send)
            }
            Operation::Shootdown if instruction::BROADCASTS_FLUSHES => {
                if !vcpus::give(self.vcpus, Job::Spin) {
                    return Err(Skip::NoAnswer);
                }
                sampler.timed(instruction::shoot_down)
            }
            Operation::Shootdown => {
                let others = self.vcpus - 1;
                let send = || interrupts::shoot_down(others);
                interrupt(sampler, self.vcpus, Job::Spin, send)
            }
            Operation::MwaitWake if !has_mwait() => Err(Skip::NotExposed),
            Operation::MwaitWake => semaphore(sampler, Style::Mwait),
            Operation::CacheLine => cache_line(sampler, self.vcpus),
            Operation::SemSpin => semaphore(sampler, Style::Spin),
            Operation::SemIpi => semaphore(sampler, Style::SpinAndIpi),
            Operation::SemHalt => semaphore(sampler, Style::Halt),
            Operation::SemLazy => semaphore(sampler, Style::Lazy),
            Operation::BlkPoll => virtio::block(sampler, Ending::Poll),
            Operation::BlkIrq => virtio::block(sampler, Ending::Interrupt),
            Operation::NetPoll => virtio::net(sampler, Ending::Poll),
            Operation::NetIrq => virtio::net(sampler, Ending::Interrupt),
            Operation::NullIo => null_io(sampler, self.io.as_deref_mut(), self.calls),
            Operation::Items if self.wait == Wait::Mwait && !has_mwait() => Err(Skip::NotExposed),
            Operation::Items => produce(sampler, self.wait.into()),
            _ => self.machine.measure(sampler),
        };
        instruction::interrupts_off();
        if item.operation.vcpus() > 1 && !vcpus::give_up(self.vcpus) {
            return Err(Skip::NoAnswer);
        }
        done
    }
}

fn nothing() {}

fn syscall(sampler: Sampler<'_>) -> Result<Measurement, Skip> {
    let calls = sampler.item.batch;
    sampler.samples(1, || {
        let begin = clock();
        instruction::system_calls(calls);
        Ok(clock() - begin)
    })
}

fn self_ipi(sampler: Sampler<'_>) -> Result<Measurement, Skip> {
    instruction::interrupts_on();
    sampler.timed_until(1, || {
        let before = counted(&VCPUS[0].ipis);
        interrupts::send_to_self();
        wait_until(|| counted(&VCPUS[0].ipis) != before)
    })
}

/// An IPI to itself that comes when interrupts are let in.
fn irq_window(sampler: Sampler<'_>) -> Result<Measurement, Skip> {
    sampler.timed_until(1, || {
        let before = counted(&VCPUS[0].ipis);
        instruction::interrupts_off();
        interrupts::send_to_self();
        instruction::interrupts_on();
        wait_until(|| counted(&VCPUS[0].ipis) != before)
    })
}

/// What the host took, in ticks of a clock of so many kHz.
fn steal(sampler: Sampler<'_>, khz: u64) -> Result<Measurement, Skip> {
    sampler.samples(1, || {
        let before = steal_ns();
        let begin = clock();
        while clock() - begin < ticks(STEAL_CYCLES) {}
        Ok(((u128::from(steal_ns() - before) * u128::from(khz)) / 1_000_000) as u64)
    })
}

/// Touches memory that was never touched, a page of `bytes` after the other.
fn fill(sampler: Sampler<'_>, pool: Option<&mut Pool>, bytes: u64) -> Result<Measurement, Skip> {
    let pages = u64::from(sampler.item.n) + u64::from(sampler.item.warmup);
    let words = pool.and_then(|pool| pool.words(pages * bytes / 8, bytes));
    let mut pages = words.ok_or(Skip::NoMemory)?.chunks_exact_mut(bytes as usize / 8);
    sampler.samples(1, || {
        let page = pages.next().ok_or(Skip::NoMemory)?;
        let begin = clock();
        *black_box(&mut page[0]) = 1;
        Ok(clock() - begin)
    })
}

/// A way through memory that `pool` has still: each line has the number of the next.
fn chase(pool: Option<&mut Pool>) -> Option<&'static [u64]> {
    let words = pool?.words(CHASE_WORDS, LARGE_PAGE_BYTES)?;
    let lines = words.len() / LINE_WORDS;
    for line in 0..lines {
        words[line * LINE_WORDS] = line as u64;
    }
    // Sattolo: one cycle through all lines. The numbers are xorshift64's.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for line in (1..lines).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let other = random as usize % line;
        words.swap(line * LINE_WORDS, other * LINE_WORDS);
    }
    Some(words)
}

/// The line behind this one.
#[inline(always)]
fn follow(words: &[u64], line: usize) -> usize {
    black_box(words[line * LINE_WORDS] as usize)
}

/// Goes through the memory of each of the other nodes in turn, a sample each.
fn chase_far(sampler: Sampler<'_>, far: &mut [Option<Pool>]) -> Result<Measurement, Skip> {
    if far.iter().all(Option::is_none) {
        return Err(Skip::NotExposed);
    }
    let mut ways: [(&[u64], usize); MAX_FAR_NODES] = [(&[], 0); MAX_FAR_NODES];
    let mut count = 0;
    for pool in far.iter_mut().flatten() {
        ways[count].0 = chase(Some(pool)).ok_or(Skip::NoMemory)?;
        count += 1;
    }
    let batch = sampler.item.batch;
    let mut turn = 0;
    sampler.samples(1, || {
        let (words, at) = &mut ways[turn % count];
        turn += 1;
        let mut line = *at;
        let begin = clock();
        for _ in 0..batch {
            line = follow(words, line);
        }
        let end = clock();
        *at = line;
        Ok(end - begin)
    })
}

/// Spins until an interrupt's handler has made `fired` true, or gives it up.
fn spin_until(fired: &mut dyn FnMut() -> bool) -> bool {
    wait_until(fired)
}

/// Halts until an interrupt's handler has made `fired` true.
fn halt_until(fired: &mut dyn FnMut() -> bool) -> bool {
    instruction::interrupts_off();
    while !fired() {
        instruction::halt();
        instruction::interrupts_off();
    }
    true
}

/// How late the interrupt of a timer of so many `ticks` comes to who waits in `wait`.
fn timer(
    sampler: Sampler<'_>,
    ticks: u64,
    wait: impl Fn(&mut dyn FnMut() -> bool) -> bool,
) -> Result<Measurement, Skip> {
    sampler.samples(1, || {
        let before = counted(&VCPUS[0].timers);
        let deadline = interrupts::set_timer(ticks);
        let fired = wait(&mut || counted(&VCPUS[0].timers) != before);
        // A timer that is not exact may come early.
        if fired { Ok(clock().saturating_sub(deadline)) } else { Err(Skip::NoAnswer) }
    })
}

/// An interrupt that `send` sends to the vCPUs `1..count`, until all handlers have run.
fn interrupt(
    sampler: Sampler<'_>,
    count: usize,
    job: Job,
    send: impl Fn(),
) -> Result<Measurement, Skip> {
    if !vcpus::give(count, job) {
        return Err(Skip::NoAnswer);
    }
    let others = &VCPUS[1..count];
    let handled = || others.iter().map(|vcpu| counted(&vcpu.ipis)).sum::<u64>();
    let mut hlts = [0; MAX_VCPUS];
    sampler.samples(count, || {
        // One that has handled the last interrupt may not have come to its next HLT.
        let halts = |(vcpu, last): (&Vcpu, &u64)| counted(&vcpu.hlts) > *last;
        if job == Job::Halt && !wait_until(|| others.iter().zip(&hlts).all(halts)) {
            return Err(Skip::NoAnswer);
        }
        settle();
        for (vcpu, last) in others.iter().zip(&mut hlts) {
            *last = counted(&vcpu.hlts);
        }
        let expected = handled() + others.len() as u64;
        let begin = clock();
        send();
        let came = wait_until(|| handled() >= expected);
        if came { Ok(clock() - begin) } else { Err(Skip::NoAnswer) }
    })
}

fn null_io(
    sampler: Sampler<'_>,
    buffer: Option<&mut [u8; MAX_IO_BYTES as usize]>,
    calls: Calls,
) -> Result<Measurement, Skip> {
    let buffer = buffer.ok_or(Skip::NoMemory)?;
    let Item { batch, work, .. } = sampler.item;
    sampler.samples(1, || {
        let begin = clock();
        let right = write_and_read(calls, batch, buffer, work as usize);
        let cycles = clock() - begin;
        if right == 2 * u64::from(batch) { Ok(cycles) } else { Err(Skip::Wrong) }
    })
}

fn produce(sampler: Sampler<'_>, style: Style) -> Result<Measurement, Skip> {
    let Item { batch, work, .. } = sampler.item;
    if !items::begin(style, work) {
        return Err(Skip::NoAnswer);
    }
    let done = sampler.timed_until(2, || items::produce(batch, style))?;
    if items::all_in_order() { Ok(done) } else { Err(Skip::Wrong) }
}

/// A line to each of the other vCPUs in turn, and back.
fn cache_line(sampler: Sampler<'_>, count: usize) -> Result<Measurement, Skip> {
    if !vcpus::give(count, Job::Return) {
        return Err(Skip::NoAnswer);
    }
    let mut to = 0;
    sampler.timed_until(count, || {
        to = to % (count - 1) + 1;
        vcpus::send_line(to)
    })
}

fn semaphore(sampler: Sampler<'_>, style: Style) -> Result<Measurement, Skip> {
    if !vcpus::begin_semaphore(style) {
        return Err(Skip::NoAnswer);
    }
    sampler.timed_until(2, || vcpus::round_trip(style))
}

/// Writes `size` bytes to the null device and reads as many from it, `count` times;
/// how many of the calls did what they should.
fn write_and_read(
    calls: Calls,
    count: u32,
    buffer: &mut [u8; MAX_IO_BYTES as usize],
    size: usize,
) -> u64 {
    let bytes = &mut buffer[..size];
    if calls == Calls::Ring3 {
        return instruction::null_io_from_ring_3(count, files::NULL, bytes);
    }
    let mut right = 0;
    for _ in 0..count {
        right += u64::from(files::write(files::NULL, bytes) == bytes.len() as i64);
        right += u64::from(files::read(files::NULL, bytes) == 0);
    }
    right
}
