//! The study file's shape, as TOML says it (format version 1).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use vmconfig::{Arch, VmPatch};
use workload::{ParamValue, UnderTest};

use super::{MeasuredVms, NetworkPatch, StudyDisk, schema};

/// Version of the study format that this vmlab reads.
pub(super) const STUDY_FORMAT_VERSION: u32 = 1;

/// A study as TOML says it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyFile {
    pub(super) vmlab: u32,
    pub(super) title: String,
    #[serde(default)]
    pub(super) question: String,
    pub(super) seed: Option<u64>,
    pub(super) baseline: Option<String>,
    pub(super) arch: Option<Arch>,
    #[serde(default)]
    pub(super) budget: BudgetTable,
    #[serde(default)]
    pub(super) stability: crate::limits::StabilityLimits,
    #[serde(default)]
    pub(super) ground: crate::limits::GroundRules,
    #[serde(default)]
    #[schemars(with = "schema::KnownHostSettings")]
    pub(super) host: BTreeMap<String, toml::Value>,
    #[serde(default)]
    pub(super) vm: VmPatch,
    /// Several equal VMs that are measured together.
    #[serde(default)]
    pub(super) measured: MeasuredVms,
    #[serde(default)]
    pub(super) network: NetworkPatch,
    #[serde(default)]
    pub(super) disk: StudyDisk,
    #[serde(default)]
    pub(super) peer: VmPatch,
    #[serde(default)]
    pub(super) variant: Vec<VariantTable>,
    #[serde(default)]
    pub(super) load: Vec<LoadTable>,
    #[serde(default)]
    pub(super) workload: Vec<WorkloadTable>,
    #[serde(default)]
    pub(super) published: Vec<PublishedTable>,
    #[serde(default)]
    pub(super) scale: BTreeMap<String, ScaleTable>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetTable {
    pub(super) blocks: Option<u32>,
    pub(super) minutes: Option<f64>,
    pub(super) until: Option<super::EndCondition>,
    pub(super) race: Option<bool>,
    pub(super) aa_arm: Option<bool>,
    pub(super) boot_limit_s: Option<f64>,
    pub(super) keep_state: Option<bool>,
}

