//! The probes, one file or folder each.

pub mod clock;
pub mod ipi;
pub mod lock;
pub mod malloc;
pub mod net;
pub mod npb;
pub mod numa;
pub mod pagecache;
pub mod sem;
pub mod shuffle;
pub mod stream;
pub mod syscalls;
pub mod tlb;
pub mod unixbench;
pub mod wakeup;
