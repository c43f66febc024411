//! Pins that follow the memory: which host node has most of a guest node's memory is
//! seen once the guest is up, and its vCPUs are pinned there.

use std::collections::BTreeMap;

use host::audit::memory::{BytesByNode, VmMapping, VmMemory};
use record::{Failure, FailureKind};
use topology::{Host, PcpuSet};
use vmconfig::{VmSettings, VmSpec};

use super::placement::own_backend;

/// `spec` with the vCPUs of each guest node on the pCPUs of the host node that has most of
/// its memory, and that node in words, by guest node.
pub(super) fn follow_memory(
    spec: &VmSpec,
    memory: &VmMemory,
    host: &Host,
) -> Result<(VmSpec, BTreeMap<usize, String>), Failure> {
    let mut settings = VmSettings::clone(spec);
    let mut told = BTreeMap::new();
    let cells: Vec<(PcpuSet, Option<String>)> = match spec.numa.as_slice() {
        [] => vec![((0..spec.vcpus()).collect(), None)],
        nodes => {
            let cells = nodes.iter().enumerate();
            cells.map(|(number, node)| (node.vcpus.clone(), Some(own_backend(number)))).collect()
        }
    };
    for (number, (vcpus, backend)) in cells.into_iter().enumerate() {
        let refused = |why: &str| {
            Failure::new(
                FailureKind::NotAsClaimed,
                format!("The memory of guest node {number} can't be followed: {why}"),
            )
        };
        let region =
            region(&memory.regions, backend).ok_or_else(|| refused("its mapping is not known"))?;
        let by_node = region.by_node.as_ref();
        let by_node = by_node.ok_or_else(|| refused("the kernel shows no nodes of mappings"))?;
        let (home, percent) = home(by_node).ok_or_else(|| refused("none of it is present"))?;
        let pcpus = host.select(|pcpu| pcpu.online && pcpu.node == Some(home));
        if pcpus.is_empty() {
            return Err(refused(&format!("node {home} has no pCPU")));
        }
        for vcpu in &vcpus {
            settings.pins.vcpus.0.insert(vcpu, pcpus.clone());
        }
        told.insert(number, format!("node {home} has {percent:.0} % of it: pCPUs {pcpus}"));
    }
    let followed = VmSpec::new(settings)
        .map_err(|error| Failure::new(FailureKind::NotAsClaimed, error.to_string()))?;
    Ok((followed, told))
}

/// What is said where the memory of a VM lies so that its vCPUs, once they followed it, share
/// pCPUs although the host has enough for all.
pub(super) fn crowded(followed: &VmSpec, host: &Host) -> Vec<String> {
    if host.select(|pcpu| pcpu.online).len() < followed.vcpus() as usize {
        return Vec::new();
    }
    let mut by_home: BTreeMap<String, (usize, &PcpuSet)> = BTreeMap::new();
    for pcpus in followed.pins.vcpus.values() {
        by_home.entry(pcpus.to_string()).or_insert((0, pcpus)).0 += 1;
    }
    let crowded = by_home.into_values().filter(|(vcpus, pcpus)| *vcpus > pcpus.len());
    crowded
        .map(|(vcpus, pcpus)| {
            format!(
                "{vcpus} vCPUs followed their memory to pCPUs {pcpus} and share them, while others are free: bind the memory of each guest node (`host_nodes`), or reserve as many huge pages on each node as the VM takes of them"
            )
        })
        .collect()
}

/// The mapping of a backend; for none the greatest, which is the RAM of a guest without
/// nodes.
fn region(regions: &[VmMapping], backend: Option<String>) -> Option<&VmMapping> {
    match backend {
        Some(backend) => regions.iter().find(|region| region.backend.as_ref() == Some(&backend)),
        None => regions.iter().max_by_key(|region| region.bytes),
    }
}

/// The node that has most, and its share, percent; the lowest of equals.
fn home(by_node: &BytesByNode) -> Option<(u32, f64)> {
    let all: u64 = by_node.values().sum();
    let (node, bytes) = by_node.iter().max_by_key(|(node, bytes)| (**bytes, u32::MAX - **node))?;
    (*bytes > 0).then(|| (*node, 100.0 * *bytes as f64 / all as f64))
}

#[cfg(test)]
mod tests {
    use topology::Pcpu;
    use vmconfig::{Accel, Arch, GuestNode, GuestTopology};

    use super::*;
    use crate::testing;

    #[test]
    fn vcpus_go_where_their_memory_is() {
        let host = testing::host_of(4, |pcpu| Pcpu { node: Some(pcpu.id / 2), ..pcpu });
        let node = |vcpus: &str| GuestNode {
            vcpus: vcpus.parse().unwrap(),
            memory_mib: 128,
            ..GuestNode::default()
        };
        let settings = VmSettings::new("vm", Arch::X86_64, Accel::Tcg, testing::boot());
        let spec = VmSpec::new(VmSettings {
            topology: GuestTopology::of_cores(3),
            memory_mib: 256,
            numa: vec![node("0,2"), node("1")],
            ..settings
        })
        .unwrap();
        let mapping = |number: usize, by_node: &[(u32, u64)]| VmMapping {
            bytes: 128 << 20,
            backend: Some(own_backend(number)),
            by_node: Some(by_node.iter().copied().collect()),
            ..VmMapping::default()
        };
        let regions = vec![mapping(0, &[(0, 1), (1, 3)]), mapping(1, &[(0, 8), (1, 8)])];
        let mut memory = VmMemory { regions, ..VmMemory::default() };
        let (followed, told) = follow_memory(&spec, &memory, &host).unwrap();
        let pins: Vec<String> = followed.pins.vcpus.values().map(ToString::to_string).collect();
        assert_eq!(pins, ["2-3", "0-1", "2-3"]);
        assert_eq!(told[&0], "node 1 has 75 % of it: pCPUs 2-3");
        assert_eq!(crowded(&followed, &host), Vec::<String>::new());
        let together = vec![mapping(0, &[(0, 1), (1, 3)]), mapping(1, &[(1, 8)])];
        let together = VmMemory { regions: together, ..VmMemory::default() };
        let (followed, _) = follow_memory(&spec, &together, &host).unwrap();
        let [said] = crowded(&followed, &host).try_into().unwrap();
        assert!(said.starts_with("3 vCPUs followed their memory to pCPUs 2-3 and share"), "{said}");
        // Where there are not enough they must share.
        assert!(crowded(&followed, &testing::host_of(2, |pcpu| pcpu)).is_empty());
        memory.regions[1].by_node = Some(BytesByNode::new());
        let check = |memory: &VmMemory, part: &str| {
            let failure = follow_memory(&spec, memory, &host).unwrap_err();
            assert!(failure.detail.contains(part), "{failure:?}");
        };
        check(&memory, "guest node 1 can't be followed: none of it is present");
        memory.regions[0].backend = None;
        check(&memory, "guest node 0 can't be followed: its mapping is not known");
    }
}
