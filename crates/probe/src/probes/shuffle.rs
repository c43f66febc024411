//! shuffle: a sort job through temporary files, as map-reduce engines do it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{IoSlice, IoSliceMut, Read as _, Seek as _, SeekFrom, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use crate::args::{Args, OptionValue};
use crate::disk::{self, DiskStatistics, device_read_bytes};
use crate::document::ProbeResult;
use crate::machine;
use crate::scratch_file::ScratchFile;
use crate::spec::{
    CPUS, ErrorContext as _, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, THREADS,
};
use crate::team::Team;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "shuffle",
    summary: "A sort job through temporary files, and what it leaves of the page cache",
    about: "The pattern of a map-reduce job (Hadoop's sort and shuffle). Each thread reads its \
            part of an input that lives long, sorts it a buffer at a time, and spills every \
            buffer into a temporary file. Then each thread merges its range of keys from all \
            temporary files into an output, which is made durable, and the temporary files are \
            removed. Together they are as large as the input. The page cache can't know which \
            file is needed again: `hint` tells it. `dontneed` writes a temporary file out at once \
            and gives its pages back as they have been read (fdatasync, `POSIX_FADV_DONTNEED`); `noreuse` says that \
            reading them does not make them worth keeping (`POSIX_FADV_NOREUSE`, Linux 6.3); \
            `dontcache` lets each request drop its own pages (`RWF_DONTCACHE`, Linux 6.14). \
            Without a hint a temporary file may be removed before it reached the disk. \
            Afterwards the input is read again, as the next job would. Bytes written are the \
            whole disk's, those read this program's.",
    verifies: "every record of the input comes out once, in the order of the keys.",
    options: &[
        THREADS,
        CPUS,
        Opt::text("dir", "/var/tmp", "Folder for all files, on a real disk"),
        Opt::int("size-percent", (1, 1000), 50, "Size of the input, of the guest's memory")
            .unit("%"),
        Opt::int("size-mib", (0, 1 << 24), 0, "Size of the input; 0 to go by --size-percent")
            .unit("MiB"),
        Opt::int("buffer-mib", (1, 1 << 14), 16, "What a thread sorts at a time").unit("MiB"),
        Opt::choice(
            "hint",
            &["none", "dontneed", "noreuse", "dontcache"],
            "none",
            "What the kernel is told of the temporary files",
        ),
        Opt { default: OptionDefault::Int(1), ..REPEAT },
    ],
    metrics: &[
        ProbeMetric::time("job", "Time of the whole job, the output on the disk"),
        ProbeMetric::time("map", "Time of reading, sorting and spilling"),
        ProbeMetric::time("reduce", "Time of merging and writing the output"),
        bytes("read-bytes", "Bytes that the job read from the disk"),
        bytes("written-bytes", "Bytes that reached the disk during the job"),
        ProbeMetric::ratio("input-kept", "Part of the input that the next reader finds in memory"),
    ],
    histograms: &[],
    example: "--size-mib 256 --hint dontneed",
    run,
};

/// Bytes of a record: its key, its number, and what is only carried along.
const RECORD_BYTES: usize = 128;
/// Bytes of one request of a file that is read or written from end to end.
const REQUEST_BYTES: usize = 1 << 20;
/// Bytes that a merge holds of each temporary file.
const SEGMENT_BYTES: usize = 64 << 10;
/// `RWF_DONTCACHE` (linux/fs.h, since 6.14).
const DONTCACHE: u32 = 0x80;

