//! Readers of the logs of benchmark tools: any version's output, wherever it
//! was kept, whatever surrounds it.
//!
//! [`read`] finds which tools wrote a log, splits it into their runs and reads
//! each. Of every value it gives the metric, the base unit, the better
//! direction, labels and the line; of what it could not read, the line and the
//! reason. A reader is liberal in what surrounds an output and strict about
//! values: no value is better than a wrong one.
//!
//! # To add a tool
//!
//! One file, `src/<tool>.rs`, with
//!
//! ```ignore
//! pub(crate) const TOOL: Tool = Tool {
//!     name: "hackbench",
//!     about: "rt-tests' hackbench and its ancestors",
//!     signs: &[opens("Running in "), opens("Running with "), hint("Time:")],
//!     failures: &[failed("(error: ").within()],
//!     read,
//! };
//!
//! pub(crate) fn read(text: Text<'_>, log: &mut Log) {
//!     for line in text.lines() {
//!         let Some(time) = line.after("Time:") else { continue };
//!         match time.decimals(time.text, 3) {
//!             Some(seconds) => drop(log.time("time", seconds, line)),
//!             None => log.unread(line, "no time in seconds"),
//!         }
//!     }
//! }
//! ```
//!
//! and one row of [`TOOLS`]. Signs stand in the order in which they are
//! printed: `opens` what is printed once a run (a second one begins a new
//! [`Log`]), `part` what only this tool prints, any number of times, `hint`
//! what others print as well, `json` a key that marks a JSON document. Each
//! can be narrowed: `.within()` a line, `.when(|line| ...)` of a shape. At a line
//! with an `.anew()` sign `read` knows nothing of the lines before, so that long
//! runs are read in pieces.
//! `failures` are the words with which the tool says that a run failed
//! (`failure`). `read` gets one run: from its first sign up to the next sign of another
//! tool, so foreign lines can follow and must be passed over. A row of a table
//! that was begun and makes no sense is `unread`.
//!
//! Outputs of the real tool go to `testdata/<tool>-<version>/NAME.log`; the
//! tests read every such file, compare with `NAME.records` (`UPDATE_EXPECT=1`
//! writes it), cut it off and mutilate it.
//!
//! The last line of a log without a newline may be cut inside a number:
//! `TextLine::number` refuses the number at its end, `TextLine::decimals` takes it
//! if all its decimals are there.

mod bare;
mod between;
mod failure;
mod json;
mod left;
mod margin;
mod names;
mod near;
mod number;
mod parts;
mod pieces;
mod prefix;
mod scan;
mod section;
mod sections;
mod sign;
mod text;

mod ab;
mod coremark;
mod cyclictest;
mod dbench;
mod fio;
mod go_bench;
mod hackbench;
mod hyperfine;
mod interrupts;
mod iozone;
mod iperf;
mod kernbench;
mod lmbench;
mod memtier;
mod mpstat;
mod netperf;
mod npb;
mod ntttcp;
mod perf_bench;
mod perf_stat;
mod pgbench;
mod redis_benchmark;
mod schbench;
mod sockperf;
mod stream;
mod stress_ng;
mod sysbench;
mod time;
mod turbostat;
mod unixbench;
mod uperf;
mod vmstat;
mod will_it_scale;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rayon::prelude::*;
use record::{BetterDirection, Histogram, Labels, LogMetric, LogValue, MetricKind};

use between::{LeadingFailures, SectionRead};
use failure::FailureWords;
pub(crate) use names::NameText;
pub use parts::visit_parts;
use section::Section;
use sections::Sections;
use sign::Signature;
pub use stress_ng::warnings as stress_ng_warnings;
pub(crate) use text::{Cut, LogText, TextLine};

/// Words or numbers of a line, of which the usual few need no allocation.
pub(crate) type ShortList<T> = smallvec::SmallVec<[T; 16]>;

