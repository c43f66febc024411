//! The error for a file of a replica: which, what was done to it, and why not.

use std::io;
use std::path::{Path, PathBuf};

/// A file or folder that can't be read or made.
#[derive(Debug, thiserror::Error)]
#[error("Cannot {doing} {}", path.display())]
pub struct FileError {
    /// `read` or `make`.
    pub doing: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// The error of reading `path`.
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::of("read", path)
    }

    /// The error of making `path`.
    pub(crate) fn make(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::of("make", path)
    }

    fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { doing, path, source }
    }
}
