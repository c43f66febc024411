//! The summary that lmbench's `make see` prints: tables of hosts.
//!
//! Source: lmbench `scripts/getsummary`, 1.9 to 3.0. A line of dashes says
//! where the columns are; headings above span lines and columns, so the names
//! are known by the table's title. A value may be missing, end in a point that
//! stands for no decimals, or in a `K`.

use super::super::number;
use super::super::{Log, ShortList, TextLine};

/// A table, by the words with which its title begins.
struct KnownTable {
    title: &'static str,
    unit: SummaryUnit,
    /// The columns' names; `mhz`, `guesses` and another table's `context-switch` are no
    /// results.
    columns: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum SummaryUnit {
    Micros,
    Nanos,
    MegabytesPerS,
}

const ARITHMETIC: &[&str] = &["add", "mul", "div", "bogo"];

const TABLES: [KnownTable; 11] = [
    KnownTable {
        title: "Processor, Processes - times in microseconds",
        unit: SummaryUnit::Micros,
        columns: &[
            "mhz",
            "null-call",
            "null-io",
            "stat",
            "open-close",
            "select",
            "signal-install",
            "signal-handle",
            "fork",
            "exec",
            "sh",
        ],
    },
    KnownTable {
        title: "Basic integer operations - times in nanoseconds",
        unit: SummaryUnit::Nanos,
        columns: &["integer-bit", "integer-add", "integer-mul", "integer-div", "integer-mod"],
    },
    KnownTable {
        title: "Basic float operations - times in nanoseconds",
        unit: SummaryUnit::Nanos,
        columns: ARITHMETIC,
    },
    KnownTable {
        title: "Basic double operations - times in nanoseconds",
        unit: SummaryUnit::Nanos,
        columns: ARITHMETIC,
    },
    KnownTable {
        title: "Context switching - times in microseconds",
        unit: SummaryUnit::Micros,
        columns: &["2p/0k", "2p/16k", "2p/64k", "8p/16k", "8p/64k", "16p/16k", "16p/64k"],
    },
    KnownTable {
        title: "*Local* Communication latencies in microseconds",
        unit: SummaryUnit::Micros,
        columns: &[
            "context-switch",
            "pipe",
            "af-unix",
            "udp",
            "rpc/udp",
            "tcp",
            "rpc/tcp",
            "tcp-connect",
        ],
    },
    KnownTable {
        title: "File & VM system latencies in microseconds",
        unit: SummaryUnit::Micros,
        columns: &[
            "0k-file-create",
            "0k-file-delete",
            "10k-file-create",
            "10k-file-delete",
            "mmap",
            "protection-fault",
            "page-fault",
            "select-100-fds",
        ],
    },
    KnownTable {
        title: "File & VM system latencies in microseconds",
        unit: SummaryUnit::Micros,
        columns: &[
            "0k-file-create",
            "0k-file-delete",
            "10k-file-create",
            "10k-file-delete",
            "mmap",
            "protection-fault",
            "page-fault",
        ],
    },
    KnownTable {
        title: "*Local* Communication bandwidths in MB/s",
        unit: SummaryUnit::MegabytesPerS,
        columns: &[
            "pipe",
            "af-unix",
            "tcp",
            "file-reread",
            "mmap-reread",
            "bcopy-libc",
            "bcopy-hand",
            "memory-read",
            "memory-write",
        ],
    },
    KnownTable {
        title: "Memory latencies in nanoseconds",
        unit: SummaryUnit::Nanos,
        columns: &["mhz", "l1", "l2", "main-memory", "random-memory", "guesses"],
    },
    KnownTable {
        title: "Memory latencies in nanoseconds",
        unit: SummaryUnit::Nanos,
        columns: &["mhz", "l1", "l2", "main-memory", "guesses"],
    },
];

/// Where in a table the reader is.
pub(super) struct SummaryTable {
    title: &'static str,
    ranges: Vec<Range>,
}

/// First column, and the one behind the last, of a run of dashes.
type Range = (usize, usize);

/// The table that a line is the title of.
pub(super) fn of_title(text: &str) -> Option<SummaryTable> {
    let known = TABLES.iter().find(|known| text.starts_with(known.title))?;
    Some(SummaryTable { title: known.title, ranges: Vec::new() })
}

impl SummaryTable {
    /// Reads a line below the title; false where the table is over.
    pub(super) fn line(&mut self, line: TextLine<'_>, log: &mut Log) -> bool {
        if line.text.is_empty() {
            return self.ranges.is_empty();
        }
        if line.text.bytes().all(|byte| byte == b'-' || byte == b' ') {
            let words: ShortList<&str> = line.all_words();
            if words.len() > 2 {
                self.ranges = words.iter().map(|word| columns_of(line, word)).collect();
            }
        } else if let [host, system, columns @ ..] = &self.ranges[..] {
            // What stands below a table is no row of it.
            let is_row = line
                .words()
                .any(|word| columns_of(line, word).0 >= system.1 && value(word).is_some());
            if is_row {
                self.row((host, system, columns), line, log);
            }
            return is_row;
        }
        true
    }

