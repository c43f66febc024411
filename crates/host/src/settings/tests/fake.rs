//! A machine of files that has every setting of the table, and a kernel that
//! treats them as Linux does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::super::tree::KernelTree;
use super::super::*;

pub(super) const MOUNT: &str = "sys/fs/cgroup";
/// An NVMe controller with one disk.
pub(super) const NVME: &str = "0000:01:00.0";

/// A made-up machine: four pCPUs, two nodes.
pub(super) struct Machine {
    _temp: TempDir,
    pub(super) tree: SettingsTree,
    pub(super) kernel: Arc<FakeKernel>,
}

/// What Linux does when its files are written.
#[derive(Debug)]
pub(super) struct FakeKernel {
    root: PathBuf,
    /// Modules that can be loaded, with their parameters.
    loadable: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    /// Writes so far, and after how many one fails.
    writes: AtomicU32,
    fails_at: AtomicU32,
    /// Pages that each node can give at most.
    pub(super) free_pages: AtomicU32,
    /// Files that refuse.
    pub(super) refusing: Mutex<Vec<String>>,
}

/// No write fails.
const NEVER: u32 = u32::MAX;

impl FakeKernel {
    /// Lets the write after the next `count` fail, and no other.
    pub(super) fn fail_after(&self, count: u32) {
        self.fails_at.store(self.writes.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn load(&self, module: &str, parameters: &[&str]) -> io::Result<()> {
        let loadable = self.loadable.lock().expect("not poisoned");
        let defaults = loadable
            .get(module)
            .ok_or_else(|| io::Error::other(format!("Module {module} not found")))?;
        let folder = self.root.join("sys/module").join(module);
        if folder.exists() {
            return Ok(());
        }
        fs::create_dir_all(folder.join("parameters"))?;
        fs::create_dir_all(folder.join("holders"))?;
        fs::write(folder.join("initstate"), "live\n")?;
        fs::write(folder.join("refcnt"), "0\n")?;
        let mut all = defaults.clone();
        for parameter in parameters {
            let (name, value) = parameter.split_once('=').ok_or(io::ErrorKind::InvalidInput)?;
            if all.insert(name.to_owned(), value.to_owned()).is_none() {
                return Err(io::Error::other(format!("unknown parameter {name}")));
            }
        }
        for (name, value) in all {
            let file = folder.join("parameters").join(&name);
            fs::write(&file, format!("{value}\n"))?;
            // Polling is set live; the others when the module is loaded.
            let mode = if name.contains("halt_poll") { 0o644 } else { 0o444 };
            fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        }
        if module == "kvm_intel" || module == "kvm_amd" {
            fs::write(self.root.join("sys/module/kvm/holders").join(module), "")?;
        }
        self.count_holders()
    }

    /// Binds the PCI device to the driver of its override, if that is loaded, else to
    /// its own, which finds its disk again.
    fn probe(&self, address: &str) -> io::Result<()> {
        let device = self.root.join("sys/bus/pci/devices").join(address);
        let by = fs::read_to_string(device.join("driver_override"))?;
        let own = fs::read_to_string(device.join("own_driver"))?;
        let driver = match by.trim() {
            "" | "(null)" => own.trim(),
            by => by,
        };
        if driver == "vfio-pci" && !self.root.join("sys/module/vfio_pci").is_dir() {
            return Ok(());
        }
        let drivers = self.root.join("sys/bus/pci/drivers");
        std::os::unix::fs::symlink(drivers.join(driver), device.join("driver"))?;
        if driver == "nvme" {
            self.show_disk(&device)?;
        }
        Ok(())
    }

    fn show_disk(&self, device: &Path) -> io::Result<()> {
        let shown = self.root.join("sys/class/block/nvme0n1");
        fs::create_dir_all(shown.parent().expect("has one"))?;
        std::os::unix::fs::symlink(device.join("nvme/nvme0/nvme0n1"), shown)
    }

    fn unbind(&self, address: &str) -> io::Result<()> {
        let device = self.root.join("sys/bus/pci/devices").join(address);
        if fs::read_link(device.join("driver"))?.ends_with("nvme") {
            fs::remove_file(self.root.join("sys/class/block/nvme0n1"))?;
        }
        fs::remove_file(device.join("driver"))
    }

    fn unload(&self, module: &str) -> io::Result<()> {
        let folder = self.root.join("sys/module").join(module);
        let held = fs::read_dir(folder.join("holders"))?.next().is_some();
        let used = fs::read_to_string(folder.join("refcnt"))?.trim() != "0";
        if held || used {
            return Err(io::Error::other(format!("Module {module} is in use")));
        }
        fs::remove_dir_all(folder)?;
        let _ = fs::remove_file(self.root.join("sys/module/kvm/holders").join(module));
        self.count_holders()
    }

    /// Each holder is a user.
    fn count_holders(&self) -> io::Result<()> {
        let kvm = self.root.join("sys/module/kvm");
        let Ok(holders) = fs::read_dir(kvm.join("holders")) else { return Ok(()) };
        fs::write(kvm.join("refcnt"), format!("{}\n", holders.count()))
    }
}

impl KernelTree for FakeKernel {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        if self.writes.fetch_add(1, Ordering::Relaxed) == self.fails_at.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(22));
        }
        let name = file.to_string_lossy().into_owned();
        if self.refusing.lock().expect("not poisoned").iter().any(|part| name.contains(part)) {
            return Err(io::Error::from_raw_os_error(5));
        }
        match file.file_name().and_then(|name| name.to_str()) {
            Some("drivers_probe") => return self.probe(text),
            Some("unbind") => return self.unbind(text),
            // Both for the empty line, as Linux takes it.
            Some("driver_override") if text.trim().is_empty() => {
                return fs::write(file, "(null)\n");
            }
            _ => {}
        }
        let before = fs::read_to_string(file)?;
        let after = if name.ends_with("cgroup.subtree_control") {
            let mut all: Vec<&str> = before.split_whitespace().collect();
            all.retain(|one| *one != "cpuset");
            if text == "+cpuset" {
                all.insert(0, "cpuset");
            }
            all.join(" ") + "\n"
        } else if before.contains('[') {
            let words = before.split_whitespace().map(|word| word.trim_matches(['[', ']']));
            let mark = |word: &str| if word == text { format!("[{word}]") } else { word.into() };
            words.map(mark).collect::<Vec<String>>().join(" ") + "\n"
        } else if matches!(before.trim(), "Y" | "N") {
            if text == "1" { "Y\n".to_owned() } else { "N\n".to_owned() }
        } else if name.ends_with("nr_hugepages") {
            let free = self.free_pages.load(Ordering::Relaxed);
            format!("{}\n", text.parse::<u32>().map_err(io::Error::other)?.min(free))
        } else {
            format!("{}\n", text.trim())
        };
        fs::write(file, after)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)?;
        for (name, text) in [
            ("cgroup.type", "domain\n"),
            ("cgroup.threads", ""),
            ("cpuset.cpus", "\n"),
            ("cpuset.cpus.partition", "member\n"),
        ] {
            fs::write(folder.join(name), text)?;
        }
        Ok(())
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        fs::remove_dir_all(folder)
    }

    fn run(&self, program: &Path, args: &[&str]) -> io::Result<()> {
        match (program.file_name().and_then(|name| name.to_str()), args) {
            (Some("modprobe"), ["-D", _]) => Ok(()),
            (Some("modprobe"), ["-r", module]) | (Some("rmmod"), [module]) => self.unload(module),
            (Some("modprobe"), [module, parameters @ ..]) => self.load(module, parameters),
            (Some("keep-kvm"), ["end"]) => {
                fs::remove_dir_all(self.root.join("run/vmlab/kept-kvm"))?;
                fs::write(self.root.join("sys/module/kvm_intel/refcnt"), "0\n")
            }
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }
}

