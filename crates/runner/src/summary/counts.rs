//! What was counted of each variant, whether it moved or not: where time is
//! emulated, or blocks are too few for a test, the counts are the result.

use std::collections::BTreeSet;

use record::journal::TrialResult;
use record::{EXITS, Unit};
use report::{CountScope, CounterRow};

use super::why::{operations_of, total};
use crate::plan::StudyPlan;
use crate::results::{JournalTrial, MetricGroup};

/// What is told, in this order; a name that ends in `.` is a family of which
/// the largest are told.
const TOLD: &[&str] = &[
    "vcpu.instructions",
    "kvm.exits",
    EXITS,
    "kvm.halt_exits",
    "kvm.halt_attempted_poll",
    "kvm.halt_successful_poll",
    "kvm.halt_wakeup",
    "kvm.ipis.",
    "kvm.hypercalls.",
    "kvm.msr_writes.",
    "kvm.io_exits",
    "kvm.mmio_exits",
    "kvm.irq_injections",
    "guest.ipi_reschedule",
    "guest.ipi_call_function",
    "guest.timer_interrupts",
    "guest.context_switches",
    "guest.lock_waits",
    "guest.lock_wait_s",
    "guest.lock_wait_s.",
    "vcpu.switches_voluntary",
    "vcpu.switches_involuntary",
    "vcpu.migrations",
    "qemu.other_run_s",
    "vhost.run_s",
    "switch.frames_in",
    "switch.kicks",
    "switch.rate_waits",
    "switch.signals_lost",
    "switch.segmented",
    "switch.drops.",
    "peer.switch.frames_out",
    "peer.switch.signals",
    "peer.switch.signals_lost",
    "peer.switch.segmented",
    "peer.switch.drops.",
    "switch.frames_per_burst",
    "switch.busy_percent",
    "qemu.minor_faults",
    "kvm.mapped_2m_bytes",
    "memory.thp_bytes",
    "memory.hugetlb_bytes",
    "memory.merged_bytes",
    "memory.node",
    "memory.home_bytes",
    "memory.home_vcpus",
    "host.ksm_shared_bytes",
    "host.thp_splits",
    "host.ksm_copies",
];

/// Counters of a family that are told.
const OF_FAMILY: usize = 6;

/// Counters of a family are told from this part of its largest on.
const FAMILY_PART: f64 = 0.01;

/// The counters of [`TOLD`] for each variant, means over the boots that count.
/// What nobody has any of is left out.
pub(super) fn counts(
    plan: &StudyPlan,
    group: &MetricGroup<'_>,
    trials: &[JournalTrial<'_>],
) -> Vec<CounterRow> {
    let here: Vec<&JournalTrial<'_>> = trials
        .iter()
        .filter(|trial| {
            let key = &trial.result.trial;
            trial.counted
                && trial.result.outcome.is_completed()
                && key.load == group.load.name
                && key.workload == group.workload.label
        })
        .collect();
    // By operation for all variants, or for none.
    let by_operation =
        !here.is_empty() && here.iter().all(|trial| operations_of(group, trial.result).is_some());
    let runs = here.iter().flat_map(|trial| &trial.result.runs);
    let names: BTreeSet<&str> =
        runs.flat_map(|run| run.counters.0.keys().map(String::as_str)).collect();
    let row = |name: &str| row(plan, group, &here, name, by_operation);
    let mut told = Vec::new();
    for wanted in TOLD {
        let is_family = wanted.ends_with('.') || *wanted == "memory.node";
        if !is_family {
            told.extend(names.get(wanted).and_then(|name| row(name)));
            continue;
        }
        let members = names.iter().filter(|name| name.starts_with(wanted));
        let mut members: Vec<CounterRow> = members.filter_map(|name| row(name)).collect();
        let largest = members.iter().map(greatest).fold(0.0, f64::max);
        if wanted.ends_with('.') {
            members.retain(|count| greatest(count) >= FAMILY_PART * largest);
            members.sort_by(|a, b| greatest(b).total_cmp(&greatest(a)));
        }
        members.truncate(OF_FAMILY);
        told.extend(members);
    }
    told
}

fn greatest(count: &CounterRow) -> f64 {
    count.values.iter().flatten().copied().fold(0.0, f64::max)
}

fn row(
    plan: &StudyPlan,
    group: &MetricGroup<'_>,
    trials: &[&JournalTrial<'_>],
    name: &str,
    by_operation: bool,
) -> Option<CounterRow> {
    let known = record::counter(name);
    let unit = known.map_or("count", |counter| counter.unit);
    let of = counted_of(name, by_operation);
    let of_trial = |trial: &JournalTrial<'_>| of_trial(group, trial.result, name, of);
    let value = |variant: &str| {
        let own = trials.iter().filter(|trial| trial.result.trial.variant == variant);
        let values: Vec<f64> = own.map(|trial| of_trial(trial)).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let count = CounterRow {
        counter: name.to_owned(),
        unit: Unit::from(unit),
        meaning: known.map_or("", |counter| counter.meaning).to_owned(),
        of,
        values: plan.variants.iter().map(|variant| value(&variant.name)).collect(),
    };
    (greatest(&count) > 0.0).then_some(count)
}

/// What a counter is told by; `by_operation` if all trials count operations.
pub(super) fn counted_of(name: &str, by_operation: bool) -> CountScope {
    // A ratio is one already.
    let is_ratio = name.ends_with("_per_burst") || name.ends_with("_percent");
    if record::is_level(name) {
        CountScope::End
    } else if by_operation && !is_ratio && !name.starts_with("host.") {
        CountScope::Operation
    } else {
        CountScope::Run
    }
}

/// The counter `name` of a trial by what it is told by.
pub(super) fn of_trial(
    group: &MetricGroup<'_>,
    result: &TrialResult,
    name: &str,
    of: CountScope,
) -> Option<f64> {
    let by = match of {
        CountScope::Operation => operations_of(group, result)?,
        CountScope::Run | CountScope::End => result.runs.len() as f64,
    };
    (by > 0.0).then_some(total(result, name)? / by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_known() {
        for name in TOLD {
            let member = match *name {
                "memory.node" => "memory.node0_bytes".to_owned(),
                family if family.ends_with('.') => format!("{family}x"),
                name => name.to_owned(),
            };
            assert!(record::counter(&member).is_some(), "{name}");
        }
    }
}
