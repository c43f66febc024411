//! `vmlab cluster up|status|load|down`: a Kubernetes cluster of this machine's own.

mod nodes;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use guest::image::cache_dir;
use localcluster::{
    ClusterState, ClusterStatus, ComponentState, KubePrograms, KubeVirtRequest, LocalCluster,
    UpRequest,
};

use crate::exit::FINDINGS;
use crate::progress::Spinner;
use crate::{interrupt, terminal};

/// How the keeper is started: see [`localcluster::keep`].
const KEEPER: [&str; 2] = ["cluster", "keep"];

const EXAMPLES: &str = "\
Examples:
  vmlab cluster up                    etcd to kubelet, and a node that takes pods
  vmlab cluster up --name static --kubelet static.yaml
                                      with the kubelet's settings of a file
  export KUBECONFIG=$(vmlab cluster status --json | jq -r '.[0].kubeconfig')
  kubectl get nodes
  vmlab cluster up --kubevirt         with KubeVirt: it takes VMs, too
  vmlab cluster up --node two-nodes --node big=xeon-4208 --kubelet big=static.yaml
                                      two emulated hosts as further nodes
  vmlab cluster load image.tar        an image for its pods: none is fetched
  vmlab cluster status                is all of it well?
  vmlab cluster down lab

A cluster is made of the real programs, on this machine, for root. Build Kubernetes' own
with scripts/get-kube of vmlab's source; containerd, runc and the network plugins are the
distribution's. It stays until `down`, or until the machine's end.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    action: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Start a cluster and wait until its node takes pods.
    #[command(after_help = EXAMPLES)]
    Up(UpArgs),
    /// Tell how clusters are: each program, the node, versions.
    #[command(after_help = EXAMPLES)]
    Status {
        /// The cluster; all if not given.
        name: Option<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Give a cluster's nodes the images of an archive (OCI's or docker's).
    #[command(after_help = EXAMPLES)]
    Load {
        /// The archive.
        file: PathBuf,
        /// This node alone; all if not given.
        #[arg(long)]
        node: Option<String>,
        /// The cluster; the only one if not given.
        #[arg(long)]
        name: Option<String>,
    },
    /// End clusters, and remove what dead ones left.
    #[command(after_help = EXAMPLES)]
    Down {
        /// The clusters: what is ended is named.
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All clusters.
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// The first process of a cluster.
    #[command(hide = true)]
    Keep {
        /// The cluster's folder.
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
struct UpArgs {
    /// The cluster's name.
    #[arg(long, default_value = "lab")]
    name: String,
    /// An emulated host as a further node: a host that `vmlab replica up --like` knows, or
    /// a file that describes one. Its name is the host's if none is given.
    #[arg(long = "node", value_name = "[NAME=]HOST")]
    nodes: Vec<String>,
    /// Memory of further nodes, or of one: 4GiB, 3000MiB. As `vmlab replica up` if not
    /// given.
    #[arg(long, value_name = "[NODE=]SIZE", requires = "nodes")]
    node_memory: Vec<String>,
    /// Memory that further nodes, or one, set aside in huge pages of 2 MiB, on all their
    /// memory nodes alike, before their kubelets start: 256MiB.
    #[arg(long, value_name = "[NODE=]SIZE", requires = "nodes")]
    node_huge_pages: Vec<String>,
    /// More settings of the kubelets, or of one (this machine's node is vmlab): a
    /// KubeletConfiguration (YAML or JSON), which is read after vmlab's own.
    #[arg(long, value_name = "[NODE=]FILE")]
    kubelet: Vec<String>,
    /// The folder with Kubernetes' programs; what scripts/get-kube built last if not
    /// given.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// With KubeVirt, whose VMs are emulated, or with =kvm need /dev/kvm.
    #[arg(
        long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_missing_value = "emulated"
    )]
    kubevirt: Option<VmAcceleration>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What runs the VMs of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VmAcceleration {
    /// QEMU's TCG, on any machine.
    Emulated,
    /// KVM, by KubeVirt's device plugin.
    Kvm,
}

/// # Errors
/// What can't be started, found or ended.
pub(crate) fn run(args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        ClusterCommand::Up(args) => up(args),
        ClusterCommand::Status { name, json } => status(name.as_deref(), *json),
        ClusterCommand::Load { file, node, name } => {
            let cancel = interrupt::cancel_on_signals()?;
            let is_cancelled = || cancel.is_cancelled();
            let cluster = localcluster::find(name.as_deref())?;
            for line in cluster.load(file, node.as_deref(), &is_cancelled)? {
                terminal::print(&(line + "\n"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        ClusterCommand::Down { names, all } => down(names, *all),
        ClusterCommand::Keep { folder } => match localcluster::keep(folder) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(said) => bail!(said),
        },
    }
}

fn up(args: &UpArgs) -> anyhow::Result<ExitCode> {
    let cancel = interrupt::cancel_on_signals()?;
    let programs = KubePrograms::find(args.programs.as_deref(), &cache_dir().join("kube"))?;
    let vmlab = std::env::current_exe().context("Cannot find this vmlab")?;
    let of_nodes = nodes::NodeOptions {
        nodes: &args.nodes,
        memory: &args.node_memory,
        huge_pages: &args.node_huge_pages,
        kubelet: &args.kubelet,
    };
    let planned = of_nodes.read(&args.name)?;
    let spinner = Spinner::start();
    let began = Instant::now();
    let bring_up = planned.ways(&spinner, &cancel);
    let wanted = UpRequest {
        name: &args.name,
        programs: &programs,
        kubelet: planned.kubelet.as_deref(),
        nodes: &planned.requests(&bring_up),
        kubevirt: args
            .kubevirt
            .map(|how| KubeVirtRequest { emulated: how == VmAcceleration::Emulated }),
        keeper: (&vmlab, &KEEPER),
    };
    let is_cancelled = || cancel.is_cancelled();
    let cluster = localcluster::up(&wanted, &is_cancelled, &mut |step| {
        spinner.say(&format!("{}: {step} ({:.0} s)", args.name, began.elapsed().as_secs_f64()));
    })?;
    drop(bring_up);
    drop(spinner);
    if args.json {
        terminal::print(&(serde_json::to_string_pretty(&cluster.status())? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = &cluster.name;
    let nodes = match cluster.made.nodes.len() {
        0 => "one node that takes pods".to_owned(),
        further => format!("{} nodes that take pods", further + 1),
    };
    terminal::print(&format!(
        "{name} is up after {:.1} s: Kubernetes {}, {nodes}\n\
         Next: export KUBECONFIG={}\n      vmlab cluster down {name}\n",
        cluster.made.ready_s.unwrap_or_default(),
        programs.kubernetes(),
        remote::quote([cluster.kubeconfig().display().to_string()]),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn status(name: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let found = match name {
        Some(name) => vec![localcluster::find(Some(name))?],
        None => localcluster::list()?,
    };
    let all: Vec<ClusterStatus> = found.iter().map(LocalCluster::status).collect();
    let text = match (json, all.is_empty()) {
        (true, _) => serde_json::to_string_pretty(&all)? + "\n",
        (false, true) => "No clusters: `vmlab cluster up` starts one.\n".to_owned(),
        (false, false) => all.iter().map(shown).collect::<Vec<_>>().join("\n"),
    };
    terminal::print(&text)?;
    let well = all.iter().all(ClusterStatus::is_well);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

/// A cluster in words.
fn shown(status: &ClusterStatus) -> String {
    let (name, state) = (&status.name, status.state.word());
    let mut text = format!("{name} is {state}: Kubernetes {}", status.kubernetes);
    if let Some(server) = &status.server {
        let _ = write!(text, " at {server}");
    }
    text.push('\n');
    if let Some(kubeconfig) = &status.kubeconfig {
        let _ = writeln!(text, "kubeconfig: {kubeconfig}");
    }
    let _ = writeln!(text, "logs: {}/logs", status.folder);
    match status.state {
        ClusterState::Dead => {
            let _ = writeln!(text, "`vmlab cluster down {name}` removes what is left of it");
        }
        ClusterState::Starting => {}
        ClusterState::Up => {
            if let Some(why) = &status.unanswered {
                let _ = writeln!(text, "{why}");
            }
            let _ = writeln!(text, "\n{:<24} {:<8} VERSION", "COMPONENT", "STATE");
            for one in &status.components {
                let version = one.version.as_deref().unwrap_or("-");
                let _ = writeln!(text, "{:<24} {:<8} {version}", one.name, one.state.word());
                if one.state != ComponentState::Well {
                    let _ = writeln!(text, "  {}", one.reason.as_deref().unwrap_or_default());
                }
            }
            let _ = writeln!(
                text,
                "\n{:<24} {:<8} {:<10} {:<22} PODS",
                "NODE", "STATE", "KUBELET", "RUNTIME"
            );
            for node in &status.nodes {
                let _ = writeln!(
                    text,
                    "{:<24} {:<8} {:<10} {:<22} {}",
                    node.name,
                    if node.ready { "ready" } else { "unready" },
                    node.kubelet,
                    node.runtime,
                    node.running_pods
                );
                if let Some(replica) = &node.replica {
                    let _ = writeln!(text, "  an emulated host: vmlab replica shell {replica}");
                }
                if let Some(why) = &node.reason {
                    let _ = writeln!(text, "  {why}");
                }
            }
            if let Some(kubevirt) = &status.kubevirt {
                let _ = writeln!(
                    text,
                    "\nKubeVirt {}: {}, {} VMs run",
                    kubevirt.version.as_deref().unwrap_or("-"),
                    kubevirt.phase.as_deref().unwrap_or("not there"),
                    kubevirt.running_vms
                );
            }
        }
    }
    text
}

fn down(names: &[String], all: bool) -> anyhow::Result<ExitCode> {
    let found = match all {
        true => localcluster::list()?,
        false => {
            names.iter().map(|name| localcluster::find(Some(name))).collect::<Result<_, _>>()?
        }
    };
    for cluster in found {
        let was = match cluster.state() {
            ClusterState::Dead => " (it was dead already)",
            _ => "",
        };
        cluster.down()?;
        terminal::print(&format!("{} is down{was}\n", cluster.name))?;
    }
    Ok(ExitCode::SUCCESS)
}
