//! uperf: throughput and operations of a profile's transactions.
//!
//! Source: uperf `src/print.c`: sizes and rates are shortened with a prefix of
//! 1024 for bytes and of 1000 for bits.

use super::failure::failed;
use super::number::{self, scaled};
use super::sign::{opens, part};
use super::{Cut, Log, LogText, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "uperf",
    about: "uperf: transactions, total",
    signs: &[
        opens("Starting ").when(|line| line.holds(" running profile:")),
        part("Txn").when(|line| transaction(line).is_some()),
        part("Total").when(|line| transaction(line).is_some()),
    ],
    failures: &[
        failed("Error handshaking"),
        failed("Error while handshaking"),
        failed("Error during reading command"),
        failed("Error exchanging"),
        failed("Error saying goodbye"),
        failed("Error creating ports"),
        failed("Error for flowop"),
        failed("Error parsing"),
    ],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    for line in text.lines() {
        if let Some((_, profile)) = line.split(" running profile:") {
            log.label("profile", profile.text.split(' ').next().unwrap_or_default());
        } else if let Some((name, rate, operations)) = transaction(line.text) {
            if line.is_open() && !line.text.ends_with("op/s") {
                log.unread(line, "the line ends early");
                continue;
            }
            let name = name.to_ascii_lowercase();
            if let Some(rate) = rate {
                log.rate("throughput", rate, "B/s", line).label("transaction", name.as_str());
            }
            log.rate("ops-per-s", operations, "1/s", line).label("transaction", name.as_str());
        } else if line.text.starts_with("Txn") && line.text.holds("op/s") {
            log.unread(line, "not the columns of a transaction");
        }
    }
}

/// `Txn2  259.89M /  30.23(s) =  72.11Mb/s  100153op/s`; the rate is 0 where
/// nothing was sent.
fn transaction(line: &str) -> Option<(&str, Option<f64>, f64)> {
    let (head, tail) = line.split_once('=')?;
    let mut words = head.ascii_words();
    let name = words.next().filter(|name| name.starts_with("Txn") || *name == "Total")?;
    head.contains('/').then_some(())?;
    let mut words = tail.ascii_words();
    let (rate, operations) = (words.next()?, words.next()?);
    let operations = number::parse(operations.strip_suffix("op/s")?)?;
    let (digits, unit) = number::split_unit(rate);
    let rate = match unit {
        "" if digits == "0" => None,
        _ => Some(scaled(number::parse(digits)?, number::bytes_per_s(unit, 1024.0)?)),
    };
    Some((name, rate, operations))
}
