//! Sound scenarios and others.

use expect_test::expect;

use super::*;
use crate::model::{CfsBandwidth, LockKind, Op, SimGroup};
use crate::random::Duration;
use crate::sched::SchedKernel;

const SOUND: &str = r#"sim = 1
title = "two VMs"
draws = 3
duration_ms = 20
warmup_ms = 0
baseline = "ple"

[host]
sockets = 1
cores = 4
threads = 2
kernel = "3.6"
costs = { exit_ns = 700, switch_ns = [1000, 2000, 3000] }
scheduler = { latency_ms = 8, tick_ms = 1 }

[[host.load]]
threads = 2
pins = "0,4"

[[vm]]
count = 2
vcpus = 8
pins = "nodes"
workload = "locks"

[workload.locks]
class = "spin-lock"
work = { exponential_us = 40 }
hold = 1.5

[[variant]]
name = "ple"

[[variant]]
name = "no ple"
set = { "host.kvm.ple" = false, "vm.0.kernel" = "6.6" }

[sweep]
"workload.locks.locks" = [1, 4]
"#;

fn no_host(file: &str) -> Result<Host, String> {
    Err(format!("no {file}"))
}

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse("s.toml", text, no_host).map_err(|error| error.to_string())
}

#[test]
fn every_cell_is_a_model() {
    let scenario = parse(SOUND).unwrap();
    let cells: Vec<_> =
        scenario.cells.iter().map(|cell| (cell.variant.as_str(), cell.point.as_str())).collect();
    assert_eq!(
        cells,
        [
            ("ple", "workload.locks.locks = 1"),
            ("no ple", "workload.locks.locks = 1"),
            ("ple", "workload.locks.locks = 4"),
            ("no ple", "workload.locks.locks = 4"),
        ]
    );
    let model = &scenario.cells[3].model;
    assert!(!model.kvm.ple && scenario.cells[0].model.kvm.ple);
    assert_eq!(model.vms.len(), 2);
    assert_eq!(model.vms[1].pins[7], [7]);
    assert_eq!(model.vms[1].locks.len(), 4);
    assert_eq!(model.vms[1].policy.kernel, SchedKernel::V6_6);
    assert_eq!(model.vms[0].locks[0].kind, LockKind::Fair);
    assert_eq!(model.vms[0].tasks[1].program[1], Op::Lock(1));
    // Two of the load, and the kernel's own on each pCPU.
    assert_eq!(model.host_tasks.len(), 2 + 8);
    assert_eq!(model.host_tasks[0].pins, [0, 4]);
    assert_eq!(model.host_tasks[9].pins, [7]);
    assert_eq!(model.host_tasks[9].burst.unwrap().1, Duration::Exponential(500_000_000));
    let quiet = parse(&SOUND.replace("[host]\n", "[host]\nhousekeeping_ms = 0\n")).unwrap();
    assert_eq!(quiet.cells[0].model.host_tasks.len(), 2);
    assert_eq!(model.costs.switch_ns, 2000.0);
    // Draws differ where the scenario leaves a range, and are shared by cells.
    let [first, other] = [0, 1].map(|cell| scenario.cells[cell].draw(1, 2));
    assert_eq!((first.costs, first.seed), (other.costs, other.seed));
    assert_eq!(first.costs.exit_ns, 700.0);
    assert_ne!(first.costs.switch_ns, 2000.0);
    assert_eq!(scenario.cells[0].draw(1, 0).costs.switch_ns, 2000.0);
}

#[test]
fn every_cell_runs() {
    for cell in &parse(SOUND).unwrap().cells {
        let outcome = crate::run(&cell.draw(1, 0), || true).unwrap();
        assert!(outcome.meters[0].done > 0, "{}", cell.variant);
    }
}

