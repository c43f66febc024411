//! The frozen plan: everything that decides which trials a study has, in which
//! order, and what each boots.
//!
//! The order is a pure function of the plan: a resumed study runs the trials
//! that the interrupted one would have run. A *block* is one fresh boot of
//! every variant for every workload inside one host-load level; the levels
//! take turns in random order, so that drift of the machine hits all of them
//! (split-plot with randomised complete blocks; Abedi & Brecht, ICPE 2017).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guest::libvirt::LibvirtFacts;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use record::journal::TrialKey;
use record::{Environment, Metric};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::bounded::{self, KnownFields};
use vmconfig::{VmSpec, qemu};
use workload::{CatalogueEntry, ParamValue, Params, UnderTest};

use crate::kubevirt_facts::KubevirtFacts;
use crate::limits::{GroundRules, StabilityLimits};
use crate::study::{
    Background, HostLoad, PublishedFigure, RunsOn, StudyBudget, StudyClaim, StudyDisk,
    StudyNetwork, VariantParams, params_in,
};

/// Version of `plan.json`. A field may be added to it, with a default for the
/// plans that lack it; whatever changes what is there raises it.
pub const PLAN_FORMAT_VERSION: u32 = 1;

/// Version of what a trial measures. Raised by whatever makes its numbers others than
/// those of the same trial by an earlier vmlab: a probe's loop, the thin guest's tests,
/// how a benchmark is started, when counters are read. What changes how they are planned,
/// judged or shown does not raise it.
pub const MEASUREMENT_VERSION: u32 = 1;

/// The same of simulated trials. Raised by whatever changes what the simulator says of a
/// scenario: 2 since busy pCPUs balance.
pub const SIMULATION_VERSION: u32 = 2;

/// A frozen plan.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StudyPlan {
    /// [`PLAN_FORMAT_VERSION`] of the writer.
    pub version: u32,
    /// vmlab's version.
    pub vmlab_version: String,
    /// [`MEASUREMENT_VERSION`] or [`SIMULATION_VERSION`] of the writer: blocks of two do not
    /// compare.
    #[serde(
        default = "first_measurement_version",
        skip_serializing_if = "is_first_measurement_version"
    )]
    pub measurement_version: u32,
    /// The study's short name.
    pub study: String,
    /// The study file, as it was named.
    pub study_file: String,
    /// One line for people.
    pub title: String,
    /// The question; may be empty.
    pub question: String,
    /// The study file's text, as it was read.
    pub study_text: String,
    /// Seed of all random order.
    pub seed: u64,
    /// When the plan was made, seconds since the Unix epoch.
    pub created_unix_s: f64,
    /// Why KVM is not used, where it is not.
    pub environment_why: Option<String>,
    /// QEMU's path and version.
    pub qemu: QemuFacts,
    /// The libvirt that starts and ends it, where vmlab does not do so itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<LibvirtFacts>,
    /// The cluster whose KubeVirt runs them, where that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<KubevirtFacts>,
    /// The guest images by name as the study says it.
    pub images: BTreeMap<String, ImageFacts>,
    /// The baseline's name.
    pub baseline: String,
    /// What the study may cost.
    pub budget: StudyBudget,
    /// When the host counts as steady.
    #[serde(default)]
    pub stability: StabilityLimits,
    /// What every trial begins on.
    #[serde(default, skip_serializing_if = "is_any_ground")]
    pub ground: GroundRules,
    /// Host settings for the time of the study, where no load and no variant
    /// has its own.
    pub host_settings: BTreeMap<String, String>,
    /// Whether modules may be loaded again for them.
    #[serde(default)]
    pub reload: bool,
    /// The variants, in the study's order.
    pub variants: Vec<PlanVariant>,
    /// Variants of the study that are not tried, with the reason: simulated, nothing would
    /// tell them from the baseline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants_left_out: Vec<(String, String)>,
    /// The host-load levels.
    pub loads: Vec<HostLoad>,
    /// The other VMs' configuration by load name, of loads that follow no variant.
    pub other_vms: BTreeMap<String, VmSpec>,
    /// That of those that have something of their own, by load name and number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub single_other_vms: BTreeMap<String, BTreeMap<u32, PlanOtherVm>>,
    /// The VM that plays the other role, if a workload has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PlanPeer>,
    /// The workloads.
    pub workloads: Vec<PlanWorkload>,
    /// Workloads that are named but not run, with the reason.
    pub later: Vec<(String, String)>,
    /// Which of the study's sizes was frozen; none for the study in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<String>,
    /// Published results.
    pub published: Vec<PublishedFigure>,
    /// What was published of two variants and is no variant's value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published_claims: Vec<StudyClaim>,
    /// The text that this was read from or frozen as; what is changed after that
    /// is not in it.
    #[serde(skip)]
    pub frozen: Option<Arc<FrozenText>>,
}

