//! Disks, NICs and host devices that libvirt or QEMU refuses.

use std::collections::{HashMap, HashSet};

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, xml};
use crate::rules::refused_buses::{Chipset, chipset};
use crate::rules::worlds::ANY;
use crate::vm::{NicBackendView, Vm};
use vmconfig::libvirt::DomainElement;
use vmconfig::libvirt::bus_of_target;

const DISKS: &str = "https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms";
const ADDRESSES: &str = "https://libvirt.org/formatdomain.html#device-addresses";
const NICS: &str = "https://libvirt.org/formatdomain.html#network-interfaces";
const HOSTDEVS: &str = "https://libvirt.org/formatdomain.html#host-device-assignment";

pub(crate) const DISK_TARGET: Rule = Rule {
    id: "disk-target-invalid",
    severity: Severity::Error,
    summary: "a disk without a target, with another disk's, or with the name of a partition",
    why: "The target names the disk in libvirt and decides its address: hda, sda, vdb. libvirt \
          refuses two disks of one name, whatever their buses, and names that end with a number.",
    mend: "Give each disk a target of its own, named after its bus and a letter",
    sources: &[DISKS],
    affected: &[],
    check: Check::Vm(disk_target),
    fires: &[
        xml(
            ANY,
            "\
<devices>
  <disk type='file'><source file='/a'/><target dev='sda' bus='sata'/></disk>
  <disk type='file'><source file='/b'/><target dev='sda' bus='scsi'/></disk>
</devices>
",
        )
        .mended(&[(
            "<disk type='file'><source file='/b'/><target dev='sda'",
            "<disk type='file'><source file='/b'/><target dev='sdb'",
        )]),
        xml(ANY, "<devices><disk type='file'><target dev='vda2' bus='virtio'/></disk></devices>\n"),
    ],
    quiet: &[],
};

/// The number of a disk's name: 0 of `vda`, 26 of `sdaa`; of what else it is.
fn number_of(target: &str) -> Result<u32, Option<&'static str>> {
    let prefixes = ["fd", "hd", "vd", "sd", "xvd", "ubd"];
    let letters = prefixes.iter().find_map(|prefix| target.strip_prefix(prefix)).ok_or(None)?;
    let end = letters.find(|letter: char| !letter.is_ascii_lowercase()).unwrap_or(letters.len());
    let (letters, rest) = letters.split_at(end);
    if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Some("partitions are no disks"));
    }
    if letters.is_empty() || !rest.is_empty() {
        return Err(None);
    }
    let number = letters.bytes().try_fold(0_u32, |number, letter| {
        number.checked_mul(26)?.checked_add(u32::from(letter - b'a') + 1)
    });
    let number = number.filter(|number| *number <= i32::MAX as u32);
    number.map(|number| number - 1).ok_or(Some("no disk has such a number"))
}

fn disk_target(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let mut seen = HashSet::new();
    for disk in domain.all("devices/disk") {
        let Some(target) = disk.first("target") else {
            if !vm.name.is_empty() {
                out.at(disk.tag, "The disk has no <target>");
            }
            continue;
        };
        let Some(dev) = target.at("dev") else { continue };
        if !seen.insert(dev.value.as_str()) {
            out.at(dev.span, format!("Another disk is {} already", dev.value));
        }
        if let Err(Some(why)) = number_of(&dev.value)
            && disk.first("address").is_none()
        {
            out.at(dev.span, format!("The target {}: {why}", dev.value));
        }
    }
}

