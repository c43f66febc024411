//! What a preference asks of the VM at least, and where the VM falls short of it.
//!
//! Source: kubevirt/kubevirt, `pkg/instancetype/preference/requirements` and
//! `pkg/instancetype/preference/validation`, 1.9.0.

use topology::bounded::YamlValue;

use super::super::{Quantity, defaults};
use super::{Spread, text};

/// Why a VirtualMachine is not enough for its preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortfall {
    /// It has fewer vCPUs.
    Vcpus {
        /// vCPUs that count: those of the levels that the preference fills.
        has: u32,
        /// vCPUs that the preference asks for.
        needs: u32,
        /// The levels that count; none if an instance type gives the vCPUs.
        levels: &'static [&'static str],
    },
    /// It has less memory, in bytes.
    Memory {
        /// What the VM or its instance type has.
        has_bytes: u64,
        /// What the preference asks for.
        needs_bytes: u64,
    },
    /// It is for another architecture, by KubeVirt's names.
    Architecture {
        /// What the VM says.
        has: String,
        /// What the preference asks for.
        needs: String,
    },
    /// The instance type's vCPUs can't be spread as the preference has it.
    Spread {
        /// vCPUs of the instance type.
        vcpus: u32,
        /// What they have to be a multiple of.
        multiple: u32,
    },
}

/// What `spec`, with instance type and preference in it, lacks of what the preference
/// asks for. `kind` is the instance type's own spec, if the VM has one.
pub(super) fn shortfalls(
    spec: &YamlValue,
    kind: Option<&YamlValue>,
    preference: &YamlValue,
) -> Vec<Shortfall> {
    let mut found = Vec::new();
    let number = |node: &YamlValue, path: &str| text(node, path)?.parse::<u32>().ok();
    let of_kind = kind.map(|kind| number(kind, "cpu.guest").unwrap_or(0));
    if let (Some(vcpus), Some(spread)) = (of_kind, Spread::of(preference)) {
        let multiple = spread.multiple();
        if !vcpus.is_multiple_of(multiple) {
            // KubeVirt looks no further.
            return vec![Shortfall::Spread { vcpus, multiple }];
        }
    }
    if let Some(needs) = number(preference, "requirements.cpu.guest") {
        let (has, levels) = match of_kind {
            Some(vcpus) => (vcpus, [].as_slice()),
            None => counted(spec, preference),
        };
        if has < needs {
            found.push(Shortfall::Vcpus { has, needs, levels });
        }
    }
    let bytes = |node: &YamlValue, path: &str| {
        text(node, path)?.parse::<Quantity>().ok()?.round_up().filter(|bytes| *bytes > 0)
    };
    if let Some(needs_bytes) = bytes(preference, "requirements.memory.guest") {
        // In the order in which KubeVirt fills the guest's memory in.
        let has_bytes = [
            "domain.memory.guest",
            "domain.resources.requests.memory",
            "domain.resources.limits.memory",
            "domain.memory.hugepages.pageSize",
        ]
        .iter()
        .find_map(|path| bytes(spec, path))
        .unwrap_or(0);
        if has_bytes < needs_bytes {
            found.push(Shortfall::Memory { has_bytes, needs_bytes });
        }
    }
    // Without one it is for that of the cluster.
    if let (Some(needs), Some(has)) =
        (text(preference, "requirements.architecture"), text(spec, "architecture"))
        && needs != has
        && !has.is_empty()
    {
        let (has, needs) = (has.to_owned(), needs.to_owned());
        found.push(Shortfall::Architecture { has, needs });
    }
    found
}

/// The vCPUs that count where no instance type gives them. A level that is not said
/// beside others is 0 when KubeVirt asks.
fn counted(spec: &YamlValue, preference: &YamlValue) -> (u32, &'static [&'static str]) {
    let count = |level: &str| -> u32 {
        text(spec, &format!("domain.cpu.{level}")).and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let cpus = |path: &str| Some(text(spec, path)?.parse::<Quantity>().ok()?.as_f64());
    let mut levels = ["sockets", "cores", "threads"].map(count);
    if levels == [0; 3] {
        let of = |side: &str| cpus(&format!("domain.resources.{side}.cpu"));
        levels = defaults::topology([None; 3], of("limits"), of("requests"));
    }
    let [sockets, cores, threads] = levels;
    let all = |counts: &[u32]| counts.iter().fold(1_u32, |all, count| all.saturating_mul(*count));
    match (text(preference, "cpu.preferredCPUTopology"), Spread::of(preference)) {
        (_, Some(spread)) => (
            match spread {
                Spread::SocketsCores { .. } => all(&[sockets, cores]),
                Spread::CoresThreads { .. } => all(&[cores, threads]),
                Spread::SocketsCoresThreads { .. } => all(&levels),
            },
            spread.levels(),
        ),
        (Some("cores" | "preferCores"), _) => (cores, &["cores"]),
        (Some("threads" | "preferThreads"), _) => (threads, &["threads"]),
        (Some("any" | "preferAny"), _) => (all(&levels), &["sockets", "cores", "threads"]),
        _ => (sockets, &["sockets"]),
    }
}
