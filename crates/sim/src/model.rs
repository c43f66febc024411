//! What is simulated: one host, its VMs and their tasks, as numbers.

use crate::costs::CostModel;
use crate::machine::SimMachine;
use crate::random::Duration;
use crate::sched::{KernelRelease, SchedKernel, SchedPolicy};

/// One run's input. The same model brings the same outcome, to the last bit.
#[derive(Debug, Clone)]
pub struct SimModel {
    /// The host's pCPUs.
    pub machine: SimMachine,
    /// The host's scheduler.
    pub policy: SchedPolicy,
    /// Gang scheduling with turns of so many ns: the vCPUs of a VM run together.
    pub gang_ns: Option<u64>,
    /// KVM.
    pub kvm: SimKvm,
    /// What things cost.
    pub costs: CostModel,
    /// Mechanisms that can be switched off.
    pub mechanisms: Mechanisms,
    /// The VMs.
    pub vms: Vec<SimVm>,
    /// Control groups on the host.
    pub groups: Vec<SimGroup>,
    /// What else runs on the host.
    pub host_tasks: Vec<HostTask>,
    /// What is counted, for [`Op::Done`].
    pub meters: Vec<String>,
    /// Time before anything is counted.
    pub warmup_ns: u64,
    /// Time that is counted.
    pub duration_ns: u64,
    /// The seed of all chance.
    pub seed: u64,
    /// How it begins.
    pub start: SimStart,
    /// From when on who ran where is kept, ns; not at all if none.
    pub map_from_ns: Option<u64>,
}

/// How a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimStart {
    /// Each pCPU somewhere in its turn.
    Random,
    /// All pCPUs at the beginning of the first VM's turn.
    Aligned,
}

/// Mechanisms beside KVM's and the scheduler's own switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanisms {
    /// Run-queue locks are exclusive; else they cost their time, without waiting.
    pub queue_locks: bool,
    /// Threads of a core slow each other.
    pub smt: bool,
    /// Remote memory costs.
    pub remote_memory: bool,
    /// Idle pCPUs take from others, and guests' idle vCPUs do.
    pub balance: bool,
    /// Going idle takes time, and who is on the way, or waits by MWAIT, is woken without an IPI.
    pub idle_entry: bool,
    /// Cache lines take longer from another node.
    pub remote_lines: bool,
    /// Who wakes a task on a busy vCPU that shares no cache sends it an interrupt, and it takes
    /// the task on its queue by itself (`ttwu_queue()`).
    pub queued_wakeups: bool,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self {
            queue_locks: true,
            smt: true,
            remote_memory: true,
            balance: true,
            idle_entry: true,
            remote_lines: true,
            queued_wakeups: true,
        }
    }
}

/// A control group of the host's root (`struct task_group`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimGroup {
    /// `cpu.shares`; 1024 is one thread of nice 0, and a `cpu.weight` of 100.
    pub shares: u32,
    /// `cpu.max`; none is no limit.
    pub quota: Option<CfsBandwidth>,
}

/// How long a group may run in each period, on all pCPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CfsBandwidth {
    /// `cpu.cfs_quota_us`, ns.
    pub quota_ns: u64,
    /// `cpu.cfs_period_us`, ns.
    pub period_ns: u64,
}

/// KVM, as far as versions and settings of it differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimKvm {
    /// Whether a spinning vCPU exits (`ple_gap` is not 0).
    pub ple: bool,
    /// How long a vCPU spins before, ns (`ple_window`, in time).
    pub ple_window_ns: u64,
    /// Factor by which its window grows at each such exit (`ple_window_grow`);
    /// below 2 it does not.
    pub ple_window_grow: u32,
    /// Divisor when it comes to run again (`ple_window_shrink`); 0 resets it.
    pub ple_window_shrink: u32,
    /// The longest window, ns.
    pub ple_window_max_ns: u64,
    /// What such an exit does.
    pub on_spin: DirectedYieldRule,
    /// At most one directed yield in each such time; a plain `yield()` at all
    /// other exits.
    pub throttle: Option<Throttle>,
    /// The longest time that the host polls for a halted vCPU, ns; 0 is off.
    pub halt_poll_ns: u64,
    /// Each vCPU's polling grows and shrinks with how long it waits (since 4.4); else it
    /// always lasts the longest time.
    pub halt_poll_adapts: bool,
    /// Interrupts reach a running vCPU without an exit.
    pub posted_interrupts: bool,
    /// Sending an IPI makes an exit.
    pub ipi_exits: bool,
    /// To how many vCPUs one exit sends an IPI: those of a cluster in x2APIC's cluster mode,
    /// which are 16; 1 in its physical mode and with xAPIC.
    pub ipi_cluster: u32,
    /// One exit sends an IPI to 128 vCPUs (`KVM_HC_SEND_IPI`).
    pub pv_ipi: bool,
    /// A flush leaves out vCPUs that don't run (`KVM_FEATURE_PV_TLB_FLUSH`).
    pub pv_tlb_flush: bool,
    /// Who interrupts others for an answer gives its pCPU to the first that does not run
    /// (`KVM_FEATURE_PV_SCHED_YIELD`, since 5.3).
    pub pv_sched_yield: bool,
    /// HLT makes an exit; else the pCPU sleeps inside the guest (cpu-pm).
    pub hlt_exits: bool,
    /// Who wakes the halted waiter of a paravirtual lock gives it its own pCPU if it waits for
    /// one (`kvm_sched_yield()` at `KVM_HC_KICK_CPU`, since 5.4).
    pub kick_yields: bool,
}