const fn bytes(name: &'static str, help: &'static str) -> ProbeMetric {
    ProbeMetric { unit: "B", ..ProbeMetric::count(name, help) }
}

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let team = Team::new(args.size("threads"), &args.vcpus("cpus"))?;
    let memory = machine::meminfo("MemTotal").unwrap_or(1 << 30);
    let bytes = match args.count("size-mib") {
        0 => memory / 100 * args.count("size-percent"),
        mib => mib << 20,
    };
    let records = (bytes / RECORD_BYTES as u64).max(team.threads() as u64);
    outcome.param("size-mib", OptionValue::Int((bytes >> 20) as i64));
    outcome.fact("memory-bytes", memory.to_string());
    let dir = Path::new(args.text("dir"));
    // The input, the temporary files and the output.
    disk::look_at(dir, bytes * 3, outcome)?;
    let job = SortJob {
        team: &team,
        dir,
        records: usize::try_from(records).map_err(|_| too_large(bytes))?,
        buffer: (args.size("buffer-mib") << 20) / RECORD_BYTES,
        hint: FileAdvice::named(args.text("hint")),
    };
    for repeat in 0..args.size("repeat") {
        let input = job.write_input()?;
        let dropped =
            input.iter().all(|part| fadvise(&part.file, 0, None, Advice::DontNeed).is_ok());
        let all = disk::drop_page_cache();
        outcome.fact("dropped", if all { "page cache" } else { "files" });
        if !dropped && !all {
            outcome.warn("The input's pages could not be dropped");
        }
        let device = input.first().and_then(|part| DiskStatistics::of(&part.file));
        let counted =
            || (device_read_bytes(), device.as_ref().and_then(DiskStatistics::written_bytes));

        let (begin, before) = (Instant::now(), counted());
        let spills = job.map(&input)?;
        let map_s = begin.elapsed().as_secs_f64();
        let (output, merged) = job.reduce(&spills)?;
        drop(spills);
        let (job_s, after) = (begin.elapsed().as_secs_f64(), counted());

        let mut push = |name: &str, value: f64| {
            outcome.push(name, value).repeat(repeat);
        };
        push("job", job_s);
        push("map", map_s);
        push("reduce", job_s - map_s);
        let since = |now: Option<u64>, then: Option<u64>| Some((now? - then?) as f64);
        let (read, written) = (since(after.0, before.0), since(after.1, before.1));
        if let Some(read) = read {
            push("read-bytes", read);
        }
        if let Some(written) = written {
            push("written-bytes", written);
        }
        if let Some(kept) = kept(&input)? {
            push("input-kept", kept);
        }
        if read.is_none() {
            outcome.warn("The guest counts no bytes that devices read");
        }
        if written.is_none() {
            outcome.warn("The folder is on no single block device: no bytes written");
        }
        drop(output);
        job.check(&merged, repeat, outcome);
    }
    Ok(())
}

fn too_large(bytes: u64) -> ProbeError {
    ProbeError::Refused(format!("{bytes} bytes do not fit into this machine's addresses"))
}

/// What the kernel is told of temporary files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileAdvice {
    None,
    DontNeed,
    NoReuse,
    DontCache,
}

impl FileAdvice {
    /// One of the words of the option.
    fn named(word: &str) -> Self {
        match word {
            "dontneed" => Self::DontNeed,
            "noreuse" => Self::NoReuse,
            "dontcache" => Self::DontCache,
            _ => Self::None,
        }
    }

    fn flags(self) -> ReadWriteFlags {
        match self {
            Self::DontCache => ReadWriteFlags::from_bits_retain(DONTCACHE),
            _ => ReadWriteFlags::empty(),
        }
    }
}

/// A record; its first bytes are the key, big end first.
type SortRecord = [u8; RECORD_BYTES];

/// Record `number` of the input.
fn numbered(number: u64) -> SortRecord {
    let mut record = [b'.'; RECORD_BYTES];
    record[..8].copy_from_slice(&scattered(number).to_be_bytes());
    record[8..16].copy_from_slice(&number.to_le_bytes());
    record
}

fn key_of(record: &SortRecord) -> u64 {
    u64::from_be_bytes(record[..8].try_into().expect("eight bytes"))
}

fn number_of(record: &SortRecord) -> u64 {
    u64::from_le_bytes(record[8..16].try_into().expect("eight bytes"))
}

/// SplitMix64's finaliser: a permutation, so that no two keys are equal.
fn scattered(number: u64) -> u64 {
    let mut key = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ (key >> 31)
}

/// Sorted records of one buffer, and where each thread's range of keys begins.
struct Spill {
    file: ScratchFile,
    hint: FileAdvice,
    /// Numbers of records before each range, and before the end.
    ranges: Vec<usize>,
}

impl Spill {
    /// Writes `sorted`, cut into `parts` ranges of keys.
    fn write(
        file: ScratchFile,
        hint: FileAdvice,
        sorted: &[SortRecord],
        parts: usize,
    ) -> Result<Self, ProbeError> {
        let ranges = (0..=parts)
            .map(|part| sorted.partition_point(|record| part_of(key_of(record), parts) < part));
        let spill = Self { ranges: ranges.collect(), file, hint };
        if hint == FileAdvice::NoReuse {
            spill.advise(Advice::NoReuse, 0, None)?;
        }
        let text: &[u8] = bytemuck::cast_slice(sorted);
        let mut at = 0;
        while at < text.len() {
            let end = text.len().min(at + REQUEST_BYTES);
            let slices = [IoSlice::new(&text[at..end])];
            let written = pwritev2(&spill.file.file, &slices, at as u64, hint.flags());
            match written.map_err(|error| spill.failed("write", error))? {
                0 => return Err(spill.failed("write", rustix::io::Errno::IO)),
                written => at += written,
            }
        }
        if hint == FileAdvice::DontNeed {
            // Only clean pages can be dropped.
            spill.file.file.sync_data().tried(spill.file.what("write"))?;
        }
        Ok(spill)
    }

