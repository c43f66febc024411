//! Instructions that Rust has no word for.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::metal::PAGE_BYTES;
use crate::metal::vcpu::{MAX_VCPUS, VCPUS, Vcpu, current};

/// A system register that is read, by its name.
macro_rules! read_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading changes nothing, but which interrupt is next.
        unsafe { asm!(concat!("mrs {}, ", $name), out(reg) value, options(nostack)) };
        value
    }};
}

/// A system register that is written, by its name.
macro_rules! write_register {
    ($name:literal, $value:expr) => {
        // SAFETY: it says nothing of where memory or code lies, or the value is made in
        // `metal`.
        unsafe { asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) $value, options(nostack)) }
    };
}

/// The clock, with nothing moved across its reading.
pub(crate) fn clock() -> u64 {
    let now: u64;
    // SAFETY: reading changes nothing.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) now, options(nostack)) };
    now
}

/// The clock, as fast as it goes.
pub(crate) fn clock_unordered() -> u64 {
    read_register!("cntvct_el0")
}

/// The clock's rate.
pub(crate) fn clock_hz() -> u64 {
    read_register!("cntfrq_el0")
}

/// Ticks of the clock for so many cycles, of which a processor has some 10^9 a second.
pub(crate) fn ticks(cycles: u64) -> u64 {
    (cycles / 1000 * (clock_hz() / 1000) / 1000).max(1)
}

/// Sets the timer's deadline and switches it on.
pub(crate) fn write_deadline(clock: u64) {
    write_register!("cntv_cval_el0", clock);
    write_register!("cntv_ctl_el0", 1_u64);
}

/// Has an event come each time bit `bit` of the clock, of 16, becomes 1.
pub(crate) fn start_events(bit: u64) {
    // The timers stay EL1's, as they are; the events are the virtual clock's.
    let control = read_register!("cntkctl_el1") & !0xfc;
    write_register!("cntkctl_el1", control | 1 << 2 | (bit & 15) << 4);
}

/// This vCPU's affinity, as interrupts and PSCI name it.
pub(crate) fn affinity() -> u64 {
    read_register!("mpidr_el1") & 0xff_00ff_ffff
}

/// True if there are system registers for interrupts (GICv3).
pub(crate) fn has_interrupt_registers() -> bool {
    feature_register() >> 24 & 15 != 0
}

/// ID_AA64PFR0_EL1, which says what the processor has.
pub(crate) fn feature_register() -> u64 {
    read_register!("id_aa64pfr0_el1")
}

/// A register that nothing here uses.
pub(crate) fn write_tpidrro(value: u64) {
    // SAFETY: nobody reads it.
    unsafe { asm!("msr tpidrro_el0, {}", in(reg) value, options(nomem, nostack)) };
}

/// Switches this vCPU's interrupts on, all priorities, group 1.
pub(crate) fn begin_interrupt_registers() {
    write_register!("s3_0_c12_c12_5", 7_u64); // ICC_SRE_EL1
    write_register!("s3_0_c4_c6_0", 0xff_u64); // ICC_PMR_EL1
    write_register!("s3_0_c12_c12_7", 1_u64); // ICC_IGRPEN1_EL1
}

/// Sends software's interrupts: ICC_SGI1R_EL1.
pub(crate) fn send_interrupt(to: u64) {
    // SAFETY: handlers of interrupts touch counters alone. What was written before is
    // seen by whoever it interrupts.
    unsafe { asm!("dsb ishst", "msr s3_0_c12_c11_5, {}", "isb", in(reg) to, options(nostack)) };
}

pub(super) fn set_vectors(address: u64) {
    write_register!("vbar_el1", address);
}

/// Points this vCPU to what is its own.
pub(super) fn set_own(index: usize) {
    assert!(index < MAX_VCPUS, "there is one for each");
    write_register!("tpidr_el1", VCPUS.as_ptr().wrapping_add(index) as u64);
}

/// What an exception was.
pub(super) fn syndrome() -> u64 {
    read_register!("esr_el1")
}

/// The address that an exception was about.
pub(super) fn fault_address() -> u64 {
    read_register!("far_el1")
}

