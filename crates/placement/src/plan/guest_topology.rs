//! How a guest sees its vCPUs.

use vmconfig::GuestTopology;

use super::choose::Choice;
use super::layout::Layout;

/// The guest's topology: a socket never reaches into two cells, and where the
/// cores fall evenly on last-level caches a die (x86) or a cluster (Arm) is
/// what shares one, because that is how guests learn which vCPUs share a cache.
///
/// Source: QEMU `target/i386/cpu.c`, CPUID leaf 4: the third-level cache is
/// shared by a die.
pub(crate) fn guest_topology(layout: &Layout, choice: &Choice) -> GuestTopology {
    let threads = choice.threads;
    let cells: Vec<u32> = choice.shares.iter().map(|share| share.vcpus / threads).collect();
    let cores: u32 = cells.iter().sum();
    let in_socket = cells.iter().copied().fold(0, gcd);
    let sockets = cores / in_socket;
    let groups: Vec<u32> = choice
        .shares
        .iter()
        .flat_map(|share| share.cores.iter().map(|cores| cores.len() as u32))
        .collect();
    let in_group = groups.iter().copied().fold(in_socket, gcd);
    let even = groups.iter().all(|group| *group == in_group);
    // Groups of one core would deny all sharing.
    let parts =
        if groups.is_empty() || (in_group == 1 && !even) { 1 } else { in_socket / in_group };
    GuestTopology {
        sockets,
        dies: if layout.is_arm { 1 } else { parts },
        clusters: if layout.is_arm { parts } else { 1 },
        cores: in_socket / parts,
        threads,
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
