//! Files to the other machine, through the connection that is open.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::cksum::Cksum;
use crate::patience::Patience;
use crate::{RunError, SshSession};

/// Receives a file beside its place, and puts it there once it is whole.
///
/// Source: POSIX.1-2017, `cksum`.
const RECEIVE: &str = "# receives a file
case $1 in */*) mkdir -p -- \"${1%/*}\" || exit 1 ;; esac
part=$1.part.$$
trap 'rm -f -- \"$part\"' EXIT
cat >\"$part\" || exit 1
found=$(cksum <\"$part\") || exit 1
set -- \"$1\" \"$2\" \"$3\" $found
[ \"$4 $5\" = \"$2\" ] || { echo \"arrived as $4 $5 instead of $2\" >&2; exit 1; }
chmod \"$3\" -- \"$part\" && mv -f -- \"$part\" \"$1\"";

/// Whether the file `$1` has `$2` bytes and the sum that `$3` begins with.
const COMPARE: &str = "# compares a file
test -f \"$1\" && test \"$(wc -c <\"$1\")\" -eq \"$2\" && test \"$(cksum <\"$1\")\" = \"$3\"";

/// Error type for [`SshSession::put`] and [`SshSession::has_same`].
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The file here.
    #[error("Cannot {action} {path}")]
    Local {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The command there that does the other half.
    #[error("Cannot copy {path}")]
    Remote {
        /// The file there.
        path: String,
        /// Why.
        #[source]
        source: RunError,
    },
}

fn local<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> CopyError + 'a {
    move |source| CopyError::Local { action, path: path.to_owned(), source }
}

impl SshSession {
    /// Copies the file `from` to `to` there, a path from the home folder; folders
    /// are made. The file appears when it is whole, with the permissions `mode`.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn put(
        &self,
        from: &Path,
        to: &str,
        mode: u32,
        patience: Patience<'_>,
    ) -> Result<(), CopyError> {
        let sum = Cksum::of_file(from).map_err(local("read", from))?;
        let file = File::open(from).map_err(local("read", from))?;
        let words = ["sh", "-c", RECEIVE, "sh", to, &sum.to_string(), &format!("{mode:o}")];
        let remote = |source| CopyError::Remote { path: to.to_owned(), source };
        let wait = patience.start();
        let mut running = self.command(words).spawn().map_err(remote)?;
        let writer = running.write_all_of(file);
        let mut rest = [0; 256];
        while running.read_within(&mut rest, &wait).map_err(remote)? > 0 {}
        running.succeed_within(&wait).map_err(remote)?;
        match writer.map(|writer| writer.join()) {
            Some(Ok(Err(error))) => Err(local("read", from)(error)),
            _ => Ok(()),
        }
    }

    /// Whether `there` is a file with the check sum and size of the file `here`.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn has_same(
        &self,
        here: &Path,
        there: &str,
        patience: Patience<'_>,
    ) -> Result<bool, CopyError> {
        let sum = Cksum::of_file(here).map_err(local("read", here))?;
        let (bytes, sum) = (sum.bytes().to_string(), sum.to_string());
        let command = self.command(["sh", "-c", COMPARE, "sh", there, &bytes, &sum]);
        let remote = |source| CopyError::Remote { path: there.to_owned(), source };
        Ok(command.output(patience).map_err(remote)?.code == 0)
    }
}

impl Cksum {
    /// Reads the file `path` to its end.
    fn of_file(path: &Path) -> io::Result<Self> {
        let mut sum = Self::default();
        let mut file = BufReader::new(File::open(path)?);
        let mut buffer = vec![0; 64 << 10];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(sum),
                length => sum.update(&buffer[..length]),
            }
        }
    }
}
