//! Files that probes write and read.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use crate::error::{ErrorContext as _, ProbeError};

/// A file that is removed when this is dropped.
pub(crate) struct ScratchFile {
    path: PathBuf,
    pub(crate) file: File,
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // Nothing to be done about a file that cannot be removed.
        let _ = fs::remove_file(&self.path);
    }
}

impl ScratchFile {
    pub(crate) fn create(dir: &Path, name: &str) -> Result<Self, ProbeError> {
        let path = dir.join(format!("vmlab-probe-{}-{name}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.tried(format!("create {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// What is done with it, for an error.
    pub(crate) fn what(&self, verb: &str) -> String {
        format!("{verb} {}", self.path.display())
    }
}
