//! What a frontend has said so far, and what its messages do: the backend's half
//! of vhost-user, without sockets.
//!
//! A session belongs to one connection. It holds the device's memory and rings,
//! and installs what runs of them in a [`Plane`], whose threads use it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::{ActiveRing, DirtyLog, QueuePair, VhostDevice};
use crate::memory::{GuestMemory, MapError, Region, RegionAddresses};
use crate::message::{
    MAX_SLOTS, MessageError, MessageHeader, RingAddresses, RingFd, VhostRequest, features,
    protocol, reply,
};
use crate::passed::PassedFile;
use crate::ring::{Ring, Setup, SetupError};

/// Where a device runs.
pub trait Plane {
    /// Replaces the device. When it returns, nothing uses the former one any more.
    fn install(&mut self, device: Option<VhostDevice>);
}

/// What a backend offers on one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Queues, each with a ring to receive and one to send.
    pub pairs: u16,
    /// Features, as `GET_FEATURES` says them.
    pub features: u64,
    /// The highest MTU that a frontend may ask for.
    pub mtu: Option<u16>,
}

/// All that the switch can do.
pub const FEATURES: u64 = features::CSUM
    | features::GUEST_CSUM
    | features::GUEST_TSO4
    | features::GUEST_TSO6
    | features::GUEST_ECN
    | features::HOST_TSO4
    | features::HOST_TSO6
    | features::HOST_ECN
    | features::HOST_USO
    | features::GUEST_USO4
    | features::GUEST_USO6
    | features::MTU
    | features::MRG_RXBUF
    | features::GUEST_ANNOUNCE
    | features::LOG_ALL
    | features::ANY_LAYOUT
    | features::INDIRECT
    | features::EVENT_IDX
    | features::PROTOCOL
    | features::VERSION_1
    | features::RING_PACKED
    | features::IN_ORDER;

/// What the switch knows of the protocol.
pub const PROTOCOL: u64 = protocol::MQ
    | protocol::LOG_SHMFD
    | protocol::REPLY_ACK
    | protocol::NET_MTU
    | protocol::CONFIGURE_MEM_SLOTS;

/// The highest number of queues of a port.
pub const MAX_PAIRS: u16 = 64;

/// Bytes of memory and of its log that one port may have mapped here: 64 ports that have as
/// much, and one of them twice while its memory is replaced, leave half of the 128 TiB that a
/// process has on x86-64.
///
/// Source: Linux `Documentation/arch/x86/x86_64/mm.rst`.
pub const MAX_MAPPED_BYTES: u64 = 1 << 40;

impl Offer {
    /// All features, with as many queues.
    #[must_use]
    pub fn all(pairs: u16) -> Self {
        let several = if pairs > 1 { features::MQ } else { 0 };
        Self { pairs, features: FEATURES | several, mtu: None }
    }
}

/// Error type for [`VhostSession::handle`]. The connection is of no use after one.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The message is none.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Features that were not offered.
    #[error("The frontend uses features that were not offered: {surplus:#x}")]
    Features {
        /// Their bits.
        surplus: u64,
    },
    /// A ring that does not exist.
    #[error(
        "The frontend names ring {index}: there are {count}. Give the port as many queues \
             as the frontend has"
    )]
    NoRing {
        /// Its number.
        index: u32,
        /// How many there are.
        count: usize,
    },
    /// The ring runs, and can't be changed now.
    #[error("Ring {index} runs: it can't be changed now")]
    Running {
        /// Its number.
        index: usize,
    },
    /// The ring can't be used as it was set up.
    #[error("Ring {index} cannot start")]
    Setup {
        /// Its number.
        index: usize,
        /// Why.
        #[source]
        source: SetupError,
    },
    /// Memory can't be used.
    #[error("The frontend's memory cannot be used")]
    Memory(#[from] MapError),
    /// More memory than one port may have.
    #[error("The VM shares {bytes:#x} bytes of memory: a port has {MAX_MAPPED_BYTES:#x} at most")]
    TooMuchMemory {
        /// As many are asked for.
        bytes: u64,
    },
    /// What the guest writes is not seen here.
    #[error(
        "The VM's memory is not shared: nobody has written to its file. Give QEMU's memory \
             backend share=on (-object memory-backend-memfd,...,share=on -machine \
             memory-backend=...), libvirt <access mode='shared'/>"
    )]
    NotShared,
    /// More or fewer files than the message says.
    #[error("Message {request} came with {has} file descriptors, not {expected}")]
    Fds {
        /// The request's number.
        request: u32,
        /// As many came.
        has: usize,
        /// As many have to come.
        expected: usize,
    },
    /// What came is no event: writing to it could block, or do something else.
    #[error("Message {request} came with a file that is no eventfd")]
    NotAnEvent {
        /// The request's number.
        request: u32,
    },
    /// More regions than were offered.
    #[error("More than {MAX_SLOTS} memory regions")]
    TooManyRegions,
    /// Pages at the memory's end would be missing after a migration.
    #[error("The migration's log has {has:#x} bytes: all pages of the memory need {needed:#x}")]
    ShortLog {
        /// Bytes that it has.
        has: u64,
        /// Bytes that it must have.
        needed: u64,
    },
}

