//! The replicas that there are: a folder each, which outlives the command that
//! made it.
//!
//! `$XDG_STATE_HOME/vmlab/replicas/<name>` (else below `~/.local/state`) holds
//! `replica.json` ([`ReplicaManifest`]), the console's output, the monitor's socket, the
//! key that ssh offers and the host's own. QEMU is told by its process id
//! together with its start and the machine's boot, so that another process of
//! that number is never mistaken for it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::owner::{self, EndOrphanError, Owner};
use host::state_dir::{FileError, KeptKind, StateLookupError, kept, one_of, user_state_dir};
use remote::Destination;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmconfig::Arch;

use crate::args::{CONSOLE, PID};

pub(crate) const MADE: &str = "replica.json";
/// The private key that ssh offers.
pub(crate) const KEY: &str = "key";
/// The host's own private key.
pub(crate) const HOST_KEY: &str = "host_key";
/// The host's public key, as ssh looks it up.
pub(crate) const KNOWN_HOSTS: &str = "known_hosts";

/// How long QEMU may take to quit.
const QUIT_LIMIT: Duration = Duration::from_secs(5);

/// How a replica came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaManifest {
    /// The host's architecture.
    pub arch: Arch,
    /// The described machine, in a few words.
    pub source: String,
    /// The host image.
    pub image: String,
    /// The QEMU that emulates it; empty for a replica of an older vmlab.
    #[serde(default)]
    pub qemu: String,
    /// The vmlab that made it.
    pub vmlab: String,
    /// pCPUs.
    pub pcpus: u32,
    /// Memory of each node.
    pub node_memory_mib: Vec<u64>,
    /// How many times as much memory the described machine has.
    pub memory_factor: Option<f64>,
    /// What is only declared or differs from the description.
    pub not_shown: Vec<String>,
    /// When it was made, seconds since the Unix epoch.
    pub made_unix_s: u64,
    /// QEMU's arguments.
    pub args: Vec<String>,
    /// The vmlab that boots it.
    pub starter: Owner,
    /// QEMU's process, once it runs.
    pub process: Option<Owner>,
    /// The port of this machine that leads to the host's sshd.
    pub port: Option<u16>,
    /// Whether it began from a saved state.
    pub restored: bool,
    /// Whether its emulator had ended while it booted, and this is its second start.
    #[serde(default)]
    pub started_again: bool,
    /// From QEMU's start until a command could be run; absent before.
    pub ready_s: Option<f64>,
}

/// Whether a replica can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaState {
    /// It answers, as far as is known.
    Up,
    /// It was begun and is not up yet.
    Booting,
    /// Its QEMU is gone, or the vmlab that was to boot it.
    Dead,
}

impl ReplicaState {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Booting => "booting",
            Self::Dead => "dead",
        }
    }

    fn what_next(self, name: &str) -> String {
        match self {
            Self::Up => format!("use it, or end it with `vmlab replica down {name}`"),
            Self::Booting => "wait for the `vmlab replica up` that boots it".to_owned(),
            Self::Dead => format!(
                "its QEMU was killed, or what booted it; `vmlab replica down {name}` removes it"
            ),
        }
    }
}

/// A replica that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Replica {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// How it came to be.
    pub made: ReplicaManifest,
}

const KIND: KeptKind = KeptKind {
    one: "replica",
    several: "replicas",
    list: "vmlab replica list",
    make: "vmlab replica up",
};

