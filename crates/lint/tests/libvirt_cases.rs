//! libvirt's own test cases: what it refuses is an error here too, where vmlab
//! models it, at the place that is meant; what it accepts draws no error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use lint::{Context, Finding, Severity, check_text};
use suite::{Tier, needs};
use topology::{Host, Node, Pcpu};

/// The domains that libvirt refuses for what vmlab models, each with the rule
/// and the line of the error that is meant.
const REFUSED: &[(&str, &str, usize)] = &[
    ("440fx-wrong-root", "controller-impossible", 18),
    ("boot-dev+order", "boot-order-twice", 9),
    ("controller-virtio-serial-iothread", "controller-impossible", 20),
    ("cpu-cache-emulate-l2", "cpu-cache-impossible", 12),
    ("cpu-cache-passthrough-l3", "cpu-cache-impossible", 12),
    ("cpu-cache-passthrough3", "cpu-cache-impossible", 12),
    ("cpu-numa-distance-nonexistent-sibling", "cell-missing", 16),
    ("cpu-numa3", "cells-not-contiguous", 15),
    ("cpu-phys-bits-passthrough2", "cpu-cache-impossible", 12),
    ("cpu-qemu-host-passthrough", "host-cpu-emulated", 11),
    ("cpuset-invalid", "value-unreadable", 5),
    ("cputune-iothreadsched-toomuch", "scheduler-set-invalid", 17),
    ("cputune-vcpusched-overlap", "scheduler-set-invalid", 16),
    ("disk-address-conflict", "disk-address-invalid", 19),
    ("disk-attaching-partition-nosupport", "disk-target-invalid", 20),
    ("disk-cdrom-usb-empty", "disk-impossible", 17),
    ("disk-device-lun-type-invalid", "disk-impossible", 17),
    ("disk-fdc-incompatible-address", "disk-address-invalid", 19),
    ("disk-fmt-cow", "disk-format-refused", 15),
    ("disk-fmt-dir", "disk-format-refused", 15),
    ("disk-fmt-iso", "disk-format-refused", 15),
    ("disk-hostdev-scsi-address-conflict", "disk-address-invalid", 19),
    ("disk-ide-incompatible-address", "disk-address-invalid", 20),
    ("disk-missing-target-invalid", "disk-target-invalid", 17),
    ("disk-same-targets", "disk-target-invalid", 27),
    ("disk-sata-incompatible-address", "disk-address-invalid", 20),
    ("disk-scsi-disk-vpd-build-error", "disk-impossible", 20),
    ("disk-scsi-incompatible-address", "disk-address-invalid", 20),
    ("disk-scsi-product-length", "disk-impossible", 21),
    ("disk-shared-qcow", "disk-format-refused", 18),
    ("disk-target-overflow", "disk-target-invalid", 20),
    ("disk-usb-pci", "disk-address-invalid", 27),
    ("hostdev-mdev-duplicate", "host-device-twice", 35),
    ("hostdev-pci-duplicate", "host-device-twice", 35),
    ("hostdev-scsi-duplicate", "host-device-twice", 35),
    ("hostdev-usb-duplicate", "host-device-twice", 35),
    ("hostdevs-drive-address-conflict", "disk-address-invalid", 29),
    ("hugepages-default-1G-nodeset-2M", "huge-pages-twice", 9),
    ("hugepages-default-5M", "huge-page-size-impossible", 8),
    ("hugepages-memaccess-invalid", "value-unreadable", 24),
    ("hugepages-nodeset-nonexist", "cell-missing", 8),
    ("hugepages-numa-nodeset-nonexist", "cell-missing", 8),
    ("intel-iommu-wrong-machine", "iommu-impossible", 22),
    ("memory-align-fail", "memory-missing", 5),
    ("memory-hotplug-invalid-targetnode", "cell-missing", 38),
    ("memory-hotplug-nonuma", "memory-modules-invalid", 4),
    ("memory-hotplug-virtio-mem-overlap-address", "memory-modules-invalid", 45),
    ("net-hostdev-fail", "nic-impossible", 32),
    ("net-user-slirp-portforward", "nic-impossible", 14),
    ("net-vhostuser-fail", "nic-impossible", 34),
    ("net-vhostuser-passt-no-shmem", "vhost-user-not-shared", 28),
    ("net-virtio-rxqueuesize-invalid-size", "ring-size", 25),
    ("no-memory", "memory-missing", 1),
    ("non-x86_64-timer-error", "timer-foreign", 10),
    ("numad-auto-vcpu-static-numatune-no-nodeset", "numatune-invalid", 8),
    ("numatune-memnode-invalid-mode", "numatune-invalid", 10),
    ("numatune-memnode-nocpu", "memnode-without-cell", 9),
    ("numatune-memnode-restrictive-mode-err-mixed", "numatune-invalid", 10),
    ("numatune-memnode-unavailable-restrictive", "node-missing", 8),
    ("numatune-memnode-unavailable-strict", "node-missing", 8),
    ("numatune-memnodes-problematic", "numatune-invalid", 9),
    ("numatune-memory-invalid-nodeset", "value-unreadable", 8),
    ("numatune-static-nodeset-exceed-hostnode", "node-missing", 8),
    ("pci-bridge-duplicate-index", "controller-impossible", 14),
    ("pci-bridge-negative-index-invalid", "value-unreadable", 13),
    ("pci-bus-invalid", "pci-address-invalid", 29),
    ("pci-domain-invalid", "pci-address-invalid", 29),
    ("pci-expander-bus-bad-bus", "controller-impossible", 20),
    ("pci-expander-bus-bad-machine", "controller-impossible", 23),
    ("pci-expander-bus-bad-node", "cell-missing", 20),
    ("pci-function-invalid", "pci-address-invalid", 29),
    ("pci-root-address", "controller-impossible", 13),
    ("pci-root-nonzero-index", "controller-impossible", 12),
    ("pci-slot-invalid", "pci-address-invalid", 29),
    ("pcie-expander-bus-bad-bus", "controller-impossible", 32),
    ("pcie-expander-bus-bad-machine", "controller-impossible", 24),
    ("q35-dmi-bad-address1", "controller-impossible", 25),
    ("q35-dmi-bad-address2", "controller-impossible", 20),
    ("q35-wrong-root", "controller-impossible", 17),
    ("throttlefilter-invalid", "disk-impossible", 57),
    ("vhost_queues-invalid", "value-unreadable", 28),
    ("virtio-iommu-dma-translation", "iommu-impossible", 17),
    ("virtio-iommu-invalid-address", "iommu-impossible", 17),
    ("virtio-iommu-invalid-address-type", "iommu-impossible", 17),
    ("virtio-iommu-no-acpi", "iommu-impossible", 13),
    ("virtio-iommu-wrong-machine", "iommu-impossible", 16),
    ("virtio-lun", "disk-impossible", 19),
];

