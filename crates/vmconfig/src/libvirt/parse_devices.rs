//! Reading the devices of libvirt's domain XML.

use std::collections::BTreeMap;

use crate::{
    Accel, BootSource, CacheMode, Discard, Disk, DiskBus, DiskFormat, DiskIo, DiskSource,
    HostDevice, Iommu, MacvtapMode, Nic, NicBackend, NicModel, QueueIothread, ZeroDetection,
};

use super::ROOT_SERIAL;
use super::parse::DomainParser;
use super::xml::Xml;

/// Who serves a disk, or all disks of a SCSI controller, and its queues.
#[derive(Clone, Default)]
struct ControllerDriver {
    iothread: Option<u32>,
    queue_iothreads: Vec<QueueIothread>,
    queues: Option<u32>,
}

impl ControllerDriver {
    fn of(self, disk: &mut Disk) {
        (disk.iothread, disk.queues) = (self.iothread, self.queues);
        disk.queue_iothreads = self.queue_iothreads;
    }
}

impl<'a> DomainParser<'a> {
    pub(super) fn devices(&mut self, devices: Xml<'a>) {
        let mut controllers: BTreeMap<u32, ControllerDriver> = BTreeMap::new();
        for element in &devices.children {
            let is = |name: &str, value: &str| element.is(name, value);
            match element.name.as_str() {
                "controller" if is("type", "usb") && is("model", "none") => self.plain(element),
                "memballoon" if is("model", "none") => self.plain(element),
                "serial" if is("type", "pty") => self.plain(element),
                "controller" if is("type", "scsi") && is("model", "virtio-scsi") => {
                    let Some(index) = element.number("index") else { continue };
                    self.xml.take(element);
                    for name in ["type", "model", "index"] {
                        self.xml.attr(element, name);
                    }
                    let driver = self.xml.child(element, "driver");
                    let served =
                        driver.map_or_else(ControllerDriver::default, |one| self.served(one));
                    controllers.insert(index.value, served);
                }
                _ => {}
            }
        }
        for element in &devices.children {
            self.xml.take(element);
            let known = match element.name.as_str() {
                "disk" => self.disk(element, &controllers),
                "hostdev" if element.get("type") == Some("pci") => self.host_device(element),
                "hostdev" => self.vhost_scsi(element),
                "interface" if element.get("type") == Some("hostdev") => self.host_device(element),
                "interface" => self.interface(element),
                "iommu" => self.iommu(element),
                "controller" | "memballoon" | "serial" => {
                    // Taken above, or unknown.
                    !element.attributes.is_empty() && self.is_plain(element, &controllers)
                }
                _ => false,
            };
            if !known {
                self.xml.reject(element);
            }
        }
    }

    /// What an element `<driver>` says of threads and queues.
    fn served(&self, driver: Xml<'a>) -> ControllerDriver {
        let iothread = self.xml.attr_if(driver, "iothread", |id| self.iothread(id));
        let mut queue_iothreads = Vec::new();
        if let Some(all) = self.xml.child(driver, "iothreads") {
            for one in self.xml.children(all, "iothread") {
                let id = self.xml.attr_if(one, "id", |id| self.iothread(id));
                let queues = self.xml.children(one, "queue").into_iter();
                let queues = queues.filter_map(|queue| self.xml.number(queue, "id")).collect();
                queue_iothreads.extend(id.map(|iothread| QueueIothread { iothread, queues }));
            }
        }
        ControllerDriver { iothread, queue_iothreads, queues: self.xml.number(driver, "queues") }
    }

    fn is_plain(&self, element: Xml<'a>, controllers: &BTreeMap<u32, ControllerDriver>) -> bool {
        let is = |name: &str, value: &str| element.is(name, value);
        match element.name.as_str() {
            "controller" if is("type", "usb") => is("model", "none"),
            "controller" => {
                let index = element.number("index");
                is("model", "virtio-scsi")
                    && index.is_some_and(|index| controllers.contains_key(&index.value))
            }
            "memballoon" => is("model", "none"),
            _ => is("type", "pty"),
        }
    }

    /// An element that only keeps libvirt from adding something.
    fn plain(&self, element: Xml<'a>) {
        self.xml.take(element);
        for name in ["type", "model"] {
            self.xml.attr(element, name);
        }
    }

