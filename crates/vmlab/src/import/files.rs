//! Finds logs, decompresses and decodes them, and knows what their paths say.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::unpacked::UnpackedOutput;
use super::utf16::{self, Utf16Text};
use crate::input;

/// Endings of compressed files, and the program that undoes it.
const COMPRESSED: [(&str, &str); 4] =
    [("gz", "gzip"), ("xz", "xz"), ("zst", "zstd"), ("bz2", "bzip2")];
/// Bytes by which a text is recognised.
const PROBED_BYTES: usize = 4096;

/// A log to read.
#[derive(Debug)]
pub(super) struct LogSource {
    /// As it is shown.
    pub(super) name: String,
    /// Whether it was named itself, not found in a folder.
    pub(super) named: bool,
    /// What its path says.
    pub(super) labels: Vec<(String, String)>,
    /// None: standard input.
    path: Option<PathBuf>,
}

/// What a source holds.
pub(super) enum SourceContent {
    /// A log, decoded.
    Log(String),
    /// A log so large that it pays to read it part by part.
    Parts(LogParts),
    Binary,
}

/// A large log is read in parts of so many bytes: enough to tell what stands before all
/// of its lines, and little beside what its values need.
const PART_BYTES: usize = 1 << 22;

/// The lines of a large log as UTF-8, part by part, whether it comes from a file, a pipe or
/// a program that decompresses it.
pub(super) struct LogParts {
    name: String,
    reader: Box<dyn io::Read>,
    /// What was read and not yet given.
    bytes: Vec<u8>,
    /// How many of them have no newline.
    searched: usize,
    /// How many lines were given.
    lines: usize,
}

impl LogParts {
    /// Appends the next whole lines to `text`, and at the end the last one; false at
    /// the end.
    pub(super) fn more(&mut self, text: &mut String) -> anyhow::Result<bool> {
        loop {
            // The first part is read already: it told that the log is large.
            let is_read = self.bytes.len() - self.searched >= PART_BYTES;
            let is_last = !is_read && !self.fill()?;
            let newline = self.bytes[self.searched..].iter().rposition(|byte| *byte == b'\n');
            let whole = match newline {
                _ if is_last => self.bytes.len(),
                Some(newline) => self.searched + newline + 1,
                // A line without end is read on.
                None => {
                    self.searched = self.bytes.len();
                    if self.searched > input::MAX_LINE_BYTES {
                        let (line, most) = (self.lines + 1, input::MAX_LINE_BYTES >> 20);
                        bail!("{}:{line}: a line of more than {most} MiB", self.name);
                    }
                    continue;
                }
            };
            self.lines += self.bytes[..whole].iter().filter(|byte| **byte == b'\n').count();
            // No character goes over the end of a line.
            text.push_str(&String::from_utf8_lossy(&self.bytes[..whole]));
            self.bytes.drain(..whole);
            self.searched = self.bytes.len();
            return Ok(!is_last);
        }
    }

    /// Reads a part; false at the end.
    fn fill(&mut self) -> anyhow::Result<bool> {
        let read = (&mut self.reader)
            .take(PART_BYTES as u64)
            .read_to_end(&mut self.bytes)
            .with_context(|| format!("Cannot read {}", self.name))?;
        Ok(read == PART_BYTES)
    }
}

/// Small files are read together until they have so many bytes.
const GROUP_BYTES: u64 = 1 << 22;

/// All files of `paths`, those of folders in the order of their names.
pub(super) fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<LogSource>> {
    let mut sources = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            sources.push(LogSource {
                name: "-".to_owned(),
                named: true,
                labels: Vec::new(),
                path: None,
            });
        } else if path.is_dir() {
            let before = sources.len();
            search(path, &mut sources)?;
            if sources.len() == before {
                bail!("{} holds no file", path.display());
            }
        } else {
            sources.push(LogSource::at(path.clone(), true));
        }
    }
    Ok(sources)
}

/// Sources that may be read at once.
pub(super) struct SourceGroup<'a> {
    pub(super) sources: &'a [LogSource],
    /// How long they are altogether; the largest number if that is not known.
    pub(super) bytes: u64,
}

