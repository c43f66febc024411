//! SIGINT, SIGTERM and SIGHUP end every command, wherever it is, and leave nothing.
//!
//! What starts VMs, changes settings or listens ends in order, and each has a test of its
//! own beside what it does. All others change nothing, and a signal ends them at once, as
//! it ends any program: here they are met while they read what never comes to its end.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;
use suite::until;

use crate::lab::{VMLAB, said, vmlab};
use crate::running::{owned_by, send};

/// Commands that wait for `PIPE` to be read, which nobody writes to.
const READERS: &[&str] = &[
    "check PIPE",
    "check PIPE --json",
    "run PIPE",
    "run PIPE --dry-run",
    "lint PIPE",
    #[cfg(feature = "kubernetes")]
    "lint --cluster --kubeconfig PIPE",
    "convert PIPE --to qemu",
    "predict PIPE",
    "plan --vcpus 2 --memory 1GiB --host PIPE",
    "host --from PIPE",
    "host --from PIPE --json",
    "import PIPE",
    "import PIPE --json",
    "compare PIPE PIPE",
    "sim PIPE",
    "rollout PIPE",
    "state show PIPE",
    "state show PIPE --json",
    "state diff PIPE PIPE",
    "state edit PIPE --set a.b=1 -o edited",
    "decide",
    "import -",
    "lint -",
];

/// Commands whose long work is not reading: by a signal they end in order, and a test
/// beside what they do holds that.
const IN_ORDER: &[&str] = &[
    "run",
    "calibrate",
    "capture",
    "image",
    "replica",
    #[cfg(feature = "kubernetes")]
    "cluster",
    "settings",
    "switch",
    "sim",
    "host",
    "watch",
];

/// Commands that say what they know, or read a results folder.
const SHORT: &[&str] = &[
    "audit",
    "emit",
    "report",
    "trend",
    "facts",
    "export",
    "workloads",
    "variants",
    #[cfg(feature = "kubernetes")]
    "k8s",
    "schema",
    "clean",
    "completions",
    "manual",
    "help",
];

/// Whether `child` is vmlab by now and has `file` open: it reads it or is about to.
fn has_open(child: &Child, file: &Path) -> bool {
    let program = fs::read_link(format!("/proc/{}/exe", child.id()));
    if program.ok() != fs::canonicalize(VMLAB).ok() {
        return false;
    }
    let open = fs::read_dir(format!("/proc/{}/fd", child.id()));
    let mut links = open.into_iter().flatten().flatten();
    links.any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == file))
}

#[test]
fn signals_end_every_command_that_reads() {
    let folder = tempfile::tempdir().unwrap();
    let folder = fs::canonicalize(folder.path()).unwrap();
    let pipe = folder.join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    // Open for both: who opens it to read does not wait, and never sees its end.
    let held = File::options().read(true).write(true).open(&pipe).unwrap();
    let signals = [Signal::INT, Signal::TERM, Signal::HUP].into_iter().cycle();
    for (words, signal) in READERS.iter().zip(signals) {
        let args = words.split(' ').map(|word| word.replace("PIPE", pipe.to_str().unwrap()));
        let stdin = if words.contains("PIPE") {
            Stdio::null()
        } else {
            Stdio::from(held.try_clone().unwrap())
        };
        let output = tempfile::tempdir().unwrap();
        let stderr = output.path().join("stderr");
        // A shell has SIGINT ignored in what it runs in the background, as these tests may be.
        let mut child = Command::new("env")
            .args(["--default-signal=INT,TERM,HUP", VMLAB])
            .args(args)
            .current_dir(&folder)
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        until("vmlab has opened what it is to read", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{words}: {status}: {}", fs::read_to_string(&stderr).unwrap());
            }
            has_open(&child, &pipe).then_some(())
        });
        send(child.id(), signal);
        let status = until("the end of vmlab", || child.try_wait().unwrap());
        assert_eq!(status.signal(), Some(signal.as_raw()), "{words}: {status}");
        assert_eq!(owned_by(child.id()), [], "{words}");
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|one| one.unwrap().path()).collect();
        assert_eq!(left, std::slice::from_ref(&pipe), "{words}");
    }
}

#[test]
fn every_command_has_its_place_here() {
    let help = said(&mut vmlab(["--help"]));
    let commands = help.stdout.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    for command in commands.filter_map(|line| line.split_whitespace().next()) {
        let reads = READERS.iter().any(|words| words.split(' ').next() == Some(command));
        let known = reads || IN_ORDER.contains(&command) || SHORT.contains(&command);
        assert!(known, "what does a signal to `vmlab {command}` do?");
    }
}
