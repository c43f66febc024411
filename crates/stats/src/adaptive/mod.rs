//! One question from the first block to the verdict: which block comes next,
//! how many iterations, is another block worth its time, and what may be said.
//!
//! A [`AdaptiveComparison`] compares two configurations and plans their blocks itself, at the
//! least machine time that keeps the promised rates of error:
//!
//! - the first block is long enough to see a warm-up; once it is known, most of it is
//!   discarded from all runs alike and the rest taken out as it was fitted, and later runs
//!   are as long as the measured variances and costs make worth while
//!   ([`crate::allocate`]), and as many in a boot where a boot costs far more than a run;
//! - what others took of the boots is taken out, as far as the boots show what it costs;
//! - after each block from [`AdaptivePolicy::first_look`] on, a difference and its
//!   absence are tested against group-sequential levels ([`Boundary`]);
//! - as long as blocks show no common drift, the two configurations are
//!   compared like independent samples, which knows their variance twice as
//!   well; else inside blocks;
//! - a case whose decision would cost more than it is worth is given up, and
//!   says so. Giving up never makes a claim, so it costs no error.

mod clock;
mod evidence;
mod loss;
mod worth;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::boot::median;
use crate::boundary::{Boundary, LookSchedule, MOST_LOOKS};
use crate::disturbance::{self, HostVerdict};
use crate::judgement::ratio_of;
use crate::variance::{Allocation, Components, RepetitionCosts, allocate, components};
use crate::warm_up::{WarmUp, iteration_noise, most_departure, warm_up};
use crate::{
    BetterDirection, Disturbance, DisturbanceWeight, HostDifference, HostSign, InvalidPlan,
    Invalidity, LogRatio, Verdict, Warning, lost,
};

use clock::TrialClock;
use evidence::{Levels, RatioEstimate};
use loss::BootLogs;

/// One of the two configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Arm {
    /// The baseline.
    A,
    /// What is compared with it.
    B,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptiveQuestion {
    /// The metric's better direction.
    pub better: BetterDirection,
    /// The rate of false claims, e.g. 0.05.
    pub alpha: f64,
    /// The smallest relative difference that matters, e.g. 0.03.
    pub margin: f64,
    /// Most blocks that may be run.
    pub max_blocks: u32,
    /// Most machine time that may be used, s; costs are seconds then, until the
    /// trials' own times tell better.
    pub max_s: Option<f64>,
    /// What boots, invocations and iterations cost.
    pub costs: RepetitionCosts,
    /// Decides the order inside the blocks.
    pub seed: u64,
}

/// How a case is planned. The default is what did best over simulated
/// laboratories; each number is a trade between time and safety.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptivePolicy {
    /// Iterations in the first block, which learns.
    pub first_iterations: u32,
    /// Fewest iterations that are kept of a run.
    pub least_iterations: u32,
    /// Most iterations of a run.
    pub most_iterations: u32,
    /// Most invocations in a boot.
    pub most_invocations: u32,
    /// More than one invocation is tried where one costs no more than this
    /// share of a boot: what it shows pays for itself then, whatever it is.
    pub cheap_invocation: f64,
    /// Iterations discarded where no warm-up was seen, but one may be hidden.
    pub least_discard: usize,
    /// The departure of the first iteration, in margins, below which nothing is
    /// discarded: a median of several hardly notices one.
    pub harmless: f64,
    /// What may be wrong about a warm-up that is kept, as a share of the margin.
    pub tolerance: f64,
    /// The part of a warm-up that its fit may have wrong.
    pub fit_error: f64,
    /// Blocks before the first look.
    pub first_look: u32,
    /// Blocks before a difference is claimed that is not [`AdaptivePolicy::obvious`]:
    /// where boots are of two sorts, chance gives four of one to A and four of
    /// the other to B in one of 200 cases, and no variance tells.
    pub first_claim: u32,
    /// Times the margin beyond which a difference is no matter of boots of two
    /// sorts.
    pub obvious: f64,
    /// The last block that is planned for, however many are allowed.
    pub horizon: u32,
    /// How the error is spent, see [`LookSchedule::exponent`].
    pub exponent: f64,
    /// Share of the error that claims of a difference may spend.
    pub difference_share: f64,
    /// The same for "no difference larger than the margin".
    pub equivalence_share: f64,
    /// Whether blocks without common drift are compared like independent
    /// samples.
    pub pool: bool,
    /// What a verdict is worth, in times the cost of its first look: a case
    /// goes on while the chance of a verdict by its cost is above 1 by this.
    pub worth: f64,
    /// Blocks from which a case may be given up.
    pub futile_from: u32,
}