    fn advise(&self, advice: Advice, at: u64, len: Option<NonZeroU64>) -> Result<(), ProbeError> {
        let advised = fadvise(&self.file.file, at, len, advice).map_err(std::io::Error::from);
        advised.tried(self.file.what("tell the kernel of"))
    }

    fn failed(&self, verb: &str, error: rustix::io::Errno) -> ProbeError {
        if error == rustix::io::Errno::OPNOTSUPP && self.hint == FileAdvice::DontCache {
            return ProbeError::Refused(String::from(
                "The kernel or its file system has no RWF_DONTCACHE (ext4 and xfs have since \
                 Linux 6.14); see --hint",
            ));
        }
        ProbeError::Os { what: self.file.what(verb), source: error.into() }
    }

    /// Records `from..` of the file, as many as `records` takes.
    fn read(&self, from: usize, records: &mut [SortRecord]) -> Result<(), ProbeError> {
        let start = (from * RECORD_BYTES) as u64;
        let text: &mut [u8] = bytemuck::cast_slice_mut(records);
        let mut done = 0;
        while done < text.len() {
            let mut slices = [IoSliceMut::new(&mut text[done..])];
            let at = start + done as u64;
            let read = preadv2(&self.file.file, &mut slices, at, self.hint.flags());
            match read.map_err(|error| self.failed("read", error))? {
                0 => return Err(self.failed("read", rustix::io::Errno::IO)),
                read => done += read,
            }
        }
        if self.hint == FileAdvice::DontNeed {
            self.advise(Advice::DontNeed, start, NonZeroU64::new(done as u64))?;
        }
        Ok(())
    }
}

/// Which of `parts` equal ranges of all keys holds `key`.
fn part_of(key: u64, parts: usize) -> usize {
    ((u128::from(key) * parts as u128) >> 64) as usize
}

/// Where a merge stands in one temporary file.
struct MergeSegment<'s> {
    spill: &'s Spill,
    next: usize,
    end: usize,
    held: Vec<SortRecord>,
    at: usize,
}

impl MergeSegment<'_> {
    /// The next record, or none at its end.
    fn take(&mut self) -> Result<Option<SortRecord>, ProbeError> {
        if self.at == self.held.len() {
            let many = (self.end - self.next).min(SEGMENT_BYTES / RECORD_BYTES);
            self.held.resize(many, numbered(0));
            self.spill.read(self.next, &mut self.held)?;
            self.next += many;
            self.at = 0;
        }
        let record = self.held.get(self.at).copied();
        self.at += 1;
        Ok(record)
    }
}

/// What came out of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct MergeResult {
    records: u64,
    /// Sum of the records' numbers, each scattered once more.
    sum: u64,
    /// Records whose key was not above the one before.
    unordered: u64,
}

impl MergeResult {
    fn add(&mut self, number: u64) {
        self.records += 1;
        self.sum = self.sum.wrapping_add(scattered(!number));
    }
}

struct SortJob<'j> {
    team: &'j Team,
    dir: &'j Path,
    records: usize,
    /// Records of a buffer.
    buffer: usize,
    hint: FileAdvice,
}

