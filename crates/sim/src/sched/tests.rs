//! Sequences that were worked out by hand from the kernel's rules, and laws.

mod balance;
mod place;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn queue(policy: &SchedPolicy, weights: &[u32]) -> (RunQueue, Vec<Entity>) {
    let mut tasks: Vec<Entity> = weights.iter().map(|weight| Entity::new(*weight)).collect();
    let mut queue = RunQueue::default();
    for id in 0..tasks.len() as u32 {
        // All begin even, as after a long time together.
        queue.enqueue(policy, &mut tasks, id, EnqueueReason::Wakeup);
        tasks[id as usize].vruntime = 0;
    }
    (queue, tasks)
}

/// Runs the queue tick by tick; gives who ran in each.
fn ticks(policy: &SchedPolicy, queue: &mut RunQueue, tasks: &mut [Entity], count: usize) -> String {
    let mut ran = String::new();
    let mut current = queue.pick(policy, tasks);
    for _ in 0..count {
        ran.push(char::from(b'A' + current.map_or(25, |id| id as u8)));
        queue.charge(tasks, policy.tick_ns);
        if queue.tick(policy, tasks) {
            current = queue.pick(policy, tasks);
        }
    }
    ran
}

fn cfs(kernel: SchedKernel) -> SchedPolicy {
    SchedPolicy {
        latency_ns: 8 * MS,
        min_granularity_ns: 2 * MS,
        wakeup_granularity_ns: 4 * MS,
        ..SchedPolicy::defaults(kernel, 8)
    }
}

/// `check_preempt_tick`: with a latency of 8 ms each of two has a slice of 4 ms.
/// The first turn ends when A has run more than 4 ms, at the 5th tick; B then
/// runs until its lead over A exceeds 4 ms or it ran more than 4 ms: 5 ticks too.
#[test]
fn cfs_turns_are_slices_rounded_up_to_ticks() {
    let policy = cfs(SchedKernel::V3_6);
    let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
    assert_eq!(ticks(&policy, &mut queue, &mut tasks, 20), "AAAAABBBBBAAAAABBBBB");
}

/// `migrate_task_rq_fair`: who wakes on a queue whose time is far behind, or ahead, is as far from
/// it as it was from the one where it slept.
#[test]
fn cfs_who_wakes_elsewhere_keeps_its_distance() {
    let policy = cfs(SchedKernel::V5);
    for (slept_at, wakes_at) in [(100 * MS, 10 * MS), (10 * MS, 100 * MS)] {
        let (mut from, mut tasks) = queue(&policy, &[1024, 1024]);
        let mut to = RunQueue::default();
        tasks.push(Entity::new(1024));
        to.enqueue(&policy, &mut tasks, 2, EnqueueReason::Wakeup);
        // Each queue is as far as its own task.
        for (queue, task, time) in [(&mut from, 0, slept_at), (&mut to, 2, wakes_at)] {
            tasks[1].vruntime = slept_at as i64 + 1_000;
            queue.run(&mut tasks, Some(task));
            let left = time - tasks[task as usize].vruntime as u64;
            queue.charge(&mut tasks, left);
        }
        from.dequeue(&policy, &mut tasks, 1, DequeueReason::Sleep);
        to.adopt(&policy, &mut tasks[1], &from);
        to.enqueue(&policy, &mut tasks, 1, EnqueueReason::Wakeup);
        assert_eq!(tasks[1].vruntime, wakes_at as i64 + 1_000);
    }
}

/// `pick_next_entity`: the skip buddy goes on being passed over while the second
/// is within the wake-up granularity (4 ms), and no longer.
#[test]
fn cfs_skip_buddy_is_heeded_within_the_granularity() {
    let policy = cfs(SchedKernel::V3_6);
    let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
    tasks[1].vruntime = 4 * MS as i64;
    assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
    assert!(queue.give_way(&policy, &mut tasks));
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1), "4 ms ahead is within");
    tasks[1].vruntime += 1;
    queue.run(&mut tasks, Some(0));
    assert!(queue.give_way(&policy, &mut tasks));
    assert_eq!(queue.pick(&policy, &mut tasks), Some(0), "one more is beyond");
}

