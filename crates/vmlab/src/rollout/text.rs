//! What a roll-out says, as text.

use std::fmt::Write as _;

use fleet::plan::RolloutPlan;
use fleet::rollout::{Look, MetricAnswer, RolloutAnswer};
use fleet::stored::utc;
use record::BetterDirection;
use report::{Terms, class_sgr, label, percent};
use stats::RolloutStep;

pub(super) fn word(step: RolloutStep) -> &'static str {
    match step {
        RolloutStep::Widen => "widen",
        RolloutStep::Wait => "wait",
        RolloutStep::Stop => "stop",
    }
}

/// `text` in the colour of a class; the terminal takes it away where none is wanted.
fn painted(text: &str, class: &str) -> String {
    class_sgr(class).map_or_else(|| text.to_owned(), |sgr| format!("\x1b[{sgr}m{text}\x1b[0m"))
}

pub(super) fn class(step: RolloutStep) -> &'static str {
    match step {
        RolloutStep::Widen => "better",
        RolloutStep::Wait => "undecided",
        RolloutStep::Stop => "worse",
    }
}

fn better(metric: &MetricAnswer) -> &'static str {
    match metric.better {
        BetterDirection::Lower => "less is better",
        BetterDirection::Higher => "more is better",
    }
}

fn heading(metric: &MetricAnswer) -> String {
    let MetricAnswer { counter, per, .. } = metric;
    format!("{counter} by {per} ({})\n", meaning(metric))
}

pub(super) fn meaning(metric: &MetricAnswer) -> String {
    format!("{}, margin {} %", better(metric), percent(metric.margin))
}

fn days(count: u32) -> String {
    format!("{count} day{}", if count == 1 { "" } else { "s" })
}

/// `×0.93 [0.89, 0.97]`.
fn ratio(look: &Look) -> String {
    match (look.ratio, look.interval) {
        (Some(ratio), Some(interval)) => {
            format!("×{ratio:.3} [{:.3}, {:.3}]", interval.lo, interval.hi)
        }
        _ => "too few hosts".to_owned(),
    }
}

fn look(look: &Look) -> String {
    format!(
        "day {:>3}  {:>3} changed, {:>3} not  {:<28} {}",
        look.day,
        look.changed_hosts,
        look.unchanged_hosts,
        ratio(look),
        word(look.step)
    )
}

/// Under which sun the numbers were read.
fn environment(answer: &RolloutAnswer) -> String {
    let mut text = String::new();
    for environment in &answer.environments {
        let _ = writeln!(text, "{}", environment.sentence());
    }
    text
}

fn notes(answer: &RolloutAnswer) -> String {
    let lines = answer.notes.iter().map(|note| format!("Note: {note}\n"));
    lines.collect()
}

/// Since when, and how sure it is.
pub(super) fn since(answer: &RolloutAnswer, plan: &RolloutPlan) -> String {
    let changed = plan.changed_unix_s.map(utc).unwrap_or_default();
    format!(
        "{} since the change of {changed} UTC; at most {} % false claims, however often one looks",
        days(answer.days),
        percent(answer.alpha)
    )
}

pub(super) fn answer(answer: &RolloutAnswer, plan: &RolloutPlan, all_looks: bool) -> String {
    let mut text = String::new();
    let step = painted(word(answer.step), class(answer.step));
    let _ = writeln!(text, "{}: {step}", answer.title);
    let _ = writeln!(text, "{}\n", since(answer, plan));
    for metric in &answer.metrics {
        let terms = Terms::Size(metric.better);
        let verdict = label(metric.verdict, false, terms);
        text += &heading(metric);
        let shown = painted(&format!("{} {}", verdict.sign, verdict.word), verdict.class);
        let _ = writeln!(text, "  {shown}: {}", reason(metric));
        let decided = metric.looks.iter().find(|look| Some(look.day) == metric.decided_day);
        let last = metric.looks.last().filter(|last| decided.is_none_or(|one| one.day < last.day));
        if all_looks {
            metric.looks.iter().for_each(|one| {
                let _ = writeln!(text, "  {}", look(one));
            });
        } else {
            decided.into_iter().chain(last).for_each(|one| {
                let _ = writeln!(text, "  {}", look(one));
            });
        }
        if metric.step == RolloutStep::Wait {
            let _ = writeln!(text, "  {}", outlook(metric, plan));
        }
        text.push('\n');
    }
    text + &environment(answer) + &notes(answer)
}

/// Why a metric says what it says.
pub(super) fn reason(metric: &MetricAnswer) -> String {
    let margin = percent(metric.margin);
    match (metric.step, metric.decided_day) {
        (RolloutStep::Widen, Some(day)) => {
            format!("a harm of {margin} % or more is excluded since day {day}: widen")
        }
        (RolloutStep::Stop, Some(day)) => {
            format!("a harm is shown since day {day}, and {margin} % or more is not excluded: stop")
        }
        _ => format!("neither a harm nor that it is below {margin} % is shown: wait"),
    }
}

/// When an answer is to be expected.
pub(super) fn outlook(metric: &MetricAnswer, plan: &RolloutPlan) -> String {
    let power = percent(plan.power);
    match (metric.noise, metric.enough_days) {
        (None, _) => {
            "How long it takes is not known: too little is stored of the time before".to_owned()
        }
        (_, Some(enough)) => {
            format!(
                "These cohorts have an answer within {} in {power} % of roll-outs",
                days(enough)
            )
        }
        (_, None) => format!(
            "These cohorts are too small for an answer within a year in {power} % of roll-outs: see --plan-only"
        ),
    }
}

/// What the sizes of cohorts answer.
pub(super) fn sizes_asked(plan: &RolloutPlan) -> String {
    format!(
        "How many hosts a cohort needs, changed ones and as many others, so that {} % of roll-outs\n\
         have an answer by a day: \"stop\" where the harm is the margin, \"widen\" where there is none",
        percent(plan.power)
    )
}

/// How much hosts differ from themselves.
pub(super) fn noise(metric: &MetricAnswer) -> String {
    metric.noise.map_or_else(
        || {
            "Not known: it takes three hosts and eight days of their stores, or [assume] in the plan"
                .to_owned()
        },
        |noise| {
            format!(
                "hosts differ from themselves by {} % for good and by {} % a day (sd)",
                percent(noise.host_sd),
                percent(noise.day_sd)
            )
        },
    )
}

pub(super) fn sizes(answer: &RolloutAnswer, plan: &RolloutPlan) -> String {
    let mut text = format!("{}\n{}\n\n", answer.title, sizes_asked(plan));
    for metric in &answer.metrics {
        text += &heading(metric);
        let _ = writeln!(text, "  {}", noise(metric));
        if metric.noise.is_none() {
            text.push('\n');
            continue;
        }
        for size in &metric.sizes {
            let hosts = size.hosts_each.map_or("more than 1000".to_owned(), |n| n.to_string());
            let _ = writeln!(text, "  {:>7}  {hosts:>4} hosts each", days(size.days));
        }
        if !plan.changed.is_empty() && !plan.unchanged.is_empty() {
            let _ = writeln!(text, "  {}", outlook(metric, plan));
        }
        text.push('\n');
    }
    text + &environment(answer) + &notes(answer)
}
