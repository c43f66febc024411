//! A whole KVM host, emulated: its image, its topology, its boot, its end.
//!
//! QEMU's own emulator runs a Linux host in which KVM is real: x86-64 with SVM,
//! or arm64 with EL2. Counts and mechanisms in it are those of a host; times are
//! emulated time. vmlab's static binary inside does the experiments, reached
//! over ssh (`remote`).
//!
//! [`ReplicaMachine`] says which machine the emulator shows for a described one and what
//! is only declared; [`up`] starts it, [`find_up`] and [`list`] find it again
//! from any later command, [`Replica::down`] ends it. How its image is built is
//! `guest`'s.

mod args;
mod console;
mod disks;
mod inside;
mod like;
mod repeatable;
mod saved;
mod shape;
mod store;
#[cfg(test)]
mod tests;
mod up;

pub use console::keep_console;
pub use disks::DiskError;
pub use inside::Programs;
pub use like::{KNOWN, KnownHost, UnknownHost, like};
pub use repeatable::{RepeatableError, RepeatableHost, RunningRepeatableHost};
pub use saved::remove_all as remove_saved_states;
pub use shape::{ReplicaMachine, ShapeError, ShapeNode};
pub use store::{
    Replica, ReplicaDownError, ReplicaFindError, ReplicaManifest, ReplicaState, find, find_up,
    folder, list,
};
pub use up::{ReplicaRequest, ReplicaUpError, preview, up};
