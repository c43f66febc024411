//! perf record of a process or of pCPUs of this machine, from a moment to another.
//!
//! The two scripts serve guests as well: whoever can run a shell somewhere has perf begin
//! and end there by the same words. perf is started with its events off and answers when
//! they are on, so that nothing of what follows is missed.
//!
//! Source: perf-record(1), `--control` and `--delay`; perf-kvm(1).

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use topology::PcpuSet;

use crate::owner::Owner;

/// Starts perf: `$1` is a folder of its own, the rest is perf's command line. Ends when
/// perf samples, or with what perf said.
pub const BEGIN: &str = "folder=$1\n\
    shift\n\
    rm -rf \"$folder\"; mkdir -p \"$folder\" && mkfifo \"$folder/control\" \"$folder/ack\" || exit\n\
    exec 3<>\"$folder/control\" 4<>\"$folder/ack\"\n\
    setsid sh -c 'echo $$ >\"$0/pid\"; exec \"$@\"' \
    \"$folder\" \"$@\" -D -1 --control \"fifo:$folder/control,$folder/ack\" \
    >\"$folder/log\" 2>&1 </dev/null 3>&- 4>&- 9>&- &\n\
    pid=$!\n\
    echo enable >&3\n\
    head -n 1 <&4 >\"$folder/answer\" 2>/dev/null 9>&- &\n\
    reader=$!\n\
    until grep -q ack \"$folder/answer\"; do\n\
    if ! [ -d /proc/$pid ] || grep -q '^State:.Z' /proc/$pid/status; then\n\
    grep -v '^$' \"$folder/log\" | head -n 2 >&2; kill $reader; exit 1\nfi\n\
    sleep 0.05\n\
    done";

/// Ends the perf that [`BEGIN`] started in folder `$1`, and waits until it has written
/// all. One that does not hear is killed.
pub const END: &str = "pid=$(cat \"$1/pid\") || exit\n\
    exec 3<>\"$1/control\"\n\
    echo stop >&3\n\
    turns=0\n\
    while [ -d /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status; do\n\
    turns=$((turns + 1))\n\
    if [ $turns = 300 ]; then kill -KILL $pid; fi\n\
    sleep 0.1\n\
    done";

/// Prints what was sampled, then the samples, at most `$2` bytes of them; `$1` is the
/// file, the rest more options. Removes the file's folder.
pub const TELL: &str = "file=$1 most=$2\n\
    shift 2\n\
    perf evlist -i \"$file\" 2>/dev/null | head -n 1\n\
    perf script -i \"$file\" -F comm,ip,sym \"$@\" 2>/dev/null | head -c \"$most\"\n\
    rm -rf \"${file%/*}\"";

/// [`TELL`] for samples of a host and of the guest that KVM runs there: `$3` and `$4` are
/// the options that name the guest's symbols. perf walks no stack of a guest, and where it
/// prints stacks it prints no address for want of one: samples in the guest are printed by
/// themselves, each a stack `[guest]` and the function; what the guest's programs did has
/// no names on the host. The process has another number at each boot, so its name is not
/// taken.
///
/// Source: perf-script(1), the field `misc`: `G` of a guest, beside it `g` of its programs.
const TELL_WITH_GUEST: &str = "file=$1 most=$2\n\
    shift 2\n\
    perf evlist -i \"$file\" 2>/dev/null | head -n 1\n\
    {\n\
    perf script -i \"$file\" -G -F comm,misc,ip,sym \"$@\" 2>/dev/null | sed -n \
    -e 's/^.* \\{1,\\}G \\{1,\\}\\([0-9a-f]\\{1,\\}\\) \\(.*\\)$/[guest]\\n\\t\\1 \\2\\n/p' \
    -e 's/^.* \\{1,\\}K\\{0,1\\}Gg \\{1,\\}\\([0-9a-f]\\{1,\\}\\) .*$/[guest]\\n\\t\\1 [program]\\n/p'\n\
    perf script -i \"$file\" -F comm,ip,sym \"$@\" 2>/dev/null \
    | awk 'BEGIN { RS = \"\"; ORS = \"\\n\\n\" } /\\n/'\n\
    } | head -c \"$most\"\n\
    rm -rf \"${file%/*}\"";

/// What perf writes at most, in its own unit.
pub const MAX_SIZE: &str = "16M";

