//! The switch as a whole: real sockets, real shared memory, frontends of our own.

mod double_fetch;
mod exhaustion;
mod files;
mod forwarding;
mod hostile;
mod lab;
mod links;
mod packets;
mod policies;
mod regions;
mod spread;
mod stations;
mod turns;
mod vlans;
mod wire;
