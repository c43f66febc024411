//! iozone: its table, its throughput mode and its Excel reports.
//!
//! Source: iozone 3.x `iozone.c`: every column ends where its heading does, so
//! that operations that were not asked for leave blanks.

use record::{BetterDirection, MetricKind};

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "iozone",
    about: "iozone 3: the table, throughput mode (-t), Excel reports (-R)",
    signs: &[
        opens("Iozone: Performance Test of File I/O"),
        part("Command line used:").when(|line| line.holds("iozone")),
        part("KB  reclen"),
        part("kB  reclen"),
        part("kB reclen"),
        part("KB reclen"),
        part("Children see throughput for"),
        part("\"Writer report\""),
    ],
    failures: &[
        failed("Error writing block"),
        failed("Error reading block"),
        failed("Error in file: "),
        failed("Can not open temp file"),
        failed("iozone: interrupted"),
        failed("exiting iozone"),
    ],
    read,
};

/// The table's columns behind size and record length: operation, and where its
/// heading ends.
struct IozoneColumns {
    /// Where the heading of the sizes ends.
    size_end: usize,
    operations: Vec<(&'static str, usize)>,
}

/// What was measured where: operation, file and record size in KiB, and the
/// value's bits.
type IozoneCell = (&'static str, u64, u64, u64);

/// What a run's table says, which its reports repeat.
#[derive(Default)]
struct RunHeading {
    cells: Vec<IozoneCell>,
    sorted: bool,
}

impl RunHeading {
    fn insert(&mut self, cell: IozoneCell) {
        if self.cells.len() < super::MAX_VALUES {
            self.cells.push(cell);
            self.sorted = false;
        }
    }

    /// Before anything is looked for.
    fn sort(&mut self) {
        if !self.sorted {
            self.cells.sort_unstable();
            self.sorted = true;
        }
    }

    fn contains(&self, cell: &IozoneCell) -> bool {
        self.cells.binary_search(cell).is_ok()
    }
}

/// The unit of the numbers: what to multiply with, and of what kind.
#[derive(Clone, Copy)]
enum Output {
    BytesPerS(f64),
    OpsPerS,
    SecondsPerOp(f64),
}

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut columns: Option<IozoneColumns> = None;
    let mut output = Output::BytesPerS(1024.0);
    let mut report: Option<ExcelReport<'_>> = None;
    // What the run's table says, which its reports repeat.
    let mut said = RunHeading::default();
    for line in text.lines() {
        // Most lines are a table's.
        if let Some(columns) =
            columns.as_ref().filter(|_| line.text.starts_with(|c: char| c.is_ascii_digit()))
        {
            row(line, columns, output, &mut said, log);
        } else if let Some(rest) = line.after("Version $Revision:") {
            log.version = rest.word(0).map(str::to_owned);
        } else if let Some(rest) = line.after("Output is in") {
            output = unit(rest.text).unwrap_or(output);
        } else if let Some(rest) = line.after("\"Output is in") {
            output = unit(rest.text).unwrap_or(output);
        } else if let Some(found) = heading(line) {
            columns = Some(found);
            report = None;
            said = RunHeading::default();
        } else if let Some(name) =
            line.text.strip_prefix('"').and_then(|text| text.strip_suffix(" report\""))
        {
            columns = None;
            said.sort();
            report = operation_of_report(name)
                .map(|operation| ExcelReport { operation, record: Vec::new() });
        } else if let Some(report) = report.as_mut().filter(|_| line.text.starts_with('"')) {
            report.line(line, output, &said, log);
        } else if let Some((name, value)) = line
            .split("=")
            .filter(|_| line.text.holds(" throughput ") || line.text.holds("Min xfer"))
        {
            throughput(name, value, line, log);
        }
    }
}

/// `kBytes/sec`, `ops/sec`, `microseconds per operation`.
fn unit(words: &str) -> Option<Output> {
    let words = words.trim_matches(['"', ' ', '.']);
    let lower = words.to_ascii_lowercase();
    Some(match lower.as_str() {
        "kbytes/sec" => Output::BytesPerS(1024.0),
        "mbytes/sec" => Output::BytesPerS(1024.0 * 1024.0),
        "ops/sec" => Output::OpsPerS,
        "microseconds per operation" | "microseconds/op" => Output::SecondsPerOp(1e-6),
        "nanoseconds per operation" => Output::SecondsPerOp(1e-9),
        _ => return None,
    })
}

fn heading(line: TextLine<'_>) -> Option<IozoneColumns> {
    if !line.text.starts_with(['k', 'K']) {
        return None;
    }
    let mut words = line.words();
    let (size, record) = (words.next()?, words.next()?);
    if !size.eq_ignore_ascii_case("kB") || record != "reclen" {
        return None;
    }
    let ends = word_ends(line);
    let mut seen: ShortList<&str> = ShortList::new();
    let mut operations = Vec::new();
    for (word, end) in words.zip(&ends[2..]) {
        let before = seen.iter().filter(|name| **name == word).count();
        seen.push(word);
        let operation = match (word, before) {
            ("write", 0) => "write",
            ("write", 1) => "random-write",
            ("rewrite", 0) => "rewrite",
            ("rewrite", 1) => "record-rewrite",
            ("read", 0) => "read",
            ("read", 1) => "random-read",
            ("read", 2) => "backward-read",
            ("read", 3) => "stride-read",
            ("reread", 0) => "reread",
            ("fwrite", 0) => "fwrite",
            ("frewrite", 0) => "frewrite",
            ("fread", 0) => "fread",
            ("freread", 0) => "freread",
            _ => return None,
        };
        operations.push((operation, *end));
    }
    Some(IozoneColumns { size_end: ends[0], operations })
}

/// Where the words end, in columns of the line.
fn word_ends(line: TextLine<'_>) -> Vec<usize> {
    let start = line.text.as_ptr() as usize;
    line.words().map(|word| line.indent + word.as_ptr() as usize - start + word.len()).collect()
}

fn row(
    line: TextLine<'_>,
    columns: &IozoneColumns,
    output: Output,
    said: &mut RunHeading,
    log: &mut Log,
) {
    let words: ShortList<&str> = line.all_words();
    let values: Option<ShortList<f64>> = words.iter().map(|word| line.number(word)).collect();
    let whole = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let Some(values) = values.filter(|_| words.len() > 2 && words.iter().take(2).all(whole)) else {
        // Words behind a table end it; a number that was cut off is reported.
        if words.len() > 2 && words.iter().filter(|word| whole(word)).count() + 1 >= words.len() {
            log.unread(line, "not all are numbers");
        }
        return;
    };
    let cells = if values.len() == columns.operations.len() + 2 {
        Some((0..columns.operations.len()).collect())
    } else {
        by_position(&word_ends(line), columns)
    };
    let Some(cells) =
        cells.filter(|_| !line.is_open() || values.len() == columns.operations.len() + 2)
    else {
        return log.unread(line, "the numbers stand below no headings");
    };
    let (size, record) = (words[0], words[1]);
    log.label("size-kib", size);
    log.label("record-kib", record);
    for (cell, value) in cells.iter().zip(&values[2..]) {
        let operation = columns.operations[*cell].0;
        said.insert(the_cell(operation, size, record, *value));
        note(operation, *value, output, line, log);
    }
    log.clear_labels();
}

/// Which columns the cells of a row with blanks stand in.
fn by_position(ends: &[usize], columns: &IozoneColumns) -> Option<Vec<usize>> {
    if ends.len() > columns.operations.len() + 2 {
        return None;
    }
    let shift = columns.size_end as i64 - ends[0] as i64;
    if shift.abs() > 8 {
        return None;
    }
    let mut cells: Vec<usize> = Vec::new();
    for end in &ends[2..] {
        let end = *end as i64 + shift;
        let (cell, distance) = columns
            .operations
            .iter()
            .enumerate()
            .map(|(cell, (_, heading))| (cell, (*heading as i64 - end).abs()))
            .min_by_key(|(_, distance)| *distance)?;
        if distance > 3 || cells.last().is_some_and(|last| *last >= cell) {
            return None;
        }
        cells.push(cell);
    }
    Some(cells)
}

fn note(operation: &str, value: f64, output: Output, line: TextLine<'_>, log: &mut Log) {
    let noted = match output {
        Output::BytesPerS(factor) => log.rate("rate", number::scaled(value, factor), "B/s", line),
        Output::OpsPerS => log.rate("ops-per-s", value, "1/s", line),
        Output::SecondsPerOp(factor) => {
            log.time("time-per-op", number::scaled(value, factor), line)
        }
    };
    noted.label("op", operation);
}

/// One of the Excel reports: a row of record sizes, then rows that begin with
/// a file size.
struct ExcelReport<'a> {
    operation: &'static str,
    record: Vec<&'a str>,
}

