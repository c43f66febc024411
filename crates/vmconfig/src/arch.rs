//! Whose instructions the guest executes, and who executes them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The guest's architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// 64-bit x86, `qemu-system-x86_64`.
    X86_64,
    /// 64-bit Arm, `qemu-system-aarch64`.
    Aarch64,
}

impl Arch {
    /// Its name as the kernel and QEMU write it: `x86_64`, `aarch64`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The architecture with that name, if VMs of it are known.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::X86_64, Self::Aarch64].into_iter().find(|arch| arch.name() == name)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who executes the guest's instructions.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// The processor, through the kernel's KVM.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accel {
    /// QEMU's name for it: `kvm`, `tcg`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// The accelerator that QEMU calls so, if VMs with it are known.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Kvm, Self::Tcg].into_iter().find(|accel| accel.name() == name)
    }
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
