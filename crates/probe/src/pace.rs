//! Loops that run for a time, and work that the optimiser can't drop.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The result of a timed loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedLoop {
    pub(crate) ops: u64,
    pub(crate) elapsed_s: f64,
}

impl TimedLoop {
    /// Operations a second.
    pub(crate) fn rate(self) -> f64 {
        self.ops as f64 / self.elapsed_s
    }

    /// Seconds an operation.
    pub(crate) fn each_s(self) -> f64 {
        self.elapsed_s / self.ops as f64
    }
}

/// Calls `batch(n)`, which does `n` operations, until `seconds` have passed.
///
/// The clock is read once a batch. Batches grow until one takes a thousandth of
/// the time, so reading the clock costs nothing that counts.
pub(crate) fn for_seconds(seconds: f64, mut batch: impl FnMut(u64)) -> TimedLoop {
    let (begin, mut n, mut ops) = (Instant::now(), 1, 0);
    let (limit, short) = (Duration::from_secs_f64(seconds), seconds / 1000.0);
    let mut last = begin;
    loop {
        batch(n);
        ops += n;
        let now = Instant::now();
        if now - begin >= limit {
            return TimedLoop { ops, elapsed_s: (now - begin).as_secs_f64() };
        }
        if (now - last).as_secs_f64() < short && n < 1 << 40 {
            n *= 2;
        }
        last = now;
    }
}

/// Calls `operation` exactly `ops` times.
pub(crate) fn for_ops(ops: u64, mut batch: impl FnMut(u64)) -> TimedLoop {
    let begin = Instant::now();
    batch(ops);
    TimedLoop { ops, elapsed_s: begin.elapsed().as_secs_f64() }
}

/// Computes for a time that grows with `loops` and depends on nothing else:
/// each step needs the result of the one before, in registers.
///
/// A step mixes shifts and products, since a compiler folds several steps of
/// products and sums alone into one.
#[inline(never)]
pub(crate) fn work(loops: u64) -> u64 {
    let mut value = black_box(1_u64);
    for _ in 0..loops {
        value = (value ^ (value >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    black_box(value)
}
