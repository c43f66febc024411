//! Workloads with two guests, and with others beside them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use record::{FailureKind, Outcome};
use rustix::process::Signal;

use crate::lab::{events, slow, until, vmlab};
use crate::running::{PATIENCE, Study, assert_complete, owned_by, results, send};

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

/// The network namespaces of all processes: those that nobody is in are gone.
fn namespaces() -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("ns/net"));
    let links = pids.filter_map(|path| fs::read_link(path).ok());
    let mut all: Vec<String> = links.map(|link| link.display().to_string()).collect();
    all.sort();
    all.dedup();
    all
}

fn check_two_guests(network: &str, expected_args: &str) {
    let before = namespaces();
    let study = two_guests(network);
    let running = study.start();
    let owner = running.pid();
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
    assert_eq!(namespaces(), before, "a namespace is left");
}

#[test]
fn two_guests_talk_over_a_socket() {
    let Some(_alone) = slow("two guests over a socket") else { return };
    check_two_guests("", "stream,id=between");
}

#[test]
fn two_guests_talk_over_a_bridge_and_macvtap() {
    let Some(_alone) = slow("two guests over a bridge") else { return };
    if let Some(why) = no_network() {
        println!("SKIP: {why}");
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
        let said = crate::lab::Said::of(output);
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
    let Some(_alone) = slow("the other VM killed") else { return };
    let study = two_guests("");
    study.change("time_s = 2", "time_s = 60");
    let running = study.start();
    let owner = running.pid();
    let peer = until("the other VM", PATIENCE, || {
        owned_by(owner).into_iter().find(|owned| owned.command_line.contains("/peer.qmp"))
    });
    // The client is the other VM: its work is what the console's tail shows.
    until("the benchmark", PATIENCE, || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", peer.pid)).unwrap_or_default();
        (!stat.is_empty() && peer.used_s() > 6.0).then_some(())
    });
    peer.kill();
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&events(&study.dir()));
    let Outcome::Failed(failure) = &all[0].outcome else { panic!("{:#?}", all[0]) };
    assert_eq!(failure.kind, FailureKind::VmDied, "{failure:?}");
    assert!(failure.detail.starts_with("client: "), "{failure:?}");
}

#[test]
fn a_killed_run_leaves_a_network_that_clean_takes_away() {
    let Some(_alone) = slow("a killed run with a network") else { return };
    if let Some(why) = no_network() {
        println!("SKIP: {why}");
        return;
    }
    let before = namespaces();
    let study = two_guests("[network]\nkind = \"bridge\"");
    study.change("time_s = 2", "time_s = 60");
    let running = study.start();
    let owner = running.pid();
    until("both VMs", PATIENCE, || {
        (owned_by(owner).iter().filter(|owned| owned.is_qemu()).count() == 2).then_some(())
    });
    send(owner, Signal::KILL);
    drop(running);
    let cleaned = Command::new(crate::lab::VMLAB).arg("clean").output().unwrap();
    assert!(cleaned.status.success(), "{cleaned:?}");
    until("the namespace's end", Duration::from_secs(5), || (namespaces() == before).then_some(()));
}

#[test]
fn an_interrupted_run_takes_its_network_along() {
    let Some(_alone) = slow("an interrupted run with a network") else { return };
    if let Some(why) = no_network() {
        println!("SKIP: {why}");
        return;
    }
    let before = namespaces();
    let study = two_guests("[network]\nkind = \"bridge\"");
    study.change("time_s = 2", "time_s = 60");
    let running = study.start();
    let owner = running.pid();
    until("both VMs", PATIENCE, || {
        (owned_by(owner).iter().filter(|owned| owned.is_qemu()).count() == 2).then_some(())
    });
    send(owner, Signal::INT);
    let said = running.wait();
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(owned_by(owner).is_empty());
    until("the namespace's end", Duration::from_secs(5), || (namespaces() == before).then_some(()));
}

#[test]
fn one_guest_plays_both_roles_beside_a_background() {
    let Some(_alone) = slow("both roles in one guest") else { return };
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
