//! The journal's lines: one event each, numbered, chained and checked.
//!
//! ```text
//! JSON <tab> number <tab> checksum of the line before <tab> checksum <newline>
//! ```
//!
//! The number counts from 1; the checksum is the CRC-32, in hexadecimal, of all
//! that stands before its tab. So each line can be trusted by itself, and a line
//! that is gone, repeated, moved or replaced shows in the lines around it. What
//! is gone from the end shows in the [`JournalTail`] that is kept beside the journal.
//!
//! Journals of vmlab 0.1 carry neither number nor chain: `JSON <tab> checksum`.
//! They are read, and a study that goes on numbers the lines that it adds.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JournalEvent, TrialKey};

/// Where a journal ends: what its next line follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalTail {
    /// Number of the last line, from 1; 0 in an empty journal.
    pub number: u64,
    /// Checksum of the last line; 0 in an empty journal.
    pub crc: u32,
}

impl JournalTail {
    /// `event` as the line behind this end, newline included, and where the
    /// journal ends then.
    ///
    /// # Errors
    /// Only if the event cannot be said in JSON (a value that is not finite).
    pub fn line(self, event: &JournalEvent) -> Result<(String, Self), serde_json::Error> {
        let json = serde_json::to_string(event)?;
        let number = self.number.saturating_add(1);
        let text = format!("{json}\t{number}\t{:08x}", self.crc);
        let crc = crc32fast::hash(text.as_bytes());
        Ok((format!("{text}\t{crc:08x}\n"), Self { number, crc }))
    }
}

impl fmt::Display for JournalTail {
    /// Always as long: it is written over the one before.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:020} {:08x}", self.number, self.crc)
    }
}

impl FromStr for JournalTail {
    type Err = UnknownEnd;

    fn from_str(text: &str) -> Result<Self, UnknownEnd> {
        let fields = || {
            let (number, crc) = text.strip_suffix('\n')?.split_once(' ')?;
            Some(Self { number: number.parse().ok()?, crc: u32::from_str_radix(crc, 16).ok()? })
        };
        fields().filter(|end| end.to_string() == text).ok_or(UnknownEnd)
    }
}

/// The text is not that of an [`JournalTail`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a line's number and checksum")]
pub struct UnknownEnd;

/// Why a line of the journal could not be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There is no tab with a checksum behind it.
    #[error("no checksum at the line's end")]
    NoChecksum,
    /// The checksum is not the text's.
    #[error("checksum {found} instead of {expected}")]
    Checksum {
        /// The checksum that the line carries.
        found: String,
        /// The checksum of the line's text.
        expected: String,
    },
    /// The checksum holds, but this version does not know the event.
    #[error("not an event of this version: {0}")]
    NotAnEvent(String),
}

/// A line that can be trusted by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalLine {
    /// What it says.
    pub event: JournalEvent,
    /// Its number and the checksum of the line before; none in old journals.
    pub place: Option<(u64, u32)>,
    /// Its checksum.
    pub crc: u32,
}

/// Reads one line, without its newline.
///
/// # Errors
/// [`DecodeError`] says why the line is not to be trusted.
pub fn decode(line: &[u8]) -> Result<JournalLine, DecodeError> {
    let (text, found) = before_tab(line).ok_or(DecodeError::NoChecksum)?;
    let crc = crc32fast::hash(text);
    let expected = format!("{crc:08x}");
    if found != expected.as_bytes() {
        let found = String::from_utf8_lossy(&found[..found.len().min(16)]).into_owned();
        return Err(DecodeError::Checksum { found, expected });
    }
    // JSON escapes its own tabs.
    let (json, place) = numbered(text).map_or((text, None), |(json, place)| (json, Some(place)));
    let event =
        serde_json::from_slice(json).map_err(|error| DecodeError::NotAnEvent(error.to_string()))?;
    Ok(JournalLine { event, place, crc })
}

fn before_tab(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let tab = text.iter().rposition(|byte| *byte == b'\t')?;
    Some((&text[..tab], &text[tab + 1..]))
}

fn numbered(text: &[u8]) -> Option<(&[u8], (u64, u32))> {
    let (text, before) = before_tab(text)?;
    let (json, number) = before_tab(text)?;
    let before = u32::from_str_radix(std::str::from_utf8(before).ok()?, 16).ok()?;
    Some((json, (std::str::from_utf8(number).ok()?.parse().ok()?, before)))
}

