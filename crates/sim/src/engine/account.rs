//! Where the time went, what was done, and what happened how often.

use super::state::{Activity, Doing, ThreadKind, World};
use crate::model::Model;

/// Where the pCPUs' time went, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Guests' tasks at work.
    pub guest_work: u64,
    /// Guests' tasks spinning: locks, barriers, answers to IPIs.
    pub guest_spin: u64,
    /// Guests' kernels: switching, waking, interrupts, polling when idle.
    pub guest_kernel: u64,
    /// Exits, entries and their handlers.
    pub exits: u64,
    /// The host's scheduler: waiting for and holding run-queue locks, switching.
    pub host_scheduler: u64,
    /// The host polling for halted vCPUs.
    pub halt_poll: u64,
    /// The host's own tasks.
    pub host_tasks: u64,
    /// Nothing.
    pub idle: u64,
}

impl Breakdown {
    /// Names and values, in the order of output.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 8] {
        [
            ("guest work", self.guest_work),
            ("spinning", self.guest_spin),
            ("guest kernel", self.guest_kernel),
            ("exits", self.exits),
            ("host scheduler", self.host_scheduler),
            ("halt polling", self.halt_poll),
            ("host tasks", self.host_tasks),
            ("idle", self.idle),
        ]
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.parts().iter().map(|(_, ns)| ns).sum()
    }
}

/// What happened how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Exits because a vCPU spun.
    pub pause_exits: u64,
    /// Directed yields that took the run queues' locks.
    pub yields_tried: u64,
    /// Directed yields that found their vCPU waiting.
    pub yields_done: u64,
    /// Exits by HLT.
    pub halt_exits: u64,
    /// Halted vCPUs that were found awake while the host polled.
    pub polls_hit: u64,
    /// Interrupts between vCPUs.
    pub ipis: u64,
    /// Switches of threads on the host.
    pub host_switches: u64,
    /// Threads that changed their pCPU.
    pub host_migrations: u64,
    /// Switches of tasks in guests.
    pub guest_switches: u64,
    /// Tasks that changed their vCPU.
    pub guest_migrations: u64,
    /// vCPUs that waited for a pCPU, ns.
    pub waited_ns: u64,
}

impl Counters {
    /// Names and values, in the order of output.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 11] {
        [
            ("pause exits", self.pause_exits),
            ("directed yields tried", self.yields_tried),
            ("directed yields done", self.yields_done),
            ("halt exits", self.halt_exits),
            ("halt polls hit", self.polls_hit),
            ("ipis", self.ipis),
            ("host switches", self.host_switches),
            ("host migrations", self.host_migrations),
            ("guest switches", self.guest_switches),
            ("guest migrations", self.guest_migrations),
            ("waited ns", self.waited_ns),
        ]
    }
}

/// Latencies of requests, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// Half are below.
    pub median_ns: u64,
    /// 99 of 100 are below.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What was counted of one meter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MeterOutcome {
    /// How many in the counted time.
    pub done: u64,
    /// A second.
    pub per_s: f64,
    /// Requests' latencies, where they have any.
    pub latency: Latency,
}

/// What one VM did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VmOutcome {
    /// By meter.
    pub done: Vec<u64>,
    /// pCPU time that its vCPUs had, ns.
    pub ran_ns: u64,
}

/// Who was on a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A VM's vCPU.
    Vcpu {
        /// The VM.
        vm: u32,
        /// The vCPU in it.
        vcpu: u32,
    },
    /// A host task.
    Host(u32),
}

/// A stretch of time in which one thread was on one pCPU, or an instant of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// Somebody was there.
    Ran {
        /// The pCPU, by its place in the machine.
        pcpu: u32,
        /// Who.
        whose: Whose,
        /// From, ns.
        from_ns: u64,
        /// To, ns.
        to_ns: u64,
    },
    /// A vCPU left the guest because it spun.
    PauseExit {
        /// The pCPU.
        pcpu: u32,
        /// When, ns.
        at_ns: u64,
    },
    /// A directed yield found its vCPU.
    Yield {
        /// The pCPU that gave way.
        pcpu: u32,
        /// When, ns.
        at_ns: u64,
    },
}

/// What a run brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// By meter, over all VMs.
    pub meters: Vec<MeterOutcome>,
    /// By VM.
    pub vms: Vec<VmOutcome>,
    /// Where the time went.
    pub time: Breakdown,
    /// What happened.
    pub counters: Counters,
    /// Events that were handled, warm-up included.
    pub events: u64,
    /// Who ran where, if that was asked for.
    pub map: Vec<Segment>,
}

/// What is counted during a run.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) time: Breakdown,
    pub(super) counters: Counters,
    pub(super) done: Vec<Vec<u64>>,
    pub(super) ran: Vec<u64>,
    pub(super) latencies: Vec<Vec<u64>>,
}

impl Account {
    pub(super) fn new(model: &Model) -> Self {
        Self {
            done: vec![vec![0; model.meters.len()]; model.vms.len()],
            ran: vec![0; model.vms.len()],
            latencies: vec![Vec::new(); model.meters.len()],
            ..Self::default()
        }
    }
}

/// More of them only cost memory; every second one is dropped then.
const MOST_LATENCIES: usize = 1 << 20;

