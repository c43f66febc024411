//! Run queues, as the kernel's fair class orders them, by version.
//!
//! Host and guests use the same code. Time is in ns; virtual time is in ns at
//! weight 1024 (`NICE_0_LOAD`). Each function names what it is a port of in
//! `kernel/sched/fair.c`.

pub(crate) mod balance;
mod cfs;
mod eevdf;
mod group;
pub(crate) mod place;
pub(crate) mod rebalance;

pub use group::HostQueue;

/// The weight of nice 0 (`sched_prio_to_weight`).
pub const NICE_0_WEIGHT: u32 = 1024;

/// Which kernel's rules hold, as far as they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchedKernel {
    /// CFS as of 3.6.
    V3_6,
    /// CFS as of 3.13: a directed yield between two queues of one task each is
    /// refused before any lock is taken.
    V3_13,
    /// CFS as of 5.x: the running task takes part in every choice.
    V5,
    /// EEVDF as of 6.6: the next buddy counts only with `NEXT_BUDDY`, which is
    /// off.
    V6_6,
    /// EEVDF as of 6.12: who goes to sleep having had more than its share stays and competes
    /// until that is paid (`DELAY_DEQUEUE`).
    V6_12,
}

/// A kernel's version, for what changes between those whose scheduler is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRelease {
    /// 5 of 5.15.
    pub major: u32,
    /// 15 of 5.15.
    pub minor: u32,
}

impl KernelRelease {
    /// That of `5.4.0-80-generic`, or of `5.x`; `None` where it is no version.
    #[must_use]
    pub fn parse(release: &str) -> Option<Self> {
        if release == "5.x" {
            return Some(SchedKernel::V5.into());
        }
        let digits = release.split(['-', '+', '~', ' ']).next()?;
        let mut numbers = digits.split('.').map(|part| part.parse::<u32>().ok());
        Some(Self { major: numbers.next()??, minor: numbers.next().unwrap_or(Some(0))? })
    }

    /// The scheduler's rules of the newest known kernel that is not newer; the oldest known
    /// ones below that.
    #[must_use]
    pub fn sched(self) -> SchedKernel {
        match (self.major, self.minor) {
            (0..=2, _) | (3, 0..=8) => SchedKernel::V3_6,
            (3, _) | (4, 0..=9) => SchedKernel::V3_13,
            (4, _) | (5, _) | (6, 0..=5) => SchedKernel::V5,
            (6, 6..=11) => SchedKernel::V6_6,
            _ => SchedKernel::V6_12,
        }
    }
}

impl From<SchedKernel> for KernelRelease {
    /// The one whose rules they are.
    fn from(kernel: SchedKernel) -> Self {
        let (major, minor) = match kernel {
            SchedKernel::V3_6 => (3, 6),
            SchedKernel::V3_13 => (3, 13),
            SchedKernel::V5 => (5, 10),
            SchedKernel::V6_6 => (6, 6),
            SchedKernel::V6_12 => (6, 12),
        };
        Self { major, minor }
    }
}

impl SchedKernel {
    /// All, oldest first, with the names that scenarios use.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::V3_6, "3.6"),
        (Self::V3_13, "3.13"),
        (Self::V5, "5.x"),
        (Self::V6_6, "6.6"),
        (Self::V6_12, "6.12"),
    ];

    /// The rules of the newest known kernel that is not newer than `release`
    /// (`5.4.0-80-generic`); the oldest known ones below that. `None` where it
    /// is no version.
    #[must_use]
    pub fn of_release(release: &str) -> Option<Self> {
        KernelRelease::parse(release).map(KernelRelease::sched)
    }

    /// True where the fair class is EEVDF.
    #[must_use]
    pub fn is_eevdf(self) -> bool {
        self >= Self::V6_6
    }

    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kernel, _)| *kernel == self).map_or("", |(_, name)| name)
    }
}

