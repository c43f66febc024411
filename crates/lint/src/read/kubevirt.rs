//! KubeVirt's objects.
//!
//! Source: KubeVirt API reference, `v1.VirtualMachineInstanceSpec`.

use topology::bounded::Broken;

use crate::read::kubevirt_asks;
use crate::read::yaml::{self, Node};
use crate::rule::Format;
use crate::vm::{Backend, Cpu, Disk, Kubevirt, Nic, Timer, Topology, Vm};
use vmconfig::source::{At, Span};

/// The VMs of all documents; objects of other kinds are left alone.
pub(crate) fn read(text: &str) -> Result<Vec<Vm>, Broken> {
    let mut vms = Vec::new();
    for document in yaml::read(text)? {
        object(&document, &mut vms);
    }
    Ok(vms)
}

fn object(object: &Node, vms: &mut Vec<Vm>) {
    let Some((key, kind)) = object.entry("kind") else { return };
    let path = match kind.text().unwrap_or_default() {
        "VirtualMachineInstance" => "",
        "VirtualMachine" | "VirtualMachineInstanceReplicaSet" => "spec.template",
        "VirtualMachinePool" => "spec.virtualMachineTemplate.spec.template",
        "List" | "VirtualMachineList" | "VirtualMachineInstanceList" => {
            for item in object.get("items").map(Node::items).unwrap_or_default() {
                self::object(item, vms);
            }
            return;
        }
        _ => return,
    };
    let template = if path.is_empty() { Some(object) } else { object.get(path) };
    let Some(template) = template else { return };
    let Some((spec_key, spec)) = template.entry("spec") else { return };
    let name = object.get("metadata.name").and_then(Node::text).unwrap_or("unnamed");
    let annotations = [template, object]
        .into_iter()
        .flat_map(|node| node.get("metadata.annotations").map(Node::entries).unwrap_or_default());
    let mut vm = Vm::new(Format::Kubevirt, key.span);
    vm.name = name.to_owned();
    vm.kubevirt = Some(Kubevirt {
        spec: spec.clone(),
        object: object.clone(),
        kind: At::new(kind.text().unwrap_or_default().to_owned(), kind.span),
        spec_path: if path.is_empty() { "spec".to_owned() } else { format!("{path}.spec") },
        annotations: annotations.map(|(name, _)| name.value.clone()).collect(),
        open: ["spec.instancetype", "spec.preference"]
            .iter()
            .any(|path| object.get(path).is_some()),
    });
    let head = spec.entry("domain").map_or(spec_key.span, |(key, _)| key.span);
    fill(spec, head, &mut vm);
    vms.push(vm);
}

