//! QEMU's CPU model string, read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Arch, Enlightenment, GuestClock, Hints};

/// libvirt's word for a named likeness of the host.
pub(crate) const HOST_MODEL: &str = "host-model";

/// What the guest is told about caches. QEMU `-cpu host-cache-info=`,
/// `l3-cache=`; libvirt `<cpu><cache mode=>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CpuCache {
    /// The host's own.
    Passthrough,
    /// A made-up third level that the vCPUs of a socket share.
    Emulate,
    /// No third level.
    Off,
}

/// A property of a CPU model, as `-cpu` takes them after the model's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuProperty {
    /// Its name, as written.
    pub name: String,
    /// Its value; a switch has `on` or `off`.
    pub value: String,
}

impl CpuProperty {
    fn read(text: &str) -> Self {
        let (name, value) = match text.split_at_checked(1) {
            Some(("+", name)) => (name, "on"),
            Some(("-", name)) => (name, "off"),
            _ => text.split_once('=').unwrap_or((text, "on")),
        };
        Self { name: name.to_owned(), value: value.to_owned() }
    }

    /// The switch's state, if it is one.
    #[must_use]
    pub fn switch(&self) -> Option<bool> {
        match self.value.as_str() {
            "on" | "true" | "yes" | "y" => Some(true),
            "off" | "false" | "no" | "n" => Some(false),
            _ => None,
        }
    }

    /// As `-cpu` takes it, in the shortest form.
    #[must_use]
    pub fn text(&self) -> String {
        match self.switch() {
            Some(true) => format!("+{}", self.name),
            Some(false) => format!("-{}", self.name),
            None => format!("{}={}", self.name, self.value),
        }
    }
}

/// A CPU model string's model and properties: `host,-hypervisor` is `host` with
/// one property.
#[must_use]
pub fn split_cpu_model(text: &str) -> (&str, Vec<CpuProperty>) {
    let mut parts = text.split(',');
    let model = parts.next().unwrap_or_default();
    (model, parts.filter(|part| !part.is_empty()).map(CpuProperty::read).collect())
}

/// QEMU's classes of all CPU models of an architecture, with a dot.
pub(crate) const CLASSES: [(Arch, &str); 2] =
    [(Arch::X86_64, "x86_64-cpu."), (Arch::Aarch64, "arm-cpu.")];

/// The property that `-global` sets for all CPU models, if it is one's:
/// `x86_64-cpu.host-cache-info=on`.
pub(crate) fn of_global(value: &str) -> Option<CpuProperty> {
    let property = CLASSES.iter().find_map(|(_, class)| value.strip_prefix(class))?;
    property.contains('=').then(|| CpuProperty::read(property))
}

/// `features` laid over a model string: each replaces what the string says
/// about the same name, and comes last.
pub(crate) fn with_features(cpu_model: &str, features: &[String]) -> String {
    let mut parts: Vec<&str> = cpu_model.split(',').collect();
    for feature in features {
        let name = CpuProperty::read(feature).name;
        let mut place = 0;
        parts.retain(|part| {
            place += 1;
            place == 1 || CpuProperty::read(part).name != name
        });
        parts.push(feature);
    }
    parts.join(",")
}

/// The switches that have a field of their own, under QEMU's names.
pub(crate) fn switches<'a>(
    hints: &'a mut Hints,
    clock: &'a mut GuestClock,
) -> [(&'static str, &'a mut Option<bool>); 8] {
    [
        ("kvmclock", &mut clock.kvmclock),
        ("hv-time", &mut clock.hypervclock),
        ("kvm-hint-dedicated", &mut hints.kvm_hint_dedicated),
        ("kvm-poll-control", &mut hints.poll_control),
        ("kvm-pv-eoi", &mut hints.pv_eoi),
        ("kvm-pv-unhalt", &mut hints.pv_spinlocks),
        ("kvm-pv-ipi", &mut hints.pv_ipi),
        ("pmu", &mut hints.pmu),
    ]
}

