//! Closed forms, determinism, conservation, deadlocks.

mod balance;
mod calls;
mod guest;
mod idle;
mod locks;
mod map;

use super::state::{self, EngineState};
use crate::costs::CostModel;
use crate::model::*;
use crate::sched::{KernelRelease, SchedKernel, SchedPolicy};
use crate::*;

fn host(sockets: u32, cores: u32, threads: u32) -> SimMachine {
    SimMachine::of_shape(UniformMachine {
        sockets,
        dies: 1,
        cores,
        threads,
        numbering: PcpuNumbering::ThreadByThread,
    })
}

/// A host without VMs whose scheduler has slices of 4 ms.
fn model(machine: SimMachine, kernel: SchedKernel) -> SimModel {
    let policy = SchedPolicy {
        latency_ns: 8_000_000,
        min_granularity_ns: 2_000_000,
        wakeup_granularity_ns: 4_000_000,
        ..SchedPolicy::defaults(kernel, machine.len())
    };
    SimModel {
        machine,
        policy,
        gang_ns: None,
        kvm: SimKvm::defaults(kernel),
        costs: CostModel::medians(),
        mechanisms: Mechanisms::default(),
        vms: Vec::new(),
        groups: Vec::new(),
        host_tasks: Vec::new(),
        meters: vec!["ops".to_owned()],
        warmup_ns: 100_000_000,
        duration_ns: 1_000_000_000,
        seed: 1,
        start: SimStart::Random,
        map_from_ns: None,
    }
}

/// A VM whose vCPU n is pinned to pCPU n of `pcpus`, with one task on each.
fn vm(name: &str, pcpus: &[u32], locks: u32, program: &[Op]) -> SimVm {
    let vcpus = pcpus.len() as u32;
    SimVm {
        name: name.to_owned(),
        machine: SimMachine::flat(vcpus),
        policy: SchedPolicy::defaults(SchedKernel::V5, vcpus as usize),
        pins: pcpus.iter().map(|pcpu| vec![*pcpu]).collect(),
        weight: 1024,
        group: None,
        idle_poll_ns: 0,
        idle: IdleRules::defaults(SchedKernel::V5),
        metal: false,
        memory_nodes: Vec::new(),
        tasks: (0..vcpus)
            .map(|vcpu| GuestTask {
                name: format!("task {vcpu}"),
                program: program.to_vec(),
                pin: Some(vcpu),
                weight: 1024,
            })
            .collect(),
        locks: (0..locks)
            .map(|lock| GuestLock {
                name: format!("lock {lock}"),
                kind: LockKind::Fair,
                keeps_off: LockProtection::Nothing,
            })
            .collect(),
        barriers: Vec::new(),
        channels: Vec::new(),
    }
}

fn spin_lock(work_ns: u64, hold_ns: u64) -> Vec<Op> {
    vec![
        Op::Work(Duration::Exponential(work_ns), WorkClass::KERNEL),
        Op::Lock(0),
        Op::Work(Duration::Exponential(hold_ns), WorkClass::KERNEL),
        Op::Unlock(0),
        Op::Done(0),
    ]
}

/// The rate of the only meter, 1/s.
fn rate(model: &SimModel) -> f64 {
    run(model, || true).expect("it goes on").meters[0].per_s
}

fn near(found: f64, expected: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < 0.01, "{what}: {found}, expected {expected}");
}

/// A host that costs nothing beside what the guests do.
fn free(machine: SimMachine, kernel: SchedKernel) -> SimModel {
    let mut model = model(machine, kernel);
    model.costs =
        CostModel::from_each(|prior| if prior.name.ends_with("factor") { 1.0 } else { 0.0 });
    model.kvm.ple = false;
    model.mechanisms.smt = false;
    model
}

/// Critical sections a second of `n` tasks that work and then hold one fair lock,
/// both exponential: the machine-repairman queue, M/M/1//N (Kleinrock, Queueing
/// Systems I, 3.8).
fn repairman(n: u32, work_ns: u64, hold_ns: u64) -> f64 {
    let ratio = hold_ns as f64 / work_ns as f64;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 0..n {
        term *= f64::from(n - k) * ratio;
        sum += term;
    }
    (1.0 - 1.0 / sum) / (hold_ns as f64 / 1e9)
}