/// The sources in their order: small files together, any other alone, so that
/// not much is in memory at once.
pub(super) fn groups(sources: &[LogSource]) -> impl Iterator<Item = SourceGroup<'_>> {
    let mut rest = sources;
    std::iter::from_fn(move || {
        let (first, others) = rest.split_first()?;
        let (mut together, mut bytes) = (1, first.bytes().unwrap_or(u64::MAX));
        for other in others {
            let sum = bytes.saturating_add(other.bytes().unwrap_or(u64::MAX));
            if sum > GROUP_BYTES {
                break;
            }
            (together, bytes) = (together + 1, sum);
        }
        let (group, behind) = rest.split_at(together);
        rest = behind;
        Some(SourceGroup { sources: group, bytes })
    })
}

fn search(folder: &Path, sources: &mut Vec<LogSource>) -> anyhow::Result<()> {
    let failed = || format!("Cannot list {}", folder.display());
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>())
        .with_context(failed)?;
    paths.sort();
    for path in paths {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // A link may lead back to a folder above.
        let kind = fs::symlink_metadata(&path).with_context(failed)?.file_type();
        if hidden {
            continue;
        }
        if kind.is_dir() {
            search(&path, sources)?;
        } else if kind.is_file() || (kind.is_symlink() && path.is_file()) {
            sources.push(LogSource::at(path, false));
        }
    }
    Ok(())
}

impl LogSource {
    fn at(path: PathBuf, named: bool) -> Self {
        Self {
            name: path.display().to_string(),
            named,
            labels: labels_of_path(&path),
            path: Some(path),
        }
    }

    #[cfg(test)]
    pub(super) fn of_text(name: &str) -> Self {
        Self { name: name.to_owned(), named: true, labels: Vec::new(), path: None }
    }

