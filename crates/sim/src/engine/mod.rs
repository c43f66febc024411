//! The run: state, and what happens at each event.
//!
//! `host` is the host's scheduler and its queues' locks, `spin` KVM's answer to
//! vCPUs that spin, `vcpu` entry, exit and halting, `guest` what runs inside,
//! `locks` its locks, `guest_tick` its ticks, `balance` who moves between pCPUs and `guest_balance` between
//! vCPUs, `bandwidth` the host's control groups, `account` where the time goes, `stuck` the
//! search for deadlocks. Who begins where is in `begin`; what a run brings in `outcome` and
//! `deadlock`.

mod account;
mod balance;
mod bandwidth;
mod begin;
mod deadlock;
mod guest;
mod guest_balance;
mod guest_tick;
mod host;
mod locks;
mod outcome;
mod spin;
mod state;
mod stuck;
mod vcpu;

#[cfg(test)]
mod tests;

pub use deadlock::{Deadlock, WaitingTask};
pub use outcome::{
    Breakdown, EventCounts, Latency, MOST_SEGMENTS, MeterOutcome, PcpuUser, SimOutcome,
    TraceSegment, VmOutcome,
};

use crate::model::SimModel;
use crate::queue::DueEvent;
use state::{EngineEvent, EngineState};

/// How often a run is looked at for deadlocks, and for wishes to end, ns.
const CHECK_NS: u64 = 20_000_000;
/// After how many events at most it is asked whether to end.
const CHECK_EVENTS: u64 = 1 << 20;

/// Runs the model to its end.
///
/// `go_on` is asked every few simulated milliseconds whether to continue.
///
/// # Errors
/// [`Deadlock`] if tasks wait for each other for ever, or one never takes time;
/// `None` in it where `go_on` said no.
pub fn run(
    model: &SimModel,
    mut go_on: impl FnMut() -> bool,
) -> Result<SimOutcome, Option<Deadlock>> {
    let mut world = EngineState::new(model);
    world.begin();
    let end = model.warmup_ns.saturating_add(model.duration_ns);
    let mut check = CHECK_NS;
    while let Some((time, due)) = world.queue.pop(end) {
        debug_assert!(time >= world.now, "time never goes back");
        // Also where costs of nothing let little time pass.
        if (time > check || world.events.is_multiple_of(CHECK_EVENTS)) && !go_on() {
            return Err(None);
        }
        if time > check {
            if let Some(stuck) = world.find_stuck() {
                return Err(Some(stuck));
            }
            check = time + CHECK_NS;
        }
        world.now = time;
        world.events += 1;
        match due {
            DueEvent::Slot(pcpu) => world.phase_ends(pcpu),
            DueEvent::Event(event) => world.happens(event),
        }
        if let Some(stuck) = world.stuck.take() {
            return Err(Some(stuck));
        }
    }
    world.now = end;
    if let Some(stuck) = world.find_stuck() {
        return Err(Some(stuck));
    }
    Ok(world.into_outcome())
}

impl EngineState<'_> {
    fn happens(&mut self, event: EngineEvent) {
        match event {
            EngineEvent::Tick(pcpu) => self.tick(pcpu),
            EngineEvent::Kick(pcpu) => self.kicked(pcpu),
            EngineEvent::Ipi { to, from, vector } => self.interrupt(to, vector, Some(from)),
            EngineEvent::TaskTimer(task) => self.timer(task),
            EngineEvent::HostTimer(thread) => self.wake_thread(thread, None),
            EngineEvent::GangTurn => self.gang_turn(),
            EngineEvent::GuestTick(vcpu) => self.idle_tick(vcpu),
            EngineEvent::Refill(group) => self.refill(group),
            EngineEvent::Slack(group) => self.slack(group),
            EngineEvent::WarmedUp => self.start_counting(),
        }
    }
}
