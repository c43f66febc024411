//! From series to benchstat's tables: one for each configuration and unit,
//! a row for each benchmark, a column for each input.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::Filter;
use crate::data::{Data, Dataset};
use crate::decimal::{push_fixed, push_signed};
use crate::memo::Memo;

/// How benchstat is asked.
#[derive(Debug, Clone)]
pub struct BenchstatOptions {
    /// Differences with a greater p are shown as `~`.
    pub alpha: f64,
    /// Level of the medians' intervals.
    pub confidence: f64,
    /// Which measurements take part.
    pub filter: Option<Filter>,
}

impl Default for BenchstatOptions {
    fn default() -> Self {
        Self { alpha: 0.05, confidence: 0.95, filter: None }
    }
}

/// All tables, in benchstat's order.
#[derive(Debug)]
pub struct BenchstatTables {
    pub(super) tables: Vec<BenchstatTable>,
    /// The configuration's keys, in the order in which they were seen.
    pub(super) keys: Vec<String>,
}

/// One table.
#[derive(Debug)]
pub(super) struct BenchstatTable {
    /// The values of [`BenchstatTables::keys`]; empty where there is none.
    pub(super) config: Vec<String>,
    pub(super) unit: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<BenchmarkRow>,
    /// One for each column.
    pub(super) summary: Vec<Summary>,
    /// Each of the table's warnings, once.
    pub(super) warnings: Vec<String>,
}

/// A benchmark.
#[derive(Debug)]
pub(super) struct BenchmarkRow {
    pub(super) name: String,
    /// The first of the row's cells, which lie beside each other.
    pub(super) cells: Vec<Option<BenchmarkCell>>,
}

/// A benchmark in one input.
#[derive(Debug)]
pub(super) struct BenchmarkCell {
    pub(super) centre: f64,
    pub(super) lo: f64,
    pub(super) hi: f64,
    /// Numbers of [`BenchstatTable::warnings`].
    pub(super) warnings: Vec<u32>,
    pub(super) comparison: Option<CellComparison>,
}

/// A cell against that of the first column.
#[derive(Debug)]
pub(super) struct CellComparison {
    pub(super) base: f64,
    pub(super) p: f64,
    pub(super) alpha: f64,
    pub(super) n: (usize, usize),
    pub(super) warnings: Vec<u32>,
}

/// The last row of a column.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) geomean: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) warnings: Vec<u32>,
}

/// Number of an absent thing.
const NONE: u32 = u32::MAX;

/// A series' place: table, row and column, as numbers that sort as benchstat
/// sorts.
struct SeriesKey {
    table: u32,
    row: u32,
    column: u32,
    series: u32,
}

