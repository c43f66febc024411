//! `vmlab compare` and `vmlab export`: formats in, formats out, exit codes, and
//! the real benchstat beside ours.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use suite::{SharedThing, Tier, needs};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::lab::{CommandOutput, Machine, said, vmlab};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files in a folder of their own, and a vmlab that runs there.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn say(&self, args: &[&str]) -> CommandOutput {
        said(vmlab(args).current_dir(self.0.path()))
    }
}

fn benchmarks(name: &str, values: &[f64]) -> String {
    values.iter().map(|value| format!("Benchmark{name} 1 {value} ns/op\n")).collect()
}

const OLD: [f64; 6] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2];

fn new(factor: f64) -> Vec<f64> {
    OLD.iter().map(|value| value * factor).collect()
}

#[test]
fn every_format_says_the_same() {
    let slower = benchmarks("X|<b>", &new(1.2));
    let folder = Folder::with(&[("old.txt", &benchmarks("X|<b>", &OLD)), ("new.txt", &slower)]);
    let say = |format: &str| {
        let said = folder.say(&["compare", "old.txt", "new.txt", "--format", format]);
        said.has_code(0);
        said.stdout
    };
    let text = say("text");
    assert!(text.contains("▼ slower") && text.contains("+20.0 % ["), "{text}");
    assert!(!text.contains('\x1b'), "no colours outside of a terminal");
    let markdown = say("markdown");
    assert!(markdown.contains("| X\\|\\<b> |") && markdown.contains("▼ slower"), "{markdown}");
    let csv = say("csv");
    assert!(csv.lines().count() == 2 && csv.contains(",b-worse,true,"), "{csv}");
    let html = say("html");
    assert!(html.contains("X|&lt;b&gt;") && html.contains("chip worse"), "{html}");
    assert!(!html.contains("<script"));
    let json: serde_json::Value = serde_json::from_str(&say("json")).unwrap();
    let judged = &json["rows"][0]["judged"][0];
    assert_eq!(
        (judged["verdict"].as_str(), judged["finding"].as_bool()),
        (Some("b-worse"), Some(true))
    );
    assert_eq!(json["design"], "unblocked-values");
    assert!((judged["ratio"].as_f64().unwrap() - 1.2).abs() < 1e-12);
}

#[test]
fn the_gate_decides_the_exit_code() {
    let gate = |factor: f64, margin: &str| {
        let slower = benchmarks("X", &new(factor));
        let folder = Folder::with(&[("a", &benchmarks("X", &OLD)), ("b", &slower)]);
        folder.say(&["compare", "a", "b", "--gate", "--margin", margin])
    };
    gate(1.0, "3").has_code(0);
    gate(0.5, "3").has_code(0);
    let failed = gate(1.2, "3");
    assert!(failed.has_code(1).stderr.contains("worse by more than 3 %"), "{failed:#?}");
    gate(1.2, "30").has_code(0);
    let said = Folder::with(&[("a", &benchmarks("X", &OLD)), ("b", &benchmarks("X", &new(1.2)))])
        .say(&["compare", "a", "b"]);
    said.has_code(0);
}

#[test]
fn a_study_has_the_verdicts_of_its_report_to_the_last_bit() {
    let machine = Machine::with_qemu("8.2.0");
    let results = machine.results();
    let results = results.to_str().unwrap();
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&machine.say(args).stdout).unwrap()
    };
    let report = json(&["report", results, "--format", "json"]);
    let comparison = json(&["compare", results, "--format", "json"]);
    let mut compared = 0;
    let groups = report["groups"].as_array().unwrap();
    for (group, row) in groups.iter().zip(comparison["rows"].as_array().unwrap()) {
        assert_eq!(
            row["name"],
            format!("{}, {}", group["workload"].as_str().unwrap(), group["load"].as_str().unwrap())
        );
        for cell in group["cells"].as_array().unwrap() {
            let Some(judgement) = cell["judgement"].as_object() else { continue };
            let variants = comparison["variants"].as_array().unwrap();
            let place = variants.iter().position(|name| *name == cell["variant"]).unwrap();
            let ours = &row["judged"][place - 1];
            let ratio = &judgement["ratio"];
            assert_eq!(
                ours["ratio"].as_f64().map(f64::to_bits),
                ratio["centre"].as_f64().map(f64::to_bits)
            );
            for end in ["lo", "hi"] {
                let bits = |value: &serde_json::Value| value[end].as_f64().map(f64::to_bits);
                assert_eq!(bits(&ours["interval"]), bits(&ratio["interval"]));
            }
            assert_eq!(
                ours["p"].as_f64().map(f64::to_bits),
                judgement["p"].as_f64().map(f64::to_bits)
            );
            assert_eq!(ours["blocks_used"], judgement["blocks"]);
            compared += 1;
        }
    }
    assert!(compared > 0);
    // The same study read as records gives the same blocks.
    let records = json(&["compare", results, "--variant", "variant", "--format", "json"]);
    assert_eq!(records["design"], "paired");
}

