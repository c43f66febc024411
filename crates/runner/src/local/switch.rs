//! The switch between the VMs of a trial: vmlab's own, in a process and a sandbox of
//! its own, which ends with vmlab, however vmlab ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use guest::Cancel;
use record::{CounterSet, Failure, FailureKind, PEER};
use topology::PcpuSet;
use vswitch::counters::{DropReason, PortCounts};
use vswitch::{ControlReply, LinkState, Question, SwitchStatus, ask};

use super::failure::failure;
use super::role_guest::last_words;
use super::{LocalLab, load_failure, polling};
use crate::study::StudyNetwork;

/// This program, also when its file was replaced since it began.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// How long it may take to answer first.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How often it is asked until then.
const LOOK: Duration = Duration::from_millis(20);

/// Names of its ports: of the VM under test, and of the other one.
const PORTS: [&str; 2] = ["trial", "peer"];

/// Its counters begin with this; those of the other VM's port with `peer.` before.
const SWITCH: &str = "switch.";

/// A switch that runs; it ends on drop.
#[derive(Debug)]
pub(super) struct RunningSwitch {
    child: Child,
    folder: PathBuf,
    pcpus: PcpuSet,
}

impl RunningSwitch {
    /// Starts a switch with a port for each of `interfaces`, and sees that its polling
    /// threads are where the first of them says.
    pub(super) fn start(
        lab: &LocalLab<'_>,
        interfaces: [&StudyNetwork; 2],
    ) -> Result<Self, Failure> {
        let folder = lab.runtime.path().to_owned();
        let refused = |error: &dyn std::error::Error| {
            Failure::new(
                FailureKind::VmRefused,
                format!("The switch: {}", load_failure(error).detail),
            )
        };
        let pcpus = interfaces[0].switch_pcpus.clone();
        let log = File::create(folder.join("switch.log")).map_err(|error| refused(&error))?;
        let mut command = Command::new(THIS_PROGRAM);
        command.arg0("vmlab").current_dir(&folder);
        command.args(["switch", "--quiet", "--until-input-ends", "--control", "switch.ctl"]);
        for (name, interface) in PORTS.iter().zip(interfaces) {
            let port = format!("{name}.port,name={name},queues={}", interface.queues);
            command.args(["--port", &port]);
        }
        if !pcpus.is_empty() {
            command.args(["--pcpus", &pcpus.to_string()]);
        }
        // Its input ends with this process, whatever ends that.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        lab.owner.apply(&mut command);
        let child = command.spawn().map_err(|error| refused(&error))?;
        let mut switch = Self { child, folder, pcpus };
        switch.until_it_answers(&lab.cancel)?;
        switch.check_pins()?;
        Ok(switch)
    }

    /// The socket of a port.
    pub(super) fn socket(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{}.port", PORTS[number]))
    }

