//! How each vCPU gets to Rust: its stacks and descriptor tables.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::instruction::{self, Msr};
use super::pages;
use crate::metal::PAGE_BYTES;
use crate::metal::vcpu::{MAX_VCPUS, VCPUS};

/// The interrupts that are counted.
pub(crate) const TIMER_VECTOR: u8 = 0x40;
pub(crate) const IPI_VECTOR: u8 = 0x41;
pub(crate) const SHOOTDOWN_VECTOR: u8 = 0x42;
pub(crate) const DEVICE_VECTOR: u8 = 0x43;
pub(crate) const SPURIOUS_VECTOR: u8 = 0xff;

const PAGE: usize = PAGE_BYTES as usize;
const STACK_BYTES: usize = 64 << 10;
const FAULT_STACK_BYTES: usize = 8 << 10;
const INTERRUPT_STACK_BYTES: usize = 4 << 10;

/// The stacks of a vCPU, below each a page that is taken away.
#[repr(C, align(4096))]
struct Stacks {
    guard: [u8; PAGE],
    main: [u8; STACK_BYTES],
    fault_guard: [u8; PAGE],
    fault: [u8; FAULT_STACK_BYTES],
    interrupt_guard: [u8; PAGE],
    interrupt: [u8; INTERRUPT_STACK_BYTES],
}

/// Memory that only the processor and assembler write.
#[repr(transparent)]
struct RawMemory<T>(UnsafeCell<T>);

// SAFETY: Rust reads and writes it through raw pointers alone, each where it says why.
unsafe impl<T> Sync for RawMemory<T> {}

static STACKS: RawMemory<[Stacks; MAX_VCPUS]> = RawMemory(UnsafeCell::new(
    [const {
        Stacks {
            guard: [0; PAGE],
            main: [0; STACK_BYTES],
            fault_guard: [0; PAGE],
            fault: [0; FAULT_STACK_BYTES],
            interrupt_guard: [0; PAGE],
            interrupt: [0; INTERRUPT_STACK_BYTES],
        }
    }; MAX_VCPUS],
));

/// The first vCPU's stack, from its end; `boot.s` loads it.
#[repr(transparent)]
pub(super) struct Address(*const u8);
// SAFETY: it is a number to everybody.
unsafe impl Sync for Address {}
pub(super) static FIRST_STACK_END: Address = Address(
    // SAFETY: the offset lies within the array's first element.
    unsafe { STACKS.0.get().cast::<u8>().add(PAGE + STACK_BYTES) },
);

/// The stack and the number of the vCPU that is being started.
pub(super) static NEXT_STACK: AtomicU64 = AtomicU64::new(0);
pub(super) static NEXT_INDEX: AtomicU32 = AtomicU32::new(0);

/// The stack to which ring 3 returns.
pub(super) static KERNEL_STACK: AtomicU64 = AtomicU64::new(0);

fn stacks_of(index: usize) -> u64 {
    (STACKS.0.get() as usize + index * size_of::<Stacks>()) as u64
}

/// The pages below the stacks of all vCPUs, to be taken away.
fn guard_pages() -> impl Iterator<Item = u64> {
    (0..MAX_VCPUS).flat_map(|index| {
        let base = stacks_of(index);
        [
            core::mem::offset_of!(Stacks, guard),
            core::mem::offset_of!(Stacks, fault_guard),
            core::mem::offset_of!(Stacks, interrupt_guard),
        ]
        .map(|offset| base + offset as u64)
    })
}

/// Takes the pages below the stacks away.
fn take_guards_away() {
    guard_pages().for_each(pages::take_away);
}

/// A task-state segment: which stack an exception takes.
#[repr(C, packed(4))]
struct Tss {
    reserved: u32,
    rsp: [u64; 3],
    reserved_2: u64,
    /// 1: exceptions, 2: interrupts.
    ist: [u64; 7],
    reserved_3: u64,
    reserved_4: u16,
    io_map: u16,
}

#[repr(C)]
struct Tables {
    gdt: [u64; 8],
    tss: Tss,
}

static TABLES: RawMemory<[Tables; MAX_VCPUS]> = RawMemory(UnsafeCell::new(
    [const {
        Tables {
            gdt: [0; 8],
            tss: Tss {
                reserved: 0,
                rsp: [0; 3],
                reserved_2: 0,
                ist: [0; 7],
                reserved_3: 0,
                reserved_4: 0,
                io_map: 104,
            },
        }
    }; MAX_VCPUS],
));

static IDT: RawMemory<[[u64; 2]; 256]> = RawMemory(UnsafeCell::new([[0; 2]; 256]));

#[repr(C, packed)]
struct TablePointer {
    limit: u16,
    base: u64,
}

// Names that `boot.s` and `interrupt.s` define.
unsafe extern "C" {
    static exceptions: [u64; 32];
    fn on_timer_xapic();
    fn on_timer_x2apic();
    fn on_ipi_xapic();
    fn on_ipi_x2apic();
    fn on_shootdown_xapic();
    fn on_shootdown_x2apic();
    fn on_device_xapic();
    fn on_device_x2apic();
    fn on_spurious();
    fn on_syscall();
    static ap_start: u8;
    static ap_start_end: u8;
}

/// A gate that takes `handler` on the stack `ist`, with interrupts off.
fn gate(handler: u64, ist: u64) -> [u64; 2] {
    let low = (handler & 0xffff) | (0x08 << 16) | (ist << 32) | (0x8e << 40);
    [low | ((handler >> 16) & 0xffff) << 48, handler >> 32]
}

