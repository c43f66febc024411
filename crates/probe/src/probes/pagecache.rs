//! pagecache: large scans that are read and written once, beside a file that
//! is read again and again.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use crate::args::{Args, OptionValue};
use crate::disk::{self, device_read_bytes};
use crate::document::ProbeResult;
use crate::machine;
use crate::scratch_file::ScratchFile;
use crate::spec::{ErrorContext as _, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT};

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "pagecache",
    summary: "Scans of a file larger or smaller than the page cache, and what survives them",
    about: "The pattern of a Hadoop node: large files are written once, scanned from beginning to \
            end, and rewritten, beside a small hot file. It writes the large file, drops the \
            page cache, scans it cold and again, reads the hot file twice, scans the large file \
            once more, reads the hot file again, and rewrites the large file. Hits are bytes that \
            no device read, of those asked for. A file that fits is read from memory the second \
            time; one that does not is read from the device all over again, and whether the hot \
            file survives is the guest's replacement policy. In a VM the host may cache the \
            same pages once more (`cache=`), so a miss in the guest can be fast. Writes are timed \
            with their fdatasync.",
    verifies: "every block that is read holds its number, and files have the size that was \
               written.",
    options: &[
        Opt::text("dir", "/var/tmp", "Folder for the two files, on a real disk"),
        Opt::int("size-percent", (1, 1000), 25, "Size of the large file, of the guest's memory")
            .unit("%"),
        Opt::int("size-mib", (0, 1 << 24), 0, "Size of the large file; 0 to go by --size-percent")
            .unit("MiB"),
        Opt::int("hot-percent", (1, 100), 10, "Size of the hot file, of the large one").unit("%"),
        Opt::int("block-kib", (4, 1 << 16), 1024, "Bytes of one read or write").unit("KiB"),
        Opt::choice(
            "drop",
            &["auto", "files"],
            "auto",
            "What is dropped before the cold scan: the whole page cache where that is \
                   allowed, or the pages of the two files alone",
        ),
        Opt { default: OptionDefault::Int(1), ..REPEAT },
    ],
    metrics: &[
        ProbeMetric::rate("write", "B/s", "Writing the large file"),
        ProbeMetric::rate("scan-cold", "B/s", "First scan, the page cache dropped"),
        ProbeMetric::rate("scan-warm", "B/s", "Second scan"),
        ProbeMetric::rate("rewrite", "B/s", "Writing over the large file"),
        ProbeMetric::rate("hot", "B/s", "Reading the hot file after another scan"),
        ProbeMetric::ratio("hits-cold", "Part of the first scan that no device read"),
        ProbeMetric::ratio("hits-warm", "Part of the second scan that no device read"),
        ProbeMetric::ratio(
            "hits-hot",
            "Part of the hot file that no device read after another scan",
        ),
    ],
    histograms: &[],
    example: "--size-percent 150 --dir /var/tmp",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let total = machine::meminfo("MemTotal").unwrap_or(1 << 30);
    let block = args.size("block-kib") << 10;
    let bytes = match args.count("size-mib") {
        0 => total / 100 * args.count("size-percent"),
        mib => mib << 20,
    };
    let blocks = (bytes / block as u64).max(1);
    let hot_blocks = (blocks * args.count("hot-percent") / 100).max(1);
    outcome.param("size-mib", OptionValue::Int(((blocks * block as u64) >> 20) as i64));
    outcome.fact("memory-bytes", total.to_string());
    let dir = Path::new(args.text("dir"));
    disk::look_at(dir, (blocks + hot_blocks) * block as u64, outcome)?;

    for repeat in 0..args.size("repeat") {
        let begin = Instant::now();
        let mut large = BlockFile::write(dir, "large", blocks, block)?;
        let write_s = begin.elapsed().as_secs_f64();
        let mut hot = BlockFile::write(dir, "hot", hot_blocks, block)?;
        let dropped = large.forget()? && hot.forget()?;
        let all = args.text("drop") == "auto" && disk::drop_page_cache();
        outcome.fact("dropped", if all { "page cache" } else { "files" });
        if !dropped {
            outcome.warn("The files' pages could not be dropped");
        }
        let cold = large.scan()?;
        let warm = large.scan()?;
        hot.scan()?;
        hot.scan()?;
        let third = large.scan()?;
        let again = hot.scan()?;
        let rewrite_s = large.rewrite()?;
        let last = large.scan()?;

        let rate = |seconds: f64| large.bytes() as f64 / seconds;
        let mut push = |name: &str, value: f64| {
            outcome.push(name, value).repeat(repeat);
        };
        push("write", rate(write_s));
        push("scan-cold", rate(cold.seconds));
        push("scan-warm", rate(warm.seconds));
        push("rewrite", rate(rewrite_s));
        push("hot", hot.bytes() as f64 / again.seconds);
        for (name, scan) in [("hits-cold", &cold), ("hits-warm", &warm), ("hits-hot", &again)] {
            if let Some(hits) = scan.hits {
                push(name, hits);
            }
        }
        if cold.hits.is_none() {
            outcome.warn("The guest counts no bytes that devices read: no hits");
        }
        let wrong: u64 = [cold, warm, third, again, last].iter().map(|scan| scan.wrong).sum();
        outcome.check(
            format!("blocks {repeat}"),
            wrong == 0,
            format!("{wrong} blocks were not what had been written"),
        );
    }
    Ok(())
}

