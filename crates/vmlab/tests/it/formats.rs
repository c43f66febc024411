//! Results folders of earlier vmlabs, frozen: every later one reports them.

use std::fs;
use std::path::{Path, PathBuf};

use record::journal::JournalEvent;
use runner::plan::StudyPlan;
use serde_json::Value;

use crate::lab::Machine;

/// The folders below `tests/formats`: a folder a format, in it a study each.
pub(crate) fn frozen() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    let folders = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut found: Vec<_> = folders(&root)
        .into_iter()
        .filter(|path| path.is_dir())
        .flat_map(|version| folders(&version))
        .collect();
    found.sort();
    found
}

/// A copy that may be written to.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn results_of_earlier_vmlabs_are_still_used() {
    let folders = frozen();
    assert!(!folders.is_empty());
    for folder in folders {
        let machine = Machine::with_qemu("8.2.0");
        copy(&folder, &machine.path("results"));
        // What it said when it was frozen.
        let expected: Value =
            serde_json::from_slice(&fs::read(folder.join("report.json")).unwrap()).unwrap();
        let failed = !expected["failures"].as_array().unwrap().is_empty();
        let say = |args: &[&str]| {
            let said = machine.say(args);
            let finds = failed && args[0] == "report" && !args.contains(&"--verify");
            assert_eq!(said.has_code(i32::from(finds)).stderr, "", "{args:?}");
            said.stdout
        };
        let report: Value =
            serde_json::from_str(&say(&["report", "results", "--format", "json"])).unwrap();
        for (group, was) in
            report["groups"].as_array().unwrap().iter().zip(expected["groups"].as_array().unwrap())
        {
            for (cell, was) in
                group["cells"].as_array().unwrap().iter().zip(was["cells"].as_array().unwrap())
            {
                for what in ["variant", "boots", "estimate"] {
                    assert_eq!(cell[what], was[what], "{}: {what}", folder.display());
                }
                assert_eq!(cell["judgement"]["verdict"], was["judgement"]["verdict"]);
            }
        }
        let samples = fs::read_to_string(folder.join("samples.csv")).unwrap();
        assert_eq!(say(&["export", "results", "--to", "csv"]), samples);
        assert_eq!(say(&["report", "results", "--format", "csv"]), samples);
        say(&["report", "results", "--format", "html"]);
        say(&["compare", "results"]);
        say(&["trend", "results"]);
        say(&["facts", "results"]);
        assert!(say(&["report", "results", "--verify"]).contains("all is as it was written"));
        // It can be gone on with, as far as that is a matter of the folder.
        let (store, contents) = runner::store::Store::resume(&machine.path("results")).unwrap();
        assert!(contents.events.len() > 10);
        drop(store);
        say(&["report", "results"]);
        // What is added to it is numbered, from where the old lines end.
        let dir = machine.path("results");
        let (mut store, contents) = runner::store::Store::resume(&dir).unwrap();
        let lines = contents.events.len();
        let more = record::journal::JournalEvent::Extended { blocks: 9, unix_s: 1.8e9 };
        runner::store::TrialSink::append(&mut store, &more).unwrap();
        drop(store);
        let contents = runner::store::read(&dir).unwrap();
        assert_eq!((contents.events.len(), contents.damage.len()), (lines + 1, 0));
        let text = fs::read_to_string(dir.join("journal.jsonl")).unwrap();
        let last = text.lines().last().unwrap();
        assert_eq!(last.split('\t').nth(1), Some((lines + 1).to_string().as_str()));
    }
}

const SIMULATED: &str = r#"vmlab = 1
title = "Begun by another vmlab"
baseline = "one"
[budget]
blocks = 2
[[variant]]
name = "one"
vm.vcpus = 1
[[variant]]
name = "two"
vm.vcpus = 2
[[workload]]
run = "probe-stream"
"#;

