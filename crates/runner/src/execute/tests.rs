//! The scheduler against a laboratory without VMs.

use std::path::Path;

use super::*;
use crate::store::Store;
use crate::testing::{FakeLab, STUDY, host, plan, plan_of};
use crate::{results, store};

fn run(plan: &StudyPlan, dir: &Path, lab: &mut FakeLab) -> (ExecutionEnd, store::Contents) {
    let mut store = Store::create(dir, plan, &host()).unwrap();
    let cancel = lab.cancel_after.as_ref().map_or_else(Cancel::new, |(_, cancel)| cancel.clone());
    let ended = execute(plan, &[], &mut store, lab, &cancel, &mut |_| {}).unwrap();
    drop(store);
    (ended, store::read(dir).unwrap())
}

/// The trials that count, as they stand in the results.
fn counted(contents: &store::Contents) -> Vec<String> {
    let state = JournalState::from_events(&contents.events);
    let mut trials: Vec<_> = results::trials(&contents.events, &state)
        .into_iter()
        .filter(|trial| trial.counted)
        .map(|trial| {
            let TrialKey { id, block, load, workload, variant, order, .. } = &trial.result.trial;
            format!("{id} {block} {load} {workload} {variant} {order}")
        })
        .collect();
    trials.sort();
    trials
}

#[test]
fn every_block_boots_every_variant_once_inside_one_load() {
    let dir = tempfile::tempdir().unwrap();
    let mut lab = FakeLab::new();
    let (ended, contents) = run(&plan(), dir.path(), &mut lab);
    assert_eq!(ended, ExecutionEnd::Complete);
    assert_eq!(counted(&contents).len(), 3 * 2 * 3, "blocks x loads x variants");
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    for line in &lab.log {
        match line.as_str() {
            load if load.starts_with('+') => blocks.push(vec![load]),
            "-" => {}
            trial => blocks.last_mut().unwrap().push(trial.split('/').nth(1).unwrap()),
        }
    }
    assert_eq!(blocks.len(), 6);
    for round in blocks.chunks(2) {
        let mut loads: Vec<_> = round.iter().map(|block| block[0]).collect();
        loads.sort_unstable();
        assert_eq!(loads, ["+busy", "+idle"], "each round has each load once");
        for block in round {
            let mut variants = block[1..].to_vec();
            variants.sort_unstable();
            assert_eq!(variants, ["a", "b", "c"]);
        }
    }
    let orders: std::collections::BTreeSet<_> = blocks.iter().map(|b| b[1..].to_vec()).collect();
    assert!(orders.len() > 1, "the order of variants changes between blocks");
}

#[test]
fn the_order_depends_on_the_seed_alone() {
    let (a, b) = (plan(), plan());
    let mut c = plan();
    c.seed = 8;
    let blocks = |plan: &StudyPlan| (0..20).map(|n| plan.block(n)).collect::<Vec<_>>();
    assert_eq!(blocks(&a), blocks(&b));
    assert_ne!(blocks(&a), blocks(&c));
}

#[test]
fn a_cancelled_study_is_resumed_to_the_same_set_of_trials() {
    let whole = tempfile::tempdir().unwrap();
    let (_, expected) = run(&plan(), whole.path(), &mut FakeLab::new());
    for after in 0..18 {
        let dir = tempfile::tempdir().unwrap();
        let mut lab = FakeLab::new();
        lab.cancel_after = Some((after, Cancel::new()));
        let (ended, _) = run(&plan(), dir.path(), &mut lab);
        assert_eq!(ended, ExecutionEnd::Cancelled, "after {after}");
        assert_eq!(lab.log.last().unwrap(), "-", "the host load is taken away");

        let (mut store, contents) = Store::resume(dir.path()).unwrap();
        let mut observe = |_: ExecutionEvent<'_>| {};
        let (mut lab, cancel) = (FakeLab::new(), Cancel::new());
        let plan = contents.plan.clone();
        let ended =
            execute(&plan, &contents.events, &mut store, &mut lab, &cancel, &mut observe).unwrap();
        assert_eq!(ended, ExecutionEnd::Complete);
        drop(store);
        let found = store::read(dir.path()).unwrap();
        assert_eq!(counted(&found), counted(&expected), "after {after}");
    }
}

