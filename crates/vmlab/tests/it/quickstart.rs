//! `scripts/quickstart` with programs that play cargo, vmlab and the installer:
//! the order of its steps, its exit codes, and what an interruption leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use suite::until;

use crate::lab::CommandOutput;

/// Each call is noted; one that is named in `fails` ends with the code there,
/// one that is named in `hangs` says its process and stays.
const PLAYER: &str = r#"#!/bin/sh
call="${0##*/} $1"
echo "$call" >>"$TREE/calls"
if [ "$call" = "$(cat "$TREE/hangs")" ]; then
    echo $$ >"$TREE/pid.new" && mv "$TREE/pid.new" "$TREE/pid"
    exec sleep 1000
fi
if [ "${0##*/}" = cargo ]; then
    mkdir -p target/debug && cp "$0" target/debug/vmlab
fi
[ "$call" != 'vmlab check' ] || echo 'Time         about 42 s'
while IFS=: read -r known code; do
    [ "$call" != "$known" ] || exit "$code"
done <"$TREE/fails"
"#;

/// All that is called where nothing goes wrong.
const CALLS: [&str; 5] =
    ["install-deps run", "cargo build", "vmlab image", "vmlab check", "vmlab run"];

/// A tree with the script and those that play the others.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/quickstart");
        fs::create_dir(tree.path("scripts")).unwrap();
        fs::copy(script, tree.path("scripts/quickstart")).unwrap();
        for name in ["scripts/install-deps", "cargo"] {
            fs::write(tree.path(name), PLAYER).unwrap();
            fs::set_permissions(tree.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in ["fails", "hangs", "calls"] {
            fs::write(tree.path(name), "").unwrap();
        }
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn quickstart(&self) -> Command {
        let mut command = Command::new("bash");
        command
            .arg(self.path("scripts/quickstart"))
            .env("TREE", self.0.path())
            .env("CARGO", self.path("cargo"))
            .env_remove("CARGO_TARGET_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn calls(&self) -> Vec<String> {
        fs::read_to_string(self.path("calls")).unwrap().lines().map(str::to_owned).collect()
    }
}

#[test]
fn each_step_is_said_and_its_failure_is_the_end() {
    let check = |fails: &str, code: i32, calls: usize| {
        let tree = Tree::new();
        fs::write(tree.path("fails"), fails).unwrap();
        let said = CommandOutput::of(tree.quickstart().output().unwrap());
        assert_eq!(said.code, Some(code), "{fails}: {said:#?}");
        assert_eq!(tree.calls(), CALLS[..calls], "{fails}: {said:#?}");
        for step in 1..=calls.min(4) {
            assert!(said.stdout.contains(&format!("[{step}/4] ")), "{said:#?}");
        }
        said
    };
    let well = check("", 0, 5);
    assert!(well.stdout.contains("[4/4] Running studies/quickstart.toml: about 42 s"), "{well:#?}");
    check("install-deps run:2\n", 2, 1);
    check("cargo build:101\n", 101, 2);
    check("vmlab image:2\n", 2, 3);
    check("vmlab run:2\n", 2, 5);
    let failed = check("vmlab run:1\n", 1, 5);
    assert!(failed.stderr.contains("Some VMs failed"), "{failed:#?}");
}

#[test]
fn an_interruption_ends_the_step_and_all_that_it_has_started() {
    for hangs in CALLS.into_iter().filter(|call| *call != "vmlab check") {
        let tree = Tree::new();
        fs::write(tree.path("hangs"), hangs).unwrap();
        // As a terminal does it: everybody in the group hears it.
        let child = tree.quickstart().process_group(0).spawn().unwrap();
        let group = Pid::from_child(&child);
        let pid = until(hangs, || {
            fs::read_to_string(tree.path("pid")).ok()?.trim().parse().ok().and_then(Pid::from_raw)
        });
        kill_process_group(group, Signal::INT).unwrap();
        let said = CommandOutput::of(child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(130), "{hangs}: {said:#?}");
        assert!(said.stderr.contains("quickstart: interrupted"), "{hangs}: {said:#?}");
        // Whose child it became may take its time until its name is free.
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        let state = stat.unwrap_or_default();
        let state = state.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
        assert!(matches!(state, None | Some("Z" | "X")), "{hangs} still runs");
        assert_eq!(tree.calls().last().map(String::as_str), Some(hangs));
    }
}
