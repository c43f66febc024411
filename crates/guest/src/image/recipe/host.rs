//! The recipes of emulated hosts: a whole KVM host, not a guest.
//!
//! What changes from one start of a host to the next is no part of the image:
//! the static vmlab, keys, what is declared of the topology. It comes in as a
//! second archive behind the initial RAM disk's.

use vmconfig::Arch;

use super::{
    HOST_FULL, LARGE_PACKAGES, NODE, NOT_FOR_GUESTS, NOT_OF_LARGE, NOT_WITHOUT_COMPILER, Recipe,
    debian_12, debian_arch, file, kernel_source, words,
};

/// What a host needs beside a guest's tools: QEMU, libvirt and an ssh server. Its
/// `sh` is Debian's: busybox's shell prefers its own applets to programs of the same
/// name, and its `ip` can't create a bridge.
const PACKAGES: &str = "qemu-system-@QEMU@ qemu-utils openssh-server openssh-sftp-server iproute2 \
    numactl bash dash coreutils util-linux e2fsprogs procps libvirt-daemon \
    libvirt-daemon-driver-qemu libvirt-clients stress-ng rt-tests sysbench linux-perf iperf3 \
    sockperf fio dbench nginx-light apache2-utils redis-server redis-tools busybox-static";

/// What makes containers on a node, and their networks.
const PACKAGES_OF_NODES: &str = "containerd runc containernetworking-plugins";

/// Interfaces of pods, and one that has the node's address.
const MODULES_OF_NODES: &str = "veth dummy";

/// Pods reach the API server at an address that is not the loopback's, through the
/// connection of whoever started the node.
const SSHD_OF_NODES: &str = "GatewayPorts clientspecified\n";

/// Large, and of no use to QEMU or libvirt here. `modprobe` goes because that of
/// kmod reads an index which only its own depmod writes; busybox' is linked.
const NOT_FOR_HOSTS: &str = "usr/bin/qemu-system-x86_64-microvm usr/bin/qemu-nbd \
    usr/share/qemu/edk2* usr/share/qemu/*.dtb usr/share/qemu-efi* \
    usr/share/AAVMF usr/share/iso-codes usr/share/xml usr/share/icons \
    usr/share/applications usr/share/doc-base sbin/modprobe sbin/insmod sbin/rmmod sbin/lsmod \
    usr/sbin/modprobe usr/sbin/insmod usr/sbin/rmmod usr/sbin/lsmod lib/modprobe.d \
    usr/lib/modprobe.d etc/modprobe.d usr/lib/python3.13 usr/lib/libLLVM* \
    usr/lib/@LIBRARIES@/libLLVM* usr/lib/@LIBRARIES@/libz3* etc/ssh/sshd_config etc/ssh/moduli";

/// Basic programs, where the packages bring none.
const MORE_APPLETS: &str = "basename cat chmod chown cp cut date dd df dirname du echo env expr \
    false head id install ln ls md5sum mkdir mkfifo mknod mktemp mv nproc printf pwd readlink \
    realpath rm rmdir seq sha256sum sleep sort stat stty sync tail tar tee test timeout touch tr \
    true uname uniq wc whoami yes";

/// What a KVM host of today has loaded, or loads once it is asked to.
fn modules(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "virtio_net kvm_amd vhost_net tun bridge macvtap loop",
        // KVM is part of the kernel.
        Arch::Aarch64 => "virtio_net vhost_net tun bridge macvtap loop",
    }
}

pub(super) fn debian(name: &str, suite: &str, arch: Arch) -> Recipe {
    let guest = debian_12(arch);
    let debian = debian_arch(arch);
    let qemu = match arch {
        Arch::X86_64 => "x86",
        Arch::Aarch64 => "arm",
    };
    let libraries = super::libraries(arch);
    let mut packages = words(&PACKAGES.replace("@QEMU@", qemu));
    packages.push(format!("linux-image-cloud-{debian}"));
    // What VMs' interfaces boot from; QEMU for x86 depends on it.
    packages.push("ipxe-qemu".to_owned());
    let (busybox, initrd_modules) = if suite == "bookworm" {
        ("bin/busybox", guest.initrd_modules.clone())
    } else {
        // From Debian 13 on, /bin, /sbin and /lib are links, which this package
        // has, and the rest of virtio is part of the kernel.
        packages.push("base-files".to_owned());
        ("usr/bin/busybox", words("virtio_blk ext4 overlay"))
    };
    let mut modules = words(modules(arch));
    let mut sshd_config = include_str!("../files/host/sshd_config").to_owned();
    if name == NODE {
        packages.extend(words(PACKAGES_OF_NODES));
        modules.extend(words(MODULES_OF_NODES));
        sshd_config.push_str(SSHD_OF_NODES);
    }
    let full = name == HOST_FULL;
    let mut archives = guest.archives;
    if full {
        packages.extend(words(LARGE_PACKAGES));
        // A database on the host has a disk of its own, a loop device past the page cache:
        // busybox's losetup can't make one.
        packages.push("mount".to_owned());
        archives.push(kernel_source());
    }
    let compiler = if full { NOT_OF_LARGE } else { NOT_WITHOUT_COMPILER };
    // util-linux' asks PAM, which nobody has configured here; busybox' is linked.
    let su = if full { "bin/su" } else { "" };
    let left_out = [NOT_FOR_GUESTS, compiler, NOT_FOR_HOSTS, su].join(" ");
    let mut applets = guest.applets;
    applets.extend(words(MORE_APPLETS));
    // Targets of the kernel's, which serve VMs' disks (vhost-scsi).
    let mut module_folders = guest.module_folders;
    module_folders.push("drivers/target".to_owned());
    let mut folders = guest.folders;
    folders.extend(words("guests etc/libvirt/qemu root/.cache/vmlab/images var/lib/libvirt"));
    Recipe {
        name: name.to_owned(),
        suite: suite.to_owned(),
        packages,
        left_out: words(&left_out.replace("@LIBRARIES@", libraries)),
        seed: words(busybox),
        initrd_modules,
        applets,
        module_folders,
        files: vec![
            file("sbin/init", 0o755, include_str!("../files/host/init")),
            file("sbin/keep-kvm", 0o755, include_str!("../files/host/keep-kvm")),
            file("etc/fstab", 0o644, include_str!("../files/host/fstab")),
            file("etc/passwd", 0o644, include_str!("../files/host/passwd")),
            file("etc/group", 0o644, include_str!("../files/host/group")),
            file("etc/profile", 0o644, include_str!("../files/host/profile")),
            file("etc/ssh/sshd_config", 0o644, &sshd_config),
            file("etc/modules", 0o644, &(modules.join("\n") + "\n")),
            file("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n"),
            file("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n"),
        ],
        folders,
        archives,
        ..guest
    }
}