/// Takes out of the model string what has a field of its own; a field that is
/// set holds.
pub(crate) fn lift(
    cpu_model: &mut String,
    hints: &mut Hints,
    clock: &mut GuestClock,
    cache: &mut Option<CpuCache>,
) {
    let parts: Vec<&str> = cpu_model.split(',').collect();
    let mut kept = Vec::new();
    let (mut host_cache, mut l3) = (None, None);
    for (place, part) in parts.iter().enumerate() {
        let property = CpuProperty::read(part);
        let name = property.name.replace('_', "-");
        let lifted = place > 0
            && match (name.as_str(), property.switch()) {
                ("kvm", Some(on)) => {
                    hints.kvm_hidden = hints.kvm_hidden.or(Some(!on));
                    true
                }
                ("host-cache-info", Some(on)) => host_cache.replace(on).is_none(),
                ("l3-cache", Some(on)) => l3.replace(on).is_none(),
                ("tsc-frequency", None) => match frequency_hz(&property.value) {
                    Some(hz) => {
                        clock.tsc_frequency_hz = clock.tsc_frequency_hz.or(Some(hz));
                        true
                    }
                    None => false,
                },
                ("hv-spinlocks", None) => match number(&property.value) {
                    Some(attempts) => {
                        hints.hyperv_spinlocks = hints.hyperv_spinlocks.or(Some(attempts));
                        true
                    }
                    None => false,
                },
                (name, Some(on)) => {
                    let mut all = switches(hints, clock);
                    if let Some((_, field)) = all.iter_mut().find(|row| row.0 == name) {
                        **field = field.or(Some(on));
                        true
                    } else if let Some(row) = Enlightenment::NAMES.iter().find(|row| row.1 == name)
                    {
                        if on {
                            hints.hyperv.get_or_insert_default().insert(row.0);
                        }
                        true
                    } else {
                        false
                    }
                }
                _ => false,
            };
        if !lifted {
            kept.push((*part).to_owned());
        }
    }
    let found = match (host_cache, l3) {
        (Some(true), _) => Some(CpuCache::Passthrough),
        (_, Some(true)) => Some(CpuCache::Emulate),
        (_, Some(false)) => Some(CpuCache::Off),
        (_, None) => None,
    };
    *cache = cache.or(found);
    *cpu_model = kept.join(",");
}

/// The properties that `-cpu` takes for what has a field of its own.
pub(crate) fn lowered(hints: &Hints, clock: &GuestClock, cache: Option<CpuCache>) -> Vec<String> {
    let (mut hints, mut clock) = (hints.clone(), clock.clone());
    let mut all: Vec<String> = switches(&mut hints, &mut clock)
        .into_iter()
        .filter_map(|(name, on)| Some(format!("{name}={}", if (*on)? { "on" } else { "off" })))
        .collect();
    if hints.kvm_hidden == Some(true) {
        all.push("kvm=off".to_owned());
    }
    if let Some(hz) = clock.tsc_frequency_hz {
        all.push(format!("tsc-frequency={hz}"));
    }
    match cache {
        Some(CpuCache::Passthrough) => all.push("host-cache-info=on,l3-cache=off".to_owned()),
        Some(CpuCache::Emulate) => all.push("l3-cache=on".to_owned()),
        Some(CpuCache::Off) => all.push("l3-cache=off".to_owned()),
        None => {}
    }
    for one in hints.hyperv.iter().flatten() {
        let row = Enlightenment::NAMES.iter().find(|row| row.0 == *one);
        all.extend(row.map(|row| format!("{}=on", row.1)));
    }
    if let Some(attempts) = hints.hyperv_spinlocks {
        all.push(format!("hv-spinlocks={attempts:#x}"));
    }
    all
}

/// A frequency as QEMU takes it: a number, or one with a decimal unit.
fn frequency_hz(text: &str) -> Option<u64> {
    let scale = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 1_000,
        'M' => 1_000_000,
        'G' => 1_000_000_000,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(scale)
}

/// A decimal or `0x` number.
pub(crate) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
