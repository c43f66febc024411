//! One connection to another machine, which many commands share.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::PollFlags;

use crate::patience::{Deadline, Patience, WaitFailure};
use crate::process::ChildProcess;
use crate::words::{ConnectionRefusal, last_line, refusal};
use crate::{Destination, quote};

/// Longest path of a Unix socket, the final NUL included.
const SOCKET_PATH_BYTES: usize = 108;

/// ssh binds its socket under a name with so many more characters first.
const SSH_SUFFIX_BYTES: usize = 17;

/// Silence after which a machine counts as dead.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(40);

/// The same of a machine that is emulated here: it may stand still for minutes where this
/// one is busy, and the end of its emulator ends the connection at once.
pub const EMULATED_SILENCE_LIMIT: Duration = Duration::from_secs(300);

/// A silent machine is asked this often whether it is alive.
const ALIVE_INTERVAL_S: u64 = 10;

/// Says who is there, then keeps the connection open as long as this process
/// lives: with it, the pipe to `cat` ends.
const KEEPER: &str = "printf '\\nvmlab-is-here %s %s %s\\n' \"$(uname -m)\" \"$(uname -n)\" \"${XDG_CACHE_HOME:-$HOME/.cache}\"\nexec cat >/dev/null";
const KEEPER_WORD: &str = "vmlab-is-here ";

/// Most bytes that a login shell there may print of its own.
const NOISE_BYTES: usize = 64 << 10;

/// Starts ssh deaf to the terminal's Ctrl-C, which ends a run in its own order;
/// ssh leaves signals ignored that were ignored when it began.
const DEAF: &str = "trap '' INT QUIT HUP; exec \"$@\"";

/// Numbers the sessions of this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// What a connection needs from whoever opens it.
#[derive(Debug, Clone, Copy)]
pub struct SshOptions<'a> {
    /// Folder for the connection's socket, which only this user may enter.
    pub folder: &'a Path,
    /// Variables that mark the processes that are started here.
    pub env: &'a [(String, String)],
    /// Whether ssh may ask for a password or about a host key on the terminal.
    pub interactive: bool,
    /// Silence after which the machine counts as dead: [`SILENCE_LIMIT`],
    /// [`EMULATED_SILENCE_LIMIT`]. Counted in steps of 10 s.
    pub silence_limit: Duration,
}

/// Who is there.
#[derive(Debug)]
struct Greeting {
    machine: String,
    host_name: String,
    cache: String,
}

/// An open connection; closed when dropped.
#[derive(Debug)]
pub struct SshSession {
    destination: Destination,
    there: Greeting,
    socket: PathBuf,
    env: Vec<(String, String)>,
    master: ChildProcess,
    /// Open as long as the connection is wanted.
    _keeper: Option<ChildStdout>,
}

/// Error type for [`SshSession::open`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no ssh here.
    #[error("ssh is not installed: run `apt-get install openssh-client`")]
    NoSsh,
    /// ssh can't be started.
    #[error("Cannot start ssh")]
    Start(#[source] io::Error),
    /// The socket's path would be too long.
    #[error("{path} is too long for a socket: set XDG_RUNTIME_DIR to a shorter folder")]
    SocketPath {
        /// The path.
        path: PathBuf,
    },
    /// The machine's key is in no file of known keys.
    #[error(
        "The key of {destination} is not known: look at it and accept it once with `{command}`"
    )]
    HostKeyUnknown {
        /// Where.
        destination: String,
        /// The command that asks.
        command: String,
    },
    /// The machine has another key than the last time.
    #[error(
        "The key of {destination} is not the one that is known: somebody may be listening in. If the machine was set up anew, remove the old key with `ssh-keygen -R`"
    )]
    HostKeyChanged {
        /// Where.
        destination: String,
    },
    /// The machine does not let us in.
    #[error(
        "{destination} does not let us in ({said}): see that `{command}` works without a password (`ssh-copy-id` installs a key)"
    )]
    Denied {
        /// Where.
        destination: String,
        /// ssh's words.
        said: String,
        /// The command that must work.
        command: String,
    },
    /// There is no machine of this name.
    #[error("{destination} is not known here ({said}): check the name, or add it to ~/.ssh/config")]
    NoSuchHost {
        /// Where.
        destination: String,
        /// ssh's words.
        said: String,
    },
    /// Nobody answers.
    #[error("{destination} does not answer ({said}): is it up, is the port right, does sshd run?")]
    Unreachable {
        /// Where.
        destination: String,
        /// ssh's words.
        said: String,
    },
    /// We are in, but commands don't run there.
    #[error(
        "{destination} runs no commands for us ({said}): `{command} true` must work without a terminal"
    )]
    NoShell {
        /// Where.
        destination: String,
        /// ssh's words.
        said: String,
        /// How ssh is called.
        command: String,
    },
    /// It took too long, or was cancelled.
    #[error("No connection to {destination}")]
    GaveUp {
        /// Where.
        destination: String,
        /// Which of the two.
        #[source]
        source: WaitFailure,
    },
}

