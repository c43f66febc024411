//! Whole cases against small laboratories.

use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::*;
use crate::tests::normal;

fn question() -> Question {
    Question {
        better: Better::Lower,
        alpha: 0.05,
        margin: 0.03,
        max_blocks: 40,
        costs: Costs { boot: 8.0, invocation: 1.0, iteration: 1.0 },
        seed: 1,
    }
}

/// Plays a case to its end: `value(arm, block, iteration)`, and the greatest
/// number of iterations that was asked for.
fn play(question: Question, mut value: impl FnMut(Arm, u32, u32) -> f64) -> (Answer, u32, Case) {
    let mut case = Case::new(question, Policy::default()).unwrap();
    let mut longest = 0;
    for block in 0..=question.max_blocks {
        match case.step() {
            Step::Answer(answer) => return (answer, longest, case),
            Step::Block { order, allocation } => {
                longest = longest.max(allocation.iterations);
                let trials = order.map(|arm| Trial {
                    arm,
                    started_s: None,
                    invocations: vec![
                        (0..allocation.iterations).map(|i| value(arm, block, i)).collect(),
                    ],
                    steal: Vec::new(),
                });
                case.record(&trials);
            }
        }
    }
    panic!("More blocks than allowed");
}

#[test]
fn a_clear_difference_takes_the_fewest_blocks() {
    let mut random = Pcg64::seed_from_u64(61);
    let (answer, ..) = play(question(), |arm, _, _| {
        let level = if arm == Arm::B { 200.0 } else { 300.0 };
        level * (0.005 * normal(&mut random)).exp()
    });
    assert_eq!((answer.claim, answer.blocks), (Claim::BBetter, 4), "{answer:?}");
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
    assert_eq!(answer.claim, Claim::Inconclusive);
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
    assert_eq!(answer.claim, Claim::Equivalent, "{answer:?}");
    assert!(longest > 20 && case.discard() > 15, "{longest} {}", case.discard());
}

#[test]
fn runs_that_never_become_level_are_said() {
    let mut random = Pcg64::seed_from_u64(64);
    let (answer, ..) = play(question(), |arm, _, iteration| {
        let slope = if arm == Arm::B { 0.02 } else { 0.01 };
        (-slope * f64::from(iteration) + 0.002 * normal(&mut random)).exp()
    });
    assert_eq!(answer.claim, Claim::Inconclusive);
    assert!(answer.why.starts_with("no steady state"), "{answer:?}");
}

#[test]
fn blocks_with_steal_are_set_aside_whole() {
    let mut case = Case::new(question(), Policy::default()).unwrap();
    let mut record = |steal: f64, b: f64| {
        let trial = |arm, level: f64, steal| Trial {
            arm,
            started_s: None,
            invocations: vec![vec![level, 1.01 * level, 0.99 * level, level, level]],
            steal: vec![steal],
        };
        case.record(&[trial(Arm::A, 1.0, 0.0), trial(Arm::B, b, steal)]);
        case.counted(1).count()
    };
    assert_eq!([record(0.0, 1.0), record(0.3, 2.0), record(0.0, 1.0)], [1, 1, 2]);
    // Where most blocks have it, it is the host that is so.
    assert_eq!([record(0.3, 1.0), record(0.2, 1.0)], [2, 5]);
}

#[test]
fn noise_decides_between_iterations_and_boots() {
    let mut random = Pcg64::seed_from_u64(65);
    let mut iterations = |boots: f64, single: f64| {
        let mut boot = (Arm::A, u32::MAX, 0.0);
        let (.., case) = play(Question { max_blocks: 6, ..question() }, |arm, block, _| {
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
    let mut case = Case::new(question(), Policy::default()).unwrap();
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
    let error = |question| Case::new(question, Policy::default()).unwrap_err();
    assert_eq!(error(Question { max_blocks: 0, ..question() }), InvalidPlan::NoBlocks);
    assert_eq!(error(Question { alpha: 0.5, ..question() }), InvalidPlan::Alpha(0.5));
    assert_eq!(error(Question { margin: 0.0, ..question() }), InvalidPlan::Margin(0.0));
    let one = Case::new(Question { max_blocks: 1, ..question() }, Policy::default()).unwrap();
    assert!(matches!(one.step(), Step::Answer(answer) if answer.claim == Claim::Inconclusive));
}
