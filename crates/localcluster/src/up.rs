//! Starting a cluster, from outside its namespaces.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use host::owner::{self, OWNER_VARIABLE, Owner, RUN_VARIABLE};
use ring::digest::{SHA256, digest};

use crate::authority;
use crate::component::{KUBELET_MORE, KUBELET_OF_USER};
use crate::error::UpError;
use crate::keeper::{KEEP, KeeperWord};
use crate::kubevirt::{self, ARCHIVES, KubeVirtRequest, OPERATOR};
use crate::made_node::{MOST_FURTHER, MadeNode};
use crate::node::{HIDDEN, NODE_NAME};
use crate::programs::KubePrograms;
use crate::replica_node::{self, NodeRequest, VMS_LIMIT};
use crate::state::ClusterState;
use crate::status::{ComponentState, ComponentStatus};
use crate::store::{
    ClusterManifest, END_LIMIT, KUBECONFIG, LocalCluster, MADE, find, folder, write_private,
};
use host::state_dir::FileError;

/// The longest path of a cluster's folder: Unix sockets in it have at most 107 bytes.
const LONGEST_FOLDER: usize = 80;
/// How long a read waits before it is looked whether all was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);
/// How long KubeVirt may take on this machine alone.
const KUBEVIRT_LIMIT: Duration = Duration::from_secs(300);
/// How often it is asked how far it is.
const LOOK: Duration = Duration::from_millis(200);
/// What the keeper itself says.
const KEEPER_LOG: &str = "keeper.log";
/// `f_type` of an overlay, which can't be below another one.
const OVERLAYFS: rustix::fs::FsWord = 0x794c_7630;

/// A cluster that is wanted.
#[derive(Debug)]
pub struct UpRequest<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is made of.
    pub programs: &'a KubePrograms,
    /// A file with further settings of the kubelet (KubeletConfiguration).
    pub kubelet: Option<&'a Path>,
    /// KubeVirt, if it is to be in it.
    pub kubevirt: Option<KubeVirtRequest>,
    /// Further nodes, in the order in which they are started.
    pub nodes: &'a [NodeRequest<'a>],
    /// The vmlab that keeps it, and the words by which that one runs [`crate::keep`] with
    /// the folder that comes last.
    pub keeper: (&'a Path, &'a [&'a str]),
}

/// Starts a cluster and waits until its node takes pods. `say` hears what takes time. If
/// anything fails, nothing is left.
///
/// # Errors
/// [`UpError`] says what to do next.
pub fn up(
    wanted: &UpRequest<'_>,
    is_cancelled: &(dyn Fn() -> bool + Sync),
    say: &mut dyn FnMut(&str),
) -> Result<LocalCluster, UpError> {
    check_name(wanted.name)?;
    check_nodes(wanted.nodes)?;
    if !rustix::process::geteuid().is_root() {
        return Err(UpError::NotRoot);
    }
    let more = settings_of(wanted.kubelet)?;
    let of_nodes = wanted.nodes.iter().map(|node| settings_of(node.kubelet));
    let of_nodes = of_nodes.collect::<Result<Vec<_>, _>>()?;
    if wanted.kubevirt.is_some() {
        let files = ARCHIVES.iter().chain([&OPERATOR]);
        let mut paths = files.map(|name| kubevirt::file(&wanted.programs.folder, name));
        if let Some(file) = paths.find(|path| !path.is_file()) {
            return Err(UpError::NoKubeVirt { file });
        }
    }
    let began = Instant::now();
    let mut cluster = create(wanted)?;
    let result =
        start(&mut cluster, wanted, more.as_deref(), is_cancelled, say).and_then(|mut to| {
            for (at, (node, more)) in wanted.nodes.iter().zip(&of_nodes).enumerate() {
                replica_node::join(&mut cluster, at, node, more.as_deref(), is_cancelled, say)?;
            }
            if wanted.kubevirt.is_some() {
                wait_for_kubevirt(&cluster, is_cancelled, say)?;
            }
            cluster.made.ready_s = Some(began.elapsed().as_secs_f64());
            cluster.note()?;
            to.write_all(&[KEEP]).map_err(|error| UpError::Keeper { said: error.to_string() })
        });
    match result {
        Ok(()) => Ok(cluster),
        Err(error) => {
            // The first error is the one to tell; `down` can be tried again.
            let _ = cluster.down();
            Err(error)
        }
    }
}

/// What a kubelet's file says, which nobody should learn late that it is missing.
fn settings_of(file: Option<&Path>) -> Result<Option<Vec<u8>>, FileError> {
    file.map(|file| fs::read(file).map_err(FileError::of("read", file))).transpose()
}

/// A name is part of those of objects and cgroups.
fn check_name(name: &str) -> Result<(), UpError> {
    if is_name(name, 20) { Ok(()) } else { Err(UpError::Name(name.to_owned())) }
}

/// A name that an object can have, of at most so many bytes.
fn is_name(name: &str, most: usize) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= most
        && name.starts_with(plain)
        && name.ends_with(plain)
        && name.chars().all(|c| plain(c) || c == '-')
}

