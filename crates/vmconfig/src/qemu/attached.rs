//! Devices of a command line, with what is behind them.

use std::collections::BTreeMap;

use crate::{
    Accel, Arch, BootSource, CacheMode, Discard, Disk, DiskBus, DiskFormat, DiskIo, DiskSource,
    HostDevice, Iommu, Nic, NicBackend, NicModel, QueueIothread, ZeroDetection,
};

use super::interface::vectors;
use super::reader::{CommandLineReader, LocatedOption};
use crate::command_line::{Properties, switch};

/// A `-drive`, a `-blockdev`, a `-netdev`... until a device asks for it.
#[derive(Debug, Clone)]
struct DeviceBackend {
    option: LocatedOption,
    properties: Properties,
}

/// What stands behind devices, and the options that are read after all of it is
/// known.
#[derive(Debug, Default)]
pub(super) struct BackendOptions {
    drives: BTreeMap<String, DeviceBackend>,
    blockdevs: BTreeMap<String, DeviceBackend>,
    netdevs: BTreeMap<String, DeviceBackend>,
    chardevs: BTreeMap<String, DeviceBackend>,
    controllers: BTreeMap<String, DeviceBackend>,
    rest: Vec<LocatedOption>,
}

/// Identifier of the drive that a VM of vmlab boots from.
const ROOT: &str = "root";

impl BackendOptions {
    /// Takes what a device may ask for later.
    pub(super) fn collect(
        &mut self,
        option: &LocatedOption,
        reader: &mut CommandLineReader,
    ) -> bool {
        if option.value.is_none() {
            return false;
        }
        let (head, id) = match option.name.as_str() {
            "-drive" => ("file", "id"),
            "-blockdev" => ("driver", "node-name"),
            "-netdev" => ("type", "id"),
            "-chardev" => ("backend", "id"),
            "-device" => ("driver", "id"),
            _ => return false,
        };
        let properties = option.properties(head);
        let Some(id) = properties.get(id).map(str::to_owned) else { return false };
        let behind = DeviceBackend { option: option.clone(), properties };
        let map = match option.name.as_str() {
            "-drive" => &mut self.drives,
            "-blockdev" => &mut self.blockdevs,
            "-netdev" => &mut self.netdevs,
            "-chardev" => &mut self.chardevs,
            _ if is_controller(&behind) => &mut self.controllers,
            _ => return false,
        };
        if let Some(old) = map.insert(id, behind) {
            reader.unknown(&old.option);
        }
        true
    }

    /// Takes an option that can only be read when all is known.
    pub(super) fn later(&mut self, option: LocatedOption) {
        self.rest.push(option);
    }

    /// Puts devices and what is behind them together; what is left over is
    /// kept.
    pub(super) fn attach(mut self, reader: &mut CommandLineReader) {
        let mut used_controllers = Vec::new();
        for option in std::mem::take(&mut self.rest) {
            let understood = match option.name.as_str() {
                "-device" => self.device(&option, reader, &mut used_controllers),
                "-drive" | "-hda" | "-hdb" | "-hdc" | "-hdd" => self.drive_alone(&option, reader),
                _ => false,
            };
            if !understood {
                reader.unknown(&option);
            }
        }
        for id in used_controllers {
            if let Some(mut controller) = self.controllers.remove(&id) {
                for key in ["driver", "id", "iothread", "num_queues", "num-queues"] {
                    controller.properties.take(key);
                }
                queue_iothreads(&mut controller.properties, &reader.iothreads);
                reader.leftover(controller.option.line, "-device", &controller.properties);
            }
        }
        let left = [self.drives, self.blockdevs, self.netdevs, self.chardevs, self.controllers];
        let mut left: Vec<LocatedOption> =
            left.into_iter().flat_map(BTreeMap::into_values).map(|one| one.option).collect();
        left.sort_by_key(|option| option.line);
        for option in left {
            reader.unknown(&option);
        }
    }

