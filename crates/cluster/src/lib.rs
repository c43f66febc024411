//! What a Kubernetes cluster with KubeVirt tells of its nodes and VMs, read through its
//! API: node objects, the kubelets' settings, the KubeVirt object, VMs and what runs.
//!
//! [`read`] reads, and writes nothing. [`READS`] is the table of what it asks for;
//! [`role`] says it as a ClusterRole. What may not be read is named in
//! [`ClusterFacts::unread`] and the rest is read all the same, unless nothing can be said
//! without it.
//!
//! [`Instance`] is a VM that vmlab itself creates there, reaches by its guest agent and
//! deletes ([`role_of_runs`]); [`InstanceLocation`] says where it is, beside what was predicted.
//! [`NodeRun`] is a study on a node, in the pod of a Job ([`role_of_jobs`]). [`marked`] finds
//! what dead runs left.
//!
//! Lists come in pages, and of each page only what is needed is kept, so that ten thousand
//! VMs take some hundred megabytes at most.

mod agent;
mod api;
mod error;
mod events;
mod exec;
mod instance;
mod job;
mod kind;
mod left;
mod machine_config;
mod made;
mod node;
mod node_run;
mod object;
mod placed;
mod pod;
mod read;
mod refusal;
mod resource;
mod session;
mod survey;

pub use api::ClusterTarget;
pub use error::{ClusterError, UnreadResource};
pub use events::KubeEvent;
pub use instance::{Instance, condition_lines, phases_s};
pub use job::{JobSpec, KvmAccess, WORK, manifest};
pub use left::{
    MACHINE_ANNOTATION, MANAGED_BY, MarkedKind, MarkedObject, OWNER_ANNOTATION, RUN_LABEL, marked,
};
pub use machine_config::{MachineConfigState, NodeBoot};
pub use node::ClusterNode;
pub use node_run::{NodeFailure, NodeFile, NodeRun};
pub use object::ClusterObject;
pub use placed::{Forecast, InstanceLocation};
pub use pod::GuaranteedPod;
pub use read::{ClusterFacts, read};
pub use refusal::{ClusterFailure, Refusal};
pub use resource::{
    READS, RIGHTS_OF_JOBS, RIGHTS_OF_RUNS, ResourceKind, Right, RoleSubject, role, role_of_jobs,
    role_of_runs,
};
pub use survey::{ClusterSurvey, NodesSurvey, survey, survey_nodes};