/// The text of a `plan.json`, which is what its hash is taken of: a later vmlab
/// may know more fields, and would write another text for the same plan.
#[derive(Debug)]
pub struct FrozenText {
    text: String,
    hash: String,
    unknown: Vec<String>,
}

impl FrozenText {
    fn new(text: String, unknown: Vec<String>) -> Self {
        let hash = blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
        Self { text, hash, unknown }
    }
}

/// Error type for [`StudyPlan::from_json`].
#[derive(Debug, thiserror::Error)]
pub enum ReadPlanError {
    /// A later vmlab wrote it.
    #[error(
        "it has format {0}, and this vmlab reads formats up to {PLAN_FORMAT_VERSION}: use a newer vmlab"
    )]
    Later(u32),
    /// It is no plan.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl ReadPlanError {
    /// The line where it shows, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        match self {
            Self::Later(_) => 1,
            Self::Json(error) => error.line(),
        }
    }
}

/// The QEMU that runs the VMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QemuFacts {
    /// The program.
    pub path: String,
    /// First line of `--version`.
    pub version: String,
}

impl QemuFacts {
    /// What this QEMU can do.
    ///
    /// # Errors
    /// When the version is not one that vmlab takes (a plan that was edited).
    pub fn capabilities(&self) -> Result<qemu::Capabilities, qemu::UnusableVersion> {
        qemu::Capabilities::from_version_text(&self.version)
    }
}

/// A guest image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageFacts {
    /// Hash of the recipe, or how the file is identified.
    pub identity: String,
    /// The guest kernel's release, where it is known before a boot.
    pub kernel: Option<String>,
}

/// A variant, resolved.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlanVariant {
    /// Its name.
    pub name: String,
    /// What it is for; may be empty.
    pub about: String,
    /// Where its workloads run. On the host, its pCPUs stand in the
    /// configuration as pins, and nothing else of that counts.
    #[serde(default, skip_serializing_if = "RunsOn::is_vm")]
    pub on: RunsOn,
    /// What differs from the study's base VM, one line.
    pub summary: String,
    /// The variant that it repeats, for the A/A arm.
    pub aa_of: Option<String>,
    /// Where its guests run.
    pub environment: Environment,
    /// Image's name, as the study says it.
    pub image: String,
    /// The whole configuration.
    pub spec: VmSpec,
    /// Those of the other VMs that are measured together with it, by number from 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<VmSpec>,
    /// Numbers of those that run the workload, and whose values and counters are left out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left_out: BTreeSet<u32>,
    /// Whether vCPUs are pinned, once a guest is up, to the node where its memory lies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows_memory: bool,
    /// Host settings for its trials.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_settings: BTreeMap<String, String>,
    /// What it changes of the workloads' parameters, by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: VariantParams,
    /// How it is connected with the other VM, if a workload has two roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<StudyNetwork>,
    /// How its empty disk is attached, if a workload wants one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<StudyDisk>,
    /// The serial numbers of those that are disks of the host, which the guest drives
    /// itself, in their order; the VM has them as `host_devices`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_disks: Vec<String>,
    /// The other VMs beside it, by the name of a load that follows the variant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_vms: BTreeMap<String, FollowingVms>,
}

