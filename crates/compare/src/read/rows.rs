//! Numbers in long form: CSV, JSON and JSON lines; one value a row, its
//! settings beside it.

use std::collections::BTreeMap;
use std::io::{self, Read};

use record::{BetterDirection, LogValue, MetricKind, RECORD_FORMAT_VERSION, SampleRow};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{ColumnNames, TableColumn, TableError};
use crate::data::{Data, MeasuredQuantity};
use crate::read::number::float;
use crate::units;

/// Why values of a vmlab study may take no part.
const NOT_COUNTED: &str = "their block was not completed or was done again";

const REPEATED: &str = "their trial was read before, from another input, and counts once";

/// Names that columns usually have.
const VALUES: [&str; 9] =
    ["value", "val", "result", "measurement", "y", "elapsed", "seconds", "score", "latency"];
const METRICS: [&str; 4] = ["metric", "measure", "statistic", "variable"];
const UNITS: [&str; 2] = ["unit", "units"];
const BETTER: [&str; 2] = ["better", "direction"];
const KINDS: [&str; 1] = ["kind"];

/// Adds rows; metrics are looked up by what the row before had.
struct RowCollector<'a> {
    data: &'a mut Data,
    input: u32,
    name: u32,
    known: BTreeMap<(String, String), (u32, f64)>,
}

/// What a row says of its value's metric.
#[derive(Default)]
struct RowMetric<'a> {
    metric: &'a str,
    unit: &'a str,
    better: Option<BetterDirection>,
    kind: Option<MetricKind>,
}

impl<'a> RowCollector<'a> {
    fn begin(data: &'a mut Data, name: &str) -> Self {
        let input = data.begin(name);
        let name = data.words.add(b"");
        Self { data, input, name, known: BTreeMap::new() }
    }

    fn add<'l>(
        &mut self,
        said: &RowMetric<'_>,
        value: f64,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) {
        let place = (said.metric.to_owned(), said.unit.to_owned());
        let (metric, factor) = match self.known.get(&place) {
            Some(known) => *known,
            None => {
                let (unit, factor) = units::to_base(said.unit);
                let kind = said.kind.unwrap_or_else(|| units::guess_kind(&unit, said.metric));
                let better = said.better.or_else(|| units::guess_better(&unit, kind, said.metric));
                let metric = self.data.metric(MeasuredQuantity {
                    name: said.metric.to_owned(),
                    shown: unit.clone(),
                    unit,
                    written: said.unit.to_owned(),
                    better,
                    kind,
                    exact: false,
                });
                self.known.insert(place, (metric, factor));
                (metric, factor)
            }
        };
        let context = self.data.context(labels);
        let setting = self.data.setting(self.input, context, self.name);
        self.data.add(setting, metric, value * factor);
    }
}

/// The separator of a table whose first line is `line`.
pub(super) fn separator(line: &str) -> Option<u8> {
    let count = |separator: char| line.matches(separator).count();
    [',', ';', '\t']
        .into_iter()
        .filter(|c| count(*c) > 0)
        .max_by_key(|c| count(*c))
        .map(|c| c as u8)
}

/// True if the columns of `head` hold a value.
pub(super) fn has_value(head: &str, columns: &ColumnNames) -> bool {
    let names: Vec<String> = separator(head)
        .map(|separator| {
            head.split(separator as char).map(|n| n.trim().trim_matches('"').to_owned())
        })
        .map(Iterator::collect)
        .unwrap_or_default();
    find(&names, columns.get(&TableColumn::Value), &VALUES).is_some()
}

/// The place of the column that is asked for, or of one with a usual name.
fn find(names: &[String], asked: Option<&String>, usual: &[&str]) -> Option<usize> {
    let place = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
    match asked {
        Some(asked) => place(asked),
        None => usual.iter().find_map(|wanted| place(wanted)),
    }
}

