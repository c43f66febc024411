//! The first moment of a run: everybody is put on a queue.

use super::guest::VcpuRunqueues;
use super::host::HostView;
use super::state::{EngineEvent, EngineState, TaskState, ThreadKind, ThreadState};
use crate::model::SimStart;
use crate::sched::{EnqueueReason, place};

impl EngineState<'_> {
    /// Puts everybody on a queue and starts the pCPUs.
    pub(super) fn begin(&mut self) {
        self.place_tasks();
        self.place_threads();
        let tick = self.model.policy.tick_ns.max(1);
        let pcpus = self.pcpus.len() as u64;
        for pcpu in 0..pcpus {
            let offset = if self.model.policy.ticks_aligned { 0 } else { tick * pcpu / pcpus };
            self.queue.push(tick + offset, EngineEvent::Tick(pcpu as u32));
        }
        if let Some(turn) = self.model.gang_ns {
            self.queue.push(turn, EngineEvent::GangTurn);
        }
        for (group, limited) in self.model.groups.iter().enumerate() {
            if let Some(quota) = limited.quota {
                self.queue.push(quota.period_ns, EngineEvent::Refill(group as u32));
            }
        }
        if self.model.warmup_ns > 0 {
            self.queue.push(self.model.warmup_ns, EngineEvent::WarmedUp);
        }
        for pcpu in 0..self.pcpus.len() as u32 {
            if !self.pcpus[pcpu as usize].queue.is_empty() {
                self.begin_schedule(pcpu);
            }
        }
    }

    fn place_threads(&mut self) {
        for thread in 0..self.threads.len() as u32 {
            if let ThreadKind::Host(task) = self.threads[thread as usize].kind
                && let Some((_, sleep)) = self.model.host_tasks[task as usize].burst
            {
                // It begins asleep, each at another time.
                let wait = sleep.draw(&mut self.random);
                self.threads[thread as usize].pcpu = self.any_pcpu(thread);
                self.queue.push(wait, EngineEvent::HostTimer(thread));
                continue;
            }
            let pcpu = self.any_pcpu(thread);
            self.threads[thread as usize].pcpu = pcpu;
            if let ThreadKind::Vcpu(vcpu) = self.threads[thread as usize].kind
                && self.vcpus[vcpu as usize].queue.is_empty()
                && self.halt_exits(self.vcpus[vcpu as usize].vm)
            {
                // Its guest has nothing for it: it sleeps in HLT, and who is placed after
                // it does not see it (sched_balance_find_dst_group_cpu).
                self.vcpus[vcpu as usize].halted = true;
                self.vcpus[vcpu as usize].tick_on = false;
                self.vcpus[vcpu as usize].idle.begins(0);
                continue;
            }
            self.threads[thread as usize].state = ThreadState::Ready;
            self.put_on(pcpu, thread, EnqueueReason::Wakeup);
            let policy = &self.model.policy;
            let entity = &mut self.entities[thread as usize];
            entity.vruntime = 0;
            entity.deadline = policy.base_slice_ns as i64;
            if self.model.start == SimStart::Random {
                let within = if policy.kernel.is_eevdf() {
                    policy.base_slice_ns
                } else {
                    policy.latency_ns / 2
                };
                entity.vruntime = self.random.below(within.max(1)) as i64;
                entity.deadline += entity.vruntime;
            }
        }
    }

    fn any_pcpu(&mut self, thread: u32) -> u32 {
        let start = match self.model.start {
            SimStart::Random => self.random.below(self.pcpus.len() as u64) as u32,
            SimStart::Aligned => 0,
        };
        place::on_fork(&self.model.machine, &HostView(self), start, |pcpu| {
            self.threads[thread as usize].may_run_on(pcpu)
        })
    }

    fn place_tasks(&mut self) {
        for task in 0..self.tasks.len() as u32 {
            let TaskState { vm, own, .. } = self.tasks[task as usize];
            let state = &self.vms[vm as usize];
            let model = &self.model.vms[vm as usize];
            let first = state.first_vcpu;
            let own = match model.tasks[own as usize].pin {
                Some(vcpu) => vcpu,
                None => {
                    let start = self.random.below(u64::from(state.vcpus)) as u32;
                    place::on_fork(&model.machine, &VcpuRunqueues(self, vm), start, |_| true)
                }
            };
            let vcpu = first + own;
            self.tasks[task as usize].vcpu = vcpu;
            let queue = &mut self.vcpus[vcpu as usize].queue;
            queue.enqueue(&model.policy, &mut self.task_entities, task, EnqueueReason::Wakeup);
            self.task_entities[task as usize].vruntime = 0;
            self.task_entities[task as usize].deadline = model.policy.base_slice_ns as i64;
        }
    }
}