/// One ring, as far as it is set up.
#[derive(Debug, Default)]
struct Vring {
    size: u16,
    addresses: Option<RingAddresses>,
    base: u32,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    /// `SET_VRING_KICK` came, `GET_VRING_BASE` did not.
    started: bool,
    enabled: bool,
    built: Option<(Setup, Arc<Ring>)>,
}

/// A connection's state.
#[derive(Debug)]
pub struct VhostSession {
    offer: Offer,
    features: u64,
    /// None until `SET_PROTOCOL_FEATURES`.
    protocol: Option<u64>,
    memory: GuestMemory,
    vrings: Vec<Vring>,
    log: Option<Arc<DirtyLog>>,
    installed: bool,
}

impl VhostSession {
    /// Nothing said yet.
    #[must_use]
    pub fn new(offer: Offer) -> Self {
        let vrings = (0..2 * usize::from(offer.pairs)).map(|_| Vring::default()).collect();
        Self {
            offer,
            features: 0,
            protocol: None,
            memory: GuestMemory::new(),
            vrings,
            log: None,
            installed: false,
        }
    }

    /// The features that driver and backend agreed on.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// True if the file of a region or of the log was made shorter.
    #[must_use]
    pub fn is_memory_lost(&self) -> bool {
        self.memory.is_lost() || self.log.as_ref().is_some_and(|log| log.is_lost())
    }

