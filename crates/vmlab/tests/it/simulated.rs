//! `vmlab sim`: the same answer each time, records that others read, and errors
//! that say where.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/sim").join(name)
}

fn vmlab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vmlab")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn one_seed_is_one_answer() {
    let pair = scenario("pair.toml");
    let answer = |seed: &str| {
        let path = pair.to_str().unwrap();
        let output = vmlab(&["sim", path, "--draws", "4", "--seed", seed, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let first = answer("7");
    assert_eq!(first, answer("7"));
    assert_ne!(first, answer("8"));
    let answer: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(answer["environment"], "simulated");
    let cells = answer["cells"].as_array().unwrap();
    assert_eq!(cells[1]["variant"], "polling");
    assert_eq!(cells[1]["meters"][0]["p_greater"], 1.0);
    assert!(cells[1]["carried_by"]["exit costs"].as_f64().unwrap() > 0.1);
}

#[test]
fn records_are_compared_as_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.json");
    let pair = scenario("pair.toml");
    let args = ["sim", pair.to_str().unwrap(), "--draws", "6", "--no-why", "--records"];
    let output = vmlab(&[&args[..], &[records.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = vmlab(&["compare", records.to_str().unwrap()]);
    let compared = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{compared}");
    assert!(compared.contains("polling") && compared.contains("imulated"), "{compared}");
}

#[test]
fn errors_say_where() {
    let folder = tempfile::tempdir().unwrap();
    let pair = fs::read_to_string(scenario("pair.toml")).unwrap();
    let path = folder.path().join("s.toml");
    for (from, to, expected) in [
        ("cores = 4", "cores = 0", "s.toml:10: cores = 0"),
        ("pins = [\"0\", \"1\"]", "pins = [\"0\", \"4\"]", "no pCPU 4 that is online"),
        ("cores = 4", "file = \"absent.json\"", "absent.json"),
        (
            "class = \"ping-pong\"\npinned = true\nproduce_work = 10\nconsume_work = 1",
            "class = \"program\"\nchannels.queue = {}\n[[workload.items.task]]\nsteps = [{ receive = \"queue\" }]",
            "waits for \"queue\", which is empty",
        ),
    ] {
        assert!(pair.contains(from), "{from}");
        fs::write(&path, pair.replacen(from, to, 1)).unwrap();
        let output = vmlab(&["sim", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{to}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{said}");
    }
}

/// A terminal: the side that a program has, and what it shows there.
fn terminal() -> (fs::File, fs::File) {
    let shown = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&shown).unwrap();
    unlockpt(&shown).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&shown, size).unwrap();
    let name = ptsname(&shown, Vec::new()).unwrap().into_string().unwrap();
    // A test that leads its session must not get it for its own, which ends with it.
    let no_own = OFlags::NOCTTY.bits().cast_signed();
    let mut options = fs::File::options();
    let program = options.read(true).write(true).custom_flags(no_own).open(name).unwrap();
    (program, shown.into())
}

/// Ctrl-C ends with what is known so far.
#[test]
fn an_interrupted_answer_has_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    let ten_minutes = "\n[[variant]]\nname = \"long\"\nset = { duration_ms = 600000 }\n";
    let pair = fs::read_to_string(scenario("pair.toml")).unwrap();
    fs::write(&path, pair.replacen("duration_ms = ", "duration_ms = 1 # ", 1) + ten_minutes)
        .unwrap();
    // On one pCPU runs come one after the other: with two of them the short ones are done.
    let pcpu = host::affinity::thread_affinity(std::process::id()).unwrap().first().unwrap();
    let (program, mut shown) = terminal();
    let child = Command::new("taskset")
        .args(["-c", &pcpu.to_string(), env!("CARGO_BIN_EXE_vmlab"), "sim"])
        .args([path.to_str().unwrap(), "--draws", "1", "--no-why", "--json"])
        .env("TERM", "xterm")
        .stdout(Stdio::piped())
        .stderr(program)
        .spawn()
        .unwrap();
    let mut seen = String::new();
    while !seen.contains("2/6 runs") {
        let mut piece = [0; 4096];
        // It fails where nobody has the other side any more.
        let read = shown.read(&mut piece).unwrap_or_else(|error| panic!("{error}: {seen}"));
        seen += &String::from_utf8_lossy(&piece[..read]);
    }
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{seen}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["interrupted"], true);
    let known: Vec<_> =
        answer["cells"].as_array().unwrap().iter().map(|cell| &cell["variant"]).collect();
    assert_eq!(known, ["halting", "polling"]);
}

/// Two that are the same: who waits is told, and that nothing carries what is not there.
#[test]
fn an_answer_tells_who_waits_and_what_is_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    let text_of = "sim = 1\nduration_ms = 200\nwarmup_ms = 0\n[host]\ncores = 1\nhousekeeping_ms = 0\n\
                   [[vm]]\ncount = 3\nworkload = \"w\"\n[workload.w]\nclass = \"compute\"\nwork = 100\n\
                   [[variant]]\nname = \"one\"\n[[variant]]\nname = \"same\"\n";
    fs::write(&path, text_of).unwrap();
    let output = vmlab(&["sim", path.to_str().unwrap(), "--draws", "2"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // One of three runs.
    let waiting = said.lines().find(|line| line.trim_start().starts_with("waiting")).unwrap();
    let count: f64 = waiting.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((1.9..=2.0).contains(&count), "{said}");
    let carried = "nothing: there is no difference from one beyond its interval";
    assert!(said.contains(carried), "{said}");
}

/// Every scenario that comes with vmlab is sound.
#[test]
fn own_scenarios_are_sound() {
    let mut count = 0;
    for entry in fs::read_dir(scenario("")).unwrap() {
        let path = entry.unwrap().path();
        let output = vmlab(&["sim", path.to_str().unwrap(), "--check"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        count += 1;
    }
    assert!(count >= 2);
}

#[test]
fn maps_are_pictures_and_traces() {
    let folder = tempfile::tempdir().unwrap();
    let [map, trace] = ["map.svg", "trace.json"].map(|name| folder.path().join(name));
    let pair = scenario("pair.toml");
    let pair = pair.to_str().unwrap();
    let args = ["--map", map.to_str().unwrap(), "--trace", trace.to_str().unwrap()];
    let output = vmlab(&[&["sim", pair, "--variant", "polling"][..], &args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(map).unwrap().contains("two vCPUs: polling"));
    let trace: Value = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 4);
    let output = vmlab(&["sim", pair, "--variant", "none", "--map", "x.svg"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there are halting, polling"));
}

const STUDY: &str = r#"
vmlab = 1
title = "Pinned or not"
[budget]
blocks = 6
[vm]
vcpus = 2
[[variant]]
name = "free"
[[variant]]
name = "one-core"
vm.pins = [1, 17]
[[load]]
name = "idle"
[[workload]]
run = "probe-stream"
[[workload]]
run = "fio"
"#;

fn two_sockets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan/two-sockets.json")
}

/// A study as it is, on a host that is only described: records that say so, a report,
/// and a scenario that plays again.
#[test]
fn a_study_is_simulated_on_a_described_host() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("pins.toml");
    fs::write(&study, STUDY).unwrap();
    let out = folder.path().join("results");
    let [study, out] = [&study, &out].map(|path| path.to_str().unwrap());
    let on = format!("sim:{}", two_sockets().display());
    let output = vmlab(&["run", study, "--on", &on, "--seed", "3", "--out", out]);
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{noted}");
    assert!(noted.contains("fio is left out: the simulator can't play it: disks"), "{noted}");
    assert!(said.contains("Simulated: computed by a model") && said.contains("one-core"), "{said}");
    let output = vmlab(&["report", out, "--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["environment"], "simulated");
    let html = vmlab(&["report", out, "--format", "html"]);
    assert!(text(&html.stdout).contains("Simulated: computed by a model"));
    // Where a measured study would be gone on with, this one is too.
    let output = vmlab(&["run", "--extend", out, "--blocks", "2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let exported = vmlab(&["export", out, "--to", "csv"]);
    assert!(text(&exported.stdout).contains("simulated"), "{}", text(&exported.stderr));
    let output = vmlab(&["run", "--resume", out, "--on", "ssh://nobody@localhost"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("in the simulator"), "{}", text(&output.stderr));
}

/// What the simulator has no model of is known before it runs, on the machine that is asked
/// about and not on this one.
#[test]
fn a_study_is_checked_for_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let study = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies").join(name);
        path.to_str().unwrap().to_owned()
    };
    let on = format!("sim:{}", two_sockets().display());
    let output = vmlab(&["check", &study("pv-features.toml"), "--on", &on]);
    let (plan, notes) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{notes}");
    assert!(plan.contains("Simulated: computed by a model"), "{plan}");
    assert!(plan.contains("QEMU         none; checked for QEMU"), "{plan}");
    assert!(notes.contains("no-pv-eoi is left out: not in the model: "), "{notes}");
    assert!(!plan.contains("no-pv-eoi: no-pv-eoi") && plan.contains("no-pv-ipi"), "{plan}");
    let dry = vmlab(&["run", &study("pv-features.toml"), "--on", &on, "--dry-run", "--seed", "1"]);
    let check = vmlab(&["check", &study("pv-features.toml"), "--on", &on, "--seed", "1"]);
    assert_eq!(text(&dry.stdout), text(&check.stdout));
    // What trials begin on elsewhere the simulator has not.
    let with_ground = folder.path().join("ground.toml");
    let ground = "\n[ground]\ndrop_caches = true\nmerged_mib = 0\n";
    let text_of = fs::read_to_string(study("pv-features.toml")).unwrap();
    fs::write(&with_ground, format!("{text_of}{ground}")).unwrap();
    let with_ground = with_ground.to_str().unwrap();
    let output = vmlab(&["check", with_ground, "--on", &on]);
    let (plan, notes) = (text(&output.stdout), text(&output.stderr));
    let line = text_of.lines().count() + 2;
    assert!(notes.contains(&format!("ground.toml:{line}: warning: [ground]: the simu")), "{notes}");
    assert!(!plan.contains("Ground"), "{plan}");
    // Nothing of it would be simulated.
    for command in ["check", "run"] {
        let output = vmlab(&[command, &study("thp.toml"), "--on", &on]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains("thp.toml:") && said.contains("host.thp"), "{said}");
    }
    let absent = format!("sim:{}", folder.path().join("absent.json").display());
    let output = vmlab(&["check", &study("numa-vms.toml"), "--on", &absent]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("absent.json"), "{}", text(&output.stderr));
}

#[test]
fn ways_to_place_a_vm_are_ranked() {
    let host = two_sockets();
    let args = ["plan", "--vcpus", "4", "--memory", "4GiB", "--host", host.to_str().unwrap()];
    let more = ["--simulate", "stream", "--draws", "3", "--json"];
    let output = vmlab(&[&args[..], &more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ranking: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ranking["environment"], "simulated");
    let ways = ranking["ways"].as_array().unwrap();
    let rate = |name: &str| {
        let way = ways.iter().find(|way| way["name"] == name);
        way.unwrap_or_else(|| panic!("{name}: {ranking}"))["of_plan"]["median"].as_f64().unwrap()
    };
    assert_eq!(rate("planned"), 1.0);
    // Four vCPUs that stream have more of four cores than of two.
    assert!(rate("a core each") > 1.2, "{ranking}");
    let best: f64 = ways.iter().map(|way| way["p_best"].as_f64().unwrap()).sum();
    assert!((best - 1.0).abs() < 1e-9, "{ranking}");
    let output = vmlab(&[&args[..], &["--simulate", "compute", "--draws", "1"]].concat());
    assert!(text(&output.stdout).contains("P(best)"), "{}", text(&output.stdout));
}

/// What `vmlab plan --toml` prints stands under `[[vm]]` as it is, of one node and of two.
#[test]
fn a_plan_is_a_vm_of_a_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("planned.toml");
    let host = two_sockets().canonicalize().unwrap();
    for (vcpus, left_out) in [("4", "memory_mib, emulator_pin"), ("20", "the guest's nodes")] {
        let vm = ["plan", "--vcpus", vcpus, "--memory", "64GiB", "--iothreads", "2", "--toml"];
        let plan = vmlab(&[&vm[..], &["--host", host.to_str().unwrap()]].concat());
        assert!(plan.status.success(), "{}", text(&plan.stderr));
        let plan = text(&plan.stdout).replace("[vm]\n", "[[vm]]\nworkload = \"own\"\n");
        let around = format!(
            "duration_ms = 50\nwarmup_ms = 10\n[host]\nfile = {host:?}\nkernel = \"6.1\"\n{plan}\n\
             [workload.own]\nclass = \"compute\"\nwork = 100\n"
        );
        fs::write(&file, format!("sim = 1\ntitle = \"planned\"\n{around}")).unwrap();
        let answer = vmlab(&["sim", file.to_str().unwrap(), "--draws", "1", "--json"]);
        let told = text(&answer.stderr);
        assert!(answer.status.success() && told.contains("left out of vm: "), "{told}");
        // Iothreads are between the memory and the emulator.
        assert!(left_out.split(", ").all(|one| told.contains(one)), "{told}");
        let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
        // 100 us a piece: each vCPU has a pCPU of its own.
        let rate = answer["cells"][0]["meters"][0]["value"]["median"].as_f64().unwrap();
        let whole = vcpus.parse::<f64>().unwrap() * 10_000.0;
        assert!(rate > 0.3 * whole && rate <= whole, "{rate} of {whole}: {answer}");
    }
}

#[test]
fn recordings_of_real_machines_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/testdata/recordings");
    for name in ["perf-6.1-pids.txt", "trace-cmd-3.1.6.txt"] {
        let [page, picture, trace] =
            ["map.html", "map.svg", "t.json"].map(|file| folder.path().join(file));
        let recording = recordings.join(name);
        for map in [&page, &picture] {
            let args = ["sim", "--recording", recording.to_str().unwrap(), "--map"];
            let more = [map.to_str().unwrap(), "--trace", trace.to_str().unwrap()];
            let output = vmlab(&[&args[..], &more].concat());
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains("Recorded.") && !page.contains("http"), "{name}");
        assert!(fs::read_to_string(picture).unwrap().contains("Recorded."), "{name}");
        let trace: Value = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let is_vcpu = |event: &&Value| event["name"].as_str().unwrap().contains(" vCPU ");
        assert!(events.iter().filter(is_vcpu).count() > 3, "{name}");
    }
    let binary = folder.path().join("perf.data");
    fs::write(&binary, b"PERFILE2\0\0").unwrap();
    let output = vmlab(&["sim", "--recording", binary.to_str().unwrap(), "--map", "x.svg"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("perf script -i"), "{}", text(&output.stderr));
}

/// Constants of a machine take the place of what is known of such constants, and say so.
#[test]
fn constants_are_taken_from_measurements() {
    let pair = scenario("pair.toml");
    let pair = pair.to_str().unwrap();
    let args = ["sim", pair, "--draws", "1", "--no-why", "--calibrate", "here", "--json"];
    let output = vmlab(&args);
    let told = text(&output.stderr);
    if output.status.success() {
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names: Vec<_> =
            answer["calibrated"].as_array().unwrap().iter().map(|of| &of["name"]).collect();
        let taken = names.iter().any(|name| *name == "handoff_ns");
        // What others took part in is not taken, and that is told.
        assert_ne!(taken, told.contains("handoff_ns was measured as"), "{names:?} {told}");
    } else {
        assert!(told.contains("measure while nothing else runs"), "{told}");
    }
    let folder = tempfile::tempdir().unwrap();
    let prices = folder.path().join("prices.json");
    let price = |operation: &str, cycles: f64| {
        let boot = serde_json::json!({
            "min": cycles, "median": cycles, "p99": cycles, "ipis": 0, "hlts": 0,
            "kvm": { "kvm.exits": 100.0 },
        });
        serde_json::json!({
            "operation": operation, "summary": "", "n": 10, "batch": 1, "boots": [boot, boot],
        })
    };
    let list = |environment: &str| {
        serde_json::json!({
            "format": "vmlab-calibration", "version": 1, "environment": environment,
            "count": "cycles", "kernel": null, "cpu_model": null, "qemu": "10", "machine": "q35",
            "cpu": "host", "vcpus": 1, "apic": "x2apic", "tsc_khz": 2_000_000, "notes": [],
            "prices": [price("nothing", 0.0), price("cpuid", 40_000.0)],
        })
    };
    let rate = |more: &[&str]| {
        let args = ["sim", pair, "--draws", "1", "--no-why", "--json"];
        let output = vmlab(&[&args[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["cells"][0]["meters"][0]["value"]["median"].as_f64().unwrap()
    };
    let path = prices.to_str().unwrap();
    fs::write(&prices, list("kvm").to_string()).unwrap();
    // Exits of 10 us instead of 1.
    assert!(rate(&["--calibrate", path]) < 0.8 * rate(&[]));
    fs::write(&prices, list("tcg").to_string()).unwrap();
    let output = vmlab(&["sim", pair, "--calibrate", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("emulated time"), "{}", text(&output.stderr));
}
