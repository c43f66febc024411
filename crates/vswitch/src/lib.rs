//! A vhost-user switch: it connects virtual machines (and other vhost-user
//! frontends) on one host in user space, by copying frames from one guest's memory
//! to another's.
//!
//! What it is not: a router, a driver of network cards, a library of them. It
//! speaks one protocol to guests, and Ethernet between them.
//!
//! From the outside in: [`Switch`] is started with a [`SwitchConfig`]; its control
//! thread (`control.rs`) holds sockets and connections; each connection has a
//! [`session::VhostSession`], which turns messages into a [`device::VhostDevice`]; polling
//! threads (`worker.rs`) get all devices as one immutable snapshot and forward
//! (`forward.rs`, `delivery.rs`) from [`ring::Ring`] to ring. Guest memory is touched in
//! [`memory`] alone. [`frontend`] is the other end, for tests and measurements.
//!
//! Source: QEMU `docs/interop/vhost-user.rst`; Virtual I/O Device (VIRTIO) 1.2.

mod balance;
mod bell;
mod burst;
pub mod channel;
mod client;
mod config;
mod control;
pub mod counters;
mod delivery;
mod desk;
pub mod device;
mod event;
mod forward;
mod frame;
#[cfg(test)]
mod frame_tests;
pub mod frontend;
pub mod memory;
pub mod message;
mod mirror;
mod offload;
mod open_files;
mod passed;
mod port;
mod question;
mod rate;
mod rights;
pub mod ring;
#[cfg(test)]
mod ring_tests;
mod sandbox;
pub mod session;
mod sleeper;
mod socket;
mod switch;
mod sync;
mod table;
#[cfg(test)]
mod table_tests;
pub mod tap;
mod teller;
mod words;
mod work;
mod worker;

pub use client::{AskError, ask};
pub use config::{
    ConfigError, DEFAULT_AGE_S, MirrorConfig, MirrorError, PortConfig, PortEnd, PortError,
    SettingError, SocketRights, SocketRole, SwitchConfig,
};
pub use event::{StartError, SwitchEvent};
pub use passed::PassedFile;
pub use port::{MAX_PORTS, MAX_VLAN, MIN_MTU, Policy, Vlan};
pub use question::{
    ControlReply, ControlRequest, LinkState, MirrorStatus, PortStatus, Question, QuestionError,
    SameAddress, StationStatus, SwitchStatus, ThreadStatus,
};
pub use rate::{Rate, RateError};
pub use sandbox::ConfinementError;
pub use switch::{Switch, SwitchHandle};
