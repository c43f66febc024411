//! For people: what, where, why, what to do.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use textwrap::{Options, WordSplitter};

use crate::RULES;
use crate::finding::{Finding, LiveDifference, Severity};
use crate::output::count;
use vmconfig::source::LineColumn;

const RESET: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const BLUE: &str = "\x1b[1;34m";
const GREEN: &str = "\x1b[32m";

/// The findings, an empty line behind each. The first one of a rule says why
/// that matters; texts are wrapped at `width` columns.
#[must_use]
pub fn text(findings: &[Finding], width: usize, colour: bool) -> String {
    texts(findings, width, colour).collect()
}

/// The same, one finding after the other: there may be more than one would like to hold
/// as one text.
pub fn texts(
    findings: &[Finding],
    width: usize,
    colour: bool,
) -> impl Iterator<Item = String> + '_ {
    let mut told = BTreeSet::new();
    findings.iter().map(move |finding| {
        let why = RULES.iter().find(|rule| rule.id == finding.rule && told.insert(rule.id));
        one(finding, why.map(|rule| rule.why), width, colour) + "\n"
    })
}

/// One finding: the line with the place marked, why, notes, and what to do.
fn one(finding: &Finding, why: Option<&str>, width: usize, colour: bool) -> String {
    let paint = |code: &'static str| if colour { code } else { "" };
    let (bold, blue, green, reset) = (paint(BOLD), paint(BLUE), paint(GREEN), paint(RESET));
    let strong = paint(match finding.severity {
        Severity::Error => "\x1b[1;31m",
        Severity::Warning => "\x1b[1;33m",
        Severity::Hint => "\x1b[1;36m",
    });
    let place = &finding.place;
    let gutter = " ".repeat(place.line.to_string().len().max(highest(finding)));
    let mut text = format!(
        "{strong}{}[{}]{reset}{bold}: {}{reset}\n{gutter}{blue}-->{reset} {}:{}:{}",
        finding.severity.name(),
        finding.rule,
        finding.message,
        finding.file,
        place.line,
        place.column
    );
    if !finding.vm.is_empty() {
        let _ = write!(text, " ({})", finding.vm);
    }
    let (line, column, length) = window(place, width.saturating_sub(gutter.len() + 3));
    let before = " ".repeat(column);
    let carets = "^".repeat(length);
    let number = format!("{:>width$}", place.line, width = gutter.len());
    let _ = write!(
        text,
        "\n{gutter} {blue}|{reset}\n{blue}{number} |{reset} {line}\n{gutter} {blue}|{reset} \
         {before}{strong}{carets}{reset}\n"
    );
    let mut say = |label: &str, words: &str| {
        let indent = " ".repeat(gutter.len() + label.len() + 5);
        let lines = wrap(words, width.saturating_sub(indent.len()).max(40));
        let _ = writeln!(
            text,
            "{gutter} {blue}={reset} {bold}{label}{reset}: {}",
            lines.join(&format!("\n{indent}"))
        );
    };
    if let Some(LiveDifference { asked, is }) = &finding.live {
        say("asked", asked);
        say("is", is);
    }
    for note in &finding.notes {
        say("note", note);
    }
    if let Some(why) = why {
        say("why", why);
    }
    say("help", &finding.help);
    if let Some(fix) = &finding.fix {
        for (number, line) in &fix.lines {
            let number = format!("{number:>width$}", width = gutter.len());
            let line = line.replace('\t', " ");
            let _ = writeln!(text, "{blue}{number}{reset} {green}+ {line}{reset}");
        }
        if fix.certain {
            let _ = writeln!(text, "{gutter} {blue}={reset} `vmlab lint --fix` writes this");
        }
    }
    text
}

/// The part of a line around what is marked that fits into `width` columns,
/// where the mark begins in it and how long it is.
fn window(place: &LineColumn, width: usize) -> (String, usize, usize) {
    /// Columns in front of the mark, where the beginning does not fit.
    const BEFORE: usize = 16;
    const CUT: &str = "...";
    // Tabs would put the caret elsewhere.
    let letters: Vec<char> = place.text.replace('\t', " ").chars().collect();
    let width = width.max(40);
    let at = (place.column - 1).saturating_sub(place.cut).min(letters.len());
    if letters.len() <= width && place.cut == 0 {
        return (letters.into_iter().collect(), at, place.length);
    }
    let from = if at + place.length.min(BEFORE) <= width { 0 } else { at.saturating_sub(BEFORE) };
    let to = letters.len().min(from + width - 2 * CUT.len());
    let head = if from + place.cut > 0 { CUT } else { "" };
    let tail = if to < letters.len() { CUT } else { "" };
    let shown: String = letters[from..to].iter().collect();
    let length = place.length.min(to.saturating_sub(at)).max(1);
    (format!("{head}{shown}{tail}"), at - from + head.len(), length)
}

/// Lines of at most `width` columns; a longer word has a line of its own.
fn wrap(words: &str, width: usize) -> Vec<String> {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation).break_words(false);
    textwrap::wrap(&words, options).into_iter().map(Cow::into_owned).collect()
}

/// Digits of the highest line number shown.
fn highest(finding: &Finding) -> usize {
    let fixed = finding.fix.iter().flat_map(|fix| &fix.lines);
    fixed.map(|(number, _)| number.to_string().len()).max().unwrap_or(0)
}

/// The last lines: "2 errors, 1 warning, 1 hint in 3 files; `--fix` mends 1" and
/// where more is to be read. `what` was looked through: "file".
#[must_use]
pub fn summary(findings: &[Finding], number: usize, what: &str) -> String {
    let plural = |number: usize, word: &str| {
        format!("{number} {word}{}", if number == 1 { "" } else { "s" })
    };
    let counts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Hint]
        .into_iter()
        .map(|severity| (count(findings, severity), severity.name()))
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| plural(number, word))
        .collect();
    let whole = plural(number, what);
    if counts.is_empty() {
        return format!("Nothing found in {whole}\n");
    }
    let certain =
        findings.iter().filter(|finding| finding.fix.as_ref().is_some_and(|fix| fix.certain));
    let mut text = format!("{} in {whole}", counts.join(", "));
    match certain.count() {
        0 => {}
        number => {
            let _ = write!(text, "; `--fix` mends {number}");
        }
    }
    text.push_str("\n`vmlab lint --explain ID` shows a rule with an example put right");
    text.push('\n');
    text
}
