//! How rules say numbers.

use topology::PcpuSet;

/// "0 and 1", "0, 1 and 2", from many on as a list of ranges.
pub(crate) fn numbers(numbers: Vec<u32>) -> String {
    match numbers.as_slice() {
        [] => String::new(),
        [one] => one.to_string(),
        [first @ .., last] if first.len() < 4 => {
            let first: Vec<String> = first.iter().map(u32::to_string).collect();
            format!("{} and {last}", first.join(", "))
        }
        many => many.iter().copied().collect::<PcpuSet>().to_string(),
    }
}

/// "pCPU 1", "pCPUs 1-3".
pub(crate) fn pcpus(set: &PcpuSet) -> String {
    if set.len() == 1 { format!("pCPU {set}") } else { format!("pCPUs {set}") }
}