/// A node's name is part of its replica's, behind the cluster's.
fn check_nodes(nodes: &[NodeRequest<'_>]) -> Result<(), UpError> {
    if nodes.len() > MOST_FURTHER {
        return Err(UpError::Nodes { most: MOST_FURTHER });
    }
    let mut seen = BTreeSet::new();
    for NodeRequest { name, .. } in nodes {
        if !is_name(name, 19) || *name == NODE_NAME {
            return Err(UpError::NodeName((*name).to_owned()));
        }
        if !seen.insert(*name) {
            return Err(UpError::NodeTwice((*name).to_owned()));
        }
    }
    Ok(())
}

/// Takes the name: a dead cluster of it makes room, a living one does not.
fn create(wanted: &UpRequest<'_>) -> Result<LocalCluster, UpError> {
    let path = folder().join(wanted.name);
    if path.as_os_str().len() > LONGEST_FOLDER || HIDDEN.iter().any(|place| path.starts_with(place))
    {
        return Err(UpError::Folder { folder: path });
    }
    match find(Some(wanted.name)) {
        Ok(old) if old.state() == ClusterState::Dead => {
            // If it can't be removed, the name stays taken, which is said below.
            let _ = old.down();
        }
        Ok(old) => return Err(UpError::Exists { name: old.name.clone(), state: old.state() }),
        // A later vmlab's, which may run: not this one's to remove.
        Err(_) if path.join(MADE).exists() => {
            return Err(UpError::Unreadable { path: path.join(MADE) });
        }
        // What was killed at its very beginning.
        Err(_) => drop(fs::remove_dir_all(&path)),
    }
    let nodes: Vec<MadeNode> = wanted
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(at, node)| MadeNode::at(at, node.name, wanted.name))
        .collect();
    nodes.iter().try_for_each(MadeNode::check_free)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let made = ClusterManifest {
        format: ClusterManifest::FORMAT,
        vmlab: env!("CARGO_PKG_VERSION").to_owned(),
        programs: wanted.programs.folder.clone(),
        cni: wanted.programs.cni.clone(),
        versions: wanted.programs.versions.clone(),
        snapshotter: String::new(),
        cgroup: cgroup_name(wanted.name, &path),
        kubevirt: wanted.kubevirt.clone(),
        nodes,
        made_unix_s: since.as_secs(),
        starter: Owner::current("cluster")?,
        holder: None,
        keeper: None,
        port: None,
        ready_s: None,
    };
    let mut cluster =
        LocalCluster::create(wanted.name, made).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => {
                UpError::Exists { name: wanted.name.to_owned(), state: ClusterState::Starting }
            }
            _ => UpError::File(FileError::of("make", &path)(source)),
        })?;
    cluster.made.snapshotter = snapshotter(&path).to_owned();
    Ok(cluster)
}

/// Users have the same names for their clusters, and one tree of cgroups.
fn cgroup_name(name: &str, folder: &Path) -> String {
    let hash = digest(&SHA256, folder.as_os_str().as_encoded_bytes());
    let hex: String = hash.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("vmlab-cluster-{name}-{hex}")
}

