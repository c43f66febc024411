//! A running switch: started, asked, told, ended.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use crate::bell::Bell;
use crate::config::SwitchConfig;
use crate::control::{Control, ControlCall};
use crate::event::{StartError, SwitchEvent};
use crate::question::{ControlReply, Question};

/// Events that wait to be taken.
const EVENTS: usize = 1024;

/// A switch that runs until it is dropped.
#[derive(Debug)]
pub struct Switch {
    asker: SwitchHandle,
    events: Receiver<SwitchEvent>,
    thread: Option<JoinHandle<()>>,
}

/// Asks a switch of this process, from any thread.
#[derive(Debug, Clone)]
pub struct SwitchHandle {
    calls: Sender<ControlCall>,
    bell: Arc<Bell>,
}

impl SwitchHandle {
    /// Asks or tells it something.
    #[must_use]
    pub fn ask(&self, question: Question) -> ControlReply {
        let (reply, answer) = mpsc::channel();
        let gone = || ControlReply::Error("The switch has ended".to_owned());
        if self.calls.send(ControlCall { question, reply }).is_err() {
            return gone();
        }
        self.bell.ring_always();
        answer.recv().unwrap_or_else(|_| gone())
    }
}

impl Switch {
    /// Listens on all sockets and starts the threads. With the sandbox, the whole
    /// process keeps only the rights that a switch needs.
    ///
    /// # Errors
    /// [`StartError`]; no socket is left behind then.
    pub fn start(config: &SwitchConfig) -> Result<Self, StartError> {
        let (calls, asked) = mpsc::channel();
        let (happened, events) = mpsc::sync_channel(EVENTS);
        let control = Control::new(config, asked, happened)?;
        let bell = control.bell();
        let thread = std::thread::Builder::new().name("vswitch-control".to_owned());
        let what = "start the control thread";
        let thread = thread
            .spawn(move || control.run())
            .map_err(|source| StartError::Os { what, source })?;
        let switch = Self { asker: SwitchHandle { calls, bell }, events, thread: Some(thread) };
        if config.sandbox {
            // Of all threads, the caller's included: no more of them are made.
            crate::sandbox::keep_to_calls(config.connects()).map_err(StartError::Sandbox)?;
        }
        Ok(switch)
    }

    /// Asks or tells it something.
    #[must_use]
    pub fn ask(&self, question: Question) -> ControlReply {
        self.asker.ask(question)
    }

    /// What another thread asks it with.
    #[must_use]
    pub fn asker(&self) -> SwitchHandle {
        self.asker.clone()
    }

    /// What happens; it ends with the switch.
    #[must_use]
    pub fn events(&self) -> &Receiver<SwitchEvent> {
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
