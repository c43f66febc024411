//! The results folder against crashes, damage and other processes.

use super::*;
use crate::plan::Block;
use crate::testing::{host, plan};

fn event(block: u32) -> JournalEvent {
    JournalEvent::BlockStarted { block, attempt: 0, load: "idle".into(), unix_s: 0.0 }
}

fn store_with(events: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path(), &plan(), &host()).unwrap();
    for block in 0..events {
        store.append(&event(block)).unwrap();
    }
    dir
}

#[test]
fn what_was_appended_is_there_after_reopening() {
    let dir = store_with(3);
    let contents = read(dir.path()).unwrap();
    assert_eq!(contents.events, (0..3).map(event).collect::<Vec<_>>());
    assert_eq!(contents.plan.hash(), plan().hash());
    assert_eq!(contents.damage, []);
}

#[test]
fn one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::create(dir.path(), &plan(), &host()).unwrap();
    let error = Store::resume(dir.path()).unwrap_err().to_string();
    assert!(error.contains("in use by another vmlab"), "{error}");
    assert!(error.contains(&std::process::id().to_string()), "{error}");
    drop(first);
    Store::resume(dir.path()).expect("a lock ends with its process, the file does not matter");
}

#[test]
fn a_folder_with_a_study_is_not_overwritten() {
    let dir = store_with(1);
    let error = Store::create(dir.path(), &plan(), &host()).unwrap_err().to_string();
    assert!(error.contains("--resume"), "{error}");
    assert_eq!(read(dir.path()).unwrap().events.len(), 1);
}

#[test]
fn a_torn_tail_is_kept_apart_and_damage_is_refused() {
    let dir = store_with(3);
    let path = dir.path().join(JOURNAL);
    let good = fs::read(&path).unwrap();
    // As a crash leaves it: the fourth line was never acknowledged.
    let torn = [&good[..], b"{\"event\":\"trial-en"].concat();
    fs::write(&path, &torn).unwrap();
    assert_eq!(read(dir.path()).unwrap().damage.len(), 1, "reading says it and goes on");
    let (mut store, contents) = Store::resume(dir.path()).unwrap();
    assert_eq!(contents.events.len(), 3);
    assert_eq!(fs::read(dir.path().join(TORN)).unwrap(), torn[good.len()..]);
    store.append(&event(3)).unwrap();
    drop(store);
    let contents = read(dir.path()).unwrap();
    assert_eq!((contents.events.len(), contents.damage.len()), (4, 0));

    let good = fs::read(&path).unwrap();
    let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
    let check = |text: Vec<u8>, events: usize, what: &str| {
        fs::write(&path, &text).unwrap();
        let contents = read(dir.path()).unwrap();
        let said: Vec<_> = damage_lines(dir.path(), &contents.damage).collect();
        assert_eq!(contents.events.len(), events, "{said:?}");
        assert!(said.iter().any(|line| line.contains(what)), "{what}: {said:?}");
        let error = Store::resume(dir.path()).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("Restore it from a copy"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), text, "nothing is thrown away");
    };
    let mut flipped = good.clone();
    flipped[10] ^= 1;
    check(flipped, 3, "journal.jsonl:1: damaged (checksum");
    check(good[..good.len() - 5].to_vec(), 3, "journal.jsonl:4: damaged (the line was whole once");
    check(lines[..2].concat(), 2, "journal.jsonl:3: 2 lines are missing");
    check([lines[0], lines[2], lines[3]].concat(), 3, "journal.jsonl:2: a line is missing");
    check([&good, lines[1]].concat(), 4, "journal.jsonl:5: the same line stands there before");
    check(Vec::new(), 0, "journal.jsonl:1: 4 lines are missing");
}

#[test]
fn a_changed_plan_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path(), &plan(), &host()).unwrap();
    let started = JournalEvent::SessionStarted {
        vmlab_version: "0".into(),
        plan_hash: plan().hash(),
        environment: record::Environment::Tcg,
        unix_s: 0.0,
    };
    store.append(&started).unwrap();
    drop(store);
    let path = dir.path().join(PLAN);
    let text = fs::read_to_string(&path).unwrap().replace("\"seed\": 7", "\"seed\": 8");
    fs::write(&path, text).unwrap();
    let error = read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("another plan"), "{error}");
}

#[test]
fn a_later_plan_is_told_apart_from_a_damaged_one() {
    let dir = store_with(1);
    let path = dir.path().join(PLAN);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"version\": 1", "\"version\": 2", 1)).unwrap();
    let error = read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("format 2") && error.contains("a newer vmlab"), "{error}");
}

/// What an earlier vmlab froze lacks the fields that came after it; what a later
/// one adds within the format is not known here.
#[test]
fn a_plan_is_its_text_whatever_fields_it_has() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::create(dir.path(), &plan(), &host()).unwrap());
    let path = dir.path().join(PLAN);
    let mut fields: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fields.as_object_mut().unwrap().remove("reload").expect("a field with a default");
    fields["of_another_version"] = true.into();
    fs::write(&path, serde_json::to_string(&fields).unwrap()).unwrap();
    // The text that was frozen is the plan, and goes to other machines as it is.
    let frozen = read(dir.path()).unwrap().plan;
    assert_eq!(frozen.to_json().as_bytes(), fs::read(&path).unwrap());
    assert_eq!(StudyPlan::from_json(frozen.to_json().as_bytes()).unwrap().hash(), frozen.hash());
    let (mut store, contents) = Store::resume(dir.path()).unwrap();
    let mut lab = crate::testing::FakeLab::new();
    let cancel = guest::Cancel::new();
    crate::execute::execute(
        &contents.plan,
        &contents.events,
        &mut store,
        &mut lab,
        &cancel,
        &mut |_| {},
    )
    .unwrap();
    drop(store);
    let contents = read(dir.path()).unwrap();
    assert!(contents.events.len() > 10);
    let JournalEvent::SessionStarted { plan_hash, .. } = &contents.events[0] else { panic!() };
    assert_eq!(*plan_hash, frozen.hash());
}

