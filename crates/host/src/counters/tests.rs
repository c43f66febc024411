//! Tests of the counters.

use std::path::PathBuf;
use std::process::Command;

use super::*;

/// `/proc` of a two-pCPU machine; in it, process 1 with threads 1 and 2.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/linux-6.18-x86_64")
}

fn golden_text(name: &str) -> String {
    fs::read_to_string(golden().join(name)).expect("golden file")
}

fn check(found: &CounterSet, expected: &[(&str, f64)]) {
    let expected: CounterSet =
        CounterSet(expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect());
    for name in found.0.keys() {
        assert!(record::counter(name).is_some(), "{name} is not in the table");
    }
    let names = |set: &CounterSet| set.0.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(&expected));
    for (name, value) in &expected.0 {
        let got = found.get(name).expect("same names");
        assert!((got - value).abs() < 1e-9, "{name}: {got} instead of {value}");
    }
}

#[test]
fn vm_counters_are_totals_over_vcpus() {
    let vm = |vcpu_tids: &[u32]| VmThreads { pid: 1, vcpu_tids: vcpu_tids.to_vec() };
    let read = |tids: &[u32]| read_vm_in(&golden(), &vm(tids));
    check(
        &read(&[1, 2]),
        &[
            ("vcpu.run_s", 0.592_842_998),
            ("vcpu.wait_s", 0.020_717_101),
            ("vcpu.timeslices", 423.0),
            ("vcpu.migrations", 4.0),
            ("vcpu.switches_voluntary", 296.0),
            ("vcpu.switches_involuntary", 127.0),
            // 59 ticks of the process are less than what its threads count.
            ("qemu.other_run_s", 0.0),
            ("qemu.anon_huge_bytes", 0.0),
        ],
    );
    let one = [
        ("vcpu.run_s", 0.006_828_653),
        ("vcpu.wait_s", 0.013_550_028),
        ("vcpu.timeslices", 295.0),
        ("vcpu.migrations", 4.0),
        ("vcpu.switches_voluntary", 292.0),
        ("vcpu.switches_involuntary", 3.0),
        ("qemu.other_run_s", 0.583_171_347),
        ("qemu.anon_huge_bytes", 0.0),
    ];
    check(&read(&[2]), &one);
    // One thread that runs all vCPUs is counted once.
    check(&read(&[2, 2, 2]), &one);
    // A vCPU that can't be read takes the totals with it.
    check(&read(&[2, 3]), &[("qemu.anon_huge_bytes", 0.0)]);
    check(&read(&[]), &[]);
    check(&read_vm_in(&golden(), &VmThreads { pid: 2, vcpu_tids: vec![1] }), &[]);
}

#[test]
fn kernels_without_scheduler_debugging_lack_migrations_only() {
    assert_eq!(switches_in_status(&golden_text("1/task/2/status")), Some([292.0, 3.0]));
    assert_eq!(parse_sched(""), Sched::default());
    let temp = tempfile::tempdir().expect("temp folder");
    let task = temp.path().join("7/task/7");
    fs::create_dir_all(&task).expect("mkdir");
    for file in ["schedstat", "status"] {
        fs::write(task.join(file), golden_text(&format!("1/task/2/{file}"))).expect("write");
    }
    let counters = read_vm_in(temp.path(), &VmThreads { pid: 7, vcpu_tids: vec![7] });
    check(
        &counters,
        &[
            ("vcpu.run_s", 0.006_828_653),
            ("vcpu.wait_s", 0.013_550_028),
            ("vcpu.timeslices", 295.0),
            ("vcpu.switches_voluntary", 292.0),
            ("vcpu.switches_involuntary", 3.0),
        ],
    );
}

