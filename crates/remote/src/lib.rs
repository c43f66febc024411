//! Another machine, over ssh: where it is, commands there, files to and from it.
//!
//! OpenSSH's own client does the work, so that a user's `~/.ssh/config`, keys,
//! agents and jump hosts count as they do on the command line. What a study does
//! there is `runner`'s and `vmlab`'s business, how an emulated host comes to be
//! is `replica`'s.

mod destination;

pub use destination::{Destination, DestinationError};
