//! Reading `/proc/<pid>/stat`, which everything here identifies processes by.
//!
//! Source: Linux `Documentation/filesystems/proc.rst`, table 1-4; `proc_pid_stat(5)`.

use std::fs;

/// Flag of kernel threads (Linux `include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;

/// The fields of `/proc/<pid>/stat` that vmlab uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcStat {
    /// State letter: R, S, D, T (stopped), Z (zombie), ...
    pub(crate) state: char,
    /// Parent.
    pub(crate) ppid: u32,
    /// Process group.
    pub(crate) pgrp: u32,
    /// Whether it is a thread of the kernel's own.
    pub(crate) kernel_thread: bool,
    /// Page faults that needed no I/O.
    pub(crate) minor_faults: u64,
    /// Page faults that waited for I/O.
    pub(crate) major_faults: u64,
    /// Time on a pCPU in user and kernel mode, without children, in clock ticks.
    pub(crate) used_ticks: u64,
    /// Time of children that have ended and were waited for, in clock ticks.
    pub(crate) children_ticks: u64,
    /// Threads that are left; 0 or 1 for a process that is only a zombie.
    pub(crate) threads: u64,
    /// Start, in clock ticks since boot. With the pid it names a process
    /// until the machine reboots.
    pub(crate) starttime_ticks: u64,
    /// Time that it ran a guest's code, in clock ticks; part of `used_ticks`.
    pub(crate) guest_ticks: u64,
}

impl ProcStat {
    /// Whether nothing of the process runs any more.
    ///
    /// A zombie leader whose other threads still run is alive.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }
}

/// Parses one line of `/proc/<pid>/stat`.
///
/// The name stands in parentheses and may itself hold spaces and parentheses,
/// so the fields are counted from the last closing one.
pub(crate) fn parse_stat(text: &str) -> Option<ProcStat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // fields[0] is field 3 of the manual page.
    let number = |manual: usize| fields.get(manual - 3)?.parse::<u64>().ok();
    let small = |manual: usize| fields.get(manual - 3)?.parse::<u32>().ok();
    Some(ProcStat {
        state: fields.first()?.chars().next()?,
        ppid: small(4)?,
        pgrp: small(5)?,
        kernel_thread: number(9)? & PF_KTHREAD != 0,
        minor_faults: number(10)?,
        major_faults: number(12)?,
        used_ticks: number(14)? + number(15)?,
        children_ticks: number(16)? + number(17)?,
        threads: number(20)?,
        starttime_ticks: number(22)?,
        // Not before Linux 2.6.24.
        guest_ticks: number(43).unwrap_or(0),
    })
}

/// The state of process `pid`, if it exists and may be seen.
pub(crate) fn stat(pid: u32) -> Option<ProcStat> {
    // The name may be any bytes.
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&bytes))
}

/// All process ids that `/proc` shows.
pub(crate) fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The children of the process `pid`, which forks in its main thread only.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    match fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(list) => list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect(),
        // Kernels without CONFIG_PROC_CHILDREN.
        Err(_) => {
            let is_child = |other: &u32| stat(*other).is_some_and(|stat| stat.ppid == pid);
            pids().into_iter().filter(is_child).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_fields_are_found_behind_any_name() {
        let check = |name: &str, state: char, dead: bool| {
            let threads = if dead { 0 } else { 3 };
            let text = format!(
                "4242 ({name}) {state} 1 4240 4240 0 -1 4194560 134 0 0 0 70 8 5 6 20 0 {threads} 0 77321 5902336 480 18446744073709551615 1 1 0\n"
            );
            let expected = ProcStat {
                state,
                ppid: 1,
                pgrp: 4240,
                kernel_thread: false,
                minor_faults: 134,
                major_faults: 0,
                used_ticks: 78,
                children_ticks: 11,
                threads,
                starttime_ticks: 77321,
                guest_ticks: 0,
            };
            assert_eq!(parse_stat(&text), Some(expected), "{name}");
            assert_eq!(parse_stat(&text).map(|stat| stat.is_dead()), Some(dead), "{name}");
        };
        check("sleep", 'S', false);
        check("a ) b (", 'R', false);
        check("", 'Z', true);
        check("leader gone", 'Z', false);
    }

    #[test]
    fn a_vcpu_s_time_in_its_guest_is_told() {
        // A vCPU thread on Linux 6.1 while its guest boots.
        let text = "327 (CPU 0/KVM) R 124 0 0 0 -1 138412224 668 0 0 0 264 728 0 0 20 0 6 0 32852 1011539968 40466 18446744073709551615 93906111901696 93906117762133 140728637626560 0 0 0 2147219511 4100 148035 0 0 0 -1 0 0 0 0 67 0 93906120874232 93906126078384 93906683785216 140728637631868 140728637632318 140728637632318 140728637632476 0";
        let stat = parse_stat(text).expect("a stat line");
        assert_eq!((stat.used_ticks, stat.guest_ticks, stat.minor_faults), (992, 67, 668));
    }

    #[test]
    fn broken_stat_is_absent() {
        for text in ["", "1", "1 (x", "1 (x) S", "1 (x) S 1 1 1 0 -1", "1 (x) S a b c"] {
            assert_eq!(parse_stat(text), None, "{text:?}");
        }
    }

    #[test]
    fn this_process_is_alive() {
        let me = stat(std::process::id()).expect("own stat");
        assert!(!me.is_dead());
        assert!(pids().contains(&std::process::id()));
    }
}
