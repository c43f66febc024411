//! KubeVirt's objects.
//!
//! Source: KubeVirt API reference, `v1.VirtualMachineInstanceSpec`.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use topology::bounded::{self, MalformedText, YamlKind, YamlValue};

use crate::object::{KINDS, KubeObject};
use crate::read::yaml::{Node, QuantityValue as _};
use crate::read::{ConfigItem, kubevirt_asks};
use crate::rule::ConfigFormat;
use crate::vm::{CpuView, DiskView, Kubevirt, NicBackendView, NicView, Timer, Topology, Vm};
use vmconfig::ParsedVm;
use vmconfig::kubevirt::{self, Catalogue, ExpandedVm, defaults};
use vmconfig::source::{LocatedValue, SourceText, Span};

/// The VMs of all documents, and the objects of [`KINDS`]. Instance types
/// and preferences are those of the text itself, else those of other texts.
pub(crate) fn read(
    source: &SourceText<'_>,
    known: &Catalogue,
    settings: bool,
    each: &mut dyn FnMut(ConfigItem),
) -> Result<(), MalformedText> {
    let text = source.text;
    let documents = bounded::yaml(text)?;
    let mut own = Catalogue::default();
    if text.contains("instancetype.kubevirt.io/") {
        own.add(&documents);
    }
    let presets = text.contains("VirtualMachineInstancePreset");
    let catalogues = [&own, known];
    for document in documents {
        let mut by_line: HashMap<u32, ParsedVm> = HashMap::new();
        if settings {
            let parsed = kubevirt::parse_documents(vec![document.clone()], &catalogues);
            by_line.extend(
                parsed.into_iter().filter_map(|parsed| Some((parsed.line_of_vm()?, parsed))),
            );
        }
        object(&document, &catalogues, presets, &mut |item| {
            let mut vm = match item {
                ConfigItem::Vm(vm) => vm,
                ConfigItem::Object(_) => return each(item),
            };
            let object = vm.kubevirt.as_ref().map(|kubevirt| kubevirt.object.span);
            vm.parsed =
                object.and_then(|span| by_line.remove(&source.line_number(span)).map(Box::new));
            each(ConfigItem::Vm(vm));
        });
    }
    Ok(())
}

/// The VMIs that objects of a text are or make; documents without one as they are.
pub(crate) fn instances(text: &str, types: &Catalogue) -> Result<Vec<Value>, MalformedText> {
    let documents = bounded::yaml(text)?;
    let mut catalogue = Catalogue::default();
    catalogue.add(&documents);
    let mut all = Vec::new();
    for document in documents {
        let mut vms = Vec::new();
        object(&document, &[&catalogue, types], false, &mut |item| match item {
            ConfigItem::Vm(vm) => vms.push(vm),
            ConfigItem::Object(_) => {}
        });
        if vms.is_empty() {
            all.push(document.json());
        }
        for vm in &vms {
            let Some(kubevirt) = &vm.kubevirt else { continue };
            if let Some(missing) = kubevirt.missing_instancetype() {
                let name = &missing.value;
                let what = format!(
                    "the instance type {name} is not known, which has the VM's vCPUs: put it into \
                     the same file"
                );
                return Err(MalformedText::new(missing.span.start, what));
            }
            all.push(kubevirt.instance(&vm.name));
        }
    }
    Ok(all)
}

