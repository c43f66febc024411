//! Names and labels that the values of a log share.
//!
//! A log says the same few names over and over. The last ones said are kept in
//! a table of fixed size, so that to say one again allocates nothing, and a log
//! of ever new names needs no more memory than its values do.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use record::{Better, Labels, MetricKind, Name, Series};

/// Slots of each table: more than the names of any tool, and than the labels of
/// most tables.
const SLOTS: usize = 4096;

/// Labels derived from others by setting one.
struct DerivedLabels {
    from: Labels,
    key: Name,
    value: Name,
    to: Labels,
}

/// A series derived from another by setting a label.
struct DerivedSeries {
    from: Arc<Series>,
    key: Name,
    value: Name,
    to: Arc<Series>,
}

thread_local! {
    static NAMES: RefCell<Vec<Option<Name>>> = RefCell::new(vec![None; SLOTS]);
    static SERIES: RefCell<Vec<Option<Arc<Series>>>> = RefCell::new(vec![None; SLOTS]);
    static DERIVED_SERIES: RefCell<Vec<Option<DerivedSeries>>> =
        RefCell::new(std::iter::repeat_with(|| None).take(SLOTS).collect());
    static LABELS: RefCell<Vec<Option<DerivedLabels>>> =
        RefCell::new(std::iter::repeat_with(|| None).take(SLOTS).collect());
}

/// What can name a metric, a unit or a label.
pub(crate) trait NameText {
    /// The name.
    fn named(self) -> Name;

    /// What `then` makes of the name. To own one that others share would count it
    /// twice, which takes as long as to look it up.
    #[inline]
    fn with_name<T>(self, then: impl FnOnce(&Name) -> T) -> T
    where
        Self: Sized,
    {
        then(&self.named())
    }
}

impl NameText for &'static str {
    #[inline]
    fn named(self) -> Name {
        Name::known(self)
    }
}

impl NameText for &String {
    fn named(self) -> Name {
        name(self)
    }
}

impl NameText for String {
    fn named(self) -> Name {
        name(&self)
    }
}

impl NameText for fmt::Arguments<'_> {
    fn named(self) -> Name {
        if let Some(text) = self.as_str() {
            return Name::known(text);
        }
        let mut said = KnownName::default();
        // Writing into memory cannot fail.
        let _ = said.write_fmt(self);
        name(&String::from_utf8_lossy(&said.0))
    }
}

/// A text that is said once: most need no allocation.
#[derive(Default)]
struct KnownName(smallvec::SmallVec<[u8; 64]>);

impl fmt::Write for KnownName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl NameText for Name {
    fn named(self) -> Name {
        self
    }
}

impl NameText for &Name {
    fn named(self) -> Name {
        self.clone()
    }

    #[inline]
    fn with_name<T>(self, then: impl FnOnce(&Name) -> T) -> T {
        then(self)
    }
}

/// `text`, shared with the last that said it.
pub(crate) fn name(text: &str) -> Name {
    NAMES.with_borrow_mut(|names| {
        let slot = &mut names[hash(text) % SLOTS];
        match slot {
            Some(name) if *name == text => name.clone(),
            _ => slot.insert(Name::from(text)).clone(),
        }
    })
}

/// `labels` with `key` set to `value`, or without it if that is empty.
pub(super) fn labelled(labels: &Labels, key: impl NameText, value: &str) -> Labels {
    let key = key.named();
    if value.is_empty() {
        return if labels.get(&key).is_some() { labels.without(&key) } else { labels.clone() };
    }
    LABELS.with_borrow_mut(|derived| {
        // Each part moves all bits of the slot: many values of one key are apart. Keys that
        // are said again lie where they lay.
        let place = key.as_ptr().addr().rotate_left(17) ^ labels.address();
        let mixed = place.wrapping_mul(MIX).rotate_left(29) ^ hash(value);
        let slot = &mut derived[(mixed.wrapping_mul(MIX) >> 40) % SLOTS];
        match slot {
            Some(known)
                if known.from.address() == labels.address()
                    && known.key == key
                    && known.value == value =>
            {
                known.to.clone()
            }
            // Said again, it would make ever new labels.
            _ if labels.get(&key) == Some(value) => labels.clone(),
            _ => {
                let value = name(value);
                let to = labels.with(key.clone(), value.clone());
                *slot = Some(DerivedLabels { from: labels.clone(), key, value, to: to.clone() });
                to
            }
        }
    })
}

/// The series of a metric with `labels`, shared with the last values of it.
pub(super) fn series(
    metric: &Name,
    unit: &Name,
    better: Option<Better>,
    kind: MetricKind,
    labels: &Labels,
) -> Arc<Series> {
    SERIES.with_borrow_mut(|known| {
        // Names that are said again lie where they lay.
        let said = metric.as_ptr().addr() ^ unit.as_ptr().addr().rotate_left(23);
        let mixed = said.wrapping_mul(MIX).rotate_left(29) ^ labels.address();
        let slot = &mut known[(mixed.wrapping_mul(MIX) >> 40) % SLOTS];
        match slot {
            Some(series)
                if series.labels.address() == labels.address()
                    && series.metric == *metric
                    && series.unit == *unit
                    && series.better == better
                    && series.kind == kind =>
            {
                Arc::clone(series)
            }
            _ => {
                let (metric, unit, labels) = (metric.clone(), unit.clone(), labels.clone());
                Arc::clone(slot.insert(Arc::new(Series { metric, unit, better, kind, labels })))
            }
        }
    })
}

/// `series` with the label `key` set to `value`, which is not empty.
pub(super) fn labelled_series(
    series: &Arc<Series>,
    key: impl NameText,
    value: &str,
) -> Arc<Series> {
    let key = key.named();
    DERIVED_SERIES.with_borrow_mut(|derived| {
        let place = key.as_ptr().addr().rotate_left(17) ^ Arc::as_ptr(series).addr();
        let mixed = place.wrapping_mul(MIX).rotate_left(29) ^ hash(value);
        let slot = &mut derived[(mixed.wrapping_mul(MIX) >> 40) % SLOTS];
        match slot {
            Some(known)
                if Arc::ptr_eq(&known.from, series) && known.key == key && known.value == value =>
            {
                Arc::clone(&known.to)
            }
            _ => {
                let labels = labelled(&series.labels, key.clone(), value);
                let to =
                    self::series(&series.metric, &series.unit, series.better, series.kind, &labels);
                let from = Arc::clone(series);
                *slot = Some(DerivedSeries { from, key, value: name(value), to: Arc::clone(&to) });
                to
            }
        }
    })
}

const MIX: usize = 0x9e37_79b9_7f4a_7c15;

/// A quick hash: a bad one costs time, never a wrong name.
fn hash(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (head, tail) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => (bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
    };
    let mixed = (head ^ tail.rotate_left(29)) as usize ^ bytes.len();
    mixed.wrapping_mul(MIX) >> 40
}