#[test]
fn a_killed_study_is_resumed_from_any_length_of_its_journal() {
    let whole = tempfile::tempdir().unwrap();
    let (_, expected) = run(&plan(), whole.path(), &mut FakeLab::new());
    let journal = std::fs::read(whole.path().join("journal.jsonl")).unwrap();
    for cut in (0..journal.len()).step_by(331) {
        let dir = tempfile::tempdir().unwrap();
        drop(Store::create(dir.path(), &plan(), &host()).unwrap());
        // As after a loss of power, which forgets what was written and not waited for.
        std::fs::write(dir.path().join("journal.jsonl"), &journal[..cut]).unwrap();
        let acknowledged = record::journal::read(&journal[..cut], None).events;
        let (mut store, contents) = Store::resume(dir.path()).unwrap();
        assert_eq!(contents.events, acknowledged, "nothing acknowledged is lost");
        let mut observe = |_: ExecutionEvent<'_>| {};
        let (mut lab, cancel) = (FakeLab::new(), Cancel::new());
        execute(&plan(), &contents.events, &mut store, &mut lab, &cancel, &mut observe).unwrap();
        drop(store);
        let found = store::read(dir.path()).unwrap();
        assert_eq!(counted(&found), counted(&expected), "cut at {cut}");
    }
}

#[test]
fn a_variant_that_only_fails_is_left_out_after_two_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let mut lab = FakeLab::new();
    lab.broken = vec!["c"];
    let (ended, contents) = run(&plan(), dir.path(), &mut lab);
    assert_eq!(ended, ExecutionEnd::Complete);
    let tried = lab.log.iter().filter(|line| line.ends_with("/c")).count();
    assert_eq!(tried, 2 * 2, "two tries in each of the two loads");
    let report = crate::summary::report(dir.path(), &contents);
    assert_eq!(report.failures.len(), 4);
    let ground = |variant: usize| report.variants[variant].found.last().map(|fact| &fact.value);
    let levels = "merged pages 0 B, page cache 1.049 MB to 6.291 MB".to_owned();
    assert_eq!((ground(0), ground(2)), (Some(&levels), None), "c never began");
    assert!(
        report.warnings.iter().any(|warning| warning.contains("left out")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a_study_without_a_living_baseline_ends_early_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut lab = FakeLab::new();
    lab.broken = vec!["a"];
    let plan = plan_of(&STUDY.replace("blocks = 3", "blocks = 50"));
    let (_, contents) = run(&plan, dir.path(), &mut lab);
    let Some(JournalEvent::StudyEnded { reason, .. }) = contents.events.last() else {
        panic!("no end: {:?}", contents.events.last());
    };
    assert!(reason.contains("nothing left to compare"), "{reason}");
}

#[test]
fn verdicts_are_recomputed_from_the_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (_, contents) = run(&plan(), dir.path(), &mut FakeLab::new());
    let report = crate::summary::report(dir.path(), &contents);
    let again = crate::summary::report(dir.path(), &store::read(dir.path()).unwrap());
    assert_eq!(report, again);
    let cell = report.groups[0].cell("b").unwrap();
    let ratio = cell.judgement.as_ref().unwrap().ratio.unwrap();
    assert!((ratio.centre - 0.5).abs() < 0.01, "{ratio:?}");
    assert_eq!(cell.judgement.as_ref().unwrap().verdict, report::ShownVerdict::Better);
    let state = JournalState::from_events(&contents.events);
    let rows = results::records(&plan(), &results::trials(&contents.events, &state));
    assert_eq!(rows.len(), 18 * 2, "a row for each sample");
}

#[test]
fn a_budget_of_minutes_ends_with_a_whole_round() {
    let plan = plan_of(&STUDY.replace("blocks = 3", "minutes = 1"));
    let mut state = JournalState::default();
    let end = |state: &JournalState| end_reason(&plan, state, &Agenda::of(&plan, state, &[]));
    assert_eq!(end(&state), None);
    state.complete(0, 0, &[], 14.0);
    assert_eq!(end(&state), None, "in the middle of a round");
    state.complete(1, 0, &[], 14.0);
    assert_eq!(end(&state), None, "another 28 s fit into the minute");
    state.complete(2, 0, &[], 14.0);
    state.complete(3, 0, &[], 14.0);
    assert!(end(&state).unwrap().contains("1 minute"));
}

/// [`STUDY`] under one load level.
fn idle_study() -> String {
    STUDY.replace("[[load]]\nname = \"busy\"\nstress.percent = 50\n", "")
}

/// Boots of each variant under load `idle`.
fn boots(contents: &store::Contents) -> BTreeMap<String, usize> {
    let state = JournalState::from_events(&contents.events);
    let mut boots = BTreeMap::new();
    for trial in results::trials(&contents.events, &state) {
        if trial.counted && trial.result.trial.load == "idle" {
            *boots.entry(trial.result.trial.variant.clone()).or_default() += 1;
        }
    }
    boots
}