/// Layers of images lie over each other where this file system can be below an overlay,
/// else they are copied.
fn snapshotter(folder: &Path) -> &'static str {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_overlay = known.lines().any(|line| line.split_whitespace().last() == Some("overlay"));
    let is_overlay = rustix::fs::statfs(folder).is_ok_and(|fs| fs.f_type == OVERLAYFS);
    if has_overlay && !is_overlay { "overlayfs" } else { "native" }
}

/// Starts the keeper and follows it until the node is ready; the connection with it.
fn start(
    cluster: &mut LocalCluster,
    wanted: &UpRequest<'_>,
    more: Option<&[u8]>,
    is_cancelled: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<UnixStream, UpError> {
    let folder = cluster.folder.clone();
    if let Some(more) = more {
        let place = folder.join(KUBELET_MORE);
        fs::create_dir_all(&place).map_err(FileError::of("make", &place))?;
        let path = place.join(KUBELET_OF_USER);
        fs::write(&path, more).map_err(FileError::of("write", &path))?;
    }
    let failed = |error: io::Error| UpError::Keeper { said: error.to_string() };
    let entrance = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    cluster.made.port = Some(entrance.local_addr().map_err(failed)?.port());
    cluster.note()?;
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let log_path = folder.join(KEEPER_LOG);
    let log = File::create(&log_path).map_err(FileError::of("make", &log_path))?;
    let (program, words) = wanted.keeper;
    let mut holder = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--net", "--"])
        .arg(program)
        .args(words)
        .arg(&folder)
        .current_dir("/")
        // It outlives this vmlab on purpose: it must not carry a mark by which `vmlab
        // clean` would end it.
        .env_remove(OWNER_VARIABLE)
        .env_remove(RUN_VARIABLE)
        .stdin(Stdio::from(OwnedFd::from(entrance)))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .stderr(Stdio::from(log))
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let result = follow(cluster, &mut holder, &ours, is_cancelled, say);
    if result.is_err() {
        // What made the namespaces reaps the keeper, and ends then.
        let keeper = cluster.made.keeper.clone().or_else(|| keeper_of(&holder).ok());
        if keeper.is_none_or(|keeper| owner::end_kept(&keeper, END_LIMIT).is_err()) {
            let _ = holder.kill();
        }
        let _ = holder.wait();
    }
    result.map_err(|error| match error {
        UpError::Keeper { said } => {
            let log = fs::read_to_string(&log_path).unwrap_or_default();
            let log = log.trim();
            UpError::Keeper { said: if log.is_empty() { said } else { log.to_owned() } }
        }
        other => other,
    })?;
    let kubeconfig = folder.join(KUBECONFIG);
    let server = cluster.server().unwrap_or_default();
    let context = format!("vmlab-{}", cluster.name);
    let text = authority::kubeconfig(&folder, &context, &server, "admin")?;
    write_private(&kubeconfig, text.as_bytes()).map_err(FileError::of("write", &kubeconfig))?;
    Ok(ours)
}

fn follow(
    cluster: &mut LocalCluster,
    holder: &mut Child,
    stream: &UnixStream,
    is_cancelled: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<(), UpError> {
    let failed = |error: io::Error| UpError::Keeper { said: error.to_string() };
    stream.set_read_timeout(Some(CANCEL_CHECK)).map_err(failed)?;
    let mut lines = BufReader::new(stream.try_clone().map_err(failed)?);
    let mut line = String::new();
    loop {
        if is_cancelled() {
            return Err(UpError::Cancelled);
        }
        match lines.read_line(&mut line) {
            Ok(0) => {
                return Err(UpError::Keeper { said: "it ended without a word".to_owned() });
            }
            Ok(_) => {}
            // What has come of a line stays in it.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                continue;
            }
            Err(error) => return Err(failed(error)),
        }
        let word = serde_json::from_str(&line).map_err(|error| failed(error.into()))?;
        line.clear();
        match word {
            KeeperWord::Step(what) => {
                if cluster.made.keeper.is_none() {
                    cluster.made.holder = Some(Owner::of(holder.id(), "cluster")?);
                    cluster.made.keeper = Some(keeper_of(holder).map_err(failed)?);
                    cluster.note()?;
                }
                say(&what);
            }
            KeeperWord::Ready => return Ok(()),
            KeeperWord::Failed(said) => return Err(UpError::NotUp { said }),
        }
    }
}

/// Waits until all is there that KubeVirt's operator makes, and every node takes VMs.
fn wait_for_kubevirt(
    cluster: &LocalCluster,
    is_cancelled: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<(), UpError> {
    say("waiting for KubeVirt");
    let not_up = |said: String| UpError::NotUp { said };
    let further = &cluster.made.nodes;
    let limit = if further.is_empty() { KUBEVIRT_LIMIT } else { VMS_LIMIT };
    let began = Instant::now();
    loop {
        if is_cancelled() {
            return Err(UpError::Cancelled);
        }
        let report = cluster.ask_keeper().map_err(|error| not_up(error.to_string()))?;
        let has_ended = |one: &&ComponentStatus| one.state == ComponentState::Ended;
        if let Some(ended) = report.components.iter().find(has_ended) {
            let how = ended.reason.as_deref().unwrap_or("nobody says how");
            return Err(not_up(format!("{} has ended: {how}", ended.name)));
        }
        for node in further {
            if let Some(said) = node.is_lost() {
                return Err(UpError::Node { node: node.name.clone(), said });
            }
        }
        let kubevirt = report.kubevirt.unwrap_or_default();
        let takes_vms =
            |name: &&str| report.nodes.iter().any(|node| node.name == **name && node.takes_vms);
        let names = further.iter().map(|node| node.name.as_str());
        let takes_none = [NODE_NAME].into_iter().chain(names).find(|name| !takes_vms(name));
        if kubevirt.is_deployed() && takes_none.is_none() {
            return Ok(());
        }
        // An operator that has not begun by then is not waited for.
        let is_late =
            began.elapsed() > limit || kubevirt.phase.is_none() && began.elapsed() > KUBEVIRT_LIMIT;
        if is_late {
            let why = match (takes_none.filter(|_| kubevirt.is_deployed()), kubevirt.phase) {
                (Some(node), _) => format!("the node {node} takes no VMs"),
                (None, Some(phase)) => format!("it is {phase}"),
                (None, None) => "its operator has not begun".to_owned(),
            };
            let seconds = began.elapsed().as_secs();
            return Err(not_up(format!("KubeVirt is not there after {seconds} s: {why}")));
        }
        thread::sleep(LOOK);
    }
}

/// The only child of what made the namespaces.
fn keeper_of(holder: &Child) -> io::Result<Owner> {
    let path = PathBuf::from(format!("/proc/{0}/task/{0}/children", holder.id()));
    let children = fs::read_to_string(path)?;
    let pid = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
    let pid = pid.ok_or_else(|| io::Error::other("it has no process"))?;
    Owner::of(pid, "cluster").map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_name_of_its_own() {
        let bring_up = |_: &str| Err("not asked".to_owned());
        let node =
            |name| NodeRequest { name, kubelet: None, huge_page_bytes: 0, bring_up: &bring_up };
        assert!(check_nodes(&[]).is_ok());
        assert!(check_nodes(&[node("a"), node("b")]).is_ok());
        for (nodes, says) in [
            (vec![node("vmlab")], "which is this machine"),
            (vec![node("a_b")], "a node's name"),
            (vec![node("12345678901234567890")], "a node's name"),
            (vec![node("a"), node("b"), node("a")], "--node a-1=HOST"),
            ((0..=MOST_FURTHER).map(|_| node("a")).collect(), "at most 200 nodes"),
        ] {
            let error = check_nodes(&nodes).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn names_are_those_of_objects() {
        for good in ["lab", "a", "a-1", "12345678901234567890"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a/b", "..", "123456789012345678901", "ä"] {
            assert!(check_name(bad).unwrap_err().to_string().contains("cluster's name"), "{bad}");
        }
    }

    #[test]
    fn cgroups_of_two_users_differ() {
        let name = |folder: &str| cgroup_name("lab", Path::new(folder));
        assert!(name("/root/lab").starts_with("vmlab-cluster-lab-"));
        assert_eq!(name("/root/lab"), name("/root/lab"));
        assert_ne!(name("/root/lab"), name("/home/a/lab"));
    }
}