    fn row(
        &self,
        (host, system, columns): (&Range, &Range, &[Range]),
        line: TextLine<'_>,
        log: &mut Log,
    ) {
        let known = TABLES
            .iter()
            .find(|known| known.title == self.title && known.columns.len() == columns.len());
        let Some(known) = known else {
            return log.unread(line, "not the columns of this table");
        };
        let mut values: Vec<Option<&str>> = vec![None; columns.len()];
        let mut places = [Vec::new(), Vec::new()];
        for word in line.words() {
            let (start, end) = columns_of(line, word);
            if start < system.1 {
                places[usize::from(start >= host.1)].push(word);
                continue;
            }
            // Numbers stand to the right of their columns.
            let at = columns.iter().position(|(from, to)| (from + 1..=*to).contains(&end));
            // A number that ends left of its column may have lost its end.
            if line.may_be_cut(word) && at.is_none_or(|at| end != columns[at].1) {
                log.unread(line, "the line ends early");
                continue;
            }
            match at.map(|at| &mut values[at]) {
                Some(value @ None) => *value = Some(word),
                _ if known.columns.last() == Some(&"guesses") => {}
                _ => return log.unread(line, "a number stands in no column"),
            }
        }
        log.label("host", places[0].join(" "));
        log.label("system", places[1].join(" "));
        for (name, word) in known.columns.iter().zip(values) {
            let Some(word) = word.filter(|_| !["mhz", "guesses", "context-switch"].contains(name))
            else {
                continue;
            };
            match value(word) {
                Some(value) => note(known, name, value, line, log),
                None => log.unread(line, format!("no number for {name}")),
            }
        }
        log.clear_labels();
    }
}

/// Where a word of a line stands.
fn columns_of(line: TextLine<'_>, word: &str) -> (usize, usize) {
    let start = line.indent + (word.as_ptr().addr() - line.text.as_ptr().addr());
    (start, start + word.len())
}

/// `0.33`, `514.`, `16.2K`, `10.K`
fn value(word: &str) -> Option<f64> {
    let (digits, factor) = match word.strip_suffix('K') {
        Some(thousands) => (thousands, 1e3),
        None => (word, 1.0),
    };
    Some(number::parse(digits.strip_suffix('.').unwrap_or(digits))? * factor)
}

fn note(known: &KnownTable, name: &str, value: f64, line: TextLine<'_>, log: &mut Log) {
    let family = if known.title.starts_with("Basic float") {
        "float-"
    } else if known.title.starts_with("Basic double") {
        "double-"
    } else {
        ""
    };
    let switched = name.split_once('/').filter(|(processes, _)| processes.ends_with('p'));
    if let Some((processes, size)) = switched {
        let processes = processes.trim_end_matches('p');
        log.time("context-switch", value / 1e6, line)
            .label("processes", processes)
            .label("size", size);
        return;
    }
    let noted = match known.unit {
        SummaryUnit::Micros => log.time("latency", value / 1e6, line),
        SummaryUnit::Nanos => log.time("latency", value / 1e9, line),
        SummaryUnit::MegabytesPerS => log.rate("rate", number::scaled(value, 1e6), "B/s", line),
    };
    noted.label("test", format!("{family}{name}"));
}
