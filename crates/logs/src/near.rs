//! Searches in short texts, sixteen bytes at a time.
//!
//! Most lines are shorter than a search of memchr's takes to begin, and a loop over the
//! bytes of a word mispredicts where the word ends.

use wide::u8x16;

/// Bytes of a step.
const STEP: usize = 16;

/// What is not found in so many bytes is looked for with longer vectors.
const NEAR: usize = 8 * STEP;

/// Where `byte` stands first, which is expected soon.
#[inline]
pub(crate) fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    let wanted = u8x16::splat(byte);
    let near = &bytes[..bytes.len().min(NEAR)];
    let (steps, rest) = near.as_chunks::<STEP>();
    for (step, at) in steps.iter().zip((0..).step_by(STEP)) {
        let found = u8x16::new(*step).simd_eq(wanted).to_bitmask();
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize);
        }
    }
    if bytes.len() > NEAR {
        return memchr::memchr(byte, &bytes[NEAR..]).map(|at| NEAR + at);
    }
    // Those of it that were looked at already had none.
    if let Some(last) = near.last_chunk::<STEP>().filter(|_| !rest.is_empty()) {
        let found = u8x16::new(*last).simd_eq(wanted).to_bitmask();
        return (found != 0).then(|| near.len() - STEP + found.trailing_zeros() as usize);
    }
    if let (Some(head), Some(tail)) = (rest.first_chunk(), rest.last_chunk()) {
        return find_of_eight(byte, *head)
            .or_else(|| find_of_eight(byte, *tail).map(|at| rest.len() - 8 + at));
    }
    rest.iter().position(|found| *found == byte)
}

/// How often `byte`, which is not zero, stands among the first sixteen.
#[inline]
pub(crate) fn count_of_sixteen(byte: u8, bytes: &[u8]) -> u32 {
    let step = bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut step = [0; STEP];
        step[..bytes.len()].copy_from_slice(bytes);
        step
    });
    u8x16::new(step).simd_eq(u8x16::splat(byte)).to_bitmask().count_ones()
}

/// Where `byte` stands first in so few.
#[inline]
fn find_of_eight(byte: u8, bytes: [u8; 8]) -> Option<usize> {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    let other = u64::from_le_bytes(bytes) ^ (EACH * u64::from(byte));
    // The lowest byte that is the one has its highest bit set here.
    let found = other.wrapping_sub(EACH) & !other & (EACH << 7);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Bytes of which [`spaces`] tells at once.
pub(crate) const WINDOW: usize = 64;

/// A bit for each of the first bytes, set where `u8::is_ascii_whitespace` is true, and
/// behind the end.
#[inline]
pub(crate) fn spaces(bytes: &[u8]) -> u64 {
    let mut all = u64::MAX;
    let (steps, rest) = bytes[..bytes.len().min(WINDOW)].as_chunks::<STEP>();
    for (step, at) in steps.iter().zip((0..).step_by(STEP)) {
        all ^= u64::from(!spaces_of(*step)) << at;
    }
    if !rest.is_empty() {
        let mut step = [b' '; STEP];
        step[..rest.len()].copy_from_slice(rest);
        all ^= u64::from(!spaces_of(step)) << (STEP * steps.len());
    }
    all
}

#[inline]
fn spaces_of(step: [u8; STEP]) -> u16 {
    let step = u8x16::new(step);
    let is = |byte| step.simd_eq(u8x16::splat(byte));
    let any = is(b' ') | is(b'\t') | is(b'\n') | is(b'\r') | is(0x0c);
    any.to_bitmask() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_wherever_they_stand() {
        for length in 0..300 {
            let mut bytes = vec![b'a'; length];
            assert_eq!(find(b'x', &bytes), None, "{length}");
            for at in (0..length).rev() {
                bytes[at] = b'x';
                assert_eq!(find(b'x', &bytes), Some(at), "{at} of {length}");
            }
        }
    }

    #[test]
    fn bytes_are_counted_to_the_sixteenth() {
        for length in 0..40 {
            let bytes: Vec<u8> = (0..length).map(|at| b"x.y"[at % 3]).collect();
            let expected = bytes.iter().take(16).filter(|byte| **byte == b'.').count();
            assert_eq!(count_of_sixteen(b'.', &bytes) as usize, expected, "{length}");
        }
    }

    #[test]
    fn every_space_of_a_window_has_a_bit() {
        for length in 0..100 {
            for byte in 0..=u8::MAX {
                let mut bytes = vec![b'a'; length];
                (0..length).step_by(3).for_each(|at| bytes[at] = byte);
                let bits = (0..WINDOW).map(|at| {
                    let space = bytes.get(at).is_none_or(u8::is_ascii_whitespace);
                    u64::from(space) << at
                });
                assert_eq!(spaces(&bytes), bits.sum::<u64>(), "{byte} in {length}");
            }
        }
    }
}