/// Error type for [`find`] and [`list`].
#[derive(Debug, thiserror::Error)]
pub enum ReplicaFindError {
    /// There is no such one.
    #[error(transparent)]
    NotOne(#[from] StateLookupError),
    /// It can't be used.
    #[error("The replica {name:?} is {}: {}", state.word(), state.what_next(name))]
    NotUp {
        /// Its name.
        name: String,
        /// Its state.
        state: ReplicaState,
    },
    /// The folder can't be read.
    #[error(transparent)]
    Read(#[from] FileError),
}

/// Error type for [`Replica::down`].
#[derive(Debug, thiserror::Error)]
pub enum ReplicaDownError {
    /// QEMU can't be ended.
    #[error(transparent)]
    End(#[from] EndOrphanError),
    /// Its folder can't be removed.
    #[error(transparent)]
    Remove(#[from] FileError),
}

/// The folder of all replicas of this user.
#[must_use]
pub fn folder() -> PathBuf {
    let state = user_state_dir();
    state.unwrap_or_else(|| guest::image::cache_dir().join("state/vmlab")).join("replicas")
}

/// All replicas of this user, by name.
///
/// # Errors
/// [`ReplicaFindError::Read`].
pub fn list() -> Result<Vec<Replica>, ReplicaFindError> {
    list_in(&folder())
}

fn list_in(root: &Path) -> Result<Vec<Replica>, ReplicaFindError> {
    let all = kept(root, MADE).map_err(FileError::of("read", root))?.into_iter();
    Ok(all.map(|(name, folder, made)| Replica { name, folder, made }).collect())
}

/// The replica of that name, or the only one if none is given; whatever its
/// state.
///
/// # Errors
/// [`ReplicaFindError`] says which there are.
pub fn find(name: Option<&str>) -> Result<Replica, ReplicaFindError> {
    one_of(KIND, list()?, name, |replica| &replica.name).map_err(ReplicaFindError::from)
}

/// Like [`find`], but only one that is up.
///
/// # Errors
/// [`ReplicaFindError`].
pub fn find_up(name: Option<&str>) -> Result<Replica, ReplicaFindError> {
    let replica = find(name)?;
    match replica.state() {
        ReplicaState::Up => Ok(replica),
        state => Err(ReplicaFindError::NotUp { name: replica.name, state }),
    }
}

impl Replica {
    /// Whether it can be used.
    #[must_use]
    pub fn state(&self) -> ReplicaState {
        let runs = self.made.process.as_ref().is_some_and(Owner::is_alive);
        match self.made.ready_s {
            Some(_) if runs => ReplicaState::Up,
            // QEMU may not have been started yet.
            None if self.made.starter.is_alive() => ReplicaState::Booting,
            _ => ReplicaState::Dead,
        }
    }

    /// Where ssh reaches it; `None` before QEMU runs.
    #[must_use]
    pub fn destination(&self) -> Option<Destination> {
        Some(Destination {
            user: Some("root".to_owned()),
            host: "127.0.0.1".to_owned(),
            port: Some(self.made.port?),
            identity: Some(self.folder.join(KEY)),
            known_hosts: Some(self.folder.join(KNOWN_HOSTS)),
        })
    }

    /// The file with what its console printed.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.folder.join(CONSOLE)
    }

    /// Ends it and removes its folder.
    ///
    /// # Errors
    /// [`ReplicaDownError`].
    pub fn down(&self) -> Result<(), ReplicaDownError> {
        if let Some(process) = self.process() {
            owner::end_kept(&process, QUIT_LIMIT)?;
        }
        Ok(fs::remove_dir_all(&self.folder).map_err(FileError::of("remove", &self.folder))?)
    }

    /// Its QEMU, as it was noted; else as QEMU noted itself, if what started it was
    /// killed before it could, and it still is that one.
    fn process(&self) -> Option<Owner> {
        let noted_itself = || {
            let pid: u32 = fs::read_to_string(self.folder.join(PID)).ok()?.trim().parse().ok()?;
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let args: Vec<&[u8]> = line.strip_suffix(&[0])?.split(|byte| *byte == 0).collect();
            // A script that starts QEMU may put more in front.
            let made: Vec<&[u8]> = self.made.args.iter().map(String::as_bytes).collect();
            let same = !made.is_empty() && args.ends_with(&made);
            same.then(|| Owner::of(pid, "replica").ok()).flatten()
        };
        self.made.process.clone().or_else(noted_itself)
    }

    /// Makes the folder of a new replica; fails if there is one of that name.
    pub(crate) fn create(name: &str, made: ReplicaManifest) -> io::Result<Self> {
        let root = folder();
        DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        let folder = root.join(name);
        DirBuilder::new().mode(0o700).create(&folder)?;
        let replica = Self { name: name.to_owned(), folder, made };
        replica.save()?;
        Ok(replica)
    }

    /// Writes `replica.json`.
    pub(crate) fn save(&self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.made).map_err(io::Error::from)? + "\n";
        let unfinished = self.folder.join(".replica.json");
        fs::write(&unfinished, text)?;
        fs::rename(unfinished, self.folder.join(MADE))
    }
}

/// Writes a file that only this user may read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let mut file =
        fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    fn made() -> ReplicaManifest {
        ReplicaManifest {
            arch: Arch::X86_64,
            source: "two-nodes".to_owned(),
            image: "host-debian-12".to_owned(),
            qemu: "QEMU emulator version 7.2.22".to_owned(),
            vmlab: "0".to_owned(),
            pcpus: 4,
            node_memory_mib: vec![1024, 1024],
            memory_factor: Some(8.0),
            not_shown: Vec::new(),
            made_unix_s: 1,
            args: Vec::new(),
            starter: Owner { boot_id: "of an earlier boot".to_owned(), ..me() },
            process: None,
            port: None,
            restored: false,
            started_again: false,
            ready_s: None,
        }
    }

    fn me() -> Owner {
        Owner::current("replica").unwrap()
    }

    #[test]
    fn a_replica_is_as_alive_as_its_qemu() {
        let mut replica =
            Replica { name: "a".to_owned(), folder: PathBuf::from("/none"), made: made() };
        assert_eq!(replica.state(), ReplicaState::Dead);
        assert_eq!(replica.destination(), None);
        let mut process = me();
        replica.made.process = Some(process.clone());
        assert_eq!(replica.state(), ReplicaState::Dead, "nobody waits for it");
        replica.made.starter = me();
        assert_eq!(replica.state(), ReplicaState::Booting);
        replica.made.ready_s = Some(1.0);
        replica.made.port = Some(2222);
        assert_eq!(replica.state(), ReplicaState::Up);
        assert_eq!(replica.destination().unwrap().to_string(), "ssh://root@127.0.0.1:2222");
        process.starttime_ticks += 1;
        replica.made.process = Some(process);
        assert_eq!(replica.state(), ReplicaState::Dead, "another process of that number");
    }

    #[test]
    fn a_qemu_that_noted_itself_is_found_by_its_arguments() {
        let folder = tempfile::tempdir().unwrap();
        // As a script starts it: with arguments in front of those it was given.
        // It tells that it runs: a child's arguments are not there to be read
        // as soon as `spawn` returns.
        let mut qemu = Command::new("sh")
            .args(["-c", "echo up; read end", "1", "600"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 3];
        qemu.stdout.take().unwrap().read_exact(&mut said).unwrap();
        fs::write(folder.path().join(PID), format!("{}\n", qemu.id())).unwrap();
        let mut replica =
            Replica { name: "a".to_owned(), folder: folder.path().to_owned(), made: made() };
        let mut found = |args: &[&str]| {
            replica.made.args = args.iter().map(|arg| (*arg).to_owned()).collect();
            replica.process().map(|process| process.pid)
        };
        assert_eq!(found(&["1", "600"]), Some(qemu.id()));
        assert_eq!(found(&["600"]), Some(qemu.id()));
        assert_eq!(found(&["1"]), None, "another process of that number");
        assert_eq!(found(&[]), None);
        qemu.kill().unwrap();
        qemu.wait().unwrap();
    }

    #[test]
    fn what_is_no_replica_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        assert!(list_in(&root.path().join("none")).unwrap().is_empty());
        for name in ["torn", "empty", "b", "a"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        fs::write(root.path().join("torn").join(MADE), "{").unwrap();
        for name in ["a", "b"] {
            let folder = root.path().join(name);
            Replica { name: name.to_owned(), folder, made: made() }.save().unwrap();
        }
        let names: Vec<String> =
            list_in(root.path()).unwrap().into_iter().map(|replica| replica.name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
