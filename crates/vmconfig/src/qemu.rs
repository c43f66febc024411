//! QEMU's command line.
//!
//! Source: QEMU's manual page, checked against QEMU 7.2; what differs between
//! versions is asked of [`Capabilities`].

mod attached;
mod capabilities;
mod devices;
mod interface;
mod parse;
mod reader;

use std::path::{Path, PathBuf};

pub use capabilities::{Capabilities, QemuVersion, UnusableVersion};
pub use devices::{iothread_id, memory_backend, memory_backend_id, numa_distance, numa_node};
pub use interface::{Interface, Netdev};
pub use parse::{QemuMismatch, parse, parse_args, parse_line, parse_source};

use crate::command_line::shell;
use crate::{Arch, BootSource, GuestTopology, SpecFinding, VmSpec};

pub use crate::Loss;

/// The files through which a VM is talked to. Whoever starts QEMU listens on
/// the sockets and QEMU connects, so there is no moment at which a socket is
/// not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channels {
    /// QEMU's monitor protocol (QMP).
    pub qmp_socket: PathBuf,
    /// The guest agent, virtio-serial port `org.qemu.guest_agent.0`.
    pub agent_socket: PathBuf,
    /// A line for every command that ended in the guest, virtio-serial port
    /// `org.vmlab.done.0`. Guests without that service ignore it.
    pub done_socket: PathBuf,
    /// What the guest prints on its first serial port.
    pub console_socket: PathBuf,
    /// Where whoever listens there keeps the end of it; QEMU knows nothing of it.
    pub console_log: PathBuf,
}

/// The files through which a VM is talked to whose guest knows a serial port and no
/// more. Whoever starts QEMU listens, as with [`Channels`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SerialChannels {
    /// QEMU's monitor protocol (QMP).
    pub qmp_socket: PathBuf,
    /// The first serial port, both ways.
    pub serial_socket: PathBuf,
}

/// Who is at the other end of what the VM says.
#[derive(Debug, Clone, Copy)]
enum ChannelEnd<'a> {
    /// A person.
    Terminal,
    /// vmlab, with a guest agent in the guest.
    Agent(&'a Channels),
    /// vmlab, with a serial port alone.
    Serial(&'a SerialChannels),
}

/// Arguments for QEMU, and what they can't say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmittedArguments {
    /// The arguments, without the program.
    pub args: Vec<String>,
    /// What the VM is besides.
    pub losses: Vec<Loss>,
    /// Where in `args` each option begins.
    starts: Vec<usize>,
}

impl EmittedArguments {
    /// One option with its value a line, quoted for a shell: joined by
    /// backslash and line feed after the program's name, they start the VM.
    #[must_use]
    pub fn option_lines(&self) -> Vec<String> {
        let ends = self.starts.iter().skip(1).copied().chain([self.args.len()]);
        self.starts
            .iter()
            .zip(ends)
            .map(|(&start, end)| shell::join(&self.args[start..end]))
            .collect()
    }

    /// Adds an option and its value, if it takes one.
    fn push(&mut self, option: &str, value: Option<String>) {
        self.starts.push(self.args.len());
        self.args.push(option.to_owned());
        self.args.extend(value);
    }

    fn option(&mut self, option: &str, value: impl Into<String>) {
        self.push(option, Some(value.into()));
    }

    fn flag(&mut self, option: &str) {
        self.push(option, None);
    }
}

/// The arguments that start this VM.
///
/// Never fails: what QEMU refuses is emitted as asked, and [`check`] tells.
#[must_use]
pub fn emit(spec: &VmSpec, channels: &Channels, capabilities: &Capabilities) -> EmittedArguments {
    emit_with(spec, ChannelEnd::Agent(channels), capabilities)
}

/// The arguments that start this VM for somebody who talks to its guest over the
/// serial port: neither a PCI bus nor an agent is needed.
#[must_use]
pub fn emit_serial(
    spec: &VmSpec,
    channels: &SerialChannels,
    capabilities: &Capabilities,
) -> EmittedArguments {
    emit_with(spec, ChannelEnd::Serial(channels), capabilities)
}

/// The arguments that start this VM on a terminal, for people: nothing of
/// vmlab's own is connected.
#[must_use]
pub fn emit_plain(spec: &VmSpec, capabilities: &Capabilities) -> EmittedArguments {
    emit_with(spec, ChannelEnd::Terminal, capabilities)
}

