//! The profiles of variants beside those of the baseline, block by block.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use record::journal::TrialResult;
use record::{FoldedStacks, ProfileSide, SideProfile};
use report::{FunctionChange, ProfileComparison, ProfileOverhead, ProfiledSide, StackFrame};

use super::{span, why};
use crate::plan::StudyPlan;
use crate::results::{self, ALPHA, JournalTrial, MetricGroup};
use crate::store;
use crate::study::ProfiledFunction;

/// Frames that neither side has this part of its samples in are left out.
const LEAST_SHARE: f64 = 0.01;
/// Frames that a report keeps.
const MOST_FRAMES: usize = 2000;
/// Places in the call tree, and names, that are told apart: what a guest makes up beyond
/// them counts for its callers, and as no function of its own.
const MOST_PLACES: usize = 100_000;
/// Functions that it tells of, and the least difference.
const MOST_FUNCTIONS: usize = 10;
const LEAST_CHANGE: f64 = 0.002;

/// All comparisons of profiles, in the order of the groups.
pub(super) fn comparisons(
    dir: &Path,
    plan: &StudyPlan,
    groups: &[MetricGroup<'_>],
    trials: &[JournalTrial<'_>],
) -> Vec<ProfileComparison> {
    let Some(baseline) = results::baseline_index(plan) else { return Vec::new() };
    let baseline = &plan.variants[baseline].name;
    let profiled = groups.iter().filter(|group| group.is_primary() && group.workload.profile);
    let mut found = Vec::new();
    for group in profiled {
        for variant in plan.variants.iter().filter(|variant| variant.name != *baseline) {
            let pairs = why::counted_pairs(group, trials, baseline, &variant.name);
            if !pairs.is_empty() {
                found.push(comparison(dir, group, &variant.name, &pairs));
            }
        }
    }
    found
}

fn comparison(
    dir: &Path,
    group: &MetricGroup<'_>,
    variant: &str,
    pairs: &[(&TrialResult, &TrialResult)],
) -> ProfileComparison {
    let (mut sides, mut missing) = (Vec::new(), BTreeSet::new());
    for side in ProfileSide::ALL {
        let mut both = Vec::new();
        for (a, b) in pairs {
            let read = [(a, read(dir, a, side)), (b, read(dir, b, side))];
            for (trial, told) in &read {
                if let Err(why) = told {
                    let name = &trial.trial.variant;
                    missing.insert(format!("No profile by the {} of {name}: {why}.", side.name()));
                }
            }
            if let [(_, Ok(a)), (_, Ok(b))] = read {
                both.push([a, b]);
            }
        }
        let events: BTreeSet<_> = both.iter().flatten().map(|(of, _)| of.event.clone()).collect();
        if events.len() > 1 {
            let events: Vec<_> = events.into_iter().flatten().collect();
            missing.insert(format!(
                "The {}'s profiles are not compared: they are of {}.",
                side.name(),
                events.join(" and ")
            ));
        } else if !both.is_empty() {
            sides.push(profiled_side(side, &both));
        }
    }
    ProfileComparison {
        load: group.load.name.clone(),
        workload: group.workload.label.clone(),
        variant: variant.to_owned(),
        sides,
        missing: missing.into_iter().collect(),
    }
}

/// What a side of a trial's profile brought, and its stacks; else why there are none.
fn read(
    dir: &Path,
    trial: &TrialResult,
    side: ProfileSide,
) -> Result<(SideProfile, FoldedStacks), String> {
    let mut sides = trial.profile.iter().flat_map(|profile| &profile.sides);
    let of = sides.find(|one| one.side == side).ok_or("the trial has no profile")?;
    if let Some(why) = &of.missing {
        return Err(why.clone());
    }
    let text = of.blob.as_ref().and_then(|hash| store::blob(dir, hash));
    let text = text.ok_or("its stacks are gone from the results folder")?;
    Ok((of.clone(), FoldedStacks::from_text(&String::from_utf8_lossy(&text))))
}

/// What stands for a function that no sample met, which has no logarithm.
const HALF_A_SAMPLE: f64 = 0.5;

/// How much of its time a trial spends in `function` and what that calls, and the event that
/// was sampled. `side` is that of the perf that is asked.
///
/// # Errors
/// Why it is not known: the trial was not profiled, or nothing is the whole.
pub(super) fn function_share(
    dir: &Path,
    trial: &TrialResult,
    side: ProfileSide,
    of: &ProfiledFunction,
) -> Result<(FunctionShare, String), String> {
    let variant = &trial.trial.variant;
    let (profile, folded) =
        read(dir, trial, side).map_err(|why| format!("no profile of {variant}: {why}"))?;
    let ProfiledFunction { function, within, .. } = of;
    let (mut whole, mut met) = (0, 0);
    for (stack, count) in folded.stacks() {
        // Outermost frames come first.
        let called = match within {
            None => stack,
            Some(caller) => match stack.iter().position(|frame| frame == caller) {
                Some(at) => &stack[at + 1..],
                None => continue,
            },
        };
        whole += count;
        if called.iter().any(|frame| frame == function) {
            met += count;
        }
    }
    if let Some(within) = within.as_ref().filter(|_| whole == 0) {
        return Err(format!("no sample of {variant} met {within}"));
    }
    let (whole, met) = (whole.max(1) as f64, met as f64);
    let share = FunctionShare { found: met / whole, at_least: met.max(HALF_A_SAMPLE) / whole };
    Ok((share, profile.event.unwrap_or_else(|| UNNAMED.to_owned())))
}

/// What was sampled, where perf did not name it.
const UNNAMED: &str = "perf";

/// A function's share of a trial's samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct FunctionShare {
    pub(super) found: f64,
    /// The same, and half a sample's where none met it.
    pub(super) at_least: f64,
}

/// Shares of all samples, of each block the baseline's and the variant's.
type Shares = Vec<[f64; 2]>;

/// A frame below the frames that called it.
struct StackNode<'a> {
    name: &'a str,
    depth: u32,
    shares: Shares,
    callees: Vec<usize>,
}

