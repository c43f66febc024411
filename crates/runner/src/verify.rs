//! Whether a results folder is what was written: plan, machine, journal, and
//! every text that the journal names.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use record::journal::{Damage, DamageKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::store::{self, ResultsError, blob_name, blob_path};

/// What a look at everything in a results folder brought.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Verification {
    /// The folder.
    pub folder: PathBuf,
    /// Events that the journal tells.
    pub events: usize,
    /// Trials that ended.
    pub trials: usize,
    /// Texts that are there and are what they were.
    pub texts: usize,
    /// What is wrong; nothing in a sound folder.
    pub findings: Vec<FolderDamage>,
}

/// Something that is wrong with a results folder.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum FolderDamage {
    /// The journal is damaged.
    Journal(Damage),
    /// A text that the journal names can't be read.
    TextMissing {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// A text is not what was written.
    TextChanged {
        /// The file.
        file: PathBuf,
    },
}

impl fmt::Display for FolderDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(damage) => write!(f, "journal.jsonl, {damage}"),
            Self::TextMissing { file, reason } => {
                write!(f, "{}: can't be read: {reason}", file.display())
            }
            Self::TextChanged { file } => {
                write!(f, "{}: is not what was written", file.display())
            }
        }
    }
}

/// Looks at everything in `dir`: unlike a report, at the texts, too.
///
/// # Errors
/// [`ResultsError`] where plan, machine or journal can't be read, or the plan is
/// not the journal's.
pub fn verify(dir: &Path) -> Result<Verification, ResultsError> {
    let contents = store::read(dir)?;
    let names = contents.texts();
    let named = names.len();
    let wrong: Vec<FolderDamage> = names
        .into_iter()
        .filter_map(|name| {
            let file = blob_path(dir, name);
            match store::text(dir, name) {
                Ok(bytes) if blob_name(&bytes) == *name => None,
                Ok(_) => Some(FolderDamage::TextChanged { file }),
                Err(error) => Some(FolderDamage::TextMissing { file, reason: reason(&error) }),
            }
        })
        .collect();
    // What of them is gone stands below, one by one.
    let journal = |damage: &&Damage| !matches!(damage.kind, DamageKind::TextsMissing { .. });
    let journal = contents.damage.iter().filter(journal).cloned().map(FolderDamage::Journal);
    Ok(Verification {
        folder: dir.to_owned(),
        events: contents.events.len(),
        trials: contents.trials().count(),
        texts: named - wrong.len(),
        findings: journal.chain(wrong).collect(),
    })
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is gone".to_owned(),
        _ => error.to_string(),
    }
}
