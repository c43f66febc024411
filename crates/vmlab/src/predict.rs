//! `vmlab predict`: which pCPUs Kubernetes and KubeVirt will choose.

mod jsonl;
mod text;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use placement::predict::kubelet::{KubeletSettings, ReservedCpus, TopologyOptions, TopologyPolicy};
use placement::predict::kubevirt::Vmi;
use placement::predict::{KubeletHost, KubevirtVersion, NEWEST_KNOWN, predict};
use runner::machine;
use topology::{Host, PcpuSet};
use vmconfig::kubevirt::Catalogue;

use crate::exit::FINDINGS;
use crate::host_file::load_host;
use crate::{input, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab predict vmi.yaml --host host.json --reserved 0-1
  vmlab predict vm.yaml --host host.json --kubelet full-pcpus-only --kubevirt 0.44.0,1.9.0
  vmlab predict vmi.yaml --taken 4-7,20-23 --topology-manager single-numa-node
  vmlab predict vmi.yaml --host host.json --kubelet-file /var/lib/kubelet/config.yaml
  kubectl get vmi web -o yaml | vmlab predict - --host host.json
  vmlab predict --jsonl entries.jsonl
  vmlab predict --verify                          is it right? Beside real kubelets

Kubelet: the static CPU manager policy of Kubernetes 1.36. KubeVirt: 0.44 to
1.9.";

/// What a kubelet's file says instead.
const KUBELET_OPTIONS: [&str; 4] =
    ["kubelet", "reserved", "topology_manager", "prefer_closest_numa_nodes"];

/// Predict which pCPUs the kubelet and KubeVirt give a guest
///
/// Reads a VirtualMachineInstance or VirtualMachine (YAML or JSON, several
/// documents in one file too) and shows for each version of KubeVirt where
/// every vCPU will run, and whether the guest's siblings land on siblings of the
/// host.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PredictArgs {
    /// The guest (with --jsonl: the entries), '-' for standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["jsonl", "verify"])]
    file: Option<PathBuf>,

    /// The node: a file of 'vmlab host --json' or a folder with copies of /sys
    /// and /proc; without it, this machine
    #[arg(long, value_name = "HOST")]
    host: Option<PathBuf>,

    /// The kubelet's cpuManagerPolicyOptions: full-pcpus-only,
    /// distribute-cpus-across-numa, align-by-socket,
    /// distribute-cpus-across-cores, strict-cpu-reservation,
    /// prefer-align-cpus-by-uncorecache; NAME or NAME=BOOL, with commas
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    kubelet: String,

    /// The kubelet's reservedSystemCPUs: a list like 0-1,16
    #[arg(long, value_name = "PCPUS", default_value = "", hide_default_value = true)]
    reserved: PcpuSet,

    /// The kubelet's settings instead, from its file (KubeletConfiguration, YAML or JSON) or
    /// what it answers at /configz; with the static memory manager, too
    #[arg(long, value_name = "FILE", conflicts_with_all = KUBELET_OPTIONS)]
    kubelet_file: Option<PathBuf>,

    /// pCPUs that other pods hold already
    #[arg(long, value_name = "PCPUS", default_value = "", hide_default_value = true)]
    taken: PcpuSet,

    /// topologyManagerPolicy: none, best-effort, restricted, single-numa-node
    #[arg(long, value_name = "POLICY", default_value = "none")]
    topology_manager: TopologyPolicy,

    /// topologyManagerPolicyOptions prefer-closest-numa-nodes
    #[arg(long)]
    prefer_closest_numa_nodes: bool,

    /// Versions of KubeVirt, all three numbers, with commas
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',', default_values_t = [NEWEST_KNOWN])]
    kubevirt: Vec<KubevirtVersion>,

    /// Add the hot-plug head-room of clusters with rollout strategy LiveUpdate
    /// (maxSockets = 4 x sockets)
    #[arg(long)]
    live_update: bool,

    /// The cluster asks for even numbers of pCPUs (annotation
    /// EmulatorThreadCompleteToEvenParity and feature gate AlignCPUs)
    #[arg(long)]
    even_parity: bool,

    /// Entries for programs instead: one JSON object a line in, the same with
    /// "predicted" out
    #[arg(long, conflicts_with_all = [
        "host", "kubelet", "reserved", "kubelet_file", "taken", "topology_manager",
        "prefer_closest_numa_nodes", "kubevirt", "live_update", "even_parity",
    ])]
    jsonl: bool,

    /// Hold the predictor against what real kubelets gave on many machines and with many
    /// policies: the experiments that vmlab carries, or those of a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = [
        "file", "jsonl", "host", "kubelet", "reserved", "kubelet_file", "taken",
        "topology_manager", "prefer_closest_numa_nodes", "kubevirt", "live_update", "even_parity",
    ])]
    verify: Option<Option<PathBuf>>,
}