fn set_gate(vector: u8, value: [u64; 2]) {
    // SAFETY: the first vCPU alone writes gates, while interrupts are off.
    unsafe { (*IDT.0.get())[usize::from(vector)] = value };
}

/// Fills the interrupt table: exceptions and what no APIC is needed for.
fn fill_exceptions() {
    // SAFETY: `interrupt.s` defines it, with 32 entries that nobody writes.
    let handlers = unsafe { &exceptions };
    for (vector, handler) in (0..).zip(handlers) {
        set_gate(vector, gate(*handler, 1));
    }
    set_gate(SPURIOUS_VECTOR, gate(on_spurious as *const () as u64, 2));
}

/// Sets the counted interrupts, which end with a write to the local APIC.
pub(crate) fn set_counted(x2apic: bool) {
    let handlers = if x2apic {
        [
            on_timer_x2apic as *const (),
            on_ipi_x2apic as *const (),
            on_shootdown_x2apic as *const (),
            on_device_x2apic as *const (),
        ]
    } else {
        [
            on_timer_xapic as *const (),
            on_ipi_xapic as *const (),
            on_shootdown_xapic as *const (),
            on_device_xapic as *const (),
        ]
    };
    let vectors = [TIMER_VECTOR, IPI_VECTOR, SHOOTDOWN_VECTOR, DEVICE_VECTOR];
    for (vector, handler) in vectors.into_iter().zip(handlers) {
        set_gate(vector, gate(handler as u64, 2));
    }
}

/// Loads this vCPU's tables. After it exceptions are records.
fn load_tables(index: usize) {
    let stacks = stacks_of(index);
    let end = |offset: usize, bytes: usize| stacks + (offset + bytes) as u64;
    let fault = end(core::mem::offset_of!(Stacks, fault), FAULT_STACK_BYTES);
    let interrupt = end(core::mem::offset_of!(Stacks, interrupt), INTERRUPT_STACK_BYTES);
    let main = end(core::mem::offset_of!(Stacks, main), STACK_BYTES);
    let tables = TABLES.0.get().cast::<Tables>().wrapping_add(index);
    // SAFETY: each vCPU writes its own element, once, before the processor reads it.
    let (gdt, base) = unsafe {
        (*tables).tss.rsp = [main, 0, 0];
        (*tables).tss.ist = [fault, interrupt, 0, 0, 0, 0, 0];
        let tss = &raw const (*tables).tss as u64;
        (*tables).gdt = [
            0,
            0x0020_9a00_0000_0000,
            0x00cf_9200_0000_ffff,
            0x00cf_fa00_0000_ffff,
            0x00cf_f200_0000_ffff,
            0x0020_fa00_0000_0000,
            103 | (tss & 0xff_ffff) << 16 | 0x89 << 40 | (tss >> 24 & 0xff) << 56,
            tss >> 32,
        ];
        (&raw const (*tables).gdt as u64, VCPUS.as_ptr().wrapping_add(index) as u64)
    };
    let gdt = TablePointer { limit: 63, base: gdt };
    let idt = TablePointer { limit: 4095, base: IDT.0.get() as u64 };
    // SAFETY: both tables are filled and stay; the selectors in use mean the same in
    // the new GDT.
    unsafe {
        asm!("lgdt [{}]", in(reg) &raw const gdt, options(readonly, nostack));
        asm!("lidt [{}]", in(reg) &raw const idt, options(readonly, nostack));
        asm!("ltr {0:x}", in(reg) 0x30_u16, options(nostack));
    }
    instruction::write_msr(Msr::GsBase, base);
    // SYSCALL: CS 0x08, SS 0x10; SYSRET: CS 0x2b, SS 0x23; all flags off on entry.
    instruction::write_msr(Msr::Star, 0x18 << 48 | 0x08 << 32);
    instruction::write_msr(Msr::Lstar, on_syscall as *const () as u64);
    instruction::write_msr(Msr::SyscallMask, 0x0004_7700);
    VCPUS[index].index.store(index as u32, Ordering::Relaxed);
}

/// Where `boot.s` brings the first vCPU, with the address of PVH's start_info.
pub(super) extern "C" fn first_vcpu(start_info: u32) -> ! {
    fill_exceptions();
    load_tables(0);
    take_guards_away();
    crate::main(u64::from(start_info))
}

/// Where `boot.s` brings every other one.
pub(super) extern "C" fn other_vcpu(index: u32) -> ! {
    load_tables(index as usize);
    crate::other_main(index as usize)
}

/// Puts the start of other vCPUs to 0x8000 and says which is next. None is being
/// started when this is called.
pub(crate) fn prepare_start(index: usize) {
    const AT: *mut u8 = 0x8000 as *mut u8;
    let (from, end) = (&raw const ap_start, &raw const ap_start_end);
    let stack = stacks_of(index) + (core::mem::offset_of!(Stacks, main) + STACK_BYTES) as u64;
    NEXT_STACK.store(stack, Ordering::SeqCst);
    NEXT_INDEX.store(index as u32, Ordering::SeqCst);
    // SAFETY: the page at 0x8000 is given to nobody (the pool begins above the image);
    // `boot.s` ends the code at `ap_start_end`.
    unsafe { core::ptr::copy(from, AT, end as usize - from as usize) };
}
