//! A kubelet's settings that bear on pCPUs.

use std::collections::BTreeMap;

use serde::Deserialize;
use topology::PcpuSet;
use vmconfig::kubevirt::Quantity;

use super::StaticPolicy;
use super::options::{OptionsError, PolicyOptions, TopologyOptions, TopologyPolicy};
use crate::predict::machine::KubeletHost;
use crate::predict::memory::{MemoryAmounts, MemoryKind};

/// Who told the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsSource {
    /// The kubelet itself (`/configz`).
    Kubelet,
    /// The file in OpenShift's MachineConfig of this name: what its node was given.
    MachineConfig(String),
    /// OpenShift's PerformanceProfile of this name: what is meant to be.
    PerformanceProfile(String),
}

/// pCPUs that no pod gets for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservedCpus {
    /// These (`reservedSystemCPUs`).
    Set(PcpuSet),
    /// So many thousandths of a CPU, rounded up to whole ones, which the kubelet picks
    /// (`kubeReserved` and `systemReserved`).
    Milli(u64),
}

impl ReservedCpus {
    /// How many.
    pub fn count(&self) -> u32 {
        let count = match self {
            Self::Set(set) => set.len() as u64,
            Self::Milli(milli) => milli.div_ceil(1000),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// What the memory manager insists on (`memoryManagerPolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryManagerPolicy {
    /// Memory comes from any node.
    None,
    /// Containers of Guaranteed pods get theirs from few nodes.
    Static {
        /// What no pod gets, by node (`reservedMemory`); `None`: nobody tells.
        reserved: Option<BTreeMap<u32, MemoryAmounts>>,
    },
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletSettings {
    /// Who told.
    pub source: SettingsSource,
    /// Whether pods get pCPUs of their own (`cpuManagerPolicy: static`).
    pub is_static: bool,
    /// Options of the static policy.
    pub options: PolicyOptions,
    /// pCPUs that no pod gets for itself.
    pub reserved: ReservedCpus,
    /// What the topology manager insists on.
    pub topology: TopologyPolicy,
    /// Its options.
    pub topology_options: TopologyOptions,
    /// Whether pods are bound to memory nodes.
    pub memory: MemoryManagerPolicy,
    /// Whether a CPU limit is a quota (`cpuCFSQuota`).
    pub cfs_quota: bool,
}

/// Error type for [`KubeletSettings::from_configz`] and
/// [`KubeletSettings::from_profile`].
#[derive(Debug, thiserror::Error)]
pub enum ReadSettingsError {
    /// Not the text of a kubelet.
    #[error("Not a kubelet's settings: {0}")]
    Json(#[from] serde_json::Error),
    /// A value that is not known here.
    #[error("{key} is {value:?}: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What stands there.
        value: String,
        /// What is wrong with it.
        why: String,
    },
}

#[derive(Deserialize)]
struct Configz {
    kubeletconfig: KubeletConfiguration,
}

/// The part of `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1) that bears on pCPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfiguration {
    cpu_manager_policy: Option<String>,
    cpu_manager_policy_options: Option<BTreeMap<String, String>>,
    #[serde(rename = "reservedSystemCPUs")]
    reserved_system_cpus: Option<String>,
    kube_reserved: Option<BTreeMap<String, String>>,
    system_reserved: Option<BTreeMap<String, String>>,
    topology_manager_policy: Option<String>,
    topology_manager_policy_options: Option<BTreeMap<String, String>>,
    memory_manager_policy: Option<String>,
    reserved_memory: Option<Vec<MemoryReservation>>,
    #[serde(rename = "cpuCFSQuota")]
    cpu_cfs_quota: Option<bool>,
}

/// Memory of a node that no pod gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MemoryReservation {
    numa_node: u32,
    limits: BTreeMap<String, String>,
}

impl KubeletSettings {
    /// Pods have pCPUs of their own, but the reserved ones; nothing else is set.
    #[must_use]
    pub fn of_static(reserved: ReservedCpus) -> Self {
        Self {
            source: SettingsSource::Kubelet,
            is_static: true,
            options: PolicyOptions::default(),
            reserved,
            topology: TopologyPolicy::None,
            topology_options: TopologyOptions::default(),
            memory: MemoryManagerPolicy::None,
            cfs_quota: true,
        }
    }

    /// From a kubelet's file, or what it answers at `/configz`, as JSON.
    ///
    /// # Errors
    /// [`ReadSettingsError`]: something else, or an option that is not known.
    pub fn from_value(mut value: serde_json::Value) -> Result<Self, ReadSettingsError> {
        if let Some(of_configz) = value.get_mut("kubeletconfig") {
            value = of_configz.take();
        }
        Self::from_configuration(serde_json::from_value(value)?)
    }

    /// From the text that a kubelet answers at `/configz`.
    ///
    /// # Errors
    /// [`ReadSettingsError`]: another text, or an option that is not known.
    pub fn from_configz(text: &[u8]) -> Result<Self, ReadSettingsError> {
        let Configz { kubeletconfig } = serde_json::from_slice(text)?;
        Self::from_configuration(kubeletconfig)
    }

