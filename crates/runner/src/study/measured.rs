//! Several equal VMs that are measured together: how many, and what tells them apart.

use std::collections::{BTreeMap, BTreeSet};

use record::{BetterDirection, Metric, MetricKind, Unit};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use topology::PcpuSet;
use vmconfig::VmPatch;

/// Most VMs that are measured together.
pub const MAX_MEASURED_VMS: u32 = 256;

/// How the VMs of a variant come to their pCPUs.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MeasuredPlacement {
    /// All as the variant says, so that those with pins share them.
    #[default]
    Same,
    /// Each where `vmlab plan` puts it: pins, guest topology, cells and memory nodes of
    /// its own.
    Planned,
    /// Each guest node's vCPUs on the host node that has most of its memory, once the
    /// guest is up.
    Memory,
    /// Where a kubelet and KubeVirt put them, one after the other.
    Kubevirt(KubevirtNode),
}

/// A node of a cluster, and the guest's part in where it gets its pCPUs there. What is not
/// said is as these programs have it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KubevirtNode {
    /// KubeVirt's version, all three numbers; the newest that is known if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The kubelet's `cpuManagerPolicyOptions`, with commas.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kubelet: String,
    /// Its `reservedSystemCPUs`.
    #[serde(skip_serializing_if = "PcpuSet::is_empty")]
    pub reserved: PcpuSet,
    /// Its `topologyManagerPolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_manager: Option<String>,
    /// The guest's `isolateEmulatorThread`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub isolate_emulator_thread: bool,
    /// The guest's `numa.guestMappingPassthrough`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub guest_mapping_passthrough: bool,
}

/// The VMs that are measured together: a study's `[measured]`, or what a variant changes
/// of it.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MeasuredVms {
    /// How many equal VMs start their workload together; 1 if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vms: Option<u32>,
    /// How they come to their pCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<MeasuredPlacement>,
    /// What single VMs have of their own, by number from 0, laid over all else; what a
    /// variant or a scale says takes the place of the study's as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<BTreeMap<u32, VmPatch>>,
    /// Numbers of the VMs that run the workload with the others, and whose values and
    /// counters are left out.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "each_once")]
    pub left_out: Option<BTreeSet<u32>>,
}

/// Numbers of which none stands there twice.
fn each_once<'de, D>(deserializer: D) -> Result<Option<BTreeSet<u32>>, D::Error>
where
    D: Deserializer<'de>,
{
    let mut all = BTreeSet::new();
    for number in Vec::<u32>::deserialize(deserializer)? {
        if !all.insert(number) {
            return Err(D::Error::custom(format!("VM {number} stands there twice")));
        }
    }
    Ok(Some(all))
}

impl MeasuredVms {
    /// This one with `over` laid over it.
    #[must_use]
    pub fn overlay(&self, over: &Self) -> Self {
        let over = over.clone();
        Self {
            vms: over.vms.or(self.vms),
            placement: over.placement.or_else(|| self.placement.clone()),
            each: over.each.or_else(|| self.each.clone()),
            left_out: over.left_out.or_else(|| self.left_out.clone()),
        }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.vms.unwrap_or(1)
    }

    /// What is wrong with it, with the key.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let count = self.count();
        if count == 0 || count > MAX_MEASURED_VMS {
            return Err(("vms", format!("vms = {count}: must be 1 to {MAX_MEASURED_VMS}")));
        }
        let beyond = |last: Option<&u32>| last.copied().filter(|last| *last >= count);
        let none = |number: u32| format!("there is no VM {number} among {count}, counted from 0");
        if let Some(last) = beyond(self.each.iter().flat_map(BTreeMap::keys).next_back()) {
            return Err(("each", format!("each.{last}: {}", none(last))));
        }
        let left_out = self.left_out.iter().flatten();
        if let Some(last) = beyond(left_out.clone().next_back()) {
            return Err(("left_out", format!("left_out: {}", none(last))));
        }
        if left_out.clone().any(|number| *number == 0) {
            let message = "left_out: VM 0 is the one that the trial tells of; leave out another";
            return Err(("left_out", message.to_owned()));
        }
        Ok(())
    }
}

/// What the VMs' values of one run become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OverVms {
    /// All that they did together.
    Sum,
    /// Their arithmetic mean.
    Mean,
    /// That of the VM that is worst off.
    Worst,
    /// The largest by the smallest.
    Spread,
    /// Their standard deviation, as of a sample (by n - 1).
    Sd,
}

impl OverVms {
    /// Behind the metric's name.
    fn suffix(self) -> &'static str {
        match self {
            Self::Sum => ".sum",
            Self::Mean => ".mean",
            Self::Worst => ".worst",
            Self::Spread => ".spread",
            Self::Sd => ".sd",
        }
    }

    /// What a metric becomes where several VMs are measured, what leads first: work that
    /// was done adds up, times do not.
    fn of(kind: MetricKind) -> &'static [Self] {
        match kind {
            MetricKind::Rate => &[Self::Sum, Self::Mean, Self::Worst, Self::Spread, Self::Sd],
            MetricKind::Count => &[Self::Sum, Self::Mean, Self::Spread, Self::Sd],
            MetricKind::Time | MetricKind::Quantile => {
                &[Self::Mean, Self::Worst, Self::Spread, Self::Sd]
            }
        }
    }

    fn of_values(self, better: BetterDirection, values: &[f64]) -> Option<f64> {
        let largest = values.iter().copied().reduce(f64::max)?;
        let smallest = values.iter().copied().reduce(f64::min)?;
        let sum: f64 = values.iter().sum();
        Some(match self {
            Self::Sum => sum,
            Self::Mean => sum / values.len() as f64,
            Self::Worst => match better {
                BetterDirection::Higher => smallest,
                BetterDirection::Lower => largest,
            },
            Self::Sd => (values.len() > 1).then(|| {
                let mean = sum / values.len() as f64;
                let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
                (squares / (values.len() - 1) as f64).sqrt()
            })?,
            // None that did nothing can be compared with.
            Self::Spread => (smallest > 0.0).then(|| largest / smallest)?,
        })
    }
}