/// The call tree of all stacks: a guest's profile may hold as many and as deep ones as are
/// read, so each frame of each stack costs one step.
struct CallTree<'a> {
    /// The first one is no frame: it calls the outermost ones.
    nodes: Vec<StackNode<'a>>,
    places: HashMap<(usize, &'a str), usize>,
    blocks: usize,
}

impl<'a> CallTree<'a> {
    fn new(blocks: usize) -> Self {
        let root = StackNode { name: "", depth: 0, shares: Vec::new(), callees: Vec::new() };
        Self { nodes: vec![root], places: HashMap::new(), blocks }
    }

    fn add(&mut self, stack: &'a [String], block: usize, which: usize, share: f64) {
        let mut caller = 0;
        for (depth, name) in stack.iter().enumerate() {
            let next = self.nodes.len();
            let known = self.places.get(&(caller, name.as_str())).copied();
            if known.is_none() && next > MOST_PLACES {
                return;
            }
            let place = known.unwrap_or(next);
            if known.is_none() {
                self.places.insert((caller, name), next);
                let (depth, shares) = (depth as u32, vec![[0.0; 2]; self.blocks]);
                self.nodes.push(StackNode { name, depth, shares, callees: Vec::new() });
                self.nodes[caller].callees.push(place);
            }
            self.nodes[place].shares[block][which] += share;
            caller = place;
        }
    }

