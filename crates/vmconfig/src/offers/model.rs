//! What is known of a host's QEMU and libvirt, and how it is looked up.

use std::collections::{BTreeMap, BTreeSet};

use crate::Accel;

/// A machine type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineType {
    /// The architecture, as the kernel writes it.
    pub arch: String,
    /// Its name: `pc-q35-7.2`.
    pub name: String,
    /// What else it is called, or what it is short for: `q35`.
    pub alias: Option<String>,
    /// The most vCPUs that it takes.
    pub max_vcpus: Option<u32>,
    /// Whether QEMU will drop it.
    pub deprecated: bool,
}

/// A named processor model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuModel {
    /// Whether the host can run it; `None` where nobody knows.
    pub usable: Option<bool>,
    /// Features of it that are not there; empty where they are not told.
    pub blockers: BTreeSet<String>,
    /// Whether QEMU will drop it.
    pub deprecated: bool,
}

/// The processor models of one architecture under one accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuModels {
    /// The architecture, as the kernel writes it.
    pub arch: String,
    /// Under which accelerator.
    pub accel: Accel,
    /// The models by name.
    pub models: BTreeMap<String, CpuModel>,
    /// Who lists them: libvirt, which may take another model in the place of one
    /// that it does not list, or QEMU itself.
    pub of_libvirt: bool,
    /// Features that are known not to be there, as [`feature_name`] writes them.
    pub missing: BTreeSet<String>,
}

/// What libvirt offers domains of one kind: `virsh domcapabilities`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainKind {
    /// The architecture, as the kernel writes it.
    pub arch: String,
    /// The accelerator.
    pub accel: Accel,
    /// The machine type.
    pub machine: String,
    /// The most vCPUs of such a domain.
    pub max_vcpus: Option<u32>,
    /// What is there or not, by element: `iothreads`, `sev`, `cpu.host-model`.
    pub supported: BTreeMap<String, bool>,
    /// The values that something may have: `video.modelType`.
    pub values: BTreeMap<String, BTreeSet<String>>,
}

/// What a host's QEMU and libvirt can do, as far as texts tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offers {
    /// The host's own architecture.
    pub arch: Option<String>,
    /// Machine types; of an architecture that is here all of them.
    pub machines: Vec<MachineType>,
    /// Accelerators by architecture; of one that is here all of them.
    pub accels: BTreeMap<String, BTreeSet<Accel>>,
    /// Processor models.
    pub cpus: Vec<CpuModels>,
    /// Kinds of domains.
    pub domains: Vec<DomainKind>,
    /// The types that QEMU's `-device` and `-object` take, by architecture.
    pub types: BTreeMap<String, BTreeSet<String>>,
}

impl Offers {
    /// Adds what another text of the same host tells.
    pub fn add(&mut self, other: Self) {
        let Self { arch, machines, accels, cpus, domains, types } = other;
        self.arch = self.arch.take().or(arch);
        self.machines.extend(machines);
        for (arch, more) in accels {
            self.accels.entry(arch).or_default().extend(more);
        }
        self.cpus.extend(cpus);
        self.domains.extend(domains);
        for (arch, more) in types {
            self.types.entry(arch).or_default().extend(more);
        }
    }

    /// The machine types of an architecture that go by this name; `None` where
    /// the machine types are not told.
    #[must_use]
    pub fn machine(&self, arch: &str, name: &str) -> Option<Vec<&MachineType>> {
        let mut all = self.machines.iter().filter(|machine| machine.arch == arch).peekable();
        all.peek()?;
        let is_it =
            |machine: &&MachineType| machine.name == name || machine.alias.as_deref() == Some(name);
        Some(all.filter(is_it).collect())
    }

    /// The processor models that are known of this architecture and accelerator.
    pub fn cpus(&self, arch: &str, accel: Accel) -> impl Iterator<Item = &CpuModels> {
        self.cpus.iter().filter(move |cpus| cpus.arch == arch && cpus.accel == accel)
    }

    /// What is known of domains with this architecture, accelerator and family of
    /// machine types: all versions of a family have the same buses and devices.
    #[must_use]
    pub fn domain(&self, arch: &str, accel: Accel, machine: &str) -> Option<&DomainKind> {
        let family = self.family(arch, machine);
        self.domains.iter().find(|domain| {
            domain.arch == arch
                && domain.accel == accel
                && self.family(arch, &domain.machine) == family
        })
    }

    /// What a machine type is called without its version: `pc-q35`.
    fn family<'a>(&'a self, arch: &str, machine: &'a str) -> &'a str {
        // A name without a version stands for one with it.
        let whole = match machine {
            "q35" => "pc-q35",
            "pc" => "pc-i440fx",
            name => self
                .machine(arch, name)
                .into_iter()
                .flatten()
                .flat_map(|found| [Some(found.name.as_str()), found.alias.as_deref()])
                .flatten()
                .max_by_key(|name| name.len())
                .unwrap_or(name),
        };
        match whole.rsplit_once('-') {
            Some((family, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => family,
            _ => whole,
        }
    }
}

/// A processor feature's name in one way of writing: libvirt has `sse4.1` and
/// `lahf_lm`, QEMU `sse4-1` and `lahf-lm` for the same, and each takes old names.
#[must_use]
pub fn feature_name(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
    match name.as_str() {
        "pclmuldq" => "pclmulqdq".to_owned(),
        "sse3" => "pni".to_owned(),
        "lzcnt" => "abm".to_owned(),
        _ => name,
    }
}
