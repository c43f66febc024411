//! Runs that failed, by the words of their tools.
//!
//! Every tool has a table of the words with which it says that a run failed,
//! whatever else it printed. One pass over a run's lines finds them; the
//! readers need not. A reader notes itself what is no matter of words: a
//! checksum, an error's number in a document. `/proc/interrupts` alone has no
//! words: it is a file of the kernel, and no tool runs that could fail.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, packed};

use super::scan::bare_line;
use super::text::LogText;
use super::{Log, LogProblem, MAX_UNREAD, TOOLS, Tool};

/// Words with which a tool says that a run failed.
pub(crate) struct FailureWords {
    words: &'static str,
    /// Whether they may stand anywhere in their line.
    within: bool,
    /// What else must hold for the line, without what surrounds it.
    check: Option<fn(&str) -> bool>,
}

/// A line that begins with `words` says that the run failed.
pub(crate) const fn failed(words: &'static str) -> FailureWords {
    FailureWords { words, within: false, check: None }
}

/// A line that begins with `words`, behind which stands what the C library calls
/// an error, says that the run failed. Source: perror(3).
pub(crate) const fn system_error(words: &'static str) -> FailureWords {
    failed(words).when(ends_with_error)
}

/// Whether the line's last part is a sentence such as `Cannot allocate memory`.
fn ends_with_error(line: &str) -> bool {
    let (_, error) = line.rsplit_once(": ").unwrap_or_default();
    error.starts_with(|first: char| first.is_ascii_uppercase()) && error.contains(' ')
}

impl FailureWords {
    /// The words may stand anywhere in their line.
    pub(crate) const fn within(self) -> Self {
        Self { within: true, ..self }
    }

    /// The words only count in a line for which `check` is true.
    pub(crate) const fn when(self, check: fn(&str) -> bool) -> Self {
        Self { check: Some(check), ..self }
    }

    fn is_in(&self, line: &str) -> bool {
        (self.within || line.starts_with(self.words)) && self.check.is_none_or(|check| check(line))
    }
}

/// A search for any of a tool's failure words.
enum FailureFinder {
    /// By vector instructions, all words at once.
    Packed(packed::Searcher),
    /// For processors without these. It begins at rare bytes, which are none in
    /// documents of JSON: there it is half as fast.
    Automaton(AhoCorasick),
}

impl FailureFinder {
    fn new(tool: &Tool) -> Option<Self> {
        if tool.failures.is_empty() {
            return None;
        }
        let words = || tool.failures.iter().map(|failure| failure.words);
        Some(packed::Searcher::new(words()).map_or_else(
            || Self::Automaton(AhoCorasick::new(words()).expect("the words are few and short")),
            Self::Packed,
        ))
    }

    /// Where the first of the words begins.
    fn find(&self, text: &str) -> Option<usize> {
        match self {
            Self::Packed(searcher) => searcher.find(text).map(|found| found.start()),
            Self::Automaton(automaton) => automaton.find(text).map(|found| found.start()),
        }
    }
}

/// Finders of every tool's words, in the order of [`TOOLS`].
static FINDERS: LazyLock<Vec<Option<FailureFinder>>> =
    LazyLock::new(|| TOOLS.iter().map(FailureFinder::new).collect());

/// Notes in `log` each line of a run of `tool` with which that says that it
/// failed.
pub(super) fn find(tool: &'static Tool, text: LogText<'_>, log: &mut Log) {
    // Most are the table's own, and names take longer to compare.
    let at = TOOLS
        .iter()
        .position(|known| std::ptr::eq(known, tool))
        .or_else(|| TOOLS.iter().position(|known| known.name == tool.name));
    let Some(finder) = at.and_then(|at| FINDERS[at].as_ref()) else { return };
    let (raw, bytes) = (text.raw(), text.raw().as_bytes());
    let (mut from, mut number) = (0, text.first_line());
    while log.failed.len() < MAX_UNREAD
        && let Some(found) = finder.find(&raw[from..])
    {
        let at = from + found;
        let start = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |end| end + 1);
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(raw.len(), |end| at + end);
        number += memchr::memchr_iter(b'\n', &bytes[from..at]).count();
        let line = bare_line(&raw[start..end]).trim_end();
        if tool.failures.iter().any(|failure| line.contains(failure.words) && failure.is_in(line)) {
            log.failed_at(number, line, [tool.name, " says so"].concat());
        }
        // All words were looked for in all of the line.
        from = end;
    }
    log.failed.sort_by_key(|failed| failed.line);
}

