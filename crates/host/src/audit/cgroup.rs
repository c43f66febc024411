//! What the control groups of a thread allow: cpuset and CPU bandwidth, in the
//! first and the second version and in both at once; what memory is charged to them.
//!
//! libvirt gives every vCPU, every iothread and the emulator a group of its
//! own, so this is read for each thread.
//!
//! Source: Linux `Documentation/admin-guide/cgroup-v2.rst`,
//! `cgroup-v1/cpusets.rst`, `scheduler/sched-bwc.rst`; `cgroups(7)`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::PcpuSet;

/// What a thread's cgroups allow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// The group that `pcpus` and `nodes` are of.
    pub cpuset_group: Option<String>,
    /// pCPUs of its cpuset that are online.
    pub pcpus: Option<PcpuSet>,
    /// Memory nodes of its cpuset.
    pub nodes: Option<PcpuSet>,
    /// The tightest CPU bandwidth limit that it is under; `None` without one.
    pub quota: Option<CpuQuota>,
}

/// A limit on CPU time: all threads of the group together may use `quota_us`
/// in every `period_us`, and then stand still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuQuota {
    /// Group that has it.
    pub group: String,
    /// CPU time, µs.
    pub quota_us: u64,
    /// Of so much time, µs.
    pub period_us: u64,
}

impl CpuQuota {
    /// How many pCPUs' worth of time that is.
    #[must_use]
    pub fn pcpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us.max(1) as f64
    }
}

/// Where one hierarchy is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// The group that shows at the mount point.
    root: String,
}

/// The hierarchies that matter, as this process sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hierarchies {
    cpuset: Option<Mount>,
    cpu: Option<Mount>,
    memory: Option<Mount>,
    unified: Option<Mount>,
}

impl Hierarchies {
    /// Reads the mounts below `root` (`/`, or a folder in tests).
    pub(crate) fn find(root: &Path) -> Self {
        let text = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
        let mut found = Self::parse(&text);
        let Self { cpuset, cpu, memory, unified } = &mut found;
        for mount in [cpuset, cpu, memory, unified].into_iter().flatten() {
            mount.point = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        }
        found
    }

    /// Reads `/proc/<pid>/mountinfo`.
    fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let left: Vec<&str> = left.split(' ').collect();
            let (Some(group), Some(point)) = (left.get(3), left.get(4)) else { continue };
            let mut right = right.split(' ');
            let (kind, options) = (right.next(), right.nth(1).unwrap_or_default());
            let mount = || Mount { point: PathBuf::from(point), root: (*group).to_owned() };
            let has = |name: &str| options.split(',').any(|option| option == name);
            match kind {
                Some("cgroup2") => found.unified = Some(mount()),
                Some("cgroup") if has("cpuset") => {
                    found.cpuset = Some(mount());
                    if has("cpu") {
                        found.cpu = Some(mount());
                    }
                }
                Some("cgroup") if has("cpu") => found.cpu = Some(mount()),
                Some("cgroup") if has("memory") => found.memory = Some(mount()),
                _ => {}
            }
        }
        found
    }

    /// Memory that is charged to the group named in `cgroup` (the text of
    /// `/proc/<pid>/cgroup`), B; none of the root's, and without the controller.
    pub(crate) fn charged_bytes(&self, cgroup: &str) -> Option<u64> {
        let groups = parse_groups(cgroup);
        let bytes = |mount: &Option<Mount>, controller: &str, file: &str| {
            let folder = mount.as_ref()?.folder(groups.get(controller)?);
            fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
        };
        bytes(&self.memory, "memory", "memory.usage_in_bytes")
            .or_else(|| bytes(&self.unified, "", "memory.current"))
    }

    /// What the groups named in `cgroup` (the text of
    /// `/proc/<pid>/task/<tid>/cgroup`) allow.
    pub(crate) fn limits(&self, cgroup: &str) -> Limits {
        let groups = parse_groups(cgroup);
        let mut limits = Limits::default();
        let v1_cpuset = self.cpuset.as_ref().zip(groups.get("cpuset"));
        let v2 = self.unified.as_ref().zip(groups.get(""));
        if let Some((mount, group)) = v1_cpuset {
            limits.cpuset_group = Some(group.clone());
            let folder = mount.folder(group);
            limits.pcpus = first_set(&[&folder], &["cpuset.effective_cpus", "cpuset.cpus"]);
            limits.nodes = first_set(&[&folder], &["cpuset.effective_mems", "cpuset.mems"]);
        } else if let Some((mount, group)) = v2 {
            limits.cpuset_group = Some(group.clone());
            // A group without the controller has its parent's.
            let chain = mount.chain(group);
            let folders: Vec<&PathBuf> = chain.iter().map(|(_, folder)| folder).collect();
            limits.pcpus = first_set(&folders, &["cpuset.cpus.effective"]);
            limits.nodes = first_set(&folders, &["cpuset.mems.effective"]);
        }
        let mut quotas: Vec<CpuQuota> = Vec::new();
        if let Some((mount, group)) = self.cpu.as_ref().zip(groups.get("cpu")) {
            quotas.extend(mount.chain(group).iter().filter_map(|(name, folder)| {
                let number = |file: &str| fs::read_to_string(folder.join(file)).ok();
                let quota = number("cpu.cfs_quota_us")?;
                quota_v1(name, &quota, &number("cpu.cfs_period_us")?)
            }));
        } else if let Some((mount, group)) = v2 {
            quotas.extend(mount.chain(group).iter().filter_map(|(name, folder)| {
                quota_v2(name, &fs::read_to_string(folder.join("cpu.max")).ok()?)
            }));
        }
        limits.quota = quotas.into_iter().min_by(|a, b| a.pcpus().total_cmp(&b.pcpus()));
        limits
    }
}

