//! What was found of VMs, over results folders, audits and libvirt's logs.

use std::fs;

use record::journal::JournalEvent;
use record::{Failure, FailureKind, Outcome};
use serde_json::{Value, json};

use crate::formats::copy;
use crate::lab::{Machine, events, journal_of, write_journal};

#[test]
fn what_was_asked_for_is_told_by_host() {
    let machine = Machine::with_qemu("7.2.17");
    machine.results();
    machine.results_again("other", 1_800_000_000.0, "10.0.2", 1.0);
    let detail = "cpu_pm is not in force: QEMU said \"guest stopping CPU not supported\"";
    for (dir, qemu_refuses) in [("results", false), ("other", true)] {
        let dir = machine.path(dir);
        let mut events = events(&dir);
        let mut kinds = [FailureKind::GuestNeverAnswered].into_iter();
        for event in &mut events {
            let JournalEvent::TrialEnded(result) = event else { continue };
            if qemu_refuses {
                let kind = kinds.next().unwrap_or(FailureKind::NotAsClaimed);
                result.outcome = Outcome::Failed(Failure::new(kind, detail.to_owned()));
            } else {
                let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
                let evidence = fact("cpu_pm.evidence", "no halt exit in 6.0 s of idle vCPUs");
                result.facts = [fact("cpu_pm", "in force"), evidence].into();
            }
        }
        write_journal(&dir, &journal_of(&events));
    }
    let said = machine.say(["facts", "--fact", "cpu_pm", "results"]);
    let lines: Vec<&str> = said.has_code(0).stdout.lines().collect();
    assert!(lines[0].starts_with("fact    variant  host kernel"), "{said:?}");
    assert!(
        lines[1].contains("one") && lines[1].ends_with("7.2.17  -        in force (2)"),
        "{said:?}"
    );
    assert_eq!(lines[2].trim(), "no halt exit in 6.0 s of idle vCPUs");
    copy(&machine.path("results"), &machine.path("copy"));
    let twice = machine.say(["facts", "--fact", "cpu_pm", "results", "copy"]);
    assert_eq!(twice.stdout, said.stdout, "a trial counts once");
    let said = machine.say(["facts", "--json", "results", "other"]);
    let rows: Value = serde_json::from_str(&said.has_code(0).stdout).unwrap();
    let states: Vec<_> =
        rows.as_array().unwrap().iter().map(|row| (&row["qemu"], &row["state"])).collect();
    assert_eq!(states.len(), 5, "{rows}");
    assert!(states.iter().any(|row| row.1 == "failed: guest never answered"), "{rows}");
    assert!(states.iter().any(|row| row.0 == "10.0.2" && row.1 == "refused by KVM"), "{rows}");
    assert!(
        machine
            .say(["facts", "--fact", "odd", "results"])
            .stdout
            .contains("No trial and no VM told")
    );
    machine.say(["facts", "nowhere"]).is_error(&["nowhere"]);
}

/// A VM as `vmlab audit --json` tells of it, which libvirt 9.0 started.
fn audited(name: &str, halt_exits: u64, cpu_pm: Option<(&str, &str)>) -> Value {
    let words: Vec<String> = [
        "qemu-system-x86_64",
        "-name",
        &format!("guest={name},debug-threads=on"),
        "-accel",
        "kvm",
        "-chardev",
        "socket,id=charmonitor,fd=23,server=on,wait=off",
    ]
    .map(str::to_owned)
    .to_vec();
    let start = json!({
        "libvirt": "9.0.0", "qemu": "7.2.22 (Debian)", "kernel": "6.1.0-50-cloud-amd64",
        "cpu_pm": cpu_pm.is_some(), "failed": false, "said": [],
    });
    let mut asked = host::audit::argv::parse(&words[1..]);
    asked.cpu_pm = cpu_pm.is_some();
    json!({
        "pid": 1, "starttime_ticks": 1, "program": "/usr/bin/qemu-system-x86_64",
        "argv": words, "asked": asked, "threads": [], "vcpus_known_by": "names",
        "memory": host::audit::memory::VmMemory::default(), "guest": null, "notes": [],
        "halts": { "halt_exits": halt_exits, "awake_s": 59.0, "age_s": 61.0 },
        "cpu_pm": cpu_pm.map(|(state, evidence)| json!({ "state": state, "evidence": evidence })),
        "start": start,
    })
}

/// A VM whose guest began elsewhere.
fn came(mut vm: Value) -> Value {
    vm["asked"]["incoming"] = true.into();
    vm
}

/// libvirt's words for a VM with cpu-pm, and what came of it.
fn log(libvirt: &str, said: &str) -> String {
    format!(
        "2021-08-31 02:39:53.1+0000: starting up libvirt version: {libvirt}, package: x, \
         qemu version: 7.2.22Debian, kernel: 6.1.0-50-cloud-amd64, hostname: node1\n\
         LC_ALL=C \\\n/usr/bin/qemu-system-x86_64 \\\n-overcommit cpu-pm=on \\\n\
         -msg timestamp=on\n{said}"
    )
}