/// A scheduler: the kernel's rules and their tunables, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedPolicy {
    /// Whose rules.
    pub kernel: SchedKernel,
    /// `sysctl_sched_latency`: the period in which each of a few tasks runs
    /// once. CFS.
    pub latency_ns: u64,
    /// `sysctl_sched_min_granularity`. CFS.
    pub min_granularity_ns: u64,
    /// `sysctl_sched_wakeup_granularity`: how far behind a task must be to
    /// preempt, and how far ahead a buddy may be. CFS.
    pub wakeup_granularity_ns: u64,
    /// `sysctl_sched_base_slice`. EEVDF.
    pub base_slice_ns: u64,
    /// `sched_cfs_bandwidth_slice_us`: what a pCPU takes of a group's quota at a time.
    pub bandwidth_slice_ns: u64,
    /// What a pCPU took and has not used expires with the period (`expire_cfs_rq_runtime`): from
    /// 3.16 on it did not by mistake (51f2176d74ac), until 4.18 (512ac999d275), and since 5.4 it
    /// does not on purpose (de53fd7aedb1).
    pub bandwidth_expires: bool,
    /// The tick: 1 s / `CONFIG_HZ`.
    pub tick_ns: u64,
    /// Whether all ticks fall together; else they are spread over one tick
    /// (`skew_tick=1`).
    pub ticks_aligned: bool,
    /// `NEXT_BUDDY`, or `PICK_BUDDY` from 6.14 on: whether EEVDF honours the
    /// next buddy that a directed yield sets.
    pub eevdf_next_buddy: bool,
    /// Whether buddies are heeded at all; a mechanism to switch off.
    pub buddies: bool,
    /// Whether a task that wakes may preempt the running one.
    pub wakeup_preemption: bool,
}

impl SchedPolicy {
    /// The kernel's defaults on a machine of `cpus` logical CPUs: granularities
    /// grow by 1 + log2(min(cpus, 8)) (`get_update_sysctl_factor`).
    #[must_use]
    pub fn defaults(release: impl Into<KernelRelease>, cpus: usize) -> Self {
        let release = release.into();
        let factor = 1 + u64::from(cpus.clamp(1, 8).ilog2());
        let version = (release.major, release.minor);
        Self {
            kernel: release.sched(),
            latency_ns: 6_000_000 * factor,
            min_granularity_ns: 750_000 * factor,
            wakeup_granularity_ns: 1_000_000 * factor,
            base_slice_ns: 750_000 * factor,
            bandwidth_slice_ns: 5_000_000,
            bandwidth_expires: version < (3, 16) || ((4, 18)..(5, 4)).contains(&version),
            tick_ns: 1_000_000,
            ticks_aligned: true,
            eevdf_next_buddy: false,
            buddies: true,
            wakeup_preemption: true,
        }
    }
}

/// What the scheduler knows of one task (`struct sched_entity`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entity {
    /// Virtual run time.
    pub vruntime: i64,
    /// Load weight; [`NICE_0_WEIGHT`] is nice 0.
    pub weight: u32,
    /// Virtual deadline. EEVDF.
    pub deadline: i64,
    /// Lag kept while it sleeps. EEVDF.
    pub lag: i64,
    /// Time run, ns.
    pub ran_ns: u64,
    /// `ran_ns` when it was last chosen.
    pub ran_before_ns: u64,
    /// Whether it is on a run queue.
    pub queued: bool,
    /// It sleeps, and still competes there (`sched_delayed`).
    pub delayed: bool,
    /// The control group that it is in.
    pub group: Option<u16>,
}

impl Entity {
    /// A task that has never run.
    #[must_use]
    pub fn new(weight: u32) -> Self {
        Self {
            vruntime: 0,
            weight,
            deadline: 0,
            lag: 0,
            ran_ns: 0,
            ran_before_ns: 0,
            queued: false,
            delayed: false,
            group: None,
        }
    }

    /// `delta` of real time in its virtual time (`calc_delta_fair`).
    fn virtual_of(&self, delta: u64) -> i64 {
        if self.weight == NICE_0_WEIGHT {
            delta as i64
        } else {
            (i128::from(delta) * i128::from(NICE_0_WEIGHT) / i128::from(self.weight)) as i64
        }
    }
}

/// Why a task is put on a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueReason {
    /// It is new.
    New,
    /// It slept.
    Wakeup,
    /// It comes from another queue, its virtual time relative to that one's.
    Migrate,
}

/// Why a task is taken off a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DequeueReason {
    /// It goes to sleep.
    Sleep,
    /// It goes to another queue.
    Migrate,
    /// Its group may not run.
    Throttle,
}

