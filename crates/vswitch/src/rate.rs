//! Rates of ports: how they are written, and the token buckets that keep them.
//!
//! A port that is over its rate is not served for a while: its frames stay in its own
//! ring, nothing is dropped, and its driver sees a slower card. A bucket is one word, the
//! time at which all that was taken will have been paid for; so threads that serve queues
//! of one port share it without a lock.
//!
//! Source: the generic cell rate algorithm of ITU-T I.371, as a virtual schedule; the
//! units of `tc(8)`.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a port that was idle may send at once, as a time at its rate.
const CREDIT_NS: u64 = 1_000_000;
const PS_A_S: u64 = 1_000_000_000_000;

/// What a port may send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bits a second, of frames without their checksums.
    pub bits_per_s: Option<u64>,
    /// Frames a second.
    pub frames_per_s: Option<u64>,
}

/// Error type for reading a [`Rate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// No number with a unit, or two of one kind.
    #[error("a rate has a unit: 100mbit, 2.5gbit, 200kpps, or both joined by +")]
    Unit,
    /// Nothing that can be kept.
    #[error("a rate is 1bit to 10tbit, or 1pps to 10000gpps")]
    Range,
}

/// Units, larger ones first, with what one is.
const BITS: &[(&str, u64)] = &[
    ("tbit", 1_000_000_000_000),
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1000),
    ("bit", 1),
];
const FRAMES: &[(&str, u64)] =
    &[("gpps", 1_000_000_000), ("mpps", 1_000_000), ("kpps", 1000), ("pps", 1)];
/// Neither is a rate beyond.
const MOST: f64 = 1e13;

fn number(text: &str, units: &[(&str, u64)]) -> Result<u64, RateError> {
    let known = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (number, unit) = known.ok_or(RateError::Unit)?;
    let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number = number.parse::<f64>().ok().filter(|_| plain).ok_or(RateError::Unit)?;
    let value = number * unit as f64;
    if (1.0..=MOST).contains(&value) { Ok(value.round() as u64) } else { Err(RateError::Range) }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let mut rate = Self::default();
        for part in text.to_ascii_lowercase().split('+') {
            let (place, value) = match number(part, BITS) {
                Ok(bits) => (&mut rate.bits_per_s, bits),
                Err(RateError::Unit) => (&mut rate.frames_per_s, number(part, FRAMES)?),
                Err(error) => return Err(error),
            };
            if place.replace(value).is_some() {
                return Err(RateError::Unit);
            }
        }
        Ok(rate)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: u64, units: &[(&str, u64)]| {
            let unit = units.iter().find(|(_, unit)| value.is_multiple_of(*unit));
            unit.map(|(name, unit)| format!("{}{name}", value / unit))
        };
        let parts = [
            self.bits_per_s.and_then(|bits| shown(bits, BITS)),
            self.frames_per_s.and_then(|frames| shown(frames, FRAMES)),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("+"))
    }
}

/// What may be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

impl Allowance {
    /// The lesser of both.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { frames: self.frames.min(other.frames), bytes: self.bytes.min(other.bytes) }
    }
}

#[derive(Debug)]
struct Bucket {
    /// Time that one unit costs.
    unit_ps: u64,
    /// When all that was taken is paid for.
    paid_ns: AtomicU64,
}

impl Bucket {
    fn new(units_per_s: u64) -> Self {
        Self { unit_ps: (PS_A_S / units_per_s.max(1)).max(1), paid_ns: AtomicU64::new(0) }
    }

    /// Units that may be taken, one at least; the time until then if there is none.
    fn allowed(&self, now_ns: u64) -> Result<u64, u64> {
        let paid_ns = self.paid_ns.load(Ordering::Relaxed);
        match now_ns.checked_sub(paid_ns) {
            None => Err(paid_ns - now_ns),
            Some(credit_ns) => Ok(credit_ns.min(CREDIT_NS) * 1000 / self.unit_ps + 1),
        }
    }

    fn take(&self, now_ns: u64, units: u64) {
        let cost_ns = u64::try_from(u128::from(units) * u128::from(self.unit_ps) / 1000);
        let cost_ns = cost_ns.unwrap_or(u64::MAX);
        let paid = |paid_ns: u64| {
            Some(paid_ns.max(now_ns.saturating_sub(CREDIT_NS)).saturating_add(cost_ns))
        };
        // It always has a next value, so this never fails.
        let _ = self.paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }
}

