//! Did the host disturb one side of a comparison more than the other?
//!
//! What hits both sides alike cancels inside blocks, or widens the interval; it
//! makes no difference where there is none. Only what hits one side more does.
//! So the signs of a disturbance are compared inside blocks as the benchmark
//! is ([`differences`]), and weighed against the interval: see [`DisturbanceWeight`].
//!
//! All signs are logarithms of how much longer something may take for them: who
//! is left a share `1 - p` of the pCPUs takes `1 / (1 - p)` as long ([`lost`]).
//! What it really takes is not known - caches and other threads make it more, idle
//! vCPUs less - so a claim stands only if it does with none of it, and with
//! [`AT_WORST`] times of it taken out.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::boot::median;
use crate::student::{moments, student_critical};
use crate::{BetterDirection, HostSign, Interval};

/// How much longer something takes that is left `1 - part` of what it wants, as
/// a logarithm; a part of 1 is cut to 0.99.
#[must_use]
pub fn lost(part: f64) -> f64 {
    -(-part.clamp(0.0, 0.99)).ln_1p()
}

/// What the host did beside one trial. A sign that could not be read is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disturbance {
    /// The value of each sign that could be read.
    pub signs: Vec<(HostSign, f64)>,
    /// What the VM itself used of its pCPUs, as the logarithm that a sign would
    /// be ([`lost`]).
    pub own: Option<f64>,
}

impl Disturbance {
    /// What `sign` says, if it could be read.
    #[must_use]
    pub fn get(&self, sign: HostSign) -> Option<f64> {
        let found = self.signs.iter().find(|(known, _)| *known == sign);
        found.map(|(_, log)| *log).filter(|log| log.is_finite())
    }
}

/// What a difference of a sign means for a comparison.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DisturbanceWeight {
    /// It is not shown to differ between the two.
    Even,
    /// It differs, by so little of the interval's half width that it is
    /// nothing: less than `NOTHING`, and what is claimed stands without it.
    Slight,
    /// It is not shown to differ, but if what was seen is no chance, the verdict
    /// may come from it.
    Unclear,
    /// It differs, by no more than what the VMs themselves used does: who uses
    /// less of a busy host leaves more to others, and who asks for more has more
    /// stolen. Whose doing it is can't be told.
    Own,
    /// It differs, and the interval holds it.
    Held,
    /// It differs by more than the interval holds.
    Beyond,
}

/// How one sign differs between the two sides of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostDifference {
    /// The sign.
    pub sign: HostSign,
    /// How much longer B may take for it than A, as a ratio.
    pub ratio: f64,
    /// The interval of the ratio.
    pub interval: Interval,
    /// Blocks in which it was read beside both.
    pub blocks: u32,
    /// What it means.
    pub weight: DisturbanceWeight,
}

impl fmt::Display for HostDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sign, ratio, interval: Interval { lo, hi, .. }, .. } = self;
        write!(f, "{sign} is worth ×{ratio:.2} [{lo:.2}, {hi:.2}] of the baseline's time")
    }
}

/// Level of the interval of a difference. Several signs are looked at, at more
/// than one time, and a false alarm must be rarer than a false claim.
const LEVEL: f64 = 0.99;
/// Blocks below which no difference is shown.
const FEWEST: usize = 3;
/// Part of the interval's half width below which a difference is nothing.
const NOTHING: f64 = 0.25;
/// A disturbance costs at most so many times what its sign says.
pub const AT_WORST: f64 = 2.0;

/// What is said of a comparison, as far as the host is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostVerdict {
    /// The log ratio.
    pub(crate) mean: f64,
    /// Half the width of its interval.
    pub(crate) half_width: f64,
    pub(crate) better: BetterDirection,
    pub(crate) claim: ClaimKind,
}

/// What kind of a claim a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimKind {
    /// The two differ.
    Difference,
    /// They do not.
    NoDifference,
    /// Nothing is claimed.
    None,
}

impl HostVerdict {
    /// True if the claim stands whatever `found` did.
    pub(crate) fn survives_all_of(self, found: &HostDifference) -> bool {
        self.survives(&[found.interval.lo.ln(), found.interval.hi.ln()])
    }

    /// True if the claim stands although the host made B take longer by any of
    /// these logarithms.
    fn survives(self, logs: &[f64]) -> bool {
        // What disturbs makes worse.
        let towards = match self.better {
            BetterDirection::Lower => 1.0,
            BetterDirection::Higher => -1.0,
        };
        let sign = self.mean.signum();
        let stands = |log: f64| match self.claim {
            ClaimKind::Difference => sign * (self.mean - towards * log) > self.half_width,
            ClaimKind::NoDifference => log.abs() <= self.half_width,
            ClaimKind::None => true,
        };
        stands(0.0) && logs.iter().all(|log| stands(AT_WORST * log))
    }
}

