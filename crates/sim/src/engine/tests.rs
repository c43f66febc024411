//! Closed forms, determinism, conservation, deadlocks.

mod balance;
mod calls;
mod groups;
mod guest;
mod idle;
mod locks;
mod map;
mod pause;

use super::state::{self, EngineState, InterruptVector};
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
        repeats_call_ipis: false,
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
    expect_test::expect!["10396 EventCounts { pause_exits: 76075, yields_tried: 112223, yields_done: 75825, halt_exits: 0, polls_hit: 0, ipis: 0, host_switches: 129362, host_migrations: 0, guest_switches: 0, guest_migrations: 0, throttles: 0, waited_ns: 2000000000 }"].assert_eq(&said);
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
                    let rules = PvLockRules { steals: seed % 5 != 0, unfair: seed % 5 > 2, early };
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
