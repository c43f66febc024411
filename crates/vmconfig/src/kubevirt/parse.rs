//! KubeVirt's YAML, read: as people wrote it.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use topology::bounded::{self, YamlValue};

use crate::{
    Accel, Arch, Binding, BootSource, CacheMode, Discard, Disk, DiskBus, DiskIo, DiskSource,
    Enlightenment, GuestTopology, HostDevice, Nic, NicBackend, NicModel, NumberSet, ParsedVm,
    RtcTrack, Scheduler, TickPolicy, UnmodelledSetting, VmSettings,
};

use super::kinds::{is_list, template_of};
use super::tree::ManifestNode;
use super::{Catalogue, MAX_NIC_QUEUES, Quantity, assign_iothreads, defaults};

/// Why a text holds no VM of KubeVirt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubevirtMismatch {
    /// It is not YAML.
    #[error("Not YAML: {0}")]
    Yaml(String),
    /// It is YAML of something else.
    #[error("No VirtualMachineInstance or VirtualMachine in it")]
    NoVm,
}

/// The VMs of a text, which may have several documents and lists of objects;
/// objects of other kinds are left out.
///
/// # Errors
/// [`KubevirtMismatch`] if it isn't YAML or holds no VM.
pub fn parse(text: &str) -> Result<Vec<ParsedVm>, KubevirtMismatch> {
    let documents = bounded::yaml(text).map_err(|broken| {
        KubevirtMismatch::Yaml(format!("line {}: {}", broken.line(text), broken.what))
    })?;
    let all = parse_documents(documents, &[]);
    if all.is_empty() { Err(KubevirtMismatch::NoVm) } else { Ok(all) }
}

/// The VMs of documents that are read already; `known` are instance types and
/// preferences of other texts, those that come first before the others.
#[must_use]
pub fn parse_documents(mut documents: Vec<YamlValue>, known: &[&Catalogue]) -> Vec<ParsedVm> {
    super::instancetype::fill_in(&mut documents, known);
    super::instancetype::attach_all(&mut documents);
    let documents: Vec<ManifestNode<'_>> = documents.iter().map(ManifestNode::new).collect();
    let mut all = Vec::new();
    for document in &documents {
        match document.peek("kind").and_then(ManifestNode::text) {
            Some(kind) if is_list(kind) => {
                all.extend(document.items("items").iter().filter_map(object));
            }
            _ => all.extend(object(document)),
        }
    }
    all
}

fn object(document: &ManifestNode<'_>) -> Option<ParsedVm> {
    let kind = document.peek("kind").and_then(ManifestNode::text);
    let is_kubevirt = |text: &str| {
        ["kubevirt.io/", "pool.kubevirt.io/"]
            .iter()
            .find_map(|group| text.strip_prefix(group).map(drop))
    };
    let spec = document.peek("spec")?;
    // People quote the part that matters: a spec with a domain is a VM too.
    let template = match kind {
        Some(kind) => template_of(kind)?,
        None => "",
    };
    if template.is_empty() && spec.peek("domain").is_none() {
        return None;
    }
    let mut keys = template.split('.').filter(|key| !key.is_empty()).chain(["spec"]);
    let instance = keys.try_fold(document, |node, key| node.get(key))?;
    if kind == Some("VirtualMachine") {
        spec.read("runStrategy", |text| (text == "Halted").then_some(()));
    }
    document.read("apiVersion", is_kubevirt);
    document.read("kind", |_| Some(()));
    // What KubeVirt does where nobody says anything.
    let settings = VmSettings {
        machine: defaults::machines("amd64")[0].to_owned(),
        cpu_model: defaults::cpu_model("amd64").to_owned(),
        ..VmSettings::new("vm", Arch::X86_64, Accel::Kvm, BootSource::Firmware)
    };
    let mut parser = ManifestParser { settings, lines: BTreeMap::new() };
    parser.at("", document);
    if let Some(metadata) = document.get("metadata")
        && let Some(name) = metadata.read("name", |text| Some(text.to_owned()))
    {
        parser.settings.name = name;
    }
    // What a cluster writes into an object that it has, for itself.
    document.get_whole("status");
    if let Some(metadata) = document.get("metadata") {
        for key in CLUSTERS {
            metadata.get_whole(key);
        }
    }
    parser.instance(instance);
    let mut rest = Vec::new();
    document.rest("", &mut rest);
    let kept = rest
        .into_iter()
        .map(|(line, path, text)| UnmodelledSetting::of_text(line, path, text))
        .collect();
    let (settings, lines) = (parser.settings, parser.lines);
    Some(ParsedVm { settings, kept, lines, files: BTreeMap::new() }.finish())
}

