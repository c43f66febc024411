//! libvirt's domain XML.
//!
//! Source: libvirt documentation, "Domain XML format".

use topology::PcpuSet;
use topology::bounded::MalformedText;
use vmconfig::command_line::{Properties, ShellWord};

use crate::read::libvirt_asks;
use crate::rule::ConfigFormat;
use crate::vm::{
    CpuView, DiskView, GuestNodeView, NicBackendView, NicView, Pin, Timer, Topology, Vm,
};
use vmconfig::libvirt::{self, DomainElement, bus_of_target};
use vmconfig::source::{LocatedValue, SourceText};

/// The domains of a text, with their settings if those are wanted.
pub(crate) fn read(
    source: &SourceText<'_>,
    settings: bool,
    each: &mut dyn FnMut(Vm),
) -> Result<(), MalformedText> {
    libvirt::read_domains(source.text, &mut |element| {
        let mut vm = domain(&element);
        vm.parsed = settings.then(|| Box::new(libvirt::parse_domain(&element, source)));
        vm.domain = Some(element);
        each(vm);
    })
}

fn domain(domain: &DomainElement) -> Vm {
    let mut vm = Vm::new(ConfigFormat::Libvirt, domain.tag);
    if let Some(kind) = domain.at("type") {
        vm.accel = kind.clone();
        if kind.value == "qemu" {
            "tcg".clone_into(&mut vm.accel.value);
        }
    }
    for node in &domain.children {
        match node.name.as_str() {
            "name" => {
                vm.name = node.text.as_ref().map_or_else(String::new, |at| at.value.clone());
            }
            "vcpu" => vcpu(node, &mut vm),
            "memory" => vm.memory_bytes = node.bytes(),
            "iothreads" => {
                vm.iothreads_at = Some(node.text.as_ref().map_or(node.tag, |at| at.span));
            }
            "iothreadids" => {
                vm.iothreads_at.get_or_insert(node.tag);
            }
            "os" => os(node, &mut vm),
            "cputune" => cputune(node, &mut vm),
            "numatune" => numatune(node, &mut vm),
            "memoryBacking" => backing(node, &mut vm),
            "cpu" => cpu(node, &mut vm),
            "features" => {
                for node in node.named("kvm").flat_map(|kvm| kvm.named("hint-dedicated")) {
                    vm.hint_dedicated = node.switch("state");
                }
            }
            "clock" => {
                vm.timers.extend(node.named("timer").map(|timer| {
                    let name = timer.get("name").unwrap_or_default().to_owned();
                    let present = timer.switch("present");
                    LocatedValue::new(Timer { name, present }, timer.span)
                }));
            }
            "devices" => devices(node, &mut vm),
            "commandline" => commandline(node, &mut vm),
            _ => {}
        }
    }
    let ids = libvirt::iothread_ids(domain);
    vm.iothreads = ids.iter().map(u32::to_string).collect();
    finish(domain, &mut vm);
    vm.asks = libvirt_asks::read(domain);
    vm
}

/// What needs the whole domain, whatever the order of its elements.
fn finish(domain: &DomainElement, vm: &mut Vm) {
    let frequency = domain
        .named("clock")
        .flat_map(|clock| clock.named("timer"))
        .any(|timer| timer.get("name") == Some("tsc") && timer.at("frequency").is_some());
    if let Some(cpu) = &mut vm.cpu {
        cpu.value.tsc_frequency = frequency;
    }
    // A part of a domain, as people show it to others, says nothing of what it leaves
    // out; libvirt takes none without these.
    let is_whole = ["name", "memory", "os"].iter().all(|part| domain.first(part).is_some());
    if domain.first("vcpu").is_none() && !is_whole {
        let topology = vm.topology.as_ref();
        match topology.map(|at| LocatedValue::new(at.value.vcpus(), at.span)) {
            Some(vcpus) => (vm.vcpus, vm.max_vcpus) = (vcpus.clone(), vcpus),
            None => vm.vcpus_unknown = true,
        }
    }
}

