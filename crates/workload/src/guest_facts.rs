//! What a benchmark must know of the guest that it runs in.

use core::net::Ipv4Addr;

/// Instructions of an emulated guest take about this many times longer; a
/// rough figure for plans, not a measurement.
pub(crate) const EMULATION_FACTOR: f64 = 15.0;

/// What a benchmark's command line depends on, beside its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestFacts {
    /// The guest's vCPUs: as many threads run where a study names no number.
    pub vcpus: u32,
    /// True if the guest's instructions are emulated (TCG), so all takes longer.
    pub emulated: bool,
    /// Address of the guest that plays the other role; the loopback's where
    /// one guest plays both.
    pub peer: Ipv4Addr,
}

impl GuestFacts {
    /// A guest that talks to nobody but itself.
    #[must_use]
    pub const fn alone(vcpus: u32, emulated: bool) -> Self {
        Self { vcpus, emulated, peer: Ipv4Addr::LOCALHOST }
    }

    /// Seconds that `native_s` seconds of computing take in this guest, rough.
    pub(crate) fn computing_s(&self, native_s: f64) -> f64 {
        if self.emulated { native_s * EMULATION_FACTOR } else { native_s }
    }
}
