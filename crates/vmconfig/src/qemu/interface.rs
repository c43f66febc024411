//! A network interface as QEMU's command line says it.
//!
//! [`Nic`] is what a VM's description says of one. Whoever starts QEMU may know more: a
//! descriptor that it hands over, or the socket of another QEMU. Both are said here, and
//! nowhere else.
//!
//! Source: QEMU's manual page, `-netdev`, `-chardev`, `-device`.

use std::path::PathBuf;

use crate::{Accel, Nic, NicBackend, NicModel};

use super::{Capabilities, escape, escape_path};

/// Where QEMU finds the program that makes tap devices in a bridge.
const BRIDGE_HELPER: &str = "/usr/lib/qemu/qemu-bridge-helper";

/// What an interface is connected to, `-netdev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Netdev {
    /// QEMU's own network stack, outgoing connections only.
    User,
    /// QEMU's own network stack, of which nothing gets out.
    Restricted {
        /// What gets in, as `hostfwd=` takes it.
        forward: String,
    },
    /// A tap device that somebody else made.
    Tap {
        /// Its name.
        ifname: String,
        /// vhost-net; QEMU's own choice if not said.
        vhost: Option<bool>,
    },
    /// Tap or macvtap devices that QEMU inherits open.
    TapDescriptors {
        /// A descriptor for each pair of queues.
        fds: Vec<u32>,
        /// vhost-net; QEMU's own choice if not said.
        vhost: Option<bool>,
    },
    /// A tap device that QEMU's helper makes in a bridge.
    Bridge {
        /// The bridge.
        name: String,
        /// vhost-net; QEMU's own choice if not said.
        vhost: Option<bool>,
    },
    /// A UNIX socket to another QEMU, which has the other end (QEMU 7.2).
    Stream {
        /// The socket.
        socket: PathBuf,
        /// This QEMU listens on it.
        server: bool,
    },
    /// A switch in another process.
    VhostUser {
        /// The socket.
        socket: PathBuf,
        /// QEMU listens on it.
        server: bool,
        /// Seconds after which QEMU connects anew.
        reconnect_s: Option<u32>,
    },
}

impl Netdev {
    fn takes_queues(&self) -> bool {
        matches!(self, Self::Tap { .. } | Self::TapDescriptors { .. } | Self::VhostUser { .. })
    }
}

/// A network interface with what is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name of the `-netdev`.
    pub id: String,
    /// What it is connected to.
    pub netdev: Netdev,
    /// What the guest sees.
    pub model: NicModel,
    /// Its address.
    pub mac: Option<String>,
    /// Pairs of queues, where the backend has such; QEMU's own choice is 1.
    pub queues: Option<u32>,
    /// Descriptors in each ring of received packets.
    pub rx_queue_size: Option<u32>,
    /// Descriptors in each ring of sent packets.
    pub tx_queue_size: Option<u32>,
    /// Packed rings.
    pub packed: bool,
    /// Largest packet that the guest is told of, B.
    pub mtu: Option<u32>,
    /// Firmware may boot from it. Not every QEMU has the ROMs to do so.
    pub boots: bool,
}

impl Interface {
    /// An interface of which nothing else is said.
    #[must_use]
    pub fn new(id: impl Into<String>, netdev: Netdev) -> Self {
        Self {
            id: id.into(),
            netdev,
            model: NicModel::Virtio,
            mac: None,
            queues: None,
            rx_queue_size: None,
            tx_queue_size: None,
            packed: false,
            mtu: None,
            boots: true,
        }
    }

    /// The interface of a VM's description, the `number`th of it. What only a manager of
    /// VMs can set up is connected to QEMU's own network stack.
    #[must_use]
    pub fn of_nic(number: usize, nic: &Nic) -> Self {
        let vhost = nic.vhost;
        let netdev = match &nic.backend {
            NicBackend::Tap { ifname } => Netdev::Tap { ifname: ifname.clone(), vhost },
            NicBackend::Bridge { name } => Netdev::Bridge { name: name.clone(), vhost },
            NicBackend::VhostUser { socket, server, reconnect_s } => Netdev::VhostUser {
                socket: socket.clone(),
                server: *server,
                reconnect_s: *reconnect_s,
            },
            NicBackend::User
            | NicBackend::Macvtap { .. }
            | NicBackend::Libvirt { .. }
            | NicBackend::Pod { .. }
            | NicBackend::Multus { .. } => Netdev::User,
        };
        Self {
            model: nic.model,
            mac: nic.mac.clone(),
            queues: nic.queues,
            rx_queue_size: nic.rx_queue_size,
            tx_queue_size: nic.tx_queue_size,
            packed: nic.packed == Some(true),
            mtu: nic.mtu,
            ..Self::new(format!("net{number}"), netdev)
        }
    }

