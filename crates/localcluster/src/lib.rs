//! A Kubernetes cluster on this machine, of the real programs: etcd, the API server, the
//! controllers, the scheduler, containerd and a kubelet. Its first node is this machine,
//! further ones are emulated hosts ([`NodeRequest`]).
//!
//! All of it lives in namespaces of its own (processes, mounts, network), whose first
//! process is a keeper ([`keep`]). With the keeper the kernel ends all else in there, and
//! with the last process its mounts and interfaces are gone. What is outside is a folder
//! and the cgroups, both noted in the folder's `cluster.json` ([`ClusterManifest`]), so that they can
//! be removed whoever was killed.
//!
//! Further nodes are replicas, which outlive the command as the keeper does; each is
//! connected with the keeper by an ssh, and both are noted in `cluster.json`.
//!
//! The keeper has a socket of the host's loopback, through which the API server is
//! reached, and one in the folder, which tells how all are ([`ClusterStatus`]).

mod authority;
mod cgroup;
mod component;
mod error;
mod forward;
mod image;
mod keeper;
mod kubevirt;
mod made_node;
mod node;
mod node_session;
mod probe;
mod programs;
mod replica_node;
mod state;
mod status;
mod store;
mod up;

pub use error::{DownError, FindError, LoadError, UpError};
pub use keeper::keep;
pub use kubevirt::{KubeVirtRequest, KubeVirtStatus};
pub use made_node::MadeNode;
pub use programs::KubePrograms;
pub use replica_node::NodeRequest;
pub use state::ClusterState;
pub use status::{ClusterStatus, ComponentState, ComponentStatus, NodeStatus};
pub use store::{ClusterManifest, LocalCluster, find, folder, list};
pub use up::{UpRequest, up};
