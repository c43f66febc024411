//! One VM from its start to its end.
//!
//! vmlab listens, QEMU connects: there is no moment at which a socket is not
//! there yet, and nothing is tried again after a pause. One `poll` waits for
//! QMP, the guest agent, the port on which the guest tells a command's end, and
//! QEMU's own end (a pidfd), so that whatever happens is seen at once. Two
//! threads beside the caller's read what QEMU prints and what the guest's
//! console prints. docs/hostile-guests.md says what a guest can cost.

mod channel;
mod console;
mod domain;
mod evidence;
mod exec;
mod failure;
mod last_state;
mod monitor;
mod offers;
mod output;
mod process;
mod protocol;
mod ram;
mod start_domain;
pub mod thin;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use vmconfig::qemu::Channels;

use crate::Cancel;
use crate::cancel::CANCEL_CHECK;
use channel::{Channel, ChannelBudget};
use console::{Console, ConsoleLog};
use domain::RunningDomain;
use process::{QemuExit, QemuProcess};
use protocol::{QmpMessage, QmpRefusal};

pub use channel::AgentLine;
pub use console::{NOTE, keep_console, read_end};
pub use evidence::met_removed_breakpoint;
pub use exec::{AgentLink, DEFAULT_MAX_OUTPUT_BYTES, GuestCommand, exec_over};
use failure::DisplaySeconds;
pub use failure::GuestFailure;
pub use monitor::{Monitor, MonitorError, Qmp};
pub use offers::{AskOffersError, ask_offers};
pub use output::{ExecOutput, ExecStatusCode};
pub use start_domain::DomainLaunch;

/// How long QEMU may take until it connects, which it does before it sets up the
/// guest's memory; and until its monitor answers, where nobody says more.
pub const START_LIMIT: Duration = Duration::from_secs(60);

/// How long one request to the monitor may take.
const QMP_LIMIT: Duration = Duration::from_secs(10);

/// How long QEMU may take to quit before it is killed.
const QUIT_LIMIT: Duration = Duration::from_secs(2);

/// Longest line of the monitor's, bytes: it may hold counters of some thousand vCPUs.
const MAX_QMP_LINE_BYTES: usize = 32 << 20;

/// Most that the monitor may say from one question to the next, bytes: its answer, and
/// the events of a long command. QEMU holds back most events that a guest can cause,
/// not those of a device by which the guest tells that it panicked.
const MAX_QMP_BYTES: u64 = 64 << 20;

/// The monitor's, for each question.
const QMP_BUDGET: ChannelBudget =
    ChannelBudget { line_bytes: MAX_QMP_LINE_BYTES, total_bytes: MAX_QMP_BYTES };

/// The agent's before it has answered: what it still had to say to somebody else.
const GREETING_BUDGET: ChannelBudget = ChannelBudget { line_bytes: 64 << 10, total_bytes: 1 << 20 };

/// The port's on which the guest tells the end of a command, for each command: a
/// line or two would do.
const ENDS_BUDGET: ChannelBudget = ChannelBudget { line_bytes: 4 << 10, total_bytes: 64 << 10 };

/// The ports, as the guest knows them.
const AGENT_PORT: &str = "org.qemu.guest_agent.0";
const ENDS_PORT: &str = "org.vmlab.done.0";
/// The monitor, as a failure calls it: what comes there in such numbers are events.
const MONITOR_PORT: &str = "QEMU's monitor";

/// The identity of the first request to the agent, by which its answer is told
/// from what an agent may still have to say to somebody before us.
const SYNC_ID: u64 = 0x766d_6c61;

/// An agent that was asked and ended before it answered, as one that the guest
/// starts anew while it boots, is asked again after so long, then after twice
/// as long: a slow one has to answer the last question.
const ASK_AGAIN: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(10) };

