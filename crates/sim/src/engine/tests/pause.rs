//! Pause exits: whom they help, and how their window adapts.

use super::*;

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
    let seen: Vec<(bool, u64)> = (0..4).map(|_| world.looks_at(who)).collect();
    assert_eq!(seen, [(false, 2), (true, 3), (false, 2), (true, 3)]);
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
        assert!(world.looks_at(3).0);
        world.threads[thread as usize].woken = true;
        assert_eq!(world.looks_at(3).0, !on_spin.skip_woken);
    }
}

/// A look goes as far as it must: since 3.10 one at who runs ends with `vcpu->preempted`; before,
/// its task was looked at too (`PF_VCPU`).
#[test]
fn a_look_at_who_runs_got_shorter_with_3_10() {
    for (kernel, lines) in [(SchedKernel::V3_6, 3), (SchedKernel::V3_13, 1)] {
        let model = crowded_barrier(kernel).model();
        let mut world = EngineState::new(&model);
        world.begin();
        world.play_until(|world| world.vcpus[1].in_guest);
        assert_eq!(world.looks_at(1), (false, lines), "{kernel:?}");
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
                let mut model = RandomHost { ple, ..drawn.clone() }.model();
                // With a window that does not grow, as up to 3.17, two who spin take the pCPU
                // away again before whoever was found has come to its guest.
                model.kvm.ple_window_grow = 2;
                model.kvm.ple_window_max_ns = SimKvm::defaults(SchedKernel::V5).ple_window_max_ns;
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