#[test]
fn a_lock_is_a_queue_of_customers() {
    for (vcpus, work, hold) in [(4u32, 45_000, 5_000), (10, 45_000, 5_000), (20, 45_000, 2_000)] {
        let mut model = free(host(1, vcpus, 1), SchedKernel::V5);
        model.duration_ns = 8_000_000_000;
        let pcpus: Vec<u32> = (0..vcpus).collect();
        model.vms = vec![vm("vm", &pcpus, 1, &spin_lock(work, hold))];
        near(rate(&model), repairman(vcpus, work, hold), &format!("{vcpus} vCPUs"));
    }
}

/// Steps between barriers last as long as the slowest: for exponential work the
/// mean times the harmonic number.
#[test]
fn a_barrier_waits_for_the_slowest() {
    for vcpus in [2u32, 8, 20] {
        let mut model = free(host(1, vcpus, 1), SchedKernel::V5);
        model.duration_ns = 20_000_000_000;
        let pcpus: Vec<u32> = (0..vcpus).collect();
        let step = Op::Work(Duration::Exponential(400_000), WorkClass::COMPUTE);
        let mut guest = vm("vm", &pcpus, 0, &[step, Op::Barrier(0), Op::Done(0)]);
        let name = "barrier".to_owned();
        guest.barriers = vec![Barrier { name, parties: vcpus, spin_ns: u64::MAX }];
        model.vms = vec![guest];
        let harmonic: f64 = (1..=vcpus).map(|k| 1.0 / f64::from(k)).sum();
        let expected = f64::from(vcpus) * 1e9 / (400_000.0 * harmonic);
        near(rate(&model), expected, &format!("{vcpus} vCPUs"));
    }
}

/// With aligned turns and no help, a fair lock lets n/2 critical sections through
/// in a turn of each of two VMs: whoever is next in line does not run. What gangs
/// reach is then (C + H) / turn times that.
#[test]
fn without_help_a_fair_lock_passes_half_of_its_waiters_a_turn() {
    let mut model = free(host(1, 20, 1), SchedKernel::V3_6);
    model.duration_ns = 20_000_000_000;
    let pcpus: Vec<u32> = (0..20).collect();
    for name in ["a", "b"] {
        model.vms.push(vm(name, &pcpus, 1, &spin_lock(45_000, 1_000)));
    }
    let gang =
        rate(&SimModel { gang_ns: Some(4_000_000), duration_ns: 1_000_000_000, ..model.clone() });
    near(gang, repairman(20, 45_000, 1_000), "gangs");
    // check_preempt_tick ends a turn of 4 ms at the fifth tick of 1 ms.
    near(rate(&model), 20.0 / 5e-3, "n/2 a VM and turn");
}

/// Weights share a pCPU, whatever the kernel.
#[test]
fn weights_share_a_pcpu() {
    for (kernel, _) in SchedKernel::ALL {
        let mut model = free(host(1, 2, 1), kernel);
        model.duration_ns = 10_000_000_000;
        let work = [Op::Work(Duration::Constant(100_000), WorkClass::COMPUTE), Op::Done(0)];
        for (name, weight) in [("light", 1024), ("heavy", 2048)] {
            model.vms.push(SimVm { weight, ..vm(name, &[0, 1], 0, &work) });
        }
        let outcome = run(&model, || true).unwrap();
        let ran = |vm: usize| outcome.vms[vm].ran_ns as f64;
        near(ran(1) / ran(0), 2.0, kernel.name());
    }
}

/// VMs in control groups with these shares, each with so many busy vCPUs on two pCPUs.
fn grouped(kernel: SchedKernel, groups: &[(SimGroup, u32)]) -> SimModel {
    let mut model = free(host(1, 2, 1), kernel);
    model.warmup_ns = 0;
    let work = [Op::Work(Duration::Constant(100_000), WorkClass::COMPUTE), Op::Done(0)];
    for (index, (group, vcpus)) in groups.iter().enumerate() {
        let pins: Vec<u32> = (0..*vcpus).map(|vcpu| vcpu % 2).collect();
        let group_of = Some(index as u16);
        model.vms.push(SimVm { group: group_of, ..vm(&format!("vm {index}"), &pins, 0, &work) });
        model.groups.push(*group);
    }
    model
}

