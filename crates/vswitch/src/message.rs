//! vhost-user messages: what each is called, holds, and looks like in bytes. Both
//! ends use it: the switch reads requests and writes replies, the traffic
//! generator the other way round.
//!
//! Pure: what a message does stands in [`crate::session`].
//!
//! Source: QEMU, `docs/interop/vhost-user.rst`.

use crate::memory::RegionAddresses;

/// Bytes of a header: request, flags, size of what follows.
pub const HEADER: usize = 12;
/// The longest message that anything here sends or takes, without its header.
pub const MAX_PAYLOAD: usize = 1024;
/// File descriptors that one message may carry.
pub const MAX_FDS: usize = 8;
/// Memory regions in one table, or one at a time.
pub const MAX_REGIONS: usize = 8;
/// Regions that can be added one at a time.
pub const MAX_SLOTS: usize = 32;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Bits of `GET_FEATURES` and `SET_FEATURES`.
pub mod features {
    /// Checksums may be left to the device (it passes them on or computes them).
    pub const CSUM: u64 = 1 << 0;
    /// The driver takes frames whose checksum is still to be computed.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// The device says how long frames may be.
    pub const MTU: u64 = 1 << 3;
    /// The driver takes TCP segments larger than the MTU, over IPv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The same over IPv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The driver takes large TCP segments with ECN.
    pub const GUEST_ECN: u64 = 1 << 9;
    /// The device takes TCP segments larger than the MTU, over IPv4.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The same over IPv6.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// The device takes large TCP segments with ECN.
    pub const HOST_ECN: u64 = 1 << 13;
    /// A frame may be spread over several receive buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// The driver tells the network about itself after migration.
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    /// Several queues.
    pub const MQ: u64 = 1 << 22;
    /// The backend marks the pages that it writes (vhost's own bit).
    pub const LOG_ALL: u64 = 1 << 26;
    /// Header and data in one descriptor or several, as the driver likes.
    pub const ANY_LAYOUT: u64 = 1 << 27;
    /// Descriptors may point to tables.
    pub const INDIRECT: u64 = 1 << 28;
    /// Events and kicks name a position.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// The protocol's own features can be asked for (vhost-user's own bit).
    pub const PROTOCOL: u64 = 1 << 30;
    /// Virtio 1.0 and later.
    pub const VERSION_1: u64 = 1 << 32;
    /// Packed rings.
    pub const RING_PACKED: u64 = 1 << 34;
    /// Buffers are used in the order in which they were made available.
    pub const IN_ORDER: u64 = 1 << 35;
    /// The driver takes UDP segments larger than the MTU, over IPv4.
    pub const GUEST_USO4: u64 = 1 << 54;
    /// The same over IPv6.
    pub const GUEST_USO6: u64 = 1 << 55;
    /// The device takes UDP segments larger than the MTU.
    pub const HOST_USO: u64 = 1 << 56;
}

/// Bits of `GET_PROTOCOL_FEATURES`.
pub mod protocol {
    /// Several queues: `GET_QUEUE_NUM`.
    pub const MQ: u64 = 1 << 0;
    /// The log of written pages comes as a file.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// Any message may ask for an answer.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// The frontend says how long frames may be.
    pub const NET_MTU: u64 = 1 << 4;
    /// Regions come and go one at a time.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
}

/// Where a ring lies: addresses in the frontend's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    /// The ring's number.
    pub index: u32,
    /// Bit 0: writes of used entries are logged.
    pub flags: u32,
    /// Descriptors.
    pub descriptors: u64,
    /// Used ring, or the device's event area.
    pub device: u64,
    /// Available ring, or the driver's event area.
    pub driver: u64,
    /// Where its used entries are logged.
    pub log: u64,
}

/// A ring's number and a value of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingState {
    /// The ring's number.
    pub index: u32,
    /// Its size, position, or whether it is enabled.
    pub value: u32,
}