/// One run queue (`struct cfs_rq`). Queues are short, so that walking them is
/// faster than a tree.
#[derive(Debug, Clone, Default)]
// What each event looks at comes first, on one cache line.
#[repr(C)]
pub struct RunQueue {
    current: Option<u32>,
    next: Option<u32>,
    last: Option<u32>,
    skip: Option<u32>,
    min_vruntime: i64,
    /// The tasks on it, the running one among them.
    members: Vec<u32>,
    /// Those that sleep and still compete (`DELAY_DEQUEUE`).
    delayed: Vec<u32>,
    /// The running task may go on until this deadline (`RUN_TO_PARITY`). EEVDF.
    protected: i64,
    /// The queue's own share of the level above: its weight, and that of all there.
    share: Option<(u64, u64)>,
}

impl RunQueue {
    /// The tasks on it, the running one among them.
    #[must_use]
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// The task that runs.
    #[must_use]
    pub fn current(&self) -> Option<u32> {
        self.current
    }

    /// How many could run (`nr_running`).
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// True if nothing could run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Gives the running task its last `delta` ns (`update_curr`).
    pub fn charge(&mut self, tasks: &mut [Entity], delta: u64) {
        let Some(current) = self.current else { return };
        let task = &mut tasks[current as usize];
        task.ran_ns += delta;
        task.vruntime += task.virtual_of(delta);
        self.update_min(tasks);
    }

    /// All that `pick_eevdf` looks at: also who sleeps and has had too much.
    fn competing(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().chain(&self.delayed).copied()
    }

    /// `update_min_vruntime`: monotonic.
    fn update_min(&mut self, tasks: &[Entity]) {
        let least = self.competing().map(|id| tasks[id as usize].vruntime).min();
        if let Some(least) = least {
            self.min_vruntime = self.min_vruntime.max(least);
        }
    }

    /// Puts `id` on the queue (`enqueue_entity`, `place_entity`).
    pub fn enqueue(
        &mut self,
        policy: &SchedPolicy,
        tasks: &mut [Entity],
        id: u32,
        why: EnqueueReason,
    ) {
        if tasks[id as usize].delayed {
            self.requeue_delayed(policy, tasks, id);
        } else if policy.kernel.is_eevdf() {
            self.place_eevdf(policy, tasks, id, why);
        } else {
            self.place_cfs(policy, tasks, id, why);
        }
        tasks[id as usize].queued = true;
        self.members.push(id);
    }

    /// Takes `id` off the queue (`dequeue_entity`). Its virtual time becomes
    /// relative where it migrates. Since 6.12 who goes to sleep and is not eligible still
    /// competes.
    pub fn dequeue(
        &mut self,
        policy: &SchedPolicy,
        tasks: &mut [Entity],
        id: u32,
        why: DequeueReason,
    ) {
        let delays = why == DequeueReason::Sleep
            && policy.kernel >= SchedKernel::V6_12
            && !self.eligible(tasks, id);
        if policy.kernel.is_eevdf() && !delays {
            self.keep_lag(policy, tasks, id, why);
        }
        self.members.retain(|member| *member != id);
        self.clear_buddies(Some(id));
        if self.current == Some(id) {
            self.current = None;
        }
        let task = &mut tasks[id as usize];
        (task.queued, task.delayed) = (delays, delays);
        if delays {
            self.delayed.push(id);
        }
        if why == DequeueReason::Migrate && !policy.kernel.is_eevdf() {
            task.vruntime -= self.min_vruntime;
        }
        self.update_min(tasks);
    }

    /// Chooses who runs next and makes it current (`pick_next_entity`,
    /// `set_next_entity`).
    pub fn pick(&mut self, policy: &SchedPolicy, tasks: &mut [Entity]) -> Option<u32> {
        let chosen = if policy.kernel.is_eevdf() {
            self.pick_eevdf(policy, tasks)
        } else {
            self.pick_cfs(policy, tasks)
        };
        // Since 3.15 pick_next_task_fair() leaves who ran and is chosen again as it is: its
        // turn goes on. Before, it was put back and set anew.
        if chosen.is_some() && chosen == self.current && policy.kernel >= SchedKernel::V5 {
            self.clear_buddies(chosen);
        } else {
            self.run(tasks, chosen);
        }
        chosen
    }