/// Something that is wrong with a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Damage {
    /// The line of the file, from 1, where it shows.
    pub line: u64,
    /// What is wrong there.
    #[serde(flatten)]
    pub kind: DamageKind,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.kind)
    }
}

/// What is wrong with a line of a journal, or with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "damage", rename_all = "kebab-case")]
pub enum DamageKind {
    /// The line was changed, or is of a later vmlab: it is left out.
    Unreadable {
        /// Why it can't be trusted.
        reason: String,
    },
    /// The last line has no end: it is left out.
    CutOff {
        /// What is there of it, bytes.
        bytes: u64,
        /// True if it was whole once. Else a crash explains it: nothing that was
        /// acknowledged is lost.
        acknowledged: bool,
    },
    /// Lines that stood before this one are gone, or behind the last one.
    Missing {
        /// Their number.
        lines: u64,
    },
    /// The same line stands there before: it counts once.
    Repeated,
    /// The trial had ended before, on another line: the first end counts.
    EndedTwice,
    /// The line stands behind one that it came before: it counts in its place.
    Displaced {
        /// Its own number.
        number: u64,
    },
    /// The line before is not the one that this one followed, or the last one is
    /// not the one that was acknowledged.
    Replaced,
    /// The file that says where the journal ends is gone, or empty: whether lines are
    /// missing behind the last one can't be known.
    EndUnknown,
    /// Trials of no variant, workload or load of the plan: they are left out.
    Unplanned {
        /// Their number.
        trials: u64,
    },
    /// Texts that trials left are gone: outputs, consoles.
    TextsMissing {
        /// Their number.
        texts: u64,
    },
}

impl DamageKind {
    /// True for what a crash leaves, without anything lost that was acknowledged.
    #[must_use]
    pub fn is_of_a_crash(&self) -> bool {
        matches!(self, Self::CutOff { acknowledged: false, .. })
    }

    /// True where a study can go on all the same: no line that it goes on from is in doubt.
    #[must_use]
    pub fn lets_go_on(&self) -> bool {
        self.is_of_a_crash() || matches!(self, Self::EndUnknown | Self::TextsMissing { .. })
    }
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { reason } => write!(f, "damaged ({reason}); it is left out"),
            Self::CutOff { bytes, acknowledged: false } => {
                write!(f, "a write was cut off; its {bytes} byte(s) are left out")
            }
            Self::CutOff { bytes, acknowledged: true } => write!(
                f,
                "damaged (the line was whole once and is cut off after {bytes} byte(s)); it is left out"
            ),
            Self::Missing { lines: 1 } => f.write_str("a line is missing here"),
            Self::Missing { lines } => write!(f, "{lines} lines are missing here"),
            Self::Repeated => f.write_str("the same line stands there before; it counts once"),
            Self::EndedTwice => {
                f.write_str("this trial had ended on an earlier line; that one counts")
            }
            Self::EndUnknown => f.write_str(
                "journal.end, which says where the journal ends, is gone or empty; lines behind this one may be missing",
            ),
            Self::Unplanned { trials } => write!(
                f,
                "{trials} trial(s) before are of no variant, workload or load of the plan; they are left out"
            ),
            Self::TextsMissing { texts } => {
                write!(f, "{texts} text(s) that trials left are missing in blobs")
            }
            Self::Displaced { number } => {
                write!(f, "this is line {number}, in the wrong place; it counts in its own")
            }
            Self::Replaced => {
                f.write_str("what is before is not what was there when this was written")
            }
        }
    }
}

/// What a journal's text holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    /// The events of all lines that can be trusted, in order, each once.
    pub events: Vec<JournalEvent>,
    /// What is wrong, by line.
    pub damage: Vec<Damage>,
    /// Length in bytes of the beginning in which nothing is wrong.
    pub sound_bytes: usize,
    /// The last line of that beginning.
    pub end: JournalTail,
    /// True if any line carries a number, as all have that have an end beside them.
    pub is_numbered: bool,
}

/// Reads a journal whose last line was once `acknowledged`, if that is known.
///
/// A last line without a newline is cut off, even if its checksum holds: the
/// write that made it was not finished.
#[must_use]
pub fn read(text: &[u8], acknowledged: Option<JournalTail>) -> Journal {
    let mut reader = LineReader { acknowledged, ..LineReader::default() };
    let mut sound = (0, JournalTail::default());
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        reader.take(line);
        at += line.len();
        if reader.damage.is_empty() {
            sound = (at, reader.last);
        }
    }
    let (sound_bytes, end) = sound;
    let is_numbered = reader.is_numbered;
    let (events, damage) = reader.finish();
    Journal { events, damage, sound_bytes, end, is_numbered }
}

