//! `vmlab switch` where there is little room, or nobody who reads.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{CommandOutput, VMLAB};

#[test]
fn too_few_open_files_are_told_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("prlimit")
        .args(["--nofile=600:600", "--", VMLAB, "switch", "--control", "control"])
        .args(["--port", "a.sock,queues=64", "--port", "b.sock,queues=64"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    CommandOutput::of(output)
        .is_error(&["this process may have 600: raise its limit (`ulimit -Hn`"]);
    assert!(!folder.path().join("a.sock").exists());
}

#[test]
fn a_switch_whose_lines_nobody_reads_serves_and_ends() {
    if std::env::var_os("LLVM_PROFILE_FILE").is_some() {
        // It can't open its file in the sandbox, and waits for somebody to read that.
        return suite::skip(
            "what counts the lines that are run writes an error when a switch ends",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(VMLAB)
        .args(["switch", "--control", "control", "--quiet", "--port", "a.sock"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = child.stderr.take().unwrap();
    fcntl_setpipe_size(&errors, 4096).unwrap();
    let mut errors = BufReader::new(errors);
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("the switch runs"), "{line}");
    // A few a second are told of, until the pipe has no room for another line.
    let unread = || rustix::io::ioctl_fionread(errors.get_ref()).unwrap();
    let connections = || {
        for _ in 0..16 {
            drop(UnixStream::connect(folder.path().join("a.sock")).unwrap());
        }
        let status = Command::new(VMLAB)
            .args(["switch", "ctl", "--control", "control", "status", "--json"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        status["ports"][0]["connections"].as_u64().unwrap()
    };
    suite::until("a full pipe", || {
        connections();
        (unread() > 4096 - 80).then_some(())
    });
    let before = connections();
    suite::until("others to be served", || (connections() > before + 64).then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!folder.path().join("a.sock").exists());
}
