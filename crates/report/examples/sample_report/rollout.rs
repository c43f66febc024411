//! A made-up roll-out, a month after the change.

use record::{BetterDirection, Environment};
use report::{
    Label, RolloutPage, RolloutPageLook, RolloutPageMetric, ShownEstimate, ShownInterval,
    ShownVerdict, Terms, label,
};

const WAIT: Label = Label { word: "wait", sign: "?", class: "undecided" };
const WIDEN: Label = Label { word: "widen", sign: "▲", class: "better" };
const STOP: Label = Label { word: "stop", sign: "▼", class: "worse" };

pub(crate) fn month() -> RolloutPage {
    let mut metrics = vec![
        counter("vcpu.wait_s by vcpu.run_s", 1.0, ShownVerdict::Equivalent, WIDEN),
        counter("host.busy_s by vCPU second", 1.09, ShownVerdict::Worse, STOP),
        counter("kvm.exits by vCPU second", 0.99, ShownVerdict::NotDecided, WAIT),
    ];
    metrics[2].looks.truncate(3);
    metrics[2].decided_day = None;
    RolloutPage {
        title: "cpu-pm on <a batch> of new hosts".to_owned(),
        step: Some(STOP),
        about: "28 days since the change of 2026-03-02T06:00:00Z; at most 5 % false claims"
            .to_owned(),
        environments: vec![Environment::Kvm],
        metrics,
        notes: vec!["node7: it has less than a quarter of the hours and does not count".to_owned()],
    }
}

fn counter(name: &str, ratio: f64, verdict: ShownVerdict, step: Label) -> RolloutPageMetric {
    let look = |day: u32| {
        let width = 0.02 + 0.6 / f64::from(day);
        let centre = ratio + 0.01 * f64::from(day % 3) / f64::from(day);
        let interval = ShownInterval { lo: centre / (1.0 + width), hi: centre * (1.0 + width) };
        RolloutPageLook {
            day,
            hosts: [8, 24],
            ratio: (day > 1).then_some(ShownEstimate { centre, interval: Some(interval) }),
            step: if day < 14 { WAIT } else { step },
        }
    };
    RolloutPageMetric {
        name: name.to_owned(),
        meaning: "less is better, margin 5 %".to_owned(),
        margin: 0.05,
        verdict: label(verdict, false, Terms::Size(BetterDirection::Lower)),
        reason: "so it was made up".to_owned(),
        looks: (1..=28).map(look).collect(),
        decided_day: Some(14),
        outlook: vec![
            "hosts differ from themselves by 2 % for good and by 6 % a day (sd)".to_owned(),
        ],
        sizes: vec![(1, None), (7, Some(12)), (28, Some(6))],
    }
}
