//! What machine this is, read now from its files.
//!
//! The reader itself is [`topology::sysfs::read_host`]; here is only the tree
//! of real files below a folder.

mod declared;
mod emulator;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use topology::Host;
use topology::sysfs::{self, read_host};

use crate::kvm_extensions;
use crate::settings::{self, SettingsTree};

pub use declared::{DECLARED_HOST, DECLARED_HOST_VARIABLE};

/// The most bytes read of one file. Files of the kernel are far shorter; the
/// limit guards against a saved tree with something else in it.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Reads the machine whose `sys/` and `proc/` lie in `root`: `/`, or a folder
/// with a saved tree.
///
/// Never fails: what can't be read is absent and named in
/// [`Host::warnings`]. Use [`check_root`] first where the folder is a user's.
pub fn live(root: &Path) -> Host {
    let mut host = read_host(&FolderFiles { root });
    if root == Path::new("/") {
        declared::lay_over(&mut host);
        emulator::find(&mut host);
        host.kvm.disable_exits = kvm_extensions::disable_exits();
    }
    host.tunables = settings::read_all(&SettingsTree::at(root));
    // Old kernels have no file for it; a saved tree may come from elsewhere.
    if root == Path::new("/") && host.arch.is_none() {
        host.arch = Some(std::env::consts::ARCH.to_owned());
    }
    host
}

/// Error type for [`check_root`].
#[derive(Debug, thiserror::Error)]
pub enum CheckRootError {
    /// The folder is missing or unreadable.
    #[error("Cannot read the folder {}", .root.display())]
    Unreadable {
        /// The folder.
        root: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The folder holds no tree.
    #[error(
        "{} holds no sys/devices/system/cpu: give a folder with copies of /sys and /proc in it", .root.display()
    )]
    NoTree {
        /// The folder.
        root: PathBuf,
    },
}

/// Checks that a folder holds a tree that [`live`] can read.
///
/// # Errors
/// [`CheckRootError`] names the folder and says what to do.
pub fn check_root(root: &Path) -> Result<(), CheckRootError> {
    fs::read_dir(root)
        .map_err(|source| CheckRootError::Unreadable { root: root.to_owned(), source })?;
    if root.join("sys/devices/system/cpu").is_dir() {
        Ok(())
    } else {
        Err(CheckRootError::NoTree { root: root.to_owned() })
    }
}

/// Real files below a folder.
struct FolderFiles<'a> {
    root: &'a Path,
}

impl sysfs::Tree for FolderFiles<'_> {
    fn read(&self, path: &str) -> Option<String> {
        let path = self.root.join(path);
        // Opening a pipe or a device in a saved tree could wait for ever.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        let file = fs::File::open(path).ok()?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn list(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else {
            return Vec::new();
        };
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_machine() {
        let host = live(Path::new("/"));
        assert!(!host.online().is_empty(), "{:?}", host.warnings);
        assert!(host.arch.is_some());
        assert_eq!(Host::from_json(&host.to_json()).expect("own text"), host);
    }

    #[test]
    fn reads_a_saved_tree() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pcpus = folder.path().join("sys/devices/system/cpu");
        fs::create_dir_all(pcpus.join("cpu0/topology")).expect("a folder");
        fs::write(pcpus.join("online"), "0\n").expect("a file");
        fs::write(pcpus.join("cpu0/topology/core_id"), "7\n").expect("a file");
        fs::write(pcpus.join("isolated"), b"\xff\n").expect("a file");
        check_root(folder.path()).expect("a tree");
        let host = live(folder.path());
        assert_eq!(host.pcpus[0].core, Some(7));
        assert_eq!(host.isolated, None);
        assert_eq!(host.arch, None, "not this machine's");
    }

    #[test]
    fn a_wrong_root_is_one_clear_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let error = check_root(folder.path()).expect_err("an empty folder");
        assert!(error.to_string().ends_with(
            "holds no sys/devices/system/cpu: give a folder with copies of /sys and /proc in it"
        ));
        let missing = folder.path().join("missing");
        let error = check_root(&missing).expect_err("no folder");
        assert_eq!(error.to_string(), format!("Cannot read the folder {}", missing.display()));
    }
}
