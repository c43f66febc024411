//! Replicas in words and as JSON.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use guest::qemu::Qemu;
use replica::{Replica, ReplicaMachine};
use schemars::JsonSchema;
use serde::Serialize;
use vmconfig::Arch;

use crate::plan_text;

/// One line a replica.
pub(super) fn table(replicas: &[Replica]) -> String {
    if replicas.is_empty() {
        return "No replicas: `vmlab replica up` starts one.\n".to_owned();
    }
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<16} {:<8} {:<8} {:>5} {:>10} {:<16} {:<10} ADDRESS",
        "NAME", "STATE", "ARCH", "PCPUS", "MEMORY", "IMAGE", "AGE"
    );
    for replica in replicas {
        let made = &replica.made;
        let memory: u64 = made.node_memory_mib.iter().sum();
        let address = replica.destination().map(|there| there.to_string()).unwrap_or_default();
        let _ = writeln!(
            text,
            "{:<16} {:<8} {:<8} {:>5} {:>6} MiB {:<16} {:<10} {address}",
            replica.name,
            replica.state().word(),
            made.arch.name(),
            made.pcpus,
            memory,
            made.image,
            age(made.made_unix_s),
        );
    }
    text
}

/// How long ago that was.
fn age(unix_s: u64) -> String {
    let since = UNIX_EPOCH + Duration::from_secs(unix_s);
    let age = SystemTime::now().duration_since(since).unwrap_or(Duration::ZERO);
    plan_text::duration(age.as_secs_f64())
}

/// The replicas as a list of objects.
pub(super) fn json(replicas: &[Replica]) -> anyhow::Result<String> {
    let rows: Vec<_> = replicas.iter().map(object).collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

/// What `list --json` and `up --json` print of a replica.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReplicaFacts<'a> {
    name: &'a str,
    state: replica::ReplicaState,
    arch: Arch,
    pcpus: u32,
    memory_mib: u64,
    /// By node.
    node_memory_mib: &'a [u64],
    /// How many times as much memory the described host has.
    memory_factor: Option<f64>,
    /// The described host, in words.
    source: &'a str,
    image: &'a str,
    /// The QEMU that emulates it.
    qemu: &'a str,
    /// When it was made, seconds since the Unix epoch.
    since_unix_s: u64,
    /// Whether it began from a saved state.
    restored: bool,
    /// From QEMU's start until a command could be run.
    ready_s: Option<f64>,
    /// What the emulator can't show, in words.
    not_shown: &'a [String],
    /// Where it is, as `--on` takes it; none before it is up.
    ssh: Option<String>,
    /// The command that leads there.
    ssh_command: Option<String>,
    folder: &'a Path,
}

/// One replica as an object.
pub(super) fn object(replica: &Replica) -> ReplicaFacts<'_> {
    let made = &replica.made;
    let destination = replica.destination();
    ReplicaFacts {
        name: &replica.name,
        state: replica.state(),
        arch: made.arch,
        pcpus: made.pcpus,
        memory_mib: made.node_memory_mib.iter().sum(),
        node_memory_mib: &made.node_memory_mib,
        memory_factor: made.memory_factor,
        source: &made.source,
        image: &made.image,
        qemu: &made.qemu,
        since_unix_s: made.made_unix_s,
        restored: made.restored,
        ready_s: made.ready_s,
        not_shown: &made.not_shown,
        ssh: destination.as_ref().map(ToString::to_string),
        ssh_command: destination.as_ref().map(remote::Destination::command_line),
        folder: &replica.folder,
    }
}

/// What to know of the QEMU that emulates the host.
pub(super) fn emulator(arch: Arch, qemu: &Qemu) -> &'static str {
    match arch {
        Arch::X86_64 if !qemu.is_mended() => {
            "This QEMU's emulator now and then hangs or ends guests of several vCPUs, and hosts:\n\
             scripts/build-qemu builds one that does not (docs/replica.md)\n"
        }
        _ => "",
    }
}

/// What the emulated host is, and what it can't show.
pub(super) fn shape(shape: &ReplicaMachine) -> String {
    let mut text = String::new();
    let nodes: Vec<String> = shape
        .nodes
        .iter()
        .enumerate()
        .map(|(id, node)| format!("node {id}: pCPUs {}, {} MiB", node.pcpus, node.memory_mib))
        .collect();
    let _ = writeln!(text, "{} pCPUs ({}); {}", shape.pcpus(), shape.arch, nodes.join("; "));
    if let Some(factor) = shape.memory_factor.filter(|factor| (*factor - 1.0).abs() > 0.01) {
        let _ = writeln!(
            text,
            "Memory is scaled down: the described host has {factor:.1} times as much"
        );
    }
    not_shown(&mut text, &shape.not_shown);
    text
}

/// Adds what can't be shown.
pub(super) fn not_shown(text: &mut String, parts: &[String]) {
    text.push_str("Not shown by the emulator:\n");
    for part in parts {
        let _ = writeln!(text, "  {part}");
    }
}
