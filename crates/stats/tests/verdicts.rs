//! The rates that `docs/statistics.md` promises, on few cases: bounds are
//! loose, and `make bench` measures them well.

#[path = "../examples/verdicts/laboratory.rs"]
mod laboratory;
#[path = "../examples/verdicts/rules.rs"]
mod rules;
#[path = "../examples/verdicts/tally.rs"]
mod tally;

use laboratory::{Laboratory, Noise, TRUTHS};
use rules::{Rule, answer, names_the_host, takes_from_b};
use stats::{AdaptiveAnswer, AdaptiveClaim};
use tally::Tally;

const CASES: u64 = 12;

fn tally(rule: Rule, noise: Noise) -> Tally {
    let mut tally = Tally::default();
    for (number, truth) in TRUTHS.iter().enumerate() {
        for case in 0..CASES {
            let seed = 7 << 56 | (noise as u64) << 48 | (number as u64) << 32 | case;
            let (verdict, spent_s) = rule.judge(noise, truth.ln(), seed);
            tally.count(truth.ln(), &verdict, spent_s);
        }
    }
    tally
}

#[test]
fn the_engine_keeps_its_promises_in_every_noise() {
    let mut all = Vec::new();
    for noise in Noise::ALL {
        let tally = tally(Rule::Engine, noise);
        // 24 cases without an effect and 24 at the margin: a rate of 5 % gives
        // more than 4 in one of 200.
        assert!(tally.false_claims <= 4.0, "{noise:?}: {tally:?}");
        assert!(tally.false_equivalent <= 4.0, "{noise:?}: {tally:?}");
        assert!(tally.wrong_sign <= 2.0, "{noise:?}: {tally:?}");
        assert!(tally.covered_percent().unwrap() > 92.0, "{noise:?}: {tally:?}");
        all.push(tally);
    }
    let all: Tally = all.into_iter().sum();
    assert!(all.false_claims_percent() < 4.0, "{all:?}");
    assert!(all.false_equivalent_percent() < 4.0, "{all:?}");
    assert!(all.wrong_sign_percent() < 0.2, "{all:?}");
    assert!(all.covered_percent().unwrap() > 97.0, "{all:?}");
    assert!(all.seconds_by_right() < 260.0, "{all:?}");
}

/// Rates are worse where warm-ups are of shapes that it does not fit, but not by much.
#[test]
fn warm_ups_of_other_shapes_are_seen() {
    for noise in Noise::WARM_UPS {
        let tally = tally(Rule::Engine, noise);
        assert!(tally.false_claims <= 6.0 && tally.false_equivalent <= 6.0, "{noise:?}: {tally:?}");
        assert!(tally.wrong_sign <= 3.0, "{noise:?}: {tally:?}");
        assert!(tally.covered_percent().unwrap() > 92.0, "{noise:?}: {tally:?}");
    }
}

/// The answers where others take their share beside B alone, each with its truth, and whether they
/// took anything.
fn beside_b(noise: Noise) -> Vec<(f64, bool, AdaptiveAnswer)> {
    let mut answers = Vec::new();
    for (number, truth) in TRUTHS.iter().enumerate() {
        for case in 0..4 * CASES {
            let seed = 8 << 56 | (noise as u64) << 48 | (number as u64) << 32 | case;
            let mut laboratory = Laboratory::new(noise, truth.ln(), seed);
            laboratory.with_b = true;
            let answer = answer(&mut laboratory, seed);
            answers.push((*truth, takes_from_b(&laboratory), answer));
        }
    }
    answers
}

/// Where neighbours come and go what they took is known from B's other boots.
#[test]
fn neighbours_that_come_beside_one_side_make_no_difference() {
    let answers = beside_b(Noise::Bursty);
    let without = answers.iter().filter(|(truth, ..)| *truth == 1.0);
    let differs = |claim| matches!(claim, AdaptiveClaim::BBetter | AdaptiveClaim::BWorse);
    let claims = without.clone().filter(|(.., answer)| differs(answer.claim)).count();
    // A rate of 5 % gives more than 10 of 96 in one of 100.
    assert!(without.count() == 96 && claims <= 10, "{claims}");
}

#[test]
fn neighbours_beside_one_side_are_named_with_every_claim() {
    for (noise, least) in [(Noise::Constant, 20), (Noise::Bursty, 200)] {
        let mut claims = 0;
        for (truth, taken, answer) in beside_b(noise) {
            if answer.claim != AdaptiveClaim::Inconclusive && taken {
                claims += 1;
                assert!(names_the_host(&answer), "{noise:?} {truth}: {answer:?}");
            }
        }
        assert!(claims > least, "{noise:?}: {claims}");
    }
}

/// The laboratory is no easier than it should be: it shows what is wrong with
/// the usual designs.
#[test]
fn the_usual_designs_fail_as_they_are_known_to() {
    let of = |rule, noise| tally(rule, noise).false_claims_percent();
    assert!(of(Rule::BenchstatPooled, Noise::Boots) > 25.0);
    assert!(of(Rule::BenchstatInterleaved, Noise::WarmUp) > 80.0);
    assert!(of(Rule::BenchstatInterleaved, Noise::Boots) < 25.0);
    assert!(of(Rule::Welch, Noise::Drift) > 25.0);
    assert!(of(Rule::WelchTost, Noise::Boots) < 20.0);
    let mmtests = tally(Rule::MmTests, Noise::Boots);
    assert!(mmtests.false_claims == 0.0 && mmtests.right < 0.5 * 14.0 * CASES as f64);
    assert!(Tally::head("noise").lines().count() == 2 && mmtests.row("x").ends_with("|\n"));
    assert!(Rule::ALL.iter().all(|rule| !rule.name().is_empty()));
}
