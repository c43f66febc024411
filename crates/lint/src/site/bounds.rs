//! How large a condition may be.

/// Brackets inside each other, and then operators, calls and fields.
pub(crate) const MAX_DEPTH: u32 = 64;

/// Bytes of a regular expression.
pub(crate) const MAX_PATTERN: usize = 256;
