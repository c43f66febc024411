//! The program itself: what it prints and how it ends.

use std::process::{Command, Output};

use serde_json::Value;

fn probe(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vmlab-probe")).args(words).output().unwrap()
}

fn value(document: &Value, name: &str) -> f64 {
    let rows = document["metrics"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no {name}"))["value"].as_f64().unwrap()
}

#[test]
fn the_streams_and_codes_are_told_apart() {
    let fine = probe(&["syscalls", "--loops", "10", "--repeat", "1", "--warmup", "0"]);
    assert_eq!(fine.status.code(), Some(0));
    assert!(fine.stderr.is_empty());
    let document: Value = serde_json::from_slice(&fine.stdout).unwrap();
    assert_eq!(document["params"]["loops"], 10);
    assert!(document["costs"]["wall_s"].as_f64().unwrap() > 0.0);

    let wrong = probe(&["syscals"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stdout.is_empty() && !wrong.stderr.is_empty());
    assert_eq!(probe(&[]).status.code(), Some(2));
}

#[test]
fn unixbench_runs_all_its_tests() {
    let dir = tempfile::tempdir().unwrap();
    let dir_text = dir.path().to_str().unwrap();
    let ended = probe(&["unixbench", "--copies", "2", "--seconds", "0.03", "--dir", dir_text]);
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&ended.stderr));
    let document: Value = serde_json::from_str(&text).unwrap();
    let rows = document["metrics"].as_array().unwrap();
    assert_eq!(rows.len(), 25, "twelve results, their indexes and the score");
    let logs: f64 = rows
        .iter()
        .filter(|row| row["name"].as_str().unwrap().ends_with("-index"))
        .map(|row| row["value"].as_f64().unwrap().ln())
        .sum();
    assert!((value(&document, "score") / (logs / 12.0).exp() - 1.0).abs() < 1e-9);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "all files are gone");
}
