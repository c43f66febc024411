//! Starting a host: from a saved state where there is one, else through its boot.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use guest::image::{GuestImage, Recipe};
use guest::qemu::Qemu;
use guest::{Cancel, Cancellation, Monitor, MonitorError, read_end};
use host::owner::{OWNER_VARIABLE, Owner, OwnerError, RUN_VARIABLE, RuntimeDirError, runtime_dir};
use remote::{EMULATED_SILENCE_LIMIT, OpenError, Patience, RunError, SshOptions, SshSession};
use serde_json::{Value, json};
use topology::Host;

use crate::args::{CONSOLE, INITRD, PID, QMP, ReplicaFiles, SCRATCH, args, nvme};
use crate::console::ConsoleKeeper;
use crate::disks::{self, DiskError};
use crate::inside::{self, Programs, ReplicaPrograms};
use crate::saved::SavedState;
use crate::shape::{ReplicaMachine, ShapeError};
use crate::store::{
    HOST_KEY, KEY, KNOWN_HOSTS, MADE, Replica, ReplicaManifest, ReplicaState, folder, write_private,
};
use host::state_dir::FileError;

/// What the host's first process prints when sshd listens.
const UP: &str = "vmlab: the host is up";

/// How often what can't be waited for is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long a restored host may take to answer, and any command of ours.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Lines of the console that an error shows.
const TAIL_LINES: usize = 15;

/// How much of the console's end is looked at, bytes: the host may print as much
/// as it likes.
const TAIL_BYTES: usize = 64 << 10;

/// QEMU's own memory beside the host's: translated code and devices.
const QEMU_MIB: u64 = 512;

/// A fresh disk takes little; a host that writes needs some.
const LEAST_DISK_BYTES: u64 = 2 << 30;

/// What a host is made of.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaRequest<'a> {
    /// The replica's name.
    pub name: &'a str,
    /// The described machine.
    pub host: &'a Host,
    /// Where the description came from, in a few words.
    pub source: &'a str,
    /// Memory in all; scaled from the description if none is given.
    pub memory_mib: Option<u64>,
    /// Sizes of NVMe disks, which its guests can have for themselves. QEMU can't save
    /// their state.
    pub nvme_mib: &'a [u64],
    /// The QEMU that emulates.
    pub qemu: &'a Qemu,
    /// The host image and its name.
    pub image: (&'a GuestImage, &'a str),
    /// The guest image for VMs inside.
    pub guests: &'a GuestImage,
    /// The vmlab that keeps its console: this program.
    pub keeper: &'a Path,
    /// What is put into it.
    pub programs: Programs<'a>,
    /// Boot, even if there is a saved state; and save none.
    pub fresh: bool,
    /// How long the boot may take.
    pub boot_limit: Duration,
}

