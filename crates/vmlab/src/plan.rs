//! `vmlab plan`: where VMs go on a host or a fleet, and what they shall look
//! like there.

#[cfg(feature = "kubernetes")]
mod boot;
#[cfg(feature = "kubernetes")]
mod cluster;
#[cfg(feature = "kubernetes")]
mod forecast;
mod simulate;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use placement::plan::{
    FleetPlan, HostMap, HostPlan, NamedHost, Packing, Placement, PlanRules, Size, ThreadsPerCore,
    UnplacedVm, VmWish, WishList, plan_fleet, plan_host, svg, text,
};
#[cfg(feature = "kubernetes")]
use placement::predict::KubevirtVersion;
use report::counted;
use runner::machine;
use schemars::JsonSchema;
use serde::Serialize;
use topology::{Host, PcpuSet, bounded};
use vmconfig::VmPatch;

use crate::exit::FINDINGS;
use crate::host_file::load_host;
#[cfg(feature = "kubernetes")]
use crate::kubernetes::{ClusterView, KubernetesArgs};
use crate::{input, terminal};

/// More VMs than any fleet has; a slip of the pen would fill memory.
const MOST_VMS: u64 = 1_000_000;
/// Names of fields stand to the left of this column.
const COLUMN: usize = 14;

const EXAMPLES: &str = "\
Examples:
  vmlab plan --vcpus 4 --memory 8GiB              one VM on this machine
  vmlab plan --vcpus 4 --memory 8GiB --toml       the same, for a study
  vmlab plan --list vms.toml --host host.json     several on another machine
  vmlab plan --list vms.toml --host a.json --host b.json
                                                  several on several machines
  vmlab plan --vcpus 16 --memory 64GiB --huge-pages 1GiB --svg map.svg
  vmlab plan --vcpus 4 --memory 8GiB --host host.json --simulate stream --beside 14
                                                  is it better than the other ways?
  vmlab plan --cluster                            what will become of a cluster's VMs
  vmlab plan --cluster=prod -n shop --hosts hosts/ --json";

/// Plan where VMs go: pins, guest topology, memory, huge pages
///
/// A guest core becomes a whole host core that no other VM shares; a VM stays
/// below one last-level cache, else in one node, else on the fewest nodes with
/// a guest cell on each. Says why, draws the map, and says what would fit where
/// nothing does. Changes nothing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// Read VMs from a TOML or JSON file: a table 'vm' of the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vcpus", "memory", "iothreads",
        "vhost_threads", "io_cores", "threads_per_core", "huge_pages"])]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    list: Option<PathBuf>,

    /// vCPUs of one VM
    #[arg(long, value_name = "N", required_unless_present = "list",
        value_parser = clap::value_parser!(u32).range(1..))]
    #[cfg_attr(
        feature = "kubernetes",
        arg(conflicts_with = "cluster", required_unless_present = "cluster")
    )]
    vcpus: Option<u32>,

    /// Its memory: 16GiB, 512MiB, or a number of MiB
    #[arg(long, value_name = "SIZE", required_unless_present = "list")]
    #[cfg_attr(
        feature = "kubernetes",
        arg(conflicts_with = "cluster", required_unless_present = "cluster")
    )]
    memory: Option<Size>,

    /// Its iothreads
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    iothreads: u32,

    /// Its vhost threads: one a queue of each network card with vhost
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    vhost_threads: u32,

    /// Host cores for its emulator, iothreads and vhost threads alone
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    io_cores: u32,

    /// Threads of a guest core: 1, 2..., or auto: as the host has
    #[arg(long, value_name = "N", default_value_t = ThreadsPerCore::Auto)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    threads_per_core: ThreadsPerCore,

    /// Back its memory with pages of this size: 2MiB, 1GiB
    #[arg(long, value_name = "SIZE")]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    huge_pages: Option<Size>,

    /// Plan for the machine that this file or folder describes; several make a
    /// fleet
    #[arg(long, value_name = "FILE")]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    host: Vec<PathBuf>,

    /// Leave the cores of these pCPUs to the host, or 'none' [default: the core
    /// of the lowest pCPU]
    #[arg(long, value_name = "PCPUS", value_parser = pcpus_or_none)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    leave: Option<PcpuSet>,

    /// Leave the cores of these pCPUs too: they serve many interrupts
    #[arg(long, value_name = "PCPUS", default_value = "", hide_default_value = true)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    irq_heavy: PcpuSet,

    /// Don't touch the cores of these pCPUs: others have them
    #[arg(long, value_name = "PCPUS", default_value = "", hide_default_value = true)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    taken: PcpuSet,

    /// Let VMs that don't fit otherwise share cores, up to so many vCPUs a pCPU
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    overcommit: Option<f64>,

    /// Print the plan as JSON
    #[arg(long, conflicts_with = "toml")]
    json: bool,

    /// Print a study's `[vm]` table; needs exactly one VM
    #[arg(long)]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    toml: bool,

    /// Rank the plan and other ways to place the same VMs by the simulator, as
    /// this kind of work sees them; needs exactly one host
    #[arg(long, value_name = "WORK", conflicts_with = "toml")]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    simulate: Option<simulate::SimulatedWork>,

    /// Threads of the host that are busy beside the VMs in the simulation
    #[arg(long, value_name = "N", default_value_t = 0, requires = "simulate",
        value_parser = clap::value_parser!(u32).range(0..=10_000))]
    beside: u32,

    /// Draws of the simulator's costs
    #[arg(long, value_name = "N", default_value_t = 16, requires = "simulate",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    draws: u32,

    /// Write the map as SVG to this file, '-' for standard output; needs
    /// exactly one host
    #[arg(long, value_name = "FILE")]
    #[cfg_attr(feature = "kubernetes", arg(conflicts_with = "cluster"))]
    svg: Option<PathBuf>,

    /// With --cluster: version of KubeVirt, all three numbers, instead of what its object
    /// says
    #[cfg(feature = "kubernetes")]
    #[arg(long, value_name = "VERSION", requires = "cluster")]
    kubevirt: Option<KubevirtVersion>,

    #[cfg(feature = "kubernetes")]
    #[command(flatten)]
    cluster: KubernetesArgs,
}

