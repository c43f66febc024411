//! Tests of the host settings.

use std::cell::Cell;
use std::process::Command;

use tempfile::TempDir;

use super::*;

/// A root folder with the files of all settings, and a state folder.
fn tree() -> (TempDir, PathBuf, PathBuf) {
    let temp = tempfile::tempdir().expect("temp folder");
    let (root, state) = (temp.path().join("root"), temp.path().join("state"));
    let texts = [
        ("thp", "always [madvise] never\n"),
        ("thp_defrag", "always defer defer+madvise [madvise] never\n"),
        ("ksm", "0\n"),
        ("numa_balancing", "1\n"),
    ];
    for (id, text) in texts {
        let path = path_of(&root, id);
        fs::create_dir_all(path.parent().expect("has one")).expect("mkdir");
        fs::write(path, text).expect("write");
    }
    (temp, root, state)
}

fn path_of(root: &Path, id: &str) -> PathBuf {
    root.join(setting(id).expect("known").path)
}

fn value(root: &Path, id: &str) -> String {
    read_value(&path_of(root, id)).expect("readable").value
}

fn values(root: &Path) -> Vec<String> {
    SETTINGS.iter().map(|setting| value(root, setting.id)).collect()
}

fn changes(list: &[(&str, &str)]) -> Vec<Change> {
    list.iter().map(|(id, value)| Change::new(id, value).expect("valid")).collect()
}

fn journals(state: &Path) -> usize {
    let lock = Lock::take(state).expect("lock");
    lock.journals().expect("readable").len()
}

fn me() -> Owner {
    Owner::current("a run").expect("this process")
}

/// An owner of this boot whose process has ended.
fn dead() -> Owner {
    let mut child = Command::new("true").spawn().expect("true starts");
    child.wait().expect("ends");
    Owner { pid: child.id(), starttime_ticks: 1, ..me() }
}

#[test]
fn table_is_sound() {
    for (i, setting) in SETTINGS.iter().enumerate() {
        assert!(SETTINGS[i + 1..].iter().all(|other| other.id != setting.id));
        assert!(!setting.path.starts_with('/') && !setting.help.is_empty());
    }
}

#[test]
fn values_are_parsed() {
    let check = |text: &str, expected: Option<(&str, &[&str])>| {
        let found = parse_value(text);
        let expected = expected.map(|(value, offered)| Present {
            value: value.to_owned(),
            offered: offered.iter().map(|word| (*word).to_owned()).collect(),
        });
        assert_eq!(found, expected, "{text:?}");
    };
    check("always [madvise] never\n", Some(("madvise", &["always", "madvise", "never"])));
    check("[0] 1\n", Some(("0", &["0", "1"])));
    check("[only]", Some(("only", &["only"])));
    check("1\n", Some(("1", &[])));
    check("", None);
    check("always madvise", None);
    check("[a] [b]", None);
    check("[a b", None);
}

#[test]
fn wrong_changes_name_what_there_is() {
    let check = |id: &str, value: &str, message: &str| {
        let error = Change::new(id, value).expect_err(message).to_string();
        assert_eq!(error, message);
    };
    check(
        "tph",
        "never",
        "Unknown host setting \"tph\"; there are thp, thp_defrag, ksm, numa_balancing",
    );
    check("thp", "on", "Host setting thp cannot be \"on\"; it takes always, madvise, never");
}

#[test]
fn settings_are_set_and_put_back() {
    let (_temp, root, state) = tree();
    let before = values(&root);
    let wanted = changes(&[("thp", "always"), ("ksm", "1"), ("numa_balancing", "1")]);
    let settings = Settings::apply(&root, &wanted, &state, &me()).expect("applied");
    assert_eq!(values(&root), ["always", "madvise", "1", "1"]);
    assert_eq!(journals(&state), 1);
    let restored = settings.restore().expect("restored");
    let outcomes: Vec<String> =
        restored.iter().map(|one| format!("{} {:?}", one.id, one.outcome)).collect();
    assert_eq!(outcomes, ["numa_balancing AlreadyBack", "ksm Restored", "thp Restored"]);
    assert_eq!((values(&root), journals(&state)), (before.clone(), 0));
    // Dropping is enough.
    drop(Settings::apply(&root, &wanted, &state, &me()).expect("applied"));
    assert_eq!((values(&root), journals(&state)), (before, 0));
    let nothing = Settings::apply(&root, &[], Path::new("/proc/no/state"), &me());
    assert!(nothing.expect("nothing to do").restore().expect("nothing").is_empty());
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    let check = |spoil: &dyn Fn(&Path, &Path), wanted: &[(&str, &str)], message: &str| {
        let (_temp, root, state) = tree();
        spoil(&root, &state);
        let before = fs::read_to_string(path_of(&root, "thp")).expect("readable");
        let error = Settings::apply(&root, &changes(wanted), &state, &me()).expect_err(message);
        assert!(error.to_string().contains(message), "{error}");
        let now = fs::read_to_string(path_of(&root, "thp")).expect("readable");
        assert_eq!(now, before, "{message}");
    };
    let both = [("thp", "always"), ("ksm", "1")];
    check(
        &|root, _| fs::remove_file(path_of(root, "ksm")).expect("removed"),
        &both,
        "mm/ksm/run; this kernel lacks it",
    );
    check(&|root, _| fs::write(path_of(root, "ksm"), "").expect("written"), &both, "Cannot read");
    check(
        &|root, _| fs::write(path_of(root, "thp"), "always [never]").expect("written"),
        &[("thp", "madvise")],
        "cannot be \"madvise\" on this kernel, which offers always, never",
    );
    check(&|_, _| {}, &[("thp", "always"), ("thp", "never")], "thp is to become two values");
    check(
        &|_, state| fs::write(state, "a file").expect("written"),
        &both,
        "Cannot use the journal of host settings",
    );
    check(
        &|_, state| {
            fs::create_dir(state).expect("mkdir");
            fs::write(state.join("settings-1-0.json"), "{").expect("written");
        },
        &both,
        "settings-1-0.json",
    );
}

