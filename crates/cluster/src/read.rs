//! All that is read of a cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::{Api, ClusterTarget, ListError, RequestFailure};
use crate::error::{ClusterError, UnreadResource};
use crate::machine_config::RenderedConfig;
use crate::node::ClusterNode;
use crate::object::ClusterObject;
use crate::pod::{BoundPod, GuaranteedPod};
use crate::resource::{
    INSTANCES, INSTANCETYPES, KUBELETS, KUBEVIRTS, MACHINE_CONFIGS, NAMESPACES, NODES, PODS,
    PROFILES, ResourceKind, VMS,
};
use placement::predict::kubelet::{KubeletSettings, PerformanceProfile};
use placement::predict::node::PodRequests;

/// So many kubelets are asked at once.
const AT_ONCE: usize = 16;

/// What a cluster told.
#[derive(Debug)]
pub struct ClusterFacts {
    /// URL of its API server.
    pub server: String,
    /// Its nodes, by name.
    pub nodes: Vec<ClusterNode>,
    /// Its KubeVirt objects: one, where all is well.
    pub kubevirts: Vec<ClusterObject>,
    /// Instance types and preferences.
    pub instancetypes: Vec<ClusterObject>,
    /// VirtualMachines.
    pub vms: Vec<ClusterObject>,
    /// VirtualMachineInstances.
    pub instances: Vec<ClusterObject>,
    /// Pods with pCPUs of their own, on any node; `None`: may not be read.
    pub pods: Option<Vec<GuaranteedPod>>,
    /// What pods have asked of their nodes, by the nodes' names; nothing where pods may not be
    /// read.
    pub requests: BTreeMap<String, PodRequests>,
    /// What could not be read.
    pub unread: Vec<UnreadResource>,
}

/// Reads a cluster. `progress` is told what is being read.
///
/// # Errors
/// [`ClusterError`]: without what is missing there is nothing to say.
pub fn read(
    target: &ClusterTarget,
    progress: &mut dyn FnMut(&str),
) -> Result<ClusterFacts, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClusterError::Runtime)?;
    runtime.block_on(read_all(target, progress))
}

async fn read_all(
    target: &ClusterTarget,
    progress: &mut dyn FnMut(&str),
) -> Result<ClusterFacts, ClusterError> {
    let api = Api::connect(target).await?;
    let mut reader = Reader { api: &api, unread: Vec::new(), progress };
    let namespace = target.namespace.as_deref();
    let nodes = reader.needed(&NODES, None, typed::<Node>).await?.unwrap_or_default();
    let mut nodes: Vec<ClusterNode> = nodes.into_iter().map(ClusterNode::of).collect();
    nodes.sort_by(|one, other| one.offer.name.cmp(&other.offer.name));
    let configs = reader.machine_configs(&mut nodes).await?;
    reader.kubelets(&mut nodes, &configs).await?;
    let kubevirts = reader.objects(&KUBEVIRTS, None).await?;
    let vms = reader.needed(&VMS, namespace, |item| object(&VMS, item)).await?;
    let instances = reader.needed(&INSTANCES, namespace, |item| object(&INSTANCES, item)).await?;
    let (Some(vms), Some(mut instances)) = (vms, instances) else {
        return Err(ClusterError::NoKubevirt { server: api.server });
    };
    let mut instancetypes = Vec::new();
    for kind in &INSTANCETYPES {
        instancetypes.extend(reader.objects(kind, namespace).await?.unwrap_or_default());
    }
    // A server lists what is in a namespace that is not there: nothing.
    if let Some(namespace) = namespace.filter(|_| vms.is_empty() && instances.is_empty()) {
        reader.namespace(namespace).await?;
    }
    let of_pod = |item: &RawValue| {
        let pod: Pod = serde_json::from_str(item.get())?;
        Ok(BoundPod::of(&pod))
    };
    let all = reader.optional(&PODS, None, of_pod).await?;
    let mut requests: BTreeMap<String, PodRequests> = BTreeMap::new();
    let mut launchers = HashMap::new();
    let pods = all.map(|all| {
        let own = all.into_iter().filter_map(|pod| {
            requests.entry(pod.node.clone()).or_default().add(&pod.requests);
            launchers.extend(pod.instance.map(|instance| (instance, pod.node)));
            pod.guaranteed
        });
        own.collect()
    });
    for instance in instances.iter_mut().filter(|instance| instance.node.is_none()) {
        let namespace = instance.namespace.clone().unwrap_or_default();
        instance.bound_to = launchers.remove(&(namespace, instance.name.clone()));
    }
    let unread = reader.unread;
    Ok(ClusterFacts {
        server: api.server,
        nodes,
        kubevirts: kubevirts.unwrap_or_default(),
        instancetypes,
        vms,
        instances,
        pods,
        requests,
        unread,
    })
}

