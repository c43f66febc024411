//! Laws of the table, and every probe run for real in a tiny size.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::costs::CounterSnapshot;
use crate::probes::net::server::TestServer;
use crate::spec::OptionType;
use crate::{PROBES, args::Args, cli};

/// Runs a probe that must end well; its document.
pub(crate) fn run(line: &str) -> Value {
    let ended = cli::run(line.split_whitespace().map(str::to_owned).collect());
    assert_eq!(ended.code, 0, "{line}: {}{}", ended.stderr, ended.stdout);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["verified"], true, "{line}");
    document
}

/// The values of a metric in the order of the document.
pub(crate) fn values(document: &Value, name: &str) -> Vec<f64> {
    let rows = document["metrics"].as_array().unwrap();
    rows.iter()
        .filter(|row| row["name"] == name)
        .map(|row| row["value"].as_f64().unwrap())
        .collect()
}

#[test]
fn the_table_keeps_its_rules() {
    let mut names = BTreeSet::new();
    for probe in PROBES {
        assert!(names.insert(probe.name), "{} twice", probe.name);
        let mut options = BTreeSet::new();
        for opt in probe.options {
            assert!(options.insert(opt.name), "{}: --{} twice", probe.name, opt.name);
            assert!(!opt.help.ends_with('.'), "{}: --{}", probe.name, opt.name);
            // The default is one of the allowed values.
            let default = opt.default.to_string();
            if opt.default != crate::spec::OptionDefault::PerVcpu {
                opt.read(&default).unwrap();
            }
            if let OptionType::Choice(words) = opt.kind {
                assert!(words.contains(&&*default), "{}: --{}", probe.name, opt.name);
            }
        }
        let mut metrics = BTreeSet::new();
        for metric in probe.metrics {
            assert!(metrics.insert(metric.name), "{}: {} twice", probe.name, metric.name);
            assert!(["s", "B", "1/s", "B/s", "count", "ratio"].contains(&metric.unit));
            assert!(["lower", "higher"].contains(&metric.better));
            assert!(["time", "rate", "quantile", "count"].contains(&metric.kind));
            assert!(["total", "thread"].contains(&metric.per));
        }
        let example: Vec<String> = probe.example.split_whitespace().map(str::to_owned).collect();
        Args::parse(probe.options, &example)
            .unwrap_or_else(|error| panic!("{}: {error}", probe.name));
        assert!(probe.about.ends_with('.') && !probe.summary.ends_with('.'), "{}", probe.name);
    }
}

#[test]
fn the_documentation_is_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/probe.md");
    expect_test::expect_file![path].assert_eq(&crate::markdown());
}

#[test]
fn wrong_calls_say_what_is_right() {
    for (line, says) in [
        ("sim", "did you mean sem?"),
        ("nonsense-of-sorts", "`vmlab-probe list` names all"),
        ("sem --itens 3", "did you mean --items?"),
        ("sem --items", "--items needs a value"),
        ("sem --items -3", "expected a whole number from 0"),
        ("sem --hog big", "expected one of none, idle, nice"),
        ("sem --cpus 1-0", "a list of vCPUs"),
        ("sem --seconds NaN", "expected a number from"),
        ("sem 5", "Expected --option"),
    ] {
        let ended = cli::run(line.split_whitespace().map(str::to_owned).collect());
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{line}");
        assert!(ended.stderr.contains(says), "{line}: {}", ended.stderr);
    }
    for line in ["--help", "list", "list --json", "sem --help", "help sem", "--version"] {
        let ended = cli::run(line.split_whitespace().map(str::to_owned).collect());
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{line}");
    }
}

#[test]
fn options_are_read_in_all_their_forms() {
    let read = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let probe = PROBES.iter().find(|probe| probe.name == "pagecache").unwrap();
        Args::parse(probe.options, &words).unwrap()
    };
    for line in [
        "--size-mib 4",
        "--size_mib 4",
        "--size-mib=4",
        "--size_mib=4",
        "--size-mib 9 --size-mib 4",
    ] {
        assert_eq!(read(line), read("--size-mib 4"), "{line}");
        assert_ne!(read(line), read(""), "{line}");
    }
    assert_eq!(read("--dir=a=b").text("dir"), "a=b");
}