impl SshSession {
    /// Opens a connection with OpenSSH's own client; what the user's
    /// `~/.ssh/config` says of the machine counts.
    ///
    /// # Errors
    /// [`OpenError`] says what ssh said and what to do next.
    ///
    /// Source: `ssh(1)`, `ssh_config(5)`: ControlMaster, ServerAliveInterval.
    pub fn open(
        destination: &Destination,
        options: &SshOptions<'_>,
        patience: Patience<'_>,
    ) -> Result<Self, OpenError> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = options.folder.join(format!("ssh-{number}"));
        if socket.as_os_str().len() + SSH_SUFFIX_BYTES >= SOCKET_PATH_BYTES {
            return Err(OpenError::SocketPath { path: socket });
        }
        let mut command = deaf_ssh();
        command.env("LC_ALL", "C").envs(options.env.iter().map(|(name, value)| (name, value)));
        command.args(master_options(destination, &socket, options));
        command.arg("--").arg(target(destination)).arg(quote(["sh", "-c", KEEPER]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let wait = patience.start();
        let mut master = ChildProcess::spawn(&mut command, None).map_err(OpenError::Start)?;
        let mut keeper = master.child().stdout.take().expect("standard output was asked for");
        let greeting = greeting(&mut keeper, &wait)
            .map_err(|source| OpenError::GaveUp { destination: destination.to_string(), source })?;
        let Some(there) = greeting else {
            return Err(refused(destination, &mut master, &wait));
        };
        Ok(Self {
            destination: destination.clone(),
            there,
            socket,
            env: options.env.to_vec(),
            master,
            _keeper: Some(keeper),
        })
    }

    /// Where the machine is.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The machine's architecture, as `uname -m` says it there.
    #[must_use]
    pub fn machine(&self) -> &str {
        &self.there.machine
    }

    /// The machine's name, as `uname -n` says it there.
    #[must_use]
    pub fn host_name(&self) -> &str {
        &self.there.host_name
    }

    /// The user's folder for cached files there, absolute.
    ///
    /// Source: XDG Base Directory Specification, `XDG_CACHE_HOME`.
    #[must_use]
    pub fn cache_home(&self) -> &str {
        &self.there.cache
    }

    /// False once the connection is lost.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open_after(Duration::ZERO)
    }

    /// False if the connection is lost within `limit`.
    pub(crate) fn is_open_after(&self, limit: Duration) -> bool {
        self.master.is_running_after(limit)
    }

    /// The last that ssh said of the connection.
    pub(crate) fn said(&self) -> String {
        last_line(&self.master.said())
    }

    /// `ssh` with the options that lead it through this connection, and nowhere
    /// else if that is lost.
    pub(crate) fn ssh(&self, ssh: Command) -> Command {
        let mut command = ssh;
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.arg("-S").arg(escaped(&self.socket));
        command.args(["-o", "ControlMaster=no", "-o", "ProxyCommand=false"]);
        command.args(["-o", "BatchMode=yes", "-o", "RemoteCommand=none"]);
        command
    }

    /// The last arguments of ssh: the machine, and `words` for the shell there.
    pub(crate) fn target(&self, words: &[String]) -> Vec<OsString> {
        let mut last = vec!["--".into(), target(&self.destination).into()];
        if !words.is_empty() {
            last.push(quote(words).into());
        }
        last
    }
}

/// ssh that does not hear the terminal's Ctrl-C, and yet is in this process group,
/// so that it can ask on the terminal.
pub(crate) fn deaf_ssh() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", DEAF, "sh", "ssh"]);
    command
}

