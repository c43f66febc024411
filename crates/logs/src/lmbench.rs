//! lmbench 2 and 3: the lines of its programs.
//!
//! Source: lmbench `src/lib_timing.c`, `src/lib_tcp.c` and its programs: `micro` prints
//! `NAME: N microseconds`, `bandwidth` `SIZE MB/s`, and tables begin with a
//! quoted title.

mod summary;

use super::failure::{failed, system_error};
use super::number;
use super::sign::{opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "lmbench",
    about: "lmbench 2 and 3: latencies, bandwidths, context switches, memory",
    signs: &[
        opens("[lmbench"),
        part("Simple syscall:"),
        part("Simple read:"),
        part("Select on "),
        part("Signal handler "),
        part("Protection fault:"),
        part("Pipe latency:"),
        part("Pipe bandwidth:"),
        part("AF_UNIX sock stream "),
        part("Process fork+"),
        part("Pagefaults on "),
        part("TCP latency using "),
        part("UDP latency using "),
        part("TCP/IP connection cost "),
        part("\"size=").when(|line| line.holds(" ovr=")),
        part("\"stride="),
        part("\"Mmap read bandwidth"),
        part("\"mappings"),
        part("\"File system latency"),
        part("Socket bandwidth using localhost"),
        opens("L M B E N C H").when(|line| line.ends_with("S U M M A R Y")),
        part("Processor, Processes - times in microseconds"),
        part("Context switching - times in microseconds"),
        part("*Local* Communication "),
        part("File & VM system latencies "),
        part("\"libc bcopy "),
        part("\"Memory read bandwidth"),
        part("\"Memory write bandwidth"),
    ],
    failures: &[
        // lmbench 3 says first which end of the pipe.
        system_error("read/write on pipe: ").within(),
        system_error("write on socket: "),
        system_error("control write: "),
        system_error("control nbytes: "),
        system_error("fork: "),
        system_error("pipe: "),
        system_error("socketpair: "),
        system_error("socket: "),
        system_error("bind: "),
        system_error("listen: "),
        system_error("accept: "),
        system_error("connect: "),
        system_error("malloc: "),
        system_error("valloc: "),
        system_error("VALLOC: "),
        system_error("mmap: "),
        system_error("msync: "),
        system_error("mknod: "),
        system_error("pmap_set: "),
        system_error("getsockname: "),
        system_error("getpeername: "),
        system_error("/dev/zero: "),
        system_error("/dev/null: "),
        system_error("child: no memory: "),
        system_error("parent: no memory: "),
        system_error("Could not copy file: "),
        system_error("Could not open device: "),
        system_error("creating private tempfile: "),
        system_error("server socket creation: "),
        system_error("socket connection: "),
        failed("lat_udp client: "),
        failed("bw_udp client: "),
        failed("lat_udp: Wrong sequence size"),
        failed("lat_udp server: recvfrom: got wrong size"),
        failed("lat_udp sendto: "),
        failed("bw_udp sendto: "),
        failed("lat_rpc: got bad data"),
        failed("lat_select: Could not open "),
        failed("lat_select::server(): fork() failed"),
        failed("bw_pipe: reader: error in read"),
        failed("lib TCP: No port found"),
        failed("lib UDP: No port found"),
        failed("Recv timed out"),
        failed("cannot create tcp service."),
        failed("cannot create udp service."),
        failed("unable to register (XACT_PROG"),
        failed("write: wanted="),
        failed("lock of fd").when(|line| line.holds(" failed")),
        failed("unlock of fd").when(|line| line.holds(" failed")),
    ],
    read,
};

/// What the rows of two numbers below a title are.
#[derive(Clone)]
enum PairColumns {
    /// Processes, and a context switch in us.
    Switches { size: String },
    /// Megabytes, and ns for a load.
    Loads { stride: String },
    /// Megabytes, and MB/s.
    Bandwidth(String),
    /// Megabytes, and us.
    Micros(String),
    /// A size, files, and creations and deletions a second.
    Files,
}

/// Reads any number of programs' outputs, and summaries.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut table: Option<PairColumns> = None;
    let mut summary: Option<summary::SummaryTable> = None;
    for line in text.lines() {
        if let Some(found) = summary::of_title(line.text) {
            summary = Some(found);
            table = None;
        } else if let Some(inside) = &mut summary {
            if !inside.line(line, log) {
                summary = None;
            }
        } else if let Some(title) = line.text.strip_prefix('"') {
            table = of_title(title);
        } else if line.text == "Socket bandwidth using localhost" {
            table = Some(PairColumns::Bandwidth("socket-bandwidth-using-localhost".to_owned()));
        } else if line.text.is_empty() {
            table = None;
        } else if let Some((name, rest)) =
            line.text.cut(": ").map(|(name, rest)| (name, line.part(rest)))
        {
            table = None;
            named(name, rest, line, log);
        } else if let Some(table) = &table {
            row(table, line, log);
        } else {
            bandwidth(line, log);
        }
    }
}

