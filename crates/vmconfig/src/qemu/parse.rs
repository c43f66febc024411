//! QEMU's command line, read: as people and programs wrote it.

use std::collections::BTreeMap;

use crate::memory::MAX_NODES;
use crate::spec::RESERVED;
use crate::{
    Accel, Arch, Boot, ClockBase, GuestNode, GuestTopology, Kept, Memory, MemoryPolicy,
    MemorySource, NumberSet, Parsed, PcpuSet, TickPolicy, VmSettings, cpu, size,
};

use super::attached::Attached;
use super::words::{self, Properties, Word};

/// Why a text is no command line of QEMU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Not a command line of QEMU: it has no option that QEMU takes")]
pub struct NotQemu;

/// One option of the command line.
#[derive(Debug, Clone)]
pub(super) struct Opt {
    pub(super) line: u32,
    pub(super) name: String,
    pub(super) value: Option<String>,
}

/// The VM of a command line, which may be a script: quoted for a shell,
/// continued over lines, with comments; what stands before QEMU's name is kept.
///
/// What is not understood is kept and stands in `extra_args` too, so that the
/// VM stays the same; options that no study may pass are only kept.
///
/// # Errors
/// [`NotQemu`] if there is no option at all.
pub fn parse(text: &str) -> Result<Parsed, NotQemu> {
    let mut words = words::split(text);
    let program = words.iter().position(|word| is_program(&word.text));
    let first = match program {
        Some(place) => place + 1,
        None => words.iter().position(|word| word.text.starts_with('-')).ok_or(NotQemu)?,
    };
    let before: Vec<Word> = words.drain(..first).collect();
    if !words.iter().any(|word| word.text.starts_with('-')) {
        return Err(NotQemu);
    }
    let mut reader = Reader::new();
    if let Some(program) = before.iter().find(|word| is_program(&word.text))
        && program.text.contains("aarch64")
    {
        reader.settings.arch = Arch::Aarch64;
        reader.settings.machine = "virt".to_owned();
    }
    let others: Vec<&str> =
        before.iter().map(|word| word.text.as_str()).filter(|word| !is_program(word)).collect();
    if let (Some(first), false) = (before.first(), others.is_empty()) {
        reader.keep(first.line, "before QEMU", others.join(" "));
    }
    reader.read(options(&words));
    Ok(reader.parsed())
}

/// The VM of arguments that are already apart.
#[must_use]
pub fn parse_args(args: &[String]) -> Parsed {
    let words: Vec<Word> = args.iter().map(|text| Word { text: text.clone(), line: 1 }).collect();
    let mut reader = Reader::new();
    reader.read(options(&words));
    reader.parsed()
}

fn is_program(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm"
}

/// Options that take no value; any other takes one if a value follows.
const BARE: &[&str] = &[
    "-S",
    "-daemonize",
    "-enable-kvm",
    "-full-screen",
    "-mem-prealloc",
    "-no-acpi",
    "-no-fd-bootchk",
    "-no-hpet",
    "-no-reboot",
    "-no-shutdown",
    "-no-user-config",
    "-nodefaults",
    "-nographic",
    "-s",
    "-snapshot",
    "-usb",
    "-win2k-hack",
];

fn options(words: &[Word]) -> Vec<Opt> {
    let mut options: Vec<Opt> = Vec::new();
    for word in words {
        let is_option = word.text.starts_with('-') && word.text.len() > 1;
        // QEMU takes every option with one dash or with two.
        let name = match word.text.strip_prefix("--") {
            Some(rest) if !rest.is_empty() => format!("-{rest}"),
            _ => word.text.clone(),
        };
        match options.last_mut() {
            Some(last)
                if !is_option && last.value.is_none() && !BARE.contains(&last.name.as_str()) =>
            {
                last.value = Some(word.text.clone());
            }
            _ => options.push(Opt { line: word.line, name, value: None }),
        }
    }
    options
}

/// A memory backend and who is to use it.
struct Backend {
    properties: Properties,
    line: u32,
    size_mib: u64,
}

pub(super) struct Reader {
    pub(super) settings: VmSettings,
    kept: Vec<Kept>,
    lines: BTreeMap<String, u32>,
    smp: Option<(u32, Properties)>,
    backends: BTreeMap<String, Backend>,
    whole: Option<String>,
    prealloc: bool,
    nodes: Vec<(u32, Properties)>,
    distances: Vec<(u32, Properties)>,
    kernel: Option<String>,
    initrd: Option<String>,
    pub(super) iothreads: Vec<String>,
    /// Properties that hold for every CPU model.
    cpu_globals: Vec<String>,
}