impl SimKvm {
    /// KVM as of `release`, on processors of its time.
    #[must_use]
    pub fn defaults(release: impl Into<KernelRelease>) -> Self {
        let release = release.into();
        // 4096 cycles at 2.4 GHz.
        let ple_window_ns = 1_707;
        let dynamic = release.sched() >= SchedKernel::V5;
        Self {
            ple: true,
            ple_window_ns,
            ple_window_grow: if release >= (KernelRelease { major: 3, minor: 18 }) { 2 } else { 0 },
            ple_window_shrink: 0,
            ple_window_max_ns: u64::from(u32::MAX) / 3,
            on_spin: DirectedYieldRule::defaults(release),
            throttle: None,
            halt_poll_ns: if dynamic { 200_000 } else { 0 },
            halt_poll_adapts: release >= KernelRelease { major: 4, minor: 4 },
            posted_interrupts: dynamic,
            ipi_exits: true,
            ipi_cluster: 1,
            pv_ipi: dynamic,
            pv_tlb_flush: dynamic,
            pv_sched_yield: release >= KernelRelease { major: 5, minor: 3 },
            hlt_exits: true,
            kick_yields: release >= KernelRelease { major: 5, minor: 4 },
        }
    }
}

/// `kvm_vcpu_on_spin()`: which vCPUs a directed yield may go to, by version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectedYieldRule {
    /// Leaves out who is in guest mode now (`PF_VCPU`; dropped in 3.10).
    pub skip_in_guest: bool,
    /// Leaves out who does not wait for a pCPU (`vcpu->preempted` since 3.10, `vcpu->ready`
    /// since 5.3).
    pub skip_not_ready: bool,
    /// Leaves out who waits because it was woken, not preempted (`vcpu->preempted`; 3.10 to
    /// 5.2).
    pub skip_woken: bool,
    /// Leaves out who spins too, every other time (since 3.6).
    pub skip_spinning: bool,
    /// Leaves out who was preempted, not woken, in user mode (since 4.14).
    pub skip_user_mode: bool,
    /// Gives up after three queues that, like this one, have a single task
    /// (since 3.9).
    pub undercommit_check: bool,
}

impl DirectedYieldRule {
    /// As of `release`.
    #[must_use]
    pub fn defaults(release: impl Into<KernelRelease>) -> Self {
        let release = release.into();
        let kernel = release.sched();
        Self {
            skip_in_guest: kernel == SchedKernel::V3_6,
            skip_not_ready: kernel >= SchedKernel::V3_13,
            skip_woken: kernel >= SchedKernel::V3_13
                && release < KernelRelease { major: 5, minor: 3 },
            skip_spinning: true,
            skip_user_mode: kernel >= SchedKernel::V5,
            undercommit_check: kernel >= SchedKernel::V3_13,
        }
    }
}

/// A limit on directed yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// The time in which there is one.
    pub period_ns: u64,
    /// One for the whole VM; else one for each vCPU.
    pub whole_vm: bool,
}

