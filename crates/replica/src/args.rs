//! QEMU's arguments for an emulated host.

use std::path::Path;

use vmconfig::command_line::Smp;
use vmconfig::qemu::{
    Capabilities, Interface, Netdev, escape_path, memory_backend, numa_distance, numa_node,
};
use vmconfig::{Accel, Arch, GuestTopology, MemoryBacking};

use crate::shape::ReplicaMachine;

/// Name of the monitor's socket in a replica's folder.
pub(crate) const QMP: &str = "qmp";
/// Name of the file with the console's output.
pub(crate) const CONSOLE: &str = "console";
/// Name of the socket to which QEMU writes it.
pub(crate) const CONSOLE_SOCKET: &str = "console.socket";
/// Name of the file with QEMU's process id.
pub(crate) const PID: &str = "pid";
/// Name of the scratch disk.
pub(crate) const SCRATCH: &str = "scratch.ext4";
/// How a host's NVMe disk is called, by its number from 1: its file, and its serial number.
pub(crate) fn nvme(number: usize) -> String {
    format!("nvme-{number}")
}
/// Name of the initial RAM disk.
pub(crate) const INITRD: &str = "initrd.cpio";

/// The files that a replica starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaFiles<'a> {
    /// The host image's kernel.
    pub(crate) kernel: &'a Path,
    /// The host image's root disk.
    pub(crate) root_image: &'a Path,
    /// The disk with guest images.
    pub(crate) guests: &'a Path,
    /// Kernel parameters that the image needs.
    pub(crate) cmdline: &'a [String],
}

/// The arguments of QEMU, which runs in the replica's folder: what is the
/// replica's own is named without a folder. With NVMe disks it has an IOMMU, too.
/// With `wait_for_state` it does not boot but waits for a saved state.
pub(crate) fn args(
    name: &str,
    shape: &ReplicaMachine,
    files: &ReplicaFiles<'_>,
    nvme_disks: usize,
    wait_for_state: bool,
) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    let title = format!("vmlab-replica-{name}");
    add(&["-name", &title, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    let (machine, model) = match shape.arch {
        // A model with SVM and nested paging, nearly all of which QEMU's emulator
        // can do. Its CMPXCHG16B leaves wrong flags behind (seen with QEMU 7.2),
        // which Linux 6.12 does not survive.
        Arch::X86_64 => ("q35", "EPYC-Rome,+svm,-cx16"),
        // Signing pointers with the architecture's own cipher takes half of the time.
        Arch::Aarch64 => ("virt,virtualization=on,gic-version=3", "max,pauth-impdef=on"),
    };
    let has_iommu = nvme_disks > 0;
    let smmu = if has_iommu && shape.arch == Arch::Aarch64 { ",iommu=smmuv3" } else { "" };
    add(&["-machine", &format!("{machine}{smmu}"), "-cpu", model]);
    if has_iommu && shape.arch == Arch::X86_64 {
        // Intel's on a machine of AMD's: Debian's kernels for clouds drive no other, and
        // find it by the firmware's tables.
        add(&["-device", "intel-iommu,intremap=on"]);
    }
    // Emulators are not bound by one pCPU here: each of theirs is a thread.
    add(&["-accel", "tcg,thread=multi"]);
    let (sockets, cores, threads) = (shape.sockets, shape.cores, shape.threads);
    let topology = GuestTopology { sockets, dies: 1, clusters: 1, cores, threads };
    let smp = Smp::write(None, &topology, |level| ["sockets", "cores", "threads"].contains(&level));
    add(&["-smp", &smp, "-m", &format!("{}M", shape.memory_mib())]);
    for (id, node) in shape.nodes.iter().enumerate() {
        let backend_id = format!("memory{id}");
        let memory = memory_backend(&backend_id, node.memory_mib, &MemoryBacking::default());
        add(&[
            "-object",
            &memory,
            "-numa",
            &numa_node(id, &shape.qemu_numbers(&node.pcpus), &backend_id),
        ]);
    }
    for ((from, to), distance) in &shape.distances {
        if from != to {
            add(&["-numa", &numa_distance(*from, *to, *distance)]);
        }
    }
    let append = cmdline(shape, files.cmdline, has_iommu);
    add(&["-kernel", &files.kernel.to_string_lossy(), "-initrd", INITRD, "-append", &append]);
    let console = format!("socket,id=console,path={CONSOLE_SOCKET},server=off");
    add(&["-chardev", &console, "-serial", "chardev:console"]);
    let scratch = Path::new(SCRATCH);
    for (serial, path, read_only) in [
        ("root", files.root_image, "on"),
        ("guests", files.guests, "on"),
        ("scratch", scratch, "off"),
    ] {
        let file = format!("driver=file,filename={},node-name={serial}-file", escape_path(path));
        let disk = format!("driver=raw,file={serial}-file,node-name={serial}");
        let read_only = format!("read-only={read_only}");
        add(&["-blockdev", &format!("{file},{read_only}")]);
        add(&["-blockdev", &format!("{disk},{read_only}")]);
        add(&["-device", &format!("virtio-blk-pci,drive={serial},serial={serial}")]);
    }
    for number in 1..=nvme_disks {
        let name = nvme(number);
        let file = format!("driver=file,filename={name},node-name={name}-file");
        add(&["-blockdev", &file]);
        add(&["-blockdev", &format!("driver=raw,file={name}-file,node-name={name}")]);
        // Behind a port of its own it has an IOMMU group of its own.
        add(&["-device", &format!("pcie-root-port,id=port-{number},chassis={number}")]);
        add(&["-device", &format!("nvme,drive={name},serial={name},bus=port-{number}")]);
    }
    // Nothing gets out; in comes ssh alone, at a port that the system picks.
    let netdev = Netdev::Restricted { forward: "tcp:127.0.0.1:0-:22".to_owned() };
    let interface = Interface { boots: false, ..Interface::new("net", netdev) };
    for (option, value) in interface.options(Accel::Tcg, &Capabilities::oldest()) {
        add(&[option, &value]);
    }
    add(&["-qmp", &format!("unix:{QMP},server=on,wait=off")]);
    add(&["-daemonize", "-pidfile", PID]);
    if wait_for_state {
        add(&["-incoming", "defer"]);
    }
    args
}

/// The kernel's parameters: the image's, and those that only an emulated host
/// needs.
fn cmdline(shape: &ReplicaMachine, of_image: &[String], has_iommu: bool) -> String {
    let mut words: Vec<&str> = of_image.iter().map(String::as_str).collect();
    if shape.arch == Arch::X86_64 {
        // The first process switches the other pCPUs on, after KVM was loaded;
        // on arm64 KVM is part of the kernel.
        words.push("maxcpus=1");
        // The emulated TSC is one for all pCPUs, and far cheaper than a timer
        // that is a device; a loop that counts on it would be calibrated anew
        // for every pCPU.
        words.extend(["tsc=reliable", "lpj=10000000"]);
    }
    if has_iommu {
        // On, and in nobody's way but where a guest has a device.
        words.extend(match shape.arch {
            Arch::X86_64 => ["intel_iommu=on", "iommu=pt"].as_slice(),
            Arch::Aarch64 => &["iommu.passthrough=1"],
        });
    }
    words.join(" ")
}
