//! The part of a VirtualMachineInstance that decides about pins.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use vmconfig::kubevirt::{Quantity, defaults, template_of};

use super::pool::GuestShape;
use crate::predict::scheduling::{Affinity, Toleration};

/// The annotation that asks for an even number of pCPUs.
pub const EVEN_PARITY: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";

/// What a VirtualMachineInstance says about its vCPUs, memory and IOThreads.
/// All else is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Vmi {
    /// Annotations and name.
    pub metadata: Metadata,
    /// The rest.
    pub spec: Spec,
}

/// Metadata of a [`Vmi`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The object's name.
    pub name: Option<String>,
    /// Its annotations.
    pub annotations: Option<BTreeMap<String, Option<String>>>,
}

/// Specification of a [`Vmi`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// `amd64`, `arm64`, `s390x`.
    pub architecture: Option<String>,
    /// Labels that the node must have.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// What the node must be.
    pub affinity: Option<Affinity>,
    /// Taints of nodes that don't keep it away.
    pub tolerations: Option<Vec<Toleration>>,
    /// The virtual machine.
    pub domain: Domain,
}

/// The virtual machine of a [`Spec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Domain {
    /// vCPUs.
    pub cpu: Option<Cpu>,
    /// Memory.
    pub memory: Option<VmiMemory>,
    /// Requests and limits.
    pub resources: Resources,
    /// `shared`, `auto` or `supplementalPool`.
    pub io_threads_policy: Option<String>,
    /// Size of the supplemental pool.
    pub io_threads: Option<IoThreads>,
    /// Disks.
    pub devices: Devices,
}

/// vCPUs of a [`Domain`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Cpu {
    /// Sockets; 0: not given.
    pub sockets: u32,
    /// Cores per socket; 0: not given.
    pub cores: u32,
    /// Threads per core; 0: not given.
    pub threads: u32,
    /// Sockets that hot-plug may reach; 0: not given.
    pub max_sockets: u32,
    /// Whether vCPUs get pCPUs of their own.
    pub dedicated_cpu_placement: bool,
    /// Whether the emulator thread gets one too.
    pub isolate_emulator_thread: bool,
    /// NUMA.
    pub numa: Option<Numa>,
    /// Present: a realtime guest.
    pub realtime: Option<Value>,
}

/// NUMA of a [`Cpu`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Numa {
    /// Present: the guest's nodes follow the host's.
    pub guest_mapping_passthrough: Option<Value>,
}

/// Memory of a [`Domain`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VmiMemory {
    /// What the guest sees.
    pub guest: Option<Quantity>,
    /// Huge pages.
    pub hugepages: Option<Hugepages>,
}

/// Huge pages of a [`VmiMemory`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hugepages {
    /// Size of one page: `2Mi`, `1Gi`.
    pub page_size: Option<Quantity>,
}

/// Requests and limits of a [`Domain`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Requests.
    pub requests: Option<Amounts>,
    /// Limits.
    pub limits: Option<Amounts>,
}

/// One side of [`Resources`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Amounts {
    /// CPUs.
    pub cpu: Option<Quantity>,
    /// Memory.
    pub memory: Option<Quantity>,
}

/// The supplemental pool of a [`Domain`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IoThreads {
    /// Threads in the pool.
    pub supplemental_pool_thread_count: Option<u32>,
}

/// Devices of a [`Domain`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Devices {
    /// Disks.
    pub disks: Option<Vec<VmiDisk>>,
}

/// A disk of [`Devices`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VmiDisk {
    /// Whether the disk gets an IOThread of its own.
    #[serde(rename = "dedicatedIOThread")]
    pub dedicated_io_thread: Option<bool>,
}

/// Error type for [`Vmi::from_value`].
#[derive(Debug, thiserror::Error)]
pub enum ReadVmiError {
    /// Another object.
    #[error("A {0} has no vCPUs: give a VirtualMachineInstance or a VirtualMachine")]
    OtherKind(String),
    /// Not an object with a virtual machine in it.
    #[error("No spec.domain: give a VirtualMachineInstance or a VirtualMachine")]
    NoDomain,
    /// A field of the wrong type.
    #[error("Cannot read the VirtualMachineInstance")]
    Field(#[source] serde_json::Error),
    /// A number that no machine reaches.
    #[error("{0} vCPUs or IOThreads are more than any machine has: correct the topology")]
    TooMany(u32),
}

/// Guests of more threads than this are mistypes.
const MAX_THREADS: u32 = 65_536;

impl Vmi {
    /// Reads a VirtualMachineInstance, the template of an object that holds one, or a
    /// bare `spec`.
    ///
    /// # Errors
    /// [`ReadVmiError`]: another object, or a field of the wrong type.
    pub fn from_value(value: &Value) -> Result<Self, ReadVmiError> {
        let kind = value.get("kind").and_then(Value::as_str);
        let name = value.pointer("/metadata/name").and_then(Value::as_str);
        let template = match kind {
            None => "",
            Some(kind) => {
                template_of(kind).ok_or_else(|| ReadVmiError::OtherKind(kind.to_owned()))?
            }
        };
        let mut keys = template.split('.').filter(|key| !key.is_empty());
        let instance = keys.try_fold(value, |value, key| value.get(key));
        let instance = instance.ok_or(ReadVmiError::NoDomain)?;
        let mut vmi = if instance.pointer("/spec/domain").is_some() {
            Self::deserialize(instance).map_err(ReadVmiError::Field)?
        } else if kind.is_none() && instance.get("domain").is_some() {
            let spec = Spec::deserialize(instance).map_err(ReadVmiError::Field)?;
            Self { metadata: Metadata::default(), spec }
        } else {
            return Err(ReadVmiError::NoDomain);
        };
        if let Some(name) = name {
            vmi.metadata.name = Some(name.into());
        }
        let pool = vmi.spec.domain.io_threads.as_ref();
        let pool = pool.and_then(|pool| pool.supplemental_pool_thread_count).unwrap_or(0);
        let most = vmi.shape().vcpus().max(pool).max(vmi.max_sockets().unwrap_or(0));
        if most > MAX_THREADS {
            return Err(ReadVmiError::TooMany(most));
        }
        Ok(vmi)
    }