/// A tool whose output can be read.
pub struct Tool {
    /// Name, as `--as` takes it.
    pub name: &'static str,
    /// Which program and which of its forms.
    pub about: &'static str,
    signs: &'static [Signature],
    failures: &'static [FailureWords],
    read: fn(LogText<'_>, &mut Log),
}

/// Every tool, in the order of the documentation.
pub static TOOLS: &[Tool] = &[
    hackbench::TOOL,
    perf_bench::TOOL,
    kernbench::TOOL,
    time::TOOL,
    cyclictest::TOOL,
    stream::TOOL,
    npb::TOOL,
    iozone::TOOL,
    fio::TOOL,
    netperf::TOOL,
    ab::TOOL,
    unixbench::TOOL,
    sysbench::TOOL,
    stress_ng::TOOL,
    dbench::TOOL,
    dbench::TBENCH,
    iperf::IPERF3,
    iperf::IPERF2,
    sockperf::TOOL,
    perf_stat::TOOL,
    perf_stat::KVM,
    schbench::TOOL,
    lmbench::TOOL,
    redis_benchmark::TOOL,
    memtier::TOOL,
    pgbench::TOOL,
    coremark::TOOL,
    will_it_scale::TOOL,
    uperf::TOOL,
    ntttcp::TOOL,
    go_bench::TOOL,
    hyperfine::TOOL,
    mpstat::TOOL,
    vmstat::TOOL,
    turbostat::TOOL,
    interrupts::TOOL,
];

/// What one run of a tool printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// The tool's name, one of [`TOOLS`].
    pub tool: &'static str,
    /// Its version, if it says so.
    pub version: Option<String>,
    /// What could be read.
    pub values: Vec<LogValue>,
    /// What looked like a result and could not be read.
    pub unread: Vec<LogProblem>,
    /// The lines that say that the run failed: what it has for values proves
    /// nothing.
    pub failed: Vec<LogProblem>,
    /// The whole distributions behind its quantiles, of logs read for them
    /// ([`read_whole`]): they are most of a log, and no value.
    pub distributions: Vec<LatencyHistogram>,
    /// Whether the tool's last words are there, of tools that have some of which
    /// a reader knows: what is below could still have said that the run failed.
    pub ended: bool,
    /// Whether distributions are kept.
    whole: bool,
    /// Labels that all further values get.
    labels: Labels,
    /// At most this many values are kept.
    room: usize,
    /// The first value that had to be left out.
    left_out: Option<Box<LogProblem>>,
}

/// How often each latency came, as a tool counts it.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyHistogram {
    /// Its buckets, of the name of the metric whose values are its quantiles.
    pub histogram: Histogram,
    /// What tells it from others of that name.
    pub labels: Labels,
    /// The line that it begins in, from 1.
    pub line: usize,
}

/// A line that could not be read, or that says that its run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogProblem {
    /// Its number, from 1.
    pub line: usize,
    /// Its beginning, at most 200 characters.
    pub text: String,
    /// The reason.
    pub why: String,
}

impl LogProblem {
    fn new(line: usize, text: &str, why: impl Into<String>) -> Self {
        // Most lines are shorter, which to count their characters would not tell sooner.
        let end = text.len() > MAX_TEXT;
        let end = end.then(|| text.char_indices().nth(MAX_TEXT)).flatten();
        let text = end.map_or(text, |(end, _)| &text[..end]);
        Self { line, text: text.to_owned(), why: why.into() }
    }
}

/// Characters of a line that are kept.
const MAX_TEXT: usize = 200;

/// Problems beyond this number are not reported.
const MAX_UNREAD: usize = 1000;

/// More values than these are no benchmark's results: memory is bounded.
const MAX_VALUES: usize = 1_000_000;

/// Most runs that have a value have some more.
const FEW_VALUES: usize = 8;

/// Few runs have so many values; those that do may have any number.
const MANY_VALUES: usize = 1 << 15;