/// The metrics that `metric` becomes where several VMs are measured, the leading one
/// first.
fn over_vms(metric: &Metric) -> impl Iterator<Item = (OverVms, Metric)> + '_ {
    OverVms::of(metric.kind).iter().copied().map(|over| {
        let name = format!("{}{}", metric.name, over.suffix());
        let metric = match over {
            OverVms::Spread => Metric {
                name,
                unit: Unit::from("ratio"),
                better: BetterDirection::Lower,
                kind: MetricKind::Quantile,
            },
            OverVms::Sd => Metric {
                name,
                unit: metric.unit.clone(),
                better: BetterDirection::Lower,
                kind: MetricKind::Quantile,
            },
            _ => Metric { name, ..metric.clone() },
        };
        (over, metric)
    })
}

/// The metrics that those of one VM become where several are measured.
#[must_use]
pub fn metrics_over_vms(of_one: &[Metric]) -> Vec<Metric> {
    of_one.iter().flat_map(over_vms).map(|(_, metric)| metric).collect()
}

/// Whether `metric` is what the VMs' values of one of `of_one` add up to.
#[must_use]
pub fn is_sum_over_vms(metric: &Metric, of_one: &[Metric]) -> bool {
    let name = metric.name.strip_suffix(OverVms::Sum.suffix());
    name.is_some_and(|name| of_one.iter().any(|one| one.name == name))
}

/// What one run of several VMs brought of `metric`: a value by name, from one value of
/// each VM. Empty if a VM has none.
#[must_use]
pub fn values_over_vms(metric: &Metric, of_each: &[Option<f64>]) -> Vec<(String, f64)> {
    let Some(values) = of_each.iter().copied().collect::<Option<Vec<f64>>>() else {
        return Vec::new();
    };
    let value = |(over, named): (OverVms, Metric)| {
        Some((named.name, over.of_values(metric.better, &values)?))
    };
    over_vms(metric).filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(kind: MetricKind, better: BetterDirection) -> Metric {
        Metric { name: "m".to_owned(), unit: Unit::from("s"), better, kind }
    }

    fn check(
        kind: MetricKind,
        better: BetterDirection,
        values: &[Option<f64>],
        expected: &[(&str, f64)],
    ) {
        let found = values_over_vms(&metric(kind, better), values);
        let found: Vec<(&str, f64)> =
            found.iter().map(|(name, value)| (&name[..], *value)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn work_adds_up_and_times_do_not() {
        let values = [Some(2.0), Some(4.0)];
        check(
            MetricKind::Rate,
            BetterDirection::Higher,
            &values,
            &[
                ("m.sum", 6.0),
                ("m.mean", 3.0),
                ("m.worst", 2.0),
                ("m.spread", 2.0),
                ("m.sd", 2.0_f64.sqrt()),
            ],
        );
        check(
            MetricKind::Time,
            BetterDirection::Lower,
            &values,
            &[("m.mean", 3.0), ("m.worst", 4.0), ("m.spread", 2.0), ("m.sd", 2.0_f64.sqrt())],
        );
        // Nothing is made up for a VM that has no value, or did nothing.
        check(MetricKind::Time, BetterDirection::Lower, &[Some(1.0), None], &[]);
        let idle = [Some(0.0), Some(4.0)];
        let sd = 8.0_f64.sqrt();
        let expected = [("m.sum", 4.0), ("m.mean", 2.0), ("m.sd", sd)];
        check(MetricKind::Count, BetterDirection::Lower, &idle, &expected);
        let alone = [("m.sum", 4.0), ("m.mean", 4.0), ("m.spread", 1.0)];
        check(MetricKind::Count, BetterDirection::Lower, &[Some(4.0)], &alone);
    }

    #[test]
    fn sums_are_known_by_what_they_are_made_of() {
        let of_one = [metric(MetricKind::Rate, BetterDirection::Higher)];
        let names = metrics_over_vms(&of_one).into_iter();
        let sums: Vec<String> = names
            .filter(|metric| is_sum_over_vms(metric, &of_one))
            .map(|metric| metric.name)
            .collect();
        assert_eq!(sums, ["m.sum"]);
    }

    #[test]
    fn a_variants_own_takes_the_place_of_the_studys() {
        let parse = |text: &str| toml::from_str::<MeasuredVms>(text).unwrap();
        let all = parse("vms = 3\neach.0.pins = ['1']\neach.1 = { memory_mib = 512 }");
        let both = all.overlay(&parse("vms = 2\neach.0.memory_mib = 256"));
        assert_eq!(both.count(), 2);
        let each = both.each.as_ref().unwrap();
        assert_eq!((each.len(), each[&0].memory_mib), (1, Some(256)));
        assert!(both.check().is_ok());
        let wrong = |over: &str| all.overlay(&parse(over)).check().unwrap_err();
        assert_eq!(wrong("vms = 1").0, "each");
        assert_eq!(wrong("vms = 0").0, "vms");
        assert_eq!(wrong("left_out = [3]").0, "left_out");
        assert_eq!(wrong("left_out = [0, 1]").0, "left_out");
    }
}
