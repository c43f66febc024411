//! `vmlab import`: reads the logs of benchmark tools that vmlab did not run.

mod files;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use rayon::prelude::*;
use record::Unit;
use serde::Serialize;
use workload::logs::{self, Log, Tool};

use crate::exit::FINDINGS;
use crate::terminal;
use files::{Source, Text};

const EXAMPLES: &str = "\
Examples:
  vmlab import hackbench.log                  what is in it?
  vmlab import before/ after/                 all logs below two folders
  ssh vm sysbench cpu run | vmlab import -    standard input
  vmlab import --as kernbench build.txt       GNU time's output of a build
  vmlab import --label variant=pinned run1/   add what the log does not know
  vmlab import --json work/log > values.jsonl one JSON object a value
  vmlab import --list                         the tools that are known

Files may be compressed (.gz, .xz, .zst). Below a tree of MMTests
(log/CONFIG/iter-N/BENCHMARK/logs), values are labelled with variant, boot and
benchmark.";

/// Bytes of output that are kept until they are printed.
const PRINTED_AT_ONCE: usize = 1 << 16;

/// Files that together have less are read before other threads have begun.
const SHARED_BYTES: u64 = 1 << 16;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// Logs, folders that are searched for logs, or `-` for standard input.
    #[arg(value_name = "FILE", required_unless_present = "list")]
    files: Vec<PathBuf>,
    /// The tool that wrote them, instead of recognising it.
    #[arg(long = "as", value_name = "TOOL", value_parser = parse_tool)]
    tool: Option<ToolName>,
    /// A label for all values; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Print JSON: one object a value, and one for each line that was not read.
    #[arg(long)]
    json: bool,
    /// List the tools that are known.
    #[arg(long, conflicts_with_all = ["files", "tool", "labels", "json"])]
    list: bool,
}

