//! What frames carry behind their beginning: stretches of one table, which begin
//! elsewhere for each number. So to write one is to copy, and to check one to compare.

/// The longest payload.
const LONGEST: usize = 9216;
/// Places at which a payload may begin.
const PLACES: usize = 4096;

/// The table.
#[derive(Debug)]
pub(super) struct Payload(Vec<u8>);

impl Payload {
    pub(super) fn new() -> Self {
        // Marsaglia's xorshift: any bytes do, as long as no stretch is like another.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let bytes = (0..PLACES + LONGEST).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        });
        Self(bytes.collect())
    }

    /// The `length` bytes (at most 9216) of the frame of this number.
    #[inline]
    pub(super) fn of(&self, number: u32, length: usize) -> &[u8] {
        let place = number.wrapping_mul(0x9e37_79b1) >> 20;
        &self.0[place as usize..][..length]
    }
}
