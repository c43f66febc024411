//! Where an instance really is, and where it was predicted to be.

use std::collections::BTreeMap;

use guest::{Cancel, GuestFailure};
use k8s_openapi::api::core::v1::Pod;
use placement::predict::kubelet::{KubeletSettings, NodeAllocations};
use placement::predict::kubevirt::Vmi;
use placement::predict::node::{Arrival, admit_in_order};
use placement::predict::{Admission, KubeletHost, KubevirtVersion, findings};
use serde::Deserialize;
use serde_json::Value;
use topology::{PcpuSet, read_description};

use crate::instance::Instance;
use crate::pod::GuaranteedPod;

/// Prints, each behind a line `@NAME`, what virt-launcher's container tells of the VM.
const LOOK: &str = "echo @cgroup; cat /proc/self/cgroup\n\
    echo @cpuset; cat /sys/fs/cgroup/cpuset/cpuset.cpus 2>/dev/null \
    || cat /sys/fs/cgroup/cpuset.cpus.effective\n\
    echo @version; $V version\n\
    echo @kernel; uname -r\n\
    echo @hypervisor; grep -m 1 -o ' hypervisor ' /proc/cpuinfo\n\
    echo @threads\n\
    for p in /proc/[0-9]*; do\n\
    read -r c <$p/comm; case $c in qemu*) ;; *) continue ;; esac\n\
    for t in $p/task/*; do\n\
    read -r c <$t/comm\n\
    while read -r key value; do [ $key = Cpus_allowed_list: ] && echo \"$value $c\"; done <$t/status\n\
    done\n\
    q=$p\n\
    done 2>/dev/null\n\
    echo @qemu; tr '\\0' '\\n' <$q/cmdline\n\
    echo @domain; $V dumpxml \"$1\"\n\
    echo @capabilities; $V capabilities\n";

/// Where an instance is, as its node and its libvirt tell.
#[derive(Debug, Clone, Default)]
pub struct InstanceLocation {
    /// The node.
    pub node: String,
    /// The compute container's cgroup, a hierarchy a line.
    pub cgroup: String,
    /// The pCPUs that the container may use.
    pub cpuset: PcpuSet,
    /// The pCPUs that each vCPU's thread may use, by vCPU index.
    pub vcpus: Vec<PcpuSet>,
    /// The pCPUs that QEMU's main thread may use.
    pub emulator: Option<PcpuSet>,
    /// libvirt's and QEMU's versions, by name.
    pub versions: BTreeMap<String, String>,
    /// The node's kernel.
    pub kernel: String,
    /// Whether the node is itself a VM.
    pub is_virtual: bool,
    /// QEMU's command line.
    pub qemu_args: Vec<String>,
    /// The domain as libvirt has it.
    pub domain_xml: String,
    /// What libvirt says of the node: sockets, cores, threads, memory nodes.
    pub capabilities: String,
}

/// Where the predictors put it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forecast {
    /// By which rules.
    pub rule: String,
    /// The pCPUs of the pod.
    pub cpuset: PcpuSet,
    /// The pCPU of each vCPU; empty where none is pinned.
    pub vcpus: Vec<u32>,
    /// The pCPUs of the emulator thread; empty where it is not pinned.
    pub emulator: Vec<u32>,
    /// What the placement means for the guest.
    pub findings: Vec<String>,
}

impl InstanceLocation {
    /// Asks the pod of an instance that runs.
    ///
    /// # Errors
    /// The pod does not tell.
    pub fn of(instance: &Instance, cancel: &Cancel) -> Result<Self, GuestFailure> {
        let object = instance.object(cancel)?;
        let node = object.pointer("/status/nodeName").and_then(Value::as_str);
        let printed = instance.print(LOOK, cancel)?;
        Ok(Self { node: node.unwrap_or_default().to_owned(), ..Self::read(&printed) })
    }

    /// Reads what [`LOOK`] prints.
    fn read(printed: &str) -> Self {
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        let mut name = "";
        for line in printed.lines() {
            if let Some(next) = line.strip_prefix('@') {
                name = next;
                continue;
            }
            let part = parts.entry(name).or_default();
            part.push_str(line);
            part.push('\n');
        }
        let mut take = |name: &str| parts.remove(name).unwrap_or_default();
        let set = |text: &str| text.trim().parse::<PcpuSet>().ok();
        let version = |line: &str| {
            let (name, version) = line.split_once(": ")?;
            Some((name.trim().to_lowercase(), version.trim().to_owned()))
        };
        let threads = take("threads");
        let mut vcpus = BTreeMap::new();
        let mut emulator = None;
        for (pcpus, thread) in threads.lines().filter_map(|line| line.split_once(' ')) {
            let Some(pcpus) = set(pcpus) else { continue };
            // `CPU 3/KVM`; of QEMU's others its main thread bears the program's name.
            match thread.strip_prefix("CPU ").and_then(|rest| rest.split_once('/')) {
                Some((vcpu, _)) => drop(vcpu.parse::<u32>().map(|vcpu| vcpus.insert(vcpu, pcpus))),
                None if thread.starts_with("qemu-") => emulator = Some(pcpus),
                None => {}
            }
        }
        Self {
            node: String::new(),
            cgroup: take("cgroup"),
            cpuset: set(&take("cpuset")).unwrap_or_default(),
            vcpus: vcpus.into_values().collect(),
            emulator,
            versions: take("version").lines().filter_map(version).collect(),
            kernel: take("kernel").trim().to_owned(),
            is_virtual: !take("hypervisor").trim().is_empty(),
            qemu_args: take("qemu").lines().skip(1).map(str::to_owned).collect(),
            domain_xml: take("domain"),
            capabilities: take("capabilities"),
        }
    }

