//! The profiles of variants beside those of the baseline, block by block.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use record::journal::TrialResult;
use record::{Folded, ProfileSide, SideProfile};
use report::{Frame, FunctionChange, ProfileComparison, ProfileOverhead, ProfiledSide};

use super::{span, why};
use crate::plan::Plan;
use crate::results::{self, ALPHA, JournalTrial, MetricGroup};
use crate::store;

/// Frames that neither side has this part of its samples in are left out.
const LEAST_SHARE: f64 = 0.01;
/// Frames that a report keeps.
const MOST_FRAMES: usize = 2000;
/// Functions that it tells of, and the least difference.
const MOST_FUNCTIONS: usize = 10;
const LEAST_CHANGE: f64 = 0.002;

/// All comparisons of profiles, in the order of the groups.
pub(super) fn comparisons(
    dir: &Path,
    plan: &Plan,
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
        let read = |trial: &TrialResult| -> Result<(SideProfile, Folded), String> {
            let profile = trial.profile.iter().flat_map(|profile| &profile.sides);
            let Some(of) = profile.clone().find(|one| one.side == side) else {
                return Err("the trial has no profile".to_owned());
            };
            if let Some(why) = &of.missing {
                return Err(why.clone());
            }
            let text = of.blob.as_ref().and_then(|hash| store::blob(dir, hash));
            let text = text.ok_or("its stacks are gone from the results folder")?;
            Ok((of.clone(), Folded::from_text(&String::from_utf8_lossy(&text))))
        };
        let mut both = Vec::new();
        for (a, b) in pairs {
            let read = [(a, read(a)), (b, read(b))];
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

/// Shares of all samples by path or by name, of each block the baseline's and the
/// variant's.
type Shares<K> = BTreeMap<K, Vec<[f64; 2]>>;

fn profiled_side(side: ProfileSide, blocks: &[[(SideProfile, Folded); 2]]) -> ProfiledSide {
    let mut paths: Shares<&[String]> = BTreeMap::new();
    let mut names: Shares<&str> = BTreeMap::new();
    for (block, pair) in blocks.iter().enumerate() {
        for (which, (_, folded)) in pair.iter().enumerate() {
            let all = folded.samples().max(1) as f64;
            for (stack, count) in folded.stacks() {
                let share = count as f64 / all;
                let empty = || vec![[0.0; 2]; blocks.len()];
                for depth in 1..=stack.len() {
                    paths.entry(&stack[..depth]).or_insert_with(empty)[block][which] += share;
                }
                // A function that calls itself has its samples once.
                for name in stack.iter().map(String::as_str).collect::<BTreeSet<_>>() {
                    names.entry(name).or_insert_with(empty)[block][which] += share;
                }
            }
        }
    }
    let seen = |shares: &[f64; 2]| shares.iter().any(|share| *share >= LEAST_SHARE);
    let frames = paths.iter().filter_map(|(path, blocks)| {
        let (name, depth) = (path.last()?.clone(), u32::try_from(path.len() - 1).ok()?);
        let (shares, change) = change(blocks);
        seen(&shares).then_some(Frame { depth, name, shares, change })
    });
    let frames: Vec<Frame> = frames.take(MOST_FRAMES).collect();
    let functions = names.iter().map(|(name, blocks)| {
        let (shares, change) = change(blocks);
        FunctionChange { name: (*name).to_owned(), shares, change }
    });
    let mut functions: Vec<FunctionChange> =
        functions.filter(|one| one.change.centre.abs() >= LEAST_CHANGE).collect();
    functions.sort_by(|a, b| b.change.centre.abs().total_cmp(&a.change.centre.abs()));
    functions.truncate(MOST_FUNCTIONS);
    let samples = [0, 1].map(|which| blocks.iter().map(|pair| pair[which].0.samples).sum());
    let mut of = blocks.iter().flatten().map(|(of, _)| of);
    ProfiledSide {
        side,
        event: of.clone().find_map(|of| of.event.clone()).unwrap_or_else(|| "perf".to_owned()),
        blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
        samples,
        cut: of.any(|of| of.cut),
        frames,
        functions,
    }
}

/// The mean shares of the blocks and their difference inside these.
fn change(blocks: &[[f64; 2]]) -> ([f64; 2], report::ShownEstimate) {
    let mean = |which: usize| {
        blocks.iter().map(|shares| shares[which]).sum::<f64>() / blocks.len().max(1) as f64
    };
    let differences: Vec<f64> = blocks.iter().map(|[a, b]| b - a).collect();
    let found = stats::account(&differences, &[], 1.0 - ALPHA).map(|found| found.difference);
    // No share changes by more than all of it.
    let whole = |end: f64| end.clamp(-1.0, 1.0);
    let shares = [mean(0), mean(1)];
    let change = report::ShownEstimate {
        centre: shares[1] - shares[0],
        interval: found.and_then(|found| found.interval).map(|found| span(found.map(whole))),
    };
    (shares, change)
}

/// What perf cost each variant: the profiled invocation's value by the mean of the same
/// boot's runs.
pub(super) fn overheads(
    plan: &Plan,
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

    fn side(text: &str) -> (SideProfile, Folded) {
        let folded = Folded::from_text(text);
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
