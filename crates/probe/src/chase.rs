//! Pointer chases: each load needs the one before, so the time of a step is
//! the latency of memory (or of the caches and of the TLB).

use std::hint::black_box;
use std::time::Instant;

/// Bytes of a cache line on both machines.
pub(crate) const LINE: usize = 64;

const WORDS: usize = LINE / 8;

/// Links one word in each stride of `words` into one random cycle.
///
/// `stride` is in words. Words that lie a page apart share their place in the
/// caches' sets, so each stride uses another of its lines.
pub(crate) fn link(words: &mut [u64], stride: usize) {
    let nodes = words.len() / stride;
    let lines = (stride / WORDS).max(1);
    // Not `node % lines`, which would repeat in every page-sized group.
    let place = |node: usize| node * stride + (node + node / lines) % lines * WORDS;
    let mut order: Vec<u32> = (0..nodes as u32).collect();
    // Sattolo's shuffle yields one cycle through all.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for last in (1..nodes).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, ((state >> 33) % last as u64) as usize);
    }
    for (node, next) in order.into_iter().enumerate() {
        words[place(node)] = place(next as usize) as u64;
    }
}

/// Where the cycle of [`link`] begins.
pub(crate) const START: usize = 0;

/// Goes `steps` steps from `at`; where it ends.
#[inline(never)]
pub(crate) fn walk(words: &[u64], mut at: usize, steps: u64) -> usize {
    for _ in 0..steps {
        at = words[at] as usize;
    }
    black_box(at)
}

/// Seconds a step, of walks of whole rounds for at least `seconds`; nothing if
/// the cycle does not go through all `nodes` and back.
pub(crate) fn step_s(words: &[u64], nodes: u64, seconds: f64) -> Option<f64> {
    // The first round fills the caches, and proves the cycle.
    let half = walk(words, START, nodes / 2);
    let whole = (nodes < 2 || half != START) && walk(words, half, nodes - nodes / 2) == START;
    let (begin, mut steps, mut at) = (Instant::now(), 0, START);
    loop {
        at = walk(words, at, nodes.max(4096));
        steps += nodes.max(4096);
        let took_s = begin.elapsed().as_secs_f64();
        if took_s >= seconds {
            return whole.then_some(took_s / steps as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_goes_through_all() {
        for (nodes, stride) in [(1, 8), (2, 8), (100, 8), (64, 512), (1000, 16)] {
            let mut words = vec![0; nodes * stride];
            link(&mut words, stride);
            let (mut seen, mut at) = (std::collections::BTreeSet::new(), START);
            for _ in 0..nodes {
                assert!(seen.insert(at / stride), "{nodes} {stride}: {at} twice");
                at = walk(&words, at, 1);
            }
            assert_eq!((at, seen.len()), (START, nodes));
            assert!(step_s(&words, nodes as u64, 0.0).is_some());
        }
        let mut words = vec![0; 800];
        link(&mut words, 8);
        words[8] = 8;
        assert_eq!(step_s(&words, 100, 0.0), None, "a cycle that is cut short is found");
    }
}
