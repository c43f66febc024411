//! Which pins KubeVirt makes inside the pod's pCPUs.
//!
//! Source: KubeVirt 0.44 to 1.9, `pkg/virt-launcher/virtwrap/converter` and
//! `WithCPUPinning` in `pkg/virt-controller/services/renderresources.go`.

mod iothreads;
mod numa;
mod pool;
mod vmi;

use std::collections::BTreeMap;

pub use iothreads::deal;
pub use numa::{GuestNuma, PredictedMemory, PredictedNode, mirror_nodes};
pub use pool::{CpuPool, Crossing, GuestShape};
pub use vmi::{
    Amounts, Cpu, Devices, Domain, EVEN_PARITY, Hugepages, IoThreads, Metadata, Numa, ReadVmiError,
    Resources, Spec, Vmi, VmiDisk, VmiMemory,
};

use crate::predict::machine::CapabilitiesCell;
use crate::predict::version::{Ability, KubevirtVersion};

/// The pins of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PredictedPins {
    /// pCPU of each vCPU. May be shorter than the guest has vCPUs: see
    /// [`CpuPool::fit_cores`].
    pub vcpus: Vec<u32>,
    /// pCPUs of the emulator thread; empty: not pinned.
    pub emulator: Vec<u32>,
    /// pCPUs of each pinned IOThread, by its number from 1.
    pub iothreads: BTreeMap<u32, Vec<u32>>,
    /// Guest nodes.
    pub numa: Option<GuestNuma>,
}

/// Why virt-launcher makes no pins. All texts are its own; those that begin
/// with `panic` are crashes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// Too few pCPUs.
    #[error("not enough exclusive threads provided, could not fit {cores} core(s)")]
    NotEnoughThreads {
        /// Guest cores left over.
        cores: usize,
    },
    /// Enough pCPUs, but not for whole guest cores inside single cells.
    #[error(
        "could not fit {cores} core(s) without crossing numa cell boundaries for individual cores"
    )]
    CrossesCells {
        /// Guest cores left over.
        cores: usize,
    },
    /// The pod has no pCPUs.
    #[error("failed for get pods pinned cpus")]
    EmptyCpuset,
    /// None left for the emulator thread.
    #[error("no CPU allocated for the emulation thread: no remaining unassigned threads")]
    NoEmulatorThread,
    /// None left to make the sum even.
    #[error("no second CPU allocated for the emulation thread: no remaining unassigned threads")]
    NoSecondEmulatorThread,
    /// None left for the supplemental pool.
    #[error("no CPU allocated for the iothread: no remaining unassigned threads")]
    NoIothread,
    /// IOThreads wished for, but no disk that has one.
    #[error("domain is missing IOThreads")]
    MissingIothreads,
    /// A pin outside of what the host reports.
    #[error(
        "failed to generate numa pinning information: vcpu {vcpu} is mapped to a not existing host \
         cpu set {pcpu}"
    )]
    NotInTopology {
        /// The vCPU.
        vcpu: u32,
        /// Its pCPU.
        pcpu: u32,
    },
    /// Passthrough without huge pages.
    #[error("passing through a numa topology is restricted to VMIs with hugepages enabled")]
    NoHugepages,
    /// Less than a page for each node.
    #[error(
        "not enough memory requested to allocate at least one hugepage per numa node: {{{bytes} b}} \
         < {shown}"
    )]
    NotEnoughMemory {
        /// The guest's memory.
        bytes: u64,
        /// The number that KubeVirt prints, 2^20 times what is meant.
        shown: u64,
    },
    /// Memory that pages do not divide.
    #[error(
        "requested memory can't be divided through the numa page size: {{{bytes} b}} mod {page} != 0"
    )]
    NotWholePages {
        /// The guest's memory.
        bytes: u64,
        /// Size of a page.
        page: u64,
    },
    /// A crash.
    #[error("panic: runtime error: invalid memory address or nil pointer dereference")]
    NilPointer,
    /// A crash.
    #[error("panic: runtime error: integer divide by zero")]
    DivideByZero,
    /// A crash.
    #[error("panic: runtime error: index out of range [{index}] with length {length}")]
    IndexOutOfRange {
        /// The index asked for.
        index: u64,
        /// The length that there is.
        length: usize,
    },
    /// A crash.
    #[error("panic: runtime error: slice bounds out of range [:{end}] with capacity {capacity}")]
    SliceOutOfRange {
        /// The end asked for.
        end: u64,
        /// The capacity that there is.
        capacity: u64,
    },
}

