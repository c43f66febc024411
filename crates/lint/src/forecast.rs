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
                policy.with_topology_manager(kubelet.topology, kubelet.topology_options)
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
