//! Numbers from anywhere, in memory: what was measured (metric), under which
//! settings (labels), and the values in the order in which they were read.
//!
//! A million benchmark lines must fit beside each other, so settings are
//! interned and a value costs twelve bytes until reading ends, eight behind.

use std::collections::{BTreeMap, HashMap};

use record::{BetterDirection, MetricKind};

use crate::words::{Interner, MixedMap};

/// The label that holds the input's name.
pub(crate) const FILE: &str = "file";
/// The label that holds a benchmark's name without its settings.
pub(crate) const NAME: &str = "name";
/// The label of benchfmt's suffix `-8`.
pub(crate) const GOMAXPROCS: &str = "gomaxprocs";

/// What a value measures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MeasuredQuantity {
    /// Its name, for people: `sec/op`, `time`, `latency p99`.
    pub(crate) name: String,
    /// Its unit after scaling to base units.
    pub(crate) unit: String,
    /// Unit as the input wrote it.
    pub(crate) written: String,
    /// Unit as Go's tables show it.
    pub(crate) shown: String,
    /// The better direction, where the input says or implies one.
    pub(crate) better: Option<BetterDirection>,
    pub(crate) kind: MetricKind,
    /// True where repeated measurement adds nothing (`assume=exact`).
    pub(crate) exact: bool,
}

/// A combination of labels: input x context x benchmark name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LabelCombination {
    pub(crate) input: u32,
    pub(crate) context: u32,
    /// Benchfmt's name with its sub-names; empty for other formats.
    pub(crate) name: u32,
    first_series: u32,
}

/// The values of one metric under one setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricSeries {
    pub(crate) setting: u32,
    pub(crate) metric: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

/// So many labels are looked at one by one faster than by a table.
const FEW_LABELS: usize = 32;

/// A line that could not be read, or something else worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadProblem {
    /// The input's name.
    pub input: String,
    /// The line, from 1; 0 where it is about the whole input.
    pub line: usize,
    /// What is wrong.
    pub text: String,
}

/// Problems kept of one input: a file of another format has a million.
const PROBLEMS_KEPT: usize = 20;

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Data {
    inputs: Vec<String>,
    /// Label keys, and label values (benchmark names among them).
    pub(crate) keys: Interner,
    pub(crate) words: Interner,
    contexts: Vec<Vec<(u32, u32)>>,
    context_ids: BTreeMap<Vec<(u32, u32)>, u32>,
    pub(crate) metrics: Vec<MeasuredQuantity>,
    pub(crate) settings: Vec<LabelCombination>,
    setting_ids: Vec<MixedMap<u64, u32>>,
    pub(crate) series: Vec<MetricSeries>,
    log: Vec<u32>,
    values: Vec<f64>,
    problems: Vec<ReadProblem>,
    problems_of_input: usize,
    /// Values that were read and take no part, by reason.
    left_out: BTreeMap<&'static str, usize>,
    /// The input from which each run of a trial was read first, by its trial and by when
    /// it began, s since 1970 as bits.
    runs: HashMap<(u32, u64), u32>,
    /// What benchfmt's `Unit` lines say, by unit and key.
    pub(crate) declared: BTreeMap<(String, String), String>,
}

impl Data {
    /// Begins an input; what is added from now on belongs to it.
    pub(crate) fn begin(&mut self, name: &str) -> u32 {
        self.inputs.push(name.to_owned());
        self.setting_ids.push(MixedMap::default());
        self.problems_of_input = 0;
        (self.inputs.len() - 1) as u32
    }

    /// Names of the inputs, in the order in which they were read.
    #[must_use]
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// What could not be read, and where.
    #[must_use]
    pub fn problems(&self) -> &[ReadProblem] {
        &self.problems
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True if nothing was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many values take no part, and why.
    #[must_use]
    pub fn left_out(&self) -> &BTreeMap<&'static str, usize> {
        &self.left_out
    }

    pub(crate) fn problem(&mut self, line: usize, text: impl Into<String>) {
        self.problems_of_input += 1;
        let input = self.inputs.last().cloned().unwrap_or_default();
        let text = match self.problems_of_input.cmp(&(PROBLEMS_KEPT + 1)) {
            std::cmp::Ordering::Less => text.into(),
            std::cmp::Ordering::Equal => "and more lines like these".to_owned(),
            std::cmp::Ordering::Greater => return,
        };
        self.problems.push(ReadProblem { input, line, text });
    }