#[test]
fn what_libvirt_s_vms_are_stands_beside_trials() {
    let machine = Machine::with_qemu("7.2.17");
    let none = "no halt exit in 61 s, of which its vCPUs were awake 59 s";
    let audit = json!({
        "format": "vmlab-audit", "version": 2, "kernel": "6.1.0-50-cloud-amd64",
        "qemu": "7.2.22 (Debian)", "findings": [], "problems": [],
        "vms": [
            audited("on", 0, Some(("in_force", none))),
            audited("off", 1526, None),
            audited("kept", 0, None),
            came(audited("now", 70, None)),
        ],
    });
    let write = |name: &str, text: &str| fs::write(machine.path(name), text).unwrap();
    write("audit.json", &audit.to_string());
    // The start of a VM of which the audit tells more, and others.
    write("on.log", &log("9.0.0", ""));
    write("alone.log", &log("9.0.0", ""));
    let failed = "2021-08-31 02:39:54.2+0000: shutting down, reason=failed\n";
    write("old.log", &log("4.5.0", &format!("qemu-kvm: -overcommit: invalid option\n{failed}")));
    let refused = "qemu-kvm: kvm: guest stopping CPU not supported: Invalid argument";
    write("kernel.log", &log("4.5.0", &format!("2021-08-31T02:39:54.168673Z {refused}\n")));
    write("broken.log", &log("4.5.0", &format!("qemu-kvm: no memory\n{failed}")));
    // Guests that came from elsewhere: taken over without cpu-pm, and refused.
    let incoming =
        |log: String| log.replace("-msg timestamp", "-incoming defer \\\n-msg timestamp");
    let old = incoming(log("9.0.0", &format!("qemu-kvm: -overcommit: invalid option\n{failed}")));
    let section = "qemu-kvm: Unknown savevm section or instance 'kvm-tpr-opt' 0";
    let other = incoming(log("9.0.0", &format!("{section}\n{failed}")));
    write("moved.log", &format!("{}\n{old}", log("9.0.0", "")));
    write("moved-back.log", &other);
    let files = [
        "audit.json",
        "on.log",
        "alone.log",
        "old.log",
        "kernel.log",
        "broken.log",
        "moved.log",
        "moved-back.log",
    ];
    let said = machine.say(["facts", "--json"].iter().chain(&files));
    let rows: Value = serde_json::from_str(&said.has_code(0).stdout).unwrap();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or("-").to_owned();
    let found: Vec<String> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let [variant, libvirt, state] =
                ["variant", "libvirt", "state"].map(|name| text(row, name));
            let from = if row["migrated"] == true { ", migrated" } else { "" };
            format!("{variant}{from} | {libvirt} | {state}")
        })
        .collect();
    assert_eq!(
        found,
        [
            "alone | 9.0.0 | accepted, not proven",
            "broken | 4.5.0 | not known: the VM did not start",
            "kernel | 4.5.0 | refused by KVM",
            "moved | 9.0.0 | accepted, not proven",
            "moved, migrated | 9.0.0 | refused by QEMU",
            "moved-back, migrated | 9.0.0 | not known: the VM did not take the guest over",
            "now, migrated | 9.0.0 | not asked for",
            "off | 9.0.0 | not asked for",
            "old | 4.5.0 | refused by QEMU",
            "on | 9.0.0 | in force",
        ],
        "{rows:#}"
    );
    assert_eq!(text(&rows[2], "evidence"), format!("QEMU said {refused:?}"));
    let said = machine.say(["facts"].iter().chain(&files));
    let on = said.has_code(0).stdout.lines().find(|line| line.contains("  on ")).unwrap();
    let cells: Vec<&str> = on.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let expected =
        ["cpu_pm", "on", "6.1.0-50-cloud-amd64", "7.2.22 (Debian)", "9.0.0", "in force (1)"];
    assert_eq!(cells, expected);

    write("other.json", r#"{"format": "vmlab-host", "vms": []}"#);
    write("other.txt", "neither\n");
    machine.say(["facts", "other.json"]).is_error(&["other.json", "vmlab-host"]);
    machine.say(["facts", "other.txt"]).is_error(&["other.txt", "no log of libvirt's"]);
    write("other.json", r#"{"format": "vmlab-audit", "version": 3, "machines": []}"#);
    machine.say(["facts", "other.json"]).is_error(&["other.json", "version 3", "newer vmlab"]);
    write("other.json", "{");
    machine.say(["facts", "other.json"]).is_error(&["other.json", "vmlab audit --json"]);
}
