//! Studies on another machine, over a real sshd: their results are here, as if
//! they had run here, whatever becomes of the connection.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use suite::{Tier, needs};

use crate::lab::{CommandOutput, Machine, VMLAB, events, said, vmlab};
use crate::running::{RunningVmlab, Study, assert_complete, results, two_variants};
use crate::sshd::Sshd;

/// The options that lead to `sshd`, with `key` and with the machine's key as it
/// stands in `known_hosts`. The tests' program is not static, but it runs on its
/// own machine.
fn options_with(sshd: &Sshd, key: &str, known_hosts: &str, program: &Path) -> Vec<OsString> {
    let on = sshd.destination().to_string();
    let (key, known_hosts) = (sshd.path(key), sshd.path(known_hosts));
    let all: [(&str, &Path); 4] = [
        ("--on", on.as_ref()),
        ("--identity", &key),
        ("--known-hosts", &known_hosts),
        ("--remote-binary", program),
    ];
    all.iter().flat_map(|(name, value)| [OsString::from(name), value.into()]).collect()
}

fn options(sshd: &Sshd) -> Vec<OsString> {
    options_with(sshd, "user_key", "known_hosts", Path::new(VMLAB))
}

fn start(sshd: &Sshd, study: &Study, dir: &Path) -> RunningVmlab {
    let mut command = vmlab(["run".as_ref(), study.folder().join("study.toml").as_os_str()]);
    command.arg("--out").arg(dir).args(options(sshd));
    RunningVmlab::spawn(&mut command, dir)
}

fn resume(sshd: &Sshd, dir: &Path) -> RunningVmlab {
    let mut command = vmlab(["run".as_ref(), "--resume".as_ref(), dir.as_os_str()]);
    RunningVmlab::spawn(command.args(options(sshd)), dir)
}

/// The programs that were copied to the other machine's home.
fn programs(sshd: &Sshd) -> Vec<PathBuf> {
    let folder = sshd.path("home/.cache/vmlab/bin");
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A machine with an ssh that runs commands on this one, below a login shell that
/// prints `greeting`, and that can't be reached if there is none.
fn pretended(greeting: Option<&str>) -> Machine {
    let machine = Machine::with_qemu("9.2.0");
    machine.study(&[]);
    let ssh = match greeting {
        Some(greeting) => {
            format!("#!/bin/sh\necho '{greeting}'\nfor last; do :; done\nexec sh -c \"$last\"\n")
        }
        None => {
            "#!/bin/sh\necho 'ssh: connect to host x port 22: No route to host' >&2\nexit 255\n"
                .to_owned()
        }
    };
    machine.program("ssh", &ssh);
    machine
}

fn check_on(machine: &Machine, program: &Path) -> CommandOutput {
    let mut command = machine.vmlab(["check", "small.toml", "--json", "--on", "ssh://x"]);
    let path = format!("{}:/usr/bin:/bin", machine.path("bin").display());
    said(command.env("PATH", path).arg("--remote-binary").arg(program))
}

#[test]
fn the_plan_is_made_there_and_nothing_goes_over_twice() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let machine = pretended(Some("Welcome!"));
    let copied = |said: &CommandOutput| said.stderr.matches("copying ").count();
    let first = check_on(&machine, Path::new(VMLAB));
    let plan = runner::plan::StudyPlan::from_json(first.has_code(0).stdout.as_bytes()).unwrap();
    assert_eq!((plan.study_file.as_str(), plan.trials_per_block()), ("small.toml", 2));
    // The program, and the disk image that the study names.
    assert_eq!(copied(&first), 2, "{first:#?}");
    assert_eq!(copied(check_on(&machine, Path::new(VMLAB)).has_code(0)), 0);
    // Another disk of the same name is another one.
    fs::write(machine.path("disk.raw"), [1; 512]).unwrap();
    assert_eq!(copied(check_on(&machine, Path::new(VMLAB)).has_code(0)), 1);
}