    fn until_it_answers(&mut self, cancel: &Cancel) -> Result<(), Failure> {
        let until = Instant::now() + START_LIMIT;
        loop {
            cancel.check().map_err(|cancelled| failure(cancelled.into()))?;
            match self.status() {
                Ok(_) => return Ok(()),
                Err(failure) => {
                    let ended = self.child.try_wait().is_ok_and(|status| status.is_some());
                    if ended || Instant::now() >= until {
                        let kind = FailureKind::VmRefused;
                        return Err(Failure::new(kind, failure.detail));
                    }
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    fn status(&self) -> Result<SwitchStatus, Failure> {
        let lost = |why: String| {
            let said = fs::read_to_string(self.folder.join("switch.log")).unwrap_or_default();
            Failure::new(
                FailureKind::WorkloadFailed,
                format!("The switch between the VMs: {why}; it said: {}", last_words(&said)),
            )
        };
        match ask(&self.folder.join("switch.ctl"), Question::Status) {
            Ok(ControlReply::Status(status)) => Ok(*status),
            Ok(other) => Err(lost(format!("it answered {other:?}"))),
            Err(error) => Err(lost(load_failure(&error).detail)),
        }
    }

    fn check_pins(&self) -> Result<(), Failure> {
        if self.pcpus.is_empty() {
            return Ok(());
        }
        polling::check(self.child.id(), &self.pcpus, |name| {
            name.strip_prefix("vswitch-").is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        })
    }

    /// What it counted so far.
    pub(super) fn counters(&self) -> Result<CounterSet, Failure> {
        self.status().map(|status| counters(&status))
    }

    /// The first VM, by its port's number, with which it has no connection, and what the
    /// switch says of it.
    pub(super) fn without_connection(&self) -> Option<(usize, String)> {
        let status = self.status().ok()?;
        PORTS.iter().enumerate().find_map(|(number, name)| {
            let port = status.ports.iter().find(|port| port.name == *name)?;
            let why = port.last_error.as_deref().unwrap_or("it ended");
            (port.state == LinkState::Waiting).then(|| (number, format!("vmlab's: {why}")))
        })
    }

    /// What its guests agreed on with it.
    pub(super) fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let status = self.status()?;
        let mut facts = BTreeMap::new();
        let threads: Vec<String> = status
            .threads
            .iter()
            .map(|thread| {
                thread.pcpu.map_or_else(|| "anywhere".to_owned(), |pcpu| format!("pCPU {pcpu}"))
            })
            .collect();
        facts.insert("switch.polling_threads".to_owned(), threads.join(", "));
        for (prefix, name) in ["", PEER].iter().zip(PORTS) {
            if let Some(port) = status.ports.iter().find(|port| port.name == name) {
                let value = format!("{} rings, {}", port.rings, port.features.join(" "));
                facts.insert(format!("{prefix}{SWITCH}port"), value);
            }
        }
        Ok(facts)
    }
}

impl Drop for RunningSwitch {
    fn drop(&mut self) {
        // It may be gone already; either way it is reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The counters of a switch.
fn counters(status: &SwitchStatus) -> CounterSet {
    let mut all = CounterSet::default();
    let seconds = |ns: u64| ns as f64 / 1e9;
    for (prefix, name) in ["", PEER].iter().zip(PORTS) {
        let Some(port) = status.ports.iter().find(|port| port.name == name) else { continue };
        let PortCounts {
            frames_in,
            bytes_in,
            frames_out,
            bytes_out,
            flooded,
            kicks,
            signals,
            signals_lost,
            rate_waits,
            segmented,
            checksummed,
            busy_ns,
            drops,
        } = &port.counts;
        for (what, value) in [
            ("frames_in", frames_in),
            ("octets_in", bytes_in),
            ("frames_out", frames_out),
            ("octets_out", bytes_out),
            ("flooded", flooded),
            ("kicks", kicks),
            ("signals", signals),
            ("signals_lost", signals_lost),
            ("rate_waits", rate_waits),
            ("segmented", segmented),
            ("checksummed", checksummed),
        ] {
            all.set(format!("{prefix}{SWITCH}{what}"), *value as f64);
        }
        all.set(format!("{prefix}{SWITCH}port_busy_s"), seconds(*busy_ns));
        // Also those that did not happen, to have differences from the start.
        for reason in DropReason::ALL {
            let count = drops.get(reason.name()).copied().unwrap_or(0);
            all.set(format!("{prefix}{SWITCH}drops.{}", reason.name()), count as f64);
        }
    }
    for thread in &status.threads {
        let counts = &thread.counts;
        for (what, value) in [
            ("frames", counts.frames as f64),
            ("bursts", counts.bursts as f64),
            ("sleeps", counts.sleeps as f64),
            ("busy_s", seconds(counts.busy_ns)),
            ("looking_s", seconds(counts.idle_ns)),
            ("asleep_s", seconds(counts.asleep_ns)),
        ] {
            all.add(format!("{SWITCH}{what}"), value);
        }
    }
    all
}

/// What the differences over a run say together: the size of a burst, and how busy
/// the polling threads were.
pub(super) fn add_ratios(run: &mut CounterSet) {
    let get = |what: &str| run.get(&format!("{SWITCH}{what}"));
    let (frames, bursts) = (get("frames"), get("bursts"));
    let times = ["busy_s", "looking_s", "asleep_s"].map(get);
    if let (Some(frames), Some(bursts)) = (frames, bursts)
        && bursts > 0.0
    {
        run.set(format!("{SWITCH}frames_per_burst"), frames / bursts);
    }
    if let [Some(busy), Some(looking), Some(asleep)] = times {
        let whole = busy + looking + asleep;
        if whole > 0.0 {
            run.set(format!("{SWITCH}busy_percent"), 100.0 * busy / whole);
        }
    }
}