/// Error type for recordings: why there is none, as perf or the shell said it.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// There is no perf here.
    #[error("perf is not on the host (Debian's linux-perf)")]
    Missing,
    /// perf or what starts it failed.
    #[error("perf: {0}")]
    Failed(String),
    /// It was given up from outside; nothing of it runs any more.
    #[error("Cancelled")]
    Cancelled,
    /// A file for it could not be written.
    #[error("Cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The symbols of a guest's kernel, as its `/proc` has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestSymbols {
    /// `/proc/kallsyms`.
    pub kallsyms: Vec<u8>,
    /// `/proc/modules`.
    pub modules: Vec<u8>,
}

/// What perf looks at on the host.
#[derive(Debug, Clone, Copy)]
pub enum Sampled<'a> {
    /// A VM's process with all its threads; under KVM with the guest's kernel, whose
    /// functions have these names.
    Vm {
        /// The process.
        pid: u32,
        /// The symbols of a guest under KVM.
        guest: Option<&'a GuestSymbols>,
    },
    /// All that runs on these pCPUs, idle ones too.
    Pcpus(&'a PcpuSet),
}

/// perf on the host. One that is dropped before its end is killed.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
    /// Options that name the guest's symbols.
    symbols: Vec<String>,
    /// Whether perf may still run.
    runs: bool,
}

