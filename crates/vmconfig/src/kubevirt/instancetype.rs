//! Instance types and preferences, and what they make of a VirtualMachine.
//!
//! Source: kubevirt/kubevirt, `pkg/instancetype/apply` and
//! `pkg/instancetype/preference/apply`, 1.9.0.

mod requirements;

use std::collections::{BTreeMap, HashSet};

use topology::bounded::{YamlKey, YamlKind, YamlValue};

pub use requirements::Shortfall;

use super::defaults::SEEDS;
use super::kinds::{is_list, template_of};
use crate::source::{LocatedValue, Span};

/// Instance types and preferences by kind and name.
#[derive(Debug, Clone, Default)]
pub struct Catalogue(BTreeMap<(String, String), YamlValue>);

/// A VirtualMachine with its instance type and preference applied.
#[derive(Debug, Clone, Default)]
pub struct ExpandedVm {
    /// The VMI's spec with all that is known; `None` where nothing was added.
    pub spec: Option<YamlValue>,
    /// Fields that the VM sets and its instance type too, with their places: KubeVirt
    /// refuses such a VM.
    pub conflicts: Vec<LocatedValue<String>>,
    /// Names of what is not known, with their places.
    pub missing: Vec<LocatedValue<String>>,
    /// What the preference asks for at least and the VM has not: KubeVirt refuses such
    /// a VM. The place is that of the preference's name.
    pub shortfalls: Vec<LocatedValue<Shortfall>>,
    /// Where what came from elsewhere stands in `spec`.
    pub references: Vec<Span>,
}

/// A reference by name, of an instance type or a preference.
struct Reference<'a> {
    node: &'a YamlValue,
    found: Option<&'a YamlValue>,
}

impl Catalogue {
    /// Takes what is of its kinds out of documents and lists of objects.
    pub fn add(&mut self, documents: &[YamlValue]) {
        for document in documents {
            let kind = text(document, "kind").unwrap_or_default();
            if is_list(kind) {
                self.add(items(document, "items"));
            } else if let (Some(name), Some(spec)) =
                (text(document, "metadata.name"), get(document, "spec"))
                && ["Instancetype", "Preference"].iter().any(|end| kind.ends_with(end))
            {
                self.0.insert((kind.to_lowercase(), name.to_owned()), spec.clone());
            }
        }
    }

    /// Adds those of another.
    pub fn extend(&mut self, other: &Catalogue) {
        self.0.extend(other.0.iter().map(|(key, spec)| (key.clone(), spec.clone())));
    }

    /// What the instance type and the preference of a VirtualMachine make of it; of two
    /// with one name that of the first catalogue.
    #[must_use]
    pub fn apply(catalogues: &[&Catalogue], object: &YamlValue) -> ExpandedVm {
        let mut applied = ExpandedVm::default();
        let kind = look_up(catalogues, object, "instancetype");
        let preference = look_up(catalogues, object, "preference");
        let Some(spec) = get(object, "spec.template.spec") else { return applied };
        let mut whole = spec.clone();
        let known = preference.as_ref().and_then(|preference| preference.found);
        if let Some(kind) = &kind {
            applied.conflicts = conflicts(spec, kind.found);
            match kind.found {
                Some(found) if applied.conflicts.is_empty() => {
                    set_instancetype(&mut whole, found, known, kind.node);
                }
                _ => {}
            }
        }
        if let (Some(preference), Some(found)) = (&preference, known) {
            // What gets a disk by itself gets the disk that is preferred.
            attach_volumes(&mut whole);
            set_preference(&mut whole, found, preference.node);
            let of_kind = kind.as_ref().map(|kind| kind.found);
            // Of an instance type that is not known nothing can be said.
            if of_kind != Some(None) && applied.conflicts.is_empty() {
                let span = preference.node.span;
                let found = requirements::shortfalls(&whole, of_kind.flatten(), found);
                applied.shortfalls =
                    found.into_iter().map(|one| LocatedValue::new(one, span)).collect();
            }
        }
        for reference in [kind, preference].into_iter().flatten() {
            if reference.found.is_none() {
                let name = reference.node.text().unwrap_or("of a volume").to_owned();
                applied.missing.push(LocatedValue::new(name, reference.node.span));
            }
            applied.references.push(reference.node.span);
        }
        if whole != *spec {
            applied.spec = Some(whole);
        }
        applied
    }
}

