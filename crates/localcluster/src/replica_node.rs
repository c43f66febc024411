//! A further node: an emulated host that is made a node of the cluster.
//!
//! Its kubelet and containerd run there; one ssh that stays is their only way out. Through
//! it the node reaches the keeper's socket in the cluster's folder, which leads to the API
//! server, and the keeper reaches the kubelet by another one. So nothing of it is on this
//! machine's network but the port of its sshd, which every replica has.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use host::owner::{OWNER_VARIABLE, Owner, RUN_VARIABLE};
use host::snapshot::DECLARED_HOST;
use remote::{Patience, SshSession, Tunnel, TunnelWay};
use replica::Replica;
use topology::{CacheKind, Host, PcpuSet};
use vmconfig::kubevirt::EMULATOR_LABEL;

use crate::authority::{self, CA, role_of_node};
use crate::component::{
    CONTAINERD_TOML, ContainerdSettings, KUBELET_KUBECONFIG, KUBELET_MORE, KUBELET_OF_USER,
    KUBELET_PORT, KUBELET_YAML, KubeletConfig, NETWORK, kubelet_args, network,
};
use crate::error::UpError;
use crate::image::CONTAINERD;
use crate::keeper::LOGS;
use crate::kubevirt::{self, OF_NODES};
use crate::made_node::MadeNode;
use crate::node::{SERVICE_ADDRESS, SERVICE_PORT};
use crate::node_session::{ANSWER_LIMIT, CancelCheck, PLACE, told, with_session};
use crate::store::{API_SOCKET, LocalCluster, PAUSE};

const START: &str = "start-node";
/// The API server, for the node.
const API_SERVER: &str = "https://127.0.0.1:6443";
/// Where Debian has the plugins for pods' networks.
const PLUGINS: &str = "/usr/lib/cni";

/// Of x86-64, and of arm64 with pages of 4 KiB.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// How long a kubelet may take until its node takes pods.
const READY_LIMIT: Duration = Duration::from_secs(600);
/// How long KubeVirt's image may take to be brought to a node, and then what KubeVirt has there
/// until the node takes VMs.
pub(crate) const VMS_LIMIT: Duration = Duration::from_secs(1800);
/// How often it is asked whether its node does.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is looked whether it still runs, which costs the emulator something.
const LOOK_INSIDE: Duration = Duration::from_secs(10);

/// A further node that is wanted.
pub struct NodeRequest<'a> {
    /// Its name.
    pub name: &'a str,
    /// A file with further settings of its kubelet (KubeletConfiguration).
    pub kubelet: Option<&'a Path>,
    /// Memory that its host sets aside in huge pages of 2 MiB, on all its memory nodes alike,
    /// bytes.
    pub huge_page_bytes: u64,
    /// Brings up the replica of this name that becomes the node, of
    /// [`guest::image::NODE`]; why not, in words.
    pub bring_up: &'a dyn Fn(&str) -> Result<Replica, String>,
}

