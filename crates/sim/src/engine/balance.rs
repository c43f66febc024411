//! Balance of the host: what pCPUs that are idle take, and those that are busy.

use super::host::HostView;
use super::state::{EngineState, PcpuActivity, ThreadState};
use crate::sched::balance::{BalanceClock, BalancerIdleness, LoadView, RunqueueView};
use crate::sched::rebalance::{self, BalancedQueues, MovableTask};
use crate::sched::{DequeueReason, EnqueueReason};

/// The host's run queues, for balance.
struct HostQueues<'a, 'm>(&'a mut EngineState<'m>);

impl RunqueueView for HostQueues<'_, '_> {
    fn idle(&self, pcpu: u32) -> bool {
        HostView(self.0).idle(pcpu)
    }

    fn load(&self, pcpu: u32) -> usize {
        HostView(self.0).load(pcpu)
    }
}

impl LoadView for HostView<'_, '_> {
    fn weight(&self, pcpu: u32) -> u64 {
        let threads = self.0.pcpus[pcpu as usize].queue.members();
        threads.map(|thread| self.0.balance_load(pcpu, thread)).sum()
    }

    fn utilization(&self, pcpu: u32) -> u64 {
        let threads = self.0.pcpus[pcpu as usize].queue.members();
        threads.map(|thread| self.0.runnable(thread)).sum::<u64>().min(1024)
    }
}

impl LoadView for HostQueues<'_, '_> {
    fn weight(&self, pcpu: u32) -> u64 {
        HostView(self.0).weight(pcpu)
    }

    fn utilization(&self, pcpu: u32) -> u64 {
        HostView(self.0).utilization(pcpu)
    }
}

impl BalancedQueues for HostQueues<'_, '_> {
    fn movable(&mut self, from: u32, to: u32) -> Vec<MovableTask> {
        self.0.charge(from);
        let world = &*self.0;
        let queue = &world.pcpus[from as usize].queue;
        let (current, count) = (queue.current(), queue.len() as u64);
        let may_move = |thread: &u32| {
            world.threads[*thread as usize].may_run_on(to) && !world.is_throttled(to, *thread)
        };
        let one = |thread: u32| {
            let state = &world.threads[thread as usize];
            MovableTask {
                id: thread,
                load: world.balance_load(from, thread),
                utilization: world.runnable(thread) / count.max(1),
                waits: Some(thread) != current && state.state == ThreadState::Ready,
                favoured: queue.is_favoured(&world.entities, thread),
                ran_ago_ns: world.now - state.ran_until,
                since_ns: state.ready_since,
            }
        };
        queue.members().filter(may_move).map(one).collect()
    }

    fn clock(&mut self, pcpu: u32) -> &mut BalanceClock {
        &mut self.0.pcpus[pcpu as usize].balance
    }

    fn move_waiting(&mut self, thread: u32, from: u32, to: u32) {
        self.0.take_off(from, thread, DequeueReason::Migrate);
        self.0.arrive(to, thread, EnqueueReason::Migrate);
    }

    fn push_running(&mut self, from: u32, to: u32) {
        let world = &mut *self.0;
        let Some(thread) = world.pcpus[from as usize].queue.current() else { return };
        let runs = matches!(
            world.pcpus[from as usize].doing,
            PcpuActivity::Guest | PcpuActivity::HostTask
        );
        let may_move =
            world.threads[thread as usize].may_run_on(to) && !world.is_throttled(to, thread);
        if runs && may_move {
            world.threads[thread as usize].migrate_to = Some(to);
            world.ask_to_schedule(from);
        }
    }
}

impl EngineState<'_> {
    /// How long a thread wants to run, in 1024ths.
    fn runnable(&self, thread: u32) -> u64 {
        let state = &self.threads[thread as usize];
        state.runnable.at(self.now, state.state != ThreadState::Blocked)
    }

    /// A thread's weight on a pCPU, by how long it wants to run (`task_h_load`).
    pub(super) fn balance_load(&self, pcpu: u32, thread: u32) -> u64 {
        let queue = &self.pcpus[pcpu as usize].queue;
        queue.weight_of(&self.entities, thread) * self.runnable(thread) / 1024
    }

    /// Whether threads may be moved at all.
    pub(super) fn balances(&self) -> bool {
        self.movable && self.model.mechanisms.balance
    }

    /// The softirq behind a busy pCPU's tick.
    pub(super) fn rebalance(&mut self, pcpu: u32) {
        self.rebalance_as(pcpu, BalancerIdleness::Busy);
    }

    /// The same for one that is idle, which another pCPU's tick makes it do
    /// (`nohz_idle_balance`).
    pub(super) fn rebalance_idle(&mut self, pcpu: u32) {
        let (machine, kernel) = (&self.model.machine, self.model.policy.kernel);
        let clock = &self.pcpus[pcpu as usize].balance;
        if self.now < clock.next(kernel, machine.len(), BalancerIdleness::Idle) {
            return;
        }
        let view = HostView(self);
        if (0..machine.len() as u32).any(|other| rebalance::kicks_idle(machine, &view, other)) {
            self.rebalance_as(pcpu, BalancerIdleness::Idle);
        }
    }

    fn rebalance_as(&mut self, pcpu: u32, idleness: BalancerIdleness) {
        let (model, now) = (self.model, self.now);
        let kernel = model.policy.kernel;
        let queues = &mut HostQueues(self);
        rebalance::rebalance_domains(queues, &model.machine, kernel, pcpu, idleness, now);
    }

    /// A pCPU for which schedule() finds nothing takes a thread from another.
    pub(super) fn pull(&mut self, pcpu: u32) {
        let (model, idle) = (self.model, self.pcpus[pcpu as usize].idle);
        let kernel = model.policy.kernel;
        if !idle.is_worth_a_look(kernel) {
            return;
        }
        let (look_ns, pays) = (self.ns.check, |cost_ns| idle.pays(kernel, cost_ns));
        let queues = &mut HostQueues(self);
        rebalance::newidle_balance(queues, &model.machine, kernel, pcpu, look_ns, pays);
    }
}
