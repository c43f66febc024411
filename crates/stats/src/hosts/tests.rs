//! Laws of what is said across hosts, and its rates of error over fleets with a known truth.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use crate::t_test;

const QUESTION: AcrossQuestion =
    AcrossQuestion { alpha: 0.05, margin: 0.03, better: BetterDirection::Lower };

fn host(name: &str, class: Option<&str>, log_ratios: &[f64]) -> HostRatios {
    let class = class.map(str::to_owned);
    HostRatios { host: name.to_owned(), class, log_ratios: log_ratios.to_vec() }
}

/// A normal deviate (Box and Muller).
fn normal(random: &mut Pcg64) -> f64 {
    let (one, two): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * two).cos()
}

/// How a simulated fleet is made.
#[derive(Clone, Copy)]
struct Fleet {
    hosts: usize,
    /// Hosts have so many blocks by turns.
    blocks: [usize; 3],
    between: f64,
    within: f64,
    /// Each third host is so many times as noisy.
    uneven: f64,
    /// The effect of each class; hosts have them by turns.
    effects: [f64; 2],
}

const FLEET: Fleet = Fleet {
    hosts: 8,
    blocks: [4, 4, 4],
    between: 0.05,
    within: 0.05,
    uneven: 1.0,
    effects: [0.1, 0.1],
};

impl Fleet {
    fn hosts(&self, random: &mut Pcg64) -> Vec<HostRatios> {
        let host = |number: usize| {
            let class = number % 2;
            let truth = self.effects[class] + self.between * normal(random);
            let within = self.within * if number.is_multiple_of(3) { self.uneven } else { 1.0 };
            let blocks = self.blocks[number % 3];
            let log_ratios: Vec<f64> =
                (0..blocks).map(|_| truth + within * normal(random)).collect();
            host(&number.to_string(), Some(["a", "b"][class]), &log_ratios)
        };
        (0..self.hosts).map(host).collect()
    }
}

fn log(interval: Option<Interval>) -> Interval {
    interval.expect("several hosts").map(f64::ln)
}

#[test]
fn with_as_many_blocks_on_each_it_is_student_s_t_on_the_hosts_means() {
    let hosts = [
        host("a", None, &[0.10, 0.14]),
        host("b", None, &[0.30, 0.20]),
        host("c", None, &[0.01, 0.09]),
    ];
    let found = across_hosts(&hosts, &QUESTION);
    let t = t_test(&[0.12, 0.25, 0.05], 0.95).unwrap();
    let interval = log(found.interval);
    assert!((interval.lo - t.interval.lo).abs() < 1e-9, "{found:?} {t:?}");
    assert!((interval.hi - t.interval.hi).abs() < 1e-9, "{found:?} {t:?}");
    assert!((found.p.unwrap() - t.p).abs() < 1e-9, "{found:?} {t:?}");
    // The variance of the means, less what noise makes of it.
    let noise: f64 = (0.0008 + 0.005 + 0.0032) / 3.0;
    let between = t.sd.powi(2) - noise / 2.0;
    assert!((found.between_sd.unwrap().powi(2) - between).abs() < 1e-9, "{found:?}");
    assert!((found.within_sd.unwrap().powi(2) - noise).abs() < 1e-12, "{found:?}");
    let prediction = log(found.prediction);
    let half = (prediction.hi - prediction.lo) / 2.0;
    let expected = 12.706_204_7 * (between + t.sd.powi(2) / 3.0).sqrt();
    assert!((half - expected).abs() < 1e-5, "{half} {expected}");
    assert_eq!((found.hosts, found.blocks, found.holds), (3, 6, ClassConsistency::NoClasses));
}

/// No other variance between hosts is likelier (restricted likelihood).
#[test]
fn unequal_numbers_of_blocks_are_at_the_likelihood_s_maximum() {
    let hosts = [
        host("a", None, &[0.10, 0.12, 0.11, 0.09, 0.13, 0.10]),
        host("b", None, &[0.30]),
        host("c", None, &[-0.02, 0.02, 0.03]),
        host("d", None, &[0.18, 0.22]),
    ];
    let found = across_hosts(&hosts, &QUESTION);
    let noise = found.within_sd.unwrap().powi(2);
    let likelihood = |between: f64| {
        let weight = |host: &HostRatios| 1.0 / (noise / host.log_ratios.len() as f64 + between);
        let all: f64 = hosts.iter().map(weight).sum();
        let mean =
            hosts.iter().map(|host| weight(host) * mean(&host.log_ratios)).sum::<f64>() / all;
        let of = |host: &HostRatios| {
            weight(host).ln() - weight(host) * (super::mean(&host.log_ratios) - mean).powi(2)
        };
        (hosts.iter().map(of).sum::<f64>() - all.ln()) / 2.0
    };
    let best = found.between_sd.unwrap().powi(2);
    assert!(best > 0.0);
    for other in [best * 0.9, best * 0.99, best * 1.01, best * 1.1] {
        assert!(likelihood(best) > likelihood(other), "{best} {other}");
    }
}