/// Error type for [`up`].
#[derive(Debug, thiserror::Error)]
pub enum ReplicaUpError {
    /// The machine can't be emulated.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Not a name for a folder.
    #[error(
        "{0:?} can't be a replica's name: take up to 40 letters, digits and dashes, a letter or digit first"
    )]
    Name(String),
    /// There is one of that name.
    #[error(
        "The replica {name:?} is {}: use it, end it with `vmlab replica down {name}`, or give this one another --name", state.word()
    )]
    Exists {
        /// The name.
        name: String,
        /// What it does.
        state: ReplicaState,
    },
    /// This machine has too little memory.
    #[error(
        "The host would have {memory_mib} MiB and QEMU takes {QEMU_MIB} MiB more, but only {available_mib} MiB are free here: give it less with --memory{}",
        least(*available_mib)
    )]
    Memory {
        /// What it would have.
        memory_mib: u64,
        /// What is there.
        available_mib: u64,
    },
    /// The disk is full.
    #[error(
        "Only {free_mib} MiB are free below {path}, and a host needs {} MiB: free some, or set XDG_STATE_HOME and XDG_CACHE_HOME to folders on a larger disk",
        LEAST_DISK_BYTES >> 20
    )]
    DiskFull {
        /// The folder.
        path: PathBuf,
        /// What is free.
        free_mib: u64,
    },
    /// A file of its own can't be read or made.
    #[error(transparent)]
    File(#[from] FileError),
    /// ssh-keygen is missing.
    #[error("ssh-keygen is not installed: run `apt-get install openssh-client`")]
    NoSsh,
    /// A disk can't be made.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// What keeps the console did not start.
    #[error("Cannot run {program} to keep the host's console in {folder}")]
    Keeper {
        /// The program.
        program: PathBuf,
        /// The replica's folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// QEMU did not start.
    #[error("QEMU did not start: {said}")]
    Refused {
        /// Its words.
        said: String,
    },
    /// QEMU is gone.
    #[error("The host's QEMU ended while it {phase}{}", shown(tail))]
    Died {
        /// What it did.
        phase: StartPhase,
        /// The end of the console.
        tail: String,
    },
    /// What is done in the host before it is handed over.
    #[error("Setting up the host failed: {said}{}", shown(tail))]
    Inside {
        /// The words of the command that failed.
        said: String,
        /// The end of the console.
        tail: String,
    },
    /// The host never came up.
    #[error(
        "The host did not come up within {} s (--timeout allows more){}", limit.as_secs(), shown(tail)
    )]
    NeverUp {
        /// The limit.
        limit: Duration,
        /// The end of the console.
        tail: String,
    },
    /// Something is missing in it.
    #[error(
        "The host came up without {missing}: the image and its kernel disagree, build it again (`vmlab image build {image} --again`)"
    )]
    Missing {
        /// What.
        missing: String,
        /// The image.
        image: String,
    },
    /// The monitor.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The state could not be saved or restored.
    #[error("QEMU could not {what} the host's state: {said}")]
    State {
        /// `save` or `restore`.
        what: &'static str,
        /// Its words.
        said: String,
    },
    /// ssh.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A command inside.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Who we are.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// Where ssh's socket goes.
    #[error(transparent)]
    Runtime(#[from] RuntimeDirError),
    /// Ctrl-C.
    #[error(transparent)]
    Cancelled(#[from] Cancellation),
}

/// What a host's QEMU did that ended before the host was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPhase {
    /// It made its devices.
    Devices,
    /// Its first boot.
    Boot,
    /// The boot of its second start.
    SecondBoot,
}

impl fmt::Display for StartPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Devices => "started",
            Self::Boot => "booted",
            Self::SecondBoot => "booted, and that of a second start did, too",
        })
    }
}

fn shown(tail: &str) -> String {
    if tail.is_empty() {
        return "; its console is empty".to_owned();
    }
    format!("; its console ends with:\n{tail}")
}

fn least(available_mib: u64) -> String {
    let fits = available_mib.saturating_sub(QEMU_MIB) / 256 * 256;
    if fits < 512 { String::new() } else { format!(" ({fits}MiB would fit)") }
}

/// The machine that the emulator shows for `host`, mended or not, and QEMU's arguments
/// for it with the files of an image of `recipe`; nothing is started.
///
/// # Errors
/// [`ShapeError`] for what can't be emulated.
pub fn preview(
    name: &str,
    host: &Host,
    memory_mib: Option<u64>,
    nvme_disks: usize,
    recipe: &Recipe,
    is_mended: bool,
) -> Result<(ReplicaMachine, Vec<String>), ShapeError> {
    let shape = ReplicaMachine::of(host, memory_mib, is_mended)?;
    let files = ReplicaFiles {
        kernel: Path::new("vmlinuz"),
        root_image: Path::new("root.ext4"),
        guests: Path::new("guests.ext4"),
        cmdline: &recipe.cmdline,
    };
    let args = args(name, &shape, &files, nvme_disks, false);
    Ok((shape, args))
}