/// `pick_next_task_fair`: before 3.15 who ran and is chosen again begins a new turn
/// (`put_prev_task`, `set_next_entity`); since, its turn goes on.
#[test]
fn who_is_chosen_again_goes_on_with_its_turn() {
    for (kernel, turn_ms) in [(SchedKernel::V3_6, 0), (SchedKernel::V3_13, 0), (SchedKernel::V5, 3)]
    {
        let policy = cfs(kernel);
        let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
        tasks[1].vruntime = 8 * MS as i64;
        assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
        queue.charge(&mut tasks, 3 * MS);
        assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
        let ran = tasks[0].ran_ns - tasks[0].ran_before_ns;
        assert_eq!(ran, turn_ms * MS, "{kernel:?}");
    }
}

/// `set_next_buddy`, `pick_next_entity`: CFS honours a directed yield within the
/// granularity; EEVDF of 6.6 does not without `NEXT_BUDDY`, and with it only for
/// who is eligible.
#[test]
fn next_buddy_by_version() {
    for (policy, ahead, expected) in [
        (cfs(SchedKernel::V3_6), 3 * MS, 1),
        (cfs(SchedKernel::V5), 3 * MS, 1),
        (cfs(SchedKernel::V5), 5 * MS, 0),
        (SchedPolicy::defaults(SchedKernel::V6_6, 8), 0, 0),
        (
            SchedPolicy { eevdf_next_buddy: true, ..SchedPolicy::defaults(SchedKernel::V6_6, 8) },
            0,
            1,
        ),
        (
            SchedPolicy { eevdf_next_buddy: true, ..SchedPolicy::defaults(SchedKernel::V6_6, 8) },
            3 * MS,
            0,
        ),
        (SchedPolicy { buddies: false, ..cfs(SchedKernel::V3_6) }, 3 * MS, 0),
    ] {
        let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
        tasks[1].vruntime = ahead as i64;
        tasks[0].deadline = MS as i64;
        tasks[1].deadline = 9 * MS as i64;
        assert!(queue.favour(&policy, 1));
        assert_eq!(queue.pick(&policy, &mut tasks), Some(expected), "{policy:?} {ahead}");
    }
}

/// `place_entity`: who slept long comes back half a latency behind the queue, and
/// that is beyond the wake-up granularity only where it is larger.
#[test]
fn cfs_sleepers_get_half_a_latency() {
    let policy = cfs(SchedKernel::V5);
    let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
    assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
    queue.dequeue(&policy, &mut tasks, 1, DequeueReason::Sleep);
    queue.charge(&mut tasks, 100 * MS);
    queue.enqueue(&policy, &mut tasks, 1, EnqueueReason::Wakeup);
    assert_eq!(tasks[1].vruntime, 96 * MS as i64);
    assert!(!queue.preempts(&policy, &tasks, 1), "4 ms behind is not beyond 4 ms");
    queue.charge(&mut tasks, 1);
    assert!(queue.preempts(&policy, &tasks, 1));
}

/// `check_preempt_wakeup`: who preempts is the next buddy, and runs though another has less
/// virtual time.
#[test]
fn cfs_who_preempts_runs_next() {
    let policy = cfs(SchedKernel::V5);
    let (mut queue, mut tasks) = queue(&policy, &[1024; 3]);
    assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
    queue.charge(&mut tasks, 10 * MS);
    // 1 waits with 3 ms, 2 woke with 5: both are more than 4 ms behind 0.
    (tasks[1].vruntime, tasks[2].vruntime) = (3 * MS as i64, 5 * MS as i64);
    assert!(queue.preempts(&policy, &tasks, 2));
    queue.preempted_by(&policy, 2, true);
    assert_eq!(queue.pick(&policy, &mut tasks), Some(2));
    // It was chosen: the hint is gone.
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1));
    let off = SchedPolicy { buddies: false, ..policy };
    queue.preempted_by(&off, 2, true);
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1));
    // Who wakes on an idle queue preempts nobody.
    queue.put();
    queue.preempted_by(&policy, 2, true);
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1));
}

