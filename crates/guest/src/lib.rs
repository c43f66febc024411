//! Real guests: their images, their boot, and talking to them.
//!
//! - [`image`]: the builtin Debian image and its cache, users' own images.
//! - [`qemu`]: which QEMU there is. [`kvm`]: whether KVM boots a guest.
//! - [`libvirt`]: the daemon of that name, by virsh.
//! - [`Monitor`]: questions to a QEMU that somebody else started.
//! - [`thin`]: a VM whose whole software is the thin guest, which measures what the
//!   host charges.
//! - [`capture`]: the memory and the devices of a VM, while it stands still as shortly as may
//!   be.
//! - [`OwnedVm`]: one QEMU process from its start to its end: QMP, the guest agent,
//!   commands in the guest, and every way in which they fail.
//!
//! What is not here: what QEMU's arguments mean (`vmconfig`), what is run in
//! the guest (`workload`), when (`runner`).

mod cancel;
pub mod capture;
pub mod image;
pub mod kvm;
pub mod libvirt;
pub mod qemu;
mod vm;

pub use cancel::{Cancel, Cancellation};
pub use vm::{
    AgentLine, AgentLink, AskOffersError, DEFAULT_MAX_OUTPUT_BYTES, DomainLaunch, ExecOutput,
    ExecStatusCode, GuestCommand, GuestFailure, Launch, Monitor, MonitorError, NOTE, OwnedVm, Qmp,
    START_LIMIT, ask_offers, exec_over, keep_console, met_removed_breakpoint, read_end, thin,
};
