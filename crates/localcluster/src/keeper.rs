//! The first process in the cluster's namespaces: it starts all others, tells how they are,
//! and ends with the cluster.
//!
//! Its standard input is a socket that listens on the host's loopback, its standard output
//! the connection with the vmlab that starts the cluster: lines of [`KeeperWord`] one way,
//! one byte ([`KEEP`]) the other way when the cluster is to stay. If that connection ends
//! before, whoever started it is dead, and the cluster ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, wait};
use serde::{Deserialize, Serialize};
use serde_json::json;
use signal_hook::consts::{SIGCHLD, SIGTERM};
use signal_hook::iterator::Signals;

use crate::authority::{self, ROLES};
use crate::component::{self, API_PORT, API_SERVER, Component, KUBELET_PORT, PAUSE_IMAGE};
use crate::forward::{Entrance, Server, forward};
use crate::kubevirt::{self, ARCHIVES, KubeVirtRequest};
use crate::node::{self, NODE_NAME, SERVICE_ADDRESS, SERVICE_PORT};
use crate::probe::{HealthCheck, Prober};
use crate::status::{ComponentState, ComponentStatus, KeeperReport};
use crate::store::{API_SOCKET, ClusterManifest, KEEPER, LocalCluster, PAUSE, write_private};
use crate::{cgroup, image, store};

/// What whoever starts the cluster says when it is to stay.
pub(crate) const KEEP: u8 = b'k';
/// The servers' logs, below the folder.
pub(crate) const LOGS: &str = "logs";
/// The label of nodes of the control plane.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// How often a program is asked that is not well yet: none tells when it is.
const LOOK: Duration = Duration::from_millis(50);
/// How long anything may take to come up.
const UP_LIMIT: Duration = Duration::from_secs(300);
/// What is shown of the log of a program that fails.
const TAIL_BYTES: u64 = 4000;
const TAIL_LINES: usize = 15;

/// What the keeper says while it starts the cluster.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeeperWord {
    /// What it does now.
    Step(String),
    /// The node takes pods, and KubeVirt's operator, where it is wanted, is in the cluster.
    Ready,
    /// What went wrong.
    Failed(String),
}

/// A program that was started.
struct RunningComponent {
    component: Component,
    child: Child,
}

/// How those ended that have, by process id.
type EndedPrograms = Arc<Mutex<BTreeMap<u32, String>>>;

/// Starts the cluster of `folder` in the namespaces that this process is the first in, and
/// stays until it is told to end.
///
/// # Errors
/// What went wrong, in words; it has been said through standard output, too.
pub fn keep(folder: &Path) -> Result<(), String> {
    if std::process::id() != 1 {
        return Err("The keeper of a cluster is started by `vmlab cluster up` alone".to_owned());
    }
    let (input, output) = (io::stdin(), io::stdout());
    let taken = |error: io::Error| format!("It was started without its sockets: {error}");
    let entrance = TcpListener::from(input.as_fd().try_clone_to_owned().map_err(taken)?);
    let starter = UnixStream::from(output.as_fd().try_clone_to_owned().map_err(taken)?);
    let signals = Signals::new([SIGTERM, SIGCHLD]).map_err(|error| error.to_string())?;
    let children = Arc::new(Mutex::new(None::<EndedPrograms>));
    follow_signals(signals, Arc::clone(&children));
    let say = |word: &KeeperWord| {
        let line = serde_json::to_string(word).map_err(io::Error::from)? + "\n";
        (&starter).write_all(line.as_bytes())
    };
    wait_until_kept(&starter).map_err(|error| error.to_string())?;
    let mut start = ClusterStart { folder, running: Vec::new(), say: &say };
    let prober = match start.run(entrance) {
        Ok(prober) => prober,
        Err(said) => {
            // Nobody may be there to hear it.
            let _ = say(&KeeperWord::Failed(said.clone()));
            return Err(said);
        }
    };
    let ended = EndedPrograms::default();
    let components: Vec<(Component, u32)> =
        start.running.into_iter().map(|one| (one.component, one.child.id())).collect();
    let socket = folder.join(KEEPER);
    let listener = UnixListener::bind(&socket).map_err(|error| error.to_string())?;
    // From here on nobody waits for a child by its number.
    *children.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Arc::clone(&ended));
    reap(&ended);
    say(&KeeperWord::Ready).map_err(|error| error.to_string())?;
    let made = LocalCluster::read(folder).map(|cluster| cluster.made);
    let has_kubevirt = made.as_ref().is_some_and(|made| made.kubevirt.is_some());
    let versions = made.map(|made| made.versions).unwrap_or_default();
    for client in listener.incoming() {
        let Ok(mut client) = client else { continue };
        let mut report = report(&components, &versions, &prober, &ended);
        report.kubevirt = has_kubevirt.then(|| prober.kubevirt().unwrap_or_default());
        // Whoever asked may have gone.
        let _ = serde_json::to_writer(&mut client, &report);
    }
    Ok(())
}