/// Keeps a port to its rate.
#[derive(Debug)]
pub(crate) struct Limiter {
    began: Instant,
    bytes: Option<Bucket>,
    frames: Option<Bucket>,
    /// How often the port had to wait.
    waits: AtomicU64,
    waiting: std::sync::atomic::AtomicBool,
}

impl Limiter {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            began: Instant::now(),
            bytes: rate.bits_per_s.map(|bits| Bucket {
                unit_ps: (8 * PS_A_S / bits.max(1)).max(1),
                paid_ns: AtomicU64::new(0),
            }),
            frames: rate.frames_per_s.map(Bucket::new),
            waits: AtomicU64::new(0),
            waiting: std::sync::atomic::AtomicBool::new(false),
        }
    }

    fn now_ns(&self) -> u64 {
        // Some time above zero, so that what was never used has credit.
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 2) + CREDIT_NS
    }

    /// What the port may send now; how long it has to wait if that is nothing.
    pub(crate) fn allowed(&self) -> Result<Allowance, Duration> {
        let now_ns = self.now_ns();
        let of = |bucket: &Option<Bucket>| {
            bucket.as_ref().map_or(Ok(u64::MAX), |bucket| bucket.allowed(now_ns))
        };
        match (of(&self.frames), of(&self.bytes)) {
            (Ok(frames), Ok(bytes)) => {
                self.waiting.store(false, Ordering::Relaxed);
                Ok(Allowance { frames, bytes })
            }
            (frames, bytes) => {
                let longest = frames.err().max(bytes.err()).unwrap_or(0);
                Err(Duration::from_nanos(longest))
            }
        }
    }

    /// The port has frames and may not send: counts that once until it may.
    pub(crate) fn count_wait(&self) {
        if !self.waiting.swap(true, Ordering::Relaxed) {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often the port had frames and had to wait.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// The port has sent so much.
    pub(crate) fn take(&self, frames: u64, bytes: u64) {
        let now_ns = self.now_ns();
        for (bucket, units) in [(&self.frames, frames), (&self.bytes, bytes)] {
            if let Some(bucket) = bucket {
                bucket.take(now_ns, units);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_read_as_they_are_written() {
        for (text, bits, frames) in [
            ("1gbit", Some(1_000_000_000), None),
            ("2.5Gbit", Some(2_500_000_000), None),
            ("100kbit", Some(100_000), None),
            ("64bit", Some(64), None),
            ("200kpps", None, Some(200_000)),
            ("1mpps+1gbit", Some(1_000_000_000), Some(1_000_000)),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate, Rate { bits_per_s: bits, frames_per_s: frames }, "{text}");
            assert_eq!(rate.to_string().parse(), Ok(rate), "{text}");
        }
        for text in
            ["", "100", "1gbit+1mbit", "-1bit", "1e3bit", "nanbit", "1gbps", "1gbit+", "infpps"]
        {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Unit), "{text}");
        }
        for text in ["0pps", "0.4bit", "99tbit", "99999999999999999999gbit", "1gbit+10001gpps"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Range), "{text}");
        }
    }

    proptest! {
        /// Whatever is asked when, what is let through keeps the rate, but for the credit
        /// and one burst.
        #[test]
        fn a_bucket_keeps_its_rate(per_s in 1_u64..1_000_000_000, steps in prop::collection::vec((0_u64..3_000_000, 1_u64..64), 1..200)) {
            let bucket = Bucket::new(per_s);
            let (mut now_ns, mut taken, mut largest) = (CREDIT_NS, 0_u64, 0_u64);
            for (later_ns, wanted) in steps {
                now_ns += later_ns;
                if let Ok(allowed) = bucket.allowed(now_ns) {
                    let count = wanted.min(allowed);
                    bucket.take(now_ns, count);
                    taken += count;
                    largest = largest.max(count);
                }
            }
            let most = u128::from(now_ns) * 1000 / u128::from(bucket.unit_ps);
            prop_assert!(u128::from(taken) <= most + 1 + u128::from(largest), "{taken} of {most}");
        }

        /// Who waits as long as it is told may send.
        #[test]
        fn waiting_is_told_exactly(per_s in 1_u64..1_000_000_000, count in 1_u64..1000) {
            let bucket = Bucket::new(per_s);
            bucket.take(CREDIT_NS, count);
            if let Err(wait_ns) = bucket.allowed(CREDIT_NS) {
                prop_assert!(wait_ns > 0);
                prop_assert!(bucket.allowed(CREDIT_NS + wait_ns).is_ok());
                prop_assert!(bucket.allowed(CREDIT_NS + wait_ns - 1).is_err());
            }
        }
    }
}
