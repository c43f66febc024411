//! Results folders that are not what was written: every command that uses one
//! says what is missing, and none counts anything twice.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::lab::{CommandOutput, Machine};

/// The lines of the journal in `dir`.
fn lines(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("journal.jsonl")).unwrap();
    text.split_inclusive('\n').map(str::to_owned).collect()
}

/// The first line that tells a trial's end.
fn a_trial(lines: &[String]) -> usize {
    lines.iter().position(|line| line.contains("trial-ended")).unwrap()
}

/// Every command that uses results, with what it prints where all is well.
const COMMANDS: [&[&str]; 14] = [
    &["report", "results"],
    &["report", "results", "--format", "html"],
    &["report", "results", "--format", "json"],
    &["report", "results", "--format", "csv"],
    &["report", "results", "--format", "samples-json"],
    &["export", "results", "--to", "csv"],
    &["export", "results", "--to", "jsonl"],
    &["export", "results", "--to", "benchfmt"],
    &["compare", "results"],
    &["compare", "results", "--format", "json"],
    &["compare", "results", "other", "--format", "json"],
    &["facts", "results"],
    &["facts", "--json", "results"],
    &["trend", "results", "--json"],
];

#[test]
fn every_command_says_what_is_missing() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = machine.results();
    machine.results_again("other", 1_800_000_000.0, "8.2.0", 1.0);
    for command in COMMANDS {
        let said = machine.say(command);
        assert_eq!(said.has_code(0).stderr, "", "{command:?}");
    }
    let whole = lines(&dir);
    let trial = a_trial(&whole);
    let mut flipped = whole.clone();
    flipped[trial] = flipped[trial].replacen("hackbench", "hackbenck", 1);
    let mut gone = whole.clone();
    gone.remove(trial);
    let mut twice = whole.clone();
    twice.insert(trial, whole[trial].clone());
    let mut cut = whole.clone();
    cut.last_mut().unwrap().truncate(20);
    let n = trial + 1;
    let damages = [
        (flipped, format!("journal.jsonl:{n}: damaged (checksum")),
        (gone, format!("journal.jsonl:{n}: a line is missing here")),
        (twice, format!("journal.jsonl:{}: the same line", n + 1)),
        (cut, format!("journal.jsonl:{}: a write was cut off", whole.len())),
    ];
    for (lines, what) in damages {
        // Of a write that was cut off nothing was acknowledged.
        let written = if what.ends_with("cut off") { &whole[..whole.len() - 1] } else { &whole };
        crate::lab::acknowledge(&dir, &written.concat());
        fs::write(dir.join("journal.jsonl"), lines.concat()).unwrap();
        for command in COMMANDS {
            let said = machine.say(command);
            let CommandOutput { stdout, stderr, .. } = said.has_code(1);
            assert_eq!(stderr.matches(&what).count(), 1, "{command:?}: {said:#?}");
            let is_json = command.last() == Some(&"json") || command.contains(&"--json");
            if is_json {
                let json: Value = serde_json::from_str(stdout).unwrap();
                let words = what.split(": ").last().unwrap();
                assert!(json.to_string().contains(words), "{command:?}: {stdout}");
            }
        }
    }
}

#[test]
fn a_trial_that_stands_there_twice_counts_once() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = machine.results();
    let samples = |said: CommandOutput| said.stdout.lines().count();
    let whole = samples(machine.say(["export", "results", "--to", "csv"]));
    let mut twice = lines(&dir);
    let trial = a_trial(&twice);
    twice.push(twice[trial].clone());
    fs::write(dir.join("journal.jsonl"), twice.concat()).unwrap();
    assert_eq!(samples(machine.say(["export", "results", "--to", "csv"])), whole);
    // The same in a journal of vmlab 0.1, whose lines have neither number nor chain.
    let old: String = twice
        .iter()
        .map(|line| {
            let json = line.split('\t').next().unwrap();
            format!("{json}\t{:08x}\n", crc32fast::hash(json.as_bytes()))
        })
        .collect();
    fs::write(dir.join("journal.jsonl"), old).unwrap();
    fs::remove_file(dir.join("journal.end")).unwrap();
    let said = machine.say(["export", "results", "--to", "csv"]);
    assert!(said.has_code(1).stderr.contains("the same line"), "{said:#?}");
    assert_eq!(samples(said), whole);
}

#[test]
fn a_folder_is_verified_with_its_texts() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = machine.results();
    let said = machine.say(["report", "results", "--verify"]);
    assert!(said.has_code(0).stdout.contains("4 trials, 0 texts: all is as"), "{said:#?}");
    // A text that was written, with a trial that names it.
    let mut events = crate::lab::events(&dir);
    let text = b"what a benchmark said";
    let name = runner::store::blob_name(text);
    for event in &mut events {
        if let record::journal::JournalEvent::TrialEnded(result) = event {
            result.console = Some(name.clone());
        }
    }
    crate::lab::write_journal(&dir, &crate::lab::journal_of(&events));
    let path = dir.join("blobs").join(&name);
    let check = |code: i32, what: &str| {
        let said = machine.say(["report", "results", "--verify", "--format", "json"]);
        let json: Value = serde_json::from_str(&said.has_code(code).stdout).unwrap();
        assert!(json.to_string().contains(what), "{json}");
    };
    check(1, "text-missing");
    fs::write(&path, b"something else").unwrap();
    check(1, "text-changed");
    fs::write(&path, text).unwrap();
    check(0, "\"texts\":1");
    let mut lines = lines(&dir);
    lines.remove(1);
    fs::write(dir.join("journal.jsonl"), lines.concat()).unwrap();
    check(1, "missing");
    machine.say(["report", "nowhere", "--verify"]).has_code(2);
}
