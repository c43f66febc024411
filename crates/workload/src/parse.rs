//! What parsers share: the output, the result, the errors, and lines that know
//! their number.

use std::fmt;

use record::{Histogram, Sample};

/// What a command printed.
#[derive(Debug, Clone, Copy)]
pub struct CommandOutput<'a> {
    /// Its standard output.
    pub stdout: &'a str,
    /// Its standard error.
    pub stderr: &'a str,
}

/// What a command's output says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedOutput {
    /// The values, in base units, in the order of the output.
    pub samples: Vec<Sample>,
    /// The distributions behind its quantiles, where it prints any: those of
    /// the whole run, each name once.
    pub histograms: Vec<Histogram>,
    /// The tool's version, where it prints one.
    pub tool_version: Option<String>,
    /// What to know about these values, one sentence each.
    pub warnings: Vec<String>,
}

impl ParsedOutput {
    pub(crate) fn push(&mut self, metric: &str, value: f64) {
        self.samples.push(Sample { metric: metric.to_owned(), value });
    }
}

/// One of the two streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl fmt::Display for OutputStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

/// Error type for [`crate::CatalogueEntry::parse`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// A line that is not what should stand there.
    #[error("{stream} line {line}: expected {expected}, found {text:?}")]
    Line {
        /// The stream.
        stream: OutputStream,
        /// The line's number, from 1.
        line: usize,
        /// The line, shortened if long.
        text: String,
        /// What should stand there.
        expected: String,
    },
    /// The output ended before it was complete.
    #[error("{stream} ended at line {line} without {missing}; {says} {text:?}")]
    Ended {
        /// The stream.
        stream: OutputStream,
        /// The number of its last line, 0 if it is empty.
        line: usize,
        /// What is missing.
        missing: String,
        /// Where the text comes from, to read before it.
        says: &'static str,
        /// The last line of the stream, or what the tool complained of on
        /// standard error; shortened if long.
        text: String,
    },
}

/// A line of an output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputLine<'a> {
    pub(crate) stream: OutputStream,
    pub(crate) number: usize,
    /// Without the newline, which [`OutputLine::whole`] asks for.
    pub(crate) text: &'a str,
    terminated: bool,
}

impl<'a> CommandOutput<'a> {
    /// The lines of standard output.
    pub(crate) fn stdout_lines(self) -> impl Iterator<Item = OutputLine<'a>> {
        lines(OutputStream::Stdout, self.stdout)
    }

    /// The lines of standard error.
    pub(crate) fn stderr_lines(self) -> impl Iterator<Item = OutputLine<'a>> {
        lines(OutputStream::Stderr, self.stderr)
    }

    /// A line of a stream by its number, from 1; without it, the first of standard output.
    pub(crate) fn line(self, stream: OutputStream, number: usize) -> OutputLine<'a> {
        let text = match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        };
        let line = lines(stream, text).nth(number.max(1) - 1);
        line.unwrap_or_else(|| self.first_line())
    }

    /// The first line of standard output, empty if there is none.
    pub(crate) fn first_line(self) -> OutputLine<'a> {
        let none =
            OutputLine { stream: OutputStream::Stdout, number: 0, text: "", terminated: false };
        self.stdout_lines().next().unwrap_or(none)
    }

    /// The one JSON value that standard output is.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(self, what: &str) -> Result<T, ParseError> {
        if self.stdout.trim().is_empty() {
            return Err(self.ended(what));
        }
        serde_json::from_str(self.stdout).map_err(|error| {
            let line = self.stdout_lines().nth(error.line().max(1) - 1);
            line.unwrap_or_else(|| self.first_line()).expected(format!("{what} ({error})"))
        })
    }

    /// The error for a standard output that ended without `missing`.
    ///
    /// What the tool complained of on standard error is more telling than the
    /// last line of an output that it gave up.
    pub(crate) fn ended(self, missing: impl Into<String>) -> ParseError {
        let last = |text: &str| text.lines().rfind(|line| !line.trim().is_empty()).map(shorten);
        // Some follow the error up with their usage.
        let error = |text: &str| {
            text.lines().find(|line| line.to_ascii_lowercase().contains("error")).map(shorten)
        };
        let stderr = error(self.stderr).or_else(|| last(self.stderr));
        let (says, text) = match (stderr, last(self.stdout)) {
            (Some(text), _) => ("stderr says", text),
            (None, text) => ("the last line is", text.unwrap_or_default()),
        };
        ParseError::Ended {
            stream: OutputStream::Stdout,
            line: self.stdout.lines().count(),
            missing: missing.into(),
            says,
            text,
        }
    }
}

fn lines(stream: OutputStream, text: &str) -> impl Iterator<Item = OutputLine<'_>> {
    text.split_inclusive('\n').enumerate().map(move |(index, line)| {
        let terminated = line.ends_with('\n');
        OutputLine {
            stream,
            number: index + 1,
            text: line.trim_end_matches(['\n', '\r']),
            terminated,
        }
    })
}

impl<'a> OutputLine<'a> {
    /// The error for this line.
    pub(crate) fn expected(&self, expected: impl Into<String>) -> ParseError {
        ParseError::Line {
            stream: self.stream,
            line: self.number,
            text: shorten(self.text),
            expected: expected.into(),
        }
    }

    /// Refuses a line without a newline: its last number may be cut short.
    pub(crate) fn whole(&self) -> Result<(), ParseError> {
        if self.terminated { Ok(()) } else { Err(self.expected("a line that ends with a newline")) }
    }

    /// The number that `text`, a part of this line, says. Refuses what is not
    /// finite or below 0: no benchmark measures that.
    pub(crate) fn number(&self, text: &str, what: &str) -> Result<f64, ParseError> {
        self.whole()?;
        let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && !text.is_empty();
        text.parse()
            .ok()
            .filter(|value: &f64| digits && value.is_finite())
            .ok_or_else(|| self.expected(format!("{what}, a number")))
    }
}

/// At most 200 characters of a line, for messages.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
