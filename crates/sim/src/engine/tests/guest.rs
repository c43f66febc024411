//! Ticks and balance inside guests.

use super::*;

/// One vCPU that computes, beside nothing, on a host where only exits (of 1000 ns), entries
/// (500 ns) and the work of ticks (2000 ns) cost.
fn ticking(tick_ns: u64) -> SimModel {
    let mut model = free(host(1, 1, 1), SchedKernel::V5);
    (model.costs.exit_ns, model.costs.entry_ns, model.costs.tick_work_ns) = (1000.0, 500.0, 2000.0);
    let work = [Op::Work(Duration::Constant(10_000), WorkClass::COMPUTE), Op::Done(0)];
    let mut guest = vm("vm", &[0], 0, &work);
    guest.policy.tick_ns = tick_ns;
    model.vms = vec![guest];
    model
}

/// `tick_sched_timer`, `lapic_next_deadline`: a guest's tick is an exit for the timer and one
/// for its next deadline, and the handler's work in the guest. The host's own tick is an
/// exit with its work. `CONFIG_HZ` says how many there are.
#[test]
fn ticks_cost_exits() {
    for (tick_ns, hz) in [(1_000_000, 1000), (4_000_000, 250), (10_000_000, 100)] {
        let outcome = run(&ticking(tick_ns), || true).unwrap();
        let host = 1000 * (1500 + 2000);
        // What a tick began before the end may come after it.
        let (exits, kernel) = (outcome.time.exits, outcome.time.guest_kernel);
        near(exits as f64, f64::from(host + hz * 2 * 1500), "exits");
        near(kernel as f64, f64::from(hz * 2000), "handlers");
        assert_eq!(outcome.time.total(), 1_000_000_000);
    }
    // What runs without a VM has the host's tick alone.
    let mut metal = ticking(1_000_000);
    metal.vms[0].metal = true;
    let outcome = run(&metal, || true).unwrap();
    near(outcome.time.exits as f64, 2e6, "the host's work");
    assert_eq!(outcome.time.guest_kernel, 0);
}

/// Threads of a core slow the kernel's code too, the host's and the guest's.
#[test]
fn what_ticks_cost_doubles_beside_a_busy_thread() {
    let mut model = ticking(1_000_000);
    model.machine = host(1, 1, 2);
    model.mechanisms.smt = true;
    model.costs.smt_compute_factor = 0.5;
    let beside = SimVm { pins: vec![vec![1]], ..model.vms[0].clone() };
    model.vms.push(beside);
    let outcome = run(&model, || true).unwrap();
    let (host, guest) = (1000 * (1500 + 2000), 1000 * 2 * 1500);
    near(outcome.time.exits as f64, f64::from(2 * 2 * (host + guest)), "exits");
    near(outcome.time.guest_kernel as f64, f64::from(2 * 2 * 1000 * 2000), "handlers");
    assert_eq!(outcome.time.total(), 2_000_000_000);
}

/// `kvm_vcpu_check_block`: who halts sees interrupts that it takes, not what is on the guest's
/// queue.
#[test]
fn interrupts_alone_keep_a_vcpu_from_halting() {
    let model = ticking(1_000_000);
    let mut world = EngineState::new(&model);
    world.begin();
    let state = &world.vcpus[0];
    assert!(state.queue.current().is_none() && !state.queue.is_empty());
    assert!(!world.has_reason_to_run(0));
    world.vcpus[0].pending.vectors = 1;
    assert!(world.has_reason_to_run(0));
    world.vcpus[0].irqs_off = true;
    assert!(!world.has_reason_to_run(0));
}

/// Two tasks that wake each other, each on a vCPU, where only exits cost. Ticks are rare.
fn halting(kernel: SchedKernel, pause_ns: u64, hlt_exits: bool) -> SimOutcome {
    let mut model = free(host(1, 2, 1), SchedKernel::V5);
    model.kvm.halt_poll_ns = 0;
    model.kvm.hlt_exits = hlt_exits;
    model.costs.exit_ns = 1000.0;
    let mut guest = vm("vm", &[0, 1], 0, &[]);
    guest.policy = SchedPolicy { tick_ns: 10_000_000, ..SchedPolicy::defaults(kernel, 2) };
    let channel =
        |name: &str, initial| SimChannel { name: name.to_owned(), initial, capacity: u64::MAX };
    guest.channels = vec![channel("there", 0), channel("back", 1)];
    let work = Op::Work(Duration::Constant(pause_ns), WorkClass::COMPUTE);
    guest.tasks[0].program = vec![Op::Receive(1), work, Op::Send(0), Op::Done(0)];
    guest.tasks[1].program = vec![Op::Receive(0), work, Op::Send(1)];
    model.vms = vec![guest];
    run(&model, || true).unwrap()
}

