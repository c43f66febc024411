//! QMP's answers, one after another, as QEMU prints them: which command an answer
//! is for shows in what it holds.
//!
//! Source: QEMU QMP Reference Manual: `query-kvm`, `query-target`, `query-machines`,
//! `query-cpu-definitions`,
//! `query-cpu-model-expansion`, `qom-list-types`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use topology::bounded::MalformedText;

use super::model::{CpuModel, CpuModels, MachineType, Offers, feature_name};
use crate::Accel;

/// The longest text that is read; QEMU's answers are some 100 KiB.
const MAX_BYTES: usize = 16 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MachineInfo {
    name: String,
    alias: Option<String>,
    cpu_max: u32,
    #[serde(default)]
    deprecated: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Definition {
    name: String,
    unavailable_features: Option<Vec<String>>,
    #[serde(default)]
    deprecated: bool,
}

/// A processor model with all its properties: features are switches among them.
#[derive(Deserialize)]
struct ExpandedModel {
    name: String,
    props: BTreeMap<String, Value>,
}

/// Switches that say nothing of what the host has where they are off: other things than
/// features, those that wait to be asked for, and those that the topology sets.
///
/// Source: QEMU `target/i386/cpu.c`: `no_autoenable_flags`, `unmigratable_flags`,
/// `x86_cpu_properties`.
const NO_FEATURES: [&str; 33] = [
    "arch-lbr",
    "avic",
    "check",
    "cmp-legacy",
    "cpuid-0xb",
    "enforce",
    "fill-mtrr-mask",
    "full-cpuid-auto-level",
    "full-width-write",
    "host-cache-info",
    "host-phys-bits",
    "hotpluggable",
    "hotplugged",
    "ht",
    "intel-pt",
    "intel-pt-lip",
    "invtsc",
    "kvm",
    "kvm-no-smi-migration",
    "kvm-pv-enforce-cpuid",
    "l3-cache",
    "legacy-cache",
    "lmce",
    "migratable",
    "ospke",
    "osxsave",
    "pmu",
    "realized",
    "start-powered-off",
    "svm-lock",
    "tcg-cpuid",
    "topoext",
    "vmware-cpuid-freq",
];

/// Families of such.
const NO_FEATURES_OF: [&str; 5] = ["hv-", "kvm-hint-", "sgx", "x-", "xen-"];

impl ExpandedModel {
    /// Features that the model with all of them lacks: no other has them here.
    fn missing(&self) -> BTreeSet<String> {
        if !["host", "max"].contains(&self.name.as_str()) {
            return BTreeSet::new();
        }
        let off = self.props.iter().filter(|(_, value)| **value == Value::Bool(false));
        off.map(|(name, _)| feature_name(name))
            .filter(|name| !NO_FEATURES.contains(&name.as_str()))
            .filter(|name| !NO_FEATURES_OF.iter().any(|family| name.starts_with(family)))
            .collect()
    }
}

#[derive(Deserialize)]
struct KvmInfo {
    enabled: bool,
    present: bool,
}

pub(super) fn read(text: &str) -> Result<Offers, MalformedText> {
    if text.len() > MAX_BYTES {
        return Err(MalformedText { at: 0, what: format!("Longer than {MAX_BYTES} bytes") });
    }
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (mut arch, mut kvm) = (None, None);
    let (mut machines, mut definitions, mut types) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut missing = BTreeSet::new();
    loop {
        let at = stream.byte_offset();
        let Some(message) = stream.next() else { break };
        let message = message.map_err(|error| {
            let line: usize =
                text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
            MalformedText { at: line, what: format!("Not an answer of QMP: {error}") }
        })?;
        let Some(answer) = message.get("return") else { continue };
        let wrong = |error: serde_json::Error| {
            let blank = text[at..].len() - text[at..].trim_start().len();
            MalformedText { at: at + blank, what: format!("Not an answer of QMP: {error}") }
        };
        let has = |key: &str| {
            answer.get(key).is_some() || answer.get(0).is_some_and(|one| one.get(key).is_some())
        };
        if has("present") {
            kvm = Some(KvmInfo::deserialize(answer).map_err(wrong)?);
        } else if let Some(name) = answer.get("arch").and_then(Value::as_str) {
            arch = Some(name.to_owned());
        } else if let Some(model) = answer.get("model") {
            missing.extend(ExpandedModel::deserialize(model).map_err(wrong)?.missing());
        } else if has("cpu-max") {
            machines = Vec::<MachineInfo>::deserialize(answer).map_err(wrong)?;
        } else if has("typename") {
            definitions = Vec::<Definition>::deserialize(answer).map_err(wrong)?;
        } else if has("name") {
            let named = answer.as_array().into_iter().flatten();
            types = named.filter_map(|one| Some(one.get("name")?.as_str()?.to_owned())).collect();
        }
    }
    if machines.is_empty() && definitions.is_empty() && types.is_empty() {
        return Ok(Offers::default());
    }
    let Some(arch) = arch else {
        let what = "The answer to query-target is missing, which tells the architecture";
        return Err(MalformedText { at: 0, what: what.to_owned() });
    };
    let mut offers = Offers { arch: Some(arch.clone()), ..Offers::default() };
    offers.machines = machines
        .into_iter()
        .map(|MachineInfo { name, alias, cpu_max, deprecated }| MachineType {
            arch: arch.clone(),
            name,
            alias,
            max_vcpus: Some(cpu_max),
            deprecated,
        })
        .collect();
    if !definitions.is_empty() {
        let Some(kvm) = &kvm else {
            let what = "The answer to query-kvm is missing: processor models differ with it";
            return Err(MalformedText { at: 0, what: what.to_owned() });
        };
        let accel = if kvm.enabled { Accel::Kvm } else { Accel::Tcg };
        let mut cpus = cpus(&arch, accel, definitions);
        cpus.missing.extend(missing);
        offers.cpus.push(cpus);
    }
    // A KVM that was built in may still be without a device.
    if kvm.is_some_and(|kvm| !kvm.present) {
        offers.accels.insert(arch.clone(), [Accel::Tcg].into());
    }
    if !types.is_empty() {
        offers.types.insert(arch, types);
    }
    Ok(offers)
}

fn cpus(arch: &str, accel: Accel, definitions: Vec<Definition>) -> CpuModels {
    let mut models = BTreeMap::new();
    let mut missing = BTreeSet::new();
    for Definition { name, unavailable_features, deprecated } in definitions {
        let blockers = unavailable_features.map(|features| {
            features.iter().map(|feature| feature_name(feature)).collect::<BTreeSet<String>>()
        });
        let usable = blockers.as_ref().map(BTreeSet::is_empty);
        let blockers = blockers.unwrap_or_default();
        missing.extend(blockers.iter().cloned());
        models.insert(name, CpuModel { usable, blockers, deprecated });
    }
    CpuModels { arch: arch.to_owned(), accel, models, of_libvirt: false, missing }
}
