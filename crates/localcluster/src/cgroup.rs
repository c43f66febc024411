//! The cluster's cgroups: a folder of one name in every hierarchy, below which the servers
//! and the pods have theirs. Version 1 has a hierarchy for each controller, version 2 one.
//!
//! Source: `cgroups(7)`, Documentation/admin-guide/cgroup-v1/cpusets.rst of Linux.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::DownError;
use host::state_dir::FileError;

const ROOT: &str = "/sys/fs/cgroup";
/// The servers' own, beside the pods'.
const SERVERS: &str = "servers";
/// How long processes that were killed may take to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(20);
/// A cgroup tells nobody in version 1 that it is empty.
const LOOK: Duration = Duration::from_millis(20);
/// What version 2 hands down to pods: a kubelet wants all that it knows of what there is.
const CONTROLLERS: [&str; 6] = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"];

/// The top folder of each hierarchy.
fn hierarchies(root: &Path) -> Vec<PathBuf> {
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    // Links are other names of controllers that share a hierarchy.
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let folders = entries.flatten().filter(is_folder).map(|entry| entry.path());
    folders.filter(|folder| folder.join("cgroup.procs").exists()).collect()
}

/// Makes the cgroup `name` in every hierarchy, and moves this process into its part for
/// servers.
pub(crate) fn enter(name: &str) -> Result<(), FileError> {
    for hierarchy in hierarchies(Path::new(ROOT)) {
        if hierarchy.join("cgroup.controllers").exists() && hierarchy == Path::new(ROOT) {
            // What is not there, or may not be handed down, is missed by the kubelet.
            for controller in CONTROLLERS {
                let _ =
                    fs::write(hierarchy.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
        let mut folder = hierarchy.clone();
        for part in [name, SERVERS] {
            let above = folder.clone();
            folder.push(part);
            fs::create_dir_all(&folder).map_err(FileError::of("make the cgroup", &folder))?;
            // A new cpuset of version 1 has nothing, and takes no process.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let (from, to) = (above.join(file), folder.join(file));
                if hierarchy != Path::new(ROOT) && from.exists() {
                    let all = fs::read(&from).map_err(FileError::of("read", &from))?;
                    fs::write(&to, all).map_err(FileError::of("write", &to))?;
                }
            }
        }
        let processes = folder.join("cgroup.procs");
        fs::write(&processes, "0").map_err(FileError::of("write", &processes))?;
    }
    Ok(())
}

/// Removes the cgroup `name` from every hierarchy, with all below; its processes must have
/// been ended.
pub(crate) fn remove(name: &str) -> Result<(), DownError> {
    let deadline = Instant::now() + LEAVE_LIMIT;
    for folder in left(name) {
        loop {
            match remove_below(&folder) {
                Ok(()) => break,
                // Processes that were killed leave a moment later.
                Err((_, error))
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
                {
                    thread::sleep(LOOK);
                }
                Err((path, source)) => return Err(DownError::Cgroup { path, source }),
            }
        }
    }
    Ok(())
}

/// The folders of that name that there are.
pub(crate) fn left(name: &str) -> Vec<PathBuf> {
    let all = hierarchies(Path::new(ROOT)).into_iter().map(|hierarchy| hierarchy.join(name));
    all.filter(|folder| folder.is_dir()).collect()
}

/// The deepest first: files of a cgroup are not removed, it goes with them.
fn remove_below(folder: &Path) -> Result<(), (PathBuf, io::Error)> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|error| (folder.to_owned(), error)),
    };
    if let Ok(entries) = fs::read_dir(folder) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove_below(&entry.path())?;
            }
        }
    }
    gone(fs::remove_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        for name in ["cpu", "memory", "other"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        for name in ["cpu", "memory"] {
            fs::write(root.path().join(name).join("cgroup.procs"), "").unwrap();
        }
        std::os::unix::fs::symlink("cpu", root.path().join("cpu,cpuacct")).unwrap();
        let mut found = hierarchies(root.path());
        found.sort();
        assert_eq!(found, [root.path().join("cpu"), root.path().join("memory")]);
        fs::write(root.path().join("cgroup.controllers"), "cpu").unwrap();
        assert_eq!(hierarchies(root.path()), [root.path()]);
        assert!(hierarchies(&root.path().join("none")).is_empty());
    }
}
