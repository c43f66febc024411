//! A command line as a shell splits it, every byte with its place.
//!
//! Source: POSIX, Shell Command Language, section 2.2 "Quoting".

use crate::source::Span;

/// One word without its quotes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Place of each byte.
    at: Vec<usize>,
}

impl Word {
    pub(crate) fn span(&self) -> Span {
        self.part(0, self.text.len())
    }

    /// The place of some bytes of the word.
    pub(crate) fn part(&self, from: usize, to: usize) -> Span {
        let start = self.at.get(from).or(self.at.last()).copied().unwrap_or(0);
        let end = to.checked_sub(1).and_then(|last| self.at.get(last)).map_or(start, |at| at + 1);
        Span { start, end: end.max(start) }
    }
}

/// The commands of a text, each as its words.
pub(crate) fn commands(text: &str) -> Vec<Vec<Word>> {
    let mut commands = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote: Option<char> = None;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some('"') | None, '\\') => match letters.next() {
                Some((_, '\n')) | None => {}
                Some((_, '\r')) => {
                    letters.next_if(|(_, next)| *next == '\n');
                }
                Some((at, letter)) => add(&mut word, at, letter),
            },
            (Some(_), letter) => add(&mut word, at, letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => {
                while letters.next_if(|(_, next)| *next != '\n').is_some() {}
            }
            (None, '\n' | ';' | '&' | '|') => {
                words.extend(word.take());
                if !words.is_empty() {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, letter) => add(&mut word, at, letter),
        }
    }
    words.extend(word);
    if !words.is_empty() {
        commands.push(words);
    }
    commands
}

fn add(word: &mut Option<Word>, at: usize, letter: char) {
    let word = word.get_or_insert_default();
    word.text.push(letter);
    word.at.extend(at..at + letter.len_utf8());
}
