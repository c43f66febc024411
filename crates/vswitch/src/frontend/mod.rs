//! The other end: a vhost-user frontend with a driver's rings, in memory of its own.
//!
//! It does what a VMM and its guest do, without either: tests and measurements use
//! it against this switch and any other. [`Traffic`] sends and checks frames over
//! several of them from one thread.

mod driver;
mod payload;
mod traffic;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::channel::{ChannelError, VhostChannel};
use crate::memory::{GuestMemory, MapError, Region};
use crate::message::{
    MessageHeader, RingAddresses, RingFd, RingState, VhostRequest, features, protocol,
};

pub use driver::{DescriptorLayout, DriverRing};
pub use traffic::{FrameBytes, Touch, Traffic, TrafficCounts, TrafficFlow, TrafficPlan};

/// How long a backend may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where its memory begins, in guest and user addresses.
const BASE: u64 = 1 << 32;

/// The options of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontendOptions {
    /// Queues.
    pub pairs: u16,
    /// Entries of each ring.
    pub ring_size: u16,
    /// Bytes of each buffer.
    pub buffer: u32,
    /// Features that it uses if the backend has them.
    pub features: u64,
    /// How it lays out what it sends.
    pub shape: DescriptorLayout,
    /// It wants events for what was used.
    pub interrupts: bool,
}

impl Default for FrontendOptions {
    fn default() -> Self {
        Self {
            pairs: 1,
            ring_size: 256,
            // As Linux's driver gives them at an MTU of 1500. Powers of two would put all frames
            // into a few sets of each cache, for whoever sends, switches and receives.
            buffer: 1536,
            features: features::VERSION_1
                | features::MRG_RXBUF
                | features::INDIRECT
                | features::PROTOCOL,
            shape: DescriptorLayout::Single,
            interrupts: false,
        }
    }
}

