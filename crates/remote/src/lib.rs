//! Another machine, over ssh: where it is, commands there, files to and from it.
//!
//! OpenSSH's own client does the work, so that a user's `~/.ssh/config`, keys,
//! agents and jump hosts count as they do on the command line. One process keeps
//! the connection ([`SshSession`]); each command is one more client of it, which
//! takes no new handshake. What a study does there is `runner`'s and `vmlab`'s
//! business, how an emulated host comes to be is `replica`'s.

mod cksum;
mod command;
mod copy;
mod destination;
mod frames;
mod patience;
mod process;
mod quote;
mod session;
mod tunnel;
mod words;

pub use command::{RemoteCommand, RemoteOutput, RemoteProcess, RunError};
pub use copy::CopyError;
pub use destination::{Destination, DestinationError};
pub use frames::{Decoder, FrameError, RemoteFrame};
pub use patience::{Patience, WaitFailure};
pub use quote::quote;
pub use session::{EMULATED_SILENCE_LIMIT, OpenError, SILENCE_LIMIT, SshOptions, SshSession};
pub use tunnel::{Tunnel, TunnelWay};