impl Machine {
    pub(super) fn new() -> Self {
        // In memory, where journals are safe on disk at once.
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let temp = temp.expect("temp folder");
        let root = temp.path().to_owned();
        let kernel = Arc::new(FakeKernel {
            root: root.clone(),
            loadable: Mutex::new(loadable()),
            writes: AtomicU32::new(0),
            fails_at: AtomicU32::new(NEVER),
            free_pages: AtomicU32::new(1_000_000),
            refusing: Mutex::new(Vec::new()),
        });
        let tree = SettingsTree { kernel: kernel.clone(), ..SettingsTree::at(&root) };
        let machine = Self { _temp: temp, tree, kernel };
        machine.files();
        for module in ["kvm", "kvm_intel", "kvm_amd", "haltpoll", "vhost_net"] {
            machine.kernel.load(module, &[]).expect("loaded");
        }
        machine
    }

    fn files(&self) {
        self.file("sys/devices/system/cpu/online", "0-3");
        self.file("proc/cmdline", "quiet kvm-arm.mode=nvhe");
        self.file("proc/self/mounts", &format!("cgroup2 /{MOUNT} cgroup2 rw 0 0"));
        self.file(&format!("{MOUNT}/cgroup.controllers"), "cpuset cpu memory");
        self.file(&format!("{MOUNT}/cgroup.subtree_control"), "cpu memory");
        self.file(&format!("{MOUNT}/cgroup.threads"), "");
        self.file("usr/sbin/modprobe", "");
        self.file("bin/rmmod", "");
        self.file("sbin/keep-kvm", "");
        for irq in [24, 25] {
            self.file(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3");
        }
        self.file("proc/irq/default_smp_affinity", "0000000f");
        for pcpu in 0..4 {
            for (number, (name, latency_us)) in
                [("POLL", 0), ("C1", 2), ("C6", 133)].iter().enumerate()
            {
                let state = format!("sys/devices/system/cpu/cpu{pcpu}/cpuidle/state{number}");
                self.file(&format!("{state}/name"), name);
                self.file(&format!("{state}/latency"), &latency_us.to_string());
                self.file(&format!("{state}/disable"), "0");
            }
        }
        let governors = "sys/devices/system/cpu/cpuidle/available_governors";
        self.file(governors, "ladder menu haltpoll");
        self.pci_device(NVME, "nvme", "3");
        self.file(&format!("sys/bus/pci/devices/{NVME}/nvme/nvme0/nvme0n1/dev"), "259:0");
        let device = self.tree.path(&format!("sys/bus/pci/devices/{NVME}"));
        self.kernel.show_disk(&device).expect("shown");
        self.file("sys/bus/pci/drivers_probe", "");
        self.file("sys/bus/pci/drivers/vfio-pci/unbind", "vfio-pci");
        for setting in SETTINGS {
            match setting.place {
                SettingPath::Files(files) => self.file(files[0], first_text(setting, files[0])),
                SettingPath::Each { folder, prefix, file } => {
                    for number in [0, 2] {
                        let folder = format!("{folder}/{prefix}{number}");
                        let path = format!("{folder}/{file}");
                        self.file(&path, first_text(setting, &path));
                        let list = "performance powersave balance_power";
                        self.file(&format!("{folder}/scaling_available_governors"), list);
                        let beside = "energy_performance_available_preferences";
                        self.file(&format!("{folder}/{beside}"), list);
                    }
                }
                SettingPath::Pool { kib } => {
                    for node in [0, 1] {
                        let folder = format!("sys/devices/system/node/node{node}/hugepages");
                        self.file(&format!("{folder}/hugepages-{kib}kB/nr_hugepages"), "1");
                    }
                }
                _ => {}
            }
        }
    }

    /// A PCI device in that IOMMU group, bound to that driver.
    pub(super) fn pci_device(&self, address: &str, driver: &str, group: &str) {
        let device = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{device}/driver_override"), "(null)");
        self.file(&format!("{device}/own_driver"), driver);
        let group = format!("sys/kernel/iommu_groups/{group}");
        // Links in the real one.
        self.file(&format!("{group}/devices/{address}"), "");
        self.file(&format!("sys/bus/pci/drivers/{driver}/unbind"), driver);
        let link = |name: &str, to: &str| {
            let link = self.tree.path(&format!("{device}/{name}"));
            std::os::unix::fs::symlink(self.tree.path(to), link).expect("linked");
        };
        link("iommu_group", &group);
        link("driver", &format!("sys/bus/pci/drivers/{driver}"));
    }

    pub(super) fn file(&self, name: &str, text: &str) {
        let path = self.tree.path(name);
        fs::create_dir_all(path.parent().expect("has one")).expect("mkdir");
        fs::write(path, format!("{text}\n")).expect("written");
    }

    /// Nothing but what `before` says is there.
    #[track_caller]
    pub(super) fn is_as(&self, before: &BTreeMap<PathBuf, String>, when: &str) {
        let now = self.snapshot();
        let paths: BTreeSet<_> = before.keys().chain(now.keys()).collect();
        let differ = paths.into_iter().filter(|path| before.get(*path) != now.get(*path));
        let all: Vec<String> = differ
            .map(|path| format!("{path:?}: {:?} -> {:?}", before.get(path), now.get(path)))
            .collect();
        assert!(all.is_empty(), "{when}: {}", all.join("\n"));
    }

    /// All files with their texts, but for journals.
    pub(super) fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        fn walk(folder: &Path, all: &mut BTreeMap<PathBuf, String>) {
            for entry in fs::read_dir(folder).expect("readable").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    walk(&path, all);
                } else if !path.ends_with("settings.lock") {
                    all.insert(path.clone(), fs::read_to_string(path).expect("text"));
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(&self.tree.root, &mut all);
        all
    }

    pub(super) fn value(&self, id: &str) -> String {
        setting(id).expect("known").read(&self.tree).expect("readable").value
    }

    /// Journals that are there.
    pub(super) fn journals(&self) -> usize {
        let names = self.tree.list("var/lib/vmlab/settings");
        names.iter().filter(|name| name.ends_with(".json")).count()
    }
}

fn first_text(setting: &Setting, path: &str) -> &'static str {
    match setting.values {
        SettingValues::Words(_) if setting.id == "ksm" => "0",
        SettingValues::Words(words) if words.len() == 2 => "[none] scan-time",
        SettingValues::Words(words) if words.contains(&"defer") => {
            "always defer defer+madvise [madvise] never"
        }
        SettingValues::Words(words) if words.contains(&"lazy") => "none voluntary [full] lazy",
        SettingValues::Words(words) if words.contains(&"force") => {
            "always within_size advise [never] deny force"
        }
        SettingValues::Words(_) => "always [madvise] never",
        SettingValues::Offered if path.contains("cpuidle") => "menu",
        SettingValues::Offered => "powersave",
        SettingValues::Pcpus if path.ends_with("/cpumask") => "0000000f",
        SettingValues::Pcpus => "0-3",
        SettingValues::Switch => "0",
        SettingValues::Number { .. }
        | SettingValues::Pages
        | SettingValues::IdleStates
        | SettingValues::Devices => "3",
    }
}

fn loadable() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for setting in SETTINGS {
        let value = if setting.values == SettingValues::Switch { "N" } else { "3" };
        match setting.place {
            SettingPath::Parameter(choices) => {
                for (module, parameter) in choices {
                    let parameters = all.entry((*module).to_owned()).or_default();
                    parameters.insert((*parameter).to_owned(), value.to_owned());
                }
            }
            SettingPath::Module(module) => {
                all.entry(module.to_owned()).or_default();
            }
            SettingPath::Vfio => {
                all.extend(vfio::MODULES.map(|module| (module.to_owned(), BTreeMap::new())));
            }
            _ => {}
        }
    }
    all
}
