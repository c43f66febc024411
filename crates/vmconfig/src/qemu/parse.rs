//! QEMU's command line, read: as people and programs wrote it.

use std::collections::BTreeMap;

use crate::invalid::MAX_VCPUS;
use crate::memory::MAX_NODES;
use crate::{
    Accel, Arch, BootSource, ClockBase, GuestNode, GuestTopology, Irqchip, MemoryBacking,
    MemoryPolicy, MemorySource, NumberSet, ParsedVm, PcpuSet, RtcTrack, TickPolicy, cpu,
};
use topology::bytes;

use super::attached::BackendOptions;
use super::reader::{BackendObject, CommandLineReader, LocatedOption};
use crate::command_line::{CommandLine, Properties, Smp, Wrappers};
use crate::source::SourceText;

/// Why a text is no command line of QEMU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Not a command line of QEMU: it has no option that QEMU takes")]
pub struct QemuMismatch;

/// The VM of a command line, which may be a script: quoted for a shell,
/// continued over lines, with comments; what stands before QEMU's name is kept.
///
/// What is not understood is kept and stands in `extra_args` too, so that the
/// VM stays the same; options that no study may pass are only kept.
///
/// # Errors
/// [`QemuMismatch`] if there is no option at all.
pub fn parse(text: &str) -> Result<ParsedVm, QemuMismatch> {
    parse_source(&SourceText::new(text))
}

/// The same of a text with the files that it names behind it.
///
/// # Errors
/// [`QemuMismatch`] if there is no option at all.
pub fn parse_source(source: &SourceText<'_>) -> Result<ParsedVm, QemuMismatch> {
    let line = CommandLine::one_of(source).ok_or(QemuMismatch)?;
    Ok(CommandLineReader::new().read(line, source))
}

/// The VM of a command line that is taken apart already; `source` is the text that it
/// stands in.
#[must_use]
pub fn parse_line(line: CommandLine, source: &SourceText<'_>) -> ParsedVm {
    CommandLineReader::new().read(line, source)
}

/// The VM of arguments that are already apart.
#[must_use]
pub fn parse_args(args: &[String]) -> ParsedVm {
    CommandLineReader::new().read(CommandLine::of_arguments(args), &SourceText::new(""))
}

impl CommandLineReader {
    fn read(mut self, command: CommandLine, source: &SourceText<'_>) -> ParsedVm {
        self.program(&command, source);
        self.accelerator(&command, source);
        let (smp, said) = command.smp();
        if let Some(said) = said {
            self.topology(smp, said, source);
        }
        if let Some(memory) = command.memory_bytes() {
            self.settings.memory_mib = memory.value.div_ceil(1 << 20);
            self.at("memory_mib", source.line_number(memory.span));
        }
        for word in &command.unresolved {
            let line = source.line_number(word.span());
            self.keep(line, "not resolved", word.text.clone());
        }
        for said in &command.unread {
            self.keep(source.line_number(said.span), "not read", said.value.clone());
        }
        let options = command.options.into_iter().map(|option| LocatedOption::new(option, source));
        let options = without_own(options.collect());
        let mut attached = BackendOptions::default();
        for option in options {
            if !self.general(&option) && !attached.collect(&option, &mut self) {
                attached.later(option);
            }
        }
        for property in std::mem::take(&mut self.cpu_globals) {
            self.settings.cpu_model.push_str(&format!(",{property}"));
        }
        attached.attach(&mut self);
        let remaps = self.settings.iommu.is_some_and(|one| one.interrupt_remapping == Some(true));
        if remaps && self.settings.accel == Accel::Tcg {
            // An emulator's interrupt controller is QEMU's own; the option is KVM's.
            self.settings.hints.irqchip.get_or_insert(Irqchip::Split);
        }
        let (kernel, initrd) = (self.kernel.take(), self.initrd.take());
        match (kernel, &self.settings.boot) {
            (Some(kernel), BootSource::Direct { root_image, cmdline, .. }) => {
                self.settings.boot = BootSource::Direct {
                    kernel: kernel.into(),
                    initrd: initrd.unwrap_or_default().into(),
                    root_image: root_image.clone(),
                    cmdline: cmdline.clone(),
                };
            }
            (Some(kernel), _) => {
                let initrd = initrd.map(Into::into);
                self.settings.boot = BootSource::Kernel { kernel: kernel.into(), initrd };
            }
            (None, _) => {}
        }
        self.memory();
        let mut files = BTreeMap::new();
        for kept in &mut self.kept {
            let (file, line) = source.line_in_file(kept.line);
            (kept.file, kept.line) = (file.map(str::to_owned), line);
        }
        for line in self.lines.values() {
            if let (Some(file), number) = source.line_in_file(*line) {
                files.insert(line - number + 1, file.to_owned());
            }
        }
        ParsedVm { settings: self.settings, kept: self.kept, lines: self.lines, files }.finish()
    }

