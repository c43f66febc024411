//! EEVDF: of those that have not had more than their share, the earliest
//! virtual deadline runs.

use super::{DequeueReason, EnqueueReason, Entity, RunQueue, SchedKernel, SchedPolicy};

impl RunQueue {
    /// `avg_vruntime`: the weighted mean of the virtual times, at which nobody
    /// is owed anything.
    pub(super) fn average(&self, tasks: &[Entity]) -> i64 {
        let mut sum = 0i128;
        let mut load = 0i128;
        for id in self.competing() {
            let task = &tasks[id as usize];
            sum += i128::from(task.weight) * i128::from(task.vruntime - self.min_vruntime);
            load += i128::from(task.weight);
        }
        if load == 0 { self.min_vruntime } else { self.min_vruntime + sum.div_euclid(load) as i64 }
    }

    /// `entity_eligible`: what it had is not more than its share. Compared
    /// without a division, which would round.
    pub(super) fn eligible(&self, tasks: &[Entity], id: u32) -> bool {
        let vruntime = tasks[id as usize].vruntime;
        let owed: i128 = self
            .competing()
            .map(|other| {
                let other = &tasks[other as usize];
                i128::from(other.weight) * i128::from(other.vruntime - vruntime)
            })
            .sum();
        owed >= 0
    }

    /// `entity_lag`: what it is owed, within a bound of two slices or one slice
    /// and a tick.
    fn bounded_lag(&self, policy: &SchedPolicy, tasks: &[Entity], id: u32) -> i64 {
        let task = &tasks[id as usize];
        let limit = task.virtual_of((2 * policy.base_slice_ns).max(policy.tick_ns));
        (self.average(tasks) - task.vruntime).clamp(-limit, limit)
    }

    /// `update_entity_lag`; since 6.12 the deadline of one that migrates is kept as far off
    /// as it is (`PLACE_REL_DEADLINE`).
    pub(super) fn keep_lag(
        &mut self,
        policy: &SchedPolicy,
        tasks: &mut [Entity],
        id: u32,
        why: DequeueReason,
    ) {
        let lag = self.bounded_lag(policy, tasks, id);
        let task = &mut tasks[id as usize];
        task.lag = lag;
        if why == DequeueReason::Migrate && policy.kernel >= SchedKernel::V6_12 {
            task.deadline -= task.vruntime;
        }
    }

    /// Who sleeps has been chosen: it has paid, and is gone without any lag
    /// (`finish_delayed_dequeue_entity`, `DELAY_ZERO`).
    fn finish_delayed(&mut self, policy: &SchedPolicy, tasks: &mut [Entity], id: u32) {
        let lag = self.bounded_lag(policy, tasks, id);
        self.delayed.retain(|other| *other != id);
        let task = &mut tasks[id as usize];
        (task.queued, task.delayed) = (false, false);
        task.lag = lag.min(0);
    }

    /// `requeue_delayed_entity`: who wakes while it still competes has its place, unless it
    /// has paid more than it had (`DELAY_ZERO`).
    pub(super) fn requeue_delayed(&mut self, policy: &SchedPolicy, tasks: &mut [Entity], id: u32) {
        let lag = self.bounded_lag(policy, tasks, id);
        self.delayed.retain(|other| *other != id);
        tasks[id as usize].delayed = false;
        if lag > 0 {
            tasks[id as usize].lag = 0;
            self.place_eevdf(policy, tasks, id, EnqueueReason::Wakeup);
        }
    }

    /// `place_entity`: the lag that it left with, scaled so that its joining
    /// does not shrink it (`PLACE_LAG`).
    pub(super) fn place_eevdf(
        &mut self,
        policy: &SchedPolicy,
        tasks: &mut [Entity],
        id: u32,
        why: EnqueueReason,
    ) {
        let average = self.average(tasks);
        let load: i128 = self.competing().map(|id| i128::from(tasks[id as usize].weight)).sum();
        let task = &mut tasks[id as usize];
        let weight = i128::from(task.weight);
        let lag = if why == EnqueueReason::New || load == 0 {
            0
        } else {
            (i128::from(task.lag) * (load + weight) / load) as i64
        };
        task.vruntime = average - lag;
        if why == EnqueueReason::Migrate && policy.kernel >= SchedKernel::V6_12 {
            task.deadline += task.vruntime;
            return;
        }
        let slice = task.virtual_of(policy.base_slice_ns);
        // PLACE_DEADLINE_INITIAL: who is new joins in the middle of a slice.
        task.deadline = task.vruntime + if why == EnqueueReason::New { slice / 2 } else { slice };
    }

    /// `pick_eevdf`, with `RUN_TO_PARITY`: who was chosen goes on until its
    /// deadline moves. The next buddy counts only where its feature is on.
    pub(super) fn pick_eevdf(&mut self, policy: &SchedPolicy, tasks: &mut [Entity]) -> Option<u32> {
        if policy.eevdf_next_buddy
            && let Some(next) = self.next
            && self.eligible(tasks, next)
        {
            return Some(next);
        }
        if let Some(current) = self.current
            && self.members.contains(&current)
            && tasks[current as usize].deadline == self.protected
            && self.eligible(tasks, current)
        {
            return Some(current);
        }
        loop {
            let chosen = self.earliest(tasks)?;
            if !tasks[chosen as usize].delayed {
                return Some(chosen);
            }
            self.finish_delayed(policy, tasks, chosen);
        }
    }

    /// Of those that are eligible, the one with the earliest deadline.
    fn earliest(&self, tasks: &[Entity]) -> Option<u32> {
        let eligible = self.competing().filter(|id| self.eligible(tasks, *id));
        eligible.min_by_key(|id| tasks[*id as usize].deadline)
    }

    /// `update_deadline`: a consumed slice brings a new deadline, and a choice.
    pub(super) fn renew_deadline(&mut self, policy: &SchedPolicy, tasks: &mut [Entity]) -> bool {
        let Some(current) = self.current else { return false };
        let task = &mut tasks[current as usize];
        if task.vruntime < task.deadline {
            return false;
        }
        task.deadline = task.vruntime + task.virtual_of(policy.base_slice_ns);
        true
    }

    /// `check_preempt_wakeup_fair`: whether the choice would now fall on `id`;
    /// `RUN_TO_PARITY` protects who has not used up its slice.
    pub(super) fn preempts_eevdf(&self, tasks: &[Entity], id: u32) -> bool {
        let Some(current) = self.current else { return true };
        let parity =
            tasks[current as usize].deadline == self.protected && self.eligible(tasks, current);
        if parity {
            return false;
        }
        self.earliest(tasks) == Some(id)
    }

    /// `yield_task_fair`: the deadline moves by a slice, which ends the
    /// protection; there is no skip buddy any more.
    pub(super) fn forfeit(&mut self, policy: &SchedPolicy, tasks: &mut [Entity], current: u32) {
        let task = &mut tasks[current as usize];
        task.deadline += task.virtual_of(policy.base_slice_ns);
    }
}
