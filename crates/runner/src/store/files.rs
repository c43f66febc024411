//! The files of a results folder, opened with care: the folder may be somebody
//! else's, unpacked from an archive or lying where others write, and what lies in
//! it under a known name may be anything. A symbolic link would be followed to a
//! file of the reader's, a FIFO would wait for ever.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};

/// What is wrong with a file that can't be one of vmlab's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is {0}, and a results folder holds plain files alone: remove it if it is not yours")]
struct IrregularFile(&'static str);

/// More than a file has that vmlab wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {} MiB, the most that is read of such a file", .0 >> 20)]
struct OversizedFile(u64);

/// A file of the folder, which must be there, of at most `limit` bytes.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY)?;
    let too_large = || io::Error::other(OversizedFile(limit));
    // Before anything is read: a file with holes costs its writer nothing.
    let size = file.metadata()?.len();
    if size > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // One that grows meanwhile is cut off there.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

/// A file of the folder, made if it is not there; each write goes to its end.
pub(super) fn open_to_append(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)
}

/// A file of the folder for reading and writing, made if it is not there.
pub(super) fn open_to_change(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDWR | OFlags::CREATE)
}

/// Writes a file of the folder `dir` anew: by another name first, so that it is
/// there wholly or not at all.
pub(super) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let part = dir.join(format!(".{name}.part"));
    // Left by a vmlab that was killed, or put there.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open(&part, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if let Err(error) = written.and_then(|()| fs::rename(&part, dir.join(name))) {
        // The half-written part is of no use to anybody; the error that
        // matters is the one that led here.
        drop(fs::remove_file(&part));
        return Err(error);
    }
    Ok(())
}

/// True for a folder that is none of somewhere else.
pub(super) fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn open(path: &Path, how: OFlags) -> io::Result<File> {
    let not_plain = |what| io::Error::other(IrregularFile(what));
    // Without a wait for a FIFO's other end; plain files know no such wait.
    let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o666));
    let file = File::from(opened.map_err(|error| match error {
        rustix::io::Errno::LOOP => not_plain("a symbolic link"),
        // A FIFO that nobody reads, or a socket.
        rustix::io::Errno::NXIO => not_plain("a FIFO or a socket"),
        rustix::io::Errno::ISDIR => not_plain("a folder"),
        other => other.into(),
    })?);
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(not_plain("a folder")),
        FileType::Fifo | FileType::Socket => Err(not_plain("a FIFO or a socket")),
        _ => Err(not_plain("a device")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plain_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("mine"), "precious").unwrap();
        std::os::unix::fs::symlink(path("mine"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("none"), path("dangling")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        rustix::fs::mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for (name, expected) in [
            ("link", "symbolic link"),
            ("dangling", "symbolic link"),
            ("folder", "a folder"),
            ("fifo", "a FIFO"),
            ("socket", "a FIFO or a socket"),
        ] {
            for error in [
                read(&path(name), 9).unwrap_err(),
                open_to_append(&path(name)).unwrap_err(),
                open_to_change(&path(name)).unwrap_err(),
            ] {
                let said = error.to_string();
                assert!(said.contains(expected) && said.contains("plain files"), "{name}: {said}");
            }
        }
        assert_eq!(fs::read(path("mine")).unwrap(), b"precious");
        assert!(!path("none").exists());
        assert_eq!(read(&path("absent"), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(
            read(Path::new("/dev/zero"), 9).unwrap_err().to_string().split(',').next(),
            Some("it is a device")
        );

        // Written anew, a link is replaced, not followed; also one in the way of it.
        std::os::unix::fs::symlink(path("mine"), path(".link.part")).unwrap();
        write_whole(dir.path(), "link", b"new").unwrap();
        assert_eq!(fs::read(path("mine")).unwrap(), b"precious");
        assert_eq!(read(&path("link"), 9).unwrap(), b"new");
        // At its budget a file is read, beyond it not even begun with.
        assert_eq!(read(&path("mine"), 8).unwrap(), b"precious");
        assert!(read(&path("mine"), 7).unwrap_err().to_string().contains("more than 0 MiB"));
        File::create(path("holes")).unwrap().set_len(1 << 40).unwrap();
        let said = read(&path("holes"), 64 << 20).unwrap_err().to_string();
        assert!(said.contains("more than 64 MiB"), "{said}");
        assert!(is_own_folder(&path("folder")) && !is_own_folder(&path("mine")));
    }
}
