//! The machine as a whole: names, kernel, processor, whether it is virtual.

use std::collections::BTreeMap;

use super::reader::SysfsReader;
use crate::{Host, HostVirtualisation};

pub(super) fn read(reader: &mut SysfsReader, host: &mut Host) {
    // "(none)" stands where nobody named the machine.
    host.hostname = reader.text("proc/sys/kernel/hostname").filter(|name| name != "(none)");
    host.kernel = reader.text("proc/sys/kernel/osrelease").or_else(|| {
        // "Linux version 6.1.0 (...)".
        let version = reader.text("proc/version")?;
        version.split_whitespace().nth(2).map(str::to_owned)
    });
    let cmdline = reader.text("proc/cmdline").unwrap_or_default();
    host.cmdline = cmdline
        .split_whitespace()
        .filter(|parameter| bears_on_performance(parameter))
        .map(str::to_owned)
        .collect();

    let cpuinfo = match reader.raw("proc/cpuinfo") {
        Some(text) => Cpuinfo::parse(&text),
        None => {
            reader.warn("The processor is unknown: /proc/cpuinfo cannot be read");
            Cpuinfo::default()
        }
    };
    host.arch = reader.text("proc/sys/kernel/arch").or_else(|| cpuinfo.arch().map(str::to_owned));
    host.cpu_model = cpuinfo.model();
    host.virtualised = virtualised(reader, &cpuinfo);
}

/// Parameters whose name, or whose module's name, changes what a VM gets.
fn bears_on_performance(parameter: &str) -> bool {
    const NAMES: &[&str] = &[
        "amd_iommu",
        "amd_pstate",
        "clocksource",
        "default_hugepagesz",
        "gather_data_sampling",
        "hugepages",
        "hugepagesz",
        "idle",
        "intel_iommu",
        "intel_pstate",
        "iommu",
        "irqaffinity",
        "isolcpus",
        "kthread_cpus",
        "l1tf",
        "maxcpus",
        "mds",
        "mem",
        "memmap",
        "mitigations",
        "nmi_watchdog",
        "no-kvmclock",
        "no-steal-acc",
        "nohz",
        "nohz_full",
        "nopti",
        "nopvspin",
        "nosmt",
        "nosoftlockup",
        "nospectre_v2",
        "nowatchdog",
        "nr_cpus",
        "numa",
        "numa_balancing",
        "numa_spinlock",
        "preempt",
        "psi",
        "pti",
        "rcu_nocb_poll",
        "rcu_nocbs",
        "retbleed",
        "skew_tick",
        "spec_rstack_overflow",
        "spec_store_bypass_disable",
        "spectre_v2",
        "threadirqs",
        "transparent_hugepage",
        "tsc",
        "tsx",
    ];
    const MODULES: &[&str] = &[
        "cpufreq",
        "cpuidle",
        "cpuidle_haltpoll",
        "haltpoll",
        "intel_idle",
        "kvm",
        "kvm_amd",
        "kvm_arm",
        "kvm_intel",
        "nohz",
        "processor",
        "rcutree",
        "vhost",
        "vhost_net",
    ];
    let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
    match name.split_once('.') {
        // The kernel takes dashes and underscores for the same.
        Some((module, _)) => MODULES.contains(&module.replace('-', "_").as_str()),
        None => NAMES.contains(&name),
    }
}

/// What `/proc/cpuinfo` says, by key; the values of all processors, each once.
#[derive(Default)]
struct Cpuinfo {
    values: BTreeMap<String, Vec<String>>,
}

impl Cpuinfo {
    fn parse(text: &str) -> Self {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            // These differ for every processor and nobody asks here.
            if matches!(key, "processor" | "apicid" | "initial apicid" | "cpu MHz") {
                continue;
            }
            let known = values.entry(key.to_owned()).or_default();
            if !known.iter().any(|known| known == value) {
                known.push(value.to_owned());
            }
        }
        Cpuinfo { values }
    }

    fn first(&self, key: &str) -> Option<&str> {
        let value = self.values.get(key)?.first()?;
        (!value.is_empty()).then_some(value.as_str())
    }

    fn arch(&self) -> Option<&'static str> {
        if self.first("vendor_id") == Some("IBM/S390") {
            Some("s390x")
        } else if let Some(flags) = self.first("flags") {
            // "lm" is long mode, the 64-bit one.
            let long_mode = flags.split_whitespace().any(|flag| flag == "lm");
            Some(if long_mode { "x86_64" } else { "i686" })
        } else if self.first("CPU architecture") == Some("8") {
            Some("aarch64")
        } else if self.first("isa").is_some_and(|isa| isa.starts_with("rv64")) {
            Some("riscv64")
        } else if self.first("cpu").is_some_and(|name| name.starts_with("POWER")) {
            // Big-endian ones are gone; the file does not tell.
            Some("ppc64le")
        } else {
            None
        }
    }

    fn model(&self) -> Option<String> {
        if let Some(names) = self.values.get("model name") {
            return names.iter().find(|name| !name.is_empty()).cloned();
        }
        if let Some(implementer) = self.first("CPU implementer") {
            let parts = self.values.get("CPU part")?;
            let names: Vec<String> = parts.iter().map(|part| arm_core(implementer, part)).collect();
            return Some(names.join(" + "));
        }
        // POWER, RISC-V and s390.
        self.first("cpu")
            .or_else(|| self.first("uarch"))
            .or_else(|| self.first("vendor_id"))
            .map(str::to_owned)
    }
}

