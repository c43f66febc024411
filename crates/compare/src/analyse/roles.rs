//! Which label holds the variants, the blocks, the boots.

use super::{AnalyseError, CompareOptions, Design};
use crate::data::{Data, Dataset, FILE, GOMAXPROCS, LabelCombination, NAME};
use crate::words::Interner;

/// Labels that hold variants where nobody says another.
const VARIANT_LABELS: [&str; 4] = ["variant", "config", "configuration", "cfg"];
/// Labels that hold blocks where nobody says another.
const BLOCK_LABELS: [&str; 2] = ["block", "pair"];
/// Labels that hold boots where nobody says another.
const BOOT_LABELS: [&str; 3] = ["boot", "trial", "vm_boot"];
/// Labels that number what is below a boot, or the order, and make no row.
const COUNTERS: [&str; 18] = [
    "run",
    "sample",
    "iteration",
    "iter",
    "invocation",
    "repeat",
    "rep",
    "attempt",
    "order",
    "seq",
    "sequence",
    "index",
    "line",
    "time",
    "timestamp",
    "date",
    "started_unix_s",
    "trial",
];
/// Names that a baseline has where nobody says another.
const BASELINE_NAMES: [&str; 8] =
    ["baseline", "base", "old", "before", "control", "default", "main", "master"];

/// A label's value for each setting.
#[derive(Debug)]
pub(super) struct LabelColumn {
    place: LabelOrigin,
    /// Numbers of values, by input, context or benchmark name.
    ids: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelOrigin {
    Input,
    Context,
    Name,
}

/// No value.
pub(super) const ABSENT: u32 = u32::MAX;

impl LabelColumn {
    /// The column of `label`, if any value bears it.
    pub(super) fn of(data: &Data, values: &mut Interner, label: &str) -> Option<Self> {
        let is_named = |setting: &LabelCombination| !data.words.bytes(setting.name).is_empty();
        let column = |place, ids: Vec<u32>| {
            ids.iter().any(|id| *id != ABSENT).then_some(Self { place, ids })
        };
        if label == FILE {
            let ids = data.inputs().iter().map(|input| values.add(input.as_bytes())).collect();
            return column(LabelOrigin::Input, ids);
        }
        if let Some(key) = data.keys.find(label.as_bytes()) {
            let ids = (0..data.contexts() as u32).map(|context| {
                let labels = data.context_labels(context);
                let word = labels.iter().find(|(known, _)| *known == key);
                word.map_or(ABSENT, |(_, word)| values.add(data.words.bytes(*word)))
            });
            return column(LabelOrigin::Context, ids.collect());
        }
        if !data.settings.iter().any(is_named) {
            return None;
        }
        let ids = (0..data.words.len() as u32).map(|word| {
            let value = if label == NAME {
                Data::name_parts(data.words.bytes(word)).0
            } else {
                data.sub_name(word, label)
            };
            if value.is_empty() { ABSENT } else { values.add(value) }
        });
        column(LabelOrigin::Name, ids.collect())
    }

