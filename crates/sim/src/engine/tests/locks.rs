//! What guests' locks keep off, who has them next, and what sharing them costs.

use super::*;

fn pinned(name: &str, vcpu: u32, program: Vec<Op>) -> GuestTask {
    GuestTask { name: name.to_owned(), program, pin: Some(vcpu), weight: 1024 }
}

fn us(us: u64) -> Op {
    Op::Work(Duration::Constant(us * 1_000), WorkClass::KERNEL)
}

fn guest_lock(kind: LockKind, keeps_off: LockProtection) -> GuestLock {
    GuestLock { name: "lock".to_owned(), kind, keeps_off }
}

/// Steps within others that repeat are done as often as both say, and again in each round of
/// the program, wherever it wraps.
#[test]
fn steps_repeat() {
    let mut model = free(host(1, 1, 1), SchedKernel::V5);
    (model.warmup_ns, model.duration_ns) = (0, 100_000_000);
    let repeat = |steps, times, depth| Op::Repeat(RepeatSteps { steps, times, depth });
    let mut guest = vm("vm", &[0], 0, &[]);
    // 3 * (10 + 2 * 5) + 40 = 100 us; at the end of the program, and in its middle.
    let middle =
        vec![us(10), us(5), repeat(1, 2, 1), Op::Done(1), repeat(4, 3, 0), us(40), Op::Done(0)];
    let end =
        vec![us(40), Op::Done(0), us(10), us(5), repeat(1, 2, 1), Op::Done(1), repeat(4, 3, 0)];
    model.meters.push("inner".to_owned());
    for program in [middle, end] {
        guest.tasks = vec![pinned("task", 0, program)];
        model.vms = vec![guest.clone()];
        let outcome = run(&model, || true).unwrap();
        assert!((999..=1_000).contains(&outcome.meters[0].done), "{:?}", outcome.meters);
        assert!((2_998..=3_000).contains(&outcome.meters[1].done), "{:?}", outcome.meters);
    }
}

/// spin_lock_irqsave: who holds such a lock, or waits for it, answers no interrupt; one of
/// spin_lock lets them in.
#[test]
fn who_keeps_interrupts_off_answers_no_flush() {
    let slowest = |keeps_off, waits: bool| {
        let mut model = free(host(1, 3, 1), SchedKernel::V5);
        model.kvm.pv_tlb_flush = false;
        let mut guest = vm("vm", &[0, 1, 2], 0, &[]);
        guest.policy.tick_ns = 1_000_000_000;
        guest.locks = vec![guest_lock(LockKind::Fair, keeps_off)];
        let pause = Op::Work(Duration::Exponential(37_000), WorkClass::KERNEL);
        let holder = vec![us(1), Op::Lock(0), us(100), Op::Unlock(0)];
        let other = if waits { holder.clone() } else { vec![us(1)] };
        guest.tasks = vec![
            pinned("flusher", 0, vec![pause, Op::Begin, Op::Flush, Op::Done(0)]),
            pinned("holder", 1, holder),
            pinned("other", 2, other),
        ];
        model.vms = vec![guest];
        let outcome = run(&model, || true).unwrap();
        assert!(outcome.meters[0].done > 500, "{outcome:?}");
        outcome.meters[0].latency.max_ns
    };
    assert!(slowest(LockProtection::Preemption, true) < 10);
    // Alone the holder keeps it out for what is left of 100 us; the one that waits for the
    // lock keeps it out for that, and then for its own.
    let alone = slowest(LockProtection::Interrupts, false);
    assert!((95_000..=100_010).contains(&alone), "{alone}");
    let waits = slowest(LockProtection::Interrupts, true);
    assert!((195_000..=200_010).contains(&waits), "{waits}");
}

