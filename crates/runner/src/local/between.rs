//! What lies between the two VMs of a trial, and how each is plugged in.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use host::network::{NetworkPort, PortLink};
use record::{CounterSet, Failure, FailureKind};
use vmconfig::VmSpec;
use vmconfig::qemu::{Interface, Netdev};

use super::dpdk_switch::DpdkSwitch;
use super::switch::RunningSwitch;
use super::{LocalLab, load_failure};
use crate::study::{NetworkKind, StudyNetwork, SwitchProgram};

/// Addresses of the interfaces: of the VM under test, and of the other one.
pub(super) const MACS: [&str; 2] = ["52:54:00:76:6d:01", "52:54:00:76:6d:02"];

/// Addresses of the guests, in the same order: a network that is for
/// documentation only (RFC 5737), so that it collides with none in use.
pub(super) const ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

/// Places in [`MACS`] and [`ADDRESSES`].
pub(super) const UNDER_TEST: usize = 0;
pub(super) const OTHER: usize = 1;

/// How a VM is plugged in.
pub(super) struct Plug {
    /// What starts QEMU where its network is.
    pub(super) enter: Vec<String>,
    /// QEMU's arguments for it.
    pub(super) args: Vec<String>,
}

/// The network between two VMs; it is torn down on drop. QEMUs that hold a socket between
/// them need nothing else.
#[derive(Debug, Default)]
pub(super) struct GuestLink {
    /// The kernel's: a bridge or macvtap devices.
    pub(super) of_kernel: Option<host::network::LabNetwork>,
    /// The switch in user space that vmlab started.
    switch: Option<StartedSwitch>,
}

/// A switch in user space that vmlab started.
#[derive(Debug)]
enum StartedSwitch {
    Own(RunningSwitch),
    Dpdk(DpdkSwitch),
}

impl GuestLink {
    /// What connects two VMs, and how each is plugged in, the VM under test first.
    pub(super) fn new(
        lab: &LocalLab<'_>,
        ends: [(StudyNetwork, &VmSpec); 2],
    ) -> Result<(Self, Vec<Plug>), Failure> {
        let interfaces = ends.each_ref().map(|(interface, _)| interface);
        let first = interfaces[UNDER_TEST];
        let mut between = Self::default();
        match first.kind {
            NetworkKind::User => {}
            NetworkKind::Bridge => {
                between.of_kernel = Some(of_kernel(lab, PortLink::Bridge, interfaces)?)
            }
            NetworkKind::Macvtap => {
                between.of_kernel = Some(of_kernel(lab, PortLink::Macvtap, interfaces)?);
            }
            NetworkKind::VhostUser if first.sockets.is_some() => {}
            NetworkKind::VhostUser => {
                between.switch = Some(match first.switch {
                    SwitchProgram::Vmlab => {
                        StartedSwitch::Own(RunningSwitch::start(lab, interfaces)?)
                    }
                    SwitchProgram::Testpmd | SwitchProgram::OvsDpdk => {
                        StartedSwitch::Dpdk(DpdkSwitch::start(lab, interfaces)?)
                    }
                });
            }
        }
        let socket = lab.runtime.path().join("net");
        // Left by a trial whose QEMU was killed.
        drop(std::fs::remove_file(&socket));
        let plug = |(number, (interface, spec)): (usize, &(StudyNetwork, &VmSpec))| {
            let netdev = if first.kind == NetworkKind::VhostUser {
                let own = between.switch.as_ref().map(|switch| match switch {
                    StartedSwitch::Own(switch) => switch.socket(number),
                    StartedSwitch::Dpdk(switch) => switch.socket(number),
                });
                let others = || first.sockets.as_ref().map(|sockets| sockets[number].clone());
                let socket = own.or_else(others).unwrap_or_default();
                Netdev::VhostUser { socket, server: false, reconnect_s: None }
            } else if let Some(network) = &between.of_kernel {
                network.netdev(number, interface.vhost)
            } else {
                // The VM under test is started first and listens.
                Netdev::Stream { socket: socket.clone(), server: number == UNDER_TEST }
            };
            let interface = Interface {
                model: interface.model,
                mac: Some(MACS[number].to_owned()),
                queues: Some(interface.queues).filter(|queues| *queues > 1),
                packed: interface.packed,
                boots: false,
                ..Interface::new("between", netdev)
            };
            let options = interface.options(spec.accel, &lab.capabilities).into_iter();
            let args = options.flat_map(|(option, value)| [option.to_owned(), value]).collect();
            let enter = between.of_kernel.as_ref().map(|network| network.enter(number));
            Plug { enter: enter.unwrap_or_default(), args }
        };
        let plugs = ends.iter().enumerate().map(plug).collect();
        Ok((between, plugs))
    }

    /// What the switch counted so far: vmlab's own alone does.
    pub(super) fn counters(&self) -> Result<CounterSet, Failure> {
        match &self.switch {
            Some(StartedSwitch::Own(switch)) => switch.counters(),
            Some(StartedSwitch::Dpdk(_)) | None => Ok(CounterSet::default()),
        }
    }

    /// Whether the switch still runs.
    pub(super) fn check_alive(&mut self) -> Result<(), Failure> {
        match &mut self.switch {
            // Only one that answers is of use.
            Some(StartedSwitch::Own(switch)) => switch.counters().map(drop),
            Some(StartedSwitch::Dpdk(switch)) => switch.check_alive(),
            None => Ok(()),
        }
    }

    /// `failure`, or what explains it: that the switch has no connection with a VM any more.
    /// Nothing that ended by itself is explained so.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        let may_wait = matches!(
            failure.kind,
            FailureKind::GuestNeverAnswered
                | FailureKind::GuestHung
                | FailureKind::TimeLimit
                | FailureKind::WorkloadFailed
        );
        let lost = match &self.switch {
            Some(StartedSwitch::Own(switch)) => switch.without_connection(),
            Some(StartedSwitch::Dpdk(switch)) => switch.without_connection(),
            None => None,
        };
        match lost.filter(|_| may_wait) {
            None => failure,
            Some((number, switch)) => {
                let vm = if number == UNDER_TEST { "the VM under test" } else { "the other VM" };
                let detail = format!(
                    "{}; the switch has no connection with {vm} any more ({switch})",
                    failure.detail
                );
                Failure { detail, ..failure }
            }
        }
    }

    /// What is known of the switch, if there is one.
    pub(super) fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        match &self.switch {
            Some(StartedSwitch::Own(switch)) => switch.facts(),
            Some(StartedSwitch::Dpdk(switch)) => switch.facts(),
            None => Ok(BTreeMap::new()),
        }
    }
}

/// A network of the kernel's.
fn of_kernel(
    lab: &LocalLab<'_>,
    switch: PortLink,
    interfaces: [&StudyNetwork; 2],
) -> Result<host::network::LabNetwork, Failure> {
    let port = |number: usize| NetworkPort {
        mac: MACS[number].to_owned(),
        queues: interfaces[number].queues,
    };
    let ports = [port(UNDER_TEST), port(OTHER)];
    let made = host::network::LabNetwork::new(switch, &ports, lab.runtime.path(), &lab.owner);
    made.map_err(|error| Failure::new(FailureKind::VmRefused, load_failure(&error).detail))
}
