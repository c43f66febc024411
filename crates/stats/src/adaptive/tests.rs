//! Whole cases against small laboratories.

use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::*;
use crate::tests::normal;

fn question() -> AdaptiveQuestion {
    AdaptiveQuestion {
        better: BetterDirection::Lower,
        alpha: 0.05,
        margin: 0.03,
        max_blocks: 40,
        max_s: None,
        costs: RepetitionCosts { boot: 8.0, invocation: 1.0, iteration: 1.0 },
        seed: 1,
    }
}

/// Plays a case to its end: `value(arm, block, iteration)`, and the greatest
/// number of iterations that was asked for.
fn play(
    question: AdaptiveQuestion,
    mut value: impl FnMut(Arm, u32, u32) -> f64,
) -> (AdaptiveAnswer, u32, AdaptiveComparison) {
    let (answer, asked, case) = play_runs(question, 1.0, |arm, block, _, i| value(arm, block, i));
    (answer, asked.iter().map(|asked| asked.iterations).max().unwrap(), case)
}

/// The same for `value(arm, block, invocation, iteration)`, in a laboratory that
/// takes `slowness` seconds for a unit of cost; with all that was asked for.
fn play_runs(
    question: AdaptiveQuestion,
    slowness: f64,
    mut value: impl FnMut(Arm, u32, u32, u32) -> f64,
) -> (AdaptiveAnswer, Vec<Allocation>, AdaptiveComparison) {
    let mut case = AdaptiveComparison::new(question, AdaptivePolicy::default()).unwrap();
    let (mut asked, mut now_s) = (Vec::new(), 0.0);
    for block in 0..=question.max_blocks {
        match case.step() {
            AdaptiveStep::Answer(answer) => return (answer, asked, case),
            AdaptiveStep::Block { order, allocation } => {
                asked.push(allocation);
                let trials = order.map(|arm| {
                    let run = |invocation: u32| -> Vec<f64> {
                        (0..allocation.iterations)
                            .map(|i| value(arm, block, invocation, i))
                            .collect()
                    };
                    let invocations = (0..allocation.invocations).map(run).collect();
                    let started_s = Some(now_s);
                    now_s += slowness * case.costs(allocation) / 2.0;
                    AdaptiveTrial { arm, started_s, invocations, steal: Vec::new() }
                });
                case.record(&trials);
            }
        }
    }
    panic!("More blocks than allowed");
}

/// Where a boot costs far more than a run, and runs differ more than boots.
#[test]
fn invocations_are_repeated_where_that_pays() {
    let dear = AdaptiveQuestion {
        costs: RepetitionCosts { boot: 100.0, invocation: 1.0, iteration: 0.1 },
        ..question()
    };
    let invocations = |question: AdaptiveQuestion, boots: f64, runs: f64| {
        let mut random = Pcg64::seed_from_u64(66);
        let (mut boot, mut run) = ((Arm::A, u32::MAX, 0.0), (Arm::A, u32::MAX, u32::MAX, 0.0));
        let (answer, asked, case) = play_runs(question, 1.0, |arm, block, invocation, _| {
            if (boot.0, boot.1) != (arm, block) {
                boot = (arm, block, boots * normal(&mut random));
            }
            if (run.0, run.1, run.2) != (arm, block, invocation) {
                run = (arm, block, invocation, runs * normal(&mut random));
            }
            (boot.2 + run.3 + 0.003 * normal(&mut random)).exp()
        });
        assert!(answer.lo < 1.0 && answer.hi > 1.0, "{answer:?}");
        assert_eq!(asked[0].invocations, if question.costs.boot > 50.0 { 2 } else { 1 });
        case.allocation(case.discard()).invocations
    };
    assert_eq!(invocations(dear, 0.002, 0.02), AdaptivePolicy::default().most_invocations);
    assert!(invocations(AdaptiveQuestion { max_blocks: 8, ..dear }, 0.03, 0.001) <= 2);
    // Where a run is not much cheaper than a boot none is repeated to find out.
    assert_eq!(invocations(question(), 0.002, 0.02), 1);
}

