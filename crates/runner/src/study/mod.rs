//! The study: what shall be compared, under which host loads, by which
//! workloads, and what it may cost.
//!
//! [`Study::parse`] reads the TOML text and checks everything that can be
//! checked without the machine; problems name file, line and value. Nothing
//! here touches a file or the host.

mod check;
mod disk;
mod file;
mod lines;
mod measured;
mod names;
mod network;
mod on_host;
mod published;
mod runs_on;
mod scale;
mod schema;
mod settings;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use record::Metric;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmconfig::{Arch, VmPatch};
use workload::{CatalogueEntry, ParamError, ParamValue, Params, UnderTest};

pub(crate) use check::unpinned;
pub use disk::{DiskBacking, DiskDevices, EachWord, StudyBus, StudyDisk, StudyIothread};
pub(crate) use disk::{DiskWish, block_device, is_free, serial};
pub use file::StudyFile;
pub use measured::{
    KubevirtNode, MAX_MEASURED_VMS, MeasuredPlacement, MeasuredVms, is_sum_over_vms,
    metrics_over_vms, values_over_vms,
};
pub use network::{NetworkKind, NetworkPatch, StudyNetwork, SwitchProgram};
pub use published::{ProfiledFunction, PublishedFigure, StudyClaim, StudyClaimKind};
pub use runs_on::RunsOn;
pub use settings::{HostSettings, SettingOwner, describe};
use topology::bounded::FileProblems;

use crate::limits::{GroundRules, StabilityLimits};

/// Blocks run at most when a study names no budget. A clear difference is
/// decided after five of them; twenty see half of what five see.
pub const DEFAULT_BLOCKS: u32 = 20;

/// The smallest relative difference that matters when a workload names no
/// margin, percent.
pub const DEFAULT_MARGIN_PERCENT: f64 = 3.0;

/// Time that a guest gets from QEMU's start to its agent's first answer, s.
/// Emulated guests on a busy machine need tens of seconds at worst.
pub const DEFAULT_BOOT_LIMIT_S: f64 = 120.0;

/// The longest time limit, s: a year, which no clock overflows.
pub const LONGEST_LIMIT_S: f64 = 31_536_000.0;

/// The label that the second copy of the baseline carries.
pub const AA_SUFFIX: &str = "+aa";

/// A study that was read and found to be sound.
#[derive(Debug, Clone)]
pub struct Study {
    /// The file, as it was named.
    pub file: String,
    /// Where everything stands in it.
    places: StudyLines,
    /// Short name: the file's stem.
    pub name: String,
    /// The TOML text as it was read.
    pub text: String,
    /// Which of its sizes this is; none for the study in full.
    pub scale: Option<String>,
    /// One line for people.
    pub title: String,
    /// The question that the study answers.
    pub question: String,
    /// The seed of the trial order, if the study fixes one.
    pub seed: Option<u64>,
    /// The variant that the others are compared with.
    pub baseline: String,
    /// What it may cost.
    pub budget: StudyBudget,
    /// When the host counts as steady.
    pub stability: StabilityLimits,
    /// What every trial begins on.
    pub ground: GroundRules,
    /// Host settings for the time of the study, by id.
    pub host_settings: BTreeMap<String, String>,
    /// Whether modules may be loaded again for host settings.
    pub reload: bool,
    /// The guests' architecture; the host's if it names none.
    pub arch: Option<Arch>,
    /// The base VM.
    pub base: VmPatch,
    /// The VM that plays the other role of workloads that have two: the base
    /// VM without its pins, with the changes of `[peer]`.
    pub peer: VmPatch,
    /// How it and the VM under test are connected.
    pub network: NetworkPatch,
    /// How the empty disk of workloads that want one is attached.
    pub disk: StudyDisk,
    /// The variants, baseline included, in the file's order.
    pub variants: Vec<StudyVariant>,
    /// The host-load levels.
    pub loads: Vec<HostLoad>,
    /// The workloads that are run.
    pub workloads: Vec<StudyWorkload>,
    /// Workloads that the study names but does not run yet, with the reason.
    pub later: Vec<(String, String)>,
    /// Published results to show beside the measured ones.
    pub published: Vec<PublishedFigure>,
    /// What was published of two variants and is no variant's value.
    pub published_claims: Vec<StudyClaim>,
}

