//! Where a kubelet and KubeVirt would put the VMs of a variant.

use placement::predict::kubelet::{PolicyOptions, StaticPolicy, TopologyOptions, TopologyPolicy};
use placement::predict::kubevirt::{GuestNuma, PredictedPins, Vmi};
use placement::predict::node::{Arrival, admit_in_order};
use placement::predict::{Admission, KubeletHost, KubevirtVersion, NEWEST_KNOWN};
use serde_json::json;
use topology::{Host, PcpuSet};
use vmconfig::{GuestNode, VcpuPins, VmPatch, VmSpec};

use crate::study::KubevirtNode;

/// The pins of `count` VMs like `spec` that come to `host`, a node of a cluster, in turn.
///
/// What KubeVirt pins nowhere runs on all pCPUs of the pod, in whose cgroup it is.
pub(super) fn placed(
    host: &Host,
    spec: &VmSpec,
    count: u32,
    node: &KubevirtNode,
) -> Result<Vec<VmPatch>, String> {
    let version: KubevirtVersion = match &node.version {
        None => NEWEST_KNOWN,
        Some(version) => version.parse().map_err(told)?,
    };
    let options: PolicyOptions = node.kubelet.parse().map_err(told)?;
    let topology_policy: TopologyPolicy = match &node.topology_manager {
        None => TopologyPolicy::None,
        Some(policy) => policy.parse().map_err(told)?,
    };
    let machine = KubeletHost::from_host(host).map_err(told)?;
    let policy = StaticPolicy::new(&machine, options, node.reserved.clone())
        .and_then(|policy| {
            policy.with_topology_manager(topology_policy, TopologyOptions::default())
        })
        .map_err(told)?;
    let vmi = guest(spec, node)?;
    let arrivals = (0..count).map(|_| Arrival::Vm(&vmi));
    let admitted = admit_in_order(&machine, &policy, arrivals, version);
    (0..)
        .zip(admitted)
        .map(|(number, prediction)| {
            match prediction.expect("a dedicated guest is predicted").outcome {
                Admission::Rejected(why) => Err(format!(
                    "kubevirt: the kubelet rejects VM {number} of {count} on this host: {why}"
                )),
                Admission::NotPinned { cpuset, error } => Err(format!(
                    "kubevirt: KubeVirt {version} does not start VM {number} of {count} on pCPUs {cpuset}: {error}"
                )),
                Admission::Pinned { cpuset, pins } => Ok(patch(spec.vcpus(), &cpuset, &pins)),
            }
        })
        .collect()
}

fn told(error: impl std::error::Error) -> String {
    format!("kubevirt: {error}")
}

/// What of the guest decides.
fn guest(spec: &VmSpec, node: &KubevirtNode) -> Result<Vmi, String> {
    let topology = spec.topology;
    if topology.dies > 1 || topology.clusters > 1 {
        return Err(format!(
            "kubevirt: topology {topology}: its guests have sockets, cores and threads alone"
        ));
    }
    if spec.iothreads > 0 {
        return Err(format!("kubevirt: iothreads = {}: leave them out", spec.iothreads));
    }
    let numa = node.guest_mapping_passthrough.then(|| json!({ "guestMappingPassthrough": {} }));
    let huge_pages = spec.memory.huge_pages.filter(|page| page.is_huge());
    let huge_pages = huge_pages.map(|page| json!({ "pageSize": format!("{}Ki", page.kib()) }));
    let vmi = json!({ "spec": { "domain": {
        "cpu": {
            "sockets": topology.sockets,
            "cores": topology.cores,
            "threads": topology.threads,
            "dedicatedCpuPlacement": true,
            "isolateEmulatorThread": node.isolate_emulator_thread,
            "numa": numa,
        },
        "memory": { "guest": format!("{}Mi", spec.memory_mib), "hugepages": huge_pages },
    } } });
    Vmi::from_value(&vmi).map_err(told)
}

fn patch(vcpus: u32, cpuset: &PcpuSet, pins: &PredictedPins) -> VmPatch {
    let pin = |vcpu: u32| {
        let pcpu = pins.vcpus.get(vcpu as usize);
        (vcpu, pcpu.map_or_else(|| cpuset.clone(), |pcpu| PcpuSet::from_iter([*pcpu])))
    };
    let emulator = match pins.emulator.as_slice() {
        [] => cpuset.clone(),
        pcpus => pcpus.iter().copied().collect(),
    };
    VmPatch {
        pins: Some(VcpuPins((0..vcpus).map(pin).collect())),
        emulator_pin: Some(emulator),
        numa: pins.numa.as_ref().map(cells),
        ..VmPatch::default()
    }
}

fn cells(numa: &GuestNuma) -> Vec<GuestNode> {
    let cell = |node: &placement::predict::kubevirt::PredictedNode| GuestNode {
        vcpus: node.vcpus.iter().copied().collect(),
        memory_mib: node.memory_bytes >> 20,
        host_nodes: Some(PcpuSet::from_iter([node.host_node])),
        ..GuestNode::default()
    };
    numa.nodes.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use topology::Pcpu;
    use vmconfig::{Accel, Arch, GuestTopology, VmSettings};

    use super::*;
    use crate::testing;

    /// A node of 8 cores of 2 threads, siblings i and i + 8.
    fn host() -> Host {
        testing::host_of(16, |pcpu| Pcpu {
            socket: Some(0),
            core: Some(pcpu.id % 8),
            thread: Some(pcpu.id / 8),
            node: Some(0),
            ..pcpu
        })
    }

    fn spec(topology: GuestTopology) -> VmSpec {
        let settings = VmSettings::new("vm", Arch::X86_64, Accel::Kvm, testing::boot());
        VmSpec::new(VmSettings { topology, ..settings }).unwrap()
    }

    #[test]
    fn versions_place_siblings_differently() {
        let topology = GuestTopology { threads: 2, ..GuestTopology::of_cores(2) };
        let pins = |version: &str| {
            let node = KubevirtNode {
                version: Some(version.to_owned()),
                reserved: "0,8".parse().unwrap(),
                ..KubevirtNode::default()
            };
            let patches = placed(&host(), &spec(topology), 2, &node).unwrap();
            let of = |patch: &VmPatch| {
                let pins = patch.pins.as_ref().unwrap().0.values();
                pins.map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            patches.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(pins("0.44.0"), ["1 2 9 10", "3 4 11 12"]);
        assert_eq!(pins("1.9.0"), ["1 9 2 10", "3 11 4 12"]);
    }

    #[test]
    fn what_can_t_be_placed_is_told() {
        let check = |cores: u32, count: u32, node: KubevirtNode, part: &str| {
            let why = placed(&host(), &spec(GuestTopology::of_cores(cores)), count, &node);
            let why = why.unwrap_err();
            assert!(why.contains(part), "{why}");
        };
        let node = KubevirtNode::default;
        check(8, 3, node(), "rejects VM 2 of 3");
        check(3, 1, KubevirtNode { kubelet: "full-pcpus-only".into(), ..node() }, "SMTAlignment");
        check(1, 1, KubevirtNode { version: Some("1".into()), ..node() }, "\"1\"");
        check(1, 1, KubevirtNode { kubelet: "fast".into(), ..node() }, "fast");
    }
}