    fn device(
        &mut self,
        option: &LocatedOption,
        reader: &mut CommandLineReader,
        used_controllers: &mut Vec<String>,
    ) -> bool {
        let mut device = option.properties("driver");
        let driver = device.take("driver").unwrap_or_default();
        let plain = driver.strip_suffix("-transitional").unwrap_or(&driver);
        match plain.strip_suffix("-non").unwrap_or(plain) {
            "virtio-blk-pci" | "virtio-blk" | "virtio-blk-device" => {
                self.disk(option, device, DiskBus::VirtioBlk, None, reader)
            }
            "scsi-hd" => {
                let bus = device.get("bus").unwrap_or_default();
                let id = bus.strip_suffix(".0").unwrap_or(bus).to_owned();
                let Some(controller) = self.controllers.get(&id).cloned() else { return false };
                if !controller
                    .properties
                    .get("driver")
                    .is_some_and(|d| d.starts_with("virtio-scsi"))
                {
                    return false;
                }
                device.take("bus");
                let done =
                    self.disk(option, device, DiskBus::VirtioScsi, Some(&controller), reader);
                if done {
                    used_controllers.push(id);
                }
                done
            }
            "ide-hd" => {
                let bus = device.get("bus").unwrap_or_default();
                let id = bus.rsplit_once('.').map_or(bus, |(id, _)| id).to_owned();
                let own = !self.controllers.contains_key(&id);
                let bus = if own { DiskBus::Ide } else { DiskBus::Sata };
                device.take("bus");
                if own {
                    device.take_if("unit", |text| text.parse::<u32>().ok());
                }
                let done = self.disk(option, device, bus, None, reader);
                if done {
                    used_controllers.push(id);
                }
                done
            }
            "vhost-scsi-pci" | "vhost-scsi" => {
                let Some(target) = device.take("wwpn") else { return false };
                let mut disk = Disk::new(DiskSource::VhostScsi(target));
                disk.queues = queues(&mut device);
                disk.boot_order = device.take_if("bootindex", |text| text.parse().ok());
                device.take("id");
                push_disk(reader, option.line, disk);
                reader.leftover(option.line, "-device", &device);
                true
            }
            "vhost-user-blk-pci" | "vhost-user-blk" => {
                let chardev = device.take("chardev").unwrap_or_default();
                let Some(mut socket) = self.chardevs.get(&chardev).cloned() else { return false };
                let Some(path) = socket.properties.take("path") else { return false };
                let mut disk = Disk::new(DiskSource::VhostUser(path.into()));
                disk.queues = queues(&mut device);
                disk.boot_order = device.take_if("bootindex", |text| text.parse().ok());
                device.take("id");
                for key in ["backend", "id"] {
                    socket.properties.take(key);
                }
                push_disk(reader, option.line, disk);
                reader.leftover(socket.option.line, "-chardev", &socket.properties);
                self.chardevs.remove(&chardev);
                reader.leftover(option.line, "-device", &device);
                true
            }
            "intel-iommu" if reader.settings.iommu.is_none() => {
                device.take("id");
                reader.settings.iommu = Some(Iommu {
                    interrupt_remapping: device.switch("intremap"),
                    extended_interrupts: device.switch("eim"),
                });
                reader.at("iommu", option.line);
                reader.leftover(option.line, "-device", &device);
                true
            }
            // The second one is the same without hotplug, as a boot display needs.
            "vfio-pci" | "vfio-pci-nohotplug" => {
                let Some(address) = device.take_if("host", |text| text.parse().ok()) else {
                    return false;
                };
                device.take("id");
                let number = reader.settings.host_devices.len();
                reader.settings.host_devices.push(HostDevice::Pci(address));
                reader.at(&format!("host_devices.{number}"), option.line);
                reader.leftover(option.line, "-device", &device);
                true
            }
            "pvpanic-pci" => false,
            name => match NicModel::NAMES.iter().find(|row| {
                row.2 == name || (row.0 == NicModel::Virtio && name.starts_with("virtio-net"))
            }) {
                Some(row) => self.nic(option, device, row.0, reader),
                None => false,
            },
        }
    }

