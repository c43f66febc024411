//! Stores over days and months, by readings that are made up.

use std::fs;

use record::CounterSet;

use super::*;
use crate::reading::ReadingTime;

const BOUNDS: Bounds = Bounds { keep_s: 90 * 86_400, max_bytes: 64 << 20 };

/// 2026-03-02, a Monday.
const MONDAY_S: i64 = 1_772_409_600;

fn vm(pid: u32, vcpus: u32) -> CounterSubject {
    let name = if pid == 0 { "node7".to_owned() } else { format!("vm{pid}") };
    CounterSubject { pid, starttime_ticks: 7, name, vcpus, environment: Environment::Kvm }
}

/// A reading of the host and `vms`, whose counters rise by one a second.
fn reading(boot: &str, unix_s: i64, since_boot_s: i64, vms: &[u32]) -> Reading {
    let mut set = CounterSet::default();
    set.set("kvm.exits", since_boot_s as f64);
    set.set("vcpu.run_s", since_boot_s as f64 / 2.0);
    let at = ReadingTime { unix_s, boot_id: boot.to_owned(), since_boot_ms: since_boot_s * 1000 };
    let all = [0].iter().chain(vms);
    Reading { at, counted: all.map(|pid| (vm(*pid, 2), set.clone())).collect(), problems: vec![] }
}

fn store() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch.sqlite");
    (folder, path)
}

fn one(path: &Path, metric: StoredMetric<'_>) -> Result<HostHours, FleetStoreError> {
    hours(path, &[metric]).map(|mut all| all.remove(0))
}

fn freed_pages(path: &Path) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection.pragma_query_value(None, "freelist_count", |row| row.get(0)).unwrap()
}

#[test]
fn readings_become_hours() {
    let (_folder, path) = store();
    let mut store = WatchStore::open(&path).unwrap();
    for at in (0..=7200).step_by(300) {
        store.add(&reading("a", MONDAY_S + at, 1000 + at, &[41, 42]), &BOUNDS).unwrap();
    }
    // After a reboot counters begin again, under the same process ids.
    for at in (7500..=10_800).step_by(300) {
        store.add(&reading("b", MONDAY_S + at, at - 7400, &[41]), &BOUNDS).unwrap();
    }
    let hours = one(&path, ("kvm.exits", None)).unwrap();
    assert_eq!((hours.host.as_str(), hours.gaps, hours.went_back), ("node7", 0, 0));
    let per_vcpu_s: Vec<f64> =
        hours.hours.values().map(|total| total.counted / total.per).collect();
    assert_eq!(per_vcpu_s, [0.5, 0.5, 0.5]);
    let first = MONDAY_S / 3600;
    // The host and two VMs of two vCPUs; then the host and one, without the interval across.
    assert!((hours.hours[&first].watched_s - 6.0 * 3600.0).abs() < 1e-6);
    assert!((hours.hours[&(first + 2)].watched_s - 4.0 * 3300.0).abs() < 1e-6);
    let ratio = one(&path, ("kvm.exits", Some("vcpu.run_s"))).unwrap();
    assert!(ratio.hours.values().all(|total| (total.counted / total.per - 2.0).abs() < 1e-9));
    assert_eq!(one(&path, ("kvm.nothing", None)).unwrap().hours.len(), 0);
    assert_eq!(one(&path, ("kvm.exits", Some("no.such"))).unwrap().hours.len(), 0);

    let asked = [("kvm.nothing", None), ("kvm.exits", Some("vcpu.run_s")), ("kvm.exits", None)];
    let together = super::hours(&path, &asked).unwrap();
    assert_eq!(together, asked.map(|metric| one(&path, metric).unwrap()));

    let found = contents(&path).unwrap();
    assert_eq!((found.readings, found.boots, found.vms_seen), (37, 2, 3));
    assert_eq!(found.read_unix_s, Some([MONDAY_S, MONDAY_S + 10_800]));
    let names: Vec<&str> = found.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["node7", "vm41"]);
    assert_eq!(found.vms[1].counters.get("kvm.exits"), Some(3400.0));
    assert_eq!(found.vms[1].read_unix_s, [MONDAY_S + 7500, MONDAY_S + 10_800]);
}

