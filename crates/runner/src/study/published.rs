//! What others published of the same question: values of variants, orders of
//! variants, ratios of counters, shares of functions.

use record::{BetterDirection, ProfileSide};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::Relation;

use super::HostLoad;
use super::check::{StudyChecker, unknown};
use super::file::{Numbers, PublishedTable, StudyFile};
use super::lines::PathStep::{self, Index, Key};
use super::names::PublishableNames;

/// A result that somebody published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedFigure {
    /// The workload's label.
    pub workload: String,
    /// The host-load level.
    pub load: String,
    /// The variant; of a workload that is not run, any configuration by name.
    pub variant: String,
    /// The metric's name.
    pub metric: String,
    /// The value, in `unit`.
    pub value: Option<f64>,
    /// From where to where the value lies, where that was told instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// The single runs, in `unit`, where these were told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<f64>,
    /// Its ratio to the study's baseline, where the value itself is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// From where to where that ratio lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_range: Option<[f64; 2]>,
    /// Its standard deviation, in `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// The unit: the metric's base unit, where the workload is run.
    pub unit: String,
    /// The better direction of a metric that this vmlab does not know (of a
    /// workload that is not run); it knows that of all others.
    pub better: Option<BetterDirection>,
    /// Where it was published.
    pub source: String,
}

/// Something that was published of two variants and is no variant's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyClaim {
    /// The workload's label.
    pub workload: String,
    /// The host-load level.
    pub load: String,
    /// The variant that it is about.
    pub variant: String,
    /// The variant that it is compared with; none where something was published of one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub than: Option<String>,
    /// What was published of the two.
    #[serde(flatten)]
    pub claimed: StudyClaimKind,
    /// Where it was published.
    pub source: String,
}

/// What was published of two variants, or of a function's time in one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "claimed", rename_all = "kebab-case")]
pub enum StudyClaimKind {
    /// How they stand to each other in a metric.
    Order {
        /// The metric's name.
        metric: String,
        /// How the first stands to the second.
        relation: Relation,
        /// Unit and better direction, of a workload that is not run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unmeasured: Option<(String, BetterDirection)>,
    },
    /// The ratio of what was counted of the first to that of the second.
    CounterRatio {
        /// The counter's name.
        counter: String,
        /// From where to where it lies; the same twice for a single number.
        ratio: [f64; 2],
    },
    /// The ratio of a function's shares of the processors' time; of one variant alone the share
    /// itself.
    FunctionShare {
        /// Whose share, and of what.
        #[serde(flatten)]
        of: ProfiledFunction,
        /// From where to where it lies, a share as a part of 1; the same twice for a single
        /// number.
        ratio: [f64; 2],
        /// The shares, of the first and of the second, where these were told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shares_percent: Option<[f64; 2]>,
    },
}

/// A function whose time was profiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledFunction {
    /// The function's name.
    pub function: String,
    /// The function that it is called by, whose time is the whole; all of it if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Whose perf met it; if none, that of where a variant runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<ProfileSide>,
}

/// Keys that a value, values, an order, a counter's ratio and a function's shares have; all
/// have the rest.
const OF_VALUE: &[&str] = &[
    "variant",
    "metric",
    "value",
    "range",
    "runs",
    "ratio",
    "ratio_range",
    "sd",
    "unit",
    "better",
];
const OF_VALUES: &[&str] = &["variant", "values"];
const OF_ORDER: &[&str] = &["order", "metric", "unit", "better"];
const OF_COUNTER: &[&str] = &["counter", "variant", "than", "ratio", "ratio_range"];
const OF_FUNCTION: &[&str] = &[
    "function",
    "within",
    "side",
    "variant",
    "than",
    "shares_percent",
    "share_percent",
    "share_percent_range",
    "ratio",
    "ratio_range",
];

/// Signs between the variants of an order.
const SIGNS: [(&str, Relation); 3] =
    [(">", Relation::Better), (">=", Relation::AtLeastAsGood), ("=", Relation::Equal)];

