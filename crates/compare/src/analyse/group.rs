//! From series to rows and variants.

use std::collections::HashMap;

use super::roles::{ABSENT, LabelColumn, Roles};
use super::{AnalyseError, CompareOptions, MetricInfo};
use crate::data::{Data, Dataset, FILE, GOMAXPROCS, NAME};
use crate::words::{Interner, MixedMap};

/// Series that belong to one row and variant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) row: u32,
    /// Place in [`Roles::variants`].
    pub(super) variant: u32,
    pub(super) series: u32,
}

/// A row before it is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowKey {
    pub(super) metric: u32,
    context: u32,
    name: u32,
}

/// The data by rows.
#[derive(Debug)]
pub(super) struct RowGroups {
    pub(super) metrics: Vec<MetricInfo>,
    pub(super) rows: Vec<RowKey>,
    /// Sorted by row, variant, series.
    pub(super) members: Vec<Member>,
    pub(super) common: Vec<(String, String)>,
    /// Labels that differ between variants and never inside one, with the
    /// variants' values.
    pub(super) of_variant: Vec<(String, Vec<String>)>,
    /// Metrics that inputs write in several units.
    pub(super) mixed_units: Vec<(String, Vec<String>)>,
    /// Texts of rows, by what is left of context and name.
    texts: Interner,
}

impl RowGroups {
    /// The row's labels as text.
    pub(super) fn name(&self, row: u32) -> String {
        let key = self.rows[row as usize];
        let (context, name) = (self.texts.text(key.context), self.texts.text(key.name));
        match (context.is_empty(), name.is_empty()) {
            (true, true) => self.everywhere(),
            (true, false) => name.into_owned(),
            (false, true) => context.into_owned(),
            (false, false) => format!("{name} ({context})"),
        }
    }
}

impl RowGroups {
    /// The name of a row that no label tells from others.
    fn everywhere(&self) -> String {
        let plain = self.common.iter().filter(|(key, _)| PLAIN_LABELS.contains(&key.as_str()));
        let names: Vec<&str> = plain.map(|(_, value)| value.as_str()).collect();
        if names.is_empty() { "all".to_owned() } else { names.join(", ") }
    }
}

/// Labels whose values name a row by themselves.
const PLAIN_LABELS: [&str; 8] =
    ["benchmark", "workload", "command", "test", "name", "load", "op", "operation"];

/// What is known of a label's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LabelValues {
    Nothing,
    One(u32),
    Many,
}

impl LabelValues {
    fn add(&mut self, value: u32) {
        *self = match *self {
            Self::Nothing => Self::One(value),
            Self::One(known) if known == value => *self,
            _ => Self::Many,
        };
    }
}

pub(super) fn group(
    set: &Dataset,
    ask: &CompareOptions,
    roles: &Roles,
) -> Result<RowGroups, AnalyseError> {
    let data = set.data();
    let (metrics, metric_of, mixed_units) = metrics(data, ask)?;
    let kept = kept(data, ask, roles);
    if kept.is_empty() {
        return Err(AnalyseError::Nothing(": the filter leaves none".to_owned()));
    }
    let labels = RowLabels::of(data, ask, roles, &kept)?;
    let mut texts = Interner::default();
    let mut contexts = vec![ABSENT; data.contexts()];
    let mut names = vec![ABSENT; data.words.len()];
    let mut pairs: MixedMap<u64, u32> = MixedMap::default();
    let mut numbers: MixedMap<u64, u32> = MixedMap::default();
    let mut rows = Vec::new();
    let mut members: Vec<Member> = Vec::with_capacity(kept.len());
    for (series, variant) in kept {
        let at = data.series[series as usize];
        let setting = data.settings[at.setting as usize];
        let metric = metric_of[at.metric as usize];
        let context = &mut contexts[setting.context as usize];
        if *context == ABSENT {
            *context = texts.add(labels.context_text(data, setting.context).as_bytes());
        }
        let name = &mut names[setting.name as usize];
        if *name == ABSENT {
            *name = texts.add(&labels.name_text(data.words.bytes(setting.name)));
        }
        let next = pairs.len() as u32;
        let pair = *pairs.entry(u64::from(*context) << 32 | u64::from(*name)).or_insert(next);
        let next = numbers.len() as u32;
        let row = *numbers.entry(u64::from(metric) << 32 | u64::from(pair)).or_insert(next);
        if row == next {
            rows.push(RowKey { metric, context: *context, name: *name });
        }
        members.push(Member { row, variant, series });
    }
    // By metric first, so that a table shows one.
    let mut order: Vec<u32> = (0..rows.len() as u32).collect();
    order.sort_by_key(|row| (rows[*row as usize].metric, *row));
    let mut place = vec![0; rows.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old as usize] = new as u32;
    }
    let rows = order.iter().map(|row| rows[*row as usize]).collect();
    for member in &mut members {
        member.row = place[member.row as usize];
    }
    members.sort_unstable_by_key(|member| (member.row, member.variant, member.series));
    let RowLabels { common, of_variant, .. } = labels;
    Ok(RowGroups { metrics, rows, members, common, of_variant, mixed_units, texts })
}