/// One VM.
#[derive(Debug, Clone)]
pub struct SimVm {
    /// Its name.
    pub name: String,
    /// What its kernel believes of its vCPUs.
    pub machine: SimMachine,
    /// Its scheduler.
    pub policy: SchedPolicy,
    /// The pCPUs that each vCPU may run on; all where it is empty.
    pub pins: Vec<Vec<u32>>,
    /// Weight of each vCPU on the host.
    pub weight: u32,
    /// The control group of its vCPUs, a place in [`SimModel::groups`].
    pub group: Option<u16>,
    /// How long an idle vCPU polls before it halts, ns (`cpuidle-haltpoll`);
    /// [`u64::MAX`] never halts.
    pub idle_poll_ns: u64,
    /// How its kernel goes idle.
    pub idle: IdleRules,
    /// A CPU that has calls of others to answer gets an IPI for each further one too, as before
    /// 4.13 (`smp_call_function_many()`).
    pub repeats_call_ipis: bool,
    /// It is not a VM: its tasks run on the host, without exits.
    pub metal: bool,
    /// The nodes that its memory is spread over; where it runs if empty.
    pub memory_nodes: Vec<u32>,
    /// Its tasks.
    pub tasks: Vec<GuestTask>,
    /// Its locks.
    pub locks: Vec<GuestLock>,
    /// Its barriers.
    pub barriers: Vec<Barrier>,
    /// Its semaphores and pipes.
    pub channels: Vec<SimChannel>,
}

impl SimVm {
    /// Steps of all its tasks' programs.
    pub(crate) fn steps(&self) -> u64 {
        self.tasks.iter().map(|task| task.program.len() as u64).sum()
    }
}

/// How a kernel goes idle, by version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleRules {
    /// The tick stops first of all, not as the last thing before HLT (until 4.16).
    pub stops_tick_first: bool,
    /// Who takes an IPI to be woken though it polls.
    pub ipis: IdleIpis,
}

impl IdleRules {
    /// As of `release`.
    #[must_use]
    pub fn defaults(release: impl Into<KernelRelease>) -> Self {
        let KernelRelease { major, minor } = release.into();
        let ipis = match (major, minor) {
            (3, 0..=2) => IdleIpis::All,
            (3, 3..=15) => IdleIpis::AcrossCaches,
            _ => IdleIpis::Halted,
        };
        Self { stops_tick_first: (major, minor) < (4, 17), ipis }
    }
}

/// Which idle CPUs are woken by an IPI (`ttwu_queue()`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleIpis {
    /// Those that do not watch `TIF_POLLING_NRFLAG` alone (since 3.16).
    Halted,
    /// All that share no cache with who wakes them, too (3.3 to 3.15).
    AcrossCaches,
    /// All (3.0 to 3.2).
    All,
}

/// One task of a guest: a program that repeats.
#[derive(Debug, Clone)]
pub struct GuestTask {
    /// Its name, for messages.
    pub name: String,
    /// What it does, again and again.
    pub program: Vec<Op>,
    /// The one vCPU that it may run on; any if none.
    pub pin: Option<u32>,
    /// Its weight in the guest.
    pub weight: u32,
}

/// One step of a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// Computes.
    Work(Duration, WorkClass),
    /// Takes a lock.
    Lock(u32),
    /// Gives it back.
    Unlock(u32),
    /// Waits until all of a barrier are there.
    Barrier(u32),
    /// Adds to a channel, waiting while it is full.
    Send(u32),
    /// Takes from a channel, waiting while it is empty.
    Receive(u32),
    /// Interrupts all other vCPUs that are not idle and spins until each has
    /// answered.
    Flush,
    /// The same with idle ones too (`smp_call_function_many()`).
    Call,
    /// Sleeps.
    Sleep(Duration),
    /// Goes back by so many steps until they were done so often.
    Repeat(RepeatSteps),
    /// Takes pages from a CPU's own list of free pages, or puts them back there.
    Pages(PageListStep),
    /// A request begins.
    Begin,
    /// One more of a meter; with a latency if a request began.
    Done(u32),
}

/// Steps before this one that are done several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatSteps {
    /// How many steps.
    pub steps: u32,
    /// How often they are done.
    pub times: u32,
    /// How many others are around it, below [`RepeatSteps::MOST_NESTED`].
    pub depth: u32,
}

impl RepeatSteps {
    /// How deep they may be nested.
    pub const MOST_NESTED: usize = 4;
}

/// Pages from or to the list of free pages of the CPU that the task is on (`rmqueue_pcplist`,
/// `free_unref_page_commit`). The steps behind it move a batch between that list and the zone:
/// they are left out unless the list has run empty or full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageListStep {
    /// The zone's lock.
    pub zone: u32,
    /// They are taken, else put back.
    pub taken: bool,
    /// How many, no more than `batch`.
    pub pages: u32,
    /// What is moved at once (`pcp->batch`).
    pub batch: u32,
    /// With so many pages a batch goes back to the zone (`pcp->high`).
    pub high: u32,
    /// How many steps do that.
    pub steps: u32,
}