impl PublishedTable {
    /// The keys that are there, of those that not all kinds have.
    fn keys(&self) -> impl Iterator<Item = &'static str> {
        [
            ("variant", self.variant.is_some()),
            ("than", self.than.is_some()),
            ("metric", self.metric.is_some()),
            ("counter", self.counter.is_some()),
            ("function", self.function.is_some()),
            ("within", self.within.is_some()),
            ("side", self.side.is_some()),
            ("order", self.order.is_some()),
            ("values", !self.values.is_empty()),
            ("value", self.value.is_some()),
            ("range", self.range.is_some()),
            ("runs", !self.runs.is_empty()),
            ("ratio", self.ratio.is_some()),
            ("ratio_range", self.ratio_range.is_some()),
            ("shares_percent", self.shares_percent.is_some()),
            ("share_percent", self.share_percent.is_some()),
            ("share_percent_range", self.share_percent_range.is_some()),
            ("sd", self.sd.is_some()),
            ("unit", self.unit.is_some()),
            ("better", self.better.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, is_there)| is_there.then_some(key))
    }
}

impl StudyChecker {
    pub(super) fn published(
        &mut self,
        parsed: &StudyFile,
        baseline: &str,
        named: &PublishableNames<'_>,
    ) -> (Vec<PublishedFigure>, Vec<StudyClaim>) {
        let (mut values, mut claims) = (Vec::new(), Vec::new());
        for (index, table) in parsed.published.iter().enumerate() {
            let at = |key| [Key("published"), Index(index), Key(key)];
            if let Some(load) = table.load.as_ref()
                && !named.loads.iter().any(|known| known.name == *load)
            {
                let names = named.loads.iter().map(|load| load.name.as_str());
                self.problem(&at("load"), unknown("load", "load", load, names));
            }
            self.published_workload(index, table, parsed);
            if table.order.is_some() {
                claims.extend(self.order(index, table, named));
            } else if table.counter.is_some() {
                claims.extend(self.counter_ratio(index, table, baseline, named));
            } else if table.function.is_some() {
                claims.extend(self.function_share(index, table, baseline, named));
            } else if table.values.is_empty() {
                values.extend(self.published_value(index, table, named));
            } else {
                values.extend(self.published_values(index, table, named));
            }
        }
        (values, claims)
    }

    /// A variant's values of many metrics, each in its metric's base unit.
    fn published_values(
        &mut self,
        index: usize,
        table: &PublishedTable,
        named: &PublishableNames<'_>,
    ) -> Vec<PublishedFigure> {
        self.only(index, table, "values by metric", OF_VALUES);
        let Some(variant) = self.needed(index, "variant", table.variant.as_ref()) else {
            return Vec::new();
        };
        self.published_variant(index, "variant", variant, table, named);
        let at = |metric| [Key("published"), Index(index), Key("values"), Key(metric)];
        let Some(run) = named.workloads.iter().find(|run| run.label == table.workload) else {
            if named.is_later(&table.workload) {
                let message = format!(
                    "values: units are known of workloads that are run, {} is not; give metric, unit and better one by one",
                    table.workload
                );
                self.problem(&[Key("published"), Index(index), Key("values")], message);
            }
            return Vec::new();
        };
        let mut found = Vec::new();
        for (metric, numbers) in &table.values {
            let all = run.nameable_metrics();
            let Some(known) = all.iter().find(|known| known.name == *metric) else {
                let names = all.iter().map(|metric| metric.name.as_str());
                self.problem(&at(metric), unknown("values", "metric", metric, names));
                continue;
            };
            let (value, runs) = match numbers {
                Numbers::One(value) => (Some(*value), Vec::new()),
                Numbers::Runs(runs) => (None, runs.clone()),
            };
            if runs.is_empty() && value.is_none() {
                self.problem(&at(metric), format!("{metric} = []: give a number, or single runs"));
            }
            if let Some(value) = value.filter(|value| !value.is_finite()) {
                self.problem(&at(metric), format!("{metric} = {value}: must be a number"));
            }
            for run in &runs {
                self.positive(&at(metric), metric, Some(*run));
            }
            found.push(PublishedFigure {
                workload: table.workload.clone(),
                load: table.load.clone().unwrap_or_else(|| named.loads[0].name.clone()),
                variant: variant.clone(),
                metric: metric.clone(),
                value,
                range: None,
                runs,
                ratio: None,
                ratio_range: None,
                sd: None,
                unit: known.unit.0.clone(),
                better: None,
                source: table.source.clone(),
            });
        }
        found
    }

