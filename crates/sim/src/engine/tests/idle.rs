//! Going idle: how long it takes, and who is woken meanwhile without an interrupt.

use super::*;

/// Two tasks that take turns, each on a CPU of its own: both compute for `pause_ns` between
/// being woken and waking the other. Only going idle costs, and waking a pCPU, so that the first
/// of them, which a third task wakes, is some way ahead of the other.
fn turns(pause_ns: u64, entry_ns: f64) -> SimModel {
    let mut model = free(host(1, 3, 1), SchedKernel::V5);
    model.warmup_ns = 0;
    model.kvm.halt_poll_ns = 0;
    model.costs.idle_entry_ns = entry_ns;
    model.costs.idle_wake_ns = 500.0;
    let mut guest = vm("vm", &[0, 1, 2], 0, &[]);
    let channel = |name: &str| SimChannel { name: name.to_owned(), initial: 0, capacity: u64::MAX };
    guest.channels = vec![channel("there"), channel("back")];
    let work = |ns| Op::Work(Duration::Constant(ns), WorkClass::COMPUTE);
    guest.tasks[0].program = vec![Op::Receive(1), work(pause_ns), Op::Send(0), Op::Done(0)];
    guest.tasks[1].program = vec![Op::Receive(0), work(pause_ns), Op::Send(1)];
    let for_ever = Op::Sleep(Duration::Constant(1_000_000_000_000));
    guest.tasks[2].program = vec![work(10_000), Op::Send(1), for_ever];
    model.vms = vec![guest];
    model
}

/// Nobody halts, but at the beginning and where a tick comes between.
fn never_halts(outcome: &SimOutcome) -> bool {
    outcome.counters.halt_exits * 50 < outcome.meters[0].done
}

/// `do_idle`, `set_nr_if_polling`, `ttwu_queue_wakelist`: a vCPU that is woken on its way to
/// HLT turns back when it looks at `need_resched()` at its end. Nobody sends it an IPI, and
/// it does not leave the guest.
#[test]
fn a_vcpu_on_its_way_to_hlt_needs_no_ipi() {
    let short = run(&turns(1_000, 2_500.0), || true).unwrap();
    assert!(never_halts(&short) && short.counters.ipis <= 10, "{short:?}");
    // Each goes all the way before it sees what it was woken for.
    near(short.meters[0].per_s, 1e9 / 3_500.0, "turns");
    // Who is woken later has halted, and its pCPU goes all its way before it turns back, too.
    let long = run(&turns(3_000, 2_500.0), || true).unwrap();
    near(long.counters.halt_exits as f64, 2e9 / 8_000.0, "halts");
    near(long.counters.ipis as f64, 2e9 / 8_000.0, "IPIs");
    near(long.meters[0].per_s, 1e9 / 8_000.0, "turns");
}

/// Without the mechanism all halt at once.
#[test]
fn going_idle_can_be_switched_off() {
    let mut model = turns(1_000, 2_500.0);
    model.mechanisms.idle_entry = false;
    let outcome = run(&model, || true).unwrap();
    near(outcome.counters.halt_exits as f64, 2e9 / 3_000.0, "halts");
    near(outcome.counters.ipis as f64, 2e9 / 3_000.0, "IPIs");
}

/// `haltpoll_select`, `poll_idle`: a guest that polls before it halts does so at once.
#[test]
fn a_guest_polls_before_it_goes_idle() {
    let mut model = turns(1_000, 2_500.0);
    model.vms[0].idle_poll_ns = 5_000;
    let outcome = run(&model, || true).unwrap();
    assert!(never_halts(&outcome) && outcome.counters.ipis <= 10, "{outcome:?}");
    near(outcome.meters[0].per_s, 1e9 / 2_002.0, "turns");
}

