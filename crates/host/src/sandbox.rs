//! A place on this machine itself in which a workload finds what it finds in a
//! VM: so many CPUs, an empty `/tmp`, an empty `/scratch`, a network of its
//! own, and nobody of an earlier trial.
//!
//! It is made of namespaces, whose first process is a holder that reads from a
//! pipe which ends with vmlab however vmlab ends; with that process the kernel
//! ends all others in there, and the mounts and the loop device go with the
//! last one. The host's own files are seen read-only; `/tmp`, `/var/tmp`,
//! `/var/log`, `/run`, `/root` and `/dev/shm` are empty and in memory. What
//! is *not* apart is what the comparison is about: kernel, scheduler, memory
//! and page cache are the host's.
//!
//! Needs root (`CAP_SYS_ADMIN`), also for the loop device.
//!
//! Source: `namespaces(7)`, `pid_namespaces(7)`, `unshare(1)`, `nsenter(1)`,
//! `taskset(1)`, `mount(8)`, `losetup(8)`.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use topology::PcpuSet;

use crate::affinity;
use crate::holder::{self, MADE};
use crate::network::LabNetwork;
use crate::owner::{Owner, wait_exit};
use crate::program::find;
use crate::scratch::Scratch;

/// Folder inside for programs of vmlab's own; first in `PATH`, so that nothing
/// of the host's has to be hidden for them.
pub const PROGRAMS_FOLDER: &str = "/vmlab/bin";

/// What every command finds in its environment.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("PATH", "/vmlab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LC_ALL", "C"),
];

/// How long the processes inside may take to be gone.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Longest time between two looks at whether all was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// Programs that make a sandbox and Debian's packages with them.
const PROGRAMS: [(&str, &str); 6] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("taskset", "util-linux"),
    ("setsid", "util-linux"),
    ("chroot", "coreutils"),
    ("ip", "iproute2"),
];

