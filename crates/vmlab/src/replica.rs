//! `vmlab replica up|down|list|shell|exec|logs`: a whole KVM host, emulated.

mod programs;
mod text;
mod up;

pub(crate) use text::ReplicaFacts;
pub(crate) use up::ReplicaPreview;

pub(crate) use programs::static_vmlab;
#[cfg(feature = "kubernetes")]
pub(crate) use up::WantedReplica;
pub(crate) use up::{bring_up, words_for};

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use guest::Cancel;
use host::owner::{self, Owner};
use remote::{EMULATED_SILENCE_LIMIT, Patience, SshOptions, SshSession};
use replica::{Replica, ReplicaState};

use crate::exit::ERROR;
use crate::{interrupt, terminal};

/// How long a host may take to answer a new connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// How often a console is looked at for more.
const FOLLOW: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  vmlab replica up --like xeon-4208   two sockets, two nodes, 32 pCPUs
  vmlab replica up host.json          as `vmlab host --json` told of a real host
  vmlab replica up lscpu.txt numactl.txt --name lab --memory 4GiB
  vmlab replica up --like two-nodes --dry-run
                                      QEMU's arguments, and what can't be shown
  vmlab replica list
  vmlab replica exec -- vmlab host    a command in the only replica
  vmlab replica exec lab -- sh -c 'cat /sys/kernel/debug/kvm/exits'
  vmlab replica shell lab
  vmlab replica logs lab -f           what its console prints
  vmlab replica down lab

A replica is a Linux host that QEMU emulates, without KVM of this machine. In it
KVM is real: VMs boot under it, and host settings, exits and placement are those
of a KVM host. Times in it are emulated time and say nothing about speed.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplicaArgs {
    #[command(subcommand)]
    action: ReplicaCommand,
}

#[derive(Debug, Subcommand)]
enum ReplicaCommand {
    /// Start a host and wait until commands can be run in it.
    Up(up::ReplicaUpArgs),
    /// End replicas, and remove what dead ones left.
    Down {
        /// The replicas: what is ended is named.
        #[arg(required_unless_present_any = ["all", "saved_states"])]
        names: Vec<String>,
        /// All replicas.
        #[arg(long, conflicts_with = "names")]
        all: bool,
        /// Remove the saved states, too.
        #[arg(long)]
        saved_states: bool,
    },
    /// List replicas.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Open a shell in a replica.
    Shell {
        /// The replica; the only one if not given.
        name: Option<String>,
    },
    /// Run a command in a replica; its exit code is this command's.
    Exec {
        /// The replica; the only one if not given.
        name: Option<String>,
        /// The command and its arguments, behind `--`.
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Keep the end of a replica's console in its file: standard input is the socket on
    /// which its QEMU connects.
    #[command(hide = true)]
    KeepConsole,
    /// Show the end of what a replica's console printed.
    Logs {
        /// The replica; the only one if not given.
        name: Option<String>,
        /// Go on as it prints more.
        #[arg(short, long)]
        follow: bool,
    },
}

pub(crate) fn run(args: &ReplicaArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        ReplicaCommand::Up(args) => up::run(args),
        ReplicaCommand::Down { names, all, saved_states } => down(names, *all, *saved_states),
        ReplicaCommand::List { json } => list(*json),
        ReplicaCommand::Shell { name } => shell(name.as_deref()),
        ReplicaCommand::Exec { name, command } => exec(name.as_deref(), command),
        ReplicaCommand::KeepConsole => {
            replica::keep_console().context("Cannot keep a replica's console")?;
            Ok(ExitCode::SUCCESS)
        }
        ReplicaCommand::Logs { name, follow } => logs(name.as_deref(), *follow),
    }
}

fn down(names: &[String], all: bool, saved_states: bool) -> anyhow::Result<ExitCode> {
    let found = match all {
        true => replica::list()?,
        false => names.iter().map(|name| replica::find(Some(name))).collect::<Result<_, _>>()?,
    };
    for replica in found {
        let state = replica.state();
        replica.down()?;
        let was = if state == ReplicaState::Dead { " (its QEMU was gone already)" } else { "" };
        terminal::print(&format!("{} is down{was}\n", replica.name))?;
    }
    if saved_states {
        let freed = replica::remove_saved_states().context("Cannot remove a saved state")?;
        let freed = record::Unit::from("B").show(freed as f64);
        terminal::print(&format!("Removed the saved states: {freed}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let found = replica::list()?;
    let text = if json { text::json(&found)? } else { text::table(&found) };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn shell(name: Option<&str>) -> anyhow::Result<ExitCode> {
    let found = replica::find_up(name)?;
    with_session(&found, |session| session.shell().attached(terminal::is_terminal()))
}

fn exec(name: Option<&str>, command: &[String]) -> anyhow::Result<ExitCode> {
    let found = replica::find_up(name)?;
    with_session(&found, |session| session.command(command).attached(false))
}

/// Opens a connection, does one thing and passes its exit code on.
fn with_session(
    replica: &Replica,
    work: impl FnOnce(&SshSession) -> Result<i32, remote::RunError>,
) -> anyhow::Result<ExitCode> {
    let cancel = interrupt::cancel_on_signals()?;
    let owner = Owner::current("replica")?;
    let runtime = owner::runtime_dir(&owner)?;
    let env = owner.env();
    let options = SshOptions {
        folder: runtime.path(),
        env: &env,
        interactive: false,
        silence_limit: EMULATED_SILENCE_LIMIT,
    };
    let destination = replica.destination().context("The replica has no port yet")?;
    let is_cancelled = || cancel.is_cancelled();
    let patience = Patience::new(CONNECT_LIMIT, &is_cancelled);
    let session = SshSession::open(&destination, &options, patience)?;
    let code = work(&session)?;
    Ok(u8::try_from(code).map_or(ExitCode::from(ERROR), ExitCode::from))
}

fn logs(name: Option<&str>, follow: bool) -> anyhow::Result<ExitCode> {
    let found = replica::find(name)?;
    let cancel = if follow { interrupt::cancel_on_signals()? } else { Cancel::new() };
    let path: PathBuf = found.console();
    let read = || format!("Cannot read {}", path.display());
    let mut console = File::open(&path).with_context(read)?;
    let mut out = io::stdout();
    loop {
        // What is there now, in pieces: the host prints as much as it likes.
        let there = console.metadata().with_context(read)?.len();
        let left = there.saturating_sub(console.stream_position()?);
        let more = io::copy(&mut (&console).take(left), &mut out).with_context(read)?;
        out.flush().context("Cannot write")?;
        if !follow || cancel.is_cancelled() || (more == 0 && found.state() == ReplicaState::Dead) {
            return Ok(ExitCode::SUCCESS);
        }
        // A file tells nobody when it grows.
        std::thread::sleep(FOLLOW);
        // A file that grows too long is cut to its end.
        if console.metadata().with_context(read)?.len() < console.stream_position()? {
            console.rewind().with_context(read)?;
        }
    }
}
