//! A command on the other machine.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::patience::{Deadline, Patience, WaitFailure};
use crate::process::{ChildProcess, StderrListener};
use crate::session::deaf_ssh;
use crate::words::last_line;
use crate::{SshSession, quote};

/// ssh's own status when it failed itself.
const SSH_FAILED: i32 = 255;

/// Most that a command may write to standard output where all of it is kept, bytes: the
/// largest description of a host has a fourth of that.
const MAX_STDOUT_BYTES: usize = 64 << 20;

/// A command's ssh may end this long before the one that keeps the connection.
const LAST_MOMENTS: Duration = Duration::from_millis(500);

/// A command that is to be run on the other machine.
#[must_use = "nothing runs before one of its methods is called"]
pub struct RemoteCommand<'s> {
    session: &'s SshSession,
    words: Vec<String>,
    input: Vec<u8>,
    heard: Option<StderrListener>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOutput {
    /// Its exit code.
    pub code: i32,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// The last of what it wrote to standard error.
    pub stderr: String,
}

/// Error type for [`RemoteCommand`].
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// ssh can't be started here.
    #[error("Cannot start ssh")]
    Start(#[source] io::Error),
    /// The connection is gone; whether the command ended is not known.
    #[error("The connection to {host} was lost ({said})")]
    Lost {
        /// The machine.
        host: String,
        /// ssh's words.
        said: String,
    },
    /// The connection stands, but the command ended without an exit code: a
    /// signal ended it, or the machine opens no more sessions.
    #[error("`{command}` on {host} ended without an exit code ({said})")]
    NoCode {
        /// The machine.
        host: String,
        /// The command.
        command: String,
        /// Its words, or ssh's.
        said: String,
    },
    /// The command failed.
    #[error("`{command}` on {host} failed with code {code} ({said})")]
    Failed {
        /// The machine.
        host: String,
        /// The command.
        command: String,
        /// Its exit code.
        code: i32,
        /// Its last words.
        said: String,
    },
    /// It wrote more than any command has to say.
    #[error("`{command}` on {host} wrote more than {limit_bytes} bytes")]
    TooMuch {
        /// The machine.
        host: String,
        /// The command.
        command: String,
        /// Most that is kept.
        limit_bytes: usize,
    },
    /// It took too long, or was cancelled.
    #[error("`{command}` on {host} was given up")]
    GaveUp {
        /// The machine.
        host: String,
        /// The command.
        command: String,
        /// Which of the two.
        #[source]
        source: WaitFailure,
    },
}

impl SshSession {
    /// A command of `words` there, to be run with one of its methods. It begins
    /// in the user's home folder.
    pub fn command<W: Into<String>>(
        &self,
        words: impl IntoIterator<Item = W>,
    ) -> RemoteCommand<'_> {
        RemoteCommand::new(self, words.into_iter().map(Into::into).collect())
    }

    /// The user's login shell there.
    pub fn shell(&self) -> RemoteCommand<'_> {
        RemoteCommand::new(self, Vec::new())
    }
}

impl<'s> RemoteCommand<'s> {
    fn new(session: &'s SshSession, words: Vec<String>) -> Self {
        Self { session, words, input: Vec::new(), heard: None }
    }

    /// What it reads from standard input; nothing if not given.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Tells `heard` each line of standard error as it comes.
    pub fn on_stderr(mut self, heard: impl FnMut(&str) + Send + 'static) -> Self {
        self.heard = Some(Box::new(heard));
        self
    }

    /// Runs it to its end; a code other than 0 is an error.
    ///
    /// # Errors
    /// [`RunError`] tells a failed command from a lost connection.
    pub fn run(self, patience: Patience<'_>) -> Result<RemoteOutput, RunError> {
        let (session, shown) = (self.session, shown(&self.words));
        checked(session, shown, self.output(patience)?)
    }

    /// Runs it to its end, whatever its code is.
    ///
    /// # Errors
    /// [`RunError`], but never [`RunError::Failed`].
    pub fn output(mut self, patience: Patience<'_>) -> Result<RemoteOutput, RunError> {
        let input = std::mem::take(&mut self.input);
        let wait = patience.start();
        let mut running = self.spawn()?;
        let writer = running.write_all_of(io::Cursor::new(input));
        let mut stdout = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match running.read_within(&mut buffer, &wait)? {
                0 => break,
                length => stdout.extend_from_slice(&buffer[..length]),
            }
            if stdout.len() > MAX_STDOUT_BYTES {
                let (host, command) =
                    (running.session.destination().to_string(), running.shown.clone());
                return Err(RunError::TooMuch { host, command, limit_bytes: MAX_STDOUT_BYTES });
            }
        }
        let mut output = running.finish_within(&wait)?;
        // It ended without reading all: that is its own business.
        drop(writer.map(JoinHandle::join));
        output.stdout = stdout;
        Ok(output)
    }

    /// Starts it, with standard input and output as streams.
    ///
    /// Dropping what is returned closes both; a command that then reads standard
    /// input sees its end, one that does not goes on there.
    ///
    /// # Errors
    /// [`RunError::Start`].
    pub fn spawn(mut self) -> Result<RemoteProcess<'s>, RunError> {
        let mut command = self.session.ssh(deaf_ssh());
        // What is looked for in ssh's words, and in most programs', is English.
        command.env("LC_ALL", "C");
        command.arg("-T").args(self.session.target(&self.words));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process =
            ChildProcess::spawn(&mut command, self.heard.take()).map_err(RunError::Start)?;
        let child = process.child();
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("standard output was asked for as a pipe");
        let shown = shown(&self.words);
        Ok(RemoteProcess { session: self.session, shown, stdin, stdout, process })
    }

    /// Runs it with this process' own standard input, output and error, with a
    /// terminal there if `terminal`; returns its exit code.
    ///
    /// # Errors
    /// [`RunError`], but never [`RunError::Failed`] or [`RunError::GaveUp`].
    pub fn attached(self, terminal: bool) -> Result<i32, RunError> {
        let mut command = self.session.ssh(Command::new("ssh"));
        command.args([if terminal { "-tt" } else { "-T" }, "-o", "LogLevel=ERROR"]);
        command.args(self.session.target(&self.words));
        let status = command.status().map_err(RunError::Start)?;
        match status.code() {
            Some(code) if code != SSH_FAILED => Ok(code),
            _ => Err(without_code(self.session, shown(&self.words), String::new())),
        }
    }
}

