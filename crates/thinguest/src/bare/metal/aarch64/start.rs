//! How each vCPU gets to Rust: its stacks and vectors.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use thinguest::acpi::VIRTUAL_TIMER;

use super::instruction::{self, Entry};
use super::pages;
use crate::metal::PAGE_BYTES;
use crate::metal::memory::Register;
use crate::metal::vcpu::{MAX_VCPUS, VCPUS};

const PAGE: usize = PAGE_BYTES as usize;
const STACK_BYTES: usize = 64 << 10;
const FAULT_STACK_BYTES: usize = 8 << 10;

/// The stacks of a vCPU, below each a page that is taken away.
#[repr(C, align(4096))]
struct Stacks {
    guard: [u8; PAGE],
    main: [u8; STACK_BYTES],
    fault_guard: [u8; PAGE],
    fault: [u8; FAULT_STACK_BYTES],
}

const MAIN_END: usize = core::mem::offset_of!(Stacks, main) + STACK_BYTES;
const FAULT_END: usize = core::mem::offset_of!(Stacks, fault) + FAULT_STACK_BYTES;

/// Memory that only the processor and assembler write.
#[repr(transparent)]
struct RawMemory<T>(UnsafeCell<T>);

// SAFETY: Rust uses its address alone.
unsafe impl<T> Sync for RawMemory<T> {}

static STACKS: RawMemory<[Stacks; MAX_VCPUS]> = RawMemory(UnsafeCell::new(
    [const {
        Stacks {
            guard: [0; PAGE],
            main: [0; STACK_BYTES],
            fault_guard: [0; PAGE],
            fault: [0; FAULT_STACK_BYTES],
        }
    }; MAX_VCPUS],
));

/// The first vCPU's stacks, from their ends; `boot.s` loads them.
#[repr(transparent)]
pub(super) struct Address(*const u8);
// SAFETY: it is a number to everybody.
unsafe impl Sync for Address {}
pub(super) static FIRST_STACK_END: Address = Address(
    // SAFETY: the offset lies within the array's first element.
    unsafe { STACKS.0.get().cast::<u8>().add(MAIN_END) },
);
pub(super) static FIRST_FAULT_STACK_END: Address = Address(
    // SAFETY: as above.
    unsafe { STACKS.0.get().cast::<u8>().add(FAULT_END) },
);

/// The stacks and the number of the vCPU that is being started.
pub(super) static NEXT_STACK: AtomicU64 = AtomicU64::new(0);
pub(super) static NEXT_FAULT_STACK: AtomicU64 = AtomicU64::new(0);
pub(super) static NEXT_INDEX: AtomicU32 = AtomicU32::new(0);

/// Where interrupts are acknowledged by memory accesses (GICv2).
pub(super) static CPU_INTERFACE: AtomicU64 = AtomicU64::new(0);

/// The virtual timer's interrupt, which `interrupt.s` tells from devices'.
pub(super) static TIMER_INTERRUPT: AtomicU32 = AtomicU32::new(VIRTUAL_TIMER);

/// Says which it is.
pub(crate) fn set_timer_interrupt(number: u32) {
    TIMER_INTERRUPT.store(number, Ordering::SeqCst);
}

/// Which it is.
pub(crate) fn timer_interrupt() -> u32 {
    TIMER_INTERRUPT.load(Ordering::Relaxed)
}

// Names that `boot.s` and `interrupt.s` define.
unsafe extern "C" {
    fn vectors_v2();
    fn vectors_v3();
    fn other_start();
}

fn stacks_of(index: usize) -> u64 {
    (STACKS.0.get() as usize + index * size_of::<Stacks>()) as u64
}

/// Sets where this vCPU's interrupts arrive: with `interface`, the address of a GICv2's
/// CPU interface, or by system registers.
pub(crate) fn set_counted(interface: Option<u64>) {
    let interface = interface.filter(|at| Register::at(*at).is_some());
    CPU_INTERFACE.store(interface.unwrap_or(0), Ordering::SeqCst);
    instruction::set_vectors(if interface.is_some() {
        vectors_v2 as *const () as u64
    } else {
        vectors_v3 as *const () as u64
    });
}

fn enter(index: usize) {
    VCPUS[index].index.store(index as u32, Ordering::Relaxed);
    instruction::set_own(index);
    let interface = CPU_INTERFACE.load(Ordering::SeqCst);
    set_counted(Some(interface).filter(|at| *at != 0));
}

/// Where `boot.s` brings the first vCPU, with the loader's word and the image's address.
pub(super) extern "C" fn first_vcpu(handed: u64, loaded: u64) -> ! {
    pages::set_loaded(loaded);
    enter(0);
    for index in 0..MAX_VCPUS {
        for guard in
            [core::mem::offset_of!(Stacks, guard), core::mem::offset_of!(Stacks, fault_guard)]
        {
            pages::take_away(stacks_of(index) + guard as u64);
        }
    }
    crate::main(handed)
}

/// Where `boot.s` brings every other one.
pub(super) extern "C" fn other_vcpu(index: u32) -> ! {
    enter(index as usize);
    crate::other_main(index as usize)
}

/// Says which vCPU is next. None is being started when this is called.
pub(crate) fn prepare_start(index: usize) {
    NEXT_STACK.store(stacks_of(index) + MAIN_END as u64, Ordering::SeqCst);
    NEXT_FAULT_STACK.store(stacks_of(index) + FAULT_END as u64, Ordering::SeqCst);
    NEXT_INDEX.store(index as u32, Ordering::SeqCst);
}

/// Where another vCPU begins.
pub(crate) fn entry() -> Entry {
    Entry(pages::physical(other_start as *const () as u64))
}
