//! The tests of the system: calls, pipes, processes, files, shell scripts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::Mode;
use rustix::process::{getpid, getuid, umask};
use rustix::time::{ClockId, clock_gettime};

use super::counted::{CopyCount, NAME};
use crate::pace::{TimedLoop, for_seconds};

/// dup, close, getpid, getuid and umask are one loop.
pub(super) fn calls(seconds: f64) -> io::Result<CopyCount> {
    let (file, own) = (File::open("/dev/null")?, getpid());
    let mut right = true;
    let done = for_seconds(seconds, |n| {
        for _ in 0..n {
            // Dropping the copy closes it.
            right &= rustix::io::dup(&file).is_ok();
            right &= getpid() == own;
            std::hint::black_box(getuid());
            umask(Mode::WGRP | Mode::WOTH);
        }
    });
    Ok(CopyCount::new(done, right))
}

/// 512 bytes into a pipe and out of it.
pub(super) fn pipe(seconds: f64) -> io::Result<CopyCount> {
    let (reader, writer) = rustix::pipe::pipe()?;
    let (mut buffer, mut right) = ([b'p'; 512], true);
    let done = for_seconds(seconds, |n| {
        for _ in 0..n {
            right &= rustix::io::write(&writer, &buffer) == Ok(512);
            right &= rustix::io::read(&reader, &mut buffer) == Ok(512);
        }
    });
    Ok(CopyCount::new(done, right))
}

/// A number goes to another process and back, each time one higher.
pub(super) fn context(seconds: f64) -> io::Result<CopyCount> {
    let (there, back) = (rustix::pipe::pipe()?, rustix::pipe::pipe()?);
    match fork::fork()? {
        fork::Fork::Child => {
            // Its ends alone, so that it sees the parent go.
            drop((there.1, back.0));
            let (mut from, mut to) = (File::from(there.0), File::from(back.1));
            let (mut number, mut expected) = ([0; 8], 0_u64);
            while from.read_exact(&mut number).is_ok() {
                let right = u64::from_le_bytes(number) == expected;
                expected += 1;
                if !right || to.write_all(&number).is_err() {
                    break;
                }
            }
            end_child()
        }
        fork::Fork::Parent(child) => {
            drop((there.0, back.1));
            let (mut to, mut from) = (File::from(there.1), File::from(back.0));
            let (mut number, mut failed) = (0_u64, None);
            let mut answer = [0; 8];
            let done = for_seconds(seconds, |n| {
                for _ in 0..n {
                    let asked = number.to_le_bytes();
                    let answered = to.write_all(&asked).and_then(|()| from.read_exact(&mut answer));
                    if answered.is_err() || answer != asked {
                        failed = Some(number);
                        return;
                    }
                    number += 1;
                }
            });
            drop((to, from));
            fork::waitpid(child)?;
            Ok(CopyCount::new(done, failed.is_none()))
        }
    }
}

/// A process that ends at once, and waiting for it.
pub(super) fn spawn(seconds: f64) -> io::Result<CopyCount> {
    let mut failed = None;
    let done = for_seconds(seconds, |n| {
        for _ in 0..n {
            match fork::fork() {
                Ok(fork::Fork::Child) => end_child(),
                Ok(fork::Fork::Parent(child)) => match fork::waitpid(child) {
                    Ok(0) => {}
                    Ok(status) => failed = Some(io::Error::other(format!("status {status}"))),
                    Err(error) => failed = Some(error),
                },
                Err(error) => failed = Some(error),
            }
        }
    });
    match failed {
        None => Ok(CopyCount::new(done, true)),
        Some(error) => Err(error),
    }
}

/// Ends a forked child.
fn end_child() -> ! {
    std::process::exit(0)
}

