//! Every workload of the catalogue, run for real in a small size.

use std::collections::BTreeSet;

use record::journal::TrialResult;
use suite::{Tier, needs};

use crate::lab::events;
use crate::running::{Study, results};

/// The rows of one study: `run`, its parameters, and what else it says.
type Row = (&'static str, &'static str, &'static str);

const ALONE: &[Row] = &[
    ("hackbench", "groups = 1, loops = 20", ""),
    ("perf-messaging", "groups = 1, loops = 20", ""),
    ("perf-pipe", "loops = 1000", ""),
    ("perf-syscall", "loops = 100000", ""),
    ("perf-futex", "test = 'wake'", ""),
    ("perf-futex", "test = 'lock-pi', time_s = 1", ""),
    ("perf-mem", "size_mib = 8, loops = 2", ""),
    ("perf-numa", "memory_mib = 32, time_s = 1", ""),
    ("sysbench-cpu", "time_s = 1", ""),
    ("sysbench-memory", "time_s = 1", ""),
    ("sysbench-threads", "threads = 8, time_s = 1", ""),
    ("sysbench-mutex", "threads = 4, locks = 1000", ""),
    ("sysbench-fileio", "total_mib = 32, files = 4, time_s = 1", ""),
    ("cyclictest", "loops = 2000", "background = { run = 'hackbench', params = { groups = 1 } }"),
    ("stress-ng", "time_s = 1", ""),
    ("fio", "operation = 'randrw', size_mib = 32, time_s = 1, ramp_s = 1", ""),
    ("fio", "operation = 'read', engine = 'sync', size_mib = 32, time_s = 1, ramp_s = 0", ""),
    ("fio", "operation = 'randwrite', engine = 'io_uring', size_mib = 32, time_s = 1", ""),
    ("fio-iozone", "size_mib = 16", ""),
    ("dbench", "clients = 2, time_s = 2", ""),
    ("boot", "", "invocations = 1"),
];

const FULL: &[Row] = &[("pgbench", "scale = 1, clients = 2, time_s = 2", "limit_s = 300")];

/// Takes a quarter of an hour where guests are emulated.
const LONG: &[Row] = &[("kernbench", "config = 'tinyconfig', target = 'init'", "limit_s = 3000")];

const PAIRS: &[Row] = &[
    ("tbench", "clients = 2, time_s = 2", ""),
    ("iperf3", "time_s = 1, streams = 2, reverse = true", ""),
    ("iperf3", "protocol = 'udp', udp_mbit_s = 5, time_s = 1", "under_test = 'client'"),
    ("sockperf", "time_s = 2", ""),
    ("sockperf", "mode = 'under-load', protocol = 'tcp', time_s = 2, messages_per_s = 500", ""),
    ("sockperf", "mode = 'throughput', time_s = 2", "under_test = 'both'"),
    ("ab", "requests = 100, concurrency = 10", ""),
    ("redis", "requests = 500, clients = 5", ""),
];

const PROBES: &[Row] = &[
    ("probe-syscalls", "time_ms = 100", ""),
    ("probe-sem", "items = 500, hog = 'idle'", ""),
    ("probe-wakeup", "time_ms = 100", ""),
    ("probe-ipi", "time_ms = 100", ""),
    ("probe-lock", "time_ms = 100", ""),
    ("probe-clock", "time_ms = 100", ""),
    ("probe-stream", "array_mib = 8, repeats = 1", ""),
    ("probe-malloc", "mib = 16", ""),
    ("probe-tlb", "time_ms = 100, pages = 4096", ""),
    ("probe-pagecache", "size_mib = 32, repeats = 1", ""),
    ("probe-shuffle", "size_mib = 32, buffer_mib = 4, hint = 'dontneed', repeats = 1", ""),
    ("probe-numa", "time_ms = 100, mib = 16", ""),
    ("probe-unixbench", "time_ms = 100, repeats = 1", ""),
    ("probe-npb", "benchmark = 'is', class = 'S'", ""),
    ("probe-net", "test = 'tcp_rr', time_ms = 300", ""),
    ("probe-net", "test = 'udp_stream', time_ms = 300", ""),
    ("probe-udp", "time_ms = 300", ""),
];

/// Those that are for guests of several nodes, beside their rows above.
const NODES: &[Row] = &[
    ("probe-numa", "time_ms = 100, repeats = 2, mib = 16", ""),
    ("probe-stream", "array_mib = 8, repeats = 1", ""),
    ("perf-numa", "memory_mib = 32, time_s = 1", ""),
    ("perf-mem", "size_mib = 8, loops = 2", ""),
    ("sysbench-memory", "time_s = 1", ""),
];

/// Those that count their latencies, in all of the rows above.
const COUNTED: &[&str] = &["cyclictest", "fio", "probe-wakeup", "probe-ipi", "probe-lock"];

/// The first row of each tool: `perf-pipe` is perf's, `probe-sem` the probe's.
fn one_of_each_tool(rows: &[Row]) -> Vec<Row> {
    let mut tools = BTreeSet::new();
    rows.iter().filter(|row| tools.insert(row.0.split('-').next())).copied().collect()
}

/// Runs `rows`, in the tier `test` one of each tool, in guests like `vm`; each must end well, with all its metrics.
/// What is counted must be in the report.
fn check(rows: &[Row], vm: &str) -> Study {
    let rows = if Tier::run() < Tier::Full { one_of_each_tool(rows) } else { rows.to_vec() };
    let workloads: String = rows
        .iter()
        .enumerate()
        .map(|(number, (run, params, more))| {
            format!("[[workload]]\nrun = '{run}'\nlabel = 'w{number}'\nparams = {{ {params} }}\n{more}\n\n")
        })
        .collect();
    let study = Study::new(1, &format!("[[variant]]\nname = 'one'\n{vm}\n\n{workloads}"));
    study.change("memory_mib = 256", "memory_mib = 512");
    let said = study.start().wait();
    let mut failed = String::new();
    let (mut seen, mut counted) = (BTreeSet::new(), BTreeSet::new());
    for result in results(&events(&study.dir())) {
        let number: usize = result.trial.workload[1..].parse().unwrap();
        if result.outcome.is_completed() {
            assert!(!result.runs[0].samples.is_empty(), "{result:#?}");
            seen.insert(number);
            if COUNTED.contains(&rows[number].0) {
                counted.insert(result.trial.workload);
            }
        } else {
            failed += &format!("{}: {:?}\n", rows[number].0, result.outcome);
        }
    }
    assert_eq!(failed, "", "{said:#?}");
    let shown = runner::summary::report(&study.dir(), &runner::store::read(&study.dir()).unwrap());
    let shown = shown.distributions.into_iter().filter(|found| found.curves[0].samples > 0);
    let shown: BTreeSet<String> = shown.map(|found| found.workload).collect();
    assert!(shown.is_superset(&counted), "{counted:?} are counted, {shown:?} are shown");
    assert_eq!(seen.len(), rows.len(), "{said:#?}");
    study
}

#[test]
fn workloads_of_one_guest_run() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = check(ALONE, "vm.vcpus = 2\ndisk = { cache = 'none', io = 'native' }");
    // Debian's kernel tells of all phases.
    let all = results(&events(&study.dir()));
    let metrics = |result: &TrialResult| -> Vec<String> {
        result.runs[0].samples.iter().map(|sample| sample.metric.clone()).collect()
    };
    let boot = all.iter().map(metrics).find(|metrics| metrics.contains(&"boot".to_owned()));
    assert_eq!(boot.unwrap(), ["boot", "kernel", "vcpus", "userspace"]);
}