/// A table with a header.
pub(super) fn read_csv(
    data: &mut Data,
    name: &str,
    reader: &mut dyn Read,
    separator: u8,
    columns: &ColumnNames,
) -> Result<(), TableError> {
    let mut rows = RowCollector::begin(data, name);
    let broken =
        |line: usize, why: String| TableError::Malformed { input: name.to_owned(), line, why };
    let mut table =
        csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(reader);
    let head = table.headers().map_err(|error| broken(1, error.to_string()))?;
    let names: Vec<String> =
        head.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
    let column = |which: TableColumn, usual: &[&str]| match columns.get(&which) {
        Some(asked) => match find(&names, Some(asked), usual) {
            None => Err(broken(
                1,
                format!("no column is called {asked:?}; there are: {}", names.join(", ")),
            )),
            found => Ok(found),
        },
        None => Ok(find(&names, None, usual)),
    };
    let Some(value) = column(TableColumn::Value, &VALUES)? else {
        let why = format!(
            "no column holds the values; name one with --column value=NAME (there are: {})",
            names.join(", ")
        );
        return Err(broken(1, why));
    };
    let metric = column(TableColumn::Metric, &METRICS)?;
    let unit = column(TableColumn::Unit, &UNITS)?;
    let better = column(TableColumn::Better, &BETTER)?;
    let kind = column(TableColumn::Kind, &KINDS)?;
    let ours = |wanted: &str| names.iter().position(|name| name == wanted);
    let (counted, trial, started) = (ours("counted"), ours("trial"), ours("started_unix_s"));
    let roles = [Some(value), metric, unit, better, kind, counted];
    let labels: Vec<usize> = (0..names.len()).filter(|at| !roles.contains(&Some(*at))).collect();
    let mut row = csv::StringRecord::new();
    loop {
        match table.read_record(&mut row) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(error) => {
                let line = error.position().map_or(0, |position| position.line()) as usize;
                if error.is_io_error() {
                    return Err(broken(line, error.to_string()));
                }
                rows.data.problem(line, error.to_string());
                continue;
            }
        }
        let line = row.position().map_or(0, |position| position.line()) as usize;
        let cell = |at: Option<usize>| at.and_then(|at| row.get(at)).unwrap_or("").trim();
        let Some(number) = float(cell(Some(value)).as_bytes()) else {
            rows.data.problem(line, format!("{:?} is no number", cell(Some(value))));
            continue;
        };
        if cell(counted) == "false" {
            rows.data.leave_out(NOT_COUNTED);
            continue;
        }
        if let Some(started_unix_s) = float(cell(started).as_bytes())
            && !cell(trial).is_empty()
            && rows.data.is_repeated(rows.input, cell(trial), started_unix_s)
        {
            rows.data.leave_out(REPEATED);
            continue;
        }
        let said = RowMetric {
            metric: if metric.is_some() { cell(metric) } else { &names[value] },
            unit: cell(unit),
            better: word(cell(better)),
            kind: word(cell(kind)),
        };
        let labels = labels
            .iter()
            .map(|at| (names[*at].as_str(), cell(Some(*at))))
            .filter(|(_, value)| !value.is_empty());
        rows.add(&said, number, labels);
    }
}

/// A word that one of `record`'s enums stands for.
fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(Value::String(text.to_ascii_lowercase())).ok()
}

/// JSON: hyperfine's results, vmlab's records, a list of values, or one value
/// a line.
pub(super) fn read_json(data: &mut Data, name: &str, text: &[u8]) -> Result<(), TableError> {
    let values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let mut rows = RowCollector::begin(data, name);
    let mut found = false;
    for value in values {
        let value = value.map_err(|error| TableError::Malformed {
            input: name.to_owned(),
            line: error.line(),
            why: error.to_string(),
        })?;
        // What a later format means by its fields is not ours to guess.
        if value["format"] == "vmlab-records"
            && let Some(version) = value["version"].as_u64()
            && version > u64::from(RECORD_FORMAT_VERSION)
        {
            let why = format!(
                "records of format {version}, and this vmlab reads formats up to \
                 {RECORD_FORMAT_VERSION}: use a newer vmlab"
            );
            return Err(TableError::Malformed { input: name.to_owned(), line: 1, why });
        }
        found |= rows.json(value);
    }
    if found {
        return Ok(());
    }
    let why = "no value in it: neither hyperfine's results nor records of vmlab nor objects with \"value\"";
    Err(TableError::Malformed { input: name.to_owned(), line: 1, why: why.to_owned() })
}

