//! Guests' locks: who has them, who waits how, and what holding them keeps off.

use super::state::{Activity, BlockReason, EngineState, SpinReason, ThreadState};
use crate::model::{
    EarlyHalt, GuestLock, LockKind, LockProtection, PageListStep, PvLockRules, WorkClass,
};
use crate::queue::NEVER;

/// `PV_PREV_CHECK_MASK`: of 2^15 rounds of spinning each 256th, from the first on, looks at the
/// waiter before.
const LOOKS: u64 = 128;

impl EngineState<'_> {
    fn lock_model(&self, lock: u32) -> &GuestLock {
        let state = &self.locks[lock as usize];
        &self.model.vms[state.vm as usize].locks[state.own as usize]
    }

    /// Whether the vCPU's task must not be preempted now (`preempt_count`).
    pub(super) fn is_atomic(&self, vcpu: u32) -> bool {
        let current = self.vcpus[vcpu as usize].queue.current();
        current.is_some_and(|task| self.tasks[task as usize].atomic > 0)
    }

    pub(super) fn lock(&mut self, vcpu: u32, task: u32, lock: u32) {
        let &GuestLock { kind, keeps_off, .. } = self.lock_model(lock);
        if kind == LockKind::Shared {
            self.tasks[task as usize].held += 1;
            return self.fetch_line(vcpu, task, lock);
        }
        let waiter = &mut self.tasks[task as usize];
        waiter.atomic += u32::from(keeps_off >= LockProtection::Preemption);
        if keeps_off == LockProtection::Interrupts {
            waiter.irqs_off += 1;
            self.vcpus[vcpu as usize].irqs_off = true;
        }
        let state = &mut self.locks[lock as usize];
        if state.holder.is_none() {
            state.holder = Some(task);
            self.tasks[task as usize].held += 1;
            return;
        }
        if let LockKind::Paravirtual { rules: PvLockRules { unfair: true, .. }, .. } = kind
            && !state.pending
            && !state.waiters.is_empty()
        {
            state.beside.push(task);
            return self.spin(vcpu, task, SpinReason::Lock(lock), NEVER);
        }
        state.pending |= state.waiters.is_empty();
        state.waiters.push_back(task);
        match kind {
            LockKind::Sleeping => self.block(vcpu, task, BlockReason::Lock(lock)),
            LockKind::Paravirtual { spin_ns, .. } => {
                self.spin(vcpu, task, SpinReason::Lock(lock), spin_ns.max(1));
            }
            LockKind::Fair | LockKind::Unfair | LockKind::Shared => {
                self.spin(vcpu, task, SpinReason::Lock(lock), NEVER);
            }
        }
    }

    pub(super) fn unlock(&mut self, vcpu: u32, task: u32, lock: u32) {
        let &GuestLock { kind, keeps_off, .. } = self.lock_model(lock);
        let owner = &mut self.tasks[task as usize];
        owner.held = owner.held.saturating_sub(1);
        if kind == LockKind::Shared {
            return self.fetch_line(vcpu, task, lock);
        }
        let atomic = u32::from(keeps_off >= LockProtection::Preemption);
        owner.atomic = owner.atomic.saturating_sub(atomic);
        self.pass_on(vcpu, lock, kind);
        if keeps_off == LockProtection::Interrupts {
            let owner = &mut self.tasks[task as usize];
            owner.irqs_off = owner.irqs_off.saturating_sub(1);
            if owner.irqs_off == 0 {
                self.allow_interrupts(vcpu);
            }
        }
    }

    /// Moves pages between a task and the list of the vCPU that it is on. True if a batch has to
    /// go between that list and the zone, which has the lock `zone`.
    pub(super) fn move_pages(&mut self, vcpu: u32, zone: u32, step: PageListStep) -> bool {
        let vm = &self.vms[self.vcpus[vcpu as usize].vm as usize];
        let (own, vcpus) = ((vcpu - vm.first_vcpu) as usize, vm.vcpus as usize);
        let lists = &mut self.locks[zone as usize].page_lists;
        if lists.is_empty() {
            lists.resize(vcpus, 0);
        }
        let list = &mut lists[own];
        if step.taken {
            let is_short = *list < step.pages;
            *list = (*list + if is_short { step.batch } else { 0 }).saturating_sub(step.pages);
            is_short
        } else {
            *list += step.pages;
            let is_full = *list >= step.high;
            *list -= if is_full { step.batch } else { 0 };
            is_full
        }
    }

    /// The task's vCPU gets the lock's cache line, behind all who asked for it before.
    fn fetch_line(&mut self, vcpu: u32, task: u32, lock: u32) {
        let (owner, from) = self.locks[lock as usize].line;
        if owner == Some(vcpu) && from <= self.now {
            return;
        }
        let here = self.pcpu_of(vcpu);
        let there = owner.map_or(here, |owner| self.pcpu_of(owner));
        let from = from.max(self.now) + self.line(self.ns.lock_transfer, there, here);
        self.locks[lock as usize].line = (Some(vcpu), from);
        let wait = (from - self.now) * 1024;
        self.tasks[task as usize].activity = Activity::Work(wait, WorkClass::KERNEL);
    }

    /// A lock that became free goes to whoever is next.
    fn pass_on(&mut self, vcpu: u32, lock: u32, kind: LockKind) {
        let state = &mut self.locks[lock as usize];
        state.holder = None;
        let next = match kind {
            LockKind::Unfair => {
                let running: Vec<u32> = self.locks[lock as usize]
                    .waiters
                    .iter()
                    .copied()
                    .filter(|task| self.spins_now(*task))
                    .collect();
                let chosen = self.random.below(running.len() as u64) as usize;
                let next = running.get(chosen).copied();
                self.locks[lock as usize].waiters.retain(|task| Some(*task) != next);
                next
            }
            LockKind::Paravirtual { spin_ns, rules: PvLockRules { steals: true, .. } } => {
                if state.pending {
                    let next = state.waiters.pop_front();
                    state.spun_as_head = None;
                    self.head_changes(lock);
                    next
                } else {
                    let first = state.waiters.front().copied();
                    debug_assert!(first.is_none_or(|task| !self.spins_at_head(task)));
                    if let Some(task) = first.filter(|task| self.tasks[*task as usize].stopped) {
                        // It is woken, and whoever comes before it may have the lock.
                        self.kick(task, lock, spin_ns, vcpu);
                    }
                    self.one_beside(lock)
                }
            }
            _ => state.waiters.pop_front(),
        };
        self.locks[lock as usize].holder = next;
        if let Some(next) = next {
            self.tasks[next as usize].held += 1;
            self.tasks[next as usize].stopped = false;
            self.release(next, vcpu, false);
        }
    }

    /// One of those that spin beside the queue, which has the lock now.
    fn one_beside(&mut self, lock: u32) -> Option<u32> {
        let beside = &self.locks[lock as usize].beside;
        let running: Vec<u32> =
            beside.iter().copied().filter(|task| self.has_a_pcpu(*task)).collect();
        let chosen = *running.get(self.random.below(running.len().max(1) as u64) as usize)?;
        self.locks[lock as usize].beside.retain(|task| *task != chosen);
        Some(chosen)
    }

    /// Another waiter is the first. Once it spins as such, who does so beside the queue joins it,
    /// and so it is where there is no queue.
    fn head_changes(&mut self, lock: u32) {
        let first = self.locks[lock as usize].waiters.front().copied();
        let spins = first.is_some_and(|task| self.spins_at_head(task));
        self.locks[lock as usize].pending = spins;
        if !spins && first.is_some() {
            return;
        }
        if let Some(task) = first
            && self.locks[lock as usize].spun_as_head != first
        {
            self.locks[lock as usize].spun_as_head = first;
            self.spins_as_head(task, lock);
        }
        let beside = std::mem::take(&mut self.locks[lock as usize].beside);
        for task in beside {
            if self.has_a_pcpu(task) {
                self.joins(task, lock);
            } else {
                self.locks[lock as usize].beside.push(task);
            }
        }
    }

    /// `pv_wait_head_or_lock()` of locks that are queues counts its rounds from the start, however
    /// long the waiter has spun in `pv_wait_node()`.
    fn spins_as_head(&mut self, task: u32, lock: u32) {
        if let LockKind::Paravirtual { spin_ns, rules: PvLockRules { steals: true, .. } } =
            self.lock_model(lock).kind
        {
            self.respin(task, lock, spin_ns);
        }
    }

    /// A waiter that may be spinning now does so for its whole time from now on.
    fn respin(&mut self, task: u32, lock: u32, spin_ns: u64) {
        let pcpu = self.guest_pcpu(self.tasks[task as usize].vcpu);
        if let Some(pcpu) = pcpu {
            self.settle(pcpu);
        }
        self.tasks[task as usize].activity =
            Activity::Spin { on: SpinReason::Lock(lock), left_ns: spin_ns.max(1) };
        if let Some(pcpu) = pcpu {
            self.arm_guest(pcpu);
        }
    }

    /// Who spun beside the queue waits in it.
    fn joins(&mut self, task: u32, lock: u32) {
        let LockKind::Paravirtual { spin_ns, .. } = self.lock_model(lock).kind else { return };
        let state = &mut self.locks[lock as usize];
        state.beside.retain(|other| *other != task);
        state.pending |= state.waiters.is_empty();
        state.waiters.push_back(task);
        self.respin(task, lock, spin_ns);
    }

    /// Whether the first waiter has seen that it is that, and spins.
    fn spins_at_head(&self, task: u32) -> bool {
        !self.tasks[task as usize].stopped && self.has_a_pcpu(task)
    }

    /// Whether the task's vCPU is in the guest, and it is its task.
    fn has_a_pcpu(&self, task: u32) -> bool {
        let vcpu = &self.vcpus[self.tasks[task as usize].vcpu as usize];
        vcpu.in_guest && vcpu.queue.current() == Some(task)
    }

    /// A waiter that halted is woken, to spin anew.
    fn kick(&mut self, task: u32, lock: u32, spin_ns: u64, by: u32) {
        let Activity::Spin { left_ns: 0, .. } = self.tasks[task as usize].activity else {
            // It was woken before, and has not come to run yet.
            return;
        };
        let left_ns = spin_ns.max(1);
        self.tasks[task as usize].activity = Activity::Spin { on: SpinReason::Lock(lock), left_ns };
        self.kick_waiter(self.tasks[task as usize].vcpu, by);
    }

    /// `pv_kick()`: the vCPU `by` makes a hypercall that wakes the vCPU of a waiter.
    pub(super) fn kick_waiter(&mut self, vcpu: u32, by: u32) {
        let exit = self.ns.exit + self.ns.entry;
        self.vcpus[by as usize].exit_work += exit + self.ns.ipi_exit_work;
        if self.vcpus[vcpu as usize].halted {
            self.unhalt(vcpu, Some(by));
        }
        let thread = self.vcpus[vcpu as usize].thread;
        let metal = self.vms[self.vcpus[by as usize].vm as usize].metal;
        let waits = self.threads[thread as usize].state == ThreadState::Ready;
        if self.model.kvm.kick_yields && waits && !metal {
            let state = &mut self.vcpus[by as usize];
            // Then it is an exit like others.
            state.exit_work -= exit;
            state.yields_to = Some(vcpu);
        }
    }

    /// Interrupts that came meanwhile are handled now.
    fn allow_interrupts(&mut self, vcpu: u32) {
        let (exit, entry) = (self.ns.exit, self.ns.entry);
        let state = &mut self.vcpus[vcpu as usize];
        state.irqs_off = false;
        if state.pending.vectors == 0 {
            return;
        }
        let metal = self.vms[state.vm as usize].metal;
        if !self.model.kvm.posted_interrupts && !metal {
            // The interrupt window makes an exit.
            state.exit_work += exit + entry;
        }
        self.accept_interrupts(vcpu);
    }

    /// Whether the task is in the guest on a pCPU now, spinning.
    fn spins_now(&self, task: u32) -> bool {
        let vcpu = &self.vcpus[self.tasks[task as usize].vcpu as usize];
        vcpu.in_guest && vcpu.queue.current() == Some(task) && vcpu.exit_work == 0
    }

    /// A waiter has spun long enough, or knows that it will, and halts.
    pub(super) fn waiter_stops(&mut self, task: u32, lock: u32) {
        let waiter = &mut self.tasks[task as usize];
        waiter.stopped = true;
        waiter.activity = Activity::Spin { on: SpinReason::Lock(lock), left_ns: 0 };
        let state = &mut self.locks[lock as usize];
        state.pending &= state.waiters.front() != Some(&task);
    }

    /// The time between two looks of a waiter at the one before it, if it looks.
    fn time_between_looks(&self, lock: u32) -> Option<u64> {
        match self.lock_model(lock).kind {
            LockKind::Paravirtual { spin_ns, rules } if rules.early != EarlyHalt::Never => {
                Some((spin_ns / LOOKS).max(1))
            }
            _ => None,
        }
    }

    /// How long the waiter of a lock, which spins for `left_ns` yet, does so until it looks
    /// at the one before it.
    pub(super) fn until_look(&self, lock: u32, left_ns: u64) -> u64 {
        match self.time_between_looks(lock) {
            Some(between) if left_ns.is_multiple_of(between) => between,
            Some(between) => left_ns % between,
            None => NEVER,
        }
    }

    /// `pv_wait_early()`: it is time to look at the waiter before, which can't go on.
    pub(super) fn stops_early(&self, task: u32, lock: u32, left_ns: u64) -> bool {
        let LockKind::Paravirtual { spin_ns, rules } = self.lock_model(lock).kind else {
            return false;
        };
        let looks = self.time_between_looks(lock).is_some_and(|between| {
            // It does in its first round.
            left_ns == spin_ns.max(1) || left_ns.is_multiple_of(between)
        });
        if !looks {
            return false;
        }
        let waiters = &self.locks[lock as usize].waiters;
        let at = waiters.iter().position(|waiter| *waiter == task).unwrap_or(0);
        let Some(&before) = at.checked_sub(1).and_then(|at| waiters.get(at)) else { return false };
        let before = &self.tasks[before as usize];
        let thread = self.vcpus[before.vcpu as usize].thread;
        before.stopped
            || (rules.early == EarlyHalt::Preempted
                && self.threads[thread as usize].state != ThreadState::Running)
    }

    /// A vCPU comes to run again: its task looks at the lock that it spins for.
    pub(super) fn look_at_lock(&mut self, vcpu: u32) {
        let Some(task) = self.vcpus[vcpu as usize].queue.current() else { return };
        let Activity::Spin { on: SpinReason::Lock(lock), left_ns } =
            self.tasks[task as usize].activity
        else {
            return;
        };
        let kind = self.lock_model(lock).kind;
        self.tasks[task as usize].stopped = false;
        let state = &mut self.locks[lock as usize];
        let is_first = state.waiters.front() == Some(&task);
        let is_beside = state.beside.contains(&task);
        let is_next = kind == LockKind::Unfair || is_first || (is_beside && !state.pending);
        if state.holder.is_none() && is_next {
            state.holder = Some(task);
            state.waiters.retain(|waiter| *waiter != task);
            state.beside.retain(|waiter| *waiter != task);
            self.tasks[task as usize].held += 1;
            self.release(task, vcpu, false);
            if is_first {
                self.locks[lock as usize].spun_as_head = None;
                self.head_changes(lock);
            }
        } else if is_beside {
            if state.pending || state.waiters.is_empty() {
                self.joins(task, lock);
            }
        } else if let LockKind::Paravirtual { spin_ns, .. } = kind {
            if left_ns == 0 {
                // Woken for something else: it spins anew.
                self.spin(vcpu, task, SpinReason::Lock(lock), spin_ns.max(1));
            }
            if is_first {
                self.head_changes(lock);
            }
        }
    }
}
