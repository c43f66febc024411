//! Traffic over several frontends from one thread: a source and a sink in a closed
//! loop (or at a pace), which checks that each frame arrives at the right port, in
//! order, with its length and payload.
//!
//! It has to be faster than any switch: what is written and expected is copied from
//! a table, and what comes is fetched into the cache before it is looked at.

use std::time::{Duration, Instant};

use super::payload::Payload;
use super::{DriverRing, Frontend};
use crate::memory::ByteRange;

/// Bytes of the Virtio header.
const HEADER: usize = 12;
/// Bytes of a frame's own beginning: addresses, type, flow, number. With the header
/// they are what is read of a frame at once.
const OWN: usize = 14 + 2 + 4;
/// Addresses, type, flow: the same for all frames of a flow.
const SAME: usize = 14 + 2;
/// What is remembered of when frames were sent, of each flow.
const REMEMBERED: usize = 1 << 16;
/// The type of frames for local experiments (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];
/// What ports say to be known; it is not counted.
const HELLO: u16 = u16::MAX;
/// Frames that are sent at once.
const BURST: usize = 32;
/// Frames that are received at once.
const TAKEN: usize = 64;
/// Passes between two looks at the clock.
const PASSES_A_LOOK: u32 = 1024;

/// How much of a frame source and sink touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Its first bytes: addresses, flow, number.
    Head,
    /// Every byte, which is checked.
    All,
}

/// Frames from one port to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficFlow {
    /// Number of the sending port.
    pub from: usize,
    /// Number of the receiving one.
    pub to: usize,
}

/// How long frames are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameBytes {
    /// All the same.
    Fixed(usize),
    /// From 60 up to this, by number.
    UpTo(usize),
}

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct TrafficPlan {
    /// Pairs of ports: sender and receiver.
    pub flows: Vec<TrafficFlow>,
    /// How long.
    pub bytes: FrameBytes,
    /// What of it is written and checked.
    pub touch: Touch,
    /// Frames of a flow that may be on their way; the receiver's buffers have to hold
    /// those of all flows to it.
    pub window: u64,
    /// How long frames may stay away before they count as lost.
    pub grace: Duration,
    /// Frames a second of each flow; none for as many as the window allows. With a
    /// pace, how long each frame was on its way is kept ([`Traffic::latencies_ns`]).
    pub pace_per_s: Option<f64>,
}

impl TrafficPlan {
    /// Each port to the next, and the last to the first.
    #[must_use]
    pub fn ring(ports: usize) -> Vec<TrafficFlow> {
        (0..ports).map(|from| TrafficFlow { from, to: (from + 1) % ports }).collect()
    }

    /// Each port to each other.
    #[must_use]
    pub fn mesh(ports: usize) -> Vec<TrafficFlow> {
        let pairs = (0..ports).flat_map(|from| (0..ports).map(move |to| TrafficFlow { from, to }));
        pairs.filter(|flow| flow.from != flow.to).collect()
    }
}

/// How many frames were sent, received, lost or damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Sent.
    pub sent: u64,
    /// Received, each checked.
    pub received: u64,
    /// Bytes received, without the Virtio header.
    pub bytes: u64,
    /// Numbers that never came.
    pub lost: u64,
    /// Frames that came after a later one, or twice.
    pub disordered: u64,
    /// Frames of another port, length or payload.
    pub corrupt: u64,
    /// Frames that went to all ports, seen by one that they were not for.
    pub foreign: u64,
}

impl TrafficCounts {
    /// True if all that was sent came, once, in order, and as it was.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sent == self.received && self.lost + self.disordered + self.corrupt == 0
    }
}

/// The progress of one flow.
#[derive(Debug, Clone, Copy, Default)]
struct FlowProgress {
    next: u32,
    expected: u32,
    sent: u64,
    /// Received or given up.
    done: u64,
}

/// Send times of frames, and the latencies measured from them.
#[derive(Debug)]
struct FrameTimes {
    began: Instant,
    /// By flow and number.
    sent_ns: Vec<Vec<u64>>,
    latencies_ns: Vec<u32>,
    /// Frames of each flow that were due when sending began.
    begun: Vec<u64>,
}

