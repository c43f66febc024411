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
use crate::device::Queue;
use crate::forward::{Forwarder, Parcel};
use crate::memory;
use crate::port::Snapshot;
use crate::ring::RingFault;
use crate::tap::Tap;

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
pub(crate) enum Order {
    /// Use these ports from now on, and say so.
    Use(Arc<Snapshot>),
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

/// A polling thread's things.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) forwarder: Forwarder,
    pub(crate) orders: Receiver<Order>,
    pub(crate) parcels: Receiver<Parcel>,
    pub(crate) notices: Sender<Notice>,
    /// Wakes the control thread.
    pub(crate) control: Arc<Bell>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) counters: Arc<ThreadCounters>,
    /// Taken from `orders` and not yet followed.
    pub(crate) pending: Option<Order>,
    /// Stopped rings of this snapshot that were told of.
    pub(crate) told: Vec<(u16, usize)>,
}

impl Worker {
    /// Forwards until it is told to end.
    pub(crate) fn run(mut self) {
        let mut snapshot = Arc::new(Snapshot::default());
        let mut losses = memory::losses();
        let mut look = MIN_LOOK;
        // When the state that lasts now began, and whether it is work.
        let mut since = Instant::now();
        let mut working = false;
        let mut empty_passes = 0_u32;
        loop {
            match self.next_order() {
                Ok(Order::Use(next)) => {
                    self.call_new_ones(&snapshot, &next);
                    snapshot = next;
                    self.told.clear();
                    self.ask_for_kicks(&snapshot, false);
                    self.tell(Notice::Uses { generation: snapshot.generation });
                    // A loss may have come before the port did.
                    losses = memory::losses().wrapping_sub(1);
                }
                Ok(Order::End) | Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            let mut parcels = 0;
            while let Ok(parcel) = self.parcels.try_recv() {
                self.forwarder.unpack(&snapshot, &parcel);
                parcels += 1;
                if parcels == 16 {
                    break;
                }
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
            count_ns(&self.counters.asleep_ns, slept);
            look =
                if slept < MAX_LOOK { (look * 2).min(MAX_LOOK) } else { (look / 2).max(MIN_LOOK) };
            since = Instant::now();
            empty_passes = 0;
        }
    }

    /// The rings that drivers send with, of those that this thread serves, whose ports may
    /// send now.
    fn transmitters<'s>(&self, snapshot: &'s Snapshot) -> impl Iterator<Item = (u16, &'s Queue)> {
        snapshot.served_by(self.forwarder.thread).iter().flat_map(|served| {
            let port = &served.port;
            let may = port.limiter.as_ref().is_none_or(|limiter| limiter.allowed().is_ok());
            let device = port.device.as_deref().filter(|_| may);
            let queues = served.queues.iter();
            queues.filter_map(move |&queue| {
                Some((port.number, device?.pairs[usize::from(queue)].transmit.as_ref()?))
            })
        })
    }

    /// Calls each driver once by every event that is new: a call of a switch that was
    /// killed, or by the event before, may never have come, and a driver that waits
    /// for it asks for no other.
    fn call_new_ones(&mut self, before: &Snapshot, now: &Snapshot) {
        let thread = self.forwarder.thread;
        let calls = |snapshot: &Snapshot| -> Vec<Arc<OwnedFd>> {
            let queues = snapshot.served_by(thread).iter().flat_map(|served| {
                served.queues.iter().map(|&queue| (&served.port, usize::from(queue)))
            });
            let rings = queues.filter_map(|(port, queue)| {
                let pair = &port.device.as_ref()?.pairs[queue];
                Some([pair.receive.clone(), pair.transmit.clone()])
            });
            rings.flatten().flatten().filter_map(|queue| queue.call).collect()
        };
        let known: HashSet<_> = calls(before).iter().map(|call| Arc::as_ptr(call).addr()).collect();
        for call in calls(now) {
            if !known.contains(&Arc::as_ptr(&call).addr()) {
                // What the kernel refuses here, the next frames' call makes good.
                let _ = self.forwarder.caller.call(call.as_fd());
            }
        }
    }

    /// The taps that this thread reads, of those that may send now.
    fn taps<'s>(&self, snapshot: &'s Snapshot) -> impl Iterator<Item = &'s Tap> {
        snapshot.served_by(self.forwarder.thread).iter().filter_map(|served| {
            let may = served.port.limiter.as_ref().is_none_or(|limiter| limiter.allowed().is_ok());
            let tap = served.port.device.as_ref()?.tap.as_deref()?;
            (may && !tap.is_gone()).then_some(tap)
        })
    }

    /// How long until a port that is over its rate may send.
    fn until_allowed(&self, snapshot: &Snapshot) -> Option<Duration> {
        let served = snapshot.served_by(self.forwarder.thread).iter();
        served.filter_map(|served| served.port.limiter.as_ref()?.allowed().err()).min()
    }

    fn ask_for_kicks(&self, snapshot: &Snapshot, wanted: bool) {
        for (_, queue) in self.transmitters(snapshot) {
            queue.ring.ask_for_kicks(wanted);
        }
        // What drivers receive with, they fill without kicks.
        for served in snapshot.served_by(self.forwarder.thread) {
            let Some(device) = &served.port.device else { continue };
            for &queue in &served.queues {
                if let Some(receive) = &device.pairs[usize::from(queue)].receive {
                    receive.ring.ask_for_kicks(false);
                }
            }
        }
    }

    /// Sleeps until a driver kicks, the bell rings, or a second has passed.
    fn sleep(&mut self, snapshot: &Snapshot) -> Duration {
        let began = Instant::now();
        self.report_faults(snapshot);
        self.bell.lie_down();
        self.ask_for_kicks(snapshot, true);
        let has_work = self.transmitters(snapshot).any(|(_, queue)| queue.ring.has_work());
        self.pending = self.orders.try_recv().ok();
        let parcel = self.parcels.try_recv();
        if !has_work && self.pending.is_none() && parcel.is_err() {
            self.counters.asleep_now.store(true, Ordering::Relaxed);
            self.wait(snapshot);
            self.counters.asleep_now.store(false, Ordering::Relaxed);
            self.counters.sleeps.fetch_add(1, Ordering::Relaxed);
        }
        self.bell.get_up();
        self.ask_for_kicks(snapshot, false);
        if let Ok(parcel) = parcel {
            self.forwarder.unpack(snapshot, &parcel);
        }
        began.elapsed()
    }

    fn wait(&self, snapshot: &Snapshot) {
        let queues: Vec<(u16, &Queue)> = self.transmitters(snapshot).collect();
        let kicks = queues.iter().filter_map(|&(port, queue)| Some((port, queue.kick.as_ref()?)));
        let kicks: Vec<(u16, &Arc<OwnedFd>)> = kicks.collect();
        let mut waited: Vec<PollFd<'_>> = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        waited.extend(kicks.iter().map(|(_, kick)| PollFd::new(*kick, PollFlags::IN)));
        let taps: Vec<&Tap> = self.taps(snapshot).collect();
        waited.extend(taps.iter().map(|tap| PollFd::from_borrowed_fd(tap.file(), PollFlags::IN)));
        let longest = if kicks.len() < queues.len() { NAP } else { Duration::from_secs(1) };
        let longest = self.until_allowed(snapshot).map_or(longest, |until| longest.min(until));
        let longest = Timespec::try_from(longest).expect("a short time");
        // An interrupted wait is a short one.
        let _ = poll(&mut waited, Some(&longest));
        let kicked: Vec<bool> =
            waited[1..=kicks.len()].iter().map(|fd| fd.revents().contains(PollFlags::IN)).collect();
        for ((port, kick), kicked) in kicks.into_iter().zip(kicked) {
            if kicked {
                drain(kick);
                if let Some(Some(port)) = snapshot.ports.get(usize::from(port)) {
                    port.counters.count_kick();
                }
            }
        }
    }

    fn next_order(&mut self) -> Result<Order, TryRecvError> {
        self.pending.take().map_or_else(|| self.orders.try_recv(), Ok)
    }

    fn report_losses(&self, snapshot: &Snapshot) {
        for port in snapshot.ports.iter().flatten() {
            if port.device.as_ref().is_some_and(|device| device.memory.is_lost()) {
                self.tell(Notice::MemoryLost { port: port.number });
            }
        }
    }

    /// Tells of rings that were stopped, once each.
    fn report_faults(&mut self, snapshot: &Snapshot) {
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

fn count_ns(counter: &std::sync::atomic::AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}
