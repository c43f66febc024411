//! Pins and schedules QEMU's threads, and proves on the living process that
//! pins, scheduling and memory are what the variant claims: a trial that is not
//! what it claims is refused.

use std::collections::BTreeMap;

use host::affinity::{set_thread_affinity, thread_affinity};
use host::audit::in_force::{MemoryWish, Wishes, placement_in_force};
use host::audit::thread::ThreadRole;
use host::audit::{self, AuditScope, RunningVm};
use host::scheduler;
use host::settings::{SettingsTree, partitions};
use record::{Failure, FailureKind};
use topology::PcpuSet;
use vmconfig::{MemoryBacking, MemoryPolicy, Scheduler, VmSpec, qemu};

use super::exec_target::Threads;
use super::load_failure;
use crate::host_settings::scheduling;

/// Pins and schedules the threads of `vm` as `spec` says; threads that it does
/// not name stay as they are.
pub(super) fn pin(vm: Threads<'_>, spec: &VmSpec) -> Result<(), Failure> {
    // libvirt has done so, before the guest began.
    if vm.is_domain || spec.pins.is_empty() && spec.scheduler.is_empty() {
        return Ok(());
    }
    let threads = read(vm)?.threads;
    let partitions = partitions(&SettingsTree::live());
    let inside = |pcpus: &PcpuSet| {
        let mut all = partitions.iter();
        all.find(|one| !pcpus.is_empty() && pcpus.is_subset(&one.pcpus))
    };
    let pinned = threads.iter().filter_map(|one| Some((one.tid, pcpus_of(&one.role, spec)?)));
    let pinned: Vec<(u32, &PcpuSet)> = pinned.collect();
    if let Some(partition) = pinned.iter().find_map(|(_, pcpus)| inside(pcpus)) {
        partition.reach(vm.pid).map_err(|error| refused(&error))?;
    }
    for (tid, pcpus) in pinned {
        // Nobody outside may run there.
        if let Some(partition) = inside(pcpus) {
            partition.take_in(tid).map_err(|error| refused(&error))?;
        }
        set_thread_affinity(tid, pcpus).map_err(|error| refused(&error))?;
    }
    for thread in &threads {
        if let Some(wanted) = scheduler_of(&thread.role, spec) {
            scheduler::set(thread.tid, scheduling(wanted)).map_err(|error| refused(&error))?;
        }
    }
    Ok(())
}

/// How `spec` wants a thread of this role scheduled.
fn scheduler_of(role: &ThreadRole, spec: &VmSpec) -> Option<Scheduler> {
    let all = &spec.scheduler;
    match role {
        ThreadRole::Vcpu { vcpu } => all.vcpus.get(&(*vcpu)?).copied(),
        // It runs all of them.
        ThreadRole::AllVcpus => all.vcpus.values().next().copied(),
        ThreadRole::Iothread { id } => {
            let mut iothreads = all.iothreads.iter();
            let found = iothreads.find(|(number, _)| qemu::iothread_id(**number) == *id);
            found.map(|(_, scheduler)| *scheduler)
        }
        ThreadRole::MainLoop => all.emulator,
        // Helpers inherit from whichever thread started them.
        ThreadRole::Worker | ThreadRole::Vhost | ThreadRole::Other | ThreadRole::Unknown => None,
    }
}

/// How each vCPU is scheduled, read back from the kernel, where `spec` asks for
/// anything; an error where it is not so.
pub(super) fn schedulers(vm: Threads<'_>, spec: &VmSpec) -> Result<Vec<String>, Failure> {
    if spec.scheduler.is_empty() {
        return Ok(Vec::new());
    }
    let mut deviations = Vec::new();
    for thread in &read(vm)?.threads {
        let Some(wanted) = scheduler_of(&thread.role, spec) else { continue };
        let found = scheduler::read(thread.tid);
        if found != Some(scheduling(wanted)) {
            let found = found.map_or("gone".to_owned(), |found| found.to_string());
            deviations.push(format!("{}: asked for {wanted}, it is {found}", thread.role));
        }
    }
    if !deviations.is_empty() {
        let kind = FailureKind::NotAsClaimed;
        return Err(Failure::new(kind, deviations.join("; ")));
    }
    let found = vm.vcpu_tids.iter().filter_map(|tid| scheduler::read(*tid));
    Ok(found.map(|one| one.to_string()).collect())
}

