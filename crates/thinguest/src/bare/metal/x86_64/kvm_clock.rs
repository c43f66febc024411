//! The clock that KVM writes.

use core::cell::UnsafeCell;

use super::instruction::{Msr, write_msr};

/// Where KVM writes its clock: `struct pvclock_vcpu_time_info`.
#[repr(C, align(64))]
struct Clock(UnsafeCell<[u32; 8]>);
// SAFETY: Rust only reads it, word by word, volatile.
unsafe impl Sync for Clock {}
static CLOCK: Clock = Clock(UnsafeCell::new([0; 8]));

/// The address that KVM is told.
fn clock_address() -> u64 {
    CLOCK.0.get() as u64
}

/// Where KVM writes what others took: `struct kvm_steal_time`.
#[repr(C, align(64))]
struct Steal(UnsafeCell<[u64; 8]>);
// SAFETY: as `Clock`.
unsafe impl Sync for Steal {}
static STEAL: Steal = Steal(UnsafeCell::new([0; 8]));

/// Asks KVM to write what others took of this vCPU's time.
pub(crate) fn start_kvm_steal_time() {
    write_msr(Msr::KvmStealTime, STEAL.0.get() as u64 | 1);
}

/// What they took, ns.
pub(crate) fn steal_ns() -> u64 {
    // SAFETY: an aligned word, written by KVM while we are outside of the guest.
    unsafe { STEAL.0.get().cast::<u64>().read_volatile() }
}

/// Word `index` of KVM's clock.
pub(crate) fn clock_word(index: usize) -> u32 {
    let base = CLOCK.0.get().cast::<u32>();
    assert!(index < 8, "the clock has 8 words");
    // SAFETY: within the array; KVM writes it while we are outside of the guest.
    unsafe { base.add(index).read_volatile() }
}

/// Asks KVM to write its clock.
pub(crate) fn start_kvm_clock() {
    write_msr(Msr::KvmClock, clock_address() | 1);
}