    /// The program, and what stands before it.
    fn program(&mut self, command: &CommandLine, source: &SourceText<'_>) {
        if command.arch() == Some("aarch64") {
            self.settings.arch = Arch::Aarch64;
            self.settings.machine = "virt".to_owned();
        }
        let before = Wrappers::read(&command.before);
        if let Some(first) = before.rest.first() {
            let words: Vec<&str> = before.rest.iter().map(|word| word.text.as_str()).collect();
            self.keep(source.line_number(first.span()), "before QEMU", words.join(" "));
        }
        if let Some(set) = before.affinity.filter(|set| !set.value.is_empty()) {
            for vcpu in 0..command.smp().0.max_vcpus.min(MAX_VCPUS) {
                self.settings.pins.vcpus.0.insert(vcpu, set.value.clone());
            }
            self.settings.pins.emulator = Some(set.value);
            self.at("pins", source.line_number(set.span));
        }
    }

    /// The first accelerator that there is a word for; those that QEMU would try
    /// instead are kept.
    fn accelerator(&mut self, command: &CommandLine, source: &SourceText<'_>) {
        let asked = command.accelerators();
        let line = asked.span.map(|span| source.line_number(span));
        if let Some(line) = line {
            self.at("accel", line);
        }
        match Accel::from_name(asked.first()) {
            Some(accel) => self.settings.accel = accel,
            None => self.keep(line.unwrap_or(1), "-accel", asked.first().to_owned()),
        }
        // That a program named kvm falls back is its name's doing.
        if let (Some(line), [_, others @ ..]) = (line, &asked.names[..])
            && !others.is_empty()
        {
            self.keep(line, "-accel", format!("or else {}", others.join(", ")));
        }
    }

    /// Everything but devices and what is behind them.
    fn general(&mut self, option: &LocatedOption) -> bool {
        let line = option.line;
        match (option.name.as_str(), option.text()) {
            // What is emitted before anything else.
            ("-no-user-config" | "-nodefaults" | "-no-reboot", _)
            | ("-display" | "-vga" | "-nic" | "-net", "none")
            | ("-serial", super::TERMINAL) => {}
            ("-name", text) if !text.is_empty() => {
                let mut properties = option.properties("guest");
                if let Some(name) = properties.take("guest") {
                    self.settings.name = name;
                    self.at("name", line);
                }
                properties.take_if("debug-threads", |text| (text == "on").then_some(()));
                self.leftover(line, "-name", &properties);
            }
            ("-machine" | "-M", text) if !text.is_empty() => self.machine(option),
            // All of them together say what is tried.
            ("-accel", _) => {
                let mut properties = option.properties("accel");
                properties.take("accel");
                self.leftover(line, "-accel", &properties);
            }
            ("-enable-kvm", _) => {}
            ("-cpu", text) if !text.is_empty() => {
                self.settings.cpu_model = text.to_owned();
                self.at("cpu_model", line);
            }
            ("-smp", text) if !text.is_empty() => {}
            ("-m", text) => {
                let mut properties = option.properties("size");
                match properties.take_if("size", |text| bytes::parse(text, 1 << 20)) {
                    Some(_) => self.leftover(line, "-m", &properties),
                    None => self.keep(line, "-m", text.to_owned()),
                }
            }
            ("-mem-prealloc", _) => {
                self.prealloc = true;
                self.at("memory.prealloc", line);
            }
            ("-overcommit", _) => {
                let mut properties = option.properties("");
                if let Some(on) = properties.switch("cpu-pm") {
                    self.settings.hints.cpu_pm = Some(on);
                    self.at("hints.cpu_pm", line);
                }
                if let Some(on) = properties.switch("mem-lock") {
                    self.settings.memory.locked = Some(on);
                    self.at("memory.locked", line);
                }
                if let Some(rest) = properties.rest() {
                    self.unknown_text(line, &option.name, Some(&rest));
                }
            }
            ("-no-hpet", _) => {
                self.settings.clock.hpet = Some(false);
                self.at("clock.hpet", line);
            }
            ("-rtc", _) => self.rtc(option),
            ("-global", "kvm-pit.lost_tick_policy=delay") => {
                self.settings.clock.pit = Some(TickPolicy::Delay);
                self.at("clock.pit", line);
            }
            ("-global", "kvm-pit.lost_tick_policy=discard") => {
                self.settings.clock.pit = Some(TickPolicy::Discard);
                self.at("clock.pit", line);
            }
            ("-global", text) if let Some(property) = cpu::of_global(text) => {
                self.cpu_globals.push(property.text());
            }
            ("-numa", _) => {
                let properties = option.properties("type");
                match properties.get("type") {
                    Some("node") => self.nodes.push((line, properties)),
                    Some("dist") => self.distances.push((line, properties)),
                    _ => self.unknown(option),
                }
            }
            ("-object", _) => return self.object(option),
            ("-kernel", text) => {
                self.kernel = Some(text.to_owned());
                self.at("boot", line);
            }
            ("-initrd", text) => self.initrd = Some(text.to_owned()),
            ("-append", text) => {
                let words = text.split_ascii_whitespace().map(str::to_owned);
                self.settings.kernel_cmdline = words.collect();
                self.at("kernel_cmdline", line);
            }
            _ => return false,
        }
        true
    }

