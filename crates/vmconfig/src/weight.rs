//! What it means that something was left out.
//!
//! A domain of a dozen devices loses dozens of things on its way to a command
//! line; the one that makes it slower must not drown among addresses.

use topology::bounded;

use crate::{Loss, UnmodelledSetting};

/// What changes when something is left out, the heaviest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossWeight {
    /// How fast the VM is, or whether it has its disks, interfaces and memory. What
    /// nobody knows counts as this.
    Performance,
    /// What else the guest finds: a screen, a sound card, a serial port.
    Devices,
    /// Nothing that a guest would notice: addresses, names, what managers keep for
    /// themselves.
    Nothing,
}

/// Elements and attributes of a domain, and all below them.
const DOMAIN: &[(LossWeight, &[&str])] = &[
    (
        LossWeight::Nothing,
        &[
            "@id",
            "@xmlns",
            "uuid",
            "genid",
            "title",
            "description",
            "metadata",
            "sysinfo",
            "seclabel",
            "idmap",
            "pm",
            "on_poweroff",
            "on_reboot",
            "on_crash",
            "os/bootmenu",
            "os/smbios",
            "os/type/@arch",
            "memory/@dumpCore",
            "cpu/@check",
            "cpu/model/@fallback",
            "devices/emulator",
            "devices/controller/@index",
            "devices/hostdev/@managed",
            "devices/disk/backingStore",
            "devices/disk/source/seclabel",
            "devices/disk/source/@index",
            "devices/disk/@snapshot",
            "devices/serial/target",
        ],
    ),
    (
        LossWeight::Devices,
        &[
            "os",
            "devices/video",
            "devices/graphics",
            "devices/audio",
            "devices/sound",
            "devices/input",
            "devices/console",
            "devices/serial",
            "devices/parallel",
            "devices/channel",
            "devices/rng",
            "devices/watchdog",
            "devices/redirdev",
            "devices/redirfilter",
            "devices/hub",
            "devices/smartcard",
            "devices/tpm",
            "devices/panic",
            "devices/shmem",
            "devices/vsock",
            "devices/memballoon",
            "features/pae",
            "features/smm",
            "features/vmport",
            "features/ps2",
        ],
    ),
];

/// Kinds of controllers that follow from the devices at them.
const CONTROLLERS: &[&str] = &["pci", "usb", "ide", "sata", "fdc", "virtio-serial", "ccid", "isa"];

/// QEMU's options.
const OPTIONS: &[(LossWeight, &[&str])] = &[
    (
        LossWeight::Nothing,
        &[
            "-id",
            "-uuid",
            "-name",
            "-pidfile",
            "-daemonize",
            "-chardev",
            "-mon",
            "-monitor",
            "-qmp",
            "-msg",
            "-sandbox",
            "-no-shutdown",
            "-S",
            "-D",
            "-d",
            "-trace",
            "-runas",
            "-chroot",
            "-no-user-config",
        ],
    ),
    (
        LossWeight::Devices,
        &[
            "-display",
            "-vga",
            "-vnc",
            "-spice",
            "-nographic",
            "-usb",
            "-usbdevice",
            "-k",
            "-serial",
            "-parallel",
            "-audiodev",
            "-audio",
            "-soundhw",
            "-boot",
            "-bios",
            "-cdrom",
            "-smbios",
            "-watchdog",
            "-tpmdev",
        ],
    ),
];

/// Beginnings of devices that move no data worth a word.
const SLOW_DEVICES: &[&str] = &[
    "VGA",
    "virtio-vga",
    "virtio-gpu",
    "qxl",
    "cirrus",
    "bochs-display",
    "usb-",
    "qemu-xhci",
    "nec-usb",
    "piix",
    "ich9-usb",
    "pci-bridge",
    "pcie-",
    "ioh3420",
    "isa-",
    "hda-",
    "intel-hda",
    "ich9-intel-hda",
    "AC97",
    "virtio-rng",
    "virtio-serial",
    "virtserialport",
    "virtconsole",
    "virtio-balloon",
    "virtio-keyboard",
    "virtio-mouse",
    "virtio-tablet",
    "pvpanic",
    "i6300esb",
    "ide-cd",
    "scsi-cd",
    "tpm-",
];

