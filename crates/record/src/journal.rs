//! The journal: everything that happens in a study, one event a line.
//!
//! The journal is append-only. How its lines are written, and what is known of
//! a damaged one, stands in `lines`. Large texts (benchmark output, consoles)
//! lie apart as blobs and are named by their hash.

mod lines;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CounterSet, Environment, Ground, Histogram, HostWatch, Outcome, Sample, TrialProfile,
    UnsteadyCause,
};

pub use lines::{
    Damage, DamageKind, DecodeError, Journal, JournalLine, JournalTail, UnknownEnd, decode, read,
};

/// Everything that happens in a study, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum JournalEvent {
    /// A process began (or resumed) the study.
    SessionStarted {
        /// vmlab's version.
        vmlab_version: String,
        /// Hash of the frozen plan that this journal belongs to.
        plan_hash: String,
        /// Where the trials that follow run.
        environment: Environment,
        /// Seconds since the Unix epoch.
        unix_s: f64,
    },
    /// A block began: one boot of every variant inside one host-load level.
    BlockStarted {
        /// Number of the block, from 0, unique in the study.
        block: u32,
        /// 0 at first; one more whenever the block is done again.
        attempt: u32,
        /// The host-load level.
        load: String,
        /// Seconds since the Unix epoch.
        unix_s: f64,
    },
    /// A trial began. Without its end after a restart it counts as aborted.
    TrialStarted {
        /// Which trial.
        trial: TrialKey,
        /// Seconds since the Unix epoch.
        unix_s: f64,
    },
    /// A trial ended, well or not.
    TrialEnded(Box<TrialResult>),
    /// A block ended with all its trials done.
    BlockEnded {
        /// Number of the block.
        block: u32,
        /// The attempt that ended.
        attempt: u32,
        /// What was unsteady and is counted all the same.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unsteady: Vec<UnsteadyCause>,
        /// What of the host could not be put back as it was when the block
        /// ended, a sentence each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_restored: Vec<String>,
        /// Seconds since the Unix epoch.
        unix_s: f64,
    },
    /// A block ended with all its trials done, but does not count: the host was
    /// not steady.
    BlockRejected {
        /// Number of the block.
        block: u32,
        /// The attempt that ended.
        attempt: u32,
        /// What was unsteady.
        reasons: Vec<UnsteadyCause>,
        /// What of the host could not be put back as it was when the block
        /// ended, a sentence each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_restored: Vec<String>,
        /// Seconds since the Unix epoch.
        unix_s: f64,
    },
    /// More blocks were asked for than the plan has.
    Extended {
        /// Blocks for each load level that the study may have now.
        blocks: u32,
        /// Seconds since the Unix epoch.
        unix_s: f64,
    },
    /// The study reached its end.
    StudyEnded {
        /// Why no further block follows.
        reason: String,
        /// Seconds since the Unix epoch.
        unix_s: f64,
    },
}

impl JournalEvent {
    /// The trial that ended, if this says so.
    #[must_use]
    pub fn ended_trial(&self) -> Option<&TrialKey> {
        match self {
            Self::TrialEnded(result) => Some(&result.trial),
            _ => None,
        }
    }
}

/// Which trial: the same key always names the same boot of the same plan.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct TrialKey {
    /// Hash of plan, block and cell; 16 hexadecimal digits. A trial that is
    /// done again keeps it.
    pub id: String,
    /// Number of the block.
    pub block: u32,
    /// Attempt at the block.
    pub attempt: u32,
    /// The host-load level.
    pub load: String,
    /// The workload's label in the study.
    pub workload: String,
    /// The variant.
    pub variant: String,
    /// Position in the study's order, from 0.
    pub order: u32,
}

/// What a trial brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialResult {
    /// Which trial.
    pub trial: TrialKey,
    /// How it ended; a failed run makes the trial failed.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Spawn of QEMU to the guest agent's first answer, s.
    pub boot_s: Option<f64>,
    /// Whole trial on the wall clock, s.
    pub wall_s: f64,
    /// The benchmark invocations, in order.
    pub runs: Vec<RunResult>,
    /// The QEMU command line as it was started.
    pub qemu_args: Vec<String>,
    /// Where each vCPU thread was allowed to run, read back from the kernel
    /// (CPU list format), by vCPU index.
    pub vcpu_affinity: Vec<String>,
    /// How each vCPU thread was scheduled (`fifo:1`, `other`), read back from
    /// the kernel, by vCPU index; empty where the variant asks for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vcpu_scheduler: Vec<String>,
    /// The host settings that were made for it, as they were read back, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_settings: BTreeMap<String, String>,
    /// What earlier trials had left on the host when it began. Earlier versions
    /// did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ground: Option<Ground>,
    /// What was found of the VM and its host, by name, whether it was asked for
    /// or not: `cpu_pm`, `guest.clocksource`, `kvm.halt_poll_ns`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// Hash of the console's text, if there was any.
    pub console: Option<String>,
    /// The last lines of the console, for trials that failed.
    pub console_tail: Option<String>,
    /// Hash of the devices' state, of a guest that hung or panicked: a file for
    /// `vmlab state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_state: Option<String>,
    /// What the host did meanwhile, where it was watched.
    #[serde(default)]
    pub watch: Option<HostWatch>,
    /// The invocation behind the runs that was profiled, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<TrialProfile>,
    /// Things that a reader of the numbers should know.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Seconds since the Unix epoch at the trial's end.
    pub unix_s: f64,
}

