//! `vmlab watch`: the counters of all VMs of this host, every few minutes, in one file.

#[cfg(feature = "sqlite")]
mod daemon;
#[cfg(feature = "sqlite")]
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  vmlab watch                          read the counters every five minutes
  vmlab watch --once                   once, for a timer of systemd or cron
  vmlab watch --keep-days 400 --max-mib 1024
  vmlab watch show                     what is stored
  vmlab watch show --vm db             all counters of a VM
  vmlab watch show --json | jq '.vms[] | {name, vcpus}'
  vmlab watch copy /tmp/$(hostname).sqlite
                                       whole, whoever writes meanwhile

Run as root to see every VM, and KVM's own counters. Neither guests nor QEMU are
asked. `vmlab rollout` reads the stores of many hosts.";

/// Count all VMs of this host every few minutes, into one small file
///
/// Reads what audit and studies read: run and wait times of vCPUs, exits, faults,
/// the host's own counters. The file is bounded by days and by size; after two days
/// an hour keeps its last reading, which loses nothing but when in the hour
/// something was counted.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct WatchArgs {
    #[command(subcommand)]
    command: Option<WatchCommand>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Debug, Args)]
struct StoreArgs {
    /// The file; /var/lib/vmlab/watch.sqlite for root, else
    /// $XDG_STATE_HOME/vmlab/watch.sqlite.
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

impl StoreArgs {
    #[cfg(feature = "sqlite")]
    fn path(&self) -> PathBuf {
        self.store.clone().unwrap_or_else(|| host::state_dir::state_dir().join("watch.sqlite"))
    }
}

// Without SQLite nothing reads them.
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
#[derive(Debug, Args)]
struct DaemonArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Read once, and end.
    #[arg(long)]
    once: bool,
    /// Seconds between two readings.
    #[arg(long, value_name = "SECONDS", default_value = "300", conflicts_with = "once",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval_s: u64,
    /// Days for which readings are kept.
    #[arg(long, value_name = "DAYS", default_value = "90",
          value_parser = clap::value_parser!(u32).range(1..=36_500))]
    keep_days: u32,
    /// Size of the file; the oldest readings go when it is reached.
    #[arg(long, value_name = "MIB", default_value = "256",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    max_mib: u32,
}

#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
#[derive(Debug, Subcommand)]
enum WatchCommand {
    /// Show what is stored.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        store: StoreArgs,
        /// All counters of the VM of this name, or of the host by its own.
        #[arg(long, value_name = "NAME", conflicts_with = "json")]
        vm: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Copy the store, whole whoever writes to it meanwhile.
    #[command(after_help = COPY_EXAMPLES)]
    Copy {
        #[command(flatten)]
        store: StoreArgs,
        /// Where to; nothing may be there yet.
        file: PathBuf,
    },
}

const SHOW_EXAMPLES: &str = "\
Examples:
  vmlab watch show
  vmlab watch show --store stores/node7.sqlite
  vmlab watch show --vm db
  vmlab watch show --json | jq .readings";

const COPY_EXAMPLES: &str = "\
Examples:
  vmlab watch copy /tmp/node7.sqlite
  ssh root@node7 'rm -f /tmp/readings; vmlab watch copy /tmp/readings; cat /tmp/readings' > stores/node7.sqlite";

#[cfg(feature = "sqlite")]
pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    use fleet::store::{self, WatchStore};

    use crate::terminal;

    match &args.command {
        None => daemon::run(&args.daemon)?,
        Some(WatchCommand::Show { store, vm, json }) => {
            let path = store.path();
            let held = store::contents(&path)?;
            let text = match (json, vm) {
                (true, _) => format!("{}\n", serde_json::to_string_pretty(&held)?),
                (_, Some(name)) => text::counters(&held, name)?,
                (_, None) => text::summary(&held, &path),
            };
            terminal::print(&text)?;
        }
        Some(WatchCommand::Copy { store, file }) => WatchStore::copy(&store.path(), file)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "sqlite"))]
pub(crate) fn run(_: &WatchArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!(NO_SQLITE)
}

/// What a vmlab says that has no store.
#[cfg(not(feature = "sqlite"))]
pub(crate) const NO_SQLITE: &str = "This vmlab was built without SQLite, which the stores of \
     `vmlab watch` are: build one with `cargo build --release -p vmlab --features sqlite`";
