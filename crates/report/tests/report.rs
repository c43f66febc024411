//! Whole reports, all made up: what they say, and that nothing breaks out.

#[path = "../examples/sample_report/made_up.rs"]
mod made_up;
#[path = "../examples/sample_report/rollout.rs"]
mod rollout;

use expect_test::expect;
use proptest::prelude::*;
use record::Environment;
use report::{Report, ShownInterval, TerminalStyle, VariantRole, html, terminal};
use unicode_width::UnicodeWidthStr;

fn all() -> Vec<(&'static str, Report)> {
    let mut one = made_up::poor();
    one.variants.truncate(1);
    one.groups[0].cells.truncate(1);
    one.failures.clear();
    vec![
        ("two loads", made_up::two_loads()),
        ("many", made_up::many()),
        ("poor", made_up::poor()),
        ("one variant", one),
        ("not begun", made_up::empty("new", "A study that has not begun")),
        ("counted", made_up::counted()),
        ("accounted", made_up::accounted()),
    ]
}

fn text_of(report: &Report) -> String {
    terminal(report, 80, TerminalStyle { colour: false })
}

fn parse(page: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(page, options).unwrap()
}

#[test]
fn the_terminal_says_the_verdict_first() {
    let mut report = made_up::two_loads();
    report.groups.truncate(1);
    report.groups[0].movers.truncate(2);
    expect![[r#"
        Does a second vCPU help hackbench?
        Compare a VM with 1, 2 and 4 vCPUs, on an idle host and while others use half of
        it.
        Study smp, 5 blocks done.
        Emulated (QEMU TCG): times are emulated time and say nothing about the speed of
        real hardware.
        No guest booted under /dev/kvm within 20 s, so QEMU emulates.
        Warning: The host's own hypervisor took 0.4 s from it during block 3 (steal):
        trials 31 to 38.

        ▲ faster         2-vcpu is faster than 1-vcpu at hackbench with no load added:
                         time ×0.53 [0.50, 0.56] (95 %, 5 blocks), emulated (TCG).
        ▲ faster         4-vcpu is faster than 1-vcpu at hackbench with no load added:
                         time ×0.49 [0.48, 0.50] (95 %, 5 blocks), emulated (TCG).
        = A/A passed     A/A check passed: 1-vcpu-again, the same as 1-vcpu, shows no
                         difference at hackbench with no load added: time ×0.99 [0.97,
                         1.02] (95 %, 5 blocks), emulated (TCG).

        hackbench, no load added: time (s, lower is better)
          variant       boots  time                  ratio               verdict
          1-vcpu            5  1.240 [1.206, 1.274]                      baseline
          2-vcpu            5  0.657 [0.633, 0.682]  ×0.53 [0.50, 0.56]  ▲ faster
          4-vcpu            5  0.609 [0.597, 0.622]  ×0.49 [0.48, 0.50]  ▲ faster
          1-vcpu-again      5  1.231 [1.223, 1.238]  ×0.99 [0.97, 1.02]  = A/A passed

        Published beside measured, in emulated time (compare the ratios: machines
        differ, and how much work was done)
          variant  published  measured  published ratio  measured ratio  judged
          1-vcpu     1.300 s   1.240 s
          2-vcpu     0.620 s   0.657 s            ×0.48           ×0.53  contradicts

        Published orders and ratios, beside measured, in emulated time
          published                                      measured            judged
          4-vcpu at least as good as 2-vcpu              ×0.93 [0.89, 0.96]  agrees
          kvm.exits a run: 2-vcpu by 1-vcpu ×0.75 to     ×0.53 [0.50, 0.56]  contradicts
          ×0.80
          Source: made-up numbers, Table 1 (1 and 2 vCPUs)
          Source: made-up numbers, Figure 3

        Why: what moved most from 1-vcpu to 2-vcpu, per run
          counter                    from       to  change  what it counts
          guest.ipi_reschedule         12  48.21 k   ×4018  Rescheduling IPIs in the
                                                            guest; each operation 0.0001
                                                            → 0.48
          guest.context_switches  312.0 k  187.0 k   ×0.60  Context switches in the
                                                            guest; each operation 3.12 →
                                                            1.87

        1 trial failed
        ✕ 4-vcpu at cyclictest under host load half, block 2: guest panicked
          the console said: Kernel panic - not syncing: VFS: Unable to mount root fs
          console: results/blobs/0f3a

        samples: results/samples.csv
        journal: results/journal
    "#]]
    .assert_eq(&text_of(&report));
}

#[test]
fn failed_cells_and_single_blocks_are_said_plainly() {
    expect![[r#"
        first-try
        Study first-try, 1 block done.
        Emulated (QEMU TCG): times are emulated time and say nothing about the speed of
        real hardware.
        No guest booted under /dev/kvm within 20 s, so QEMU emulates.

        ! not valid      Not valid: b against a at sysbench-cpu with no load added:
                         events-per-s ×0.91 (1 block, no interval), emulated (TCG). Only
                         1 block in which both were measured, an interval needs 2.
        ! not valid      Not valid: never-boots against a at sysbench-cpu with no load
                         added: no complete block yet, emulated (TCG). No boot of
                         never-boots brought a value.

        sysbench-cpu, no load added: events-per-s (/s, higher is better)
          variant      boots  events-per-s        ratio  verdict
          a                1  434.3                      baseline
          b                1  396.8               ×0.91  ! not valid
          never-boots      0  no value, 1 failed         ! not valid

        1 trial failed
        ✕ never-boots at sysbench-cpu with no load added, block 0: guest panicked
          the console said: Kernel panic - not syncing: VFS: Unable to mount root fs
          console: results/blobs/0f3a

        samples: results/samples.csv
        journal: results/journal
    "#]]
    .assert_eq(&text_of(&made_up::poor()));
}

#[test]
fn a_single_variant_and_an_empty_study_have_no_verdict() {
    let reports = all();
    expect![[r#"
        first-try
        Study first-try, 1 block done.
        Emulated (QEMU TCG): times are emulated time and say nothing about the speed of
        real hardware.
        No guest booted under /dev/kvm within 20 s, so QEMU emulates.

        a at sysbench-cpu with no load added: events-per-s 434.3 /s (1 boot).
        There is one variant: nothing to compare it with.

        sysbench-cpu, no load added: events-per-s (/s, higher is better)
          variant  boots  events-per-s  ratio  verdict
          a            1  434.3                baseline

        samples: results/samples.csv
        journal: results/journal
    "#]]
    .assert_eq(&text_of(&reports[3].1));
    expect![[r#"
        A study that has not begun
        Study new, 5 blocks done.
        Emulated (QEMU TCG): times are emulated time and say nothing about the speed of
        real hardware.
        No guest booted under /dev/kvm within 20 s, so QEMU emulates.

        No trial has ended yet: there is nothing to show.

        samples: results/samples.csv
        journal: results/journal
    "#]]
    .assert_eq(&text_of(&reports[4].1));
}

#[test]
fn quantiles_of_one_latency_are_drawn_as_a_distribution() {
    assert!(!html(&made_up::two_loads()).contains("Latency distribution"), "one quantile is none");
    let page = html(&made_up::latency());
    let drawn: Vec<_> = page.match_indices("<strong>Latency distribution</strong>").collect();
    assert_eq!(drawn.len(), 1, "both loads in one figure");
    let words = ["latency, host load idle", "latency, host load half", ">p99.9<", ">max<"];
    for words in words.into_iter().chain(["The tool prints these quantiles and no samples."]) {
        assert!(page.contains(words), "{words}");
    }
    parse(&page);
}

#[test]
fn a_difference_is_told_as_an_account() {
    let mut report = made_up::accounted();
    let text = text_of(&report);
    let from = text.find("The account").expect("an account");
    let upto = text[from..].find("Why:").expect("the counters behind it");
    expect![[r#"
        The account in seconds, a run of hackbench (half), 95 % intervals: 4-vcpu
        against 1-vcpu
        4-vcpu takes 410.0 ms more than 1-vcpu (±60.00 ms): IPIs to halted vCPUs +230.0
        ms ±50.00 ms, halts woken by no IPI +110.0 ms ±10.000 ms, EPT/NPT/stage 2 faults
        +20.00 ms ±2.000 ms, unexplained +50.00 ms ±80.00 ms.
                                    more      each      makes    interval
          IPIs to halted vCPUs    +23000  10.00 µs  +230.0 ms   ±50.00 ms
          halts woken by no IPI   +15700  7.000 µs  +110.0 ms  ±10.000 ms
          EPT/NPT/stage 2 faults   +8000  2.500 µs  +20.00 ms   ±2.000 ms
          unexplained                               +50.00 ms   ±80.00 ms
          difference                                +410.0 ms   ±60.00 ms
          Without a price: 120 I/O ports more. `vmlab calibrate --all` measures
          pio-qemu.
          Parts are time of vCPUs. What several vCPUs, or a vCPU and the rest of the
          benchmark, spend at the same time counts each, so that what is unexplained may
          be less than nothing. A wake-up counts as an IPI's as long as there are IPIs.

    "#]]
    .assert_eq(&text[from..from + upto]);
    let page = html(&report);
    for part in ["EPT/NPT/stage 2 faults", "unexplained", "±50.00 ms", "measures pio-qemu"] {
        assert!(page.contains(part), "{part}");
    }
    if let Some(report::Accounting::Used { other_settings, .. }) = &mut report.accounting {
        let [setting, list, study] = ["kvm.halt_poll_ns", "0", "200000"].map(str::to_owned);
        other_settings.push(report::OtherSetting { setting, list, study });
    }
    let told = text_of(&report).split_whitespace().collect::<Vec<_>>().join(" ");
    let other = "taken with other settings of the host: kvm.halt_poll_ns 0, not 200000.";
    assert!(told.contains(other) && html(&report).contains(other), "{told}");
    // Where the clock counts instructions it is not told as time.
    report.environment = Environment::InstructionCounted;
    let text = text_of(&report);
    assert!(text.contains("executes 410.0 M instructions more than 1-vcpu"), "{text}");
    report.accounting = Some(report::Accounting::Missing);
    report.environment = Environment::Kvm;
    let told = text_of(&report).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("`vmlab calibrate --all --as-in-trials --out prices.json` makes one"),
        "{told}"
    );
    let why = vec![report::UnfitPrices::SoftwareKvm];
    report.accounting = Some(report::Accounting::Unfit { why });
    assert!(html(&report).contains("No account in seconds: the prices were taken under a KVM"));
}

#[test]
fn what_was_counted_is_drawn_with_its_band_and_told_in_numbers() {
    let page = html(&made_up::counted());
    let drawn: Vec<_> = page.match_indices("<strong>Latency distribution</strong>").collect();
    assert_eq!(drawn.len(), 1, "the printed quantiles are not drawn beside it");
    assert!(!page.contains("The tool prints these quantiles"));
    for words in [
        "drawn anew (bootstrap over boots)",
        ">p99.99<",
        "1-vcpu, p99.9: ",
        "the quantile of all that a boot counted",
        "4-vcpu, 1-vcpu-again: too few samples for p99.99: 150000 of 200000.",
    ] {
        assert!(page.contains(words), "{words}");
    }
    parse(&page);
    let json: serde_json::Value = serde_json::from_str(&made_up::counted().to_json()).unwrap();
    let curve = &json["distributions"][0]["curves"][0];
    assert_eq!(curve["samples"], 400_000);
    assert!(curve["quantiles"][1]["estimate"]["interval"]["hi"].is_f64());

    let mut report = made_up::counted();
    report.distributions[1].curves.truncate(2);
    report.distributions[1].curves[1].overflows = 23;
    report.groups.retain(|group| group.workload == "cyclictest" && group.load == "half");
    report.groups.truncate(1);
    let text = text_of(&report);
    let from = text.find("Distribution of").unwrap();
    let to = text[from..].find("\n\n").unwrap();
    expect![[r#"
        Distribution of latency, all boots together, with the 95 % band of a bootstrap
        over boots
          quantile  1-vcpu                   2-vcpu
          p50       42.50 µs [41.46, 44.63]  55.25 µs [53.90, 58.01]
          p90       80.00 µs [72.73, 96.00]  104.0 µs [94.55, 124.8]
          p99       200.0 µs [166.7, 280.0]  260.0 µs [216.7, 364.0]
          p99.9     400.0 µs [307.7, 640.0]  520.0 µs [400.0, 832.0]
          samples   150000                   150000
          1-vcpu: too few samples for p99.99: 150000 of 200000.
          2-vcpu: too few samples for p99.99: 150000 of 200000; 23 of 150000 samples lie
          beyond the histogram, and what reaches them is not shown.
    "#]]
    .assert_eq(&text[from..from + to + 1]);
}

#[test]
fn an_aa_arm_that_differs_is_a_failed_check() {
    let mut report = made_up::two_loads();
    report.variants[1].role = VariantRole::AaArm;
    report.groups.truncate(1);
    let text = text_of(&report);
    assert!(
        text.contains("! A/A failed     A/A check failed: 2-vcpu, the same as 1-vcpu"),
        "{text}"
    );
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for (name, report) in all() {
        for width in [40, 60, 80, 120, 200] {
            for line in terminal(&report, width, TerminalStyle { colour: false }).lines() {
                assert!(line.width() <= width, "{name} at {width}: {line:?}");
            }
        }
    }
}

#[test]
fn colour_adds_escape_sequences_and_nothing_else() {
    for (_, report) in all() {
        let plain = text_of(&report);
        assert!(!plain.contains('\u{1b}'));
        let coloured = terminal(&report, 80, TerminalStyle { colour: true });
        let mut stripped = String::new();
        for (i, part) in coloured.split("\u{1b}[").enumerate() {
            stripped.push_str(if i == 0 { part } else { part.split_once('m').unwrap().1 });
        }
        assert_eq!(stripped, plain);
    }
}

#[test]
fn pages_are_well_formed_and_load_nothing() {
    for (name, report) in all() {
        let page = html(&report);
        let document = parse(&page);
        let mut ids = Vec::new();
        for node in document.descendants().filter(roxmltree::Node::is_element) {
            let tag = node.tag_name().name();
            assert!(
                !["script", "link", "img", "iframe", "object"].contains(&tag),
                "{name}: <{tag}>"
            );
            for attribute in node.attributes() {
                let about = format!("{name}: {}={:?}", attribute.name(), attribute.value());
                assert!(!["src", "href"].contains(&attribute.name()), "{about}");
                assert!(!attribute.name().starts_with("on"), "{about}");
                assert!(!attribute.value().contains("NaN"), "{about}");
                assert!(!attribute.value().contains("inf"), "{about}");
                if attribute.name() == "id" {
                    ids.push(attribute.value().to_owned());
                }
            }
        }
        assert!(!page.contains("url(") && !page.contains("@import"), "{name}");
        assert!(!page.contains(">NaN") && !page.contains("NaN<"), "{name}");
        ids.sort();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "{name}: an id stands twice");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_value_is_too_odd_for_a_figure(
        odd in prop::collection::vec(
            prop_oneof![
                any::<f64>().prop_filter("records hold finite values", |value| value.is_finite()),
                Just(0.0), Just(-1.0), Just(1e-300), Just(1.0), 0.9f64..1.1,
            ],
            30..60,
        )
    ) {
        let mut report = made_up::two_loads();
        let mut odd = odd.into_iter().cycle();
        let mut next = || odd.next().unwrap_or(0.0);
        for group in &mut report.groups {
            for cell in &mut group.cells {
                let ratios = cell.judgement.iter_mut().filter_map(|j| j.ratio.as_mut());
                for estimate in cell.estimate.iter_mut().chain(ratios) {
                    let mut ends = [next(), next(), next()];
                    ends.sort_by(f64::total_cmp);
                    estimate.centre = ends[1];
                    estimate.interval = Some(ShownInterval { lo: ends[0], hi: ends[2] });
                }
                for boot in &mut cell.boots {
                    boot.value = next();
                    boot.samples.fill_with(&mut next);
                }
            }
        }
        let page = html(&report);
        for node in parse(&page).descendants().filter(roxmltree::Node::is_element) {
            for attribute in node.attributes().filter(|a| a.name() != "aria-label") {
                let value = attribute.value();
                prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{value}");
            }
        }
        for line in terminal(&report, 80, TerminalStyle { colour: false }).lines() {
            prop_assert!(line.width() <= 80, "{line}");
        }
    }
}

#[test]
fn every_boot_and_sample_is_in_the_figures() {
    let report = made_up::two_loads();
    let page = html(&report);
    let document = parse(&page);
    let figure = document
        .descendants()
        .find(|node| {
            node.has_tag_name(("http://www.w3.org/2000/svg", "svg"))
                && node.attribute("class") == Some("plot figure")
        })
        .unwrap();
    let paths = || figure.descendants().filter(|node| node.tag_name().name() == "path");
    let told = paths().filter(|node| {
        node.children().any(|title| title.text().is_some_and(|text| text.contains("trial ")))
    });
    let groups = || report.groups.iter().filter(|group| group.workload == "hackbench");
    let boots: Vec<_> =
        groups().flat_map(|group| &group.cells).flat_map(|cell| &cell.boots).collect();
    assert_eq!(told.count(), boots.len());
    let dots: usize = paths()
        .filter(|node| node.attribute("class").unwrap_or("").starts_with("sample"))
        .map(|node| node.attribute("d").unwrap_or("").matches('M').count())
        .sum();
    assert_eq!(dots, boots.iter().map(|boot| boot.samples.len()).sum::<usize>());
}

#[test]
fn emulation_is_said_at_the_top_and_beside_every_verdict() {
    let mut report = made_up::two_loads();
    let page = html(&report);
    let banner = page.find(Environment::Tcg.sentence()).unwrap();
    assert!(banner < page.find("class=\"verdicts\"").unwrap());
    let verdicts = page.matches("class=\"claim\"").count();
    assert_eq!(page.matches("chip where").count(), verdicts);

    report.environment = Environment::Kvm;
    assert!(!html(&report).contains("emulated (TCG)</span>"));
}

#[test]
fn what_was_simulated_is_never_called_measured() {
    let mut report = made_up::two_loads();
    report.environment = Environment::Simulated;
    let text = text_of(&report);
    assert!(text.contains("Published beside simulated, in simulated time"), "{text}");
    assert!(text.contains("simulated ratio"), "{text}");
    let page = html(&report);
    assert!(page.contains("<h2>How it was simulated</h2>"));
    for shown in [text, page] {
        for word in ["beside measured", "measured ratio", "measured SD", ">measured<"] {
            assert!(!shown.contains(word), "{word}");
        }
    }
}

#[test]
fn hostile_text_stays_text_wherever_it_stands() {
    let hostile = "<b onload=x>&\"'</b>\u{1b}[31m\u{0}";
    let shown = "<b onload=x>&\"'</b>␛[31m␀";
    let mut report = made_up::two_loads();
    let json = report.to_json();
    // Every text of the report, whatever its field, becomes hostile.
    let mut value: serde_json::Value = serde_json::from_str(&json).unwrap();
    poison(&mut value, "", hostile);
    report = serde_json::from_value(value).unwrap();
    let page = html(&report);
    let document = parse(&page);
    assert!(document.descendants().all(|node| node.tag_name().name() != "b"));
    assert!(document.descendants().filter_map(|node| node.text()).any(|text| text.contains(shown)));
    assert!(!text_of(&report).contains('\u{1b}'));
}

/// Replaces every free text by `hostile`; words of enums, numbers and formats
/// stay.
fn poison(value: &mut serde_json::Value, key: &str, hostile: &str) {
    const WORDS: [&str; 12] = [
        "environment",
        "role",
        "verdict",
        "better",
        "kind",
        "format",
        "virtualised",
        "version",
        "says",
        "relation",
        "of",
        "agreement",
    ];
    match value {
        serde_json::Value::String(text) if !WORDS.contains(&key) => hostile.clone_into(text),
        serde_json::Value::Array(items) => {
            items.iter_mut().for_each(|item| poison(item, key, hostile));
        }
        serde_json::Value::Object(fields) if key != "host" => {
            fields.iter_mut().for_each(|(key, field)| poison(field, key, hostile));
        }
        _ => {}
    }
}

#[test]
fn a_report_survives_its_json() {
    for (name, report) in all() {
        let back: Report = serde_json::from_str(&report.to_json()).unwrap();
        assert!(back == report, "{name}");
    }
}

#[test]
fn command_lines_mark_what_differs_from_the_baseline() {
    let page = html(&made_up::two_loads());
    let document = parse(&page);
    let added: Vec<&str> = document
        .descendants()
        .filter(|node| node.attribute("class") == Some("added"))
        .filter_map(|node| node.text())
        .collect();
    assert_eq!(
        added,
        ["+ -smp 2,sockets=1,cores=2,threads=1", "+ -smp 4,sockets=1,cores=4,threads=1"]
    );
}

#[test]
fn the_page_says_how_it_was_measured() {
    let page = html(&made_up::two_loads());
    let start = page.find("<h2>How it was measured</h2>").unwrap();
    let end = start + page[start..].find("</section>").unwrap();
    expect![[r#"
        <h2>How it was measured</h2>
        <p>Every value comes from a fresh boot of a real virtual machine. A block boots every variant once for each workload, in random order (seed 20260102), inside one level of host load; 5 of 5 planned blocks were completed for each load.</p>
        <p>The samples of a boot become one number; variants are compared inside a block, where they met the same host. The test: Student&#39;s t on the logarithms of the ratios inside the blocks. All intervals are at 95 %.</p>
        <p>An A/A arm ran along: 1-vcpu-again is the baseline under a second name, and a difference found there is a false alarm.</p>
        <p>The study ended: all planned blocks are done.</p>
        <p>It took 12 min 34 s.</p>
        <dl>
        <dt>host load idle</dt><dd>nothing else runs</dd>
        <dt>host load half</dt><dd>stress-ng on half of the pCPUs, anywhere</dd>
        </dl>
    "#]].assert_eq(&page[start..end]);
}

#[test]
fn a_verdict_in_html_has_word_sentence_interval_and_place() {
    let page = html(&made_up::two_loads());
    let start = page.find("<li><span>").unwrap();
    let end = start + page[start..].find("</li>").unwrap();
    expect![[r#"<li><span><span class="chip better"><span aria-hidden="true">▲</span> faster</span></span><div><p class="claim">2-vcpu is faster than 1-vcpu at hackbench with no load added</p><p>time ×0.53 [0.50, 0.56] (95 %, 5 blocks) <span class="chip where">emulated (TCG)</span></p></div>"#]].assert_eq(&page[start..end]);
}

#[test]
fn a_roll_out_has_a_picture_and_a_row_for_every_look() {
    let page = report::rollout_html(&rollout::month());
    let document = parse(&page);
    let class = |node: &roxmltree::Node<'_, '_>, word: &str| {
        node.attribute("class").is_some_and(|class| class.split(' ').any(|one| one == word))
    };
    let all = |word: &'static str| document.descendants().filter(move |node| class(node, word));
    // Days without a ratio have no mark: of each counter the first.
    assert_eq!(all("look").count(), 27 + 27 + 2);
    assert_eq!(all("ratio").count(), 27 + 27 + 2, "an interval each");
    let rows = document.descendants().filter(|node| {
        node.has_tag_name("tr") && node.ancestors().any(|above| class(&above, "looks"))
    });
    assert_eq!(rows.count(), (28 + 1) + (28 + 1) + (3 + 1), "with a head each");
    let claims: Vec<_> = all("claim").filter_map(|node| node.text()).collect();
    assert_eq!(claims[0], "What to do");
    assert!(page.contains("cpu-pm on &lt;a batch&gt; of new hosts"), "{page}");
    assert!(page.contains("too few hosts") && page.contains("which decided"), "{page}");
    assert!(page.contains("more than 1000"), "{page}");
    // Before the change there is nothing to decide, and no look.
    let mut before = rollout::month();
    before.step = None;
    before.metrics.iter_mut().for_each(|metric| metric.looks.clear());
    let page = report::rollout_html(&before);
    let document = parse(&page);
    assert!(!document.descendants().any(|node| class(&node, "verdicts") || class(&node, "plot")));
    assert!(document.descendants().any(|node| class(&node, "sizes")));
}