impl Reader {
    fn new() -> Self {
        // What QEMU does where nobody says anything.
        let settings = VmSettings {
            machine: "pc".to_owned(),
            cpu_model: "qemu64".to_owned(),
            memory_mib: 128,
            ..VmSettings::new("vm", Arch::X86_64, Accel::Tcg, Boot::Firmware)
        };
        Self {
            settings,
            kept: Vec::new(),
            lines: BTreeMap::new(),
            smp: None,
            backends: BTreeMap::new(),
            whole: None,
            prealloc: false,
            nodes: Vec::new(),
            distances: Vec::new(),
            kernel: None,
            initrd: None,
            iothreads: Vec::new(),
            cpu_globals: Vec::new(),
        }
    }

    pub(super) fn keep(&mut self, line: u32, path: &str, text: String) {
        self.kept.push(Kept { line, path: path.to_owned(), text });
    }

    pub(super) fn at(&mut self, field: &str, line: u32) {
        self.lines.insert(field.to_owned(), line);
    }

    /// Keeps an option that is not understood, and passes it on.
    pub(super) fn unknown(&mut self, option: &Opt) {
        let text = option.value.clone().unwrap_or_default();
        self.keep(option.line, &option.name, text);
        let reserved = RESERVED.iter().any(|(name, _)| *name == option.name);
        if !reserved {
            self.settings.extra_args.push(option.name.clone());
            self.settings.extra_args.extend(option.value.clone());
        }
    }

    /// Keeps the properties that nobody took.
    pub(super) fn leftover(&mut self, line: u32, path: &str, properties: &Properties) {
        if let Some(rest) = properties.rest() {
            self.keep(line, path, rest);
        }
    }

    fn read(&mut self, options: Vec<Opt>) {
        let options = without_own(options);
        let mut attached = Attached::default();
        for option in options {
            if !self.general(&option) && !attached.collect(&option, self) {
                attached.later(option);
            }
        }
        for property in std::mem::take(&mut self.cpu_globals) {
            self.settings.cpu_model.push_str(&format!(",{property}"));
        }
        self.topology();
        attached.attach(self);
        let (kernel, initrd) = (self.kernel.take(), self.initrd.take());
        match (kernel, &self.settings.boot) {
            (Some(kernel), Boot::Direct { root_image, cmdline, .. }) => {
                self.settings.boot = Boot::Direct {
                    kernel: kernel.into(),
                    initrd: initrd.unwrap_or_default().into(),
                    root_image: root_image.clone(),
                    cmdline: cmdline.clone(),
                };
            }
            (Some(kernel), _) => {
                let initrd = initrd.map(Into::into);
                self.settings.boot = Boot::Kernel { kernel: kernel.into(), initrd };
            }
            (None, _) => {}
        }
        self.memory();
    }

