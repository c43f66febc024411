//! Folders for the sockets of a run's processes.
//!
//! The path of a Unix socket has at most 107 bytes, so the folders stand in
//! `$XDG_RUNTIME_DIR/vmlab`, else in `/tmp/vmlab-<uid>`, and have short names:
//! `<pid>-<n>`. A file `owner.json` in each says whose it is; the pid in the
//! name serves for the moment before that file is written.
//!
//! Source: `unix(7)`, XDG Base Directory Specification.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Owner, exists};

const OWNER_FILE: &str = "owner.json";

/// Longest path of a runtime folder: leaves 27 bytes for a socket's name.
const MAX_PATH_BYTES: usize = 80;

/// A runtime folder, mode 0700; removed with all that is in it on drop.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
}

impl RuntimeDir {
    /// The folder, at most 80 bytes long.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        // What stays behind is found as stale later.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Error type for [`runtime_dir`].
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// Somebody else has the folder, or could write to it.
    #[error(
        "{path} is not a folder of this user alone ({found}); remove it or set XDG_RUNTIME_DIR"
    )]
    NotOurs {
        /// The folder of all runs.
        path: PathBuf,
        /// What stands there.
        found: String,
    },
    /// The file system refused.
    #[error("Cannot create {path}")]
    Create {
        /// File or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Creates a fresh runtime folder for `owner`.
///
/// # Errors
/// [`RuntimeDirError`] when the folder above it belongs to somebody else or
/// can't be written.
pub fn runtime_dir(owner: &Owner) -> Result<RuntimeDir, RuntimeDirError> {
    let xdg = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime_dir_in(&root(xdg.as_deref()), owner)
}

/// A runtime folder whose owner is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleRuntimeDir {
    /// The folder.
    pub path: PathBuf,
    /// Whose it was, when it lived long enough to be told.
    pub owner: Option<Owner>,
}

impl StaleRuntimeDir {
    /// Removes the folder and all that is in it.
    ///
    /// # Errors
    /// The file system's error.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
    }
}

/// The runtime folders of this user that dead owners left.
#[must_use]
pub fn stale_runtime_dirs() -> Vec<StaleRuntimeDir> {
    let uid = uid();
    // A run may have had XDG_RUNTIME_DIR where this process has none.
    let mut roots = vec![
        PathBuf::from(format!("/run/user/{uid}/vmlab")),
        PathBuf::from(format!("/tmp/vmlab-{uid}")),
        root(env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).as_deref()),
    ];
    roots.sort();
    roots.dedup();
    roots.iter().flat_map(|root| stale_in(root)).collect()
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The folder of all runs, given the value of `XDG_RUNTIME_DIR`.
fn root(xdg: Option<&Path>) -> PathBuf {
    // Room for "/vmlab/<pid>-<n>" with the largest pid of Linux, 2^22.
    let fits = |dir: &&Path| dir.as_os_str().len() + "/vmlab/4194304-999".len() <= MAX_PATH_BYTES;
    // After su or sudo the variable may still name another user's folder.
    let ours = |dir: &&Path| {
        dir.is_absolute()
            && fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid())
    };
    match xdg.filter(fits).filter(ours) {
        Some(dir) => dir.join("vmlab"),
        None => PathBuf::from(format!("/tmp/vmlab-{}", uid())),
    }
}

fn runtime_dir_in(root: &Path, owner: &Owner) -> Result<RuntimeDir, RuntimeDirError> {
    let create_error = |path: &Path| {
        let path = path.to_owned();
        move |source| RuntimeDirError::Create { path, source }
    };
    match DirBuilder::new().mode(0o700).create(root) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(create_error(root)(source));
        }
        _ => check_ours(root)?,
    }
    let mut attempt = 0_u32;
    let path = loop {
        let path = root.join(format!("{}-{attempt}", owner.pid));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => break path,
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
            Err(source) => return Err(create_error(&path)(source)),
        }
    };
    let dir = RuntimeDir { path };
    let file = dir.path.join(OWNER_FILE);
    let text = serde_json::to_string(owner)
        .map_err(io::Error::from)
        .and_then(|text| fs::write(&file, text));
    text.map_err(create_error(&file))?;
    Ok(dir)
}

