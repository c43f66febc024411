//! The clusters that there are: a folder each, which outlives the command that made it.
//!
//! `$XDG_STATE_HOME/vmlab/clusters/<name>` (else below `~/.local/state`) holds
//! `cluster.json` ([`ClusterManifest`]), keys and certificates, what the servers keep, and their logs.
//! The keeper is told by its process id together with its start and the machine's boot, so
//! that another process of that number is never mistaken for it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use host::owner::{self, Owner};
use host::state_dir::{FileError, KeptKind, kept, one_of, user_state_dir};
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::error::{DownError, FindError, LoadError};
use crate::image::{CONTAINERD, IMAGES};
use crate::kubevirt::KubeVirtRequest;
use crate::made_node::MadeNode;
use crate::node::NODE_NAME;
use crate::node_session;
use crate::state::ClusterState;
use crate::status::{ClusterStatus, KeeperReport};

pub(crate) const MADE: &str = "cluster.json";
/// The administrator's way in, from this machine.
pub(crate) const KUBECONFIG: &str = "kubeconfig";
/// Where the keeper tells how all are.
pub(crate) const KEEPER: &str = "keeper.sock";
/// Where the keeper leads further nodes to the API server.
pub(crate) const API_SOCKET: &str = "api.sock";
/// The image of a pod's sandbox.
pub(crate) const PAUSE: &str = "pause.tar";

/// How long the keeper may take to end, and with it all of the cluster.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(10);
/// How long the keeper may take to ask everybody.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// No report is larger.
const MAX_REPORT_BYTES: u64 = 1 << 20;

/// How a cluster came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterManifest {
    /// Version of this format.
    pub format: u32,
    /// The vmlab that made it.
    pub vmlab: String,
    /// Kubernetes' programs.
    pub programs: PathBuf,
    /// The plugins for pods' networks.
    pub cni: PathBuf,
    /// What each program says of its version.
    pub versions: BTreeMap<String, String>,
    /// Where containerd unpacks images: `overlayfs`, `native`.
    pub snapshotter: String,
    /// The cgroup of its servers and pods, in every hierarchy.
    pub cgroup: String,
    /// KubeVirt, if it is in it.
    #[serde(default)]
    pub kubevirt: Option<KubeVirtRequest>,
    /// Its further nodes, in the order in which they are started.
    #[serde(default)]
    pub nodes: Vec<MadeNode>,
    /// When it was made, seconds since the Unix epoch.
    pub made_unix_s: u64,
    /// The vmlab that starts it.
    pub starter: Owner,
    /// What made the namespaces; it ends with the keeper.
    pub holder: Option<Owner>,
    /// The first process in the namespaces, once it runs.
    pub keeper: Option<Owner>,
    /// The port of this machine's loopback that leads to the API server.
    pub port: Option<u16>,
    /// From its start until the node was ready, seconds; absent before.
    pub ready_s: Option<f64>,
}

impl ClusterManifest {
    /// The version that is written.
    ///
    /// 2: it may have further nodes.
    pub(crate) const FORMAT: u32 = 2;
}

/// A cluster that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalCluster {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// How it came to be.
    pub made: ClusterManifest,
}

/// The folder of all clusters of this user.
#[must_use]
pub fn folder() -> PathBuf {
    user_state_dir().unwrap_or_else(|| PathBuf::from("/var/tmp/vmlab")).join("clusters")
}

const KIND: KeptKind = KeptKind {
    one: "cluster",
    several: "clusters",
    list: "vmlab cluster status",
    make: "vmlab cluster up",
};

/// All clusters of this user, by name.
///
/// # Errors
/// [`FindError::Read`].
pub fn list() -> Result<Vec<LocalCluster>, FindError> {
    list_in(&folder())
}

fn list_in(root: &Path) -> Result<Vec<LocalCluster>, FindError> {
    let all = kept(root, MADE).map_err(FileError::of("read", root))?.into_iter();
    let all =
        all.filter(|(_, _, made): &(_, _, ClusterManifest)| made.format <= ClusterManifest::FORMAT);
    Ok(all.map(|(name, folder, made)| LocalCluster { name, folder, made }).collect())
}

/// The cluster of that name, or the only one if none is given; whatever its state.
///
/// # Errors
/// [`FindError`] says which there are.
pub fn find(name: Option<&str>) -> Result<LocalCluster, FindError> {
    one_of(KIND, list()?, name, |cluster| &cluster.name).map_err(FindError::from)
}

