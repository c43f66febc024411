//! Commands in the guest.
//!
//! **No polling while a benchmark runs.** The agent's own protocol only offers
//! to ask `guest-exec-status` again and again, and every such question takes
//! the guest's time from what is measured. Instead the command inherits a FIFO
//! that the guest's first process reads: the read ends when the command and
//! all its children are gone, and that process then writes a line to a second
//! virtio-serial port. Until then host and guest agent sleep; exit status,
//! signal and output are still the agent's own.
//!
//! Guests without that service (users' own images) are asked with pauses of a
//! tenth of the time that the command runs already, 10 ms to 1 s; the same
//! happens from the moment on at which a process of an earlier command still
//! holds the FIFO. A question every 5 s is asked in any case, to see whether
//! the guest still lives.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::channel::{AgentLine, ChannelBudget};
use super::evidence::VCPUS_LIMIT;
use super::failure::GuestFailure;
use super::output::{ExecOutput, ExecStatusCode};
use super::process::longest_since;
use super::protocol::{self, AgentAnswer, BorrowedText, ExecStatus};
use super::{ENDS_BUDGET, OwnedVm};
use crate::Cancel;

/// How much of stdout, and of stderr, is kept if nobody says otherwise: well
/// above what benchmarks print, and little enough to hold in memory twice.
pub const DEFAULT_MAX_OUTPUT_BYTES: usize = 8 << 20;

/// The agent keeps no more than this of an output.
/// Source: QEMU `qga/commands.c`, `GUEST_EXEC_MAX_OUTPUT`.
const AGENT_MAX_OUTPUT_BYTES: usize = 16 << 20;

/// How long the agent may take for one answer, beside what its VM waits for a pCPU
/// meanwhile: guests on a host that was ten times overcommitted were silent for longer, and
/// answered. It is an ordinary process of the guest, which a benchmark with real-time
/// priority keeps waiting; emulated guests that poll when idle were seen to take more than
/// 20 s.
const AGENT_LIMIT: Duration = Duration::from_secs(60);

/// More time for an answer is given in no smaller pieces.
const SHORTEST_DELAY: Duration = Duration::from_secs(1);

/// How long a command, and the agent's answers about it, may go on past the
/// command's time limit: it is killed then, and asked for once more. With what is left to
/// do for the trial it is over 5 s after the limit.
const KILL_LIMIT: Duration =
    if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(4) };

/// What the rest of an agent's answer takes beside the outputs, bytes.
const AROUND_OUTPUT_BYTES: usize = 4096;

/// Most of what an agent says of an error that is kept, characters.
const DETAIL_CHARS: usize = 1000;

/// Between two questions, where the guest tells the end by itself.
const PAUSE_WITH_SIGNAL: Duration = Duration::from_secs(5);
/// Shortest and longest pause where it does not.
const PAUSE_SHORTEST: Duration = Duration::from_millis(10);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);
/// First pause after the guest said that the command ended, and the agent did
/// not know yet.
const PAUSE_AFTER_SIGNAL: Duration = Duration::from_millis(1);

/// Starts a command in a session of its own, so that it can be killed with all
/// its children, and lets it hold the FIFO if there is one. Opening the FIFO
/// waits for its reader, so no command starts before the guest's first process
/// has done all that it does at boot.
const LAUNCHER: &str = "if [ -p /run/vmlab/done ]; then exec 9>/run/vmlab/done; fi\n\
    cd /tmp\n\
    exec setsid \"$@\"";

/// Where a command's stdin lies that had to come in pieces.
const INPUT_FILE: &str = "/tmp/vmlab-input";

/// What goes before [`LAUNCHER`] where the stdin lies there.
const FROM_FILE: &str = "exec </tmp/vmlab-input\nrm -f /tmp/vmlab-input\n";

/// What every command finds in its environment; its own entries come after.
const ENVIRONMENT: [&str; 3] =
    ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"];

/// A command to run in the guest, as root, in `/tmp`, in a session of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestCommand {
    /// The program (looked up in the usual folders) and its arguments.
    pub argv: Vec<String>,
    /// Environment beside PATH, HOME and `LC_ALL=C`.
    pub env: Vec<(String, String)>,
    /// What it reads from stdin; nothing if `None`.
    pub stdin: Option<Vec<u8>>,
    /// When it is killed, with all its children.
    pub limit: Duration,
    /// How many bytes of stdout, and of stderr, are kept; at most 16 MiB.
    pub max_output_bytes: usize,
}

