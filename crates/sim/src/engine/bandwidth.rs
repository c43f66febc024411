//! Control groups on the host: weights by where their threads are, and CFS bandwidth.

use super::state::{EngineEvent, EngineState, PcpuActivity};
use crate::sched::{DequeueReason, EnqueueReason};

/// What a group keeps of a pCPU's runtime when nothing of it is left there
/// (`min_cfs_rq_runtime`).
const KEPT_NS: i64 = 1_000_000;
/// After how long returned runtime goes to those that are throttled
/// (`cfs_bandwidth_slack_period`).
const SLACK_NS: u64 = 5_000_000;
/// The least weight of a group on a pCPU (`MIN_SHARES`).
const LEAST_WEIGHT: u64 = 2;

impl EngineState<'_> {
    /// Puts a thread on a pCPU's queue.
    pub(super) fn put_on(&mut self, pcpu: u32, thread: u32, why: EnqueueReason) {
        let policy = &self.model.policy;
        if let Some(group) = self.entities[thread as usize].group.map(u32::from) {
            let weight = u64::from(self.entities[thread as usize].weight);
            self.groups[group as usize].load += weight;
            let here = self.pcpus[pcpu as usize].queue.load_of(&self.entities, group);
            self.weigh(pcpu, group, here + weight);
            // check_enqueue_throttle
            if here == 0 && !self.may_run(pcpu, group) {
                self.pcpus[pcpu as usize].queue.throttle(policy, &mut self.entities, group);
            }
        }
        self.pcpus[pcpu as usize].queue.enqueue(policy, &mut self.entities, thread, why);
    }

    /// Takes one off it.
    pub(super) fn take_off(&mut self, pcpu: u32, thread: u32, why: DequeueReason) {
        let policy = &self.model.policy;
        let queue = &mut self.pcpus[pcpu as usize].queue;
        queue.dequeue(policy, &mut self.entities, thread, why);
        let Some(group) = self.entities[thread as usize].group.map(u32::from) else { return };
        let weight = u64::from(self.entities[thread as usize].weight);
        self.groups[group as usize].load -= weight;
        match self.pcpus[pcpu as usize].queue.load_of(&self.entities, group) {
            0 => self.return_runtime(pcpu, group),
            here => self.weigh(pcpu, group, here),
        }
    }

    /// `calc_group_shares`: a group's weight on a pCPU is its share of the group's threads.
    fn weigh(&mut self, pcpu: u32, group: u32, here: u64) {
        let shares = u64::from(self.model.groups[group as usize].shares);
        let all = self.groups[group as usize].load.max(1);
        let weight = (shares * here / all).clamp(LEAST_WEIGHT, shares.max(LEAST_WEIGHT));
        let queue = &mut self.pcpus[pcpu as usize].queue;
        queue.reweigh(&self.model.policy, &mut self.entities, group, weight as u32);
    }

    /// `update_cfs_group` at the tick, for what changed on other pCPUs.
    pub(super) fn weigh_current(&mut self, pcpu: u32) {
        if let Some(group) = self.pcpus[pcpu as usize].queue.current_group() {
            let here = self.pcpus[pcpu as usize].queue.load_of(&self.entities, group);
            self.weigh(pcpu, group, here);
        }
    }

    /// `account_cfs_rq_runtime`: the running group has had `delta` ns.
    pub(super) fn spend(&mut self, pcpu: u32, delta: u64) {
        let Some(group) = self.pcpus[pcpu as usize].queue.current_group() else { return };
        if self.model.groups[group as usize].quota.is_none() {
            return;
        }
        self.groups[group as usize].left[pcpu as usize] -= delta as i64;
        if !self.may_run(pcpu, group) {
            self.ask_to_schedule(pcpu);
        }
    }

    /// Whether a group has runtime on a pCPU; takes a slice of what is left if it has none
    /// (`assign_cfs_rq_runtime`).
    fn may_run(&mut self, pcpu: u32, group: u32) -> bool {
        if self.model.groups[group as usize].quota.is_none() {
            return true;
        }
        let slice = self.model.policy.bandwidth_slice_ns as i64;
        let state = &mut self.groups[group as usize];
        let left = &mut state.left[pcpu as usize];
        if *left <= 0 {
            let taken = (slice - *left).min(state.pool);
            state.pool -= taken;
            *left += taken;
        }
        *left > 0
    }

    /// Whether a thread's group is throttled on a pCPU: balancing moves nobody there
    /// (`throttled_lb_pair`).
    pub(super) fn is_throttled(&self, pcpu: u32, thread: u32) -> bool {
        let group = self.entities[thread as usize].group;
        group.is_some_and(|group| self.pcpus[pcpu as usize].queue.is_throttled(group.into()))
    }

    /// `check_cfs_rq_runtime`: before another is chosen, the group that ran is throttled
    /// if it has no runtime.
    pub(super) fn throttle_spent(&mut self, pcpu: u32) {
        let Some(group) = self.pcpus[pcpu as usize].queue.current_group() else { return };
        if !self.may_run(pcpu, group) {
            let queue = &mut self.pcpus[pcpu as usize].queue;
            queue.throttle(&self.model.policy, &mut self.entities, group);
            self.account.counters.throttles += 1;
        }
    }

    /// `return_cfs_rq_runtime`: nothing of the group is left on the pCPU.
    fn return_runtime(&mut self, pcpu: u32, group: u32) {
        if self.model.groups[group as usize].quota.is_none() {
            return;
        }
        let slice = self.model.policy.bandwidth_slice_ns as i64;
        let state = &mut self.groups[group as usize];
        let slack = state.left[pcpu as usize] - KEPT_NS;
        if slack <= 0 {
            return;
        }
        state.left[pcpu as usize] -= slack;
        state.pool += slack;
        if state.pool > slice && !state.slack_pending {
            state.slack_pending = true;
            self.queue.push(self.now + SLACK_NS, EngineEvent::Slack(group));
        }
    }

    /// `do_sched_cfs_slack_timer`.
    pub(super) fn slack(&mut self, group: u32) {
        self.groups[group as usize].slack_pending = false;
        self.distribute(group);
    }

    /// `do_sched_cfs_period_timer`: a period's quota. What pCPUs had left of the one before
    /// expires in some versions.
    pub(super) fn refill(&mut self, group: u32) {
        let Some(quota) = self.model.groups[group as usize].quota else { return };
        let next = self.now.saturating_add(quota.period_ns);
        self.queue.push(next, EngineEvent::Refill(group));
        // Who runs has used what it has used.
        for pcpu in 0..self.pcpus.len() as u32 {
            if self.pcpus[pcpu as usize].queue.current_group() == Some(group) {
                self.settle(pcpu);
                self.charge(pcpu);
            }
        }
        let state = &mut self.groups[group as usize];
        state.pool = quota.quota_ns as i64;
        if self.model.policy.bandwidth_expires {
            for left in &mut state.left {
                *left = (*left).min(0);
            }
        }
        self.distribute(group);
    }

    /// `distribute_cfs_runtime`: debts are paid, and who has none any more comes back.
    fn distribute(&mut self, group: u32) {
        for pcpu in 0..self.pcpus.len() as u32 {
            if !self.pcpus[pcpu as usize].queue.is_throttled(group) {
                continue;
            }
            let state = &mut self.groups[group as usize];
            let left = &mut state.left[pcpu as usize];
            let taken = (1 - *left).clamp(0, state.pool.max(0));
            state.pool -= taken;
            *left += taken;
            if *left <= 0 {
                continue;
            }
            self.charge(pcpu);
            let policy = &self.model.policy;
            let queue = &mut self.pcpus[pcpu as usize].queue;
            let waits = queue.unthrottle(policy, &mut self.entities, group);
            // unthrottle_cfs_rq wakes idle pCPUs; others find it by their turns.
            if waits && self.pcpus[pcpu as usize].doing == PcpuActivity::Idle {
                self.wake_pcpu(pcpu);
            }
        }
    }
}
