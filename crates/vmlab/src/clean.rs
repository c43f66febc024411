//! `vmlab clean`: end what dead runs left behind, and nothing else.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use guest::Cancel;
use guest::libvirt::{Uri, Virsh};
use host::counters::tracing;
use host::kernel_disk;
use host::owner::{self, Orphan, OrphanEnd};
use host::settings::{self, Mode, RestoreOutcome, SettingsTree};
use replica::{Replica, ReplicaState};

use crate::exit::ERROR;
use crate::settings::outcomes;
use crate::terminal;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  vmlab clean --dry-run   show what dead runs left
  vmlab clean             end it
  vmlab clean --kubevirt prod
                          and look in a cluster, where the runs' folders are gone
  vmlab clean --force     restore host settings whatever others did to them

A run that was killed (kill -9, power) may leave QEMU processes, load
generators, runtime folders, tracing instances, disks of the kernel's and changed
host settings. libvirtd
itself ends the domains of a run that is no more; one that it missed is ended if its
metadata name a vmlab that is dead, and no other domain is touched. Instances of
KubeVirt's and Jobs are deleted in the cluster where the dead run had them. Every
process that vmlab starts carries the identity of the vmlab that started it;
only those whose vmlab is dead are ended. A host setting that somebody else has changed since is left
alone and said; after a reboot there is nothing to restore, because nothing that
vmlab sets outlives one. Replicas and clusters that are up stay (`vmlab replica
down`, `vmlab cluster down`); dead ones are removed. Results folders are never touched.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CleanArgs {
    /// Only show what would be ended.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Restore host settings even if somebody else has changed them since, forget
    /// those that can't be restored, set journals aside that can't be read, and forget
    /// what is in clusters that do not answer.
    #[arg(long)]
    force: bool,
    /// Restore the settings of the machine whose sys/ and proc/ lie in this
    /// folder, and do nothing else.
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
    /// Look for domains at this libvirt, instead of at those that run on this machine;
    /// may be given again.
    #[arg(long, value_name = "URI", conflicts_with = "sysfs_root")]
    libvirt: Vec<String>,
    /// Look for instances of this machine's dead runs in the cluster of this context,
    /// beside those whose runs' folders tell where they are; may be given again.
    #[arg(long, value_name = "CONTEXT", conflicts_with = "sysfs_root")]
    kubevirt: Vec<String>,
    /// The same with Jobs of `vmlab run --on k8s`.
    #[arg(long, value_name = "CONTEXT", conflicts_with = "sysfs_root")]
    k8s: Vec<String>,
}

