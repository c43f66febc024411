//! `--deterministic`: a study that is run twice brings the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use record::Environment;
use record::journal::{JournalEvent, TrialResult};
use suite::{Tier, needs};

use crate::lab::{events, said, vmlab};

/// Two VMs of which one tells KVM of each end of an interrupt.
const STUDY: &str = r#"
vmlab = 1
title = "What pv-EOI saves"
seed = 1
[budget]
blocks = 1
[vm]
vcpus = 1
memory_mib = 256
[[variant]]
name = "default"
[[variant]]
use = "no-pv-eoi"
[[workload]]
run = "hackbench"
params = { groups = 1, fds = 2, loops = 50 }
invocations = 1
"#;

/// The files below `folder` by their paths, without the lock, which names a process,
/// and the reports, which name the folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            match path.is_dir() {
                true => folders.push(path),
                false if name == "lock" || name.starts_with("report.") => {}
                false => drop(found.insert(name, fs::read(&path).unwrap())),
            }
        }
    }
    found
}

fn trial<'e>(events: &'e [JournalEvent], name: &str) -> &'e TrialResult {
    let found = events.iter().find_map(|event| match event {
        JournalEvent::TrialEnded(result) if result.trial.variant == name => Some(&**result),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no trial of {name}"))
}

#[test]
fn a_study_run_twice_brings_the_same_bytes() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    // Where they lie is not in them.
    let folders = ["one", "another"].map(|name| {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join(name);
        fs::create_dir(&here).unwrap();
        fs::write(here.join("eoi.toml"), STUDY).unwrap();
        let mut command = vmlab(["run", "eoi.toml", "--on", "replica", "--deterministic"]);
        let ran = said(command.args(["--out", "results"]).current_dir(&here));
        // One block decides nothing, which is a finding.
        let told = &ran.has_code(1).stdout;
        assert!(told.contains("Deterministic, instruction-counted"), "{told}");
        assert!(!told.contains("faster") && !told.contains("slower"), "{told}");
        (folder, here.join("results"))
    });

    let [first, second] = folders.each_ref().map(|(_, results)| files(results));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&first), names(&second));
    for name in ["plan.json", "host.json", "journal.jsonl", "samples.csv"] {
        assert!(first.contains_key(name), "{name}");
    }
    let different: Vec<_> = first.iter().filter(|(name, bytes)| second[*name] != **bytes).collect();
    let different: Vec<_> = different.iter().map(|(name, _)| name).collect();
    assert!(different.is_empty(), "{different:?}");

    let events = events(&folders[0].1);
    assert!(matches!(
        events[0],
        JournalEvent::SessionStarted { environment: Environment::InstructionCounted, .. }
    ));
    let [with, without] = ["default", "no-pv-eoi"].map(|name| {
        let counters = &trial(&events, name).runs[0].counters;
        assert!(counters.get("vcpu.instructions").unwrap() > 1e6, "{counters:?}");
        counters.get("kvm.msr_writes.x2apic_eoi").unwrap()
    });
    assert!(without > with + 4.0, "{without} writes against {with}");
}
