//! What a configuration asks of QEMU, libvirt and the processor, beside what rules
//! of their own look at: each value with its place, to be held against what a host
//! offers ([`vmconfig::offers`]).

use std::collections::BTreeSet;

use vmconfig::source::{LocatedValue, Span};

/// What one VM asks for.
#[derive(Debug, Default)]
pub(crate) struct Requirements {
    /// The machine type without its properties.
    pub(crate) machine: Option<LocatedValue<String>>,
    /// The processor model, or libvirt's mode.
    pub(crate) model: Option<LocatedValue<String>>,
    /// Whether the VM does not start when the processor lacks something.
    pub(crate) exact: bool,
    /// Whether no other model may come in the model's place.
    pub(crate) no_fallback: bool,
    /// Features that must be there, by their canonical names.
    pub(crate) features: Vec<LocatedValue<String>>,
    /// Features that are taken away, by their canonical names.
    pub(crate) disabled: BTreeSet<String>,
    /// UEFI that libvirt is to choose.
    pub(crate) efi: Option<Span>,
    /// Secure boot, of a firmware that libvirt is to choose.
    pub(crate) secure_boot: Option<Span>,
    /// How the guest's memory is hidden from the host: `sev`, `tdx`.
    pub(crate) launch_security: Option<LocatedValue<String>>,
    /// Hyper-V enlightenments that are switched on.
    pub(crate) enlightenments: Vec<LocatedValue<String>>,
    /// Values for which libvirt has a list of those that it takes.
    pub(crate) values: Vec<OfferedValue>,
    /// Types of QEMU's devices and objects.
    pub(crate) types: Vec<LocatedValue<String>>,
    /// Ports for hot-plug.
    pub(crate) ports: Option<Ports>,
}

/// A value of a list that libvirt tells: see
/// [`DomainKind::values`](vmconfig::offers::DomainKind).
#[derive(Debug)]
pub(crate) struct OfferedValue {
    /// The list: `video.modelType`.
    pub(crate) list: &'static str,
    /// What it is, for people.
    pub(crate) what: &'static str,
    pub(crate) at: LocatedValue<String>,
}

/// PCI Express ports that take a device while the guest runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) all: usize,
    pub(crate) free: usize,
    /// Where to point: the last one.
    pub(crate) span: Option<Span>,
}
