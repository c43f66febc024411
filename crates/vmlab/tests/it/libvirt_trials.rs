//! Trials as domains through the real libvirtd, which runs in namespaces of its own.

use suite::{Tier, needs};

use crate::lab::{CommandOutput, VMLAB, events};
use crate::running::{Study, assert_complete, results};

/// What stands behind a heading.
fn part<'a>(said: &'a CommandOutput, heading: &str) -> &'a str {
    let (_, rest) = said
        .stdout
        .split_once(&format!("== {heading}\n"))
        .unwrap_or_else(|| panic!("{heading}: {said:#?}"));
    rest.split_once("\n== ").map_or(rest, |(part, _)| part).trim()
}

#[test]
fn trials_are_domains_and_nobody_else_s_is_touched() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    let Some(mut beside) = suite::beside_libvirtd(include_str!("libvirt_trials.sh")) else {
        return;
    };
    let allowed = host::affinity::thread_affinity(std::process::id()).expect("our own");
    let pcpu = allowed.iter().next().expect("we run on one");
    let study = Study::new(
        1,
        &format!(
            "[[variant]]\nname = \"one\"\nvm.vcpus = 1\n\n\
             [[variant]]\nname = \"pinned\"\nvm.vcpus = 2\nvm.pins = [{pcpu}, {pcpu}]\n\
             vm.emulator_pin = \"{pcpu}\"\n\n\
             [[workload]]\nrun = \"hackbench\"\nparams = {{ groups = 1, loops = 20 }}\n"
        ),
    );
    let output = beside.arg(VMLAB).arg(study.folder()).output();
    let said = CommandOutput::of(output.expect("unshare starts"));

    let dead = "domain vmlab-dead-trial of run dead at qemu:///system";
    assert!(part(&said, "would clean").contains(&format!("would end {dead}")), "{said:#?}");
    let cleaned = part(&said, "clean");
    assert!(cleaned.contains(&format!("ended {dead}")), "{said:#?}");
    assert!(cleaned.ends_with("code 0"), "{said:#?}");
    let linted = part(&said, "lint");
    for name in ["web", "vmlab-web"] {
        assert!(linted.contains(&format!("\"file\": \"qemu:///system/{name}\"")), "{said:#?}");
    }
    // Others' domains are there all the time, whatever ends vmlab.
    for heading in ["killed", "interrupted", "left"] {
        let lines: Vec<&str> = part(&said, heading).lines().collect();
        let names: Vec<&str> =
            lines.iter().copied().filter(|name| ["vmlab-web", "web"].contains(name)).collect();
        assert_eq!(names, ["vmlab-web", "web"], "{heading}: {said:#?}");
        assert!(lines.iter().all(|line| !line.ends_with("-trial")), "{heading}: {said:#?}");
    }
    assert!(part(&said, "interrupted").contains("code 2"), "{said:#?}");
    assert!(!part(&said, "left").contains("-trial"), "{said:#?}");
    let elsewhere = part(&said, "resumed elsewhere");
    assert!(elsewhere.contains("was begun at qemu:///system"), "{said:#?}");
    assert_eq!(part(&said, "resumed"), "code 0", "{said:#?}");
    let without = part(&said, "no libvirtd");
    assert!(without.contains("libvirtd does not run there"), "{said:#?}");
    assert!(without.ends_with("code 2"), "{said:#?}");

    let dir = study.folder().join("interrupted");
    let contents = assert_complete(&dir);
    let libvirt = contents.plan.libvirt.expect("the plan names it");
    assert_eq!(libvirt.uri.to_string(), "qemu:///system");
    assert!(libvirt.driver.starts_with("QEMU "), "{libvirt}");
    let all = results(&events(&dir));
    // What was interrupted was begun anew.
    let last = all.iter().map(|one| one.trial.attempt).max();
    let of_last = all.iter().filter(|one| Some(one.trial.attempt) == last);
    let completed: Vec<_> = of_last.filter(|one| one.outcome.is_completed()).collect();
    assert_eq!(completed.len(), 2, "{all:#?}");
    for result in completed {
        assert!(result.boot_s.is_some_and(|boot_s| boot_s > 0.0), "{result:#?}");
        // libvirt's own arguments, and its monitor.
        assert!(result.qemu_args.iter().any(|word| word.contains("charmonitor")), "{result:#?}");
        let pinned = result.trial.variant == "pinned";
        if pinned {
            assert_eq!(result.vcpu_affinity, vec![pcpu.to_string(); 2], "{result:#?}");
        }
        let counters = &result.runs[0].counters;
        for name in ["libvirt.cpu_s", "vcpu.run_s", "guest.context_switches"] {
            assert!(counters.get(name).is_some_and(|value| value > 0.0), "{name}: {result:#?}");
        }
        assert!(counters.get("libvirt.disk_reads").is_some(), "{result:#?}");
    }
}