pub(crate) const DISK_ADDRESS: Rule = Rule {
    id: "disk-address-invalid",
    severity: Severity::Error,
    summary: "a disk's address is not of its bus, or is another device's",
    why: "IDE, SATA, SCSI and floppy disks have an address on their controller (type drive), USB \
          disks a port, virtio disks a place on the PCI bus of their own. libvirt refuses others, \
          and two disks in one place.",
    mend: "Leave <address> out, and libvirt finds one",
    sources: &[ADDRESSES],
    affected: &[],
    check: Check::Vm(disk_address),
    fires: &[
        xml(
            ANY,
            "\
<devices><disk type='file'>
  <target dev='sda' bus='sata'/><address type='pci' bus='0' slot='5' function='0'/>
</disk></devices>
",
        ),
        xml(
            ANY,
            "\
<devices>
  <disk type='file'><target dev='sda' bus='sata'/></disk>
  <disk type='file'>
    <target dev='sdb' bus='sata'/><address type='drive' controller='0' bus='0' unit='0'/>
  </disk>
</devices>
",
        ),
    ],
    quiet: &[xml(
        ANY,
        "\
<devices>
  <disk type='file'><target dev='sda' bus='sata'/></disk>
  <disk type='file'>
    <target dev='sdb' bus='sata'/><address type='drive' controller='0' bus='0' unit='1'/>
  </disk>
  <disk type='file'>
    <target dev='vda' bus='virtio'/><address type='pci' bus='0' slot='5' function='0'/>
  </disk>
</devices>
",
    )],
};

/// The types of addresses that disks of a bus may have.
fn address_types(bus: &str) -> &'static [&'static str] {
    match bus {
        "ide" | "sata" | "scsi" | "fdc" => &["drive"],
        "usb" => &["usb"],
        "virtio" => &["pci", "ccw", "virtio-mmio", "virtio-s390"],
        _ => &[],
    }
}

/// A place on a controller.
#[derive(PartialEq, Eq, Hash)]
struct Drive<'a> {
    bus: &'a str,
    /// Controller, bus, target, unit.
    numbers: [u32; 4],
}

impl<'a> Drive<'a> {
    fn said(bus: &'a str, address: &DomainElement) -> Self {
        let of = |name: &str| address.number(name).map_or(0, |at| at.value);
        Self { bus, numbers: [of("controller"), of("bus"), of("target"), of("unit")] }
    }
}

fn disk_address(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let mut taken: HashSet<Drive<'_>> = HashSet::new();
    // Addresses that are written, before those that follow from a name.
    let mut named = Vec::new();
    for hostdev in domain.all("devices/hostdev") {
        let address = hostdev.named("address").find(|one| one.get("type") == Some("drive"));
        if let (Some("scsi"), Some(address)) = (hostdev.get("type"), address)
            && !taken.insert(Drive::said("scsi", address))
        {
            out.at(address.tag, "Another device has this place on the controller");
        }
    }
    for disk in domain.all("devices/disk") {
        let target = disk.first("target");
        let Some(bus) = target.and_then(|target| target.get("bus")) else { continue };
        let Some(address) = disk.first("address") else {
            named.extend(target.and_then(|target| target.at("dev")).map(|dev| (bus, dev)));
            continue;
        };
        let types = address_types(bus);
        let kind = address.get("type").unwrap_or_default();
        if !types.is_empty() && !types.contains(&kind) {
            out.at(
                address.place("type"),
                format!("A disk on the bus {bus} has an address of type {}, not {kind}", types[0]),
            );
        } else if kind == "drive" && !taken.insert(Drive::said(bus, address)) {
            out.at(address.tag, "Another device has this place on the controller");
        }
    }
    for (bus, dev) in named {
        // Where several numbers may be meant, none is guessed.
        let Ok(number) = number_of(&dev.value) else { continue };
        let numbers = match bus {
            "sata" => [number / 6, 0, 0, number % 6],
            "scsi" if number < 7 => [0, 0, 0, number],
            "ide" if dev.value.starts_with("hd") => [number / 4, number % 4 / 2, 0, number % 2],
            _ => continue,
        };
        if !taken.insert(Drive { bus, numbers }) {
            out.at(dev.span, format!("What {} stands for is another device's address", dev.value));
        }
    }
}

