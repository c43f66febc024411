//! A report with MADE-UP profiles: two variants whose stacks differ in the guest, and a side
//! that was not seen.

use record::ProfileSide;
use report::{
    FunctionChange, ProfileComparison, ProfileOverhead, ProfiledSide, Report, ShownEstimate,
    ShownInterval, StackFrame,
};

use crate::made_up;

/// Frames above it, its name, its shares in the baseline and in the variant.
const FRAMES: [(u32, &str, [f64; 2]); 14] = [
    (0, "hackbench", [0.93, 0.90]),
    (1, "__libc_write", [0.48, 0.41]),
    (2, "entry_SYSCALL_64_after_hwframe", [0.46, 0.39]),
    (3, "vfs_write", [0.40, 0.35]),
    (4, "unix_stream_sendmsg", [0.33, 0.29]),
    (5, "sock_alloc_send_pskb", [0.12, 0.11]),
    (5, "__wake_up_sync_key", [0.14, 0.13]),
    (6, "try_to_wake_up", [0.13, 0.12]),
    (1, "__libc_read", [0.41, 0.45]),
    (2, "entry_SYSCALL_64_after_hwframe", [0.39, 0.43]),
    (3, "unix_stream_read_generic", [0.30, 0.37]),
    (4, "schedule_timeout", [0.07, 0.19]),
    (0, "swapper", [0.06, 0.09]),
    (1, "native_safe_halt", [0.05, 0.08]),
];

pub(crate) fn profiled() -> Report {
    let mut report = made_up::two_loads();
    let change = |[from, to]: [f64; 2]| {
        let centre: f64 = to - from;
        let width = 0.02 + centre.abs() / 5.0;
        ShownEstimate {
            centre,
            interval: Some(ShownInterval { lo: centre - width, hi: centre + width }),
        }
    };
    let frame = |(depth, name, shares): (u32, &str, [f64; 2])| StackFrame {
        depth,
        name: name.to_owned(),
        shares,
        change: change(shares),
    };
    let function = |name: &str, shares: [f64; 2]| FunctionChange {
        name: name.to_owned(),
        shares,
        change: change(shares),
    };
    report.profiles = vec![ProfileComparison {
        load: "idle".to_owned(),
        workload: "hackbench".to_owned(),
        variant: "2-vcpu".to_owned(),
        sides: vec![ProfiledSide {
            side: ProfileSide::Guest,
            event: "cpu-clock".to_owned(),
            blocks: 5,
            samples: [21_400, 20_950],
            cut: false,
            frames: FRAMES.map(frame).to_vec(),
            functions: vec![
                function("schedule_timeout", [0.07, 0.19]),
                function("vfs_write", [0.40, 0.35]),
            ],
        }],
        missing: vec!["On the host there is no perf.".to_owned()],
    }];
    report.profile_overheads = vec![ProfileOverhead {
        load: "idle".to_owned(),
        workload: "hackbench".to_owned(),
        variant: "2-vcpu".to_owned(),
        metric: "time".to_owned(),
        ratio: ShownEstimate { centre: 1.03, interval: Some(ShownInterval { lo: 0.99, hi: 1.07 }) },
    }];
    report
}
