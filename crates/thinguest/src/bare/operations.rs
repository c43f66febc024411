//! The operations, and how a sample is taken.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use thinguest::{Calls, Done, Item, MAX_IO_BYTES, MAX_N, Operation, Provoked, Skip, Wait};

use crate::metal::instruction::{self, Caller, Msr, Port, clock, cpuid};
use crate::metal::kvm_clock::steal_ns;
use crate::metal::memory::{PAGE_BYTES, Pool, Register};
use crate::metal::vcpu::{IPI_VECTOR, MAX_VCPUS, SHOOTDOWN_VECTOR, VCPUS, Vcpu};
use crate::vcpus::{self, Job, Style, wait_until};
use crate::{apic, console, files, items};

/// From setting the timer to its end.
const TIMER_CYCLES: u64 = 200_000;
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
    pub(crate) provoked: Option<Provoked>,
    /// A register of a device in QEMU.
    pub(crate) mmio: Option<u64>,
    pub(crate) io_apic: Option<u64>,
    /// KVM's clock is there.
    pub(crate) pvclock: bool,
    pub(crate) pool: Option<Pool>,
    /// Memory of the last node, if there are several.
    pub(crate) far: Option<Pool>,
    /// The clock's rate.
    pub(crate) khz: u64,
    pub(crate) samples: Option<&'static mut [u64; MAX_N as usize]>,
    /// What is written to the null device and read from it.
    pub(crate) io: Option<&'static mut [u8; MAX_IO_BYTES as usize]>,
    pub(crate) calls: Calls,
    pub(crate) wait: Wait,
}

/// One sample under way.
struct Sampler<'a> {
    item: Item,
    handshake: bool,
    provoked: Option<Provoked>,
    samples: &'a mut [u64; MAX_N as usize],
}

/// A sum over the vCPUs.
fn total(of: impl Fn(usize) -> &'static AtomicU64, vcpus: usize) -> u64 {
    (0..vcpus).map(|index| of(index).load(Ordering::Relaxed)).sum()
}

impl Sampler<'_> {
    /// Takes the samples: `sample` does the operation once and returns its cycles.
    fn samples(
        self,
        vcpus: usize,
        mut sample: impl FnMut() -> Result<u64, Skip>,
    ) -> Result<Done, Skip> {
        let Item { operation, n, warmup, batch, .. } = self.item;
        for _ in 0..warmup {
            sample()?;
        }
        if self.handshake {
            console::write(&thinguest::Record::Ready(operation));
            console::wait_for_byte();
        }
        if let Some(what) = self.provoked {
            provoke(what);
        }
        let counts =
            || (total(|index| &VCPUS[index].sent, vcpus), total(|index| &VCPUS[index].hlts, vcpus));
        let before = counts();
        let taken = &mut self.samples[..n as usize];
        for slot in taken.iter_mut() {
            *slot = sample()?;
        }
        let after = counts();
        if self.handshake {
            console::write_end_mark();
            console::wait_for_byte();
        }
        taken.sort_unstable();
        let rank = |percent: usize| taken[(taken.len() * percent).div_ceil(100).max(1) - 1];
        Ok(Done {
            operation,
            n,
            warmup,
            batch,
            min: taken[0],
            median: rank(50),
            p99: rank(99),
            sum: taken.iter().sum(),
            ipis: after.0 - before.0,
            hlts: after.1 - before.1,
        })
    }

    /// Takes the time of the operation's batch of `once`.
    fn timed(self, mut once: impl FnMut()) -> Result<Done, Skip> {
        let batch = self.item.batch;
        self.samples(1, || {
            let begin = clock();
            for _ in 0..batch {
                once();
            }
            Ok(clock() - begin)
        })
    }

    /// Takes the time until `once` says whether it came to an end.
    fn timed_until(self, vcpus: usize, mut once: impl FnMut() -> bool) -> Result<Done, Skip> {
        self.samples(vcpus, || {
            let begin = clock();
            if once() { Ok(clock() - begin) } else { Err(Skip::NoAnswer) }
        })
    }
}

/// Fails as asked.
fn provoke(what: Provoked) {
    match what {
        Provoked::Stack => {
            black_box(endless(0));
        }
        Provoked::Null => instruction::write_null(),
        Provoked::Opcode => instruction::no_instruction(),
        Provoked::Panic => panic!("as asked"),
        Provoked::Hang => instruction::stop(),
    }
}

#[expect(unconditional_recursion, reason = "the stack is to run over")]
fn endless(depth: u64) -> u64 {
    endless(black_box(depth + 1)) + black_box(depth)
}

fn counted(of: &AtomicU64) -> u64 {
    of.load(Ordering::SeqCst)
}

fn settle() {
    let begin = clock();
    while clock() - begin < SETTLE_CYCLES {}
}

