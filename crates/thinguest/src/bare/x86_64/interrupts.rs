//! The local APIC, by memory or by registers of the processor; and its timer.
//!
//! Source: Intel SDM volume 3, chapter 11.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thinguest::{Apic, TimerIrq};

use crate::metal::instruction::{self, Msr, clock, cpuid};
use crate::metal::memory::Register;
use crate::metal::start::{
    IPI_VECTOR, SHOOTDOWN_VECTOR, SPURIOUS_VECTOR, TIMER_VECTOR, set_counted,
};
use crate::metal::vcpu::{VCPUS, current};

const ID: u32 = 0x20;
const VERSION: u32 = 0x30;
const PRIORITY: u32 = 0x80;
const SPURIOUS: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const TIMER: u32 = 0x320;
const LINE_0: u32 = 0x350;
const LINE_1: u32 = 0x360;
const INITIAL_COUNT: u32 = 0x380;
const COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;

const BASE: u64 = 0xfee0_0000;
const MASKED: u32 = 1 << 16;
const DEADLINE_MODE: u32 = 2 << 17;
const ENABLE: u64 = 1 << 11;
const ENABLE_X2APIC: u64 = 1 << 10;

static X2APIC: AtomicBool = AtomicBool::new(false);
static DEADLINE: AtomicBool = AtomicBool::new(false);
/// Ticks of the timer in 2^20 cycles of the clock.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// The mode that was chosen.
pub(crate) fn mode() -> Apic {
    if X2APIC.load(Ordering::Relaxed) { Apic::X2apic } else { Apic::Xapic }
}

/// The timer's interrupt has no number but the guest's own vector.
pub(crate) fn timer_irq() -> Option<TimerIrq> {
    None
}

/// True if the timer takes a deadline.
pub(crate) fn has_deadline() -> bool {
    DEADLINE.load(Ordering::Relaxed)
}

/// Chooses the mode; false if what is wanted is not there.
pub(crate) fn choose(wanted: Option<Apic>) -> bool {
    let [_, _, features, _] = cpuid(1, 0);
    let there = features & 1 << 21 != 0;
    X2APIC.store(there && wanted != Some(Apic::Xapic), Ordering::Relaxed);
    DEADLINE.store(features & 1 << 24 != 0, Ordering::Relaxed);
    set_counted(mode() == Apic::X2apic);
    wanted.is_none_or(|wanted| wanted == mode())
}

fn read(offset: u32) -> u32 {
    match mode() {
        Apic::X2apic => instruction::read_msr(Msr::X2apic(offset)) as u32,
        _ => Register::at(BASE + u64::from(offset)).map_or(0, Register::read),
    }
}

fn write(offset: u32, value: u32) {
    match mode() {
        Apic::X2apic => instruction::write_x2apic(offset, u64::from(value)),
        _ => {
            if let Some(register) = Register::at(BASE + u64::from(offset)) {
                register.write(value);
            }
        }
    }
}

/// Switches this vCPU's on.
pub(crate) fn begin() {
    let base = instruction::read_msr(Msr::ApicBase);
    let x2apic = if mode() == Apic::X2apic { ENABLE_X2APIC } else { 0 };
    instruction::write_apic_base(base & !ENABLE_X2APIC | ENABLE | x2apic);
    write(SPURIOUS, 0x100 | u32::from(SPURIOUS_VECTOR));
    write(PRIORITY, 0);
    write(LINE_0, MASKED);
    write(LINE_1, MASKED);
    write(DIVIDE, 0b1011);
    let timer = if has_deadline() { DEADLINE_MODE } else { 0 };
    write(TIMER, timer | u32::from(TIMER_VECTOR));
    let id = read(ID);
    let id = if mode() == Apic::X2apic { id } else { id >> 24 };
    VCPUS[current()].id.store(u64::from(id), Ordering::SeqCst);
}

/// Measures the timer against the clock, where it takes no deadline.
pub(crate) fn measure_timer() {
    if has_deadline() {
        return;
    }
    write(TIMER, MASKED | u32::from(TIMER_VECTOR));
    write(INITIAL_COUNT, u32::MAX);
    let begin = clock();
    while clock() - begin < 4 << 20 {}
    let (gone, cycles) = (u64::from(u32::MAX - read(COUNT)), clock() - begin);
    write(INITIAL_COUNT, 0);
    write(TIMER, u32::from(TIMER_VECTOR));
    TICKS.store((gone << 20) / cycles, Ordering::Relaxed);
}

/// Sets the timer to `cycles` from now, and returns when that is.
pub(crate) fn set_timer(cycles: u64) -> u64 {
    let deadline = clock() + cycles;
    if has_deadline() {
        instruction::write_deadline(deadline);
    } else {
        let ticks = (cycles * TICKS.load(Ordering::Relaxed)) >> 20;
        write(INITIAL_COUNT, u32::try_from(ticks).unwrap_or(u32::MAX).max(1));
    }
    deadline
}

/// Reads the version register.
pub(crate) fn read_version() -> u32 {
    read(VERSION)
}

fn command(id: u32, low: u32) {
    match mode() {
        Apic::X2apic => {
            instruction::write_x2apic(COMMAND, u64::from(id) << 32 | u64::from(low));
        }
        _ => {
            write(COMMAND_HIGH, id << 24);
            write(COMMAND, low);
        }
    }
}

fn count_sent(interrupts: u64) {
    VCPUS[current()].sent.fetch_add(interrupts, Ordering::Relaxed);
}

/// Sends an IPI to the vCPU `to`.
pub(crate) fn send(to: usize) {
    count_sent(1);
    let id = VCPUS[to].id.load(Ordering::Relaxed) as u32;
    command(id, 1 << 14 | u32::from(IPI_VECTOR));
}

/// Sends an IPI to itself.
pub(crate) fn send_to_self() {
    count_sent(1);
    command(0, 1 << 18 | 1 << 14 | u32::from(IPI_VECTOR));
}

/// Sends an IPI to all `others`.
pub(crate) fn send_to_others(others: usize) {
    count_sent(others as u64);
    command(0, 3 << 18 | 1 << 14 | u32::from(IPI_VECTOR));
}

/// Has all `others` flush a page of their TLBs.
pub(crate) fn shoot_down(others: usize) {
    count_sent(others as u64);
    command(0, 3 << 18 | 1 << 14 | u32::from(SHOOTDOWN_VECTOR));
}

/// Starts the vCPU whose local APIC is `id` at 0x8000.
pub(crate) fn start(id: u64) {
    let id = id as u32;
    command(id, 0xc500);
    // The 10 ms of the protocol are for buses of 1995.
    let begin = clock();
    while clock() - begin < 100_000 {}
    for _ in 0..2 {
        command(id, 0x4608);
        let begin = clock();
        while clock() - begin < 400_000 {}
    }
}