impl FrameTimes {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

/// Source and sink over ports.
#[derive(Debug)]
pub struct Traffic {
    ports: Vec<Frontend>,
    plan: TrafficPlan,
    progress: Vec<FlowProgress>,
    /// By port: the flows that it sends, and whose turn it is.
    sends: Vec<(Vec<u16>, usize)>,
    tally: TrafficCounts,
    /// What the tally said when something had come last, and when that was.
    last_received: (u64, Instant),
    payload: Payload,
    /// By flow: what all its frames begin with.
    beginnings: Vec<FlowHeader>,
    /// A frame of several buffers, or all of one.
    scratch: Vec<u8>,
    clock: Option<FrameTimes>,
    effort: Effort,
    /// Of the last run.
    busy_share: Option<f64>,
}

/// How much of its time a source and sink has something to do. Where that is all, it is
/// what limits, not the switch.
#[derive(Debug)]
struct Effort {
    began: Instant,
    /// When the state that lasts now began.
    since: Instant,
    /// It has found nothing to do since then.
    idle: bool,
    idle_time: Duration,
}

impl Effort {
    fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, since: now, idle: false, idle_time: Duration::ZERO }
    }

    /// The share of the time until now that was not idle.
    fn busy_share(&self) -> f64 {
        let now = Instant::now();
        let idle = self.idle_time + if self.idle { now - self.since } else { Duration::ZERO };
        1.0 - idle.as_secs_f64() / (now - self.began).as_secs_f64()
    }

    fn note(&mut self, worked: bool) {
        if worked != self.idle {
            return;
        }
        let now = Instant::now();
        if self.idle {
            self.idle_time += now - self.since;
        }
        (self.since, self.idle) = (now, !worked);
    }
}

/// The address of a port's only station.
#[must_use]
pub(super) fn station(port: usize) -> [u8; 6] {
    let [high, low] = u16::try_from(port).unwrap_or(u16::MAX).to_be_bytes();
    [0x02, 0x76, 0x6d, 0x6c, high, low]
}

/// The bytes that every frame of a flow begins with.
#[derive(Debug)]
struct FlowHeader {
    /// Header, addresses, type, flow, as words; the number goes into the last one's upper
    /// half.
    head: [u64; (HEADER + OWN) / 8],
    /// Addresses, type, flow.
    same: u128,
}

impl FlowHeader {
    fn new(flow: TrafficFlow, number: usize) -> Self {
        let mut same = [0; SAME];
        same[..6].copy_from_slice(&station(flow.to));
        same[6..12].copy_from_slice(&station(flow.from));
        same[12..14].copy_from_slice(&TYPE);
        same[14..].copy_from_slice(&(number as u16).to_be_bytes());
        let mut head = [0; HEADER + OWN];
        head[HEADER..HEADER + SAME].copy_from_slice(&same);
        let (words, _) = head.as_chunks();
        let word = |number: usize| u64::from_le_bytes(words[number]);
        Self { head: std::array::from_fn(word), same: u128::from_le_bytes(same) }
    }

    /// The beginning of the frame of this number.
    #[inline]
    fn numbered(&self, number: u32) -> [u64; (HEADER + OWN) / 8] {
        let [first, second, third, last] = self.head;
        [first, second, third, last | u64::from(number.swap_bytes()) << 32]
    }
}

impl Traffic {
    /// Over connected frontends; their receive rings are filled.
    #[must_use]
    pub fn new(ports: Vec<Frontend>, plan: TrafficPlan) -> Self {
        let sends = (0..ports.len()).map(|port| {
            let flows = plan.flows.iter().enumerate().filter(|(_, flow)| flow.from == port);
            (flows.map(|(number, _)| number as u16).collect(), 0)
        });
        let beginnings = plan.flows.iter().enumerate();
        let clock = plan.pace_per_s.map(|_| FrameTimes {
            began: Instant::now(),
            sent_ns: vec![vec![0; REMEMBERED]; plan.flows.len()],
            latencies_ns: Vec::new(),
            begun: vec![0; plan.flows.len()],
        });
        let mut traffic = Self {
            sends: sends.collect(),
            progress: vec![FlowProgress::default(); plan.flows.len()],
            ports,
            tally: TrafficCounts::default(),
            last_received: (0, Instant::now()),
            payload: Payload::new(),
            beginnings: beginnings.map(|(number, &flow)| FlowHeader::new(flow, number)).collect(),
            scratch: Vec::new(),
            clock,
            plan,
            effort: Effort::begin(),
            busy_share: None,
        };
        for port in 0..traffic.ports.len() {
            traffic.fill(port);
        }
        traffic
    }

    /// The frontends.
    pub fn ports(&mut self) -> &mut [Frontend] {
        &mut self.ports
    }

