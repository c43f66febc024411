//! Network interfaces.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::MacAddress;

use crate::InvalidVm;
use crate::disk::MAX_QUEUES;

/// A network interface of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// What it is connected to.
    pub backend: NicBackend,
    /// What the guest sees; virtio-net if not said.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub model: NicModel,
    /// The host's kernel moves the packets (vhost-net); QEMU does if not said.
    /// QEMU `vhost=on`; libvirt has it by itself, unless `<driver name='qemu'/>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<bool>,
    /// Pairs of queues. QEMU `queues=` with `mq=on`, libvirt `<driver queues=>`,
    /// KubeVirt `networkInterfaceMultiqueue` (as many as vCPUs, at most 256).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Descriptors in each ring of received packets; QEMU's own choice is 256.
    /// QEMU `rx_queue_size=`, libvirt `<driver rx_queue_size=>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_queue_size: Option<u32>,
    /// Descriptors in each ring of sent packets; QEMU's own choice is 256, and
    /// more than that only vhost-user has. QEMU `tx_queue_size=`, libvirt
    /// `<driver tx_queue_size=>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_queue_size: Option<u32>,
    /// Rings that are packed; split ones if not said. QEMU `packed=`, libvirt
    /// `<driver packed=>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<bool>,
    /// Largest packet that the guest is told of, B: what follows Ethernet's header.
    /// QEMU `host_mtu=`, libvirt `<mtu size=>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Its address: `52:54:00:12:34:56`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// What a network interface is connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum NicBackend {
    /// QEMU's own network stack, outgoing connections only.
    User,
    /// A tap device that somebody else made.
    Tap {
        /// Its name.
        ifname: String,
    },
    /// A tap device made for the VM and put into a bridge.
    Bridge {
        /// The bridge.
        name: String,
    },
    /// A switch in another process, over a vhost-user socket.
    VhostUser {
        /// The socket.
        socket: PathBuf,
        /// QEMU listens on it, instead of connecting.
        #[serde(default, skip_serializing_if = "crate::is_default")]
        server: bool,
        /// Seconds after which QEMU connects anew when the switch has gone; it
        /// does not if not said. QEMU `reconnect=` (`reconnect-ms=` since 9.2),
        /// libvirt `<reconnect enabled='yes' timeout=/>`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reconnect_s: Option<u32>,
    },
    /// A macvtap device on a network device of the host.
    Macvtap {
        /// The host's device.
        device: String,
        /// Whom the guest can reach beside the outside.
        #[serde(default, skip_serializing_if = "crate::is_default")]
        mode: MacvtapMode,
    },
    /// A virtual network of libvirt.
    Libvirt {
        /// Its name.
        network: String,
    },
    /// The pod's network (KubeVirt).
    Pod {
        /// How the guest is put behind the pod's address.
        #[serde(default, skip_serializing_if = "crate::is_default")]
        binding: Binding,
    },
    /// A NetworkAttachmentDefinition of Multus (KubeVirt), over a bridge.
    Multus {
        /// Its name.
        network: String,
    },
}

/// How KubeVirt attaches a guest to the pod's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// Behind address translation.
    #[default]
    Masquerade,
    /// Over a bridge; the guest takes over the address.
    Bridge,
}

/// Whom a macvtap device lets the guest reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MacvtapMode {
    /// The guests on the same device too.
    #[default]
    Bridge,
    /// Others by way of the outside switch.
    Vepa,
    /// The outside only.
    Private,
    /// The device belongs to this guest.
    Passthrough,
}

/// What the guest sees of a network interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NicModel {
    /// virtio-net.
    #[default]
    Virtio,
    /// Intel 82574L, emulated.
    E1000e,
    /// Intel 82540EM, emulated.
    E1000,
    /// Realtek 8139, emulated.
    Rtl8139,
}