pub(crate) const DISK_FORMAT: Rule = Rule {
    id: "disk-format-refused",
    severity: Severity::Error,
    summary: "a disk image in a format that libvirt does not start, or does not share",
    why: "An ISO image is of format raw to QEMU, a folder is a disk of type dir, and formats that \
          nobody keeps up (cow) are refused. A disk that several VMs write is to be raw: other \
          formats keep tables in memory, and corrupt each other.",
    mend: "Use type='raw' or type='qcow2'; raw for what is shareable",
    sources: &[DISKS],
    affected: &[],
    check: Check::Vm(disk_format),
    fires: &[
        xml(
            ANY,
            "<devices><disk type='file' device='cdrom'><driver name='qemu' type='iso'/><target dev='sda'/></disk></devices>\n",
        ),
        xml(
            ANY,
            "<devices><disk type='file'><driver name='qemu' type='qcow2'/><target dev='sda'/><shareable/></disk></devices>\n",
        ).mended(&[("type='qcow2'", "type='raw'")]),
    ],
    quiet: &[],
};

fn disk_format(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    for disk in domain.all("devices/disk") {
        let Some(format) = disk.first("driver").and_then(|driver| driver.at("type")) else {
            continue;
        };
        let is_shared = disk.first("shareable").is_some() && disk.first("readonly").is_none();
        match format.value.as_str() {
            "iso" => {
                out.at(format.span, "The format iso is raw to QEMU").suggest(format.span, "raw");
            }
            "cow" | "dir" if disk.get("type") != Some("dir") => {
                out.at(
                    format.span,
                    format!("QEMU does not start images of format {}", format.value),
                );
            }
            name if is_shared && name != "raw" => {
                out.at(format.span, format!("A disk of format {name} can't be shared"));
            }
            _ => {}
        }
    }
}

pub(crate) const DISK_IMPOSSIBLE: Rule = Rule {
    id: "disk-impossible",
    severity: Severity::Error,
    summary: "a disk with properties that its bus or kind can't have",
    why: "libvirt refuses IDE disks on q35, which has no such controller (a target hda without a bus \
          is one), SCSI passthrough (device lun) of a file or behind virtio-blk, an empty USB \
          drive, vendor and product of anything but SCSI disks and longer than SCSI has room for, \
          and throttling in two ways at once.",
    mend: "Use bus='virtio' (for a guest without virtio drivers, bus='sata') in the place of IDE; \
           bus='scsi' with a virtio-scsi controller for lun, vendor and product; take the other \
           one away",
    sources: &[DISKS],
    affected: &[],
    check: Check::Vm(disk_impossible),
    fires: &[
        xml(
            ANY,
            "<devices><disk type='file' device='lun'><source file='/a'/><target dev='sda' bus='scsi'/></disk></devices>\n",
        ),
        xml(
            ANY,
            "<devices><disk type='block'><source dev='/dev/a'/><target dev='vda' bus='virtio'/><vendor>ACME</vendor></disk></devices>\n",
        ),
        xml(
            ANY,
            "\
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><disk type='file'><source file='/a'/><target dev='hda'/></disk></devices>
",
        ).mended(&[("machine='q35'", "machine='pc'")]),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<devices>
  <disk type='block' device='lun'><source dev='/dev/a'/><target dev='sda' bus='scsi'/></disk>
  <disk type='block'><source dev='/dev/b'/><target dev='sdb' bus='scsi'/><vendor>ACME</vendor></disk>
</devices>
",
        ),
    ],
};

/// Whether disks of a bus tell their vendor or product: the product (model) of
/// IDE and SATA disks can be said since libvirt 11.1.
fn has_inquiry(bus: &str, name: &str) -> bool {
    bus == "scsi" || (name == "product" && matches!(bus, "ide" | "sata"))
}

