//! A vCPU on its pCPU: entry, exit, halting, interrupts.

use super::state::{
    Activity, Burden, EngineEvent, EngineState, Exit, InterruptVector, PcpuActivity, SpinReason,
    ThreadKind, ThreadState,
};
use crate::model::WorkClass;
use crate::queue::NEVER;
use crate::sched::EnqueueReason;

impl EngineState<'_> {
    /// The vCPU that runs on `pcpu`.
    #[inline]
    pub(super) fn vcpu_on(&self, pcpu: u32) -> u32 {
        let thread = self.pcpus[pcpu as usize].queue.current();
        match thread.map(|thread| self.threads[thread as usize].kind) {
            Some(ThreadKind::Vcpu(vcpu)) => vcpu,
            _ => unreachable!("a vCPU's phase on a pCPU without one"),
        }
    }

    /// The pCPU that the vCPU runs, waits or last ran on.
    #[inline]
    pub(super) fn pcpu_of(&self, vcpu: u32) -> u32 {
        self.threads[self.vcpus[vcpu as usize].thread as usize].pcpu
    }

    /// The pCPU on which the vCPU is in guest mode, if it is.
    pub(super) fn guest_pcpu(&self, vcpu: u32) -> Option<u32> {
        let state = &self.vcpus[vcpu as usize];
        state.in_guest.then(|| self.threads[state.thread as usize].pcpu)
    }

    /// kvm_sched_in: the window shrinks, and memory is as near as it is.
    pub(super) fn sched_in(&mut self, vcpu: u32) {
        let kvm = &self.model.kvm;
        let state = &mut self.vcpus[vcpu as usize];
        if kvm.ple_window_grow > 1 {
            state.ple_window = match kvm.ple_window_shrink {
                0 | 1 => kvm.ple_window_ns,
                by => (state.ple_window / u64::from(by)).max(kvm.ple_window_ns),
            };
        }
        let nodes = &self.model.vms[state.vm as usize].memory_nodes;
        state.remote_permille = if nodes.is_empty() || !self.model.mechanisms.remote_memory {
            0
        } else {
            let pcpu = self.threads[state.thread as usize].pcpu;
            let here = self.model.machine.place(pcpu).node;
            let remote = nodes.iter().filter(|node| **node != here).count() as u64;
            self.ns.remote_permille * remote / nodes.len() as u64
        };
    }

    /// The handler is done: back into the guest, unless the host wants to
    /// schedule first.
    pub(super) fn enter(&mut self, pcpu: u32) {
        if self.pcpus[pcpu as usize].resched {
            return self.begin_schedule(pcpu);
        }
        let vcpu = self.vcpu_on(pcpu);
        let metal = self.vms[self.vcpus[vcpu as usize].vm as usize].metal;
        let cost = if metal { 0 } else { self.ns.entry };
        self.enter_phase(pcpu, PcpuActivity::Entering, cost);
    }

    pub(super) fn entered(&mut self, pcpu: u32) {
        if self.pcpus[pcpu as usize].resched {
            return self.begin_schedule(pcpu);
        }
        self.enter_phase(pcpu, PcpuActivity::Guest, NEVER - self.now);
        let vcpu = self.vcpu_on(pcpu);
        let state = &mut self.vcpus[vcpu as usize];
        state.in_guest = true;
        state.spin_from = self.now;
        self.accept_interrupts(vcpu);
        self.look_at_lock(vcpu);
        self.guest_turn(pcpu);
    }

    /// A VM exit begins.
    pub(super) fn exit(&mut self, pcpu: u32, exit: Exit) {
        self.settle(pcpu);
        let vcpu = self.vcpu_on(pcpu);
        self.vcpus[vcpu as usize].in_guest = false;
        let metal = self.vms[self.vcpus[vcpu as usize].vm as usize].metal;
        let cost = if metal { 0 } else { self.ns.exit };
        self.enter_phase(pcpu, PcpuActivity::Exiting(exit), cost);
    }

    pub(super) fn exited(&mut self, pcpu: u32, exit: Exit) {
        match exit {
            Exit::Kick => self.enter(pcpu),
            Exit::Pause => self.on_spin(pcpu),
            Exit::Yield(to) => self.sched_yield(pcpu, to),
            Exit::Halt => {
                self.account.counters.halt_exits += 1;
                let vcpu = self.vcpu_on(pcpu);
                if self.has_reason_to_run(vcpu) {
                    return self.enter(pcpu);
                }
                let state = &mut self.vcpus[vcpu as usize];
                state.halted_since = self.now;
                state.halted = true;
                let alone = self.pcpus[pcpu as usize].queue.len() < 2;
                let state = &self.vcpus[vcpu as usize];
                if state.halt_poll > 0 && alone {
                    let poll = state.halt_poll;
                    self.enter_phase(pcpu, PcpuActivity::HaltPoll, poll);
                } else {
                    let work = self.ns.halt_work;
                    self.enter_phase(pcpu, PcpuActivity::Halting, work);
                }
            }
        }
    }

    /// `kvm_vcpu_check_block()`: an interrupt that it takes, or a kick. What the guest has put
    /// on its queue meanwhile is not seen; the interrupt for that is on its way.
    pub(super) fn has_reason_to_run(&self, vcpu: u32) -> bool {
        let state = &self.vcpus[vcpu as usize];
        let waits = state.queue.current().is_some_and(|task| {
            let spins = self.tasks[task as usize].activity;
            !matches!(spins, Activity::Spin { on: SpinReason::Lock(_), left_ns: 0 })
        });
        (state.pending.vectors != 0 && !state.irqs_off) || waits
    }

    /// Polling has lasted long enough, or the pCPU is wanted.
    pub(super) fn poll_ends(&mut self, pcpu: u32) {
        let work = self.ns.halt_work;
        self.enter_phase(pcpu, PcpuActivity::Halting, work);
    }

    /// It blocks, unless it was woken meanwhile.
    pub(super) fn halts(&mut self, pcpu: u32) {
        let vcpu = self.vcpu_on(pcpu);
        if !self.vcpus[vcpu as usize].halted {
            return self.enter(pcpu);
        }
        let thread = self.vcpus[vcpu as usize].thread;
        self.threads[thread as usize].blocking = true;
        self.begin_schedule(pcpu);
    }

    /// Adapts how long the host polls (`kvm_vcpu_halt`): longer while waits are
    /// within reach, not at all when they are far beyond.
    fn adapt_poll(&mut self, vcpu: u32) {
        /// `halt_poll_ns_grow_start`.
        const GROW_START_NS: u64 = 10_000;
        if !self.model.kvm.halt_poll_adapts {
            return;
        }
        let most = self.model.kvm.halt_poll_ns;
        let state = &mut self.vcpus[vcpu as usize];
        let waited = self.now - state.halted_since;
        if waited <= state.halt_poll {
            return;
        }
        if state.halt_poll > 0 && waited > most {
            state.halt_poll = 0;
        } else if state.halt_poll < most && waited < most {
            state.halt_poll = (state.halt_poll * 2).max(GROW_START_NS).min(most);
        }
    }

    /// A halted vCPU has a reason to run, which the vCPU `by` gives it, if one does.
    pub(super) fn unhalt(&mut self, vcpu: u32, by: Option<u32>) {
        if !std::mem::take(&mut self.vcpus[vcpu as usize].halted) {
            return;
        }
        self.adapt_poll(vcpu);
        let thread = self.vcpus[vcpu as usize].thread;
        let pcpu = self.threads[thread as usize].pcpu;
        let running = self.threads[thread as usize].state == ThreadState::Running;
        if running && self.pcpus[pcpu as usize].doing == PcpuActivity::HaltPoll {
            self.account.counters.polls_hit += 1;
            self.settle(pcpu);
            self.enter(pcpu);
        } else {
            self.wake_thread(thread, by.map(|by| self.vcpus[by as usize].thread));
        }
    }

    /// An interrupt reaches a vCPU, wherever it is; `from` sent it, if a vCPU did.
    pub(super) fn interrupt(&mut self, vcpu: u32, vector: InterruptVector, from: Option<u32>) {
        self.vcpus[vcpu as usize].pending.vectors |= 1 << vector as u8;
        if self.vcpus[vcpu as usize].halted {
            // kvm_arch_vcpu_runnable: who halted with interrupts off waits for a kick.
            if !self.vcpus[vcpu as usize].irqs_off {
                self.unhalt(vcpu, from);
            }
            return;
        }
        let Some(pcpu) = self.guest_pcpu(vcpu) else { return };
        self.settle(pcpu);
        let state = &mut self.vcpus[vcpu as usize];
        if std::mem::take(&mut state.asleep) {
            state.exit_work += state.sleep.ends(self.now, &self.ns);
        }
        let metal = self.vms[state.vm as usize].metal;
        if !self.model.kvm.posted_interrupts && !metal {
            state.exit_work += self.ns.exit + self.ns.entry;
            state.spin_from = self.now;
        }
        self.accept_interrupts(vcpu);
        self.guest_turn(pcpu);
    }

    /// The guest's handlers of all that is pending.
    pub(super) fn accept_interrupts(&mut self, vcpu: u32) {
        let state = &self.vcpus[vcpu as usize];
        if state.pending.vectors == 0 || state.irqs_off {
            return;
        }
        // Whoever waits for one more answer gets it by a line that it looks at.
        let here = self.pcpu_of(vcpu);
        let more = state.pending.answer.iter().skip(1).map(|sender| {
            let there = self.pcpu_of(self.tasks[*sender as usize].vcpu);
            self.line(self.ns.handoff, there, here)
        });
        let work = more.sum::<u64>() + self.ns.irq * u64::from(state.pending.vectors.count_ones());
        let state = &mut self.vcpus[vcpu as usize];
        state.kernel_work += work;
        state.pending.vectors = 0;
        state.resched_sent = false;
        state.answering.append(&mut state.pending.answer);
        let [timers, wakeups] =
            [&mut state.pending.timers, &mut state.pending.wakeups].map(std::mem::take);
        let [ticks, balances] =
            [&mut state.pending.tick, &mut state.pending.balance].map(std::mem::take);
        if state.queue.current().is_none() {
            state.resched = true;
        }
        for task in wakeups {
            self.put_task(task, vcpu, Some(vcpu), EnqueueReason::Wakeup);
        }
        for task in timers {
            self.wake_task(task, Some(vcpu), false);
        }
        if ticks {
            self.accept_idle_tick(vcpu);
        }
        if balances {
            self.balance_idle(vcpu);
        }
    }

    /// Whether the VM's vCPUs leave the guest for HLT.
    pub(super) fn halt_exits(&self, vm: u32) -> bool {
        self.model.kvm.hlt_exits && !self.vms[vm as usize].metal
    }

    /// Sends an interrupt from one vCPU to another.
    pub(super) fn send_interrupt(
        &mut self,
        from: u32,
        to: u32,
        vector: InterruptVector,
        exits: bool,
    ) {
        self.account.counters.ipis += 1;
        let state = &mut self.vcpus[from as usize];
        let metal = self.vms[state.vm as usize].metal;
        if exits && self.model.kvm.ipi_exits && !metal {
            state.exit_work += self.ns.exit + self.ns.entry + self.ns.ipi_exit_work;
        } else {
            state.kernel_work += self.ns.ipi_send;
        }
        let busy = state.exit_work + state.kernel_work;
        let due = self.now + busy + self.ns.resched_ipi;
        self.queue.push(due, EngineEvent::Ipi { to, from, vector });
    }

    // Speed.

    pub(super) fn smt_speed(&self, pcpu: u32, stream: bool) -> u64 {
        if !self.smt {
            return 1024;
        }
        let mut speed = 1024;
        for sibling in self.model.machine.siblings(pcpu) {
            let factor = match self.pcpus[*sibling as usize].burden {
                Burden::None => continue,
                Burden::Spin => self.ns.smt_spin,
                Burden::Stream if stream => self.ns.smt_stream,
                Burden::Busy | Burden::Stream => self.ns.smt_compute,
            };
            speed = speed * factor / 1024;
        }
        speed.max(1)
    }

    pub(super) fn work_speed(&self, pcpu: u32, vcpu: u32, class: WorkClass) -> u64 {
        let speed = self.smt_speed(pcpu, class.stream);
        let remote = self.vcpus[vcpu as usize].remote_permille;
        if remote == 0 || class.memory_permille == 0 {
            return speed;
        }
        // Memory-bound time stretches by the remote share's cost.
        let slow = 1_000_000 + remote * u64::from(class.memory_permille);
        (speed * 1_000_000 / slow).max(1)
    }
}
