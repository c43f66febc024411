//! Finds tasks that wait for each other for ever.

use super::deadlock::{Deadlock, WaitingTask};
use super::state::{Activity, BlockReason, EngineState, SpinReason};
use crate::model::Op;

impl EngineState<'_> {
    /// A program that repeats steps without ever taking time.
    pub(super) fn takes_no_time(&self, task: u32) -> Deadlock {
        let state = &self.tasks[task as usize];
        let vm = &self.model.vms[state.vm as usize];
        let waits = "repeats steps that take no time".to_owned();
        Deadlock {
            at_ns: self.now,
            vm: vm.name.clone(),
            tasks: vec![WaitingTask { task: vm.tasks[state.own as usize].name.clone(), waits }],
        }
    }

    /// Looks at the VMs that made no step since the last look.
    pub(super) fn find_stuck(&mut self) -> Option<Deadlock> {
        for vm in 0..self.vms.len() {
            let state = &mut self.vms[vm];
            let moved = state.progress != state.progress_seen;
            state.progress_seen = state.progress;
            if !moved && let Some(stuck) = self.stuck_in(vm as u32) {
                return Some(stuck);
            }
        }
        None
    }

    /// The tasks that nobody can ever let go on: what is left when all are taken
    /// away that work, sleep or wait for interrupts, then those whom these can
    /// release, and so on.
    fn stuck_in(&self, vm: u32) -> Option<Deadlock> {
        let tasks: Vec<u32> =
            (0..self.tasks.len() as u32).filter(|t| self.tasks[*t as usize].vm == vm).collect();
        let first = *tasks.first()?;
        let mut live: Vec<bool> = tasks.iter().map(|task| self.goes_on_alone(*task)).collect();
        loop {
            let before = live.iter().filter(|live| **live).count();
            for (index, task) in tasks.iter().enumerate() {
                if !live[index] {
                    let is_live = |other: u32| live[(other - first) as usize];
                    live[index] = self.can_be_released(*task, &tasks, is_live);
                }
            }
            if live.iter().filter(|live| **live).count() == before {
                break;
            }
        }
        let model = &self.model.vms[vm as usize];
        let dead: Vec<WaitingTask> = tasks
            .iter()
            .zip(&live)
            .filter(|(_, live)| !**live)
            .map(|(task, _)| WaitingTask {
                task: model.tasks[self.tasks[*task as usize].own as usize].name.clone(),
                waits: self.waits_for(*task),
            })
            .collect();
        (!dead.is_empty()).then(|| Deadlock {
            at_ns: self.now,
            vm: model.name.clone(),
            tasks: dead,
        })
    }

    fn goes_on_alone(&self, task: u32) -> bool {
        match self.tasks[task as usize].activity {
            Activity::Work(..) | Activity::Blocked(BlockReason::Timer) => true,
            Activity::Spin { on, .. } => on == SpinReason::Answers,
            Activity::Blocked(_) => false,
        }
    }

    fn can_be_released(&self, task: u32, tasks: &[u32], live: impl Fn(u32) -> bool) -> bool {
        let does = |other: u32, op: Op| {
            let other = &self.tasks[other as usize];
            let vm = &self.model.vms[other.vm as usize];
            vm.tasks[other.own as usize].program.contains(&op)
        };
        let first_channel = self.vms[self.tasks[task as usize].vm as usize].first_channel;
        let anyone = |op: Op| tasks.iter().any(|other| live(*other) && does(*other, op));
        match self.tasks[task as usize].activity {
            Activity::Spin { on: SpinReason::Lock(lock), .. }
            | Activity::Blocked(BlockReason::Lock(lock)) => {
                // A free lock goes to whoever comes to run.
                self.locks[lock as usize].holder.is_none_or(|holder| holder != task && live(holder))
            }
            Activity::Spin { on: SpinReason::Barrier(barrier), .. }
            | Activity::Blocked(BlockReason::Barrier(barrier)) => {
                let state = &self.barriers[barrier as usize];
                let parties =
                    self.model.vms[state.vm as usize].barriers[state.own as usize].parties;
                let more = tasks.iter().filter(|other| {
                    live(**other)
                        && !state.arrived.contains(other)
                        && does(**other, Op::Barrier(state.own))
                });
                state.arrived.len() + more.count() >= parties as usize
            }
            Activity::Blocked(BlockReason::Full(channel)) => {
                anyone(Op::Receive(channel - first_channel))
            }
            Activity::Blocked(BlockReason::Empty(channel)) => {
                anyone(Op::Send(channel - first_channel))
            }
            _ => true,
        }
    }

    fn waits_for(&self, task: u32) -> String {
        let state = &self.tasks[task as usize];
        let vm = &self.model.vms[state.vm as usize];
        match state.activity {
            Activity::Spin { on: SpinReason::Lock(lock), .. }
            | Activity::Blocked(BlockReason::Lock(lock)) => {
                let lock = &self.locks[lock as usize];
                let name = &vm.locks[lock.own as usize].name;
                match lock.holder {
                    Some(holder) if holder == task => {
                        format!("waits for the lock {name:?}, which it holds itself")
                    }
                    Some(holder) => {
                        let own = self.tasks[holder as usize].own as usize;
                        format!("waits for the lock {name:?}, which {} holds", vm.tasks[own].name)
                    }
                    None => format!("waits for the lock {name:?}"),
                }
            }
            Activity::Spin { on: SpinReason::Barrier(barrier), .. }
            | Activity::Blocked(BlockReason::Barrier(barrier)) => {
                let barrier = &self.barriers[barrier as usize];
                let model = &vm.barriers[barrier.own as usize];
                let (name, parties) = (&model.name, model.parties);
                let arrived = barrier.arrived.len();
                format!("waits at the barrier {name:?}, where {arrived} of {parties} are")
            }
            Activity::Blocked(BlockReason::Full(channel)) => {
                let own = self.channels[channel as usize].own as usize;
                format!("waits for {:?}, which is full", vm.channels[own].name)
            }
            Activity::Blocked(BlockReason::Empty(channel)) => {
                let own = self.channels[channel as usize].own as usize;
                format!("waits for {:?}, which is empty", vm.channels[own].name)
            }
            _ => "waits".to_owned(),
        }
    }
}
