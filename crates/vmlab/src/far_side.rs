//! `vmlab far-side`: the half of `vmlab run --on` that runs on the other machine.
//!
//! It is asked through standard input and tells through standard output (see
//! [`crate::on::messages`]); the results are kept where it was asked, so that
//! nothing is left here. Its input's end is the end of whoever asked: it then
//! ends what runs, puts host settings back and ends itself.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use guest::Cancel;
use record::journal::{self, JournalEvent, JournalTail};
use remote::{Decoder, RemoteFrame};
use runner::execute::{ExecutionEnd, ExecutionEvent};
use runner::machine::{self, Need};
use runner::plan::StudyPlan;
use runner::store::{ResultsError, TrialSink, blob_name};
use topology::Host;

use crate::on::messages::{FarReply, FarRequest, GREETING, PROTOCOL, of_frame, to_frame};
use crate::study_file::{self, StudyText};
use crate::{interrupt, terminal, trials};

/// How long an earlier session of the same study may take to end.
const END_LIMIT: Duration = Duration::from_secs(60);

/// How often it is looked whether it has ended.
const END_CHECK: Duration = Duration::from_millis(100);

/// No options: it is told everything.
#[derive(Debug, Args)]
pub(crate) struct FarSideArgs {}

pub(crate) fn run(_args: &FarSideArgs) -> anyhow::Result<ExitCode> {
    let cancel = interrupt::cancel_on_signals()?;
    let link = Link::open(&cancel)?;
    let last = match serve(&link, &cancel) {
        Ok(ended) => FarReply::Ended { cancelled: ended == ExecutionEnd::Cancelled },
        Err(error) => FarReply::Failed { text: terminal::error_text(&error) },
    };
    link.tell(&last, b"")?;
    Ok(ExitCode::SUCCESS)
}

fn serve(link: &Link, cancel: &Cancel) -> anyhow::Result<ExecutionEnd> {
    let (asked, body) = link.next()?;
    match asked {
        FarRequest::Plan { file, folder, budget, libvirt, run } => {
            let text = String::from_utf8(body).context("The study's text is not UTF-8")?;
            let written = StudyText { file, text, folder };
            let libvirt = libvirt.as_ref();
            let need = if run { Need::Run } else { Need::Plan };
            if run {
                trials::restore_leftovers();
            }
            let mut say = |text| link.step(text);
            let prepared = study_file::prepare(&written, &budget, libvirt, need, cancel, &mut say)?;
            let (plan, host) = (prepared.plan, prepared.machine.host);
            if !run {
                link.tell_plan(&plan, &host)?;
                return Ok(ExecutionEnd::Complete);
            }
            let _alone = SessionLock::with(&plan, link, cancel)?;
            let settings = trials::apply_settings(&plan)?;
            link.tell_plan(&plan, &host)?;
            let FarRequest::Go = link.next()?.0 else {
                bail!("The folder of results was not made")
            };
            trial(link, &plan, &host, settings, &[], cancel)
        }
        FarRequest::Calibrate { words } => {
            let list = crate::calibrate::list(&words, cancel)?;
            link.tell(&FarReply::Calibration, list.to_json().as_bytes())?;
            Ok(ExecutionEnd::Complete)
        }
        FarRequest::Resume => {
            let plan = StudyPlan::from_json(&body).context("The plan that came can't be read")?;
            let (host, events) = link.journal()?;
            let _alone = SessionLock::with(&plan, link, cancel)?;
            machine::check_again(&plan, &host)?;
            trials::end_leftovers(&plan);
            let settings = trials::apply_settings(&plan)?;
            trial(link, &plan, &host, settings, &events, cancel)
        }
        other => bail!("Nothing was asked for, but {other:?}"),
    }
}

fn trial(
    link: &Link,
    plan: &StudyPlan,
    host: &Host,
    settings: Option<host::settings::AppliedSettings>,
    events: &[JournalEvent],
    cancel: &Cancel,
) -> anyhow::Result<ExecutionEnd> {
    let mut observe = |progress: ExecutionEvent<'_>| {
        // All else stands in the journal.
        let told = match progress {
            ExecutionEvent::Booted(seconds) => FarReply::Booted { seconds },
            ExecutionEvent::RunStarted(run, of) => FarReply::RunStarted { run, of },
            _ => return,
        };
        // If it does not arrive, the next line of the journal does not either.
        drop(link.tell(&told, b""));
    };
    trials::run(
        plan,
        host,
        trials::TrialPlace::Here(Box::new(settings)),
        events,
        &mut { link },
        cancel,
        &mut observe,
    )
}

/// Lets one session of a study run at a time: a socket without a file, which is gone with
/// this process.
struct SessionLock {
    _name: UnixListener,
}