/// Flushes all of this vCPU's TLB.
pub(crate) fn flush_tlb() {
    // SAFETY: what is flushed is read again from the tables.
    unsafe { asm!("tlbi vmalle1", "dsb nsh", "isb", options(nostack, preserves_flags)) };
}

/// Flushes reach other vCPUs by themselves.
pub(crate) const BROADCASTS_FLUSHES: bool = true;

/// Flushes one page from the TLBs of all vCPUs.
pub(crate) fn shoot_down() {
    invalidate(PAGE_BYTES);
}

/// Flushes one page from the TLBs of all vCPUs.
pub(crate) fn invalidate(address: u64) {
    let page = address / PAGE_BYTES;
    // SAFETY: as `flush_tlb`.
    unsafe {
        asm!(
            "dsb ishst", "tlbi vae1is, {}", "dsb ish", "isb", in(reg) page,
            options(nostack, preserves_flags)
        );
    }
}

/// Flushes one page from this vCPU's TLB.
pub(crate) fn invalidate_own(address: u64) {
    let page = address / PAGE_BYTES;
    // SAFETY: as `flush_tlb`.
    unsafe {
        asm!("tlbi vae1, {}", "dsb nsh", "isb", in(reg) page, options(nostack, preserves_flags));
    }
}

/// Tells the processor that this is a loop that waits.
pub(crate) fn relax() {
    // SAFETY: it does nothing.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// Waits for an event.
pub(crate) fn wait_for_event() {
    // SAFETY: it waits, at most until the event stream's next.
    unsafe { asm!("wfe", options(nostack, preserves_flags)) };
}

/// True if a vCPU can wait for a write: every processor has LDXR and WFE.
pub(crate) fn has_mwait() -> bool {
    true
}

/// Waits in WFE until `word` is written, if it is `value` still; or returns for any
/// reason, as WFE does.
pub(crate) fn wait_for_write(word: &AtomicU32, value: u32) {
    let found: u32;
    // SAFETY: a load, by which writes of others become events.
    unsafe {
        asm!("ldaxr {0:w}, [{1}]", out(reg) found, in(reg) word.as_ptr(), options(nostack));
    }
    if found == value {
        wait_for_event();
    }
}

pub(crate) fn interrupts_on() {
    // SAFETY: the handlers of interrupts touch counters alone, on a stack of their own.
    unsafe { asm!("msr daifclr, #2", "isb", options(nostack)) };
}

pub(crate) fn interrupts_off() {
    // SAFETY: less happens.
    unsafe { asm!("msr daifset, #2", options(nostack)) };
}

/// Halts until an interrupt has come, and switches interrupts on. One that waits
/// already is not missed.
pub(crate) fn halt() {
    VCPUS[current()].hlts.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as `interrupts_on`.
    unsafe { asm!("dsb sy", "wfi", "msr daifclr, #2", "isb", options(nostack)) };
}

/// Halts for good.
pub(crate) fn stop() -> ! {
    loop {
        // SAFETY: nothing happens any more.
        unsafe { asm!("msr daifset, #15", "wfi", options(nostack)) };
    }
}

/// Writes to address 0, which is an exception.
pub(crate) fn write_null() {
    // SAFETY: nothing is mapped there.
    unsafe { asm!("str xzr, [{}]", in(reg) 0_u64, options(nostack, preserves_flags)) };
}

/// An instruction that is none.
pub(crate) fn no_instruction() {
    // SAFETY: the exception ends the guest.
    unsafe { asm!("udf #0", options(nomem, nostack, preserves_flags)) };
}

static BY_SMC: AtomicBool = AtomicBool::new(false);

/// Says by which instruction the machine is called.
pub(crate) fn set_call_by_smc(smc: bool) {
    BY_SMC.store(smc, Ordering::Relaxed);
}

/// PSCI's version, by an instruction that is known to work.
pub(crate) fn hypercall() {
    const PSCI_VERSION: u64 = 0x8400_0000;
    // SAFETY: SMCCC 1.0 lets x0 to x17 change.
    unsafe {
        if BY_SMC.load(Ordering::Relaxed) {
            asm!("smc #0", inout("x0") PSCI_VERSION => _, clobber_abi("C"), options(nostack));
        } else {
            asm!("hvc #0", inout("x0") PSCI_VERSION => _, clobber_abi("C"), options(nostack));
        }
    }
}

/// Where another vCPU begins, a physical address: `start::entry`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry(pub(super) u64);

/// Functions of SMCCC that are called: none reaches into memory of Rust's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Function {
    PsciVersion,
    /// With the affinity of a vCPU that has not begun.
    CpuOn(u64, Entry),
    SystemOff,
    SystemReset,
    /// Who the hypervisor is.
    VendorUid,
    /// Whether there is stolen time; where this vCPU's is.
    PvTimeFeatures,
    PvTimeStolen,
}