/// This program puts itself in its own place until the time is over: the words
/// after its name are the number of times so far and when it began.
pub(super) fn execl(seconds: f64, words: &[String]) -> io::Result<CopyCount> {
    let now = clock_gettime(ClockId::Monotonic);
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let (count, begin_ns) = match words {
        [count, begin] => (count.parse(), begin.parse()),
        _ => (Ok(0), Ok(now_ns)),
    };
    let bad = |_| io::Error::other("the number of executions is lost");
    let (count, begin_ns): (u64, u64) = (count.map_err(bad)?, begin_ns.map_err(bad)?);
    let elapsed_s = now_ns.saturating_sub(begin_ns) as f64 / 1e9;
    if elapsed_s >= seconds && count > 0 {
        return Ok(CopyCount::new(TimedLoop { ops: count, elapsed_s }, true));
    }
    let words = [&(count + 1).to_string(), &begin_ns.to_string()].map(String::clone);
    Err(Command::new("/proc/self/exe")
        .args([NAME, "execl", &seconds.to_string(), ""])
        .args(words)
        .exec())
}

/// Copies a file of `blocks` blocks of `size` bytes over and over; one
/// operation is one byte.
pub(super) fn copy(seconds: f64, dir: &Path, size: usize, blocks: u64) -> io::Result<CopyCount> {
    let folder = ScratchFolder::new(dir)?;
    let open = |name: &str| {
        let path = folder.0.join(name);
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    };
    let (mut from, mut to) = (open("from")?, open("to")?);
    let mut buffer: Vec<u8> = (0..size).map(|at| at as u8).collect();
    for _ in 0..blocks {
        from.write_all(&buffer)?;
    }
    from.seek(SeekFrom::Start(0))?;
    let (mut bytes, mut failed) = (0, None);
    let done = for_seconds(seconds, |n| {
        for _ in 0..n {
            let moved = from.read(&mut buffer).and_then(|read| {
                if read == 0 {
                    from.seek(SeekFrom::Start(0))?;
                    to.seek(SeekFrom::Start(0))?;
                }
                to.write_all(&buffer[..read]).map(|()| read as u64)
            });
            match moved {
                Ok(moved) => bytes += moved,
                Err(error) => {
                    failed = Some(error);
                    return;
                }
            }
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let mut copied = vec![0; size];
    to.seek(SeekFrom::Start(0))?;
    to.read_exact(&mut copied)?;
    let right = copied.iter().enumerate().all(|(at, byte)| *byte == at as u8);
    Ok(CopyCount::new(TimedLoop { ops: bytes, ..done }, right))
}

/// Lines of the text that the shell script works on.
const LINES: u64 = 200;

/// A shell script that sorts, dumps, searches and counts a text, `at_once`
/// times at the same time.
pub(super) fn shell(seconds: f64, dir: &Path, at_once: usize) -> io::Result<CopyCount> {
    let folder = ScratchFolder::new(dir)?;
    let text = text();
    let found = text.lines().filter(|line| line.contains("7")).count();
    fs::write(folder.0.join("text"), text)?;
    let script = format!(
        "one() {{ sort <text >s$1 && od s$1 | sort -n >o$1 && grep 7 s$1 | tee g$1 | wc -l >w$1 \
         && read n <w$1 && rm s$1 o$1 g$1 w$1 && [ \"$n\" -eq {found} ]; }}\n\
         all=\nfor i in $(seq {at_once}); do one $i & all=\"$all $!\"; done\n\
         for p in $all; do wait $p || exit 1; done"
    );
    let (mut right, mut failed) = (true, None);
    let done = for_seconds(seconds, |n| {
        for _ in 0..n {
            let ended = Command::new("/bin/sh")
                .args(["-c", &script])
                .current_dir(&folder.0)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status();
            match ended {
                Ok(status) => right &= status.success(),
                Err(error) => failed = Some(error),
            }
        }
    });
    match failed {
        None => Ok(CopyCount::new(done, right)),
        Some(error) => Err(error),
    }
}

/// Lines of numbers without order.
fn text() -> String {
    let mut state = 1_u64;
    (0..LINES)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{} {}\n", state >> 40, state >> 20 & 0xFFFF)
        })
        .collect()
}

/// A folder of this process alone, removed when this is dropped.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("vmlab-probe-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What can't be removed now can't be later.
        let _ = fs::remove_dir_all(&self.0);
    }
}
