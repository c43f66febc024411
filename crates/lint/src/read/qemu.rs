//! QEMU command lines, as in a script or as `ps` shows them.
//!
//! Source: QEMU's manual page.

use topology::PcpuSet;
use vmconfig::command_line::{CommandLine, Properties, ShellWord, Smp, Wrappers, switch};

use crate::read::qemu_asks;
use crate::rule::ConfigFormat;
use crate::vm::{CpuView, DiskView, GuestNodeView, NicBackendView, NicView, Topology, Vm};
use vmconfig::libvirt::list;
use vmconfig::qemu::parse_line;
use vmconfig::source::{LocatedValue, SourceText};

/// Whether a text holds a command that starts QEMU.
pub(crate) fn holds_command(text: &str) -> bool {
    (text.contains("qemu") || text.contains("kvm")) && !CommandLine::all(text).is_empty()
}

pub(crate) fn read(source: &SourceText<'_>, settings: bool, each: &mut dyn FnMut(Vm)) {
    for line in CommandLine::all_of(source) {
        let mut vm = command(&line);
        vm.parsed = settings.then(|| Box::new(parse_line(line, source)));
        each(vm);
    }
}

/// The ids by which options refer to each other.
#[derive(Default)]
struct CrossReferences {
    backends: Vec<(String, Properties)>,
    drives: Vec<(String, Properties)>,
    nets: Vec<(String, Properties)>,
    chardevs: Vec<(String, Properties)>,
    /// SCSI controllers that are not of virtio, and SATA's.
    emulated: Vec<(String, LocatedValue<String>)>,
    sata: Vec<String>,
}

/// SCSI controllers of old machines.
const EMULATED_SCSI: &[&str] = &[
    "lsi",
    "lsi53c810",
    "lsi53c895a",
    "am53c974",
    "dc390",
    "mptsas1068",
    "megasas",
    "megasas-gen2",
];

pub(super) fn command(line: &CommandLine) -> Vm {
    let head = line.program.as_ref().map(ShellWord::span).unwrap_or_default();
    let mut vm = Vm::new(ConfigFormat::Qemu, head);
    vm.name = line.program_name().unwrap_or_default().to_owned();
    vm.arch = line.arch().map(|arch| LocatedValue::new(arch.to_owned(), head));
    let accelerators = line.accelerators();
    vm.accel =
        LocatedValue::new(accelerators.first().to_owned(), accelerators.span.unwrap_or(head));
    vm.kvm_behind_tcg =
        accelerators.first() == "tcg" && accelerators.names.iter().any(|name| name == "kvm");
    let before = Wrappers::read(&line.before);
    (vm.affinity, vm.memory_nodes) = (before.affinity, before.memory_nodes);
    let (smp, said) = line.smp();
    if let Some(said) = said {
        topology(smp, &said, &mut vm);
    }
    vm.memory_bytes = line.memory_bytes();
    vm.unread = line
        .unresolved
        .iter()
        .map(|word| LocatedValue::new(word.text.clone(), word.span()))
        .collect();
    let is_value = |word: &ShellWord| {
        let mut values = line.options.iter().filter_map(|option| option.value.as_ref());
        values.any(|value| value.span() == word.span())
    };
    vm.unread_options = !line.unresolved.iter().all(is_value);
    vm.unread_options |= !line.unread.is_empty();
    vm.unread.extend(line.unread.iter().cloned());
    let mut parts = CrossReferences::default();
    let mut devices = Vec::new();
    for option in &line.options {
        match (option.name.value.as_str(), &option.value) {
            ("no-acpi", _) => vm.acpi_off = Some(option.name.span),
            ("only-migratable", _) => vm.migrates = Some(option.name.span),
            ("device", Some(_)) => devices.push(option.properties("driver")),
            (name, Some(value)) => self::option(name, value, &mut vm, &mut parts),
            (_, None) => {}
        }
    }
    parts.emulated = devices
        .iter()
        .filter_map(|device| Some((device.get("id")?.to_owned(), device.at("driver")?.clone())))
        .filter(|(_, driver)| EMULATED_SCSI.contains(&driver.value.as_str()))
        .collect();
    parts.sata = devices
        .iter()
        .filter(|device| matches!(device.get("driver"), Some("ahci" | "ich9-ahci")))
        .filter_map(|device| Some(device.get("id")?.to_owned()))
        .collect();
    for device in &devices {
        self::device(device, &parts, &mut vm);
    }
    vm.extended_interrupts = devices.iter().any(takes_any_interrupt) || has_split_irqchip(line);
    finish(&parts, &mut vm);
    vm.asks = qemu_asks::read(line);
    vm
}

