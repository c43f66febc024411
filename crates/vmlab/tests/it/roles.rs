//! Workloads with two guests, and with others beside them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use record::{FailureKind, Outcome};
use rustix::process::Signal;
use suite::{SharedThing, Tier, needs, until};

use crate::lab::{events, vmlab};
use crate::running::{RunningVmlab, Study, assert_complete, owned_by, results, send};

/// Two guests, as short as it goes; `network` is the study's.
fn two_guests(network: &str) -> Study {
    Study::new(
        1,
        &format!(
            "{network}\n\n[[variant]]\nname = \"one\"\n\n\
             [[workload]]\nrun = \"iperf3\"\nparams = {{ time_s = 2 }}\n"
        ),
    )
}

/// Why no network of the kernel's can be made here.
fn no_network() -> Option<String> {
    host::network::check(false).err().map(|error| error.to_string())
}

/// The network namespace of a process, while it lives.
fn namespace(pid: impl std::fmt::Display) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// The network namespaces that a run has made: those of its processes that are not
/// ours.
fn made_by(owner: u32) -> BTreeSet<PathBuf> {
    let own = namespace("self");
    let all = owned_by(owner).into_iter().filter_map(|owned| namespace(owned.pid));
    all.filter(|found| own.as_ref() != Some(found)).collect()
}

/// Waits until nobody is in any of them.
fn until_gone(made: &BTreeSet<PathBuf>) {
    until("the end of the run's namespaces", || {
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let mut found = pids.filter_map(|entry| namespace(entry.file_name().to_str()?));
        (!found.any(|found| made.contains(&found))).then_some(())
    });
}

fn check_two_guests(network: &str, expected_args: &str) {
    let study = two_guests(network);
    let mut running = study.start();
    let owner = running.pid();
    let made = running.until("both VMs", |_| {
        let vms = owned_by(owner).iter().filter(|owned| owned.is_qemu()).count();
        (vms == 2).then(|| made_by(owner))
    });
    assert_eq!(made.is_empty(), network.is_empty(), "{made:?}");
    let said = running.wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    let contents = assert_complete(&study.dir());
    let result = &results(&contents.events)[0];
    assert!(result.outcome.is_completed(), "{result:#?}");
    let args = result.qemu_args.join(" ");
    assert!(args.contains(expected_args), "{args}");
    let run = &result.runs[0];
    assert!(run.samples.iter().any(|s| s.metric == "throughput" && s.value > 0.0), "{run:#?}");
    for counter in ["guest.context_switches", "peer.guest.context_switches", "peer.vcpu.run_s"] {
        assert!(run.counters.get(counter).is_some_and(|value| value > 0.0), "{counter}: {run:#?}");
    }
    let peer = runner::store::blob(&study.dir(), &run.blobs["peer-qemu"]).unwrap();
    assert!(String::from_utf8(peer).unwrap().contains("-netdev"));
    assert!(owned_by(owner).is_empty());
    until_gone(&made);
}

#[test]
fn two_guests_talk_over_a_socket() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    check_two_guests("", "stream,id=between");
}

#[test]
fn two_guests_talk_over_a_bridge_and_macvtap() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if let Some(why) = no_network() {
        suite::skip(why);
        return;
    }
    let queues = "[network]\nkind = \"bridge\"\nqueues = 2\n[peer]\nvcpus = 2";
    check_two_guests(queues, "tap,id=between,ifname=port0");
    check_two_guests("[network]\nkind = \"macvtap\"", "tap,id=between,fd=3");
}

