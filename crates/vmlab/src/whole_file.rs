//! Files that are there whole or not at all: until they are, they have no name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// A file that gets its name at the end. Dropped before, or with vmlab killed, it is gone.
#[derive(Debug)]
pub(crate) struct WholeFile {
    file: File,
    path: PathBuf,
    /// A file system without files without names: it has its name already.
    named: bool,
}

impl WholeFile {
    /// A file that is to be called `path`, which must be free.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(taken());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => Ok(Self { file: file.into(), path: path.to_owned(), named: false }),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
                Ok(Self { file, path: path.to_owned(), named: true })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if !self.named {
            let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let linked =
                rustix::fs::linkat(CWD, nameless, CWD, &self.path, AtFlags::SYMLINK_FOLLOW);
            linked.map_err(|error| match error {
                rustix::io::Errno::EXIST => taken(),
                other => other.into(),
            })?;
        }
        self.named = false;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if self.named {
            // It is not whole. Gone already is as good.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn taken() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it exists already: remove it, or name another")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let half = WholeFile::create(&path).unwrap();
        half.file().write_all(b"half").unwrap();
        drop(half);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let whole = WholeFile::create(&path).unwrap();
        whole.file().write_all(b"whole").unwrap();
        let second = WholeFile::create(&path).unwrap();
        whole.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(second.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(WholeFile::create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    }
}