/// When a study ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndCondition {
    /// As soon as every comparison is decided, at the latest when the budget is
    /// used up: the bounds account for looking after each block.
    #[default]
    Decided,
    /// When the budget is used up, whatever is seen before.
    Budget,
}

/// What a study may cost. Both limits hold where both are given; without any
/// it goes on until all is decided.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyBudget {
    /// Blocks for each host-load level.
    pub blocks: Option<u32>,
    /// Wall-clock minutes for the whole study.
    pub minutes: Option<f64>,
    /// When it ends.
    pub until: EndCondition,
    /// Whether variants that are clearly worse than another candidate are left
    /// out of later blocks, though their difference from the baseline is open.
    pub race: bool,
    /// Whether the baseline runs a second time in each block, as a check.
    pub aa_arm: bool,
    /// Time limit of a boot, s.
    pub boot_limit_s: f64,
    /// Whether the devices' state of a guest that hangs or panics is kept. Plans of
    /// earlier versions did not say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_state: bool,
}

/// One configuration of the VM under test.
#[derive(Debug, Clone)]
pub struct StudyVariant {
    /// Its name.
    pub name: String,
    /// What it is for, one line; may be empty.
    pub about: String,
    /// Where its workloads run.
    pub on: RunsOn,
    /// The built-in variant that it begins with; what that changes depends on
    /// the host.
    pub builtin: Option<String>,
    /// The study's base VM with the variant's changes, without those of the
    /// built-in variant.
    pub vm: VmPatch,
    /// The variant's changes alone.
    pub changes: VmPatch,
    /// The VMs that are measured together: the study's, with the variant's changes.
    pub measured: MeasuredVms,
    /// What it changes of the study's network.
    pub network: NetworkPatch,
    /// What it changes of the study's empty disk.
    pub disk: StudyDisk,
    /// Host settings for its trials, by id.
    pub host: BTreeMap<String, String>,
    /// What it changes of the workloads' parameters, by label.
    pub params: VariantParams,
    /// The variant that this one repeats, for the A/A arm.
    pub aa_of: Option<String>,
}

/// What a variant changes of workloads' parameters, by the workloads' labels.
pub type VariantParams = BTreeMap<String, BTreeMap<String, ParamValue>>;

/// Parameters of the workload `label` as a variant has them.
#[must_use]
pub fn params_in(
    label: &str,
    params: &BTreeMap<String, ParamValue>,
    changes: &VariantParams,
) -> BTreeMap<String, ParamValue> {
    let mut all = params.clone();
    all.extend(changes.get(label).cloned().unwrap_or_default());
    all
}

/// A host-load level: what else the host does during the trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostLoad {
    /// Its name.
    pub name: String,
    /// Busy host processes.
    pub stress: Option<Stress>,
    /// Other VMs.
    pub vms: Option<OtherVms>,
    /// Host settings for its blocks, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host: BTreeMap<String, String>,
}

impl HostLoad {
    /// The level at which the host does nothing else.
    #[must_use]
    pub fn idle() -> Self {
        Self { name: "idle".to_owned(), stress: None, vms: None, host: BTreeMap::new() }
    }

    /// True if the host does nothing else.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.stress.is_none() && self.vms.is_none()
    }

    /// What the level is, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        if let Some(stress) = &self.stress {
            parts.push(format!(
                "stress-ng at {} % of the host's pCPUs, {}",
                stress.percent, stress.placement
            ));
        }
        if let Some(vms) = &self.vms {
            let as_variant =
                if vms.follows.is_some() { ", with the variant's changes" } else { "" };
            let OtherVms { count, workload, .. } = vms;
            parts.push(format!("{count} other VM(s) running {workload}{as_variant}"));
        }
        parts.extend(describe(&self.host));
        if parts.is_empty() { "nothing else runs".to_owned() } else { parts.join("; ") }
    }
}

