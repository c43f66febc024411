//! Room for open files: each ring brings two events, each connection a socket and what
//! comes with a message.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::PortConfig;
use crate::event::StartError;
use crate::message::MAX_FDS;

/// What is open beside ports: standard streams, bells, mirrors, whoever asks at the control
/// socket or for metrics, the program's own.
const OTHERS: u64 = 128;

/// The files that a port may have open: its socket, a connection and one that is refused,
/// what one message brings while that of the message before is still being closed, and the
/// events of its rings, twice while they are replaced.
fn of_port(port: &PortConfig) -> u64 {
    3 + 2 * MAX_FDS as u64 + 2 * 4 * u64::from(port.queues)
}

/// Lets the process have as many files open as it may; how many that is.
///
/// # Errors
/// What `setrlimit(2)` says.
pub(crate) fn raise_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    }
    // None is no limit.
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// An error if these ports may need more than `most` files.
pub(crate) fn suffice<'p>(
    most: u64,
    ports: impl Iterator<Item = &'p PortConfig>,
) -> Result<(), StartError> {
    let needed = ports.map(of_port).sum::<u64>() + OTHERS;
    if needed > most { Err(StartError::OpenFiles { needed, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_needs_room_for_its_events() {
        let port = |text: &str| PortConfig::parse(text).unwrap();
        let [one, many] = [port("a.sock"), port("b.sock,queues=64")].map(|port| of_port(&port));
        assert_eq!(many - one, 63 * 8);
        let ports = [port("a.sock"), port("b.sock,queues=64")];
        let of_both = ports.iter().map(of_port).sum::<u64>() + OTHERS;
        assert!(suffice(of_both, ports.iter()).is_ok());
        let error = suffice(of_both - 1, ports.iter()).unwrap_err().to_string();
        assert!(error.contains("raise its limit"), "{error}");
    }
}
