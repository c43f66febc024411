//! What can go wrong, and what to do next.

use std::io;
use std::path::PathBuf;

use host::owner::{EndOrphanError, OwnerError};
use host::state_dir::{FileError, StateLookupError};

use crate::state::ClusterState;

/// Error type for [`crate::find`] and [`crate::list`].
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is no such one.
    #[error(transparent)]
    NotOne(#[from] StateLookupError),
    /// The folder can't be read.
    #[error(transparent)]
    Read(#[from] FileError),
}

/// Error type for [`crate::LocalCluster::down`].
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    /// A process can't be ended.
    #[error(transparent)]
    End(#[from] EndOrphanError),
    /// Processes are still in its cgroups.
    #[error("Cannot remove the cgroup {path}")]
    Cgroup {
        /// The folder of the cgroup.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A further node's replica can't be ended.
    #[error(transparent)]
    Replica(#[from] replica::ReplicaDownError),
    /// The replicas can't be read.
    #[error(transparent)]
    Find(replica::ReplicaFindError),
    /// Its folder can't be removed.
    #[error(transparent)]
    Remove(#[from] FileError),
}

/// Error type for [`crate::LocalCluster::load`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The cluster is not up.
    #[error("The cluster {name:?} is {}: `vmlab cluster up` starts one", state.word())]
    NotUp {
        /// Its name.
        name: String,
        /// Its state.
        state: ClusterState,
    },
    /// The archive can't be read.
    #[error(transparent)]
    Read(#[from] FileError),
    /// The cluster has no such node.
    #[error("The cluster has no node {node:?}; there are {there}")]
    NoNode {
        /// The name asked for.
        node: String,
        /// Those that there are.
        there: String,
    },
    /// It can't be brought to a further node.
    #[error("Cannot bring {path} to the node {node}: {said}")]
    Node {
        /// The archive.
        path: PathBuf,
        /// The node.
        node: String,
        /// Why.
        said: String,
    },
    /// containerd does not take it.
    #[error("containerd does not take {path}: {said}")]
    Refused {
        /// The archive.
        path: PathBuf,
        /// What ctr said.
        said: String,
    },
}

/// Error type for [`crate::up`].
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// It can't be a name.
    #[error(
        "{0:?} can't be a cluster's name: it has at most 20 small letters, digits and '-', and \
         begins and ends with a letter or digit"
    )]
    Name(String),
    /// The name is taken.
    #[error(
        "There is a cluster {name:?} already ({}): end it with `vmlab cluster down {name}`, or \
         give another --name", state.word()
    )]
    Exists {
        /// The name.
        name: String,
        /// Its state.
        state: ClusterState,
    },
    /// It can't be a node's name.
    #[error(
        "{0:?} can't be a node's name: it has at most 19 small letters, digits and '-', begins \
         and ends with a letter or digit, and is not \"vmlab\", which is this machine: give it one, \
         as in --node NAME=HOST"
    )]
    NodeName(String),
    /// Two nodes have one name.
    #[error("Two nodes would be {0:?}: name them, as in --node {0}-1=HOST --node {0}-2=HOST")]
    NodeTwice(String),
    /// Somebody else's replica has the name of a node's.
    #[error(
        "The node {node} would be the replica {replica}, and there is one already, which is \
         {}: name the node differently, or end that by `vmlab replica down {replica}`",
        state.word()
    )]
    NodeTaken {
        /// The node.
        node: String,
        /// The replica.
        replica: String,
        /// What state it is in.
        state: replica::ReplicaState,
    },
    /// Too many nodes.
    #[error("A cluster has at most {most} nodes beside this machine")]
    Nodes {
        /// The most.
        most: usize,
    },
    /// A further node is not there.
    #[error("The node {node} did not come up: {said}")]
    Node {
        /// Its name.
        node: String,
        /// Why.
        said: String,
    },
    /// What stands in the place of the name can't be read.
    #[error(
        "{path} can't be read, of a cluster that a later vmlab made, it seems: end it with that \
         one, or give another --name"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
    /// Namespaces, cgroups and mounts are root's.
    #[error("A cluster needs root: it has namespaces, cgroups and mounts of its own")]
    NotRoot,
    /// Kubernetes' programs are not there.
    #[error("There is no {program} in {folder}: scripts/get-kube of vmlab's source builds all")]
    NoProgram {
        /// The first that is missing.
        program: &'static str,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// KubeVirt is not there.
    #[error("There is no {file}: scripts/get-kube --kubevirt of vmlab's source makes it")]
    NoKubeVirt {
        /// The first file that is missing.
        file: PathBuf,
    },
    /// A program of the system's is missing.
    #[error("There is no {program}: apt-get install {package}")]
    NotInstalled {
        /// The program.
        program: String,
        /// Debian's package with it.
        package: &'static str,
    },
    /// A program does not tell its version.
    #[error("Cannot run {program} --version: {said}")]
    NoVersion {
        /// The program.
        program: PathBuf,
        /// Why, or what it said.
        said: String,
    },
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder can't hold a cluster.
    #[error(
        "{folder} can't hold a cluster: its path has at most 80 bytes and is not below /run, \
         /var/lib or /var/log; set XDG_STATE_HOME to another folder"
    )]
    Folder {
        /// The cluster's folder.
        folder: PathBuf,
    },
    /// This vmlab can't be named.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// Namespaces can't be made.
    #[error("Cannot start the keeper of the cluster in namespaces of its own: {said}")]
    Keeper {
        /// What it or the system said.
        said: String,
    },
    /// Something did not come up; the end of its log is in it.
    #[error("{said}")]
    NotUp {
        /// What, and the end of its log.
        said: String,
    },
    /// Interrupted.
    #[error("Interrupted")]
    Cancelled,
}