#[derive(Debug, Default)]
struct LineReader {
    acknowledged: Option<JournalTail>,
    /// Lines of the file so far.
    lines: u64,
    /// The last line that was taken, in the order of numbers.
    last: JournalTail,
    /// Lines behind that which can't be trusted: they explain a gap.
    unreadable: u64,
    numbers: HashSet<u64>,
    is_numbered: bool,
    /// Trials that ended: identity and attempt.
    ended: HashSet<(String, u32)>,
    events: Vec<(u64, JournalEvent)>,
    damage: Vec<Damage>,
    /// Gaps: place in `damage`, and the numbers that lack.
    gaps: Vec<(usize, std::ops::Range<u64>)>,
}

impl LineReader {
    fn tell(&mut self, kind: DamageKind) {
        self.damage.push(Damage { line: self.lines, kind });
    }

    fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        let Some(whole) = line.strip_suffix(b"\n") else {
            let number = self.last.number.saturating_add(self.unreadable + 1);
            let acknowledged = self.acknowledged.is_some_and(|end| end.number >= number);
            self.unreadable += 1;
            return self.tell(DamageKind::CutOff { bytes: line.len() as u64, acknowledged });
        };
        match decode(whole) {
            Ok(JournalLine { event, place: Some((number, before)), crc }) => {
                self.numbered(event, JournalTail { number, crc }, before);
            }
            Ok(JournalLine { event, place: None, crc }) => self.unnumbered(event, crc),
            Err(error) => {
                self.unreadable += 1;
                self.tell(DamageKind::Unreadable { reason: error.to_string() });
            }
        }
    }

    fn numbered(&mut self, event: JournalEvent, this: JournalTail, before: u32) {
        let number = this.number;
        self.is_numbered = true;
        if !self.numbers.insert(number) {
            return self.tell(DamageKind::Repeated);
        }
        if number <= self.last.number {
            self.tell(DamageKind::Displaced { number });
            return self.count(number, event);
        }
        let expected = self.last.number.saturating_add(1);
        let lacking = (number - expected).saturating_sub(self.unreadable);
        if lacking > 0 {
            self.gaps.push((self.damage.len(), expected..number));
            self.tell(DamageKind::Missing { lines: lacking });
        } else if number == expected && before != self.last.crc {
            self.tell(DamageKind::Replaced);
        }
        self.follow(event, this);
    }

    /// A line of an old journal: nothing tells its number but its place.
    fn unnumbered(&mut self, event: JournalEvent, crc: u32) {
        if event.ended_trial().is_some_and(|trial| self.ended.contains(&ended(trial))) {
            return self.tell(DamageKind::Repeated);
        }
        let number = self.last.number.saturating_add(self.unreadable + 1);
        self.numbers.insert(number);
        self.follow(event, JournalTail { number, crc });
    }

    fn follow(&mut self, event: JournalEvent, this: JournalTail) {
        if self.acknowledged.is_some_and(|end| end.number == this.number && end != this) {
            self.tell(DamageKind::Replaced);
        }
        self.count(this.number, event);
        self.last = this;
        self.unreadable = 0;
    }

    fn count(&mut self, number: u64, event: JournalEvent) {
        if event.ended_trial().is_some_and(|trial| !self.ended.insert(ended(trial))) {
            return self.tell(DamageKind::EndedTwice);
        }
        self.events.push((number, event));
    }

    fn finish(mut self) -> (Vec<JournalEvent>, Vec<Damage>) {
        let there = self.last.number.saturating_add(self.unreadable);
        let behind = self.acknowledged.map_or(0, |end| end.number.saturating_sub(there));
        if behind > 0 {
            self.lines += 1;
            self.tell(DamageKind::Missing { lines: behind });
        }
        // What stands elsewhere is not missing.
        for (place, lacking) in self.gaps.into_iter().rev() {
            if lacking.end - lacking.start <= self.numbers.len() as u64
                && lacking.into_iter().all(|number| self.numbers.contains(&number))
            {
                self.damage.remove(place);
            }
        }
        self.events.sort_by_key(|(number, _)| *number);
        (self.events.into_iter().map(|(_, event)| event).collect(), self.damage)
    }
}

fn ended(trial: &TrialKey) -> (String, u32) {
    (trial.id.clone(), trial.attempt)
}

#[cfg(test)]
mod tests;