/// CPUs that the pod's compute container asks for; `None` without dedicated
/// pCPUs.
pub fn pod_cpus(version: KubevirtVersion, vmi: &Vmi) -> Option<u32> {
    if !vmi.is_dedicated() {
        return None;
    }
    let pool = if version.can(Ability::ParityCountsPoolTwice) {
        iothreads::pool_count(vmi)
    } else {
        iothreads::pool_size(vmi)
    };
    let pool = pool.filter(|_| version.can(Ability::SupplementalPool)).unwrap_or(0);
    let vcpus = vmi.shape().vcpus();
    let mut cpus = vcpus.saturating_add(pool);
    if vmi.isolates_emulator() {
        let counted_again = if version.can(Ability::ParityCountsPoolTwice) {
            iothreads::pool_size(vmi).unwrap_or(0)
        } else {
            0
        };
        let even = cpus.wrapping_add(counted_again).is_multiple_of(2);
        let second = version.can(Ability::EvenParity) && vmi.wants_even_parity() && even;
        cpus = cpus.saturating_add(1 + u32::from(second));
    }
    Some(cpus)
}

/// Makes the pins of a guest with dedicated pCPUs.
///
/// `cells` is the host as virt-handler reports it to this version, `cpuset` the
/// pod's pCPUs, ascending.
///
/// # Errors
/// [`PinError`] in virt-launcher's words.
pub fn pin(
    version: KubevirtVersion,
    vmi: &Vmi,
    cells: &[CapabilitiesCell],
    cpuset: &[u32],
) -> Result<PredictedPins, PinError> {
    let mut pins = if version.can(Ability::PlacesByCore) {
        pin_by_core(version, vmi, cells, cpuset)?
    } else {
        pin_by_position(vmi, cpuset)?
    };
    if vmi.passes_nodes_through() {
        let numbered: Vec<(u32, u32)> = (0..).zip(pins.vcpus.iter().copied()).collect();
        let memory = PredictedMemory {
            bytes: vmi.memory_bytes().unwrap_or(0),
            page_bytes: vmi.page_bytes(),
            realtime: vmi.is_realtime(),
        };
        pins.numa = mirror_nodes(&numbered, cells, memory)?;
    }
    Ok(pins)
}

/// The old way: the emulator takes the last pCPU, vCPU i the i-th.
fn pin_by_position(vmi: &Vmi, cpuset: &[u32]) -> Result<PredictedPins, PinError> {
    let (rest, emulator) = match cpuset.split_last() {
        Some((last, rest)) if vmi.isolates_emulator() => (rest, Some(*last)),
        _ => (cpuset, None),
    };
    if rest.is_empty() {
        return Err(PinError::EmptyCpuset);
    }
    let vcpus = vmi.shape().vcpus();
    let wanted = usize::try_from(vcpus).unwrap_or(usize::MAX);
    let Some(taken) = rest.get(..wanted) else {
        let index = u64::try_from(rest.len()).unwrap_or(u64::MAX);
        return Err(PinError::IndexOutOfRange { index, length: rest.len() });
    };
    let mut pins = PredictedPins { vcpus: taken.to_vec(), ..PredictedPins::default() };
    pins.emulator.extend(emulator);
    if iothreads::wanted(vmi) {
        let count = iothreads::count(vmi, false);
        if count == 0 {
            return Err(PinError::NilPointer);
        }
        pins.iothreads = pin_iothreads(count, u64::from(vcpus), &pins.emulator, rest)?;
    }
    Ok(pins)
}

/// With an isolated emulator thread the first IOThread shares its pCPUs and the
/// others stay free; else they are dealt over the vCPUs' pCPUs.
fn pin_iothreads(
    count: u64,
    vcpus: u64,
    emulator: &[u32],
    cpuset: &[u32],
) -> Result<BTreeMap<u32, Vec<u32>>, PinError> {
    if emulator.is_empty() {
        return deal(count, vcpus, cpuset);
    }
    Ok(BTreeMap::from([(1, emulator.to_vec())]))
}