    pub(super) fn id(&self, data: &Data, setting: u32) -> u32 {
        let setting = data.settings[setting as usize];
        match self.place {
            LabelOrigin::Input => self.ids[setting.input as usize],
            LabelOrigin::Context => self.ids[setting.context as usize],
            LabelOrigin::Name => self.ids[setting.name as usize],
        }
    }
}

/// The labels' roles.
#[derive(Debug)]
pub(super) struct Roles {
    pub(super) variant_label: String,
    pub(super) variant: LabelColumn,
    pub(super) block_label: Option<String>,
    pub(super) block: Option<LabelColumn>,
    pub(super) boot_label: Option<String>,
    pub(super) boot: Option<LabelColumn>,
    /// The variants, the baseline first, and the numbers of their values.
    pub(super) variants: Vec<String>,
    pub(super) variant_ids: Vec<u32>,
    /// What was chosen without being asked, in words.
    pub(super) notes: Vec<String>,
    /// The labels that rows are not made of.
    pub(super) not_in_rows: Vec<String>,
}

impl Roles {
    pub(super) fn of(set: &Dataset, ask: &CompareOptions) -> Result<Self, AnalyseError> {
        let data = set.data();
        if data.series.is_empty() {
            return Err(AnalyseError::Nothing(String::new()));
        }
        let mut values = Interner::default();
        let mut notes = Vec::new();
        let (variant_label, variant) = Self::variant(data, &mut values, ask)?;
        let own = |label: &str| *label != *variant_label;
        let mut role = |asked: &Option<String>, usual: &[&str]| match asked {
            Some(label) => match LabelColumn::of(data, &mut values, label) {
                Some(column) => Ok(Some((label.clone(), column))),
                None => Err(no_label(data, label)),
            },
            None => Ok(usual.iter().filter(|label| own(label)).find_map(|label| {
                LabelColumn::of(data, &mut values, label)
                    .map(|column| ((*label).to_owned(), column))
            })),
        };
        // Blocks of two inputs have nothing to do with each other, whatever
        // their numbers, unless somebody says that they have.
        let block = match variant_label == FILE && ask.block.is_none() {
            true => None,
            false => role(&ask.block, &BLOCK_LABELS)?,
        };
        let boot = role(&ask.boot, &BOOT_LABELS)?;

        let mut ids: Vec<u32> = Vec::new();
        for series in &data.series {
            let id = variant.id(data, series.setting);
            if id != ABSENT && !ids.contains(&id) {
                ids.push(id);
            }
        }
        let name = |id: u32| values.text(id).into_owned();
        if ids.len() < 2 {
            let value = ids.first().map(|id| name(*id)).unwrap_or_default();
            return Err(if variant_label == FILE {
                AnalyseError::OneVariant(known_labels(data))
            } else {
                AnalyseError::SingleValue { label: variant_label, value }
            });
        }
        if variant_label != FILE {
            // Not the order in which they were read: a verdict must not depend
            // on that.
            ids.sort_by_key(|id| name(*id));
        }
        let base = Self::baseline(&ids, name, ask, variant_label == FILE, &mut notes)?;
        let base = ids.remove(base);
        ids.insert(0, base);
        let variants = ids.iter().map(|id| name(*id)).collect();

        let mut not_in_rows: Vec<String> = COUNTERS.map(str::to_owned).to_vec();
        not_in_rows.extend([FILE.to_owned(), variant_label.clone()]);
        not_in_rows
            .extend(BLOCK_LABELS.iter().chain(&BOOT_LABELS).map(|label| (*label).to_owned()));
        let (block_label, block) = block.unzip();
        let (boot_label, boot) = boot.unzip();
        not_in_rows.extend(block_label.iter().chain(&boot_label).cloned());
        not_in_rows.retain(|label| !ask.by.contains(label));
        Ok(Self {
            variant_label,
            variant,
            block_label,
            block,
            boot_label,
            boot,
            variants,
            variant_ids: ids,
            notes,
            not_in_rows,
        })
    }

    fn variant(
        data: &Data,
        values: &mut Interner,
        ask: &CompareOptions,
    ) -> Result<(String, LabelColumn), AnalyseError> {
        let column = |values: &mut Interner, label: &str| LabelColumn::of(data, values, label);
        if let Some(label) = &ask.variant {
            let found = column(values, label).ok_or_else(|| no_label(data, label))?;
            return Ok((label.clone(), found));
        }
        for label in VARIANT_LABELS {
            let Some(found) = column(values, label) else { continue };
            let mut ids = data.series.iter().map(|series| found.id(data, series.setting));
            let first = ids.next();
            if ids.any(|id| Some(id) != first) {
                return Ok((label.to_owned(), found));
            }
        }
        if data.inputs().len() < 2 {
            // One file of hyperfine's compares its commands.
            return match column(values, "command") {
                Some(found) => Ok(("command".to_owned(), found)),
                None => Err(AnalyseError::OneVariant(known_labels(data))),
            };
        }
        let found = column(values, FILE).expect("there are inputs, and each has a name");
        Ok((FILE.to_owned(), found))
    }

