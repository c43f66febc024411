//! What arm64 machines are made of, without `unsafe`.

pub(crate) mod clock;
pub(crate) mod exit;
mod firmware;
pub(crate) mod interrupts;
pub(crate) mod operations;
pub(crate) mod serial;
mod tree;

pub(crate) use firmware::find;