/// Those that it refuses for something else, by what that is.
const NOT_MODELLED: &[(&str, &[&str])] = &[
    (
        "What is on the host, or can only be known by placing all devices",
        &[
            "440fx-ide-address-conflict",
            "hvf-x86_64-q35-headless",
            "missing-machine",
            "nonexistent-file",
            "pcie-root-port-too-many",
        ],
    ),
    (
        "A processor or machine that is not x86-64",
        &[
            "aarch64-features-sve-disabled",
            "aarch64-features-wrong",
            "aarch64-gic-invalid",
            "aarch64-gic-not-arm",
            "aarch64-gic-not-virt",
            "aarch64-noacpi-acpi",
            "aarch64-tpm-wrong-model",
            "cpu-hotplug-granularity",
            "cpu-model-deprecated-features-off.s390x-8.2",
            "disk-floppy-pseries",
            "firmware-manual-noefi-acpi-aarch64",
            "mach-virt-serial-invalid-machine",
            "machine-loadparm-s390-char-invalid",
            "machine-loadparm-s390-len-invalid",
            "ppc64-tpm-double",
            "ppc64-tpmproxy-double",
            "pseries-cpu-compat-power10",
            "pseries-cpu-compat-power9",
            "pseries-default-phb-numa-node",
            "pseries-features-invalid-machine",
            "pseries-no-parallel",
            "pseries-panic-address",
            "pseries-phb-invalid-target-index-1",
            "pseries-phb-invalid-target-index-2",
            "pseries-phb-invalid-target-index-3",
            "pseries-serial-invalid-machine",
            "pseries-spaprvio-invalid",
            "pseries-vio-address-clash",
            "pvpanic-pci-invalid-address-aarch64",
            "riscv64-panic-no-model",
            "s390-no-parallel",
            "s390-panic-address",
            "s390x-ccw-acpi.s390x-latest",
        ],
    ),
    (
        "Firmware, SMBIOS, system management memory",
        &[
            "boot-menu-enable-with-timeout-invalid",
            "firmware-auto-bios-not-stateless",
            "firmware-auto-bios-nvram",
            "firmware-auto-efi-enrolled-keys-no-secboot",
            "firmware-auto-efi-loader-path-nonstandard",
            "firmware-auto-efi-nvram-template-nonstandard",
            "firmware-auto-efi-rw",
            "firmware-auto-efi-rw-pflash",
            "firmware-manual-bios-not-stateless",
            "firmware-manual-efi-features.x86_64-latest",
            "firmware-manual-efi-loader-no-path",
            "firmware-manual-efi-noacpi-q35",
            "firmware-manual-efi-nvram-stateless",
            "firmware-manual-efi-nvram-template-stateless",
            "smbios-date",
            "smbios-uuid-match",
            "tseg-i440fx",
            "tseg-invalid-size",
        ],
    ),
    ("No XML: an error of reading, not a finding", &["broken-xml-invalid"]),
    (
        "Character devices, TPM, random numbers, shared memory devices",
        &[
            "chardev-reconnect-generated-path",
            "chardev-reconnect-invalid-timeout",
            "serial-tcp-chardev-telnets",
            "serial-unix-missing-source",
            "shmem-invalid-address",
            "shmem-invalid-size",
            "shmem-msi-only",
            "shmem-small-size",
            "tpm-emulator",
            "tpm-emulator-tpm2",
            "tpm-no-backend-invalid",
            "virtio-rng-egd-crash",
        ],
    ),
    (
        "Encryption, authentication and servers of network disks",
        &[
            "disk-encryption-wrong",
            "disk-network-iscsi-auth-secrettype-invalid",
            "disk-network-iscsi-auth-wrong-secrettype",
            "disk-network-iscsi-zero-hosts-invalid",
            "disk-network-rbd-encryption-layering.x86_64-7.2",
            "disk-network-rbd-encryption-luks-any.x86_64-7.2",
            "disk-network-sheepdog",
            "disk-network-source-auth-both",
            "disk-network-tlsx509-nbd-hostname.x86_64-6.2",
            "luks-disk-invalid",
            "luks-disks-source-both",
        ],
    ),
    (
        "Graphics, video, input, PS/2",
        &[
            "graphics-sdl-egl-headless",
            "graphics-spice-invalid-egl-headless",
            "machine-i8042-off-explicit-ps2-inputs",
            "machine-i8042-off-vmport-on",
            "machine-i8042-off.x86_64-6.2",
            "machine-i8042-on.x86_64-6.2",
            "video-invalid-multiple-devices",
            "video-multiple-primaries",
            "video-ramfb-display-device-pci-address",
            "virtio-transitional-not-supported",
        ],
    ),
    (
        "Mediated, zPCI, SCSI and file system devices beyond their being there",
        &[
            "hostdev-mdev-display-missing-graphics",
            "hostdev-mdev-display-ramfb-multiple",
            "hostdev-mdev-invalid-target-address",
            "hostdev-mdev-src-address-invalid",
            "hostdev-scsi-vhost-rawio-invalid",
            "hostdev-scsi-vhost-scsi-pci-boot-fail",
            "hostdev-scsi-vhost-sgio-invalid",
            "hostdev-subsys-mdev-vfio-ap-boot-fail",
            "hostdev-subsys-mdev-vfio-ccw-duplicate-address",
            "hostdev-subsys-mdev-vfio-ccw-invalid-address",
            "hostdev-vfio-zpci-duplicate",
            "hostdev-vfio-zpci-invalid-uid-valid-fid",
            "hostdev-vfio-zpci-set-zero",
            "hostdev-vfio-zpci-uid-set-zero",
            "hostdev-vfio-zpci-wrong-arch",
            "vhost-user-fs-ccw-bootindex",
        ],
    ),
    (
        "Security labels",
        &["seclabel-device-duplicates", "seclabel-device-relabel-invalid", "seclabel-multiple"],
    ),
    (
        "USB",
        &[
            "usb-bus-missing",
            "usb-controller-default-isapc",
            "usb-controller-default-unavailable-g3beige",
            "usb-controller-default-unavailable-i440fx",
            "usb-controller-default-unavailable-mac99",
            "usb-controller-default-unavailable-mac99ppc",
            "usb-controller-default-unavailable-powernv9",
            "usb-controller-default-unavailable-pseries",
            "usb-controller-default-unavailable-q35",
            "usb-controller-default-unavailable-versatilepb-armv7l",
            "usb-controller-ich9-no-companion",
            "usb-controller-nec-xhci-limit",
            "usb-controller-nec-xhci-unavailable",
            "usb-controller-qemu-xhci-limit",
            "usb-hub-conflict",
            "usb-hub-nonexistent",
            "usb-none-hub",
            "usb-none-other",
            "usb-none-usbtablet",
            "usb-ports-out-of-range",
            "usb-too-long-port-path-invalid",
        ],
    ),
];