    /// A variant's value.
    fn published_value(
        &mut self,
        index: usize,
        table: &PublishedTable,
        named: &PublishableNames<'_>,
    ) -> Option<PublishedFigure> {
        self.only(index, table, "a variant's value", OF_VALUE);
        let variant = self.needed(index, "variant", table.variant.as_ref())?;
        let metric = self.needed(index, "metric", table.metric.as_ref())?;
        let unit = self.needed(index, "unit", table.unit.as_ref())?;
        self.published_variant(index, "variant", variant, table, named);
        self.published_metric(index, table, metric, named);
        self.published_numbers(index, table);
        Some(PublishedFigure {
            workload: table.workload.clone(),
            load: table.load.clone().unwrap_or_else(|| named.loads[0].name.clone()),
            variant: variant.clone(),
            metric: metric.clone(),
            value: table.value,
            range: table.range,
            runs: table.runs.clone(),
            ratio: table.ratio,
            ratio_range: table.ratio_range,
            sd: table.sd,
            unit: unit.clone(),
            better: table.better,
            source: table.source.clone(),
        })
    }

    /// An order of variants: each pair of neighbours under each load.
    fn order(
        &mut self,
        index: usize,
        table: &PublishedTable,
        named: &PublishableNames<'_>,
    ) -> Vec<StudyClaim> {
        let at = |key| [Key("published"), Index(index), Key(key)];
        self.only(index, table, "an order", OF_ORDER);
        let Some(metric) = self.needed(index, "metric", table.metric.as_ref()) else {
            return Vec::new();
        };
        self.published_metric(index, table, metric, named);
        let is_later = named.is_later(&table.workload);
        if is_later {
            self.needed(index, "unit", table.unit.as_ref());
        }
        let unmeasured = table.unit.clone().zip(table.better).filter(|_| is_later);
        let text = table.order.as_deref().unwrap_or_default();
        let pairs = match pairs(text) {
            Ok(pairs) => pairs,
            Err(message) => {
                self.problem(&at("order"), message);
                return Vec::new();
            }
        };
        for (place, (first, _, second)) in pairs.iter().enumerate() {
            for name in [*first].iter().filter(|_| place == 0).chain([second]) {
                self.published_variant(index, "order", name, table, named);
            }
        }
        let is_here = |load: &&HostLoad| table.load.as_ref().is_none_or(|name| *name == load.name);
        let mut claims = Vec::new();
        for load in named.loads.iter().filter(is_here) {
            claims.extend(pairs.iter().map(|(variant, relation, than)| StudyClaim {
                workload: table.workload.clone(),
                load: load.name.clone(),
                variant: (*variant).to_owned(),
                than: Some((*than).to_owned()),
                claimed: StudyClaimKind::Order {
                    metric: metric.clone(),
                    relation: *relation,
                    unmeasured: unmeasured.clone(),
                },
                source: table.source.clone(),
            }));
        }
        claims
    }