impl Recording {
    /// Begins to sample, `frequency_hz` times a second and pCPU. Files lie in `folder`,
    /// which the recording makes and removes. `is_cancelled` is looked at meanwhile.
    ///
    /// # Errors
    /// [`PerfError`]; nothing is left running then.
    pub fn begin(
        owner: &Owner,
        folder: &Path,
        sampled: Sampled<'_>,
        frequency_hz: u32,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, PerfError> {
        let data = folder.join(DATA);
        let mut words = vec!["perf".to_owned()];
        let mut options = Vec::new();
        let (scope, symbols) = match sampled {
            Sampled::Vm { pid, guest } => (vec!["-p".to_owned(), pid.to_string()], guest),
            Sampled::Pcpus(pcpus) => {
                (["-a", "-C", &pcpus.to_string()].map(str::to_owned).to_vec(), None)
            }
        };
        if let Some(symbols) = symbols {
            // What begins empties its own folder.
            let beside = folder.with_extension("symbols");
            std::fs::create_dir_all(&beside).map_err(|source| write_error(&beside, source))?;
            let files = [("guestkallsyms", &symbols.kallsyms), ("guestmodules", &symbols.modules)];
            for (name, text) in files {
                let file = beside.join(name);
                std::fs::write(&file, text).map_err(|source| write_error(&file, source))?;
                options.push(format!("--{name}={}", file.display()));
            }
            words.extend(["kvm", "--host", "--guest"].map(str::to_owned));
            words.extend(options.iter().cloned());
            words.extend(["-o".to_owned(), data.display().to_string(), "record".to_owned()]);
        } else {
            words.extend(["record".to_owned(), "-o".to_owned(), data.display().to_string()]);
        }
        words.extend(scope);
        words.extend(["-F", &frequency_hz.to_string(), "-g", "-q"].map(str::to_owned));
        words.extend(["--max-size".to_owned(), MAX_SIZE.to_owned()]);
        let recording = Self { folder: folder.to_owned(), symbols: options, runs: true };
        let folder = folder.display().to_string();
        shell(owner, BEGIN, &[&folder], &words, is_cancelled).map(|_| recording)
    }

    /// Ends it: what was sampled and, as `perf script` prints them, at most `most_bytes`
    /// of samples. `is_cancelled` is looked at meanwhile.
    ///
    /// # Errors
    /// [`PerfError`]; nothing is left running then.
    pub fn end(
        mut self,
        owner: &Owner,
        most_bytes: usize,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, PerfError> {
        let folder = self.folder.display().to_string();
        shell(owner, END, &[&folder], &[], is_cancelled)?;
        // Its number may soon be somebody else's.
        self.runs = false;
        let data = self.folder.join(DATA).display().to_string();
        let tell = if self.symbols.is_empty() { TELL } else { TELL_WITH_GUEST };
        shell(owner, tell, &[&data, &most_bytes.to_string()], &self.symbols, is_cancelled)
    }

    /// Kills perf, which leads a session of its own, if the script came as far as to
    /// start it.
    fn kill(&self) {
        let pid = std::fs::read_to_string(self.folder.join("pid")).unwrap_or_default();
        if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.runs {
            self.kill();
        }
        // Gone already where all went well.
        drop(std::fs::remove_dir_all(self.folder.with_extension("symbols")));
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// The file of samples in a recording's folder.
pub const DATA: &str = "perf.data";

/// The longest that a script takes.
const LIMIT_S: &str = "120";

fn write_error(path: &Path, source: std::io::Error) -> PerfError {
    PerfError::Write { path: path.to_owned(), source }
}

/// How often a wait looks whether it was given up.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// Runs a script with its arguments; what it printed.
fn shell(
    owner: &Owner,
    script: &str,
    arguments: &[&str],
    more: &[String],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<u8>, PerfError> {
    let failed = |error: io::Error| PerfError::Failed(error.to_string());
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", LIMIT_S, "sh", "-c", script, "sh"]).args(arguments).args(more);
    command.stdin(Stdio::null()).env("LC_ALL", "C");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // timeout makes a group of its own too, but not at once: it may have to be killed before.
    command.process_group(0);
    owner.apply(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let printed = [stdout, stderr].map(|pipe| wait_read(&pipe, &mut child, is_cancelled));
    let [stdout, stderr] = printed;
    let (stdout, stderr) = (stdout?, stderr?);
    // All of its ends of the pipes are closed.
    let status = child.wait().map_err(failed)?;
    outcome(status, stdout, &stderr)
}

/// All that comes out of `pipe`, when it has come to its end.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What can't be read any more has ended.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        // Nobody waits for what was given up.
        let _ = send.send(bytes);
    });
    receive
}

/// Waits until `pipe` has come to its end; `child` and what it started are killed if the
/// wait is given up.
fn wait_read(
    pipe: &Receiver<Vec<u8>>,
    child: &mut Child,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<u8>, PerfError> {
    loop {
        match pipe.recv_timeout(CANCEL_CHECK) {
            Ok(bytes) => return Ok(bytes),
            Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            Err(RecvTimeoutError::Timeout) if is_cancelled() => {
                // Its leader is not reaped yet, so the group is still its own.
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
                let _ = child.wait();
                return Err(PerfError::Cancelled);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn outcome(status: ExitStatus, stdout: Vec<u8>, stderr: &[u8]) -> Result<Vec<u8>, PerfError> {
    if status.success() {
        return Ok(stdout);
    }
    let said = String::from_utf8_lossy(stderr).trim().replace('\n', " ");
    if said.contains("not found") || said.contains("failed to execute perf") {
        return Err(PerfError::Missing);
    }
    Err(PerfError::Failed(if said.is_empty() { status.to_string() } else { said }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use suite::{Tier, needs, skip};

    /// A process that computes until it is dropped.
    struct BusyProcess(std::process::Child);

    impl Drop for BusyProcess {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    /// A recording of a busy process, or of the `pcpus` that it runs on, in a folder `host`
    /// of a new one; `None`: there is no perf, and that is said.
    fn recorded(
        owner: &Owner,
        pcpus: Option<&PcpuSet>,
    ) -> Option<(tempfile::TempDir, BusyProcess, Recording)> {
        let folder = tempfile::tempdir().unwrap();
        let list = pcpus.unwrap_or(&own_pcpus()).to_string();
        let words = ["--cpu-list", &list, "sh", "-c", "while :; do :; done"];
        let busy = BusyProcess(Command::new("taskset").args(words).spawn().unwrap());
        let vm = Sampled::Vm { pid: busy.0.id(), guest: None };
        let sampled = pcpus.map_or(vm, Sampled::Pcpus);
        let place = folder.path().join("host");
        match Recording::begin(owner, &place, sampled, 99, &|| false) {
            Ok(recording) => Some((folder, busy, recording)),
            Err(error) => {
                skip(error);
                None
            }
        }
    }

    #[test]
    fn a_process_is_sampled_from_one_moment_to_another() {
        let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
        sampled_from_one_moment_to_another(None);
    }

    #[test]
    fn all_that_runs_on_a_pcpu_is_sampled() {
        let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
        let first = own_pcpus().iter().take(1).collect();
        sampled_from_one_moment_to_another(Some(&first));
    }

    fn own_pcpus() -> PcpuSet {
        crate::affinity::thread_affinity(std::process::id()).unwrap()
    }

    fn sampled_from_one_moment_to_another(pcpus: Option<&PcpuSet>) {
        let owner = Owner::current("perf").unwrap();
        let Some((_folder, busy, recording)) = recorded(&owner, pcpus) else { return };
        let place = recording.folder.clone();
        let used = || crate::proc::stat(busy.0.id()).map_or(0, |stat| stat.used_ticks);
        let before = used();
        suite::until("it has computed for a while", || (used() > before + 20).then_some(()));
        let said = recording.end(&owner, 1 << 20, &|| false).unwrap();
        let said = String::from_utf8_lossy(&said);
        let (event, samples) = said.split_once('\n').unwrap();
        assert!(["cycles", "cpu-clock"].iter().any(|name| event.starts_with(name)), "{event}");
        assert!(samples.contains("\nsh") || samples.starts_with("sh"), "{samples}");
        assert!(!place.exists(), "its folder is left");
    }

    #[test]
    fn a_recording_that_is_dropped_leaves_no_perf() {
        let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
        let Some((_folder, _busy, recording)) = recorded(&Owner::current("perf").unwrap(), None)
        else {
            return;
        };
        let place = recording.folder.clone();
        let pid = std::fs::read_to_string(place.join("pid")).unwrap().trim().parse().unwrap();
        assert!(crate::proc::stat(pid).is_some_and(|stat| !stat.is_dead()));
        drop(recording);
        suite::until("its end", || {
            crate::proc::stat(pid).is_none_or(|stat| stat.is_dead()).then_some(())
        });
        assert!(!place.exists(), "its folder is left");
    }

    #[test]
    fn what_perf_says_is_the_reason() {
        let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
        let folder = tempfile::tempdir().unwrap();
        let owner = Owner::current("perf").unwrap();
        // No process has this number.
        let nobody = Sampled::Vm { pid: 4_194_305, guest: None };
        let begun = Recording::begin(&owner, &folder.path().join("host"), nobody, 99, &|| false);
        let error = begun.unwrap_err().to_string();
        assert!(error.starts_with("perf"), "{error}");
    }

    #[test]
    fn samples_in_a_guest_are_told_with_their_functions() {
        // What perf 6.1 printed of a QEMU under KVM: stacks, and without (-G).
        const PERF: &str = "#!/bin/sh\n\
            case \" $* \" in\n\
            *' evlist '*) echo cpu-clock:pppH ;;\n\
            *' -G '*) printf '%16s %s\\n' \
            :227 'G      ffffffff8a3c default_idle' :227 'KGg        55d0c1 [unknown]' \
            'CPU 0/KVM' 'K      ffffffff81c0 vcpu_run' ;;\n\
            *) printf '%s\\n' ':227 ' '' '' ':227 ' '' '' \
            'CPU 0/KVM ' '\tffffffff81c0 vcpu_run' '\tffffffff8110 kvm_vcpu_ioctl' '' ;;\n\
            esac\n";
        let folder = tempfile::tempdir().unwrap();
        let (bin, data) = (folder.path().join("bin"), folder.path().join("taken").join(DATA));
        std::fs::create_dir(&bin).unwrap();
        std::fs::create_dir(data.parent().unwrap()).unwrap();
        let perf = bin.join("perf");
        std::fs::write(&perf, PERF).unwrap();
        std::fs::set_permissions(&perf, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let told = Command::new("sh")
            .args(["-c", TELL_WITH_GUEST, "sh", &data.display().to_string(), "100000"])
            .args(["--guestkallsyms=a", "--guestmodules=b"])
            .env("PATH", path)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let expected = "cpu-clock:pppH\n\
            [guest]\n\tffffffff8a3c default_idle\n\n\
            [guest]\n\t55d0c1 [program]\n\n\
            CPU 0/KVM \n\tffffffff81c0 vcpu_run\n\tffffffff8110 kvm_vcpu_ioctl\n\n";
        assert_eq!(told, expected);
    }

    #[test]
    fn scripts_that_are_given_up_end_with_all_they_started() {
        let folder = tempfile::tempdir().unwrap();
        let owner = Owner::current("perf").unwrap();
        let started = folder.path().join("started");
        let script = "sleep 1000 & echo $$ $! >\"$1.new\"; mv \"$1.new\" \"$1\"; wait";
        let place = started.display().to_string();
        let ended = shell(&owner, script, &[&place], &[], &|| started.exists());
        assert!(matches!(ended, Err(PerfError::Cancelled)), "{ended:?}");
        for pid in std::fs::read_to_string(&started).unwrap().split_whitespace() {
            let pid: u32 = pid.parse().unwrap();
            suite::until("its end", || {
                crate::proc::stat(pid).is_none_or(|stat| stat.is_dead()).then_some(())
            });
        }
    }
}