    /// The counts of frames so far.
    #[must_use]
    pub fn tally(&self) -> &TrafficCounts {
        &self.tally
    }

    /// Puts another frontend in a port's place, after its backend came anew.
    pub fn replace(&mut self, port: usize, frontend: Frontend) {
        self.ports[port] = frontend;
        self.fill(port);
    }

    /// Gives a port's receive rings all their buffers.
    fn fill(&mut self, port: usize) {
        for pair in self.ports[port].pairs() {
            while let Some(slot) = pair.receive.take_free() {
                pair.receive.post(slot, 0);
            }
            pair.receive.publish();
        }
    }

    /// Has each port say that it is there, so that the switch knows where all are.
    /// Returns once every port has heard every other, or an error says who did not.
    ///
    /// # Errors
    /// The ports that did not hear all, after `patience`.
    pub fn greet(&mut self, patience: Duration) -> Result<(), String> {
        let count = self.ports.len();
        let mut heard = vec![vec![false; count]; count];
        let deadline = Instant::now() + patience;
        let mut repeat = Instant::now();
        loop {
            if repeat <= Instant::now() {
                repeat = Instant::now() + Duration::from_millis(50);
                (0..count).for_each(|port| self.say_hello(port));
            }
            for (port, heard) in heard.iter_mut().enumerate() {
                let mut note = |from: usize| {
                    if let Some(known) = heard.get_mut(from) {
                        *known = true;
                    }
                };
                self.receive(port, &mut note);
                self.reclaim(port);
            }
            let missing = |(port, heard): (usize, &Vec<bool>)| {
                let all = heard.iter().enumerate().all(|(from, &known)| known || from == port);
                (!all).then(|| port.to_string())
            };
            let missing: Vec<String> = heard.iter().enumerate().filter_map(missing).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("not all are heard by port {}", missing.join(", ")));
            }
        }
    }

    fn say_hello(&mut self, port: usize) {
        let number = u32::try_from(port).expect("few ports");
        let ring = &mut self.ports[port].pairs()[0].transmit;
        let Some(slot) = ring.take_free() else { return };
        let mut frame = [0; HEADER + 60];
        let own = &mut frame[HEADER..];
        own[..6].fill(0xff);
        own[6..12].copy_from_slice(&station(port));
        own[12..14].copy_from_slice(&TYPE);
        own[14..16].copy_from_slice(&HELLO.to_be_bytes());
        own[16..20].copy_from_slice(&number.to_be_bytes());
        ring.buffer(slot).write(&frame);
        ring.post(slot, frame.len() as u32);
        ring.publish();
    }

    /// How long each frame was on its way so far, in ns, where the plan has a pace.
    #[must_use]
    pub fn latencies_ns(&self) -> &[u32] {
        self.clock.as_ref().map_or(&[], |clock| &clock.latencies_ns)
    }

    /// Sends and receives once over all ports.
    #[inline]
    pub fn pass(&mut self) {
        let before = self.tally.sent + self.tally.received;
        for port in 0..self.ports.len() {
            self.receive(port, &mut |_| {});
            self.send(port);
        }
        self.effort.note(self.tally.sent + self.tally.received != before);
    }

    /// The share of the last run's time, 0 to 1, in which there was something to send or
    /// receive; none if it has not run.
    #[must_use]
    pub fn busy_share(&self) -> Option<f64> {
        self.busy_share
    }

    /// Passes until `enough` says so, then until nothing is on its way.
    pub fn run(&mut self, mut enough: impl FnMut(&TrafficCounts) -> bool) {
        self.set_out();
        let mut passes = 0_u32;
        while !enough(&self.tally) {
            self.pass();
            passes += 1;
            if passes.is_multiple_of(PASSES_A_LOOK) && self.is_late() {
                // The source goes on where nothing comes any more.
                self.count_missing();
            }
        }
        self.busy_share = Some(self.effort.busy_share());
        self.drain();
    }

    /// What is due from now on counts from now on.
    fn set_out(&mut self) {
        self.effort = Effort::begin();
        self.last_received.1 = Instant::now();
        if let Some(clock) = &mut self.clock {
            clock.began = Instant::now();
            clock.begun = self.progress.iter().map(|flow| flow.sent).collect();
        }
    }

    /// Receives until nothing is on its way any more, or is lost.
    pub fn drain(&mut self) {
        self.last_received.1 = Instant::now();
        while self.progress.iter().any(|flow| flow.done < flow.sent) {
            for port in 0..self.ports.len() {
                self.receive(port, &mut |_| {});
                self.reclaim(port);
            }
            if self.is_late() {
                self.count_missing();
            }
        }
    }

    /// True if nothing has come for as long as frames may stay away.
    fn is_late(&mut self) -> bool {
        let received = self.tally.received;
        if received != self.last_received.0 {
            self.last_received = (received, Instant::now());
        }
        self.last_received.1.elapsed() > self.plan.grace
    }

    fn count_missing(&mut self) {
        for flow in &mut self.progress {
            self.tally.lost += flow.sent - flow.done;
            flow.done = flow.sent;
            flow.expected = flow.next;
        }
        self.last_received.1 = Instant::now();
    }

    #[inline]
    fn reclaim(&mut self, port: usize) {
        for pair in self.ports[port].pairs() {
            pair.transmit.reclaim();
        }
    }

    #[inline]
    fn send(&mut self, port: usize) {
        let (flows, turn) = &mut self.sends[port];
        if flows.is_empty() {
            return;
        }
        let pairs = self.ports[port].pairs();
        let queues = pairs.len();
        let now_ns = self.clock.as_ref().map_or(0, FrameTimes::now_ns);
        let mut posted = 0;
        for _ in 0..flows.len() {
            *turn = if *turn + 1 >= flows.len() { 0 } else { *turn + 1 };
            let number = usize::from(flows[*turn]);
            let progress = &mut self.progress[number];
            let ring = &mut pairs[number % queues].transmit;
            // What the device is done with is looked at when there is need of it.
            if ring.free() < BURST {
                ring.reclaim();
            }
            let room = self.plan.window - (progress.sent - progress.done).min(self.plan.window);
            let mut count = (room as usize).min(ring.free()).min(BURST);
            if let (Some(clock), Some(pace)) = (&mut self.clock, self.plan.pace_per_s) {
                let due = clock.begun[number] + (now_ns as f64 * pace / 1e9) as u64;
                count = count.min(due.saturating_sub(progress.sent) as usize);
                for frame in 0..count {
                    let at = progress.next.wrapping_add(frame as u32) as usize % REMEMBERED;
                    clock.sent_ns[number][at] = now_ns;
                }
            }
            ring.prefetch_free(count);
            for _ in 0..count {
                let Some(slot) = ring.take_free() else { break };
                let bytes = length(self.plan.bytes, progress.next);
                let place = ring.buffer(slot);
                place.write_words(self.beginnings[number].numbered(progress.next));
                if self.plan.touch == Touch::All {
                    let payload = self.payload.of(progress.next, bytes - OWN);
                    place.after(HEADER + OWN).write(payload);
                }
                ring.post(slot, (HEADER + bytes) as u32);
                progress.next = progress.next.wrapping_add(1);
            }
            progress.sent += count as u64;
            self.tally.sent += count as u64;
            posted += count;
            if count > 0 && queues > 1 {
                ring.publish();
            }
        }
        if posted > 0 && queues == 1 {
            pairs[0].transmit.publish();
        }
    }

    #[inline]
    fn receive(&mut self, port: usize, heard: &mut dyn FnMut(usize)) {
        let merges = self.ports[port].agreed() & crate::message::features::MRG_RXBUF != 0;
        for pair in 0..self.ports[port].pairs().len() {
            let ring = &mut self.ports[port].pairs()[pair].receive;
            let mut used = [(0, 0); TAKEN];
            let mut count = 0;
            ring.take_all_used(TAKEN as u16, |slot, bytes| {
                used[count] = (slot, bytes);
                count += 1;
            });
            let used = &used[..count];
            for &(slot, _) in used {
                ring.buffer(slot).bytes().prefetch(2);
            }
            if used.is_empty() {
                continue;
            }
            let now_ns = self.clock.as_ref().map_or(0, FrameTimes::now_ns);
            let mut sink = Sink {
                port,
                now_ns,
                plan: &self.plan,
                tally: &mut self.tally,
                progress: &mut self.progress,
                payload: &self.payload,
                beginnings: &self.beginnings,
                scratch: &mut self.scratch,
                clock: self.clock.as_mut(),
            };
            let mut next = used.iter().copied();
            while let Some(first) = next.next() {
                sink.take(ring, first, merges, &mut next, heard);
            }
            for &(slot, _) in used {
                ring.post(slot, 0);
            }
            while let Some(slot) = ring.take_free() {
                ring.post(slot, 0);
            }
            ring.publish();
        }
    }
}

