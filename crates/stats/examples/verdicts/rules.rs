//! The rules that are compared, each with the design that its users run.

use record::BetterDirection;
use stats::{
    AdaptiveAnswer, AdaptiveClaim, AdaptiveComparison, AdaptivePolicy, AdaptiveQuestion,
    AdaptiveStep, AdaptiveTrial, Arm, RepetitionCosts, mann_whitney, welch,
};

use crate::laboratory::{self, Laboratory, MARGIN, Noise};
use crate::tally::Verdict;

const ALPHA: f64 = 0.05;
/// Iterations of a boot where a design does not choose them.
const ITERATIONS: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// `vmlab decide`.
    Engine,
    /// benchstat's rule as it is usual: 5 boots of A, then 5 of B, all
    /// iterations in one pot.
    BenchstatPooled,
    /// benchstat's rule at its best: 10 boots each in random order, one number
    /// a boot.
    BenchstatInterleaved,
    /// MMTests: 5 boots each, one after the other, all iterations in one pot;
    /// a difference must exceed both 1.96 standard deviations together.
    MmTests,
    /// Welch's t test: 10 boots of A, then 10 of B, one number a boot.
    Welch,
    /// Welch's t test and two one-sided ones, 25 boots each in random order.
    WelchTost,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] = [
        Self::Engine,
        Self::BenchstatPooled,
        Self::BenchstatInterleaved,
        Self::MmTests,
        Self::Welch,
        Self::WelchTost,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Engine => "vmlab",
            Self::BenchstatPooled => "benchstat, A then B, pooled (5 boots)",
            Self::BenchstatInterleaved => "benchstat, interleaved (10 boots)",
            Self::MmTests => "MMTests (5 boots)",
            Self::Welch => "Welch, A then B (10 boots)",
            Self::WelchTost => "Welch and TOST, interleaved (25 boots)",
        }
    }

    /// The verdict about a case, and the machine seconds that it took.
    pub(crate) fn judge(self, noise: Noise, effect: f64, seed: u64) -> (Verdict, f64) {
        let mut laboratory = Laboratory::new(noise, effect, seed);
        let verdict = match self {
            Self::Engine => engine(&mut laboratory, seed),
            Self::BenchstatPooled => benchstat(&run(&mut laboratory, 5, false).map(pooled)),
            Self::BenchstatInterleaved => benchstat(&run(&mut laboratory, 10, true).map(by_boot)),
            Self::MmTests => mmtests(&run(&mut laboratory, 5, false).map(pooled)),
            Self::Welch => by_welch(&run(&mut laboratory, 10, false).map(by_boot), false),
            Self::WelchTost => by_welch(&run(&mut laboratory, 25, true).map(by_boot), true),
        };
        (verdict, laboratory.spent_s)
    }
}

fn engine(laboratory: &mut Laboratory, seed: u64) -> Verdict {
    let answer = answer(laboratory, seed);
    let sign = match answer.claim {
        AdaptiveClaim::BBetter => -1,
        AdaptiveClaim::BWorse => 1,
        AdaptiveClaim::Equivalent | AdaptiveClaim::Inconclusive => 0,
    };
    Verdict {
        sign,
        equivalent: answer.claim == AdaptiveClaim::Equivalent,
        interval: Some((answer.lo.ln(), answer.hi.ln())),
    }
}

/// Whether an answer says that others took something.
pub(crate) fn names_the_host(answer: &AdaptiveAnswer) -> bool {
    answer.why.contains("host disturbed one side") || answer.why.contains("others took")
}

/// Whether others took a thousandth of the time of B's boots: where they take nothing else, a claim
/// must say so.
pub(crate) fn takes_from_b(laboratory: &Laboratory) -> bool {
    laboratory.stolen.iter().sum::<f64>() / laboratory.stolen.len() as f64 >= 0.001
}