fn emit_with(spec: &VmSpec, talk: ChannelEnd<'_>, capabilities: &Capabilities) -> EmittedArguments {
    let losses = devices::losses(spec);
    let mut emitted = EmittedArguments { args: Vec::new(), losses, starts: Vec::new() };
    emitted.option("-name", format!("guest={},debug-threads=on", escape(&spec.name)));
    for bare in ["-no-user-config", "-nodefaults", "-no-reboot"] {
        emitted.flag(bare);
    }
    for nothing in ["-display", "-vga", "-nic"] {
        emitted.option(nothing, "none");
    }
    emitted.option("-machine", devices::machine(spec));
    emitted.option("-accel", spec.accel.name());
    emitted.option("-cpu", devices::cpu(spec));
    emitted.option("-smp", devices::smp(spec, capabilities));
    emitted.option("-m", format!("{}M", spec.memory_mib));
    devices::emit(spec, &mut emitted);
    boot(spec, &mut emitted);
    devices::attach(spec, capabilities, &mut emitted);
    match talk {
        ChannelEnd::Agent(channels) => channel_args(channels, &mut emitted),
        ChannelEnd::Serial(channels) => {
            monitor_args(&channels.qmp_socket, &mut emitted);
            console_args(&channels.serial_socket, &mut emitted);
        }
        ChannelEnd::Terminal => emitted.option("-serial", TERMINAL),
    }
    for argument in &spec.extra_args {
        // What does not look like an option belongs to the one before it.
        if argument.starts_with('-') || emitted.starts.is_empty() {
            emitted.flag(argument);
        } else {
            emitted.args.push(argument.clone());
        }
    }
    emitted
}

/// What QEMU of this version will refuse about the VM.
///
/// Source: the limits of `hw/i386/pc_q35.c`, `pc_piix.c`, `x86-common.c` and
/// `hw/arm/virt.c`; those of 7.2 are held by a test against the real one.
#[must_use]
pub fn check(spec: &VmSpec, capabilities: &Capabilities) -> Vec<SpecFinding> {
    let mut findings = Vec::new();
    let Capabilities { version, .. } = capabilities;
    let (vcpus, topology, machine) = (spec.max_vcpus(), spec.topology, spec.machine_type());
    if !capabilities.has_pci(&spec.machine) && !matches!(spec.boot, BootSource::Kernel { .. }) {
        let instead = if machine == "microvm" { "microvm,pcie=on" } else { "q35" };
        let message = format!(
            "machine {:?} has no PCI bus for the disk and the guest agent: write machine = \
             {instead:?}",
            spec.machine
        );
        findings.push(SpecFinding::error("machine", message));
    }
    for (level, count) in topology.levels() {
        if count > 1 && !capabilities.takes_level(spec.arch, machine, level) {
            let message = format!(
                "topology {topology} has {count} {level}, which machine {machine:?} of QEMU \
                 {version} does not have: write {level} = 1"
            );
            findings.push(SpecFinding::error("topology", message));
        }
    }
    let greatest = capabilities.max_vcpus(machine);
    if let Some(greatest) = greatest
        && vcpus > greatest
    {
        let message = format!(
            "vcpus {vcpus} is more than machine {machine:?} of QEMU {version} takes: {greatest}"
        );
        findings.push(SpecFinding::error("vcpus", message));
    } else if let Some(greatest) = capabilities.max_apic_ids(spec.arch, spec.accel)
        && let needed = apic_ids(&topology)
        && needed > u64::from(greatest)
    {
        let message = format!(
            "vcpus {vcpus} ({topology}) need {needed} APIC ids, but accel tcg of QEMU {version} \
             has {greatest}: take fewer vCPUs, accel kvm, or QEMU 9.0"
        );
        findings.push(SpecFinding::error("vcpus", message));
    }
    if apic_ids(&topology) > MOST_APIC_IDS
        && spec.arch == Arch::X86_64
        && crate::extended_interrupts::lacks_x2apic(spec)
    {
        let message = format!(
            "cpu_model {:?} has no x2APIC, which {vcpus} vCPUs ({topology}) need: write +x2apic",
            spec.cpu_model
        );
        findings.push(SpecFinding::error("cpu_model", message));
    }
    for (number, disk) in spec.disks.iter().enumerate() {
        if !disk.queue_iothreads.is_empty() && !capabilities.shares_queues(disk.bus) {
            let message = format!(
                "disks number {number} has iothreads that share its queues, which QEMU {version} \
                 does not have: QEMU 9.0 has them for virtio-blk, 10.0 for virtio-scsi"
            );
            findings.push(SpecFinding::error("disks", message));
        }
    }
    for (what, path) in spec.boot.files() {
        if path.to_str().is_none() {
            let message = format!("image: the path of the {what}, {path:?}, is not UTF-8");
            findings.push(SpecFinding::error("image", message));
        }
    }
    findings
}