fn typed<T: for<'de> Deserialize<'de>>(item: &RawValue) -> Result<Option<T>, serde_json::Error> {
    serde_json::from_str(item.get()).map(Some)
}

fn object(
    kind: &ResourceKind,
    item: &RawValue,
) -> Result<Option<ClusterObject>, serde_json::Error> {
    ClusterObject::read(kind, item).map(Some)
}

struct Reader<'a> {
    api: &'a Api,
    unread: Vec<UnreadResource>,
    progress: &'a mut dyn FnMut(&str),
}

impl Reader<'_> {
    /// A list without which there is nothing to say. `None`: nobody serves it.
    async fn needed<T>(
        &mut self,
        what: &ResourceKind,
        namespace: Option<&str>,
        each: impl FnMut(&RawValue) -> Result<Option<T>, serde_json::Error>,
    ) -> Result<Option<Vec<T>>, ClusterError> {
        let say = &mut *self.progress;
        let mut said = |count: usize| say(&format!("{}: {count}", what.name()));
        said(0);
        let list = self.api.list(what, namespace, each, &mut said).await;
        list.map_err(|error| match error {
            ListError::Unread(unread) => ClusterError::Needed(unread),
            ListError::Whole(error) => error,
        })
    }

    /// A list without which less can be said. `None`: it is not there, or may not be read.
    async fn optional<T>(
        &mut self,
        what: &ResourceKind,
        namespace: Option<&str>,
        each: impl FnMut(&RawValue) -> Result<Option<T>, serde_json::Error>,
    ) -> Result<Option<Vec<T>>, ClusterError> {
        match self.needed(what, namespace, each).await {
            Err(ClusterError::Needed(unread)) => {
                self.unread.push(unread);
                Ok(None)
            }
            other => other,
        }
    }

    /// One object by its name; `None`: it may not be read, which is then said, or is not there.
    async fn one(
        &mut self,
        what: &ResourceKind,
        name: &str,
    ) -> Result<Option<Vec<u8>>, ClusterError> {
        let path = format!("{}/{name}", what.path(None));
        let (is_forbidden, reason) = match self.api.get(&path).await {
            Ok(text) => return Ok(Some(text)),
            Err(RequestFailure::Absent) => return Ok(None),
            Err(RequestFailure::Unauthorized(reason)) => {
                let server = self.api.server.clone();
                return Err(ClusterError::Unauthorized { server, reason });
            }
            Err(RequestFailure::Forbidden(said)) => (true, said),
            Err(RequestFailure::Gone(said)) => (false, said.unwrap_or_default()),
            Err(
                RequestFailure::Unreachable(said)
                | RequestFailure::Other(said)
                | RequestFailure::Exists(said),
            ) => (false, said),
        };
        self.unread.push(UnreadResource {
            resource: what.name(),
            verb: what.verb,
            name: Some(name.to_owned()),
            is_forbidden,
            reason,
        });
        Ok(None)
    }

    /// The namespace is there, as far as that may be asked.
    async fn namespace(&mut self, namespace: &str) -> Result<(), ClusterError> {
        let before = self.unread.len();
        match self.one(&NAMESPACES, namespace).await? {
            None if self.unread.len() == before => {
                let namespace = namespace.to_owned();
                Err(ClusterError::NoNamespace { namespace, place: None })
            }
            _ => Ok(()),
        }
    }

    /// The MachineConfigs that nodes say they have, by name, and what their kernels are told.
    async fn machine_configs(
        &mut self,
        nodes: &mut [ClusterNode],
    ) -> Result<BTreeMap<String, RenderedConfig>, ClusterError> {
        let mut configs = BTreeMap::new();
        let states = nodes.iter().filter_map(|node| node.machine_config.as_ref());
        let names: BTreeSet<String> = states.map(|state| state.current.clone()).collect();
        for name in names {
            (self.progress)(&format!("MachineConfig {name}"));
            let before = self.unread.len();
            let read = self.one(&MACHINE_CONFIGS, &name).await?;
            // One role for all: said once.
            if self.unread[before..].iter().any(|unread| unread.is_forbidden) {
                break;
            }
            let config = match read.map(|text| RenderedConfig::read(&text)) {
                Some(Ok(config)) => config,
                None if self.unread.len() > before => continue,
                unread => {
                    let reason = match unread {
                        Some(Err(error)) => format!("the server's answer is none: {error}"),
                        _ => "its nodes name it, and it is not there".to_owned(),
                    };
                    self.unread.push(config_unread(&name, reason));
                    continue;
                }
            };
            if let Some(Err(reason)) = &config.kubelet {
                self.unread.push(config_unread(&name, reason.clone()));
            }
            configs.insert(name, config);
        }
        for node in nodes {
            let state = node.machine_config.as_ref();
            let config = state.and_then(|state| configs.get(&state.current));
            node.boot = config.map(|config| config.boot(node.cpus));
        }
        Ok(configs)
    }

    async fn objects(
        &mut self,
        what: &ResourceKind,
        namespace: Option<&str>,
    ) -> Result<Option<Vec<ClusterObject>>, ClusterError> {
        self.optional(what, namespace, |item| object(what, item)).await
    }

    /// Asks every kubelet for its settings; where one can't be asked, the MachineConfig of
    /// its node, then OpenShift's profile for it.
    async fn kubelets(
        &mut self,
        nodes: &mut [ClusterNode],
        configs: &BTreeMap<String, RenderedConfig>,
    ) -> Result<(), ClusterError> {
        let api = self.api;
        let asked = nodes.iter().enumerate().map(|(index, node)| {
            let path = format!("/api/v1/nodes/{}/proxy/configz", node.offer.name);
            async move { (index, api.get(&path).await) }
        });
        let asked: Vec<_> = asked.collect();
        let mut answers = futures_util::stream::iter(asked).buffer_unordered(AT_ONCE);
        let (mut done, mut unread, mut forbidden) = (0, Vec::new(), None);
        while let Some((index, answer)) = answers.next().await {
            done += 1;
            (self.progress)(&format!("kubelets: {done} of {}", nodes.len()));
            let said = match answer {
                Ok(text) => match KubeletSettings::from_configz(&text) {
                    Ok(settings) => {
                        nodes[index].kubelet = Some(settings);
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                Err(RequestFailure::Unauthorized(reason)) => {
                    let server = api.server.clone();
                    return Err(ClusterError::Unauthorized { server, reason });
                }
                Err(RequestFailure::Forbidden(said)) => {
                    forbidden = Some(said);
                    continue;
                }
                Err(RequestFailure::Absent) => "it has no /configz".to_owned(),
                Err(RequestFailure::Gone(_)) => "it is gone".to_owned(),
                Err(
                    RequestFailure::Unreachable(said)
                    | RequestFailure::Other(said)
                    | RequestFailure::Exists(said),
                ) => said,
            };
            let name = Some(nodes[index].offer.name.clone());
            unread.push(kubelet_unread(name, false, said));
        }
        drop(answers);
        // One role for all: said once.
        unread.extend(forbidden.map(|said| kubelet_unread(None, true, said)));
        for node in nodes.iter_mut().filter(|node| node.kubelet.is_none()) {
            let state = node.machine_config.as_ref();
            let config = state.and_then(|state| configs.get(&state.current));
            node.kubelet = config.and_then(|config| config.kubelet.clone()?.ok());
        }
        if nodes.iter().any(|node| node.kubelet.is_none()) {
            let profiles = self.optional(&PROFILES, None, typed::<PerformanceProfile>).await?;
            for profile in profiles.unwrap_or_default() {
                let settings = match KubeletSettings::from_profile(&profile) {
                    Ok(settings) => settings,
                    Err(error) => {
                        unread.push(UnreadResource {
                            resource: PROFILES.name(),
                            verb: PROFILES.verb,
                            name: Some(profile.name().to_owned()),
                            is_forbidden: false,
                            reason: error.to_string(),
                        });
                        continue;
                    }
                };
                let silent = nodes.iter_mut().filter(|node| node.kubelet.is_none());
                silent
                    .filter(|node| profile.selects(&node.offer.labels))
                    .for_each(|node| node.kubelet = Some(settings.clone()));
            }
        }
        unread.sort_by(|one, other| one.name.cmp(&other.name));
        self.unread.extend(unread);
        Ok(())
    }
}

fn kubelet_unread(name: Option<String>, is_forbidden: bool, reason: String) -> UnreadResource {
    UnreadResource { resource: KUBELETS.name(), verb: KUBELETS.verb, name, is_forbidden, reason }
}

fn config_unread(name: &str, reason: String) -> UnreadResource {
    UnreadResource {
        resource: MACHINE_CONFIGS.name(),
        verb: MACHINE_CONFIGS.verb,
        name: Some(name.to_owned()),
        is_forbidden: false,
        reason,
    }
}
