//! Which queue another polling thread should serve. Pure.

/// What one queue had to do lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLoad {
    pub(crate) port: usize,
    pub(crate) queue: usize,
    /// Who serves it.
    pub(crate) thread: usize,
    /// Time of its thread that it took.
    pub(crate) busy_ns: u64,
}

/// A thread that was busy for less than this, per thousand of the time, needs no relief:
/// what is known of its queues is chance. It is processor time, of which a thread gets a
/// twentieth and less where many others want its pCPU, so that it can't be much.
const LEAST_BUSY_PERMILLE: u64 = 10;

/// The queue whose move relieves the busiest thread most, and to which thread. None if it
/// is not worth it: less than a tenth of what the busiest has to do, or little in the whole
/// time of `window_ns`.
pub(crate) fn relief(
    loads: &[QueueLoad],
    threads: usize,
    window_ns: u64,
) -> Option<(usize, usize, usize)> {
    let mut sums = vec![0_u64; threads];
    for load in loads {
        *sums.get_mut(load.thread)? += load.busy_ns;
    }
    let busiest = (0..threads).max_by_key(|&thread| sums[thread])?;
    let idlest = (0..threads).min_by_key(|&thread| sums[thread])?;
    if sums[busiest] < window_ns / 1000 * LEAST_BUSY_PERMILLE {
        return None;
    }
    let gap = sums[busiest] - sums[idlest];
    let after = |load: &QueueLoad| (sums[busiest] - load.busy_ns).max(sums[idlest] + load.busy_ns);
    let movable = loads.iter().filter(|load| load.thread == busiest && load.busy_ns < gap);
    let best = movable.min_by_key(|load| (after(load), load.busy_ns))?;
    let gain = sums[busiest].checked_sub(after(best))?;
    (gain > sums[busiest] / 10).then_some((best.port, best.queue, idlest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn most(loads: &[QueueLoad], threads: usize) -> u64 {
        let of = |thread| loads.iter().filter(move |load| load.thread == thread);
        (0..threads).map(|thread| of(thread).map(|load| load.busy_ns).sum()).max().unwrap_or(0)
    }

    proptest! {
        /// Each move relieves the busiest thread, and moves come to an end.
        #[test]
        fn moves_relieve_and_end(
            threads in 1_usize..8,
            busy in prop::collection::vec((0_u64..1 << 40, 0_usize..8), 0..40),
        ) {
            let mut loads: Vec<QueueLoad> = busy
                .into_iter()
                .enumerate()
                .map(|(port, (busy_ns, thread))| QueueLoad { port, queue: 0, thread: thread % threads, busy_ns })
                .collect();
            for _ in 0..400 {
                let Some((port, _, to)) = relief(&loads, threads, 0) else { return Ok(()) };
                let before = most(&loads, threads);
                loads[port].thread = to;
                prop_assert!(most(&loads, threads) <= before);
            }
            prop_assert!(false, "it never ends");
        }
    }

    #[test]
    fn one_busy_queue_stays_and_two_part() {
        let load = |port, thread, busy_ns| QueueLoad { port, queue: 0, thread, busy_ns };
        assert_eq!(relief(&[load(0, 0, 1000), load(1, 1, 0)], 2, 1000), None);
        assert_eq!(relief(&[load(0, 0, 500), load(1, 0, 400)], 2, 1000), Some((1, 0, 1)));
        assert_eq!(relief(&[], 3, 1000), None);
        // A thread that has hardly anything to do is left alone.
        assert_eq!(relief(&[load(0, 0, 500), load(1, 0, 400)], 2, 100_000), None);
    }
}
