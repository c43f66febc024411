//! The analysis as a whole: the right design, the right numbers, and the same
//! verdict whatever the order of reading.

use proptest::prelude::*;
use stats::Verdict;

use super::*;
use crate::data::Data;
use crate::read::ColumnNames;

fn dataset(inputs: &[(&str, String)]) -> Dataset {
    let mut data = Data::default();
    for (name, text) in inputs {
        data.read(name, &mut text.as_bytes(), &ColumnNames::new()).unwrap();
    }
    data.finish()
}

fn compared(inputs: &[(&str, String)], ask: &CompareOptions) -> ComparedData {
    analyse(&dataset(inputs), ask).unwrap()
}

fn csv(rows: &[&str]) -> String {
    format!("variant,block,boot,value,unit\n{}\n", rows.join("\n"))
}

/// Benchmark lines of one benchmark.
fn benchmarks(name: &str, values: &[f64]) -> String {
    values.iter().map(|value| format!("Benchmark{name} 1 {value} ns/op\n")).collect()
}

fn codes(comparison: &ComparedData) -> Vec<&'static str> {
    comparison.warnings.iter().map(|warning| warning.code).collect()
}

fn only(comparison: &ComparedData) -> &VariantComparison {
    assert_eq!(comparison.rows.len(), 1, "{comparison:#?}");
    comparison.rows[0].judged[0].as_ref().unwrap()
}

const A: [f64; 8] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1];

fn times(factor: f64) -> Vec<f64> {
    A.iter().map(|value| value * factor).collect()
}

#[test]
fn without_blocks_it_is_welch_s_test_and_says_what_that_costs() {
    let inputs = [("old", benchmarks("X", &A)), ("new", benchmarks("X", &times(0.9)))];
    let comparison = compared(&inputs, &CompareOptions::default());
    assert_eq!(comparison.design, Design::UnblockedValues);
    assert!(comparison.method[0].contains("not known") && comparison.method[1].contains("--boot"));
    let judged = only(&comparison);
    assert_eq!(judged.judgement.verdict, Verdict::BBetter);
    let logs = |values: &[f64]| -> Vec<f64> { values.iter().map(|v| (v * 1e-9).ln()).collect() };
    let welch = stats::welch(&logs(&A), &logs(&times(0.9)), 0.95).unwrap();
    let interval = judged.judgement.interval.unwrap();
    assert!((judged.judgement.ratio.unwrap() - 0.9).abs() < 1e-12);
    assert!((interval.lo.ln() - welch.interval.lo).abs() < 1e-9);
    assert!((interval.hi.ln() - welch.interval.hi).abs() < 1e-9);
    assert!((judged.judgement.p.unwrap() - welch.p).abs() < 1e-12);
    assert_eq!(judged.rank_p, stats::mann_whitney(&A, &times(0.9)).ok());
}

#[test]
fn with_blocks_it_is_the_engine_s_paired_analysis() {
    let blocks =
        [(1, 100.0, 90.0), (2, 120.0, 109.0), (3, 90.0, 80.5), (4, 200.0, 181.0), (5, 50.0, 45.1)];
    let mut rows = Vec::new();
    for (block, a, b) in blocks {
        rows.push(format!("new,{block},n{block},{b},ms"));
        rows.push(format!("old,{block},o{block},{a},ms"));
    }
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let comparison = compared(&[("in", csv(&rows))], &CompareOptions::default());
    assert_eq!((comparison.design, comparison.variants[0].as_str()), (Design::Paired, "old"));
    let boot =
        |value: f64| stats::boot_statistic(stats::SampleKind::Time, &[value * 1e-3]).unwrap();
    let pairs = blocks.map(|(_, a, b)| (boot(a), boot(b)));
    let expected = stats::Engine::judge(
        &stats::FixedBlocks::new(5, 0.05).unwrap(),
        &stats::Comparison {
            blocks: stats::PairedBlocks::from_boots(pairs),
            better: record::BetterDirection::Lower,
            margin: 0.03,
            aa: false,
            host: Vec::new(),
        },
    );
    assert_eq!(only(&comparison).judgement, expected);
    // Unpaired, this much noise between blocks hides the difference.
    let text = csv(&rows).replace("block", "round");
    let ask = CompareOptions { boot: Some("round".to_owned()), ..CompareOptions::default() };
    let unpaired = compared(&[("in", text.clone())], &ask);
    assert!(matches!(only(&unpaired).judgement.verdict, Verdict::NotDecided { .. }));
    // A label that nobody names a role for makes rows, and that is said.
    let rounds = compared(&[("in", text)], &CompareOptions::default());
    assert!(rounds.rows.len() == 5 && codes(&rounds).contains(&"single-values"));
}