    /// Each frame behind its caller, callees by name. A frame that is left out has no
    /// callee that would be kept: they have no larger share.
    fn frames(&self) -> Vec<StackFrame> {
        let mut frames = Vec::new();
        let mut left = vec![0];
        while let Some(place) = left.pop() {
            let node = &self.nodes[place];
            if place > 0 {
                if means(&node.shares).iter().all(|share| *share < LEAST_SHARE) {
                    continue;
                }
                if frames.len() == MOST_FRAMES {
                    break;
                }
                let (shares, change) = change(&node.shares);
                let (depth, name) = (node.depth, node.name.to_owned());
                frames.push(StackFrame { depth, name, shares, change });
            }
            let mut callees = node.callees.clone();
            // The first by name is taken first.
            callees.sort_by(|a, b| self.nodes[*b].name.cmp(self.nodes[*a].name));
            left.extend(callees);
        }
        frames
    }
}

fn profiled_side(side: ProfileSide, blocks: &[[(SideProfile, FoldedStacks); 2]]) -> ProfiledSide {
    let mut tree = CallTree::new(blocks.len());
    let mut names: BTreeMap<&str, Shares> = BTreeMap::new();
    for (block, pair) in blocks.iter().enumerate() {
        for (which, (_, folded)) in pair.iter().enumerate() {
            let all = folded.samples().max(1) as f64;
            for (stack, count) in folded.stacks() {
                let share = count as f64 / all;
                tree.add(stack, block, which, share);
                // A function that calls itself has its samples once.
                for name in stack.iter().map(String::as_str).collect::<BTreeSet<_>>() {
                    let is_full = names.len() >= MOST_PLACES && !names.contains_key(name);
                    let empty = || vec![[0.0; 2]; blocks.len()];
                    if !is_full {
                        names.entry(name).or_insert_with(empty)[block][which] += share;
                    }
                }
            }
        }
    }
    let by = |shares: &Shares| {
        let [a, b] = means(shares);
        (b - a).abs()
    };
    let mut changed: Vec<_> =
        names.iter().filter(|(_, shares)| by(shares) >= LEAST_CHANGE).collect();
    changed.sort_by(|(_, a), (_, b)| by(b).total_cmp(&by(a)));
    changed.truncate(MOST_FUNCTIONS);
    let functions = changed.into_iter().map(|(name, shares)| {
        let (shares, change) = change(shares);
        FunctionChange { name: (*name).to_owned(), shares, change }
    });
    let samples = [0, 1].map(|which| blocks.iter().map(|pair| pair[which].0.samples).sum());
    let mut of = blocks.iter().flatten().map(|(of, _)| of);
    ProfiledSide {
        side,
        event: of.clone().find_map(|of| of.event.clone()).unwrap_or_else(|| UNNAMED.to_owned()),
        blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
        samples,
        cut: of.any(|of| of.cut),
        frames: tree.frames(),
        functions: functions.collect(),
    }
}

/// The blocks' mean shares.
fn means(blocks: &[[f64; 2]]) -> [f64; 2] {
    let mean = |which: usize| {
        blocks.iter().map(|shares| shares[which]).sum::<f64>() / blocks.len().max(1) as f64
    };
    [mean(0), mean(1)]
}

/// The mean shares of the blocks and their difference inside these.
fn change(blocks: &[[f64; 2]]) -> ([f64; 2], report::ShownEstimate) {
    let differences: Vec<f64> = blocks.iter().map(|[a, b]| b - a).collect();
    let found = stats::account(&differences, &[], 1.0 - ALPHA).map(|found| found.difference);
    // No share changes by more than all of it.
    let whole = |end: f64| end.clamp(-1.0, 1.0);
    let shares = means(blocks);
    let change = report::ShownEstimate {
        centre: shares[1] - shares[0],
        interval: found.and_then(|found| found.interval).map(|found| span(found.map(whole))),
    };
    (shares, change)
}