impl Mount {
    fn folder(&self, group: &str) -> PathBuf {
        let below = match self.root.as_str() {
            "/" => group,
            root => group.strip_prefix(root).unwrap_or(group),
        };
        self.point.join(below.trim_start_matches('/'))
    }

    /// The group and those above it, innermost first.
    fn chain(&self, group: &str) -> Vec<(String, PathBuf)> {
        let groups = Path::new(group).ancestors();
        let named = groups.filter_map(|group| group.to_str()).filter(|group| !group.is_empty());
        // Above what is mounted there is nothing to read.
        named
            .map(|group| (group.to_owned(), self.folder(group)))
            .filter(|(_, folder)| folder.starts_with(&self.point))
            .collect()
    }
}

/// Group by controller; the second version's stands under `""`.
fn parse_groups(cgroup: &str) -> BTreeMap<String, String> {
    let mut groups = BTreeMap::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        for controller in controllers.split(',') {
            groups.insert(controller.to_owned(), group.to_owned());
        }
    }
    groups
}

fn first_set(folders: &[&PathBuf], files: &[&str]) -> Option<PcpuSet> {
    folders.iter().flat_map(|folder| files.iter().map(|file| folder.join(file))).find_map(|path| {
        let set: PcpuSet = fs::read_to_string(path).ok()?.trim().parse().ok()?;
        (!set.is_empty()).then_some(set)
    })
}

fn quota_v1(group: &str, quota: &str, period: &str) -> Option<CpuQuota> {
    // -1 stands for none.
    let quota_us = quota.trim().parse().ok()?;
    Some(CpuQuota { group: group.to_owned(), quota_us, period_us: period.trim().parse().ok()? })
}

