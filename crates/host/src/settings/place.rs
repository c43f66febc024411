//! Where a setting lives on this machine: from a row of the table and a value
//! to the single things that have to be changed, each checked before anything
//! is.

use std::collections::{BTreeMap, BTreeSet};

use topology::PcpuSet;

use super::cpuset::PartitionKind;
use super::module_steps::{presence_step, reload_step};
use super::partition_steps::partition_steps;
use super::refusal::{SettingRefusal, check_writable};
use super::step::SettingStep;
use super::target::SettingTarget;
use super::tree::SettingsTree;
use super::value::{self, HugePageCounts, SettingValues};
use super::{Setting, cpuset, modules, vfio, vfio_steps};

/// Where a setting lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingPath {
    /// The first of these files that is there; kernels moved some.
    Files(&'static [&'static str]),
    /// A file in each of the folders `folder/prefixN`, all alike.
    Each {
        /// Folder of the folders.
        folder: &'static str,
        /// What their names begin with.
        prefix: &'static str,
        /// The file in each.
        file: &'static str,
    },
    /// A parameter: the first of these modules and names that is there.
    Parameter(&'static [(&'static str, &'static str)]),
    /// Whether a module is loaded.
    Module(&'static str),
    /// A pool of huge pages of this size.
    Pool {
        /// Size of a page, KiB.
        kib: u32,
    },
    /// Idle states that are switched off, by name.
    IdleNames,
    /// Idle states that are switched off, by what waking up takes.
    IdleLatency,
    /// Where devices' interrupts go.
    Irqs,
    /// A cgroup of its own with pCPUs of its own.
    Partition(PartitionKind),
    /// Which PCI devices VFIO's driver has.
    Vfio,
    /// A parameter of the kernel's command line: told, never changed.
    BootOnly(&'static str),
}

/// The current value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentValue {
    /// The value; where several files differ, each of them with who has it, for people.
    pub value: String,
    /// The value of one file.
    pub(crate) single: String,
    /// What the machine offers, where it says that.
    pub offered: Vec<String>,
}

impl CurrentValue {
    fn new(value: String, offered: Vec<String>) -> Self {
        Self { single: value.clone(), value, offered }
    }
}

const PCPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";
const DEBUGFS: &str = "sys/kernel/debug";

/// What `setting` is on this machine now.
pub(super) fn present(
    setting: &Setting,
    tree: &SettingsTree,
) -> Result<CurrentValue, SettingRefusal> {
    let plain = |value| CurrentValue::new(value, Vec::new());
    match setting.place {
        SettingPath::Files(files) => read(setting, tree, &first_file(tree, files)?),
        SettingPath::Each { folder, prefix, file } => each(setting, tree, folder, prefix, file),
        SettingPath::Parameter(choices) => {
            let (module, parameter) = modules::find(tree, choices)?;
            read(setting, tree, &modules::parameter_file(module, parameter))
        }
        SettingPath::Module(module) => {
            let value = if tree.has(&modules::folder(module)) { "present" } else { "absent" };
            Ok(plain(value.to_owned()))
        }
        SettingPath::Pool { kib } => pool(setting, tree, kib),
        SettingPath::IdleNames => {
            let states = idle_states(tree)?;
            let off = states.iter().filter(|state| state.disabled);
            let names: BTreeSet<String> = off.map(|state| state.name.clone()).collect();
            let offered: BTreeSet<String> = states.into_iter().map(|state| state.name).collect();
            let offered = offered.into_iter().collect();
            Ok(CurrentValue::new(value::show_names(&names), offered))
        }
        SettingPath::IdleLatency => {
            let on = idle_states(tree)?.into_iter().filter(|state| !state.disabled);
            Ok(plain(on.map(|state| state.latency_us).max().unwrap_or(0).to_string()))
        }
        SettingPath::Irqs => {
            let used =
                irqs(tree)?.into_iter().fold(PcpuSet::new(), |all, (_, one)| all.union(&one));
            Ok(plain(value::show_pcpus(&online(tree)?.difference(&used))))
        }
        SettingPath::Partition(kind) => cpuset::present(tree, kind).map(plain),
        SettingPath::Vfio => vfio::present(tree).map(plain),
        SettingPath::BootOnly(parameter) => Ok(plain(on_command_line(tree, parameter))),
    }
}

/// What has to be changed so that `setting` is `wanted`.
pub(super) fn steps(
    setting: &Setting,
    tree: &SettingsTree,
    wanted: &str,
    reload: bool,
) -> Result<Vec<SettingStep>, SettingRefusal> {
    let one = |path: String| file_step(setting, tree, path, wanted).map(|step| vec![step]);
    match setting.place {
        SettingPath::Files(files) => one(first_file(tree, files)?),
        SettingPath::Each { folder, prefix, file } => {
            let folders = each_folder(tree, folder, prefix, file)?;
            folders.into_iter().map(|path| file_step(setting, tree, path, wanted)).collect()
        }
        SettingPath::Parameter(choices) => {
            let (module, parameter) = modules::find(tree, choices)?;
            let path = modules::parameter_file(module, parameter);
            if modules::is_written_live(tree, &path) {
                return one(path);
            }
            let value = read(setting, tree, &path)?.value;
            if value == wanted {
                return Ok(vec![SettingStep::new(SettingTarget::File(path), value.clone(), value)]);
            }
            reload_step(tree, module, parameter, wanted, reload).map(|step| vec![step])
        }
        SettingPath::Module(module) => presence_step(tree, module, wanted).map(|step| vec![step]),
        SettingPath::Pool { kib } => pool_steps(setting, tree, kib, wanted),
        SettingPath::IdleNames => {
            let states = idle_states(tree)?;
            let names = value::names(wanted).unwrap_or_default();
            if let Some(name) = names.iter().find(|name| states.iter().all(|s| s.name != **name)) {
                let offered = present(setting, tree)?.offered;
                return Err(SettingRefusal::NotOffered { value: name.clone(), offered });
            }
            idle_steps(tree, &states, |state| names.contains(&state.name))
        }
        SettingPath::IdleLatency => {
            let limit_us = wanted.parse().unwrap_or(u64::MAX);
            idle_steps(tree, &idle_states(tree)?, |state| state.latency_us > limit_us)
        }
        SettingPath::Irqs => irq_steps(tree, &value::pcpus(wanted).unwrap_or_default()),
        SettingPath::Partition(kind) => {
            let pcpus = value::pcpus(wanted).unwrap_or_default();
            check_pcpus(tree, &pcpus, "The partition would take all pCPUs")?;
            partition_steps(tree, kind, &pcpus)
        }
        SettingPath::Vfio => vfio_steps::steps(tree, &value::devices(wanted).unwrap_or_default()),
        SettingPath::BootOnly(parameter) => {
            Err(SettingRefusal::BootOnly { what: format!("{parameter}={wanted}") })
        }
    }
}

impl SettingPath {
    /// What can be changed for a setting that lives here. A journal names
    /// nothing else, so that it can't be made to write elsewhere.
    pub(super) fn owns(&self, target: &SettingTarget) -> bool {
        match (self, target) {
            (Self::Files(files), SettingTarget::File(path)) => files.contains(&path.as_str()),
            (Self::Each { folder, prefix, file }, SettingTarget::File(path)) => {
                numbered_inside(path, &format!("{folder}/{prefix}")) == Some(*file)
            }
            (Self::Parameter(choices), SettingTarget::File(path)) => {
                choices.iter().any(|(m, p)| *path == modules::parameter_file(m, p))
            }
            (Self::Parameter(choices), SettingTarget::Module(name)) => {
                choices.iter().any(|(module, _)| module == name)
            }
            (Self::Module(module), SettingTarget::Module(name)) => module == name,
            (Self::Pool { kib }, SettingTarget::File(path)) => {
                let file = format!("hugepages/hugepages-{kib}kB/nr_hugepages");
                *path == format!("sys/kernel/mm/{file}")
                    || numbered_inside(path, &format!("{NODES}/node")) == Some(file.as_str())
            }
            (Self::IdleNames | Self::IdleLatency, SettingTarget::File(path)) => {
                numbered_inside(path, &format!("{PCPUS}/cpu"))
                    .is_some_and(|rest| numbered_inside(rest, "cpuidle/state") == Some("disable"))
            }
            (Self::Irqs, SettingTarget::File(path)) => {
                path == DEFAULT_IRQS || numbered_inside(path, "proc/irq/") == Some(IRQ_FILE)
            }
            (Self::Partition(kind), SettingTarget::Partition { kind: theirs, .. }) => {
                kind == theirs
            }
            (Self::Partition(_), SettingTarget::Controller(_)) => true,
            (Self::Vfio, SettingTarget::Driver(_)) => true,
            (Self::Vfio, SettingTarget::Module(name)) => vfio::MODULES.contains(&name.as_str()),
            _ => false,
        }
    }
}

/// What is behind `beginN/` in `path`.
fn numbered_inside<'a>(path: &'a str, begin: &str) -> Option<&'a str> {
    let (number, rest) = path.strip_prefix(begin)?.split_once('/')?;
    number.parse::<u32>().is_ok().then_some(rest)
}

