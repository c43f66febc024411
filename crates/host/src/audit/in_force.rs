//! Is what was asked for in force? Pins and memory as wished, against the
//! living process.
//!
//! Equality is meant: a vCPU that was given pCPUs 0-3 and has 0-1 is another
//! experiment. Only helpers that come and go may have less, because they
//! inherit from whichever thread started them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::PcpuSet;
use topology::bytes::rounded as size;

use super::RunningVm;
use super::memory::VmMapping;
use super::thread::{RunningThread, ThreadRole};

/// What somebody wants to be true of a running VM. What is not named is not
/// checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wishes {
    /// pCPUs by vCPU number.
    pub vcpus: BTreeMap<u32, PcpuSet>,
    /// pCPUs of every thread that is neither vCPU nor an iothread with pins of
    /// its own: the main loop, its helpers, vhost without pins of its own.
    pub emulator: Option<PcpuSet>,
    /// pCPUs of the kernel's vhost threads.
    #[serde(default)]
    pub vhost: Option<PcpuSet>,
    /// pCPUs by the iothread's id.
    pub iothreads: BTreeMap<String, PcpuSet>,
    /// Memory.
    pub memory: Vec<MemoryWish>,
}

/// What memory shall be like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryWish {
    /// Which memory backend's; `None` for all guest memory.
    pub backend: Option<String>,
    /// The nodes from which it comes, and from no other. Empty for any.
    pub nodes: BTreeSet<u32>,
    /// Size of the pages of the pool from which it comes.
    pub page_bytes: Option<u64>,
}

/// One thing that is not as wished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// Of what: `vCPU 3`, `iothread io1`, `emulator (thread 4711, call_rcu)`,
    /// `memory ram0`.
    pub of: String,
    /// What was asked for: `pCPU 3`, `node 0`.
    pub asked: String,
    /// What is: `may run on 0-1`, `64 MiB on node 1`.
    pub found: String,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, asked, found } = self;
        write!(f, "{of}: asked for {asked}, {found}")
    }
}

/// All that is not as wished; empty when the VM is what it claims to be.
///
/// A wish that can't be checked (no thread is known to be that vCPU, no NUMA
/// maps) counts as a deviation: what is not proven is not claimed.
#[must_use]
pub fn placement_in_force(wishes: &Wishes, vm: &RunningVm) -> Vec<Deviation> {
    let mut deviations = Vec::new();
    threads(wishes, vm, &mut deviations);
    for wish in &wishes.memory {
        memory(wish, vm, &mut deviations);
    }
    deviations
}

fn threads(wishes: &Wishes, vm: &RunningVm, deviations: &mut Vec<Deviation>) {
    let vcpus = vm.vcpus();
    for (vcpu, asked) in &wishes.vcpus {
        let of = format!("vCPU {vcpu}");
        affinity(of, vcpus.get(vcpu).copied(), asked, deviations);
    }
    for (id, asked) in &wishes.iothreads {
        let role = ThreadRole::Iothread { id: id.clone() };
        let thread = vm.threads.iter().find(|thread| thread.role == role);
        affinity(role.to_string(), thread, asked, deviations);
    }
    if let Some(asked) = &wishes.vhost {
        for thread in vm.threads.iter().filter(|thread| thread.role == ThreadRole::Vhost) {
            affinity(format!("vhost (thread {})", thread.tid), Some(thread), asked, deviations);
        }
    }
    let Some(asked) = &wishes.emulator else { return };
    // Helpers inherit the pCPUs of the thread that started them.
    let inherited = wishes.iothreads.values().fold(asked.clone(), |all, one| all.union(one));
    for thread in &vm.threads {
        let own = matches!(&thread.role, ThreadRole::Iothread { id } if wishes.iothreads.contains_key(id));
        let own = own || (thread.role == ThreadRole::Vhost && wishes.vhost.is_some());
        if thread.role.is_vcpu() || own {
            continue;
        }
        let inherits = matches!(thread.role, ThreadRole::Worker | ThreadRole::Unknown);
        if inherits && thread.affinity.as_ref().is_some_and(|found| found.is_subset(&inherited)) {
            continue;
        }
        let of = match &thread.role {
            ThreadRole::MainLoop => "emulator".to_owned(),
            ThreadRole::Iothread { .. } => thread.role.to_string(),
            _ => format!("emulator (thread {}, {})", thread.tid, thread.name),
        };
        affinity(of, Some(thread), asked, deviations);
    }
}

