//! Go's benchmark format: `key: value` lines that hold for what follows,
//! `Unit` lines, and `BenchmarkName/key=value-8  N  value unit  value unit`.
//!
//! What Go's own reader accepts and refuses is accepted and refused here; a
//! line that is none of the three is not an error, so that the output of `go test`
//! can be read as it is.
//!
//! Source: <https://go.dev/design/14313-benchmark-format> and the reference
//! documentation of `golang.org/x/perf/benchfmt`.

use std::io::{self, Read};

use record::BetterDirection;

use super::lines::for_each_line;
use super::number::{float, is_integer};
use crate::data::{Data, MeasuredQuantity};
use crate::units;

/// How a unit was written, and the metrics that its values belong to.
struct BenchfmtUnit {
    written: Vec<u8>,
    factor: f64,
    metric: u32,
    /// Go leaves a value that scaling does not change (zero, infinity) in the
    /// unit in which it was written, and so in another table.
    unscaled: Option<u32>,
}

struct BenchfmtReader<'a> {
    data: &'a mut Data,
    input: u32,
    /// The configuration that holds now, in Go's order of its keys.
    config: Vec<(String, String)>,
    /// Its number; none where the configuration has changed.
    context: Option<u32>,
    units: Vec<BenchfmtUnit>,
}

/// Reads what `start` and then `reader` hold as the input `name`.
pub(super) fn read(
    data: &mut Data,
    name: &str,
    start: &[u8],
    reader: &mut dyn Read,
) -> io::Result<()> {
    let input = data.begin(name);
    let mut state =
        BenchfmtReader { data, input, config: Vec::new(), context: None, units: Vec::new() };
    for_each_line(start, reader, |number, line| state.line(number, line))
}

/// True if `start` looks like the format: a benchmark's line with a count and
/// a value, or a line of units.
pub(super) fn recognise(start: &[u8]) -> bool {
    let mut lines = start.split(|byte| *byte == b'\n');
    lines.any(|line| {
        let Some(rest) = line.strip_prefix(b"Benchmark") else { return false };
        let mut fields = BenchfmtFields { rest };
        let count = fields.nth(1);
        let value = fields.next();
        count.is_some_and(is_integer) && value.is_some_and(|value| float(value).is_some())
    })
}

impl BenchfmtReader<'_> {
    fn line(&mut self, number: usize, line: &[u8]) {
        if let Some(rest) = line.strip_prefix(b"Benchmark") {
            if let Err(problem) = self.benchmark(rest) {
                self.data.problem(number, problem);
            }
            return;
        }
        if line.first() == Some(&b'U') {
            let mut fields = BenchfmtFields { rest: line };
            if fields.next() == Some(b"Unit") {
                self.unit(number, fields);
                return;
            }
        }
        if let Some((key, value)) = key_value(line) {
            let at = self.config.iter().position(|(known, _)| known == key);
            match (at, value.is_empty()) {
                // Go moves the last key into the gap; its tables show that.
                (Some(at), true) => drop(self.config.swap_remove(at)),
                (None, true) => return,
                (Some(at), false) => self.config[at].1 = value.into_owned(),
                (None, false) => self.config.push((key.to_owned(), value.into_owned())),
            }
            self.context = None;
        }
    }

    /// A result; `line` is what stands behind `Benchmark`.
    fn benchmark(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let mut fields = BenchfmtFields { rest: line };
        // A name at the very beginning of the line, even an empty one.
        let name = fields.first();
        // `go test -v` prints a name alone when a benchmark begins.
        if fields.rest.is_empty() && name.len() == line.len() {
            return Ok(());
        }
        let count = fields.next().ok_or("missing iteration count")?;
        if !is_integer(count) {
            return Err("parsing iteration count: invalid syntax");
        }
        // A line with an error counts for nothing, so it is read before any
        // of it is kept.
        let mut values: [(f64, &[u8]); 16] = [(0.0, &[]); 16];
        let mut more = Vec::new();
        let mut filled = 0;
        while let Some(field) = fields.next() {
            let value = float(field).ok_or("parsing measurement: invalid syntax")?;
            let unit = fields.next().ok_or("missing units")?;
            match values.get_mut(filled) {
                Some(place) => *place = (value, unit),
                None => more.push((value, unit)),
            }
            filled += 1;
        }
        if filled == 0 {
            return Err("missing measurements");
        }
        let context = match self.context {
            Some(context) => context,
            None => {
                let labels = self.config.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                *self.context.insert(self.data.context(labels))
            }
        };
        let name = self.data.words.add(name);
        let setting = self.data.setting(self.input, context, name);
        let mut cursor = self.data.first_series(setting);
        let first = values[..filled.min(values.len())].iter();
        for (index, (value, unit)) in first.chain(&more).enumerate() {
            let (metric, value) = self.scaled(index, *value, unit);
            self.data.add_at(&mut cursor, setting, metric, value);
        }
        Ok(())
    }

    /// A value in tidied units; its unit most often is that of the line before
    /// at the same place.
    fn scaled(&mut self, index: usize, value: f64, written: &[u8]) -> (u32, f64) {
        let here = |unit: &BenchfmtUnit| unit.written == written;
        let known = match self.units.get(index).is_some_and(here) {
            true => Some(index),
            false => self.units.iter().position(here),
        };
        let at = known.unwrap_or_else(|| {
            let text = String::from_utf8_lossy(written).into_owned();
            let (tidied, factor) = units::tidy(&text);
            let metric = self.data.metric(metric(&tidied, &tidied, &text));
            self.units.push(BenchfmtUnit {
                written: written.to_vec(),
                factor,
                metric,
                unscaled: None,
            });
            self.units.len() - 1
        });
        let unit = &mut self.units[at];
        let scaled = value * unit.factor;
        if scaled != value || unit.factor == 1.0 {
            return (unit.metric, scaled);
        }
        let unscaled = *unit.unscaled.get_or_insert_with(|| {
            let text = String::from_utf8_lossy(written);
            self.data.metric(metric(&units::tidy(&text).0, &text, &text))
        });
        (unscaled, value)
    }

    /// `Unit ns/op better=lower assume=exact`.
    fn unit(&mut self, number: usize, mut fields: BenchfmtFields<'_>) {
        let Some(unit) = fields.next() else {
            self.data.problem(number, "missing unit");
            return;
        };
        let unit = String::from_utf8_lossy(unit).into_owned();
        let tidied = units::tidy(&unit).0;
        for field in fields {
            let field = String::from_utf8_lossy(field);
            match field.split_once('=') {
                Some((key, value)) if !key.is_empty() => {
                    if let Err(known) = self.data.declare(&tidied, key, value) {
                        let text = format!("metadata {key} of unit {unit} already set to {known}");
                        self.data.problem(number, text);
                    }
                }
                _ => self.data.problem(number, "expected key=value"),
            }
        }
    }
}