#[test]
fn values_of_one_boot_are_one_number() {
    let rows = |boots: &[(&str, f64)]| -> Vec<String> {
        let samples = boots.iter().flat_map(|(boot, value)| {
            (0..20)
                .map(move |i| format!("{},,{boot},{},s", &boot[..1], value + f64::from(i) * 1e-5))
        });
        samples.collect()
    };
    let rows =
        rows(&[("a1", 1.0), ("a2", 1.1), ("a3", 0.9), ("b1", 1.0), ("b2", 1.12), ("b3", 0.91)]);
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let comparison = compared(&[("in", csv(&rows))], &CompareOptions::default());
    assert_eq!(comparison.design, Design::UnblockedBoots);
    assert_eq!(only(&comparison).boots, (3, 3));
    assert!(codes(&comparison).contains(&"few-boots"));
}

#[test]
fn blocks_of_two_files_are_not_paired_unless_somebody_says_so() {
    let text = |factor: f64| {
        let rows = A.iter().enumerate().map(|(i, v)| format!("{i},{}", v * factor));
        format!("block,value\n{}\n", rows.collect::<Vec<_>>().join("\n"))
    };
    let inputs = [("a.csv", text(1.0)), ("b.csv", text(1.1))];
    assert_eq!(compared(&inputs, &CompareOptions::default()).design, Design::UnblockedValues);
    let ask = CompareOptions { block: Some("block".to_owned()), ..CompareOptions::default() };
    let paired = compared(&inputs, &ask);
    assert_eq!(paired.design, Design::Paired);
    assert_eq!(only(&paired).judgement.blocks_used, 8);
}

#[test]
fn warnings_name_what_is_wrong_with_the_data() {
    let check = |inputs: &[(&str, String)], ask: &CompareOptions, code: &str, part: &str| {
        let comparison = compared(inputs, ask);
        let found = comparison.warnings.iter().find(|warning| warning.code == code);
        let found = found.unwrap_or_else(|| panic!("no {code}: {:#?}", comparison.warnings));
        assert!(found.text.contains(part), "{}", found.text);
    };
    let plain = CompareOptions::default();
    let old = ("old", benchmarks("X", &A));
    let new = ("new", benchmarks("X", &times(1.01)));
    assert_eq!(codes(&compared(&[old.clone(), new.clone()], &plain)), Vec::<&str>::new());

    check(&[old.clone(), ("new", old.1.clone())], &plain, "duplicated", "very same values");
    let few = ("new", benchmarks("X", &times(1.0)[..3]));
    check(&[old.clone(), few], &plain, "few-boots", "fewer than 5");
    let mut rising = times(1.0);
    rising.sort_by(f64::total_cmp);
    check(&[old.clone(), ("new", benchmarks("X", &rising))], &plain, "drift", "1 of 2 cells");
    let machine =
        |name: &'static str, cpu: &str| (name, format!("cpu: {cpu}\n{}", benchmarks("X", &A)));
    check(
        &[machine("a", "Zen"), machine("b", "Xeon")],
        &plain,
        "mixed-environments",
        "cpu is a Zen, b Xeon",
    );
    let commit =
        |name: &'static str, id: &str| (name, format!("commit: {id}\n{}", benchmarks("X", &A)));
    check(&[commit("a", "1"), commit("b", "2")], &plain, "confounded", "commit");
    let sized = |name: &'static str| {
        (name, format!("{}{}", benchmarks("X/size=1-8", &A), benchmarks("X/size=2-8", &times(2.0))))
    };
    let by = CompareOptions { by: vec!["name".to_owned()], ..CompareOptions::default() };
    check(&[sized("a"), sized("b")], &by, "hidden", "size varies inside 2 cell(s)");
    assert!(!codes(&compared(&[sized("a"), ("b", sized("b").1)], &plain)).contains(&"hidden"));
    let units = |unit: &str| {
        format!("variant,metric,value,unit\na,t,1,{unit}\na,t,1.1,{unit}\nb,t,1,s\nb,t,1.1,s\n")
    };
    check(&[("in", units("ms"))], &plain, "mixed-units", "ms, s");
    let emulated = "variant,environment,value,unit\na,tcg,1,s\na,tcg,2,s\nb,tcg,1,s\nb,tcg,2,s\n";
    check(&[("in", emulated.to_owned())], &plain, "emulated-time", "emulated time");
    let frobs = |name: &'static str| (name, benchmarks("X", &A).replace("ns/op", "frobs"));
    check(&[frobs("a"), frobs("b")], &plain, "unknown-direction", "--better frobs=lower");
    let other = ("new", format!("{}{}", benchmarks("X", &A), benchmarks("Y", &A)));
    check(&[old, other], &plain, "not-in-both", "1 of 2 rows");
    let zero = |name: &'static str| (name, benchmarks("X", &[0.0, 1.0, 2.0, 1.0, 1.5]));
    check(&[zero("a"), zero("b")], &plain, "unusable", "0: it has no ratio");
}