impl GuestCommand {
    /// A command with no extra environment and no stdin.
    pub fn new<T: Into<String>>(argv: impl IntoIterator<Item = T>, limit: Duration) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            stdin: None,
            limit,
            max_output_bytes: DEFAULT_MAX_OUTPUT_BYTES,
        }
    }

    fn program(&self) -> String {
        self.argv.first().cloned().unwrap_or_default()
    }
}

/// How a command ended, as far as it is known.
enum CommandExit {
    /// It runs.
    NotYet,
    /// It ended, and its output is too large.
    TooLarge,
    /// It ended.
    Output(ExecOutput),
}

/// The way to a guest's agent, and what is heard of the guest meanwhile.
pub trait AgentLink {
    /// A command begins: the answers about it have lines of at most `line_bytes`, and are
    /// together no more than `total_bytes`; all is said by `answer_by`.
    fn begin(&mut self, line_bytes: usize, total_bytes: u64, answer_by: Instant);

    /// One request to the agent, and the line that answers it.
    ///
    /// # Errors
    /// The failures of the VM itself, and of the way to it.
    fn ask(
        &mut self,
        command: &str,
        arguments: Option<Value>,
        cancel: &Cancel,
    ) -> Result<AgentLine, GuestFailure>;

    /// Waits until the guest says that a command ended; false after `until`.
    ///
    /// # Errors
    /// The failures of the VM itself, and of the way to it.
    fn wait_told(&mut self, until: Instant, cancel: &Cancel) -> Result<bool, GuestFailure>;

    /// Whether the guest says by itself that a command ended.
    fn tells_ends(&self) -> bool {
        false
    }

    /// It did not, though one had.
    fn doubt_ends(&mut self) {}

    /// Longest request that goes over whole, bytes; what a command reads from stdin goes
    /// over in pieces where it does not fit.
    fn most_request_bytes(&self) -> usize {
        usize::MAX
    }
}

/// Runs a command in the guest at the other end of `link` to its end.
///
/// # Errors
/// As [`OwnedVm::exec`].
pub fn exec_over(
    link: &mut impl AgentLink,
    command: &GuestCommand,
    cancel: &Cancel,
) -> Result<ExecOutput, GuestFailure> {
    Conversation { link, answer_by: Instant::now() }.exec(command, cancel)
}

/// The agent's part in one command.
struct Conversation<'a, L> {
    link: &'a mut L,
    /// When the agent has said all that there is to say of it.
    answer_by: Instant,
}

impl OwnedVm {
    /// Runs a command in the guest to its end.
    ///
    /// # Errors
    /// Besides the failures of the VM itself: [`GuestFailure::TimeLimit`],
    /// [`GuestFailure::OutputTooLarge`], [`GuestFailure::ProgramMissing`],
    /// [`GuestFailure::Agent`], after which the VM can be used again; and
    /// [`GuestFailure::Cancelled`], after which it should be shut down.
    ///
    /// Source: QEMU guest agent protocol, `guest-exec`, `guest-exec-status`.
    pub fn exec(
        &mut self,
        command: &GuestCommand,
        cancel: &Cancel,
    ) -> Result<ExecOutput, GuestFailure> {
        exec_over(self, command, cancel)
    }
}

impl AgentLink for OwnedVm {
    fn begin(&mut self, line_bytes: usize, total_bytes: u64, answer_by: Instant) {
        self.answers = ChannelBudget { line_bytes, total_bytes };
        // What was told before is of another command.
        self.told_end = false;
        self.done.renew(ENDS_BUDGET);
        self.answer_by = answer_by;
    }

    fn ask(
        &mut self,
        command: &str,
        arguments: Option<Value>,
        cancel: &Cancel,
    ) -> Result<AgentLine, GuestFailure> {
        self.ask_agent(command, arguments, cancel)
    }

    fn tells_ends(&self) -> bool {
        self.tells_ends
    }

    fn doubt_ends(&mut self) {
        self.tells_ends = false;
    }

