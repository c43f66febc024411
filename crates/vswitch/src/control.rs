//! The control thread: sockets, connections, questions, and the snapshots that the
//! polling threads forward by.
//!
//! It waits in one `poll` for all of them and never for one: a frontend that is
//! slow, silent or broken costs its own port, and no other.

mod answers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use topology::MacAddress;

use crate::balance::{QueueLoad, relief};
use crate::bell::Bell;
use crate::channel::{ChannelError, VhostChannel};
use crate::config::{
    ConfigError, MirrorConfig, PortConfig, PortEnd, SocketRights, SocketRole, SwitchConfig, differ,
};
use crate::counters::{PortCounters, ThreadCounters};
use crate::desk::Desk;
use crate::device::VhostDevice;
use crate::event::{StartError, SwitchEvent};
use crate::forward::{Forwarder, ThreadLink};
use crate::memory;
use crate::mirror::Mirror;
use crate::open_files;
use crate::port::{MAX_PORTS, PortTable, PortView, Vlan};
use crate::question::{ControlReply, Question};
use crate::rate::Limiter;
use crate::session::{Offer, Plane, VhostSession};
use crate::socket::{self, SocketListener};
use crate::table::{MacTable, StaticOutcome, Station, TABLE_PORTS};
use crate::tap;
use crate::teller::EventTeller;
use crate::worker::{Notice, SilentRings, Worker, WorkerCommand};

/// How often a frontend that listens is called again.
const RETRY: Duration = Duration::from_millis(100);
/// Messages of one connection that are dealt with before others get their turn.
const MESSAGES_A_TURN: usize = 64;

/// Connections at one port that are taken in or sent away before others get their turn.
const CONNECTIONS_A_TURN: usize = 64;

/// How often a queue may go to another thread.
const BALANCE_S: u64 = 2;
/// After so many seconds, a station's return counts one less.
const CALM_S: u64 = 10;
const _: () = assert!(MAX_PORTS <= TABLE_PORTS);

/// A question from this process.
#[derive(Debug)]
pub(crate) struct ControlCall {
    pub(crate) question: Question,
    pub(crate) reply: Sender<ControlReply>,
}

/// A frontend that is connected.
#[derive(Debug)]
struct FrontendConnection {
    channel: VhostChannel,
    session: VhostSession,
    /// By when it has to say what it has begun to say.
    deadline: Option<Instant>,
}

/// A port, as the control thread knows it.
#[derive(Debug)]
struct PortSlot {
    config: PortConfig,
    listener: Option<SocketListener>,
    connection: Option<FrontendConnection>,
    /// When a frontend that listens is called next.
    retry: Option<Instant>,
    counters: Arc<PortCounters>,
    stopped: std::collections::BTreeMap<u16, &'static str>,
    last_error: Option<String>,
    /// Why the frontend that is to listen can't be connected to.
    unreachable: Option<String>,
    connections: u64,
    /// Files of the last connection that are still to be closed.
    files: Weak<()>,
}

impl PortSlot {
    /// True if a file of the last connection is still to be closed. What one frontend can
    /// have kept open by that is what one connection can send.
    fn has_open_files(&self) -> bool {
        self.files.strong_count() > 0
    }
}

/// A polling thread as the control thread sees it.
#[derive(Debug)]
struct PollingThread {
    orders: Sender<WorkerCommand>,
    bell: Arc<Bell>,
    counters: Arc<ThreadCounters>,
    pcpu: Option<u32>,
    handle: Option<JoinHandle<()>>,
}

/// What all ports share: what is installed where.
#[derive(Debug)]
struct Fabric {
    snapshot: PortTable,
    threads: Vec<PollingThread>,
    notices: Receiver<Notice>,
    /// Heard while waiting for something else.
    heard: VecDeque<Notice>,
    /// By port and queue: the chains that it had completed when loads were looked at last,
    completed: BTreeMap<(usize, usize), u64>,
    /// and by port: the time that it had taken.
    busy_ns: BTreeMap<usize, u64>,
    /// How often a queue went to another thread.
    moves: u64,
}