/// Runs that are read at once have so many bytes or little more, or are a single
/// one: what is read of them is in memory until they are taken. A log that has
/// no more is read sooner than other threads have begun.
const BATCH_BYTES: usize = 1 << 20;

impl Log {
    /// A log of a tool, nothing read yet.
    pub(crate) fn new(tool: &'static str) -> Self {
        Self {
            tool,
            version: None,
            values: Vec::new(),
            unread: Vec::new(),
            failed: Vec::new(),
            distributions: Vec::new(),
            ended: false,
            whole: false,
            labels: Labels::default(),
            room: MAX_VALUES,
            left_out: None,
        }
    }

    /// Gives all further values a label; an empty value takes it away.
    pub(crate) fn label(&mut self, key: impl NameText, value: impl AsRef<str>) {
        self.labels = names::labelled(&self.labels, key, value.as_ref());
    }

    /// Further values have no labels.
    pub(crate) fn clear_labels(&mut self) {
        self.labels = Labels::default();
    }

    /// A duration or a mean latency in seconds, lower is better.
    pub(crate) fn time(
        &mut self,
        metric: impl NameText,
        value: f64,
        at: impl LogPosition,
    ) -> NotedValue<'_> {
        self.push(metric, value, "s", Some(BetterDirection::Lower), MetricKind::Time, at)
    }

    /// Work by time in `unit` (`1/s`, `B/s`), higher is better.
    pub(crate) fn rate(
        &mut self,
        metric: impl NameText,
        value: f64,
        unit: impl NameText,
        at: impl LogPosition,
    ) -> NotedValue<'_> {
        self.push(metric, value, unit, Some(BetterDirection::Higher), MetricKind::Rate, at)
    }

    /// A quantile or an extreme of latencies in seconds, lower is better.
    pub(crate) fn quantile(
        &mut self,
        metric: impl NameText,
        value: f64,
        at: impl LogPosition,
    ) -> NotedValue<'_> {
        self.push(metric, value, "s", Some(BetterDirection::Lower), MetricKind::Quantile, at)
    }

    /// How many, of which neither more nor fewer are better.
    pub(crate) fn count(
        &mut self,
        metric: impl NameText,
        value: f64,
        at: impl LogPosition,
    ) -> NotedValue<'_> {
        self.push(metric, value, "count", None, MetricKind::Count, at)
    }

    /// The most memory that was resident, told in KiB: less is better.
    pub(crate) fn max_resident(&mut self, kib: f64, at: impl LogPosition) {
        let better = Some(BetterDirection::Lower);
        self.push("max-resident", kib * 1024.0, "B", better, MetricKind::Count, at);
    }

    /// Any value, in a base unit. One that isn't finite, or whose name has no
    /// letter, is none. A time, a quantile or a rate below zero is reported: no
    /// benchmark measures that.
    pub(crate) fn push(
        &mut self,
        metric: impl NameText,
        value: f64,
        unit: impl NameText,
        better: Option<BetterDirection>,
        kind: MetricKind,
        at: impl LogPosition,
    ) -> NotedValue<'_> {
        let measured = metric
            .with_name(|metric| unit.with_name(|unit| names::metric(metric, unit, better, kind)));
        self.push_measured(measured, value, at.line_number())
    }

    /// As [`Log::push`], of a column's metric that is said once for all of its values.
    pub(crate) fn push_of(
        &mut self,
        metric: &Arc<LogMetric>,
        value: f64,
        at: impl LogPosition,
    ) -> NotedValue<'_> {
        self.push_measured(Arc::clone(metric), value, at.line_number())
    }

    fn push_measured(
        &mut self,
        measured: Arc<LogMetric>,
        value: f64,
        line: usize,
    ) -> NotedValue<'_> {
        if !value.is_finite() || measured.metric.is_empty() {
            return NotedValue(None);
        }
        if value < 0.0 && measured.kind != MetricKind::Count {
            self.unread_at(line, &format!("{} = {value}", measured.metric), "below zero");
            return NotedValue(None);
        }
        if self.values.len() >= self.room {
            self.leave_out(&measured.metric, line);
            return NotedValue(None);
        }
        if self.values.len() == self.values.capacity() {
            self.make_room(1);
        }
        let labels = self.labels.clone();
        self.values.push(LogValue { measured, labels, value: number::tidy(value), line });
        NotedValue(self.values.last_mut())
    }

    /// Notes the first value for which there is no room. Apart from
    /// [`Log::push`], so that this stays small.
    #[cold]
    fn leave_out(&mut self, metric: &str, line: usize) {
        self.left_out.get_or_insert_with(|| left_out(metric, line));
    }

    /// What is read of lines behind those of this log.
    fn behind(&self) -> Self {
        Self { room: self.room - self.values.len(), whole: self.whole, ..Self::new(self.tool) }
    }

    /// Makes room for so many more values. To grow again and again would copy all of them
    /// each time: where there are many, room for all that are kept is made at once, as
    /// memory that is not used in the end is never touched. Apart from [`Log::push`], so
    /// that this stays small.
    #[cold]
    fn make_room(&mut self, more: usize) {
        if self.values.len() + more < MANY_VALUES {
            self.values.reserve(more.max(FEW_VALUES));
        } else {
            self.values.reserve_exact(self.room.saturating_sub(self.values.len()).max(more));
        }
    }

    /// Adds what was read of the lines behind.
    fn append(&mut self, mut behind: Self) {
        self.version = behind.version.or_else(|| self.version.take());
        let room = self.room - self.values.len();
        if self.left_out.is_none() {
            let first_out =
                behind.values.get(room).map(|value| left_out(&value.metric, value.line));
            self.left_out = first_out.or(behind.left_out);
        }
        behind.values.truncate(room);
        if self.values.capacity() - self.values.len() < behind.values.len() {
            self.make_room(behind.values.len());
        }
        self.values.append(&mut behind.values);
        behind.unread.truncate(MAX_UNREAD - self.unread.len());
        self.unread.append(&mut behind.unread);
        behind.failed.truncate(MAX_UNREAD.saturating_sub(self.failed.len()));
        self.failed.append(&mut behind.failed);
        self.distributions.append(&mut behind.distributions);
        self.ended |= behind.ended;
    }

    /// Whether distributions are kept, so that they are worth reading.
    pub(crate) fn keeps_distributions(&self) -> bool {
        self.whole
    }

    /// Notes a distribution with the labels that values get now, if they are kept.
    pub(crate) fn distribution(&mut self, histogram: Histogram, line: usize) {
        if self.whole {
            let labels = self.labels.clone();
            self.distributions.push(LatencyHistogram { histogram, labels, line });
        }
    }

    /// Notes a line that could not be read.
    pub(crate) fn unread(&mut self, line: TextLine<'_>, why: impl Into<String>) {
        self.unread_at(line.number, line.text, why);
    }

    /// As [`Log::unread`], of a line's number and text.
    pub(crate) fn unread_at(&mut self, line: usize, text: &str, why: impl Into<String>) {
        if self.unread.len() < MAX_UNREAD {
            self.unread.push(LogProblem::new(line, text, why));
        }
    }
}

