//! Entries for programs: one JSON object a line in, one out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use placement::predict::entry::predict_entry;
use serde_json::Value;

use crate::exit::FINDINGS;
use crate::{input, terminal};

/// Predicts every line of a file, or of standard input.
///
/// # Errors
/// A file that cannot be read; output that cannot be written. Bad lines are
/// said on standard error and left out of the output.
pub(super) fn run(file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let input: Box<dyn BufRead> = match file {
        Some(path) if path != Path::new("-") => {
            let file =
                File::open(path).with_context(|| format!("Cannot read {}", path.display()))?;
            Box::new(BufReader::new(file))
        }
        _ => Box::new(io::stdin().lock()),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let bad = predict_lines(input, &mut out, &mut |complaint| terminal::note(complaint))?;
    out.flush()?;
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

/// Writes each entry with its prediction; returns how many lines were bad.
pub(super) fn predict_lines(
    mut input: impl BufRead,
    out: &mut impl Write,
    complain: &mut dyn FnMut(&str),
) -> anyhow::Result<usize> {
    let mut bad = 0;
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        if input::line(&mut input, &mut line).context("Cannot read the entries")? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match predict_line(line.trim_ascii()) {
            Ok(entry) => {
                serde_json::to_writer(&mut *out, &entry).map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
            Err(error) => {
                complain(&format!("vmlab: Line {number}: {error:#}"));
                bad += 1;
            }
        }
    }
    Ok(bad)
}

fn predict_line(line: &[u8]) -> anyhow::Result<Value> {
    let mut entry: Value = serde_json::from_slice(line).context("Not JSON")?;
    let predicted = predict_entry(&entry)?;
    entry["predicted"] = predicted;
    Ok(entry)
}