/// preempt_disable: the holder of a spin lock of the kernel keeps its vCPU, that of a lock of
/// user space does not.
#[test]
fn who_holds_a_kernels_lock_is_not_preempted() {
    let switches = |keeps_off| {
        let mut model = free(host(1, 1, 1), SchedKernel::V5);
        let mut guest = vm("vm", &[0], 0, &[]);
        guest.locks = vec![guest_lock(LockKind::Fair, keeps_off)];
        guest.tasks = vec![
            pinned("holder", 0, vec![Op::Lock(0), us(50_000), Op::Unlock(0), us(1)]),
            pinned("other", 0, vec![us(10), Op::Done(0)]),
        ];
        model.vms = vec![guest];
        run(&model, || true).unwrap().counters.guest_switches
    };
    let (kept, shared) = (switches(LockProtection::Preemption), switches(LockProtection::Nothing));
    // One out and one in for each 50 ms held, beside as many of the other; against turns of ms.
    assert!((18..=24).contains(&kept), "{kept}");
    assert!(shared > 100, "{shared}");
}

/// A lock that one vCPU takes nearly all of the time, and two others now and then.
fn rare_takers(spin_ns: u64, rules: PvLockRules, wake_ns: f64) -> SimOutcome {
    let mut model = free(host(1, 3, 1), SchedKernel::V5);
    model.kvm.halt_poll_ns = 0;
    (model.costs.idle_wake_ns, model.costs.idle_wake_short_ns) = (wake_ns, wake_ns);
    let mut guest = vm("vm", &[0, 1, 2], 0, &[]);
    let kind = LockKind::Paravirtual { spin_ns, rules };
    guest.locks = vec![guest_lock(kind, LockProtection::Preemption)];
    let pause = Op::Work(Duration::Exponential(200_000), WorkClass::KERNEL);
    let rare = vec![pause, Op::Lock(0), us(5), Op::Unlock(0)];
    guest.tasks = vec![
        pinned("often", 0, vec![us(1), Op::Lock(0), us(50), Op::Unlock(0), Op::Done(0)]),
        pinned("rare", 1, rare.clone()),
        pinned("too", 2, rare),
    ];
    model.vms = vec![guest];
    run(&model, || true).unwrap()
}

/// pv_hybrid_queued_unfair_trylock: while the next owner wakes up, whoever comes takes the
/// lock; ticket locks leave it idle for so long.
#[test]
fn a_halted_waiters_lock_is_stolen() {
    let done = |steals| {
        let rules = PvLockRules { steals, unfair: false, early: EarlyHalt::Never };
        let outcome = rare_takers(10_000, rules, 1_000_000.0);
        assert!(outcome.counters.halt_exits > 500, "{outcome:?}");
        outcome.meters[0].done
    };
    let (stolen, kept) = (done(true), done(false));
    // 51 us each; against a millisecond idle for each of the others' turns.
    assert!(stolen > 17_000, "{stolen}");
    assert!(kept < 5_000, "{kept}");
}

/// pv_hybrid_queued_unfair_trylock: until the halted head of the queue spins again newcomers spin
/// beside it, and don't halt as they would behind it.
#[test]
fn newcomers_spin_beside_a_queue_whose_head_has_halted() {
    let played = |spin_ns, unfair| {
        let mut model = free(host(1, 4, 1), SchedKernel::V5);
        model.kvm.halt_poll_ns = 0;
        (model.costs.idle_wake_ns, model.costs.idle_wake_short_ns) = (100_000.0, 100_000.0);
        let mut guest = vm("vm", &[0, 1, 2, 3], 0, &[]);
        let rules = PvLockRules { steals: true, unfair, early: EarlyHalt::Halted };
        let kind = LockKind::Paravirtual { spin_ns, rules };
        guest.locks = vec![guest_lock(kind, LockProtection::Preemption)];
        let some = |mean| Op::Work(Duration::Exponential(mean), WorkClass::KERNEL);
        let program = vec![some(40_000), Op::Lock(0), some(20_000), Op::Unlock(0), Op::Done(0)];
        guest.tasks = (0..4).map(|vcpu| pinned("task", vcpu, program.clone())).collect();
        model.vms = vec![guest];
        run(&model, || true).unwrap()
    };
    let (beside, behind) = (played(10_000, true), played(10_000, false));
    let done = |outcome: &SimOutcome| outcome.meters[0].done as f64;
    let halts = |outcome: &SimOutcome| outcome.counters.halt_exits as f64 / done(outcome);
    assert!(done(&beside) > 1.2 * done(&behind), "{beside:?} {behind:?}");
    assert!(halts(&beside) < 0.8 * halts(&behind), "{beside:?} {behind:?}");
    // Where nobody ever halts there is always a head, and the queue is fair.
    let queued = [true, false].map(|unfair| played(100_000_000, unfair));
    assert_eq!(queued[0].meters, queued[1].meters);
}