    fn wait_told(&mut self, until: Instant, cancel: &Cancel) -> Result<bool, GuestFailure> {
        loop {
            if std::mem::take(&mut self.told_end) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            self.pump(until, cancel)?;
        }
    }
}

/// When the agent has to have answered, if that is not `now` yet: it may take until `due`,
/// which its VM's waiting for pCPUs put off, and never beyond `answer_by`.
fn put_off(now: Instant, due: Instant, answer_by: Instant) -> Option<Instant> {
    let later = answer_by.min(due);
    (later >= now + SHORTEST_DELAY).then_some(later)
}

impl OwnedVm {
    /// One request to the agent, and the line that answers it.
    pub(super) fn ask_agent(
        &mut self,
        command: &str,
        arguments: Option<Value>,
        cancel: &Cancel,
    ) -> Result<AgentLine, GuestFailure> {
        self.agent.renew(self.answers);
        self.agent.send(&protocol::request(command, arguments, None));
        let asked = Instant::now();
        let waited_before = self.process.waited();
        let mut until = self.answer_by.min(asked + AGENT_LIMIT);
        // To look at the vCPUs takes of the same time: the answer may still come meanwhile.
        let looking = VCPUS_LIMIT.min(until.saturating_duration_since(asked) / 2);
        let mut look_at = Some(until - looking);
        loop {
            if let Some(line) = self.agent.next_line() {
                return Ok(line);
            }
            if look_at.is_some_and(|at| Instant::now() >= at) {
                look_at = None;
                self.note_vcpus(until, cancel);
                continue;
            }
            let now = Instant::now();
            if now >= until {
                let waited = longest_since(&waited_before, &self.process.waited());
                if let Some(later) = put_off(now, asked + AGENT_LIMIT + waited, self.answer_by) {
                    until = later;
                    continue;
                }
                let limit = until.saturating_duration_since(asked);
                self.note_state();
                let hung = GuestFailure::Hung { command: command.to_owned(), limit };
                return Err(self.end_with(hung));
            }
            self.pump(look_at.unwrap_or(until), cancel)?;
        }
    }
}

