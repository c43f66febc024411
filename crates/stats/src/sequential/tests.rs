//! The engine that looks after every block, against numbers and chance.

use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::*;
use crate::tests::normal;
use crate::{BetterDirection, PairedBlocks, Warning};

fn comparison(log_ratios: &[f64]) -> Comparison {
    let blocks = PairedBlocks { log_ratios: log_ratios.to_vec() };
    Comparison { blocks, better: BetterDirection::Lower, margin: 0.03, aa: false, host: Vec::new() }
}

/// How studies end that stop as the engine says: false claims at a true
/// difference of 0, false "equivalent" at the margin, coverage, mean blocks.
fn studies(engine: &SequentialTest, truth: f64, sd: f64, most: u32) -> [f64; 4] {
    let count = 1000;
    let mut random = Pcg64::seed_from_u64(21);
    let mut ends = [0.0; 4];
    for _ in 0..count {
        let mut log_ratios = Vec::new();
        let judged = loop {
            log_ratios.push(truth + sd * normal(&mut random));
            let so_far = comparison(&log_ratios);
            if engine.verdict(&so_far).is_decided() || log_ratios.len() as u32 >= most {
                break engine.judge(&so_far);
            }
        };
        ends[0] += f64::from(u8::from(judged.verdict.is_difference()));
        ends[1] += f64::from(u8::from(judged.verdict == Verdict::Equivalent));
        ends[2] += f64::from(u8::from(judged.interval.unwrap().contains(truth.exp())));
        ends[3] += log_ratios.len() as f64;
    }
    ends.map(|end| end / f64::from(count))
}

#[test]
fn verdicts_keep_their_promises_though_one_looks_after_every_block() {
    let within = SequentialTest::within(40, 0.05).unwrap();
    let open = SequentialTest::open_ended(0.05).unwrap();
    for engine in [within, open] {
        for sd in [0.01, 0.03, 0.1] {
            let [difference, _, covered, _] = studies(&engine, 0.0, sd, 40);
            assert!(difference < 0.06, "{engine:?}, sd {sd}: {difference} false claims");
            assert!(covered > 0.94, "{engine:?}, sd {sd}: {covered} covered");
            let [_, equivalent, covered, _] = studies(&engine, 0.03_f64.ln_1p(), sd, 40);
            assert!(equivalent < 0.06, "{engine:?}, sd {sd}: {equivalent} false equivalent");
            assert!(covered > 0.94, "{engine:?}, sd {sd}: {covered} covered");
        }
    }
}

#[test]
fn a_known_end_decides_sooner_than_an_open_one() {
    let blocks = |engine, truth| studies(&engine, truth, 0.03, 40)[3];
    for truth in [0.0, 0.05] {
        let within = blocks(SequentialTest::within(40, 0.05).unwrap(), truth);
        let open = blocks(SequentialTest::open_ended(0.05).unwrap(), truth);
        assert!(within < open && open < 40.0, "{truth}: {within} {open}");
    }
}

#[test]
fn each_verdict_has_its_case() {
    let check = |log_ratios: &[f64], expected: &str| {
        let judged = SequentialTest::within(40, 0.05).unwrap().judge(&comparison(log_ratios));
        let text = serde_json::to_value(&judged.verdict).unwrap();
        assert_eq!(text["verdict"], expected, "{judged:?}");
        judged
    };
    let noise = [0.001, -0.001, 0.0005, -0.002, 0.0015, 0.0, -0.0005, 0.001];
    let shifted = |by: f64| noise.map(|noise| noise + by);
    check(&shifted(-0.1), "b-better");
    check(&shifted(0.1), "b-worse");
    check(&shifted(0.01), "below-margin");
    check(&shifted(0.0), "equivalent");
    check(&[f64::NAN; 5], "invalid");
    let open = check(&noise.map(|noise| noise * 50.0), "not-decided");
    let Verdict::NotDecided { more_blocks, .. } = open.verdict else { unreachable!() };
    assert!((10..100).contains(&more_blocks), "{more_blocks}");
    // Before the first look nothing is claimed, however clear it seems.
    check(&shifted(0.1)[..4], "not-decided");
}

#[test]
fn p_says_at_which_rate_the_claim_would_be_made() {
    let engine = SequentialTest::within(20, 0.05).unwrap();
    let mut last = 1.0;
    for t in [0.0, 0.5, 1.0, 2.0, 3.0, 3.4, 3.6, 5.0, 10.0, 1e3, f64::MAX] {
        let p = engine.p(t, 10);
        assert!(p <= last && p > 0.0, "t {t}: {p} after {last}");
        assert_eq!(p <= 0.05, t >= engine.critical(10, 0.05), "t {t}: {p}");
        last = p;
    }
    assert_eq!(engine.p(1e9, 3), 1.0);
    let open = SequentialTest::open_ended(0.05).unwrap();
    let critical = open.critical(10, 0.05);
    assert!((open.p(critical, 10) - 0.05).abs() < 1e-9);
    assert_eq!(open.p(0.1, 10), 1.0);
}

#[test]
fn it_stops_when_all_is_decided_or_the_blocks_are_used_up() {
    let engine = SequentialTest::within(8, 0.05).unwrap();
    let clear = comparison(&[-0.1, -0.101, -0.1, -0.102, -0.1]);
    let open = comparison(&[-0.1, 0.1, -0.05, 0.04, 0.01]);
    let next = |blocks_done, comparisons: &[Comparison]| {
        engine.next(&EngineProgress { blocks_done, comparisons })
    };
    assert_eq!(next(0, &[]), NextStep::AnotherBlock);
    assert_eq!(next(5, &[clear.clone(), open.clone()]), NextStep::AnotherBlock);
    assert_eq!(next(8, &[clear.clone(), open.clone()]), NextStep::Stop);
    assert_eq!(next(5, &[clear.clone(), Comparison { aa: true, ..open.clone() }]), NextStep::Stop);
    assert_eq!(next(5, &[Comparison { aa: true, ..open.clone() }]), NextStep::AnotherBlock);
    assert!(engine.more_blocks(&open).unwrap() > 0);
    assert_eq!(engine.more_blocks(&clear), None);
}

#[test]
fn blocks_beyond_the_plan_are_judged_by_the_stricter_rule() {
    let engine = SequentialTest::within(5, 0.05).unwrap();
    let judged = engine.judge(&comparison(&[0.1, -0.1, 0.05, -0.04, 0.01, 0.02]));
    assert!(judged.warnings.contains(&Warning::BeyondPlan));
    assert_eq!(engine.critical(6, 0.05), anytime::critical(6, 0.05));
    let one = SequentialTest::within(1, 0.05).unwrap().judge(&comparison(&[0.1]));
    assert!(matches!(one.verdict, Verdict::Invalid { .. }));
    assert!(SequentialTest::within(0, 0.05).is_err() && SequentialTest::open_ended(1.0).is_err());
}