/// Whether a device is an IOMMU in extended interrupt mode, as those of Intel are where
/// nothing forbids it.
fn takes_any_interrupt(device: &Properties) -> bool {
    let is = |key: &str, default: bool| device.is_on(key).map_or(default, |on| on.value);
    match device.get("driver") {
        Some("intel-iommu") => is("eim", true) && is("intremap", true),
        Some("amd-iommu") => is("xtsup", false) && is("intremap", true),
        _ => false,
    }
}

/// Whether interrupts' messages may name more than 255 vCPUs: KVM offers that where
/// QEMU has the I/O APIC.
fn has_split_irqchip(line: &CommandLine) -> bool {
    line.options.iter().any(|option| {
        let implied = match option.name.value.as_str() {
            "machine" | "M" => "type",
            "accel" => "accel",
            _ => return false,
        };
        option.properties(implied).get("kernel-irqchip") == Some("split")
    })
}

/// The key that an option's first part has without saying it.
fn implied_key(option: &str) -> &'static str {
    match option {
        "name" => "guest",
        "machine" | "M" | "numa" | "net" | "netdev" | "nic" => "type",
        "cpu" => "model",
        "object" => "qom-type",
        "drive" => "file",
        "blockdev" => "driver",
        "chardev" => "backend",
        _ => "",
    }
}

fn option(name: &str, word: &ShellWord, vm: &mut Vm, parts: &mut CrossReferences) {
    // Images by their path alone.
    let options = match name {
        "hda" | "hdb" | "hdc" | "hdd" | "" => Properties::default(),
        _ => Properties::read(word, implied_key(name)),
    };
    match name {
        "name" => {
            if let Some(name) = options.get("guest") {
                vm.name = name.to_owned();
            }
        }
        "machine" | "M" => {
            vm.machine_backend |= options.at("memory-backend").is_some();
            if let Some(acpi) = options.is_on("acpi").filter(|acpi| !acpi.value) {
                vm.acpi_off = Some(acpi.span);
            }
            if let Some(merge) = options.is_on("mem-merge") {
                vm.merge = Some(merge);
            }
            if let Some(hpet) = options.is_on("hpet") {
                let timer =
                    crate::vm::Timer { name: "hpet".to_owned(), present: Some(hpet.clone()) };
                vm.timers.push(LocatedValue::new(timer, hpet.span));
            }
        }
        "mem-path" => {
            vm.memory_path = Some(LocatedValue::new(word.text.clone(), word.span()));
            if word.text.contains("huge") {
                vm.huge_pages = Some(LocatedValue::new(page_size_in(&word.text), options.span()));
            }
        }
        "cpu" => {
            vm.hint_dedicated = feature(&options, "kvm-hint-dedicated");
            if let Some(kvmclock) = feature(&options, "kvmclock") {
                let span = kvmclock.span;
                let timer =
                    crate::vm::Timer { name: "kvmclock".to_owned(), present: Some(kvmclock) };
                vm.timers.push(LocatedValue::new(timer, span));
            }
            let cpu = CpuView {
                model: options.get("model").unwrap_or_default().to_owned(),
                migratable: feature(&options, "migratable"),
                tsc_frequency: options.at("tsc-frequency").is_some(),
                features: features(&options)
                    .map(|(name, on)| (name.to_owned(), on.value))
                    .collect(),
            };
            vm.cpu = Some(LocatedValue::new(cpu, options.span()));
        }
        "overcommit" => vm.cpu_pm = options.is_on("cpu-pm"),
        "append" => vm.kernel_cmdline = Some(LocatedValue::new(word.text.clone(), word.span())),
        "incoming" => vm.migrates = Some(word.span()),
        "object" => match options.get("qom-type") {
            Some("iothread") => {
                vm.iothreads.extend(options.get("id").map(str::to_owned));
                vm.iothreads_at.get_or_insert(options.span());
            }
            Some(kind) if kind.starts_with("memory-backend") => {
                let id = options.get("id").unwrap_or_default().to_owned();
                parts.backends.push((id, options));
            }
            _ => {}
        },
        "numa" => numa(options, vm, parts),
        "drive" | "blockdev" => {
            let key = if name == "drive" { "id" } else { "node-name" };
            let id = options.get(key).unwrap_or_default().to_owned();
            // A -drive with a bus of its own is a device, too.
            let usual = if vm.is_arm() { "virtio" } else { "ide" };
            let own = options.get("if").unwrap_or(usual);
            if name == "drive" && own != "none" {
                let media = options.get("media") == Some("cdrom");
                let bus = LocatedValue::new(
                    own.to_owned(),
                    options.at("if").map_or(options.span(), |at| at.span),
                );
                let mut disk = disk(&[&options], None);
                disk.bus = Some(bus);
                disk.hard = !media && matches!(own, "ide" | "scsi" | "virtio" | "sd");
                vm.disks.push(disk);
            }
            parts.drives.push((id, options));
        }
        "hda" | "hdb" | "hdc" | "hdd" | "" => {
            let mut disk = disk(&[&options], None);
            disk.span = word.span();
            disk.bus = Some(LocatedValue::new("ide".to_owned(), word.span()));
            vm.disks.push(disk);
        }
        "chardev" => {
            let id = options.get("id").unwrap_or_default().to_owned();
            parts.chardevs.push((id, options));
        }
        "netdev" => {
            let id = options.get("id").unwrap_or_default().to_owned();
            parts.nets.push((id, options));
        }
        // The old way: cards and what is behind them meet at a hub.
        "net" if options.get("type") != Some("nic") => {}
        "nic" | "net" => {
            let model = options.at("model").cloned();
            let mut nic = nic(&options);
            let usual = if vm.is_arm() { "virtio" } else { "e1000" };
            nic.model = model.or(Some(LocatedValue::new(usual.to_owned(), options.span())));
            if nic.backend != NicBackendView::Other
                || options.get("type").is_some_and(|kind| kind != "none")
            {
                vm.nics.push(nic);
            }
        }
        _ => {}
    }
}

