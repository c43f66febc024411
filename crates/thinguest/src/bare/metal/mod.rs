//! The machine: all that is `unsafe` of the guest, behind functions that are not.
//!
//! The rule: what is here hands out nothing by which the rest could break Rust's
//! promises. Memory is given away once ([`memory::Pool`]), registers of devices lie
//! where no memory is given away, model-specific registers and ports are named one
//! by one, and each `unsafe` block says why it holds. What an instruction does to
//! the VM, such as ending it, is no matter of memory safety.
//!
//! `boot.s` brings a vCPU from the loader to here; `interrupt.s` holds what runs
//! between the processor and Rust.

pub(crate) mod exception;
pub(crate) mod instruction;
pub(crate) mod kvm_clock;
pub(crate) mod memory;
pub(crate) mod start;
pub(crate) mod vcpu;

use core::arch::global_asm;

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
    timers = const core::mem::offset_of!(vcpu::Vcpu, timers),
    ipis = const core::mem::offset_of!(vcpu::Vcpu, ipis),
    shot = sym memory::SHOT,
    kernel_stack = sym start::KERNEL_STACK,
    on_file_call = sym instruction::on_file_call,
    write = const instruction::WRITE,
    read = const instruction::READ,
    options(att_syntax)
);