#[test]
fn what_can_not_run_there_is_one_error() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let machine = pretended(None);
    check_on(&machine, Path::new(VMLAB)).is_error(&["ssh://x does not answer", "No route to host"]);

    let machine = pretended(Some(""));
    machine.study(&[("blocks = 2", "block = 2")]);
    check_on(&machine, Path::new(VMLAB)).is_error(&["small.toml:", "block"]);
    machine.study(&[("\"disk.raw\"", "\"../disk.raw\"")]);
    check_on(&machine, Path::new(VMLAB)).is_error(&["../disk.raw", "below the study's folder"]);
    machine.study(&[("\"disk.raw\"", "\"/no/such/disk\"")]);
    let gone = check_on(&machine, Path::new(VMLAB));
    assert_eq!(gone.code, Some(2), "{gone:#?}");
    let last = gone.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("small.toml:") && last.contains("/no/such/disk"), "{gone:#?}");
    machine.study(&[]);
    check_on(&machine, &machine.path("small.toml")).is_error(&["no program of Linux"]);
    // Something else answers: the program ends before its greeting.
    let other = ["/bin/true", "/usr/bin/true"].iter().find(|path| Path::new(path).exists());
    let other = check_on(&machine, Path::new(other.expect("there is a true")));
    assert_eq!(other.code, Some(2), "{other:#?}");
    assert!(other.stderr.contains("without a last word"), "{other:#?}");
}

#[test]
fn a_study_runs_there_and_its_results_are_here() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let study = Study::new(2, &two_variants(1));
    // Two blocks may decide it on a quiet machine, and then no third one follows.
    study.change("blocks = 2", "blocks = 2\nuntil = \"budget\"");

    let plan = vmlab(["check".as_ref(), study.folder().join("study.toml").as_os_str()])
        .arg("--json")
        .args(options(&sshd))
        .output()
        .unwrap();
    let plan = runner::plan::StudyPlan::from_json(&plan.stdout).unwrap();
    assert_eq!(plan.trials_per_block(), 2);

    let first = start(&sshd, &study, &study.dir()).wait();
    first.has_code(0);
    // `check` has brought the program.
    assert!(!first.stderr.contains("copying"), "{first:#?}");
    assert_eq!(programs(&sshd).len(), 1);
    let contents = assert_complete(&study.dir());
    for result in results(&contents.events) {
        let stdout = &result.runs[0].blobs["stdout"];
        assert!(study.dir().join("blobs").join(stdout).is_file());
    }
    assert!(study.dir().join("report.html").is_file());

    let extended = vmlab(["run".as_ref(), "--extend".as_ref(), study.dir().as_os_str()])
        .args(["--blocks", "1"])
        .args(options(&sshd))
        .output()
        .unwrap();
    assert_eq!(extended.status.code(), Some(0), "{extended:?}");
    assert_eq!(results(&events(&study.dir())).len(), 6);
}

/// Instructions are the same there and here, as the machine is.
#[test]
fn a_price_list_is_measured_there_and_compared_here() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if !crate::calibrate::is_there() {
        return;
    }
    let Some(sshd) = Sshd::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // A file of this machine, for the VM there.
    fs::write(path("vm.toml"), "vcpus = 3\n").unwrap();
    let list = |name: &str, more: &[OsString]| {
        let words = ["calibrate", "--accel", "tcg", "--only", "cpuid,self-ipi", "--out"];
        let vm = ["--vm".into(), path("vm.toml").into_os_string()];
        said(vmlab(words).arg(path(name)).args(vm).args(more)).has_code(0);
        fs::read_to_string(path(name)).unwrap()
    };
    let there = list("there.json", &options(&sshd));
    assert_eq!(there, list("here.json", &[]));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&there).unwrap()["vcpus"], 3);
    let compared = |a: &str, b: &str| {
        let words = ["calibrate".as_ref(), "--gate".as_ref(), "--compare".as_ref()];
        let files = [path(a), path(b)];
        said(&mut vmlab(words.into_iter().chain(files.iter().map(|file| file.as_os_str()))))
    };
    let same = compared("here.json", "there.json");
    assert!(same.has_code(0).stdout.contains("Every count is the same"), "{same:?}");
    // One that costs more than before fails the gate; one that costs less passes.
    let mut dear: serde_json::Value = serde_json::from_str(&there).unwrap();
    let median = &mut dear["prices"][1]["boots"][0]["median"];
    *median = (median.as_f64().unwrap() + 1.0).into();
    fs::write(path("dear.json"), dear.to_string()).unwrap();
    let worse = compared("here.json", "dear.json");
    assert!(worse.has_code(1).stdout.contains("cpuid"), "{worse:?}");
    compared("dear.json", "here.json").has_code(0);
}