#[inline]
fn length(bytes: FrameBytes, number: u32) -> usize {
    match bytes {
        FrameBytes::Fixed(bytes) => bytes,
        FrameBytes::UpTo(most) => 60 + (number as usize).wrapping_mul(7919) % (most - 59),
    }
}

/// What checks the frames that a port received.
struct Sink<'t> {
    port: usize,
    now_ns: u64,
    plan: &'t TrafficPlan,
    tally: &'t mut TrafficCounts,
    progress: &'t mut [FlowProgress],
    payload: &'t Payload,
    beginnings: &'t [FlowHeader],
    scratch: &'t mut Vec<u8>,
    clock: Option<&'t mut FrameTimes>,
}

impl Sink<'_> {
    /// Puts a frame of several buffers together, what is behind its own beginning: the rest
    /// of the first, and those that follow. Returns how many bytes these are.
    #[cold]
    fn gather(
        &mut self,
        ring: &mut DriverRing,
        (slot, bytes): (u16, u32),
        buffers: u16,
        more: &mut impl Iterator<Item = (u16, u32)>,
    ) -> usize {
        self.scratch.clear();
        let mut add = |part: ByteRange<'_>| {
            let before = self.scratch.len();
            self.scratch.resize(before + part.len(), 0);
            part.copy_out(&mut self.scratch[before..]);
        };
        add(ring.buffer(slot).bytes().first(bytes as usize).after(HEADER + OWN));
        for _ in 1..buffers {
            // All buffers of a frame become used at once.
            let Some((slot, bytes)) = more.next().or_else(|| ring.take_used()) else { break };
            add(ring.buffer(slot).bytes().first(bytes as usize));
        }
        self.scratch.len()
    }

    /// Checks a frame, which begins in buffer `slot`.
    #[inline]
    fn take(
        &mut self,
        ring: &mut DriverRing,
        (slot, bytes): (u16, u32),
        merges: bool,
        more: &mut impl Iterator<Item = (u16, u32)>,
        heard: &mut dyn FnMut(usize),
    ) {
        let first = ring.buffer(slot).bytes().first(bytes as usize);
        // In words: nothing that was written in parts has to be read as a whole, while
        // what was written before is still on its way.
        let Some(head) = first.words::<4>() else {
            self.tally.corrupt += 1;
            return;
        };
        let all = self.plan.touch == Touch::All;
        let mut whole = bytes as usize;
        let buffers = if merges { (head[1] >> 16) as u16 } else { 1 };
        if buffers > 1 {
            whole = HEADER + OWN + self.gather(ring, (slot, bytes), buffers, more);
        }
        let rest = ring.buffer(slot).bytes().first(bytes as usize).after(HEADER + OWN);
        let word = |number: usize| u128::from(head[number]);
        let same = word(1) >> 32 | word(2) << 32 | word(3) << 96;
        let number = ((same >> 112) as u16).swap_bytes();
        if number == HELLO {
            heard(usize::from(((same >> 80) as u16).swap_bytes()));
            return;
        }
        let number = usize::from(number);
        let Some(flow) = self.plan.flows.get(number) else {
            self.tally.corrupt += 1;
            return;
        };
        if flow.to != self.port {
            self.tally.foreign += 1;
            return;
        }
        let sequence = ((head[3] >> 32) as u32).swap_bytes();
        let expected = length(self.plan.bytes, sequence);
        let payload = self.payload.of(sequence, expected - OWN);
        let fine = same == self.beginnings[number].same
            && whole == HEADER + expected
            && (!all || if buffers > 1 { *self.scratch == payload } else { rest.equals(payload) });
        if !fine {
            self.tally.corrupt += 1;
            return;
        }
        let progress = &mut self.progress[number];
        let ahead = sequence.wrapping_sub(progress.expected);
        if ahead >= 1 << 31 {
            self.tally.disordered += 1;
            return;
        }
        self.tally.lost += u64::from(ahead);
        progress.done += u64::from(ahead) + 1;
        progress.expected = sequence.wrapping_add(1);
        self.tally.received += 1;
        self.tally.bytes += expected as u64;
        if let Some(clock) = &mut self.clock {
            let sent_ns = clock.sent_ns[number][sequence as usize % REMEMBERED];
            let took_ns = self.now_ns.saturating_sub(sent_ns);
            clock.latencies_ns.push(u32::try_from(took_ns).unwrap_or(u32::MAX));
        }
    }
}