#[test]
fn read_only_files_need_root() {
    // Root may write anything in a test's tree, but not this file of the kernel.
    let (_temp, root, state) = tree();
    let path = path_of(&root, "ksm");
    fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink("/proc/sys/kernel/ngroups_max", &path).expect("symlink");
    let wanted = changes(&[("thp", "always"), ("ksm", "1")]);
    let error = Settings::apply(&root, &wanted, &state, &me()).expect_err("read-only");
    assert!(error.to_string().contains("ksm/run; changing host settings takes root"), "{error}");
    assert_eq!(value(&root, "thp"), "madvise");
}

#[test]
fn a_refused_value_undoes_the_ones_before() {
    let (_temp, root, state) = tree();
    let wanted = changes(&[("thp", "always"), ("thp_defrag", "never"), ("ksm", "1")]);
    let before = values(&root);
    for ignore in [false, true] {
        // The journal is there before the first write.
        let written = Cell::new(0);
        let write = |path: &Path, value: &str| {
            assert_eq!(fs::read_dir(&state).expect("state").count(), 2, "lock and journal");
            written.set(written.get() + 1);
            match (written.get(), ignore) {
                (3, false) => Err(io::Error::from_raw_os_error(22)),
                (3, true) => Ok(()),
                _ => write_value(path, value),
            }
        };
        let error = apply_with(&root, &wanted, &state, &me(), &write).expect_err("refused");
        assert!(error.to_string().ends_with("to \"1\"; all settings are as before"), "{error}");
        assert_eq!((values(&root), journals(&state)), (before.clone(), 0));
    }
}

#[test]
fn a_killed_vmlab_is_undone_and_a_living_one_is_not() {
    let (_temp, root, state) = tree();
    let before = values(&root);
    let alive = Settings::apply(&root, &changes(&[("ksm", "1")]), &state, &me()).expect("set");
    let wanted = changes(&[("thp", "always"), ("thp_defrag", "never")]);
    std::mem::forget(Settings::apply(&root, &wanted, &state, &dead()).expect("set"));
    let check = |wanted: &[(&str, &str)], message: &str| {
        let error = Settings::apply(&root, &changes(wanted), &state, &me()).expect_err(message);
        assert!(error.to_string().contains(message), "{error}");
    };
    check(&[("ksm", "2")], "ksm is held by vmlab process");
    check(&[("thp", "never")], "thp was left changed by run a run; restore it with `vmlab clean`");

    let [stale] = restore_stale(&root, &state).expect("readable").try_into().expect("one");
    assert_eq!(stale.run_id.as_deref(), Some("a run"));
    let restored = stale.restored.expect("restored");
    assert!(restored.iter().all(|one| matches!(one.outcome, RestoreOutcome::Restored)));
    assert_eq!(values(&root), ["madvise", "madvise", "1", "1"], "the living one's stays");
    assert_eq!(journals(&state), 1);
    drop(alive);
    assert_eq!((values(&root), journals(&state)), (before, 0));
    assert!(restore_stale(&root, &state).expect("readable").is_empty());
}

