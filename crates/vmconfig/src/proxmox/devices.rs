//! Disks, network cards, devices of the host.
//!
//! Source: qemu-server `Drive.pm`, `DriveDevice.pm`, `Network.pm`, `PCI.pm`.

use std::collections::{BTreeMap, HashSet};

use super::config::{PropertyString, ProxmoxEntry, separated};
use super::maker::Maker;
use super::trouble::Trouble;
use crate::command_line::ShellWord;
use crate::source::{LocatedValue, Span};

/// Disks that one controller takes.
#[derive(Clone, Copy, PartialEq)]
enum ScsiHardware {
    /// LSI's, emulated: seven disks.
    Lsi,
    /// One of virtio for each disk, with a thread and queues of its own.
    VirtioSingle,
    /// One of virtio for all.
    Virtio,
    /// Another that is emulated.
    Other,
}

/// Parts of a disk that say nothing to QEMU.
const SILENT: &[&str] = &["size", "backup", "replicate", "shared"];

pub(super) fn make(maker: &mut Maker<'_>) {
    balloon(maker);
    host_devices(maker);
    random(maker);
    let turns = turns(maker);
    disks(maker, &turns);
    nics(maker, &turns);
}

/// The turn of each device when the firmware looks for something to boot, from 1.
fn turns(maker: &mut Maker<'_>) -> BTreeMap<String, (u32, Span)> {
    let mut turns = BTreeMap::new();
    let order = maker.config.get("boot").and_then(|entry| entry.parts("legacy").take("order"));
    if let Some(order) = order {
        let _ = maker.take("boot");
        for (number, (device, at)) in (1..).zip(separated(&order)) {
            turns.insert(device, (number, at.span));
        }
    } else if let Some(disk) = maker.config.get("bootdisk") {
        let _ = maker.take("bootdisk");
        turns.insert(disk.value.value.clone(), (1, disk.value.span));
    }
    turns
}

fn balloon(maker: &mut Maker<'_>) {
    let said = maker.number("balloon");
    if said.as_ref().is_some_and(|mib| mib.value == 0) {
        return;
    }
    let place = said.map_or(maker.head, |mib| mib.span);
    let reporting = if maker.machine.since(6, 2) { ",free-page-reporting=on" } else { "" };
    let text = format!("virtio-balloon-pci,id=balloon0{reporting}");
    maker.option("device", place, ShellWord::made(place).with(&text, place));
}

/// The host's PCI devices. One without a function is all of its functions, of which
/// the first is known.
fn host_devices(maker: &mut Maker<'_>) {
    for (number, entry) in maker.take_all("hostpci") {
        let mut parts = entry.parts("host");
        let hosts = parts.take("host").filter(|_| parts.items.iter().all(|(key, _)| key != "mdev"));
        let Some(hosts) = hosts else {
            maker.keep(entry, &entry.key.value, &entry.value.value);
            continue;
        };
        for (place, (host, at)) in separated(&hosts).into_iter().enumerate() {
            let whole = host.contains('.');
            if !whole {
                maker.keep(entry, &format!("{}.host", entry.key.value), &format!("{host}.1-7"));
            }
            let function = if whole { "" } else { ".0" };
            let id = if place == 0 { String::new() } else { format!(".{place}") };
            let word = ShellWord::made(entry.value.span)
                .with("vfio-pci,host=", at.span)
                .with(&host, at.span)
                .with(function, at.span)
                .with(&format!(",id=hostpci{number}{id}"), at.span);
            maker.option("device", entry.key.span, word);
        }
        maker.keep_rest(entry, &parts);
    }
}

fn random(maker: &mut Maker<'_>) {
    for (number, entry) in maker.take_all("rng") {
        let mut parts = entry.parts("source");
        let Some(source) = parts.take("source") else {
            maker.keep(entry, &entry.key.value, &entry.value.value);
            continue;
        };
        let place = entry.value.span;
        let object = ShellWord::made(place)
            .with("rng-random,filename=", source.span)
            .with(&source.value, source.span)
            .with(&format!(",id=rng{number}"), place);
        let most = parts.take("max_bytes").map_or("1024".to_owned(), |at| at.value);
        let period = parts.take("period").map_or("1000".to_owned(), |at| at.value);
        let limit = match most.as_str() {
            "0" => String::new(),
            most => format!(",max-bytes={most},period={period}"),
        };
        let device = format!("virtio-rng-pci,rng=rng{number}{limit}");
        maker.option("object", entry.key.span, object);
        maker.option("device", entry.key.span, ShellWord::made(place).with(&device, place));
        maker.keep_rest(entry, &parts);
    }
}