/// A file of numbered blocks that is removed when this is dropped.
struct BlockFile {
    file: ScratchFile,
    blocks: u64,
    buffer: Vec<u8>,
    /// Told apart: what the first writing and the rewriting leave in a block.
    generation: u64,
}

struct Scan {
    seconds: f64,
    hits: Option<f64>,
    wrong: u64,
}

impl BlockFile {
    fn write(dir: &Path, name: &str, blocks: u64, block: usize) -> Result<Self, ProbeError> {
        let file = ScratchFile::create(dir, name)?;
        let mut scanned = Self { file, blocks, buffer: vec![0; block], generation: 0 };
        scanned.rewrite()?;
        Ok(scanned)
    }

    fn bytes(&self) -> u64 {
        self.blocks * self.buffer.len() as u64
    }

    fn stamp(&self, block: u64) -> [u8; 8] {
        (block << 8 | self.generation).to_le_bytes()
    }

    /// Writes every block; how long it took, with all bytes on the device.
    fn rewrite(&mut self) -> Result<f64, ProbeError> {
        let what = self.file.what("write");
        let begin = Instant::now();
        self.generation += 1;
        self.file.file.seek(SeekFrom::Start(0)).tried(&*what)?;
        let end = self.buffer.len() - 8;
        for block in 0..self.blocks {
            let stamp = self.stamp(block);
            self.buffer[..8].copy_from_slice(&stamp);
            self.buffer[end..].copy_from_slice(&stamp);
            self.file.file.write_all(&self.buffer).tried(&*what)?;
        }
        self.file.file.sync_data().tried(&*what)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Reads every block.
    fn scan(&mut self) -> Result<Scan, ProbeError> {
        let what = self.file.what("read");
        let (begin, before) = (Instant::now(), device_read_bytes());
        self.file.file.seek(SeekFrom::Start(0)).tried(&*what)?;
        let (mut wrong, end) = (0, self.buffer.len() - 8);
        for block in 0..self.blocks {
            self.file.file.read_exact(&mut self.buffer).tried(&*what)?;
            let stamp = self.stamp(block);
            wrong += u64::from(self.buffer[..8] != stamp || self.buffer[end..] != stamp);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let missed = device_read_bytes().zip(before).map(|(now, before)| now - before);
        let hits = missed.map(|missed| (1.0 - missed as f64 / self.bytes() as f64).max(0.0));
        Ok(Scan { seconds, hits, wrong })
    }

    /// Drops the file's pages; false if the file system can't.
    fn forget(&self) -> Result<bool, ProbeError> {
        self.file.file.sync_all().tried("write the files back")?;
        Ok(fadvise(&self.file.file, 0, None, Advice::DontNeed).is_ok())
    }
}
