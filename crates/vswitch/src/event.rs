//! What happens at a switch, and why one can't start.

use std::io;
use std::path::PathBuf;

use crate::config::ConfigError;
use crate::tap::TapError;

/// What happens at a switch, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchEvent {
    /// A frontend came.
    Connected {
        /// Name of the port.
        port: String,
    },
    /// A frontend went.
    Gone {
        /// Name of the port.
        port: String,
        /// Why, if it was not the frontend's wish.
        error: Option<String>,
    },
    /// Another frontend came, and was sent away.
    Refused {
        /// Name of the port.
        port: String,
    },
    /// A frontend came and was sent away: a file of the last one is not closed yet.
    FilesOpen {
        /// Name of the port.
        port: String,
    },
    /// A ring was stopped.
    RingStopped {
        /// Name of the port.
        port: String,
        /// Its number.
        ring: usize,
        /// Why.
        fault: &'static str,
    },
    /// The frontend that is to listen can't be connected to yet; it is called again.
    NoListener {
        /// Name of the port.
        port: String,
        /// Why.
        error: String,
    },
    /// A frontend that came could not be taken in: it waits.
    NotAccepted {
        /// Name of the port.
        port: String,
        /// Why.
        error: String,
    },
    /// A station moves to and fro between two ports: two VMs have its address.
    SameAddress {
        /// Name of one port.
        first: String,
        /// Name of the other.
        second: String,
        /// The address.
        mac: String,
    },
    /// The kernel has no Landlock: the sandbox is the filter of system calls alone.
    NoLandlock,
    /// There were more events like the last one, within a second.
    Repeated {
        /// The last of them.
        last: Box<SwitchEvent>,
        /// How many.
        times: u64,
    },
    /// Events that nobody took in time.
    Missed {
        /// How many.
        events: u64,
    },
}

impl SwitchEvent {
    /// Name of the port where it happened, if it did at one.
    #[must_use]
    pub fn port(&self) -> Option<&str> {
        match self {
            Self::Connected { port }
            | Self::Gone { port, .. }
            | Self::Refused { port }
            | Self::FilesOpen { port }
            | Self::RingStopped { port, .. }
            | Self::NoListener { port, .. }
            | Self::NotAccepted { port, .. } => Some(port),
            Self::Repeated { last, .. } => last.port(),
            Self::SameAddress { .. } | Self::NoLandlock | Self::Missed { .. } => None,
        }
    }
}

/// Error type for [`Switch::start`](crate::Switch::start) and for adding ports.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What is asked for contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another process listens there.
    #[error("{}: another process listens there: end it, or choose another path", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Another switch is asked there.
    #[error(
        "{}: another process is asked there: give this switch a --control of its own",
        path.display()
    )]
    ControlInUse {
        /// The control socket.
        path: PathBuf,
    },
    /// There is a file that is no socket.
    #[error("{}: a file that is no socket is there: choose another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket can't be made.
    #[error("Cannot listen on {}{}", path.display(), hint(source))]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The socket can't be given to its group.
    #[error(
        "{}: cannot give the socket to group {group}: choose one that you are in, or have its \
             folder give it (chgrp {group} FOLDER; chmod g+s FOLDER), which a switch in its \
             sandbox needs for ports that are added", path.display()
    )]
    Group {
        /// The socket.
        path: PathBuf,
        /// The group's number.
        group: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A mirror's file can't be written.
    #[error("Cannot write the mirror {}", target.display())]
    Mirror {
        /// Its file.
        target: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A tap interface can't be had.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// A tap interface is asked for once nothing can be opened any more.
    #[error(
        "A switch in its sandbox can open no tap interface: give tap:NAME when it starts, or \
             start it with --no-sandbox"
    )]
    TapLater,
    /// A frontend that listens is named once nothing may be connected to any more.
    #[error(
        "A switch in its sandbox that began without a port with server=off connects to no \
             socket: give one when it starts, or start it with --no-sandbox"
    )]
    ConnectLater,
    /// A socket is in the way, and whether somebody listens there can't be asked.
    #[error(
        "{}: something is there already, and a switch in its sandbox can't ask whether somebody \
             listens: remove it first, or choose another path", path.display()
    )]
    InTheWay {
        /// The socket.
        path: PathBuf,
    },
    /// The process may not have as many files open as its ports' rings need.
    #[error(
        "The ports need up to {needed} open files, and this process may have {most}: raise its \
             limit (`ulimit -Hn`, systemd's LimitNOFILE=), or give the ports fewer queues"
    )]
    OpenFiles {
        /// As many may be open.
        needed: u64,
        /// The limit that it can't raise.
        most: u64,
    },
    /// A polling thread can't have its pCPU.
    #[error(
        "Cannot pin a polling thread to pCPU {pcpu}: it is offline or not allowed here \
             (`vmlab host` shows those that are)"
    )]
    Pcpu {
        /// Its number.
        pcpu: u32,
    },
    /// The process can't keep itself in.
    #[error("Cannot enter the sandbox (--no-sandbox goes without)")]
    Sandbox(#[source] crate::sandbox::ConfinementError),
    /// The system refused something else.
    #[error("Cannot {what}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => ": the folder does not exist",
        io::ErrorKind::PermissionDenied => ": choose a folder that you may write to",
        _ => "",
    }
}
