//! Names and labels that the values of a log share.
//!
//! A log says the same few names over and over. The last ones said are kept in
//! a table of fixed size, so that to say one again allocates nothing, and a log
//! of ever new names needs no more memory than its values do.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use record::{BetterDirection, Labels, LogMetric, MetricKind, Name};

use super::near;

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

thread_local! {
    static NAMES: RefCell<Vec<Option<Name>>> = RefCell::new(vec![None; SLOTS]);
    static METRICS: RefCell<Vec<Option<Arc<LogMetric>>>> = RefCell::new(vec![None; SLOTS]);
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

/// A metric, shared with the last values of it.
#[inline]
pub(super) fn metric(
    metric: impl NameText,
    unit: impl NameText,
    better: Option<BetterDirection>,
    kind: MetricKind,
) -> Arc<LogMetric> {
    metric.with_name(|metric| unit.with_name(|unit| named_metric(metric, unit, better, kind)))
}

fn named_metric(
    metric: &Name,
    unit: &Name,
    better: Option<BetterDirection>,
    kind: MetricKind,
) -> Arc<LogMetric> {
    METRICS.with_borrow_mut(|known| {
        // Names that are said again lie where they lay.
        let said = metric.as_ptr().addr() ^ unit.as_ptr().addr().rotate_left(23);
        let slot = &mut known[(said.wrapping_mul(MIX) >> 40) % SLOTS];
        match slot {
            Some(known)
                if known.metric == *metric
                    && known.unit == *unit
                    && known.better == better
                    && known.kind == kind =>
            {
                Arc::clone(known)
            }
            _ => {
                let (metric, unit) = (metric.clone(), unit.clone());
                Arc::clone(slot.insert(Arc::new(LogMetric { metric, unit, better, kind })))
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
        _ => (near::word_of(bytes), 0),
    };
    let mixed = (head ^ tail.rotate_left(29)) as usize ^ bytes.len();
    mixed.wrapping_mul(MIX) >> 40
}
