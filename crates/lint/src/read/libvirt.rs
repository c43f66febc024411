//! libvirt's domain XML.
//!
//! Source: libvirt documentation, "Domain XML format".

use roxmltree::Node;
use topology::PcpuSet;
use topology::bounded::{self, MalformedText};
use vmconfig::command_line::{Properties, ShellWord};

use crate::element::DomainElement;
use crate::read::libvirt_asks;
use crate::read::xml::{XmlSource, children};
use crate::rule::ConfigFormat;
use crate::vm::{
    CpuView, DiskView, GuestNodeView, NicBackendView, NicView, Pin, Timer, Topology, Vm,
};
use vmconfig::PciAddress;
use vmconfig::libvirt::{Domains, bus_of_target, unit};
use vmconfig::source::Located;

/// The domains of a text: one as its root or in a wrapper, or several in a row; with
/// their settings if those are wanted.
pub(crate) fn read(
    text: &str,
    settings: bool,
    each: &mut dyn FnMut(Vm),
) -> Result<(), MalformedText> {
    let (mut counted, mut lines) = (0, 0);
    for (start, part) in documents(text) {
        lines += text[counted..start].matches('\n').count();
        counted = start;
        let document = bounded::xml(part)
            .map_err(|broken| MalformedText { at: start + broken.at, ..broken })?;
        let domains = document.descendants().filter(|node| node.has_tag_name("domain"));
        let reader = XmlSource { base: start, text: part };
        let root = document.root_element();
        let parser = settings.then(|| Domains::new(&document));
        for node in domains.filter(|node| *node == root || has_child(*node, "name")) {
            let mut vm = reader.domain(node);
            vm.parsed = parser.as_ref().map(|parser| Box::new(parser.parse(node).below(lines)));
            each(vm);
        }
    }
    Ok(())
}

/// Inside other documents a VM's element has at least a name.
fn has_child(node: Node<'_, '_>, name: &str) -> bool {
    node.children().any(|child| child.has_tag_name(name))
}

/// Splits a text that holds several documents in a row.
fn documents(text: &str) -> Vec<(usize, &str)> {
    const END: &str = "</domain>";
    let blank = text.len() - text.trim_start_matches('\u{feff}').len();
    let Some(first) = text.find(END) else { return vec![(blank, &text[blank..])] };
    let behind = &text[first + END.len()..];
    if !behind.contains(END) || behind.contains("</domains>") || behind.contains("</domainstatus>")
    {
        return vec![(blank, &text[blank..])];
    }
    let mut parts = Vec::new();
    let mut from = blank;
    while let Some(found) = text[from..].find(END) {
        let end = from + found + END.len();
        let lead = text[from..end].len() - text[from..end].trim_start().len();
        parts.push((from + lead, &text[from + lead..end]));
        from = end;
    }
    parts
}

