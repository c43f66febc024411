//! Balance inside a guest, over the vCPUs and the topology that it sees.

use super::guest::VcpuRunqueues;
use super::state::{Activity, EngineState, InterruptVector, SpinReason};
use crate::sched::balance::{BalanceClock, BalancerIdleness, LoadView, RunqueueView};
use crate::sched::rebalance::{self, BalancedQueues, MovableTask};
use crate::sched::{DequeueReason, EnqueueReason};

/// A VM's run queues, for balance.
struct GuestQueues<'a, 'm> {
    world: &'a mut EngineState<'m>,
    vm: u32,
    /// The vCPU that does it.
    by: u32,
}

impl GuestQueues<'_, '_> {
    fn vcpu(&self, own: u32) -> u32 {
        self.world.vms[self.vm as usize].first_vcpu + own
    }
}

impl RunqueueView for GuestQueues<'_, '_> {
    fn idle(&self, own: u32) -> bool {
        VcpuRunqueues(self.world, self.vm).idle(own)
    }

    fn load(&self, own: u32) -> usize {
        VcpuRunqueues(self.world, self.vm).load(own)
    }
}

impl VcpuRunqueues<'_, '_> {
    fn tasks(&self, own: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.0.vms[self.1 as usize].first_vcpu;
        self.0.vcpus[(first + own) as usize].queue.members().iter().copied()
    }
}

impl LoadView for VcpuRunqueues<'_, '_> {
    fn weight(&self, own: u32) -> u64 {
        self.tasks(own).map(|task| self.0.task_load(task)).sum()
    }

    fn utilization(&self, own: u32) -> u64 {
        self.tasks(own).map(|task| self.0.task_runnable(task)).sum::<u64>().min(1024)
    }
}

impl LoadView for GuestQueues<'_, '_> {
    fn weight(&self, own: u32) -> u64 {
        VcpuRunqueues(self.world, self.vm).weight(own)
    }

    fn utilization(&self, own: u32) -> u64 {
        VcpuRunqueues(self.world, self.vm).utilization(own)
    }
}

impl BalancedQueues for GuestQueues<'_, '_> {
    fn movable(&mut self, from: u32, _to: u32) -> Vec<MovableTask> {
        let vcpu = self.vcpu(from);
        if let Some(pcpu) = self.world.guest_pcpu(vcpu) {
            self.world.settle(pcpu);
        }
        let world = &*self.world;
        let queue = &world.vcpus[vcpu as usize].queue;
        let (current, count) = (queue.current(), queue.len() as u64);
        let one = |task: u32| {
            let state = &world.tasks[task as usize];
            MovableTask {
                id: task,
                load: world.task_load(task),
                utilization: world.task_runnable(task) / count.max(1),
                waits: Some(task) != current,
                favoured: false,
                ran_ago_ns: world.now - state.ran_until,
                since_ns: state.ready_since,
            }
        };
        let tasks = queue.members().iter().copied();
        tasks.filter(|task| world.may_leave(*task)).map(one).collect()
    }

    fn clock(&mut self, own: u32) -> &mut BalanceClock {
        let vcpu = self.vcpu(own);
        &mut self.world.vcpus[vcpu as usize].balance
    }

    fn move_waiting(&mut self, task: u32, from: u32, to: u32) {
        let (from, to) = (self.vcpu(from), self.vcpu(to));
        let policy = &self.world.model.vms[self.vm as usize].policy;
        let queue = &mut self.world.vcpus[from as usize].queue;
        queue.dequeue(policy, &mut self.world.task_entities, task, DequeueReason::Migrate);
        self.world.put_task(task, to, Some(self.by), EnqueueReason::Migrate);
    }

    fn push_running(&mut self, from: u32, to: u32) {
        let (from, to) = (self.vcpu(from), self.vcpu(to));
        let Some(task) = self.world.vcpus[from as usize].queue.current() else { return };
        if self.world.may_leave(task) {
            self.world.tasks[task as usize].migrate_to = Some(to);
            self.world.vcpus[from as usize].resched = true;
            // The stopper thread is woken there.
            if from != self.by {
                self.world.send_interrupt(self.by, from, InterruptVector::Reschedule, true);
            }
        }
    }
}