    /// The guest as a cluster with the rollout strategy LiveUpdate changes it:
    /// head-room of four times the sockets, up to 512 vCPUs, for hot-plug.
    #[must_use]
    pub fn with_hotplug_headroom(mut self) -> Self {
        let shape = self.shape();
        let levels = [shape.sockets, shape.cores, shape.threads];
        let cpu = self.spec.domain.cpu.get_or_insert_default();
        if cpu.max_sockets == 0 {
            (cpu.sockets, cpu.cores, cpu.threads) = (shape.sockets, shape.cores, shape.threads);
            cpu.max_sockets = defaults::hotplug_sockets(levels);
        }
        self
    }

    /// The guest with the annotation that [`Vmi::wants_even_parity`] looks for.
    #[must_use]
    pub fn with_even_parity(mut self) -> Self {
        let annotations = self.metadata.annotations.get_or_insert_default();
        annotations.insert(EVEN_PARITY.into(), Some(String::new()));
        self
    }

    fn cpu(&self) -> Option<&Cpu> {
        self.spec.domain.cpu.as_ref()
    }

    /// Whether vCPUs get pCPUs of their own.
    pub fn is_dedicated(&self) -> bool {
        self.cpu().is_some_and(|cpu| cpu.dedicated_cpu_placement)
    }

    /// Whether the emulator thread gets pCPUs of its own.
    pub fn isolates_emulator(&self) -> bool {
        self.cpu().is_some_and(|cpu| cpu.isolate_emulator_thread)
    }

    /// Whether the guest's nodes follow the host's.
    pub fn passes_nodes_through(&self) -> bool {
        self.cpu()
            .and_then(|cpu| cpu.numa.as_ref())
            .is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
    }

    /// Whether the guest is a realtime guest.
    pub fn is_realtime(&self) -> bool {
        self.cpu().is_some_and(|cpu| cpu.realtime.is_some())
    }

    /// Whether the annotation for an even number of pCPUs is there. Users don't
    /// set it: the cluster does, where the KubeVirt object has it and the
    /// feature gate AlignCPUs is on.
    pub fn wants_even_parity(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(EVEN_PARITY))
    }

    /// `maxSockets`; `None` where not given.
    pub fn max_sockets(&self) -> Option<u32> {
        self.cpu().map(|cpu| cpu.max_sockets).filter(|sockets| *sockets != 0)
    }

    /// Sockets, cores and threads: what is missing counts as 1; without any, the
    /// CPU limit (or request) becomes sockets.
    pub fn shape(&self) -> GuestShape {
        let levels: [fn(&Cpu) -> u32; 3] = [|cpu| cpu.sockets, |cpu| cpu.cores, |cpu| cpu.threads];
        let levels = levels.map(|of| self.cpu().map(of));
        let cpus = |amount: Option<Quantity>| amount.map(Quantity::as_f64);
        let limit = cpus(self.limit(|amounts| amounts.cpu));
        let requested = cpus(self.request(|amounts| amounts.cpu));
        let [sockets, cores, threads] = defaults::topology(levels, limit, requested);
        GuestShape { sockets, cores, threads }
    }

    /// CPUs that are asked for outside of the topology: the request, else the
    /// limit, else 1.
    pub fn requested_cpus(&self) -> u64 {
        let cpus = self.request(|amounts| amounts.cpu).or(self.limit(|amounts| amounts.cpu));
        cpus.map_or(Some(1), Quantity::round_up).unwrap_or(1)
    }

    /// CPUs that are asked for outside of the topology, in thousandths: the request, else
    /// the limit.
    pub fn requested_cpu_milli(&self) -> Option<u64> {
        let cpus = self.request(|amounts| amounts.cpu).or(self.limit(|amounts| amounts.cpu))?;
        Some((cpus.as_f64() * 1000.0).ceil() as u64)
    }

    /// The guest's memory.
    pub fn memory_bytes(&self) -> Option<u64> {
        let guest = self.spec.domain.memory.as_ref().and_then(|memory| memory.guest);
        let request = self.request(|amounts| amounts.memory);
        let limit = self.limit(|amounts| amounts.memory);
        defaults::memory(guest, request, limit).map_or(Some(0), Quantity::round_down)
    }

    /// Size of a huge page; `None` without huge pages.
    pub fn page_bytes(&self) -> Option<u64> {
        let pages = self.spec.domain.memory.as_ref()?.hugepages.as_ref()?;
        pages.page_size?.round_down()
    }

    fn request(&self, of: fn(&Amounts) -> Option<Quantity>) -> Option<Quantity> {
        self.spec.domain.resources.requests.as_ref().and_then(of)
    }

    fn limit(&self, of: fn(&Amounts) -> Option<Quantity>) -> Option<Quantity> {
        self.spec.domain.resources.limits.as_ref().and_then(of)
    }
}