/// A VM of a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanOtherVm {
    /// Image's name, as the study says it.
    pub image: String,
    /// The whole configuration.
    pub spec: VmSpec,
}

/// The VMs of a load that follows the variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FollowingVms {
    /// Those that have nothing of their own.
    pub all: PlanOtherVm,
    /// The others, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub each: BTreeMap<u32, PlanOtherVm>,
}

impl PlanVariant {
    /// The configurations of all VMs that are measured together.
    pub fn specs(&self) -> impl Iterator<Item = &VmSpec> {
        std::iter::once(&self.spec).chain(&self.further)
    }
}

/// The VM that plays the other role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanPeer {
    /// Image's name, as the study says it.
    pub image: String,
    /// The whole configuration.
    pub spec: VmSpec,
    /// Its network interface, except for the kind, which is the variant's.
    pub network: StudyNetwork,
    /// How its empty disk is attached, if a workload wants one.
    #[serde(default)]
    pub disk: StudyDisk,
}

/// A workload, resolved.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlanWorkload {
    /// Its label in the study.
    pub label: String,
    /// Its name in the catalogue.
    pub workload: String,
    /// Its parameters, as the study gives them.
    pub params: BTreeMap<String, ParamValue>,
    /// Benchmark invocations in each boot, of the first blocks where `adapt`.
    pub invocations: u32,
    /// Whether the first blocks decide how many invocations the others have.
    #[serde(default)]
    pub adapt: bool,
    /// Time limit of one invocation, s.
    pub limit_s: f64,
    /// Its metrics, the primary one first.
    pub metrics: Vec<Metric>,
    /// Where variants measure several VMs: the metrics that each VM has, of which those
    /// are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_several_vms: Vec<Metric>,
    /// Smallest difference that matters, percent, by metric.
    pub margin_percent: BTreeMap<String, f64>,
    /// Rough duration of one invocation here, s.
    pub typical_s: f64,
    /// The role of the VM under test.
    #[serde(default = "both_roles")]
    pub under_test: UnderTest,
    /// What runs beside each invocation in the guest that measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// Whether one more invocation of each trial is profiled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profile: bool,
}

/// Plans that do not say it are from before it was written.
fn first_measurement_version() -> u32 {
    1
}

/// Plans that do not say it have trials that begin on whatever is there.
fn is_any_ground(rules: &GroundRules) -> bool {
    *rules == GroundRules::default()
}

fn is_first_measurement_version(version: &u32) -> bool {
    *version == first_measurement_version()
}

/// Plans that do not say it have workloads of one role only.
fn both_roles() -> UnderTest {
    UnderTest::Both
}

impl PlanWorkload {
    /// The catalogue's row, and the parameters with their defaults, as the study gives
    /// them to all variants.
    ///
    /// # Errors
    /// When a plan of another version names what this catalogue does not have.
    pub fn resolve(&self) -> Result<(&'static CatalogueEntry, Params), ResolveWorkloadError> {
        self.resolve_with(&VariantParams::new())
    }

    /// The same as `variant` has them.
    ///
    /// # Errors
    /// As [`PlanWorkload::resolve`].
    pub fn resolve_in(
        &self,
        variant: &PlanVariant,
    ) -> Result<(&'static CatalogueEntry, Params), ResolveWorkloadError> {
        self.resolve_with(&variant.params)
    }

    fn resolve_with(
        &self,
        changes: &VariantParams,
    ) -> Result<(&'static CatalogueEntry, Params), ResolveWorkloadError> {
        let entry = workload::find(&self.workload)?;
        let params = entry.resolve(&params_in(&self.label, &self.params, changes))?;
        Ok((entry, params))
    }
}