    fn disk(&mut self, element: Xml<'a>, controllers: &BTreeMap<u32, ControllerDriver>) -> bool {
        if element.get("device").is_some_and(|device| device != "disk") {
            return false;
        }
        let child = |name: &str| element.first(name);
        let path = |name: &str| child("source")?.get(name);
        let (source, attribute) = match (element.get("type"), path("file"), path("dev")) {
            // The type that isn't written is a file's.
            (Some("file") | None, Some(path), _) => (DiskSource::File(path.into()), "file"),
            (Some("block"), _, Some(path)) => (DiskSource::Block(path.into()), "dev"),
            (Some("vhostuser"), ..) if path("type") == Some("unix") => match path("path") {
                Some(path) => (DiskSource::VhostUser(path.into()), "path"),
                None => return false,
            },
            _ => return false,
        };
        let target = child("target");
        let told = target.and_then(|target| target.get("bus"));
        let named = || bus_of_target(element.get("device"), target?.get("dev")?);
        let bus = match told.or_else(named) {
            Some("virtio") => DiskBus::VirtioBlk,
            Some("sata") => DiskBus::Sata,
            Some("ide") => DiskBus::Ide,
            Some("scsi") => DiskBus::VirtioScsi,
            _ => return false,
        };
        let mut disk = Disk::new(source);
        disk.bus = bus;
        if bus == DiskBus::VirtioScsi {
            let address = child("address");
            let index = match address {
                Some(address) => address.number("controller").map(|at| at.value),
                None => target.and_then(|one| controller_of(one.get("dev")?)),
            };
            // A controller that isn't there is libvirt's own choice, and no
            // virtio: the disk is another then.
            let Some(served) = index.and_then(|index| controllers.get(&index)) else {
                return false;
            };
            served.clone().of(&mut disk);
            if let Some(address) = address {
                self.xml.take(address);
                for name in ["type", "controller"] {
                    self.xml.attr(address, name);
                }
                for name in ["bus", "unit", "target"] {
                    self.xml.attr_if(address, name, |text| (text == "0").then_some(()));
                }
            }
        }
        self.xml.attr(element, "type");
        self.xml.attr(element, "device");
        for (child, attribute) in
            [("source", "type"), ("source", attribute), ("target", "dev"), ("target", "bus")]
        {
            if let Some(child) = self.xml.child(element, child) {
                self.xml.attr(child, attribute);
            }
        }
        if let Some(driver) = self.xml.child(element, "driver") {
            self.xml.attr_if(driver, "name", |text| (text == "qemu").then_some(()));
            disk.format = self
                .xml
                .attr_if(driver, "type", |text| match text {
                    "raw" => Some(DiskFormat::Raw),
                    "qcow2" => Some(DiskFormat::Qcow2),
                    _ => None,
                })
                .unwrap_or_default();
            let cache =
                |text: &str| if text == "default" { None } else { CacheMode::from_name(text) };
            disk.cache = self.xml.attr_if(driver, "cache", cache);
            disk.io = self.xml.attr_if(driver, "io", DiskIo::from_name);
            disk.discard = self.xml.attr_if(driver, "discard", Discard::from_name);
            let detect = self.xml.attr_if(driver, "detect_zeroes", ZeroDetection::from_name);
            disk.detect_zeroes = detect;
            if bus != DiskBus::VirtioScsi {
                self.served(driver).of(&mut disk);
            }
        }
        // A disk that others write to has no pages of this host's cache. That others
        // do is for whoever starts them to know.
        if child("shareable").is_some() {
            disk.cache.get_or_insert(CacheMode::None);
        }
        disk.readonly = self.xml.child(element, "readonly").is_some();
        disk.transient = self.xml.child(element, "transient").is_some();
        if let Some(serial) = self.xml.child(element, "serial") {
            disk.serial = self.xml.text_if(serial, |text| Some(text.to_owned()));
        }
        if let Some(boot) = self.xml.child(element, "boot") {
            disk.boot_order = self.xml.number(boot, "order");
        }
        if !self.boots_from(&disk) {
            let number = self.settings.disks.len();
            self.xml.at(&format!("disks.{number}"), element);
            self.settings.disks.push(disk);
        }
        true
    }

