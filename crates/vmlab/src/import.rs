//! `vmlab import`: reads the logs of benchmark tools that vmlab did not run.

mod files;
mod unpacked;
mod utf16;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use logs::{Log, LogProblem, Tool};
use rayon::prelude::*;
use record::{ImportedValue, LogValue, Name};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use crate::exit::FINDINGS;
use crate::progress::Spinner;
use crate::terminal;
use files::{LogSource, SourceContent};

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

/// Bytes of a large log of no result that are searched for its tool's signs.
const RECOGNISED_BYTES: usize = 1 << 20;

/// Bytes of a log of no known tool that are searched for words of failure: a run that
/// failed at once says little.
const FAILURE_BYTES: usize = 1 << 16;

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
    /// Print JSON: one object a value, and one for each line that was not read or
    /// says that a run failed.
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
    // Where results go to the terminal, they are the progress.
    let watched = sources.len() > 1 && !io::stdout().is_terminal();
    let mut seen =
        ImportTotals { spinner: watched.then(Spinner::start), ..ImportTotals::default() };
    let mut sources_read = 0;
    for group in files::groups(&sources) {
        if let Some(spinner) = &seen.spinner {
            spinner.say(&format!("{sources_read} of {} are read", files(sources.len())));
        }
        sources_read += group.sources.len();
        if group.bytes < SHARED_BYTES || group.sources.len() == 1 {
            for source in group.sources {
                read(source, args, &mut seen, ImportTotals::print)?;
            }
            continue;
        }
        let kept: Vec<anyhow::Result<ImportTotals>> = group
            .sources
            .par_iter()
            .map(|source| {
                let mut kept = ImportTotals::default();
                read(source, args, &mut kept, |_| Ok(())).map(|()| kept)
            })
            .collect();
        for kept in kept {
            seen.add(kept?)?;
        }
    }
    seen.spinner = None;
    if seen.foreign > 0 {
        let were = if seen.foreign == 1 { "was" } else { "were" };
        terminal::note(&format!(
            "{} in the folders {were} written by no tool that is known",
            files(seen.foreign)
        ));
    }
    if seen.failed > 0 {
        let runs =
            if seen.failed == 1 { "run".to_owned() } else { format!("{} runs", seen.failed) };
        terminal::note(&format!("{runs} failed: what was printed of values proves nothing"));
    }
    if seen.values == 0 && seen.unread == 0 && seen.failed == 0 {
        match &args.tool {
            Some(tool) => bail!("No output of {}", tool.0.name),
            None => {
                bail!("No output of a known tool; `vmlab import --list` shows them, --as names one")
            }
        }
    }
    let findings = seen.unread + seen.failed > 0;
    Ok(if findings { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}

/// What has been read so far.
#[derive(Default)]
struct ImportTotals {
    values: usize,
    unread: usize,
    /// Runs that failed.
    failed: usize,
    /// Files in folders that hold no log.
    foreign: usize,
    /// What is to be printed of it.
    output: String,
    /// What is to be said beside that, behind it.
    notes: Vec<String>,
    /// Says how much is read, where somebody watches.
    spinner: Option<Spinner>,
}

impl ImportTotals {
    /// Adds and prints what was seen apart.
    fn add(&mut self, other: Self) -> anyhow::Result<()> {
        self.values += other.values;
        self.unread += other.unread;
        self.failed += other.failed;
        self.foreign += other.foreign;
        self.output = other.output;
        self.notes = other.notes;
        self.print()
    }

    fn print(&mut self) -> anyhow::Result<()> {
        // No escape code is in it: a log's own were taken off.
        let printed = terminal::print_bytes(self.output.as_bytes());
        self.output.clear();
        for note in self.notes.drain(..) {
            match &self.spinner {
                Some(spinner) => spinner.note(&note),
                None => terminal::note(&note),
            }
        }
        printed
    }
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// Reads `source`, and calls `full` at the end and whenever there is enough to
/// print.
fn read(
    source: &LogSource,
    args: &ImportArgs,
    seen: &mut ImportTotals,
    full: impl Fn(&mut ImportTotals) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let tool = args.tool.as_ref().map(|tool| tool.0);
    let mut found = false;
    let shape = |log| shown(source, args, log);
    let take = |shown: anyhow::Result<ShownRun>| {
        let shown = shown?;
        found = true;
        seen.values += shown.values;
        seen.unread += shown.unread;
        seen.failed += usize::from(shown.failed);
        seen.output.push_str(&shown.text);
        // A log may hold a million runs.
        if seen.output.len() < PRINTED_AT_ONCE { Ok(()) } else { full(seen) }
    };
    // What tells the tool of a log in which nothing is found.
    let mut begin = None;
    match source.open(tool.is_some())? {
        SourceContent::Parts(mut parts) => {
            let more = |text: &mut String| {
                let more = parts.more(text);
                let head = text.floor_char_boundary(text.len().min(RECOGNISED_BYTES));
                begin.get_or_insert_with(|| text[..head].to_owned());
                more
            };
            logs::visit_parts(more, tool, shape, take)?;
        }
        SourceContent::Log(text) => {
            logs::visit(&text, tool, shape, take)?;
            begin = Some(text);
        }
        SourceContent::Binary if source.named => {
            bail!("{} is no text; with --as TOOL it is read all the same", source.name)
        }
        SourceContent::Binary => {
            seen.foreign += 1;
            return Ok(());
        }
    }
    if !found {
        let begin = begin.unwrap_or_default();
        // In a folder, what is not the named tool's is another's.
        let known = match tool {
            None => sure_tool(&begin),
            named => named.filter(|_| source.named),
        };
        let why = match known {
            // A run that was killed leaves no more.
            Some(tool) => {
                Some(format!("{}: no result in the output of {}", source.name, tool.name))
            }
            None if tool.is_none() => failure_alone(source, &begin),
            None => None,
        };
        let unknown = || format!("{}: no tool is recognised; --as TOOL names it", source.name);
        let why = why.or_else(|| source.named.then(unknown));
        seen.unread += usize::from(why.is_some());
        seen.foreign += usize::from(why.is_none());
        seen.notes.extend(why);
    }
    full(seen)
}

/// What is said of a log of no known tool that begins so, if words of failure stand there:
/// a run that failed at once may leave nothing else.
fn failure_alone(source: &LogSource, begin: &str) -> Option<String> {
    let begin = &begin[..begin.floor_char_boundary(begin.len().min(FAILURE_BYTES))];
    let (tools, failed) = logs::first_failure(begin)?;
    let (name, tools) = (&source.name, tools.join(" or "));
    let LogProblem { line, text, .. } = failed;
    Some(format!("{name}:{line}: a failure of {tools}? --as TOOL reads it: {text}"))
}

/// The tool that surely wrote a log of which nothing could be read, by its beginning.
fn sure_tool(begin: &str) -> Option<&'static Tool> {
    let sure = logs::recognise(begin).into_iter().find(|(_, score)| *score >= logs::SURE);
    sure.map(|(tool, _)| tool)
}

/// A run as it is printed.
struct ShownRun {
    values: usize,
    /// Lines that were not read.
    unread: usize,
    failed: bool,
    text: String,
}

fn shown(source: &LogSource, args: &ImportArgs, mut log: Log) -> anyhow::Result<ShownRun> {
    let given: Vec<(Name, Name)> = source
        .labels
        .iter()
        .chain(&args.labels)
        .map(|(key, label)| (Name::from(key.as_str()), Name::from(label.as_str())))
        .collect();
    if !given.is_empty() {
        LogValue::relabel(&mut log.values, |labels| {
            given
                .iter()
                .fold(labels.clone(), |with, (key, label)| with.with(key.clone(), label.clone()))
        });
    }
    let mut text = String::new();
    if args.json {
        json(source, &log, &mut text)?;
    } else {
        table(source, &log, &mut text);
    }
    let failed = !log.failed.is_empty();
    Ok(ShownRun { values: log.values.len(), unread: log.unread.len(), failed, text })
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
    push_text(text, line);
    text.push('\n');
}

fn push_text(text: &mut String, said: std::fmt::Arguments<'_>) {
    text.write_fmt(said).expect("writing to a String does not fail");
}

fn table(source: &LogSource, log: &Log, text: &mut String) {
    let version = log.version.as_deref().map(|version| format!(" {version}"));
    push(text, format_args!("{}: {}{}", source.name, log.tool, version.unwrap_or_default()));
    let last_line = log.values.iter().map(|value| value.line).max().unwrap_or(0);
    let lines = last_line.to_string().len();
    let metrics = log.values.iter().map(|value| value.metric.len()).max().unwrap_or(0);
    // Neighbours share lines and labels.
    let (mut number, mut of_line) = (String::new(), 0);
    let (mut labels, mut of_labels) = (String::new(), 0);
    for value in &log.values {
        if of_line != value.line || number.is_empty() {
            number.clear();
            push_text(&mut number, format_args!("  {:>lines$}  ", value.line));
            of_line = value.line;
        }
        if of_labels != value.labels.address() {
            labels.clear();
            for (index, (key, label)) in value.labels.iter().enumerate() {
                let gap = if index == 0 { "  " } else { " " };
                labels.extend([gap, key, "=", label]);
            }
            of_labels = value.labels.address();
        }
        text.extend([&*number, &value.metric]);
        text.extend(std::iter::repeat_n(' ', metrics + 2 - value.metric.len()));
        record::show_value(&value.unit, value.value, text);
        text.extend([&*labels, "\n"]);
    }
    for failed in &log.failed {
        push(
            text,
            format_args!(
                "{}:{}: the run failed, {}: {}",
                source.name, failed.line, failed.why, failed.text
            ),
        );
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

/// The fields that all values of a run share.
#[derive(Serialize, JsonSchema)]
struct ValuePrefix<'a> {
    file: &'a str,
    tool: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    /// `failed`, if the run did: its values prove nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
}

/// A line that says that a run failed.
#[derive(Serialize, JsonSchema)]
struct FailedLine<'a> {
    file: &'a str,
    tool: &'a str,
    line: usize,
    failed: &'a str,
    why: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct UnreadLine<'a> {
    file: &'a str,
    tool: &'a str,
    line: usize,
    unread: &'a str,
    why: &'a str,
}

/// A line of what `--json` prints.
pub(crate) struct ImportLine;

impl JsonSchema for ImportLine {
    fn schema_name() -> Cow<'static, str> {
        "Line".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut value = ImportedValue::json_schema(generator);
        let head = ValuePrefix::json_schema(generator);
        for key in ["properties", "required"] {
            match (value.get_mut(key), head.get(key)) {
                (Some(Value::Object(all)), Some(Value::Object(more))) => all.extend(more.clone()),
                (Some(Value::Array(all)), Some(Value::Array(more))) => all.extend(more.clone()),
                _ => {}
            }
        }
        let failed = generator.subschema_for::<FailedLine>();
        let unread = generator.subschema_for::<UnreadLine>();
        json_schema!({ "anyOf": [value, failed, unread] })
    }
}

fn json(source: &LogSource, log: &Log, text: &mut String) -> anyhow::Result<()> {
    let head = ValuePrefix {
        file: &source.name,
        tool: log.tool,
        version: log.version.as_deref(),
        run: (!log.failed.is_empty()).then_some("failed"),
    };
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
    for failed in &log.failed {
        let line = FailedLine {
            file: &source.name,
            tool: log.tool,
            line: failed.line,
            failed: &failed.text,
            why: &failed.why,
        };
        text.extend([&*serde_json::to_string(&line).context(NOT_SAID)?, "\n"]);
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
        let source = LogSource::of_text("log");
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
