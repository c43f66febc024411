//! What lies between the two VMs of a trial, and how each is plugged in.

use std::net::Ipv4Addr;

use host::network::{Port, Switch};
use record::{Failure, FailureKind};
use vmconfig::{Accel, NicModel, VmSpec};

use super::switch::RunningSwitch;
use super::{LocalLab, load_failure};
use crate::study::{NetworkKind, StudyNetwork};

/// Addresses of the interfaces: of the VM under test, and of the other one.
pub(super) const MACS: [&str; 2] = ["52:54:00:76:6d:01", "52:54:00:76:6d:02"];

/// Addresses of the guests, in the same order: a network that is for
/// documentation only (RFC 5737), so that it collides with none in use.
pub(super) const ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

/// Places in [`MACS`] and [`ADDRESSES`].
pub(super) const UNDER_TEST: usize = 0;
pub(super) const OTHER: usize = 1;

/// The first QEMU that emulates a vhost-user NIC with interrupts of its own: those
/// before end in `msix_set_vector_notifiers` when the guest's driver comes.
const VECTORS_SINCE: u32 = 8;

/// How a VM is plugged in.
pub(super) struct Plug {
    /// What starts QEMU where its network is.
    pub(super) enter: Vec<String>,
    /// QEMU's arguments for it.
    pub(super) args: Vec<String>,
}

/// What lies between two VMs; it ends on drop. QEMUs that hold a socket between
/// them need nothing else.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// The kernel's: a bridge or macvtap devices.
    pub(super) of_kernel: Option<host::network::LabNetwork>,
    /// The switch in user space that vmlab started.
    pub(super) switch: Option<RunningSwitch>,
}

impl Between {
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
                between.of_kernel = Some(of_kernel(lab, Switch::Bridge, interfaces)?)
            }
            NetworkKind::Macvtap => {
                between.of_kernel = Some(of_kernel(lab, Switch::Macvtap, interfaces)?);
            }
            NetworkKind::VhostUser if first.sockets.is_some() => {}
            NetworkKind::VhostUser => between.switch = Some(RunningSwitch::start(lab, interfaces)?),
        }
        let socket = lab.runtime.path().join("net");
        // Left by a trial whose QEMU was killed.
        drop(std::fs::remove_file(&socket));
        let plug = |(number, (interface, spec)): (usize, &(StudyNetwork, &VmSpec))| {
            let mut args = Vec::new();
            let netdev = if first.kind == NetworkKind::VhostUser {
                let own = between.switch.as_ref().map(|switch| switch.socket(number));
                let others = || first.sockets.as_ref().map(|sockets| sockets[number].clone());
                let path = own.or_else(others).unwrap_or_default();
                // QEMU takes a comma in a value if it stands there twice.
                let path = path.display().to_string().replace(',', ",,");
                args.extend(["-chardev".to_owned(), format!("socket,id=between,path={path}")]);
                let queues = interface.queues;
                let many = if queues > 1 { format!(",queues={queues}") } else { String::new() };
                format!("vhost-user,chardev=between{many}")
            } else if let Some(network) = &between.of_kernel {
                network.netdev(number, interface.vhost)
            } else {
                // The VM under test is started first and listens.
                let listens = if number == UNDER_TEST { "on" } else { "off" };
                let path = socket.display();
                format!("stream,server={listens},addr.type=unix,addr.path={path}")
            };
            let vectors = first.kind != NetworkKind::VhostUser
                || spec.accel != Accel::Tcg
                || lab.capabilities.version.major >= VECTORS_SINCE;
            args.extend(interface_args(interface, number, &netdev, vectors));
            let enter = between.of_kernel.as_ref().map(|network| network.enter(number));
            Plug { enter: enter.unwrap_or_default(), args }
        };
        let plugs = ends.iter().enumerate().map(plug).collect();
        Ok((between, plugs))
    }
}

/// A network of the kernel's.
fn of_kernel(
    lab: &LocalLab<'_>,
    switch: Switch,
    interfaces: [&StudyNetwork; 2],
) -> Result<host::network::LabNetwork, Failure> {
    let port =
        |number: usize| Port { mac: MACS[number].to_owned(), queues: interfaces[number].queues };
    let ports = [port(UNDER_TEST), port(OTHER)];
    let made = host::network::LabNetwork::new(switch, &ports, lab.runtime.path(), &lab.owner);
    made.map_err(|error| Failure {
        kind: FailureKind::VmRefused,
        detail: load_failure(&error).detail,
    })
}

/// QEMU's arguments for an interface, with or without interrupts for each queue.
///
/// Source: QEMU's manual page, `-netdev`, `-device`.
fn interface_args(
    interface: &StudyNetwork,
    number: usize,
    netdev: &str,
    vectors: bool,
) -> Vec<String> {
    let (backend, rest) = netdev.split_once(',').unwrap_or((netdev, ""));
    let model = match interface.model {
        NicModel::Virtio => "virtio-net-pci",
        NicModel::E1000e => "e1000e",
        NicModel::E1000 => "e1000",
        NicModel::Rtl8139 => "rtl8139",
    };
    // Nothing boots from it, and not every QEMU has the ROMs to do so.
    let mut device = format!("{model},netdev=between,mac={},romfile=", MACS[number]);
    if interface.queues > 1 {
        device.push_str(",mq=on");
    }
    if !vectors {
        device.push_str(",vectors=0");
    } else if interface.queues > 1 {
        // One interrupt a queue and direction, one for changes of configuration
        // and one for control.
        device.push_str(&format!(",vectors={}", 2 * interface.queues + 2));
    }
    if interface.packed {
        device.push_str(",packed=on");
    }
    let netdev = format!("{backend},id=between,{rest}");
    ["-netdev", &netdev, "-device", &device].map(str::to_owned).into()
}