impl Fabric {
    /// Gives the snapshot to all threads, and waits until none uses an earlier one.
    fn publish(&mut self) {
        self.snapshot.generation += 1;
        self.snapshot.settle();
        let snapshot = Arc::new(self.snapshot.clone());
        let mut waiting = 0;
        for thread in &self.threads {
            waiting +=
                usize::from(thread.orders.send(WorkerCommand::Use(Arc::clone(&snapshot))).is_ok());
            thread.bell.ring();
        }
        // A pass is bounded, so this is short: no guest can make it longer.
        while waiting > 0 {
            match self.notices.recv() {
                Ok(Notice::Uses { generation }) if generation == snapshot.generation => {
                    waiting -= 1
                }
                Ok(notice) => self.heard.push_back(notice),
                Err(_) => return,
            }
        }
    }

    /// Has the least busy thread serve a queue of the busiest one, if that helps. Between
    /// both nobody does: no ring is ever served by two.
    fn balance(&mut self) {
        if self.threads.len() < 2 {
            return;
        }
        let mut loads = Vec::new();
        let (before, busy_before) =
            (std::mem::take(&mut self.completed), std::mem::take(&mut self.busy_ns));
        for view in self.snapshot.ports.iter().flatten() {
            let port = usize::from(view.number);
            let whole_ns = view.counters.busy_ns();
            self.busy_ns.insert(port, whole_ns);
            let lately_ns = whole_ns - busy_before.get(&port).copied().unwrap_or(0).min(whole_ns);
            let pairs = view.device.as_ref().map_or(&[][..], |device| &device.pairs);
            let mut chains = Vec::new();
            for (queue, pair) in pairs.iter().enumerate() {
                let rings = pair.receive.iter().chain(&pair.transmit);
                let completed = rings.map(|part| part.ring.completed()).sum::<u64>();
                let known = before.get(&(port, queue)).copied().unwrap_or(0);
                self.completed.insert((port, queue), completed);
                // A ring that was set up anew counts anew.
                chains.push(completed.saturating_sub(known));
            }
            // A port's time is known, that of its queues not: each has its share by chains.
            let all_chains = chains.iter().sum::<u64>().max(1);
            for (queue, chains) in chains.into_iter().enumerate() {
                if let Some(thread) = self.snapshot.thread_of(port, queue) {
                    let share = u128::from(lately_ns) * u128::from(chains) / u128::from(all_chains);
                    let busy_ns = u64::try_from(share).unwrap_or(u64::MAX);
                    loads.push(QueueLoad { port, queue, thread, busy_ns });
                }
            }
        }
        let window_ns = BALANCE_S * 1_000_000_000;
        if let Some((port, queue, thread)) = relief(&loads, self.threads.len(), window_ns) {
            self.moves += 1;
            for owner in [None, Some(thread)] {
                self.snapshot.assign(port, queue, owner);
                self.publish();
            }
        }
    }

    fn set_device(&mut self, port: usize, device: Option<VhostDevice>) {
        if let Some(view) = &self.snapshot.ports[port] {
            let device = device.map(Arc::new);
            self.snapshot.ports[port] = Some(Arc::new(PortView { device, ..(**view).clone() }));
            self.publish();
        }
    }
}

/// One port of the fabric, where its session installs a device.
struct FabricPort<'f> {
    fabric: &'f mut Fabric,
    port: usize,
}

impl Plane for FabricPort<'_> {
    fn install(&mut self, device: Option<VhostDevice>) {
        self.fabric.set_device(self.port, device);
    }
}