/// What is needed to start a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// QEMU's program.
    pub qemu: PathBuf,
    /// Its arguments, as `vmconfig::qemu::emit` makes them for `channels`.
    pub args: Vec<String>,
    /// Where vmlab and QEMU meet. The folder exists; the sockets' paths are
    /// shorter than 108 bytes.
    pub channels: Channels,
    /// Environment beside vmlab's own: the owner's mark.
    pub env: Vec<(String, String)>,
    /// How long QEMU may take until its monitor answers: it sets up the guest's memory
    /// first, and preallocating hundreds of GiB takes its time.
    pub start_limit: Duration,
}

/// A running VM. QEMU is killed when it is dropped.
#[derive(Debug)]
pub struct OwnedVm {
    process: QemuProcess,
    qmp: Channel,
    agent: Channel,
    done: Channel,
    console: Console,
    started: Instant,
    vcpu_tids: Vec<u32>,
    /// The guest tells when a command ended.
    tells_ends: bool,
    /// It has told so, and nobody has heard it yet.
    told_end: bool,
    /// The agent has answered.
    ready: bool,
    /// What the agent was asked last, and when.
    sync_id: u64,
    asked: Instant,
    /// What the answers about the present command may be.
    answers: ChannelBudget,
    /// When the agent has said all that there is to say of it.
    answer_by: Instant,
    /// The answer to the request under way.
    qmp_answer: Option<(u64, Result<Value, QmpRefusal>)>,
    qmp_id: u64,
    /// Why QEMU said that it shuts down.
    shutdown_reason: Option<String>,
    /// Where the devices' state goes, should the guest hang or panic.
    last_state: Option<PathBuf>,
    /// How the VM failed, once it has.
    ended: Option<GuestFailure>,
}

impl OwnedVm {
    /// Starts QEMU and waits for its monitor; the guest begins to boot.
    ///
    /// # Errors
    /// [`GuestFailure::Refused`] with what QEMU printed, or
    /// [`GuestFailure::Cancelled`].
    pub fn start(launch: &Launch, cancel: &Cancel) -> Result<Self, GuestFailure> {
        let channels = &launch.channels;
        let paths = [
            &channels.qmp_socket,
            &channels.agent_socket,
            &channels.done_socket,
            &channels.console_socket,
        ];
        let listeners = listen_all(paths)?;
        let log = log(channels)?;

        let started = Instant::now();
        let mut process = QemuProcess::spawn(&launch.qemu, &launch.args, &launch.env)
            .map_err(|error| refused(format!("cannot run {:?}: {error}", launch.qemu)))?;
        let sockets = accept_all(&listeners, &mut process, launch.start_limit, cancel);
        remove_all(paths);
        Self::over(process, sockets?, log, started, launch.start_limit, cancel)
    }

    /// The VM of a process that is connected: to its monitor, the two ports and the
    /// console.
    fn over(
        process: QemuProcess,
        sockets: [UnixStream; 4],
        log: ConsoleLog,
        started: Instant,
        start_limit: Duration,
        cancel: &Cancel,
    ) -> Result<Self, GuestFailure> {
        let [qmp, agent, done, console] = sockets;
        let of_socket = |error: io::Error| refused(format!("a socket: {error}"));
        let channel = |socket, budget| Channel::new(socket, budget).map_err(of_socket);
        let mut vm = Self {
            qmp: channel(qmp, QMP_BUDGET)?,
            agent: channel(agent, GREETING_BUDGET)?,
            done: channel(done, ENDS_BUDGET)?,
            process,
            console: Console::read(console, log).map_err(of_socket)?,
            started,
            vcpu_tids: Vec::new(),
            tells_ends: false,
            told_end: false,
            ready: false,
            sync_id: SYNC_ID,
            asked: started,
            answers: GREETING_BUDGET,
            answer_by: started,
            qmp_answer: None,
            qmp_id: 0,
            shutdown_reason: None,
            last_state: None,
            ended: None,
        };
        vm.call();
        vm.shake_hands(start_limit, cancel).map_err(|failure| {
            match (failure, ended_with(&mut vm.process)) {
                // Somebody's signal is not QEMU's refusal.
                (GuestFailure::Died { detail }, Some(ending)) if !ending.by_signal() => {
                    refused(detail)
                }
                (other, _) => other,
            }
        })?;
        Ok(vm)
    }