/// A ring's number, and whether a file descriptor comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingFd {
    /// The ring's number.
    pub index: u8,
    /// None comes: poll, or do not tell.
    pub without: bool,
}

/// What a frontend asks of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VhostRequest {
    /// What can you do?
    GetFeatures,
    /// This is what we use.
    SetFeatures(u64),
    /// The connection's owner is here.
    SetOwner,
    /// Ends all rings (old).
    ResetOwner,
    /// All memory, with a file each.
    SetMemTable(Vec<RegionAddresses>),
    /// The log of written pages: size and offset, with its file.
    SetLogBase {
        /// Bytes.
        size: u64,
        /// Where it begins in the file.
        offset: u64,
    },
    /// An event for a full log, which is never.
    SetLogFd,
    /// Entries of a ring.
    SetVringNum(RingState),
    /// Where a ring lies.
    SetVringAddr(RingAddresses),
    /// Where to begin.
    SetVringBase(RingState),
    /// Stop, and say where.
    GetVringBase(RingState),
    /// The event with which the driver tells of new entries; starts the ring.
    SetVringKick(RingFd),
    /// The event with which to tell the driver.
    SetVringCall(RingFd),
    /// The event with which to tell of errors.
    SetVringErr(RingFd),
    /// What of the protocol do you know?
    GetProtocolFeatures,
    /// This is what we use of it.
    SetProtocolFeatures(u64),
    /// How many queues?
    GetQueueNum,
    /// A ring is to be used, or not.
    SetVringEnable(RingState),
    /// Frames have so many bytes behind Ethernet's header at most.
    SetMtu(u64),
    /// How many regions one at a time?
    GetMaxMemSlots,
    /// One more region, with its file.
    AddMemReg(RegionAddresses),
    /// One region less.
    RemMemReg(RegionAddresses),
}

/// Error type for [`MessageHeader::read`] and [`VhostRequest::read`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The flags name another version of the protocol.
    #[error("Message {request} has the flags {flags:#x}: only version 1 is known")]
    Version {
        /// The request's number.
        request: u32,
        /// Flags.
        flags: u32,
    },
    /// A reply where a request has to be, or the other way round.
    #[error("Message {request} has the flags {flags:#x}, those of the other direction")]
    Direction {
        /// The request's number.
        request: u32,
        /// Flags.
        flags: u32,
    },
    /// Longer than any message.
    #[error("Message {request} is {size} bytes long: the longest has {MAX_PAYLOAD}")]
    TooLong {
        /// The request's number.
        request: u32,
        /// Bytes.
        size: u32,
    },
    /// Not as long as it has to be.
    #[error("Message {request} has {size} bytes, not {expected}")]
    Size {
        /// The request's number.
        request: u32,
        /// Bytes that it has.
        size: usize,
        /// Bytes that it has to have.
        expected: usize,
    },
    /// A number that this backend has not offered to understand.
    #[error("Message {request} is not one that was offered")]
    Unknown {
        /// The request's number.
        request: u32,
    },
    /// More regions than a table holds.
    #[error("A table of {count} memory regions: 1 to {MAX_REGIONS} are possible")]
    Regions {
        /// How many.
        count: u32,
    },
    /// Bits of a ring's number that mean nothing.
    #[error("Ring {value:#x} is no ring's number")]
    RingNumber {
        /// The number.
        value: u64,
    },
}

/// A message's first 12 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// The request's number.
    pub request: u32,
    /// The frontend waits for an answer.
    pub need_reply: bool,
    /// It is an answer.
    pub reply: bool,
    /// Bytes that follow.
    pub size: u32,
}