impl fmt::Debug for RemoteCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteCommand").field("words", &self.words).finish_non_exhaustive()
    }
}

/// A command that runs on the other machine.
#[derive(Debug)]
pub struct RemoteProcess<'s> {
    session: &'s SshSession,
    shown: String,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    process: ChildProcess,
}

impl RemoteProcess<'_> {
    /// Its standard input, once: closed when what is returned is dropped.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Reads some of its standard output; 0 at the end.
    ///
    /// # Errors
    /// [`RunError::GaveUp`]; the command still runs then.
    pub fn read(&mut self, buffer: &mut [u8], patience: Patience<'_>) -> Result<usize, RunError> {
        self.read_within(buffer, &patience.start())
    }

    /// Waits for its end, with `stdout` empty: that was read before.
    ///
    /// # Errors
    /// [`RunError`], but never [`RunError::Failed`].
    pub fn finish(self, patience: Patience<'_>) -> Result<RemoteOutput, RunError> {
        self.finish_within(&patience.start())
    }

    pub(crate) fn read_within(
        &mut self,
        buffer: &mut [u8],
        wait: &Deadline<'_>,
    ) -> Result<usize, RunError> {
        wait.ready([(self.stdout.as_fd(), PollFlags::IN)])
            .map_err(|source| self.gave_up(source))?;
        // The pipe's other end is a process of this machine: what can't be read
        // has ended.
        Ok(self.stdout.read(buffer).unwrap_or(0))
    }

    pub(crate) fn finish_within(mut self, wait: &Deadline<'_>) -> Result<RemoteOutput, RunError> {
        drop(self.stdin.take());
        let status = match self.process.wait(wait) {
            Ok(status) => status.map_err(RunError::Start)?,
            Err(source) => return Err(self.gave_up(source)),
        };
        let stderr = self.process.said();
        match status.code() {
            Some(code) if code != SSH_FAILED => {
                Ok(RemoteOutput { code, stdout: Vec::new(), stderr })
            }
            _ => Err(without_code(self.session, self.shown.clone(), stderr)),
        }
    }

    /// Waits for its end; a code other than 0 is an error.
    pub(crate) fn succeed_within(self, wait: &Deadline<'_>) -> Result<RemoteOutput, RunError> {
        let (session, shown) = (self.session, self.shown.clone());
        checked(session, shown, self.finish_within(wait)?)
    }

    /// Writes all of `source` to standard input in a thread of its own, and
    /// closes it.
    pub(crate) fn write_all_of(
        &mut self,
        mut source: impl Read + Send + 'static,
    ) -> Option<JoinHandle<io::Result<u64>>> {
        let mut stdin = self.stdin.take()?;
        Some(std::thread::spawn(move || {
            let copied = io::copy(&mut source, &mut stdin)?;
            stdin.flush()?;
            Ok(copied)
        }))
    }

    fn gave_up(&self, source: WaitFailure) -> RunError {
        let host = self.session.destination().to_string();
        RunError::GaveUp { host, command: self.shown.clone(), source }
    }
}

fn checked(
    session: &SshSession,
    command: String,
    output: RemoteOutput,
) -> Result<RemoteOutput, RunError> {
    let RemoteOutput { code, ref stderr, .. } = output;
    if code == 0 {
        return Ok(output);
    }
    let (host, said) = (session.destination().to_string(), last_line(stderr));
    Err(RunError::Failed { host, command, code, said })
}

/// ssh's status 255: the connection's end, or the command's own.
fn without_code(session: &SshSession, command: String, stderr: String) -> RunError {
    let host = session.destination().to_string();
    if session.is_open_after(LAST_MOMENTS) {
        return RunError::NoCode { host, command, said: last_line(&stderr) };
    }
    RunError::Lost { host, said: session.said() }
}

/// A command as it is named in errors: the first words, one line.
fn shown(words: &[String]) -> String {
    let line = quote(words);
    let mut first = line.lines().next().unwrap_or_default().chars();
    let short: String = first.by_ref().take(60).collect();
    if short.len() < line.len() { format!("{short} ...") } else { short }
}
