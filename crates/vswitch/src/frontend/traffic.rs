//! Traffic over several frontends from one thread: a source and a sink in a closed
//! loop, which checks that each frame arrives at the right port, in order, with its
//! length and payload.

use std::time::{Duration, Instant};

use super::{Frontend, FrontendError};
use crate::memory::Buffer;

/// Bytes of the Virtio header.
const HEADER: usize = 12;
/// Bytes of a frame's own beginning: addresses, type, flow, length, number.
const OWN: usize = 14 + 2 + 2 + 4;
/// The type of frames for local experiments (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];
/// What ports say to be known; it is not counted.
const HELLO: u16 = u16::MAX;
/// Frames that are sent at once.
const BURST: usize = 32;

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
pub struct Flow {
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficPlan {
    /// Who to whom.
    pub flows: Vec<Flow>,
    /// How long.
    pub bytes: FrameBytes,
    /// What of it is written and checked.
    pub touch: Touch,
    /// Frames of a flow that may be on their way; the receiver's buffers have to hold
    /// those of all flows to it.
    pub window: u64,
    /// How long frames may stay away before they count as lost.
    pub grace: Duration,
}

impl TrafficPlan {
    /// Each port to the next, and the last to the first.
    #[must_use]
    pub fn ring(ports: usize) -> Vec<Flow> {
        (0..ports).map(|from| Flow { from, to: (from + 1) % ports }).collect()
    }

    /// Each port to each other.
    #[must_use]
    pub fn mesh(ports: usize) -> Vec<Flow> {
        let pairs = (0..ports).flat_map(|from| (0..ports).map(move |to| Flow { from, to }));
        pairs.filter(|flow| flow.from != flow.to).collect()
    }
}

/// What became of the frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
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

impl Tally {
    /// True if all that was sent came, once, in order, and as it was.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sent == self.received && self.lost + self.disordered + self.corrupt == 0
    }
}

/// Where a flow stands.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    next: u32,
    expected: u32,
    sent: u64,
    /// Received or given up.
    done: u64,
}

/// Source and sink over ports.
#[derive(Debug)]
pub struct Traffic {
    ports: Vec<Frontend>,
    plan: TrafficPlan,
    progress: Vec<Progress>,
    /// By port: the flows that it sends, and whose turn it is.
    sends: Vec<(Vec<u16>, usize)>,
    tally: Tally,
    last_received: Instant,
}

/// The address of a port's only station.
#[must_use]
pub(super) fn station(port: usize) -> [u8; 6] {
    let [high, low] = u16::try_from(port).unwrap_or(u16::MAX).to_be_bytes();
    [0x02, 0x76, 0x6d, 0x6c, high, low]
}

fn pattern(number: u32, offset: usize) -> u8 {
    (number as usize).wrapping_mul(31).wrapping_add(offset.wrapping_mul(7)) as u8
}

