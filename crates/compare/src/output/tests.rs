//! Goldens of the outputs.

use expect_test::expect;

use super::*;
use crate::analyse::{CompareOptions, analyse};
use crate::data::Data;
use crate::read::ColumnNames;

/// Two benchmarks in as many inputs as there are factors.
fn comparison(factors: &[(f64, f64)]) -> ComparedData {
    let values = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2];
    let mut data = Data::default();
    for (input, (a, b)) in factors.iter().enumerate() {
        let lines = |name: &str, factor: f64| -> String {
            values.iter().map(|v| format!("Benchmark{name} 1 {} ns/op\n", v * factor)).collect()
        };
        let text = format!("goos: linux\n{}{}", lines("Sort/n=1", *a), lines("Sort/n=2", *b));
        data.read(&format!("in{input}"), &mut text.as_bytes(), &ColumnNames::new()).unwrap();
    }
    analyse(&data.finish(), &CompareOptions::default()).unwrap()
}

/// The table alone.
fn table(comparison: &ComparedData, width: Option<usize>) -> String {
    let text = text(comparison, TextStyle { colour: false, width });
    text.split_once("\n\n").unwrap().1.to_owned()
}

#[test]
fn two_variants_share_a_line() {
    expect![[r#"
        sec/op, lower is better
                               in0               in1               change                   -17.4 %       +21.1 %  verdict
          Sort/n=1             100.0 ns ±0.75 %  120.0 ns ±0.75 %  +20.0 % [+18.9, +21.1]           ┊ │ ┊      ─●  ▼ slower, worse by more than 3 %
          Sort/n=2             200.1 ns ±0.75 %  200.2 ns ±0.75 %  +0.05 % [-0.86, +0.97]           ┊ ●─┊          ≈ no difference larger than 3 %
          geometric mean of 2                                      +9.57 % [+8.91, +10.24]
    "#]].assert_eq(&table(&comparison(&[(1.0, 2.0), (1.2, 2.001)]), None));
}

#[test]
fn more_variants_have_a_line_each() {
    expect![[r#"
        sec/op, lower is better
                               variant                    change                     verdict
          Sort/n=1             in0      100.0 ns ±0.75 %
                               in1      50.02 ns ±0.75 %  -50.00 % [-50.46, -49.54]  ▲ faster
                               in2      105.0 ns ±0.75 %  +5.0 % [+4.0, +6.0]        ▼ slower, worse by more than 3 %
          Sort/n=2             in0      200.1 ns ±0.75 %
                               in1      200.1 ns ±0.75 %  0.00 % [-0.91, +0.92]      ≈ no difference larger than 3 %
                               in2      230.1 ns ±0.75 %  +15.0 % [+14.0, +16.1]     ▼ slower, worse by more than 3 %
          geometric mean of 2  in1                        -29.29 % [-29.72, -28.86]
          geometric mean of 2  in2                        +9.89 % [+9.22, +10.55]
    "#]].assert_eq(&table(&comparison(&[(1.0, 2.0), (0.5, 2.0), (1.05, 2.3)]), Some(70)));
}

/// Of three blocks the first looks exclude nothing.
#[test]
fn an_interval_without_end_has_no_hundreds_of_digits() {
    let mut comparison = comparison(&[(1.0, 2.0), (1.2, 2.001)]);
    let wide = |level| Some(stats::Interval { lo: 1e-304, hi: 6e303, level });
    for row in &mut comparison.rows {
        row.judged[0].as_mut().unwrap().judgement.interval = wide(0.95);
    }
    comparison.suites[0].interval = wide(0.95);
    let table = table(&comparison, None);
    assert!(table.lines().all(|line| line.chars().count() < 160), "{table}");
    assert!(table.contains("÷1000.0") && table.contains("×1000"), "{table}");
}

#[test]
fn what_is_said_first_is_what_it_comes_to() {
    let text = text(
        &comparison(&[(1.0, 2.0), (1.2, 2.001)]),
        TextStyle { colour: false, width: Some(80) },
    );
    expect![[r#"
        in1 against in0
        2 comparisons, 1 finding (Benjamini-Hochberg: at most 5 % of such a list are
        false). 1 differ by no more than 3 %, 0 are not decided.
          Which boots were measured beside each other is not known: Welch's t on the
          logarithms, with the Mann-Whitney test as a second opinion. Drift of the
          machine and the order of measurement count as differences here; --block names
          the label that says more.
          Which values come from one boot is not known, so each counts as a boot of its
          own. If several come from one, the intervals are too narrow and more than one
          in twenty verdicts is wrong; --boot names the label that says it.
          Verdicts at 5 %, margin 3 %.
          Everywhere: goos=linux"#]]
    .assert_eq(text.split_once("\n\n").unwrap().0);
}

#[test]
fn a_page_is_well_formed_and_so_is_the_json() {
    let comparison = comparison(&[(1.0, 2.0), (1.2, 2.001)]);
    let page = html(&comparison);
    for (open, close) in
        [("<table", "</table>"), ("<tr", "</tr>"), ("<td", "</td>"), ("<svg", "</svg>")]
    {
        assert_eq!(page.matches(open).count(), page.matches(close).count(), "{open}");
    }
    let json: serde_json::Value = serde_json::from_str(&json(&comparison)).unwrap();
    assert_eq!(
        (json["format"].as_str(), json["version"].as_u64()),
        (Some("vmlab-comparison"), Some(1))
    );
}