/// The control thread's state.
#[derive(Debug)]
pub(crate) struct Control {
    slots: Vec<Option<PortSlot>>,
    fabric: Fabric,
    table: Arc<MacTable>,
    bell: Arc<Bell>,
    calls: Receiver<ControlCall>,
    events: EventTeller,
    desk: Option<Desk>,
    control_path: Option<PathBuf>,
    age_s: u32,
    /// [`MacTable::rivalries`] when they were told.
    rivalries: u32,
    /// Pairs of ports with one address that were told.
    told_same: BTreeSet<[usize; 2]>,
    /// When it was last made older, in seconds since the beginning.
    aged_s: u64,
    patience: Duration,
    mirrors: Vec<Mirror>,
    /// Files that may be open at once.
    most_files: u64,
    /// Of the sockets of ports.
    rights: SocketRights,
    /// The process may open nothing any more.
    kept_in: bool,
    /// It may connect sockets.
    connects: bool,
    began: Instant,
    ending: bool,
}

impl Control {
    /// Listens, and starts the polling threads.
    pub(crate) fn new(
        config: &SwitchConfig,
        calls: Receiver<ControlCall>,
        events: SyncSender<SwitchEvent>,
    ) -> Result<Self, StartError> {
        config.check()?;
        let os = |what| move |source| StartError::Os { what, source };
        let most_files =
            open_files::raise_limit().map_err(os("raise the number of files that may be open"))?;
        memory::survive_shrunk_files().map_err(os("handle SIGBUS"))?;
        let bell = Arc::new(Bell::new().map_err(os("make an event"))?);
        let table = Arc::new(MacTable::new(MAX_PORTS));
        let (notify, notices) = mpsc::channel();
        let pcpus: Vec<Option<u32>> = if config.pcpus.is_empty() {
            vec![None]
        } else {
            config.pcpus.iter().copied().map(Some).collect()
        };
        // All that may fail for reasons of the user's comes before any thread.
        let desk = config.control.as_deref().map(|path| Desk::open(path, config.patience));
        let desk = desk.transpose()?;
        let mut control = Self {
            slots: (0..MAX_PORTS).map(|_| None).collect(),
            fabric: Fabric {
                snapshot: PortTable::new(pcpus.len()),
                threads: Vec::new(),
                notices,
                heard: VecDeque::new(),
                completed: BTreeMap::new(),
                busy_ns: BTreeMap::new(),
                moves: 0,
            },
            table,
            bell,
            calls,
            events: EventTeller::new(events),
            desk,
            control_path: config.control.clone(),
            age_s: config.age_s,
            rivalries: 0,
            told_same: BTreeSet::new(),
            aged_s: 0,
            patience: config.patience,
            mirrors: Vec::new(),
            most_files,
            rights: config.rights,
            kept_in: false,
            connects: true,
            began: Instant::now(),
            ending: false,
        };
        for port in &config.ports {
            control.add(port.clone())?;
        }
        for mirror in &config.mirrors {
            control.start_mirror(mirror)?;
        }
        let sockets = config.ports.iter().filter_map(PortConfig::socket);
        let folders = sockets.chain(config.control.as_deref());
        let folders: Vec<PathBuf> = folders.map(socket::folder).collect();
        control.start_threads(&pcpus, &notify, config.sandbox.then_some(&folders))?;
        control.kept_in = config.sandbox;
        control.connects = !config.sandbox || config.connects();
        control.fabric.publish();
        Ok(control)
    }

    fn start_mirror(&mut self, config: &MirrorConfig) -> Result<(), StartError> {
        let all = || self.slots.iter().flatten().map(|slot| slot.config.name.clone()).collect();
        let names: Vec<String> = if config.ports.is_empty() { all() } else { config.ports.clone() };
        let started = Mirror::start(&config.target, config.snap, config.limit, &names);
        let (mirror, watches) = started
            .map_err(|source| StartError::Mirror { target: config.target.clone(), source })?;
        self.mirrors.push(mirror);
        for (name, watch) in names.iter().zip(watches) {
            let Ok(port) = self.port_named(name) else { continue };
            if let Some(view) = &self.fabric.snapshot.ports[port] {
                let mut view = PortView::clone(view);
                view.watches.push(watch);
                self.fabric.snapshot.ports[port] = Some(Arc::new(view));
            }
        }
        Ok(())
    }

