//! What a roll-out says, as a page: the words of its text, and a picture of each counter.

use fleet::plan::RolloutPlan;
use fleet::rollout::{Look, MetricAnswer, RolloutAnswer};
use report::{
    Label, RolloutPage, RolloutPageLook, RolloutPageMetric, ShownEstimate, ShownInterval, Terms,
    label,
};
use stats::RolloutStep;

use super::text;

fn step_label(step: RolloutStep) -> Label {
    let sign = match step {
        RolloutStep::Widen => "▲",
        RolloutStep::Wait => "?",
        RolloutStep::Stop => "▼",
    };
    Label { word: text::word(step), sign, class: text::class(step) }
}

/// The page of an answer; with `plan_only` of what is known before anything is changed.
pub(super) fn page(answer: &RolloutAnswer, plan: &RolloutPlan, plan_only: bool) -> RolloutPage {
    RolloutPage {
        title: answer.title.clone(),
        step: (!plan_only).then(|| step_label(answer.step)),
        about: if plan_only { text::sizes_asked(plan) } else { text::since(answer, plan) },
        environments: answer.environments.iter().copied().collect(),
        metrics: answer.metrics.iter().map(|one| of_metric(one, plan, plan_only)).collect(),
        notes: answer.notes.clone(),
    }
}

fn of_metric(metric: &MetricAnswer, plan: &RolloutPlan, plan_only: bool) -> RolloutPageMetric {
    let with_cohorts = !plan.changed.is_empty() && !plan.unchanged.is_empty();
    let waits = if plan_only { with_cohorts } else { metric.step == RolloutStep::Wait };
    let noise = text::noise(metric);
    let outlook = waits.then(|| text::outlook(metric, plan));
    RolloutPageMetric {
        name: format!("{} by {}", metric.counter, metric.per),
        meaning: text::meaning(metric),
        margin: metric.margin,
        verdict: label(metric.verdict, false, Terms::Size(metric.better)),
        reason: if plan_only { String::new() } else { text::reason(metric) },
        looks: if plan_only { Vec::new() } else { metric.looks.iter().map(of_look).collect() },
        decided_day: metric.decided_day,
        outlook: [Some(noise), outlook].into_iter().flatten().collect(),
        sizes: metric.sizes.iter().map(|size| (size.days, size.hosts_each)).collect(),
    }
}

fn of_look(look: &Look) -> RolloutPageLook {
    let interval = look.interval.map(|span| ShownInterval { lo: span.lo, hi: span.hi });
    RolloutPageLook {
        day: look.day,
        hosts: [look.changed_hosts, look.unchanged_hosts],
        ratio: look.ratio.map(|centre| ShownEstimate { centre, interval }),
        step: step_label(look.step),
    }
}
