//! `vmlab watch` beside real QEMUs, killed, and on a full disk; `vmlab rollout` over stores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use fleet::reading::{CounterSubject, Reading, ReadingTime};
use fleet::store::{Bounds, WatchStore};
use record::{CounterSet, Environment};
use serde_json::Value;
use suite::{PATIENCE, Tier, needs, until};

use crate::lab::{CommandOutput, VMLAB, said, vmlab};

/// A process that ends with the test.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(store: &Path, args: &[&str]) -> CommandOutput {
    said(vmlab(["watch"]).args(args).arg("--store").arg(store))
}

fn shown(store: &Path) -> Value {
    let show = watch(store, &["show", "--json"]);
    crate::schemas::holds("watched", &show.has_code(0).stdout)
}

/// The counter of a VM in the last reading.
fn counter(shown: &Value, vm: &str, name: &str) -> Option<f64> {
    let vms = shown["vms"].as_array().expect("a list");
    vms.iter().find(|one| one["name"] == vm)?["counters"][name].as_f64()
}

#[test]
fn counters_of_a_real_guest_rise_from_one_reading_to_the_next() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("w.sqlite");
    // Its firmware looks for something to boot, for ever.
    let qemu = Command::new("qemu-system-x86_64")
        .args(["-nodefaults", "-display", "none", "-machine", "q35", "-m", "64", "-smp", "2"])
        .args(["-accel", "tcg,thread=multi", "-name", "watched,debug-threads=on"])
        .stdin(Stdio::null())
        .spawn();
    let qemu = ChildGuard(qemu.expect("QEMU starts"));
    let first = until("its vCPUs have threads", || {
        watch(&store, &["--once"]).has_code(0);
        counter(&shown(&store), "watched", "vcpu.run_s")
    });
    let now = until("they have run since", || {
        let told = watch(&store, &["--once"]);
        assert!(told.has_code(0).stderr.contains("stored"), "{told:?}");
        let now = shown(&store);
        counter(&now, "watched", "vcpu.run_s").is_some_and(|run_s| run_s > first).then_some(now)
    });
    let vm = now["vms"].as_array().unwrap().iter().find(|vm| vm["name"] == "watched").unwrap();
    assert_eq!((&vm["pid"], &vm["vcpus"]), (&qemu.0.id().into(), &2.into()));
    assert_eq!(vm["environment"], "tcg");
    assert_eq!(now["vms"][0]["pid"], 0);
    let hours = fleet::store::hours(&store, &[("vcpu.run_s", None)]).unwrap();
    let hours = &hours[0];
    let counted: f64 = hours.hours.values().map(|total| total.counted).sum();
    assert!(counted > 0.0 && hours.went_back == 0, "{hours:?}");
    assert!(hours.environments.contains(&Environment::Tcg));
    // Text for people.
    let text = watch(&store, &["show"]).has_code(0).stdout.clone();
    assert!(text.contains("watched") && text.contains("emulated (TCG)"), "{text}");
    let text = watch(&store, &["show", "--vm", "watched"]).has_code(0).stdout.clone();
    assert!(text.contains("vcpu.wait_s"), "{text}");
    watch(&store, &["show", "--vm", "other"]).is_error(&["no VM called other", "watched"]);
    // A VM that is gone is in no later reading, and what is stored of it stays.
    drop(qemu);
    watch(&store, &["--once"]).has_code(0);
    let after = shown(&store);
    assert_eq!(counter(&after, "watched", "vcpu.run_s"), None);
    assert!(after["vms_seen"].as_u64() >= Some(1), "{after}");
}

#[test]
fn a_watch_that_is_killed_loses_nothing_that_was_stored() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("w.sqlite");
    let journal = folder.path().join("w.sqlite-journal");
    // What never worked ends at once.
    watch(&folder.path().join("none/w"), &[]).is_error(&["Cannot open the store", "none/w"]);
    watch(&store, &["--once"]).has_code(0);
    let mut torn = 0;
    for _ in 0..8 {
        let before = shown(&store)["readings"].as_u64().unwrap();
        let mut command = vmlab(["watch", "--interval-s", "1", "--store"]);
        let mut daemon = ChildGuard(command.arg(&store).stderr(Stdio::null()).spawn().unwrap());
        // The journal is there while a reading is written.
        let begun = Instant::now();
        while !journal.exists() {
            assert!(begun.elapsed() < PATIENCE, "nothing is written");
            std::hint::spin_loop();
        }
        daemon.0.kill().unwrap();
        daemon.0.wait().unwrap();
        torn += u32::from(journal.exists());
        let after = shown(&store)["readings"].as_u64().unwrap();
        // More than one where this test was not let run while the first was written.
        assert!(after >= before, "{before} readings, then {after}");
    }
    println!("{torn} of 8 were killed in the middle of a reading");
    // It goes on, and ends in order when it is told to.
    let mut command = vmlab(["watch", "--interval-s", "1", "--store"]);
    let mut daemon = ChildGuard(command.arg(&store).stderr(Stdio::null()).spawn().unwrap());
    let before = shown(&store)["readings"].as_u64().unwrap();
    until("two more are stored", || {
        (shown(&store)["readings"].as_u64() >= Some(before + 2)).then_some(())
    });
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_full_disk_is_told_once_and_takes_nothing_away() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("small")).unwrap();
    // Fills what is left, asks again, makes room, asks again.
    let script = "mount -t tmpfs -o size=256k none small || exit 99
        $0 watch --once --store small/w || exit 98
        cat /dev/zero >small/fill 2>/dev/null
        $0 watch --once --store small/w; echo code $?
        $0 watch show --json --store small/w >before
        rm small/fill
        $0 watch --once --store small/w; echo code $?
        exec $0 watch show --json --store small/w";
    let mut unshare = Command::new("unshare");
    unshare.args(["-rm", "sh", "-c", script, VMLAB]).current_dir(folder.path());
    let told = said(&mut unshare);
    if told.stderr.contains("unshare") || told.code == Some(99) {
        suite::skip(format!("no namespace here: {}", told.stderr));
        return;
    }
    let full: Vec<&str> =
        told.stderr.lines().filter(|line| line.contains("No space for a reading")).collect();
    assert_eq!(full.len(), 1, "{told:?}");
    let (codes, after) = told.stdout.split_at(told.stdout.find('{').expect("JSON"));
    assert_eq!(codes, "code 2\ncode 0\n", "{told:?}");
    let before: Value =
        serde_json::from_slice(&fs::read(folder.path().join("before")).unwrap()).unwrap();
    let after: Value = serde_json::from_str(after).unwrap();
    assert_eq!((&before["readings"], &after["readings"]), (&1.into(), &2.into()));
}

