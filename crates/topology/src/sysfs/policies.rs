//! Policies that decide how fast a VM runs: pages, frequency, idling, KVM.

use std::collections::BTreeMap;

use super::reader::SysfsReader;
use crate::{Cpuidle, FrequencyPolicy, Host, IdleState, KernelModule, KernelSettings, PcpuSet};

const PCPUS: &str = "sys/devices/system/cpu";
const MODULES: &str = "sys/module";

pub(super) fn read(reader: &mut SysfsReader, host: &mut Host) {
    host.settings = read_settings(reader);
    read_frequency(reader, host);
    host.cpuidle = read_cpuidle(reader, host.online().first());
    read_modules(reader, host);
    warn_of_quota(reader);
}

fn read_settings(reader: &mut SysfsReader) -> KernelSettings {
    const THP: &str = "sys/kernel/mm/transparent_hugepage";
    const KSM: &str = "sys/kernel/mm/ksm";
    KernelSettings {
        thp_enabled: chosen(reader, &format!("{THP}/enabled")),
        thp_defrag: chosen(reader, &format!("{THP}/defrag")),
        ksm_run: reader.id(&format!("{KSM}/run")),
        ksm_merge_across_nodes: reader
            .count(&format!("{KSM}/merge_across_nodes"))
            .map(|value| value != 0),
        numa_balancing: reader.id("proc/sys/kernel/numa_balancing"),
        smt: reader.text(&format!("{PCPUS}/smt/control")),
        clock_source: reader
            .text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }
}

