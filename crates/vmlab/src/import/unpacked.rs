//! What another program decompresses.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Most bytes of a program's complaint that are shown.
const SHOWN_BYTES: usize = 4096;

/// Who complains of more than this does nothing else.
const COMPLAINT_BYTES: usize = 16 << 20;

/// Who reads a file says something sooner, or has ended.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a program decompresses. Both of its outputs are read, so that it never waits for a
/// reader; one that hangs is ended.
pub(super) struct UnpackedOutput {
    program: &'static str,
    child: Child,
    /// Ready when the program has ended.
    pidfd: OwnedFd,
    /// None when all of it was read.
    unpacked: Option<ChildStdout>,
    complaint: Option<ChildStderr>,
    /// How the complaint begins, and how long it is.
    said: Vec<u8>,
    complaint_bytes: usize,
    /// How long it may say nothing; none if it waits for others itself.
    patience: Option<Duration>,
    has_ended: bool,
}

impl UnpackedOutput {
    /// What `program` makes of a compressed file.
    pub(super) fn of(file: File, program: &'static str) -> io::Result<Self> {
        // What is read from a pipe may come at any time.
        let patience = file.metadata()?.is_file().then_some(PATIENCE);
        let mut command = Command::new(program);
        command.arg("-dc").stdin(file);
        Self::begin(command, program, patience)
    }

    fn begin(
        mut command: Command,
        program: &'static str,
        patience: Option<Duration>,
    ) -> io::Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::other(format!("cannot run {program}: {error}")))?;
        let pidfd = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        let (unpacked, complaint) = (child.stdout.take(), child.stderr.take());
        Ok(Self {
            program,
            child,
            pidfd,
            unpacked,
            complaint,
            said: Vec::new(),
            complaint_bytes: 0,
            patience,
            has_ended: false,
        })
    }

    /// Waits until more is unpacked, or, if all was, until the program has ended.
    /// Meanwhile its complaint is read.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            let mut heard = vec![match &self.unpacked {
                Some(unpacked) => PollFd::from_borrowed_fd(unpacked.as_fd(), PollFlags::IN),
                None => PollFd::new(&self.pidfd, PollFlags::IN),
            }];
            heard.extend(self.complaint.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            match ready(&mut heard, self.patience)? {
                0 => return Err(self.hung("says nothing and does not end")),
                _ if !heard[0].revents().is_empty() => return Ok(()),
                _ => self.hear()?,
            }
        }
    }

    /// Reads what there is of the complaint.
    fn hear(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.complaint else { return Ok(()) };
        let mut bytes = [0; SHOWN_BYTES];
        let read = pipe.read(&mut bytes)?;
        if read == 0 {
            self.complaint = None;
        }
        self.complaint_bytes += read;
        let shown = read.min(SHOWN_BYTES - self.said.len());
        self.said.extend(&bytes[..shown]);
        if self.complaint_bytes > COMPLAINT_BYTES {
            return Err(self.hung("complains without end"));
        }
        Ok(())
    }

    /// Waits for the program's end; an error unless it unpacked all.
    fn end(&mut self) -> io::Result<()> {
        self.wait()?;
        let status = self.child.wait()?;
        self.has_ended = true;
        // The last of it; what it started may keep the pipe open.
        while let Some(pipe) = &self.complaint {
            let mut heard = [PollFd::new(pipe, PollFlags::IN)];
            match ready(&mut heard, Some(Duration::ZERO))? {
                0 => break,
                _ => self.hear()?,
            }
        }
        if status.success() { Ok(()) } else { Err(self.failed("cannot decompress it")) }
    }

    fn hung(&mut self, how: &str) -> io::Error {
        self.kill();
        self.failed(how)
    }

    fn failed(&self, how: &str) -> io::Error {
        let said = String::from_utf8_lossy(&self.said);
        let said = said.trim();
        let gap = if said.is_empty() { "" } else { ": " };
        io::Error::other(format!("{} {how}{gap}{said}", self.program))
    }

    fn kill(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            // It may have ended just now.
            drop(self.child.kill());
            drop(self.child.wait());
        }
        self.unpacked = None;
    }
}

/// How many of `heard` are ready, of which none are after so long.
fn ready(heard: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<usize> {
    let until = limit.map(|limit| Instant::now() + limit);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(heard, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return Ok(ready?),
        }
    }
}

impl Read for UnpackedOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unpacked.is_none() || buffer.is_empty() {
            return Ok(0);
        }
        self.wait()?;
        let Some(unpacked) = &mut self.unpacked else { return Ok(0) };
        let read = unpacked.read(buffer)?;
        if read == 0 {
            self.unpacked = None;
            self.end()?;
        }
        Ok(read)
    }
}

impl Drop for UnpackedOutput {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell's `script` unpacks, and how that ends.
    fn unpacked(script: &str, patience: Option<Duration>) -> (String, Result<(), String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let mut output = UnpackedOutput::begin(command, "fake", patience).unwrap();
        let mut bytes = Vec::new();
        let ended = output.read_to_end(&mut bytes).map(drop).map_err(|error| error.to_string());
        (String::from_utf8(bytes).unwrap(), ended)
    }

    #[test]
    fn a_long_complaint_holds_nothing_up() {
        // Many times what a pipe holds, before, between and behind what is unpacked.
        let complain = "head -c 1000000 /dev/zero | tr '\\0' x >&2";
        let script = format!("{complain}; echo one; {complain}; echo two; {complain}");
        assert_eq!(unpacked(&script, None), ("one\ntwo\n".to_owned(), Ok(())));
        // Its end is waited for when nothing else is.
        let script = format!("echo one; exec >&-; {complain}; exit 3");
        let (text, ended) = unpacked(&script, None);
        assert_eq!(text, "one\n");
        let said = format!("fake cannot decompress it: {}", "x".repeat(SHOWN_BYTES));
        assert_eq!(ended, Err(said));
    }

    #[test]
    fn a_failure_behind_good_output_is_told() {
        let (text, ended) = unpacked("echo one; echo 'crc error' >&2; exit 1", None);
        assert_eq!(text, "one\n");
        assert_eq!(ended, Err("fake cannot decompress it: crc error".to_owned()));
        assert_eq!(unpacked("kill -9 $$", None).1, Err("fake cannot decompress it".to_owned()));
    }

    #[test]
    fn one_that_never_ends_is_ended() {
        let (text, ended) = unpacked("echo one; exec yes bad >&2", None);
        assert_eq!(text, "one\n");
        let ended = ended.unwrap_err();
        assert!(ended.starts_with("fake complains without end: bad\nbad\n"), "{ended}");
        // Who hangs before the end of what it unpacks, and behind it.
        let hung = Err("fake says nothing and does not end".to_owned());
        let soon = Some(Duration::from_millis(1));
        assert_eq!(unpacked("exec sleep infinity", soon).1, hung);
        assert_eq!(unpacked("exec >&- 2>&-; exec sleep infinity", soon).1, hung);
        // Who unpacks for ever is ended when nobody wants more.
        let mut command = Command::new("yes");
        command.stdin(Stdio::null());
        let mut output = UnpackedOutput::begin(command, "fake", None).unwrap();
        let mut some = [0; 1 << 20];
        output.read_exact(&mut some).unwrap();
        assert!(some.starts_with(b"y\ny\n"));
        let pid = Pid::from_child(&output.child);
        drop(output);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