/// 2026-03-02T00:00:00Z, a Monday.
const CHANGE_S: i64 = 1_772_409_600;

/// The store of a host, with a reading an hour: from eight days before the change to three
/// days after it, when its one VM waits `factor` times as long.
fn host(folder: &Path, number: i64, factor: f64) -> PathBuf {
    let path = folder.join(format!("node{number}.sqlite"));
    let mut store = WatchStore::open(&path).unwrap();
    let bounds = Bounds { keep_s: 90 * 86_400, max_bytes: 64 << 20 };
    let (mut run_s, mut wait_s) = (0.0, 0.0);
    for hour in -8 * 24..=3 * 24 + 1 {
        let busy = 1000.0 + ((number * 7919 + hour * 104_729).rem_euclid(97)) as f64;
        run_s += busy;
        wait_s += busy * 0.02 * (number + 1) as f64 * if hour > 0 { factor } else { 1.0 };
        let mut set = CounterSet::default();
        set.set("vcpu.run_s", run_s);
        set.set("vcpu.wait_s", wait_s);
        let counted = |pid: u32, name: &str| CounterSubject {
            pid,
            starttime_ticks: 1,
            name: name.to_owned(),
            vcpus: 4,
            environment: Environment::Kvm,
        };
        let at = ReadingTime {
            unix_s: CHANGE_S + hour * 3600,
            boot_id: "one".to_owned(),
            since_boot_ms: (hour + 1000) * 3_600_000,
        };
        let node = (counted(0, &format!("node{number}")), CounterSet::default());
        let reading =
            Reading { at, counted: vec![node, (counted(7, "vm"), set)], problems: Vec::new() };
        store.add(&reading, &bounds).unwrap();
    }
    path
}

#[test]
fn stores_of_hosts_become_an_answer() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    for cohort in ["old", "new"] {
        fs::create_dir(folder.path().join(cohort)).unwrap();
    }
    let plan = folder.path().join("plan.toml");
    let text = "vmlab = 1\nchanged_at = 2026-03-02T00:00:00Z\nsettle_hours = 0\nbefore_days = 7\n\
                [[metric]]\ncounter = 'vcpu.wait_s'\nper = 'vcpu.run_s'\nbetter = 'lower'\n\
                [hosts]\nchanged = ['new']\nunchanged = ['old']\n";
    fs::write(&plan, text).unwrap();
    let plan = plan.to_str().unwrap();
    said(&mut vmlab(["rollout", plan])).is_error(&["old has no store", "vmlab watch"]);
    for number in 0..8 {
        let (cohort, factor) = if number < 4 { ("old", 1.0) } else { ("new", 1.2) };
        host(&folder.path().join(cohort), number, factor);
    }
    let found = said(&mut vmlab(["rollout", plan, "--json", "--gate"]));
    let answer = crate::schemas::holds("rollout", &found.has_code(1).stdout);
    assert_eq!((&answer["step"], &answer["days"]), (&"stop".into(), &3.into()));
    let look = &answer["metrics"][0]["looks"][2];
    let ratio = look["ratio"].as_f64().unwrap();
    assert!((ratio - 1.2).abs() < 0.01, "{look}");
    assert_eq!((&look["changed_hosts"], &answer["is_emulated_time"]), (&4.into(), &false.into()));
    let text = said(&mut vmlab(["rollout", plan, "--looks"])).has_code(0).stdout.clone();
    for words in ["stop", "▼ higher", "day   1", "day   3", "Measured under KVM"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    said(&mut vmlab(["rollout", plan, "--html", page])).has_code(0);
    let written = fs::read_to_string(page).unwrap();
    for words in ["What to do", "chip worse", "Day by day", "Measured under KVM", "which decided"] {
        assert!(written.contains(words), "{words}: {written}");
    }
    let sizes = said(&mut vmlab(["rollout", plan, "--plan-only"])).has_code(0).stdout.clone();
    assert!(sizes.contains("hosts each"), "{sizes}");
    // The same host twice, and a store that is none.
    let both = text_with(plan, "changed = ['new']", "changed = ['new', 'old']");
    said(&mut vmlab(["rollout", &both])).is_error(&["is named twice"]);
    fs::write(folder.path().join("new/other.sqlite"), "no store").unwrap();
    said(&mut vmlab(["rollout", plan])).is_error(&["other.sqlite", "no store of"]);
}

/// A copy of the plan beside it, with `old` replaced.
fn text_with(plan: &str, old: &str, new: &str) -> String {
    let path = plan.replace("plan.toml", "other.toml");
    fs::write(&path, fs::read_to_string(plan).unwrap().replace(old, new)).unwrap();
    path
}
