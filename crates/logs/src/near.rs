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
    let step = bytes.first_chunk().copied().unwrap_or_else(|| padded(bytes));
    bits(step, byte).count_ones()
}

/// Fewer bytes than a step has, and zeros behind them. A copy of so few would be a call.
#[inline]
fn padded(few: &[u8]) -> [u8; STEP] {
    // Both ends, of which what they share is the same.
    let behind = |least: usize| 8 * (few.len() - least);
    let word = match (few.first_chunk::<8>(), few.last_chunk::<8>()) {
        (Some(head), Some(tail)) => {
            u128::from(u64::from_le_bytes(*head))
                | u128::from(u64::from_le_bytes(*tail)) << behind(8)
        }
        _ => u128::from(word_of(few)),
    };
    word.to_le_bytes()
}

/// At most eight bytes as a number, the first one lowest, with zeros where there are none.
#[inline]
pub(crate) fn word_of(few: &[u8]) -> u64 {
    match (few.first_chunk::<4>(), few.last_chunk::<4>()) {
        (Some(head), Some(tail)) => {
            u64::from(u32::from_le_bytes(*head))
                | u64::from(u32::from_le_bytes(*tail)) << (8 * (few.len() - 4))
        }
        _ => few.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// A bit for each byte that is `byte`.
#[inline]
fn bits(step: [u8; STEP], byte: u8) -> u32 {
    u8x16::new(step).simd_eq(u8x16::splat(byte)).to_bitmask()
}

/// Where lines end: the places of newlines, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct LineEnds<'a> {
    bytes: &'a [u8],
    /// Where the window begins of which the newlines are known, and those that are left.
    window: usize,
    left: u64,
    /// Where the next window begins.
    next: usize,
}

impl<'a> LineEnds<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, window: 0, left: 0, next: 0 }
    }
}

impl Iterator for LineEnds<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let mut windows = 0;
        while self.left == 0 {
            let rest = self.bytes.get(self.next..).filter(|rest| !rest.is_empty())?;
            if windows == 2 {
                // It is a long line.
                let at = self.next + memchr::memchr(b'\n', rest)?;
                self.next = at + 1;
                return Some(at);
            }
            self.window = self.next;
            self.next += WINDOW;
            self.left = newlines(rest);
            windows += 1;
        }
        let at = self.window + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Some(at)
    }
}

/// A bit for each of the first bytes, set where it is a newline.
#[inline]
fn newlines(bytes: &[u8]) -> u64 {
    let mut all = 0;
    if let Some(window) = bytes.first_chunk::<WINDOW>() {
        let (steps, _) = window.as_chunks::<STEP>();
        for (step, at) in steps.iter().zip((0..).step_by(STEP)) {
            all |= u64::from(bits(*step, b'\n')) << at;
        }
        return all;
    }
    let (steps, rest) = bytes.as_chunks::<STEP>();
    for (step, at) in steps.iter().zip((0..).step_by(STEP)) {
        all |= u64::from(bits(*step, b'\n')) << at;
    }
    if rest.is_empty() {
        all
    } else {
        all | u64::from(bits(padded(rest), b'\n')) << (STEP * steps.len())
    }
}

/// How many spaces the bytes begin with.
#[inline]
pub(crate) fn indent(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk() {
        let others = u64::from_le_bytes(*eight) ^ u64::from_le_bytes([b' '; 8]);
        if others != 0 {
            return at + others.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|byte| **byte == b' ').count()
}

/// Where the first of three bytes stands, which is expected soon.
#[inline]
pub(crate) fn find_any(any: [u8; 3], bytes: &[u8]) -> Option<usize> {
    let [one, two, three] = any;
    if let Some(step) = bytes.first_chunk::<STEP>() {
        let step = u8x16::new(*step);
        let is = |byte| step.simd_eq(u8x16::splat(byte));
        let found = (is(one) | is(two) | is(three)).to_bitmask();
        if found != 0 {
            return Some(found.trailing_zeros() as usize);
        }
        return memchr::memchr3(one, two, three, &bytes[STEP..]).map(|at| STEP + at);
    }
    bytes.iter().position(|byte| any.contains(byte))
}

/// Texts of so many bytes are worth the longer begin of a search by longer vectors.
const LONG: usize = 512;

/// Where the first `mark` begins, which is not empty.
#[inline]
pub(crate) fn place(mark: &[u8], bytes: &[u8]) -> Option<usize> {
    // Lines are full of spaces: any other byte is rarer.
    let skip = mark.iter().position(|byte| *byte != b' ').unwrap_or(0);
    let rare = *mark.get(skip)?;
    let mut from = skip;
    if bytes.len() > LONG {
        return memchr::memmem::find(bytes, mark);
    }
    if mark.len() > 1 && bytes.len() >= mark.len() - 1 + STEP {
        // Two bytes of it tell more than one: what neither has is passed over.
        let far = mark.iter().rposition(|byte| *byte != b' ').filter(|far| *far > skip);
        let far = far.unwrap_or(mark.len() - 1);
        let last = bytes.len() + 1 - mark.len() - STEP;
        let mut begin = 0;
        loop {
            let step = |at: usize, byte| match bytes[begin + at..].first_chunk() {
                Some(step) => bits(*step, byte),
                None => 0,
            };
            let mut found = step(skip, rare);
            if found != 0 {
                found &= step(far, mark[far]);
            }
            while found != 0 {
                let at = begin + found.trailing_zeros() as usize;
                if bytes[at..].starts_with(mark) {
                    return Some(at);
                }
                found &= found - 1;
            }
            if begin == last {
                return None;
            }
            begin = last.min(begin + STEP);
        }
    }
    loop {
        let at = from + find(rare, bytes.get(from..)?)?;
        if bytes[at - skip..].starts_with(mark) {
            return Some(at - skip);
        }
        from = at + 1;
    }
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
        let behind = u16::MAX << rest.len();
        all ^= u64::from(!(spaces_of(padded(rest)) | behind)) << (STEP * steps.len());
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
    fn lines_end_wherever_newlines_stand() {
        for length in 0..200 {
            for step in [1, 2, 7, 16, 63, 64, 65, 150, 300] {
                let bytes: Vec<u8> = (0..length)
                    .map(|at| if at % step == step - 1 { b'\n' } else { b'a' })
                    .collect();
                let expected: Vec<usize> = (0..length).filter(|at| bytes[*at] == b'\n').collect();
                assert!(LineEnds::new(&bytes).eq(expected), "{length} {step}");
            }
        }
    }

    #[test]
    fn marks_are_found_wherever_they_stand() {
        for mark in
            ["x", " x", "xy", "xyx", " x y ", "  ", "xayaxaya", "xx", "xaaaaaaaaaaaaaaaaaaaay"]
        {
            for length in 0..100 {
                // Bytes of the mark stand everywhere.
                let mut text: Vec<u8> =
                    (0..length).map(|at| mark.as_bytes()[at % mark.len()]).collect();
                text.iter_mut().skip(2).step_by(3).for_each(|byte| *byte = b'a');
                for at in 0..length {
                    let mut text = text.clone();
                    if at + mark.len() <= length {
                        text[at..at + mark.len()].copy_from_slice(mark.as_bytes());
                    }
                    let expected = std::str::from_utf8(&text).unwrap().find(mark);
                    assert_eq!(place(mark.as_bytes(), &text), expected, "{mark:?} {at} {length}");
                }
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
