//! Where the kubelet and KubeVirt will put a VM, from `placement`'s predictor.

use std::fmt;

use placement::predict::kubelet::{NodeAllocations, StaticPolicy};
use placement::predict::kubevirt::{PredictedPins, Vmi};
use placement::predict::{Admission, KubeletHost, predict};
use serde_json::Value;
use topology::PcpuSet;

use crate::context::Context;

/// How a VM would be placed on the context's host.
#[derive(Debug)]
pub(crate) enum HostForecast {
    /// It does not start, and why.
    Refused(String),
    Pinned(Box<PinnedVm>),
}

#[derive(Debug)]
pub(crate) struct PinnedVm {
    pub(crate) machine: KubeletHost,
    pub(crate) vmi: Vmi,
    pub(crate) cpuset: PcpuSet,
    pub(crate) pins: PredictedPins,
}

impl fmt::Display for PinnedVm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pins: Vec<String> = self.pins.vcpus.iter().map(u32::to_string).collect();
        write!(f, "pCPUs {}", pins.join(","))
    }
}

impl fmt::Display for HostForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "nothing: {why}"),
            Self::Pinned(pinned) => pinned.fmt(f),
        }
    }
}

/// Of an instance with dedicated pCPUs.
/// `None` where nothing can be said: no host, or values that other rules complain
/// about.
pub(crate) fn forecast(instance: &Value, context: &Context) -> Option<HostForecast> {
    let host = &context.machine.as_ref()?.host;
    let vmi = Vmi::from_value(instance).ok()?;
    let machine = KubeletHost::from_host(host).ok()?;
    let outcome = {
        let reserved = context.reserved.intersection(&machine.pcpus());
        let policy = StaticPolicy::new(&machine, context.kubelet.options, reserved)
            .and_then(|policy| {
                let kubelet = &context.kubelet;
                policy
                    .with_topology_manager(kubelet.topology, kubelet.topology_options)?
                    .with_memory_manager(&kubelet.memory)
            })
            .ok()?;
        predict(&machine, &policy, &NodeAllocations::default(), &vmi, context.kubevirt)?.outcome
    };
    Some(match outcome {
        Admission::Rejected(rejection) => HostForecast::Refused(rejection.to_string()),
        Admission::NotPinned { error, .. } => HostForecast::Refused(error.to_string()),
        Admission::Pinned { cpuset, pins } => {
            HostForecast::Pinned(Box::new(PinnedVm { machine, vmi, cpuset, pins }))
        }
    })
}

#[cfg(test)]
mod tests {
    use placement::predict::MemoryKind;
    use placement::predict::kubelet::{MemoryManagerPolicy, TopologyPolicy};
    use serde_json::json;
    use topology::{Host, Node, Pcpu};

    use super::*;

    /// Two nodes of four pCPUs and 2 GiB.
    fn host() -> Host {
        let pcpus = (0..8).map(|id| Pcpu {
            id,
            online: true,
            socket: Some(id / 4),
            core: Some(id % 4),
            node: Some(id / 4),
            ..Pcpu::default()
        });
        let node = |id: u32| Node {
            id,
            pcpus: (4 * id..4 * id + 4).collect(),
            memory_bytes: Some(2 << 30),
            ..Node::default()
        };
        Host { pcpus: pcpus.collect(), nodes: vec![node(0), node(1)], ..Host::default() }
    }

    #[test]
    fn a_static_memory_manager_counts() {
        let vm = |memory: &str| {
            json!({ "spec": { "domain": {
                "cpu": { "cores": 2, "dedicatedCpuPlacement": true },
                "memory": { "guest": memory }, "devices": {},
            } } })
        };
        let reserved = [(0, [(MemoryKind::Ordinary, 1 << 30)].into())].into();
        let forecast = |memory: &str, manager: MemoryManagerPolicy| {
            let mut context = Context::default().on(host());
            context.kubelet.topology = TopologyPolicy::Restricted;
            context.kubelet.memory = manager;
            forecast(&vm(memory), &context).expect("a forecast").to_string()
        };
        let manager = MemoryManagerPolicy::Static { reserved: Some(reserved) };
        assert_eq!(forecast("1536Mi", MemoryManagerPolicy::None), "pCPUs 0,1");
        // The first node has no more than 1 GiB for pods, and no node has 3 GiB.
        assert_eq!(forecast("1536Mi", manager.clone()), "pCPUs 4,5");
        let refused = forecast("2560Mi", manager);
        assert!(refused.contains("TopologyAffinityError"), "{refused}");
    }
}
