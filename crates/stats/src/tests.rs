//! Laws of the verdicts, and their rates of error over laboratories with a
//! known truth.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::signed_rank::hodges_lehmann;
use crate::*;

fn judge(log_ratios: Vec<f64>, better: BetterDirection) -> Judgement {
    let comparison = Comparison {
        blocks: PairedBlocks { log_ratios },
        better,
        margin: 0.03,
        aa: false,
        host: Vec::new(),
    };
    FixedBlocks::new(5, 0.05).unwrap().judge(&comparison)
}

fn judge_boots(kind: SampleKind, blocks: &[(Vec<f64>, Vec<f64>)]) -> Judgement {
    let boot = |samples: &Vec<f64>| boot_statistic(kind, samples).unwrap();
    let pairs = blocks.iter().map(|(a, b)| (boot(a), boot(b)));
    judge(PairedBlocks::from_boots(pairs).log_ratios, BetterDirection::Lower)
}

/// Samples of 2 to 8 blocks, with 1 to 5 samples in each of the two boots.
fn blocks() -> impl Strategy<Value = Vec<(Vec<f64>, Vec<f64>)>> {
    let boot = || prop::collection::vec(1e-3..1e3_f64, 1..=5);
    prop::collection::vec((boot(), boot()), 2..=8)
}

fn kind() -> impl Strategy<Value = SampleKind> {
    prop::sample::select(vec![
        SampleKind::Time,
        SampleKind::Rate,
        SampleKind::Quantile,
        SampleKind::Count,
    ])
}

