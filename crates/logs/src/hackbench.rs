//! hackbench's time, of rt-tests and of the programs before it.
//!
//! Source: rt-tests `src/hackbench/hackbench.c`, whose times have three
//! decimals in every version. `perf bench sched messaging` is [`super::perf_bench`].

use super::failure::failed;
use super::sign::{hint, opens};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "hackbench",
    about: "hackbench of rt-tests and the programs before it",
    signs: &[
        opens("Running in ").when(|line| line.ends_with("tasks)")),
        opens("Running with ").when(|line| line.holds("(== ") && line.holds("tasks")),
        hint("Time:").when(|line| time_of(line).is_some()),
    ],
    failures: &[
        failed("(error: ").within(),
        failed("pthread_create failed"),
        failed("longjmp'ed out, reaping children"),
    ],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    for line in text.lines() {
        if line.text.starts_with("Running ") {
            log.clear_labels();
            shape(line, log);
        } else if let Some(rest) = line.after("Each sender will pass ") {
            let mut words = rest.words();
            if let (Some(loops), Some("messages"), Some("of"), Some(size)) =
                (words.next(), words.next(), words.next(), words.next())
            {
                log.label("loops", loops);
                log.label("size", size);
            }
        } else if let Some(rest) = line.after("Time:") {
            match rest.decimals(rest.text, 3) {
                Some(seconds) => drop(log.time("time", seconds, line)),
                None => log.unread(line, "no time in seconds"),
            }
        }
    }
}

/// `Running in threaded mode with 10 groups using 40 file descriptors each
/// (== 400 tasks)`, or `Running with 10*40 (== 400) tasks.`
fn shape(line: TextLine<'_>, log: &mut Log) {
    let mut numbers: ShortList<&str> = ShortList::new();
    let mut rest = line.text;
    while let Some(start) = rest.bytes().position(|byte| byte.is_ascii_digit()) {
        let behind = &rest[start..];
        let end = behind.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(behind.len());
        numbers.push(&behind[..end]);
        rest = &behind[end..];
    }
    let [groups, of_group, tasks] = numbers[..] else { return };
    log.label("groups", groups);
    log.label("tasks", tasks);
    if let Some((mode, _)) = line.text["Running ".len()..].cut(" mode with ") {
        log.label("mode", mode.trim_start_matches("in "));
        log.label("fds", of_group);
    }
}

fn time_of(line: &str) -> Option<()> {
    let (seconds, millis) = line.strip_prefix("Time:")?.trim().split_once(['.', ','])?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(seconds) && digits(millis) && millis.len() == 3).then_some(())
}