    /// Does what a message asks for; the bytes of the answer, if one is due.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn handle(
        &mut self,
        header: MessageHeader,
        payload: &[u8],
        fds: Vec<PassedFile>,
        plane: &mut dyn Plane,
    ) -> Result<Option<Vec<u8>>, SessionError> {
        if header.reply {
            let (request, flags) = (header.request, 0);
            return Err(MessageError::Direction { request, flags }.into());
        }
        let request = VhostRequest::read(header.request, payload)?;
        // Whatever the message is, none has a use for such a file.
        if !fds.iter().all(PassedFile::is_of_the_kernel) {
            return Err(match request {
                VhostRequest::SetMemTable(_)
                | VhostRequest::AddMemReg(_)
                | VhostRequest::SetLogBase { .. } => MapError::NotMemory.into(),
                _ => SessionError::NotAnEvent { request: header.request },
            });
        }
        // The only thing that is refused without harm: the frontend tells its user.
        let refused = match request {
            VhostRequest::SetMtu(mtu) => mtu > u64::from(self.offer.mtu.unwrap_or(u16::MAX)),
            _ => false,
        };
        let answer = self.answer(request, fds, plane)?;
        let acknowledges = self.protocol.unwrap_or(0) & protocol::REPLY_ACK != 0;
        let answer = answer.or_else(|| {
            (header.need_reply && acknowledges).then(|| u64::from(refused).to_le_bytes().to_vec())
        });
        Ok(answer.map(|payload| reply(header.request, &payload)))
    }

    /// Ends it: the device is gone.
    pub fn end(&mut self, plane: &mut dyn Plane) {
        for vring in &mut self.vrings {
            vring.started = false;
        }
        self.halt(plane);
    }

    /// What answers a request; none if nothing or an acknowledgement does.
    fn answer(
        &mut self,
        request: VhostRequest,
        fds: Vec<PassedFile>,
        plane: &mut dyn Plane,
    ) -> Result<Option<Vec<u8>>, SessionError> {
        let number = request.number();
        let word = |value: u64| Ok(Some(value.to_le_bytes().to_vec()));
        match request {
            VhostRequest::GetFeatures => return word(self.offer.features),
            VhostRequest::GetProtocolFeatures => return word(PROTOCOL),
            VhostRequest::GetQueueNum => return word(u64::from(self.offer.pairs)),
            VhostRequest::GetMaxMemSlots => return word(MAX_SLOTS as u64),
            // An owner that comes back, on this connection or another, is welcome.
            VhostRequest::SetOwner => {}
            // What is logged never fills, and errors go to the counters. The port's own MTU
            // is what is kept.
            VhostRequest::SetLogFd | VhostRequest::SetVringErr(_) | VhostRequest::SetMtu(_) => {}
            VhostRequest::ResetOwner => {
                self.end(plane);
                self.features = 0;
                self.vrings.iter_mut().for_each(|vring| *vring = Vring::default());
            }
            VhostRequest::SetFeatures(bits) => {
                let surplus = bits & !self.offer.features;
                if surplus != 0 {
                    return Err(SessionError::Features { surplus });
                }
                self.features = bits;
                if !self.logs() {
                    // It ends with its migration: the next one brings its own.
                    self.log = None;
                }
                self.run(plane)?;
            }
            VhostRequest::SetProtocolFeatures(bits) => {
                let surplus = bits & !PROTOCOL;
                if surplus != 0 {
                    return Err(SessionError::Features { surplus });
                }
                self.protocol = Some(bits);
            }
            VhostRequest::SetMemTable(table) => {
                let (has, expected) = (fds.len(), table.len());
                if has != expected {
                    return Err(SessionError::Fds { request: number, has, expected });
                }
                let sizes = table.iter().map(|placement| placement.size);
                self.may_map(sizes, self.log_bytes())?;
                let mut memory = GuestMemory::new();
                for (placement, file) in table.into_iter().zip(&fds) {
                    memory.add(Region::map(file, placement)?)?;
                }
                self.replace_memory(memory, plane)?;
            }
            VhostRequest::AddMemReg(placement) => {
                let file = only(number, fds)?;
                // QEMU before 8.1 says each region once a queue.
                if self.memory.regions().any(|known| known.placement() == placement) {
                    return Ok(None);
                }
                if self.memory.regions().len() >= MAX_SLOTS {
                    return Err(SessionError::TooManyRegions);
                }
                self.may_map(self.memory_bytes().chain([placement.size]), self.log_bytes())?;
                let mut memory = self.memory.clone();
                memory.add(Region::map(&file, placement)?)?;
                // The file's size tells nothing about the frontend: no answer but the
                // acknowledgement is due outside of postcopy.
                self.replace_memory(memory, plane)?;
            }
            VhostRequest::RemMemReg(placement) => {
                let mut memory = self.memory.clone();
                // It may be gone already: QEMU before 8.1 says this once a queue, too.
                if memory.remove(placement) {
                    self.replace_memory(memory, plane)?;
                }
            }
            VhostRequest::SetLogBase { size, offset } => {
                let file = only(number, fds)?;
                let placement = RegionAddresses {
                    guest_address: 0,
                    size,
                    user_address: 0,
                    file_offset: offset,
                };
                self.may_map(self.memory_bytes(), size)?;
                self.log = Some(Arc::new(DirtyLog::new(Region::map(&file, placement)?)));
                self.run(plane)?;
                return word(0);
            }
            VhostRequest::SetVringNum(state) => {
                let (index, vring) = self.vring(state.index)?;
                if vring.built.is_some() {
                    return Err(SessionError::Running { index });
                }
                let size = u16::try_from(state.value).unwrap_or(0);
                let kind = "split";
                if size == 0 {
                    let source = SetupError::Size { kind, size };
                    return Err(SessionError::Setup { index, source });
                }
                vring.size = size;
            }
            VhostRequest::SetVringAddr(addresses) => {
                let (_, vring) = self.vring(addresses.index)?;
                vring.addresses = Some(addresses);
                self.run(plane)?;
            }
            VhostRequest::SetVringBase(state) => {
                let (index, vring) = self.vring(state.index)?;
                if vring.built.is_some() {
                    return Err(SessionError::Running { index });
                }
                vring.base = state.value;
            }
            VhostRequest::GetVringBase(state) => {
                let (index, vring) = self.vring(state.index)?;
                vring.started = false;
                self.run(plane)?;
                let vring = &mut self.vrings[index];
                (vring.kick, vring.call) = (None, None);
                let base = [state.index, vring.base];
                return Ok(Some(base.iter().flat_map(|word| word.to_le_bytes()).collect()));
            }
            VhostRequest::SetVringKick(fd) => {
                let kick = event(number, fd, fds)?;
                let negotiated = self.protocol.is_some();
                let (_, vring) = self.vring(u32::from(fd.index))?;
                vring.kick = kick;
                vring.started = true;
                // Without the protocol's features, nobody says that a ring is enabled.
                vring.enabled |= !negotiated;
                self.run(plane)?;
            }
            VhostRequest::SetVringCall(fd) => {
                let call = event(number, fd, fds)?;
                let (_, vring) = self.vring(u32::from(fd.index))?;
                vring.call = call;
                self.run(plane)?;
            }
            // QEMU 7.2 sends it before it sends features: it is kept for later.
            VhostRequest::SetVringEnable(state) => {
                let (_, vring) = self.vring(state.index)?;
                vring.enabled = state.value != 0;
                self.run(plane)?;
            }
        }
        Ok(None)
    }

    fn memory_bytes(&self) -> impl Iterator<Item = u64> {
        self.memory.regions().map(|region| region.placement().size)
    }

    fn log_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.bytes())
    }

    /// An error if regions of these sizes and a log are more than a port may have mapped:
    /// one frontend could take all addresses of this process.
    fn may_map(&self, sizes: impl Iterator<Item = u64>, log: u64) -> Result<(), SessionError> {
        let bytes = sizes.fold(log, u64::saturating_add);
        if bytes > MAX_MAPPED_BYTES { Err(SessionError::TooMuchMemory { bytes }) } else { Ok(()) }
    }

    fn vring(&mut self, index: u32) -> Result<(usize, &mut Vring), SessionError> {
        let count = self.vrings.len();
        let number = usize::try_from(index).unwrap_or(usize::MAX);
        let vring = self.vrings.get_mut(number);
        Ok((number, vring.ok_or(SessionError::NoRing { index, count })?))
    }

    /// Rings keep pointing into the memory that they were built in: they are built
    /// anew in the new one, where they stand.
    fn replace_memory(
        &mut self,
        memory: GuestMemory,
        plane: &mut dyn Plane,
    ) -> Result<(), SessionError> {
        self.halt(plane);
        self.memory = memory;
        self.run(plane)
    }

    /// Stops all rings and keeps where they stand.
    fn halt(&mut self, plane: &mut dyn Plane) {
        if std::mem::take(&mut self.installed) {
            plane.install(None);
        }
        for vring in &mut self.vrings {
            if let Some((_, ring)) = vring.built.take() {
                vring.base = ring.base();
            }
        }
    }

    /// How a ring is to run, if it is.
    fn wanted(&self, vring: &Vring) -> Option<Setup> {
        let addresses = vring.addresses.filter(|_| vring.started && vring.enabled)?;
        // Nothing is agreed on before features are, and memory has to be known.
        if self.memory.regions().len() == 0 || vring.size == 0 || self.features == 0 {
            return None;
        }
        Some(Setup {
            size: vring.size,
            packed: self.features & features::RING_PACKED != 0,
            event_index: self.features & features::EVENT_IDX != 0,
            indirect: self.features & features::INDIRECT != 0,
            descriptors: addresses.descriptors,
            driver: addresses.driver,
            device: addresses.device,
            base: vring.base,
        })
    }

    /// Makes what runs what is wanted to run.
    fn run(&mut self, plane: &mut dyn Plane) -> Result<(), SessionError> {
        let mut wanted: VecDeque<Option<Setup>> =
            self.vrings.iter().map(|vring| self.wanted(vring)).collect();
        if self.installed || wanted.iter().any(Option::is_some) {
            // Rings that end are let go of by all threads before anything is said of
            // where they stand, or built in their place.
            let kept = |vring: &Vring, setup: &Option<Setup>| match (&vring.built, setup) {
                (Some((built, _)), Some(setup)) => *built == Setup { base: built.base, ..*setup },
                (None, _) => true,
                (Some(_), None) => false,
            };
            let ends = self.vrings.iter().zip(&wanted).any(|(vring, setup)| !kept(vring, setup));
            if ends {
                self.halt(plane);
                wanted = self.vrings.iter().map(|vring| self.wanted(vring)).collect();
            }
        }
        if wanted.iter().any(Option::is_some)
            && self.memory.regions().all(|region| region.was_untouched())
        {
            return Err(SessionError::NotShared);
        }
        if let Some(log) = self.log.as_ref().filter(|_| wanted.iter().any(Option::is_some))
            && self.logs()
        {
            let ends = self.memory.regions().map(|region| {
                let place = region.placement();
                place.guest_address + place.size
            });
            let (has, needed) = (log.bytes(), DirtyLog::bytes_for(ends.max().unwrap_or(0)));
            if has < needed {
                return Err(SessionError::ShortLog { has, needed });
            }
        }
        for (index, (vring, setup)) in self.vrings.iter_mut().zip(wanted).enumerate() {
            if let (None, Some(setup)) = (&vring.built, setup) {
                let ring = Ring::new(&self.memory, &setup)
                    .map_err(|source| SessionError::Setup { index, source })?;
                vring.built = Some((setup, Arc::new(ring)));
            }
        }
        if self.vrings.iter().any(|vring| vring.built.is_some()) {
            self.installed = true;
            plane.install(Some(self.device()));
        }
        Ok(())
    }

    /// True if the frontend wants to know what is written.
    fn logs(&self) -> bool {
        self.features & features::LOG_ALL != 0
    }

    fn device(&self) -> VhostDevice {
        let queue = |vring: &Vring| {
            let (_, ring) = vring.built.as_ref()?;
            let (kick, call) = (vring.kick.clone(), vring.call.clone());
            Some(ActiveRing { ring: Arc::clone(ring), kick, call })
        };
        let pairs = self.vrings.chunks_exact(2);
        let pairs =
            pairs.map(|pair| QueuePair { receive: queue(&pair[0]), transmit: queue(&pair[1]) });
        let logs = self.logs();
        VhostDevice {
            memory: self.memory.clone(),
            pairs: pairs.collect(),
            features: self.features,
            log: self.log.clone().filter(|_| logs),
            tap: None,
        }
    }
}

/// The one file descriptor of a message.
fn only(request: u32, mut fds: Vec<PassedFile>) -> Result<PassedFile, SessionError> {
    let has = fds.len();
    fds.pop().filter(|_| has == 1).ok_or(SessionError::Fds { request, has, expected: 1 })
}

/// The event of a message, which says itself whether there is one.
fn event(
    request: u32,
    fd: RingFd,
    fds: Vec<PassedFile>,
) -> Result<Option<Arc<OwnedFd>>, SessionError> {
    if fd.without {
        let has = fds.len();
        return if has == 0 {
            Ok(None)
        } else {
            Err(SessionError::Fds { request, has, expected: 0 })
        };
    }
    let event = only(request, fds)?.into_event();
    event.map(|event| Some(Arc::new(event))).ok_or(SessionError::NotAnEvent { request })
}