fn flipped(verdict: &Verdict) -> std::mem::Discriminant<Verdict> {
    let invalid = Verdict::Invalid { why: Invalidity::WarmingUp };
    let below = Verdict::BelowMargin { b_better: false };
    let undecided = Verdict::NotDecided { at_most: 0.0, half_width: 0.0, more_blocks: 0 };
    std::mem::discriminant(match verdict {
        Verdict::BBetter => &Verdict::BWorse,
        Verdict::BWorse => &Verdict::BBetter,
        Verdict::Equivalent => &Verdict::Equivalent,
        Verdict::BelowMargin { .. } => &below,
        Verdict::NotDecided { .. } => &undecided,
        Verdict::Invalid { .. } => &invalid,
    })
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

/// An end so near to 1 that rounding may push it over.
fn on_the_edge(judgement: &Judgement) -> bool {
    let edge = |interval: Interval| near(interval.lo, 1.0) || near(interval.hi, 1.0);
    judgement.interval.is_none_or(edge)
        || judgement.hodges_lehmann.and_then(|robust| robust.interval).is_some_and(edge)
}

proptest! {
    #[test]
    fn order_does_not_matter(kind in kind(), blocks in blocks(), seed: u64) {
        let mut shuffled = blocks.clone();
        let mut random = Pcg64::seed_from_u64(seed);
        let mut shuffle = |length: usize| -> Vec<usize> {
            let mut order: Vec<usize> = (0..length).collect();
            order.sort_by_key(|_| random.random::<u64>());
            order
        };
        for (a, b) in &mut shuffled {
            *a = shuffle(a.len()).into_iter().map(|i| a[i]).collect();
            *b = shuffle(b.len()).into_iter().map(|i| b[i]).collect();
        }
        let shuffled: Vec<_> =
            shuffle(blocks.len()).into_iter().map(|i| shuffled[i].clone()).collect();
        prop_assert_eq!(judge_boots(kind, &blocks), judge_boots(kind, &shuffled));
    }

    #[test]
    fn the_unit_does_not_matter(blocks in blocks(), exponent in -9..=9_i32, pick in 0..3_usize) {
        let kind = [SampleKind::Time, SampleKind::Rate, SampleKind::Quantile][pick];
        let unit = 10_f64.powi(exponent);
        let scale = |samples: &Vec<f64>| samples.iter().map(|sample| sample * unit).collect();
        let scaled: Vec<_> = blocks.iter().map(|(a, b)| (scale(a), scale(b))).collect();
        let (before, after) = (judge_boots(kind, &blocks), judge_boots(kind, &scaled));
        prop_assert!(near(before.ratio.unwrap(), after.ratio.unwrap()));
        if !on_the_edge(&before) {
            prop_assert_eq!(
                std::mem::discriminant(&before.verdict),
                std::mem::discriminant(&after.verdict)
            );
            prop_assert_eq!(before.warnings, after.warnings);
        }
    }

    #[test]
    fn swapping_turns_the_verdict(kind in kind(), blocks in blocks()) {
        let swapped: Vec<_> = blocks.iter().cloned().map(|(a, b)| (b, a)).collect();
        let (before, after) = (judge_boots(kind, &blocks), judge_boots(kind, &swapped));
        prop_assert!(near(before.ratio.unwrap(), 1.0 / after.ratio.unwrap()));
        prop_assert!(near(before.p.unwrap(), after.p.unwrap()));
        prop_assert_eq!(flipped(&before.verdict), std::mem::discriminant(&after.verdict));
        prop_assert_eq!(before.warnings, after.warnings);
    }

    #[test]
    fn direction_turns_the_words_alone(log_ratios in prop::collection::vec(-1.0..1.0_f64, 2..9)) {
        let lower = judge(log_ratios.clone(), BetterDirection::Lower);
        let higher = judge(log_ratios, BetterDirection::Higher);
        prop_assert_eq!(flipped(&lower.verdict), std::mem::discriminant(&higher.verdict));
        prop_assert_eq!((lower.ratio, lower.interval, lower.p), (higher.ratio, higher.interval, higher.p));
    }

    #[test]
    fn p_and_interval_agree(log_ratios in prop::collection::vec(-1.0..1.0_f64, 2..9)) {
        let judgement = judge(log_ratios, BetterDirection::Lower);
        let (p, interval) = (judgement.p.unwrap(), judgement.interval.unwrap());
        prop_assume!((p - 0.05).abs() > 1e-6);
        prop_assert_eq!(p < 0.05, !interval.contains(1.0));
        prop_assert!(interval.contains(judgement.ratio.unwrap()));
    }

    #[test]
    fn any_number_gets_an_answer(
        a in prop::collection::vec(any::<f64>(), 0..4),
        log_ratios in prop_oneof![
            prop::collection::vec(any::<f64>(), 0..9),
            prop::collection::vec(-750.0..750.0_f64, 0..9),
        ],
        kind in kind(),
        margin in prop_oneof![any::<f64>(), Just(0.03)],
        level: f64,
    ) {
        if let Ok(boot) = boot_statistic(kind, &a) {
            prop_assert!(boot.log.is_finite());
            let _ = describe(kind, &[boot, boot], level);
        }
        let finite = log_ratios.iter().all(|ratio| ratio.abs() <= 700.0);
        let enough = log_ratios.len() >= 2;
        let comparison = Comparison {
            blocks: PairedBlocks { log_ratios },
            better: BetterDirection::Lower,
            margin,
            aa: true,
            host: Vec::new(),
        };
        let judgement = FixedBlocks::new(1, 0.05).unwrap().judge(&comparison);
        let invalid = matches!(judgement.verdict, Verdict::Invalid { .. });
        if !(finite && enough && margin > 0.0 && margin.is_finite()) {
            prop_assert!(invalid);
        }

        let text = serde_json::to_string(&judgement).unwrap();
        prop_assume!(margin.is_finite());
        prop_assert_eq!(serde_json::from_str::<Judgement>(&text).unwrap(), judgement);
    }
}

/// A standard normal number (Box and Muller).
pub(crate) fn normal(random: &mut Pcg64) -> f64 {
    let (u, v): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

const LABORATORIES: u32 = 4000;

/// Three standard errors of a rate that is measured over all laboratories.
fn monte_carlo_error(rate: f64) -> f64 {
    3.0 * (rate * (1.0 - rate) / f64::from(LABORATORIES)).sqrt()
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
    let mut random = Pcg64::seed_from_u64(1);
    for (n, truth) in [(2, 0.0), (5, 0.1), (12, -0.5)] {
        let covered = (0..LABORATORIES).filter(|_| {
            let ratios: Vec<f64> = (0..n).map(|_| truth + 0.02 * normal(&mut random)).collect();
            let judgement = judge(ratios, BetterDirection::Lower);
            judgement.interval.is_some_and(|interval| interval.contains(f64::exp(truth)))
        });
        let rate = covered.count() as f64 / f64::from(LABORATORIES);
        assert!((rate - 0.95).abs() < monte_carlo_error(0.95), "n {n}: {rate}");
    }
}

/// A laboratory of the blocked design: the host drifts from block to block and
/// every boot draws its own luck, but A and B are the same.
#[test]
fn the_same_configuration_is_called_different_in_5_percent_of_studies() {
    let mut random = Pcg64::seed_from_u64(2);
    let mut false_claims = 0;
    for _ in 0..LABORATORIES {
        let mut boot = |drift: f64| -> Vec<f64> {
            let luck = 0.02 * normal(&mut random);
            (0..5).map(|_| (drift + luck + 0.01 * normal(&mut random)).exp()).collect()
        };
        let blocks: Vec<_> = (0..6)
            .map(|block| {
                let drift = 0.05 * f64::from(block);
                (boot(drift), boot(drift))
            })
            .collect();
        let verdict = judge_boots(SampleKind::Time, &blocks).verdict;
        false_claims += u32::from(verdict.is_difference());
    }
    let rate = f64::from(false_claims) / f64::from(LABORATORIES);
    assert!((rate - 0.05).abs() < monte_carlo_error(0.05), "{rate}");
}

#[test]
fn signed_rank_intervals_cover_at_least_as_often_as_they_say() {
    let mut random = Pcg64::seed_from_u64(3);
    let covered = (0..LABORATORIES).filter(|_| {
        // Heavy tails: a normal number divided by a small other one now and then.
        let ratios: Vec<f64> =
            (0..8).map(|_| normal(&mut random) / (0.2 + normal(&mut random).abs())).collect();
        let (_, interval) = hodges_lehmann(&ratios, 0.95).unwrap();
        interval.is_some_and(|interval| interval.contains(0.0))
    });
    let rate = covered.count() as f64 / f64::from(LABORATORIES);
    assert!(rate > 0.95 - monte_carlo_error(0.95), "{rate}");
}

#[test]
fn warnings_name_what_is_odd() {
    let check = |log_ratios: &[f64], aa: bool, expected: &[Warning]| {
        let blocks = PairedBlocks { log_ratios: log_ratios.to_vec() };
        let comparison = Comparison {
            blocks,
            better: BetterDirection::Lower,
            margin: 0.03,
            aa,
            host: Vec::new(),
        };
        let judgement = FixedBlocks::new(6, 0.05).unwrap().judge(&comparison);
        assert_eq!(judgement.warnings, expected);
    };
    check(&[0.1, 0.2, -0.1, -0.2, 0.05, -0.05], true, &[]);
    check(&[0.1, 0.11], false, &[Warning::FewBlocks]);
    check(&[0.1, 0.11, 0.1, 0.12, 0.09, 0.1], true, &[Warning::AaAlarm]);
    check(&[0.0; 6], true, &[Warning::NoVariance]);
    // Seven blocks say less, one says much more: t sees nothing, the ranks do.
    let shifted = [0.01, 0.011, 0.012, 0.009, 0.01, 0.011, 0.01, 5.0];
    check(&shifted, false, &[Warning::OutlierDriven]);
}

#[test]
fn plans_that_can_not_be_followed_are_refused() {
    let check = |blocks, alpha, expected: &str| {
        assert_eq!(FixedBlocks::new(blocks, alpha).unwrap_err().to_string(), expected);
    };
    check(0, 0.05, "0 blocks: nothing would be measured; ask for at least 1, better 5");
    check(5, 1.0, "Rate of false claims 1 is not between 0 and 1; 0.05 is usual");
    check(5, f64::NAN, "Rate of false claims NaN is not between 0 and 1; 0.05 is usual");
    let engine = FixedBlocks::new(2, 0.05).unwrap();
    let next = |blocks_done| engine.next(&EngineProgress { blocks_done, comparisons: &[] });
    assert_eq!(
        [0, 1, 2, 3].map(next),
        [NextStep::AnotherBlock, NextStep::AnotherBlock, NextStep::Stop, NextStep::Stop]
    );
}

#[test]
fn a_judgement_survives_json() {
    let judgement = judge(vec![0.1, 0.2, 0.15, 0.12, 0.11, 0.13], BetterDirection::Higher);
    let text = serde_json::to_string(&judgement).unwrap();
    assert!(text.starts_with(r#"{"verdict":"b-better","ratio":1."#), "{text}");
    assert_eq!(serde_json::from_str::<Judgement>(&text).unwrap(), judgement);
    let invalid = Judgement::invalid(Invalidity::WarmingUp, BetterDirection::Lower, 0.03, false);
    let text = serde_json::to_string(&invalid).unwrap();
    assert_eq!(serde_json::from_str::<Judgement>(&text).unwrap(), invalid);
}

#[test]
fn a_variant_is_described_on_its_own_scale() {
    let boots = |kind, values: &[f64]| -> Vec<BootStatistic> {
        values.iter().map(|value| boot_statistic(kind, &[*value]).unwrap()).collect()
    };
    let estimate = describe(SampleKind::Time, &boots(SampleKind::Time, &[1.0, 4.0]), 0.95).unwrap();
    assert!(near(estimate.centre, 2.0) && estimate.interval.unwrap().contains(2.0));
    let estimate = describe(SampleKind::Time, &boots(SampleKind::Time, &[3.0]), 0.95).unwrap();
    assert!(near(estimate.centre, 3.0) && estimate.interval.is_none() && estimate.boots == 1);
    let estimate =
        describe(SampleKind::Count, &boots(SampleKind::Count, &[0.0, 3.0]), 0.95).unwrap();
    assert!(near(estimate.centre, 1.0) && estimate.interval.unwrap().lo >= 0.0);
    assert_eq!(describe(SampleKind::Time, &[], 0.95), None);
}