fn disk_impossible(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let is_q35 = chipset(domain) == Some(Chipset::Q35);
    for disk in domain.all("devices/disk") {
        let target = disk.first("target");
        let told = target.and_then(|target| target.get("bus"));
        let bus = told.or_else(|| bus_of_target(disk.get("device"), target?.get("dev")?));
        if let Some(target) = target.filter(|_| bus == Some("ide") && is_q35) {
            let place = target.place(if told.is_some() { "bus" } else { "dev" });
            out.at(place, "q35 has no IDE controller");
        }
        if disk.get("device") == Some("lun") {
            // A volume or a network's disk may be a device.
            if matches!(disk.get("type"), Some("file" | "dir")) {
                out.at(disk.place("type"), "SCSI passthrough is for block devices, not for files");
            } else if bus == Some("virtio") {
                out.at(disk.place("device"), "virtio-blk passes no SCSI commands: the bus is scsi");
            }
        }
        let is_removable = matches!(disk.get("device"), Some("cdrom" | "floppy"));
        if bus == Some("usb") && is_removable && disk.first("source").is_none() {
            out.at(disk.tag, "A USB drive can't be empty");
        }
        for (name, longest) in [("vendor", 8), ("product", 16)] {
            let Some(element) = disk.first(name) else { continue };
            if let Some(bus) = bus.filter(|bus| !has_inquiry(bus, name)) {
                out.at(element.tag, format!("Only SCSI disks have a {name}, not those on {bus}"));
            } else if let Some(text) = &element.text
                && text.value.len() > longest
            {
                out.at(text.span, format!("A {name} has at most {longest} characters"));
            }
        }
        if let (Some(filters), Some(_)) = (disk.first("throttlefilters"), disk.first("iotune")) {
            out.at(filters.tag, "<iotune> throttles this disk already");
        }
    }
}

pub(crate) const HOST_DEVICE_TWICE: Rule = Rule {
    id: "host-device-twice",
    severity: Severity::Error,
    summary: "a device of the host is given to the VM twice",
    why: "libvirt refuses a <hostdev> whose source is another's already.",
    mend: "Keep one of them",
    sources: &[HOSTDEVS],
    affected: &[],
    check: Check::Vm(host_device_twice),
    fires: &[
        xml(
            ANY,
            "\
<devices>
  <hostdev mode='subsystem' type='pci'><source><address bus='0x3b' slot='0' function='0'/></source></hostdev>
  <hostdev mode='subsystem' type='pci'><source><address domain='0' bus='0x3b' slot='0x0' function='0x0'/></source></hostdev>
</devices>
",
        ).mended(&[
            ("domain='0' bus='0x3b' slot='0x0' function='0x0'", "bus='0x3b' slot='0' function='1'"),
        ]),
        qemu(ANY, "kvm -cpu host -device vfio-pci,host=3b:00.0 -device vfio-pci,host=0000:3b:00.0"),
    ],
    quiet: &[
        qemu(ANY, "kvm -cpu host -device vfio-pci,host=3b:00.0 -device vfio-pci,host=3b:00.1"),
    ],
};

fn host_device_twice(vm: &Vm, _: &Context, out: &mut Drafts) {
    let mut seen = HashSet::new();
    for device in vm.host_devices.iter().filter(|_| vm.live.is_none()) {
        if !seen.insert(device.value) {
            out.at(device.span, format!("{} is given to this VM already", device.value));
        }
    }
    let Some(domain) = vm.qemu_domain() else { return };
    let mut others: HashSet<Vec<&str>> = HashSet::new();
    for hostdev in domain.all("devices/hostdev") {
        let kind = hostdev.get("type").unwrap_or_default();
        let Some(source) = hostdev.first("source") else { continue };
        let Some(address) = source.first("address") else { continue };
        let adapter = source.first("adapter").and_then(|one| one.get("name")).unwrap_or_default();
        let names: &[&str] = match kind {
            "mdev" => &["uuid"],
            "usb" => &["bus", "device"],
            "scsi" if !adapter.is_empty() => &["bus", "target", "unit"],
            _ => continue,
        };
        let mut key = vec![kind, adapter];
        key.extend(names.iter().map(|name| address.get(name).unwrap_or("0")));
        if !others.insert(key) {
            out.at(address.tag, "The VM has this device of the host already");
        }
    }
}