fn first_file(tree: &SettingsTree, files: &[&str]) -> Result<String, SettingRefusal> {
    if let Some(file) = files.iter().find(|file| tree.has(file)) {
        return Ok((*file).to_owned());
    }
    let path = files.first().copied().unwrap_or_default().to_owned();
    let hint = match path.starts_with(DEBUGFS) && tree.list(DEBUGFS).is_empty() {
        true => "debugfs is not mounted (`mount -t debugfs none /sys/kernel/debug`), or hidden",
        false => "this kernel or this host lacks it, or a container hides it",
    };
    Err(SettingRefusal::Absent { path, hint: hint.to_owned() })
}

fn read(
    setting: &Setting,
    tree: &SettingsTree,
    path: &str,
) -> Result<CurrentValue, SettingRefusal> {
    let unreadable = |why: String| SettingRefusal::Unreadable { path: path.to_owned(), why };
    let text = tree.text(path).map_err(|error| unreadable(error.to_string()))?;
    let value = SettingTarget::File(path.to_owned())
        .read(tree, &setting.values)
        .map_err(|error| unreadable(error.to_string()))?;
    Ok(CurrentValue::new(value, offered(tree, path, &text)))
}

/// What a file offers: by listing it, or by a file beside it.
fn offered(tree: &SettingsTree, path: &str, text: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let beside = match file {
        "scaling_governor" => "scaling_available_governors",
        "energy_performance_preference" => "energy_performance_available_preferences",
        "current_governor" => "available_governors",
        _ => return value::offered(text),
    };
    let text = tree.text(&format!("{folder}/{beside}")).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

fn file_step(
    setting: &Setting,
    tree: &SettingsTree,
    path: String,
    wanted: &str,
) -> Result<SettingStep, SettingRefusal> {
    let CurrentValue { value: old, offered, .. } = read(setting, tree, &path)?;
    if !offered.is_empty() && !offered.iter().any(|word| word == wanted) {
        return Err(SettingRefusal::NotOffered { value: wanted.to_owned(), offered });
    }
    if setting.values == SettingValues::Pcpus {
        check_pcpus(tree, &value::pcpus(wanted).unwrap_or_default(), "")?;
    }
    check_writable(&tree.path(&path), &path)?;
    Ok(SettingStep::new(SettingTarget::File(path), old, wanted.to_owned()))
}

fn each_folder(
    tree: &SettingsTree,
    folder: &str,
    prefix: &str,
    file: &str,
) -> Result<Vec<String>, SettingRefusal> {
    let numbers = tree.numbered(folder, prefix).into_iter();
    let paths = numbers.map(|number| format!("{folder}/{prefix}{number}/{file}"));
    let paths: Vec<String> = paths.filter(|path| tree.has(path)).collect();
    if paths.is_empty() {
        let hint = "this host or its driver lacks it, as most virtual machines do".to_owned();
        return Err(SettingRefusal::Absent { path: format!("{folder}/{prefix}*/{file}"), hint });
    }
    Ok(paths)
}

fn each(
    setting: &Setting,
    tree: &SettingsTree,
    folder: &str,
    prefix: &str,
    file: &str,
) -> Result<CurrentValue, SettingRefusal> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut offered = Vec::new();
    for path in each_folder(tree, folder, prefix, file)? {
        let present = read(setting, tree, &path)?;
        let number = path.trim_start_matches(folder).trim_start_matches('/');
        let name = number.split('/').next().unwrap_or_default().to_owned();
        values.entry(present.value).or_default().push(name);
        offered = present.offered;
    }
    let parts = values.iter().map(|(value, at)| format!("{value} ({})", at.join(" ")));
    let all = parts.collect::<Vec<_>>().join(", ");
    let differ = values.len() != 1;
    let single = values.into_keys().next().unwrap_or_default();
    Ok(CurrentValue { value: if differ { all } else { single.clone() }, single, offered })
}

