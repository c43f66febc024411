//! Files that users name, and standard input, within a budget of bytes: a name may be
//! that of `/dev/zero`, and what is at the other end of a pipe may have no end.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

use vmconfig::command_line::CommandLine;
use vmconfig::source::JoinedText;

/// Bytes of a text that describes something: a study, a VM, a host, rules, a scenario; and
/// of a line of entries.
pub(crate) const MAX_TEXT_BYTES: u64 = topology::bounded::MAX_BYTES as u64;

/// Bytes of a file with measurements, unpacked: it is held in memory.
pub(crate) const MAX_DATA_BYTES: u64 = 4 << 30;

/// Bytes of a line of a log: it is held in memory.
pub(crate) const MAX_LINE_BYTES: usize = 32 << 20;

/// What is read until a budget is used up; then an error.
struct LimitedReader<R> {
    reader: R,
    most: u64,
    left: u64,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left = left.ok_or_else(|| too_large(self.most))?;
        Ok(read)
    }
}

fn too_large(most: u64) -> io::Error {
    let text = format!("it has more than {} MiB, which is the most that is read", most >> 20);
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

/// `reader`, of which more than `most` bytes are an error.
pub(crate) fn within(reader: impl Read, most: u64) -> impl Read {
    LimitedReader { reader, most, left: most }
}

/// Opens a file, or standard input for `-`, of which at most `most` bytes are read.
pub(crate) fn open(path: &Path, most: u64) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(within(io::stdin().lock(), most)));
    }
    let file = File::open(path)?;
    // Of a whole file that is known at once.
    match file.metadata()?.len() > most {
        true => Err(too_large(most)),
        false => Ok(Box::new(within(file, most))),
    }
}

/// A text, from a file or, for `-`, from standard input.
///
/// # Errors
/// That of reading, text that is not UTF-8, one of more than [`MAX_TEXT_BYTES`].
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path, MAX_TEXT_BYTES)?.read_to_string(&mut text)?;
    Ok(text)
}

/// A text with the files of options that its command lines name (`-readconfig`), which
/// are looked for beside it; for no file (`-`) in the folder where vmlab runs.
pub(crate) fn with_config_files(file: &Path, text: String) -> JoinedText {
    let folder = file.parent().unwrap_or(Path::new(""));
    let files = CommandLine::config_files(&text, |name| {
        let path = folder.join(name);
        (path.display().to_string(), regular(&path).map_err(|error| error.to_string()))
    });
    JoinedText::new(text, files)
}

/// The text of a regular file: what another text names may be a pipe.
fn regular(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    text(path)
}

/// As `BufRead::read_until` of a newline, of a line of at most [`MAX_TEXT_BYTES`].
pub(crate) fn line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let read = input.take(MAX_TEXT_BYTES + 1).read_until(b'\n', line)?;
    match line.len() as u64 > MAX_TEXT_BYTES {
        true => Err(too_large(MAX_TEXT_BYTES)),
        false => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let endless = text(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(endless.to_string(), "it has more than 64 MiB, which is the most that is read");
        let folder = tempfile::tempdir().unwrap();
        let huge = folder.path().join("huge");
        File::create(&huge).unwrap().set_len(1 << 40).unwrap();
        let refused = open(&huge, MAX_DATA_BYTES).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        let mut kept = Vec::new();
        assert_eq!(line(&mut &b"one\ntwo\n"[..], &mut kept).unwrap(), 4);
        let endless = line(&mut io::BufReader::new(io::repeat(b' ')), &mut Vec::new());
        assert_eq!(endless.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn all_of_a_budget_can_be_used() {
        let mut kept = Vec::new();
        within(&b"four"[..], 4).read_to_end(&mut kept).unwrap();
        assert_eq!(kept, b"four");
        assert!(within(&b"fives"[..], 4).read_to_end(&mut kept).is_err());
    }
}