/// `calc_group_shares`: groups share by their weights, however many threads they have,
/// within a percent; and beside a thread of the root.
#[test]
fn groups_share_by_their_weights() {
    for (kernel, name) in SchedKernel::ALL {
        let group = |shares| SimGroup { shares, quota: None };
        let mut model = grouped(kernel, &[(group(1024), 6), (group(3072), 2)]);
        model.warmup_ns = 100_000_000;
        model.duration_ns = 10_000_000_000;
        let outcome = run(&model, || true).unwrap();
        let ran = |vm: usize| outcome.vms[vm].ran_ns as f64;
        near(ran(1) / ran(0), 3.0, name);
        near(ran(0) + ran(1), 2e10, name);
        // 512 and 1536 on each pCPU beside a thread of 2048.
        let task = |pcpu| HostTask {
            name: "busy".to_owned(),
            pins: vec![pcpu],
            weight: 2048,
            group: None,
            burst: None,
        };
        model.host_tasks = vec![task(0), task(1)];
        let outcome = run(&model, || true).unwrap();
        near(outcome.time.host_tasks as f64, 1e10, name);
        near(outcome.vms[1].ran_ns as f64, 0.375 * 2e10, name);
    }
}

/// A stream beside a stream of the same core has the one factor, beside one that computes
/// the other.
#[test]
fn a_stream_is_slowed_by_what_its_sibling_does() {
    let work = |stream| {
        let class = WorkClass { stream, ..WorkClass::COMPUTE };
        vec![Op::Work(Duration::Constant(10_000), class), Op::Done(0)]
    };
    for (beside, factor) in [(true, 0.5), (false, 0.75)] {
        let mut model = free(host(1, 1, 2), SchedKernel::V5);
        model.mechanisms.smt = true;
        model.costs.smt_stream_factor = 0.5;
        model.costs.smt_compute_factor = 0.75;
        model.vms = vec![vm("one", &[0], 0, &work(true)), vm("other", &[1], 0, &work(beside))];
        let outcome = run(&model, || true).unwrap();
        let expected = 2.0 * factor * 1e5;
        near(outcome.meters[0].per_s, expected, if beside { "stream" } else { "compute" });
    }
}

/// vCPUs whose guest has nothing for them sleep in HLT from the beginning: who is placed
/// after them does not count them (`sched_balance_find_dst_group_cpu`).
#[test]
fn sleeping_vcpus_do_not_count_where_threads_are_placed() {
    let mut model = free(host(1, 2, 1), SchedKernel::V5);
    let steps = [Op::Work(Duration::Constant(10_000), WorkClass::COMPUTE), Op::Done(0)];
    let mut idle = vm("vm", &[0, 1, 1], 0, &steps);
    idle.tasks.truncate(1);
    model.vms = vec![idle];
    model.host_tasks = vec![HostTask {
        name: "busy".to_owned(),
        pins: Vec::new(),
        weight: 1024,
        group: None,
        burst: None,
    }];
    near(rate(&model), 1e5, "its vCPU has the pCPU alone");
}

/// `cpu.max` bounds what a group runs in a period, on all pCPUs, within one slice.
#[test]
fn a_quota_bounds_what_a_group_runs() {
    for (kernel, name) in SchedKernel::ALL {
        for quota_ms in [5u64, 30, 50, 120] {
            let quota = CfsBandwidth { quota_ns: quota_ms * 1_000_000, period_ns: 100_000_000 };
            let limited = SimGroup { shares: 1024, quota: Some(quota) };
            let free = SimGroup { shares: 1024, quota: None };
            for others in [0, 4] {
                let mut model = grouped(kernel, &[(limited, 3), (free, others)]);
                model.duration_ns = 2_000_000_000;
                let outcome = run(&model, || true).unwrap();
                let (ran, most) = (outcome.vms[0].ran_ns, 20 * quota.quota_ns);
                let slice = model.policy.bandwidth_slice_ns;
                assert!(ran <= most + slice, "{name} {quota_ms} {others}: {ran}");
                if others == 0 {
                    assert!(outcome.counters.throttles > 0, "{name} {quota_ms}");
                    // What a pCPU took and did not use may expire with the period.
                    assert!(ran + 20 * slice >= most, "{name} {quota_ms}: {ran}");
                    if !model.policy.bandwidth_expires {
                        assert!(ran + slice >= most, "{name} {quota_ms}: {ran}");
                    }
                }
            }
        }
    }
}

