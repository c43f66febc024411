//! The guest's console: what its first serial port prints.
//!
//! QEMU writes it to a socket, not to a file: a file grows as fast as the guest
//! prints, whether or not somebody looks. A thread reads it, whatever vmlab does
//! meanwhile, and keeps the end, in memory and in a file that can be looked at.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

/// How much of the end is kept, bytes: in memory, and in a file that was cut.
const KEPT_BYTES: usize = 1 << 20;

/// The file is cut down to [`KEPT_BYTES`] when it is longer than this, bytes.
const LONGEST_BYTES: usize = 2 * KEPT_BYTES;

/// Most of the end that is in memory, bytes: some more than is kept, so that not
/// every read moves it.
const HELD_BYTES: usize = KEPT_BYTES + KEPT_BYTES / 4;

/// How much of the end is shown and searched, bytes.
const TAIL_BYTES: usize = 64 << 10;

/// Most of a line that is quoted, characters.
const QUOTED_CHARS: usize = 400;

/// Most that is read at once, bytes.
const READ_BYTES: usize = 64 << 10;

/// Pause after a read that filled the buffer: a guest that prints without end
/// is held to 6 MiB/s, which is a thousand serial ports' worth, and leaves the
/// pCPUs alone meanwhile.
const PACE: Duration = Duration::from_millis(10);

/// What the kernel prints when it gives up.
/// Source: Linux `kernel/panic.c`.
const PANIC: &str = "Kernel panic - not syncing";

/// What begins a console's line that is not the guest's but vmlab's own, about a
/// guest that no longer answers.
pub const NOTE: &str = "vmlab: ";

/// What the thread and the VM share.
#[derive(Debug)]
struct ConsoleText {
    /// QEMU's end of the console.
    socket: UnixStream,
    file: File,
    /// Length of `file`, bytes.
    in_file: usize,
    /// The end of what came.
    bytes: Vec<u8>,
    /// All that ever came, bytes.
    seen_bytes: u64,
    buffer: Box<[u8]>,
}

/// The console of one VM.
#[derive(Debug)]
pub(super) struct Console(Arc<Mutex<ConsoleText>>);

/// The end of a console's file, at most `most_bytes` of it, whatever its length:
/// that of a VM which writes the file without us is the guest's to choose. Nothing
/// where there is no such file.
#[must_use]
pub fn read_end(path: &Path, most_bytes: usize) -> Vec<u8> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let most = most_bytes as u64;
        let begin = file.metadata()?.len().saturating_sub(most);
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // What can't be read is as good as nothing printed.
    read().unwrap_or_default()
}

/// A file for the console, before there is a QEMU.
#[derive(Debug)]
pub(super) struct ConsoleLog(File);

impl ConsoleLog {
    /// Makes the file, empty.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        file.set_len(0)?;
        Ok(Self(file))
    }
}

impl Console {
    /// Reads `socket` from now on, until QEMU closes it.
    pub(super) fn read(socket: UnixStream, log: ConsoleLog) -> io::Result<Self> {
        let waited = socket.try_clone()?;
        let kept = Arc::new(ConsoleText::over(socket, log)?);
        let of_thread = Arc::clone(&kept);
        std::thread::Builder::new()
            .name("console".to_owned())
            .spawn(move || follow(&waited, &of_thread))?;
        Ok(Self(kept))
    }

    /// All that the guest has printed so far, bytes.
    pub(super) fn seen_bytes(&self) -> u64 {
        self.up_to_date().seen_bytes
    }

    /// The end of what the guest printed, without control characters.
    pub(super) fn tail(&self) -> String {
        let kept = self.up_to_date();
        let begin = kept.bytes.len().saturating_sub(TAIL_BYTES);
        let text = String::from_utf8_lossy(&kept.bytes[begin..]).replace("\r\n", "\n");
        text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
    }

    /// The line in which the kernel said that it panicked.
    pub(super) fn panic_line(&self) -> Option<String> {
        let tail = self.tail();
        let line = tail.lines().find(|line| line.contains(PANIC))?;
        Some(line.trim().chars().take(QUOTED_CHARS).collect())
    }

    /// Adds a line that vmlab has to say about the guest, after [`NOTE`].
    pub(super) fn note(&self, line: &str) {
        let mut kept = self.up_to_date();
        let begin = if kept.bytes.last().is_none_or(|byte| *byte == b'\n') { "" } else { "\n" };
        kept.keep(format!("{begin}{NOTE}{line}\n").as_bytes());
    }

    /// What has come, with what has not been read yet.
    fn up_to_date(&self) -> MutexGuard<'_, ConsoleText> {
        let mut kept = locked(&self.0);
        // Bounded: a guest that goes on printing has no last word.
        for _ in 0..LONGEST_BYTES / READ_BYTES {
            if !matches!(kept.take_in(), ConsoleRead::Full) {
                break;
            }
        }
        kept
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // What QEMU wrote before its end belongs to the file.
        drop(self.up_to_date());
    }
}

/// What one read returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConsoleRead {
    /// Nothing is there now.
    Nothing,
    /// Something.
    Some,
    /// As much as there was room for: more is likely there.
    Full,
    /// QEMU's end is closed.
    End,
}