#[test]
fn a_removed_folder_is_an_error_at_the_next_event() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("results");
    let mut store = Store::create(&inner, &plan(), &host()).unwrap();
    fs::remove_dir_all(&inner).unwrap();
    let error = store.append(&event(0)).unwrap_err().to_string();
    assert!(error.contains("removed"), "{error}");
}

#[test]
fn folders_without_a_study_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = Store::resume(dir.path()).unwrap_err().to_string();
    assert!(error.contains("holds no study"), "{error}");
    fs::write(dir.path().join(PLAN), "{ \"version\": 1,\n nonsense").unwrap();
    let error = read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("plan.json:2"), "{error}");
}

/// A trial of the plan that ended and left one text; of a variant of another name if one is
/// given.
fn trial_ended(store: &mut Store, variant: Option<&str>) -> JournalEvent {
    let block = Block { number: 0, load: 0, trials: vec![(0, 0), (0, 1)] };
    let mut trial = plan().trial_key(&block, 0, 0);
    if let Some(variant) = variant {
        variant.clone_into(&mut trial.variant);
        trial.id = format!("of {variant}");
    }
    let console = Some(store.keep(b"login:").unwrap());
    let result = TrialResult::new(trial, record::Outcome::Completed, 0.0);
    JournalEvent::TrialEnded(Box::new(TrialResult { console, ..result }))
}

fn kinds(dir: &Path) -> Vec<DamageKind> {
    read(dir).unwrap().damage.into_iter().map(|damage| damage.kind).collect()
}

#[test]
fn what_says_where_the_journal_ends_is_missed() {
    let dir = store_with(3);
    assert_eq!(kinds(dir.path()), []);
    let path = dir.path().join(JOURNAL);
    let text = fs::read(&path).unwrap();
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for end in [None, Some("")] {
        fs::write(&path, lines[..2].concat()).unwrap();
        match end {
            Some(text) => fs::write(dir.path().join(END), text).unwrap(),
            None => fs::remove_file(dir.path().join(END)).unwrap(),
        }
        assert_eq!(kinds(dir.path()), [DamageKind::EndUnknown]);
        // Which is what the advice about a damaged journal says.
        drop(Store::resume(dir.path()).unwrap());
        assert_eq!(kinds(dir.path()), []);
    }
}

/// Whoever can write checksums can chain them, too.
#[test]
fn a_journal_that_is_sound_by_its_checksums_is_held_to_its_plan() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path(), &plan(), &host()).unwrap();
    let ended = trial_ended(&mut store, None);
    let other = trial_ended(&mut store, Some("another"));
    for event in [&ended, &ended, &other] {
        store.append(event).unwrap();
    }
    drop(store);
    let contents = read(dir.path()).unwrap();
    assert_eq!(contents.events, [ended]);
    let said: Vec<_> = damage_lines(dir.path(), &contents.damage).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("journal.jsonl:2: this trial had ended"), "{said:?}");
    assert!(said[1].contains("1 trial(s) before are of no variant"), "{said:?}");
}

#[test]
fn texts_that_are_gone_are_told_by_whoever_reads_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path(), &plan(), &host()).unwrap();
    let ended = trial_ended(&mut store, None);
    store.append(&ended).unwrap();
    drop(store);
    assert_eq!(kinds(dir.path()), []);
    let blobs = dir.path().join(BLOBS);
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(&blobs, &elsewhere).unwrap();
    let gone = [DamageKind::TextsMissing { texts: 1 }];
    assert_eq!(kinds(dir.path()), gone);
    std::os::unix::fs::symlink(&elsewhere, &blobs).unwrap();
    assert_eq!(kinds(dir.path()), gone, "a link is followed to nobody's folder");
    let found = crate::verify::verify(dir.path()).unwrap();
    assert_eq!((found.texts, found.findings.len()), (0, 1));
    fs::remove_file(&blobs).unwrap();
    fs::create_dir(&blobs).unwrap();
    drop(Store::resume(dir.path()).expect("the study goes on without them"));
}

#[test]
fn a_file_with_holes_costs_nothing_and_is_named() {
    let dir = store_with(1);
    for (name, limit) in [(PLAN, "64 MiB"), (HOST, "64 MiB"), (JOURNAL, "1024 MiB")] {
        let path = dir.path().join(name);
        let text = fs::read(&path).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = read(dir.path()).unwrap_err();
        let said = format!("{error}: {}", std::error::Error::source(&error).unwrap());
        assert!(said.contains(name) && said.contains(limit), "{said}");
        fs::write(&path, text).unwrap();
    }
    assert!(is_results(dir.path()));
    fs::write(dir.path().join(HOST), "{\n]").unwrap();
    let said = read(dir.path()).unwrap_err().to_string();
    assert!(said.contains("host.json:2: the machine's description"), "{said}");
}
