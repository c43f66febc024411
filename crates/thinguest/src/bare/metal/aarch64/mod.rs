//! arm64.

pub(super) mod exception;
pub(crate) mod instruction;
pub(super) mod pages;
pub(crate) mod start;

use core::arch::global_asm;

use super::vcpu::Vcpu;

global_asm!(
    include_str!("boot.s"),
    first_stack_end = sym start::FIRST_STACK_END,
    first_fault_stack_end = sym start::FIRST_FAULT_STACK_END,
    next_stack = sym start::NEXT_STACK,
    next_fault_stack = sym start::NEXT_FAULT_STACK,
    next_index = sym start::NEXT_INDEX,
    first_vcpu = sym start::first_vcpu,
    other_vcpu = sym start::other_vcpu,
);

global_asm!(
    include_str!("interrupt.s"),
    on_exception = sym exception::on_exception,
    sync = const exception::SYNCHRONOUS,
    serror = const exception::SERROR,
    unexpected = const exception::UNEXPECTED,
    timers = const core::mem::offset_of!(Vcpu, timers),
    ipis = const core::mem::offset_of!(Vcpu, ipis),
    devices = const core::mem::offset_of!(Vcpu, devices),
    cpu_interface = sym start::CPU_INTERFACE,
    timer_interrupt = sym start::TIMER_INTERRUPT,
    on_file_call = sym super::file_call::on_file_call,
    write = const super::file_call::WRITE,
    read = const super::file_call::READ,
);
