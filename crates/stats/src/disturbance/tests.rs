//! What is shown of the host, and what it costs a claim: neighbours of every kind,
//! simulated.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use crate::tests::normal;
use crate::{
    Comparison, Engine, Invalidity, Judgement, PairedBlocks, SequentialTest, Verdict, Warning,
};

fn seen(sign: HostSign, part: f64) -> Disturbance {
    Disturbance { signs: vec![(sign, lost(part))], own: None }
}

#[test]
fn a_part_that_is_lost_costs_the_rest() {
    assert!((lost(0.5).exp() - 2.0).abs() < 1e-12);
    assert_eq!((lost(0.0), lost(-1.0)), (0.0, 0.0));
    assert!(lost(1.0).is_finite());
    let nothing = Disturbance { signs: vec![(HostSign::Steal, f64::NAN)], own: None };
    assert_eq!((nothing.get(HostSign::Steal), nothing.get(HostSign::Others)), (None, None));
}

/// Blocks of a comparison with a mean of `log` and half an interval of `half`.
fn claimed(mean: f64, half_width: f64) -> HostVerdict {
    HostVerdict { mean, half_width, better: BetterDirection::Lower, claim: ClaimKind::None }
}

#[test]
fn a_difference_is_weighed_by_the_interval() {
    let host: Vec<_> = [0.19, 0.20, 0.21, 0.20]
        .map(|part| [seen(HostSign::Others, 0.01), seen(HostSign::Others, part)])
        .into();
    let weight = |half_width| differences(&host, claimed(0.0, half_width))[0].weight;
    assert_eq!(weight(0.1), DisturbanceWeight::Beyond);
    assert_eq!(weight(0.3), DisturbanceWeight::Held);
    assert_eq!(weight(1.0), DisturbanceWeight::Slight);
    // Two blocks show nothing, nor does what changes sides.
    assert!(differences(&host[..2], claimed(0.0, 0.1)).is_empty());
    let mut swapped = host.clone();
    swapped[0].swap(0, 1);
    swapped[1].swap(0, 1);
    assert_eq!(differences(&swapped, claimed(0.0, 0.1))[0].weight, DisturbanceWeight::Even);
    // What variants make themselves is not compared.
    let own: Vec<_> =
        (0..4).map(|_| [seen(HostSign::RunDelay, 0.0), seen(HostSign::RunDelay, 0.5)]).collect();
    assert!(differences(&own, claimed(0.0, 0.01)).is_empty());
}

#[test]
fn what_a_vm_leaves_to_others_is_not_laid_on_the_host() {
    // On a host without idle time others get what the VM leaves: one vCPU of two
    // pCPUs leaves more than two do.
    let used = |own: f64, others: f64| Disturbance {
        signs: vec![(HostSign::Others, lost(others))],
        own: Some(lost(own)),
    };
    let weigh = |a: (f64, f64), b: (f64, f64)| {
        let jitter = [0.0, 0.01, 0.005, -0.005];
        let host: Vec<_> = jitter.map(|by| [used(a.0, a.1 + by), used(b.0, b.1 - by)]).into();
        differences(&host, claimed(-0.3, 0.05))[0].weight
    };
    assert_eq!(weigh((0.45, 0.50), (0.75, 0.24)), DisturbanceWeight::Own);
    // Both use the same, and others are beside one of them.
    assert_eq!(weigh((0.45, 0.05), (0.45, 0.40)), DisturbanceWeight::Beyond);
}

#[test]
fn only_a_difference_that_the_host_can_make_is_lost() {
    let host: Vec<_> = [0.19, 0.20, 0.21, 0.20]
        .map(|part| [seen(HostSign::Steal, 0.0), seen(HostSign::Steal, part)])
        .into();
    let is_lost = |mean: f64, is_claim: bool| {
        let claim = if is_claim { ClaimKind::Difference } else { ClaimKind::NoDifference };
        let claimed = HostVerdict { claim, ..claimed(mean, 0.02) };
        fatal(&differences(&host, claimed), claimed).is_some()
    };
    assert!(is_lost(0.22, true), "as much as was stolen");
    assert!(is_lost(0.40, true), "steal may cost twice what it is");
    assert!(!is_lost(0.70, true), "more than steal can be");
    assert!(!is_lost(-0.1, true), "faster although it was disturbed");
    assert!(is_lost(0.0, false), "steal may hide a difference");
}

#[test]
fn what_is_out_of_line_is_told_by_its_own_past() {
    let limits = [(HostSign::Others, lost(0.1))];
    let trials = |parts: [f64; 2]| {
        parts
            .into_iter()
            .enumerate()
            .map(|(v, part)| (v, seen(HostSign::Others, part)))
            .collect::<Vec<_>>()
    };
    // B's own work looks like others', always.
    let earlier: Vec<_> = (0..3).flat_map(|_| trials([0.02, 0.30])).collect();
    let places = |block: [f64; 2], earlier: &[_]| {
        let found = out_of_line(&limits, &trials(block), earlier);
        found.into_iter().map(|found| found.trial).collect::<Vec<_>>()
    };
    assert!(places([0.02, 0.30], &earlier).is_empty());
    assert_eq!(places([0.30, 0.30], &earlier), [0]);
    assert_eq!(places([0.02, 0.60], &earlier), [1]);
    assert!(places([0.40, 0.57], &earlier).is_empty(), "both alike");
    assert!(places([0.90, 0.0], &earlier[..4]).is_empty(), "nothing is usual yet");
}