#[test]
fn what_cannot_be_is_said_before_anything_boots() {
    let check = |network: &str, changed: (&str, &str), part: &str| {
        let study = two_guests(network);
        study.change(changed.0, changed.1);
        let path = study.folder().join("study.toml");
        let output = vmlab(["check".as_ref(), path.as_os_str()]).output().unwrap();
        let said = crate::lab::CommandOutput::of(output);
        assert_eq!(said.code, Some(2), "{said:#?}");
        assert!(said.stderr.contains(part), "{said:#?}");
    };
    let same = ("time_s = 2", "time_s = 2");
    check("[network]\nvhost = true", same, "study.toml:18: vhost = true needs kind");
    check("[network]\nkind = \"brige\"", same, "did you mean `bridge`");
    let role = ("run = \"iperf3\"", "run = \"hackbench\"\nunder_test = \"server\"");
    let params = ("params = { time_s = 2 }", "");
    let study = two_guests("");
    study.change(role.0, role.1);
    study.change(params.0, params.1);
    check("", ("time_s = 2", "time_s = 2\n}\nbackground = { run = \"iperf3\""), "two roles");
}

#[test]
fn the_end_of_the_other_vm_is_recorded_with_its_role() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = two_guests("");
    study.change("time_s = 2", "time_s = 60");
    let mut running = study.start_told();
    let owner = running.pid();
    let peer = until("the other VM", || {
        owned_by(owner).into_iter().find(|owned| owned.command_line.contains("/peer.qmp"))
    });
    running.until_benchmark();
    peer.kill();
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&events(&study.dir()));
    let Outcome::Failed(failure) = &all[0].outcome else { panic!("{:#?}", all[0]) };
    assert_eq!(failure.kind, FailureKind::VmDied, "{failure:?}");
    assert!(failure.detail.starts_with("client: "), "{failure:?}");
}

/// A study whose two VMs run for a while, and the network that was made for them.
fn both_running() -> (Study, RunningVmlab, BTreeSet<PathBuf>) {
    let study = two_guests("[network]\nkind = \"bridge\"");
    study.change("time_s = 2", "time_s = 60");
    let running = study.start();
    let owner = running.pid();
    let made = until("both VMs", || {
        let vms = owned_by(owner).iter().filter(|owned| owned.is_qemu()).count();
        (vms == 2).then(|| made_by(owner))
    });
    assert_eq!(made.len(), 1, "{made:?}");
    (study, running, made)
}

#[test]
fn a_killed_run_leaves_a_network_that_clean_takes_away() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).alone_with(SharedThing::Leftovers).turn() else {
        return;
    };
    if let Some(why) = no_network() {
        suite::skip(why);
        return;
    }
    let (_study, running, made) = both_running();
    let owner = running.pid();
    send(owner, Signal::KILL);
    drop(running);
    let cleaned = Command::new(crate::lab::VMLAB).arg("clean").output().unwrap();
    assert!(cleaned.status.success(), "{cleaned:?}");
    until_gone(&made);
}

#[test]
fn an_interrupted_run_takes_its_network_along() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if let Some(why) = no_network() {
        suite::skip(why);
        return;
    }
    let (_study, running, made) = both_running();
    let owner = running.pid();
    send(owner, Signal::INT);
    let said = running.wait();
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(owned_by(owner).is_empty());
    until_gone(&made);
}

#[test]
fn one_guest_plays_both_roles_beside_a_background() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = Study::new(
        1,
        "[[variant]]\nname = \"one\"\n\n\
         [[workload]]\nrun = \"iperf3\"\nunder_test = \"both\"\nparams = { time_s = 1 }\n\
         background = { run = \"hackbench\", params = { groups = 1 } }\n\n\
         [[workload]]\nrun = \"cyclictest\"\nparams = { loops = 2000 }\n\
         background = { run = \"stress-ng\", params = { stressor = \"nonsense\" } }\n",
    );
    let said = study.start().wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    for result in results(&events(&study.dir())) {
        match (&result.outcome, result.trial.workload.as_str()) {
            (Outcome::Completed, "iperf3") => {
                let switches = result.runs[0].counters.get("guest.context_switches").unwrap();
                assert!(switches > 1000.0, "hackbench passes messages: {switches}");
            }
            (Outcome::Failed(failure), "cyclictest") => {
                assert!(failure.detail.contains("the background stress-ng"), "{failure:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}