/// The new way: guest cores on host cores.
fn pin_by_core(
    version: KubevirtVersion,
    vmi: &Vmi,
    cells: &[CapabilitiesCell],
    cpuset: &[u32],
) -> Result<PredictedPins, PinError> {
    let shape = vmi.shape();
    let has_hotplug = vmi.spec.architecture.as_deref().is_none_or(|name| name == "amd64");
    let max_sockets = vmi.max_sockets().filter(|_| version.can(Ability::SocketHotplug));
    if max_sockets.is_some() && !has_hotplug && !version.can(Ability::HotplugOnArm) {
        return Err(PinError::NilPointer);
    }
    let max_sockets = max_sockets.filter(|_| has_hotplug).unwrap_or(shape.sockets);
    // Sockets that are not enabled get no pins.
    let enabled = GuestShape { sockets: shape.sockets.min(max_sockets), ..shape };
    let most = GuestShape { sockets: max_sockets, ..shape };
    let crossing = if vmi.passes_nodes_through() { Crossing::Strict } else { Crossing::Relaxed };
    let mut pool = CpuPool::new(enabled, cells, cpuset, crossing);
    let mut pins = PredictedPins { vcpus: pool.fit_cores()?, ..PredictedPins::default() };

    let mut pool_threads = 0;
    let pool_size = iothreads::pool_size(vmi).filter(|size| *size > 0);
    if let Some(size) = pool_size.filter(|_| version.can(Ability::PoolInsidePod)) {
        for thread in 1..=size {
            let pcpu = pool.fit_thread().ok_or(PinError::NoIothread)?;
            pins.iothreads.insert(thread, vec![pcpu]);
        }
        pool_threads = size;
    }
    if vmi.isolates_emulator() {
        pins.emulator.push(pool.fit_thread().ok_or(PinError::NoEmulatorThread)?);
        let even = shape.vcpus().wrapping_add(pool_threads).is_multiple_of(2);
        if version.can(Ability::EvenParity) && vmi.wants_even_parity() && even {
            pins.emulator.push(pool.fit_thread().ok_or(PinError::NoSecondEmulatorThread)?);
        }
    }
    if iothreads::wanted(vmi) && pool_threads == 0 {
        let over = if version.can(Ability::IothreadsOverEnabled) { shape } else { most };
        pins.iothreads = other_iothreads(version, vmi, over, &pins.emulator, cpuset)?;
    }
    Ok(pins)
}

/// IOThreads that do not come out of the pool of pCPUs.
fn other_iothreads(
    version: KubevirtVersion,
    vmi: &Vmi,
    over: GuestShape,
    emulator: &[u32],
    cpuset: &[u32],
) -> Result<BTreeMap<u32, Vec<u32>>, PinError> {
    let knows_pool = version.can(Ability::SupplementalPool);
    let domain = &vmi.spec.domain;
    let no_pool_beside_policy = iothreads::is_pool_policy(vmi) && domain.io_threads.is_none();
    if version.can(Ability::IothreadsCrash) || (knows_pool && no_pool_beside_policy) {
        return Err(PinError::NilPointer);
    }
    let count = iothreads::count(vmi, knows_pool);
    if count == 0 {
        let reports = version.can(Ability::ReportsMissingIothreads);
        return Err(if reports { PinError::MissingIothreads } else { PinError::NilPointer });
    }
    let vcpus = over.vcpus();
    if knows_pool && !version.can(Ability::PoolInsidePod) && domain.io_threads.is_some() {
        // A count that is missing is read all the same.
        let size = iothreads::pool_count(vmi).ok_or(PinError::NilPointer)?;
        if size > 0 {
            let first = vcpus.saturating_add(u32::from(!emulator.is_empty()));
            return Ok((1..=size)
                .map(|thread| (thread, vec![first.saturating_add(thread)]))
                .collect());
        }
    }
    pin_iothreads(count, u64::from(vcpus), emulator, cpuset)
}