/// Busy host processes (stress-ng).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stress {
    /// Percent of the host's pCPU capacity: 50 keeps half of all pCPUs busy.
    pub percent: f64,
    /// Where the processes may run.
    pub placement: LoadPlacement,
}

/// Where host load may run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoadPlacement {
    /// On any pCPU.
    #[default]
    Anywhere,
    /// On the pCPUs that no vCPU of any variant is pinned to.
    OffVm,
}

impl fmt::Display for LoadPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anywhere => "anywhere",
            Self::OffVm => "off the VM's pCPUs",
        })
    }
}

/// Other VMs that run beside the one under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherVms {
    /// How many.
    pub count: u32,
    /// The catalogue's workload that each repeats until the block ends.
    pub workload: String,
    /// Its parameters, as the study gives them.
    pub params: BTreeMap<String, ParamValue>,
    /// Their configuration.
    pub vm: VmPatch,
    /// What single VMs have of their own, by number from 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub each: BTreeMap<u32, VmPatch>,
    /// Where they follow the variant: what the load itself says of them, which holds above
    /// what the variant changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<VmPatch>,
}

/// A workload as the study runs it.
#[derive(Debug, Clone)]
pub struct StudyWorkload {
    /// Its label: unique in the study.
    pub label: String,
    /// The catalogue's row.
    pub entry: &'static CatalogueEntry,
    /// Its parameters, as the study gives them.
    pub params: BTreeMap<String, ParamValue>,
    /// Benchmark invocations in each boot; none where the first blocks are to
    /// decide.
    pub invocations: Option<u32>,
    /// Smallest difference that matters, percent, by metric name.
    pub margin_percent: BTreeMap<String, f64>,
    /// Time limit of one invocation, s; from the rough duration if not given.
    pub limit_s: Option<f64>,
    /// The role of the VM under test.
    pub under_test: UnderTest,
    /// What runs beside each invocation in the guest that measures.
    pub background: Option<Background>,
    /// Whether one more invocation of each trial is profiled.
    pub profile: bool,
    /// Whether any variant measures several VMs.
    pub several_vms: bool,
}

/// A workload that is repeated in a guest while another one is measured there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Background {
    /// Its name in the catalogue.
    pub workload: String,
    /// Its parameters, as the study gives them.
    pub params: BTreeMap<String, ParamValue>,
}

impl StudyWorkload {
    /// The metrics of the workload, the primary one first; of several VMs those that
    /// are made of each VM's value.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        self.over_vms(self.metrics_of_one_vm())
    }

    /// Its parameters with their defaults, as a variant with these changes has them.
    pub(crate) fn resolve_with(&self, changes: &VariantParams) -> Result<Params, ParamError> {
        self.entry.resolve(&params_in(&self.label, &self.params, changes))
    }

    /// The metrics that each VM has, the primary one first.
    pub(crate) fn metrics_of_one_vm(&self) -> Vec<Metric> {
        let mut metrics: Vec<_> = match self.entry.resolve(&self.params) {
            Ok(params) => self.entry.metrics(&params).collect(),
            Err(_) => self.entry.metrics.iter().collect(),
        };
        metrics.sort_by_key(|metric| !metric.primary);
        metrics.into_iter().map(workload::MetricDef::to_metric).collect()
    }

    /// All metrics that a study can name, those too that other parameters have.
    pub(crate) fn nameable_metrics(&self) -> Vec<Metric> {
        self.over_vms(self.entry.metrics.iter().map(workload::MetricDef::to_metric).collect())
    }

    /// The smallest differences that matter, percent, by the names of [`Self::metrics`].
    pub(crate) fn margins(&self) -> BTreeMap<String, f64> {
        let mut margins = self.margin_percent.clone();
        for of_one in self.metrics_of_one_vm().iter().filter(|_| self.several_vms) {
            let Some(margin) = self.margin_percent.get(&of_one.name) else { continue };
            let over = metrics_over_vms(std::slice::from_ref(of_one)).into_iter();
            margins.extend(over.map(|metric| (metric.name, *margin)));
        }
        margins
    }

    fn over_vms(&self, of_one: Vec<Metric>) -> Vec<Metric> {
        if self.several_vms { metrics_over_vms(&of_one) } else { of_one }
    }
}