/// A tool that exists.
#[derive(Clone)]
struct ToolName(&'static Tool);

impl std::fmt::Debug for ToolName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

fn parse_tool(name: &str) -> Result<ToolName, String> {
    let known = || logs::TOOLS.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ");
    logs::tool(name).map(ToolName).ok_or_else(|| format!("known are {}", known()))
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("a label is KEY=VALUE, such as variant=pinned".to_owned()),
    }
}

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        terminal::print(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let sources = files::find(&args.files)?;
    let mut seen = Seen { json: args.json, ..Seen::default() };
    for group in files::groups(&sources) {
        if group.bytes < SHARED_BYTES || group.sources.len() == 1 {
            for source in group.sources {
                read(source, args, &mut seen, Seen::print)?;
            }
            continue;
        }
        let kept: Vec<anyhow::Result<Seen>> = group
            .sources
            .par_iter()
            .map(|source| {
                let mut kept = Seen::default();
                read(source, args, &mut kept, |_| Ok(())).map(|()| kept)
            })
            .collect();
        for kept in kept {
            seen.add(kept?)?;
        }
    }
    if seen.foreign > 0 {
        terminal::note(&format!(
            "{} in the folders were written by no tool that is known",
            files(seen.foreign)
        ));
    }
    if seen.values == 0 && seen.unread == 0 {
        bail!("No output of a known tool; `vmlab import --list` shows them, --as names one");
    }
    Ok(if seen.unread > 0 { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}

/// What has been read so far.
#[derive(Default)]
struct Seen {
    values: usize,
    unread: usize,
    /// Files in folders that hold no log.
    foreign: usize,
    /// Whether `output` is JSON, in which nothing stands for colours.
    json: bool,
    /// What is to be printed of it.
    output: String,
    /// What is to be said beside that, behind it.
    notes: Vec<String>,
}

impl Seen {
    /// Adds and prints what was seen apart.
    fn add(&mut self, other: Self) -> anyhow::Result<()> {
        self.values += other.values;
        self.unread += other.unread;
        self.foreign += other.foreign;
        self.output = other.output;
        self.notes = other.notes;
        self.print()
    }

    fn print(&mut self) -> anyhow::Result<()> {
        let printed = if self.json {
            terminal::print_bytes(self.output.as_bytes())
        } else {
            terminal::print(&self.output)
        };
        self.output.clear();
        self.notes.drain(..).for_each(|note| terminal::note(&note));
        printed
    }
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// Reads `source`, and calls `full` at the end and whenever there is enough to
/// print.
fn read(
    source: &Source,
    args: &ImportArgs,
    seen: &mut Seen,
    full: impl Fn(&mut Seen) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let text = match source.text()? {
        Text::Log(text) => text,
        Text::Binary if source.named => bail!("{} is no text", source.name),
        Text::Binary => {
            seen.foreign += 1;
            return Ok(());
        }
    };
    let mut found = false;
    logs::visit(
        &text,
        args.tool.as_ref().map(|tool| tool.0),
        |log| shown(source, args, log),
        |shown| {
            let (values, unread, text) = shown?;
            found = true;
            seen.values += values;
            seen.unread += unread;
            seen.output.push_str(&text);
            // A log may hold a million runs.
            if seen.output.len() < PRINTED_AT_ONCE { Ok(()) } else { full(seen) }
        },
    )?;
    if !found && source.named {
        seen.unread += 1;
        let tool = logs::recognise(&text).into_iter().find(|(_, score)| *score >= logs::SURE);
        seen.notes.push(match tool {
            Some((tool, _)) => format!("{}: no result in the output of {}", source.name, tool.name),
            None => format!("{}: no tool is recognised; --as TOOL names it", source.name),
        });
    } else if !found {
        seen.foreign += 1;
    }
    full(seen)
}

/// How many values a run has, how many lines of it were not read, and what is
/// printed of it.
fn shown(
    source: &Source,
    args: &ImportArgs,
    mut log: Log,
) -> anyhow::Result<(usize, usize, String)> {
    for (key, label) in source.labels.iter().chain(&args.labels) {
        for value in &mut log.values {
            value.labels = value.labels.with(key.as_str(), label.as_str());
        }
    }
    let mut text = String::new();
    if args.json {
        json(source, &log, &mut text)?;
    } else {
        table(source, &log, &mut text);
    }
    Ok((log.values.len(), log.unread.len(), text))
}

// ---- For people ----

fn list() -> String {
    let widest = logs::TOOLS.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for tool in logs::TOOLS {
        push(&mut text, format_args!("{:widest$}  {}", tool.name, tool.about));
    }
    text
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String does not fail");
}

fn table(source: &Source, log: &Log, text: &mut String) {
    let version = log.version.as_deref().map(|version| format!(" {version}"));
    push(text, format_args!("{}: {}{}", source.name, log.tool, version.unwrap_or_default()));
    let last_line = log.values.iter().map(|value| value.line).max().unwrap_or(0);
    let lines = last_line.to_string().len();
    let metrics = log.values.iter().map(|value| value.metric.len()).max().unwrap_or(0);
    for value in &log.values {
        let shown = Unit::from(&*value.unit).show(value.value);
        write!(text, "  {:>lines$}  {:metrics$}  {shown}", value.line, value.metric)
            .expect("writing to a String does not fail");
        for (index, (key, label)) in value.labels.iter().enumerate() {
            let gap = if index == 0 { "  " } else { " " };
            text.extend([gap, key, "=", label]);
        }
        text.push('\n');
    }
    for unread in &log.unread {
        push(
            text,
            format_args!(
                "{}:{}: not read, {}: {}",
                source.name, unread.line, unread.why, unread.text
            ),
        );
    }
}

// ---- For programs ----

const NOT_SAID: &str = "Cannot say a value as JSON";

/// What the lines of all values of a run begin with.
#[derive(Serialize)]
struct Head<'a> {
    file: &'a str,
    tool: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
}

#[derive(Serialize)]
struct UnreadLine<'a> {
    file: &'a str,
    tool: &'a str,
    line: usize,
    unread: &'a str,
    why: &'a str,
}

fn json(source: &Source, log: &Log, text: &mut String) -> anyhow::Result<()> {
    let head = Head { file: &source.name, tool: log.tool, version: log.version.as_deref() };
    let head = serde_json::to_string(&head).context(NOT_SAID)?;
    // Members of one object: said once for the million values that a log may
    // hold.
    let head = head.strip_suffix('}').context(NOT_SAID)?;
    let mut members = Vec::new();
    for value in &log.values {
        members.clear();
        serde_json::to_writer(&mut members, value).context(NOT_SAID)?;
        let members = std::str::from_utf8(&members).context(NOT_SAID)?;
        text.extend([head, ",", members.strip_prefix('{').context(NOT_SAID)?, "\n"]);
    }
    for unread in &log.unread {
        let line = UnreadLine {
            file: &source.name,
            tool: log.tool,
            line: unread.line,
            unread: &unread.text,
            why: &unread.why,
        };
        text.extend([&*serde_json::to_string(&line).context(NOT_SAID)?, "\n"]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_tools_are_checked() {
        assert_eq!(parse_label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(
            parse_label("a").is_err() && parse_label("=b").is_err() && parse_label("a=").is_err()
        );
        assert_eq!(parse_tool("fio").unwrap().0.name, "fio");
        assert!(parse_tool("foi").unwrap_err().contains("hackbench, "));
    }

    #[test]
    fn values_are_one_json_object_each() {
        let source = Source::of_text("log");
        let found = logs::read("Running with 1*40 (== 40) tasks.\nTime: 1.250\n", None);
        let mut text = String::new();
        json(&source, &found[0], &mut text).unwrap();
        let value: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(value["metric"], "time");
        assert_eq!(value["value"], 1.25);
        assert_eq!(value["better"], "lower");
        assert_eq!(value["line"], 2);
        assert_eq!(value["labels"]["groups"], "1");
        text.clear();
        table(&source, &found[0], &mut text);
        assert!(text.contains("  2  time  1.250 s  groups=1 tasks=40\n"));
    }
}
