//! Interrupts between vCPUs: of calls to all, of wake-ups, and how many exits they take.

use super::*;

fn work(ns: u64) -> Op {
    Op::Work(Duration::Constant(ns), WorkClass::COMPUTE)
}

/// A guest of so many vCPUs, of which the first alone does something.
fn lone(vcpus: u32, program: &[Op]) -> SimModel {
    let mut model = free(host(1, vcpus, 1), SchedKernel::V5);
    model.warmup_ns = 0;
    model.kvm.halt_poll_ns = 0;
    let mut guest = vm("vm", &(0..vcpus).collect::<Vec<_>>(), 0, program);
    guest.tasks.truncate(1);
    model.vms = vec![guest];
    model
}

/// smp_call_function_many() reaches idle vCPUs, which leave HLT for it; a flush of TLBs leaves
/// them out.
#[test]
fn a_call_reaches_idle_vcpus() {
    let calls = run(&lone(4, &[work(10_000), Op::Call, Op::Done(0)]), || true).unwrap();
    assert!(calls.meters[0].done > 90_000, "{calls:?}");
    for found in [calls.counters.ipis, calls.counters.halt_exits] {
        near(found as f64, 3.0 * calls.meters[0].done as f64, "each of three is called");
    }
    let flushes = run(&lone(4, &[work(10_000), Op::Flush, Op::Done(0)]), || true).unwrap();
    assert_eq!(flushes.counters.ipis, 0);
}

/// __x2apic_send_IPI_mask(): one exit for the vCPUs of a cluster; kvm_send_ipi_mask(): one for
/// 128 of them.
#[test]
fn clusters_and_the_hypercall_need_fewer_exits() {
    let rate_of = |ipi_cluster, pv_ipi| {
        let mut model = lone(33, &[work(1_000), Op::Call, Op::Done(0)]);
        model.vms[0].policy.tick_ns = 1_000_000_000;
        model.duration_ns = 100_000_000;
        model.costs.ipi_exit_work_ns = 1_000.0;
        (model.kvm.ipi_cluster, model.kvm.pv_ipi) = (ipi_cluster, pv_ipi);
        rate(&model)
    };
    // Of 33 the caller leaves 15, 16 and 1 in three clusters.
    for (ipi_cluster, pv_ipi, exits) in
        [(1, false, 32), (16, false, 3), (16, true, 1), (1, true, 1)]
    {
        near(rate_of(ipi_cluster, pv_ipi), 1e9 / f64::from(1_000 * (1 + exits)), "calls");
    }
}

/// smp_call_function_many(): since 4.13 a CPU that has calls of others to answer gets no further
/// IPI, and it answers all of them at once. An interrupt that is pending is not pending twice.
#[test]
fn calls_that_wait_together_are_one_interrupt() {
    for (repeats, ipis) in [(true, 4), (false, 3)] {
        let mut model = lone(3, &[work(10_000)]);
        (model.costs.irq_ns, model.costs.handoff_ns) = (1_000.0, 100.0);
        model.vms[0].repeats_call_ipis = repeats;
        let pinned = |vcpu| GuestTask { pin: Some(vcpu), ..model.vms[0].tasks[0].clone() };
        model.vms[0].tasks = (0..3).map(pinned).collect();
        let mut world = EngineState::new(&model);
        world.begin();
        // vCPU 2 has no pCPU while the two others call.
        world.vcpus[2].in_guest = false;
        world.call_others(0, 0, true);
        world.call_others(1, 1, true);
        assert_eq!(world.account.counters.ipis, ipis);
        for from in 0..2 {
            world.interrupt(2, InterruptVector::CallFunction, Some(from));
        }
        let before = world.vcpus[2].kernel_work;
        world.accept_interrupts(2);
        assert_eq!(world.vcpus[2].kernel_work - before, 1_000 + 100);
        assert_eq!(world.vcpus[2].answering, [0, 1]);
        // Another kind is another handler.
        for vector in [InterruptVector::Timer, InterruptVector::Reschedule] {
            world.interrupt(2, vector, None);
        }
        world.accept_interrupts(2);
        assert_eq!(world.vcpus[2].kernel_work - before, 1_000 + 100 + 2_000);
    }
}

/// Before 4.4 each poll of a halted vCPU lasts the longest time (`halt_poll_ns`); since then it
/// does not where waits are far longer.
#[test]
fn polls_adapt_since_4_4() {
    let polled = |halt_poll_adapts| {
        let mut model =
            lone(1, &[Op::Sleep(Duration::Constant(4_000_000)), work(1_000), Op::Done(0)]);
        (model.kvm.halt_poll_ns, model.kvm.halt_poll_adapts) = (200_000, halt_poll_adapts);
        let outcome = run(&model, || true).unwrap();
        (outcome.time.halt_poll, outcome.meters[0].done)
    };
    let (time, done) = polled(false);
    near(time as f64, 200_000.0 * done as f64, "polls");
    assert_eq!(polled(true).0, 0);
    let adapts =
        |release: &str| SimKvm::defaults(KernelRelease::parse(release).unwrap()).halt_poll_adapts;
    assert_eq!(["4.0", "4.3", "4.4", "6.12"].map(adapts), [false, false, true, true]);
}

/// ttwu_queue(): a vCPU that is busy takes a woken task on its queue by itself, told by an
/// interrupt, if it shares no cache with who wakes it; else the waker does it for it.
#[test]
fn busy_vcpus_without_a_common_cache_are_interrupted() {
    let outcome = |shared: bool, queued_wakeups| {
        let mut model = lone(2, &[]);
        model.mechanisms.queued_wakeups = queued_wakeups;
        let guest = &mut model.vms[0];
        if shared {
            guest.machine = host(1, 2, 1);
        }
        // Who is woken waits for its turn.
        guest.policy.wakeup_preemption = false;
        let channel =
            |name: &str| SimChannel { name: name.to_owned(), initial: 0, capacity: u64::MAX };
        guest.channels = vec![channel("there")];
        let task = |vcpu, program| GuestTask {
            name: format!("task {vcpu}"),
            program,
            pin: Some(vcpu),
            weight: 1024,
        };
        guest.tasks = vec![
            task(0, vec![work(100_000), Op::Send(0), Op::Done(0)]),
            task(1, vec![Op::Receive(0), work(1_000), Op::Done(1)]),
            task(1, vec![work(1_000)]),
        ];
        model.meters.push("woken".to_owned());
        run(&model, || true).unwrap()
    };
    let [apart, near_by, off] = [(false, true), (true, true), (false, false)]
        .map(|(shared, queued_wakeups)| outcome(shared, queued_wakeups));
    // It is woken each time that it has slept, which is when it has had its turn.
    let woken = apart.meters[1].done;
    assert!(apart.counters.ipis > 100 && apart.counters.ipis <= woken, "{apart:?}");
    for without in [near_by, off] {
        assert_eq!(without.counters.ipis, 0);
        // Nobody is lost.
        assert!(without.meters[1].done.abs_diff(woken) * 50 < woken, "{woken}: {without:?}");
    }
}
