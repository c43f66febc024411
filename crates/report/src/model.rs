//! What a report shows, as plain data: filled by whoever ran or imported the
//! study, rendered by the rest of this crate, written as `report.json`.
//!
//! All values are in base units. An absent value is `None` or missing from its
//! list; it is never a zero and never NaN.

use record::journal::{Damage, TrialKey};
use record::{Environment, Failure, Metric, ProfileSide, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::{PublishedAgreement, Relation};

use crate::account::{Accounting, VariantAccount};
use crate::count_scope::CountScope;
use crate::estimate::{ShownEstimate, ShownInterval};
use crate::profile::{ProfileComparison, ProfileOverhead};

/// Version of `report.json`.
pub const REPORT_VERSION: u32 = 1;

/// A study's results with everything that is needed to judge them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// [`REPORT_VERSION`] of the writer.
    pub version: u32,
    /// The study's name.
    pub study: String,
    /// Heading for people; the study's name where it has none.
    pub title: String,
    /// The question that the study asks, one sentence.
    pub question: Option<String>,
    /// Which smaller size of the study was run; none for the study in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<String>,
    /// Where the trials ran.
    pub environment: Environment,
    /// On which machines, in words that follow "on", where a cluster or a libvirt chose
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Why it is not KVM, one line, where it is not.
    pub environment_why: Option<String>,
    /// Kernel, QEMU, guest image, ...: shown in this order. `started` stands in
    /// the heading too, and `vmlab`, the version, at the foot.
    pub about: Vec<ReportFact>,
    /// The host, as it was when the study began.
    pub host: Option<topology::Host>,
    /// How it was measured.
    pub method: Method,
    /// The configurations, in the study's order.
    pub variants: Vec<ReportVariant>,
    /// The host-load levels, in the study's order.
    pub loads: Vec<LabelledText>,
    /// The workloads, in the study's order.
    pub workloads: Vec<LabelledText>,
    /// Each variant over all workloads of a load level, where there are several.
    #[serde(default)]
    pub suites: Vec<Suite>,
    /// One for each load x workload x metric.
    pub groups: Vec<ResultGroup>,
    /// One for each load x workload x histogram.
    #[serde(default)]
    pub distributions: Vec<WorkloadLatencies>,
    /// What the host did beside the trials: one for each load x workload that
    /// was watched.
    #[serde(default)]
    pub host_beside: Vec<HostActivity>,
    /// The differences taken apart by what events cost; none where nothing was
    /// counted that has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<Accounting>,
    /// Where processors spent their time: one for each load x profiled workload x
    /// variant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ProfileComparison>,
    /// What perf cost: one for each load x profiled workload x variant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile_overheads: Vec<ProfileOverhead>,
    /// Every trial that failed, also those of blocks that were done again.
    pub failures: Vec<TrialFailure>,
    /// What is wrong with the journal that all this comes from; said among the
    /// warnings, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
    /// Things that a reader of the numbers should know.
    pub warnings: Vec<String>,
    /// Command lines that repeat the study.
    pub reproduce: Vec<String>,
    /// Files beside the report: what it is and where it lies.
    pub files: Vec<ReportFact>,
}

/// A name and its value, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportFact {
    /// What it is: `QEMU`, `guest kernel`.
    pub name: String,
    /// Its value, for people.
    pub value: String,
}

/// A load or a workload: its label in the study and what stands behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelledText {
    /// Label in the study.
    pub name: String,
    /// What it is, one line: a command line, `stress-ng on half the pCPUs`.
    pub summary: String,
}

/// How a study was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Method {
    /// Seed of the order of trials.
    pub seed: u64,
    /// Blocks planned for each load level; none where only time limits it.
    pub blocks_planned: Option<u32>,
    /// Blocks completed for each load level (the smallest number of all).
    pub blocks_done: u32,
    /// The test behind the verdicts, in plain words.
    pub test: String,
    /// Confidence level of all intervals, 0 to 1.
    pub level: f64,
    /// Why the study ended where it did, if it ended.
    pub ended: Option<String>,
    /// Wall time of all sessions together, s.
    pub wall_s: Option<f64>,
}

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportVariant {
    /// Name in the study.
    pub name: String,
    /// What differs from the baseline, one line.
    pub summary: String,
    /// What it is compared as.
    pub role: VariantRole,
    /// True if its workloads ran on the host itself, in no VM.
    #[serde(default)]
    pub on_host: bool,
    /// QEMU's command line, one option with its value a line.
    pub qemu_lines: Vec<String>,
    /// What could not be said on the command line, with the reason.
    pub losses: Vec<String>,
    /// What was found of it once it ran: what the guest was given, whether
    /// what was asked for is in force.
    #[serde(default)]
    pub found: Vec<ReportFact>,
    /// The VMs that were measured together with the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<FurtherVm>,
}

