//! The results folder against crashes, damage and other processes.

use super::*;
use crate::testing::{host, plan};

fn event(block: u32) -> Event {
    Event::BlockStarted { block, attempt: 0, load: "idle".into(), unix_s: 0.0 }
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
    assert_eq!(contents.torn, None);
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
fn a_torn_tail_is_kept_apart_and_a_damaged_middle_is_refused() {
    let dir = store_with(3);
    let path = dir.path().join(JOURNAL);
    let good = fs::read(&path).unwrap();
    fs::write(&path, &good[..good.len() - 5]).unwrap();
    assert!(read(dir.path()).unwrap().torn.is_some(), "reading says it and goes on");
    let (store, contents) = Store::resume(dir.path()).unwrap();
    assert_eq!(contents.events.len(), 2);
    assert!(contents.torn.unwrap().contains(TORN));
    assert!(dir.path().join(TORN).exists());
    drop(store);

    let mut flipped = good.clone();
    flipped[10] ^= 1;
    fs::write(&path, &flipped).unwrap();
    let error = Store::resume(dir.path()).unwrap_err().to_string();
    assert!(error.contains("journal.jsonl:1: damaged"), "{error}");
    assert!(error.contains("2 readable event(s)"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), flipped, "nothing is thrown away");
}

#[test]
fn a_changed_plan_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path(), &plan(), &host()).unwrap();
    let started = Event::SessionStarted {
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