pub(crate) fn run(args: &CleanArgs) -> anyhow::Result<ExitCode> {
    let mut lines = Vec::new();
    let mut failed = false;
    if args.dry_run && args.sysfs_root.is_none() {
        lines.extend(owner::orphans().iter().map(|orphan| format!("would end {}", show(orphan))));
        for dir in owner::stale_runtime_dirs() {
            let (instances, bad) = instances_of(&dir.path, false);
            lines.extend(instances);
            if bad && !args.force {
                failed = true;
                lines.push(kept(&dir.path));
            } else {
                lines.push(format!("would remove {}", dir.path.display()));
            }
        }
        lines.extend(
            dead_replicas().iter().map(|dead| format!("would remove replica {}", dead.name)),
        );
        let (clusters, bad) = dead_clusters(false);
        lines.extend(clusters);
        failed |= bad;
        let disks = kernel_disk::leftovers();
        lines.extend(
            disks.iter().map(|disk| format!("would remove disk {} of the kernel's", disk.name)),
        );
        let instances = tracing::stale_instances();
        lines.extend(instances.iter().map(|one| format!("would remove {}", one.path.display())));
        let (domains, bad) = left_domains(&args.libvirt, false);
        lines.extend(domains);
        failed |= bad;
        let (instances, bad) = left_in_clusters(args, false);
        lines.extend(instances);
        failed |= bad;
    } else if !args.dry_run && args.sysfs_root.is_none() {
        let (ended, bad) = end(|_| true, args.force);
        lines.extend(ended);
        failed |= bad;
        // Behind the processes: a VM may have used one.
        let (disks, bad) = left_disks();
        lines.extend(disks);
        failed |= bad;
        let (domains, bad) = left_domains(&args.libvirt, true);
        lines.extend(domains);
        failed |= bad;
        let (instances, bad) = left_in_clusters(args, true);
        lines.extend(instances);
        failed |= bad;
        let (clusters, bad) = dead_clusters(true);
        lines.extend(clusters);
        failed |= bad;
        for dead in dead_replicas() {
            match dead.down() {
                Ok(()) => lines.push(format!("removed replica {}", dead.name)),
                Err(error) => {
                    failed = true;
                    lines.push(error.to_string());
                }
            }
        }
    }
    let tree = args.sysfs_root.as_deref().map_or_else(SettingsTree::live, SettingsTree::at);
    let mode = match (args.dry_run, args.force) {
        (true, _) => Mode::Look,
        (false, false) => Mode::Restore,
        (false, true) => Mode::Force,
    };
    let (restored, bad) = restore(&tree, mode);
    lines.extend(restored);
    failed |= bad;
    if lines.is_empty() {
        lines.push("Nothing was left behind.".to_owned());
    }
    lines.push(String::new());
    terminal::print(&lines.join("\n"))?;
    Ok(if failed { ExitCode::from(ERROR) } else { ExitCode::SUCCESS })
}

/// Removes the disks and targets of the kernel's that dead runs left; true if one could
/// not be removed.
fn left_disks() -> (Vec<String>, bool) {
    let (mut lines, mut failed) = (Vec::new(), false);
    for disk in kernel_disk::leftovers() {
        let name = &disk.name;
        match disk.remove() {
            Ok(()) => lines.push(format!("removed disk {name} of the kernel's")),
            Err(error) => {
                failed = true;
                lines.push(format!("cannot remove disk {name} of the kernel's: {error}"));
            }
        }
    }
    (lines, failed)
}

/// Ends what the dead sessions of one run left, at the libvirt of its own, too; says
/// what it did.
pub(crate) fn end_leftovers_of(run_id: &str, libvirt: Option<&Uri>) -> Vec<String> {
    let mut lines = end(|run| run == run_id, false).0;
    if let Some(uri) = libvirt {
        lines.extend(domains(&uri.to_string(), true, |run| run == run_id).0);
    }
    lines
}

/// Ends the domains at a libvirt that dead runs left and that `wanted` accepts by their
/// id, or only names them; true if one could not be ended, or libvirt not be asked.
fn domains(uri: &str, end: bool, wanted: impl Fn(&str) -> bool) -> (Vec<String>, bool) {
    let (virsh, cancel) = (Virsh::new(uri), Cancel::new());
    let left = match runner::domains::left(&virsh, &cancel) {
        Ok(left) => left,
        Err(error) => return (vec![terminal::error_text(&error.into())], true),
    };
    let (mut lines, mut failed) = (Vec::new(), false);
    for domain in left.iter().filter(|domain| wanted(&domain.owner.run_id)) {
        let what = format!("domain {} of run {} at {uri}", domain.name, domain.owner.run_id);
        if !end {
            lines.push(format!("would end {what}"));
            continue;
        }
        match domain.end(&virsh, &cancel) {
            Ok(()) => lines.push(format!("ended {what}")),
            Err(error) => {
                failed = true;
                lines.push(format!("cannot end {what}: {error}"));
            }
        }
    }
    (lines, failed)
}