impl Traffic {
    /// Over connected frontends; their receive rings are filled.
    #[must_use]
    pub fn new(ports: Vec<Frontend>, plan: TrafficPlan) -> Self {
        let sends = (0..ports.len()).map(|port| {
            let flows = plan.flows.iter().enumerate().filter(|(_, flow)| flow.from == port);
            (flows.map(|(number, _)| number as u16).collect(), 0)
        });
        let mut traffic = Self {
            sends: sends.collect(),
            progress: vec![Progress::default(); plan.flows.len()],
            ports,
            plan,
            tally: Tally::default(),
            last_received: Instant::now(),
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

    /// What became of the frames so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
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
        own[18..22].copy_from_slice(&number.to_be_bytes());
        ring.buffer(slot).write(&frame);
        ring.post(slot, frame.len() as u32);
        ring.publish();
    }

    /// Sends and receives once over all ports.
    #[inline]
    pub fn pass(&mut self) {
        for port in 0..self.ports.len() {
            self.receive(port, &mut |_| {});
            self.reclaim(port);
            self.send(port);
        }
    }

    /// Passes until `enough` says so, then until nothing is on its way.
    pub fn run(&mut self, mut enough: impl FnMut(&Tally) -> bool) {
        let mut passes = 0_u32;
        while !enough(&self.tally) {
            self.pass();
            passes += 1;
            if passes.is_multiple_of(1024) {
                self.give_up_late();
            }
        }
        self.drain();
    }

    /// Receives until nothing is on its way any more, or is lost.
    pub fn drain(&mut self) {
        self.last_received = Instant::now();
        while self.progress.iter().any(|flow| flow.done < flow.sent) {
            for port in 0..self.ports.len() {
                self.receive(port, &mut |_| {});
                self.reclaim(port);
            }
            if self.last_received.elapsed() > self.plan.grace {
                self.count_missing();
            }
        }
    }

    /// Lets the source go on where nothing comes any more.
    fn give_up_late(&mut self) {
        if self.last_received.elapsed() > self.plan.grace {
            self.count_missing();
            self.last_received = Instant::now();
        }
    }

    fn count_missing(&mut self) {
        for flow in &mut self.progress {
            self.tally.lost += flow.sent - flow.done;
            flow.done = flow.sent;
            flow.expected = flow.next;
        }
    }

    #[inline]
    fn reclaim(&mut self, port: usize) {
        for pair in self.ports[port].pairs() {
            while pair.transmit.take_used().is_some() {}
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
        let mut posted = 0_u32;
        for _ in 0..flows.len() {
            *turn = if *turn + 1 >= flows.len() { 0 } else { *turn + 1 };
            let number = flows[*turn];
            let flow = self.plan.flows[usize::from(number)];
            let progress = &mut self.progress[usize::from(number)];
            let ring = &mut pairs[usize::from(number) % queues].transmit;
            let room = self.plan.window - (progress.sent - progress.done).min(self.plan.window);
            let count = (room as usize).min(ring.free()).min(BURST);
            for _ in 0..count {
                let Some(slot) = ring.take_free() else { break };
                let bytes = length(self.plan.bytes, progress.next);
                let place = ring.buffer(slot);
                write_frame(place, flow, number, progress.next, bytes, self.plan.touch);
                ring.post(slot, (HEADER + bytes) as u32);
                progress.next = progress.next.wrapping_add(1);
                progress.sent += 1;
                self.tally.sent += 1;
                posted += 1;
            }
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
        for pair in self.ports[port].pairs() {
            let ring = &mut pair.receive;
            let mut taken = 0;
            while taken < 2 * BURST {
                let Some((slot, bytes)) = ring.take_used() else { break };
                taken += 1;
                let first = ring.buffer(slot).bytes().first(bytes as usize);
                let Some(head) = first.head() else {
                    self.tally.corrupt += 1;
                    continue;
                };
                // The number's last two bytes lie behind the head.
                let mut rest = [0; 2];
                first.after(HEADER + 20).read(&mut rest);
                let buffers = u16::from_le_bytes([head[10], head[11]]);
                let own: [u8; 20] = head[HEADER..].try_into().expect("twenty bytes");
                let mut whole = bytes as usize;
                let mut frame = Vec::new();
                let spread = merges && buffers > 1;
                let all = self.plan.touch == Touch::All;
                if all || spread {
                    frame.resize(bytes as usize, 0);
                    first.copy_out(&mut frame);
                }
                for _ in 1..if spread { buffers } else { 1 } {
                    // All buffers of a frame become used at once.
                    let Some((slot, bytes)) = ring.take_used() else { break };
                    let part = ring.buffer(slot).bytes().first(bytes as usize);
                    let before = frame.len();
                    frame.resize(before + bytes as usize, 0);
                    part.copy_out(&mut frame[before..]);
                    whole += bytes as usize;
                }
                let number = u16::from_be_bytes([own[14], own[15]]);
                if number == HELLO {
                    heard(usize::from(u16::from_be_bytes([own[10], own[11]])));
                    continue;
                }
                let Some(flow) = self.plan.flows.get(usize::from(number)) else {
                    self.tally.corrupt += 1;
                    continue;
                };
                if flow.to != port {
                    self.tally.foreign += 1;
                    continue;
                }
                let sequence = u32::from_be_bytes([own[18], own[19], rest[0], rest[1]]);
                let said = usize::from(u16::from_be_bytes([own[16], own[17]]));
                let expected = length(self.plan.bytes, sequence);
                let fine = own[..6] == station(port)
                    && own[6..12] == station(flow.from)
                    && whole == HEADER + expected
                    && said == expected & 0xffff
                    && (!all || is_patterned(&frame[HEADER..], sequence));
                if !fine {
                    self.tally.corrupt += 1;
                    continue;
                }
                let progress = &mut self.progress[usize::from(number)];
                let ahead = sequence.wrapping_sub(progress.expected);
                if ahead < 1 << 31 {
                    self.tally.lost += u64::from(ahead);
                    progress.done += u64::from(ahead) + 1;
                    progress.expected = sequence.wrapping_add(1);
                    self.tally.received += 1;
                    self.tally.bytes += expected as u64;
                } else {
                    self.tally.disordered += 1;
                }
            }
            if taken > 0 {
                self.last_received = Instant::now();
                while let Some(slot) = ring.take_free() {
                    ring.post(slot, 0);
                }
                ring.publish();
            }
        }
    }

    /// Waits, without using the pCPU, until a port has received something.
    ///
    /// # Errors
    /// If the frontends do not ask for events.
    pub fn wait_for_call(&self, port: usize, patience: Duration) -> Result<bool, FrontendError> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let (_, call) = self.ports[port].ring(0).events();
        let patience = Timespec::try_from(patience).expect("a short time");
        let mut waited = [PollFd::new(call, PollFlags::IN)];
        let ready = poll(&mut waited, Some(&patience))
            .map_err(|error| FrontendError::Event(error.into()))?;
        if ready > 0 {
            let _ = rustix::io::read(call, &mut [0_u8; 8]);
        }
        Ok(ready > 0)
    }
}

#[inline]
fn length(bytes: FrameBytes, number: u32) -> usize {
    match bytes {
        FrameBytes::Fixed(bytes) => bytes,
        FrameBytes::UpTo(most) => 60 + (number as usize).wrapping_mul(7919) % (most - 59),
    }
}

#[inline]
fn write_frame(
    place: Buffer<'_>,
    flow: Flow,
    number: u16,
    sequence: u32,
    bytes: usize,
    touch: Touch,
) {
    let mut head = [0; HEADER + OWN];
    let own = &mut head[HEADER..];
    own[..6].copy_from_slice(&station(flow.to));
    own[6..12].copy_from_slice(&station(flow.from));
    own[12..14].copy_from_slice(&TYPE);
    own[14..16].copy_from_slice(&number.to_be_bytes());
    own[16..18].copy_from_slice(&(bytes as u16).to_be_bytes());
    own[18..22].copy_from_slice(&sequence.to_be_bytes());
    place.write(&head);
    if touch == Touch::All {
        let rest: Vec<u8> = (OWN..bytes).map(|offset| pattern(sequence, offset)).collect();
        place.after(HEADER + OWN).write(&rest);
    }
}

fn is_patterned(frame: &[u8], sequence: u32) -> bool {
    let mut rest = frame.iter().enumerate().skip(OWN);
    rest.all(|(offset, &byte)| byte == pattern(sequence, offset))
}
