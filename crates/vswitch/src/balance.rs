//! Which queue another polling thread should serve. Pure.

/// What one queue had to do lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLoad {
    pub(crate) port: usize,
    pub(crate) queue: usize,
    /// Who serves it.
    pub(crate) thread: usize,
    /// Frames, both ways.
    pub(crate) frames: u64,
}

/// The queue whose move relieves the busiest thread most, and to which thread. None if it
/// is not worth it: less than a tenth of what the busiest has to do.
pub(crate) fn relief(loads: &[QueueLoad], threads: usize) -> Option<(usize, usize, usize)> {
    let mut sums = vec![0_u64; threads];
    for load in loads {
        *sums.get_mut(load.thread)? += load.frames;
    }
    let busiest = (0..threads).max_by_key(|&thread| sums[thread])?;
    let idlest = (0..threads).min_by_key(|&thread| sums[thread])?;
    let gap = sums[busiest] - sums[idlest];
    let after = |load: &QueueLoad| (sums[busiest] - load.frames).max(sums[idlest] + load.frames);
    let movable = loads.iter().filter(|load| load.thread == busiest && load.frames < gap);
    let best = movable.min_by_key(|load| (after(load), load.frames))?;
    let gain = sums[busiest].checked_sub(after(best))?;
    (gain > sums[busiest] / 10).then_some((best.port, best.queue, idlest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn most(loads: &[QueueLoad], threads: usize) -> u64 {
        let of = |thread| loads.iter().filter(move |load| load.thread == thread);
        (0..threads).map(|thread| of(thread).map(|load| load.frames).sum()).max().unwrap_or(0)
    }

    proptest! {
        /// Each move relieves the busiest thread, and moves come to an end.
        #[test]
        fn moves_relieve_and_end(
            threads in 1_usize..8,
            frames in prop::collection::vec((0_u64..1 << 40, 0_usize..8), 0..40),
        ) {
            let mut loads: Vec<QueueLoad> = frames
                .into_iter()
                .enumerate()
                .map(|(port, (frames, thread))| QueueLoad { port, queue: 0, thread: thread % threads, frames })
                .collect();
            for _ in 0..400 {
                let Some((port, _, to)) = relief(&loads, threads) else { return Ok(()) };
                let before = most(&loads, threads);
                loads[port].thread = to;
                prop_assert!(most(&loads, threads) <= before);
            }
            prop_assert!(false, "it never ends");
        }
    }

    #[test]
    fn one_busy_queue_stays_and_two_part() {
        let load = |port, thread, frames| QueueLoad { port, queue: 0, thread, frames };
        assert_eq!(relief(&[load(0, 0, 1000), load(1, 1, 0)], 2), None);
        assert_eq!(relief(&[load(0, 0, 500), load(1, 0, 400)], 2), Some((1, 0, 1)));
        assert_eq!(relief(&[], 3), None);
    }
}