/// How each comparable sign differs between the two sides; `host` has what was
/// seen beside A and B in each block.
pub(crate) fn differences(host: &[[Disturbance; 2]], claimed: HostVerdict) -> Vec<HostDifference> {
    let mut signs: Vec<HostSign> =
        host.iter().flatten().flat_map(|seen| &seen.signs).map(|(s, _)| *s).collect();
    signs.sort_unstable();
    signs.dedup();
    signs.retain(|sign| sign.is_comparable());
    signs.into_iter().filter_map(|sign| difference(sign, host, claimed)).collect()
}

fn difference(
    sign: HostSign,
    host: &[[Disturbance; 2]],
    claimed: HostVerdict,
) -> Option<HostDifference> {
    let inside = host.iter().filter_map(|[a, b]| Some(b.get(sign)? - a.get(sign)?));
    let inside: Vec<f64> = inside.collect();
    let n = inside.len();
    if n < FEWEST {
        return None;
    }
    let (mean, sd) = moments(&inside);
    let half = student_critical(n as u32, 1.0 - LEVEL) * sd / (n as f64).sqrt();
    let shown = mean.abs() > half;
    let weight = match mean.abs() / claimed.half_width {
        part if part <= NOTHING && claimed.survives(&[mean]) => {
            if shown {
                DisturbanceWeight::Slight
            } else {
                DisturbanceWeight::Even
            }
        }
        _ if !shown && claimed.survives(&[mean]) => DisturbanceWeight::Even,
        _ if !shown => DisturbanceWeight::Unclear,
        _ if sign.follows_own_use() && mean.abs() <= own_difference(host) => DisturbanceWeight::Own,
        part if part <= 1.0 => DisturbanceWeight::Held,
        _ => DisturbanceWeight::Beyond,
    };
    let interval = Interval { lo: (mean - half).exp(), hi: (mean + half).exp(), level: LEVEL };
    Some(HostDifference { sign, ratio: mean.exp(), interval, blocks: n as u32, weight })
}

/// By how much what the VMs themselves used differs inside blocks; 0 where that
/// is not known.
fn own_difference(host: &[[Disturbance; 2]]) -> f64 {
    let inside: Vec<f64> = host.iter().filter_map(|[a, b]| Some(b.own? - a.own?)).collect();
    if inside.is_empty() { 0.0 } else { moments(&inside).0.abs() }
}

/// The difference that leaves nothing to be said, if one does.
pub(crate) fn fatal(
    differences: &[HostDifference],
    claimed: HostVerdict,
) -> Option<HostDifference> {
    let beyond = differences.iter().filter(|found| found.weight == DisturbanceWeight::Beyond);
    let is_difference = claimed.claim == ClaimKind::Difference;
    let fatal = beyond.filter(|found| !(is_difference && claimed.survives_all_of(found)));
    let size = |found: &HostDifference| found.ratio.ln().abs();
    fatal.copied().max_by(|a, b| size(a).total_cmp(&size(b)))
}

/// A sign beside one trial of a block that is out of line with the trials of
/// the same variant before it, unlike beside the others of the block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutOfLine {
    /// Place of the trial in the block.
    pub trial: usize,
    /// The sign.
    pub sign: HostSign,
    /// What it says of the trial, beyond what is usual.
    pub excess: f64,
}

/// Earlier trials of a variant that tell what is usual.
const USUAL: usize = 3;

/// What was out of line in a block.
///
/// `block` and `earlier` hold trials of one workload under one load, each with
/// its variant. A neighbour that is always there is usual; one that hits all
/// trials of a block alike cancels in it. Neither looks at the benchmark.
#[must_use]
pub fn out_of_line(
    limits: &[(HostSign, f64)],
    block: &[(usize, Disturbance)],
    earlier: &[(usize, Disturbance)],
) -> Vec<OutOfLine> {
    let mut found = Vec::new();
    for &(sign, limit) in limits {
        let beyond_usual = |(variant, seen): &(usize, Disturbance)| {
            let of_it = earlier.iter().filter(|(other, _)| other == variant);
            let before: Vec<f64> = of_it.filter_map(|(_, seen)| seen.get(sign)).collect();
            (before.len() >= USUAL).then(|| Some(seen.get(sign)? - median(&before))).flatten()
        };
        let beyond: Vec<Option<f64>> = block.iter().map(beyond_usual).collect();
        let least = beyond.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        for (trial, excess) in beyond.into_iter().enumerate() {
            if let Some(excess) = excess.filter(|excess| excess - least > limit) {
                found.push(OutOfLine { trial, sign, excess });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