impl<'a> ExcelReport<'a> {
    fn line(&mut self, line: TextLine<'a>, output: Output, said: &RunHeading, log: &mut Log) {
        let words: ShortList<&'a str> = line.all_words();
        let unquote = |word: &'a str| {
            word.strip_prefix('"')
                .and_then(|word| word.strip_suffix('"'))
                .filter(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()))
        };
        if let Some(sizes) = words.iter().map(|word| unquote(word)).collect::<Option<Vec<_>>>()
            && sizes.len() + usize::from(sizes.len() == 1) > 1
        {
            if !line.is_open() {
                self.record = sizes;
            }
            return;
        }
        let Some(size) = unquote(words[0]) else { return };
        let values: Option<ShortList<f64>> =
            words[1..].iter().map(|word| line.number(word)).collect();
        let Some(values) = values.filter(|values| values.len() <= self.record.len()) else {
            return log.unread(line, "not a number a record size");
        };
        log.label("size-kib", size);
        for (record, value) in self.record.iter().zip(values) {
            // Zero: this record is larger than the file.
            let said = said.contains(&the_cell(self.operation, size, record, value));
            if value != 0.0 && !said {
                log.label("record-kib", record);
                note(self.operation, value, output, line, log);
            }
        }
        log.clear_labels();
    }
}