/// A VM that was measured together with a variant's first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FurtherVm {
    /// Its name.
    pub name: String,
    /// Lines of its command line that the first VM's lacks.
    pub qemu_lines: Vec<String>,
    /// What could not be said there and does not hold for the first VM.
    pub losses: Vec<String>,
}

/// What a variant is compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VariantRole {
    /// All others are compared with it. Exactly one variant.
    Baseline,
    /// Compared with the baseline.
    Candidate,
    /// The baseline under a second name: any difference found is a false alarm.
    AaArm,
}

/// The results of one metric of one workload under one host load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultGroup {
    /// The host-load level's name.
    pub load: String,
    /// The workload's name.
    pub workload: String,
    /// The metric.
    pub metric: Metric,
    /// True for the metric that the headline is about.
    pub primary: bool,
    /// Relative difference below which nobody cares, e.g. 0.03.
    pub margin: Option<f64>,
    /// One for each variant, in the study's order. None at all where the group
    /// holds nothing but what others published.
    pub cells: Vec<CellResults>,
    /// Whether each variant is steadier than the baseline, in words.
    #[serde(default)]
    pub steadiness: Vec<ReportFact>,
    /// The counters that moved, the surest first.
    pub movers: Vec<CounterMove>,
    /// What was counted, whether it moved or not.
    #[serde(default)]
    pub counts: Vec<CounterRow>,
    /// What others published for the same question.
    pub published: Vec<PublishedValue>,
    /// What others published that is no variant's value: orders, and ratios of
    /// counters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<PublishedClaim>,
}

/// How the latencies of a workload are distributed under one host load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadLatencies {
    /// The host-load level's name.
    pub load: String,
    /// The workload's name.
    pub workload: String,
    /// What is distributed: metrics called so, with `-p99` behind, are its
    /// quantiles.
    pub name: String,
    /// Unit of all values.
    pub unit: Unit,
    /// Those variants that counted any, in the study's order.
    pub curves: Vec<Curve>,
}

/// Shares of the quantiles that tables of distributions show.
pub const TABLE_SHARES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// What one variant's boots counted, all together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    /// The variant's name.
    pub variant: String,
    /// Boots that counted.
    pub boots: u32,
    /// Samples of all of them.
    pub samples: u64,
    /// Samples of these that are only known to be greater than all others.
    pub overflows: u64,
    /// In rising order; the interval is the band from drawing whole boots anew
    /// (bootstrap), none from a single boot.
    pub quantiles: Vec<Quantile>,
    /// Why any of [`TABLE_SHARES`] is not among them, one text each.
    pub missing: Vec<String>,
}

/// A point of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantile {
    /// Share of all samples that do not exceed it, 0 to 1.
    pub share: f64,
    /// The value.
    pub estimate: ShownEstimate,
}

/// What the host did beside the trials of one workload under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostActivity {
    /// The host-load level's name.
    pub load: String,
    /// The workload's name.
    pub workload: String,
    /// True if the load level leaves the host alone, so that what others used
    /// is a disturbance.
    pub is_quiet: bool,
    /// Those variants that were watched, in the study's order.
    pub variants: Vec<VariantDisturbance>,
}

/// What the host did beside one variant's trials, those that count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VariantDisturbance {
    /// The variant's name.
    pub variant: String,
    /// Trials that were watched.
    pub trials: u32,
    /// Share of the VM's pCPUs' time that others used.
    pub others: Option<TimeShare>,
    /// Share of the VM's pCPUs' time that the host's own hypervisor took.
    pub steal: Option<TimeShare>,
    /// Share of the time in which something waited for memory.
    pub memory: Option<TimeShare>,
    /// Share of the time that its vCPUs wanted to run in which they waited.
    pub run_delay: Option<TimeShare>,
    /// Time of the canaries, s.
    pub canary_s: Option<f64>,
    /// Clock of its pCPUs, Hz.
    pub clock_hz: Option<f64>,
    /// Throttling events of its pCPUs, all trials together.
    pub throttles: Option<f64>,
}