impl XmlSource<'_> {
    fn domain(&self, domain: Node<'_, '_>) -> Vm {
        let mut vm = Vm::new(ConfigFormat::Libvirt, self.tag(domain));
        if let Some(kind) = self.attribute(domain, "type") {
            let value = if kind.value == "qemu" { "tcg".to_owned() } else { kind.value };
            vm.accel = Located { value, span: kind.span };
        }
        for node in domain.children().filter(Node::is_element) {
            match node.tag_name().name() {
                "name" => vm.name = self.content(node).map_or_else(String::new, |at| at.value),
                "vcpu" => self.vcpu(node, &mut vm),
                "memory" => vm.memory_bytes = self.bytes(node),
                "iothreads" => {
                    let count = self.content(node);
                    let number = count.as_ref().and_then(|at| at.value.parse().ok()).unwrap_or(0);
                    vm.iothreads = (1..=u32::min(number, 4096)).map(|id| id.to_string()).collect();
                    vm.iothreads_at = Some(count.map_or(self.tag(node), |at| at.span));
                }
                "iothreadids" => {
                    let ids = node.children().filter_map(|child| child.attribute("id"));
                    for id in ids.map(str::to_owned) {
                        if !vm.iothreads.contains(&id) {
                            vm.iothreads.push(id);
                        }
                    }
                    vm.iothreads_at.get_or_insert(self.tag(node));
                }
                "os" => self.os(node, &mut vm),
                "cputune" => self.cputune(node, &mut vm),
                "numatune" => self.numatune(node, &mut vm),
                "memoryBacking" => self.backing(node, &mut vm),
                "cpu" => self.cpu(node, &mut vm),
                "features" => {
                    for node in
                        children(node, "kvm").flat_map(|kvm| children(kvm, "hint-dedicated"))
                    {
                        vm.hint_dedicated = self.switch(node, "state");
                    }
                }
                "clock" => {
                    vm.timers.extend(children(node, "timer").map(|timer| {
                        let name = timer.attribute("name").unwrap_or_default().to_owned();
                        let present = self.switch(timer, "present");
                        Located::new(Timer { name, present }, self.whole(timer))
                    }));
                }
                "devices" => self.devices(node, &mut vm),
                "commandline" => self.commandline(node, &mut vm),
                _ => {}
            }
        }
        self.finish(domain, &mut vm);
        vm.asks = libvirt_asks::read(self, domain);
        vm.domain = Some(self.element(domain));
        vm
    }

    /// An element with all in it; documents are not deep enough for the stack to
    /// matter.
    fn element(&self, node: Node<'_, '_>) -> DomainElement {
        let attributes = node.attributes().map(|one| {
            (
                one.name().to_owned(),
                Located::new(one.value().to_owned(), self.span(one.range_value())),
            )
        });
        DomainElement {
            name: node.tag_name().name().to_owned(),
            tag: self.tag(node),
            attributes: attributes.collect(),
            text: self.content(node),
            children: node
                .children()
                .filter(Node::is_element)
                .map(|child| self.element(child))
                .collect(),
        }
    }

    /// What needs the whole domain, whatever the order of its elements.
    fn finish(&self, domain: Node<'_, '_>, vm: &mut Vm) {
        let frequency =
            children(domain, "clock").flat_map(|clock| children(clock, "timer")).any(|timer| {
                timer.attribute("name") == Some("tsc") && timer.has_attribute("frequency")
            });
        if let Some(cpu) = &mut vm.cpu {
            cpu.value.tsc_frequency = frequency;
        }
        // A part of a domain, as people show it to others, says nothing of what it leaves
        // out; libvirt takes none without these.
        let is_whole = ["name", "memory", "os"].iter().all(|part| has_child(domain, part));
        if children(domain, "vcpu").next().is_none() && !is_whole {
            let topology = vm.topology.as_ref();
            match topology.map(|at| Located::new(at.value.vcpus(), at.span)) {
                Some(vcpus) => (vm.vcpus, vm.max_vcpus) = (vcpus.clone(), vcpus),
                None => vm.vcpus_unknown = true,
            }
        }
    }

    fn vcpu(&self, node: Node<'_, '_>, vm: &mut Vm) {
        if let Some(text) = self.content(node)
            && let Ok(max) = text.value.parse()
        {
            vm.max_vcpus = Located { value: max, span: text.span };
            vm.vcpus = self.number(node, "current").unwrap_or_else(|| vm.max_vcpus.clone());
        }
        vm.affinity = self.list(node, "cpuset");
    }

    fn os(&self, node: Node<'_, '_>, vm: &mut Vm) {
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "type" => vm.arch = self.attribute(child, "arch"),
                "cmdline" => vm.kernel_cmdline = self.content(child),
                _ => {}
            }
        }
    }

    fn cputune(&self, cputune: Node<'_, '_>, vm: &mut Vm) {
        for node in cputune.children().filter(Node::is_element) {
            let pcpus = || self.list(node, "cpuset");
            match node.tag_name().name() {
                "vcpupin" => {
                    if let (Some(id), Some(pcpus)) = (self.number(node, "vcpu"), pcpus()) {
                        vm.pins.push(Pin { id, pcpus, span: self.whole(node) });
                    }
                }
                "iothreadpin" => {
                    if let (Some(id), Some(pcpus)) = (self.attribute(node, "iothread"), pcpus()) {
                        vm.iothread_pins.push(Pin { id, pcpus, span: self.whole(node) });
                    }
                }
                "emulatorpin" => vm.emulator = pcpus(),
                "vcpusched" if node.attribute("scheduler").is_some_and(is_real_time) => {
                    vm.fifo = self.list(node, "vcpus");
                }
                "quota" | "global_quota" => {
                    vm.quota = self.content(node).and_then(|text| {
                        Some(Located { value: text.value.parse().ok()?, span: text.span })
                    });
                }
                _ => {}
            }
        }
    }

    fn numatune(&self, numatune: Node<'_, '_>, vm: &mut Vm) {
        for node in numatune.children().filter(Node::is_element) {
            match node.tag_name().name() {
                "memory" => {
                    vm.memory_nodes = self.list(node, "nodeset");
                    vm.memory_mode = node.attribute("mode").map(str::to_owned);
                }
                "memnode" => {
                    if let (Some(cell), Some(nodes)) =
                        (self.number(node, "cellid"), self.list(node, "nodeset"))
                    {
                        vm.cell_nodes.push((cell, nodes));
                    }
                }
                _ => {}
            }
        }
    }

    fn backing(&self, backing: Node<'_, '_>, vm: &mut Vm) {
        for node in backing.children().filter(Node::is_element) {
            match node.tag_name().name() {
                "hugepages" => {
                    let size = |page: Node<'_, '_>| {
                        let unit = page.attribute("unit").unwrap_or("KiB");
                        page.attribute("size")?.parse::<u64>().ok()?.checked_mul(unit::bytes(unit)?)
                    };
                    // Those of all cells that no other one names.
                    let general =
                        children(node, "page").find(|page| !page.has_attribute("nodeset"));
                    let at = general.or_else(|| children(node, "page").next()).unwrap_or(node);
                    vm.huge_pages = Some(Located::new(general.and_then(size), self.tag(at)));
                    let of_cells = children(node, "page")
                        .filter_map(|page| Some((self.list(page, "nodeset")?.value, size(page)?)));
                    vm.pages_of_cells.extend(of_cells);
                }
                "nosharepages" => vm.merge = Some(Located::new(false, self.whole(node))),
                "access" => vm.shared_memory |= node.attribute("mode") == Some("shared"),
                _ => {}
            }
        }
    }

    fn cpu(&self, node: Node<'_, '_>, vm: &mut Vm) {
        let model = children(node, "model").next().and_then(|model| self.content(model));
        let mode = node.attribute("mode").unwrap_or("custom").to_owned();
        let named = model.map(|model| model.value);
        let features = children(node, "feature").filter_map(|feature| {
            let on = !matches!(feature.attribute("policy"), Some("disable" | "forbid"));
            Some((feature.attribute("name")?.to_owned(), on))
        });
        let cpu = CpuView {
            model: if mode == "custom" { named.unwrap_or_default() } else { mode },
            migratable: self.switch(node, "migratable"),
            features: features.collect(),
            tsc_frequency: false,
        };
        vm.cpu = Some(Located::new(cpu, self.tag(node)));
        for node in children(node, "topology") {
            let level = |name: &str| self.number(node, name);
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
            vm.topology = Some(Located::new(topology, self.whole(node)));
        }
        for (index, cell) in
            children(node, "numa").flat_map(|numa| children(numa, "cell")).enumerate()
        {
            let id = self.number(cell, "id").map_or(index as u32, |id| id.value);
            let unit = cell.attribute("unit").unwrap_or("KiB");
            let memory = cell.attribute("memory").and_then(|text| text.trim().parse::<u64>().ok());
            vm.cells.push(GuestNodeView {
                id,
                vcpus: self.list(cell, "cpus").map_or_else(PcpuSet::new, |at| at.value),
                memory_bytes: memory.and_then(|memory| memory.checked_mul(unit::bytes(unit)?)),
                nodes: None,
                memdev: None,
                distances: children(cell, "distances").next().is_some(),
                span: self.tag(cell),
            });
        }
        let mut cells = children(node, "numa").flat_map(|numa| children(numa, "cell"));
        vm.shared_memory |=
            !vm.cells.is_empty() && cells.all(|cell| cell.attribute("memAccess") == Some("shared"));
    }

    fn devices(&self, devices: Node<'_, '_>, vm: &mut Vm) {
        for node in devices.children().filter(Node::is_element) {
            match node.tag_name().name() {
                "disk" => vm.disks.push(self.disk(node)),
                "interface" => {
                    if node.attribute("type") == Some("hostdev") {
                        vm.passthrough = Some(self.tag(node));
                        vm.host_devices.extend(self.host_device(node));
                    } else {
                        vm.nics.push(self.nic(node));
                    }
                }
                "hostdev" => {
                    vm.passthrough = Some(self.tag(node));
                    vm.host_devices.extend(self.host_device(node));
                }
                "controller" if node.attribute("type") == Some("pci") => {
                    let targets = children(node, "target");
                    let nodes = targets.flat_map(|target| children(target, "node"));
                    let nodes = nodes.filter_map(|node| self.content(node)?.value.parse().ok());
                    vm.expander_nodes = vm.expander_nodes.union(&nodes.collect());
                }
                "memory" => {
                    let size = children(node, "target").flat_map(|one| children(one, "size"));
                    let bytes = size.filter_map(|size| Some(self.bytes(size)?.value));
                    vm.module_bytes = bytes.fold(vm.module_bytes, u64::saturating_add);
                }
                "memballoon" if node.attribute("model") != Some("none") => {
                    vm.balloon = Some(self.tag(node));
                }
                "iommu" => {
                    vm.extended_interrupts |= children(node, "driver")
                        .any(|driver| matches!(driver.attribute("eim"), Some("on" | "yes")));
                }
                // An iothread may also serve a SCSI controller.
                "controller" if node.attribute("type") == Some("scsi") => {
                    if let Some(driver) = children(node, "driver").next()
                        && let iothreads = self.iothreads(driver)
                        && !iothreads.is_empty()
                    {
                        let mut disk = self.disk(node);
                        disk.hard = false;
                        disk.bus = Some(Located::new("virtio-scsi".to_owned(), self.tag(node)));
                        disk.iothreads = iothreads;
                        vm.disks.push(disk);
                    }
                }
                _ => {}
            }
        }
    }

    /// The address of a PCI device of the host.
    fn host_device(&self, node: Node<'_, '_>) -> Option<Located<PciAddress>> {
        // The type of an interface does not tell; that of its address does.
        let is_pci = |kind: &str| ["pci", "hostdev"].contains(&kind);
        let source = children(node, "source").next()?;
        let place = children(source, "address").next()?;
        if ![node, place].iter().filter_map(|one| one.attribute("type")).all(is_pci) {
            return None;
        }
        let address = PciAddress::from_libvirt(|name| place.attribute(name))?;
        Some(Located::new(address, self.whole(place)))
    }

    /// The iothread of a driver, or those that its queues are shared out to.
    fn iothreads(&self, driver: Node<'_, '_>) -> Vec<Located<String>> {
        let mapped = children(driver, "iothreads").flat_map(|all| children(all, "iothread"));
        let mapped = mapped.filter_map(|one| self.attribute(one, "id"));
        self.attribute(driver, "iothread").into_iter().chain(mapped).collect()
    }

    fn disk(&self, node: Node<'_, '_>) -> DiskView {
        let driver = children(node, "driver").next();
        let target = children(node, "target").next();
        let option = |name: &str| driver.and_then(|driver| self.attribute(driver, name));
        let source = children(node, "source").next();
        let told = target.and_then(|target| self.attribute(target, "bus"));
        let target_bus = told.or_else(|| {
            let dev = self.attribute(target?, "dev")?;
            let bus = bus_of_target(node.attribute("device"), &dev.value)?;
            Some(Located::new(bus.to_owned(), dev.span))
        });
        DiskView {
            span: driver.map_or(self.tag(node), |driver| self.whole(driver)),
            name: target.and_then(|node| node.attribute("dev")).unwrap_or("disk").to_owned(),
            hard: matches!(node.attribute("device"), None | Some("disk")),
            bus: target_bus,
            cache: option("cache"),
            io: option("io"),
            iothreads: driver.map(|driver| self.iothreads(driver)).unwrap_or_default(),
            queues: driver.and_then(|driver| self.number(driver, "queues")),
            node: false,
            block: matches!(node.attribute("type"), Some("block" | "nvme"))
                || source.is_some_and(|source| source.has_attribute("dev")),
        }
    }

    fn nic(&self, node: Node<'_, '_>) -> NicView {
        let driver = children(node, "driver").next();
        let model = children(node, "model").next();
        let backend = match node.attribute("type") {
            // passt is a process of its own, and fast.
            Some("user")
                if children(node, "backend").any(|one| one.attribute("type") == Some("passt")) =>
            {
                NicBackendView::Other
            }
            Some("user") => NicBackendView::User,
            Some("vhostuser") => NicBackendView::VhostUser,
            Some("bridge" | "network" | "ethernet" | "direct") => NicBackendView::Tap,
            _ => NicBackendView::Other,
        };
        let vhost = driver.and_then(|driver| {
            self.parsed(driver, "name", |name| match name {
                "vhost" => Some(true),
                "qemu" => Some(false),
                _ => None,
            })
        });
        NicView {
            span: self.tag(node),
            backend,
            model: model.and_then(|model| self.attribute(model, "type")),
            vhost,
            queues: driver.and_then(|driver| self.number(driver, "queues")),
            multiqueue: None,
            vectors: None,
            reconnects: (backend == NicBackendView::VhostUser).then(|| reconnects(node)).flatten(),
            rx_ring: driver.and_then(|driver| self.number(driver, "rx_queue_size")),
            tx_ring: driver.and_then(|driver| self.number(driver, "tx_queue_size")),
        }
    }

    /// QEMU's own options, which libvirt passes on.
    fn commandline(&self, node: Node<'_, '_>, vm: &mut Vm) {
        let values: Vec<Located<String>> =
            children(node, "arg").filter_map(|arg| self.attribute(arg, "value")).collect();
        for pair in values.windows(2) {
            let span = pair[1].span;
            match pair[0].value.as_str() {
                "-overcommit" => {
                    let options = Properties::read(&ShellWord::of_argument(&pair[1].value), "");
                    vm.cpu_pm = options.is_on("cpu-pm").map(|on| Located::new(on.value, span));
                }
                "-cpu" | "-global" if pair[1].value.contains("kvm-hint-dedicated=on") => {
                    vm.hint_dedicated = Some(Located::new(true, span));
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
}

/// Whether QEMU connects anew to what is behind an interface of type `vhostuser`;
/// none if it listens. libvirt's `mode` has to be said.
fn reconnects(interface: Node<'_, '_>) -> Option<bool> {
    let source = children(interface, "source").next()?;
    (source.attribute("mode")? == "client").then(|| {
        let mut again = children(source, "reconnect");
        again.any(|again| again.attribute("enabled") == Some("yes"))
    })
}

fn is_real_time(scheduler: &str) -> bool {
    matches!(scheduler, "fifo" | "rr")
}
