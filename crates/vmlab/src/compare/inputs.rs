//! Files and folders become data.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use compare::analyse::DataWarning;
use compare::{ColumnNames, Data, Dataset, TableError};
use record::LogValue;
use runner::store;

use super::{DAMAGED, FAILED_RUN};
use crate::{input, results_folder, terminal};

/// An input of the command line: what it is called, and where it lies.
struct NamedInput {
    name: String,
    path: PathBuf,
}

/// `NAME=FILE` or `FILE`. A file that is given twice becomes two inputs, as
/// benchstat does it.
fn inputs(texts: &[String]) -> Vec<NamedInput> {
    let mut inputs: Vec<NamedInput> = Vec::new();
    let mut unnamed: HashMap<&str, Vec<usize>> = HashMap::new();
    for text in texts {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !Path::new(text).exists() => (name, path),
            _ => {
                unnamed.entry(text).or_default().push(inputs.len());
                (text.as_str(), text.as_str())
            }
        };
        inputs.push(NamedInput { name: name.to_owned(), path: path.into() });
    }
    for places in unnamed.into_values().filter(|places| places.len() > 1) {
        for (number, place) in places.into_iter().enumerate() {
            let input = &mut inputs[place];
            input.name = format!("{}#{number}", input.name);
        }
    }
    inputs
}

fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    input::open(path, input::MAX_DATA_BYTES)
        .with_context(|| format!("Cannot read {}", path.display()))
}

/// Reads all inputs, whatever their formats.
///
/// Also what is missing: from results folders, and runs that failed; one warning each.
pub(super) fn read(
    texts: &[String],
    columns: &ColumnNames,
) -> anyhow::Result<(Dataset, Vec<DataWarning>)> {
    let (mut data, mut missing) = (Data::default(), Vec::new());
    for input in inputs(texts) {
        if input.path.is_dir() {
            missing.extend(read_folder(&mut data, &input, columns)?);
        } else {
            let read = read_file(&mut data, &input.name, &input.path, columns)?;
            if read.is_empty {
                bail!("{}: every run in it failed", input.path.display());
            }
            missing.extend(read.failed);
        }
    }
    Ok((data.finish(), missing))
}

/// Reads all inputs as Go's benchmark format.
pub(super) fn read_benchfmt(texts: &[String]) -> anyhow::Result<Dataset> {
    let mut data = Data::default();
    for input in inputs(texts) {
        data.read_benchfmt(&input.name, &mut open(&input.path)?)?;
    }
    Ok(data.finish())
}

/// A study, or every file of a folder under the folder's name.
fn read_folder(
    data: &mut Data,
    input: &NamedInput,
    columns: &ColumnNames,
) -> anyhow::Result<Vec<DataWarning>> {
    if store::is_results(&input.path) {
        let contents = results_folder::read(&input.path)?;
        data.add_records(&input.name, &results_folder::records(&contents));
        let warning = |text| DataWarning { code: DAMAGED, text };
        return Ok(store::damage_lines(&input.path, &contents.damage).map(warning).collect());
    }
    if runner::node_set::is_node_set(&input.path) {
        bail!(
            "{0} holds many nodes: compare it alone, or the folders in {0}/nodes",
            input.path.display()
        );
    }
    let mut files = Vec::new();
    let action = || format!("Cannot read {}", input.path.display());
    for entry in fs::read_dir(&input.path).with_context(action)? {
        let path = entry.with_context(action)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("{} holds no file", input.path.display());
    }
    let (mut missing, mut is_empty) = (Vec::new(), true);
    for file in files {
        let read = read_file(data, &input.name, &file, columns)?;
        missing.extend(read.failed);
        is_empty &= read.is_empty;
    }
    if is_empty {
        bail!("{}: every run in it failed", input.path.display());
    }
    Ok(missing)
}

/// What was in a file.
#[derive(Default)]
struct FileRead {
    /// The runs that failed, and are left out.
    failed: Vec<DataWarning>,
    /// True if there was no other.
    is_empty: bool,
}

fn read_file(
    data: &mut Data,
    name: &str,
    path: &Path,
    columns: &ColumnNames,
) -> anyhow::Result<FileRead> {
    let text = match data.read(name, &mut open(path)?, columns) {
        Err(TableError::Unknown { text, .. }) => String::from_utf8_lossy(&text).into_owned(),
        Err(TableError::Malformed { line, why, .. }) => bail!("{}:{line}: {why}", path.display()),
        other => return Ok(other.map(|()| FileRead::default())?),
    };
    // What no format is may be a benchmark's log.
    let mut values = Vec::new();
    let mut failed = Vec::new();
    for log in logs::read(&text, None) {
        if let Some(why) = log.failed.first() {
            // A run that failed proves nothing, and is not left out in silence.
            let (path, line, text) = (path.display(), why.line, &why.text);
            let tool = log.tool;
            let text = format!("{path}:{line}: the run of {tool} failed and was left out: {text}");
            terminal::note(&text);
            failed.push(DataWarning { code: FAILED_RUN, text });
            continue;
        }
        let mut found = log.values;
        LogValue::relabel(&mut found, |labels| match labels.get("tool") {
            None => labels.with("tool", log.tool),
            Some(_) => labels.clone(),
        });
        values.append(&mut found);
    }
    if values.is_empty() && !failed.is_empty() {
        return Ok(FileRead { failed, is_empty: true });
    }
    if values.is_empty() {
        bail!(
            "{}: no format that is known: neither Go's benchmark format, CSV with a column of values, JSON, nor the log of a benchmark that vmlab reads",
            path.display()
        );
    }
    data.add_imported(name, &values);
    Ok(FileRead { failed, is_empty: false })
}
