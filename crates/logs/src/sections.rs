//! Where in a log which tool's output begins.
//!
//! Every tool names its [`Signature`](super::sign::Signature)s: words that its output
//! holds, in the order in which they are printed. One pass finds them all ([`scan`]); from one tool's sign to
//! the next tool's reaches a section, and a sign that a run prints once begins
//! the tool's next run.

use std::collections::VecDeque;
use std::ops::Range;

use super::bare::bare;
use super::prefix::without_prefix;
use super::scan::{Hit, ScanResult, scan, sign};
use super::section::{Section, SectionEnd};
use super::sign::{STRONG, SignPosition};
use super::text::LogText;
use super::{Log, TOOLS, Tool, between, left, pieces};

/// A section while it grows.
struct OpenSection {
    tool: usize,
    start: usize,
    start_line: usize,
    /// The last sign in print order that was seen.
    last_sign: usize,
    last_line_start: usize,
    score: u32,
    /// What was read of its lines before `start`.
    begun: Option<Box<Log>>,
    /// See [`Section::failed_before`].
    failed_before: bool,
}

impl OpenSection {
    fn closed(self, text: &str, end: usize, behind: Option<SectionEnd>) -> Section<'_> {
        Section {
            tool: &TOOLS[self.tool],
            text: LogText::at(&text[self.start..end], self.start_line),
            begun: self.begun,
            score: self.score,
            failed_before: self.failed_before,
            end: behind,
        }
    }
}

/// A search for sections: what must be known of the text before.
pub(super) struct SectionSearch {
    /// The only tool looked for; then all of the text belongs to it.
    only: Option<usize>,
    open: Option<OpenSection>,
    /// Whether there was any sign.
    found: bool,
    /// Up to here the text was searched.
    scanned_to: usize,
    lines_before: usize,
    /// Documents are searched backwards for their begin: altogether not more
    /// often than a few times all of the text. So many bytes are left.
    backwards: usize,
    /// From here on the text is of no run that is sure, and the number of that line.
    unowned_from: usize,
    unowned_line: usize,
}

/// The place of a line that is no more in the text.
const GONE: usize = usize::MAX - 1;

impl SectionSearch {
    /// One for all tools, or for `only` one.
    pub(super) fn begin(only: Option<&Tool>) -> Self {
        let only = only.and_then(|only| TOOLS.iter().position(|tool| tool.name == only.name));
        let open = only.map(|tool| OpenSection {
            tool,
            start: 0,
            start_line: 1,
            last_sign: 0,
            last_line_start: usize::MAX,
            score: STRONG,
            begun: None,
            failed_before: false,
        });
        Self {
            only,
            found: open.is_some(),
            open,
            scanned_to: 0,
            lines_before: 0,
            backwards: 0,
            unowned_from: 0,
            unowned_line: 1,
        }
    }

    /// Reads what can be read of a long open run though it goes on in lines to come:
    /// up to the last line at which its reader knows nothing of those before. Returns how
    /// much of `text` is read, of which the last `added` bytes are new.
    pub(super) fn read_ahead(&mut self, text: &str, added: usize) -> usize {
        let Some(open) = self.open.as_mut().filter(|open| open.score >= STRONG) else { return 0 };
        let tool = &TOOLS[open.tool];
        let end = pieces::last_begin(tool, text, text.len().saturating_sub(added));
        if end > 0 {
            let read = LogText::at(&text[..end], open.start_line);
            let log = open.begun.get_or_insert_with(|| Box::new(Log::new(tool.name)));
            log.read(tool, read);
            log.clear_labels();
            open.start_line += memchr::memchr_iter(b'\n', &text.as_bytes()[..end]).count();
            self.forget(end);
        }
        end
    }

    /// What `tool` says of a failure in the text up to `end` that is of no run.
    fn unowned(&mut self, text: &str, end: usize, tool: &'static Tool) -> Option<Box<Log>> {
        let unowned = text.get(self.unowned_from..end)?;
        // Signs that are not sure may begin again and again.
        self.backwards = self.backwards.checked_sub(unowned.len())?;
        let (unowned, mut log) = (LogText::at(unowned, self.unowned_line), Log::new(tool.name));
        between::find_before(tool, unowned, &mut log);
        left::tell_before(unowned, &mut log);
        (!log.failed.is_empty() || !log.unread.is_empty()).then(|| Box::new(log))
    }

