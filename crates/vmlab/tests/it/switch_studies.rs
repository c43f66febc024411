//! Studies whose VMs are connected by a vhost-user switch: vmlab's own, or another
//! one that the study names.

use std::fs;
use std::path::PathBuf;

use record::{CounterSet, FailureKind, Outcome};
use rustix::process::Signal;
use suite::{SharedThing, Tier, needs, until};
use vmconfig::Arch;

use crate::lab::{CommandOutput, events, vmlab};
use crate::running::{OwnedProcess, Study, assert_complete, owned_by, results, send};
use crate::switch::RunningSwitch as Switch;

/// Two guests that send datagrams, as short as it goes.
fn two_guests(network: &str, time_ms: u32) -> Study {
    Study::new(
        1,
        &format!(
            "memory = {{ shared = true, source = \"memfd\" }}\n\n[network]\n\
             kind = \"vhost-user\"\n{network}\n\n[[variant]]\nname = \"one\"\n\n\
             [[workload]]\nrun = \"probe-udp\"\n\
             params = {{ time_ms = {time_ms}, repeats = 1 }}\n"
        ),
    )
}

/// The switch of a run.
fn switch_of(owner: u32) -> Option<OwnedProcess> {
    owned_by(owner).into_iter().find(|owned| owned.command_line.contains("--until-input-ends"))
}

fn positive(counters: &CounterSet, names: &[&str]) {
    for name in names {
        let found = counters.get(name);
        assert!(found.is_some_and(|value| value > 0.0), "{name}: {found:?} in {counters:#?}");
    }
}

#[test]
fn two_guests_talk_through_a_switch_that_is_counted_and_pinned() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let pcpu = host::affinity::thread_affinity(std::process::id()).unwrap().first().unwrap();
    let study = two_guests(&format!("packed = true\nswitch_pcpus = \"{pcpu}\""), 300);
    let running = study.start();
    let owner = running.pid();
    let said = running.wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    let contents = assert_complete(&study.dir());
    let result = &results(&contents.events)[0];
    assert!(result.outcome.is_completed(), "{result:#?}");
    let args = result.qemu_args.join(" ");
    assert!(args.contains("vhost-user,id=between,chardev=chr-between"), "{args}");
    assert!(args.contains("packed=on"), "{args}");
    let run = &result.runs[0];
    positive(
        &run.counters,
        &[
            "switch.frames_in",
            "switch.octets_in",
            "switch.kicks",
            "peer.switch.frames_in",
            "peer.switch.frames_out",
            "switch.bursts",
            "switch.frames_per_burst",
            "switch.busy_percent",
        ],
    );
    for name in ["drops.malformed", "segmented", "signals_lost", "rate_waits"]
        .map(|name| format!("switch.{name}"))
    {
        assert_eq!(run.counters.get(&name), Some(0.0), "{name}: {run:#?}");
    }
    let fact = |name: &str| result.facts.get(name).cloned().unwrap_or_default();
    assert_eq!(fact("switch.polling_threads"), format!("pCPU {pcpu}"));
    assert!(fact("switch.port").contains("packed"), "{:#?}", result.facts);
    assert!(owned_by(owner).is_empty());
}

/// As everything else that vmlab starts: however it ends.
#[test]
fn a_killed_run_takes_its_switch_along() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).alone_with(SharedThing::Leftovers).turn() else {
        return;
    };
    let study = two_guests("", 600_000);
    let running = study.start();
    let owner = running.pid();
    let switch = until("the switch", || switch_of(owner));
    send(owner, Signal::KILL);
    drop(running);
    until("the end of the switch", || (!switch.is_alive()).then_some(()));
}

#[test]
fn a_switch_that_dies_is_the_recorded_reason() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = two_guests("", 600_000);
    let mut running = study.start_told();
    let owner = running.pid();
    running.until_benchmark();
    let switch = switch_of(owner).unwrap();
    switch.kill();
    // Datagrams go on for minutes: the run is told to end, and what is recorded is
    // what was found first.
    until("the end of the switch", || (!switch.is_alive()).then_some(()));
    let client = owned_by(owner).into_iter().find(|owned| owned.is_vm("peer"));
    client.expect("the client's VM").kill();
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&events(&study.dir()));
    let Outcome::Failed(failure) = &all[0].outcome else { panic!("{:#?}", all[0]) };
    assert_eq!(failure.kind, FailureKind::WorkloadFailed, "{failure:?}");
    assert!(failure.detail.starts_with("The switch between the VMs: "), "{failure:?}");
}

