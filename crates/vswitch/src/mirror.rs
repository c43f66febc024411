//! Mirrors: frames of chosen ports, written down as pcap-ng while they are forwarded.
//!
//! Polling threads copy a frame and go on: what a slow file or reader can't take is
//! dropped and counted, and forwarding never waits. One thread writes.
//!
//! Source: draft-ietf-opsawg-pcapng (sections 4.1 to 4.6).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::memory::ByteRange;

/// Frames that wait to be written, and their bytes.
const MOST_WAITING: usize = 8192;
const MOST_WAITING_BYTES: usize = 16 << 20;
/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How long a reader may take for the last frames.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a pipe that has room takes without waiting.
const PIPE_BUF: usize = 4096;

/// The direction of a frame, as `epb_flags` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heading {
    /// From the port to the switch.
    In = 1,
    /// From the switch to the port.
    Out = 2,
}

/// A frame that was copied.
#[derive(Debug)]
struct CapturedFrame {
    interface: u32,
    heading: Heading,
    at_ns: u64,
    /// Bytes that the frame has.
    length: u32,
    /// Those that were copied.
    bytes: Vec<u8>,
}

/// Counters of a mirror, shared by its ports and the thread that writes it.
#[derive(Debug, Default)]
pub(crate) struct MirrorCounters {
    pub(crate) written: AtomicU64,
    pub(crate) dropped: AtomicU64,
    waiting_bytes: AtomicUsize,
    over: AtomicBool,
}

/// One port's end of a mirror: it hands copies of frames to the writer.
#[derive(Debug, Clone)]
pub(crate) struct MirrorTap {
    interface: u32,
    snap: usize,
    frames: SyncSender<CapturedFrame>,
    tally: Arc<MirrorCounters>,
}

