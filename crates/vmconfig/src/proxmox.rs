//! Proxmox VE's configuration of a VM, `/etc/pve/qemu-server/100.conf`.
//!
//! `qm` makes a command line of QEMU of it, so it is read as that one, with the
//! places of what it is made of: [`command`]. Defaults are those of `qm`, which are
//! not QEMU's: a disk bypasses the page cache and uses io_uring, a NIC of virtio has
//! vhost, a model's features must be there. Where a machine type names no version,
//! the newest is meant.
//!
//! Settings that QEMU is not told of (limits of the VM's cgroup, VLANs) and those for
//! which `VmSpec` has no place are kept.
//!
//! Source: `qm(1)`, `qm.conf(5)`; what `qm showcmd` of qemu-server 9.2 prints.

mod command;
mod config;
mod cpu;
mod devices;
mod maker;
mod memory;
mod trouble;

pub use command::command;
pub use maker::ProxmoxCommand;
pub use trouble::Trouble;

use crate::ParsedVm;
use crate::source::SourceText;

/// Why a text is no configuration of Proxmox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Not a configuration of Proxmox: it has no setting (key: value) of a VM")]
pub struct ProxmoxMismatch;

/// Whether a text looks like the configuration of a VM.
#[must_use]
pub fn holds_vm(text: &str) -> bool {
    config::holds_vm(text)
}

/// The VM of a configuration. Sections are of snapshots and of changes that wait for
/// a restart; the VM that runs is what stands before them.
///
/// # Errors
/// [`ProxmoxMismatch`] if there is no setting at all.
pub fn parse(text: &str) -> Result<ParsedVm, ProxmoxMismatch> {
    let command = command(text).ok_or(ProxmoxMismatch)?;
    Ok(parse_command(command, &SourceText::new(text)))
}

/// The VM of a configuration that is a command line already; `source` is the text that
/// it was made of.
#[must_use]
pub fn parse_command(command: ProxmoxCommand, source: &SourceText<'_>) -> ParsedVm {
    let ProxmoxCommand { line, kept, troubles, .. } = command;
    let mut parsed = crate::qemu::parse_line(line, source);
    parsed.kept.extend(kept);
    parsed.kept.extend(troubles.iter().map(|at| at.value.kept(source.line_number(at.span))));
    parsed.finish()
}

#[cfg(test)]
mod tests;
