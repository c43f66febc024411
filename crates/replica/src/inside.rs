//! What is put into a host when it is started, and is no part of its image: keys,
//! vmlab itself, what is declared.
//!
//! It comes as a second archive behind the image's initial RAM disk, which the
//! kernel unpacks over the first; the image lays what is below `seed` above its
//! disk. So nothing of it needs a disk, and a new vmlab needs no new image.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use guest::image::Archive;

use crate::shape::ReplicaMachine;
use crate::store::{HOST_KEY, KEY};
use host::state_dir::FileError;

/// Where the vmlab inside reads what is declared of its host.
pub(crate) const DECLARED: &str = host::snapshot::DECLARED_HOST;

/// Programs that are put into a host.
#[derive(Debug, Clone, Copy)]
pub struct Programs<'a> {
    /// vmlab, static, for the host's architecture.
    pub vmlab: &'a Path,
    /// vmlab-probe, for guests and hosts of that architecture.
    pub probe: &'a Path,
}

/// The programs' bytes.
pub(crate) struct ReplicaPrograms {
    pub(crate) vmlab: Vec<u8>,
    pub(crate) probe: Vec<u8>,
}

impl ReplicaPrograms {
    pub(crate) fn read(programs: &Programs<'_>) -> Result<Self, FileError> {
        let read = |path: &Path| fs::read(path).map_err(FileError::of("read", path));
        Ok(Self { vmlab: read(programs.vmlab)?, probe: read(programs.probe)? })
    }
}

/// The archive for a host of that shape, with the keys in `folder`.
///
/// # Errors
/// The key that can't be read.
pub(crate) fn archive(
    shape: &ReplicaMachine,
    loaded: &ReplicaPrograms,
    folder: &Path,
) -> Result<Vec<u8>, FileError> {
    let mut archive = Archive::default();
    for folder in [
        "seed",
        "seed/etc",
        "seed/etc/ssh",
        "seed/etc/vmlab",
        "seed/usr",
        "seed/usr/local",
        "seed/usr/local/bin",
    ] {
        archive.folder(folder);
    }
    let read = |path: &Path| fs::read(path).map_err(FileError::of("read", path));
    archive.file("seed/etc/ssh/host_key", 0o600, &read(&folder.join(HOST_KEY))?);
    let public = read(&folder.join(KEY).with_extension("pub"))?;
    archive.file("seed/etc/ssh/authorized_keys", 0o600, &public);
    archive.file(&format!("seed{DECLARED}"), 0o644, shape.declared.to_json().as_bytes());
    archive.file("seed/usr/local/bin/vmlab", 0o755, &loaded.vmlab);
    let probe = format!("vmlab-probe-{}", shape.arch);
    archive.file(&format!("seed/usr/local/bin/{probe}"), 0o755, &loaded.probe);
    archive.link("seed/usr/local/bin/vmlab-probe", &probe);
    Ok(archive.finish())
}

/// Makes a fresh pair of keys, `path` and `path.pub`.
pub(crate) fn make_key(path: &Path, comment: &str) -> io::Result<()> {
    let output = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"])
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