/// Who wakes for next to nothing on each of seven other pCPUs takes 5 ms of the quota there and
/// gives 4 ms back (`return_cfs_rq_runtime`): the rest expires, or is there for the next time.
#[test]
fn what_pcpus_keep_of_a_quota_expires_in_some_versions() {
    let ran = |release: &str, others: u32| {
        let policy = SchedPolicy::defaults(KernelRelease::parse(release).unwrap(), 8);
        let quota = CfsBandwidth { quota_ns: 10_000_000, period_ns: 100_000_000 };
        let mut model = free(host(1, 8, 1), policy.kernel);
        model.policy = policy;
        model.kvm.halt_poll_ns = 0;
        model.groups = vec![SimGroup { shares: 1024, quota: Some(quota) }];
        (model.warmup_ns, model.duration_ns) = (0, 5_000_000_000);
        let mut guest = vm("vm", &[0, 1, 2, 3, 4, 5, 6, 7], 0, &[]);
        guest.group = Some(0);
        let work = |ns| Op::Work(Duration::Constant(ns), WorkClass::COMPUTE);
        for (at, task) in guest.tasks.iter_mut().enumerate() {
            task.program = match at {
                0 => vec![work(100_000), Op::Done(0)],
                _ => vec![Op::Sleep(Duration::Constant(10_000_000)), work(100)],
            };
        }
        guest.tasks.truncate(1 + others as usize);
        model.vms = vec![guest];
        run(&model, || true).unwrap().meters[0].done as f64 / 5_000.0
    };
    for release in ["4.14", "5.3", "5.4"] {
        near(ran(release, 0), 1.0, release);
    }
    // Nothing is lost but what they keep once.
    for release in ["4.14", "5.4", "6.12"] {
        let left = ran(release, 7);
        assert!((0.97..1.0).contains(&left), "{release}: {left}");
    }
    let left = ran("5.3", 7);
    assert!((0.3..0.95).contains(&left), "{left}");
    let expires = |release: &str| {
        SchedPolicy::defaults(KernelRelease::parse(release).unwrap(), 8).bandwidth_expires
    };
    assert_eq!(
        ["3.6", "3.13", "3.16", "4.17", "4.18", "5.3"].map(expires),
        [true, true, false, false, true, true]
    );
}

/// By hand: 8 ms of 50, in slices of 5 and 3 ms (`assign_cfs_rq_runtime`). The tick at
/// 8 ms finds nothing left and the pool empty: `throttle_cfs_rq`. The timer at 50 ms fills
/// the pool, pays the debt of 0 with 1 ns, and the group comes back
/// (`unthrottle_cfs_rq`); it then takes 5 ms less that, and 3.
#[test]
fn a_group_is_throttled_and_comes_back() {
    for (kernel, name) in SchedKernel::ALL {
        let quota = CfsBandwidth { quota_ns: 8_000_000, period_ns: 50_000_000 };
        let mut model = grouped(kernel, &[(SimGroup { shares: 1024, quota: Some(quota) }, 1)]);
        model.duration_ns = 120_000_000;
        model.map_from_ns = Some(0);
        let outcome = run(&model, || true).unwrap();
        let ran: Vec<(u64, u64)> = outcome
            .map
            .iter()
            .filter_map(|segment| match segment {
                TraceSegment::Ran { from_ns, to_ns, .. } => Some((*from_ns, *to_ns)),
                _ => None,
            })
            .collect();
        let ms = |from: u64, to: u64| (from * 1_000_000, to * 1_000_000);
        assert_eq!(ran, [ms(0, 8), ms(50, 58), ms(100, 108)], "{name}");
        assert_eq!(outcome.counters.throttles, 3);
    }
}

fn storm(ple: bool) -> SimModel {
    let mut model = model(host(1, 10, 2), SchedKernel::V3_6);
    let pcpus: Vec<u32> = (0..20).collect();
    for name in ["a", "b"] {
        model.vms.push(vm(name, &pcpus, 1, &spin_lock(45_000, 1_000)));
    }
    model.kvm.ple = ple;
    model.duration_ns = 100_000_000;
    model
}

#[test]
fn a_seed_is_an_outcome() {
    let outcome =
        |seed| run(&SimModel { seed, map_from_ns: Some(0), ..storm(true) }, || true).unwrap();
    let first = outcome(1);
    assert_eq!(first, outcome(1));
    assert_ne!(first.meters, outcome(2).meters);
    // The same on every machine: whole numbers, and libm's logarithms.
    let said = format!("{} {:?}", first.meters[0].done, first.counters);
    expect_test::expect!["10537 EventCounts { pause_exits: 76127, yields_tried: 109375, yields_done: 75827, halt_exits: 0, polls_hit: 0, ipis: 0, host_switches: 133035, host_migrations: 0, guest_switches: 0, guest_migrations: 0, throttles: 0, waited_ns: 2000000000 }"].assert_eq(&said);
}

#[test]
fn pause_exits_help_and_gangs_need_none() {
    let off = rate(&storm(false));
    let on = rate(&storm(true));
    let gang = rate(&SimModel { gang_ns: Some(4_000_000), ..storm(false) });
    assert!(10.0 * off < on && on < gang, "{off} {on} {gang}");
}