    /// From a kubelet's configuration.
    ///
    /// # Errors
    /// [`ReadSettingsError`]: an option that is not known.
    pub fn from_configuration(given: KubeletConfiguration) -> Result<Self, ReadSettingsError> {
        let mut options = PolicyOptions::default();
        for (name, value) in given.cpu_manager_policy_options.unwrap_or_default() {
            options
                .set(&name, &value)
                .map_err(|error| wrong("cpuManagerPolicyOptions", &name, &error))?;
        }
        let mut topology_options = TopologyOptions::default();
        for (name, value) in given.topology_manager_policy_options.unwrap_or_default() {
            let wrong = |error| wrong("topologyManagerPolicyOptions", &name, &error);
            topology_options.set(&name, &value).map_err(wrong)?;
        }
        let reserved = match given.reserved_system_cpus.filter(|text| !text.is_empty()) {
            Some(text) => ReservedCpus::Set(pcpus("reservedSystemCPUs", &text)?),
            None => {
                let mut cpus = 0.0;
                for amounts in [given.kube_reserved, given.system_reserved].into_iter().flatten() {
                    if let Some(text) = amounts.get("cpu") {
                        let amount: Quantity =
                            text.parse().map_err(|error| wrong("kubeReserved", text, &error))?;
                        cpus += amount.as_f64();
                    }
                }
                ReservedCpus::Milli((cpus * 1000.0).round() as u64)
            }
        };
        Ok(Self {
            source: SettingsSource::Kubelet,
            is_static: given.cpu_manager_policy.as_deref() == Some("static"),
            options,
            reserved,
            topology: policy("topologyManagerPolicy", given.topology_manager_policy.as_deref())?,
            topology_options,
            memory: match given.memory_manager_policy.as_deref() {
                Some("Static") => {
                    let reserved = reserved_memory(given.reserved_memory.unwrap_or_default())?;
                    MemoryManagerPolicy::Static { reserved: Some(reserved) }
                }
                _ => MemoryManagerPolicy::None,
            },
            cfs_quota: given.cpu_cfs_quota.unwrap_or(true),
        })
    }

    /// From OpenShift's PerformanceProfile (performance.openshift.io/v2), whose kubelets
    /// have the static policy with whole cores only.
    ///
    /// # Errors
    /// [`ReadSettingsError`]: no profile, or a policy that is not known.
    pub fn from_profile(profile: &PerformanceProfile) -> Result<Self, ReadSettingsError> {
        let spec = &profile.spec;
        let policy = spec.numa.as_ref().and_then(|numa| numa.topology_policy.as_deref());
        // The operator's default is best-effort.
        let topology = self::policy("numa.topologyPolicy", policy.or(Some("best-effort")))?;
        // The operator turns it on with every policy but none and best-effort.
        let full_pcpus_only =
            matches!(topology, TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode);
        let options = PolicyOptions { full_pcpus_only, ..PolicyOptions::default() };
        Ok(Self {
            source: SettingsSource::PerformanceProfile(profile.metadata.name.clone()),
            is_static: true,
            options,
            reserved: ReservedCpus::Set(pcpus("cpu.reserved", &spec.cpu.reserved)?),
            topology,
            topology_options: TopologyOptions::default(),
            memory: match options.full_pcpus_only {
                true => MemoryManagerPolicy::Static { reserved: None },
                false => MemoryManagerPolicy::None,
            },
            cfs_quota: true,
        })
    }

    /// The kubelet's policy on a machine.
    ///
    /// # Errors
    /// [`OptionsError`]: on this machine it would not start.
    pub fn policy<'a>(&self, machine: &'a KubeletHost) -> Result<StaticPolicy<'a>, OptionsError> {
        let policy = match &self.reserved {
            ReservedCpus::Set(set) => StaticPolicy::new(machine, self.options, set.clone())?,
            ReservedCpus::Milli(_) => {
                StaticPolicy::reserving(machine, self.options, self.reserved.count())?
            }
        };
        policy
            .with_topology_manager(self.topology, self.topology_options)?
            .with_memory_manager(&self.memory)
    }
}

/// OpenShift's PerformanceProfile, the part that bears on pCPUs.
#[derive(Deserialize, Debug)]
pub struct PerformanceProfile {
    metadata: ProfileName,
    spec: ProfileSpec,
}

