//! A domain of libvirt's, from its creation to its end.
//!
//! It is transient and bound to a virsh that waits at the end of a pipe
//! (`create --autodestroy`): whatever ends vmlab closes that pipe, virsh ends, and
//! libvirtd ends the domain. So there is nothing that would have to be found.
//!
//! Source: `virsh(1)`; libvirt `virDomainCreateXML`, `VIR_DOMAIN_START_AUTODESTROY`.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::console::read_end;
use super::failure::GuestFailure;
use crate::Cancel;
use crate::cancel::CANCEL_CHECK;
use crate::libvirt::{Virsh, VirshError, advice, complaint_of, not_run};

/// How long libvirt may take to write down how a domain ended.
const NOTE_LIMIT: Duration = Duration::from_secs(10);

/// How long libvirt may take to end a domain: 15 s for QEMU to obey SIGTERM, 5 s for
/// SIGKILL, and somebody else's wish that it serves meanwhile.
const END_LIMIT: Duration = Duration::from_secs(60);

/// What virsh says behind an answer; it repeats what it is told, which must look
/// different.
const SAY_MARK: &str = "echo '==''='\n";
const MARK: &[u8] = b"===";

/// Most that virsh says to one command, bytes.
const SAID_BYTES: usize = 64 << 10;

/// How much of a domain's log is looked at, bytes.
const LOG_BYTES: usize = 16 << 10;

/// Where libvirt's system daemon keeps the logs of domains.
const LOGS: &str = "/var/log/libvirt/qemu";

/// A domain that runs; ended when dropped.
#[derive(Debug)]
pub(super) struct RunningDomain {
    virsh: Virsh,
    name: String,
    keeper: Option<DomainHolder>,
}

fn refused(detail: String) -> GuestFailure {
    GuestFailure::Refused { detail }
}

/// A failure to ask libvirt, before there is a VM.
pub(super) fn failure(error: VirshError) -> GuestFailure {
    match error {
        VirshError::Cancelled(cancelled) => cancelled.into(),
        other => refused(other.to_string()),
    }
}

impl RunningDomain {
    /// Creates the domain `name`, which the XML in `file` describes, its guest not yet
    /// running. libvirt may take `limit` for it, as it sets up the guest's memory first.
    pub(super) fn create(
        virsh: &Virsh,
        name: &str,
        file: &Path,
        limit: Duration,
    ) -> Result<Self, GuestFailure> {
        let keeper = Some(DomainHolder::create(virsh, file, limit)?);
        Ok(Self { virsh: virsh.clone(), name: name.to_owned(), keeper })
    }

    /// What libvirt answers to a command about it, which stands behind `words`.
    pub(super) fn ask(
        &self,
        words: &[&str],
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<String, VirshError> {
        self.virsh.ask_within(&[words, &[self.name.as_str()]].concat(), limit, cancel)
    }

    /// Ends the domain: nothing that its guest wrote is kept.
    pub(super) fn end(&mut self) {
        let Some(keeper) = self.keeper.take() else { return };
        // That it is gone already is told by an error, too. Where libvirtd does not
        // answer, the end of virsh tells it to end the domain.
        let words = ["destroy", self.name.as_str()];
        drop(self.virsh.ask_within(&words, END_LIMIT, &Cancel::new()));
        drop(keeper);
        // Its name is of this run alone: nobody else would ever remove it.
        drop(std::fs::remove_file(self.log()));
    }

    fn log(&self) -> PathBuf {
        Path::new(LOGS).join(format!("{}.log", self.name))
    }

    /// The last of what QEMU itself printed, where libvirt's log may be read.
    pub(super) fn printed(&self) -> String {
        qemu_lines(&String::from_utf8_lossy(&read_end(&self.log(), LOG_BYTES)))
    }

    /// The guest's own end, if libvirt says that it was that.
    pub(super) fn ended_by_guest(&self) -> Option<GuestFailure> {
        // It is written down once the domain is no more.
        let until = Instant::now() + NOTE_LIMIT;
        let words = ["domstate", self.name.as_str()];
        while Instant::now() < until && self.virsh.ask(&words, &Cancel::new()).is_ok() {
            std::thread::sleep(CANCEL_CHECK);
        }
        let text = read_end(&self.log(), LOG_BYTES);
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find_map(|line| line.split_once("shutting down, reason="));
        let detail = "libvirt says that the guest did".to_owned();
        last.is_some_and(|(_, reason)| reason.trim() == "shutdown")
            .then_some(GuestFailure::Shutdown { detail })
    }
}

impl Drop for RunningDomain {
    fn drop(&mut self) {
        self.end();
    }
}

/// QEMU's own lines since the last start, in a domain's log.
///
/// Source: libvirt `src/qemu/qemu_process.c` (`qemuLogOperation`).
fn qemu_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let start = lines.iter().rposition(|line| line.contains(": starting up ")).unwrap_or(0);
    let own = |line: &&&str| line.contains("qemu-system-") && line.contains(": ");
    let of_start: Vec<&str> = lines[start..].iter().skip(1).filter(own).copied().collect();
    of_start.join("\n")
}

