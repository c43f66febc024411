//! The NAS Parallel Benchmarks' block of results.
//!
//! Source: NPB 2.3 to 3.4 `print_results`, `verify`, of the serial, OpenMP and MPI
//! versions, Fortran and C.

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "npb",
    about: "NAS Parallel Benchmarks: OpenMP, MPI, serial and multi-zone, 2.3 to 3.4",
    signs: &[
        opens("NAS Parallel Benchmarks"),
        opens("Benchmark Completed").within().when(|line| completed(line).is_some()),
        part("Mop/s total"),
    ],
    failures: &[
        failed("Verification").when(|line| line.ends_with("UNSUCCESSFUL")),
        failed("VERIFICATION FAILED"),
        failed("Verification failed"),
        failed("Result verification failed"),
        failed("Failed partial verification: "),
        failed("FAILURE: "),
        failed("ERROR: number of processes "),
        failed("Error: Cell size too small"),
        failed("Error encountered in allocating space"),
        failed("Error writing to file"),
        failed("Error opening file"),
        failed("Error reading back file"),
        failed("mpi_error called"),
    ],
    read,
};

/// A block until its verification is read.
#[derive(Default)]
struct NpbBlock<'a> {
    name: Option<String>,
    labels: Vec<(&'static str, String)>,
    time: Option<(f64, TextLine<'a>)>,
    total: Option<(f64, TextLine<'a>)>,
    each: Option<(f64, &'static str, TextLine<'a>)>,
}

/// Reads any number of blocks. Values are those of runs whose verification
/// did not fail.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut block: Option<NpbBlock<'_>> = None;
    for line in text.lines() {
        if let Some(name) = completed(line.text) {
            unfinished(block.take(), log);
            block = Some(NpbBlock { name: Some(name), ..NpbBlock::default() });
            continue;
        }
        let Some((key, value)) = line.split("=") else { continue };
        if key == "Version" && !line.is_open() {
            log.version = Some(value.text.to_owned());
        }
        if key == "Class" && block.as_ref().is_none_or(|block| block.time.is_some()) {
            unfinished(block.take(), log);
            block = Some(NpbBlock::default());
        }
        let Some(current) = &mut block else { continue };
        match key {
            "Verification" => {
                if value.text == "UNSUCCESSFUL" {
                    log.failed(line, "the run is wrong: its values are not taken");
                    block = None;
                } else if value.text.holds("SUCCESSFUL") || value.text == "NOT PERFORMED" {
                    let finished = block.take().unwrap_or_default();
                    emit(finished, log);
                }
            }
            _ if line.is_open() => {}
            "Class" => current.labels.push(("class", value.text.to_owned())),
            "Size" => {
                let size: String = value.text.ascii_words().collect();
                current.labels.push(("size", size));
            }
            "Iterations" => current.labels.push(("iterations", value.text.to_owned())),
            "Total threads" | "Threads" => current.labels.push(("threads", value.text.to_owned())),
            "Total processes" => current.labels.push(("processes", value.text.to_owned())),
            "Operation type" => current.labels.push(("operation", slug(value.text))),
            "Time in seconds" => match value.number(value.text) {
                Some(seconds) => current.time = Some((seconds, line)),
                None => log.unread(line, "no time"),
            },
            "Mop/s total" => match value.number(value.text) {
                Some(rate) => current.total = Some((rate, line)),
                None => log.unread(line, "no rate"),
            },
            "Mop/s/thread" | "Mop/s/process" => match value.number(value.text) {
                Some(rate) => {
                    let metric =
                        if key.ends_with('s') { "process-ops-per-s" } else { "thread-ops-per-s" };
                    current.each = Some((rate, metric, line));
                }
                None => log.unread(line, "no rate"),
            },
            _ => {}
        }
    }
    unfinished(block, log);
}

/// `CG` of ` CG Benchmark Completed.`
fn completed(line: &str) -> Option<String> {
    let (name, rest) = line.cut(" Benchmark Completed")?;
    let name = name.trim();
    (name.len() <= 6 && !name.contains(' ') && rest.trim_matches('.').trim().is_empty())
        .then(|| name.to_ascii_lowercase())
}

fn emit(block: NpbBlock<'_>, log: &mut Log) {
    log.clear_labels();
    if let Some(name) = block.name {
        log.label("benchmark", name);
    }
    for (key, value) in block.labels {
        log.label(key, value);
    }
    if let Some((seconds, line)) = block.time {
        log.time("time", seconds, line);
    }
    if let Some((millions, line)) = block.total {
        log.rate("ops-per-s", number::scaled(millions, 1e6), "1/s", line);
    }
    if let Some((millions, metric, line)) = block.each {
        log.rate(metric, number::scaled(millions, 1e6), "1/s", line);
    }
}

/// A block without its verification may be cut off.
fn unfinished(block: Option<NpbBlock<'_>>, log: &mut Log) {
    if let Some(line) = block
        .and_then(|block| block.time.map(|(_, line)| line).or(block.total.map(|(_, line)| line)))
    {
        log.unread(line, "no verification follows: its values are not taken");
    }
}