impl MirrorTap {
    /// Copies a frame of `length` bytes: `head`, then `pieces`.
    pub(crate) fn copy(
        &self,
        heading: Heading,
        head: &[u8],
        pieces: &[ByteRange<'_>],
        length: usize,
    ) {
        let wanted = length.min(self.snap);
        let waiting = self.tally.waiting_bytes.fetch_add(wanted, Ordering::Relaxed);
        let give_up = || {
            self.tally.waiting_bytes.fetch_sub(wanted, Ordering::Relaxed);
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        };
        if waiting > MOST_WAITING_BYTES {
            return give_up();
        }
        let mut bytes = vec![0; wanted];
        let mut done = 0;
        for piece in std::iter::once(&ByteRange::from(head)).chain(pieces) {
            done += piece.copy_out(&mut bytes[done..]);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let length = length as u32;
        let captured = CapturedFrame { interface: self.interface, heading, at_ns, length, bytes };
        if self.frames.try_send(captured).is_err() {
            give_up();
        }
    }
}

/// A mirror that is written until it is dropped.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) target: String,
    pub(crate) tally: Arc<MirrorCounters>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Opens the file and begins to write frames, `snap` bytes of each and `limit` of all
    /// at most. `ports` are the names of those that are watched, in the order of the
    /// watches that come back.
    ///
    /// # Errors
    /// What opening and writing the file says.
    pub(crate) fn start(
        target: &Path,
        snap: u32,
        limit: Option<u64>,
        ports: &[String],
    ) -> io::Result<(Self, Vec<MirrorTap>)> {
        let (file, at_once) = open(target)?;
        let tally = Arc::new(MirrorCounters::default());
        let (frames, captured) = sync_channel(MOST_WAITING);
        let watch = |interface| MirrorTap {
            interface,
            snap: snap as usize,
            frames: frames.clone(),
            tally: Arc::clone(&tally),
        };
        let watches = (0..ports.len() as u32).map(watch).collect();
        let left = limit.unwrap_or(u64::MAX);
        let mut writer =
            Writer { file, at_once, left, tally: Arc::clone(&tally), names: ports.to_vec() };
        writer.begin(snap)?;
        let thread = std::thread::Builder::new().name("vswitch-mirror".to_owned());
        let thread = thread.spawn(move || writer.run(&captured))?;
        let target = target.display().to_string();
        Ok((Self { target, tally, thread: Some(thread) }, watches))
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.tally.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// A file is written anew. A FIFO is opened for both, so that neither this nor its reader
/// has to be first.
fn open(target: &Path) -> io::Result<(OwnedFd, usize)> {
    if target == Path::new("-") {
        return Ok((io::stdout().as_fd().try_clone_to_owned()?, PIPE_BUF));
    }
    let is_fifo = std::fs::metadata(target).is_ok_and(|there| there.file_type().is_fifo());
    let mut options = OpenOptions::new();
    options.write(true).read(is_fifo).create(!is_fifo).truncate(!is_fifo);
    let file: File = options.custom_flags(libc::O_NONBLOCK).open(target)?;
    Ok((file.into(), usize::MAX))
}

/// Writes blocks.
#[derive(Debug)]
struct Writer {
    file: OwnedFd,
    /// Bytes that are written at once: the file may be one that waits.
    at_once: usize,
    /// Bytes that may still be written.
    left: u64,
    tally: Arc<MirrorCounters>,
    names: Vec<String>,
}

impl Writer {
    fn begin(&mut self, snap: u32) -> io::Result<()> {
        let mut bytes = section();
        for name in &self.names {
            bytes.extend(interface(name, snap));
        }
        self.write(&bytes)
    }

    fn run(mut self, captured: &Receiver<CapturedFrame>) {
        let mut works = true;
        loop {
            match captured.recv_timeout(LOOK) {
                Ok(frame) => {
                    self.tally.waiting_bytes.fetch_sub(frame.bytes.len(), Ordering::Relaxed);
                    let block = packet(&frame);
                    works = works && block.len() as u64 <= self.left;
                    works = works && self.write(&block).is_ok();
                    let counter = if works { &self.tally.written } else { &self.tally.dropped };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) if !self.tally.over.load(Ordering::Acquire) => {}
                Err(_) => break,
            }
        }
        if works {
            let dropped = self.tally.dropped.load(Ordering::Relaxed);
            let ends: Vec<u8> =
                (0..self.names.len() as u32).flat_map(|name| statistics(name, dropped)).collect();
            // The capture is whole without it.
            let _ = self.write(&ends);
        }
    }

    /// Waits a while for room.
    fn has_room(&self) -> bool {
        let longest = Timespec::try_from(LOOK).expect("a short time");
        let mut waited = [PollFd::new(&self.file, PollFlags::OUT)];
        // An interrupted wait is a short one.
        poll(&mut waited, Some(&longest)).is_ok_and(|ready| ready > 0)
    }

    /// Writes all, waiting for the reader as long as the switch runs.
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.left = self.left.saturating_sub(bytes.len() as u64);
        let mut ended = None;
        while !bytes.is_empty() {
            let part = &bytes[..bytes.len().min(self.at_once)];
            // What others own may have no O_NONBLOCK: it is written to once it has room.
            let room = self.at_once == usize::MAX || self.has_room();
            let written =
                if room { rustix::io::write(&self.file, part) } else { Err(Errno::AGAIN) };
            match written {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if self.tally.over.load(Ordering::Acquire) {
                        let ended = ended.get_or_insert_with(std::time::Instant::now);
                        if ended.elapsed() > PATIENCE {
                            return Err(io::ErrorKind::TimedOut.into());
                        }
                    }
                    if room {
                        self.has_room();
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const STATISTICS: u32 = 5;
/// Of the link: Ethernet.
const ETHERNET: u16 = 1;

/// A block of a kind: its length stands at both ends.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (12 + body.len().next_multiple_of(4)) as u32;
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend(kind.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(body);
    bytes.resize(length as usize - 4, 0);
    bytes.extend(length.to_le_bytes());
    bytes
}

/// An option: its code, its length, its value up to a multiple of four.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn section() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0x1a2b_3c4d_u32.to_le_bytes());
    body.extend([1, 0, 0, 0]);
    // Of the section: not known.
    body.extend(u64::MAX.to_le_bytes());
    option(&mut body, 4, b"vmlab switch");
    option(&mut body, 0, &[]);
    block(SECTION, &body)
}

fn interface(name: &str, snap: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(ETHERNET.to_le_bytes());
    body.extend([0, 0]);
    body.extend(snap.to_le_bytes());
    option(&mut body, 2, name.as_bytes());
    // Times are in units of 10^-9 s.
    option(&mut body, 9, &[9]);
    option(&mut body, 0, &[]);
    block(INTERFACE, &body)
}

fn packet(frame: &CapturedFrame) -> Vec<u8> {
    let mut body = Vec::with_capacity(40 + frame.bytes.len());
    body.extend(frame.interface.to_le_bytes());
    body.extend(((frame.at_ns >> 32) as u32).to_le_bytes());
    body.extend((frame.at_ns as u32).to_le_bytes());
    body.extend((frame.bytes.len() as u32).to_le_bytes());
    body.extend(frame.length.to_le_bytes());
    body.extend(&frame.bytes);
    body.resize(body.len().next_multiple_of(4), 0);
    option(&mut body, 2, &(frame.heading as u32).to_le_bytes());
    option(&mut body, 0, &[]);
    block(PACKET, &body)
}

fn statistics(interface: u32, dropped: u64) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let mut body = Vec::new();
    body.extend(interface.to_le_bytes());
    body.extend(((at_ns >> 32) as u32).to_le_bytes());
    body.extend((at_ns as u32).to_le_bytes());
    // Dropped by the system, of all ports together.
    option(&mut body, 7, &dropped.to_le_bytes());
    option(&mut body, 0, &[]);
    block(STATISTICS, &body)
}
