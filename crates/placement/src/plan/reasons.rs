//! Why a VM goes where it goes, a line each.

use report::counted;
use topology::PcpuSet;

use super::choose::Choice;
use super::free::FreeResources;
use super::guest_topology::guest_topology;
use super::layout::Layout;
use super::memory::HugePages;
use super::other_threads::OtherThreads;
use super::wish::{Size, ThreadsPerCore, VmWish};

/// The reasons; `free` is what was free before.
pub(crate) fn reasons(
    layout: &Layout,
    free: &FreeResources,
    wish: &VmWish,
    choice: &Choice,
    huge_pages: &[HugePages],
    others: &OtherThreads,
) -> Vec<String> {
    let mut lines = Vec::new();
    if choice.shares.iter().all(|share| share.cores.is_empty()) {
        lines.extend(floating(layout, free, wish, choice));
    } else {
        lines.push(cores(layout, wish, choice));
        lines.push(locality(layout, free, wish, choice));
        if let Some(note) = choice.note {
            lines.push(note.to_owned());
        }
    }
    if choice.shares.len() > 1 {
        lines.push(cells(layout, choice));
    }
    lines.push(seen(layout, choice));
    if wish.vcpus > MOST_WITHOUT_EIM && !layout.is_arm {
        lines.push(format!(
            "more than {MOST_WITHOUT_EIM} vCPUs: machine q35, and an IOMMU in extended interrupt \
             mode, without which libvirt refuses them (<iommu model='intel'><driver intremap='on' \
             eim='on'/></iommu> with <ioapic driver='qemu'/>; QEMU: -machine kernel-irqchip=split \
             -device intel-iommu,intremap=on,eim=on); the guest's kernel needs x2APIC"
        ));
    }
    lines.push(other_threads(wish, choice, others, layout));
    lines.extend(memory(layout, free, wish, choice, huge_pages));
    lines
}

/// APIC ids of 8 bits number so many vCPUs.
///
/// Source: libvirt `QEMU_MAX_VCPUS_WITHOUT_EIM`.
const MOST_WITHOUT_EIM: u32 = 255;

fn floating(layout: &Layout, free: &FreeResources, wish: &VmWish, choice: &Choice) -> Vec<String> {
    let pools: Vec<String> = choice
        .shares
        .iter()
        .map(|share| {
            let pool = layout.pool(share.node);
            let load = free.floating[share.node] + share.vcpus;
            let each = f64::from(load) / pool.len() as f64;
            format!(
                "{} {load} vCPUs on {} ({each:.2} a pCPU)",
                node(layout, share.node),
                counted(pool.len() as u32, "pCPU")
            )
        })
        .collect();
    let mut lines = vec![
        format!("overcommitted as asked: so far {}", pools.join(", ")),
        "no vCPU has a pCPU to itself: each may run on all of its node's, and waits when others run"
            .to_owned(),
    ];
    if matches!(wish.threads_per_core, ThreadsPerCore::Exactly(threads) if threads > 1) {
        lines.push("1 thread a guest core: vCPUs that float have no fixed sibling".to_owned());
    }
    lines
}

fn cores(layout: &Layout, wish: &VmWish, choice: &Choice) -> String {
    let threads = choice.threads;
    let cores = wish.vcpus / threads;
    let most = choice
        .shares
        .iter()
        .flat_map(|share| share.cores.iter().flatten())
        .map(|core| layout.cores[*core].threads.len() as u32)
        .max()
        .unwrap_or(threads);
    let place: Vec<String> = choice.shares.iter().map(|share| node(layout, share.node)).collect();
    let whose = if cores == 1 { "its host core" } else { "a host core" };
    let mut line = format!(
        "{} of {}: each guest core is {whose} that no other VM shares",
        counted(cores, "whole core"),
        place.join(" and "),
    );
    if threads > 1 {
        line.push_str(", its threads on that core's threads");
    } else if most > 1 {
        let why = match wish.threads_per_core {
            ThreadsPerCore::Exactly(_) => "as asked".to_owned(),
            ThreadsPerCore::Auto if wish.vcpus == 1 => "1 vCPU has no sibling".to_owned(),
            ThreadsPerCore::Auto if !wish.vcpus.is_multiple_of(2) => {
                format!("{} vCPUs can't be 2 a core", wish.vcpus)
            }
            ThreadsPerCore::Auto => "too few cores have all their threads".to_owned(),
        };
        line.push_str(&format!("; 1 thread a core ({why}), the siblings stay idle"));
    }
    line
}

fn locality(layout: &Layout, free: &FreeResources, wish: &VmWish, choice: &Choice) -> String {
    if choice.shares.len() > 1 {
        let nodes = choice.shares.len();
        if choice.yields {
            return format!("over {nodes} nodes, where all VMs together cross the fewest");
        }
        let even = choice.score.node_unevenness == 0;
        let how = if even { "alike" } else { "as evenly as free cores allow" };
        return format!(
            "bigger than what one node has free: over {nodes} nodes, the fewest that hold it, {how}"
        );
    }
    let share = &choice.shares[0];
    let of_node = &layout.nodes[share.node];
    let count: u32 = share.cores.iter().map(|cores| cores.len() as u32).sum();
    let mut line = match share.cores.len() {
        1 if of_node.caches.len() == 1 => "one node and its last-level cache hold it".to_owned(),
        1 => "one last-level cache holds it".to_owned(),
        caches if choice.yields => format!("over {caches} last-level caches"),
        caches => format!("no last-level cache has {count} free cores: over {caches}, the fewest"),
    };
    if choice.yields {
        line.push_str("; there all VMs together leave the smallest gaps");
    } else if layout.nodes.len() > 1 {
        let here = node(layout, share.node);
        let untouched = free.cores.common(&layout.usable, &of_node.cores)
            == layout.usable.common(&layout.usable, &of_node.cores);
        let unit = wish.unit();
        let has_room = |at: &usize| {
            free.cores.common(&layout.usable, &layout.nodes[*at].cores) >= count
                && free.memory(layout, *at).units(unit) >= wish.units()
        };
        if (0..layout.nodes.len()).filter(has_room).count() == 1 {
            line.push_str(&format!("; no other node than {here} has room"));
        } else if choice.score.node_leftover == 0 {
            line.push_str(&format!("; {here} is full with it"));
        } else if !untouched {
            line.push_str(&format!("; {here} is in use already, so whole nodes stay whole"));
        } else {
            let left = counted(choice.score.node_leftover, "core");
            line.push_str(&format!("; {here} leaves the smallest gap ({left})"));
        }
    }
    line
}