/// Groups the data as benchstat does by default.
#[must_use]
pub fn tables(set: &Dataset, options: &BenchstatOptions) -> BenchstatTables {
    let data = set.data();
    let mut keys: Vec<u32> = Vec::new();
    // The value of each key, by context; benchstat learns keys as it reads.
    let mut units: Vec<&str> = Vec::new();
    let mut unit_of = vec![NONE; data.metrics.len()];
    let mut rows: Vec<u32> = vec![NONE; data.words.len()];
    let mut row_names: Vec<u32> = Vec::new();
    let mut columns: Vec<u32> = vec![NONE; data.inputs().len()];
    let mut seen_columns: Vec<u32> = Vec::new();
    // Inputs that were given one name are one column.
    let first_of_name = |input: u32| {
        let name = &data.inputs()[input as usize];
        data.inputs().iter().position(|known| known == name).unwrap_or(input as usize)
    };
    let mut context_seen = vec![false; data.contexts()];
    let mut places: Vec<(u32, u32, SeriesKey)> = Vec::new();
    for (index, series) in data.series.iter().enumerate() {
        let setting = data.settings[series.setting as usize];
        if let Some(filter) = &options.filter
            && !filter
                .matches(&|key, check| data.look_up(series.setting, series.metric, key, check))
        {
            continue;
        }
        if !std::mem::replace(&mut context_seen[setting.context as usize], true) {
            for (key, _) in data.context_labels(setting.context) {
                if !keys.contains(key) {
                    keys.push(*key);
                }
            }
        }
        let unit = &mut unit_of[series.metric as usize];
        if *unit == NONE {
            let shown = data.metrics[series.metric as usize].shown.as_str();
            *unit = units.iter().position(|known| *known == shown).unwrap_or(units.len()) as u32;
            if *unit as usize == units.len() {
                units.push(shown);
            }
        }
        let row = &mut rows[setting.name as usize];
        if *row == NONE {
            *row = row_names.len() as u32;
            row_names.push(setting.name);
        }
        let column = &mut columns[first_of_name(setting.input)];
        if *column == NONE {
            *column = seen_columns.len() as u32;
            seen_columns.push(setting.input);
        }
        let place = SeriesKey { table: 0, row: *row, column: *column, series: index as u32 };
        places.push((setting.context, *unit, place));
    }

    // Tables sort by the text of their configuration, key by key, then by unit.
    let config = |context: u32| -> Vec<String> {
        let labels = data.context_labels(context);
        let value = |key: &u32| labels.iter().find(|(known, _)| known == key).map(|pair| pair.1);
        keys.iter()
            .map(|key| value(key).map_or(String::new(), |word| data.words.text(word).into_owned()))
            .collect()
    };
    let mut order: BTreeMap<(Vec<String>, u32), u32> = BTreeMap::new();
    let mut configs: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for (context, unit, _) in &places {
        let config = configs.entry(*context).or_insert_with(|| config(*context));
        if known.insert((*context, *unit)) {
            order.insert((config.clone(), *unit), 0);
        }
    }
    for (number, table) in order.values_mut().enumerate() {
        *table = number as u32;
    }
    let mut number: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for (context, unit, place) in &mut places {
        place.table = *number
            .entry((*context, *unit))
            .or_insert_with(|| order[&(configs[context].clone(), *unit)]);
    }
    let mut places: Vec<SeriesKey> = places.into_iter().map(|(_, _, place)| place).collect();
    places.sort_unstable_by_key(|place| (place.table, place.row, place.column, place.series));

    let mut memo = Memo::default();
    let heads: Vec<(Vec<String>, u32)> = order.into_keys().collect();
    let tables = places
        .chunk_by(|a, b| a.table == b.table)
        .map(|places| {
            let (config, unit) = &heads[places[0].table as usize];
            let mut builder =
                TableBuilder { set, options, memo: &mut memo, exact: false, warnings: Vec::new() };
            let column_name =
                |column: u32| data.inputs()[seen_columns[column as usize] as usize].clone();
            builder.table(config, units[*unit as usize], places, &row_names, column_name)
        })
        .collect();
    let keys = keys.iter().map(|key| data.keys.text(*key).into_owned()).collect();
    BenchstatTables { tables, keys }
}

struct TableBuilder<'a> {
    set: &'a Dataset,
    options: &'a BenchstatOptions,
    memo: &'a mut Memo,
    exact: bool,
    warnings: Vec<String>,
}

