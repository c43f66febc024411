//! Words of failure that stand beside a run: before the first heading of a log, or between
//! two runs.
//!
//! Into a file a tool's results come when it ends, what it says of errors at once: the words
//! of a run that failed stand before its heading. On a terminal they stand behind it. So
//! words behind the last value of a run and before the next one's heading may be of either:
//! they are of the next if the run before said its last words, or if another tool wrote it
//! that does not know them; of the run before if that has no results; and where that tells
//! nothing, both runs have failed, and it is said that only one of them need have.

use super::failure;
use super::section::{Section, SectionEnd};
use super::text::{Cut as _, LogText};
use super::{Log, LogProblem, Tool};

/// Tools that print headings, results and words of failure on one stream, in this order:
/// behind a heading all words are of its run.
const IN_ORDER: [&str; 5] = ["coremark", "go-bench", "npb", "stream", "stress-ng"];

/// With what a run ends that did not fail, of tools that print it last. Sources: sysbench
/// `sysbench.c`, rt-tests `hackbench.c`, dbench `dbench.c`, iozone `iozone.c`.
const LAST_WORDS: [(&str, &str); 5] = [
    ("sysbench", "execution time (avg/stddev):"),
    ("hackbench", "Time:"),
    ("dbench", "Throughput "),
    ("tbench", "Throughput "),
    ("iozone", "iozone test complete."),
];

/// Notes what `tool`, whose first run begins behind `text`, says there of a failure.
pub(super) fn find_before(tool: &'static Tool, text: LogText<'_>, log: &mut Log) {
    failure::find(tool, text, log);
    for failed in &mut log.failed {
        failed.why = format!("{} says so, before its results", tool.name);
    }
}

/// Lines with words of a run's tool that stand before its heading.
#[derive(Default)]
pub(super) struct LeadingFailures(Vec<LogProblem>);

impl LeadingFailures {
    /// Those behind the results of a run that was read, before the next run's heading: the
    /// results end with the line `last`, and behind them the text begins at `from`.
    pub(super) fn behind(
        section: &Section<'_>,
        end: SectionEnd,
        (last, from): (usize, usize),
        log: &Log,
    ) -> Self {
        if IN_ORDER.contains(&section.tool.name) && section.tool.name == end.next.name {
            return Self::default();
        }
        if section.tool.name != end.next.name {
            let mut found = Log::new(end.next.name);
            failure::find(end.next, LogText::at(&section.text.raw()[from..], last + 1), &mut found);
            return Self(found.failed);
        }
        Self(log.failed.iter().filter(|failed| failed.line > last).cloned().collect())
    }
}

/// A run that was read, and what stands behind its results.
pub(super) struct SectionRead {
    pub(super) log: Log,
    /// Whether its tool surely wrote it.
    pub(super) proven: bool,
    /// Whether it has its last words before those of failure.
    pub(super) ended: bool,
    /// Whether it failed before its heading.
    pub(super) failed_before: bool,
    /// Words of the next run's tool.
    pub(super) behind: LeadingFailures,
    /// Whether that is the same tool.
    pub(super) same: bool,
}

impl SectionRead {
    /// Decides whose the words between two runs are: `before` are those before this run,
    /// and are then those before the next.
    pub(super) fn decide(mut self, before: &mut LeadingFailures) -> Option<Log> {
        let is_before = self.failed_before || !before.0.is_empty();
        for failed in before.0.drain(..) {
            self.proven = true;
            if !self.log.failed.iter().any(|known| known.line == failed.line) {
                self.log.failed.push(failed);
            }
        }
        self.log.failed.sort_by_key(|failed| failed.line);
        let mut behind = self.behind.0;
        let is_told = |failed: &LogProblem| behind.iter().any(|told| told.line == failed.line);
        if self.same && self.ended {
            self.log.failed.retain(|failed| !is_told(failed));
        } else if self.same && self.log.values.is_empty() && !is_before {
            behind.clear();
        } else {
            for failed in &mut self.log.failed {
                if let Some(told) = behind.iter_mut().find(|told| told.line == failed.line) {
                    told.why = format!("{}: it may be the run above or below", told.why);
                    failed.why.clone_from(&told.why);
                }
            }
        }
        before.0 = behind;
        let log = self.log;
        let says_nothing = log.values.is_empty() && log.unread.is_empty() && log.failed.is_empty();
        (self.proven && !says_nothing).then_some(log)
    }
}

impl Section<'_> {
    /// The last line with a result, or the one before the first, and where the text behind
    /// it begins.
    pub(super) fn behind_results(&self, log: &Log) -> (usize, usize) {
        let values = log.values.iter().map(|value| value.line);
        let lines = values.chain(log.unread.iter().map(|unread| unread.line));
        let last = lines.max().unwrap_or(0).max(self.text.first_line() - 1);
        let raw = self.text.raw().as_bytes();
        let newlines = match self.end {
            Some(end) => end.line - self.text.first_line(),
            None => memchr::memchr_iter(b'\n', raw).count(),
        };
        // How many newlines end the lines behind it.
        let behind = (self.text.first_line() + newlines).checked_sub(last + 1);
        let from = match behind {
            Some(behind) => {
                memchr::memrchr_iter(b'\n', raw).nth(behind).map_or(0, |newline| newline + 1)
            }
            None => raw.len(),
        };
        (last, from)
    }

    /// Whether the run said its last words before it said that it failed.
    pub(super) fn has_ended(&self, (last, behind): (usize, usize), log: &Log) -> bool {
        let words = LAST_WORDS.iter().find(|(name, _)| *name == self.tool.name);
        let Some((_, words)) = words else { return log.ended };
        let first = log.failed.iter().map(|failed| failed.line).find(|line| *line > last);
        // From the last line with a result, which is before what is behind it.
        let raw = self.text.raw();
        let (from, number) = match behind.checked_sub(1) {
            Some(end) => {
                (memchr::memrchr(b'\n', &raw.as_bytes()[..end]).map_or(0, |at| at + 1), last)
            }
            None => (0, last + 1),
        };
        let lines = LogText::at(&raw[from..], number).lines();
        let mut before = lines.take_while(|line| first.is_none_or(|first| line.number < first));
        before.any(|line| line.text.holds(words))
    }
}
