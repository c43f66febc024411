//! Exceptions: a record, and the end; or the way back of what expected one.

use core::sync::atomic::Ordering;

use thinguest::{Fault, Record};

use super::instruction;
use crate::console;
use crate::metal::vcpu::{VCPUS, current};
use crate::x86_64::exit;

/// The registers as `exception_common` in `interrupt.s` saves them.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Frame {
    registers: [u64; 15],
    vector: u64,
    code: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

pub(super) extern "C" fn on_exception(frame: &mut Frame) {
    let index = current();
    let vcpu = &VCPUS[index];
    let recover = vcpu.recover.swap(0, Ordering::Relaxed);
    if recover != 0 {
        vcpu.recovered.store(frame.vector + 1, Ordering::Relaxed);
        frame.rip = recover;
        return;
    }
    console::write(&Record::Fault(Fault {
        vector: frame.vector as u8,
        code: frame.code,
        rip: frame.rip,
        rsp: frame.rsp,
        cr2: instruction::page_fault_address(),
        vcpu: index as u32,
    }));
    exit::leave()
}
