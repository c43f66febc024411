//! Messages in a stream of bytes: a head, a body, and a sum that says whether
//! both came whole.
//!
//! ```text
//! length of the head   4 bytes, lowest first
//! length of the body   4 bytes, lowest first
//! head, body
//! CRC-32               4 bytes, lowest first, of all before
//! ```
//!
//! A stream that was cut ends in a part of a frame, which is not a frame: all
//! others are whole. What a login shell prints of its own comes before a line of
//! greeting; anything else among the frames is found out and ends the stream.

/// Longest head.
const HEAD_LIMIT: usize = 64 << 10;
/// Longest body.
const BODY_LIMIT: usize = 1 << 30;
/// Both lengths.
const LENGTHS: usize = 8;
/// The sum.
const SUM: usize = 4;
/// Most bytes that may come before the greeting.
const NOISE_LIMIT: usize = 64 << 10;

/// One message of the stream: a head and a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFrame {
    /// What it is; at most 64 KiB.
    pub head: Vec<u8>,
    /// What it carries; at most 1 GiB.
    pub body: Vec<u8>,
}

/// Error type for [`Decoder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame is too long to be one.
    #[error(
        "Something else writes into the stream of results (a frame of {head} and {body} bytes)"
    )]
    Length {
        /// Length of the head, bytes.
        head: usize,
        /// Length of the body, bytes.
        body: usize,
    },
    /// The sum is wrong.
    #[error("Something else writes into the stream of results (a frame's sum is wrong)")]
    Sum,
    /// The greeting does not come.
    #[error("Something else answers: the first {0} bytes are not vmlab's")]
    Greeting(usize),
}

impl RemoteFrame {
    /// The frame's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut all = Vec::with_capacity(LENGTHS + self.head.len() + self.body.len() + SUM);
        all.extend(length(&self.head));
        all.extend(length(&self.body));
        all.extend(&self.head);
        all.extend(&self.body);
        let sum = crc32fast::hash(&all);
        all.extend(sum.to_le_bytes());
        all
    }
}

/// Takes a stream apart, in whatever pieces it comes.
#[derive(Debug, Clone, Default)]
pub struct Decoder {
    greeting: Option<&'static str>,
    bytes: Vec<u8>,
    /// How much of `bytes` was taken.
    taken: usize,
}

impl Decoder {
    /// A stream of frames.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A stream of frames behind a line that begins with `greeting`.
    #[must_use]
    pub fn behind(greeting: &'static str) -> Self {
        Self { greeting: Some(greeting), ..Self::default() }
    }

    /// Adds bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// The rest of the greeting's line, once, when it has come.
    ///
    /// # Errors
    /// [`FrameError::Greeting`].
    pub fn greeting(&mut self) -> Result<Option<String>, FrameError> {
        let Some(greeting) = self.greeting else { return Ok(None) };
        let mut start = 0;
        while let Some(length) = self.bytes[start..].iter().position(|byte| *byte == b'\n') {
            let line = &self.bytes[start..start + length];
            start += length + 1;
            if let Some(rest) = line.strip_prefix(greeting.as_bytes()) {
                let rest = String::from_utf8_lossy(rest).trim().to_owned();
                self.greeting = None;
                self.taken = start;
                return Ok(Some(rest));
            }
        }
        if self.bytes.len() > NOISE_LIMIT {
            return Err(FrameError::Greeting(self.bytes.len()));
        }
        Ok(None)
    }

    /// The next frame that is whole; none before the greeting was taken.
    ///
    /// # Errors
    /// [`FrameError`]: what follows can't be understood.
    pub fn next_frame(&mut self) -> Result<Option<RemoteFrame>, FrameError> {
        let bytes = &self.bytes[self.taken..];
        if self.greeting.is_some() || bytes.len() < LENGTHS {
            return Ok(None);
        }
        let number = |at: usize| {
            let four = bytes[at..at + 4].try_into().expect("the range is four bytes long");
            u32::from_le_bytes(four)
        };
        let (head, body) = (number(0) as usize, number(4) as usize);
        if head > HEAD_LIMIT || body > BODY_LIMIT {
            return Err(FrameError::Length { head, body });
        }
        let end = LENGTHS + head + body;
        if bytes.len() < end + SUM {
            return Ok(None);
        }
        if crc32fast::hash(&bytes[..end]) != number(end) {
            return Err(FrameError::Sum);
        }
        let frame = RemoteFrame {
            head: bytes[LENGTHS..LENGTHS + head].to_vec(),
            body: bytes[LENGTHS + head..end].to_vec(),
        };
        self.taken += end + SUM;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Vec<RemoteFrame>> {
        let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
        let frame = (bytes(20), bytes(300)).prop_map(|(head, body)| RemoteFrame { head, body });
        prop::collection::vec(frame, 0..8)
    }

    fn decode(decoder: &mut Decoder, pieces: &[&[u8]]) -> Result<Vec<RemoteFrame>, FrameError> {
        let mut found = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            decoder.greeting()?;
            while let Some(frame) = decoder.next_frame()? {
                found.push(frame);
            }
        }
        Ok(found)
    }

    proptest! {
        #[test]
        fn every_split_of_the_stream_is_the_same_frames(
            frames in frames(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            noise in "[a-z\n ]{0,40}",
        ) {
            let mut stream = format!("{noise}\nhello there 1\n").into_bytes();
            stream.extend(frames.iter().flat_map(RemoteFrame::encode));
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            let mut decoder = Decoder::behind("hello there");
            prop_assert_eq!(decode(&mut decoder, &pieces), Ok(frames));
        }

        #[test]
        fn a_stream_that_is_cut_loses_its_last_frame_at_most(
            frames in frames(),
            cut in any::<prop::sample::Index>(),
        ) {
            let encoded: Vec<_> = frames.iter().map(RemoteFrame::encode).collect();
            let stream = encoded.concat();
            let cut = cut.index(stream.len() + 1);
            let mut whole = 0;
            let ends = encoded.iter().map(|frame| { whole += frame.len(); whole });
            let expected = ends.filter(|end| *end <= cut).count();
            let found = decode(&mut Decoder::new(), &[&stream[..cut]]);
            prop_assert_eq!(found, Ok(frames[..expected].to_vec()));
        }

        #[test]
        fn damage_is_never_taken_for_a_frame(
            frames in frames().prop_filter("some bytes", |frames| !frames.is_empty()),
            place in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let encoded: Vec<_> = frames.iter().map(RemoteFrame::encode).collect();
            let mut stream = encoded.concat();
            let place = place.index(stream.len());
            stream[place] ^= 1 << bit;
            let mut decoder = Decoder::new();
            decoder.push(&stream);
            let mut found = Vec::new();
            while let Ok(Some(frame)) = decoder.next_frame() {
                found.push(frame);
            }
            let mut whole = 0;
            let ends = encoded.iter().map(|frame| { whole += frame.len(); whole });
            let before = ends.filter(|end| *end <= place).count();
            prop_assert_eq!(found, &frames[..before]);
        }
    }

    #[test]
    fn other_words_are_found_out() {
        let mut decoder = Decoder::new();
        decoder.push(b"-bash: warning: setlocale: LC_ALL\n");
        assert!(matches!(decoder.next_frame(), Err(FrameError::Length { .. })));
        let mut decoder = Decoder::behind("hello");
        decoder.push(&[b'x'; NOISE_LIMIT + 1]);
        assert_eq!(decoder.greeting(), Err(FrameError::Greeting(NOISE_LIMIT + 1)));
    }
}
