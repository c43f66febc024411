//! Results folders of earlier vmlabs, frozen: every later one reports them.

use std::fs;
use std::path::{Path, PathBuf};

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
