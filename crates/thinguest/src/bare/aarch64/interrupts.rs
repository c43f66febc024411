//! The GIC, version 2 or 3, and the virtual timer.
//!
//! Source: Arm IHI 0048 (GICv2), IHI 0069 (GICv3 and GICv4), DDI 0487 chapter D12.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use thinguest::acpi::{Gic, MAX_REDISTRIBUTORS};
use thinguest::{Apic, TimerIrq};

use crate::metal::instruction::{
    self, Function, call, clock, clock_hz, send_interrupt, write_deadline,
};
use crate::metal::memory::Register;
use crate::metal::start::{self, entry, set_counted, timer_interrupt};
use crate::metal::vcpu::{MAX_VCPUS, VCPUS, current};

/// The IPI.
const IPI: u32 = 0;

// The distributor's registers.
const CONTROL: u64 = 0;
const TARGETS: u64 = 0x800;
const EDGES: u64 = 0xc00;
const ROUTES: u64 = 0x6000;
const SOFTWARE: u64 = 0xf00;
// Of the distributor with version 2, of a redistributor's second page with version 3.
const GROUP: u64 = 0x80;
const ENABLE: u64 = 0x100;
const PRIORITY: u64 = 0x400;
// A redistributor's first page.
const KIND: u64 = 8;
const WAKER: u64 = 0x14;
const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
const SECOND_PAGE: u64 = 0x1_0000;

static DISTRIBUTOR: AtomicU64 = AtomicU64::new(0);
/// Version 2's.
static INTERFACE: AtomicU64 = AtomicU64::new(0);
/// Version 3's, begin and bytes.
static REDISTRIBUTORS: [[AtomicU64; 2]; MAX_REDISTRIBUTORS] =
    [const { [const { AtomicU64::new(0) }; 2] }; MAX_REDISTRIBUTORS];
/// With version 2: the bit of each vCPU among targets.
static TARGET: [AtomicU32; MAX_VCPUS] = [const { AtomicU32::new(0) }; MAX_VCPUS];

/// Whether anybody said which the timer's interrupt is.
static TIMER_IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Says which the virtual timer's interrupt is, as the machine told it.
pub(super) fn set_timer_interrupt(number: u32) {
    start::set_timer_interrupt(number);
    TIMER_IS_TOLD.store(true, Ordering::Relaxed);
}

/// Which it is, and how it is known.
pub(crate) fn timer_irq() -> Option<TimerIrq> {
    let is_told = TIMER_IS_TOLD.load(Ordering::Relaxed);
    Some(TimerIrq { number: timer_interrupt(), is_told })
}

/// Says where the controller is.
pub(super) fn set_controller(gic: &Gic) {
    DISTRIBUTOR.store(gic.distributor(), Ordering::SeqCst);
    match gic {
        Gic::V2 { interface, .. } => INTERFACE.store(*interface, Ordering::SeqCst),
        Gic::V3 { redistributors, .. } => {
            for ([begin, bytes], region) in REDISTRIBUTORS.iter().zip(redistributors) {
                begin.store(region.0, Ordering::SeqCst);
                bytes.store(region.1, Ordering::SeqCst);
            }
        }
    }
}

/// The mode.
pub(crate) fn mode() -> Apic {
    if INTERFACE.load(Ordering::Relaxed) == 0 { Apic::Gicv3 } else { Apic::Gicv2 }
}

/// The timer always takes a deadline.
pub(crate) fn has_deadline() -> bool {
    true
}

/// True if there is a controller, and it is the one that is wanted.
pub(crate) fn choose(wanted: Option<Apic>) -> bool {
    let interface = Some(INTERFACE.load(Ordering::Relaxed)).filter(|at| *at != 0);
    set_counted(interface);
    let there = DISTRIBUTOR.load(Ordering::Relaxed) != 0
        && (interface.is_some() || instruction::has_interrupt_registers());
    there && wanted.is_none_or(|wanted| wanted == mode())
}

fn read(at: u64) -> u32 {
    Register::at(at).map_or(0, Register::read)
}

fn write(at: u64, value: u32) {
    if let Some(register) = Register::at(at) {
        register.write(value);
    }
}

/// Gives the IPI and the timer, in the 32 interrupts of each vCPU at `at`, a priority and
/// a group, and switches them on.
fn begin_own(at: u64, group: u32) {
    write(at + GROUP, group);
    let timer = timer_interrupt();
    for four in [IPI / 4, timer / 4] {
        write(at + PRIORITY + u64::from(four) * 4, 0x8080_8080);
    }
    write(at + ENABLE, 1 << IPI | 1 << timer);
}

/// The redistributor of the vCPU of this affinity.
fn redistributor(affinity: u64) -> Option<u64> {
    const LAST: u32 = 1 << 4;
    /// Version 4: it has two pages more.
    const VIRTUAL: u32 = 1 << 1;
    let packed = (affinity >> 32 & 0xff) << 24 | affinity & 0xff_ffff;
    for region in &REDISTRIBUTORS {
        let [mut at, bytes] = region.each_ref().map(|word| word.load(Ordering::Relaxed));
        let end = at.saturating_add(bytes);
        // A region that is no device's has none.
        while at < end && Register::at(at + SECOND_PAGE).is_some() {
            let kind = read(at + KIND);
            if u64::from(read(at + KIND + 4)) == packed {
                return Some(at);
            }
            if kind & LAST != 0 {
                break;
            }
            at += REDISTRIBUTOR_BYTES << u32::from(kind & VIRTUAL != 0);
        }
    }
    None
}

