//! One comparison on many hosts: what holds for all of them, for each class of hardware,
//! and for a host that nobody has tried.
//!
//! A mixed model on the logarithms: block `j` of host `i` in class `c` shows
//! `effect(c) + host(i) + noise(i, j)`. The noise has one variance, that of all hosts
//! together: of a few blocks a host's own would be luck, and the luckiest host would weigh
//! most. The variance between hosts is estimated by restricted likelihood, intervals are
//! Hartung's and Knapp's. Where all hosts have the same number of blocks this is Student's
//! t on one number a host, exactly, whatever each host's noise is.
//!
//! The interval for another host supposes that hosts are about equally noisy: where a few of
//! a handful are many times noisier it holds less often than it says.
//!
//! Classes are a factor of the model; they share the variance between hosts, and their
//! intervals hold all at once (Bonferroni).
//!
//! Sources: W. Viechtbauer, "Bias and Efficiency of Meta-Analytic Variance Estimators",
//! J. Educ. Behav. Stat. 30 (2005); G. Knapp, J. Hartung, "Improved tests for a random
//! effects meta-regression with a single covariate", Stat. Med. 22 (2003); J. Higgins,
//! S. Thompson, D. Spiegelhalter, "A re-evaluation of random-effects meta-analysis",
//! J. R. Stat. Soc. A 172 (2009): the interval for another host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::judgement::{GREATEST_LOG, ratio_of};
use crate::student::{moments, student_critical_df};
use crate::{BetterDirection, Interval, Invalidity, LogRatio, Verdict};

/// A variance of means below this is rounding: values that are exact have none.
const LEAST_VARIANCE: f64 = 1e-24;

/// The restricted likelihood's maximum is near after a handful.
const MOST_STEPS: u32 = 200;

/// The ratios of one host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRatios {
    /// The host.
    pub host: String,
    /// Its class of hardware, where it has one.
    pub class: Option<String>,
    /// Logarithms of B by A, a block each.
    pub log_ratios: Vec<f64>,
}

/// What is asked of the hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AcrossQuestion {
    /// The rate of false claims.
    pub alpha: f64,
    /// The smallest relative difference that matters.
    pub margin: f64,
    /// The metric's better direction.
    pub better: BetterDirection,
}

/// What all hosts say together. Ratios are B by A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcrossHosts {
    /// What may be said of the hosts' mean. In `more_blocks` of one that is not decided are
    /// hosts.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The hosts' mean, a geometric one; absent without a host.
    pub ratio: Option<f64>,
    /// Its interval; absent with one host.
    pub interval: Option<Interval>,
    /// Where the ratio of a host that was not tried lies; absent with fewer than three.
    pub prediction: Option<Interval>,
    /// Two-sided p value of "there is no difference".
    pub p: Option<f64>,
    /// Standard deviation of the hosts' true ratios, on the log scale.
    pub between_sd: Option<f64>,
    /// Standard deviation of a host's blocks, on the log scale; absent where no host has
    /// two.
    pub within_sd: Option<f64>,
    /// p value of "all hosts have one ratio"; absent where no host has two blocks.
    pub same_p: Option<f64>,
    /// Hosts that were used.
    pub hosts: u32,
    /// Their blocks.
    pub blocks: u32,
    /// The classes, in the order of their names; none where hosts have no two.
    pub classes: Vec<ClassResult>,
    /// p value of "all classes have one ratio"; absent where it can't be said.
    pub classes_p: Option<f64>,
    /// Whether it holds in all classes.
    pub holds: ClassConsistency,
    /// Hosts without a block that gives a ratio, or with one that gives none.
    pub left_out: Vec<String>,
}

/// What the hosts of one class of hardware say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassResult {
    /// The class.
    pub class: String,
    /// What may be said of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The mean of its hosts.
    pub ratio: f64,
    /// Its interval, which holds together with those of the other classes.
    pub interval: Option<Interval>,
    /// Its hosts.
    pub hosts: u32,
    /// Their blocks.
    pub blocks: u32,
    /// How it stands to what all hosts say.
    pub stand: ClassStand,
    /// True where the interval rests on the blocks of one host: it says nothing of other
    /// hosts of the class.
    pub of_one_host: bool,
}

/// How a class stands to what all hosts say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClassStand {
    /// It says the same.
    Holds,
    /// It says something else.
    Differs,
    /// It does not say enough.
    Open,
}

/// Whether what all hosts say holds in all classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClassConsistency {
    /// There are no classes to ask.
    NoClasses,
    /// Every class shows it.
    Everywhere,
    /// A class shows something else, or classes contradict each other.
    NotEverywhere,
    /// No class shows anything else, but not every class shows it.
    NotShownEverywhere,
    /// All hosts together say nothing yet.
    Undecided,
}

