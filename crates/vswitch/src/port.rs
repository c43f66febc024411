//! Ports: how each is configured, and all of them as the polling threads see them.

use std::collections::BTreeSet;
use std::sync::Arc;

use topology::MacAddress;

use crate::counters::PortCounters;
use crate::device::VhostDevice;
use crate::mirror::MirrorTap;
use crate::rate::{Limiter, Rate};
use crate::session::MAX_PAIRS;

/// Ports that one switch can have.
pub const MAX_PORTS: usize = 64;
/// The highest VLAN.
pub const MAX_VLAN: u16 = 4094;
/// The least MTU that a port can have.
pub const MIN_MTU: u16 = 256;

/// Which VLANs a port carries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Vlan {
    /// None: tags are payload.
    #[default]
    Unaware,
    /// The guest is in this one, and knows of no tags.
    Access(u16),
    /// The guest tags its frames with one of these.
    Trunk(BTreeSet<u16>),
}

impl Vlan {
    /// Those that stations behind such a port are known in; 0 without one.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u16> {
        let (one, several) = match self {
            Self::Unaware => (Some(0), None),
            Self::Access(vlan) => (Some(*vlan), None),
            Self::Trunk(carried) => (None, Some(carried)),
        };
        one.into_iter().chain(several.into_iter().flatten().copied())
    }

    /// True if ports with the two have a VLAN in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.numbers().any(|vlan| other.numbers().any(|known| known == vlan))
    }
}

/// The rules of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Its VLANs.
    pub vlan: Vlan,
    /// It reaches only ports that are not isolated.
    pub isolated: bool,
    /// Isolated ports reach this one; where there is one, no other.
    pub uplink: bool,
    /// The only address that it may send from.
    pub mac: Option<MacAddress>,
    /// What it may send.
    pub rate: Option<Rate>,
    /// Bytes of a frame behind Ethernet's header at most, both ways.
    pub mtu: Option<u16>,
}

/// A port at one time.
#[derive(Debug, Clone)]
pub(crate) struct PortView {
    /// Its number.
    pub number: u16,
    /// What is asked of it.
    pub policy: Policy,
    /// What the frontend has set up, if there is one.
    pub device: Option<Arc<VhostDevice>>,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    /// Keeps it to its rate.
    pub limiter: Option<Arc<Limiter>>,
    /// Where its frames are written down.
    pub watches: Vec<MirrorTap>,
}

/// A port's queues that one thread serves.
#[derive(Debug, Clone)]
pub(crate) struct ServedQueues {
    pub port: Arc<PortView>,
    pub queues: Vec<u16>,
}

/// Nobody serves it: between two threads.
const NOBODY: u16 = u16::MAX;

/// All ports at one time, immutable once threads have it. A change makes another one.
#[derive(Debug, Clone, Default)]
pub(crate) struct PortTable {
    /// Counts up with each change.
    pub generation: u64,
    /// By number.
    pub ports: Vec<Option<Arc<PortView>>>,
    /// By port and queue: the polling thread that serves it.
    owners: Vec<u16>,
    /// By thread, made of the above.
    served: Vec<Vec<ServedQueues>>,
    /// A port is the uplink.
    pub has_uplink: bool,
}

impl PortTable {
    /// No port, and `threads` threads over which queues are spread evenly.
    pub(crate) fn new(threads: usize) -> Self {
        let places = (0..MAX_PORTS)
            .flat_map(|port| (0..usize::from(MAX_PAIRS)).map(move |queue| port + queue));
        Self {
            ports: vec![None; MAX_PORTS],
            owners: places.map(|place| (place % threads.max(1)) as u16).collect(),
            served: vec![Vec::new(); threads],
            ..Self::default()
        }
    }

    /// The polling thread that serves a queue: both of its rings. None while it changes.
    #[inline]
    #[must_use]
    pub(crate) fn thread_of(&self, port: usize, queue: usize) -> Option<usize> {
        let owner = self.owners.get(port * usize::from(MAX_PAIRS) + queue).copied();
        owner.filter(|&owner| owner != NOBODY).map(usize::from)
    }

    /// Has another thread serve a queue, or nobody.
    pub(crate) fn assign(&mut self, port: usize, queue: usize, thread: Option<usize>) {
        let owner = thread.and_then(|thread| u16::try_from(thread).ok()).unwrap_or(NOBODY);
        self.owners[port * usize::from(MAX_PAIRS) + queue] = owner;
    }

    /// Makes what follows from ports and owners, before threads get it.
    pub(crate) fn settle(&mut self) {
        self.has_uplink = self.ports.iter().flatten().any(|port| port.policy.uplink);
        for thread in 0..self.served.len() {
            let ports = self.ports.iter().flatten().filter_map(|port| {
                let count = port.device.as_ref().map_or(0, |device| device.pairs.len());
                let number = usize::from(port.number);
                let own = (0..count).filter(|&queue| self.thread_of(number, queue) == Some(thread));
                let queues: Vec<u16> = own.map(|queue| queue as u16).collect();
                (!queues.is_empty()).then(|| ServedQueues { port: Arc::clone(port), queues })
            });
            self.served[thread] = ports.collect();
        }
    }

    /// What `thread` serves.
    #[inline]
    pub(crate) fn served_by(&self, thread: usize) -> &[ServedQueues] {
        self.served.get(thread).map_or(&[], Vec::as_slice)
    }
}
