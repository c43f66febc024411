//! CFS: the least virtual time runs, within granularities.

use super::{EnqueueReason, Entity, RunQueue, SchedPolicy};

/// How far one task is ahead of another, as `wakeup_preempt_entity` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VruntimeLead {
    /// Not ahead.
    Behind,
    /// Ahead by at most the granularity.
    Within,
    /// Ahead by more.
    Beyond,
}

/// `wakeup_preempt_entity(ahead, of)`: the granularity is in `of`'s virtual
/// time.
pub(super) fn beyond_granularity(
    policy: &SchedPolicy,
    ahead: &Entity,
    of: &Entity,
) -> VruntimeLead {
    let difference = ahead.vruntime - of.vruntime;
    if difference <= 0 {
        VruntimeLead::Behind
    } else if difference > of.virtual_of(policy.wakeup_granularity_ns) {
        VruntimeLead::Beyond
    } else {
        VruntimeLead::Within
    }
}

impl RunQueue {
    /// `place_entity`: who slept gets half a latency of credit
    /// (`GENTLE_FAIR_SLEEPERS`), who is new a slice of debit (`START_DEBIT`).
    pub(super) fn place_cfs(
        &mut self,
        policy: &SchedPolicy,
        tasks: &mut [Entity],
        id: u32,
        why: EnqueueReason,
    ) {
        let slice = self.slice(policy, tasks, id);
        let task = &mut tasks[id as usize];
        task.vruntime = match why {
            EnqueueReason::Migrate => task.vruntime + self.min_vruntime,
            EnqueueReason::New => self.min_vruntime + task.virtual_of(slice),
            EnqueueReason::Wakeup => {
                task.vruntime.max(self.min_vruntime - (policy.latency_ns / 2) as i64)
            }
        };
    }

    /// `migrate_task_rq_fair` (before 4.3 `task_waking_fair`): who wakes here keeps the distance
    /// that it has to the queue where it slept. EEVDF keeps a lag instead.
    pub fn adopt(&self, policy: &SchedPolicy, task: &mut Entity, from: &Self) {
        if !policy.kernel.is_eevdf() {
            task.vruntime += self.min_vruntime - from.min_vruntime;
        }
    }

    /// `sched_slice`: the task's share of the period, which stretches when more
    /// run than fit in the latency.
    pub(super) fn slice(&self, policy: &SchedPolicy, tasks: &[Entity], id: u32) -> u64 {
        let extra = u64::from(!tasks[id as usize].queued);
        let running = self.members.len() as u64 + extra;
        let fit = (policy.latency_ns / policy.min_granularity_ns.max(1)).max(1);
        let period =
            if running > fit { running * policy.min_granularity_ns } else { policy.latency_ns };
        let own = u64::from(tasks[id as usize].weight);
        let queued: u64 = self.members.iter().map(|id| u64::from(tasks[*id as usize].weight)).sum();
        let total = queued + extra * own;
        let slice = u128::from(period) * u128::from(own) / u128::from(total.max(1));
        match self.share {
            None => slice as u64,
            Some((part, whole)) => (slice * u128::from(part) / u128::from(whole.max(1))) as u64,
        }
    }

    /// The two with the least virtual time, of those that wait and, from 5.x
    /// on, the running one. Ties keep the queue's order, as the tree does.
    fn two_leftmost(&self, tasks: &[Entity]) -> (Option<u32>, Option<u32>) {
        let (mut first, mut second) = (None::<u32>, None::<u32>);
        let less = |a: u32, b: u32| tasks[a as usize].vruntime < tasks[b as usize].vruntime;
        for &id in &self.members {
            if first.is_none_or(|best| less(id, best)) {
                second = first;
                first = Some(id);
            } else if second.is_none_or(|best| less(id, best)) {
                second = Some(id);
            }
        }
        (first, second)
    }

    /// `pick_next_entity`: leftmost, unless it is to be skipped and the second
    /// is near, or the last or next buddy is near. In 3.6 the running task is back in
    /// the tree when this is asked; from 5.x on it takes part as `curr`. Either
    /// way all of them are candidates.
    pub(super) fn pick_cfs(&mut self, policy: &SchedPolicy, tasks: &[Entity]) -> Option<u32> {
        let (left, second) = self.two_leftmost(tasks);
        let left = left?;
        let near = |id: u32| {
            beyond_granularity(policy, &tasks[id as usize], &tasks[left as usize])
                != VruntimeLead::Beyond
        };
        let mut chosen = left;
        if self.skip == Some(left)
            && let Some(second) = second
            && near(second)
        {
            chosen = second;
        }
        for buddy in [self.last, self.next].into_iter().flatten() {
            if near(buddy) {
                chosen = buddy;
            }
        }
        Some(chosen)
    }

    /// `check_preempt_tick`.
    pub(super) fn tick_cfs(&mut self, policy: &SchedPolicy, tasks: &[Entity]) -> bool {
        let Some(current) = self.current else { return false };
        let task = &tasks[current as usize];
        let ideal = self.slice(policy, tasks, current);
        let ran = task.ran_ns - task.ran_before_ns;
        if ran > ideal {
            self.clear_buddies(Some(current));
            return true;
        }
        if ran < policy.min_granularity_ns {
            return false;
        }
        let others = self.members.iter().filter(|id| **id != current);
        let Some(left) = others.map(|id| tasks[*id as usize].vruntime).min() else { return false };
        task.vruntime - left > ideal as i64
    }
}

/// The share of a task among `weights`, for tests and docs.
#[cfg(test)]
pub(super) fn share(weight: u32, weights: &[u32]) -> f64 {
    f64::from(weight) / weights.iter().map(|weight| f64::from(*weight)).sum::<f64>()
}
