//! Answers to hours that are made up.

use super::*;
use crate::hours::HourTotal;

/// 2026-03-02T00:00:00Z, a Monday.
const CHANGE_S: i64 = 1_772_409_600;
const CHANGE: i64 = CHANGE_S / 3600;

const PLAN: &str = "
vmlab = 1
title = 'cpu-pm'
changed_at = 2026-03-02T00:00:00Z
settle_hours = 0
before_days = 14
[[metric]]
counter = 'vcpu.wait_s'
per = 'vcpu.run_s'
better = 'lower'
margin_percent = 5
[[metric]]
counter = 'kvm.exits'
better = 'lower'
";

fn plan() -> RolloutPlan {
    RolloutPlan::parse("plan.toml", PLAN).unwrap()
}

/// Two weeks before and `days` after, and one hour more, which may not be over.
fn hours(number: i64, days: i64, factor: f64) -> HostHours {
    let total = |hour: i64| {
        let wave = 1.0 + 0.5 * ((hour % 168) as f64 / 9.0).sin();
        let noise = 1.0 + ((number * 7919 + hour * 104_729) % 2003) as f64 / 40_060.0;
        let after = if hour >= CHANGE { factor } else { 1.0 };
        let counted = 100.0 * (number + 1) as f64 * wave * noise * after;
        HourTotal { counted, per: 3600.0, watched_s: 3600.0 }
    };
    HostHours {
        host: format!("node{number}"),
        hours: (CHANGE - 14 * 24..=CHANGE + days * 24).map(|hour| (hour, total(hour))).collect(),
        environments: [Environment::Kvm].into(),
        ..HostHours::default()
    }
}

/// Five hosts of each cohort whose metrics change by such factors.
fn hosts(days: i64, factors: [f64; 2]) -> Vec<RolloutHost> {
    let host = |number: i64| {
        let is_changed = number >= 5;
        let metrics =
            factors.map(|factor| hours(number, days, if is_changed { factor } else { 1.0 }));
        RolloutHost { store: format!("{number}.sqlite"), is_changed, metrics: metrics.to_vec() }
    };
    (0..10).map(host).collect()
}

#[test]
fn a_change_goes_further_where_nothing_suffers() {
    let answer = answer(&plan(), &hosts(8, [0.9, 1.0]));
    assert_eq!((answer.step, answer.days, answer.notes.len()), (RolloutStep::Widen, 8, 0));
    let [wait, exits] = &answer.metrics[..] else { panic!("{answer:#?}") };
    assert_eq!((wait.verdict, exits.verdict), (ShownVerdict::Better, ShownVerdict::Equivalent));
    let last = wait.looks.last().unwrap();
    assert!(last.interval.unwrap().contains(0.9) && last.changed_hosts == 5, "{last:?}");
    assert!(wait.noise.is_some() && wait.sizes.len() == TOLD_DAYS.len());
    assert!(!answer.is_emulated_time);
    // Each has half of the rate, of which a week's last day has most.
    assert!((wait.looks[6].interval.unwrap().level - (1.0 - 0.025 * 0.35)).abs() < 1e-12);
}

#[test]
fn one_metric_that_suffers_stops_it() {
    let answer = answer(&plan(), &hosts(3, [0.9, 1.2]));
    assert_eq!(answer.step, RolloutStep::Stop);
    assert_eq!(answer.metrics[1].verdict, ShownVerdict::Worse);
    assert_eq!(answer.metrics[0].step, RolloutStep::Widen);
}

#[test]
fn what_is_missing_is_waited_for_and_told() {
    // Nothing is changed yet, or no day is over.
    for days in [0, 1] {
        let mut plan = plan();
        if days == 1 {
            plan.changed_unix_s = None;
        }
        let answer = answer(&plan, &hosts(days, [1.0, 1.0]));
        assert_eq!((answer.step, answer.days), (RolloutStep::Wait, 0));
        assert_eq!(answer.metrics[0].verdict, ShownVerdict::NotDecided);
        assert!(answer.metrics[0].sizes.iter().any(|size| size.hosts_each.is_some()));
    }
    let mut some = hosts(8, [1.0, 1.0]);
    some[0].metrics[0].hours.clear();
    some[1].metrics[0].hours.retain(|hour, _| *hour < CHANGE + 5);
    some[7].metrics[0].host = "node6".to_owned();
    some[8].metrics[0].went_back = 3;
    let answer_of_some = answer(&plan(), &some);
    let notes = answer_of_some.notes.join("\n");
    for words in
        ["0.sqlite: nothing of vcpu.wait_s", "1.sqlite: too little", "called node6", "3 times"]
    {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    assert_eq!(answer_of_some.metrics[0].looks[7].unchanged_hosts, 3);
    let none = answer(&plan(), &[]);
    assert_eq!((none.step, none.days), (RolloutStep::Wait, 0));
}

#[test]
fn a_clock_that_is_ahead_makes_no_days_up() {
    let mut hosts = hosts(8, [1.0, 1.0]);
    let total = HourTotal { counted: 1.0, per: 1.0, watched_s: 1.0 };
    hosts[9].metrics[0].hours.insert(CHANGE + 1_000_000, total);
    assert_eq!(answer(&plan(), &hosts).metrics[0].looks.len(), 8);
    for host in &mut hosts {
        host.metrics[0].hours.insert(i64::MAX / 4_000_000, total);
    }
    assert_eq!(answer(&plan(), &hosts).metrics[0].looks.len(), MOST_DAYS as usize);
}

#[test]
fn sizes_are_told_from_what_the_plan_assumes() {
    let mut plan = plan();
    assert_eq!(answer(&plan, &[]).metrics[0].sizes, []);
    plan.assume = Some(FleetNoise { host_sd: 0.02, day_sd: 0.05 });
    let metric = &answer(&plan, &[]).metrics[0];
    assert_eq!(metric.noise, plan.assume);
    let sizes: Vec<Option<u32>> = metric.sizes.iter().map(|size| size.hosts_each).collect();
    assert!(sizes.windows(2).all(|pair| pair[1] <= pair[0]), "{sizes:?}");
    assert_eq!(metric.enough_days, None);
}
