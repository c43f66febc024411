//! `vmlab sim`: the same answer each time, records that others read, and errors
//! that say where.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/sim").join(name)
}

fn vmlab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vmlab")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn one_seed_is_one_answer() {
    let pair = scenario("pair.toml");
    let answer = |seed: &str| {
        let path = pair.to_str().unwrap();
        let output = vmlab(&["sim", path, "--draws", "4", "--seed", seed, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let first = answer("7");
    assert_eq!(first, answer("7"));
    assert_ne!(first, answer("8"));
    let answer: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(answer["environment"], "simulated");
    let cells = answer["cells"].as_array().unwrap();
    assert_eq!(cells[1]["variant"], "polling");
    assert_eq!(cells[1]["meters"][0]["p_greater"], 1.0);
    assert!(cells[1]["carried_by"]["exit costs"].as_f64().unwrap() > 0.1);
}

#[test]
fn records_are_compared_as_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.json");
    let pair = scenario("pair.toml");
    let args = ["sim", pair.to_str().unwrap(), "--draws", "6", "--no-why", "--records"];
    let output = vmlab(&[&args[..], &[records.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = vmlab(&["compare", records.to_str().unwrap()]);
    let compared = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{compared}");
    assert!(compared.contains("polling") && compared.contains("imulated"), "{compared}");
}

#[test]
fn errors_say_where() {
    let folder = tempfile::tempdir().unwrap();
    let pair = fs::read_to_string(scenario("pair.toml")).unwrap();
    let path = folder.path().join("s.toml");
    for (from, to, expected) in [
        ("cores = 4", "cores = 0", "s.toml:10: cores = 0"),
        ("pins = [\"0\", \"1\"]", "pins = [\"0\", \"4\"]", "no pCPU 4 that is online"),
        ("cores = 4", "file = \"absent.json\"", "absent.json"),
        (
            "class = \"ping-pong\"\npinned = true\nproduce_work = 10\nconsume_work = 1",
            "class = \"program\"\nchannels.queue = {}\n[[workload.items.task]]\nsteps = [{ receive = \"queue\" }]",
            "waits for \"queue\", which is empty",
        ),
    ] {
        assert!(pair.contains(from), "{from}");
        fs::write(&path, pair.replacen(from, to, 1)).unwrap();
        let output = vmlab(&["sim", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{to}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{said}");
    }
}

/// Every scenario that comes with vmlab is sound.
#[test]
fn own_scenarios_are_sound() {
    let mut count = 0;
    for entry in fs::read_dir(scenario("")).unwrap() {
        let path = entry.unwrap().path();
        let output = vmlab(&["sim", path.to_str().unwrap(), "--check"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        count += 1;
    }
    assert!(count >= 2);
}

#[test]
fn maps_are_pictures_and_traces() {
    let folder = tempfile::tempdir().unwrap();
    let [map, trace] = ["map.svg", "trace.json"].map(|name| folder.path().join(name));
    let pair = scenario("pair.toml");
    let pair = pair.to_str().unwrap();
    let args = ["--map", map.to_str().unwrap(), "--trace", trace.to_str().unwrap()];
    let output = vmlab(&[&["sim", pair, "--variant", "polling"][..], &args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(map).unwrap().contains("two vCPUs: polling"));
    let trace: Value = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 4);
    let output = vmlab(&["sim", pair, "--variant", "none", "--map", "x.svg"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there are halting, polling"));
}
