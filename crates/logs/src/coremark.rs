//! CoreMark: iterations a second.
//!
//! Source: EEMBC coremark `core_main.c`, `core_util.c`, `posix/core_portme.c`.

use super::failure::failed;
use super::sign::{opens, part};
use super::{Cut, Log, LogText, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "coremark",
    about: "EEMBC CoreMark 1.0",
    signs: &[
        // Types are checked first.
        opens("ERROR! Please define ee_ptr_int"),
        opens("ERROR! Please define ee_u32"),
        opens("2K performance run parameters for coremark"),
        opens("2K validation run parameters for coremark"),
        opens("CoreMark Size    :"),
        part("CoreMark 1.0 :"),
    ],
    failures: &[
        failed("ERROR! ").within().when(is_error),
        failed("ERROR: ").when(|line| line.holds("datatype")),
        failed("Errors detected"),
        failed("Cannot validate operation"),
        failed("ERROR in ").when(|line| line.ends_with("shmget!") || line.ends_with("shmat!")),
        failed("ERROR waiting for child."),
        failed("Error Creating Socket"),
        failed("Error sending packet: "),
        failed("Error in receive: "),
        failed("bind(): "),
    ],
    read,
};

/// `ERROR! ...`, and `[0]ERROR! ...` of a context.
fn is_error(line: &str) -> bool {
    let context = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let rest = context
        .filter(|(number, _)| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
        .map_or(line, |(_, rest)| rest);
    rest.starts_with("ERROR! ")
}

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