#[test]
fn one_host_says_nothing_of_others() {
    let found = across_hosts(&[host("a", Some("x"), &[0.1, 0.2])], &QUESTION);
    let why = Invalidity::TooFewHosts { hosts: 1 };
    assert_eq!(found.verdict, Verdict::Invalid { why });
    assert!(found.ratio.is_some() && found.interval.is_none(), "{found:?}");
    let found = across_hosts(&[], &QUESTION);
    assert_eq!(found.verdict, Verdict::Invalid { why: Invalidity::TooFewHosts { hosts: 0 } });
    let empty = [host("a", None, &[0.1]), host("b", None, &[]), host("c", None, &[f64::NAN])];
    let found = across_hosts(&empty, &QUESTION);
    assert_eq!((found.hosts, found.left_out), (1, vec!["b".to_owned(), "c".to_owned()]));
}

#[test]
fn a_class_on_which_it_does_not_hold_is_named() {
    let fast = [-0.30, -0.31, -0.29];
    let slow = [0.20, 0.21, 0.19];
    let mut hosts: Vec<HostRatios> =
        (0..9).map(|number| host(&format!("f{number}"), Some("fast"), &fast)).collect();
    hosts.extend((0..3).map(|number| host(&format!("s{number}"), Some("slow"), &slow)));
    for (number, host) in hosts.iter_mut().enumerate() {
        host.log_ratios.iter_mut().for_each(|log| *log += 0.002 * number as f64);
    }
    let found = across_hosts(&hosts, &QUESTION);
    assert_eq!(found.holds, ClassConsistency::NotEverywhere, "{found:?}");
    let [one, other] = &found.classes[..] else { panic!("{found:?}") };
    assert_eq!((&*one.class, &one.verdict), ("fast", &Verdict::BBetter));
    assert_eq!((&*other.class, &other.verdict), ("slow", &Verdict::BWorse));
    assert_eq!(other.stand, ClassStand::Differs);
    assert!(found.classes_p.unwrap() < 1e-6 && found.same_p.unwrap() < 1e-6, "{found:?}");
    // Where all hosts are of the fast class it holds.
    for host in &mut hosts[9..] {
        host.log_ratios.iter_mut().for_each(|log| *log -= 0.5);
    }
    let found = across_hosts(&hosts, &QUESTION);
    assert_eq!((found.holds, &found.verdict), (ClassConsistency::Everywhere, &Verdict::BBetter));
}

#[test]
fn one_host_of_each_class_is_judged_by_its_blocks() {
    let hosts = [
        host("a", Some("x"), &[-0.30, -0.31, -0.29]),
        host("b", Some("y"), &[-0.32, -0.31, -0.33]),
        host("c", Some("z"), &[-0.2]),
    ];
    let found = across_hosts(&hosts, &QUESTION);
    assert!(found.classes.iter().all(|class| class.of_one_host), "{found:?}");
    assert_eq!(found.classes[0].verdict, Verdict::BBetter);
    let why = Invalidity::TooFewBlocks { blocks: 1 };
    assert_eq!(found.classes[2].verdict, Verdict::Invalid { why });
    assert_eq!(found.holds, ClassConsistency::NotShownEverywhere);
    assert_eq!(found.classes_p, None);
}

#[test]
fn values_without_noise_are_told_as_they_are() {
    let same: Vec<_> = (0..4).map(|number| host(&number.to_string(), None, &[0.1; 3])).collect();
    let found = across_hosts(&same, &QUESTION);
    assert_eq!(found.verdict, Verdict::BWorse);
    assert!((found.ratio.unwrap() - 0.1_f64.exp()).abs() < 1e-9, "{found:?}");
    assert_eq!(found.same_p, Some(1.0));
    let zero: Vec<_> = (0..4).map(|number| host(&number.to_string(), None, &[0.0; 3])).collect();
    assert_eq!(across_hosts(&zero, &QUESTION).verdict, Verdict::Equivalent);
}