    pub(crate) fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    /// Whether this run of a trial was read before, from another input: a copy of what was
    /// measured, which would count twice and make differences look sure.
    pub(crate) fn is_repeated(&mut self, input: u32, trial: &str, started_unix_s: f64) -> bool {
        let run = (self.words.add(trial.as_bytes()), started_unix_s.to_bits());
        *self.runs.entry(run).or_insert(input) != input
    }

    /// The context with these labels. A later label of the same key wins.
    pub(crate) fn context<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> u32 {
        let mut list: Vec<(u32, u32)> = Vec::new();
        // Where each key stands, once there are so many that looking at all takes longer.
        let mut places: HashMap<u32, usize> = HashMap::new();
        for (key, value) in labels {
            let (key, value) = (self.keys.add(key.as_bytes()), self.words.add(value.as_bytes()));
            if list.len() == FEW_LABELS {
                places = list.iter().enumerate().map(|(place, (key, _))| (*key, place)).collect();
            }
            let place = match list.len() {
                0..FEW_LABELS => list.iter().position(|(known, _)| *known == key),
                _ => places.get(&key).copied(),
            };
            match place {
                Some(place) => list[place].1 = value,
                None => {
                    if list.len() >= FEW_LABELS {
                        places.insert(key, list.len());
                    }
                    list.push((key, value));
                }
            }
        }
        if let Some(id) = self.context_ids.get(&list) {
            return *id;
        }
        let id = self.contexts.len() as u32;
        self.contexts.push(list.clone());
        self.context_ids.insert(list, id);
        id
    }

    /// The labels of a context, in the order in which they appeared.
    pub(crate) fn context_labels(&self, context: u32) -> &[(u32, u32)] {
        &self.contexts[context as usize]
    }

    pub(crate) fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// The number of `metric`, which is added if it is new.
    pub(crate) fn metric(&mut self, metric: MeasuredQuantity) -> u32 {
        let same = |known: &MeasuredQuantity| {
            (&known.name, &known.unit, &known.written, &known.shown)
                == (&metric.name, &metric.unit, &metric.written, &metric.shown)
        };
        if let Some(index) = self.metrics.iter().position(same) {
            return index as u32;
        }
        self.metrics.push(metric);
        (self.metrics.len() - 1) as u32
    }

    pub(crate) fn setting(&mut self, input: u32, context: u32, name: u32) -> u32 {
        let key = u64::from(context) << 32 | u64::from(name);
        let next = self.settings.len() as u32;
        let id = *self.setting_ids[input as usize].entry(key).or_insert(next);
        if id == next {
            self.settings.push(LabelCombination { input, context, name, first_series: NONE });
        }
        id
    }

    /// Adds one value.
    pub(crate) fn add(&mut self, setting: u32, metric: u32, value: f64) {
        let mut cursor = self.first_series(setting);
        self.add_at(&mut cursor, setting, metric, value);
    }

    /// Where the series of `setting` begin, for [`Data::add_at`].
    pub(crate) fn first_series(&self, setting: u32) -> u32 {
        self.settings[setting as usize].first_series
    }

    /// Adds one value of a line; `cursor` guesses that the metrics of a line
    /// come in the order of the line before.
    pub(crate) fn add_at(&mut self, cursor: &mut u32, setting: u32, metric: u32, value: f64) {
        let mut found = *cursor;
        if found == NONE || self.series[found as usize].metric != metric {
            found = self.series_of(setting, metric);
        }
        *cursor = self.series[found as usize].next;
        self.log.push(found);
        self.values.push(value);
    }

    fn series_of(&mut self, setting: u32, metric: u32) -> u32 {
        let new = self.series.len() as u32;
        let mut last = NONE;
        let mut at = self.first_series(setting);
        while at != NONE {
            let series = &self.series[at as usize];
            if series.metric == metric {
                return at;
            }
            (last, at) = (at, series.next);
        }
        self.series.push(MetricSeries { setting, metric, next: NONE });
        match last {
            NONE => self.settings[setting as usize].first_series = new,
            last => self.series[last as usize].next = new,
        }
        new
    }

