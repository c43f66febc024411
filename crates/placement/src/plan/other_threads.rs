//! Where QEMU's threads run that are no vCPUs.

use topology::PcpuSet;

use super::choose::Choice;
use super::layout::{CoreReservation, Layout};
use super::wish::VmWish;

/// Where the threads that are no vCPUs run.
pub(crate) struct OtherThreads {
    pub(crate) emulator: PcpuSet,
    pub(crate) iothreads: Vec<PcpuSet>,
    pub(crate) vhost: Vec<PcpuSet>,
    /// Whether they run on a node that the VM does not use.
    pub(crate) is_far: bool,
}

impl OtherThreads {
    pub(crate) fn new(layout: &Layout, wish: &VmWish, choice: &Choice) -> Self {
        let nodes: Vec<usize> = choice.shares.iter().map(|share| share.node).collect();
        let mut is_far = false;
        let own: Vec<u32> =
            choice.io.iter().flat_map(|core| layout.cores[*core].threads.iter().copied()).collect();
        if !own.is_empty() {
            // Event loops have a thread each while there are enough, the rest
            // is for the emulator.
            let each = |count: u32, offset: usize| -> Vec<PcpuSet> {
                (0..count as usize)
                    .map(|at| PcpuSet::from_iter([own[own.len() - 1 - (at + offset) % own.len()]]))
                    .collect()
            };
            let iothreads = each(wish.iothreads, 0);
            let vhost = each(wish.vhost_threads, wish.iothreads as usize);
            let loops = (wish.iothreads + wish.vhost_threads) as usize;
            let rest = own.len().saturating_sub(loops).max(1);
            let emulator = own[..rest].iter().copied().collect();
            return Self { emulator, iothreads, vhost, is_far };
        }
        let of_host = |near: bool| -> PcpuSet {
            let held = layout.cores.iter().filter(|core| core.held == Some(CoreReservation::Host));
            let cores = held.filter(|core| !near || nodes.contains(&core.node));
            cores.flat_map(|core| core.threads.iter().copied()).collect()
        };
        let mut place = of_host(true);
        if place.is_empty() {
            place = of_host(false);
            is_far = !place.is_empty();
        }
        Self {
            iothreads: vec![place.clone(); wish.iothreads as usize],
            vhost: vec![place.clone(); wish.vhost_threads as usize],
            emulator: place,
            is_far,
        }
    }
}
