//! Where a variant's processors spent their time otherwise than the baseline's, as
//! perf saw it, and what perf itself cost.

use record::ProfileSide;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::estimate::ShownEstimate;

/// The profiles of a variant beside those of the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileComparison {
    /// The host-load level's name.
    pub load: String,
    /// The workload's name.
    pub workload: String,
    /// The variant.
    pub variant: String,
    /// What was seen in the guest and on the host.
    pub sides: Vec<ProfiledSide>,
    /// Why something was not seen, a sentence each.
    pub missing: Vec<String>,
}

/// The samples of one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledSide {
    /// Which side.
    pub side: ProfileSide,
    /// What was sampled.
    pub event: String,
    /// Blocks in which both were profiled.
    pub blocks: u32,
    /// Samples of the baseline and of the variant, all blocks together.
    pub samples: [u64; 2],
    /// True if some of the samples were not read.
    pub cut: bool,
    /// The frames of the stacks, each behind the one that called it; those that neither
    /// has a hundredth of its samples in are left out.
    pub frames: Vec<StackFrame>,
    /// The functions whose share differs most, wherever they were called from.
    pub functions: Vec<FunctionChange>,
}

/// One frame of a call stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackFrame {
    /// Frames above it.
    pub depth: u32,
    /// The function.
    pub name: String,
    /// Its part of all samples, with what it called: baseline's, variant's; the means of
    /// the blocks.
    pub shares: [f64; 2],
    /// Variant's less baseline's, block by block.
    pub change: ShownEstimate,
}

/// A function whose share differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionChange {
    /// The function.
    pub name: String,
    /// Its part of all samples, with what it called: baseline's, variant's.
    pub shares: [f64; 2],
    /// Variant's less baseline's, block by block.
    pub change: ShownEstimate,
}

/// What perf cost a variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileOverhead {
    /// The host-load level's name.
    pub load: String,
    /// The workload's name.
    pub workload: String,
    /// The variant.
    pub variant: String,
    /// The metric.
    pub metric: String,
    /// The profiled invocation's value by those of the same boot's runs.
    pub ratio: ShownEstimate,
}
