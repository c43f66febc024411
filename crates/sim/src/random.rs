//! Chance: one seeded stream a run, and the distributions drawn from it.
//!
//! Logarithms come from `libm`, not from the platform's library, so that a seed
//! brings the same bytes on every architecture.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A seeded stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The stream of `seed`; `stream` tells several of one seed apart.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        // SplitMix64's odd constant keeps neighbouring streams apart.
        Self(Pcg64Mcg::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..`n`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }

    /// Standard normal (Box and Muller, one of the pair).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }
}

/// A distribution of durations, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Duration {
    /// Always the same.
    Constant(u64),
    /// Exponential with this mean.
    Exponential(u64),
    /// Uniform from the first to the second.
    Uniform(u64, u64),
    /// Lognormal with this median and this standard deviation of the logarithm.
    Lognormal(u64, f64),
    /// Normal with this mean and standard deviation, never below zero.
    Normal(u64, u64),
}

impl Duration {
    /// One value, ns.
    pub fn draw(self, random: &mut Random) -> u64 {
        match self {
            Self::Constant(ns) => ns,
            Self::Exponential(mean) => (mean as f64 * random.exponential()) as u64,
            Self::Uniform(low, high) => low + random.below(high.saturating_sub(low) + 1),
            Self::Lognormal(median, sigma) => {
                (median as f64 * libm::exp(sigma * random.normal())) as u64
            }
            Self::Normal(mean, sd) => (mean as f64 + sd as f64 * random.normal()).max(0.0) as u64,
        }
    }

    /// What so many of them take that are as long as each other.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        let all = |ns: u64| ns.saturating_mul(u64::from(count));
        match self {
            Self::Constant(ns) => Self::Constant(all(ns)),
            Self::Exponential(mean) => Self::Exponential(all(mean)),
            Self::Uniform(low, high) => Self::Uniform(all(low), all(high)),
            Self::Lognormal(median, sigma) => Self::Lognormal(all(median), sigma),
            Self::Normal(mean, sd) => Self::Normal(all(mean), all(sd)),
        }
    }

    /// Its mean, ns.
    #[must_use]
    pub fn mean_ns(self) -> f64 {
        match self {
            Self::Constant(ns) | Self::Exponential(ns) | Self::Normal(ns, _) => ns as f64,
            Self::Uniform(low, high) => (low as f64 + high as f64) / 2.0,
            Self::Lognormal(median, sigma) => median as f64 * libm::exp(sigma * sigma / 2.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_the_means_that_they_say() {
        for duration in [
            Duration::Constant(1_000),
            Duration::Exponential(45_000),
            Duration::Uniform(10_000, 30_000),
            Duration::Lognormal(20_000, 0.5),
            Duration::Normal(50_000, 5_000),
        ] {
            let mut random = Random::new(7, 1);
            let n = 200_000;
            let sum: f64 = (0..n).map(|_| duration.draw(&mut random) as f64).sum();
            let ratio = sum / f64::from(n) / duration.mean_ns();
            assert!((ratio - 1.0).abs() < 0.01, "{duration:?}: {ratio}");
        }
    }

    #[test]
    fn a_seed_is_a_stream_on_every_architecture() {
        let mut random = Random::new(1, 2);
        let drawn: Vec<u64> =
            (0..4).map(|_| Duration::Exponential(1_000_000).draw(&mut random)).collect();
        expect_test::expect!["[253665, 408575, 439953, 415469]"].assert_eq(&format!("{drawn:?}"));
    }
}
