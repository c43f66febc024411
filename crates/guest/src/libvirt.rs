//! libvirt's daemon: where it is, and what it says through virsh.
//!
//! virsh and not libvirt's library: a static program can't have that. Each call has a
//! limit, and no more of what it says is read than can be meant.
//!
//! Source: `virsh(1)`; <https://libvirt.org/uri.html>.

use std::fmt;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cancel::CANCEL_CHECK;
use crate::{Cancel, Cancellation};

/// How long a question may take: libvirtd may have to ask every QEMU that is
/// installed what it can do, first.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Most of an answer, bytes: the domains of a large host.
const ANSWER_BYTES: u64 = 64 << 20;

/// Most of a complaint, bytes.
const COMPLAINT_BYTES: u64 = 64 << 10;

/// The address of a libvirt whose QEMU driver runs trials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Uri {
    text: String,
    /// `USER@HOST:PORT`, where it is another machine's.
    ssh: Option<String>,
    /// The driver there, from the third slash on.
    path: String,
}

/// Error type for [`Uri`]'s `from_str`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Another hypervisor, or none.
    #[error("write qemu:///system, qemu:///session or qemu+ssh://USER@HOST/system")]
    Other,
    /// A way to another machine that vmlab can't go.
    #[error("the transport {0:?} does not bring vmlab there: write qemu+ssh://USER@HOST/system")]
    Transport(String),
    /// A host without a name of a transport.
    #[error("to another machine write qemu+ssh://USER@HOST/system")]
    Host,
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Other)?;
        let (driver, transport) =
            scheme.split_once('+').map_or((scheme, None), |(driver, by)| (driver, Some(by)));
        let (authority, path) = rest.split_once('/').ok_or(UriError::Other)?;
        let place = path.split_once('?').map_or(path, |(place, _)| place);
        if driver != "qemu" || !["system", "session"].contains(&place) {
            return Err(UriError::Other);
        }
        let ssh = match transport {
            None | Some("unix") if authority.is_empty() => None,
            Some("ssh") if !authority.is_empty() => Some(authority.to_owned()),
            None | Some("unix" | "ssh") => return Err(UriError::Host),
            Some(other) => return Err(UriError::Transport(other.to_owned())),
        };
        Ok(Self { text: text.to_owned(), ssh, path: path.to_owned() })
    }
}

impl TryFrom<String> for Uri {
    type Error = UriError;

    fn try_from(text: String) -> Result<Self, UriError> {
        text.parse()
    }
}

impl From<Uri> for String {
    fn from(uri: Uri) -> Self {
        uri.text
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Uri {
    /// The other machine's, as `USER@HOST:PORT`.
    #[must_use]
    pub fn ssh(&self) -> Option<&str> {
        self.ssh.as_deref()
    }

    /// The same libvirt as it is called on its own machine.
    #[must_use]
    pub fn there(&self) -> Self {
        match self.ssh {
            None => self.clone(),
            Some(_) => {
                let path = self.path.split('?').next().unwrap_or_default().to_owned();
                Self { text: format!("qemu:///{path}"), ssh: None, path }
            }
        }
    }

    /// Whether its QEMUs run as this user anyway.
    #[must_use]
    pub fn is_session(&self) -> bool {
        self.path.starts_with("session")
    }
}

/// Error type for [`Virsh::ask`].
#[derive(Debug, thiserror::Error)]
pub enum VirshError {
    /// There is no virsh.
    #[error(
        "There is no virsh here: run `apt-get install libvirt-clients` (Fedora, SUSE: libvirt-client)"
    )]
    Missing,
    /// It can't be run.
    #[error("Cannot run virsh")]
    Run(#[source] io::Error),
    /// It took too long.
    #[error("libvirt at {uri} did not answer {asked} within {} s: look at `systemctl status libvirtd`", .limit.as_secs())]
    Slow {
        /// Which libvirt.
        uri: String,
        /// What it was asked.
        asked: String,
        /// The limit.
        limit: Duration,
    },
    /// It says more than can be meant.
    #[error("libvirt at {uri} answers {asked} with more than {ANSWER_BYTES} bytes")]
    Long {
        /// Which libvirt.
        uri: String,
        /// What it was asked.
        asked: String,
    },
    /// libvirt refused.
    #[error("libvirt at {uri}: {asked}: {said}{}", advice(.said))]
    Refused {
        /// Which libvirt.
        uri: String,
        /// What it was asked.
        asked: String,
        /// What it said.
        said: String,
    },
    /// Ctrl-C.
    #[error(transparent)]
    Cancelled(#[from] Cancellation),
}

/// What to do about a refusal, where that is known, behind a dash.
///
/// Source: the words of libvirt 9.0, `src/rpc/virnetsocket.c`, `src/remote`,
/// `src/qemu/qemu_domain.c`, `src/storage_file`.
#[must_use]
pub fn advice(said: &str) -> &'static str {
    let has = |words: &str| said.contains(words);
    if has("Cannot access storage file") || has("Could not open") && has("Permission denied") {
        " - the user that libvirt runs QEMU as can't read it: run vmlab as root, or take \
         qemu:///session, or give that user the file and the way through the folders above it"
    } else if has("Failed to connect socket") && has("No such file") || has("Connection refused") {
        " - libvirtd does not run there: start it (`systemctl start libvirtd`; by parts, \
         `virtqemud`), or install it (Debian: libvirt-daemon-system)"
    } else if has("Failed to connect socket") && has("Permission denied")
        || has("authentication unavailable")
        || has("authentication failed")
        || has("access denied")
    {
        " - this user may not use it: be root or of the group libvirt, or take qemu:///session"
    } else if has("unexpected qemu URI path") || has("no connection driver available") {
        " - write qemu:///system or qemu:///session"
    } else if has("already exists") {
        " - `vmlab clean` ends domains that dead runs left"
    } else {
        ""
    }
}

/// What libvirt a study's domains ran under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LibvirtFacts {
    /// Where it is.
    pub uri: Uri,
    /// The daemon's version.
    pub version: String,
    /// Its driver with the hypervisor's version: `QEMU 7.2.22`.
    pub driver: String,
    /// Whether it can be told as which user QEMU runs.
    pub tells_users: bool,
}

