//! From samples to verdicts: one number a boot, ratios inside blocks, an
//! interval, and what may be said.
//!
//! The replicate is the *boot*. Everything below a boot is reduced to one
//! number ([`boot_statistic`]); everything above is compared inside a block,
//! where every variant was booted once in random order ([`PairedBlocks`]).
//! Whether another block is needed and what the blocks say is an [`Engine`]'s
//! business: [`SequentialTest`] looks after every block and stops when the question
//! is answered; [`FixedBlocks`] is the plain one, with a number of blocks fixed
//! in advance. Both use Student's t on the within-block log ratios, and can say
//! "no difference larger than the margin". Samples without blocks are for
//! [`mann_whitney`] and [`welch`].
//!
//! A change that some hosts of a fleet got is looked at every day by [`rollout_looks`]. The
//! same comparison on many hosts is put together by [`across_hosts`].
//!
//! Who asks one question only, and boots by himself, leaves all of it to a
//! [`AdaptiveComparison`]: it finds the warm-up, splits the time between boots and iterations
//! and gives up what is hopeless.
//!
//! All of it is pure and knows no unit: multiplying every value by a constant
//! changes nothing but the centres of [`describe`].
//!
//! What is not here: where values come from (`workload`), which trials make a
//! block (`runner`), tables and figures (`report`).
//!
//! Sources: T. Kalibera, R. Jones, "Rigorous Benchmarking in Reasonable Time",
//! ISMM 2013 (the boot as the replicate); A. Abedi, T. Brecht, "Conducting
//! Repeatable Experiments in Highly Variable Cloud Computing Environments",
//! ICPE 2017 (randomised interleaved trials).

mod account;
mod adaptive;
mod agreement;
mod anytime;
mod boot;
mod boundary;
mod change_points;
mod comparison;
mod conclude;
mod control;
mod describe;
mod disturbance;
mod engine;
mod hosts;
mod judgement;
mod latency;
mod multiplicity;
mod racing;
mod rollout;
mod sequential;
mod signed_rank;
mod spread;
mod student;
mod suite;
mod unpaired;
mod variance;
mod warm_up;

use record::{BetterDirection, HostSign};

pub use account::{Account, EstimatedAmount, PricedEvents, account};
pub use adaptive::{
    AdaptiveAnswer, AdaptiveClaim, AdaptiveComparison, AdaptivePolicy, AdaptiveQuestion,
    AdaptiveStep, AdaptiveTrial, Arm,
};
pub use agreement::{PublishedAgreement, Relation, ratio_agreement};
pub use anytime::e_value;
pub use boot::{BootStatistic, SampleKind, UnusableSamples, boot_statistic};
pub use boundary::{Boundary, LookSchedule, MOST_LOOKS};
pub use change_points::{ChangePoint, ChangeRule, change_points};
pub use comparison::{Comparison, PairedBlocks};
pub use control::{ControlledRatios, control};
pub use describe::{Estimate, describe};
pub use disturbance::{
    AT_WORST, Disturbance, DisturbanceWeight, HostDifference, OutOfLine, lost, out_of_line,
};
pub use engine::{Engine, EngineProgress, FixedBlocks, InvalidPlan, NextStep};
pub use hosts::{
    AcrossHosts, AcrossQuestion, ClassConsistency, ClassResult, ClassStand, HostRatios,
    across_hosts,
};
pub use judgement::{HodgesLehmann, Invalidity, Judgement, LogRatio, Verdict, Warning};
pub use latency::{Band, LatencyDistribution, NoQuantile, bands};
pub use multiplicity::{benjamini_hochberg, holm};
pub use racing::still_racing;
pub use rollout::{
    FleetHost, FleetNoise, LEAST_HOSTS, RolloutLook, RolloutRule, RolloutStep, RolloutTimes,
    SizeQuestion, fleet_noise, look_share, missing_hosts, rollout_looks,
};
pub use sequential::{FIRST_LOOK, SequentialTest};
pub use spread::{
    LEAST_BOOTS, SpreadVerdict, brown_forsythe, compare_spread, compare_spread_in_blocks,
    pitman_morgan, unsteadiness,
};
pub use student::{Interval, TTest, t_test};
pub use suite::suite;
pub use unpaired::{UnpairedError, Welch, mann_whitney, median_interval, welch};
pub use variance::{Allocation, Components, RepetitionCosts, allocate, components};
pub use warm_up::{WarmUp, WarmUpShape, warm_up};

#[cfg(test)]
mod tests;