    /// What the predictors say of the instance on its node, beside the pods that were
    /// there before it.
    ///
    /// # Errors
    /// What is not known, so that nothing can be said.
    pub fn forecast(
        &self,
        instance: &Instance,
        version: &str,
        cancel: &Cancel,
    ) -> Result<Forecast, String> {
        let object = instance.object(cancel).map_err(|error| error.to_string())?;
        let path = format!("/api/v1/nodes/{}/proxy/configz", self.node);
        let text = instance.text(&path, cancel)?;
        let settings = KubeletSettings::from_configz(&text).map_err(|error| error.to_string())?;
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", self.node);
        let own = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let pods = others(&instance.text(&path, cancel)?, own)?;
        self.forecast_with(&object, &settings, &pods, version)
    }

    fn forecast_with(
        &self,
        object: &Value,
        settings: &KubeletSettings,
        others: &[GuaranteedPod],
        version: &str,
    ) -> Result<Forecast, String> {
        let told = |error: &dyn std::error::Error| error.to_string();
        let version: KubevirtVersion =
            version.trim_start_matches('v').parse().map_err(|error| told(&error))?;
        let described = read_description("libvirt's capabilities", self.capabilities.as_bytes());
        let host = described.map_err(|error| told(&error))?.into_host();
        let machine = KubeletHost::from_host(&host).map_err(|error| told(&error))?;
        if !settings.is_static {
            let rule = "the kubelet's policy `none`: pods share all pCPUs".to_owned();
            return Ok(Forecast { rule, cpuset: machine.pcpus(), ..Forecast::default() });
        }
        let policy = settings.policy(&machine).map_err(|error| told(&error))?;
        let vmi = Vmi::from_value(object).map_err(|error| told(&error))?;
        let arrivals =
            others.iter().map(|pod| Arrival::Pod(&pod.containers)).chain([Arrival::Vm(&vmi)]);
        let mut admitted = admit_in_order(&machine, &policy, arrivals, version);
        let last = admitted.pop().flatten();
        let mut given = NodeAllocations::default();
        admitted.iter().flatten().for_each(|one| one.add_to(&mut given));
        let mut options = settings.options.names().join(", ");
        if options.is_empty() {
            options.push_str("no options");
        }
        let of_kubelet = format!(
            "the kubelet's static policy ({options}; topology {})",
            settings.topology.name()
        );
        match last.map(|prediction| prediction.outcome) {
            None => {
                let rule = format!("{of_kubelet}: what has no pCPUs of its own shares the rest");
                Ok(Forecast {
                    rule,
                    cpuset: policy.shared_pool(&given.pcpus),
                    ..Forecast::default()
                })
            }
            Some(Admission::Rejected(why)) => {
                Err(format!("{of_kubelet} would have rejected the pod: {why}"))
            }
            Some(Admission::NotPinned { error, .. }) => {
                Err(format!("KubeVirt {version} would not have started it: {error}"))
            }
            Some(Admission::Pinned { cpuset, pins }) => {
                let findings = findings(&machine, &vmi, &cpuset, &pins);
                Ok(Forecast {
                    rule: format!("{of_kubelet}, then KubeVirt {version}'s pins"),
                    findings: findings.into_iter().map(|one| one.text).collect(),
                    cpuset,
                    vcpus: pins.vcpus,
                    emulator: pins.emulator,
                })
            }
        }
    }

    /// What is not as it was predicted, a sentence each.
    #[must_use]
    pub fn mismatches(&self, forecast: &Forecast) -> Vec<String> {
        let mut found = Vec::new();
        let mut say = |what: &str, is: &PcpuSet, predicted: &PcpuSet| {
            if is != predicted {
                found.push(format!(
                    "Placement is not as predicted by {}: {what} {is}, predicted {predicted}",
                    forecast.rule
                ));
            }
        };
        say("the pod has pCPUs", &self.cpuset, &forecast.cpuset);
        for (vcpu, is) in self.vcpus.iter().enumerate() {
            let pinned = forecast.vcpus.get(vcpu).map(|pcpu| PcpuSet::from_iter([*pcpu]));
            let predicted = pinned.as_ref().unwrap_or(&forecast.cpuset);
            say(&format!("vCPU {vcpu} is on pCPUs"), is, predicted);
        }
        if let (Some(is), false) = (&self.emulator, forecast.emulator.is_empty()) {
            let predicted = forecast.emulator.iter().copied().collect();
            say("the emulator thread is on pCPUs", is, &predicted);
        }
        found
    }
}