fn topology(smp: Smp, said: &Properties, vm: &mut Vm) {
    let Smp { sockets, dies, clusters, modules, cores, threads, .. } = smp;
    let levels = ["sockets", "dies", "clusters", "modules", "cores", "threads"];
    if levels.iter().any(|level| said.number(level).is_some()) {
        let topology = Topology {
            sockets,
            dies,
            // The guest's kernel sees both as what shares the second cache.
            clusters: clusters.saturating_mul(modules),
            cores,
            threads,
            threads_at: said.at("threads").map(|at| at.span),
            cores_at: said.at("cores").map(|at| at.span),
        };
        vm.topology = Some(LocatedValue::new(topology, said.span()));
    }
    let place = |key: &str| said.at(key).map_or(said.span(), |at| at.span);
    vm.vcpus = LocatedValue::new(smp.vcpus, place("cpus"));
    vm.max_vcpus = LocatedValue::new(
        smp.max_vcpus,
        place(if said.at("maxcpus").is_some() { "maxcpus" } else { "cpus" }),
    );
}

/// Features of a CPU model with their switches: `+avx2,-x2apic,pmu=off,migratable`.
fn features(options: &Properties) -> impl Iterator<Item = (&str, LocatedValue<bool>)> {
    options.iter().filter(|(key, _)| *key != "model").map(|(key, at)| {
        match key.split_at_checked(1) {
            Some(("+", name)) => (name, LocatedValue::new(true, at.span)),
            Some(("-", name)) => (name, LocatedValue::new(false, at.span)),
            _ => (key, LocatedValue::new(switch(&at.value) == Some(true), at.span)),
        }
    })
}

fn feature(options: &Properties, name: &str) -> Option<LocatedValue<bool>> {
    features(options).filter(|(feature, _)| *feature == name).last().map(|(_, on)| on)
}

fn numa(options: Properties, vm: &mut Vm, parts: &CrossReferences) {
    if options.get("type") == Some("dist") {
        for cell in &mut vm.cells {
            cell.distances = true;
        }
        return;
    }
    if options.get("type") != Some("node") {
        return;
    }
    let id = options.number("nodeid").map_or(vm.cells.len() as u32, |at| at.value);
    let vcpus: PcpuSet = options
        .all("cpus")
        .filter_map(|at| list::parse(&at.value))
        .flat_map(|set| set.iter().collect::<Vec<_>>())
        .collect();
    let backend = options
        .at("memdev")
        .and_then(|memdev| parts.backends.iter().find(|(id, _)| *id == memdev.value));
    let memory = backend
        .and_then(|(_, backend)| backend.bytes("size", 1))
        .or_else(|| options.bytes("mem", 1 << 20));
    let nodes = backend.and_then(|(_, backend)| host_nodes(backend));
    vm.cells.push(GuestNodeView {
        id,
        vcpus,
        memory_bytes: memory.map(|at| at.value),
        nodes,
        memdev: options.get("memdev").map(str::to_owned),
        distances: false,
        span: options.span(),
    });
}