#[test]
fn odd_texts_are_absent() {
    for text in ["", "0 0 0\n", "1 2\n", "a b c", "-1 2 3"] {
        assert_eq!(parse_schedstat(text), None, "{text:?}");
    }
    assert_eq!(anon_huge_kib("AnonHugePages:   4096 kB\n"), Some(4096.0));
    assert_eq!(anon_huge_kib("Rss: 1 kB\n"), None);
    assert_eq!(pressure_us("some avg10=0.00 total=17\nfull total=1\n"), Some(17.0));
    assert_eq!(pressure_us("full avg10=0.00 total=17\n"), None);
    // Kernels before 2.6.11 have no steal column.
    assert!(parse_times("cpu  1 2 3 4 5 6 7\n", "cpu").is_none());
    assert!(parse_times("cpu0 1 2 3 4 5 6 7 8 9 10\n", "cpu").is_none());
}

#[test]
fn host_counters() {
    check(
        &read_host_in(&golden()),
        &[
            ("host.steal_s", 0.59),
            ("host.busy_s", (35839 + 17899 + 12432 + 136) as f64 / 100.0),
            ("host.pressure_cpu_s", 112.055_25),
            ("host.pressure_memory_s", 0.0),
            ("host.pressure_io_s", 8.326_609),
        ],
    );
    let empty = tempfile::tempdir().expect("temp folder");
    check(&read_host_in(empty.path()), &[]);
}

#[test]
fn guest_counters_of_x86() {
    let expected = [
        ("guest.steal_s", 0.59),
        ("guest.idle_s", 2360.06),
        ("guest.context_switches", 7_217_491.0),
        ("guest.interrupts", 662_671.0),
        ("guest.ipi_reschedule", 71_113.0),
        ("guest.ipi_call_function", 164_174.0),
        ("guest.tlb_shootdowns", 50_884.0),
        ("guest.timer_interrupts", 300_995.0),
    ];
    let (stat, interrupts) = (golden_text("stat"), golden_text("interrupts"));
    check(&parse_guest(&stat, &interrupts, 2), &expected);
    // The head is right when the number of vCPUs is not; without it, the number is.
    check(&parse_guest(&stat, &interrupts, 4), &expected);
    let (_, headless) = interrupts.split_once('\n').expect("a head");
    check(&parse_guest(&stat, headless, 2), &expected);
    check(&parse_guest("", "", 2), &[]);
}

#[test]
fn guest_interrupts_of_other_kernels() {
    let check_rows =
        |text: &str, expected: &[(&str, f64)]| check(&parse_guest("", text, 4), expected);
    // One of two vCPUs is offline: only the other has a column.
    check_rows(
        "           CPU1       \nRES:       7   Rescheduling interrupts\nERR:          0\n",
        &[("guest.ipi_reschedule", 7.0)],
    );
    // arm64, before and after the stop and wake-up IPIs changed their numbers.
    let timer_and_ipis = [
        ("guest.ipi_reschedule", 30.0),
        ("guest.ipi_call_function", 7.0),
        ("guest.timer_interrupts", 300.0),
    ];
    check_rows(
        "           CPU0       CPU1       \n 11:        100        200     GICv3  27 Level     arch_timer\nIPI0:        10         20       Rescheduling interrupts\nIPI1:         3          4       Function call interrupts\nIPI2:         0          0       CPU stop interrupts\nErr:          0\n",
        &timer_and_ipis,
    );
    check_rows(
        "           CPU0       CPU1       \n 11:        100        200     GICv2  27 Level     arch_timer\n 12:          5          6     GICv2  26 Level     kvm guest vtimer\nIPI1:        10         20       Rescheduling interrupts\nIPI2:         3          4       Function call interrupts\n",
        &timer_and_ipis,
    );
    // A broken line is not half counted.
    check_rows("CPU0 CPU1\nRES: 12\nCAL: 1 x Function call interrupts\n", &[]);
}

#[test]
fn live_counters_grow() {
    let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
    let vm = VmThreads { pid: child.id(), vcpu_tids: vec![child.id()] };
    let (before, host_before) = (read_vm(&vm), read_host());
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let host_after = read_host();
    assert!(host_before.get("host.busy_s").is_some_and(|busy| busy > 0.0));
    assert!(host_after.since(&host_before).0.values().all(|moved| *moved >= 0.0));
    assert!(before.0.values().all(|value| *value >= 0.0));
    assert_eq!(read_vm(&vm), CounterSet::default(), "an ended VM has no counters");
}