impl BudgetTable {
    /// This budget with `over` laid over it.
    pub(super) fn overlay(&self, over: Self) -> Self {
        Self {
            blocks: over.blocks.or(self.blocks),
            minutes: over.minutes.or(self.minutes),
            until: over.until.or(self.until),
            race: over.race.or(self.race),
            aa_arm: over.aa_arm.or(self.aa_arm),
            boot_limit_s: over.boot_limit_s.or(self.boot_limit_s),
            keep_state: over.keep_state.or(self.keep_state),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VariantTable {
    pub(super) name: Option<String>,
    #[serde(rename = "use", default)]
    #[schemars(with = "Option<schema::BuiltinVariant>")]
    pub(super) builtin: Option<String>,
    #[serde(default)]
    pub(super) about: String,
    #[serde(default)]
    pub(super) on: super::RunsOn,
    #[serde(default)]
    pub(super) vm: VmPatch,
    #[serde(default)]
    pub(super) measured: MeasuredVms,
    #[serde(default)]
    pub(super) disk: StudyDisk,
    #[serde(default)]
    pub(super) network: NetworkPatch,
    #[serde(default)]
    #[schemars(with = "schema::KnownHostSettings")]
    pub(super) host: BTreeMap<String, toml::Value>,
    /// By the workload's label.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, BTreeMap<String, ParamValue>>")]
    pub(super) params: BTreeMap<String, BTreeMap<String, toml::Value>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadTable {
    pub(super) name: String,
    pub(super) stress: Option<StressTable>,
    pub(super) vms: Option<VmsTable>,
    #[serde(default)]
    #[schemars(with = "schema::KnownHostSettings")]
    pub(super) host: BTreeMap<String, toml::Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StressTable {
    pub(super) percent: f64,
    #[serde(default)]
    pub(super) placement: super::LoadPlacement,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = schema::params_of_workload)]
pub(super) struct VmsTable {
    pub(super) count: u32,
    #[schemars(with = "schema::WorkloadName")]
    pub(super) workload: String,
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ParamValue>")]
    pub(super) params: BTreeMap<String, toml::Value>,
    #[serde(default)]
    pub(super) vm: VmPatch,
    /// What single VMs have of their own, by number from 0.
    #[serde(default)]
    pub(super) each: BTreeMap<u32, VmPatch>,
    /// Whether they have what the variant changes of the VM, too.
    #[serde(default)]
    pub(super) follow_variant: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = schema::params_of_run, transform = schema::any_run_if_later)]
pub(super) struct WorkloadTable {
    #[schemars(with = "schema::WorkloadName")]
    pub(super) run: String,
    pub(super) label: Option<String>,
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ParamValue>")]
    pub(super) params: BTreeMap<String, toml::Value>,
    pub(super) invocations: Option<u32>,
    pub(super) margin_percent: Option<f64>,
    #[serde(default)]
    pub(super) margins_percent: BTreeMap<String, f64>,
    pub(super) limit_s: Option<f64>,
    pub(super) under_test: Option<UnderTest>,
    pub(super) background: Option<BackgroundTable>,
    #[serde(default)]
    pub(super) profile: bool,
    pub(super) later: Option<String>,
    /// With `later`: configurations that something was published of, and that are no
    /// variants here.
    #[serde(default)]
    pub(super) published_of: Vec<String>,
}

impl WorkloadTable {
    /// Its label, with [`Self::published_of`].
    pub(super) fn published_of(&self) -> (String, &[String]) {
        (self.label.clone().unwrap_or_else(|| self.run.clone()), &self.published_of)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = schema::params_of_run)]
pub(super) struct BackgroundTable {
    #[schemars(with = "schema::WorkloadName")]
    pub(super) run: String,
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ParamValue>")]
    pub(super) params: BTreeMap<String, toml::Value>,
}

/// A variant's value, an order of variants, a counter's ratio, or a function's shares.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishedTable {
    pub(super) workload: String,
    pub(super) load: Option<String>,
    pub(super) variant: Option<String>,
    pub(super) than: Option<String>,
    pub(super) metric: Option<String>,
    pub(super) counter: Option<String>,
    pub(super) function: Option<String>,
    /// The function that it was called by, whose time is the whole then.
    pub(super) within: Option<String>,
    /// Whose perf met it.
    pub(super) side: Option<record::ProfileSide>,
    pub(super) order: Option<String>,
    /// By metric, where one source has many of a variant.
    #[serde(default)]
    pub(super) values: BTreeMap<String, Numbers>,
    pub(super) value: Option<f64>,
    pub(super) range: Option<[f64; 2]>,
    #[serde(default)]
    pub(super) runs: Vec<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) ratio_range: Option<[f64; 2]>,
    /// Of `variant`, then of `than`.
    pub(super) shares_percent: Option<[f64; 2]>,
    /// Of `variant` alone.
    pub(super) share_percent: Option<f64>,
    pub(super) share_percent_range: Option<[f64; 2]>,
    pub(super) sd: Option<f64>,
    pub(super) unit: Option<String>,
    pub(super) better: Option<record::BetterDirection>,
    pub(super) source: String,
}

/// What was published of a metric.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number, or a list of single runs' numbers")]
pub(super) enum Numbers {
    One(f64),
    Runs(Vec<f64>),
}

/// What a size changes of the study in full.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScaleTable {
    #[serde(default)]
    pub(super) budget: BudgetTable,
    /// Limits, laid over the study's.
    #[serde(default)]
    #[schemars(with = "crate::limits::StabilityLimits")]
    pub(super) stability: toml::Table,
    /// What trials begin on, laid over the study's.
    #[serde(default)]
    #[schemars(with = "crate::limits::GroundRules")]
    pub(super) ground: toml::Table,
    /// Host settings, laid over the study's.
    #[serde(default)]
    #[schemars(with = "schema::KnownHostSettings")]
    pub(super) host: BTreeMap<String, toml::Value>,
    #[serde(default)]
    pub(super) vm: VmPatch,
    /// What variants change of the VM, by their names, laid over what they say themselves.
    #[serde(default)]
    pub(super) variants: BTreeMap<String, VmPatch>,
    #[serde(default)]
    pub(super) measured: MeasuredVms,
    #[serde(default)]
    pub(super) network: NetworkPatch,
    /// Parameters by workload label, laid over the study's.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, BTreeMap<String, ParamValue>>")]
    pub(super) params: BTreeMap<String, BTreeMap<String, toml::Value>>,
    /// Parameters of a workload's background by the workload's label, laid over
    /// the study's.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, BTreeMap<String, ParamValue>>")]
    pub(super) background: BTreeMap<String, BTreeMap<String, toml::Value>>,
    /// The other VMs of a load, by its name, laid over the study's.
    #[serde(default)]
    pub(super) vms: BTreeMap<String, VmsPatch>,
    /// Workloads, loads and variants that it leaves out, by name.
    #[serde(default)]
    pub(super) without: Vec<String>,
    pub(super) invocations: Option<u32>,
}

/// What a size changes of a load's other VMs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VmsPatch {
    pub(super) count: Option<u32>,
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ParamValue>")]
    pub(super) params: BTreeMap<String, toml::Value>,
    #[serde(default)]
    pub(super) vm: VmPatch,
    /// In the place of the load's.
    pub(super) each: Option<BTreeMap<u32, VmPatch>>,
}