fn vcpu(node: &DomainElement, vm: &mut Vm) {
    if let Some(max) = node.text_number() {
        vm.max_vcpus = max;
        vm.vcpus = node.number("current").unwrap_or_else(|| vm.max_vcpus.clone());
    }
    vm.affinity = node.list("cpuset");
}

fn os(node: &DomainElement, vm: &mut Vm) {
    for child in &node.children {
        match child.name.as_str() {
            "type" => vm.arch = child.at("arch").cloned(),
            "cmdline" => vm.kernel_cmdline = child.text.clone(),
            _ => {}
        }
    }
}

fn cputune(cputune: &DomainElement, vm: &mut Vm) {
    for node in &cputune.children {
        let pcpus = || node.list("cpuset");
        match node.name.as_str() {
            "vcpupin" => {
                if let (Some(id), Some(pcpus)) = (node.number("vcpu"), pcpus()) {
                    vm.pins.push(Pin { id, pcpus, span: node.span });
                }
            }
            "iothreadpin" => {
                if let (Some(id), Some(pcpus)) = (node.at("iothread").cloned(), pcpus()) {
                    vm.iothread_pins.push(Pin { id, pcpus, span: node.span });
                }
            }
            "emulatorpin" => vm.emulator = pcpus(),
            "vcpusched" if node.get("scheduler").is_some_and(is_real_time) => {
                vm.fifo = node.list("vcpus");
            }
            "quota" | "global_quota" => {
                vm.quota = node.text_number();
            }
            _ => {}
        }
    }
}

fn numatune(numatune: &DomainElement, vm: &mut Vm) {
    for node in &numatune.children {
        match node.name.as_str() {
            "memory" => {
                vm.memory_nodes = node.list("nodeset");
                vm.memory_mode = node.get("mode").map(str::to_owned);
            }
            "memnode" => {
                if let (Some(cell), Some(nodes)) = (node.number("cellid"), node.list("nodeset")) {
                    vm.cell_nodes.push((cell, nodes));
                }
            }
            _ => {}
        }
    }
}

fn backing(backing: &DomainElement, vm: &mut Vm) {
    for node in &backing.children {
        match node.name.as_str() {
            "hugepages" => {
                let size = |page: &DomainElement| Some(page.bytes_of("size")?.value);
                // Those of all cells that no other one names.
                let general = node.named("page").find(|page| page.at("nodeset").is_none());
                let at = general.or_else(|| node.first("page")).unwrap_or(node);
                vm.huge_pages = Some(LocatedValue::new(general.and_then(size), at.tag));
                let of_cells = node
                    .named("page")
                    .filter_map(|page| Some((page.list("nodeset")?.value, size(page)?)));
                vm.pages_of_cells.extend(of_cells);
            }
            "nosharepages" => vm.merge = Some(LocatedValue::new(false, node.span)),
            "access" => vm.shared_memory |= node.get("mode") == Some("shared"),
            _ => {}
        }
    }
}