/// A virsh that holds a domain for as long as it runs.
#[derive(Debug)]
struct DomainHolder {
    child: Child,
    /// Closed by whatever ends vmlab.
    stdin: Option<ChildStdin>,
    /// Held open: virsh would end when it has something to say to nobody, be it the
    /// next prompt.
    prints: PipeReader,
}

impl DomainHolder {
    /// Creates the domain in `file`, its guest not yet running. Ctrl-C waits for that: a
    /// domain that is half begun can't be ended yet, and would be there after vmlab.
    fn create(virsh: &Virsh, file: &Path, limit: Duration) -> Result<Self, GuestFailure> {
        let not_started = |error: io::Error| failure(not_run(error));
        let (said, writer) = io::pipe().map_err(not_started)?;
        let copy = writer.try_clone().map_err(not_started)?;
        let mut command = virsh.command();
        command.stdin(Stdio::piped()).stdout(writer).stderr(copy);
        // It keeps what it is told in a file otherwise.
        command.env("VIRSH_HISTSIZE", "0");
        if let Some(folder) = file.parent() {
            command.current_dir(folder);
        }
        let mut child = command.spawn().map_err(not_started)?;
        // The command holds the pipe's writing end: without this no end is seen.
        drop(command);
        let stdin = child.stdin.take();
        let mut keeper = Self { child, stdin, prints: said };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let asked = format!("create --autodestroy --paused {name}\n{SAY_MARK}");
        if let Some(stdin) = &mut keeper.stdin {
            // A virsh that ended has said why.
            drop(stdin.write_all(asked.as_bytes()));
        }
        let text = until_mark(&mut keeper.prints, limit)?;
        let complaints = text.lines().any(|line| line.starts_with("error: "));
        if complaints || !text.as_bytes().ends_with(MARK) {
            let said = complaint_of(&text);
            return Err(refused(format!("libvirt: {said}{}", advice(&said))));
        }
        Ok(keeper)
    }
}

impl Drop for DomainHolder {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It would end by itself, but for a libvirtd that does not answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What virsh says until the mark or its end.
fn until_mark(said: &mut PipeReader, limit: Duration) -> Result<String, GuestFailure> {
    let broken = |error: io::Error| refused(format!("virsh: {error}"));
    let until = Instant::now() + limit;
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if Instant::now() >= until {
            let limit_s = limit.as_secs();
            return Err(refused(format!("libvirt did not start it within {limit_s} s")));
        }
        let mut polled = [PollFd::from_borrowed_fd(said.as_fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(CANCEL_CHECK).expect("a short time fits");
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(broken(error.into())),
        }
        let length = said.read(&mut buffer).map_err(broken)?;
        text.extend_from_slice(&buffer[..length]);
        let mark = text.windows(MARK.len()).position(|bytes| bytes == MARK);
        if let Some(at) = mark {
            text.truncate(at + MARK.len());
        }
        if mark.is_some() || length == 0 || text.len() > SAID_BYTES {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_s_own_words_are_told_from_libvirt_s() {
        // libvirt 9.0's log of two starts, shortened.
        let log = "2026-01-01 00:00:00.000+0000: starting up libvirt version: 9.0.0\n\
            2026-01-01T00:00:00Z qemu-system-x86_64: an earlier start\n\
            2026-01-01 00:00:01.000+0000: shutting down, reason=destroyed\n\
            2026-01-01 00:00:02.000+0000: starting up libvirt version: 9.0.0\n\
            LC_ALL=C \\\n/usr/bin/qemu-system-x86_64 \\\n-name guest=a,debug-threads=on \\\n\
            2026-01-01T00:00:03.0Z qemu-system-x86_64: warning: no such feature\n\
            2026-01-01 00:00:04.000+0000: shutting down, reason=crashed\n";
        let expected = "2026-01-01T00:00:03.0Z qemu-system-x86_64: warning: no such feature";
        assert_eq!(qemu_lines(log), expected);
        assert_eq!(qemu_lines(""), "");
    }

    #[test]
    fn what_virsh_says_ends_at_the_mark() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let until_mark = |said: &mut PipeReader| until_mark(said, suite::PATIENCE);
        writer.write_all(b"virsh # echo '==''='\n===virsh # ").unwrap();
        let said = until_mark(&mut reader).unwrap();
        assert_eq!(said, "virsh # echo '==''='\n===");
        writer.write_all(b"error: gone\n").unwrap();
        drop(writer);
        assert_eq!(until_mark(&mut reader).unwrap(), "virsh # error: gone\n"[8..]);
    }
}
