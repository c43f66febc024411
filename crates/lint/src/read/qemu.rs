//! QEMU command lines, as in a script or as `ps` shows them.
//!
//! Source: QEMU's manual page.

use serde_json::Value;
use topology::PcpuSet;

use crate::read::list;
use crate::read::shell::{self, Word};
use crate::rule::Format;
use crate::source::{At, Span};
use crate::vm::{Backend, Cell, Cpu, Disk, Nic, Topology, Vm};

/// Whether a text holds a command that starts QEMU.
pub(crate) fn holds_command(text: &str) -> bool {
    text.contains("qemu")
        && shell::commands(text).iter().any(|words| words.iter().any(|word| is_qemu(&word.text)))
}

fn is_qemu(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm"
}

/// The value of a switch in an option: `cpu-pm=on`, also `cpu-pm` alone.
pub(crate) fn switch_in(option: &str, name: &str) -> Option<bool> {
    option.split(',').find_map(|part| match part.split_once('=') {
        Some((key, value)) if key == name => Some(matches!(value, "on" | "yes" | "true")),
        None if part == name => Some(true),
        _ => None,
    })
}

pub(crate) fn read(text: &str) -> Vec<Vm> {
    shell::commands(text).iter().filter_map(|words| command(words)).collect()
}

/// One option's value, split at its commas.
struct Options {
    /// What stands without a key in front: a device's name, a memory size.
    head: Option<At<String>>,
    keys: Vec<(String, At<String>)>,
    span: Span,
}

impl Options {
    fn new(word: &Word) -> Self {
        let mut options = Self { head: None, keys: Vec::new(), span: word.span() };
        let text = &word.text;
        if text.starts_with('{')
            && let Ok(object) = serde_json::from_str::<Value>(text)
        {
            options.flatten("", &object, word);
            return options;
        }
        let mut from = 0;
        while from <= text.len() {
            let mut end = from;
            // A doubled comma stands for one.
            while let Some(found) = text[end..].find(',') {
                end += found;
                if text[end..].starts_with(",,") {
                    end += 2;
                } else {
                    break;
                }
            }
            let end = if text[end..].starts_with(',') { end } else { text.len() };
            let part = &text[from..end];
            match part.split_once('=') {
                Some((key, value)) => {
                    let span = word.part(end - value.len(), end);
                    options.keys.push((key.to_owned(), At::new(value.replace(",,", ","), span)));
                }
                None if from == 0 => {
                    options.head = Some(At::new(part.to_owned(), word.part(from, end)));
                }
                None if !part.is_empty() => {
                    let part = part.strip_prefix('+').unwrap_or(part);
                    let (key, on) = match part.strip_prefix('-') {
                        Some(key) => (key, "off"),
                        None => (part, "on"),
                    };
                    options
                        .keys
                        .push((key.to_owned(), At::new(on.to_owned(), word.part(from, end))));
                }
                None => {}
            }
            from = end + 1;
        }
        options
    }

    /// The JSON form of an option, which libvirt prefers: `{"cache":{"direct":true}}`
    /// is `cache.direct=on`.
    fn flatten(&mut self, path: &str, value: &Value, word: &Word) {
        let text = match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let path =
                        if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.flatten(&path, member, word);
                }
                return;
            }
            Value::Array(items) => {
                for item in items {
                    self.flatten(path, item, word);
                }
                return;
            }
            Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null => return,
        };
        let span = located(path, value, word).unwrap_or(self.span);
        self.keys.push((path.to_owned(), At::new(text, span)));
    }

    fn get(&self, key: &str) -> Option<&At<String>> {
        self.keys.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a At<String>> {
        self.keys.iter().filter(move |(name, _)| name == key).map(|(_, value)| value)
    }

    fn number(&self, key: &str) -> Option<At<u32>> {
        let at = self.get(key)?;
        Some(At { value: at.value.parse().ok()?, span: at.span })
    }

    fn switch(&self, key: &str) -> Option<At<bool>> {
        let at = self.get(key)?;
        Some(At { value: matches!(at.value.as_str(), "on" | "yes" | "true"), span: at.span })
    }

    /// The first word, or the value of the key that it stands for.
    fn first(&self, key: &str) -> Option<&At<String>> {
        self.head.as_ref().or_else(|| self.get(key))
    }
}