/// Properties that say where a device stands, and no more.
const PLACES: &[&str] = &[
    "bus",
    "addr",
    "id",
    "unit",
    "channel",
    "scsi-id",
    "lun",
    "device_id",
    "multifunction",
    "chassis",
    "bootindex",
];

/// Fields of KubeVirt's objects, by any part of their path.
const FIELDS: &[(LossWeight, &[&str])] = &[
    (
        LossWeight::Nothing,
        &[
            "apiVersion",
            "kind",
            "metadata",
            "status",
            "running",
            "runStrategy",
            "hostname",
            "subdomain",
            "terminationGracePeriodSeconds",
        ],
    ),
    (
        LossWeight::Devices,
        &["inputs", "rng", "watchdog", "sound", "autoattachGraphicsDevice", "firmware", "tpm"],
    ),
];

/// Settings of Proxmox that no command line holds, by their kind, and parts of a setting
/// by their name (`.size`).
const SETTINGS: &[(LossWeight, &[&str])] = &[
    (
        LossWeight::Nothing,
        &[
            "autostart",
            "description",
            "digest",
            "hookscript",
            "keephugepages",
            "keyboard",
            "lock",
            "meta",
            "migrate_downtime",
            "migrate_speed",
            "onboot",
            "parent",
            "protection",
            "reboot",
            "running-nets-host-mtu",
            "runningcpu",
            "runningmachine",
            "section",
            "smbios",
            "snapstate",
            "snaptime",
            "startup",
            "tags",
            "template",
            "unused",
            "vmgenid",
            "vmstate",
            "vmstatestorage",
            ".backup",
            ".replicate",
            ".shared",
            ".size",
        ],
    ),
    (
        LossWeight::Devices,
        &[
            "agent",
            "audio",
            "bios",
            "boot",
            "bootdisk",
            "cdrom",
            "cicustom",
            "cipassword",
            "citype",
            "ciuser",
            "ciupgrade",
            "efidisk",
            "ipconfig",
            "nameserver",
            "parallel",
            "rng",
            "searchdomain",
            "serial",
            "spice_enhancements",
            "sshkeys",
            "tablet",
            "tpmstate",
            "usb",
            "vga",
            "watchdog",
            ".model",
            ".product",
            ".rerror",
            ".rombar",
            ".ssd",
            ".vendor",
            ".werror",
            ".wwn",
        ],
    ),
    (
        LossWeight::Performance,
        &[
            "amd-sev",
            "arch",
            "cpulimit",
            "cpuunits",
            "freeze",
            "hotplug",
            "ide",
            "intel-tdx",
            "ivshmem",
            "net",
            "numa",
            "sata",
            "scsi",
            "shares",
            "virtio",
            "virtiofs",
        ],
    ),
];

/// Whether Proxmox has settings of this kind: `onboot`, `scsi` of `scsi0`.
pub(crate) fn is_setting(kind: &str) -> bool {
    SETTINGS.iter().any(|row| row.1.contains(&kind))
}

impl UnmodelledSetting {
    /// What changes without it.
    #[must_use]
    pub fn weight(&self) -> LossWeight {
        if let Some(path) = self.path.strip_prefix("/domain/") {
            return self.weight_of_element(path);
        }
        if self.path.starts_with('-') {
            return self.weight_of_option();
        }
        if self.path == "before QEMU" {
            // Programs that choose pCPUs, nodes and priorities for what they start.
            let tuners = ["taskset", "numactl", "chrt", "nice", "cgexec", "systemd-run"];
            let tunes = |word: &str| tuners.contains(&word.rsplit('/').next().unwrap_or(word));
            let any = self.text.split_whitespace().any(tunes);
            return if any { LossWeight::Performance } else { LossWeight::Nothing };
        }
        if let Some(weight) = self.weight_of_setting() {
            return weight;
        }
        let is_in = |names: &[&str]| self.path.split('.').any(|part| names.contains(&part));
        FIELDS.iter().find(|row| is_in(row.1)).map_or(LossWeight::Performance, |row| row.0)
    }