    /// The ratio of a counter of two variants.
    fn counter_ratio(
        &mut self,
        index: usize,
        table: &PublishedTable,
        baseline: &str,
        named: &PublishableNames<'_>,
    ) -> Option<StudyClaim> {
        let at = |key| [Key("published"), Index(index), Key(key)];
        self.only(index, table, "a counter's ratio", OF_COUNTER);
        let counter = table.counter.clone()?;
        if record::counter(&counter).is_none() {
            let known = record::COUNTERS.iter().map(|counter| counter.name);
            self.problem(&at("counter"), unknown("counter", "counter", &counter, known));
        }
        if named.is_later(&table.workload) {
            let message = format!(
                "counter = {counter:?}: nothing is counted of {}, which is not run",
                table.workload
            );
            self.problem(&at("counter"), message);
        }
        let claimed = |ratio| StudyClaimKind::CounterRatio { counter, ratio };
        self.ratio_claim(index, table, baseline, named, claimed)
    }

    /// The shares that a function has of the time of two variants.
    fn function_share(
        &mut self,
        index: usize,
        table: &PublishedTable,
        baseline: &str,
        named: &PublishableNames<'_>,
    ) -> Option<StudyClaim> {
        self.only(index, table, "a function's share", OF_FUNCTION);
        let function = table.function.clone()?;
        for (key, name) in [("function", Some(&function)), ("within", table.within.as_ref())] {
            if let Some(name) = name.filter(|name| name.trim().is_empty()) {
                let message = format!("{key} = {name:?}: give its name");
                self.problem(&[Key("published"), Index(index), Key(key)], message);
            }
        }
        let run = named.workloads.iter().find(|run| run.label == table.workload);
        let no_profile = match run {
            Some(run) if run.profile => None,
            Some(_) => Some(format!("{}: write profile = true there", table.workload)),
            None if named.is_later(&table.workload) => {
                Some(format!("{}, which is not run", table.workload))
            }
            // That there is none of this label is said already.
            None => None,
        };
        if let Some(whose) = no_profile {
            let message = format!("function = {function:?}: there is no profile of {whose}");
            self.problem(&[Key("published"), Index(index), Key("function")], message);
        }
        let shares_percent = table.shares_percent;
        let of = ProfiledFunction { function, within: table.within.clone(), side: table.side };
        let claimed = |ratio| StudyClaimKind::FunctionShare { of, ratio, shares_percent };
        self.ratio_claim(index, table, baseline, named, claimed)
    }

    /// The claim of a ratio between two variants, or of one's share; `claimed` makes what it is
    /// of from where to where that lies.
    fn ratio_claim(
        &mut self,
        index: usize,
        table: &PublishedTable,
        baseline: &str,
        named: &PublishableNames<'_>,
        claimed: impl FnOnce([f64; 2]) -> StudyClaimKind,
    ) -> Option<StudyClaim> {
        let variant = self.needed(index, "variant", table.variant.as_ref())?;
        self.published_variant(index, "variant", variant, table, named);
        let share_key = ["share_percent", "share_percent_range"]
            .into_iter()
            .find(|share| table.keys().any(|key| key == *share));
        let than = match (share_key, &table.than) {
            (None, than) => Some(than.clone().unwrap_or_else(|| baseline.to_owned())),
            (Some(_), None) => None,
            (Some(key), Some(than)) => {
                let message = format!(
                    "than = {than:?}: {key} is of one variant alone; give shares_percent of two"
                );
                self.problem(&[Key("published"), Index(index), Key("than")], message);
                None
            }
        };
        if let Some(than) = &than {
            self.published_variant(index, "than", than, table, named);
        }
        if than.as_ref() == Some(variant) {
            let message = format!(
                "variant = {variant:?}: a ratio to itself says nothing; name another with `than`"
            );
            self.problem(&[Key("published"), Index(index), Key("variant")], message);
        }
        self.published_numbers(index, table);
        let of_shares = table.shares_percent.map(|[variant, than]| variant / than);
        let of_share = table.share_percent.map(|share| share / 100.0);
        let one = table.ratio.or(of_shares).or(of_share).map(|ratio| [ratio; 2]);
        let share_range = table.share_percent_range.map(|range| range.map(|share| share / 100.0));
        Some(StudyClaim {
            workload: table.workload.clone(),
            load: table.load.clone().unwrap_or_else(|| named.loads[0].name.clone()),
            variant: variant.clone(),
            than,
            claimed: claimed(table.ratio_range.or(share_range).or(one)?),
            source: table.source.clone(),
        })
    }

