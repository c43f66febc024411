//! An ssh that runs no command, and passes connections on between this machine and the
//! other one.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Destination;
use crate::session::{target, way_options};

/// A way through a tunnel, between a socket that is a file here and an address there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelWay {
    /// Who comes to the file here, reaches the address there. ssh makes the file.
    There {
        /// The file here, absolute and without a colon.
        from: PathBuf,
        /// `HOST:PORT` there.
        to: String,
    },
    /// Who comes to the address there, reaches whoever listens on the file here.
    Here {
        /// `HOST:PORT` there; of one that is not the loopback's, its sshd must say
        /// `GatewayPorts clientspecified`.
        from: String,
        /// The file here, absolute and without a colon.
        to: PathBuf,
    },
}

/// A connection to another machine that is there for others' connections alone.
#[derive(Debug, Clone)]
pub struct Tunnel<'a> {
    /// The machine.
    pub destination: &'a Destination,
    /// The ways through it.
    pub ways: &'a [TunnelWay],
}

impl Tunnel<'_> {
    /// The command, which runs until it is ended or the machine is gone, and ends if it
    /// can't open all ways. Nobody may be asked for a password.
    ///
    /// A machine that says nothing for a while, as an emulated one may, does not end it.
    ///
    /// Source: `ssh(1)`, -L and -R; `ssh_config(5)`.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new("ssh");
        command.env("LC_ALL", "C").args(["-N", "-T"]);
        for option in [
            "ControlMaster=no",
            "ControlPath=none",
            "BatchMode=yes",
            "ExitOnForwardFailure=yes",
            "StreamLocalBindUnlink=yes",
            "ServerAliveInterval=0",
            "RemoteCommand=none",
            "PermitLocalCommand=no",
            "LogLevel=INFO",
        ] {
            command.args(["-o", option]);
        }
        command.args(way_options(self.destination));
        for way in self.ways {
            match way {
                TunnelWay::There { from, to } => {
                    command.arg("-L").arg(format!("{}:{to}", from.display()))
                }
                TunnelWay::Here { from, to } => {
                    command.arg("-R").arg(format!("{from}:{}", to.display()))
                }
            };
        }
        command.arg("--").arg(target(self.destination)).stdin(Stdio::null());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_its_side() {
        let destination: Destination = "ssh://root@lab:2222".parse().unwrap();
        let ways = [
            TunnelWay::There { from: PathBuf::from("/f/a"), to: "127.0.0.1:1".to_owned() },
            TunnelWay::Here { from: "10.0.0.1:443".to_owned(), to: PathBuf::from("/f/b") },
        ];
        let command = Tunnel { destination: &destination, ways: &ways }.command();
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        let line = args.join(" ");
        assert!(line.contains("-o Port=2222 -L /f/a:127.0.0.1:1 -R 10.0.0.1:443:/f/b"), "{line}");
        assert!(line.ends_with("-- root@lab"), "{line}");
    }
}