/// The libvirts of this machine whose daemon runs or is waited for by a socket. Asking
/// for a session that nobody has would start one.
fn libvirts() -> Vec<String> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("libvirt"));
    let home = env::var_os("HOME").map(|dir| PathBuf::from(dir).join(".cache/libvirt"));
    let session = runtime.or(home);
    let there = |folder: &Path| {
        ["virtqemud-sock", "libvirt-sock"].iter().any(|socket| folder.join(socket).exists())
    };
    let places = [("system", Some(PathBuf::from("/run/libvirt"))), ("session", session)];
    let found = places.into_iter().filter(|(_, folder)| folder.as_deref().is_some_and(there));
    found.map(|(name, _)| format!("qemu:///{name}")).collect()
}

/// Domains that dead runs left at the libvirts that are named, or at those of this
/// machine as far as this user may ask them.
fn left_domains(named: &[String], end: bool) -> (Vec<String>, bool) {
    let found = if named.is_empty() { libvirts() } else { named.to_vec() };
    let (mut lines, mut failed) = (Vec::new(), false);
    for uri in found {
        let (more, bad) = domains(&uri, end, |_| true);
        let asked = !named.is_empty() || Virsh::new(&uri).ask(&["version"], &Cancel::new()).is_ok();
        if asked {
            lines.extend(more);
            failed |= bad;
        }
    }
    (lines, failed)
}

/// Puts back the host settings that dead runs left; says what it did.
pub(crate) fn restore_leftovers() -> Vec<String> {
    restore(&SettingsTree::live(), Mode::Restore).0
}

/// Puts back the host settings that dead runs left; true if one could not be.
fn restore(tree: &SettingsTree, mode: Mode) -> (Vec<String>, bool) {
    let stale = match settings::restore_stale(tree, mode) {
        Ok(stale) => stale,
        Err(error) => return (vec![terminal::error_text(&error.into())], true),
    };
    let mut lines = Vec::new();
    let mut failed = false;
    for stale in stale {
        match stale.restored {
            Ok(restored) => {
                let bad = |outcome: &RestoreOutcome| matches!(outcome, RestoreOutcome::Failed(_));
                failed |= restored.iter().any(|one| bad(&one.outcome));
                lines.extend(outcomes(&restored, mode));
            }
            Err(error) => {
                let why = terminal::error_text(&error.into());
                match stale.set_aside {
                    Some(aside) => {
                        let aside = aside.display();
                        lines.push(format!(
                            "{why}; it is now {aside}, and what it names may still be changed"
                        ));
                    }
                    None => {
                        failed = true;
                        lines.push(format!("{why}; --force sets it aside"));
                    }
                }
            }
        }
    }
    (lines, failed)
}

/// Replicas whose QEMU, or whose vmlab that booted them, was killed. Those that
/// are up outlive the command that made them on purpose.
fn dead_replicas() -> Vec<Replica> {
    let mut all = replica::list().unwrap_or_default();
    all.retain(|replica| replica.state() == ReplicaState::Dead);
    all
}

/// Clusters whose keeper, or whose vmlab that started them, was killed: removed, or only
/// named; true if one could not be removed.
#[cfg(feature = "kubernetes")]
fn dead_clusters(end: bool) -> (Vec<String>, bool) {
    let mut all = match localcluster::list() {
        Ok(all) => all,
        Err(error) => return (vec![terminal::error_text(&error.into())], true),
    };
    all.retain(|cluster| cluster.state() == localcluster::ClusterState::Dead);
    let (mut lines, mut failed) = (Vec::new(), false);
    for dead in all {
        if !end {
            lines.push(format!("would remove cluster {}", dead.name));
            continue;
        }
        match dead.down() {
            Ok(()) => lines.push(format!("removed cluster {}", dead.name)),
            Err(error) => {
                failed = true;
                lines.push(terminal::error_text(&error.into()));
            }
        }
    }
    (lines, failed)
}

#[cfg(not(feature = "kubernetes"))]
fn dead_clusters(_end: bool) -> (Vec<String>, bool) {
    (Vec::new(), false)
}

