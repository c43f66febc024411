//! Which ports a frame may reach, and what it is to bring it to all of them.

use crate::device::VhostDevice;
use crate::frame::{BEGINNING, tag};
use crate::port::{PortTable, PortView, Vlan};
use crate::work::FrameWork;

/// The ports, with their devices, that a frame of `length` bytes to all goes to: in their
/// order, from the one of number `begun` on.
pub(super) fn reached_by_all<'p>(
    snapshot: &'p PortTable,
    from: &'p PortView,
    beginning: &[u8; BEGINNING],
    length: u32,
    begun: u16,
) -> impl Iterator<Item = (&'p PortView, &'p VhostDevice)> {
    let vlan = vlan_of(from, beginning, length);
    let ports = snapshot.ports.iter().skip(begun.into());
    let others = ports.flatten().filter(move |to| {
        to.number != from.number && carries(to, vlan) && may_pass(snapshot, from, to)
    });
    others.filter_map(|to| Some((&**to, to.device.as_deref()?)))
}

/// The work of bringing a frame to those that are `reached`, up to the one with which it is
/// as much as `most`, and the port that comes next then, if there is one.
pub(super) fn flood_work<'p>(
    reached: impl Iterator<Item = (&'p PortView, &'p VhostDevice)>,
    frame: FrameWork,
    most: u64,
) -> (u64, Option<u16>) {
    let mut work = 0;
    for (to, device) in reached {
        if work >= most {
            return (work, Some(to.number));
        }
        work += frame.to(device);
    }
    (work, None)
}

/// True if the two may talk at all.
pub(super) fn may_pass(snapshot: &PortTable, from: &PortView, to: &PortView) -> bool {
    let (from, to) = (&from.policy, &to.policy);
    if snapshot.has_uplink {
        return (to.uplink || !from.isolated) && (from.uplink || !to.isolated);
    }
    !(from.isolated && to.isolated)
}

fn carries(port: &PortView, vlan: u16) -> bool {
    match &port.policy.vlan {
        Vlan::Unaware => vlan == 0,
        Vlan::Access(own) => *own == vlan,
        Vlan::Trunk(carried) => carried.contains(&vlan),
    }
}

pub(super) fn from_tagged(port: &PortView) -> bool {
    matches!(port.policy.vlan, Vlan::Trunk(_))
}

fn vlan_of(from: &PortView, beginning: &[u8; BEGINNING], length: u32) -> u16 {
    match &from.policy.vlan {
        Vlan::Unaware => 0,
        Vlan::Access(vlan) => *vlan,
        Vlan::Trunk(_) => tag(beginning, length).unwrap_or(0),
    }
}