impl RowCollector<'_> {
    /// Adds what `value` holds; false if that is nothing.
    fn json(&mut self, value: Value) -> bool {
        match value {
            Value::Array(list) => {
                let mut found = false;
                for value in list {
                    found |= self.json(value);
                }
                found
            }
            Value::Object(mut object) => {
                for list in ["records", "values", "results"] {
                    if let Some(Value::Array(_)) = object.get(list) {
                        return object.remove(list).is_some_and(|list| self.json(list));
                    }
                }
                if object.get("times").is_some_and(Value::is_array) {
                    return self.hyperfine(&object);
                }
                let value = Value::Object(object);
                if let Ok(record) = serde_json::from_value::<SampleRow>(value.clone()) {
                    self.record(&record);
                    return true;
                }
                match value {
                    Value::Object(object) => self.object(&object),
                    _ => false,
                }
            }
            _ => false,
        }
    }

    /// A command with its times, s.
    fn hyperfine(&mut self, object: &Map<String, Value>) -> bool {
        let mut labels: Vec<(String, String)> = Vec::new();
        if let Some(Value::String(command)) = object.get("command") {
            labels.push(("command".to_owned(), command.clone()));
        }
        if let Some(Value::Object(parameters)) = object.get("parameters") {
            labels.extend(parameters.iter().map(|(key, value)| (key.clone(), plain(value))));
        }
        let codes = object.get("exit_codes").and_then(Value::as_array);
        let said = RowMetric {
            metric: "time",
            unit: "s",
            better: Some(BetterDirection::Lower),
            kind: Some(MetricKind::Time),
        };
        let times = object["times"].as_array().into_iter().flatten();
        for (index, time) in times.enumerate() {
            let code = codes.and_then(|codes| codes.get(index)).and_then(Value::as_i64);
            match time.as_f64() {
                Some(_) if code.is_some_and(|code| code != 0) => {
                    self.data.leave_out("the command failed");
                }
                Some(time) => {
                    let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                    self.add(&said, time, labels);
                }
                None => self.data.problem(0, format!("{time} is no time")),
            }
        }
        true
    }

    fn record(&mut self, record: &SampleRow) {
        if !record.counted {
            self.data.leave_out(NOT_COUNTED);
            return;
        }
        if self.data.is_repeated(self.input, &record.trial, record.started_unix_s) {
            self.data.leave_out(REPEATED);
            return;
        }
        let block = record.block.to_string();
        let environment = plain(&serde_json::to_value(record.environment).unwrap_or_default());
        let metric = &record.metric;
        let said = RowMetric {
            metric: &metric.name,
            unit: &metric.unit.0,
            better: Some(metric.better),
            kind: Some(metric.kind),
        };
        let labels = [
            ("study", record.study.as_str()),
            ("workload", &record.workload),
            ("load", &record.load),
            ("variant", &record.variant),
            ("block", &block),
            ("trial", &record.trial),
            ("environment", &environment),
            ("tool", &record.source.tool),
            ("tool_version", record.source.version.as_deref().unwrap_or("")),
        ];
        self.add(&said, record.value, labels.into_iter().filter(|(_, value)| !value.is_empty()));
    }

    fn imported(&mut self, value: &LogValue) {
        let said = RowMetric {
            metric: &value.metric,
            unit: &value.unit,
            better: value.better,
            kind: Some(value.kind),
        };
        self.add(&said, value.value, value.labels.iter());
    }

    /// Any object with a value: what is no property of the metric is a label.
    fn object(&mut self, object: &Map<String, Value>) -> bool {
        let Some(value) = object.get("value").and_then(Value::as_f64) else { return false };
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or("");
        let metric = if object.contains_key("metric") { text("metric") } else { "value" };
        let said = RowMetric {
            metric,
            unit: text("unit"),
            better: word(text("better")),
            kind: word(text("kind")),
        };
        let mut labels: Vec<(String, String)> = Vec::new();
        for (key, value) in object {
            match value {
                Value::Object(inner) if key == "labels" => {
                    labels.extend(inner.iter().map(|(key, value)| (key.clone(), plain(value))));
                }
                _ if ["metric", "value", "unit", "better", "kind", "line"]
                    .contains(&key.as_str()) => {}
                Value::String(_) | Value::Number(_) | Value::Bool(_) => {
                    labels.push((key.clone(), plain(value)));
                }
                _ => {}
            }
        }
        self.add(&said, value, labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        true
    }
}

/// A scalar as text, without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Data {
    /// Adds records of a vmlab study as the input `name`.
    pub fn add_records(&mut self, name: &str, records: &[SampleRow]) {
        let mut rows = RowCollector::begin(self, name);
        records.iter().for_each(|record| rows.record(record));
    }

    /// Adds values of other tools' logs as the input `name`.
    pub fn add_imported(&mut self, name: &str, values: &[LogValue]) {
        let mut rows = RowCollector::begin(self, name);
        values.iter().for_each(|value| rows.imported(value));
    }
}

/// All of a stream.
pub(super) fn rest(start: &[u8], reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut text = start.to_vec();
    reader.read_to_end(&mut text)?;
    Ok(text)
}