/// Starts a host and waits until commands can be run in it. `say` hears what
/// takes time. If anything fails, nothing is left. One that ends while it boots is
/// started once more: emulators with two vCPUs and more do that at times
/// (docs/emulation.md).
///
/// # Errors
/// [`ReplicaUpError`] says what to do next.
pub fn up(
    wanted: &ReplicaRequest<'_>,
    cancel: &Cancel,
    say: &mut dyn FnMut(&str),
) -> Result<Replica, ReplicaUpError> {
    let shape = ReplicaMachine::of(wanted.host, wanted.memory_mib, wanted.qemu.is_mended())?;
    check_name(wanted.name)?;
    check_memory(&shape)?;
    say("preparing disks");
    let guests = disks::guests(wanted.guests)?;
    let loaded = ReplicaPrograms::read(&wanted.programs)?;
    let saved = SavedState::of(&state_key(wanted, &shape, &loaded, &guests));
    let wanted = &ReplicaRequest { fresh: wanted.fresh || !wanted.nvme_mib.is_empty(), ..*wanted };
    let start = |again, say: &mut dyn FnMut(&str)| {
        let restored = !wanted.fresh && saved.is_there();
        let args = arguments(wanted, &shape, &guests, restored);
        let mut replica = create(wanted, &shape, args, restored)?;
        replica.made.started_again = again;
        PendingStart { wanted, shape: &shape, replica, keeper: None, cancel, say }
            .run_or_clear(&loaded, &saved)
    };
    match start(false, say) {
        Err(ReplicaUpError::Died { phase: StartPhase::Boot, .. }) => start(true, say),
        ended => ended,
    }
}

fn arguments(
    wanted: &ReplicaRequest<'_>,
    shape: &ReplicaMachine,
    guests: &Path,
    wait_for_state: bool,
) -> Vec<String> {
    let (image, _) = wanted.image;
    let files = ReplicaFiles {
        kernel: &image.kernel,
        root_image: &image.root_image,
        guests,
        cmdline: &image.cmdline,
    };
    args(wanted.name, shape, &files, wanted.nvme_mib.len(), wait_for_state)
}

/// Everything that a saved state depends on.
fn state_key(
    wanted: &ReplicaRequest<'_>,
    shape: &ReplicaMachine,
    loaded: &ReplicaPrograms,
    guests: &Path,
) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    let nameless = ReplicaRequest { name: "", ..*wanted };
    for arg in arguments(&nameless, shape, guests, false) {
        part(arg.as_bytes());
    }
    part(wanted.qemu.version_text.as_bytes());
    part(wanted.image.0.content_hash.as_bytes());
    part(wanted.guests.content_hash.as_bytes());
    part(shape.declared.to_json().as_bytes());
    part(&loaded.vmlab);
    part(&loaded.probe);
    hasher.finalize().to_hex().to_string()
}

fn check_name(name: &str) -> Result<(), ReplicaUpError> {
    let plain = |c: char| c.is_ascii_alphanumeric();
    let good = name.len() <= 40
        && name.starts_with(plain)
        && name.chars().all(|c| plain(c) || matches!(c, '-' | '_' | '.'));
    if good { Ok(()) } else { Err(ReplicaUpError::Name(name.to_owned())) }
}

fn check_memory(shape: &ReplicaMachine) -> Result<(), ReplicaUpError> {
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    });
    let memory_mib = shape.memory_mib();
    match available.map(|kib| kib >> 10) {
        Some(available_mib) if available_mib < memory_mib + QEMU_MIB => {
            Err(ReplicaUpError::Memory { memory_mib, available_mib })
        }
        _ => Ok(()),
    }
}

fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(u64::MAX, |disk| disk.f_bavail * disk.f_frsize)
}