/// What perf cost each variant: the profiled invocation's value by the mean of the same
/// boot's runs.
pub(super) fn overheads(
    plan: &StudyPlan,
    groups: &[MetricGroup<'_>],
    trials: &[JournalTrial<'_>],
) -> Vec<ProfileOverhead> {
    let mut found = Vec::new();
    let profiled = groups.iter().filter(|group| group.is_primary() && group.workload.profile);
    for group in profiled {
        for variant in &plan.variants {
            let own = why::counted_pairs(group, trials, &variant.name, &variant.name);
            let logs: Vec<f64> = own
                .iter()
                .filter_map(|(boot, _)| {
                    let of = |samples: &[record::Sample]| mean(&group.metric.name, samples);
                    let profiled = of(&boot.profile.as_ref()?.samples)?;
                    let runs: Vec<f64> =
                        boot.runs.iter().filter_map(|run| of(&run.samples)).collect();
                    let without = runs.iter().sum::<f64>() / runs.len().max(1) as f64;
                    Some((profiled / without).ln()).filter(|log| log.is_finite())
                })
                .collect();
            let Some(amount) = stats::account(&logs, &[], 1.0 - ALPHA) else { continue };
            let ratio = report::ShownEstimate {
                centre: amount.difference.centre.exp(),
                interval: amount.difference.interval.map(|found| span(found.map(f64::exp))),
            };
            found.push(ProfileOverhead {
                load: group.load.name.clone(),
                workload: group.workload.label.clone(),
                variant: variant.name.clone(),
                metric: group.metric.name.clone(),
                ratio,
            });
        }
    }
    found
}

fn mean(metric: &str, samples: &[record::Sample]) -> Option<f64> {
    let values: Vec<f64> =
        samples.iter().filter(|one| one.metric == metric).map(|one| one.value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(text: &str) -> (SideProfile, FoldedStacks) {
        let folded = FoldedStacks::from_text(text);
        let profile = SideProfile {
            side: ProfileSide::Guest,
            event: Some("cycles".to_owned()),
            samples: folded.samples(),
            cut: false,
            blob: None,
            missing: None,
        };
        (profile, folded)
    }

    #[test]
    fn what_a_guest_makes_up_is_bounded() {
        let deep = |number: u32| {
            let frames: Vec<String> = (0..8).map(|depth| format!("f{depth}-{number}")).collect();
            format!("a;b;{} 1\n", frames.join(";"))
        };
        let made_up: String = (0..19_000).map(deep).collect();
        let folded = FoldedStacks::from_text(&made_up);
        let one = || (side("a;b 1\n").0, folded.clone());
        let found = profiled_side(ProfileSide::Guest, &[[one(), one()], [one(), one()]]);
        let names: Vec<_> = found.frames.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names[..2], ["a", "b"], "{names:?}");
        assert!(found.frames.iter().all(|frame| frame.shares[0] <= 1.0 + 1e-9));
    }

    #[test]
    fn shares_are_compared_block_by_block() {
        let blocks = [
            [side("a;f;g 40\na;f 10\nb;f 50\n"), side("a;f;g 10\na;f 40\nb;f 50\n")],
            [side("a;f;g 84\na;f 16\nb;f 100\n"), side("a;f;g 22\na;f 80\nb;f 98\n")],
        ];
        let found = profiled_side(ProfileSide::Guest, &blocks);
        assert_eq!((found.blocks, found.samples), (2, [300, 300]));
        let names: Vec<_> = found.frames.iter().map(|one| (one.depth, one.name.as_str())).collect();
        assert_eq!(names, [(0, "a"), (1, "f"), (2, "g"), (0, "b"), (1, "f")]);
        // Recursion counts once: f is in all stacks.
        assert!(found.functions.iter().all(|one| one.name != "f"), "{found:#?}");
        let g = &found.functions[0];
        assert_eq!(g.name, "g");
        assert!((g.change.centre + 0.305).abs() < 1e-9, "{g:?}");
        let interval = g.change.interval.unwrap();
        assert!(interval.lo < -0.305 && interval.hi > -0.305 && interval.hi < 0.0, "{g:?}");
        let one = profiled_side(ProfileSide::Guest, &blocks[..1]);
        assert_eq!(one.functions[0].change.interval, None);
    }
}