/// Ends all on SIGTERM, and reaps what ends once that is wanted: the first process of a
/// namespace gets everybody's orphans.
fn follow_signals(mut signals: Signals, children: Arc<Mutex<Option<EndedPrograms>>>) {
    thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGTERM {
                // The kernel ends all others in the namespace.
                std::process::exit(0);
            }
            let wanted = children.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some(ended) = &*wanted {
                reap(ended);
            }
        }
    });
}

fn reap(ended: &EndedPrograms) {
    let mut ended = ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("it ended with exit code {code}"),
            (_, Some(signal)) => format!("signal {signal} ended it"),
            _ => continue,
        };
        ended.insert(pid.as_raw_nonzero().get().unsigned_abs(), how);
    }
}

/// Ends all when the connection ends before the word that the cluster is to stay.
fn wait_until_kept(starter: &UnixStream) -> io::Result<()> {
    let mut starter = starter.try_clone()?;
    thread::spawn(move || {
        let mut word = [0];
        if starter.read_exact(&mut word).is_err() || word != [KEEP] {
            std::process::exit(1);
        }
    });
    Ok(())
}

fn report(
    components: &[(Component, u32)],
    versions: &BTreeMap<String, String>,
    prober: &Prober,
    ended: &EndedPrograms,
) -> KeeperReport {
    let status = |(component, pid): &(Component, u32)| {
        let answer = prober.ask(&component.probe);
        // One that has ended meanwhile did not answer because of that.
        reap(ended);
        let ended = ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (state, reason) = match (ended.get(pid), answer) {
            (Some(how), _) => (ComponentState::Ended, Some(how.clone())),
            (None, Ok(())) => (ComponentState::Well, None),
            (None, Err(why)) => (ComponentState::Unwell, Some(why)),
        };
        let version = versions.get(component.name).cloned();
        ComponentStatus { name: component.name.to_owned(), version, state, reason }
    };
    KeeperReport {
        components: components.iter().map(status).collect(),
        nodes: prober.nodes().unwrap_or_default(),
        kubevirt: None,
    }
}

/// A start that is under way.
struct ClusterStart<'a> {
    folder: &'a Path,
    running: Vec<RunningComponent>,
    say: &'a dyn Fn(&KeeperWord) -> io::Result<()>,
}