const UNKNOWN: &str = "but its thread is not known";

fn affinity(
    of: String,
    thread: Option<&RunningThread>,
    asked: &PcpuSet,
    deviations: &mut Vec<Deviation>,
) {
    let found = thread.and_then(|thread| thread.affinity.as_ref());
    if found == Some(asked) {
        return;
    }
    let found = found.map_or(UNKNOWN.to_owned(), |found| format!("may run on {found}"));
    let noun = if asked.len() == 1 { "pCPU" } else { "pCPUs" };
    deviations.push(Deviation { of, asked: format!("{noun} {asked}"), found });
}

fn memory(wish: &MemoryWish, vm: &RunningVm, deviations: &mut Vec<Deviation>) {
    let of = match &wish.backend {
        Some(id) => format!("memory {id}"),
        None => "memory".to_owned(),
    };
    let nodes_asked = format!("node {}", list(&wish.nodes));
    let is_meant = |region: &&VmMapping| wish.backend.is_none() || region.backend == wish.backend;
    let regions: Vec<&VmMapping> = vm.memory.regions.iter().filter(is_meant).collect();
    if regions.is_empty() {
        let asked = if wish.nodes.is_empty() { "huge pages".to_owned() } else { nodes_asked };
        let found = "but its mapping is not known".to_owned();
        deviations.push(Deviation { of, asked, found });
        return;
    }
    let mut deviate = |asked: &str, found: String| {
        deviations.push(Deviation { of: of.clone(), asked: asked.to_owned(), found });
    };
    // The guest's RAM; firmware and tables are small and of no backend's kind.
    let greatest = regions.iter().max_by_key(|region| region.bytes);
    if let Some(asked) = wish.page_bytes
        && let Some(region) = greatest
        && region.page_bytes != asked
    {
        let found = format!("has pages of {}", size(region.page_bytes));
        deviate(&format!("pages of {}", size(asked)), found);
    }
    if wish.nodes.is_empty() {
        return;
    }
    let mut elsewhere: BTreeMap<u32, u64> = BTreeMap::new();
    // Without a backend's name all mappings are here, and only RAM was asked for.
    let ram = |region: &&&VmMapping| wish.backend.is_some() || Some(**region) == greatest.copied();
    for region in regions.iter().filter(ram) {
        match &region.by_node {
            None => return deviate(&nodes_asked, "but its nodes are not known".to_owned()),
            Some(by_node) => {
                for (node, bytes) in by_node.iter().filter(|(node, _)| !wish.nodes.contains(node)) {
                    *elsewhere.entry(*node).or_default() += bytes;
                }
            }
        }
    }
    for (node, bytes) in elsewhere {
        deviate(&nodes_asked, format!("{} on node {node}", size(bytes)));
    }
    // What is not present yet will come from where policy and cpuset let it.
    let allowed = vm.memory.allowed_nodes.as_ref();
    let held = |region: &&VmMapping| {
        let bound = region.is_bound().then(|| region.policy_nodes()).flatten();
        let within = |nodes: &BTreeSet<u32>| nodes.is_subset(&wish.nodes);
        bound.as_ref().is_some_and(within) || allowed.is_some_and(within)
    };
    if let Some(region) = greatest
        && !held(region)
    {
        let policy = region.policy.as_deref().unwrap_or("not known");
        let found = match allowed {
            Some(nodes) => format!("policy {policy} within nodes {}", list(nodes)),
            None => format!("policy {policy}"),
        };
        deviate(&nodes_asked, found);
    }
}