impl SessionLock {
    fn with(plan: &StudyPlan, link: &Link, cancel: &Cancel) -> anyhow::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        let name = format!("vmlab-{user}-{}", plan.run_id());
        let address = SocketAddr::from_abstract_name(name)?;
        let deadline = Instant::now() + END_LIMIT;
        let mut said = false;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(listener) => return Ok(Self { _name: listener }),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error.into()),
                Err(_) if Instant::now() > deadline => {
                    bail!("Another session of this study still runs there: wait for it, or kill it")
                }
                Err(_) => {}
            }
            cancel.check()?;
            if !std::mem::replace(&mut said, true) {
                link.step("waiting for the end of the session that was cut off".to_owned());
            }
            std::thread::sleep(END_CHECK);
        }
    }
}

/// The two streams to whoever asked.
struct Link {
    asked: Receiver<(FarRequest, Vec<u8>)>,
    /// Whether nobody answers.
    alone: Arc<AtomicBool>,
    /// The last line of the journal that was told.
    told: Cell<JournalTail>,
}

impl Link {
    fn open(cancel: &Cancel) -> anyhow::Result<Self> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "\n{GREETING}{PROTOCOL} {}", env!("CARGO_PKG_VERSION"))?;
        stdout.flush()?;
        let (tell, asked) = channel();
        let (cancel, alone) = (cancel.clone(), Arc::new(AtomicBool::new(false)));
        let is_alone = Arc::clone(&alone);
        std::thread::spawn(move || {
            if let Err(error) = listen(&tell, &cancel, &is_alone) {
                terminal::note(&format!("vmlab: {error:#}"));
            }
            if !is_alone.load(Ordering::Relaxed) {
                cancel.cancel();
            }
        });
        Ok(Self { asked, alone, told: Cell::default() })
    }

    fn next(&self) -> anyhow::Result<(FarRequest, Vec<u8>)> {
        self.asked.recv().context("Whoever asked is gone")
    }

    fn tell(&self, told: &FarReply, body: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&to_frame(told, body).encode())?;
        stdout.flush()
    }

    fn step(&self, text: String) {
        // Nobody there is nobody to tell; whatever follows finds that out.
        drop(self.tell(&FarReply::Step { text }, b""));
    }

    fn tell_plan(&self, plan: &StudyPlan, host: &Host) -> anyhow::Result<()> {
        self.tell(&FarReply::Host, host.to_json().as_bytes())?;
        self.tell(&FarReply::Plan { hash: plan.hash() }, plan.to_json().as_bytes())?;
        Ok(())
    }

    /// The machine and the journal of a study that is to go on.
    fn journal(&self) -> anyhow::Result<(Host, Vec<JournalEvent>)> {
        let mut host = None;
        let mut lines = Vec::new();
        loop {
            match self.next()? {
                (FarRequest::Host, body) => host = Some(serde_json::from_slice(&body)?),
                (FarRequest::Line, body) => lines.extend(body),
                (FarRequest::Go, _) => break,
                (other, _) => bail!("{other:?} came in the middle of a journal"),
            }
        }
        let read = journal::read(&lines, None);
        if let Some(damage) = read.damage.first() {
            bail!("The journal that came is damaged: {damage}");
        }
        Ok((host.context("No description of the machine came")?, read.events))
    }
}

/// The results are kept at the other end.
impl TrialSink for &Link {
    fn append(&mut self, event: &JournalEvent) -> Result<(), ResultsError> {
        let gone = |error: &dyn std::fmt::Display| ResultsError::Elsewhere(error.to_string());
        let (line, end) = self.told.get().line(event).map_err(|error| gone(&error))?;
        self.told.set(end);
        self.tell(&FarReply::Line, line.as_bytes()).map_err(|error| gone(&error))?;
        if self.alone.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.next() {
            Ok((FarRequest::Kept, _)) => Ok(()),
            Ok((other, _)) => Err(gone(&format!("it says {other:?}"))),
            Err(error) => Err(gone(&error)),
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<String, ResultsError> {
        let name = blob_name(bytes);
        let told = self.tell(&FarReply::Blob { name: name.clone() }, bytes);
        told.map_err(|error| ResultsError::Elsewhere(error.to_string()))?;
        Ok(name)
    }
}

/// Takes standard input apart until its end.
fn listen(
    tell: &Sender<(FarRequest, Vec<u8>)>,
    cancel: &Cancel,
    alone: &AtomicBool,
) -> anyhow::Result<()> {
    let mut stdin = io::stdin().lock();
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = stdin.read(&mut buffer).context("Cannot read standard input")?;
        if length == 0 {
            return Ok(());
        }
        decoder.push(&buffer[..length]);
        while let Some(RemoteFrame { head, body }) = decoder.next_frame()? {
            match of_frame(&head)? {
                FarRequest::Cancel => cancel.cancel(),
                FarRequest::Alone => alone.store(true, Ordering::Relaxed),
                asked => {
                    // What is not heard any more is not needed any more.
                    drop(tell.send((asked, body)));
                }
            }
        }
    }
}