/// All time is accounted, once.
#[test]
fn time_is_conserved() {
    for (kernel, _) in SchedKernel::ALL {
        let model = SimModel { policy: SchedPolicy::defaults(kernel, 20), ..storm(true) };
        let outcome = run(&model, || true).unwrap();
        assert_eq!(outcome.time.total(), 20 * model.duration_ns, "{kernel:?}");
    }
}

#[test]
fn a_deadlock_is_named() {
    let mut model = model(host(1, 2, 1), SchedKernel::V5);
    let work = Op::Work(Duration::Constant(10_000), WorkClass::KERNEL);
    let mut guest = vm("vm", &[0, 1], 2, &[]);
    for (task, order) in [[0, 1], [1, 0]].into_iter().enumerate() {
        let [first, second] = order;
        guest.tasks[task].program =
            vec![Op::Lock(first), work, Op::Lock(second), Op::Unlock(second), Op::Unlock(first)];
    }
    model.vms = vec![guest];
    let stuck = run(&model, || true).unwrap_err().expect("a deadlock");
    expect_test::expect![[r#"The guest "vm" can't go on after 40003800 ns: task 0 waits for the lock "lock 1", which task 1 holds; task 1 waits for the lock "lock 0", which task 0 holds"#]].assert_eq(&stuck.to_string());
    // A lock that is never given back.
    model.vms[0].tasks[1].program = vec![work, Op::Lock(0), Op::Unlock(0)];
    model.vms[0].tasks[0].program = vec![Op::Lock(0), work];
    let stuck = run(&model, || true).unwrap_err().expect("a deadlock");
    expect_test::expect![[r#"The guest "vm" can't go on after 40003800 ns: task 0 waits for the lock "lock 0", which it holds itself; task 1 waits for the lock "lock 0", which task 0 holds"#]].assert_eq(&stuck.to_string());
    // Steps without time.
    model.vms[0].tasks[0].program = vec![Op::Done(0)];
    let stuck = run(&model, || true).unwrap_err().expect("an endless program");
    expect_test::expect![[
        r#"The guest "vm" can't go on after 5400 ns: task 0 repeats steps that take no time"#
    ]]
    .assert_eq(&stuck.to_string());
}

/// Times beyond all clocks neither wrap nor go back.
#[test]
fn a_load_may_run_and_sleep_for_ages() {
    let mut model = model(host(1, 2, 1), SchedKernel::V6_12);
    let ages = Duration::Lognormal(600_000_000_000_000, 5.0);
    let soon = Duration::Constant(1_000);
    for (index, burst) in [(soon, ages), (ages, soon)].into_iter().enumerate() {
        let name = format!("load {index}");
        let task =
            HostTask { name, pins: Vec::new(), weight: 1024, group: None, burst: Some(burst) };
        model.host_tasks.extend(vec![task; 100]);
    }
    let outcome = run(&model, || true).unwrap();
    assert_eq!(outcome.time.total(), 2 * model.duration_ns);
    assert!(outcome.time.host_tasks > model.duration_ns);
}

/// Whoever wants to end it is asked also where the clock hardly moves.
#[test]
fn a_run_of_tiny_steps_ends_when_asked() {
    let mut model = model(host(1, 1, 1), SchedKernel::V6_12);
    let tiny = Duration::Constant(1);
    let task = HostTask {
        name: "load".into(),
        pins: vec![0],
        weight: 1024,
        group: None,
        burst: Some((tiny, tiny)),
    };
    model.host_tasks = vec![task];
    model.costs = CostModel::from_each(|_| 0.0);
    let mut asked = 0;
    let found = run(&model, || {
        asked += 1;
        asked < 3
    });
    assert_eq!(found, Err(None));
}

#[test]
fn a_run_ends_when_asked() {
    assert_eq!(run(&storm(true), || false), Err(None));
}

/// A producer and a consumer, each on its vCPU: HLT and IPIs cost, and polling
/// instead of halting saves them.
#[test]
fn idle_polling_saves_halts() {
    let mut model = model(host(1, 4, 1), SchedKernel::V3_13);
    let mut guest = vm("vm", &[0, 1], 0, &[]);
    guest.channels = vec![
        SimChannel { name: "items".to_owned(), initial: 0, capacity: u64::MAX },
        SimChannel { name: "room".to_owned(), initial: 1, capacity: u64::MAX },
    ];
    let work = |ns| Op::Work(Duration::Constant(ns), WorkClass::COMPUTE);
    guest.tasks[0].program = vec![Op::Receive(1), work(9_000), Op::Send(0), Op::Done(0)];
    guest.tasks[1].program = vec![Op::Receive(0), work(1_000), Op::Send(1)];
    model.vms = vec![guest];
    let halting = run(&model, || true).unwrap();
    model.vms[0].idle_poll_ns = 200_000;
    let polling = run(&model, || true).unwrap();
    assert!(halting.counters.halt_exits > halting.meters[0].done / 2);
    assert_eq!(polling.counters.halt_exits, 0);
    assert!(polling.meters[0].per_s > 1.5 * halting.meters[0].per_s);
    model.vms[0].metal = true;
    model.vms[0].idle_poll_ns = 0;
    let metal = run(&model, || true).unwrap();
    assert_eq!(metal.counters.halt_exits, 0);
    assert!(metal.meters[0].per_s > halting.meters[0].per_s);
}

/// Two tasks on four vCPUs of two cores: a guest that knows its threads spreads
/// them over cores, one that believes in the wrong ones puts them on one.
#[test]
fn guests_spread_over_the_cores_that_they_see() {
    let threads = UniformMachine {
        sockets: 1,
        dies: 1,
        cores: 2,
        threads: 2,
        numbering: PcpuNumbering::CoreByCore,
    };
    let mut model = model(host(1, 8, 2), SchedKernel::V5);
    model.costs = CostModel::medians();
    let work = [Op::Work(Duration::Constant(100_000), WorkClass::COMPUTE), Op::Done(0)];
    let pins = |pins: [u32; 4]| {
        let mut guest = vm("vm", &pins, 0, &work);
        guest.machine = SimMachine::of_shape(threads);
        guest.tasks.truncate(2);
        for task in &mut guest.tasks {
            task.pin = None;
        }
        SimModel { vms: vec![guest], duration_ns: 50_000_000, ..model.clone() }
    };
    let [right, wrong] = [pins([1, 9, 2, 10]), pins([1, 2, 9, 10])];
    let alone = 2.0 * 1e9 / 100_000.0;
    let shared = (1..=12)
        .filter(|seed| {
            // Ticks, and idle vCPUs that are woken to balance, take a little.
            let found = rate(&SimModel { seed: *seed, ..right.clone() }) / alone;
            assert!((0.98..1.0).contains(&found), "matching threads: {found}");
            let found = rate(&SimModel { seed: *seed, ..wrong.clone() }) / alone;
            let slowed = found < 0.8;
            let expected = if slowed { 0.62 } else { 1.0 };
            assert!((0.98..1.0).contains(&(found / expected)), "other threads: {found}");
            slowed
        })
        .count();
    assert!(shared > 2, "{shared}");
}

use proptest::prelude::*;

/// A host, its guests and what they do, as the property test draws them.
#[derive(Debug, Clone)]
struct RandomHost {
    cores: u32,
    threads: u32,
    kernel: SchedKernel,
    vms: usize,
    vcpus: u32,
    pinned: bool,
    ple: bool,
    poll: u64,
    kind: u32,
    seed: u64,
}

impl RandomHost {
    fn model(&self) -> SimModel {
        let Self { cores, threads, vcpus, seed, .. } = *self;
        let mut model = model(host(1, cores, threads), self.kernel);
        model.seed = seed;
        model.kvm.ple = self.ple;
        model.warmup_ns = 0;
        model.duration_ns = 60_000_000;
        let work = |ns| Op::Work(Duration::Exponential(ns), WorkClass::KERNEL);
        let spin_ns = if seed % 2 == 0 { u64::MAX } else { 5_000 };
        for at in 0..self.vms {
            let own: Vec<u32> = (0..vcpus).map(|vcpu| vcpu % (cores * threads)).collect();
            let sleep = Op::Sleep(Duration::Exponential(300_000));
            let program = match self.kind {
                0 => spin_lock(30_000, 3_000),
                1 => vec![work(40_000), Op::Barrier(0), Op::Done(0)],
                2 => vec![work(5_000), Op::Send(0), work(5_000), Op::Receive(0), Op::Done(0)],
                3 => vec![work(50_000), Op::Flush, Op::Done(0)],
                4 => vec![sleep, Op::Begin, work(40_000), Op::Done(0)],
                5 => {
                    let repeat = Op::Repeat(RepeatSteps { steps: 3, times: 5, depth: 0 });
                    let flush = [Op::Lock(2), work(2_000), Op::Unlock(2), repeat, Op::Flush];
                    let under = [Op::Lock(1), work(1_000), Op::Unlock(1), Op::Done(0)];
                    flush.into_iter().chain(under).collect()
                }
                _ => vec![work(20_000), Op::Lock(1), work(4_000), Op::Unlock(1), Op::Done(0)],
            };
            let mut guest = vm(&format!("vm {at}"), &own, 1, &program);
            let kind = match seed % 4 {
                0 => LockKind::Sleeping,
                1 => LockKind::Unfair,
                2 => LockKind::Paravirtual { spin_ns: 4_000, rules: PvLockRules::TICKET },
                _ => {
                    let early =
                        if seed % 8 == 3 { EarlyHalt::Halted } else { EarlyHalt::Preempted };
                    let rules = PvLockRules { steals: seed % 5 != 0, early };
                    LockKind::Paravirtual { spin_ns: 4_000, rules }
                }
            };
            let keeps_off = match seed % 11 {
                _ if kind == LockKind::Sleeping => LockProtection::Nothing,
                0..5 => LockProtection::Interrupts,
                5..8 => LockProtection::Preemption,
                _ => LockProtection::Nothing,
            };
            guest.locks.push(GuestLock { name: "second".to_owned(), kind, keeps_off });
            let (kind, keeps_off) = (LockKind::Shared, LockProtection::Nothing);
            guest.locks.push(GuestLock { name: "third".to_owned(), kind, keeps_off });
            let name = "barrier".to_owned();
            guest.barriers = vec![Barrier { name, parties: vcpus, spin_ns }];
            let name = "pipe".to_owned();
            guest.channels = vec![SimChannel { name, initial: 0, capacity: 1 + seed % 3 }];
            guest.idle_poll_ns = self.poll;
            // The guest's rules need not be the host's.
            let (kernel, _) = SchedKernel::ALL[(seed / 16 % 5) as usize];
            guest.policy = SchedPolicy::defaults(kernel, vcpus as usize);
            if seed % 3 == 0 && vcpus % 2 == 0 {
                let (cores, numbering) = (vcpus / 2, PcpuNumbering::CoreByCore);
                let shape = UniformMachine { sockets: 1, dies: 1, cores, threads: 2, numbering };
                guest.machine = SimMachine::of_shape(shape);
            }
            if !self.pinned {
                guest.pins.clear();
                for task in &mut guest.tasks {
                    task.pin = None;
                }
            }
            if seed % 7 == 3 {
                let quota = CfsBandwidth { quota_ns: 4_000_000, period_ns: 10_000_000 };
                guest.group = Some(at as u16);
                let shares = 512 << at;
                model.groups.push(SimGroup { shares, quota: (at == 0).then_some(quota) });
            }
            model.vms.push(guest);
        }
        model
    }
}

impl EngineState<'_> {
    /// Plays on until `until` holds.
    fn play_until(&mut self, mut until: impl FnMut(&Self) -> bool) {
        while !until(self) {
            let (time, due) = self.queue.pop(self.now + 1_000_000_000).expect("it happens");
            self.now = time;
            match due {
                crate::queue::DueEvent::Slot(pcpu) => self.phase_ends(pcpu),
                crate::queue::DueEvent::Event(event) => self.happens(event),
            }
        }
    }
}

/// Four vCPUs on three pCPUs meet at a barrier for which they spin for ever.
fn crowded_barrier(kernel: SchedKernel) -> RandomHost {
    RandomHost {
        cores: 3,
        threads: 1,
        kernel,
        vms: 1,
        vcpus: 4,
        pinned: true,
        ple: true,
        poll: 0,
        kind: 1,
        seed: 14_529_800_329_747_979_920,
    }
}

/// yield_to() calls schedule() within kvm_vcpu_on_spin(): who gave its pCPU away counts as
/// one that spins (`in_spin_loop`) until it runs again.
#[test]
fn who_yields_counts_as_spinning_until_it_runs_again() {
    let model = crowded_barrier(SchedKernel::V3_13).model();
    let mut world = EngineState::new(&model);
    world.begin();
    // vCPUs 0 and 3 share pCPU 0.
    let gave_way = |world: &EngineState<'_>, vcpu: usize| {
        let state = &world.vcpus[vcpu];
        let waits = world.threads[state.thread as usize].state == state::ThreadState::Ready;
        waits && state.in_spin_loop
    };
    world.play_until(|world| gave_way(world, 0) || gave_way(world, 3));
    let who = if gave_way(&world, 0) { 0 } else { 3 };
    assert!(world.account.counters.yields_done > 0);
    // kvm_vcpu_eligible_for_directed_yield: every other time.
    let seen: Vec<bool> = (0..4).map(|_| world.is_candidate(who)).collect();
    assert_eq!(seen, [false, true, false, true]);
    world.play_until(|world| world.vcpus[who as usize].in_guest);
    let state = &world.vcpus[who as usize];
    assert_eq!((state.in_spin_loop, state.dy_eligible), (false, false));
}

/// `vcpu->preempted` (kvm_sched_out, 3.10 to 5.2) is not set for one that was woken, and
/// `vcpu->ready` (kvm_vcpu_wake_up, since 5.3) is.
#[test]
fn who_was_woken_is_helped_since_5_3() {
    let mut model = crowded_barrier(SchedKernel::V3_13).model();
    for on_spin in [SchedKernel::V3_13, SchedKernel::V5].map(DirectedYieldRule::defaults) {
        model.kvm.on_spin = on_spin;
        let mut world = EngineState::new(&model);
        world.begin();
        let thread = world.vcpus[3].thread;
        // It waits behind vCPU 0 and was never woken: as if preempted.
        assert!(world.is_candidate(3));
        world.threads[thread as usize].woken = true;
        assert_eq!(world.is_candidate(3), !on_spin.skip_woken);
    }
}

/// grow_ple_window() at every pause exit; only a thread that is switched to passes
/// kvm_sched_in() and shrink_ple_window(), not one that schedule() chooses again.
#[test]
fn a_window_grows_while_nobody_else_runs() {
    let model = crowded_barrier(SchedKernel::V5).model();
    let mut world = EngineState::new(&model);
    world.begin();
    // pCPU 1 has vCPU 1 alone.
    let start = model.kvm.ple_window_ns;
    let mut windows = vec![start];
    while windows.len() < 8 {
        let last = *windows.last().unwrap();
        world.play_until(|world| world.vcpus[1].ple_window != last);
        windows.push(world.vcpus[1].ple_window);
    }
    let doubled: Vec<u64> = (0..8).map(|exits| start << exits).collect();
    assert_eq!(windows, doubled);
}

/// Whoever is waited for gets a pCPU sooner with pause exits than by its turn.
#[test]
fn pause_exits_find_who_was_preempted() {
    for kernel in [SchedKernel::V3_13, SchedKernel::V5, SchedKernel::V6_12] {
        for pinned in [false, true] {
            let drawn = RandomHost { pinned, ..crowded_barrier(kernel) };
            let done = |ple| {
                let model = RandomHost { ple, ..drawn.clone() }.model();
                run(&model, || true).unwrap().meters[0].done
            };
            let (on, off) = (done(true), done(false));
            assert!(on > 2 * off, "{kernel:?} {pinned} {on} {off}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the host, the guests and the kernel: all time is accounted, no
    /// task is forgotten (it would be found stuck), and nothing is done twice.
    #[test]
    fn random_hosts_conserve_time_and_wake_everybody(
        (cores, threads) in (1u32..5, 1u32..3),
        kernel in 0usize..5,
        vms in 1usize..4,
        vcpus in 1u32..5,
        pinned in any::<bool>(),
        ple in any::<bool>(),
        poll in prop::sample::select(vec![0u64, 20_000, u64::MAX]),
        kind in 0u32..7,
        seed in any::<u64>(),
    ) {
        let kernel = SchedKernel::ALL[kernel].0;
        let drawn =
            RandomHost { cores, threads, kernel, vms, vcpus, pinned, ple, poll, kind, seed };
        let model = drawn.model();
        let outcome = run(&model, || true);
        let outcome = outcome.map_err(|stuck| TestCaseError::fail(format!("{stuck:?}")))?;
        let pcpus = cores * threads;
        prop_assert_eq!(outcome.time.total(), u64::from(pcpus) * model.duration_ns);
        let overcommitted = vms as u32 * vcpus > pcpus;
        // Who is waited for may take its time where others spin (3.6 undoes one yield with the
        // next; of a quota less than a slice, spinners may use all first), but it does run.
        if outcome.meters[0].done == 0 && overcommitted {
            let longer = SimModel { duration_ns: 5_000_000_000, ..model };
            let outcome = run(&longer, || true).expect("it goes on");
            prop_assert!(outcome.meters[0].done > 0, "{:?}", outcome);
            return Ok(());
        }
        prop_assert!(outcome.meters[0].done > 0, "{:?}", outcome);
        for vm in &outcome.vms {
            prop_assert!(vm.done[0] > 0 || overcommitted, "{:?}", outcome);
        }
    }
}
