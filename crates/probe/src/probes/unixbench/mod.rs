//! unixbench: the twelve tests of UnixBench's system index, in an
//! implementation of vmlab's own.
//!
//! Source: the tests, baselines and index of Byte UnixBench 5, as its reports
//! print them: index = 10 x result / baseline, score = geometric mean.

pub(crate) mod counted;
mod dhrystone;
mod system;
mod whetstone;
pub(crate) mod worker;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use crate::args::{Args, OptionValue};
use crate::document::ProbeResult;
use crate::spec::{
    ErrorContext as _, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS,
};
use crate::stat::{geometric_mean, mean};
use crate::vcpus;
use counted::CopyCount;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "unixbench",
    summary: "The twelve tests of the UnixBench index, vmlab's own implementation",
    about: "Computing (Dhrystone 2, Whetstone in double precision), and what the kernel is asked \
            for most: exec, file copies with three buffer sizes, pipes, context switches over \
            pipes, fork, shell scripts, system calls. The index of a test is ten times its \
            result by the published baseline, a SPARCstation 20-61; the score is their geometric \
            mean. This is not the original program: it is Rust, static, and its own code, so \
            compare its scores with its own, and ratios of guests with ratios. `copies` runs so \
            many processes of each test at once and adds their rates. The shell tests need \
            /bin/sh with sort, od, grep, tee, wc, rm and seq, as busybox has them; without a \
            shell they and the score are left out. exec is cheaper than the original's, since a \
            static program has nothing to link.",
    verifies: "Dhrystone ends with the published values, Whetstone with those of its formulas, \
               pipes, copies and scripts with what went in.",
    options: &[
        Opt::choice(
            "test",
            &[
                "all",
                "dhrystone",
                "whetstone",
                "execl",
                "copy-1024",
                "copy-256",
                "copy-4096",
                "pipe",
                "context",
                "spawn",
                "shell-1",
                "shell-8",
                "syscall",
            ],
            "all",
            "Which test",
        ),
        Opt::int("copies", (0, 1024), 1, "Processes of a test at once; 0 for one a vCPU"),
        Opt::text("dir", "/var/tmp", "Folder for the files of copies and scripts"),
        Opt { default: OptionDefault::Float(1.0), help: "How long one test runs", ..SECONDS },
        Opt { default: OptionDefault::Int(1), ..REPEAT },
    ],
    metrics: &[
        ProbeMetric::rate("dhrystone", "1/s", "Dhrystone loops a second"),
        ProbeMetric::rate("whetstone", "1/s", "Whetstone instructions a second"),
        ProbeMetric::rate("execl", "1/s", "Replacements of a process by execve a second"),
        ProbeMetric::rate("copy-1024", "B/s", "File copy, 1024 B buffer, 2000 blocks"),
        ProbeMetric::rate("copy-256", "B/s", "File copy, 256 B buffer, 500 blocks"),
        ProbeMetric::rate("copy-4096", "B/s", "File copy, 4096 B buffer, 8000 blocks"),
        ProbeMetric::rate("pipe", "1/s", "512 B into a pipe and out of it, a second"),
        ProbeMetric::rate(
            "context",
            "1/s",
            "Round trips between two processes over pipes a second",
        ),
        ProbeMetric::rate("spawn", "1/s", "Processes started and ended a second"),
        ProbeMetric::rate("shell-1", "1/s", "Shell scripts a second"),
        ProbeMetric::rate("shell-8", "1/s", "Sets of eight shell scripts at once a second"),
        ProbeMetric::rate("syscall", "1/s", "Loops of five system calls a second"),
        ProbeMetric::ratio("dhrystone-index", "Ten times the result by 116700 loops a second"),
        ProbeMetric::ratio("whetstone-index", "... by 55 million instructions a second"),
        ProbeMetric::ratio("execl-index", "... by 43 a second"),
        ProbeMetric::ratio("copy-1024-index", "... by 3960 KiB/s"),
        ProbeMetric::ratio("copy-256-index", "... by 1655 KiB/s"),
        ProbeMetric::ratio("copy-4096-index", "... by 5800 KiB/s"),
        ProbeMetric::ratio("pipe-index", "... by 12440 a second"),
        ProbeMetric::ratio("context-index", "... by 4000 a second"),
        ProbeMetric::ratio("spawn-index", "... by 126 a second"),
        ProbeMetric::ratio("shell-1-index", "... by 42.4 a minute"),
        ProbeMetric::ratio("shell-8-index", "... by 6 a minute"),
        ProbeMetric::ratio("syscall-index", "... by 15000 a second"),
        ProbeMetric::ratio("score", "Geometric mean of the twelve indexes"),
    ],
    histograms: &[],
    example: "--copies 4 --seconds 10",
    run,
};

/// Each test with its baseline and what one of the baseline's units is in ours.
const BASELINES: [(&str, f64, f64); 12] = [
    ("dhrystone", 116_700.0, 1.0),
    ("whetstone", 55.0, 1e6),
    ("execl", 43.0, 1.0),
    ("copy-1024", 3_960.0, 1024.0),
    ("copy-256", 1_655.0, 1024.0),
    ("copy-4096", 5_800.0, 1024.0),
    ("pipe", 12_440.0, 1.0),
    ("context", 4_000.0, 1.0),
    ("spawn", 126.0, 1.0),
    ("shell-1", 42.4, 1.0 / 60.0),
    ("shell-8", 6.0, 1.0 / 60.0),
    ("syscall", 15_000.0, 1.0),
];