#[test]
fn old_hours_lose_their_details_and_nothing_else() {
    let (_folder, path) = store();
    let mut store = WatchStore::open(&path).unwrap();
    let days = 4;
    let mut expected = HostHours::default();
    for at in (0..=days * 86_400).step_by(900) {
        // A VM that comes and goes within hours.
        let mut vms = vec![41];
        vms.extend((at % 7200 < 2700).then_some(50 + (at / 7200) as u32));
        store.add(&reading("a", MONDAY_S + at, 1000 + at, &vms), &BOUNDS).unwrap();
        if at == 86_400 {
            expected = one(&path, ("kvm.exits", None)).unwrap();
        }
    }
    let found = one(&path, ("kvm.exits", None)).unwrap();
    for (hour, total) in expected.hours.iter().take(24) {
        let now = found.hours[hour];
        assert!((now.counted - total.counted).abs() < 1e-6, "{hour}: {now:?} {total:?}");
        assert!((now.watched_s - total.watched_s).abs() < 1e-6, "{hour}: {now:?} {total:?}");
    }
    let readings = contents(&path).unwrap().readings;
    // Two days in detail; of two days an hour's last, and every other hour two of a VM.
    assert!((2 * 96 + 2 * 48..2 * 96 + 2 * 48 + 10).contains(&(readings as i64)), "{readings}");
    assert_eq!(freed_pages(&path), 0);
}

#[test]
fn a_store_is_bounded_by_time_and_by_size() {
    let (_folder, path) = store();
    let mut store = WatchStore::open(&path).unwrap();
    let week = Bounds { keep_s: 7 * 86_400, ..BOUNDS };
    for hour in 0..24 * 20 {
        store.add(&reading("a", MONDAY_S + hour * 3600, hour * 3600, &[41]), &week).unwrap();
    }
    let found = contents(&path).unwrap();
    assert!((24 * 7..24 * 7 + 3).contains(&(found.readings as i64)), "{}", found.readings);

    let small = Bounds { max_bytes: 200 << 10, ..BOUNDS };
    let vms: Vec<u32> = (1..60).collect();
    for minute in 0..400 {
        let at = MONDAY_S + 100 * 86_400 + minute * 60;
        store.add(&reading("a", at, 200 * 86_400 + minute * 60, &vms), &small).unwrap();
        let bytes = fs::metadata(&path).unwrap().len();
        // A reading comes on top, before the next one makes room.
        assert!(bytes < small.max_bytes + (16 << 10), "{bytes} B");
    }
    let found = contents(&path).unwrap();
    assert!(found.readings > 10 && found.vms.len() == 60, "{}", found.readings);
    assert_eq!(found.read_unix_s.unwrap()[1], MONDAY_S + 100 * 86_400 + 399 * 60);
}

#[test]
fn a_clock_that_jumps_ends_little() {
    let (_folder, path) = store();
    let mut store = WatchStore::open(&path).unwrap();
    let mut add = |unix_s: i64, since_boot_s: i64| {
        store.add(&reading("a", unix_s, since_boot_s, &[41]), &BOUNDS).unwrap();
    };
    for hour in 0..1000 {
        add(MONDAY_S + hour * 3600, hour * 3600);
    }
    // For an hour it is a hundred years ahead, then a month behind.
    for minute in (0..60).step_by(5) {
        add(MONDAY_S + 100 * 365 * 86_400 + minute * 60, 3_600_000 + minute * 60);
    }
    for hour in 0..100 {
        add(MONDAY_S + (300 + hour) * 3600, 3_610_000 + hour * 3600);
    }
    let found = contents(&path).unwrap();
    assert!(found.readings > 1000, "{}", found.readings);
    let hours = one(&path, ("kvm.exits", None)).unwrap();
    assert_eq!(hours.went_back, 0);
    let rates = hours.hours.values().map(|total| total.counted / total.per);
    assert!(rates.clone().all(|rate| (rate - 0.5).abs() < 1e-9), "{:?}", rates.collect::<Vec<_>>());
}

