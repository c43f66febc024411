//! What a study needs to know of a cluster before it begins there: whether it may do what
//! it has to, and what its VMs will be.

use std::time::Instant;

use guest::Cancel;
use k8s_openapi::api::core::v1::Node;
use placement::predict::node::{NodeShortfall, PodDemand};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::{Call, ClusterTarget, ListError, RequestFailure};
use crate::error::ClusterError;
use crate::kind::{INSTANCE, JOB};
use crate::node::ClusterNode;
use crate::refusal::refused;
use crate::resource::{
    INSTANCES, KUBEVIRTS, NODES, RIGHTS_OF_JOBS, RIGHTS_OF_RUNS, ResourceKind, Right,
};
use crate::session::{PATIENCE, Session};

/// A cluster in which instances are to be created.
pub struct ClusterSurvey {
    asked: SurveyConnection,
    /// The server's URL.
    pub server: String,
    /// The namespace: the one that was asked for, or that of the kubeconfig's context.
    pub namespace: String,
    /// KubeVirt's version, as its object says it.
    pub kubevirt: String,
    /// Whether its VMs are emulated where there is no KVM (`useEmulation`).
    pub is_emulated: bool,
    /// The nodes that take VMs.
    pub nodes: Vec<ClusterNode>,
}

/// A cluster on whose nodes a study is to run.
#[derive(Debug, Clone)]
pub struct NodesSurvey {
    /// The server's URL.
    pub server: String,
    /// The namespace: the one that was asked for, or that of the kubeconfig's context.
    pub namespace: String,
    /// The nodes that are meant and take pods, by name.
    pub nodes: Vec<ClusterNode>,
    /// Those that are meant and take none now, and why.
    pub closed: Vec<(String, Vec<NodeShortfall>)>,
}

/// Looks at the cluster of `target`.
///
/// # Errors
/// [`ClusterError`]: a study can't run there.
pub fn survey(target: &ClusterTarget) -> Result<ClusterSurvey, ClusterError> {
    let asked = SurveyConnection::connect(target)?;
    let (server, namespace) = (asked.server.clone(), asked.namespace.clone());
    asked.namespace("kubevirt")?;
    asked.rights(&RIGHTS_OF_RUNS, INSTANCE.role)?;
    let mut survey = ClusterSurvey {
        asked,
        server,
        namespace,
        kubevirt: String::new(),
        is_emulated: false,
        nodes: Vec::new(),
    };
    survey.kubevirt()?;
    survey.nodes = survey.asked.nodes(None)?;
    let schedulable = |node: &ClusterNode| {
        let label = node.offer.labels.get("kubevirt.io/schedulable");
        node.offer.fits(&PodDemand::default()) && label.is_some_and(|value| value == "true")
    };
    survey.nodes.retain(schedulable);
    if survey.nodes.is_empty() {
        return Err(ClusterError::NoNode { server: survey.server });
    }
    Ok(survey)
}

/// Looks at the nodes of the cluster of `target` that have the labels of `selector`, as
/// kubectl takes it, or at all.
///
/// # Errors
/// [`ClusterError`]: a study can't run there.
pub fn survey_nodes(
    target: &ClusterTarget,
    selector: Option<&str>,
) -> Result<NodesSurvey, ClusterError> {
    let asked = SurveyConnection::connect(target)?;
    asked.namespace("k8s")?;
    asked.rights(&RIGHTS_OF_JOBS, JOB.role)?;
    let mut nodes = asked.nodes(selector)?;
    nodes.sort_by(|one, other| one.offer.name.cmp(&other.offer.name));
    // A pod of a study asks for nothing and tolerates no taint.
    let demand = PodDemand::default();
    let (nodes, closed): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| node.offer.fits(&demand));
    let closed = closed.into_iter().map(|node| {
        let why = node.offer.shortfalls(&demand);
        (node.offer.name, why)
    });
    let closed = closed.collect();
    let SurveyConnection { server, namespace, .. } = asked;
    if nodes.is_empty() {
        return Err(ClusterError::NoNodeMeant { server, selector: selector.map(str::to_owned) });
    }
    Ok(NodesSurvey { server, namespace, nodes, closed })
}

/// A connection before anything begins.
struct SurveyConnection {
    session: Session,
    server: String,
    namespace: String,
}

impl SurveyConnection {
    fn connect(target: &ClusterTarget) -> Result<Self, ClusterError> {
        let session = Session::connect(target)?;
        let server = session.api.server.clone();
        let namespace = target.namespace.clone().unwrap_or_else(|| session.api.namespace.clone());
        Ok(Self { session, server, namespace })
    }