impl SortJob<'_> {
    /// One file a thread, on the disk.
    fn write_input(&self) -> Result<Vec<ScratchFile>, ProbeError> {
        let parts = self.team.all(|thread| {
            let part = ScratchFile::create(self.dir, &format!("input-{thread}"))?;
            let mut records = Vec::with_capacity(REQUEST_BYTES / RECORD_BYTES);
            let range = self.team.range(self.records, thread);
            for number in range.clone() {
                records.push(numbered(number as u64));
                if records.len() == records.capacity() || number + 1 == range.end {
                    let text: &[u8] = bytemuck::cast_slice(&records);
                    (&part.file).write_all(text).tried(part.what("write"))?;
                    records.clear();
                }
            }
            part.file.sync_all().tried(part.what("write"))?;
            Ok(part)
        });
        parts.into_iter().collect()
    }

    /// Sorts the input into temporary files.
    fn map(&self, input: &[ScratchFile]) -> Result<Vec<Spill>, ProbeError> {
        let parts = self.team.threads();
        let spills = self.team.each(input, |thread, part| {
            let all = self.team.range(self.records, thread).len();
            let (mut done, mut spills) = (0, Vec::new());
            let mut buffer = vec![numbered(0); self.buffer.min(all)];
            (&part.file).seek(SeekFrom::Start(0)).tried(part.what("read"))?;
            while done < all {
                let many = buffer.len().min(all - done);
                let records = &mut buffer[..many];
                let text: &mut [u8] = bytemuck::cast_slice_mut(records);
                for request in text.chunks_mut(REQUEST_BYTES) {
                    (&part.file).read_exact(request).tried(part.what("read"))?;
                }
                records.sort_unstable_by_key(key_of);
                let name = format!("spill-{thread}-{}", spills.len());
                let file = ScratchFile::create(self.dir, &name)?;
                spills.push(Spill::write(file, self.hint, records, parts)?);
                done += many;
            }
            Ok(spills)
        });
        let spills: Result<Vec<Vec<Spill>>, ProbeError> = spills.into_iter().collect();
        Ok(spills?.into_iter().flatten().collect())
    }

    /// Merges the temporary files into one output a thread.
    fn reduce(&self, spills: &[Spill]) -> Result<(Vec<ScratchFile>, Vec<MergeResult>), ProbeError> {
        let outputs = self.team.all(|thread| {
            let output = ScratchFile::create(self.dir, &format!("output-{thread}"))?;
            let merged = merge(spills, thread, |text| {
                (&output.file).write_all(text).tried(output.what("write"))
            })?;
            output.file.sync_data().tried(output.what("write"))?;
            Ok((output, merged))
        });
        let outputs: Result<Vec<_>, ProbeError> = outputs.into_iter().collect();
        Ok(outputs?.into_iter().unzip())
    }

    fn check(&self, merged: &[MergeResult], repeat: usize, outcome: &mut ProbeResult) {
        let mut expected = MergeResult::default();
        (0..self.records as u64).for_each(|number| expected.add(number));
        let total = merged.iter().fold(MergeResult::default(), |total, part| MergeResult {
            records: total.records + part.records,
            sum: total.sum.wrapping_add(part.sum),
            unordered: total.unordered + part.unordered,
        });
        outcome.check(
            format!("records {repeat}"),
            total == expected,
            format!(
                "{} of {} records came out, {} of them out of order{}",
                total.records,
                expected.records,
                total.unordered,
                if total.sum == expected.sum { "" } else { "; they are not those of the input" }
            ),
        );
    }
}

/// Merges range `part` of every temporary file into `write`.
fn merge(
    spills: &[Spill],
    part: usize,
    mut write: impl FnMut(&[u8]) -> Result<(), ProbeError>,
) -> Result<MergeResult, ProbeError> {
    let mut segments: Vec<MergeSegment<'_>> = spills
        .iter()
        .map(|spill| MergeSegment {
            spill,
            next: spill.ranges[part],
            end: spill.ranges[part + 1],
            held: Vec::new(),
            at: 0,
        })
        .collect();
    let mut heads: Vec<Option<SortRecord>> = Vec::with_capacity(segments.len());
    let mut order = BinaryHeap::with_capacity(segments.len());
    for (index, segment) in segments.iter_mut().enumerate() {
        let head = segment.take()?;
        order.extend(head.map(|record| Reverse((key_of(&record), index))));
        heads.push(head);
    }
    let (mut merged, mut last) = (MergeResult::default(), None);
    let mut buffer: Vec<SortRecord> = Vec::with_capacity(REQUEST_BYTES / RECORD_BYTES);
    while let Some(Reverse((key, index))) = order.pop() {
        merged.unordered += u64::from(last.is_some_and(|last| last >= key));
        last = Some(key);
        if let Some(record) = heads[index] {
            merged.add(number_of(&record));
            buffer.push(record);
        }
        if buffer.len() == buffer.capacity() {
            write(bytemuck::cast_slice(&buffer))?;
            buffer.clear();
        }
        heads[index] = segments[index].take()?;
        order.extend(heads[index].map(|record| Reverse((key_of(&record), index))));
    }
    write(bytemuck::cast_slice(&buffer))?;
    Ok(merged)
}

/// Reads the input once more; the part of it that no device read.
fn kept(input: &[ScratchFile]) -> Result<Option<f64>, ProbeError> {
    let (before, mut all) = (device_read_bytes(), 0);
    let mut buffer = vec![0; REQUEST_BYTES];
    for part in input {
        let mut at = 0;
        loop {
            match part.file.read_at(&mut buffer, at).tried(part.what("read"))? {
                0 => break,
                read => at += read as u64,
            }
        }
        all += at;
    }
    let missed = device_read_bytes().zip(before).map(|(now, before)| now - before);
    Ok(missed.map(|missed| (1.0 - missed as f64 / all.max(1) as f64).max(0.0)))
}
