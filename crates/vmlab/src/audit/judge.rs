//! What the rules say of VMs that run.

use std::fs;

use host::audit::RunningVm;
use lint::site::SiteRules;
use lint::{Context, Finding, JoinedText, ObservedVm, ThreadOwner};
use topology::{Host, PcpuSet};

use super::facts;
use crate::offers::ActiveDomain;

/// Where libvirt keeps what it runs; root may read it.
const LIBVIRT_STATUS: &str = "/run/libvirt/qemu";

/// Each of `vms`, which run on `host`, as the rules look at it; `domains` are what a libvirt
/// said that it runs.
pub(crate) fn transcripts(
    vms: &[RunningVm],
    domains: &[ActiveDomain],
    host: &Host,
) -> Vec<ObservedVm> {
    let online = host.online();
    let asked = |vm: &RunningVm| match domains.iter().find(|domain| is_of(vm, domain)) {
        Some(domain) => lint::asked_pins(&domain.xml),
        None => asked_of(vm),
    };
    vms.iter().map(|vm| facts::running(vm, host, &online, &asked(vm))).collect()
}

/// Whether a process is a domain's: libvirt gives QEMU the domain's UUID.
pub(crate) fn is_of(vm: &RunningVm, domain: &ActiveDomain) -> bool {
    let mut words = vm.argv.windows(2);
    vm.asked.libvirt && words.any(|pair| pair[0] == "-uuid" && pair[1] == domain.uuid)
}

/// What is wrong with VMs that run, each named by its process, by a site's rules too;
/// and what could not be judged.
pub(crate) fn findings(
    running: &[ObservedVm],
    context: &Context,
    rules: &[&SiteRules],
) -> (Vec<Finding>, Vec<String>) {
    let (mut findings, mut fleet, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for vm in running {
        let text = JoinedText::new(vm.to_string(), vm.option_files.clone());
        match lint::check_joined(&file_of(vm.pid), &text, context, rules) {
            Ok(checked) => {
                findings.extend(checked.findings);
                fleet.extend(checked.vms);
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    findings.extend(lint::check_fleet(&fleet, context));
    (findings, problems)
}

/// How findings name a VM that runs.
pub(crate) fn file_of(pid: u32) -> String {
    format!("/proc/{pid}")
}

/// The pins that libvirt was asked for, where it runs the VM and tells.
fn asked_of(vm: &RunningVm) -> Vec<(ThreadOwner, PcpuSet)> {
    let Some(name) = vm.asked.name.as_ref().filter(|name| vm.asked.libvirt && !name.contains('/'))
    else {
        return Vec::new();
    };
    let status = fs::read_to_string(format!("{LIBVIRT_STATUS}/{name}.xml")).unwrap_or_default();
    // A domain of that name may run again, or elsewhere.
    let is_its = status.contains(&format!("pid='{}'", vm.pid));
    if is_its { lint::asked_pins(&status) } else { Vec::new() }
}