/// A share of time over several trials, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeShare {
    /// Mean of the trials.
    pub mean: f64,
    /// The greatest.
    pub most: f64,
}

/// One variant over all workloads of a load level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suite {
    /// The host-load level's name.
    pub load: String,
    /// The variant's name.
    pub variant: String,
    /// Workloads that it is over.
    pub workloads: u32,
    /// The geometric mean of the primary metrics' ratios, turned so that less
    /// is better.
    pub judgement: VariantJudgement,
}

/// One variant's results in a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResults {
    /// The variant's name.
    pub variant: String,
    /// Every boot that brought values.
    pub boots: Vec<BootPoint>,
    /// Centre of the boots' values, in the metric's base unit.
    pub estimate: Option<ShownEstimate>,
    /// The comparison with the baseline; none for the baseline itself.
    pub judgement: Option<VariantJudgement>,
}

/// One boot: one number for the comparison, and the samples behind it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BootPoint {
    /// Number of the block.
    pub block: u32,
    /// Position of the trial in the order of the run, from 0.
    pub order: u32,
    /// The boot's number, in the metric's base unit.
    pub value: f64,
    /// Its samples in the order in which they were printed.
    pub samples: Vec<f64>,
    /// False where the boot takes no part in the comparison (its block is not
    /// complete or was done again). It is still shown.
    pub counted: bool,
}

/// How a variant compares with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VariantJudgement {
    /// Variant by baseline, in the metric's own direction: 0.5 halves it.
    pub ratio: Option<ShownEstimate>,
    /// Complete blocks that it rests on.
    pub blocks: u32,
    /// Two-sided p value of "no difference", where the test has one.
    pub p: Option<f64>,
    /// The smallest rate of false findings at which this one, among all of the
    /// study's primary metrics, is still a finding.
    #[serde(default)]
    pub q: Option<f64>,
    /// The ratio and its interval after each block, as the engine saw it.
    #[serde(default)]
    pub looks: Vec<InterimLook>,
    /// The verdict.
    pub verdict: ShownVerdict,
    /// About how many more blocks decide it, where it is not decided and that
    /// can be said.
    #[serde(default)]
    pub more_blocks: Option<u32>,
    /// Why it is not valid, where it is not.
    #[serde(default)]
    pub why: Option<stats::Invalidity>,
    /// How the host differed beside the variant and beside the baseline, by
    /// sign, and what that means for the verdict.
    #[serde(default)]
    pub host: Vec<stats::HostDifference>,
    /// What else should be said: blocks still needed, outliers, the reason why
    /// it is not valid. One sentence each.
    pub notes: Vec<String>,
}

/// What a comparison said after some of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterimLook {
    /// Blocks until then.
    pub blocks: u32,
    /// Variant by baseline.
    pub ratio: ShownEstimate,
}

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShownVerdict {
    /// The variant is better; the interval excludes 1.
    Better,
    /// The variant is worse; the interval excludes 1.
    Worse,
    /// The variant is better, but by less than the margin.
    SlightlyBetter,
    /// The variant is worse, but by less than the margin.
    SlightlyWorse,
    /// There is no difference larger than the margin.
    Equivalent,
    /// None of these is shown, or there is no interval yet.
    NotDecided,
    /// Nothing can be compared: [`VariantJudgement::why`] says why.
    Invalid,
}

/// A counter that changed together with the metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterMove {
    /// The counter's name.
    pub counter: String,
    /// Its base unit.
    pub unit: Unit,
    /// What it counts, one sentence; may be empty.
    pub meaning: String,
    /// The variant that it is about.
    pub variant: String,
    /// Its centre over the baseline's boots, per run.
    pub baseline_value: f64,
    /// Its centre over the variant's boots, per run.
    pub variant_value: f64,
    /// The same two by operation, where the benchmark counts operations.
    #[serde(default)]
    pub per_operation: Option<(f64, f64)>,
}

/// What was counted of each variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterRow {
    /// The counter's name.
    pub counter: String,
    /// Its base unit.
    pub unit: Unit,
    /// What it counts, one sentence; may be empty.
    pub meaning: String,
    /// What the values are of.
    pub of: CountScope,
    /// Means over the boots that counted, in the order of the variants; none
    /// where it was not counted.
    pub values: Vec<Option<f64>>,
}