    /// Whether this is the disk that a VM of vmlab boots from.
    fn boots_from(&mut self, disk: &Disk) -> bool {
        let DiskSource::File(path) = &disk.source else { return false };
        let own_kernel = disk.serial.as_deref() == Some(ROOT_SERIAL) && disk.readonly;
        let own_image = disk.transient
            && disk.cache == Some(CacheMode::Unsafe)
            && disk.boot_order == Some(1)
            && self.settings.disks.is_empty();
        self.settings.boot = match &self.settings.boot {
            BootSource::Kernel { kernel, initrd } if own_kernel => BootSource::Direct {
                kernel: kernel.clone(),
                initrd: initrd.clone().unwrap_or_default(),
                root_image: path.clone(),
                cmdline: Vec::new(),
            },
            BootSource::Firmware if own_image => {
                BootSource::Disk { image: path.clone(), format: disk.format }
            }
            _ => return false,
        };
        true
    }

    /// Intel's IOMMU: others remap nothing, or are of another machine.
    fn iommu(&mut self, element: Xml<'a>) -> bool {
        if element.get("model") != Some("intel") || self.settings.iommu.is_some() {
            return false;
        }
        self.xml.attr(element, "model");
        let driver = self.xml.child(element, "driver");
        let switch = |name: &str| driver.and_then(|one| self.xml.switch(one, name));
        self.settings.iommu = Some(Iommu {
            interrupt_remapping: switch("intremap"),
            extended_interrupts: switch("eim"),
        });
        self.xml.at("iommu", element);
        true
    }

    fn vhost_scsi(&mut self, element: Xml<'a>) -> bool {
        if element.get("type") != Some("scsi_host") {
            return false;
        }
        let Some(source) = self.xml.child(element, "source") else { return false };
        let Some(target) = source.get("wwpn") else { return false };
        for name in ["mode", "type"] {
            self.xml.attr(element, name);
        }
        for name in ["protocol", "wwpn"] {
            self.xml.attr(source, name);
        }
        let mut disk = Disk::new(DiskSource::VhostScsi(target.to_owned()));
        if let Some(boot) = self.xml.child(element, "boot") {
            disk.boot_order = self.xml.number(boot, "order");
        }
        let number = self.settings.disks.len();
        self.xml.at(&format!("disks.{number}"), element);
        self.settings.disks.push(disk);
        true
    }

    /// A PCI device of the host, however it is to be bound to VFIO.
    fn host_device(&mut self, element: Xml<'a>) -> bool {
        let Some(address) = element.host_device() else { return false };
        let Some(source) = self.xml.child(element, "source") else { return false };
        let Some(place) = self.xml.child(source, "address") else { return false };
        for name in ["mode", "type"] {
            self.xml.attr(element, name);
        }
        self.xml.attr(place, "type");
        self.xml.attr_if(element, "managed", |text| (text == "yes").then_some(()));
        // The only one there is.
        if let Some(driver) = self.xml.child(element, "driver") {
            self.xml.attr_if(driver, "name", |text| (text == "vfio").then_some(()));
        }
        for name in ["domain", "bus", "slot", "function"] {
            self.xml.attr(place, name);
        }
        let number = self.settings.host_devices.len();
        self.xml.at(&format!("host_devices.{number}"), element);
        self.settings.host_devices.push(HostDevice::Pci(address.value));
        true
    }