/// Fields of an object's metadata that the cluster fills in.
const CLUSTERS: [&str; 6] =
    ["creationTimestamp", "finalizers", "generation", "managedFields", "resourceVersion", "uid"];

struct ManifestParser {
    settings: VmSettings,
    lines: BTreeMap<String, u32>,
}

impl ManifestParser {
    fn at(&mut self, field: &str, node: &ManifestNode<'_>) {
        self.lines.insert(field.to_owned(), node.line());
    }

    /// KubeVirt's name of the architecture.
    fn architecture(&self) -> &'static str {
        match self.settings.arch {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }

    fn cpu_model(&mut self, model: &str) {
        let own = if model == "host-passthrough" { "host" } else { model };
        own.clone_into(&mut self.settings.cpu_model);
    }

    /// A kernel from a container of its own, as `emit` says it; others' containers are
    /// kept as they are.
    fn kernel_boot(&mut self, domain: &ManifestNode<'_>) {
        let firmware = domain.peek("firmware");
        let Some(boot) = firmware.and_then(|firmware| firmware.peek("kernelBoot")) else { return };
        let Some(container) = boot.peek("container") else { return };
        let text = |node: &ManifestNode<'_>, key: &str| {
            node.peek(key).and_then(ManifestNode::text).map(str::to_owned)
        };
        let Some(kernel) = text(container, "kernelPath").map(PathBuf::from) else { return };
        let name = kernel.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if text(container, "image") != Some(name) {
            return;
        }
        let initrd = text(container, "initrdPath").map(PathBuf::from);
        let args = text(boot, "kernelArgs").unwrap_or_default();
        self.settings.kernel_cmdline = args.split_ascii_whitespace().map(str::to_owned).collect();
        self.settings.boot = BootSource::Kernel { kernel, initrd };
        self.at("boot", boot);
        if let Some(firmware) = domain.get("firmware") {
            firmware.get_whole("kernelBoot");
        }
    }

    fn instance(&mut self, instance: &ManifestNode<'_>) {
        if let Some(arch) = instance.read("architecture", |text| match text {
            "amd64" => Some(Arch::X86_64),
            "arm64" => Some(Arch::Aarch64),
            _ => None,
        }) {
            self.settings.arch = arch;
            defaults::machines(self.architecture())[0].clone_into(&mut self.settings.machine);
            self.cpu_model(defaults::cpu_model(self.architecture()));
        }
        let Some(domain) = instance.get("domain") else { return };
        if let Some(machine) = domain.get("machine")
            && let Some(name) =
                machine.read("type", |text| (!text.is_empty()).then(|| text.to_owned()))
        {
            self.settings.machine = name;
            self.at("machine", machine);
        }
        self.kernel_boot(domain);
        self.memory(domain);
        self.cpu(domain);
        self.clock(domain);
        self.features(domain);
        if let Some(devices) = domain.get("devices") {
            for key in ["autoattachGraphicsDevice", "autoattachMemBalloon"] {
                devices.read(key, |text| (text == "false").then_some(()));
            }
            self.disks(domain, devices, instance);
            self.nics(devices, instance);
            self.host_devices(devices);
        }
        self.pod_network(domain.get("devices"), instance);
    }

    /// The interface that is there where nobody says a word of networks.
    fn pod_network(&mut self, devices: Option<&ManifestNode<'_>>, instance: &ManifestNode<'_>) {
        let interfaces = devices.map_or(0, |devices| devices.items("interfaces").len());
        let attach = devices.and_then(|devices| devices.peek("autoattachPodInterface")?.text());
        if defaults::joins_pod_network(instance.items("networks").len(), interfaces, attach) {
            let mut nic = Nic::new(NicBackend::Pod { binding: Binding::Bridge });
            if devices.and_then(|devices| devices.flag("networkInterfaceMultiqueue")) == Some(true)
            {
                nic.queues = Some(self.settings.vcpus().min(MAX_NIC_QUEUES));
            }
            self.settings.nics.push(nic);
        }
    }

    fn memory(&mut self, domain: &ManifestNode<'_>) {
        let mib = |text: &str| quantity_mib(text);
        let memory = domain.get("memory");
        if let Some(memory) = memory {
            self.at("memory", memory);
            if let Some(pages) = memory.get("hugepages") {
                self.at("memory.huge_pages", pages);
                self.settings.memory.huge_pages = pages.read("pageSize", |text| text.parse().ok());
            }
            if let Some(guest) = memory.read("guest", mib) {
                self.settings.memory_mib = guest;
                self.at("memory_mib", memory);
                // The pod asks for the same.
                let asked = domain.peek("resources").and_then(|node| node.peek("requests"));
                let asked = asked.and_then(|node| node.peek("memory")).and_then(ManifestNode::text);
                if asked.and_then(quantity_mib) == Some(guest)
                    && let Some(resources) = domain.get("resources")
                {
                    resources.used_path("requests", "memory");
                }
                return;
            }
        }
        // The guest has what the pod asks for.
        let resources = domain.peek("resources");
        let amount = |key: &'static str| {
            let list = resources?.peek(key)?;
            Some((mib(list.peek("memory")?.text()?)?, list, key))
        };
        if let Some((mib, list, key)) = defaults::memory(None, amount("requests"), amount("limits"))
        {
            self.settings.memory_mib = mib;
            self.at("memory_mib", list);
            if let Some(resources) = domain.get("resources") {
                resources.used_path(key, "memory");
            }
        }
    }

    fn cpu(&mut self, domain: &ManifestNode<'_>) {
        let cpu = domain.get("cpu");
        // 0 is the same as nothing.
        let count = |text: &str| text.parse::<u32>().ok();
        let level = |name: &str| cpu?.read(name, count).filter(|count| *count > 0);
        let (sockets, cores, threads) = (level("sockets"), level("cores"), level("threads"));
        let levels = [sockets, cores, threads];
        let mut asked = None;
        if levels.iter().all(|level| level.unwrap_or(0) == 0) {
            asked = ["limits", "requests"].into_iter().find_map(|key| {
                let resources = domain.peek("resources")?;
                let text = resources.peek(key)?.peek("cpu")?.text()?;
                let count = quantity_cpus(text)?;
                resources.used_path(key, "cpu");
                domain.get("resources");
                Some(count)
            });
        }
        let [sockets, cores, threads] = defaults::topology(levels, asked.map(f64::from), None);
        self.settings.topology =
            GuestTopology { sockets, cores, threads, ..GuestTopology::of_cores(1) };
        let Some(cpu) = cpu else { return };
        self.at("topology", cpu);
        self.at("cpu_model", cpu);
        let topology = self.settings.topology;
        if let Some(most) = cpu.read("maxSockets", |text| text.parse::<u32>().ok())
            && most > topology.sockets
        {
            self.settings.present_vcpus = Some(topology.vcpus());
            self.settings.topology.sockets = most;
        }
        if let Some(model) = cpu.read("model", |text| (!text.is_empty()).then(|| text.to_owned())) {
            self.cpu_model(&model);
        }
        for feature in cpu.items("features") {
            let sign = match feature.peek("policy").and_then(ManifestNode::text) {
                None | Some("require" | "force" | "") => "+",
                Some("disable" | "forbid") => "-",
                Some(_) => {
                    feature.reject();
                    continue;
                }
            };
            feature.get("policy");
            if let Some(name) = feature.read("name", |text| Some(text.to_owned())) {
                self.settings.cpu_model.push_str(&format!(",{sign}{name}"));
            }
        }
        let delegated = &mut self.settings.delegated;
        delegated.dedicated_vcpus = cpu.flag("dedicatedCpuPlacement");
        delegated.dedicated_emulator = cpu.flag("isolateEmulatorThread");
        if let Some(numa) = cpu.get("numa") {
            delegated.mirror_numa = numa.get("guestMappingPassthrough").map(|_| true);
        }
        for (key, field) in [
            ("dedicatedCpuPlacement", "delegated.dedicated_vcpus"),
            ("isolateEmulatorThread", "delegated.dedicated_emulator"),
            ("numa", "delegated.mirror_numa"),
        ] {
            if let Some(node) = cpu.peek(key) {
                self.at(field, node);
            }
        }
        if let Some(realtime) = cpu.get("realtime") {
            let most = self.settings.max_vcpus().min(crate::invalid::MAX_VCPUS);
            let mask: Option<NumberSet> = realtime.read("mask", |text| text.parse().ok());
            let vcpus = mask.unwrap_or_else(|| (0..most).collect());
            self.settings.scheduler.vcpus =
                vcpus.iter().map(|vcpu| (vcpu, Scheduler::Fifo(1))).collect();
            self.at("scheduler", realtime);
        }
    }

    fn clock(&mut self, domain: &ManifestNode<'_>) {
        let Some(clock) = domain.get("clock") else { return };
        self.at("clock", clock);
        clock.get("utc");
        let Some(timer) = clock.get("timer") else { return };
        // A timer that is named is present.
        let present = |name: &str| {
            let node = timer.get(name)?;
            Some(node.flag("present").unwrap_or(true))
        };
        let tick = |name: &str| timer.get(name)?.read("tickPolicy", TickPolicy::from_name);
        let given = &mut self.settings.clock;
        given.hpet = present("hpet");
        given.kvmclock = present("kvm");
        given.hypervclock = present("hyperv");
        given.pit = tick("pit");
        given.rtc = tick("rtc");
        given.rtc_track = timer.get("rtc").and_then(|rtc| rtc.read("track", RtcTrack::from_name));
    }

    fn features(&mut self, domain: &ManifestNode<'_>) {
        let Some(features) = domain.get("features") else { return };
        self.at("hints", features);
        // A feature that is named is on.
        let state = |parent: &ManifestNode<'_>, name: &str| {
            let node = parent.get(name)?;
            Some(node.flag("enabled").unwrap_or(true))
        };
        state(features, "acpi");
        let hints = &mut self.settings.hints;
        if let Some(apic) = features.get("apic") {
            hints.pv_eoi = apic.flag("endOfInterrupt");
            apic.read("enabled", |text| (text == "true").then_some(()));
        }
        hints.pv_spinlocks = state(features, "pvspinlock");
        if let Some(kvm) = features.get("kvm") {
            hints.kvm_hidden = kvm.flag("hidden");
        }
        let Some(hyperv) = features.get("hyperv") else { return };
        for row in Enlightenment::NAMES {
            if let Some(name) = row.3
                && state(hyperv, name) == Some(true)
            {
                hints.hyperv.get_or_insert_default().insert(row.0);
            }
        }
        if let Some(spinlocks) = hyperv.get("spinlocks")
            && spinlocks.flag("enabled") != Some(false)
        {
            let attempts = spinlocks.read("spinlocks", |text| text.parse().ok());
            hints.hyperv_spinlocks = Some(attempts.unwrap_or(4096));
        }
    }

    fn disks(
        &mut self,
        domain: &ManifestNode<'_>,
        devices: &ManifestNode<'_>,
        instance: &ManifestNode<'_>,
    ) {
        let volumes = instance.items("volumes");
        let mut used_volumes = vec![false; volumes.len()];
        let places = by_name(volumes);
        let mut dedicated = Vec::new();
        for disk in devices.items("disks") {
            let name = disk.peek("name").and_then(ManifestNode::text);
            let place = name.and_then(|name| places.get(name).copied());
            let source = place.and_then(|place| source(&volumes[place]));
            let target = disk.peek("disk");
            let other = ["cdrom", "lun"].iter().any(|kind| disk.peek(kind).is_some());
            let bus = target.and_then(|target| target.peek("bus").and_then(ManifestNode::text));
            let bus = match bus.unwrap_or(defaults::disk_bus(self.architecture())) {
                _ if other => None,
                "virtio" => Some(DiskBus::VirtioBlk),
                "scsi" => Some(DiskBus::VirtioScsi),
                "sata" => Some(DiskBus::Sata),
                _ => None,
            };
            let (Some(place), Some(source), Some(bus)) = (place, source, bus) else {
                disk.reject();
                continue;
            };
            used_volumes[place] = true;
            disk.get("name");
            // Its launcher says so of every disk.
            let discard = Some(Discard::Unmap);
            let mut found = Disk { bus, discard, ..Disk::new(source) };
            if let Some(target) = disk.get("disk") {
                target.get("bus");
                found.readonly = target.flag("readonly").unwrap_or(false);
            }
            found.cache = disk.read("cache", CacheMode::from_name);
            found.io = disk.read("io", DiskIo::from_name);
            found.serial = disk.read("serial", |text| Some(text.to_owned()));
            found.boot_order = disk.read("bootOrder", |text| text.parse().ok());
            dedicated.push(
                (bus == DiskBus::VirtioBlk)
                    .then(|| disk.flag("dedicatedIOThread").unwrap_or(false)),
            );
            let number = self.settings.disks.len();
            self.at(&format!("disks.{number}"), disk);
            self.settings.disks.push(found);
        }
        for (volume, used) in volumes.iter().zip(used_volumes) {
            if !used {
                volume.reject();
            }
        }
        if devices.flag("blockMultiQueue") == Some(true) {
            let vcpus = self.settings.vcpus();
            for disk in self.settings.disks.iter_mut().filter(|disk| disk.bus.is_virtio()) {
                disk.queues = Some(vcpus);
            }
        }
        let shared = domain.read("ioThreadsPolicy", |text| (text == "shared").then_some(()));
        let (count, threads) = assign_iothreads(shared.is_some(), &dedicated);
        self.settings.iothreads = count;
        for (disk, thread) in self.settings.disks.iter_mut().zip(threads) {
            disk.iothread = thread;
        }
    }

    /// A device with more than its resource, such as a tag, is reported with the rest.
    fn host_devices(&mut self, devices: &ManifestNode<'_>) {
        for device in devices.items("hostDevices") {
            let name = device.read("deviceName", |text| Some(text.to_owned()));
            let Some(name) = name else {
                device.reject();
                continue;
            };
            device.get("name");
            let number = self.settings.host_devices.len();
            self.at(&format!("host_devices.{number}"), device);
            self.settings.host_devices.push(HostDevice::Resource(name));
        }
    }

    fn nics(&mut self, devices: &ManifestNode<'_>, instance: &ManifestNode<'_>) {
        let networks = instance.items("networks");
        let mut used = vec![false; networks.len()];
        let places = by_name(networks);
        for interface in devices.items("interfaces") {
            let name = interface.peek("name").and_then(ManifestNode::text);
            let place = name.and_then(|name| places.get(name).copied());
            let keys = interface.keys();
            let binding = if keys.contains(&"masquerade") {
                Some((Binding::Masquerade, "masquerade"))
            } else {
                keys.contains(&"bridge").then_some((Binding::Bridge, "bridge"))
            };
            let (Some(place), Some((binding, key))) = (place, binding) else {
                interface.reject();
                continue;
            };
            let network = &networks[place];
            let backend = if network.get("pod").is_some() {
                NicBackend::Pod { binding }
            } else if binding == Binding::Bridge
                && let Some(network) = network
                    .get("multus")
                    .and_then(|multus| multus.read("networkName", |text| Some(text.to_owned())))
            {
                NicBackend::Multus { network }
            } else {
                interface.reject();
                continue;
            };
            used[place] = true;
            network.get("name");
            interface.get("name");
            interface.get(key);
            let mut nic = Nic::new(backend);
            nic.model = interface
                .read("model", |text| {
                    NicModel::NAMES.iter().find(|row| row.1 == text).map(|row| row.0)
                })
                .unwrap_or_default();
            nic.mac = interface.read("macAddress", |text| Some(text.to_owned()));
            let number = self.settings.nics.len();
            self.at(&format!("nics.{number}"), interface);
            self.settings.nics.push(nic);
        }
        for (network, used) in networks.iter().zip(used) {
            if !used {
                network.reject();
            }
        }
        if self.settings.nics.is_empty() {
            devices.read("autoattachPodInterface", |text| (text == "false").then_some(()));
        }
        if devices.flag("networkInterfaceMultiqueue") == Some(true) {
            let queues = self.settings.vcpus().min(MAX_NIC_QUEUES);
            for nic in self.settings.nics.iter_mut().filter(|nic| nic.model == NicModel::Virtio) {
                nic.queues = Some(queues);
            }
        }
    }
}

