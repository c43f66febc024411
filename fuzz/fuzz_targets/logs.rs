//! Any bytes as a benchmark's log: recognised, or read as one tool's, which the
//! first byte picks.

#![no_main]

use libfuzzer_sys::fuzz_target;
use logs::{TOOLS, read};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    // Carriage returns end lines where nothing else does.
    let lines = text.split(['\n', '\r']).count();
    let tool = TOOLS.get(usize::from(*first));
    for log in read(&text, tool).into_iter().chain(read(&text, None)) {
        for value in &log.values {
            assert!(value.value.is_finite() && !value.metric.is_empty());
            assert!((1..=lines).contains(&value.line), "{value:?} of {lines} lines");
        }
        for unread in log.unread.iter().chain(&log.failed) {
            assert!((1..=lines).contains(&unread.line), "{unread:?} of {lines} lines");
        }
    }
});