/// The file of a pool by node; one without a node where there are none.
fn pool_files(tree: &SettingsTree, kib: u32) -> Result<Vec<(Option<u32>, String)>, SettingRefusal> {
    let file = format!("hugepages/hugepages-{kib}kB/nr_hugepages");
    // A node without memory can't have pages.
    let with_memory = tree.text(&format!("{NODES}/has_memory")).ok();
    let with_memory = with_memory.and_then(|text| text.parse::<PcpuSet>().ok());
    let nodes = tree.numbered(NODES, "node").into_iter();
    let nodes = nodes.filter(|node| with_memory.as_ref().is_none_or(|set| set.contains(*node)));
    let files = nodes.map(|node| (Some(node), format!("{NODES}/node{node}/{file}")));
    let files: Vec<_> = files.filter(|(_, path)| tree.has(path)).collect();
    if !files.is_empty() {
        return Ok(files);
    }
    let whole = format!("sys/kernel/mm/{file}");
    if tree.has(&whole) {
        return Ok(vec![(None, whole)]);
    }
    let hint = "this processor or kernel has no pages of that size".to_owned();
    Err(SettingRefusal::Absent { path: whole, hint })
}

fn pool(setting: &Setting, tree: &SettingsTree, kib: u32) -> Result<CurrentValue, SettingRefusal> {
    let mut nodes = BTreeMap::new();
    for (node, path) in pool_files(tree, kib)? {
        let pages = read(setting, tree, &path)?.value;
        nodes.insert(node.unwrap_or(0), pages.parse().unwrap_or(0));
    }
    let pages = match nodes.len() {
        1 => HugePageCounts::Total(nodes.into_values().sum()),
        _ => HugePageCounts::Nodes(nodes),
    };
    Ok(CurrentValue::new(pages.to_string(), Vec::new()))
}