/// `LAST_BUDDY`: with `sched_nr_latency` tasks, here 8 / 2 ms = 4, whoever was preempted goes on
/// when the one that preempted it is done, though another has less virtual time.
#[test]
fn cfs_who_was_preempted_goes_on() {
    let policy = cfs(SchedKernel::V5);
    for (count, expected) in [(4, 0), (3, 1)] {
        let (mut queue, mut tasks) = queue(&policy, &vec![1024; count]);
        assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
        for task in &mut tasks {
            task.vruntime = 10 * MS as i64;
        }
        (tasks[1].vruntime, tasks[2].vruntime) = (7 * MS as i64, 5 * MS as i64);
        queue.preempted_by(&policy, 2, true);
        assert_eq!(queue.pick(&policy, &mut tasks), Some(2));
        queue.dequeue(&policy, &mut tasks, 2, DequeueReason::Sleep);
        assert_eq!(queue.pick(&policy, &mut tasks), Some(expected), "{count} tasks");
    }
}

/// `pick_eevdf`: slices of 3 ms (0.75 ms x 4) at ticks of 1 ms; each runs until
/// its deadline moves, then the other has the earlier one.
#[test]
fn eevdf_turns_are_base_slices() {
    let policy = SchedPolicy::defaults(SchedKernel::V6_6, 8);
    let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
    for task in &mut tasks {
        task.deadline = 3 * MS as i64;
    }
    assert_eq!(ticks(&policy, &mut queue, &mut tasks, 18), "AAABBBAAABBBAAABBB");
}

/// `yield_task_fair` of 6.6: the deadline moves by a slice, and the other runs if
/// it is eligible.
#[test]
fn eevdf_yield_moves_the_deadline() {
    let policy = SchedPolicy::defaults(SchedKernel::V6_6, 8);
    let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
    for task in &mut tasks {
        task.deadline = 3 * MS as i64;
    }
    assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
    assert_eq!(queue.pick(&policy, &mut tasks), Some(0), "run to parity");
    assert!(queue.give_way(&policy, &mut tasks));
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1));
    assert!(queue.give_way(&policy, &mut tasks));
    assert_eq!(tasks[1].deadline, 6 * MS as i64);
}

/// Two tasks, of which A has run 2 ms more than B and goes to sleep.
fn after_a_long_turn(kernel: SchedKernel) -> (SchedPolicy, RunQueue, Vec<Entity>) {
    let policy = SchedPolicy::defaults(kernel, 8);
    let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
    for task in &mut tasks {
        task.deadline = 3 * MS as i64;
    }
    assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
    queue.charge(&mut tasks, 2 * MS);
    queue.dequeue(&policy, &mut tasks, 0, DequeueReason::Sleep);
    assert_eq!((queue.members(), queue.len()), (&[1][..], 1));
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1));
    (policy, queue, tasks)
}

/// `dequeue_entity` with `DELAY_DEQUEUE`: at 2 and 0 ms A is ahead of the mean of 1 ms, stays
/// and counts. `pick_eevdf` comes to it when B is at 3.5 ms: A has the earlier deadline, is
/// dequeued at last, and `DELAY_ZERO` leaves it none of the 0.75 ms that it is owed by then.
#[test]
fn who_sleeps_pays_first() {
    let (policy, mut queue, mut tasks) = after_a_long_turn(SchedKernel::V6_12);
    assert!(tasks[0].delayed && tasks[0].queued);
    assert_eq!(queue.average(&tasks), MS as i64);
    queue.charge(&mut tasks, 2 * MS);
    assert!(!queue.tick(&policy, &mut tasks));
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1), "run to parity");
    queue.charge(&mut tasks, 3 * MS / 2);
    assert!(queue.renew_deadline(&policy, &mut tasks), "its slice is used up");
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1));
    assert_eq!((tasks[0].delayed, tasks[0].queued, tasks[0].lag), (false, false, 0));
    assert_eq!(queue.average(&tasks), 7 * MS as i64 / 2, "B's alone");
}

