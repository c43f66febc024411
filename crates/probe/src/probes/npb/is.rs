//! IS: ranks of whole numbers, by counting; random access and no arithmetic.

use std::time::Instant;

use super::random::NpbRandom;
use super::{NpbClass, NpbResult};
use crate::team::Team;

struct IsProblem {
    keys: usize,
    /// Keys are below it.
    limit: usize,
    /// Places of five keys whose ranks are published, the ranks, and by how much
    /// each rank changes with the iteration's number: times and plus.
    tests: [(usize, i64, i64, i64); 5],
}

const ITERATIONS: usize = 10;

fn problem(class: NpbClass) -> IsProblem {
    let (keys, limit, tests) = match class {
        NpbClass::S => (
            1 << 16,
            1 << 11,
            [
                (48_427, 0, 1, 0),
                (17_148, 18, 1, 0),
                (23_627, 346, 1, 0),
                (62_548, 64_917, -1, 0),
                (4_431, 65_463, -1, 0),
            ],
        ),
        NpbClass::W => (
            1 << 20,
            1 << 16,
            [
                (357_773, 1_249, 1, -2),
                (934_767, 11_698, 1, -2),
                (875_723, 1_039_987, -1, 0),
                (898_999, 1_043_896, -1, 0),
                (404_505, 1_048_018, -1, 0),
            ],
        ),
        NpbClass::A => (
            1 << 23,
            1 << 19,
            [
                (2_112_377, 104, 1, -1),
                (662_041, 17_523, 1, -1),
                (5_336_171, 123_928, 1, -1),
                (3_642_833, 8_288_932, -1, 1),
                (4_250_760, 8_388_264, -1, 1),
            ],
        ),
        NpbClass::B => (
            1 << 25,
            1 << 21,
            [
                (41_869, 33_422_937, -1, 0),
                (812_306, 10_244, 1, 0),
                (5_102_857, 59_149, 1, 0),
                (18_232_239, 33_135_281, -1, 0),
                (26_860_214, 99, 1, 0),
            ],
        ),
    };
    IsProblem { keys, limit, tests }
}

/// Bytes that a class needs: keys twice, and some counts.
pub(super) fn bytes(class: NpbClass) -> u64 {
    let problem = problem(class);
    (problem.keys * 8 + problem.limit * 64) as u64
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let problem = problem(class);
    let mut keys = keys(&problem, team);
    let mut ranks = Ranks::new(&problem, team);
    // One ranking touches everything, and is not timed.
    ranks.rank(&mut keys, &problem, 1, team);
    let mut right = 0;
    let begin = Instant::now();
    for iteration in 1..=ITERATIONS {
        right += ranks.rank(&mut keys, &problem, iteration, team);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let sorted = ranks.sorts(&keys);
    NpbResult {
        seconds,
        operations: (ITERATIONS * problem.keys) as f64,
        verified: right == 5 * ITERATIONS && sorted,
        detail: format!("{right} of {} published ranks, sorted: {sorted}", 5 * ITERATIONS),
    }
}

/// Each key is the mean of four random numbers, so most lie in the middle.
fn keys(problem: &IsProblem, team: &Team) -> Vec<u32> {
    let mut keys = vec![0; problem.keys];
    let quarter = (problem.limit / 4) as f64;
    team.each(team.cut(&mut keys, 1), |thread, part| {
        let first = team.range(problem.keys, thread).start as u64;
        let mut random = NpbRandom::new(314_159_265).skip(4 * first);
        for key in part {
            let sum = random.next() + random.next() + random.next() + random.next();
            *key = (quarter * sum) as u32;
        }
    });
    keys
}

struct Ranks {
    /// How often each thread saw each key.
    counts: Vec<Vec<u32>>,
    /// How many keys are at most as great as each.
    upto: Vec<u32>,
}

impl Ranks {
    fn new(problem: &IsProblem, team: &Team) -> Self {
        let counts = vec![vec![0; problem.limit]; team.threads()];
        Self { counts, upto: vec![0; problem.limit] }
    }

    /// Changes two keys and ranks all; how many published ranks are right.
    fn rank(
        &mut self,
        keys: &mut [u32],
        problem: &IsProblem,
        iteration: usize,
        team: &Team,
    ) -> usize {
        keys[iteration] = iteration as u32;
        keys[iteration + ITERATIONS] = (problem.limit - iteration) as u32;
        let keys = &*keys;
        team.each(self.counts.iter_mut(), |thread, counts| {
            counts.fill(0);
            for key in &keys[team.range(keys.len(), thread)] {
                counts[*key as usize] += 1;
            }
        });
        // Each thread sums its range of keys, then adds what lies before it.
        let counts = &self.counts;
        let sums = team.each(team.cut(&mut self.upto, 1), |thread, upto| {
            let first = team.range(problem.limit, thread).start;
            let mut sum = 0;
            for (at, upto) in upto.iter_mut().enumerate() {
                sum += counts.iter().map(|counts| counts[first + at]).sum::<u32>();
                *upto = sum;
            }
            sum
        });
        team.each(team.cut(&mut self.upto, 1), |thread, upto| {
            let before: u32 = sums[..thread].iter().sum();
            upto.iter_mut().for_each(|upto| *upto += before);
        });
        let is_right = |(place, rank, times, plus): &(usize, i64, i64, i64)| {
            let key = keys[*place] as usize;
            let expected = rank + times * iteration as i64 + plus;
            key > 0 && i64::from(self.upto[key - 1]) == expected
        };
        problem.tests.iter().filter(|test| is_right(test)).count()
    }

    /// True if the ranks put the keys in order.
    fn sorts(&self, keys: &[u32]) -> bool {
        let (mut next, mut sorted) = (self.upto.clone(), vec![0; keys.len()]);
        for key in keys {
            let Some(place) = next[*key as usize].checked_sub(1) else { return false };
            next[*key as usize] = place;
            sorted[place as usize] = *key;
        }
        sorted.is_sorted()
    }
}
