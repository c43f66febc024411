//! Recordings of who ran where: what `perf script` and `trace-cmd report` print of
//! `sched_switch`, and of KVM's exits where they were recorded too.
//!
//! A VM's vCPUs are the threads that QEMU calls `CPU n/KVM` (or `/TCG`). Which of them
//! belong together is known where a line has the process beside the thread (`perf
//! script -F comm,pid,tid,cpu,time,event,trace`); else it is told by the order in which
//! the threads were made.

use std::collections::BTreeMap;
use std::fmt;

use crate::engine::{PcpuUser, TraceSegment};
use crate::map::{Map, MapVm, Origin};

/// More pCPUs than any machine has; numbers beyond are no pCPUs.
const MOST_PCPUS: u32 = 8_192;
/// More of them can't be drawn.
const MOST_SEGMENTS: usize = 4_000_000;

/// A text that is no recording, or a line of one that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRecordingError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ReadRecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.message)
    }
}

impl std::error::Error for ReadRecordingError {}

/// One line of a trace: pCPU and time, the event, and its arguments.
struct TraceLine<'a> {
    process: Option<u32>,
    thread: u32,
    pcpu: u32,
    at_ns: u64,
    event: &'a str,
    words: &'a str,
}

/// A thread's name and number.
type ThreadName<'a> = (&'a str, u32);

/// A thread that was switched to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ContextSwitch {
    pcpu: u32,
    at_ns: u64,
    previous: u32,
    next: u32,
}

/// Reads what `perf script` or `trace-cmd report` printed.
///
/// # Errors
/// [`ReadRecordingError`] where a switch can't be read, or there is none.
pub fn read(title: &str, text: &str) -> Result<Map, ReadRecordingError> {
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut processes: BTreeMap<u32, u32> = BTreeMap::new();
    let mut switches = Vec::new();
    let mut pauses = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let problem = |message: String| ReadRecordingError { line: index + 1, message };
        let Some(line) = line(text) else { continue };
        if let Some(process) = line.process {
            processes.insert(line.thread, process);
        }
        match line.event.rsplit(':').next().unwrap_or(line.event) {
            "sched_switch" => {
                let cut = |words: &str| words.chars().take(120).collect::<String>();
                let Some((previous, next)) = switch(line.words) else {
                    let shown = cut(line.words);
                    return Err(problem(format!("This switch can't be read: {shown:?}")));
                };
                if line.pcpu >= MOST_PCPUS {
                    return Err(problem(format!("No machine has a pCPU {}", line.pcpu)));
                }
                if switches.len() >= MOST_SEGMENTS {
                    let message = format!("There are more than {MOST_SEGMENTS} switches");
                    return Err(problem(message));
                }
                for (name, thread) in [&previous, &next] {
                    names.insert(*thread, cut(name));
                }
                let (previous, next) = (previous.1, next.1);
                let (pcpu, at_ns) = (line.pcpu, line.at_ns);
                switches.push(ContextSwitch { pcpu, at_ns, previous, next });
            }
            "kvm_exit" if is_pause(line.words) && pauses.len() < MOST_SEGMENTS => {
                pauses.push((line.pcpu, line.at_ns));
            }
            _ => {}
        }
    }
    if switches.is_empty() {
        let message = "There is no sched_switch in it: make it with `perf sched record` and \
                       `perf script`, or with `trace-cmd record -e sched_switch` and `trace-cmd \
                       report`"
            .to_owned();
        return Err(ReadRecordingError { line: 1, message });
    }
    Ok(map(title, &names, &processes, switches, &pauses))
}

