//! A running switch: started, asked, told, ended.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use crate::config::{ConfigError, SwitchConfig};
use crate::control::{Call, Control};
use crate::question::{Answer, Question};
use crate::worker::Bell;

/// What happens at a switch, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
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
    /// A ring was stopped.
    RingStopped {
        /// Name of the port.
        port: String,
        /// Its number.
        ring: usize,
        /// Why.
        fault: &'static str,
    },
    /// The kernel has no Landlock: the sandbox is the filter of system calls alone.
    NoLandlock,
}

/// Error type for [`Switch::start`] and for adding ports.
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
    Sandbox(#[source] crate::sandbox::SandboxError),
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

/// A switch that runs until it is dropped.
#[derive(Debug)]
pub struct Switch {
    calls: Sender<Call>,
    bell: Arc<Bell>,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Listens on all sockets and starts the threads. With the sandbox, the whole
    /// process keeps only the rights that a switch needs.
    ///
    /// # Errors
    /// [`StartError`]; no socket is left behind then.
    pub fn start(config: &SwitchConfig) -> Result<Self, StartError> {
        let (calls, asked) = mpsc::channel();
        let (happened, events) = mpsc::channel();
        let control = Control::new(config, asked, happened)?;
        let bell = control.bell();
        let thread = std::thread::Builder::new().name("vswitch-control".to_owned());
        let what = "start the control thread";
        let thread = thread
            .spawn(move || control.run())
            .map_err(|source| StartError::Os { what, source })?;
        let switch = Self { calls, bell, events, thread: Some(thread) };
        if config.sandbox {
            // Of all threads, the caller's included: no more of them are made.
            crate::sandbox::keep_to_calls().map_err(StartError::Sandbox)?;
        }
        Ok(switch)
    }

    /// Asks or tells it something.
    #[must_use]
    pub fn ask(&self, question: Question) -> Answer {
        let (reply, answer) = mpsc::channel();
        let gone = || Answer::Error("The switch has ended".to_owned());
        if self.calls.send(Call { question, reply }).is_err() {
            return gone();
        }
        self.bell.ring_always();
        answer.recv().unwrap_or_else(|_| gone())
    }

    /// What happens; it ends with the switch.
    #[must_use]
    pub fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    /// True if it was told to end over its control socket.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.ask(Question::End);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}