#[test]
fn two_guests_talk_through_somebody_else_s_switch() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let switch = Switch::new(&["--quiet", "--port", "a.sock", "--port", "b.sock"]);
    let sockets = ["a.sock", "b.sock"].map(|name| switch.path(name).display().to_string());
    let study = two_guests(&format!("sockets = {sockets:?}"), 300);
    let said = study.start().wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    let result = &results(&events(&study.dir()))[0];
    assert!(result.outcome.is_completed(), "{result:#?}");
    assert_eq!(result.runs[0].counters.get("switch.frames_in"), None);
    let status = switch.ctl(&["status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert!(status["ports"][0]["counts"]["frames_in"].as_u64().unwrap() > 0, "{status}");
}

/// testpmd ends with its input; Open vSwitch is ended by who comes next.
#[test]
fn a_killed_run_leaves_no_switch_of_dpdk_s() {
    let turn = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Leftovers);
    let Some(_turn) = turn.alone_with(SharedThing::Settings).turn() else { return };
    let is_root = rustix::process::geteuid().is_root();
    for (program, needed, word) in [
        ("testpmd", "dpdk-testpmd", "--forward-mode=io"),
        ("ovs-dpdk", "ovsdb-server", "unix:db.sock"),
    ] {
        if host::program::find(needed).is_none() || (program == "ovs-dpdk" && !is_root) {
            suite::skip_part(program, format!("{needed} is missing, or the right to run it"));
            continue;
        }
        let study = two_guests(&format!("switch = \"{program}\""), 600_000);
        if program == "ovs-dpdk" {
            let variant = "[[variant]]\nname = \"one\"\n";
            study.change(variant, &format!("{variant}host.hugepages_2m = 256\n"));
        }
        let running = study.start();
        let owner = running.pid();
        let switch_of = || owned_by(owner).into_iter().find(|one| one.command_line.contains(word));
        let switch = until("the switch", switch_of);
        send(owner, Signal::KILL);
        drop(running);
        if program == "testpmd" {
            until("the end of testpmd", || (!switch.is_alive()).then_some(()));
        }
        let cleaned = CommandOutput::of(vmlab(["clean"]).output().unwrap());
        assert_eq!(cleaned.code, Some(0), "{cleaned:#?}");
        assert!(owned_by(owner).is_empty() && !switch.is_alive(), "{program}: {cleaned:#?}");
    }
}

/// What a study says whose switch is a program that this host lacks.
fn refusal(network: &str) -> String {
    let study = two_guests(network, 300);
    let path = study.folder().join("study.toml");
    let said = CommandOutput::of(vmlab(["check".as_ref(), path.as_os_str()]).output().unwrap());
    assert_eq!(said.code, Some(2), "{said:#?}");
    said.stderr
}

/// Two guests talk through a switch of DPDK's, which ends with its trial.
fn through_dpdk(network: &str, more: &str, program: &str, memory: &[&str]) {
    let study = two_guests(network, 300);
    study.change("[[variant]]\nname = \"one\"\n", &format!("[[variant]]\nname = \"one\"\n{more}"));
    let running = study.start();
    let owner = running.pid();
    let said = running.wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    let result = &results(&assert_complete(&study.dir()).events)[0];
    assert!(result.outcome.is_completed(), "{result:#?}");
    let arrived = result.runs[0].samples.iter().find(|sample| sample.metric == "arrived");
    assert!(arrived.is_some_and(|sample| sample.value > 0.0), "{result:#?}");
    let fact = |name: &str| result.facts.get(name).cloned().unwrap_or_default();
    let version = fact("switch.program");
    let has_number = version.contains(|letter: char| letter.is_ascii_digit());
    assert!(version.contains(program) && version.contains("DPDK") && has_number, "{version}");
    assert!(memory.contains(&fact("switch.memory").as_str()), "{:#?}", result.facts);
    if let Some((_, pcpu)) = network.split_once("switch_pcpus = \"") {
        let pcpu = pcpu.trim_end_matches('"');
        assert_eq!(fact("switch.polling_threads"), format!("pCPU {pcpu}"));
    }
    assert!(owned_by(owner).is_empty(), "it ends with its trial");
}