impl<L: AgentLink> Conversation<'_, L> {
    fn exec(
        &mut self,
        command: &GuestCommand,
        cancel: &Cancel,
    ) -> Result<ExecOutput, GuestFailure> {
        let started = Instant::now();
        let kept = command.max_output_bytes.min(AGENT_MAX_OUTPUT_BYTES);
        // What is longer than what is kept is dropped; more than an agent can say
        // is no answer.
        let most = answer_bytes(AGENT_MAX_OUTPUT_BYTES) as u64;
        let limit_at = started + command.limit;
        self.answer_by = limit_at + KILL_LIMIT;
        self.link.begin(answer_bytes(kept), most, self.answer_by);
        let pid = self.begin(command, cancel)?;

        let mut pause = if self.link.tells_ends() { PAUSE_WITH_SIGNAL } else { PAUSE_SHORTEST };
        loop {
            let told = self.link.wait_told(limit_at.min(Instant::now() + pause), cancel)?;
            let told_at = Instant::now();
            match self.ask(pid, command, cancel)? {
                CommandExit::NotYet => {}
                CommandExit::TooLarge => return Err(too_large(command)),
                CommandExit::Output(mut output) => {
                    let asked_in_vain = pause < PAUSE_WITH_SIGNAL;
                    if self.link.tells_ends() && !told && !asked_in_vain {
                        // Somebody else holds the FIFO: nobody will tell.
                        self.link.doubt_ends();
                    }
                    output.wall = if told { told_at } else { Instant::now() } - started;
                    return finish(command, output);
                }
            }
            let now = Instant::now();
            if now >= limit_at {
                return Err(self.stop(pid, command, cancel));
            }
            pause = if told {
                PAUSE_AFTER_SIGNAL
            } else if self.link.tells_ends() {
                (pause * 2).min(PAUSE_WITH_SIGNAL)
            } else {
                ((now - started) / 10).clamp(PAUSE_SHORTEST, PAUSE_LONGEST)
            };
        }
    }

    fn begin(&mut self, command: &GuestCommand, cancel: &Cancel) -> Result<u64, GuestFailure> {
        let input = command.stdin.as_deref().unwrap_or_default();
        // In base64, beside the command itself.
        let most = self.link.most_request_bytes();
        let in_pieces = input.len().div_ceil(3).saturating_mul(4) > most / 2;
        let mut launcher = LAUNCHER.to_owned();
        if in_pieces {
            self.write_input(input, most, cancel)?;
            launcher.insert_str(0, FROM_FILE);
        }
        let mut arguments = vec!["-c".to_owned(), launcher, "vmlab".to_owned()];
        arguments.extend(command.argv.iter().cloned());
        let environment: Vec<String> = ENVIRONMENT
            .iter()
            .map(|entry| (*entry).to_owned())
            .chain(command.env.iter().map(|(name, value)| format!("{name}={value}")))
            .collect();
        let input = command.stdin.as_ref().filter(|_| !in_pieces);
        let input = input.map(|input| BASE64.encode(input));
        self.guest_exec(&arguments, &environment, input, cancel)
    }

    /// Writes what a command is to read from stdin to [`INPUT_FILE`], piece by piece.
    ///
    /// Source: QEMU guest agent protocol, `guest-file-open`, `guest-file-write`.
    fn write_input(
        &mut self,
        input: &[u8],
        most_bytes: usize,
        cancel: &Cancel,
    ) -> Result<(), GuestFailure> {
        let mut ask = |name: &str, arguments: Value| {
            let line = self.link.ask(name, Some(arguments), cancel)?;
            let AgentLine::Text(line) = line else { return Err(not_understood(name, b"")) };
            answer::<Value>(name, &line)
        };
        let handle = ask("guest-file-open", json!({ "path": INPUT_FILE, "mode": "w" }))?;
        for piece in input.chunks((most_bytes / 8 * 3).max(1)) {
            let written =
                json!({ "handle": handle, "buf-b64": BASE64.encode(piece), "count": piece.len() });
            let said = ask("guest-file-write", written)?;
            if said["count"] != piece.len() {
                let detail = format!("of {} bytes it wrote {}", piece.len(), said["count"]);
                let command = "guest-file-write".to_owned();
                return Err(GuestFailure::Agent { command, detail });
            }
        }
        ask("guest-file-close", json!({ "handle": handle })).map(drop)
    }

    fn guest_exec(
        &mut self,
        arguments: &[String],
        environment: &[String],
        input: Option<String>,
        cancel: &Cancel,
    ) -> Result<u64, GuestFailure> {
        #[derive(serde::Deserialize)]
        struct StartedCommand {
            pid: u64,
        }
        let arguments = protocol::exec_arguments("/bin/sh", arguments, environment, input);
        let line = self.link.ask("guest-exec", Some(arguments), cancel)?;
        let AgentLine::Text(line) = line else { return Err(not_understood("guest-exec", b"")) };
        let started: StartedCommand = answer("guest-exec", &line)?;
        Ok(started.pid)
    }

    /// Asks once how the command is.
    fn ask(
        &mut self,
        pid: u64,
        command: &GuestCommand,
        cancel: &Cancel,
    ) -> Result<CommandExit, GuestFailure> {
        const NAME: &str = "guest-exec-status";
        let arguments = json!({ "pid": pid });
        let AgentLine::Text(line) = self.link.ask(NAME, Some(arguments), cancel)? else {
            return Ok(CommandExit::TooLarge);
        };
        let status: ExecStatus<'_> = answer(NAME, &line)?;
        if !status.exited {
            return Ok(CommandExit::NotYet);
        }
        let decode = |data: &Option<BorrowedText<'_>>| {
            let text = data.as_ref().map_or("", |text| &text.0);
            BASE64.decode(text).map_err(|_| not_understood(NAME, &line))
        };
        let (stdout, stderr) = (decode(&status.out_data)?, decode(&status.err_data)?);
        let most = command.max_output_bytes;
        if status.out_truncated
            || status.err_truncated
            || stdout.len() > most
            || stderr.len() > most
        {
            return Ok(CommandExit::TooLarge);
        }
        let code = match (status.signal, status.exit_code) {
            (Some(signal), _) => ExecStatusCode::Signalled(signal),
            (None, Some(code)) => ExecStatusCode::Exited(code),
            (None, None) => return Err(not_understood(NAME, &line)),
        };
        Ok(CommandExit::Output(ExecOutput { stdout, stderr, status: code, wall: Duration::ZERO }))
    }

    /// Kills a command that ran out of its time, and says how that went.
    fn stop(&mut self, pid: u64, command: &GuestCommand, cancel: &Cancel) -> GuestFailure {
        let kill = ["-c", "kill -KILL \"-$1\"", "vmlab", &pid.to_string()].map(str::to_owned);
        let environment = ENVIRONMENT.map(str::to_owned);
        if let Err(failure) = self.guest_exec(&kill, &environment, None, cancel) {
            return failure;
        }
        let gone_by = self.answer_by;
        let mut pause = PAUSE_SHORTEST;
        let output = loop {
            // Asked then, the agent would have no time to answer.
            if Instant::now() >= gone_by {
                break None;
            }
            match self.ask(pid, command, cancel) {
                Err(failure) => return failure,
                Ok(CommandExit::TooLarge) => return too_large(command),
                Ok(CommandExit::Output(output)) => {
                    break Some(ExecOutput { wall: command.limit, ..output });
                }
                Ok(CommandExit::NotYet) => {}
            }
            let next = gone_by.min(Instant::now() + pause);
            if let Err(failure) = self.link.wait_told(next, cancel) {
                return failure;
            }
            pause *= 2;
        };
        GuestFailure::TimeLimit {
            program: command.program(),
            limit: command.limit,
            output: Box::new(output),
        }
    }
}

