//! The cluster that `--cluster` names: shared by the subcommands that take it.

pub(crate) mod left;
mod view;

use std::path::{Path, PathBuf};

use ::cluster::{ClusterError, ClusterTarget};
use clap::Args;

pub(crate) use view::ClusterView;

#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct KubernetesArgs {
    /// Read the Kubernetes cluster of kubectl's current context, or of this one: its
    /// nodes, their kubelets' settings, KubeVirt and its VMs. Nothing is changed there;
    /// `vmlab k8s rbac` prints what has to be allowed.
    #[arg(long, value_name = "CONTEXT", num_args = 0..=1, require_equals = true,
        default_missing_value = "")]
    cluster: Option<String>,
    /// The kubeconfig, where kubectl would take another one.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<PathBuf>,
    /// VMs of this namespace alone.
    #[arg(long, short = 'n', value_name = "NAMESPACE", requires = "cluster")]
    namespace: Option<String>,
    /// A folder with a host file of each node, NODE.json, that `vmlab host --json` wrote
    /// there: the API tells of no sockets, cores and memory nodes.
    #[arg(long, value_name = "FOLDER", requires = "cluster")]
    hosts: Option<PathBuf>,
}

impl KubernetesArgs {
    /// Whether a cluster is named.
    pub(crate) fn is_given(&self) -> bool {
        self.cluster.is_some()
    }

    /// The cluster, if one is named.
    fn target(&self) -> Option<ClusterTarget> {
        let context = self.cluster.clone()?;
        Some(ClusterTarget {
            kubeconfig: self.kubeconfig.clone(),
            context: Some(context).filter(|context| !context.is_empty()),
            namespace: self.namespace.clone(),
        })
    }
}

/// The cluster that is named by `CONTEXT` or `CONTEXT/NAMESPACE`, and what `survey` says of
/// it: a context's name may have a slash of its own.
///
/// # Errors
/// What `survey` says.
pub(crate) fn named_cluster<T>(
    kubeconfig: Option<&Path>,
    named: Option<&str>,
    survey: impl Fn(&ClusterTarget) -> Result<T, ClusterError>,
) -> Result<(ClusterTarget, T), ClusterError> {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let kubeconfig = kubeconfig.map(Path::to_owned);
    let context = named.and_then(some);
    let whole = ClusterTarget { kubeconfig: kubeconfig.clone(), context, namespace: None };
    let parts = named.and_then(|text| text.rsplit_once('/'));
    match (survey(&whole), parts) {
        (Err(ClusterError::NoContext { .. }), Some((context, namespace))) => {
            let (context, namespace) = (some(context), some(namespace));
            let target = ClusterTarget { kubeconfig, context, namespace };
            let found = survey(&target)?;
            Ok((target, found))
        }
        (found, _) => Ok((whole, found?)),
    }
}