fn of_title(title: &str) -> Option<PairColumns> {
    if let Some(rest) = title.strip_prefix("size=") {
        let size = rest.split(' ').next()?.to_owned();
        return Some(PairColumns::Switches { size });
    }
    if let Some(stride) = title.strip_prefix("stride=") {
        return Some(PairColumns::Loads { stride: stride.trim().to_owned() });
    }
    let lower = title.to_ascii_lowercase();
    let name = slug(&lower);
    if lower.holds("bandwidth") || lower.holds("bcopy") || lower.holds("bzero") {
        return Some(PairColumns::Bandwidth(name));
    }
    if lower.starts_with("file system latency") {
        return Some(PairColumns::Files);
    }
    (lower.starts_with("mappings")).then_some(PairColumns::Micros(name))
}

/// `0k 18774 171147 234949`, with tabs.
fn files(words: &[&str], line: TextLine<'_>, log: &mut Log) {
    let [size, _, created, deleted] = words[..] else { return };
    let (Some(created), Some(deleted)) = (line.number(created), line.number(deleted)) else {
        return log.unread(line, "not two rates");
    };
    for (metric, value) in [("files-created-per-s", created), ("files-deleted-per-s", deleted)] {
        log.rate(metric, value, "1/s", line).label("size", size);
    }
}

/// `NAME: 0.0567 microseconds`, `NAME: 1234.56 MB/sec`
fn named(name: &str, rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = rest.all_words();
    let [value, unit, ..] = words[..] else { return };
    if name.len() > 60 || rest.may_be_cut(unit) {
        return;
    }
    let Some(value) = number::parse(value) else { return };
    match unit {
        "microseconds" => drop(log.time("latency", value / 1e6, line).label("test", slug(name))),
        "nanoseconds" => drop(log.time("latency", value / 1e9, line).label("test", slug(name))),
        "MB/sec" => drop(
            log.rate("rate", number::scaled(value, 1e6), "B/s", line).label("test", slug(name)),
        ),
        "KB/sec" => drop(log.rate("rate", value * 1e3, "B/s", line).label("test", slug(name))),
        _ => {}
    }
}

/// What `bw_mem 8m rd` prints, and nothing else of it: `8.39 5270.62`, each
/// with two decimals, or six if less than one. Source: `lib_timing.c`,
/// `bandwidth`.
fn bandwidth(line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let [megabytes, rate] = words[..] else { return };
    let printed = |word: &str| {
        let (whole, decimals) = word.split_once('.')?;
        let wanted = if whole == "0" { 6 } else { 2 };
        (decimals.len() == wanted).then(|| number::parse(word)).flatten()
    };
    if let (Some(_), Some(rate)) = (printed(megabytes), printed(rate)) {
        if line.is_open() {
            return log.unread(line, "the line may end early");
        }
        log.rate("rate", number::scaled(rate, 1e6), "B/s", line).label("size-mb", megabytes);
    }
}

fn row(table: &PairColumns, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    if matches!(table, PairColumns::Files) {
        return files(&words, line, log);
    }
    let (left, right) = match words[..] {
        [left, right] => (left, right),
        // Sockets' rates have their unit.
        [left, right, "MB/sec"] if matches!(table, PairColumns::Bandwidth(_)) => (left, right),
        _ => return,
    };
    let (Some(_), Some(value)) = (number::parse(left), line.number(right)) else {
        if number::parse(left).is_some() {
            log.unread(line, "not two numbers");
        }
        return;
    };
    match table {
        PairColumns::Switches { size } => {
            log.time("context-switch", value / 1e6, line)
                .label("processes", left)
                .label("size", size.as_str());
        }
        PairColumns::Loads { stride } => {
            log.time("load", value / 1e9, line)
                .label("size-mb", left)
                .label("stride", stride.as_str());
        }
        PairColumns::Bandwidth(name) => {
            log.rate("rate", number::scaled(value, 1e6), "B/s", line)
                .label("size-mb", left)
                .label("test", name.as_str());
        }
        PairColumns::Files => {}
        PairColumns::Micros(name) => {
            log.time("latency", value / 1e6, line)
                .label("size-mb", left)
                .label("test", name.as_str());
        }
    }
}
