//! A file in whose place of zeros there is a hole: most of a guest's memory is never used.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// A block that is left out if it is all zero, bytes.
const BLOCK_BYTES: usize = 4096;

/// Writes to the end of a file, as it comes.
#[derive(Debug)]
pub(super) struct SparseFile<'a> {
    file: &'a File,
    bytes: u64,
}

impl<'a> SparseFile<'a> {
    pub(super) fn new(file: &'a File) -> Self {
        Self { file, bytes: 0 }
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let is_empty = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
            let run = |wanted: bool| {
                let blocks =
                    bytes.chunks(BLOCK_BYTES).take_while(|block| is_empty(block) == wanted);
                blocks.map(<[u8]>::len).sum::<usize>()
            };
            let data = run(false);
            self.file.write_all_at(&bytes[..data], self.bytes)?;
            bytes = &bytes[data..];
            let blocks = bytes.chunks(BLOCK_BYTES).take_while(|block| is_empty(block));
            let holes: usize = blocks.map(<[u8]>::len).sum();
            self.bytes += (data + holes) as u64;
            bytes = &bytes[holes..];
        }
        Ok(())
    }

    /// Gives the file its length, which may end with a hole.
    pub(super) fn finish(self) -> io::Result<u64> {
        self.file.set_len(self.bytes)?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn zeros_are_holes() {
        let file = tempfile::tempfile().unwrap();
        let mut sparse = SparseFile::new(&file);
        let mut wanted = vec![0; 1 << 20];
        wanted[5] = 1;
        wanted[700_000] = 2;
        wanted.extend([0; 999]);
        for piece in wanted.chunks(300_001) {
            sparse.write(piece).unwrap();
        }
        assert_eq!(sparse.finish().unwrap(), wanted.len() as u64);
        let mut read = Vec::new();
        (&file).read_to_end(&mut read).unwrap();
        assert!(read == wanted);
        let blocks = file.metadata().unwrap().blocks();
        assert!(blocks * 512 < wanted.len() as u64, "{blocks}");
    }
}