/// pv_wait_early: who waits behind one that has halted does so itself soon; behind one that
/// has no pCPU where the version looks at that (vcpu_is_preempted, 4.10 to 5.3).
#[test]
fn who_waits_behind_one_that_stopped_halts_early() {
    let rules = |early| PvLockRules { steals: false, unfair: false, early };
    // All spin for 60 us: alone before the holder they need not halt, behind a waiter they do.
    let halts = |early| rare_takers(60_000, rules(early), 20_000.0).counters.halt_exits;
    assert!(halts(EarlyHalt::Halted) >= halts(EarlyHalt::Never));

    // vCPU 1 shares its pCPU with a busy thread, vCPU 2 waits behind it for its turn.
    let played = |early| {
        let mut model = free(host(1, 3, 1), SchedKernel::V5);
        let mut guest = vm("vm", &[0, 1, 2], 0, &[]);
        let kind = LockKind::Paravirtual { spin_ns: 20_000_000, rules: rules(early) };
        guest.locks = vec![guest_lock(kind, LockProtection::Preemption)];
        let program = vec![us(20), Op::Lock(0), us(30), Op::Unlock(0), Op::Done(0)];
        guest.tasks = (0..3).map(|vcpu| pinned("task", vcpu, program.clone())).collect();
        model.vms = vec![guest];
        let hog = HostTask {
            name: "hog".to_owned(),
            pins: vec![1],
            weight: 1024,
            group: None,
            burst: None,
        };
        model.host_tasks = vec![hog];
        run(&model, || true).unwrap()
    };
    let found = [EarlyHalt::Never, EarlyHalt::Halted, EarlyHalt::Preempted].map(played);
    assert_eq!([0, 1].map(|which: usize| found[which].counters.halt_exits), [0, 0]);
    assert!(found[2].counters.halt_exits > 20, "{found:?}");
    // The first round looks: it does not spin until the next one that does.
    assert!(found[2].time.guest_spin < found[1].time.guest_spin / 100, "{found:?}");
}

/// pv_wait_head_or_lock: who becomes the first counts its rounds from the start; ticket locks
/// count them all together.
#[test]
fn the_first_waiter_spins_its_whole_time_anew() {
    let halts = |steals| {
        let mut model = free(host(1, 3, 1), SchedKernel::V5);
        let mut guest = vm("vm", &[0, 1, 2], 0, &[]);
        let rules = PvLockRules { steals, unfair: false, early: EarlyHalt::Never };
        let kind = LockKind::Paravirtual { spin_ns: 50_000, rules };
        guest.locks = vec![guest_lock(kind, LockProtection::Preemption)];
        // Each waits for 40 us behind another, and for 40 as the first.
        let program = vec![us(1), Op::Lock(0), us(40), Op::Unlock(0), Op::Done(0)];
        guest.tasks = (0..3).map(|vcpu| pinned("task", vcpu, program.clone())).collect();
        model.vms = vec![guest];
        run(&model, || true).unwrap().counters.halt_exits
    };
    assert_eq!(halts(true), 0);
    assert!(halts(false) > 1_000);
}