/// Error type for [`Frontend`].
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// Nobody listens.
    #[error("Cannot connect to {path}")]
    Connect {
        /// The socket.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The connection failed.
    #[error("The backend is gone")]
    Channel(#[from] ChannelError),
    /// It does not answer.
    #[error("The backend did not answer message {request} within {} s", PATIENCE.as_secs())]
    Silent {
        /// The request's number.
        request: u32,
    },
    /// It answers something else.
    #[error("The backend answered message {request} with message {got} of {bytes} bytes")]
    Answer {
        /// The request's number.
        request: u32,
        /// The answer's.
        got: u32,
        /// Its length.
        bytes: usize,
    },
    /// It lacks what is needed.
    #[error("The backend lacks {0}")]
    Lacks(&'static str),
    /// Memory or events can't be made.
    #[error("Cannot make the frontend's memory")]
    Memory(#[from] MapError),
    /// Events can't be made.
    #[error("Cannot make an event")]
    Event(#[source] io::Error),
}

/// The two rings of a queue, as the driver has them.
#[derive(Debug)]
pub struct DriverPair {
    /// It receives with this one.
    pub receive: DriverRing,
    /// It sends with this one.
    pub transmit: DriverRing,
}

/// A connected frontend.
#[derive(Debug)]
pub struct Frontend {
    channel: VhostChannel,
    options: FrontendOptions,
    agreed: u64,
    memory: GuestMemory,
    file: File,
    pairs: Vec<DriverPair>,
    /// By ring: where a backend begins, as the last one said that was asked. A VMM knows no
    /// better of one that died.
    bases: Vec<u32>,
}

impl Frontend {
    /// Connects to a backend that listens, and starts all rings.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn connect(path: &Path, options: FrontendOptions) -> Result<Self, FrontendError> {
        let stream = UnixStream::connect(path).map_err(|source| {
            let path = path.display().to_string();
            FrontendError::Connect { path, source }
        })?;
        Self::over(stream, options)
    }

    /// Starts all rings over a connection.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn over(stream: UnixStream, options: FrontendOptions) -> Result<Self, FrontendError> {
        let mut frontend = Self::new(stream, options)?;
        frontend.negotiate()?;
        frontend.share_memory()?;
        frontend.start()?;
        Ok(frontend)
    }

    /// Connects anew to a backend that was started again, with the rings and buffers
    /// as they are, as a VMM does for a guest that knows nothing of it.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn reconnect(&mut self, path: &Path) -> Result<(), FrontendError> {
        let stream = UnixStream::connect(path).map_err(|source| {
            let path = path.display().to_string();
            FrontendError::Connect { path, source }
        })?;
        self.channel = VhostChannel::new(stream).map_err(FrontendError::Event)?;
        self.agree()?;
        self.share_memory()?;
        self.start()
    }

    /// A frontend with its memory laid out, that has said nothing yet.
    ///
    /// # Errors
    /// [`FrontendError::Memory`], [`FrontendError::Event`].
    pub fn new(stream: UnixStream, options: FrontendOptions) -> Result<Self, FrontendError> {
        let channel = VhostChannel::new(stream).map_err(FrontendError::Event)?;
        let ring_bytes = driver::bytes(options.ring_size, options.buffer);
        let count = 2 * u64::from(options.pairs);
        let (region, file) = Region::create(ring_bytes * count, BASE)?;
        let mut memory = GuestMemory::new();
        memory.add(region)?;
        let (pairs, bases) = (Vec::new(), Vec::new());
        let mut frontend = Self { channel, options, agreed: 0, memory, file, pairs, bases };
        frontend.agreed = options.features;
        frontend.lay_out()?;
        Ok(frontend)
    }

    /// Lays the rings out anew, empty, as the agreed features ask for.
    fn lay_out(&mut self) -> Result<(), FrontendError> {
        let ring_bytes = driver::bytes(self.options.ring_size, self.options.buffer);
        let ring = |number: u64, shape: DescriptorLayout| {
            let event = || {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                eventfd(0, flags).map_err(|error| FrontendError::Event(error.into()))
            };
            let begin = BASE + number * ring_bytes;
            Ok::<_, FrontendError>(DriverRing::new(
                &self.memory,
                begin,
                &self.options,
                self.agreed,
                shape,
                [event()?, event()?],
            ))
        };
        let mut pairs = Vec::new();
        for pair in 0..u64::from(self.options.pairs) {
            pairs.push(DriverPair {
                receive: ring(2 * pair, DescriptorLayout::Receive)?,
                transmit: ring(2 * pair + 1, self.options.shape)?,
            });
        }
        self.pairs = pairs;
        self.bases = (0..self.rings()).map(|index| self.ring(index).base()).collect();
        Ok(())
    }

    /// Agrees on features, and lays the rings out for them.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn negotiate(&mut self) -> Result<(), FrontendError> {
        self.agree()?;
        self.lay_out()
    }

    fn agree(&mut self) -> Result<(), FrontendError> {
        self.send(&VhostRequest::SetOwner, &[])?;
        let offered = self.ask(&VhostRequest::GetFeatures)?;
        self.agreed = offered & self.options.features;
        if self.options.pairs > 1 {
            self.agreed |= offered & features::MQ;
        }
        for (bit, what) in
            [(features::VERSION_1, "Virtio 1.0"), (features::RING_PACKED, "packed rings")]
        {
            if self.options.features & bit != 0 && self.agreed & bit == 0 {
                return Err(FrontendError::Lacks(what));
            }
        }
        if self.agreed & features::PROTOCOL != 0 {
            let known = protocol::MQ;
            let offered = self.ask(&VhostRequest::GetProtocolFeatures)?;
            self.send(&VhostRequest::SetProtocolFeatures(offered & known), &[])?;
            if offered & protocol::MQ != 0 {
                let most = self.ask(&VhostRequest::GetQueueNum)?;
                if most < u64::from(self.options.pairs) {
                    return Err(FrontendError::Lacks("as many queues"));
                }
            }
        }
        self.send(&VhostRequest::SetFeatures(self.agreed), &[])
    }

    /// Gives the backend its memory.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn share_memory(&mut self) -> Result<(), FrontendError> {
        let table = self.memory.regions().map(|region| region.placement()).collect();
        self.send(&VhostRequest::SetMemTable(table), &[self.file.as_fd()])
    }

    /// Starts all rings.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn start(&mut self) -> Result<(), FrontendError> {
        for index in 0..2 * u32::from(self.options.pairs) {
            for request in self.setup_of(index) {
                self.send(&request, &[])?;
            }
            let index = u8::try_from(index).expect("few rings");
            let fd = RingFd { index, without: false };
            let (kick, call) = self.ring(usize::from(index)).events();
            let (kick, call) = (kick.as_fd(), call.as_fd());
            self.send(&VhostRequest::SetVringCall(fd), &[call])?;
            self.send(&VhostRequest::SetVringKick(fd), &[kick])?;
        }
        self.enable(true)
    }

    /// Enables or disables all rings.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn enable(&mut self, enabled: bool) -> Result<(), FrontendError> {
        if self.agreed & features::PROTOCOL != 0 {
            for index in 0..2 * u32::from(self.options.pairs) {
                let state = RingState { index, value: u32::from(enabled) };
                self.send(&VhostRequest::SetVringEnable(state), &[])?;
            }
        }
        // Once this is answered, all before is done.
        self.ask(&VhostRequest::GetFeatures).map(drop)
    }

    /// The messages that say where a ring is.
    #[must_use]
    pub fn setup_of(&self, index: u32) -> [VhostRequest; 3] {
        let ring = self.ring(index as usize);
        let [descriptors, driver, device] = ring.addresses();
        let addresses = RingAddresses { index, flags: 0, descriptors, device, driver, log: 0 };
        [
            VhostRequest::SetVringNum(RingState {
                index,
                value: u32::from(self.options.ring_size),
            }),
            VhostRequest::SetVringBase(RingState { index, value: self.bases[index as usize] }),
            VhostRequest::SetVringAddr(addresses),
        ]
    }

    /// Stops a ring; where it stood.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn stop_ring(&mut self, index: u32) -> Result<u32, FrontendError> {
        let state = RingState { index, value: 0 };
        let answer = self.ask(&VhostRequest::GetVringBase(state))?;
        let base = (answer >> 32) as u32;
        self.bases[index as usize] = base;
        Ok(base)
    }

    fn rings(&self) -> usize {
        2 * usize::from(self.options.pairs)
    }

    /// The ring of this number, as messages count them.
    #[must_use]
    pub fn ring(&self, index: usize) -> &DriverRing {
        let pair = &self.pairs[index / 2];
        if index.is_multiple_of(2) { &pair.receive } else { &pair.transmit }
    }

    /// Its queues.
    pub fn pairs(&mut self) -> &mut [DriverPair] {
        &mut self.pairs
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// The file of its memory.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Features that both agreed on.
    #[must_use]
    pub fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Its connection, to say other things over.
    #[must_use]
    pub fn channel(&self) -> &VhostChannel {
        &self.channel
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn send(
        &self,
        request: &VhostRequest,
        fds: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(), FrontendError> {
        let number = request.number();
        let header = MessageHeader { request: number, need_reply: false, reply: false, size: 0 };
        self.channel.send(&header.write(&request.payload()), fds)?;
        Ok(())
    }

    /// Sends a request that asks for an answer where it has none of its own.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn send_for_reply(&self, request: &VhostRequest) -> Result<(), FrontendError> {
        let number = request.number();
        let header = MessageHeader { request: number, need_reply: true, reply: false, size: 0 };
        self.channel.send(&header.write(&request.payload()), &[])?;
        Ok(())
    }

    /// Sends a request and waits for its answer's word.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn ask(&mut self, request: &VhostRequest) -> Result<u64, FrontendError> {
        self.send(request, &[])?;
        self.answer_to(request.number())
    }

    /// Waits for the answer to a request that was sent.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn answer_to(&mut self, request: u32) -> Result<u64, FrontendError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(message) = self.channel.receive()? {
                let bytes = message.payload.len();
                let got = message.header.request;
                let word = <[u8; 8]>::try_from(message.payload.as_slice());
                return match word {
                    Ok(word) if got == request && message.header.reply => {
                        Ok(u64::from_le_bytes(word))
                    }
                    _ => Err(FrontendError::Answer { request, got, bytes }),
                };
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(FrontendError::Silent { request });
            }
            let left = Timespec::try_from(left).expect("a short time");
            // An interrupted wait is a short one.
            let _ = poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&left));
        }
    }
}
