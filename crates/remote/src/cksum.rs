//! The check sum that every POSIX system can make of a file.

use std::fmt;

use crc::{CRC_32_CKSUM, Crc, Digest};

static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_CKSUM);

/// Check sum and size, shown as the program `cksum` prints them.
///
/// Source: POSIX.1-2017, `cksum`.
#[derive(Clone)]
pub(crate) struct Cksum {
    digest: Digest<'static, u32>,
    bytes: u64,
}

impl Default for Cksum {
    fn default() -> Self {
        Self { digest: CRC.digest(), bytes: 0 }
    }
}

impl Cksum {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Display for Cksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The size follows the text, lowest byte first, without leading zeros.
        let size = self.bytes.to_le_bytes();
        let digits = size.len() - self.bytes.leading_zeros() as usize / 8;
        let mut digest = self.digest.clone();
        digest.update(&size[..digits]);
        write!(f, "{} {}", digest.finalize(), self.bytes)
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