fn disks(maker: &mut Maker<'_>, turns: &BTreeMap<String, (u32, Span)>) {
    let said = maker.take("scsihw");
    let hardware = match said.map(|entry| entry.value.value.as_str()) {
        None | Some("lsi" | "lsi53c810") => ScsiHardware::Lsi,
        Some("virtio-scsi-single") => ScsiHardware::VirtioSingle,
        Some("virtio-scsi-pci") => ScsiHardware::Virtio,
        Some(_) => ScsiHardware::Other,
    };
    let mut controllers: HashSet<String> = HashSet::new();
    for kind in ["ide", "sata", "scsi", "virtio"] {
        for (number, entry) in maker.take_all(kind) {
            let mut parts = entry.parts("file");
            let file = parts.take("file").or_else(|| parts.take("volume"));
            let is_disc = parts.items.iter().any(|(key, at)| key == "media" && at.value == "cdrom");
            let Some(file) = file.filter(|file| !is_disc && file.value != "none") else {
                maker.keep(entry, &entry.key.value, &entry.value.value);
                continue;
            };
            let mut one =
                ProxmoxDisk { entry, parts, number, file, turn: turns.get(&entry.key.value) };
            one.silent(maker);
            one.drive(maker);
            match kind {
                "scsi" => one.scsi(maker, hardware, said, &mut controllers),
                "virtio" => one.virtio(maker),
                "sata" => {
                    let id = format!("ahci{}", number / 6);
                    let bus = format!("ide-hd,bus={id}.{}", number % 6);
                    if !controllers.contains(&id) {
                        let place = entry.key.span;
                        let word = ShellWord::made(place).with(&format!("ahci,id={id}"), place);
                        maker.option("device", place, word);
                        controllers.insert(id);
                    }
                    one.without_thread(maker);
                    one.device(maker, &bus, &[]);
                }
                _ => {
                    let (mut bus, mut unit) = (number / 2, number % 2);
                    // A q35 has one unit on each bus.
                    if maker.machine.is_q35() {
                        (bus, unit) = (bus + 2 * unit, 0);
                    }
                    one.without_thread(maker);
                    one.device(maker, &format!("ide-hd,bus=ide.{bus},unit={unit}"), &[]);
                }
            }
            one.rest(maker);
        }
    }
}

struct ProxmoxDisk<'a> {
    entry: &'a ProxmoxEntry,
    parts: PropertyString,
    number: u32,
    file: LocatedValue<String>,
    turn: Option<&'a (u32, Span)>,
}