/// Where a volume's sectors are, if it is of a kind that is known.
fn source(volume: &ManifestNode<'_>) -> Option<DiskSource> {
    let text = |inner: &ManifestNode<'_>, key: &str| inner.read(key, |text| Some(text.to_owned()));
    let found = if let Some(inner) = volume.get("persistentVolumeClaim") {
        DiskSource::Claim(text(inner, "claimName")?)
    } else if let Some(inner) = volume.get("dataVolume") {
        // It fills a claim of its own name, which the VM then has.
        DiskSource::Claim(text(inner, "name")?)
    } else if let Some(inner) = volume.get("containerDisk") {
        DiskSource::Container(text(inner, "image")?)
    } else if let Some(inner) = volume.get("hostDisk") {
        inner.read("type", |text| ["Disk", "DiskOrCreate"].contains(&text).then_some(()));
        DiskSource::File(text(inner, "path")?.into())
    } else {
        return None;
    };
    volume.get("name");
    Some(found)
}

/// Whole MiB of a quantity of Kubernetes, rounded up.
fn quantity_mib(text: &str) -> Option<u64> {
    let bytes = text.parse::<Quantity>().ok()?.round_up()?;
    Some(bytes.div_ceil(1 << 20))
}

/// Where the items of a list stand that are known by name; the first of each name.
fn by_name<'a>(items: &'a [ManifestNode<'_>]) -> HashMap<&'a str, usize> {
    let mut places = HashMap::new();
    for (place, item) in items.iter().enumerate() {
        if let Some(name) = item.peek("name").and_then(ManifestNode::text) {
            places.entry(name).or_insert(place);
        }
    }
    places
}

/// vCPUs of a quantity of Kubernetes: `4`, `1.5` and `3500m`, rounded up.
fn quantity_cpus(text: &str) -> Option<u32> {
    u32::try_from(text.parse::<Quantity>().ok()?.round_up()?).ok()
}