/// Where the parts of a study stand in its file.
#[derive(Debug, Clone, Default)]
struct StudyLines {
    lines: lines::TomlLines,
    /// Each variant's place among all, by its name.
    variants: HashMap<String, usize>,
}

impl Study {
    /// Reads a study from `text`; `file` is the name that errors carry.
    ///
    /// # Errors
    /// [`FileProblems`] lists every problem with its line and value.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileProblems> {
        check::parse(file, text, None)
    }

    /// Reads a study in the size `scale`, one of its `[scale.NAME]`.
    ///
    /// # Errors
    /// As [`Study::parse`]; also if it has no such size.
    pub fn parse_scaled(file: &str, text: &str, scale: &str) -> Result<Self, FileProblems> {
        check::parse(file, text, Some(scale))
    }

    /// Where `field` of the variant's VM stands in the file: in the variant's
    /// own table, else in the base VM's. Line 1 if it is nowhere (a default).
    #[must_use]
    pub fn line_of(&self, variant: &str, field: &str) -> usize {
        use lines::PathStep::{Index, Key};
        let lines = &self.places.lines;
        let own = self.places.variants.get(variant).copied();
        let own = own.map(|index| [Key("variant"), Index(index), Key("vm"), Key(field)]);
        own.and_then(|path| lines.exactly(&path))
            .or_else(|| lines.exactly(&[Key("vm"), Key(field)]))
            .or_else(|| own.map(|path| lines.of(&path)))
            .unwrap_or(1)
    }

    /// Where the variant stands in the file.
    #[must_use]
    pub fn line_of_variant(&self, variant: &str) -> usize {
        use lines::PathStep::{Index, Key};
        let index = self.places.variants.get(variant).copied().unwrap_or(0);
        self.places.lines.of(&[Key("variant"), Index(index)])
    }

    /// Where it is said how many VMs the variant measures: in its own table, else in the
    /// study's.
    #[must_use]
    pub fn line_of_measured(&self, variant: &str) -> usize {
        use lines::PathStep::{Index, Key};
        let lines = &self.places.lines;
        let own = self.places.variants.get(variant).copied();
        let own = own.map(|index| [Key("variant"), Index(index), Key("measured")]);
        own.and_then(|path| lines.exactly(&path))
            .or_else(|| lines.exactly(&[Key("measured")]))
            .unwrap_or_else(|| self.line_of_variant(variant))
    }

    /// Where the workload stands in the file; where the workloads begin if some of
    /// them are not run, for those have no place among the others.
    #[must_use]
    pub fn line_of_workload(&self, label: &str) -> usize {
        use lines::PathStep::{Index, Key};
        let index = self.workloads.iter().position(|known| known.label == label);
        let index = index.filter(|_| self.later.is_empty()).unwrap_or(0);
        self.places.lines.of(&[Key("workload"), Index(index)])
    }

    /// Where the load level stands in the file.
    #[must_use]
    pub fn line_of_load(&self, load: &str) -> usize {
        use lines::PathStep::{Index, Key};
        let index = self.loads.iter().position(|known| known.name == load).unwrap_or(0);
        self.places.lines.of(&[Key("load"), Index(index)])
    }
}

#[cfg(test)]
mod tests;