fn object(
    yaml: &YamlValue,
    catalogues: &[&Catalogue],
    presets: bool,
    each: &mut dyn FnMut(ConfigItem),
) {
    let value = |name: &str| inner(yaml, name);
    let Some(YamlKind::Scalar(kind)) = value("kind").map(|value| &value.kind) else { return };
    if kubevirt::is_list(kind)
        && let Some(YamlKind::List(items)) = value("items").map(|items| &items.kind)
    {
        for item in items {
            object(item, catalogues, presets, each);
        }
    }
    if KINDS.contains(&kind.as_str()) {
        let node = yaml.clone();
        let Some(kind) = node.get("kind").map(|node| (node.text(), node.span)) else { return };
        let kind = LocatedValue::new(kind.0.unwrap_or_default().to_owned(), kind.1);
        let name = node.get("metadata.name").and_then(Node::text).unwrap_or("unnamed").to_owned();
        return each(ConfigItem::Object(KubeObject { kind, name, node }));
    }
    let Some(path) = kubevirt::template_of(kind) else { return };
    let machine = match kind.as_str() {
        "VirtualMachine" => Some(yaml),
        "VirtualMachinePool" => {
            value("spec").and_then(|spec| inner(spec, "virtualMachineTemplate"))
        }
        _ => None,
    };
    let applied =
        machine.map_or_else(ExpandedVm::default, |machine| Catalogue::apply(catalogues, machine));
    let whole = yaml.clone();
    let object = &whole;
    let Some((key, kind)) = object.entry("kind") else { return };
    let template = if path.is_empty() { Some(object) } else { object.get(path) };
    let Some(template) = template else { return };
    let Some((spec_key, written)) = template.entry("spec") else { return };
    let filled = applied.spec;
    let spec = filled.as_ref().unwrap_or(written);
    let name = object.get("metadata.name").and_then(Node::text).unwrap_or("unnamed");
    let annotations = [template, object]
        .into_iter()
        .flat_map(|node| node.get("metadata.annotations").map(Node::entries).unwrap_or_default());
    let mut vm = Vm::new(ConfigFormat::Kubevirt, key.span);
    vm.name = name.to_owned();
    vm.kubevirt = Some(Kubevirt {
        spec: spec.clone(),
        object: object.clone(),
        kind: LocatedValue::new(kind.text().unwrap_or_default().to_owned(), kind.span),
        spec_path: if path.is_empty() { "spec".to_owned() } else { format!("{path}.spec") },
        annotations: annotations.map(|(name, _)| name.text.clone()).collect(),
        open: presets || !applied.missing.is_empty() || !applied.conflicts.is_empty(),
        conflicts: applied.conflicts,
        missing: applied.missing,
        shortfalls: applied.shortfalls,
        references: applied.references,
    });
    let head = written.entry("domain").map_or(spec_key.span, |(key, _)| key.span);
    fill(spec, head, &mut vm);
    each(ConfigItem::Vm(Box::new(vm)));
}

fn inner<'a>(yaml: &'a YamlValue, name: &str) -> Option<&'a YamlValue> {
    let YamlKind::Map(entries) = &yaml.kind else { return None };
    entries.iter().rfind(|(key, _)| key.text == name).map(|(_, value)| value)
}

fn fill(spec: &Node, head: Span, vm: &mut Vm) {
    vm.head = head;
    let text = |path: &str| {
        let node = spec.get(path)?;
        Some(LocatedValue::new(node.text()?.to_owned(), node.span))
    };
    vm.arch = text("architecture").map(|mut arch| {
        match arch.value.as_str() {
            "amd64" => arch.value = "x86_64".to_owned(),
            "arm64" => arch.value = "aarch64".to_owned(),
            _ => {}
        }
        arch
    });
    let architecture = spec.get("architecture").and_then(Node::text).unwrap_or_default();
    cpu(spec, architecture, head, vm);
    let bytes = |path: &str| {
        let node = spec.get(path)?;
        Some(LocatedValue::new(node.bytes()?, node.span))
    };
    vm.memory_bytes = defaults::memory(
        bytes("domain.memory.guest"),
        bytes("domain.resources.requests.memory"),
        bytes("domain.resources.limits.memory"),
    );
    if let Some(huge) = spec.get("domain.memory.hugepages") {
        let size = huge.get("pageSize");
        let span = size.map_or(huge.span, |node| node.span);
        vm.huge_pages = Some(LocatedValue::new(size.and_then(Node::bytes), span));
    }
    for name in ["hpet", "kvm", "hyperv", "pit", "rtc"] {
        if let Some((key, timer)) = spec.get("domain.clock.timer").and_then(|node| node.entry(name))
        {
            let present =
                timer.get("present").map(|node| LocatedValue::new(node.is_true(), node.span));
            let name = if name == "kvm" { "kvmclock" } else { name };
            vm.timers.push(LocatedValue::new(Timer { name: name.to_owned(), present }, key.span));
        }
    }
    if let Some(strategy) = text("evictionStrategy")
        && strategy.value.starts_with("LiveMigrate")
    {
        vm.migrates = Some(strategy.span);
    }
    devices(spec, vm);
    vm.asks = kubevirt_asks::read(spec);
}