#[test]
fn a_result_is_verified_by_its_checks_alone() {
    let args = Args::parse(PROBES[0].options, &[]).unwrap();
    for (checks, value, expected) in [
        (vec![], 1.0, false),
        (vec![true], 1.0, true),
        (vec![true, false], 1.0, false),
        (vec![true], f64::NAN, false),
    ] {
        let mut outcome = PROBES[0].outcome(&args);
        checks.iter().for_each(|ok| outcome.check("a", *ok, "b"));
        outcome.push("elapsed", value);
        let document = outcome.finish(CounterSnapshot::now().costs());
        assert_eq!(document.verified, expected, "{checks:?} {value}");
        assert!(serde_json::to_string(&document).is_ok());
    }
}

#[test]
fn syscalls_counts_every_call() {
    for line in [
        "syscalls --loops 500 --repeat 2 --warmup 0",
        "syscalls --call getppid --seconds 0.01 --repeat 2 --warmup 0 --threads 2",
    ] {
        let document = run(line);
        assert_eq!(values(&document, "calls-per-s").len(), 2, "{line}");
        assert!(values(&document, "calls-per-s").iter().all(|rate| *rate > 1000.0), "{line}");
    }
    let fixed = run("syscalls --loops 500 --repeat 1 --warmup 0");
    let (elapsed, rate) = (values(&fixed, "elapsed")[0], values(&fixed, "calls-per-s")[0]);
    assert!((elapsed * rate - 1000.0).abs() < 1e-6, "500 writes and 500 reads");
}

#[test]
fn sem_hands_over_every_item() {
    for hog in ["none", "idle", "nice"] {
        let line = format!("sem --items 200 --loops 10 --repeat 2 --warmup 0 --hog {hog}");
        let document = run(&line);
        for (elapsed, rate) in
            values(&document, "elapsed").into_iter().zip(values(&document, "items-per-s"))
        {
            assert!((elapsed * rate - 200.0).abs() < 1e-6, "{line}");
        }
        for (slept, woken) in values(&document, "sleeps-per-item")
            .into_iter()
            .zip(values(&document, "wakes-per-item"))
        {
            // Each wake ends a sleep; a waiter can also find the item before it sleeps.
            assert!(woken <= slept + 1e-9 && slept <= 2.0 + 1e-9, "{line}: {slept} {woken}");
        }
    }
}

#[test]
fn stream_moves_what_it_says() {
    let document = run("stream --array-mib 2 --repeat 4 --threads 2");
    for (kernel, arrays) in [("copy", 2.0), ("scale", 2.0), ("add", 3.0), ("triad", 3.0)] {
        let rates = values(&document, kernel);
        assert_eq!(rates.len(), 4, "the first turn is not counted");
        let best = values(&document, &format!("{kernel}-best"))[0];
        let time = |what: &str| values(&document, &format!("{kernel}-time-{what}"))[0];
        assert_eq!(best, rates.iter().copied().fold(0.0, f64::max));
        assert!((best * time("min") / (arrays * 2097152.0) - 1.0).abs() < 1e-9);
        assert!(time("min") <= time("avg") && time("avg") <= time("max"));
    }
    run("stream --array-mib 1 --repeat 1 --threads 3 --touch first --pages 4k");
    assert_eq!(cli::run(vec!["stream".into(), "--array-mib=16777216".into()]).code, 2);
}

#[test]
fn wakeup_counts_every_wake() {
    for line in [
        "wakeup --seconds 0.02 --repeat 2 --warmup 0",
        "wakeup --seconds 0.02 --repeat 2 --warmup 0 --cpus 0,0 --pause-us 0",
    ] {
        let document = run(line);
        assert_eq!(values(&document, "round-trips-per-s").len(), 2);
        let histogram = &document["histograms"][0];
        let buckets = histogram["buckets"].as_array().unwrap();
        let sum: u64 = buckets.iter().map(|bucket| bucket[1].as_u64().unwrap()).sum();
        assert_eq!(histogram["count"], sum);
        assert!(histogram["min"].as_f64() <= histogram["quantiles"]["p50"].as_f64());
        assert!(values(&document, "wakeup-p50") <= values(&document, "wakeup-max"));
    }
}

