//! Keeps the account of a run.

use super::outcome::{
    Latency, MOST_SEGMENTS, MeterOutcome, PcpuUser, RunCounters, SimOutcome, TraceSegment,
    VmOutcome,
};
use super::state::{Activity, EngineState, PcpuActivity, ThreadKind, ThreadState};

/// More of them only cost memory; every second one is dropped then.
const MOST_LATENCIES: usize = 1 << 20;

impl EngineState<'_> {
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
            PcpuActivity::Idle => time.idle += spent,
            PcpuActivity::GoingIdle
            | PcpuActivity::Waking
            | PcpuActivity::SchedLock
            | PcpuActivity::SchedHold
            | PcpuActivity::Switching => {
                time.host_scheduler += spent;
            }
            PcpuActivity::Yielding { .. } => time.host_scheduler += spent,
            PcpuActivity::HaltPoll => time.halt_poll += spent,
            PcpuActivity::Exiting(_)
            | PcpuActivity::Scanning(_)
            | PcpuActivity::Entering
            | PcpuActivity::Halting => {
                time.exits += spent;
            }
            PcpuActivity::HostTask => {
                time.host_tasks += spent;
                let speed = state.speed;
                if let Some(thread) = state.queue.current() {
                    let left = &mut self.threads[thread as usize].left;
                    *left = left.saturating_sub(spent * speed);
                }
            }
            PcpuActivity::Guest => self.settle_guest(pcpu, spent),
        }
    }

    fn settle_guest(&mut self, pcpu: u32, spent: u64) {
        let vcpu = self.vcpu_on(pcpu);
        let speed = self.pcpus[pcpu as usize].speed;
        let state = &mut self.vcpus[vcpu as usize];
        let time = &mut self.account.time;
        self.account.ran[state.vm as usize] += spent;
        // Time for the work that is left, and what of that is done.
        let part = |work: &mut u64, most: u64| {
            if *work == 0 {
                return 0;
            }
            let needed = (*work * 1024).div_ceil(speed);
            if needed <= most {
                *work = 0;
                return needed;
            }
            *work -= most * speed / 1024;
            most
        };
        let exit = part(&mut state.exit_work, spent);
        time.exits += exit;
        let kernel = part(&mut state.kernel_work, spent - exit);
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
        self.account = RunCounters::new(self.model);
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
        self.map_until.is_none() && self.model.map_from_ns.is_some_and(|from| self.now >= from)
    }

    /// Keeps one more, as long as there is room.
    pub(super) fn map_keeps(&mut self, segment: TraceSegment) {
        if self.map.len() < MOST_SEGMENTS {
            self.map.push(segment);
        } else {
            self.map_until.get_or_insert(self.now);
        }
    }

    /// Keeps who leaves a pCPU now, for the map.
    pub(super) fn map_leaves(&mut self, pcpu: u32, thread: u32) {
        if !self.keeps_map() {
            return;
        }
        let whose = match self.threads[thread as usize].kind {
            ThreadKind::Vcpu(vcpu) => {
                let state = &self.vcpus[vcpu as usize];
                PcpuUser::Vcpu { vm: state.vm, vcpu: state.own }
            }
            ThreadKind::Host(task) => PcpuUser::Host(task),
        };
        let from_ns = self.pcpus[pcpu as usize].switched_in;
        if from_ns < self.now {
            self.map_keeps(TraceSegment::Ran { pcpu, whose, from_ns, to_ns: self.now });
        }
    }

    pub(super) fn into_outcome(mut self) -> SimOutcome {
        for pcpu in 0..self.pcpus.len() as u32 {
            self.settle(pcpu);
            if let Some(thread) = self.pcpus[pcpu as usize].queue.current() {
                self.map_leaves(pcpu, thread);
            }
        }
        for thread in self.threads.iter().filter(|thread| thread.state == ThreadState::Ready) {
            self.account.counters.waited_ns += self.now - thread.ready_since;
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
        SimOutcome {
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
            map_until_ns: self.map_until,
        }
    }
}
