//! What the two halves of `vmlab run --on` say to each other, each message the
//! head of a frame ([`remote::RemoteFrame`]), in JSON.
//!
//! ```text
//! here                              there
//! Plan: study's text        ->
//!                           <-      Step ..., Host, Plan
//! (makes the folder) Go     ->
//!                           <-      Blob ..., Line      (and so on)
//! (writes it)        Kept   ->
//!                           <-      Ended, or Failed
//! ```
//!
//! A far side that nobody listens to while it runs is asked Plan, Go and Alone at
//! once, and waits for nothing.
//!
//! A study goes on with Resume, Host, Line ..., Go instead of Plan and Go. Both
//! halves are the same version of vmlab: what a message means may change with it.

use std::path::PathBuf;

use guest::libvirt::Uri;
use remote::RemoteFrame;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::study_file::BudgetArgs;

/// The first word of the far side, behind which stand protocol and version.
pub(crate) const GREETING: &str = "vmlab-far-side ";

/// Raised whenever a message changes.
pub(crate) const PROTOCOL: u32 = 5;

/// What is said to the far side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(crate) enum FarRequest {
    /// Make a plan of the study in the body, and run it if `run`.
    Plan {
        file: String,
        folder: PathBuf,
        budget: BudgetArgs,
        /// The libvirt there that is to run its VMs.
        libvirt: Option<Uri>,
        run: bool,
    },
    /// Measure a price list as these words of a command line say.
    Calibrate { words: Vec<String> },
    /// Go on with the plan in the body.
    Resume,
    /// The machine on which that was begun.
    Host,
    /// Lines of its journal.
    Line,
    /// That was all; the folder of results is there.
    Go,
    /// The last line is on disk.
    Kept,
    /// Nobody asks anything more: what is told counts as kept, and the end of what
    /// is asked means nothing.
    Alone,
    /// End in order.
    Cancel,
}

/// What the far side says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(crate) enum FarReply {
    /// What takes time before the first trial.
    Step { text: String },
    /// The machine is in the body.
    Host,
    /// The plan is in the body.
    Plan { hash: String },
    /// The price list is in the body.
    Calibration,
    /// A text that a line to come names.
    Blob { name: String },
    /// A line of the journal; the far side waits until it is kept.
    Line,
    /// A guest has booted.
    Booted { seconds: f64 },
    /// A benchmark has started.
    RunStarted { run: u32, of: u32 },
    /// The last word: all that was asked for is done, or ended in order.
    Ended { cancelled: bool },
    /// The last word: an error.
    Failed { text: String },
}

pub(crate) fn to_frame(message: &impl Serialize, body: &[u8]) -> RemoteFrame {
    let head = serde_json::to_vec(message).expect("a message's keys are strings");
    RemoteFrame { head, body: body.to_vec() }
}

pub(crate) fn of_frame<M: DeserializeOwned>(head: &[u8]) -> serde_json::Result<M> {
    serde_json::from_slice(head)
}
