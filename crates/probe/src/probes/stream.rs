//! stream: sustained memory bandwidth by four simple kernels.
//!
//! Source: J. McCalpin, "Memory Bandwidth and Machine Balance in Current High
//! Performance Computers", IEEE TCCA Newsletter, December 1995, and the run
//! rules of STREAM. vmlab's own implementation.

use std::time::Instant;

use crate::args::{Args, OptionValue};
use crate::document::ProbeResult;
use crate::memory::{self, PAGES};
use crate::spec::{CPUS, Opt, Probe, ProbeError, ProbeMetric, THREADS};
use crate::stat::mean;
use crate::team::Team;
use crate::{machine, vcpus};

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "stream",
    summary: "Memory bandwidth: copy, scale, add, triad (vmlab's own STREAM)",
    about: "Three arrays of 8-byte numbers, cut into one part a thread, each touched first by the \
            thread that works on it (or all by one, to see remote memory). Bytes are counted as \
            STREAM does: two arrays for copy and scale, three for add and triad, MB are 10^6 B. \
            An array should be four times the last-level caches, which is the default where \
            half of the free memory holds all three. A first turn is not counted. In a VM it \
            shows the nodes that the memory really lies on, huge pages, and vCPUs that share a \
            core. Copy is what the C library's memcpy does with it.",
    verifies: "every element of the three arrays has the value that the kernels yield, within \
               1e-13.",
    options: &[
        THREADS,
        CPUS,
        Opt::int(
            "array-mib",
            (0, 1 << 24),
            0,
            "Size of one array; 0 for four times the last-level caches, at most a sixth of \
                   the free memory",
        )
        .unit("MiB"),
        Opt::choice(
            "touch",
            &["thread", "first"],
            "thread",
            "Who touches the memory first: each thread its part, or the first thread all",
        ),
        PAGES,
        // 15 to the power of 200 is still a number.
        Opt::int(
            "repeat",
            (1, 199),
            10,
            "How often each kernel is measured, after a first time that is not counted",
        ),
    ],
    metrics: &[
        ProbeMetric::rate("copy", "B/s", "Bandwidth of c = a, by repeat"),
        ProbeMetric::rate("scale", "B/s", "Bandwidth of b = 3 c, by repeat"),
        ProbeMetric::rate("add", "B/s", "Bandwidth of c = a + b, by repeat"),
        ProbeMetric::rate("triad", "B/s", "Bandwidth of a = b + 3 c, by repeat"),
        ProbeMetric::rate("copy-best", "B/s", "The best of copy"),
        ProbeMetric::rate("scale-best", "B/s", "The best of scale"),
        ProbeMetric::rate("add-best", "B/s", "The best of add"),
        ProbeMetric::rate("triad-best", "B/s", "The best of triad"),
        ProbeMetric::time("copy-time-avg", "Mean time of copy"),
        ProbeMetric::time("copy-time-min", "Shortest time of copy"),
        ProbeMetric::time("copy-time-max", "Longest time of copy"),
        ProbeMetric::time("scale-time-avg", "Mean time of scale"),
        ProbeMetric::time("scale-time-min", "Shortest time of scale"),
        ProbeMetric::time("scale-time-max", "Longest time of scale"),
        ProbeMetric::time("add-time-avg", "Mean time of add"),
        ProbeMetric::time("add-time-min", "Shortest time of add"),
        ProbeMetric::time("add-time-max", "Longest time of add"),
        ProbeMetric::time("triad-time-avg", "Mean time of triad"),
        ProbeMetric::time("triad-time-min", "Shortest time of triad"),
        ProbeMetric::time("triad-time-max", "Longest time of triad"),
    ],
    histograms: &[],
    example: "--threads 2 --array-mib 256",
    run,
};

/// Each kernel, and how many arrays it moves.
const KERNELS: [(&str, f64); 4] = [("copy", 2.0), ("scale", 2.0), ("add", 3.0), ("triad", 3.0)];

const SCALAR: f64 = 3.0;
const BEGIN: [f64; 3] = [1.0, 2.0, 0.0];

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let team = Team::new(args.size("threads"), &args.vcpus("cpus"))?;
    let n = array_bytes(args, outcome)? / 8;
    let mut maps = Vec::new();
    for _ in 0..3 {
        maps.push(memory::map(n * 8, args.text("pages"))?);
    }
    let mut arrays = maps.iter_mut().map(|map| &mut bytemuck::cast_slice_mut::<u8, f64>(map)[..n]);
    let mut next = || arrays.next().expect("three arrays were mapped");
    let (a, b, c) = (next(), next(), next());

    touch(&team, args.text("touch") == "first", [&mut *a, &mut *b, &mut *c]);
    if let Some(huge) = machine::anon_huge_bytes() {
        outcome.fact("bytes-in-huge-pages", huge.to_string());
    }
    let repeats = args.size("repeat");
    let mut times = [const { Vec::new() }; 4];
    for turn in 0..=repeats {
        for (kernel, (name, arrays)) in KERNELS.iter().enumerate() {
            let begin = Instant::now();
            step(&team, kernel, [&mut *a, &mut *b, &mut *c]);
            let took = begin.elapsed().as_secs_f64();
            if turn > 0 {
                times[kernel].push(took);
                outcome.push(name, arrays * 8.0 * n as f64 / took).repeat(turn - 1);
            }
        }
    }
    for ((name, arrays), times) in KERNELS.iter().zip(&times) {
        let min = times.iter().copied().fold(f64::INFINITY, f64::min);
        outcome.push(&format!("{name}-best"), arrays * 8.0 * n as f64 / min);
        outcome.push(&format!("{name}-time-avg"), mean(times));
        outcome.push(&format!("{name}-time-min"), min);
        outcome.push(&format!("{name}-time-max"), times.iter().copied().fold(0.0, f64::max));
    }
    let wrong = wrong_elements([a, b, c], expected(repeats + 1));
    outcome.check("elements", wrong == 0, format!("{wrong} of {} are wrong", 3 * n));
    if team.threads() > vcpus::allowed().len() {
        outcome.warn("More threads than vCPUs");
    }
    Ok(())
}

