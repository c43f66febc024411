//! Lines out of a stream, in large pieces and without a copy of each line.

use std::io::{self, Read};

/// Large enough that calls cost nothing, small enough for a cache.
const PIECE: usize = 256 * 1024;

/// Calls `line` with each line (its number from 1, its bytes without the line
/// end) of what `start` and then `reader` hold.
pub(crate) fn for_each_line(
    start: &[u8],
    reader: &mut dyn Read,
    mut line: impl FnMut(usize, &[u8]),
) -> io::Result<()> {
    let mut buffer = start.to_vec();
    let mut filled = buffer.len();
    let mut number = 0;
    loop {
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', &buffer[..filled]) {
            number += 1;
            line(number, without_return(&buffer[begin..end]));
            begin = end + 1;
        }
        buffer.copy_within(begin..filled, 0);
        filled -= begin;
        // A line may be longer than a piece.
        if buffer.len() < filled + PIECE / 2 {
            buffer.resize(filled + PIECE, 0);
        }
        match read_some(reader, &mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    if filled > 0 {
        line(number + 1, without_return(&buffer[..filled]));
    }
    Ok(())
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A read that is not ended by a signal.
fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Fills a buffer of `wanted` bytes as far as `reader` goes: enough to
/// recognise a format by.
pub(crate) fn peek(reader: &mut dyn Read, wanted: usize) -> io::Result<Vec<u8>> {
    let mut start = vec![0; wanted];
    let mut filled = 0;
    while filled < wanted {
        match read_some(reader, &mut start[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    start.truncate(filled);
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_line_is_lost_wherever_pieces_end(
            lengths in prop::collection::vec(0usize..90_000, 0..12),
            cut in 0usize..5000,
            end in any::<bool>(),
        ) {
            let mut text = Vec::new();
            for (index, length) in lengths.iter().enumerate() {
                text.extend(std::iter::repeat_n(b'a' + index as u8, *length));
                text.push(b'\n');
            }
            if !end {
                text.pop();
            }
            let (start, rest) = text.split_at(cut.min(text.len()));
            let mut found = Vec::new();
            for_each_line(start, &mut &*rest, |number, line| found.push((number, line.to_vec()))).unwrap();
            let mut expected: Vec<Vec<u8>> =
                text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            if expected.last().is_some_and(Vec::is_empty) {
                expected.pop();
            }
            let expected: Vec<_> = expected.into_iter().zip(1..).map(|(line, n)| (n, line)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