/// The processor and its topology, where nothing is said as KubeVirt fills it in.
fn cpu(spec: &Node, architecture: &str, head: Span, vm: &mut Vm) {
    let level = |name: &str| {
        let node = spec.get("domain.cpu")?.get(name)?;
        // KubeVirt takes 0 for none.
        Some(LocatedValue::new(node.number().filter(|number| *number > 0)?, node.span))
    };
    let cpus = |path: &str| {
        let node = spec.get(path)?;
        Some(LocatedValue::new(node.quantity()?, node.span))
    };
    let (limit, request) =
        (cpus("domain.resources.limits.cpu"), cpus("domain.resources.requests.cpu"));
    let levels = ["sockets", "cores", "threads"].map(level);
    let amount = |cpus: &Option<LocatedValue<f64>>| cpus.as_ref().map(|cpus| cpus.value);
    let counts = levels.clone().map(|level| level.map(|level| level.value));
    let [sockets, cores, threads] = defaults::topology(counts, amount(&limit), amount(&request));
    let [sockets_at, cores_at, threads_at] = levels.map(|level| level.map(|level| level.span));
    let topology = Topology { sockets, dies: 1, clusters: 1, cores, threads, threads_at, cores_at };
    let said = cores_at.or(sockets_at).or(threads_at);
    let span = said.or(limit.or(request).map(|cpus| cpus.span)).unwrap_or(head);
    vm.vcpus = LocatedValue::new(topology.vcpus(), span);
    vm.max_vcpus = match level("maxSockets").filter(|most| most.value > sockets) {
        Some(most) => {
            let all = Topology { sockets: most.value, ..topology.clone() };
            LocatedValue::new(all.vcpus(), most.span)
        }
        None => vm.vcpus.clone(),
    };
    // One that KubeVirt makes of requests says nothing of cores.
    if said.is_some() {
        vm.topology = Some(LocatedValue::new(topology, span));
    }
    let features = spec.get("domain.cpu.features").map(Node::items).unwrap_or_default();
    let features = features.iter().filter_map(|feature| {
        let policy = feature.get("policy").and_then(Node::text).unwrap_or("require");
        let name = feature.get("name")?.text()?.to_owned();
        Some((name, !matches!(policy, "disable" | "forbid")))
    });
    let model = spec.get("domain.cpu.model");
    let written = model.and_then(Node::text).filter(|name| !name.is_empty());
    let value = CpuView {
        model: written.unwrap_or(defaults::cpu_model(architecture)).to_owned(),
        migratable: None,
        features: features.collect(),
        tsc_frequency: false,
    };
    vm.cpu = Some(LocatedValue::new(value, model.map_or(head, |node| node.span)));
}

