//! What the tests share: the binary, made-up machines and studies.

use rustix::process::Pid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use record::journal::{self, JournalEvent, JournalTail, RunResult, TrialKey, TrialResult};
use record::{CounterSet, Outcome, Sample};
use runner::plan::StudyPlan;

/// The program under test.
pub(crate) const VMLAB: &str = env!("CARGO_BIN_EXE_vmlab");

/// How a vmlab ended and what it said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    pub(crate) fn of(output: Output) -> Self {
        let said = Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        assert!(!said.stderr.contains("panicked at "), "{said:#?}");
        said
    }

    /// One clear message: exit code 2, one line that holds all of `parts`.
    #[track_caller]
    pub(crate) fn is_error(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:#?}");
        let mut lines = self.stderr.lines();
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with("vmlab: "), "{self:#?}");
        assert_eq!(lines.next(), None, "more than one line: {self:#?}");
        for part in parts {
            assert!(line.contains(part), "{part:?} is not said: {self:#?}");
        }
    }

    #[track_caller]
    pub(crate) fn has_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

pub(crate) fn vmlab<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(VMLAB);
    command.args(args).stdin(Stdio::null());
    command
}

pub(crate) fn said(command: &mut Command) -> CommandOutput {
    CommandOutput::of(command.output().expect("vmlab can be started"))
}

/// A replica's QEMU is no child of vmlab: who it becomes a child of may take its time until
/// the name of an ended process is free.
#[track_caller]
pub(crate) fn has_ended(qemu: Pid) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", qemu.as_raw_nonzero()));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
    assert!(matches!(state, None | Some("Z" | "X")), "QEMU still runs: {stat}");
}