#[test]
fn two_guests_talk_through_testpmd() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    if host::program::find("dpdk-testpmd").is_none() {
        let said = refusal("switch = \"testpmd\"");
        assert!(said.contains("needs dpdk-testpmd: run `apt-get install dpdk-dev`"), "{said}");
        return suite::skip("dpdk-testpmd is not installed (Debian: dpdk-dev)");
    }
    let pcpu = host::affinity::thread_affinity(std::process::id()).unwrap().first().unwrap();
    let network = format!("switch = \"testpmd\"\nswitch_pcpus = \"{pcpu}\"");
    through_dpdk(&network, "", "testpmd", &["huge pages", "small pages"]);
}

#[test]
fn a_testpmd_that_dies_is_the_recorded_reason() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    if host::program::find("dpdk-testpmd").is_none() {
        return suite::skip("dpdk-testpmd is not installed (Debian: dpdk-dev)");
    }
    let study = two_guests("switch = \"testpmd\"", 600_000);
    let mut running = study.start_told();
    let owner = running.pid();
    running.until_benchmark();
    let all = owned_by(owner);
    let switch = all.iter().find(|owned| owned.command_line.contains("--forward-mode=io"));
    let switch = switch.expect("testpmd");
    switch.kill();
    // Its parent may ask how it ended once all of its threads have.
    until("the end of testpmd", || {
        let process = PathBuf::from(format!("/proc/{}", switch.pid));
        let threads = fs::read_dir(process.join("task")).map_or(0, Iterator::count);
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let ended = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
        (threads <= 1 && ended).then_some(())
    });
    // As with vmlab's own: what is recorded is what was found first.
    let client = owned_by(owner).into_iter().find(|owned| owned.is_vm("peer"));
    client.expect("the client's VM").kill();
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&events(&study.dir()));
    let Outcome::Failed(failure) = &all[0].outcome else { panic!("{:#?}", all[0]) };
    let begin = "The switch between the VMs, DPDK's testpmd, ended with signal: 9";
    assert!(failure.detail.starts_with(begin), "{failure:?}");
}

#[test]
fn two_guests_talk_through_open_vswitch_with_dpdk() {
    let turn = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Settings).turn();
    let Some(_turn) = turn else { return };
    let network = "switch = \"ovs-dpdk\"";
    if host::program::find("ovsdb-server").is_none() {
        let said = refusal(network);
        assert!(said.contains("run `apt-get install openvswitch-switch-dpdk`"), "{said}");
        return suite::skip("Open vSwitch with DPDK is not installed (openvswitch-switch-dpdk)");
    }
    if !rustix::process::geteuid().is_root() {
        return suite::skip("a network namespace for Open vSwitch needs root");
    }
    let more = "host.hugepages_2m = 256\n";
    through_dpdk(network, more, "Open vSwitch", &["huge pages"]);
}

#[test]
fn what_keeps_vms_from_a_switch_is_said_before_anything_boots() {
    if let Err(error) = runner::probe::find(Arch::X86_64) {
        return suite::skip(error);
    }
    let check = |network: &str, changed: (&str, &str), part: &str| {
        let study = two_guests(network, 300);
        study.change(changed.0, changed.1);
        let path = study.folder().join("study.toml");
        let text = fs::read_to_string(&path).unwrap();
        let mut command = vmlab(["run".as_ref(), path.as_os_str(), "--dry-run".as_ref()]);
        let said = CommandOutput::of(command.output().unwrap());
        assert_eq!(said.code, Some(2), "{text}\n{said:#?}");
        assert!(said.stderr.contains(part), "{part:?}\n{said:#?}");
    };
    let same = ("time_ms = 300", "time_ms = 300");
    let private = ("memory = { shared = true, source = \"memfd\" }", "");
    check("", private, "write memory = { shared = true, source = \"memfd\" } in [vm]");
    check("switch_pcpus = \"4000\"", same, "pCPU(s) 4000 are not online here");
    check("sockets = [\"/run/none/a\", \"/run/none/b\"]", same, "start the switch first");
    check("switch = \"testpmd\"\nqueues = 2", same, "write queues = 1");
    check("switch = \"other\"", same, "testpmd");
    check("queues = 65", same, "queues = 65: must be 1 to 64");
    check("vhost = true", same, "vhost = true needs kind");
}
