//! What a study needs to know of a cluster before it begins there: whether it may do what
//! it has to, and what its VMs will be.

use std::time::Instant;

use guest::Cancel;
use k8s_openapi::api::core::v1::Node;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::{Call, ClusterTarget, Failure, ListError};
use crate::error::ClusterError;
use crate::instance::refused;
use crate::node::ClusterNode;
use crate::resource::{INSTANCES, KUBEVIRTS, NODES, RIGHTS_OF_RUNS};
use crate::session::{PATIENCE, Session};

/// A cluster in which instances are to be created.
pub struct ClusterSurvey {
    session: Session,
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

/// Looks at the cluster of `target`.
///
/// # Errors
/// [`ClusterError`]: a study can't run there.
pub fn survey(target: &ClusterTarget) -> Result<ClusterSurvey, ClusterError> {
    let session = Session::connect(target)?;
    let server = session.api.server.clone();
    let namespace = target.namespace.clone().unwrap_or_else(|| session.api.namespace.clone());
    let mut survey = ClusterSurvey {
        session,
        server,
        namespace,
        kubevirt: String::new(),
        is_emulated: false,
        nodes: Vec::new(),
    };
    survey.namespace()?;
    survey.rights()?;
    survey.kubevirt()?;
    let nodes = survey.list(&NODES, |item| serde_json::from_str::<Node>(item.get()).map(Some))?;
    survey.nodes = nodes.unwrap_or_default().into_iter().map(ClusterNode::of).collect();
    let schedulable = |node: &ClusterNode| {
        let label = node.offer.labels.get("kubevirt.io/schedulable");
        node.offer.takes_pods && label.is_some_and(|value| value == "true")
    };
    survey.nodes.retain(schedulable);
    if survey.nodes.is_empty() {
        return Err(ClusterError::NoNode { server: survey.server });
    }
    Ok(survey)
}

impl ClusterSurvey {
    fn ask(&self, call: &Call<'_>) -> Result<Result<Vec<u8>, Failure>, ClusterError> {
        let until = Instant::now() + PATIENCE;
        let server = self.server.clone();
        let asked = self.session.wait(until, &Cancel::new(), self.session.api.call(call));
        match asked.ok().flatten() {
            Some(Err(Failure::Unauthorized(reason))) => {
                Err(ClusterError::Unauthorized { server, reason })
            }
            Some(Err(Failure::Unreachable(reason))) => {
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
        what: &crate::resource::Read,
        each: impl FnMut(&RawValue) -> Result<Option<T>, serde_json::Error>,
    ) -> Result<Option<Vec<T>>, ClusterError> {
        let until = Instant::now() + PATIENCE;
        let asked = self.session.wait(until, &Cancel::new(), async {
            self.session.api.list(what, None, each, &mut |_| {}).await
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

    /// The namespace is there, and stays.
    fn namespace(&self) -> Result<(), ClusterError> {
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        let namespace = self.namespace.clone();
        match self.ask(&Call::get(&path))? {
            Ok(text) => {
                let object: Value = serde_json::from_slice(&text).unwrap_or_default();
                match object["status"]["phase"] == "Terminating" {
                    true => Err(ClusterError::NamespaceEnds { namespace }),
                    false => Ok(()),
                }
            }
            Err(Failure::Absent) => Err(ClusterError::NoNamespace { namespace }),
            // Who may not look at it may still use it.
            Err(_) => Ok(()),
        }
    }

    /// Every right that a run needs, asked for before anything begins.
    fn rights(&self) -> Result<(), ClusterError> {
        let mut missing = Vec::new();
        for right in RIGHTS_OF_RUNS {
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
        Err(ClusterError::NoRights { namespace: self.namespace.clone(), missing })
    }

    fn kubevirt(&mut self) -> Result<(), ClusterError> {
        let objects =
            self.list(&KUBEVIRTS, |item| serde_json::from_str::<Value>(item.get()).map(Some))?;
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
        match self.ask(&call)? {
            Ok(_) => Ok(None),
            Err(Failure::Other(said)) => Ok(Some(said)),
            Err(failure) => Ok(Some(refused("create", failure, &self.namespace).to_string())),
        }
    }
}