#[test]
fn ipi_interrupts_running_threads() {
    let document = run("ipi --seconds 0.05 --repeat 2 --warmup 0");
    assert_eq!(values(&document, "ipi-mean").len(), 2);
    assert_eq!(cli::run(vec!["ipi".into(), "--targets=1023".into()]).code, 2);
}

#[test]
fn lock_excludes() {
    for kind in ["spin", "ticket", "mutex"] {
        let line = format!("lock --kind {kind} --threads 3 --seconds 0.02 --repeat 2 --warmup 0");
        let document = run(&line);
        let all = values(&document, "acquisitions-per-s");
        let each = values(&document, "thread-acquisitions-per-s");
        assert_eq!((all.len(), each.len()), (2, 6), "{kind}");
        assert!((all[0] / each[..3].iter().sum::<f64>() - 1.0).abs() < 1e-9, "{kind}");
    }
}

#[test]
fn clock_reads_forwards_and_restores() {
    let document = run("clock --seconds 0.005 --repeat 1 --warmup 0");
    assert!(values(&document, "monotonic")[0] < 1e-3);
    let ended = cli::run(["clock", "--source", "sundial"].map(str::to_owned).to_vec());
    assert!(ended.code == 2 && ended.stderr.contains("no clock source sundial"));
}

#[test]
fn malloc_faults_every_page() {
    let document = run("malloc --mib 4 --repeat 2 --threads 2");
    assert_eq!(values(&document, "write-fault").len(), 2);
    let (each, rate) = (values(&document, "write-fault"), values(&document, "write-fault-rate"));
    let page = rustix::param::page_size() as f64;
    assert!((each[0] * rate[0] / page - 1.0).abs() < 1e-9);
}

#[test]
fn tlb_follows_every_chain() {
    let document = run("tlb --pages 300 --seconds 0.001 --repeat 2");
    assert_eq!(values(&document, "touch-4k").len(), 2);
    assert_eq!(document["metrics"][0]["labels"]["pages"], "300");
}

#[test]
fn pagecache_reads_what_it_wrote_and_cleans_up() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().display();
    let document =
        run(&format!("pagecache --dir {path} --size-mib 4 --block-kib 64 --drop files --repeat 2"));
    assert_eq!(values(&document, "scan-warm").len(), 2);
    for hits in values(&document, "hits-warm") {
        assert!((0.0..=1.0).contains(&hits));
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "the files are gone");
    let nowhere = ["pagecache", "--dir", "/nonexistent"].map(str::to_owned).to_vec();
    assert_eq!(cli::run(nowhere).code, 2);
}

#[test]
fn shuffle_sorts_every_record_under_each_hint_and_cleans_up() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().display();
    for hint in ["none", "dontneed", "noreuse"] {
        // Three buffers a thread, the last of them not full.
        let line = format!("shuffle --dir {path} --size-mib 5 --buffer-mib 1 --threads 2");
        let document = run(&format!("{line} --hint {hint} --repeat 2"));
        assert_eq!(values(&document, "job").len(), 2, "{hint}");
        assert_eq!(document["checks"].as_array().unwrap().len(), 2, "{hint}");
        for (whole, parts) in values(&document, "job").iter().zip(
            values(&document, "map").iter().zip(values(&document, "reduce")).map(|(a, b)| a + b),
        ) {
            assert!((whole - parts).abs() < 1e-9, "{hint}: {whole} {parts}");
        }
        for kept in values(&document, "input-kept") {
            assert!((0.0..=1.0).contains(&kept), "{hint}: {kept}");
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "the files are gone");
    }
    // What the kernel below takes decides whether this one runs; it never ends half done.
    let uncached = format!("shuffle --dir {path} --size-mib 1 --threads 1 --hint dontcache");
    let ended = cli::run(uncached.split_whitespace().map(str::to_owned).collect());
    assert!(ended.code == 0 || ended.stderr.contains("RWF_DONTCACHE"), "{}", ended.stderr);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "the files are gone");
}

