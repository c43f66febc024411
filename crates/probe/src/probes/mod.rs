//! The probes, one file or folder each.

pub mod sem;
pub mod syscalls;
