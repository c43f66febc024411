//! For people: what, where, why, what to do.

use std::fmt::Write as _;

use crate::finding::{Finding, Severity};
use crate::output::count;

const RESET: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const BLUE: &str = "\x1b[1;34m";
const GREEN: &str = "\x1b[32m";

/// One finding: the line with the place marked, notes, and what to do.
#[must_use]
pub fn text(finding: &Finding, colour: bool) -> String {
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
    // Tabs would put the caret elsewhere.
    let line = place.text.replace('\t', " ");
    let before = " ".repeat(place.column - 1);
    let carets = "^".repeat(place.length);
    let number = format!("{:>width$}", place.line, width = gutter.len());
    let _ = write!(
        text,
        "\n{gutter} {blue}|{reset}\n{blue}{number} |{reset} {line}\n{gutter} {blue}|{reset} \
         {before}{strong}{carets}{reset}\n"
    );
    for note in &finding.notes {
        let _ = writeln!(text, "{gutter} {blue}={reset} {bold}note{reset}: {note}");
    }
    let _ = writeln!(text, "{gutter} {blue}={reset} {bold}help{reset}: {}", finding.help);
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

/// Digits of the highest line number shown.
fn highest(finding: &Finding) -> usize {
    let fixed = finding.fix.iter().flat_map(|fix| &fix.lines);
    fixed.map(|(number, _)| number.to_string().len()).max().unwrap_or(0)
}

/// The last line: "2 errors, 1 warning, 1 hint in 3 files; 1 can be mended with --fix".
#[must_use]
pub fn summary(findings: &[Finding], files: usize) -> String {
    let plural = |number: usize, word: &str| {
        format!("{number} {word}{}", if number == 1 { "" } else { "s" })
    };
    let counts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Hint]
        .into_iter()
        .map(|severity| (count(findings, severity), severity.name()))
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| plural(number, word))
        .collect();
    let files = plural(files, "file");
    if counts.is_empty() {
        return format!("Nothing found in {files}\n");
    }
    let certain =
        findings.iter().filter(|finding| finding.fix.as_ref().is_some_and(|fix| fix.certain));
    let mut text = format!("{} in {files}", counts.join(", "));
    match certain.count() {
        0 => {}
        number => {
            let _ = write!(text, "; `--fix` mends {number}");
        }
    }
    text.push('\n');
    text
}