/// Takes the name: a dead replica of it makes room, a living one does not.
fn create(
    wanted: &ReplicaRequest<'_>,
    shape: &ReplicaMachine,
    args: Vec<String>,
    restored: bool,
) -> Result<Replica, ReplicaUpError> {
    let path = folder().join(wanted.name);
    match crate::store::find(Some(wanted.name)) {
        Ok(old) if old.state() == ReplicaState::Dead => {
            // If it can't be removed, the name stays taken, which is said below.
            let _ = old.down();
        }
        Ok(old) => {
            return Err(ReplicaUpError::Exists { name: old.name.clone(), state: old.state() });
        }
        // What was killed at its very beginning.
        Err(_) => drop(fs::remove_dir_all(&path)),
    }
    let made = ReplicaManifest {
        arch: shape.arch,
        source: wanted.source.to_owned(),
        image: wanted.image.1.to_owned(),
        qemu: wanted.qemu.version_text.clone(),
        vmlab: env!("CARGO_PKG_VERSION").to_owned(),
        pcpus: shape.pcpus(),
        node_memory_mib: shape.nodes.iter().map(|node| node.memory_mib).collect(),
        memory_factor: shape.memory_factor,
        not_shown: shape.not_shown.clone(),
        made_unix_s: unix_s(),
        args,
        starter: Owner::current("replica")?,
        process: None,
        port: None,
        restored,
        started_again: false,
        ready_s: None,
    };
    Replica::create(wanted.name, made).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => {
            ReplicaUpError::Exists { name: wanted.name.to_owned(), state: ReplicaState::Booting }
        }
        _ => FileError::of("make", &path)(source).into(),
    })
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// A start that is under way.
struct PendingStart<'a> {
    wanted: &'a ReplicaRequest<'a>,
    shape: &'a ReplicaMachine,
    replica: Replica,
    keeper: Option<ConsoleKeeper>,
    cancel: &'a Cancel,
    say: &'a mut dyn FnMut(&str),
}

