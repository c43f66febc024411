//! sockperf: latency and throughput of sockets.
//!
//! Source: sockperf `src/client.cpp`. Latencies are in us; its MBps are 1024 x
//! 1024 bytes a second. A latency is half a round trip; with `--full-rtt` all
//! of its numbers are of whole round trips.

use super::failure::failed;
use super::number::{self, scaled};
use super::sign::{opens, part};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "sockperf",
    about: "sockperf: ping-pong, under-load, throughput, playback",
    signs: &[
        part("sockperf:"),
        opens("sockperf: == version"),
        opens("sockperf: [Total Run]"),
        opens("sockperf: Total of ").when(|line| line.holds("messages sent in")),
    ],
    failures: &[
        failed("sockperf: ERROR: "),
        failed(":ERROR: ").within().when(|line| line.holds("(errno=")),
        failed("sockperf: No messages were received"),
        failed("sockperf: No messages were sent"),
        failed("sockperf: Test ends uncompleted"),
    ],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut of = TimesKind::Latency;
    for line in text.lines() {
        let rest = line.after("sockperf: ").unwrap_or(line);
        if let Some(version) = rest.after("== version #") {
            of = TimesKind::Latency;
            // What was built of a release says so.
            let plain =
                |word: &str| word.trim_end_matches('.').trim_end_matches("-no.git").to_owned();
            log.version = version.word(0).map(plain);
        } else if rest.text.starts_with("[Total Run]") {
            of = TimesKind::Latency;
        } else if let Some(rest) = rest.after("[Valid Duration]") {
            valid(rest, line, log);
        } else if let Some(summary) = rest.after("Summary: ") {
            self::summary(summary, line, &mut of, log);
        } else if let Some(rest) = rest.after("---> ") {
            observation(rest, of, line, log);
        } else if let Some(average) = rest.after("====> avg-") {
            of = if average.text.starts_with("rtt") {
                TimesKind::RoundTrip
            } else {
                TimesKind::Latency
            };
            let Some((_, deviation)) = average.split("(std-dev=") else { continue };
            // Since 3.8 more follow behind a comma.
            let end = deviation.text.find([',', ')']);
            match end.and_then(|end| number::parse(&deviation.text[..end])) {
                Some(micros) => {
                    log.time(format_args!("{}-stddev", of.name()), micros / 1e6, line);
                }
                None => log.unread(line, "no deviation"),
            }
        } else if rest.text.starts_with("# dropped messages") {
            for item in rest.text.trim_start_matches("# ").split("; ") {
                dropped(item.trim_start_matches("# "), line, log);
            }
        }
    }
}

/// `RunTime=1.572 sec; SentMessages=134399; ReceivedMessages=134399`: what is left of a run
/// without its beginning and its end, of which all that follows is.
fn valid(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    for item in rest.text.split(';') {
        let Some((name, value)) = item.split_once('=') else { continue };
        let seconds = value.strip_suffix("sec").map(str::trim).and_then(number::parse);
        let count = rest.number(value.trim());
        match (name.trim(), seconds, count) {
            ("RunTime", Some(seconds), _) => {
                log.time("valid-time", seconds, line).better(None);
            }
            ("SentMessages", _, Some(count)) => drop(log.count("valid-sent", count, line)),
            ("ReceivedMessages", _, Some(count)) => drop(log.count("valid-received", count, line)),
            _ => log.unread(line, "not a time and two counts"),
        }
    }
}

/// What the times of a run are of.
#[derive(Clone, Copy)]
enum TimesKind {
    Latency,
    RoundTrip,
}

impl TimesKind {
    fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::RoundTrip => "round-trip",
        }
    }
}

/// `Latency is 21.482 usec`, `Message Rate is 340981 [msg/sec]`, `BandWidth is
/// 325.185 MBps (2601.479 Mbps)`
fn summary(rest: TextLine<'_>, line: TextLine<'_>, of: &mut TimesKind, log: &mut Log) {
    let words: ShortList<&str> = rest.all_words();
    let at = words.iter().position(|word| *word == "is");
    let Some((what, [number, unit, ..])) = at.map(|at| (words[..at].join(" "), &words[at + 1..]))
    else {
        return log.unread(line, "the line ends early");
    };
    let Some(value) = rest.number(number).filter(|_| !rest.may_be_cut(unit)) else {
        return log.unread(line, "no number with a unit");
    };
    match what.as_str() {
        _ if what.starts_with("Latency") || what.starts_with("Round trip") => {
            *of =
                if what.starts_with("Latency") { TimesKind::Latency } else { TimesKind::RoundTrip };
            let burst = what.cut(" of burst of ").and_then(|(_, rest)| rest.split(' ').next());
            match number::seconds(unit) {
                Some(factor) => {
                    log.time(format_args!("{}-mean", of.name()), scaled(value, factor), line)
                        .label("burst", burst.unwrap_or_default());
                }
                None => log.unread(line, "no unit of time"),
            }
        }
        "Message Rate" => drop(log.rate("messages-per-s", value, "1/s", line)),
        "BandWidth" => {
            let factor = match *unit {
                "MBps" => 1024.0 * 1024.0,
                "KBps" => 1024.0,
                // A thousand of its MBps.
                "GBps" => 1000.0 * 1024.0 * 1024.0,
                _ => return log.unread(line, "no unit that sockperf has"),
            };
            log.rate("throughput", value * factor, "B/s", line);
        }
        _ => {}
    }
}

/// `percentile 99.000 =   26.163`, `<MAX> observation = 24498.270`
fn observation(rest: TextLine<'_>, of: TimesKind, line: TextLine<'_>, log: &mut Log) {
    let Some((name, value)) = rest.split("=") else { return };
    let Some(micros) = value.decimals(value.text, 3) else {
        return log.unread(line, "no number");
    };
    let (seconds, of) = (micros / 1e6, of.name());
    match name {
        "<MAX> observation" => drop(log.quantile(format_args!("{of}-max"), seconds, line)),
        "<MIN> observation" => drop(log.quantile(format_args!("{of}-min"), seconds, line)),
        _ => {
            let Some(percentile) = name.strip_prefix("percentile ") else { return };
            let short = percentile.trim().trim_end_matches('0').trim_end_matches('.');
            log.quantile(format_args!("{of}"), seconds, line).label("percentile", short);
        }
    }
}

fn dropped(item: &str, line: TextLine<'_>, log: &mut Log) {
    let Some((name, count)) = item.cut(" messages = ") else { return };
    if let Some(count) = line.number(count.trim()) {
        let metric = format!("{}-messages", super::text::slug(name));
        log.count(&metric, count, line).better(Some(record::BetterDirection::Lower));
    }
}
