//! Whether a host can hold a VM.

use topology::Host;

use crate::{Accel, Arch, InvalidVm, SpecFinding, VmSettings, VmSpec, defaults};

/// What is wrong with running this VM on this host, errors first. What the
/// host's description does not know is not complained about.
///
/// What QEMU itself refuses is [`crate::qemu::check`]'s business.
#[must_use]
pub fn check_against(spec: &VmSpec, host: &Host) -> Vec<SpecFinding> {
    let mut findings = Vec::new();
    check_pins(spec, host, &mut findings);
    check_memory(spec, host, &mut findings);
    check_threads(spec, host, &mut findings);
    let online = host.online().len();
    if online > 0 && spec.vcpus() as usize > online {
        let vcpus = spec.vcpus();
        let consequence = match spec.accel {
            Accel::Kvm => "more than KVM recommends",
            Accel::Tcg => "they take turns",
        };
        findings.push(SpecFinding::warning(
            "vcpus",
            format!("vcpus {vcpus} on a host with {online} online pCPUs: {consequence}"),
        ));
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

fn check_pins(spec: &VmSpec, host: &Host, findings: &mut Vec<SpecFinding>) {
    let vcpus = spec.pins.vcpus.iter().map(|(vcpu, pcpus)| ("pins", format!("vCPU {vcpu}"), pcpus));
    let iothreads = spec.pins.iothreads.iter();
    let iothreads =
        iothreads.map(|(number, pcpus)| ("iothread_pins", format!("iothread {number}"), pcpus));
    let others = [
        ("emulator_pin", "the emulator thread", &spec.pins.emulator),
        ("vhost_pin", "the vhost threads", &spec.pins.vhost),
    ];
    let others = others
        .into_iter()
        .filter_map(|(field, thread, pcpus)| Some((field, thread.to_owned(), pcpus.as_ref()?)));
    if host.pcpus.is_empty() {
        return;
    }
    let online = host.online();
    for (field, thread, pcpus) in vcpus.chain(iothreads).chain(others) {
        for pcpu in pcpus {
            let wrong = match host.pcpu(pcpu) {
                None => format!("which this host does not have (online: {online})"),
                Some(found) if !found.online => "which is offline".to_owned(),
                Some(_) if host.allowed.as_ref().is_some_and(|all| !all.contains(pcpu)) => {
                    "which this process may not use (cpuset or affinity)".to_owned()
                }
                Some(_) => continue,
            };
            let message = format!("{field} \"{pcpus}\" puts {thread} on pCPU {pcpu}, {wrong}");
            findings.push(SpecFinding::error(field, message));
        }
    }
}

/// The property of the CPU model without which the guest takes the threads of its
/// topology for cores, where it has any. A guest finds the threads of AMD's processors by
/// the feature `topoext`, which QEMU never switches on by itself and TCG does not have.
///
/// Source: QEMU `target/i386/cpu.c` (`no_autoenable_flags`, `TCG_EXT3_FEATURES`);
/// Linux `arch/x86/kernel/cpu/amd.c`. Seen with QEMU 7.2 and Linux 6.1.
fn hidden_threads(spec: &VmSpec, host: &Host) -> Option<&'static str> {
    let mut words = spec.cpu_model.split(',');
    let model = words.next().unwrap_or_default();
    let any = |part: &str| words.clone().any(|word| word.contains(part));
    let (lost, instead) = match spec.accel {
        Accel::Tcg => (["max", "qemu64"].contains(&model), "vendor=GenuineIntel"),
        // In a run host-model is QEMU's host.
        Accel::Kvm => {
            let is_host = ["host", "host-model", "max"].contains(&model);
            (host.is_amd() && is_host, "topoext=on")
        }
    };
    let is_hidden = spec.arch == Arch::X86_64
        && spec.topology.threads > 1
        && lost
        && !any("vendor=")
        && !any("topoext");
    is_hidden.then_some(instead)
}

/// The VM whose guest finds the threads that its topology says: on an AMD host QEMU's
/// model `host` shows them with `topoext` alone.
///
/// # Errors
/// As [`VmSpec::new`].
pub fn with_shown_threads(spec: VmSpec, host: &Host) -> Result<VmSpec, InvalidVm> {
    let Some(feature) = hidden_threads(&spec, host).filter(|_| spec.accel == Accel::Kvm) else {
        return Ok(spec);
    };
    let cpu_model = format!("{},{feature}", spec.cpu_model);
    VmSpec::new(VmSettings { cpu_model, ..VmSettings::clone(&spec) })
}

fn check_threads(spec: &VmSpec, host: &Host, findings: &mut Vec<SpecFinding>) {
    if let Some(instead) = hidden_threads(spec, host) {
        let (threads, cpu_model) = (spec.topology.threads, &spec.cpu_model);
        findings.push(SpecFinding::warning(
            "topology",
            format!(
                "threads = {threads}: with cpu_model {cpu_model:?} the guest takes each thread for \
                 a core; write cpu_model = \"{cpu_model},{instead}\""
            ),
        ));
    }
}

fn check_memory(spec: &VmSpec, host: &Host, findings: &mut Vec<SpecFinding>) {
    let memory_mib = spec.memory_mib;
    let mib = |bytes: u64| bytes >> 20;
    if let Some(total) = host.memory_bytes.map(mib)
        && memory_mib > total
    {
        let message = format!("memory_mib {memory_mib} is more than this host has: {total} MiB");
        findings.push(SpecFinding::error("memory_mib", message));
    } else if let Some(available) = host.available_bytes.map(mib)
        && memory_mib > available
    {
        let message = format!(
            "memory_mib {memory_mib} is more than this host has available: {available} MiB; the \
             guest may be killed when it touches it all"
        );
        findings.push(SpecFinding::warning("memory_mib", message));
    }
    let little = defaults::LITTLE_MEMORY_MIB;
    if memory_mib < little {
        let message =
            format!("memory_mib {memory_mib} is little: a Debian guest needs {little} to get up");
        findings.push(SpecFinding::warning("memory_mib", message));
    }
}
