//! `vmlab import`, as a user calls it.

use std::fs;
use std::io::{BufRead as _, Write as _};
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
fn a_large_log_is_the_same_from_a_file_a_pipe_and_packed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (runs, failed) = (200_000, "Time: x\n");
    fs::write(&path, LOG.repeat(runs) + failed).unwrap();
    let of = |arguments: &[&str], input: &str| {
        let output = import(arguments, input);
        assert_eq!(output.status.code(), Some(1), "{:?}", output.stderr);
        let name = arguments.last().unwrap();
        stdout(&output).replace(name, "LOG")
    };
    let file = of(&[path.to_str().unwrap()], "");
    assert_eq!(file.lines().count(), 2 * runs + 1);
    assert_eq!(file.matches("time  1.250 s  groups=1 tasks=40\n").count(), runs);
    let piped = Command::new("sh")
        .args(["-c", "cat \"$1\" | \"$0\" import -", VMLAB, path.to_str().unwrap()])
        .output()
        .unwrap();
    let piped = stdout(&piped).replace("-: ", "LOG: ").replace("-:", "LOG:");
    assert!(piped == file, "a pipe's is another");
    compress(&path);
    let packed = folder.path().join("log.gz");
    assert!(of(&[packed.to_str().unwrap()], "") == file, "a packed file's is another");
    // Of one that was cut off, what is there is told, and that there is no more.
    let half = fs::read(&packed).unwrap();
    fs::write(&packed, &half[..half.len() - 9]).unwrap();
    let cut = import(&[packed.to_str().unwrap()], "");
    let said = String::from_utf8(cut.stderr.clone()).unwrap();
    assert_eq!(cut.status.code(), Some(2), "{said}");
    assert!(said.contains("log.gz") && said.contains("gzip cannot decompress"), "{said}");
}

#[test]
fn what_a_file_says_is_printed_before_the_next_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    fs::write(&first, LOG).unwrap();
    let made = Command::new("mkfifo").arg(&second).status().unwrap();
    assert!(made.success());
    let mut child = Command::new(VMLAB)
        .arg("import")
        .args([&first, &second])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    // Nobody has written to the second yet.
    assert!(lines.next().unwrap().unwrap().ends_with("first: hackbench"));
    assert!(lines.next().unwrap().unwrap().contains("1.250 s"));
    fs::write(&second, LOG).unwrap();
    assert!(lines.next().unwrap().unwrap().ends_with("second: hackbench"));
    assert_eq!(lines.count(), 1);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_failed_run_is_told() {
    let log = "pgbench (15.3)\npgbench: error: client 3 aborted in command 4 (SQL) of script 0\n\
               transaction type: <builtin: TPC-B (sort of)>\nscaling factor: 1\n\
               tps = 3365.804033 (without initial connection time)\n";
    let output = import(&["-"], log);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("-:2: the run failed, "), "{}", stdout(&output));

    let output = import(&["--json", "-"], log);
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["run"], &lines[0]["line"]), (&"failed".into(), &5.into()));
    assert_eq!((&lines[1]["line"], &lines[1]["tool"]), (&2.into(), &"pgbench".into()));
    assert!(lines[1]["failed"].as_str().unwrap().contains("client 3 aborted"));
}

#[test]
fn a_log_without_a_result_is_told_in_a_folder_too() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("good"), LOG).unwrap();
    fs::write(folder.path().join("readme"), "no log\n").unwrap();
    let output = import(&[folder.path().to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::write(folder.path().join("killed"), "sysbench 1.0.20 (using system LuaJIT 2.1.0)\n")
        .unwrap();
    let output = import(&[folder.path().to_str().unwrap()], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("killed: no result in the output of sysbench"), "{said}");
    assert!(said.contains("1 file in the folders"), "{said}");
}

#[test]
fn a_failure_alone_is_told_in_a_folder_too() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("good"), LOG).unwrap();
    let path = folder.path().join("failed");
    let fatal = "FATAL: Invalid value for --threads: 0.\n";
    fs::write(&path, fatal).unwrap();
    let path = path.to_str().unwrap();
    for named in [folder.path().to_str().unwrap(), path] {
        let output = import(&[named], "");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let expected =
            format!("{path}:1: a failure of cyclictest or sysbench? --as TOOL reads it: ");
        assert!(said.contains(&(expected + fatal)), "{said}");
        assert!(!said.contains("no tool that is known"), "{said}");
    }
    let output = import(&["--as", "sysbench", path], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains(":1: the run failed, "), "{}", stdout(&output));
}

#[test]
fn a_packed_line_without_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeros.gz");
    let script = "head -c 300000000 /dev/zero | gzip -1 > \"$0\"; \
                  exec \"$1\" import \"$0\"";
    let command = Command::new("sh").args(["-c", script]).arg(&path).arg(VMLAB).output();
    let output = command.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("zeros.gz:1: a line of more than 32 MiB"), "{said}");
}

#[test]
fn a_tool_that_was_named_is_not_asked_for_again() {
    let output = import(&["--as", "hackbench", "-"], "Dear all,\n");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("hackbench") && !said.contains("--as"), "{said}");
}

#[test]
fn what_a_crash_left_is_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, format!("{LOG}{}", "\0".repeat(100))).unwrap();
    let output = import(&["--json", path.to_str().unwrap()], "");
    assert_eq!(stdout(&output).lines().count(), 1, "{output:?}");
    assert_eq!(output.status.code(), Some(0));
    let binary = [b"\x7fELF\0\x01", LOG.as_bytes()].concat();
    fs::write(&path, binary).unwrap();
    let output = import(&[path.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(2));
    let output = import(&["--as", "hackbench", "--json", path.to_str().unwrap()], "");
    // Its heading lost something.
    assert_eq!((output.status.code(), stdout(&output).lines().count()), (Some(1), 2));
    assert!(stdout(&output).contains("zero bytes stand in it"), "{}", stdout(&output));
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
    for tool in logs::TOOLS {
        assert!(list.contains(tool.about), "{}", tool.name);
    }
}
