//! The benchmarks' random numbers: x' = a x mod 2^46, as fractions of 2^46.
//!
//! Source: D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, 2.2.
//! Exact in whole numbers, where the report splits floating point ones.

/// The multiplier of all benchmarks, 5^13.
pub(super) const A: u64 = 1_220_703_125;

const MASK: u64 = (1 << 46) - 1;
const SCALE: f64 = 1.0 / (1_u64 << 46) as f64;

/// A generator at one place of the sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct NpbRandom(u64);

impl NpbRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next fraction, in (0, 1).
    #[inline]
    pub(super) fn next(&mut self) -> f64 {
        // 2^46 divides 2^64, so wrapping there loses nothing here.
        self.0 = self.0.wrapping_mul(A) & MASK;
        self.0 as f64 * SCALE
    }

    /// The generator as it is `n` numbers later.
    pub(super) fn skip(self, n: u64) -> Self {
        let (mut power, mut square, mut n) = (1_u64, A, n);
        while n > 0 {
            if n & 1 == 1 {
                power = power.wrapping_mul(square) & MASK;
            }
            square = square.wrapping_mul(square) & MASK;
            n >>= 1;
        }
        Self(self.0.wrapping_mul(power) & MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_is_going_step_by_step() {
        let start = NpbRandom::new(314_159_265);
        let mut walked = start;
        for n in 0..1000 {
            assert_eq!(start.skip(n).0, walked.0, "{n}");
            let fraction = walked.next();
            assert!(0.0 < fraction && fraction < 1.0);
        }
    }
}
