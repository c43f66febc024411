//! Ports: how each is configured, and all of them as the polling threads see them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::counters::PortCounters;
use crate::device::Device;

/// Ports that one switch can have.
pub const MAX_PORTS: usize = 64;
/// The highest VLAN.
pub const MAX_VLAN: u16 = 4094;

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

/// What is asked of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Its VLANs.
    pub vlan: Vlan,
    /// It reaches only ports that are not isolated.
    pub isolated: bool,
    /// The only address that it may send from.
    pub mac: Option<[u8; 6]>,
}

/// A port at one time.
#[derive(Debug, Clone)]
pub(crate) struct PortView {
    /// Its number.
    pub number: u16,
    /// What is asked of it.
    pub policy: Policy,
    /// What the frontend has set up, if there is one.
    pub device: Option<Arc<Device>>,
    /// Its counters.
    pub counters: Arc<PortCounters>,
}

/// All ports at one time, immutable. A change makes another one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Counts up with each change.
    pub generation: u64,
    /// By number.
    pub ports: Vec<Option<Arc<PortView>>>,
    /// How many polling threads there are.
    pub threads: usize,
}

impl Snapshot {
    /// The polling thread that serves a queue: both of its rings.
    #[inline]
    #[must_use]
    pub(crate) fn thread_of(&self, port: usize, queue: usize) -> usize {
        (port + queue) % self.threads.max(1)
    }

    /// The queues that `thread` serves: ports, and numbers of their queues.
    pub(crate) fn served_by(&self, thread: usize) -> impl Iterator<Item = (&Arc<PortView>, usize)> {
        self.ports.iter().flatten().flat_map(move |port| {
            let queues = port.device.as_ref().map_or(0, |device| device.pairs.len());
            (0..queues).map(move |queue| (port, queue)).filter(move |&(port, queue)| {
                self.thread_of(usize::from(port.number), queue) == thread
            })
        })
    }
}