impl fmt::Display for LibvirtFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libvirt {} ({}) at {}", self.version, self.driver, self.uri)
    }
}

/// Questions to one libvirt.
#[derive(Debug, Clone)]
pub struct Virsh {
    uri: String,
    env: Vec<(String, String)>,
}

impl Virsh {
    /// Asks the libvirt at `uri`, whichever driver that has.
    #[must_use]
    pub fn new(uri: impl ToString) -> Self {
        Self { uri: uri.to_string(), env: Vec::new() }
    }

    /// The same with an owner's mark in the environment of all that it starts.
    #[must_use]
    pub fn marked(mut self, env: &[(String, String)]) -> Self {
        self.env = env.to_vec();
        self
    }

    /// virsh with this libvirt's address; its words in English.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("virsh");
        command.args(["-q", "-c", &self.uri]).env("LC_ALL", "C");
        command.envs(self.env.iter().map(|(name, value)| (name, value))).process_group(0);
        command
    }

    /// What it answers to a command.
    ///
    /// # Errors
    /// [`VirshError`].
    pub fn ask(&self, words: &[&str], cancel: &Cancel) -> Result<String, VirshError> {
        self.ask_within(words, LIMIT, cancel)
    }

    /// Like [`Self::ask`], with a limit of its own.
    ///
    /// # Errors
    /// [`VirshError`].
    pub fn ask_within(
        &self,
        words: &[&str],
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<String, VirshError> {
        self.ask_with(words, Stdio::null(), limit, cancel)
    }

    /// Like [`Self::ask_within`], with a standard input for virsh.
    pub(crate) fn ask_with(
        &self,
        words: &[&str],
        stdin: Stdio,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<String, VirshError> {
        let asked = words.first().copied().unwrap_or_default().to_owned();
        let mut command = self.command();
        command.args(words).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = VirshProcess(command.spawn().map_err(not_run)?);
        let answer = child.0.stdout.take().map(|from| read(from, ANSWER_BYTES + 1));
        let complaint = child.0.stderr.take().map(|from| read(from, COMPLAINT_BYTES));
        let ends = pidfd_open(Pid::from_child(&child.0), PidfdFlags::empty());
        let ends = ends.map_err(|error| VirshError::Run(error.into()))?;
        let until = Instant::now() + limit;
        let status = loop {
            if let Some(status) = child.0.try_wait().map_err(VirshError::Run)? {
                break status;
            }
            cancel.check()?;
            if Instant::now() >= until {
                return Err(VirshError::Slow { uri: self.uri.clone(), asked, limit });
            }
            let timeout = Timespec::try_from(CANCEL_CHECK).expect("a short time fits");
            let mut polled = [PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN)];
            // Whatever ended the wait, the next round looks at everything.
            let _ = rustix::event::poll(&mut polled, Some(&timeout));
        };
        let text = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
            reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
        };
        let (answer, complaint) = (text(answer), text(complaint));
        let uri = self.uri.clone();
        if answer.len() as u64 > ANSWER_BYTES {
            return Err(VirshError::Long { uri, asked });
        }
        if status.success() {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
        Err(VirshError::Refused {
            uri,
            asked,
            said: complaint_of(&String::from_utf8_lossy(&complaint)),
        })
    }

    /// Which libvirt it is.
    ///
    /// # Errors
    /// [`VirshError`].
    pub fn facts(&self, uri: &Uri, cancel: &Cancel) -> Result<LibvirtFacts, VirshError> {
        let said = self.ask(&["version", "--daemon"], cancel)?;
        let after = |words: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(words));
            line.unwrap_or("unknown").trim().to_owned()
        };
        let capabilities = self.ask(&["capabilities"], cancel)?;
        Ok(LibvirtFacts {
            uri: uri.clone(),
            version: after("Running against daemon: "),
            driver: after("Running hypervisor: "),
            tells_users: capabilities.contains("<model>dac</model>"),
        })
    }
}