/// A folder in /tmp may have been put there by anybody.
fn check_ours(root: &Path) -> Result<(), RuntimeDirError> {
    let not_ours = |found: String| Err(RuntimeDirError::NotOurs { path: root.to_owned(), found });
    let meta = fs::symlink_metadata(root)
        .map_err(|source| RuntimeDirError::Create { path: root.to_owned(), source })?;
    if !meta.is_dir() {
        return not_ours("not a folder".to_owned());
    }
    if meta.uid() != uid() {
        return not_ours(format!("owned by user {}", meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return not_ours(format!("mode {:o} instead of 700", meta.mode() & 0o7777));
    }
    Ok(())
}

fn stale_in(root: &Path) -> Vec<StaleRuntimeDir> {
    if check_ours(root).is_err() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut stale: Vec<StaleRuntimeDir> =
        entries.flatten().filter_map(|entry| as_stale(entry.path())).collect();
    stale.sort_by(|a, b| a.path.cmp(&b.path));
    stale
}

fn as_stale(path: PathBuf) -> Option<StaleRuntimeDir> {
    let (pid, _) = path.file_name()?.to_str()?.split_once('-')?;
    let pid: u32 = pid.parse().ok()?;
    let owner: Option<Owner> =
        fs::read(path.join(OWNER_FILE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let dead = match &owner {
        Some(owner) => !owner.is_alive(),
        // Killed between creating the folder and its file, or about to write it.
        None => !exists(pid),
    };
    dead.then_some(StaleRuntimeDir { path, owner })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn owner() -> Owner {
        Owner::current("run").expect("this process")
    }

    fn dead_owner() -> Owner {
        Owner { boot_id: "of an earlier boot".to_owned(), ..owner() }
    }

    #[test]
    fn folders_are_private_short_and_vanish() {
        let temp = tempfile::tempdir().expect("temp folder");
        let root = temp.path().join("vmlab");
        let first = runtime_dir_in(&root, &owner()).expect("first");
        let second = runtime_dir_in(&root, &owner()).expect("second");
        assert_ne!(first.path(), second.path());
        for dir in [root.as_path(), first.path()] {
            assert_eq!(fs::metadata(dir).expect("exists").mode() & 0o7777, 0o700);
        }
        assert_eq!(stale_in(&root), []);
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn folders_of_others_are_refused() {
        let temp = tempfile::tempdir().expect("temp folder");
        let check = |path: &Path, message: &str| {
            let error = runtime_dir_in(path, &owner()).expect_err(message).to_string();
            assert!(error.contains(message), "{error}");
        };
        let open = temp.path().join("open");
        fs::create_dir(&open).expect("mkdir");
        fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).expect("chmod");
        check(&open, "mode 755 instead of 700");
        let link = temp.path().join("link");
        symlink(temp.path(), &link).expect("symlink");
        check(&link, "not a folder");
        check(&temp.path().join("absent/vmlab"), "Cannot create");
        if rustix::process::geteuid().is_root() {
            let others = temp.path().join("others");
            DirBuilder::new().mode(0o700).create(&others).expect("mkdir");
            std::os::unix::fs::chown(&others, Some(65534), None).expect("chown");
            check(&others, "owned by user 65534");
        }
    }

    #[test]
    fn only_dead_owners_folders_are_stale() {
        let temp = tempfile::tempdir().expect("temp folder");
        let root = temp.path().join("vmlab");
        let alive = runtime_dir_in(&root, &owner()).expect("alive");
        let dead = runtime_dir_in(&root, &dead_owner()).expect("dead");
        fs::write(dead.path().join("qmp.sock"), "").expect("file in it");
        // Made, but killed before the owner file came; 2^22 + 1 is above every pid.
        fs::create_dir(root.join("4194305-0")).expect("mkdir");
        // About to write its owner file.
        fs::create_dir(root.join(format!("{}-77", std::process::id()))).expect("mkdir");
        fs::create_dir(root.join("something else")).expect("mkdir");
        let stale = stale_in(&root);
        let paths: Vec<&Path> = stale.iter().map(|dir| dir.path.as_path()).collect();
        let mut expected = vec![dead.path().to_owned(), root.join("4194305-0")];
        expected.sort();
        assert_eq!(paths, expected);
        assert_eq!(
            stale.iter().filter_map(|dir| dir.owner.clone()).collect::<Vec<_>>(),
            [dead_owner()]
        );
        for dir in &stale {
            dir.remove().expect("removed");
        }
        assert!(alive.path().exists() && !dead.path().exists());
    }

    #[test]
    fn root_falls_back_to_tmp() {
        let temp = tempfile::tempdir().expect("temp folder");
        let tmp = PathBuf::from(format!("/tmp/vmlab-{}", uid()));
        assert_eq!(root(Some(temp.path())), temp.path().join("vmlab"));
        assert_eq!(root(None), tmp);
        assert_eq!(root(Some(Path::new("relative"))), tmp);
        assert_eq!(root(Some(Path::new("/proc/no/such/folder"))), tmp);
        let long = temp.path().join("x".repeat(70));
        fs::create_dir(&long).expect("mkdir");
        assert_eq!(root(Some(&long)), tmp);
    }
}
