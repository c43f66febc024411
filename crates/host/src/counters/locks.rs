//! What a guest's kernel says of its locks, where it is built with `CONFIG_LOCK_STAT`. The
//! text is fetched by others.
//!
//! Source: Linux `Documentation/locking/lockstat.rst`, `kernel/locking/lockdep_proc.c`.

use std::collections::BTreeMap;

use record::{CounterSet, LOCK_WAIT, LOCK_WAITS, PEER};

/// A command for a guest's shell: the head of its `/proc/lock_stat` and the lines of
/// classes that were ever waited for. Without that file it says nothing.
pub const READ_LOCKS: &str = "if [ -r /proc/lock_stat ]; then head -n 1 /proc/lock_stat\n\
    grep -E ': +[0-9]+ +[1-9][0-9]* ' /proc/lock_stat || :; fi";

/// The most that it may say, bytes: a kernel has no more classes than that.
pub const LOCKS_MOST_BYTES: usize = 2 << 20;

/// Most classes of a kernel (`MAX_LOCKDEP_KEYS`): who names more is none.
const CLASSES_MOST: usize = 8192;

/// Longest name of a class in a counter's.
const NAME_MOST: usize = 64;

/// Classes of which a run's record tells: those that were waited for longest.
const CLASSES_KEPT: usize = 16;

/// The columns of numbers of version 0.4, and of 0.3, which lacks the averages.
const COLUMNS: [usize; 2] = [12, 10];

/// The column of how often somebody waited, and that of how long all did, µs.
const CONTENTIONS: usize = 1;
const WAIT_US: usize = 4;

/// Reads `guest.lock_*` from what [`READ_LOCKS`] said; none where the kernel does not tell,
/// or tells what no kernel does. Classes that are locked to read and to write have two lines
/// and are one.
#[must_use]
pub fn parse_locks(text: &str) -> CounterSet {
    let mut lines = text.lines();
    if !lines.next().is_some_and(|head| head.starts_with("lock_stat version")) {
        return CounterSet::default();
    }
    let mut classes: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for (class, contentions, wait_s) in lines.filter_map(class) {
        let sums = classes.entry(class).or_default();
        *sums = [sums[0] + contentions, sums[1] + wait_s];
        if classes.len() > CLASSES_MOST {
            return CounterSet::default();
        }
    }
    let mut counters = CounterSet::default();
    for (name, sum) in [LOCK_WAITS, LOCK_WAIT].into_iter().zip(0..) {
        counters.set(name, classes.values().map(|sums: &[f64; 2]| sums[sum]).sum::<f64>());
        for (class, sums) in &classes {
            counters.set(format!("{name}.{class}"), sums[sum]);
        }
    }
    counters
}

/// A class, how often it was waited for, and how long, s.
fn class(line: &str) -> Option<(String, f64, f64)> {
    // Names may have colons; numbers have none.
    let (name, numbers) = line.rsplit_once(':')?;
    let number = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        text.parse::<f64>().ok().filter(|value| is_plain && *value < 1e18)
    };
    let numbers: Vec<f64> = numbers.split_whitespace().map(number).collect::<Option<_>>()?;
    if !COLUMNS.contains(&numbers.len()) {
        return None;
    }
    let name = name.trim();
    let name = name.strip_suffix("-W").or_else(|| name.strip_suffix("-R")).unwrap_or(name);
    let shown = |c: char| if c.is_ascii_graphic() && !",;\"'`|\\".contains(c) { c } else { '_' };
    let name: String = name.chars().take(NAME_MOST).map(shown).collect();
    (!name.is_empty()).then(|| (name, numbers[CONTENTIONS], numbers[WAIT_US] / 1e6))
}