#[test]
fn fewer_invocations_than_asked_for_are_taken_as_a_limit() {
    let costs = RepetitionCosts { boot: 100.0, invocation: 1.0, iteration: 0.1 };
    let mut case = AdaptiveComparison::new(
        AdaptiveQuestion { costs, ..question() },
        AdaptivePolicy::default(),
    )
    .unwrap();
    let trial = |arm| AdaptiveTrial {
        arm,
        started_s: None,
        invocations: vec![vec![1.0, 1.02, 0.99, 1.01, 1.0, 0.98, 1.01, 1.0]],
        steal: Vec::new(),
    };
    for (invocations, iterations) in [(2, 8), (1, 8)] {
        let AdaptiveStep::Block { allocation, .. } = case.step() else {
            panic!("{:?}", case.step())
        };
        assert_eq!(allocation.invocations, invocations, "{allocation:?} {iterations}");
        case.record(&[trial(Arm::A), trial(Arm::B)]);
    }
}

#[test]
fn no_case_outlasts_its_time() {
    let mut most = Vec::new();
    for (max_s, slowness) in [(500.0, 1.0), (500.0, 3.0), (200.0, 1.0), (90.0, 1.0)] {
        let mut random = Pcg64::seed_from_u64(67);
        let mut boot = (Arm::A, u32::MAX, 0.0);
        let timed = AdaptiveQuestion { max_s: Some(max_s), ..question() };
        let (answer, asked, case) = play_runs(timed, slowness, |arm, block, _, _| {
            if (boot.0, boot.1) != (arm, block) {
                boot = (arm, block, 0.016 * normal(&mut random));
            }
            (boot.2 + if arm == Arm::B { 0.025 } else { 0.0 }).exp()
        });
        assert!(case.used_s() <= max_s, "{} of {max_s}", case.used_s());
        let ended = answer.claim != AdaptiveClaim::Inconclusive || !answer.why.is_empty();
        assert!(ended, "{answer:?}");
        most.push(asked.len());
    }
    assert!(most[0] > most[1] && most[0] > most[2] && most[2] > most[3], "{most:?}");
    let none = AdaptiveQuestion { max_s: Some(0.0), ..question() };
    assert_eq!(
        AdaptiveComparison::new(none, AdaptivePolicy::default()).unwrap_err(),
        InvalidPlan::Time(0.0)
    );
}

#[test]
fn a_clear_difference_takes_the_fewest_blocks() {
    let mut random = Pcg64::seed_from_u64(61);
    let (answer, ..) = play(question(), |arm, _, _| {
        let level = if arm == Arm::B { 200.0 } else { 300.0 };
        level * (0.005 * normal(&mut random)).exp()
    });
    assert_eq!((answer.claim, answer.blocks), (AdaptiveClaim::BBetter, 3), "{answer:?}");
    assert!(answer.lo < 2.0 / 3.0 && 2.0 / 3.0 < answer.hi && answer.hi < 0.7);
}

#[test]
fn a_hopeless_case_is_given_up_soon() {
    let mut random = Pcg64::seed_from_u64(62);
    let mut boot = (Arm::A, u32::MAX, 0.0);
    let (answer, ..) = play(question(), |arm, block, _| {
        if (boot.0, boot.1) != (arm, block) {
            boot = (arm, block, 0.3 * normal(&mut random));
        }
        f64::exp(boot.2)
    });
    assert_eq!(answer.claim, AdaptiveClaim::Inconclusive);
    assert!(answer.blocks < 8 && answer.why.contains("worth"), "{answer:?}");
    assert!(answer.lo < 1.0 && answer.hi > 1.0);
}

#[test]
fn an_unequal_warm_up_is_no_difference() {
    let mut random = Pcg64::seed_from_u64(63);
    let (answer, longest, case) = play(question(), |arm, _, iteration| {
        let length = if arm == Arm::B { 5.0 } else { 1.0 };
        (0.4 * (-f64::from(iteration) / length).exp() + 0.005 * normal(&mut random)).exp()
    });
    assert_eq!(answer.claim, AdaptiveClaim::Equivalent, "{answer:?}");
    assert!(longest > 20 && case.discard() > 15, "{longest} {}", case.discard());
}

#[test]
fn runs_that_never_become_level_are_said() {
    let mut random = Pcg64::seed_from_u64(64);
    let (answer, ..) = play(question(), |arm, _, iteration| {
        let slope = if arm == Arm::B { 0.02 } else { 0.01 };
        (-slope * f64::from(iteration) + 0.002 * normal(&mut random)).exp()
    });
    assert_eq!(answer.claim, AdaptiveClaim::Inconclusive);
    assert!(answer.why.starts_with("no steady state"), "{answer:?}");
}