fn quota_v2(group: &str, max: &str) -> Option<CpuQuota> {
    let (quota, period) = max.trim().split_once(' ')?;
    // "max" stands for none.
    let quota_us = quota.parse().ok()?;
    Some(CpuQuota { group: group.to_owned(), quota_us, period_us: period.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of files, hand-made in the kernel's format.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, text).expect("written");
        }
        folder
    }

    fn set(text: &str) -> Option<PcpuSet> {
        Some(text.parse().expect("a list"))
    }

    #[test]
    fn second_version_as_libvirt_uses_it() {
        // Hand-made: libvirt 9.0's groups on a host with the second version only.
        let tree = tree(&[
            (
                "proc/self/mountinfo",
                "35 24 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
            ),
            ("sys/fs/cgroup/machine.slice/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/machine.slice/vm.scope/cpu.max", "400000 100000\n"),
            ("sys/fs/cgroup/machine.slice/vm.scope/libvirt/vcpu0/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/machine.slice/vm.scope/libvirt/vcpu0/cpuset.cpus.effective", "2\n"),
            ("sys/fs/cgroup/machine.slice/vm.scope/cpuset.cpus.effective", "0-7\n"),
            ("sys/fs/cgroup/machine.slice/vm.scope/cpuset.mems.effective", "0-1\n"),
        ]);
        let hierarchies = Hierarchies::find(tree.path());
        let vcpu = hierarchies.limits("0::/machine.slice/vm.scope/libvirt/vcpu0\n");
        assert_eq!((vcpu.pcpus, vcpu.nodes), (set("2"), set("0-1")));
        let quota = vcpu.quota.expect("a quota");
        assert_eq!(quota.group, "/machine.slice/vm.scope/libvirt/vcpu0");
        assert!((quota.pcpus() - 0.5).abs() < 1e-9);
        let emulator = hierarchies.limits("0::/machine.slice/vm.scope/libvirt/emulator\n");
        assert_eq!(emulator.pcpus, set("0-7"));
        assert_eq!(emulator.quota.map(|quota| quota.quota_us), Some(400_000));
        assert_eq!(hierarchies.limits("0::/elsewhere\n").quota, None);
    }

    #[test]
    fn first_version_beside_the_second() {
        let mountinfo = include_str!("../../testdata/linux-6.18-x86_64/qemu/mountinfo");
        let tree = tree(&[
            ("proc/self/mountinfo", mountinfo),
            ("sys/fs/cgroup/cpuset/vm/cpuset.cpus", "0-1\n"),
            ("sys/fs/cgroup/cpuset/vm/cpuset.effective_cpus", "1\n"),
            ("sys/fs/cgroup/cpuset/vm/cpuset.effective_mems", "0\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/vm/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu/vm/cpu.cfs_period_us", "100000\n"),
        ]);
        let limits =
            Hierarchies::find(tree.path()).limits("3:cpuset:/vm\n1:cpu,cpuacct:/vm\n0::/\n");
        assert_eq!((limits.pcpus, limits.nodes), (set("1"), set("0")));
        let quota = CpuQuota { group: "/vm".to_owned(), quota_us: 150_000, period_us: 100_000 };
        assert_eq!(limits.quota, Some(quota));
    }

    #[test]
    fn a_container_shows_a_part_of_the_tree() {
        // Hand-made: a bind mount of one group, as container engines make it.
        let tree = tree(&[
            (
                "proc/self/mountinfo",
                "9 8 0:30 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n",
            ),
            ("sys/fs/cgroup/cpuset/vm/cpuset.cpus", "4-5\n"),
        ]);
        let limits = Hierarchies::find(tree.path()).limits("4:cpuset:/docker/abc/vm\n");
        assert_eq!(limits.pcpus, set("4-5"));
    }

    #[test]
    fn broken_texts_allow_nothing_to_be_said() {
        assert_eq!(Hierarchies::parse("x\n - \n1 2 3 - cgroup2\n"), Hierarchies::default());
        assert_eq!(Hierarchies::default().limits("0::/\n"), Limits::default());
        for max in ["", "max", "max 100000", "x y"] {
            assert_eq!(quota_v2("/", max), None, "{max:?}");
        }
    }

    #[test]
    fn memory_is_charged_to_the_group_itself() {
        let first = tree(&[
            (
                "proc/self/mountinfo",
                "36 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 37 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/memory/lab/memory.usage_in_bytes", "4096\n"),
            ("sys/fs/cgroup/unified/memory.current", "1\n"),
        ]);
        let charged = |groups: &str| Hierarchies::find(first.path()).charged_bytes(groups);
        assert_eq!(charged("4:memory:/lab\n0::/\n"), Some(4096));
        assert_eq!(charged("0::/\n"), Some(1));
        assert_eq!(charged("4:memory:/gone\n0::/gone\n"), None);
        assert_eq!(Hierarchies::default().charged_bytes("0::/\n"), None);
    }
}