/// The word in brackets: `always [madvise] never`.
fn chosen(reader: &SysfsReader, path: &str) -> Option<String> {
    let text = reader.text(path)?;
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

fn read_frequency(reader: &mut SysfsReader, host: &mut Host) {
    let mut folders: Vec<(String, Option<u32>)> = reader
        .numbered(&format!("{PCPUS}/cpufreq"), "policy")
        .into_iter()
        .map(|policy| (format!("{PCPUS}/cpufreq/policy{policy}"), None))
        .collect();
    if folders.is_empty() {
        // Before Linux 4.3 each pCPU had a folder of its own.
        folders =
            host.online().iter().map(|id| (format!("{PCPUS}/cpu{id}/cpufreq"), Some(id))).collect();
    }
    for (folder, owner) in folders {
        let Some(driver) = reader.text(&format!("{folder}/scaling_driver")) else {
            continue;
        };
        let pcpus: PcpuSet = match owner {
            Some(id) => PcpuSet::from_iter([id]),
            // Numbers with spaces between, not the list format.
            None => reader
                .text(&format!("{folder}/affected_cpus"))
                .unwrap_or_default()
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect(),
        };
        if let Some(max_khz) = reader.count(&format!("{folder}/cpuinfo_max_freq")) {
            for pcpu in &mut host.pcpus {
                if pcpus.contains(pcpu.id) {
                    pcpu.max_khz = Some(max_khz);
                }
            }
        }
        let policy = FrequencyPolicy {
            pcpus: PcpuSet::new(),
            driver: Some(driver),
            governor: reader.text(&format!("{folder}/scaling_governor")),
            min_khz: reader.count(&format!("{folder}/scaling_min_freq")),
            max_khz: reader.count(&format!("{folder}/scaling_max_freq")),
        };
        add_policy(&mut host.frequency, policy, pcpus);
    }
}

/// Joins policies that are set alike: most drivers have one for each pCPU.
fn add_policy(policies: &mut Vec<FrequencyPolicy>, policy: FrequencyPolicy, pcpus: PcpuSet) {
    if pcpus.is_empty() {
        return;
    }
    let alike = policies
        .iter_mut()
        .find(|known| FrequencyPolicy { pcpus: PcpuSet::new(), ..(*known).clone() } == policy);
    match alike {
        Some(known) => known.pcpus.extend(&pcpus),
        None => policies.push(FrequencyPolicy { pcpus, ..policy }),
    }
}

fn read_cpuidle(reader: &mut SysfsReader, first: Option<u32>) -> Cpuidle {
    let folder = format!("{PCPUS}/cpuidle");
    let governor = reader
        .text(&format!("{folder}/current_governor"))
        .or_else(|| reader.text(&format!("{folder}/current_governor_ro")));
    let mut haltpoll = reader.values(&format!("{MODULES}/cpuidle_haltpoll/parameters"));
    haltpoll.extend(reader.values(&format!("{MODULES}/haltpoll/parameters")));
    Cpuidle {
        driver: reader.text(&format!("{folder}/current_driver")),
        governor,
        states: first.map_or_else(Vec::new, |first| read_idle_states(reader, first)),
        haltpoll,
    }
}

fn read_idle_states(reader: &mut SysfsReader, pcpu: u32) -> Vec<IdleState> {
    let folder = format!("{PCPUS}/cpu{pcpu}/cpuidle");
    let mut states = Vec::new();
    for state in reader.numbered(&folder, "state") {
        let folder = format!("{folder}/state{state}");
        let Some(name) = reader.text(&format!("{folder}/name")) else {
            continue;
        };
        states.push(IdleState {
            name,
            latency_us: reader.count(&format!("{folder}/latency")),
            disabled: reader.count(&format!("{folder}/disable")).is_some_and(|value| value != 0),
        });
    }
    states
}

fn read_modules(reader: &mut SysfsReader, host: &mut Host) {
    let names = reader.list(MODULES);
    if names.is_empty() {
        reader.warn("Kernel modules are unknown: /sys/module cannot be read");
    }
    let of_family = |family: &str| -> Vec<KernelModule> {
        let prefix = format!("{family}_");
        names
            .iter()
            .filter(|name| *name == family || name.starts_with(&prefix))
            .map(|name| KernelModule {
                name: name.clone(),
                parameters: reader.values(&format!("{MODULES}/{name}/parameters")),
            })
            .collect()
    };
    host.kvm.modules = of_family("kvm");
    host.vhost = of_family("vhost");

    let devices = misc_devices(reader);
    host.kvm.device = devices.as_ref().map(|devices| devices.iter().any(|name| name == "kvm"));
    // A module that is built in and has no parameters shows no folder, but its
    // device tells.
    for device in devices.unwrap_or_default() {
        let name = device.replace('-', "_");
        if name.starts_with("vhost_") && host.vhost.iter().all(|module| module.name != name) {
            host.vhost.push(KernelModule { name, parameters: BTreeMap::new() });
        }
    }
    host.vhost.sort_by(|a, b| a.name.cmp(&b.name));
}

/// Names of the kernel's small character devices; `None` where both places
/// that list them are hidden.
fn misc_devices(reader: &SysfsReader) -> Option<Vec<String>> {
    if let Some(text) = reader.raw("proc/misc") {
        let names = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        return Some(names.map(str::to_owned).collect());
    }
    let names = reader.list("sys/class/misc");
    (!names.is_empty()).then_some(names)
}

/// Warns of a CPU quota on the process's control group or one above it.
///
/// Source: Linux `Documentation/admin-guide/cgroup-v2.rst`, `cpu.max`.
fn warn_of_quota(reader: &mut SysfsReader) {
    let groups = reader.text("proc/self/cgroup").unwrap_or_default();
    let mut group = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/")
        .trim_end_matches('/');
    let mut tightest: Option<f64> = None;
    loop {
        if let Some(text) = reader.text(&format!("sys/fs/cgroup{group}/cpu.max"))
            && let Some((quota, period)) = text.split_once(' ')
            && let (Ok(quota), Ok(period)) = (quota.parse::<f64>(), period.parse::<f64>())
            && period > 0.0
        {
            let share = quota / period;
            tightest = Some(tightest.map_or(share, |known| known.min(share)));
        }
        match group.rsplit_once('/') {
            Some((above, _)) => group = above,
            None => break,
        }
    }
    if let Some(share) = tightest {
        reader.warn(format!(
            "A CPU quota holds this process to the time of {share:.2} pCPUs (cpu.max of its control group)"
        ));
    }
}