/// Where a value stands in a JSON word, if its key is there once.
fn located(path: &str, value: &Value, word: &Word) -> Option<Span> {
    let key = format!("\"{}\"", path.rsplit('.').next()?);
    let mut found = word.text.match_indices(&key);
    let (at, _) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let behind = at + key.len();
    let rest = word.text[behind..].trim_start().strip_prefix(':')?.trim_start();
    let (rest, text) = match value {
        Value::String(text) => (rest.strip_prefix('"')?, text.clone()),
        other => (rest, other.to_string()),
    };
    let from = word.text.len() - rest.len();
    rest.starts_with(&text).then(|| word.part(from, from + text.len()))
}

/// What refers to each other across options.
#[derive(Default)]
struct Parts {
    backends: Vec<(String, Options)>,
    drives: Vec<(String, Options)>,
    nets: Vec<(String, Options)>,
}

fn command(words: &[Word]) -> Option<Vm> {
    let program = words.iter().position(|word| is_qemu(&word.text))?;
    let mut vm = Vm::new(Format::Qemu, words[program].span());
    vm.accel.value = "tcg".to_owned();
    let name = words[program].text.rsplit('/').next().unwrap_or_default();
    vm.name = name.to_owned();
    if matches!(name, "qemu-kvm" | "kvm") {
        vm.accel.value = "kvm".to_owned();
    }
    if let Some(arch) = name.strip_prefix("qemu-system-") {
        vm.arch = Some(At::new(arch.to_owned(), vm.head));
    }
    prefix(&words[..program], &mut vm);
    let mut parts = Parts::default();
    let mut rest = words[program + 1..].iter();
    let mut devices = Vec::new();
    while let Some(word) = rest.next() {
        // QEMU takes both one dash and two.
        let Some(option) = word.text.strip_prefix("--").or(word.text.strip_prefix('-')) else {
            continue;
        };
        match option {
            "enable-kvm" => vm.accel = At::new("kvm".to_owned(), word.span()),
            "mem-prealloc" | "nographic" | "S" | "snapshot" | "daemonize" | "nodefaults"
            | "no-user-config" | "no-fd-bootchk" | "s" | "preconfig" | "full-screen"
            | "no-reboot" | "no-shutdown" | "no-acpi" | "no-hpet" | "usb" | "only-migratable" => {
                if option == "only-migratable" {
                    vm.migrates = Some(word.span());
                }
            }
            _ => {
                let Some(value) = rest.next() else { break };
                if option == "device" {
                    devices.push(Options::new(value));
                } else {
                    self::option(option, value, &mut vm, &mut parts);
                }
            }
        }
    }
    for device in &devices {
        self::device(device, &parts, &mut vm);
    }
    finish(&parts, &mut vm);
    Some(vm)
}

/// What runs QEMU with an affinity: `taskset -c 0-3`, `numactl -C 0-3 -m 0`.
fn prefix(words: &[Word], vm: &mut Vm) {
    for pair in words.windows(2) {
        let (option, value) = (&pair[0].text, &pair[1]);
        let list = |text: &str| Some(At::new(list::parse(text)?, value.span()));
        match option.as_str() {
            "-c" | "--cpu-list" | "-C" => vm.affinity = list(&value.text),
            "-m" => vm.memory_nodes = list(&value.text),
            _ => {}
        }
    }
    for word in words {
        let long = |name: &str| {
            let text = word.text.strip_prefix(name)?.strip_prefix('=')?;
            Some(At::new(list::parse(text)?, word.span()))
        };
        if let Some(found) = long("--physcpubind") {
            vm.affinity = Some(found);
        }
        if let Some(found) = long("--membind") {
            vm.memory_nodes = Some(found);
        }
    }
}