/// APIC ids that an APIC without x2APIC has.
const MOST_APIC_IDS: u64 = 255;

/// APIC ids that the vCPUs span: each level takes whole bits, so a topology
/// that isn't made of powers of 2 leaves gaps.
///
/// Source: Intel SDM volume 3, "Hierarchical Mapping of Shared Resources".
fn apic_ids(topology: &GuestTopology) -> u64 {
    let inner = [topology.dies, topology.clusters, topology.cores, topology.threads];
    let last = inner.iter().fold(u64::from(topology.sockets) - 1, |id, &count| {
        let bits = u32::BITS - (count - 1).leading_zeros();
        (id << bits) | u64::from(count - 1)
    });
    last + 1
}

/// The first serial port and QEMU's monitor on the terminal.
const TERMINAL: &str = "mon:stdio";

fn boot(spec: &VmSpec, emitted: &mut EmittedArguments) {
    match &spec.boot {
        BootSource::Direct { kernel, initrd, root_image, .. } => {
            emitted.option("-kernel", kernel.to_string_lossy());
            emitted.option("-initrd", initrd.to_string_lossy());
            emitted.option("-append", spec.kernel_parameters().join(" "));
            let file = escape_path(root_image);
            emitted.option(
                "-drive",
                format!(
                    "file={file},if=none,id=root,format=raw,readonly=on,cache=writeback,aio=threads"
                ),
            );
            emitted.option("-device", "virtio-blk-pci,drive=root,serial=vmlab-root");
        }
        BootSource::Disk { image, format } => {
            let (file, format) = (escape_path(image), format.name());
            // Writes go to a temporary file that nobody will read again, so
            // there is nothing to flush for.
            emitted.option(
                "-drive",
                format!("file={file},if=none,id=root,format={format},snapshot=on,cache=unsafe"),
            );
            emitted.option("-device", "virtio-blk-pci,drive=root,bootindex=1");
        }
        BootSource::Kernel { kernel, initrd } => {
            emitted.option("-kernel", kernel.to_string_lossy());
            if let Some(initrd) = initrd {
                emitted.option("-initrd", initrd.to_string_lossy());
            }
            if !spec.kernel_cmdline.is_empty() {
                emitted.option("-append", spec.kernel_cmdline.join(" "));
            }
        }
        BootSource::Firmware => {}
    }
}

fn channel_args(channels: &Channels, emitted: &mut EmittedArguments) {
    monitor_args(&channels.qmp_socket, emitted);
    emitted.option("-device", "virtio-serial-pci,id=vserial");
    let ports = [
        ("agent", &channels.agent_socket, "org.qemu.guest_agent.0"),
        ("done", &channels.done_socket, "org.vmlab.done.0"),
    ];
    for (number, (id, path, name)) in (1..).zip(ports) {
        emitted.option("-chardev", socket(id, path));
        emitted.option(
            "-device",
            format!("virtserialport,bus=vserial.0,nr={number},chardev={id},id={id},name={name}"),
        );
    }
    console_args(&channels.console_socket, emitted);
    emitted.option("-device", "pvpanic-pci");
}

fn monitor_args(path: &Path, emitted: &mut EmittedArguments) {
    emitted.option("-chardev", socket("qmp", path));
    emitted.option("-mon", "chardev=qmp,mode=control");
}

fn console_args(path: &Path, emitted: &mut EmittedArguments) {
    // No file: it would grow as fast as the guest prints.
    emitted.option("-chardev", socket("console", path));
    emitted.option("-serial", "chardev:console");
}

fn socket(id: &str, path: &Path) -> String {
    format!("socket,id={id},path={},server=off", escape_path(path))
}

/// A value for QEMU's `key=value,...` syntax, in which a comma is said twice.
#[must_use]
pub fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

/// A path as [`escape`] has it.
#[must_use]
pub fn escape_path(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
