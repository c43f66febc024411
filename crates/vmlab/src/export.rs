//! `vmlab export DIR`: a study's samples for other tools.

mod benchfmt;
#[cfg(feature = "parquet")]
mod parquet;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use record::SampleRow;

use crate::results_folder::{self, records};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab export results/quickstart --to csv > samples.csv
  vmlab export results/quickstart --to jsonl --out samples.jsonl
  vmlab export results/quickstart --to parquet --out samples.parquet
  vmlab export results/quickstart --to benchfmt > study.txt
  benchstat -col /variant study.txt";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// The results folder.
    dir: PathBuf,
    /// The format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: ExportFormat,
    /// Write here instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ExportFormat {
    /// Go's benchmark format, one line a boot.
    Benchfmt,
    /// All samples, one a row.
    Csv,
    /// All samples, one JSON object a line.
    Jsonl,
    /// All samples as Parquet (a vmlab built with the feature `parquet`).
    Parquet,
}

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let contents = results_folder::read(&args.dir)?;
    let bytes = match args.to {
        ExportFormat::Benchfmt => benchfmt::text(&contents).into_bytes(),
        ExportFormat::Csv => report::csv(&records(&contents)).into_bytes(),
        ExportFormat::Jsonl => json_lines(&records(&contents))?.into_bytes(),
        ExportFormat::Parquet => parquet_bytes(&records(&contents))?,
    };
    match &args.out {
        Some(path) => {
            fs::write(path, bytes).with_context(|| format!("Cannot write {}", path.display()))?;
        }
        None => terminal::print_bytes(&bytes)?,
    }
    Ok(results_folder::exit_code(!contents.damage.is_empty(), ExitCode::SUCCESS))
}

fn json_lines(records: &[SampleRow]) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record).context("A record is no JSON")?;
        lines.write_all(b"\n").context("Memory takes all bytes")?;
    }
    String::from_utf8(lines).context("JSON is UTF-8")
}

#[cfg(feature = "parquet")]
fn parquet_bytes(records: &[SampleRow]) -> anyhow::Result<Vec<u8>> {
    parquet::bytes(records).context("Cannot write Parquet")
}

#[cfg(not(feature = "parquet"))]
fn parquet_bytes(_: &[SampleRow]) -> anyhow::Result<Vec<u8>> {
    anyhow::bail!(
        "This vmlab was built without Parquet: build one with `cargo build --release -p vmlab --features parquet`, or take --to csv, which every reader of Parquet reads too"
    )
}
