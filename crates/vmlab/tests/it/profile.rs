//! `profile = true`, with real guests and real perf.

use std::process::{Command, Stdio};

use record::{FoldedStacks, ProfileSide};
use rustix::process::Signal;
use suite::{SharedThing, Tier, needs, skip};

use crate::calibrate::Replica;
use crate::lab::{events, said, vmlab};
use crate::running::{Study, owned_by};

const STUDY: &str = r#"
[[variant]]
name = "one"
vm = { vcpus = 1, memory_mib = 384 }

[[variant]]
name = "two"
vm = { vcpus = 2, memory_mib = 384 }

[[workload]]
run = "perf-pipe"
params = { loops = 4000 }
invocations = 1
profile = true
"#;

#[test]
fn a_profiled_trial_keeps_its_stacks_and_the_page_shows_their_difference() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    if let Err(error) = guest::qemu::find_qemu(vmconfig::Arch::X86_64) {
        return skip(error);
    }
    let study = Study::new(2, STUDY);
    let file = study.folder().join("study.toml");
    let dir = study.dir();
    let words = ["run".as_ref(), file.as_os_str(), "--out".as_ref(), dir.as_os_str()];
    let ended = said(&mut vmlab(words));
    // Two blocks may decide or not.
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    for event in events(&dir) {
        let record::journal::JournalEvent::TrialEnded(trial) = event else { continue };
        assert_eq!(trial.runs.len(), 1, "the profiled invocation is no run: {trial:#?}");
        let profile = trial.profile.as_ref().unwrap();
        assert!(!profile.samples.is_empty(), "{trial:#?}");
        let guest = profile.sides.iter().find(|one| one.side == ProfileSide::Guest).unwrap();
        assert_eq!(guest.missing, None);
        let text = runner::store::blob(&dir, guest.blob.as_ref().unwrap()).unwrap();
        let folded = FoldedStacks::from_text(&String::from_utf8_lossy(&text));
        assert_eq!(folded.samples(), guest.samples);
        let benchmark = |stack: &[String]| stack[0].starts_with("sched-pipe");
        assert!(folded.stacks().any(|(stack, _)| benchmark(stack)), "{}", folded.to_text());
        // Where this host has no perf its side says so.
        let host = profile.sides.iter().find(|one| one.side == ProfileSide::Host).unwrap();
        assert_eq!(host.blob.is_some(), host.missing.is_none(), "{host:?}");
    }
    assert!(ended.stdout.contains("Profile in the guest, two against one"), "{ended:?}");
    assert!(ended.stdout.contains("perf itself, two: ×"), "{ended:?}");
    let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
    let page = roxmltree::Document::parse(page.trim_start_matches("<!DOCTYPE html>")).unwrap();
    let frames = page
        .descendants()
        .filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("frame ")));
    assert!(frames.count() > 5);
}

/// The stacks of the host's profile, a trial each, by variant: perf on an emulated host with
/// KVM, where it sees the guest as KVM runs it.
fn host_stacks_under_kvm(rest: &str) -> Vec<(String, FoldedStacks)> {
    let replica = Replica { state: tempfile::tempdir().unwrap() };
    let study = Study::new(1, rest);
    study.change("accel = \"tcg\"", "accel = \"kvm\"");
    study.change("boot_limit_s = 180", "boot_limit_s = 900");
    let (file, dir) = (study.folder().join("study.toml"), study.dir());
    let mut run = vmlab(["run", "--on", "replica"]);
    run.arg(file).arg("--out").arg(&dir).env("XDG_STATE_HOME", replica.state.path());
    let ended = said(&mut run);
    // One block decides nothing.
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    let trials = events(&dir).into_iter().filter_map(|event| match event {
        record::journal::JournalEvent::TrialEnded(trial) => Some(*trial),
        _ => None,
    });
    trials
        .map(|trial| {
            let profile = trial.profile.as_ref().unwrap_or_else(|| panic!("{trial:#?}"));
            let host = profile.sides.iter().find(|one| one.side == ProfileSide::Host).unwrap();
            assert_eq!(host.missing, None);
            let text = runner::store::blob(&dir, host.blob.as_ref().unwrap()).unwrap();
            let folded = FoldedStacks::from_text(&String::from_utf8_lossy(&text));
            assert_eq!(folded.samples(), host.samples);
            (trial.trial.variant, folded)
        })
        .collect()
}

/// Samples in the guest, and those of them in a function with a name that is `wanted`.
fn guest_samples(folded: &FoldedStacks, wanted: impl Fn(&str) -> bool) -> (u64, u64) {
    let guest = folded.stacks().filter(|(stack, _)| stack[0] == "[guest]");
    guest.fold((0, 0), |(all, named), (stack, count)| {
        let is_named = stack.get(1).is_some_and(|frame| wanted(frame));
        (all + count, if is_named { named + count } else { named })
    })
}

fn is_a_function(frame: &str) -> bool {
    !["[unknown]", "[program]"].contains(&frame)
}

