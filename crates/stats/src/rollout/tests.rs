//! Roll-outs whose noise is no noise, so that each number is known.

use proptest::prelude::*;

use super::*;

const RULE: RolloutRule = RolloutRule { alpha: 0.05, margin: 0.03, better: BetterDirection::Lower };

/// Two weeks before the change, eight days after it.
fn times() -> RolloutTimes {
    RolloutTimes { before: 1000..1336, after: 1336..1528 }
}

/// Values that are no noise but look like it: of -0.01 to 0.01.
fn jitter(host: i64, hour: i64) -> f64 {
    let mixed = (host * 7919 + hour * 104_729).rem_euclid(2003);
    mixed as f64 / 100_150.0 - 0.01
}

/// A host with a level, the fleet's week and drift, and `effect` after the change.
fn host(number: i64, changed: bool, effect: f64) -> FleetHost {
    let value = |hour: i64| {
        let common = (hour.rem_euclid(WEEK) as f64 / 20.0).sin() + hour as f64 / 500.0;
        let after = if changed && hour >= 1336 { effect } else { 0.0 };
        number as f64 + common + jitter(number, hour) + after
    };
    FleetHost { changed, hours: (1000..1528).map(|hour| (hour, value(hour))).collect() }
}

fn fleet(effect: f64) -> Vec<FleetHost> {
    (0..10).map(|number| host(number, number % 2 == 1, effect)).collect()
}

#[test]
fn shares_add_up_to_one_and_whole_weeks_have_most() {
    let all: f64 = (1..=7 * 10_000).map(look_share).sum();
    assert!(all <= 1.0 && all > 0.9998, "{all}");
    assert!(look_share(14) > 10.0 * look_share(13) && look_share(1) > look_share(8));
    assert_eq!(look_share(0), 0.0);
}

#[test]
fn what_all_hosts_have_in_common_and_what_each_had_before_cancels() {
    for effect in [0.0, 0.1, -0.2] {
        let looks = rollout_looks(&fleet(effect), &times(), &RULE);
        assert_eq!(looks.len(), 8);
        for look in &looks {
            let found = look.effect.unwrap();
            assert!((found - effect).abs() < 0.005, "{effect}: {look:?}");
            assert!(look.interval.unwrap().contains(effect) && look.hosts == [5, 5], "{look:?}");
        }
    }
}

#[test]
fn each_step_has_its_evidence() {
    let last = |effect| rollout_looks(&fleet(effect), &times(), &RULE).last().unwrap().step;
    assert_eq!(last(0.2), RolloutStep::Stop);
    assert_eq!(last(-0.2), RolloutStep::Widen);
    assert_eq!(last(0.0), RolloutStep::Widen);
    let interval = |lo, hi| Interval { lo, hi, level: 0.95 };
    let check = |lo, hi, lower, higher| {
        assert_eq!(RULE.step(Some(&interval(lo, hi))), lower, "{lo} {hi}");
        let rule = RolloutRule { better: BetterDirection::Higher, ..RULE };
        assert_eq!(rule.step(Some(&interval(lo, hi))), higher, "{lo} {hi}");
    };
    check(-0.01, 0.05, RolloutStep::Wait, RolloutStep::Widen);
    check(0.01, 0.05, RolloutStep::Stop, RolloutStep::Widen);
    check(0.01, 0.02, RolloutStep::Widen, RolloutStep::Widen);
    check(-0.05, -0.01, RolloutStep::Widen, RolloutStep::Stop);
    check(-0.05, 0.05, RolloutStep::Wait, RolloutStep::Wait);
    assert_eq!(RULE.step(None), RolloutStep::Wait);
}

#[test]
fn too_little_is_waited_for() {
    let check = |hosts: &[FleetHost], times: &RolloutTimes| {
        for look in rollout_looks(hosts, times, &RULE) {
            assert_eq!((look.step, look.interval), (RolloutStep::Wait, None), "{look:?}");
        }
    };
    check(&[], &times());
    check(&fleet(0.5)[..2], &times());
    let nothing = |changed| FleetHost { changed, hours: vec![(1400, f64::NAN), (i64::MAX, 1.0)] };
    check(&[nothing(true), nothing(true), nothing(false), nothing(false)], &times());
    // Nothing is known of before.
    check(&fleet(0.5), &RolloutTimes { before: 0..10, after: 1336..1528 });
    assert_eq!(
        rollout_looks(
            &fleet(0.5),
            &RolloutTimes { after: Range { start: 9, end: 3 }, ..times() },
            &RULE
        ),
        []
    );
    assert_eq!(fleet_noise(&fleet(0.0)[..2], &(1000..1528)), None);
    assert_eq!(fleet_noise(&fleet(0.0), &(1000..1100)), None);
}

