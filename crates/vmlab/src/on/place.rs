//! Which machine `--on` names, and its bringing up where it is a replica.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};
use guest::Cancel;
use guest::libvirt::{Uri, UriError};
use guest::qemu::is_mended;
use host::state_dir::StateLookupError;
use remote::{Destination, DestinationError};
use replica::{Replica, ReplicaFindError, ReplicaState};
use runner::plan::StudyPlan;
use runner::study::RunsOn;
use vmconfig::Arch;

use crate::terminal;

/// The host that is brought up where none is named and none runs.
const SMALL: &str = "two-nodes";

/// The value of `--on`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OnTarget {
    /// A machine that ssh reaches.
    Ssh(Destination),
    /// An emulated host, by its name or by what it is like.
    Replica(Option<String>),
    /// A libvirt, of this machine or of one that ssh reaches.
    Libvirt(Uri),
    /// A cluster whose KubeVirt runs the VMs, by its context and namespace.
    Kubevirt(Option<String>),
    /// The nodes of a cluster, by its context and namespace.
    Nodes(Option<String>),
    /// No machine: the simulator, of this machine or of one that a file describes.
    Simulator(Option<PathBuf>),
}

/// Error type for [`OnTarget`]'s `from_str`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    /// It is none of them.
    #[error(
        "write ssh://USER@HOST, ssh://USER@HOST:PORT, replica, replica:HOST, libvirt:qemu:///system, kubevirt, kubevirt:CONTEXT/NAMESPACE, k8s, k8s:CONTEXT/NAMESPACE, sim or sim:HOST.json"
    )]
    Neither,
    /// It is no libvirt that runs QEMU.
    #[error("libvirt: {0}")]
    Libvirt(#[from] UriError),
    /// It is no address.
    #[error(transparent)]
    Destination(#[from] DestinationError),
}

impl FromStr for OnTarget {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        match text.split_once(':') {
            None if text == "replica" => Ok(Self::Replica(None)),
            Some(("replica", host)) if !host.is_empty() => Ok(Self::Replica(Some(host.to_owned()))),
            None if text == "kubevirt" => Ok(Self::Kubevirt(None)),
            Some(("kubevirt", cluster)) if !cluster.is_empty() => {
                Ok(Self::Kubevirt(Some(cluster.to_owned())))
            }
            None if text == "k8s" => Ok(Self::Nodes(None)),
            Some(("k8s", cluster)) if !cluster.is_empty() => {
                Ok(Self::Nodes(Some(cluster.to_owned())))
            }
            None if text == "sim" => Ok(Self::Simulator(None)),
            Some(("sim", file)) if !file.is_empty() => Ok(Self::Simulator(Some(file.into()))),
            Some(("libvirt", uri)) => Ok(Self::Libvirt(uri.parse()?)),
            Some(("ssh", _)) => Ok(Self::Ssh(text.parse()?)),
            _ => Err(PlaceError::Neither),
        }
    }
}

impl fmt::Display for OnTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(destination) => destination.fmt(f),
            Self::Libvirt(uri) => write!(f, "libvirt:{uri}"),
            Self::Kubevirt(None) => f.write_str("kubevirt"),
            Self::Kubevirt(Some(cluster)) => write!(f, "kubevirt:{cluster}"),
            Self::Nodes(None) => f.write_str("k8s"),
            Self::Nodes(Some(cluster)) => write!(f, "k8s:{cluster}"),
            Self::Simulator(None) => f.write_str("sim"),
            Self::Simulator(Some(file)) => write!(f, "sim:{}", file.display()),
            Self::Replica(None) => f.write_str("replica"),
            Self::Replica(Some(host)) => write!(f, "replica:{host}"),
        }
    }
}

/// A machine that can be reached now.
pub(crate) struct ReachedMachine {
    pub(crate) destination: Destination,
    /// For a replica whose emulator ends guests now and then: which QEMU that is.
    faulty_qemu: Option<String>,
    /// Taken down when dropped.
    _brought_up: Option<StartedReplica>,
}

impl ReachedMachine {
    fn machine(destination: Destination) -> Self {
        Self { destination, faulty_qemu: None, _brought_up: None }
    }

    /// What to know of this machine before a study begins there.
    pub(crate) fn warning(&self, plan: &StudyPlan) -> Option<String> {
        let qemu = self.faulty_qemu.as_ref()?;
        let vms = plan.variants.iter().filter(|variant| variant.on == RunsOn::Vm);
        let vcpus = vms.map(|variant| variant.spec.vcpus()).max()?;
        let others = plan.peer.is_some() || plan.loads.iter().any(|load| load.vms.is_some());
        let guests = guests_at_risk(vcpus, others)?;
        Some(format!(
            "{guests}, and the replica's emulator ({qemu}) now and then hangs, resets or ends such guests, at times its host, too: it delivers interrupts twice, lets vCPUs sleep through them and mixes up the state of pCPUs (docs/replica.md). To be sure, end here, build one that does not (scripts/build-qemu), and bring the replica up anew"
        ))
    }
}

