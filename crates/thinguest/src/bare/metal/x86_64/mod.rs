//! x86-64.

pub(super) mod exception;
pub(crate) mod instruction;
pub(crate) mod kvm_clock;
pub(super) mod pages;
pub(crate) mod start;
pub(crate) mod virtio;
mod virtio_pci;

use core::arch::global_asm;

use crate::metal::vcpu::Vcpu;

global_asm!(
    include_str!("boot.s"),
    first_stack_end = sym start::FIRST_STACK_END,
    next_stack = sym start::NEXT_STACK,
    next_index = sym start::NEXT_INDEX,
    first_vcpu = sym start::first_vcpu,
    other_vcpu = sym start::other_vcpu,
    options(att_syntax)
);

global_asm!(
    include_str!("interrupt.s"),
    on_exception = sym exception::on_exception,
    timers = const core::mem::offset_of!(Vcpu, timers),
    ipis = const core::mem::offset_of!(Vcpu, ipis),
    devices = const core::mem::offset_of!(Vcpu, devices),
    shot = sym pages::SHOT,
    kernel_stack = sym start::KERNEL_STACK,
    on_file_call = sym super::file_call::on_file_call,
    write = const super::file_call::WRITE,
    read = const super::file_call::READ,
    options(att_syntax)
);
