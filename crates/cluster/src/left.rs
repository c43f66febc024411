//! Objects of vmlab's own: how they are marked, and those that dead runs left.

use guest::Cancel;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::{ClusterTarget, ListError};
use crate::error::ClusterError;
use crate::kind::{INSTANCE, JOB, MadeKind};
use crate::made::OwnedObject;
use crate::session::Session;

/// The label of all objects of vmlab's, and its value.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "vmlab");
/// The label with the id of their run.
pub const RUN_LABEL: &str = "vmlab/run";
/// The annotation with whose they are, as JSON.
pub const OWNER_ANNOTATION: &str = "vmlab/owner";
/// The annotation with the machine on which that vmlab ran.
pub const MACHINE_ANNOTATION: &str = "vmlab/machine";

/// Of what kind objects are that dead runs may have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkedKind {
    /// VMs of `--on kubevirt`.
    Instance,
    /// Jobs of `--on k8s`.
    Job,
}

impl MarkedKind {
    fn made(self) -> &'static MadeKind {
        match self {
            Self::Instance => &INSTANCE,
            Self::Job => &JOB,
        }
    }

    /// As Kubernetes calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.made().read.kind
    }
}

/// An object with vmlab's label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedObject {
    /// What it is.
    pub kind: MarkedKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// By which it is meant: a name may come again.
    uid: String,
    /// Whose it is, as JSON.
    pub owner: String,
    /// The machine on which that vmlab runs, or ran.
    pub machine: String,
}

#[derive(Deserialize)]
struct Object {
    metadata: LeftMetadata,
}

#[derive(Deserialize)]
struct LeftMetadata {
    #[serde(default)]
    namespace: String,
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

/// The objects in a cluster that bear vmlab's label; of all namespaces, if the target
/// names none.
///
/// # Errors
/// [`ClusterError`].
pub fn marked(target: &ClusterTarget, kind: MarkedKind) -> Result<Vec<MarkedObject>, ClusterError> {
    let session = Session::connect(target)?;
    let each = |item: &RawValue| {
        let mut metadata = serde_json::from_str::<Object>(item.get())?.metadata;
        let (label, value) = MANAGED_BY;
        if metadata.labels.get(label).map(String::as_str) != Some(value) {
            return Ok(None);
        }
        let mut said = |name: &str| metadata.annotations.remove(name).unwrap_or_default();
        let (owner, machine) = (said(OWNER_ANNOTATION), said(MACHINE_ANNOTATION));
        let LeftMetadata { namespace, name, uid, .. } = metadata;
        Ok(Some(MarkedObject { kind, namespace, name, uid, owner, machine }))
    };
    let namespace = target.namespace.as_deref();
    let until = std::time::Instant::now() + crate::session::PATIENCE;
    let list = session.wait(until, &Cancel::new(), async {
        session.api.list(&kind.made().read, namespace, each, &mut |_| {}).await
    });
    let server = session.api.server.clone();
    match list {
        Ok(Some(Ok(found))) => Ok(found.unwrap_or_default()),
        Ok(Some(Err(ListError::Unread(unread)))) => Err(ClusterError::Needed(unread)),
        Ok(Some(Err(ListError::Whole(error)))) => Err(error),
        Ok(None) | Err(_) => {
            Err(ClusterError::Unreachable { server, reason: "no answer in time".to_owned() })
        }
    }
}

impl MarkedObject {
    /// Deletes it, and waits until nothing of it is left.
    ///
    /// # Errors
    /// What the cluster said.
    pub fn delete(&self, target: &ClusterTarget) -> Result<(), String> {
        let session = Session::connect(target).map_err(|error| error.to_string())?;
        OwnedObject::adopt(session, self.kind.made(), &self.namespace, &self.name, &self.uid)
            .delete()
    }
}