#[test]
fn killed_between_journal_and_change() {
    let (_temp, root, state) = tree();
    let entries = prepare(&root, &changes(&[("thp", "always"), ("ksm", "1")])).expect("fine");
    let lock = Lock::take(&state).expect("lock");
    lock.write(Journal::new(dead(), entries)).expect("written");
    drop(lock);
    write_value(&path_of(&root, "thp"), "always").expect("the first was changed");
    let [stale] = restore_stale(&root, &state).expect("readable").try_into().expect("one");
    let outcomes: Vec<String> =
        stale.restored.expect("restored").iter().map(|one| format!("{:?}", one.outcome)).collect();
    assert_eq!(outcomes, ["AlreadyBack", "Restored"]);
    assert_eq!(values(&root), ["madvise", "madvise", "0", "1"]);
}

#[test]
fn what_others_changed_stays() {
    let (_temp, root, state) = tree();
    let wanted = changes(&[("thp", "always")]);
    let settings = Settings::apply(&root, &wanted, &state, &me()).expect("set");
    write_value(&path_of(&root, "thp"), "never").expect("somebody's change");
    let [one] = settings.restore().expect("restored").try_into().expect("one");
    let RestoreOutcome::ChangedByOthers { present } = one.outcome else { panic!("{one:?}") };
    assert_eq!((present.as_str(), one.old.as_str()), ("never", "madvise"));
    assert_eq!((value(&root, "thp").as_str(), journals(&state)), ("never", 0));
}

#[test]
fn a_reboot_has_undone_it() {
    let (_temp, root, state) = tree();
    let owner = Owner { boot_id: "of an earlier boot".to_owned(), ..me() };
    std::mem::forget(Settings::apply(&root, &changes(&[("ksm", "1")]), &state, &owner));
    let [stale] = restore_stale(&root, &state).expect("readable").try_into().expect("one");
    let [one] = stale.restored.expect("restored").try_into().expect("one");
    assert!(matches!(one.outcome, RestoreOutcome::Rebooted));
    assert_eq!((value(&root, "ksm").as_str(), journals(&state)), ("1", 0));
}

#[test]
fn what_cannot_be_restored_keeps_its_journal() {
    let (_temp, root, state) = tree();
    let wanted = changes(&[("thp", "always"), ("ksm", "1")]);
    std::mem::forget(Settings::apply(&root, &wanted, &state, &dead()).expect("set"));
    fs::remove_file(path_of(&root, "ksm")).expect("removed");
    let [stale] = restore_stale(&root, &state).expect("readable").try_into().expect("one");
    let restored = stale.restored.expect("tried");
    assert!(matches!(restored[0].outcome, RestoreOutcome::Failed(_)));
    assert_eq!((value(&root, "thp").as_str(), journals(&state)), ("madvise", 1));
    fs::write(path_of(&root, "ksm"), "1").expect("back");
    let stale = restore_stale(&root, &state).expect("readable");
    assert_eq!((stale.len(), value(&root, "ksm").as_str(), journals(&state)), (1, "0", 0));
}

#[test]
fn journals_that_say_odd_things_are_refused() {
    let (_temp, root, state) = tree();
    let owner = serde_json::to_string(&dead()).expect("json");
    let check = |changes: &str, version: u32| {
        fs::create_dir_all(&state).expect("mkdir");
        let text = format!(r#"{{"version":{version},"owner":{owner},"changes":{changes}}}"#);
        fs::write(state.join("settings-1-0.json"), &text).expect("written");
        let [stale] = restore_stale(&root, &state).expect("readable").try_into().expect("one");
        assert!(stale.restored.is_err(), "{text}");
        assert_eq!(values(&root), ["madvise", "madvise", "0", "1"]);
    };
    check(r#"[{"setting":"../etc/passwd","old":"x","new":"y"}]"#, 1);
    check(r#"[{"setting":"thp","old":"x","new":"madvise"}]"#, 1);
    check(r#"[{"setting":"thp","old":"never","new":"madvise"}]"#, 2);
    check(r#"[{"setting":"thp","old":"never"}]"#, 1);
    check("[", 1);
}

#[test]
fn the_real_thing_is_set_and_put_back() {
    let path = Path::new("/").join(SETTINGS[0].path);
    if std::env::var_os("RUN_SLOW_TESTS").is_none_or(|value| value != "1") {
        println!("SKIP: RUN_SLOW_TESTS=1 is not set");
        return;
    }
    if fs::OpenOptions::new().write(true).open(&path).is_err() {
        println!("SKIP: {} is not writable", path.display());
        return;
    }
    let state = tempfile::tempdir().expect("temp folder");
    let before = value(Path::new("/"), "thp");
    let other = if before == "always" { "madvise" } else { "always" };
    let wanted = changes(&[("thp", other)]);
    let settings = Settings::apply(Path::new("/"), &wanted, state.path(), &me()).expect("set");
    assert_eq!(value(Path::new("/"), "thp"), other);
    let restored = settings.restore().expect("restored");
    assert!(matches!(restored[0].outcome, RestoreOutcome::Restored));
    assert_eq!(value(Path::new("/"), "thp"), before);
}
