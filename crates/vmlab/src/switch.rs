//! `vmlab switch`: connects VMs through a vhost-user switch in user space.

mod ctl;
mod file;
mod metrics;
mod notes;
mod peer;
mod rights;
mod traffic;

pub(crate) use file::SwitchFile;
pub(crate) use traffic::TrafficResult;

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use topology::PcpuSet;
use vswitch::{
    ControlReply, MirrorConfig, PortConfig, Question, Switch, SwitchConfig, SwitchEvent,
    SwitchHandle,
};

use crate::endpoint::{self, Endpoint};
use crate::{interrupt, terminal};

/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  vmlab switch --port a.sock --port b.sock
                                      connect two VMs; QEMU's arguments are printed
  vmlab switch --port a.sock --port b.sock,queues=4,vlan=10 --pcpus 2-3
  vmlab switch --config switch.toml   the same from a file
  vmlab switch --port a.sock,rate=1gbit --port tap:vmtap0,bridge=br0
                                      a VM in the host's network, held to a rate
  vmlab switch --port a.sock --port b.sock --mirror - | wireshark -k -i -
  vmlab switch --port a.sock --port b.sock --socket-mode 0660 --socket-group libvirt-qemu
                                      for QEMU of another user, as with libvirt
  vmlab switch --port a.sock --dry-run
                                      only show what belongs into QEMU and libvirt
  vmlab switch ctl status             ports, drops by reason, polling threads
  vmlab switch ctl mac --json         who is behind which port
  vmlab switch ctl add c.sock,vlan=10
  vmlab switch traffic a.sock b.sock  frames through a switch, checked and counted

A port is PATH[,queues=N][,vlan=N|,trunk=N+N][,server=off][,isolated=on|,uplink=on]
[,mac=ADDRESS][,rate=RATE][,mtu=N][,name=NAME], or tap:INTERFACE[,bridge=NAME] and the
same words but queues and server. With server=off the VM listens and the switch connects.
A rate is 100mbit, 2.5gbit, 200kpps, or 1gbit+200kpps.
The switch needs no root and no huge pages; VMs need shared memory
(memory-backend-memfd,share=on). docs/switch.md tells more.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct SwitchArgs {
    #[command(subcommand)]
    action: Option<SwitchCommand>,
    #[command(flatten)]
    run: SwitchRunArgs,
}

#[derive(Debug, Subcommand)]
enum SwitchCommand {
    /// Ask or tell a switch that runs.
    Ctl(ctl::CtlArgs),
    /// Send frames through a switch as VMs would, and check what arrives.
    Traffic(traffic::TrafficArgs),
}

#[derive(Debug, Args)]
struct SwitchRunArgs {
    /// A port: the path of its socket, and what else is asked of it.
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<String>,
    /// Read ports and all else from a file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A polling thread on each of these pCPUs; one thread anywhere if not given.
    #[arg(long, alias = "cpus", value_name = "LIST")]
    pcpus: Option<PcpuSet>,
    /// The socket at which `vmlab switch ctl` asks.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The mode of the ports' sockets, as in 0660; what the umask leaves if not given.
    #[arg(long, value_name = "MODE", value_parser = rights::mode)]
    socket_mode: Option<u32>,
    /// The group of the ports' sockets, by its name or number: that of QEMU's user.
    #[arg(long, value_name = "GROUP", value_parser = rights::group)]
    socket_group: Option<u32>,
    /// Write frames down as pcap-ng in FILE, a FIFO or - (standard output), with any of
    /// `,ports=NAME+NAME`, `,snap=BYTES` and `,limit=BYTES` behind it.
    #[arg(long = "mirror", value_name = "MIRROR")]
    mirrors: Vec<String>,
    /// Answer OpenMetrics at this address, or port on loopback.
    #[arg(long, value_name = "ADDR", value_parser = endpoint::parse_address)]
    metrics: Option<SocketAddr>,
    /// Seconds after which a station that is not heard is forgotten.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    age: Option<u32>,
    /// End when standard input ends: for programs that start a switch.
    #[arg(long)]
    until_input_ends: bool,
    /// Run without Landlock and seccomp, to debug.
    #[arg(long)]
    no_sandbox: bool,
    /// Show what belongs into QEMU and libvirt, and end.
    #[arg(long)]
    dry_run: bool,
    /// Do not show it.
    #[arg(long, short, conflicts_with = "dry_run")]
    quiet: bool,
}

/// The control socket where nobody names one.
fn default_control() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    match folder {
        Some(folder) => PathBuf::from(folder).join("vmlab-switch.sock"),
        None => {
            let user = rustix::process::getuid().as_raw();
            std::env::temp_dir().join(format!("vmlab-switch-{user}.sock"))
        }
    }
}