/// The first line of a text with words of failure, and the tools whose they may be.
pub(super) fn first(text: &str) -> Option<(Vec<&'static str>, LogProblem)> {
    let of_tool = |tool: &'static Tool| {
        let mut log = Log::new(tool.name);
        find(tool, LogText::new(text), &mut log);
        log.failed.into_iter().next().map(|failed| (tool.name, failed))
    };
    let found: Vec<(&'static str, LogProblem)> = TOOLS.iter().filter_map(of_tool).collect();
    let line = found.iter().map(|(_, failed)| failed.line).min()?;
    let of_line = || found.iter().filter(|(_, failed)| failed.line == line);
    let names = of_line().map(|(name, _)| *name).collect();
    Some((names, of_line().next()?.1.clone()))
}

/// A line with the words.
#[cfg(test)]
pub(super) fn example_of(failure: &FailureWords) -> String {
    if failure.check.is_none() {
        return format!("{} of it", failure.words);
    }
    let narrowed = tests::NARROWED.iter().map(|(_, line, _)| (*line).to_owned());
    let error = format!("{}Cannot allocate memory", failure.words);
    let mut lines = narrowed.chain([error]);
    lines.find(|line| line.contains(failure.words) && failure.is_in(line)).expect("one of NARROWED")
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn words_are_of_one_line_and_stand_once() {
        for tool in TOOLS {
            for (at, failure) in tool.failures.iter().enumerate() {
                assert!(failure.words.len() > 3, "{}: {:?}", tool.name, failure.words);
                assert!(!failure.words.contains('\n') && !failure.words.starts_with(' '));
                let same = |other: &FailureWords| other.words == failure.words;
                assert!(!tool.failures[..at].iter().any(same), "{}", failure.words);
            }
        }
    }

    #[test]
    fn every_table_of_words_is_looked_for() {
        for tool in TOOLS {
            for failure in tool.failures.iter().filter(|failure| failure.check.is_none()) {
                let mut log = Log::new(tool.name);
                let text = format!("first\n{} of it\n\n> {} of it\n", failure.words, failure.words);
                find(tool, LogText::at(&text, 7), &mut log);
                let lines: Vec<usize> = log.failed.iter().map(|failed| failed.line).collect();
                assert_eq!(lines, [8, 10], "{}: {:?}", tool.name, failure.words);
            }
        }
    }

    /// The only ones without words of failure.
    const NO_TOOLS: [&str; 1] = ["interrupts"];

    #[test]
    fn every_tool_has_words_of_failure() {
        for tool in TOOLS {
            let is_none = NO_TOOLS.contains(&tool.name);
            assert_eq!(tool.failures.is_empty(), is_none, "{}", tool.name);
        }
        assert!(NO_TOOLS.iter().all(|name| TOOLS.iter().any(|tool| tool.name == *name)));
    }

    /// Lines that hold or resemble a tool's words and tell of no failure.
    const HARMLESS: &[(&str, &str)] = &[
        ("coremark", "Correct operation validated. See README.md for run and reporting rules."),
        ("coremark", "No Errors detected"),
        ("npb", "Verification    =               SUCCESSFUL"),
        ("npb", "Verification Successful"),
        ("npb", "RMS-norms of solution error"),
        ("npb", "No verification performed"),
        ("stream", "Solution Validates: avg error less than 1.000000e-13 on all three arrays"),
        ("stream", "Expected Value: 1.2e+00, AvgAbsErr: 0.0e+00, AvgRelAbsErr: 0.0e+00"),
        ("schbench", "unable to set CPU affinity"),
        ("schbench", "pipe size too big, using 1024"),
        ("schbench", "warmup done, zeroing stats"),
        ("mpstat", "15:35:57     all    0.00   92.50    7.00    0.00    0.50    0.00"),
        (
            "vmstat",
            "0  0      0 818228  94328 6021640    0    0     2    40  100  200  1  1 98  0  0",
        ),
        ("perf-kvm-stat", "Lost events: 3"),
        ("perf-kvm-stat", "Total Samples:0, Total events handled time:0.00us."),
        ("lmbench", "Pipe latency: 5.1230 microseconds"),
        ("lmbench", "AF_UNIX sock stream bandwidth: 8123.45 MB/sec"),
    ];

    #[test]
    fn harmless_lines_fail_no_run() {
        for (name, line) in HARMLESS {
            let found = super::super::failures(super::super::tool(name).unwrap(), line);
            assert!(found.is_empty(), "{name}: {found:?}");
        }
    }

    /// Of words that count in some lines only: a line of a run that failed, and one that is
    /// like it and none.
    pub(super) const NARROWED: &[(&str, &str, &str)] = &[
        ("ab", "apr_socket_recv: Connection reset by peer (104)", "apr_socket_recv is polled"),
        ("ab", "Total of 812 requests completed", "Total of 812 bytes"),
        ("fio", "fio: pid=71, err=5/file:io_u.c:1803, func=io_u error", "fio: pid=71, err=0"),
        ("go-bench", "FAIL\tvmlab/parse\t0.012s", "FAILOVER\t12"),
        ("kernbench", "make[2]: *** [Makefile:12: all] Error 2", "make[2]: Leaving directory '/x'"),
        ("memtier", "server db:6379 handle error response: -ERR no", "server db:6379 is ready"),
        ("memtier", "Thread 3 stopped due to connection failures", "Thread 3 is done"),
        ("memtier", "Thread 3 caught an exception", "Thread 3 is done"),
        ("netperf", "establish_control: connect failed", "establish_control: connected"),
        ("netperf", "netperf: remote error 98", "netperf: interim results are on"),
        ("netperf", "send_tcp_stream: data send error: Broken pipe", "send_size 16384"),
        ("netperf", "recv_response: partial response error", "recv_size 16384"),
        ("netperf", "udp_send: data send error: errno 105", "udp_send: 1472 bytes"),
        ("netperf", "shutdown_control: no response, errno 4", "shutdown_control: done"),
        ("perf-stat", "Error:", "Error: 3 of 100 samples"),
        (
            "pgbench",
            "client 3 aborted in command 4 (SQL) of script 0",
            "client 3 executing script 0",
        ),
        ("pgbench", "Client 3 aborted in state 2: ERROR", "Client 3 sending SELECT 1"),
        ("pgbench", "connection to database \"bench\" failed:", "connection to database \"bench\""),
        ("sockperf", "sockperf:ERROR: connect() (errno=111 Connection refused)", "a:ERROR: none"),
        ("stress-ng", "stress-ng: fail:  [71] cpu: wrong sum", "stress-ng: info:  [71] fail: none"),
        ("stress-ng", "stress-ng: error: [71] no such file", "stress-ng: info:  [71] error: none"),
        ("turbostat", "turbostat: msr offset 0x199 read failed", "turbostat: cpu0 has no MSR"),
        ("unixbench", "Run: \"nosuch\": no such test; aborting", "Run: 1 of 10"),
        ("time", "Command terminated by signal 9", "Command being timed: \"x\""),
        ("coremark", "[0]ERROR! list crc 0x1fd7 - should be 0xd4b0", "no ERROR! was seen"),
        ("coremark", "ERROR! Must execute for at least 10 secs for a valid result!", "[a]ERROR! b"),
        ("coremark", "ERROR: ee_u8 is not an 8b datatype!", "ERROR: 0 of 3"),
        ("coremark", "ERROR in child shmat!", "ERROR in none of them"),
        ("npb", "Verification    =             UNSUCCESSFUL", "Verification    =    NOT PERFORMED"),
        ("stream", "Node(s) with error 2", "Node(s) with error 0"),
        ("schbench", "error 11 from pthread_create", "error bars from 10 runs"),
        ("schbench", "idx 2147483648 is too large", "idx 12"),
        ("mpstat", "Cannot open /proc/stat: No such file or directory", "Cannot open the log"),
        ("mpstat", "Cannot read /proc/uptime", "Cannot read this log as JSON"),
        ("vmstat", "vmstat: Unable to create diskstat structure", "vmstat: every second"),
        (
            "perf-kvm-stat",
            "Failed to add kvm:kvm_entry tracepoint to the list",
            "Failed to read the map",
        ),
        ("perf-kvm-stat", "CPU AuthenticAMD-25-1-1 is not supported.", "CPU 3"),
        (
            "perf-kvm-stat",
            "Error parsing kvm tracepoint: subsystem delimiter not found",
            "Error parsing a line of the map",
        ),
        ("lmbench", "lock of fd1 failed: No locks available", "lock of fd1: 3 microseconds"),
        ("lmbench", "unlock of fd2 failed: No locks available", "unlock of fd2: 3 microseconds"),
        ("lmbench", "(w) read/write on pipe: Broken pipe", "read/write on pipe: 12 microseconds"),
        ("hackbench", "SENDER: write (error: Broken pipe)", "SENDER: write"),
    ];

    #[test]
    fn narrowed_words_count_in_the_lines_of_runs_that_failed() {
        let failed_lines = |name: &str, line: &str| -> Vec<usize> {
            let tool = TOOLS.iter().find(|tool| tool.name == name).unwrap();
            let mut log = Log::new(tool.name);
            find(tool, LogText::new(&format!("first\n{line}\nlast\n")), &mut log);
            log.failed.iter().map(|failed| failed.line).collect()
        };
        for &(tool, failed, like_it) in NARROWED {
            assert_eq!(failed_lines(tool, failed), [2], "{tool}: {failed}");
            assert_eq!(failed_lines(tool, like_it), [0_usize; 0], "{tool}: {like_it}");
        }
        // All words that every_table_of_words_is_looked_for leaves out.
        for tool in TOOLS {
            for failure in tool.failures.iter().filter(|failure| failure.check.is_some()) {
                let is_tried = NARROWED.iter().any(|(name, line, _)| {
                    *name == tool.name && line.contains(failure.words) && failure.is_in(line)
                });
                if !is_tried {
                    // Those of perror.
                    let error = format!("{}Cannot allocate memory", failure.words);
                    let like_it = format!("{}12.50 microseconds", failure.words);
                    assert_eq!(failed_lines(tool.name, &error), [2], "{}: {error}", tool.name);
                    assert_eq!(failed_lines(tool.name, &like_it), [0_usize; 0], "{like_it}");
                }
            }
        }
    }

    /// The lines of the failures in `text`, and how many values it has.
    fn check(text: &str, tool: &str, lines: &[usize], values: usize) {
        let logs = read(text, None);
        assert!(logs.iter().all(|log| log.tool == tool), "{logs:#?}");
        let failed: Vec<usize> =
            logs.iter().flat_map(|log| &log.failed).map(|failed| failed.line).collect();
        assert_eq!(failed, lines, "{logs:#?}");
        assert_eq!(logs.iter().map(|log| log.values.len()).sum::<usize>(), values, "{logs:#?}");
    }

    #[test]
    fn a_run_that_failed_is_told_whatever_it_printed() {
        check(
            "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n\n\
             FATAL: unable to connect to MySQL server on host 'db', port 3306, aborting...\n\
             FATAL: error 2002: Can't connect\n",
            "sysbench",
            &[3, 4],
            0,
        );
        check(
            "stress-ng: info:  [340349] dispatching hogs: 1 cpu\n\
             stress-ng: fail:  [340349] cpu instance 0 corrupted bogo-ops counter, 1370 vs 0\n\
             stress-ng: info:  [340349] unsuccessful run completed in 1.14s\n",
            "stress-ng",
            &[2, 3],
            0,
        );
        check(
            "pgbench (15.3)\nstarting vacuum...end.\n\
             pgbench: error: client 3 aborted in command 4 (SQL) of script 0; perhaps the backend died while processing\n\
             transaction type: <builtin: TPC-B (sort of)>\nscaling factor: 1\n\
             number of clients: 4\ntps = 3365.804033 (without initial connection time)\n\
             pgbench: error: Run was aborted; the above results are incomplete.\n",
            "pgbench",
            &[3, 8],
            1,
        );
        check(
            "[RUN #1] Preparing benchmark client...\n[RUN #1] Launching threads now...\n\
             connection error: Connection refused\nconnection error: Connection refused\n",
            "memtier",
            &[3, 4],
            0,
        );
        check("stress-ng: info:  [1] successful run completed in 1.14s\n", "stress-ng", &[], 0);
    }

    /// What GNU time, fio, perf and cyclictest printed of runs made to fail.
    #[test]
    fn words_before_the_first_sign_and_alone_are_told() {
        let rusage = "0.00user 0.00system 0:00.01elapsed 27%CPU (0avgtext+0avgdata 2216maxresident)k\n\
                      0inputs+8outputs (0major+217minor)pagefaults 0swaps\n";
        let status = "Command exited with non-zero status 2\n";
        let one = read(rusage, None)[0].values.len();
        check(&format!("make: entered\n{status}{rusage}"), "time", &[2], one);
        check(&format!("Command terminated by signal 11\n{rusage}"), "time", &[1], one);
        // Each run has its own.
        let logs = read(&format!("{rusage}{status}{rusage}{rusage}"), None);
        let failed: Vec<bool> = logs.iter().map(|log| !log.failed.is_empty()).collect();
        assert_eq!(failed, [false, true, false], "{logs:#?}");
        check(
            "fio: engine nosuch not loadable\nfio: failed to load engine\n\
             fio: file:ioengines.c:134, func=dlopen, error=nosuch: cannot open shared object file\n",
            "fio",
            &[2, 3],
            0,
        );
        check(
            "fio-3.33\nStarting 1 process\n\nfio: terminating on signal 2\n\n\
             x: (groupid=0, jobs=1): err= 0: pid=27206: Thu Nov 26 19:13:23 2026\n",
            "fio",
            &[4],
            0,
        );
        check("Unknown benchmark: 'nosuch' for collection 'sched'\n", "perf-bench", &[1], 0);
        check("Workload failed: No such file or directory\n", "perf-stat", &[1], 0);
        check(
            "Unable to change scheduling policy!\n\
             Probably missing capabilities, either run as root or increase RLIMIT_RTPRIO limits.\n",
            "cyclictest",
            &[1],
            0,
        );
    }

    /// What vmstat, mpstat and perf printed of runs made to fail, and what a CoreMark that
    /// ran too short prints.
    #[test]
    fn runs_of_the_real_tools_made_to_fail_are_told() {
        check("vmstat: Unable to create vmstat structure\n", "vmstat", &[1], 0);
        check("vmstat: Disk/Partition nosuch not found\n", "vmstat", &[1], 0);
        check(
            "failed to open nosuch: No such file or directory\n\
             Initializing perf session failed\n",
            "perf-kvm-stat",
            &[1, 2],
            0,
        );
        check(
            "No trace sample to read. Did you call 'perf kvm record'?\n",
            "perf-kvm-stat",
            &[1],
            0,
        );
        check("Failed to add kvm:kvm_entry tracepoint to the list\n", "perf-kvm-stat", &[1], 0);
        // sar and iostat say the same, so that the tool must be named.
        let text = "Linux 6.18.44 (vm) \t11/27/26 \t_x86_64_\t(2 CPU)\nCannot read /proc/uptime\n";
        assert!(read(text, None).is_empty());
        let logs = read(text, super::super::tool("mpstat"));
        assert_eq!(logs[0].failed[0].line, 2, "{logs:#?}");
        check(
            "ERROR! Please define ee_u32 to a 32b unsigned type!\n\
             2K performance run parameters for coremark.\n\
             [0]ERROR! list crc 0x1fd7 - should be 0xe714\n\
             CoreMark Size    : 666\nTotal ticks      : 9000\nTotal time (secs): 9.000000\n\
             Iterations/Sec   : 24301.336574\n\
             ERROR! Must execute for at least 10 secs for a valid result!\n\
             Iterations       : 300000\nErrors detected\n",
            "coremark",
            &[1, 3, 8, 10],
            0,
        );
        check(
            "NAS Parallel Benchmarks (NPB3.3-SER) - MG Benchmark\n\n VERIFICATION FAILED\n \
             L2 Norm is  0.5E-04\n",
            "npb",
            &[3],
            0,
        );
    }
}