    fn disk(
        &mut self,
        option: &LocatedOption,
        mut device: Properties,
        bus: DiskBus,
        controller: Option<&DeviceBackend>,
        reader: &mut CommandLineReader,
    ) -> bool {
        let Some(drive) = device.get("drive").map(str::to_owned) else { return false };
        let read = if let Some(behind) = self.drives.get(&drive) {
            let read = from_drive(behind.properties.clone());
            read.map(|read| (read, vec![(behind.option.clone(), drive.clone())]))
        } else {
            self.blockdev(&drive)
        };
        let Some(((mut disk, left), behind)) = read else { return false };
        if drive == ROOT && self.root(&disk, &device, reader) {
            self.drives.remove(ROOT);
            return true;
        }
        device.take("drive");
        disk.bus = bus;
        let mut controlled = controller.map(|one| one.properties.clone());
        let threads = controlled.as_mut().unwrap_or(&mut device);
        if let Some(id) = threads.get("iothread").map(str::to_owned)
            && let Some(place) = reader.iothreads.iter().position(|known| *known == id)
        {
            threads.take("iothread");
            disk.iothread = u32::try_from(place + 1).ok();
        }
        disk.queue_iothreads = queue_iothreads(threads, &reader.iothreads);
        disk.queues = queues(threads);
        disk.serial = device.take("serial");
        disk.boot_order = device.take_if("bootindex", |text| text.parse().ok());
        if let Some(cached) = device.switch("write-cache") {
            disk.cache = match (disk.cache, cached) {
                (Some(CacheMode::None), false) => Some(CacheMode::Directsync),
                (Some(CacheMode::Writeback), false) => Some(CacheMode::Writethrough),
                (other, _) => other,
            };
        }
        device.take("id");
        push_disk(reader, option.line, disk);
        reader.leftover(option.line, "-device", &device);
        for (rest, (option, _)) in left.iter().zip(&behind) {
            reader.leftover(option.line, &option.name, rest);
        }
        for (_, id) in behind {
            self.drives.remove(&id);
            self.blockdevs.remove(&id);
        }
        true
    }

    /// What a VM of vmlab boots from, if this is that.
    fn root(&self, disk: &Disk, device: &Properties, reader: &mut CommandLineReader) -> bool {
        let DiskSource::File(path) = &disk.source else { return false };
        if reader.has_kernel() && device.get("serial") == Some("vmlab-root") {
            reader.settings.boot = BootSource::Direct {
                kernel: std::path::PathBuf::new(),
                initrd: std::path::PathBuf::new(),
                root_image: path.clone(),
                cmdline: Vec::new(),
            };
            return true;
        }
        let own = disk.transient
            && disk.cache == Some(CacheMode::Unsafe)
            && disk.io.is_none()
            && !reader.has_kernel()
            && device.get("bootindex") == Some("1");
        if own {
            reader.settings.boot = BootSource::Disk { image: path.clone(), format: disk.format };
        }
        own
    }