    /// A setting of Proxmox: `onboot`, `scsi0.size`.
    fn weight_of_setting(&self) -> Option<LossWeight> {
        let (key, part) = self.path.split_once('.').unwrap_or((&self.path, ""));
        let kind = key.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let is_disc = ["ide", "sata", "scsi"].contains(&kind)
            && part.is_empty()
            && self.text.split(',').any(|part| part.trim() == "media=cdrom");
        if is_disc {
            return Some(LossWeight::Devices);
        }
        let is_in = |row: &&(LossWeight, &[&str])| {
            row.1.iter().any(|name| match name.strip_prefix('.') {
                Some(name) => part == name && kind != key,
                None => *name == kind && !kind.contains('.'),
            })
        };
        SETTINGS.iter().find(is_in).map(|row| row.0)
    }

    fn weight_of_element(&self, path: &str) -> LossWeight {
        let last = path.rsplit('/').next().unwrap_or(path);
        if ["address", "alias"].contains(&last) || path.contains("/address/") {
            return LossWeight::Nothing;
        }
        if path == "devices/disk" {
            let kind = self.attribute("device");
            if kind.is_some_and(|kind| ["cdrom", "floppy"].contains(&kind.as_str())) {
                return LossWeight::Devices;
            }
        }
        if path == "devices/controller" {
            let kind = self.attribute("type");
            let follows = kind.is_some_and(|kind| CONTROLLERS.contains(&kind.as_str()));
            return if follows { LossWeight::Nothing } else { LossWeight::Performance };
        }
        let is_below = |name: &str| {
            path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let row = DOMAIN.iter().find(|row| row.1.iter().any(|name| is_below(name)));
        row.map_or(LossWeight::Performance, |row| row.0)
    }

    /// An attribute of the element, however it is written.
    fn attribute(&self, name: &str) -> Option<String> {
        let document = bounded::xml(&self.text).ok()?;
        document.root_element().attribute(name).map(str::to_owned)
    }

    fn weight_of_option(&self) -> LossWeight {
        let option = self.path.split_whitespace().next().unwrap_or_default();
        if let Some((weight, _)) = OPTIONS.iter().find(|row| row.1.contains(&option)) {
            return *weight;
        }
        let mut keys = self.text.split(',').map(|part| part.split('=').next().unwrap_or(part));
        if option == "-device" && keys.clone().all(|key| PLACES.contains(&key)) {
            return LossWeight::Nothing;
        }
        if option == "-drive" && self.text.split(',').any(|part| part == "media=cdrom") {
            return LossWeight::Devices;
        }
        let driver = keys.next().unwrap_or_default();
        let is_slow = SLOW_DEVICES.iter().any(|start| driver.starts_with(start));
        if option == "-device" && is_slow { LossWeight::Devices } else { LossWeight::Performance }
    }
}

impl Loss {
    /// What changes without it.
    #[must_use]
    pub fn weight(&self) -> LossWeight {
        let of_field = |field: &String| {
            let (head, last) = (field.split('.').next(), field.rsplit('.').next());
            match (head, last) {
                (Some("name"), _) => LossWeight::Nothing,
                (Some("boot" | "kernel_cmdline" | "machine"), _)
                | (Some("disks"), Some("serial" | "boot_order" | "discard"))
                | (Some("nics"), Some("mac")) => LossWeight::Devices,
                _ => LossWeight::Performance,
            }
        };
        self.fields.iter().map(of_field).min().unwrap_or(LossWeight::Performance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(path: &str, text: &str) -> LossWeight {
        UnmodelledSetting::of_text(1, path, text).weight()
    }

    #[test]
    fn elements_have_weights() {
        let check =
            |path: &str, expected: LossWeight| assert_eq!(kept(path, ""), expected, "{path}");
        check("/domain/uuid", LossWeight::Nothing);
        check("/domain/devices/disk/address", LossWeight::Nothing);
        check("/domain/devices/interface/address/@slot", LossWeight::Nothing);
        check("/domain/devices/video", LossWeight::Devices);
        check("/domain/os/boot", LossWeight::Devices);
        check("/domain/os/type/@arch", LossWeight::Nothing);
        check("/domain/devices/disk", LossWeight::Performance);
        check("/domain/devices/disk/iotune", LossWeight::Performance);
        check("/domain/cputune/shares", LossWeight::Performance);
        check("/domain/devices/videos", LossWeight::Performance);
        let controller = |text: &str| kept("/domain/devices/controller", text);
        assert_eq!(controller("<controller type='pci' index='1'/>"), LossWeight::Nothing);
        assert_eq!(controller("<controller type=\"usb\"/>"), LossWeight::Nothing);
        assert_eq!(controller("<controller\n  index = '0' type = 'usb'/>"), LossWeight::Nothing);
        assert_eq!(
            controller("<controller type='scsi'><x type='usb'/></controller>"),
            LossWeight::Performance
        );
        let disk = |text: &str| kept("/domain/devices/disk", text);
        assert_eq!(disk("<disk device = 'cdrom'/>"), LossWeight::Devices);
        assert_eq!(disk("<disk serial=\"'cdrom'\"/>"), LossWeight::Performance);
        assert_eq!(disk("<disk type='file' device='cdrom'><source/></disk>"), LossWeight::Devices);
        assert_eq!(disk("<disk device='lun'><a x='cdrom'/></disk>"), LossWeight::Performance);
        assert_eq!(
            controller("<controller type='scsi' model='lsilogic'/>"),
            LossWeight::Performance
        );
    }

    #[test]
    fn options_have_weights() {
        let check = |path: &str, text: &str, expected: LossWeight| {
            assert_eq!(kept(path, text), expected, "{path} {text}");
        };
        check("-pidfile", "/run/vm.pid", LossWeight::Nothing);
        check("-device", "bus=pci.0,addr=0x12", LossWeight::Nothing);
        check("-device", "bus=pci.0,rx_queue_size=1024", LossWeight::Performance);
        check("-device", "usb-tablet,id=t", LossWeight::Devices);
        check("-device", "vfio-pci,host=3b:00.0", LossWeight::Performance);
        check("-drive", "throttling.bps-total=1", LossWeight::Performance);
        check("-drive", "if=none,id=cd,media=cdrom", LossWeight::Devices);
        check("-vga", "std", LossWeight::Devices);
        check("-frobnicate", "", LossWeight::Performance);
        check("before QEMU", "LC_ALL=C", LossWeight::Nothing);
        check("before QEMU", "/usr/bin/numactl -N 0", LossWeight::Performance);
        check("not resolved", "$@", LossWeight::Performance);
    }

    #[test]
    fn objects_have_weights() {
        let check =
            |path: &str, expected: LossWeight| assert_eq!(kept(path, ""), expected, "{path}");
        check("metadata.labels", LossWeight::Nothing);
        check("status.phase", LossWeight::Nothing);
        check("spec.domain.devices.inputs", LossWeight::Devices);
        check("spec.domain.ioThreadsPolicy", LossWeight::Performance);
    }

    #[test]
    fn settings_have_weights() {
        let check = |path: &str, text: &str, expected: LossWeight| {
            assert_eq!(kept(path, text), expected, "{path} {text}");
        };
        check("onboot", "1", LossWeight::Nothing);
        check("scsi0.size", "32G", LossWeight::Nothing);
        check("section", "[before-upgrade]", LossWeight::Nothing);
        check("scsi0.mbps_rd", "100", LossWeight::Performance);
        check("net0.rate", "10", LossWeight::Performance);
        check("cpulimit", "2", LossWeight::Performance);
        check("ide2", "local:iso/a.iso,media=cdrom", LossWeight::Devices);
        check("serial0", "socket", LossWeight::Devices);
        check("qm", "hugepages needs numa: 1", LossWeight::Performance);
    }

    #[test]
    fn losses_weigh_as_the_heaviest_of_their_fields() {
        let loss = |fields: &[&str]| {
            let mut loss = Loss::new(fields[0], "", "");
            loss.fields = fields.iter().map(|field| (*field).to_owned()).collect();
            loss.weight()
        };
        assert_eq!(loss(&["name"]), LossWeight::Nothing);
        assert_eq!(loss(&["disks.0.serial"]), LossWeight::Devices);
        assert_eq!(loss(&["name", "pins.vcpus.0"]), LossWeight::Performance);
    }
}