/// The instruction by which this processor calls its hypervisor.
fn caller() -> Caller {
    let [_, b, c, d] = cpuid(0, 0);
    // AuthenticAMD and HygonGenuine.
    let amd = [[0x6874_7541, 0x444d_4163, 0x6974_6e65], [0x6f67_7948, 0x656e_6975, 0x6e65_476e]];
    if amd.contains(&[b, c, d]) { Caller::Amd } else { Caller::Intel }
}

impl Bench {
    /// Measures one operation.
    pub(crate) fn measure(&mut self, item: Item) -> Result<Done, Skip> {
        if self.vcpus < item.operation.vcpus() as usize {
            return Err(Skip::TooFewVcpus);
        }
        let samples = self.samples.as_deref_mut().ok_or(Skip::NoMemory)?;
        let provoked = self.provoked.take();
        let sampler = Sampler { item, handshake: self.handshake, provoked, samples };
        let done = match item.operation {
            Operation::Nothing => sampler.timed(|| {}),
            Operation::Call => sampler.timed(instruction::empty_call),
            Operation::Syscall => sampler.samples(1, || {
                let begin = clock();
                instruction::system_calls(item.batch);
                Ok(clock() - begin)
            }),
            Operation::Tsc => sampler.timed(|| {
                black_box(instruction::clock_unordered());
            }),
            Operation::Pvclock if !self.pvclock => Err(Skip::NotExposed),
            Operation::Pvclock => sampler.timed(|| {
                black_box(crate::clock::read_pvclock());
            }),
            Operation::Cpuid => sampler.timed(|| {
                black_box(cpuid(0, 0));
            }),
            Operation::Hypercall if !crate::clock::is_kvm() => Err(Skip::NotExposed),
            Operation::Hypercall if !instruction::try_hypercall(caller()) => Err(Skip::Faulted),
            Operation::Hypercall => {
                let caller = caller();
                sampler.timed(|| instruction::hypercall(caller))
            }
            Operation::MsrRead => sampler.timed(|| {
                black_box(instruction::read_msr(Msr::ApicBase));
            }),
            Operation::MsrWrite => {
                let value = instruction::read_msr(Msr::ApicBase);
                sampler.timed(|| instruction::write_apic_base(value))
            }
            Operation::MsrDirect => sampler.timed(|| instruction::write_kernel_gs_base(1)),
            Operation::MsrCstate if !instruction::try_msr(Msr::CoreC3Residency) => {
                Err(Skip::Faulted)
            }
            Operation::MsrCstate => sampler.timed(|| {
                black_box(instruction::read_msr(Msr::CoreC3Residency));
            }),
            Operation::PioKernel => sampler.timed(|| {
                black_box(Port::PIC_LEVELS.read());
            }),
            Operation::PioQemu => sampler.timed(|| {
                black_box(console::SCRATCH.read());
            }),
            Operation::MmioKernel => read_register(sampler, self.io_apic),
            Operation::MmioQemu => read_register(sampler, self.mmio),
            Operation::ApicRead => sampler.timed(|| {
                black_box(apic::read_version());
            }),
            Operation::SelfIpi => {
                instruction::interrupts_on();
                sampler.timed_until(1, || {
                    let before = counted(&VCPUS[0].ipis);
                    apic::send_to_self(IPI_VECTOR);
                    wait_until(|| counted(&VCPUS[0].ipis) != before)
                })
            }
            Operation::Pause => sampler.timed(core::hint::spin_loop),
            Operation::TlbFlush => sampler.timed(instruction::flush_tlb),
            Operation::Invlpg => sampler.timed(|| instruction::invalidate(PAGE_BYTES)),
            Operation::PageFill4k => fill(sampler, self.pool.as_mut(), PAGE_BYTES),
            Operation::PageFill2m => fill(sampler, self.pool.as_mut(), LARGE_PAGE_BYTES),
            Operation::PageFill1g => fill(sampler, self.pool.as_mut(), HUGE_PAGE_BYTES),
            Operation::Memory => chase(sampler, self.pool.as_mut()),
            Operation::MemoryFar if self.far.is_none() => Err(Skip::NotExposed),
            Operation::MemoryFar => chase(sampler, self.far.as_mut()),
            Operation::Steal if !crate::clock::start_steal_time() => Err(Skip::NotExposed),
            Operation::Steal => {
                let khz = self.khz;
                sampler.samples(1, || {
                    let before = steal_ns();
                    let begin = clock();
                    while clock() - begin < STEAL_CYCLES {}
                    Ok(((u128::from(steal_ns() - before) * u128::from(khz)) / 1_000_000) as u64)
                })
            }
            Operation::TimerSpin => {
                instruction::interrupts_on();
                timer(sampler, |fired| wait_until(fired))
            }
            Operation::TimerHalt => timer(sampler, |fired| {
                instruction::interrupts_off();
                while !fired() {
                    instruction::halt();
                    instruction::interrupts_off();
                }
                true
            }),
            Operation::IpiSpin => interrupt(sampler, 2, Job::Spin, || apic::send(1, IPI_VECTOR)),
            Operation::IpiHalt => interrupt(sampler, 2, Job::Halt, || apic::send(1, IPI_VECTOR)),
            Operation::IpiBroadcast => {
                let others = self.vcpus - 1;
                let send = || apic::send_to_others(others, IPI_VECTOR);
                interrupt(sampler, self.vcpus, Job::Halt, send)
            }
            Operation::Shootdown => {
                let others = self.vcpus - 1;
                let send = || apic::send_to_others(others, SHOOTDOWN_VECTOR);
                interrupt(sampler, self.vcpus, Job::Spin, send)
            }
            Operation::MwaitWake if !has_mwait() => Err(Skip::NotExposed),
            Operation::MwaitWake => semaphore(sampler, Style::Mwait),
            Operation::CacheLine => cache_line(sampler, self.vcpus),
            Operation::SemSpin => semaphore(sampler, Style::Spin),
            Operation::SemIpi => semaphore(sampler, Style::SpinAndIpi),
            Operation::SemHalt => semaphore(sampler, Style::Halt),
            Operation::SemLazy => semaphore(sampler, Style::Lazy),
            Operation::NullIo => null_io(sampler, self.io.as_deref_mut(), self.calls),
            Operation::Items if self.wait == Wait::Mwait && !has_mwait() => Err(Skip::NotExposed),
            Operation::Items => produce(sampler, self.wait.into()),
        };
        instruction::interrupts_off();
        if item.operation.vcpus() > 1 && !vcpus::give_up(self.vcpus) {
            return Err(Skip::NoAnswer);
        }
        done
    }
}