impl NicModel {
    /// Name in libvirt and KubeVirt, and QEMU's device.
    pub(crate) const NAMES: [(Self, &'static str, &'static str); 4] = [
        (Self::Virtio, "virtio", "virtio-net-pci"),
        (Self::E1000e, "e1000e", "e1000e"),
        (Self::E1000, "e1000", "e1000"),
        (Self::Rtl8139, "rtl8139", "rtl8139"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("virtio", |row| row.1)
    }

    pub(crate) fn device(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("virtio-net-pci", |row| row.2)
    }
}

impl NicBackend {
    /// True if the host's kernel can move its packets: a tap device, whoever
    /// makes it.
    pub(crate) fn is_tap(&self) -> bool {
        matches!(
            self,
            Self::Tap { .. } | Self::Bridge { .. } | Self::Macvtap { .. } | Self::Libvirt { .. }
        )
    }
}

impl MacvtapMode {
    pub(crate) const NAMES: [(Self, &'static str); 4] = [
        (Self::Bridge, "bridge"),
        (Self::Vepa, "vepa"),
        (Self::Private, "private"),
        (Self::Passthrough, "passthrough"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("bridge", |row| row.1)
    }
}

impl Nic {
    /// The virtio interface of this backend, all else QEMU's own choice.
    #[must_use]
    pub fn new(backend: NicBackend) -> Self {
        Self {
            backend,
            model: NicModel::Virtio,
            vhost: None,
            queues: None,
            rx_queue_size: None,
            tx_queue_size: None,
            packed: None,
            mtu: None,
            mac: None,
        }
    }

    fn fault(&self) -> Option<String> {
        let (user, vhost_user) = (
            matches!(self.backend, NicBackend::User),
            matches!(self.backend, NicBackend::VhostUser { .. }),
        );
        if self.vhost.is_some() && (user || vhost_user || self.model != NicModel::Virtio) {
            return Some("has vhost, which needs virtio and a tap device".to_owned());
        }
        if let Some(queues) = self.queues {
            if queues == 0 || queues > MAX_QUEUES / 2 - 1 {
                return Some(format!("has {queues} queues: 1 to {}", MAX_QUEUES / 2 - 1));
            }
            if user || self.model != NicModel::Virtio {
                return Some("has queues, which need virtio and no user network".to_owned());
            }
        }
        for (name, size) in
            [("rx_queue_size", self.rx_queue_size), ("tx_queue_size", self.tx_queue_size)]
        {
            let Some(size) = size else { continue };
            if !size.is_power_of_two() || !RING_SIZES.contains(&size) {
                return Some(format!("has {name} {size}: 256, 512 or 1024"));
            }
            if self.model != NicModel::Virtio {
                return Some(format!("has {name}, which only virtio has"));
            }
        }
        if self.packed.is_some() && self.model != NicModel::Virtio {
            return Some("has packed, which only virtio has".to_owned());
        }
        if let Some(mtu) = self.mtu {
            if !MTUS.contains(&mtu) {
                let (least, most) = (MTUS.start(), MTUS.end());
                return Some(format!("has mtu {mtu}: {least} to {most}"));
            }
            if self.model != NicModel::Virtio {
                return Some("has mtu, which only virtio has".to_owned());
            }
        }
        if vhost_user && self.model != NicModel::Virtio {
            return Some("is vhost-user, which needs virtio".to_owned());
        }
        if matches!(self.backend, NicBackend::VhostUser { server: true, reconnect_s: Some(_), .. })
        {
            return Some(
                "has reconnect_s, which needs server = false: who listens waits for the other side"
                    .to_owned(),
            );
        }
        if let Some(mac) = &self.mac
            && mac.parse::<MacAddress>().is_err()
        {
            return Some(format!("has mac {mac:?}: write six pairs like \"52:54:00:12:34:56\""));
        }
        let name = match &self.backend {
            NicBackend::User | NicBackend::Pod { .. } => return None,
            NicBackend::Tap { ifname: name }
            | NicBackend::Bridge { name }
            | NicBackend::Macvtap { device: name, .. }
            | NicBackend::Libvirt { network: name }
            | NicBackend::Multus { network: name } => name.clone(),
            NicBackend::VhostUser { socket, .. } => socket.to_string_lossy().into_owned(),
        };
        let bad = name.is_empty() || name.chars().any(char::is_control);
        bad.then(|| format!("holds {name:?}: empty, or a control character"))
    }
}

/// Descriptors that a ring of virtio-net may have, powers of two.
///
/// Source: QEMU `virtio_net_device_realize`.
const RING_SIZES: std::ops::RangeInclusive<u32> = 256..=1024;

/// What `host_mtu=` takes.
///
/// Source: QEMU `virtio_net_properties` (16 bits); VIRTIO 1.2, 5.1.4.1 (68 at least).
const MTUS: std::ops::RangeInclusive<u32> = 68..=65_535;

/// One way to write each: addresses in small letters with `:`; no vhost, no reconnecting, split
/// rings and no MTU are what QEMU has by itself.
pub(crate) fn normalise(nics: &mut [Nic]) {
    for nic in nics {
        nic.vhost = nic.vhost.filter(|on| *on);
        nic.packed = nic.packed.filter(|on| *on);
        nic.mtu = nic.mtu.filter(|bytes| *bytes > 0);
        // QEMU takes 0 for never.
        if let NicBackend::VhostUser { reconnect_s, .. } = &mut nic.backend {
            *reconnect_s = reconnect_s.filter(|seconds| *seconds > 0);
        }
        if let Some(mac) = &mut nic.mac
            && let Ok(read) = mac.parse::<MacAddress>()
        {
            *mac = read.to_string();
        }
    }
}

pub(crate) fn check(nics: &[Nic], shared: bool) -> Result<(), InvalidVm> {
    for (number, nic) in nics.iter().enumerate() {
        if matches!(nic.backend, NicBackend::VhostUser { .. }) && !shared {
            return Err(InvalidVm::NotShared { number });
        }
        if let Some(message) = nic.fault() {
            let message = format!("number {number} {message}");
            return Err(InvalidVm::Contradiction { field: "nics", message });
        }
    }
    Ok(())
}