impl TableBuilder<'_> {
    fn table(
        &mut self,
        config: &[String],
        unit: &str,
        places: &[SeriesKey],
        row_names: &[u32],
        column_name: impl Fn(u32) -> String,
    ) -> BenchstatTable {
        let data = self.set.data();
        let mut shown: Vec<u32> = places.iter().map(|place| place.column).collect();
        shown.sort_unstable();
        shown.dedup();
        self.exact = places.iter().any(|place| {
            let series = &data.series[place.series as usize];
            data.metrics[series.metric as usize].exact
        });
        let mut rows = Vec::new();
        let (mut base, mut values) = (Vec::new(), Vec::new());
        for places in places.chunk_by(|a, b| a.row == b.row) {
            let name = data.words.text(row_names[places[0].row as usize]).into_owned();
            let mut cells: Vec<Option<BenchmarkCell>> = shown.iter().map(|_| None).collect();
            let mut base_centre = None;
            for places in places.chunk_by(|a, b| a.column == b.column) {
                values.clear();
                for place in places {
                    values.extend_from_slice(self.set.values(place.series as usize));
                }
                values.sort_unstable_by(f64::total_cmp);
                let at = shown.iter().position(|column| *column == places[0].column);
                let at = at.expect("all columns of the table are shown");
                let mut cell = self.summarise(&values);
                if at == 0 {
                    base_centre = Some(cell.centre);
                    std::mem::swap(&mut base, &mut values);
                } else if let Some(centre) = base_centre {
                    cell.comparison = Some(self.compare(centre, &base, &values));
                }
                cells[at] = Some(cell);
            }
            rows.push(BenchmarkRow { name, cells });
        }
        let summary = (0..shown.len()).map(|column| self.summary(&rows, column)).collect();
        BenchstatTable {
            config: config.to_vec(),
            unit: unit.to_owned(),
            columns: shown.into_iter().map(column_name).collect(),
            rows,
            summary,
            warnings: std::mem::take(&mut self.warnings),
        }
    }

    /// The number of a warning; an equal one has the same.
    fn warning(&mut self, text: String) -> u32 {
        let known = self.warnings.iter().position(|known| *known == text);
        known.unwrap_or_else(|| {
            self.warnings.push(text);
            self.warnings.len() - 1
        }) as u32
    }

    /// Median and interval of sorted values, of which there is at least one.
    fn summarise(&mut self, sorted: &[f64]) -> BenchmarkCell {
        let (first, last) = (sorted[0], sorted[sorted.len() - 1]);
        let mut warnings = Vec::new();
        if self.exact {
            let (centre, count) = mode(sorted);
            if count != sorted.len() {
                let (lo, hi) = (super::number::general(first), super::number::general(last));
                warnings.push(self.warning(format!(
                    "exact distribution expected, but values range from {lo} to {hi}"
                )));
            }
            return BenchmarkCell { centre, lo: first, hi: last, warnings, comparison: None };
        }
        let confidence = self.options.confidence;
        let orders = self.memo.orders(sorted.len(), confidence);
        let lo = orders.lo.map_or(f64::NEG_INFINITY, |order| sorted[order]);
        let hi = orders.hi.map_or(f64::INFINITY, |order| sorted[order]);
        if lo.is_infinite() || hi.is_infinite() {
            let least = (2..=50).find(|n| {
                let orders = self.memo.orders(*n, confidence);
                orders.lo.is_some() && orders.hi.is_some()
            });
            let need = least.map_or("> 50".to_owned(), |least| format!(">= {least}"));
            warnings.push(self.warning(format!(
                "need {need} samples for confidence interval at level {confidence}"
            )));
        }
        BenchmarkCell { centre: median(sorted), lo, hi, warnings, comparison: None }
    }

    fn compare(&mut self, centre: f64, base: &[f64], values: &[f64]) -> CellComparison {
        let n = (base.len(), values.len());
        if self.exact {
            return CellComparison { base: centre, p: 0.0, alpha: 0.0, n, warnings: Vec::new() };
        }
        let alpha = self.options.alpha;
        let mut warnings = Vec::new();
        let p = match self.memo.mann_whitney(base, values) {
            Ok(p) => {
                let p = lopsided(base, values).unwrap_or(p);
                let least = (1..10).find(|n| least_p(*n) <= alpha);
                if p > alpha && n.0.max(n.1) < least.unwrap_or(10) {
                    let need = least.map_or("> 10".to_owned(), |least| format!(">= {least}"));
                    warnings.push(self.warning(format!(
                        "need {need} samples to detect a difference at alpha level {alpha}"
                    )));
                }
                p
            }
            Err(error) => {
                warnings.push(self.warning(match error {
                    stats::UnpairedError::AllEqual => "all samples are equal".to_owned(),
                    other => other.to_string(),
                }));
                1.0
            }
        };
        CellComparison { base: centre, p, alpha, n, warnings }
    }

    fn summary(&mut self, rows: &[BenchmarkRow], column: usize) -> Summary {
        let with_base = rows.iter().filter(|row| row.cells[0].is_some()).count();
        let cells = rows.iter().filter_map(|row| row.cells[column].as_ref());
        let mut pairs = 0;
        let mut bad_ratio = false;
        let mut ratios = GeometricMean::default();
        let mut centres = GeometricMean::default();
        for cell in cells {
            centres.add(cell.centre);
            let Some(comparison) = &cell.comparison else { continue };
            pairs += 1;
            match (cell.centre, comparison.base) {
                (a, b) if a == b => ratios.add(1.0),
                (_, 0.0) => bad_ratio = true,
                (a, b) => ratios.add(a / b),
            }
        }
        let mut warnings = Vec::new();
        if column > 0 && pairs != with_base {
            let text = "benchmark set differs from baseline; geomeans may not be comparable";
            warnings.push(self.warning(text.to_owned()));
        }
        let geomean = centres.value();
        if geomean.is_none() {
            warnings.push(self.warning("summaries must be >0 to compute geomean".to_owned()));
        }
        let mut ratio = None;
        if column > 0 && !bad_ratio {
            ratio = ratios.value();
            if ratio.is_none() {
                warnings.push(self.warning("ratios must be >0 to compute geomean".to_owned()));
            }
        }
        Summary { geomean, ratio, warnings }
    }
}

