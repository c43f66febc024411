//! Damage of every kind to journals old and new.

use proptest::prelude::*;

use super::*;
use crate::Outcome;
use crate::journal::TrialResult;

fn event(block: u32) -> JournalEvent {
    JournalEvent::BlockStarted { block, attempt: 0, load: "idle".into(), unix_s: 1.5 }
}

fn lines(count: u32) -> (Vec<String>, JournalTail) {
    let mut end = JournalTail::default();
    let line = |block| {
        let (line, next) = end.line(&event(block)).unwrap();
        end = next;
        line
    };
    let lines = (0..count).map(line).collect();
    (lines, end)
}

/// A line as vmlab 0.1 wrote it.
fn old(event: &JournalEvent) -> String {
    let json = serde_json::to_string(event).unwrap();
    format!("{json}\t{:08x}\n", crc32fast::hash(json.as_bytes()))
}

fn trial_ended(id: &str, attempt: u32) -> JournalEvent {
    let trial = TrialKey {
        id: id.into(),
        block: 0,
        attempt,
        load: "idle".into(),
        workload: "hackbench".into(),
        variant: "one".into(),
        order: 0,
    };
    let result = TrialResult::new(trial, Outcome::Completed, 0.0);
    JournalEvent::TrialEnded(Box::new(TrialResult { wall_s: 1.0, ..result }))
}

/// The blocks that are read, and what is said of the rest.
fn check(
    text: &str,
    end: Option<JournalTail>,
    blocks: &[u32],
    damage: &[(u64, DamageKind)],
) -> Journal {
    let journal = read(text.as_bytes(), end);
    let damage: Vec<_> =
        damage.iter().map(|(line, kind)| Damage { line: *line, kind: kind.clone() }).collect();
    assert_eq!(journal.damage, damage, "{text}");
    assert_eq!(journal.events, blocks.iter().copied().map(event).collect::<Vec<_>>(), "{text}");
    journal
}

#[test]
fn what_is_written_is_read() {
    let (lines, end) = lines(5);
    let text = lines.concat();
    let journal = check(&text, Some(end), &[0, 1, 2, 3, 4], &[]);
    assert_eq!((journal.sound_bytes, journal.end), (text.len(), end));
    check("", None, &[], &[]);
}

#[test]
fn lines_that_are_gone_are_counted_wherever_they_stood() {
    let (lines, end) = lines(6);
    let missing = |lines| DamageKind::Missing { lines };
    let text = [&lines[..1], &lines[3..]].concat().concat();
    check(&text, Some(end), &[0, 3, 4, 5], &[(2, missing(2))]);
    check(&lines[1..].concat(), Some(end), &[1, 2, 3, 4, 5], &[(1, missing(1))]);
    let text = lines[..4].concat();
    check(&text, Some(end), &[0, 1, 2, 3], &[(5, missing(2))]);
    check("", Some(end), &[], &[(1, missing(6))]);
    check(&text, None, &[0, 1, 2, 3], &[]);
}

#[test]
fn a_line_counts_once_and_in_its_place() {
    let (lines, end) = lines(4);
    let [a, b, c, d] = [0, 1, 2, 3].map(|line: usize| lines[line].clone());
    let text = [&a, &b, &b, &c, &d, &a].map(String::as_str).concat();
    let repeated = [(3, DamageKind::Repeated), (6, DamageKind::Repeated)];
    check(&text, Some(end), &[0, 1, 2, 3], &repeated);
    let text = [&a, &c, &b, &d].map(String::as_str).concat();
    check(&text, Some(end), &[0, 1, 2, 3], &[(3, DamageKind::Displaced { number: 2 })]);
}

#[test]
fn a_line_that_was_replaced_shows_in_the_next() {
    let (lines, end) = lines(3);
    let (other, _) = JournalTail { number: 1, crc: 7 }.line(&event(9)).unwrap();
    let text = [&lines[0], &other, &lines[2]].map(String::as_str).concat();
    let replaced = [(2, DamageKind::Replaced), (3, DamageKind::Replaced)];
    check(&text, Some(end), &[0, 9, 2], &replaced);
    let (other, _) = JournalTail { number: 2, ..end }.line(&event(9)).unwrap();
    let text = [&lines[0], &lines[1], &other].map(String::as_str).concat();
    let found = read(text.as_bytes(), Some(end));
    assert!(found.damage.iter().all(|it| it.kind == DamageKind::Replaced && it.line == 3));
    assert!(!found.damage.is_empty());
}

