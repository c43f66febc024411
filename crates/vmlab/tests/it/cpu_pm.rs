//! What libvirt makes of VMs with cpu-pm, in an emulated host: the script beside
//! the study, what the audit reads from the living VMs, and the table.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use suite::{Tier, needs};

use crate::lab::{Said, said, vmlab};

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
    let audit = Said::of(output);
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