fn cpu(node: &DomainElement, vm: &mut Vm) {
    let model = node.first("model").and_then(|model| model.text.clone());
    let mode = node.get("mode").unwrap_or("custom").to_owned();
    let named = model.map(|model| model.value);
    let features = node.named("feature").filter_map(|feature| {
        let on = !matches!(feature.get("policy"), Some("disable" | "forbid"));
        Some((feature.get("name")?.to_owned(), on))
    });
    let cpu = CpuView {
        model: if mode == "custom" { named.unwrap_or_default() } else { mode },
        migratable: node.switch("migratable"),
        features: features.collect(),
        tsc_frequency: false,
    };
    vm.cpu = Some(LocatedValue::new(cpu, node.tag));
    for node in node.named("topology") {
        let level = |name: &str| node.number(name);
        let of = |name: &str| level(name).map_or(1, |at| at.value);
        let topology = Topology {
            sockets: of("sockets"),
            dies: of("dies"),
            clusters: of("clusters"),
            cores: of("cores"),
            threads: of("threads"),
            threads_at: level("threads").map(|at| at.span),
            cores_at: level("cores").map(|at| at.span),
        };
        vm.topology = Some(LocatedValue::new(topology, node.span));
    }
    for (index, cell) in node.named("numa").flat_map(|numa| numa.named("cell")).enumerate() {
        let id = cell.number("id").map_or(index as u32, |id| id.value);
        vm.cells.push(GuestNodeView {
            id,
            vcpus: cell.list("cpus").map_or_else(PcpuSet::new, |at| at.value),
            memory_bytes: cell.bytes_of("memory").map(|at| at.value),
            nodes: None,
            memdev: None,
            distances: cell.first("distances").is_some(),
            span: cell.tag,
        });
    }
    let mut cells = node.named("numa").flat_map(|numa| numa.named("cell"));
    vm.shared_memory |=
        !vm.cells.is_empty() && cells.all(|cell| cell.get("memAccess") == Some("shared"));
}

fn devices(devices: &DomainElement, vm: &mut Vm) {
    for node in &devices.children {
        match node.name.as_str() {
            "disk" => vm.disks.push(disk(node)),
            "interface" => {
                if node.get("type") == Some("hostdev") {
                    vm.passthrough = Some(node.tag);
                    vm.host_devices.extend(node.host_device());
                } else {
                    vm.nics.push(nic(node));
                }
            }
            "hostdev" => {
                vm.passthrough = Some(node.tag);
                vm.host_devices.extend(node.host_device());
            }
            "controller" if node.get("type") == Some("pci") => {
                let targets = node.named("target");
                let nodes = targets.flat_map(|target| target.named("node"));
                let nodes = nodes.filter_map(|node| Some(node.text_number::<u32>()?.value));
                vm.expander_nodes = vm.expander_nodes.union(&nodes.collect());
            }
            "memory" => {
                let size = node.named("target").flat_map(|one| one.named("size"));
                let bytes = size.filter_map(|size| Some(size.bytes()?.value));
                vm.module_bytes = bytes.fold(vm.module_bytes, u64::saturating_add);
            }
            "memballoon" if node.get("model") != Some("none") => {
                vm.balloon = Some(node.tag);
            }
            "iommu" => {
                vm.extended_interrupts |= node
                    .named("driver")
                    .any(|driver| matches!(driver.get("eim"), Some("on" | "yes")));
            }
            // An iothread may also serve a SCSI controller.
            "controller" if node.get("type") == Some("scsi") => {
                if let Some(driver) = node.first("driver")
                    && let iothreads = iothreads(driver)
                    && !iothreads.is_empty()
                {
                    let mut disk = disk(node);
                    disk.hard = false;
                    disk.bus = Some(LocatedValue::new("virtio-scsi".to_owned(), node.tag));
                    disk.iothreads = iothreads;
                    vm.disks.push(disk);
                }
            }
            _ => {}
        }
    }
}

/// The iothread of a driver, or those that its queues are shared out to.
fn iothreads(driver: &DomainElement) -> Vec<LocatedValue<String>> {
    let mapped = driver.named("iothreads").flat_map(|all| all.named("iothread"));
    let mapped = mapped.filter_map(|one| one.at("id").cloned());
    driver.at("iothread").cloned().into_iter().chain(mapped).collect()
}

