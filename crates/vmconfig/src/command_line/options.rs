//! QEMU's options: which of them take a value.
//!
//! Source: QEMU `qemu-options.hx` of versions 5.2 to 10.0; a test asks each QEMU
//! that is installed about every one of them.

/// Options without a value, by name without dashes.
const WITHOUT_VALUE: &[&str] = &[
    "S",
    "alt-grab",
    "async-teardown",
    "audio-help",
    "ctrl-grab",
    "curses",
    "daemonize",
    "enable-fips",
    "enable-kvm",
    "enable-sync-profile",
    "full-screen",
    "h",
    "help",
    "mem-prealloc",
    "no-acpi",
    "no-fd-bootchk",
    "no-hpet",
    "no-kvm",
    "no-kvm-irqchip",
    "no-kvm-pit",
    "no-kvm-pit-reinjection",
    "no-quit",
    "no-reboot",
    "no-shutdown",
    "no-user-config",
    "nodefaults",
    "nographic",
    "nouserconfig",
    "old-param",
    "only-migratable",
    "portrait",
    "preconfig",
    "s",
    "sdl",
    "semihosting",
    "show-cursor",
    "singlestep",
    "snapshot",
    "tdf",
    "usb",
    "version",
    "win2k-hack",
    "xen-attach",
    "xen-domid-restrict",
];

/// Options with a value, by name without dashes.
const WITH_VALUE: &[&str] = &[
    "D",
    "L",
    "M",
    "accel",
    "acpitable",
    "action",
    "add-fd",
    "append",
    "audio",
    "audiodev",
    "balloon",
    "bios",
    "blockdev",
    "boot",
    "bt",
    "cdrom",
    "chardev",
    "chroot",
    "compat",
    "cpu",
    "d",
    "debugcon",
    "device",
    "dfilter",
    "display",
    "drive",
    "dtb",
    "dump-vmstate",
    "echr",
    "fda",
    "fdb",
    "fsdev",
    "fw_cfg",
    "g",
    "gdb",
    "global",
    "hda",
    "hdachs",
    "hdb",
    "hdc",
    "hdd",
    "icount",
    "incoming",
    "initrd",
    "iscsi",
    "k",
    "kernel",
    "loadvm",
    "m",
    "machine",
    "mem-path",
    "mon",
    "monitor",
    "msg",
    "mtdblock",
    "name",
    "net",
    "netdev",
    "nic",
    "numa",
    "object",
    "option-rom",
    "overcommit",
    "parallel",
    "pflash",
    "pidfile",
    "plugin",
    "prom-env",
    "qmp",
    "qmp-pretty",
    "qtest",
    "qtest-log",
    "readconfig",
    "realtime",
    "rotate",
    "rtc",
    "run-with",
    "runas",
    "sandbox",
    "sd",
    "seed",
    "semihosting-config",
    "serial",
    "set",
    "shim",
    "smbios",
    "smp",
    "soundhw",
    "spice",
    "tb-size",
    "tpmdev",
    "trace",
    "usbdevice",
    "uuid",
    "vga",
    "virtfs",
    "virtioconsole",
    "vnc",
    "watchdog",
    "watchdog-action",
    "writeconfig",
    "xen-domid",
];

/// Whether QEMU's option `name`, without dashes, takes a value; none if no QEMU
/// has such an option.
#[must_use]
pub fn takes_value(name: &str) -> Option<bool> {
    let is_in = |table: &[&str]| table.binary_search(&name).is_ok();
    if is_in(WITH_VALUE) { Some(true) } else { is_in(WITHOUT_VALUE).then_some(false) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tables_are_in_order() {
        assert!(WITHOUT_VALUE.is_sorted() && WITH_VALUE.is_sorted());
        assert!(WITHOUT_VALUE.iter().all(|name| !WITH_VALUE.contains(name)));
    }

    /// QEMU looks for the values of all options before it does anything, so one
    /// that ends with `-version OPTION` misses the value and does nothing else.
    #[test]
    fn every_installed_qemu_agrees() {
        let mut asked = false;
        for program in ["qemu-system-x86_64", "qemu-system-aarch64"] {
            let Ok(help) = Command::new(program).arg("-help").output() else { continue };
            asked = true;
            let help = String::from_utf8_lossy(&help.stdout).into_owned();
            let mut shown = help
                .lines()
                .filter(|line| line.starts_with('-'))
                .flat_map(|line| line.split_whitespace().next())
                .flat_map(|names| names.split('/'))
                .map(|name| name.trim_start_matches('-'));
            assert_eq!(shown.find(|name| takes_value(name).is_none()), None, "{program}");
            for name in WITHOUT_VALUE.iter().chain(WITH_VALUE) {
                let output = Command::new(program)
                    .args(["-version", &format!("-{name}")])
                    .output()
                    .expect("it has just answered");
                let said = String::from_utf8_lossy(&output.stderr);
                if !said.contains("invalid option") {
                    let misses = said.contains("requires an argument");
                    assert_eq!(takes_value(name), Some(misses), "{program} -{name}: {said}");
                }
            }
        }
        if !asked {
            suite::skip("no QEMU is installed");
        }
    }
}
