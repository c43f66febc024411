//! What an emulated host is told of itself, because its emulator can't show it.
//!
//! QEMU's emulator has the caches of its processor model, and not always the threads
//! of an x86-64 host. Whoever starts such a host writes what it stands for into a file
//! in it, and this reader lays that over what the kernel says. That pCPUs exist, and in
//! which node they and the memory are, is always the kernel's word.

use std::fs;
use std::path::PathBuf;

use topology::Host;

/// The file that declares what this machine can't show of itself: sockets,
/// cores, threads and caches, in the host format, and the emulator's name.
pub const DECLARED_HOST: &str = "/etc/vmlab/declared-host.json";

/// Environment variable that names another file than [`DECLARED_HOST`].
pub const DECLARED_HOST_VARIABLE: &str = "VMLAB_DECLARED_HOST";

/// Lays the declared host over what was read, if there is one.
pub(super) fn lay_over(host: &mut Host) {
    let path = std::env::var_os(DECLARED_HOST_VARIABLE)
        .map_or_else(|| PathBuf::from(DECLARED_HOST), PathBuf::from);
    // Hosts that are not emulated have none.
    let Ok(text) = fs::read_to_string(&path) else { return };
    match Host::from_json(&text) {
        Ok(declared) => merge(host, &declared),
        Err(error) => {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            let why = why.unwrap_or_default();
            host.warnings.push(format!("{} is not understood: {why}", path.display()));
        }
    }
}

fn merge(host: &mut Host, declared: &Host) {
    host.virtualised.is_vm = Some(true);
    host.virtualised.emulator.clone_from(&declared.virtualised.emulator);
    host.virtualised.counts_instructions = declared.virtualised.counts_instructions;
    if declared.pcpus.is_empty() {
        // Only the emulator is named: what the kernel says of the pCPUs holds.
        return;
    }
    let named = |host: &Host| host.pcpus.iter().map(|pcpu| pcpu.id).collect::<Vec<_>>();
    if named(host) != named(declared) {
        host.warnings.push(format!(
            "{} pCPUs are declared and {} are there: what is declared of them is not used",
            declared.pcpus.len(),
            host.pcpus.len()
        ));
        return;
    }
    for (pcpu, declared) in host.pcpus.iter_mut().zip(&declared.pcpus) {
        // An offline pCPU has no known place.
        if pcpu.online {
            pcpu.socket = declared.socket;
            pcpu.die = declared.die;
            pcpu.cluster = declared.cluster;
            pcpu.core = declared.core;
            pcpu.thread = declared.thread;
            pcpu.kind = declared.kind;
            pcpu.max_khz = declared.max_khz;
        }
    }
    host.caches.clone_from(&declared.caches);
    let online = host.online();
    for cache in &mut host.caches {
        cache.pcpus = cache.pcpus.intersection(&online);
    }
    host.caches.retain(|cache| !cache.pcpus.is_empty());
    let model = declared.cpu_model.as_deref().unwrap_or("the described host");
    host.warnings.push(format!(
        "Declared, not shown by this emulated host: sockets, cores, threads and caches, as those of \
         {model}. Times here are emulated time."
    ));
}

#[cfg(test)]
mod tests {
    use topology::{Cache, CacheKind, Pcpu};

    use super::*;

    fn host(threads: bool) -> Host {
        let pcpu = |id: u32| Pcpu {
            id,
            online: id != 3,
            core: Some(if threads { id % 2 } else { id }),
            thread: Some(if threads { id / 2 } else { 0 }),
            node: Some(id / 2),
            ..Pcpu::default()
        };
        Host { pcpus: (0..4).map(pcpu).collect(), ..Host::default() }
    }

    #[test]
    fn what_is_declared_counts_for_what_can_be_declared() {
        let mut declared = host(true);
        declared.pcpus.iter_mut().for_each(|pcpu| pcpu.node = Some(7));
        declared.caches = vec![Cache {
            level: 3,
            kind: CacheKind::Unified,
            size_bytes: Some(1 << 20),
            pcpus: "0-3".parse().expect("a set"),
        }];
        declared.virtualised.emulator = Some("QEMU (TCG)".to_owned());
        let mut shown = host(false);
        merge(&mut shown, &declared);
        let threads: Vec<_> = shown.pcpus.iter().map(|pcpu| pcpu.thread).collect();
        assert_eq!(threads, [Some(0), Some(0), Some(1), Some(0)], "pCPU 3 is offline");
        assert_eq!(shown.pcpus[2].node, Some(1), "nodes are the kernel's word");
        assert_eq!(shown.caches[0].pcpus.to_string(), "0-2");
        assert_eq!(shown.virtualised.emulator.as_deref(), Some("QEMU (TCG)"));
        assert!(shown.warnings[0].starts_with("Declared, not shown"), "{:?}", shown.warnings);
    }

    #[test]
    fn an_emulator_alone_can_be_declared() {
        let mut declared = Host::default();
        declared.virtualised.emulator = Some("QEMU (TCG)".to_owned());
        declared.virtualised.counts_instructions = true;
        let mut shown = host(false);
        merge(&mut shown, &declared);
        assert_eq!(shown.pcpus, host(false).pcpus);
        assert!(shown.warnings.is_empty(), "{:?}", shown.warnings);
        assert!(shown.virtualised.counts_instructions);
    }

    #[test]
    fn a_declaration_for_another_machine_is_said_and_not_used() {
        let mut declared = host(true);
        declared.pcpus.pop();
        let mut shown = host(false);
        merge(&mut shown, &declared);
        assert_eq!(shown.pcpus, host(false).pcpus);
        assert_eq!(
            shown.warnings,
            ["3 pCPUs are declared and 4 are there: what is declared of them is not used"]
        );
    }
}