#[test]
fn a_study_goes_on_after_the_connection_was_lost() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let study = Study::new(2, &two_variants(1));
    let mut running = start(&sshd, &study, &study.dir());
    // Long before the fourth, however late this is noticed.
    running.until_trials_ended(1);
    sshd.cut();
    let lost = running.wait();
    lost.has_code(2);
    let last = lost.stderr.lines().last().unwrap_or_default();
    let resume_with = format!("--resume {} --on ssh://", study.dir().display());
    for part in ["was lost", "what was measured is safe", &resume_with] {
        assert!(last.contains(part), "{part:?} is not said: {lost:#?}");
    }
    let known = results(&events(&study.dir()));
    assert!(!known.is_empty());

    let ended = resume(&sshd, &study.dir()).wait();
    ended.has_code(0);
    let contents = assert_complete(&study.dir());
    assert_eq!(results(&contents.events)[..known.len()], known);
}

#[test]
fn an_interrupt_here_ends_the_study_there() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let study = Study::new(2, &two_variants(1));
    let mut running = start(&sshd, &study, &study.dir());
    running.until_trials_ended(1);
    let stopped = running.interrupt(Signal::INT);
    assert!(stopped.stderr.contains("Interrupted: go on with"), "{stopped:#?}");
    assert!(stopped.stderr.contains(" --on ssh://"), "{stopped:#?}");
    let plan = runner::store::read(&study.dir()).unwrap().plan;
    assert_eq!(marked(&plan.run_id()), 0, "something still runs there");
    resume(&sshd, &study.dir()).wait().has_code(0);
    assert_complete(&study.dir());
}

/// Processes that carry the mark of a run.
fn marked(run_id: &str) -> usize {
    let mark = format!("VMLAB_RUN={run_id}");
    let carries = |environment: Vec<u8>| {
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|entry| fs::read(entry.path().join("environ")).is_ok_and(carries)).count()
}

#[test]
fn whoever_cannot_run_there_is_told_why() {
    let Some(_turn) = needs(Tier::Test).turn() else { return };
    let Some(sshd) = Sshd::start() else { return };
    let machine = Machine::with_qemu("9.2.0");
    machine.study(&[]);
    let own = Path::new(VMLAB);
    let check = |options: Vec<OsString>| {
        let mut command: Command = machine.vmlab(["check", "small.toml"]);
        // The machine's own QEMU is there, ssh is not.
        said(command.env("PATH", "/usr/bin:/bin").args(options))
    };
    check(options_with(&sshd, "other_key", "known_hosts", own)).is_error(&["does not let us in"]);
    check(options_with(&sshd, "user_key", "wrong_hosts", own)).is_error(&["not the one"]);
    check(options_with(&sshd, "user_key", "no_hosts", own)).is_error(&["accept it once with"]);
    let text = machine.path("small.toml");
    check(options_with(&sshd, "user_key", "known_hosts", &text)).is_error(&["no program of Linux"]);
    // What a study names goes over: the image is looked at there.
    let plan = check(options_with(&sshd, "user_key", "known_hosts", own));
    plan.has_code(0);
    assert!(plan.stderr.contains("copying disk.raw"), "{plan:#?}");
}
