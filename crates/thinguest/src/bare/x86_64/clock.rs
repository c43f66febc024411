//! The clock's rate.

use thinguest::ClockSource;

use crate::metal::instruction::{Port, clock, cpuid};
use crate::metal::kvm_clock::{clock_word, start_kvm_clock, start_kvm_steal_time};

pub(crate) use crate::metal::kvm_clock::steal_ns;

/// The interval timer's rate.
const TIMER_HZ: u64 = 1_193_182;
/// What is counted off: about 10 ms.
const TIMER_TICKS: u16 = 11_932;
/// What is given up after.
const PATIENCE_CYCLES: u64 = 1 << 30;

/// KVM's leaves in CPUID, if it is KVM: the base, and the features.
fn kvm() -> Option<(u32, u32)> {
    let [_, _, features, _] = cpuid(1, 0);
    if features >> 31 == 0 {
        return None;
    }
    // Enlightenments of Hyper-V take the first place.
    let base = [0x4000_0000, 0x4000_0100].into_iter().find(|base| {
        let [_, b, c, d] = cpuid(*base, 0);
        [b, c, d] == [0x4b4d_564b, 0x564b_4d56, 0x0000_004d]
    })?;
    Some((base, cpuid(base + 1, 0)[0]))
}

/// True if CPUID has KVM's signature.
pub(crate) fn is_kvm() -> bool {
    kvm().is_some()
}

/// True if KVM offers its clock; it is started.
pub(crate) fn start_pvclock() -> bool {
    const CLOCKSOURCE2: u32 = 1 << 3;
    let offered = kvm().is_some_and(|(_, features)| features & CLOCKSOURCE2 != 0);
    if offered {
        start_kvm_clock();
    }
    offered
}

/// True if KVM offers its steal time; it is started.
pub(crate) fn start_steal_time() -> bool {
    const STEAL_TIME: u32 = 1 << 5;
    let offered = kvm().is_some_and(|(_, features)| features & STEAL_TIME != 0);
    if offered {
        start_kvm_steal_time();
    }
    offered
}

/// The time of KVM's clock, ns.
pub(crate) fn read_pvclock() -> u64 {
    loop {
        let version = clock_word(0);
        let at = |low: usize| u64::from(clock_word(low + 1)) << 32 | u64::from(clock_word(low));
        let (stamp, time, multiplier) = (at(2), at(4), clock_word(6));
        let shift = clock_word(7) as u8 as i8;
        let passed = clock().wrapping_sub(stamp);
        let passed = if shift < 0 { passed >> -shift } else { passed << shift };
        let scaled = (u128::from(passed) * u128::from(multiplier)) >> 32;
        if version & 1 == 0 && version == clock_word(0) {
            return time.wrapping_add(scaled as u64);
        }
    }
}

/// The clock's rate, kHz, and how it is known. KVM's clock was started if it is there.
pub(crate) fn rate(pvclock: bool) -> (u64, ClockSource) {
    if let Some((base, _)) = kvm()
        && cpuid(base, 0)[0] >= base + 0x10
        && let khz @ 1.. = cpuid(base + 0x10, 0)[0]
    {
        return (u64::from(khz), ClockSource::HypervisorLeaf);
    }
    if cpuid(0, 0)[0] >= 0x15
        && let [denominator, numerator, crystal, _] = cpuid(0x15, 0).map(u64::from)
        && denominator * numerator * crystal != 0
    {
        return (crystal * numerator / denominator / 1000, ClockSource::TscLeaf);
    }
    if pvclock && let multiplier @ 1.. = clock_word(6) {
        let khz = (1_000_000 << 32) / u64::from(multiplier);
        let shift = clock_word(7) as u8 as i8;
        let khz = if shift < 0 { khz << -shift } else { khz >> shift };
        return (khz, ClockSource::Pvclock);
    }
    match measured() {
        Some(khz) => (khz, ClockSource::Timer),
        None => (0, ClockSource::Unknown),
    }
}

/// Counts cycles while the interval timer's first channel counts down.
fn measured() -> Option<u64> {
    // Channel 0, both bytes, mode 0: down from the top, once.
    Port::TIMER_MODE.write(0x30);
    Port::TIMER.write(0xff);
    Port::TIMER.write(0xff);
    let count = || {
        Port::TIMER_MODE.write(0);
        u16::from_le_bytes([Port::TIMER.read(), Port::TIMER.read()])
    };
    // It counts from the next tick on.
    let patience = clock() + PATIENCE_CYCLES;
    let (mut first, mut begin) = (count(), clock());
    while first == u16::MAX {
        if clock() > patience {
            return None;
        }
        (first, begin) = (count(), clock());
    }
    loop {
        let (now, end) = (count(), clock());
        let ticks = first.checked_sub(now)?;
        if ticks >= TIMER_TICKS {
            return Some((end - begin) * TIMER_HZ / u64::from(ticks) / 1000);
        }
        if end > patience {
            return None;
        }
    }
}