impl World<'_> {
    /// Accounts the pCPU's phase up to now.
    pub(super) fn settle(&mut self, pcpu: u32) {
        let state = &mut self.pcpus[pcpu as usize];
        let spent = self.now - state.since;
        if spent == 0 {
            return;
        }
        state.since = self.now;
        let time = &mut self.account.time;
        match state.doing {
            Doing::Idle => time.idle += spent,
            Doing::Waking | Doing::SchedLock | Doing::SchedHold | Doing::Switching => {
                time.host_scheduler += spent;
            }
            Doing::Yielding { .. } => time.host_scheduler += spent,
            Doing::HaltPoll => time.halt_poll += spent,
            Doing::Exiting(_) | Doing::Scanning(_) | Doing::Entering | Doing::Halting => {
                time.exits += spent;
            }
            Doing::HostTask => {
                time.host_tasks += spent;
                let speed = state.speed;
                if let Some(thread) = state.queue.current() {
                    let left = &mut self.threads[thread as usize].left;
                    *left = left.saturating_sub(spent * speed);
                }
            }
            Doing::Guest => self.settle_guest(pcpu, spent),
        }
    }

    fn settle_guest(&mut self, pcpu: u32, spent: u64) {
        let vcpu = self.vcpu_on(pcpu);
        let speed = self.pcpus[pcpu as usize].speed;
        let state = &mut self.vcpus[vcpu as usize];
        let time = &mut self.account.time;
        self.account.ran[state.vm as usize] += spent;
        let exit = spent.min(state.exit_work);
        state.exit_work -= exit;
        time.exits += exit;
        let kernel = (spent - exit).min(state.kernel_work);
        state.kernel_work -= kernel;
        time.guest_kernel += kernel;
        let own = spent - exit - kernel;
        if own == 0 {
            return;
        }
        let Some(task) = state.queue.current() else {
            if state.asleep {
                time.idle += own;
            } else {
                time.guest_kernel += own;
            }
            return;
        };
        state.queue.charge(&mut self.task_entities, own);
        match &mut self.tasks[task as usize].activity {
            Activity::Work(left, _) => {
                *left = left.saturating_sub(own * speed);
                time.guest_work += own;
            }
            Activity::Spin { left_ns, .. } => {
                if *left_ns != u64::MAX {
                    *left_ns = left_ns.saturating_sub(own);
                }
                time.guest_spin += own;
            }
            Activity::Blocked(_) => time.guest_kernel += own,
        }
    }

    /// From now on all counts.
    pub(super) fn start_counting(&mut self) {
        for pcpu in 0..self.pcpus.len() as u32 {
            self.settle(pcpu);
        }
        self.account = Account::new(self.model);
        for thread in &mut self.threads {
            thread.ready_since = self.now;
        }
        self.counting = true;
    }

    /// One more of a meter.
    pub(super) fn count_done(&mut self, task: u32, meter: u32) {
        let state = &mut self.tasks[task as usize];
        let began = std::mem::take(&mut state.began);
        if !self.counting {
            return;
        }
        self.account.done[state.vm as usize][meter as usize] += 1;
        if began > 0 {
            let latencies = &mut self.account.latencies[meter as usize];
            if latencies.len() >= MOST_LATENCIES {
                let mut keep = false;
                latencies.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
            latencies.push(self.now - (began - 1));
        }
    }

    /// Whether what happens now belongs into the map.
    pub(super) fn keeps_map(&self) -> bool {
        self.model.map_from_ns.is_some_and(|from| self.now >= from)
    }

    /// Keeps who leaves a pCPU now, for the map.
    pub(super) fn map_leaves(&mut self, pcpu: u32, thread: u32) {
        if !self.keeps_map() {
            return;
        }
        let whose = match self.threads[thread as usize].kind {
            ThreadKind::Vcpu(vcpu) => {
                let state = &self.vcpus[vcpu as usize];
                Whose::Vcpu { vm: state.vm, vcpu: state.own }
            }
            ThreadKind::Host(task) => Whose::Host(task),
        };
        let from_ns = self.pcpus[pcpu as usize].switched_in;
        if from_ns < self.now {
            self.map.push(Segment::Ran { pcpu, whose, from_ns, to_ns: self.now });
        }
    }

    pub(super) fn into_outcome(mut self) -> Outcome {
        for pcpu in 0..self.pcpus.len() as u32 {
            self.settle(pcpu);
            if let Some(thread) = self.pcpus[pcpu as usize].queue.current() {
                self.map_leaves(pcpu, thread);
            }
        }
        let seconds = self.model.duration_ns as f64 / 1e9;
        let latencies = std::mem::take(&mut self.account.latencies);
        let meters = latencies.into_iter().enumerate().map(|(meter, mut latencies)| {
            let done: u64 = self.account.done.iter().map(|done| done[meter]).sum();
            latencies.sort_unstable();
            let at = |share: f64| {
                let last = latencies.len().saturating_sub(1);
                latencies.get((share * last as f64) as usize).copied().unwrap_or(0)
            };
            let sum: u128 = latencies.iter().map(|ns| u128::from(*ns)).sum();
            MeterOutcome {
                done,
                per_s: done as f64 / seconds,
                latency: Latency {
                    count: latencies.len() as u64,
                    mean_ns: sum as f64 / latencies.len().max(1) as f64,
                    median_ns: at(0.5),
                    p99_ns: at(0.99),
                    max_ns: at(1.0),
                },
            }
        });
        Outcome {
            meters: meters.collect(),
            vms: self
                .account
                .done
                .iter()
                .zip(&self.account.ran)
                .map(|(done, ran)| VmOutcome { done: done.clone(), ran_ns: *ran })
                .collect(),
            time: self.account.time,
            counters: self.account.counters,
            events: self.events,
            map: self.map,
        }
    }
}