/// Calls a function: its four results, or none if that is no instruction here.
pub(crate) fn call(function: Function) -> Option<[u64; 4]> {
    let [id, a, b] = match function {
        Function::PsciVersion => [0x8400_0000, 0, 0],
        Function::CpuOn(affinity, entry) => [0xc400_0003, affinity, entry.0],
        Function::SystemOff => [0x8400_0008, 0, 0],
        Function::SystemReset => [0x8400_0009, 0, 0],
        Function::VendorUid => [0x8600_ff01, 0, 0],
        Function::PvTimeFeatures => [0xc500_0020, 0xc500_0021, 0],
        Function::PvTimeStolen => [0xc500_0021, 0, 0],
    };
    let recovered = &VCPUS[current()].recovered;
    recovered.store(0, Ordering::SeqCst);
    let (x0, x1, x2, x3): (u64, u64, u64, u64);
    macro_rules! by {
        ($instruction:literal) => {
            asm!(
                "adr x4, 2f", "mrs x5, tpidr_el1", "str x4, [x5, {recover}]", "mov x3, #0",
                $instruction, "2:", "mrs x5, tpidr_el1", "str xzr, [x5, {recover}]",
                recover = const core::mem::offset_of!(Vcpu, recover),
                inout("x0") id => x0, inout("x1") a => x1, inout("x2") b => x2,
                lateout("x3") x3, clobber_abi("C"), options(nostack)
            )
        };
    }
    // SAFETY: SMCCC 1.0 lets x0 to x17 change; `on_exception` goes on at the label with
    // all registers as they are.
    unsafe { if BY_SMC.load(Ordering::Relaxed) { by!("smc #0") } else { by!("hvc #0") } }
    (recovered.load(Ordering::SeqCst) == 0).then_some([x0, x1, x2, x3])
}

unsafe extern "C" {
    #[link_name = "system_calls"]
    fn raw_system_calls(count: u64);
    #[link_name = "null_io_from_ring_3"]
    fn raw_null_io(count: u64, buffer: *mut u8, bytes: u64, file: u64) -> u64;
    #[link_name = "empty_call"]
    fn raw_empty_call();
}

/// `count` system calls from EL0 and back, interrupts off.
pub(crate) fn system_calls(count: u32) {
    assert!(count > 0, "the program makes one at the least");
    // SAFETY: EL0 runs `user_loop` alone, which ends with the call that comes back
    // here; all registers that a function keeps are kept.
    unsafe { raw_system_calls(u64::from(count)) };
}

/// `count` writes of `bytes` to `file` and reads from it by a program in EL0,
/// interrupts off; how many of the calls did as the null device does.
pub(crate) fn null_io_from_ring_3(count: u32, file: u32, bytes: &mut [u8]) -> u64 {
    assert!(count > 0, "the program makes one at the least");
    let (buffer, length) = (bytes.as_mut_ptr(), bytes.len() as u64);
    // SAFETY: EL0 runs `user_io` alone, which gives its calls `bytes` as they are and
    // nothing else, and ends with the call that comes back here; all registers that a
    // function keeps are kept.
    unsafe { raw_null_io(u64::from(count), buffer, length, u64::from(file)) }
}

/// A call of an empty function.
pub(crate) fn empty_call() {
    // SAFETY: it returns.
    unsafe { raw_empty_call() };
}
