//! From hosts and wishes to placements.
//!
//! [`plan_host`] places VMs on one host, [`plan_fleet`] on many. What comes out
//! is a [`Placement`] for each VM, with its reasons, or a [`UnplacedVm`] that says
//! what would have fitted.
//!
//! The rules:
//!
//! - A guest core is a whole host core, and guest threads are its threads: the
//!   guest's scheduler decides by what it sees, and what it sees must be true.
//! - No two VMs share a core, unless [`PlanRules::overcommit`] allows it *and* they
//!   don't fit otherwise. Then vCPUs float: one that is pinned to a busy pCPU
//!   could not escape.
//! - A VM stays below one last-level cache, else in one node, else on the
//!   fewest nodes with a guest cell and memory on each.
//! - The core of the lowest pCPU and of those that serve many interrupts is
//!   left to the host, and to threads of QEMU that are no vCPUs.
//! - Isolated cores come first; kinds of cores are mixed only if no kind alone
//!   has enough.
//! - Memory must fit its node, whose huge pages are reserved or can be.
//!
//! What makes one placement better than another is [`Score`]. One VM on a host
//! is placed best. Several on a host are placed one after the other, in every
//! order if they are few; two to four on a small host are then placed for each
//! other. Many VMs on many hosts are packed by decreasing size.
//!
//! A VM on its own is never refused by a host that has all that another has
//! which takes it.

mod choose;
mod fleet;
mod free;
mod guest_topology;
mod layout;
mod map;
mod map_svg;
mod memory;
mod one_host;
mod other_threads;
mod packed;
mod place;
mod reasons;
mod refuse;
mod score;
mod spread;
mod together;
mod wish;

#[cfg(test)]
mod tests;

pub use fleet::{FleetPlan, FleetVm, NamedHost, Packing, Totals, plan_fleet};
pub use map::{HostMap, text};
pub use map_svg::svg;
pub use memory::HugePages;
pub use one_host::{HostPlan, plan_host};
pub use place::{GuestCell, Placement};
pub use refuse::UnplacedVm;
pub use score::Score;
pub use wish::{
    ParseSizeError, ParseThreadsError, PlanRules, Size, ThreadsPerCore, VmWish, WishList,
};
