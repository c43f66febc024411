//! The program itself: what it prints and how it ends.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use suite::{Tier, needs};

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

/// The arm64 build as users get it, run by QEMU's user mode emulation.
#[test]
fn the_arm64_build_computes_the_same() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let built = Command::new(root.join("scripts/build-probe")).arg("aarch64").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let program = root.join("target/probe/aarch64/vmlab-probe");
    let emulated = |line: &str| {
        let ended = Command::new("qemu-aarch64-static")
            .arg(&program)
            .args(line.split_whitespace())
            .output()
            .expect("scripts/install-deps test installs qemu-user-static");
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let why = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{line}: {text}{why}");
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&document["arch"], &document["verified"]), (&"aarch64".into(), &true.into()));
        document
    };
    emulated("npb --class S --threads 2");
    emulated("syscalls --loops 100 --repeat 1 --warmup 0");
    emulated("sem --items 100 --loops 10 --repeat 1 --warmup 0");
    emulated("stream --array-mib 1 --repeat 2 --threads 2");
    emulated("lock --seconds 0.02 --repeat 1 --warmup 0 --threads 2");
    for test in ["dhrystone", "whetstone", "pipe", "syscall"] {
        // Its copies are started by the name of the emulated program, which
        // works where the kernel runs foreign programs by binfmt_misc.
        if Path::new("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists() {
            emulated(&format!("unixbench --test {test} --seconds 0.05"));
        }
    }
}