impl ClusterStart<'_> {
    fn run(&mut self, entrance: TcpListener) -> Result<Prober, String> {
        let folder = self.folder;
        let cluster = LocalCluster::read(folder).ok_or("The cluster's folder is gone")?;
        let made = &cluster.made;
        self.step("making its surroundings")?;
        cgroup::enter(&made.cgroup).map_err(with_cause)?;
        node::make_mounts(folder)?;
        node::make_interfaces(&made.nodes)?;
        self.certify(&cluster)?;
        fs::create_dir_all(folder.join(LOGS)).map_err(|error| error.to_string())?;
        let prober = Prober::new(&folder.join("admin.kubeconfig"))?;

        self.step("starting the API server")?;
        self.start(component::etcd(folder, made))?;
        self.start(component::api_server(folder, made))?;
        self.start(component::containerd(folder, made).map_err(with_cause)?)?;
        self.wait_for("containerd", |_, probe| prober.ask(probe))?;
        self.load_pause(&cluster)?;
        // What the others may do is said by the API server's own roles, which it makes
        // before it is ready.
        self.wait_for("kube-apiserver", |_, probe| prober.ask(probe))?;
        self.open_ways(entrance, made)?;

        self.step("starting the node")?;
        self.start(component::scheduler(folder, made))?;
        self.start(component::controllers(folder, made))?;
        self.start(component::kubelet(folder, made).map_err(with_cause)?)?;
        for name in ["etcd", "kube-scheduler", "kube-controller-manager", "kubelet"] {
            self.wait_for(name, |_, probe| prober.ask(probe))?;
        }
        self.wait_for("kubelet", |_, _| {
            let nodes = prober.nodes()?;
            match nodes.first() {
                Some(node) if node.ready => Ok(()),
                Some(node) => Err(node.reason.clone().unwrap_or_default()),
                None => Err("it has not made its node".to_owned()),
            }
        })?;
        // A pod has one, or is refused.
        self.wait_for("kube-controller-manager", |_, _| prober.has_default_account())?;
        // What is made for nodes of the control plane has no other one.
        let label = json!({ "metadata": { "labels": { CONTROL_PLANE: "" } } });
        prober.merge(&format!("/api/v1/nodes/{NODE_NAME}"), &label)?;
        if let Some(wanted) = &made.kubevirt {
            self.install_kubevirt(&cluster, wanted, &prober)?;
        }
        Ok(prober)
    }

    /// Brings KubeVirt's operator into the cluster. What that makes takes a while, in which
    /// further nodes can start.
    fn install_kubevirt(
        &mut self,
        cluster: &LocalCluster,
        wanted: &KubeVirtRequest,
        prober: &Prober,
    ) -> Result<(), String> {
        self.step("loading KubeVirt's images")?;
        let programs = &cluster.made.programs;
        for archive in ARCHIVES {
            let path = kubevirt::file(programs, archive);
            store::load(self.folder, &cluster.made.snapshotter, &path)
                .map_err(|error| error.to_string())?;
        }
        self.step("installing KubeVirt")?;
        for object in kubevirt::operator(programs)? {
            prober.post(&object)?;
        }
        // Its kind is known a moment after its definition.
        let own = kubevirt::object(wanted);
        self.wait_for("kube-apiserver", |_, _| prober.post(&own))
    }

    fn step(&self, what: &str) -> Result<(), String> {
        (self.say)(&KeeperWord::Step(what.to_owned())).map_err(|error| error.to_string())
    }

    /// Leads to the API server who comes from the host, from pods, and from further nodes,
    /// and to their kubelets who comes to their addresses here.
    fn open_ways(&self, entrance: TcpListener, made: &ClusterManifest) -> Result<(), String> {
        let listen = |at: SocketAddr| {
            let listener = TcpListener::bind(at).map_err(|error| format!("{at}: {error}"))?;
            Ok::<_, String>(Entrance::Tcp(listener))
        };
        let server = Server::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, API_PORT)));
        forward(Entrance::Tcp(entrance), server.clone());
        forward(listen(SocketAddr::from((SERVICE_ADDRESS, SERVICE_PORT)))?, server.clone());
        let socket = self.folder.join(API_SOCKET);
        let of_nodes = UnixListener::bind(&socket);
        let of_nodes = of_nodes.map_err(|error| format!("{}: {error}", socket.display()))?;
        forward(Entrance::Unix(of_nodes), server);
        for node in &made.nodes {
            let kubelet = listen(SocketAddr::from((node.address, KUBELET_PORT)))?;
            forward(kubelet, Server::Unix(node.socket(self.folder)));
        }
        Ok(())
    }

    /// Makes keys, certificates and kubeconfigs of those in the namespace.
    fn certify(&self, cluster: &LocalCluster) -> Result<(), String> {
        authority::make(self.folder, &cluster.made.nodes).map_err(with_cause)?;
        for role in &ROLES {
            let config = authority::kubeconfig(self.folder, &cluster.name, API_SERVER, role.name);
            let path = self.folder.join(format!("{}.kubeconfig", role.name));
            write_private(&path, config.map_err(with_cause)?.as_bytes())
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    fn start(&mut self, component: Component) -> Result<(), String> {
        let failed = |error: io::Error| format!("Cannot start {}: {error}", component.name);
        let path = self.folder.join(LOGS).join(format!("{}.log", component.name));
        let log = File::create(path).map_err(failed)?;
        let child = Command::new(&component.program)
            .args(&component.args)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        self.running.push(RunningComponent { component, child });
        Ok(())
    }

    /// Waits until a program is well by `ask`; not for one that has ended.
    fn wait_for(
        &mut self,
        name: &str,
        ask: impl Fn(&str, &HealthCheck) -> Result<(), String>,
    ) -> Result<(), String> {
        let deadline = Instant::now() + UP_LIMIT;
        let folder = self.folder;
        loop {
            for one in &mut self.running {
                if let Ok(Some(status)) = one.child.try_wait() {
                    let name = one.component.name;
                    return Err(format!("{name} has ended ({status}):\n{}", tail(folder, name)));
                }
            }
            let one = self.running.iter().find(|one| one.component.name == name);
            let one = one.ok_or_else(|| format!("{name} was not started"))?;
            let Err(why) = ask(name, &one.component.probe) else { return Ok(()) };
            if Instant::now() > deadline {
                let limit = UP_LIMIT.as_secs();
                let tail = tail(folder, name);
                return Err(format!("{name} is not well after {limit} s ({why}):\n{tail}"));
            }
            thread::sleep(LOOK);
        }
    }

    /// Gives containerd the image that every pod's sandbox is made of.
    fn load_pause(&self, cluster: &LocalCluster) -> Result<(), String> {
        let program = cluster.made.programs.join("pause");
        let failed = |error: io::Error| format!("{}: {error}", program.display());
        let bytes = fs::read(&program).map_err(failed)?;
        let archive = image::archive(PAUSE_IMAGE, "/pause", &bytes).map_err(failed)?;
        let path = self.folder.join(PAUSE);
        fs::write(&path, archive).map_err(failed)?;
        store::load(self.folder, &cluster.made.snapshotter, &path).map_err(|e| e.to_string())?;
        Ok(())
    }
}

/// An error with what caused it.
fn with_cause(error: impl std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// The last lines of a program's log.
fn tail(folder: &Path, name: &str) -> String {
    let mut text = Vec::new();
    if let Ok(mut log) = File::open(folder.join(LOGS).join(format!("{name}.log"))) {
        let length = log.metadata().map_or(0, |meta| meta.len());
        // What can't be read is not shown.
        let _ = log.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)));
        let _ = log.take(TAIL_BYTES).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