#[test]
fn a_crash_cuts_off_what_was_not_acknowledged() {
    let (lines, end) = lines(3);
    let text = lines.concat();
    let text = &text[..text.len() - 4];
    let bytes = lines[2].len() as u64 - 4;
    let before = JournalTail { number: 2, crc: read(lines[..2].concat().as_bytes(), None).end.crc };
    let cut = |acknowledged| [(3, DamageKind::CutOff { bytes, acknowledged })];
    let journal = check(text, Some(before), &[0, 1], &cut(false));
    assert!(journal.damage[0].kind.is_of_a_crash());
    assert_eq!((journal.sound_bytes, journal.end), (lines[..2].concat().len(), before));
    check(text, None, &[0, 1], &cut(false));
    let journal = check(text, Some(end), &[0, 1], &cut(true));
    assert!(!journal.damage[0].kind.is_of_a_crash());
}

#[test]
fn journals_without_numbers_are_read_and_gone_on_with() {
    let mut text: String = (0..3).map(|block| old(&event(block))).collect();
    let mut end = check(&text, None, &[0, 1, 2], &[]).end;
    assert_eq!(end.number, 3);
    for block in 3..5 {
        let (line, next) = end.line(&event(block)).unwrap();
        text.push_str(&line);
        end = next;
    }
    check(&text, Some(end), &[0, 1, 2, 3, 4], &[]);

    // What a flipped bit costs: one line.
    let mut bytes = text.into_bytes();
    bytes[10] ^= 1;
    let journal = read(&bytes, Some(end));
    assert_eq!(journal.events.len(), 4);
    assert!(matches!(&journal.damage[..], [Damage { line: 1, .. }]), "{:?}", journal.damage);
    assert_eq!(journal.sound_bytes, 0);

    // A trial ends once.
    let [one, again, other] = [("a", 0), ("a", 1), ("b", 0)].map(|(id, n)| trial_ended(id, n));
    let text = [&one, &one, &again, &other, &one].map(old).concat();
    let journal = read(text.as_bytes(), None);
    assert_eq!(journal.events, [one, again, other]);
    let lines: Vec<_> = journal.damage.iter().map(|it| (it.line, it.kind.clone())).collect();
    assert_eq!(lines, [(2, DamageKind::Repeated), (5, DamageKind::Repeated)]);
}

#[test]
fn an_end_is_a_line_of_one_length() {
    let (_, end) = lines(12);
    let text = end.to_string();
    assert_eq!(text.parse(), Ok(end));
    assert_eq!(text.len(), JournalTail::default().to_string().len());
    for bad in ["", "\n", "12 abc\n", &text[1..], &text[..text.len() - 1]] {
        assert_eq!(bad.parse::<JournalTail>(), Err(UnknownEnd), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn no_damage_goes_unsaid(
        place in 0usize..1000,
        bit in 0u8..8,
        first in 0usize..6,
        second in 0usize..6,
        what in 0u8..5,
    ) {
        let (mut lines, end) = lines(6);
        let whole = lines.concat().into_bytes();
        let mut bytes = match what {
            0 => { lines.remove(first); lines.concat().into_bytes() }
            1 => { let line = lines[first].clone(); lines.insert(second, line); lines.concat().into_bytes() }
            2 if first != second => { lines.swap(first, second); lines.concat().into_bytes() }
            3 => whole[..place % whole.len()].to_vec(),
            _ => whole.clone(),
        };
        if bytes == whole {
            let flip = place % bytes.len();
            bytes[flip] ^= 1 << bit;
        }
        let journal = read(&bytes, Some(end));
        prop_assert!(!journal.damage.is_empty());
        // Nothing that is read was not written, and nothing twice.
        let known: Vec<_> = (0..6).map(event).collect();
        let places: Vec<_> = journal.events.iter().map(|event| known.iter().position(|it| it == event)).collect();
        prop_assert!(places.iter().all(Option::is_some), "{places:?}");
        prop_assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
        // At most two lines suffer from one bit: a newline that is none joins two.
        if what == 4 {
            prop_assert!(journal.events.len() >= 4);
        }
    }
}

#[test]
fn a_trial_ends_once_however_its_lines_are_chained() {
    let mut end = JournalTail::default();
    let mut lines = Vec::new();
    for event in [trial_ended("a", 0), trial_ended("a", 1), trial_ended("a", 0), event(0)] {
        let (line, next) = end.line(&event).unwrap();
        lines.push(line);
        end = next;
    }
    let journal = read(lines.concat().as_bytes(), Some(end));
    assert_eq!(journal.events, [trial_ended("a", 0), trial_ended("a", 1), event(0)]);
    assert_eq!(journal.damage, [Damage { line: 3, kind: DamageKind::EndedTwice }]);
    assert!(journal.is_numbered && !journal.damage[0].kind.lets_go_on());
}
