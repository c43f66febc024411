//! The switch as a whole: real sockets, real shared memory, frontends of our own.

mod exhaustion;
mod files;
mod forwarding;
mod hostile;
mod lab;
mod links;
mod policies;
mod stations;
mod turns;
mod wire;
