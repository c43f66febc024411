//! Instructions that Rust has no word for.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, _mm_lfence, _rdtsc};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::metal::vcpu::{VCPUS, Vcpu, current};

/// Registers of CPUID: eax, ebx, ecx, edx.
pub(crate) fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let found = __cpuid_count(leaf, subleaf);
    [found.eax, found.ebx, found.ecx, found.edx]
}

/// The clock, with nothing moved across its reading.
pub(crate) fn clock() -> u64 {
    // SAFETY: every 64-bit processor has both.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// The clock, as fast as it goes.
pub(crate) fn clock_unordered() -> u64 {
    // SAFETY: every 64-bit processor has it.
    unsafe { _rdtsc() }
}

/// The model-specific registers that are used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Msr {
    ApicBase,
    TscDeadline,
    KernelGsBase,
    /// A register of the local APIC, by its offset in the xAPIC page.
    X2apic(u32),
    /// Where KVM writes its clock; the value is made here.
    KvmClock,
    /// Where KVM writes the steal time; the value is made here.
    KvmStealTime,
    /// How long the core was in C3.
    CoreC3Residency,
    /// For `vcpu` alone.
    GsBase,
    Star,
    Lstar,
    SyscallMask,
}

impl Msr {
    fn number(self) -> u32 {
        match self {
            Self::ApicBase => 0x1b,
            Self::TscDeadline => 0x6e0,
            Self::KernelGsBase => 0xc000_0102,
            Self::X2apic(offset) => 0x800 + (offset & 0xff0) / 16,
            Self::KvmClock => 0x4b56_4d01,
            Self::KvmStealTime => 0x4b56_4d03,
            Self::CoreC3Residency => 0x3fc,
            Self::GsBase => 0xc000_0101,
            Self::Star => 0xc000_0081,
            Self::Lstar => 0xc000_0082,
            Self::SyscallMask => 0xc000_0084,
        }
    }
}

pub(crate) fn read_msr(msr: Msr) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading changes nothing; a register that is not there is an exception.
    unsafe {
        asm!(
            "rdmsr", in("ecx") msr.number(), out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags)
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a register. Those that say where memory or code lies are written by
/// `metal` alone, with addresses of its own.
pub(super) fn write_msr(msr: Msr, value: u64) {
    // SAFETY: the callers' values fit the registers' meaning, as they say.
    unsafe {
        asm!(
            "wrmsr", in("ecx") msr.number(), in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags)
        );
    }
}

/// The local APIC's mode and place.
pub(crate) fn write_apic_base(value: u64) {
    // It stays where it is: in the memory of devices.
    write_msr(Msr::ApicBase, value & 0xdff | 0xfee0_0000);
}

pub(crate) fn write_deadline(clock: u64) {
    write_msr(Msr::TscDeadline, clock);
}

/// A register that nothing here uses: there is no SWAPGS.
pub(crate) fn write_kernel_gs_base(value: u64) {
    write_msr(Msr::KernelGsBase, value & 0x7fff_ffff);
}

pub(crate) fn write_x2apic(offset: u32, value: u64) {
    write_msr(Msr::X2apic(offset), value);
}

/// A port. None of the devices behind those that are used reaches into memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port(u16);

impl Port {
    /// The serial port's register.
    pub(crate) const fn serial(register: u16) -> Self {
        Self(0x3f8 + register % 8)
    }
    /// The interval timer's first channel, and the mode of all.
    pub(crate) const TIMER: Self = Self(0x40);
    pub(crate) const TIMER_MODE: Self = Self(0x43);
    /// The masks of the two old interrupt controllers, and which lines are levels.
    pub(crate) const PIC_MASKS: [Self; 2] = [Self(0x21), Self(0xa1)];
    pub(crate) const PIC_LEVELS: Self = Self(0x4d0);
    /// QEMU's isa-debug-exit.
    pub(crate) const DEBUG_EXIT: Self = Self(0xf4);
    /// The chipset's reset, and the keyboard controller's.
    pub(crate) const RESET: Self = Self(0xcf9);
    pub(crate) const KEYBOARD: Self = Self(0x64);
    /// ACPI's power management, where firmware says.
    pub(crate) const fn acpi(port: u16) -> Self {
        Self(port)
    }