/// An arm64 core's name by the numbers of its identification register.
///
/// Source: Linux `arch/arm64/include/asm/cputype.h`.
fn arm_core(implementer: &str, part: &str) -> String {
    let name = match (implementer, part) {
        ("0x41", "0xd03") => "Cortex-A53",
        ("0x41", "0xd05") => "Cortex-A55",
        ("0x41", "0xd07") => "Cortex-A57",
        ("0x41", "0xd08") => "Cortex-A72",
        ("0x41", "0xd0b") => "Cortex-A76",
        ("0x41", "0xd0c") => "Neoverse-N1",
        ("0x41", "0xd40") => "Neoverse-V1",
        ("0x41", "0xd41") => "Cortex-A78",
        ("0x41", "0xd44") => "Cortex-X1",
        ("0x41", "0xd49") => "Neoverse-N2",
        ("0x41", "0xd4f") => "Neoverse-V2",
        ("0x41", "0xd84") => "Neoverse-V3",
        ("0x48", "0xd01") => "Kunpeng-920",
        ("0xc0", "0xac3") => "Ampere-1",
        ("0xc0", "0xac4") => "Ampere-1A",
        _ => return format!("arm64 implementer {implementer} part {part}"),
    };
    name.to_owned()
}

fn virtualised(reader: &mut SysfsReader, cpuinfo: &Cpuinfo) -> HostVirtualisation {
    let mut signs = Vec::new();
    let flag = cpuinfo
        .first("flags")
        .map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    if flag == Some(true) {
        signs.push("the processor's hypervisor flag".to_owned());
    }
    let vendor = reader.text("sys/class/dmi/id/sys_vendor");
    let product = reader.text("sys/class/dmi/id/product_name");
    let dmi = [vendor.as_deref(), product.as_deref()]
        .iter()
        .flatten()
        .any(|name| names_a_hypervisor(name));
    if dmi {
        let names: Vec<String> = vendor.iter().chain(&product).cloned().collect();
        signs.push(format!("DMI: {}", names.join(" ")));
    }
    if let Some(kind) = reader.text("sys/hypervisor/type") {
        signs.push(format!("/sys/hypervisor/type: {kind}"));
    }
    if let Some(kind) = reader.text("proc/device-tree/hypervisor/compatible") {
        signs.push(format!("device tree: {kind}"));
    }
    if let Some(machine) = cpuinfo.first("machine").filter(|name| name.contains("qemu")) {
        signs.push(format!("/proc/cpuinfo: {machine}"));
    }
    if let Some(program) = reader.text("proc/sysinfo").and_then(|text| {
        let line = text.lines().find(|line| line.contains("Control Program"))?;
        let (_, program) = line.split_once(':')?;
        Some(program.trim().to_owned())
    }) {
        signs.push(format!("/proc/sysinfo: {program}"));
    }
    let is_vm = if !signs.is_empty() {
        Some(true)
    } else if flag.is_some() || vendor.is_some() {
        Some(false)
    } else {
        None
    };
    HostVirtualisation { is_vm, signs, ..HostVirtualisation::default() }
}

/// Whether a DMI vendor or product stands for a hypervisor's machine.
fn names_a_hypervisor(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "Bochs",
        "Google Compute Engine",
        "KVM",
        "KubeVirt",
        "OpenStack",
        "Parallels",
        "QEMU",
        "VMware",
        "Virtual Machine",
        "VirtualBox",
        "Xen",
        "innotek GmbH",
    ];
    NAMES.iter().any(|known| name.contains(known))
}