fn look_up<'a>(
    catalogues: &[&'a Catalogue],
    object: &'a YamlValue,
    what: &str,
) -> Option<Reference<'a>> {
    let matcher = get(object, "spec").and_then(|spec| get(spec, what))?;
    let node = get(matcher, "name").unwrap_or(matcher);
    let kind = text(matcher, "kind").filter(|kind| !kind.is_empty()).map_or_else(
        || format!("virtualmachinecluster{what}"),
        |kind| kind.to_lowercase().trim_end_matches('s').to_owned(),
    );
    let key = (kind, text(matcher, "name").unwrap_or_default().to_owned());
    Some(Reference { node, found: catalogues.iter().find_map(|catalogue| catalogue.0.get(&key)) })
}

/// Puts what the documents' own instance types and preferences say into their
/// VirtualMachines, else what those of `known` say, and takes the references that are
/// resolved out.
pub(super) fn fill_in(documents: &mut [YamlValue], known: &[&Catalogue]) {
    let mut own = Catalogue::default();
    own.add(documents);
    let catalogues: Vec<&Catalogue> = [&own].into_iter().chain(known.iter().copied()).collect();
    for document in documents.iter_mut() {
        fill_in_one(document, &catalogues);
    }
}

/// Gives each volume of the documents' VMs a disk that has none.
pub(super) fn attach_all(documents: &mut [YamlValue]) {
    for document in documents {
        let kind = text(document, "kind").map(str::to_owned);
        match kind.as_deref() {
            Some(kind) if is_list(kind) => attach_all(items_mut(document, "items")),
            kind => {
                let path = kind.map_or(Some(""), template_of);
                let path = path.map(|path| match path {
                    "" => "spec".to_owned(),
                    path => format!("{path}.spec"),
                });
                if let Some(spec) = path.and_then(|path| node_mut(document, &path)) {
                    attach_volumes(spec);
                }
            }
        }
    }
}

/// Gives each volume a disk that has none, as KubeVirt does; but for those that a guest
/// reads once, at its first boot.
///
/// Source: kubevirt/kubevirt, `pkg/util`, `SetDefaultVolumeDisk`.
fn attach_volumes(spec: &mut YamlValue) {
    let named = |node: &YamlValue| text(node, "name").map(str::to_owned);
    let known: HashSet<String> = ["domain.devices.disks", "domain.devices.filesystems"]
        .iter()
        .flat_map(|path| items(spec, path))
        .filter_map(named)
        .collect();
    let has = |volume: &YamlValue, kind: &str| get(volume, kind).is_some();
    let more: Vec<YamlValue> = items(spec, "volumes")
        .iter()
        .filter(|volume| !has(volume, "memoryDump") && !SEEDS.iter().any(|kind| has(volume, kind)))
        .filter_map(|volume| get(volume, "name"))
        .filter(|name| name.text().is_some_and(|name| !known.contains(name)))
        .map(|name| {
            let entry = (key_at("name", name), name.clone());
            YamlValue { kind: YamlKind::Map(vec![entry]), ..map(name) }
        })
        .collect();
    let Some(first) = more.first() else { return };
    let path = "domain.devices.disks";
    if !matches!(get(spec, path).map(|disks| &disks.kind), Some(YamlKind::List(_))) {
        let none = YamlValue { kind: YamlKind::List(Vec::new()), ..map(first) };
        put(spec, path, none);
    }
    if let Some(YamlKind::List(disks)) = node_mut(spec, path).map(|disks| &mut disks.kind) {
        disks.extend(more);
    }
}

fn fill_in_one(document: &mut YamlValue, catalogues: &[&Catalogue]) {
    if text(document, "kind").is_some_and(is_list) {
        for item in items_mut(document, "items") {
            fill_in_one(item, catalogues);
        }
    } else if text(document, "kind") == Some("VirtualMachinePool") {
        if let Some(machine) = node_mut(document, "spec.virtualMachineTemplate") {
            fill_in_machine(machine, catalogues);
        }
    } else if text(document, "kind") == Some("VirtualMachine") {
        fill_in_machine(document, catalogues);
    }
}