#[test]
fn exact_metrics_need_no_repetition() {
    let text =
        |size: u32| format!("Unit size-bytes assume=exact\nBenchmarkX 1 {size} size-bytes\n");
    let verdict = |a: u32, b: u32| {
        let comparison = compared(&[("a", text(a)), ("b", text(b))], &CompareOptions::default());
        (only(&comparison).judgement.verdict.clone(), comparison.gate.passed)
    };
    assert_eq!(verdict(100, 100), (Verdict::Equivalent, true));
    assert_eq!(verdict(100, 101), (Verdict::BelowMargin { b_better: false }, true));
    assert_eq!(verdict(100, 150), (Verdict::BWorse, false));
    assert_eq!(verdict(100, 50), (Verdict::BBetter, true));
}

#[test]
fn the_gate_wants_more_than_the_margin() {
    let gate = |factor: f64| {
        let inputs = [("old", benchmarks("X", &A)), ("new", benchmarks("X", &times(factor)))];
        compared(&inputs, &CompareOptions::default()).gate
    };
    assert!(gate(1.0).passed && gate(0.5).passed);
    assert!(gate(1.031).passed, "worse, but not surely by more than the margin");
    let failed = gate(1.1);
    assert!(!failed.passed);
    assert_eq!(failed.failures, ["new: sec/op of X is +10.0 % from old, worse by more than 3 %"]);
}

#[test]
fn a_hundred_comparisons_without_a_difference_make_no_finding() {
    // Noise that is the same for every seed, with a p below 0.05 here and there.
    let mut state = 1_u64;
    let mut noise = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24)
    };
    let mut text = || -> String {
        (0..100)
            .map(|row| {
                let values: Vec<f64> = (0..10).map(|_| 100.0 + noise()).collect();
                benchmarks(&format!("X{row}"), &values)
            })
            .collect()
    };
    let ask = CompareOptions { margin: 0.0001, ..CompareOptions::default() };
    let comparison = compared(&[("a", text()), ("b", text())], &ask);
    let alone = comparison.rows.iter().flat_map(|row| row.judged.iter().flatten());
    let alone = alone.filter(|judged| judged.judgement.verdict.is_difference()).count();
    assert!((1..15).contains(&alone), "{alone} of 100 at 5 %");
    assert_eq!((comparison.findings, comparison.comparisons), (0, 100));
    let suite = &comparison.suites[0];
    assert_eq!(suite.rows, 100);
    assert!(suite.interval.unwrap().contains(1.0));
}