#[test]
fn workloads_of_the_full_image_run() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    check(FULL, "vm.vcpus = 2\nvm.image = 'builtin:debian-12-full'\nvm.memory_mib = 1024");
}

#[test]
fn a_kernel_builds() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    check(LONG, "vm.vcpus = 2\nvm.image = 'builtin:debian-12-full'\nvm.memory_mib = 1024");
}

#[test]
fn workloads_of_two_guests_run() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    check(PAIRS, "");
}

#[test]
fn probes_run() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if let Err(error) = runner::probe::find(vmconfig::Arch::X86_64) {
        suite::skip(error);
        return;
    }
    check(PROBES, "vm.vcpus = 2");
}

#[test]
fn workloads_of_nodes_run_in_a_guest_with_two() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    if let Err(error) = runner::probe::find(vmconfig::Arch::X86_64) {
        suite::skip(error);
        return;
    }
    let study = check(NODES, "vm.vcpus = 2\nvm.numa = [{}, {}]");
    // The same shape says what the other lacks: memory of another node.
    let all = results(&events(&study.dir()));
    let numa = all.iter().find(|result| result.trial.workload == "w0").unwrap();
    for metric in ["local-latency", "remote-latency", "local-bandwidth", "remote-bandwidth"] {
        let samples = numa.runs[0].samples.iter().filter(|sample| sample.metric == metric);
        assert_eq!(samples.count(), 2, "{metric}: {numa:#?}");
    }
}

/// Those of one guest, with one vCPU.
#[test]
fn workloads_run_on_one_vcpu() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    if let Err(error) = runner::probe::find(vmconfig::Arch::X86_64) {
        suite::skip(error);
        return;
    }
    check(ALONE, "vm.vcpus = 1");
    // Their steps are taken by two vCPUs, as their descriptions say.
    let of_two = |row: &&Row| ["probe-wakeup", "probe-ipi"].contains(&row.0);
    let probes: Vec<Row> = PROBES.iter().filter(|row| !of_two(row)).copied().collect();
    assert_eq!(probes.len(), PROBES.len() - 2);
    check(&probes, "vm.vcpus = 1");
}

/// The same with two nodes of two vCPUs each.
#[test]
fn workloads_run_on_two_nodes() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    if let Err(error) = runner::probe::find(vmconfig::Arch::X86_64) {
        suite::skip(error);
        return;
    }
    let shape = "vm.vcpus = 4\nvm.numa = [{}, {}]";
    check(ALONE, shape);
    check(PROBES, shape);
}

#[test]
fn every_workload_is_run_by_a_test() {
    // The thin guest alone plays it, and `thin_studies` runs that.
    let thin = std::iter::once("thin");
    let rows = [ALONE, FULL, LONG, PAIRS, PROBES].into_iter().flatten();
    let tested: BTreeSet<&str> = rows.map(|row| row.0).chain(thin).collect();
    let known: BTreeSet<&str> = workload::CATALOGUE.iter().map(|entry| entry.name).collect();
    assert_eq!(tested, known);
}