/// Longest answer with two outputs of `output_bytes` each: base64, and the rest.
const fn answer_bytes(output_bytes: usize) -> usize {
    2 * (output_bytes.div_ceil(3) * 4) + AROUND_OUTPUT_BYTES
}

fn too_large(command: &GuestCommand) -> GuestFailure {
    GuestFailure::OutputTooLarge {
        program: command.program(),
        limit_bytes: command.max_output_bytes.min(AGENT_MAX_OUTPUT_BYTES),
    }
}

/// A program that is not there is the launcher's failure, not the command's.
fn finish(command: &GuestCommand, output: ExecOutput) -> Result<ExecOutput, GuestFailure> {
    if output.status == ExecStatusCode::Exited(127) {
        let text = output.stderr_text();
        // busybox's and util-linux's setsid.
        let missing = ["can't execute", "failed to execute"]
            .iter()
            .any(|said| text.contains(said) && text.starts_with("setsid:"));
        if missing {
            return Err(GuestFailure::ProgramMissing { program: command.program() });
        }
    }
    Ok(output)
}

/// The value of an agent's answer.
fn answer<'a, T: serde::Deserialize<'a>>(command: &str, line: &'a [u8]) -> Result<T, GuestFailure> {
    let answer: AgentAnswer<T> =
        serde_json::from_slice(line).map_err(|_| not_understood(command, line))?;
    match (answer.value, answer.error) {
        (Some(value), _) => Ok(value),
        (None, Some(error)) => {
            let detail = error.desc.chars().take(DETAIL_CHARS).collect();
            Err(GuestFailure::Agent { command: command.to_owned(), detail })
        }
        (None, None) => Err(not_understood(command, line)),
    }
}

fn not_understood(command: &str, line: &[u8]) -> GuestFailure {
    let shown = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
    GuestFailure::Agent {
        command: command.to_owned(),
        detail: format!("its answer was not understood: {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_put_off_by_what_the_vm_waited_and_no_further_than_the_command() {
        let asked = Instant::now();
        let after = |seconds: u64| asked + Duration::from_secs(seconds);
        // It had the pCPUs that it needs.
        assert_eq!(put_off(after(60), after(60), after(304)), None);
        assert_eq!(put_off(after(60), after(110), after(304)), Some(after(110)));
        assert_eq!(put_off(after(60), after(110), after(80)), Some(after(80)));
        // Less than a second more is none.
        let almost = after(60) + Duration::from_millis(999);
        assert_eq!(put_off(after(60), almost, after(304)), None);
        assert_eq!(put_off(after(80), after(200), after(80)), None);
    }
}