/// Whatever the numbers are, everything that tells a verdict tells the same one, in the
/// same word and with the same sign.
#[test]
fn a_verdict_is_the_same_wherever_it_is_told() {
    let mut random = Pcg64::seed_from_u64(20);
    let mut told = std::collections::BTreeSet::new();
    for case in 0..14 {
        // From no difference and no noise to a large one of either.
        let effect = random.random_range(-0.04..0.04) * f64::from(case % 7);
        let noise = random.random_range(0.001..0.02) * f64::from(case % 3);
        let machine = Machine::with_qemu("8.2.0");
        let drawn: Vec<f64> = (0..64).map(|_| random.random_range(-noise..=noise)).collect();
        let value = |block: u32, is_two: bool| {
            let effect = if is_two { effect } else { 0.0 };
            (drawn[2 * block as usize + usize::from(is_two)] + effect).exp()
        };
        let results = machine.results_of(&[("blocks = 2", "blocks = 8")], &|trial| {
            value(trial.block, trial.variant == "two")
        });
        let results = results.to_str().unwrap();
        let json = |args: &[&str]| -> serde_json::Value {
            serde_json::from_str(&machine.say(args).stdout).unwrap()
        };
        let report = json(&["report", results, "--format", "json"]);
        let cells = report["groups"][0]["cells"].as_array().unwrap();
        let verdict = cells.iter().find_map(|cell| cell["judgement"]["verdict"].as_str()).unwrap();
        let comparison = json(&["compare", results, "--format", "json"]);
        let judged = &comparison["rows"][0]["judged"][0];
        let (compared, short) = match (judged["verdict"].as_str().unwrap(), &judged["b_better"]) {
            ("b-better", _) => ("better", "▲ faster"),
            ("b-worse", _) => ("worse", "▼ slower"),
            ("below-margin", serde_json::Value::Bool(true)) => {
                ("slightly-better", "△ barely faster")
            }
            ("below-margin", _) => ("slightly-worse", "▽ barely slower"),
            ("equivalent", _) => ("equivalent", "≈ no difference"),
            ("not-decided", _) => ("not-decided", "? not decided"),
            other => panic!("{other:?}"),
        };
        assert_eq!(verdict, compared, "{report:#}\n{comparison:#}");
        for args in [
            &["report", results][..],
            &["compare", results],
            &["compare", results, "--format", "markdown"],
        ] {
            let text = machine.say(args).stdout;
            assert!(text.contains(short), "{args:?}: {short}: {text}");
        }
        let (sign, word) = short.split_once(' ').unwrap();
        for args in
            [["report", results, "--format", "html"], ["compare", results, "--format", "html"]]
        {
            let page = machine.say(args).stdout;
            assert!(page.contains(sign) && page.contains(word), "{args:?}: {short}");
        }
        machine.say(["compare", results, "--gate"]).has_code(i32::from(verdict == "worse"));
        decide_says(&machine, verdict, &value);
        if matches!(verdict, "better" | "worse") && effect.abs() > 0.035 {
            trend_says(&machine, verdict, short, effect, &drawn);
        }
        told.insert(verdict.to_owned());
    }
    assert!(told.len() >= 4, "{told:?}");
}

