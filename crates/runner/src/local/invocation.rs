//! One invocation of a benchmark in one guest, and what those of several guests are
//! together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use guest::{Cancel, GuestCommand};
use record::{Failure, FailureKind, Histogram, Sample};
use stats::boot_statistic;
use workload::{CommandOutput, ParsedOutput};

use super::role_guest::{RoleGuest, how, last_words};
use super::trial_guests::TrialParts;
use crate::study::values_over_vms;

/// Workloads of several VMs that ran together for less than this part of the longest of
/// them are worth a word, percent.
pub(super) const OVERLAP_WANTED: f64 = 90.0;

/// An invocation that has come to an end.
pub(super) struct Invocation {
    pub(super) begun: Instant,
    pub(super) wall: Duration,
    /// What was printed, by role.
    pub(super) texts: BTreeMap<String, Vec<u8>>,
    /// What it was understood as.
    pub(super) outcome: Result<ParsedOutput, Failure>,
}

impl Invocation {
    /// Runs `argv` in `client` and reads what it prints.
    pub(super) fn make(
        client: &mut RoleGuest,
        argv: Vec<String>,
        parts: &TrialParts<'_>,
        cancel: &Cancel,
    ) -> Self {
        let TrialParts { entry, params, .. } = parts;
        let begun = Instant::now();
        let mut texts = BTreeMap::new();
        let mut keep = |role: &str, text: Vec<u8>| texts.insert(role.to_owned(), text);
        let output = match client.exec(&GuestCommand::new(argv, parts.step_limit()), cancel) {
            Ok(output) => output,
            Err(stopped) => {
                if let Some(output) = stopped.output {
                    keep("stdout", output.stdout);
                    keep("stderr", output.stderr);
                }
                let outcome = Err(client.named(stopped.failure));
                return Self { begun, wall: begun.elapsed(), texts, outcome };
            }
        };
        let (stdout, stderr) = (output.stdout_text(), output.stderr_text());
        let outcome = if output.success() {
            let output = CommandOutput { stdout: &stdout, stderr: &stderr };
            entry.parse(output, params, &client.facts).map_err(|error| {
                Failure::new(FailureKind::OutputNotUnderstood, format!("{}: {error}", entry.name))
            })
        } else {
            let said = if stderr.trim().is_empty() { &stdout } else { &stderr };
            Err(client.named(Failure::new(
                FailureKind::WorkloadFailed,
                format!("{} {}: {}", entry.name, how(output.status), last_words(said)),
            )))
        };
        keep("stdout", output.stdout);
        keep("stderr", output.stderr);
        Self { begun, wall: output.wall, texts, outcome }
    }
}

/// Time in which all invocations ran, of the longest of them, percent; none of one alone.
pub(super) fn overlap_percent(invocations: &[Invocation]) -> Option<f64> {
    if invocations.len() < 2 {
        return None;
    }
    let latest = invocations.iter().map(|one| one.begun).max()?;
    let earliest_end = invocations.iter().map(|one| one.begun + one.wall).min()?;
    let longest = invocations.iter().map(|one| one.wall).max()?;
    let together = earliest_end.saturating_duration_since(latest);
    (!longest.is_zero()).then(|| 100.0 * together.as_secs_f64() / longest.as_secs_f64())
}

/// What the outputs of all measured guests are together: of one its own, of several one
/// value a metric from each guest's, and all that their histograms counted.
pub(super) fn together(parts: &TrialParts<'_>, mut outputs: Vec<ParsedOutput>) -> ParsedOutput {
    if parts.workload.of_several_vms.is_empty() && outputs.len() == 1 {
        return outputs.swap_remove(0);
    }
    let mut all = ParsedOutput::default();
    for metric in &parts.workload.of_several_vms {
        let of_each: Vec<Option<f64>> = outputs
            .iter()
            .map(|output| {
                let samples = output.samples.iter().filter(|one| one.metric == metric.name);
                let samples: Vec<f64> = samples.map(|one| one.value).collect();
                boot_statistic(report::sample_kind(metric.kind, &metric.unit.0), &samples)
                    .ok()
                    .map(|number| number.value)
            })
            .collect();
        let values = values_over_vms(metric, &of_each).into_iter();
        all.samples.extend(values.map(|(metric, value)| Sample { metric, value }));
    }
    for output in outputs {
        all.tool_version = all.tool_version.or(output.tool_version);
        for warning in output.warnings {
            if !all.warnings.contains(&warning) {
                all.warnings.push(warning);
            }
        }
        for histogram in output.histograms {
            match all.histograms.iter_mut().find(|known| known.name == histogram.name) {
                Some(known) => {
                    let buckets = known.buckets_ns.iter().chain(&histogram.buckets_ns).copied();
                    let overflows = known.overflows.saturating_add(histogram.overflows);
                    *known = Histogram::new(&histogram.name, buckets, overflows);
                }
                None => all.histograms.push(histogram),
            }
        }
    }
    all
}