fn read_register(sampler: Sampler<'_>, at: Option<u64>) -> Result<Done, Skip> {
    let register = at.and_then(Register::at).ok_or(Skip::NoDevice)?;
    sampler.timed(|| {
        black_box(register.read());
    })
}

/// Touches memory that was never touched, a page of `bytes` after the other.
fn fill(sampler: Sampler<'_>, pool: Option<&mut Pool>, bytes: u64) -> Result<Done, Skip> {
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

/// Goes through memory, each address found at the one before.
fn chase(sampler: Sampler<'_>, pool: Option<&mut Pool>) -> Result<Done, Skip> {
    let words = pool.and_then(|pool| pool.words(CHASE_WORDS, LARGE_PAGE_BYTES));
    let words = words.ok_or(Skip::NoMemory)?;
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
    let mut line = 0;
    sampler.timed(|| line = black_box(words[line * LINE_WORDS] as usize))
}

/// How late the timer's interrupt comes to who waits in `wait`.
fn timer(
    sampler: Sampler<'_>,
    wait: impl Fn(&mut dyn FnMut() -> bool) -> bool,
) -> Result<Done, Skip> {
    sampler.samples(1, || {
        let before = counted(&VCPUS[0].timers);
        let deadline = apic::set_timer(TIMER_CYCLES);
        let fired = wait(&mut || counted(&VCPUS[0].timers) != before);
        // A timer that is not exact may come early.
        if fired { Ok(clock().saturating_sub(deadline)) } else { Err(Skip::NoAnswer) }
    })
}

/// An interrupt that `send` sends to the vCPUs `1..count`, until all handlers have run.
fn interrupt(sampler: Sampler<'_>, count: usize, job: Job, send: impl Fn()) -> Result<Done, Skip> {
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

/// True if the guest is offered MONITOR and MWAIT.
fn has_mwait() -> bool {
    cpuid(1, 0)[2] & 1 << 3 != 0
}

fn null_io(
    sampler: Sampler<'_>,
    buffer: Option<&mut [u8; MAX_IO_BYTES as usize]>,
    calls: Calls,
) -> Result<Done, Skip> {
    let buffer = buffer.ok_or(Skip::NoMemory)?;
    let Item { batch, work, .. } = sampler.item;
    sampler.samples(1, || {
        let begin = clock();
        let right = files::null_io(calls, batch, buffer, work as usize);
        let cycles = clock() - begin;
        if right == 2 * u64::from(batch) { Ok(cycles) } else { Err(Skip::Wrong) }
    })
}

fn produce(sampler: Sampler<'_>, style: Style) -> Result<Done, Skip> {
    let Item { batch, work, .. } = sampler.item;
    if !items::begin(style, work) {
        return Err(Skip::NoAnswer);
    }
    let done = sampler.timed_until(2, || items::produce(batch, style))?;
    if items::all_in_order() { Ok(done) } else { Err(Skip::Wrong) }
}

/// A line to each of the other vCPUs in turn, and back.
fn cache_line(sampler: Sampler<'_>, count: usize) -> Result<Done, Skip> {
    if !vcpus::give(count, Job::Return) {
        return Err(Skip::NoAnswer);
    }
    let mut to = 0;
    sampler.timed_until(count, || {
        to = to % (count - 1) + 1;
        vcpus::send_line(to)
    })
}

fn semaphore(sampler: Sampler<'_>, style: Style) -> Result<Done, Skip> {
    if !vcpus::begin_semaphore(style) {
        return Err(Skip::NoAnswer);
    }
    sampler.timed_until(2, || vcpus::round_trip(style))
}