impl Default for AdaptivePolicy {
    fn default() -> Self {
        Self {
            first_iterations: 8,
            least_iterations: 3,
            most_iterations: 60,
            most_invocations: 8,
            cheap_invocation: 0.25,
            least_discard: 1,
            harmless: 2.0,
            tolerance: 0.1,
            fit_error: 0.2,
            first_look: 3,
            first_claim: 4,
            obvious: 7.0,
            horizon: 12,
            exponent: 0.8,
            difference_share: 1.0,
            equivalence_share: 1.0,
            pool: true,
            worth: 8.0,
            futile_from: 2,
        }
    }
}

/// One boot's values.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveTrial {
    /// The configuration.
    pub arm: Arm,
    /// When it began, in seconds since the case began.
    pub started_s: Option<f64>,
    /// The values of each invocation, in the order in which they were measured.
    pub invocations: Vec<Vec<f64>>,
    /// Share of time that others took, for each invocation; empty if unknown.
    pub steal: Vec<f64>,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum AdaptiveStep {
    /// Boot both, in this order.
    Block {
        /// Which first.
        order: [Arm; 2],
        /// How often and how long each is measured.
        allocation: Allocation,
    },
    /// Stop: this is the answer.
    Answer(AdaptiveAnswer),
}

/// A claim about B against A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdaptiveClaim {
    /// B is better, if only by less than the margin.
    BBetter,
    /// B is worse, if only by less than the margin.
    BWorse,
    /// No difference larger than the margin.
    Equivalent,
    /// Nothing is shown.
    Inconclusive,
}

impl From<&Verdict> for AdaptiveClaim {
    /// A difference below the margin is one all the same.
    fn from(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::BBetter | Verdict::BelowMargin { b_better: true } => Self::BBetter,
            Verdict::BWorse | Verdict::BelowMargin { b_better: false } => Self::BWorse,
            Verdict::Equivalent => Self::Equivalent,
            Verdict::NotDecided { .. } | Verdict::Invalid { .. } => Self::Inconclusive,
        }
    }
}

/// How a case ends.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveAnswer {
    /// The claim.
    pub claim: AdaptiveClaim,
    /// B by A.
    pub ratio: f64,
    /// Lower end of the interval of the ratio, which holds for all looks
    /// together; next to 0 if nothing is known.
    pub lo: f64,
    /// Upper end; beyond any ratio if nothing is known.
    pub hi: f64,
    /// Blocks that the claim rests on.
    pub blocks: u32,
    /// Share of the time of A's boots and of B's that others took, 0 to 1, where it is known
    /// of both.
    pub steal: Option<[f64; 2]>,
    /// Why nothing is shown; of the other claims whether others took more from one
    /// side, and whether what they took is taken out; else empty.
    pub why: String,
}

/// A usable block: the logarithms of the values of both, by invocation.
#[derive(Debug, Clone)]
struct PairedBlock {
    logs: [Vec<Vec<f64>>; 2],
    /// What others took from both, where that is known.
    host: [Disturbance; 2],
}

impl PairedBlock {
    fn shortest(&self) -> usize {
        self.logs.iter().flatten().map(Vec::len).min().unwrap_or(0)
    }
}

/// One question on its way to the verdict.
#[derive(Debug, Clone)]
pub struct AdaptiveComparison {
    question: AdaptiveQuestion,
    policy: AdaptivePolicy,
    blocks: Vec<PairedBlock>,
    /// Blocks that were asked for, useless ones and restarts included.
    asked: u32,
    /// Useless blocks in a row.
    useless: u32,
    clock: TrialClock,
}

/// After this many useless blocks in a row the case is given up.
const MOST_USELESS: u32 = 3;
/// A median of normal values varies by so much more than their mean.
const MEDIAN_VARIANCE: f64 = 1.4;
/// Shares of time that others took of the two sides are told apart from here on: less is
/// nothing where they are printed.
const NAMED_STEAL: f64 = 0.001;
/// Invocations in a boot by which their variance is measured.
const TRIED_INVOCATIONS: u32 = 2;