/// The least p that two samples of `n` values can have.
fn least_p(n: usize) -> f64 {
    let ways = (1..=n).fold(1, |ways, k| ways * (n + k) / k);
    if n == 1 { 1.0 } else { 2.0 / ways as f64 }
}

/// The p that benchstat prints for samples of different sizes with equal
/// values, where U is not distributed evenly around its middle: twice the
/// probability that the *first* sample's U is at most the smaller of the two.
/// That can be above 1, or 0; [`stats::mann_whitney`] is right there. None for
/// all other samples.
fn lopsided(a: &[f64], b: &[f64]) -> Option<f64> {
    /// Greatest sample whose ties benchstat counts exactly.
    const EXACT_WITH_TIES: usize = 25;
    let (n, m) = (a.len(), b.len());
    if n == m || n.max(m) > EXACT_WITH_TIES {
        return None;
    }
    let mut merged: Vec<f64> = a.iter().chain(b).copied().collect();
    merged.sort_unstable_by(f64::total_cmp);
    let groups: Vec<&[f64]> = merged.chunk_by(|x, y| x == y).collect();
    if groups.len() < 2 || groups.len() == n + m {
        return None;
    }
    // Ways to choose `n` of the merged values, by values chosen and twice U.
    let width = 2 * n * m + 1;
    let mut ways = vec![vec![0.0_f64; width]; n + 1];
    ways[0][0] = 1.0;
    let (mut seen, mut twice_u, mut b_below) = (0, 0, 0);
    for group in &groups {
        let of_a = a.iter().filter(|value| **value == group[0]).count();
        let of_b = group.len() - of_a;
        twice_u += of_a * (2 * b_below + of_b);
        b_below += of_b;
        let mut next = vec![vec![0.0; width]; n + 1];
        for chosen in 0..=n.min(seen) {
            let mut choices = 1.0;
            for taken in 0..=group.len().min(n - chosen) {
                let gain = taken * (2 * (seen - chosen) + group.len() - taken);
                for sum in gain..width {
                    next[chosen + taken][sum] += choices * ways[chosen][sum - gain];
                }
                choices *= (group.len() - taken) as f64 / (taken + 1) as f64;
            }
        }
        ways = next;
        seen += group.len();
    }
    let mut smaller = twice_u.min(2 * n * m - twice_u);
    if smaller == n * m {
        return Some(1.0);
    }
    if let [first, _] = groups[..] {
        // With two distinct values Go divides a negative number here, which
        // rounds up to the least that U can be.
        let least = n * first.len().saturating_sub(n);
        if n <= first.len() && smaller < least && least - smaller < n + m {
            smaller = least;
        }
    }
    let all: f64 = ways[n].iter().sum();
    let tail: f64 = ways[n][..=smaller].iter().sum();
    Some(2.0 * tail / all)
}

/// Median of sorted values, by the interpolation that Go's library uses.
fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    let place = 1.0 / 3.0 + 0.5 * (n + 1.0 / 3.0);
    let whole = place.trunc();
    let index = whole as usize;
    if index == 0 {
        sorted[0]
    } else if index >= sorted.len() {
        sorted[sorted.len() - 1]
    } else {
        sorted[index - 1] + (place - whole) * (sorted[index] - sorted[index - 1])
    }
}

/// The most frequent of sorted values, and how often it occurs.
fn mode(sorted: &[f64]) -> (f64, usize) {
    let mut best = (sorted[0], 0);
    for group in sorted.chunk_by(|a, b| a == b) {
        if group.len() > best.1 {
            best = (group[0], group.len());
        }
    }
    best
}

/// Go's running mean of logarithms.
#[derive(Default)]
struct GeometricMean {
    mean: f64,
    count: f64,
    unfit: bool,
}