/// The size of one array, and what to know about it.
fn array_bytes(args: &Args, outcome: &mut ProbeResult) -> Result<usize, ProbeError> {
    let caches = machine::last_level_cache_bytes();
    let free = machine::meminfo("MemAvailable");
    if let Some(caches) = caches {
        outcome.fact("last-level-cache-bytes", caches.to_string());
    }
    let wanted = caches.unwrap_or(16 << 20).saturating_mul(4);
    let bytes = match args.count("array-mib") {
        0 => wanted.min(free.map_or(64 << 20, |free| free / 6)).max(1 << 20) >> 20 << 20,
        mib => mib << 20,
    };
    if free.is_some_and(|free| 3 * bytes > free) {
        let mib = bytes >> 20;
        let text = format!("Three arrays of {mib} MiB do not fit into the free memory");
        return Err(ProbeError::Refused(text));
    }
    if bytes < wanted {
        outcome.warn("The arrays are smaller than four times the last-level caches");
    }
    outcome.param("array-mib", OptionValue::Int((bytes >> 20) as i64));
    Ok(bytes as usize)
}

/// Touches all pages for the first time, which decides on their node.
fn touch(team: &Team, by_first: bool, arrays: [&mut [f64]; 3]) {
    for (array, value) in arrays.into_iter().zip(BEGIN) {
        if by_first {
            let mut parts: Vec<&mut [f64]> = vec![array];
            parts.resize_with(team.threads(), <&mut [f64]>::default);
            team.each(parts, |_, part| part.fill(value));
        } else {
            team.each(team.cut(array, 1), |_, part| part.fill(value));
        }
    }
}

/// Runs one kernel over all parts.
fn step(team: &Team, kernel: usize, [a, b, c]: [&mut [f64]; 3]) {
    let parts = team.cut(a, 1).into_iter().zip(team.cut(b, 1)).zip(team.cut(c, 1));
    team.each(parts, |_, ((a, b), c)| match kernel {
        0 => c.copy_from_slice(a),
        1 => b.iter_mut().zip(c).for_each(|(b, c)| *b = SCALAR * *c),
        2 => c.iter_mut().zip(a).zip(b).for_each(|((c, a), b)| *c = *a + *b),
        _ => a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = *b + SCALAR * *c),
    });
}

/// The values of a, b and c after so many turns.
fn expected(turns: usize) -> [f64; 3] {
    let [mut a, mut b, mut c] = BEGIN;
    for _ in 0..turns {
        c = a;
        b = SCALAR * c;
        c = a + b;
        a = b + SCALAR * c;
    }
    [a, b, c]
}

fn wrong_elements(arrays: [&mut [f64]; 3], expected: [f64; 3]) -> usize {
    // NaN is not right.
    let right = |value: f64, expected: f64| (value - expected).abs() <= 1e-13 * expected.abs();
    let arrays = arrays.into_iter().zip(expected);
    arrays.map(|(array, expected)| array.iter().filter(|v| !right(**v, expected)).count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_wrong_is_found() {
        let team = Team::new(2, &[]).unwrap();
        for (order, right) in [
            (vec![0, 1, 2, 3], true),
            (vec![1, 2, 3], false),
            (vec![0, 2, 3], false),
            (vec![0, 1, 3], false),
            (vec![0, 1, 2], false),
            (vec![0, 1, 2, 3, 0], false),
        ] {
            let (mut a, mut b, mut c) = (vec![9.0; 101], vec![9.0; 101], vec![9.0; 101]);
            touch(&team, false, [&mut a, &mut b, &mut c]);
            for kernel in &order {
                step(&team, *kernel, [&mut a, &mut b, &mut c]);
            }
            let wrong = wrong_elements([&mut a, &mut b, &mut c], expected(1));
            assert_eq!(wrong == 0, right, "{order:?}");
        }
    }

    #[test]
    fn a_wrong_element_is_found() {
        let [a, b, c] = expected(3);
        let (mut a, mut b, mut c) = (vec![a; 9], vec![b; 9], vec![c; 9]);
        c[8] += 1e-9;
        assert_eq!(wrong_elements([&mut a, &mut b, &mut c], expected(3)), 1);
        a[0] = f64::NAN;
        assert_eq!(wrong_elements([&mut a, &mut b, &mut c], expected(3)), 2);
    }
}
