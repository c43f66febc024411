//! How many IOThreads a guest gets, and which pCPUs each.
//!
//! Source: KubeVirt, `pkg/virt-launcher/virtwrap/converter/iothreads` and
//! `FormatDomainIOThreadPin` in `converter/vcpu/vcpu.go`.

use std::collections::BTreeMap;

use super::PinError;
use super::vmi::Vmi;

const POOL_POLICY: &str = "supplementalPool";

/// Whether the guest asks for IOThreads at all.
pub(super) fn wanted(vmi: &Vmi) -> bool {
    vmi.spec.domain.io_threads_policy.is_some() || disks(vmi).1 > 0
}

/// Size of the supplemental pool where policy and count are both given.
pub(super) fn pool_size(vmi: &Vmi) -> Option<u32> {
    let domain = &vmi.spec.domain;
    let is_pool = domain.io_threads_policy.as_deref() == Some(POOL_POLICY);
    pool_count(vmi).filter(|_| is_pool)
}

/// The count alone, whatever the policy.
pub(super) fn pool_count(vmi: &Vmi) -> Option<u32> {
    vmi.spec.domain.io_threads.as_ref()?.supplemental_pool_thread_count
}

/// Whether the policy is the supplemental pool.
pub(super) fn is_pool_policy(vmi: &Vmi) -> bool {
    vmi.spec.domain.io_threads_policy.as_deref() == Some(POOL_POLICY)
}

/// Disks without and with an IOThread of their own.
fn disks(vmi: &Vmi) -> (u64, u64) {
    let disks = vmi.spec.domain.devices.disks.as_deref().unwrap_or_default();
    let own = disks.iter().filter(|disk| disk.dedicated_io_thread == Some(true)).count();
    (u64::try_from(disks.len() - own).unwrap_or(0), u64::try_from(own).unwrap_or(0))
}

/// IOThreads in all. `knows_pool`: whether this version of KubeVirt has the
/// supplemental pool.
pub(super) fn count(vmi: &Vmi, knows_pool: bool) -> u64 {
    let policy = vmi.spec.domain.io_threads_policy.as_deref();
    if let Some(size) = pool_size(vmi).filter(|_| knows_pool) {
        return u64::from(size);
    }
    let limit = match policy {
        Some("auto") if vmi.is_dedicated() && vmi.isolates_emulator() => 1,
        Some("auto") => vmi.requested_cpus().saturating_mul(2),
        None | Some("shared") => 1,
        // Versions without the pool take any other word for "shared".
        Some(_) => u64::from(!knows_pool),
    };
    let (shared, own) = disks(vmi);
    if shared + own > limit {
        return limit.saturating_sub(own).max(1) + own;
    }
    shared + own
}

/// Deals `count` IOThreads over the first `vcpus` pCPUs of the pod, in the
/// pod's order: the pCPUs that the vCPUs use too.
///
/// # Errors
/// [`PinError`]: the crashes that virt-launcher suffers when the pod has fewer
/// pCPUs than that.
pub fn deal(count: u64, vcpus: u64, cpuset: &[u32]) -> Result<BTreeMap<u32, Vec<u32>>, PinError> {
    let threads = 1..=u32::try_from(count).unwrap_or(u32::MAX);
    let mut pins = BTreeMap::new();
    if count >= vcpus {
        for thread in threads {
            let at = u64::from(thread).checked_rem(vcpus).ok_or(PinError::DivideByZero)?;
            let pcpu = usize::try_from(at).ok().and_then(|at| cpuset.get(at));
            let pcpu = pcpu.ok_or(PinError::IndexOutOfRange { index: at, length: cpuset.len() })?;
            pins.insert(thread, vec![*pcpu]);
        }
        return Ok(pins);
    }
    let (each, longer) = (vcpus / count, vcpus % count);
    let capacity = slice_capacity(cpuset.len());
    let mut start = 0;
    for thread in threads {
        let end = start + each + u64::from(u64::from(thread) <= longer);
        if end > capacity {
            return Err(PinError::SliceOutOfRange { end, capacity });
        }
        // Go hands out spare memory up to the capacity: zeros.
        let pcpu = |at: u64| usize::try_from(at).ok().and_then(|at| cpuset.get(at).copied());
        pins.insert(thread, (start..end).map(|at| pcpu(at).unwrap_or(0)).collect());
        start = end;
    }
    Ok(pins)
}

/// Capacity of a Go slice of integers that grew one by one to this length.
fn slice_capacity(length: usize) -> u64 {
    const CAPACITIES: [u64; 16] =
        [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 848, 1280, 1792, 2560, 3408];
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    CAPACITIES.into_iter().find(|capacity| *capacity >= length).unwrap_or(length)
}