impl EngineState<'_> {
    /// How long a task wants to run, in 1024ths.
    fn task_runnable(&self, task: u32) -> u64 {
        let state = &self.tasks[task as usize];
        state.runnable.at(self.now, !matches!(state.activity, Activity::Blocked(_)))
    }

    /// `task_h_load`.
    pub(super) fn task_load(&self, task: u32) -> u64 {
        u64::from(self.task_entities[task as usize].weight) * self.task_runnable(task) / 1024
    }

    /// Whether balance may move a task now: it is not pinned, and does not hold or wait for
    /// what forbids preemption.
    fn may_leave(&self, task: u32) -> bool {
        let state = &self.tasks[task as usize];
        let pin = self.model.vms[state.vm as usize].tasks[state.own as usize].pin;
        let can = match state.activity {
            Activity::Work(..) | Activity::Spin { on: SpinReason::Barrier(_), .. } => true,
            Activity::Spin { .. } | Activity::Blocked(_) => false,
        };
        pin.is_none() && can
    }

    /// Whether a VM's tasks may be moved at all.
    pub(super) fn guest_balances(&self, vm: u32) -> bool {
        self.vms[vm as usize].movable && self.model.mechanisms.balance
    }

    fn rebalance_vcpu(&mut self, vcpu: u32, idleness: BalancerIdleness, by: u32) {
        let (vm, own) = (self.vcpus[vcpu as usize].vm, self.vcpus[vcpu as usize].own);
        let (model, now) = (&self.model.vms[vm as usize], self.now);
        let queues = &mut GuestQueues { world: self, vm, by };
        let kernel = model.policy.kernel;
        rebalance::rebalance_domains(queues, &model.machine, kernel, own, idleness, now);
    }

    /// The softirq behind a busy vCPU's tick.
    pub(super) fn balance_at_tick(&mut self, vcpu: u32) {
        if self.now >= self.vcpus[vcpu as usize].balance.next_ns {
            self.rebalance_vcpu(vcpu, BalancerIdleness::Busy, vcpu);
        }
        self.kick_idle(vcpu);
    }

    /// `nohz_balancer_kick`: an idle vCPU is interrupted, to balance for all that are idle.
    fn kick_idle(&mut self, vcpu: u32) {
        let (vm, own) = (self.vcpus[vcpu as usize].vm, self.vcpus[vcpu as usize].own);
        if self.now < self.vms[vm as usize].next_kick {
            return;
        }
        let view = VcpuRunqueues(self, vm);
        let machine = &self.model.vms[vm as usize].machine;
        let Some(idle) = (0..machine.len() as u32).find(|own| view.idle(*own)) else { return };
        if !rebalance::kicks_idle(machine, &view, own) {
            return;
        }
        let idle = self.vms[vm as usize].first_vcpu + idle;
        let asked = &mut self.vcpus[idle as usize].pending.balance;
        if !std::mem::replace(asked, true) {
            self.send_interrupt(vcpu, idle, InterruptVector::Reschedule, true);
        }
    }

    /// `nohz_idle_balance`: for all vCPUs that are idle, itself last, until it has something
    /// to do.
    pub(super) fn balance_idle(&mut self, vcpu: u32) {
        let (vm, own) = (self.vcpus[vcpu as usize].vm, self.vcpus[vcpu as usize].own);
        let (first, count) = (self.vms[vm as usize].first_vcpu, self.vms[vm as usize].vcpus);
        self.vcpus[vcpu as usize].kernel_work += self.ns.check * u64::from(count);
        let kernel = self.model.vms[vm as usize].policy.kernel;
        let mut next_kick = u64::MAX;
        for step in 1..=count {
            let other = first + (own + step) % count;
            if !self.vcpus[vcpu as usize].queue.is_empty() {
                break;
            }
            if self.vcpus[other as usize].queue.is_empty() {
                self.rebalance_vcpu(other, BalancerIdleness::Idle, vcpu);
                let clock = &self.vcpus[other as usize].balance;
                let next = clock.next(kernel, count as usize, BalancerIdleness::Idle);
                next_kick = next_kick.min(next);
            }
        }
        self.vms[vm as usize].next_kick = if next_kick == u64::MAX { 0 } else { next_kick };
    }

    /// A vCPU for which schedule() finds nothing takes a task from another.
    pub(super) fn pull_task(&mut self, vcpu: u32) {
        let state = &self.vcpus[vcpu as usize];
        let (vm, own, idle) = (state.vm, state.own, state.idle);
        let model = &self.model.vms[vm as usize];
        let kernel = model.policy.kernel;
        if !idle.is_worth_a_look(kernel) {
            return;
        }
        let (look_ns, pays) = (self.ns.check, |cost_ns| idle.pays(kernel, cost_ns));
        let queues = &mut GuestQueues { world: self, vm, by: vcpu };
        rebalance::newidle_balance(queues, &model.machine, kernel, own, look_ns, pays);
    }

    /// Active balance has asked for the task that runs.
    pub(super) fn leave_vcpu_if_asked(&mut self, vcpu: u32, task: u32) {
        if let Some(to) = self.tasks[task as usize].migrate_to.take()
            && self.may_leave(task)
        {
            let vm = self.tasks[task as usize].vm;
            let policy = &self.model.vms[vm as usize].policy;
            let queue = &mut self.vcpus[vcpu as usize].queue;
            queue.dequeue(policy, &mut self.task_entities, task, DequeueReason::Migrate);
            self.put_task(task, to, Some(vcpu), EnqueueReason::Migrate);
        }
    }
}