fn fill_in_machine(machine: &mut YamlValue, catalogues: &[&Catalogue]) {
    let applied = Catalogue::apply(catalogues, machine);
    if let Some(spec) = applied.spec {
        put(machine, "spec.template.spec", spec);
    }
    if applied.missing.is_empty()
        && applied.conflicts.is_empty()
        && let Some(spec) = node_mut(machine, "spec")
        && let YamlKind::Map(entries) = &mut spec.kind
    {
        entries.retain(|(key, _)| !["instancetype", "preference"].contains(&key.text.as_str()));
    }
}

/// Fields that no VM with an instance type may set, whatever the type says: each has
/// vCPUs and memory.
const ALWAYS: [&str; 8] = [
    "domain.cpu.sockets",
    "domain.cpu.cores",
    "domain.cpu.threads",
    "domain.memory.guest",
    "domain.resources.requests.cpu",
    "domain.resources.limits.cpu",
    "domain.resources.requests.memory",
    "domain.resources.limits.memory",
];

/// Fields of an instance type and where they go, but vCPUs.
const FIELDS: [(&str, &str); 15] = [
    ("cpu.model", "domain.cpu.model"),
    ("cpu.dedicatedCPUPlacement", "domain.cpu.dedicatedCpuPlacement"),
    ("cpu.isolateEmulatorThread", "domain.cpu.isolateEmulatorThread"),
    ("cpu.numa", "domain.cpu.numa"),
    ("cpu.realtime", "domain.cpu.realtime"),
    ("cpu.maxSockets", "domain.cpu.maxSockets"),
    ("memory.guest", "domain.memory.guest"),
    ("memory.hugepages", "domain.memory.hugepages"),
    ("memory.maxGuest", "domain.memory.maxGuest"),
    ("ioThreadsPolicy", "domain.ioThreadsPolicy"),
    ("ioThreads", "domain.ioThreads"),
    ("launchSecurity", "domain.launchSecurity"),
    ("gpus", "domain.devices.gpus"),
    ("hostDevices", "domain.devices.hostDevices"),
    ("nodeSelector", "nodeSelector"),
];

fn conflicts(spec: &YamlValue, kind: Option<&YamlValue>) -> Vec<LocatedValue<String>> {
    let of_type = FIELDS.iter().filter(|(from, to)| {
        // A limit of sockets is overwritten.
        *from != "cpu.maxSockets"
            && !ALWAYS.contains(to)
            && kind.is_some_and(|kind| get(kind, from).is_some())
    });
    ALWAYS
        .iter()
        .chain(of_type.map(|(_, to)| to))
        .filter_map(|path| {
            let node = get(spec, path)?;
            // What is 0, false or empty is not set.
            let unset = match &node.kind {
                YamlKind::Scalar(text) => matches!(text.as_str(), "" | "0" | "false"),
                YamlKind::List(items) => items.is_empty(),
                YamlKind::Map(_) => false,
            };
            (!unset || path.starts_with("domain.resources"))
                .then(|| LocatedValue::new((*path).to_owned(), node.span))
        })
        .collect()
}

fn set_instancetype(
    spec: &mut YamlValue,
    kind: &YamlValue,
    preference: Option<&YamlValue>,
    at: &YamlValue,
) {
    for (from, to) in FIELDS {
        if let Some(value) = get(kind, from) {
            put(spec, to, moved(value, at));
        }
    }
    let vcpus = text(kind, "cpu.guest").and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    let [sockets, cores, threads] = topology(vcpus, preference);
    for (level, number) in [("sockets", sockets), ("cores", cores), ("threads", threads)] {
        put(spec, &format!("domain.cpu.{level}"), plain(&number.to_string(), at));
    }
}

/// How a preference spreads vCPUs over levels of the topology.
enum Spread {
    SocketsCores { ratio: u32 },
    CoresThreads { ratio: u32 },
    SocketsCoresThreads { ratio: u32 },
}

/// Threads of each core where vCPUs are spread over all levels.
const SPREAD_THREADS: u32 = 2;

impl Spread {
    /// That of a preference that spreads.
    fn of(preference: &YamlValue) -> Option<Self> {
        let way = text(preference, "cpu.preferredCPUTopology");
        if !matches!(way, Some("spread" | "preferSpread")) {
            return None;
        }
        let number =
            |path| text(preference, path)?.parse::<u32>().ok().filter(|number| *number > 0);
        let ratio = number("cpu.spreadOptions.ratio")
            .or_else(|| number("preferSpreadSocketToCoreRatio"))
            .unwrap_or(2);
        Some(match text(preference, "cpu.spreadOptions.across") {
            None | Some("SocketsCores") => Self::SocketsCores { ratio },
            Some("CoresThreads") => Self::CoresThreads { ratio },
            Some(_) => Self::SocketsCoresThreads { ratio },
        })
    }