    /// The text now begins so much later.
    fn forget(&mut self, bytes: usize) {
        self.scanned_to -= bytes;
        (self.unowned_from, self.unowned_line) = match self.unowned_from.checked_sub(bytes) {
            Some(from) => (from, self.unowned_line),
            // All up to here was looked through.
            None => (self.scanned_to, self.lines_before + 1),
        };
        if let Some(open) = &mut self.open {
            open.start = open.start.saturating_sub(bytes);
            if open.last_line_start < GONE {
                open.last_line_start = open.last_line_start.checked_sub(bytes).unwrap_or(GONE);
            }
        }
    }
}

/// The sections of a text, in its order.
pub(super) struct Sections<'a> {
    text: &'a str,
    /// Whether the text ends where it ends, or goes on.
    is_last: bool,
    search: SectionSearch,
    /// What was searched ahead.
    scanned: VecDeque<ScanResult>,
    /// How many hits of the first part are dealt with.
    hits_done: usize,
}

impl<'a> Sections<'a> {
    /// Those of `text`, or the one of the tool `only`.
    pub(super) fn new(text: &'a str, only: Option<&Tool>) -> Self {
        Self::resumed(text, SectionSearch::begin(only), true)
    }

    /// Those of a text of which a beginning was searched; if it is not the last, all of
    /// its lines are whole, and the section that it ends in is not given.
    pub(super) fn resumed(text: &'a str, mut search: SectionSearch, is_last: bool) -> Self {
        search.backwards += 4 * (text.len() - search.scanned_to);
        Self { text, is_last, search, scanned: VecDeque::new(), hits_done: 0 }
    }

    /// How much of the text is needed no more once all its sections were given, and the
    /// search that goes on behind that.
    pub(super) fn interrupted(mut self) -> (usize, SectionSearch) {
        let needless = self.search.open.as_ref().map_or(0, |open| open.start);
        self.search.forget(needless);
        (needless, self.search)
    }

