//! Exceptions: a record, and the end; or the way back of what expected one.

use core::sync::atomic::Ordering;

use thinguest::{Fault, Record};

use super::instruction;
use crate::aarch64::exit;
use crate::console;
use crate::metal::vcpu::{VCPUS, current};

/// The kinds of exceptions that `interrupt.s` tells.
pub(super) const SYNCHRONOUS: u64 = 0;
pub(super) const SERROR: u64 = 1;
/// An interrupt where none is allowed, or a program that is none of ours.
pub(super) const UNEXPECTED: u64 = 2;

/// The registers as `interrupt.s` saves them.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Frame {
    registers: [u64; 31],
    elr: u64,
    sp: u64,
    kind: u64,
}

pub(super) extern "C" fn on_exception(frame: &mut Frame) {
    let index = current();
    let vcpu = &VCPUS[index];
    let recover = vcpu.recover.swap(0, Ordering::Relaxed);
    let syndrome = instruction::syndrome();
    if recover != 0 && frame.kind == SYNCHRONOUS {
        vcpu.recovered.store((syndrome >> 26) + 1, Ordering::Relaxed);
        frame.elr = recover;
        return;
    }
    let vector = match frame.kind {
        SYNCHRONOUS => Fault::SYNCHRONOUS + (syndrome >> 26) as u8,
        kind => Fault::SERROR + (kind - SERROR) as u8,
    };
    console::write(&Record::Fault(Fault {
        vector,
        code: syndrome,
        rip: frame.elr,
        rsp: frame.sp,
        cr2: instruction::fault_address(),
        vcpu: index as u32,
    }));
    exit::leave()
}