    /// Ends reading: the values of each series lie beside each other, in the
    /// order in which they were read.
    #[must_use]
    pub fn finish(mut self) -> Dataset {
        self.apply_declared();
        let mut starts = vec![0_u32; self.series.len() + 1];
        for series in &self.log {
            starts[*series as usize + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut values = vec![0.0; self.values.len()];
        for (series, value) in self.log.iter().zip(&self.values) {
            let place = &mut next[*series as usize];
            values[*place as usize] = *value;
            *place += 1;
        }
        (self.log, self.values) = (Vec::new(), Vec::new());
        self.setting_ids = Vec::new();
        Dataset { data: self, starts, values }
    }

    /// Splits a benchmark's name: its base, then its parts `/key=value`,
    /// `/word` and, at the end, `-8`.
    pub(crate) fn name_parts(name: &[u8]) -> (&[u8], NameParts<'_>) {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (stem, procs) = match name.len().checked_sub(digits + 1) {
            Some(dash) if digits > 0 && name[dash] == b'-' => name.split_at(dash),
            _ => (name, &name[..0]),
        };
        let slash = memchr::memchr(b'/', stem).unwrap_or(stem.len());
        (&stem[..slash], NameParts { rest: &stem[slash..], procs })
    }
}

/// The parts of a benchmark's name behind its base, each with its `/` or `-`.
#[derive(Debug, Clone)]
pub(crate) struct NameParts<'a> {
    rest: &'a [u8],
    procs: &'a [u8],
}

impl<'a> Iterator for NameParts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            let procs = std::mem::take(&mut self.procs);
            return (!procs.is_empty()).then_some(procs);
        }
        let end = memchr::memchr(b'/', &self.rest[1..]).map_or(self.rest.len(), |at| at + 1);
        let (part, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(part)
    }
}

/// What was read, ready to be grouped.
#[derive(Debug)]
pub struct Dataset {
    pub(crate) data: Data,
    starts: Vec<u32>,
    values: Vec<f64>,
}

impl Dataset {
    /// The values of a series, in the order in which they were read.
    pub(crate) fn values(&self, series: usize) -> &[f64] {
        &self.values[self.starts[series] as usize..self.starts[series + 1] as usize]
    }

    /// What was read, without its values.
    #[must_use]
    pub fn data(&self) -> &Data {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_into_their_parts() {
        let check = |name: &str, expected: &[&str]| {
            let (base, parts) = Data::name_parts(name.as_bytes());
            let found: Vec<_> = std::iter::once(base)
                .chain(parts)
                .map(|part| str::from_utf8(part).unwrap())
                .collect();
            assert_eq!(found, expected, "{name}");
        };
        check("Encode/format=json-48", &["Encode", "/format=json", "-48"]);
        check("Encode", &["Encode"]);
        check("Encode-8", &["Encode", "-8"]);
        check("A/b/c=d", &["A", "/b", "/c=d"]);
        check("A/b-x", &["A", "/b-x"]);
        check("A-", &["A-"]);
        check("12", &["12"]);
        check("", &[""]);
        check("A//b", &["A", "/", "/b"]);
    }

    #[test]
    fn values_of_a_series_lie_together_in_their_order() {
        let mut data = Data::default();
        let input = data.begin("a");
        let metric = |name: &str| MeasuredQuantity {
            name: name.to_owned(),
            unit: "s".to_owned(),
            written: "s".to_owned(),
            better: None,
            kind: MetricKind::Time,
            exact: false,
            shown: "s".to_owned(),
        };
        let (time, size) = (data.metric(metric("time")), data.metric(metric("size")));
        let context = data.context([("k", "v")]);
        let (a, b) = (data.words.add(b"a"), data.words.add(b"b"));
        let (a, b) = (data.setting(input, context, a), data.setting(input, context, b));
        for (setting, metric, value) in
            [(a, time, 1.0), (b, time, 2.0), (a, size, 3.0), (a, time, 4.0), (b, size, 5.0)]
        {
            data.add(setting, metric, value);
        }
        let set = data.finish();
        let all: Vec<_> = (0..set.data.series.len()).map(|series| set.values(series)).collect();
        assert_eq!(all, [&[1.0, 4.0][..], &[2.0], &[3.0], &[5.0]]);
    }
}