/// A host of four nodes, as libvirt's tests have one.
fn host() -> Host {
    let pcpus = (0..8).map(|id| Pcpu {
        id,
        online: true,
        socket: Some(0),
        core: Some(id),
        thread: Some(0),
        node: Some(id / 2),
        ..Pcpu::default()
    });
    let nodes = (0..4).map(|id| Node {
        id,
        pcpus: [2 * id, 2 * id + 1].into_iter().collect(),
        memory_bytes: Some(1 << 40),
        free_bytes: Some(1 << 40),
        ..Node::default()
    });
    Host {
        arch: Some("x86_64".to_owned()),
        pcpus: pcpus.collect(),
        nodes: nodes.collect(),
        ..Host::default()
    }
}

/// Findings of one case; what is no domain at all has none.
fn findings(cases: &Path, name: &str, context: &Context) -> Option<Vec<Finding>> {
    let text = fs::read_to_string(cases.join(format!("{name}.xml"))).ok()?;
    check_text(name, &text, context).ok().map(|checked| checked.findings)
}

fn named(cases: &Path, end: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.filter_map(|name| Some(name.to_str()?.strip_suffix(end)?.to_owned()));
    // `disk-a.x86_64-latest`: of a name, and an architecture with a version.
    names
        .map(|name| {
            name.rsplit_once('.')
                .filter(|_| end == ".err")
                .map_or(name.clone(), |(name, _)| name.to_owned())
        })
        .collect()
}