    /// What the vCPUs have to be a multiple of.
    fn multiple(&self) -> u32 {
        match self {
            Self::SocketsCores { ratio } | Self::CoresThreads { ratio } => *ratio,
            Self::SocketsCoresThreads { ratio } => ratio.saturating_mul(SPREAD_THREADS),
        }
    }

    fn levels(&self) -> &'static [&'static str] {
        match self {
            Self::SocketsCores { .. } => &["sockets", "cores"],
            Self::CoresThreads { .. } => &["cores", "threads"],
            Self::SocketsCoresThreads { .. } => &["sockets", "cores", "threads"],
        }
    }

    fn topology(&self, vcpus: u32) -> [u32; 3] {
        match *self {
            Self::SocketsCores { ratio } => [vcpus / ratio, ratio, 1],
            Self::CoresThreads { ratio } => [1, vcpus / ratio, ratio],
            Self::SocketsCoresThreads { ratio } => {
                [vcpus / SPREAD_THREADS / ratio, ratio, SPREAD_THREADS]
            }
        }
    }
}

/// vCPUs as the preference has them: sockets where it does not say.
fn topology(vcpus: u32, preference: Option<&YamlValue>) -> [u32; 3] {
    if vcpus == 1 {
        return [1, 1, 1];
    }
    if let Some(spread) = preference.and_then(Spread::of) {
        return spread.topology(vcpus);
    }
    match preference.and_then(|preference| text(preference, "cpu.preferredCPUTopology")) {
        Some("cores" | "preferCores") => [1, vcpus, 1],
        Some("threads" | "preferThreads") => [1, 1, vcpus],
        _ => [vcpus, 1, 1],
    }
}

/// Wishes of a preference, each taken where the VM says nothing.
const WISHES: [(&str, &str); 24] = [
    ("machine.preferredMachineType", "domain.machine.type"),
    ("preferredArchitecture", "architecture"),
    ("preferredSubdomain", "subdomain"),
    ("clock.preferredTimer", "domain.clock.timer"),
    ("features.preferredAcpi", "domain.features.acpi"),
    ("features.preferredApic", "domain.features.apic"),
    ("features.preferredHyperv", "domain.features.hyperv"),
    ("features.preferredKvm", "domain.features.kvm"),
    ("features.preferredPvspinlock", "domain.features.pvspinlock"),
    ("features.preferredSmm", "domain.features.smm"),
    ("preferredLaunchSecurity", "domain.launchSecurity"),
    ("cpu.preferredCPUFeatures", "domain.cpu.features"),
    ("devices.preferredBlockMultiQueue", "domain.devices.blockMultiQueue"),
    ("devices.preferredNetworkInterfaceMultiQueue", "domain.devices.networkInterfaceMultiqueue"),
    ("devices.preferredUseVirtioTransitional", "domain.devices.useVirtioTransitional"),
    ("devices.preferredDisableHotplug", "domain.devices.disableHotplug"),
    ("devices.preferredRng", "domain.devices.rng"),
    ("devices.preferredTPM", "domain.devices.tpm"),
    ("devices.preferredVideoType", "domain.devices.video.type"),
    ("devices.preferredAutoattachGraphicsDevice", "domain.devices.autoattachGraphicsDevice"),
    ("devices.preferredAutoattachMemBalloon", "domain.devices.autoattachMemBalloon"),
    ("devices.preferredAutoattachPodInterface", "domain.devices.autoattachPodInterface"),
    ("devices.preferredAutoattachSerialConsole", "domain.devices.autoattachSerialConsole"),
    ("devices.preferredAutoattachInputDevice", "domain.devices.autoattachInputDevice"),
];

/// The same for each disk of a kind, and each interface.
const DEVICE_WISHES: [(&str, &str, &str); 6] = [
    ("preferredDiskBus", "disk", "disk.bus"),
    ("preferredCdromBus", "cdrom", "cdrom.bus"),
    ("preferredLunBus", "lun", "lun.bus"),
    ("preferredDiskCache", "disk", "cache"),
    ("preferredDiskIO", "disk", "io"),
    ("preferredDiskBlockSize", "disk", "blockSize"),
];