/// What the command line and the file ask for together.
fn wanted(args: &SwitchRunArgs) -> anyhow::Result<(SwitchConfig, Option<SocketAddr>)> {
    let (mut config, metrics) = match &args.config {
        Some(path) => file::read(path)?,
        None => (SwitchConfig::new(Vec::new()), None),
    };
    for text in &args.mirrors {
        config.mirrors.push(MirrorConfig::parse(text).context("--mirror")?);
    }
    for text in &args.ports {
        let port = PortConfig::parse(text).context("--port")?;
        config.ports.push(port);
    }
    if config.ports.is_empty() {
        bail!("No port: give --port PATH for each VM, or --config FILE");
    }
    if let Some(pcpus) = &args.pcpus {
        if pcpus.iter().next().is_none() {
            bail!("--pcpus names no pCPU: leave it out for one thread wherever the kernel likes");
        }
        config.pcpus = pcpus.iter().collect();
    }
    config.age_s = args.age.unwrap_or(config.age_s);
    config.rights.mode = args.socket_mode.or(config.rights.mode);
    config.rights.group = args.socket_group.or(config.rights.group);
    config.control = Some(args.control.clone().or(config.control).unwrap_or_else(default_control));
    config.sandbox &= !args.no_sandbox;
    config.check()?;
    Ok((config, args.metrics.or(metrics)))
}

/// Answers with what the switch says of itself, once it runs.
fn serve_metrics(
    address: SocketAddr,
    asker: &Arc<OnceLock<SwitchHandle>>,
) -> anyhow::Result<Endpoint> {
    let asker = Arc::clone(asker);
    Endpoint::start(address, move || match asker.get().map(|asker| asker.ask(Question::Status)) {
        Some(ControlReply::Status(status)) => metrics::page(&status),
        _ => Err(io::Error::other("the switch does not run")),
    })
}

pub(crate) fn run(args: &SwitchArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Some(SwitchCommand::Ctl(ctl)) => return ctl::run(ctl),
        Some(SwitchCommand::Traffic(traffic)) => return traffic::run(traffic),
        None => {}
    }
    let (config, metrics) = wanted(&args.run)?;
    let peers = peer::text(&config.ports, &[]);
    if args.run.dry_run {
        terminal::print(&peers)?;
        return Ok(ExitCode::SUCCESS);
    }
    let interrupts = interrupt::Interrupts::listen("closing all ports ...", "still closing")?;
    if args.run.until_input_ends {
        let end = interrupts.end.clone();
        std::thread::spawn(move || {
            let mut input = std::io::stdin().lock();
            let mut bytes = [0; 64];
            while input.read(&mut bytes).is_ok_and(|count| count > 0) {}
            end.cancel();
        });
    }
    let mut notes = notes::NoteWriter::start();
    // Its thread has to be there before the sandbox is.
    let asker = Arc::new(OnceLock::new());
    let endpoint = metrics.map(|address| serve_metrics(address, &asker)).transpose()?;
    let switch = Switch::start(&config)?;
    // It is set here alone.
    let _ = asker.set(switch.asker());
    let writes_frames = config.mirrors.iter().any(|mirror| mirror.target == Path::new("-"));
    if !args.run.quiet && !writes_frames {
        terminal::print(&peers)?;
    }
    let names: Vec<&str> = config.ports.iter().map(|port| port.name.as_str()).collect();
    notes.note(&format!("vmlab: the switch runs, ports {}; Ctrl-C ends it", names.join(", ")));
    if let Some(endpoint) = &endpoint {
        notes.note(&format!("vmlab: metrics at http://{}/metrics", endpoint.address()));
    }
    while !interrupts.end.is_cancelled() {
        match switch.events().recv_timeout(LOOK) {
            Ok(event) => notes.note(&format!("vmlab: {}", sentence(&event))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is said of two VMs that share an address.
fn same_address(first: &str, second: &str, mac: &str) -> String {
    format!(
        "VMs at {first} and {second} send from the same address {mac}: give each -device a mac= \
         of its own"
    )
}

fn sentence(event: &SwitchEvent) -> String {
    match event {
        SwitchEvent::Connected { port } => format!("port {port}: a frontend came"),
        SwitchEvent::Gone { port, error: None } => format!("port {port}: the frontend left"),
        SwitchEvent::Gone { port, error: Some(error) } => {
            format!("port {port}: the frontend was sent away: {error}")
        }
        SwitchEvent::Refused { port } => {
            format!("port {port}: a second frontend was sent away, the first is still there")
        }
        SwitchEvent::FilesOpen { port } => format!(
            "port {port}: a frontend was sent away: a file that the last one sent is not closed \
             yet, as its file system does not answer"
        ),
        SwitchEvent::NoListener { port, error } => {
            format!("port {port}: its VM does not listen yet ({error}); it is called until it does")
        }
        SwitchEvent::NotAccepted { port, error } => {
            format!("port {port}: a frontend waits, as it cannot be taken in: {error}")
        }
        SwitchEvent::Repeated { last, times } => {
            format!("{times} times more within a second: {}", sentence(last))
        }
        SwitchEvent::Missed { events } => format!("{events} events were not told of"),
        SwitchEvent::SameAddress { first, second, mac } => same_address(first, second, mac),
        SwitchEvent::NoLandlock => {
            "this kernel has no Landlock: the switch could open other files, \
                              if a guest broke into it (Linux 5.13 has it)"
                .to_owned()
        }
        SwitchEvent::RingStopped { port, ring, fault } => {
            format!("port {port}: ring {ring} was stopped ({fault}) until the driver starts anew")
        }
    }
}