fn map(
    title: &str,
    names: &BTreeMap<u32, String>,
    processes: &BTreeMap<u32, u32>,
    mut switches: Vec<ContextSwitch>,
    pauses: &[(u32, u64)],
) -> Map {
    // Both tools print by time; a text that was put together may not be.
    switches.sort_by_key(|switch| switch.at_ns);
    let from_ns = switches[0].at_ns;
    let last_ns = switches.last().map_or(from_ns, |switch| switch.at_ns);
    let to_ns = pauses.iter().map(|(_, at)| *at).fold(last_ns, u64::max).max(from_ns + 1);
    let mut pcpus: Vec<u32> = switches.iter().map(|switch| switch.pcpu).collect();
    pcpus.sort_unstable();
    pcpus.dedup();
    let (vms, mut owners) = vms(names, processes);
    let mut tasks = Vec::new();
    for (thread, name) in names {
        if *thread != 0 && !owners.contains_key(thread) {
            owners.insert(*thread, PcpuUser::Host(tasks.len() as u32));
            tasks.push(format!("{name} {thread}"));
        }
    }
    let place = |pcpu: u32| pcpus.binary_search(&pcpu).ok().map(|at| at as u32);
    // Who is there since when, by place.
    let mut there: Vec<(u32, u64)> = vec![(0, from_ns); pcpus.len()];
    for (at, first) in
        pcpus.iter().map(|pcpu| switches.iter().find(|s| s.pcpu == *pcpu)).enumerate()
    {
        if let Some(first) = first {
            there[at] = (first.previous, from_ns);
        }
    }
    let mut segments = Vec::new();
    let mut ran = |pcpu: u32, (thread, from_ns): (u32, u64), to_ns: u64| {
        // Thread 0 is the idle one.
        if let Some(whose) = owners.get(&thread).copied()
            && to_ns > from_ns
        {
            segments.push(TraceSegment::Ran { pcpu, whose, from_ns, to_ns });
        }
    };
    for switch in &switches {
        let Some(pcpu) = place(switch.pcpu) else { continue };
        ran(pcpu, there[pcpu as usize], switch.at_ns);
        there[pcpu as usize] = (switch.next, switch.at_ns);
    }
    for (pcpu, last) in there.iter().enumerate() {
        ran(pcpu as u32, *last, to_ns);
    }
    for (pcpu, at_ns) in pauses {
        if let Some(pcpu) = place(*pcpu)
            && *at_ns >= from_ns
        {
            segments.push(TraceSegment::PauseExit { pcpu, at_ns: *at_ns });
        }
    }
    let title = title.to_owned();
    Map { title, origin: Origin::Recorded, from_ns, to_ns, pcpus, vms, tasks, segments }
}

/// The number in `CPU 3/KVM`.
fn vcpu_number(name: &str) -> Option<u32> {
    let (number, by) = name.strip_prefix("CPU ")?.split_once('/')?;
    matches!(by, "KVM" | "TCG").then(|| number.parse().ok())?
}

/// The VMs, and whose each vCPU thread is.
fn vms(
    names: &BTreeMap<u32, String>,
    processes: &BTreeMap<u32, u32>,
) -> (Vec<MapVm>, BTreeMap<u32, PcpuUser>) {
    let threads: Vec<(u32, u32)> =
        names.iter().filter_map(|(thread, name)| Some((*thread, vcpu_number(name)?))).collect();
    let known = threads.iter().all(|(thread, _)| processes.contains_key(thread));
    // Where one VM was started after the other, each begins with its first vCPU.
    let in_turn = threads.windows(2).all(|pair| {
        let [(_, before), (_, after)] = [pair[0], pair[1]];
        after == before + 1 || after == 0
    });
    let mut nth: BTreeMap<u32, u32> = BTreeMap::new();
    let mut begun = 0;
    let mut groups: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for (thread, vcpu) in &threads {
        let group = if known {
            processes[thread]
        } else if in_turn {
            begun += u32::from(*vcpu == 0);
            begun
        } else {
            // Started side by side: the first "CPU 1" is of the first "CPU 0".
            let nth = nth.entry(*vcpu).or_default();
            *nth += 1;
            *nth
        };
        groups.entry(group).or_default().push((*thread, *vcpu));
    }
    let mut vms = Vec::new();
    let mut owners = BTreeMap::new();
    for (group, members) in groups {
        let vm = vms.len() as u32;
        let vcpus = members.iter().map(|(_, vcpu)| vcpu.saturating_add(1)).max().unwrap_or(1);
        let name = if known { format!("QEMU {group}") } else { format!("VM {}", vm + 1) };
        vms.push(MapVm { name, vcpus: vcpus.min(MOST_PCPUS) });
        for (thread, vcpu) in members {
            owners.insert(thread, PcpuUser::Vcpu { vm, vcpu });
        }
    }
    (vms, owners)
}