impl std::fmt::Debug for NodeRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Brings up the node of that place, makes it one of the cluster, whose kubelet has `more`
/// settings, and waits until it takes pods. What was begun is noted in the cluster, which
/// ends it.
pub(crate) fn join(
    cluster: &mut LocalCluster,
    at: usize,
    wanted: &NodeRequest<'_>,
    more: Option<&[u8]>,
    is_cancelled: CancelCheck<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<(), UpError> {
    cluster.made.nodes[at].check_free()?;
    cluster.made.nodes[at].begun = true;
    cluster.note()?;
    let node = cluster.made.nodes[at].clone();
    let failed = |said: String| match is_cancelled() {
        true => UpError::Cancelled,
        false => UpError::Node { node: node.name.clone(), said },
    };
    say(&format!("starting the host of {}", node.name));
    let replica = (wanted.bring_up)(&node.replica).map_err(failed)?;
    with_session(&replica, is_cancelled, |session| {
        let limit = if cluster.made.kubevirt.is_some() { VMS_LIMIT } else { ANSWER_LIMIT };
        let patience = Patience::new(limit, is_cancelled);
        say(&format!("bringing its programs to {}", node.name));
        bring(cluster, &node, more, session, patience)?;
        say(&format!("starting {}", node.name));
        // It makes the addresses, too, at which the connection listens.
        start(&node, wanted.huge_page_bytes, session, patience)?;
        let (mut connection, log) = connect(cluster, &node, &replica)?;
        let joined = note(cluster, at, &connection).and_then(|()| {
            let mut is_lost = || match connection.try_wait() {
                Ok(None) => None,
                _ => Some(fs::read_to_string(&log).unwrap_or_default().trim().to_owned()),
            };
            wait(cluster, &node, session, is_cancelled, &mut is_lost)
        });
        if joined.is_err() {
            // This process alone can reap it; it may have ended.
            let _ = connection.kill();
            let _ = connection.wait();
        }
        joined
    })
    .map_err(failed)
}

/// Notes a node's connection in the cluster, which ends it.
fn note(cluster: &mut LocalCluster, at: usize, connection: &Child) -> Result<(), String> {
    let noted = Owner::of(connection.id(), "cluster").map_err(told)?;
    cluster.made.nodes[at].connection = Some(noted);
    cluster.note().map_err(told)
}

/// Starts the ssh that stays, and the file with what it says.
fn connect(
    cluster: &LocalCluster,
    node: &MadeNode,
    replica: &Replica,
) -> Result<(Child, PathBuf), String> {
    let folder = &cluster.folder;
    let destination = replica.destination().ok_or("its host has no port")?;
    let api = folder.join(API_SOCKET);
    let here = |from: String| TunnelWay::Here { from, to: api.clone() };
    let ways = [
        here("127.0.0.1:6443".to_owned()),
        here(format!("{SERVICE_ADDRESS}:{SERVICE_PORT}")),
        TunnelWay::There { from: node.socket(folder), to: format!("127.0.0.1:{KUBELET_PORT}") },
    ];
    let path = folder.join(LOGS).join(format!("{}.connection.log", node.name));
    let told = |error: io::Error| format!("{}: {error}", path.display());
    let log = File::create(&path).map_err(told)?;
    let mut command = Tunnel { destination: &destination, ways: &ways }.command();
    command
        // It outlives this vmlab on purpose, as the host does.
        .env_remove(OWNER_VARIABLE)
        .env_remove(RUN_VARIABLE)
        .stdout(log.try_clone().map_err(told)?)
        .stderr(Stdio::from(log))
        .process_group(0);
    let connection = command.spawn().map_err(|error| format!("Cannot start ssh: {error}"))?;
    Ok((connection, path))
}

/// Puts all files of a node into it.
fn bring(
    cluster: &LocalCluster,
    node: &MadeNode,
    more: Option<&[u8]>,
    session: &SshSession,
    patience: Patience<'_>,
) -> Result<(), String> {
    let folder = &cluster.folder;
    let place = Path::new(PLACE);
    let role = role_of_node(&node.name);
    let (certificate, key) = (format!("{role}.crt"), format!("{role}.key"));
    let kubeconfig = authority::kubeconfig(folder, &cluster.name, API_SERVER, &role);
    let networks = place.join("cni");
    let containerd = ContainerdSettings {
        root: Path::new("/var/lib/containerd"),
        socket: &place.join(CONTAINERD),
        snapshotter: "overlayfs",
        restrict_oom: false,
        networks: &networks,
        plugins: Path::new(PLUGINS),
    };
    let kubelet = KubeletConfig {
        authority: &place.join(CA),
        certificate: &place.join(&certificate),
        key: &place.join(&key),
        containerd: &place.join(CONTAINERD),
        cgroup: "",
        address: "0.0.0.0",
    };
    let put = |from: &Path, name: &str, mode: u32| {
        session.put(from, &format!("{PLACE}/{name}"), mode, patience).map_err(told)
    };
    for name in [CA, &certificate, &key, PAUSE] {
        put(&folder.join(name), name, 0o600)?;
    }
    let programs = &cluster.made.programs;
    put(&programs.join("kubelet"), "kubelet", 0o755)?;
    if cluster.made.kubevirt.is_some() {
        put(&kubevirt::file(programs, OF_NODES), OF_NODES, 0o600)?;
    }
    let mut texts = vec![
        (KUBELET_YAML.to_owned(), kubelet.text().into_bytes()),
        (KUBELET_KUBECONFIG.to_owned(), kubeconfig.map_err(told)?.into_bytes()),
        (CONTAINERD_TOML.to_owned(), containerd.text().into_bytes()),
        (format!("cni/{NETWORK}"), network(&node.pods).into_bytes()),
        (START.to_owned(), include_bytes!("start-node").to_vec()),
    ];
    if let Some(more) = more {
        texts.push((format!("{KUBELET_MORE}/{KUBELET_OF_USER}"), more.to_vec()));
    }
    for (name, text) in texts {
        let path = format!("{PLACE}/{name}");
        let script = "set -e; umask 077; mkdir -p \"${1%/*}\"; cat >\"$1\"";
        let written = session.command(["sh", "-c", script, "sh", &path]).input(text);
        written.run(patience).map_err(told)?;
    }
    Ok(())
}

/// Starts containerd and the kubelet, which counts huge pages when it starts.
fn start(
    node: &MadeNode,
    huge_page_bytes: u64,
    session: &SshSession,
    patience: Patience<'_>,
) -> Result<(), String> {
    let declared = session.command(["cat", DECLARED_HOST]).run(patience).map_err(told)?;
    let declared = Host::from_json(&String::from_utf8_lossy(&declared.stdout)).map_err(told)?;
    let address = node.address.to_string();
    let script = format!("cd {PLACE} && exec sh {START} \"$@\"");
    let service = SERVICE_ADDRESS.to_string();
    let pages = huge_page_bytes.div_ceil(HUGE_PAGE_BYTES).to_string();
    let mut words = vec!["sh", "-c", &script, START, &address, &service, &pages];
    let mut kubelet = kubelet_args(Path::new(PLACE), &node.name, &address);
    kubelet.push(format!("--node-labels={EMULATOR_LABEL}=tcg"));
    words.extend(kubelet.iter().map(String::as_str));
    let output = session.command(words).input(declared_lines(&declared)).output(patience);
    let output = output.map_err(told)?;
    match output.code {
        0 => Ok(()),
        _ => Err(output.stderr.trim().to_owned()),
    }
}

/// What the kernel is to say of the pCPUs: paths below `/sys/devices/system/cpu`, values.
///
/// Source: Linux, Documentation/ABI/stable/sysfs-devices-system-cpu.
fn declared_lines(host: &Host) -> String {
    let mut text = String::new();
    let mut line = |pcpu: u32, path: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "cpu{pcpu}/{path} {value}");
    };
    for pcpu in &host.pcpus {
        if let Some(core) = pcpu.core {
            line(pcpu.id, "topology/core_id", &core);
        }
        if let Some(socket) = pcpu.socket {
            line(pcpu.id, "topology/physical_package_id", &socket);
        }
        let caches = host.caches.iter().enumerate();
        let its = caches.filter(|(_, cache)| cache.pcpus.contains(pcpu.id));
        for (index, (id, cache)) in its.enumerate() {
            let mut say = |name: &str, value: &dyn std::fmt::Display| {
                line(pcpu.id, &format!("cache/index{index}/{name}"), value);
            };
            say("id", &id);
            say("level", &cache.level);
            say("shared_cpu_list", &cache.pcpus);
            say("shared_cpu_map", &hex_map(&cache.pcpus));
            say("size", &format!("{}K", cache.size_bytes.unwrap_or(0) >> 10));
            let kind = match cache.kind {
                CacheKind::Data => "Data",
                CacheKind::Instruction => "Instruction",
                CacheKind::Unified => "Unified",
            };
            say("type", &kind);
        }
    }
    text
}

