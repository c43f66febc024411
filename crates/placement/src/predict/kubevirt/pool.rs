//! The pod's pCPUs as a pool of host cores, from which guest cores are served
//! (KubeVirt 0.44.2, 0.45.1, 0.46.0 and later).
//!
//! Source: KubeVirt, `pkg/virt-launcher/virtwrap/converter/vcpu/vcpu.go`.

use std::collections::{BTreeSet, VecDeque};

use super::PinError;
use crate::predict::machine::CapabilitiesCell;

/// Sockets, cores and threads of a guest; each at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestShape {
    /// Sockets.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

impl GuestShape {
    /// vCPUs; saturates on shapes that no machine has.
    pub fn vcpus(self) -> u32 {
        self.cores_in_all().saturating_mul(self.threads)
    }

    /// Cores of all sockets.
    pub fn cores_in_all(self) -> u32 {
        self.sockets.saturating_mul(self.cores)
    }
}

/// Whether the threads of one guest core may come from several cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// Yes, as the last resort.
    Relaxed,
    /// Never: NUMA passthrough needs each guest core in one cell.
    Strict,
}

/// What is left in one cell.
struct CellPool {
    /// Cores that can hold a guest core whole.
    full: VecDeque<Vec<u32>>,
    /// Single threads.
    fragments: VecDeque<u32>,
}

/// pCPUs that are not given away yet.
pub struct CpuPool {
    cells: Vec<CellPool>,
    guest: GuestShape,
    crossing: Crossing,
    available: usize,
}

impl CellPool {
    /// Takes `count` threads of the first full core; what remains of it stays
    /// in front, or becomes fragments once it is too small.
    fn take_from_core(&mut self, count: usize, threads: usize) -> Vec<u32> {
        let Some(mut core) = self.full.pop_front() else { return Vec::new() };
        let rest = core.split_off(count.min(core.len()));
        if rest.len() >= threads {
            self.full.push_front(rest);
        } else {
            self.fragments.extend(rest);
        }
        core
    }

    fn take_fragments(&mut self, count: usize) -> Vec<u32> {
        self.fragments.drain(..count.min(self.fragments.len())).collect()
    }

    fn is_empty(&self) -> bool {
        self.full.is_empty() && self.fragments.is_empty()
    }
}

impl CpuPool {
    /// The pod's pCPUs, sorted by cell and core. pCPUs of the pod that no cell
    /// knows are lost; the order of `cpuset` does not matter.
    pub fn new(
        guest: GuestShape,
        cells: &[CapabilitiesCell],
        cpuset: &[u32],
        crossing: Crossing,
    ) -> Self {
        let threads = usize::try_from(guest.threads).unwrap_or(usize::MAX);
        let cells = by_core(cells, cpuset)
            .into_iter()
            .map(|cores| {
                let (full, small): (Vec<_>, Vec<_>) =
                    cores.into_iter().partition(|core| core.len() >= threads);
                CellPool { full: full.into(), fragments: small.into_iter().flatten().collect() }
            })
            .collect();
        Self { cells, guest, crossing, available: cpuset.len() }
    }

    /// Serves all guest cores: first from whole host cores, then from single
    /// threads of one cell, then from single threads of any cell. vCPU i gets
    /// the i-th pCPU of the answer.
    ///
    /// With several threads a guest core may be counted as served while threads
    /// of it are missing: the answer is then shorter than the vCPU count, as in
    /// KubeVirt.
    ///
    /// # Errors
    /// [`PinError`] in KubeVirt's words.
    pub fn fit_cores(&mut self) -> Result<Vec<u32>, PinError> {
        let threads = usize::try_from(self.guest.threads).unwrap_or(usize::MAX).max(1);
        let mut remaining = usize::try_from(self.guest.cores_in_all()).unwrap_or(usize::MAX);
        let mut taken = Vec::new();
        for cell in &mut self.cells {
            while remaining > 0 && !cell.full.is_empty() {
                taken.extend(cell.take_from_core(threads, threads));
                remaining -= 1;
            }
        }
        for cell in &mut self.cells {
            while remaining > 0 && cell.fragments.len() >= threads {
                taken.extend(cell.take_fragments(threads));
                remaining -= 1;
            }
        }
        if self.crossing == Crossing::Relaxed {
            let mut missing = remaining.saturating_mul(threads);
            for cell in &mut self.cells {
                let chunk = cell.take_fragments(missing);
                missing -= chunk.len();
                taken.extend(chunk);
            }
            remaining = missing / threads;
        }
        if remaining == 0 {
            return Ok(taken);
        }
        let asked = usize::try_from(self.guest.vcpus()).unwrap_or(usize::MAX);
        if self.crossing == Crossing::Relaxed || self.available < asked {
            Err(PinError::NotEnoughThreads { cores: remaining })
        } else {
            Err(PinError::CrossesCells { cores: remaining })
        }
    }

    /// One more thread, for the emulator or an IOThread: from the first cell
    /// with anything left, fragments first.
    pub fn fit_thread(&mut self) -> Option<u32> {
        let threads = usize::try_from(self.guest.threads).unwrap_or(usize::MAX);
        let cell = self.cells.iter_mut().find(|cell| !cell.is_empty())?;
        cell.fragments.pop_front().or_else(|| cell.take_from_core(1, threads).pop())
    }
}

/// The pod's pCPUs in each cell, grouped by core. A pCPU without siblings is a
/// core of its own. Siblings are listed in the capabilities' order; lists that
/// contradict each other yield a pCPU twice, as in KubeVirt.
fn by_core(cells: &[CapabilitiesCell], cpuset: &[u32]) -> Vec<Vec<Vec<u32>>> {
    let allowed: BTreeSet<u32> = cpuset.iter().copied().collect();
    let mut visited: BTreeSet<u32> = BTreeSet::new();
    let mut all = Vec::new();
    for cell in cells {
        let mut cores = Vec::new();
        for pcpu in &cell.pcpus {
            if visited.contains(&pcpu.id) {
                continue;
            }
            let own = [pcpu.id];
            let core = if pcpu.siblings.is_empty() { &own[..] } else { &pcpu.siblings };
            visited.extend(core);
            cores.push(core.iter().copied().filter(|pcpu| allowed.contains(pcpu)).collect());
        }
        all.push(cores);
    }
    all
}
