//! What goes wrong with a cluster.

use std::fmt;

/// Error type for [`crate::read`].
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No kubeconfig, and this is no pod either.
    #[error(
        "No cluster is configured ({0}): set KUBECONFIG, name a file with --kubeconfig, or run \
         where kubectl works"
    )]
    NoConfig(String),
    /// The kubeconfig can't be read.
    #[error("Cannot read the kubeconfig {file}: {reason}")]
    Kubeconfig {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// No such context in it.
    #[error("The kubeconfig has no context {wanted:?}: it has {}", listed(found))]
    NoContext {
        /// Asked for.
        wanted: String,
        /// There are.
        found: Vec<String>,
    },
    /// What the kubeconfig says does not make a client.
    #[error("Cannot use the kubeconfig's cluster: {0}")]
    Client(String),
    /// The server does not answer.
    #[error("The API server {server} does not answer: {reason}")]
    Unreachable {
        /// Its URL.
        server: String,
        /// Why.
        reason: String,
    },
    /// It does not know who asks.
    #[error(
        "The API server {server} does not accept the credentials ({reason}): a token may have \
         expired, log in again"
    )]
    Unauthorized {
        /// Its URL.
        server: String,
        /// What it said.
        reason: String,
    },
    /// Without this there is nothing to say.
    #[error("{0}")]
    Needed(UnreadResource),
    /// The cluster has no KubeVirt.
    #[error("The cluster at {server} has no KubeVirt: nobody serves kubevirt.io/v1")]
    NoKubevirt {
        /// Its URL.
        server: String,
    },
    /// No node takes VMs.
    #[error(
        "No node of the cluster at {server} takes VMs: none is ready with the label \
         kubevirt.io/schedulable=true"
    )]
    NoNode {
        /// Its URL.
        server: String,
    },
    /// There is no such namespace.
    #[error(
        "The cluster has no namespace {namespace:?}: name another one, {}",
        place.map_or("-n NAMESPACE".to_owned(), |place| format!("{place}:CONTEXT/NAMESPACE"))
    )]
    NoNamespace {
        /// The namespace.
        namespace: String,
        /// What `--on` names such a cluster by, if that named it.
        place: Option<&'static str>,
    },
    /// It is about to be gone.
    #[error(
        "Namespace {namespace:?} is being deleted: name another one, {place}:CONTEXT/NAMESPACE"
    )]
    NamespaceEnds {
        /// The namespace.
        namespace: String,
        /// What `--on` names such a cluster by.
        place: &'static str,
    },
    /// A run would be refused.
    #[error(
        "May not {} in namespace {namespace:?}: `vmlab k8s rbac {role}` prints the role that allows it",
        missing.join(", ")
    )]
    NoRights {
        /// The namespace.
        namespace: String,
        /// Verb and resource.
        missing: Vec<String>,
        /// The option that has the role printed.
        role: &'static str,
    },
    /// No node is meant.
    #[error(
        "No node of the cluster at {server} is ready, takes pods and is meant{}",
        selector.as_ref().map(|text| format!(" by --nodes {text:?}")).unwrap_or_default()
    )]
    NoNodeMeant {
        /// Its URL.
        server: String,
        /// The labels that were asked for.
        selector: Option<String>,
    },
    /// No runtime for the requests.
    #[error("Cannot start the client")]
    Runtime(#[source] std::io::Error),
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadResource {
    /// The resource, as a Role names it: `nodes/proxy`, `virtualmachines.kubevirt.io`.
    pub resource: String,
    /// The verb that a Role would have to allow.
    pub verb: &'static str,
    /// Of which object, where it was one.
    pub name: Option<String>,
    /// Whether the server forbids it; else something went wrong.
    pub is_forbidden: bool,
    /// What the server said.
    pub reason: String,
}

impl fmt::Display for UnreadResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, verb, name, is_forbidden, reason } = self;
        let what = if *is_forbidden { "May not" } else { "Cannot" };
        write!(f, "{what} {verb} {resource}")?;
        if let Some(name) = name {
            write!(f, " of {name}")?;
        }
        match is_forbidden {
            true => write!(f, ": `vmlab k8s rbac` prints the role that allows it ({reason})"),
            false => write!(f, ": {reason}"),
        }
    }
}
