//! A polling thread: passes while there is work, then sleeps until a driver kicks.
//!
//! How long it looks for work before it sleeps follows what happens: where work
//! came soon after it had gone to sleep, it looks longer the next time; where it
//! came late, it does not look long. An idle switch takes no time of a pCPU.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bell::{Bell, drain};
use crate::counters::ThreadCounters;
use crate::device::{ActiveRing, VhostDevice};
use crate::forward::{Forwarder, Parcel};
use crate::memory;
use crate::port::{PortTable, PortView};
use crate::ring::RingFault;
use crate::tap::Tap;
use crate::work::TURN_WORK;

/// The longest that a thread looks for work before it sleeps.
const MAX_LOOK: Duration = Duration::from_micros(200);
/// The shortest, once it looks at all.
const MIN_LOOK: Duration = Duration::from_micros(10);
/// Passes without work between two looks at the clock.
const PASSES_A_LOOK: u32 = 16;
/// Sleep where a driver gave no event to kick with.
const NAP: Duration = Duration::from_micros(50);

/// What the control thread tells a polling thread.
#[derive(Debug)]
pub(crate) enum WorkerCommand {
    /// Use these ports from now on, and say so.
    Use(Arc<PortTable>),
    /// End.
    End,
}

/// What a polling thread tells the control thread.
#[derive(Debug)]
pub(crate) enum Notice {
    /// It uses this generation of ports, and no earlier one.
    Uses {
        /// Of the snapshot.
        generation: u64,
    },
    /// A port's memory is gone.
    MemoryLost { port: u16 },
    /// A ring was stopped.
    RingStopped { port: u16, ring: usize, fault: RingFault, generation: u64 },
}

/// A polling thread's state.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) forwarder: Forwarder,
    pub(crate) orders: Receiver<WorkerCommand>,
    pub(crate) parcels: Receiver<Parcel>,
    pub(crate) notices: Sender<Notice>,
    /// Wakes the control thread.
    pub(crate) control: Arc<Bell>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) counters: Arc<ThreadCounters>,
    /// Taken from `orders` and not yet followed.
    pub(crate) pending: Option<WorkerCommand>,
    /// Stopped rings of this snapshot that were told of.
    pub(crate) told: Vec<(u16, usize)>,
}

/// What a thread sleeps for.
#[derive(Default)]
struct WakeSources<'s> {
    /// The rings that drivers send with, of ports that may send now.
    rings: Vec<(&'s PortView, &'s ActiveRing)>,
    /// Taps of such ports.
    taps: Vec<&'s Tap>,
    /// How long until the first of the others may send.
    allowed_in: Option<Duration>,
}