/// Metrics by name and unit, the number of each of the data's metrics, and the
/// names that come in several written units.
type Metrics = (Vec<MetricInfo>, Vec<u32>, Vec<(String, Vec<String>)>);

fn metrics(data: &Data, ask: &CompareOptions) -> Result<Metrics, AnalyseError> {
    let mut metrics: Vec<MetricInfo> = Vec::new();
    let mut mixed: Vec<(String, Vec<String>)> = Vec::new();
    let metric_of = data
        .metrics
        .iter()
        .map(|metric| {
            let better = ask.better.get(&metric.name).copied().or(metric.better);
            match mixed.iter_mut().find(|(name, _)| *name == metric.name) {
                Some((_, units)) if units.contains(&metric.written) => {}
                Some((_, units)) => units.push(metric.written.clone()),
                None => mixed.push((metric.name.clone(), vec![metric.written.clone()])),
            }
            let same =
                |known: &MetricInfo| (&known.name, &known.unit) == (&metric.name, &metric.unit);
            if let Some(at) = metrics.iter().position(same) {
                let known = &mut metrics[at];
                known.better = known.better.or(better);
                known.exact |= metric.exact;
                return at as u32;
            }
            metrics.push(MetricInfo {
                name: metric.name.clone(),
                unit: metric.unit.clone(),
                better,
                kind: metric.kind,
                exact: metric.exact,
            });
            metrics.len() as u32 - 1
        })
        .collect();
    mixed.retain(|(_, units)| units.len() > 1);
    for asked in ask.metrics.iter().chain(ask.better.keys()) {
        if !metrics.iter().any(|metric| metric.name == *asked) {
            let known: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
            return Err(AnalyseError::NoMetric { metric: asked.clone(), known: known.join(", ") });
        }
    }
    Ok((metrics, metric_of, mixed))
}

/// The series that take part, with their variants.
fn kept(data: &Data, ask: &CompareOptions, roles: &Roles) -> Vec<(u32, u32)> {
    let mut variant_of: HashMap<u32, u32> = HashMap::new();
    for (place, id) in roles.variant_ids.iter().enumerate() {
        variant_of.insert(*id, place as u32);
    }
    let wanted = |index: usize| {
        let series = data.series[index];
        let metric = &data.metrics[series.metric as usize];
        if !(ask.metrics.is_empty() || ask.metrics.contains(&metric.name)) {
            return None;
        }
        if let Some(filter) = &ask.filter
            && !filter.matches(&|key, check| data.label(series.setting, series.metric, key, check))
        {
            return None;
        }
        let variant = variant_of.get(&roles.variant.id(data, series.setting))?;
        Some((index as u32, *variant))
    };
    (0..data.series.len()).filter_map(wanted).collect()
}

/// The labels that make a row.
struct RowLabels {
    /// Keys of contexts that are part of the row's text.
    keys: Vec<u32>,
    by: Vec<String>,
    /// Parts of names that are no part of the row's text.
    without: Vec<String>,
    common: Vec<(String, String)>,
    of_variant: Vec<(String, Vec<String>)>,
}