fn host_nodes(backend: &Properties) -> Option<LocatedValue<PcpuSet>> {
    let mut sets =
        backend.all("host-nodes").filter_map(|at| Some((list::parse(&at.value)?, at.span)));
    let (first, span) = sets.next()?;
    Some(LocatedValue::new(sets.fold(first, |all, (set, _)| all.union(&set)), span))
}

/// Pages behind a path or a memfd: `hugetlb=on,hugetlbsize=1G`, `/dev/hugepages`.
fn finish(parts: &CrossReferences, vm: &mut Vm) {
    for (_, backend) in &parts.backends {
        vm.shared_memory |= backend.is_on("share").is_some_and(|share| share.value);
        let path = backend.at("mem-path").filter(|path| path.value.contains("huge"));
        let hugetlb = backend.at("hugetlb").filter(|at| at.value == "on");
        if let Some(at) = path.or(hugetlb) {
            let size = backend.bytes("hugetlbsize", 1).map(|at| at.value);
            let named = path.and_then(|path| page_size_in(&path.value));
            vm.huge_pages = Some(LocatedValue::new(size.or(named), at.span));
        }
        if vm.cells.is_empty() && vm.memory_nodes.is_none() {
            vm.memory_nodes = host_nodes(backend);
        }
        if let Some(merge) = backend.is_on("merge") {
            vm.merge = Some(merge);
        }
    }
}

/// Mount points usually carry the size: `/dev/hugepages-1G`.
fn page_size_in(path: &str) -> Option<u64> {
    let upper = path.to_uppercase();
    if upper.contains("1G") || upper.contains("1048576KB") {
        Some(1 << 30)
    } else if upper.contains("2M") || upper.contains("2048KB") {
        Some(2 << 20)
    } else {
        None
    }
}

fn device(device: &Properties, parts: &CrossReferences, vm: &mut Vm) {
    let Some(driver) = device.at("driver") else { return };
    let kind = driver.value.as_str();
    let drive = device
        .at("drive")
        .and_then(|id| parts.drives.iter().find(|(name, _)| *name == id.value))
        .map(|(_, options)| options);
    let (bus, hard) = match kind {
        name if name.starts_with("virtio-blk") => ("virtio", true),
        name if name.starts_with("virtio-scsi") => ("virtio-scsi", false),
        "scsi-hd" | "scsi-block" => ("scsi", true),
        "ide-hd" => {
            let port = device.get("bus").and_then(|bus| bus.rsplit_once('.'));
            let on_sata = port.is_some_and(|(id, _)| parts.sata.iter().any(|known| known == id));
            (if on_sata { "sata" } else { "ide" }, true)
        }
        "usb-storage" => ("usb", true),
        "nvme" => ("nvme", true),
        "vfio-pci" | "vfio-pci-nohotplug" => {
            vm.passthrough = Some(device.span());
            vm.host_devices.extend(device.at("host").and_then(|host| {
                Some(LocatedValue { value: host.value.parse().ok()?, span: host.span })
            }));
            return;
        }
        name if name.starts_with("virtio-balloon") => {
            vm.balloon = Some(device.span());
            return;
        }
        "pxb-pcie" | "pxb" => {
            let node = device.number("numa_node").map(|node| node.value);
            vm.expander_nodes = vm.expander_nodes.union(&node.into_iter().collect());
            return;
        }
        name if name.starts_with("virtio-net") || is_nic(name) => {
            let net = device
                .at("netdev")
                .and_then(|id| parts.nets.iter().find(|(name, _)| *name == id.value));
            let mut nic = net.map_or_else(|| nic(device), |(_, net)| nic(net));
            if net.is_none() {
                nic.backend = NicBackendView::Other;
            }
            if nic.backend == NicBackendView::VhostUser {
                let id = net.and_then(|(_, net)| net.get("chardev"));
                let socket = parts.chardevs.iter().find(|(name, _)| Some(name.as_str()) == id);
                nic.reconnects = socket.and_then(|(_, socket)| reconnects(socket));
            }
            let model = if name.starts_with("virtio") { "virtio" } else { name };
            nic.model = Some(LocatedValue::new(model.to_owned(), driver.span));
            nic.multiqueue = Some(device.is_on("mq").is_some_and(|mq| mq.value));
            nic.vectors = device.number("vectors");
            nic.rx_ring = device.number("rx_queue_size");
            nic.tx_ring = device.number("tx_queue_size");
            vm.nics.push(nic);
            return;
        }
        _ => return,
    };
    let mut nodes = vec![drive.unwrap_or(device)];
    // Filters and a format's node stand on a protocol's, which has the file.
    while nodes.len() < MAX_NODES
        && let Some(name) = innermost(nodes[nodes.len() - 1], "file")
        && let Some((_, below)) = parts.drives.iter().find(|(id, _)| *id == name.value)
    {
        nodes.push(below);
    }
    let mut disk = disk(&nodes, Some(device));
    let controller = device.get("bus").map(|bus| bus.strip_suffix(".0").unwrap_or(bus));
    let emulated = controller.and_then(|id| parts.emulated.iter().find(|(name, _)| name == id));
    disk.bus = Some(match emulated {
        Some((_, emulated)) => emulated.clone(),
        None => LocatedValue::new(bus.to_owned(), driver.span),
    });
    disk.hard = hard;
    vm.disks.push(disk);
}

