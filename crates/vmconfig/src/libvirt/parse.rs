//! Domain XML, read: as people and programs wrote it.

use std::collections::{BTreeMap, HashMap, HashSet};

use topology::bounded;

use crate::source::SourceText;
use crate::spec::RESERVED;
use crate::{
    Accel, Arch, BootSource, ClockBase, CpuCache, Enlightenment, GuestNode, GuestTopology, Irqchip,
    MemoryPolicy, MemorySource, NumberSet, PageSize, ParsedVm, RtcTrack, Scheduler, TickPolicy,
    UnmodelledSetting, VmSettings, cpu,
};

use super::tree::{DomainElement, read_domains};
use super::xml::{Xml, XmlReader};

/// Why a text is no domain of libvirt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LibvirtMismatch {
    /// It is not XML.
    #[error("Not XML: {0}")]
    Xml(String),
    /// It is XML of something else.
    #[error("No <domain> in it: its first element is <{0}>")]
    NoDomain(String),
}

/// The VMs of a text with domains' XML; of a fragment of one too, as people quote them.
///
/// # Errors
/// [`LibvirtMismatch`] if it isn't XML or holds no domain.
pub fn parse(text: &str) -> Result<Vec<ParsedVm>, LibvirtMismatch> {
    let source = SourceText::new(text);
    let mut all = Vec::new();
    let read = read_domains(text, &mut |domain| all.push(parse_domain(&domain, &source)));
    let document = read.and_then(|()| match all.is_empty() {
        true => bounded::xml(text).map(Some),
        false => Ok(None),
    });
    match document {
        Ok(None) => Ok(all),
        Ok(Some(document)) => {
            Err(LibvirtMismatch::NoDomain(document.root_element().tag_name().name().to_owned()))
        }
        Err(broken) => {
            Err(LibvirtMismatch::Xml(format!("line {}: {}", broken.line(text), broken.what)))
        }
    }
}

/// The VM of a domain; `source` is the text that it stands in.
#[must_use]
pub fn parse_domain(domain: &DomainElement, source: &SourceText<'_>) -> ParsedVm {
    // What libvirt does where nobody says anything.
    let settings = VmSettings {
        machine: "pc".to_owned(),
        cpu_model: "qemu64".to_owned(),
        ..VmSettings::new("vm", Arch::X86_64, Accel::Kvm, BootSource::Firmware)
    };
    let xml = XmlReader::new(source);
    let mut parser =
        DomainParser { xml, settings, kept: Vec::new(), pages: None, iothreads: HashMap::new() };
    parser.domain(domain);
    let DomainParser { xml, settings, mut kept, .. } = parser;
    let (lines, rest) = xml.rest(domain);
    kept.extend(rest);
    ParsedVm { settings, kept, lines, files: BTreeMap::new() }.finish()
}

pub(super) struct DomainParser<'a> {
    pub(super) xml: XmlReader<'a>,
    pub(super) settings: VmSettings,
    pub(super) kept: Vec<UnmodelledSetting>,
    /// `<hugepages>`, until the cells are known.
    pages: Option<Xml<'a>>,
    /// Which iothread of a VM has a number of libvirt's.
    iothreads: HashMap<u32, u32>,
}

/// A `<page>` of `<hugepages>`.
struct HugepageSize<'a> {
    element: Xml<'a>,
    /// None if it can't be.
    size: Option<PageSize>,
    /// The cells that it is for; none is all others.
    cells: Option<NumberSet>,
    /// Its cells are no list of numbers: libvirt refuses it.
    is_bad: bool,
}