/// What of a study an emulator with the faults is likely to end: one vCPU alone seldom
/// meets them.
fn guests_at_risk(vcpus: u32, others: bool) -> Option<String> {
    match (others, vcpus) {
        (false, 0 | 1) => None,
        (false, _) => Some(format!("This study boots guests of {vcpus} vCPUs")),
        (true, _) => Some("This study boots several guests at a time".to_owned()),
    }
}

struct StartedReplica(Replica);

impl Drop for StartedReplica {
    fn drop(&mut self) {
        if let Err(error) = self.0.down() {
            let name = &self.0.name;
            terminal::note(&format!("vmlab: {error}; `vmlab replica down {name}` tries again"));
        }
    }
}

impl OnTarget {
    /// Finds the machine; a replica that does not run yet is brought up, for as long
    /// as what is returned lives.
    pub(crate) fn reach(&self, cancel: &Cancel) -> anyhow::Result<ReachedMachine> {
        let host = match self {
            Self::Ssh(destination) => {
                return Ok(ReachedMachine::machine(destination.clone()));
            }
            Self::Libvirt(uri) => {
                let ssh = uri.ssh().context("This libvirt is no other machine's")?;
                let destination = format!("ssh://{ssh}").parse()?;
                return Ok(ReachedMachine::machine(destination));
            }
            Self::Kubevirt(_) => {
                bail!("A cluster runs the VMs of a study (`vmlab run`), not commands")
            }
            Self::Nodes(_) => {
                bail!("The nodes of a cluster run studies (`vmlab run`), not commands")
            }
            Self::Simulator(_) => bail!("The simulator is no machine that commands run on"),
            Self::Replica(host) => host.as_deref(),
        };
        let (replica, brought_up) = match replica::find(host) {
            Ok(found) if found.state() == ReplicaState::Up => (found, None),
            Ok(found) => {
                return Err(
                    ReplicaFindError::NotUp { state: found.state(), name: found.name }.into()
                );
            }
            Err(ReplicaFindError::NotOne(
                StateLookupError::None(_) | StateLookupError::Unknown { .. },
            )) => {
                let replica = bring_up(host.unwrap_or(SMALL), cancel)?;
                (replica.clone(), Some(StartedReplica(replica)))
            }
            Err(error) => return Err(error.into()),
        };
        let destination = replica.destination().context("The replica has no port")?;
        let is_faulty = replica.made.arch == Arch::X86_64 && !is_mended(&replica.made.qemu);
        let faulty_qemu = is_faulty.then(|| replica.made.qemu.clone());
        Ok(ReachedMachine { destination, faulty_qemu, _brought_up: brought_up })
    }
}

/// Brings up a host that is like a known one, or as a file describes it.
fn bring_up(host: &str, cancel: &Cancel) -> anyhow::Result<Replica> {
    let name = format!("run-{}", std::process::id());
    let Some(words) = crate::replica::words_for(host) else {
        let names: Vec<_> = replica::KNOWN.iter().map(|known| known.name).collect();
        bail!(
            "{host:?} is no replica that runs (`vmlab replica list`), no file that describes a host, and none of {}",
            names.join(", ")
        );
    };
    crate::replica::bring_up(words.into_iter().chain(["--name", &name]), cancel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_vcpu_alone_needs_no_warning() {
        assert_eq!(guests_at_risk(1, false), None);
        assert_eq!(guests_at_risk(4, false).unwrap(), "This study boots guests of 4 vCPUs");
        assert!(guests_at_risk(1, true).unwrap().contains("several guests"));
    }

    #[test]
    fn places_are_read_and_said() {
        for text in [
            "ssh://root@server:2222",
            "replica",
            "replica:xeon-4208",
            "replica:./host.json",
            "libvirt:qemu:///system",
            "libvirt:qemu+ssh://root@server/system",
            "kubevirt",
            "kubevirt:prod",
            "kubevirt:prod/lab",
            "kubevirt:lab/api-prod:6443/me",
            "k8s",
            "k8s:prod/lab",
            "sim",
            "sim:./host.json",
        ] {
            assert_eq!(text.parse::<OnTarget>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("", "write ssh://"),
            ("server", "write ssh://"),
            ("replicas", "write ssh://"),
            ("replica:", "write ssh://"),
            ("ssh://", "names no host"),
            ("ssh:server", "write ssh://"),
            ("libvirt", "write ssh://"),
            ("sim:", "write ssh://"),
            ("kubevirt:", "write ssh://"),
            ("k8s:", "write ssh://"),
            ("libvirt:", "libvirt: write qemu:///system"),
            ("libvirt:xen:///", "libvirt: write qemu:///system"),
        ] {
            let error = text.parse::<OnTarget>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