/// The index of a result that is in the baseline's unit.
fn index(result: f64, baseline: f64) -> f64 {
    10.0 * result / baseline
}

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let copies = match args.size("copies") {
        0 => vcpus::allowed().len(),
        copies => copies,
    };
    outcome.param("copies", OptionValue::Int(copies as i64));
    outcome.fact("implementation", "vmlab's own, not Byte UnixBench");
    let has_shell = std::path::Path::new("/bin/sh").exists();
    let wanted = args.text("test");
    let mut indexes = Vec::new();
    for (test, baseline, unit) in BASELINES {
        if wanted != "all" && wanted != test {
            continue;
        }
        if test.starts_with("shell") && !has_shell {
            outcome.warn("There is no /bin/sh: the shell tests and the score were left out");
            continue;
        }
        let (mut rates, mut right) = (Vec::new(), true);
        for repeat in 0..args.size("repeat") {
            let counted = at_once(test, copies, args)?;
            right &= counted.iter().all(|copy| copy.right);
            let rate = counted.iter().map(|copy| copy.ops / copy.elapsed_s).sum();
            rates.push(rate);
            outcome.push(test, rate).repeat(repeat);
        }
        outcome.check(test, right, "every copy checked what it did");
        indexes.push(index(mean(&rates) / unit, baseline));
        outcome.push(&format!("{test}-index"), *indexes.last().expect("one was just pushed"));
    }
    if indexes.len() == BASELINES.len() {
        outcome.push("score", geometric_mean(&indexes));
    }
    Ok(())
}

/// Runs copies of a test that begin at the same time; what each counted.
fn at_once(test: &str, copies: usize, args: &Args) -> Result<Vec<CopyCount>, ProbeError> {
    let program = std::env::current_exe().tried("find this program")?;
    let seconds = args.float("seconds").to_string();
    let mut running = Vec::new();
    for _ in 0..copies {
        let child = Command::new(&program)
            .args([counted::NAME, test, &seconds, args.text("dir")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .tried("start a copy of this program")?;
        running.push(Copy::new(child));
    }
    for copy in &mut running {
        copy.line(test, "ready")?;
    }
    for copy in &mut running {
        let stdin = copy.child.stdin.as_mut().expect("it was asked for");
        stdin.write_all(b"go\n").tried(format!("begin {test}"))?;
    }
    running
        .iter_mut()
        .map(|copy| {
            let line = copy.line(test, "{")?;
            serde_json::from_str(&line)
                .map_err(|error| ProbeError::Refused(format!("A copy of {test} said: {error}")))
        })
        .collect()
}

/// A copy that is ended when this is dropped.
struct Copy {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Copy {
    fn new(mut child: Child) -> Self {
        let said = BufReader::new(child.stdout.take().expect("it was asked for"));
        Self { child, said }
    }

    /// The next line that it says, which must begin as expected.
    fn line(&mut self, test: &str, begin: &str) -> Result<String, ProbeError> {
        let mut line = String::new();
        self.said.read_line(&mut line).tried(format!("read from a copy of {test}"))?;
        if line.starts_with(begin) {
            return Ok(line);
        }
        Err(ProbeError::Refused(format!("A copy of {test} ended early, having said {line:?}")))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // One that ended is not there to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two published tables: results, indexes and scores.
    #[test]
    fn the_index_is_that_of_published_reports() {
        for (results, indexes, score) in [
            (
                [
                    4_328_921.7,
                    822.7,
                    89.5,
                    24_794.4,
                    6_443.0,
                    94_531.7,
                    29_445.2,
                    8_192.6,
                    324.8,
                    304.5,
                    35.5,
                    25_021.7,
                ],
                [370.9, 149.6, 20.8, 62.6, 38.9, 163.0, 23.7, 20.5, 25.8, 71.8, 59.2, 16.7],
                52.2,
            ),
            (
                [
                    2_606_649.4,
                    630.1,
                    23.6,
                    114_696.5,
                    30_677.4,
                    310_816.3,
                    172_081.1,
                    6_675.3,
                    144.6,
                    123.4,
                    13.9,
                    90_394.5,
                ],
                [223.4, 114.6, 5.5, 289.6, 185.4, 535.9, 138.3, 16.7, 11.5, 29.1, 23.1, 60.3],
                63.5,
            ),
        ] {
            let mut own = Vec::new();
            for ((result, printed), (test, baseline, _)) in
                results.iter().zip(indexes).zip(BASELINES)
            {
                let index = index(*result, baseline);
                // Both columns are rounded to a tenth, which is much of a small one.
                let rounding = 0.0501 + index * 0.05 / result;
                assert!((index - printed).abs() <= rounding, "{test}: {index} {printed}");
                own.push(index);
            }
            // Results as small as 13.9 are rounded to a tenth, too.
            assert!((geometric_mean(&own) - score).abs() < 0.1, "{}", geometric_mean(&own));
        }
    }
}
