//! The words of profiles.

use record::ProfileSide;

use crate::quantity::{counted, percent, ratio_estimate};
use crate::{
    FunctionChange, ProfileComparison, ProfileOverhead, ProfiledSide, Report, ShownEstimate,
    ShownInterval, StackFrame,
};

/// Columns of a table of functions.
pub(crate) const HEADS: [&str; 4] = ["baseline", "variant", "points", "interval"];

/// A share of samples in points of a hundred.
pub(crate) fn points(share: f64) -> String {
    format!("{}{:.1}", if share < 0.0 { "-" } else { "+" }, share.abs() * 100.0)
}

/// `[-14.0, -9.6]`
fn span(span: ShownInterval) -> String {
    format!("[{}, {}]", points(span.lo), points(span.hi))
}

/// Whether the blocks say that the share differs.
pub(crate) fn differs(change: &ShownEstimate) -> bool {
    change.interval.is_some_and(|span| span.lo > 0.0 || span.hi < 0.0)
}

impl StackFrame {
    /// All of it in words.
    pub(crate) fn words(&self) -> String {
        let [a, b] = self.shares.map(percent);
        let span = self.change.interval.map(|found| format!(" {}", span(found)));
        let change = points(self.change.centre);
        format!("{}: {a} to {b}, {change} points{}", self.name, span.unwrap_or_default())
    }
}

impl FunctionChange {
    /// The row of its table.
    pub(crate) fn row(&self) -> [String; 5] {
        let [a, b] = self.shares.map(percent);
        let interval = self.change.interval.map_or_else(|| "one block".to_owned(), span);
        [self.name.clone(), a, b, points(self.change.centre), interval]
    }
}

impl ProfiledSide {
    /// Where perf looked, and at what.
    pub(crate) fn title(&self, report: &Report, of: &ProfileComparison) -> String {
        let side = match self.side {
            ProfileSide::Guest => "in the guest",
            ProfileSide::Host => "on the host, QEMU's process",
        };
        let baseline = report.baseline().map_or("", |baseline| baseline.name.as_str());
        let [a, b] = self.samples;
        let cut = if self.cut { ", not all of them read" } else { "" };
        format!(
            "Profile {side}, {} against {baseline}, host load {}: {} by {}, {a} and {b} samples{cut}",
            of.variant,
            of.load,
            counted(self.blocks as usize, "block"),
            self.event
        )
    }

    /// The greatest change that the blocks are sure of.
    pub(crate) fn sentence(&self) -> String {
        let sure = self.functions.iter().find(|function| differs(&function.change));
        match sure {
            None if self.blocks < 2 => {
                "One block shows no spread: no difference is more than a sight.".to_owned()
            }
            None => "No function's share differs by more than the blocks do.".to_owned(),
            Some(FunctionChange { name, shares, change }) => {
                let [a, b] = shares.map(percent);
                let points = points(change.centre);
                format!(
                    "The greatest difference that the blocks are sure of: {name}, {a} of the samples to {b} ({points} points)."
                )
            }
        }
    }
}

impl ProfileOverhead {
    /// What perf cost, in words.
    pub(crate) fn sentence(&self) -> String {
        format!(
            "perf itself, {}: {} of its {} beside the same boots' runs without perf.",
            self.variant,
            ratio_estimate(&self.ratio),
            self.metric
        )
    }
}

impl Report {
    /// The profiles of a workload at a load.
    pub(crate) fn profiles_of<'a>(
        &'a self,
        workload: &'a str,
    ) -> impl Iterator<Item = &'a ProfileComparison> {
        self.profiles.iter().filter(move |one| one.workload == workload)
    }

    /// What perf cost the variants at a workload.
    pub(crate) fn overheads_of<'a>(
        &'a self,
        workload: &'a str,
    ) -> impl Iterator<Item = &'a ProfileOverhead> {
        self.profile_overheads.iter().filter(move |one| one.workload == workload)
    }
}