    /// QEMU's options with their values, in the order in which QEMU needs them.
    #[must_use]
    pub fn options(
        &self,
        accel: Accel,
        capabilities: &Capabilities,
    ) -> Vec<(&'static str, String)> {
        let mut options: Vec<_> =
            self.chardev(capabilities).map(|text| ("-chardev", text)).into_iter().collect();
        options.push(("-netdev", self.netdev()));
        options.push(("-device", self.device(accel, capabilities)));
        options
    }

    /// The socket that the `-netdev` speaks over, if it has one of its own.
    fn chardev(&self, capabilities: &Capabilities) -> Option<String> {
        let Netdev::VhostUser { socket, server, reconnect_s } = &self.netdev else { return None };
        let (id, path) = (&self.id, escape_path(socket));
        let server = if *server { "on,wait=off" } else { "off" };
        let again = reconnect_s.map(|seconds| capabilities.reconnect(seconds));
        Some(format!("socket,id=chr-{id},path={path},server={server}{}", again.unwrap_or_default()))
    }

    fn netdev(&self) -> String {
        let id = &self.id;
        let with_vhost = |vhost: Option<bool>| match vhost {
            Some(true) => ",vhost=on",
            Some(false) => ",vhost=off",
            None => "",
        };
        let queues = self.queues.map(|queues| format!(",queues={queues}")).unwrap_or_default();
        match &self.netdev {
            Netdev::User => format!("user,id={id}"),
            Netdev::Restricted { forward } => {
                format!("user,id={id},restrict=on,hostfwd={}", escape(forward))
            }
            Netdev::Tap { ifname, vhost } => {
                let (ifname, vhost) = (escape(ifname), with_vhost(*vhost));
                format!("tap,id={id},ifname={ifname},script=no,downscript=no{vhost}{queues}")
            }
            Netdev::TapDescriptors { fds, vhost } => {
                let key = if fds.len() > 1 { "fds" } else { "fd" };
                let fds: Vec<String> = fds.iter().map(u32::to_string).collect();
                format!("tap,id={id},{key}={}{}", fds.join(":"), with_vhost(*vhost))
            }
            Netdev::Bridge { name, vhost } => {
                let (name, vhost) = (escape(name), with_vhost(*vhost));
                format!("tap,id={id},br={name},helper={BRIDGE_HELPER}{vhost}")
            }
            Netdev::Stream { socket, server } => {
                let (path, server) = (escape_path(socket), if *server { "on" } else { "off" });
                format!("stream,id={id},server={server},addr.type=unix,addr.path={path}")
            }
            Netdev::VhostUser { .. } => format!("vhost-user,id={id},chardev=chr-{id}{queues}"),
        }
    }

    fn device(&self, accel: Accel, capabilities: &Capabilities) -> String {
        let mut device = format!("{},netdev={}", self.model.device(), self.id);
        let mut add = |key: &str, value: String| device.extend([",", key, "=", &value]);
        if let Some(mac) = &self.mac {
            add("mac", mac.clone());
        }
        if !self.boots {
            add("romfile", String::new());
        }
        let queues = self.queues.filter(|_| self.netdev.takes_queues());
        if queues.is_some() {
            add("mq", "on".to_owned());
        }
        let vhost_user = matches!(self.netdev, Netdev::VhostUser { .. });
        if vhost_user && !capabilities.interrupts_of_vhost_user(accel) {
            add("vectors", "0".to_owned());
        } else if let Some(queues) = queues {
            add("vectors", vectors(queues).to_string());
        }
        for (key, value) in
            [("rx_queue_size", self.rx_queue_size), ("tx_queue_size", self.tx_queue_size)]
        {
            if let Some(value) = value {
                add(key, value.to_string());
            }
        }
        if self.packed {
            add("packed", "on".to_owned());
        }
        if let Some(mtu) = self.mtu {
            add("host_mtu", mtu.to_string());
        }
        device
    }
}

/// Interrupts of an interface with so many pairs of queues: one a queue and direction,
/// one for changes of configuration and one for control.
pub(super) fn vectors(queues: u32) -> u64 {
    2 * u64::from(queues) + 2
}