/// What is wrong after `from` became `to`.
fn wrong(from: &str, to: &str) -> String {
    assert!(SOUND.contains(from), "{from}");
    parse(&SOUND.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn what_is_wrong_has_file_line_and_value() {
    let mut all = String::new();
    for (from, to) in [
        ("sim = 1", "sim = 2"),
        ("sim = 1\n", ""),
        ("cores = 4", "cores = 0"),
        ("cores = 4", "cores = 4000000000"),
        ("vcpus = 8", "vcpus = 1000000000"),
        ("count = 2", "count = 10000"),
        ("duration_ms = 20", "duration_ms = 31536000000"),
        ("duration_ms = 20", "duration_ms = 0"),
        ("duration_ms = 20", "duration_ms = -1"),
        ("exponential_us = 40", "exponential_us = -3"),
        ("exponential_us = 40", "exponential_us = nan"),
        ("exponential_us = 40", "exponential_us = inf"),
        ("exponential_us = 40", "normal_us = [-5, 1]"),
        ("exponential_us = 40", "uniform_us = [9, 3]"),
        ("exponential_us = 40", "lognormal_us = [40, 1e300]"),
        ("exponential_us = 40", "poisson_us = 40"),
        ("hold = 1.5", "hodl = 1.5"),
        (
            "class = \"spin-lock\"\nwork = { exponential_us = 40 }\nhold = 1.5",
            "class = \"messages\"\nsend_work = 1\nreceive_work = 1\ngroups = 1000\npairs = 1000",
        ),
        ("[1, 4]", "[10000]\n\"workload.locks.tasks\" = [10000]"),
        ("[1, 4]", "[10000]\n\"vm.0.count\" = [4]"),
        ("[1, 4]", "[9000, 9001, 9002, 9003, 9004, 9005, 9006, 9007]"),
        ("vcpus = 8", "vcpus = 8\nmemory_nodes = [1]"),
        (
            "threads = 2\npins = \"0,4\"",
            "threads = 10000\n[[host.load]]\nthreads = 10000\n[[host.load]]",
        ),
        ("pins = \"nodes\"", "pins = \"0-8\""),
        ("pins = \"nodes\"", "pins = [\"0\"]"),
        ("pins = \"0,4\"", "pins = \"0,99\""),
        ("kernel = \"3.6\"", "kernel = \"new\""),
        ("workload = \"locks\"", "workload = \"lokcs\""),
        ("class = \"spin-lock\"", "class = \"spinlock\""),
        ("name = \"no ple\"", "name = \"ple\""),
        ("baseline = \"ple\"", "baseline = \"pel\""),
        ("\"host.kvm.ple\" = false", "\"host.kvm.ple\" = 0"),
        ("\"host.kvm.ple\" = false", "\"host.kvm.pel\" = false"),
        ("\"host.kvm.ple\" = false", "\"draws\" = 3"),
        ("\"vm.0.kernel\"", "\"vm.3.kernel\""),
        ("[1, 4]", "[]"),
        ("[1, 4]", "[0]"),
        ("[1000, 2000, 3000]", "[3000, 2000, 1000]"),
        ("[host]", "[host"),
        ("threads = 2\nkernel", "threads = 2\nfile = \"h.json\"\nkernel"),
    ] {
        all += &format!("{to:?}\n{}\n", wrong(from, to));
    }
    expect![[r#"
        "sim = 2"
        s.toml:1: Scenario format 2 is not known: this vmlab reads version 1: use a newer vmlab
        ""
        s.toml:1: No version of the format: begin the scenario with `sim = 1`
        "cores = 0"
        s.toml:10: cores = 0: must be a whole number from 1 to 1024
        "cores = 4000000000"
        s.toml:10: cores = 4000000000: must be a whole number from 1 to 1024
        "vcpus = 1000000000"
        s.toml:22: vcpus = 1000000000: must be a whole number from 1 to 1024
        "count = 10000"
        s.toml:20: The VMs have more than 20000 vCPUs, which can't be simulated
        "duration_ms = 31536000000"
        s.toml:4: duration_ms = 31536000000: must be a number from 0 to 600000
        "duration_ms = 0"
        s.toml:4: duration_ms = 0: nothing would be counted
        "duration_ms = -1"
        s.toml:4: duration_ms = -1: must be a number from 0 to 600000
        "exponential_us = -3"
        s.toml:28: work = { exponential_us = -3 }: must be a number of us, or one of { constant_us = X }, { exponential_us = MEAN }, { uniform_us = [LOW, HIGH] }, { normal_us = [MEAN, SD] }, { lognormal_us = [MEDIAN, SIGMA] }; no less than 0 and at most 6e8
        "exponential_us = nan"
        s.toml:28: work = { exponential_us = NaN }: must be a number of us, or one of { constant_us = X }, { exponential_us = MEAN }, { uniform_us = [LOW, HIGH] }, { normal_us = [MEAN, SD] }, { lognormal_us = [MEDIAN, SIGMA] }; no less than 0 and at most 6e8
        "exponential_us = inf"
        s.toml:28: work = { exponential_us = inf }: must be a number of us, or one of { constant_us = X }, { exponential_us = MEAN }, { uniform_us = [LOW, HIGH] }, { normal_us = [MEAN, SD] }, { lognormal_us = [MEDIAN, SIGMA] }; no less than 0 and at most 6e8
        "normal_us = [-5, 1]"
        s.toml:28: work = { normal_us = [-5, 1] }: must be a number of us, or one of { constant_us = X }, { exponential_us = MEAN }, { uniform_us = [LOW, HIGH] }, { normal_us = [MEAN, SD] }, { lognormal_us = [MEDIAN, SIGMA] }; no less than 0 and at most 6e8
        "uniform_us = [9, 3]"
        s.toml:28: work = { uniform_us = [9, 3] }: must be a number of us, or one of { constant_us = X }, { exponential_us = MEAN }, { uniform_us = [LOW, HIGH] }, { normal_us = [MEAN, SD] }, { lognormal_us = [MEDIAN, SIGMA] }; no less than 0 and at most 6e8
        "lognormal_us = [40, 1e300]"
        s.toml:28: work = { lognormal_us = [40, 1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000] }: must be a number of us, or one of { constant_us = X }, { exponential_us = MEAN }, { uniform_us = [LOW, HIGH] }, { normal_us = [MEAN, SD] }, { lognormal_us = [MEDIAN, SIGMA] }; no less than 0 and at most 6e8
        "poisson_us = 40"
        s.toml:28: work = { poisson_us = 40 }: must be a number of us, or one of { constant_us = X }, { exponential_us = MEAN }, { uniform_us = [LOW, HIGH] }, { normal_us = [MEAN, SD] }, { lognormal_us = [MEDIAN, SIGMA] }; no less than 0 and at most 6e8
        "hodl = 1.5"
        s.toml:26: This workload needs hold: hold = 10 is 10 us
        s.toml:29: Unknown key "hodl" in locks: did you mean "hold"?
        "class = \"messages\"\nsend_work = 1\nreceive_work = 1\ngroups = 1000\npairs = 1000"
        s.toml:26: These tasks have 2003000000 steps: at most 1000000 can be simulated
        s.toml:41: Unknown key "locks" in locks: known are capacity, class, groups, in_kernel, memory_bound, meter, pairs, pinned, receive_work, send_work, tasks
        "[10000]\n\"workload.locks.tasks\" = [10000]"
        s.toml:26: These tasks have 500000000 steps: at most 1000000 can be simulated
        "[10000]\n\"vm.0.count\" = [4]"
        s.toml:20: With these VMs the guests have 32 tasks of 1600000 steps: at most 20000 and 1000000 can be simulated
        "[9000, 9001, 9002, 9003, 9004, 9005, 9006, 9007]"
        s.toml:1: The tasks of all variants at all points have more than 10000000 steps
        "vcpus = 8\nmemory_nodes = [1]"
        s.toml:23: memory_nodes = 1: the host has the nodes 0 to 0
        "threads = 10000\n[[host.load]]\nthreads = 10000\n[[host.load]]"
        s.toml:20: The host's loads have more than 20000 threads
        "pins = \"0-8\""
        s.toml:23: pins = "0-8": the host has no pCPU 8 that is online
        "pins = [\"0\"]"
        s.toml:23: pins has 1 places, the VM has 8 vCPUs
        "pins = \"0,99\""
        s.toml:18: pins = "0,99": the host has no pCPU 99 that is online
        "kernel = \"new\""
        s.toml:12: kernel = "new": must be a version, as "3.6", "5.15" or "6.12"
        "workload = \"lokcs\""
        s.toml:24: workload = "lokcs": there is none; known are: locks
        "class = \"spinlock\""
        s.toml:27: class = "spinlock": must be one of "spin-lock", "barrier", "messages", "ping-pong", "flush", "calls", "pages", "requests", "compute", "stream", "program"
        "name = \"ple\""
        s.toml:34: name = "ple": two variants have it
        "baseline = \"pel\""
        s.toml:6: baseline = "pel": there is no such [[variant]]
        "\"host.kvm.ple\" = 0"
        s.toml:36: ple = 0: must be true or false
        "\"host.kvm.pel\" = false"
        s.toml:36: Unknown key "pel" in kvm: known are halt_poll_adapts, halt_poll_us, hlt_exits, ipi_cluster, ipi_exits, kick_yields, ple, ple_window_grow, ple_window_max_ns, ple_window_ns, ple_window_shrink, posted_interrupts, pv_ipi, pv_sched_yield, pv_tlb_flush, skip_in_guest, skip_not_ready, skip_spinning, skip_user_mode, skip_woken, throttled_yield, undercommit_check, yield_every_us, yield_limit
        "\"draws\" = 3"
        s.toml:36: "draws" can't be varied: host, vm, workload, duration_ms, warmup_ms and start can
        "\"vm.3.kernel\""
        s.toml:36: "vm.3.kernel": there is no number 3, counted from 0
        "[]"
        s.toml:39: workload.locks.locks = []: must have from 1 to 100 values
        "[0]"
        s.toml:39: locks = 0: must be a whole number from 1 to 10000
        "[3000, 2000, 1000]"
        s.toml:13: switch_ns = [3000, 2000, 1000]: must be a number, or [low, median, high] with a tenth of the draws below and above
        "[host"
        s.toml:8: unclosed table, expected `]`
        "threads = 2\nfile = \"h.json\"\nkernel"
        s.toml:12: file = "h.json": no h.json
    "#]].assert_eq(&all);
}

/// Control groups: by version 1 or 2, each copy of a VM in one of its own.
#[test]
fn cgroups_are_read_and_checked() {
    let text = |cgroup: &str, count: u32| {
        format!(
            "sim = 1\n[host]\ncores = 2\n[[host.load]]\nthreads = 3\ncgroup = {{ weight = 50 }}\n\
             [[vm]]\ncount = {count}\nworkload = \"w\"\ncgroup = {cgroup}\n\
             [workload.w]\nclass = \"compute\"\nwork = 5\n"
        )
    };
    let parsed = |cgroup: &str, count| {
        let read = Scenario::parse("s.toml", &text(cgroup, count), |_| Err(String::new()));
        read.map(|scenario| scenario.cells[0].model.clone())
    };
    let model = parsed("{ shares = 2048, quota_us = 150_000, period_us = 50_000 }", 2).unwrap();
    let quota = Some(CfsBandwidth { quota_ns: 150_000_000, period_ns: 50_000_000 });
    let own = SimGroup { shares: 2048, quota };
    assert_eq!(model.groups, [SimGroup { shares: 512, quota: None }, own, own]);
    assert_eq!(model.vms.iter().map(|vm| vm.group).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert!(model.host_tasks[..3].iter().all(|task| task.group == Some(0)));
    assert!(model.host_tasks[3..].iter().all(|task| task.group.is_none()));
    let all: Vec<String> = [
        ("7", 1),
        ("{ weight = 0 }", 1),
        ("{ weight = 100, shares = 1024 }", 1),
        ("{ shares = 1 }", 1),
        ("{ quota_us = 999 }", 1),
        ("{ quota_us = -1 }", 1),
        ("{ period_us = 100_000 }", 1),
        ("{ quota_us = 5_000, period_us = 1_000_001 }", 1),
        ("{ wieght = 100 }", 1),
        ("{ weight = 50 }\nmetal = true", 1),
    ]
    .into_iter()
    .map(|(cgroup, count)| parsed(cgroup, count).unwrap_err().to_string())
    .collect();
    expect_test::expect![[r#"
        s.toml:10: cgroup = 7: must be a table
        s.toml:10: weight = 0: must be a whole number from 1 to 10000
        s.toml:10: A cgroup has weight (of version 2) or shares (of version 1), not both
        s.toml:10: shares = 1: must be a whole number from 2 to 262144
        s.toml:10: quota_us = 999: must be a whole number from 1000 to 10000000000
        s.toml:10: quota_us = -1: must be a whole number from 1000 to 10000000000
        s.toml:10: period_us = 100000: without quota_us there is no limit
        s.toml:10: period_us = 1000001: must be a whole number from 1000 to 1000000
        s.toml:10: Unknown key "wieght" in cgroup: did you mean "weight"?
        s.toml:10: cgroup = { weight = 50 }: with metal = true CPUs that are idle would run in the group: take a VM"#]]
    .assert_eq(&all.join("\n"));
}

/// What refers to pCPUs is not judged by a host that is none.
#[test]
fn a_host_without_pcpus_is_told_once() {
    let text = SOUND.replacen("sockets = 1\ncores = 4\nthreads = 2", "file = \"h.json\"", 1);
    let found = Scenario::parse("s.toml", &text, |_| Ok(Host::default())).unwrap_err();
    assert_eq!(found.to_string(), "s.toml:8: The host has no pCPU that is online");
}

const PROGRAM: &str = r#"sim = 1
duration_ms = 5
warmup_ms = 0
[host]
cores = 2
[[vm]]
vcpus = 2
workload = "mine"
[workload.mine]
class = "program"
locks = { a = {}, b = { lock = "sleeping" }, irq = { keeps_off = "interrupts" }, r = { lock = "shared" } }
barriers.end = { parties = 2, spin_us = "forever" }
channels.pipe = { capacity = 2 }
[[workload.mine.task]]
vcpu = 0
steps = [{ work = 5 }, { lock = "a" }, { work = 1 }, { unlock = "a" }, { send = "pipe" }, { barrier = "end" }, "flush", { repeat = 3, steps = [{ lock = "r" }, { work = 0.1 }, { unlock = "r" }, { repeat = 2, steps = [{ lock = "irq" }, { unlock = "irq" }] }] }]
[[workload.mine.task]]
vcpu = 1
steps = ["begin", { lock = "b" }, { stream = 3 }, { unlock = "b" }, { receive = "pipe" }, { barrier = "end" }, { sleep = 10 }, "done"]
"#;

/// As `vmlab plan --toml` prints them.
#[test]
fn pins_by_vcpu_are_read() {
    let read = |pins: &str| {
        let text = PROGRAM.replacen("vcpus = 2\n", &format!("vcpus = 2\n{pins}\n"), 1);
        Scenario::parse("s.toml", &text, |_| Err("no files".to_owned()))
    };
    let pins = |pins| read(pins).unwrap().cells[0].model.vms[0].pins.clone();
    assert_eq!(pins("pins.0 = \"1\"\npins.1 = \"0-1\""), [vec![1], vec![0, 1]]);
    assert_eq!(pins("pins = { 1 = 0 }"), [vec![], vec![0]]);
    for (wrong, told) in [
        ("pins = { 2 = \"0\" }", "s.toml:8: pins names vCPU \"2\", the VM has 2 vCPUs"),
        ("pins = { one = \"0\" }", "s.toml:8: pins names vCPU \"one\", the VM has 2 vCPUs"),
        ("pins = { 0 = \"7\" }", "s.toml:8: pins = \"7\": the host has no pCPU 7 that is online"),
        ("pins = { 0 = true }", "s.toml:8: pins = true: must be pCPUs, as \"1\" or \"0-3,8\""),
    ] {
        assert_eq!(read(wrong).unwrap_err().to_string(), told);
    }
}

/// All of what `vmlab plan --toml` prints of a VM, under `[[vm]]`: where memory is counts, what
/// means nothing here is told.
#[test]
fn a_whole_plan_is_read() {
    let two_nodes = PROGRAM.replacen("cores = 2\n", "sockets = 2\ncores = 1\n", 1);
    let with = |keys: &str| {
        let text = two_nodes.replacen("[workload.mine]", &format!("{keys}\n[workload.mine]"), 1);
        Scenario::parse("s.toml", &text, |_| Err("no files".to_owned()))
    };
    let planned = "emulator_pin = \"0\"\nmemory_mib = 4096\niothreads = 1\n\
                   [vm.topology]\nsockets = 1\ncores = 2\nthreads = 1\n\
                   [vm.pins]\n0 = \"1\"\n1 = \"0\"\n[vm.iothread_pins]\n1 = \"0\"\n\
                   [vm.memory]\nhuge_pages = \"1G\"\nhost_nodes = \"1\"";
    let scenario = with(planned).unwrap();
    let vm = &scenario.cells[0].model.vms[0];
    assert_eq!(
        (vm.memory_nodes.as_slice(), vm.pins.as_slice()),
        (&[1][..], &[vec![1], vec![0]][..])
    );
    let told = "vm: emulator_pin, iothread_pins, memory_mib, how memory is backed, iothreads";
    assert_eq!(scenario.left_out, [told]);
    let nodes = "[[vm.numa]]\nvcpus = \"0\"\nmemory_mib = 1\nhost_nodes = \"1\"\n\
                 [[vm.numa]]\nvcpus = \"1\"\nmemory_mib = 1\nhost_nodes = \"0\"";
    let scenario = with(nodes).unwrap();
    assert_eq!(scenario.cells[0].model.vms[0].memory_nodes, [0, 1]);
    assert_eq!(scenario.left_out, ["vm: the guest's nodes"]);
    for (wrong, message) in [
        (
            "emulator_pin = \"9\"",
            "s.toml:10: emulator_pin = \"9\": the host has no pCPU 9 that is online",
        ),
        (
            "memory_mib = \"4G\"",
            "s.toml:10: memory_mib = \"4G\": invalid type: string \"4G\", expected u64",
        ),
        ("memory_mib = 0", "s.toml:10: memory_mib is 0: a guest needs memory"),
        (
            "memory_mib = 1073741825",
            "s.toml:10: memory_mib 1073741825 is more than 1073741824 (1 PiB)",
        ),
        (
            "memory.host_nodes = \"2\"",
            "s.toml:10: host_nodes = \"2\": the host has the nodes 0 to 1",
        ),
        ("memory.host_nodes = 0", "s.toml:10: host_nodes = 0: must be nodes, as \"0\" or \"0-1\""),
        (
            "memory.host_nods = \"0\"",
            "s.toml:10: Unknown key \"host_nods\" in memory: did you mean \"host_nodes\"?",
        ),
        ("memory.huge_pages = 3", "s.toml:10: memory = { huge_pages = 3 }: invalid type"),
        (
            "memory_nodes = [0]\nmemory.host_nodes = \"0\"",
            "s.toml:10: memory_nodes = [0]: host_nodes already say where the memory is",
        ),
    ] {
        let error = with(wrong).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn programs_are_steps() {
    let scenario = parse(PROGRAM).unwrap();
    let outcome = crate::run(&scenario.cells[0].model, || true).unwrap();
    assert!(outcome.meters[0].done > 20);
    assert!(outcome.meters[0].latency.median_ns > 10_000);
    let mut all = String::new();
    for (from, to) in [
        ("{ unlock = \"a\" }, ", ""),
        ("{ unlock = \"a\" }", "{ lock = \"a\" }"),
        ("{ lock = \"a\" }", "{ lock = \"c\" }"),
        ("\"flush\"", "\"flash\""),
        ("\"flush\"", "{ wrok = 3 }"),
        ("\"flush\"", "{ repeat = 0, steps = [\"flush\"] }"),
        ("\"flush\"", "{ repeat = 2, steps = [] }"),
        ("\"flush\"", "{ repeat = 2, times = 3, steps = [\"flush\"] }"),
        ("{ unlock = \"a\" }", "{ repeat = 2, steps = [{ unlock = \"a\" }] }"),
        (
            "\"flush\"",
            "{ repeat = 1, steps = [{ repeat = 1, steps = [{ repeat = 1, steps = [{ repeat = 1, steps = [{ repeat = 1, steps = [\"flush\"] }] }] }] }] }",
        ),
        ("locks = { ", "locks = { c = { lock = \"sleeping\", keeps_off = \"interrupts\" }, "),
        ("locks = { ", "locks = { c = { lock_halts_early = \"soon\" }, "),
        ("\"flush\"", "{ lock = \"irq\" }, \"flush\", { unlock = \"irq\" }"),
        ("vcpu = 1", "vcpu = 2"),
        ("parties = 2", "parties = 3"),
        (
            "steps = [\"begin\", { lock = \"b\" }, { stream = 3 }, { unlock = \"b\" }, { receive = \"pipe\" }, { barrier = \"end\" }, { sleep = 10 }, \"done\"]",
            "steps = [\"done\"]",
        ),
    ] {
        assert!(PROGRAM.contains(from), "{from}");
        let error = parse(&PROGRAM.replacen(from, to, 1)).unwrap_err();
        all += &format!("{to:?}\n{error}\n");
    }
    expect![[r#"
        ""
        s.toml:16: steps: the lock "a" is never given back
        "{ lock = \"a\" }"
        s.toml:16: steps: the lock "a" is taken twice
        "{ lock = \"c\" }"
        s.toml:16: lock = "c": the workload has none
        "\"flash\""
        s.toml:16: steps = "flash": a step is "flush", "call", "begin" or "done", or one of { work = T }, { stream = T }, { sleep = T }, { lock = NAME }, { unlock = NAME }, { barrier = NAME }, { send = NAME }, { receive = NAME }, { repeat = N, steps = [...] }
        "{ wrok = 3 }"
        s.toml:16: steps = { wrok = 3 }: a step is "flush", "call", "begin" or "done", or one of { work = T }, { stream = T }, { sleep = T }, { lock = NAME }, { unlock = NAME }, { barrier = NAME }, { send = NAME }, { receive = NAME }, { repeat = N, steps = [...] }
        "{ repeat = 0, steps = [\"flush\"] }"
        s.toml:16: repeat = 0: must be a whole number from 1 to 1000000
        "{ repeat = 2, steps = [] }"
        s.toml:16: repeat needs steps: { repeat = 3, steps = [...] }
        "{ repeat = 2, times = 3, steps = [\"flush\"] }"
        s.toml:16: Unknown key "times" in repeat: known are repeat, steps
        "{ repeat = 2, steps = [{ unlock = \"a\" }] }"
        s.toml:16: steps: the lock "a" is not held at the end of a round of repeat as at its beginning
        "{ repeat = 1, steps = [{ repeat = 1, steps = [{ repeat = 1, steps = [{ repeat = 1, steps = [{ repeat = 1, steps = [\"flush\"] }] }] }] }] }"
        s.toml:16: repeat is nested deeper than 4 times
        "locks = { c = { lock = \"sleeping\", keeps_off = \"interrupts\" }, "
        s.toml:11: keeps_off = "interrupts": a lock that does not spin keeps nothing off
        "locks = { c = { lock_halts_early = \"soon\" }, "
        s.toml:11: lock_halts_early = "soon": must be one of "never", "halted", "preempted"
        "{ lock = \"irq\" }, \"flush\", { unlock = \"irq\" }"
        s.toml:16: steps: it waits while the lock "irq" keeps interrupts off
        "vcpu = 2"
        s.toml:8: workload = "mine": mine task 1 is pinned beyond the VM's 2 vCPUs
        "parties = 3"
        s.toml:8: workload = "mine": 2 tasks meet at the barrier "end", which waits for 3
        "steps = [\"done\"]"
        s.toml:8: workload = "mine": 1 tasks meet at the barrier "end", which waits for 2
        s.toml:19: steps = ["done"]: nothing takes time
    "#]].assert_eq(&all);
}

/// A workload that no time passes in would never come to an end: it is told before.
#[test]
fn steps_without_time_are_told() {
    let class = |keys: &str| {
        format!(
            "sim = 1\n[host]\ncores = 2\n[[vm]]\nvcpus = 2\nworkload = \"w\"\n[workload.w]\n{keys}\n"
        )
    };
    let mut all = String::new();
    for keys in [
        "class = \"stream\"\nwork = 0",
        "class = \"compute\"\nwork = { normal_us = [0.0001, 0] }",
        "class = \"spin-lock\"\nwork = 0\nhold = { exponential_us = 0 }",
        "class = \"requests\"\nsleep = 0\nwork = 0",
        "class = \"flush\"\nwork = 0",
        "class = \"barrier\"\ntasks = 1\nwork = 0",
        "class = \"program\"\ntask = [{ steps = [{ sleep = 0 }, \"done\"] }]",
    ] {
        let error = parse(&class(keys)).unwrap_err();
        all += &format!("{error}\n");
    }
    expect![[r#"
        s.toml:9: work = 0: no step of the workload takes time: at least 1 ns is needed
        s.toml:9: work = { normal_us = [0.0001, 0] }: no step of the workload takes time: at least 1 ns is needed
        s.toml:9: work = 0: no step of the workload takes time: at least 1 ns is needed
        s.toml:10: work = 0: no step of the workload takes time: at least 1 ns is needed
        s.toml:9: work = 0: no step of the workload takes time: at least 1 ns is needed
        s.toml:10: work = 0: no step of the workload takes time: at least 1 ns is needed
        s.toml:9: steps = [{ sleep = 0 }, "done"]: nothing takes time
    "#]].assert_eq(&all);
    // Who waits for others has their time.
    for keys in [
        "class = \"barrier\"\nwork = 0",
        "class = \"messages\"\nsend_work = 0\nreceive_work = 0",
        "class = \"spin-lock\"\nwork = 0\nhold = 1",
    ] {
        let mut model = parse(&class(keys)).unwrap().cells[0].model.clone();
        (model.warmup_ns, model.duration_ns) = (0, 5_000_000);
        let outcome =
            crate::run(&model, || true).unwrap_or_else(|stuck| panic!("{keys}: {stuck:?}"));
        assert!(outcome.meters[0].done > 0, "{keys}");
    }
}

#[test]
fn the_unit_says_what_a_count_is() {
    for (unit, expected) in [
        ("per_count = 0.5", Ok(CountScale::PerCount(0.5))),
        ("seconds_for = 800000", Ok(CountScale::SecondsFor(800_000.0))),
        (
            "variant = \"ple\"\nvalue = 32001",
            Ok(CountScale::Fitted { variant: "ple".to_owned(), value: 32_001.0 }),
        ),
        ("value = 3", Err("s.toml:41: A unit has one of")),
        ("variant = \"elp\"\nvalue = 3", Err("s.toml:42: variant = \"elp\"")),
    ] {
        let found = parse(&format!("{SOUND}\n[unit]\n{unit}\n")).map(|found| found.unit.scale);
        match expected {
            Ok(scale) => assert_eq!(found, Ok(scale)),
            Err(message) => {
                let found = found.unwrap_err();
                assert!(found.starts_with(message), "{found}");
            }
        }
    }
}

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever is cut out of or put into a scenario, reading it ends with a
    /// scenario or with an error that names a line of it.
    #[test]
    fn broken_scenarios_are_told(
        which in any::<bool>(),
        at in 0usize..900,
        cut in 0usize..12,
        put in "[\\[\\]{}=\".,a-z0-9\\n-]{0,6}",
    ) {
        let text = if which { SOUND } else { PROGRAM };
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        let broken = format!("{}{put}{}", &text[..at], &text[end..]);
        if let Err(error) = Scenario::parse("s", &broken, no_host) {
            prop_assert!(!error.problems.is_empty());
            let lines = broken.lines().count().max(1);
            prop_assert!(error.problems.iter().all(|p| (1..=lines + 1).contains(&p.line)));
        }
    }
}

/// What a guest's pages move in at once, by its version.
#[test]
fn pages_go_with_the_release() {
    let program = |release: &str, more: &str| {
        let text = format!(
            "sim = 1\n[host]\ncores = 2\n[[vm]]\nvcpus = 2\nkernel = \"{release}\"\n\
             workload = \"buffers\"\n[workload.buffers]\nclass = \"pages\"\nfault_work = 0.7\n\
             touch_work = 0.5\nrelease_work = 0.1\npage_hold = 0.05\n{more}"
        );
        let scenario = parse(&text).unwrap_or_else(|error| panic!("{error}"));
        scenario.cells[0].draw(1, 0).vms[0].tasks[0].program.clone()
    };
    let moved = |program: &[Op], out: bool| {
        let moves = program.iter().filter_map(|op| match op {
            Op::Pages(step) if step.taken == out => Some((step.pages, step.batch, step.high)),
            _ => None,
        });
        moves.collect::<Vec<_>>()
    };
    // Locks of the lists of memory: as many as groups are put on, and taken off.
    let lists = |program: &[Op]| program.iter().filter(|op| **op == Op::Lock(1)).count();
    for (release, batch, high, off) in
        [("3.1", 31, 186, 9), ("4.18", 31, 186, 4), ("4.19", 63, 378, 4), ("6.12", 63, 378, 4)]
    {
        let steps = program(release, "");
        let taken = moved(&steps, true);
        assert_eq!(taken[0], (15, batch, high), "{release}");
        assert_eq!(taken.iter().map(|(pages, ..)| pages).sum::<u32>(), 128, "{release}");
        let freed = moved(&steps, false);
        assert_eq!(freed[0], (batch, batch, high), "{release}");
        assert_eq!(freed.iter().map(|(pages, ..)| pages).sum::<u32>(), 128, "{release}");
        assert_eq!(lists(&steps), 9 + off, "{release}");
    }
    let steps = program("6.12", "batch = 8\nlist_high = 20\nlist_batch = 10\nrelease_batch = 64\n");
    assert_eq!(moved(&steps, true)[0], (8, 8, 20));
    assert_eq!(lists(&steps), 16 + 2);
    // With fewer than a batch the list would have less than nothing.
    let text = "sim = 1\n[host]\ncores = 1\n[[vm]]\nworkload = \"b\"\n[workload.b]\nclass = \"pages\"\n\
                fault_work = 1\ntouch_work = 1\nrelease_work = 1\npage_hold = 1\nbatch = 8\nlist_high = 7";
    let error = parse(text).map(|_| ()).unwrap_err();
    assert!(error.contains("s.toml:13: list_high = 7"), "{error}");
}