fn disk(node: &DomainElement) -> DiskView {
    let driver = node.first("driver");
    let target = node.first("target");
    let option = |name: &str| driver.and_then(|driver| driver.at(name).cloned());
    let source = node.first("source");
    let told = target.and_then(|target| target.at("bus").cloned());
    let target_bus = told.or_else(|| {
        let dev = target?.at("dev")?;
        let bus = bus_of_target(node.get("device"), &dev.value)?;
        Some(LocatedValue::new(bus.to_owned(), dev.span))
    });
    DiskView {
        span: driver.map_or(node.tag, |driver| driver.span),
        name: target.and_then(|node| node.get("dev")).unwrap_or("disk").to_owned(),
        hard: matches!(node.get("device"), None | Some("disk")),
        bus: target_bus,
        cache: option("cache"),
        io: option("io"),
        iothreads: driver.map(iothreads).unwrap_or_default(),
        queues: driver.and_then(|driver| driver.number("queues")),
        node: false,
        block: matches!(node.get("type"), Some("block" | "nvme"))
            || source.is_some_and(|source| source.at("dev").is_some()),
    }
}

fn nic(node: &DomainElement) -> NicView {
    let driver = node.first("driver");
    let model = node.first("model");
    let backend = match node.get("type") {
        // passt is a process of its own, and fast.
        Some("user") if node.named("backend").any(|one| one.get("type") == Some("passt")) => {
            NicBackendView::Other
        }
        Some("user") => NicBackendView::User,
        Some("vhostuser") => NicBackendView::VhostUser,
        Some("bridge" | "network" | "ethernet" | "direct") => NicBackendView::Tap,
        _ => NicBackendView::Other,
    };
    let vhost = driver.and_then(|driver| {
        driver.parsed("name", |name| match name {
            "vhost" => Some(true),
            "qemu" => Some(false),
            _ => None,
        })
    });
    NicView {
        span: node.tag,
        backend,
        model: model.and_then(|model| model.at("type").cloned()),
        vhost,
        queues: driver.and_then(|driver| driver.number("queues")),
        multiqueue: None,
        vectors: None,
        reconnects: (backend == NicBackendView::VhostUser).then(|| reconnects(node)).flatten(),
        rx_ring: driver.and_then(|driver| driver.number("rx_queue_size")),
        tx_ring: driver.and_then(|driver| driver.number("tx_queue_size")),
    }
}

/// QEMU's own options, which libvirt passes on.
fn commandline(node: &DomainElement, vm: &mut Vm) {
    let values: Vec<LocatedValue<String>> =
        node.named("arg").filter_map(|arg| arg.at("value").cloned()).collect();
    for pair in values.windows(2) {
        let span = pair[1].span;
        match pair[0].value.as_str() {
            "-overcommit" => {
                let options = Properties::read(&ShellWord::of_argument(&pair[1].value), "");
                vm.cpu_pm = options.is_on("cpu-pm").map(|on| LocatedValue::new(on.value, span));
            }
            "-cpu" | "-global" if pair[1].value.contains("kvm-hint-dedicated=on") => {
                vm.hint_dedicated = Some(LocatedValue::new(true, span));
            }
            // Only what becomes the guest's memory: modules and shared memory of
            // devices have backends, too.
            "-mem-path" => vm.passed_memory = Some(span),
            "-numa" if pair[1].value.contains("memdev=") => vm.passed_memory = Some(span),
            "-machine" | "-M" if pair[1].value.contains("memory-backend=") => {
                vm.passed_memory = Some(span);
            }
            "-object" if pair[1].value.starts_with("iothread") => {
                vm.iothreads_at.get_or_insert(span);
            }
            _ => {}
        }
    }
}

/// Whether QEMU connects anew to what is behind an interface of type `vhostuser`;
/// none if it listens. libvirt's `mode` has to be said.
fn reconnects(interface: &DomainElement) -> Option<bool> {
    let source = interface.first("source")?;
    (source.get("mode")? == "client").then(|| {
        let mut again = source.named("reconnect");
        again.any(|again| again.get("enabled") == Some("yes"))
    })
}

fn is_real_time(scheduler: &str) -> bool {
    matches!(scheduler, "fifo" | "rr")
}