/// kvm_sched_yield at KVM_HC_KICK_CPU: the waiter has its waker's pCPU at once, and else waits
/// for its turn.
#[test]
fn who_wakes_a_waiter_gives_it_its_pcpu() {
    let outcome = |kick_yields| {
        let mut model = free(host(1, 1, 1), SchedKernel::V5);
        model.kvm.kick_yields = kick_yields;
        model.kvm.ple = false;
        model.policy.wakeup_preemption = false;
        let mut guest = vm("vm", &[0, 0], 0, &[]);
        let rules = PvLockRules { steals: false, unfair: false, early: EarlyHalt::Never };
        let kind = LockKind::Paravirtual { spin_ns: 1_000, rules };
        guest.locks = vec![guest_lock(kind, LockProtection::Preemption)];
        let program = |meter| vec![us(20), Op::Lock(0), us(30), Op::Unlock(0), Op::Done(meter)];
        guest.tasks = (0..2).map(|vcpu| pinned("task", vcpu, program(vcpu))).collect();
        model.meters.push("other".to_owned());
        model.vms = vec![guest];
        run(&model, || true).unwrap()
    };
    let (given, kept) = (outcome(true), outcome(false));
    assert_eq!(kept.counters.yields_done, 0);
    // One that halts at the end of the run is still to be woken.
    let [yields, halts] = [given.counters.yields_done, given.counters.halt_exits];
    assert!(halts > 50 && halts - yields <= 1, "{:?}", given.counters);
    // Nothing is lost: each counts as often as the other.
    for outcome in [&given, &kept] {
        let [one, other] = [0, 1].map(|meter| outcome.meters[meter].done as f64);
        assert!((0.9..1.1).contains(&(one / other)), "{outcome:?}");
    }
}

/// kvm_sched_yield at KVM_HC_SCHED_YIELD: who waits for the answer to a flush gives its pCPU to
/// the vCPU that owes it, where CFS lets that one have it (wakeup_preempt_entity: it has not
/// run ahead).
#[test]
fn who_waits_for_an_answer_gives_its_pcpu() {
    let outcome = |pv_sched_yield| {
        let mut model = free(host(1, 1, 1), SchedKernel::V5);
        model.kvm.pv_sched_yield = pv_sched_yield;
        model.kvm.pv_tlb_flush = false;
        model.kvm.ple = false;
        let mut guest = vm("vm", &[0, 0], 0, &[]);
        guest.tasks = vec![
            pinned("flusher", 0, vec![us(100), Op::Flush, Op::Done(0)]),
            pinned("other", 1, vec![us(10)]),
        ];
        model.vms = vec![guest];
        run(&model, || true).unwrap()
    };
    let kept = outcome(false).counters;
    assert_eq!((kept.yields_done, kept.pause_exits), (0, 0));
    let given = outcome(true);
    let (yields, flushes) = (given.counters.yields_done, given.meters[0].done);
    assert!(yields > 50 && yields <= flushes + 1, "{given:?}");
}

/// down_read and up_read of many: nobody waits for another's section, but all for the cache
/// line, twice a section.
#[test]
fn a_shared_lock_moves_its_line() {
    for vcpus in [1u32, 8] {
        let mut model = free(host(1, vcpus, 1), SchedKernel::V5);
        model.costs.lock_transfer_ns = 100.0;
        let pcpus: Vec<u32> = (0..vcpus).collect();
        let program = [Op::Lock(0), us(1), Op::Unlock(0), Op::Done(0)];
        let mut guest = vm("vm", &pcpus, 0, &program);
        guest.locks = vec![guest_lock(LockKind::Shared, LockProtection::Nothing)];
        model.vms = vec![guest];
        // Who has the line already does not wait for it; eight want it more often than it moves.
        let expected = if vcpus == 1 { 1e6 } else { 1.0 / 0.2e-6 };
        near(rate(&model), expected, &format!("{vcpus} vCPUs"));
    }
}