/// A number for the whole host is spread evenly over the nodes: what the
/// kernel would choose could not be put back node by node.
fn pool_steps(
    setting: &Setting,
    tree: &SettingsTree,
    kib: u32,
    wanted: &str,
) -> Result<Vec<SettingStep>, SettingRefusal> {
    let files = pool_files(tree, kib)?;
    let wanted = match HugePageCounts::parse(wanted) {
        Some(HugePageCounts::Nodes(nodes)) => nodes,
        Some(HugePageCounts::Total(total)) => {
            let count = files.len() as u64;
            let share = |at: u64| total / count + u64::from(at < total % count);
            files.iter().zip(0..).map(|((node, _), at)| (node.unwrap_or(0), share(at))).collect()
        }
        None => BTreeMap::new(),
    };
    let mut steps = Vec::new();
    for (node, pages) in wanted {
        let Some((_, path)) = files.iter().find(|(known, _)| known.unwrap_or(0) == node) else {
            return Err(SettingRefusal::NoSuch { what: format!("node {node} with memory") });
        };
        steps.push(file_step(setting, tree, path.clone(), &pages.to_string())?);
    }
    Ok(steps)
}

/// An idle state of one pCPU.
struct PcpuIdleState {
    name: String,
    latency_us: u64,
    disabled: bool,
    file: String,
}

fn idle_states(tree: &SettingsTree) -> Result<Vec<PcpuIdleState>, SettingRefusal> {
    let mut states = Vec::new();
    for pcpu in tree.numbered(PCPUS, "cpu") {
        let folder = format!("{PCPUS}/cpu{pcpu}/cpuidle");
        for state in tree.numbered(&folder, "state") {
            let folder = format!("{folder}/state{state}");
            let text = |file: &str| tree.text(&format!("{folder}/{file}")).unwrap_or_default();
            states.push(PcpuIdleState {
                name: text("name"),
                latency_us: text("latency").parse().unwrap_or(0),
                disabled: text("disable") == "1",
                file: format!("{folder}/disable"),
            });
        }
    }
    if states.is_empty() {
        let path = format!("{PCPUS}/cpu*/cpuidle");
        let hint = "this host has no idle states to choose, as most virtual machines".to_owned();
        return Err(SettingRefusal::Absent { path, hint });
    }
    Ok(states)
}