    /// A disk made of nodes: one for the format over one for the file, and filters
    /// over both. A node stands in an option of its own, or in that of the node
    /// above it.
    fn blockdev(&self, name: &str) -> Option<(ReadDisk, Vec<(LocatedOption, String)>)> {
        let top = self.blockdevs.get(name)?;
        let mut properties = top.properties.clone();
        let mut behind = vec![(top.option.clone(), name.to_owned())];
        let (mut done, mut prefix) = (Vec::new(), String::new());
        let mut format = None;
        let mut said = NodeSettings::default();
        for _ in 0..MAX_NODES {
            let key = |name: &str| format!("{prefix}{name}");
            properties.take(&key("node-name"));
            said.read(&mut properties, &prefix);
            let driver = properties.take(&key("driver"))?;
            match driver.as_str() {
                "throttle" => {}
                "raw" | "qcow2" if format.is_some() => return None,
                // A part of what is below it.
                "raw" if properties.get(&key("offset")).is_some() => return None,
                "raw" => format = Some(DiskFormat::Raw),
                "qcow2" => format = Some(DiskFormat::Qcow2),
                "file" | "host_device" => {
                    let path = properties.take(&key("filename"))?.into();
                    let block = driver == "host_device";
                    let source =
                        if block { DiskSource::Block(path) } else { DiskSource::File(path) };
                    done.push(properties);
                    let disk = said.disk(source, format.unwrap_or_default());
                    return Some(((disk, done), behind));
                }
                _ => return None,
            }
            match properties.take(&key("file")) {
                Some(below) => {
                    let node = self.blockdevs.get(&below)?;
                    done.push(std::mem::replace(&mut properties, node.properties.clone()));
                    behind.push((node.option.clone(), below));
                    prefix.clear();
                }
                None => prefix.push_str("file."),
            }
        }
        None
    }

    /// `-drive` that is a device too, and its old forms `-hda` to `-hdd`.
    fn drive_alone(&self, option: &LocatedOption, reader: &mut CommandLineReader) -> bool {
        let mut properties = option.properties("file");
        let usual = match reader.settings.arch {
            Arch::X86_64 => "ide",
            Arch::Aarch64 => "virtio",
        };
        let bus = match (option.name.as_str(), properties.get("if").unwrap_or(usual)) {
            ("-drive", "virtio") => DiskBus::VirtioBlk,
            ("-drive", "ide") if reader.settings.arch == Arch::X86_64 => DiskBus::Ide,
            ("-drive", _) => return false,
            _ => DiskBus::Ide,
        };
        for key in ["if", "index", "id"] {
            properties.take(key);
        }
        let Some((mut disk, left)) = from_drive(properties) else { return false };
        disk.bus = bus;
        push_disk(reader, option.line, disk);
        for rest in left {
            reader.leftover(option.line, &option.name, &rest);
        }
        true
    }