/// Told the same numbers block by block, `decide` has the verdict of the report, or none
/// yet, as it may stop earlier; and its verdict is what its own interval says.
fn decide_says(machine: &Machine, verdict: &str, value: &dyn Fn(u32, bool) -> f64) {
    let block = |block: u32| {
        let trial = |config, is_two| serde_json::json!({"config": config, "values": [value(block, is_two)]});
        serde_json::json!({"op": "data", "trials": [trial("A", false), trial("B", true)]})
    };
    let start = serde_json::json!({"op": "start", "meta": {"margin": 0.03, "max_blocks": 8}});
    let session: Vec<String> =
        [start].into_iter().chain((0..8).map(block)).map(|line| line.to_string()).collect();
    let said = machine.say_told(["decide"], &session.join("\n"));
    let answers = said.has_code(0).stdout.lines();
    let answer = answers
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .find(|line| line.get("verdict").is_some())
        .unwrap();
    let decided = answer["verdict"].as_str().unwrap();
    let allowed: &[&str] = match verdict {
        "better" => &["B_better", "inconclusive"],
        "worse" => &["B_worse", "inconclusive"],
        "slightly-better" => &["B_better", "equivalent", "inconclusive"],
        "slightly-worse" => &["B_worse", "equivalent", "inconclusive"],
        "equivalent" => &["equivalent", "inconclusive"],
        _ => &["B_better", "B_worse", "equivalent", "inconclusive"],
    };
    assert!(allowed.contains(&decided), "{verdict}: {answer}");
    let [lo, hi] = ["lo", "hi"].map(|key| answer[key].as_f64().unwrap());
    match decided {
        "B_better" => assert!(hi < 1.0, "{answer}"),
        "B_worse" => assert!(lo > 1.0, "{answer}"),
        "equivalent" => assert!(lo <= 1.0 && 1.0 <= hi, "{answer}"),
        _ => {}
    }
}

/// The difference between two variants, once it is one between yesterday and today, is
/// told with the same sign and word, and stops at the same gate.
fn trend_says(machine: &Machine, verdict: &str, short: &str, effect: f64, drawn: &[f64]) {
    for day in 0..8_u32 {
        let wobble = 1e-4 * f64::from(day % 3) + if day < 4 { 0.0 } else { effect };
        let began_s = 1.8e9 + 86_400.0 * f64::from(day);
        let value =
            |trial: &record::journal::TrialKey| (drawn[trial.block as usize] + wobble).exp();
        machine.results_again_of(&format!("nightly/{day}"), began_s, "8.2.0", &value);
    }
    let said = machine.say(["trend", "nightly", "--min-percent", "3", "--gate"]);
    let text = &said.has_code(i32::from(verdict == "worse")).stdout;
    let (sign, word) = short.split_once(' ').unwrap();
    let change = text.lines().find(|line| line.contains(" since ")).unwrap_or_default();
    assert!(
        change.contains(&format!("{sign} since")) && change.contains(&format!(", {word} (")),
        "{short}: {text}"
    );
}

#[test]
fn inputs_of_many_kinds_are_compared_with_each_other() {
    let hyperfine = |factor: f64| {
        let times: Vec<String> = new(factor).iter().map(|v| format!("{}", v / 1000.0)).collect();
        format!("{{\"results\": [{{\"command\": \"sort\", \"times\": [{}]}}]}}", times.join(","))
    };
    let csv: String = new(1.3).iter().map(|v| format!("sort,{v},ms\n")).collect();
    let log = "Running in process mode with 10 groups using 40 file descriptors each (== 400 tasks)\n\
        Each sender will pass 100 messages of 100 bytes\nTime: 0.109\n";
    let folder = Folder::with(&[
        ("a.json", &hyperfine(1.0)),
        ("b.json", &hyperfine(0.7)),
        ("c/1.csv", &format!("command,time,unit\n{csv}").replace("time", "value")),
        ("logs/1.log", log),
        ("logs/2.log", log),
        ("other.log", log),
        ("failed/1.log", &format!("{log}{log}")),
        ("failed/2.log", &log.replace("Time: 0.109", "SENDER: write (error: Broken pipe)")),
        ("nothing.txt", "hello\n"),
    ]);
    let two = folder.say(&["compare", "a.json", "b.json"]);
    assert!(two.has_code(0).stdout.contains("▲ faster"), "{two:#?}");
    let named = folder.say(&["compare", "old=a.json", "new=b.json"]);
    assert!(named.has_code(0).stdout.starts_with("new against old\n"), "{named:#?}");
    let mixed = folder.say(&["compare", "--metric", "time", "logs", "other.log"]);
    assert!(mixed.has_code(0).stdout.contains("time, lower is better"), "{mixed:#?}");
    // What a failed run takes away is told in every form, and by the exit code.
    for format in ["text", "markdown", "html", "json"] {
        let args = ["compare", "--metric", "time", "logs", "failed", "--format", format];
        let said = folder.say(&args);
        assert!(said.has_code(1).stdout.contains("failed and was left out"), "{said:#?}");
        assert!(said.stderr.contains("failed/2.log:3: the run of hackbench failed"), "{said:#?}");
    }
    folder
        .say(&["compare", "a.json", "nothing.txt"])
        .is_error(&["nothing.txt", "no format that is known"]);
    folder.say(&["compare", "a.json", "absent"]).is_error(&["Cannot read absent"]);
    folder.say(&["compare", "a.json"]).is_error(&["All values have command = sort"]);
    folder.say(&["compare", "a.json", "b.json", "--filter", "x"]).is_error(&["expected key:value"]);
    folder.say(&["compare", "a.json", "b.json", "--better", "time"]).is_error(&["METRIC=lower"]);
    folder.say(&["compare", "a.json", "b.json", "--margin", "0"]).is_error(&["Margin 0"]);
    folder.say(&["compare"]).has_code(2);
}