/// rmqueue_pcplist and free_unref_page_commit: a CPU's own list of free pages goes to the zone
/// when it has run empty, or has got `pcp->high` pages, and then moves `pcp->batch`.
#[test]
fn pages_go_to_the_zone_in_batches() {
    let step = |taken, pages| {
        Op::Pages(PageListStep { zone: 0, taken, pages, batch: 31, high: 186, steps: 1 })
    };
    // One vCPU's program a list of groups; how often it is done, and goes to the zone.
    let counts = |programs: &[Vec<(bool, u32)>]| {
        let mut model = free(host(1, programs.len() as u32, 1), SchedKernel::V5);
        (model.warmup_ns, model.duration_ns) = (0, 1_000_000);
        let mut guest = vm("vm", &(0..programs.len() as u32).collect::<Vec<_>>(), 1, &[]);
        model.meters = Vec::new();
        for (vcpu, program) in (0..).zip(programs) {
            let groups = program
                .iter()
                .flat_map(|(taken, pages)| [step(*taken, *pages), Op::Done(2 * vcpu + 1)]);
            let steps = [us(1), Op::Done(2 * vcpu)].into_iter().chain(groups).collect();
            guest.tasks.push(pinned("task", vcpu, steps));
            model.meters.extend(["rounds", "batches"].map(str::to_owned));
        }
        guest.tasks.drain(..programs.len());
        model.vms = vec![guest];
        let outcome = run(&model, || true).unwrap();
        let done: Vec<u64> = outcome.meters.iter().map(|meter| meter.done).collect();
        done.chunks(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
    };
    // What was put back is taken again: the zone is asked once.
    assert_eq!(counts(&[vec![(true, 10), (false, 10)]])[0].1, 1);
    // 128 pages need five batches, of which 27 stay; with all put back there are 155.
    let groups = |taken| [31, 31, 31, 31, 4].map(|pages| (taken, pages));
    let buffer: Vec<_> = groups(true).into_iter().chain(groups(false)).collect();
    assert_eq!(counts(&[buffer])[0].1, 5);
    // Each CPU has its own: one that only takes asks each time, one that only puts back does so
    // from the sixth time on, when it has 186.
    let found = counts(&[vec![(true, 31)], vec![(false, 31)]]);
    assert!(found[0].0 > 900, "{found:?}");
    assert_eq!(found[0].1, found[0].0);
    assert_eq!(found[1].1 + 5, found[1].0);
}

/// Which rules paravirtual spin locks have, by the guest's version.
#[test]
fn paravirtual_locks_go_with_the_release() {
    let rules = |release: &str| PvLockRules::defaults(KernelRelease::parse(release).unwrap());
    assert_eq!(rules("3.12"), PvLockRules::TICKET);
    assert_eq!(
        rules("4.4.0-21-generic"),
        PvLockRules { steals: true, unfair: false, early: EarlyHalt::Never }
    );
    for (release, early) in [
        ("4.5", EarlyHalt::Halted),
        ("4.10", EarlyHalt::Preempted),
        ("5.3.18", EarlyHalt::Preempted),
        ("5.4", EarlyHalt::Halted),
        ("6.12", EarlyHalt::Halted),
    ] {
        // Of these 4.5 and 4.10 are older than 4.15.
        let unfair = !["4.5", "4.10"].contains(&release);
        assert_eq!(rules(release), PvLockRules { steals: true, unfair, early }, "{release}");
    }
    // `vcpu->ready` came with 5.3.
    let woken = |release: &str| {
        DirectedYieldRule::defaults(KernelRelease::parse(release).unwrap()).skip_woken
    };
    assert_eq!(
        ["3.8", "3.10", "4.19", "5.2", "5.3", "6.6"].map(woken),
        [false, true, true, true, false, false]
    );
}

/// A waiter sees a lock that is given back on another node later.
#[test]
fn locks_are_handed_over_within_a_node_sooner() {
    let work = Op::Work(Duration::Constant(1_000), WorkClass::KERNEL);
    let program = [Op::Lock(0), work, Op::Unlock(0), Op::Done(0)];
    for (machine, handoff_ns) in [(host(1, 2, 1), 100), (host(2, 1, 1), 250)] {
        let mut model = free(machine, SchedKernel::V5);
        model.costs.handoff_ns = 100.0;
        model.costs.remote_line_factor = 2.5;
        model.vms = vec![vm("vm", &[0, 1], 1, &program)];
        near(rate(&model), 1e9 / f64::from(1_000 + handoff_ns), "a lock");
        model.mechanisms.remote_lines = false;
        near(rate(&model), 1e9 / 1_100.0, "as within a node");
    }
}