/// Error type for [`PlanWorkload::resolve`].
#[derive(Debug, thiserror::Error)]
pub enum ResolveWorkloadError {
    /// No such workload.
    #[error(transparent)]
    Workload(#[from] workload::UnknownWorkload),
    /// A parameter is not as the catalogue wants it.
    #[error(transparent)]
    Params(#[from] workload::ParamError),
}

/// One block: which trials, in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Number, from 0, unique in the study.
    pub number: u32,
    /// Index of the load level.
    pub load: usize,
    /// Index of workload and of variant, in the order in which they are run.
    pub trials: Vec<(usize, usize)>,
}

impl StudyPlan {
    /// The plan with its text, which does not change any more.
    #[must_use]
    pub fn freeze(mut self) -> Self {
        self.frozen = Some(Arc::new(FrozenText::new(self.as_text(), Vec::new())));
        self
    }

    /// The text of `plan.json`: as it was frozen, whoever wrote it.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.frozen.as_ref().map_or_else(|| self.as_text(), |frozen| frozen.text.clone())
    }

    fn as_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a plan's keys are strings");
        text.push('\n');
        text
    }

    /// Reads `plan.json`, of this version or an earlier one.
    ///
    /// # Errors
    /// [`ReadPlanError`] when it is no plan, or a later vmlab's.
    pub fn from_json(text: &[u8]) -> Result<Self, ReadPlanError> {
        #[derive(Deserialize, JsonSchema)]
        struct PlanHeader {
            version: u32,
        }
        // What a later format means by its fields is not ours to guess.
        let PlanHeader { version } = serde_json::from_slice(text)?;
        if version > PLAN_FORMAT_VERSION {
            return Err(ReadPlanError::Later(version));
        }
        let KnownFields { value: mut plan, unknown } = bounded::json::<Self>(text)?;
        // JSON that was read is UTF-8.
        let text = String::from_utf8_lossy(text).into_owned();
        plan.frozen = Some(Arc::new(FrozenText::new(text, unknown)));
        Ok(plan)
    }

    /// The fields of its text that this vmlab does not know, by path.
    #[must_use]
    pub fn unknown_fields(&self) -> &[String] {
        self.frozen.as_ref().map_or(&[][..], |frozen| &frozen.unknown[..])
    }

    /// The hash that ties a journal to this plan: of the text that was frozen.
    #[must_use]
    pub fn hash(&self) -> String {
        match &self.frozen {
            Some(frozen) => frozen.hash.clone(),
            None => FrozenText::new(self.as_text(), Vec::new()).hash,
        }
    }

    /// The mark that all processes of this study carry.
    #[must_use]
    pub fn run_id(&self) -> String {
        self.hash()
    }

    /// Number of host-load levels, at least 1.
    #[must_use]
    pub fn levels(&self) -> u32 {
        u32::try_from(self.loads.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Trials in one block.
    #[must_use]
    pub fn trials_per_block(&self) -> u32 {
        u32::try_from(self.workloads.len() * self.variants.len()).unwrap_or(u32::MAX)
    }

    /// Blocks in the whole study, where their number is planned.
    #[must_use]
    pub fn total_blocks(&self) -> Option<u32> {
        let loads = u32::try_from(self.loads.len()).unwrap_or(u32::MAX);
        self.budget.blocks.map(|blocks| blocks.saturating_mul(loads))
    }

    /// Whether a trial is one of this plan's: of its variants, workloads and loads.
    #[must_use]
    pub fn has(&self, trial: &TrialKey) -> bool {
        self.variants.iter().any(|variant| variant.name == trial.variant)
            && self.workloads.iter().any(|workload| workload.label == trial.workload)
            && self.loads.iter().any(|load| load.name == trial.load)
    }

    /// The variants that are compared with the baseline, the A/A arm left out,
    /// with their places among the plan's variants.
    pub fn comparisons(&self) -> impl Iterator<Item = (usize, &PlanVariant)> {
        let compared =
            |variant: &PlanVariant| variant.name != self.baseline && variant.aa_of.is_none();
        self.variants.iter().enumerate().filter(move |(_, variant)| compared(variant))
    }

    /// The environment that the whole study may claim: the least real one of
    /// its variants'.
    #[must_use]
    pub fn environment(&self) -> Environment {
        self.variants.iter().map(|variant| variant.environment).max().unwrap_or(Environment::Kvm)
    }

    /// The image's name and the configuration of VM `number` of `load`, beside `variant`
    /// where the load follows that.
    #[must_use]
    pub fn other_vm<'a>(
        &'a self,
        load: &HostLoad,
        variant: Option<&'a PlanVariant>,
        number: u32,
    ) -> Option<(String, &'a VmSpec)> {
        let vms = load.vms.as_ref()?;
        let found = |vm: &'a PlanOtherVm| (vm.image.clone(), &vm.spec);
        if vms.follows.is_some() {
            let all = variant?.other_vms.get(&load.name)?;
            return Some(found(all.each.get(&number).unwrap_or(&all.all)));
        }
        let own = self.single_other_vms.get(&load.name).and_then(|each| each.get(&number));
        match own {
            Some(own) => Some(found(own)),
            None => Some((vms.vm.image().to_string(), self.other_vms.get(&load.name)?)),
        }
    }

    /// The configurations of all VMs of all loads, each with its load's name; those that
    /// are the same for several VMs of a load once.
    pub fn other_specs(&self) -> impl Iterator<Item = (&str, &VmSpec)> {
        let all = self.other_vms.iter().map(|(load, spec)| (&**load, spec));
        let single = self
            .single_other_vms
            .iter()
            .flat_map(|(load, each)| each.values().map(move |vm| (&**load, &vm.spec)));
        let following = self.variants.iter().flat_map(|variant| &variant.other_vms);
        let following = following.flat_map(|(load, vms)| {
            let vms = std::iter::once(&vms.all).chain(vms.each.values());
            vms.map(move |vm| (&**load, &vm.spec))
        });
        all.chain(single).chain(following)
    }

    /// On which machines its VMs run, in words that follow "on", where a cluster or a
    /// libvirt has them.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        if let Some(cluster) = &self.kubevirt {
            return Some(format!("nodes of {}, by KubeVirt", cluster.server));
        }
        self.libvirt.as_ref().map(|libvirt| format!("the host of {}", libvirt.uri))
    }

    /// The load level and the order of trials of block `number`.
    #[must_use]
    pub fn block(&self, number: u32) -> Block {
        let levels = self.loads.len().max(1);
        let round = number as usize / levels;
        let mut loads: Vec<usize> = (0..levels).collect();
        loads.shuffle(&mut self.rng("loads", round as u64));

        let mut rng = self.rng("trials", u64::from(number));
        let mut workloads: Vec<usize> = (0..self.workloads.len()).collect();
        workloads.shuffle(&mut rng);
        let mut trials = Vec::with_capacity(workloads.len() * self.variants.len());
        for workload in workloads {
            // The boots that are compared follow each other: what is near in
            // time differs least.
            let mut variants: Vec<usize> = (0..self.variants.len()).collect();
            variants.shuffle(&mut rng);
            trials.extend(variants.into_iter().map(|variant| (workload, variant)));
        }
        Block { number, load: loads[number as usize % levels], trials }
    }

    /// The key of the `position`-th trial of `block`.
    #[must_use]
    pub fn trial_key(&self, block: &Block, attempt: u32, position: usize) -> TrialKey {
        let (workload, variant) = block.trials[position];
        let (load, workload, variant) = (
            self.loads[block.load].name.clone(),
            self.workloads[workload].label.clone(),
            self.variants[variant].name.clone(),
        );
        let identity = format!("{}/{}/{load}/{workload}/{variant}", self.hash(), block.number);
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        TrialKey {
            id: blake3::hash(identity.as_bytes()).to_hex()[..16].to_owned(),
            block: block.number,
            attempt,
            load,
            workload,
            variant,
            order: block.number.saturating_mul(self.trials_per_block()).saturating_add(position),
        }
    }

    fn rng(&self, purpose: &str, number: u64) -> Pcg64 {
        let text = format!("{}/{purpose}/{number}", self.seed);
        Pcg64::from_seed(*blake3::hash(text.as_bytes()).as_bytes())
    }
}