impl Worker {
    /// Forwards until it is told to end.
    pub(crate) fn run(mut self) {
        let mut snapshot = Arc::new(PortTable::default());
        let mut losses = memory::losses();
        let mut look = MIN_LOOK;
        // When the state that lasts now began, and whether it is work.
        let mut since = Instant::now();
        let mut working = false;
        let mut empty_passes = 0_u32;
        loop {
            match self.next_order() {
                Ok(WorkerCommand::Use(next)) => {
                    self.call_new_ones(&snapshot, &next);
                    snapshot = next;
                    self.told.clear();
                    self.ask_for_kicks(&snapshot, false);
                    self.tell(Notice::Uses { generation: snapshot.generation });
                    // A loss may have come before the port did.
                    losses = memory::losses().wrapping_sub(1);
                }
                Ok(WorkerCommand::End) | Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            // No more than a port's turn, for the own ports' sake.
            let (mut parcels, mut work) = (0, 0);
            while parcels < 16
                && work < TURN_WORK
                && let Ok(parcel) = self.parcels.try_recv()
            {
                work += self.forwarder.unpack(&snapshot, &parcel);
                parcels += 1;
            }
            let (bursts, frames) = self.forwarder.pass(&snapshot);
            if losses != memory::losses() {
                losses = memory::losses();
                self.report_losses(&snapshot);
            }
            if bursts + parcels > 0 {
                self.counters.bursts.fetch_add(bursts, Ordering::Relaxed);
                self.counters.frames.fetch_add(frames, Ordering::Relaxed);
                empty_passes = 0;
                if !working {
                    working = true;
                    let now = Instant::now();
                    count_ns(&self.counters.idle_ns, now - since);
                    since = now;
                }
                continue;
            }
            empty_passes += 1;
            if !empty_passes.is_multiple_of(PASSES_A_LOOK) {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            if working {
                working = false;
                count_ns(&self.counters.busy_ns, now - since);
                since = now;
                self.report_faults(&snapshot);
                continue;
            }
            if now - since < look {
                continue;
            }
            count_ns(&self.counters.idle_ns, now - since);
            let slept = self.sleep(&snapshot);
            look =
                if slept < MAX_LOOK { (look * 2).min(MAX_LOOK) } else { (look / 2).max(MIN_LOOK) };
            since = Instant::now();
            empty_passes = 0;
        }
    }

    /// What to sleep for: of each port that this thread serves either its rings and its
    /// tap, or the time until it may send again, by one look at its rate. By two, a port
    /// that comes into its rate between them would be neither waited for nor woken by.
    fn waiting<'s>(&self, snapshot: &'s PortTable) -> WakeSources<'s> {
        let mut waiting = WakeSources::default();
        for served in snapshot.served_by(self.forwarder.thread) {
            if let Some(Err(until)) = served.port.limiter.as_ref().map(|limiter| limiter.allowed())
            {
                let sooner = waiting.allowed_in.map_or(until, |other| other.min(until));
                waiting.allowed_in = Some(sooner);
                continue;
            }
            let Some(device) = &served.port.device else { continue };
            let transmit = |&queue: &u16| device.pairs[usize::from(queue)].transmit.as_ref();
            let rings = served.queues.iter().filter_map(transmit);
            waiting.rings.extend(rings.map(|ring| (&*served.port, ring)));
            waiting.taps.extend(device.tap.as_deref().filter(|tap| !tap.is_gone()));
        }
        waiting
    }

    /// Calls each driver once by every event that is new: a call of a switch that was
    /// killed, or by the event before, may never have come, and a driver that waits
    /// for it asks for no other.
    fn call_new_ones(&mut self, before: &PortTable, now: &PortTable) {
        let thread = self.forwarder.thread;
        let address = |call: &Arc<OwnedFd>| Arc::as_ptr(call).addr();
        let known: HashSet<_> = calls(before, thread).map(|(_, call)| address(call)).collect();
        for (port, call) in calls(now, thread) {
            if !known.contains(&address(call)) {
                port.counters.count_signal(self.forwarder.caller.call(call.as_fd()));
            }
        }
    }

    fn ask_for_kicks(&self, snapshot: &PortTable, wanted: bool) {
        for served in snapshot.served_by(self.forwarder.thread) {
            let Some(device) = &served.port.device else { continue };
            for &queue in &served.queues {
                let pair = &device.pairs[usize::from(queue)];
                if let Some(transmit) = &pair.transmit {
                    transmit.ring.ask_for_kicks(wanted);
                }
                // What drivers receive with, they fill without kicks.
                if let Some(receive) = &pair.receive {
                    receive.ring.ask_for_kicks(false);
                }
            }
        }
    }

    /// Sleeps until a driver kicks, the bell rings, or a second has passed.
    fn sleep(&mut self, snapshot: &PortTable) -> Duration {
        let began = Instant::now();
        self.report_faults(snapshot);
        self.bell.lie_down();
        self.ask_for_kicks(snapshot, true);
        let waiting = self.waiting(snapshot);
        let has_work = waiting.rings.iter().any(|(_, queue)| queue.ring.has_work());
        self.pending = self.orders.try_recv().ok();
        let parcel = self.parcels.try_recv();
        if !has_work && self.pending.is_none() && parcel.is_err() {
            self.counters.fall_asleep();
            wait(&self.bell, &waiting);
            self.counters.wake_up();
        }
        self.bell.get_up();
        self.ask_for_kicks(snapshot, false);
        if let Ok(parcel) = parcel {
            self.forwarder.unpack(snapshot, &parcel);
        }
        began.elapsed()
    }