fn idle_steps(
    tree: &SettingsTree,
    states: &[PcpuIdleState],
    disable: impl Fn(&PcpuIdleState) -> bool,
) -> Result<Vec<SettingStep>, SettingRefusal> {
    let switch = |on: bool| u32::from(on).to_string();
    let step = |state: &PcpuIdleState| {
        check_writable(&tree.path(&state.file), &state.file)?;
        let target = SettingTarget::File(state.file.clone());
        Ok(SettingStep::new(target, switch(state.disabled), switch(disable(state))))
    };
    states.iter().map(step).collect()
}

const IRQS: &str = "proc/irq";
const IRQ_FILE: &str = "smp_affinity_list";
const DEFAULT_IRQS: &str = "proc/irq/default_smp_affinity";

/// The pCPUs of each interrupt by its file.
fn irqs(tree: &SettingsTree) -> Result<Vec<(String, PcpuSet)>, SettingRefusal> {
    let files = tree.numbered(IRQS, "").into_iter().map(|irq| format!("{IRQS}/{irq}/{IRQ_FILE}"));
    let pcpus = |file: &str| tree.text(file).ok().and_then(|text| text.parse().ok());
    let found: Vec<_> = files.filter_map(|file| pcpus(&file).map(|pcpus| (file, pcpus))).collect();
    if found.is_empty() {
        let hint = "this host has no interrupts to move, or a container hides them".to_owned();
        return Err(SettingRefusal::Absent { path: format!("{IRQS}/*/{IRQ_FILE}"), hint });
    }
    Ok(found)
}

fn irq_steps(tree: &SettingsTree, off: &PcpuSet) -> Result<Vec<SettingStep>, SettingRefusal> {
    check_pcpus(tree, off, "Interrupts would have nowhere to go")?;
    let elsewhere = online(tree)?.difference(off);
    let mut files = irqs(tree)?;
    if let Ok(value) =
        SettingTarget::File(DEFAULT_IRQS.to_owned()).read(tree, &SettingValues::Pcpus)
    {
        files.push((DEFAULT_IRQS.to_owned(), value::pcpus(&value).unwrap_or_default()));
    }
    let mut steps = Vec::new();
    let mut movable = 0;
    let mut forbidden = None;
    for (file, old) in files {
        let left = old.difference(off);
        let new = if left.is_empty() { elsewhere.clone() } else { left };
        if new == old {
            continue;
        }
        match check_writable(&tree.path(&file), &file) {
            Ok(()) => movable += 1,
            // One of the kernel's own: told when it refuses.
            Err(refusal @ SettingRefusal::Forbidden { .. }) => forbidden = Some(refusal),
            Err(refusal) => return Err(refusal),
        }
        let step = SettingStep::new(SettingTarget::File(file), old.to_string(), new.to_string());
        steps.push(SettingStep { may_refuse: true, ..step });
    }
    match forbidden {
        Some(refusal) if movable == 0 => Err(refusal),
        _ => Ok(steps),
    }
}

fn online(tree: &SettingsTree) -> Result<PcpuSet, SettingRefusal> {
    let path = format!("{PCPUS}/online");
    let text = tree.text(&path).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| SettingRefusal::Unreadable {
        why: "which pCPUs there are is not known".to_owned(),
        path,
    })
}

/// Whether all of `pcpus` are online and, where `all` says what would happen
/// then, others are left.
fn check_pcpus(tree: &SettingsTree, pcpus: &PcpuSet, all: &str) -> Result<(), SettingRefusal> {
    let online = online(tree)?;
    let missing = pcpus.difference(&online);
    if !missing.is_empty() {
        return Err(SettingRefusal::NoSuch {
            what: format!("pCPU {missing} that is online ({online} are)"),
        });
    }
    match !all.is_empty() && *pcpus == online {
        true => Err(SettingRefusal::NothingLeft { what: all.to_owned() }),
        false => Ok(()),
    }
}

fn on_command_line(tree: &SettingsTree, parameter: &str) -> String {
    let text = tree.text("proc/cmdline").unwrap_or_default();
    let value = |word: &str| {
        let value = word.strip_prefix(parameter)?.strip_prefix('=')?;
        Some(value.to_owned())
    };
    text.split_ascii_whitespace().filter_map(value).next_back().unwrap_or("not given".to_owned())
}