impl ProxmoxDisk<'_> {
    fn key(&self) -> &str {
        &self.entry.key.value
    }

    fn silent(&mut self, maker: &mut Maker<'_>) {
        for key in SILENT {
            for value in self.parts.take_all(key) {
                maker.keep(self.entry, &format!("{}.{key}", self.key()), &value.value);
            }
        }
        self.parts.take("media");
    }

    /// What is behind the disk. `qm`'s own choices are said: they are not QEMU's.
    fn drive(&mut self, maker: &mut Maker<'_>) {
        let (place, key) = (self.entry.value.span, self.entry.key.value.clone());
        let volume = Volume::of(&self.file.value);
        if !volume.is_certain {
            let text = format!("{}, taken for {}", self.file.value, volume.path);
            maker.keep(self.entry, &format!("{key}.file"), &text);
        }
        let path = volume.path.replace(',', ",,");
        let mut word =
            ShellWord::made(place).with("file=", self.file.span).with(&path, self.file.span);
        word = word.with(&format!(",if=none,id=drive-{key}"), place);
        let format = self.parts.take("format");
        let named = format.as_ref().map_or(volume.format, |at| at.value.as_str());
        let at = format.as_ref().map_or(self.file.span, |at| at.span);
        word = word.with(",format=", at).with(named, at);
        let cache = self.parts.take("cache").unwrap_or(LocatedValue::new("none".to_owned(), place));
        word = word.with(",cache=", cache.span).with(&cache.value, cache.span);
        // Storages of kinds that hang with io_uring (thick LVM, CIFS) get something
        // else; which those are stands in another file.
        let io = self.parts.take("aio").unwrap_or(LocatedValue::new("io_uring".to_owned(), place));
        word = word.with(",aio=", io.span).with(&io.value, io.span);
        let discard = self.parts.take("discard");
        let zeroes = self.parts.switch("detect_zeroes");
        let frees = discard.as_ref().is_some_and(|at| at.value == "on");
        let detect = match zeroes.as_ref().map(|on| on.value) {
            Some(false) => "off",
            _ if frees => "unmap",
            _ => "on",
        };
        let at = zeroes.map_or(place, |on| on.span);
        word = word.with(",detect-zeroes=", at).with(detect, at);
        if let Some(discard) = discard {
            word = word.with(",discard=", discard.span).with(&discard.value, discard.span);
        }
        for (key, name) in [("snapshot", "snapshot"), ("ro", "readonly")] {
            if let Some(on) = self.parts.switch(key).filter(|on| on.value) {
                word = word.with(&format!(",{name}=on"), on.span);
            }
        }
        maker.option("drive", self.entry.key.span, word);
    }

    fn scsi(
        &mut self,
        maker: &mut Maker<'_>,
        hardware: ScsiHardware,
        said: Option<&ProxmoxEntry>,
        controllers: &mut HashSet<String>,
    ) {
        let name = said.map_or("lsi", |entry| entry.value.value.as_str());
        let most = match hardware {
            ScsiHardware::Lsi => 7,
            ScsiHardware::VirtioSingle => 1,
            ScsiHardware::Virtio | ScsiHardware::Other => 256,
        };
        let single = hardware == ScsiHardware::VirtioSingle;
        let prefix = if single { "virtioscsi" } else { "scsihw" };
        let id = format!("{prefix}{}", self.number / most);
        let place = said.map_or(self.entry.key.span, |entry| entry.value.span);
        let driver = if single { "virtio-scsi-pci" } else { name };
        let mut controller =
            ShellWord::made(place).with(driver, place).with(&format!(",id={id}"), place);
        if single {
            if let Some(on) = self.parts.switch("iothread").filter(|on| on.value) {
                let thread = format!("iothread-{id}");
                self.thread(maker, &thread, on.span);
                controller = controller.with(",iothread=", on.span).with(&thread, on.span);
            }
            if let Some(queues) = self.parts.take("queues") {
                controller = controller.with(",num_queues=", queues.span);
                controller = controller.with(&queues.value, queues.span);
            }
        } else {
            self.without_thread(maker);
            if let Some(queues) = self.parts.take("queues") {
                let disk = self.entry.key.value.clone();
                maker.trouble(Trouble::QueuesIgnored { disk }, queues.span);
            }
        }
        if !controllers.contains(&id) {
            maker.option("device", place, controller);
            controllers.insert(id.clone());
        }
        let kind = match self.parts.switch("scsiblock") {
            Some(on) if on.value => "block",
            _ => "hd",
        };
        let target = match hardware {
            ScsiHardware::Lsi => format!(",scsi-id={}", self.number % most),
            _ if name == "pvscsi" => format!(",scsi-id={}", self.number % most),
            _ => String::new(),
        };
        self.device(maker, &format!("scsi-{kind},bus={id}.0{target}"), &[]);
    }

    fn virtio(&mut self, maker: &mut Maker<'_>) {
        let thread = format!("iothread-{}", self.key());
        match self.parts.switch("iothread").filter(|on| on.value) {
            Some(on) => {
                self.thread(maker, &thread, on.span);
                self.device(maker, "virtio-blk-pci", &[("iothread", &thread, on.span)]);
            }
            None => self.device(maker, "virtio-blk-pci", &[]),
        }
    }

    fn thread(&self, maker: &mut Maker<'_>, id: &str, place: Span) {
        let word = ShellWord::made(place).with(&format!("iothread,id={id}"), place);
        maker.option("object", place, word);
    }

    /// Tells of an iothread that this disk can't have.
    fn without_thread(&mut self, maker: &mut Maker<'_>) {
        if let Some(on) = self.parts.switch("iothread").filter(|on| on.value) {
            let disk = self.entry.key.value.clone();
            maker.trouble(Trouble::IothreadIgnored { disk }, on.span);
        }
    }

    fn device(&mut self, maker: &mut Maker<'_>, head: &str, more: &[(&str, &str, Span)]) {
        let (key, place) = (self.entry.key.value.clone(), self.entry.key.span);
        let mut word = ShellWord::made(self.entry.value.span)
            .with(head, place)
            .with(&format!(",drive=drive-{key},id={key}"), place);
        for (name, value, at) in more {
            word = word.with(&format!(",{name}="), *at).with(value, *at);
        }
        if let Some((turn, at)) = self.turn {
            word = word.with(",bootindex=", *at).with(&turn.to_string(), *at);
        }
        if let Some(serial) = self.parts.take("serial") {
            let text = unescaped(&serial.value).replace(',', ",,");
            word = word.with(",serial=", serial.span).with(&text, serial.span);
        }
        maker.option("device", place, word);
    }

    fn rest(&mut self, maker: &mut Maker<'_>) {
        maker.keep_rest(self.entry, &self.parts);
    }
}

