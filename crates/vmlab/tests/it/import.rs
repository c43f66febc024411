//! `vmlab import`, as a user calls it.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::lab::VMLAB;

const LOG: &str = "Running with 1*40 (== 40) tasks.\nTime: 1.250\n";

fn import(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(VMLAB)
        .arg("import")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn standard_input_is_read_and_labelled() {
    let output = import(&["--json", "--label", "variant=pinned", "-"], LOG);
    assert_eq!(output.status.code(), Some(0));
    let value: serde_json::Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!(value["value"], 1.25);
    assert_eq!(value["labels"]["variant"], "pinned");
    assert_eq!(value["line"], 2);
}

#[test]
fn what_is_not_read_is_a_finding_and_what_is_no_log_an_error() {
    let cut = import(&["-"], &format!("{LOG}{LOG}Time: 1.2"));
    assert_eq!(cut.status.code(), Some(1));
    assert!(stdout(&cut).contains("-:5: not read"), "{}", stdout(&cut));

    let nothing = import(&["-"], "Dear all,\n");
    assert_eq!(nothing.status.code(), Some(1));
    let wrong = import(&["--as", "hackbnech", "-"], LOG);
    assert_eq!(wrong.status.code(), Some(2));
    let absent = import(&["/no/such/file"], "");
    assert_eq!(absent.status.code(), Some(2));
}

#[test]
fn a_tree_of_mmtests_is_labelled() {
    let folder = tempfile::tempdir().unwrap();
    for (config, boot) in [("default", "0"), ("default", "1"), ("pinned", "0")] {
        let logs = folder.path().join(format!("log/{config}/iter-{boot}/hackbench/logs"));
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join("hackbench-1.log"), LOG).unwrap();
        fs::write(logs.join("readme"), "no log\n").unwrap();
    }
    compress(&folder.path().join("log/pinned/iter-0/hackbench/logs/hackbench-1.log"));
    let output = import(&["--json", folder.path().to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let values: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let labels: Vec<(&str, &str)> = values
        .iter()
        .map(|value| {
            let label = |key: &str| value["labels"][key].as_str().unwrap();
            assert_eq!(label("benchmark"), "hackbench");
            (label("variant"), label("boot"))
        })
        .collect();
    assert_eq!(labels, [("default", "0"), ("default", "1"), ("pinned", "0")]);
}

fn compress(path: &Path) {
    assert!(Command::new("gzip").arg(path).status().unwrap().success());
}

#[test]
fn the_tools_are_listed() {
    let output = Command::new(VMLAB).args(["import", "--list"]).output().unwrap();
    let list = stdout(&output);
    for tool in workload::logs::TOOLS {
        assert!(list.contains(tool.about), "{}", tool.name);
    }
}