#[test]
fn benchstat_s_table_is_printed() {
    let root = root();
    let say = |args: &[&str]| said(vmlab(args).current_dir(root.join("docs/compare")));
    let table = say(&["compare", "--benchstat", "old.txt", "new.txt"]);
    // Made by the real benchstat, which the slow tests ask again.
    let golden = fs::read_to_string(root.join("crates/compare/testdata/benchstat-2026-09.txt"));
    assert_eq!(table.has_code(0).stdout, golden.unwrap());
    let filtered = say(&["compare", "--benchstat", "--filter", "/format:gob", "old.txt"]);
    assert!(filtered.stdout.contains("gob") && !filtered.stdout.contains("json"), "{filtered:#?}");
    say(&["compare", "--benchstat", "--format", "html", "old.txt"]).is_error(&["text and csv"]);
    say(&["compare", "--benchstat", "--by", "name", "old.txt"]).has_code(2);
}

#[test]
fn a_study_is_exported_with_one_line_a_boot() {
    let machine = Machine::with_qemu("8.2.0");
    let results = machine.results();
    let results = results.to_str().unwrap();
    let export = |format: &str| machine.say(["export", results, "--to", format]);
    let benchfmt = export("benchfmt").has_code(0).stdout.clone();
    let lines =
        |text: &str, start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    let csv = export("csv").has_code(0).stdout.clone();
    let trials: std::collections::BTreeSet<&str> = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|cells| cells[6] == "true")
        .map(|cells| cells[7])
        .collect();
    assert_eq!(lines(&benchfmt, "Benchmark"), trials.len(), "{benchfmt}");
    assert!(lines(&benchfmt, "Unit ") > 0);
    assert_eq!(benchfmt.lines().filter(|line| line.contains(": ")).count(), 0, "no file keys");
    let json = export("jsonl").has_code(0).stdout.clone();
    assert_eq!(json.lines().count() + 1, csv.lines().count());
    // What is exported is read back.
    let folder = Folder::with(&[("s.txt", &benchfmt), ("s.csv", &csv), ("s.jsonl", &json)]);
    for (file, design) in
        [("s.csv", "paired"), ("s.jsonl", "paired"), ("s.txt", "unblocked-values")]
    {
        let said = folder.say(&["compare", file, "--variant", "variant", "--format", "json"]);
        let json: serde_json::Value = serde_json::from_str(&said.has_code(0).stdout).unwrap();
        assert_eq!(json["design"], design, "{file}");
    }
    let out = machine.path("out.csv");
    let said = machine.say(["export", results, "--to", "csv", "--out", out.to_str().unwrap()]);
    said.has_code(0);
    assert_eq!(fs::read_to_string(out).unwrap(), csv);
    if !cfg!(feature = "parquet") {
        export("parquet").is_error(&["without Parquet", "--features parquet"]);
    }
}

/// Draws numbers from a fixed seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn part(&mut self) -> f64 {
        self.next(1 << 24) as f64 / f64::from(1 << 24)
    }

    /// Roughly normal.
    fn noise(&mut self) -> f64 {
        (0..12).map(|_| self.part()).sum::<f64>() - 6.0
    }
}