/// virsh, which does not outlive its caller's patience.
struct VirshProcess(Child);

impl Drop for VirshProcess {
    fn drop(&mut self) {
        // It has ended by itself, mostly.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why virsh was not run.
pub(crate) fn not_run(error: io::Error) -> VirshError {
    match error.kind() {
        io::ErrorKind::NotFound => VirshError::Missing,
        _ => VirshError::Run(error),
    }
}

/// Reads as much as may be, beside whoever waits.
fn read(from: impl Read + Send + 'static, most: u64) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is.
        let _ = from.take(most).read_to_end(&mut bytes);
        bytes
    })
}

/// virsh's complaint as one sentence, the last line of which names the cause.
pub(crate) fn complaint_of(said: &str) -> String {
    let lines: Vec<&str> = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("error: "))
        .filter(|line| !line.is_empty())
        .collect();
    match lines.as_slice() {
        [] => said.trim().replace('\n', "; "),
        all => all.join(": "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let check = |text: &str, ssh: Option<&str>, there: &str| {
            let uri: Uri = text.parse().unwrap();
            assert_eq!((uri.to_string().as_str(), uri.ssh()), (text, ssh));
            assert_eq!(uri.there().to_string(), there);
            assert_eq!(uri.there().ssh(), None);
        };
        check("qemu:///system", None, "qemu:///system");
        check("qemu:///session", None, "qemu:///session");
        let socket = "qemu+unix:///system?socket=/run/other/libvirt-sock";
        check(socket, None, socket);
        check("qemu+ssh://root@server:2222/system", Some("root@server:2222"), "qemu:///system");
        check("qemu+ssh://server/session?keyfile=/k", Some("server"), "qemu:///session");
        for (text, part) in [
            ("", "write qemu:///system"),
            ("qemu", "write qemu:///system"),
            ("qemu:///", "write qemu:///system"),
            ("qemu:///nowhere", "write qemu:///system"),
            ("test:///default", "write qemu:///system"),
            ("qemu+tcp://server/system", "the transport \"tcp\""),
            ("qemu+tls://server/system", "the transport \"tls\""),
            ("qemu://server/system", "to another machine"),
            ("qemu+ssh:///system", "to another machine"),
        ] {
            let error = text.parse::<Uri>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn complaints_say_what_to_do() {
        // As virsh 9.0 says them.
        let check = |said: &str, part: &str| {
            let said = complaint_of(said);
            let error =
                VirshError::Refused { uri: "qemu:///system".into(), asked: "list".into(), said };
            let text = error.to_string();
            assert!(text.contains(part) && !text.contains('\n'), "{text}");
        };
        check(
            "error: failed to connect to the hypervisor\nerror: Failed to connect socket to \
             '/var/run/libvirt/libvirt-sock': No such file or directory\n",
            "systemctl start libvirtd",
        );
        check(
            "error: failed to connect to the hypervisor\nerror: Failed to connect socket to \
             '/var/run/libvirt/libvirt-sock': Permission denied\n",
            "of the group libvirt",
        );
        check(
            "error: Failed to create domain from d.xml\nerror: Cannot access storage file \
             '/root/x.img' (as uid:64055, gid:64055): Permission denied\n",
            "run vmlab as root",
        );
        check(
            "error: failed to connect to the hypervisor\nerror: no connection driver available \
             for foo:///x\n",
            "write qemu:///system",
        );
        check("error: operation failed: domain 'a' already exists with uuid 0\n", "vmlab clean");
        check("odd\nwords\n", "odd; words");
    }
}
