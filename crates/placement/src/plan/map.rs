//! The map: a host's cores with the VMs in them.

use topology::Host;

use super::layout::{CoreReservation, Layout};
use super::place::Placement;
use super::wish::PlanRules;

/// What a map shows of one thread of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MapCell {
    /// vCPU of a VM: the VM's index and the vCPU.
    Vcpu(usize, u32),
    /// vCPUs of several VMs float here.
    Floating(Vec<usize>),
    /// A thread beside a vCPU of this VM, kept idle.
    Idle(usize),
    /// A VM's emulator, iothreads or vhost threads.
    Other(usize),
    /// Left to the host.
    Host,
    /// Somebody else's.
    Taken,
    /// Free for a VM.
    Free,
}

/// One core of a map: its pCPUs and what is on them.
pub(crate) type MapCore = Vec<(u32, MapCell)>;

/// The cores around one last-level cache.
pub(crate) struct MapGroup {
    pub(crate) node: String,
    /// Which cache of its node; `None` if it is the only one.
    pub(crate) cache: Option<String>,
    pub(crate) cores: Vec<MapCore>,
}

/// A host's cores with the VMs in them, ready to be drawn.
pub struct HostMap {
    pub(crate) groups: Vec<MapGroup>,
    pub(crate) legend: Vec<(String, String)>,
    pub(crate) offline: String,
}

impl HostMap {
    /// The map of a host under these rules with these VMs on it.
    #[must_use]
    pub fn new(host: &Host, rules: &PlanRules, placements: &[&Placement]) -> Self {
        let layout = Layout::new(host, rules);
        let mut groups = Vec::new();
        for node in &layout.nodes {
            for (at, cache) in node.caches.iter().enumerate() {
                let cores = &layout.caches[*cache];
                let cores: Vec<MapCore> = cores
                    .iter()
                    .filter(|core| node.cores.contains(*core))
                    .map(|core| of_core(&layout, core, placements))
                    .collect();
                groups.push(MapGroup {
                    node: if layout.has_nodes {
                        format!("node {}", node.id)
                    } else {
                        "host".to_owned()
                    },
                    cache: (node.caches.len() > 1).then(|| format!("cache {at}")),
                    cores,
                });
            }
        }
        let mut legend: Vec<(String, String)> = placements
            .iter()
            .enumerate()
            .map(|(vm, placement)| (letters(vm), placement.name.clone()))
            .collect();
        let any = |wanted: fn(&MapCell) -> bool| {
            groups
                .iter()
                .flat_map(|group| group.cores.iter().flatten())
                .any(|(_, cell)| wanted(cell))
        };
        for (shown, mark, meaning) in [
            (any(|cell| matches!(cell, MapCell::Host)), "host", "left to the host"),
            (any(|cell| matches!(cell, MapCell::Taken)), "x", "taken by others"),
            (any(|cell| matches!(cell, MapCell::Idle(_))), "A-", "kept idle beside A's vCPU"),
            (any(|cell| matches!(cell, MapCell::Other(_))), "A+", "A's emulator and iothreads"),
            (any(|cell| matches!(cell, MapCell::Free)), ".", "free"),
        ] {
            if shown {
                legend.push((mark.to_owned(), meaning.to_owned()));
            }
        }
        Self { groups, legend, offline: layout.offline.to_string() }
    }
}

