//! Requests to the kernel about tap interfaces, which only `ioctl(2)` makes.
//!
//! Source: Linux `include/uapi/linux/if_tun.h`, `netdevice(7)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;

/// `struct ifreq` with this name and nothing else said.
fn request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid `ifreq`: arrays of characters and a union of
    // integers and addresses.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, &byte) in request.ifr_name.iter_mut().zip(interface.as_bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(request)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn ask(file: BorrowedFd<'_>, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all numbers that are passed here take a pointer to an `ifreq`, which lives
    // and is ours alone.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), number as _, std::ptr::from_mut(request)) })
}

/// Makes `file`, an open `/dev/net/tun`, the other end of an interface.
///
/// # Errors
/// What `ioctl(2)` says: `EPERM`, `EBUSY`, `EINVAL`.
pub(crate) fn attach(file: BorrowedFd<'_>, interface: &str) -> io::Result<()> {
    let mut request = request(interface)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ask(file, libc::TUNSETIFF as libc::c_ulong, &mut request)
}

/// Says how long the header before each frame is.
///
/// # Errors
/// What `ioctl(2)` says.
pub(crate) fn set_header(file: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    // SAFETY: the request takes a pointer to an `int`, which lives.
    checked(unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, std::ptr::from_ref(&bytes))
    })
}

/// Says that frames without checksums and large segments are taken: of TCP, and of UDP.
///
/// # Errors
/// What `ioctl(2)` says: `EINVAL` for UDP before Linux 6.2.
pub(crate) fn set_offloads(file: BorrowedFd<'_>, udp: bool) -> io::Result<()> {
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    let all = tcp | if udp { TUN_F_USO4 | TUN_F_USO6 } else { 0 };
    // SAFETY: the request takes a number, no pointer.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, all) })
}

fn about(interface: &str) -> io::Result<(OwnedFd, libc::ifreq)> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    Ok((socket, request(interface)?))
}

/// Sets an interface's MTU.
///
/// # Errors
/// What `ioctl(2)` says.
pub(crate) fn set_mtu(interface: &str, mtu: u16) -> io::Result<()> {
    let (socket, mut request) = about(interface)?;
    request.ifr_ifru.ifru_mtu = mtu.into();
    ask(socket.as_fd(), libc::SIOCSIFMTU, &mut request)
}

/// Switches an interface on.
///
/// # Errors
/// What `ioctl(2)` says.
pub(crate) fn set_up(interface: &str) -> io::Result<()> {
    let (socket, mut request) = about(interface)?;
    ask(socket.as_fd(), libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: SIOCGIFFLAGS has filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    ask(socket.as_fd(), libc::SIOCSIFFLAGS, &mut request)
}

/// Puts an interface into a bridge.
///
/// # Errors
/// What `ioctl(2)` says: `ENODEV` if there is no such bridge.
pub(crate) fn join_bridge(interface: &str, bridge: &str) -> io::Result<()> {
    const SIOCBRADDIF: libc::c_ulong = 0x89a2;
    let index = index_of(interface)?;
    let (socket, mut request) = about(bridge)?;
    request.ifr_ifru.ifru_ifindex = index;
    ask(socket.as_fd(), SIOCBRADDIF, &mut request)
}

fn index_of(interface: &str) -> io::Result<libc::c_int> {
    let (socket, mut request) = about(interface)?;
    ask(socket.as_fd(), libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: SIOCGIFINDEX has filled this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}
