//! CoreMark: iterations a second.
//!
//! Source: EEMBC coremark `core_main.c`.

use super::sign::{opens, part};
use super::{Log, LogText, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "coremark",
    about: "EEMBC CoreMark 1.0",
    signs: &[
        opens("2K performance run parameters for coremark"),
        opens("2K validation run parameters for coremark"),
        opens("CoreMark Size    :"),
        part("CoreMark 1.0 :"),
    ],
    failures: &[],
    read,
};

/// Reads any number of runs. A run that CoreMark calls wrong loses its values.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut begin = 0;
    for line in text.lines() {
        let Some((name, value)) = line.split(":") else {
            if line.text.starts_with("2K ") {
                begin = log.values.len();
            } else if line.text.starts_with("Errors detected")
                || line.text.starts_with("ERROR!")
                || line.text.starts_with("Cannot validate operation")
            {
                log.values.truncate(begin);
                log.failed(line, "the run is not valid: its values are not taken");
            }
            continue;
        };
        let Some(word) = value.word(0) else { continue };
        let number = value.decimals(word, 6);
        let known = match name.trim() {
            "CoreMark Size" => {
                begin = log.values.len();
                log.clear_labels();
                continue;
            }
            "Total time (secs)" => number.map(|v| log.time("total-time", v, line).better(None)),
            "Iterations/Sec" => number.map(|v| log.rate("iterations-per-s", v, "1/s", line)),
            "Iterations" => number.map(|v| log.count("iterations", v, line)),
            "CoreMark 1.0" => number.map(|v| log.rate("coremark", v, "1/s", line)),
            _ => continue,
        };
        if known.is_none() {
            log.unread(line, "no number");
        }
    }
}