    /// How long its text is, if that can be known before it is read.
    fn bytes(&self) -> Option<u64> {
        let path = self.path.as_deref().filter(|path| decompressor(path).is_none())?;
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// Reads and decodes it, or the beginning of a large one; `surely` if it is known to
    /// be a log.
    pub(super) fn open(&self, surely: bool) -> anyhow::Result<SourceContent> {
        let failed = || match &self.path {
            Some(_) => format!("Cannot read {}", self.name),
            None => "Cannot read standard input".to_owned(),
        };
        let mut reader = self.reader().with_context(failed)?;
        let known = self.bytes().unwrap_or(u64::MAX).min(2 * PART_BYTES as u64);
        let mut bytes = Vec::with_capacity(known as usize + 1);
        let most = 2 * PART_BYTES as u64 + 1;
        let mut read = (&mut reader).take(most).read_to_end(&mut bytes).with_context(failed)?;
        let mut surely = surely;
        if let Some(order) = utf16::order_of(&bytes) {
            let raw = io::Cursor::new(std::mem::take(&mut bytes)).chain(reader);
            reader = Box::new(Utf16Text::new(raw, order));
            read = (&mut reader).take(most).read_to_end(&mut bytes).with_context(failed)?;
            surely = true;
        }
        if read as u64 != most {
            return Ok(decode(bytes, surely));
        }
        if !surely && is_binary(&bytes) {
            return Ok(SourceContent::Binary);
        }
        let name = self.name.clone();
        Ok(SourceContent::Parts(LogParts { name, reader, bytes, searched: 0, lines: 0 }))
    }

    /// Its bytes, unpacked.
    fn reader(&self) -> io::Result<Box<dyn io::Read>> {
        let Some(path) = &self.path else {
            return input::open(Path::new("-"), input::MAX_DATA_BYTES);
        };
        match decompressor(path) {
            // A few bytes may be packed of many.
            Some(program) => Ok(Box::new(input::within(
                UnpackedOutput::of(fs::File::open(path)?, program)?,
                input::MAX_DATA_BYTES,
            ))),
            None => input::open(path, input::MAX_DATA_BYTES),
        }
    }
}

/// The program that decompresses a file of this name.
fn decompressor(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?;
    let known = COMPRESSED.iter().find(|(ending, _)| extension.eq_ignore_ascii_case(ending));
    known.map(|(_, program)| *program)
}

/// UTF-8 with what isn't replaced.
///
/// Zero bytes alone are what a crash leaves of a log: a number that touches one
/// is none. With other control characters they are not text, unless it is
/// `surely` one.
fn decode(bytes: Vec<u8>, surely: bool) -> SourceContent {
    if !surely && is_binary(&bytes) {
        return SourceContent::Binary;
    }
    SourceContent::Log(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// Whether bytes that begin like these are not text.
fn is_binary(bytes: &[u8]) -> bool {
    let probed = &bytes[..bytes.len().min(PROBED_BYTES)];
    probed.contains(&0) && probed.iter().any(is_of_no_text)
}

/// Whether neither a tool nor a terminal prints a byte, but for zero.
fn is_of_no_text(byte: &u8) -> bool {
    matches!(byte, 0x01..=0x06 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f)
}

/// The labels of a file in a tree of MMTests:
/// `log/<config>/iter-<n>/<benchmark>/logs/...`.
fn labels_of_path(path: &Path) -> Vec<(String, String)> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parts: Vec<String> =
        absolute.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let Some(at) = parts.iter().position(|part| iteration(part).is_some()) else {
        return Vec::new();
    };
    let mut labels = Vec::new();
    if at > 0 {
        labels.push(("variant".to_owned(), parts[at - 1].clone()));
    }
    labels.push(("boot".to_owned(), parts[at]["iter-".len()..].to_owned()));
    // The file itself is no benchmark's folder.
    if parts.len() > at + 2 {
        labels.push(("benchmark".to_owned(), parts[at + 1].clone()));
    }
    labels
}

/// The number of `iter-3`.
fn iteration(part: &str) -> Option<&str> {
    let number = part.strip_prefix("iter-")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The text of a log that is read whole.
    fn log(text: SourceContent) -> Option<String> {
        match text {
            SourceContent::Log(text) => Some(text),
            SourceContent::Parts(_) | SourceContent::Binary => None,
        }
    }

    #[test]
    fn paths_of_mmtests_are_labels() {
        let check = |path: &str, expected: &[(&str, &str)]| {
            let expected: Vec<(String, String)> =
                expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            assert_eq!(labels_of_path(Path::new(path)), expected, "{path}");
        };
        check(
            "/data/log/pinned/iter-2/hackbench/logs/hackbench-1.log",
            &[("variant", "pinned"), ("boot", "2"), ("benchmark", "hackbench")],
        );
        check("/log/pinned/iter-0/tests-timestamp", &[("variant", "pinned"), ("boot", "0")]);
        check("/log/iter-/a", &[]);
        check("/log/iter-x/a/b", &[]);
    }

    #[test]
    fn texts_are_decoded_and_binaries_known() {
        let decode = |bytes: &[u8], surely| log(super::decode(bytes.to_vec(), surely));
        assert_eq!(decode(b"a\xff", false).as_deref(), Some("a\u{fffd}"));
        assert_eq!(decode(b"\x7fELF\0", false), None);
        assert_eq!(decode(b"\x7fELF\0", true).as_deref(), Some("\x7fELF\0"));
        assert_eq!(decode(b"Time: 1.2\0\0\n", false).as_deref(), Some("Time: 1.2\0\0\n"));
        assert_eq!(decode(b"", false).as_deref(), Some(""));
    }

    /// The marks of UTF-16, and what units are behind them.
    const UTF16: [(&[u8; 2], UnitBytes); 2] =
        [(b"\xff\xfe", u16::to_le_bytes), (b"\xfe\xff", u16::to_be_bytes)];

    type UnitBytes = fn(u16) -> [u8; 2];

    #[test]
    fn small_files_in_utf16_are_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for (mark, to_bytes) in UTF16 {
            // Zeros and another control character make no text of UTF-8.
            let units: Vec<u8> = "a\u{1}b\n".encode_utf16().flat_map(to_bytes).collect();
            fs::write(&path, [&mark[..], &units].concat()).unwrap();
            let read = LogSource::at(path.clone(), true).open(false).unwrap();
            assert_eq!(log(read).as_deref(), Some("a\u{1}b\n"));
        }
    }

    #[test]
    fn large_files_are_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        // Lines that no part ends with, a long one, bytes that are not text, and no end.
        let mut bytes = "é 1.250\n".repeat(PART_BYTES / 4).into_bytes();
        bytes.extend("a".repeat(3 * PART_BYTES).bytes());
        bytes.extend(b"\nb\xffc\nlast");
        fs::write(&path, &bytes).unwrap();
        let packed = folder.path().join("log.gz");
        let gzip = Command::new("gzip").args(["-c", "-1"]).arg(&path).output().unwrap();
        fs::write(&packed, gzip.stdout).unwrap();
        let cut = folder.path().join("cut.gz");
        let half = fs::read(&packed).unwrap();
        fs::write(&cut, &half[..half.len() - 100]).unwrap();
        let parts_of = |path: &Path, surely| match LogSource::at(path.to_owned(), true).open(surely)
        {
            Ok(SourceContent::Parts(parts)) => Some(parts),
            Ok(SourceContent::Log(_) | SourceContent::Binary) => None,
            Err(error) => panic!("{error:#}"),
        };
        for path in [&path, &packed] {
            let mut parts = parts_of(path, false).unwrap();
            let (mut text, mut count) = (String::new(), 1);
            while parts.more(&mut text).unwrap() {
                assert!(text.ends_with('\n'));
                count += 1;
            }
            assert!(count > 2);
            assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
        // What was read before is right, and that there is no more is told.
        let mut parts = parts_of(&cut, false).unwrap();
        let mut text = String::new();
        let error = loop {
            match parts.more(&mut text) {
                Ok(more) => assert!(more),
                Err(error) => break format!("{error:#}"),
            }
        };
        assert!(error.contains("cut.gz") && error.contains("gzip cannot"), "{error}");
        assert!(String::from_utf8_lossy(&bytes).starts_with(&text) && !text.is_empty());
        // UTF-16 takes two bytes for most of its characters.
        let text = "\u{e9} 1.250\n".repeat(PART_BYTES / 4) + "last";
        for (mark, to_bytes) in UTF16 {
            let units: Vec<u8> = text.encode_utf16().flat_map(to_bytes).collect();
            fs::write(&path, [&mark[..], &units].concat()).unwrap();
            let mut parts = parts_of(&path, false).unwrap();
            let (mut rest, mut ended) = (&*text, false);
            while !ended {
                let mut part = String::new();
                ended = !parts.more(&mut part).unwrap();
                assert!(part.len() <= 2 * PART_BYTES + 1 && parts.bytes.len() <= 2 * PART_BYTES);
                rest = rest.strip_prefix(&*part).unwrap();
            }
            assert!(rest.is_empty());
        }
        fs::write(&path, "\u{7f}\0".repeat(2 * PART_BYTES)).unwrap();
        assert!(parts_of(&path, false).is_none() && parts_of(&path, true).is_some());
    }

    #[test]
    fn small_files_are_read_together() {
        let folder = tempfile::tempdir().unwrap();
        let half = "a".repeat(GROUP_BYTES as usize / 2);
        for (name, text) in
            [("1", "a"), ("2", &half), ("3", &half), ("4.gz", "a"), ("5", "a"), ("6", "")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let sources = find(&[folder.path().to_owned(), PathBuf::from("-")]).unwrap();
        let sizes: Vec<usize> = groups(&sources).map(|group| group.sources.len()).collect();
        assert_eq!(sizes, [2, 1, 1, 2, 1]);
        assert_eq!(groups(&[]).count(), 0);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let begin = b"one\ntwo\n".to_vec();
        let name = "log".to_owned();
        let reader = Box::new(io::repeat(0));
        let mut parts = LogParts { name, reader, bytes: begin, searched: 0, lines: 0 };
        let mut text = String::new();
        assert!(parts.more(&mut text).unwrap());
        assert_eq!(text, "one\ntwo\n");
        let refused = parts.more(&mut text).unwrap_err().to_string();
        assert_eq!(refused, "log:3: a line of more than 32 MiB");
        assert_eq!(text, "one\ntwo\n");
        assert!(parts.bytes.capacity() <= 3 * input::MAX_LINE_BYTES);
    }

    #[test]
    fn folders_are_searched_and_compressed_files_read() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("log"), "Time: 1.000\n").unwrap();
        fs::write(folder.path().join(".hidden"), "Time: 2.000\n").unwrap();
        fs::write(folder.path().join("broken.gz"), "no gzip").unwrap();
        let found = find(&[folder.path().to_owned()]).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(log(found[0].open(false).unwrap()).as_deref(), Some("Time: 1.000\n"));
        assert!(!found[0].named);
        let error = found[1].open(false).map(log).unwrap_err().to_string();
        assert!(error.contains("broken.gz"), "{error}");
        assert!(find(&[folder.path().join("a/nothing")]).unwrap()[0].open(false).is_err());
    }
}