    pub(crate) fn read(self) -> u8 {
        let value: u8;
        // SAFETY: see `Port`.
        unsafe {
            asm!("in al, dx", in("dx") self.0, out("al") value, options(nostack, preserves_flags));
        }
        value
    }

    pub(crate) fn write(self, value: u8) {
        // SAFETY: see `Port`.
        unsafe {
            asm!("out dx, al", in("dx") self.0, in("al") value, options(nostack, preserves_flags));
        }
    }

    pub(crate) fn write_u16(self, value: u16) {
        // SAFETY: see `Port`.
        unsafe {
            asm!("out dx, ax", in("dx") self.0, in("ax") value, options(nostack, preserves_flags));
        }
    }
}

/// The address of the last page fault.
pub(super) fn page_fault_address() -> u64 {
    let address: u64;
    // SAFETY: reading changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Flushes all of the TLB that is not global.
pub(crate) fn flush_tlb() {
    // SAFETY: the same value is written back.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags)) };
}

/// Flushes one page from the TLB.
pub(crate) fn invalidate(address: u64) {
    // SAFETY: what is flushed is read again from the tables.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Flushes reach other vCPUs by an interrupt alone.
pub(crate) const BROADCASTS_FLUSHES: bool = false;

/// Nothing: see [`BROADCASTS_FLUSHES`].
pub(crate) fn shoot_down() {}

/// Tells the processor that this is a loop that waits.
pub(crate) fn relax() {
    core::hint::spin_loop();
}

/// Ticks of the clock for so many cycles.
pub(crate) fn ticks(cycles: u64) -> u64 {
    cycles
}

/// True if the guest is offered MONITOR and MWAIT.
pub(crate) fn has_mwait() -> bool {
    cpuid(1, 0)[2] & 1 << 3 != 0
}

pub(crate) fn interrupts_on() {
    // SAFETY: the handlers of interrupts touch counters alone, on stacks of their own.
    unsafe { asm!("sti", "nop", options(nostack)) };
}

pub(crate) fn interrupts_off() {
    // SAFETY: less happens.
    unsafe { asm!("cli", options(nostack)) };
}

/// Switches interrupts on and halts until one has come. One that waits already is
/// not missed.
pub(crate) fn halt() {
    VCPUS[current()].hlts.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as `interrupts_on`.
    unsafe { asm!("sti", "hlt", options(nostack)) };
}

/// Halts for good.
pub(crate) fn stop() -> ! {
    loop {
        // SAFETY: nothing happens any more.
        unsafe { asm!("cli", "hlt", options(nostack)) };
    }
}

/// Writes to address 0, which is an exception.
pub(crate) fn write_null() {
    // SAFETY: nothing is there: `memory::take_page_0_away`.
    unsafe { asm!("mov qword ptr [0], 0", options(nostack, preserves_flags)) };
}

/// An instruction that is none.
pub(crate) fn no_instruction() {
    // SAFETY: the exception ends the guest.
    unsafe { asm!("ud2", options(nomem, nostack, preserves_flags)) };
}

/// Waits in MWAIT until `word` is written, if it is `value` still; or returns for
/// any reason, as MWAIT does.
pub(crate) fn wait_for_write(word: &AtomicU32, value: u32) {
    // SAFETY: MONITOR only watches the address.
    unsafe {
        asm!("monitor", in("rax") word.as_ptr(), in("ecx") 0, in("edx") 0, options(nostack));
    }
    if word.load(Ordering::SeqCst) == value {
        // SAFETY: it waits, at most until the next interrupt.
        unsafe { asm!("mwait", in("eax") 0, in("ecx") 0, options(nostack)) };
    }
}

/// Whose instruction calls the hypervisor.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Caller {
    Intel,
    Amd,
}

/// The hypercall that does nothing.
pub(crate) fn hypercall(caller: Caller) {
    const KVM_HC_VAPIC_POLL_IRQ: u64 = 1;
    // SAFETY: KVM changes rax alone (Documentation/virt/kvm/x86/hypercalls.rst).
    unsafe {
        match caller {
            Caller::Intel => {
                asm!("vmcall", inout("rax") KVM_HC_VAPIC_POLL_IRQ => _, options(nostack));
            }
            Caller::Amd => {
                asm!("vmmcall", inout("rax") KVM_HC_VAPIC_POLL_IRQ => _, options(nostack));
            }
        }
    }
}

/// The same, once: false if it raised an exception.
pub(crate) fn try_hypercall(caller: Caller) -> bool {
    let recovered = &VCPUS[current()].recovered;
    recovered.store(0, Ordering::SeqCst);
    // SAFETY: as `hypercall`; `on_exception` goes on at the label with all registers
    // as they are.
    unsafe {
        match caller {
            Caller::Intel => asm!(
                "lea {at}, [rip + 2f]", "mov gs:[{recover}], {at}", "vmcall", "2:",
                "mov qword ptr gs:[{recover}], 0",
                at = out(reg) _, recover = const core::mem::offset_of!(Vcpu, recover),
                inout("rax") 1_u64 => _, options(nostack)
            ),
            Caller::Amd => asm!(
                "lea {at}, [rip + 2f]", "mov gs:[{recover}], {at}", "vmmcall", "2:",
                "mov qword ptr gs:[{recover}], 0",
                at = out(reg) _, recover = const core::mem::offset_of!(Vcpu, recover),
                inout("rax") 1_u64 => _, options(nostack)
            ),
        }
    }
    recovered.load(Ordering::SeqCst) == 0
}

/// Reads a register once: false if that raised an exception.
pub(crate) fn try_msr(msr: Msr) -> bool {
    let recovered = &VCPUS[current()].recovered;
    recovered.store(0, Ordering::SeqCst);
    // SAFETY: reading changes nothing; `on_exception` goes on at the label with all
    // registers as they are.
    unsafe {
        asm!(
            "lea {at}, [rip + 2f]", "mov gs:[{recover}], {at}", "rdmsr", "2:",
            "mov qword ptr gs:[{recover}], 0",
            at = out(reg) _, recover = const core::mem::offset_of!(Vcpu, recover),
            in("ecx") msr.number(), out("eax") _, out("edx") _, options(nostack)
        );
    }
    recovered.load(Ordering::SeqCst) == 0
}

unsafe extern "C" {
    #[link_name = "system_calls"]
    fn raw_system_calls(count: u64);
    #[link_name = "null_io_from_ring_3"]
    fn raw_null_io(count: u64, buffer: *mut u8, bytes: u64, file: u64) -> u64;
    #[link_name = "empty_call"]
    fn raw_empty_call();
}

/// `count` system calls from ring 3 and back, interrupts off. Only the first vCPU
/// has a stack for it.
pub(crate) fn system_calls(count: u32) {
    assert!(current() == 0 && count > 0, "the stack to return to is the first vCPU's");
    // SAFETY: ring 3 runs `user_loop` alone, which ends with the call that comes back
    // here; all registers that a function keeps are kept.
    unsafe { raw_system_calls(u64::from(count)) };
}

/// `count` writes of `bytes` to `file` and reads from it by a program in ring 3,
/// interrupts off; how many of the calls did as the null device does. Only the first
/// vCPU has a stack for it.
pub(crate) fn null_io_from_ring_3(count: u32, file: u32, bytes: &mut [u8]) -> u64 {
    assert!(current() == 0 && count > 0, "the stack to return to is the first vCPU's");
    let (buffer, length) = (bytes.as_mut_ptr(), bytes.len() as u64);
    // SAFETY: ring 3 runs `user_io` alone, which gives its calls `bytes` as they are
    // and nothing else, and ends with the call that comes back here; all registers
    // that a function keeps are kept.
    unsafe { raw_null_io(u64::from(count), buffer, length, u64::from(file)) }
}

/// A call of an empty function.
pub(crate) fn empty_call() {
    // SAFETY: it returns.
    unsafe { raw_empty_call() };
}