/// The pCPUs that `spec` gives to a thread of this role.
fn pcpus_of<'a>(role: &ThreadRole, spec: &'a VmSpec) -> Option<&'a PcpuSet> {
    let emulator = spec.pins.emulator.as_ref();
    match role {
        ThreadRole::Vcpu { vcpu } => spec.pins.vcpus.get(&(*vcpu)?),
        ThreadRole::Iothread { id } => iothreads(spec).get(id).copied().or(emulator),
        // It runs all of them: no one vCPU's pin is its own.
        ThreadRole::AllVcpus => None,
        ThreadRole::Vhost => spec.pins.vhost.as_ref().or(emulator),
        ThreadRole::MainLoop | ThreadRole::Worker | ThreadRole::Other | ThreadRole::Unknown => {
            emulator
        }
    }
}

/// The pinned iothreads by QEMU's id.
fn iothreads(spec: &VmSpec) -> BTreeMap<String, &PcpuSet> {
    let pins = spec.pins.iothreads.iter();
    pins.map(|(number, pcpus)| (qemu::iothread_id(*number), pcpus)).collect()
}

/// Whether pins and memory of the booted VM are what `spec` says; where each
/// vCPU may run, read back from the kernel. `addresses` are in the memory of each backend, as
/// far as QEMU tells.
pub(super) fn check(
    vm: Threads<'_>,
    spec: &VmSpec,
    addresses: &BTreeMap<String, u64>,
) -> Result<Vec<String>, Failure> {
    let backend = if vm.is_domain { libvirts_backend } else { own_backend };
    let wishes = wishes(spec, backend);
    if wishes != Wishes::default() {
        let mut running = read(vm)?;
        running.memory.name_backends_at(addresses);
        let deviations = placement_in_force(&wishes, &running);
        if !deviations.is_empty() {
            let all: Vec<_> = deviations.iter().map(ToString::to_string).collect();
            let kind = FailureKind::NotAsClaimed;
            return Err(Failure::new(kind, all.join("; ")));
        }
    }
    vm.vcpu_tids
        .iter()
        .map(|tid| thread_affinity(*tid).map(|pcpus| pcpus.to_string()))
        .collect::<Result<_, _>>()
        .map_err(|error| refused(&error))
}

/// Whether `spec` asks for something of the memory of single guest nodes.
pub(super) fn asks_of_nodes(spec: &VmSpec) -> bool {
    wishes(spec, own_backend).memory.iter().any(|wish| wish.backend.is_some())
}

/// What QEMU's memory of a guest node is called where vmlab starts it.
pub(super) fn own_backend(node: usize) -> String {
    qemu::memory_backend_id(Some(node))
}

/// What it is called where libvirt does.
///
/// Source: libvirt `src/qemu/qemu_command.c` (`qemuBuildMemoryCellBackendStr`).
fn libvirts_backend(node: usize) -> String {
    format!("ram-node{node}")
}

fn wishes(spec: &VmSpec, backend_of: fn(usize) -> String) -> Wishes {
    let wish = |memory: &MemoryBacking,
                backend: Option<String>,
                nodes: Option<&PcpuSet>,
                policy: Option<MemoryPolicy>| {
        let page_bytes = memory.huge_pages.map(|size| size.kib() << 10);
        // Only a binding policy promises nodes; the others are preferences.
        let bound = policy.is_none_or(|policy| policy == MemoryPolicy::Bind);
        let nodes = nodes.filter(|_| bound).map(|nodes| nodes.iter().collect());
        MemoryWish { backend, nodes: nodes.unwrap_or_default(), page_bytes }
    };
    let memory = if spec.numa.is_empty() {
        let MemoryBacking { host_nodes, policy, .. } = &spec.memory;
        vec![wish(&spec.memory, None, host_nodes.as_ref(), *policy)]
    } else {
        let nodes = spec.numa.iter().enumerate();
        nodes
            .map(|(number, node)| {
                let backend = backend_of(number);
                let memory = node.memory(&spec.memory);
                wish(&memory, Some(backend), node.host_nodes.as_ref(), node.policy)
            })
            .collect()
    };
    let owned = |(id, pcpus): (String, &PcpuSet)| (id, pcpus.clone());
    Wishes {
        vcpus: spec.pins.vcpus.0.clone(),
        emulator: spec.pins.emulator.clone(),
        vhost: spec.pins.vhost.clone(),
        iothreads: iothreads(spec).into_iter().map(owned).collect(),
        memory: memory
            .into_iter()
            .filter(|wish| !wish.nodes.is_empty() || wish.page_bytes.is_some())
            .collect(),
    }
}

pub(super) fn read(vm: Threads<'_>) -> Result<RunningVm, Failure> {
    let look = AuditScope { vcpu_tids: vm.vcpu_tids.to_vec(), ..AuditScope::default() };
    audit::read(vm.pid, &look).map_err(|error| refused(&error))
}

fn refused(error: &dyn std::error::Error) -> Failure {
    Failure::new(FailureKind::NotAsClaimed, load_failure(error).detail)
}