/// A cell of the table, to know it again in a report.
fn the_cell(operation: &'static str, size: &str, record: &str, value: f64) -> IozoneCell {
    let kib = |word: &str| word.parse().unwrap_or(u64::MAX);
    (operation, kib(size), kib(record), value.to_bits())
}

fn operation_of_report(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "writer" => "write",
        "re-writer" => "rewrite",
        "reader" => "read",
        "re-reader" => "reread",
        "random read" => "random-read",
        "random write" => "random-write",
        "backward read" => "backward-read",
        "record rewrite" => "record-rewrite",
        "stride read" => "stride-read",
        "fwrite" => "fwrite",
        "re-fwrite" => "frewrite",
        "fread" => "fread",
        "re-fread" => "freread",
        _ => return None,
    })
}

/// `Children see throughput for  4 initial writers  = 123.45 kB/sec` and the
/// lines below it.
fn throughput(name: &str, value: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let mut words = value.words();
    let (Some(word), unit) = (words.next(), words.next().unwrap_or_default()) else {
        return log.unread(line, "no number");
    };
    let lower = unit.to_ascii_lowercase();
    let (scale, per_s) = match lower.as_str() {
        "kb/sec" => (1024.0, "B/s"),
        "ops/sec" => (1.0, "1/s"),
        "usec/op" | "us/op" => (1e-6, "s"),
        "kb" => (1024.0, "B"),
        _ => return log.unread(line, "no unit that iozone has"),
    };
    if line.may_be_cut(unit) && lower != "kb/sec" && lower != "ops/sec" {
        return log.unread(line, "the line ends early");
    }
    let Some(value) = value.number(word) else { return log.unread(line, "no number") };
    let mut words = name.ascii_words();
    let who = words.next().unwrap_or_default();
    match who {
        "Children" | "Parent" => {
            // see throughput for 4 initial writers
            let rest: ShortList<&str> = words.skip(3).collect();
            let [count, operation @ ..] = rest.as_slice() else { return };
            log.label("threads", *count);
            log.label("op", slug(&operation.join(" ")));
        }
        "Min" | "Max" | "Avg" => {}
        _ => return,
    }
    let metric = match (who, per_s) {
        ("Children", _) => "throughput-children",
        ("Parent", _) => "throughput-parent",
        ("Min", "B") => "transfer-min",
        ("Min", _) => "throughput-min",
        ("Max", _) => "throughput-max",
        _ => "throughput-avg",
    };
    match per_s {
        "B" => {
            log.push(metric, number::scaled(value, scale), "B", None, MetricKind::Count, line);
        }
        "s" => drop(log.push(
            metric,
            number::scaled(value, scale),
            "s",
            Some(BetterDirection::Lower),
            MetricKind::Time,
            line,
        )),
        unit => drop(log.rate(metric, number::scaled(value, scale), unit, line)),
    }
}