#[test]
fn a_host_of_which_nothing_is_known_does_not_count() {
    let mut hosts = fleet(0.1);
    hosts[3].hours.retain(|(hour, _)| *hour < 1340);
    assert_eq!(missing_hosts(&hosts, &times()), [3]);
    let looks = rollout_looks(&hosts, &times(), &RULE);
    assert_eq!(looks.last().unwrap().hosts, [5, 4]);
}

#[test]
fn noise_is_told_apart() {
    // Two levels a host: one at all times, one of a day.
    let days = |number: i64, hour: i64| jitter(number * 31, hour / DAY * 17) * 10.0;
    let hosts: Vec<FleetHost> = (0..60)
        .map(|number| FleetHost {
            changed: false,
            hours: (0..42 * DAY).map(|hour| (hour, days(number, hour))).collect(),
        })
        .collect();
    let noise = fleet_noise(&hosts, &(0..42 * DAY)).unwrap();
    // Uniform on 0.2.
    let expected = 0.2 / 12_f64.sqrt();
    assert!((noise.day_sd - expected).abs() < 0.2 * expected, "{noise:?} {expected}");
    assert!(noise.host_sd < 0.4 * expected, "{noise:?}");
}

#[test]
fn sizes_are_as_large_as_they_must_be() {
    let noise = FleetNoise { host_sd: 0.02, day_sd: 0.04 };
    let question = SizeQuestion { noise, before_days: 28, effect: 0.03, alpha: 0.05 };
    let each = question.hosts_each(14, 0.8).unwrap();
    assert!(question.power([each, each], 14) >= 0.8);
    assert!(question.power([each - 1, each - 1], 14) < 0.8);
    assert!(question.hosts_each(28, 0.8).unwrap() <= each);
    assert!(question.hosts_each(14, 0.95).unwrap() > each);
    assert!(question.days([each, each], 0.8, 14).is_some());
    assert_eq!(question.days([2, 2], 0.8, 60), None);
    // With no host in a cohort there is no answer, whatever the noise.
    assert_eq!(question.power([0, 50], 14), 0.0);
    let still = SizeQuestion { noise: FleetNoise { host_sd: 0.0, day_sd: 0.0 }, ..question };
    assert!(still.power([2, 2], 7) >= 0.0);
    assert_eq!(SizeQuestion { effect: 1e-6, ..question }.hosts_each(14, 0.8), None);
}

proptest! {
    #[test]
    fn order_does_not_matter(seed in any::<u64>(), gaps in proptest::collection::vec(any::<u16>(), 0..200)) {
        let mut hosts = fleet(0.05);
        for gap in gaps {
            let hours = &mut hosts[usize::from(gap % 10)].hours;
            hours.remove(usize::from(gap / 10) % hours.len());
        }
        let expected = rollout_looks(&hosts, &times(), &RULE);
        let mut mixed = hosts.clone();
        // A fixed shuffle a seed: by a hash of hour and seed.
        let key = |hour: i64| (hour as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.iter_mut().for_each(|host| host.hours.sort_by_key(|(hour, _)| key(*hour)));
        prop_assert_eq!(&rollout_looks(&mixed, &times(), &RULE), &expected);
        mixed.reverse();
        for (look, expected) in rollout_looks(&mixed, &times(), &RULE).iter().zip(&expected) {
            prop_assert_eq!((look.hosts, look.step), (expected.hosts, expected.step));
            let difference = look.effect.unwrap() - expected.effect.unwrap();
            prop_assert!(difference.abs() < 1e-9, "{}", difference);
        }
    }

    #[test]
    fn gaps_move_the_effect_by_no_more_than_the_noise(gaps in proptest::collection::vec((0..10_usize, 1000..1528_i64, 1..100_i64), 0..6)) {
        let mut hosts = fleet(0.05);
        for (host, from, length) in gaps {
            hosts[host].hours.retain(|(hour, _)| !(from..from + length).contains(hour));
        }
        for look in rollout_looks(&hosts, &times(), &RULE) {
            if let Some(effect) = look.effect {
                prop_assert!((effect - 0.05).abs() < 0.01, "{:?}", look);
            }
        }
    }
}