#[test]
fn what_is_decided_is_not_measured_any_more() {
    let check = |budget: &str, expected: [usize; 3], ended: &str| {
        let study =
            idle_study().replace("blocks = 3", budget).replace("name = \"c\"", "name = \"noisy\"");
        let dir = tempfile::tempdir().unwrap();
        let (_, contents) = run(&plan_of(&study), dir.path(), &mut FakeLab::new());
        let [a, b, noisy] = expected;
        let expected = [("a", a), ("b", b), ("noisy", noisy)].map(|(name, n)| (name.into(), n));
        assert_eq!(boots(&contents), BTreeMap::from(expected), "{budget}");
        let Some(JournalEvent::StudyEnded { reason, .. }) = contents.events.last() else {
            panic!("{budget}: no end");
        };
        assert!(reason.contains(ended), "{budget}: {reason}");
    };
    // The first look comes after five blocks.
    check("blocks = 12", [12, 5, 12], "all 12 planned");
    check("blocks = 12\nuntil = \"budget\"", [12, 12, 12], "all 12 planned");
    // Whoever is clearly worse than the best is out of the race.
    check("blocks = 12\nrace = true", [5, 5, 5], "every comparison is decided");
}

#[test]
fn a_block_out_of_line_is_done_again_once_in_five() {
    let dir = tempfile::tempdir().unwrap();
    let study = idle_study().replace("blocks = 3", "blocks = 9\nuntil = \"budget\"");
    let mut lab = FakeLab::new();
    // Nothing is usual before the fourth block, and the ninth is one too many.
    lab.disturbed = vec![(0, 0), (4, 0), (7, 0)];
    let (_, contents) = run(&plan_of(&study), dir.path(), &mut lab);
    let state = JournalState::from_events(&contents.events);
    let rejected = state.rejected.iter().map(|(block, attempt, _)| (*block, *attempt));
    assert_eq!(rejected.collect::<Vec<_>>(), [(4, 0)]);
    assert_eq!(state.unsteady.iter().map(|(block, _)| *block).collect::<Vec<_>>(), [7]);
    assert_eq!((state.complete[&4], state.complete.len()), (1, 9));
    assert_eq!(boots(&contents)["a"], 9, "the bad one is kept, and does not count");
    assert_eq!(results::trials(&contents.events, &state).len(), 10 * 3);

    // What changes from block to block is no reason to claim nothing.
    let report = crate::summary::report(dir.path(), &contents);
    let judgement = report.groups[0].cell("b").unwrap().judgement.clone().unwrap();
    assert_ne!(judgement.verdict, report::ShownVerdict::Invalid, "{judgement:?}");
    let told = "Block 4 was done again: b at hackbench: others used ";
    assert!(report.warnings.iter().any(|warning| warning.starts_with(told)), "{report:?}");
}

#[test]
fn what_was_not_put_back_is_journalled_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut lab = FakeLab::new();
    lab.stuck = vec![1];
    let (_, contents) = run(&plan_of(&idle_study()), dir.path(), &mut lab);
    let said = "Host setting governor stays powersave";
    let state = JournalState::from_events(&contents.events);
    assert_eq!(state.not_restored, [(1, vec![said.to_owned()])]);
    let report = crate::summary::report(dir.path(), &contents);
    assert!(report.warnings.contains(&format!("After block 1: {said}.")), "{:?}", report.warnings);
}

#[test]
fn neighbours_of_all_variants_cost_a_line_and_those_of_one_the_verdict() {
    let study = idle_study().replace("blocks = 3", "blocks = 6\nuntil = \"budget\"");
    let judged = |lab: &mut FakeLab| {
        let dir = tempfile::tempdir().unwrap();
        let (_, contents) = run(&plan_of(&study), dir.path(), lab);
        let report = crate::summary::report(dir.path(), &contents);
        let cell = |name: &str| report.groups[0].cell(name).unwrap().judgement.clone().unwrap();
        let (b, c) = (cell("b"), cell("c"));
        (report, b, c)
    };
    let mut lab = FakeLab::new();
    lab.busy = true;
    let (report, b, _) = judged(&mut lab);
    assert_ne!(b.verdict, report::ShownVerdict::Invalid, "{b:?}");
    let lines = report.warnings.iter().filter(|warning| warning.starts_with("The host was busy"));
    assert_eq!(lines.count(), 1, "{:?}", report.warnings);

    let mut lab = FakeLab::new();
    lab.disturbed = (0..6).flat_map(|block| [(block, 0), (block, 1)]).collect();
    let (report, b, c) = judged(&mut lab);
    // What is faster although it was disturbed is faster.
    assert_eq!(
        (b.verdict, c.verdict),
        (report::ShownVerdict::Better, report::ShownVerdict::Better)
    );
    let notes = b.notes.join(" ");
    assert!(notes.contains("The host disturbed one side more, so part of"), "{notes}");
    assert!(!c.notes.join(" ").contains("disturbed"), "its trials had no neighbours: {c:?}");
    let beside = &report.host_beside[0].variants[1];
    assert!(beside.variant == "b" && beside.others.unwrap().mean > 0.5, "{beside:?}");

    // Half the pCPUs may be what made the baseline take twice as long.
    lab.disturbed_variant = "a";
    let (report, b, _) = judged(&mut lab);
    assert!(
        matches!(b.why, Some(stats::Invalidity::HostDiffered { host })
            if host.sign == record::HostSign::Others && host.ratio < 0.6),
        "{b:?}"
    );
    let text = report::terminal(&report, 120, report::TerminalStyle::default());
    assert!(text.contains("The host disturbed one side more: others' time"), "{text}");
    assert!(text.contains("The host beside the trials"), "{text}");
    assert!(report::html(&report).contains("<h2>The host beside the trials</h2>"));
}

