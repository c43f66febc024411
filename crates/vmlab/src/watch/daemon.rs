//! Reading the counters, once or until a signal comes.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fleet::reading::{Reading, ThisHost};
use fleet::store::{Bounds, WatchStore};
use record::Environment;
use runner::freeze::environment_of_vm;
use signal_hook::iterator::Signals;
use vmconfig::Accel;

use super::DaemonArgs;
use crate::interrupt::ending_signals;
use crate::terminal;

/// What is known of this host for as long as it is up.
fn this_host() -> ThisHost {
    let host = host::snapshot::live("/".as_ref());
    let kvm = environment_of_vm(Accel::Kvm, &host);
    ThisHost {
        name: host.hostname.clone().unwrap_or_else(|| "a host without a name".to_owned()),
        pcpus: host.pcpus.iter().filter(|pcpu| pcpu.online).count().max(1) as u32,
        kvm,
        own: match kvm {
            Environment::Kvm => Environment::Host,
            Environment::NestedKvm => Environment::EmulatedHost,
            other => other,
        },
    }
}

/// Reads and stores, once.
fn look(host: &ThisHost, args: &DaemonArgs) -> anyhow::Result<Reading> {
    let bounds = Bounds {
        keep_s: i64::from(args.keep_days) * 86_400,
        max_bytes: u64::from(args.max_mib) << 20,
    };
    let path = args.store.path();
    // Each time anew: a store that was moved away or removed is made again.
    let mut store = WatchStore::open(&path)?;
    let reading = host.read()?;
    store.add(&reading, &bounds)?;
    Ok(reading)
}

/// How many VMs were counted, and which may not be seen.
fn sentence(reading: &Reading) -> String {
    let vms = reading.counted.len() - 1;
    let hidden = match reading.problems.len() {
        0 => String::new(),
        hidden => format!(", and {hidden} that may not be read (be root)"),
    };
    format!("{vms} VM{}{hidden}", if vms == 1 { "" } else { "s" })
}

pub(super) fn run(args: &DaemonArgs) -> anyhow::Result<()> {
    let path = args.store.path();
    if args.store.store.is_none()
        && let Some(folder) = path.parent()
    {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("Cannot make {}", folder.display()))?;
    }
    let host = this_host();
    if args.once {
        let reading = look(&host, args)?;
        terminal::note(&format!("vmlab: stored {} in {}", sentence(&reading), path.display()));
        return Ok(());
    }
    let (ended, end) = mpsc::channel();
    let mut signals = Signals::new(ending_signals()?)?;
    thread::spawn(move || {
        // The first one is enough; nobody hears more.
        if signals.forever().next().is_some() {
            let _ = ended.send(());
        }
    });
    let interval = Duration::from_secs(args.interval_s);
    let mut due = Instant::now();
    let mut said = String::new();
    loop {
        let found = look(&host, args);
        if said.is_empty() && found.is_err() {
            // What never worked is no passing trouble: whoever started it must know.
            return found.map(drop);
        }
        let now = match &found {
            Ok(reading) => {
                format!("{} every {} s in {}", sentence(reading), args.interval_s, path.display())
            }
            Err(error) => format!("nothing is stored: {error:#}"),
        };
        // One word of what is new: a full disk is not told every five minutes.
        if now != said {
            terminal::note(&format!("vmlab: {now}"));
            said = now;
        }
        due += interval;
        // After a long sleep of the machine not all that was missed is made up for.
        due = due.max(Instant::now());
        match end.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}
