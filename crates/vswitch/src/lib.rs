//! A vhost-user switch: it connects virtual machines (and other vhost-user
//! frontends) on one host in user space, by copying frames from one guest's memory
//! to another's.
//!
//! What it is not: a router, a driver of network cards, a library of them. It
//! speaks one protocol to guests, and Ethernet between them.
//!
//! From the outside in: [`Switch`] is started with a [`SwitchConfig`]; its control
//! thread (`control.rs`) holds sockets and connections; each connection has a
//! [`session::Session`], which turns messages into a [`device::Device`]; polling
//! threads (`worker.rs`) get all devices as one immutable snapshot and forward
//! (`forward.rs`) from [`ring::Ring`] to ring. Guest memory is touched in
//! [`memory`] alone. [`frontend`] is the other end, for tests and measurements.
//!
//! Source: QEMU `docs/interop/vhost-user.rst`; Virtual I/O Device (VIRTIO) 1.2.

mod bell;
pub mod channel;
mod client;
mod config;
mod control;
pub mod counters;
mod desk;
pub mod device;
mod event;
mod forward;
mod frame;
pub mod frontend;
pub mod memory;
pub mod message;
mod offload;
mod port;
mod question;
pub mod ring;
mod sandbox;
pub mod session;
mod socket;
mod switch;
mod table;
mod words;
mod worker;

pub use client::{AskError, ask};
pub use config::{
    ConfigError, DEFAULT_AGE_S, PortConfig, PortError, SocketRole, SwitchConfig, mac_text,
};
pub use event::{Event, StartError};
pub use port::{MAX_PORTS, MAX_VLAN, Policy, Vlan};
pub use question::{
    Answer, Asked, LinkState, PortStatus, Question, QuestionError, StationStatus, Status,
    ThreadStatus,
};
pub use sandbox::SandboxError;
pub use switch::Switch;
