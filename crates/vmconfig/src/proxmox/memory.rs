//! Memory and its nodes.
//!
//! Source: qemu-server `Memory.pm`.

use topology::PcpuSet;

use super::config::{ProxmoxEntry, separated};
use super::maker::Maker;
use super::trouble::Trouble;
use crate::command_line::ShellWord;
use crate::source::{LocatedValue, Span};

/// Memory where nobody says any.
const MEMORY_MIB: u64 = 512;

/// `hugepages`.
#[derive(Clone, Copy)]
enum HugepagesOption {
    /// The largest that the host has and that divide memory.
    Any,
    Mib(u64),
}

impl HugepagesOption {
    fn mib(self, memory_mib: u64) -> u64 {
        match self {
            Self::Mib(mib) => mib,
            Self::Any if memory_mib.is_multiple_of(1024) => 1024,
            Self::Any => 2,
        }
    }
}

pub(super) fn make(maker: &mut Maker<'_>) {
    let said = maker.take("memory").and_then(|entry| {
        let current = entry.parts("current").take("current")?;
        maker.read("memory", &current, "a number of MiB", |text| {
            text.parse().ok().filter(|mib| *mib > 0)
        })
    });
    let memory = said.unwrap_or(LocatedValue::new(MEMORY_MIB, maker.head));
    let place = memory.span;
    let size = ShellWord::made(place).with(&memory.value.to_string(), place);
    maker.option("m", place, size);

    let pages = maker.take("hugepages").and_then(|entry| {
        maker.read("hugepages", &entry.value, "any, 2 or 1024", |text| match text {
            "any" => Some(HugepagesOption::Any),
            "2" => Some(HugepagesOption::Mib(2)),
            "1024" => Some(HugepagesOption::Mib(1024)),
            _ => None,
        })
    });
    let nodes: Vec<(u32, &ProxmoxEntry)> = maker.take_all("numa");
    let switch = maker.switch("numa");
    if !switch.as_ref().is_some_and(|on| on.value) {
        if let Some(pages) = &pages {
            maker.trouble(Trouble::HugePagesWithoutNuma, pages.span);
        }
        for (_, entry) in nodes {
            maker.trouble(Trouble::NodeIgnored(entry.key.value.clone()), entry.key.span);
        }
        return;
    }
    if nodes.is_empty() {
        let place = switch.map_or(maker.head, |on| on.span);
        by_sockets(maker, &memory, pages.as_ref(), place);
        return;
    }
    let mut sum: u64 = 0;
    for (number, entry) in nodes {
        sum = sum.saturating_add(node(maker, number, entry, pages.as_ref()).unwrap_or(0));
    }
    if sum != 0 && sum != memory.value {
        let trouble = Trouble::NodesAreNotMemory { nodes_mib: sum, memory_mib: memory.value };
        maker.trouble(trouble, memory.span);
    }
}

/// A node for each socket, with its share of memory.
fn by_sockets(
    maker: &mut Maker<'_>,
    memory: &LocatedValue<u64>,
    pages: Option<&LocatedValue<HugepagesOption>>,
    place: Span,
) {
    let count = |key: &str| {
        let number = maker.config.text(key).and_then(|text| text.parse::<u64>().ok());
        number.filter(|number| *number > 0)
    };
    let sockets = count("sockets").or(count("smp")).unwrap_or(1);
    let cores = count("cores").unwrap_or(1);
    if sockets > crate::memory::MAX_NODES.into() {
        return;
    }
    for node in 0..sockets {
        let share = memory.value / sockets;
        let Some(object) = backend(maker, u32::try_from(node).unwrap_or(0), share, place, pages)
        else {
            return;
        };
        maker.option("object", place, object);
        let (first, last) = (node.saturating_mul(cores), (node + 1).saturating_mul(cores) - 1);
        let text = format!("node,nodeid={node},cpus={first}-{last},memdev=ram-node{node}");
        maker.option("numa", place, ShellWord::made(place).with(&text, place));
    }
}

/// One node as it is written; its memory.
fn node(
    maker: &mut Maker<'_>,
    number: u32,
    entry: &ProxmoxEntry,
    pages: Option<&LocatedValue<HugepagesOption>>,
) -> Option<u64> {
    let mut parts = entry.parts("");
    let key = entry.key.value.clone();
    let place = entry.value.span;
    let without = |maker: &mut Maker<'_>, what: &'static str| {
        maker.trouble(Trouble::NodeWithout { node: key.clone(), what }, place);
    };
    let Some(memory) = parts.take("memory") else {
        without(maker, "memory");
        return None;
    };
    let Some(cpus) = parts.take("cpus") else {
        without(maker, "cpus");
        return None;
    };
    let whole = |text: &str| text.split('.').next()?.parse::<u64>().ok();
    let memory = maker.read(&key, &memory, "a number of MiB", whole)?;
    let set = |text: &str| text.replace(';', ",").parse::<PcpuSet>().ok();
    maker.read(&key, &cpus, "a list of vCPUs", set)?;
    let mut object = backend(maker, number, memory.value, memory.span, pages)?;
    let hosts = parts.take("hostnodes");
    let policy = parts.take("policy");
    match (hosts, policy) {
        (Some(hosts), Some(policy)) => {
            for (range, at) in separated(&hosts) {
                object = object.with(",host-nodes=", at.span).with(&range, at.span);
            }
            object = object.with(",policy=", policy.span).with(&policy.value, policy.span);
        }
        (Some(hosts), None) => {
            maker.trouble(Trouble::HostNodesWithoutPolicy(key.clone()), hosts.span);
        }
        (None, _) if pages.is_some() => {
            maker.trouble(Trouble::HugePagesWithoutHostNodes(key.clone()), place);
        }
        (None, _) => {}
    }
    maker.option("object", entry.key.span, object);
    let mut node = ShellWord::made(place).with(&format!("node,nodeid={number}"), place);
    for (range, at) in separated(&cpus) {
        node = node.with(",cpus=", at.span).with(&range, at.span);
    }
    node = node.with(&format!(",memdev=ram-node{number}"), place);
    maker.option("numa", entry.key.span, node);
    maker.keep_rest(entry, &parts);
    Some(memory.value)
}

/// What holds a node's memory.
fn backend(
    maker: &mut Maker<'_>,
    number: u32,
    memory_mib: u64,
    place: Span,
    pages: Option<&LocatedValue<HugepagesOption>>,
) -> Option<ShellWord> {
    let id = format!("id=ram-node{number},size=");
    let size = format!("{memory_mib}M");
    let Some(pages) = pages else {
        let head = format!("memory-backend-ram,{id}");
        return Some(ShellWord::made(place).with(&head, place).with(&size, place));
    };
    let page_mib = pages.value.mib(memory_mib);
    if !memory_mib.is_multiple_of(page_mib) {
        maker.trouble(Trouble::HugePagesLeftOver { memory_mib, page_mib }, pages.span);
        return None;
    }
    let path = format!(",mem-path=/run/hugepages/kvm/{}kB", page_mib * 1024);
    let head = format!("memory-backend-file,{id}");
    let word = ShellWord::made(place).with(&head, place).with(&size, place);
    Some(word.with(&path, pages.span).with(",share=on,prealloc=yes", pages.span))
}