impl TrialResult {
    /// A trial of which nothing else is known.
    #[must_use]
    pub fn new(trial: TrialKey, outcome: Outcome, unix_s: f64) -> Self {
        Self {
            trial,
            outcome,
            boot_s: None,
            wall_s: 0.0,
            runs: Vec::new(),
            qemu_args: Vec::new(),
            vcpu_affinity: Vec::new(),
            vcpu_scheduler: Vec::new(),
            host_settings: BTreeMap::new(),
            ground: None,
            facts: BTreeMap::new(),
            console: None,
            console_tail: None,
            device_state: None,
            watch: None,
            profile: None,
            warnings: Vec::new(),
            unix_s,
        }
    }
}

/// What one benchmark invocation brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Run inside the trial, from 0.
    pub run: u32,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The benchmark's command line inside the guest.
    pub command: Vec<String>,
    /// Wall time of the invocation as the host saw it, s; of a simulated one the time on the
    /// simulated host in which all was counted.
    pub wall_s: f64,
    /// Start, seconds since the Unix epoch.
    pub started_unix_s: f64,
    /// Version of the tool, where its output says it.
    pub tool_version: Option<String>,
    /// The samples, in the order in which they were printed.
    pub samples: Vec<Sample>,
    /// The distributions that were printed, each name once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<Histogram>,
    /// Counter differences over the run.
    pub counters: CounterSet,
    /// Blobs by role: `stdout`, `stderr`.
    pub blobs: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The event, written as a line and read again.
    fn read_again(event: &JournalEvent) -> JournalEvent {
        let (text, _) = JournalTail::default().line(event).unwrap();
        decode(text.trim_end().as_bytes()).unwrap().event
    }

    /// Journals of version 0.1.0 tell in words what was unsteady.
    #[test]
    fn what_was_unsteady_is_read_in_both_ways() {
        let told = r#"{"event":"block-rejected","block":1,"attempt":0,"reasons":["b: others used 26 % of the time (limit 10 %)"],"unix_s":1.5}"#;
        let JournalEvent::BlockRejected { reasons, .. } = serde_json::from_str(told).unwrap()
        else {
            panic!("another event")
        };
        let words = "b: others used 26 % of the time (limit 10 %)";
        assert_eq!(reasons, [UnsteadyCause::Told(words.to_owned())]);

        let trial = UnsteadyCause::Trial {
            workload: "hackbench".to_owned(),
            variant: "b".to_owned(),
            sign: crate::HostSign::Others,
            excess: 0.25,
        };
        let event = JournalEvent::BlockEnded {
            block: 1,
            attempt: 0,
            unsteady: vec![trial],
            not_restored: Vec::new(),
            unix_s: 1.5,
        };
        assert_eq!(read_again(&event), event);
    }

    #[test]
    fn what_was_not_put_back_is_told_and_older_blocks_lack_it() {
        let ended = |not_restored: Vec<String>| JournalEvent::BlockEnded {
            block: 1,
            attempt: 0,
            unsteady: Vec::new(),
            not_restored,
            unix_s: 2.0,
        };
        let old = r#"{"event":"block-ended","block":1,"attempt":0,"unix_s":2.0}"#;
        assert_eq!(serde_json::from_str::<JournalEvent>(old).unwrap(), ended(Vec::new()));
        assert_eq!(serde_json::to_string(&ended(Vec::new())).unwrap(), old);
        let told = ended(vec!["Host setting governor could not be set back".into()]);
        assert_eq!(read_again(&told), told);
    }

    #[test]
    fn a_failed_trial_keeps_its_reason() {
        let outcome =
            Outcome::failed(crate::FailureKind::GuestPanicked, "VFS: unable to mount root");
        let run = RunResult {
            run: 0,
            outcome,
            command: vec!["hackbench".into()],
            wall_s: 0.25,
            started_unix_s: 0.0,
            tool_version: None,
            samples: vec![Sample { metric: "time".into(), value: 0.1 }],
            histograms: vec![Histogram::new("latency", [(1000, 3), (2000, 1)], 1)],
            counters: CounterSet::default(),
            blobs: BTreeMap::new(),
        };
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<RunResult>(&text).unwrap(), run);

        // Journals from before there were any.
        let start = text.find(r#""histograms""#).unwrap();
        let end = start + text[start..].find(r#""counters""#).unwrap();
        let old = format!("{}{}", &text[..start], &text[end..]);
        let read = serde_json::from_str::<RunResult>(&old).unwrap();
        assert_eq!(read, RunResult { histograms: Vec::new(), ..run });
    }
}