/// `cpuidle_idle_call`, `tick_nohz_idle_stop_tick`, `tick_nohz_idle_restart_tick`: a vCPU that
/// halts stops its tick and starts it anew, each an exit, in all versions: a guest has no
/// cpuidle driver that could say that the sleep is too short for it.
#[test]
fn a_halting_vcpu_stops_its_tick() {
    let exits = |outcome: &SimOutcome| {
        // The host's ticks, on one of two pCPUs at a time, are exits too.
        let ticks = 1e6 * 1.0;
        (outcome.time.exits as f64 - ticks) / 1000.0 / outcome.counters.halt_exits as f64
    };
    for (kernel, name) in SchedKernel::ALL {
        let outcome = halting(kernel, 50_000, true);
        assert!(outcome.counters.halt_exits > 15_000, "{outcome:?}");
        // Beside HLT and the interrupt to the other.
        near(exits(&outcome), 4.0, name);
    }
    let long = halting(SchedKernel::V5, 20_000_000, true);
    assert!(long.counters.halt_exits < 60, "{long:?}");
}

/// Where MWAIT stays in the guest it has `intel_idle`, and since 4.17 its governor lets the
/// tick go on where the vCPU is expected not to sleep as long as a tick.
#[test]
fn a_guest_that_sleeps_by_itself_keeps_its_tick_on_for_short_sleeps() {
    let exits =
        |outcome: &SimOutcome| outcome.time.exits as f64 / 1000.0 / outcome.meters[0].done as f64;
    let new = halting(SchedKernel::V5, 50_000, false);
    for kernel in [SchedKernel::V3_6, SchedKernel::V3_13] {
        let old = halting(kernel, 50_000, false);
        // Two sleeps an item.
        near(exits(&old) - exits(&new), 4.0, kernel.name());
    }
}

/// Tasks of a guest that compute and may run anywhere: what each had of a vCPU.
fn task_shares(kernel: SchedKernel, vcpus: u32, tasks: usize, balance: bool) -> Vec<f64> {
    let mut model = free(host(1, vcpus, 1), kernel);
    let pcpus: Vec<u32> = (0..vcpus).collect();
    let mut guest = vm("vm", &pcpus, 0, &[]);
    guest.policy = SchedPolicy::defaults(kernel, vcpus as usize);
    guest.tasks = (0..tasks)
        .map(|task| GuestTask {
            name: format!("task {task}"),
            program: vec![
                Op::Work(Duration::Exponential(100_000), WorkClass::COMPUTE),
                Op::Done(task as u32),
            ],
            pin: None,
            weight: 1024,
        })
        .collect();
    model.vms = vec![guest];
    model.meters = (0..tasks).map(|task| format!("task {task}")).collect();
    model.mechanisms.balance = balance;
    model.duration_ns = if balance { 60_000_000_000 } else { 1_000_000_000 };
    let outcome = run(&model, || true).unwrap();
    outcome.meters.iter().map(|meter| meter.per_s * 100e-6).collect()
}

/// `load_balance` from the guest's tick: tasks of a guest share vCPUs that are all busy, as
/// threads do on the host.
#[test]
fn equal_tasks_share_vcpus_that_are_all_busy() {
    for (kernel, name) in SchedKernel::ALL {
        for (vcpus, tasks, within) in [(2u32, 3, 0.05), (4, 6, 0.15)] {
            let shares = task_shares(kernel, vcpus, tasks, true);
            let expected = f64::from(vcpus) / tasks as f64;
            for share in &shares {
                assert!((share / expected - 1.0).abs() < within, "{name} {tasks}: {shares:?}");
            }
        }
        let alone = task_shares(kernel, 2, 3, false);
        let most = alone.iter().fold(0.0f64, |most, share| most.max(*share));
        assert!(most > 0.96, "{name}: it is the balance that shares: {alone:?}");
    }
}

/// `newidle_balance` and `nohz_balancer_kick`: a vCPU that has nothing to do takes a task that
/// waits on another, and does not wait for its turn to balance.
#[test]
fn an_idle_vcpu_takes_a_task_that_waits() {
    for (kernel, name) in SchedKernel::ALL {
        let mut model = free(host(1, 2, 1), kernel);
        model.warmup_ns = 0;
        let mut guest = vm("vm", &[0, 1], 0, &[]);
        guest.policy = SchedPolicy::defaults(kernel, 2);
        let work = |ms: u64| Op::Work(Duration::Constant(ms * 1_000_000), WorkClass::COMPUTE);
        let task = |pin, program| GuestTask { name: "task".to_owned(), program, pin, weight: 1024 };
        // Two run on vCPU 0 as vCPU 1 is busy for 100 ms, and never blocks them later.
        let sleep = Op::Sleep(Duration::Constant(10_000_000_000));
        guest.tasks = vec![
            task(Some(1), vec![work(100), sleep]),
            task(Some(0), vec![work(1), Op::Done(0)]),
            task(None, vec![work(1), Op::Done(0)]),
        ];
        model.vms = vec![guest];
        let rate = run(&model, || true).unwrap().meters[0].done as f64;
        // 150 steps while three share, if the free one is well balanced; then 2 a ms.
        assert!((1_890.0..=1_990.0).contains(&rate), "{name}: {rate}");
    }
}