    /// Asks the agent whether it is there. QEMU hands on nothing to a port that
    /// the guest has not opened: the question waits in the socket for the agent's
    /// first read.
    fn call(&mut self) {
        let id = Some(json!({ "id": self.sync_id }));
        let sync = protocol::request("guest-sync-delimited", id, None);
        self.agent.send(&[b"\xff", sync.as_slice()].concat());
        self.asked = Instant::now();
    }

    fn shake_hands(&mut self, limit: Duration, cancel: &Cancel) -> Result<(), GuestFailure> {
        // Sent before the greeting is read; QEMU takes requests in order.
        let until = self.started + limit;
        let Some(taken) = self.qmp_by("qmp_capabilities", None, until, cancel)? else {
            return Err(self.end_with(silent_monitor(limit)));
        };
        taken.map_err(|refusal| GuestFailure::Refused { detail: refusal.desc })?;
        let answer = self.qmp("query-cpus-fast", None, until, cancel)?;
        self.vcpu_tids =
            answer.ok().and_then(protocol::vcpu_threads).ok_or_else(|| GuestFailure::Refused {
                detail: "its monitor does not tell the vCPUs' threads".to_owned(),
            })?;
        Ok(())
    }

    /// Waits until the guest agent answers, and returns the time from the start
    /// of QEMU to that answer. `limit` counts from the start of QEMU.
    ///
    /// # Errors
    /// [`GuestFailure::NeverAnswered`], or what ended the VM before.
    pub fn wait_ready(
        &mut self,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<Duration, GuestFailure> {
        let until = self.started + limit;
        self.wait_ready_unless(cancel, &mut |_| (Instant::now() >= until).then_some(limit))
    }

    /// Like [`Self::wait_ready`], until `give_up` names the limit that was
    /// reached; it is told how many bytes the guest has printed on its console.
    pub(crate) fn wait_ready_unless(
        &mut self,
        cancel: &Cancel,
        give_up: &mut dyn FnMut(u64) -> Option<Duration>,
    ) -> Result<Duration, GuestFailure> {
        loop {
            while let Some(line) = self.agent.next_line() {
                let AgentLine::Text(line) = line else { continue };
                // Behind the answer to the last question nothing more comes.
                if protocol::returned_number(&line) == Some(self.sync_id) {
                    self.ready = true;
                    let boot = self.started.elapsed();
                    return Ok(boot);
                }
            }
            let times = 1 << (self.sync_id - SYNC_ID).min(8);
            if self.asked.elapsed() >= ASK_AGAIN * times {
                self.sync_id += 1;
                self.call();
            }
            if let Some(limit) = give_up(self.console.seen_bytes()) {
                self.note_vcpus(Instant::now() + evidence::VCPUS_LIMIT, cancel);
                self.note_state();
                return Err(self.end_with(GuestFailure::NeverAnswered { limit }));
            }
            self.pump(Instant::now() + CANCEL_CHECK, cancel)?;
        }
    }

    /// QEMU's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The vCPUs' threads, by vCPU index.
    #[must_use]
    pub fn vcpu_tids(&self) -> &[u32] {
        &self.vcpu_tids
    }

    /// The last `lines` lines of the guest's console.
    #[must_use]
    pub fn console_tail(&self, lines: usize) -> String {
        let text = self.console.tail();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// The accelerator's counters now, as `kvm.<name>` summed over the vCPUs;
    /// empty where QEMU or the accelerator has none (before 7.1, TCG).
    ///
    /// # Errors
    /// Only the failures of the VM itself.
    ///
    /// Source: QMP `query-stats`; the names are the kernel's, see Linux
    /// `Documentation/virt/kvm/api.rst`, `KVM_GET_STATS_FD`.
    pub fn query_stats(&mut self, cancel: &Cancel) -> Result<BTreeMap<String, f64>, GuestFailure> {
        let mut sums = BTreeMap::new();
        for target in ["vm", "vcpu"] {
            let until = Instant::now() + QMP_LIMIT;
            let arguments = json!({ "target": target });
            let Ok(answer) = self.qmp("query-stats", Some(arguments), until, cancel)? else {
                return Ok(BTreeMap::new());
            };
            protocol::add_stats(answer, &mut sums);
        }
        Ok(sums)
    }

    /// The yes/no properties of vCPU 0 that are called `names`, as QEMU gave them
    /// to the guest: without what the accelerator lacks. One that QEMU does not
    /// know is absent.
    ///
    /// # Errors
    /// Only the failures of the VM itself.
    ///
    /// Source: QMP `qom-get`.
    pub fn vcpu_properties(
        &mut self,
        names: &[&str],
        cancel: &Cancel,
    ) -> Result<BTreeMap<String, bool>, GuestFailure> {
        let mut found = BTreeMap::new();
        let until = Instant::now() + QMP_LIMIT;
        let vcpus = self.qmp("query-cpus-fast", None, until, cancel)?.unwrap_or_default();
        let Some(path) = vcpus[0]["qom-path"].as_str() else { return Ok(found) };
        for name in names {
            let arguments = json!({ "path": path, "property": name });
            let answer = self.qmp("qom-get", Some(arguments), until, cancel)?;
            if let Some(on) = answer.ok().and_then(|value| value.as_bool()) {
                found.insert((*name).to_owned(), on);
            }
        }
        Ok(found)
    }

    /// The last of what QEMU itself printed.
    #[must_use]
    pub fn printed(&mut self) -> String {
        self.process.printed()
    }

    /// Ends QEMU: asked to quit, killed if it does not within 2 s. The guest is
    /// not asked: nothing that it wrote is kept.
    pub fn shutdown(mut self) {
        if self.process.domain().is_some() {
            self.process.kill();
            return;
        }
        self.qmp.send(&protocol::request("quit", None, None));
        let until = Instant::now() + QUIT_LIMIT;
        if !matches!(self.process.wait_until(until), Ok(Some(_))) {
            self.process.kill();
        }
    }

    /// One request to the monitor and its answer.
    fn qmp(
        &mut self,
        command: &str,
        arguments: Option<Value>,
        until: Instant,
        cancel: &Cancel,
    ) -> Result<Result<Value, QmpRefusal>, GuestFailure> {
        if let Some(answer) = self.qmp_by(command, arguments, until, cancel)? {
            return Ok(answer);
        }
        let detail = format!("its monitor did not answer {command}");
        Err(self.end_with(GuestFailure::Died { detail }))
    }

    /// Like [`Self::qmp`]; `None` if there is no answer by `until`.
    fn qmp_by(
        &mut self,
        command: &str,
        arguments: Option<Value>,
        until: Instant,
        cancel: &Cancel,
    ) -> Result<Option<Result<Value, QmpRefusal>>, GuestFailure> {
        let id = self.next_question();
        self.qmp.send(&protocol::request(command, arguments, Some(id)));
        self.qmp_answer_by(id, until, cancel)
    }

    /// The number of a new question, which may cost as much as any.
    fn next_question(&mut self) -> u64 {
        self.qmp.renew(QMP_BUDGET);
        self.qmp_id += 1;
        self.qmp_id
    }

    /// The answer to the request `id`; `None` if there is none by `until`.
    fn qmp_answer_by(
        &mut self,
        id: u64,
        until: Instant,
        cancel: &Cancel,
    ) -> Result<Option<Result<Value, QmpRefusal>>, GuestFailure> {
        loop {
            if let Some((answered, result)) = self.qmp_answer.take()
                && answered == id
            {
                return Ok(Some(result));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            self.pump(until, cancel)?;
        }
    }

    /// Waits until something happens, at most until `until` or the next look at
    /// `cancel`, and takes it in.
    fn pump(&mut self, until: Instant, cancel: &Cancel) -> Result<(), GuestFailure> {
        if let Some(failure) = &self.ended {
            return Err(failure.clone());
        }
        cancel.check()?;
        let wait = until.saturating_duration_since(Instant::now()).min(CANCEL_CHECK);
        let (quiet, process_ended) = {
            let channels = [&self.qmp, &self.agent, &self.done];
            let mut polled = vec![PollFd::from_borrowed_fd(self.process.fd(), PollFlags::IN)];
            polled.extend(channels.iter().filter_map(|channel| {
                let mut wanted = PollFlags::empty();
                wanted.set(PollFlags::IN, channel.wants_to_read());
                wanted.set(PollFlags::OUT, channel.wants_to_send());
                // A closed one would end every wait, and so would one that is full.
                (!wanted.is_empty()).then(|| PollFd::from_borrowed_fd(channel.fd(), wanted))
            }));
            let timeout = Timespec::try_from(wait).expect("a short time fits");
            // An interrupted wait is one that ended early.
            let quiet = !rustix::event::poll(&mut polled, Some(&timeout)).is_ok_and(|n| n > 0);
            (quiet, !polled[0].revents().is_empty())
        };
        if quiet {
            return Ok(());
        }
        for channel in [&mut self.qmp, &mut self.agent, &mut self.done] {
            channel.flush();
            channel.fill();
        }
        while self.done.next_line().is_some() {
            // Whatever it says, it shows that the guest tells.
            (self.tells_ends, self.told_end) = (true, true);
        }
        while let Some(line) = self.qmp.next_line() {
            let AgentLine::Text(line) = line else { continue };
            match protocol::parse_qmp(&line) {
                Some(QmpMessage::Answer { id, result }) => self.qmp_answer = Some((id, result)),
                Some(QmpMessage::Event { name, data, .. }) => self.note_event(&name, &data),
                Some(QmpMessage::Greeting) | None => {}
            }
        }
        if process_ended && self.ended.is_none() {
            self.ended = Some(self.how_it_ended());
        }
        let ports = [(&self.agent, AGENT_PORT), (&self.done, ENDS_PORT), (&self.qmp, MONITOR_PORT)];
        let flooded = ports.iter().find_map(|(channel, port)| {
            let limit_bytes = channel.overrun()?.total_bytes;
            Some(GuestFailure::Flooded { port: (*port).to_owned(), limit_bytes })
        });
        if let Some(flooded) = flooded
            && self.ended.is_none()
        {
            self.end_with(flooded);
        }
        if !process_ended {
            match (&self.ended, &self.shutdown_reason) {
                (Some(GuestFailure::Panicked { .. }), _) => self.note_state(),
                (None, Some(_)) => self.after_shutdown(),
                _ => {}
            }
        }
        match &self.ended {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    fn note_event(&mut self, name: &str, data: &Value) {
        let by_guest = data["guest"] == true;
        let reason = data["reason"].as_str().unwrap_or("unknown reason").to_owned();
        match name {
            "GUEST_PANICKED" => {
                let detail = self
                    .console
                    .panic_line()
                    .unwrap_or_else(|| "QEMU was told so by the guest (pvpanic)".to_owned());
                self.ended = Some(GuestFailure::Panicked { detail });
            }
            // QEMU's end follows, and tells more.
            "SHUTDOWN" if by_guest => self.shutdown_reason = Some(reason),
            // Boot loaders may reset the machine; a guest at work may not.
            "RESET" if by_guest && self.ready => {
                self.ended = Some(GuestFailure::Shutdown { detail: reason });
            }
            _ => {}
        }
    }

    /// What the end of QEMU's process means.
    fn how_it_ended(&mut self) -> GuestFailure {
        let status = self.process.wait_until(Instant::now() + QUIT_LIMIT);
        if let Some(detail) = self.console.panic_line() {
            return GuestFailure::Panicked { detail };
        }
        if let Some(detail) = self.shutdown_reason.take() {
            return GuestFailure::Shutdown { detail };
        }
        if let Some(ended) = self.process.domain().and_then(RunningDomain::ended_by_guest) {
            return ended;
        }
        self.process.failure(status.ok().flatten(), "its process ended")
    }

    /// Ends the VM's use with `failure`, or with the panic that explains it.
    fn end_with(&mut self, failure: GuestFailure) -> GuestFailure {
        let failure = match self.console.panic_line() {
            Some(detail) => GuestFailure::Panicked { detail },
            None => failure,
        };
        self.ended = Some(failure.clone());
        failure
    }
}

/// How QEMU ended, if it has.
fn ended_with(process: &mut QemuProcess) -> Option<QemuExit> {
    process.wait_until(Instant::now()).ok().flatten()
}

fn refused(detail: String) -> GuestFailure {
    GuestFailure::Refused { detail }
}

/// The file in which the console's end is kept.
fn log(channels: &Channels) -> Result<ConsoleLog, GuestFailure> {
    ConsoleLog::create(&channels.console_log)
        .map_err(|error| refused(format!("cannot write {:?}: {error}", channels.console_log)))
}

fn listen_all<const N: usize>(paths: [&PathBuf; N]) -> Result<[UnixListener; N], GuestFailure> {
    let listeners = paths.iter().map(|path| listen(path).map_err(refused));
    let listeners: Vec<UnixListener> = listeners.collect::<Result<_, _>>()?;
    Ok(listeners.try_into().expect("as many as paths"))
}

/// Sockets' files: they are connected or of no more use.
fn remove_all<const N: usize>(paths: [&PathBuf; N]) {
    for path in paths {
        let _ = std::fs::remove_file(path);
    }
}

fn listen(path: &Path) -> Result<UnixListener, String> {
    let said = |error: io::Error| format!("cannot listen on {path:?}: {error}");
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(said(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(said)?;
    listener.set_nonblocking(true).map_err(said)?;
    Ok(listener)
}

/// QEMU's monitor that said nothing for so long.
fn silent_monitor(limit: Duration) -> GuestFailure {
    let detail = format!(
        "its monitor did not answer within {} of its start; it sets up the guest's memory before",
        DisplaySeconds(limit)
    );
    GuestFailure::Died { detail }
}

/// Waits for QEMU's connections, one for each listener.
fn accept_all<const N: usize>(
    listeners: &[UnixListener; N],
    process: &mut QemuProcess,
    limit: Duration,
    cancel: &Cancel,
) -> Result<[UnixStream; N], GuestFailure> {
    let until = Instant::now() + limit;
    let mut streams: [Option<UnixStream>; N] = [const { None }; N];
    loop {
        for (listener, stream) in listeners.iter().zip(&mut streams) {
            if stream.is_none() {
                *stream = listener.accept().ok().map(|(stream, _)| stream);
            }
        }
        if streams.iter().all(Option::is_some) {
            return Ok(streams.map(|stream| stream.expect("all are there")));
        }
        cancel.check()?;
        if let Ok(Some(status)) = process.wait_until(Instant::now()) {
            let printed = process.printed();
            let detail = if printed.is_empty() { QemuProcess::describe(status) } else { printed };
            return Err(match status.by_signal() {
                false => GuestFailure::Refused { detail },
                true => status.failure(detail),
            });
        }
        if Instant::now() >= until {
            let detail = format!("it did not connect within {}", DisplaySeconds(limit));
            return Err(GuestFailure::Refused { detail });
        }
        let mut polled = vec![PollFd::from_borrowed_fd(process.fd(), PollFlags::IN)];
        let waiting = listeners.iter().zip(&streams).filter(|(_, stream)| stream.is_none());
        polled.extend(
            waiting.map(|(listener, _)| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)),
        );
        let timeout = Timespec::try_from(CANCEL_CHECK).expect("a short time fits");
        // Whatever ended the wait, the next round looks at everything.
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
}

#[cfg(test)]
mod tests;
