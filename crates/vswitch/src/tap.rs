//! Ports to the host's network: a tap interface, frame by frame, with the Virtio header
//! before each, so that checksums and large segments pass as between guests.
//!
//! An interface that is made here goes with the process. One that was there before
//! (`ip tuntap add`) stays as it was.
//!
//! Source: Linux `Documentation/networking/tuntap.rst`, `include/uapi/linux/if_tun.h`.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::counters::DropReason;
use crate::memory::{GuestMemory, Region, tun};
use crate::message::features;
use crate::ring::Chains;

/// Frames that are read at once, and the room for each.
const SLOTS: usize = 32;
const SLOT: usize = 68 << 10;
/// Bytes of the Virtio header before each frame, with `num_buffers`.
const HEADER: i32 = 12;

/// What every kernel's tap does: all offloads both ways, but UDP's segments.
const FEATURES: u64 = features::VERSION_1
    | features::MRG_RXBUF
    | features::CSUM
    | features::HOST_TSO4
    | features::HOST_TSO6
    | features::HOST_ECN
    | features::GUEST_CSUM
    | features::GUEST_TSO4
    | features::GUEST_TSO6
    | features::GUEST_ECN;
/// What Linux 6.2 and later do, too.
const LATER: u64 = features::HOST_USO | features::GUEST_USO4 | features::GUEST_USO6;

/// Error type for opening a tap interface.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// There is no such device.
    #[error("Cannot open /dev/net/tun (modprobe tun makes it)")]
    Open(#[source] io::Error),
    /// The interface can't be had.
    #[error("{}", attach_words(interface, source))]
    Attach {
        /// Its name.
        interface: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It can't be used as it is needed.
    #[error("The tap interface {interface} cannot be set up: {what}")]
    SetUp {
        /// Its name.
        interface: String,
        /// What was tried.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The bridge does not take it.
    #[error("{}", bridge_words(interface, bridge, source))]
    Bridge {
        /// Its name.
        interface: String,
        /// The bridge's.
        bridge: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was there before, and a bridge is given.
    #[error(
        "The tap interface {interface} was there before: put it into the bridge yourself (ip \
             link set {interface} master {bridge} up), and leave bridge= out"
    )]
    NotOurs {
        /// Its name.
        interface: String,
        /// The bridge's.
        bridge: String,
    },
    /// There is no room for its frames.
    #[error("Cannot make room for the frames of a tap interface")]
    Memory(#[from] crate::memory::MapError),
}

fn bridge_words(interface: &str, bridge: &str, source: &io::Error) -> String {
    let begin = format!("The tap interface {interface} cannot join the bridge {bridge}");
    match source.raw_os_error() {
        Some(libc::ENODEV) => format!(
            "{begin}: there is none, make it first (ip link add {bridge} type bridge; ip link set \
             {bridge} up)"
        ),
        Some(libc::EOPNOTSUPP) => format!("{begin}: that is an interface, but no bridge"),
        _ => begin,
    }
}

fn attach_words(interface: &str, source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EPERM) => format!(
            "The tap interface {interface} cannot be made without CAP_NET_ADMIN: make it first \
             (ip tuntap add dev {interface} mode tap vnet_hdr user $USER; ip link set {interface} up)"
        ),
        Some(libc::EBUSY) => {
            format!("The tap interface {interface} is in use by another process")
        }
        Some(libc::EINVAL) => format!(
            "{interface} is no tap interface with one queue and vnet_hdr: choose another name"
        ),
        _ => format!("Cannot have the tap interface {interface}"),
    }
}

/// A tap interface that is open.
#[derive(Debug)]
pub struct Tap {
    file: OwnedFd,
    /// Room for what is read.
    memory: GuestMemory,
    features: u64,
    /// It was taken away.
    gone: AtomicBool,
}

/// Opens an interface, or makes it and puts it into `bridge`.
pub(crate) fn open(
    interface: &str,
    bridge: Option<&str>,
    mtu: Option<u16>,
) -> Result<Tap, TapError> {
    let own = || interface.to_owned();
    let there = std::path::Path::new("/sys/class/net").join(interface).exists();
    if let (true, Some(bridge)) = (there, bridge) {
        return Err(TapError::NotOurs { interface: own(), bridge: bridge.to_owned() });
    }
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let file = OwnedFd::from(file.map_err(TapError::Open)?);
    rustix::io::ioctl_fionbio(&file, true).map_err(|error| TapError::Open(error.into()))?;
    tun::attach(file.as_fd(), interface)
        .map_err(|source| TapError::Attach { interface: own(), source })?;
    let set_up = |what| move |source| TapError::SetUp { interface: own(), what, source };
    tun::set_header(file.as_fd(), HEADER).map_err(set_up("its header's length"))?;
    let later = match tun::set_offloads(file.as_fd(), true) {
        Ok(()) => LATER,
        Err(_) => {
            tun::set_offloads(file.as_fd(), false).map_err(set_up("its offloads"))?;
            0
        }
    };
    if !there {
        if let Some(mtu) = mtu {
            tun::set_mtu(interface, mtu).map_err(set_up("its MTU"))?;
        }
        if let Some(bridge) = bridge {
            tun::join_bridge(interface, bridge).map_err(|source| TapError::Bridge {
                interface: own(),
                bridge: bridge.to_owned(),
                source,
            })?;
        }
        tun::set_up(interface).map_err(set_up("switching it on"))?;
    }
    let mut memory = GuestMemory::new();
    let (region, _) = Region::create((SLOTS * SLOT) as u64, 0)?;
    memory.add(region)?;
    Ok(Tap { file, memory, features: FEATURES | later, gone: AtomicBool::new(false) })
}

impl Tap {
    /// Where frames are read to.
    #[must_use]
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// What the kernel does, in the words of a driver.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Reads up to `count` frames, with their headers, into a tap's own memory.
    pub(crate) fn fetch<'m>(&self, memory: &'m GuestMemory, count: usize, chains: &mut Chains<'m>) {
        if self.is_gone() {
            return;
        }
        for slot in 0..count.min(SLOTS) {
            let Some(room) = memory.at((slot * SLOT) as u64, SLOT) else { return };
            match room.read_from(self.file.as_fd()) {
                Ok(0) => return,
                Ok(bytes) => chains.push_own(room.first(bytes)),
                Err(error) => {
                    if error.raw_os_error() == Some(libc::EBADFD) {
                        self.gone.store(true, Ordering::Relaxed);
                    }
                    return;
                }
            }
        }
    }

    /// Gives the host a frame behind its header.
    pub(crate) fn send(&self, header: &[u8], frame: &[u8]) -> Result<(), DropReason> {
        let parts = [IoSlice::new(header), IoSlice::new(frame)];
        match rustix::io::writev(&self.file, &parts) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN | Errno::NOBUFS) => Err(DropReason::NoBuffer),
            Err(Errno::INVAL) => Err(DropReason::BadOffload),
            // It is switched off, or gone.
            Err(_) => Err(DropReason::NotConnected),
        }
    }

    /// True once the interface was taken away.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// What to wait for.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