/// Switches this vCPU's on.
pub(crate) fn begin() {
    let (distributor, interface) =
        (DISTRIBUTOR.load(Ordering::Relaxed), INTERFACE.load(Ordering::Relaxed));
    let own = instruction::affinity();
    if interface != 0 {
        // Where there is but one vCPU the register reads as 0.
        let target = (read(distributor + TARGETS) & 0xff).max(1);
        TARGET[current()].store(target, Ordering::SeqCst);
        begin_own(distributor, 0);
        write(distributor + CONTROL, 1);
        write(interface + 4, 0xff);
        write(interface, 1);
    } else {
        // Affinity routing, and group 1.
        write(distributor + CONTROL, 1 << 4 | 1 << 1);
        if let Some(at) = redistributor(own) {
            write(at + WAKER, read(at + WAKER) & !2);
            while read(at + WAKER) & 4 != 0 {}
            begin_own(at + SECOND_PAGE, u32::MAX);
        }
        instruction::begin_interrupt_registers();
    }
    // Events of some 10 kHz, as Linux has them: what waits for one that was lost goes on.
    instruction::start_events(u64::from((clock_hz() / 10_000).max(2).ilog2() - 1).min(15));
    VCPUS[current()].id.store(own, Ordering::SeqCst);
}

/// Has a device's interrupt come to this vCPU, once for each edge; always true.
pub(crate) fn begin_device(interrupt: u32) -> bool {
    let distributor = DISTRIBUTOR.load(Ordering::Relaxed);
    let set = |at: u64, bits: u32| write(at, read(at) | bits);
    let word = |per_word: u32| u64::from(interrupt / per_word) * 4;
    let shift = |bits: u32| interrupt % (32 / bits) * bits;
    if mode() == Apic::Gicv2 {
        let target = TARGET[current()].load(Ordering::Relaxed);
        set(distributor + TARGETS + word(4), target << shift(8));
    } else {
        let route = distributor + ROUTES + u64::from(interrupt) * 8;
        let affinity = instruction::affinity();
        write(route, affinity as u32 & 0xff_ffff);
        write(route + 4, (affinity >> 32) as u32 & 0xff);
        set(distributor + GROUP + word(32), 1 << shift(1));
    }
    set(distributor + EDGES + word(16), 2 << shift(2));
    set(distributor + PRIORITY + word(4), 0x80 << shift(8));
    // Ones alone have a meaning here.
    write(distributor + ENABLE + word(32), 1 << shift(1));
    true
}

/// Its rate is the clock's.
pub(crate) fn measure_timer() {}

/// Sets the timer to `ticks` from now, and returns when that is.
pub(crate) fn set_timer(ticks: u64) -> u64 {
    let deadline = clock() + ticks;
    write_deadline(deadline);
    deadline
}

fn count_sent(interrupts: u64) {
    VCPUS[current()].sent.fetch_add(interrupts, Ordering::Relaxed);
}

fn send_to(vcpu: usize) {
    if mode() == Apic::Gicv2 {
        let target = TARGET[vcpu].load(Ordering::Relaxed);
        write(DISTRIBUTOR.load(Ordering::Relaxed) + SOFTWARE, target << 16 | IPI);
        return;
    }
    let id = VCPUS[vcpu].id.load(Ordering::Relaxed);
    let [level_0, level_1, level_2, level_3] = [0, 8, 16, 32].map(|shift| id >> shift & 0xff);
    let range = level_0 >> 4;
    send_interrupt(
        level_3 << 48
            | range << 44
            | level_2 << 32
            | u64::from(IPI) << 24
            | level_1 << 16
            | 1 << (level_0 & 15),
    );
}

/// Sends an IPI to the vCPU `to`.
pub(crate) fn send(to: usize) {
    count_sent(1);
    send_to(to);
}

/// Sends an IPI to itself.
pub(crate) fn send_to_self() {
    count_sent(1);
    send_to(current());
}

/// Sends an IPI to all `others`.
pub(crate) fn send_to_others(others: usize) {
    count_sent(others as u64);
    if mode() == Apic::Gicv2 {
        write(DISTRIBUTOR.load(Ordering::Relaxed) + SOFTWARE, 1 << 24 | IPI);
    } else {
        send_interrupt(1 << 40 | u64::from(IPI) << 24);
    }
}

/// Flushes reach `others` without an interrupt.
pub(crate) fn shoot_down(_others: usize) {
    instruction::shoot_down();
}

/// Starts the vCPU of this affinity (PSCI).
pub(crate) fn start(affinity: u64) {
    // One that does not begin is missed where it is waited for.
    let _ = call(Function::CpuOn(affinity, entry()));
}