/// The last one that runs takes all that only compete with it: schedule() goes on to choose
/// until nobody is left.
#[test]
fn nobody_sleeps_on_an_idle_queue() {
    let (policy, mut queue, mut tasks) = after_a_long_turn(SchedKernel::V6_12);
    queue.dequeue(&policy, &mut tasks, 1, DequeueReason::Sleep);
    assert!(queue.is_empty() && tasks[0].delayed && !tasks[1].delayed);
    assert_eq!(queue.pick(&policy, &mut tasks), None);
    assert!(!tasks[0].delayed && !tasks[0].queued);
}

/// `requeue_delayed_entity`: who wakes before it has paid has the place that it had; one that
/// has paid more comes back at the mean, 4 ms, with a slice. In 6.6 it left with a lag of
/// -1 ms, which is -2 ms beside one other (`place_entity`).
#[test]
fn who_wakes_early_still_owes() {
    let wake = |kernel, more_ms| {
        let (policy, mut queue, mut tasks) = after_a_long_turn(kernel);
        queue.charge(&mut tasks, more_ms * MS);
        queue.enqueue(&policy, &mut tasks, 0, EnqueueReason::Wakeup);
        assert_eq!(queue.len(), 2);
        assert!(tasks[0].queued && !tasks[0].delayed);
        (tasks[0].vruntime / MS as i64, tasks[0].deadline / MS as i64)
    };
    assert_eq!(wake(SchedKernel::V6_12, 0), (2, 3));
    assert_eq!(wake(SchedKernel::V6_12, 4), (4, 7));
    assert_eq!(wake(SchedKernel::V6_6, 0), (2, 5));
    assert_eq!(wake(SchedKernel::V6_6, 4), (6, 9));
}

/// `PLACE_REL_DEADLINE`: since 6.12 who migrates keeps how far off its deadline is.
#[test]
fn deadlines_migrate() {
    for (kernel, left_ms) in [(SchedKernel::V6_6, 3), (SchedKernel::V6_12, 1)] {
        let policy = SchedPolicy::defaults(kernel, 8);
        let (mut from, mut tasks) = queue(&policy, &[1024]);
        tasks[0].deadline = 3 * MS as i64;
        from.pick(&policy, &mut tasks);
        from.charge(&mut tasks, 2 * MS);
        from.dequeue(&policy, &mut tasks, 0, DequeueReason::Migrate);
        let mut to = RunQueue::default();
        to.enqueue(&policy, &mut tasks, 0, EnqueueReason::Migrate);
        assert_eq!(tasks[0].deadline - tasks[0].vruntime, left_ms * MS as i64, "{kernel:?}");
    }
}

/// `pick_eevdf` drops the protection of who had more than its share, even inside
/// its slice: whoever calls schedule() there gives way.
#[test]
fn eevdf_protects_only_the_eligible() {
    let policy = SchedPolicy::defaults(SchedKernel::V6_6, 8);
    let (mut queue, mut tasks) = queue(&policy, &[1024, 1024]);
    for task in &mut tasks {
        task.deadline = 3 * MS as i64;
    }
    assert_eq!(queue.pick(&policy, &mut tasks), Some(0));
    queue.charge(&mut tasks, MS / 2);
    assert_eq!(queue.pick(&policy, &mut tasks), Some(1));
}

#[test]
fn releases_have_rules() {
    for (release, expected) in [
        ("3.6", Some(SchedKernel::V3_6)),
        ("2.6.32-431.el6", Some(SchedKernel::V3_6)),
        ("3.13.0-32", Some(SchedKernel::V3_13)),
        ("5.4.0-80-generic", Some(SchedKernel::V5)),
        ("5.x", Some(SchedKernel::V5)),
        ("6.1.0-18-amd64", Some(SchedKernel::V5)),
        ("6.6", Some(SchedKernel::V6_6)),
        ("6.12.9", Some(SchedKernel::V6_12)),
        ("7.0", Some(SchedKernel::V6_12)),
        ("new", None),
        ("", None),
    ] {
        assert_eq!(SchedKernel::of_release(release), expected, "{release}");
    }
}