fn option(name: &str, word: &Word, vm: &mut Vm, parts: &mut Parts) {
    let options = Options::new(word);
    match name {
        "name" => {
            if let Some(name) = options.first("guest") {
                vm.name = name.value.clone();
            }
        }
        "accel" => {
            if let Some(accel) = options.first("accel") {
                vm.accel = accel.clone();
            }
        }
        "machine" | "M" => {
            if let Some(accel) = options.get("accel") {
                let first = accel.value.split(':').next().unwrap_or_default().to_owned();
                vm.accel = At::new(first, accel.span);
            }
            if let Some(merge) = options.switch("mem-merge") {
                vm.merge = Some(merge);
            }
            if let Some(hpet) = options.switch("hpet") {
                let timer =
                    crate::vm::Timer { name: "hpet".to_owned(), present: Some(hpet.clone()) };
                vm.timers.push(At::new(timer, hpet.span));
            }
        }
        "smp" => smp(&options, vm),
        "m" => vm.memory_bytes = options.first("size").and_then(mebibytes),
        "mem-path" if word.text.contains("huge") => {
            vm.huge_pages = Some(At::new(page_size_in(&word.text), options.span));
        }
        "cpu" => {
            vm.hint_dedicated = options.switch("kvm-hint-dedicated");
            if let Some(kvmclock) = options.switch("kvmclock") {
                let span = kvmclock.span;
                let timer =
                    crate::vm::Timer { name: "kvmclock".to_owned(), present: Some(kvmclock) };
                vm.timers.push(At::new(timer, span));
            }
            let on = |value: &str| matches!(value, "on" | "yes" | "true");
            let features =
                options.keys.iter().map(|(name, value)| (name.clone(), on(&value.value)));
            let cpu = Cpu {
                model: options.first("model").map_or_else(String::new, |at| at.value.clone()),
                migratable: options.switch("migratable"),
                tsc_frequency: options.get("tsc-frequency").is_some(),
                features: features.collect(),
            };
            vm.cpu = Some(At::new(cpu, options.span));
        }
        "overcommit" => vm.cpu_pm = options.switch("cpu-pm"),
        "append" => vm.kernel_cmdline = Some(At::new(word.text.clone(), word.span())),
        "incoming" => vm.migrates = Some(word.span()),
        "object" => match options.first("qom-type").map(|at| at.value.as_str()) {
            Some("iothread") => {
                vm.iothreads.extend(options.get("id").map(|id| id.value.clone()));
                vm.iothreads_at.get_or_insert(options.span);
            }
            Some(kind) if kind.starts_with("memory-backend") => {
                let id = options.get("id").map(|id| id.value.clone()).unwrap_or_default();
                parts.backends.push((id, options));
            }
            _ => {}
        },
        "numa" => numa(options, vm, parts),
        "drive" | "blockdev" => {
            let key = if name == "drive" { "id" } else { "node-name" };
            let id = options.get(key).map(|id| id.value.clone()).unwrap_or_default();
            // A -drive with a bus of its own is a device, too.
            let usual = if vm.is_arm() { "virtio" } else { "ide" };
            let own = options.get("if").map_or(usual, |at| at.value.as_str());
            if name == "drive" && own != "none" {
                let media = options.get("media").is_some_and(|at| at.value == "cdrom");
                let bus =
                    At::new(own.to_owned(), options.get("if").map_or(options.span, |at| at.span));
                let mut disk = disk(&options, None, None);
                disk.bus = Some(bus);
                disk.hard = !media && matches!(own, "ide" | "scsi" | "virtio" | "sd");
                vm.disks.push(disk);
            }
            parts.drives.push((id, options));
        }
        "hda" | "hdb" | "hdc" | "hdd" => {
            let mut disk = disk(&options, None, None);
            disk.bus = Some(At::new("ide".to_owned(), word.span()));
            vm.disks.push(disk);
        }
        "netdev" => {
            let id = options.get("id").map(|id| id.value.clone()).unwrap_or_default();
            parts.nets.push((id, options));
        }
        "nic" => {
            let model = options.get("model").cloned();
            let mut nic = nic(&options);
            let usual = if vm.is_arm() { "virtio" } else { "e1000" };
            nic.model = model.or(Some(At::new(usual.to_owned(), options.span)));
            if nic.backend != Backend::Other
                || options.head.as_ref().is_some_and(|at| at.value != "none")
            {
                vm.nics.push(nic);
            }
        }
        _ => {}
    }
}