impl LocalCluster {
    /// The cluster of a folder that this vmlab has made.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        list_in(folder.parent()?).ok()?.into_iter().find(|one| one.folder == folder)
    }

    /// Whether it can be used.
    #[must_use]
    pub fn state(&self) -> ClusterState {
        let runs = self.made.keeper.as_ref().is_some_and(Owner::is_alive);
        match self.made.ready_s {
            Some(_) if runs => ClusterState::Up,
            None if self.made.starter.is_alive() => ClusterState::Starting,
            _ => ClusterState::Dead,
        }
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join(KUBECONFIG)
    }

    /// The API server, from this machine; `None` before it was started.
    #[must_use]
    pub fn server(&self) -> Option<String> {
        self.made.port.map(|port| format!("https://127.0.0.1:{port}"))
    }

    /// How it is, as its keeper tells.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        let state = self.state();
        let (report, unanswered) = match state {
            ClusterState::Up => match self.ask_keeper() {
                Ok(report) => (report, None),
                Err(error) => {
                    (KeeperReport::default(), Some(format!("its keeper does not answer: {error}")))
                }
            },
            _ => (KeeperReport::default(), None),
        };
        let mut nodes = report.nodes;
        for node in &mut nodes {
            let Some(further) = self.made.nodes.iter().find(|one| one.name == node.name) else {
                continue;
            };
            node.replica = Some(further.replica.clone());
            // The API server believes a kubelet for a while that it hears no more of.
            if let Some(why) = further.is_lost() {
                node.ready = false;
                node.reason = Some(why);
            }
        }
        let shown = |path: PathBuf| path.display().to_string();
        let up = state == ClusterState::Up;
        ClusterStatus {
            name: self.name.clone(),
            state,
            kubernetes: self.made.versions.get("kube-apiserver").cloned().unwrap_or_default(),
            server: self.server().filter(|_| up),
            kubeconfig: up.then(|| shown(self.kubeconfig())),
            folder: shown(self.folder.clone()),
            cgroup: self.made.cgroup.clone(),
            ready_s: self.made.ready_s,
            components: report.components,
            nodes,
            kubevirt: report.kubevirt,
            unanswered,
        }
    }

    pub(crate) fn ask_keeper(&self) -> io::Result<KeeperReport> {
        let stream = UnixStream::connect(self.folder.join(KEEPER))?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        let mut text = Vec::new();
        stream.take(MAX_REPORT_BYTES).read_to_end(&mut text)?;
        serde_json::from_slice(&text).map_err(io::Error::from)
    }

    /// Gives its nodes, or the one that is named, the images of an archive (OCI's or
    /// docker's); what was loaded, in ctr's words.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(
        &self,
        archive: &Path,
        node: Option<&str>,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<String>, LoadError> {
        let state = self.state();
        if state != ClusterState::Up {
            return Err(LoadError::NotUp { name: self.name.clone(), state });
        }
        let wants = |name: &str| node.is_none_or(|node| node == name);
        let further: Vec<&MadeNode> =
            self.made.nodes.iter().filter(|further| wants(&further.name)).collect();
        if !wants(NODE_NAME) && further.is_empty() {
            let names = self.made.nodes.iter().map(|further| further.name.as_str());
            let there: Vec<&str> = [NODE_NAME].into_iter().chain(names).collect();
            let node = node.unwrap_or_default().to_owned();
            return Err(LoadError::NoNode { node, there: there.join(", ") });
        }
        let mut said = Vec::new();
        if wants(NODE_NAME) {
            said.extend(load(&self.folder, &self.made.snapshotter, archive)?);
        }
        for node in further {
            let loaded = node_session::load(node, archive, is_cancelled)?;
            said.extend(loaded.into_iter().map(|line| format!("{}: {line}", node.name)));
        }
        Ok(said)
    }

    /// Ends it and removes all that is left of it: its further nodes, processes, cgroups, its
    /// folder.
    ///
    /// # Errors
    /// [`DownError`].
    pub fn down(&self) -> Result<(), DownError> {
        for node in self.made.nodes.iter().filter(|node| node.begun) {
            if let Some(connection) = &node.connection {
                owner::end_kept(connection, END_LIMIT)?;
            }
            match replica::find(Some(&node.replica)) {
                Ok(replica) => replica.down()?,
                // Somebody has ended it before, or it failed at its very beginning.
                Err(replica::ReplicaFindError::NotOne(_)) => {}
                Err(error) => return Err(DownError::Find(error)),
            }
        }
        // The kernel ends everybody in the namespaces before the keeper is gone.
        for process in [&self.made.keeper, &self.made.holder].into_iter().flatten() {
            owner::end_kept(process, END_LIMIT)?;
        }
        cgroup::remove(&self.made.cgroup)?;
        let removed = fs::remove_dir_all(&self.folder);
        Ok(removed.map_err(FileError::of("remove", &self.folder))?)
    }

    /// Makes the folder of a new cluster; fails if there is one of that name.
    pub(crate) fn create(name: &str, made: ClusterManifest) -> io::Result<Self> {
        let root = folder();
        DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        let folder = root.join(name);
        DirBuilder::new().mode(0o700).create(&folder)?;
        let cluster = Self { name: name.to_owned(), folder, made };
        cluster.save()?;
        Ok(cluster)
    }

    /// Writes `cluster.json`, whose folder an error names.
    pub(crate) fn note(&self) -> Result<(), FileError> {
        self.save().map_err(FileError::of("write", &self.folder))
    }

    /// Writes `cluster.json`.
    pub(crate) fn save(&self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.made).map_err(io::Error::from)? + "\n";
        let unfinished = self.folder.join(".cluster.json");
        fs::write(&unfinished, text)?;
        fs::rename(unfinished, self.folder.join(MADE))
    }
}