#[test]
fn numa_reads_each_nodes_memory() {
    let document = run("numa --mib 2 --seconds 0.002 --repeat 2");
    assert!(values(&document, "local-latency").len() >= 2);
    assert_eq!(
        values(&document, "local-latency").len(),
        values(&document, "local-bandwidth").len()
    );
}

/// Runs a client against a server of its own; the client's document.
fn with_server(line: &str) -> Value {
    with_receivers(1, line)
}

/// The same with so many threads for datagrams.
fn with_receivers(receivers: usize, line: &str) -> Value {
    let server = TestServer::bind("127.0.0.1", 0, receivers).unwrap();
    let port = server.address().port();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(1).unwrap());
        let document = run(&format!("{line} --port {port}"));
        assert_eq!(serving.join().unwrap(), (1, 0), "{line}");
        document
    })
}

#[test]
fn net_counts_the_same_at_both_ends() {
    for (test, metric) in [
        ("tcp_stream --streams 2", "received"),
        ("tcp_maerts --streams 2", "received"),
        ("tcp_rr --request 100 --response 2000", "exchanges-per-s"),
        ("tcp_crr", "exchanges-per-s"),
        ("udp_stream", "datagrams-received"),
        ("udp_rr --datagram 64", "exchanges-per-s"),
    ] {
        let document = with_server(&format!("net --seconds 0.05 --test {test}"));
        assert!(values(&document, metric)[0] > 0.0, "{test}");
        if test.starts_with("udp_stream") {
            let value = |name: &str| values(&document, name)[0];
            assert!(value("datagrams-received") <= value("datagrams-sent"));
            assert!((value("sent") / value("datagrams-sent") - 1472.0).abs() < 1e-6);
        }
    }
    let alone = ["net", "--wait", "0", "--port", "1"].map(str::to_owned).to_vec();
    let ended = cli::run(alone);
    assert!(ended.code == 2 && ended.stderr.contains("net-server"), "{}", ended.stderr);
}

#[test]
fn udp_accounts_for_every_datagram() {
    for (mode, rate, batch, receivers) in [
        ("one-way", 0, 16, 1),
        ("two-way", 0, 1, 1),
        ("two-way", 2000, 1, 1),
        ("two-way", 2000, 8, 1),
        ("one-way", 2000, 1, 4),
        ("two-way", 0, 1, 4),
    ] {
        let line =
            format!("udp --mode {mode} --rate {rate} --batch {batch} --seconds 0.1 --threads 2");
        let document = with_receivers(receivers, &line);
        let detail = document["checks"][0]["detail"].as_str().unwrap();
        let counts: Vec<f64> =
            detail.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        let [sent, arrived, returned] = counts[..] else { panic!("{detail}") };
        assert_eq!(values(&document, "lost-there"), [sent - arrived], "{line}");
        if mode == "two-way" {
            assert_eq!(values(&document, "lost-back"), [arrived - returned], "{line}");
            assert_eq!(document["histograms"][0]["count"], returned, "{line}");
        }
        if rate > 0 {
            assert!(sent <= 201.0, "{line}: {detail}");
        }
    }
}

#[test]
fn npb_agrees_with_the_published_values() {
    // EP of the smallest class draws 32 million numbers: too many here.
    for benchmark in ["cg", "mg", "ft", "is", "bt", "sp", "lu", "ua"] {
        for threads in [1, 2, 3] {
            let line = format!("npb --benchmark {benchmark} --class S --threads {threads}");
            let document = run(&line);
            let (rate, time) =
                (values(&document, benchmark), values(&document, &format!("{benchmark}-time")));
            assert!(rate[0] > 0.0 && time[0] > 0.0, "{line}");
        }
    }
}