/// Instances in clusters that the dead run with this runtime folder left.
#[cfg(feature = "kubernetes")]
fn instances_of(folder: &Path, end: bool) -> (Vec<String>, bool) {
    crate::kubernetes::left::in_folder(folder, end)
}

#[cfg(not(feature = "kubernetes"))]
fn instances_of(_folder: &Path, _end: bool) -> (Vec<String>, bool) {
    (Vec::new(), false)
}

/// What dead runs left in the clusters of the contexts that are named.
#[cfg(feature = "kubernetes")]
fn left_in_clusters(args: &CleanArgs, end: bool) -> (Vec<String>, bool) {
    use ::cluster::{ClusterTarget, MarkedKind};
    let (mut lines, mut failed) = (Vec::new(), false);
    for (contexts, kind) in [(&args.kubevirt, MarkedKind::Instance), (&args.k8s, MarkedKind::Job)] {
        for context in contexts {
            let target = ClusterTarget { context: Some(context.clone()), ..Default::default() };
            let (more, bad) = crate::kubernetes::left::in_cluster(&target, kind, end);
            lines.extend(more);
            failed |= bad;
        }
    }
    (lines, failed)
}

#[cfg(not(feature = "kubernetes"))]
fn left_in_clusters(args: &CleanArgs, _end: bool) -> (Vec<String>, bool) {
    let built = |_: &String| "This vmlab was built without Kubernetes".to_owned();
    let named = || args.kubevirt.iter().chain(&args.k8s);
    (named().map(built).collect(), named().next().is_some())
}

/// True if dead runs left processes that would disturb a measurement.
pub(crate) fn anything_running() -> bool {
    !owner::orphans().is_empty()
}

/// Ends processes and removes runtime folders of dead runs that `wanted`
/// accepts by their id; true if something could not be ended.
fn end(wanted: impl Fn(&str) -> bool, force: bool) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    let mut failed = false;
    for (orphan, result) in owner::end_orphans(|orphan| wanted(&orphan.owner.run_id), GRACE) {
        match result {
            Ok(OrphanEnd::AlreadyGone) => {}
            Ok(OrphanEnd::Terminated) => lines.push(format!("ended {}", show(&orphan))),
            Ok(OrphanEnd::Killed) => lines.push(format!("killed {}", show(&orphan))),
            Err(error) => {
                failed = true;
                lines.push(error.to_string());
            }
        }
    }
    for dir in owner::stale_runtime_dirs() {
        let run_id = dir.owner.as_ref().map(|owner| owner.run_id.as_str()).unwrap_or_default();
        if !wanted(run_id) {
            continue;
        }
        let (instances, bad) = instances_of(&dir.path, true);
        lines.extend(instances);
        if bad && !force {
            failed = true;
            lines.push(kept(&dir.path));
            continue;
        }
        match dir.remove() {
            Ok(()) => lines.push(format!("removed {}", dir.path.display())),
            Err(error) => {
                failed = true;
                lines.push(format!("cannot remove {}: {error}", dir.path.display()));
            }
        }
    }
    // They belong to no run that goes on: whose they were is dead.
    for instance in tracing::stale_instances() {
        match instance.remove() {
            Ok(()) => lines.push(format!("removed {}", instance.path.display())),
            Err(error) => {
                failed = true;
                lines.push(format!("cannot remove {}: {error}", instance.path.display()));
            }
        }
    }
    (lines, failed)
}

/// What is said of a folder that alone tells where objects in a cluster may be left.
fn kept(folder: &Path) -> String {
    let folder = folder.display();
    format!("{folder} stays, it tells where that is; --force removes it and forgets what is there")
}

fn show(orphan: &Orphan) -> String {
    // A script has several lines.
    let words = orphan.command_line.split_whitespace().collect::<Vec<_>>().join(" ");
    let command: String = words.chars().take(60).collect();
    format!("process {} of run {}: {command}", orphan.pid, orphan.owner.run_id)
}