fn smp(options: &Options, vm: &mut Vm) {
    let count = options
        .head
        .as_ref()
        .or_else(|| options.get("cpus"))
        .and_then(|at| Some(At { value: at.value.parse::<u32>().ok()?, span: at.span }));
    let level = |name: &str| options.number(name);
    let names = ["sockets", "dies", "clusters", "cores", "threads"];
    if names.iter().any(|name| level(name).is_some()) {
        let of = |name: &str| level(name).map(|at| at.value);
        let mut topology = Topology {
            sockets: of("sockets").unwrap_or(1),
            dies: of("dies").unwrap_or(1),
            clusters: of("clusters").unwrap_or(1),
            cores: of("cores").unwrap_or(1),
            threads: of("threads").unwrap_or(1),
            threads_at: level("threads").map(|at| at.span),
            cores_at: level("cores").map(|at| at.span),
        };
        // QEMU computes one level that is missing from the number of vCPUs.
        if let Some(total) = options.number("maxcpus").or(count.clone()).map(|at| at.value) {
            let rest = topology.vcpus();
            if rest > 0 && total % rest == 0 && total != rest {
                let factor = total / rest;
                if of("cores").is_none() {
                    topology.cores = factor;
                } else if of("sockets").is_none() {
                    topology.sockets = factor;
                } else if of("threads").is_none() {
                    topology.threads = factor;
                }
            }
        }
        vm.topology = Some(At::new(topology, options.span));
    }
    let product = vm.topology.as_ref().map(|at| At::new(at.value.vcpus(), at.span));
    if let Some(count) = count.or(product) {
        vm.max_vcpus = options.number("maxcpus").unwrap_or_else(|| count.clone());
        vm.vcpus = count;
    }
}

fn numa(options: Options, vm: &mut Vm, parts: &Parts) {
    if options.head.as_ref().is_some_and(|at| at.value == "dist") {
        for cell in &mut vm.cells {
            cell.distances = true;
        }
        return;
    }
    if options.head.as_ref().is_none_or(|at| at.value != "node") {
        return;
    }
    let id = options.number("nodeid").map_or(vm.cells.len() as u32, |at| at.value);
    let vcpus: PcpuSet = options
        .all("cpus")
        .filter_map(|at| list::parse(&at.value))
        .flat_map(|set| set.iter().collect::<Vec<_>>())
        .collect();
    let backend = options
        .get("memdev")
        .and_then(|memdev| parts.backends.iter().find(|(id, _)| *id == memdev.value));
    let memory = backend
        .and_then(|(_, backend)| backend.get("size"))
        .and_then(bytes)
        .or_else(|| options.get("mem").and_then(mebibytes));
    let nodes = backend.and_then(|(_, backend)| host_nodes(backend));
    vm.cells.push(Cell {
        id,
        vcpus,
        memory_bytes: memory.map(|at| at.value),
        nodes,
        memdev: options.get("memdev").map(|memdev| memdev.value.clone()),
        distances: false,
        span: options.span,
    });
}

fn host_nodes(backend: &Options) -> Option<At<PcpuSet>> {
    let mut sets =
        backend.all("host-nodes").filter_map(|at| Some((list::parse(&at.value)?, at.span)));
    let (first, span) = sets.next()?;
    Some(At::new(sets.fold(first, |all, (set, _)| all.union(&set)), span))
}

