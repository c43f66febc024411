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
