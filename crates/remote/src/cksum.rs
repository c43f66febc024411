//! The check sum that every POSIX system can make of a file.

use std::fmt;

/// Polynomial of IEEE 802.3, highest power first.
const POLYNOMIAL: u32 = 0x04c1_1db7;

/// What each byte adds.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            value = if value >> 31 == 1 { value << 1 ^ POLYNOMIAL } else { value << 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// Check sum and size, shown as the program `cksum` prints them.
///
/// Source: POSIX.1-2017, `cksum`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cksum {
    value: u32,
    bytes: u64,
}

impl Cksum {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.value = bytes.iter().fold(self.value, |value, byte| step(value, *byte));
        self.bytes += bytes.len() as u64;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn step(value: u32, byte: u8) -> u32 {
    value << 8 ^ TABLE[usize::from((value >> 24) as u8 ^ byte)]
}

impl fmt::Display for Cksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The size follows the text, lowest byte first, without leading zeros.
        let size = self.bytes.to_le_bytes();
        let digits = size.len() - self.bytes.leading_zeros() as usize / 8;
        let value = size[..digits].iter().fold(self.value, |value, byte| step(value, *byte));
        write!(f, "{} {}", !value, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    fn by_the_program(bytes: &[u8]) -> String {
        let mut child = Command::new("cksum")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cksum is part of every system");
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
    }

    proptest! {
        // Each case starts a program.
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_is_what_cksum_prints(
            bytes in prop::collection::vec(any::<u8>(), 0..700),
            cut in 0usize..700,
        ) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut sum = Cksum::default();
            sum.update(first);
            sum.update(second);
            prop_assert_eq!(sum.to_string(), by_the_program(&bytes));
        }
    }
}