fn of_core(layout: &Layout, core: usize, placements: &[&Placement]) -> MapCore {
    let core = &layout.cores[core];
    // Whose core it is, if it is one VM's.
    let owner = placements.iter().position(|placement| {
        !placement.floating
            && placement
                .vcpu_pins
                .values()
                .any(|pcpus| core.threads.iter().any(|thread| pcpus.contains(*thread)))
    });
    core.threads
        .iter()
        .map(|thread| {
            let floating: Vec<usize> = (0..placements.len())
                .filter(|vm| {
                    let placement = placements[*vm];
                    placement.floating
                        && placement.vcpu_pins.values().any(|pcpus| pcpus.contains(*thread))
                })
                .collect();
            let other = placements.iter().position(|placement| {
                placement.emulator.contains(*thread)
                    || placement.iothreads.iter().any(|pcpus| pcpus.contains(*thread))
                    || placement.vhost.iter().any(|pcpus| pcpus.contains(*thread))
            });
            let cell = match (core.held, owner) {
                (Some(CoreReservation::Host), _) => MapCell::Host,
                (Some(CoreReservation::Taken), _) => MapCell::Taken,
                (None, Some(vm)) => {
                    let mut pins = placements[vm].vcpu_pins.iter();
                    match pins.find(|(_, pcpus)| pcpus.contains(*thread)) {
                        Some((vcpu, _)) => MapCell::Vcpu(vm, *vcpu),
                        None => MapCell::Idle(vm),
                    }
                }
                (None, None) if !floating.is_empty() => MapCell::Floating(floating),
                (None, None) => other.map_or(MapCell::Free, MapCell::Other),
            };
            (*thread, cell)
        })
        .collect()
}

/// What a cell says.
pub(crate) fn mark(cell: &MapCell) -> String {
    match cell {
        MapCell::Vcpu(vm, vcpu) => format!("{}{vcpu}", letters(*vm)),
        MapCell::Floating(vms) if vms.len() > 3 => format!("{} VMs", vms.len()),
        MapCell::Floating(vms) => vms.iter().map(|vm| letters(*vm)).collect::<Vec<_>>().join("/"),
        MapCell::Idle(vm) => format!("{}-", letters(*vm)),
        MapCell::Other(vm) => format!("{}+", letters(*vm)),
        MapCell::Host => "host".to_owned(),
        MapCell::Taken => "x".to_owned(),
        MapCell::Free => ".".to_owned(),
    }
}

/// A VM's letters by its number: A to Z, then AA, AB...
pub(crate) fn letters(mut number: usize) -> String {
    let mut text = Vec::new();
    loop {
        text.push(b'A' + (number % 26) as u8);
        if number < 26 {
            break;
        }
        number = number / 26 - 1;
    }
    text.reverse();
    String::from_utf8(text).expect("letters are ASCII")
}

/// Draws a map for a terminal `width` characters wide: for each thread of a
/// core a line of pCPUs and below it a line of what runs there, one column a
/// core.
#[must_use]
pub fn text(map: &HostMap, width: usize) -> String {
    let cells = || map.groups.iter().flat_map(|group| group.cores.iter().flatten());
    let column =
        cells().map(|(pcpu, cell)| mark(cell).len().max(pcpu.to_string().len())).max().unwrap_or(1)
            + 2;
    const SIDE: usize = 6;
    let in_row = (width.saturating_sub(SIDE) / column).max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut node = None;
    for group in &map.groups {
        let mut title = String::new();
        if node != Some(&group.node) {
            title.push_str(&group.node);
        }
        node = Some(&group.node);
        if let Some(cache) = &group.cache {
            let join = if title.is_empty() { "  " } else { ", " };
            title.push_str(join);
            title.push_str(cache);
        }
        if !title.is_empty() {
            lines.push(title);
        }
        for row in group.cores.chunks(in_row) {
            let most = row.iter().map(Vec::len).max().unwrap_or(0);
            for thread in 0..most {
                let mut pcpus = format!("{:<SIDE$}", if thread == 0 { "  pCPU" } else { "" });
                let mut marks = " ".repeat(SIDE);
                for core in row {
                    let (pcpu, says) =
                        core.get(thread).map_or_else(Default::default, |(pcpu, cell)| {
                            (pcpu.to_string(), mark(cell))
                        });
                    pcpus.push_str(&format!("{pcpu:>column$}"));
                    marks.push_str(&format!("{says:>column$}"));
                }
                lines.push(pcpus.trim_end().to_owned());
                lines.push(marks.trim_end().to_owned());
            }
        }
    }
    if !map.offline.is_empty() {
        lines.push(format!("offline: {}", map.offline));
    }
    lines.push(String::new());
    let mut line = String::new();
    for (mark, meaning) in &map.legend {
        let item = format!("{mark} {meaning}");
        if !line.is_empty() && line.len() + 3 + item.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push_str("   ");
        }
        line.push_str(&item);
    }
    lines.push(line);
    lines.join("\n") + "\n"
}
