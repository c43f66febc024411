//! The state of a run.

use std::collections::VecDeque;

use super::deadlock::Deadlock;
use super::outcome::{RunCounters, TraceSegment};
use crate::model::{RepeatSteps, SimModel, SimStart, WorkClass};
use crate::queue::EventQueue;
use crate::random::Random;
use crate::sched::balance::{BalanceClock, IdleHistory, RunnableAverage};
use crate::sched::place::WakeeFlips;
use crate::sched::{Entity, HostQueue, RunQueue};

/// The stream of chance of when pCPUs balance first, apart from that of the run.
const BALANCE_STREAM: u64 = 2;
/// That of guests' ticks and of when vCPUs balance first.
const GUEST_STREAM: u64 = 3;

/// Events beside the ends of the pCPUs' phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EngineEvent {
    /// The host's tick on a pCPU.
    Tick(u32),
    /// A resched IPI reaches a pCPU.
    Kick(u32),
    /// An interrupt that one vCPU sends reaches another.
    Ipi { to: u32, from: u32, vector: InterruptVector },
    /// A guest's task has slept enough.
    TaskTimer(u32),
    /// A host's task has.
    HostTimer(u32),
    /// Gangs take turns.
    GangTurn,
    /// The tick of a vCPU that halted.
    GuestTick(u32),
    /// A group's period begins.
    Refill(u32),
    /// What pCPUs returned of a group's runtime goes to others.
    Slack(u32),
    /// From now on all counts.
    WarmedUp,
}

/// What interrupts a vCPU. One that is pending already is not pending twice (the APIC's IRR).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InterruptVector {
    Timer,
    Reschedule,
    CallFunction,
}

/// Why a vCPU left the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// It spun too long.
    Pause,
    /// It has nothing to do.
    Halt,
    /// The host wants something else to run.
    Kick,
    /// It gives the pCPU to that vCPU, by a hypercall.
    Yield(u32),
}

/// What a pCPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PcpuActivity {
    Idle,
    /// On its way to its idle state; looks once more whether there is something to do.
    GoingIdle,
    /// Leaves its idle state.
    Waking,
    HostTask,
    Guest,
    Exiting(Exit),
    /// Looks for a vCPU to yield to; the one found, if any.
    Scanning(Option<u32>),
    /// Waits for, then holds, the run queues of itself and of a vCPU's pCPU.
    Yielding {
        to: u32,
        first: u32,
        second: u32,
        held: u8,
    },
    /// Waits for its own run queue in schedule().
    SchedLock,
    /// Holds it.
    SchedHold,
    Switching,
    /// Enters the guest.
    Entering,
    /// Polls for a halted vCPU.
    HaltPoll,
    /// Is about to block a halted vCPU.
    Halting,
}

/// A run queue's lock: first come, first served.
#[derive(Debug, Default)]
pub(super) struct QueueLock {
    pub(super) holder: Option<u32>,
    pub(super) waiters: VecDeque<u32>,
}

/// Sleeps of an idle processor. The cpuidle governor (menu, teo) expects the next one to be
/// as long as those before; the last one stands for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleSleep {
    since: u64,
    expected: u64,
}

impl IdleSleep {
    fn new() -> Self {
        Self { since: 0, expected: u64::MAX }
    }

    pub(super) fn begins(&mut self, now: u64) {
        self.since = now;
    }

    /// The sleep is over: how long the processor takes to leave its state.
    pub(super) fn ends(&mut self, now: u64, ns: &Ns) -> u64 {
        let short = self.expected < ns.idle_short;
        self.expected = now - self.since;
        if short { ns.idle_wake_short.min(ns.idle_wake) } else { ns.idle_wake }
    }
}

/// A group, over all pCPUs (`struct task_group`).
#[derive(Debug)]
pub(super) struct GroupState {
    /// Weights of all its threads that are on queues.
    pub(super) load: u64,
    /// Runtime that no pCPU has taken yet (`cfs_b->runtime`).
    pub(super) pool: i64,
    /// What each pCPU has left of what it took (`runtime_remaining`).
    pub(super) left: Vec<i64>,
    pub(super) slack_pending: bool,
}

impl GroupState {
    pub(super) fn new(pcpus: usize, quota_ns: i64) -> Self {
        Self { load: 0, pool: quota_ns, left: vec![0; pcpus], slack_pending: false }
    }
}

