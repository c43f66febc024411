//! Pins QEMU's threads, and proves on the living process that pins and memory
//! are what the variant claims: a trial that is not what it claims is refused.

use std::collections::BTreeMap;

use guest::Vm;
use host::affinity::{set_thread_affinity, thread_affinity};
use host::audit::in_force::{MemoryWish, Wishes, placement_in_force};
use host::audit::thread::Role;
use host::audit::{self, Look, RunningVm};
use record::{Failure, FailureKind};
use topology::PcpuSet;
use vmconfig::{MemoryPolicy, VmSpec, qemu};

use super::load_failure;

/// Pins the threads of `vm` as `spec` says; threads that it does not name stay
/// where they are.
pub(super) fn pin(vm: &Vm, spec: &VmSpec) -> Result<(), Failure> {
    if spec.pins.is_empty() {
        return Ok(());
    }
    for thread in &read(vm)?.threads {
        if let Some(pcpus) = pcpus_of(&thread.role, spec) {
            set_thread_affinity(thread.tid, pcpus).map_err(|error| refused(&error))?;
        }
    }
    Ok(())
}

/// The pCPUs that `spec` gives to a thread of this role.
fn pcpus_of<'a>(role: &Role, spec: &'a VmSpec) -> Option<&'a PcpuSet> {
    let emulator = spec.pins.emulator.as_ref();
    match role {
        Role::Vcpu { vcpu } => spec.pins.vcpus.get(&(*vcpu)?),
        Role::Iothread { id } => iothreads(spec).get(id).copied().or(emulator),
        // It runs all of them: no one vCPU's pin is its own.
        Role::AllVcpus => None,
        Role::MainLoop | Role::Worker | Role::Vhost | Role::Other | Role::Unknown => emulator,
    }
}

/// The pinned iothreads by QEMU's id.
fn iothreads(spec: &VmSpec) -> BTreeMap<String, &PcpuSet> {
    let pins = spec.pins.iothreads.iter();
    pins.map(|(number, pcpus)| (qemu::iothread_id(*number), pcpus)).collect()
}

/// Whether pins and memory of the booted VM are what `spec` says; where each
/// vCPU may run, read back from the kernel.
pub(super) fn check(vm: &Vm, spec: &VmSpec) -> Result<Vec<String>, Failure> {
    let wishes = wishes(spec);
    if wishes != Wishes::default() {
        let deviations = placement_in_force(&wishes, &read(vm)?);
        if !deviations.is_empty() {
            let all: Vec<_> = deviations.iter().map(ToString::to_string).collect();
            let kind = FailureKind::NotAsClaimed;
            return Err(Failure { kind, detail: all.join("; ") });
        }
    }
    vm.vcpu_tids()
        .iter()
        .map(|tid| thread_affinity(*tid).map(|pcpus| pcpus.to_string()))
        .collect::<Result<_, _>>()
        .map_err(|error| refused(&error))
}

fn wishes(spec: &VmSpec) -> Wishes {
    let page_bytes = spec.memory.huge_pages.map(|size| size.kib() << 10);
    let wish = |backend: Option<String>, nodes: Option<&PcpuSet>, policy: Option<MemoryPolicy>| {
        // Only a binding policy promises nodes; the others are preferences.
        let bound = policy.is_none_or(|policy| policy == MemoryPolicy::Bind);
        let nodes = nodes.filter(|_| bound).map(|nodes| nodes.iter().collect());
        MemoryWish { backend, nodes: nodes.unwrap_or_default(), page_bytes }
    };
    let memory = if spec.numa.is_empty() {
        vec![wish(None, spec.memory.host_nodes.as_ref(), spec.memory.policy)]
    } else {
        let nodes = spec.numa.iter().enumerate();
        nodes
            .map(|(number, node)| {
                let backend = qemu::memory_backend_id(Some(number));
                wish(Some(backend), node.host_nodes.as_ref(), node.policy)
            })
            .collect()
    };
    let owned = |(id, pcpus): (String, &PcpuSet)| (id, pcpus.clone());
    Wishes {
        vcpus: spec.pins.vcpus.0.clone(),
        emulator: spec.pins.emulator.clone(),
        iothreads: iothreads(spec).into_iter().map(owned).collect(),
        fifo_priorities: BTreeMap::new(),
        memory: memory
            .into_iter()
            .filter(|wish| !wish.nodes.is_empty() || wish.page_bytes.is_some())
            .collect(),
    }
}

fn read(vm: &Vm) -> Result<RunningVm, Failure> {
    let look = Look { vcpu_tids: vm.vcpu_tids().to_vec(), ..Look::default() };
    audit::read(vm.pid(), &look).map_err(|error| refused(&error))
}

fn refused(error: &dyn std::error::Error) -> Failure {
    Failure { kind: FailureKind::NotAsClaimed, detail: load_failure(error).detail }
}