/// The parts of a line of either tool; `None` for all that is no event.
///
/// perf: `comm pid [cpu] seconds: event: words`, with `pid/tid` if it was asked for;
/// trace-cmd: `comm-pid [cpu] seconds: event: words`, flags before the time.
fn line(text: &str) -> Option<TraceLine<'_>> {
    let (who, rest) = text.split_once(" [")?;
    let (pcpu, rest) = rest.split_once(']')?;
    let pcpu = pcpu.parse().ok()?;
    let who = who.trim_end();
    let number = who.rsplit([' ', '-', '/']).next()?;
    let thread = number.parse().ok()?;
    let before = who[..who.len() - number.len()].strip_suffix('/');
    let process = before.and_then(|who| who.rsplit(' ').next()?.parse().ok());
    // The time is the first word that ends with a colon.
    let mut rest = rest.trim_start();
    loop {
        let (word, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        if let Some(time) = word.strip_suffix(':') {
            let at_ns = nanoseconds(time)?;
            // An event may have its system before it, and blanks behind.
            let (event, words) =
                rest.split_once(": ").or_else(|| Some((rest.strip_suffix(':')?, "")))?;
            return Some(TraceLine { process, thread, pcpu, at_ns, event, words: words.trim() });
        }
    }
}

/// `793.980856` or `793.980856123`, in ns.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let part: u64 = fraction.parse().ok()?;
    let scale = 10u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part * scale)
}

/// Name and number of the threads that a switch leaves and enters:
/// `prev_comm=a prev_pid=1 ... [==>] next_comm=b next_pid=2 ...`, or `a:1 [120] S ==> b:2
/// [120]`.
fn switch(words: &str) -> Option<(ThreadName<'_>, ThreadName<'_>)> {
    if let Some(rest) = words.strip_prefix("prev_comm=") {
        let (previous, rest) = rest.split_once(" prev_pid=")?;
        let (previous_pid, rest) = rest.split_once(' ')?;
        let (_, rest) = rest.split_once("next_comm=")?;
        let (next, rest) = rest.split_once(" next_pid=")?;
        let next_pid = rest.split(' ').next()?;
        return Some(((previous, previous_pid.parse().ok()?), (next, next_pid.parse().ok()?)));
    }
    let (before, after) = words.split_once(" ==> ")?;
    let thread = |text: &'_ str| -> Option<(usize, u32)> {
        let (text, _) = text.rsplit_once(" [")?;
        let (name, pid) = text.rsplit_once(':')?;
        Some((name.len(), pid.parse().ok()?))
    };
    // The state stands behind the priority.
    let (before_name, previous) = thread(before)?;
    let (after_name, next) = thread(after)?;
    Some(((&before[..before_name], previous), (&after[..after_name], next)))
}

