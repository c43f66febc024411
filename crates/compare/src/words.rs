//! Byte strings as small numbers: a benchmark's name is stored once, however
//! many lines bear it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for keys that are hashes, or small numbers, already.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct KeyHasher(u64);

/// Odd, and its bits look random: the golden ratio's.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes) ^ self.0.wrapping_mul(MIX);
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(MIX);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}

pub(crate) type MixedMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// Eight bytes at a time; good enough for a table that compares bytes too.
fn hash(bytes: &[u8]) -> u64 {
    let mut state = bytes.len() as u64;
    let mut add = |word: u64| {
        state = (state ^ word).wrapping_mul(MIX);
        state ^= state >> 29;
    };
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        add(u64::from_le_bytes(word.try_into().expect("chunks are 8 bytes long")));
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    add(u64::from_le_bytes(last));
    state
}

/// Distinct byte strings, numbered from 0 in the order of their first use.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    bytes: Vec<u8>,
    /// Where each word ends in `bytes`.
    ends: Vec<usize>,
    by_hash: MixedMap<u64, u32>,
    /// The word that was asked for last: the next line often bears it again,
    /// or the one that came after it the first time.
    last: u32,
}

impl Interner {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn bytes(&self, word: u32) -> &[u8] {
        let index = word as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// The word as text; bytes that are no UTF-8 become replacement characters.
    pub(crate) fn text(&self, word: u32) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(word))
    }

    pub(crate) fn find(&self, bytes: &[u8]) -> Option<u32> {
        let mut key = hash(bytes);
        loop {
            let word = *self.by_hash.get(&key)?;
            if self.bytes(word) == bytes {
                return Some(word);
            }
            key = key.wrapping_add(1);
        }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> u32 {
        for guess in [self.last, self.last + 1] {
            if (guess as usize) < self.ends.len() && self.bytes(guess) == bytes {
                self.last = guess;
                return guess;
            }
        }
        let mut key = hash(bytes);
        while let Some(word) = self.by_hash.get(&key) {
            if self.bytes(*word) == bytes {
                self.last = *word;
                return *word;
            }
            key = key.wrapping_add(1);
        }
        let word = u32::try_from(self.ends.len()).expect("fewer than 2^32 names fit into memory");
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.by_hash.insert(key, word);
        self.last = word;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equal_words_have_one_number(texts in prop::collection::vec("[ab]{0,9}", 0..60)) {
            let mut words = Interner::default();
            let numbers: Vec<u32> = texts.iter().map(|text| words.add(text.as_bytes())).collect();
            for (text, number) in texts.iter().zip(&numbers) {
                prop_assert_eq!(words.text(*number), text.as_str());
                prop_assert_eq!(words.find(text.as_bytes()), Some(*number));
            }
            let distinct: std::collections::BTreeSet<_> = texts.iter().collect();
            prop_assert_eq!(words.len(), distinct.len());
            prop_assert_eq!(words.find(b"c"), None);
        }
    }
}