impl ConsoleText {
    /// What nothing was read of yet; `socket` never blocks from now on.
    fn over(socket: UnixStream, log: ConsoleLog) -> io::Result<Mutex<Self>> {
        socket.set_nonblocking(true)?;
        Ok(Mutex::new(Self {
            socket,
            file: log.0,
            in_file: 0,
            // All at once: a vector that doubles from whatever the reads brought
            // ends anywhere below twice of what it has to hold. The kernel gives
            // what is not yet written to nobody.
            bytes: Vec::with_capacity(HELD_BYTES),
            seen_bytes: 0,
            buffer: vec![0; READ_BYTES].into(),
        }))
    }

    fn take_in(&mut self) -> ConsoleRead {
        let length = match self.socket.read(&mut self.buffer) {
            Ok(0) => return ConsoleRead::End,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return ConsoleRead::Some,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ConsoleRead::Nothing,
            Err(_) => return ConsoleRead::End,
        };
        self.seen_bytes += length as u64;
        let buffer = std::mem::take(&mut self.buffer);
        self.keep(&buffer[..length]);
        self.buffer = buffer;
        if length == self.buffer.len() { ConsoleRead::Full } else { ConsoleRead::Some }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        if self.bytes.len() + last.len() > HELD_BYTES {
            let surplus = self.bytes.len() + last.len() - KEPT_BYTES;
            self.bytes.drain(..surplus);
        }
        self.bytes.extend_from_slice(last);
        let written = if self.in_file + bytes.len() > LONGEST_BYTES {
            let begin = self.bytes.len().saturating_sub(KEPT_BYTES);
            self.in_file = 0;
            let end = &self.bytes[begin..];
            self.file.set_len(0).and_then(|()| self.file.write_all(end)).map(|()| end.len())
        } else {
            self.file.write_all(bytes).map(|()| bytes.len())
        };
        // A full disk costs the file, not the trial: the end is in memory, too.
        self.in_file += written.unwrap_or(0);
    }
}

fn locked(kept: &Mutex<ConsoleText>) -> MutexGuard<'_, ConsoleText> {
    // It is whole after every read.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the end of the console that comes over `socket` in the file at `path`, 2 MiB at
/// most, until QEMU closes it: that of a VM which outlives whoever started it.
///
/// # Errors
/// The file can't be made.
pub fn keep_console(socket: UnixStream, path: &Path) -> io::Result<()> {
    let waited = socket.try_clone()?;
    follow(&waited, &ConsoleText::over(socket, ConsoleLog::create(path)?)?);
    Ok(())
}

/// Reads to the end of the console.
fn follow(socket: &UnixStream, kept: &Mutex<ConsoleText>) {
    loop {
        let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        // An interrupted wait is one that ended early.
        let _ = rustix::event::poll(&mut polled, None);
        let taken = locked(kept).take_in();
        match taken {
            ConsoleRead::Nothing | ConsoleRead::Some => {}
            ConsoleRead::Full => std::thread::sleep(PACE),
            ConsoleRead::End => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(folder: &Path) -> (UnixStream, Console, std::path::PathBuf) {
        let path = folder.join("console");
        std::fs::write(&path, "of a VM before").unwrap();
        let (qemu, near) = UnixStream::pair().unwrap();
        (qemu, Console::read(near, ConsoleLog::create(&path).unwrap()).unwrap(), path)
    }

    #[test]
    fn the_tail_is_plain_text_and_the_file_holds_all() {
        let folder = tempfile::tempdir().unwrap();
        let (mut qemu, console, path) = console(folder.path());
        assert_eq!(console.tail(), "");
        assert!(read_end(&path, 100).is_empty() && read_end(&path.join("none"), 100).is_empty());
        let panic = "[ 2.1] Kernel panic - not syncing: sysrq triggered crash";
        let printed = format!("\x1b[2J\rSeaBIOS\r\n{panic}\r\nmore");
        qemu.write_all(printed.as_bytes()).unwrap();
        // Whatever was written before is seen: nobody waits for the thread.
        assert_eq!(console.tail(), format!("[2JSeaBIOS\n{panic}\nmore"));
        assert_eq!(console.panic_line().as_deref(), Some(panic));
        assert_eq!(console.seen_bytes(), printed.len() as u64);
        console.note("a word");
        drop(qemu);
        drop(console);
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept, format!("{printed}\nvmlab: a word\n"));
    }

    #[test]
    fn a_guest_that_prints_without_end_keeps_no_more_than_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (mut qemu, console, path) = console(folder.path());
        let all = 5 * LONGEST_BYTES;
        let writer = std::thread::spawn(move || {
            let piece = [b'x'; 10_000];
            for _ in 0..all / piece.len() + 1 {
                qemu.write_all(&piece).unwrap();
            }
            qemu.write_all(b"\nend\n").unwrap();
        });
        while !writer.is_finished() {
            assert!(std::fs::metadata(&path).unwrap().len() <= LONGEST_BYTES as u64);
            assert_eq!(locked(&console.0).bytes.capacity(), HELD_BYTES);
            console.tail();
        }
        writer.join().unwrap();
        assert!(console.tail().ends_with("x\nend\n"));
        assert!(console.seen_bytes() > all as u64);
        drop(console);
        assert_eq!(read_end(&path, 5), b"\nend\n");
        let kept = read_end(&path, usize::MAX);
        assert!(kept.len() >= KEPT_BYTES && kept.len() <= LONGEST_BYTES, "{}", kept.len());
        assert!(kept.ends_with(b"x\nend\n"));
    }
}
