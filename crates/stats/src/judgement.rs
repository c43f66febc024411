//! What the blocks of a comparison say.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BetterDirection, HostDifference, Interval};

/// What may be said about B against A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// B is better: the interval lies wholly on the better side of 1.
    BBetter,
    /// B is worse: the interval lies wholly on the worse side of 1.
    BWorse,
    /// No difference larger than the margin: the interval at twice the rate of
    /// false claims lies inside the margin, either way round (two one-sided
    /// tests), and the interval itself holds 1.
    Equivalent,
    /// There is a difference, but it is smaller than the margin: both tests
    /// succeed.
    BelowMargin {
        /// True if B is better.
        b_better: bool,
    },
    /// Neither a difference nor its absence is shown.
    NotDecided {
        /// The relative difference that is not excluded: 0.08 says that B
        /// differs from A by at most 8 %, as sure as the interval is.
        at_most: f64,
        /// Half the interval's width, on the log scale.
        half_width: f64,
        /// About how many more blocks decide if mean and deviation stay as
        /// they are; possibly more than the plan has.
        more_blocks: u32,
    },
    /// Nothing may be said.
    Invalid {
        /// Why not.
        why: Invalidity,
    },
}

/// Why nothing may be said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Invalidity {
    /// The margin is no difference that could matter.
    Margin {
        /// The margin.
        margin: f64,
    },
    /// The values of a block have no ratio.
    NoRatio {
        /// Place of the block among those that were given, from 0.
        block: u32,
    },
    /// Fewer blocks than an interval needs.
    TooFewBlocks {
        /// Blocks in which both were measured: 0 or 1.
        blocks: u32,
    },
    /// Fewer hosts than say anything of others.
    TooFewHosts {
        /// Hosts on which both were measured: 0 or 1.
        hosts: u32,
    },
    /// The values of one side give no number for a boot.
    Unusable {
        /// What is wrong with them.
        reason: String,
    },
    /// The benchmark was still warming up at its last invocation.
    WarmingUp,
    /// The host disturbed one side more, by more than the interval holds.
    HostDiffered {
        /// What differed most.
        host: HostDifference,
    },
}

impl fmt::Display for Invalidity {
    /// A short sentence without the final stop; A is the baseline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Margin { margin } => write!(f, "Margin {margin} is not a positive number"),
            Self::NoRatio { block } => write!(f, "Block {block} gives no ratio"),
            Self::TooFewBlocks { blocks: 0 } => f.write_str("No block in which both were measured"),
            Self::TooFewBlocks { blocks } => {
                write!(f, "Only {blocks} block in which both were measured, an interval needs 2")
            }
            Self::TooFewHosts { hosts: 0 } => f.write_str("No host on which both were measured"),
            Self::TooFewHosts { .. } => f.write_str("Only one host, which says nothing of others"),
            Self::Unusable { reason } => f.write_str(reason),
            Self::WarmingUp => f.write_str("No steady state: the last invocation still warmed up"),
            Self::HostDiffered { host } => {
                write!(f, "The host disturbed one side more: {host}, more than the interval holds")
            }
        }
    }
}

impl Verdict {
    /// True if B is said to differ from A, however little.
    #[must_use]
    pub fn is_difference(&self) -> bool {
        matches!(self, Self::BBetter | Self::BWorse | Self::BelowMargin { .. })
    }

    /// True if the question is answered: a difference, or that there is none
    /// that matters.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.is_difference() || *self == Self::Equivalent
    }
}

/// What is known of the logarithm of B by A: the only thing that verdicts come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogRatio {
    /// Its estimate.
    pub mean: f64,
    /// Half the interval's width at the promised rate of false claims.
    pub half_width: f64,
    /// The same at twice that rate: two one-sided tests of equivalence.
    pub half_width_of_equivalence: f64,
}

impl LogRatio {
    /// Of two values without noise.
    #[must_use]
    pub fn exact(a: f64, b: f64) -> Self {
        let mean = match b.ln() - a.ln() {
            _ if a == b => 0.0,
            // Below zero there is no ratio, but still a direction.
            log if log.is_nan() => f64::INFINITY.copysign(b - a),
            log => log,
        };
        Self { mean, half_width: 0.0, half_width_of_equivalence: 0.0 }
    }