#[test]
fn errors_name_what_there_is() {
    let inputs = [("a", benchmarks("X/k=1-8", &A)), ("b", benchmarks("X/k=1-8", &A))];
    let check = |inputs: &[(&str, String)], ask: CompareOptions, expected: &str| {
        assert_eq!(analyse(&dataset(inputs), &ask).unwrap_err().to_string(), expected);
    };
    let some = |text: &str| Some(text.to_owned());
    check(
        &inputs,
        CompareOptions { variant: some("nope"), ..CompareOptions::default() },
        "No value bears the label \"nope\"; there are: file, name, k, gomaxprocs",
    );
    // Input that says where it is from, as imported values do.
    let said = [("a", format!("file: log\n{}", inputs[0].1))];
    check(
        &said,
        CompareOptions { variant: some("nope"), ..CompareOptions::default() },
        "No value bears the label \"nope\"; there are: file, name, k, gomaxprocs",
    );
    check(
        &inputs,
        CompareOptions { variant: some("k"), ..CompareOptions::default() },
        "All values have k = 1: there is nothing to compare it with",
    );
    check(
        &inputs,
        CompareOptions { baseline: some("c"), ..CompareOptions::default() },
        "No variant is called \"c\"; there are: a, b",
    );
    check(
        &inputs,
        CompareOptions { metrics: vec!["B/op".to_owned()], ..CompareOptions::default() },
        "There is no metric \"B/op\"; there are: sec/op",
    );
    check(
        &inputs,
        CompareOptions { margin: 0.0, ..CompareOptions::default() },
        "Margin 0 is not a positive number: 0.03 stands for 3 %",
    );
    check(
        &inputs[..1],
        CompareOptions::default(),
        "One input and nothing that tells variants apart: name a second input, or the label with --variant (there are: file, name, k, gomaxprocs)",
    );
    let filter = Some(Filter::parse("k:2").unwrap());
    check(
        &inputs,
        CompareOptions { filter, ..CompareOptions::default() },
        "There is no value to compare: the filter leaves none",
    );
}

#[test]
fn a_part_of_the_name_can_be_the_variant() {
    let text = format!(
        "{}{}",
        benchmarks("Encode/format=json-8", &A),
        benchmarks("Encode/format=gob-8", &times(2.0))
    );
    let ask = CompareOptions {
        variant: Some("format".to_owned()),
        baseline: Some("json".to_owned()),
        ..CompareOptions::default()
    };
    let comparison = compared(&[("in", text)], &ask);
    assert_eq!(comparison.variants, ["json", "gob"]);
    assert_eq!(comparison.rows[0].name, "Encode-8");
    assert_eq!(only(&comparison).judgement.verdict, Verdict::BWorse);
}