/// How neighbours use the host while a study runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Neighbours {
    /// Always so much.
    Constant,
    /// Now and then, whatever runs.
    Bursty,
    /// Beside B only.
    WithB,
    /// Beside B only, and bursty ones besides.
    WithBAmongBursts,
}

/// A study of 12 blocks at most: what it says, and how often it was right to.
fn study(neighbours: Neighbours, effect: f64, random: &mut Pcg64) -> Judgement {
    let engine = SequentialTest::within(12, 0.05).unwrap();
    let most: f64 = random.random_range(0.05..0.6);
    // What others take costs a VM less than it, or more.
    let cost: f64 = random.random_range(0.5..1.6);
    let mut comparison = Comparison {
        blocks: PairedBlocks::default(),
        better: BetterDirection::Lower,
        margin: 0.03,
        aa: false,
        host: Vec::new(),
    };
    loop {
        let [a, b] = [false, true].map(|is_b| {
            let part =
                match neighbours {
                    Neighbours::Constant => most,
                    Neighbours::WithB if is_b => most,
                    Neighbours::WithB => 0.0,
                    Neighbours::WithBAmongBursts if is_b && random.random() => most,
                    Neighbours::WithBAmongBursts | Neighbours::Bursty => {
                        if random.random_bool(0.3) { random.random_range(0.0..most) } else { 0.0 }
                    }
                };
            let part = (part + 0.005 * normal(random)).clamp(0.0, 0.6);
            let effect = if is_b { effect } else { 0.0 };
            (effect + cost * lost(part) + 0.01 * normal(random), seen(HostSign::Others, part))
        });
        comparison.blocks.log_ratios.push(b.0 - a.0);
        comparison.host.push([a.1, b.1]);
        let judged = engine.judge(&comparison);
        if judged.verdict.is_decided() || comparison.host.len() == 12 {
            return judged;
        }
    }
}

#[test]
fn neighbours_that_hit_both_alike_invalidate_nothing() {
    let mut random = Pcg64::seed_from_u64(1511);
    for neighbours in [Neighbours::Constant, Neighbours::Bursty] {
        let (mut valid, mut false_claims, mut right) = (0, 0, 0);
        for _ in 0..400 {
            let none = study(neighbours, 0.0, &mut random);
            valid += u32::from(!matches!(none.verdict, Verdict::Invalid { .. }));
            false_claims += u32::from(none.verdict.is_difference());
            let slower = study(neighbours, 0.3, &mut random);
            valid += u32::from(!matches!(slower.verdict, Verdict::Invalid { .. }));
            right += u32::from(slower.verdict == Verdict::BWorse);
        }
        assert!(valid >= 760, "{neighbours:?}: {valid} of 800 valid");
        assert!(false_claims <= 20, "{neighbours:?}: {false_claims} of 400 false claims");
        assert!(right >= 320, "{neighbours:?}: {right} of 400 found");
    }
}

#[test]
fn neighbours_of_one_variant_are_named_with_every_claim() {
    let mut random = Pcg64::seed_from_u64(1512);
    for neighbours in [Neighbours::WithB, Neighbours::WithBAmongBursts] {
        let (mut claims, mut unnamed, mut invalid) = (0, 0, 0);
        for effect in [0.0, 0.0, 0.05, -0.05, 0.3, -0.3] {
            for _ in 0..200 {
                let judged = study(neighbours, effect, &mut random);
                if let Verdict::Invalid { why } = &judged.verdict {
                    invalid += 1;
                    assert!(matches!(why, Invalidity::HostDiffered { host } if host.ratio > 1.0));
                }
                if judged.verdict.is_difference() {
                    claims += 1;
                    let is_named = judged.warnings.contains(&Warning::HostDiffered);
                    // Among bursts little of what is B's may be left to see; what
                    // is claimed then is true all the same.
                    let is_true = (judged.verdict == Verdict::BWorse) == (effect > 0.0);
                    let is_seen = neighbours == Neighbours::WithB || effect == 0.0;
                    assert!(
                        is_named || (!is_seen && is_true),
                        "{neighbours:?}, {effect}: {judged:?}"
                    );
                    unnamed += u32::from(!is_named);
                }
            }
        }
        println!("{neighbours:?}: {claims} claims, {unnamed} unnamed, {invalid} invalid");
        assert!(claims > 0 && invalid > 100, "{neighbours:?}: {claims} claims, {invalid} invalid");
    }
}
