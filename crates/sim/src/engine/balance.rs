//! Balance of the host: what pCPUs that are idle take, and those that are busy.

use super::host::HostView;
use super::state::{Doing, EngineState, ThreadState};
use crate::sched::balance::{self, BalanceEnd, DomainLevel, LoadView};
use crate::sched::{Enqueue, SchedKernel, place};

impl LoadView for HostView<'_, '_> {
    fn weight(&self, pcpu: u32) -> u64 {
        let threads = self.0.pcpus[pcpu as usize].queue.members();
        threads.map(|thread| self.0.balance_load(pcpu, thread)).sum()
    }
}

impl EngineState<'_> {
    /// A thread's weight on a pCPU, by how long it wants to run (`task_h_load`).
    fn balance_load(&self, pcpu: u32, thread: u32) -> u64 {
        let state = &self.threads[thread as usize];
        let could_run = state.state != ThreadState::Blocked;
        let queue = &self.pcpus[pcpu as usize].queue;
        queue.weight_of(&self.entities, thread) * state.runnable.at(self.now, could_run) / 1024
    }

    /// A busy pCPU looks at its domains (`sched_balance_domains`).
    pub(super) fn rebalance(&mut self, pcpu: u32) {
        let (kernel, pcpus) = (self.model.policy.kernel, self.pcpus.len());
        for level in DomainLevel::ALL {
            let clock = &mut self.pcpus[pcpu as usize].balance;
            if clock.is_due(level, kernel, pcpus, self.now) {
                self.balance_level(pcpu, level);
            }
        }
        self.pcpus[pcpu as usize].balance.looked(kernel, pcpus);
    }

    /// `load_balance`.
    fn balance_level(&mut self, pcpu: u32, level: DomainLevel) {
        let kernel = self.model.policy.kernel;
        let mut passed = Vec::new();
        let (end, from) = loop {
            let machine = &self.model.machine;
            let view = HostView(self);
            let found = balance::find_busiest(machine, kernel, &view, pcpu, level, &passed);
            let Some((from, imbalance)) = found else { break (BalanceEnd::Balanced, pcpu) };
            match self.detach(pcpu, from, level, imbalance) {
                // LBF_ALL_PINNED: the same without it.
                BalanceEnd::Balanced => passed.push(from),
                end => break (end, from),
            }
        };
        if self.pcpus[pcpu as usize].balance.ended(level, kernel, end) {
            self.push_running(from, pcpu);
        }
    }

    /// `detach_tasks`, `attach_tasks`: moves waiting threads from one pCPU to another until
    /// `imbalance` is used up. Balanced if nobody who is there may come.
    fn detach(&mut self, to: u32, from: u32, level: DomainLevel, imbalance: u64) -> BalanceEnd {
        self.charge(from);
        let kernel = self.model.policy.kernel;
        let failed = self.pcpus[to as usize].balance.failed(level);
        let queue = &self.pcpus[from as usize].queue;
        let current = queue.current();
        let may_move = |thread: u32| {
            self.threads[thread as usize].may_run_on(to) && !self.is_throttled(to, thread)
        };
        let mut all_pinned = true;
        let mut waiting = Vec::new();
        for thread in queue.members() {
            if !may_move(thread) {
                continue;
            }
            all_pinned = false;
            let state = &self.threads[thread as usize];
            // task_hot
            let hot = level != DomainLevel::Core
                && (queue.is_favoured(&self.entities, thread)
                    || self.now - state.ran_until < balance::MIGRATION_COST_NS);
            let waits = Some(thread) != current && state.state == ThreadState::Ready;
            if waits && (!hot || failed > level.cache_nice_tries()) {
                waiting.push(thread);
            }
        }
        if all_pinned {
            return BalanceEnd::Balanced;
        }
        if kernel >= SchedKernel::V5 {
            // From the tail of cfs_tasks, to whose head go those that are chosen.
            waiting.sort_by_key(|thread| self.threads[*thread as usize].ready_since);
        } else {
            // From its head, where those are who came last.
            waiting.reverse();
        }
        let mut left = imbalance;
        let mut moved = BalanceEnd::Failed;
        for thread in waiting.into_iter().take(balance::MOST_MOVED) {
            let load = self.balance_load(from, thread);
            if balance::is_too_much(kernel, load, left, failed) {
                continue;
            }
            self.take_off(from, thread, true);
            self.arrive(to, thread, Enqueue::Migrate);
            moved = BalanceEnd::Moved;
            left = left.saturating_sub(load);
            if left == 0 {
                break;
            }
        }
        moved
    }

    /// `active_load_balance_cpu_stop`: the thread that runs on a pCPU goes to another.
    fn push_running(&mut self, from: u32, to: u32) {
        let Some(thread) = self.pcpus[from as usize].queue.current() else { return };
        let runs = matches!(self.pcpus[from as usize].doing, Doing::Guest | Doing::HostTask);
        let may_move =
            self.threads[thread as usize].may_run_on(to) && !self.is_throttled(to, thread);
        if runs && may_move {
            self.threads[thread as usize].migrate_to = Some(to);
            self.ask_to_schedule(from);
        }
    }

    /// An idle pCPU takes a thread from another. From a tick it also moves one
    /// that runs beside another on a core.
    pub(super) fn pull(&mut self, pcpu: u32, active: bool) {
        let model = self.model;
        let Some(from) = place::busiest_for(&model.machine, &HostView(self), pcpu) else { return };
        let queue = &self.pcpus[from as usize].queue;
        let current = queue.current();
        let may_move = |thread: u32| {
            self.threads[thread as usize].may_run_on(pcpu) && !self.is_throttled(pcpu, thread)
        };
        let waits = queue.members().find(|thread| {
            Some(*thread) != current
                && may_move(*thread)
                && self.threads[*thread as usize].state == ThreadState::Ready
        });
        if let Some(thread) = waits {
            self.take_off(from, thread, true);
            if active {
                self.arrive(pcpu, thread, Enqueue::Migrate);
            } else {
                // schedule() on this pCPU goes on and finds it.
                self.threads[thread as usize].pcpu = pcpu;
                self.account.counters.host_migrations += 1;
                self.put_on(pcpu, thread, Enqueue::Migrate);
            }
        } else if active {
            self.push_running(from, pcpu);
        }
    }
}
