//! What dead runs left in clusters: instances of KubeVirt's, and Jobs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use ::cluster::{ClusterTarget, MarkedKind, MarkedObject, marked};
use anyhow::Context as _;
use host::owner::Owner;
use serde::{Deserialize, Serialize};

use crate::terminal;

/// Where the objects of a run are, as its runtime folder tells it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunInCluster {
    // Runs of before there were Jobs do not say it.
    #[serde(with = "kind_name", default = "kind_name::first")]
    kind: MarkedKind,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    namespace: Option<String>,
    run_id: String,
}

impl RunInCluster {
    /// The file in the folder.
    const FILE: &str = "in-cluster.json";
    /// Its name while it was KubeVirt's alone.
    const FORMER_FILE: &str = "kubevirt.json";

    /// The text in a runtime folder.
    fn text(folder: &Path) -> Option<String> {
        let read = |name| fs::read_to_string(folder.join(name)).ok();
        read(Self::FILE).or_else(|| read(Self::FORMER_FILE))
    }

    pub(crate) fn new(target: &ClusterTarget, owner: &Owner, kind: MarkedKind) -> Self {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        // A list of files is left to whoever cleans.
        let from_environment = || {
            let named = PathBuf::from(env::var_os("KUBECONFIG")?);
            named.is_file().then_some(named)
        };
        Self {
            kind,
            kubeconfig: target.kubeconfig.clone().or_else(from_environment).map(absolute),
            context: target.context.clone(),
            namespace: target.namespace.clone(),
            run_id: owner.run_id.clone(),
        }
    }

    /// Writes it down for `vmlab clean`.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(Self::FILE);
        let text = serde_json::to_string(self)?;
        fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))
    }
}

/// A kind by the name that Kubernetes has for it.
mod kind_name {
    use ::cluster::MarkedKind;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn first() -> MarkedKind {
        MarkedKind::Instance
    }

    pub(super) fn serialize<S: Serializer>(kind: &MarkedKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(kind.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<MarkedKind, D::Error> {
        let name = String::deserialize(from)?;
        let mut all = [MarkedKind::Instance, MarkedKind::Job].into_iter();
        all.find(|kind| kind.name() == name)
            .ok_or_else(|| D::Error::custom(format!("{name:?} is no kind of vmlab's")))
    }
}

/// Which machine this is, for owners that name a process of it.
pub(crate) fn machine_name() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{name} {}", id.trim()).trim().to_owned()
}

/// The objects that the dead run whose runtime folder this is left, deleted, or only
/// named; a sentence each, and whether some may be left.
pub(crate) fn in_folder(folder: &Path, end: bool) -> (Vec<String>, bool) {
    let Some(text) = RunInCluster::text(folder) else { return (Vec::new(), false) };
    let run: RunInCluster = match serde_json::from_str(&text) {
        Ok(run) => run,
        // It was killed while it wrote: there is no object yet.
        Err(_) => return (Vec::new(), false),
    };
    if let Some(file) = run.kubeconfig.as_ref().filter(|file| !file.exists()) {
        let (file, run) = (file.display(), &run.run_id);
        let what = format!("the cluster of run {run} is not known any more: {file} is gone");
        return (vec![what], false);
    }
    let target = ClusterTarget {
        kubeconfig: run.kubeconfig,
        context: run.context,
        namespace: run.namespace,
    };
    ended(&target, run.kind, end, |owner| owner.run_id == run.run_id)
}

/// The same in a cluster that is named: what any dead run of this machine left.
pub(crate) fn in_cluster(
    target: &ClusterTarget,
    kind: MarkedKind,
    end: bool,
) -> (Vec<String>, bool) {
    ended(target, kind, end, |_| true)
}

/// What the dead sessions of one run left.
pub(crate) fn end_run(target: &ClusterTarget, run_id: &str) -> Vec<String> {
    ended(target, MarkedKind::Instance, true, |owner| owner.run_id == run_id).0
}

fn ended(
    target: &ClusterTarget,
    kind: MarkedKind,
    end: bool,
    wanted: impl Fn(&Owner) -> bool,
) -> (Vec<String>, bool) {
    let found = match marked(target, kind) {
        Ok(found) => found,
        Err(error) => return (vec![terminal::error_text(&error.into())], true),
    };
    let (mut lines, mut failed) = (Vec::new(), false);
    let here = machine_name();
    for object in found {
        let MarkedObject { namespace, name, owner, machine, .. } = &object;
        // Whether another machine's process lives can't be seen from here.
        let Some(owner) = serde_json::from_str::<Owner>(owner).ok().filter(|_| *machine == here)
        else {
            continue;
        };
        if owner.is_alive() || !wanted(&owner) {
            continue;
        }
        let what = format!("{} {namespace}/{name} of run {}", kind.name(), owner.run_id);
        if !end {
            lines.push(format!("would delete {what}"));
            continue;
        }
        match object.delete(target) {
            Ok(()) => lines.push(format!("deleted {what}")),
            Err(error) => {
                failed = true;
                lines.push(format!("cannot delete {what}: {error}"));
            }
        }
    }
    (lines, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_vmlab_left_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"kubeconfig":null,"context":"lab","namespace":"a","run_id":"r1"}"#;
        fs::write(folder.path().join("kubevirt.json"), text).unwrap();
        let run: RunInCluster =
            serde_json::from_str(&RunInCluster::text(folder.path()).unwrap()).unwrap();
        assert_eq!((run.kind, run.run_id.as_str()), (MarkedKind::Instance, "r1"));
        assert!(in_folder(tempfile::tempdir().unwrap().path(), false).0.is_empty());
    }
}
