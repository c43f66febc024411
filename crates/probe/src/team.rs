//! Threads that work in step: each call hands one part to each thread and
//! waits for all, as a parallel region of OpenMP with a static schedule does.

use std::sync::Mutex;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::ProbeError;
use crate::vcpus;

/// Some threads, each pinned or free.
pub(crate) struct Team {
    pool: ThreadPool,
}

impl Team {
    /// Starts `threads` threads; thread `i` is pinned to the vCPU of `pins`
    /// whose turn it is.
    pub(crate) fn new(threads: usize, pins: &[usize]) -> Result<Self, ProbeError> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| ProbeError::Refused(format!("No threads: {error}")))?;
        pool.broadcast(|context| vcpus::pin(pins, context.index()))
            .into_iter()
            .collect::<Result<(), _>>()?;
        Ok(Self { pool })
    }

    pub(crate) fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Calls `work(thread, part)` in each thread with its part; the results in
    /// the order of the threads. There are as many parts as threads.
    pub(crate) fn each<P: Send, R: Send>(
        &self,
        parts: impl IntoIterator<Item = P>,
        work: impl Fn(usize, P) -> R + Sync,
    ) -> Vec<R> {
        let parts: Vec<Mutex<Option<P>>> =
            parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        assert_eq!(parts.len(), self.threads(), "one part a thread");
        self.pool.broadcast(|context| {
            let part = parts[context.index()].lock().expect("nobody panicked").take();
            work(context.index(), part.expect("each thread runs once"))
        })
    }

    /// Calls `work(thread)` in each thread; the results in their order.
    pub(crate) fn all<R: Send>(&self, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
        self.pool.broadcast(|context| work(context.index()))
    }

    /// The part of `0..n` that is thread `thread`'s.
    pub(crate) fn range(&self, n: usize, thread: usize) -> std::ops::Range<usize> {
        let threads = self.threads();
        n * thread / threads..n * (thread + 1) / threads
    }

    /// Cuts rows of `width` values into one part of whole rows a thread, as
    /// [`Team::range`] of the number of rows does.
    pub(crate) fn cut<'a, T>(&self, mut values: &'a mut [T], width: usize) -> Vec<&'a mut [T]> {
        let rows = values.len() / width;
        let mut parts = Vec::with_capacity(self.threads());
        for thread in 0..self.threads() {
            let (part, rest) = values.split_at_mut(self.range(rows, thread).len() * width);
            parts.push(part);
            values = rest;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_somebodys() {
        for (threads, rows) in [(1, 5), (3, 7), (4, 2)] {
            let team = Team::new(threads, &[]).unwrap();
            let mut values = vec![0; rows * 2];
            team.each(team.cut(&mut values, 2), |thread, part| part.fill(thread + 1));
            for thread in 0..threads {
                let range = team.range(rows, thread);
                assert!(values[2 * range.start..2 * range.end].iter().all(|v| *v == thread + 1));
            }
            assert!(values.iter().all(|value| *value > 0));
        }
    }
}