pub(crate) const RING_SIZE: Rule = Rule {
    id: "ring-size",
    severity: Severity::Error,
    summary: "a NIC's ring is no power of two, or too small or too large",
    why: "virtio's rings are powers of two; QEMU's virtio-net takes 256 to 1024 entries for each and \
          ends on others (`Invalid rx_queue_size`), and libvirt refuses what is no power of two.",
    mend: "Use 256, 512 or 1024",
    sources: &[NICS, "https://gitlab.com/qemu-project/qemu/-/blob/master/hw/net/virtio-net.c"],
    affected: &[],
    check: Check::Vm(ring_size),
    fires: &[
        xml(
            ANY,
            "<devices><interface type='bridge'><model type='virtio'/><driver rx_queue_size='1000'/></interface></devices>\n",
        ).mended(&[("rx_queue_size='1000'", "rx_queue_size='1024'")]),
        xml(
            ANY,
            "<devices><interface type='bridge'><model type='virtio'/><driver rx_queue_size='2048'/></interface></devices>\n",
        ),
        qemu(
            ANY,
            "kvm -cpu host -netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n,rx_queue_size=500",
        ).mended(&[("rx_queue_size=500", "rx_queue_size=512")]),
    ],
    quiet: &[],
};

fn ring_size(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in vm.nics.iter().filter(|nic| nic.is_virtio()) {
        for (name, ring) in [("rx_queue_size", &nic.rx_ring), ("tx_queue_size", &nic.tx_ring)] {
            // Nothing and 0 are QEMU's default.
            let Some(size) = ring.as_ref().filter(|size| size.value > 0) else { continue };
            if !size.value.is_power_of_two() {
                out.at(size.span, format!("{name}={} is no power of two", size.value));
            } else if !(256..=1024).contains(&size.value) {
                out.at(size.span, format!("{name}={} is not from 256 to 1024", size.value));
            }
        }
    }
}

pub(crate) const TX_RING_CAPPED: Rule = Rule {
    id: "tx-ring-capped",
    severity: Severity::Warning,
    summary: "a ring for sending above 256, which only vhost-user and vDPA have",
    why: "QEMU lowers tx_queue_size to 256 in silence where the other side is neither vhost-user nor \
          vDPA: other backends can't take more descriptors in one piece.",
    mend: "Leave tx_queue_size out; rx_queue_size holds for every backend",
    sources: &["https://gitlab.com/qemu-project/qemu/-/blob/master/hw/net/virtio-net.c", NICS],
    affected: &[],
    check: Check::Vm(tx_ring_capped),
    fires: &[
        xml(
            ANY,
            "<devices><interface type='bridge'><model type='virtio'/><driver tx_queue_size='1024'/></interface></devices>\n",
        ).mended(&[("type='bridge'", "type='vhostuser'")]),
        qemu(
            ANY,
            "kvm -cpu host -netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n,tx_queue_size=1024",
        ).mended(&[("tap,id=n,vhost=on", "vhost-user,id=n,chardev=c")]),
    ],
    quiet: &[],
};

fn tx_ring_capped(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in &vm.nics {
        if let Some(ring) = &nic.tx_ring
            && matches!(nic.backend, NicBackendView::Tap | NicBackendView::User)
            && matches!(ring.value, 512 | 1024)
        {
            out.at(ring.span, format!("tx_queue_size={} becomes 256 here", ring.value));
        }
    }
}