/// A metric of this format, `shown` in Go's tables.
fn metric(tidied: &str, shown: &str, written: &str) -> MeasuredQuantity {
    let (unit, better, kind) = units::of_benchfmt(tidied);
    MeasuredQuantity {
        name: tidied.to_owned(),
        unit,
        written: written.to_owned(),
        shown: shown.to_owned(),
        better,
        kind,
        exact: false,
    }
}

impl Data {
    /// Notes what a `Unit` line says; `Err` holds what was said before.
    fn declare(&mut self, tidied: &str, key: &str, value: &str) -> Result<(), String> {
        let place = (tidied.to_owned(), key.to_owned());
        if let Some(known) = self.declared.get(&place) {
            return if known == value { Ok(()) } else { Err(known.clone()) };
        }
        self.declared.insert(place, value.to_owned());
        Ok(())
    }

    /// Gives all metrics what the `Unit` lines of all inputs say of them.
    pub(crate) fn apply_declared(&mut self) {
        for metric in &mut self.metrics {
            let said = |key: &str| {
                let place = (metric.name.clone(), key.to_owned());
                self.declared.get(&place).map(String::as_str)
            };
            match said("better") {
                Some("higher") => metric.better = Some(BetterDirection::Higher),
                Some("lower") => metric.better = Some(BetterDirection::Lower),
                _ => {}
            }
            metric.exact |= said("assume") == Some("exact");
        }
    }
}

/// `key: value`: the key begins with a small letter and holds neither space
/// nor capital; at least one space or tab before a value.
fn key_value(line: &[u8]) -> Option<(&str, std::borrow::Cow<'_, str>)> {
    // Whatever is no configuration is most often seen at its first byte.
    let first = *line.first()?;
    if first.is_ascii() && !first.is_ascii_lowercase() {
        return None;
    }
    let colon = line.iter().skip(1).position(|byte| *byte == b':')? + 1;
    let key = str::from_utf8(&line[..colon]).ok()?;
    if !key.starts_with(char::is_lowercase)
        || key.contains(|c: char| c.is_whitespace() || c.is_uppercase())
    {
        return None;
    }
    let rest = &line[colon + 1..];
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    (rest.is_empty() || blanks > 0).then(|| (key, String::from_utf8_lossy(&rest[blanks..])))
}

/// Fields of a line, parted by white space.
struct BenchfmtFields<'a> {
    rest: &'a [u8],
}

impl<'a> BenchfmtFields<'a> {
    /// What stands before the first white space, which may be nothing.
    fn first(&mut self) -> &'a [u8] {
        let (mut at, mut width) = (0, 0);
        while let Some(byte) = self.rest.get(at) {
            if !byte.is_ascii_graphic() {
                width = space_at(&self.rest[at..]);
                if width > 0 {
                    break;
                }
            }
            at += 1;
        }
        let field = &self.rest[..at];
        self.rest = &self.rest[(at + width).min(self.rest.len())..];
        self.skip_spaces();
        field
    }

    fn skip_spaces(&mut self) {
        loop {
            match space_at(self.rest) {
                0 => break,
                width => self.rest = &self.rest[width..],
            }
        }
    }
}

impl<'a> Iterator for BenchfmtFields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.first();
        // Only a line that begins with space has an empty first field.
        (!field.is_empty() || !self.rest.is_empty()).then_some(field)
    }
}

/// Bytes of the white space that `text` begins with; 0 if it begins with none.
#[inline]
fn space_at(text: &[u8]) -> usize {
    match text.first() {
        Some(b' ' | b'\t'..=b'\r') => 1,
        Some(first) if !first.is_ascii() => wide_space_at(text),
        _ => 0,
    }
}

#[cold]
fn wide_space_at(text: &[u8]) -> usize {
    let start = &text[..text.len().min(4)];
    let valid = match str::from_utf8(start) {
        Ok(valid) => valid,
        Err(error) => str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default(),
    };
    valid.chars().next().filter(|c| c.is_whitespace()).map_or(0, char::len_utf8)
}
