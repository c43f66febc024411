//! Standard output and standard error: width, colours, errors.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use clap::ValueEnum;

/// Width where there is no terminal to ask.
const DEFAULT_WIDTH: usize = 80;
/// Wider lines are hard to read.
const MAX_WIDTH: usize = 120;

/// When to use colours.
#[derive(Debug, Default, Clone, Copy, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    /// Makes the choice hold for all that is printed from now on.
    pub(crate) fn apply(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

/// Prints `text` to standard output; escape codes are taken out where colours
/// are not wanted.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context("Cannot write to standard output")
}

/// Writes texts to standard output, one after the other.
pub(crate) fn print_all(texts: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let mut written = Ok(());
    for text in texts {
        written = out.write_all(text.as_bytes());
        if written.is_err() {
            break;
        }
    }
    written.and_then(|()| out.flush()).context("Cannot write to standard output")
}

/// Writes `bytes` to standard output as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.context("Cannot write to standard output")
}

/// Says something on standard error that is not the result.
pub(crate) fn note(text: &str) {
    // A closed standard error has no reader to tell about it.
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// Columns that a text may take.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size()
        .map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0).clamp(40, MAX_WIDTH))
}

/// True if standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// True if somebody watches standard error.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// An error with its causes, once each.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // A transparent error repeats its source.
        if text.ends_with(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

/// Prints an error with its causes, once each.
pub(crate) fn print_error(error: &anyhow::Error) {
    let text = error_text(error);
    let (style, reset) = (anstyle::AnsiColor::Red.on_default().bold(), anstyle::Reset);
    note(&format!("{style}vmlab:{reset} {text}"));
}

/// True if the error is that the reader of our output went away.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