/// How a pCPU weighs on its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Burden {
    None,
    Spin,
    Busy,
    /// Busy with memory's bandwidth.
    Stream,
}

// What each event looks at comes first in these, on as few cache lines as it goes: a storm
// looks at another pCPU's, thread's and vCPU's each time.

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct PcpuState {
    pub(super) doing: PcpuActivity,
    /// Up to when its phase is accounted.
    pub(super) since: u64,
    /// Up to when its run queue is charged.
    pub(super) charged: u64,
    /// TIF_NEED_RESCHED.
    pub(super) resched: bool,
    pub(super) kick_pending: bool,
    pub(super) burden: Burden,
    pub(super) queue: HostQueue,
    pub(super) lock: QueueLock,
    /// Speed of what runs, in 1024ths.
    pub(super) speed: u64,
    /// When the running thread was switched in, for the map.
    pub(super) switched_in: u64,
    pub(super) sleep: IdleSleep,
    pub(super) idle: IdleHistory,
    pub(super) balance: BalanceClock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadState {
    Running,
    Ready,
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadKind {
    Vcpu(u32),
    /// Index of the host task, and what is left of its burst.
    Host(u32),
}

/// A thread of the host.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct HostThread {
    pub(super) kind: ThreadKind,
    pub(super) state: ThreadState,
    pub(super) pcpu: u32,
    /// It wants to leave the run queue at the next schedule().
    pub(super) blocking: bool,
    /// It was woken and has not run since: it waits, but was not preempted.
    pub(super) woken: bool,
    /// Where active balance sends it at the next schedule().
    pub(super) migrate_to: Option<u32>,
    pub(super) flips: WakeeFlips,
    pub(super) ready_since: u64,
    /// When it last ran (`exec_start`).
    pub(super) ran_until: u64,
    pub(super) runnable: RunnableAverage,
    /// The pCPUs it may run on, as bits; all if empty.
    pub(super) allowed: Vec<u64>,
    /// Work left of its burst in 1024ths of ns, for host tasks.
    pub(super) left: u64,
}

impl HostThread {
    pub(super) fn may_run_on(&self, pcpu: u32) -> bool {
        self.allowed.is_empty() || self.allowed[pcpu as usize / 64] >> (pcpu % 64) & 1 == 1
    }
}

/// What a guest's task waits for while it spins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpinReason {
    Lock(u32),
    Barrier(u32),
    Answers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    /// Work left, in 1024ths of ns.
    Work(u64, WorkClass),
    /// Spins; the time after which it halts or sleeps counts while it runs.
    Spin { on: SpinReason, left_ns: u64 },
    /// Sleeps, or waits off the CPU.
    Blocked(BlockReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockReason {
    Timer,
    Lock(u32),
    Barrier(u32),
    Full(u32),
    Empty(u32),
}

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct TaskState {
    pub(super) activity: Activity,
    pub(super) vm: u32,
    pub(super) own: u32,
    pub(super) vcpu: u32,
    pub(super) at: usize,
    /// Locks that it holds.
    pub(super) held: u32,
    /// Spin locks that it holds or waits for, and flushes it waits for: while there are any
    /// it is not preempted in the guest (`preempt_count`).
    pub(super) atomic: u32,
    /// Those of them that keep interrupts off.
    pub(super) irqs_off: u32,
    /// It has halted for a lock, and did not run since.
    pub(super) stopped: bool,
    /// When it made its last step, and how many it made at that instant.
    pub(super) stepped_at: u64,
    pub(super) hurried: u32,
    /// How often it has done what it repeats, by depth.
    pub(super) rounds: [u32; RepeatSteps::MOST_NESTED],
    pub(super) answers_missing: u32,
    pub(super) began: u64,
    pub(super) runnable: RunnableAverage,
    /// When it last ran (`exec_start`), and since when it waits.
    pub(super) ran_until: u64,
    pub(super) ready_since: u64,
    /// Where active balance sends it.
    pub(super) migrate_to: Option<u32>,
    pub(super) flips: WakeeFlips,
}

#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    /// Those that have arrived, a bit for each [`InterruptVector`].
    pub(super) vectors: u8,
    /// Tasks to answer, by [`crate::model::Op::Flush`].
    pub(super) answer: Vec<u32>,
    /// Tasks whose timer is due.
    pub(super) timers: Vec<u32>,
    /// Tasks that were woken for this vCPU (`rq->wake_list`).
    pub(super) wakeups: Vec<u32>,
    /// The tick.
    pub(super) tick: bool,
    /// Balance for all that are idle (`NOHZ_BALANCE_KICK`).
    pub(super) balance: bool,
}

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct VcpuState {
    pub(super) vm: u32,
    /// Its number in the VM.
    pub(super) own: u32,
    pub(super) thread: u32,
    /// PF_VCPU: in guest mode now.
    pub(super) in_guest: bool,
    /// Blocked in HLT.
    pub(super) halted: bool,
    /// Needs to choose another task.
    pub(super) resched: bool,
    /// A resched IPI is on its way.
    pub(super) resched_sent: bool,
    /// Its task keeps interrupts off: they wait, the tick too.
    pub(super) irqs_off: bool,
    pub(super) in_spin_loop: bool,
    pub(super) dy_eligible: bool,
    /// ns of exits' and of kernel's work to do before the task goes on.
    pub(super) exit_work: u64,
    pub(super) kernel_work: u64,
    /// Since when it spins or idles in one go, for PLE and haltpoll.
    pub(super) spin_from: u64,
    pub(super) next_tick: u64,
    /// The vCPU that it will give the pCPU, by a hypercall.
    pub(super) yields_to: Option<u32>,
    pub(super) ple_window: u64,
    pub(super) scan_at: u32,
    pub(super) scan_left: u32,
    pub(super) tries: u32,
    /// Answers to give when the kernel's work is done.
    pub(super) answering: Vec<u32>,
    /// Slow-down by remote memory where it runs, per thousand of memory-bound time.
    pub(super) remote_permille: u64,
    pub(super) queue: RunQueue,
    pub(super) pending: PendingEvents,
    pub(super) halted_since: u64,
    /// Its tick has not stopped, as it does when it is idle.
    pub(super) tick_on: bool,
    /// A tick for it while it is halted is among the events.
    pub(super) tick_sent: bool,
    /// When the soonest of its tasks' timers is due.
    pub(super) timer_at: u64,
    pub(super) idle: IdleHistory,
    pub(super) balance: BalanceClock,
    pub(super) halt_poll: u64,
    pub(super) last_yield: Option<u64>,
    /// It has gone all the way to its idle state since it had something to do.
    pub(super) idle_entered: bool,
    /// Turned off by an HLT that makes no exit: asleep inside the guest.
    pub(super) asleep: bool,
    pub(super) sleep: IdleSleep,
}

#[derive(Debug)]
pub(super) struct SimulatedVm {
    pub(super) first_vcpu: u32,
    pub(super) vcpus: u32,
    pub(super) first_lock: u32,
    pub(super) first_barrier: u32,
    pub(super) first_channel: u32,
    pub(super) last_boosted: u32,
    pub(super) last_yield: Option<u64>,
    /// When its vCPUs' ticks are, modulo the tick.
    pub(super) tick_offset: u64,
    /// Some of its tasks may run on more than one vCPU.
    pub(super) movable: bool,
    /// Idle vCPUs have nothing to balance before (`nohz.next_balance`).
    pub(super) next_kick: u64,
    /// Exits, PLE and the like exist.
    pub(super) metal: bool,
    /// Steps that its tasks made.
    pub(super) progress: u64,
    pub(super) progress_seen: u64,
}

#[derive(Debug, Default)]
pub(super) struct LockState {
    pub(super) vm: u32,
    pub(super) own: u32,
    pub(super) holder: Option<u32>,
    pub(super) waiters: VecDeque<u32>,
    /// The first of them spins as the head of the queue (`_Q_PENDING_VAL` of a paravirtual lock):
    /// nobody else may take it.
    pub(super) pending: bool,
    /// The first of them, if it has begun to spin as that.
    pub(super) spun_as_head: Option<u32>,
    /// Who spins for it beside the queue.
    pub(super) beside: Vec<u32>,
    /// The vCPU that has its cache line, and from when on.
    pub(super) line: (Option<u32>, u64),
    /// Where it is a zone's: the pages on each CPU's own list (`pcp->count`).
    pub(super) page_lists: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct BarrierState {
    pub(super) vm: u32,
    pub(super) own: u32,
    pub(super) arrived: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct ChannelState {
    pub(super) vm: u32,
    pub(super) own: u32,
    pub(super) level: u64,
    pub(super) senders: VecDeque<u32>,
    pub(super) receivers: VecDeque<u32>,
}

/// Costs in whole ns, and speeds in 1024ths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ns {
    pub(super) exit: u64,
    pub(super) entry: u64,
    pub(super) check: u64,
    pub(super) yield_hold: u64,
    pub(super) sched_hold: u64,
    pub(super) lock_transfer: u64,
    pub(super) lock_waiter: u64,
    pub(super) switch: u64,
    pub(super) tick_work: u64,
    pub(super) resched_ipi: u64,
    pub(super) ipi_exit_work: u64,
    pub(super) ipi_send: u64,
    pub(super) irq: u64,
    pub(super) idle_wake: u64,
    pub(super) idle_wake_short: u64,
    pub(super) idle_short: u64,
    pub(super) idle_entry: u64,
    /// From asking a pCPU that sleeps to leave its state to its doing so.
    pub(super) idle_signal: u64,
    pub(super) halt_work: u64,
    pub(super) guest_switch: u64,
    pub(super) guest_wake: u64,
    pub(super) handoff: u64,
    pub(super) smt_compute: u64,
    pub(super) smt_stream: u64,
    pub(super) smt_spin: u64,
    pub(super) remote_permille: u64,
    /// A line of another node's time, in 1024ths of one of this node's.
    pub(super) remote_line: u64,
}

/// All of it.
#[derive(Debug)]
pub(super) struct EngineState<'m> {
    pub(super) model: &'m SimModel,
    pub(super) now: u64,
    pub(super) events: u64,
    pub(super) queue: EventQueue<EngineEvent>,
    pub(super) random: Random,
    pub(super) ns: Ns,
    pub(super) pcpus: Vec<PcpuState>,
    pub(super) threads: Vec<HostThread>,
    /// The host's scheduler's view of `threads`.
    pub(super) entities: Vec<Entity>,
    pub(super) groups: Vec<GroupState>,
    pub(super) vcpus: Vec<VcpuState>,
    pub(super) vms: Vec<SimulatedVm>,
    pub(super) tasks: Vec<TaskState>,
    /// The guests' schedulers' view of `tasks`.
    pub(super) task_entities: Vec<Entity>,
    pub(super) locks: Vec<LockState>,
    pub(super) barriers: Vec<BarrierState>,
    pub(super) channels: Vec<ChannelState>,
    pub(super) gang_turn: u64,
    /// Some thread may run on more than one pCPU.
    pub(super) movable: bool,
    pub(super) smt: bool,
    pub(super) counting: bool,
    pub(super) account: RunCounters,
    pub(super) map: Vec<TraceSegment>,
    /// When there was no more room in it.
    pub(super) map_until: Option<u64>,
    pub(super) stuck: Option<Deadlock>,
}

fn bits(pins: &[u32], pcpus: usize) -> Vec<u64> {
    if pins.is_empty() {
        return Vec::new();
    }
    let mut words = vec![0u64; pcpus.div_ceil(64)];
    for pcpu in pins {
        words[*pcpu as usize / 64] |= 1 << (pcpu % 64);
    }
    words
}

impl<'m> EngineState<'m> {
    pub(super) fn new(model: &'m SimModel) -> Self {
        let costs = &model.costs;
        let ns = |value: f64| value.max(0.0) as u64;
        let speed = |value: f64| (value * 1024.0).clamp(1.0, 1024.0) as u64;
        let pcpus = model.machine.len();
        let mut world = Self {
            model,
            now: 0,
            events: 0,
            queue: EventQueue::new(pcpus),
            random: Random::new(model.seed, 1),
            ns: Ns {
                exit: ns(costs.exit_ns),
                entry: ns(costs.entry_ns),
                check: ns(costs.check_ns),
                yield_hold: ns(costs.yield_hold_ns),
                sched_hold: ns(costs.sched_hold_ns),
                lock_transfer: ns(costs.lock_transfer_ns),
                lock_waiter: ns(costs.lock_waiter_ns),
                switch: ns(costs.switch_ns),
                tick_work: ns(costs.tick_work_ns),
                resched_ipi: ns(costs.resched_ipi_ns),
                ipi_exit_work: ns(costs.ipi_exit_work_ns),
                ipi_send: ns(costs.ipi_send_ns),
                irq: ns(costs.irq_ns),
                idle_wake: ns(costs.idle_wake_ns),
                idle_wake_short: ns(costs.idle_wake_short_ns),
                idle_short: ns(costs.idle_short_ns),
                idle_entry: if model.mechanisms.idle_entry { ns(costs.idle_entry_ns) } else { 0 },
                idle_signal: ns(if model.mechanisms.idle_entry {
                    costs.handoff_ns
                } else {
                    costs.resched_ipi_ns
                }),
                halt_work: ns(costs.halt_work_ns),
                guest_switch: ns(costs.guest_switch_ns),
                guest_wake: ns(costs.guest_wake_ns),
                handoff: ns(costs.handoff_ns).max(1),
                smt_compute: speed(costs.smt_compute_factor),
                smt_stream: speed(costs.smt_stream_factor),
                smt_spin: speed(costs.smt_spin_factor),
                remote_permille: ns(costs.remote_memory_cost * 1000.0),
                remote_line: if model.mechanisms.remote_lines {
                    ns(costs.remote_line_factor.max(1.0) * 1024.0)
                } else {
                    1024
                },
            },
            pcpus: (0..pcpus)
                .map(|_| PcpuState {
                    doing: PcpuActivity::Idle,
                    since: 0,
                    charged: 0,
                    queue: HostQueue::default(),
                    lock: QueueLock::default(),
                    resched: false,
                    kick_pending: false,
                    burden: Burden::None,
                    sleep: IdleSleep::new(),
                    idle: IdleHistory::new(),
                    balance: BalanceClock::default(),
                    speed: 1024,
                    switched_in: 0,
                })
                .collect(),
            threads: Vec::new(),
            entities: Vec::new(),
            groups: model
                .groups
                .iter()
                .map(|group| {
                    let quota = group.quota.map_or(0, |quota| quota.quota_ns as i64);
                    GroupState::new(pcpus, quota)
                })
                .collect(),
            vcpus: Vec::new(),
            vms: Vec::new(),
            tasks: Vec::new(),
            task_entities: Vec::new(),
            locks: Vec::new(),
            barriers: Vec::new(),
            channels: Vec::new(),
            gang_turn: 0,
            movable: false,
            smt: model.mechanisms.smt
                && (0..pcpus as u32).any(|pcpu| !model.machine.siblings(pcpu).is_empty()),
            counting: model.warmup_ns == 0,
            account: RunCounters::new(model),
            map: Vec::new(),
            map_until: None,
            stuck: None,
        };
        for vm in 0..model.vms.len() as u32 {
            world.add_vm(vm);
        }
        for (index, task) in model.host_tasks.iter().enumerate() {
            let kind = ThreadKind::Host(index as u32);
            let thread = world.add_thread(kind, bits(&task.pins, pcpus), task.weight);
            world.entities[thread as usize].group = task.group;
        }
        world.add_groups();
        let one = |allowed: &[u64]| allowed.iter().map(|word| word.count_ones()).sum::<u32>() == 1;
        world.movable = world.threads.iter().any(|thread| !one(&thread.allowed));
        if world.movable && model.mechanisms.balance {
            let mut random = Random::new(model.seed, BALANCE_STREAM);
            let mut offset = |interval_ns| match model.start {
                SimStart::Random => random.below(interval_ns),
                SimStart::Aligned => 0,
            };
            for (pcpu, state) in (0..).zip(&mut world.pcpus) {
                let kernel = model.policy.kernel;
                state.balance = BalanceClock::new(&model.machine, kernel, pcpu, &mut offset);
            }
        }
        world
    }

    fn add_thread(&mut self, kind: ThreadKind, allowed: Vec<u64>, weight: u32) -> u32 {
        self.entities.push(Entity::new(weight));
        self.threads.push(HostThread {
            kind,
            state: ThreadState::Blocked,
            pcpu: 0,
            blocking: false,
            woken: false,
            migrate_to: None,
            flips: WakeeFlips::default(),
            ready_since: 0,
            ran_until: 0,
            runnable: RunnableAverage::new(),
            allowed,
            left: 0,
        });
        self.threads.len() as u32 - 1
    }

    /// Entities of the groups stand behind those of all threads.
    fn add_groups(&mut self) {
        let (threads, groups) = (self.threads.len() as u32, self.groups.len() as u32);
        let pcpus = self.pcpus.len() as u32;
        for pcpu in 0..pcpus {
            self.pcpus[pcpu as usize].queue = HostQueue::new(pcpu, pcpus, threads, groups);
        }
        for group in &self.model.groups {
            self.entities.extend((0..pcpus).map(|_| Entity::new(group.shares)));
        }
    }

    fn add_vm(&mut self, vm: u32) {
        let model = &self.model.vms[vm as usize];
        let pcpus = self.model.machine.len();
        let first_vcpu = self.vcpus.len() as u32;
        let vcpus = model.machine.len() as u32;
        let mut random = Random::new(self.model.seed, GUEST_STREAM + (u64::from(vm) << 8));
        let mut offset = |range_ns: u64| match self.model.start {
            SimStart::Random => random.below(range_ns),
            SimStart::Aligned => 0,
        };
        let tick_offset = offset(model.policy.tick_ns);
        let movable = vcpus > 1 && model.tasks.iter().any(|task| task.pin.is_none());
        let balances = movable && self.model.mechanisms.balance;
        self.vms.push(SimulatedVm {
            first_vcpu,
            vcpus,
            first_lock: self.locks.len() as u32,
            first_barrier: self.barriers.len() as u32,
            first_channel: self.channels.len() as u32,
            last_boosted: 0,
            last_yield: None,
            tick_offset,
            movable,
            next_kick: 0,
            metal: model.metal,
            progress: 1,
            progress_seen: 0,
        });
        for own in 0..vcpus {
            let pins = model.pins.get(own as usize).map_or(&[][..], Vec::as_slice);
            let id = self.vcpus.len() as u32;
            let thread = self.add_thread(ThreadKind::Vcpu(id), bits(pins, pcpus), model.weight);
            self.entities[thread as usize].group = model.group;
            self.vcpus.push(VcpuState {
                vm,
                own,
                thread,
                queue: RunQueue::default(),
                in_guest: false,
                halted: false,
                halted_since: 0,
                resched: true,
                resched_sent: false,
                irqs_off: false,
                exit_work: 0,
                kernel_work: 0,
                spin_from: 0,
                next_tick: tick_offset,
                tick_on: true,
                tick_sent: false,
                timer_at: u64::MAX,
                idle: IdleHistory::new(),
                balance: if balances {
                    BalanceClock::new(&model.machine, model.policy.kernel, own, &mut offset)
                } else {
                    BalanceClock::default()
                },
                pending: PendingEvents::default(),
                answering: Vec::new(),
                in_spin_loop: false,
                dy_eligible: false,
                ple_window: self.model.kvm.ple_window_ns,
                halt_poll: if self.model.kvm.halt_poll_adapts {
                    0
                } else {
                    self.model.kvm.halt_poll_ns
                },
                last_yield: None,
                scan_at: 0,
                scan_left: 0,
                tries: 0,
                yields_to: None,
                remote_permille: 0,
                idle_entered: false,
                asleep: false,
                sleep: IdleSleep::new(),
            });
        }
        for own in 0..model.locks.len() as u32 {
            self.locks.push(LockState { vm, own, ..LockState::default() });
        }
        for own in 0..model.barriers.len() as u32 {
            self.barriers.push(BarrierState { vm, own, ..BarrierState::default() });
        }
        for (own, channel) in model.channels.iter().enumerate() {
            self.channels.push(ChannelState {
                vm,
                own: own as u32,
                level: channel.initial,
                ..ChannelState::default()
            });
        }
        for (own, task) in model.tasks.iter().enumerate() {
            self.task_entities.push(Entity::new(task.weight));
            self.tasks.push(TaskState {
                vm,
                own: own as u32,
                vcpu: first_vcpu,
                at: 0,
                activity: Activity::Work(0, WorkClass::COMPUTE),
                held: 0,
                atomic: 0,
                irqs_off: 0,
                stopped: false,
                rounds: [0; RepeatSteps::MOST_NESTED],
                answers_missing: 0,
                began: 0,
                runnable: RunnableAverage::new(),
                ran_until: 0,
                ready_since: 0,
                migrate_to: None,
                flips: WakeeFlips::default(),
                stepped_at: 0,
                hurried: 0,
            });
        }
    }
}