impl AdaptiveComparison {
    /// A case with nothing measured.
    ///
    /// # Errors
    /// [`InvalidPlan`] if no block or no time is allowed, or a rate or the
    /// margin is not usable.
    pub fn new(question: AdaptiveQuestion, policy: AdaptivePolicy) -> Result<Self, InvalidPlan> {
        if question.max_blocks == 0 {
            return Err(InvalidPlan::NoBlocks);
        }
        if !(question.alpha > 0.0 && question.alpha < 0.5) {
            return Err(InvalidPlan::Alpha(question.alpha));
        }
        if !(question.margin > 0.0 && question.margin.is_finite()) {
            return Err(InvalidPlan::Margin(question.margin));
        }
        if let Some(max_s) = question.max_s.filter(|max_s| max_s.is_nan() || *max_s <= 0.0) {
            return Err(InvalidPlan::Time(max_s));
        }
        let clock = TrialClock::default();
        Ok(Self { question, policy, blocks: Vec::new(), asked: 0, useless: 0, clock })
    }

    /// Takes the values of a block. Trials that are missing or have no usable
    /// value make it useless; it is not counted, and another one follows.
    ///
    /// Runs may be shorter or fewer than asked for, but the first that are say
    /// how long or how many they can be: no more is asked for again.
    pub fn record(&mut self, trials: &[AdaptiveTrial]) {
        let asked = self.allocation(self.discard());
        let cost = self.costs(asked) / 2.0;
        for place in 0..2 {
            self.clock.add(trials.get(place).and_then(|trial| trial.started_s), cost);
        }
        let runs = trials.iter().map(|trial| trial.invocations.len()).min();
        if let Some(runs) = runs.filter(|runs| (1..asked.invocations as usize).contains(runs)) {
            self.policy.most_invocations = runs as u32;
        }
        let given = trials.iter().flat_map(|trial| &trial.invocations).map(Vec::len).min();
        if let Some(given) = given.filter(|given| (1..asked.iterations as usize).contains(given)) {
            let policy = &mut self.policy;
            policy.most_iterations = given as u32;
            policy.least_iterations = policy.least_iterations.min(policy.most_iterations);
            let spare = policy.most_iterations - policy.least_iterations;
            policy.least_discard = policy.least_discard.min(spare as usize);
        }
        self.asked += 1;
        match block(trials) {
            Some(block) => {
                self.useless = 0;
                self.blocks.push(block);
            }
            None => self.useless += 1,
        }
    }

    /// What to do now.
    #[must_use]
    pub fn step(&self) -> AdaptiveStep {
        if self.useless >= MOST_USELESS {
            return self.give_up("several blocks in a row had no usable values");
        }
        let discard = self.discard();
        let longest = self.policy.most_iterations;
        if discard + self.policy.least_iterations as usize > longest as usize {
            // Seen in runs that are as long as can be, or only guessed?
            if self.blocks.iter().any(|block| block.shortest() >= longest as usize) {
                return self.give_up("no steady state: the runs never became level");
            }
        }
        let n = self.counted(discard).count() as u32;
        let Some(levels) = self.levels() else {
            return self.give_up("too few blocks are allowed for any verdict");
        };
        let evidence = self.evidence(discard);
        if let Some(evidence) = &evidence
            && let Some(answer) = self.decide(evidence, &levels, discard)
        {
            return AdaptiveStep::Answer(answer);
        }
        if self.asked >= self.question.max_blocks {
            return self.end(evidence.as_ref(), &levels, "all allowed blocks were used");
        }
        let allocation = self.allocation(discard);
        let affordable = self.affordable(allocation);
        if affordable == 0 {
            return self.end(evidence.as_ref(), &levels, "no time is left for another block");
        }
        if n >= levels.first().min(self.policy.futile_from) {
            if n >= levels.last() {
                return self.end(evidence.as_ref(), &levels, "another block is not worth its time");
            }
            if let Some(evidence) = &evidence
                && !self.is_worth_while(evidence, &levels, allocation, discard, affordable)
            {
                return self.end(
                    Some(evidence),
                    &levels,
                    "a verdict is too far away to be worth its time",
                );
            }
        }
        AdaptiveStep::Block { order: self.order(), allocation }
    }

    /// Machine time used so far, s: by the trials' own times where they have
    /// some, else by what they were planned to cost.
    #[must_use]
    pub fn used_s(&self) -> f64 {
        self.clock.used_s()
    }