#[test]
fn what_libvirt_refuses_is_an_error_with_its_place() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cases = match suite::libvirts_cases(folder.path()) {
        Ok(cases) => cases,
        Err(why) => return suite::skip(format!("libvirt's source: {why}")),
    };
    let known: BTreeMap<&str, (&str, usize)> =
        REFUSED.iter().map(|(name, rule, line)| (*name, (*rule, *line))).collect();
    let other: BTreeSet<&str> =
        NOT_MODELLED.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let context = Context::default().on(host());
    let (mut wrong, mut found_errors) = (Vec::new(), 0);
    for name in named(&cases, ".err") {
        let found = findings(&cases, &name, &context).unwrap_or_default();
        let errors: Vec<&Finding> =
            found.iter().filter(|one| one.severity == Severity::Error).collect();
        found_errors += usize::from(!errors.is_empty());
        match known.get(name.as_str()) {
            Some((rule, line))
                if errors.iter().any(|one| one.rule == *rule && one.place.line == *line) => {}
            Some((rule, line)) => {
                wrong.push(format!("{name}: no {rule} in line {line}: {errors:?}"));
            }
            None if other.contains(name.as_str()) => {}
            None => wrong.push(format!("{name}: in neither table; {errors:?}")),
        }
    }
    println!(
        "{} of {} modelled, {found_errors} with an error",
        known.len(),
        known.len() + other.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(known.len() >= 60);
}

/// What libvirt writes down and no QEMU starts: a cell of 768 MiB in pages of 1 GiB. QEMU
/// 7.2 and 10.0 say "memory size 0x30000000 must be equal to or larger than page size".
const NEVER_STARTS: [(&str, &str); 1] = [("hugepages-numa-nodeset-part", "memory-not-whole-pages")];

#[test]
fn what_libvirt_accepts_draws_no_error() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cases = match suite::libvirts_cases(folder.path()) {
        Ok(cases) => cases,
        Err(why) => return suite::skip(format!("libvirt's source: {why}")),
    };
    let mut wrong = Vec::new();
    let accepted = named(&cases, ".x86_64-latest.args");
    for name in &accepted {
        let Some(found) = findings(&cases, name, &Context::default()) else {
            wrong.push(format!("{name}: not read as a domain"));
            continue;
        };
        for one in found {
            if one.severity == Severity::Error && !NEVER_STARTS.contains(&(name, &*one.rule)) {
                wrong.push(format!(
                    "{name}:{}: {}: {} | {}",
                    one.place.line, one.rule, one.message, one.place.text
                ));
            }
        }
    }
    println!("{} domains", accepted.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