    fn machine(&mut self, option: &LocatedOption) {
        let mut properties = option.properties("type");
        let known = self.lines.contains_key("machine");
        if let Some(name) = properties.take("type") {
            let old = std::mem::replace(&mut self.settings.machine, name);
            // Properties of an earlier option stay.
            if known && let Some((_, rest)) = old.split_once(',') {
                self.settings.machine.push_str(&format!(",{rest}"));
            }
        }
        properties.take("accel");
        // What `-smp` and `-m` say in other words.
        properties.take_object("smp");
        let mut memory = properties.take_object("memory");
        memory.take_if("size", |text| bytes::parse(text, 1));
        self.leftover(option.line, "-m", &memory);
        if let Some(id) = properties.take("memory-backend") {
            self.whole = Some(id);
        }
        if let Some(rest) = properties.rest() {
            self.settings.machine.push_str(&format!(",{rest}"));
        }
        self.at("machine", option.line);
    }

    fn rtc(&mut self, option: &LocatedOption) {
        let mut properties = option.properties("base");
        let base = properties.take_if("base", |text| match text {
            "utc" => Some(ClockBase::Utc),
            "localtime" => Some(ClockBase::Localtime),
            _ => None,
        });
        let rtc = properties.take_if("driftfix", |text| match text {
            "slew" => Some(TickPolicy::Catchup),
            "none" => Some(TickPolicy::Delay),
            _ => None,
        });
        let track = properties.take_if("clock", RtcTrack::from_qemu);
        let clock = &mut self.settings.clock;
        (clock.base, clock.rtc) = (base.or(clock.base), rtc.or(clock.rtc));
        clock.rtc_track = track.or(clock.rtc_track);
        self.at("clock", option.line);
        if let Some(rest) = properties.rest() {
            self.unknown_text(option.line, &option.name, Some(&rest));
        }
    }

    fn object(&mut self, option: &LocatedOption) -> bool {
        let line = option.line;
        let mut properties = option.properties("qom-type");
        let kind = properties.get("qom-type").unwrap_or_default().to_owned();
        let Some(id) = properties.get("id").map(str::to_owned) else { return false };
        if kind == "iothread" {
            properties.take("qom-type");
            properties.take("id");
            let first = self.iothreads.is_empty();
            let before = self.settings.iothread_poll_max_ns;
            // One for all, or it stays said as it was.
            let poll = properties.take_if("poll-max-ns", |text| {
                text.parse().ok().filter(|ns| first || before == Some(*ns))
            });
            if first {
                self.settings.iothread_poll_max_ns = poll;
                if poll.is_some() {
                    self.at("iothread_poll_max_ns", line);
                }
            } else if before.is_some() && poll.is_none() {
                self.unknown(option);
            }
            self.leftover(line, "-object iothread", &properties);
            self.iothreads.push(id);
            self.settings.iothreads = u32::try_from(self.iothreads.len()).unwrap_or(u32::MAX);
            self.at("iothreads", line);
            return true;
        }
        if !["ram", "file", "memfd"].iter().any(|name| kind == format!("memory-backend-{name}")) {
            return false;
        }
        let bytes = properties.take_if("size", |text| bytes::parse(text, 1));
        properties.take("id");
        let size_mib = bytes.unwrap_or(0).div_ceil(1 << 20);
        self.backends.insert(id, BackendObject { properties, line, size_mib });
        true
    }