/// Pages behind a path or a memfd: `hugetlb=on,hugetlbsize=1G`, `/dev/hugepages`.
fn finish(parts: &Parts, vm: &mut Vm) {
    for (_, backend) in &parts.backends {
        vm.shared_memory |= backend.switch("share").is_some_and(|share| share.value);
        let path = backend.get("mem-path").filter(|path| path.value.contains("huge"));
        let hugetlb = backend.get("hugetlb").filter(|at| at.value == "on");
        if let Some(at) = path.or(hugetlb) {
            let size = backend.get("hugetlbsize").and_then(bytes).map(|at| at.value);
            let named = path.and_then(|path| page_size_in(&path.value));
            vm.huge_pages = Some(At::new(size.or(named), at.span));
        }
        if vm.cells.is_empty() && vm.memory_nodes.is_none() {
            vm.memory_nodes = host_nodes(backend);
        }
        if let Some(merge) = backend.switch("merge") {
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

fn device(device: &Options, parts: &Parts, vm: &mut Vm) {
    let Some(driver) = device.first("driver") else { return };
    let kind = driver.value.as_str();
    let drive = device
        .get("drive")
        .and_then(|id| parts.drives.iter().find(|(name, _)| *name == id.value))
        .map(|(_, options)| options);
    let (bus, hard) = match kind {
        name if name.starts_with("virtio-blk") => ("virtio", true),
        name if name.starts_with("virtio-scsi") => ("virtio-scsi", false),
        "scsi-hd" | "scsi-block" => ("scsi", true),
        "ide-hd" => ("ide", true),
        "usb-storage" => ("usb", true),
        "nvme" => ("nvme", true),
        "vfio-pci" => {
            vm.passthrough = Some(device.span);
            vm.host_devices.extend(device.get("host").map(|host| {
                // Without a domain it is the first one.
                let long = host.value.matches(':').count() > 1;
                let address =
                    if long { host.value.clone() } else { format!("0000:{}", host.value) };
                At { value: address.to_lowercase(), span: host.span }
            }));
            return;
        }
        "pxb-pcie" | "pxb" => {
            let node = device.number("numa_node").map(|node| node.value);
            vm.expander_nodes = vm.expander_nodes.union(&node.into_iter().collect());
            return;
        }
        name if name.starts_with("virtio-net") || is_nic(name) => {
            let net = device
                .get("netdev")
                .and_then(|id| parts.nets.iter().find(|(name, _)| *name == id.value));
            let mut nic = net.map_or_else(|| nic(device), |(_, net)| nic(net));
            if net.is_none() {
                nic.backend = Backend::Other;
            }
            let model = if name.starts_with("virtio") { "virtio" } else { name };
            nic.model = Some(At::new(model.to_owned(), driver.span));
            nic.multiqueue = Some(device.switch("mq").is_some_and(|mq| mq.value));
            nic.vectors = device.number("vectors");
            vm.nics.push(nic);
            return;
        }
        _ => return,
    };
    // A format's node stands on a protocol's, which has the file.
    let below = drive.and_then(|drive| {
        let name = drive.get("file")?;
        parts.drives.iter().find(|(id, _)| *id == name.value).map(|(_, options)| options)
    });
    let mut disk = disk(drive.unwrap_or(device), below, Some(device));
    disk.bus = Some(At::new(bus.to_owned(), driver.span));
    disk.hard = hard;
    vm.disks.push(disk);
}

fn is_nic(name: &str) -> bool {
    name.starts_with("e1000") || matches!(name, "rtl8139" | "ne2k_pci" | "pcnet" | "vmxnet3")
}

fn disk(drive: &Options, below: Option<&Options>, device: Option<&Options>) -> Disk {
    let either = |key: &str| device.and_then(|device| device.get(key)).or_else(|| drive.get(key));
    let below = below.unwrap_or(drive);
    let file = ["file", "filename", "file.filename"].iter().find_map(|key| below.get(key));
    let driver = below.get("driver").map(|at| at.value.as_str());
    let id = either("id").or_else(|| drive.get("node-name")).map(|id| id.value.clone());
    // -blockdev says what cache=none says with two switches.
    let direct = below.get("cache.direct").or_else(|| drive.get("cache.direct")).map(|at| {
        let mode = if at.value == "on" { "none" } else { "writeback" };
        At::new(mode.to_owned(), at.span)
    });
    Disk {
        span: drive.span,
        name: id.unwrap_or_else(|| "disk".to_owned()),
        hard: true,
        bus: None,
        cache: drive.get("cache").cloned().or(direct),
        io: below.get("aio").or_else(|| below.get("file.aio")).cloned(),
        iothread: device.and_then(|device| device.get("iothread")).cloned(),
        queues: device.and_then(|device| device.number("num-queues")),
        block: file.is_some_and(|file| file.value.starts_with("/dev/"))
            || matches!(driver, Some("host_device" | "nvme")),
        node: drive.get("node-name").is_some(),
    }
}

fn nic(net: &Options) -> Nic {
    let backend = match net.first("type").map(|at| at.value.as_str()) {
        Some("tap" | "bridge") => Backend::Tap,
        Some("user") => Backend::User,
        Some("vhost-user") => Backend::VhostUser,
        _ => Backend::Other,
    };
    Nic {
        span: net.span,
        backend,
        model: None,
        vhost: net.switch("vhost"),
        queues: net.number("queues"),
        multiqueue: None,
        vectors: None,
    }
}

/// A size whose plain number means MiB, as of `-m`.
fn mebibytes(at: &At<String>) -> Option<At<u64>> {
    if let Ok(plain) = at.value.parse::<u64>() {
        return Some(At { value: plain.checked_mul(1 << 20)?, span: at.span });
    }
    bytes(at)
}

/// A size whose plain number means bytes.
fn bytes(at: &At<String>) -> Option<At<u64>> {
    let text = at.value.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let value = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    Some(At { value, span: at.span })
}