/// Output of benchmarks with everything that tables depend on: ties, few
/// samples, equal values, zeros, several units, packages and sub-names,
/// benchmarks that only some inputs have.
fn generated(draw: &mut Draw, input: u64) -> String {
    const NAMES: [&str; 8] = [
        "Encode/format=json-8",
        "Encode/format=gob-8",
        "A",
        "B/c=d/e-4",
        "Long/name=with=eq",
        "Zero-2",
        "Tie",
        "One",
    ];
    const UNITS: [&str; 7] =
        ["ns/op", "B/op", "allocs/op", "MB/s", "frobs", "p99-ns", "exact-bytes"];
    const COUNTS: [u64; 14] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 26, 31, 52, 10];
    let mut text = "goos: linux\ngoarch: amd64\n".to_owned();
    if draw.next(2) == 0 {
        text.push_str("Unit exact-bytes assume=exact\n");
    }
    for package in 0..=draw.next(2) {
        writeln!(text, "pkg: example.org/p{package}").unwrap();
        if draw.next(5) == 0 {
            text.push_str("goos:\n");
        }
        if draw.next(5) == 0 {
            writeln!(text, "note: hello, \"w\" {}", draw.next(2)).unwrap();
        }
        for name in NAMES {
            if draw.next(7) == 0 {
                continue;
            }
            let count = if draw.next(2) == 0 { 10 } else { COUNTS[draw.next(14) as usize] };
            let units: Vec<&str> = UNITS.into_iter().filter(|_| draw.next(3) == 0).collect();
            let centre = 10_f64.powf(draw.part() * 9.0 - 2.0);
            let tied = draw.next(3) == 0;
            for _ in 0..if units.is_empty() { 0 } else { count } {
                write!(text, "Benchmark{name}\t{}", 1 + draw.next(1_000_000)).unwrap();
                for unit in &units {
                    let value = centre * (1.0 + 0.02 * draw.noise() + 0.02 * input as f64);
                    let value = match (name, *unit) {
                        ("Zero-2", _) => format!("{}", draw.next(10).saturating_sub(7)),
                        (_, "exact-bytes") => format!("{}", 4096 + u64::from(draw.next(20) == 0)),
                        ("One", _) => "7".to_owned(),
                        _ if tied => format!("{:.0}", 40.0 * value / centre),
                        _ => format!("{value:.4}"),
                    };
                    write!(text, "  {value} {unit}").unwrap();
                }
                text.push('\n');
            }
        }
    }
    text.push_str("PASS\nok  \texample.org\t1.2s\n");
    text
}

/// `text` with the geometric means of CSV, whose last digits depend on whose
/// logarithm it was, rounded to 12 digits.
fn rounded(text: &str) -> String {
    let round = |cell: &str| match cell.parse::<f64>() {
        Ok(value) => format!("{value:.11e}"),
        Err(_) => cell.to_owned(),
    };
    text.lines()
        .map(|line| match line.strip_prefix("geomean,") {
            Some(rest) => {
                format!("geomean,{}\n", rest.split(',').map(round).collect::<Vec<_>>().join(","))
            }
            None => format!("{line}\n"),
        })
        .collect()
}

#[test]
fn the_real_benchstat_says_the_same() {
    let Some(_turn) = needs(Tier::Test).alone_with(SharedThing::Cache).turn() else { return };
    let script = Command::new(root().join("scripts/get-benchstat")).output().unwrap();
    if !script.status.success() {
        suite::skip(format!("benchstat: {}", String::from_utf8_lossy(&script.stderr).trim()));
        return;
    }
    let benchstat = String::from_utf8(script.stdout).unwrap().trim().to_owned();
    let compare = |folder: &Path, options: &[[&str; 2]], files: &[String]| {
        for format in ["text", "csv"] {
            let mut theirs = Command::new(&benchstat);
            let mut ours = vmlab(["compare", "--benchstat", "--format", format]);
            theirs.args(["-format", format]);
            for [name, value] in options {
                theirs.args([&format!("-{name}"), *value]);
                ours.args([&format!("--{name}"), *value]);
            }
            let theirs = said(theirs.args(files).current_dir(folder));
            let ours = said(ours.args(files).current_dir(folder));
            assert_eq!(
                rounded(&ours.stdout),
                rounded(&theirs.stdout),
                "{format} of {files:?} {options:?}"
            );
        }
    };
    for seed in 0..150 {
        let mut draw = Draw(seed);
        let folder = tempfile::tempdir().unwrap();
        let count = 1 + draw.next(4);
        let mut files: Vec<String> = (0..count).map(|index| format!("f{index}.txt")).collect();
        for (index, file) in files.iter().enumerate() {
            fs::write(folder.path().join(file), generated(&mut draw, index as u64)).unwrap();
        }
        let options: &[[&str; 2]] = match seed % 5 {
            0 => &[["alpha", "0.01"], ["confidence", "0.9"]],
            1 => &[["filter", "-.unit:(frobs OR ns/op) .name:/^[A-Z]/"]],
            2 => &[["filter", "/c:d OR .unit:B/s OR /gomaxprocs:8"]],
            _ => &[],
        };
        if seed % 7 == 0 {
            files[0] = format!("old={}", files[0]);
            files.push(files[files.len() - 1].clone());
        }
        compare(folder.path(), options, &files);
    }
    let docs = root().join("docs/compare");
    compare(&docs, &[], &["old.txt".to_owned(), "new.txt".to_owned()]);
}