pub(crate) fn target(destination: &Destination) -> String {
    match &destination.user {
        Some(user) => format!("{user}@{}", destination.host),
        None => destination.host.clone(),
    }
}

/// A path as a value of ssh's options, in which `%` begins a token.
fn escaped(path: &Path) -> OsString {
    path.to_string_lossy().replace('%', "%%").into()
}

/// A path as a value behind `-o`, where spaces part values.
fn quoted_option(name: &str, path: &Path) -> String {
    format!("{name}=\"{}\"", path.to_string_lossy().replace('%', "%%"))
}

fn master_options(
    destination: &Destination,
    socket: &Path,
    options: &SshOptions<'_>,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["-T".into(), "-S".into(), escaped(socket)];
    let mut option = |text: String| args.extend(["-o".into(), text.into()]);
    option("ControlMaster=yes".to_owned());
    option("ControlPersist=no".to_owned());
    option(format!("BatchMode={}", if options.interactive { "no" } else { "yes" }));
    option(format!("ServerAliveInterval={ALIVE_INTERVAL_S}"));
    let asked = options.silence_limit.as_secs().div_ceil(ALIVE_INTERVAL_S).max(1);
    option(format!("ServerAliveCountMax={asked}"));
    // The user's configuration may want these of interactive sessions.
    option("ClearAllForwardings=yes".to_owned());
    option("RemoteCommand=none".to_owned());
    option("PermitLocalCommand=no".to_owned());
    option("LogLevel=INFO".to_owned());
    args.extend(way_options(destination));
    args
}

/// The options that say where the machine is and how it and we are known.
pub(crate) fn way_options(destination: &Destination) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut option = |text: String| args.extend(["-o".into(), text.into()]);
    if let Some(port) = destination.port {
        option(format!("Port={port}"));
    }
    if let Some(identity) = &destination.identity {
        option(quoted_option("IdentityFile", identity));
        option("IdentitiesOnly=yes".to_owned());
    }
    if let Some(known_hosts) = &destination.known_hosts {
        option(quoted_option("UserKnownHostsFile", known_hosts));
        option("GlobalKnownHostsFile=/dev/null".to_owned());
        option("StrictHostKeyChecking=yes".to_owned());
    }
    args
}

/// Who is there; none if the connection ended before.
fn greeting(
    keeper: &mut ChildStdout,
    wait: &Deadline<'_>,
) -> Result<Option<Greeting>, WaitFailure> {
    let mut heard = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        wait.ready([(keeper.as_fd(), PollFlags::IN)])?;
        match keeper.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(None),
            Ok(length) => heard.extend_from_slice(&buffer[..length]),
        }
        let text = String::from_utf8_lossy(&heard);
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let line = whole.lines().find_map(|line| line.strip_prefix(KEEPER_WORD));
        let mut words = line.unwrap_or_default().splitn(3, ' ').map(str::to_owned);
        if let (Some(machine), Some(host_name), Some(cache)) =
            (words.next(), words.next(), words.next())
        {
            return Ok(Some(Greeting { machine, host_name, cache }));
        }
        if heard.len() > NOISE_BYTES {
            return Ok(None);
        }
    }
}

/// Why there is no connection, from ssh's words.
fn refused(destination: &Destination, master: &mut ChildProcess, wait: &Deadline<'_>) -> OpenError {
    let command = destination.command_line();
    let destination = destination.to_string();
    let status = match master.wait(wait) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => return OpenError::Start(error),
        Err(source) => return OpenError::GaveUp { destination, source },
    };
    // The shell that starts ssh says so if there is none.
    if status.code() == Some(127) && master.said().contains("ssh: ") {
        return OpenError::NoSsh;
    }
    let said = last_line(&master.said());
    if status.code() != Some(255) {
        return OpenError::NoShell { destination, said, command };
    }
    match refusal(&master.said()) {
        ConnectionRefusal::HostKeyUnknown => OpenError::HostKeyUnknown { destination, command },
        ConnectionRefusal::HostKeyChanged => OpenError::HostKeyChanged { destination },
        ConnectionRefusal::Denied => OpenError::Denied { destination, said, command },
        ConnectionRefusal::NoSuchHost => OpenError::NoSuchHost { destination, said },
        ConnectionRefusal::Unreachable => OpenError::Unreachable { destination, said },
        ConnectionRefusal::Other => OpenError::NoShell { destination, said, command },
    }
}
