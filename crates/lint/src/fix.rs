//! Writing the fixes into a text.

use crate::finding::{Edit, Finding};

/// The text with every certain fix of the findings, and how many findings that
/// mends. Fixes that overlap one already taken wait for the next time.
#[must_use]
pub fn apply(text: &str, findings: &[Finding]) -> (String, usize) {
    let mut taken: Vec<&Edit> = Vec::new();
    let mut mended = 0;
    for finding in findings {
        let Some(fix) = finding.fix.as_ref().filter(|fix| fix.certain) else { continue };
        // Two insertions at one place would depend on their order.
        let free = |edit: &Edit| {
            taken.iter().all(|other| {
                edit.start != other.start && (edit.end <= other.start || other.end <= edit.start)
            })
        };
        if fix.edits.iter().all(free) {
            taken.extend(&fix.edits);
            mended += 1;
        }
    }
    taken.sort_by_key(|edit| edit.start);
    let mut mended_text = String::with_capacity(text.len());
    let mut from = 0;
    for edit in taken {
        mended_text.push_str(text.get(from..edit.start).unwrap_or_default());
        mended_text.push_str(&edit.text);
        from = edit.end;
    }
    mended_text.push_str(text.get(from..).unwrap_or_default());
    (mended_text, mended)
}

/// The difference between two texts in the unified format, with three lines
/// around each change; empty if there is none.
#[must_use]
pub fn difference(name: &str, before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let steps = steps(&old, &new);
    let mut text = String::new();
    let mut at = 0;
    while let Some(first) = steps[at..].iter().position(|step| step.sign != ' ').map(|n| n + at) {
        let mut last = first;
        for (index, step) in steps.iter().enumerate().skip(first) {
            if step.sign != ' ' {
                last = index;
            } else if index > last + 6 {
                break;
            }
        }
        let begin = first.saturating_sub(3).max(at);
        let end = (last + 4).min(steps.len());
        if text.is_empty() {
            text = format!("--- {name}\n+++ {name}\n");
        }
        let hunk = &steps[begin..end];
        let count = |sign: char| hunk.iter().filter(|step| step.sign != sign).count();
        text.push_str(&format!(
            "@@ -{},{} +{},{} @@\n",
            hunk[0].old + 1,
            count('+'),
            hunk[0].new + 1,
            count('-')
        ));
        for step in hunk {
            text.push(step.sign);
            text.push_str(step.line);
            text.push('\n');
        }
        at = end;
    }
    text
}

struct DiffLine<'a> {
    sign: char,
    line: &'a str,
    old: usize,
    new: usize,
}

/// Fixes change few lines, so what is equal at both ends is taken first and
/// the middle line by line: lines that stay are found by looking ahead.
fn steps<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<DiffLine<'a>> {
    let mut steps = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            steps.push(DiffLine { sign: ' ', line: old[i], old: i, new: j });
            i += 1;
            j += 1;
            continue;
        }
        // The nearest pair of equal lines ends the change.
        let (skip_old, skip_new) = (0..old.len() - i + new.len() - j + 1)
            .find_map(|sum| {
                (0..=sum).map(|a| (a, sum - a)).find(|(a, b)| {
                    let (left, right) = (old.get(i + a), new.get(j + b));
                    left.is_some() && left == right
                })
            })
            .unwrap_or((old.len() - i, new.len() - j));
        for _ in 0..skip_old {
            steps.push(DiffLine { sign: '-', line: old[i], old: i, new: j });
            i += 1;
        }
        for _ in 0..skip_new {
            steps.push(DiffLine { sign: '+', line: new[j], old: i, new: j });
            j += 1;
        }
    }
    steps
}
