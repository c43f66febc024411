//! What x86-64 machines are made of, without `unsafe`.

pub(crate) mod clock;
pub(crate) mod exit;
mod firmware;
pub(crate) mod interrupts;
pub(crate) mod io_apic;
pub(crate) mod operations;
pub(crate) mod serial;

pub(crate) use firmware::find;