    fn baseline(
        ids: &[u32],
        name: impl Fn(u32) -> String,
        ask: &CompareOptions,
        of_files: bool,
        notes: &mut Vec<String>,
    ) -> Result<usize, AnalyseError> {
        if let Some(baseline) = &ask.baseline {
            let found = ids.iter().position(|id| name(*id) == *baseline);
            return found.ok_or_else(|| AnalyseError::NoBaseline {
                baseline: baseline.clone(),
                known: ids.iter().map(|id| name(*id)).collect::<Vec<_>>().join(", "),
            });
        }
        if of_files {
            return Ok(0);
        }
        let usual = |known: &str| ids.iter().position(|id| name(*id).eq_ignore_ascii_case(known));
        let found = BASELINE_NAMES.iter().find_map(|known| usual(known)).unwrap_or(0);
        notes.push(format!(
            "{} is taken for the baseline; --baseline names another.",
            name(ids[found])
        ));
        Ok(found)
    }

    pub(super) fn design(&self) -> Design {
        match (&self.block, &self.boot) {
            (Some(_), _) => Design::Paired,
            (None, Some(_)) => Design::UnblockedBoots,
            (None, None) => Design::UnblockedValues,
        }
    }

    /// How it was compared, and what that costs.
    pub(super) fn method(&self, ask: &CompareOptions) -> Vec<String> {
        let mut method = match &self.block_label {
            Some(label) => vec![format!(
                "Inside blocks (label {label}): Student's t on the logarithms of the ratios, one number a boot."
            )],
            None => {
                let advice = if ask.advise_options {
                    "; --block names the label that says more"
                } else {
                    ""
                };
                vec![format!(
                    "Which boots were measured beside each other is not known: Welch's t on the logarithms, with the Mann-Whitney test as a second opinion. Drift of the machine and the order of measurement count as differences here{advice}."
                )]
            }
        };
        method.push(match (&self.boot_label, &self.block_label) {
            (Some(label), _) => format!("One number a boot (label {label})."),
            (None, Some(_)) => "One number a variant and block.".to_owned(),
            (None, None) => "Which values come from one boot is not known, so each counts as a boot of its own. If several come from one, the intervals are too narrow and more than one in twenty verdicts is wrong; --boot names the label that says it.".to_owned(),
        });
        method.push(format!(
            "Verdicts at {} %, margin {} %.",
            report::percent(ask.alpha),
            report::percent(ask.margin)
        ));
        method.extend(self.notes.iter().cloned());
        method
    }
}

fn no_label(data: &Data, label: &str) -> AnalyseError {
    AnalyseError::NoLabel { label: label.to_owned(), known: known_labels(data) }
}

/// All labels, for errors.
pub(super) fn known_labels(data: &Data) -> String {
    let mut labels = vec![FILE.to_owned()];
    // Imported values say their file by the same name.
    let keys = (0..data.keys.len() as u32).map(|key| data.keys.text(key).into_owned());
    labels.extend(keys.filter(|key| key != FILE));
    let named = data.settings.iter().filter(|setting| !data.words.bytes(setting.name).is_empty());
    // The labels of a few names stand for all.
    for setting in named.take(100) {
        let (_, parts) = Data::name_parts(data.words.bytes(setting.name));
        let mut add = |label: &str| {
            if !labels.iter().any(|known| known == label) {
                labels.push(label.to_owned());
            }
        };
        add(NAME);
        for part in parts {
            let part = String::from_utf8_lossy(part);
            match part.strip_prefix('/').and_then(|part| part.split_once('=')) {
                Some((key, _)) => add(key),
                None if part.starts_with('-') => add(GOMAXPROCS),
                None => {}
            }
        }
    }
    labels.join(", ")
}
