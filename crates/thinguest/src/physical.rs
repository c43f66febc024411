//! Physical memory, as those read it who look for what loader and firmware left there.

/// Memory that may hold anything.
pub trait PhysicalMemory: Copy {
    /// The bytes from `address` on; none where nothing of others may lie.
    fn read<const N: usize>(self, address: u64) -> Option<[u8; N]>;

    /// The little-endian word at `address`.
    fn u32_at(self, address: u64) -> Option<u32> {
        self.read(address).map(u32::from_le_bytes)
    }

    /// The little-endian word at `address`.
    fn u64_at(self, address: u64) -> Option<u64> {
        self.read(address).map(u64::from_le_bytes)
    }
}

/// Memory of a test: one piece, which begins at an address.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestMemory<'a> {
    pub(crate) begin: u64,
    pub(crate) bytes: &'a [u8],
}

#[cfg(test)]
impl PhysicalMemory for TestMemory<'_> {
    fn read<const N: usize>(self, address: u64) -> Option<[u8; N]> {
        let at = usize::try_from(address.checked_sub(self.begin)?).ok()?;
        self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()
    }
}