/// The direction that a verdict claims, without its size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimedDirection {
    Better,
    Worse,
    Same,
}

/// What `verdict` says of the direction, and what it does not contradict besides.
fn claims(verdict: &Verdict) -> &'static [ClaimedDirection] {
    match verdict {
        Verdict::BBetter => &[ClaimedDirection::Better],
        Verdict::BWorse => &[ClaimedDirection::Worse],
        Verdict::Equivalent => &[ClaimedDirection::Same],
        // A difference, and none that matters.
        Verdict::BelowMargin { b_better: true } => {
            &[ClaimedDirection::Better, ClaimedDirection::Same]
        }
        Verdict::BelowMargin { b_better: false } => {
            &[ClaimedDirection::Worse, ClaimedDirection::Same]
        }
        Verdict::NotDecided { .. } | Verdict::Invalid { .. } => &[],
    }
}

/// Whether two verdicts can't both be true of the same thing.
fn contradict(one: &Verdict, other: &Verdict) -> bool {
    let (one, other) = (claims(one), claims(other));
    !one.is_empty() && !other.is_empty() && !one.iter().any(|claim| other.contains(claim))
}

/// A host's mean and how often it was looked at.
struct HostMean<'a> {
    ratios: &'a HostRatios,
    mean: f64,
    blocks: f64,
    class: usize,
}

/// A model with a mean for each group of hosts.
struct GroupMeansModel {
    /// Variance between hosts.
    between: f64,
    /// Mean and standard error of each group.
    groups: Vec<(f64, f64)>,
    /// Degrees of freedom of the standard errors.
    freedom: f64,
    /// Residual mean square, by weight.
    scale: f64,
    /// Sum of weights by group.
    weights: Vec<f64>,
}