fn set_preference(spec: &mut YamlValue, preference: &YamlValue, at: &YamlValue) {
    for (from, to) in WISHES {
        if let Some(value) = get(preference, from) {
            wish(spec, to, value, at);
        }
    }
    let loader = "domain.firmware.bootloader";
    if get(spec, &format!("{loader}.efi")).is_none()
        && get(spec, &format!("{loader}.bios")).is_none()
    {
        let is = |path| text(preference, path) == Some("true");
        if let Some(efi) = get(preference, "firmware.preferredEfi") {
            wish(spec, &format!("{loader}.efi"), efi, at);
        } else if is("firmware.preferredUseBios") {
            put(spec, &format!("{loader}.bios"), map(at));
        } else if is("firmware.preferredUseEfi") {
            put(spec, &format!("{loader}.efi"), map(at));
            if let Some(secure) = get(preference, "firmware.preferredUseSecureBoot") {
                wish(spec, &format!("{loader}.efi.secureBoot"), secure, at);
            }
        }
    }
    let Some(wishes) = get(preference, "devices") else { return };
    for disk in items_mut(spec, "domain.devices.disks") {
        if ["disk", "cdrom", "lun"].iter().all(|kind| get(disk, kind).is_none()) {
            put(disk, "disk", map(at));
        }
        for (from, kind, to) in DEVICE_WISHES {
            if let Some(value) = get(wishes, from).filter(|_| get(disk, kind).is_some()) {
                wish(disk, to, value, at);
            }
        }
        if let Some(own) = get(wishes, "preferredDiskDedicatedIoThread")
            && text(disk, "disk.bus") == Some("virtio")
        {
            wish(disk, "dedicatedIOThread", own, at);
        }
    }
    let pod: HashSet<String> = items(spec, "networks")
        .iter()
        .filter(|network| get(network, "pod").is_some())
        .filter_map(|network| text(network, "name").map(str::to_owned))
        .collect();
    for interface in items_mut(spec, "domain.devices.interfaces") {
        if let Some(model) = get(wishes, "preferredInterfaceModel") {
            wish(interface, "model", model, at);
        }
        let bindings = ["bridge", "masquerade", "sriov", "passtBinding", "binding"];
        if let Some(masquerade) = get(wishes, "preferredInterfaceMasquerade")
            && bindings.iter().all(|name| get(interface, name).is_none())
            && text(interface, "name").is_some_and(|name| pod.contains(name))
        {
            put(interface, "masquerade", moved(masquerade, at));
        }
    }
}

/// Puts a value where nothing is; of two maps what is missing.
fn wish(node: &mut YamlValue, path: &str, value: &YamlValue, at: &YamlValue) {
    match (get(node, path).map(|own| own.kind.clone()), &value.kind) {
        (None, _) => put(node, path, moved(value, at)),
        (Some(YamlKind::Map(_)), YamlKind::Map(entries)) if path.ends_with("hyperv") => {
            for (key, value) in entries {
                wish(node, &format!("{path}.{}", key.text), value, at);
            }
        }
        (Some(YamlKind::Scalar(own)), _) if own.is_empty() => put(node, path, moved(value, at)),
        _ => {}
    }
}

/// A value below these keys that is not null.
fn get<'a>(node: &'a YamlValue, path: &str) -> Option<&'a YamlValue> {
    path.split('.').try_fold(node, |node, name| node.given(name))
}

fn text<'a>(node: &'a YamlValue, path: &str) -> Option<&'a str> {
    get(node, path)?.text()
}

fn items<'a>(node: &'a YamlValue, path: &str) -> &'a [YamlValue] {
    get(node, path).map(YamlValue::items).unwrap_or_default()
}

fn items_mut<'a>(node: &'a mut YamlValue, path: &str) -> &'a mut [YamlValue] {
    match node_mut(node, path).map(|node| &mut node.kind) {
        Some(YamlKind::List(items)) => items,
        _ => &mut [],
    }
}

