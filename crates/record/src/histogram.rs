//! Distributions of latency, as benchmarks count them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How often each latency came in one run of a benchmark.
///
/// The buckets are the tool's own, so that nothing is rounded twice and runs
/// of one boot are merged by adding what they counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// What it is of: `latency`, `read-latency`. Metrics that are its quantiles
    /// have this name with `-p99` behind it (see [`crate::Metric::quantile`]).
    pub name: String,
    /// The value that the tool lets stand for a bucket, ns, and how many
    /// values it holds: values rise, and no bucket is empty.
    pub buckets_ns: Vec<(u64, u64)>,
    /// Values greater than all that the tool has buckets for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overflows: u64,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Histogram {
    /// From buckets in any order; those of one value are added up.
    #[must_use]
    pub fn new(
        name: &str,
        buckets_ns: impl IntoIterator<Item = (u64, u64)>,
        overflows: u64,
    ) -> Self {
        let mut counts = std::collections::BTreeMap::<u64, u64>::new();
        for (value, count) in buckets_ns.into_iter().filter(|(_, count)| *count > 0) {
            let sum = counts.entry(value).or_default();
            *sum = sum.saturating_add(count);
        }
        Self { name: name.to_owned(), buckets_ns: counts.into_iter().collect(), overflows }
    }

    /// Values in all, overflows among them.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets_ns.iter().fold(self.overflows, |sum, (_, count)| sum.saturating_add(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_rise_and_none_is_empty() {
        let histogram = Histogram::new("latency", [(3000, 2), (1000, 1), (2000, 0), (3000, 4)], 5);
        assert_eq!(histogram.buckets_ns, [(1000, 1), (3000, 6)]);
        assert_eq!(histogram.count(), 12);
        assert_eq!(Histogram::new("latency", [(1, u64::MAX), (2, 1)], 1).count(), u64::MAX);
    }

    #[test]
    fn what_is_written_is_read_and_overflows_may_be_absent() {
        let histogram = Histogram::new("latency", [(1000, 1)], 0);
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(text, r#"{"name":"latency","buckets_ns":[[1000,1]]}"#);
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
    }
}