fn page(element: Xml<'_>) -> HugepageSize<'_> {
    let size = element.bytes_of("size").and_then(|bytes| PageSize::from_kib(bytes.value / 1024));
    let cells = element.list("nodeset").map(|cells| cells.value).filter(|cells| !cells.is_empty());
    let is_bad = cells.is_none() && element.at("nodeset").is_some();
    HugepageSize { element, size, cells, is_bad }
}

impl<'a> DomainParser<'a> {
    fn domain(&mut self, domain: Xml<'a>) {
        if let Some(accel) = self.xml.attr_if(domain, "type", |text| match text {
            "kvm" => Some(Accel::Kvm),
            "qemu" => Some(Accel::Tcg),
            _ => None,
        }) {
            self.settings.accel = accel;
            self.xml.at("accel", domain);
        }
        if let Some(element) = self.xml.child(domain, "name")
            && let Some(name) = self.xml.text_if(element, |text| Some(text.to_owned()))
        {
            self.settings.name = name;
            self.xml.at("name", element);
        }
        self.os(domain);
        self.memory(domain);
        let vcpus = self.vcpu(domain);
        self.iothreads(domain);
        self.cpu(domain, vcpus);
        self.huge_pages();
        self.cputune(domain);
        self.numatune(domain);
        self.features(domain);
        self.clock(domain);
        if let Some(devices) = self.xml.child(domain, "devices") {
            self.devices(devices);
        }
        for commandline in self.xml.children(domain, "commandline") {
            self.commandline(commandline);
        }
    }

    fn os(&mut self, domain: Xml<'a>) {
        let Some(os) = self.xml.child(domain, "os") else { return };
        if let Some(kind) = self.xml.child(os, "type") {
            self.xml.text_if(kind, |text| (text == "hvm").then_some(()));
            if let Some(arch) = self.xml.attr_if(kind, "arch", Arch::from_name) {
                self.settings.arch = arch;
                // QEMU's own choice, where it has one.
                self.settings.machine = if arch == Arch::X86_64 { "pc" } else { "virt" }.to_owned();
                self.xml.at("arch", kind);
            }
            if let Some(machine) = self.xml.attr(kind, "machine") {
                self.settings.machine = machine.to_owned();
                if machine == "isapc" {
                    self.settings.cpu_model = "486".to_owned();
                }
                self.xml.at("machine", kind);
            }
        }
        let text = |name: &str| {
            let element = self.xml.child(os, name)?;
            self.xml.text_if(element, |text| (!text.is_empty()).then(|| text.to_owned()))
        };
        let (kernel, initrd) = (text("kernel"), text("initrd"));
        if let Some(kernel) = kernel {
            self.settings.boot =
                BootSource::Kernel { kernel: kernel.into(), initrd: initrd.map(Into::into) };
            self.xml.at("boot", os);
        }
        if let Some(parameters) = text("cmdline") {
            let words = parameters.split_ascii_whitespace().map(str::to_owned);
            self.settings.kernel_cmdline = words.collect();
        }
    }

    fn memory(&mut self, domain: Xml<'a>) {
        if let Some(element) = self.xml.child(domain, "memory")
            && let Some(mib) = self.xml.mib(element)
        {
            self.settings.memory_mib = mib;
            self.xml.at("memory_mib", element);
        }
        // The same again while nothing is plugged in or ballooned away.
        if let Some(element) = self.xml.child(domain, "currentMemory")
            && self.xml.mib(element) != Some(self.settings.memory_mib)
        {
            self.xml.reject(element);
        }
        let Some(backing) = self.xml.child(domain, "memoryBacking") else { return };
        self.xml.at("memory", backing);
        self.pages = self.xml.child(backing, "hugepages");
        let memory = &mut self.settings.memory;
        memory.nosharepages = self.xml.child(backing, "nosharepages").map(|_| true);
        memory.locked = self.xml.child(backing, "locked").map(|_| true);
        if let Some(source) = self.xml.child(backing, "source") {
            let kind = self.xml.attr_if(source, "type", |text| match text {
                "memfd" => Some(Some(MemorySource::Memfd)),
                "file" => Some(Some(MemorySource::File)),
                "anonymous" => Some(None),
                _ => None,
            });
            memory.source = kind.flatten();
        }
        if let Some(access) = self.xml.child(backing, "access") {
            memory.shared = self.xml.attr_if(access, "mode", self::access);
            // Whom to share with can only be said of a file.
            if memory.shared.is_some() {
                memory.source.get_or_insert(MemorySource::File);
            }
            self.xml.at("memory.shared", access);
        }
        if let Some(allocation) = self.xml.child(backing, "allocation") {
            memory.prealloc = self.xml.attr_if(allocation, "mode", |text| match text {
                "immediate" => Some(true),
                "ondemand" => Some(false),
                _ => None,
            });
            memory.prealloc_threads = self.xml.number(allocation, "threads");
            self.xml.at("memory.prealloc", allocation);
        }
    }

    /// Huge pages, once the cells are known: each cell has the page that names
    /// it, or else the one that names none, or else none that are huge. libvirt allocates
    /// them at the start, whatever `<allocation>` says.
    ///
    /// Source: libvirt `qemuBuildMemoryGetPagesize`.
    fn huge_pages(&mut self) {
        let Some(pages) = self.pages else { return };
        self.xml.at("memory.huge_pages", pages);
        let all = self.xml.children(pages, "page").into_iter().map(page);
        let (bad, all): (Vec<HugepageSize<'a>>, Vec<HugepageSize<'a>>) =
            all.partition(|page| page.is_bad);
        bad.iter().for_each(|page| self.xml.reject(page.element));
        if all.is_empty() && !bad.is_empty() {
            return;
        }
        let general = all.iter().rfind(|page| page.cells.is_none()).map(|page| page.size);
        let of_cell = |cell: u32| {
            let named = |page: &&HugepageSize<'a>| {
                page.cells.as_ref().is_some_and(|set| set.contains(cell))
            };
            all.iter().find(named).map(|page| page.size).or(general)
        };
        let cells = u32::try_from(self.settings.numa.len()).unwrap_or(u32::MAX);
        let sizes: Vec<Option<Option<PageSize>>> = match (all.is_empty(), cells) {
            (true, cells) => vec![Some(Some(PageSize::M2)); cells.max(1) as usize],
            // Without cells those of the first one count, whomever it names.
            (false, 0) => vec![all.first().map(|page| page.size)],
            (false, cells) => (0..cells).map(of_cell).collect(),
        };
        if sizes.contains(&Some(None)) {
            // A size that can't be.
            all.iter().for_each(|page| self.xml.reject(page.element));
            return;
        }
        for HugepageSize { element, .. } in &all {
            for name in ["size", "unit", "nodeset"] {
                self.xml.attr(element, name);
            }
        }
        // Pages of the processor's plain size are none that are huge.
        let sizes = sizes.into_iter().map(|size| size.flatten().filter(|size| size.is_huge()));
        let VmSettings { memory, numa, .. } = &mut self.settings;
        if numa.is_empty()
            && let Some(size) = sizes.clone().next().flatten()
        {
            memory.huge_pages = Some(size);
            memory.source.get_or_insert(MemorySource::File);
            memory.prealloc = Some(true);
        }
        for (node, size) in numa.iter_mut().zip(sizes) {
            let Some(size) = size else { continue };
            node.huge_pages = Some(size);
            node.source = node.source.or(memory.source).or(Some(MemorySource::File));
            node.prealloc = Some(true);
        }
    }

    fn vcpu(&mut self, domain: Xml<'a>) -> u32 {
        let Some(vcpu) = self.xml.child(domain, "vcpu") else { return 1 };
        let count = self.xml.text_number(vcpu).unwrap_or(1);
        self.xml.attr_if(vcpu, "placement", |text| (text == "static").then_some(()));
        self.settings.present_vcpus = self.xml.number(vcpu, "current");
        self.xml.at("vcpus", vcpu);
        // The pCPUs of vCPUs that have no pin of their own.
        let all = self.xml.list(vcpu, "cpuset");
        if let Some(all) = all.filter(|all| !all.is_empty()) {
            for number in 0..count.min(crate::invalid::MAX_VCPUS) {
                self.settings.pins.vcpus.0.insert(number, all.clone());
            }
            self.settings.pins.emulator = Some(all);
            self.xml.at("pins", vcpu);
        }
        count
    }

    fn iothreads(&mut self, domain: Xml<'a>) {
        let mut count: u32 = 0;
        if let Some(element) = self.xml.child(domain, "iothreads") {
            count = self.xml.text_number(element).unwrap_or(0);
            self.xml.at("iothreads", element);
        }
        let mut named = HashSet::new();
        if let Some(ids) = self.xml.child(domain, "iothreadids") {
            for one in self.xml.children(ids, "iothread") {
                let poll = self.xml.child(one, "poll");
                let poll = poll.and_then(|poll| self.xml.number(poll, "max"));
                // One for all, or it can't be said.
                if named.is_empty() {
                    self.settings.iothread_poll_max_ns = poll;
                }
                let polls_alike = poll == self.settings.iothread_poll_max_ns;
                let id: Option<u32> = self.xml.number(one, "id");
                if !id.is_some_and(|id| named.insert(id)) || !polls_alike {
                    self.xml.reject(one);
                }
            }
            self.xml.at("iothreads", ids);
            if self.settings.iothread_poll_max_ns.is_some() {
                self.xml.at("iothread_poll_max_ns", ids);
            }
        }
        self.iothreads = iothread_ids(domain).into_iter().zip(1..).collect();
        let named = u32::try_from(named.len()).unwrap_or(u32::MAX);
        self.settings.iothreads = count.max(named);
        if count > named && self.settings.iothread_poll_max_ns.is_some() {
            // Those that are not named poll as QEMU has it.
            self.xml.child(domain, "iothreadids").into_iter().for_each(|ids| self.xml.reject(ids));
        }
    }

    /// Which iothread that is which libvirt gives this number.
    pub(super) fn iothread(&self, id: &str) -> Option<u32> {
        let id: u32 = id.trim().parse().ok()?;
        // No such thread: a number that can't be either, for others to see.
        let missing = || self.settings.iothreads.saturating_add(id.max(1));
        Some(self.iothreads.get(&id).copied().unwrap_or_else(missing))
    }

    fn cpu(&mut self, domain: Xml<'a>, vcpus: u32) {
        // libvirt's own choice is a socket for each.
        let plain = GuestTopology { sockets: vcpus, cores: 1, ..GuestTopology::of_cores(1) };
        self.settings.topology = plain;
        let Some(cpu) = self.xml.child(domain, "cpu") else { return };
        self.xml.at("cpu_model", cpu);
        let mode = self.xml.attr_if(cpu, "mode", |text| {
            let known = ["host-passthrough", "host-model", "maximum", "custom"];
            known.contains(&text).then_some(text)
        });
        let own_check = match mode {
            Some("host-model") => "partial",
            _ => "none",
        };
        self.xml.attr_if(cpu, "check", |text| (text == own_check).then_some(()));
        let model = self.xml.child(cpu, "model");
        let mut text = match (mode, model) {
            (Some("host-passthrough"), _) => "host".to_owned(),
            (Some("maximum"), _) => "max".to_owned(),
            (Some("host-model"), _) => "host-model".to_owned(),
            (_, Some(model)) => self
                .xml
                .text_if(model, |text| (!text.is_empty()).then(|| text.to_owned()))
                .unwrap_or_else(|| self.settings.cpu_model.clone()),
            (_, None) => self.settings.cpu_model.clone(),
        };
        if let Some(model) = model {
            self.xml.attr_if(model, "fallback", |text| (text == "forbid").then_some(()));
            self.xml.attr_if(cpu, "match", |text| (text == "exact").then_some(()));
        }
        if let Some(on) = self.xml.switch(cpu, "migratable") {
            text.push_str(if on { ",+migratable" } else { ",-migratable" });
        }
        for feature in self.xml.children(cpu, "feature") {
            let policy = self.xml.attr_if(feature, "policy", |text| match text {
                "require" | "force" => Some("+"),
                "disable" | "forbid" => Some("-"),
                _ => None,
            });
            // The policy that isn't written is `require`.
            let sign = match (policy, feature.at("policy").is_some()) {
                (Some(sign), _) => sign,
                (None, false) => "+",
                (None, true) => {
                    self.xml.reject(feature);
                    continue;
                }
            };
            if let Some(name) = self.xml.attr(feature, "name") {
                text.push_str(&format!(",{sign}{name}"));
            }
        }
        self.settings.cpu_model = text;
        if let Some(cache) = self.xml.child(cpu, "cache") {
            let level = self.xml.attr(cache, "level");
            self.settings.cpu_cache = self.xml.attr_if(cache, "mode", |text| match (text, level) {
                ("passthrough", _) => Some(CpuCache::Passthrough),
                ("emulate", Some("3") | None) => Some(CpuCache::Emulate),
                ("disable", _) => Some(CpuCache::Off),
                _ => None,
            });
        }
        if let Some(levels) = self.xml.child(cpu, "topology") {
            let level = |name: &str| self.xml.number(levels, name).unwrap_or(1);
            self.settings.topology = GuestTopology {
                sockets: level("sockets"),
                dies: level("dies"),
                clusters: level("clusters"),
                cores: level("cores"),
                threads: level("threads"),
            };
            self.xml.at("topology", levels);
            if self.settings.topology.vcpus() != vcpus {
                let text = format!("{vcpus} vCPUs are not topology {}", self.settings.topology);
                let line = self.xml.line(levels);
                self.kept.push(UnmodelledSetting::of_text(line, "/domain/cpu/topology", text));
            }
        }
        if let Some(numa) = self.xml.child(cpu, "numa") {
            self.cells(numa);
        }
    }

    /// The cells, in the order of their numbers. Their memory is the VM's, and
    /// vCPUs that are in none are in the first, as libvirt has it.
    ///
    /// Source: libvirt `virDomainNumaDefParseXML`, `virDomainDefPostParseMemory`,
    /// `qemuDomainDefNumaCPUsRectify`.
    fn cells(&mut self, numa: Xml<'a>) {
        let elements = self.xml.children(numa, "cell");
        let mut ordered: Vec<(usize, Xml<'a>)> = Vec::new();
        for (place, cell) in elements.iter().copied().enumerate() {
            ordered.push((cell.number("id").map_or(place, |id| id.value), cell));
        }
        ordered.sort_by_key(|(number, _)| *number);
        if !ordered.iter().map(|(number, _)| *number).eq(0..ordered.len()) {
            // What can't be is kept as written, and the numbers are reported.
            ordered = elements.iter().copied().map(|cell| (usize::MAX, cell)).collect();
        }
        for (place, (number, cell)) in ordered.into_iter().enumerate() {
            if number == place {
                self.xml.attr(cell, "id");
            }
            let vcpus = self.xml.list(cell, "cpus").unwrap_or_default();
            let memory = self.xml.mib_of(cell, "memory");
            let mut node =
                GuestNode { vcpus, memory_mib: memory.unwrap_or(0), ..GuestNode::default() };
            // Whom to share with can only be said of a file, here too.
            if let Some(shared) = self.xml.attr_if(cell, "memAccess", access) {
                node.shared = Some(shared);
                node.source = self.settings.memory.source.or(Some(MemorySource::File));
            }
            if let Some(distances) = self.xml.child(cell, "distances") {
                for sibling in self.xml.children(distances, "sibling") {
                    let id = self.xml.number(sibling, "id");
                    let value = self.xml.number(sibling, "value");
                    if let (Some(id), Some(value)) = (id, value) {
                        node.distances.insert(id, value);
                    }
                }
            }
            self.xml.at(&format!("numa.{place}"), cell);
            self.settings.numa.push(node);
        }
        let VmSettings { topology, numa: nodes, memory_mib, .. } = &mut self.settings;
        let seated = nodes.iter().fold(NumberSet::default(), |all, one| all.union(&one.vcpus));
        let vcpus = topology.vcpus().min(crate::invalid::MAX_VCPUS);
        let homeless = (0..vcpus).collect::<NumberSet>().difference(&seated);
        let sum = nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.memory_mib));
        if let Some(first) = nodes.first_mut() {
            first.vcpus = first.vcpus.union(&homeless);
            *memory_mib = sum;
        }
    }

    fn cputune(&mut self, domain: Xml<'a>) {
        let Some(tune) = self.xml.child(domain, "cputune") else { return };
        for pin in self.xml.children(tune, "vcpupin") {
            let vcpu: Option<u32> = self.xml.number(pin, "vcpu");
            let set = self.xml.list(pin, "cpuset");
            if let (Some(vcpu), Some(set)) = (vcpu, set) {
                self.settings.pins.vcpus.0.insert(vcpu, set);
                self.xml.at(&format!("pins.vcpus.{vcpu}"), pin);
            }
        }
        if let Some(pin) = self.xml.child(tune, "emulatorpin")
            && let Some(set) = self.xml.list(pin, "cpuset")
        {
            self.settings.pins.emulator = Some(set);
            self.xml.at("pins.emulator", pin);
        }
        for pin in self.xml.children(tune, "iothreadpin") {
            let number = self.xml.attr_if(pin, "iothread", |id| self.iothread(id));
            let set = self.xml.list(pin, "cpuset");
            if let (Some(number), Some(set)) = (number, set) {
                self.settings.pins.iothreads.0.insert(number, set);
                self.xml.at(&format!("pins.iothreads.{number}"), pin);
            }
        }
        let scheduler = |element: Xml<'a>| -> Option<Scheduler> {
            let priority = self.xml.attr(element, "priority");
            self.xml.attr_if(element, "scheduler", |name| match priority {
                Some(priority) => format!("{name}:{priority}").parse().ok(),
                None => name.parse().ok(),
            })
        };
        let threads = |name: &str, attribute: &str| {
            let mut all = BTreeMap::new();
            for element in self.xml.children(tune, name) {
                let set = self.xml.list(element, attribute).unwrap_or_default();
                if let Some(scheduler) = scheduler(element) {
                    all.extend(set.iter().map(|thread| (thread, scheduler)));
                    self.xml.at("scheduler", element);
                }
            }
            all
        };
        let vcpus = threads("vcpusched", "vcpus");
        let iothreads = threads("iothreadsched", "iothreads").into_iter();
        let iothreads = iothreads
            .filter_map(|(id, scheduler)| Some((self.iothread(&id.to_string())?, scheduler)))
            .collect();
        let emulator = self.xml.child(tune, "emulatorsched").and_then(scheduler);
        let schedulers = &mut self.settings.scheduler;
        (schedulers.vcpus, schedulers.iothreads) = (vcpus, iothreads);
        schedulers.emulator = emulator;
    }

    fn numatune(&mut self, domain: Xml<'a>) {
        let Some(tune) = self.xml.child(domain, "numatune") else { return };
        let place = |element: Xml<'a>| -> Option<(NumberSet, MemoryPolicy)> {
            // Then numad says where, and what stands here counts for nothing.
            if element.get("placement") == Some("auto") {
                return None;
            }
            let nodes = self.xml.list(element, "nodeset")?;
            self.xml.attr(element, "placement");
            let policy = match element.get("mode") {
                None => MemoryPolicy::Bind,
                Some(_) => self.xml.attr_if(element, "mode", |text| {
                    MemoryPolicy::NAMES.iter().find(|row| row.2 == text).map(|row| row.0)
                })?,
            };
            Some((nodes, policy))
        };
        let mut said = Vec::new();
        for element in self.xml.children(tune, "memnode") {
            let cell = element.number("cellid");
            let cell = cell.filter(|cell| cell.value < self.settings.numa.len());
            let cell: Option<usize> = self.xml.noted(element, "cellid", cell);
            match (cell, place(element)) {
                (Some(cell), Some((nodes, policy))) => {
                    self.settings.numa[cell].host_nodes = Some(nodes.clone());
                    self.settings.numa[cell].policy = Some(policy);
                    self.xml.at(&format!("numa.{cell}.host_nodes"), element);
                    said.push((nodes, policy));
                }
                _ => self.xml.reject(element),
            }
        }
        let Some(element) = self.xml.child(tune, "memory") else { return };
        let Some((nodes, policy)) = place(element) else {
            self.xml.reject(element);
            return;
        };
        if self.settings.numa.is_empty() {
            self.settings.memory.host_nodes = Some(nodes);
            self.settings.memory.policy = Some(policy);
            self.xml.at("memory.host_nodes", element);
        } else {
            // It holds for the cells that say nothing themselves.
            for node in self.settings.numa.iter_mut().filter(|node| node.host_nodes.is_none()) {
                (node.host_nodes, node.policy) = (Some(nodes.clone()), Some(policy));
            }
            let all = said.iter().fold(NumberSet::default(), |all, one| all.union(&one.0));
            if said.len() == self.settings.numa.len() && all != nodes {
                self.xml.reject(element);
            }
        }
    }

    fn features(&mut self, domain: Xml<'a>) {
        let Some(features) = self.xml.child(domain, "features") else { return };
        self.xml.at("hints", features);
        self.xml.child(features, "acpi");
        let state = |parent: Xml<'a>, name: &str| -> Option<bool> {
            let element = self.xml.child(parent, name)?;
            match element.at("state").is_some() {
                true => self.xml.switch(element, "state"),
                false => Some(true),
            }
        };
        let hints = &mut self.settings.hints;
        if let Some(apic) = self.xml.child(features, "apic") {
            hints.pv_eoi = self.xml.switch(apic, "eoi");
        }
        hints.pv_spinlocks = state(features, "pvspinlock");
        hints.pmu = state(features, "pmu");
        if let Some(kvm) = self.xml.child(features, "kvm") {
            hints.kvm_hidden = state(kvm, "hidden");
            hints.kvm_hint_dedicated = state(kvm, "hint-dedicated");
            hints.poll_control = state(kvm, "poll-control");
            hints.pv_ipi = state(kvm, "pv-ipi");
        }
        if let Some(ioapic) = self.xml.child(features, "ioapic") {
            hints.irqchip = self.xml.attr_if(ioapic, "driver", |text| match text {
                "kvm" => Some(Irqchip::Kernel),
                "qemu" => Some(Irqchip::Split),
                _ => None,
            });
        }
        if let Some(hyperv) = self.xml.child(features, "hyperv") {
            self.xml.attr_if(hyperv, "mode", |text| (text == "custom").then_some(()));
            for row in Enlightenment::NAMES {
                if state(hyperv, row.2) == Some(true) {
                    hints.hyperv.get_or_insert_default().insert(row.0);
                }
            }
            if let Some(spinlocks) = self.xml.child(hyperv, "spinlocks")
                && self.xml.switch(spinlocks, "state") != Some(false)
            {
                hints.hyperv_spinlocks = self.xml.number(spinlocks, "retries");
            }
        }
    }

    fn clock(&mut self, domain: Xml<'a>) {
        let Some(clock) = self.xml.child(domain, "clock") else { return };
        self.xml.at("clock", clock);
        let given = &mut self.settings.clock;
        given.base = self.xml.attr_if(clock, "offset", |text| match text {
            "utc" => Some(ClockBase::Utc),
            "localtime" => Some(ClockBase::Localtime),
            _ => None,
        });
        for timer in self.xml.children(clock, "timer") {
            let present = || self.xml.switch(timer, "present");
            let policy = || self.xml.attr_if(timer, "tickpolicy", TickPolicy::from_name);
            match self.xml.attr(timer, "name") {
                Some("kvmclock") => given.kvmclock = present(),
                Some("hypervclock") => given.hypervclock = present(),
                Some("hpet") => given.hpet = present(),
                Some("tsc") => given.tsc_frequency_hz = self.xml.number(timer, "frequency"),
                // KVM's can't catch up, and libvirt says nothing of it to QEMU.
                Some("pit") => {
                    let policy = |text: &str| {
                        TickPolicy::from_name(text).filter(|one| *one != TickPolicy::Catchup)
                    };
                    given.pit = self.xml.attr_if(timer, "tickpolicy", policy);
                }
                Some("rtc") => {
                    given.rtc = policy();
                    given.rtc_track = self.xml.attr_if(timer, "track", RtcTrack::from_name);
                }
                _ => self.xml.reject(timer),
            }
        }
    }

    /// What libvirt can't say, said to QEMU.
    fn commandline(&mut self, commandline: Xml<'a>) {
        let mut arguments: Vec<(Xml<'a>, &'a str)> = Vec::new();
        for argument in self.xml.children(commandline, "arg") {
            if let Some(value) = self.xml.attr(argument, "value") {
                arguments.push((argument, value));
            }
        }
        let mut rest = arguments.into_iter().peekable();
        while let Some((element, option)) = rest.next() {
            let value = rest.next_if(|(_, next)| !next.starts_with('-')).map(|(_, value)| value);
            let name = if option.starts_with("--") { &option[1..] } else { option };
            match (name, value) {
                ("-overcommit", Some("cpu-pm=on")) => {
                    self.settings.hints.cpu_pm = Some(true);
                    self.xml.at("hints.cpu_pm", element);
                    continue;
                }
                ("-overcommit", Some("mem-lock=on")) => {
                    self.settings.memory.locked = Some(true);
                    continue;
                }
                ("-machine", Some(properties)) if properties.contains('=') => {
                    self.settings.machine.push_str(&format!(",{properties}"));
                    continue;
                }
                ("-global", Some(value)) => {
                    if let Some(property) = cpu::of_global(value) {
                        self.settings.cpu_model.push_str(&format!(",{}", property.text()));
                        continue;
                    }
                }
                _ => {}
            }
            let text = [Some(option), value].into_iter().flatten().collect::<Vec<_>>().join(" ");
            let path = "/domain/qemu:commandline".to_owned();
            self.kept.push(UnmodelledSetting::of_text(self.xml.line(element), path, text));
            if !RESERVED.iter().any(|(reserved, _)| *reserved == name) {
                self.settings.extra_args.push(option.to_owned());
                self.settings.extra_args.extend(value.map(str::to_owned));
            }
        }
    }
}

/// libvirt's numbers of a domain's iothreads, in the order in which a VM counts them: those
/// that `<iothreadids>` names, then others with the lowest numbers that are free, until
/// there are as many as `<iothreads>` says.
///
/// Source: libvirt `virDomainDefIOThreadsPostParse`.
#[must_use]
pub fn iothread_ids(domain: &DomainElement) -> Vec<u32> {
    let ids = domain.first("iothreadids").map(|ids| ids.all("iothread")).unwrap_or_default();
    let mut named = HashSet::new();
    let ids = ids.into_iter().filter_map(|one| Some(one.number("id")?.value));
    let mut ids: Vec<u32> = ids.filter(|id| named.insert(*id)).collect();
    let count = domain.first("iothreads").and_then(DomainElement::text_number::<u32>);
    let most = crate::spec::MAX_IOTHREADS.min(count.map_or(0, |count| count.value)) as usize;
    let free = (1..).filter(|id| !named.contains(id));
    ids.extend(free.take(most.saturating_sub(named.len())));
    ids
}

/// Whether others may map the memory.
fn access(text: &str) -> Option<bool> {
    match text {
        "shared" => Some(true),
        "private" => Some(false),
        _ => None,
    }
}