/// `mwait_idle_with_hints`, `resched_curr`: an idle pCPU waits for the line that is written to
/// wake it, so that it sleeps and is not interrupted; leaving its state costs all the same.
#[test]
fn an_idle_pcpu_is_woken_by_a_line() {
    let mut model = turns(50_000, 2_500.0);
    model.costs.idle_wake_ns = 20_000.0;
    model.costs.irq_ns = 1_000.0;
    model.vms[0].metal = true;
    let outcome = run(&model, || true).unwrap();
    assert_eq!(outcome.counters.ipis, 0);
    near(outcome.meters[0].per_s, 1e9 / 140_000.0, "turns");
    model.mechanisms.idle_entry = false;
    let outcome = run(&model, || true).unwrap();
    near(outcome.counters.ipis as f64, 2e9 / 142_000.0, "IPIs");
}

/// `cpuidle_idle_call`: what is woken on a pCPU that is going idle runs at the end of its way,
/// and later than that after it has left its state. How much a thread ran that runs for 10 us
/// and sleeps.
#[test]
fn a_pcpu_on_its_way_to_its_state_turns_back() {
    for (sleep_ns, cycle_ns) in [(1_000, 10_000 + 2_500), (5_000, 10_000 + 5_000 + 20_000)] {
        let mut model = free(host(1, 1, 1), SchedKernel::V5);
        model.warmup_ns = 0;
        model.costs.idle_entry_ns = 2_500.0;
        model.costs.idle_wake_ns = 20_000.0;
        let [run_ns, sleep_ns] = [10_000, sleep_ns].map(Duration::Constant);
        model.host_tasks = vec![HostTask {
            name: "noise".to_owned(),
            pins: vec![0],
            weight: 1024,
            group: None,
            burst: Some((run_ns, sleep_ns)),
        }];
        let outcome = run(&model, || true).unwrap();
        near(outcome.time.host_tasks as f64, 1e13 / f64::from(cycle_ns), "its time");
        assert_eq!(outcome.time.total(), 1_000_000_000);
    }
}

/// `ttwu_queue`: from 3.0 on a wake-up on another CPU is queued there by an IPI, whether that
/// polls or not; from 3.3 on only across caches (`cpus_share_cache`), since 3.16 not where it
/// polls (`set_nr_if_polling`).
#[test]
fn older_kernels_interrupt_who_polls() {
    let ipis = |minor, one_cache| {
        let mut model = turns(1_000, 2_500.0);
        model.vms[0].idle = IdleRules::defaults(KernelRelease { major: 3, minor });
        if one_cache {
            model.vms[0].machine = host(1, 3, 1);
        }
        let outcome = run(&model, || true).unwrap();
        outcome.counters.ipis as f64 / outcome.meters[0].done as f64
    };
    for (minor, apart, together) in [(0, 2.0, 2.0), (3, 2.0, 0.0), (15, 2.0, 0.0), (16, 0.0, 0.0)] {
        assert!((ipis(minor, false) - apart).abs() < 0.01, "3.{minor}");
        assert!((ipis(minor, true) - together).abs() < 0.01, "3.{minor}, one cache");
    }
}

/// `tick_nohz_idle_enter`, `tick_nohz_idle_stop_tick`: up to 4.16 the tick stops before all
/// else, and starts anew; since, it goes on where the vCPU turns back before.
#[test]
fn the_tick_stopped_first_of_all() {
    let exits = |minor| {
        let mut model = turns(1_000, 2_500.0);
        model.costs.exit_ns = 700.0;
        model.vms[0].policy.tick_ns = 10_000_000_000;
        model.vms[0].idle = IdleRules::defaults(KernelRelease { major: 4, minor });
        let outcome = run(&model, || true).unwrap();
        assert!(never_halts(&outcome), "{outcome:?}");
        // The host's ticks on two pCPUs are exits too.
        let exits = outcome.time.exits as f64 / 700.0 - 2_000.0;
        exits / outcome.meters[0].done as f64
    };
    near(exits(16), 4.0, "4.16");
    assert!(exits(17).abs() < 0.01, "{}", exits(17));
}