fn is_nic(name: &str) -> bool {
    name.starts_with("e1000") || matches!(name, "rtl8139" | "ne2k_pci" | "pcnet" | "vmxnet3")
}

/// More nodes than anybody stacks: one may name itself.
const MAX_NODES: usize = 16;

/// The value of a key in the innermost of the nodes that one option holds:
/// `file.file.aio` before `file.aio` before `aio`.
fn innermost<'a>(node: &'a Properties, key: &str) -> Option<&'a LocatedValue<String>> {
    let depth = |found: &str| {
        let outer = found.strip_suffix(key)?;
        outer.is_empty().then_some(0).or_else(|| {
            let inside = outer.split_terminator('.').all(|part| part == "file");
            (inside && outer.ends_with('.')).then_some(outer.len())
        })
    };
    let found = node.iter().filter_map(|(name, at)| Some((depth(name)?, at)));
    found.max_by_key(|(depth, _)| *depth).map(|(_, at)| at)
}

/// The disk of a drive or of the nodes that it is made of, outermost first.
fn disk(nodes: &[&Properties], device: Option<&Properties>) -> DiskView {
    let drive = nodes[0];
    let either = |key: &str| device.and_then(|device| device.at(key)).or_else(|| drive.at(key));
    let inside = |key: &str| nodes.iter().rev().find_map(|node| innermost(node, key));
    let driver = inside("driver").map(|at| at.value.as_str());
    let id = either("id").or_else(|| drive.at("node-name")).map(|id| id.value.clone());
    // -blockdev says what cache=none says with two switches.
    let direct = inside("cache.direct").map(|at| {
        let mode = if at.value == "on" { "none" } else { "writeback" };
        LocatedValue::new(mode.to_owned(), at.span)
    });
    DiskView {
        span: drive.span(),
        name: id.unwrap_or_else(|| "disk".to_owned()),
        hard: true,
        bus: None,
        cache: drive.at("cache").cloned().or(direct),
        io: inside("aio").cloned(),
        iothreads: device.map(iothreads).unwrap_or_default(),
        queues: device.and_then(|device| device.number("num-queues")),
        block: ["file", "filename"]
            .iter()
            .filter_map(|key| inside(key))
            .any(|file| file.value.starts_with("/dev/"))
            || matches!(driver, Some("host_device" | "nvme")),
        node: drive.get("node-name").is_some(),
    }
}

/// The iothread of a device, or those that its queues are shared out to.
fn iothreads(device: &Properties) -> Vec<LocatedValue<String>> {
    let is_one = |key: &str| {
        key == "iothread" || key.starts_with("iothread-vq-mapping.") && key.ends_with(".iothread")
    };
    device.iter().filter(|(key, _)| is_one(key)).map(|(_, at)| at.clone()).collect()
}

fn nic(net: &Properties) -> NicView {
    let backend = match net.get("type") {
        Some("tap" | "bridge") => NicBackendView::Tap,
        Some("user") => NicBackendView::User,
        Some("vhost-user") => NicBackendView::VhostUser,
        _ => NicBackendView::Other,
    };
    NicView {
        span: net.span(),
        backend,
        model: None,
        vhost: net.is_on("vhost"),
        queues: net.number("queues"),
        multiqueue: None,
        vectors: None,
        rx_ring: None,
        tx_ring: None,
        reconnects: None,
    }
}

/// Whether QEMU connects anew to the other end of a socket; none if it listens.
fn reconnects(chardev: &Properties) -> Option<bool> {
    if chardev.is_on("server").is_some_and(|server| server.value) {
        return None;
    }
    let after = |key: &str| chardev.number(key).is_some_and(|after| after.value > 0);
    Some(after("reconnect") || after("reconnect-ms"))
}
