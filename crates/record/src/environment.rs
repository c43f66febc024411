//! Where a value came from: real KVM, emulation, simulation, another's log.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The environment in which a value was measured.
///
/// It is part of every [`crate::SampleRow`] and of every verdict's text.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Environment {
    /// On a host itself, in no VM of vmlab's.
    Host,
    /// A guest under KVM on a machine whose KVM was seen to boot a guest.
    Kvm,
    /// On a host that is itself emulated: time is emulated time.
    EmulatedHost,
    /// A guest under QEMU's emulation (TCG): time is emulated time.
    Tcg,
    /// A guest under KVM on a host that is itself emulated.
    NestedKvm,
    /// The same where the emulator's clock is its count of instructions: whatever
    /// is counted is the same in every run.
    InstructionCounted,
    /// Computed by the simulator.
    Simulated,
    /// Read from a log that vmlab did not make.
    Imported,
}

impl Environment {
    /// True where a measured duration says nothing about real hardware.
    #[must_use]
    pub fn is_emulated_time(self) -> bool {
        matches!(
            self,
            Self::EmulatedHost
                | Self::Tcg
                | Self::NestedKvm
                | Self::InstructionCounted
                | Self::Simulated
        )
    }

    /// What can't be seen there at all, one plain sentence, where the machine
    /// itself is emulated.
    #[must_use]
    pub fn limits(self) -> Option<&'static str> {
        matches!(self, Self::EmulatedHost | Self::NestedKvm | Self::InstructionCounted).then_some(
            "Not shown: what caches, threads of a core and memory of other nodes do to speed. \
             None of these costs or gains anything on an emulated processor.",
        )
    }

    /// True where the same study, seed, images and programs bring the same values
    /// again, to the last digit.
    #[must_use]
    pub fn is_deterministic(self) -> bool {
        self == Self::InstructionCounted
    }

    /// How its values came about, in the word that stands over them in tables.
    #[must_use]
    pub fn participle(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Imported => "imported",
            Self::Host
            | Self::Kvm
            | Self::EmulatedHost
            | Self::Tcg
            | Self::NestedKvm
            | Self::InstructionCounted => "measured",
        }
    }

    /// One plain sentence for people, as shown beside every verdict.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Host => "Measured on the host itself, without a VM.",
            Self::Kvm => "Measured under KVM.",
            Self::EmulatedHost => {
                "On an emulated host: times are emulated time; mechanisms and counts are real."
            }
            Self::Tcg => {
                "Emulated (QEMU TCG): times are emulated time and say nothing about the speed of real hardware."
            }
            Self::NestedKvm => {
                "KVM on an emulated host: times are emulated time; mechanisms and counts are real."
            }
            Self::InstructionCounted => {
                "Deterministic, instruction-counted: on an emulated host whose clock is its count of instructions, 1 ns each; counts are exact, and no time is a speed."
            }
            Self::Simulated => "Simulated: computed by a model, not measured.",
            Self::Imported => "Imported from a log that vmlab did not make.",
        }
    }

    /// The same with the place, in words that follow "on", where something else than
    /// vmlab chose the machine: what was measured there was not measured here.
    #[must_use]
    pub fn sentence_on(self, place: Option<&str>) -> String {
        match (self, place) {
            (Self::Host, Some(place)) => format!("Measured on {place}, without a VM."),
            (Self::Kvm, Some(place)) => format!("Measured under KVM on {place}."),
            (_, Some(place)) if !matches!(self, Self::Simulated | Self::Imported) => {
                format!("On {place}. {}", self.sentence())
            }
            _ => self.sentence().to_owned(),
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "no VM",
            Self::Kvm => "KVM",
            Self::EmulatedHost => "no VM, emulated host",
            Self::Tcg => "emulated (TCG)",
            Self::NestedKvm => "KVM on emulated host",
            Self::InstructionCounted => "deterministic (instruction-counted)",
            Self::Simulated => "simulated",
            Self::Imported => "imported",
        })
    }
}