/// A study of the simulator of which vmlab `version` made the first of two blocks, with a
/// plan that was `changed`.
fn begun_by(machine: &Machine, version: &str, changed: impl Fn(&mut Value)) -> PathBuf {
    fs::write(machine.path("study.toml"), SIMULATED).unwrap();
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan/two-sockets.json");
    let on = format!("sim:{}", host.display());
    let dir = machine.path("begun");
    drop(fs::remove_dir_all(&dir));
    machine.say(["run", "study.toml", "--on", &on, "--seed", "3", "--out", "begun"]).has_code(0);
    let mut events = crate::lab::events(&dir);
    let block_ended = |event: &JournalEvent| matches!(event, JournalEvent::BlockEnded { .. });
    events.truncate(events.iter().position(block_ended).unwrap() + 1);
    let path = dir.join("plan.json");
    let mut plan: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    plan["vmlab_version"] = version.into();
    changed(&mut plan);
    let text = serde_json::to_vec_pretty(&plan).unwrap();
    fs::write(&path, &text).unwrap();
    let hash = StudyPlan::from_json(&text).unwrap().hash();
    for event in &mut events {
        if let JournalEvent::SessionStarted { vmlab_version, plan_hash, .. } = event {
            (*vmlab_version, *plan_hash) = (version.to_owned(), hash.clone());
        }
    }
    crate::lab::write_journal(&dir, &crate::lab::journal_of(&events));
    dir
}

/// What vmlab is called decides nothing; what a trial measures does.
#[test]
fn a_later_vmlab_goes_on_with_an_earlier_ones_study() {
    let machine = Machine::with_qemu("8.2.0");
    let here = env!("CARGO_PKG_VERSION");
    begun_by(&machine, "0.0.9", |_| ());
    let said = machine.say(["run", "--resume", "begun", "--json"]);
    let told = format!("begun by vmlab 0.0.9 and goes on with {here}");
    assert!(said.has_code(0).stderr.contains(&told), "{said:#?}");
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["method"]["blocks_done"], 2);
    let warned = |report: &Value| {
        let warnings = report["warnings"].as_array().unwrap().iter();
        warnings.filter_map(Value::as_str).find(|one| one.contains("0.0.9")).map(str::to_owned)
    };
    let blocks = format!("0 by vmlab 0.0.9, 1 by vmlab {here}");
    assert!(warned(&report).unwrap().contains(&blocks), "{report}");
    // Of one version nothing is told.
    begun_by(&machine, here, |_| ());
    let said = machine.say(["run", "--resume", "begun", "--json"]);
    assert!(!said.has_code(0).stderr.contains("begun by"), "{said:#?}");

    begun_by(&machine, "0.9.0", |plan| plan["measurement_version"] = 99.into());
    machine.say(["run", "--resume", "begun"]).is_error(&[
        "begun by vmlab 0.9.0",
        "measure otherwise",
        "start anew",
    ]);
}

/// A plan with a field of a later vmlab's in a VM is reported, and the field named once;
/// what it means for a trial nobody here knows.
#[test]
fn fields_of_a_later_vmlab_are_told() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = begun_by(&machine, "0.9.0", |plan| {
        plan["variants"][0]["spec"]["colour"] = "blue".into();
        plan["budget"]["patience"] = 3.into();
    });
    let host = dir.join("host.json");
    let text = fs::read_to_string(&host).unwrap();
    fs::write(&host, text.replacen('{', "{\n  \"weight_kg\": 20,", 1)).unwrap();
    let said = machine.say(["report", "begun", "--format", "json"]);
    let lines: Vec<_> = said.has_code(0).stderr.lines().collect();
    let [plan, host] = lines[..] else { panic!("{said:#?}") };
    assert!(plan.starts_with("vmlab: begun/plan.json: "), "{plan}");
    assert!(plan.ends_with("passes over: budget.patience, variants[0].spec.colour"), "{plan}");
    assert!(host.contains("begun/host.json: ") && host.ends_with(": weight_kg"), "{host}");
    machine
        .say(["run", "--resume", "begun"])
        .is_error(&["begun by vmlab 0.9.0", "budget.patience, variants[0].spec.colour"]);

    // The same of a VM: a line says what was left out, and the rest is converted.
    let emitted = machine.say(["emit", "--to", "json", "--vcpus", "2"]);
    let vm = emitted.has_code(0).stdout.replacen('{', "{\n  \"colour\": \"blue\",", 1);
    fs::write(machine.path("vm.json"), vm).unwrap();
    let said = machine.say(["convert", "vm.json", "--to", "qemu"]);
    assert!(said.stdout.contains("-smp 2") && said.stderr.contains("vm.json:2: "), "{said:#?}");
    assert!(said.stderr.contains("colour"), "{said:#?}");
}