    /// The next ones, which altogether have at least so many bytes, or all that
    /// are left: none at the end.
    pub(super) fn next_batch(&mut self, bytes: usize) -> Vec<Section<'a>> {
        let mut batch = Batch { sections: Vec::new(), bytes: 0 };
        while batch.bytes < bytes {
            let Some(hits) = self.next_line() else {
                if !self.is_last {
                    break;
                }
                if let Some(open) = self.search.open.take() {
                    batch.push(open.closed(self.text, self.text.len(), None));
                }
                if !std::mem::replace(&mut self.search.found, true) {
                    batch.sections.extend(bare(self.text));
                }
                break;
            };
            self.read_line(hits, &mut batch);
        }
        batch.sections
    }

    /// The signs of the next line that has some, as places in the first part
    /// that was searched; none at the end.
    fn next_line(&mut self) -> Option<Range<usize>> {
        loop {
            if let Some(scanned) = self.scanned.front() {
                let left = &scanned.hits[self.hits_done..];
                if let Some(first) = left.first() {
                    let same = |hit: &&Hit| hit.line_start == first.line_start;
                    let begin = self.hits_done;
                    self.hits_done += left.iter().take_while(same).count();
                    return Some(begin..self.hits_done);
                }
                self.search.lines_before += scanned.lines;
                self.hits_done = 0;
                self.scanned.pop_front();
            } else if self.search.scanned_to < self.text.len() {
                let (scanned, end) = scan(self.text, self.search.scanned_to);
                self.scanned.extend(scanned);
                self.search.scanned_to = end;
            } else {
                return None;
            }
        }
    }

    /// Looks at the signs of a line, each of which can end a section.
    fn read_line(&mut self, hits: Range<usize>, batch: &mut Batch<'a>) {
        let (text, bytes) = (self.text, self.text.as_bytes());
        for at in hits {
            let hit = self.scanned[0].hits[at];
            let Hit { owner, line_start, line, .. } = hit;
            let (tool, index) = owner;
            let sign = sign(owner);
            if self.search.only.is_some_and(|only| only != tool) {
                continue;
            }
            if let Some(open) = &self.search.open {
                let same = open.tool == tool;
                // What was seen before says nothing new, and others' weak signs
                // count nothing inside a section.
                let seen = same && !sign.opens && index <= open.last_sign && open.score >= STRONG;
                let weak = !same && open.score >= STRONG && sign.weight < STRONG;
                if seen || weak {
                    continue;
                }
            }
            if !sign.check.is_none_or(|check| check(hit.line_of(text))) {
                continue;
            }
            self.search.found = true;
            let continues = self.search.open.as_ref().is_some_and(|open| {
                open.tool == tool
                    && (!sign.opens
                        || index > open.last_sign
                        || open.last_line_start == usize::MAX
                        || line_start == open.last_line_start)
            });
            match &mut self.search.open {
                Some(open) if continues => {
                    open.last_sign = open.last_sign.max(index);
                    open.last_line_start = line_start;
                    open.score = open.score.saturating_add(sign.weight);
                }
                // On one line, the first strong sign decides.
                Some(open) if open.last_line_start == line_start && open.score >= STRONG => {}
                _ => {
                    let start = if sign.place == SignPosition::Json {
                        let floor = self.search.open.as_ref().map_or(0, |open| open.start);
                        document_start(text, floor, line_start, &mut self.search.backwards)
                    } else {
                        line_start
                    };
                    let above = memchr::memchr_iter(b'\n', &bytes[start..line_start]).count();
                    let start_line = self.search.lines_before + line - above;
                    let next = &TOOLS[tool];
                    let before = self.search.open.take();
                    let owned = before.as_ref().is_some_and(|open| open.score >= STRONG);
                    if let Some(open) = before {
                        let end = SectionEnd { line: start_line, next };
                        batch.push(open.closed(text, start, Some(end)));
                    }
                    let begun = if owned { None } else { self.search.unowned(text, start, next) };
                    if owned || sign.weight >= STRONG {
                        (self.search.unowned_from, self.search.unowned_line) = (start, start_line);
                    }
                    self.search.open = Some(OpenSection {
                        tool,
                        start,
                        start_line,
                        last_sign: index,
                        last_line_start: line_start,
                        score: sign.weight,
                        failed_before: begun.as_ref().is_some_and(|log| !log.failed.is_empty()),
                        begun,
                    });
                }
            }
        }
    }
}

/// Sections that are read at once.
struct Batch<'a> {
    sections: Vec<Section<'a>>,
    /// How long they are.
    bytes: usize,
}

impl<'a> Batch<'a> {
    fn push(&mut self, section: Section<'a>) {
        self.bytes += section.text.raw().len();
        self.sections.push(section);
    }
}

/// Where the document begins that the line at `line_start` is in: at the last
/// line that begins with a bracket without being indented more than any line
/// between. `budget` is how many bytes may still be gone through.
fn document_start(text: &str, floor: usize, line_start: usize, budget: &mut usize) -> usize {
    let mut end = line_start;
    // The line itself first: a document of one line.
    let own = text[line_start..].lines().next().unwrap_or_default();
    let body = without_prefix(own);
    let own_indent = body.len() - body.trim_start_matches([' ', '\t']).len();
    if own_indent == 0 && body.starts_with(['{', '[']) {
        return line_start;
    }
    let mut best = line_start;
    let mut least = own_indent;
    while end > floor && *budget > 0 {
        let start = memchr::memrchr(b'\n', &text.as_bytes()[..end - 1]).map_or(0, |at| at + 1);
        *budget = budget.saturating_sub(end - start);
        let body = without_prefix(&text[start..end]);
        let trimmed = body.trim_start_matches([' ', '\t']);
        let indent = body.len() - trimmed.len();
        if trimmed.starts_with(['{', '[']) && indent <= least {
            best = start;
            least = indent;
            if indent == 0 {
                break;
            }
        } else if indent < least && !trimmed.trim_end().is_empty() && !trimmed.starts_with('"') {
            break;
        }
        end = start;
    }
    best
}