/// Whether an exit's words name a pause: `reason PAUSE_INSTRUCTION` (Intel), `pause`
/// (AMD).
fn is_pause(words: &str) -> bool {
    let mut words = words.split_whitespace();
    words.any(|word| word == "reason")
        && words.next().is_some_and(|reason| matches!(reason, "PAUSE_INSTRUCTION" | "pause"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERF: &str = include_str!("../testdata/recordings/perf-6.1.txt");
    const PERF_PIDS: &str = include_str!("../testdata/recordings/perf-6.1-pids.txt");
    const TRACE_CMD: &str = include_str!("../testdata/recordings/trace-cmd-3.1.6.txt");
    const RAW: &str = include_str!("../testdata/recordings/trace-cmd-3.1.6-raw.txt");

    fn vcpu_ns(map: &Map) -> BTreeMap<(u32, u32), u64> {
        let mut sums = BTreeMap::new();
        for segment in &map.segments {
            if let TraceSegment::Ran {
                whose: PcpuUser::Vcpu { vm, vcpu }, from_ns, to_ns, ..
            } = segment
            {
                *sums.entry((*vm, *vcpu)).or_default() += to_ns - from_ns;
            }
        }
        sums
    }

    #[test]
    fn both_forms_of_trace_cmd_say_the_same() {
        let [plain, raw] = [TRACE_CMD, RAW].map(|text| read("r", text).unwrap());
        assert_eq!(plain, raw);
        assert_eq!(plain.pcpus, [0, 1]);
        let names: Vec<_> = plain.vms.iter().map(|vm| (vm.name.as_str(), vm.vcpus)).collect();
        assert_eq!(names, [("VM 1", 2), ("VM 2", 2)]);
        // By hand: vCPU 0 of the first VM, which switches in at 794.079512 and out at
        // ...; the sums of all switches of each thread.
        let sums = vcpu_ns(&plain);
        assert_eq!(sums.len(), 4, "{sums:?}");
    }

    #[test]
    fn a_process_beside_the_thread_tells_the_vms_apart() {
        let map = read("r", PERF_PIDS).unwrap();
        let names: Vec<_> = map.vms.iter().map(|vm| vm.name.as_str()).collect();
        assert_eq!(names, ["QEMU 9443", "QEMU 9444"]);
        let without = read("r", PERF).unwrap();
        assert_eq!(vcpu_ns(&map).values().sum::<u64>(), vcpu_ns(&without).values().sum::<u64>());
        assert_eq!(map.segments.len(), without.segments.len());
    }

    /// Nobody is in two places, no pCPU has two threads, and all of the time between
    /// first and last switch is somebody's or idle.
    #[test]
    fn segments_do_not_overlap() {
        for text in [PERF, PERF_PIDS, TRACE_CMD, RAW] {
            let map = read("r", text).unwrap();
            let mut until = vec![map.from_ns; map.pcpus.len()];
            for segment in &map.segments {
                if let TraceSegment::Ran { pcpu, from_ns, to_ns, .. } = *segment {
                    assert!(from_ns >= until[pcpu as usize] && to_ns > from_ns, "{segment:?}");
                    until[pcpu as usize] = to_ns;
                }
            }
            assert!(until.iter().all(|end| *end <= map.to_ns));
        }
    }

    #[test]
    fn pauses_are_found_on_both_makers_processors() {
        let switch = "x 5 [001] 1.000001: sched:sched_switch: prev_comm=x prev_pid=5 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=7 next_prio=120\n";
        for reason in ["reason PAUSE_INSTRUCTION rip 0x1", "vcpu 0 reason pause rip 0x1"] {
            let exit = format!(" CPU 0/KVM 7 [001] 1.000003500: kvm:kvm_exit: {reason}\n");
            let map = read("r", &(switch.to_owned() + &exit)).unwrap();
            let expected = TraceSegment::PauseExit { pcpu: 0, at_ns: 1_000_003_500 };
            assert!(map.segments.contains(&expected), "{map:?}");
        }
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let error = read("r", "hello\nworld\n").unwrap_err();
        assert!(error.message.contains("perf sched record"), "{error}");
        let broken = TRACE_CMD.replacen(" ==> ", " ", 1);
        let error = read("r", &broken).unwrap_err();
        assert_eq!(error.line, 2, "{error}");
    }

    proptest! {
        #[test]
        fn no_text_is_too_bad(text in "(?s).{0,300}", cut in 0usize..2_000) {
            let _ = read("r", &text);
            let end = PERF.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(0);
            let _ = read("r", &(PERF[..end].to_owned() + &text));
        }
    }
}