/// Runs `vmlab predict`.
///
/// # Errors
/// Files that cannot be read; a guest, a host or options that cannot be.
pub(crate) fn run(args: &PredictArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.verify {
        return verify::run(file.as_deref());
    }
    if args.jsonl {
        return jsonl::run(args.file.as_deref());
    }
    let Some(file) = args.file.as_deref() else { bail!("No guest given: name a YAML file") };
    let guests = guests(&file.display().to_string(), &read(file)?)?;
    let host = match &args.host {
        Some(path) => load_host(path)?,
        None => machine::this_host(),
    };
    let (text, is_fine) = predict_all(args, guests, &host)?;
    terminal::print(&text)?;
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

fn read(file: &Path) -> anyhow::Result<String> {
    input::text(file).with_context(|| match file == Path::new("-") {
        true => "Cannot read standard input".to_owned(),
        false => format!("Cannot read {}", file.display()),
    })
}

/// The guests of a file of one or more YAML documents (JSON is YAML). Documents
/// of other kinds beside them are passed over.
fn guests(file: &str, text: &str) -> anyhow::Result<Vec<Vmi>> {
    let documents = lint::read_instances(file, text, &Catalogue::default())?;
    let (guests, others): (Vec<_>, Vec<_>) =
        documents.iter().map(Vmi::from_value).partition(Result::is_ok);
    if guests.is_empty() {
        return match others.into_iter().next() {
            Some(Err(error)) => Err(error).with_context(|| format!("In {file}")),
            _ => bail!("{file}: no document: give a VirtualMachineInstance or a VirtualMachine"),
        };
    }
    Ok(guests.into_iter().flatten().collect())
}

/// The kubelet's settings: from its file, or the options that say them.
fn settings(args: &PredictArgs) -> anyhow::Result<KubeletSettings> {
    let Some(path) = &args.kubelet_file else {
        let topology_options = TopologyOptions {
            prefer_closest: args.prefer_closest_numa_nodes,
            ..TopologyOptions::default()
        };
        let reserved = ReservedCpus::Set(args.reserved.clone());
        return Ok(KubeletSettings {
            options: args.kubelet.parse()?,
            topology: args.topology_manager,
            topology_options,
            ..KubeletSettings::of_static(reserved)
        });
    };
    let text = read(path)?;
    let file = path.display();
    let documents = topology::bounded::yaml(&text)
        .map_err(|broken| anyhow!("{file}:{}: {}", broken.line(&text), broken.what))?;
    let [document] = &documents[..] else {
        bail!("{file}: {} documents, not one KubeletConfiguration", documents.len())
    };
    let settings =
        KubeletSettings::from_value(document.json()).with_context(|| format!("In {file}"))?;
    if !settings.is_static {
        bail!(
            "{file}: cpuManagerPolicy is not static: pods share all pCPUs, and there is nothing to predict"
        );
    }
    Ok(settings)
}

/// All predictions as text, and whether nothing is wrong.
fn predict_all(
    args: &PredictArgs,
    guests: Vec<Vmi>,
    host: &Host,
) -> anyhow::Result<(String, bool)> {
    let machine = KubeletHost::from_host(host)?;
    let settings = settings(args)?;
    let policy = settings.policy(&machine)?;
    let node = text::PredictedHost {
        machine: &machine,
        settings: &settings,
        policy: &policy,
        taken: &args.taken,
    };
    let taken = args.taken.clone().into();
    let mut out = text::node(&node);
    let mut is_fine = true;
    for mut vmi in guests {
        if args.live_update {
            vmi = vmi.with_hotplug_headroom();
        }
        if args.even_parity {
            vmi = vmi.with_even_parity();
        }
        let predictions: Option<Vec<_>> = args
            .kubevirt
            .iter()
            .map(|version| predict(&machine, &policy, &taken, &vmi, *version))
            .collect();
        let guest = text::guest(&node, &vmi, predictions.as_deref());
        out += &guest.text;
        is_fine &= guest.is_fine;
    }
    Ok((out, is_fine))
}

#[cfg(test)]
mod tests;
