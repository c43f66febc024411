//! Why there can be no such VM.

use crate::GuestTopology;

/// More than any machine type of QEMU takes (4096, q35 since 9.0).
pub(crate) const MAX_VCPUS: u32 = 4096;

/// 50 bits of address, in MiB.
const MAX_MEMORY_MIB: u64 = 1 << 30;

/// Why a VM can't be. `field()` names the field as studies write it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVm {
    /// A text is empty that must not be.
    #[error("{field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A text holds a line feed, a NUL or another control character.
    #[error("{field} {value:?} holds a control character")]
    ControlCharacter {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A level of the topology is 0.
    #[error("topology {topology} has 0 {level}: every level is at least 1")]
    EmptyLevel {
        /// The topology.
        topology: GuestTopology,
        /// The level's name.
        level: &'static str,
    },
    /// More vCPUs than any machine of QEMU takes.
    #[error("vcpus {} ({topology}) is more than any machine takes: {}", topology.vcpus(), MAX_VCPUS)]
    TooManyVcpus {
        /// The topology.
        topology: GuestTopology,
    },
    /// No memory.
    #[error("memory_mib is 0: a guest needs memory")]
    NoMemory,
    /// More memory than a machine can address.
    #[error("memory_mib {value} is more than {} (1 PiB)", MAX_MEMORY_MIB)]
    TooMuchMemory {
        /// The memory asked for.
        value: u64,
    },
    /// A pin for a vCPU that isn't there.
    #[error("pins name vCPU {vcpu}, but the VM has {}", count_vcpus(*vcpus))]
    NoSuchVcpu {
        /// The vCPU.
        vcpu: u32,
        /// How many there are.
        vcpus: u32,
    },
    /// A pin to no pCPU at all.
    #[error("{field} gives {thread} no pCPU: leave it out to let it run anywhere")]
    EmptyPin {
        /// `pins`, `emulator_pin`, `iothread_pins` or `vhost_pin`.
        field: &'static str,
        /// Which thread.
        thread: String,
    },
    /// `-cpu host` needs hardware acceleration.
    #[error("cpu_model {value:?} needs accel kvm; tcg takes \"max\" or a named model")]
    HostModelWithoutKvm {
        /// The CPU model.
        value: String,
    },
    /// Kernel parameters for an image that boots by its own loader.
    #[error(
        "kernel_cmdline {value:?} can't be passed to a disk image, which boots by its own loader: \
         set it there"
    )]
    CmdlineWithoutKernel {
        /// The parameters.
        value: String,
    },
    /// A text has white space where it would be taken for two.
    #[error("{field} {value:?} holds white space")]
    WhiteSpace {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// Something that can't be beside something else.
    #[error("{field} {message}")]
    Contradiction {
        /// The field.
        field: &'static str,
        /// What, as the end of a sentence that the field begins.
        message: String,
    },
    /// A switch in another process can't reach the guest's memory.
    #[error(
        "nics number {number} is vhost-user, whose switch must map the guest's memory: write \
         memory.shared = true"
    )]
    NotShared {
        /// Number of the interface.
        number: usize,
    },
    /// An extra argument that contradicts a field, or takes the VM away from
    /// whoever started it.
    #[error("extra_args holds {argument:?}: {instead}")]
    ReservedArgument {
        /// The argument.
        argument: String,
        /// What to do instead.
        instead: &'static str,
    },
}

impl InvalidVm {
    /// Whether a machine can have as much memory, MiB.
    ///
    /// # Errors
    /// None at all, or more than it can address.
    pub fn check_memory(mib: u64) -> Result<(), Self> {
        match mib {
            0 => Err(Self::NoMemory),
            value if value > MAX_MEMORY_MIB => Err(Self::TooMuchMemory { value }),
            _ => Ok(()),
        }
    }

    /// The field at fault, as studies write it.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::Empty { field }
            | Self::ControlCharacter { field, .. }
            | Self::WhiteSpace { field, .. }
            | Self::Contradiction { field, .. }
            | Self::EmptyPin { field, .. } => field,
            Self::EmptyLevel { .. } => "topology",
            Self::TooManyVcpus { .. } => "vcpus",
            Self::NoMemory | Self::TooMuchMemory { .. } => "memory_mib",
            Self::NoSuchVcpu { .. } => "pins",
            Self::NotShared { .. } => "nics",
            Self::HostModelWithoutKvm { .. } => "cpu_model",
            Self::CmdlineWithoutKernel { .. } => "kernel_cmdline",
            Self::ReservedArgument { .. } => "extra_args",
        }
    }
}

/// `1 vCPU (0)`, `4 vCPUs (0-3)`.
fn count_vcpus(vcpus: u32) -> String {
    match vcpus {
        1 => "1 vCPU (0)".to_owned(),
        vcpus => format!("{vcpus} vCPUs (0-{})", vcpus.saturating_sub(1)),
    }
}
