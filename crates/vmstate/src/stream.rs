//! A stream without the contents of memory.

/// The memory sections of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemorySections {
    /// Its blocks: the name QEMU gives it, and bytes.
    pub blocks: Vec<(String, u64)>,
    /// Pages that were sent whole; one that the guest wrote meanwhile counts again.
    pub data_pages: u64,
    /// Pages that were sent as one byte, mostly 0.
    pub uniform_pages: u64,
}

/// A stream, read to its end, of which everything but the contents of memory is held.
/// It is a stream itself: QEMU reads [`Self::bytes`], with memory as it is at start.
#[derive(Debug, Clone)]
pub struct MigrationStream {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// Where pieces of `bytes` lie in the file: offset in `bytes`, offset in the file.
    pub(crate) pieces: Vec<(usize, u64)>,
    /// Where the devices begin, in `bytes`.
    pub(crate) devices: usize,
    /// The machine type: `pc-q35-7.2`.
    pub(crate) machine: Option<String>,
    /// Bytes of a page of memory.
    pub(crate) page_bytes: u64,
    /// Capabilities of migration that change the stream.
    pub(crate) capabilities: Vec<String>,
    /// Memory, where it is in the stream.
    pub(crate) memory: Option<MemorySections>,
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
}

impl MigrationStream {
    /// The bytes without the contents of memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of the whole stream, bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Where in the file the byte at `at` lies.
    pub(crate) fn file_offset(&self, at: usize) -> u64 {
        let after = self.pieces.partition_point(|(start, _)| *start <= at);
        let (start, file) = self.pieces.get(after.saturating_sub(1)).copied().unwrap_or((0, 0));
        file + at.saturating_sub(start) as u64
    }
}