/// Verdicts by row, as bits.
fn verdicts(comparison: &ComparedData) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in &comparison.rows {
        for (judged, variant) in row.judged.iter().zip(&comparison.variants[1..]) {
            let Some(judged) = judged else { continue };
            let judgement = &judged.judgement;
            let bits = |value: Option<f64>| value.map(f64::to_bits);
            lines.push(format!(
                "{} {} {variant}: {:?} {:?} {:?} {:?} {:?} {:?}",
                row.name,
                comparison.metric(row).name,
                judgement.verdict,
                bits(judgement.ratio),
                judgement.interval,
                bits(judgement.p),
                bits(judged.rank_p),
                bits(judged.q),
            ));
        }
    }
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_order_of_reading_changes_no_verdict(
        values in prop::collection::vec((0..3_u8, 0..3_u8, 0..6_u8, 1.0..1.5), 20..60),
        split in 0..60_usize,
        seed in any::<u64>(),
        paired in any::<bool>(),
    ) {
        let line = |(variant, row, block, value): &(u8, u8, u8, f64)| {
            let block = if paired { format!("{block}") } else { String::new() };
            format!("v{variant},w{row},{block},{value},s")
        };
        let lines: Vec<String> = values.iter().map(line).collect();
        let mut shuffled = lines.clone();
        let mut state = seed | 1;
        for index in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(index, (state >> 33) as usize % (index + 1));
        }
        let head = "variant,workload,block,value,unit";
        let file = |lines: &[String]| format!("{head}\n{}\n", lines.join("\n"));
        let ask = CompareOptions { baseline: Some("v0".to_owned()), ..CompareOptions::default() };
        let one = |lines: &[String]| analyse(&dataset(&[("in", file(lines))]), &ask);
        let (Ok(first), Ok(second)) = (one(&lines), one(&shuffled)) else { return Ok(()) };
        prop_assert_eq!(verdicts(&first), verdicts(&second));
        // In two files, either way round; blocks of two files are no pairs, so
        // only without them.
        if !paired {
            let (a, b) = shuffled.split_at(split.min(shuffled.len()));
            let (a, b) = (("a", file(a)), ("b", file(b)));
            if a.1.lines().count() > 1 && b.1.lines().count() > 1 {
                let there = analyse(&dataset(&[a.clone(), b.clone()]), &ask);
                let back = analyse(&dataset(&[b, a]), &ask);
                if let (Ok(there), Ok(back)) = (there, back) {
                    prop_assert_eq!(verdicts(&there), verdicts(&back));
                    prop_assert_eq!(verdicts(&there), verdicts(&first));
                }
            }
        }
    }

    #[test]
    fn the_unit_changes_no_verdict(
        a in prop::collection::vec(1.0..2.0, 5..12),
        b in prop::collection::vec(1.0..2.0, 5..12),
    ) {
        let text = |values: &[f64], scale: f64| {
            let values: Vec<f64> = values.iter().map(|value| value * scale).collect();
            benchmarks("X", &values)
        };
        let at = |scale: f64| {
            compared(&[("a", text(&a, scale)), ("b", text(&b, scale))], &CompareOptions::default())
        };
        let (small, large) = (at(1.0), at(1024.0));
        let (small, large) = (&only(&small).judgement, &only(&large).judgement);
        prop_assert_eq!(std::mem::discriminant(&small.verdict), std::mem::discriminant(&large.verdict));
        prop_assert!((small.ratio.unwrap() / large.ratio.unwrap() - 1.0).abs() < 1e-9);
    }
}

/// Spread over 24 boots, of which those of one block share a drift that is far
/// larger: only inside blocks it is seen which variant is steadier.
#[test]
fn steadiness_is_judged_inside_blocks_where_there_are_some() {
    let wave = |step: f64, place: u32| (step * f64::from(place)).sin();
    let boots = |spread_b: f64, drift: f64| -> String {
        let rows: Vec<String> = (0..24)
            .flat_map(|block| {
                let shared = 100.0 * (1.0 + drift * wave(0.9, block));
                let a = shared * (1.0 + 0.01 * wave(2.4, block));
                let b = shared * (1.0 + spread_b * wave(1.7, block));
                [format!("a,{block},{block},{a},s"), format!("b,{block},{block},{b},s")]
            })
            .collect();
        csv(&rows.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let check = |text: String, findings: &[bool]| {
        let comparison = compared(&[("x", text)], &CompareOptions::default());
        let Steadiness { comparisons, findings: found } = &comparison.steadiness;
        let steadier: Vec<bool> = found.iter().map(|finding| finding.steadier).collect();
        assert_eq!((*comparisons, &steadier[..]), (1, findings));
        found.first().map(|finding| finding.ratio)
    };
    let ratio = check(boots(0.06, 0.02), &[false]).unwrap();
    assert!(ratio.lo > 1.2 && ratio.hi < 6.0, "{ratio:?}");
    check(boots(0.001, 0.0), &[true]);
    check(boots(0.011, 0.02), &[]);
    // Without blocks, and with too few boots.
    let apart = |n: u32, spread: f64| -> Vec<f64> {
        (0..n).map(|place| 100.0 * (1.0 + spread * wave(2.4, place))).collect()
    };
    let of = |n: u32| {
        let inputs =
            [("old", benchmarks("X", &apart(n, 0.01))), ("new", benchmarks("X", &apart(n, 0.04)))];
        compared(&inputs, &CompareOptions::default()).steadiness
    };
    assert_eq!(of(19), Steadiness::default());
    assert!(!of(20).findings[0].steadier && of(20).findings[0].ratio.contains(4.0));
}
