//! What the QEMU and the libvirt of a host can do: machine types, processor models
//! and what blocks them, devices, firmware.
//!
//! Read from what these programs say of themselves: `virsh capabilities`, `virsh
//! domcapabilities`, and answers of QMP ([`QMP_COMMANDS`]). What none of the texts
//! tells is not known, and nothing is concluded from it. The host's pCPUs, nodes
//! and memory, which `virsh capabilities` tells too, are [`topology`]'s.

mod libvirt;
mod model;
mod qmp;
#[cfg(test)]
mod tests;

pub use model::{CpuModel, CpuModels, DomainKind, MachineType, Offers, feature_name};
use topology::bounded::MalformedText;

/// The commands whose answers [`read`] understands, in any order, as QMP
/// prints them.
///
/// Source: QEMU QMP Reference Manual.
pub const QMP_COMMANDS: [&str; 5] =
    ["query-kvm", "query-target", "query-machines", "query-cpu-definitions", "qom-list-types"];

/// The command that tells each feature of the processor model with all that the host has,
/// whose arguments are those of [`all_features`].
pub const QMP_EXPANSION: &str = "query-cpu-model-expansion";

/// The arguments of [`QMP_EXPANSION`] under an accelerator.
#[must_use]
pub fn all_features(accel: crate::Accel) -> serde_json::Value {
    let name = crate::defaults::cpu_model(accel);
    serde_json::json!({ "type": "full", "model": { "name": name } })
}

/// Error type of [`read`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadOffersError {
    /// None of the formats.
    #[error(
        "{name}: tells nothing of what a host can do; understood are the output of virsh \
         domcapabilities, of virsh capabilities, and answers of QMP"
    )]
    Unrecognised {
        /// The text's name.
        name: String,
    },
    /// A format with something wrong in it.
    #[error("{name}:{line}: {what}")]
    Damaged {
        /// The text's name.
        name: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// Reads a text, whose format shows in its content; messages call it `name`.
///
/// # Errors
/// [`ReadOffersError`] with the line.
///
/// Source: libvirt, "Driver capabilities XML format" and "Domain capabilities XML
/// format"; QEMU QMP Reference Manual.
pub fn read(name: &str, text: &str) -> Result<Offers, ReadOffersError> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let read = if start.starts_with('<') {
        libvirt::read(text)
    } else if start.starts_with('{') {
        qmp::read(text)
    } else {
        Ok(Offers::default())
    };
    let offers = read.map_err(|broken: MalformedText| ReadOffersError::Damaged {
        name: name.to_owned(),
        line: broken.line(text),
        what: broken.what,
    })?;
    if offers == Offers::default() {
        return Err(ReadOffersError::Unrecognised { name: name.to_owned() });
    }
    Ok(offers)
}