#[derive(Deserialize, Debug)]
struct ProfileName {
    name: String,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ProfileSpec {
    cpu: ProfileCpu,
    numa: Option<ProfileNuma>,
    #[serde(default)]
    node_selector: BTreeMap<String, String>,
}

#[derive(Deserialize, Debug)]
struct ProfileCpu {
    reserved: String,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ProfileNuma {
    topology_policy: Option<String>,
}

impl PerformanceProfile {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether it is for nodes with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = &self.spec.node_selector;
        !selector.is_empty() && selector.iter().all(|(name, value)| labels.get(name) == Some(value))
    }
}

fn reserved_memory(
    all: Vec<MemoryReservation>,
) -> Result<BTreeMap<u32, MemoryAmounts>, ReadSettingsError> {
    const KEY: &str = "reservedMemory";
    let mut reserved: BTreeMap<u32, MemoryAmounts> = BTreeMap::new();
    for MemoryReservation { numa_node, limits } in all {
        for (name, amount) in limits {
            let kind: MemoryKind = name.parse().map_err(|error| wrong(KEY, &name, &error))?;
            let quantity: Quantity = amount.parse().map_err(|error| wrong(KEY, &amount, &error))?;
            let bytes = quantity.round_up();
            let bytes = bytes.ok_or_else(|| wrong(KEY, &amount, &"not a number of bytes"))?;
            let sum = reserved.entry(numa_node).or_default().entry(kind).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    Ok(reserved)
}

fn policy(key: &'static str, text: Option<&str>) -> Result<TopologyPolicy, ReadSettingsError> {
    let text = text.unwrap_or("none");
    text.parse().map_err(|error| wrong(key, text, &error))
}

fn pcpus(key: &'static str, text: &str) -> Result<PcpuSet, ReadSettingsError> {
    text.parse().map_err(|error| wrong(key, text, &error))
}

fn wrong(key: &'static str, value: &str, why: &dyn ToString) -> ReadSettingsError {
    ReadSettingsError::Value { key, value: value.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_tells_its_policies() {
        let text = br#"{"kubeletconfig": {
            "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "kubeReserved": {"cpu": "500m", "memory": "1Gi"}, "systemReserved": {"cpu": "600m"},
            "topologyManagerPolicy": "restricted",
            "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "4"},
            "memoryManagerPolicy": "None", "cpuCFSQuota": true}}"#;
        let settings = KubeletSettings::from_configz(text).expect("settings");
        assert!(settings.is_static && settings.options.full_pcpus_only);
        assert_eq!(settings.reserved, ReservedCpus::Milli(1100));
        assert_eq!(settings.topology, TopologyPolicy::Restricted);
        assert_eq!(settings.topology_options.max_nodes, 4);
        assert_eq!(settings.memory, MemoryManagerPolicy::None);
    }

    #[test]
    fn pcpus_that_are_named_win_over_amounts() {
        let text = br#"{"kubeletconfig": {"reservedSystemCPUs": "0-1",
            "kubeReserved": {"cpu": "4"}}}"#;
        let settings = KubeletSettings::from_configz(text).expect("settings");
        assert_eq!(settings.reserved, ReservedCpus::Set([0, 1].into_iter().collect()));
        assert!(!settings.is_static);
    }

    #[test]
    fn memory_is_reserved_by_node() {
        let text = br#"{"kubeletconfig": {"memoryManagerPolicy": "Static", "reservedMemory": [
            {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
            {"numaNode": 1, "limits": {"memory": "100Mi"}}]}}"#;
        let settings = KubeletSettings::from_configz(text).expect("settings");
        let first = [(MemoryKind::Ordinary, 1 << 30), (MemoryKind::HugePages(2 << 20), 4 << 20)];
        let second = [(MemoryKind::Ordinary, 100 << 20)];
        let reserved = [(0, first.into()), (1, second.into())].into();
        assert_eq!(settings.memory, MemoryManagerPolicy::Static { reserved: Some(reserved) });
    }

    #[test]
    fn what_is_not_known_is_said() {
        for (text, said) in [
            (&b"<html>"[..], "Not a kubelet's settings: "),
            (
                br#"{"kubeletconfig": {"cpuManagerPolicyOptions": {"new-option": "true"}}}"#,
                "cpuManagerPolicyOptions is \"new-option\": Unknown",
            ),
            (
                br#"{"kubeletconfig": {"topologyManagerPolicy": "strict"}}"#,
                "topologyManagerPolicy is \"strict\": Unknown",
            ),
            (br#"{"kubeletconfig": {"reservedSystemCPUs": "x"}}"#, "reservedSystemCPUs is \"x\""),
            (
                br#"{"kubeletconfig": {"memoryManagerPolicy": "Static",
                    "reservedMemory": [{"limits": {"cpu": "1"}}]}}"#,
                "reservedMemory is \"cpu\": ",
            ),
            (
                br#"{"kubeletconfig": {"memoryManagerPolicy": "Static",
                    "reservedMemory": [{"limits": {"memory": "much"}}]}}"#,
                "reservedMemory is \"much\": ",
            ),
        ] {
            let error = KubeletSettings::from_configz(text).expect_err("an error").to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn a_profile_says_what_is_meant() {
        let profile: PerformanceProfile = serde_json::from_str(
            r#"{"metadata": {"name": "tuned"}, "spec": {"cpu": {"reserved": "0-1,8-9",
                "isolated": "2-7"}, "numa": {"topologyPolicy": "single-numa-node"},
                "nodeSelector": {"node-role.kubernetes.io/tuned": ""}}}"#,
        )
        .expect("a profile");
        let settings = KubeletSettings::from_profile(&profile).expect("settings");
        assert!(settings.options.full_pcpus_only);
        assert_eq!(settings.memory, MemoryManagerPolicy::Static { reserved: None });
        let tuned = [("node-role.kubernetes.io/tuned".to_owned(), String::new())].into();
        assert!(profile.selects(&tuned) && !profile.selects(&BTreeMap::new()));
    }
}