impl RowLabels {
    fn of(
        data: &Data,
        ask: &CompareOptions,
        roles: &Roles,
        kept: &[(u32, u32)],
    ) -> Result<Self, AnalyseError> {
        let mut scratch = Interner::default();
        for label in &ask.by {
            if LabelColumn::of(data, &mut scratch, label).is_none() {
                return Err(AnalyseError::NoLabel {
                    label: label.clone(),
                    known: super::roles::known_labels(data),
                });
            }
        }
        let count = roles.variants.len();
        let keys = data.keys.len();
        // Value of each context key, by variant.
        let mut seen = vec![LabelValues::Nothing; count * keys];
        let mut done = std::collections::HashSet::new();
        for (series, variant) in kept {
            let setting = data.settings[data.series[*series as usize].setting as usize];
            if !done.insert((setting.context, *variant)) {
                continue;
            }
            let labels = data.context_labels(setting.context);
            for key in 0..keys as u32 {
                let value = labels.iter().find(|(known, _)| *known == key).map(|pair| pair.1);
                seen[*variant as usize * keys + key as usize].add(value.unwrap_or(ABSENT));
            }
        }
        let text = |word: u32| match word {
            ABSENT => "none".to_owned(),
            word => data.words.text(word).into_owned(),
        };
        let mut result = Self {
            keys: Vec::new(),
            by: ask.by.clone(),
            without: roles.not_in_rows.clone(),
            common: Vec::new(),
            of_variant: Vec::new(),
        };
        for key in 0..keys {
            let label = data.keys.text(key as u32).into_owned();
            let values: Vec<LabelValues> = (0..count).map(|v| seen[v * keys + key]).collect();
            let single: Option<Vec<u32>> = values
                .iter()
                .map(|seen| match seen {
                    LabelValues::One(value) => Some(*value),
                    LabelValues::Nothing => Some(ABSENT),
                    LabelValues::Many => None,
                })
                .collect();
            let is_role = roles.not_in_rows.contains(&label);
            match single {
                Some(_) if is_role => {}
                Some(single) if single.iter().all(|value| *value == single[0]) => {
                    result.common.extend(
                        Some(single[0]).filter(|value| *value != ABSENT).map(|v| (label, text(v))),
                    );
                }
                Some(single) if !ask.by.contains(&label) => {
                    result.of_variant.push((label, single.into_iter().map(text).collect()));
                }
                _ if (ask.by.is_empty() && !is_role) || ask.by.contains(&label) => {
                    result.keys.push(key as u32);
                }
                _ => {}
            }
        }
        Ok(result)
    }

    fn context_text(&self, data: &Data, context: u32) -> String {
        let labels = data.context_labels(context);
        let mut text = String::new();
        for key in &self.keys {
            let Some((_, word)) = labels.iter().find(|(known, _)| known == key) else { continue };
            if !text.is_empty() {
                text.push_str(", ");
            }
            let label = data.keys.text(*key);
            if !PLAIN_LABELS.contains(&&*label) {
                text.push_str(&label);
                text.push('=');
            }
            text.push_str(&data.words.text(*word));
        }
        text
    }

    /// A benchmark's name without the parts that are no part of the row.
    fn name_text(&self, name: &[u8]) -> Vec<u8> {
        let (base, parts) = Data::name_parts(name);
        let stays = |label: &str| match self.by.is_empty() {
            true => !self.without.iter().any(|without| without == label),
            false => self.by.iter().any(|by| by == label),
        };
        let mut text = Vec::new();
        if stays(NAME) {
            text.extend_from_slice(base);
        }
        for part in parts {
            let label = match part.split_first() {
                Some((b'-', _)) => GOMAXPROCS.to_owned(),
                Some((_, rest)) => match memchr::memchr(b'=', rest) {
                    Some(end) => String::from_utf8_lossy(&rest[..end]).into_owned(),
                    None => NAME.to_owned(),
                },
                None => continue,
            };
            if stays(&label) {
                text.extend_from_slice(part);
            }
        }
        text
    }
}

impl Data {
    /// Calls `check` with the values that a label has there: Go's words (see
    /// [`Data::look_up`]), or any label's plain name.
    pub(super) fn label(
        &self,
        setting: u32,
        metric: u32,
        key: &str,
        check: &mut dyn FnMut(&str) -> bool,
    ) -> bool {
        let place = self.settings[setting as usize];
        let bytes = |bytes: &[u8], check: &mut dyn FnMut(&str) -> bool| {
            check(&String::from_utf8_lossy(bytes))
        };
        match key {
            "metric" => check(&self.metrics[metric as usize].name),
            "unit" => {
                let metric = &self.metrics[metric as usize];
                check(&metric.unit) || check(&metric.written)
            }
            FILE => check(&self.inputs()[place.input as usize]),
            _ if key.starts_with(['.', '/']) || self.keys.find(key.as_bytes()).is_some() => {
                self.look_up(setting, metric, key, check)
            }
            NAME => bytes(Self::name_parts(self.words.bytes(place.name)).0, check),
            _ => bytes(self.sub_name(place.name, key), check),
        }
    }
}