#[test]
fn an_extended_study_goes_on_by_the_bound_that_holds_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let study = idle_study().replace("name = \"c\"", "name = \"noisy\"");
    let plan = plan_of(&study);
    run(&plan, dir.path(), &mut FakeLab::new());
    let (mut store, mut contents) = Store::resume(dir.path()).unwrap();
    let event = JournalEvent::Extended { blocks: 8, unix_s: 2.0e9 };
    store.append(&event).unwrap();
    contents.events.push(event);
    let (mut lab, cancel) = (FakeLab::new(), Cancel::new());
    execute(&plan, &contents.events, &mut store, &mut lab, &cancel, &mut |_| {}).unwrap();
    drop(store);
    let contents = store::read(dir.path()).unwrap();
    // What three blocks had decided needed no more.
    let boots = boots(&contents);
    assert_eq!((boots["a"], boots["b"], boots["noisy"]), (8, 3, 8));
    let report = crate::summary::report(dir.path(), &contents);
    let notes = &report.groups[0].cell("noisy").unwrap().judgement.as_ref().unwrap().notes;
    assert!(notes.iter().any(|note| note.starts_with("Beyond the plan")), "{notes:?}");
}

/// Invocations of each boot of `a`, by block.
fn invocations(contents: &store::Contents) -> Vec<usize> {
    let state = JournalState::from_events(&contents.events);
    let mut runs: Vec<(u32, usize)> = results::trials(&contents.events, &state)
        .iter()
        .filter(|trial| trial.counted && trial.result.trial.variant == "a")
        .map(|trial| (trial.result.trial.block, trial.result.runs.len()))
        .collect();
    runs.sort_unstable();
    runs.into_iter().map(|(_, runs)| runs).collect()
}

#[test]
fn the_first_blocks_decide_how_often_a_boot_repeats_and_what_warms_up() {
    let study = idle_study()
        .replace("blocks = 3", "blocks = 7\nuntil = \"budget\"")
        .replace("invocations = 2\n", "params = { groups = 1 }\n");
    let check = |cold: f64, wobble: f64, expected: [usize; 7], ratio_within: f64| {
        let dir = tempfile::tempdir().unwrap();
        let mut lab = FakeLab::new();
        (lab.cold, lab.wobble) = (cold, wobble);
        let (_, contents) = run(&plan_of(&study), dir.path(), &mut lab);
        assert_eq!(invocations(&contents), expected, "cold {cold}, wobble {wobble}");
        let report = crate::summary::report(dir.path(), &contents);
        let cell = report.groups[0].cell("b").unwrap();
        let ratio = cell.judgement.as_ref().unwrap().ratio.unwrap().centre;
        assert!((ratio / 0.5 - 1.0).abs() < ratio_within, "{ratio}");
        report
    };
    // All noise is between the boots: one invocation says it all.
    let report = check(0.0, 0.0, [4, 4, 4, 4, 1, 1, 1], 1e-3);
    assert!(report.warnings.iter().all(|warning| !warning.contains("warm up")));
    // A cold start is cut off in all variants, and in the first blocks too.
    let report = check(0.06, 0.0005, [4, 4, 4, 4, 4, 4, 4], 2e-3);
    let warned = report.warnings.iter().find(|warning| warning.contains("warm up"));
    assert!(warned.unwrap().starts_with("The first 3 invocation(s)"), "{warned:?}");
    // Nothing can be cut off where nothing is steady.
    let mut lab = FakeLab::new();
    lab.cold = 0.3;
    let dir = tempfile::tempdir().unwrap();
    let (_, contents) = run(&plan_of(&study), dir.path(), &mut lab);
    let report = crate::summary::report(dir.path(), &contents);
    assert!(report.warnings.iter().any(|warning| warning.contains("No steady state")));
    let judgement = report.groups[0].cell("b").unwrap().judgement.as_ref().unwrap();
    assert_eq!(judgement.verdict, report::ShownVerdict::Invalid, "{judgement:?}");
}
