//! A polling thread: passes while there is work, then sleeps until a driver kicks.
//!
//! How long it looks for work before it sleeps follows what happens: where work
//! came soon after it had gone to sleep, it looks longer the next time; where it
//! came late, it does not look long. Frames pay for looking, too: a stream that stands
//! still for a moment, as its sender waits for a pCPU, does not find the switch asleep.
//! An idle switch takes no time of a pCPU.

use std::collections::{HashMap, HashSet};
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
/// What a frame pays for looking, and the most that is kept of it.
const LOOK_A_FRAME: Duration = Duration::from_micros(2);
const MAX_PAID_LOOK: Duration = Duration::from_millis(2);
/// Passes without work between two looks at the clock.
const PASSES_A_LOOK: u32 = 16;
/// Sleep where a driver gave no event to kick with, or one that says nothing: twice as
/// long each time that there was nothing, up to the longest.
const NAP: Duration = Duration::from_micros(50);
const MAX_NAP: Duration = Duration::from_millis(4);
/// As many kicks in a row without work, and a ring's event is waited for no more until its
/// driver sends again: it may be one that never becomes silent.
const MOST_FALSE_KICKS: u32 = 16;

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
    /// What is known of this snapshot's rings that sent nothing.
    pub(crate) silent: SilentRings,
}

/// Rings of drivers that give no event, or kick and send nothing.
#[derive(Debug)]
pub(crate) struct SilentRings {
    /// How long the next sleep is at most, if there is such a ring.
    nap: Duration,
    /// By the event's address: kicks without work in a row, and the chains that the ring had
    /// completed by then.
    false_kicks: HashMap<usize, (u32, u64)>,
}

impl Default for SilentRings {
    fn default() -> Self {
        Self { nap: NAP, false_kicks: HashMap::new() }
    }
}

impl SilentRings {
    /// The event by which to wait for the ring's driver, unless it says nothing.
    fn event<'s>(&self, queue: &'s ActiveRing) -> Option<&'s Arc<OwnedFd>> {
        let kick = queue.kick.as_ref()?;
        let known = self.false_kicks.get(&Arc::as_ptr(kick).addr());
        let says = known.is_none_or(|&(count, completed)| {
            count < MOST_FALSE_KICKS || completed != queue.ring.completed()
        });
        says.then_some(kick)
    }

    /// The ring's driver has kicked.
    fn kicked(&mut self, queue: &ActiveRing, kick: &Arc<OwnedFd>) {
        let (address, completed) = (Arc::as_ptr(kick).addr(), queue.ring.completed());
        if queue.ring.has_work() {
            self.false_kicks.remove(&address);
            return;
        }
        let (count, before) = self.false_kicks.entry(address).or_insert((0, completed));
        *count = if *before == completed { count.saturating_add(1) } else { 1 };
        *before = completed;
    }
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
        // What frames have paid for, less what was looked since.
        let mut paid_look = Duration::ZERO;
        // When the state that lasts now began, and whether it is work.
        let mut since = Instant::now();
        let mut working = false;
        let mut empty_passes = 0_u32;
        // The last sleep, until it is known whether there was work after it.
        let mut slept = None;
        loop {
            match self.next_order() {
                Ok(WorkerCommand::Use(next)) => {
                    self.call_new_ones(&snapshot, &next);
                    snapshot = next;
                    self.told.clear();
                    self.silent = SilentRings::default();
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
                let frames = u32::try_from(frames).unwrap_or(u32::MAX);
                paid_look = (paid_look + LOOK_A_FRAME * frames).min(MAX_PAID_LOOK);
                if !working {
                    working = true;
                    self.silent.nap = NAP;
                    if let Some(slept) = slept.take() {
                        look = next_look(look, slept < MAX_LOOK);
                    }
                    let now = Instant::now();
                    count_ns(&self.counters.idle_ns, now - since);
                    paid_look = paid_look.saturating_sub(now - since);
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
            if now - since < look.max(paid_look) {
                continue;
            }
            count_ns(&self.counters.idle_ns, now - since);
            paid_look = Duration::ZERO;
            if slept.is_some() {
                look = next_look(look, false);
            }
            slept = Some(self.sleep(&snapshot));
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
            let runs = |ring: &&ActiveRing| ring.ring.fault().is_none();
            let rings = served.queues.iter().filter_map(transmit).filter(runs);
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
            wait(&self.bell, &waiting, &mut self.silent);
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
fn wait(bell: &Bell, waiting: &WakeSources<'_>, silent: &mut SilentRings) {
    let WakeSources { rings, taps, allowed_in } = waiting;
    let kicks: Vec<(&PortView, &ActiveRing, &Arc<OwnedFd>)> =
        rings.iter().filter_map(|&(port, ring)| Some((port, ring, silent.event(ring)?))).collect();
    let mut waited: Vec<PollFd<'_>> = vec![PollFd::new(bell, PollFlags::IN)];
    waited.extend(kicks.iter().map(|&(_, _, kick)| PollFd::new(kick, PollFlags::IN)));
    waited.extend(taps.iter().map(|tap| PollFd::from_borrowed_fd(tap.file(), PollFlags::IN)));
    let mut longest = Duration::from_secs(1);
    if kicks.len() < rings.len() {
        longest = silent.nap;
        silent.nap = (silent.nap * 2).min(MAX_NAP);
    }
    let longest = allowed_in.map_or(longest, |allowed_in| longest.min(allowed_in));
    let longest = Timespec::try_from(longest).expect("a short time");
    // An interrupted wait is a short one.
    let _ = poll(&mut waited, Some(&longest));
    let kicked: Vec<bool> =
        waited[1..=kicks.len()].iter().map(|fd| fd.revents().contains(PollFlags::IN)).collect();
    for ((port, ring, kick), _) in kicks.into_iter().zip(kicked).filter(|(_, kicked)| *kicked) {
        drain(kick);
        port.counters.count_kick();
        silent.kicked(ring, kick);
    }
}

/// How long to look for work before the next sleep: longer after a sleep that was not worth
/// it, as work came soon.
fn next_look(look: Duration, came_soon: bool) -> Duration {
    if came_soon { (look * 2).min(MAX_LOOK) } else { (look / 2).max(MIN_LOOK) }
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