impl MessageHeader {
    /// From bytes.
    ///
    /// # Errors
    /// [`MessageError::Version`], [`MessageError::TooLong`].
    pub fn read(bytes: [u8; HEADER]) -> Result<Self, MessageError> {
        let word =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (request, flags, size) = (word(0), word(4), word(8));
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version { request, flags });
        }
        if size as usize > MAX_PAYLOAD {
            return Err(MessageError::TooLong { request, size });
        }
        Ok(Self { request, need_reply: flags & NEED_REPLY != 0, reply: flags & REPLY != 0, size })
    }

    /// The bytes of a message with this header and `payload`.
    #[must_use]
    pub fn write(self, payload: &[u8]) -> Vec<u8> {
        let mut flags = VERSION;
        flags |= if self.reply { REPLY } else { 0 };
        flags |= if self.need_reply { NEED_REPLY } else { 0 };
        let size = payload.len() as u32;
        let mut bytes: Vec<u8> =
            [self.request, flags, size].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(payload);
        bytes
    }
}

/// The bytes of an answer to the request of this number.
#[must_use]
pub fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    MessageHeader { request, need_reply: false, reply: true, size: 0 }.write(payload)
}

/// Reads words off a payload.
struct PayloadReader<'b>(&'b [u8]);

impl PayloadReader<'_> {
    fn u32(&mut self) -> u32 {
        let (word, rest) = self.0.split_at(4);
        self.0 = rest;
        u32::from_le_bytes(word.try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    fn state(&mut self) -> RingState {
        RingState { index: self.u32(), value: self.u32() }
    }

    fn placement(&mut self) -> RegionAddresses {
        RegionAddresses {
            guest_address: self.u64(),
            size: self.u64(),
            user_address: self.u64(),
            file_offset: self.u64(),
        }
    }
}

const REGION: usize = 32;
const WITHOUT_FD: u64 = 1 << 8;

impl VhostRequest {
    /// From a request's number and what follows the header.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn read(request: u32, payload: &[u8]) -> Result<Self, MessageError> {
        let size = payload.len();
        let sized = |expected: usize| {
            let wrong = MessageError::Size { request, size, expected };
            if size == expected { Ok(PayloadReader(payload)) } else { Err(wrong) }
        };
        let ring_fd = || {
            let value = sized(8)?.u64();
            let wrong = MessageError::RingNumber { value };
            if value & !(WITHOUT_FD | 0xff) != 0 {
                return Err(wrong);
            }
            Ok(RingFd { index: value as u8, without: value & WITHOUT_FD != 0 })
        };
        Ok(match request {
            1 => sized(0).map(|_| Self::GetFeatures)?,
            2 => Self::SetFeatures(sized(8)?.u64()),
            3 => sized(0).map(|_| Self::SetOwner)?,
            4 => sized(0).map(|_| Self::ResetOwner)?,
            5 => {
                if size < 8 {
                    return Err(MessageError::Size { request, size, expected: 8 });
                }
                let count = PayloadReader(payload).u32();
                if count == 0 || count as usize > MAX_REGIONS {
                    return Err(MessageError::Regions { count });
                }
                // QEMU sends room for the regions that there are, others for all.
                let whole = 8 + MAX_REGIONS * REGION;
                let exact = 8 + count as usize * REGION;
                let mut words = sized(if size == whole { whole } else { exact })?;
                words.u64();
                Self::SetMemTable((0..count).map(|_| words.placement()).collect())
            }
            6 => {
                let mut words = sized(16)?;
                Self::SetLogBase { size: words.u64(), offset: words.u64() }
            }
            7 => sized(0).map(|_| Self::SetLogFd)?,
            8 => Self::SetVringNum(sized(8)?.state()),
            9 => {
                let mut words = sized(40)?;
                Self::SetVringAddr(RingAddresses {
                    index: words.u32(),
                    flags: words.u32(),
                    descriptors: words.u64(),
                    device: words.u64(),
                    driver: words.u64(),
                    log: words.u64(),
                })
            }
            10 => Self::SetVringBase(sized(8)?.state()),
            11 => Self::GetVringBase(sized(8)?.state()),
            12 => Self::SetVringKick(ring_fd()?),
            13 => Self::SetVringCall(ring_fd()?),
            14 => Self::SetVringErr(ring_fd()?),
            15 => sized(0).map(|_| Self::GetProtocolFeatures)?,
            16 => Self::SetProtocolFeatures(sized(8)?.u64()),
            17 => sized(0).map(|_| Self::GetQueueNum)?,
            18 => Self::SetVringEnable(sized(8)?.state()),
            20 => Self::SetMtu(sized(8)?.u64()),
            36 => sized(0).map(|_| Self::GetMaxMemSlots)?,
            37 | 38 => {
                let mut words = sized(8 + REGION)?;
                words.u64();
                let placement = words.placement();
                if request == 37 { Self::AddMemReg(placement) } else { Self::RemMemReg(placement) }
            }
            _ => return Err(MessageError::Unknown { request }),
        })
    }

    /// The request's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::GetFeatures => 1,
            Self::SetFeatures(_) => 2,
            Self::SetOwner => 3,
            Self::ResetOwner => 4,
            Self::SetMemTable(_) => 5,
            Self::SetLogBase { .. } => 6,
            Self::SetLogFd => 7,
            Self::SetVringNum(_) => 8,
            Self::SetVringAddr(_) => 9,
            Self::SetVringBase(_) => 10,
            Self::GetVringBase(_) => 11,
            Self::SetVringKick(_) => 12,
            Self::SetVringCall(_) => 13,
            Self::SetVringErr(_) => 14,
            Self::GetProtocolFeatures => 15,
            Self::SetProtocolFeatures(_) => 16,
            Self::GetQueueNum => 17,
            Self::SetVringEnable(_) => 18,
            Self::SetMtu(_) => 20,
            Self::GetMaxMemSlots => 36,
            Self::AddMemReg(_) => 37,
            Self::RemMemReg(_) => 38,
        }
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let place = |region: &RegionAddresses| {
            [region.guest_address, region.size, region.user_address, region.file_offset]
        };
        match self {
            Self::GetFeatures
            | Self::SetOwner
            | Self::ResetOwner
            | Self::SetLogFd
            | Self::GetProtocolFeatures
            | Self::GetQueueNum
            | Self::GetMaxMemSlots => Vec::new(),
            Self::SetFeatures(word) | Self::SetProtocolFeatures(word) | Self::SetMtu(word) => {
                words(&[*word])
            }
            Self::SetMemTable(regions) => {
                let mut all = vec![regions.len() as u64];
                all.extend(regions.iter().flat_map(place));
                words(&all)
            }
            Self::SetLogBase { size, offset } => words(&[*size, *offset]),
            Self::SetVringNum(state)
            | Self::SetVringBase(state)
            | Self::GetVringBase(state)
            | Self::SetVringEnable(state) => words(&[pair(state.index, state.value)]),
            Self::SetVringAddr(ring) => words(&[
                pair(ring.index, ring.flags),
                ring.descriptors,
                ring.device,
                ring.driver,
                ring.log,
            ]),
            Self::SetVringKick(fd) | Self::SetVringCall(fd) | Self::SetVringErr(fd) => {
                words(&[u64::from(fd.index) | if fd.without { WITHOUT_FD } else { 0 }])
            }
            Self::AddMemReg(region) | Self::RemMemReg(region) => {
                let mut all = vec![0];
                all.extend(place(region));
                words(&all)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn placement() -> impl Strategy<Value = RegionAddresses> {
        any::<[u64; 4]>().prop_map(|[guest_address, size, user_address, file_offset]| {
            RegionAddresses { guest_address, size, user_address, file_offset }
        })
    }

    fn request() -> impl Strategy<Value = VhostRequest> {
        let state = || any::<[u32; 2]>().prop_map(|[index, value]| RingState { index, value });
        let fd = || any::<(u8, bool)>().prop_map(|(index, without)| RingFd { index, without });
        prop_oneof![
            Just(VhostRequest::GetFeatures),
            Just(VhostRequest::SetOwner),
            Just(VhostRequest::ResetOwner),
            Just(VhostRequest::SetLogFd),
            Just(VhostRequest::GetProtocolFeatures),
            Just(VhostRequest::GetQueueNum),
            Just(VhostRequest::GetMaxMemSlots),
            any::<u64>().prop_map(VhostRequest::SetFeatures),
            any::<u64>().prop_map(VhostRequest::SetProtocolFeatures),
            any::<u64>().prop_map(VhostRequest::SetMtu),
            prop::collection::vec(placement(), 1..=MAX_REGIONS).prop_map(VhostRequest::SetMemTable),
            any::<[u64; 2]>().prop_map(|[size, offset]| VhostRequest::SetLogBase { size, offset }),
            state().prop_map(VhostRequest::SetVringNum),
            state().prop_map(VhostRequest::SetVringBase),
            state().prop_map(VhostRequest::GetVringBase),
            state().prop_map(VhostRequest::SetVringEnable),
            any::<([u32; 2], [u64; 4])>().prop_map(|([index, flags], [a, b, c, d])| {
                VhostRequest::SetVringAddr(RingAddresses {
                    index,
                    flags,
                    descriptors: a,
                    device: b,
                    driver: c,
                    log: d,
                })
            }),
            fd().prop_map(VhostRequest::SetVringKick),
            fd().prop_map(VhostRequest::SetVringCall),
            fd().prop_map(VhostRequest::SetVringErr),
            placement().prop_map(VhostRequest::AddMemReg),
            placement().prop_map(VhostRequest::RemMemReg),
        ]
    }

    proptest! {
        #[test]
        fn what_one_end_writes_the_other_reads(request in request(), need_reply: bool) {
            let header = MessageHeader { request: request.number(), need_reply, reply: false, size: 0 };
            let bytes = header.write(&request.payload());
            let read = MessageHeader::read(bytes[..HEADER].try_into().unwrap()).unwrap();
            prop_assert_eq!(read.size as usize, bytes.len() - HEADER);
            prop_assert_eq!((read.need_reply, read.reply), (need_reply, false));
            prop_assert_eq!(VhostRequest::read(read.request, &bytes[HEADER..]).unwrap(), request);
        }

        #[test]
        fn no_bytes_are_read_as_what_they_are_not(number in 0..50_u32, bytes: Vec<u8>) {
            if let Ok(request) = VhostRequest::read(number, &bytes) {
                prop_assert_eq!(request.number(), number);
                // A table may have room behind its regions.
                prop_assert!(bytes.len() >= request.payload().len());
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let header = |words: [u32; 3]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            MessageHeader::read(bytes.try_into().unwrap())
        };
        for (found, expected) in [
            (
                header([1, 0, 0]).unwrap_err(),
                "Message 1 has the flags 0x0: only version 1 is known",
            ),
            (
                header([5, 1, 1025]).unwrap_err(),
                "Message 5 is 1025 bytes long: the longest has 1024",
            ),
            (VhostRequest::read(2, &[0; 7]).unwrap_err(), "Message 2 has 7 bytes, not 8"),
            (VhostRequest::read(19, &[]).unwrap_err(), "Message 19 is not one that was offered"),
            (
                VhostRequest::read(5, &[9, 0, 0, 0, 0, 0, 0, 0]).unwrap_err(),
                "A table of 9 memory regions: 1 to 8 are possible",
            ),
            (
                VhostRequest::read(5, &[0; 8]).unwrap_err(),
                "A table of 0 memory regions: 1 to 8 are possible",
            ),
            (
                VhostRequest::read(12, &[0, 2, 0, 0, 0, 0, 0, 0]).unwrap_err(),
                "Ring 0x200 is no ring's number",
            ),
        ] {
            assert_eq!(found.to_string(), expected);
        }
    }
}
