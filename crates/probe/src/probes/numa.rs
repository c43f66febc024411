//! numa: memory of each guest node, seen from the vCPUs of each.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use crate::args::{Args, OptionValue};
use crate::chase::{self, LINE};
use crate::document::ProbeResult;
use crate::machine;
use crate::memory;
use crate::spec::{Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS, WARMUP};
use crate::vcpus;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "numa",
    summary: "Latency and bandwidth of local and remote memory, as the guest's nodes have it",
    about: "For each pair of guest nodes, a vCPU of one touches memory first, which puts it \
            there, and a vCPU of the other reads it: a chain of dependent loads for latency, a \
            sum for the bandwidth of one vCPU. A guest whose nodes are real shows the host's \
            distances. One whose nodes are made up, or one without nodes on several host nodes, \
            shows the same for all, or what differs by vCPU and not by node. Values carry the \
            labels `vcpu-node` and `memory-node`.",
    verifies: "the chain is whole, the sum is right, and the kernel says that the memory lies on \
               its node.",
    options: &[
        Opt::int(
            "mib",
            (0, 1 << 24),
            0,
            "Memory to read; 0 for twice the last-level caches, at most 256 MiB and an \
                   eighth of the free memory",
        )
        .unit("MiB"),
        Opt { default: OptionDefault::Float(0.1), help: "How long each is measured", ..SECONDS },
        REPEAT,
        Opt { default: OptionDefault::Float(0.0), ..WARMUP },
    ],
    metrics: &[
        ProbeMetric::time("local-latency", "Mean time of a dependent load from the own node"),
        ProbeMetric::time("remote-latency", "Mean time of a dependent load from another node"),
        ProbeMetric::rate("local-bandwidth", "B/s", "Bytes read a second from the own node"),
        ProbeMetric::rate("remote-bandwidth", "B/s", "Bytes read a second from another node"),
    ],
    histograms: &[],
    example: "--mib 512",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let free = machine::meminfo("MemAvailable").unwrap_or(1 << 30) as usize;
    let caches = machine::last_level_cache_bytes().unwrap_or(32 << 20) as usize;
    let bytes = match args.size("mib") {
        0 => (2 * caches).min(256 << 20).min(free / 8).max(2 << 20) >> 21 << 21,
        mib => mib << 20,
    };
    if bytes > free {
        let mib = bytes >> 20;
        return Err(ProbeError::Refused(format!("{mib} MiB do not fit into the free memory")));
    }
    if bytes < 2 * caches {
        outcome.warn("The memory is smaller than twice the last-level caches: they answer too");
    }
    outcome.param("mib", OptionValue::Int((bytes >> 20) as i64));
    let allowed = vcpus::allowed();
    let mut nodes = machine::nodes();
    if nodes.is_empty() {
        outcome.fact("nodes", "the guest's kernel knows none");
        nodes.push((0, allowed.clone()));
    } else {
        outcome.fact("nodes", nodes.len().to_string());
    }
    for (node, vcpus) in &mut nodes {
        vcpus.retain(|vcpu| allowed.contains(vcpu));
        if vcpus.is_empty() {
            outcome.warn(format!("Node {node} has no vCPU to use and was left out"));
        }
    }
    nodes.retain(|(_, vcpus)| !vcpus.is_empty());
    if nodes.len() < 2 {
        outcome.warn("One node: there is no remote memory");
    }
    for (memory_node, its_vcpus) in &nodes {
        let touching = vcpus::pin_scoped(its_vcpus, 0)?;
        let mut map = memory::map(bytes, "thp").or_else(|_| memory::map(bytes, "default"))?;
        let words = &mut bytemuck::cast_slice_mut::<u8, u64>(&mut map)[..bytes / 8];
        chase::link(words, LINE / 8);
        drop(touching);
        if let Some(there) = bytes_on(*memory_node, words.as_ptr() as usize) {
            let detail = format!("{there} of {bytes} bytes lie there");
            outcome.check(format!("on node {memory_node}"), there >= bytes / 100 * 95, detail);
        }
        let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
        for (vcpu_node, vcpus) in &nodes {
            let _reading = vcpus::pin_scoped(vcpus, 0)?;
            let where_is = if vcpu_node == memory_node { "local" } else { "remote" };
            let (mut whole, mut right) = (true, true);
            for repeat in 0..args.size("repeat") {
                let seconds = args.float("seconds");
                let step_s = chase::step_s(words, (bytes / LINE) as u64, seconds);
                whole &= step_s.is_some();
                let (rate, sums_right) = read_rate(words, sum, seconds);
                right &= sums_right;
                for (what, value) in [("latency", step_s.unwrap_or(0.0)), ("bandwidth", rate)] {
                    outcome
                        .push(&format!("{where_is}-{what}"), value)
                        .repeat(repeat)
                        .label("vcpu-node", vcpu_node.to_string())
                        .label("memory-node", memory_node.to_string());
                }
            }
            let pair = format!("{vcpu_node} reads {memory_node}");
            outcome.check(format!("chain: {pair}"), whole, "the chain was followed");
            outcome.check(format!("sum: {pair}"), right, "the words were summed");
        }
    }
    Ok(())
}

/// Bytes a second of summing all words, and whether every sum was `expected`.
fn read_rate(words: &[u64], expected: u64, seconds: f64) -> (f64, bool) {
    let (begin, mut rounds, mut right) = (Instant::now(), 0, true);
    loop {
        let sum = black_box(words).iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
        right &= sum == expected;
        rounds += 1;
        let took_s = begin.elapsed().as_secs_f64();
        if took_s >= seconds {
            return ((rounds * words.len() * 8) as f64 / took_s, right);
        }
    }
}

/// Bytes on a node of the mapping around `address`, by `/proc/self/numa_maps`;
/// nothing if the guest's kernel has no NUMA.
fn bytes_on(node: usize, address: usize) -> Option<usize> {
    node_bytes(&fs::read_to_string("/proc/self/numa_maps").ok()?, node, address)
}

/// Lines are in the order of the addresses that they begin with.
fn node_bytes(text: &str, node: usize, address: usize) -> Option<usize> {
    let begins = |line: &&str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        usize::from_str_radix(word, 16).is_ok_and(|begin| begin <= address)
    };
    let line = text.lines().take_while(begins).last()?;
    let number = |key: &str| -> Option<usize> {
        line.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse().ok())
    };
    let pages = number(&format!("N{node}=")).unwrap_or(0);
    Some(pages * number("kernelpagesize_kB=").unwrap_or(4) * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_those_of_the_mapping() {
        let text = "7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4\n\
                    7f01 default file=/bin/x mapped=5 N0=5 kernelpagesize_kB=4\n\
                    7f02 default\n7f03 default huge anon=1 N10=1 kernelpagesize_kB=2048\n";
        for (node, address, bytes) in [
            (0, 0x7f00, Some(2 * 4096)),
            (1, 0x7f00, Some(4096)),
            (0, 0x7f01, Some(5 * 4096)),
            (0, 0x7f02, Some(0)),
            (10, 0x9999, Some(2 << 20)),
            (2, 0x9999, Some(0)),
            (0, 0x10, None),
        ] {
            assert_eq!(super::node_bytes(text, node, address), bytes, "{node} {address:x}");
        }
    }
}