    /// What may be said; `more_blocks` tells how many more would decide, of the margin
    /// on the log scale.
    #[must_use]
    pub fn verdict(
        &self,
        better: BetterDirection,
        margin: f64,
        more_blocks: impl FnOnce(f64) -> u32,
    ) -> Verdict {
        let Self { mean, half_width, half_width_of_equivalence } = *self;
        let band = margin.ln_1p();
        let equivalent = mean.abs() + half_width_of_equivalence < band;
        if mean.abs() <= half_width {
            if equivalent {
                return Verdict::Equivalent;
            }
            let (lo, hi) = (ratio_of(mean - half_width), ratio_of(mean + half_width));
            return Verdict::NotDecided {
                at_most: (hi - 1.0).max(1.0 - lo),
                half_width,
                more_blocks: more_blocks(band),
            };
        }
        let b_better = (mean < 0.0) == (better == BetterDirection::Lower);
        match (b_better, equivalent) {
            (_, true) => Verdict::BelowMargin { b_better },
            (true, false) => Verdict::BBetter,
            (false, false) => Verdict::BWorse,
        }
    }
}

/// The logarithm of a ratio that is still a finite number, either way round.
pub(crate) const GREATEST_LOG: f64 = 700.0;

/// The ratio of a log ratio, finite and not 0 even at the ends of an interval
/// that says nothing.
pub(crate) fn ratio_of(log: f64) -> f64 {
    log.clamp(-GREATEST_LOG, GREATEST_LOG).exp()
}

/// Something that whoever reads a judgement should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Warning {
    /// Student's t and the signed ranks disagree on whether there is a
    /// difference: one or two blocks carry the verdict.
    OutlierDriven,
    /// All blocks gave the very same ratio: no noise to judge by.
    NoVariance,
    /// Fewer than five blocks: the interval leans on the normal distribution.
    FewBlocks,
    /// A variant differs from itself: the host is not as quiet as the
    /// intervals assume, or this is the one false alarm in twenty.
    AaAlarm,
    /// More blocks than the plan had: its error was spent before. The interval
    /// is then one that may be looked at for ever, but verdicts that come now
    /// have a second chance to be wrong.
    BeyondPlan,
    /// The host disturbed one side more, or seems to have, see
    /// [`Judgement::host`]: the interval holds it, or the difference is greater
    /// than it can be.
    HostDiffered,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutlierDriven => {
                "outlier-driven: the signed ranks disagree with the t interval; look at the \
                 single blocks, run more"
            }
            Self::NoVariance => {
                "no variance: every block gave the same ratio; is the metric exact, or too coarse?"
            }
            Self::FewBlocks => "few blocks: run five or more for an interval to rely on",
            Self::AaAlarm => {
                "A/A alarm: the same configuration differs from itself; quieten the host, or \
                 distrust differences of this size"
            }
            Self::BeyondPlan => {
                "beyond the plan: blocks were added after the last planned look; plan without a \
                 last block to add some whenever you like"
            }
            Self::HostDiffered => {
                "the host disturbed one side more: part of the ratio may be the host's"
            }
        })
    }
}

/// The robust second opinion on the ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HodgesLehmann {
    /// Median of the pairwise geometric means of the blocks' ratios.
    pub ratio: f64,
    /// Exact signed-rank interval of the ratio; its level is the next possible
    /// above the asked one, and absent where there are too few blocks (5 or
    /// fewer for 95 %).
    pub interval: Option<Interval>,
}

/// What an engine says about one comparison. Ratios are B by A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judgement {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Geometric mean of the blocks' ratios; absent if no block can be used.
    pub ratio: Option<f64>,
    /// Interval of the ratio; absent with fewer than two blocks.
    pub interval: Option<Interval>,
    /// Two-sided p value of "there is no difference": the smallest rate of
    /// false claims at which the rule in use would claim one.
    pub p: Option<f64>,
    /// Evidence against "there is no difference" as an e-value (see
    /// [`crate::e_value`]); for findings over many open-ended studies.
    #[serde(default)]
    pub e_value: Option<f64>,
    /// Blocks that were used.
    pub blocks_used: u32,
    /// The metric's better direction.
    pub better: BetterDirection,
    /// The smallest relative difference that matters to the reader.
    pub margin: f64,
    /// The robust second opinion.
    pub hodges_lehmann: Option<HodgesLehmann>,
    /// True if A and B are the same configuration under two names.
    pub aa: bool,
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// How the host differed beside the two, by sign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostDifference>,
}

impl Judgement {
    /// A comparison about which nothing can be said.
    #[must_use]
    pub fn invalid(why: Invalidity, better: BetterDirection, margin: f64, aa: bool) -> Self {
        Self {
            verdict: Verdict::Invalid { why },
            ratio: None,
            interval: None,
            p: None,
            e_value: None,
            blocks_used: 0,
            better,
            margin,
            hodges_lehmann: None,
            aa,
            warnings: Vec::new(),
            host: Vec::new(),
        }
    }
}