fn devices(spec: &Node, vm: &mut Vm) {
    let items = |path: &str| spec.get(path).map(Node::items).unwrap_or_default();
    let at = |node: &Node| Some(LocatedValue::new(node.text()?.to_owned(), node.span));
    let multiqueue = |path: &str| spec.get(path).filter(|node| node.is_true());
    let block_queues = multiqueue("domain.devices.blockMultiQueue")
        .map(|node| LocatedValue::new(vm.vcpus.value, node.span));
    let architecture = spec.get("architecture").and_then(Node::text).unwrap_or_default();
    let named = |item: &'_ Node| item.get("name").and_then(Node::text).unwrap_or("disk").to_owned();
    let volumes: HashMap<String, &Node> =
        items("volumes").iter().map(|volume| (named(volume), volume)).collect();
    // A preference that is not known may have another.
    let open = vm.kubevirt.as_ref().is_some_and(|kubevirt| kubevirt.open);
    let default_bus = |span| {
        (!open).then(|| LocatedValue::new(defaults::disk_bus(architecture).to_owned(), span))
    };
    let written = items("domain.devices.disks");
    for disk in written {
        let name = named(disk);
        let kind = ["disk", "lun", "cdrom"]
            .iter()
            .find_map(|kind| Some((*kind, disk.get(kind).filter(|node| !node.is_null())?)));
        let span = disk.get("name").map_or(disk.span, |node| node.span);
        let volume = volumes.get(&name);
        let is = |sources: &[&str]| {
            volume.is_some_and(|volume| sources.iter().any(|source| volume.get(source).is_some()))
        };
        let bus = kind.and_then(|(_, target)| at(target.get("bus")?));
        vm.disks.push(DiskView {
            span,
            hard: kind.is_none_or(|(kind, _)| kind != "cdrom") && !is(defaults::SEEDS),
            bus: bus.filter(|bus| !bus.value.is_empty()).or_else(|| default_bus(span)),
            cache: disk.get("cache").and_then(at),
            io: disk.get("io").and_then(at),
            iothreads: disk
                .get("dedicatedIOThread")
                .filter(|node| node.is_true())
                .and_then(at)
                .into_iter()
                .collect(),
            queues: block_queues.clone(),
            node: false,
            // Only a claim can be a block device; a DataVolume may be either.
            block: is(&["persistentVolumeClaim", "dataVolume"]),
            name,
        });
    }
    // A volume without a disk gets one.
    let filesystems = items("domain.devices.filesystems").iter();
    let known: HashSet<String> = written.iter().chain(filesystems).map(named).collect();
    for volume in items("volumes").iter().filter(|volume| volume.get("memoryDump").is_none()) {
        let name = named(volume);
        if known.contains(&name) {
            continue;
        }
        let span = volume.get("name").map_or(volume.span, |node| node.span);
        vm.disks.push(DiskView {
            span,
            hard: defaults::SEEDS.iter().all(|source| volume.get(source).is_none()),
            bus: default_bus(span),
            cache: None,
            io: None,
            iothreads: Vec::new(),
            queues: block_queues.clone(),
            node: false,
            block: ["persistentVolumeClaim", "dataVolume"]
                .iter()
                .any(|source| volume.get(source).is_some()),
            name,
        });
    }
    let net_queues = multiqueue("domain.devices.networkInterfaceMultiqueue")
        .map(|node| LocatedValue::new(vm.vcpus.value, node.span));
    for nic in items("domain.devices.interfaces") {
        let span = nic.get("name").map_or(nic.span, |node| node.span);
        if nic.get("sriov").is_some() {
            vm.passthrough = Some(span);
            continue;
        }
        let model = nic.get("model").and_then(at);
        vm.nics.push(NicView {
            span,
            backend: NicBackendView::Tap,
            model: Some(
                model.unwrap_or_else(|| LocatedValue::new(defaults::NIC_MODEL.to_owned(), span)),
            ),
            vhost: None,
            queues: net_queues.clone(),
            multiqueue: None,
            vectors: None,
            rx_ring: None,
            tx_ring: None,
            reconnects: None,
        });
    }
    if vm.has_default_network() {
        vm.nics.push(NicView {
            span: vm.head,
            backend: NicBackendView::Tap,
            model: Some(LocatedValue::new(defaults::NIC_MODEL.to_owned(), vm.head)),
            vhost: None,
            queues: net_queues,
            multiqueue: None,
            vectors: None,
            rx_ring: None,
            tx_ring: None,
            reconnects: None,
        });
    }
    for path in ["domain.devices.gpus", "domain.devices.hostDevices"] {
        if let Some(device) = items(path).first() {
            vm.passthrough = Some(device.get("name").map_or(device.span, |node| node.span));
        }
    }
}