/// How often intervals hold the truth: of the mean, of another host, and of both classes.
fn coverage(fleet: Fleet, rounds: u64) -> [f64; 3] {
    let mut held = [0.0; 3];
    for round in 0..rounds {
        let mut random = Pcg64::seed_from_u64(round);
        let found = across_hosts(&fleet.hosts(&mut random), &QUESTION);
        let truth = (fleet.effects[0] + fleet.effects[1]) / 2.0;
        let another = truth + fleet.between * normal(&mut random);
        let holds = |interval: Option<Interval>, value: f64| log(interval).contains(value);
        let mut classes = found.classes.iter().zip(fleet.effects);
        let both = classes.all(|(class, truth)| holds(class.interval, truth));
        let all = [holds(found.interval, truth), holds(found.prediction, another), both];
        for (held, holds) in held.iter_mut().zip(all) {
            *held += f64::from(u8::from(holds)) * 100.0 / rounds as f64;
        }
    }
    held
}

/// 95 % is promised. Of 2000 fleets 1.5 % off is three standard errors.
#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let check = |fleet: Fleet, least: [f64; 3]| {
        let found = coverage(fleet, 2000);
        let enough = found.iter().zip(least).all(|(held, least)| *held > least);
        assert!(enough && found[0] < 97.5, "{found:?}, {least:?}");
    };
    check(FLEET, [93.5; 3]);
    // One to eight blocks: hosts weigh unequally.
    check(Fleet { blocks: [1, 3, 8], hosts: 12, ..FLEET }, [92.5, 91.0, 92.5]);
    // Hosts that differ much more than blocks do.
    check(Fleet { between: 0.3, ..FLEET }, [93.0; 3]);
    // Some hosts are ten times as noisy: what another host shows is then told too surely,
    // as the noise can't be told from the differences between hosts.
    check(Fleet { uneven: 10.0, within: 0.02, ..FLEET }, [92.5, 80.0, 92.5]);
}

#[test]
fn false_claims_are_as_rare_as_they_say() {
    let fleet = Fleet { effects: [0.0, 0.0], hosts: 10, ..FLEET };
    let rounds = 2000;
    let (mut claims, mut contradictions) = (0, 0);
    for round in 0..rounds {
        let mut random = Pcg64::seed_from_u64(round);
        let found = across_hosts(&fleet.hosts(&mut random), &QUESTION);
        claims += u32::from(found.verdict.is_difference());
        contradictions += u32::from(found.holds == ClassConsistency::NotEverywhere);
    }
    assert!(claims < 130, "{claims} of {rounds}");
    assert!(contradictions < 60, "{contradictions} of {rounds}");
}

fn fleets() -> impl Strategy<Value = Vec<HostRatios>> {
    let blocks = prop::collection::vec(-1.0..1.0_f64, 1..6);
    let class = prop::option::of(prop::sample::select(vec!["a", "b", "c"]));
    let one = (class, blocks).prop_map(|(class, blocks)| host("h", class, &blocks));
    prop::collection::vec(one, 2..12)
}

proptest! {
    /// The other way round everything is mirrored; order does not matter.
    #[test]
    fn turning_the_ratio_turns_what_is_said(mut hosts in fleets()) {
        let found = across_hosts(&hosts, &QUESTION);
        let mut turned = hosts.clone();
        for host in &mut turned {
            host.log_ratios.iter_mut().for_each(|log| *log = -*log);
        }
        let turned = across_hosts(&turned, &QUESTION);
        let close = |one: f64, other: f64| (one - other).abs() <= 1e-6 * (1.0 + one.abs());
        let (one, other) = (log(found.interval), log(turned.interval));
        prop_assert!(close(one.lo, -other.hi) && close(one.hi, -other.lo));
        prop_assert!(close(found.p.unwrap(), turned.p.unwrap()));
        prop_assert_eq!(found.classes.len(), turned.classes.len());
        hosts.reverse();
        for host in &mut hosts {
            host.log_ratios.reverse();
        }
        let again = across_hosts(&hosts, &QUESTION);
        let (one, other) = (log(found.interval), log(again.interval));
        prop_assert!(close(one.lo, other.lo) && close(one.hi, other.hi));
        prop_assert_eq!(found.holds, again.holds);
    }

    /// A prediction is never surer than the mean is, and all numbers are numbers.
    #[test]
    fn what_is_said_is_finite(hosts in fleets()) {
        let found = across_hosts(&hosts, &QUESTION);
        let interval = found.interval.unwrap();
        prop_assert!(interval.lo > 0.0 && interval.hi.is_finite());
        let around = |prediction: Interval| {
            prediction.lo <= interval.lo && interval.hi <= prediction.hi
        };
        prop_assert!(found.prediction.is_none_or(around), "{:?}", found);
        for class in &found.classes {
            let held = class.interval.is_none_or(|interval| interval.contains(class.ratio));
            prop_assert!(class.ratio.is_finite() && held, "{:?}", class);
        }
        let p = [found.p, found.same_p, found.classes_p];
        let in_range = |p: f64| (0.0..=1.0).contains(&p);
        prop_assert!(p.into_iter().flatten().all(in_range), "{:?}", found);
    }
}
