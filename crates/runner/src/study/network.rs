//! How the two VMs of a benchmark with two roles are connected.

use std::fmt;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::PcpuSet;
use vmconfig::NicModel;

/// Most pairs of queues of an interface: QEMU's and the kernel's limit of 256
/// for a tap device.
const MAX_QUEUES: u32 = 256;

/// Most pairs of queues of a port of vmlab's switch.
const MAX_SWITCH_QUEUES: u32 = 64;

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
    /// Packed rings instead of split ones, where the guest's driver knows them.
    pub packed: Option<bool>,
    /// The switch between the VMs has a polling thread on each of these pCPUs; one
    /// that runs anywhere if not said.
    pub switch_pcpus: Option<PcpuSet>,
    /// The program that is the vhost-user switch; vmlab starts it for each trial.
    pub switch: Option<SwitchProgram>,
    /// Sockets of a vhost-user switch that somebody else runs: of the VM under
    /// test, and of the other one. vmlab starts one if not said.
    pub sockets: Option<[PathBuf; 2]>,
}

/// A program that is a vhost-user switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchProgram {
    /// vmlab's own.
    #[default]
    Vmlab,
    /// DPDK's `dpdk-testpmd`: what comes in at one port goes out at the other, whatever
    /// its address.
    Testpmd,
    /// Open vSwitch with DPDK, learning addresses.
    OvsDpdk,
}

/// What lies between the two VMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// A socket between the two QEMUs; needs no privilege.
    #[default]
    User,
    /// A bridge and tap devices in a network namespace of their own.
    Bridge,
    /// macvtap devices in a network namespace of their own.
    Macvtap,
    /// A vhost-user switch in user space, which needs the VMs' memory shared.
    VhostUser,
}

/// The network interface of one VM, complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StudyNetwork {
    /// What lies between the VMs.
    pub kind: NetworkKind,
    /// vhost-net or QEMU.
    pub vhost: bool,
    /// Pairs of queues.
    pub queues: u32,
    /// What the guest sees.
    pub model: NicModel,
    /// Packed rings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
    /// The pCPUs of the switch's polling threads; one thread anywhere if none.
    #[serde(default, skip_serializing_if = "PcpuSet::is_empty")]
    pub switch_pcpus: PcpuSet,
    /// The program that is the switch.
    #[serde(default, skip_serializing_if = "SwitchProgram::is_vmlab")]
    pub switch: SwitchProgram,
    /// Sockets of somebody else's switch: of the VM under test and of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<[PathBuf; 2]>,
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
            packed: over.packed.or(self.packed),
            switch_pcpus: over.switch_pcpus.clone().or_else(|| self.switch_pcpus.clone()),
            switch: over.switch.or(self.switch),
            sockets: over.sockets.clone().or_else(|| self.sockets.clone()),
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
    pub fn resolve(&self) -> Result<StudyNetwork, (&'static str, String)> {
        let network = StudyNetwork {
            kind: self.kind.unwrap_or_default(),
            vhost: self.vhost.unwrap_or(false),
            queues: self.queues.unwrap_or(1),
            model: self.model.unwrap_or_default(),
            packed: self.packed.unwrap_or(false),
            switch_pcpus: self.switch_pcpus.clone().unwrap_or_default(),
            switch: self.switch.unwrap_or_default(),
            sockets: self.sockets.clone(),
        };
        let StudyNetwork { kind, vhost, queues, model, packed, .. } = network;
        let is_switch = kind == NetworkKind::VhostUser;
        let most = if is_switch { MAX_SWITCH_QUEUES } else { MAX_QUEUES };
        if queues == 0 || queues > most {
            return Err(("queues", format!("queues = {queues}: must be 1 to {most}")));
        }
        let virtio_tap =
            matches!(kind, NetworkKind::Bridge | NetworkKind::Macvtap) && model == NicModel::Virtio;
        if is_switch && model != NicModel::Virtio {
            let message = "kind = \"vhost-user\" needs model = \"virtio\"";
            return Err(("model", message.to_owned()));
        }
        if vhost && !virtio_tap {
            let message =
                "vhost = true needs kind = \"bridge\" or \"macvtap\" and model = \"virtio\"";
            return Err(("vhost", message.to_owned()));
        }
        if queues > 1 && !virtio_tap && !is_switch {
            let message = format!(
                "queues = {queues}: more than one needs kind = \"bridge\", \"macvtap\" or \"vhost-user\" and model = \"virtio\""
            );
            return Err(("queues", message));
        }
        if packed && (model != NicModel::Virtio || vhost) {
            let message = "packed = true needs model = \"virtio\" and no vhost, whose kernel knows \
                           split rings alone";
            return Err(("packed", message.to_owned()));
        }
        if !is_switch && !network.switch_pcpus.is_empty() {
            let message = "switch_pcpus are those of a vhost-user switch's polling threads: write \
                           kind = \"vhost-user\"";
            return Err(("switch_pcpus", message.to_owned()));
        }
        if self.switch.is_some() && !is_switch {
            let message = "switch is a vhost-user switch's program: write kind = \"vhost-user\"";
            return Err(("switch", message.to_owned()));
        }
        if network.switch == SwitchProgram::Testpmd && queues > 1 {
            let message = "switch = \"testpmd\" takes what comes in at a queue to the same queue \
                           of the other port, which that VM need not use: write queues = 1";
            return Err(("queues", message.to_owned()));
        }
        if network.switch == SwitchProgram::Testpmd && network.switch_pcpus.len() > 2 {
            let message = "switch = \"testpmd\" has a polling thread a port: name 1 or 2 pCPUs";
            return Err(("switch_pcpus", message.to_owned()));
        }
        if let Some(sockets) = &network.sockets {
            let message = if !is_switch {
                "sockets are those of a vhost-user switch: write kind = \"vhost-user\""
            } else if self.switch.is_some() {
                "switch is a program that vmlab starts, and sockets are those of one that runs: \
                 leave one of them out"
            } else if !network.switch_pcpus.is_empty() {
                "switch_pcpus are those of a switch that vmlab starts, and sockets name another one: \
                 leave one of them out"
            } else if sockets[0] == sockets[1] || !sockets.iter().all(|socket| socket.is_absolute())
            {
                "sockets are two whole paths, of the VM under test and of the other one"
            } else {
                return Ok(network);
            };
            return Err(("sockets", message.to_owned()));
        }
        Ok(network)
    }
}