    /// Blocks like this one for which there is time.
    fn affordable(&self, allocation: Allocation) -> u32 {
        let Some(max_s) = self.question.max_s else { return u32::MAX };
        let left_s = max_s - self.used_s();
        // The cast saturates both ways; blocks that cost nothing are no limit.
        (left_s.max(0.0) / self.clock.seconds(self.costs(allocation))) as u32
    }

    /// What a block costs.
    fn costs(&self, allocation: Allocation) -> f64 {
        let RepetitionCosts { boot, invocation, iteration } = self.question.costs;
        let run = invocation + iteration * f64::from(allocation.iterations);
        2.0 * (boot + run * f64::from(allocation.invocations))
    }

    fn is_worth_while(
        &self,
        evidence: &RatioEstimate,
        levels: &Levels,
        allocation: Allocation,
        discard: usize,
        affordable: u32,
    ) -> bool {
        let cheapest =
            Allocation { iterations: self.policy.least_iterations + discard as u32, ..allocation };
        let worth = self.policy.worth * f64::from(levels.first()) * self.costs(cheapest);
        let left = (self.question.max_blocks - self.asked).min(levels.last() - evidence.n);
        let left = left.min(affordable);
        let band = self.question.margin.ln_1p();
        worth::chance_by_cost(evidence, levels, band, left) * worth >= self.costs(allocation)
    }

    fn levels(&self) -> Option<Levels> {
        let AdaptivePolicy { first_look, first_claim, horizon, exponent, .. } = self.policy;
        let last = self.question.max_blocks.min(horizon).min(MOST_LOOKS).min(self.planned_blocks());
        let first = first_look.min(last);
        let alpha = self.question.alpha;
        let boundary = |alpha: f64, ordinary_from: u32| {
            Boundary::of(LookSchedule { first, last, alpha, exponent, ordinary_from })
        };
        Some(Levels {
            difference: boundary(alpha * self.policy.difference_share, first_claim.min(last))?,
            equivalence: boundary(2.0 * alpha * self.policy.equivalence_share, first)?,
        })
    }

    /// Most blocks that the time could allow, as costs tell before anything was
    /// measured: what is planned for must not depend on the data.
    fn planned_blocks(&self) -> u32 {
        let Some(max_s) = self.question.max_s else { return u32::MAX };
        let iterations = AdaptivePolicy::default().least_iterations;
        (max_s / self.costs(Allocation { invocations: 1, iterations })) as u32
    }

