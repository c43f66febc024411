//! Reading numbers and names from bytes that may end anywhere.

use crate::error::Problem;

/// A place in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let end = self.at.checked_add(count).ok_or(Problem::Cut)?;
        let taken = self.bytes.get(self.at..end).ok_or(Problem::Cut)?;
        self.at = end;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Problem> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// A number of `count` bytes, at most 8, the highest first.
    pub(crate) fn number(&mut self, count: usize) -> Result<u64, Problem> {
        Ok(number(self.take(count)?))
    }

    pub(crate) fn number32(&mut self) -> Result<u32, Problem> {
        Ok(number32(self.take(4)?))
    }

    /// A text behind its length of one byte.
    pub(crate) fn name(&mut self) -> Result<&'a str, Problem> {
        let length = usize::from(self.byte()?);
        name(self.take(length)?)
    }
}

/// Bytes as a number, the highest first.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The first four bytes as a number, the highest first.
pub(crate) fn number32(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Bytes as a name.
pub(crate) fn name(bytes: &[u8]) -> Result<&str, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::Name(bytes.len()))?;
    match text.chars().any(char::is_control) {
        true => Err(Problem::Name(bytes.len())),
        false => Ok(text),
    }
}