#[test]
fn no_space_is_said_and_takes_nothing_away() {
    let (_folder, path) = store();
    let mut store = WatchStore::open(&path).unwrap();
    for minute in 0..20 {
        store.add(&reading("a", MONDAY_S + minute * 60, minute * 60, &[41]), &BOUNDS).unwrap();
    }
    let before = contents(&path).unwrap();
    let pages: i64 =
        store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let many: Vec<u32> = (1..2000).collect();
    let error = store.add(&reading("a", MONDAY_S + 2000, 2000, &many), &BOUNDS).unwrap_err();
    assert!(matches!(error, FleetStoreError::Full { .. }), "{error:?}");
    assert_eq!(contents(&path).unwrap(), before);
    store.connection.pragma_update(None, "max_page_count", 1_000_000).unwrap();
    store.add(&reading("a", MONDAY_S + 2300, 2300, &many), &BOUNDS).unwrap();
    assert_eq!(contents(&path).unwrap().readings, 21);
}

#[test]
fn what_is_no_store_or_a_later_one_is_left_alone() {
    let (folder, path) = store();
    let is = |path: &Path, words: &str| {
        for error in [contents(path).unwrap_err(), WatchStore::open(path).unwrap_err()] {
            assert!(error.to_string().contains(words), "{error}");
        }
    };
    fs::write(&path, "counters,of,somebody\n".repeat(100)).unwrap();
    is(&path, "no store of `vmlab watch`");
    let other = folder.path().join("other.sqlite");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    is(&other, "no store of `vmlab watch`");
    is(folder.path(), "Cannot open the store");
    assert!(matches!(contents(&folder.path().join("none")), Err(FleetStoreError::Open { .. })));

    let later = folder.path().join("later.sqlite");
    drop(WatchStore::open(&later).unwrap());
    Connection::open(&later).unwrap().pragma_update(None, "user_version", 2).unwrap();
    is(&later, "of version 2");

    // A copy that was cut off.
    let cut = folder.path().join("cut.sqlite");
    let mut store = WatchStore::open(&cut).unwrap();
    for minute in 0..300 {
        let vms: Vec<u32> = (1..9).collect();
        store.add(&reading("a", MONDAY_S + minute * 60, minute * 60, &vms), &BOUNDS).unwrap();
    }
    drop(store);
    let copied = folder.path().join("copied.sqlite");
    WatchStore::copy(&cut, &copied).unwrap();
    assert_eq!(contents(&copied).unwrap().readings, 300);
    assert!(WatchStore::copy(&cut, &copied).is_err(), "nothing is written over");
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let error = one(&cut, ("kvm.exits", None)).unwrap_err();
    assert!(matches!(error, FleetStoreError::Damaged { .. }), "{error:?}");
}

#[test]
fn two_writers_and_a_reader_do_not_disturb_each_other() {
    let (_folder, path) = store();
    let write = |offset: i64| {
        let mut store = WatchStore::open(&path).unwrap();
        for at in 0..40 {
            let now = at * 60 + offset;
            store.add(&reading("a", MONDAY_S + now, now, &[41]), &BOUNDS).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(30));
        scope.spawn(|| (0..40).for_each(|_| drop(contents(&path))));
    });
    assert_eq!(contents(&path).unwrap().readings, 80);
}

#[test]
fn a_store_of_each_version_is_read_and_written_on() {
    let (_folder, path) = store();
    let sql = include_str!("../../testdata/watch-1.sql");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let exits = one(&path, ("kvm.exits", Some("vcpu.run_s"))).unwrap();
    let total = exits.hours[&(MONDAY_S / 3600)];
    assert_eq!((total.counted, total.per, total.watched_s), (12_000.0, 30.0, 1200.0));
    assert_eq!(exits.environments, [Environment::Kvm].into());
    let found = contents(&path).unwrap();
    assert_eq!((found.host.as_str(), found.readings, found.vms.len()), ("node7", 2, 2));
    let later = reading("b", MONDAY_S + 600, 1200, &[41]);
    WatchStore::open(&path).unwrap().add(&later, &BOUNDS).unwrap();
    assert_eq!(contents(&path).unwrap().boots, 2);
    // The tables that are made now are those.
    let (_other, new) = self::store();
    drop(WatchStore::open(&new).unwrap());
    let tables = |path: &Path| -> Vec<String> {
        let connection = Connection::open(path).unwrap();
        let mut tables = connection.prepare("SELECT sql FROM sqlite_schema ORDER BY name").unwrap();
        let rows = tables.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        rows.map(|row| row.unwrap().unwrap_or_default()).collect()
    };
    assert_eq!(tables(&path), tables(&new));
}