    pub(super) fn has_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    /// Everything but devices and what is behind them.
    fn general(&mut self, option: &Opt) -> bool {
        let line = option.line;
        let value = option.value.as_deref().unwrap_or_default();
        match (option.name.as_str(), value) {
            // What is emitted before anything else.
            ("-no-user-config" | "-nodefaults" | "-no-reboot", _)
            | ("-display" | "-vga" | "-nic" | "-net", "none")
            | ("-serial", super::TERMINAL) => {}
            ("-name", text) if !text.is_empty() => {
                let mut properties = Properties::read(text, "guest");
                if let Some(name) = properties.take("guest") {
                    self.settings.name = name;
                    self.at("name", line);
                }
                properties.take_if("debug-threads", |text| (text == "on").then_some(()));
                self.leftover(line, "-name", &properties);
            }
            ("-machine" | "-M", text) if !text.is_empty() => self.machine(line, text),
            ("-accel", text) => {
                let mut properties = Properties::read(text, "accel");
                match properties.take_if("accel", accel) {
                    Some(accel) => {
                        self.settings.accel = accel;
                        self.at("accel", line);
                        self.leftover(line, "-accel", &properties);
                    }
                    None => self.keep(line, "-accel", text.to_owned()),
                }
            }
            ("-enable-kvm", _) => {
                self.settings.accel = Accel::Kvm;
                self.at("accel", line);
            }
            ("-cpu", text) if !text.is_empty() => {
                self.settings.cpu_model = text.to_owned();
                self.at("cpu_model", line);
            }
            ("-smp", text) if !text.is_empty() => {
                self.smp = Some((line, Properties::read(text, "cpus")));
            }
            ("-m", text) => {
                let mut properties = Properties::read(text, "size");
                match properties.take_if("size", |text| size::bytes(text, 1 << 20)) {
                    Some(bytes) => {
                        self.settings.memory_mib = bytes.div_ceil(1 << 20);
                        self.at("memory_mib", line);
                        self.leftover(line, "-m", &properties);
                    }
                    None => self.keep(line, "-m", text.to_owned()),
                }
            }
            ("-mem-prealloc", _) => {
                self.prealloc = true;
                self.at("memory.prealloc", line);
            }
            ("-overcommit", text) => {
                let mut properties = Properties::read(text, "");
                if let Some(on) = properties.switch("cpu-pm") {
                    self.settings.hints.cpu_pm = Some(on);
                    self.at("hints.cpu_pm", line);
                }
                if let Some(on) = properties.switch("mem-lock") {
                    self.settings.memory.locked = Some(on);
                    self.at("memory.locked", line);
                }
                if let Some(rest) = properties.rest() {
                    let (name, value) = (option.name.clone(), Some(rest));
                    self.unknown(&Opt { line, name, value });
                }
            }
            ("-no-hpet", _) => {
                self.settings.clock.hpet = Some(false);
                self.at("clock.hpet", line);
            }
            ("-rtc", text) => self.rtc(option, text),
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
            ("-numa", text) => {
                let properties = Properties::read(text, "type");
                match properties.get("type") {
                    Some("node") => self.nodes.push((line, properties)),
                    Some("dist") => self.distances.push((line, properties)),
                    _ => self.unknown(option),
                }
            }
            ("-object", text) => return self.object(line, text),
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

    fn machine(&mut self, line: u32, text: &str) {
        let mut properties = Properties::read(text, "type");
        let known = self.lines.contains_key("machine");
        if let Some(name) = properties.take("type") {
            let old = std::mem::replace(&mut self.settings.machine, name);
            // Properties of an earlier option stay.
            if known && let Some((_, rest)) = old.split_once(',') {
                self.settings.machine.push_str(&format!(",{rest}"));
            }
        }
        if let Some(accel) = properties.take_if("accel", accel) {
            self.settings.accel = accel;
            self.at("accel", line);
        }
        if let Some(id) = properties.take("memory-backend") {
            self.whole = Some(id);
        }
        if let Some(rest) = properties.rest() {
            self.settings.machine.push_str(&format!(",{rest}"));
        }
        self.at("machine", line);
    }

    fn rtc(&mut self, option: &Opt, text: &str) {
        let mut properties = Properties::read(text, "base");
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
        let clock = &mut self.settings.clock;
        (clock.base, clock.rtc) = (base.or(clock.base), rtc.or(clock.rtc));
        self.at("clock", option.line);
        if let Some(rest) = properties.rest() {
            let (line, name) = (option.line, option.name.clone());
            self.unknown(&Opt { line, name, value: Some(rest) });
        }
    }

    fn object(&mut self, line: u32, text: &str) -> bool {
        let mut properties = Properties::read(text, "qom-type");
        let kind = properties.get("qom-type").unwrap_or_default().to_owned();
        let Some(id) = properties.get("id").map(str::to_owned) else { return false };
        if kind == "iothread" {
            properties.take("qom-type");
            properties.take("id");
            self.leftover(line, "-object iothread", &properties);
            self.iothreads.push(id);
            self.settings.iothreads = u32::try_from(self.iothreads.len()).unwrap_or(u32::MAX);
            self.at("iothreads", line);
            return true;
        }
        if !["ram", "file", "memfd"].iter().any(|name| kind == format!("memory-backend-{name}")) {
            return false;
        }
        let bytes = properties.take_if("size", |text| size::bytes(text, 1));
        properties.take("id");
        let size_mib = bytes.unwrap_or(0).div_ceil(1 << 20);
        self.backends.insert(id, Backend { properties, line, size_mib });
        true
    }

    fn topology(&mut self) {
        let Some((line, mut properties)) = self.smp.take() else { return };
        let mut take = |key: &str| properties.take_if(key, |text| text.parse::<u32>().ok());
        let (cpus, maxcpus) = (take("cpus"), take("maxcpus"));
        let [sockets, dies, clusters, cores, threads] =
            ["sockets", "dies", "clusters", "cores", "threads"].map(&mut take);
        let (dies, clusters) = (dies.unwrap_or(1), clusters.unwrap_or(1));
        let product = |counts: &[u32]| counts.iter().fold(1_u32, |all, n| all.saturating_mul(*n));
        let written = product(&[
            sockets.unwrap_or(1),
            dies,
            clusters,
            cores.unwrap_or(1),
            threads.unwrap_or(1),
        ]);
        let max = maxcpus.or(cpus).unwrap_or(written);
        let share = |others: &[u32]| (max / product(others).max(1)).max(1);
        // Since 6.2 what is not written becomes cores, then sockets, then
        // threads.
        let topology = match (sockets, cores, threads) {
            (sockets, None, threads) => {
                let (sockets, threads) = (sockets.unwrap_or(1), threads.unwrap_or(1));
                let cores = share(&[sockets, dies, clusters, threads]);
                GuestTopology { sockets, dies, clusters, cores, threads }
            }
            (None, Some(cores), threads) => {
                let threads = threads.unwrap_or(1);
                let sockets = share(&[dies, clusters, cores, threads]);
                GuestTopology { sockets, dies, clusters, cores, threads }
            }
            (Some(sockets), Some(cores), threads) => {
                let threads = threads.unwrap_or_else(|| share(&[sockets, dies, clusters, cores]));
                GuestTopology { sockets, dies, clusters, cores, threads }
            }
        };
        if topology.vcpus() != max {
            self.keep(line, "-smp", format!("{max} vCPUs are not topology {topology}"));
        }
        self.settings.topology = topology;
        self.settings.present_vcpus = cpus.filter(|cpus| *cpus != topology.vcpus());
        self.at("topology", line);
        self.at("vcpus", line);
        self.leftover(line, "-smp", &properties);
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
        let mut shapes: Vec<Memory> = Vec::new();
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
            if let Some(mib) = properties.take_if("mem", |text| size::mib(text, 1 << 20)) {
                node.memory_mib = mib;
            }
            let backend = properties.take("memdev").and_then(|id| self.backends.remove(&id));
            if let Some(backend) = backend {
                node.memory_mib = backend.size_mib;
                let (shape, nodes, policy) = self.backend(backend);
                (node.host_nodes, node.policy) = (nodes, policy);
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
            if backend.size_mib != 0 && !self.lines.contains_key("memory_mib") {
                self.settings.memory_mib = backend.size_mib;
            }
            let (shape, nodes, policy) = self.backend(backend);
            shapes.push(Memory { host_nodes: nodes, policy, ..shape });
        }
        self.shape(shapes);
        for (id, backend) in std::mem::take(&mut self.backends) {
            let text = backend.properties.rest().unwrap_or_default();
            self.keep(backend.line, "-object", format!("{text},id={id}"));
        }
    }

    /// How the backends that are in use are alike.
    fn shape(&mut self, shapes: Vec<Memory>) {
        let locked = self.settings.memory.locked;
        if let Some(first) = shapes.first() {
            if shapes.iter().any(|shape| shape != first) {
                let line = self.lines.get("memory").copied().unwrap_or(1);
                self.keep(line, "-object", "memory backends that differ from the first".to_owned());
            }
            self.settings.memory = Memory { locked, ..first.clone() };
        }
        if self.prealloc {
            self.settings.memory.prealloc = Some(true);
        }
    }

    fn backend(&mut self, backend: Backend) -> (Memory, Option<NumberSet>, Option<MemoryPolicy>) {
        let Backend { mut properties, line, .. } = backend;
        self.at("memory", line);
        let kind = properties.take("qom-type").unwrap_or_default();
        let source = match kind.as_str() {
            "memory-backend-memfd" => Some(MemorySource::Memfd),
            "memory-backend-file" => Some(MemorySource::File),
            _ => None,
        };
        let mut memory = Memory {
            source,
            // memfd is shared if nobody says anything.
            shared: properties
                .switch("share")
                .or((source == Some(MemorySource::Memfd)).then_some(true)),
            prealloc: properties.switch("prealloc"),
            prealloc_threads: properties.take_if("prealloc-threads", |text| text.parse().ok()),
            ..Memory::default()
        };
        if properties.switch("hugetlb") == Some(true) {
            let size = properties.take_if("hugetlbsize", |text| text.parse().ok());
            memory.huge_pages = Some(size.unwrap_or(crate::PageSize::M2));
        }
        let huge = properties.take_if("mem-path", |path| {
            if path.starts_with("/dev/hugepages") || path.starts_with("/mnt/huge") {
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

    fn parsed(self) -> Parsed {
        Parsed { settings: self.settings, kept: self.kept, lines: self.lines }.finish()
    }
}

/// A list of numbers that is not absurd.
fn numbers(text: &str) -> Option<NumberSet> {
    let set: PcpuSet = text.parse().ok()?;
    let most = crate::spec::MAX_VCPUS.max(MAX_NODES);
    let small = set.iter().max().is_none_or(|number| number < most);
    small.then_some(set)
}

fn accel(text: &str) -> Option<Accel> {
    match text.split(':').next()? {
        "kvm" => Some(Accel::Kvm),
        "tcg" => Some(Accel::Tcg),
        _ => None,
    }
}

/// The options without those that connect a VM to vmlab, if it is one of
/// vmlab's.
fn without_own(options: Vec<Opt>) -> Vec<Opt> {
    let ours = |option: &Opt| {
        option.value.as_ref().is_some_and(|value| value.contains("name=org.vmlab.done.0"))
    };
    if !options.iter().any(ours) {
        return options;
    }
    let mut panic_device = false;
    options
        .into_iter()
        .filter(|Opt { name, value, .. }| {
            let value = value.as_deref().unwrap_or_default();
            let own = match name.as_str() {
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
