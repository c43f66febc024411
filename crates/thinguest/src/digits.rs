//! Numbers in the lines that host and guest write.

/// A number as records have it: digits alone.
pub(crate) fn number<T: core::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
