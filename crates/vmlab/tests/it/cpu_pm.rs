//! What libvirt makes of VMs with cpu-pm, and of such that move to another QEMU, in an
//! emulated host: the scripts beside the study, what the audit reads from the living VMs,
//! and the table.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use suite::{Tier, needs};

use crate::lab::{CommandOutput, said, vmlab};

struct Replica {
    state: tempfile::TempDir,
}

impl Replica {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = vmlab(["replica"]);
        command.args(args).env("XDG_STATE_HOME", self.state.path());
        command
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // Nothing of a failed test is left; what it said is told.
        let _ = self.command(&["down", "--all"]).output();
    }
}

#[test]
fn libvirt_s_vms_tell_whether_cpu_pm_is_in_force() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let replica = Replica { state: tempfile::tempdir().unwrap() };
    said(&mut replica.command(&["up", "--like", "two-nodes", "--timeout", "3600"])).has_code(0);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/cpu-pm-libvirt.sh");
    let mut tried = replica.command(&["exec", "--", "sh", "-s"]);
    let output = tried.stdin(Stdio::from(fs::File::open(script).unwrap())).output().unwrap();
    let audit = CommandOutput::of(output);
    audit.has_code(0);

    let file = replica.state.path().join("audit.json");
    fs::write(&file, &audit.stdout).unwrap();
    let rows = said(&mut vmlab(["facts", "--json", file.to_str().unwrap()]));
    let rows: Value = serde_json::from_str(&rows.has_code(0).stdout).unwrap();
    let row = |name: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["variant"] == name);
        row.unwrap_or_else(|| panic!("{name}: {rows:#?}\n{}", audit.stderr)).clone()
    };
    assert_eq!(row("libvirt-off")["state"], "not asked for");
    let on = row("libvirt-on");
    assert_eq!(on["state"], "in force", "{on:#}");
    assert!(on["libvirt"].as_str().unwrap().starts_with("9.0"), "{on:#}");
    assert!(on["qemu"].as_str().unwrap().starts_with("7.2"), "{on:#}");
    assert!(on["kernel"].as_str().unwrap().starts_with("6.1"), "{on:#}");

    // Nothing is left of it.
    let left = "ls /run/libvirt/qemu/*.pid /etc/libvirt/qemu/*.xml; pgrep libvirtd";
    let left = said(&mut replica.command(&["exec", "--", "sh", "-c", left]));
    assert_eq!(left.stdout, "", "{left:?}");
}

#[test]
fn a_guest_that_moves_has_what_its_new_qemu_was_told() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let replica = Replica { state: tempfile::tempdir().unwrap() };
    said(&mut replica.command(&["up", "--like", "two-nodes", "--timeout", "3600"])).has_code(0);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/migration.sh");
    let mut moved = replica.command(&["exec", "--", "sh", "-s", "here", "/scratch/moved"]);
    let output = moved.stdin(Stdio::from(fs::File::open(script).unwrap())).output().unwrap();
    let moved = CommandOutput::of(output);
    moved.has_code(0);

    let mut files = Vec::new();
    let listed = said(&mut replica.command(&["exec", "--", "ls", "/scratch/moved/results"]));
    for name in listed.has_code(0).stdout.lines() {
        let path = format!("/scratch/moved/results/{name}");
        let text = said(&mut replica.command(&["exec", "--", "cat", &path]));
        let file = replica.state.path().join(name);
        fs::write(&file, &text.has_code(0).stdout).unwrap();
        files.push(file.to_str().unwrap().to_owned());
    }
    let words = ["facts", "--fact", "cpu_pm", "--json"].map(str::to_owned);
    let rows = said(&mut vmlab(words.iter().chain(&files)));
    let rows: Value = serde_json::from_str(&rows.has_code(0).stdout).unwrap();
    let states: Vec<(&str, &str)> = rows
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| {
            let is_migrated = row["migrated"] == true;
            is_migrated.then(|| Some((row["variant"].as_str()?, row["state"].as_str()?)))?
        })
        .collect();
    assert_eq!(
        states,
        [
            ("off-to-off", "not asked for"),
            ("off-to-on", "in force"),
            ("on-to-off", "not asked for"),
            ("on-to-on", "in force"),
            ("on-to-without", "refused by QEMU"),
        ],
        "{rows:#}\n{}",
        moved.stderr
    );
}