    fn topology(&mut self, smp: Smp, mut said: Properties, source: &SourceText<'_>) {
        let line = source.line_number(said.span());
        for level in
            ["cpus", "maxcpus", "sockets", "dies", "clusters", "modules", "cores", "threads"]
        {
            said.take_if(level, |text| text.parse::<u32>().ok());
        }
        let Smp { sockets, dies, clusters, modules, cores, threads, .. } = smp;
        if modules > 1 {
            self.keep(line, "-smp", format!("modules={modules}, counted among the cores"));
        }
        let cores = cores.saturating_mul(modules);
        let topology = GuestTopology { sockets, dies, clusters, cores, threads };
        if smp.product() != smp.max_vcpus {
            let text = format!("{} vCPUs are not topology {topology}", smp.max_vcpus);
            self.keep(line, "-smp", text);
        }
        self.settings.topology = topology;
        self.settings.present_vcpus = Some(smp.vcpus).filter(|cpus| *cpus != topology.vcpus());
        self.at("topology", line);
        self.at("vcpus", line);
        self.leftover(line, "-smp", &said);
    }

    /// Backends and nodes, once all are known.
    fn memory(&mut self) {
        let mut nodes = std::mem::take(&mut self.nodes);
        let number = |properties: &mut Properties| {
            properties.take_if("nodeid", |text| text.parse::<usize>().ok())
        };
        let mut numbered: BTreeMap<usize, (u32, Properties)> = BTreeMap::new();
        for (place, (line, mut properties)) in nodes.drain(..).enumerate() {
            let number = number(&mut properties).unwrap_or(place);
            numbered.insert(number, (line, properties));
        }
        let contiguous = numbered.keys().copied().eq(0..numbered.len());
        if !contiguous && let Some((_, (line, _))) = numbered.first_key_value() {
            let line = *line;
            self.keep(line, "-numa", "node numbers that do not count from 0".to_owned());
        }
        let places: BTreeMap<usize, usize> =
            numbered.keys().enumerate().map(|(place, number)| (*number, place)).collect();
        let mut shapes: Vec<MemoryBacking> = Vec::new();
        for (line, mut properties) in numbered.into_values() {
            properties.take("type");
            let mut node = GuestNode {
                vcpus: properties
                    .take_all("cpus", numbers)
                    .into_iter()
                    .flat_map(|set| set.iter().collect::<Vec<u32>>())
                    .collect(),
                ..GuestNode::default()
            };
            let mib = |text: &str| Some(bytes::parse(text, 1 << 20)?.div_ceil(1 << 20));
            if let Some(mib) = properties.take_if("mem", mib) {
                node.memory_mib = mib;
            }
            let backend = properties.take("memdev").and_then(|id| self.backends.remove(&id));
            if let Some(backend) = backend {
                node.memory_mib = backend.size_mib;
                let (shape, nodes, policy) = self.backend(backend);
                (node.host_nodes, node.policy) = (nodes, policy);
                node.set_memory(&shape);
                shapes.push(shape);
            }
            let number = self.settings.numa.len();
            self.at(&format!("numa.{number}"), line);
            self.leftover(line, "-numa node", &properties);
            self.settings.numa.push(node);
        }
        for (line, mut properties) in std::mem::take(&mut self.distances) {
            let text = properties.rest().unwrap_or_default();
            let mut take = |key: &str| properties.take_if(key, |text| text.parse::<u32>().ok());
            let (src, dst, value) = (take("src"), take("dst"), take("val"));
            let place = |node: Option<u32>| places.get(&(node? as usize)).copied();
            match (place(src), place(dst), value) {
                (Some(src), Some(dst), Some(value)) => {
                    let dst = u32::try_from(dst).unwrap_or(u32::MAX);
                    self.settings.numa[src].distances.insert(dst, value);
                }
                _ => self.keep(line, "-numa", text),
            }
        }
        if self.settings.numa.is_empty()
            && let Some(backend) = self.whole.take().and_then(|id| self.backends.remove(&id))
        {
            let (shape, nodes, policy) = self.backend(backend);
            shapes.push(MemoryBacking { host_nodes: nodes, policy, ..shape });
        }
        self.shape(shapes);
        for (id, backend) in std::mem::take(&mut self.backends) {
            let text = backend.properties.rest().unwrap_or_default();
            self.keep(backend.line, "-object", format!("{text},id={id}"));
        }
    }

