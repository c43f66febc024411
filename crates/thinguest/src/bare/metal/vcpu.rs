//! What belongs to each vCPU.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) use thinguest::MAX_VCPUS;

/// What belongs to one vCPU; a register of its own (`gs`, `TPIDR_EL1`) points to it.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Vcpu {
    /// Interrupts of the timer that it has handled.
    pub(crate) timers: AtomicU64,
    /// IPIs that it has handled.
    pub(crate) ipis: AtomicU64,
    /// Interrupts of devices that it has handled.
    pub(crate) devices: AtomicU64,
    /// Where to go on after an exception that is expected, or 0.
    pub(super) recover: AtomicU64,
    /// One more than the exception that was expected and came.
    pub(super) recovered: AtomicU64,
    /// Its number, from 0.
    pub(super) index: AtomicU32,
    /// What it is to do, and what it does: `cpus::Job`.
    pub(crate) job: AtomicU32,
    pub(crate) doing: AtomicU32,
    /// 1 from shortly before it halts until it runs again.
    pub(crate) halted: AtomicU32,
    /// HLTs or WFIs that it has executed.
    pub(crate) hlts: AtomicU64,
    /// IPIs that it has sent.
    pub(crate) sent: AtomicU64,
    /// By what interrupts reach it: its local APIC's identity, its affinity.
    pub(crate) id: AtomicU64,
}

/// All of them; only the first so many are used.
pub(crate) static VCPUS: [Vcpu; MAX_VCPUS] = [const {
    Vcpu {
        timers: AtomicU64::new(0),
        ipis: AtomicU64::new(0),
        devices: AtomicU64::new(0),
        recover: AtomicU64::new(0),
        recovered: AtomicU64::new(0),
        index: AtomicU32::new(0),
        job: AtomicU32::new(0),
        doing: AtomicU32::new(0),
        halted: AtomicU32::new(0),
        hlts: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        id: AtomicU64::new(0),
    }
}; MAX_VCPUS];

/// The number of the vCPU that runs this.
pub(crate) fn current() -> usize {
    let index: u32;
    const AT: usize = core::mem::offset_of!(Vcpu, index);
    // SAFETY: `gs` points to this vCPU's element since `load_tables`.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov {0:e}, gs:[{1}]", out(reg) index, const AT,
            options(readonly, nostack, preserves_flags)
        );
    }
    // SAFETY: TPIDR_EL1 points to this vCPU's element since `enter`.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "mrs {1}, tpidr_el1", "ldr {0:w}, [{1}, {2}]", out(reg) index, out(reg) _,
            const AT, options(readonly, nostack, preserves_flags)
        );
    }
    index as usize
}
