//! What stands beside a benchmark's command: how its guest is prepared, and
//! the second role of benchmarks that are spoken to over a network.
//!
//! Most benchmarks are a command and nothing else: [`RoleCommands::NOTHING`].

use std::fmt;

use crate::guest_facts::GuestFacts;
use crate::params::Params;

/// Where a benchmark finds its empty file system, if it asks for one.
pub const SCRATCH: &str = "/scratch";

/// Where it finds its empty disks, if it wants those themselves; their numbers follow,
/// from 1.
pub const RAW_DISK: &str = "/dev/vmlab-disk";

/// The builtin image with a compiler, Linux' source and a database.
pub const FULL_IMAGE: &str = "debian-12-full";

/// What stands beside a benchmark's command. Its guest is prepared once a
/// boot, before the first invocation.
#[derive(Debug)]
pub struct RoleCommands {
    /// What is done in the guest that runs the command, in this order, after
    /// the server is ready.
    pub setup: fn(&Params, &GuestFacts) -> Vec<GuestStep>,
    /// Size of the empty disk that the role which keeps data finds mounted at
    /// [`SCRATCH`], MiB: the server's, where there is one. 0 for none.
    pub scratch_mib: fn(&Params, &GuestFacts) -> u64,
    /// Disks of that size that are asked themselves, at [`RAW_DISK`] with their numbers
    /// from 1, in the place of a file system. 0 for none.
    pub raw_disks: fn(&Params) -> u32,
    /// The other role, of benchmarks that have two.
    pub server: Option<ServerRole>,
    /// True if of the builtin images only those with a compiler and a database
    /// ([`FULL_IMAGE`]) have its programs, whatever its role.
    pub full_image: bool,
}

impl RoleCommands {
    /// A benchmark that is a command and nothing else.
    pub const NOTHING: Self = Self {
        setup: |_, _| Vec::new(),
        scratch_mib: |_, _| 0,
        raw_disks: |_| 0,
        server: None,
        full_image: false,
    };
}

/// The role that is spoken to. The other one, which runs the command and
/// measures, is the client.
#[derive(Debug)]
pub struct ServerRole {
    /// Programs that must be in its guest.
    pub needs: &'static [&'static str],
    /// What is done in its guest, in this order, before the client begins.
    pub setup: fn(&Params, &GuestFacts) -> Vec<GuestStep>,
    /// The role of the VM under test where a study names none.
    pub under_test: UnderTest,
}

/// Which role of a benchmark the VM under test plays.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum UnderTest {
    /// It is spoken to; the other VM measures.
    Server,
    /// It measures; the other VM is spoken to.
    Client,
    /// Both, over its own loopback: there is no other VM.
    Both,
}

impl UnderTest {
    /// All roles, as studies write them.
    pub const ALL: [Self; 3] = [Self::Server, Self::Client, Self::Both];

    /// Its word in studies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Both => "both",
        }
    }

    /// The role of the other VM, if there is one.
    #[must_use]
    pub fn other(self) -> Option<Self> {
        match self {
            Self::Server => Some(Self::Client),
            Self::Client => Some(Self::Server),
            Self::Both => None,
        }
    }

    /// True if the VM under test prepares and keeps the server.
    #[must_use]
    pub fn serves(self) -> bool {
        self != Self::Client
    }

    /// True if the VM under test runs the command.
    #[must_use]
    pub fn measures(self) -> bool {
        self != Self::Server
    }
}

impl fmt::Display for UnderTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing to do in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestStep {
    /// Writes a file; its folder is made.
    Write {
        /// The file, absolute.
        path: String,
        /// Its text.
        text: String,
    },
    /// Runs a command to its end; it must end with status 0.
    Run(Vec<String>),
    /// Starts a program that goes on until the guest ends. The next step
    /// follows once it is ready.
    Start(Daemon),
}

impl GuestStep {
    /// A command of these words.
    #[must_use]
    pub fn run<const N: usize>(argv: [&str; N]) -> Self {
        Self::Run(argv.map(str::to_owned).into())
    }

    /// A script of the guest's shell that stops at the first failure.
    #[must_use]
    pub fn shell(script: &str) -> Self {
        Self::run(["sh", "-ec", script])
    }
}

/// A program that goes on in the background of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Program and arguments; it must not leave its process for another one.
    pub argv: Vec<String>,
    /// How it is known that it serves.
    pub ready: Readiness,
}

/// The condition under which a daemon is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// Somebody listens on this TCP port.
    Tcp(u16),
    /// Somebody is bound to this UDP port.
    Udp(u16),
    /// This command of the guest's shell ends with status 0.
    Succeeds(&'static str),
}

impl Readiness {
    /// A command of the guest's shell that ends with status 0 once the
    /// condition holds. Ports are looked for in the kernel's own tables: a
    /// connection would be a client.
    ///
    /// Source: Linux `Documentation/networking/proc_net_tcp.rst`; state `0A`
    /// is LISTEN.
    #[must_use]
    pub fn script(&self) -> String {
        let row = |port: u16, protocol: &str, state: &str| {
            format!(
                "cat /proc/net/{protocol} /proc/net/{protocol}6 2>/dev/null | \
                 grep -qE '^ *[0-9]+: [0-9A-F]+:{port:04X} [0-9A-F]+:[0-9A-F]+ {state}'"
            )
        };
        match self {
            Self::Tcp(port) => row(*port, "tcp", "0A "),
            Self::Udp(port) => row(*port, "udp", ""),
            Self::Succeeds(command) => (*command).to_owned(),
        }
    }
}

impl fmt::Display for Readiness {
    /// Reads after "did not" and the like: `listen on TCP port 80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "listen on TCP port {port}"),
            Self::Udp(port) => write!(f, "bind UDP port {port}"),
            Self::Succeeds(command) => write!(f, "answer `{command}`"),
        }
    }
}