fn pcpus_or_none(text: &str) -> Result<PcpuSet, topology::ParsePcpuSetError> {
    if text == "none" { Ok(PcpuSet::new()) } else { text.parse() }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (1.0..=100.0).contains(&ratio) => Ok(ratio),
        Ok(_) => Err("a ratio of vCPUs to pCPUs is from 1 to 100".to_owned()),
        Err(_) => Err("not a number; write 1.5 for 3 vCPUs on 2 pCPUs".to_owned()),
    }
}

/// Runs `vmlab plan`.
///
/// # Errors
/// Files that can't be read or don't say what they should; output that cannot
/// be written.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "kubernetes")]
    if let Some(view) = ClusterView::read(&args.cluster, args.kubevirt)? {
        let forecast = forecast::forecast(&view);
        match args.json {
            true => print_json(&forecast)?,
            false => terminal::print(&cluster::text(&forecast))?,
        }
        let fine = forecast.all_can_start();
        return Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) });
    }
    let wishes = wishes(args)?;
    let rules = PlanRules {
        leave: args.leave.clone(),
        irq_heavy: args.irq_heavy.clone(),
        taken: args.taken.clone(),
        overcommit: args.overcommit,
    };
    let hosts = hosts(&args.host)?;
    let all_placed = match hosts.as_slice() {
        [(_, host)] => one_host(args, host, &wishes, &rules)?,
        hosts => fleet(args, hosts, &wishes, &rules)?,
    };
    Ok(if all_placed { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

fn wishes(args: &PlanArgs) -> anyhow::Result<Vec<VmWish>> {
    let wishes = match &args.list {
        Some(path) => read_list(path)?,
        None => vec![VmWish {
            iothreads: args.iothreads,
            vhost_threads: args.vhost_threads,
            io_cores: args.io_cores,
            threads_per_core: args.threads_per_core,
            huge_pages: args.huge_pages,
            ..VmWish::new("vm", args.vcpus.unwrap_or(0), args.memory.unwrap_or_default())
        }],
    };
    let count: u64 = wishes.iter().map(|wish| u64::from(wish.count)).sum();
    ensure!(count > 0, "There is no VM to plan: the list is empty");
    ensure!(count <= MOST_VMS, "{count} VMs are too many to plan at once: at most {MOST_VMS}");
    Ok(wishes)
}

fn read_list(path: &Path) -> anyhow::Result<Vec<VmWish>> {
    let name = path.display();
    let text = input::text(path).with_context(|| format!("Cannot read {name}"))?;
    let what = || format!("{name} is no list of VMs");
    let list: WishList = if path.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(&text).with_context(what)?
    } else {
        bounded::toml(&name.to_string(), &text)?
    };
    Ok(list.vm)
}

fn hosts(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, Host)>> {
    let mut hosts = Vec::new();
    for path in paths {
        let name = path.file_stem().map_or_else(String::new, |name| name.display().to_string());
        hosts.push((name, load_host(path)?));
    }
    if hosts.is_empty() {
        hosts.push((String::new(), machine::this_host()));
    }
    for (name, host) in &hosts {
        let of = if name.is_empty() { "this machine".to_owned() } else { format!("{name:?}") };
        ensure!(!host.online().is_empty(), "The pCPUs of {of} are not known: nothing to plan on");
    }
    Ok(hosts)
}

/// True if every VM has a place.
fn one_host(
    args: &PlanArgs,
    host: &Host,
    wishes: &[VmWish],
    rules: &PlanRules,
) -> anyhow::Result<bool> {
    let plan = plan_host(host, wishes, rules);
    let placed: Vec<&Placement> = plan.placements.iter().collect();
    let map = HostMap::new(host, rules, &placed);
    if args.svg.as_deref() == Some(Path::new("-")) {
        ensure!(
            !args.json && !args.toml,
            "Two things would go to standard output: give --svg a file"
        );
        terminal::print(&svg(&map))?;
        return Ok(plan.refused.is_empty());
    }
    if let Some(work) = args.simulate {
        ensure!(plan.refused.is_empty(), "Not all VMs have a place: there is nothing to simulate");
        let asked = simulate::SimulationOptions { work, beside: args.beside, draws: args.draws };
        let ranking = simulate::rank(host, wishes, rules, &plan, &asked)?;
        terminal::print(&if args.json { ranking.json()? } else { ranking.text() })?;
        return Ok(true);
    }
    if let Some(path) = &args.svg {
        fs::write(path, svg(&map))
            .with_context(|| format!("Cannot write the map to {}", path.display()))?;
    }
    if args.json {
        print_json(&plan)?;
    } else if args.toml {
        print_toml(&placed, &plan.refused)?;
    } else {
        terminal::print(&plan_text(&plan, &map, terminal::width()))?;
    }
    Ok(plan.refused.is_empty())
}

/// True if every VM has a place.
fn fleet(
    args: &PlanArgs,
    hosts: &[(String, Host)],
    wishes: &[VmWish],
    rules: &PlanRules,
) -> anyhow::Result<bool> {
    if args.svg.is_some() {
        bail!("A map shows one host: give --svg with one --host");
    }
    if args.simulate.is_some() {
        bail!("One host is simulated at a time: give --simulate with one --host");
    }
    let named: Vec<NamedHost> = hosts.iter().map(|(name, host)| NamedHost { name, host }).collect();
    let plan = plan_fleet(&named, wishes, rules, Packing::default());
    if args.json {
        let names: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
        print_json(&FleetJson { hosts: names, plan: &plan })?;
    } else if args.toml {
        let placed: Vec<&Placement> = plan.vms.iter().map(|vm| &vm.placement).collect();
        print_toml(&placed, &plan.refused)?;
    } else {
        terminal::print(&fleet_text(&plan, hosts, terminal::width()))?;
    }
    Ok(plan.refused.is_empty())
}

#[cfg(feature = "kubernetes")]
pub(crate) use forecast::ClusterForecast;

#[derive(Serialize, JsonSchema)]
pub(crate) struct FleetJson<'a> {
    /// Names of the hosts, which `vms[].host` counts.
    hosts: Vec<&'a str>,
    #[serde(flatten)]
    plan: &'a FleetPlan,
}

