//! What a Kubernetes cluster with KubeVirt tells of its nodes and VMs, read through its
//! API: node objects, the kubelets' settings, the KubeVirt object, VMs and what runs.
//!
//! Everything is read, nothing is written. [`READS`] is the table of what is asked for;
//! [`role`] says it as a ClusterRole. What may not be read is named in
//! [`ClusterFacts::unread`] and the rest is read all the same, unless nothing can be said
//! without it.
//!
//! Lists come in pages, and of each page only what is needed is kept, so that ten thousand
//! VMs take some hundred megabytes at most.

mod api;
mod error;
mod node;
mod object;
mod pod;
mod read;
mod resource;

pub use api::ClusterTarget;
pub use error::{ClusterError, Unread};
pub use node::ClusterNode;
pub use object::ClusterObject;
pub use pod::ExclusivePod;
pub use read::{ClusterFacts, read};
pub use resource::{READS, Read, RoleSubject, role};