    fn nic(
        &mut self,
        option: &LocatedOption,
        mut device: Properties,
        model: NicModel,
        reader: &mut CommandLineReader,
    ) -> bool {
        let Some(id) = device.get("netdev").map(str::to_owned) else { return false };
        let Some(behind) = self.netdevs.get(&id).cloned() else { return false };
        let mut net = behind.properties.clone();
        let backend = match net.get("type").unwrap_or_default() {
            "user" => NicBackend::User,
            "bridge" => NicBackend::Bridge { name: net.take("br").unwrap_or("br0".to_owned()) },
            "tap" if net.get("br").is_some() || net.get("helper").is_some() => {
                net.take_if("helper", |text| text.ends_with("qemu-bridge-helper").then_some(()));
                NicBackend::Bridge { name: net.take("br").unwrap_or("br0".to_owned()) }
            }
            "tap" if net.get("ifname").is_some() => {
                for key in ["script", "downscript"] {
                    net.take_if(key, |text| (text == "no").then_some(()));
                }
                NicBackend::Tap { ifname: net.take("ifname").unwrap_or_default() }
            }
            "vhost-user" => {
                let chardev = net.take("chardev").unwrap_or_default();
                let Some(mut socket) = self.chardevs.get(&chardev).cloned() else { return false };
                let Some(path) = socket.properties.take("path") else { return false };
                let server = socket.properties.switch("server").unwrap_or(false);
                if server {
                    socket.properties.switch("wait");
                }
                let ms = |text: &str| text.parse::<u32>().ok().filter(|ms| ms % 1000 == 0);
                let reconnect_s = socket
                    .properties
                    .take_if("reconnect", |text| text.parse().ok())
                    .or_else(|| Some(socket.properties.take_if("reconnect-ms", ms)? / 1000));
                socket.properties.take("backend");
                socket.properties.take("id");
                reader.leftover(socket.option.line, "-chardev", &socket.properties);
                self.chardevs.remove(&chardev);
                NicBackend::VhostUser { socket: path.into(), server, reconnect_s }
            }
            _ => return false,
        };
        self.netdevs.remove(&id);
        let mut nic = Nic::new(backend);
        nic.model = model;
        nic.vhost = net.switch("vhost");
        nic.queues = net.take_if("queues", |text| text.parse().ok());
        nic.mac = device.take("mac");
        if model == NicModel::Virtio {
            nic.rx_queue_size = device.take_if("rx_queue_size", |text| text.parse().ok());
            nic.tx_queue_size = device.take_if("tx_queue_size", |text| text.parse().ok());
            nic.packed = device.switch("packed");
            nic.mtu = device.take_if("host_mtu", |text| text.parse().ok());
        }
        for key in ["id", "type"] {
            net.take(key);
        }
        for key in ["id", "netdev"] {
            device.take(key);
        }
        if nic.queues.is_some() {
            device.take_if("mq", |text| switch(text).filter(|on| *on));
        }
        // What is written anew: see `Interface`.
        let vhost_user = matches!(nic.backend, NicBackend::VhostUser { .. });
        let without = vhost_user && reader.settings.accel == Accel::Tcg;
        let usual = |count: u64| Some(count) == nic.queues.map(vectors) || without && count == 0;
        device.take_if("vectors", |text| text.parse().ok().filter(|count| usual(*count)));
        let number = reader.settings.nics.len();
        reader.at(&format!("nics.{number}"), option.line);
        reader.settings.nics.push(nic);
        reader.leftover(behind.option.line, "-netdev", &net);
        reader.leftover(option.line, "-device", &device);
        true
    }
}

fn is_controller(behind: &DeviceBackend) -> bool {
    let driver = behind.properties.get("driver").unwrap_or_default();
    driver.starts_with("virtio-scsi") || driver == "ich9-ahci" || driver == "ahci"
}

fn queues(properties: &mut Properties) -> Option<u32> {
    let dash = properties.take_if("num-queues", |text| text.parse().ok());
    dash.or_else(|| properties.take_if("num_queues", |text| text.parse().ok()))
}

/// Who serves which queues: `iothread-vq-mapping.0.iothread`, `.0.vqs.0`. Where an
/// iothread is not there, all of it is left.
fn queue_iothreads(properties: &mut Properties, known: &[String]) -> Vec<QueueIothread> {
    let key = |place: usize, name: &str| format!("iothread-vq-mapping.{place}.{name}");
    let mut found = Vec::new();
    while let Some(id) = properties.get(&key(found.len(), "iothread")) {
        let place = known.iter().position(|known| known == id);
        let Some(iothread) = place.and_then(|place| u32::try_from(place + 1).ok()) else {
            return Vec::new();
        };
        let vqs = key(found.len(), "vqs");
        let queues = properties.all(&vqs).filter_map(|at| at.value.parse().ok()).collect();
        found.push(QueueIothread { iothread, queues });
    }
    for place in 0..found.len() {
        properties.take(&key(place, "iothread"));
        properties.take_all(&key(place, "vqs"), |text| text.parse::<u32>().ok());
    }
    found
}

fn push_disk(reader: &mut CommandLineReader, line: u32, disk: Disk) {
    let number = reader.settings.disks.len();
    reader.at(&format!("disks.{number}"), line);
    reader.settings.disks.push(disk);
}

/// More nodes than anybody stacks: an option may name itself.
const MAX_NODES: usize = 16;

