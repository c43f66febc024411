//! The guest's console: a file that QEMU appends to.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Beyond this the file is cut: a guest that prints without end must not fill
/// the host's disk.
const LONGEST_BYTES: u64 = 8 << 20;

/// How much of the end is looked at and kept.
const TAIL_BYTES: u64 = 64 << 10;

/// What the kernel prints when it gives up.
/// Source: Linux `kernel/panic.c`.
const PANIC: &str = "Kernel panic - not syncing";

/// The console's file.
#[derive(Debug)]
pub(super) struct Console {
    path: PathBuf,
}

impl Console {
    /// Makes the file, empty.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        File::create(path)?;
        Ok(Self { path: path.to_owned() })
    }

    /// How much the file holds now, bytes.
    pub(super) fn length(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// The end of what the guest printed, without control characters.
    pub(super) fn tail(&self) -> String {
        // What can't be read is as good as nothing printed.
        let bytes = self.read_tail().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
    }

    /// The line in which the kernel said that it panicked.
    pub(super) fn panic_line(&self) -> Option<String> {
        self.tail().lines().find(|line| line.contains(PANIC)).map(|line| line.trim().to_owned())
    }

    /// Cuts a file that has grown too long down to its end. QEMU appends, so
    /// it goes on behind what is left.
    pub(super) fn keep_short(&self) {
        if self.length() <= LONGEST_BYTES {
            return;
        }
        let Ok(tail) = self.read_tail() else { return };
        let cut = || -> io::Result<()> {
            let mut file = File::options().append(true).open(&self.path)?;
            file.set_len(0)?;
            file.write_all(&tail)
        };
        // If it can't be cut now, the next look tries again.
        let _ = cut();
    }

    fn read_tail(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_plain_text_and_a_long_file_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        let console = Console::create(&path).unwrap();
        assert_eq!(console.tail(), "");
        let panic = "[ 2.1] Kernel panic - not syncing: sysrq triggered crash";
        std::fs::write(&path, format!("\x1b[2J\rSeaBIOS\r\n{panic}\r\n")).unwrap();
        assert_eq!(console.tail(), format!("[2JSeaBIOS\n{panic}\n"));
        assert_eq!(console.panic_line().as_deref(), Some(panic));

        let mut qemu = File::options().append(true).open(&path).unwrap();
        qemu.write_all(&vec![b'x'; usize::try_from(LONGEST_BYTES).unwrap()]).unwrap();
        console.keep_short();
        qemu.write_all(b"end\n").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), TAIL_BYTES + 4);
        assert!(console.tail().ends_with("xend\n"));
        assert_eq!(console.panic_line(), None);
    }
}
