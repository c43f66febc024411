//! What a run brings: where the time went, what was done, and what happened how often.

use crate::model::SimModel;

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
pub struct EventCounts {
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
    /// Control groups throttled on a pCPU.
    pub throttles: u64,
    /// How long threads waited for a pCPU, all together, ns.
    pub waited_ns: u64,
}

impl EventCounts {
    /// The name of what is a time and no count.
    pub const WAITED: &str = "waited ns";

    /// Names and values, in the order of output.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 12] {
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
            ("throttles", self.throttles),
            (Self::WAITED, self.waited_ns),
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
pub enum PcpuUser {
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
pub enum TraceSegment {
    /// Somebody was there.
    Ran {
        /// The pCPU, by its place in the machine.
        pcpu: u32,
        /// Who.
        whose: PcpuUser,
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

/// The most that is kept of who ran where: 80 MB, and thrice as much as a trace's text.
pub const MOST_SEGMENTS: usize = 2_000_000;

/// What a run brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SimOutcome {
    /// By meter, over all VMs.
    pub meters: Vec<MeterOutcome>,
    /// By VM.
    pub vms: Vec<VmOutcome>,
    /// Where the time went.
    pub time: Breakdown,
    /// What happened.
    pub counters: EventCounts,
    /// Events that were handled, warm-up included.
    pub events: u64,
    /// Who ran where, if that was asked for.
    pub map: Vec<TraceSegment>,
    /// Where that ends before the run does, as [`MOST_SEGMENTS`] were seen, ns.
    pub map_until_ns: Option<u64>,
}

/// What is counted during a run.
#[derive(Debug, Default)]
pub(super) struct RunCounters {
    pub(super) time: Breakdown,
    pub(super) counters: EventCounts,
    pub(super) done: Vec<Vec<u64>>,
    pub(super) ran: Vec<u64>,
    pub(super) latencies: Vec<Vec<u64>>,
}

impl RunCounters {
    pub(super) fn new(model: &SimModel) -> Self {
        Self {
            done: vec![vec![0; model.meters.len()]; model.vms.len()],
            ran: vec![0; model.vms.len()],
            latencies: vec![Vec::new(); model.meters.len()],
            ..Self::default()
        }
    }
}