/// What kind of work: how neighbours and memory slow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkClass {
    /// Streams from memory.
    pub stream: bool,
    /// Thousandths of its time that wait for memory.
    pub memory_permille: u16,
    /// In the guest's kernel.
    pub kernel: bool,
}

impl WorkClass {
    /// User code in caches.
    pub const COMPUTE: Self = Self { stream: false, memory_permille: 0, kernel: false };
    /// Kernel code in caches.
    pub const KERNEL: Self = Self { stream: false, memory_permille: 0, kernel: true };
}

/// A lock.
#[derive(Debug, Clone)]
pub struct GuestLock {
    /// Its name, for messages.
    pub name: String,
    /// How waiting for it works.
    pub kind: LockKind,
    /// What stays out while a task waits for it or holds it.
    pub keeps_off: LockProtection,
}

/// What a vCPU whose task waits for a lock or holds it does not do meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockProtection {
    /// It does all: a lock of user space, or one that sleeps.
    Nothing,
    /// It runs no other task (`spin_lock`).
    Preemption,
    /// It takes no interrupts either (`spin_lock_irqsave`).
    Interrupts,
}

/// How waiting for a lock works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Spins, first come first served (`ticket_spin_lock`, `queued_spin_lock`).
    Fair,
    /// Spins; whoever runs and sees it first has it.
    Unfair,
    /// As `Fair`, but halts after so many ns and is woken by the one before
    /// (`pv_queued_spin_lock`, `CONFIG_PARAVIRT_SPINLOCKS`).
    Paravirtual {
        /// Time spun before halting.
        spin_ns: u64,
        /// What differs by version.
        rules: PvLockRules,
    },
    /// Sleeps, first come first served.
    Sleeping,
    /// Taken for reading alone: nobody waits for others, but its cache line goes from one to
    /// the next, when it is taken and when it is given back (`down_read`, `up_read`).
    Shared,
}

/// Paravirtual spin locks, as far as versions of them differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PvLockRules {
    /// While its next owner does not spin at the head of the queue, whoever comes and finds it
    /// free takes the lock (`pv_queued_spin_steal_lock`, since 4.4).
    pub steals: bool,
    /// And who finds it taken spins for it beside the queue meanwhile
    /// (`pv_hybrid_queued_unfair_trylock`, since 4.15).
    pub unfair: bool,
    /// When a waiter stops spinning before its time.
    pub early: EarlyHalt,
}

/// `pv_wait_early()`: what a waiter sees of the one before it that makes it halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EarlyHalt {
    /// Nothing.
    Never,
    /// That it halted (since 4.5).
    Halted,
    /// That it halted, or does not have its pCPU (4.10 to 5.3).
    Preempted,
}

impl PvLockRules {
    /// Ticket locks that halt (3.12 to 4.1) have none of it.
    pub const TICKET: Self = Self { steals: false, unfair: false, early: EarlyHalt::Never };

    /// As of a guest's kernel.
    #[must_use]
    pub fn defaults(kernel: KernelRelease) -> Self {
        let since = |major, minor| kernel >= KernelRelease { major, minor };
        let early = match () {
            () if since(4, 10) && !since(5, 4) => EarlyHalt::Preempted,
            () if since(4, 5) => EarlyHalt::Halted,
            () => EarlyHalt::Never,
        };
        Self { steals: since(4, 4), unfair: since(4, 15), early }
    }
}

/// A barrier.
#[derive(Debug, Clone)]
pub struct Barrier {
    /// Its name, for messages.
    pub name: String,
    /// How many tasks meet.
    pub parties: u32,
    /// How long each spins before it sleeps, ns; [`u64::MAX`] never sleeps.
    pub spin_ns: u64,
}

/// A semaphore or a pipe.
#[derive(Debug, Clone)]
pub struct SimChannel {
    /// Its name, for messages.
    pub name: String,
    /// What is in it at first.
    pub initial: u64,
    /// What fits; [`u64::MAX`] for a semaphore.
    pub capacity: u64,
}

/// What else runs on the host.
#[derive(Debug, Clone)]
pub struct HostTask {
    /// Its name.
    pub name: String,
    /// The pCPUs that it may run on; all if empty.
    pub pins: Vec<u32>,
    /// Its weight.
    pub weight: u32,
    /// Its control group, a place in [`SimModel::groups`].
    pub group: Option<u16>,
    /// How long it runs and then sleeps; for ever if none.
    pub burst: Option<(Duration, Duration)>,
}
