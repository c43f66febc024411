//! A vmlab that runs real VMs, watched from outside: by its journal and by
//! what `/proc` says of the processes that it owns.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};

use record::journal::{JournalEvent, TrialKey, TrialResult};
use runner::state::JournalState;
use runner::store::{self, Contents};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use suite::until;

use crate::lab::{CommandOutput, events, vmlab};

/// Two variants; a benchmark that can be met while it runs, for so many seconds.
pub(crate) fn two_variants(time_s: u32) -> String {
    format!(
        "[[variant]]\nname = \"one\"\nvm.vcpus = 1\n\n[[variant]]\nname = \"two\"\nvm.vcpus = 2\n\n\
         [[workload]]\nrun = \"sysbench-cpu\"\nparams = {{ time_s = {time_s} }}\n"
    )
}

/// A study whose trials are short, in a folder of its own.
pub(crate) struct Study {
    folder: tempfile::TempDir,
}

impl Study {
    /// `blocks` of `rest` (variants, loads, workloads), emulated so that every
    /// machine can run it, and counted however unsteady that machine is.
    pub(crate) fn new(blocks: u32, rest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // One invocation a boot, unless the test is about their number.
        let rest = match rest.contains("invocations") {
            true => rest.to_owned(),
            false => rest.replace("[[workload]]\n", "[[workload]]\ninvocations = 1\n"),
        };
        let text = format!(
            "vmlab = 1\ntitle = \"Test\"\nseed = 5\n\n[budget]\nblocks = {blocks}\n\
             boot_limit_s = 180\n\n[stability]\nrepeat = false\nunsteady_blocks_percent = 100\n\n[vm]\naccel = \"tcg\"\nmemory_mib = 256\n\n{rest}"
        );
        fs::write(folder.path().join("study.toml"), text).unwrap();
        Self { folder }
    }

    /// Replaces a text of the study's file.
    pub(crate) fn change(&self, from: &str, to: &str) {
        let path = self.folder.path().join("study.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from:?} is not in the study");
        fs::write(&path, text.replace(from, to)).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    pub(crate) fn start(&self) -> RunningVmlab {
        self.start_in(&self.dir())
    }

    pub(crate) fn start_in(&self, dir: &Path) -> RunningVmlab {
        let study = self.folder.path().join("study.toml");
        RunningVmlab::start(
            &["run".as_ref(), study.as_os_str(), "--out".as_ref(), dir.as_os_str()],
            dir,
        )
    }

    /// It tells of each benchmark that it begins.
    pub(crate) fn start_told(&self) -> RunningVmlab {
        let (study, dir) = (self.folder.path().join("study.toml"), self.dir());
        let words = ["run".as_ref(), "--verbose".as_ref(), study.as_os_str(), "--out".as_ref()];
        RunningVmlab::start(&[&words[..], &[dir.as_os_str()]].concat(), &dir)
    }

    /// Tells of each benchmark that it begins, too.
    pub(crate) fn resume(&self) -> RunningVmlab {
        let dir = self.dir();
        let args = ["run".as_ref(), "--verbose".as_ref(), "--resume".as_ref(), dir.as_os_str()];
        RunningVmlab::start(&args, &dir)
    }
}

/// Something that vmlab started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedProcess {
    pub(crate) pid: u32,
    pub(crate) command_line: String,
}

impl OwnedProcess {
    pub(crate) fn is_qemu(&self) -> bool {
        self.command_line.contains("qemu-system-")
    }

    /// Whether this is the QEMU of that VM of a trial: `trial` is the one under test,
    /// `peer` the one that plays the other role. Process numbers tell no order: they
    /// begin again from below.
    pub(crate) fn is_vm(&self, name: &str) -> bool {
        self.is_qemu() && self.command_line.contains(&format!("/{name}.agent"))
    }

    pub(crate) fn is_alive(&self) -> bool {
        let now = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        shown(&now) == self.command_line
    }

    /// For a QEMU: vmlab removes the sockets as soon as it is connected. One
    /// that finds nobody there ends by itself.
    pub(crate) fn is_connected(&self) -> bool {
        let words = self.command_line.split([' ', ',', '=']);
        let mut sockets = words.filter(|word| word.ends_with(".agent"));
        sockets.next().is_some_and(|path| !Path::new(path).exists())
    }

    /// Kills it; it may be ending by itself, as its owner has.
    pub(crate) fn kill(&self) {
        match kill_process(process(self.pid), Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => panic!("{self:?} can't be killed: {error}"),
        }
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    kill_process(process(pid), signal).unwrap();
}

fn process(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

fn shown(command_line: &[u8]) -> String {
    String::from_utf8_lossy(command_line).trim_end_matches('\0').replace('\0', " ")
}

/// The living processes that carry the mark of the vmlab `owner`.
pub(crate) fn owned_by(owner: u32) -> Vec<OwnedProcess> {
    let mark = format!("VMLAB_OWNER={owner}:");
    let carries = |environment: Vec<u8>| {
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        entry.unwrap().file_name().to_str()?.parse::<u32>().ok().filter(|pid| *pid != owner)
    });
    pids.filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(carries))
        .map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            OwnedProcess { pid, command_line: shown(&line) }
        })
        .filter(|owned| !owned.command_line.is_empty())
        .collect()
}