/// Fair shares under weights, both policies, within 1 %.
#[test]
fn shares_are_weights() {
    for (kernel, _) in SchedKernel::ALL {
        for weights in [&[1024u32, 1024, 1024][..], &[1024, 2048], &[1024, 335, 3121]] {
            let policy = SchedPolicy::defaults(kernel, 8);
            let (mut queue, mut tasks) = queue(&policy, weights);
            ticks(&policy, &mut queue, &mut tasks, 40_000);
            let total: u64 = tasks.iter().map(|task| task.ran_ns).sum();
            for (task, weight) in tasks.iter().zip(weights) {
                let ratio = task.ran_ns as f64 / total as f64 / cfs::share(*weight, weights);
                assert!((ratio - 1.0).abs() < 0.01, "{kernel:?} {weights:?}: {ratio}");
            }
        }
    }
}

proptest! {
    /// EEVDF's bound: nobody is owed more than a slice and a tick, nor has had
    /// more than that too much (Stoica and Abdel-Wahab 1995, with ticks).
    #[test]
    fn eevdf_lag_is_bounded(weights in prop::collection::vec(100u32..4000, 1..7), steps in 1usize..400) {
        let policy = SchedPolicy::defaults(SchedKernel::V6_6, 8);
        let (mut queue, mut tasks) = queue(&policy, &weights);
        for task in &mut tasks {
            task.deadline = task.virtual_of(policy.base_slice_ns);
        }
        queue.pick(&policy, &mut tasks);
        for _ in 0..steps {
            queue.charge(&mut tasks, policy.tick_ns);
            if queue.tick(&policy, &mut tasks) {
                queue.pick(&policy, &mut tasks);
            }
            let average = queue.average(&tasks);
            for task in &tasks {
                let real = (average - task.vruntime).abs() as f64 * f64::from(task.weight) / 1024.0;
                let bound = (policy.base_slice_ns + policy.tick_ns) as f64;
                prop_assert!(real <= bound * 1.000_001, "{real} > {bound}: {tasks:?}");
            }
        }
    }

    /// The least virtual time never goes back, nobody is lost, and somebody runs
    /// while anybody can.
    #[test]
    fn queues_conserve_work(kernel in 0usize..5, steps in prop::collection::vec((0u32..4, 0u32..6, 1u64..5_000_000), 1..200)) {
        let policy = SchedPolicy::defaults(SchedKernel::ALL[kernel].0, 8);
        let mut tasks: Vec<Entity> = (0..6).map(|_| Entity::new(1024)).collect();
        let mut queue = RunQueue::default();
        let mut on = std::collections::BTreeSet::new();
        for (what, id, delta) in steps {
            let before = queue.min_vruntime;
            queue.charge(&mut tasks, delta);
            match what {
                0 if !on.contains(&id) => {
                    queue.enqueue(&policy, &mut tasks, id, EnqueueReason::Wakeup);
                    on.insert(id);
                }
                1 if on.contains(&id) => {
                    queue.dequeue(&policy, &mut tasks, id, DequeueReason::Sleep);
                    on.remove(&id);
                }
                2 => { queue.give_way(&policy, &mut tasks); }
                _ => { queue.favour(&policy, id); }
            }
            queue.tick(&policy, &mut tasks);
            let chosen = queue.pick(&policy, &mut tasks);
            prop_assert_eq!(chosen.is_some(), !on.is_empty());
            prop_assert!(chosen.is_none_or(|id| on.contains(&id)));
            prop_assert_eq!(queue.len(), on.len());
            prop_assert!(queue.min_vruntime >= before);
        }
    }
}