fn print_json(plan: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(plan).context("Cannot write the plan as JSON")?;
    terminal::print(&(json + "\n"))?;
    Ok(())
}

#[derive(Serialize, JsonSchema)]
struct StudyVm {
    vm: VmPatch,
}

fn print_toml(placed: &[&Placement], refused: &[UnplacedVm]) -> anyhow::Result<()> {
    if let Some(refusal) = refused.first() {
        bail!("{} has no place: {}", refusal.name, refusal.why);
    }
    let [placement] = placed else {
        bail!("A study's [vm] table is one VM, here are {}: plan one, or use --json", placed.len());
    };
    let mut text = String::new();
    for reason in &placement.reasons {
        text.push_str(&format!("# {reason}\n"));
    }
    let vm = StudyVm { vm: placement.patch() };
    text.push_str(&toml::to_string(&vm).context("Cannot write the VM as TOML")?);
    terminal::print(&text)?;
    Ok(())
}

fn plan_text(plan: &HostPlan, map: &HostMap, width: usize) -> String {
    let mut out = String::new();
    for placement in &plan.placements {
        placement_text(&mut out, placement, width);
        out.push('\n');
    }
    for refusal in &plan.refused {
        refusal_text(&mut out, refusal, width);
        out.push('\n');
    }
    out.push_str(&text(map, width));
    out.push('\n');
    let or_none = |set: &PcpuSet| if set.is_empty() { "none".to_owned() } else { set.to_string() };
    field(&mut out, "host keeps", &pieces(&or_none(&plan.leave_to_host)), width);
    field(&mut out, "free", &pieces(&or_none(&plan.free)), width);
    warnings(&mut out, &plan.warnings, width);
    out
}