/// `0-1,3`.
pub(crate) fn list(nodes: &BTreeSet<u32>) -> String {
    nodes.iter().copied().collect::<PcpuSet>().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::testing::{set, thread, vm};

    fn check(wishes: &Wishes, vm: &RunningVm, expected: &[&str]) {
        let found: Vec<_> =
            placement_in_force(wishes, vm).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    fn pins(pins: &[(u32, &str)]) -> BTreeMap<u32, PcpuSet> {
        pins.iter().map(|(vcpu, pcpus)| (*vcpu, set(pcpus))).collect()
    }

    #[test]
    fn pins_are_compared_with_what_is() {
        let io = ThreadRole::Iothread { id: "io1".to_owned() };
        let mut running = vm("db", &["2", "3"]);
        running.threads.push(thread(20, io, "4"));
        running.threads.push(thread(21, ThreadRole::MainLoop, "4-5"));
        running.threads.push(thread(22, ThreadRole::Worker, "4"));
        running.threads.push(thread(23, ThreadRole::Other, "4-5"));
        let mut wishes = Wishes {
            vcpus: pins(&[(0, "2"), (1, "3")]),
            emulator: Some(set("4-5")),
            iothreads: [("io1".to_owned(), set("4"))].into(),
            ..Wishes::default()
        };
        check(&wishes, &running, &[]);
        running.threads.push(thread(24, ThreadRole::Vhost, "6"));
        let other = "emulator (thread 24, t24): asked for pCPUs 4-5, may run on 6";
        check(&wishes, &running, &[other]);
        wishes.vhost = Some(set("6"));
        check(&wishes, &running, &[]);
        wishes.vhost = Some(set("7"));
        check(&wishes, &running, &["vhost (thread 24): asked for pCPU 7, may run on 6"]);
        running.threads.pop();
        wishes.vhost = None;
        wishes.vcpus = pins(&[(0, "3"), (1, "2-3"), (2, "4")]);
        wishes.emulator = Some(set("5"));
        wishes.iothreads = [("io1".to_owned(), set("5")), ("io2".to_owned(), set("5"))].into();
        check(
            &wishes,
            &running,
            &[
                "vCPU 0: asked for pCPU 3, may run on 2",
                "vCPU 1: asked for pCPUs 2-3, may run on 3",
                "vCPU 2: asked for pCPU 4, but its thread is not known",
                "iothread io1: asked for pCPU 5, may run on 4",
                "iothread io2: asked for pCPU 5, but its thread is not known",
                "emulator: asked for pCPU 5, may run on 4-5",
                "emulator (thread 22, t22): asked for pCPU 5, may run on 4",
                "emulator (thread 23, t23): asked for pCPU 5, may run on 4-5",
            ],
        );
        check(&Wishes::default(), &running, &[]);
    }

    #[test]
    fn memory_is_where_it_shall_be() {
        const MIB: u64 = 1 << 20;
        let mut running = vm("db", &[]);
        let wish = |backend: Option<&str>, nodes: &[u32], page_bytes: Option<u64>| Wishes {
            memory: vec![MemoryWish {
                backend: backend.map(str::to_owned),
                nodes: nodes.iter().copied().collect(),
                page_bytes,
            }],
            ..Wishes::default()
        };
        check(
            &wish(None, &[0], None),
            &running,
            &["memory: asked for node 0, but its mapping is not known"],
        );
        running.memory.allowed_nodes = Some([0, 1].into());
        running.memory.regions = vec![VmMapping {
            backend: Some("ram0".to_owned()),
            bytes: 64 * MIB,
            page_bytes: 4096,
            by_node: Some([(0, 48 * MIB), (1, 16 * MIB)].into()),
            policy: Some("bind:0-1".to_owned()),
            ..VmMapping::default()
        }];
        check(&wish(None, &[0, 1], Some(4096)), &running, &[]);
        // Firmware is not what was bound.
        let mut with_firmware = running.clone();
        with_firmware.memory.regions.push(VmMapping {
            bytes: 2 * MIB,
            by_node: Some([(3, 2 * MIB)].into()),
            ..VmMapping::default()
        });
        check(&wish(None, &[0, 1], None), &with_firmware, &[]);
        check(
            &wish(Some("ram0"), &[0], Some(2 * MIB)),
            &running,
            &[
                "memory ram0: asked for pages of 2 MiB, has pages of 4 KiB",
                "memory ram0: asked for node 0, 16 MiB on node 1",
                "memory ram0: asked for node 0, policy bind:0-1 within nodes 0-1",
            ],
        );
        // Nothing present yet: what will come is held by the cpuset.
        running.memory.regions[0].by_node = Some(BTreeMap::new());
        running.memory.regions[0].policy = Some("default".to_owned());
        check(
            &wish(None, &[0], None),
            &running,
            &["memory: asked for node 0, policy default within nodes 0-1"],
        );
        running.memory.allowed_nodes = Some([0].into());
        check(&wish(None, &[0], None), &running, &[]);
        running.memory.regions[0].by_node = None;
        check(
            &wish(None, &[0], None),
            &running,
            &["memory: asked for node 0, but its nodes are not known"],
        );
    }
}
