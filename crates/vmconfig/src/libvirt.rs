//! libvirt's domain XML.
//!
//! What libvirt has no element for is passed through `<qemu:commandline>`
//! where QEMU has an option for it, and is a loss where it has none.
//!
//! Source: libvirt `docs/formatdomain.rst` and `domaincommon.rng`; a test holds
//! the text to `virt-xml-validate` and to a real libvirtd.

mod backing;
mod emit;
mod launched;
pub mod list;
mod parse;
mod parse_devices;
mod tree;
mod xml;

pub use emit::{emit, emit_interface, emit_launched};
pub use launched::{LaunchedDomain, OWNER_NAMESPACE, owner_in};
pub use parse::{LibvirtMismatch, iothread_ids, parse, parse_domain};
pub use parse_devices::bus_of_target;
pub use tree::{DomainElement, read_domains};

/// The namespace of `<qemu:commandline>`.
const QEMU_NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// Serial number by which the disk is known that vmlab's own kernels boot from.
const ROOT_SERIAL: &str = "vmlab-root";

/// Properties of a CPU that are QEMU's alone: libvirt knows features of
/// processors, and has elements for some of KVM's.
fn is_qemus_own(name: &str) -> bool {
    ["kvm-", "kvm_", "hv-", "hv_", "host-", "l3-", "x-", "tcg-", "fill-", "full-", "cpuid-"]
        .iter()
        .any(|start| name.starts_with(start))
        || ["check", "enforce", "kvm"].contains(&name)
}

#[cfg(test)]
mod tests;
