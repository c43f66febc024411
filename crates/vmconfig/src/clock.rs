//! Clocks and timers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::InvalidVm;

/// What the guest tells time by. What is not set is QEMU's own choice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuestClock {
    /// KVM's paravirtual clock. QEMU `-cpu kvmclock=`, libvirt `<timer
    /// name='kvmclock' present=>`, KubeVirt `timer.kvm.present`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvmclock: Option<bool>,
    /// Hyper-V's reference time. QEMU `-cpu hv-time=`, libvirt `<timer
    /// name='hypervclock'>`, KubeVirt `timer.hyperv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervclock: Option<bool>,
    /// The High Precision Event Timer. QEMU `-machine hpet=`, libvirt `<timer
    /// name='hpet' present=>`, KubeVirt `timer.hpet.present`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpet: Option<bool>,
    /// Rate of the time stamp counter. QEMU `-cpu tsc-frequency=`, libvirt
    /// `<timer name='tsc' frequency=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsc_frequency_hz: Option<u64>,
    /// What happens to ticks of the PIT that came too late: `delay` or
    /// `discard`. QEMU `-global kvm-pit.lost_tick_policy=`, libvirt and
    /// KubeVirt `tickpolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pit: Option<TickPolicy>,
    /// What happens to ticks of the real-time clock that came too late: `delay`
    /// or `catchup`. QEMU `-rtc driftfix=`, libvirt and KubeVirt `tickpolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtc: Option<TickPolicy>,
    /// Which clock the real-time clock runs by; the host's wall clock if not said. QEMU
    /// `-rtc clock=`, libvirt and KubeVirt `track`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtc_track: Option<RtcTrack>,
    /// What the real-time clock holds; UTC if not said. QEMU `-rtc base=`,
    /// libvirt `<clock offset=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<ClockBase>,
}

/// What happens to timer ticks that could not be delivered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TickPolicy {
    /// Delivered late, at the usual rate.
    Delay,
    /// Delivered faster, until caught up.
    Catchup,
    /// Dropped.
    Discard,
}

impl TickPolicy {
    pub(crate) const NAMES: [(Self, &'static str); 3] =
        [(Self::Delay, "delay"), (Self::Catchup, "catchup"), (Self::Discard, "discard")];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("delay", |row| row.1)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

/// Which clock the guest's real-time clock runs by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RtcTrack {
    /// The host's wall clock, with all that is done to it.
    Wall,
    /// The guest's own time, which stands still while it is paused.
    Guest,
    /// The host's time since it booted, which nobody sets.
    Realtime,
}

impl RtcTrack {
    /// Each with libvirt's name and QEMU's.
    pub(crate) const NAMES: [(Self, &'static str, &'static str); 3] = [
        (Self::Wall, "wall", "host"),
        (Self::Guest, "guest", "vm"),
        (Self::Realtime, "realtime", "rt"),
    ];

    fn row(self) -> (&'static str, &'static str) {
        let found = Self::NAMES.iter().find(|row| row.0 == self);
        found.map_or(("wall", "host"), |row| (row.1, row.2))
    }

    /// libvirt's name of it.
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    /// QEMU's name of it.
    pub(crate) fn qemu(self) -> &'static str {
        self.row().1
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    pub(crate) fn from_qemu(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.2 == name).map(|row| row.0)
    }
}

/// What the guest's real-time clock holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClockBase {
    /// Universal time.
    Utc,
    /// The host's local time.
    Localtime,
}

impl GuestClock {
    pub(crate) fn overlay(self, over: Self) -> Self {
        crate::overlay_fields!(
            self,
            over,
            kvmclock,
            hypervclock,
            hpet,
            tsc_frequency_hz,
            pit,
            rtc,
            rtc_track,
            base
        )
    }

    pub(crate) fn normalise(&mut self) {
        self.rtc_track = self.rtc_track.filter(|track| *track != RtcTrack::Wall);
        self.base = self.base.filter(|base| *base != ClockBase::Utc);
    }

    pub(crate) fn check(&self) -> Result<(), InvalidVm> {
        let refuse = |message: &str| {
            Err(InvalidVm::Contradiction { field: "clock", message: message.to_owned() })
        };
        if self.pit == Some(TickPolicy::Catchup) {
            return refuse("has pit \"catchup\", which KVM can't: \"delay\" or \"discard\"");
        }
        if self.rtc == Some(TickPolicy::Discard) {
            return refuse("has rtc \"discard\", which QEMU can't: \"delay\" or \"catchup\"");
        }
        if self.tsc_frequency_hz.is_some_and(|hz| hz == 0 || hz > 1 << 40) {
            return refuse("has a tsc_frequency_hz that no processor has");
        }
        Ok(())
    }
}