fn placement_text(out: &mut String, placement: &Placement, width: usize) {
    let Placement { name, vcpus, memory, .. } = placement;
    out.push_str(&format!("{name}: {}, {memory}\n", counted(*vcpus, "vCPU")));
    field(out, "  vCPUs", &pins(placement), width);
    let topology: Vec<String> = placement
        .topology
        .levels()
        .into_iter()
        .filter(|(level, count)| *count > 1 || !["dies", "clusters"].contains(level))
        .map(|(level, count)| {
            let level = if count == 1 { level.trim_end_matches('s') } else { level };
            format!("{count} {level}")
        })
        .collect();
    field(out, "  topology", &topology.join(", "), width);
    for cell in placement.cells.iter().filter(|_| placement.cells.len() > 1) {
        let text = format!(
            "vCPUs {} on node {}, {} of node {}",
            cell.vcpus, cell.host_node, cell.memory, cell.memory_node
        );
        field(out, &format!("  cell {}", cell.id), &text, width);
    }
    if let [cell] = placement.cells.as_slice() {
        field(out, "  memory", &format!("{} of node {}", cell.memory, cell.memory_node), width);
    }
    for need in &placement.huge_pages {
        let reserve = match need.to_reserve {
            0 => "all reserved".to_owned(),
            pages => format!("{pages} still to reserve"),
        };
        let text = format!("{} of {} on node {}, {reserve}", need.pages, need.page, need.node);
        field(out, "  huge pages", &text, width);
    }
    let threads = [("emulator", std::slice::from_ref(&placement.emulator))]
        .into_iter()
        .chain([("iothread", placement.iothreads.as_slice()), ("vhost", &placement.vhost)]);
    for (what, all) in threads {
        for (at, pcpus) in all.iter().enumerate() {
            // QEMU and libvirt count iothreads from 1.
            let label =
                if what == "emulator" { what.to_owned() } else { format!("{what} {}", at + 1) };
            let text = if pcpus.is_empty() {
                "anywhere".to_owned()
            } else {
                let s = if pcpus.len() == 1 { "" } else { "s" };
                format!("on pCPU{s} {}", pieces(&pcpus.to_string()))
            };
            field(out, &format!("  {label}"), &text, width);
        }
    }
    for (at, reason) in placement.reasons.iter().enumerate() {
        let name = if at == 0 { "  why" } else { "" };
        field(out, name, &format!("- {reason}"), width);
    }
}

