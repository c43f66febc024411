//! The clock's rate, and what the hypervisor says of time.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::metal::instruction::{Function, call};
use crate::metal::memory::Register;

/// Where the hypervisor writes what others took; 0 if it doesn't.
static STOLEN: AtomicU64 = AtomicU64::new(0);

/// True if SMCCC's vendor is KVM.
pub(crate) fn is_kvm() -> bool {
    const KVM: [u64; 4] = [0xb66f_b428, 0xe911_c52e, 0x564b_caa9, 0x743a_004d];
    call(Function::VendorUid).is_some_and(|found| found.map(|word| word & 0xffff_ffff) == KVM)
}

/// True if the hypervisor tells stolen time (Arm DEN 0057, PV_TIME_ST).
pub(crate) fn start_steal_time() -> bool {
    if call(Function::PvTimeFeatures).is_none_or(|found| found[0] != 0) {
        return false;
    }
    let at = call(Function::PvTimeStolen).map_or(0, |found| found[0]);
    let is_there = [at, at + 8, at + 12].into_iter().all(|at| Register::at(at).is_some());
    STOLEN.store(if is_there { at } else { 0 }, Ordering::Relaxed);
    is_there
}

/// What others took, ns.
pub(crate) fn steal_ns() -> u64 {
    let at = STOLEN.load(Ordering::Relaxed);
    let word = |offset: u64| Register::at(at + offset).map_or(0, |word| u64::from(word.read()));
    loop {
        let (high, low) = (word(12), word(8));
        if word(12) == high {
            return high << 32 | low;
        }
    }
}
