//! Searches for any of a few words at once.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind, Span, packed};

/// A search for the first of some words, all at once.
pub(super) enum NeedleFinder {
    /// By vector instructions.
    Packed(packed::Searcher),
    /// For processors without these. It begins at rare bytes, which are none in
    /// documents of JSON: there it is half as fast.
    Automaton(AhoCorasick),
}

impl NeedleFinder {
    /// None of which is empty.
    pub(super) fn of(needles: impl Iterator<Item = &'static str> + Clone) -> Self {
        packed::Searcher::new(needles.clone()).map_or_else(
            || {
                let automaton = AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostFirst)
                    .build(needles)
                    .expect("the words are few and short");
                Self::Automaton(automaton)
            },
            Self::Packed,
        )
    }

    /// Where the first of the words begins in `span`, and which it is.
    pub(super) fn find(&self, text: &str, span: Range<usize>) -> Option<(usize, usize)> {
        let found = match self {
            Self::Packed(searcher) => searcher.find_in(text, Span::from(span)),
            Self::Automaton(automaton) => automaton.find(Input::new(text).span(span)),
        }?;
        Some((found.start(), found.pattern().as_usize()))
    }
}