fn node_mut<'a>(node: &'a mut YamlValue, path: &str) -> Option<&'a mut YamlValue> {
    path.split('.').try_fold(node, |node, name| {
        let YamlKind::Map(entries) = &mut node.kind else { return None };
        entries.iter_mut().rfind(|(key, _)| key.text == name).map(|(_, inner)| inner)
    })
}

fn plain(text: &str, at: &YamlValue) -> YamlValue {
    let kind = YamlKind::Scalar(text.to_owned());
    YamlValue { span: at.span, line: at.line, plain: true, kind }
}

fn map(at: &YamlValue) -> YamlValue {
    YamlValue { kind: YamlKind::Map(Vec::new()), ..plain("", at) }
}

/// The value with the place of what asks for it, since its own is in another text.
fn moved(value: &YamlValue, at: &YamlValue) -> YamlValue {
    let kind = match &value.kind {
        YamlKind::Scalar(text) => YamlKind::Scalar(text.clone()),
        YamlKind::List(items) => YamlKind::List(items.iter().map(|item| moved(item, at)).collect()),
        YamlKind::Map(entries) => YamlKind::Map(
            entries.iter().map(|(key, value)| (key_at(&key.text, at), moved(value, at))).collect(),
        ),
    };
    YamlValue { span: at.span, line: at.line, plain: value.plain, kind }
}

fn key_at(text: &str, at: &YamlValue) -> YamlKey {
    YamlKey { text: text.to_owned(), span: at.span }
}

