//! A host's run queue: threads, some of them in control groups of one level.
//!
//! A group has a run queue on each pCPU (the `cfs_rq` of a `task_group`), and an entity
//! that stands for it on the pCPU's own. Rules are asked level by level, as
//! `for_each_sched_entity` does. A group that is throttled keeps its threads, and nobody
//! sees them.

use super::{DequeueReason, EnqueueReason, Entity, RunQueue, SchedPolicy};

/// A group's queue on one pCPU.
#[derive(Debug, Clone, Default)]
struct GroupQueue {
    queue: RunQueue,
    /// The entity that stands for it.
    entity: u32,
    throttled: bool,
}

/// One pCPU's run queue (`struct rq`, as far as it is fair).
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub struct HostQueue {
    groups: Vec<GroupQueue>,
    root: RunQueue,
    /// Entities from here on stand for groups, one for each pCPU of each.
    first: u32,
    pcpus: u32,
}

impl HostQueue {
    /// The queue of `pcpu` of `pcpus`. The entities of `groups` groups stand behind those
    /// of `threads` threads, one for each pCPU.
    #[must_use]
    pub fn new(pcpu: u32, pcpus: u32, threads: u32, groups: u32) -> Self {
        let entity = |group| threads + group * pcpus + pcpu;
        let group = |group| GroupQueue { entity: entity(group), ..GroupQueue::default() };
        let groups = (0..groups).map(group).collect();
        Self { root: RunQueue::default(), groups, first: threads, pcpus }
    }

    /// The group for which an entity of the pCPU's own queue stands.
    #[inline]
    fn group_of(&self, entity: u32) -> Option<usize> {
        let behind = entity.checked_sub(self.first)?;
        (!self.groups.is_empty()).then(|| (behind / self.pcpus) as usize)
    }

    /// The group that a thread is in.
    #[inline]
    fn home(&self, tasks: &[Entity], thread: u32) -> Option<usize> {
        if self.groups.is_empty() { None } else { tasks[thread as usize].group.map(usize::from) }
    }

    /// The queue of a group, or the pCPU's own.
    fn level(&self, home: Option<usize>) -> &RunQueue {
        home.map_or(&self.root, |group| &self.groups[group].queue)
    }

