//! The host's scheduler: schedule(), run-queue locks, wake-ups, ticks.

use super::state::{Burden, EngineEvent, EngineState, Exit, PcpuActivity, ThreadKind, ThreadState};
use crate::queue::NEVER;
use crate::sched::balance::RunqueueView;
use crate::sched::place::{TaskWakeup, WakingCpu};
use crate::sched::{DequeueReason, EnqueueReason};

/// What placement asks about pCPUs.
pub(super) struct HostView<'a, 'm>(pub(super) &'a EngineState<'m>);

impl RunqueueView for HostView<'_, '_> {
    fn idle(&self, pcpu: u32) -> bool {
        self.0.pcpus[pcpu as usize].queue.is_empty()
    }

    fn load(&self, pcpu: u32) -> usize {
        self.0.pcpus[pcpu as usize].queue.len()
    }
}

impl EngineState<'_> {
    /// Ends the pCPU's phase and begins another that lasts `ns`, or until
    /// something else ends it.
    pub(super) fn enter_phase(&mut self, pcpu: u32, doing: PcpuActivity, ns: u64) {
        self.settle(pcpu);
        let ns = match doing {
            // The kernel's code is slowed as all is; a state that is left, or a poll, is not.
            PcpuActivity::Exiting(_)
            | PcpuActivity::Entering
            | PcpuActivity::Scanning(_)
            | PcpuActivity::Yielding { .. }
            | PcpuActivity::SchedHold
            | PcpuActivity::Switching
            | PcpuActivity::GoingIdle
            | PcpuActivity::Halting
                if self.smt && ns > 0 =>
            {
                (ns * 1024).div_ceil(self.smt_speed(pcpu, false))
            }
            _ => ns,
        };
        let state = &mut self.pcpus[pcpu as usize];
        state.doing = doing;
        self.queue.set(pcpu, self.now.saturating_add(ns));
        if self.smt {
            let burden = if doing == PcpuActivity::Idle { Burden::None } else { Burden::Busy };
            self.set_burden(pcpu, burden);
        }
    }

    /// Tells the siblings how this pCPU weighs on them.
    pub(super) fn set_burden(&mut self, pcpu: u32, burden: Burden) {
        if self.pcpus[pcpu as usize].burden == burden {
            return;
        }
        self.pcpus[pcpu as usize].burden = burden;
        let model = self.model;
        for &sibling in model.machine.siblings(pcpu) {
            match self.pcpus[sibling as usize].doing {
                PcpuActivity::Guest => {
                    self.settle(sibling);
                    self.arm_guest(sibling);
                }
                PcpuActivity::HostTask => {
                    self.settle(sibling);
                    self.arm_host_task(sibling);
                }
                _ => {}
            }
        }
    }

    /// The phase's end on `pcpu`.
    pub(super) fn phase_ends(&mut self, pcpu: u32) {
        match self.pcpus[pcpu as usize].doing {
            PcpuActivity::Idle => {}
            PcpuActivity::GoingIdle => self.idles(pcpu),
            PcpuActivity::Waking => self.begin_schedule(pcpu),
            PcpuActivity::SchedLock => {
                let hold = self.ns.sched_hold;
                self.enter_phase(pcpu, PcpuActivity::SchedHold, hold);
            }
            PcpuActivity::SchedHold => self.choose(pcpu),
            PcpuActivity::Switching => self.switched(pcpu),
            PcpuActivity::HostTask => self.host_task_pauses(pcpu),
            PcpuActivity::Guest => {
                self.settle(pcpu);
                self.guest_turn(pcpu);
            }
            PcpuActivity::Exiting(exit) => self.exited(pcpu, exit),
            PcpuActivity::Entering => self.entered(pcpu),
            PcpuActivity::HaltPoll => self.poll_ends(pcpu),
            PcpuActivity::Halting => self.halts(pcpu),
            PcpuActivity::Scanning(found) => self.scanned(pcpu, found),
            PcpuActivity::Yielding { to, first, second, held } => {
                self.yield_step(pcpu, to, first, second, held);
            }
        }
    }

    // The locks of run queues.

    /// Asks for the lock of `queue`'s run queue on behalf of `pcpu`. True if it
    /// has it now; else its phase ends when it has.
    pub(super) fn take_queue_lock(&mut self, queue: u32, pcpu: u32) -> bool {
        if !self.model.mechanisms.queue_locks {
            return true;
        }
        let lock = &mut self.pcpus[queue as usize].lock;
        if lock.holder.is_none() {
            lock.holder = Some(pcpu);
            true
        } else {
            lock.waiters.push_back(pcpu);
            self.queue.set(pcpu, NEVER);
            false
        }
    }

    /// Gives it back; the next waiter has it after the line has moved to it.
    pub(super) fn release_queue_lock(&mut self, queue: u32) {
        if !self.model.mechanisms.queue_locks {
            return;
        }
        let lock = &mut self.pcpus[queue as usize].lock;
        let before = lock.holder;
        lock.holder = lock.waiters.pop_front();
        if let Some(next) = lock.holder {
            let crowd = lock.waiters.len() as u64;
            let line = self.line(self.ns.lock_transfer, before.unwrap_or(next), next);
            let moved = line + self.ns.lock_waiter * crowd;
            self.queue.set(next, self.now + moved);
        }
    }

    /// How long a cache line that takes `ns` within a node takes from one pCPU to another.
    #[inline]
    pub(super) fn line(&self, ns: u64, from: u32, to: u32) -> u64 {
        let machine = &self.model.machine;
        if machine.place(from).node == machine.place(to).node {
            ns
        } else {
            ns * self.ns.remote_line / 1024
        }
    }

    // schedule().

    /// Gives the running thread its time.
    pub(super) fn charge(&mut self, pcpu: u32) {
        let state = &mut self.pcpus[pcpu as usize];
        let delta = self.now - state.charged;
        state.charged = self.now;
        if delta > 0 {
            state.queue.charge(&mut self.entities, delta);
            if !self.groups.is_empty() {
                self.spend(pcpu, delta);
            }
        }
    }

    /// schedule(): first its own run queue's lock.
    pub(super) fn begin_schedule(&mut self, pcpu: u32) {
        self.enter_phase(pcpu, PcpuActivity::SchedLock, 0);
        if self.take_queue_lock(pcpu, pcpu) {
            let hold = self.ns.sched_hold;
            self.enter_phase(pcpu, PcpuActivity::SchedHold, hold);
        }
    }

    /// Chooses who runs next, with the lock held.
    fn choose(&mut self, pcpu: u32) {
        self.settle(pcpu);
        self.charge(pcpu);
        let model = self.model;
        let policy = &model.policy;
        let before = self.pcpus[pcpu as usize].queue.current();
        if let Some(thread) = before {
            self.leave_if_asked(pcpu, thread);
        }
        if !self.groups.is_empty() {
            self.throttle_spent(pcpu);
        }
        if self.pcpus[pcpu as usize].queue.is_empty() && self.balances() {
            self.pull(pcpu);
        }
        let state = &mut self.pcpus[pcpu as usize];
        let next = match model.gang_ns {
            Some(_) => {
                let chosen = self.gang_choice(pcpu);
                let state = &mut self.pcpus[pcpu as usize];
                state.queue.run(&mut self.entities, chosen);
                chosen
            }
            None => state.queue.pick(policy, &mut self.entities),
        };
        let state = &mut self.pcpus[pcpu as usize];
        state.resched = false;
        self.release_queue_lock(pcpu);
        if next != before {
            if let Some(thread) = before {
                self.map_leaves(pcpu, thread);
                self.threads[thread as usize].ran_until = self.now;
                if self.threads[thread as usize].state == ThreadState::Running {
                    self.threads[thread as usize].state = ThreadState::Ready;
                    self.threads[thread as usize].ready_since = self.now;
                }
            }
            self.pcpus[pcpu as usize].switched_in = self.now;
        }
        match next {
            None => {
                self.pcpus[pcpu as usize].idle.begins(self.now);
                match self.ns.idle_entry {
                    0 => self.idles(pcpu),
                    entry => self.enter_phase(pcpu, PcpuActivity::GoingIdle, entry),
                }
            }
            Some(_) if next == before => self.resume(pcpu),
            Some(thread) => {
                let state = &mut self.threads[thread as usize];
                state.state = ThreadState::Running;
                state.woken = false;
                self.account.counters.waited_ns += self.now - state.ready_since;
                self.account.counters.host_switches += 1;
                let cost = self.ns.switch;
                self.enter_phase(pcpu, PcpuActivity::Switching, cost);
            }
        }
    }

    /// The end of `do_idle()`'s way to its state: what was woken meanwhile runs at once
    /// (`TIF_POLLING_NRFLAG`, `need_resched()`), and nobody has sent an IPI for it.
    fn idles(&mut self, pcpu: u32) {
        if !self.pcpus[pcpu as usize].queue.is_empty() {
            self.pcpus[pcpu as usize].idle.ends(self.now);
            return self.begin_schedule(pcpu);
        }
        self.pcpus[pcpu as usize].sleep.begins(self.now);
        self.enter_phase(pcpu, PcpuActivity::Idle, NEVER - self.now);
    }

    /// Takes a thread that blocks or moves off its queue.
    fn leave_if_asked(&mut self, pcpu: u32, thread: u32) {
        let state = &mut self.threads[thread as usize];
        if std::mem::take(&mut state.blocking) {
            state.runnable.changes(self.now, true);
            state.state = ThreadState::Blocked;
            state.migrate_to = None;
            self.take_off(pcpu, thread, DequeueReason::Sleep);
        } else if let Some(to) = state.migrate_to.take() {
            state.state = ThreadState::Ready;
            state.ready_since = self.now;
            self.take_off(pcpu, thread, DequeueReason::Migrate);
            self.arrive(to, thread, EnqueueReason::Migrate);
        }
    }

    /// Who of the VM whose turn it is runs here; the host's own tasks first.
    fn gang_choice(&self, pcpu: u32) -> Option<u32> {
        let members: Vec<u32> = self.pcpus[pcpu as usize].queue.members().collect();
        let vm_of = |thread: u32| match self.threads[thread as usize].kind {
            ThreadKind::Vcpu(vcpu) => Some(self.vcpus[vcpu as usize].vm),
            ThreadKind::Host(_) => None,
        };
        let own = members.iter().copied().find(|thread| vm_of(*thread).is_none());
        if own.is_some() {
            return own;
        }
        let mut vms: Vec<u32> = members.iter().filter_map(|thread| vm_of(*thread)).collect();
        vms.sort_unstable();
        vms.dedup();
        let turn = *vms.get((self.gang_turn % vms.len().max(1) as u64) as usize)?;
        let of_turn = members.iter().copied().filter(|thread| vm_of(*thread) == Some(turn));
        of_turn.min_by_key(|thread| (self.entities[*thread as usize].vruntime, *thread))
    }

    /// The next gang's turn, on all pCPUs at once.
    pub(super) fn gang_turn(&mut self) {
        self.gang_turn += 1;
        for pcpu in 0..self.pcpus.len() as u32 {
            if self.pcpus[pcpu as usize].queue.len() > 1 {
                self.ask_to_schedule(pcpu);
            }
        }
        let turn = self.model.gang_ns.unwrap_or(NEVER);
        self.queue.push(self.now.saturating_add(turn), EngineEvent::GangTurn);
    }

    /// The end of context_switch(): preempt notifiers tell KVM that its vCPU is on a pCPU.
    /// schedule() that chooses who ran before does not come here.
    fn switched(&mut self, pcpu: u32) {
        if let Some(thread) = self.pcpus[pcpu as usize].queue.current() {
            self.threads[thread as usize].pcpu = pcpu;
            if let ThreadKind::Vcpu(vcpu) = self.threads[thread as usize].kind {
                self.sched_in(vcpu);
            }
        }
        self.resume(pcpu);
    }

    /// The chosen thread goes on.
    fn resume(&mut self, pcpu: u32) {
        let Some(thread) = self.pcpus[pcpu as usize].queue.current() else {
            return self.begin_schedule(pcpu);
        };
        match self.threads[thread as usize].kind {
            ThreadKind::Vcpu(vcpu) => {
                self.leave_spin_loop(vcpu);
                self.enter(pcpu);
            }
            ThreadKind::Host(_) => {
                self.enter_phase(pcpu, PcpuActivity::HostTask, NEVER - self.now);
                self.arm_host_task(pcpu);
            }
        }
    }

    // The host's own tasks.

    pub(super) fn arm_host_task(&mut self, pcpu: u32) {
        let Some(thread) = self.pcpus[pcpu as usize].queue.current() else { return };
        let ThreadKind::Host(task) = self.threads[thread as usize].kind else { return };
        let speed = self.smt_speed(pcpu, false);
        self.pcpus[pcpu as usize].speed = speed;
        let end = if self.model.host_tasks[task as usize].burst.is_some() {
            self.now + self.threads[thread as usize].left.div_ceil(speed)
        } else {
            NEVER
        };
        self.queue.set(pcpu, end);
    }

    /// Its burst is done: it sleeps.
    fn host_task_pauses(&mut self, pcpu: u32) {
        self.settle(pcpu);
        let Some(thread) = self.pcpus[pcpu as usize].queue.current() else { return };
        let ThreadKind::Host(task) = self.threads[thread as usize].kind else { return };
        if let Some((_, sleep)) = self.model.host_tasks[task as usize].burst {
            if self.threads[thread as usize].left > 0 {
                return self.arm_host_task(pcpu);
            }
            self.threads[thread as usize].blocking = true;
            let wait = sleep.draw(&mut self.random);
            self.queue.push(self.now.saturating_add(wait.max(1)), EngineEvent::HostTimer(thread));
        }
        self.begin_schedule(pcpu);
    }

    // Wake-ups and preemption.

    /// try_to_wake_up(); `by` is the thread that does it, if one does.
    pub(super) fn wake_thread(&mut self, thread: u32, by: Option<u32>) {
        if let ThreadKind::Host(task) = self.threads[thread as usize].kind
            && let Some((run, _)) = self.model.host_tasks[task as usize].burst
        {
            let run = run.draw(&mut self.random).min(NEVER / 4096);
            self.threads[thread as usize].left = run * 1024;
        }
        let state = &mut self.threads[thread as usize];
        state.blocking = false;
        if state.state != ThreadState::Blocked {
            return;
        }
        state.runnable.changes(self.now, false);
        state.state = ThreadState::Ready;
        state.woken = true;
        state.ready_since = self.now;
        let before = state.pcpu;
        // ttwu_runnable: who still competes stays where it does.
        let pcpu = if !self.movable || self.entities[thread as usize].delayed {
            before
        } else {
            self.place_woken_thread(thread, by)
        };
        if pcpu != before {
            self.charge(before);
            self.charge(pcpu);
            let [here, there] = [pcpu, before].map(|pcpu| &self.pcpus[pcpu as usize].queue);
            here.adopt(&self.model.policy, &mut self.entities, thread, there);
        }
        self.arrive(pcpu, thread, EnqueueReason::Wakeup);
    }

    /// The pCPU for a thread that wakes.
    fn place_woken_thread(&mut self, thread: u32, by: Option<u32>) -> u32 {
        let (machine, kernel) = (&self.model.machine, self.model.policy.kernel);
        let before = self.threads[thread as usize].pcpu;
        let waker = by.map(|by| {
            let now = self.now;
            let cpu = self.threads[by as usize].pcpu;
            self.threads[by as usize].flips.record(thread, now);
            let [mine, its] = [by, thread].map(|thread| self.threads[thread as usize].flips);
            let current_load = self.balance_load(cpu, by);
            let is_wide = mine.is_wide(its, kernel, machine.near(cpu));
            WakingCpu { cpu, current_load, is_wide, sync: false }
        });
        let wakeup = TaskWakeup {
            kernel,
            before,
            waker,
            load: self.balance_load(before, thread),
            idle: self.pcpus[waker.map_or(before, |waker| waker.cpu) as usize].idle,
            look_ns: self.ns.check,
        };
        let allowed = |pcpu: u32| self.threads[thread as usize].may_run_on(pcpu);
        wakeup.place(machine, &HostView(self), allowed)
    }

    /// Puts a waiting thread on the queue of `pcpu`, and looks whether it runs
    /// there at once.
    pub(super) fn arrive(&mut self, pcpu: u32, thread: u32, why: EnqueueReason) {
        if self.threads[thread as usize].pcpu != pcpu {
            self.threads[thread as usize].pcpu = pcpu;
            self.account.counters.host_migrations += 1;
        }
        self.charge(pcpu);
        self.put_on(pcpu, thread, why);
        let policy = &self.model.policy;
        let state = &mut self.pcpus[pcpu as usize];
        if state.doing == PcpuActivity::Idle {
            // Unless its group is throttled.
            if !state.queue.is_empty() {
                self.wake_pcpu(pcpu);
            }
        } else if state.doing == PcpuActivity::GoingIdle {
            // It looks itself.
        } else if state.queue.preempts(policy, &self.entities, thread) {
            if !state.resched {
                state.queue.preempted_by(policy, &self.entities, thread);
            }
            self.ask_to_schedule(pcpu);
        }
    }

    /// An idle pCPU leaves its state to schedule. It waits by MWAIT for a line that is written
    /// (`mwait_idle_with_hints()`, `set_nr_and_not_polling()`).
    pub(super) fn wake_pcpu(&mut self, pcpu: u32) {
        self.pcpus[pcpu as usize].idle.ends(self.now);
        let sleep = &mut self.pcpus[pcpu as usize].sleep;
        let wake = self.ns.idle_signal + sleep.ends(self.now, &self.ns);
        self.enter_phase(pcpu, PcpuActivity::Waking, wake);
    }

    /// resched_curr().
    pub(super) fn ask_to_schedule(&mut self, pcpu: u32) {
        let state = &mut self.pcpus[pcpu as usize];
        state.resched = true;
        if matches!(
            state.doing,
            PcpuActivity::Guest | PcpuActivity::HostTask | PcpuActivity::HaltPoll
        ) && !state.kick_pending
        {
            state.kick_pending = true;
            self.queue.push(self.now + self.ns.resched_ipi, EngineEvent::Kick(pcpu));
        }
    }

    /// A resched IPI arrives.
    pub(super) fn kicked(&mut self, pcpu: u32) {
        self.pcpus[pcpu as usize].kick_pending = false;
        if self.pcpus[pcpu as usize].resched {
            self.preempt(pcpu);
        }
    }

    fn preempt(&mut self, pcpu: u32) {
        match self.pcpus[pcpu as usize].doing {
            PcpuActivity::Guest => self.exit(pcpu, Exit::Kick),
            PcpuActivity::HostTask => {
                self.settle(pcpu);
                self.begin_schedule(pcpu);
            }
            PcpuActivity::HaltPoll => self.poll_ends(pcpu),
            // All others look at the flag when they are done.
            _ => {}
        }
    }

    /// The tick: accounts, and ends turns.
    pub(super) fn tick(&mut self, pcpu: u32) {
        let policy = &self.model.policy;
        self.queue.push(self.now + policy.tick_ns.max(1), EngineEvent::Tick(pcpu));
        let state = &self.pcpus[pcpu as usize];
        if matches!(state.doing, PcpuActivity::Idle | PcpuActivity::GoingIdle) {
            if self.balances() {
                self.rebalance_idle(pcpu);
            }
            return;
        }
        self.settle(pcpu);
        self.charge(pcpu);
        if !self.groups.is_empty() {
            self.weigh_current(pcpu);
        }
        let state = &mut self.pcpus[pcpu as usize];
        let over = state.queue.tick(policy, &mut self.entities) && self.model.gang_ns.is_none();
        state.resched |= over;
        // sched_tick: the softirq that balances comes behind.
        if self.balances() && self.now >= self.pcpus[pcpu as usize].balance.next_ns {
            self.rebalance(pcpu);
        }
        if self.pcpus[pcpu as usize].resched {
            return self.preempt(pcpu);
        }
        if self.pcpus[pcpu as usize].doing == PcpuActivity::Guest {
            let vcpu = self.vcpu_on(pcpu);
            let metal = self.vms[self.vcpus[vcpu as usize].vm as usize].metal;
            let exit = if metal { 0 } else { self.ns.exit + self.ns.entry };
            self.vcpus[vcpu as usize].exit_work += self.ns.tick_work + exit;
            self.vcpus[vcpu as usize].spin_from = self.now;
            self.arm_guest(pcpu);
        }
    }
}