/// Gives the containerd of a cluster's folder the images of an archive.
pub(crate) fn load(
    folder: &Path,
    snapshotter: &str,
    archive: &Path,
) -> Result<Vec<String>, LoadError> {
    // ctr's own word of a file that is not there names no file.
    fs::File::open(archive).map_err(FileError::of("read", archive))?;
    let refused = |said: String| LoadError::Refused { path: archive.to_owned(), said };
    let output = Command::new("ctr")
        .arg("--address")
        .arg(folder.join(CONTAINERD))
        .args(["--namespace", IMAGES, "images", "import", "--snapshotter", snapshotter])
        .arg(archive)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| refused(error.to_string()))?;
    if !output.status.success() {
        return Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().map(str::to_owned).collect())
}

/// Writes a file that only this user may read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file =
        fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> ClusterManifest {
        let me = Owner::current("cluster").unwrap();
        ClusterManifest {
            format: ClusterManifest::FORMAT,
            vmlab: "0".to_owned(),
            programs: PathBuf::from("/none"),
            cni: PathBuf::from("/none"),
            versions: BTreeMap::new(),
            snapshotter: "native".to_owned(),
            cgroup: "vmlab-none".to_owned(),
            kubevirt: None,
            nodes: Vec::new(),
            made_unix_s: 1,
            starter: Owner { boot_id: "of an earlier boot".to_owned(), ..me },
            holder: None,
            keeper: None,
            port: None,
            ready_s: None,
        }
    }

    #[test]
    fn a_cluster_is_as_alive_as_its_keeper() {
        let me = Owner::current("cluster").unwrap();
        let mut cluster =
            LocalCluster { name: "a".to_owned(), folder: PathBuf::from("/none"), made: made() };
        assert_eq!(cluster.state(), ClusterState::Dead);
        cluster.made.keeper = Some(me.clone());
        assert_eq!(cluster.state(), ClusterState::Dead, "nobody waits for it");
        cluster.made.starter = me.clone();
        assert_eq!(cluster.state(), ClusterState::Starting);
        cluster.made.ready_s = Some(1.0);
        cluster.made.port = Some(6443);
        assert_eq!(cluster.state(), ClusterState::Up);
        assert_eq!(cluster.status().server.as_deref(), Some("https://127.0.0.1:6443"));
        assert!(cluster.status().unanswered.is_some(), "it has no socket");
        assert!(!cluster.status().is_well());
        cluster.made.keeper.as_mut().unwrap().starttime_ticks += 1;
        assert_eq!(cluster.state(), ClusterState::Dead, "another process of that number");
        let error = cluster.load(Path::new("/none"), None, &|| false).unwrap_err();
        assert!(error.to_string().contains("is dead"), "{error}");
    }

    #[test]
    fn what_is_no_cluster_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        assert!(list_in(&root.path().join("none")).unwrap().is_empty());
        for name in ["torn", "empty", "b", "a"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        fs::write(root.path().join("torn").join(MADE), "{").unwrap();
        // A later vmlab's is that one's to end.
        let later = ClusterManifest { format: ClusterManifest::FORMAT + 1, ..made() };
        let folder = root.path().join("empty");
        LocalCluster { name: "empty".to_owned(), folder, made: later }.save().unwrap();
        for name in ["a", "b"] {
            let folder = root.path().join(name);
            LocalCluster { name: name.to_owned(), folder, made: made() }.save().unwrap();
        }
        let found = list_in(root.path()).unwrap();
        let names: Vec<&str> = found.iter().map(|cluster| cluster.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        // Nobody runs: its folder is all that there is to remove.
        found[0].down().unwrap();
        assert!(!found[0].folder.exists() && found[1].folder.exists());
    }
}