    /// How the backends that are in use are alike.
    fn shape(&mut self, shapes: Vec<MemoryBacking>) {
        let locked = self.settings.memory.locked;
        if let Some(first) = shapes.first() {
            // Whoever allocates late has no threads for it.
            let mut early = shapes.iter().filter(|one| one.prealloc == Some(true));
            let threads = early.next().and_then(|one| one.prealloc_threads);
            if let Some(other) = early.find(|one| one.prealloc_threads != threads) {
                let line = self.lines.get("memory").copied().unwrap_or(1);
                let said = other.prealloc_threads.map_or("no".to_owned(), |n| n.to_string());
                self.keep(line, "-object", format!("{said} prealloc-threads, not as the first"));
            }
            self.settings.memory =
                MemoryBacking { locked, prealloc_threads: threads, ..first.clone() };
        }
        if self.prealloc {
            self.settings.memory.prealloc = Some(true);
            self.settings.numa.iter_mut().for_each(|node| node.prealloc = Some(true));
        }
    }

    fn backend(
        &mut self,
        backend: BackendObject,
    ) -> (MemoryBacking, Option<NumberSet>, Option<MemoryPolicy>) {
        let BackendObject { mut properties, line, .. } = backend;
        self.at("memory", line);
        let kind = properties.take("qom-type").unwrap_or_default();
        let source = match kind.as_str() {
            "memory-backend-memfd" => Some(MemorySource::Memfd),
            "memory-backend-file" => Some(MemorySource::File),
            _ => None,
        };
        let mut memory = MemoryBacking {
            source,
            // memfd is shared if nobody says anything.
            shared: properties
                .switch("share")
                .or((source == Some(MemorySource::Memfd)).then_some(true)),
            prealloc: properties.switch("prealloc"),
            prealloc_threads: properties.take_if("prealloc-threads", |text| text.parse().ok()),
            ..MemoryBacking::default()
        };
        if properties.switch("hugetlb") == Some(true) {
            let size = properties.take_if("hugetlbsize", |text| text.parse().ok());
            memory.huge_pages = Some(size.unwrap_or(crate::PageSize::M2));
        }
        let huge = properties.take_if("mem-path", |path| {
            let mounts = ["/dev/hugepages", "/mnt/huge", "/run/hugepages"];
            if mounts.iter().any(|mount| path.starts_with(mount)) {
                let gib = ["1G", "1048576"].iter().any(|name| path.contains(name));
                let named = path.rsplit_once('-').and_then(|(_, size)| size.parse().ok());
                let usual = if gib { crate::PageSize::G1 } else { crate::PageSize::M2 };
                Some(Some(named.unwrap_or(usual)))
            } else {
                (path == "/var/tmp").then_some(None)
            }
        });
        memory.huge_pages = memory.huge_pages.or(huge.flatten());
        let nodes: NumberSet = properties
            .take_all("host-nodes", numbers)
            .into_iter()
            .flat_map(|set| set.iter().collect::<Vec<u32>>())
            .collect();
        let policy = properties.take_if("policy", |text| {
            MemoryPolicy::NAMES.iter().find(|row| row.1 == text).map(|row| row.0)
        });
        self.leftover(line, &format!("-object {kind}"), &properties);
        memory.normalise();
        (memory, (!nodes.is_empty()).then_some(nodes), policy)
    }
}

/// A list of numbers that is not absurd.
fn numbers(text: &str) -> Option<NumberSet> {
    let set: PcpuSet = text.parse().ok()?;
    let most = crate::invalid::MAX_VCPUS.max(MAX_NODES);
    let small = set.iter().max().is_none_or(|number| number < most);
    small.then_some(set)
}

/// The options without those that connect a VM to vmlab, if it is one of
/// vmlab's.
fn without_own(options: Vec<LocatedOption>) -> Vec<LocatedOption> {
    let ours = |option: &LocatedOption| option.text().contains("name=org.vmlab.done.0");
    if !options.iter().any(ours) {
        return options;
    }
    let mut panic_device = false;
    options
        .into_iter()
        .filter(|option| {
            let value = option.text();
            let own = match option.name.as_str() {
                "-chardev" => ["qmp", "agent", "done", "console"]
                    .iter()
                    .any(|id| value.contains(&format!(",id={id},path="))),
                "-mon" => value == "chardev=qmp,mode=control",
                "-serial" => value == "chardev:console",
                "-device" if value == "pvpanic-pci" => !std::mem::replace(&mut panic_device, true),
                "-device" => {
                    value == "virtio-serial-pci,id=vserial"
                        || value.starts_with("virtserialport,bus=vserial.0,")
                }
                _ => false,
            };
            !own
        })
        .collect()
}
