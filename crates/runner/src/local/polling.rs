//! Where the polling threads of a switch may run.

use std::fs;

use host::affinity::thread_affinity;
use record::{Failure, FailureKind};
use topology::PcpuSet;

use super::load_failure;

/// The pCPUs of each thread of process `pid` whose name `is_polling`, in the order of
/// their thread ids.
pub(super) fn places(
    pid: u32,
    is_polling: impl Fn(&str) -> bool,
) -> Result<Vec<(u32, PcpuSet)>, Failure> {
    let wrong = |detail: String| Failure::new(FailureKind::NotAsClaimed, detail);
    let tasks = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&tasks).map_err(|error| wrong(format!("{tasks}: {error}")))?;
    let mut all = Vec::new();
    for task in tasks.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok());
        let Some(tid) = tid.filter(|_| is_polling(name.trim())) else { continue };
        let own = thread_affinity(tid).map_err(|error| wrong(load_failure(&error).detail))?;
        all.push((tid, own));
    }
    all.sort_by_key(|(tid, _)| *tid);
    Ok(all)
}

/// Whether each polling thread may run on one of the `asked` pCPUs and on no other, and
/// each of these has one.
pub(super) fn check(
    pid: u32,
    asked: &PcpuSet,
    is_polling: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    let wrong = |detail: String| Failure::new(FailureKind::NotAsClaimed, detail);
    let mut found = PcpuSet::default();
    for (tid, own) in places(pid, is_polling)? {
        if own.len() != 1 {
            return Err(wrong(format!("The switch's thread {tid} may run on pCPUs {own}")));
        }
        found = found.union(&own);
    }
    if found != *asked {
        return Err(wrong(format!(
            "The switch's polling threads: asked for pCPUs {asked}, they are on {found}"
        )));
    }
    Ok(())
}