/// pCPUs as a bit map: words of 32 bits, the highest first.
fn hex_map(pcpus: &PcpuSet) -> String {
    let highest = pcpus.iter().max().unwrap_or(0);
    let word = |at: u32| {
        let bits = pcpus.iter().filter(|id| id / 32 == at).map(|id| 1_u32 << (id % 32));
        format!("{:08x}", bits.sum::<u32>())
    };
    (0..=highest / 32).rev().map(word).collect::<Vec<_>>().join(",")
}

/// Waits until the node takes pods; not for a kubelet that has ended, or a connection.
fn wait(
    cluster: &LocalCluster,
    node: &MadeNode,
    session: &SshSession,
    is_cancelled: CancelCheck<'_>,
    is_lost: &mut dyn FnMut() -> Option<String>,
) -> Result<(), String> {
    let patience = Patience::new(ANSWER_LIMIT, is_cancelled);
    let begun = Instant::now();
    let mut looked = begun;
    loop {
        if let Some(said) = is_lost() {
            return Err(format!("the ssh that leads to it has ended: {said}"));
        }
        let nodes = cluster.ask_keeper().map_err(|error| error.to_string())?.nodes;
        let found = nodes.into_iter().find(|one| one.name == node.name);
        if found.as_ref().is_some_and(|node| node.ready) {
            return Ok(());
        }
        let is_late = begun.elapsed() > READY_LIMIT;
        if is_late || looked.elapsed() > LOOK_INSIDE {
            looked = Instant::now();
            let script = format!(
                "kill -0 $(cat {PLACE}/kubelet.pid) && exit; tail -n 15 /var/log/kubelet.log; exit 1"
            );
            let output = session.command(["sh", "-c", &script]).output(patience).map_err(told)?;
            if output.code != 0 {
                let log = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                return Err(format!("its kubelet has ended:\n{log}"));
            }
        }
        if is_late {
            let why = match found {
                Some(node) => node.reason.unwrap_or_default(),
                None => "its kubelet has not made it".to_owned(),
            };
            return Err(format!("it is not ready after {} s: {why}", READY_LIMIT.as_secs()));
        }
        if is_cancelled() {
            return Err("it was cancelled".to_owned());
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_of_threads_sockets_and_caches() {
        let host = replica::like("xeon-4208").unwrap();
        let text = declared_lines(&host);
        let said = |line: &str| text.lines().filter(|one| *one == line).count();
        // The threads of a core, and its cache, which is no other core's.
        for line in ["cpu3/topology/core_id 3", "cpu19/topology/core_id 3"] {
            assert_eq!(said(line), 1, "{line}");
        }
        for line in ["cpu0/topology/physical_package_id 0", "cpu31/topology/physical_package_id 1"]
        {
            assert_eq!(said(line), 1, "{line}");
        }
        assert_eq!(said("cpu19/cache/index0/shared_cpu_list 3,19"), 1, "{text}");
        assert_eq!(said("cpu19/cache/index1/shared_cpu_list 0-7,16-23"), 1, "{text}");
        assert_eq!(said("cpu19/cache/index1/size 11264K"), 1, "{text}");
        assert_eq!(said("cpu19/cache/index1/shared_cpu_map 00ff00ff"), 1, "{text}");
        let wide: PcpuSet = [0, 33, 64].into_iter().collect();
        assert_eq!(hex_map(&wide), "00000001,00000002,00000001");
        let ids = text.lines().filter_map(|line| line.strip_prefix("cpu19/cache/index1/id "));
        let ids: Vec<_> = ids.collect();
        assert_eq!(said(&format!("cpu3/cache/index1/id {}", ids[0])), 1, "{text}");
    }
}