/// What the nodes of a disk say, the one for the file before those above it.
#[derive(Debug, Default)]
struct NodeSettings {
    direct: Option<bool>,
    no_flush: Option<bool>,
    readonly: bool,
    io: Option<DiskIo>,
    /// Of every node in turn, from the device's down.
    discard: Vec<Discard>,
    detect_zeroes: Option<ZeroDetection>,
}

impl NodeSettings {
    fn read(&mut self, properties: &mut Properties, prefix: &str) {
        let mut switch = |key: &str| properties.switch(&format!("{prefix}{key}"));
        self.direct = switch("cache.direct").or(self.direct);
        self.no_flush = switch("cache.no-flush").or(self.no_flush);
        self.readonly |= switch("read-only") == Some(true);
        self.io = properties.take_if(&format!("{prefix}aio"), DiskIo::from_name).or(self.io);
        let detect = format!("{prefix}detect-zeroes");
        let detect = properties.take_if(&detect, ZeroDetection::from_name);
        self.detect_zeroes = self.detect_zeroes.or(detect);
        let discard = properties.take_if(&format!("{prefix}discard"), Discard::from_name);
        // A node without an option of its own lets all through (`bdrv_inherited_options`).
        let usual = if prefix.is_empty() { Discard::Ignore } else { Discard::Unmap };
        self.discard.push(discard.unwrap_or(usual));
    }

    fn disk(&self, source: DiskSource, format: DiskFormat) -> Disk {
        let cache = match (self.direct, self.no_flush) {
            (_, Some(true)) => Some(CacheMode::Unsafe),
            (Some(true), _) => Some(CacheMode::None),
            (Some(false), _) => Some(CacheMode::Writeback),
            (None, _) => None,
        };
        // What the guest discards gets as far as every node lets it.
        let unmap = self.discard.iter().all(|one| *one == Discard::Unmap);
        Disk {
            format,
            cache,
            io: self.io,
            discard: unmap.then_some(Discard::Unmap),
            detect_zeroes: self.detect_zeroes,
            readonly: self.readonly,
            ..Disk::new(source)
        }
    }
}

/// A disk, and what was not understood about it.
type ReadDisk = (Disk, Vec<Properties>);

fn from_drive(mut drive: Properties) -> Option<ReadDisk> {
    let path = drive.take("file").or_else(|| drive.take("file.filename"))?;
    if drive.get("media").is_some_and(|media| media != "disk") {
        return None;
    }
    drive.take("media");
    // Protocols of the network, and files by number.
    if path.contains("://") || path.starts_with("rbd:") || path.starts_with("json:") {
        return None;
    }
    let device = drive.take_if("file.driver", |text| (text == "host_device").then_some(()));
    let block = device.is_some() || path.starts_with("/dev/");
    let source = if block { DiskSource::Block(path.into()) } else { DiskSource::File(path.into()) };
    let mut disk = Disk::new(source);
    let named = match &disk.source {
        DiskSource::File(path) if path.extension().is_some_and(|end| end == "qcow2") => {
            DiskFormat::Qcow2
        }
        _ => DiskFormat::Raw,
    };
    // QEMU looks into a file whose format nobody says; its name tells mostly.
    disk.format = drive
        .take_if("format", |text| match text {
            "raw" => Some(DiskFormat::Raw),
            "qcow2" => Some(DiskFormat::Qcow2),
            _ => None,
        })
        .unwrap_or(named);
    disk.cache = drive.take_if("cache", CacheMode::from_name);
    disk.io = drive.take_if("aio", DiskIo::from_name);
    disk.discard = drive.take_if("discard", Discard::from_name);
    disk.detect_zeroes = drive.take_if("detect-zeroes", ZeroDetection::from_name);
    disk.readonly = drive.switch("readonly").or_else(|| drive.switch("read-only")).unwrap_or(false);
    disk.transient = drive.switch("snapshot").unwrap_or(false);
    drive.take("id");
    drive.take_if("if", |text| (text == "none").then_some(()));
    Some((disk, vec![drive]))
}