/// What all of `hosts` say to `question`; their order does not matter.
#[must_use]
pub fn across_hosts(hosts: &[HostRatios], question: &AcrossQuestion) -> AcrossHosts {
    let AcrossQuestion { alpha, margin, better } = *question;
    let usable = |host: &&HostRatios| {
        !host.log_ratios.is_empty() && host.log_ratios.iter().all(|log| log.abs() <= GREATEST_LOG)
    };
    let mut names: Vec<&str> =
        hosts.iter().filter(usable).filter_map(|host| host.class.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    // Hosts of no class are none of the classes.
    let class_of = |host: &HostRatios| {
        let place = host.class.as_deref().and_then(|class| names.binary_search(&class).ok());
        place.unwrap_or(names.len())
    };
    let mut means: Vec<HostMean<'_>> = hosts
        .iter()
        .filter(usable)
        .map(|ratios| HostMean {
            ratios,
            mean: mean(&ratios.log_ratios),
            blocks: ratios.log_ratios.len() as f64,
            class: class_of(ratios),
        })
        .collect();
    // Sums are the same in any order of the hosts.
    means.sort_by(|a, b| a.mean.total_cmp(&b.mean).then(a.blocks.total_cmp(&b.blocks)));
    let left_out =
        hosts.iter().filter(|host| !usable(host)).map(|host| host.host.clone()).collect();
    let mut found = AcrossHosts {
        verdict: Verdict::Invalid { why: Invalidity::TooFewHosts { hosts: means.len() as u32 } },
        ratio: means.first().map(|only| ratio_of(only.mean)),
        interval: None,
        prediction: None,
        p: None,
        between_sd: None,
        within_sd: None,
        same_p: None,
        hosts: means.len() as u32,
        blocks: means.iter().map(|host| host.blocks as u32).sum(),
        classes: Vec::new(),
        classes_p: None,
        holds: ClassConsistency::NoClasses,
        left_out,
    };
    if !(margin > 0.0 && margin.is_finite()) {
        found.verdict = Verdict::Invalid { why: Invalidity::Margin { margin } };
        return found;
    }
    let within = within(&means);
    found.within_sd = within.map(|(variance, _)| variance.sqrt());
    if means.len() < 2 {
        return found;
    }
    let noise = within.map_or(0.0, |(variance, _)| variance);
    let fit = fit(&means, noise, 1, |_| 0);
    let (mean, error) = fit.groups[0];
    let known = known(mean, error, fit.freedom, alpha);
    found.verdict = known.verdict(better, margin, |band| more_hosts(&known, means.len(), band));
    found.ratio = Some(ratio_of(mean));
    found.interval = Some(interval(mean, known.half_width, 1.0 - alpha));
    let spread = (fit.between + error * error).sqrt();
    // One degree less for the variance between hosts, which is an estimate, too.
    if means.len() > 2 {
        let critical = student_critical_df(fit.freedom - 1.0, alpha);
        found.prediction = Some(interval(mean, width(critical, spread), 1.0 - alpha));
    }
    found.p = Some(p_of(mean, error, fit.freedom));
    found.between_sd = Some(fit.between.sqrt());
    found.same_p = within.and_then(|(variance, freedom)| same_p(&means, variance, freedom));
    if names.len() >= 2 {
        classes(&mut found, &means, &names, noise, question);
    }
    found
}

/// Fills in what the classes say.
fn classes(
    found: &mut AcrossHosts,
    means: &[HostMean<'_>],
    names: &[&str],
    noise: f64,
    question: &AcrossQuestion,
) {
    // Hosts of no class tell something of the variances alone.
    let has_rest = means.iter().any(|host| host.class == names.len());
    let groups = names.len() + usize::from(has_rest);
    let fit = (means.len() > groups).then(|| fit(means, noise, groups, |host| host.class));
    let alpha = question.alpha / names.len() as f64;
    for (number, name) in names.iter().enumerate() {
        let own: Vec<&HostMean<'_>> = means.iter().filter(|host| host.class == number).collect();
        let (mean, error, freedom) = match &fit {
            Some(fit) => (fit.groups[number].0, fit.groups[number].1, fit.freedom),
            // Each class is one host: its blocks tell of it.
            None => of_blocks(&own[0].ratios.log_ratios),
        };
        let known = known(mean, error, freedom, alpha);
        let verdict = match freedom > 0.0 {
            true => known.verdict(question.better, question.margin, |band| {
                more_hosts(&known, own.len(), band)
            }),
            false => {
                Verdict::Invalid { why: Invalidity::TooFewBlocks { blocks: own[0].blocks as u32 } }
            }
        };
        let stand = match () {
            () if claims(&verdict).is_empty() || claims(&found.verdict).is_empty() => {
                ClassStand::Open
            }
            () if contradict(&verdict, &found.verdict) => ClassStand::Differs,
            () => ClassStand::Holds,
        };
        found.classes.push(ClassResult {
            class: (*name).to_owned(),
            verdict,
            ratio: ratio_of(mean),
            interval: (freedom > 0.0).then(|| interval(mean, known.half_width, 1.0 - alpha)),
            hosts: own.len() as u32,
            blocks: own.iter().map(|host| host.blocks as u32).sum(),
            stand,
            of_one_host: fit.is_none(),
        });
    }
    found.classes_p = fit.filter(|_| !has_rest).and_then(|fit| classes_p(&fit));
    let all = &found.classes;
    let clash = all.iter().any(|class| class.stand == ClassStand::Differs)
        || all.iter().enumerate().any(|(number, one)| {
            all[number + 1..].iter().any(|other| contradict(&one.verdict, &other.verdict))
        });
    found.holds = match () {
        () if clash => ClassConsistency::NotEverywhere,
        () if claims(&found.verdict).is_empty() => ClassConsistency::Undecided,
        () if all.iter().all(|class| class.stand == ClassStand::Holds) => {
            ClassConsistency::Everywhere
        }
        () => ClassConsistency::NotShownEverywhere,
    };
}

/// Mean, standard error and degrees of freedom of the blocks of one host.
fn of_blocks(log_ratios: &[f64]) -> (f64, f64, f64) {
    match log_ratios {
        [only] => (*only, f64::INFINITY, 0.0),
        many => {
            let (mean, sd) = moments(many);
            let n = many.len() as f64;
            (mean, sd / n.sqrt(), n - 1.0)
        }
    }
}

fn mean(log_ratios: &[f64]) -> f64 {
    of_blocks(log_ratios).0
}

/// The variance of blocks inside hosts, and its degrees of freedom.
fn within(means: &[HostMean<'_>]) -> Option<(f64, f64)> {
    let mut squares = 0.0;
    let mut freedom = 0.0;
    for host in means {
        let mut all: Vec<f64> =
            host.ratios.log_ratios.iter().map(|log| (log - host.mean).powi(2)).collect();
        all.sort_unstable_by(f64::total_cmp);
        squares += all.iter().sum::<f64>();
        freedom += host.blocks - 1.0;
    }
    (freedom > 0.0).then(|| (squares / freedom, freedom))
}

/// The model in which each group of `hosts` has a mean of its own, more hosts than groups;
/// `noise` is the variance of a block.
fn fit(
    hosts: &[HostMean<'_>],
    noise: f64,
    groups: usize,
    group: impl Fn(&HostMean<'_>) -> usize,
) -> GroupMeansModel {
    let own = |host: &HostMean<'_>| (noise / host.blocks).max(LEAST_VARIANCE);
    let freedom = (hosts.len() - groups) as f64;
    // Sums of powers of the weights by group, and the means.
    let sums = |between: f64| {
        let mut sums = vec![[0.0; 3]; groups];
        let mut means = vec![0.0; groups];
        for host in hosts {
            let (weight, group) = (1.0 / (own(host) + between), group(host));
            for (sum, power) in sums[group].iter_mut().zip(1..) {
                *sum += weight.powi(power);
            }
            means[group] += weight * host.mean;
        }
        for (mean, [weights, ..]) in means.iter_mut().zip(&sums) {
            *mean /= weights;
        }
        (sums, means)
    };
    let mut between = 0.0;
    for _ in 0..MOST_STEPS {
        let (sums, means) = sums(between);
        let quadratic: f64 = hosts
            .iter()
            .map(|host| ((host.mean - means[group(host)]) / (own(host) + between)).powi(2))
            .sum();
        let all = |power: usize| sums.iter().map(|sums| sums[power]).sum::<f64>();
        let by_group = |of: &dyn Fn(&[f64; 3]) -> f64| sums.iter().map(of).sum::<f64>();
        let trace = all(0) - by_group(&|[one, two, _]| two / one);
        let information = all(1) - 2.0 * by_group(&|[one, _, three]| three / one)
            + by_group(&|[one, two, _]| (two / one).powi(2));
        let next = (between + (quadratic - trace) / information).max(0.0);
        let done = !next.is_finite() || (next - between).abs() <= 1e-10 * next;
        if next.is_finite() {
            between = next;
        }
        if done {
            break;
        }
    }
    let (sums, means) = sums(between);
    let squares: f64 = hosts
        .iter()
        .map(|host| (host.mean - means[group(host)]).powi(2) / (own(host) + between))
        .sum();
    let scale = squares / freedom;
    let groups =
        means.iter().zip(&sums).map(|(mean, [weights, ..])| (*mean, (scale / weights).sqrt()));
    GroupMeansModel {
        between,
        groups: groups.collect(),
        freedom,
        scale,
        weights: sums.iter().map(|[weights, ..]| *weights).collect(),
    }
}

fn known(mean: f64, error: f64, freedom: f64, alpha: f64) -> LogRatio {
    let half_width = |alpha: f64| width(student_critical_df(freedom, alpha), error);
    LogRatio {
        mean,
        half_width: half_width(alpha),
        half_width_of_equivalence: half_width(2.0 * alpha),
    }
}

fn width(critical: f64, error: f64) -> f64 {
    let width = critical * error;
    if width.is_finite() { width.min(GREATEST_LOG) } else { GREATEST_LOG }
}

fn interval(mean: f64, half_width: f64, level: f64) -> Interval {
    Interval { lo: mean - half_width, hi: mean + half_width, level }.map(ratio_of)
}

/// Two-sided p value of a mean of 0.
fn p_of(mean: f64, error: f64, freedom: f64) -> f64 {
    if mean == 0.0 {
        return 1.0;
    }
    f_p((mean / error).powi(2), 1.0, freedom).unwrap_or(1.0)
}

/// The share of F's distribution that is as large as `f`.
fn f_p(f: f64, above: f64, below: f64) -> Option<f64> {
    match f {
        f if f.is_nan() => None,
        f if f.is_infinite() => Some(0.0),
        f => Some(FisherSnedecor::new(above, below).ok()?.sf(f)),
    }
}

/// One-way analysis of variance: whether the means of hosts differ by more than their
/// blocks do.
fn same_p(means: &[HostMean<'_>], noise: f64, freedom: f64) -> Option<f64> {
    let blocks: f64 = means.iter().map(|host| host.blocks).sum();
    let mean = means.iter().map(|host| host.blocks * host.mean).sum::<f64>() / blocks;
    let squares: f64 = means.iter().map(|host| host.blocks * (host.mean - mean).powi(2)).sum();
    let above = means.len() as f64 - 1.0;
    let between = squares / above;
    // Values that are exact differ, or they don't.
    if between <= LEAST_VARIANCE {
        return Some(1.0);
    }
    f_p(between / noise, above, freedom)
}

/// Whether the means of classes differ by more than those of their hosts do.
fn classes_p(fit: &GroupMeansModel) -> Option<f64> {
    let all: f64 = fit.weights.iter().sum();
    let each = || fit.groups.iter().zip(&fit.weights);
    let mean = each().map(|((mean, _), weight)| mean * weight).sum::<f64>() / all;
    let squares: f64 = each().map(|((group, _), weight)| weight * (group - mean).powi(2)).sum();
    let above = fit.groups.len() as f64 - 1.0;
    f_p(squares / above / fit.scale, above, fit.freedom)
}

/// About how many more hosts would decide, if mean and spread stay: widths fall with the
/// root of the hosts.
fn more_hosts(known: &LogRatio, hosts: usize, band: f64) -> u32 {
    let target = known.mean.abs().max(band - known.mean.abs());
    let needed = hosts as f64 * (known.half_width / target).powi(2);
    // The cast saturates, which is what a hopeless comparison needs.
    ((needed.ceil() - hosts as f64).max(1.0)) as u32
}

#[cfg(test)]
mod tests;