impl SwitchProgram {
    fn is_vmlab(&self) -> bool {
        *self == Self::Vmlab
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vmlab => "vmlab's switch",
            Self::Testpmd => "DPDK's testpmd",
            Self::OvsDpdk => "Open vSwitch with DPDK",
        }
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
            Self::VhostUser => "vhost-user",
        }
    }
}

impl fmt::Display for StudyNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            NetworkKind::User => "a socket between the two QEMUs",
            NetworkKind::Bridge => "tap devices in a bridge",
            NetworkKind::Macvtap => "macvtap devices",
            NetworkKind::VhostUser if self.sockets.is_some() => "a vhost-user switch of its own",
            NetworkKind::VhostUser => self.switch.name(),
        })?;
        if let Some([mine, theirs]) = &self.sockets {
            write!(f, " at {} and {}", mine.display(), theirs.display())?;
        }
        if !self.switch_pcpus.is_empty() {
            write!(f, ", polling on pCPU(s) {}", self.switch_pcpus)?;
        }
        if self.packed {
            f.write_str(", packed rings")?;
        }
        if matches!(self.kind, NetworkKind::Bridge | NetworkKind::Macvtap) {
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
        check("kind = 'vhost-user'\nqueues = 64\npacked = true\nswitch_pcpus = '2-3'", "");
        check("kind = 'vhost-user'\nqueues = 65", "queues");
        check("kind = 'vhost-user'\nvhost = true", "vhost");
        check("kind = 'vhost-user'\nmodel = 'e1000'", "model");
        check("kind = 'bridge'\npacked = true", "");
        check("kind = 'bridge'\nswitch_pcpus = '2'", "switch_pcpus");
        check("kind = 'bridge'\npacked = true\nvhost = true", "packed");
        check("kind = 'vhost-user'\nsockets = ['/run/a', '/run/b']", "");
        check("kind = 'vhost-user'\nsockets = ['/run/a', '/run/a']", "sockets");
        check("kind = 'vhost-user'\nsockets = ['a', '/run/b']", "sockets");
        check("sockets = ['/run/a', '/run/b']", "sockets");
        check("kind = 'vhost-user'\nswitch = 'testpmd'\nswitch_pcpus = '2-3'", "");
        check("kind = 'vhost-user'\nswitch = 'testpmd'\nqueues = 2", "queues");
        check("kind = 'vhost-user'\nswitch = 'testpmd'\nswitch_pcpus = '1-3'", "switch_pcpus");
        check("kind = 'vhost-user'\nswitch = 'ovs-dpdk'\nqueues = 2", "");
        check("kind = 'bridge'\nswitch = 'testpmd'", "switch");
        check("kind = 'vhost-user'\nswitch = 'vmlab'\nsockets = ['/run/a', '/run/b']", "sockets");
        check("kind = 'vhost-user'\nswitch_pcpus = '2'\nsockets = ['/run/a', '/run/b']", "sockets");
    }

    #[test]
    fn a_variant_changes_what_it_names() {
        let base: NetworkPatch = toml::from_str("kind = 'bridge'\nqueues = 2").unwrap();
        let over: NetworkPatch = toml::from_str("vhost = true").unwrap();
        let network = base.overlay(&over).resolve().unwrap();
        assert_eq!((network.kind, network.vhost, network.queues), (NetworkKind::Bridge, true, 2));
        assert_eq!(network.to_string(), "tap devices in a bridge, vhost, 2 queues");
        let over = "kind = 'vhost-user'\npacked = true\nswitch_pcpus = '2-3'";
        let network = base.overlay(&toml::from_str(over).unwrap()).resolve().unwrap();
        let text = "vmlab's switch, polling on pCPU(s) 2-3, packed rings, 2 queues";
        assert_eq!(network.to_string(), text);
        let over: NetworkPatch =
            toml::from_str("kind = 'vhost-user'\nswitch = 'ovs-dpdk'").unwrap();
        let network = base.overlay(&over).resolve().unwrap();
        assert_eq!(network.to_string(), "Open vSwitch with DPDK, 2 queues");
    }
}
