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

/// "8 GiB", "512 MiB".
pub(crate) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let unit_bytes = 1_u64 << shift;
        if bytes >= unit_bytes && bytes.is_multiple_of(unit_bytes) {
            return format!("{} {unit}", bytes >> shift);
        }
        if bytes >= unit_bytes {
            return format!("{:.1} {unit}", bytes as f64 / unit_bytes as f64);
        }
    }
    format!("{bytes} B")
}
