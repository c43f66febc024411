//! A results folder, as every command reads one: what is wrong with it is said
//! before what it holds is used, and makes the exit code that of a finding.

use std::path::Path;
use std::process::ExitCode;

use record::SampleRow;
use runner::results;
use runner::state::JournalState;
use runner::store::{self, Contents};

use crate::exit::FINDINGS;
use crate::terminal;

/// Reads the results in `dir`, and says on standard error what is missing.
///
/// # Errors
/// When there are none, or they can't be read at all.
pub(crate) fn read(dir: &Path) -> anyhow::Result<Contents> {
    let contents = store::read(dir)?;
    for line in store::damage_lines(dir, &contents.damage) {
        terminal::note(&format!("vmlab: {line}"));
    }
    tell_unknown(&contents);
    Ok(contents)
}

/// Says what of `contents` this vmlab does not know.
pub(crate) fn tell_unknown(contents: &Contents) {
    for file in &contents.unknown {
        terminal::note(&format!("vmlab: {file}"));
    }
}

/// All samples with their settings.
pub(crate) fn records(contents: &Contents) -> Vec<SampleRow> {
    let state = JournalState::from_events(&contents.events);
    results::records(&contents.plan, &results::trials(&contents.events, &state))
}

/// `fine`, unless something is `missing` from what the command used.
pub(crate) fn exit_code(missing: bool, fine: ExitCode) -> ExitCode {
    if missing { ExitCode::from(FINDINGS) } else { fine }
}