/// What `vmlab decide` says of a laboratory.
pub(crate) fn answer(laboratory: &mut Laboratory, seed: u64) -> AdaptiveAnswer {
    let question = AdaptiveQuestion {
        better: BetterDirection::Lower,
        alpha: ALPHA,
        margin: MARGIN,
        max_blocks: 40,
        max_s: None,
        costs: RepetitionCosts {
            boot: laboratory::BOOT_S,
            invocation: laboratory::INVOCATION_S,
            iteration: laboratory::ITERATION_S,
        },
        seed,
    };
    let mut case = AdaptiveComparison::new(question, AdaptivePolicy::default())
        .expect("the question makes sense");
    loop {
        match case.step() {
            AdaptiveStep::Block { order, allocation } => {
                let trials = order.map(|arm| {
                    laboratory.run(
                        arm,
                        allocation.invocations as usize,
                        allocation.iterations as usize,
                    )
                });
                case.record(&trials);
            }
            AdaptiveStep::Answer(answer) => return answer,
        }
    }
}

/// All boots of A and of B: in turn, the first by chance, or one after the
/// other.
fn run(laboratory: &mut Laboratory, boots: usize, interleaved: bool) -> [Vec<AdaptiveTrial>; 2] {
    let mut trials = [Vec::new(), Vec::new()];
    let mut boot = |laboratory: &mut Laboratory, arm: Arm| {
        trials[usize::from(arm == Arm::B)].push(laboratory.run(arm, 1, ITERATIONS));
    };
    if interleaved {
        for _ in 0..boots {
            let order = if laboratory.coin() { [Arm::A, Arm::B] } else { [Arm::B, Arm::A] };
            order.into_iter().for_each(|arm| boot(laboratory, arm));
        }
    } else {
        for arm in [Arm::A, Arm::B] {
            (0..boots).for_each(|_| boot(laboratory, arm));
        }
    }
    trials
}

fn values(trial: &AdaptiveTrial) -> impl Iterator<Item = f64> {
    trial.invocations.iter().flatten().copied()
}

fn pooled(trials: Vec<AdaptiveTrial>) -> Vec<f64> {
    trials.iter().flat_map(values).collect()
}

fn by_boot(trials: Vec<AdaptiveTrial>) -> Vec<f64> {
    let mean = |trial: &AdaptiveTrial| values(trial).sum::<f64>() / values(trial).count() as f64;
    trials.iter().map(mean).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

fn sign(claims: bool, difference: f64) -> i8 {
    match (claims, difference > 0.0) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => -1,
    }
}

fn benchstat([a, b]: &[Vec<f64>; 2]) -> Verdict {
    let claims = mann_whitney(a, b).is_ok_and(|p| p < ALPHA);
    Verdict { sign: sign(claims, median(b) - median(a)), equivalent: false, interval: None }
}

fn mmtests([a, b]: &[Vec<f64>; 2]) -> Verdict {
    let part = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, 1.96 * (squares / (n - 1.0)).sqrt())
    };
    let ((mean_a, half_a), (mean_b, half_b)) = (part(a), part(b));
    let claims = (mean_b - mean_a).abs() > half_a + half_b;
    Verdict { sign: sign(claims, mean_b - mean_a), equivalent: false, interval: None }
}

fn by_welch(samples: &[Vec<f64>; 2], tost: bool) -> Verdict {
    let [a, b] = samples.each_ref().map(|s| s.iter().map(|value| value.ln()).collect::<Vec<_>>());
    let Ok(wide) = welch(&a, &b, 1.0 - ALPHA) else {
        return Verdict { sign: 0, equivalent: false, interval: None };
    };
    let claims = !wide.interval.contains(0.0);
    let inside = welch(&a, &b, 1.0 - 2.0 * ALPHA).is_ok_and(|narrow| {
        let margin = MARGIN.ln_1p();
        narrow.interval.lo > -margin && narrow.interval.hi < margin
    });
    Verdict {
        sign: sign(claims, wide.difference),
        equivalent: tost && inside && !claims,
        interval: Some((wide.interval.lo, wide.interval.hi)),
    }
}
