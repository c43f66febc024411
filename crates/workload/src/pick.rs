//! Takes a benchmark's metrics out of what the readers of logs find: strict
//! where those are liberal, since the output is known to be one run's.

use record::LogValue;

use crate::parse::{CommandOutput, OutputLine, OutputStream, ParseError, ParsedOutput};
use logs::{Log, Tool};

/// A metric, and where a log has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    /// The benchmark's name of it.
    pub(crate) metric: &'static str,
    /// The reader's.
    pub(crate) from: &'static str,
    /// A label that tells it from others of that name.
    pub(crate) label: Option<(&'static str, &'static str)>,
    /// Labels that tell others from it.
    pub(crate) without: &'static [&'static str],
}

/// `metric` is the reader's `from`, and must be there.
pub(crate) const fn pick(metric: &'static str, from: &'static str) -> Pick {
    Pick { metric, from, label: None, without: &[] }
}

impl Pick {
    /// Only values with this label.
    pub(crate) const fn with(mut self, key: &'static str, value: &'static str) -> Self {
        self.label = Some((key, value));
        self
    }

    /// Only values without any of these labels.
    pub(crate) const fn without(mut self, keys: &'static [&'static str]) -> Self {
        self.without = keys;
        self
    }

    /// True if `value` is what is picked.
    pub(crate) fn fits(&self, value: &LogValue) -> bool {
        let labelled = |(key, wanted): (&str, &str)| {
            value.labels.get(key).is_some_and(|found| found == wanted)
        };
        let has = |key: &&str| value.labels.get(key).is_some();
        value.metric == self.from
            && self.label.is_none_or(labelled)
            && !self.without.iter().any(has)
    }
}

/// The one log of `tool` that standard output is.
///
/// # Errors
/// If there is none, more than one, a line of it that makes no sense, or one, also on
/// standard error, that says that the run failed.
pub(crate) fn one_log(output: CommandOutput<'_>, tool: &str) -> Result<Log, ParseError> {
    read_one(output, OutputStream::Stdout, tool, |text, tool| logs::read(text, Some(tool)))
}

/// As [`one_log`], with the distributions that it holds.
pub(crate) fn one_whole_log(output: CommandOutput<'_>, tool: &str) -> Result<Log, ParseError> {
    read_one(output, OutputStream::Stdout, tool, logs::read_whole)
}

/// As [`one_log`], of a tool that may say all on standard error: the stream is that which
/// holds anything, standard output first.
pub(crate) fn one_log_of_either(
    output: CommandOutput<'_>,
    tool: &str,
) -> Result<(OutputStream, Log), ParseError> {
    let is_silent = output.stdout.trim().is_empty();
    let stream = if is_silent { OutputStream::Stderr } else { OutputStream::Stdout };
    let log = read_one(output, stream, tool, |text, tool| logs::read(text, Some(tool)))?;
    Ok((stream, log))
}

fn read_one(
    output: CommandOutput<'_>,
    stream: OutputStream,
    tool: &str,
    read: impl Fn(&str, &'static Tool) -> Vec<Log>,
) -> Result<Log, ParseError> {
    let missing = || output.ended(format!("a result of {tool}"));
    let known = logs::tool(tool).ok_or_else(missing)?;
    if let Some(failed) = logs::failures(known, output.stderr).first() {
        let line = output.line(OutputStream::Stderr, failed.line);
        return Err(line.expected(format!("a run that did not fail ({})", failed.why)));
    }
    let text = match stream {
        OutputStream::Stdout => output.stdout,
        OutputStream::Stderr => output.stderr,
    };
    let mut found = read(text, known).into_iter();
    let log = found.next().ok_or_else(missing)?;
    let line = |number: usize| output.line(stream, number);
    if let Some(unread) = log.unread.first() {
        return Err(line(unread.line).expected(format!("what {tool} prints ({})", unread.why)));
    }
    if let Some(failed) = log.failed.first() {
        return Err(line(failed.line).expected(format!("a run that did not fail ({})", failed.why)));
    }
    match found.next().and_then(|second| second.values.first().map(|value| value.line)) {
        Some(number) => Err(line(number).expected("one run's results, not a second one")),
        None => Ok(log),
    }
}

/// The line of a value that a log has.
pub(crate) fn line_of<'a>(output: CommandOutput<'a>, value: &LogValue) -> OutputLine<'a> {
    output.line(OutputStream::Stdout, value.line)
}

/// Refuses a log whose `from` is 0: nothing was done.
///
/// # Errors
/// The line of it.
pub(crate) fn above_zero(
    output: CommandOutput<'_>,
    log: &Log,
    from: &str,
) -> Result<(), ParseError> {
    match log.values.iter().find(|value| value.metric == from && value.value <= 0.0) {
        Some(value) => Err(line_of(output, value).expected(format!("a {from} above 0"))),
        None => Ok(()),
    }
}

/// Takes what `picks` name, each once, in their order.
///
/// # Errors
/// If one is missing, or is there twice.
pub(crate) fn take(
    output: CommandOutput<'_>,
    log: &Log,
    picks: &[Pick],
) -> Result<ParsedOutput, ParseError> {
    let mut parsed = ParsedOutput { tool_version: log.version.clone(), ..ParsedOutput::default() };
    for pick in picks {
        let mut values = log.values.iter().filter(|value| pick.fits(value));
        match (values.next(), values.next()) {
            (Some(value), None) => parsed.push(pick.metric, value.value),
            (None, _) => {
                return Err(output.ended(format!("{} ({})", pick.metric, pick.from)));
            }
            (Some(_), Some(second)) => {
                let line = line_of(output, second);
                return Err(line.expected(format!("one {}, not a second one", pick.from)));
            }
        }
    }
    Ok(parsed)
}

/// The metrics of the one log of `tool` that standard output is.
///
/// # Errors
/// As [`one_log`] and [`take`].
pub(crate) fn read(
    output: CommandOutput<'_>,
    tool: &str,
    picks: &[Pick],
) -> Result<ParsedOutput, ParseError> {
    take(output, &one_log(output, tool)?, picks)
}
