//! pCPUs of one's own: a partition of the cpuset controller, as a cgroup right
//! below the root.
//!
//! The cgroup is threaded, so that single threads of a process can be moved
//! into it while its others stay outside: the vCPUs of a VM run on the
//! partition's pCPUs, its emulator thread elsewhere. Only threads inside can
//! be pinned to its pCPUs.
//!
//! Source: Linux `Documentation/admin-guide/cgroup-v2.rst`, "Threads" and
//! "cpuset.cpus.partition".

use std::fs;
use std::io;
use std::path::PathBuf;

use topology::PcpuSet;

use super::refusal::SettingRefusal;
use super::tree::SettingsTree;
use super::value::{self, ABSENT};

/// Begins the name of a partition's folder, and of nothing else.
const PREFIX: &str = "vmlab-";
pub(super) const CONTROL: &str = "cgroup.subtree_control";

/// Kind of a cpuset partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionKind {
    /// With load balancing among its pCPUs.
    Root,
    /// Without.
    Isolated,
}

/// What a kind is called by the kernel.
pub(super) fn word(kind: PartitionKind) -> &'static str {
    match kind {
        PartitionKind::Root => "root",
        PartitionKind::Isolated => "isolated",
    }
}

pub(super) fn is_our_folder(path: &str) -> bool {
    let Some((parent, name)) = path.rsplit_once('/') else { return false };
    let kinds = [PartitionKind::Root, PartitionKind::Isolated];
    parent.starts_with("sys/fs/cgroup")
        && kinds.iter().any(|kind| name.strip_prefix(PREFIX) == Some(word(*kind)))
}

pub(super) fn is_controller_file(path: &str) -> bool {
    path.starts_with("sys/fs/cgroup") && path.ends_with(&format!("/{CONTROL}"))
}

/// Where cgroup v2 is mounted.
fn mount(tree: &SettingsTree) -> Option<String> {
    let mounts = tree.text("proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (folder, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| folder.trim_start_matches('/').to_owned())
    })
}

/// The mount point, if partitions can be made below it.
pub(super) fn usable(tree: &SettingsTree) -> Result<String, SettingRefusal> {
    let refuse = |text: String| Err(SettingRefusal::Cgroup(text));
    let Some(mount) = mount(tree) else {
        return refuse(
            "cgroup v2 is not mounted: boot with systemd.unified_cgroup_hierarchy=1".into(),
        );
    };
    let controllers = tree.text(&format!("{mount}/cgroup.controllers")).unwrap_or_default();
    if !controllers.split_ascii_whitespace().any(|name| name == "cpuset") {
        return refuse(format!(
            "cgroup v2 at /{mount} has no cpuset controller (it has: {controllers}); cgroup v1 may hold it: boot with cgroup_no_v1=all"
        ));
    }
    // The root cgroup alone has no type.
    if tree.has(&format!("{mount}/cgroup.type")) {
        return refuse(format!(
            "/{mount} is not the root of all cgroups, as in a container: run vmlab on the host"
        ));
    }
    Ok(mount)
}

pub(super) fn folder(mount: &str, kind: PartitionKind) -> String {
    format!("{mount}/{PREFIX}{}", word(kind))
}

/// The pCPUs of vmlab's partition of that kind.
pub(super) fn present(tree: &SettingsTree, kind: PartitionKind) -> Result<String, SettingRefusal> {
    let folder = folder(&usable(tree)?, kind);
    let path = format!("{folder}/cpuset.cpus");
    let pcpus: PcpuSet = tree.text(&path).unwrap_or_default().parse().unwrap_or_default();
    Ok(value::show_pcpus(&pcpus))
}

/// `absent`, or the kind as the kernel says it and the pCPUs.
pub(super) fn read(tree: &SettingsTree, folder: &str) -> io::Result<String> {
    if !tree.has(folder) {
        return Ok(ABSENT.to_owned());
    }
    let kind = tree.text(&format!("{folder}/cpuset.cpus.partition"))?;
    let pcpus = tree.text(&format!("{folder}/cpuset.cpus"))?;
    Ok(format!("{kind} {pcpus}"))
}

pub(super) fn write(tree: &SettingsTree, folder: &str, wanted: &str) -> io::Result<()> {
    let write =
        |file: &str, text: &str| tree.kernel.write(&tree.path(&format!("{folder}/{file}")), text);
    let Some((kind, pcpus)) = wanted.split_once(' ') else {
        if !tree.has(folder) {
            return Ok(());
        }
        // Its threads go back to the root cgroup, to which their processes
        // belong.
        let (parent, _) = folder.rsplit_once('/').unwrap_or_default();
        for thread in tree.text(&format!("{folder}/cgroup.threads"))?.lines() {
            match tree.kernel.write(&tree.path(&format!("{parent}/cgroup.threads")), thread) {
                // It ended meanwhile.
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                other => other?,
            }
        }
        return tree.kernel.remove_folder(&tree.path(folder));
    };
    tree.kernel.make_folder(&tree.path(folder))?;
    write("cgroup.type", "threaded")?;
    write("cpuset.cpus", pcpus)?;
    write("cpuset.cpus.partition", kind)
}

/// A partition that vmlab made, which threads can be moved into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    folder: PathBuf,
    root: PathBuf,
    /// Its pCPUs, on which nobody else runs.
    pub pcpus: PcpuSet,
}

/// The partitions that are there now on the machine of `tree`.
#[must_use]
pub fn partitions(tree: &SettingsTree) -> Vec<Partition> {
    let Ok(mount) = usable(tree) else { return Vec::new() };
    let partition = |kind| {
        let folder = folder(&mount, kind);
        let pcpus = tree.text(&format!("{folder}/cpuset.cpus")).ok()?.parse().ok()?;
        Some(Partition { folder: tree.path(&folder), root: tree.path(&mount), pcpus })
    };
    [PartitionKind::Root, PartitionKind::Isolated].into_iter().filter_map(partition).collect()
}

impl Partition {
    /// Puts process `pid`, all of it, into the root cgroup, from which its
    /// threads can be taken in.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reach(&self, pid: u32) -> io::Result<()> {
        fs::write(self.root.join("cgroup.procs"), pid.to_string())
    }

    /// Takes thread `tid` in, whose process was reached before.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_in(&self, tid: u32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.threads"), tid.to_string())
    }
}

const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// `1` where children have the controller.
pub(super) fn read_controller(tree: &SettingsTree, path: &str) -> io::Result<String> {
    let text = tree.text(path)?;
    let on = text.split_ascii_whitespace().any(|name| name == "cpuset");
    Ok(u32::from(on).to_string())
}

pub(super) fn write_controller(tree: &SettingsTree, path: &str, wanted: &str) -> io::Result<()> {
    let sign = if wanted == "1" { '+' } else { '-' };
    tree.kernel.write(&tree.path(path), &format!("{sign}cpuset"))
}