impl PendingStart<'_> {
    /// The host that runs; nothing is left of one that does not.
    fn run_or_clear(
        mut self,
        loaded: &ReplicaPrograms,
        saved: &SavedState,
    ) -> Result<Replica, ReplicaUpError> {
        let free_mib = free_bytes(&self.replica.folder) >> 20;
        let result = match free_mib << 20 < LEAST_DISK_BYTES {
            true => Err(ReplicaUpError::DiskFull { path: folder(), free_mib }),
            false => self.run(loaded, saved),
        };
        let Err(error) = result else { return Ok(self.replica) };
        if let Some(keeper) = self.keeper.take() {
            keeper.end();
        }
        // The first error is the one to tell; `down` can be tried again.
        let _ = self.replica.down();
        if self.replica.made.restored && !matches!(error, ReplicaUpError::Cancelled(_)) {
            // It may be the state's fault: it is not tried again.
            saved.remove();
        }
        Err(error)
    }

    fn run(&mut self, loaded: &ReplicaPrograms, saved: &SavedState) -> Result<(), ReplicaUpError> {
        self.prepare(loaded, saved)?;
        self.cancel.check()?;
        let began = Instant::now();
        let process = self.start_qemu()?;
        self.replica.made.process = Some(process.clone());
        let mut monitor = Monitor::connect(&self.replica.folder.join(QMP))?;
        let port = forwarded_port(&monitor.ask_human("info usernet")?).ok_or_else(|| {
            ReplicaUpError::Refused { said: "its monitor names no forwarded port".to_owned() }
        })?;
        self.replica.made.port = Some(port);
        self.note()?;
        self.know_host_key(port)?;
        if self.replica.made.restored {
            (self.say)("restoring the saved state");
            migrate(&mut monitor, "restore", &saved.state(), self.cancel)?;
            // It was stopped when it was saved, and comes back so.
            monitor.ask("cont", Value::Null)?;
        } else {
            (self.say)(if self.replica.made.started_again { "booting again" } else { "booting" });
            self.wait_for_boot(&process, began)?;
        }
        self.greet()?;
        let ready_s = began.elapsed().as_secs_f64();
        if !self.replica.made.restored && !self.wanted.fresh {
            (self.say)("saving the state");
            let cancel = self.cancel;
            monitor.ask("stop", Value::Null)?;
            saved
                .make(&self.replica.folder, |state| migrate(&mut monitor, "save", state, cancel))?;
            monitor.ask("cont", Value::Null)?;
        }
        self.settle()?;
        self.replica.made.ready_s = Some(ready_s);
        self.note()
    }

    /// Keys, initial RAM disk and scratch disk.
    fn prepare(
        &mut self,
        loaded: &ReplicaPrograms,
        saved: &SavedState,
    ) -> Result<(), ReplicaUpError> {
        let folder = self.replica.folder.clone();
        disks::scratch(&folder.join(SCRATCH))?;
        for (number, mib) in (1..).zip(self.wanted.nvme_mib) {
            disks::empty(&folder.join(nvme(number)), mib << 20)?;
        }
        if self.replica.made.restored {
            return Ok(saved.bring(&folder)?);
        }
        for key in [KEY, HOST_KEY] {
            let path = folder.join(key);
            inside::make_key(&path, "vmlab-replica").map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => ReplicaUpError::NoSsh,
                _ => FileError::of("make", &path)(source).into(),
            })?;
        }
        let of_image = &self.wanted.image.0.initrd;
        let mut initrd = fs::read(of_image).map_err(FileError::of("read", of_image))?;
        let ours = inside::archive(self.shape, loaded, &folder)?;
        initrd.extend_from_slice(&ours);
        let path = folder.join(INITRD);
        Ok(write_private(&path, &initrd).map_err(FileError::of("make", &path))?)
    }

    /// Starts QEMU, which leaves this process once its devices are made.
    fn start_qemu(&mut self) -> Result<Owner, ReplicaUpError> {
        let refused = |said: String| ReplicaUpError::Refused { said };
        let (program, folder) = (self.wanted.keeper, &self.replica.folder);
        let keeper = ConsoleKeeper::start(program, folder).map_err(|source| {
            let (program, folder) = (program.to_owned(), folder.clone());
            ReplicaUpError::Keeper { program, folder, source }
        })?;
        self.keeper = Some(keeper);
        let output = Command::new(&self.wanted.qemu.path)
            .args(&self.replica.made.args)
            .current_dir(&self.replica.folder)
            // It outlives this vmlab on purpose: it must not carry a mark by
            // which `vmlab clean` would end it.
            .env_remove(OWNER_VARIABLE)
            .env_remove(RUN_VARIABLE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .output()
            .map_err(|error| refused(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            // Each property of a model that the emulator lacks is a warning.
            let lines: Vec<&str> = said.lines().filter(|line| !line.contains("warning:")).collect();
            return Err(refused(lines.join("\n")));
        }
        let pid = fs::read_to_string(self.replica.folder.join(PID)).unwrap_or_default();
        let pid = pid.trim().parse().map_err(|_| refused("it wrote no process id".to_owned()))?;
        Owner::of(pid, "replica").map_err(|_| self.died(StartPhase::Devices))
    }

    fn note(&self) -> Result<(), ReplicaUpError> {
        Ok(self.replica.save().map_err(FileError::of("make", &self.replica.folder.join(MADE)))?)
    }

    fn know_host_key(&self, port: u16) -> Result<(), ReplicaUpError> {
        let folder = &self.replica.folder;
        let path = folder.join(KNOWN_HOSTS);
        let public = folder.join(HOST_KEY).with_extension("pub");
        let key = fs::read_to_string(&public).map_err(FileError::of("read", &public))?;
        let line = format!("[127.0.0.1]:{port} {key}");
        Ok(fs::write(&path, line).map_err(FileError::of("make", &path))?)
    }

    fn wait_for_boot(&mut self, process: &Owner, began: Instant) -> Result<(), ReplicaUpError> {
        let console = self.replica.folder.join(CONSOLE);
        let limit = self.wanted.boot_limit;
        loop {
            let text = read_end(&console, TAIL_BYTES);
            if String::from_utf8_lossy(&text).contains(UP) {
                return Ok(());
            }
            self.cancel.check()?;
            if !process.is_alive() {
                return Err(self.died(match self.replica.made.started_again {
                    false => StartPhase::Boot,
                    true => StartPhase::SecondBoot,
                }));
            }
            if began.elapsed() >= limit {
                return Err(ReplicaUpError::NeverUp { limit, tail: tail(&console) });
            }
            // QEMU tells nobody what its guest prints.
            std::thread::sleep(LOOK);
        }
    }

    fn died(&mut self, phase: StartPhase) -> ReplicaUpError {
        if let Some(keeper) = &mut self.keeper {
            keeper.finish();
        }
        ReplicaUpError::Died { phase, tail: tail(&self.replica.folder.join(CONSOLE)) }
    }

    /// A first connection: that it can be made, and what the host lacks.
    fn greet(&mut self) -> Result<(), ReplicaUpError> {
        (self.say)("connecting");
        let said = self.in_host("cat /run/vmlab/missing 2>/dev/null; vmlab --version >&2")?;
        if said.is_empty() {
            return Ok(());
        }
        let missing = said.lines().collect::<Vec<_>>().join(", ");
        Err(ReplicaUpError::Missing { missing, image: self.wanted.image.1.to_owned() })
    }

    /// What must not be in a saved state: the name, the time, and a disk that
    /// each replica has for itself. `/var/tmp` is on it: disks of VMs lie there.
    fn settle(&mut self) -> Result<(), ReplicaUpError> {
        let (name, now) = (&self.replica.name, unix_s());
        let script = format!(
            "set -e; hostname {name}; date -s @{now} >/dev/null; \
             mount -t ext4 /dev/scratch /scratch; mkdir -m 1777 /scratch/tmp; \
             mount --bind /scratch/tmp /var/tmp"
        );
        self.in_host(&script).map(drop)
    }

    fn in_host(&self, script: &str) -> Result<String, ReplicaUpError> {
        let owner = Owner::current("replica")?;
        let runtime = runtime_dir(&owner)?;
        let destination = self.replica.destination().expect("the port is known");
        let (env, is_cancelled) = (owner.env(), || self.cancel.is_cancelled());
        let patience = Patience::new(ANSWER_LIMIT, &is_cancelled);
        let options = SshOptions {
            folder: runtime.path(),
            env: &env,
            interactive: false,
            silence_limit: EMULATED_SILENCE_LIMIT,
        };
        let session = SshSession::open(&destination, &options, patience)?;
        let output = session.command(["sh", "-c", script]).run(patience)?;
        if output.code != 0 {
            let said = output.stderr.trim().to_owned();
            let tail = tail(&self.replica.folder.join(CONSOLE));
            return Err(ReplicaUpError::Inside { said, tail });
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// The port of this machine, from `TCP[HOST_FORWARD]  12  127.0.0.1 37123 10.0.2.15 22 ...`.
fn forwarded_port(usernet: &str) -> Option<u16> {
    let line = usernet.lines().find(|line| line.contains("HOST_FORWARD"))?;
    line.split_whitespace().skip_while(|word| *word != "127.0.0.1").nth(1)?.parse().ok()
}

/// Saves the machine to a file or restores it, as a migration.
fn migrate(
    monitor: &mut Monitor,
    what: &'static str,
    path: &Path,
    cancel: &Cancel,
) -> Result<(), ReplicaUpError> {
    let quoted = remote::quote([path.display().to_string()]);
    // Only newer QEMUs take a file by its name.
    let (command, uri) = match what {
        "save" => ("migrate", format!("exec:cat > {quoted}")),
        _ => ("migrate-incoming", format!("exec:cat {quoted}")),
    };
    monitor.ask("migrate-set-parameters", json!({ "max-bandwidth": 16_u64 << 30 }))?;
    monitor.ask(command, json!({ "uri": uri }))?;
    let until = Instant::now() + ANSWER_LIMIT;
    loop {
        let status = monitor.ask("query-migrate", Value::Null)?;
        match status["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => {
                let said = status["error-desc"].as_str().unwrap_or("no reason given").to_owned();
                return Err(ReplicaUpError::State { what, said });
            }
            _ if Instant::now() >= until => {
                let said = format!("not done within {} s", ANSWER_LIMIT.as_secs());
                return Err(ReplicaUpError::State { what, said });
            }
            _ => {}
        }
        cancel.check()?;
        std::thread::sleep(LOOK);
    }
}

/// The last lines of the console.
fn tail(console: &Path) -> String {
    let text = read_end(console, TAIL_BYTES);
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