/// `%2C` and such.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where a volume of a storage lies.
struct Volume {
    path: String,
    format: &'static str,
    /// Whether the path follows from the volume alone: other storages' paths stand in
    /// `/etc/pve/storage.cfg`.
    is_certain: bool,
}

impl Volume {
    fn of(text: &str) -> Self {
        let format = match text.rsplit_once('.').map(|(_, end)| end) {
            Some("qcow2") => "qcow2",
            Some("vmdk") => "vmdk",
            _ => "raw",
        };
        let (path, is_certain) = match text.split_once(':') {
            _ if text.starts_with('/') => (text.to_owned(), true),
            // Those that the installer makes.
            Some(("local", name)) => (format!("/var/lib/vz/images/{name}"), true),
            Some(("local-lvm", name)) => (format!("/dev/pve/{name}"), true),
            Some(("local-zfs", name)) => (format!("/dev/zvol/rpool/data/{name}"), true),
            Some((storage, name)) if name.contains('/') => {
                (format!("/mnt/pve/{storage}/images/{name}"), false)
            }
            Some((storage, name)) => (format!("/dev/{storage}/{name}"), false),
            None => (text.to_owned(), false),
        };
        Self { path, format, is_certain }
    }
}

/// Cards by Proxmox's names, with QEMU's where they differ.
const MODELS: &[(&str, &str)] = &[
    ("virtio", "virtio-net-pci"),
    ("e1000", "e1000"),
    ("e1000e", "e1000e"),
    ("e1000-82540em", "e1000-82540em"),
    ("e1000-82544gc", "e1000-82544gc"),
    ("e1000-82545em", "e1000-82545em"),
    ("i82551", "i82551"),
    ("i82557b", "i82557b"),
    ("i82559er", "i82559er"),
    ("ne2k_isa", "ne2k_isa"),
    ("ne2k_pci", "ne2k_pci"),
    ("pcnet", "pcnet"),
    ("rtl8139", "rtl8139"),
    ("vmxnet3", "vmxnet3"),
];

fn nics(maker: &mut Maker<'_>, turns: &BTreeMap<String, (u32, Span)>) {
    for (_, entry) in maker.take_all("net") {
        let mut parts = entry.parts("model");
        let (key, place) = (entry.key.value.clone(), entry.value.span);
        let named = MODELS.iter().find_map(|row| Some((row.1, parts.take(row.0)?)));
        let (model, mac) = match named {
            Some((model, mac)) => (Some(LocatedValue::new(model, mac.span)), Some(mac)),
            None => {
                let read = |text: &str| MODELS.iter().find(|row| row.0 == text).map(|row| row.1);
                (parts.take_if("model", read), parts.take("macaddr"))
            }
        };
        let Some(model) = model else {
            maker.keep(entry, &key, &entry.value.value);
            continue;
        };
        let is_virtio = model.value == "virtio-net-pci";
        let mut net = ShellWord::made(place);
        let bridge = parts.take("bridge");
        match &bridge {
            Some(bridge) => {
                net = net
                    .with(&format!("tap,id={key}"), place)
                    .with(",br=", bridge.span)
                    .with(&bridge.value, bridge.span);
                if is_virtio && !maker.is_arm {
                    net = net.with(",vhost=on", model.span);
                }
            }
            None => net = net.with(&format!("user,id={key}"), place),
        }
        let mac = mac.filter(|mac| mac.value.contains(':'));
        let mut device = ShellWord::made(place)
            .with(model.value, model.span)
            .with(&format!(",netdev={key},id={key}"), place);
        if let Some(mac) = mac {
            device = device.with(",mac=", mac.span).with(&mac.value, mac.span);
        }
        if let Some(queues) = parts.take("queues") {
            if is_virtio {
                net = net.with(",queues=", queues.span).with(&queues.value, queues.span);
                if let Ok(number @ 2..) = queues.value.parse::<u32>() {
                    let vectors = number.saturating_mul(2).saturating_add(2);
                    device = device.with(&format!(",mq=on,vectors={vectors}"), queues.span);
                    if maker.machine.since(7, 1) {
                        device = device.with(",packed=on", queues.span);
                    }
                }
            } else {
                maker.trouble(Trouble::NicQueuesIgnored { nic: key.clone() }, queues.span);
            }
        }
        if is_virtio && maker.machine.since(7, 1) {
            device = device.with(",rx_queue_size=1024,tx_queue_size=256", place);
        }
        if let Some((turn, at)) = turns.get(&key) {
            device = device.with(",bootindex=", *at).with(&turn.to_string(), *at);
        }
        maker.option("netdev", entry.key.span, net);
        maker.option("device", entry.key.span, device);
        maker.keep_rest(entry, &parts);
    }
}