    /// The threads on it, the running one among them; none of groups that are throttled.
    #[inline]
    pub fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.root.members().iter().flat_map(|id| {
            let threads = match self.group_of(*id) {
                None => std::slice::from_ref(id),
                Some(group) => self.groups[group].queue.members(),
            };
            threads.iter().copied()
        })
    }

    /// The thread that runs.
    #[must_use]
    #[inline]
    pub fn current(&self) -> Option<u32> {
        let current = self.root.current();
        if self.groups.is_empty() {
            return current;
        }
        match self.group_of(current?) {
            None => current,
            Some(group) => self.groups[group].queue.current(),
        }
    }

    /// The group of the thread that runs.
    #[must_use]
    #[inline]
    pub fn current_group(&self) -> Option<u32> {
        if self.groups.is_empty() {
            return None;
        }
        self.group_of(self.root.current()?).map(|group| group as u32)
    }

    /// How many could run (`nr_running`).
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        if self.groups.is_empty() { self.root.len() } else { self.members().count() }
    }

    /// True if nothing could run.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Gives the running thread its last `delta` ns, and its group (`update_curr` of each
    /// level).
    #[inline]
    pub fn charge(&mut self, tasks: &mut [Entity], delta: u64) {
        if !self.groups.is_empty()
            && let Some(group) = self.current_group()
        {
            self.groups[group as usize].queue.charge(tasks, delta);
        }
        self.root.charge(tasks, delta);
    }

    /// [`RunQueue::adopt`], on the level of the thread's own queue.
    pub fn adopt(&self, policy: &SchedPolicy, tasks: &mut [Entity], id: u32, from: &Self) {
        let home = self.home(tasks, id);
        let [here, there] = [self, from].map(|queue| queue.level(home));
        here.adopt(policy, &mut tasks[id as usize], there);
    }

    /// Puts `id` on the queue, and its group if it was not there (`enqueue_task_fair`).
    #[inline]
    pub fn enqueue(
        &mut self,
        policy: &SchedPolicy,
        tasks: &mut [Entity],
        id: u32,
        why: EnqueueReason,
    ) {
        let Some(group) = self.home(tasks, id) else {
            return self.root.enqueue(policy, tasks, id, why);
        };
        let group = &mut self.groups[group];
        group.queue.enqueue(policy, tasks, id, why);
        if !group.throttled && group.queue.len() == 1 {
            // Levels above the first are placed as those that wake.
            self.root.enqueue(policy, tasks, group.entity, EnqueueReason::Wakeup);
        }
    }

    /// Takes `id` off the queue, and its group if nothing is left there
    /// (`dequeue_task_fair`).
    #[inline]
    pub fn dequeue(
        &mut self,
        policy: &SchedPolicy,
        tasks: &mut [Entity],
        id: u32,
        why: DequeueReason,
    ) {
        let Some(group) = self.home(tasks, id) else {
            return self.root.dequeue(policy, tasks, id, why);
        };
        let group = &mut self.groups[group];
        group.queue.dequeue(policy, tasks, id, why);
        if !group.throttled && group.queue.is_empty() {
            // Whatever the thread does, its group goes to sleep here.
            self.root.dequeue(policy, tasks, group.entity, DequeueReason::Sleep);
        }
    }

    /// A group leaves the pCPU's queue with all of its threads (`throttle_cfs_rq`).
    pub fn throttle(&mut self, policy: &SchedPolicy, tasks: &mut [Entity], group: u32) {
        let group = &mut self.groups[group as usize];
        if !std::mem::replace(&mut group.throttled, true) {
            group.queue.put();
            if !group.queue.is_empty() {
                self.root.dequeue(policy, tasks, group.entity, DequeueReason::Throttle);
            }
        }
    }

    /// It comes back (`unthrottle_cfs_rq`). True if somebody waits in it.
    pub fn unthrottle(&mut self, policy: &SchedPolicy, tasks: &mut [Entity], group: u32) -> bool {
        let group = &mut self.groups[group as usize];
        let was = std::mem::replace(&mut group.throttled, false);
        let waits = was && !group.queue.is_empty();
        if waits {
            self.root.enqueue(policy, tasks, group.entity, EnqueueReason::Wakeup);
        }
        waits
    }

    /// Whether a group is throttled here.
    #[must_use]
    pub fn is_throttled(&self, group: u32) -> bool {
        self.groups[group as usize].throttled
    }

    /// The weights of a group's threads here, throttled or not (`cfs_rq->load`).
    #[must_use]
    pub fn load_of(&self, tasks: &[Entity], group: u32) -> u64 {
        let members = self.groups[group as usize].queue.members();
        members.iter().map(|id| u64::from(tasks[*id as usize].weight)).sum()
    }

    /// The weight of a thread on the pCPU's own level: its share of its group's there
    /// (`task_h_load`).
    #[must_use]
    pub fn weight_of(&self, tasks: &[Entity], thread: u32) -> u64 {
        let own = u64::from(tasks[thread as usize].weight);
        match self.home(tasks, thread) {
            None => own,
            Some(home) => {
                let group = u64::from(tasks[self.groups[home].entity as usize].weight);
                group * own / self.load_of(tasks, home as u32).max(1)
            }
        }
    }

    /// Whether a thread is to be chosen next on its level (`cfs_rq->next`), for which it
    /// counts as cache-hot.
    #[must_use]
    pub fn is_favoured(&self, tasks: &[Entity], thread: u32) -> bool {
        match self.home(tasks, thread) {
            None => self.root.next == Some(thread),
            Some(home) => self.groups[home].queue.next == Some(thread),
        }
    }

    /// A group's entity gets another weight (`reweight_entity`).
    pub fn reweigh(&mut self, policy: &SchedPolicy, tasks: &mut [Entity], group: u32, weight: u32) {
        let entity = self.groups[group as usize].entity;
        self.root.reweigh(policy, tasks, entity, weight);
    }

    /// Chooses who runs next (`pick_next_task_fair`), level by level.
    #[inline]
    pub fn pick(&mut self, policy: &SchedPolicy, tasks: &mut [Entity]) -> Option<u32> {
        if self.groups.is_empty() {
            return self.root.pick(policy, tasks);
        }
        let before = self.current_group();
        let chosen = self.root.pick(policy, tasks);
        let group = self.current_group();
        self.put_other(before, group);
        match group {
            None => chosen,
            Some(group) => self.groups[group as usize].queue.pick(policy, tasks),
        }
    }

    /// put_prev_entity of a group that does not run any more.
    fn put_other(&mut self, before: Option<u32>, group: Option<u32>) {
        if let Some(before) = before.filter(|_| before != group) {
            self.groups[before as usize].queue.put();
        }
    }

    /// Makes `chosen` current whatever the rules say.
    pub fn run(&mut self, tasks: &mut [Entity], chosen: Option<u32>) {
        let before = self.current_group();
        let group = chosen.and_then(|id| self.home(tasks, id));
        self.put_other(before, group.map(|group| group as u32));
        match group {
            None => self.root.run(tasks, chosen),
            Some(group) => {
                self.groups[group].queue.run(tasks, chosen);
                let entity = self.groups[group].entity;
                self.root.run(tasks, Some(entity));
            }
        }
    }

    /// The tick: whether the running thread must go (`task_tick_fair`).
    #[inline]
    pub fn tick(&mut self, policy: &SchedPolicy, tasks: &mut [Entity]) -> bool {
        let mut over = self.root.tick(policy, tasks);
        if let Some(group) = self.current_group() {
            let group = &mut self.groups[group as usize];
            // sched_slice: the group's share of the level above.
            let own = u64::from(tasks[group.entity as usize].weight);
            let all = self.root.members().iter().map(|id| u64::from(tasks[*id as usize].weight));
            group.queue.share = Some((own, all.sum()));
            over |= group.queue.tick(policy, tasks);
        }
        over
    }

    /// Whether `id`, which just woke here, preempts the running thread: on the level where
    /// both have a queue in common (`find_matching_se`).
    #[must_use]
    #[inline]
    pub fn preempts(&self, policy: &SchedPolicy, tasks: &[Entity], id: u32) -> bool {
        let home = self.home(tasks, id);
        match home.map(|group| &self.groups[group]) {
            None => self.root.preempts(policy, tasks, id),
            Some(group) if group.throttled => false,
            Some(group) if self.current_group().map(|group| group as usize) == home => {
                group.queue.preempts(policy, tasks, id)
            }
            Some(group) => self.root.preempts(policy, tasks, group.entity),
        }
    }

    /// `id`, which [preempts](Self::preempts) the running thread, is chosen next
    /// (`check_preempt_wakeup`, from the level up on which the two meet).
    #[inline]
    pub fn preempted_by(&mut self, policy: &SchedPolicy, tasks: &[Entity], id: u32) {
        let current = self.current_group().map(|group| group as usize);
        match self.home(tasks, id) {
            None => self.root.preempted_by(policy, id, current.is_none()),
            Some(group) if Some(group) == current => {
                let group = &mut self.groups[group];
                group.queue.preempted_by(policy, id, true);
                self.root.preempted_by(policy, group.entity, false);
            }
            Some(group) => {
                let entity = self.groups[group].entity;
                self.root.preempted_by(policy, entity, current.is_none());
            }
        }
    }

    /// The running thread gives way (`yield_task_fair`): it is skipped on all levels
    /// (`set_skip_buddy`). False where it is alone.
    #[inline]
    pub fn give_way(&mut self, policy: &SchedPolicy, tasks: &mut [Entity]) -> bool {
        let Some(group) = self.current_group() else {
            return self.root.give_way(policy, tasks);
        };
        if self.len() < 2 {
            return false;
        }
        let in_group = self.groups[group as usize].queue.give_way(policy, tasks);
        // EEVDF moves the deadline of the thread alone.
        if policy.kernel.is_eevdf() {
            in_group
        } else {
            self.root.give_way(policy, tasks) || in_group
        }
    }

    /// Asks for `id` to be chosen next, on all levels (`set_next_buddy`). False where it
    /// is not on this queue or throttled (`throttled_hierarchy`).
    #[inline]
    pub fn favour(&mut self, policy: &SchedPolicy, tasks: &[Entity], id: u32) -> bool {
        let Some(group) = self.home(tasks, id) else { return self.root.favour(policy, id) };
        let group = &mut self.groups[group];
        !group.throttled && group.queue.favour(policy, id) && self.root.favour(policy, group.entity)
    }
}
