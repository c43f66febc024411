//! The switches: this one, DPDK's testpmd, Open vSwitch on DPDK. Each is started once
//! and stopped (SIGSTOP) while another has its turn.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::machine::Pcpus;

/// How long one may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// A switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    /// The same with two polling threads.
    OursOnTwo,
    /// `dpdk-testpmd --forward-mode=io`: what comes in at one port goes out at the other.
    Testpmd,
    /// Open vSwitch on DPDK, learning.
    Ovs,
    /// This one, two pairs of ports in a VLAN each.
    Fair,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "vmlab",
            Self::OursOnTwo => "vmlab-two-threads",
            Self::Fair => "vmlab-fair",
            Self::Testpmd => "testpmd",
            Self::Ovs => "OVS-DPDK",
        }
    }
}

/// A switch that runs.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    pub(crate) sockets: Vec<PathBuf>,
    /// The one that forwards.
    switch: Child,
    others: Vec<Child>,
    /// testpmd ends with its input.
    _stdin: Option<ChildStdin>,
}

/// Where the peers' memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    Huge,
    Small,
}

impl Peer {
    pub(crate) fn start(
        kind: Kind,
        folder: &Path,
        pcpus: Pcpus,
        pages: Pages,
        ports: usize,
    ) -> Result<Self, String> {
        let name = |port: usize| match kind {
            Kind::Ours => format!("vmlab{port}"),
            Kind::OursOnTwo => format!("two{port}"),
            Kind::Fair => format!("fair{port}"),
            Kind::Testpmd => format!("testpmd{port}"),
            Kind::Ovs => format!("ovs{port}"),
        };
        let ports = if kind == Kind::Testpmd { 2 } else { ports };
        let sockets: Vec<PathBuf> = (0..ports).map(|port| folder.join(name(port))).collect();
        let log = |name: &str| {
            File::create(folder.join(name)).map_err(|error| format!("Cannot make {name}: {error}"))
        };
        let mut others = Vec::new();
        let mut command = match kind {
            Kind::Ours | Kind::OursOnTwo | Kind::Fair => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new(own);
                let second = pcpus.second.filter(|_| kind == Kind::OursOnTwo);
                let served = [Some(pcpus.switch), second].into_iter().flatten();
                let served: Vec<String> = served.map(|pcpu| pcpu.to_string()).collect();
                command.arg("serve").arg(served.join(","));
                for (port, socket) in sockets.iter().enumerate() {
                    let vlan = match kind {
                        Kind::Fair => format!(",vlan={}", 10 + port / 2),
                        _ => String::new(),
                    };
                    command.arg(format!("{}{vlan}", socket.display()));
                }
                command.stdin(Stdio::null());
                command
            }
            Kind::Testpmd => {
                let mut command = Command::new("dpdk-testpmd");
                let lcores = format!("0@{},1@{}", pcpus.generator, pcpus.switch);
                command.args(["--lcores", &lcores, "--no-pci", "--no-telemetry"]);
                command.args(memory(pages)).args(["-m", "384", "--file-prefix=vmlab-testpmd"]);
                for (port, socket) in sockets.iter().enumerate() {
                    let vdev = format!("net_vhost{port},iface={},queues=1", socket.display());
                    command.args(["--vdev", &vdev]);
                }
                command.args(["--", "-i", "--auto-start", "--nb-cores=1", "--forward-mode=io"]);
                command.args(["--total-num-mbufs=40960"]);
                command.stdin(Stdio::piped());
                command
            }
            Kind::Ovs => open_vswitch(folder, pcpus, pages, &mut others)?,
        };
        command.stdout(log(&format!("{}.log", kind.name()))?);
        command.stderr(log(&format!("{}.err", kind.name()))?);
        let mut switch =
            command.spawn().map_err(|error| format!("Cannot start {}: {error}", kind.name()))?;
        let stdin = switch.stdin.take();
        let mut peer = Self { kind, sockets, switch, others, _stdin: stdin };
        if kind == Kind::Ovs {
            add_ports(folder, &peer.sockets)?;
        }
        let deadline = Instant::now() + PATIENCE;
        while !peer.sockets.iter().all(|socket| socket.exists()) {
            let ended = peer.switch.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                let said = fs::read_to_string(folder.join(format!("{}.err", kind.name())));
                let said = said.unwrap_or_default();
                let tail: Vec<&str> = said.lines().rev().take(5).collect();
                return Err(format!("{} does not run: {}", kind.name(), tail.join(" / ")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(peer)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.switch.id()
    }

    /// Lets it run, or stops it where it is.
    pub(crate) fn wake(&mut self, awake: bool) -> Result<(), String> {
        let signal = if awake { Signal::CONT } else { Signal::STOP };
        if let Ok(Some(status)) = self.switch.try_wait() {
            return Err(format!("{} has ended: {status}", self.kind.name()));
        }
        kill_process(Pid::from_child(&self.switch), signal).map_err(|error| error.to_string())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for child in std::iter::once(&mut self.switch).chain(&mut self.others) {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn memory(pages: Pages) -> &'static [&'static str] {
    match pages {
        Pages::Huge => &["--in-memory", "--single-file-segments"],
        Pages::Small => &["--no-huge"],
    }
}

/// A whole Open vSwitch in `folder`: its data base, and the command of its switch.
fn open_vswitch(
    folder: &Path,
    pcpus: Pcpus,
    pages: Pages,
    others: &mut Vec<Child>,
) -> Result<Command, String> {
    let program = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
    if !Path::new(program).exists() {
        return Err("openvswitch-switch-dpdk is not installed".to_owned());
    }
    let path = |name: &str| folder.join(name).display().to_string();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).env("OVS_RUNDIR", folder).output();
        let output = output.map_err(|error| format!("Cannot start {program}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
    };
    let database = path("ovs.db");
    run("ovsdb-tool", &["create", &database, "/usr/share/openvswitch/vswitch.ovsschema"])?;
    let remote = format!("punix:{}", path("db.sock"));
    let server = Command::new("ovsdb-server")
        .args([&database, "--remote", &remote, "--unixctl", &path("db.ctl"), "-vconsole:off"])
        .env("OVS_RUNDIR", folder)
        .stdin(Stdio::null())
        .spawn();
    others.push(server.map_err(|error| format!("Cannot start ovsdb-server: {error}"))?);
    let deadline = Instant::now() + PATIENCE;
    while !folder.join("db.sock").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mask = |pcpu: usize| format!("{:#x}", 1_u64 << pcpu);
    if pages == Pages::Small {
        // It always passes --in-memory, which DPDK takes with huge pages alone.
        return Err(
            "it needs 512 huge pages of 2 MiB (bench/switch reserves them, as root)".to_owned()
        );
    }
    let settings = [
        "other_config:dpdk-init=true".to_owned(),
        format!("other_config:dpdk-lcore-mask={}", mask(pcpus.generator)),
        format!("other_config:pmd-cpu-mask={}", mask(pcpus.switch)),
        "other_config:dpdk-extra=\"--no-pci --file-prefix=vmlab-ovs\"".to_owned(),
        "other_config:dpdk-socket-mem=\"512\"".to_owned(),
    ];
    let database = format!("--db=unix:{}", path("db.sock"));
    let mut args = vec![database.as_str(), "--no-wait", "set", "Open_vSwitch", "."];
    args.extend(settings.iter().map(String::as_str));
    run("ovs-vsctl", &[&database, "--no-wait", "init"])?;
    run("ovs-vsctl", &args)?;
    let mut command = Command::new(program);
    command.arg(format!("unix:{}", path("db.sock")));
    command.args(["--unixctl", &path("switch.ctl"), "-vconsole:info", "-vsyslog:off"]);
    command.env("OVS_RUNDIR", folder).stdin(Stdio::null());
    Ok(command)
}

fn add_ports(folder: &Path, sockets: &[PathBuf]) -> Result<(), String> {
    let database = format!("--db=unix:{}", folder.join("db.sock").display());
    let mut args = vec![database.as_str(), "--timeout=30", "add-br", "br0"];
    args.extend(["--", "set", "bridge", "br0", "datapath_type=netdev"]);
    let names: Vec<&str> =
        sockets.iter().filter_map(|socket| socket.file_name()?.to_str()).collect();
    for name in &names {
        args.extend(["--", "add-port", "br0", name, "--", "set", "Interface", name]);
        args.push("type=dpdkvhostuser");
    }
    let output = Command::new("ovs-vsctl").args(&args).env("OVS_RUNDIR", folder).output();
    let output = output.map_err(|error| format!("Cannot start ovs-vsctl: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("ovs-vsctl: {}", String::from_utf8_lossy(&output.stderr)))
    }
}