    /// What wakes it.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    fn start_threads(
        &mut self,
        pcpus: &[Option<u32>],
        notices: &Sender<Notice>,
        sandbox: Option<&Vec<PathBuf>>,
    ) -> Result<(), StartError> {
        let os = |what| move |source| StartError::Os { what, source };
        for &pcpu in pcpus.iter().flatten() {
            socket::may_run_on(pcpu)?;
        }
        if let Some(folders) = sandbox {
            crate::sandbox::drop_capabilities(folders).map_err(StartError::Sandbox)?;
            let kept = crate::sandbox::keep_to_folders(folders).map_err(StartError::Sandbox)?;
            if !kept {
                self.events.tell(SwitchEvent::NoLandlock);
            }
        }
        crate::passed::start_closer().map_err(os("start a thread"))?;
        let mut ways = Vec::new();
        for _ in pcpus {
            let (send, receive) = mpsc::sync_channel(64);
            let bell = Arc::new(Bell::new().map_err(os("make an event"))?);
            ways.push((ThreadLink { parcels: send, bell }, receive));
        }
        let crossings: Vec<ThreadLink> = ways.iter().map(|(way, _)| way.clone()).collect();
        for (number, (way, parcels)) in ways.into_iter().enumerate() {
            let (orders, ordered) = mpsc::channel();
            let counters = Arc::new(ThreadCounters::default());
            let others = crossings.iter().enumerate();
            let others = others.map(|(other, way)| (other != number).then(|| way.clone()));
            let caller = memory::AioContext::new().map_err(os("set up asynchronous calls"))?;
            let table = Arc::clone(&self.table);
            let worker = Worker {
                forwarder: Forwarder::new(number, table, others.collect(), caller),
                orders: ordered,
                parcels,
                notices: notices.clone(),
                control: Arc::clone(&self.bell),
                bell: Arc::clone(&way.bell),
                counters: Arc::clone(&counters),
                pending: None,
                told: Vec::new(),
                silent: SilentRings::default(),
            };
            let pcpu = pcpus[number];
            let (pinned, pin) = mpsc::channel();
            let handle = std::thread::Builder::new()
                .name(format!("vswitch-{number}"))
                .spawn(move || {
                    let result = pcpu.map_or(Ok(()), socket::pin_this_thread);
                    let fine = result.is_ok();
                    if pinned.send(result).is_ok() && fine {
                        worker.run();
                    }
                })
                .map_err(os("start a polling thread"))?;
            let (bell, handle) = (way.bell, Some(handle));
            self.fabric.threads.push(PollingThread { orders, bell, counters, pcpu, handle });
            if let Ok(Err(_)) = pin.recv() {
                return Err(StartError::Pcpu { pcpu: pcpu.unwrap_or_default() });
            }
        }
        Ok(())
    }

    /// Works until it is told to end.
    pub(crate) fn run(mut self) {
        while !self.ending {
            self.wait();
            self.listen_to_threads();
            while let Ok(call) = self.calls.try_recv() {
                let answer = self.answer(call.question);
                // Whoever asked may have gone.
                let _ = call.reply.send(answer);
            }
            for port in 0..self.slots.len() {
                self.serve_port(port);
            }
            self.serve_desk();
            let up_s = self.began.elapsed().as_secs();
            if up_s != self.aged_s {
                self.aged_s = up_s;
                self.table.set_now(u32::try_from(up_s).unwrap_or(u32::MAX));
                self.table.age(self.age_s);
                self.events.end_second();
                self.tell_same_addresses();
                if up_s.is_multiple_of(CALM_S) {
                    self.table.calm();
                }
                if up_s.is_multiple_of(BALANCE_S) {
                    self.fabric.balance();
                }
            }
        }
    }

    /// Waits for anything to happen, or for a time that matters.
    fn wait(&mut self) {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.bell.as_fd()];
        let now = Instant::now();
        // Ages are counted in seconds.
        let mut until = now + Duration::from_secs(1);
        for slot in self.slots.iter().flatten() {
            fds.extend(slot.listener.as_ref().and_then(SocketListener::waited));
            let pause_ends = slot.listener.as_ref().and_then(SocketListener::pause_ends);
            until = pause_ends.map_or(until, |pause_ends| until.min(pause_ends));
            if let Some(connection) = &slot.connection {
                fds.push(connection.channel.as_fd());
                until = connection.deadline.map_or(until, |deadline| until.min(deadline));
            }
            until = slot.retry.map_or(until, |retry| until.min(retry));
        }
        fds.extend(self.desk.iter().flat_map(Desk::fds));
        until = self.desk.iter().filter_map(Desk::deadline).fold(until, Instant::min);
        let mut waited: Vec<PollFd<'_>> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let longest = Timespec::try_from(until.saturating_duration_since(now));
        let idle = self.fabric.heard.is_empty();
        let longest = if idle { longest.ok() } else { Some(Timespec::default()) };
        let _ = poll(&mut waited, longest.as_ref());
        drop(waited);
        drop(fds);
        self.bell.clear();
    }

    fn listen_to_threads(&mut self) {
        let notices: Vec<Notice> =
            self.fabric.heard.drain(..).chain(self.fabric.notices.try_iter()).collect();
        for notice in notices {
            match notice {
                Notice::Uses { .. } => {}
                Notice::MemoryLost { port } => {
                    let lost = |slot: &PortSlot| {
                        let connection = slot.connection.as_ref();
                        connection.is_some_and(|connection| connection.session.is_memory_lost())
                    };
                    if self.slots[usize::from(port)].as_ref().is_some_and(lost) {
                        let why = "The frontend made the file of its memory or its log shorter"
                            .to_owned();
                        self.disconnect(usize::from(port), Some(why));
                    }
                }
                Notice::RingStopped { port, ring, fault, generation } => {
                    let Some(slot) = &mut self.slots[usize::from(port)] else { continue };
                    let current = self.fabric.snapshot.generation == generation;
                    let key = u16::try_from(ring).unwrap_or(u16::MAX);
                    if current && slot.stopped.insert(key, fault.name()).is_none() {
                        let (port, fault) = (slot.config.name.clone(), fault.name());
                        self.events.tell(SwitchEvent::RingStopped { port, ring, fault });
                    }
                }
            }
        }
    }

    fn add(&mut self, config: PortConfig) -> Result<(), StartError> {
        let count = self.slots.iter().flatten().count() + 1;
        for slot in self.slots.iter().flatten() {
            differ(&slot.config, &config)?;
        }
        if let (Some(control), Some(socket)) = (&self.control_path, config.socket())
            && control == socket
        {
            return Err(ConfigError::ControlIsPort { path: control.clone() }.into());
        }
        let free = self.slots.iter().position(Option::is_none);
        let port = free.ok_or(ConfigError::Ports { count })?;
        let number = u16::try_from(port).expect("few ports");
        let ports = self.slots.iter().flatten().map(|slot| &slot.config).chain([&config]);
        open_files::suffice(self.most_files, ports)?;
        if let Some(mac) = config.policy.mac {
            self.may_set(&config.policy.vlan, mac, number)?;
        }
        let (mut listener, mut device) = (None, None);
        match &config.end {
            PortEnd::Socket { path, role: SocketRole::Server } => {
                if !self.connects && std::fs::symlink_metadata(path).is_ok() {
                    return Err(StartError::InTheWay { path: path.clone() });
                }
                listener = Some(SocketListener::open(path, self.rights)?);
            }
            PortEnd::Socket { role: SocketRole::Client, .. } if !self.connects => {
                return Err(StartError::ConnectLater);
            }
            PortEnd::Socket { role: SocketRole::Client, .. } => {}
            PortEnd::Tap { .. } if self.kept_in => {
                return Err(StartError::TapLater);
            }
            PortEnd::Tap { interface, bridge } => {
                let tap = tap::open(interface, bridge.as_deref(), config.policy.mtu)?;
                device = Some(Arc::new(VhostDevice::of_tap(tap)));
            }
        }
        if let Some(mac) = config.policy.mac {
            self.set_by_hand(&config.policy.vlan, mac, number)?;
        }
        let counters = Arc::new(PortCounters::default());
        self.fabric.snapshot.ports[port] = Some(Arc::new(PortView {
            number,
            policy: config.policy.clone(),
            device,
            counters: Arc::clone(&counters),
            limiter: config.policy.rate.map(|rate| Arc::new(Limiter::new(rate))),
            watches: Vec::new(),
        }));
        let retry = config.calls().then(Instant::now);
        self.slots[port] = Some(PortSlot {
            config,
            listener,
            connection: None,
            retry,
            counters,
            stopped: std::collections::BTreeMap::new(),
            last_error: None,
            unreachable: None,
            connections: 0,
            files: Weak::new(),
        });
        Ok(())
    }

    /// An error if another port has the address by hand in a VLAN that it would have it in.
    fn may_set(&self, vlan: &Vlan, mac: MacAddress, port: u16) -> Result<(), ConfigError> {
        let owner = |vlan| self.table.set_by_hand(Station::new(vlan, mac.bytes()));
        let other = vlan.numbers().find_map(|vlan| owner(vlan).filter(|&owner| owner != port));
        let Some(other) = other else { return Ok(()) };
        let slot = self.slots.get(usize::from(other)).and_then(Option::as_ref);
        let port = slot.map_or_else(String::new, |slot| slot.config.name.clone());
        Err(ConfigError::Pinned { mac: mac.to_string(), port })
    }

    /// Says by hand that a station is behind a port, in each VLAN that the port carries: all
    /// of it or nothing.
    fn set_by_hand(&self, vlan: &Vlan, mac: MacAddress, port: u16) -> Result<(), ConfigError> {
        self.may_set(vlan, mac, port)?;
        let mut new = Vec::new();
        for vlan in vlan.numbers() {
            let station = Station::new(vlan, mac.bytes());
            match self.table.set_static(station, port) {
                StaticOutcome::New => new.push(station),
                StaticOutcome::Known => {}
                StaticOutcome::Full => {
                    new.into_iter().for_each(|station| self.table.forget_station(station));
                    return Err(ConfigError::TableFull { mac: mac.to_string() });
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, port: usize) {
        self.disconnect(port, None);
        self.slots[port] = None;
        self.fabric.snapshot.ports[port] = None;
        self.fabric.publish();
        self.table.forget_port(u16::try_from(port).expect("few ports"));
    }

    fn port_named(&self, name: &str) -> Result<usize, String> {
        let named =
            |slot: &Option<PortSlot>| slot.as_ref().is_some_and(|slot| slot.config.name == name);
        self.slots.iter().position(named).ok_or_else(|| {
            let known: Vec<&str> =
                self.slots.iter().flatten().map(|slot| slot.config.name.as_str()).collect();
            format!("No port is called {name}: there are {}", known.join(", "))
        })
    }

    /// Ends a port's connection.
    fn disconnect(&mut self, port: usize, error: Option<String>) {
        self.told_same.retain(|pair| !pair.contains(&port));
        let Some(slot) = &mut self.slots[port] else { return };
        let Some(mut connection) = slot.connection.take() else { return };
        slot.files = connection.channel.files();
        connection.session.end(&mut FabricPort { fabric: &mut self.fabric, port });
        slot.stopped.clear();
        slot.last_error.clone_from(&error);
        if slot.config.calls() {
            slot.retry = Some(Instant::now() + RETRY);
        }
        let name = slot.config.name.clone();
        self.table.forget_learned(u16::try_from(port).expect("few ports"));
        self.events.tell(SwitchEvent::Gone { port: name, error });
    }

    fn connect(&mut self, port: usize, stream: UnixStream) {
        let Some(slot) = &mut self.slots[port] else { return };
        let Ok(channel) = VhostChannel::new(stream) else { return };
        let mtu = slot.config.policy.mtu;
        let session = VhostSession::new(Offer { mtu, ..Offer::all(slot.config.queues) });
        let deadline = Some(Instant::now() + self.patience);
        slot.connection = Some(FrontendConnection { channel, session, deadline });
        slot.retry = None;
        slot.unreachable = None;
        slot.connections += 1;
        let name = slot.config.name.clone();
        self.events.tell(SwitchEvent::Connected { port: name });
    }

    /// Takes in connections and messages of one port.
    fn serve_port(&mut self, port: usize) {
        let Some(slot) = &mut self.slots[port] else { return };
        if slot.has_open_files() && slot.retry.is_some() {
            slot.retry = Some(Instant::now() + RETRY);
        }
        if let Some(path) = slot.config.socket()
            && slot.retry.is_some_and(|retry| retry <= Instant::now())
        {
            match socket::connect(path) {
                Ok(stream) => self.connect(port, stream),
                Err(error) => {
                    slot.retry = Some(Instant::now() + RETRY);
                    let error = error.to_string();
                    // Once, not at each call.
                    if slot.unreachable.as_ref() != Some(&error) {
                        slot.unreachable = Some(error.clone());
                        let port = slot.config.name.clone();
                        self.events.tell(SwitchEvent::NoListener { port, error });
                    }
                }
            }
        }
        self.serve_connection(port);
        let Some(slot) = &mut self.slots[port] else { return };
        for _ in 0..CONNECTIONS_A_TURN {
            let Some(listener) = &slot.listener else { return };
            let stream = match listener.accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => return,
                Err(error) => {
                    let (port, error) = (slot.config.name.clone(), error.to_string());
                    return self.events.tell(SwitchEvent::NotAccepted { port, error });
                }
            };
            let has_open_files = slot.has_open_files();
            if slot.connection.is_none() && !has_open_files {
                return self.connect(port, stream);
            }
            drop(stream);
            let port = slot.config.name.clone();
            let refused = if has_open_files {
                SwitchEvent::FilesOpen { port }
            } else {
                SwitchEvent::Refused { port }
            };
            self.events.tell(refused);
        }
    }

    fn serve_connection(&mut self, port: usize) {
        for _ in 0..MESSAGES_A_TURN {
            let Some(slot) = &mut self.slots[port] else { return };
            let Some(connection) = &mut slot.connection else { return };
            let place = &mut FabricPort { fabric: &mut self.fabric, port };
            let outcome = connection.take_message(place, self.patience);
            match outcome {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.disconnect(port, error),
            }
        }
        // There may be more, and others wait.
        self.bell.ring_always();
    }

    fn serve_desk(&mut self) {
        let Some(mut desk) = self.desk.take() else { return };
        desk.serve(|question| self.answer(question));
        self.desk = Some(desk);
    }
}

impl FrontendConnection {
    /// Deals with one message; false if none is there. The error says why the
    /// connection ends, none if the frontend closed it.
    fn take_message(
        &mut self,
        plane: &mut dyn Plane,
        patience: Duration,
    ) -> Result<bool, Option<String>> {
        let Some(message) = self.channel.receive().map_err(|error| match error {
            ChannelError::Closed => None,
            error => Some(whole_text(&error)),
        })?
        else {
            let late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
            if late {
                return Err(Some(format!(
                    "The frontend said nothing for {} s",
                    patience.as_secs_f64()
                )));
            }
            if self.channel.is_inside() && self.deadline.is_none() {
                self.deadline = Some(Instant::now() + patience);
            }
            return Ok(false);
        };
        self.deadline = None;
        let header = message.header;
        let answer = self.session.handle(header, &message.payload, message.fds, plane);
        let answer = answer.map_err(|error| Some(whole_text(&error)))?;
        if let Some(answer) = answer {
            self.channel.send(&answer, &[]).map_err(|error| match error {
                ChannelError::Closed => None,
                error => Some(whole_text(&error)),
            })?;
        }
        Ok(true)
    }
}

/// An error with its causes.
fn whole_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

impl Drop for Control {
    fn drop(&mut self) {
        for thread in &self.fabric.threads {
            // A thread that has ended needs no order.
            let _ = thread.orders.send(WorkerCommand::End);
            thread.bell.ring();
        }
        for thread in &mut self.fabric.threads {
            if let Some(handle) = thread.handle.take() {
                let _ = handle.join();
            }
        }
    }
}