fn fill(spec: &Node, head: Span, vm: &mut Vm) {
    vm.head = head;
    let text = |path: &str| {
        let node = spec.get(path)?;
        Some(At::new(node.text()?.to_owned(), node.span))
    };
    vm.arch = text("architecture").map(|mut arch| {
        match arch.value.as_str() {
            "amd64" => arch.value = "x86_64".to_owned(),
            "arm64" => arch.value = "aarch64".to_owned(),
            _ => {}
        }
        arch
    });
    if let Some(cpu) = spec.get("domain.cpu") {
        let level =
            |name: &str| cpu.get(name).and_then(|node| Some(At::new(node.number()?, node.span)));
        let of = |name: &str| level(name).map_or(1, |at| at.value);
        if ["sockets", "cores", "threads"].iter().any(|name| level(name).is_some()) {
            let topology = Topology {
                sockets: of("sockets"),
                dies: 1,
                clusters: 1,
                cores: of("cores"),
                threads: of("threads"),
                threads_at: level("threads").map(|at| at.span),
                cores_at: level("cores").map(|at| at.span),
            };
            let span = level("cores").or(level("sockets")).or(level("threads")).map(|at| at.span);
            vm.topology = Some(At::new(topology, span.unwrap_or(head)));
        }
        let features = cpu.get("features").map(Node::items).unwrap_or_default();
        let features = features.iter().filter_map(|feature| {
            let policy = feature.get("policy").and_then(Node::text).unwrap_or("require");
            let name = feature.get("name")?.text()?.to_owned();
            Some((name, !matches!(policy, "disable" | "forbid")))
        });
        let model = cpu.get("model");
        let cpu_value = Cpu {
            model: model.and_then(Node::text).unwrap_or("host-model").to_owned(),
            migratable: None,
            features: features.collect(),
            tsc_frequency: false,
        };
        vm.cpu = Some(At::new(cpu_value, model.map_or(head, |node| node.span)));
    }
    vm.vcpus = vcpus(spec, vm, head);
    vm.max_vcpus = vm.vcpus.clone();
    let bytes = |path: &str| {
        let node = spec.get(path)?;
        Some(At::new(node.bytes()?, node.span))
    };
    vm.memory_bytes = bytes("domain.memory.guest")
        .or_else(|| bytes("domain.resources.requests.memory"))
        .or_else(|| bytes("domain.resources.limits.memory"));
    if let Some(huge) = spec.get("domain.memory.hugepages") {
        let size = huge.get("pageSize");
        let span = size.map_or(huge.span, |node| node.span);
        vm.huge_pages = Some(At::new(size.and_then(Node::bytes), span));
    }
    for name in ["hpet", "kvm", "hyperv", "pit", "rtc"] {
        if let Some((key, timer)) = spec.get("domain.clock.timer").and_then(|node| node.entry(name))
        {
            let present = timer.get("present").map(|node| At::new(node.is_true(), node.span));
            let name = if name == "kvm" { "kvmclock" } else { name };
            vm.timers.push(At::new(Timer { name: name.to_owned(), present }, key.span));
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

/// The topology's product; without one KubeVirt takes limits, then requests.
fn vcpus(spec: &Node, vm: &Vm, head: Span) -> At<u32> {
    if let Some(topology) = &vm.topology {
        return At { value: topology.value.vcpus(), span: topology.span };
    }
    let paths = ["domain.resources.limits.cpu", "domain.resources.requests.cpu"];
    paths
        .iter()
        .find_map(|path| {
            let node = spec.get(path)?;
            let pcpus = node.quantity()?.ceil();
            Some(At::new(pcpus.clamp(1.0, 65_536.0) as u32, node.span))
        })
        .unwrap_or(At::new(1, head))
}

fn devices(spec: &Node, vm: &mut Vm) {
    let items = |path: &str| spec.get(path).map(Node::items).unwrap_or_default();
    let at = |node: &Node| Some(At::new(node.text()?.to_owned(), node.span));
    let multiqueue = |path: &str| spec.get(path).filter(|node| node.is_true());
    let block_queues =
        multiqueue("domain.devices.blockMultiQueue").map(|node| At::new(vm.vcpus.value, node.span));
    let pod_block = |name: &str| {
        // Only a claim can be a block device; a DataVolume may be either.
        items("volumes").iter().any(|volume| {
            volume.get("name").and_then(Node::text) == Some(name)
                && (volume.get("persistentVolumeClaim").is_some()
                    || volume.get("dataVolume").is_some())
        })
    };
    for disk in items("domain.devices.disks") {
        let name = disk.get("name").and_then(Node::text).unwrap_or("disk").to_owned();
        let kind = ["disk", "lun"].iter().find_map(|kind| disk.get(kind));
        vm.disks.push(Disk {
            span: disk.get("name").map_or(disk.span, |node| node.span),
            hard: kind.is_some() || disk.get("cdrom").is_none(),
            bus: kind.and_then(|kind| at(kind.get("bus")?)),
            cache: disk.get("cache").and_then(at),
            io: disk.get("io").and_then(at),
            iothread: disk.get("dedicatedIOThread").filter(|node| node.is_true()).and_then(at),
            queues: block_queues.clone(),
            node: false,
            block: pod_block(&name),
            name,
        });
    }
    let net_queues = multiqueue("domain.devices.networkInterfaceMultiqueue")
        .map(|node| At::new(vm.vcpus.value, node.span));
    for nic in items("domain.devices.interfaces") {
        let span = nic.get("name").map_or(nic.span, |node| node.span);
        if nic.get("sriov").is_some() {
            vm.passthrough = Some(span);
            continue;
        }
        let model = nic.get("model").and_then(at);
        vm.nics.push(Nic {
            span,
            backend: Backend::Tap,
            model: Some(model.unwrap_or_else(|| At::new("virtio".to_owned(), span))),
            vhost: None,
            queues: net_queues.clone(),
            multiqueue: None,
            vectors: None,
        });
    }
    for path in ["domain.devices.gpus", "domain.devices.hostDevices"] {
        if let Some(device) = items(path).first() {
            vm.passthrough = Some(device.get("name").map_or(device.span, |node| node.span));
        }
    }
}