    fn interface(&mut self, element: Xml<'a>) -> bool {
        let source = self.xml.child(element, "source");
        let name = |attribute: &str| Some(self.xml.attr(source?, attribute)?.to_owned());
        let backend = match element.get("type") {
            Some("user") => Some(NicBackend::User),
            Some("bridge") => name("bridge").map(|name| NicBackend::Bridge { name }),
            Some("network") => name("network").map(|network| NicBackend::Libvirt { network }),
            Some("direct") => name("dev").map(|device| {
                let mode = source.and_then(|source| {
                    self.xml.attr_if(source, "mode", |text| {
                        MacvtapMode::NAMES.iter().find(|row| row.1 == text).map(|row| row.0)
                    })
                });
                // The mode that isn't written is libvirt's `vepa`.
                NicBackend::Macvtap { device, mode: mode.unwrap_or(MacvtapMode::Vepa) }
            }),
            Some("ethernet") => self.xml.child(element, "target").and_then(|target| {
                self.xml.attr_if(target, "managed", |text| (text == "no").then_some(()));
                let ifname = self.xml.attr(target, "dev")?.to_owned();
                Some(NicBackend::Tap { ifname })
            }),
            Some("vhostuser") => name("path").map(|path| {
                name("type");
                let server = name("mode").as_deref() == Some("server");
                let again = source.and_then(|source| self.xml.child(source, "reconnect"));
                let reconnect_s = again.and_then(|again| {
                    let is_on = self.xml.switch(again, "enabled")?;
                    self.xml.number(again, "timeout").filter(|_| is_on)
                });
                NicBackend::VhostUser { socket: path.into(), server, reconnect_s }
            }),
            _ => None,
        };
        let Some(backend) = backend else { return false };
        let mut nic = Nic::new(backend);
        if let Some(model) = self.xml.child(element, "model") {
            let known = self.xml.attr_if(model, "type", |text| {
                NicModel::NAMES.iter().find(|row| row.1 == text).map(|row| row.0)
            });
            // Which generations of virtio the guest may drive is reported, not kept.
            let virtio = model.get("type").is_some_and(|text| text.ends_with("-transitional"));
            let Some(known) = known.or(virtio.then_some(NicModel::Virtio)) else { return false };
            nic.model = known;
        } else {
            nic.model = NicModel::Rtl8139;
        }
        self.xml.attr(element, "type");
        if let Some(mac) = self.xml.child(element, "mac") {
            nic.mac = self.xml.attr(mac, "address").map(str::to_owned);
        }
        // libvirt asks for vhost wherever that can be: with KVM, of a virtio
        // interface with a tap device. See its `qemuInterfaceOpenVhostNet`.
        let can = self.settings.accel == Accel::Kvm
            && nic.model == NicModel::Virtio
            && nic.backend.is_tap();
        let mut asked = None;
        if let Some(driver) = self.xml.child(element, "driver") {
            asked = self.xml.attr_if(driver, "name", |text| match text {
                "vhost" if can => Some(true),
                "qemu" => Some(false),
                _ => None,
            });
            let takes = nic.model == NicModel::Virtio && nic.backend != NicBackend::User;
            if takes {
                nic.queues = self.xml.number(driver, "queues");
            }
            if nic.model == NicModel::Virtio {
                nic.rx_queue_size = self.xml.number(driver, "rx_queue_size");
                nic.tx_queue_size = self.xml.number(driver, "tx_queue_size");
                nic.packed = self.xml.attr_if(driver, "packed", |text| match text {
                    "on" => Some(true),
                    "off" => Some(false),
                    _ => None,
                });
            }
        }
        if nic.model == NicModel::Virtio
            && let Some(mtu) = self.xml.child(element, "mtu")
        {
            nic.mtu = self.xml.number(mtu, "size");
        }
        nic.vhost = Some(can && asked != Some(false));
        let number = self.settings.nics.len();
        self.xml.at(&format!("nics.{number}"), element);
        self.settings.nics.push(nic);
        true
    }
}

/// The SCSI controller of a disk that does not say where it is: each holds 15,
/// in the order of their names.
///
/// Source: libvirt `virDomainDiskDefAssignAddress`.
fn controller_of(target: &str) -> Option<u32> {
    let letters = target.strip_prefix("sd")?;
    let number = letters.bytes().try_fold(0u32, |number, letter| {
        let digit = letter.is_ascii_lowercase().then(|| u32::from(letter - b'a') + 1)?;
        number.checked_mul(26)?.checked_add(digit)
    })?;
    Some(number.checked_sub(1)? / 15)
}

/// The bus of a disk whose `<target>` names none, by the disk's `device` and the target's
/// `dev`, as libvirt takes it (`virDomainDiskDefPostParse`); `None` for what libvirt does
/// not take for the name of such a device.
///
/// Source: <https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms>.
#[must_use]
pub fn bus_of_target(device: Option<&str>, dev: &str) -> Option<&'static str> {
    const PREFIXES: [(&str, &str); 5] =
        [("hd", "ide"), ("sd", "scsi"), ("vd", "virtio"), ("xvd", "xen"), ("ubd", "uml")];
    let named = PREFIXES.iter().find(|(prefix, _)| dev.starts_with(prefix)).map(|(_, bus)| *bus);
    match device {
        Some("floppy") => Some("fdc"),
        // Whatever it is called.
        Some("cdrom") => named.or(Some("ide")),
        _ => named,
    }
}