fn cells(layout: &Layout, choice: &Choice) -> String {
    let parts: Vec<String> = choice
        .shares
        .iter()
        .enumerate()
        .map(|(id, share)| format!("cell {id} on {}", node(layout, share.node)))
        .collect();
    let mut line = format!(
        "{} guest cells, one a node, so that the guest keeps data beside the vCPUs: {}",
        parts.len(),
        parts.join(", ")
    );
    if choice.score.memory_uneven > 0 {
        line.push_str("; memory is not shared as the cores are: a node has too little");
    }
    line
}

fn seen(layout: &Layout, choice: &Choice) -> String {
    let topology = guest_topology(layout, choice);
    let caches = choice.shares.iter().map(|share| share.cores.len()).sum::<usize>();
    let part = if layout.is_arm { "cluster" } else { "die" };
    let parts = topology.dies * topology.clusters * topology.sockets;
    let mut line = "guest topology mirrors that".to_owned();
    if topology.sockets > 1 {
        line.push_str(": no socket reaches into two cells");
        if topology.cores * topology.dies * topology.clusters == 1
            && choice.score.node_unevenness > 0
        {
            let cells = choice.shares.len() as u32;
            let cores = topology.sockets / cells * cells;
            let fewer = cores * topology.threads;
            line.push_str(&format!(
                " (and none is bigger than a core, as {} can't be shared alike: --vcpus {fewer} can)",
                counted(topology.sockets, "core")
            ));
        }
    }
    if caches > choice.shares.len() {
        let join = if topology.sockets > 1 { ", " } else { ": " };
        if parts as usize >= caches && parts > topology.sockets {
            line.push_str(&format!("{join}vCPUs of one {part} share a last-level cache"));
        } else {
            line.push_str(&format!("{join}only its {caches} last-level caches can't be shown"));
        }
    }
    line
}

fn other_threads(wish: &VmWish, choice: &Choice, others: &OtherThreads, layout: &Layout) -> String {
    let mut who = vec!["emulator"];
    if wish.iothreads > 0 {
        who.push("iothreads");
    }
    if wish.vhost_threads > 0 {
        who.push("vhost threads");
    }
    let who = who.join(", ");
    if !choice.io.is_empty() {
        let cores = counted(choice.io.len() as u32, "core");
        return format!("{who}: {cores} of their own in the same node, as asked");
    }
    if others.emulator.is_empty() {
        return format!("{who}: not pinned, since no pCPU is left to the host");
    }
    let mut line = format!("{who}: on what is left to the host, never on a vCPU's pCPU");
    if others.is_far {
        let first = choice.shares.first().map(|share| &layout.nodes[share.node].cores);
        let own = first.and_then(|cores| cores.iter().next()).map(|core| &layout.cores[core]);
        let pcpus: PcpuSet = own.iter().flat_map(|core| core.threads.iter().copied()).collect();
        let leave = layout.left_to_host.union(&pcpus);
        line.push_str(&format!("; that is another node: --leave {leave} or --io-cores 1 mends it"));
    }
    line
}

fn memory(
    layout: &Layout,
    free: &FreeResources,
    wish: &VmWish,
    choice: &Choice,
    huge_pages: &[HugePages],
) -> Vec<String> {
    let mut lines = Vec::new();
    let unit = wish.unit();
    for need in huge_pages {
        let (node, size) = (need.node, need.page);
        let pages = counted_pages(need.pages, size);
        let at = if layout.has_nodes { format!(" on node {node}") } else { String::new() };
        if need.to_reserve == 0 {
            lines.push(format!("{pages}{at}: free in the pool"));
        } else {
            let path = if layout.has_nodes {
                format!("/sys/devices/system/node/node{node}/hugepages")
            } else {
                "/sys/kernel/mm/hugepages".to_owned()
            };
            let kib = size.0 >> 10;
            lines.push(format!(
                "{pages}{at}: {} not yet reserved; add them to {path}/hugepages-{kib}kB/nr_hugepages",
                need.to_reserve
            ));
        }
    }
    if !wish.memory.0.is_multiple_of(unit.bytes) {
        let given = Size(wish.units() * unit.bytes);
        lines.push(format!("memory rounded up to whole pages: {given} for {}", wish.memory));
    }
    if huge_pages.is_empty() {
        for share in &choice.shares {
            let memory = free.memory(layout, share.node);
            let need = Size(share.units * unit.bytes);
            if let Some(now) = memory.free_now.filter(|now| *now < need.0) {
                let at = node(layout, share.node);
                lines.push(format!(
                    "{at} has only {} free at this moment for {need}: page cache has to go first",
                    Size(now)
                ));
            }
        }
    }
    lines
}

fn counted_pages(pages: u64, size: Size) -> String {
    format!("{} of {size}", counted(pages, "huge page"))
}

fn node(layout: &Layout, node: usize) -> String {
    if layout.has_nodes { format!("node {}", layout.nodes[node].id) } else { "the host".to_owned() }
}