/// What the holder does: `$1` is an empty folder, `$2` the address on the
/// bridge, `$3` the file of the scratch disk, `$4` whether it goes past the page
/// cache.
///
/// New mount points would have to be made on the host: so the root is a folder
/// in memory, with all that stands in the host's. A mount that can't be made
/// read-only is not there rather than writable.
///
/// The first process ends and reaps all others before it ends itself, so that
/// their time counts as vmlab's: the kernel forgets the time of those that it
/// ends. A shell reaps whatever ends while it waits for a child, the oldest
/// first, so it needs a child to wait for.
const SCRIPT: &str = r#"new=$1
mount -t tmpfs -o mode=0755 tmpfs "$new"
for entry in /*; do
    case $entry in /proc | /run | /tmp | /scratch | /vmlab) continue ;; esac
    if [ -L "$entry" ]; then
        ln -s "$(readlink "$entry")" "$new$entry"
    elif [ -d "$entry" ]; then
        mkdir "$new$entry"
        mount --rbind "$entry" "$new$entry"
    fi
done
cut -d ' ' -f 5 /proc/self/mountinfo | while read -r point; do
    point=$(printf %b "$point")
    case $point in "$new"/*) mount -o remount,bind,ro none "$point" 2>/dev/null || umount -l "$point" ;; esac
done
fresh() {
    mkdir -p "$new$1"
    mount -t tmpfs -o "mode=$2" tmpfs "$new$1"
}
fresh /tmp 1777
fresh /run 0755
for entry in /var/tmp:1777 /var/log:0755 /dev/shm:1777 /root:0700; do
    [ ! -d "${entry%:*}" ] || fresh "${entry%:*}" "${entry#*:}"
done
mkdir -p "$new/vmlab/bin" "$new/scratch" "$new/proc"
if [ -n "$3" ]; then
    mount -t ext4 -o loop,noinit_itable "$3" "$new/scratch"
    [ "$4" != on ] || losetup --direct-io=on "$(findmnt -n -o SOURCE "$new/scratch")"
    chmod 1777 "$new/scratch"
fi
mount -t proc proc "$new/proc"
mount --bind "$new/proc/sys" "$new/proc/sys"
mount -o remount,bind,ro none "$new/proc/sys"
if [ -n "$2" ]; then
    ip address add "$2/24" dev switch0
else
    ip link set lo up
fi
exec 3<&0
exec chroot "$new" sh -c 'cd /
echo made
cat <&3 >/dev/null &
wait $!
kill -s KILL -- -1
set -- /proc/[0-9]*
while [ $# -gt 1 ]; do
    (:) &
    wait $!
    set -- /proc/[0-9]*
done'
"#;

/// What a sandbox is made for.
#[derive(Debug)]
pub struct SandboxRequest<'a> {
    /// The pCPUs on which all in it runs; not empty.
    pub pcpus: &'a PcpuSet,
    /// The network in which it lies and its address on that one's bridge; one
    /// of its own with nothing but a loopback if none.
    pub network: Option<(&'a LabNetwork, Ipv4Addr)>,
    /// The file that is mounted at `/scratch` through a loop device, and
    /// whether that goes past the host's page cache.
    pub scratch: Option<(&'a Scratch, bool)>,
}

/// Error type for [`Sandbox::new`] and [`check`].
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The user may not.
    #[error("A workload on the host itself needs root (for its sandbox): run vmlab as root")]
    NotRoot,
    /// A program is missing.
    #[error("{program} is not installed: run `apt-get install {package}`")]
    Missing {
        /// The program.
        program: &'static str,
        /// What holds it.
        package: &'static str,
    },
    /// The kernel refused.
    #[error("Cannot make the sandbox on the host: {detail}")]
    Refused {
        /// What was said.
        detail: String,
    },
    /// It runs elsewhere.
    #[error("The sandbox on the host may run on pCPUs {found}, not on {wanted}")]
    Elsewhere {
        /// The pCPUs that were asked for.
        wanted: PcpuSet,
        /// Those that the kernel gave.
        found: PcpuSet,
    },
    /// The holder could not be started.
    #[error("Cannot start {program}")]
    Start {
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Whether a sandbox can be made here, as far as that is plain to see.
///
/// # Errors
/// [`SandboxError`] says what to do.
pub fn check() -> Result<(), SandboxError> {
    if !rustix::process::geteuid().is_root() {
        return Err(SandboxError::NotRoot);
    }
    match PROGRAMS.iter().find(|(program, _)| find(program).is_none()) {
        Some((program, package)) => Err(SandboxError::Missing { program, package }),
        None => Ok(()),
    }
}

/// Whether commands in a sandbox find `program`: a name, or a path.
#[must_use]
pub fn has_program(program: &str) -> bool {
    let folders = ENVIRONMENT[0].1.split(':').filter(|folder| *folder != PROGRAMS_FOLDER);
    // An absolute path takes the folder's place.
    folders.map(Path::new).any(|folder| folder.join(program).is_file())
}

/// A command to run in a sandbox, as root, in `/tmp`, in a session of its own.
#[derive(Debug)]
pub struct SandboxCommand<'a> {
    /// The program and its arguments.
    pub argv: &'a [String],
    /// Environment beside PATH, HOME and `LC_ALL=C`.
    pub env: &'a [(String, String)],
    /// What it reads from stdin; nothing if `None`.
    pub stdin: Option<&'a [u8]>,
    /// When it is killed.
    pub limit: Duration,
    /// How many bytes of stdout, and of stderr, are kept.
    pub max_output_bytes: usize,
}

/// What a command in a sandbox brought.
#[derive(Debug)]
pub struct SandboxOutput {
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
    /// Status, or signal.
    pub status: Result<i32, i32>,
    /// From its start to its end.
    pub wall: Duration,
}

/// Error type for [`Sandbox::exec`].
#[derive(Debug, thiserror::Error)]
pub enum SandboxExecError {
    /// It ran too long; the sandbox was ended with it.
    #[error("It ran longer than its limit")]
    TimeLimit {
        /// What it had printed until then.
        output: SandboxOutput,
    },
    /// It printed more than is kept.
    #[error("It printed more than is kept")]
    OutputTooLarge,
    /// There is no such program.
    #[error("There is no such program")]
    ProgramMissing,
    /// All was cancelled; the sandbox was ended.
    #[error("Cancelled")]
    Cancelled,
    /// The sandbox has ended, or the command could not be started.
    #[error("The sandbox on the host does not answer: {detail}")]
    Gone {
        /// Why.
        detail: String,
    },
}

/// A sandbox; all in it ends on drop.
#[derive(Debug)]
pub struct Sandbox {
    holder: Child,
    /// The words before a command's own.
    enter: Vec<String>,
    owner: Owner,
    pcpus: PcpuSet,
}

impl Sandbox {
    /// Makes a sandbox; `folder` is a folder of vmlab's own, and its processes
    /// carry `owner`'s mark.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub fn new(
        wanted: &SandboxRequest<'_>,
        folder: &Path,
        owner: &Owner,
    ) -> Result<Self, SandboxError> {
        check()?;
        let start = |source| SandboxError::Start { program: "unshare", source };
        let root = folder.join("host-root");
        // Nothing is mounted on it outside of the sandbox.
        std::fs::create_dir_all(&root).map_err(start)?;
        let program =
            |name: &str| find(name).unwrap_or_else(|| PathBuf::from(name)).display().to_string();
        let list = wanted.pcpus.to_string();
        let taskset = [program("taskset"), "--cpu-list".to_owned(), list];
        let mut words = taskset.to_vec();
        words.extend(wanted.network.iter().flat_map(|(network, _)| network.enter(0)));
        words.push(program("unshare"));
        let apart = ["--mount", "--propagation=private", "--ipc", "--pid", "--kill-child=KILL"];
        words.extend(apart.map(str::to_owned));
        if wanted.network.is_none() {
            words.push("--net".to_owned());
        }
        let address = wanted.network.map_or_else(String::new, |(_, address)| address.to_string());
        let (scratch, direct) = wanted.scratch.map_or_else(Default::default, |(file, direct)| {
            (file.path().display().to_string(), if direct { "on" } else { "off" })
        });
        words.extend(["sh", "-ec", SCRIPT, "sh"].map(str::to_owned));
        words.extend([root.display().to_string(), address, scratch, direct.to_owned()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().envs(ENVIRONMENT).current_dir("/");
        let holder = holder::spawn(&mut command, owner).map_err(start)?;
        let process = holder.id();
        let mut enter = taskset.to_vec();
        enter.push(program("nsenter"));
        for (kind, file) in
            [("mount", "mnt"), ("net", "net"), ("ipc", "ipc"), ("pid", "pid_for_children")]
        {
            enter.push(format!("--{kind}=/proc/{process}/ns/{file}"));
        }
        let inside = format!("/proc/{process}/root{}", root.display());
        enter.extend([format!("--root={inside}"), format!("--wd={inside}/tmp")]);
        // A session of its own, as in guests.
        enter.push("setsid".to_owned());
        // From here on the holder is ended on drop.
        let mut sandbox = Self { holder, enter, owner: owner.clone(), pcpus: wanted.pcpus.clone() };
        if holder::first_line(&mut sandbox.holder).map_err(start)? != MADE {
            let detail = holder::complaint(&mut sandbox.holder).map_err(start)?;
            return Err(SandboxError::Refused { detail });
        }
        let found = affinity::thread_affinity(process).map_err(|error| {
            let detail = error.to_string();
            SandboxError::Refused { detail }
        })?;
        if found != *wanted.pcpus {
            return Err(SandboxError::Elsewhere { wanted: wanted.pcpus.clone(), found });
        }
        Ok(sandbox)
    }

    /// The pCPUs on which all in it runs.
    #[must_use]
    pub fn pcpus(&self) -> &PcpuSet {
        &self.pcpus
    }

    /// Whether it has not ended by itself; how it did if it has.
    ///
    /// # Errors
    /// [`SandboxExecError::Gone`].
    pub fn check_alive(&mut self) -> Result<(), SandboxExecError> {
        let detail = match self.holder.try_wait() {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => format!("its first process has ended ({status})"),
            Err(error) => error.to_string(),
        };
        Err(SandboxExecError::Gone { detail })
    }

    /// Runs a command to its end; `is_cancelled` is looked at meanwhile.
    ///
    /// # Errors
    /// [`SandboxExecError`].
    pub fn exec(
        &mut self,
        command: &SandboxCommand<'_>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<SandboxOutput, SandboxExecError> {
        self.check_alive()?;
        let gone = |error: io::Error| SandboxExecError::Gone { detail: error.to_string() };
        let started = Instant::now();
        let mut process = Command::new(&self.enter[0]);
        process
            .args(&self.enter[1..])
            .args(command.argv)
            .env_clear()
            .envs(ENVIRONMENT)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .stdin(if command.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.owner.apply(&mut process);
        let mut child = process.spawn().map_err(gone)?;
        let most = command.max_output_bytes;
        // Each reader holds an end of this as long as it reads.
        let (reading, read) = mpsc::channel();
        let stdout = child.stdout.take().map(|pipe| keep(pipe, most, reading.clone()));
        let stderr = child.stderr.take().map(|pipe| keep(pipe, most, reading));
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), command.stdin) {
            let input = input.to_vec();
            // Who does not read all of it says so by its own status.
            std::thread::spawn(move || drop(pipe.write_all(&input)));
        }
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let pidfd = pidfd.map_err(|error| gone(error.into()))?;
        let until = started + command.limit;
        let has_ended = |slice: Duration| wait_exit(&pidfd, Instant::now() + slice);
        let is_read = |slice| read.recv_timeout(slice) == Err(RecvTimeoutError::Disconnected);
        let waited = wait(until, is_cancelled, has_ended)
            // Children of its own may still write.
            .and_then(|()| wait(until, is_cancelled, is_read));
        if waited.is_err() {
            self.end();
        }
        // With the sandbox, or by itself.
        let status = child.wait().map_err(gone)?;
        let wall = started.elapsed();
        let kept = |thread: Option<JoinHandle<StreamEnds>>| {
            thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        let (stdout, stderr) = (kept(stdout), kept(stderr));
        let too_large = stdout.too_large || stderr.too_large;
        let output = SandboxOutput {
            stdout: stdout.bytes,
            stderr: stderr.bytes,
            status: code(status),
            wall,
        };
        match waited {
            Err(WaitStop::Cancelled) => Err(SandboxExecError::Cancelled),
            Err(WaitStop::TimeLimit) => Err(SandboxExecError::TimeLimit { output }),
            Ok(()) if too_large => Err(SandboxExecError::OutputTooLarge),
            Ok(()) => finish(output),
        }
    }

    /// Ends all that runs in it; true if its first process was the last, so that
    /// everybody's time counts as vmlab's.
    fn end(&mut self) -> bool {
        // The kernel ends everybody with the first process, which reads from
        // this pipe, and lets the holder's wait return after the last one.
        drop(self.holder.stdin.take());
        let gone = raw_pid(&self.holder).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if gone.is_some_and(|holder| wait_exit(&holder, Instant::now() + END_LIMIT)) {
            return self.holder.wait().is_ok_and(|status| status.success());
        }
        // It may be gone already; either way it is reaped.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        false
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.end();
    }
}

fn raw_pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id().try_into().ok()?)
}

/// Why a wait was given up.
enum WaitStop {
    TimeLimit,
    Cancelled,
}

/// Waits until `look`, which itself waits for the time that it gets, says that
/// it is over.
fn wait(
    until: Instant,
    is_cancelled: &dyn Fn() -> bool,
    look: impl Fn(Duration) -> bool,
) -> Result<(), WaitStop> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if look(left.min(CANCEL_CHECK)) {
            return Ok(());
        }
        if is_cancelled() {
            return Err(WaitStop::Cancelled);
        }
        if left.is_zero() {
            return Err(WaitStop::TimeLimit);
        }
    }
}

/// What was read from a pipe.
#[derive(Debug, Default)]
struct StreamEnds {
    bytes: Vec<u8>,
    too_large: bool,
}

/// Reads to the end, so that nobody waits for a reader, and keeps `most` bytes.
fn keep(
    mut pipe: impl Read + Send + 'static,
    most: usize,
    reading: Sender<()>,
) -> JoinHandle<StreamEnds> {
    std::thread::spawn(move || {
        let mut kept = StreamEnds::default();
        // What can't be read any more has ended.
        let _ = (&mut pipe).take(most as u64).read_to_end(&mut kept.bytes);
        kept.too_large = io::copy(&mut pipe, &mut io::sink()).is_ok_and(|more| more > 0);
        drop(reading);
        kept
    })
}

fn code(status: ExitStatus) -> Result<i32, i32> {
    status.code().ok_or_else(|| status.signal().unwrap_or_default())
}

/// A program that is not there is the launcher's failure, not the command's.
fn finish(output: SandboxOutput) -> Result<SandboxOutput, SandboxExecError> {
    if output.status == Ok(127) && output.stderr.starts_with(b"setsid: failed to execute") {
        return Err(SandboxExecError::ProgramMissing);
    }
    Ok(output)
}

#[cfg(test)]
mod tests;