    fn ask(&self, call: &Call<'_>) -> Result<Result<Vec<u8>, RequestFailure>, ClusterError> {
        let until = Instant::now() + PATIENCE;
        let server = self.server.clone();
        let asked = self.session.wait(until, &Cancel::new(), self.session.api.call(call));
        match asked.ok().flatten() {
            Some(Err(RequestFailure::Unauthorized(reason))) => {
                Err(ClusterError::Unauthorized { server, reason })
            }
            Some(Err(RequestFailure::Unreachable(reason))) => {
                Err(ClusterError::Unreachable { server, reason })
            }
            Some(answer) => Ok(answer),
            None => {
                let reason = format!("no answer within {} s", PATIENCE.as_secs());
                Err(ClusterError::Unreachable { server, reason })
            }
        }
    }

    fn list<T>(
        &self,
        what: &ResourceKind,
        selector: Option<&str>,
        each: impl FnMut(&RawValue) -> Result<Option<T>, serde_json::Error>,
    ) -> Result<Option<Vec<T>>, ClusterError> {
        let until = Instant::now() + PATIENCE;
        let asked = self.session.wait(until, &Cancel::new(), async {
            self.session.api.list_labelled(what, None, selector, each, &mut |_| {}).await
        });
        match asked.ok().flatten() {
            Some(Ok(list)) => Ok(list),
            Some(Err(ListError::Unread(unread))) => Err(ClusterError::Needed(unread)),
            Some(Err(ListError::Whole(error))) => Err(error),
            None => {
                let reason = format!("no answer within {} s", PATIENCE.as_secs());
                Err(ClusterError::Unreachable { server: self.server.clone(), reason })
            }
        }
    }

    fn nodes(&self, selector: Option<&str>) -> Result<Vec<ClusterNode>, ClusterError> {
        let each = |item: &RawValue| serde_json::from_str::<Node>(item.get()).map(Some);
        let nodes = self.list(&NODES, selector, each)?;
        Ok(nodes.unwrap_or_default().into_iter().map(ClusterNode::of).collect())
    }

    /// The namespace is there, and stays; `place` is what `--on` calls such a cluster.
    fn namespace(&self, place: &'static str) -> Result<(), ClusterError> {
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        let namespace = self.namespace.clone();
        match self.ask(&Call::get(&path))? {
            Ok(text) => {
                let object: Value = serde_json::from_slice(&text).unwrap_or_default();
                match object["status"]["phase"] == "Terminating" {
                    true => Err(ClusterError::NamespaceEnds { namespace, place }),
                    false => Ok(()),
                }
            }
            Err(RequestFailure::Absent) => {
                Err(ClusterError::NoNamespace { namespace, place: Some(place) })
            }
            // Who may not look at it may still use it.
            Err(_) => Ok(()),
        }
    }

    /// Every right that a run needs, asked for before anything begins.
    fn rights(&self, rights: &[Right], role: &'static str) -> Result<(), ClusterError> {
        let mut missing = Vec::new();
        for right in rights {
            let (resource, subresource) =
                right.resource.split_once('/').unwrap_or((right.resource, ""));
            for verb in right.verbs {
                let asked = json!({
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                    "spec": { "resourceAttributes": {
                        "namespace": self.namespace, "verb": verb, "group": right.group,
                        "resource": resource, "subresource": subresource,
                    } },
                });
                let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
                let body = asked.to_string();
                let call = Call::create(path, "application/json", body.as_bytes());
                // A server that does not say it says it later.
                let Ok(text) = self.ask(&call)? else { continue };
                let answer: Value = serde_json::from_slice(&text).unwrap_or_default();
                if answer["status"]["allowed"] == false {
                    missing.push(format!("{verb} {}", right.name()));
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(ClusterError::NoRights { namespace: self.namespace.clone(), missing, role })
    }
}

impl ClusterSurvey {
    fn kubevirt(&mut self) -> Result<(), ClusterError> {
        let objects = self
            .asked
            .list(&KUBEVIRTS, None, |item| serde_json::from_str::<Value>(item.get()).map(Some))?;
        let server = self.server.clone();
        let object = objects.and_then(|mut all| all.pop());
        let object = object.ok_or(ClusterError::NoKubevirt { server })?;
        let at = |pointer: &str| object.pointer(pointer);
        let version = at("/status/observedKubeVirtVersion").and_then(Value::as_str);
        self.kubevirt = version.unwrap_or_default().trim_start_matches('v').to_owned();
        let emulates = at("/spec/configuration/developerConfiguration/useEmulation");
        self.is_emulated = emulates.and_then(Value::as_bool).unwrap_or(false);
        Ok(())
    }

    /// What the cluster has against an instance; nothing is created.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub fn refusal(&self, manifest: &str) -> Result<Option<String>, ClusterError> {
        let path =
            format!("{}?dryRun=All&fieldValidation=Strict", INSTANCES.path(Some(&self.namespace)));
        let call = Call::create(&path, "application/yaml", manifest.as_bytes());
        match self.asked.ask(&call)? {
            Ok(_) => Ok(None),
            Err(RequestFailure::Other(said)) => Ok(Some(said)),
            Err(failure) => {
                Ok(Some(refused(&INSTANCE, "create", failure, &self.namespace).to_string()))
            }
        }
    }
}