/// A value from elsewhere, beside which the measured one is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedValue {
    /// The variant that it belongs to.
    pub variant: String,
    /// The value, in the group's metric's base unit.
    pub value: Option<f64>,
    /// Its ratio to the baseline, where the value itself is not told.
    #[serde(default)]
    pub ratio: Option<f64>,
    /// The range that was published instead of the value, in the base unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<ShownInterval>,
    /// The range that was published instead of the ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_range: Option<ShownInterval>,
    /// The single runs behind the value, in the base unit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<f64>,
    /// Its standard deviation, in the base unit.
    #[serde(default)]
    pub sd: Option<f64>,
    /// Who published it, and where.
    pub source: String,
    /// Whether the measured ratio to the baseline agrees with the published
    /// one; none where there is no published ratio, or nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<PublishedAgreement>,
}

/// Something that was published of two variants, or of a function's time in one, and is no
/// variant's value, judged by what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedClaim {
    /// What it says.
    #[serde(flatten)]
    pub says: PublishedKind,
    /// The variant that it is about.
    pub variant: String,
    /// The variant that it is compared with; none where it is about one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub than: Option<String>,
    /// Who published it, and where.
    pub source: String,
    /// The measured ratio of the first to the second, or the share of one alone as a part of 1;
    /// none where none was.
    pub measured: Option<ShownEstimate>,
    /// The measured shares of a function, of the first and of the second, %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_shares_percent: Option<[f64; 2]>,
    /// Why nothing was measured of a function, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Complete blocks that it rests on.
    pub blocks: u32,
    /// What the measured says to the published; none where the workload was
    /// not run.
    pub agreement: Option<PublishedAgreement>,
}

/// What was published of two variants, or of a function's time in one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "says", rename_all = "kebab-case")]
pub enum PublishedKind {
    /// How they stand to each other in the group's metric.
    Order {
        /// How the first stands to the second.
        relation: Relation,
    },
    /// The ratio of what was counted of them.
    CounterRatio {
        /// The counter's name.
        counter: String,
        /// What its values are of.
        of: CountScope,
        /// The published ratio; both ends are the same for a single number.
        published: ShownInterval,
    },
    /// The ratio of a function's shares of the processors' time; of one variant alone the share
    /// itself, as a part of 1.
    FunctionShare {
        /// The function's name.
        function: String,
        /// The function that it is called by, whose time is the whole; all of it if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<String>,
        /// Whose perf met it; if none, that of where a variant runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        side: Option<ProfileSide>,
        /// The published ratio or share; both ends are the same for a single number.
        published: ShownInterval,
        /// The published shares, of the first and of the second, %.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shares_percent: Option<[f64; 2]>,
    },
}

/// A trial that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialFailure {
    /// Which trial.
    pub trial: TrialKey,
    /// Why.
    #[serde(flatten)]
    pub failure: Failure,
    /// The last lines of the guest's console.
    pub console_tail: Option<String>,
    /// Where the whole console lies.
    pub console_file: Option<String>,
    /// Where the devices' state lies, of a guest that hung or panicked: for `vmlab state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_file: Option<String>,
}

impl Report {
    /// The variant that all others are compared with.
    #[must_use]
    pub fn baseline(&self) -> Option<&ReportVariant> {
        self.variants.iter().find(|variant| variant.role == VariantRole::Baseline)
    }

    /// The accounts of `group`.
    pub(crate) fn accounts<'a>(
        &'a self,
        group: &'a ResultGroup,
    ) -> impl Iterator<Item = &'a VariantAccount> {
        let all: &[VariantAccount] = match &self.accounting {
            Some(Accounting::Used { accounts, .. }) => accounts,
            _ => &[],
        };
        all.iter().filter(|one| {
            (&one.load, &one.workload, &one.metric)
                == (&group.load, &group.workload, &group.metric.name)
        })
    }

    /// The text of `report.json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("all keys of a report are strings")
    }
}

impl Curve {
    /// The quantile `share`, if so many samples bear it.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<&Quantile> {
        self.quantiles.iter().find(|quantile| quantile.share == share)
    }
}

impl ResultGroup {
    /// The cell of `variant`.
    #[must_use]
    pub fn cell(&self, variant: &str) -> Option<&CellResults> {
        self.cells.iter().find(|cell| cell.variant == variant)
    }

    /// The published value of `variant`.
    #[must_use]
    pub fn published(&self, variant: &str) -> Option<&PublishedValue> {
        self.published.iter().find(|published| published.variant == variant)
    }
}