/// A vmlab under way; killed when dropped.
pub(crate) struct RunningVmlab {
    child: Child,
    pub(crate) dir: PathBuf,
    output: tempfile::TempDir,
}

impl RunningVmlab {
    pub(crate) fn start(args: &[&std::ffi::OsStr], dir: &Path) -> Self {
        Self::spawn(&mut vmlab(args), dir)
    }

    pub(crate) fn spawn(command: &mut std::process::Command, dir: &Path) -> Self {
        let output = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(output.path().join(name)).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        Self { child, dir: dir.to_owned(), output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard error so far.
    pub(crate) fn told(&self) -> String {
        let text = fs::read(self.output.path().join("stderr")).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn said(&self, status: ExitStatus) -> CommandOutput {
        let read = |name: &str| fs::read(self.output.path().join(name)).unwrap();
        CommandOutput::of(std::process::Output {
            status,
            stdout: read("stdout"),
            stderr: read("stderr"),
        })
    }

    pub(crate) fn wait(mut self) -> CommandOutput {
        let status = until("the end of vmlab", || self.child.try_wait().unwrap());
        let left = owned_by(self.pid());
        assert!(left.is_empty(), "left behind: {left:#?}");
        self.said(status)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end, whatever that is; what it left is for the caller to find.
    pub(crate) fn ended(mut self) -> CommandOutput {
        let status = until("the end of vmlab", || self.child.try_wait().unwrap());
        self.said(status)
    }

    /// Kills vmlab without a warning; what it started goes on.
    pub(crate) fn kill(mut self) -> u32 {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
        self.pid()
    }

    /// Interrupts vmlab, which must end in order.
    #[track_caller]
    pub(crate) fn interrupt(mut self, signal: Signal) -> CommandOutput {
        send(self.pid(), signal);
        let status = until("the end of vmlab", || self.child.try_wait().unwrap());
        let left = owned_by(self.pid());
        assert!(left.is_empty(), "left behind: {left:#?}");
        let said = self.said(status);
        assert_eq!(said.code, Some(2), "{said:#?}");
        said
    }

    /// Waits for `condition`; fails if vmlab ends before.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        until(what, || {
            let found = condition(self);
            if found.is_none()
                && let Some(status) = self.child.try_wait().unwrap()
            {
                panic!("{what}: vmlab ended before: {:#?}", self.said(status));
            }
            found
        })
    }

    /// The trial under way: begun in the journal and not ended.
    pub(crate) fn trial(&self) -> Option<TrialKey> {
        match events(&self.dir).pop()? {
            JournalEvent::TrialStarted { trial, .. } => Some(trial),
            _ => None,
        }
    }

    pub(crate) fn qemus(&self) -> Vec<OwnedProcess> {
        owned_by(self.pid()).into_iter().filter(OwnedProcess::is_qemu).collect()
    }

    /// Waits for the VM of a trial; vmlab holds its channels by then.
    pub(crate) fn until_boot(&mut self) -> OwnedProcess {
        self.until("a VM that boots", |running| {
            running.trial()?;
            running.qemus().pop().filter(OwnedProcess::is_connected)
        })
    }

    /// Waits until a benchmark runs in a VM, as one that tells of it says.
    pub(crate) fn until_benchmark(&mut self) -> OwnedProcess {
        self.until("a benchmark", |running| {
            let told = running.told();
            let last = told.lines().last()?;
            let qemu = running.qemus().pop()?;
            (running.trial().is_some() && last.contains(": run 1 of ")).then_some(qemu)
        })
    }

    pub(crate) fn until_trials_ended(&mut self, count: usize) {
        self.until("the end of a trial", |running| {
            (results(&events(&running.dir)).len() >= count).then_some(())
        });
    }
}

impl Drop for RunningVmlab {
    fn drop(&mut self) {
        // Only a failed test comes here with a child that lives.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
            for owned in owned_by(self.pid()) {
                owned.kill();
            }
        }
    }
}

/// The results that a journal holds.
pub(crate) fn results(events: &[JournalEvent]) -> Vec<TrialResult> {
    let result = |event: &JournalEvent| match event {
        JournalEvent::TrialEnded(result) => Some((**result).clone()),
        _ => None,
    };
    events.iter().filter_map(result).collect()
}

/// The study in `dir` is complete: the trials that count are all those of the
/// plan, each once, as if it had never been interrupted.
#[track_caller]
pub(crate) fn assert_complete(dir: &Path) -> Contents {
    let contents = store::read(dir).unwrap();
    let plan = &contents.plan;
    let mut expected = Vec::new();
    for number in 0..plan.total_blocks().unwrap() {
        let block = plan.block(number);
        expected.extend((0..block.trials.len()).map(|at| plan.trial_key(&block, 0, at)));
    }
    let state = JournalState::from_events(&contents.events);
    assert!(state.ended, "the study's end is not recorded");
    let trials = runner::results::trials(&contents.events, &state);
    let counted = trials.iter().filter(|trial| trial.counted);
    let counted: Vec<_> =
        counted.map(|trial| TrialKey { attempt: 0, ..trial.result.trial.clone() }).collect();
    assert_eq!(counted, expected, "the trials that count");
    contents
}