/// The pods of a list that have pCPUs for themselves, in the order in which they came,
/// without that of the instance `own`.
fn others(text: &[u8], own: &str) -> Result<Vec<GuaranteedPod>, String> {
    #[derive(Deserialize)]
    struct PodList {
        items: Vec<Pod>,
    }
    let list: PodList = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut pods: Vec<GuaranteedPod> = list.items.iter().filter_map(GuaranteedPod::of).collect();
    pods.retain(|pod| pod.instance.as_deref() != Some(own));
    pods.sort_by(|one, other| one.started.cmp(&other.started));
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As a virt-launcher of KubeVirt 1.7.0 prints it, of a node with four pCPUs.
    fn printed(cpuset: &str, vcpus: [&str; 2]) -> String {
        let cpu = |id: u32| {
            format!("<cpu id='{id}' socket_id='0' die_id='0' core_id='{id}' siblings='{id}'/>")
        };
        let cpus: String = (0..4).map(cpu).collect();
        format!(
            "@cgroup\n4:cpuset:/\n@cpuset\n{cpuset}\n@version\nUsing library: libvirt 11.3.0\n\
             Running hypervisor: QEMU 10.0.13\n@kernel\n6.1.0-53-amd64\n@hypervisor\n hypervisor \n@threads\n\
             {cpuset} qemu-system-x86\n{cpuset} IO mon_iothread\n{} CPU 1/KVM\n{} CPU 0/KVM\n\
             @qemu\n/usr/bin/qemu-system-x86_64\n-name\nguest=lab_vm\n@domain\n\
             <domain type='kvm'>\n</domain>\n@capabilities\n<capabilities><host><cpu>\
             <arch>x86_64</arch></cpu><topology><cells num='1'><cell id='0'><memory \
             unit='KiB'>8000000</memory><cpus num='4'>{cpus}</cpus></cell></cells></topology>\
             </host></capabilities>\n",
            vcpus[1], vcpus[0]
        )
    }

    fn settings(policy: &str) -> KubeletSettings {
        let config = json!({ "kubeletconfig": {
            "cpuManagerPolicy": policy, "reservedSystemCPUs": "0",
        } });
        KubeletSettings::from_configz(config.to_string().as_bytes()).expect("settings")
    }

    fn vmi(own: bool) -> Value {
        json!({
            "metadata": { "name": "vm", "namespace": "lab" },
            "spec": { "domain": {
                "cpu": {
                    "sockets": 1, "cores": 2, "threads": 1, "maxSockets": 1,
                    "dedicatedCpuPlacement": own,
                },
                "memory": { "guest": "256Mi" }, "devices": {},
            } },
        })
    }

    #[test]
    fn what_a_pod_tells_is_read() {
        let placed = InstanceLocation::read(&printed("2-3", ["2", "3"]));
        assert_eq!(placed.cpuset.to_string(), "2-3");
        let vcpus: Vec<String> = placed.vcpus.iter().map(ToString::to_string).collect();
        assert_eq!(vcpus, ["2", "3"]);
        assert_eq!(placed.emulator.map(|set| set.to_string()).as_deref(), Some("2-3"));
        assert_eq!(placed.versions["running hypervisor"], "QEMU 10.0.13");
        assert_eq!(placed.kernel, "6.1.0-53-amd64");
        assert_eq!(placed.qemu_args, ["-name", "guest=lab_vm"]);
        assert_eq!(placed.domain_xml, "<domain type='kvm'>\n</domain>\n");
        assert!(placed.is_virtual && placed.cgroup.contains("cpuset"));
        assert_eq!(InstanceLocation::read("").vcpus, []);
    }

    #[test]
    fn what_is_not_as_predicted_names_its_rule() {
        let forecast = |placed: &InstanceLocation, policy: &str, own: bool| {
            placed.forecast_with(&vmi(own), &settings(policy), &[], "v1.7.0").expect("a forecast")
        };
        let right = InstanceLocation::read(&printed("1-2", ["1", "2"]));
        let of_static = forecast(&right, "static", true);
        assert_eq!(
            (of_static.cpuset.to_string().as_str(), &of_static.vcpus[..]),
            ("1-2", &[1, 2][..])
        );
        assert_eq!(right.mismatches(&of_static), Vec::<String>::new());
        let wrong = InstanceLocation::read(&printed("2-3", ["2", "3"]));
        let found = wrong.mismatches(&of_static);
        assert_eq!(found.len(), 3, "{found:#?}");
        let rule = "by the kubelet's static policy (no options; topology none), then KubeVirt \
                    1.7.0's pins: the pod has pCPUs 2-3, predicted 1-2";
        assert!(found[0].contains(rule), "{found:#?}");
        assert!(found[1].ends_with("vCPU 0 is on pCPUs 2, predicted 1"), "{found:#?}");
        // What has no pCPUs of its own has those that nobody else has.
        let shared = InstanceLocation::read(&printed("0-3", ["0-3", "0-3"]));
        assert_eq!(shared.mismatches(&forecast(&shared, "static", false)), Vec::<String>::new());
        assert_eq!(shared.mismatches(&forecast(&shared, "none", false)), Vec::<String>::new());
    }
}