    fn next_order(&mut self) -> Result<WorkerCommand, TryRecvError> {
        self.pending.take().map_or_else(|| self.orders.try_recv(), Ok)
    }

    fn report_losses(&self, snapshot: &PortTable) {
        for port in snapshot.ports.iter().flatten() {
            let lost = |device: &Arc<VhostDevice>| {
                device.memory.is_lost() || device.log.as_ref().is_some_and(|log| log.is_lost())
            };
            if port.device.as_ref().is_some_and(lost) {
                self.tell(Notice::MemoryLost { port: port.number });
            }
        }
    }

    /// Tells of rings that were stopped, once each.
    fn report_faults(&mut self, snapshot: &PortTable) {
        let queues = snapshot.served_by(self.forwarder.thread).iter().flat_map(|served| {
            served.queues.iter().map(|&queue| (&served.port, usize::from(queue)))
        });
        for (port, queue) in queues {
            let Some(device) = &port.device else { continue };
            let pair = &device.pairs[queue];
            for (part, queue_part) in [&pair.receive, &pair.transmit].into_iter().enumerate() {
                if let Some(fault) = queue_part.as_ref().and_then(|queue| queue.ring.fault()) {
                    let (ring, generation) = (2 * queue + part, snapshot.generation);
                    if self.told.contains(&(port.number, ring)) {
                        continue;
                    }
                    self.told.push((port.number, ring));
                    self.tell(Notice::RingStopped { port: port.number, ring, fault, generation });
                }
            }
        }
    }

    fn tell(&self, notice: Notice) {
        // Without a control thread, the orders end, too.
        let _ = self.notices.send(notice);
        self.control.ring_always();
    }
}

/// Sleeps until a driver kicks, a tap has a frame, the bell rings, a port comes into its
/// rate, or a second has passed.
fn wait(bell: &Bell, waiting: &WakeSources<'_>) {
    let WakeSources { rings, taps, allowed_in } = waiting;
    let kicks = rings.iter().filter_map(|&(port, ring)| Some((port, ring.kick.as_ref()?)));
    let kicks: Vec<(&PortView, &Arc<OwnedFd>)> = kicks.collect();
    let mut waited: Vec<PollFd<'_>> = vec![PollFd::new(bell, PollFlags::IN)];
    waited.extend(kicks.iter().map(|(_, kick)| PollFd::new(*kick, PollFlags::IN)));
    waited.extend(taps.iter().map(|tap| PollFd::from_borrowed_fd(tap.file(), PollFlags::IN)));
    let longest = if kicks.len() < rings.len() { NAP } else { Duration::from_secs(1) };
    let longest = allowed_in.map_or(longest, |allowed_in| longest.min(allowed_in));
    let longest = Timespec::try_from(longest).expect("a short time");
    // An interrupted wait is a short one.
    let _ = poll(&mut waited, Some(&longest));
    let kicked: Vec<bool> =
        waited[1..=kicks.len()].iter().map(|fd| fd.revents().contains(PollFlags::IN)).collect();
    for ((port, kick), kicked) in kicks.into_iter().zip(kicked) {
        if kicked {
            drain(kick);
            port.counters.count_kick();
        }
    }
}

/// The events by which a thread calls drivers, each with its port.
fn calls(snapshot: &PortTable, thread: usize) -> impl Iterator<Item = (&PortView, &Arc<OwnedFd>)> {
    snapshot.served_by(thread).iter().flat_map(|served| {
        let pairs = served.port.device.as_deref().map_or(&[][..], |device| &device.pairs);
        let own = served.queues.iter().filter_map(|&queue| pairs.get(usize::from(queue)));
        let rings = own.flat_map(|pair| [&pair.receive, &pair.transmit]).flatten();
        rings.filter_map(|ring| Some((&*served.port, ring.call.as_ref()?)))
    })
}

fn count_ns(counter: &std::sync::atomic::AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}
