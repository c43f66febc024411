//! What belongs to each vCPU.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Most vCPUs that are started.
pub(crate) const MAX_VCPUS: usize = 64;

/// The interrupts that are counted.
pub(crate) const TIMER_VECTOR: u8 = 0x40;
pub(crate) const IPI_VECTOR: u8 = 0x41;
pub(crate) const SHOOTDOWN_VECTOR: u8 = 0x42;
pub(crate) const SPURIOUS_VECTOR: u8 = 0xff;

/// What belongs to one vCPU; `gs` points to it.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Vcpu {
    /// Interrupts of the timer that it has handled.
    pub(crate) timers: AtomicU64,
    /// IPIs that it has handled.
    pub(crate) ipis: AtomicU64,
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
    /// HLTs that it has executed.
    pub(crate) hlts: AtomicU64,
    /// IPIs that it has sent.
    pub(crate) sent: AtomicU64,
    /// The local APIC's identity.
    pub(crate) apic_id: AtomicU32,
}

/// All of them; only the first so many are used.
pub(crate) static VCPUS: [Vcpu; MAX_VCPUS] = [const {
    Vcpu {
        timers: AtomicU64::new(0),
        ipis: AtomicU64::new(0),
        recover: AtomicU64::new(0),
        recovered: AtomicU64::new(0),
        index: AtomicU32::new(0),
        job: AtomicU32::new(0),
        doing: AtomicU32::new(0),
        halted: AtomicU32::new(0),
        hlts: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        apic_id: AtomicU32::new(0),
    }
}; MAX_VCPUS];

/// The number of the vCPU that runs this.
pub(crate) fn current() -> usize {
    let index: u32;
    // SAFETY: `gs` points to this vCPU's element since `load_tables`.
    unsafe {
        asm!(
            "mov {0:e}, gs:[{1}]", out(reg) index, const core::mem::offset_of!(Vcpu, index),
            options(readonly, nostack, preserves_flags)
        );
    }
    index as usize
}
