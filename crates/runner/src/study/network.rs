//! How the two VMs of a benchmark with two roles are connected.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmconfig::NicModel;

/// Most pairs of queues of an interface: QEMU's and the kernel's limit of 256
/// for a tap device.
const MAX_QUEUES: u32 = 256;

/// A study's `[network]`, or what a variant changes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkPatch {
    /// What lies between the VMs.
    pub kind: Option<NetworkKind>,
    /// The host's kernel moves the packets (vhost-net), or QEMU does.
    pub vhost: Option<bool>,
    /// Pairs of queues.
    pub queues: Option<u32>,
    /// What the guest sees.
    pub model: Option<NicModel>,
}

/// What lies between the two VMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// A socket between the two QEMUs; needs no privilege.
    #[default]
    User,
    /// A bridge and tap devices in a network namespace of their own.
    Bridge,
    /// macvtap devices in a network namespace of their own.
    Macvtap,
}

/// The network interface of one VM, complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Network {
    /// What lies between the VMs.
    pub kind: NetworkKind,
    /// vhost-net or QEMU.
    pub vhost: bool,
    /// Pairs of queues.
    pub queues: u32,
    /// What the guest sees.
    pub model: NicModel,
}

impl NetworkPatch {
    /// This patch with `over` laid over it.
    #[must_use]
    pub fn overlay(&self, over: &Self) -> Self {
        Self {
            kind: over.kind.or(self.kind),
            vhost: over.vhost.or(self.vhost),
            queues: over.queues.or(self.queues),
            model: over.model.or(self.model),
        }
    }

    /// True if it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The network, or the key that can't be, and why.
    ///
    /// # Errors
    /// Key and message.
    pub fn resolve(&self) -> Result<Network, (&'static str, String)> {
        let network = Network {
            kind: self.kind.unwrap_or_default(),
            vhost: self.vhost.unwrap_or(false),
            queues: self.queues.unwrap_or(1),
            model: self.model.unwrap_or_default(),
        };
        let Network { kind, vhost, queues, model } = network;
        if queues == 0 || queues > MAX_QUEUES {
            return Err(("queues", format!("queues = {queues}: must be 1 to {MAX_QUEUES}")));
        }
        let virtio_tap = kind != NetworkKind::User && model == NicModel::Virtio;
        if vhost && !virtio_tap {
            let message =
                "vhost = true needs kind = \"bridge\" or \"macvtap\" and model = \"virtio\"";
            return Err(("vhost", message.to_owned()));
        }
        if queues > 1 && !virtio_tap {
            let message = format!(
                "queues = {queues}: more than one needs kind = \"bridge\" or \"macvtap\" and model = \"virtio\""
            );
            return Err(("queues", message));
        }
        Ok(network)
    }
}

impl NetworkKind {
    /// Its word in studies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Bridge => "bridge",
            Self::Macvtap => "macvtap",
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            NetworkKind::User => "a socket between the two QEMUs",
            NetworkKind::Bridge => "tap devices in a bridge",
            NetworkKind::Macvtap => "macvtap devices",
        })?;
        if self.kind != NetworkKind::User {
            f.write_str(if self.vhost { ", vhost" } else { ", no vhost" })?;
        }
        if self.queues > 1 {
            write!(f, ", {} queues", self.queues)?;
        }
        if self.model != NicModel::Virtio {
            write!(f, ", {:?}", self.model)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_named_by_its_key() {
        let check = |text: &str, key: &str| {
            let patch: NetworkPatch = toml::from_str(text).unwrap();
            assert_eq!(patch.resolve().err().map_or("", |error| error.0), key, "{text}");
        };
        check("", "");
        check("kind = 'bridge'\nvhost = true\nqueues = 4", "");
        check("kind = 'macvtap'\nqueues = 4", "");
        check("vhost = true", "vhost");
        check("kind = 'user'\nqueues = 2", "queues");
        check("kind = 'bridge'\nqueues = 0", "queues");
        check("kind = 'bridge'\nmodel = 'e1000'\nvhost = true", "vhost");
    }

    #[test]
    fn a_variant_changes_what_it_names() {
        let base: NetworkPatch = toml::from_str("kind = 'bridge'\nqueues = 2").unwrap();
        let over: NetworkPatch = toml::from_str("vhost = true").unwrap();
        let network = base.overlay(&over).resolve().unwrap();
        assert_eq!((network.kind, network.vhost, network.queues), (NetworkKind::Bridge, true, 2));
        assert_eq!(network.to_string(), "tap devices in a bridge, vhost, 2 queues");
    }
}
