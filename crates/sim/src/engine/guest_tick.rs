//! A guest's tick: what it costs, and when it stops.
//!
//! A tick is a timer's interrupt, which takes the vCPU out of the guest, its handler, and
//! writing the next deadline to an MSR, which does so again. An idle vCPU has none
//! (`NO_HZ_IDLE`); stopping it and starting it anew are writes of the deadline, too, and
//! guests do so before each HLT, as they have no cpuidle driver that would say that the sleep
//! is too short for it (`cpuidle_idle_call()`), or one whose governor says so before it polls
//! alone (`haltpoll_select()`). On a host without VMs all this is the host's tick.

use super::state::{EngineEvent, EngineState, InterruptVector};
use crate::queue::NEVER;
use crate::sched::SchedKernel;

impl EngineState<'_> {
    /// The first tick of a VM's vCPUs after now.
    fn next_guest_tick(&self, vm: u32) -> u64 {
        let offset = self.vms[vm as usize].tick_offset;
        let tick = self.model.vms[vm as usize].policy.tick_ns;
        (self.now + tick - offset) / tick * tick + offset
    }

    /// A timer's deadline is written (`lapic_next_deadline`).
    fn write_deadline(&mut self, vcpu: u32) {
        self.vcpus[vcpu as usize].exit_work += self.ns.exit + self.ns.entry;
    }

    fn is_metal(&self, vcpu: u32) -> bool {
        self.vms[self.vcpus[vcpu as usize].vm as usize].metal
    }

    /// The tick of a vCPU that is busy (`tick_sched_timer`, `scheduler_tick`).
    pub(super) fn guest_tick(&mut self, vcpu: u32) {
        let vm = self.vcpus[vcpu as usize].vm;
        let next = self.next_guest_tick(vm);
        let metal = self.is_metal(vcpu);
        let state = &mut self.vcpus[vcpu as usize];
        state.next_tick = next;
        let policy = &self.model.vms[vm as usize].policy;
        if state.queue.tick(policy, &mut self.task_entities) {
            state.resched = true;
        }
        if !metal {
            state.exit_work += self.ns.exit + self.ns.entry;
            state.kernel_work += self.ns.tick_work;
            state.spin_from = self.now;
            self.write_deadline(vcpu);
        }
        if self.guest_balances(vm) {
            self.balance_at_tick(vcpu);
        }
    }

    /// A vCPU is about to halt: its tick stops (`tick_nohz_idle_stop_tick`), unless a timer
    /// is due as soon. Where MWAIT stays in the guest, `intel_idle` does too, and since 4.17
    /// the tick goes on if the vCPU is expected not to sleep so long. True if that takes time.
    pub(super) fn stop_tick(&mut self, vcpu: u32) -> bool {
        if self.is_metal(vcpu) || !self.vcpus[vcpu as usize].tick_on {
            return false;
        }
        let state = &mut self.vcpus[vcpu as usize];
        let policy = &self.model.vms[state.vm as usize].policy;
        let is_short = !self.model.kvm.hlt_exits
            && policy.kernel >= SchedKernel::V5
            && state.idle.last_ns < policy.tick_ns;
        if is_short || state.timer_at <= state.next_tick {
            if !std::mem::replace(&mut state.tick_sent, true) {
                let next = state.next_tick.max(self.now);
                self.queue.push(next, EngineEvent::GuestTick(vcpu));
            }
            return false;
        }
        state.tick_on = false;
        self.write_deadline(vcpu);
        true
    }

    /// A vCPU has something to do again (`tick_nohz_idle_restart_tick`).
    pub(super) fn restart_tick(&mut self, vcpu: u32) {
        if !self.vcpus[vcpu as usize].tick_on {
            let next = self.next_guest_tick(self.vcpus[vcpu as usize].vm);
            self.vcpus[vcpu as usize].tick_on = true;
            self.vcpus[vcpu as usize].next_tick = next;
            self.write_deadline(vcpu);
        }
    }

    /// The tick of a vCPU that halted for shorter, as it was thought.
    pub(super) fn idle_tick(&mut self, vcpu: u32) {
        let state = &mut self.vcpus[vcpu as usize];
        state.tick_sent = false;
        if !state.tick_on || !state.queue.is_empty() {
            return;
        }
        if self.now < state.next_tick {
            // It ran meanwhile, and halted again.
            state.tick_sent = true;
            let next = state.next_tick;
            return self.queue.push(next, EngineEvent::GuestTick(vcpu));
        }
        state.pending.tick = true;
        self.interrupt(vcpu, InterruptVector::Timer, None);
    }

    /// The handler of such a tick. The governor learns that the vCPU sleeps long.
    pub(super) fn accept_idle_tick(&mut self, vcpu: u32) {
        let next = self.next_guest_tick(self.vcpus[vcpu as usize].vm);
        let state = &mut self.vcpus[vcpu as usize];
        state.next_tick = next;
        state.idle.last_ns = NEVER;
        self.write_deadline(vcpu);
    }

    /// A task arms a timer: a write of the deadline if nothing is due before it.
    pub(super) fn arm_timer(&mut self, vcpu: u32, at: u64) {
        let state = &mut self.vcpus[vcpu as usize];
        let is_first = !state.tick_on || at < state.next_tick;
        let soonest = is_first && at < state.timer_at;
        state.timer_at = state.timer_at.min(at);
        if soonest && !self.is_metal(vcpu) {
            self.write_deadline(vcpu);
        }
    }
}