impl Log {
    /// Notes a line that says that the run failed.
    pub(crate) fn failed(&mut self, line: TextLine<'_>, why: impl Into<String>) {
        self.failed_at(line.number, line.text, why);
    }

    /// As [`Log::failed`], of a line's number and text.
    pub(crate) fn failed_at(&mut self, line: usize, text: &str, why: impl Into<String>) {
        let known = || self.failed.iter().any(|failed| failed.line == line);
        if self.failed.len() < MAX_UNREAD && !known() {
            self.failed.push(LogProblem::new(line, text, why));
        }
    }
}

fn left_out(metric: &str, line: usize) -> Box<LogProblem> {
    let why = format!("more than {MAX_VALUES} values: the rest is not kept");
    Box::new(LogProblem { line, text: metric.to_owned(), why })
}

/// A value that was just noted, to be described further.
pub(crate) struct NotedValue<'a>(Option<&'a mut LogValue>);

impl NotedValue<'_> {
    /// Adds a label, unless it says nothing.
    pub(crate) fn label(mut self, key: impl NameText, value: impl AsRef<str>) -> Self {
        let value = value.as_ref();
        if let Some(imported) = &mut self.0
            && !value.is_empty()
        {
            imported.labels = names::labelled(&imported.labels, key, value);
        }
        self
    }

    /// Gives it another unit than its kind has.
    pub(crate) fn unit(mut self, unit: impl NameText) -> Self {
        if let Some(imported) = &mut self.0 {
            let LogMetric { metric, better, kind, .. } = &*imported.measured;
            imported.measured = names::metric(metric, unit, *better, *kind);
        }
        self
    }

    /// Says which direction is better.
    pub(crate) fn better(mut self, better: Option<BetterDirection>) -> Self {
        if let Some(imported) = &mut self.0 {
            let LogMetric { metric, unit, kind, .. } = &*imported.measured;
            imported.measured = names::metric(metric, unit, better, *kind);
        }
        self
    }
}