/// Which vCPUs are where: `0-3 on pCPUs 1 17 2 18`.
fn pins(placement: &Placement) -> String {
    if placement.floating {
        let mut pools: BTreeMap<&PcpuSet, PcpuSet> = BTreeMap::new();
        for (vcpu, pcpus) in placement.vcpu_pins.iter() {
            pools.entry(pcpus).or_default().insert(*vcpu);
        }
        let mut pools: Vec<_> = pools.into_iter().collect();
        pools.sort_by_key(|(_, vcpus)| vcpus.first());
        let parts: Vec<String> = pools
            .iter()
            .map(|(pcpus, vcpus)| {
                format!("{vcpus} anywhere on pCPUs {}", pieces(&pcpus.to_string()))
            })
            .collect();
        return parts.join("; ");
    }
    // Cores apart, so that siblings are seen.
    let all: Vec<String> = placement.pcpus().map(|pcpu| pcpu.to_string()).collect();
    let threads = placement.topology.threads.max(1) as usize;
    let cores: Vec<String> = all.chunks(threads).map(|core| core.join("+")).collect();
    match placement.vcpus {
        1 => format!("0 on pCPU {}", cores.join(" ")),
        vcpus => format!("0-{} on pCPUs {}", vcpus - 1, cores.join(" ")),
    }
}

fn refusal_text(out: &mut String, refusal: &UnplacedVm, width: usize) {
    field(out, &format!("{}:", refusal.name), &format!("no place: {}", refusal.why), width);
    if !refusal.nearest.is_empty() {
        let nearest = refusal.nearest.join(", or ");
        field(out, "  would fit", &nearest, width);
    }
}

fn warnings(out: &mut String, warnings: &[String], width: usize) {
    for warning in warnings {
        field(out, "warning", warning, width);
    }
}

fn fleet_text(plan: &FleetPlan, hosts: &[(String, Host)], width: usize) -> String {
    let mut out = String::new();
    for (at, (host, _)) in hosts.iter().enumerate() {
        let here: Vec<&Placement> =
            plan.vms.iter().filter(|vm| vm.host == at).map(|vm| &vm.placement).collect();
        if here.is_empty() {
            continue;
        }
        out.push_str(&format!("{host}\n"));
        for placement in here {
            let mut nodes: Vec<String> = placement.nodes().map(|node| node.to_string()).collect();
            nodes.dedup();
            let s = if nodes.len() > 1 { "s" } else { "" };
            let text = format!(
                "{}, {}, node{s} {}: {}",
                counted(placement.vcpus, "vCPU"),
                placement.memory,
                nodes.join("+"),
                pins(placement)
            );
            field(&mut out, &format!("  {}", placement.name), &text, width);
        }
    }
    for refusal in &plan.refused {
        refusal_text(&mut out, refusal, width);
    }
    let totals = plan.totals;
    let placed = plan.vms.len();
    out.push('\n');
    let text = format!(
        "{placed} VMs on {} of {} hosts, {} without a place",
        totals.hosts_used,
        hosts.len(),
        plan.refused.len()
    );
    field(&mut out, "placed", &text, width);
    let text = format!(
        "{} cores on used hosts; {:.1} % of theirs are cut off from their host's freest node",
        totals.free_cores,
        totals.fragmentation * 100.0
    );
    field(&mut out, "free", &text, width);
    let text = format!(
        "{} VMs over several nodes, {} over several last-level caches",
        totals.over_nodes, totals.over_caches
    );
    field(&mut out, "spread", &text, width);
    warnings(&mut out, &plan.warnings, width);
    out
}

/// A list of pCPUs that may be broken where its parts end.
fn pieces(list: &str) -> String {
    list.replace(',', ", ")
}

/// A name and what it is, broken into lines that fit.
fn field(out: &mut String, name: &str, text: &str, width: usize) {
    let mut line = format!("{name:<COLUMN$}");
    // A long name has its line to itself.
    if name.len() >= COLUMN {
        out.push_str(name);
        out.push('\n');
        line = " ".repeat(COLUMN);
    }
    let mut is_fresh = true;
    for word in text.split(' ') {
        if !is_fresh && line.len() + 1 + word.len() > width {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(COLUMN);
            is_fresh = true;
        }
        if !is_fresh {
            line.push(' ');
        }
        line.push_str(word);
        is_fresh = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}