impl GeometricMean {
    fn add(&mut self, value: f64) {
        if value <= 0.0 {
            self.unfit = true;
        }
        self.count += 1.0;
        self.mean += (value.ln() - self.mean) / self.count;
    }

    fn value(&self) -> Option<f64> {
        let value = self.mean.exp();
        (!self.unfit && self.count > 0.0 && !value.is_nan()).then_some(value)
    }
}

impl BenchmarkCell {
    /// The interval as a percentage of the centre.
    pub(super) fn percent(&self) -> String {
        if self.lo.is_infinite() || self.hi.is_infinite() {
            return "∞".to_owned();
        }
        let sign = |value: f64| if value == 0.0 { 0.0 } else { value.signum() };
        if sign(self.centre) != sign(self.lo) || sign(self.centre) != sign(self.hi) {
            return "?".to_owned();
        }
        if self.centre == 0.0 {
            return "0%".to_owned();
        }
        let part = (self.hi / self.centre - 1.0).max(1.0 - self.lo / self.centre);
        let mut text = String::with_capacity(8);
        push_fixed(&mut text, 100.0 * part, 0);
        text.push('%');
        text
    }
}

impl CellComparison {
    /// `+1.50%`, `~`, `0.00%` or `?`.
    pub(super) fn delta(&self, centre: f64) -> String {
        if self.p > self.alpha {
            "~".to_owned()
        } else if self.base == centre {
            "0.00%".to_owned()
        } else if self.base == 0.0 {
            "?".to_owned()
        } else {
            let mut text = String::with_capacity(12);
            push_signed(&mut text, (centre / self.base - 1.0) * 100.0, 2);
            text.push('%');
            text
        }
    }

    /// `p=0.000 n=10`.
    pub(super) fn evidence(&self) -> String {
        let mut text = String::with_capacity(16);
        if self.p != 0.0 {
            text.push_str("p=");
            push_fixed(&mut text, self.p, 3);
            text.push(' ');
        }
        match self.n {
            (a, b) if a == b => write!(text, "n={a}"),
            (a, b) => write!(text, "n={a}+{b}"),
        }
        .expect("memory takes all text");
        text
    }
}

impl Data {
    /// Calls `check` with the values that `key` has there, in Go's words:
    /// `.name`, `.fullname`, `.file`, `.unit`, `/sub-name`, a file's key.
    pub(crate) fn look_up(
        &self,
        setting: u32,
        metric: u32,
        key: &str,
        check: &mut dyn FnMut(&str) -> bool,
    ) -> bool {
        let place = self.settings[setting as usize];
        let name = self.words.bytes(place.name);
        let text = |bytes: &[u8], check: &mut dyn FnMut(&str) -> bool| {
            check(&String::from_utf8_lossy(bytes))
        };
        match key {
            ".unit" => {
                let metric = &self.metrics[metric as usize];
                check(&metric.shown) || check(&metric.written)
            }
            ".file" => check(&self.inputs()[place.input as usize]),
            ".fullname" => text(name, check),
            ".name" => text(Self::name_parts(name).0, check),
            _ if key.starts_with('/') => text(self.sub_name(place.name, &key[1..]), check),
            _ => {
                let key = self.keys.find(key.as_bytes());
                let labels = self.context_labels(place.context);
                match labels.iter().find(|(known, _)| Some(*known) == key) {
                    Some((_, word)) => text(self.words.bytes(*word), check),
                    None => check(""),
                }
            }
        }
    }

    /// The value of a benchmark name's part; empty where it has none.
    pub(crate) fn sub_name(&self, name: u32, key: &str) -> &[u8] {
        let (_, parts) = Self::name_parts(self.words.bytes(name));
        if key == crate::data::GOMAXPROCS
            && let Some(procs) = parts.clone().find(|part| part.starts_with(b"-"))
        {
            return &procs[1..];
        }
        let value = |part: &'_ [u8]| {
            let rest = part.strip_prefix(b"/")?.strip_prefix(key.as_bytes())?;
            rest.starts_with(b"=").then_some(part.len() - rest.len() + 1)
        };
        parts.clone().find_map(|part| value(part).map(|start| &part[start..])).unwrap_or_default()
    }
}
