//! Who may connect to the sockets of ports: their mode and group, which they have before
//! anybody can.
//!
//! A socket is made with the mode that its descriptor has (`unix_bind`), so no moment is
//! left between. Nobody can connect before it listens, by when it has its group.
//!
//! Source: Linux `net/unix/af_unix.c`, `unix_bind_bsd`; `unix(7)`, `umask(2)`.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, chownat, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::umask;

use crate::config::SocketRights;
use crate::event::StartError;

/// How many frontends may wait to be taken in.
const BACKLOG: i32 = 128;

/// Listens at `path`, where nothing is.
pub(crate) fn listen(path: &Path, rights: SocketRights) -> Result<UnixListener, StartError> {
    let failed = |source: io::Error| StartError::Listen { path: path.to_owned(), source };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| failed(error.into()))?;
    bind(&socket, path, rights.mode).map_err(failed)?;
    let ready = give_to_group(path, rights.group)
        .and_then(|()| rustix::net::listen(&socket, BACKLOG).map_err(|error| failed(error.into())));
    if let Err(error) = ready {
        // It is ours, and of no use to anybody.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(UnixListener::from(socket))
}

fn bind(socket: &OwnedFd, path: &Path, mode: Option<u32>) -> io::Result<()> {
    let address = SocketAddrUnix::new(path)?;
    let Some(mode) = mode else { return Ok(rustix::net::bind(socket, &address)?) };
    fchmod(socket, Mode::from_bits_truncate(mode))?;
    // No other thread of a switch makes files.
    let before = umask(Mode::empty());
    let bound = rustix::net::bind(socket, &address);
    umask(before);
    Ok(bound?)
}

/// Nothing is to be done where the folder has given the socket its group already (the
/// setgid bit): that works in the sandbox, too.
fn give_to_group(path: &Path, group: Option<u32>) -> Result<(), StartError> {
    let Some(group) = group else { return Ok(()) };
    let refused = |source| StartError::Group { path: path.to_owned(), group, source };
    if fs::symlink_metadata(path).map_err(refused)?.gid() == group {
        return Ok(());
    }
    let to = Some(Gid::from_raw(group));
    chownat(CWD, path, None, to, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| refused(error.into()))
}
