//! The results of a study on many nodes, as `report`, `compare` and `run` show them.

use std::path::Path;
use std::process::ExitCode;

use report::{AcrossReport, AcrossVariant, ShownVerdict, TerminalStyle, VariantRole};
use runner::node_set::NodeSet;
use runner::{across, node_set};

use crate::exit::{FINDINGS, NOT_FINAL};
use crate::terminal;

/// What the nodes of the set in `dir` say.
///
/// # Errors
/// The list of nodes can't be read.
pub(crate) fn read(dir: &Path) -> anyhow::Result<AcrossReport> {
    let set: NodeSet = node_set::read(dir)?;
    Ok(across::across(dir, &set)?)
}

/// The report for the terminal.
pub(crate) fn text(report: &AcrossReport) -> String {
    // Escape codes are taken out again where colours are not wanted.
    report::across_text(report, terminal::width(), TerminalStyle { colour: true })
}

/// As of a study on one machine: findings are nodes without an end, trials that failed, and
/// a baseline that differs from itself.
pub(crate) fn exit_code(report: &AcrossReport, require_decision: bool) -> ExitCode {
    let alarm = |one: &AcrossVariant| {
        let shows_none = matches!(
            one.verdict,
            ShownVerdict::Equivalent | ShownVerdict::NotDecided | ShownVerdict::Invalid
        );
        one.role == VariantRole::AaArm && !shows_none
    };
    let open = |one: &AcrossVariant| match one.verdict {
        ShownVerdict::Invalid => true,
        ShownVerdict::NotDecided => one.role != VariantRole::AaArm,
        _ => false,
    };
    let all = || report.groups.iter().flat_map(|group| &group.variants);
    let primary = report.groups.iter().filter(|group| group.primary);
    if report.has_failures() || all().any(alarm) {
        ExitCode::from(FINDINGS)
    } else if require_decision && primary.flat_map(|group| &group.variants).any(open) {
        ExitCode::from(NOT_FINAL)
    } else {
        ExitCode::SUCCESS
    }
}