    /// `clear_buddies`.
    #[inline]
    fn clear_buddies(&mut self, of: Option<u32>) {
        for buddy in [&mut self.next, &mut self.last, &mut self.skip] {
            if *buddy == of {
                *buddy = None;
            }
        }
    }

    /// Makes `chosen` current whatever the rules say: what a gang scheduler
    /// does.
    pub fn run(&mut self, tasks: &mut [Entity], chosen: Option<u32>) {
        self.current = chosen;
        if let Some(id) = chosen {
            self.clear_buddies(chosen);
            let task = &mut tasks[id as usize];
            task.ran_before_ns = task.ran_ns;
            self.protected = task.deadline;
        }
    }

    /// Nobody runs any more (`put_prev_entity`).
    fn put(&mut self) {
        self.current = None;
    }

    /// A task gets another weight (`reweight_entity`). From 6.6 on its lag stays what it
    /// is in real time.
    fn reweigh(&mut self, policy: &SchedPolicy, tasks: &mut [Entity], id: u32, weight: u32) {
        let average = self.average(tasks);
        let task = &mut tasks[id as usize];
        let before = std::mem::replace(&mut task.weight, weight);
        if before == weight || !task.queued || !policy.kernel.is_eevdf() {
            return;
        }
        let scaled =
            |time: i64| (i128::from(time) * i128::from(before) / i128::from(weight.max(1))) as i64;
        let left = scaled(task.deadline - task.vruntime);
        task.vruntime = average - scaled(average - task.vruntime);
        task.deadline = task.vruntime + left;
        if self.current == Some(id) {
            self.protected = task.deadline;
        }
    }

    /// The tick: whether the running task must go (`entity_tick`).
    pub fn tick(&mut self, policy: &SchedPolicy, tasks: &mut [Entity]) -> bool {
        if self.members.len() < 2 {
            if policy.kernel.is_eevdf() {
                self.renew_deadline(policy, tasks);
            }
            return false;
        }
        if policy.kernel.is_eevdf() {
            self.renew_deadline(policy, tasks)
        } else {
            self.tick_cfs(policy, tasks)
        }
    }

    /// Whether `id`, which just woke on this queue, preempts the running task
    /// (`check_preempt_wakeup_fair`).
    #[must_use]
    pub fn preempts(&self, policy: &SchedPolicy, tasks: &[Entity], id: u32) -> bool {
        let Some(current) = self.current else { return true };
        if current == id || !policy.wakeup_preemption {
            return false;
        }
        if policy.kernel.is_eevdf() {
            self.preempts_eevdf(tasks, id)
        } else {
            cfs::beyond_granularity(policy, &tasks[current as usize], &tasks[id as usize])
                == cfs::VruntimeLead::Beyond
        }
    }

    /// `id` woke and preempts the running task: it is chosen next, and with many on the queue
    /// the running one after it (`set_next_buddy`, `LAST_BUDDY`). Who runs is a task,
    /// no group, if `is_task`.
    pub fn preempted_by(&mut self, policy: &SchedPolicy, id: u32, is_task: bool) {
        // An idle CPU is asked to schedule alone (`wakeup_preempt_idle`).
        if policy.kernel.is_eevdf() || !policy.buddies || self.current.is_none() {
            return;
        }
        self.next = Some(id);
        // sched_nr_latency.
        let many = policy.latency_ns.div_ceil(policy.min_granularity_ns.max(1));
        if is_task && self.members.len() as u64 >= many {
            self.last = self.current;
        }
    }

    /// The running task gives way (`yield_task_fair`). False where it is alone.
    pub fn give_way(&mut self, policy: &SchedPolicy, tasks: &mut [Entity]) -> bool {
        let Some(current) = self.current else { return false };
        if self.members.len() < 2 {
            return false;
        }
        if policy.kernel.is_eevdf() {
            self.forfeit(policy, tasks, current);
        } else if policy.buddies {
            self.clear_buddies(Some(current));
            self.skip = Some(current);
        }
        true
    }

    /// Asks for `id` to be chosen next (`set_next_buddy`). False where it is
    /// not on this queue.
    pub fn favour(&mut self, policy: &SchedPolicy, id: u32) -> bool {
        let queued = self.members.contains(&id);
        if queued && policy.buddies {
            self.next = Some(id);
        }
        queued
    }
}

#[cfg(test)]
mod tests;
