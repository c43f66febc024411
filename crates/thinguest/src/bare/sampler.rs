//! How a sample is taken.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use thinguest::{InjectedFault, Item, MAX_N, Measurement, Record, Skip};

use crate::console;
use crate::metal::instruction::{self, clock};
use crate::metal::memory::Register;
use crate::metal::vcpu::VCPUS;

/// One sample under way.
pub(crate) struct Sampler<'a> {
    pub(crate) item: Item,
    pub(crate) handshake: bool,
    pub(crate) provoked: Option<InjectedFault>,
    pub(crate) samples: &'a mut [u64; MAX_N as usize],
}

/// A sum over the vCPUs.
fn total(of: impl Fn(usize) -> &'static AtomicU64, vcpus: usize) -> u64 {
    (0..vcpus).map(|index| of(index).load(Ordering::Relaxed)).sum()
}

impl Sampler<'_> {
    /// Takes the samples: `sample` does the operation once and returns its cycles. It is a
    /// function for each operation, whose name a profile shows.
    #[inline(never)]
    pub(crate) fn samples(
        self,
        vcpus: usize,
        mut sample: impl FnMut() -> Result<u64, Skip>,
    ) -> Result<Measurement, Skip> {
        let Item { operation, n, warmup, batch, .. } = self.item;
        for _ in 0..warmup {
            sample()?;
        }
        // Where the samples go is there before, or its page faults were counted as theirs.
        self.samples[..n as usize].fill(0);
        black_box(&mut *self.samples);
        if self.handshake {
            console::write(&Record::Ready(operation));
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
        Ok(Measurement {
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
    pub(crate) fn timed<T>(self, mut once: impl FnMut() -> T) -> Result<Measurement, Skip> {
        let batch = self.item.batch;
        self.samples(1, || {
            let begin = clock();
            for _ in 0..batch {
                let answer = once();
                // Where there is none, this would keep the loop around nothing.
                if size_of::<T>() != 0 {
                    black_box(answer);
                }
            }
            Ok(clock() - begin)
        })
    }

    /// Takes the time until `once` says whether it came to an end.
    pub(crate) fn timed_until(
        self,
        vcpus: usize,
        mut once: impl FnMut() -> bool,
    ) -> Result<Measurement, Skip> {
        self.samples(vcpus, || {
            let begin = clock();
            if once() { Ok(clock() - begin) } else { Err(Skip::NoAnswer) }
        })
    }
}

/// Fails as asked.
fn provoke(what: InjectedFault) {
    match what {
        InjectedFault::Stack => {
            black_box(endless(0));
        }
        InjectedFault::Null => instruction::write_null(),
        InjectedFault::Opcode => instruction::no_instruction(),
        InjectedFault::Panic => panic!("as asked"),
        InjectedFault::Hang => instruction::stop(),
        InjectedFault::Spin => spin(),
    }
}

#[expect(clippy::empty_loop, reason = "the vCPU is to get nowhere")]
fn spin() -> ! {
    loop {}
}

#[expect(unconditional_recursion, reason = "the stack is to run over")]
fn endless(depth: u64) -> u64 {
    endless(black_box(depth + 1)) + black_box(depth)
}

/// Reads a device's register.
pub(crate) fn read_register(sampler: Sampler<'_>, at: Option<u64>) -> Result<Measurement, Skip> {
    let register = at.and_then(Register::at).ok_or(Skip::NoDevice)?;
    sampler.timed(|| register.read())
}