pub(crate) const NIC_IMPOSSIBLE: Rule = Rule {
    id: "nic-impossible",
    severity: Severity::Error,
    summary: "an interface with parts that its kind can't have",
    why: "libvirt refuses a tap device's path for interfaces without a tap device (hostdev, \
          vhostuser), and forwarded ports where no passt is behind the interface.",
    mend: "Take the part away, or use the kind that has it",
    sources: &[NICS],
    affected: &[],
    check: Check::Vm(nic_impossible),
    fires: &[
        xml(
            ANY,
            "<devices><interface type='vhostuser'><backend tap='/dev/tap0'/></interface></devices>\n",
        ),
        xml(
            ANY,
            "<devices><interface type='user'><portForward proto='tcp'><range start='22'/></portForward></interface></devices>\n",
        ),
    ],
    quiet: &[xml(
        ANY,
        "\
<devices>
  <interface type='ethernet'><backend tap='/dev/net/tun'/></interface>
  <interface type='user'><backend type='passt'/><portForward proto='tcp'><range start='22'/></portForward></interface>
</devices>
",
    )],
};

fn nic_impossible(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    for nic in domain.all("devices/interface") {
        let kind = nic.get("type").unwrap_or_default();
        let backend = nic.first("backend");
        if let Some(tap) = backend.and_then(|backend| backend.at("tap"))
            && matches!(kind, "hostdev" | "vhostuser")
        {
            out.at(tap.span, format!("An interface of type {kind} has no tap device"));
        }
        let is_passt = backend.is_some_and(|backend| backend.get("type") == Some("passt"));
        if let Some(ports) = nic.first("portForward").filter(|_| !is_passt) {
            out.at(ports.tag, "Only passt forwards ports");
        }
    }
}

pub(crate) const PCI_ADDRESS_TWICE: Rule = Rule {
    id: "pci-address-invalid",
    severity: Severity::Error,
    summary: "a place on the guest's PCI bus that is taken, or that no bus has",
    why: "A bus has slots 0 to 0x1f of functions 0 to 7, and a domain's buses are 0 to 0xff; libvirt \
          refuses other numbers, and two devices in one place.",
    mend: "Leave the device's <address> out, and libvirt finds one",
    sources: &[ADDRESSES],
    affected: &[],
    check: Check::Vm(pci_address),
    fires: &[
        xml(
            ANY,
            "<devices><video><address type='pci' bus='0x00' slot='0x20' function='0x0'/></video></devices>\n",
        ),
        xml(
            ANY,
            "\
<devices>
  <rng model='virtio'><address type='pci' bus='0x00' slot='0x05' function='0x0'/></rng>
  <memballoon model='virtio'><address type='pci' bus='0' slot='5' function='0'/></memballoon>
</devices>
",
        )
        .mended(&[("slot='5'", "slot='6'")]),
    ],
    quiet: &[],
};

fn pci_address(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let mut seen: HashMap<[u32; 4], &str> = HashMap::new();
    for device in domain.named("devices").flat_map(|devices| &devices.children) {
        let source = device
            .first("source/address")
            .filter(|_| device.name == "hostdev" && device.get("type") == Some("pci"));
        let own = device.named("address").find(|one| one.get("type") == Some("pci"));
        for address in own.iter().copied().chain(source) {
            let limits = [("domain", 0xffff), ("bus", 0xff), ("slot", 0x1f), ("function", 7)];
            let mut numbers = [0; 4];
            let mut is_good = true;
            for (number, (name, most)) in numbers.iter_mut().zip(limits) {
                let Some(at) = address.at(name) else { continue };
                let found = address.c_number(name).map(|at| at.value);
                *number = found.unwrap_or(0);
                is_good &= found.is_some();
                if found.is_none_or(|found| found > most) {
                    out.at(at.span, format!("{name}={} is not from 0 to {most:#x}", at.value));
                    is_good = false;
                }
            }
            // The first console is another name of the first serial port.
            let is_own =
                device.name != "console" && own.is_some_and(|own| std::ptr::eq(own, address));
            // A slot is said, or libvirt chooses one.
            if !is_own || !is_good || numbers[1] == 0 && numbers[2] == 0 {
                continue;
            }
            if let Some(other) = seen.insert(numbers, &device.name) {
                out.at(address.tag, format!("<{other}> is in this place already"));
            }
        }
    }
}