/// A folder with programs that play a QEMU of `version` and its qemu-img: what
/// a plan needs to know of a machine, where nothing is booted.
pub(crate) struct Machine {
    pub(crate) folder: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn with_qemu(version: &str) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(machine.path("bin")).unwrap();
        let qemu = format!(
            "#!/bin/sh\ncase \"$1\" in\n--version) echo 'QEMU emulator version {version}' ;;\n\
             -accel) printf 'Accelerators supported in QEMU binary:\\ntcg\\n' ;;\n\
             *) echo 'not a real QEMU' >&2; exit 1 ;;\nesac\n"
        );
        for arch in ["x86_64", "aarch64"] {
            machine.program(&format!("qemu-system-{arch}"), &qemu);
        }
        let image = "#!/bin/sh\necho '{\"format\": \"raw\", \"virtual-size\": 1048576}'\n";
        machine.program("qemu-img", image);
        fs::write(machine.path("disk.raw"), [0; 512]).unwrap();
        machine
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn program(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A vmlab that sees this machine's QEMU and none else, and whose files
    /// are its own.
    pub(crate) fn vmlab<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = vmlab(args);
        command
            .env("PATH", self.path("bin"))
            .env("HOME", self.path("home"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_STATE_HOME", self.path("state"))
            .current_dir(self.folder.path());
        command
    }

    pub(crate) fn say<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> CommandOutput {
        said(&mut self.vmlab(args))
    }

    /// The same, told `input`.
    pub(crate) fn say_told<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        input: &str,
    ) -> CommandOutput {
        let path = self.path("input");
        fs::write(&path, input).unwrap();
        said(self.vmlab(args).stdin(fs::File::open(path).unwrap()))
    }

    /// Writes a sound study, `changed` by replacing one text by another.
    pub(crate) fn study(&self, changed: &[(&str, &str)]) -> PathBuf {
        let mut text = SMALL_STUDY.to_owned();
        for (from, to) in changed {
            assert!(text.contains(from), "{from:?} is not in the study");
            text = text.replacen(from, to, 1);
        }
        let path = self.path("small.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// A results folder whose study is complete, with made-up numbers.
    pub(crate) fn results(&self) -> PathBuf {
        self.results_of(&[], &made_up_value)
    }

    /// The same of a study that was `changed`, with these numbers.
    pub(crate) fn results_of(
        &self,
        changed: &[(&str, &str)],
        value: &dyn Fn(&TrialKey) -> f64,
    ) -> PathBuf {
        self.study(changed);
        let dir = self.path("results");
        fs::create_dir_all(dir.join("blobs")).unwrap();
        let plan = self.say(["check", "small.toml", "--json"]);
        fs::write(dir.join("plan.json"), &plan.has_code(0).stdout).unwrap();
        let host = self.say(["host", "--json"]);
        fs::write(dir.join("host.json"), &host.has_code(0).stdout).unwrap();
        let plan = StudyPlan::from_json(plan.stdout.as_bytes()).unwrap();
        write_journal(&dir, &journal(&plan, value));
        dir
    }

    /// The study of [`Self::results`] once more, begun at `created_unix_s`, with
    /// another QEMU and times that are `factor` times as long.
    pub(crate) fn results_again(&self, name: &str, created_unix_s: f64, qemu: &str, factor: f64) {
        let longer = |trial: &TrialKey| factor * made_up_value(trial);
        self.results_again_of(name, created_unix_s, qemu, &longer);
    }

    /// The same with these numbers.
    pub(crate) fn results_again_of(
        &self,
        name: &str,
        created_unix_s: f64,
        qemu: &str,
        value: &dyn Fn(&TrialKey) -> f64,
    ) {
        let first = self.path("results");
        let dir = self.path(name);
        fs::create_dir_all(&dir).unwrap();
        let text = fs::read(first.join("plan.json")).unwrap();
        let mut plan: serde_json::Value = serde_json::from_slice(&text).unwrap();
        plan["created_unix_s"] = created_unix_s.into();
        plan["qemu"]["version"] = qemu.into();
        let text = plan.to_string();
        fs::write(dir.join("plan.json"), &text).unwrap();
        let plan = StudyPlan::from_json(text.as_bytes()).unwrap();
        fs::copy(first.join("host.json"), dir.join("host.json")).unwrap();
        write_journal(&dir, &journal(&plan, value));
    }
}

/// Two VMs, two blocks, an image of the user's own.
const SMALL_STUDY: &str = r#"vmlab = 1
title = "Small"
baseline = "one"
seed = 1

[budget]
blocks = 2

[vm]
accel = "tcg"
memory_mib = 256
image = "disk.raw"

[[variant]]
name = "one"
vm.vcpus = 1

[[variant]]
name = "two"
vm.vcpus = 2

[[workload]]
run = "hackbench"
params = { groups = 1 }
"#;

fn made_up_value(trial: &TrialKey) -> f64 {
    1.0 + f64::from(trial.block) / 10.0
}

fn journal(plan: &StudyPlan, value: &dyn Fn(&TrialKey) -> f64) -> String {
    journal_of(&made_up(plan, value))
}

/// Writes a journal and where it ends, as a study does.
pub(crate) fn write_journal(dir: &Path, text: &str) {
    fs::write(dir.join("journal.jsonl"), text).unwrap();
    acknowledge(dir, text);
}

/// Says that a journal reaches to the end of `text`.
pub(crate) fn acknowledge(dir: &Path, text: &str) {
    let end = journal::read(text.as_bytes(), None).end;
    fs::write(dir.join("journal.end"), end.to_string()).unwrap();
}

/// The text of a journal that tells `events`.
pub(crate) fn journal_of(events: &[JournalEvent]) -> String {
    let mut end = JournalTail::default();
    let mut text = String::new();
    for event in events {
        let (line, next) = end.line(event).expect("events can be said");
        text.push_str(&line);
        end = next;
    }
    text
}

fn made_up(plan: &StudyPlan, value: &dyn Fn(&TrialKey) -> f64) -> Vec<JournalEvent> {
    let unix_s = 1_800_000_000.0;
    let mut events = vec![JournalEvent::SessionStarted {
        vmlab_version: plan.vmlab_version.clone(),
        plan_hash: plan.hash(),
        environment: plan.environment(),
        unix_s,
    }];
    let blocks = plan.total_blocks().unwrap();
    for number in 0..blocks {
        let block = plan.block(number);
        let load = plan.loads[block.load].name.clone();
        events.push(JournalEvent::BlockStarted { block: number, attempt: 0, load, unix_s });
        for position in 0..block.trials.len() {
            let trial = plan.trial_key(&block, 0, position);
            events.push(JournalEvent::TrialStarted { trial: trial.clone(), unix_s });
            let value = value(&trial);
            let run = RunResult {
                run: 0,
                outcome: Outcome::Completed,
                command: vec!["hackbench".to_owned()],
                wall_s: 1.0,
                started_unix_s: unix_s,
                tool_version: None,
                samples: vec![Sample { metric: "time".to_owned(), value }],
                histograms: Vec::new(),
                counters: CounterSet::default(),
                blobs: Default::default(),
            };
            events.push(JournalEvent::TrialEnded(Box::new(TrialResult {
                boot_s: Some(1.0),
                wall_s: 2.0,
                runs: vec![run],
                ..TrialResult::new(trial, Outcome::Completed, unix_s)
            })));
        }
        events.push(JournalEvent::BlockEnded {
            block: number,
            attempt: 0,
            unsteady: Vec::new(),
            not_restored: Vec::new(),
            unix_s,
        });
    }
    events
        .push(JournalEvent::StudyEnded { reason: format!("all {blocks} blocks are done"), unix_s });
    events
}

/// The journal's events so far, as far as they can be trusted.
pub(crate) fn events(dir: &Path) -> Vec<JournalEvent> {
    let text = fs::read(dir.join("journal.jsonl")).unwrap_or_default();
    journal::read(&text, None).events
}