/// Puts a value below these keys; maps that are missing are made.
fn put(node: &mut YamlValue, path: &str, value: YamlValue) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    if !matches!(node.kind, YamlKind::Map(_)) {
        node.kind = YamlKind::Map(Vec::new());
    }
    let YamlKind::Map(entries) = &mut node.kind else { return };
    let place = entries.iter().position(|(key, _)| key.text == name).unwrap_or_else(|| {
        entries.push((key_at(name, &value), map(&value)));
        entries.len() - 1
    });
    match rest {
        Some(rest) => put(&mut entries[place].1, rest, value),
        None => entries[place].1 = value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::bounded::yaml;

    const TYPES: &str = "\
kind: VirtualMachineInstancetype
metadata: {name: small}
spec:
  cpu: {guest: 4, dedicatedCPUPlacement: true}
  memory: {guest: 2Gi}
---
kind: VirtualMachineClusterPreference
metadata: {name: linux}
spec:
  cpu: {preferredCPUTopology: spread}
  devices: {preferredDiskBus: virtio, preferredInterfaceMasquerade: {}}
";

    fn applied(vm: &str, types: &str) -> ExpandedVm {
        let mut catalogue = Catalogue::default();
        catalogue.add(&yaml(types).unwrap_or_default());
        let documents = yaml(vm).unwrap_or_default();
        Catalogue::apply(&[&catalogue], &documents[0])
    }

    fn vm(domain: &str) -> String {
        format!(
            "kind: VirtualMachine\nspec:\n  instancetype: {{kind: VirtualMachineInstancetype, name: \
             small}}\n  preference: {{name: linux}}\n  template:\n    spec:\n      networks: [{{name: \
             a, pod: {{}}}}]\n      domain: {domain}\n"
        )
    }

    #[test]
    fn types_and_preferences_fill_in() {
        let vm =
            vm("{devices: {disks: [{name: r}, {name: c, cdrom: {}}], interfaces: [{name: a}]}}");
        let applied = applied(&vm, TYPES);
        assert!(applied.conflicts.is_empty() && applied.missing.is_empty(), "{applied:?}");
        let spec = applied.spec.unwrap();
        let check = |path, expected| assert_eq!(text(&spec, path), Some(expected), "{path}");
        check("domain.cpu.sockets", "2");
        check("domain.cpu.cores", "2");
        check("domain.cpu.dedicatedCpuPlacement", "true");
        check("domain.memory.guest", "2Gi");
        let disks = items(&spec, "domain.devices.disks");
        assert_eq!(text(&disks[0], "disk.bus"), Some("virtio"));
        assert_eq!(text(&disks[1], "cdrom.bus"), None);
        assert!(get(&items(&spec, "domain.devices.interfaces")[0], "masquerade").is_some());
        let guest = get(&spec, "domain.memory.guest").unwrap();
        assert_eq!(
            &vm[guest.span.start..guest.span.end],
            "small",
            "places are those of the reference"
        );
    }

    #[test]
    fn what_both_say_is_a_conflict() {
        let paths = |applied: ExpandedVm| -> Vec<String> {
            applied.conflicts.into_iter().map(|conflict| conflict.value).collect()
        };
        let both = vm("{cpu: {cores: 2, dedicatedCpuPlacement: true}, memory: {guest: 1Gi}}");
        let expected =
            ["domain.cpu.cores", "domain.memory.guest", "domain.cpu.dedicatedCpuPlacement"];
        assert_eq!(paths(applied(&both, TYPES)), expected);
        // Each type has vCPUs and memory, this one too.
        let unknown = applied(&both, "kind: Pod");
        assert_eq!(unknown.missing.len(), 2);
        assert_eq!(paths(unknown), expected[..2]);
        let neither = vm("{cpu: {cores: 0, model: host-passthrough}, devices: {}}");
        assert_eq!(paths(applied(&neither, TYPES)), Vec::<String>::new());
    }

    #[test]
    fn vcpus_are_spread_as_the_preference_says() {
        let check = |preference: &str, expected: [u32; 3]| {
            let preference = yaml(preference).unwrap_or_default();
            assert_eq!(topology(8, preference.first()), expected, "{preference:?}");
        };
        check("{}", [8, 1, 1]);
        check("cpu: {preferredCPUTopology: cores}", [1, 8, 1]);
        check("cpu: {preferredCPUTopology: preferThreads}", [1, 1, 8]);
        check("cpu: {preferredCPUTopology: spread, spreadOptions: {ratio: 4}}", [2, 4, 1]);
        check(
            "cpu: {preferredCPUTopology: spread, spreadOptions: {across: SocketsCoresThreads}}",
            [2, 2, 2],
        );
    }
    #[test]
    fn a_vm_may_fall_short_of_its_preference() {
        let check = |domain: &str, kind: &str, preference: &str, expected: &[Shortfall]| {
            let vm = format!(
                "kind: VirtualMachine\nspec: {{{kind}preference: {{name: p}}, template: {{spec: \
                 {{architecture: amd64, domain: {domain}}}}}}}\n"
            );
            let types = format!(
                "kind: VirtualMachineClusterInstancetype\nmetadata: {{name: t}}\nspec: {{cpu: \
                 {{guest: 6}}, memory: {{guest: 2Gi}}}}\n---\nkind: \
                 VirtualMachineClusterPreference\nmetadata: {{name: p}}\nspec: {preference}\n"
            );
            let found: Vec<Shortfall> =
                applied(&vm, &types).shortfalls.into_iter().map(|one| one.value).collect();
            assert_eq!(found, expected, "{domain} {kind} {preference}");
        };
        let vcpus = |has, needs, levels| Shortfall::Vcpus { has, needs, levels };
        let typed = "instancetype: {name: t}, ";
        let four = "{requirements: {cpu: {guest: 4}}}";
        check("{cpu: {sockets: 4}}", "", four, &[]);
        check("{cpu: {cores: 4}}", "", four, &[vcpus(0, 4, &["sockets"])]);
        check("{}", "", four, &[vcpus(1, 4, &["sockets"])]);
        check("{resources: {limits: {cpu: '4'}}}", "", four, &[]);
        check("{}", typed, four, &[]);
        check("{}", typed, "{requirements: {cpu: {guest: 8}}}", &[vcpus(6, 8, &[])]);
        let spread = "{cpu: {preferredCPUTopology: spread, spreadOptions: {ratio: 4}}}";
        check("{}", typed, spread, &[Shortfall::Spread { vcpus: 6, multiple: 4 }]);
        let memory = "{requirements: {memory: {guest: 4Gi}}}";
        let short = |gib: u64| Shortfall::Memory { has_bytes: gib << 30, needs_bytes: 4 << 30 };
        check("{memory: {guest: 4Gi}}", "", memory, &[]);
        check("{resources: {requests: {memory: 1Gi}}}", "", memory, &[short(1)]);
        check("{}", typed, memory, &[short(2)]);
        let foreign = Shortfall::Architecture { has: "amd64".into(), needs: "arm64".into() };
        check("{}", "", "{requirements: {architecture: arm64}}", &[foreign]);
        // Nothing is known of a type that is not there.
        check("{}", "instancetype: {name: u}, ", four, &[]);
    }
}