    /// Refuses keys that this kind of published result does not have.
    fn only(&mut self, index: usize, table: &PublishedTable, kind: &str, allowed: &[&str]) {
        for key in table.keys().filter(|key| !allowed.contains(key)) {
            let path = [Key("published"), Index(index), Key(key)];
            let message = format!("{key}: {kind} has none; it takes {}", allowed.join(", "));
            self.problem(&path, message);
        }
    }

    fn needed<'t>(
        &mut self,
        index: usize,
        key: &str,
        value: Option<&'t String>,
    ) -> Option<&'t String> {
        if value.is_none() {
            let message = format!("missing field `{key}`");
            self.problem(&[Key("published"), Index(index)], message);
        }
        value
    }

    fn published_workload(&mut self, index: usize, table: &PublishedTable, parsed: &StudyFile) {
        let labels = parsed.workload.iter();
        let labels = labels.map(|table| table.label.as_deref().unwrap_or(&table.run));
        if labels.clone().all(|label| label != table.workload) {
            let message = unknown("workload", "workload label", &table.workload, labels);
            self.problem(&[Key("published"), Index(index), Key("workload")], message);
        }
    }

    /// A variant of the study, or what the workload says that it was published of, where it
    /// is not run and nothing is compared.
    fn published_variant(
        &mut self,
        index: usize,
        key: &str,
        name: &str,
        table: &PublishedTable,
        named: &PublishableNames<'_>,
    ) {
        let known = named.configurations(&table.workload);
        if known.clone().all(|known| known != name) {
            let mut message = unknown(key, "variant", name, known);
            if named.is_later(&table.workload) {
                message += "; what no variant can be made to stands in the workload's published_of";
            }
            self.problem(&[Key("published"), Index(index), Key(key)], message);
        }
    }

    /// The metric of a workload that is run, or what is to be known of it else.
    fn published_metric(
        &mut self,
        index: usize,
        table: &PublishedTable,
        metric: &str,
        named: &PublishableNames<'_>,
    ) {
        let at = |key| [Key("published"), Index(index), Key(key)];
        let Some(run) = named.workloads.iter().find(|run| run.label == table.workload) else {
            let is_later = named.is_later(&table.workload);
            if is_later && table.better.is_none() {
                let message = format!(
                    "metric {metric:?} of a workload that is not run: say better = \"lower\" or \"higher\""
                );
                self.problem(&at("metric"), message);
            }
            // Under a name of its own, a workload is something else than the catalogue's. One
            // without has problems of its own, else.
            let entry = workload::find(&table.workload).ok().filter(|_| is_later);
            if let Some(entry) = entry
                && entry.metrics.iter().all(|known| known.name != metric)
            {
                let names = entry.metrics.iter().map(|metric| metric.name);
                self.problem(&at("metric"), unknown("metric", "metric", metric, names));
            }
            return;
        };
        let all = run.nameable_metrics();
        match all.iter().find(|known| known.name == metric) {
            None => {
                let names = all.iter().map(|metric| metric.name.as_str());
                self.problem(&at("metric"), unknown("metric", "metric", metric, names));
            }
            Some(known) => {
                if let Some(unit) = table.unit.as_ref().filter(|unit| known.unit.0 != **unit) {
                    let message = format!(
                        "unit = {unit:?}: metric {} is kept in {:?}; give the value in that unit",
                        known.name, known.unit.0
                    );
                    self.problem(&at("unit"), message);
                }
            }
        }
    }

    fn published_numbers(&mut self, index: usize, table: &PublishedTable) {
        let at = |key| [Key("published"), Index(index), Key(key)];
        let said = [
            ("value", table.value.is_some()),
            ("range", table.range.is_some()),
            ("runs", !table.runs.is_empty()),
            ("ratio", table.ratio.is_some()),
            ("ratio_range", table.ratio_range.is_some()),
            ("shares_percent", table.shares_percent.is_some()),
            ("share_percent", table.share_percent.is_some()),
            ("share_percent_range", table.share_percent_range.is_some()),
        ];
        let mut said = said.iter().filter_map(|(key, is_there)| is_there.then_some(*key));
        match (said.next(), said.next()) {
            (Some(first), Some(second)) => {
                let message = format!(
                    "{second}: it follows from {first}, or contradicts it; give one of them"
                );
                self.problem(&at(second), message);
            }
            (None, _) if table.sd.is_none() => {
                let message = if table.function.is_some() {
                    "published nothing: give shares_percent, a share_percent or its range, a ratio, or a ratio_range"
                } else if table.counter.is_some() {
                    "published nothing: give a ratio, or a ratio_range"
                } else {
                    "published nothing: give a value, a range, single runs, a ratio to the baseline, or an sd"
                };
                self.problem(&at("source"), message);
            }
            _ => {}
        }
        if let Some(value) = table.value.filter(|value| !value.is_finite()) {
            self.problem(&at("value"), format!("value = {value}: must be a number"));
        }
        // A counter may come down to nothing.
        let is_none = |value: f64| value == 0.0 && table.counter.is_some();
        let ratio = table.ratio.filter(|ratio| !is_none(*ratio));
        for (key, value) in [("ratio", ratio), ("sd", table.sd)] {
            self.positive(&at(key), key, value);
        }
        let shares = table.shares_percent.into_iter().flatten();
        let shares = shares.map(|share| ("shares_percent", share));
        for (key, share) in shares.chain(table.share_percent.map(|share| ("share_percent", share)))
        {
            self.positive(&at(key), key, Some(share));
            if share > 100.0 {
                let message = format!("{key} = {share}: no share is more than 100");
                self.problem(&at(key), message);
            }
        }
        for value in &table.runs {
            self.positive(&at("runs"), "runs", Some(*value));
        }
        for (key, range) in [
            ("range", table.range),
            ("ratio_range", table.ratio_range),
            ("share_percent_range", table.share_percent_range),
        ] {
            let Some([lo, hi]) = range else { continue };
            self.positive(&at(key), key, Some(lo).filter(|lo| !is_none(*lo)));
            if !(hi.is_finite() && lo <= hi) {
                let message = format!("{key} = [{lo}, {hi}]: the smaller end comes first");
                self.problem(&at(key), message);
            } else if key == "share_percent_range" && hi > 100.0 {
                let message = format!("{key} = [{lo}, {hi}]: no share is more than 100");
                self.problem(&at(key), message);
            }
        }
    }

    fn positive(&mut self, at: &[PathStep<'_>], key: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| !value.is_finite() || *value <= 0.0) {
            self.problem(at, format!("{key} = {value}: must be greater than 0"));
        }
    }
}

/// The pairs of neighbours of an order, `a >= b > c`.
fn pairs(text: &str) -> Result<Vec<(&str, Relation, &str)>, String> {
    let how = "write variants, the best first, with >, >= or = between, as in \"a >= b > c\"";
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() < 3 || words.len().is_multiple_of(2) {
        return Err(format!("order = {text:?}: {how}"));
    }
    let mut pairs: Vec<(&str, Relation, &str)> = Vec::new();
    for three in words.windows(3).step_by(2) {
        let [first, sign, second] = three else { continue };
        let Some((_, relation)) = SIGNS.iter().find(|(known, _)| known == sign) else {
            return Err(format!("order = {text:?}: {sign:?} is no sign; {how}"));
        };
        if *first == *second || pairs.iter().any(|pair| pair.0 == *second) {
            return Err(format!("order = {text:?}: {second:?} stands in it twice"));
        }
        pairs.push((first, *relation, second));
    }
    Ok(pairs)
}