/// Where a value stands.
pub(crate) trait LogPosition {
    /// The line's number.
    fn line_number(&self) -> usize;
}

impl LogPosition for TextLine<'_> {
    fn line_number(&self) -> usize {
        self.number
    }
}

impl LogPosition for usize {
    fn line_number(&self) -> usize {
        *self
    }
}

/// The tool called `name`.
#[must_use]
pub fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The least score, as [`recognise`] gives it, of a tool that is sure.
pub const SURE: u32 = sign::STRONG;

/// The tools that wrote `text`, the likeliest first, with scores: 10 for each
/// sign that the tool alone prints, 1 for one that others print too.
#[must_use]
pub fn recognise(text: &str) -> Vec<(&'static Tool, u32)> {
    let text = text::as_shown(text);
    let mut scores: Vec<(&'static Tool, u32)> = Vec::new();
    let mut sections = Sections::new(&text, None);
    loop {
        let batch = sections.next_batch(BATCH_BYTES);
        if batch.is_empty() {
            break;
        }
        for section in batch {
            match scores.iter_mut().find(|(tool, _)| tool.name == section.tool.name) {
                Some((_, score)) => *score = score.saturating_add(section.score),
                None => scores.push((section.tool, section.score)),
            }
        }
    }
    scores.sort_by_key(|(_, score)| std::cmp::Reverse(*score));
    scores
}

/// Reads all runs of all tools that `text` holds, or of the one that wrote it
/// if that is known. Empty if no tool is recognised.
///
/// Every value's `line` counts from 1 in `text`.
#[must_use]
pub fn read(text: &str, tool: Option<&Tool>) -> Vec<Log> {
    let mut logs = Vec::new();
    let Ok(()) = visit(
        text,
        tool,
        |log| log,
        |log| {
            logs.push(log);
            Ok::<(), std::convert::Infallible>(())
        },
    );
    logs
}

/// As [`read`], of what one run of `tool` printed, with the distributions that it holds.
#[must_use]
pub fn read_whole(text: &str, tool: &Tool) -> Vec<Log> {
    let text = text::as_shown(text);
    let mut sections = Sections::new(&text, Some(tool));
    let (mut logs, mut before) = (Vec::new(), LeadingFailures::default());
    loop {
        let batch = sections.next_batch(BATCH_BYTES);
        if batch.is_empty() {
            return logs;
        }
        logs.extend(batch.into_iter().filter_map(|section| {
            let log = Log { whole: true, ..Log::new(section.tool.name) };
            section.read_into(log).decide(&mut before)
        }));
    }
}

/// The lines of `text`, which is no log but what `tool` said beside one, that say that its
/// run failed.
#[must_use]
pub fn failures(tool: &'static Tool, text: &str) -> Vec<LogProblem> {
    let mut log = Log::new(tool.name);
    failure::find(tool, LogText::new(text), &mut log);
    log.failed
}

/// The first line of a log of no tool that is known in which words of failure stand, and the
/// tools that say these: of a run that failed at once nothing else may be left.
#[must_use]
pub fn first_failure(text: &str) -> Option<(Vec<&'static str>, LogProblem)> {
    failure::first(&text::as_shown(text))
}

/// As [`read`], of a log that may hold more runs than fit into memory. `shape`
/// makes of each what is needed of it, in several threads if the log is large;
/// `take` gets that in turn, in the log's order, whatever the threads.
///
/// # Errors
/// The first of `take`, which ends the reading.
pub fn visit<T: Send, E>(
    text: &str,
    tool: Option<&Tool>,
    shape: impl Fn(Log) -> T + Sync,
    mut take: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let text = text::as_shown(text);
    let is_short = text.len() <= BATCH_BYTES;
    let mut before = LeadingFailures::default();
    read_sections(&mut Sections::new(&text, tool), is_short, &mut before, &shape, &mut take)
}

/// Gives `take` what `shape` makes of all sections, which are read in this thread if
/// they are so short. `before` are words of failure before the first of them, and then
/// before the next.
fn read_sections<T: Send, E>(
    sections: &mut Sections<'_>,
    is_short: bool,
    before: &mut LeadingFailures,
    shape: &(impl Fn(Log) -> T + Sync),
    take: &mut impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let mut batch = sections.next_batch(BATCH_BYTES);
    while !batch.is_empty() {
        if is_short {
            let read = batch.into_iter().map(Section::read);
            read.filter_map(|read| read.decide(before)).map(shape).try_for_each(&mut *take)?;
            batch = sections.next_batch(BATCH_BYTES);
        } else {
            let (shaped, next) = rayon::join(
                || {
                    let read: Vec<SectionRead> = batch.into_par_iter().map(Section::read).collect();
                    let logs: Vec<Log> =
                        read.into_iter().filter_map(|read| read.decide(before)).collect();
                    logs.into_par_iter().map(shape).collect::<Vec<T>>()
                },
                || sections.next_batch(BATCH_BYTES),
            );
            shaped.into_iter().try_for_each(&mut *take)?;
            batch = next;
        }
    }
    Ok(())
}

impl Log {
    /// Reads further lines of its run.
    fn read(&mut self, tool: &'static Tool, text: LogText<'_>) {
        pieces::read(tool, text, self);
        failure::find(tool, text, self);
        left::tell_zeros(text, self);
    }
}

impl Section<'_> {
    /// What its run printed.
    fn read(mut self) -> SectionRead {
        let begun = self.begun.take();
        let log = begun.map_or_else(|| Log::new(self.tool.name), |begun| *begun);
        self.read_into(log)
    }

    /// As [`Section::read`], behind what `log` has.
    fn read_into(self, mut log: Log) -> SectionRead {
        let (values, failed_before) = (log.values.len(), self.failed_before);
        log.read(self.tool, self.text);
        if self.end.is_none() {
            left::tell_cut(self.tool, self.text, values, &mut log);
        }
        log.unread.extend(log.left_out.take().map(|unread| *unread));
        // Without a sign of its own, only what was read proves the tool.
        let proven = self.score >= sign::STRONG || !log.values.is_empty();
        let behind_results = self.behind_results(&log);
        let behind = self.end.map(|end| LeadingFailures::behind(&self, end, behind_results, &log));
        let ended = self.end.is_some() && self.has_ended(behind_results, &log);
        let same = self.end.is_some_and(|end| end.next.name == self.tool.name);
        let (last, from) = behind_results;
        let left = LogText::at(&self.text.raw()[from..], last + 1);
        left::tell_bare(left, &mut log);
        let behind = behind.unwrap_or_default();
        SectionRead { log, proven, ended, failed_before, behind, same }
    }
}