/// Others take a part of every other boot or so, of A and B by turns, which costs 1.2 times what
/// steal says.
#[test]
fn what_others_took_is_taken_out() {
    let end = |better: BetterDirection, told: bool| {
        let question = AdaptiveQuestion { better, ..question() };
        let mut random = Pcg64::seed_from_u64(68);
        let mut case = AdaptiveComparison::new(question, AdaptivePolicy::default()).unwrap();
        let towards = if better == BetterDirection::Lower { 1.0 } else { -1.0 };
        for block in 0..40 {
            let AdaptiveStep::Block { allocation, .. } = case.step() else { break };
            let trials = [(Arm::A, 0.0), (Arm::B, 0.1)].map(|(arm, effect)| {
                let steal = [0.0, 0.3, 0.1, 0.25, 0.0][(block + arm as usize) % 5];
                let level = effect + towards * 1.2 * lost(steal);
                let value = |_| (level + 0.005 * normal(&mut random)).exp();
                let invocations = vec![(0..allocation.iterations).map(value).collect()];
                let steal = if told { vec![steal] } else { Vec::new() };
                AdaptiveTrial { arm, started_s: None, invocations, steal }
            });
            case.record(&trials);
        }
        match case.step() {
            AdaptiveStep::Answer(answer) => answer,
            step @ AdaptiveStep::Block { .. } => panic!("{step:?}"),
        }
    };
    let claims = [AdaptiveClaim::BWorse, AdaptiveClaim::BBetter];
    for (better, claim) in [BetterDirection::Lower, BetterDirection::Higher].into_iter().zip(claims)
    {
        let answer = end(better, true);
        assert_eq!(answer.claim, claim, "{answer:?}");
        assert!(answer.lo < 0.1_f64.exp() && 0.1_f64.exp() < answer.hi, "{answer:?}");
        // Block by block 0, 30, 10, 25, 0 % from A and 30, 10, 25, 0, 0 % from B.
        let [a, b] = answer.steal.unwrap();
        assert!((0.09..0.17).contains(&a) && (0.09..0.25).contains(&b), "{answer:?}");
        let told =
            format!("others took {:.1} % of A's time and {:.1} % of B's", 100.0 * a, 100.0 * b);
        assert_eq!(answer.why.contains(&told), (a - b).abs() >= 0.001, "{answer:?}");
        let times = answer.why.split_once("taken out, at x").unwrap().1;
        assert!(times.starts_with("1.2") || times.starts_with("1.1"), "{answer:?}");
        let untold = end(better, false);
        assert!(untold.claim == AdaptiveClaim::Inconclusive && untold.steal.is_none());
    }
}

#[test]
fn noise_decides_between_iterations_and_boots() {
    let mut random = Pcg64::seed_from_u64(65);
    let mut iterations = |boots: f64, single: f64| {
        let mut boot = (Arm::A, u32::MAX, 0.0);
        let (.., case) = play(AdaptiveQuestion { max_blocks: 6, ..question() }, |arm, block, _| {
            if (boot.0, boot.1) != (arm, block) {
                boot = (arm, block, boots * normal(&mut random));
            }
            (boot.2 + single * normal(&mut random)).exp()
        });
        case.allocation(case.discard()).iterations
    };
    assert!(iterations(0.03, 0.005) <= 5);
    assert!(iterations(0.002, 0.05) >= 8);
}

#[test]
fn orders_are_balanced_in_pairs() {
    let mut case = AdaptiveComparison::new(question(), AdaptivePolicy::default()).unwrap();
    let mut first = Vec::new();
    for _ in 0..20 {
        first.push(case.order()[0]);
        case.asked += 1;
    }
    assert!(first.chunks(2).all(|pair| pair[0] != pair[1]));
    assert!(first.chunks(2).any(|pair| pair[0] == Arm::A));
    assert!(first.chunks(2).any(|pair| pair[0] == Arm::B));
}

#[test]
fn questions_without_sense_are_refused() {
    let error =
        |question| AdaptiveComparison::new(question, AdaptivePolicy::default()).unwrap_err();
    assert_eq!(error(AdaptiveQuestion { max_blocks: 0, ..question() }), InvalidPlan::NoBlocks);
    assert_eq!(error(AdaptiveQuestion { alpha: 0.5, ..question() }), InvalidPlan::Alpha(0.5));
    assert_eq!(error(AdaptiveQuestion { margin: 0.0, ..question() }), InvalidPlan::Margin(0.0));
    let one = AdaptiveComparison::new(
        AdaptiveQuestion { max_blocks: 1, ..question() },
        AdaptivePolicy::default(),
    )
    .unwrap();
    assert!(
        matches!(one.step(), AdaptiveStep::Answer(answer) if answer.claim == AdaptiveClaim::Inconclusive)
    );
}
