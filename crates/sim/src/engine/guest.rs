//! Inside the guests: tasks' programs, locks, wake-ups, the guest's scheduler.

use super::state::{
    Activity, BlockReason, Burden, EngineEvent, EngineState, Exit, InterruptVector, SpinReason,
    ThreadState,
};
use crate::model::{IdleIpis, Op, RepeatSteps};
use crate::queue::NEVER;
use crate::sched::balance::RunqueueView;
use crate::sched::place::{TaskWakeup, WakingCpu};
use crate::sched::{DequeueReason, EnqueueReason};

/// Steps of a program at one instant, after which it is called endless.
const MOST_HURRIED: u32 = 10_000;

/// A VM's vCPUs as the guest's scheduler sees them when it places a task.
pub(super) struct VcpuRunqueues<'a, 'm>(pub(super) &'a EngineState<'m>, pub(super) u32);

impl RunqueueView for VcpuRunqueues<'_, '_> {
    fn idle(&self, vcpu: u32) -> bool {
        self.load(vcpu) == 0
    }

    fn load(&self, vcpu: u32) -> usize {
        let first = self.0.vms[self.1 as usize].first_vcpu;
        self.0.vcpus[(first + vcpu) as usize].queue.len()
    }
}

impl EngineState<'_> {
    /// Lets the guest on `pcpu` go on until something takes time.
    pub(super) fn guest_turn(&mut self, pcpu: u32) {
        let vcpu = self.vcpu_on(pcpu);
        loop {
            let state = &mut self.vcpus[vcpu as usize];
            if state.exit_work + state.kernel_work > 0 {
                return self.arm_guest(pcpu);
            }
            if let Some(to) = state.yields_to.take() {
                return self.exit(pcpu, Exit::Yield(to));
            }
            if !state.answering.is_empty() {
                self.answer(vcpu);
                continue;
            }
            let waits = state.queue.current().is_none() && !state.queue.is_empty();
            // What an IPI is on its way for is on the queue of its handler yet.
            let waits = waits && (!state.resched_sent || self.idle_ipis(vcpu) == IdleIpis::Halted);
            let state = &self.vcpus[vcpu as usize];
            if waits || (state.resched && !self.is_atomic(vcpu)) {
                self.guest_schedule(vcpu);
                continue;
            }
            let state = &self.vcpus[vcpu as usize];
            let Some(task) = state.queue.current() else {
                if self.guest_idles(pcpu, vcpu) {
                    return;
                }
                continue;
            };
            if self.now >= state.next_tick && !state.irqs_off {
                self.guest_tick(vcpu);
                continue;
            }
            match self.tasks[task as usize].activity {
                Activity::Work(0, _) => {
                    if !self.advance(vcpu, task) {
                        return;
                    }
                }
                Activity::Spin { on, left_ns: 0 } => match on {
                    SpinReason::Lock(lock) => {
                        self.waiter_stops(task, lock);
                        return self.exit(pcpu, Exit::Halt);
                    }
                    SpinReason::Barrier(barrier) => {
                        self.block(vcpu, task, BlockReason::Barrier(barrier));
                    }
                    SpinReason::Answers => return self.arm_guest(pcpu),
                },
                Activity::Spin { on: SpinReason::Lock(lock), left_ns }
                    if self.stops_early(task, lock, left_ns) =>
                {
                    self.waiter_stops(task, lock);
                    return self.exit(pcpu, Exit::Halt);
                }
                Activity::Spin { .. } if self.now >= self.pause_deadline(vcpu) => {
                    return self.exit(pcpu, Exit::Pause);
                }
                _ => return self.arm_guest(pcpu),
            }
        }
    }

    /// When a vCPU that spins leaves the guest for it.
    fn pause_deadline(&self, vcpu: u32) -> u64 {
        let state = &self.vcpus[vcpu as usize];
        if self.model.kvm.ple && !self.vms[state.vm as usize].metal {
            state.spin_from.saturating_add(state.ple_window)
        } else {
            NEVER
        }
    }

    /// Sets when the guest's phase ends, and what it means for the siblings.
    pub(super) fn arm_guest(&mut self, pcpu: u32) {
        let vcpu = self.vcpu_on(pcpu);
        let state = &self.vcpus[vcpu as usize];
        let before = state.exit_work + state.kernel_work;
        let mut burden = Burden::Busy;
        let mut end = NEVER;
        if before > 0 {
            let speed = self.smt_speed(pcpu, false);
            self.pcpus[pcpu as usize].speed = speed;
            end = self.now + (before * 1024).div_ceil(speed);
        } else if let Some(task) = state.queue.current() {
            match self.tasks[task as usize].activity {
                Activity::Work(left, class) => {
                    let speed = self.work_speed(pcpu, vcpu, class);
                    self.pcpus[pcpu as usize].speed = speed;
                    end = self.now + left.div_ceil(speed);
                    if class.stream {
                        burden = Burden::Stream;
                    }
                }
                Activity::Spin { on, left_ns } => {
                    burden = Burden::Spin;
                    let turn = match on {
                        SpinReason::Lock(lock) if left_ns != NEVER => {
                            left_ns.min(self.until_look(lock, left_ns))
                        }
                        _ => left_ns,
                    };
                    end = self.now.saturating_add(turn).min(self.pause_deadline(vcpu));
                }
                Activity::Blocked(_) => {}
            }
            if !state.irqs_off {
                end = end.min(state.next_tick);
            }
        } else if state.asleep {
            burden = Burden::None;
        } else {
            burden = Burden::Spin;
            let poll = self.model.vms[state.vm as usize].idle_poll_ns;
            end = state.spin_from.saturating_add(poll);
        }
        self.queue.set(pcpu, end.max(self.now));
        if self.smt {
            self.set_burden(pcpu, burden);
        }
    }

    /// Nothing to do. True if the phase's end is set or the vCPU left the guest.
    fn guest_idles(&mut self, pcpu: u32, vcpu: u32) -> bool {
        let state = &mut self.vcpus[vcpu as usize];
        let poll = self.model.vms[state.vm as usize].idle_poll_ns;
        let polls = self.now < state.spin_from.saturating_add(poll);
        if polls {
            state.idle_entered = false;
            self.arm_guest(pcpu);
        } else if self.is_going_idle(vcpu) {
            self.arm_guest(pcpu);
        } else if self.halt_exits(self.vcpus[vcpu as usize].vm) {
            self.exit(pcpu, Exit::Halt);
        } else {
            self.vcpus[vcpu as usize].asleep = true;
            self.vcpus[vcpu as usize].sleep.begins(self.now);
            self.arm_guest(pcpu);
        }
        true
    }

    /// `do_idle()` on its way to `default_idle_call()`: true while there is something to do. As
    /// long as that lasts `TIF_POLLING_NRFLAG` is set: who wakes something here sends no IPI.
    fn is_going_idle(&mut self, vcpu: u32) -> bool {
        let vm = self.vcpus[vcpu as usize].vm;
        if self.model.vms[vm as usize].idle.stops_tick_first {
            // In tick_nohz_idle_enter().
            self.stop_tick(vcpu) || self.enter_idle(vcpu)
        } else {
            self.enter_idle(vcpu) || self.stop_tick(vcpu)
        }
    }

    fn enter_idle(&mut self, vcpu: u32) -> bool {
        let entry = self.ns.idle_entry;
        let state = &mut self.vcpus[vcpu as usize];
        if entry == 0 || std::mem::replace(&mut state.idle_entered, true) {
            return false;
        }
        state.kernel_work += entry;
        true
    }

    // The guest's scheduler.

    fn guest_schedule(&mut self, vcpu: u32) {
        let state = &mut self.vcpus[vcpu as usize];
        state.resched = false;
        let vm = state.vm;
        let before = state.queue.current();
        if let Some(task) = before {
            self.leave_vcpu_if_asked(vcpu, task);
        }
        let state = &self.vcpus[vcpu as usize];
        if state.queue.is_empty() && !state.idle.is_idle() && self.guest_balances(vm) {
            self.pull_task(vcpu);
        }
        let policy = &self.model.vms[vm as usize].policy;
        let state = &mut self.vcpus[vcpu as usize];
        let next = state.queue.pick(policy, &mut self.task_entities);
        if next.is_some() && next != before {
            state.kernel_work += self.ns.guest_switch;
            self.account.counters.guest_switches += 1;
        }
        // PLE and polling look at one go only.
        state.spin_from = self.now;
        state.idle_entered = false;
        if next.is_some() {
            state.idle.ends(self.now);
            self.restart_tick(vcpu);
        } else if !state.idle.is_idle() {
            state.idle.begins(self.now);
        }
        if let Some(task) = before.filter(|_| next != before) {
            let task = &mut self.tasks[task as usize];
            (task.ran_until, task.ready_since) = (self.now, self.now);
        }
        if next != before {
            self.look_at_lock(vcpu);
        }
    }

    /// A task leaves the CPU.
    pub(super) fn block(&mut self, vcpu: u32, task: u32, on: BlockReason) {
        let state = &mut self.tasks[task as usize];
        state.activity = Activity::Blocked(on);
        state.runnable.changes(self.now, true);
        state.ran_until = self.now;
        state.migrate_to = None;
        let state = &mut self.vcpus[vcpu as usize];
        let policy = &self.model.vms[state.vm as usize].policy;
        state.queue.dequeue(policy, &mut self.task_entities, task, DequeueReason::Sleep);
        state.resched = true;
        state.spin_from = self.now;
    }

    /// Wakes a task; `by` is the vCPU that does it, if one does, whose task is about to
    /// sleep where `sync` says so.
    pub(super) fn wake_task(&mut self, task: u32, by: Option<u32>, sync: bool) {
        let state = &mut self.tasks[task as usize];
        let vm = state.vm;
        let model = &self.model.vms[vm as usize];
        let first = self.vms[vm as usize].first_vcpu;
        if !matches!(state.activity, Activity::Blocked(_)) {
            return;
        }
        state.activity = Activity::Work(0, crate::model::WorkClass::KERNEL);
        state.runnable.changes(self.now, false);
        let before = state.vcpu - first;
        let own = match model.tasks[state.own as usize].pin {
            Some(vcpu) => vcpu,
            // ttwu_runnable: who still competes stays where it does.
            None if self.task_entities[task as usize].delayed => before,
            None => self.place_woken(task, by, sync),
        };
        if let Some(by) = by {
            self.vcpus[by as usize].kernel_work += self.ns.guest_wake;
        }
        let target = first + own;
        if own != before {
            for other in [own, before].map(|own| first + own) {
                if Some(other) != by
                    && let Some(pcpu) = self.guest_pcpu(other)
                {
                    self.settle(pcpu);
                }
            }
            let [here, there] = [own, before].map(|own| &self.vcpus[(first + own) as usize].queue);
            here.adopt(&model.policy, &mut self.task_entities[task as usize], there);
        }
        match by.filter(|by| self.is_left_to(target, task, *by)) {
            Some(by) => self.leave_task(task, target, by),
            None => self.put_task(task, target, by, EnqueueReason::Wakeup),
        }
    }

    /// `ttwu_queue_cond()`: whether the busy vCPU `target` is to take on its queue a task which
    /// `by` wakes. An idle one sees or is told of it by [`Self::put_task`].
    fn is_left_to(&self, target: u32, task: u32, by: u32) -> bool {
        let is_busy = by != target && self.vcpus[target as usize].queue.current().is_some();
        let shares_cache = || match self.idle_ipis(target) {
            IdleIpis::All => false,
            IdleIpis::Halted | IdleIpis::AcrossCaches => self.share_cache(by, target),
        };
        is_busy
            && self.model.mechanisms.queued_wakeups
            && !self.task_entities[task as usize].delayed
            && !shares_cache()
    }

    /// `ttwu_queue_remote()`: the first task that is left to a vCPU interrupts it.
    fn leave_task(&mut self, task: u32, target: u32, by: u32) {
        let state = &mut self.tasks[task as usize];
        state.ready_since = self.now;
        if std::mem::replace(&mut state.vcpu, target) != target {
            self.account.counters.guest_migrations += 1;
        }
        let wakeups = &mut self.vcpus[target as usize].pending.wakeups;
        wakeups.push(task);
        if wakeups.len() == 1 {
            self.send_interrupt(by, target, InterruptVector::Reschedule, true);
        }
    }

    /// Which of the VM's vCPUs a task that wakes goes to.
    fn place_woken(&mut self, task: u32, by: Option<u32>, sync: bool) -> u32 {
        let vm = self.tasks[task as usize].vm;
        let model = &self.model.vms[vm as usize];
        let (machine, kernel) = (&model.machine, model.policy.kernel);
        let first = self.vms[vm as usize].first_vcpu;
        let here = by.unwrap_or(self.tasks[task as usize].vcpu);
        let current = by.and_then(|by| self.vcpus[by as usize].queue.current());
        let mut waker = by.map(|by| WakingCpu {
            cpu: by - first,
            current_load: current.map_or(0, |task| self.task_load(task)),
            is_wide: false,
            sync,
        });
        if let Some((current, waker)) = current.zip(waker.as_mut()) {
            let now = self.now;
            self.tasks[current as usize].flips.record(task, now);
            let [mine, its] = [current, task].map(|task| self.tasks[task as usize].flips);
            waker.is_wide = mine.is_wide(its, kernel, machine.near(waker.cpu));
        }
        let wakeup = TaskWakeup {
            kernel,
            before: self.tasks[task as usize].vcpu - first,
            waker,
            load: self.task_load(task),
            idle: self.vcpus[here as usize].idle,
            look_ns: self.ns.check,
        };
        wakeup.place(machine, &VcpuRunqueues(self, vm), |_| true)
    }

    /// Puts a task on a vCPU's queue, and lets that vCPU know if it is to run there at once;
    /// `by` is the vCPU that does it, if one does.
    pub(super) fn put_task(&mut self, task: u32, target: u32, by: Option<u32>, why: EnqueueReason) {
        let vm = self.tasks[task as usize].vm;
        let model = &self.model.vms[vm as usize];
        if self.tasks[task as usize].vcpu != target {
            self.tasks[task as usize].vcpu = target;
            self.account.counters.guest_migrations += 1;
        }
        self.tasks[task as usize].ready_since = self.now;
        if Some(target) != by
            && let Some(pcpu) = self.guest_pcpu(target)
        {
            self.settle(pcpu);
        }
        let state = &mut self.vcpus[target as usize];
        state.idle.ends(self.now);
        state.queue.enqueue(&model.policy, &mut self.task_entities, task, why);
        if !state.queue.preempts(&model.policy, &self.task_entities, task) {
            return;
        }
        if !state.resched {
            state.queue.preempted_by(&model.policy, task, true);
        }
        let by = by.filter(|by| *by != target);
        let idle = state.in_guest && state.queue.current().is_none();
        if idle && by.is_some_and(|by| self.is_queued_by_ipi(by, target)) {
            // ttwu_queue_remote: what it does meanwhile it does to its end.
        } else {
            self.vcpus[target as usize].resched = true;
        }
        let Some(by) = by else { return };
        let state = &self.vcpus[target as usize];
        // TIF_POLLING_NRFLAG: who polls, or is on the way to its idle state, sees it without an
        // interrupt. So does a pCPU that waits by MWAIT.
        let waits = self.vms[vm as usize].metal && self.model.mechanisms.idle_entry;
        let polls = idle && (!state.asleep || waits) && !self.is_queued_by_ipi(by, target);
        if polls {
            let pcpu = self.guest_pcpu(target).expect("it is in guest mode");
            let delay = self.vcpus[by as usize].exit_work + self.vcpus[by as usize].kernel_work;
            let seen = self.line(self.ns.handoff, self.pcpu_of(by), pcpu) + delay;
            let state = &mut self.vcpus[target as usize];
            if std::mem::take(&mut state.asleep) {
                state.exit_work += seen + state.sleep.ends(self.now, &self.ns);
            } else {
                // What it does on its way is done meanwhile.
                let left = state.exit_work + state.kernel_work;
                state.kernel_work += seen.saturating_sub(left);
            }
            self.arm_guest(pcpu);
        } else if !self.vcpus[target as usize].resched_sent {
            self.vcpus[target as usize].resched_sent = true;
            self.send_interrupt(by, target, InterruptVector::Reschedule, true);
        }
    }

    fn idle_ipis(&self, vcpu: u32) -> IdleIpis {
        self.model.vms[self.vcpus[vcpu as usize].vm as usize].idle.ipis
    }

    /// `ttwu_queue()`: whether `by` wakes tasks of the idle vCPU `target` by an IPI alone.
    fn is_queued_by_ipi(&self, by: u32, target: u32) -> bool {
        match self.idle_ipis(target) {
            IdleIpis::Halted => false,
            IdleIpis::AcrossCaches => !self.share_cache(by, target),
            IdleIpis::All => true,
        }
    }

    /// `cpus_share_cache()` of two vCPUs of a VM, as its kernel sees them.
    fn share_cache(&self, one: u32, other: u32) -> bool {
        let machine = &self.model.vms[self.vcpus[one as usize].vm as usize].machine;
        let cache = |vcpu: u32| machine.place(self.vcpus[vcpu as usize].own).cache;
        cache(one) == cache(other)
    }

    /// A task has slept long enough: its vCPU gets a timer's interrupt.
    pub(super) fn timer(&mut self, task: u32) {
        let vcpu = self.tasks[task as usize].vcpu;
        self.vcpus[vcpu as usize].timer_at = NEVER;
        self.vcpus[vcpu as usize].pending.timers.push(task);
        self.interrupt(vcpu, InterruptVector::Timer, None);
    }

    // Programs.

    /// Does the next step of a task that runs on `vcpu`. False if the vCPU left
    /// the guest or the run is over.
    fn advance(&mut self, vcpu: u32, task: u32) -> bool {
        let state = &mut self.tasks[task as usize];
        let vm = state.vm;
        let program = &self.model.vms[vm as usize].tasks[state.own as usize].program;
        let op = program[state.at];
        state.at = (state.at + 1) % program.len();
        if state.stepped_at != self.now {
            (state.stepped_at, state.hurried) = (self.now, 0);
        }
        state.hurried += 1;
        self.vms[vm as usize].progress += 1;
        if state.hurried > MOST_HURRIED {
            self.stuck = Some(self.takes_no_time(task));
            return false;
        }
        let (locks, barriers, channels) = {
            let vm = &self.vms[vm as usize];
            (vm.first_lock, vm.first_barrier, vm.first_channel)
        };
        match op {
            Op::Work(duration, class) => {
                let left = duration.draw(&mut self.random).min(NEVER / 4096) * 1024;
                self.tasks[task as usize].activity = Activity::Work(left, class);
            }
            Op::Lock(lock) => self.lock(vcpu, task, locks + lock),
            Op::Unlock(lock) => self.unlock(vcpu, task, locks + lock),
            Op::Barrier(barrier) => self.arrive_at(vcpu, task, barriers + barrier),
            Op::Send(channel) => self.send(vcpu, task, channels + channel),
            Op::Receive(channel) => self.receive(vcpu, task, channels + channel),
            Op::Flush => self.call_others(vcpu, task, false),
            Op::Call => self.call_others(vcpu, task, true),
            Op::Sleep(duration) => {
                let wait = duration.draw(&mut self.random).max(1);
                let due = self.now.saturating_add(wait);
                self.arm_timer(vcpu, due);
                self.queue.push(due, EngineEvent::TaskTimer(task));
                self.block(vcpu, task, BlockReason::Timer);
            }
            Op::Repeat(RepeatSteps { steps, times, depth }) => {
                let state = &mut self.tasks[task as usize];
                let round = &mut state.rounds[depth as usize];
                *round += 1;
                if *round < times {
                    let end = state.at.checked_sub(1).unwrap_or(program.len() - 1);
                    state.at = end - steps as usize;
                } else {
                    *round = 0;
                }
            }
            Op::Pages(step) => {
                if !self.move_pages(vcpu, locks + step.zone, step) {
                    let state = &mut self.tasks[task as usize];
                    state.at = (state.at + step.steps as usize) % program.len();
                }
            }
            Op::Begin => self.tasks[task as usize].began = self.now + 1,
            Op::Done(meter) => self.count_done(task, meter),
        }
        true
    }

    pub(super) fn spin(&mut self, vcpu: u32, task: u32, on: SpinReason, left_ns: u64) {
        self.tasks[task as usize].activity = Activity::Spin { on, left_ns };
        self.vcpus[vcpu as usize].spin_from = self.now;
    }

    /// Lets a task that spins or sleeps go on; `by` is the vCPU that makes it so, and `sync`
    /// says that its task is about to sleep (`WF_SYNC`).
    pub(super) fn release(&mut self, task: u32, by: u32, sync: bool) {
        match self.tasks[task as usize].activity {
            Activity::Blocked(_) => self.wake_task(task, Some(by), sync),
            Activity::Spin { .. } => {
                let vcpu = self.tasks[task as usize].vcpu;
                let pcpu = self.guest_pcpu(vcpu).filter(|_| vcpu != by);
                if let Some(pcpu) = pcpu {
                    self.settle(pcpu);
                }
                let wait = 1024 * self.line(self.ns.handoff, self.pcpu_of(by), self.pcpu_of(vcpu));
                self.tasks[task as usize].activity =
                    Activity::Work(wait, crate::model::WorkClass::KERNEL);
                if let Some(pcpu) = pcpu {
                    self.arm_guest(pcpu);
                } else if self.vcpus[vcpu as usize].halted {
                    self.kick_waiter(vcpu, by);
                }
            }
            Activity::Work(..) => {}
        }
    }

    fn arrive_at(&mut self, vcpu: u32, task: u32, barrier: u32) {
        let state = &mut self.barriers[barrier as usize];
        let model = &self.model.vms[state.vm as usize].barriers[state.own as usize];
        state.arrived.push(task);
        if state.arrived.len() < model.parties as usize {
            let spin_ns = model.spin_ns;
            if spin_ns == 0 {
                self.block(vcpu, task, BlockReason::Barrier(barrier));
            } else {
                self.spin(vcpu, task, SpinReason::Barrier(barrier), spin_ns);
            }
            return;
        }
        let arrived = std::mem::take(&mut state.arrived);
        for other in arrived.into_iter().filter(|other| *other != task) {
            self.release(other, vcpu, false);
        }
    }

    fn send(&mut self, vcpu: u32, task: u32, channel: u32) {
        let state = &mut self.channels[channel as usize];
        let capacity = self.model.vms[state.vm as usize].channels[state.own as usize].capacity;
        if let Some(receiver) = state.receivers.pop_front() {
            // Pipes say that their writers and readers take turns; semaphores do not.
            self.release(receiver, vcpu, capacity < u64::MAX);
        } else if state.level < capacity {
            state.level += 1;
        } else {
            state.senders.push_back(task);
            self.block(vcpu, task, BlockReason::Full(channel));
        }
    }

    fn receive(&mut self, vcpu: u32, task: u32, channel: u32) {
        let state = &mut self.channels[channel as usize];
        let capacity = self.model.vms[state.vm as usize].channels[state.own as usize].capacity;
        if let Some(sender) = state.senders.pop_front() {
            self.release(sender, vcpu, capacity < u64::MAX);
        } else if state.level > 0 {
            state.level -= 1;
        } else {
            state.receivers.push_back(task);
            self.block(vcpu, task, BlockReason::Empty(channel));
        }
    }

    /// Interrupts all others, for a flush of TLBs those that are not idle, and waits for their
    /// answers.
    pub(super) fn call_others(&mut self, vcpu: u32, task: u32, idle_too: bool) {
        let state = &self.vcpus[vcpu as usize];
        let vm = &self.vms[state.vm as usize];
        let (kvm, metal, first) = (&self.model.kvm, vm.metal, vm.first_vcpu);
        let repeats = self.model.vms[state.vm as usize].repeats_call_ipis;
        let others: Vec<u32> = (first..first + vm.vcpus)
            .filter(|other| *other != vcpu)
            .filter(|other| {
                let other = &self.vcpus[*other as usize];
                let runs = other.in_guest || !kvm.pv_tlb_flush || metal;
                idle_too || (other.queue.current().is_some() && runs)
            })
            .collect();
        if others.is_empty() {
            return;
        }
        // KVM_IPI_CLUSTER_SIZE; __x2apic_send_IPI_mask(), which goes by APIC IDs.
        let of_one_exit = if kvm.pv_ipi { 128 } else { kvm.ipi_cluster.max(1) };
        let mut last = None;
        for other in others.iter().copied() {
            let calls = &mut self.vcpus[other as usize].pending.answer;
            calls.push(task);
            if calls.len() == 1 || repeats {
                let group = (other - first) / of_one_exit;
                let exits = last.replace(group) != Some(group);
                self.send_interrupt(vcpu, other, InterruptVector::CallFunction, exits);
            }
        }
        let runs = |vcpu: u32| {
            let thread = self.vcpus[vcpu as usize].thread;
            self.threads[thread as usize].state == ThreadState::Running
        };
        if kvm.pv_sched_yield && !metal {
            // kvm_smp_send_call_func_ipi; who is halted has vcpu_is_preempted() too.
            let waited_for = others.iter().copied().find(|other| !runs(*other));
            self.vcpus[vcpu as usize].yields_to = waited_for;
        }
        let state = &mut self.tasks[task as usize];
        state.answers_missing = others.len() as u32;
        // smp_call_function_many() runs with preemption off.
        state.atomic += 1;
        self.spin(vcpu, task, SpinReason::Answers, NEVER);
    }

    /// The handler of a flush is done: its sender may go on.
    fn answer(&mut self, vcpu: u32) {
        for sender in std::mem::take(&mut self.vcpus[vcpu as usize].answering) {
            let state = &mut self.tasks[sender as usize];
            state.answers_missing = state.answers_missing.saturating_sub(1);
            if state.answers_missing == 0 {
                state.atomic = state.atomic.saturating_sub(1);
                self.release(sender, vcpu, false);
            }
        }
    }
}
