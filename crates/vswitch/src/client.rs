//! Asking a switch that runs in another process.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::question::{ControlReply, ControlRequest, Question};

/// How long a switch may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Error type for [`ask`].
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No switch is there.
    #[error(
        "No switch answers at {path} (start one with `vmlab switch --port ...`, or name its \
             --control)"
    )]
    NoSwitch {
        /// The control socket.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It went away, or said nothing.
    #[error("The switch did not answer")]
    Io(#[source] io::Error),
    /// What it said is no answer.
    #[error("The switch's answer cannot be read: it is of another version")]
    Answer(#[source] serde_json::Error),
}

/// Asks the switch whose control socket is at `path`.
///
/// # Errors
/// [`AskError`].
pub fn ask(path: &Path, question: Question) -> Result<ControlReply, AskError> {
    let stream = UnixStream::connect(path)
        .map_err(|source| AskError::NoSwitch { path: path.display().to_string(), source })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(AskError::Io)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(AskError::Io)?;
    (&stream).write_all(ControlRequest::line(question).as_bytes()).map_err(AskError::Io)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).map_err(AskError::Io)?;
    serde_json::from_str(&line).map_err(AskError::Answer)
}
