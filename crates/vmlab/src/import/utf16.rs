//! Logs in UTF-16, as PowerShell's `>` writes them.

use std::io::{self, Read};

/// How two bytes make a unit of UTF-16.
pub(super) type UnitOrder = fn([u8; 2]) -> u16;

/// Bytes that are decoded at once.
const DECODED_BYTES: usize = 1 << 16;

/// The order that the mark tells with which a text in UTF-16 begins.
pub(super) fn order_of(bytes: &[u8]) -> Option<UnitOrder> {
    match bytes.get(..2) {
        Some([0xff, 0xfe]) => Some(u16::from_le_bytes),
        Some([0xfe, 0xff]) => Some(u16::from_be_bytes),
        _ => None,
    }
}

/// A text in UTF-16 as UTF-8, with what is none replaced, bit by bit.
pub(super) struct Utf16Text<R> {
    reader: R,
    order: UnitOrder,
    /// What was read and not yet decoded.
    raw: Vec<u8>,
    /// What was decoded, and how much of it was given.
    text: String,
    given: usize,
    /// Where the text begins is its mark.
    at_start: bool,
}

impl<R: Read> Utf16Text<R> {
    /// What `reader` reads, which begins with its mark.
    pub(super) fn new(reader: R, order: UnitOrder) -> Self {
        Self { reader, order, raw: Vec::new(), text: String::new(), given: 0, at_start: true }
    }

    /// Decodes more; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let read = (&mut self.reader).take(DECODED_BYTES as u64).read_to_end(&mut self.raw)?;
        let is_last = read < DECODED_BYTES;
        // A last byte alone is none.
        let mut whole = self.raw.len() / 2 * 2;
        let last = self.raw[..whole].last_chunk().map(|unit| (self.order)(*unit));
        // The second half of its character is still to come.
        if !is_last && matches!(last, Some(0xd800..0xdc00)) {
            whole -= 2;
        }
        let mark = if std::mem::replace(&mut self.at_start, false) { whole.min(2) } else { 0 };
        let units = self.raw[mark..whole].as_chunks().0.iter().map(|unit| (self.order)(*unit));
        self.text.clear();
        self.given = 0;
        self.text.extend(
            char::decode_utf16(units).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER)),
        );
        self.raw.drain(..whole);
        Ok(!is_last)
    }
}

impl<R: Read> Read for Utf16Text<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.len() {
            let is_last = !self.fill()?;
            if is_last && self.text.is_empty() {
                return Ok(0);
            }
        }
        let left = &self.text.as_bytes()[self.given..];
        let given = left.len().min(buffer.len());
        buffer[..given].copy_from_slice(&left[..given]);
        self.given += given;
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a few bytes at a time, as a pipe does.
    struct SlowReader<'a>(&'a [u8], usize);

    impl Read for SlowReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(self.1);
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn what_is_read_is_what_all_of_it_says() {
        // Pairs, halves of some, and one that goes over each place where it is cut.
        let units: Vec<u16> = "a\u{e9}\u{1f600}\n"
            .encode_utf16()
            .chain([0xd83d, 0x61, 0xde00])
            .cycle()
            .take(DECODED_BYTES * 2 + 3)
            .chain([0xd83d])
            .collect();
        let expected = String::from_utf16_lossy(&units);
        let to_bytes: [fn(u16) -> [u8; 2]; 2] = [u16::to_le_bytes, u16::to_be_bytes];
        for to_bytes in to_bytes {
            let mut bytes: Vec<u8> =
                std::iter::once(0xfeff).chain(units.iter().copied()).flat_map(to_bytes).collect();
            bytes.push(b'x');
            let order = order_of(&bytes).unwrap();
            for at_once in [1, 7, usize::MAX] {
                let mut text = String::new();
                let mut reader = Utf16Text::new(SlowReader(&bytes, at_once), order);
                reader.read_to_string(&mut text).unwrap();
                assert!(text == expected, "{at_once}");
                assert!(reader.raw.capacity() <= 4 * DECODED_BYTES);
            }
        }
        assert!(order_of(b"\xff").is_none() && order_of(b"ab").is_none());
        let mut empty = String::new();
        Utf16Text::new(&b"\xff\xfe"[..], u16::from_le_bytes).read_to_string(&mut empty).unwrap();
        assert_eq!(empty, "");
    }
}
