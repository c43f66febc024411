//! `kvm_vcpu_on_spin()`, `kvm_sched_yield()` and `yield_to()`.

use super::outcome::TraceSegment;
use super::state::{Activity, EngineState, PcpuActivity, ThreadState};

impl EngineState<'_> {
    /// A vCPU has left the guest because it spun.
    pub(super) fn on_spin(&mut self, pcpu: u32) {
        let model = self.model;
        let kvm = &model.kvm;
        let vcpu = self.vcpu_on(pcpu);
        self.account.counters.pause_exits += 1;
        if self.keeps_map() {
            self.map_keeps(TraceSegment::PauseExit { pcpu, at_ns: self.now });
        }
        let state = &mut self.vcpus[vcpu as usize];
        if kvm.ple_window_grow > 1 {
            let grown = state.ple_window.saturating_mul(u64::from(kvm.ple_window_grow));
            state.ple_window = grown.min(kvm.ple_window_max_ns.max(kvm.ple_window_ns));
        }
        if let Some(throttle) = kvm.throttle {
            let vm = &mut self.vms[state.vm as usize];
            let last = if throttle.whole_vm { &mut vm.last_yield } else { &mut state.last_yield };
            if last.is_some_and(|last| self.now - last < throttle.period_ns) {
                return self.plain_yield(pcpu);
            }
            *last = Some(self.now);
        }
        let state = &mut self.vcpus[vcpu as usize];
        let vm = &self.vms[state.vm as usize];
        state.in_spin_loop = true;
        state.scan_at = (vm.last_boosted + 1) % vm.vcpus;
        state.scan_left = vm.vcpus;
        state.tries = 3;
        self.scan(pcpu);
    }

    /// `kvm_sched_yield()`: the pCPU goes to a vCPU that was woken or interrupted, if that waits
    /// for one (`vcpu->ready`).
    pub(super) fn sched_yield(&mut self, pcpu: u32, to: u32) {
        let me = self.vcpu_on(pcpu);
        let thread = self.vcpus[to as usize].thread;
        let waits = self.threads[thread as usize].state == ThreadState::Ready;
        let state = &mut self.vcpus[me as usize];
        // No other is looked at.
        (state.scan_left, state.tries) = (0, 1);
        self.scanned(pcpu, waits.then_some(to));
    }

    /// `yield()`.
    fn plain_yield(&mut self, pcpu: u32) {
        self.charge(pcpu);
        let policy = &self.model.policy;
        if self.pcpus[pcpu as usize].queue.give_way(policy, &mut self.entities) {
            self.begin_schedule(pcpu);
        } else {
            self.enter(pcpu);
        }
    }

    /// Looks at candidates from where it stands until one may be yielded to.
    fn scan(&mut self, pcpu: u32) {
        let me = self.vcpu_on(pcpu);
        let vm = self.vcpus[me as usize].vm;
        let (first, count) = {
            let vm = &self.vms[vm as usize];
            (vm.first_vcpu, vm.vcpus)
        };
        let mut cost = 0;
        let mut found = None;
        while self.vcpus[me as usize].scan_left > 0 {
            let state = &mut self.vcpus[me as usize];
            let candidate = first + state.scan_at;
            state.scan_at = (state.scan_at + 1) % count;
            state.scan_left -= 1;
            if candidate == me {
                continue;
            }
            let (suits, lines) = self.looks_at(candidate);
            cost += lines * self.line(self.ns.check, self.pcpu_of(candidate), pcpu);
            if suits {
                found = Some(candidate);
                break;
            }
        }
        self.enter_phase(pcpu, PcpuActivity::Scanning(found), cost);
    }

    /// Whether `vcpu` may be yielded to, and how many cache lines that others write it takes to
    /// know: that of `vcpu->wq` and, since 3.10, `vcpu->preempted`; that of `vcpu->spin_loop`; and
    /// that of the task, whose `usage` is counted up and down to look at its `flags`
    /// (`get_pid_task()`).
    pub(super) fn looks_at(&mut self, vcpu: u32) -> (bool, u64) {
        let on_spin = self.model.kvm.on_spin;
        let state = &mut self.vcpus[vcpu as usize];
        let thread = &self.threads[state.thread as usize];
        if on_spin.skip_not_ready && thread.state != ThreadState::Ready {
            return (false, 1);
        }
        if on_spin.skip_woken && thread.woken {
            return (false, 1);
        }
        if state.halted && (state.pending.vectors == 0 || state.irqs_off) {
            return (false, 1);
        }
        if on_spin.skip_user_mode
            && thread.state == ThreadState::Ready
            && !thread.woken
            && state.kernel_work == 0
            && let Some(task) = state.queue.current()
        {
            let task = &self.tasks[task as usize];
            let user = matches!(task.activity, Activity::Work(_, class) if !class.kernel);
            if user && task.held == 0 {
                return (false, 2);
            }
        }
        // kvm_vcpu_eligible_for_directed_yield
        if on_spin.skip_spinning {
            let eligible = !state.in_spin_loop || state.dy_eligible;
            if state.in_spin_loop {
                state.dy_eligible = !state.dy_eligible;
            }
            if !eligible {
                return (false, 2);
            }
        }
        (!(on_spin.skip_in_guest && state.in_guest), 3)
    }

    /// The candidates were looked at.
    pub(super) fn scanned(&mut self, pcpu: u32, found: Option<u32>) {
        let Some(to) = found else { return self.spin_handled(pcpu) };
        let thread = self.vcpus[to as usize].thread;
        let other = self.threads[thread as usize].pcpu;
        let alone = |pcpu: u32| self.pcpus[pcpu as usize].queue.len() < 2;
        if self.model.kvm.on_spin.undercommit_check && alone(pcpu) && alone(other) {
            let me = self.vcpu_on(pcpu);
            let tries = &mut self.vcpus[me as usize].tries;
            *tries -= 1;
            if *tries == 0 {
                return self.spin_handled(pcpu);
            }
            return self.scan(pcpu);
        }
        // double_rq_lock: in the order of their addresses.
        self.account.counters.yields_tried += 1;
        let (first, second) = (pcpu.min(other), pcpu.max(other));
        self.enter_phase(pcpu, PcpuActivity::Yielding { to, first, second, held: 0 }, 0);
        if self.take_queue_lock(first, pcpu) {
            self.yield_step(pcpu, to, first, second, 0);
        }
    }

    /// It has got a lock, or has held both long enough.
    pub(super) fn yield_step(&mut self, pcpu: u32, to: u32, first: u32, second: u32, held: u8) {
        match held {
            0 if first != second => {
                self.enter_phase(pcpu, PcpuActivity::Yielding { to, first, second, held: 1 }, 0);
                if self.take_queue_lock(second, pcpu) {
                    self.yield_step(pcpu, to, first, second, 1);
                }
            }
            0 | 1 => {
                let hold = self.ns.yield_hold;
                self.enter_phase(pcpu, PcpuActivity::Yielding { to, first, second, held: 2 }, hold);
            }
            _ => self.yield_to(pcpu, to, first, second),
        }
    }

    fn yield_to(&mut self, pcpu: u32, to: u32, first: u32, second: u32) {
        let model = self.model;
        let policy = &model.policy;
        let thread = self.vcpus[to as usize].thread;
        let target = &self.threads[thread as usize];
        let other = target.pcpu;
        let waits = target.state == ThreadState::Ready && (other == first || other == second);
        let done = waits && self.pcpus[other as usize].queue.favour(policy, &self.entities, thread);
        if done {
            // yield_to_task_fair: the skip buddy is this vCPU, the next one that.
            self.charge(pcpu);
            self.pcpus[pcpu as usize].queue.give_way(policy, &mut self.entities);
            if other == pcpu {
                self.pcpus[other as usize].queue.favour(policy, &self.entities, thread);
            } else {
                self.ask_to_schedule(other);
            }
        }
        self.release_queue_lock(first);
        if second != first {
            self.release_queue_lock(second);
        }
        if !done {
            return self.scan(pcpu);
        }
        self.account.counters.yields_done += 1;
        if self.keeps_map() {
            self.map_keeps(TraceSegment::Yield { pcpu, at_ns: self.now });
        }
        let me = self.vcpu_on(pcpu);
        if self.vcpus[me as usize].in_spin_loop {
            let vm = self.vcpus[me as usize].vm as usize;
            self.vms[vm].last_boosted = self.vcpus[to as usize].own;
        }
        // yield_to() calls schedule() itself: while this vCPU waits for its pCPU it is still
        // in kvm_vcpu_on_spin(), and counts as one that spins.
        self.begin_schedule(pcpu);
    }

    fn spin_handled(&mut self, pcpu: u32) {
        let me = self.vcpu_on(pcpu);
        self.leave_spin_loop(me);
        self.enter(pcpu);
    }

    /// The end of kvm_vcpu_on_spin().
    pub(super) fn leave_spin_loop(&mut self, vcpu: u32) {
        let state = &mut self.vcpus[vcpu as usize];
        state.in_spin_loop = false;
        state.dy_eligible = false;
    }
}
