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
    let vm = |vcpu_tids: &[u32]| VmThreads {
        pid: 1,
        vcpu_tids: vcpu_tids.to_vec(),
        ..VmThreads::default()
    };
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
            ("qemu.minor_faults", 18322.0),
            ("qemu.major_faults", 0.0),
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
        ("qemu.minor_faults", 18322.0),
        ("qemu.major_faults", 0.0),
    ];
    check(&read(&[2]), &one);
    // One thread that runs all vCPUs is counted once.
    check(&read(&[2, 2, 2]), &one);
    // A vCPU that can't be read takes the totals with it.
    let faults = [("qemu.minor_faults", 18322.0), ("qemu.major_faults", 0.0)];
    check(&read(&[2, 3]), &faults);
    check(&read(&[]), &[]);
    check(
        &read_vm_in(&golden(), &VmThreads { pid: 2, vcpu_tids: vec![1], ..VmThreads::default() }),
        &[],
    );
}

#[test]
fn vhost_threads_are_counted_apart() {
    // Thread 2 stands for a vhost thread of the process, as since Linux 6.4.
    let temp = tempfile::tempdir().expect("temp folder");
    let copy = |from: &str, to: &str| {
        let to = temp.path().join(to);
        fs::create_dir_all(to.parent().expect("a folder")).expect("mkdir");
        fs::copy(golden().join(from), to).expect("copied");
    };
    copy("1/stat", "1/stat");
    copy("1/task/1/schedstat", "1/task/1/schedstat");
    copy("1/task/2/schedstat", "1/task/2/schedstat");
    copy("1/task/2/schedstat", "2/schedstat");
    let vm = |vhost_tids| VmThreads { pid: 1, vcpu_tids: vec![1], vhost_tids };
    let counters = read_vm_in(temp.path(), &vm(vec![2]));
    assert_eq!(counters.get("vhost.run_s"), Some(0.006_828_653));
    assert_eq!(counters.get("vhost.wait_s"), Some(0.013_550_028));
    let without = read_vm_in(temp.path(), &vm(vec![]));
    assert_eq!(without.get("vhost.run_s"), None);
    let other = |set: &CounterSet| set.get("qemu.other_run_s").expect("told");
    assert!(other(&counters) < other(&without));
    // One of them ended: no total.
    assert_eq!(read_vm_in(temp.path(), &vm(vec![2, 3])).get("vhost.run_s"), None);
}

#[test]
fn guest_memory_is_told_by_page_size_and_node() {
    let temp = tempfile::tempdir().expect("temp folder");
    let process = temp.path().join("proc/7");
    fs::create_dir_all(&process).expect("mkdir");
    for file in ["smaps", "numa_maps"] {
        fs::copy(golden().join("qemu").join(file), process.join(file)).expect("copy");
    }
    let levels = memory::read_memory_in(temp.path(), 7, &[]);
    let names: Vec<&String> = levels.0.keys().collect();
    let expected = ["hugetlb", "node0", "present", "swapped", "thp"];
    assert_eq!(
        names,
        expected.map(|name| format!("memory.{name}_bytes")).iter().collect::<Vec<_>>()
    );
    // 64 MiB of RAM in huge pages; firmware and tables beside it are small.
    assert!(levels.get("memory.thp_bytes") >= Some(f64::from(64 << 20)));
    assert!(levels.get("memory.present_bytes") >= Some(f64::from(64 << 20)));
    assert_eq!(levels.get("memory.node0_bytes"), levels.get("memory.present_bytes"));
    assert_eq!(memory::read_memory_in(temp.path(), 8, &[]), CounterSet::default());

    // On a host of two nodes: what is on the VM's own, memory and vCPUs.
    let nodes = temp.path().join("sys/devices/system/node");
    fs::create_dir_all(nodes.join("node0/cpu3")).expect("mkdir");
    fs::write(nodes.join("online"), "0-1\n").expect("written");
    for (tid, pcpu) in [(70, 3), (71, 9)] {
        let task = process.join(format!("task/{tid}"));
        fs::create_dir_all(&task).expect("mkdir");
        let fields: Vec<String> = (4..=52)
            .map(|field| if field == 39 { pcpu.to_string() } else { "0".to_owned() })
            .collect();
        let stat = format!("{tid} (CPU 0/KVM) x) S {}\n", fields.join(" "));
        fs::write(task.join("stat"), stat).expect("written");
    }
    let levels = memory::read_memory_in(temp.path(), 7, &[70, 71]);
    assert_eq!(levels.get("memory.home_bytes"), levels.get("memory.present_bytes"));
    assert_eq!(levels.get("memory.home_vcpus"), Some(1.0));
    for unknown in [&[70, 72][..], &[]] {
        let levels = memory::read_memory_in(temp.path(), 7, unknown);
        assert_eq!(levels.get("memory.home_vcpus"), None);
    }
}

#[test]
fn kernels_without_scheduler_debugging_lack_migrations_only() {
    assert_eq!(switches_in_status(&golden_text("1/task/2/status")), Some([292.0, 3.0]));
    assert_eq!(parse_sched(""), SchedCounters::default());
    let temp = tempfile::tempdir().expect("temp folder");
    let task = temp.path().join("7/task/7");
    fs::create_dir_all(&task).expect("mkdir");
    for file in ["schedstat", "status"] {
        fs::write(task.join(file), golden_text(&format!("1/task/2/{file}"))).expect("write");
    }
    let counters =
        read_vm_in(temp.path(), &VmThreads { pid: 7, vcpu_tids: vec![7], ..VmThreads::default() });
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
            ("host.context_switches", 7_217_491.0),
            ("host.interrupts", 662_671.0),
            ("host.ipi_reschedule", 71_113.0),
            ("host.ipi_call_function", 164_174.0),
            ("host.tlb_shootdowns", 50_884.0),
            ("host.timer_interrupts", 300_995.0),
            ("host.posted_interrupts", 0.0),
            ("host.posted_wakeups", 0.0),
            ("host.thp_faults", 116_237.0),
            ("host.thp_fallbacks", 0.0),
            ("host.thp_collapses", 24.0),
            ("host.thp_splits", 1221.0),
            ("host.numa_hint_faults", 0.0),
            ("host.numa_pages_migrated", 0.0),
            ("host.ksm_copies", 4551.0),
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
    let vm = VmThreads::find(child.id(), &[child.id()]);
    assert_eq!(vm.vhost_tids, [0; 0]);
    let (before, host_before) = (read_vm(&vm), read_host());
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let host_after = read_host();
    assert!(host_before.get("host.busy_s").is_some_and(|busy| busy > 0.0));
    assert!(host_after.since(&host_before).0.values().all(|moved| *moved >= 0.0));
    assert!(before.0.values().all(|value| *value >= 0.0));
    assert_eq!(read_vm(&vm), CounterSet::default(), "an ended VM has no counters");
}
