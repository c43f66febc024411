//! Instances that dead runs left in clusters.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use ::cluster::{ClusterTarget, MarkedInstance, marked};
use host::owner::Owner;
use serde::{Deserialize, Serialize};

use crate::terminal;

/// Where the instances of a run are, as its runtime folder tells it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunInCluster {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    namespace: Option<String>,
    run_id: String,
}

impl RunInCluster {
    /// The file in the folder.
    pub(super) const FILE: &str = "kubevirt.json";

    pub(super) fn new(target: &ClusterTarget, owner: &Owner) -> Self {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        // A list of files is left to whoever cleans.
        let from_environment = || {
            let named = PathBuf::from(env::var_os("KUBECONFIG")?);
            named.is_file().then_some(named)
        };
        Self {
            kubeconfig: target.kubeconfig.clone().or_else(from_environment).map(absolute),
            context: target.context.clone(),
            namespace: target.namespace.clone(),
            run_id: owner.run_id.clone(),
        }
    }
}

/// Which machine this is, for owners that name a process of it.
pub(super) fn machine_name() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{name} {}", id.trim()).trim().to_owned()
}

/// The instances that the dead run whose runtime folder this is left, deleted, or only
/// named; a sentence each, and whether some may be left.
pub(crate) fn in_folder(folder: &Path, end: bool) -> (Vec<String>, bool) {
    let Ok(text) = fs::read_to_string(folder.join(RunInCluster::FILE)) else {
        return (Vec::new(), false);
    };
    let run: RunInCluster = match serde_json::from_str(&text) {
        Ok(run) => run,
        // It was killed while it wrote: there is no instance yet.
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
    ended(&target, end, |owner| owner.run_id == run.run_id)
}

/// The same in a cluster that is named: what any dead run of this machine left.
pub(crate) fn in_cluster(target: &ClusterTarget, end: bool) -> (Vec<String>, bool) {
    ended(target, end, |_| true)
}

/// What the dead sessions of one run left.
pub(crate) fn end_run(target: &ClusterTarget, run_id: &str) -> Vec<String> {
    ended(target, true, |owner| owner.run_id == run_id).0
}

fn ended(
    target: &ClusterTarget,
    end: bool,
    wanted: impl Fn(&Owner) -> bool,
) -> (Vec<String>, bool) {
    let found = match marked(target) {
        Ok(found) => found,
        Err(error) => return (vec![terminal::error_text(&error.into())], true),
    };
    let (mut lines, mut failed) = (Vec::new(), false);
    let here = machine_name();
    for instance in found {
        let MarkedInstance { namespace, name, owner, machine, .. } = &instance;
        // Whether another machine's process lives can't be seen from here.
        let Some(owner) = serde_json::from_str::<Owner>(owner).ok().filter(|_| *machine == here)
        else {
            continue;
        };
        if owner.is_alive() || !wanted(&owner) {
            continue;
        }
        let what = format!("VirtualMachineInstance {namespace}/{name} of run {}", owner.run_id);
        if !end {
            lines.push(format!("would delete {what}"));
            continue;
        }
        match instance.delete(target) {
            Ok(()) => lines.push(format!("deleted {what}")),
            Err(error) => {
                failed = true;
                lines.push(format!("cannot delete {what}: {error}"));
            }
        }
    }
    (lines, failed)
}
