//! EP: pairs of normal deviates, counted by size; hardly any memory.

use super::random::NpbRandom;
use super::{NpbClass, NpbResult, near};
use crate::team::Team;
use std::time::Instant;

/// Pairs that one batch draws.
const BATCH: u64 = 1 << 16;

/// Power of two of the pairs, and the sums of the deviates as published.
fn problem(class: NpbClass) -> (u32, [f64; 2]) {
    match class {
        NpbClass::S => (24, [-3.247_834_652_034_74e3, -6.958_407_078_382_297e3]),
        NpbClass::W => (25, [-2.863_319_731_645_753e3, -6.320_053_679_109_499e3]),
        NpbClass::A => (28, [-4.295_875_165_629_892e3, -1.580_732_573_678_431e4]),
        NpbClass::B => (30, [4.033_815_542_441_498e4, -2.660_669_192_809_235e4]),
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct EpSums {
    x: f64,
    y: f64,
    annuli: [u64; 10],
    accepted: u64,
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let (power, published) = problem(class);
    let begin = Instant::now();
    let batches = (1_u64 << power) / BATCH;
    let parts = team.all(|thread| {
        let mut sums = EpSums::default();
        for batch in team.range(batches as usize, thread) {
            pairs(batch as u64, &mut sums);
        }
        sums
    });
    let mut all = EpSums::default();
    for part in parts {
        all.x += part.x;
        all.y += part.y;
        all.accepted += part.accepted;
        for (total, count) in all.annuli.iter_mut().zip(part.annuli) {
            *total += count;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let verified = near(all.x, published[0], 1e-8)
        && near(all.y, published[1], 1e-8)
        && all.annuli.iter().sum::<u64>() == all.accepted;
    NpbResult {
        seconds,
        // As the reports count: one operation a random number.
        operations: (2_u64 << power) as f64,
        verified,
        detail: format!("sums {:.15e} {:.15e}, published {published:?}", all.x, all.y),
    }
}

/// Draws one batch; deviates are made from the pairs inside the unit circle.
fn pairs(batch: u64, sums: &mut EpSums) {
    let mut random = NpbRandom::new(271_828_183).skip(2 * BATCH * batch);
    for _ in 0..BATCH {
        let x = 2.0 * random.next() - 1.0;
        let y = 2.0 * random.next() - 1.0;
        let square = x * x + y * y;
        if square <= 1.0 {
            let factor = (-2.0 * square.ln() / square).sqrt();
            let (x, y) = (x * factor, y * factor);
            sums.annuli[x.abs().max(y.abs()) as usize] += 1;
            sums.x += x;
            sums.y += y;
            sums.accepted += 1;
        }
    }
}