#[test]
fn the_host_s_profile_under_kvm_names_the_guest_s_functions() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    if let Err(error) = guest::qemu::find_qemu(vmconfig::Arch::X86_64) {
        return skip(error);
    }
    let sides = host_stacks_under_kvm(STUDY);
    for (_, folded) in &sides {
        let (in_guest, named) = guest_samples(folded, is_a_function);
        assert!(
            in_guest > 0 && named * 2 > in_guest,
            "{named} of {in_guest}: {}",
            folded.to_text()
        );
        // No stack is a thread's number alone, and the host's own have their callers.
        assert!(folded.stacks().all(|(stack, _)| stack.len() > 1), "{}", folded.to_text());
        let in_kvm = |stack: &[String]| stack.iter().any(|frame| frame.starts_with("kvm_"));
        assert!(folded.stacks().any(|(stack, _)| in_kvm(stack)), "{}", folded.to_text());
    }
    assert_eq!(sides.len(), 2);
}

/// The thin guest has no perf and no `/proc`: its functions come from the table of its build.
#[test]
fn the_host_s_profile_under_kvm_names_the_thin_guest_s_functions() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    if !crate::calibrate::is_there() {
        return;
    }
    let sides = host_stacks_under_kvm(
        r#"
[[variant]]
name = "spin"
vm = { kernel = "builtin:thin", kernel_cmdline = "wait=spin", vcpus = 2 }

[[variant]]
name = "halt"
vm = { kernel = "builtin:thin", kernel_cmdline = "wait=halt", vcpus = 2 }

[[workload]]
run = "probe-sem"
params = { items = 2000, loops = 10, repeats = 1 }
invocations = 1
profile = true
"#,
    );
    assert_eq!(sides.len(), 2);
    for (variant, folded) in &sides {
        let (in_guest, named) = guest_samples(folded, is_a_function);
        // Each of the guest's few functions is in the table.
        assert!(in_guest > 0 && named * 10 >= in_guest * 9, "{variant}: {}", folded.to_text());
        // The producer's samples, and the vCPU that consumes.
        let (_, handing) =
            guest_samples(folded, |frame| frame.contains("produce") || frame == "work::work");
        assert!(handing > 0, "{variant}: {}", folded.to_text());
    }
}

/// Without a VM there is one side, and all that runs on the variant's pCPUs is in it.
#[test]
fn a_variant_on_the_host_is_profiled_there() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if let Err(error) = host::sandbox::check() {
        return skip(error);
    }
    let mut perf = Command::new("perf");
    if let Err(error) = perf.arg("version").stdout(Stdio::null()).status() {
        return skip(format!("perf: {error}"));
    }
    let (_, workload) = STUDY.split_once("[[workload]]").unwrap();
    let study = Study::new(
        1,
        &format!("[[variant]]\nname = \"host\"\non = \"host\"\n\n[[workload]]{workload}"),
    );
    let ended = study.start().wait();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let all = events(&study.dir());
    let trial = all.into_iter().find_map(|event| match event {
        record::journal::JournalEvent::TrialEnded(trial) => Some(*trial),
        _ => None,
    });
    let profile = trial.unwrap().profile.unwrap();
    let of = |side| profile.sides.iter().find(|one| one.side == side).unwrap();
    assert!(of(ProfileSide::Guest).missing.is_some(), "{profile:#?}");
    let host = of(ProfileSide::Host);
    assert_eq!(host.missing, None);
    let text = runner::store::blob(&study.dir(), host.blob.as_ref().unwrap()).unwrap();
    let folded = FoldedStacks::from_text(&String::from_utf8_lossy(&text));
    let benchmark = |stack: &[String]| stack[0].starts_with("sched-pipe");
    assert!(folded.stacks().any(|(stack, _)| benchmark(stack)), "{}", folded.to_text());
}

#[test]
fn a_profile_that_is_interrupted_leaves_nothing() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Leftovers).turn() else {
        return;
    };
    if let Err(error) = guest::qemu::find_qemu(vmconfig::Arch::X86_64) {
        return skip(error);
    }
    let mut perf = Command::new("perf");
    if let Err(error) = perf.arg("version").stdout(Stdio::null()).status() {
        return skip(format!("perf: {error}"));
    }
    // Each invocation takes longer than to see that perf is beside it.
    let study = Study::new(1, &STUDY.replace("loops = 4000", "loops = 200000"));
    let mut running = study.start();
    running.until("perf on the host", |running| {
        let recording = owned_by(running.pid()).into_iter().find(|owned| {
            let line = &owned.command_line;
            line.starts_with("perf ") && line.contains(" record ") && line.contains("--control")
        });
        recording.map(drop)
    });
    // Nothing that vmlab started is left, in whatever session, or this fails.
    let interrupted = running.interrupt(Signal::INT);
    assert!(interrupted.stderr.contains("--resume"), "{interrupted:#?}");
    let runtime = host::owner::stale_runtime_dirs();
    assert!(runtime.is_empty(), "{runtime:?}");
}