    /// Both configurations in random order, and in pairs of blocks both ways
    /// round, so that a steady drift of the host cancels.
    fn order(&self) -> [Arm; 2] {
        // A step of splitmix64, whose bits are as good as random.
        let pair = u64::from(self.asked / 2);
        let mut bits = self.question.seed.wrapping_add(pair.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let a_first = (bits ^ (bits >> 31)) & 1 == u64::from(self.asked % 2);
        if a_first { [Arm::A, Arm::B] } else { [Arm::B, Arm::A] }
    }

    fn runs(&self, arm: usize) -> Vec<&[f64]> {
        self.blocks.iter().flat_map(|block| &block.logs[arm]).map(Vec::as_slice).collect()
    }

    fn warm_ups(&self) -> [Option<WarmUp>; 2] {
        [0, 1].map(|arm| warm_up(&self.runs(arm)))
    }

    /// Iterations to discard, so that what the fit may have wrong about the rest of a
    /// warm-up is no difference worth mentioning.
    fn discard(&self) -> usize {
        let warm_ups = self.warm_ups();
        let least = self.policy.least_discard;
        if warm_ups == [None, None] {
            let harmless = self.policy.harmless * self.question.margin.ln_1p();
            let is_harmless = |arm: usize| most_departure(&self.runs(arm)) < harmless;
            return if [0, 1].into_iter().all(is_harmless) { 0 } else { least };
        }
        let tolerance = self.question.margin.ln_1p() * self.policy.tolerance;
        let left = |discard: usize| {
            let kept = self.policy.least_iterations;
            let [a, b] = warm_ups.map(|found| found.map_or(0.0, |found| found.left(discard, kept)));
            self.policy.fit_error * a.abs().max(b.abs())
        };
        let most = self.policy.most_iterations as usize;
        (least..most).find(|discard| left(*discard) <= tolerance).unwrap_or(most)
    }

    /// Blocks whose runs are long enough when so much is discarded. The rest is kept:
    /// what is known of the warm-up may change.
    fn counted(&self, discard: usize) -> impl Iterator<Item = &PairedBlock> {
        let needed = discard + self.policy.least_iterations as usize;
        self.blocks.iter().filter(move |block| block.shortest() >= needed)
    }

    /// The variance that iterations alone give to a boot's statistic, with
    /// `kept` of them.
    fn iteration_variance(&self, kept: f64) -> f64 {
        let [a, b] = [0, 1].map(|arm| iteration_noise(&self.runs(arm)).powi(2));
        MEDIAN_VARIANCE * f64::midpoint(a, b) / kept
    }

    fn evidence(&self, discard: usize) -> Option<RatioEstimate> {
        let warm_ups = self.warm_ups();
        let logs = |arm: usize| -> Vec<f64> {
            let blocks = self.counted(discard);
            blocks.map(|block| boot_log(&block.logs[arm], discard, warm_ups[arm])).collect()
        };
        let worse = match self.question.better {
            BetterDirection::Lower => 1.0,
            BetterDirection::Higher => -1.0,
        };
        let lost = |arm: usize| -> Option<Vec<f64>> {
            let steal = self.counted(discard).map(|block| block.host[arm].get(HostSign::Steal));
            steal.map(|steal| steal.map(|lost| worse * lost)).collect()
        };
        let lost = lost(0).zip(lost(1)).map(|(a, b)| [a, b]);
        let boots = BootLogs { logs: [logs(0), logs(1)], lost };
        let kept: f64 = self
            .counted(discard)
            .map(|block| block.logs[0].iter().map(|run| kept(run, discard).len()).sum::<usize>())
            .map(|kept| 1.0 / kept as f64)
            .sum();
        let n = self.counted(discard).count() as f64;
        let floor = self.iteration_variance(n / kept);
        RatioEstimate::of(&boots, floor, self.policy.pool)
    }

    /// Invocations in a boot until it is known what they are good for.
    fn tried_invocations(&self) -> u32 {
        let RepetitionCosts { boot, invocation, iteration } = self.question.costs;
        let run = invocation + iteration * f64::from(self.policy.first_iterations);
        let is_cheap = run <= self.policy.cheap_invocation * boot;
        if is_cheap { TRIED_INVOCATIONS.min(self.policy.most_invocations) } else { 1 }
    }

    /// The variance between invocations beyond what iterations explain; 0 where
    /// boots have only one.
    fn invocation_variance(&self, discard: usize) -> f64 {
        let of = |arm: usize| {
            let boots: Vec<Vec<Vec<f64>>> = self
                .counted(discard)
                .map(|block| {
                    block.logs[arm].iter().map(|run| kept(run, discard).to_vec()).collect()
                })
                .collect();
            components(&boots).map_or(0.0, |components| components.invocation)
        };
        f64::midpoint(of(0), of(1))
    }

    fn allocation(&self, discard: usize) -> Allocation {
        let AdaptivePolicy { first_iterations, least_iterations, most_iterations, .. } =
            self.policy;
        let tried = self.tried_invocations();
        if self.blocks.is_empty() {
            let iterations = first_iterations.min(most_iterations);
            return Allocation { invocations: tried, iterations };
        }
        let discarded = discard as u32;
        let RepetitionCosts { boot, invocation, iteration } = self.question.costs;
        let costs = RepetitionCosts {
            boot,
            invocation: invocation + iteration * f64::from(discarded),
            iteration,
        };
        let single = self.iteration_variance(1.0);
        let between = if tried > 1 { self.invocation_variance(discard) } else { 0.0 };
        // Before boots can be told apart they are taken to differ like
        // iterations; their estimate then takes over.
        let boots = self.evidence(discard).map(|evidence| evidence.boot_variance());
        let n = (self.counted(discard).count() as f64 - 1.0).max(0.0);
        let boot = boots.map_or(single, |boots| {
            let explained = between * self.share_of_invocations(discard);
            (n * (boots - explained).max(0.0) + single) / (n + 1.0)
        });
        let few = (n as u32) < self.policy.first_look;
        let least =
            Allocation { invocations: if few { tried } else { 1 }, iterations: least_iterations };
        let most = Allocation {
            invocations: if tried > 1 { self.policy.most_invocations } else { 1 },
            iterations: most_iterations,
        };
        let components = Components { boot, invocation: between, iteration: single };
        let Allocation { invocations, iterations } = allocate(components, costs, least, most);
        Allocation { invocations, iterations: (discarded + iterations).min(most_iterations) }
    }

    /// The part of the variance of invocations that remains in a boot's number.
    fn share_of_invocations(&self, discard: usize) -> f64 {
        let shares = self.counted(discard).map(|block| 1.0 / block.logs[0].len() as f64);
        let n = self.counted(discard).count() as f64;
        shares.sum::<f64>() / n.max(1.0)
    }

    fn decide(
        &self,
        evidence: &RatioEstimate,
        levels: &Levels,
        discard: usize,
    ) -> Option<AdaptiveAnswer> {
        let apart = evidence.half_width(levels.difference(evidence.n)?);
        let inside = evidence.half_width(levels.equivalence(evidence.n)?);
        let known =
            LogRatio { mean: evidence.mean, half_width: apart, half_width_of_equivalence: inside };
        let margin = self.question.margin;
        let claim = AdaptiveClaim::from(&known.verdict(self.question.better, margin, |_| 0));
        let obvious = evidence.mean.abs() > self.policy.obvious * margin.ln_1p();
        let may_claim = obvious || evidence.n >= self.policy.first_claim.min(levels.last());
        match claim {
            AdaptiveClaim::Inconclusive => return None,
            AdaptiveClaim::BBetter | AdaptiveClaim::BWorse if !may_claim => return None,
            _ => {}
        }
        let host = self.host(claim, evidence, apart, discard);
        if evidence.loss_cost.is_none() && host.is_some_and(|(_, stands)| !stands) {
            return None;
        }
        let mut why = Vec::new();
        if host.is_some_and(|(host, _)| host.weight > DisturbanceWeight::Unclear) {
            why.push(Warning::HostDiffered.to_string());
        }
        if let Some([a, b]) = self.steal().filter(|[a, b]| (b - a).abs() >= NAMED_STEAL) {
            let [a, b] = [a, b].map(|share| 100.0 * share);
            why.push(format!("others took {a:.1} % of A's time and {b:.1} % of B's"));
        }
        if let Some(times) = evidence.loss_cost {
            why.push(format!(
                "what others took from boots is taken out, at x{times:.2} of what steal says"
            ));
        }
        let why = why.join("; ");
        Some(self.answer(claim, evidence, apart, why))
    }

    /// Share of the time of the boots of A and of B that others took, in all blocks, counted or
    /// not, where it is known of both.
    fn steal(&self) -> Option<[f64; 2]> {
        let share = |host: &Disturbance| Some(-(-host.get(HostSign::Steal)?).exp_m1());
        let known = self
            .blocks
            .iter()
            .filter_map(|PairedBlock { host: [a, b], .. }| Some([share(a)?, share(b)?]));
        let (n, sums) =
            known.fold((0, [0.0; 2]), |(n, [a, b]), block| (n + 1, [a + block[0], b + block[1]]));
        (n > 0).then(|| sums.map(|sum| sum / f64::from(n)))
    }

    /// What others took from one side more, where it is seen and more than
    /// nothing to `claim`, and whether the claim stands all the same.
    fn host(
        &self,
        claim: AdaptiveClaim,
        evidence: &RatioEstimate,
        half_width: f64,
        discard: usize,
    ) -> Option<(HostDifference, bool)> {
        let claimed = HostVerdict {
            mean: evidence.mean,
            half_width,
            better: self.question.better,
            claim: match claim {
                AdaptiveClaim::Equivalent => disturbance::ClaimKind::NoDifference,
                AdaptiveClaim::Inconclusive => disturbance::ClaimKind::None,
                AdaptiveClaim::BBetter | AdaptiveClaim::BWorse => {
                    disturbance::ClaimKind::Difference
                }
            },
        };
        let host: Vec<_> = self.counted(discard).map(|block| block.host.clone()).collect();
        let mut seen = disturbance::differences(&host, claimed);
        seen.retain(|found| found.weight >= DisturbanceWeight::Unclear);
        let found = *seen.first()?;
        Some((found, found.weight > DisturbanceWeight::Unclear && claimed.survives_all_of(&found)))
    }

    fn answer(
        &self,
        claim: AdaptiveClaim,
        evidence: &RatioEstimate,
        half_width: f64,
        why: String,
    ) -> AdaptiveAnswer {
        let RatioEstimate { n, mean, .. } = *evidence;
        let (lo, hi) = (ratio_of(mean - half_width), ratio_of(mean + half_width));
        AdaptiveAnswer { claim, ratio: ratio_of(mean), lo, hi, blocks: n, steal: self.steal(), why }
    }

    fn end(&self, evidence: Option<&RatioEstimate>, levels: &Levels, why: &str) -> AdaptiveStep {
        let width = |evidence: &RatioEstimate| {
            levels.difference(evidence.n).map(|level| evidence.half_width(level))
        };
        match evidence.and_then(|evidence| width(evidence).map(|width| (evidence, width))) {
            Some((evidence, width)) => {
                let discard = self.discard();
                let host = self.host(AdaptiveClaim::Inconclusive, evidence, width, discard);
                let beyond = host.filter(|(host, _)| {
                    evidence.loss_cost.is_none() && host.weight == DisturbanceWeight::Beyond
                });
                let why = beyond.map_or(why.to_owned(), |(host, _)| {
                    Invalidity::HostDiffered { host }.to_string()
                });
                AdaptiveStep::Answer(self.answer(AdaptiveClaim::Inconclusive, evidence, width, why))
            }
            None => self.give_up(why),
        }
    }

    fn give_up(&self, why: &str) -> AdaptiveStep {
        AdaptiveStep::Answer(AdaptiveAnswer {
            claim: AdaptiveClaim::Inconclusive,
            ratio: 1.0,
            lo: ratio_of(f64::NEG_INFINITY),
            hi: ratio_of(f64::INFINITY),
            blocks: self.blocks.len() as u32,
            steal: self.steal(),
            why: why.to_owned(),
        })
    }
}

/// What remains of a run without its warm-up: never less than its last third.
fn kept(run: &[f64], discard: usize) -> &[f64] {
    &run[discard.min(run.len() - run.len().div_ceil(3))..]
}

/// One boot's number: the mean of its invocations, of each the median of what is
/// kept, without what is left of the warm-up.
fn boot_log(invocations: &[Vec<f64>], discard: usize, warm_up: Option<WarmUp>) -> f64 {
    let warm = |place: usize| warm_up.map_or(0.0, |found| found.at(place as f64));
    let level = |run: &Vec<f64>| {
        let kept = kept(run, discard);
        let first = run.len() - kept.len();
        let logs: Vec<f64> = kept.iter().zip(first..).map(|(log, at)| log - warm(at)).collect();
        median(&logs)
    };
    let medians = invocations.iter().map(level);
    medians.sum::<f64>() / invocations.len() as f64
}

/// The block of these trials, if both configurations have usable values.
fn block(trials: &[AdaptiveTrial]) -> Option<PairedBlock> {
    let of = |arm: Arm| {
        let trial = trials.iter().find(|trial| trial.arm == arm)?;
        let finite = |run: &Vec<f64>| -> Vec<f64> {
            run.iter().filter(|value| value.is_finite()).copied().collect()
        };
        let runs: Vec<Vec<f64>> =
            trial.invocations.iter().map(finite).filter(|run| !run.is_empty()).collect();
        (!runs.is_empty()).then_some(runs)
    };
    let (a, b) = (of(Arm::A)?, of(Arm::B)?);
    let all_zero = |runs: &[Vec<f64>]| runs.iter().flatten().all(|value| *value == 0.0);
    let equal = all_zero(&a) && all_zero(&b);
    let logs = |runs: Vec<Vec<f64>>| -> Option<Vec<Vec<f64>>> {
        // Zeros have no ratio, unless there is nothing else.
        let log = |value: f64| if equal { 0.0 } else { value.ln() };
        let logs: Vec<Vec<f64>> =
            runs.into_iter().map(|run| run.into_iter().map(log).collect()).collect();
        logs.iter().flatten().all(|log| log.is_finite()).then_some(logs)
    };
    let host = [Arm::A, Arm::B].map(|arm| {
        let of_it = trials.iter().filter(|trial| trial.arm == arm).flat_map(|trial| &trial.steal);
        let shares: Vec<f64> = of_it.copied().filter(|share| share.is_finite()).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let seen = (!shares.is_empty()).then(|| (HostSign::Steal, lost(mean)));
        Disturbance { signs: seen.into_iter().collect(), own: None }
    });
    Some(PairedBlock { logs: [logs(a)?, logs(b)?], host })
}

#[cfg(test)]
mod tests;
