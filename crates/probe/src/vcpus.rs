//! The vCPUs that this process may use, and pinning threads to them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{ErrorContext as _, ProbeError};

/// Reads a list in the kernel's format (`0,2-3`); nothing if it is not one.
pub(crate) fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut vcpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (usize, usize) = (low.parse().ok()?, high.parse().ok()?);
        if low > high || high >= CpuSet::MAX_CPU {
            return None;
        }
        vcpus.extend(low..=high);
    }
    Some(vcpus)
}

/// The vCPUs that this thread may use; empty if the kernel does not say.
pub(crate) fn allowed() -> Vec<usize> {
    sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|vcpu| set.is_set(*vcpu)).collect())
        .unwrap_or_default()
}

/// Pins the calling thread to the one of `vcpus` whose turn it is as thread
/// number `thread`; leaves it free if there are none.
pub(crate) fn pin(vcpus: &[usize], thread: usize) -> Result<(), ProbeError> {
    if vcpus.is_empty() {
        return Ok(());
    }
    pin_to(&vcpus[thread % vcpus.len()..=thread % vcpus.len()])
}

/// The calling thread is pinned until this is dropped.
#[derive(Debug)]
pub(crate) struct PinGuard(Vec<usize>);

/// Pins the calling thread as [`pin`] does, and frees it again in the end.
pub(crate) fn pin_scoped(vcpus: &[usize], thread: usize) -> Result<PinGuard, ProbeError> {
    let before = if vcpus.is_empty() { Vec::new() } else { allowed() };
    pin(vcpus, thread).map(|()| PinGuard(before))
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            // Where the thread was allowed before, it is again.
            let _ = pin_to(&self.0);
        }
    }
}

/// Lets the calling thread run on `vcpus` only.
pub(crate) fn pin_to(vcpus: &[usize]) -> Result<(), ProbeError> {
    let mut set = CpuSet::new();
    for vcpu in vcpus {
        set.set(*vcpu);
    }
    sched_setaffinity(None, &set).tried(format!("run on the vCPUs {vcpus:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_the_kernels() {
        for (text, expected) in [
            ("", Some(vec![])),
            ("0", Some(vec![0])),
            ("0,2-3", Some(vec![0, 2, 3])),
            ("3-2", None),
            ("a", None),
            ("1024", None),
            ("-1", None),
        ] {
            assert_eq!(parse_list(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_pinned_thread_runs_where_it_was_pinned() {
        let all = allowed();
        std::thread::spawn(move || {
            for turn in 0..all.len() + 1 {
                pin(&all, turn).unwrap();
                assert_eq!(allowed(), [all[turn % all.len()]]);
                assert_eq!(rustix::thread::sched_getcpu(), all[turn % all.len()]);
            }
        })
        .join()
        .unwrap();
    }
}