/// Leaves of a run's differences the classes that were waited for longest, of each guest's,
/// and the `asked` counters: a class that nobody waited for has no line in the kernel's
/// list, and is 0.
pub fn keep_longest_waits<'a>(
    counters: &mut CounterSet,
    asked: impl Iterator<Item = &'a str> + Clone,
) {
    for guest in ["", PEER] {
        let (waits, wait_s) = (format!("{guest}{LOCK_WAITS}."), format!("{guest}{LOCK_WAIT}."));
        let mut classes: Vec<(f64, String)> = counters
            .0
            .range(wait_s.clone()..)
            .map_while(|(name, value)| Some((*value, name.strip_prefix(&*wait_s)?.to_owned())))
            .filter(|(value, _)| *value > 0.0)
            .collect();
        classes.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        classes.truncate(CLASSES_KEPT);
        let of_class = |name: &str| {
            name.strip_prefix(&*waits).or_else(|| name.strip_prefix(&*wait_s)).map(str::to_owned)
        };
        counters.0.retain(|name, _| {
            let class = of_class(name);
            class.is_none_or(|class| {
                classes.iter().any(|(_, kept)| *kept == class)
                    || asked.clone().any(|asked| asked == name)
            })
        });
        let counts = counters.get(&format!("{guest}{LOCK_WAIT}")).is_some();
        for name in asked.clone().filter(|name| counts && of_class(name).is_some()) {
            counters.0.entry(name.to_owned()).or_insert(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kernels print it: a class alone, one that is locked to read and to write, places
    /// where they wait, one that nobody waits for.
    const TEXT: &str = "\
lock_stat version 0.4
-----------------------------------------------------------------
                              class name    con-bounces    contentions   waittime-min   waittime-max waittime-total   waittime-avg    acq-bounces   acquisitions   holdtime-min   holdtime-max holdtime-total   holdtime-avg
-----------------------------------------------------------------

                       &vma->anon_lock-W:             3              5           0.50         200.25        1000.50         200.10             71            900           0.20        1500.75        8000.00           8.89
                       &vma->anon_lock-R:             2              4           0.75         100.00         250.00          62.50             30            500           0.10         300.00        2000.00           4.00
                       -----------------
                         &vma->anon_lock              6          [<ffffffff81100000>] unlink_anon_vmas+0x70/0x1b0
                         &vma->anon_lock              3          [<ffffffff81100100>] anon_vma_clone+0x40/0x180

.................................................................

                  &lruvec->lru_lock:            11             12           0.10           9.00          60.25           5.02            100           2000           0.05          12.00         700.00           0.35
                         mm/slab.c:77 lock:             0              0           0.00           0.00           0.00           0.00              4             40           0.10           2.00          10.00           0.25
";

    fn set(rows: &[(&str, f64)]) -> CounterSet {
        CounterSet(rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
    }

    fn is_near(found: &CounterSet, expected: &[(&str, f64)]) {
        let names = |set: &CounterSet| set.0.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(found), names(&set(expected)));
        for (name, value) in expected {
            assert!((found.get(name).expect("it is there") - value).abs() < 1e-12, "{name}");
            assert!(record::counter(name).is_some(), "{name} is known");
        }
    }

    #[test]
    fn waits_are_added_up_by_class_and_over_all() {
        let all = [
            ("guest.lock_wait_s", 1310.75e-6),
            ("guest.lock_wait_s.&lruvec->lru_lock", 60.25e-6),
            ("guest.lock_wait_s.&vma->anon_lock", 1250.5e-6),
            ("guest.lock_wait_s.mm/slab.c:77_lock", 0.0),
            ("guest.lock_waits", 21.0),
            ("guest.lock_waits.&lruvec->lru_lock", 12.0),
            ("guest.lock_waits.&vma->anon_lock", 9.0),
            ("guest.lock_waits.mm/slab.c:77_lock", 0.0),
        ];
        is_near(&parse_locks(TEXT), &all);
        // Version 0.3 has no averages.
        let old = "lock_stat version 0.3\n  dcache_lock: 1 2 0.10 0.90 1.50 7 8 0.10 0.20 9.00\n";
        let rows = [
            ("guest.lock_wait_s", 1.5e-6),
            ("guest.lock_wait_s.dcache_lock", 1.5e-6),
            ("guest.lock_waits", 2.0),
            ("guest.lock_waits.dcache_lock", 2.0),
        ];
        is_near(&parse_locks(old), &rows);
        // Nobody waited for anything: that is a count.
        let none = [("guest.lock_wait_s", 0.0), ("guest.lock_waits", 0.0)];
        is_near(&parse_locks("lock_stat version 0.4\n"), &none);
    }

    #[test]
    fn what_no_kernel_says_is_no_count() {
        let nothing = |text: &str| assert_eq!(parse_locks(text), CounterSet::default(), "{text}");
        nothing("");
        nothing("grep: /proc/lock_stat: No such file or directory\n");
        let line = "  a: 1 2 0.10 0.90 1.50 7 8 0.10 0.20 9.00";
        nothing(&format!("{line}\n"));
        for wrong in ["-2", "inf", "NaN", "1e9", "999999999999999999999999", ""] {
            let line = line.replacen(" 2 ", &format!(" {wrong} "), 1);
            let found = parse_locks(&format!("lock_stat version 0.4\n{line}\n"));
            is_near(&found, &[("guest.lock_wait_s", 0.0), ("guest.lock_waits", 0.0)]);
        }
        let many = |count: usize| {
            let lines =
                (0..count).map(|at| format!("{}\n", line.replacen('a', &at.to_string(), 1)));
            parse_locks(&format!("lock_stat version 0.4\n{}", lines.collect::<String>()))
        };
        assert_eq!(many(CLASSES_MOST).0.len(), 2 * CLASSES_MOST + 2);
        assert_eq!(many(CLASSES_MOST + 1), CounterSet::default());
        let long = format!("lock_stat version 0.4\n{}{line}\n", "\u{202e},x".repeat(1000));
        let name = format!("guest.lock_waits.{}_", "__x".repeat(21));
        assert_eq!(parse_locks(&long).get(&name), Some(2.0));
    }

    #[test]
    fn a_record_tells_of_the_longest_waits() {
        let mut counters = set(&[
            ("guest.lock_waits", 99.0),
            ("guest.lock_wait_s", 5.0),
            ("guest.lock_waits.idle", 3.0),
            ("guest.lock_wait_s.idle", 0.0),
            ("guest.steal_s", 1.0),
            ("peer.guest.lock_wait_s.own", 0.5),
            ("peer.guest.lock_waits.own", 1.0),
        ]);
        for class in 1..=20 {
            counters.set(format!("guest.lock_wait_s.c{class:02}"), f64::from(class));
            counters.set(format!("guest.lock_waits.c{class:02}"), 1.0);
        }
        let asked = ["guest.lock_wait_s.c02", "guest.lock_wait_s.nobody", "guest.steal_s"];
        let mut kept = counters.clone();
        keep_longest_waits(&mut kept, asked.into_iter());
        assert_eq!(kept.get("guest.lock_wait_s.c02"), Some(2.0));
        assert_eq!(kept.get("guest.lock_wait_s.nobody"), Some(0.0));
        assert_eq!(
            (kept.get("guest.lock_waits.c02"), kept.get("guest.steal_s")),
            (None, Some(1.0))
        );
        // A kernel that does not count has no 0 either.
        let mut none = CounterSet::default();
        keep_longest_waits(&mut none, asked.into_iter());
        assert!(none.0.is_empty());
        keep_longest_waits(&mut counters, std::iter::empty());
        let has = |name: &str| counters.get(name).is_some();
        assert!(has("guest.lock_waits") && has("guest.lock_wait_s") && has("guest.steal_s"));
        assert!(has("peer.guest.lock_wait_s.own") && has("peer.guest.lock_waits.own"));
        for family in ["guest.lock_waits", "guest.lock_wait_s"] {
            assert!(!has(&format!("{family}.idle")));
            let kept = (1..=20).filter(|class| has(&format!("{family}.c{class:02}")));
            assert_eq!(kept.collect::<Vec<_>>(), (5..=20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_command_says_nothing_without_the_file_and_does_not_fail() {
        let done = std::process::Command::new("sh").args(["-c", READ_LOCKS]).output().expect("sh");
        assert!(done.status.success(), "{done:?}");
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let is_there = std::fs::File::open("/proc/lock_stat").is_ok();
        assert_eq!(parse_locks(&text) != CounterSet::default(), is_there, "{text}");
    }
}
